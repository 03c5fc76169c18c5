"""`regard lab`: experiments that answer questions about attention by measurement."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.shared_options import Force
from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.labs.lab import Lab

DEFAULT_GALLERY = Path("labs")
"""Folder that `regard lab all` writes to, unless --out names another. The bundled gallery is regard/labs/gallery."""


def lab(
    name: Annotated[str, typer.Argument(help="The lab to run, or all. Without a name, the labs are listed.")] = "",
    changes: Annotated[
        list[str] | None, typer.Option("--set", help="Change a size of the experiment: size=value. Repeatable.")
    ] = None,
    sizes: Annotated[
        bool, typer.Option("--sizes", help="Show the lab's sizes and their meanings; run nothing.")
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="Run the full form of a lab that has one: ablation.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help=f"New or empty folder for the results: JSON, Markdown, CSV, PNG, HTML. For all: {DEFAULT_GALLERY}."
        ),
    ] = None,
    force: Force = False,
) -> None:
    """Answer a question about attention by measurement, with tables, a figure and conclusions.

    Conclusions that the measurement does not confirm are listed separately, and the exit status is 1.

    With all, every lab runs, and the folder becomes a gallery: JSON, Markdown
    and a figure for each lab, and an index. Use --force to write to an
    existing gallery. The bundled one, which regard serve shows, is written by
    regard lab all --out regard/labs/gallery --force.

    Example: regard lab scaling --set length=128 --out labs
    """
    if not name:
        _list()
        return
    if name == "all":
        if changes or sizes or full:
            raise RegardError("--set, --sizes and --full apply to a single lab, not to all")
        _run_all(out or DEFAULT_GALLERY, force)
        return
    from regard.labs.lab import load_lab

    chosen = load_lab(name)
    if full and not chosen.full_sizes:
        raise RegardError(f"the lab {name} has no full form: omit --full")
    chosen = chosen.with_sizes([*(chosen.full_sizes.split() if full else ()), *(changes or [])])
    if sizes:
        from regard.labs.lab_terminal import show_sizes
        from regard.plots.console import console

        show_sizes(console(), chosen)
        return
    options = [part for change in changes or [] for part in ("--set", change)]
    command = shlex.join(["regard", "lab", name, *options, *(["--full"] if full else [])])
    _run_one(chosen, command, out, force)


def _list() -> None:
    """Print the names and questions of all labs, without importing them."""
    from rich.table import Table
    from rich.text import Text

    from regard.labs.lab import questions
    from regard.plots.console import console

    table = Table.grid(padding=(0, 2))
    for name, question in questions().items():
        table.add_row(Text(name, "bold"), Text(question))
    console().print(table)
    typer.echo("\nRun a lab by its name, for example: regard lab scaling. See also: regard lab --help")


def _run_one(chosen: "Lab", command: str, out: Path | None, force: bool) -> None:
    folder = None if out is None else _make_folder(out, force)
    from regard.labs.lab_files import run_lab, write_lab_files
    from regard.labs.lab_terminal import show
    from regard.plots.console import console

    screen = console()
    with screen.status("measuring ..."):
        run = run_lab(chosen, command)
    show(screen, run.record)
    if folder is not None:
        for path in write_lab_files(run, folder):
            typer.echo(str(path))
    if not run.record.holds:
        raise typer.Exit(1)


def _run_all(out: Path, force: bool) -> None:
    from regard.formatting import duration
    from regard.labs.lab import NAMES, load_lab
    from regard.labs.lab_files import run_lab, write_gallery_page, write_index
    from regard.plots.console import console

    folder, screen, records = _make_folder(out, force), console(), []
    for name in NAMES:
        with screen.status(name):
            run = run_lab(load_lab(name), f"regard lab {name}")
        write_gallery_page(run, folder)
        records.append(run.record)
        sign = "✓" if run.record.holds else "✗"
        screen.print(f"{sign} {name:<12} {run.record.confirmed}; {duration(run.record.seconds)}")
    command = ["regard", "lab", "all", "--out", str(out), *(["--force"] if force else [])]
    typer.echo(str(write_index(records, folder, shlex.join(command))))
    if not all(record.holds for record in records):
        raise typer.Exit(1)


def _make_folder(out: Path, force: bool) -> Path:
    """Create the folder before anything is measured, so that a mistake is reported at once."""
    from regard.atomic_files import check_new_folder

    check_new_folder(out, force)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RegardError(f"--out {out} cannot be created: {error.strerror}") from None
    return out


COMMANDS: list[Callable[..., None]] = [lab]
