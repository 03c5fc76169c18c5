"""Systems of several runs beside each other: resampling held against sacreBLEU on texts that were really resampled."""

import json
import re
import statistics
from dataclasses import replace
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

from regard.evaluate.comparison import (
    Apart,
    ComparisonResult,
    Group,
    Piece,
    Run,
    Training,
    compare,
    in_groups,
    mistakes,
)
from regard.evaluate.groups import Runs, draw_sentences, paired_groups, score_runs
from regard.evaluate.report import plain
from regard.evaluate.run import Speed, System, Translated
from regard.evaluate.scores import bleu_metric, chrf_metric, paired
from regard.evaluate.sets import Examples
from regard.text.petit import pairs
from regard.train.events import Ended, Started, Stepped
from regard.train.facts import seed_apart, training_facts
from regard.train.log import METRICS, Log
from regard.view.comparison import _apart_markdown, comparison_markdown, show_comparison
from tests.test_evaluate import command, refused, shown, write

PETIT = list(pairs(60, seed=5))
FRENCH, ENGLISH = [pair.french for pair in PETIT], [pair.english for pair in PETIT]
CASES = [*("dog", "cat", "a_b", "1.5", "é", "猫", "[x]", "*y*", "<b>", "~~z~~", "`q`", "$1"), *"|&#!\\:,.;()“”*_~-"]


def worse(share: float, seed: int, texts: list[str] = ENGLISH) -> list[str]:
    """A run: the references without some of their words."""
    random = Random(seed)
    return [" ".join(word for word in text.split() if random.random() > share) for text in texts]


def examples(sources: list[str] = FRENCH, *references: list[str]) -> Examples:
    beside = list(references) or [ENGLISH]
    return Examples(("a.fr", "a.en"), sources, beside, list(range(1, len(sources) + 1)), len(sources))


def group(name: str, *runs: list[str], training: Training | None = None) -> Group:
    several = len(runs) > 1
    made = [
        Run(Translated(System(f"{name}-{i}" if several else name), outputs), training, i if several else None)
        for i, outputs in enumerate(runs)
    ]
    return Group(name, tuple(made))


# Resampling.


@pytest.mark.parametrize("several", [False, True])
def test_draws_are_scored_as_sacrebleu_scores_the_drawn_texts(several: bool) -> None:
    references = [ENGLISH, worse(0.1, 99)] if several else [ENGLISH]
    runs = [worse(0.2, 0), worse(0.3, 1)]
    draws = draw_sentences(len(ENGLISH))
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


def test_runs_are_drawn_with_the_spread_of_their_mean() -> None:
    """Where sentences do not matter, what is left is the standard error of the mean over runs."""
    scores = np.array([50.0, 51.0, 54.0])
    runs = Runs("BLEU", scores, np.repeat(scores[:, None], 20_000, axis=1))
    drawn = runs.drawn(np.random.default_rng(1))
    assert drawn.mean() == pytest.approx(scores.mean(), abs=0.05)
    assert drawn.std() == pytest.approx(statistics.stdev(scores.tolist()) / 3**0.5, rel=0.02)
    one = Runs("BLEU", scores[:1], np.arange(4.0)[None])
    assert one.drawn(np.random.default_rng(1)).tolist() == [0, 1, 2, 3]


def test_systems_of_one_run_are_compared_as_sacrebleu_does() -> None:
    systems = {"a": worse(0.2, 0), "b": worse(0.2, 1), "c": worse(0.4, 2)}
    found = paired_groups({name: [outputs] for name, outputs in systems.items()}, ENGLISH)
    assert found == paired(systems, ENGLISH)
    test = PairedTest(list(systems.items()), {"m": bleu_metric()}, [ENGLISH], test_type="ar", n_samples=10_000)
    _, told = test()
    assert [each.p_value for each in found[0].systems] == [result.p_value for result in told["BLEU"]]  # type: ignore[union-attr]


def test_each_pair_has_its_test() -> None:
    one, other, many = [worse(0.2, 0)], [worse(0.3, 1)], [worse(0.3, seed) for seed in (2, 3, 4)]
    mixed = paired_groups({"one": one, "many": many, "other": other}, ENGLISH)
    alone = paired({"one": one[0], "other": other[0]}, ENGLISH)
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
        assert found.score.score == pytest.approx(statistics.mean(scores))
        assert found.deviation == pytest.approx(statistics.stdev(scores))
        assert found.score.low < min(scores) < max(scores) < found.score.high
        assert found.difference == pytest.approx(found.score.score - comparison.systems[0].score.score)
        assert "bs:" not in found.score.signature  # sacreBLEU resampled nothing
        assert "nrefs:1" in found.score.signature
    turned = paired_groups({"many": many, "one": one}, ENGLISH)
    for comparison, single in zip(turned, alone, strict=True):
        assert [each.test for each in comparison.systems] == [None, "bootstrap"]
        assert comparison.systems[1].score == single.systems[0].score
        assert comparison.test == ""


