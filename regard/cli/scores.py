"""Commands that score models: evaluate, compare."""

import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import count, zip_longest
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.models import MODEL, Device
from regard.cli.shared_options import Force
from regard.decoding.options import DEFAULT_BEAM
from regard.errors import RegardError

SYSTEM = f"{MODEL[:-1]}; or a text file with a translator's outputs, a line each."

SEEDS = "NAME=A,B,C gives a system of several runs, as with different seeds, a name."

Columns = Annotated[str, typer.Option(help="Columns of a TSV file, counted from 1, the source first: 1,2")]
Keys = Annotated[str, typer.Option(help="Keys of a JSONL file, the source first: fr,en")]
More = Annotated[list[str] | None, typer.Option(help="A file with references; may be given again for more.")]
Limit = Annotated[int | None, typer.Option(min=1, help="The first so many rows alone.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Leave bad lines out, rather than stop at the first.")]
Beam = Annotated[int, typer.Option(help="Hypotheses kept side by side; 1 takes the best token each time.")]
Penalty = Annotated[float, typer.Option(help="The paper's alpha; 0 favours short translations.")]
Precision = Annotated[
    str, typer.Option(help="float32; bfloat16, int8 or auto translate by a quicker copy, to see what it costs.")
]
Out = Annotated[Path | None, typer.Option(help="Write all results as JSON.")]


def evaluate(
    system: Annotated[str, typer.Argument(metavar="MODEL", help=SYSTEM)],
    files: Annotated[
        list[str], typer.Argument(help="Source and reference; text and classes; or one file: TSV, JSONL, a text.")
    ],
    reference: More = None,
    columns: Columns = "",
    keys: Keys = "",
    tags: Annotated[
        Path | None, typer.Option(help="Petit's phenomena; beside its test.fr and test.en they are found.")
    ] = None,
    align: Annotated[Path | None, typer.Option(help="Gold links between words; found as --tags are.")] = None,
    out: Out = None,
    outputs: Annotated[Path | None, typer.Option(help="Write the translations, a line each.")] = None,
    beam: Beam = DEFAULT_BEAM,
    length_penalty: Penalty = 0.6,
    precision: Precision = "float32",
    documents: Annotated[
        str | None, typer.Option(help="What one text of a language model is: line, blank-line or (usually) file.")
    ] = None,
    context: Annotated[
        int | None, typer.Option(help="Tokens a language model sees at once; what it takes, up to 2,048.")
    ] = None,
    stride: Annotated[int | None, typer.Option(help="Tokens to the next such window; half of one.")] = None,
    limit: Limit = None,
    skip_bad: SkipBad = False,
    device: Device = "auto",
) -> None:
    """Score a model: what is scored depends on what it is.

    A translator: BLEU, cased and lower-cased, and chrF2++, with intervals, signatures, what they may be compared with,
    and outputs to look at; on Petit accuracy by phenomenon, and attention to the source against the gold alignment.

    A language model: loss per token, perplexity and bits per byte, each token foretold once. A classifier: accuracy
    and who is taken for whom.

    Example: regard evaluate runs/fr-en petit/test.fr petit/test.en --out scores.json

    Example: regard evaluate runs/stories stories.txt

    Example: regard evaluate runs/mood reviews.tsv --columns 1,2
    """
    from regard.cli.models import load_model
    from regard.evaluation.evaluate import evaluate_classes, task_of
    from regard.evaluation.test_sets import read_gold
    from regard.plots import score_tables as view
    from regard.plots.console import console

    corpus, options = _corpus(files, reference, columns, keys), _options(beam, length_penalty)
    _check_paths(out=out, outputs=outputs)
    model: Any = None if _is_text(system) else load_model(system, device)
    task = "translation" if model is None else task_of(model)
    of_translators = {"reference": reference, "tags": tags, "align": align, "outputs": outputs}
    _check_options(task, **of_translators, documents=documents, context=context, stride=stride)
    result: Any
    if task == "translation":
        _check_align(align, system, model)
        _check_direction(system, model, files)
        examples = _examples(corpus, limit, skip_bad, "a source and a reference")
        gold = read_gold(examples, tags, align)
        result = _translation(system, model, examples, options, precision, gold, outputs)
    elif task == "language":
        result = _language(system, model, corpus, documents or "file", limit, skip_bad, context, stride)
    else:
        examples = _examples(corpus, limit, skip_bad, "a text and its class")
        result = evaluate_classes(system, model, model.classify, examples)
    _write_json(out, result)  # before it is shown: whoever reads may leave
    shown: Any = {"translation": view.show_translation, "language": view.show_language, "classes": view.show_classes}
    shown[task](console(), result)


