"""A system and a test set to results: each a dataclass that `regard.evaluation.plain_dict.plain` turns into JSON.

Dimensions: B rows, L layers, H heads, T target pieces, S source pieces.
"""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch

from regard.config import did_you_mean
from regard.data.huggingface_tokenizer import HuggingFaceTokenizer
from regard.decoding.batching import batches_by_length
from regard.decoding.fast_copy import Precision
from regard.decoding.generate import padded
from regard.decoding.options import Decoding
from regard.decoding.text_model import Model
from regard.decoding.translator import Progress
from regard.errors import RegardError
from regard.evaluation.alignment import (
    AlignmentScores,
    Attended,
    Links,
    alignment_scores,
    piece_words,
    row_words,
    source_pieces,
)
from regard.evaluation.classification import ClassScores, class_scores
from regard.evaluation.comparability import Note
from regard.evaluation.metrics import TranslationScores, translation_scores
from regard.evaluation.perplexity import LanguageScore
from regard.evaluation.petit_scores import PetitScore, petit_score
from regard.evaluation.sliding_window import choose_window, score_texts, starts_with
from regard.evaluation.suspicious_outputs import find_suspects
from regard.evaluation.test_sets import Examples, Gold, read_outputs
from regard.model.transformer import Decoder, EncoderDecoder
from regard.model.watch import Seen, watch
from regard.storage.weights import weights_digest

Task = Literal["translation", "language", "classes"]
Moment = Literal["writing", "reading"]
MOMENTS: tuple[Moment, ...] = ("writing", "reading")
"""a row of attention belongs to the piece that it writes, or to the one that it reads: see `row_words`"""
Attention = Literal["cross", "decoder"]
"""where a target looks at its source: cross-attention or, of a decoder alone, its own, in which both stand"""
ALIGNED_TOKENS = 2_048
"""target pieces of a batch whose attention is kept"""


@dataclass(frozen=True)
class Speed:
    """How long a system took, reading text and writing it included, loading not."""

    seconds: float
    per_second: float
    unit: str


@dataclass(frozen=True)
class System:
    """What was scored. Of outputs that were made elsewhere nothing is known but their name."""

    name: str
    parameters: int | None = None
    device: str | None = None
    decoding: dict[str, int | float | str] | None = None
    """how a translator was asked: its beam, length penalty and precision"""
    speed: Speed | None = None
    weights: str | None = None
    """a digest of them, which tells whether scores are those of a model: see `regard.storage.weights.weights_digest`"""


@dataclass(frozen=True)
class Translated:
    """A system and what it wrote for each source, each in one line."""

    system: System
    outputs: list[str]


@dataclass(frozen=True)
class Suspected:
    """An output to look at, with its line in the test set."""

    line: int
    kind: str
    detail: str
    source: str
    output: str


@dataclass(frozen=True)
class TranslationResult:
    """A translator on a test set."""

    system: System
    files: tuple[str, ...]
    scores: TranslationScores
    suspects: dict[str, int]
    """how many outputs there are of each kind of `suspects.KINDS`, the most frequent first"""
    suspected: tuple[Suspected, ...]
    petit: PetitScore | None
    alignment: dict[str, AlignmentScores] | None
    """by each of MOMENTS, with the reference as the target"""
    attention: Attention | None = None
    """whose alignment that is, if there is one"""
    kind: Task = "translation"


@dataclass(frozen=True)
class LanguageResult:
    """A language model on a text."""

    system: System
    files: tuple[str, ...]
    score: LanguageScore
    documents: str
    """what one text is: a line, blank-line, file"""
    texts: int
    context: int
    stride: int
    starts_with: str | None
    """the tokens before every text; None where none can be, so that no first token is foretold"""
    kind: Task = "language"


@dataclass(frozen=True)
class ClassesResult:
    """A classifier on labelled texts."""

    system: System
    files: tuple[str, ...]
    scores: ClassScores
    kind: Task = "classes"


def task_of(model: Model) -> Task:
    """What a model is scored by; a ValueError for an encoder that only fills in masks."""
    if model.can("classify"):
        return "classes"
    if model.can("translate"):
        return "translation"
    if model.can("score texts"):
        return "language"
    raise RegardError(
        f"this {model.config.kind} neither translates, nor continues text, nor classifies: there is no score for it"
    )