def test_what_is_significant_and_what_is_not() -> None:
    base = [worse(0.2, seed) for seed in (0, 1, 2)]
    alike, bad = [worse(0.2, seed) for seed in (3, 4, 5)], [worse(0.35, seed) for seed in (6, 7, 8)]
    found = paired_groups({"base": base, "alike": alike, "bad": bad, "same": list(base)}, ENGLISH)
    for comparison in found:
        first, near, far, same = comparison.systems
        assert first.p_value is None
        assert near.p_value is not None
        assert far.p_value is not None
        assert near.p_value > 0.05 > 0.01 > far.p_value > 0
        assert far.difference < -5
        assert (same.difference, same.p_value) == (0, 1.0)
    assert found == paired_groups({"base": base, "alike": alike, "bad": bad, "same": list(base)}, ENGLISH)


def test_all_are_scored_on_the_same_draws() -> None:
    """Half of the sentences are hopeless, so that each score by itself is uncertain, but one system is always ahead."""

    def half(share: float, seed: int) -> list[str]:
        return [text if i % 2 else "x" for i, text in enumerate(worse(share, seed))]

    behind, ahead = ([half(share, seed) for seed in (0, 1, 2)] for share in (0.3, 0.2))  # with all words of the other
    for comparison in paired_groups({"behind": behind, "ahead": ahead}, ENGLISH):
        one, other = comparison.systems
        assert one.score.high > other.score.low + 2
        assert other.p_value is not None
        assert other.p_value < 0.01


def test_luck_with_seeds_is_not_taken_for_a_better_system() -> None:
    """On its sentences alone the other system would be better for sure; one of its runs is much worse, though."""
    base = [worse(0.3, seed) for seed in (0, 1, 2)]
    lucky = [worse(0.02, 3), worse(0.02, 4), worse(0.6, 5)]
    steady = [worse(0.2, seed) for seed in (3, 4, 5)]
    found = paired_groups({"base": base, "lucky": lucky, "steady": steady}, ENGLISH)
    for comparison in found:
        _, by_luck, by_skill = comparison.systems
        assert by_luck.difference > 0
        assert by_luck.p_value is not None
        assert by_luck.p_value > 0.1
        assert by_skill.p_value is not None
        assert by_skill.p_value < 0.01
        assert by_luck.score.high - by_luck.score.low > 2 * (by_skill.score.high - by_skill.score.low)
        assert 0 <= by_luck.score.low < by_luck.score.high <= 100


def test_what_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="1 system to compare"):
        paired_groups({"a": [ENGLISH]}, ENGLISH)
    with pytest.raises(ValueError, match="system 'b' has no outputs"):
        paired_groups({"a": [ENGLISH], "b": []}, ENGLISH)
    with pytest.raises(ValueError, match="system 'b': 59 outputs but 60 references"):
        paired_groups({"a": [ENGLISH], "b": [ENGLISH, ENGLISH[1:]]}, ENGLISH)


# Which runs are one system.


def of(name: str, seed: int | None) -> Run:
    return Run(Translated(System(name), []), None, seed)


def told(*runs: tuple[str | None, dict[str, Any] | None, Run]) -> list[tuple[str, list[str]]]:
    return [(group.name, [run.name for run in group.runs]) for group in in_groups(runs)]


def test_runs_of_one_recipe_are_one_system() -> None:
    small, large = {"name": "small", "train": {"steps": 9}}, {"name": "large", "train": {"steps": 99}}
    runs = [
        (None, small, of("a", 0)),
        (None, large, of("b", 0)),
        (None, small, of("c", 1)),
        (None, None, of("x", None)),
    ]
    assert told(*runs) == [("small", ["a", "c"]), ("b", ["b"]), ("x", ["x"])]
    # A seed that is there already is another system, as of another version of the program.
    again = [(None, small, of("d", 0)), (None, small, of("e", 1))]
    assert told(*runs[:3], *again) == [("a", ["a", "c"]), ("b", ["b"]), ("d", ["d", "e"])]
    # Labels come before recipes.
    labelled = [("ours", small, of("a", 0)), ("ours", large, of("b", 0)), (None, small, of("c", 1))]
    assert told(*labelled) == [("ours", ["a", "b"]), ("c", ["c"])]
    # If there is nothing else, runs are compared with each other.
    assert told((None, small, of("a", 0)), (None, small, of("c", 1))) == [("a", ["a"]), ("c", ["c"])]
    assert told((None, None, of("x", None)), (None, None, of("y", None))) == [("x", ["x"]), ("y", ["y"])]


