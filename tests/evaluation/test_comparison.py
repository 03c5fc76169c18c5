"""Comparing systems of several runs: resampling compared with sacreBLEU on texts that are really resampled."""

import json
import re
import statistics
from dataclasses import replace
from html import unescape
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from sacrebleu.significance import PairedTest

from regard.evaluation import metrics
from regard.evaluation.comparison import (
    ComparedSystem,
    ComparisonResult,
    DifferingSentence,
    DiffSegment,
    SystemRun,
    TrainingCost,
    compare,
    diff,
    group_runs,
)
from regard.evaluation.metrics import bleu_metric, chrf_metric, paired_test
from regard.evaluation.multi_run import (
    BootstrapMean,
    RunScores,
    compare_systems,
    p_value,
    resample_sentences,
    score_runs,
)
from regard.evaluation.result_json import to_json_value
from regard.evaluation.results import Speed, System, SystemOutputs
from regard.evaluation.test_sets import Examples
from regard.petit import corpus_files, pairs
from regard.plots.comparison_tables import (
    _sentence_markdown,
    comparison_markdown,
    metric_table,
    show_comparison,
    significance_notes,
)
from regard.training.events import Ended, Started, Stepped
from regard.training.metrics_log import METRICS_FILE, MetricsLog
from regard.training.training_summary import recipe_without_seed, training_summary
from tests.support.commands import command, refused, shown, write

PETIT = list(pairs(60, seed=5))
FRENCH, ENGLISH = [pair.french for pair in PETIT], [pair.english for pair in PETIT]
CASES = [*("dog", "cat", "a_b", "1.5", "é", "猫", "[x]", "*y*", "<b>", "~~z~~", "`q`", "$1"), *"|&#!\\:,.;()“”*_~-"]


def worse(share: float, seed: int, texts: list[str] = ENGLISH) -> list[str]:
    """Return a run: the references without some of their words."""
    random = Random(seed)
    return [" ".join(word for word in text.split() if random.random() > share) for text in texts]


def examples(sources: list[str] = FRENCH, *references: list[str]) -> Examples:
    beside = list(references) or [ENGLISH]
    return Examples(("a.fr", "a.en"), sources, beside, list(range(1, len(sources) + 1)), len(sources))


def group(name: str, *runs: list[str], training: TrainingCost | None = None) -> ComparedSystem:
    several = len(runs) > 1
    made = [
        SystemRun(SystemOutputs(System(f"{name}-{i}" if several else name), outputs), training, i if several else None)
        for i, outputs in enumerate(runs)
    ]
    return ComparedSystem(name, tuple(made))


# Resampling.


@pytest.mark.slow
@pytest.mark.parametrize("several", [False, True])
def test_resampled_scores_equal_sacrebleu_on_resampled_texts(several: bool) -> None:
    references = [ENGLISH, worse(0.1, 99)] if several else [ENGLISH]
    runs = [worse(0.2, 0), worse(0.3, 1)]
    draws = resample_sentences(len(ENGLISH))
    assert (draws.sum(1) == len(ENGLISH)).all()
    for metric, whole in (
        (bleu_metric(), lambda texts, sides: sacrebleu.corpus_bleu(texts, sides, force=True)),
        (chrf_metric(), lambda texts, sides: sacrebleu.corpus_chrf(texts, sides, word_order=2)),
    ):
        found = score_runs(metric, runs, references, draws)
        for run, outputs in enumerate(runs):
            assert found.scores[run] == pytest.approx(whole(outputs, references).score, abs=1e-9)
            for number in (0, 1, 500, 999):
                chosen = np.repeat(np.arange(len(ENGLISH)), draws[number].astype(int))
                drawn = [outputs[i] for i in chosen]
                sides = [[side[i] for i in chosen] for side in references]
                assert found.resampled[run, number] == pytest.approx(whole(drawn, sides).score, abs=1e-9)


