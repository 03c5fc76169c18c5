"""Commands of `regard course` for teachers and authors: test an assignment, package it, and release its solution."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

Course = Annotated[
    Path | None,
    typer.Option("--course", help="Folder of another course's assignments.", exists=True, file_okay=False),
]


def test(
    folder: Annotated[
        Path, typer.Argument(help="Folder of an assignment, or of a course.", exists=True, file_okay=False)
    ],
) -> None:
    """Test an assignment that you wrote: its files, points, variants, other solutions and notebook.

    Every variant must be named exactly, and every file in solutions/ must
    pass. The exit status is 1 if there is a problem.

    Example: regard course test my_course/average
    """
    from rich.text import Text

    from regard.course.author_checks import assignment_folders, examine_assignment
    from regard.formatting import visible_lines
    from regard.plots.console import console

    screen, is_right = console(), True
    for path in assignment_folders(folder):
        screen.print(Text(path.resolve().name, "bold"))
        with screen.status("testing ..."):
            for part in examine_assignment(path):
                is_right &= not part.problems
                sign = ("  ✗ ", "red") if part.problems else ("  ✓ ", "green")
                screen.print(Text.assemble(sign, part.title))
                for problem in part.problems:
                    screen.print(Text(f"      {visible_lines(problem)}"), soft_wrap=True)
    raise typer.Exit(0 if is_right else 1)


COMMANDS: list[Callable[..., None]] = [test]
