"""`regard check` and `regard course`: check a student's solution, and list and start assignments."""

import json
import shlex
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli import course_teaching
from regard.cli.check_class import ClassFiles, check_class, write_output
from regard.cli.course_teaching import Course, write_python_or_notebook
from regard.errors import RegardError

app = typer.Typer(help="List the course's assignments and start one.", no_args_is_help=True)


def check(
    path: Annotated[Path, typer.Argument(help="A .py or .ipynb file, or a folder or zip file of a class.")],
    assignment: Annotated[
        str, typer.Option(help="Name of the assignment. By default it is recognised by the names the file defines.")
    ] = "",
    course: Course = None,
    hint: Annotated[
        int, typer.Option(help="1 shows where to look, 2 what the mistake is, 3 how to fix it.", min=0, max=3)
    ] = 0,
    hidden: Annotated[
        Path | None, typer.Option(help="File with probes of your own, which reports do not show.", dir_okay=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    gradescope: Annotated[bool, typer.Option("--gradescope", help="Print Gradescope's results.json.")] = False,
    as_html: Annotated[bool, typer.Option("--html", help="For a class: write class.html.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="For a class: write class.csv.")] = False,
    roster: Annotated[
        Path | None, typer.Option(help="For a class: CSV file with the columns id, name and email.", dir_okay=False)
    ] = None,
    canvas: Annotated[
        str, typer.Option(metavar="TITLE", help="For a class: write canvas.csv, with the points in a column TITLE.")
    ] = "",
    feedback: Annotated[
        bool, typer.Option("--feedback", help="For a class: write a file for each student to feedback/.")
    ] = False,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="For a class: files checked at a time. Default: one for each CPU core.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the written files. Default: the current folder.")] = None,
) -> None:
    """Check a solution: show what is wrong in a small example, and ask a question that leads to the mistake.

    --hint 1 also shows the line, --hint 2 names the mistake, and --hint 3 the
    fix.

    The exit status is 0 if the solution is correct, 1 if it is not, and 2 if
    the file could not be run.

    A folder, or a zip file downloaded from Canvas, Moodle or Gradescope, is
    checked as a class: a table by student and one by mistake, which --html
    and --csv write to files.

    Solutions run in a separate process with limits on time and memory. On
    Linux it has no network and cannot reach your files and processes. On other
    systems, check untrusted files in a container.

    Example: regard check my_attention.py
    """
    if not path.exists():
        raise RegardError(f"{path} does not exist: pass a .py or .ipynb file, or a folder of them")
    if (path.is_dir() or path.suffix == ".zip") and not gradescope:
        both = out is not None and not (as_html or as_csv or as_json or canvas or feedback)
        files = ClassFiles(as_html or both, as_csv or both, canvas, feedback, hint, out)
        check_class(path, assignment or None, course, roster, hidden, jobs, as_json, files)
    if as_html or as_csv or canvas or feedback or roster or jobs:
        raise RegardError("--html, --csv, --roster, --canvas, --feedback and --jobs are for a class: pass a folder")
    _check_one(path, assignment or None, course, hidden, hint, as_json, gradescope, out)


def _check_one(
    path: Path,
    name: str | None,
    course: Path | None,
    hidden: Path | None,
    hint: int,
    as_json: bool,
    gradescope: bool,
    out: Path | None,
) -> None:
    from regard.course import json_report
    from regard.course.assignment import ASSIGNMENTS_FOLDER
    from regard.course.classroom import read_one
    from regard.course.several_assignments import check_all
    from regard.course.terminal_report import show_reports
    from regard.plots.console import console

    try:
        with console().status("checking ..."), tempfile.TemporaryDirectory() as scratch:
            assignments = course or ASSIGNMENTS_FOLDER
            submission = read_one(path, Path(scratch), name, assignments)
            reports = check_all(submission.path or path, name, assignments, submission.others, hidden)
    except (RegardError, OSError) as error:
        if not as_json and not gradescope:
            raise
        document = json_report.error_as_gradescope(error) if gradescope else json_report.error_as_json(error)
        _output_json(document, gradescope, out)
        raise typer.Exit(2) from None
    if gradescope:
        _output_json(json_report.reports_as_gradescope(reports, hint), gradescope, out)
    elif as_json:
        _output_json(json_report.reports_as_json(reports), gradescope, out)
    else:
        show_reports(console(), reports, hint)
    raise typer.Exit(max(report.status for report in reports))


def _output_json(document: Any, gradescope: bool, out: Path | None) -> None:
    text = json.dumps(document, indent=2, ensure_ascii=False)
    if out is None:
        typer.echo(text)
    else:
        write_output(out / ("results.json" if gradescope else "check.json"), text + "\n")


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
    from regard.course.assignment import ASSIGNMENTS_FOLDER, load_assignment

    assignment = load_assignment(name, course or ASSIGNMENTS_FOLDER)
    path = out or Path(f"{name.replace('-', '_')}.py")
    write_python_or_notebook(path, assignment.starter, assignment.story, force)
    command = f"regard check {shlex.quote(str(path))}{_course_option(course)}"
    typer.echo(f"Wrote {path}. Fill in the gaps, then run: {command}")


for _command in course_teaching.COMMANDS:
    app.command()(_command)

COMMANDS: list[Callable[..., None]] = [check]
