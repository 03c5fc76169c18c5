"""`regard lab`: questions answered by measurement."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.shared_options import Force
from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.labs.lab import Lab

GALLERY = Path("labs")


def lab(
    name: Annotated[str, typer.Argument(help="Which; all of them by all; without a name, they are listed.")] = "",
    changes: Annotated[
        list[str] | None, typer.Option("--set", help="size=value, to make it larger or smaller; as often as needed.")
    ] = None,
    sizes: Annotated[bool, typer.Option("--sizes", help="Tell its sizes and what they mean; run nothing.")] = False,
    full: Annotated[bool, typer.Option("--full", help="The long form of a lab that has one: ablation.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(help=f"A new or empty folder for tables, picture and page; of all, {GALLERY} if not given."),
    ] = None,
    force: Force = False,
) -> None:
    """Ask a question about attention, and have it answered by measurement: figures, a picture, conclusions.

    A conclusion that this measurement does not bear out is said to be so, and the exit status is 1. With all, the
    folder becomes a gallery: a picture and a page of Markdown for each lab, and an index. To add to a gallery, or to
    write it again, use --force.

    Example: regard lab scaling --set length=128 --out labs
    """
    if not name:
        _list()
        return
    if name == "all":
        if changes or sizes or full:
            raise RegardError("all labs have their usual sizes: --set, --sizes and --full are for one")
        _all(out or GALLERY, force)
        return
    from regard.labs.lab import lab as find

    found = find(name)
    if full and not found.full:
        raise RegardError(f"the lab {name} has no long form: leave out --full")
    chosen = found.sized([*(found.full.split() if full else ()), *(changes or [])])
    if sizes:
        from regard.labs.lab_terminal import show_sizes
        from regard.plots.console import console

        show_sizes(console(), chosen)
        return
    options = [part for change in changes or [] for part in ("--set", change)]
    command = shlex.join(["regard", "lab", name, *options, *(["--full"] if full else [])])
    _one(chosen, command, out, force)


def _list() -> None:
    """All the labs: nothing of them is imported, so that it takes no time."""
    from rich.table import Table
    from rich.text import Text

    from regard.labs.lab import questions
    from regard.plots.console import console

    table = Table.grid(padding=(0, 2))
    for name, question in questions().items():
        table.add_row(Text(name, "bold"), Text(question))
    console().print(table)
    typer.echo("\nOne is run by its name, as in regard lab scaling; regard lab --help says more.")


def _one(chosen: "Lab", command: str, out: Path | None, force: bool) -> None:
    folder = None if out is None else _folder(out, force)
    from regard.labs.gallery_files import keep, run
    from regard.labs.lab_terminal import show
    from regard.plots.console import console

    screen = console()
    with screen.status("measuring ..."):
        done = run(chosen, command)
    show(screen, done)
    if folder is not None:
        for path in keep(done, folder):
            typer.echo(str(path))
    if not done.result.holds:
        raise typer.Exit(1)


def _all(out: Path, force: bool) -> None:
    from regard.formatting import duration
    from regard.labs.gallery_files import hang, run, write_index
    from regard.labs.lab import NAMES
    from regard.labs.lab import lab as find
    from regard.labs.lab_terminal import held
    from regard.plots.console import console

    folder, screen, labs = _folder(out, force), console(), []
    for name in NAMES:
        with screen.status(name):
            labs.append(run(find(name), f"regard lab {name}"))
        hang(labs[-1], folder)
        sign = "✓" if labs[-1].result.holds else "✗"
        screen.print(f"{sign} {name:<12} {held(labs[-1].result)}; {duration(labs[-1].seconds)}")
    typer.echo(str(write_index(labs, folder, shlex.join(["regard", "lab", "all", "--out", str(out)]))))
    if not all(done.result.holds for done in labs):
        raise typer.Exit(1)


def _folder(out: Path, force: bool) -> Path:
    """The folder, made before anything is measured, so that a mistake is reported at once."""
    from regard.atomic_files import check_new_folder

    check_new_folder(out, force)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RegardError(f"--out {out} cannot be a folder: {error.strerror}") from None
    return out


COMMANDS: list[Callable[..., None]] = [lab]
