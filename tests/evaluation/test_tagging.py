"""Scores of taggers: spans as seqeval counts them, and labels of words."""

import random

import pytest

from regard.errors import RegardError
from regard.evaluation.tagging import marks_spans, span_scores, spans_of, tagging_scores

SCHEMES = {
    "IOB2": "O B-PER I-PER B-LOC I-LOC",
    "IOBES": "O B-PER I-PER E-PER S-PER B-LOC I-LOC E-LOC S-LOC",
    "IOE": "O I-PER E-PER I-LOC E-LOC I-ORG",
    "bare": "O B I",
    "mixed": "O B I-PER E-LOC S B-A-B I-A-B",
}
# From seqeval 1.2.2 for the random labels below: precision_score, recall_score, f1_score, f1_score(average="macro"),
# and precision, recall, F1 and support of each type from classification_report.
SEQEVAL = [
    ("IOB2", 0, (0.68, 0.671052631579, 0.675496688742, 0.677896613191),
     {"LOC": (0.676470588235, 0.71875, 0.69696969697, 32),
      "PER": (0.682926829268, 0.636363636364, 0.658823529412, 44)}),
    ("IOB2", 1, (0.766666666667, 0.831325301205, 0.797687861272, 0.797727272727),
     {"LOC": (0.777777777778, 0.813953488372, 0.795454545455, 43), "PER": (0.755555555556, 0.85, 0.8, 40)}),
    ("IOBES", 0, (0.796116504854, 0.77358490566, 0.784688995215, 0.784151498437),
     {"LOC": (0.8, 0.785714285714, 0.792792792793, 56), "PER": (0.791666666667, 0.76, 0.775510204082, 50)}),
    ("IOBES", 1, (0.820224719101, 0.776595744681, 0.79781420765, 0.799209770115),
     {"LOC": (0.840909090909, 0.711538461538, 0.770833333333, 52), "PER": (0.8, 0.857142857143, 0.827586206897, 42)}),
    ("IOE", 0, (0.615384615385, 0.633663366337, 0.624390243902, 0.604441721879),
     {"LOC": (0.625, 0.595238095238, 0.609756097561, 42), "ORG": (0.529411764706, 0.529411764706, 0.529411764706, 17),
      "PER": (0.638297872340, 0.714285714286, 0.674157303371, 42)}),
    ("bare", 0, (0.69696969697, 0.676470588235, 0.686567164179, 0.686567164179),
     {"_": (0.696969696970, 0.676470588235, 0.686567164179, 68)}),
    ("mixed", 0, (0.722222222222, 0.735849056604, 0.728971962617, 0.696042716973),
     {"A-B": (0.8, 0.8, 0.8, 30), "LOC": (0.708333333333, 0.894736842105, 0.790697674419, 19),
      "PER": (0.5, 0.368421052632, 0.424242424242, 19), "_": (0.75, 0.789473684211, 0.769230769231, 38)}),
    ("mixed", 1, (0.739130434783, 0.745614035088, 0.742358078603, 0.736254822008),
     {"A-B": (0.707317073171, 0.805555555556, 0.753246753247, 36), "LOC": (0.75, 0.833333333333, 0.789473684211, 18),
      "PER": (0.818181818182, 0.5625, 0.666666666667, 16), "_": (0.744186046512, 0.727272727273, 0.735632183908, 44)}),
]  # fmt: skip


def random_labels(scheme: str, seed: int) -> tuple[list[list[str]], list[list[str]]]:
    """Sentences with random labels, valid or not, and predictions that are right in most places."""
    chance = random.Random(f"{scheme} {seed}")
    labels = SCHEMES[scheme].split()
    references = [[chance.choice(labels) for _ in range(chance.randint(1, 12))] for _ in range(20)]
    predictions = [[label if chance.random() < 0.7 else chance.choice(labels) for label in row] for row in references]
    return references, predictions


@pytest.mark.parametrize(("scheme", "seed", "overall", "by_type"), SEQEVAL)
def test_span_scores_are_those_of_seqeval(
    scheme: str, seed: int, overall: tuple[float, ...], by_type: dict[str, tuple[float, ...]]
) -> None:
    scores = span_scores(*random_labels(scheme, seed))
    assert (scores.precision, scores.recall, scores.f1, scores.macro_f1) == pytest.approx(overall, abs=1e-11)
    assert scores.count == sum(figures[-1] for figures in by_type.values())
    found = {score.name: (score.precision, score.recall, score.f1, score.count) for score in scores.types}
    assert found.keys() == by_type.keys()
    for name, figures in by_type.items():
        assert found[name] == pytest.approx(figures, abs=1e-11)


def test_the_example_of_seqevals_readme() -> None:
    references = [["O", "O", "O", "B-MISC", "I-MISC", "I-MISC", "O"], ["B-PER", "I-PER", "O"]]
    predictions = [["O", "O", "B-MISC", "I-MISC", "I-MISC", "I-MISC", "O"], ["B-PER", "I-PER", "O"]]
    scores = tagging_scores(references, predictions, ["O", "B-MISC", "I-MISC", "B-PER", "I-PER"])
    assert scores.words.accuracy.value == 0.8
    assert scores.sentences == 2
    assert scores.spans is not None
    assert scores.spans.f1 == 0.5
    assert {score.name: (score.f1, score.count) for score in scores.spans.types} == {"MISC": (0, 1), "PER": (1, 1)}


def test_labels_that_mark_no_spans_are_scored_by_word() -> None:
    references, predictions = [["DET", "NOUN", "VERB"], ["NOUN"]], [["DET", "NOUN", "NOUN"], ["NOUN"]]
    scores = tagging_scores(references, predictions, ["DET", "NOUN", "VERB"])
    assert scores.spans is None
    assert scores.words.accuracy.correct == 3
    assert scores.words.accuracy.total == 4
    noun = {score.name: score for score in scores.words.classes}["NOUN"]
    assert (noun.precision, noun.recall, noun.f1, noun.count) == (2 / 3, 1.0, 0.8, 2)


def test_the_classes_decide_whether_spans_are_scored() -> None:
    """Whichever of them occur: validations of one run must be comparable."""
    only_o = [["O", "O"], ["O"]]
    scores = tagging_scores(only_o, only_o, ["B-PER", "I-PER", "O"])
    assert scores.spans is not None
    assert (scores.spans.f1, scores.spans.count) == (0, 0)
    only_b = [["B", "S"]]  # letters of spans, by chance
    assert tagging_scores(only_b, only_b, ["B", "NOUN", "S"]).spans is None


def test_which_labels_mark_spans() -> None:
    assert marks_spans(["O", "B-PER", "I-PER"])
    assert marks_spans(["S", "B", "O"])
    assert not marks_spans(["O", "O"])
    assert not marks_spans(["B-PER", "NOUN"])
    assert not marks_spans(["BEE", "O"])
    assert spans_of([]) == []


def test_sentences_and_predictions_must_match() -> None:
    with pytest.raises(RegardError, match="2 sentences but 1 predictions"):
        tagging_scores([["A"], ["B"]], [["A"]], "AB")
    with pytest.raises(RegardError, match="sentence 1 has 1 labels, but 2 were predicted"):
        tagging_scores([["A"], ["B"]], [["A"], ["B", "B"]], "AB")
