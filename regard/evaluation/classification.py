"""A classifier's answers against the truth: accuracy, who is taken for whom, and each class by itself."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from regard.evaluation.proportions import Share, share
from regard.evaluation.text_checks import check_texts


@dataclass(frozen=True)
class ClassScore:
    """One class. What is 0 of 0, as the precision of a class that was never answered, counts as 0."""

    name: str
    precision: float
    recall: float
    f1: float
    count: int
    """how often it is the truth"""


@dataclass(frozen=True)
class ClassScores:
    """All that is said of a classifier."""

    accuracy: Share
    majority: float
    """the accuracy of always answering the most frequent class: what a classifier must beat"""
    macro_f1: float
    """the mean of F1 over the classes, each counting the same however rare"""
    classes: tuple[ClassScore, ...]
    confusion: tuple[tuple[int, ...], ...]
    """a row for each true class, a column for each answered one, in the order of `classes`"""


def class_scores(truth: Sequence[str], answers: Sequence[str]) -> ClassScores:
    """Compare answers with the truth. The classes are those that occur on either side, sorted."""
    check_texts(truth=truth, answers=answers)
    pairs = Counter(zip(truth, answers, strict=True))
    names = sorted({name for pair in pairs for name in pair})
    confusion = tuple(tuple(pairs[true, answered] for answered in names) for true in names)
    right = [row[i] for i, row in enumerate(confusion)]
    counts = [sum(row) for row in confusion]
    answered = [sum(column) for column in zip(*confusion, strict=True)]
    classes = tuple(_one(*each) for each in zip(names, right, counts, answered, strict=True))
    macro_f1 = sum(each.f1 for each in classes) / len(classes)
    return ClassScores(share(sum(right), len(truth)), max(counts) / len(truth), macro_f1, classes, confusion)


def _one(name: str, right: int, count: int, answered: int) -> ClassScore:
    precision = right / answered if answered else 0.0
    recall = right / count if count else 0.0
    return ClassScore(name, precision, recall, 2 * right / (count + answered), count)
