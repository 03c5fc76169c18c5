"""Batch jobs on the command line: shared options, a progress display with an estimate of the end, and a summary."""

import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.language_check import SAMPLED_LINES
from regard.cli.model_loading import check_device
from regard.cli.shared_options import INTERRUPTED, parse_columns, parse_keys
from regard.errors import RegardError
from regard.formatting import duration, rate

if TYPE_CHECKING:
    from regard.jobs.run_job import JobEngine

ENGINES = ("auto", "ray")
REPORT_SECONDS = 30
"""Time between two lines on progress where stderr is not a terminal, in seconds."""
MAX_LISTED_FAULTS = 20
"""Maximum number of faults that are listed on stderr; more are written to a file."""
MIN_ROWS_FOR_SUMMARY = 101
"""Number of rows from which a summary is printed even if nothing went wrong."""

RowColumns = Annotated[
    str, typer.Option("--columns", help="Column of a TSV file with the texts, counted from 1. The output adds columns.")
]
RowKeys = Annotated[
    str, typer.Option("--keys", help="Key of a JSONL file, or column of a Parquet file, with the texts.")
]
EngineName = Annotated[str, typer.Option("--engine", help="auto runs on this machine; ray on a Ray cluster.")]
Address = Annotated[
    str | None,
    typer.Option(help="Address of a running Ray cluster, or auto. Without one, a cluster is started on this machine."),
]
WorkerCount = Annotated[
    int | None, typer.Option(min=1, help="Number of processes. Default: one per core, or one per GPU.")
]
Restart = Annotated[
    bool, typer.Option("--restart", help="Start again instead of resuming; discards what an earlier run has finished.")
]


@dataclass(frozen=True)
class JobOptions:
    """The options of a command that only a job has."""

    columns: str = ""
    keys: str = ""
    workers: int | None = None
    restart: bool = False
    engine: str = "auto"
    address: str | None = None

    def __post_init__(self) -> None:
        """Check the engine."""
        from regard.config import did_you_mean

        if self.engine not in ENGINES:
            raise RegardError(f"--engine {self.engine} is not a valid choice: {did_you_mean(self.engine, ENGINES)}")
        if self.address and self.engine != "ray":
            raise RegardError("--address is the address of a Ray cluster: add --engine ray")


def is_job(files: list[Path], output: Path | None, options: JobOptions) -> bool:
    """Whether a command runs as a job, which reads a regular file and writes one; other commands have no such options.

    A missing file counts as regular, and so does a folder: the job reports them. A job replaces its output, so the file
    to which stdout is redirected is none, even under the name /dev/stdout: other programs write to it as well.
    """
    from regard.atomic_files import open_descriptor

    if files and output is not None and all(map(_is_like_a_file, [*files, output])) and open_descriptor(output) is None:
        return True
    defaults = vars(JobOptions())
    given = [name for name, value in vars(options).items() if value != defaults[name]]
    if given:
        raise RegardError(f"--{given[0]} needs regular files for input and output (--input, --output)")
    return False


def _is_like_a_file(path: Path) -> bool:
    return path.is_file() or path.is_dir() or not path.exists()


def run_text_job(
    task: Any,
    files: list[Path],
    output: Path,
    device: str,
    options: JobOptions,
    as_json: bool = False,
    look_at: Callable[[list[str]], None] | None = None,
) -> None:
    """Run a job on files, show its progress and print a summary. Exits with 1 if some rows could not be answered.

    `look_at` is called with the texts of the first rows before the job starts.
    """
    from regard.atomic_files import raising_write_errors, resolved
    from regard.data.corpus import require_files
    from regard.jobs.records import open_records
    from regard.jobs.run_job import run_job

    require_files(map(str, files))
    with raising_write_errors(output):  # a name can be too long
        _check_output(output, files)
    if options.engine == "ray":  # a worker reads them, in the folder in which Ray was started
        files = [resolved(file) for file in files]
    columns, keys = parse_columns(options.columns), parse_keys(options.keys)
    records = open_records(files, output, columns, keys, as_json)
    texts = len(columns or keys or files)
    if texts != task.texts_per_row:
        wanted = "one text" if task.texts_per_row == 1 else "a source and a target"
        raise RegardError(
            f"each row must have {wanted} to {task.verb}, but {texts} were given: see --columns and --keys"
        )
    records.check_columns(task.columns)  # before the model is loaded
    if look_at is not None:
        look_at(_first_texts(records))
    with _job_engine(options, device, records.size) as chosen:
        where = str(chosen)
        try:
            with _progress_display(task.verb) as report:
                summary = run_job(task, records, output, chosen, options.restart, report)
        except KeyboardInterrupt:
            typer.echo("\nregard: interrupted; run the same command again to resume", err=True)
            raise typer.Exit(INTERRUPTED) from None
    _print_summary(summary, task, output, where)
    for line in fault_remedies(summary.faults, records.paths):
        typer.echo(line, err=True)
    if summary.faults:
        raise typer.Exit(1)


def _job_engine(options: JobOptions, device: str, input_size: int) -> AbstractContextManager["JobEngine"]:
    """Where the job runs: on this machine or on a Ray cluster."""
    if options.engine == "ray":
        from regard.jobs.ray_workers import ray_cluster

        return ray_cluster(options.address, device, options.workers)
    from regard.jobs.local_workers import LocalEngine

    return nullcontext(LocalEngine(check_device(device), options.workers, input_size))