def test_a_recipe_without_its_seed() -> None:
    about = {"recipe": {"name": "a", "train": {"seed": 1, "steps": 2}}}
    assert seed_apart(about) == ({"name": "a", "train": {"steps": 2}}, 1)
    assert about["recipe"]["train"] == {"seed": 1, "steps": 2}
    odd: list[dict[str, Any]] = [{}, {"recipe": "a"}, {"recipe": {"train": 3}}, {"recipe": {"train": {"seed": "0"}}}]
    assert [seed_apart(each) for each in odd] == [None] * len(odd)


# What a training took.


def log(folder: Path, *events: Any) -> Path:
    with Log(folder, 0) as writer:
        for event in events:
            writer(event)
    return folder


STARTED = Started(0, 100, "a", "translation", "out", "CPU, 1 thread, float32", 1_000, 10, 0, {})
STEPPED = Stepped(50, 0.5, 2.0, 1e-3, 1.0, 4_000, 100.0, 40.0, None)
ENDED = Ended(100, "steps", 100, 1.0, None, 8_000, 80.0, 1.5e9, 0)


def test_what_a_training_took(tmp_path: Path) -> None:
    whole = log(tmp_path / "whole", STARTED, STEPPED, ENDED)
    place = STARTED.place
    assert training_facts(whole, {}) == Training(place, 80.0, 8_000, 1.5e9, None)
    tuned = {"recipe": {"model": {"start": "SmolLM2"}}, "origin": "trained further from SmolLM2"}
    assert training_facts(whole, tuned) == Training(place, 80.0, 8_000, 1.5e9, "SmolLM2")
    killed = log(tmp_path / "killed", STARTED, STEPPED, replace(STARTED, step=50, place="GPU"))
    assert training_facts(killed, {}) == Training(f"{place}; then GPU", 40.0, 4_000, None, None)
    (killed / METRICS).write_text("of another program\n")
    assert [training_facts(folder, {}) for folder in (killed, tmp_path, tmp_path / "none")] == [None] * 3


# What each got wrong.


def test_words_against_the_reference() -> None:
    found = mistakes("A black dog, asleep.", ["One cat.", "The black dog sleeps."])
    assert [(piece.text, piece.mark) for piece in found] == [
        ("A", "wrong"), ("The", "missing"), ("black dog", "same"), (", asleep", "wrong"), ("sleeps", "missing"),
        (".", "same"),
    ]  # fmt: skip
    assert mistakes("The dog.", ["The dog."]) == (Piece("The dog.", "same"),)
    assert mistakes("", ["The dog."]) == (Piece("The dog.", "missing"),)
    assert mistakes("The dog.", [""]) == (Piece("The dog.", "wrong"),)


@given(st.lists(st.sampled_from(CASES), max_size=9), st.lists(st.sampled_from(CASES), max_size=9))
def test_marks_give_back_both_texts(ours: list[str], theirs: list[str]) -> None:
    output, reference = " ".join(ours), " ".join(theirs)
    found = mistakes(output, [reference])
    kept = {side: "".join(piece.text for piece in found if piece.mark != side) for side in ("missing", "wrong")}
    assert re.sub(r"\s", "", kept["missing"]) == output.replace(" ", "")
    assert re.sub(r"\s", "", kept["wrong"]) == reference.replace(" ", "")


# Tables.


@pytest.fixture(scope="module")
def result() -> ComparisonResult:
    took = Training("NVIDIA H200, bfloat16, compiled", 723.0, 41_200_000, 1.23e15)
    tuned = Training("CPU, 2 threads, float32", 61.0, 1_200_000, 4.5e12, "SmolLM2-135M")
    groups = [
        group("encoder–decoder", *(worse(0.1, seed) for seed in (0, 1, 2)), training=took),
        group("[red]tuned[/]", *(worse(0.3, seed) for seed in (3, 4)), training=tuned),
        group("theirs|x", ["<b>*a* | b</b> [x](y)", "", *ENGLISH[2:]]),
    ]
    return compare(groups, examples(), sentences=4)