def _check_direction(system: str, model: Any, files: Sequence[str]) -> None:
    """A ValueError where two files' names say that a model is asked to translate the wrong way."""
    languages = [] if model is None else model.about.get("languages", [])
    named = [Path(file.removesuffix(".gz").removesuffix(".xz")).suffix[1:] for file in files]
    if len(named) == 2 and named == languages[::-1] != languages:
        raise RegardError(
            f"{system} translates {languages[0]} into {languages[1]}, and {files[0]} comes first: "
            f"the source's file is named before the reference's"
        )


def compare(
    systems: Annotated[list[str], typer.Argument(metavar="A B ...", help=f"Two or more. {SYSTEM} {SEEDS}")],
    source: Annotated[str, typer.Option(help="What is translated; with --columns or --keys, all sides.")],
    reference: More = None,
    columns: Columns = "",
    keys: Keys = "",
    sentences: Annotated[int, typer.Option(min=0, help="Sentences to show where they differ most.")] = 5,
    out: Out = None,
    report: Annotated[Path | None, typer.Option(help="Write all that is shown as Markdown.")] = None,
    outputs: Annotated[
        Path | None, typer.Option(help="A new or empty folder for all translations: a file each run.")
    ] = None,
    force: Force = False,
    beam: Beam = DEFAULT_BEAM,
    length_penalty: Penalty = 0.6,
    precision: Precision = "float32",
    limit: Limit = None,
    skip_bad: SkipBad = False,
    device: Device = "auto",
) -> None:
    """Put translators beside each other, each against the first: BLEU and chrF2++, by a paired test, speed, and cost.

    Runs of one recipe with different seeds are one system, scored in the mean over them. A file of outputs, whoever
    made them, counts as a system. The p-value is how often chance alone would part two systems so far; below 0.05 is
    the usual bar, for one comparison; of other seeds it takes three runs of each to speak. Words that are not in the
    reference are shown as [-so-], missing ones as {+so+}.

    Example: regard compare runs/base runs/small --source test.fr --reference test.en

    Example: regard compare runs/fr-en theirs.en --source test.tsv --columns 1,2 --sentences 20

    Example: regard compare "paper=runs/a,runs/b" "small=runs/c,runs/d" --source a.fr --reference a.en --report ab.md
    """
    from regard.atomic_files import write_file
    from regard.evaluation.comparison import compare as run
    from regard.evaluation.comparison import in_groups
    from regard.plots.comparison_tables import comparison_markdown, show_comparison
    from regard.plots.console import console

    named = _named(systems)
    names = _short([path for _, path in named])
    _check_labels(named, names)
    options = _options(beam, length_penalty)
    examples = _examples(_corpus([source], reference, columns, keys), limit, skip_bad, "--source and --reference")
    _check_paths(out=out, report=report)
    _make_folder(outputs, force)
    runs, written = [], set[Path]()
    for (label, path), name in zip(named, names, strict=True):
        recipe, made = _run(name, path, examples, options, precision, device)
        runs.append((label, recipe, made))
        if outputs is not None:  # at once: whatever happens to the others, it is kept
            file = _new_file(outputs, name if label is None else f"{label}-{name}", written)
            _write_lines(file, made.translated.outputs)
            written.add(file)
    result = run(in_groups(runs), examples, sentences)
    _write_json(out, result)
    if report is not None:
        write_file(report, comparison_markdown(result))
    show_comparison(console(), result)


COMMANDS: list[Callable[..., None]] = [evaluate, compare]


