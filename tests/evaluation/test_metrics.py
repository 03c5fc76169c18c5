"""Scores of texts: equal to sacreBLEU's own command, with the right caveats, and checked by hand."""

import gzip
import json
import math
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.evaluation import metrics
from regard.evaluation.classification import class_scores
from regard.evaluation.comparability import (
    KNOWN_TEST_SETS,
    MIN_SENTENCES,
    comparability_note,
    looks_lowercased,
    looks_tokenised,
    recognise,
)
from regard.evaluation.metrics import bleu, chrf, paired_test, translation_scores
from regard.evaluation.perplexity import language_score
from regard.evaluation.proportions import proportion
from regard.evaluation.result_json import to_json_value
from regard.evaluation.suspicious_outputs import SUSPICION_KINDS, find_suspicious
from regard.evaluation.tag_accuracy import read_tags, tag_accuracy
from regard.petit import PHENOMENA
from regard.petit.corpus_files import write_petit
from tests.support.real_data import REAL_DATA


@pytest.fixture(scope="module")
def petit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of two of Petit's splits."""
    folder = tmp_path_factory.mktemp("scores") / "petit"
    write_petit(1_000, folder, splits=("train", "test"))
    return folder


def read(path: Path) -> list[str]:
    """Return the lines of a file, gzip or not."""
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return content.decode().split("\n")[:-1]


def damaged_outputs(texts: Sequence[str], share: float, seed: int = 0) -> list[str]:
    """Return a system: the references with some words lost, doubled or lower-cased."""
    random = Random(seed)
    changes = [lambda _: "", lambda word: f"{word} {word}", str.lower, lambda word: f"{word}s"]
    return [
        " ".join(random.choice(changes)(word) if random.random() < share else word for word in text.split())
        for text in texts
    ]


def sacrebleu(
    folder: Path, systems: Mapping[str, Sequence[str]], references: Sequence[Sequence[str]], *options: str
) -> list[Any]:
    """Return what the command prints for these texts, in full precision."""
    for name, texts in [*systems.items(), *((f"reference{i}", each) for i, each in enumerate(references))]:
        (folder / name).write_text("".join(f"{text}\n" for text in texts))
    files = [str(folder / f"reference{i}") for i in range(len(references))]
    inputs = [str(folder / name) for name in systems]
    command = [sys.executable, "-m", "sacrebleu", *files, "-i", *inputs, "-w", "9", *options]
    told = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return told if isinstance(told, list) else [told]


@pytest.mark.slow
@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("several", [False, True])
def test_scores_equal_those_of_sacrebleus_command(petit: Path, tmp_path: Path, lowercase: bool, several: bool) -> None:
    first = read(petit / "test.en")[:150]
    references = [first, damaged_outputs(first, 0.3, seed=5)] if several else [first]
    outputs = damaged_outputs(first, 0.2)
    case = ["-lc", "--chrf-lowercase"] if lowercase else []
    options = ["-m", "bleu", "chrf", "--chrf-word-order", "2", "--confidence", *case]
    theirs = sacrebleu(tmp_path, {"system": outputs}, references, *options)
    given = references if several else first
    for ours, expected in zip((bleu(outputs, given, lowercase), chrf(outputs, given, lowercase)), theirs, strict=True):
        assert 30 < ours.value < 95
        assert ours.name.startswith(expected["name"])
        assert ours.signature == expected["signature"]
        assert ours.value == pytest.approx(expected["score"], abs=1e-8)
        assert ours.mean == pytest.approx(expected["confidence_mean"], abs=1e-8)
        assert ours.high - ours.mean == pytest.approx(expected["confidence_var"], abs=1e-8)
        assert ours.mean - ours.low == pytest.approx(expected["confidence_var"], abs=1e-8)
    assert f"nrefs:{len(references)}|bs:1000|seed:12345|case:{'lc' if lowercase else 'mixed'}" in ours.signature


