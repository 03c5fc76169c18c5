"""Scores of a classifier: accuracy, precision, recall and F1 of each class, and the confusion matrix."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from regard.evaluation.proportions import Proportion, proportion
from regard.evaluation.text_checks import check_texts


@dataclass(frozen=True)
class ClassScore:
    """Scores of one class. A ratio of 0 to 0, such as the precision of a class never predicted, counts as 0."""

    name: str
    precision: float
    recall: float
    f1: float
    count: int
    """Number of texts whose correct class this is."""


@dataclass(frozen=True)
class ClassScores:
    """Scores of a classifier on labelled texts."""

    accuracy: Proportion
    majority: float
    """Accuracy of always predicting the most frequent class: the baseline."""
    macro_f1: float
    """Mean F1 over the classes; rare classes count as much as frequent ones."""
    classes: tuple[ClassScore, ...]
    confusion: tuple[tuple[int, ...], ...]
    """Counts with one row per correct class and one column per predicted class, in the order of `classes`."""


def class_scores(labels: Sequence[str], predictions: Sequence[str]) -> ClassScores:
    """Compare predictions with the correct labels. The classes are all that occur on either side, sorted."""
    check_texts(labels=labels, predictions=predictions)
    pairs = Counter(zip(labels, predictions, strict=True))
    names = sorted({name for pair in pairs for name in pair})
    confusion = tuple(tuple(pairs[label, predicted] for predicted in names) for label in names)
    correct = [row[i] for i, row in enumerate(confusion)]
    counts = [sum(row) for row in confusion]
    predicted_counts = [sum(column) for column in zip(*confusion, strict=True)]
    classes = tuple(class_score(*row) for row in zip(names, correct, counts, predicted_counts, strict=True))
    macro_f1 = sum(score.f1 for score in classes) / len(classes)
    return ClassScores(proportion(sum(correct), len(labels)), max(counts) / len(labels), macro_f1, classes, confusion)


def class_score(name: str, correct: int, count: int, predicted: int) -> ClassScore:
    """Scores from the number of correct predictions, of correct answers, and of predictions."""
    precision = correct / predicted if predicted else 0.0
    recall = correct / count if count else 0.0
    return ClassScore(name, precision, recall, 2 * correct / max(1, count + predicted), count)
