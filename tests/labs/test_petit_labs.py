"""Labs that ask translators of Petit: alignment, heads that are silenced, label smoothing, Table 3 in small."""

import math
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from regard.decoding.text_model import Model
from regard.evaluation.alignment import Attended, piece_words
from regard.evaluation.evaluate import cross_attention
from regard.evaluation.metrics import bleu
from regard.evaluation.petit_scores import petit_score
from regard.interop.load import load
from regard.labs import ablation, align, prune, smoothing
from regard.labs import petit_translators as translators
from regard.labs.lab import Result, lab
from regard.labs.petit_translators import Foretold, Translated, foretold, one_by_one, sentences, trained
from regard.petit import Pair, pairs
from regard.petit import corpus_files as files
from regard.training.recipe import Recipe
from regard.training.recipe_files import read_recipe
from tests.support import lab_runs as labs
from tests.support.lab_runs import check_whole, failing

HELD_OUT, MADE = 20, 40
SMALL = {
    "align": ["sentences=40"],
    "prune": ["sentences=40", "shown=5"],
    "smoothing": ["smoothings=0,0.2", "pairs=300", "steps=15", "batch_tokens=500", "sentences=20"],
    "ablation": ["width=32", "pairs=300", "steps=120", "batch_tokens=400", "sentences=10"],
}
MARKS = {"prune": pytest.mark.slow, "smoothing": pytest.mark.slow}


@pytest.fixture(autouse=True, scope="module")
def little_text(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """No user's cache, and few sentences, made once: to make them takes long where every call is checked."""
    folder, made = tmp_path_factory.mktemp("cache"), {split: list(pairs(MADE, 0, split)) for split in ("dev", "test")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(folder))
        patch.setattr(files, "HELD_OUT", HELD_OUT)
        patch.setattr(translators, "pairs", lambda count, _seed, split: made[split][:count])
        yield folder


def measured(name: str, *changes: str) -> Result:
    return labs.measured(name, *SMALL[name], *changes)


@cache
def usual(name: str) -> Result:
    return measured(name)


@pytest.mark.parametrize("name", [pytest.param(name, marks=MARKS.get(name, ())) for name in SMALL])
def test_every_claim_holds_and_all_is_told(name: str) -> None:
    result = usual(name)
    assert result.holds, [result.claims[number].says for number in failing(result)]
    check_whole(result)


# align


def test_a_heads_error_is_what_its_weights_say_sentence_by_sentence() -> None:
    model, tested = load("petit-fr-en"), sentences(12)
    found = align.error_rates(model, tested)
    for layer, head in ((0, 0), (1, 2)):
        right = total = gold = 0
        for pair in tested:
            chosen = looked_at(model, pair, layer, head)
            right += len(chosen & set(pair.alignment))
            total, gold = total + len(chosen), gold + len(pair.alignment)
        assert found.heads[layer][head].error_rate == pytest.approx(1 - 2 * right / (total + gold))


def looked_at(model: Model, pair: Pair, layer: int, head: int) -> set[tuple[int, int]]:
    """The French word with the most weight for each English one, added up piece by piece."""
    assert model.tokenizer is not None
    weights = model.attend(pair.french, pair.english).weights["cross"][layer, head]  # [T, S]
    french, english = (piece_words(model.tokenizer, text) for text in (pair.french, pair.english))
    sums: dict[int, dict[int, float]] = {}
    for row, target in enumerate(english):
        for column, source in enumerate(french):
            of = sums.setdefault(target, {})
            of[source] = of.get(source, 0.0) + float(weights[row, column])
    return {(max(of, key=lambda word: of[word]), target) for target, of in sums.items()}


def test_weights_that_look_anywhere_do_not_align(monkeypatch: pytest.MonkeyPatch) -> None:
    def anywhere(*given: Any) -> Iterator[Attended]:
        random = np.random.default_rng(0)
        for each in real(*given):
            yield replace(each, weights=random.random(each.weights.shape, dtype=np.float32))

    real = cross_attention
    monkeypatch.setattr(align, "cross_attention", anywhere)
    assert failing(measured("align")) == [0, 1, 2]


# prune


def without_values(attention: Any, head: int) -> None:
    """The same head silenced in another way: its values are nought."""
    width = attention.v.out_features // attention.heads
    rows = slice(head * width, (head + 1) * width)
    attention.v.weight.data[rows] = 0
    attention.v.bias.data[rows] = 0


def test_a_silenced_head_adds_nothing() -> None:
    x = torch.randn(2, 5, 128)
    for head in range(4):
        one, other = (prune.attentions(load("petit-fr-en"))["decoder 0"] for _ in range(2))
        without_values(other, head)
        with torch.no_grad(), prune.silenced(one, [head]):
            torch.testing.assert_close(one(x, x, x), other(x, x, x))
        assert not torch.allclose(one(x, x, x), other(x, x, x))


def test_what_was_silenced_comes_back_whatever_happens() -> None:
    model = load("petit-fr-en")
    before = {name: weights.clone() for name, weights in model.network.state_dict().items()}
    attention = prune.attentions(model)["cross 1"]
    with suppress(KeyError), prune.silenced(attention, range(4)):
        assert not attention.out.weight.any()
        raise KeyError
    assert all(torch.equal(weights, before[name]) for name, weights in model.network.state_dict().items())


@pytest.mark.slow
def test_bleu_without_a_head_is_that_of_a_model_that_lacks_it() -> None:
    model, tested = load("petit-fr-en"), sentences(40)
    assert list(prune.attentions(model)) == ["encoder 0", "encoder 1", "decoder 0", "cross 0", "decoder 1", "cross 1"]
    without_values(prune.attentions(model)["cross 1"], 3)
    wanted = [pair.english for pair in tested]
    outputs = model.translate([pair.french for pair in tested], beam=1)
    row = next(row for row in usual("prune").tables[0].rows if row[0] == "cross 1")
    assert row[4] == f"{bleu(outputs, wanted).score:.1f}"
    assert outputs != wanted


def test_heads_that_are_not_silenced_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prune, "silenced", lambda *_: nullcontext())
    result = measured("prune", "sentences=4", "shown=1")
    assert failing(result) == [0, 1, 2]
    assert {cell for row in result.tables[0].rows for cell in row[1:]} == {result.tables[0].title.split()[-1]}


