"""`regard evaluate`: score one model on a test set."""

from collections.abc import Callable, Sequence
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
from regard.cli.model_loading import for_languages, load_model
from regard.cli.shared_options import Beam, Device, LengthPenalty, SourceLanguage, TargetLanguage
from regard.decoding.options import DEFAULT_BEAM, Decoding
from regard.errors import RegardError


def evaluate(
    system: Annotated[str, typer.Argument(metavar="MODEL", help=SYSTEM_HELP)],
    files: Annotated[
        list[str],
        typer.Argument(
            help="Files of sources and references, of texts and classes, or of words and labels; or a single file."
        ),
    ],
    reference: ReferenceFiles = None,
    columns: Columns = "",
    keys: Keys = "",
    source_language: SourceLanguage = None,
    target_language: TargetLanguage = None,
    tags: Annotated[
        Path | None,
        typer.Option(help="Phenomena of each sentence, as in Petit's *.tags. Default: the one next to test.fr."),
    ] = None,
    align: Annotated[
        Path | None, typer.Option(help="Gold links between words, as in Petit's *.align. Default: as for --tags.")
    ] = None,
    out: JsonFile = None,
    outputs: Annotated[Path | None, typer.Option(help="Write the translations, one per line.")] = None,
    beam: Beam = DEFAULT_BEAM,
    length_penalty: LengthPenalty = Decoding.length_penalty,
    precision: Precision = "float32",
    documents: Annotated[
        str | None,
        typer.Option(help="What separates the texts for a language model: line, blank-line or file (the default)."),
    ] = None,
    context: Annotated[
        int | None,
        typer.Option(help="Context of a language model in tokens. Default: the model's maximum, up to 2,048."),
    ] = None,
    stride: Annotated[
        int | None, typer.Option(help="Tokens between the starts of two contexts. Default: half a context.")
    ] = None,
    limit: Limit = None,
    skip_bad: SkipBad = False,
    device: Device = "auto",
) -> None:
    """Score a translator, a language model, a masked language model, a classifier or a tagger.

    A translator gets BLEU (cased and lower-cased) and chrF2++ with confidence intervals and signatures, a note on what
    they may be compared with, and a list of suspicious outputs. On Petit it also gets accuracy by phenomenon, and the
    alignment of its attention against the gold links.

    A language model gets loss per token, perplexity and bits per byte. A masked language model gets pseudo-perplexity:
    every token of each line is masked in turn. A classifier gets accuracy and a confusion matrix. A tagger gets
    accuracy, the F1 of each label and, for labels such as B-PER and I-PER, that of spans.

    Example: regard evaluate runs/fr-en petit/test.fr petit/test.en --out scores.json

    Example: regard evaluate runs/stories stories.txt

    Example: regard evaluate runs/mood reviews.tsv --columns 1,2

    Example: regard evaluate runs/petit-tag petit/test.conll
    """
    from regard.evaluation.evaluate import evaluate_classification, task_of
    from regard.petit import PHENOMENA
    from regard.plots import score_tables
    from regard.plots.console import console

    corpus, options = make_corpus(files, reference, columns, keys), decoding_options(beam, length_penalty)
    check_output_paths(out=out, outputs=outputs)
    model: Any = None if is_output_file(system) else load_model(system, device)
    task = "translation" if model is None else task_of(model)
    languages = {"from": source_language, "to": target_language}
    translator_options = {"reference": reference, "tags": tags, "align": align, "outputs": outputs, **languages}
    _check_options(task, **translator_options, documents=documents, context=context, stride=stride)
    if task == "translation":
        model = _for_languages(system, model, source_language, target_language)
        _check_can_align(align, system, model)
        _check_direction(system, model, files)
        examples = load_examples(corpus, limit, skip_bad, "a source and a reference")
        gold = _read_gold(examples, tags, align)
        translation = _evaluate_translation(system, model, examples, options, precision, gold, outputs)
        write_json(out, translation)  # before it is shown: the reader of a pipe may stop early
        score_tables.show_translation(console(), translation, PHENOMENA)
    elif task == "language":
        language = _evaluate_language(system, model, corpus, documents or "file", limit, skip_bad, context, stride)
        write_json(out, language)
        score_tables.show_language(console(), language)
    elif task == "tags":
        tagging = _evaluate_tagging(system, model, corpus, limit, skip_bad)
        write_json(out, tagging)
        score_tables.show_tagging(console(), tagging)
    elif task == "masked":
        masked = _evaluate_masked(system, model, corpus, limit, skip_bad)
        write_json(out, masked)
        score_tables.show_masked(console(), masked)
    else:
        examples = load_examples(corpus, limit, skip_bad, "a text and its class")
        classification = evaluate_classification(system, model, model.classify, examples)
        write_json(out, classification)
        score_tables.show_classification(console(), classification)


