"""Evaluate a model: `evaluate` for Python programs, and what `regard evaluate` and `regard compare` call."""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast, overload

from regard.data.tagged_text import TaggedSentence
from regard.decoding.fast_copy import Precision, is_fast_copy
from regard.decoding.options import DEFAULT_BEAM, Decoding
from regard.decoding.text_model import Model
from regard.decoding.translator import Progress
from regard.errors import RegardError
from regard.evaluation.attention_alignment import aligned_attention, score_alignment
from regard.evaluation.classification import ClassScores, class_scores
from regard.evaluation.comparability import ComparabilityNote
from regard.evaluation.metrics import References, TranslationScores, reference_lists, translation_scores
from regard.evaluation.perplexity import LanguageScore
from regard.evaluation.pseudo_perplexity import MaskedScore, score_masked
from regard.evaluation.results import (
    ClassificationResult,
    EvaluationTask,
    LanguageResult,
    MaskedResult,
    SkippedSentences,
    Speed,
    SuspiciousOutput,
    System,
    SystemOutputs,
    TaggingResult,
    TranslationResult,
)
from regard.evaluation.sliding_window import choose_window, score_texts, start_tokens
from regard.evaluation.suspicious_outputs import find_suspicious
from regard.evaluation.tag_accuracy import tag_accuracy
from regard.evaluation.tagging import TaggingScores, score_tagger, tagging_scores
from regard.evaluation.test_sets import Examples, GoldAnnotations, read_outputs
from regard.evaluation.text_checks import check_known, check_lengths, check_list, check_texts
from regard.storage.weights import weights_digest


@overload
def evaluate(
    model: Model,
    sources: Sequence[str],
    references: References,
    *,
    beam: int = ...,
    length_penalty: float = ...,
    max_tokens: int | None = ...,
    precision: Precision = ...,
    progress: Progress | None = ...,
) -> TranslationScores: ...


@overload
def evaluate(  # type: ignore[overload-overlap]  # a str is a Sequence[str] too
    model: Model, sources: Sequence[str], *, labels: Sequence[str]
) -> ClassScores: ...


@overload
def evaluate(model: Model, sources: Sequence[Sequence[str]], *, labels: Sequence[Sequence[str]]) -> TaggingScores: ...


@overload
def evaluate(
    model: Model,
    sources: Sequence[str],
    *,
    context: int | None = ...,
    stride: int | None = ...,
    progress: Progress | None = ...,
) -> LanguageScore | MaskedScore: ...


def evaluate(
    model: Model,
    sources: Sequence[str] | Sequence[Sequence[str]],
    references: References | None = None,
    *,
    labels: Sequence[str] | Sequence[Sequence[str]] | None = None,
    beam: int = DEFAULT_BEAM,
    length_penalty: float = Decoding.length_penalty,
    max_tokens: int | None = None,
    precision: Precision = "float32",
    context: int | None = None,
    stride: int | None = None,
    progress: Progress | None = None,
) -> TranslationScores | ClassScores | TaggingScores | LanguageScore | MaskedScore:
    """Score a translator with `references`, a classifier or tagger with `labels`, or a language model with neither.

    With `references`, the model translates the sources, and the result has `.bleu`, `.bleu_lowercase` and `.chrf`, each
    with `.value`, `.interval` and `.signature`. `references` is one text for each source, or several lists of texts.
    `beam`, `length_penalty` and `max_tokens` are as in `Model.translate`; `precision` other than float32 translates
    with a faster copy of the model.

    With `labels`, the result has `.accuracy`, `.macro_f1` and the scores of each class. For a tagger, each source is a
    list of words with a list of labels, and the result has these scores in `.words`, and those of `.spans`. With
    neither, it has `.loss`, `.perplexity` and `.bits_per_byte`; `context` is the number of tokens the model sees at
    once and `stride` the distance between two such windows. A masked language model has `.loss`, `.pseudo_perplexity`
    and `.accuracy`.

    `progress` is called with the number of texts translated, or of tokens scored.
    """
    if labels is not None and model.can("tag"):
        return _evaluate_word_lists(model, sources, labels)
    texts = cast("Sequence[str]", sources)  # as is checked here
    check_texts(sources=texts)
    if references is not None and labels is not None:
        raise RegardError("both references and labels were given: use references for a translator, labels otherwise")
    if references is not None:
        model.require("translate")
        lists = reference_lists(texts, references)
        options = Decoding(beam=beam, length_penalty=length_penalty, max_tokens=max_tokens)
        translator = _for_decoding(model, precision).translator(options)
        return translation_scores([best[0].text for best in translator.translate_all(texts, progress)], lists)
    if labels is not None:
        classes = cast("Sequence[str]", labels)
        check_texts(sources=texts, labels=classes)
        model.require("classify")
        known = model.class_names
        for number, label in enumerate(classes):
            check_known("class", f"labels[{number}]", label, known)
        return class_scores(classes, [label for label, _ in model.classify(texts)])
    if model.can("fill"):
        return score_masked(model, texts, progress)
    model.require("score texts")
    return score_texts(model, texts, *choose_window(model, context, stride), progress)


