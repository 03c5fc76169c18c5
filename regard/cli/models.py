"""Commands on models: translate, generate, verify, and what is bundled."""

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any, BinaryIO, TextIO

import typer

from regard.decoding.options import DEFAULT_BEAM
from regard.errors import RegardError
from regard.formatting import visible_lines
from regard.models import BUNDLED_MODELS, DEFAULT_MODEL, bundled_folder, bundled_models

MODEL = f"Run, model folder (Regard or Hugging Face), GGUF file, or bundled model ({', '.join(BUNDLED_MODELS)})."
FEW = 100
"""lines that are done before anyone looks at a bar"""

Device = Annotated[str, typer.Option(help="auto, cpu or cuda; auto takes a GPU where there is one.")]


def translate(
    text: Annotated[list[str] | None, typer.Argument(help="Texts; without any, lines of --input or stdin.")] = None,
    model: Annotated[str, typer.Option("--model", "-m", help=f"{MODEL} Without it, the bundled {DEFAULT_MODEL}.")] = "",
    source: Annotated[
        Path | None, typer.Option("--input", "-i", help="A file, a text a line; .gz and .xz too.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file for the translations.")] = None,
    beam: Annotated[int, typer.Option(help="Number of hypotheses kept; 1 is greedy decoding.")] = DEFAULT_BEAM,
    length_penalty: Annotated[float, typer.Option(help="The paper's alpha; 0 favours short translations.")] = 0.6,
    n_best: Annotated[int, typer.Option(help="So many translations for each line, its number before each.")] = 1,
    scores: Annotated[bool, typer.Option("--scores", help="The log-probability before each translation.")] = False,
    max_tokens: Annotated[
        int | None, typer.Option(help="The longest translation; twice the source and 10 more if not given.")
    ] = None,
    batch_tokens: Annotated[
        int, typer.Option(min=0, help="Places of a batch, hypotheses × the longest source; 0: as many as is usual.")
    ] = 0,
    precision: Annotated[
        str, typer.Option(help="auto, float32, bfloat16, int8; auto takes bfloat16 where the device does it well.")
    ] = "auto",
    device: Device = "auto",
) -> None:
    """Translate texts, the lines of a file, or of stdin: one line in, one line out, in order.

    Columns are parted by tabs: the number of the line (with --n-best), the score (with --scores), the translation.

    Example: regard translate "Le chat dort."

    Example: regard translate --model runs/fr-en --input test.fr --output test.en
    """
    from regard.decoding.options import Decoding
    from regard.decoding.translator import BATCH_TOKENS, FIRST_LINES

    options = Decoding(beam=beam, length_penalty=length_penalty, n_best=n_best, max_tokens=max_tokens)
    if text and source is not None:
        raise RegardError(f"here are both texts and --input {source}: give one of them")
    if text and not any(each.strip() for each in text):
        raise RegardError("the text is empty: there is nothing to translate")
    if source is not None and output is not None and output.exists() and output.samefile(source):
        raise RegardError(f"--output is --input, {source}: it would be lost")
    mistakes: list[ValueError] = []
    lines = _said(text) if text else _lines(source)
    typing = not text and source is None and sys.stdin.isatty()
    loaded = load_model(model or default_model(), device)
    loaded.require("translate")
    precise = "float32" if scores and precision == "auto" else precision  # its digits are then all right
    translator = loaded.quick(precise).translator(options, batch_tokens or BATCH_TOKENS)
    if typing:
        typer.echo("A line in, a line out; Ctrl-D ends.", err=True)
    found = translator.translate_lines(_until_a_mistake(lines, mistakes), lines_per_batch=1 if typing else None)
    first = list(islice(found, 1))  # a mistake comes before the file is opened, and what it held lost
    with _written(output) as file, _bar(source, bool(text) or typing, file) as advance:
        for number, translations in enumerate(chain(first, found), 1):
            for each in translations:
                columns = [str(number)] * (n_best > 1) + [f"{each.score:.4f}"] * scores + [_one_line(each.text)]
                file.write(_for(file, "\t".join(columns) + "\n"))
            if typing or number % FIRST_LINES == 0:
                file.flush()
            advance()
    if mistakes:
        raise mistakes[0]