def _evaluate_translation(
    name: str, model: Any, examples: Any, options: Any, precision: Any, gold: Any, outputs: Path | None
) -> Any:
    """The `TranslationResult` of a model, or of a file of outputs if there is no model."""
    from regard.evaluation.evaluate import evaluate_translation, outputs_from_file, translate_examples

    if model is None:
        if outputs is not None:
            raise RegardError(f"--outputs {outputs}: {name} is already a file of outputs")
        translated = outputs_from_file(name, Path(name), examples)
    else:
        with progress_bar("translating", len(examples.sources)) as progress:
            translated = translate_examples(name, model, examples, options, precision, progress)
    if outputs is not None:
        write_lines(outputs, translated.outputs)
    return evaluate_translation(translated, examples, gold, model)


def _evaluate_language(
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

    _check_one_side(name, corpus)
    texts = read_documents(corpus, documents, limit, skip_bad)
    with progress_bar("scoring", None) as progress:
        return evaluate_language(name, model, texts, corpus.files, documents, context, stride, progress)


def _evaluate_tagging(name: str, model: Any, corpus: Any, limit: int | None, skip_bad: bool) -> Any:
    from regard.evaluation.evaluate import evaluate_tagging
    from regard.evaluation.test_sets import read_tagged_sentences

    sentences, skipped = read_tagged_sentences(corpus, model.class_names, limit, skip_bad)
    return evaluate_tagging(name, model, sentences, corpus.files, skipped)


def _evaluate_masked(name: str, model: Any, corpus: Any, limit: int | None, skip_bad: bool) -> Any:
    from regard.evaluation.evaluate import evaluate_masked
    from regard.evaluation.test_sets import read_documents

    _check_one_side(name, corpus)
    texts = read_documents(corpus, "line", limit, skip_bad)
    with progress_bar("scoring", None) as progress:
        return evaluate_masked(name, model, texts, corpus.files, progress)


def _check_one_side(name: str, corpus: Any) -> None:
    if corpus.sides != 1:
        raise RegardError(f"{name} is a language model and needs one text, but {corpus.sides} sides were given")


def _read_gold(examples: Any, tags: Path | None, links: Path | None) -> Any:
    """The gold annotations in the files that were named, or in Petit's files next to its sentences."""
    from regard.evaluation.test_sets import read_gold
    from regard.petit import PHENOMENA, spans
    from regard.petit.gold_files import find_gold_files

    if tags is None and links is None:
        tags, links = find_gold_files(examples.files)
    return read_gold(examples, tags, links, PHENOMENA, spans)


def _check_options(task: str, **options: object) -> None:
    """Raise a `RegardError` for an option that does not apply to a model of this task."""
    translator_options = ("reference", "tags", "align", "outputs", "from", "to")
    accepted = {"translation": translator_options, "language": ("documents", "context", "stride")}.get(task, ())
    model_kind = {
        "translation": "a translator",
        "language": "a language model",
        "classes": "a classifier",
        "tags": "a tagger",
        "masked": "a masked language model",
    }[task]
    for name, value in options.items():
        if value and name not in accepted:
            intended = "translators" if name in translator_options else "language models"
            raise RegardError(f"--{name} is for {intended}, but this model is {model_kind}")


def _for_languages(system: str, model: Any, source: str | None, target: str | None) -> Any:
    """The model for the languages of --from and --to, which a file of outputs does not take."""
    if model is not None:
        return for_languages(model, source, target)
    if source is not None or target is not None:
        raise RegardError(f"--from and --to are for models, but {system} is a file of outputs: leave them out")
    return None


def _check_can_align(align: Path | None, system: str, model: Any) -> None:
    """Raise a `RegardError` if --align was given but the system has no attention to score, before any work is done."""
    from regard.evaluation.attention_alignment import can_be_aligned

    if align is not None and (model is None or not can_be_aligned(model)):
        raise RegardError(f"{system} has no attention to its source that could be compared with --align {align}")


def _check_direction(system: str, model: Any, files: Sequence[str]) -> None:
    """Raise a `RegardError` if the file names show that source and reference were swapped."""
    languages = [] if model is None else model.about.get("languages", [])
    suffixes = [Path(file.removesuffix(".gz").removesuffix(".xz").removesuffix(".zst")).suffix[1:] for file in files]
    if len(suffixes) == 2 and suffixes == languages[::-1] != languages:
        raise RegardError(
            f"{system} translates {languages[0]} into {languages[1]}, but the first file is {files[0]}: "
            f"give the source before the reference"
        )


COMMANDS: list[Callable[..., None]] = [evaluate]
