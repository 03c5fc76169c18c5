"""`regard compare`: several translators on one test set."""

import re
from collections.abc import Callable, Collection, Sequence
from itertools import count, zip_longest
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.evaluation_inputs import (
    SYSTEM_HELP,
    Columns,
    JsonFile,
    Keys,
    Limit,
    Precision,
    ReferenceFiles,
    SkipBad,
    check_output_paths,
    decoding_options,
    is_output_file,
    load_examples,
    make_corpus,
    progress_bar,
    write_json,
    write_lines,
)
from regard.cli.model_loading import load_model
from regard.cli.shared_options import Beam, Device, Force, LengthPenalty
from regard.decoding.options import DEFAULT_BEAM, Decoding
from regard.errors import RegardError

SYSTEMS_HELP = f"Two or more systems. {SYSTEM_HELP} NAME=A,B,C names a system of several runs, such as different seeds."


def compare(
    systems: Annotated[list[str], typer.Argument(metavar="A B ...", help=SYSTEMS_HELP)],
    source: Annotated[str, typer.Option(help="Source file; with --columns or --keys, the file with all sides.")],
    reference: ReferenceFiles = None,
    columns: Columns = "",
    keys: Keys = "",
    sentences: Annotated[int, typer.Option(min=0, help="Number of sentences to show, largest difference first.")] = 5,
    out: JsonFile = None,
    report: Annotated[Path | None, typer.Option(help="Write the report as Markdown.")] = None,
    outputs: Annotated[
        Path | None, typer.Option(help="New or empty folder for all translations, one file per run.")
    ] = None,
    force: Force = False,
    beam: Beam = DEFAULT_BEAM,
    length_penalty: LengthPenalty = Decoding.length_penalty,
    precision: Precision = "float32",
    limit: Limit = None,
    skip_bad: SkipBad = False,
    device: Device = "auto",
) -> None:
    """Compare translators with a baseline, the first one: BLEU, chrF2++, a paired test, speed and training cost.

    Runs of one recipe with different seeds form one system, which is scored by their mean. A file of outputs counts as
    a system. The p-value is the probability of a difference at least this large by chance; below 0.05 is the usual
    threshold for a single comparison. Conclusions about other seeds require three runs of each system. In the sentences
    shown, [-words-] are not in the reference and {+words+} are missing.

    Example: regard compare runs/base runs/small --source test.fr --reference test.en

    Example: regard compare runs/fr-en theirs.en --source test.tsv --columns 1,2 --sentences 20

    Example: regard compare "paper=runs/a,runs/b" "small=runs/c,runs/d" --source a.fr --reference a.en --report ab.md
    """
    from regard.atomic_files import write_file
    from regard.evaluation.comparison import compare as run
    from regard.evaluation.comparison import group_runs
    from regard.plots.comparison_tables import comparison_markdown, show_comparison
    from regard.plots.console import console

    labelled = _parse_systems(systems)
    names = short_names([path for _, path in labelled])
    _check_labels(labelled, names)
    options = decoding_options(beam, length_penalty)
    corpus = make_corpus([source], reference, columns, keys)
    examples = load_examples(corpus, limit, skip_bad, "--source and --reference")
    check_output_paths(out=out, report=report)
    _make_folder(outputs, force)
    runs, written = [], set[Path]()
    for (label, path), name in zip(labelled, names, strict=True):
        recipe, system_run = _translate(name, path, examples, options, precision, device)
        runs.append((label, recipe, system_run))
        if outputs is not None:  # written at once, so that it is kept if a later system fails
            file = _unused_file(outputs, name if label is None else f"{label}-{name}", written)
            write_lines(file, system_run.translated.outputs)
            written.add(file)
    result = run(group_runs(runs), examples, sentences)
    write_json(out, result)
    if report is not None:
        write_file(report, comparison_markdown(result))
    show_comparison(console(), result)


def _translate(name: str, path: str, examples: Any, options: Any, precision: Any, device: str) -> tuple[Any, Any]:
    """The recipe of a system without its seed, if it has one, and its `SystemRun`. The model is freed on return."""
    from regard.evaluation.comparison import SystemRun
    from regard.evaluation.evaluate import outputs_from_file, translate_examples
    from regard.interop.load import find_model
    from regard.training.training_summary import recipe_without_seed, training_summary

    if is_output_file(path):
        return None, SystemRun(outputs_from_file(name, Path(path), examples))
    model = load_model(path, device)
    model.require_target_language("regard translate --to, and compare the file of its output")
    recipe, seed = recipe_without_seed(model.about) or (None, None)
    with progress_bar(f"translating with {name}", len(examples.sources)) as progress:
        translated = translate_examples(name, model, examples, options, precision, progress)
    return recipe, SystemRun(translated, training_summary(find_model(path), model.about), seed)


def _parse_systems(systems: Sequence[str]) -> list[tuple[str | None, str]]:
    """Each run with the label of its system, if any (NAME=A,B,C). An existing path that contains = is not split."""
    labelled: list[tuple[str | None, str]] = []
    for system in systems:
        label, separator, members = system.partition("=")
        if not separator or Path(system).exists():
            labelled.append((None, system))
            continue
        paths = [path.strip() for path in members.split(",")]
        if not label.strip() or not all(paths):
            raise RegardError(f"{system}: write a system of several runs as NAME=A,B,C")
        labelled += [(label.strip(), path) for path in paths]
    paths = [path for _, path in labelled]
    if repeated := [path for path in paths if paths.count(path) > 1]:
        raise RegardError(f"{repeated[0]} was given twice: compare different systems")
    if len(paths) < 2 or (labelled[0][0] is not None and len({label for label, _ in labelled}) == 1):
        raise RegardError(f"only one system was given, {systems[0]}: name at least two to compare")
    return labelled


def _check_labels(labelled: Sequence[tuple[str | None, str]], names: Sequence[str]) -> None:
    """Raise a `RegardError` if a label is also the name of another run, before any work is done."""
    unlabelled = [name for (label, _), name in zip(labelled, names, strict=True) if label is None]
    for label, _ in labelled:
        if label in unlabelled:
            raise RegardError(f"the name {label} is already taken by another system: choose another")


def short_names(paths: Sequence[str]) -> list[str]:
    """The ends of paths, as long as it takes to tell them apart.

    >>> short_names(["runs/base/1", "runs/small/1"])
    ['base/1', 'small/1']
    """
    reversed_parts = [Path(path).parts[::-1] for path in paths]
    for length, _ in enumerate(zip_longest(*reversed_parts), 1):
        if len({parts[:length] for parts in reversed_parts}) == len(paths):
            return [str(Path(*parts[:length][::-1])) for parts in reversed_parts]
    return list(paths)


def _make_folder(outputs: Path | None, force: bool) -> None:
    """Create the folder of all translations; without `force` it must be new or empty."""
    from regard.atomic_files import check_new_folder

    if outputs is None:
        return
    check_new_folder(outputs, force)
    outputs.mkdir(parents=True, exist_ok=True)


def _unused_file(folder: Path, name: str, written: Collection[Path]) -> Path:
    """A file for the outputs of a run that this command has not written yet."""
    stem = re.sub(r"[^\w.-]+", "-", name).strip("-.") or "outputs"
    paths = (folder / (f"{stem}.txt" if number == 1 else f"{stem}-{number}.txt") for number in count(1))
    return next(path for path in paths if path not in written)


COMMANDS: list[Callable[..., None]] = [compare]