def _check_output(output: Path, files: list[Path]) -> None:
    """Raise a RegardError if the output cannot be written where it is wanted, or would replace an input."""
    if output.is_dir():
        raise RegardError(f"--output {output} is a folder: name a file in it")
    folder = output.absolute().parent
    if not folder.is_dir():
        problem = (
            f"{output.parent} is not a folder: choose another output"
            if folder.exists()
            else f"the folder {output.parent} does not exist: create it"
        )
        raise RegardError(f"--output {output} cannot be written: {problem}")
    faults_file, other = _faults_file(output), "choose another --output"
    if faults_file.is_dir():
        raise RegardError(f"{faults_file} is a folder, but rows without a result would be listed there: {other}")
    for file in files:
        if output.exists() and output.samefile(file):
            raise RegardError(f"--output {output} is the input as well: choose another output")
        if faults_file.exists() and faults_file.samefile(file):
            raise RegardError(f"{file} is an input, but rows without a result would be listed in it: {other}")
    if faults_file.exists() and not _is_list_of_faults(faults_file):
        raise RegardError(f"{faults_file} would be replaced by a list of rows without a result: rename it, or {other}")


def _faults_file(output: Path) -> Path:
    """Where the rows without a result are listed, if there are many."""
    return output.with_name(f"{output.name}.faults.tsv")


def _is_list_of_faults(path: Path) -> bool:
    """Whether a file may be such a list, of an earlier job."""
    with path.open("rb") as file:
        beginning = file.read(20)
    return not beginning or re.match(rb"\d+\t", beginning) is not None


def _first_texts(records: Any) -> list[str]:
    """The texts of the first rows, without those that cannot be read."""
    for rows in records.read(iter([SAMPLED_LINES])):
        return [record.fields[0] for record in records.records(rows.content) if isinstance(record.fields, tuple)]
    return []


@contextmanager
def _progress_display(verb: str) -> Iterator[Callable[[Any], None]]:
    """A progress bar on stderr, or a line every half minute if that is not a terminal. Yields the function to call."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _line_reporter()
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[rows]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as display:
        bar = display.add_task(verb, total=1.0, rows="")

        def show(progress: Any) -> None:
            display.update(bar, completed=progress.fraction, rows=_describe(progress))

        yield show


def _line_reporter() -> Callable[[Any], None]:
    last = time.monotonic()

    def report(progress: Any) -> None:
        nonlocal last
        is_resumed = progress.rows_before and progress.rows == progress.rows_before
        if is_resumed or time.monotonic() - last >= REPORT_SECONDS:
            last = time.monotonic()
            typer.echo(f"{progress.fraction:.1%}  {_describe(progress)}", err=True)

    return report


def _describe(progress: Any) -> str:
    """Rows, speed and the estimated time that is left."""
    if progress.rows == progress.rows_before:
        return f"resuming after {progress.rows:,} rows" if progress.rows else ""
    left = progress.seconds_left
    estimate = "" if left is None else f"  {duration(left)} left"
    return f"{progress.rows:,} rows  {rate(progress.rows_per_second)}/s{estimate}"


def _print_summary(summary: Any, task: Any, output: Path, where: str) -> None:
    from regard.atomic_files import write_file
    from regard.jobs.tasks import one_line

    progress, faults = summary.progress, summary.faults
    if progress.rows >= MIN_ROWS_FOR_SUMMARY or progress.rows_before or faults:
        earlier = f", {progress.rows_before:,} of them in an earlier run" if progress.rows_before else ""
        typer.echo(
            f"{output}  {progress.rows:,} rows {task.participle} in {duration(progress.seconds)} "
            f"({rate(progress.rows_per_second)}/s, {where}){earlier}",
            err=True,
        )
    path = _faults_file(output)
    if len(faults) <= MAX_LISTED_FAULTS:
        path.unlink(missing_ok=True)  # of an earlier job with this output
    if not faults:
        return
    count = "1 row" if len(faults) == 1 else f"{len(faults):,} rows"
    typer.echo(f"{count} could not be {task.participle}; the output has no result for each:", err=True)
    for number, reason, _ in faults[:MAX_LISTED_FAULTS]:
        typer.echo(f"  row {number}: {reason}", err=True)
    if len(faults) > MAX_LISTED_FAULTS:
        lines = (f"{number}\t{one_line(reason)}\n" for number, reason, _ in faults)
        write_file(path, "".join(lines))
        typer.echo(f"  … all are listed in {path}", err=True)


def fault_remedies(faults: Iterable[Any], paths: tuple[str, ...]) -> Iterator[str]:
    """What to do about each kind of fault in text files; other programs convert Parquet."""
    from regard.data.corpus import REMEDIES, LineFault, remedy
    from regard.jobs.records import PARQUET_SUFFIX

    if paths[0].endswith(PARQUET_SUFFIX):
        return
    kinds = {fault.kind for fault in faults} - {"too long"}  # its remedy says that lines are skipped, as in training
    for kind in REMEDIES:
        if kind in kinds:  # which of two files has the fault is not recorded
            yield f"{kind}: {remedy(LineFault(kind), paths[0]) if len(paths) == 1 else REMEDIES[kind]}"