def test_resampling_runs_gives_the_standard_error_of_their_mean() -> None:
    """Where sentences do not matter, the spread is the standard error of the mean over runs."""
    scores = np.array([50.0, 51.0, 54.0])
    runs = RunScores("BLEU", scores, np.repeat(scores[:, None], 20_000, axis=1))
    drawn = runs.bootstrap(np.random.default_rng(1))
    error = statistics.stdev(scores.tolist()) / 3**0.5
    assert (drawn.by_sentences == scores.mean()).all()
    assert drawn.by_runs.mean() == pytest.approx(0, abs=0.05)
    assert drawn.by_runs.std() == pytest.approx(error, rel=0.02)
    ((variance, known),) = drawn.seed_variances
    assert (variance, known) == pytest.approx((error**2, 2))
    one = RunScores("BLEU", scores[:1], np.arange(4.0)[None]).bootstrap(np.random.default_rng(1))
    assert (one.by_sentences.tolist(), one.by_runs.tolist(), one.seed_variances) == ([0, 1, 2, 3], [0] * 4, ())


def test_degrees_of_freedom_follow_welch() -> None:
    still, wide = np.zeros(9), np.array([-1.0, 1.0])

    def freedom(sentences: Any, *parts: tuple[float, int]) -> float:
        return BootstrapMean(sentences, np.zeros(len(sentences)), parts).degrees_of_freedom(501)

    assert freedom(still, (0.3, 4)) == pytest.approx(4)  # one system
    assert freedom(still, (0.3, 4), (0.3, 4)) == pytest.approx(8)  # two equal ones, as with a pooled variance
    assert freedom(still, (0.3, 1), (1e-9, 4)) == pytest.approx(1)
    assert freedom(wide) == pytest.approx(500)
    assert freedom(wide, (1e-9, 1)) == pytest.approx(500)
    # Welch's rule for samples of 4 and 8 with variances 2.5 and 6.4, computed by hand
    assert freedom(still, (2.5 / 4, 3), (6.4 / 8, 7)) == pytest.approx(2.030625 / (0.390625 / 3 + 0.64 / 7))
    assert freedom(still) == 500  # no spread at all


def test_widened_draws_follow_students_t() -> None:
    """Normal draws become Student's t: its quantiles are in any table."""
    rng = np.random.default_rng(1)
    drawn = BootstrapMean(np.zeros(200_000), rng.normal(7, 1, 200_000), ((1.0, 3),))
    moved = drawn.deviations(1_000, rng)
    assert np.quantile(moved, [0.95, 0.975]) == pytest.approx([2.353, 3.182], rel=0.03)
    many = BootstrapMean(rng.normal(7, 1, 200_000), np.zeros(200_000), ()).deviations(1_000, rng)
    assert np.quantile(many, [0.95, 0.975]) == pytest.approx([1.645, 1.960], rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("runs", "seeds", "least", "most"),
    [
        (2, 4.0, 0.03, 0.08),
        (3, 4.0, 0.035, 0.075),
        (5, 4.0, 0.035, 0.065),
        (3, 1.0, 0.035, 0.065),
        (3, 1 / 3, 0.035, 0.065),
    ],
)
def test_equal_systems_rarely_differ_significantly(runs: int, seeds: float, least: float, most: float) -> None:
    """Sentences and seeds add up, and seeds spread the difference `seeds` times as much: p < 0.05 in 5 of 100."""
    rng = np.random.default_rng(3)
    found = []
    for _ in range(1_500):  # few draws each: their noise averages out over the trials
        one, other = rng.normal(0, seeds * (runs / 2) ** 0.5, (2, runs)) + rng.normal(size=(2, 1)) / 2**0.5
        draws = rng.normal(0, 0.5**0.5, (2, 1, 400))
        first, second = (
            RunScores("BLEU", scores, scores[:, None] + each) for scores, each in zip((one, other), draws, strict=True)
        )
        moved = (second.bootstrap(rng) - first.bootstrap(rng)).deviations(400, rng)
        found.append(p_value(moved, float(other.mean() - one.mean())))
    assert least < np.mean(np.array(found) < 0.05) < most


@pytest.fixture
def few_trials(monkeypatch: pytest.MonkeyPatch) -> int:
    """The number of trials of randomization tests, a tenth of the usual one."""
    monkeypatch.setattr(metrics, "RANDOMIZATION_TRIALS", 1_000)
    return 1_000