def _evaluate_word_lists(
    model: Model, sources: Sequence[Sequence[str]], labels: Sequence[Sequence[str]]
) -> TaggingScores:
    for name, lists in {"sources": sources, "labels": labels}.items():
        check_list(name, lists, "lists, one for each sentence")
        for number, items in enumerate(lists):
            check_list(f"{name}[{number}]", items, "strings, one for each word")
    check_lengths(sources=sources, labels=labels)
    classes = model.class_names
    for number, names in enumerate(labels):
        for word, label in enumerate(names):
            check_known("label", f"labels[{number}][{word}]", label, classes)
    return tagging_scores(labels, [[word.label for word in words] for words in model.tag(sources)], classes)


def task_of(model: Model) -> EvaluationTask:
    """What a model is evaluated as; raises a `RegardError` for an encoder without a head or without a mask."""
    if model.can("classify"):
        return "classes"
    if model.can("tag"):
        return "tags"
    if model.can("translate"):
        return "translation"
    if model.can("score texts"):
        return "language"
    if model.can("fill"):
        return "masked"
    raise RegardError(
        f"this {model.config.kind} cannot be evaluated: it does not translate, continue or classify text, tag words or "
        "fill masks"
    )


def translate_examples(
    name: str,
    model: Model,
    examples: Examples,
    options: Decoding,
    precision: Precision = "float32",
    progress: Progress | None = None,
) -> SystemOutputs:
    """Translate the sources with a model, and measure its speed. Line breaks in a translation become spaces."""
    if task_of(model) != "translation":
        raise RegardError(f"{name} does not translate: {_required_input(model)}")
    translator = _for_decoding(model, precision).translator(options)
    translator.translate_all(examples.sources[:1])  # warm up, so that one-time work does not count
    begin = time.perf_counter()
    translations = translator.translate_all(examples.sources, progress)
    speed = _speed(begin, len(translations), "sentences")
    outputs = [re.sub(r"[\r\n\0]+", " ", best[0].text) for best in translations]
    settings: dict[str, int | float | str] = {
        "beam": options.beam,
        "length_penalty": options.length_penalty,
        "precision": precision,
    }
    return SystemOutputs(replace(describe(name, model), decoding=settings, speed=speed), outputs)


def outputs_from_file(name: str, path: Path, examples: Examples) -> SystemOutputs:
    """The outputs of another system, from a file with one line per output."""
    return SystemOutputs(System(name), read_outputs(path, examples))


def evaluate_translation(
    translated: SystemOutputs,
    examples: Examples,
    gold: GoldAnnotations | None = None,
    model: Model | None = None,
) -> TranslationResult:
    """Score the outputs of a system. With gold annotations, also accuracy by tag and the alignment of attention."""
    gold = gold or GoldAnnotations()
    outputs, references = translated.outputs, examples.references
    scores = translation_scores(outputs, references, examples.name)
    suspicious = suspicious_outputs(outputs, examples)
    alignment = None if model is None else score_alignment(model, examples, gold)
    return TranslationResult(
        system=translated.system,
        files=examples.files,
        scores=replace(scores, note=warn_of_subset(scores.note, examples)),
        suspicious_counts=count_kinds(suspicious),
        suspicious=suspicious,
        tag_accuracy=None if gold.tags is None else tag_accuracy(outputs, references[0], gold.tags),
        alignment=alignment,
        attention=None if alignment is None or model is None else aligned_attention(model),
    )


def evaluate_language(
    name: str,
    model: Model,
    texts: Sequence[str],
    files: tuple[str, ...] = (),
    documents: str = "file",
    context: int | None = None,
    stride: int | None = None,
    progress: Progress | None = None,
) -> LanguageResult:
    """Score a language model on independent texts; `regard.evaluation.sliding_window` describes the context."""
    if task_of(model) != "language":
        raise RegardError(f"{name} is not a language model: {_required_input(model)}")
    if not any(texts):
        raise RegardError(f"{files[0] if files else 'the text'} is empty: there is nothing to score")
    window, step = choose_window(model, context, stride)
    begin = time.perf_counter()
    score = score_texts(model, texts, window, step, progress)
    system = replace(describe(name, model), speed=_speed(begin, score.tokens, "tokens"))
    start = "".join(map(model.require_tokenizer().token, start_tokens(model))) or None
    return LanguageResult(system, files, score, documents, len(texts), window, step, start)