@pytest.mark.slow
def test_paired_p_values_equal_those_of_sacrebleus_command(
    petit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert metrics.RANDOMIZATION_TRIALS == 10_000  # sacreBLEU's default
    monkeypatch.setattr(metrics, "RANDOMIZATION_TRIALS", 2_000)
    references = read(petit / "test.en")[:60]
    systems = {
        "base": damaged_outputs(references, 0.2),
        "alike": damaged_outputs(references, 0.2, 1),
        "worse": damaged_outputs(references, 0.4, 2),
    }
    options = ["-m", "bleu", "chrf", "--chrf-word-order", "2", "--paired-ar", "--paired-ar-n", "2000", "-f", "json"]
    theirs = sacrebleu(tmp_path, systems, [references], *options)
    comparisons = paired_test(systems, references)
    assert [each.metric for each in comparisons] == ["BLEU", "chrF2++"]
    for comparison in comparisons:
        assert "ar:2000|seed:12345" in comparison.test
        base, alike, worse = comparison.systems
        assert [each.system for each in comparison.systems] == list(systems)
        assert (base.difference, base.p_value) == (0, None)
        for ours, told in zip(comparison.systems, theirs, strict=True):
            assert ours.score.value == pytest.approx(told[comparison.metric]["score"])
            assert ours.p_value == told[comparison.metric]["p_value"]
        assert alike.p_value is not None
        assert alike.p_value > 0.05
        assert worse.p_value is not None
        assert worse.p_value < 0.01
        assert worse.difference == pytest.approx(worse.score.value - base.score.value)
        assert worse.difference < -5


@pytest.mark.slow
def test_tiny_differences_are_not_significant(petit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """sacreBLEU itself reports the smallest possible p for each of these."""
    monkeypatch.setattr(metrics, "RANDOMIZATION_TRIALS", 1_000)
    references = read(petit / "test.en")[:40]
    base = damaged_outputs(references, 0.9)
    systems = {"base": base}
    for differing in (0, 1, 3):
        better = references[:differing] + base[differing:]
        assert sum(mine != theirs for mine, theirs in zip(base, better, strict=True)) == differing
        systems[f"{differing} differ"] = [text.replace(" ", "  ") for text in better]
    for comparison in paired_test(systems, references):
        assert [each.p_value for each in comparison.systems] == [None, 1.0, 1.0, 0.25]


@pytest.mark.slow
def test_scores_are_deterministic_and_perfect_output_scores_100(petit: Path) -> None:
    references = read(petit / "test.en")[:100]
    outputs = damaged_outputs(references, 0.3)
    assert translation_scores(outputs, references) == translation_scores(outputs, references)
    perfect = translation_scores(references, references)
    for score in (perfect.bleu, perfect.bleu_lowercase, perfect.chrf):
        assert [score.value, score.low, score.high] == pytest.approx([100, 100, 100])
    nearly = translation_scores([references[0][:-2], *references[1:]], references)
    assert nearly.bleu.low < nearly.bleu.value < nearly.bleu.high == 100
    lowered = translation_scores([text.lower() for text in references], references)
    assert lowered.bleu.value < 90 < lowered.bleu_lowercase.value
    nothing = translation_scores([""] * 100, references)
    assert (nothing.bleu.value, nothing.chrf.value, nothing.bleu.high) == (0, 0, 0)


def test_sacrebleu_is_not_loaded_before_it_is_needed() -> None:
    program = "import sys, regard.evaluation.result_json; print('sacrebleu' in sys.modules, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


@pytest.mark.slow
def test_known_test_sets_are_recognised_by_their_references(petit: Path) -> None:
    for language in ("fr", "en"):  # tests of `regard data petit` check the other split
        references = read(petit / f"test.{language}")
        found = recognise(references)
        assert found, "Petit has changed: so must the digests in comparability.py"
        assert (found[0].name, found[1]) == ("Petit test", language)
        assert found[0].lines == len(references)
    references = read(petit / "test.en")
    note = comparability_note(references, [[f"{text} \r" for text in references]], "whatever")
    assert note.standard
    assert note.test_set == "Petit test, en, all 1,000 lines: recognised by its references."
    assert not note.warnings
    assert "no published figures" in note.text
    assert "have the same signature; bs and seed may differ" in note.text
    assert "This split" not in comparability_note(references[1:], [references[1:]]).text


@pytest.mark.slow
@pytest.mark.parametrize("name", ["test_2016_flickr", "multi30k/2017", "WMT13", "newstest2013.en", "petit/test.en"])
def test_a_part_of_a_test_set_is_not_recognised_as_the_set(petit: Path, name: str) -> None:
    references = read(petit / "test.en")[:-1]
    note = comparability_note(references, [references], name)
    assert not note.standard
    assert name in note.test_set
    assert "999 lines: not a known test set" in note.test_set
    assert ["the set is incomplete or changed" in warning for warning in note.warnings] == [True]
    assert not comparability_note(references, [references], "my own set").warnings
    whole = read(petit / "test.en")
    mistaken = comparability_note(whole, [whole], name).warnings
    assert mistaken == (
        () if "petit" in name else (f"The name is {name}, but the references are those of Petit test.",)
    )


@pytest.mark.slow
def test_two_references_are_not_the_known_set(petit: Path) -> None:
    references = read(petit / "test.en")
    note = comparability_note(references, [references, references])
    assert not note.standard
    assert "1,000 lines with 2 references each" in note.test_set


@pytest.mark.slow
def test_notes_report_tokenised_lowercased_small_and_unspaced_texts(petit: Path) -> None:
    references = read(petit / "test.en")
    moses = [text.replace(".", " .").replace(",", " ,").replace("'s", " 's") for text in references]
    pieces = [text.replace("ing", "@@ ing") for text in references]
    assert looks_tokenised(moses)
    assert looks_tokenised(pieces)
    assert looks_tokenised(["l' homme dort", "un well @-@ known", "c&apos;est"])
    assert not looks_tokenised([*references, "Où ? Là !", "« Oui » : 5 %", "boys' toys"])
    assert looks_lowercased([text.lower() for text in references])
    assert not looks_lowercased(references)
    assert not looks_lowercased(["12", "?", "日本"])
    outputs = [text.lower() for text in moses]
    warnings = comparability_note(outputs, [references]).warnings
    assert [warning.split(":")[0] for warning in warnings] == [
        "The outputs look tokenised",
        "The outputs have no capitals",
    ]
    assert "The references look tokenised" in comparability_note(references, [references, moses]).text
    assert [
        f"A score on {MIN_SENTENCES - 1} sentences is too noisy" in each
        for each in comparability_note(references[:99], [references[:99]]).warnings
    ] == [True]
    assert not comparability_note(references[:MIN_SENTENCES], [references[:MIN_SENTENCES]]).warnings
    assert (
        "no spaces between words, and 13a does not split them"
        in comparability_note(["猫が寝ている。"], [["猫は眠る。"]]).text
    )


def real_sets() -> Iterator[tuple[str, str, Path]]:
    """Return known test sets stored in files: name, language, path."""
    data = REAL_DATA / "data"
    for year in (2016, 2017):
        for language in ("en", "fr", "de"):
            yield f"Multi30k test_{year}_flickr", language, data / f"multi30k/test_{year}_flickr.{language}.gz"
    for language in ("en", "fr", "de"):
        yield "WMT newstest2013", language, data / f"newstest/newstest2013.{language}"
    for language in ("en", "fr"):
        yield "Europarl test", language, data / f"europarl/test.fr-en.{language}"


NO_REAL_SETS = pytest.param("", "", Path(), marks=pytest.mark.skip("no real test sets: set REGARD_REAL_DATA"))
REAL_SETS = [pytest.param(*found) for found in real_sets() if found[2].is_file()] or [NO_REAL_SETS]


@pytest.mark.parametrize(("name", "language", "path"), REAL_SETS)
def test_real_sets_are_recognised_without_false_notes(name: str, language: str, path: Path) -> None:
    references = read(path)
    note = comparability_note(references, [references], path.name)
    assert note.standard
    assert note.test_set.startswith(f"{name}, {language}, all {len(references):,} lines")
    assert not note.warnings


def test_digests_are_all_different() -> None:
    digests = [digest for known in KNOWN_TEST_SETS for digest in known.digests.values()]
    assert len(set(digests)) == len(digests) == 17


FAULTS = [
    ("empty", "Le chat dort sur la chaise.", "  "),
    ("loop", "Le chat dort sur la chaise.", "The cat cat cat cat sleeps."),
    ("loop", "Le chat dort sur la chaise.", "The cat, the cat, the cat sleeps."),
    ("loop", "Le chat dort sur la chaise de la cuisine.", "A cat and a dog or a cat and a dog but a cat and a dog."),
    ("loop", "Il rit de bon coeur.", "He is hahahahahahahaha."),
    ("loop", "Il rit de bon coeur.", "He laughs.............."),
    ("copied", "Le chat dort sur la chaise.", "Le chat dort sur la chaise."),
    ("copied", "Le chat dort sur la chaise.", "Le chat dort sur la chair."),
    ("short", "Un homme avec un chapeau orange regarde quelque chose de loin.", "A man."),
    ("long", "Un homme dort.", "A man is asleep in the shade of a tree in front of the house."),
    ("script", "Le chat dort.", "The кот sleeps."),
    ("broken", "Le café est fermé.", "The caf\ufffd is closed."),
    ("leftover", "Le chat dort.", "The <unk> sleeps."),
    ("leftover", "Le chat dort.", "The c@@ at sleeps."),
    ("leftover", "Le chat dort.", "▁The cat▁sleeps."),
]


@pytest.mark.parametrize(("kind", "source", "output"), FAULTS)
def test_each_fault_is_reported(kind: str, source: str, output: str) -> None:
    first = ("Un chien mange ici.", "A dog is eating here.")
    found = find_suspicious([first[0], source], [first[1], output], [first[1], "The cat sleeps on the chair."])
    assert [(each.line, each.kind) for each in found] == [(2, kind)]
    assert found[0].detail


def test_every_kind_of_fault_is_tested() -> None:
    assert {kind for kind, _, _ in FAULTS} | {"same"} == set(SUSPICION_KINDS)


@pytest.mark.parametrize(
    ("source", "output"),
    [
        ("Paris, Londres, New York", "Paris, London, New York"),
        ("Non, non, non, non !", "No, no, no, no!"),
        ("Non ! Non ! Non !", "No! No! No!"),
        ("Barack Obama, 3-2.", "Barack Obama, 3-2."),
        ("Oui.", "Yes, indeed it is."),
        ("Ha ha hahahahahaha......", "Ha ha hahahahahaha......"),
        ("", ""),
        ("Le mot <unk> et кот.", "The word <unk> and кот."),
        ("Taxi, restaurant, hôtel", "Taxi, restaurant, hotel"),
    ],
)
def test_correct_outputs_are_not_suspected(source: str, output: str) -> None:
    assert not find_suspicious([source], [output], ["The cat."])


def test_one_output_for_all_sources_is_suspected() -> None:
    sources = [f"Phrase numéro {i} de ce texte." for i in range(6)]
    outputs = ["I do not know."] * 5 + ["Sentence number 5."]
    found = [(each.line, each.kind) for each in find_suspicious(sources, outputs)]
    assert found == [(line, "same") for line in range(1, 6)]
    assert not find_suspicious(sources, outputs, ["I do not know it."] * 6)  # they mean the same
    assert not find_suspicious(sources[:4], outputs[:4])


def parallel(petit: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    for split in ("train", "test"):
        yield f"petit {split}", read(petit / f"{split}.fr"), read(petit / f"{split}.en")
    for name, language in [(each, language) for each in ("val", "test_2016_flickr") for language in ("fr", "de")]:
        paths = [REAL_DATA / f"data/multi30k/{name}.{each}.gz" for each in (language, "en")]
        if paths[0].is_file():
            yield f"{name} {language}", read(paths[0]), read(paths[1])


@pytest.mark.slow
def test_true_references_are_hardly_ever_suspected(petit: Path) -> None:
    """In both directions, with and without references to learn lengths from: less than 0.5% of lines."""
    for name, one, other in parallel(petit):
        for sources, outputs in ((one, other), (other, one)):
            for references in (outputs, None):
                lines = {each.line for each in find_suspicious(sources, outputs, references)}
                assert len(lines) < 0.005 * len(outputs), name


@pytest.mark.slow
def test_damaged_outputs_are_nearly_always_suspected(petit: Path) -> None:
    pairs = [(fr, en) for fr, en in zip(read(petit / "test.fr"), read(petit / "test.en"), strict=True) if len(en) > 40]
    sources, references = map(list, zip(*pairs, strict=True))
    faults = {
        "loop": [f"{text} " + " ".join([*text.split()[-3:]] * 3) for text in references],
        "copied": sources,
        "short": [text[: len(text) // 4] for text in references],
        "long": [" ".join(references[i : i + 3]) for i in range(len(references))],
        "empty": [""] * len(references),
    }
    for kind, outputs in faults.items():
        found = {each.line for each in find_suspicious(sources, outputs, references) if each.kind == kind}
        assert len(found) > 0.9 * len(references), kind


def test_language_scores_match_a_hand_computation() -> None:
    score = language_score(nats=12.0, tokens=4, text_bytes=10)
    assert [score.loss, score.perplexity] == pytest.approx([3, 20.085536923])
    assert score.bits_per_byte == pytest.approx(1.2 * 1.442695041)  # 1.2 nats a byte, 1 / ln 2 bits a nat
    assert (score.tokens, score.bytes) == (4, 10)
    assert language_score(0.0, 1, 1).perplexity == 1
    assert language_score(1e6, 1, 1).perplexity == math.inf
    uniform = language_score(nats=100 * math.log(256), tokens=100, text_bytes=100)
    assert uniform.bits_per_byte == pytest.approx(8)


def test_wilsons_interval_matches_a_hand_computation() -> None:
    """8 of 10, z = 1.96: centre (0.8 + 0.19208) / 1.38416, half-width 1.96 / 1.38416 · √(0.016 + 0.009604)."""
    found = proportion(8, 10)
    assert [found.value, found.low, found.high] == pytest.approx([0.8, 0.4902, 0.9433], abs=1e-4)
    none, full = proportion(0, 10), proportion(10, 10)
    assert none.low == 0
    assert full.high == 1
    assert [none.high, full.low] == pytest.approx([0.2775, 0.7225], abs=1e-4)  # 3.8416 / 13.8416, and the rest


@given(total=st.integers(1, 10_000), fraction=st.floats(0, 1))
def test_the_ends_of_wilsons_interval_satisfy_its_definition(total: int, fraction: float) -> None:
    """Its ends are the shares that are z of their own standard deviations away from the observed one."""
    correct = round(fraction * total)
    found = proportion(correct, total)
    assert 0 <= found.low <= found.value <= found.high <= 1
    for end in (found.low, found.high):
        if 0 < end < 1:
            assert abs(found.value - end) / math.sqrt(end * (1 - end) / total) == pytest.approx(1.959964, rel=1e-5)


def test_class_scores_match_a_hand_computation() -> None:
    truth = ["cat", "cat", "cat", "dog", "dog", "cow"]
    answers = ["cat", "cat", "dog", "dog", "cat", "hen"]
    scores = class_scores(truth, answers)
    assert (scores.accuracy.correct, scores.accuracy.total, scores.majority) == (3, 6, 0.5)
    assert [each.name for each in scores.classes] == ["cat", "cow", "dog", "hen"]
    assert scores.confusion == ((2, 0, 1, 0), (0, 0, 0, 1), (1, 0, 1, 0), (0, 0, 0, 0))
    cat, cow, dog, hen = scores.classes
    assert (cat.precision, cat.recall, cat.f1, cat.count) == pytest.approx((2 / 3, 2 / 3, 2 / 3, 3))
    assert (dog.precision, dog.recall, dog.f1, dog.count) == (0.5, 0.5, 0.5, 2)
    assert (cow.precision, cow.recall, cow.f1, cow.count) == (0, 0, 0, 1)
    assert (hen.precision, hen.recall, hen.f1, hen.count) == (0, 0, 0, 0)
    assert scores.macro_f1 == pytest.approx((2 / 3 + 0.5) / 4)
    uneven = class_scores(["a", "a", "b", "b"], ["a", "b", "b", "b"])
    assert uneven.classes[0].f1 == pytest.approx(2 / 3)  # precision 1, recall 1/2
    assert uneven.classes[1].f1 == pytest.approx(4 / 5)  # precision 2/3, recall 1


@pytest.mark.slow
def test_petit_by_phenomenon(petit: Path, tmp_path: Path) -> None:
    references, tags = read(petit / "test.en"), read_tags(petit / "test.tags")
    assert len(tags) == len(references)
    outputs = [text if "negation" not in names else "No." for text, names in zip(references, tags, strict=True)]
    score = tag_accuracy(outputs, [f"{text} " for text in references], tags)
    with_negation = sum("negation" in names for names in tags)
    assert score.overall.correct == 1_000 - with_negation
    assert score.by_tag["negation"].correct == 0
    assert score.by_tag["negation"].total == with_negation
    for name, found in score.by_tag.items():
        together = [names for names in tags if name in names]
        assert (found.total, found.correct) == (len(together), sum("negation" not in names for names in together))
    values = [found.value for found in score.by_tag.values()]
    assert values == sorted(values)
    assert tag_accuracy(["The Cat."], ["The cat."], [["question"]]).overall.correct == 0
    (tmp_path / "a.tags").write_text("question\n\nnegatoin elision\n")
    with pytest.raises(ValueError, match=r"a\.tags:3: unknown tag 'negatoin': did you mean 'negation'"):
        read_tags(tmp_path / "a.tags", PHENOMENA)


@pytest.mark.slow
def test_reports_are_json(petit: Path) -> None:
    sources, references = read(petit / "test.fr")[:20], read(petit / "test.en")[:20]
    outputs = ["", *references[1:]]
    report = to_json_value(translation_scores(outputs, references, "a few"))
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    assert set(report) == {"sentences", "bleu", "bleu_lowercase", "chrf", "note"}
    assert report["bleu"]["signature"].startswith("nrefs:1|bs:1000")
    assert report["note"]["warnings"] == [
        f"A score on 20 sentences is too noisy to mean much. Use {MIN_SENTENCES} sentences or more."
    ]
    suspects = to_json_value(find_suspicious(sources, outputs, references))
    assert suspects == [{"line": 1, "kind": "empty", "detail": "the output is empty"}]
    assert to_json_value(language_score(1e6, 1, 1))["perplexity"] is None
    assert to_json_value({"a": np.arange(2), "b": (np.float32(0.5), math.nan)}) == {"a": [0, 1], "b": [0.5, None]}
    with pytest.raises(ValueError, match="a set cannot be written as JSON"):
        to_json_value({1})


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize("score", [bleu, chrf, translation_scores])
def test_invalid_texts_are_rejected(score: object) -> None:
    assert callable(score)
    for outputs, references, message in [
        ([], [], "outputs is empty: there is nothing to score"),
        (["a"], [], "1 outputs but 0 references: both must have the same length"),
        (["a", "b"], [["a", "b"], ["a"]], "2 outputs but 1 references"),
        (["a", None], ["a", "b"], r"outputs\[1\] must be a string, not NoneType"),
        (["a", "b"], ["a", None], r"references\[1\] must be a string, not NoneType"),
        (["a", "b"], [None, "b"], r"references\[0\] must be a string, not NoneType"),
        ("a", ["a"], "outputs must be a list of strings, not a single string"),
        (None, ["a"], "outputs must be a list of strings, not None"),
        (["a"], "a", "references must be a list of strings, or several such lists, not a single string"),
        (["a"], None, "references must be a list of strings, or several such lists, not None"),
    ]:
        with pytest.raises(ValueError, match=message):
            score(outputs, references)


@pytest.mark.usefixtures("without_type_checks")
def test_invalid_counts_are_rejected() -> None:
    with pytest.raises(ValueError, match="1 system to compare: give at least two"):
        paired_test({"a": ["a"]}, ["a"])
    with pytest.raises(ValueError, match="system 'b': 1 outputs but 2 references"):
        paired_test({"a": ["a", "b"], "b": ["a"]}, ["a", "b"])
    with pytest.raises(ValueError, match="2 outputs but 1 sources"):
        find_suspicious(["a"], ["a", "b"])
    with pytest.raises(ValueError, match="2 labels but 1 predictions"):
        class_scores(["a", "b"], ["a"])
    with pytest.raises(ValueError, match="labels is empty"):
        class_scores([], [])
    with pytest.raises(ValueError, match="1 outputs but 0 tags"):
        tag_accuracy(["a"], ["a"], [])
    for correct, total in ((0, 0), (2, 1), (-1, 3)):
        with pytest.raises(ValueError, match=f"{correct} of {total} is not a proportion"):
            proportion(correct, total)
    with pytest.raises(ValueError, match="tokens=0 is too small"):
        language_score(1.0, 0, 1)
    with pytest.raises(ValueError, match="text_bytes=0 is too small"):
        language_score(1.0, 1, 0)
    for nats in (-1.0, math.nan):
        with pytest.raises(ValueError, match="is not a sum of negative log-probabilities"):
            language_score(nats, 1, 1)


def test_chrf_of_outputs_that_match_almost_nowhere() -> None:
    """Some resamples have no match at all: a plain 0.0 among NumPy's numbers."""
    found = chrf(["x"] * 9 + ["le chat dort"], ["le chien dort"] * 10)
    assert 0 < found.value < 10
    assert found.low < found.value < found.high