@pytest.mark.slow
def test_single_runs_are_compared_as_in_sacrebleu(few_trials: int) -> None:
    few = ENGLISH[:20]
    systems = {"a": worse(0.2, 0, few), "b": worse(0.2, 1, few), "c": worse(0.4, 2, few)}
    found = compare_systems({name: [outputs] for name, outputs in systems.items()}, few)
    assert found == paired_test(systems, few)
    test = PairedTest(list(systems.items()), {"m": bleu_metric()}, [few], test_type="ar", n_samples=few_trials)
    _, reported = test()
    assert [each.p_value for each in found[0].systems] == [result.p_value for result in reported["BLEU"]]  # type: ignore[union-attr]


@pytest.mark.slow
@pytest.mark.usefixtures("few_trials")
def test_each_pair_of_systems_is_tested() -> None:
    one, other, many = [worse(0.2, 0)], [worse(0.3, 1)], [worse(0.3, seed) for seed in (2, 3, 4)]
    mixed = compare_systems({"one": one, "many": many, "other": other}, ENGLISH)
    alone = paired_test({"one": one[0], "other": other[0]}, ENGLISH)
    for comparison, single in zip(mixed, alone, strict=True):
        assert [each.test for each in comparison.systems] == [None, "bootstrap", "randomization"]
        assert (comparison.systems[0], comparison.systems[2]) == single.systems
        assert comparison.test == single.test
        found = comparison.systems[1]
        score: Any = (
            sacrebleu.corpus_bleu
            if comparison.metric == "BLEU"
            else lambda texts, sides: sacrebleu.corpus_chrf(texts, sides, word_order=2)
        )
        scores = [score(outputs, [ENGLISH]).score for outputs in many]
        assert found.runs == pytest.approx(scores)
        assert found.score.value == pytest.approx(statistics.mean(scores))
        assert found.deviation == pytest.approx(statistics.stdev(scores))
        assert found.score.low < min(scores) < max(scores) < found.score.high
        assert found.difference == pytest.approx(found.score.value - comparison.systems[0].score.value)
        assert "nrefs:1|bs:1000|seed:12345|" in found.score.signature  # for one run or several, draws were made
        assert {each.score.signature for each in comparison.systems} == {found.score.signature}
    turned = compare_systems({"many": many, "one": one}, ENGLISH)
    for comparison, single in zip(turned, alone, strict=True):
        assert [each.test for each in comparison.systems] == [None, "bootstrap"]
        assert comparison.systems[1].score == single.systems[0].score
        assert comparison.test == ""


@pytest.mark.slow
def test_significant_and_insignificant_differences() -> None:
    base = [worse(0.2, seed) for seed in (0, 1, 2)]
    alike, bad = [worse(0.2, seed) for seed in (3, 4, 5)], [worse(0.35, seed) for seed in (6, 7, 8)]
    found = compare_systems({"base": base, "alike": alike, "bad": bad, "same": list(base)}, ENGLISH)
    for comparison in found:
        first, near, far, same = comparison.systems
        assert first.p_value is None
        assert near.p_value is not None
        assert far.p_value is not None
        assert near.p_value > 0.05 > 0.01 > far.p_value > 0
        assert far.difference < -5
        assert (same.difference, same.p_value) == (0, 1.0)
    assert found == compare_systems({"base": base, "alike": alike, "bad": bad, "same": list(base)}, ENGLISH)


def test_all_systems_are_scored_on_the_same_draws() -> None:
    """Half of the sentences are hopeless, so each score is uncertain, but one system is always ahead."""

    def half(share: float, seed: int) -> list[str]:
        return [text if i % 2 else "x" for i, text in enumerate(worse(share, seed))]

    behind, ahead = ([half(share, seed) for seed in (0, 1, 2)] for share in (0.3, 0.2))
    for comparison in compare_systems({"behind": behind, "ahead": ahead}, ENGLISH):
        one, other = comparison.systems
        assert one.score.high > other.score.low + 2
        assert other.p_value is not None
        assert other.p_value < 0.01


@pytest.mark.slow
def test_lucky_seeds_are_not_significant() -> None:
    """By sentences only, the other system would be significantly better; but one of its runs is much worse."""
    base = [worse(0.3, seed) for seed in (0, 1, 2)]
    lucky = [worse(0.02, 3), worse(0.02, 4), worse(0.6, 5)]
    steady = [worse(0.12, seed) for seed in (3, 4, 5)]
    found = compare_systems({"base": base, "lucky": lucky, "steady": steady}, ENGLISH)
    for comparison in found:
        _, by_luck, by_skill = comparison.systems
        assert by_luck.difference > 0
        assert by_luck.p_value is not None
        assert by_luck.p_value > 0.1
        assert by_skill.p_value is not None
        assert by_skill.p_value < 0.01
        assert by_luck.score.high - by_luck.score.low > 2 * (by_skill.score.high - by_skill.score.low)
        assert 0 <= by_luck.score.low < by_luck.score.high <= 100


