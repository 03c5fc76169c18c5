"""`regard translate`: texts, files or stdin in, translations out."""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, TextIO

import typer

from regard.cli.job_options import (
    ENGINES,
    Address,
    JobOptions,
    Restart,
    RowColumns,
    RowKeys,
    WorkerCount,
    is_job,
    run_text_job,
)
from regard.cli.language_check import warn_of_rows, watch_language
from regard.cli.model_loading import default_model, for_languages, load_model
from regard.cli.shared_options import (
    TRANSLATOR_HELP,
    Beam,
    Device,
    InputFile,
    LengthPenalty,
    SourceLanguage,
    TargetLanguage,
    Verbose,
)
from regard.cli.text_io import argument_lines, check_input, for_output, input_lines, open_output, until_error
from regard.decoding.options import DEFAULT_BEAM, Decoding
from regard.errors import RegardError

DECODING_ENGINES = ("auto", "pytorch", "compiled", "ctranslate2")
"""Values of --engine that say what decodes; the others say where."""
FEW_TEXTS = 8
"""Number of texts up to which a small model is faster on one thread."""
MIN_LINES_FOR_PROGRESS = 101
"""Number of lines from which a progress bar is shown; fewer are translated before anyone could read it."""
FLUSH_LINES = 32
"""Number of lines after which the output is flushed."""


