"""`regard check` and `regard course`: a student's attention checked, and the assignments."""

import errno
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.course.classroom import Student

app = typer.Typer(help="Assignments: which there are, and what to begin with.", no_args_is_help=True)

Course = Annotated[
    Path | None, typer.Option("--course", help="Another course: a folder of assignments.", exists=True, file_okay=False)
]


def check(
    path: Annotated[Path, typer.Argument(help="A .py or .ipynb file, or a folder with those of a class.")],
    assignment: Annotated[str, typer.Option(help="Which it answers; found by the names it defines if not given.")] = "",
    course: Course = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")] = False,
    gradescope: Annotated[bool, typer.Option("--gradescope", help="Print Gradescope's results.json.")] = False,
    as_html: Annotated[bool, typer.Option("--html", help="Of a class: write class.html.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Of a class: write class.csv.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="A folder for what is written; the current one if not given.")
    ] = None,
) -> None:
    """Check a solution: what it gets right, which mistake it makes, where to look, and the question that leads on.

    Exits with 0 when all is right, 1 when a mistake was found, 2 when the file could not be run. The solution runs in a
    process of its own, with limits of time and memory; that is no sandbox for code that means harm. A folder is a
    class: a table by student and by mistake, and with --html or --csv as files.

    Example: regard check my_attention.py
    """
    if not path.exists():
        raise RegardError(f"there is no {path}: name a .py or .ipynb file, or a folder of them")
    if path.is_dir() and not gradescope:
        _class(path, assignment or None, course, as_json, as_html, as_csv, out)
        return
    if as_html or as_csv:
        raise RegardError("--html and --csv are for a class: name a folder of solutions")
    _one(path, assignment or None, course, as_json, gradescope, out)


def _one(path: Path, name: str | None, course: Path | None, as_json: bool, gradescope: bool, out: Path | None) -> None:
    from regard.course.assignment import HERE
    from regard.course.check import check as run
    from regard.course.classroom import only_solution
    from regard.course.json_report import as_gradescope, no_gradescope, no_json
    from regard.course.json_report import as_json as told_as_json
    from regard.course.terminal_report import show
    from regard.plots.console import console

    try:
        with console().status("checking ..."):
            report = run(only_solution(path), name, course or HERE)
    except (ValueError, OSError) as error:
        if as_json or gradescope:
            _tell(no_gradescope(error) if gradescope else no_json(error), gradescope, out)
            raise typer.Exit(2) from None
        raise
    if as_json or gradescope:
        _tell(as_gradescope(report) if gradescope else told_as_json(report), gradescope, out)
    else:
        show(console(), report)
    raise typer.Exit(report.status)


def _tell(told: Any, gradescope: bool, out: Path | None) -> None:
    text = json.dumps(told, indent=2, ensure_ascii=False)
    if out is None:
        typer.echo(text)
    else:
        _write(out, "results.json" if gradescope else "check.json", text + "\n")


def _write(folder: Path, name: str, text: str) -> None:
    from regard.atomic_files import write_file

    folder.mkdir(parents=True, exist_ok=True)
    write_file(folder / name, text)
    typer.echo(str(folder / name), err=True)


def _class(
    folder: Path, name: str | None, course: Path | None, as_json: bool, as_html: bool, as_csv: bool, out: Path | None
) -> None:
    from rich.progress import track

    from regard.course.assignment import HERE
    from regard.course.classroom import check_class, show_class, solutions
    from regard.course.json_report import as_json as told_as_json
    from regard.plots.console import console

    screen, count = console(), len(solutions(folder))
    found = check_class(folder, name, course or HERE)
    hidden = as_json or not screen.is_terminal
    students = list(track(found, "checking", total=count, console=screen, transient=True, disable=hidden))
    if as_json:
        told = [
            {"student": each.name, **(told_as_json(each.report) if each.report else {"error": each.error})}
            for each in students
        ]
        typer.echo(json.dumps(told, indent=2, ensure_ascii=False))
    else:
        show_class(screen, students)
    both = out is not None and not (as_html or as_csv or as_json)
    _files(folder, students, as_html or both, as_csv or both, out or Path())
    raise typer.Exit(0 if all(each.passed for each in students) else 1)


def _files(folder: Path, students: "list[Student]", as_html: bool, as_csv: bool, out: Path) -> None:
    from regard.course.classroom import as_csv as in_csv
    from regard.course.classroom import as_html as in_html

    if as_html:
        _write(out, "class.html", in_html(students, folder.resolve().name))
    if as_csv:
        _write(out, "class.csv", in_csv(students))


@app.command("list")
def list_(course: Course = None) -> None:
    """The assignments: what is written in each, and its points.

    Example: regard course list
    """
    from rich.table import Table
    from rich.text import Text

    from regard.course.assignment import HERE, assignments
    from regard.plots.console import console

    known = assignments(course or HERE)
    table = Table.grid(padding=(0, 2))
    for each in known:
        points = sum(each.points.values()) + each.style_points + each.brevity_points
        written = Text.assemble(each.title, (f"\n{', '.join(each.defines)}", "dim"))
        table.add_row(Text(each.name, "bold"), Text(f"{points:g} points", "cyan"), written)
    console().print(table)
    typer.echo(f"\nBegin one by its name: regard course start {known[0].name}{_of(course)}")


def _of(course: Path | None) -> str:
    """The option that names another course, as it is typed."""
    return f" --course {shlex.quote(str(course))}" if course else ""


@app.command()
def start(
    name: Annotated[str, typer.Argument(help="The assignment, as regard course list names it.")],
    out: Annotated[Path | None, typer.Option(help="The .py or .ipynb to write; NAME.py here if not given.")] = None,
    course: Course = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
) -> None:
    """Write an assignment's starter: docstrings that say what is wanted, and gaps. An existing file is not replaced.

    Example: regard course start self-attention --out my_attention.py
    """
    from regard.atomic_files import write_file
    from regard.course.assignment import HERE, assignment
    from regard.course.notebook import as_notebook
    from regard.errors import WriteError

    chosen = assignment(name, course or HERE)
    path = out or Path(f"{name.replace('-', '_')}.py")
    if path.suffix not in (".py", ".ipynb"):
        raise RegardError(f"{path} is neither a .py nor an .ipynb file: name one of these by --out")
    starter = as_notebook(chosen.starter) if path.suffix == ".ipynb" else chosen.starter
    try:
        write_file(path, starter, new=not force)
    except WriteError as error:
        if error.errno != errno.EEXIST:
            raise
        raise RegardError(
            f"{path} already exists and was left unchanged: name another file with --out, or replace it with --force"
        ) from None
    typer.echo(f"{path}: write what is missing, then run regard check {shlex.quote(str(path))}{_of(course)}")


COMMANDS: list[Callable[..., None]] = [check]