def generate(
    prompt: Annotated[str, typer.Argument(help="The text to go on from; - reads it from stdin.")],
    model: Annotated[str, typer.Option("--model", "-m", help=MODEL)],
    max_tokens: Annotated[int, typer.Option(help="The most tokens that are said.")] = 200,
    temperature: Annotated[float, typer.Option(help="0 takes the best token; above, tokens are drawn.")] = 0.0,
    top_k: Annotated[int, typer.Option(help="Draw among so many best tokens; 0 among all.")] = 0,
    top_p: Annotated[float, typer.Option(help="Draw among the fewest best with this probability; 1 among all.")] = 1.0,
    min_p: Annotated[float, typer.Option(help="Draw among those with this share of the best one's.")] = 0.0,
    seed: Annotated[int, typer.Option(help="The same seed and prompt draw the same text.")] = 0,
    repetition_penalty: Annotated[float, typer.Option(help="Above 1 makes what was said less likely.")] = 1.0,
    no_repeat_ngram: Annotated[int, typer.Option(help="No run of so many tokens twice; 0 lets it be.")] = 0,
    stop: Annotated[list[str] | None, typer.Option(help="End before this text; may be given again.")] = None,
    stream: Annotated[bool, typer.Option("--stream/--no-stream", help="Print as it comes, or all at the end.")] = True,
    device: Device = "auto",
) -> None:
    """Go on from a prompt, token by token.

    Example: regard generate "Once upon a time" --model runs/stories --temperature 0.8 --top-p 0.95
    """
    from regard.decoding.options import DecodingOptions, make_decoding

    options: DecodingOptions = {
        "max_tokens": max_tokens,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "seed": seed,
        "repetition_penalty": repetition_penalty,
        "no_repeat_ngram": no_repeat_ngram,
        "stop": stop or (),
    }
    make_decoding(None, options)  # a mistake does not wait for the model
    prompt = "\n".join(_lines(None)) if prompt == "-" else prompt
    loaded = load_model(model, device)
    pieces = loaded.stream(prompt, **options) if stream else iter([loaded.generate(prompt, **options)[len(prompt) :]])
    typer.secho(_for(sys.stdout, prompt), bold=True, nl=False)
    try:
        for piece in pieces:
            sys.stdout.write(_for(sys.stdout, piece))
            sys.stdout.flush()
    finally:
        typer.echo()