def test_what_a_phenomenon_loses() -> None:
    tags = [("negation",), ("negation",), ("question",), ("negation", "question")]
    wanted = ["a", "b", "c", "d"]
    whole, without = (Translated(0.0, petit_score(outputs, wanted, tags)) for outputs in (wanted, ["a", "x", "c", "x"]))
    assert prune.phenomena_lost(whole, without, 1) == {"negation": pytest.approx(2 / 3), "question": 0.5}
    assert list(prune.phenomena_lost(whole, without, 3)) == ["negation"]


# smoothing


@pytest.mark.parametrize("epsilon", [0.1, 0.2])
def test_what_smoothed_labels_ask_for_is_where_the_loss_is_least(epsilon: float) -> None:
    outputs, label = 50, torch.tensor([3])
    asked = 1 - epsilon + epsilon / outputs
    p = torch.full((1, outputs), (1 - asked) / (outputs - 1), dtype=torch.float64)
    p[0, 3] = asked
    logits = p.log().requires_grad_()
    F.cross_entropy(logits, label, label_smoothing=epsilon).backward()
    assert logits.grad is not None
    assert logits.grad.abs().max() < 1e-12
    nats, confidence, right = one_by_one(logits.detach(), label)[0].tolist()
    assert [math.exp(nats), confidence, right] == pytest.approx([1 / asked, asked, 1.0])


def test_labels_that_are_not_smoothed_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def certain(recipe: Recipe) -> tuple[Model, Any]:
        return trained(replace(recipe, train=replace(recipe.train, label_smoothing=0.0)))

    monkeypatch.setattr(smoothing, "trained", certain)
    assert failing(measured("smoothing")) == [0, 1]


def test_what_is_foretold_is_what_the_model_scores() -> None:
    recipe = read_recipe("petit-fr-en", ["data.petit=300", "train.steps=1", "model.d_model=32", "model.layers=1"])
    model, held_out = trained(recipe)
    tried = sentences(HELD_OUT, split="dev")
    scores = model.score([pair.french for pair in tried], [pair.english for pair in tried])
    assert model.tokenizer is not None
    tokens = sum(len(model.tokenizer.encode_target(pair.english)) + 1 for pair in tried)
    found = foretold(model, held_out)
    assert found.nats == pytest.approx(-sum(scores) / tokens, rel=1e-5)
    assert found.perplexity == pytest.approx(math.exp(found.nats))
    assert 1 / model.config.outputs <= found.confidence <= 1


# ablation


def test_each_row_changes_one_thing_of_the_base(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = full_table(monkeypatch)
    base = asked["base"][0]
    for name, recipes in asked.items():
        assert [recipe.train.seed for recipe in recipes] == [5, 6, 7]
        one, other = ({**recipes[0].model, **vars(recipes[0].train)}, {**base.model, **vars(base.train)})
        changed = {key for key in {*one, *other} if one.get(key) != other.get(key)}
        assert len(changed) == (name != "base"), name
        recipes[0].config(vocab_size=1_001)
    letters = [name[:3] for name in asked]
    assert {letter: letters.count(letter) for letter in letters} == {
        "bas": 1,
        "(A)": 4,
        "(B)": 2,
        "(C)": 7,
        "(D)": 4,
        "(E)": 1,
    }


def full_table(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Recipe]]:
    """The recipes of every row in the size that the notes tell, which nobody trains here."""
    asked: list[Recipe] = []
    model = load("petit-fr-en")

    def nobody(recipe: Recipe, _device: str) -> tuple[Model, None]:
        asked.append(recipe)
        return model, None

    with monkeypatch.context() as patch:
        patch.setattr(ablation, "trained", nobody)
        patch.setattr(ablation, "foretold", lambda *_: Foretold(1.0, 0.5, 0.5))
        patch.setattr(ablation, "translated", lambda *_: Translated(50.0, petit_score(["a"], ["a"], [[]])))
        small = lab("ablation").sized([*ablation.FULL.split(), "seed=5", "sentences=1"])
        result = small.run(small.sizes)
    assert failing(result) == [0, 1, 2, 3]  # all rows are as good: learned positions, too
    names = [row[0] for row in result.tables[0].rows]
    assert result.tables[0].rows[0][2:] == ("2.72 ± 0.00", "50.0 ± 0.0")
    return {name: asked[3 * i : 3 * i + 3] for i, name in enumerate(names)}