def test_the_resampling_seed_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    systems = {"a": [worse(0.2, 0), worse(0.2, 1)], "b": [worse(0.3, 2)]}
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    for comparison in compare_systems(systems, ENGLISH):
        assert {"|bs:1000|seed:7|" in each.score.signature for each in comparison.systems} == {True}


@pytest.mark.slow
@pytest.mark.usefixtures("few_trials")
def test_few_runs_give_no_significance() -> None:
    def compared(first: int, other: int) -> Any:
        groups = [
            group(name, *(worse(share, 10 * first + seed) for seed in range(count)))
            for name, share, count in (("a", 0.05, first), ("b", 0.6, other))
        ]
        return compare(groups, examples(), sentences=0)

    note = "There is no ✓, whatever p is, if one system has fewer than 3 runs and the other has several"
    for first, other, sure in ((1, 1, True), (1, 3, False), (2, 2, False), (2, 3, False), (3, 3, True)):
        result = compared(first, other)
        for comparison in result.comparisons:
            assert (comparison.systems[1].p_value or 1) < 0.05, (first, other)
            grid = metric_table(comparison)
            assert (grid.rows[1][-1], grid.verdicts[1]) == (("✓", "worse") if sure else ("", ""))
            assert grid.rows[1][-2].startswith("0.0")  # p is reported nevertheless
        reported = " ".join(significance_notes(result))
        assert (note in reported) is not sure
        assert ("Student's t" in reported) is (max(first, other) > 1)


def test_incomparable_systems_are_rejected() -> None:
    with pytest.raises(ValueError, match="1 system to compare"):
        compare_systems({"a": [ENGLISH]}, ENGLISH)
    with pytest.raises(ValueError, match="system 'b' has no outputs"):
        compare_systems({"a": [ENGLISH], "b": []}, ENGLISH)
    with pytest.raises(ValueError, match="system 'b': 59 outputs but 60 references"):
        compare_systems({"a": [ENGLISH], "b": [ENGLISH, ENGLISH[1:]]}, ENGLISH)


# Grouping runs into systems.


def system_run(name: str, seed: int | None) -> SystemRun:
    return SystemRun(SystemOutputs(System(name), []), None, seed)


def grouped_names(*runs: tuple[str | None, dict[str, Any] | None, SystemRun]) -> list[tuple[str, list[str]]]:
    return [(group.name, [run.name for run in group.runs]) for group in group_runs(runs)]


def test_runs_of_one_recipe_form_one_system() -> None:
    small, large = {"name": "small", "train": {"steps": 9}}, {"name": "large", "train": {"steps": 99}}
    runs = [
        (None, small, system_run("a", 0)),
        (None, large, system_run("b", 0)),
        (None, small, system_run("c", 1)),
        (None, None, system_run("x", None)),
    ]
    assert grouped_names(*runs) == [("small", ["a", "c"]), ("b", ["b"]), ("x", ["x"])]
    # A repeated seed makes another system, e.g. from another version of the program.
    again = [(None, small, system_run("d", 0)), (None, small, system_run("e", 1))]
    assert grouped_names(*runs[:3], *again) == [("a", ["a", "c"]), ("b", ["b"]), ("d", ["d", "e"])]
    # Labels come before recipes.
    labelled = [
        ("ours", small, system_run("a", 0)),
        ("ours", large, system_run("b", 0)),
        (None, small, system_run("c", 1)),
    ]
    assert grouped_names(*labelled) == [("ours", ["a", "b"]), ("c", ["c"])]
    # Otherwise runs are compared with each other.
    assert grouped_names((None, small, system_run("a", 0)), (None, small, system_run("c", 1))) == [
        ("a", ["a"]),
        ("c", ["c"]),
    ]
    assert grouped_names((None, None, system_run("x", None)), (None, None, system_run("y", None))) == [
        ("x", ["x"]),
        ("y", ["y"]),
    ]