def _translation(
    name: str, model: Any, examples: Any, options: Any, precision: Any, gold: Any, outputs: Path | None
) -> Any:
    """The `TranslationResult` of a model, or of a file of outputs where there is none."""
    from regard.evaluation.evaluate import evaluate_translation, translate, translated_elsewhere

    if model is None:
        if outputs is not None:
            raise RegardError(f"--outputs {outputs}: {name} is a file of outputs already")
        translated = translated_elsewhere(name, Path(name), examples)
    else:
        with _progress("translating", len(examples.sources)) as tell:
            translated = translate(name, model, examples, options, precision, tell)
    if outputs is not None:
        _write_lines(outputs, translated.outputs)
    return evaluate_translation(translated, examples, gold, model)


def _run(name: str, path: str, examples: Any, options: Any, precision: Any, device: str) -> tuple[Any, Any]:
    """A system's recipe without its seed, if it has one, and its `Run`: the model is gone behind it."""
    from regard.cli.models import load_model
    from regard.evaluation.comparison import Run
    from regard.evaluation.evaluate import translate, translated_elsewhere
    from regard.interop.load import find_model
    from regard.training.training_summary import recipe_without_seed, training_summary

    if _is_text(path):
        return None, Run(translated_elsewhere(name, Path(path), examples))
    model = load_model(path, device)
    recipe, seed = recipe_without_seed(model.about) or (None, None)
    with _progress(f"{name} translates", len(examples.sources)) as tell:
        translated = translate(name, model, examples, options, precision, tell)
    return recipe, Run(translated, training_summary(find_model(path), model.about), seed)


def _named(systems: Sequence[str]) -> list[tuple[str | None, str]]:
    """Each run with the name that its system is given, if any: NAME=A,B,C; what is there by that very name is it."""
    named: list[tuple[str | None, str]] = []
    for system in systems:
        label, given, members = system.partition("=")
        if not given or Path(system).exists():
            named.append((None, system))
            continue
        paths = [path.strip() for path in members.split(",")]
        if not label.strip() or not all(paths):
            raise RegardError(f"{system}: a system of several runs is written NAME=A,B,C")
        named += [(label.strip(), path) for path in paths]
    paths = [path for _, path in named]
    if twice := [path for path in paths if paths.count(path) > 1]:
        raise RegardError(f"{twice[0]} is there twice: compare different systems")
    if len(paths) < 2 or (named[0][0] is not None and len({label for label, _ in named}) == 1):
        raise RegardError(f"{systems[0]} alone: name at least two systems to compare")
    return named


def _check_labels(named: Sequence[tuple[str | None, str]], names: Sequence[str]) -> None:
    """A ValueError for a system that is given the name of another run, before the work is done."""
    unlabelled = [name for (label, _), name in zip(named, names, strict=True) if label is None]
    for label, _ in named:
        if label in unlabelled:
            raise RegardError(f"{label}= names a system as another is called already: give it another name")


def _language(
    name: str,
    model: Any,
    corpus: Any,
    documents: str,
    limit: int | None,
    skip_bad: bool,
    context: int | None,
    stride: int | None,
) -> Any:
    from regard.evaluation.evaluate import evaluate_language
    from regard.evaluation.test_sets import read_documents

    if corpus.sides != 1:
        raise RegardError(f"{name} is a language model, which reads one text, and here are {corpus.sides} sides")
    texts = read_documents(corpus, documents, limit, skip_bad)
    with _progress("reading", None) as tell:
        return evaluate_language(name, model, texts, corpus.files, documents, context, stride, tell)


def _corpus(files: list[str], more: list[str] | None, columns: str, keys: str) -> Any:
    """The files as a corpus: sides of one file, or a file for each side."""
    from regard.cli.data import _number
    from regard.data.corpus import Corpus

    numbers = tuple(_number(column) for column in columns.split(",")) if columns else ()
    names = tuple(key.strip() for key in keys.split(",")) if keys else ()
    if more and (numbers or names):
        raise RegardError("--reference names a file for each side: with --columns or --keys name another of these")
    return Corpus((*files, *(more or ())), numbers, names)