def test_a_mean_comes_with_students_interval() -> None:
    assert translators.half_width((1.0, 2.0, 3.0)) == pytest.approx(4.303 / math.sqrt(3))
    assert translators.told((1.0, 2.0, 3.0), 2) == "2.00 ± 2.48"
    assert translators.told((1.25,), 1) == "1.2"


def test_means_are_apart_where_their_intervals_are() -> None:
    assert translators.apart((3.0, 3.1, 3.2), (2.0, 2.1, 2.2))
    assert not translators.apart((2.0, 2.1, 2.2), (3.0, 3.1, 3.2))
    assert not translators.apart((2.0, 3.1, 4.2), (1.0, 2.1, 3.2))
    assert translators.apart((2.0,), (1.9,))


TABLE_3 = {
    ablation.BASE: ((1.29, 1.30, 1.31), (85.5, 86.0, 86.5)),
    ablation.SINGLE: ((1.36, 1.38, 1.40), (79.0, 80.0, 81.0)),
    ablation.NARROW: ((1.85, 1.87, 1.89), (59.0, 60.0, 61.0)),
    ablation.DROPPED: ((1.31, 1.33, 1.35), (76.8, 77.3, 77.8)),
    ablation.CERTAIN: ((1.13, 1.14, 1.15), (86.3, 86.6, 86.9)),
    ablation.SMOOTHED: ((1.49, 1.50, 1.51), (85.1, 85.3, 85.5)),
    ablation.LEARNED: ((1.28, 1.29, 1.30), (86.1, 86.2, 86.3)),
}


@pytest.mark.parametrize(
    ("changed", "fails"),
    [
        ({}, []),
        ({ablation.SINGLE: ((1.25, 1.38, 1.51), (80.0, 80.0, 80.0))}, [0]),  # chance may have done it
        ({ablation.DROPPED: ((1.3, 1.3, 1.3), (83.0, 86.0, 87.0))}, [2]),
        ({ablation.SMOOTHED: ((1.14, 1.15, 1.16), (86.0, 86.0, 86.0))}, [3]),
        ({ablation.LEARNED: ((1.35, 1.35, 1.35), (86.0, 86.0, 86.0))}, [4]),
        ({ablation.LEARNED: ((1.25, 1.25, 1.25), (86.0, 86.0, 86.0))}, [4]),
    ],
)
def test_what_the_full_table_bears_out(changed: dict[str, Any], fails: list[int]) -> None:
    claims = ablation.conclusions({name: ablation.Row(1, *row) for name, row in (TABLE_3 | changed).items()})
    assert [number for number, claim in enumerate(claims) if not claim.holds] == fails


def test_the_full_table_in_the_gallery_has_the_conclusions_of_its_figures() -> None:
    """The page was made on a GPU: what it concludes is what its own table says."""
    page = Path("regard/labs/gallery/ablation-full.md").read_text(encoding="utf-8").replace("\\", "")
    cells = [line.strip("| ").split(" | ") for line in page.splitlines() if "±" in line]
    found = {name: ablation.Row(1, spread(ppl), spread(bleu)) for name, _, ppl, bleu in cells}
    claims = ablation.conclusions(found)
    assert all(claim.holds for claim in claims)
    assert [line for line in page.splitlines() if line.startswith("- ✓")] == [f"- ✓ {claim.says}" for claim in claims]


def spread(told: str) -> tuple[float, ...]:
    """Three figures of this mean and interval."""
    middle, reach = (float(part) for part in told.split(" ± "))
    return tuple(middle + sign * reach * math.sqrt(3) / translators.T_95 for sign in (-1, 0, 1))


def test_a_model_that_is_not_narrower_is_not_worse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ablation, "changes", lambda _: {ablation.BASE: [], ablation.NARROW: []})
    assert failing(measured("ablation", "steps=5")) == [0]


def test_the_same_seed_gives_the_same_model(little_text: Path) -> None:
    changes = ["data.petit=300", "train.steps=3", "model.d_model=32", "model.layers=1", "model.dropout=0.1"]

    def weights(seed: int) -> Sequence[torch.Tensor]:
        model, _ = translators.trained(read_recipe("petit-fr-en", [*changes, f"train.seed={seed}"]))
        assert not model.network.training
        return list(model.network.state_dict().values())

    first, again, other = weights(0), weights(0), weights(1)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first, other, strict=True))
    assert any(little_text.iterdir())