def translate(
    name: str,
    model: Model,
    examples: Examples,
    options: Decoding,
    precision: Precision = "float32",
    progress: Progress | None = None,
) -> Translated:
    """Have a model translate the sources; what is rare in a translation and breaks a line becomes a space.

    In float32 it is the model itself, otherwise a copy made for decoding.
    """
    if task_of(model) != "translation":
        raise RegardError(f"{name} does not translate: {_told(model)}")
    used = model
    if precision != "float32" and isinstance(model.network, Decoder | EncoderDecoder):
        used = model.quick(precision)
    translator = used.translator(options)
    translator.translate_all(examples.sources[:1])  # what is done once should not count as slowness
    begin = time.perf_counter()
    found = translator.translate_all(examples.sources, progress)
    speed = _speed(begin, len(found), "sentences")
    outputs = [re.sub(r"[\r\n\0]+", " ", each[0].text) for each in found]
    asked: dict[str, int | float | str] = {
        "beam": options.beam,
        "length_penalty": options.length_penalty,
        "precision": precision,
    }
    return Translated(replace(describe(name, model), decoding=asked, speed=speed), outputs)


def translated_elsewhere(name: str, path: Path, examples: Examples) -> Translated:
    """Outputs from a file, a line each."""
    return Translated(System(name), read_outputs(path, examples))