def test_a_label_must_be_unique() -> None:
    small = {"name": "small", "train": {"steps": 9}}
    for runs in (
        [("x", None, system_run("a", None)), (None, None, system_run("x", None))],
        [("small", None, system_run("a", None)), (None, small, system_run("b", 0)), (None, small, system_run("c", 1))],
    ):
        with pytest.raises(ValueError, match=f"the name {runs[0][0]} is already taken by another system"):
            group_runs(runs)
    # Those without labels are named after their runs if their recipes share a name.
    other = {"name": "small", "train": {"steps": 10}}
    four = [
        (None, recipe, system_run(f"{name}{seed}", seed))
        for name, recipe in (("a", small), ("b", other))
        for seed in (0, 1)
    ]
    assert grouped_names(*four) == [("a0", ["a0", "a1"]), ("b0", ["b0", "b1"])]
    with pytest.raises(ValueError, match="the name a0 is already taken by another system"):
        group_runs([*four, ("a0", None, system_run("z", None))])


def test_recipes_are_compared_without_their_seed() -> None:
    about = {"recipe": {"name": "a", "train": {"seed": 1, "steps": 2}}}
    assert recipe_without_seed(about) == ({"name": "a", "train": {"steps": 2}}, 1)
    assert about["recipe"]["train"] == {"seed": 1, "steps": 2}
    odd: list[dict[str, Any]] = [{}, {"recipe": "a"}, {"recipe": {"train": 3}}, {"recipe": {"train": {"seed": "0"}}}]
    assert [recipe_without_seed(each) for each in odd] == [None] * len(odd)


# Training cost.


def log(folder: Path, *events: Any) -> Path:
    with MetricsLog(folder, 0) as writer:
        for event in events:
            writer(event)
    return folder


STARTED = Started(0, 100, "a", "translation", "out", "CPU, 1 thread, float32", 1_000, 10, 0, {})
STEPPED = Stepped(50, 0.5, 2.0, 1e-3, 1.0, 4_000, 100.0, 40.0, None)
ENDED = Ended(100, "steps", 100, 1.0, None, 8_000, 80.0, 1.5e9, 0)


def test_the_training_cost_is_reported(tmp_path: Path) -> None:
    whole = log(tmp_path / "whole", STARTED, STEPPED, ENDED)
    place = STARTED.place
    assert training_summary(whole, {}) == TrainingCost(place, 80.0, 8_000, 1.5e9, None)
    tuned = {"recipe": {"model": {"start": "SmolLM2"}}, "origin": "fine-tuned from SmolLM2"}
    assert training_summary(whole, tuned) == TrainingCost(place, 80.0, 8_000, 1.5e9, "SmolLM2")
    killed = log(tmp_path / "killed", STARTED, STEPPED, replace(STARTED, step=50, place="GPU"))
    assert training_summary(killed, {}) == TrainingCost(f"{place}; then GPU", 40.0, 4_000, None, None)
    (killed / METRICS_FILE).write_text("of another program\n")
    assert [training_summary(folder, {}) for folder in (killed, tmp_path, tmp_path / "none")] == [None] * 3


# Errors of each system.


def test_words_are_compared_with_the_reference() -> None:
    found = diff("A black dog, asleep.", ["One cat.", "The black dog sleeps."])
    assert [(piece.text, piece.mark) for piece in found] == [
        ("A", "wrong"), ("The", "missing"), ("black dog", "same"), (", asleep", "wrong"), ("sleeps", "missing"),
        (".", "same"),
    ]  # fmt: skip
    assert diff("The dog.", ["The dog."]) == (DiffSegment("The dog.", "same"),)
    assert diff("", ["The dog."]) == (DiffSegment("The dog.", "missing"),)
    assert diff("The dog.", [""]) == (DiffSegment("The dog.", "wrong"),)


@given(st.lists(st.sampled_from(CASES), max_size=9), st.lists(st.sampled_from(CASES), max_size=9))
def test_both_texts_can_be_restored_from_marks(ours: list[str], theirs: list[str]) -> None:
    output, reference = " ".join(ours), " ".join(theirs)
    found = diff(output, [reference])
    kept = {side: "".join(piece.text for piece in found if piece.mark != side) for side in ("missing", "wrong")}
    assert re.sub(r"\s", "", kept["missing"]) == output.replace(" ", "")
    assert re.sub(r"\s", "", kept["wrong"]) == reference.replace(" ", "")


