"""Options that several commands share."""

from typing import Annotated

import typer

Force = Annotated[
    bool,
    typer.Option(
        "--force",
        help="Write even if the folder is not empty: files of the same names are replaced, all others stay.",
    ),
]