def translate(
    text: Annotated[
        list[str] | None, typer.Argument(help="Texts to translate; without any, the lines of --input or stdin.")
    ] = None,
    model: Annotated[str, typer.Option("--model", "-m", help=TRANSLATOR_HELP)] = "",
    source: InputFile = None,
    source_language: SourceLanguage = None,
    target_language: TargetLanguage = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File for the translations.")] = None,
    beam: Beam = DEFAULT_BEAM,
    length_penalty: LengthPenalty = Decoding.length_penalty,
    n_best: Annotated[
        int, typer.Option(help="Maximum number of translations per line, each with its line number.")
    ] = 1,
    scores: Annotated[
        bool, typer.Option("--scores", help="Print the log-probability before each translation.")
    ] = False,
    max_tokens: Annotated[
        int | None,
        typer.Option(help="Maximum length of a translation in tokens. Default: twice the source plus 10."),
    ] = None,
    batch_tokens: Annotated[
        int,
        typer.Option(min=0, help="Maximum batch size in tokens: hypotheses × longest source; 0 uses the default."),
    ] = 0,
    precision: Annotated[
        str, typer.Option(help="auto, float32, bfloat16 or int8; auto uses bfloat16 on devices that are fast at it.")
    ] = "auto",
    device: Device = "auto",
    columns: RowColumns = "",
    keys: RowKeys = "",
    workers: WorkerCount = None,
    restart: Restart = False,
    engine: Annotated[
        str,
        typer.Option(
            help="auto, pytorch, compiled (C++) or ctranslate2; auto compiles where it pays off. ray runs on a cluster."
        ),
    ] = "auto",
    address: Address = None,
    verbose: Verbose = False,
) -> None:
    """Translate texts, the lines of a file, or stdin. Each input line gives one output line, in order.

    With --input and --output, several processes translate, and the command can be interrupted at any time: run it again
    to resume. Lines that cannot be translated are reported at the end.

    Columns are separated by tabs: the line number (with --n-best), the score (with --scores), the translation.

    Without --model, --from and --to choose a bundled model; regard models lists them. A warning is printed if the text
    is clearly in another language than the model translates from.

    Example: regard translate "Le chat dort."

    Example: regard translate --model runs/fr-en --input test.fr --output test.en

    Example: regard translate --engine ctranslate2 --verbose "Le chat dort."

    Example: regard translate --input crawl.jsonl.zst --keys text --output crawl.en.jsonl.zst

    Example: regard translate --model nllb-200-distilled-600M --from fra_Latn --to eng_Latn "Le chat dort."
    """
    from regard.config import did_you_mean
    from regard.decoding.engine_choice import quick_copy
    from regard.decoding.translator import BATCH_TOKENS

    # Wrong options are reported before the model is loaded.
    decoding = Decoding(beam=beam, length_penalty=length_penalty, n_best=n_best, max_tokens=max_tokens)
    check_input(text, source, output, "translate")
    name = model or default_model(source_language, target_language)
    if scores and precision == "auto":
        precision = "float32"  # every printed digit of a score is then exact
    if engine not in (choices := (*ENGINES, *DECODING_ENGINES)):
        raise RegardError(f"--engine {engine} is not a valid choice: {did_you_mean(engine, choices)}")
    decoder = engine if engine in DECODING_ENGINES else "auto"
    job_options = JobOptions(columns, keys, workers, restart, "auto" if engine == decoder else engine, address)
    files = [] if source is None else [source]
    if is_job(files, output, job_options) and output is not None:
        from regard.jobs.tasks import TranslateTask

        if n_best > 1 and (columns or keys):
            raise RegardError("--n-best gives several rows for each text: use it with plain text")
        task = TranslateTask(
            model=name,
            source_language=source_language,
            target_language=target_language,
            decoding=decoding,
            batch_tokens=batch_tokens or BATCH_TOKENS,
            precision=precision,  # type: ignore[arg-type]  # other values are reported
            scores=scores,
            engine=decoder,  # type: ignore[arg-type]
        )
        if verbose:
            chosen = "C++ if this machine has a compiler" if decoder == "auto" else decoder
            typer.echo(f"regard: a job that decodes with {chosen}", err=True)
        run_text_job(
            task, files, output, device, job_options, look_at=partial(warn_of_rows, name, source_language, not model)
        )
        return
    interactive = not text and source is None and sys.stdin.isatty()
    few = interactive or len(text or ()) in range(1, FEW_TEXTS + 1)
    loaded = load_model(name, device, few)
    loaded.require("translate")
    loaded = for_languages(loaded, source_language, target_language)
    copy, description = quick_copy(loaded, precision, decoder, many=not few)  # type: ignore[arg-type]
    if verbose:
        typer.echo(f"regard: {description}", err=True)
    translator = copy.translator(decoding, batch_tokens or BATCH_TOKENS)
    if interactive:
        typer.echo("Type a line to translate it; Ctrl-D ends.", err=True)
    errors: list[RegardError] = []
    lines = until_error(argument_lines(text) if text else input_lines(source), errors)
    lines = watch_language(lines, loaded.source_language, single=few, bundled=not model)
    translated = translator.translate_lines(lines, lines_per_batch=1 if interactive else None)
    first = list(islice(translated, 1))  # an error is raised before the output file is truncated
    with (
        open_output(output) as file,
        _progress_bar(source, file, hidden=bool(text) or interactive) as advance,
    ):
        for number, translations in enumerate(chain(first, translated), 1):
            for translation in translations:
                row = _row(number if n_best > 1 else None, translation.score if scores else None, translation.text)
                file.write(for_output(file, row))
            if interactive or number % FLUSH_LINES == 0:
                file.flush()
            advance()
    if errors:
        raise errors[0]


def _row(number: int | None, score: float | None, text: str) -> str:
    """One line of output. Line breaks in a translation become spaces."""
    columns = [] if number is None else [str(number)]
    if score is not None:
        columns.append(f"{score:.4f}")
    columns.append(re.sub(r"[\r\n]+", " ", text))
    return "\t".join(columns) + "\n"


@contextmanager
def _progress_bar(source: Path | None, file: TextIO, hidden: bool) -> Iterator[Callable[[], object]]:
    """A progress bar on stderr for long inputs whose output goes elsewhere. Yields the function that advances it."""
    if hidden or not sys.stderr.isatty() or file.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    total = None
    if source is not None and source.is_file():  # a pipe can be read only once
        from regard.data.corpus import read_lines

        total = sum(1 for _ in read_lines(str(source)))
    if total is not None and total < MIN_LINES_FOR_PROGRESS:
        yield lambda: None
        return
    columns = (TextColumn("translating"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=total)
        yield lambda: progress.advance(task)


COMMANDS: list[Callable[..., None]] = [translate]
