"""`regard score`: how probable a model finds given translations."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.evaluation_inputs import Columns, Keys
from regard.cli.job_options import Address, EngineName, JobOptions, Restart, WorkerCount, is_job, run_text_job
from regard.cli.model_loading import default_model
from regard.cli.shared_options import TRANSLATOR_HELP, Device, SourceLanguage, TargetLanguage
from regard.errors import RegardError


def score(
    files: Annotated[
        list[Path],
        typer.Argument(help="Files of sources and of their translations; or one file, with --columns or --keys."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="File for the rows with their scores.")],
    model: Annotated[str, typer.Option("--model", "-m", help=TRANSLATOR_HELP)] = "",
    columns: Columns = "",
    keys: Keys = "",
    source_language: SourceLanguage = None,
    target_language: TargetLanguage = None,
    device: Device = "auto",
    workers: WorkerCount = None,
    restart: Restart = False,
    engine: EngineName = "auto",
    address: Address = None,
) -> None:
    """Score given translations: write each pair with its log-probability and its number of tokens.

    The score of a target is the sum over its tokens, including the end token. Divided by the number of tokens, it can
    be compared between sentences. Several processes share the work; run an interrupted command again to resume.

    Example: regard score corpus.fr corpus.en --output scored.tsv

    Example: regard score corpus.tsv.xz --columns 1,2 --output scored.tsv.xz
    """
    from regard.jobs.tasks import ScoreTask

    options = JobOptions(columns, keys, workers, restart, engine, address)
    if len(files) > 2:
        raise RegardError(f"{len(files)} files were given: a file of sources and one of translations are needed")
    if not is_job(files, output, options):
        raise RegardError("scores are computed for regular files, and written to one")
    task = ScoreTask(
        model=model or default_model(source_language, target_language),
        source_language=source_language,
        target_language=target_language,
    )
    run_text_job(task, files, output, device, options)


COMMANDS: list[Callable[..., None]] = [score]