def test_means_over_runs(result: ComparisonResult) -> None:
    runs = [
        Run(Translated(System("a", 7, "cpu", speed=Speed(2.0, 30.0, "sentences")), ENGLISH), Training("x", 1, 10, 4.0)),
        Run(
            Translated(System("b", 7, "cpu", speed=Speed(4.0, 10.0, "sentences")), ENGLISH), Training("y", 3, 20, None)
        ),
    ]
    found = compare([Group("g", tuple(runs)), group("other", FRENCH)], examples()).systems[0]
    assert (found.parameters, found.device, found.speed) == (7, "cpu", Speed(3.0, 20.0, "sentences"))
    assert found.training == Training("x; y", 2.0, 15.0, None)
    assert [run.system.name for run in found.runs] == ["a", "b"]
    assert result.systems[2].training is None
    assert json.loads(json.dumps(plain(result)))["systems"][0]["runs"][2]["seed"] == 2


@pytest.mark.parametrize("width", [80, 120])
def test_a_terminal(result: ComparisonResult, width: int) -> None:
    text = shown(show_comparison, result, width)
    words = " ".join(text.split())
    assert "encoder–decoder 12m03s 41.2 M 1.2 × 10¹⁵" in words
    assert "[red]tuned[/] * 1m01s 1.2 M 4.5 × 10¹²" in words
    assert "theirs|x – – –" in words
    assert "* [red]tuned[/]: fine-tuning alone; what it started from (SmolLM2-135M) is not counted." in words
    assert "Two runs tell little of other seeds" in words
    assert "of a system with one run it is not known" in words.lower()
    assert "hierarchical bootstrap: 1,000 draws" in words
    assert "approximate randomization" not in words
    assert "[-not in the reference-], {+missing+}" in words
    first = result.comparisons[0].systems
    assert f"encoder–decoder-2 2 {first[0].runs[2]:.1f}" in words
    assert f"{first[0].score.score:.1f} {first[0].deviation:.2f} {first[0].score.low:.1f} – " in words
    assert "(nothing)" in text
    lines = [line for line in text.splitlines() if "nrefs:" not in line]
    assert max(map(len, lines)) <= width
    assert text.count("[-") == text.count("-]") > 1
    assert text.count("{+") == text.count("+}") > 1


def rendered(markdown: str) -> str:
    return str(MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(markdown))


def cells(html: str) -> list[str]:
    return re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", html)


def test_a_report(result: ComparisonResult) -> None:
    html = rendered(comparison_markdown(result))
    assert "<b>" not in html  # nothing of what was said is markup
    assert "<a " not in html
    assert "<em>a</em>" not in html
    found = cells(html)
    assert "[red]tuned[/] *" in found
    assert found.count("theirs|x") == 4 + len(result.apart)
    assert "1.2 × 10¹⁵" in found
    for table in re.findall(r"<table>(.*?)</table>", html, re.S):
        widths = {len(cells(row)) for row in re.findall(r"<tr>(.*?)</tr>", table, re.S)}
        assert len(widths) == 1
    for comparison in result.comparisons:
        assert f"<code>{comparison.systems[0].score.signature}</code>" in html
        assert f"<strong>{comparison.systems[0].score.score:.1f}</strong>" in found
    assert "move the difference of the means as far as it is from 0." in html  # nothing is cut


@given(st.lists(st.sampled_from(CASES), max_size=8), st.lists(st.sampled_from(CASES), min_size=1, max_size=8))
def test_marks_in_markdown_are_read_as_such(ours: list[str], theirs: list[str]) -> None:
    """Whatever words there are, a reader of Markdown strikes out what is wrong and stresses what is missing."""
    output, reference = " ".join(ours), " ".join(theirs)
    wrong = mistakes(output, [reference])
    apart = Apart(1, "s", (reference,), (output,), (1.0,), (wrong,))
    html = rendered(_apart_markdown(apart, ["a"]))
    cell = cells(html)[-1]
    if not output:
        assert cell == "<em>(nothing)</em>"
        return
    for mark, tag in (("wrong", "s"), ("missing", "strong")):
        marked = re.findall(rf"<{tag}>(.*?)</{tag}>", cell)
        plain_text = [each.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&") for each in marked]
        assert plain_text == [piece.text for piece in wrong if piece.mark == mark]


def test_without_groups_it_is_as_it_was() -> None:
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
}


def trained(recipe: str, out: Path, seed: int) -> str:
    settings = [part for key, value in TINY.items() for part in ("--set", f"{key}={value}")]
    done = command("train", recipe, "--out", str(out), *settings, "--set", f"train.seed={seed}")
    assert done.exit_code == 0, done.output
    return str(out)