def _examples(corpus: Any, limit: int | None, skip_bad: bool, wanted: str) -> Any:
    from regard.evaluation.test_sets import read_examples

    if corpus.sides < 2 or (wanted.startswith("a text") and corpus.sides > 2):
        raise RegardError(
            f"{' and '.join(corpus.files)}: this needs {wanted}, two files, or one with --columns 1,2 or --keys, and "
            f"here {'is one side' if corpus.sides == 1 else f'are {corpus.sides} sides'}"
        )
    return read_examples(corpus, limit, skip_bad)


def _options(beam: int, length_penalty: float) -> Any:
    """The way to decode: a mistake does not wait for the model."""
    from regard.decoding.options import Decoding

    return Decoding(beam=beam, length_penalty=length_penalty)


def _check_options(task: str, **given: object) -> None:
    """A ValueError for an option that a model of this task has no use for."""
    translation = ("reference", "tags", "align", "outputs")
    uses = {"translation": translation, "language": ("documents", "context", "stride"), "classes": ()}[task]
    for name, value in given.items():
        if value and name not in uses:
            whose = "translators" if name in translation else "language models"
            raise RegardError(f"--{name} is for {whose}, and this model is scored by {task}")


def _check_align(align: Path | None, system: str, model: Any) -> None:
    """A ValueError where there is nothing that links could be held against, before the work is done."""
    from regard.evaluation.evaluate import can_be_aligned

    if align is not None and (model is None or not can_be_aligned(model)):
        raise RegardError(f"{system} has no attention to its source that could be held against --align {align}")


def _check_paths(**paths: Path | None) -> None:
    """A ValueError for a place that cannot be written to, before the work is done."""
    for name, path in paths.items():
        if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
            what = "is a folder: name a file" if path.is_dir() else f"lies in no folder: make {path.parent} first"
            raise RegardError(f"--{name} {path} {what}")


def _make_folder(outputs: Path | None, force: bool) -> None:
    """The folder of all translations; a ValueError where there is something already, unless with `force`."""
    from regard.atomic_files import check_new_folder

    if outputs is None:
        return
    check_new_folder(outputs, force)
    outputs.mkdir(parents=True, exist_ok=True)


def _is_text(system: str) -> bool:
    """Whether a system is a file of outputs, and no model in one file."""
    from regard.untrusted_files import is_pickle

    path = Path(system)
    if not path.is_file() or is_pickle(path) or path.suffix == ".safetensors":
        return False
    with path.open("rb") as file:
        return file.read(4) != b"GGUF"


def _short(systems: Sequence[str]) -> list[str]:
    """The systems by the ends of their paths, as much as tells them apart."""
    parts = [Path(system).parts[::-1] for system in systems]
    told = next((n for n, _ in enumerate(zip_longest(*parts), 1) if len({each[:n] for each in parts}) == len(parts)), 0)
    return [str(Path(*each[:told][::-1])) if told else system for each, system in zip(parts, systems, strict=True)]


def _new_file(folder: Path, name: str, written: Collection[Path]) -> Path:
    """A file for the outputs of a run of this name, that this command has not written yet."""
    plain = re.sub(r"[^\w.-]+", "-", name).strip("-.") or "outputs"
    paths = (folder / f"{plain}{f'-{i}' * (i > 1)}.txt" for i in count(1))
    return next(path for path in paths if path not in written)


def _write_lines(path: Path, lines: Sequence[str]) -> None:
    from regard.atomic_files import write_file

    write_file(path, "".join(f"{line}\n" for line in lines))


def _write_json(path: Path | None, result: object) -> None:
    from regard.atomic_files import write_file
    from regard.evaluation.plain_dict import plain

    if path is not None:
        write_file(path, json.dumps(plain(result), indent=2, ensure_ascii=False) + "\n")


@contextmanager
def _progress(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A bar on stderr, on a terminal; what is called with the number done."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what.replace("[", r"\["), total=total)
        yield lambda done: progress.update(task, completed=done)