def verify(
    model: Annotated[str, typer.Argument(help=MODEL)],
    cases: Annotated[int, typer.Option(min=1, help="Random cases of each check.")] = 20,
    seed: Annotated[int, typer.Option(help="Another seed, other cases.")] = 0,
    compiled: Annotated[
        bool, typer.Option("--compile/--no-compile", help="torch.compile too: it takes a while.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    device: Device = "auto",
) -> None:
    """Check a model by every way through it, on random cases: cached and not, batched and alone, fast and readable.

    Exits with 1 when something differs by more than float32 adds up differently. bfloat16 is told, and not judged.

    Example: regard verify runs/fr-en --cases 100
    """
    from regard.evaluation.plain_dict import plain
    from regard.evaluation.verify import verify as run
    from regard.plots.console import console

    loaded = load_model(model, device)
    with _status(f"0 of {cases} cases") as tell:
        found = run(loaded, cases, seed, compiled, lambda done: tell(_step(done, cases, compiled)))
    if as_json:
        checks = [plain(check) | {"passed": check.passed} for check in found.checks]
        report = {"model": model, "passed": found.passed, "cases": cases, "seed": seed, "checks": checks}
        typer.echo(json.dumps(report, indent=2, ensure_ascii=False))
    else:
        _show(console(), found)
    raise typer.Exit(0 if found.passed else 1)


def models() -> None:
    """List the models that come with Regard: what they are for, how large they are, how well they do.

    Example: regard models
    """
    from rich.table import Table

    from regard import models as bundle
    from regard.plots.console import console
    from regard.storage.metadata import strings_of

    table = Table(box=None, header_style="dim", pad_edge=False)
    for column in ("", "languages", "parameters", "MB", "scores"):
        table.add_column(column, justify="right" if column in ("parameters", "MB") else "left")
    for name in bundled_models():
        about = bundle.bundled_metadata(name)
        amounts = f"{bundle.bundled_parameters(name):,}", f"{bundle.bundled_size(name) / 1e6:.1f}"
        table.add_row(name, " → ".join(strings_of(about, "languages")), *amounts, "\n".join(_tests(about)))
    console().print(table)
    for name in BUNDLED_MODELS:
        bundled_folder(name)  # one that is missing is an error, which says what to do


COMMANDS: list[Callable[..., None]] = [translate, generate, verify, models]


def _tests(about: dict[str, Any]) -> list[str]:
    """The first figure of each test set, which for a translator is BLEU."""
    from regard.storage.metadata import test_scores_of

    first = ((test.figures[0], test.set) for test in test_scores_of(about))
    return [f"{figure.name} {figure.value:.1f}: {where}" for figure, where in first]


def load_model(name: str, device: str) -> Any:
    """The `regard.api.Model` of this name, on the device."""
    import torch

    from regard.config import did_you_mean
    from regard.interop.load import load

    choices = ("auto", "cpu", "cuda")
    if device not in choices and not re.fullmatch(r"cuda:\d+", device):
        raise RegardError(f"--device {device} is not a choice: {did_you_mean(device, choices)}")
    there = torch.cuda.is_available()
    if device.startswith("cuda") and not there:
        raise RegardError(f"--device {device}: torch finds no GPU here; cpu works everywhere")
    return load(name, ("cuda" if there else "cpu") if device == "auto" else device)


def default_model() -> str:
    """Where the bundled translator lies, whatever folders there are here."""
    return str(bundled_folder(DEFAULT_MODEL))


def _lines(path: Path | None) -> Iterator[str]:
    """The lines of a file, or of stdin; the first that is no text is an error that names it."""
    from regard.data.corpus import LineFault, _decode, _raw_lines, read_lines, remedy

    def typed(stdin: BinaryIO) -> Iterator[tuple[int, str | LineFault]]:
        for number, raw in enumerate(_raw_lines(stdin), 1):  # type: ignore[arg-type]  # it has readline, which is all
            yield number, _decode(raw, first=number == 1)

    for number, line in typed(sys.stdin.buffer) if path is None else read_lines(str(path)):
        if isinstance(line, LineFault):
            detail = f" ({line.detail})" if line.detail else ""
            advice = "break it up" if line.kind == "too long" else remedy(line, str(path or "stdin"))
            raise RegardError(f"{path or 'stdin'}:{number}: {line.kind}{detail}: {advice}")
        yield line


@contextmanager
def _written(path: Path | None) -> Iterator[TextIO]:
    """A file to write to, or stdout; after Ctrl-C what is done stays written."""
    from regard.atomic_files import raising_write_errors
    from regard.errors import DISK_FULL_ERRNOS, write_error

    where = path or Path("standard output")
    with raising_write_errors(where):
        file = sys.stdout if path is None else path.open("w", encoding="utf-8", newline="\n")
    try:
        yield file
    except KeyboardInterrupt:
        typer.echo("\nregard: stopped; what was done is written", err=True)
        raise typer.Exit(130) from None
    except OSError as error:
        raise (write_error(error, where) if error.errno in DISK_FULL_ERRNOS else error) from None
    finally:
        with raising_write_errors(where):
            file.flush() if path is None else file.close()


def _for(file: TextIO, text: str) -> str:
    """What a model wrote, as it is; on a terminal with control characters made visible."""
    return visible_lines(text) if file.isatty() else text


def _said(texts: list[str]) -> Iterator[str]:
    """The lines of texts that were given as arguments."""
    for number, text in enumerate(texts, 1):
        try:
            text.encode()
        except UnicodeEncodeError:
            raise RegardError(f"text {number} is not UTF-8: convert it with iconv") from None
        yield from text.split("\n")


def _until_a_mistake(lines: Iterable[str], mistakes: list[ValueError]) -> Iterator[str]:
    """The lines before the first that is no text, so that they can be done; the mistake is for later."""
    try:
        yield from lines
    except ValueError as error:
        mistakes.append(error)


def _one_line(text: str) -> str:
    """A translation must stay one line, whatever the model says."""
    return re.sub(r"[\r\n]+", " ", text)


@contextmanager
def _bar(source: Path | None, few: bool, file: TextIO) -> Iterator[Callable[[], object]]:
    """A bar on stderr while many lines are done, for people who would see nothing else; what advances it."""
    if few:
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

    console = Console(stderr=True)
    total = None
    if console.is_terminal and not file.isatty() and source is not None and source.is_file():  # a pipe is read once
        from regard.data.corpus import read_lines

        total = sum(1 for _ in read_lines(str(source)))
    if not console.is_terminal or file.isatty() or (total is not None and total <= FEW):
        yield lambda: None
        return
    columns = (TextColumn("translating"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=total)
        yield lambda: progress.advance(task)


@contextmanager
def _status(first: str) -> Iterator[Callable[[str], object]]:
    """A line on stderr that tells what is going on, on a terminal; what changes it."""
    from rich.console import Console

    with Console(stderr=True).status(first) as status:
        yield status.update


def _step(done: int, cases: int, compiled: bool) -> str:
    return f"{done} of {cases} cases" if done < cases or not compiled else "compiling, saving and loading"


def _show(console: Any, found: Any) -> None:
    """A `regard.evaluation.verify.Verification` as a table, and what to make of it."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, header_style="dim", pad_edge=False)
    for column in ("", "float32", "bfloat16"):
        table.add_column(column, justify="right" if column else "left")
    table.add_column("how it is checked", style="dim")
    for check in found.checks:
        mark = "[dim]–[/]" if check.difference is None else "[green]✓[/]" if check.passed else "[bold red]✗[/]"
        numbers = [_number(each) for each in (check.difference, check.bfloat16)]
        told = f"skipped: {check.skipped}" if check.skipped else check.how
        table.add_row(f"{mark} {check.name}", *numbers, escape(told))
    console.print(table)
    limits = {check.limit: check.name for check in found.checks}
    cases = f"{found.cases:,} random case{'s' * (found.cases > 1)} of seed {found.seed}"
    console.print(
        f"\nThe largest differences on {cases}. Limit in float32: {max(limits):.0e}, and {min(limits):g} for "
        f"{limits[min(limits)]}; bfloat16 is told, and not judged."
    )
    wrong = [check for check in found.checks if not check.passed]
    for check in wrong:
        console.print(f"[bold red]{check.name} does not hold[/]: case {check.worst} differs most.")
    if not wrong:
        console.print("All hold.")


def _number(value: float | None) -> str:
    return "" if value is None else "0" if value == 0 else f"{value:.0e}"