# Tables.


@pytest.fixture(scope="module")
def result() -> ComparisonResult:
    took = TrainingCost("NVIDIA H200, bfloat16, compiled", 723.0, 41_200_000, 1.23e15)
    tuned = TrainingCost("CPU, 2 threads, float32", 61.0, 1_200_000, 4.5e12, "SmolLM2-135M")
    groups = [
        group("encoder–decoder", *(worse(0.1, seed) for seed in (0, 1, 2)), training=took),
        group("[red]tuned[/]", *(worse(0.3, seed) for seed in (3, 4)), training=tuned),
        group("theirs|x", ["<b>*a* | b</b> [x](y)", "", *ENGLISH[2:]]),
    ]
    return compare(groups, examples(), sentences=4)


@pytest.mark.slow
def test_means_over_runs(result: ComparisonResult) -> None:
    runs = [
        SystemRun(
            SystemOutputs(System("a", 7, "cpu", speed=Speed(2.0, 30.0, "sentences")), ENGLISH),
            TrainingCost("x", 1, 10, 4.0),
        ),
        SystemRun(
            SystemOutputs(System("b", 7, "cpu", speed=Speed(4.0, 10.0, "sentences")), ENGLISH),
            TrainingCost("y", 3, 20, None),
        ),
    ]
    found = compare([ComparedSystem("g", tuple(runs)), group("other", FRENCH)], examples()).systems[0]
    assert (found.parameters, found.device, found.speed) == (7, "cpu", Speed(3.0, 20.0, "sentences"))
    assert found.training == TrainingCost("x; y", 2.0, 15.0, None)
    assert [run.system.name for run in found.runs] == ["a", "b"]
    assert result.systems[2].training is None
    assert json.loads(json.dumps(to_json_value(result)))["systems"][0]["runs"][2]["seed"] == 2


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.slow
def test_the_terminal_table(result: ComparisonResult, width: int) -> None:
    text = shown(show_comparison, result, width)
    words = " ".join(text.split())
    assert "encoder–decoder 12m03s 41.2 M 1.2 × 10¹⁵" in words
    assert "[red]tuned[/] * 1m01s 1.2 M 4.5 × 10¹²" in words
    assert "theirs|x – – –" in words
    assert "* [red]tuned[/]: fine-tuning only; the training of SmolLM2-135M is not counted." in words
    assert "two runs say little about other seeds, one says nothing" in words
    assert "widened by Student's t for few runs (Welch's degrees of freedom)" in words
    assert re.findall(r"(BLEU|chrF2\+\+): nrefs:1\|bs:1000\|seed:12345\|", words) == ["BLEU", "chrF2++"]
    assert "for a system with one run, the effect of another seed is unknown" in words.lower()
    assert "hierarchical bootstrap: 1,000 resamples" in words
    assert "approximate randomization" not in words
    assert "[-not in the reference-], {+missing+}" in words
    first = result.comparisons[0].systems
    assert f"encoder–decoder-2 2 {first[0].runs[2]:.1f}" in words
    assert f"{first[0].score.value:.1f} {first[0].deviation:.2f} {first[0].score.low:.1f} – " in words
    assert "(empty)" in text
    lines = [line for line in text.splitlines() if "nrefs:" not in line]
    assert max(map(len, lines)) <= width
    assert text.count("[-") == text.count("-]") > 1
    assert text.count("{+") == text.count("+}") > 1


def rendered(markdown: str) -> str:
    return str(MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(markdown))


def cells(html: str) -> list[str]:
    return re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", html)


def test_the_markdown_report(result: ComparisonResult) -> None:
    html = rendered(comparison_markdown(result))
    assert "<b>" not in html  # no output is interpreted as markup
    assert "<a " not in html
    assert "<em>a</em>" not in html
    found = cells(html)
    assert "[red]tuned[/] *" in found
    assert found.count("theirs|x") == 4 + len(result.differing)
    assert "1.2 × 10¹⁵" in found
    for table in re.findall(r"<table>(.*?)</table>", html, re.S):
        widths = {len(cells(row)) for row in re.findall(r"<tr>(.*?)</tr>", table, re.S)}
        assert len(widths) == 1
    for comparison in result.comparisons:
        assert f"<code>{comparison.systems[0].score.signature}</code>" in html
        assert f"<strong>{comparison.systems[0].score.value:.1f}</strong>" in found
    assert "deviate from the difference of the means by at least that difference." in html  # nothing is truncated
    assert html.count("<li>BLEU: <code>") == html.count("<li>chrF2++: <code>") == 1


