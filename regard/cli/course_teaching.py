"""Commands of `regard course` for teachers and authors: test, copy and package an assignment, release its solution."""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from regard.errors import RegardError

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


def copy(
    name: Annotated[str, typer.Argument(help="Name of the assignment, as listed by regard course list.")],
    out: Annotated[Path, typer.Option(help="Folder of your course.")] = Path("my_course"),
    course: Course = None,
    force: Annotated[bool, typer.Option("--force", help="Replace existing files.")] = False,
) -> None:
    """Copy an assignment to a course of your own, to change its points, deductions, forbidden functions or texts.

    Example: regard course copy self-attention --out my_course
    """
    import shutil

    from regard.atomic_files import check_new_folder, new_folder
    from regard.course.assignment import ASSIGNMENTS_FOLDER, load_assignment

    assignment = load_assignment(name, course or ASSIGNMENTS_FOLDER)
    target = out / assignment.name
    check_new_folder(target, force)
    with new_folder(target, force=force) as folder:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(assignment.folder, folder, ignore=ignored, dirs_exist_ok=True)
    typer.echo(f"Wrote {target}. Edit {target / 'assignment.toml'}, then run: regard check FILE --course {out}")


def package(
    name: Annotated[str, typer.Argument(help="Name of the assignment, as listed by regard course list.")],
    gradescope: Annotated[Path | None, typer.Option(help="Write Gradescope's autograder to this .zip file.")] = None,
    nbgrader: Annotated[Path | None, typer.Option(help="Write nbgrader's source notebook to this .ipynb file.")] = None,
    docker: Annotated[
        Path | None, typer.Option(help="Write a Dockerfile and what it needs to this new folder.")
    ] = None,
    hint: Annotated[int, typer.Option(help="Hints that Gradescope shows, as in regard check.", min=0, max=3)] = 0,
    hidden: Annotated[
        Path | None, typer.Option(help="For Gradescope and Docker: probes of your own, as in regard check.")
    ] = None,
    course: Course = None,
    force: Annotated[bool, typer.Option("--force", help="Replace existing files.")] = False,
) -> None:
    """Package an assignment with its checker, to grade it on Gradescope, with nbgrader or in a container.

    Packages contain the reference solution: do not publish them.

    Example: regard course package self-attention --gradescope autograder.zip
    """
    from regard.atomic_files import check_new_folder, new_folder, write_file
    from regard.course.assignment import ASSIGNMENTS_FOLDER, load_assignment
    from regard.course.grader_packages import gradescope_package, write_docker_folder
    from regard.course.nbgrader_notebook import as_nbgrader_notebook

    assignment = load_assignment(name, course or ASSIGNMENTS_FOLDER)
    if hidden is not None:
        assignment = assignment.with_hidden(hidden)
    for path, suffix in ((gradescope, ".zip"), (nbgrader, ".ipynb")):
        if path is not None and path.suffix != suffix:
            raise RegardError(f"{path} must be a {suffix} file")
        if path is not None and path.exists() and not force:
            raise RegardError(f"{path} already exists: choose another name, or replace it with --force")
    if gradescope is not None:
        write_file(gradescope, gradescope_package(assignment, hint))
        typer.echo(f"Wrote {gradescope}. Upload it as the autograder of a programming assignment.")
    if nbgrader is not None:
        write_file(nbgrader, as_nbgrader_notebook(assignment, course))
        typer.echo(f"Wrote {nbgrader}. Put it in source/{name}/ and run: nbgrader generate_assignment {name}")
    if docker is not None:
        check_new_folder(docker, force)
        with new_folder(docker, force=force) as folder:
            write_docker_folder(assignment, folder)
        typer.echo(f"Wrote {docker}. Its Dockerfile says how to build and run it.")
    if gradescope is None and nbgrader is None and docker is None:
        raise RegardError("nothing to write: choose --gradescope FILE.zip, --nbgrader FILE.ipynb or --docker FOLDER")


def solution(
    name: Annotated[str, typer.Argument(help="Name of the assignment, as listed by regard course list.")],
    out: Annotated[Path | None, typer.Option(help="The .py or .ipynb file to write. Default: print it.")] = None,
    course: Course = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
) -> None:
    """Print an assignment's solution, or write it to a file. A teacher can set the date of its release.

    Example: regard course solution self-attention
    """
    from regard.course.assignment import ASSIGNMENTS_FOLDER, load_assignment
    from regard.course.solution_release import released_solution

    assignment = load_assignment(name, course or ASSIGNMENTS_FOLDER)
    source = released_solution(assignment)
    if out is None:
        typer.echo(source, nl=False)
    else:
        write_python_or_notebook(out, source, assignment.story, force)
        typer.echo(f"Wrote {out}.")


def write_python_or_notebook(path: Path, source: str, story: Path, force: bool) -> None:
    """Write a source as a .py file, or as a notebook that tells the story. Existing files are kept unless `force`."""
    from regard.atomic_files import write_file
    from regard.course.notebook_writer import as_notebook
    from regard.errors import WriteError

    if path.suffix not in (".py", ".ipynb"):
        raise RegardError(f"{path} is neither a .py nor an .ipynb file: choose a file name with --out")
    try:
        write_file(path, as_notebook(source, story) if path.suffix == ".ipynb" else source, new=not force)
    except WriteError as error:
        if error.errno != errno.EEXIST:
            raise
        raise RegardError(
            f"{path} already exists and was left unchanged: name another file with --out, or replace it with --force"
        ) from None


COMMANDS: list[Callable[..., None]] = [test, copy, package, solution]
