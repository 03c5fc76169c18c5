"""Scores of a tagger: accuracy and F1 of each label and, for labels such as B-PER and I-PER, of the spans they mark.

Spans are read from labels as CoNLL's script `conlleval` and seqeval do by default, whatever the scheme (IOB1, IOB2,
IOE, IOBES). A span starts at B or S; also at I or E, if the label before it is O, ends a span (E or S), or has another
type. It ends with E or S, before O, or before the next span. A predicted span is correct if a reference span has the
same first word, last word and type.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from regard.data.tagged_text import TaggedSentence
from regard.decoding.text_model import Model
from regard.errors import RegardError, TextError
from regard.evaluation.classification import ClassScore, ClassScores, class_score, class_scores

OUTSIDE = "O"
"""Label of a word that is in no span."""
_SPAN_LABEL = re.compile(r"O|[BIES](?:-.*)?", re.DOTALL)


@dataclass(frozen=True, order=True)
class Span:
    """A span of words with a type."""

    start: int
    end: int
    """Index of its last word."""
    type: str


@dataclass(frozen=True)
class SpanScores:
    """Precision, recall and F1 of spans."""

    precision: float
    recall: float
    f1: float
    macro_f1: float
    """Mean F1 over the types."""
    count: int
    """Number of spans in the references."""
    types: tuple[ClassScore, ...]


@dataclass(frozen=True)
class TaggingScores:
    """Scores of a tagger on labelled sentences."""

    sentences: int
    words: ClassScores
    """Accuracy over all words, and scores of each label."""
    spans: SpanScores | None
    """Scores of spans; None if the labels do not mark spans."""


def score_tagger(model: Model, sentences: Sequence[TaggedSentence]) -> tuple[TaggingScores, list[list[str]]]:
    """The scores of a model on sentences, and the labels that it predicts.

    A sentence that the model cannot read raises an error with its line.
    """
    try:
        tagged = model.tag([sentence.words for sentence in sentences])
    except TextError as error:
        raise RegardError(f"{sentences[error.number].where()}: the sentence {error.problem}") from None
    predictions = [[word.label for word in words] for words in tagged]
    references = [sentence.labels for sentence in sentences]
    return tagging_scores(references, predictions, model.class_names), predictions


def tagging_scores(
    references: Sequence[Sequence[str]], predictions: Sequence[Sequence[str]], classes: Iterable[str]
) -> TaggingScores:
    """Compare the predicted labels of each sentence with the correct ones.

    Spans are scored if the tagger's `classes` mark spans, whether or not any occurs in these sentences.
    """
    if len(references) != len(predictions):
        raise RegardError(f"{len(references)} sentences but {len(predictions)} predictions: each needs one")
    for number, (labels, predicted) in enumerate(zip(references, predictions, strict=True)):
        if len(labels) != len(predicted):
            raise RegardError(f"sentence {number} has {len(labels)} labels, but {len(predicted)} were predicted")
    words = class_scores(list(chain.from_iterable(references)), list(chain.from_iterable(predictions)))
    spans = span_scores(references, predictions) if marks_spans(classes) else None
    return TaggingScores(len(references), words, spans)


def marks_spans(labels: Iterable[str]) -> bool:
    """Whether these labels mark spans: all are O, or B, I, E or S with a type, and some are not O."""
    names = set(labels)
    return names != {OUTSIDE} and all(_SPAN_LABEL.fullmatch(name) for name in names)


def spans_of(labels: Sequence[str]) -> list[Span]:
    """The spans that the labels of a sentence mark.

    >>> [(span.start, span.end, span.type) for span in spans_of(["B-PER", "I-PER", "O", "B-LOC"])]
    [(0, 1, 'PER'), (3, 3, 'LOC')]
    """
    spans: list[Span] = []
    is_open, previous_type = False, ""  # whether the next label can continue the last span
    for i, label in enumerate(labels):
        prefix, type_ = label[:1], label[2:] or "_"
        if prefix == OUTSIDE:
            is_open = False
            continue
        if is_open and prefix in "IE" and type_ == previous_type:
            spans[-1] = Span(spans[-1].start, i, type_)
        else:
            spans.append(Span(i, i, type_))
        is_open, previous_type = prefix in "BI", type_
    return spans


def span_scores(references: Sequence[Sequence[str]], predictions: Sequence[Sequence[str]]) -> SpanScores:
    """Precision, recall and F1 of the predicted spans, over all of them and for each type."""
    counts, predicted_counts, correct = Counter[str](), Counter[str](), Counter[str]()
    for labels, predicted in zip(references, predictions, strict=True):
        reference_spans, predicted_spans = set(spans_of(labels)), set(spans_of(predicted))
        counts.update(span.type for span in reference_spans)
        predicted_counts.update(span.type for span in predicted_spans)
        correct.update(span.type for span in reference_spans & predicted_spans)
    types = tuple(
        class_score(name, correct[name], counts[name], predicted_counts[name])
        for name in sorted({*counts, *predicted_counts})
    )
    total = class_score("", correct.total(), counts.total(), predicted_counts.total())
    macro_f1 = sum(score.f1 for score in types) / max(1, len(types))
    return SpanScores(total.precision, total.recall, total.f1, macro_f1, total.count, types)