def evaluate_translation(
    translated: Translated, examples: Examples, gold: Gold | None = None, model: Model | None = None
) -> TranslationResult:
    """Score what a system wrote; with gold, by phenomenon and, of a model, its attention to the source."""
    gold = gold or Gold()
    outputs, references = translated.outputs, examples.beside
    scores, suspected = translation_scores(outputs, references, examples.name), look_at(outputs, examples)
    aligned = None if gold.links is None or model is None else align(model, examples, gold.links)
    return TranslationResult(
        system=translated.system,
        files=examples.files,
        scores=replace(scores, note=on_part(scores.note, examples)),
        suspects=count_kinds(suspected),
        suspected=suspected,
        petit=None if gold.tags is None else petit_score(outputs, references[0], gold.tags),
        alignment=aligned,
        attention=None if aligned is None or model is None else attention_of(model),
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
    """Score a language model on texts that know nothing of each other; see `windows` for what it sees of each."""
    if task_of(model) != "language":
        raise RegardError(f"{name} is no language model: {_told(model)}")
    if not any(texts):
        raise RegardError(f"{files[0] if files else 'the text'} is empty: there is nothing to score")
    window, step = choose_window(model, context, stride)
    begin = time.perf_counter()
    score = score_texts(model, texts, window, step, progress)
    system = replace(describe(name, model), speed=_speed(begin, score.tokens, "tokens"))
    start = "".join(map(model.require_tokenizer().token, starts_with(model))) or None
    return LanguageResult(system, files, score, documents, len(texts), window, step, start)


def evaluate_classes(
    name: str, model: Model, classify: Callable[[list[str]], list[tuple[str, float]]], examples: Examples
) -> ClassesResult:
    """Score a classifier; a class in the file that the model does not know is an error with its line."""
    if task_of(model) != "classes":
        raise RegardError(f"{name} is no classifier: {_told(model)}")
    truth = [label.strip() for label in examples.beside[0]]
    known = [str(each) for each in model.about.get("classes") or range(model.config.classes)]
    for line, label in zip(examples.lines, truth, strict=True):
        if label not in known:
            raise RegardError(f"{examples.name}:{line}: no class {label!r}: {did_you_mean(label, known)}")
    begin = time.perf_counter()
    answers = [answer for answer, _ in classify(examples.sources)]
    system = replace(describe(name, model), speed=_speed(begin, len(answers), "texts"))
    return ClassesResult(system, examples.files, class_scores(truth, answers))


def look_at(outputs: Sequence[str], examples: Examples) -> tuple[Suspected, ...]:
    """The outputs that a person should look at."""
    return tuple(
        Suspected(
            examples.lines[each.line - 1],
            each.kind,
            each.detail,
            examples.sources[each.line - 1],
            outputs[each.line - 1],
        )
        for each in find_suspects(examples.sources, outputs, examples.beside[0])
    )


def on_part(note: Note, examples: Examples) -> Note:
    """The note, with a warning where the set was not scored whole."""
    scored = len(examples.lines)
    if scored == examples.total:
        return note
    warning = f"{scored:,} of its {examples.total:,} lines alone were scored: no figure on the whole set compares."
    return replace(note, warnings=(warning, *note.warnings))


def count_kinds(suspected: Iterable[Suspected]) -> dict[str, int]:
    """How many there are of each kind, the most frequent first."""
    return dict(Counter(each.kind for each in suspected).most_common())


def attention_of(model: Model) -> Attention:
    """In which attention a translator's target looks at its source."""
    return "cross" if isinstance(model.network, EncoderDecoder) else "decoder"


def can_be_aligned(model: Model) -> bool:
    """Whether a model looks from a target at its source, with pieces that know where in the text they stand."""
    return task_of(model) == "translation" and isinstance(model.require_tokenizer(), HuggingFaceTokenizer)


def align(model: Model, examples: Examples, links: Sequence[Links]) -> dict[str, AlignmentScores] | None:
    """Attention from target to source against gold, with the first reference as the target; None where there is none.

    It is cross-attention or, of a decoder alone, what the target's rows see of the source that stands before them.
    """
    if not can_be_aligned(model):
        return None
    return {moment: alignment_scores(cross_attention(model, examples, links, moment)) for moment in MOMENTS}


def cross_attention(model: Model, examples: Examples, links: Sequence[Links], moment: Moment) -> Iterator[Attended]:
    """The weights of each pair, of a decoder alone those that stand for it; sentences of like length go together."""
    tokenizer, references = model.require_tokenizer(), examples.beside[0]
    weigh = _cross_weights if attention_of(model) == "cross" else _decoder_weights
    pairs = {
        (i, 0): (tokenizer.encode_with_template(source), tokenizer.encode_target(target))
        for i, (source, target) in enumerate(zip(examples.sources, references, strict=True))
    }
    for batch in batches_by_length({place: 1 + len(target) for place, (_, target) in pairs.items()}, ALIGNED_TOKENS):
        for weights, (i, _) in zip(weigh(model, [pairs[place] for place in batch]), batch, strict=True):
            source_words = source_pieces(tokenizer, examples.sources[i])
            target_words = row_words(piece_words(tokenizer, references[i]), moment)
            yield Attended(weights.numpy(), target_words, source_words, links[i])


def describe(name: str, model: Model) -> System:
    """A model's name, size, place and weights; a copy made for decoding has none of its own."""
    network = model.network
    weight, whole = network.embedding.tokens.weight, network.quick_output is None and network.loops is None
    return System(
        name,
        parameters=sum(each.numel() for each in network.parameters()),
        device=str(weight.device),
        weights=weights_digest(network.state_dict()) if whole else None,
    )


@torch.inference_mode()
def _cross_weights(model: Model, pairs: Sequence[tuple[list[int], list[int]]]) -> Iterator[torch.Tensor]:
    """Of each source and target, [L, H, T, S], where the decoder is given its start and then all target pieces."""
    network, start = model.network, model.special.start
    assert start is not None  # else it could not have been loaded
    source, source_lengths = padded(network, [ids for ids, _ in pairs])
    target, target_lengths = padded(network, [[start, *ids] for _, ids in pairs])
    with watch(network) as seen:
        network(source, target, source_lengths, target_lengths)
    layers = _stacked(seen, ".cross_attention")  # [L, B, H, T, S]
    for row, (given, written) in enumerate(pairs):
        yield layers[:, row, :, : len(written) + 1, : len(given)]


@torch.inference_mode()
def _decoder_weights(model: Model, pairs: Sequence[tuple[list[int], list[int]]]) -> Iterator[torch.Tensor]:
    """The same of a decoder alone: what its separator and all target pieces see of the source before them."""
    network, separator = model.network, model.special.separator
    assert separator is not None  # else it would not translate
    tokens, lengths = padded(network, [[*given, separator, *written] for given, written in pairs])
    before = torch.tensor([len(given) + 1 for given, _ in pairs], device=tokens.device)
    with watch(network) as seen:
        network(tokens, lengths, before if model.config.prefix else None)
    layers = _stacked(seen, ".attention")  # [L, B, H, S + T, S + T]
    for row, (given, written) in enumerate(pairs):
        yield layers[:, row, :, len(given) : len(given) + len(written) + 1, : len(given)]


def _stacked(seen: Seen, end: str) -> torch.Tensor:
    """The weights of all layers whose names end so; each was called once."""
    return torch.stack([calls[0] for name, calls in seen.items() if name.endswith(end)]).float().cpu()


def _speed(begin: float, count: int, unit: str) -> Speed:
    seconds = time.perf_counter() - begin
    return Speed(seconds, count / max(seconds, 1e-9), unit)


def _told(model: Model) -> str:
    """What a model is, and what it is scored on."""
    wants = {
        "translation": "it translates: give a source and a reference, two files, or one with --columns or --keys",
        "language": "it is a language model: give one text",
        "classes": "it classifies: give texts and their classes, two files, or one with --columns or --keys",
    }
    return wants[task_of(model)]