def evaluate_classification(
    name: str, model: Model, classify: Callable[[list[str]], list[tuple[str, float]]], examples: Examples
) -> ClassificationResult:
    """Score a classifier. A label that the model does not know raises an error with its line."""
    if task_of(model) != "classes":
        raise RegardError(f"{name} is not a classifier: {_required_input(model)}")
    labels = [label.strip() for label in examples.references[0]]
    classes = model.class_names
    for line, label in zip(examples.lines, labels, strict=True):
        check_known("class", f"{examples.name}:{line}", label, classes)
    begin = time.perf_counter()
    predictions = [prediction for prediction, _ in classify(examples.sources)]
    system = replace(describe(name, model), speed=_speed(begin, len(predictions), "texts"))
    return ClassificationResult(system, examples.files, class_scores(labels, predictions))


def evaluate_tagging(
    name: str,
    model: Model,
    sentences: Sequence[TaggedSentence],
    files: tuple[str, ...],
    skipped: tuple[SkippedSentences, ...] = (),
) -> TaggingResult:
    """Score a tagger. A sentence that the model cannot read raises an error with its line."""
    if task_of(model) != "tags":
        raise RegardError(f"{name} is not a tagger: {_required_input(model)}")
    begin = time.perf_counter()
    scores, _ = score_tagger(model, sentences)
    system = replace(describe(name, model), speed=_speed(begin, scores.words.accuracy.total, "words"))
    return TaggingResult(system, files, scores, skipped)


def evaluate_masked(
    name: str, model: Model, texts: Sequence[str], files: tuple[str, ...] = (), progress: Progress | None = None
) -> MaskedResult:
    """Score a masked language model on independent texts, with each token masked in turn."""
    if task_of(model) != "masked":
        raise RegardError(f"{name} is not a masked language model: {_required_input(model)}")
    begin = time.perf_counter()
    score = score_masked(model, texts, progress)
    system = replace(describe(name, model), speed=_speed(begin, score.tokens, "tokens"))
    return MaskedResult(system, files, score, len(texts))


def suspicious_outputs(outputs: Sequence[str], examples: Examples) -> tuple[SuspiciousOutput, ...]:
    """The outputs that a person should check."""
    suspicions = find_suspicious(examples.sources, outputs, examples.references[0])
    rows = [(suspicion.line - 1, suspicion) for suspicion in suspicions]
    return tuple(
        SuspiciousOutput(examples.lines[i], suspicion.kind, suspicion.detail, examples.sources[i], outputs[i])
        for i, suspicion in rows
    )


def warn_of_subset(note: ComparabilityNote, examples: Examples) -> ComparabilityNote:
    """The note, with a warning if only a part of the test set was scored."""
    scored = len(examples.lines)
    if scored == examples.total:
        return note
    warning = f"Only {scored:,} of {examples.total:,} lines were scored: do not compare with figures on the full set."
    return replace(note, warnings=(warning, *note.warnings))


def count_kinds(suspicious: Iterable[SuspiciousOutput]) -> dict[str, int]:
    """The number of suspicious outputs of each kind, most frequent first."""
    return dict(Counter(output.kind for output in suspicious).most_common())


def describe(name: str, model: Model) -> System:
    """A model's name, size, device and weights; a copy made for decoding has no digest of its own."""
    network = model.network
    return System(
        name,
        parameters=network.parameter_count,
        device=str(network.device),
        weights=None if is_fast_copy(network) else weights_digest(network.state_dict()),
    )


def _for_decoding(model: Model, precision: Precision) -> Model:
    """The model itself in float32, otherwise a faster copy."""
    return model if precision == "float32" else model.quick(precision)


def _speed(begin: float, count: int, unit: str) -> Speed:
    seconds = time.perf_counter() - begin
    return Speed(seconds, count / max(seconds, 1e-9), unit)


def _required_input(model: Model) -> str:
    """What a model is, and what it needs to be evaluated."""
    return {
        "translation": "it translates; give a source and a reference: two files, or one with --columns or --keys",
        "language": "it is a language model; give one text",
        "tags": "it tags words; give a file with columns, or a file of words and one of labels",
        "masked": "it is a masked language model; give one text",
        "classes": "it classifies; give texts and their classes: two files, or one with --columns or --keys",
    }[task_of(model)]
