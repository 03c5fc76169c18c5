"""`regard check` and `regard course`: check a student's solution, and list and start assignments."""

import errno
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.course.classroom import StudentResult

app = typer.Typer(help="List the course's assignments and start one.", no_args_is_help=True)

Course = Annotated[
    Path | None,
    typer.Option("--course", help="Folder of another course's assignments.", exists=True, file_okay=False),
]


def check(
    path: Annotated[Path, typer.Argument(help="A .py or .ipynb file, or a folder with the solutions of a class.")],
    assignment: Annotated[
        str, typer.Option(help="Name of the assignment. By default it is recognised by the names the file defines.")
    ] = "",
    course: Course = None,
    hint: Annotated[
        int, typer.Option(help="1 shows where to look, 2 what the mistake is, 3 how to fix it.", min=0, max=3)
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    gradescope: Annotated[bool, typer.Option("--gradescope", help="Print Gradescope's results.json.")] = False,
    as_html: Annotated[bool, typer.Option("--html", help="For a class: write class.html.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="For a class: write class.csv.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for the written files. Default: the current folder.")] = None,
) -> None:
    """Check a solution: show what is wrong in a small example, and ask a question that leads to the mistake.

    --hint 1 also shows the line, --hint 2 names the mistake, and --hint 3 the
    fix.

    The exit status is 0 if the solution is correct, 1 if it is not, and 2 if
    the file could not be run.

    A folder is checked as a class: a table by student and one by mistake,
    which --html and --csv write to files.

    Solutions run in a separate process with limits on time and memory. This
    is not a sandbox: do not check untrusted files on a machine you care about.

    Example: regard check my_attention.py
    """
    if not path.exists():
        raise RegardError(f"{path} does not exist: pass a .py or .ipynb file, or a folder of them")
    if path.is_dir() and not gradescope:
        _check_class(path, assignment or None, course, as_json, as_html, as_csv, out)
        return
    if as_html or as_csv:
        raise RegardError("--html and --csv are for a class: pass a folder of solutions")
    _check_one(path, assignment or None, course, hint, as_json, gradescope, out)


def _check_one(
    path: Path, name: str | None, course: Path | None, hint: int, as_json: bool, gradescope: bool, out: Path | None
) -> None:
    from regard.course import json_report
    from regard.course.assignment import ASSIGNMENTS_FOLDER
    from regard.course.check import check as run_check
    from regard.course.classroom import only_solution
    from regard.course.terminal_report import show_report
    from regard.plots.console import console

    try:
        with console().status("checking ..."):
            report = run_check(only_solution(path), name, course or ASSIGNMENTS_FOLDER)
    except (RegardError, OSError) as error:
        if not as_json and not gradescope:
            raise
        document = json_report.error_as_gradescope(error) if gradescope else json_report.error_as_json(error)
        _output_json(document, gradescope, out)
        raise typer.Exit(2) from None
    if gradescope:
        _output_json(json_report.as_gradescope(report, hint), gradescope, out)
    elif as_json:
        _output_json(json_report.as_json(report), gradescope, out)
    else:
        show_report(console(), report, hint)
    raise typer.Exit(report.status)


def _output_json(document: Any, gradescope: bool, out: Path | None) -> None:
    text = json.dumps(document, indent=2, ensure_ascii=False)
    if out is None:
        typer.echo(text)
    else:
        _write(out, "results.json" if gradescope else "check.json", text + "\n")


def _write(folder: Path, name: str, text: str) -> None:
    from regard.atomic_files import write_file

    folder.mkdir(parents=True, exist_ok=True)
    write_file(folder / name, text)
    typer.echo(str(folder / name), err=True)


def _check_class(
    folder: Path, name: str | None, course: Path | None, as_json: bool, as_html: bool, as_csv: bool, out: Path | None
) -> None:
    from rich.progress import track

    from regard.course import json_report
    from regard.course.assignment import ASSIGNMENTS_FOLDER
    from regard.course.classroom import check_class, find_solutions, show_class
    from regard.plots.console import console

    screen, count = console(), len(find_solutions(folder))
    results = check_class(folder, name, course or ASSIGNMENTS_FOLDER)
    hidden = as_json or not screen.is_terminal
    students = list(track(results, "checking", total=count, console=screen, transient=True, disable=hidden))
    if as_json:
        documents = [
            {"student": student.name}
            | (json_report.as_json(student.report) if student.report else {"error": student.error})
            for student in students
        ]
        typer.echo(json.dumps(documents, indent=2, ensure_ascii=False))
    else:
        show_class(screen, students)
    both = out is not None and not (as_html or as_csv or as_json)
    _write_class_files(folder, students, as_html or both, as_csv or both, out or Path())
    raise typer.Exit(0 if all(student.passed for student in students) else 1)


def _write_class_files(folder: Path, students: "list[StudentResult]", as_html: bool, as_csv: bool, out: Path) -> None:
    from regard.course import classroom

    if as_html:
        _write(out, "class.html", classroom.as_html(students, folder.resolve().name))
    if as_csv:
        _write(out, "class.csv", classroom.as_csv(students))


@app.command("list")
def list_(course: Course = None) -> None:
    """List the assignments, what has to be written in each, and its points.

    Example: regard course list
    """
    from rich.table import Table
    from rich.text import Text

    from regard.course.assignment import ASSIGNMENTS_FOLDER, load_assignments
    from regard.plots.console import console

    assignments = load_assignments(course or ASSIGNMENTS_FOLDER)
    table = Table.grid(padding=(0, 2))
    for assignment in assignments:
        description = Text.assemble(assignment.title, (f"\n{', '.join(assignment.defines)}", "dim"))
        table.add_row(Text(assignment.name, "bold"), Text(f"{assignment.max_points:g} points", "cyan"), description)
    console().print(table)
    typer.echo(f"\nTo start an assignment: regard course start {assignments[0].name}{_course_option(course)}")


def _course_option(course: Path | None) -> str:
    """The option that selects another course, as the user types it."""
    return f" --course {shlex.quote(str(course))}" if course else ""


@app.command()
def start(
    name: Annotated[str, typer.Argument(help="Name of the assignment, as listed by regard course list.")],
    out: Annotated[
        Path | None, typer.Option(help="The .py or .ipynb file to write. Default: NAME.py in the current folder.")
    ] = None,
    course: Course = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
) -> None:
    """Write an assignment's starter: docstrings that describe what to write, and gaps. Existing files are not replaced.

    An .ipynb file is a notebook with the assignment's story, pictures and gaps.

    Example: regard course start self-attention --out my_attention.py
    """
    from regard.atomic_files import write_file
    from regard.course.assignment import ASSIGNMENTS_FOLDER, load_assignment
    from regard.course.notebook_writer import as_notebook
    from regard.errors import WriteError

    assignment = load_assignment(name, course or ASSIGNMENTS_FOLDER)
    path = out or Path(f"{name.replace('-', '_')}.py")
    if path.suffix not in (".py", ".ipynb"):
        raise RegardError(f"{path} is neither a .py nor an .ipynb file: choose a file name with --out")
    is_notebook = path.suffix == ".ipynb"
    starter = as_notebook(assignment.starter, assignment.story) if is_notebook else assignment.starter
    try:
        write_file(path, starter, new=not force)
    except WriteError as error:
        if error.errno != errno.EEXIST:
            raise
        raise RegardError(
            f"{path} already exists and was left unchanged: name another file with --out, or replace it with --force"
        ) from None
    command = f"regard check {shlex.quote(str(path))}{_course_option(course)}"
    typer.echo(f"Wrote {path}. Fill in the gaps, then run: {command}")


COMMANDS: list[Callable[..., None]] = [check]