GFM_ADDRESS = re.compile(r"[A-Za-z0-9.+_-]+@[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)+")
GFM_NAME = re.compile(r"(?<!\w)@[A-Za-z0-9]")


@pytest.mark.slow
@pytest.mark.usefixtures("few_trials")
def test_no_output_becomes_a_link_on_github() -> None:
    """GitHub's Markdown links text that starts with www. or a protocol, and e-mail addresses in the remaining text."""
    texts = [
        "See www.evil.com now",
        "(www.evil.com) WWW.evil.com",
        "a.b+c@b.c",
        "mailto:x@y.org",
        "@someone http://e.org",
    ]
    systems = [group("a@b.c", texts), group("www.x.org", [f"{text} and" for text in texts])]
    page = comparison_markdown(compare(systems, examples(texts, texts)))
    assert not re.search(r"(?i)(?<![\w`])www\.|\w://", page)
    pieces = [unescape(each) for each in re.split(r"<[^>]*>", rendered(page))]
    assert not [each for each in pieces if GFM_ADDRESS.search(each) or GFM_NAME.search(each)]
    read = unescape(re.sub(r"<[^>]*>", "", rendered(page)))
    for text in [*texts, "a@b.c", "www.x.org"]:  # and all of it can still be read
        assert text in read


@given(st.lists(st.sampled_from(CASES), max_size=8), st.lists(st.sampled_from(CASES), min_size=1, max_size=8))
def test_marks_in_markdown_are_rendered(ours: list[str], theirs: list[str]) -> None:
    """For any words, a Markdown reader strikes out what is wrong and emphasises what is missing."""
    output, reference = " ".join(ours), " ".join(theirs)
    wrong = diff(output, [reference])
    apart = DifferingSentence(1, "s", (reference,), (output,), (1.0,), (wrong,))
    html = rendered(_sentence_markdown(apart, ["a"]))
    cell = cells(html)[-1]
    if not output:
        assert cell == "<em>(empty)</em>"
        return
    for mark, tag in (("wrong", "s"), ("missing", "strong")):
        marked = re.findall(rf"<{tag}>(.*?)</{tag}>", cell)
        plain_text = [each.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&") for each in marked]
        assert plain_text == [piece.text for piece in wrong if piece.mark == mark]


@pytest.mark.slow
@pytest.mark.usefixtures("few_trials")
def test_without_groups_the_table_is_unchanged() -> None:
    text = shown(show_comparison, compare([group("a", worse(0.1, 0)), group("b", worse(0.3, 1))], examples()))
    words = " ".join(text.split())
    for absent in ("runs", "training", "bootstrap", "±"):
        assert absent not in words
    assert "by approximate randomization (10,000 trials)" in words


# The command.

TINY = {
    "data.petit": 300,
    "tokenizer.vocab_size": 400,
    "model.d_model": 32,
    "model.heads": 2,
    "model.layers": 1,
    "model.d_ff": 32,
    "train.steps": 3,
    "train.warmup": 2,
    "train.validate_every": 3,
    "train.validation_sentences": 2,
    "train.batch_tokens": 500,
    "decode.beam": 1,
    "decode.max_tokens": 8,
}


def trained(recipe: str, out: Path, seed: int) -> str:
    settings = [part for key, value in TINY.items() for part in ("--set", f"{key}={value}")]
    done = command("train", recipe, "--out", str(out), *settings, "--set", f"train.seed={seed}")
    assert done.exit_code == 0, done.output
    return str(out)


@pytest.mark.slow
@pytest.mark.usefixtures("without_type_checks")
def test_two_recipes_with_two_seeds_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(corpus_files, "HELD_OUT", 12)
    runs = [trained("petit-fr-en", tmp_path / f"pair-{seed}", seed) for seed in (0, 1)]
    runs += [trained("petit-fr-en-decoder", tmp_path / f"decoder-{seed}", seed) for seed in (0, 1)]
    sides = ("--source", write(tmp_path, "a.fr", FRENCH[:12]), "--reference", write(tmp_path, "a.en", ENGLISH[:12]))
    out, report, outputs = tmp_path / "out.json", tmp_path / "report.md", tmp_path / "outputs"
    files = ("--out", str(out), "--report", str(report), "--outputs", str(outputs))
    done = command("compare", *runs, *sides, *files, "--beam", "1", "--sentences", "3")
    assert done.exit_code == 0, done.output
    reported = json.loads(out.read_text())
    assert [system["name"] for system in reported["systems"]] == ["petit-fr-en", "petit-fr-en-decoder"]
    for i, system in enumerate(reported["systems"]):
        kept = [Path(run) for run in runs[2 * i : 2 * i + 2]]
        assert [run["system"]["name"] for run in system["runs"]] == [folder.name for folder in kept]
        assert [run["seed"] for run in system["runs"]] == [0, 1]
        ends = [json.loads((folder / METRICS_FILE).read_text().splitlines()[-1]) for folder in kept]
        for name in ("seconds", "tokens", "flops"):
            assert system["training"][name] == pytest.approx(statistics.mean(end[name] for end in ends))
        written = [(outputs / f"{folder.name}.txt").read_text().split("\n")[:-1] for folder in kept]
        scores = [sacrebleu.corpus_bleu(each, [ENGLISH[:12]]).score for each in written]
        assert reported["comparisons"][0]["systems"][i]["runs"] == pytest.approx(scores)
        assert f"{system['name']}  " in done.stdout
    assert report.read_text().startswith("# Comparison of translators\n")
    assert "- Translated on cpu in float32 with beam 1.\n" in report.read_text()
    # With labels, and outputs as systems: the figures are the same.
    labels = [f"first={runs[0]},{runs[1]}", f"second={outputs}/decoder-0.txt,{outputs}/decoder-1.txt"]
    again = command("compare", *labels, *sides, "--out", str(out), "--beam", "1")
    assert again.exit_code == 0, again.output
    labelled = json.loads(out.read_text())
    assert [system["name"] for system in labelled["systems"]] == ["first", "second"]
    for ours, theirs in zip(labelled["comparisons"], reported["comparisons"], strict=True):
        assert [(each["runs"], each["p_value"]) for each in ours["systems"]] == [
            (each["runs"], each["p_value"]) for each in theirs["systems"]
        ]
    assert labelled["systems"][1]["training"] is None


@pytest.mark.slow
@pytest.mark.usefixtures("without_type_checks", "few_trials")
def test_user_errors_are_reported_before_the_work_starts(tmp_path: Path) -> None:
    a, b = write(tmp_path, "a.en", ENGLISH), write(tmp_path, "b.en", worse(0.2, 0))
    sides = ("--source", write(tmp_path, "a.fr", FRENCH), "--reference", a)
    assert "name at least two" in refused("compare", f"x={a},{b}", *sides)
    assert f"{a} was given twice" in refused("compare", f"x={a},{a}", b, *sides)
    assert "write a system of several runs as NAME=A,B,C" in refused("compare", f"x={a},", b, *sides)
    assert "write a system of several runs as NAME=A,B,C" in refused("compare", f"={a}", b, *sides)
    assert "no model at nowhere" in refused("compare", "x=nowhere", b, *sides)
    assert "the name b.en is already taken by another system" in refused("compare", f"b.en={a}", b, *sides)
    assert "is not empty" in refused("compare", a, b, *sides, "--outputs", str(tmp_path))
    assert "does not exist" in refused("compare", a, b, *sides, "--report", f"{tmp_path}/none/x.md")
    odd = write(tmp_path, "c=d,e.en", ENGLISH)  # an existing file is a file, whatever its name
    out = tmp_path / "out.json"
    done = command("compare", b, odd, *sides, "--out", str(out), "--outputs", f"{tmp_path}/outputs")
    assert done.exit_code == 0, done.output
    assert [system["name"] for system in json.loads(out.read_text())["systems"]] == ["b.en", "c=d,e.en"]
    assert sorted(path.name for path in (tmp_path / "outputs").iterdir()) == ["b.en.txt", "c-d-e.en.txt"]