@pytest.mark.slow
@pytest.mark.usefixtures("as_users_run_it")
def test_two_recipes_with_two_seeds_each(tmp_path: Path) -> None:
    runs = [trained("petit-fr-en", tmp_path / f"pair-{seed}", seed) for seed in (0, 1)]
    runs += [trained("petit-fr-en-decoder", tmp_path / f"decoder-{seed}", seed) for seed in (0, 1)]
    sides = ("--source", write(tmp_path, "a.fr", FRENCH[:12]), "--reference", write(tmp_path, "a.en", ENGLISH[:12]))
    out, report, outputs = tmp_path / "out.json", tmp_path / "report.md", tmp_path / "outputs"
    files = ("--out", str(out), "--report", str(report), "--outputs", str(outputs))
    done = command("compare", *runs, *sides, *files, "--beam", "1", "--sentences", "3")
    assert done.exit_code == 0, done.output
    told = json.loads(out.read_text())
    assert [system["name"] for system in told["systems"]] == ["petit-fr-en", "petit-fr-en-decoder"]
    for i, system in enumerate(told["systems"]):
        kept = [Path(run) for run in runs[2 * i : 2 * i + 2]]
        assert [run["system"]["name"] for run in system["runs"]] == [folder.name for folder in kept]
        assert [run["seed"] for run in system["runs"]] == [0, 1]
        ends = [json.loads((folder / METRICS).read_text().splitlines()[-1]) for folder in kept]
        for name in ("seconds", "tokens", "flops"):
            assert system["training"][name] == pytest.approx(statistics.mean(end[name] for end in ends))
        written = [(outputs / f"{folder.name}.txt").read_text().split("\n")[:-1] for folder in kept]
        scores = [sacrebleu.corpus_bleu(each, [ENGLISH[:12]]).score for each in written]
        assert told["comparisons"][0]["systems"][i]["runs"] == pytest.approx(scores)
        assert f"{system['name']}  " in done.stdout
    assert report.read_text().startswith("# Translators side by side\n")
    assert "- Translated on cpu in float32, with a beam of 1.\n" in report.read_text()
    # By their labels, with what they wrote as a system: the figures are the same.
    labels = [f"first={runs[0]},{runs[1]}", f"second={outputs}/decoder-0.txt,{outputs}/decoder-1.txt"]
    again = command("compare", *labels, *sides, "--out", str(out), "--beam", "1")
    assert again.exit_code == 0, again.output
    labelled = json.loads(out.read_text())
    assert [system["name"] for system in labelled["systems"]] == ["first", "second"]
    for ours, theirs in zip(labelled["comparisons"], told["comparisons"], strict=True):
        assert [(each["runs"], each["p_value"]) for each in ours["systems"]] == [
            (each["runs"], each["p_value"]) for each in theirs["systems"]
        ]
    assert labelled["systems"][1]["training"] is None


@pytest.mark.usefixtures("as_users_run_it")
def test_mistakes_are_told_before_the_work(tmp_path: Path) -> None:
    a, b = write(tmp_path, "a.en", ENGLISH), write(tmp_path, "b.en", worse(0.2, 0))
    sides = ("--source", write(tmp_path, "a.fr", FRENCH), "--reference", a)
    assert "name at least two systems" in refused("compare", f"x={a},{b}", *sides)
    assert f"{a} is there twice" in refused("compare", f"x={a},{a}", b, *sides)
    assert "is written NAME=A,B,C" in refused("compare", f"x={a},", b, *sides)
    assert "is written NAME=A,B,C" in refused("compare", f"={a}", b, *sides)
    assert "there is no model at nowhere" in refused("compare", "x=nowhere", b, *sides)
    assert "is there already: name a new folder" in refused("compare", a, b, *sides, "--outputs", str(tmp_path))
    assert "lies in no folder" in refused("compare", a, b, *sides, "--report", f"{tmp_path}/none/x.md")
    odd = write(tmp_path, "c=d,e.en", ENGLISH)  # a file is a file, whatever its name
    out = tmp_path / "out.json"
    done = command("compare", b, odd, *sides, "--out", str(out), "--outputs", f"{tmp_path}/outputs")
    assert done.exit_code == 0, done.output
    assert [system["name"] for system in json.loads(out.read_text())["systems"]] == ["b.en", "c=d,e.en"]
    assert sorted(path.name for path in (tmp_path / "outputs").iterdir()) == ["b.en.txt", "c-d-e.en.txt"]
