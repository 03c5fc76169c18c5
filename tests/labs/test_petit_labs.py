"""The labs align, prune, smoothing and ablation, which use translators of Petit."""

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

from regard.decoding.interventions import silenced_heads
from regard.decoding.text_model import Model
from regard.evaluation.alignment import AttentionPair, token_words
from regard.evaluation.attention_alignment import attention_pairs
from regard.evaluation.metrics import bleu
from regard.evaluation.tag_accuracy import tag_accuracy
from regard.interop.load import load
from regard.labs import ablation, align, prune, smoothing
from regard.labs import petit_translators as translators
from regard.labs.lab import LabResult, load_lab
from regard.labs.lab_record import read_record
from regard.labs.lab_statistics import STUDENT_T_95, clearly_greater, format_mean, interval_half_width
from regard.labs.petit_translators import (
    PredictionQuality,
    TranslationQuality,
    held_out_pairs,
    prediction_quality,
    token_measures,
    train_model,
)
from regard.petit import Pair, pairs, spans
from regard.petit import corpus_files as files
from regard.training.recipe import Recipe
from regard.training.recipe_files import read_recipe
from tests.support.lab_runs import check_complete, failing, run_lab_with

HELD_OUT, TEST_PAIRS = 20, 40
SMALL_SIZES = {
    "align": ["sentences=40"],
    "prune": ["sentences=20", "shown=3"],
    "smoothing": ["smoothings=0,0.2", "pairs=300", "steps=15", "batch_tokens=500", "sentences=10"],
    "ablation": ["width=32", "pairs=300", "steps=60", "batch_tokens=400", "sentences=10"],
}


@pytest.fixture(autouse=True, scope="module")
def little_text(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Use an empty cache, and few sentences that are generated once, which is slow with checked annotations."""
    folder, made = (
        tmp_path_factory.mktemp("cache"),
        {split: list(pairs(TEST_PAIRS, 0, split)) for split in ("dev", "test")},
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(folder))
        patch.setattr(files, "HELD_OUT", HELD_OUT)
        patch.setattr(translators, "pairs", lambda count, _seed, split: made[split][:count])
        yield folder


def run_small(name: str, *changes: str) -> LabResult:
    return run_lab_with(name, *SMALL_SIZES[name], *changes)


@cache
def cached_result(name: str) -> LabResult:
    return run_small(name)


@pytest.mark.slow
@pytest.mark.usefixtures("without_type_checks")  # checked shapes would take half of the time
@pytest.mark.parametrize("name", SMALL_SIZES)
def test_every_claim_holds_and_the_result_is_complete(name: str) -> None:
    result = cached_result(name)
    assert result.holds, [result.claims[number].text for number in failing(result)]
    check_complete(result)


# align


@pytest.mark.slow
def test_the_error_rate_of_a_head_matches_its_weights_sentence_by_sentence() -> None:
    model, tested = load("petit-fr-en"), held_out_pairs(12)
    scores = align.error_rates(model, tested)
    for layer, head in ((0, 0), (1, 2)):
        right = total = gold = 0
        for pair in tested:
            chosen = chosen_links(model, pair, layer, head)
            right += len(chosen & set(pair.alignment))
            total, gold = total + len(chosen), gold + len(pair.alignment)
        assert scores.heads[layer][head].error_rate == pytest.approx(1 - 2 * right / (total + gold))


def chosen_links(model: Model, pair: Pair, layer: int, head: int) -> set[tuple[int, int]]:
    """Return the French word with the highest weight for each English one, summed token by token."""
    assert model.tokenizer is not None
    weights = model.attend(pair.french, pair.english).weights["cross"][layer, head]  # [T, S]
    french, english = (token_words(model.tokenizer, text, spans) for text in (pair.french, pair.english))
    sums: dict[int, dict[int, float]] = {}
    for row, target in enumerate(english):
        for column, source in enumerate(french):
            of = sums.setdefault(target, {})
            of[source] = of.get(source, 0.0) + float(weights[row, column])
    return {(max(of, key=lambda word: of[word]), target) for target, of in sums.items()}


@pytest.mark.slow
def test_random_weights_do_not_align(monkeypatch: pytest.MonkeyPatch) -> None:
    def random_weights(*arguments: Any) -> Iterator[AttentionPair]:
        random = np.random.default_rng(0)
        for attended in real(*arguments):
            yield replace(attended, weights=random.random(attended.weights.shape, dtype=np.float32))

    real = attention_pairs
    monkeypatch.setattr(align, "attention_pairs", random_weights)
    assert failing(run_small("align")) == [0, 1, 2]


# prune


def without_values(attention: Any, head: int) -> None:
    """Disable the same head in another way: set its values to zero."""
    width = attention.v.out_features // attention.heads
    rows = slice(head * width, (head + 1) * width)
    attention.v.weight.data[rows] = 0
    attention.v.bias.data[rows] = 0


@pytest.mark.slow
def test_a_disabled_head_contributes_nothing() -> None:
    x = torch.randn(2, 5, 128)
    for head in range(4):
        one, other = (prune.attention_layers(load("petit-fr-en"))["decoder 0"] for _ in range(2))
        without_values(other, head)
        with torch.no_grad(), silenced_heads(one, [head]):
            torch.testing.assert_close(one(x, x, x), other(x, x, x))
        assert not torch.allclose(one(x, x, x), other(x, x, x))


def test_disabled_heads_work_again_even_after_an_error() -> None:
    x, attention = torch.randn(1, 3, 128), prune.attention_layers(load("petit-fr-en"))["cross 1"]
    before = attention(x, x, x)
    with suppress(KeyError), silenced_heads(attention, range(4)):
        torch.testing.assert_close(attention(x, x, x), attention.out.bias.expand(1, 3, -1))
        raise KeyError
    assert torch.equal(attention(x, x, x), before)


@pytest.mark.slow
def test_bleu_without_a_head_matches_a_model_that_lacks_it() -> None:
    model, tested = load("petit-fr-en"), held_out_pairs(20)
    assert list(prune.attention_layers(model)) == [
        "encoder 0",
        "encoder 1",
        "decoder 0",
        "cross 0",
        "decoder 1",
        "cross 1",
    ]
    without_values(prune.attention_layers(model)["cross 1"], 3)
    references = [pair.english for pair in tested]
    outputs = model.translate([pair.french for pair in tested], beam=1)
    row = next(row for row in cached_result("prune").tables[0].rows if row[0] == "cross 1")
    assert row[4] == f"{bleu(outputs, references).value:.1f}"
    assert outputs != references


@pytest.mark.slow
def test_heads_that_are_not_disabled_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = prune.attention_layers
    monkeypatch.setattr(prune, "attention_layers", lambda model: dict(list(layers(model).items())[:2]))
    monkeypatch.setattr(prune, "silenced_heads", lambda *_: nullcontext())
    result = run_small("prune", "sentences=4", "shown=1")
    assert failing(result) == [0, 1, 2]
    assert {cell for row in result.tables[0].rows for cell in row[1:]} == {result.tables[0].title.split()[-1]}


def test_phenomenon_losses() -> None:
    tags = [("negation",), ("negation",), ("question",), ("negation", "question")]
    references = ["a", "b", "c", "d"]
    complete, without = (
        TranslationQuality(0.0, tag_accuracy(outputs, references, tags))
        for outputs in (references, ["a", "x", "c", "x"])
    )
    assert prune.phenomenon_losses(complete, without, 1) == {"negation": pytest.approx(2 / 3), "question": 0.5}
    assert list(prune.phenomenon_losses(complete, without, 3)) == ["negation"]


# smoothing


@pytest.mark.parametrize("epsilon", [0.1, 0.2])
def test_the_smoothed_target_minimises_the_loss(epsilon: float) -> None:
    outputs, label = 50, torch.tensor([3])
    asked = 1 - epsilon + epsilon / outputs
    p = torch.full((1, outputs), (1 - asked) / (outputs - 1), dtype=torch.float64)
    p[0, 3] = asked
    logits = p.log().requires_grad_()
    F.cross_entropy(logits, label, label_smoothing=epsilon).backward()
    assert logits.grad is not None
    assert logits.grad.abs().max() < 1e-12
    nats, confidence, right = token_measures(logits.detach(), label)[0].tolist()
    assert [math.exp(nats), confidence, right] == pytest.approx([1 / asked, asked, 1.0])


@pytest.mark.slow
def test_missing_smoothing_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_smoothing(recipe: Recipe) -> tuple[Model, Any]:
        return train_model(replace(recipe, train=replace(recipe.train, label_smoothing=0.0)))

    monkeypatch.setattr(smoothing, "train_model", without_smoothing)
    assert failing(run_small("smoothing")) == [0, 1]


@pytest.mark.slow
def test_prediction_quality_matches_the_scores_of_the_model() -> None:
    recipe = read_recipe("petit-fr-en", ["data.petit=300", "train.steps=1", "model.d_model=32", "model.layers=1"])
    model, held_out = train_model(recipe)
    tried = held_out_pairs(HELD_OUT, split="dev")
    scores = model.score([pair.french for pair in tried], [pair.english for pair in tried])
    assert model.tokenizer is not None
    tokens = sum(len(model.tokenizer.encode_target(pair.english)) + 1 for pair in tried)
    quality = prediction_quality(model, held_out)
    assert quality.nats == pytest.approx(-sum(scores) / tokens, rel=1e-5)
    assert quality.perplexity == pytest.approx(math.exp(quality.nats))
    assert 1 / model.config.outputs <= quality.confidence <= 1


# ablation


@pytest.mark.slow
def test_each_row_changes_one_setting_of_the_base(monkeypatch: pytest.MonkeyPatch) -> None:
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
    """Return the recipes of every row of the full form, without training them."""
    asked: list[Recipe] = []
    model = load("petit-fr-en")

    def untrained(recipe: Recipe, _device: str) -> tuple[Model, None]:
        asked.append(recipe)
        return model, None

    with monkeypatch.context() as patch:
        patch.setattr(ablation, "train_model", untrained)
        patch.setattr(ablation, "prediction_quality", lambda *_: PredictionQuality(1.0, 0.5, 0.5))
        patch.setattr(
            ablation, "translation_quality", lambda *_: TranslationQuality(50.0, tag_accuracy(["a"], ["a"], [[]]))
        )
        small = load_lab("ablation").with_sizes([*ablation.FULL_SIZES.split(), "seed=5", "sentences=1"])
        result = small.run(small.sizes)
    assert failing(result) == [0, 1, 2, 3]  # all rows are equal, so learned positions are as good
    names = [row[0] for row in result.tables[0].rows]
    assert result.tables[0].rows[0][2:] == ("2.72 ± 0.00", "50.0 ± 0.0")
    return {name: asked[3 * i : 3 * i + 3] for i, name in enumerate(names)}


def test_means_have_a_confidence_interval() -> None:
    assert interval_half_width((1.0, 2.0, 3.0)) == pytest.approx(4.303 / math.sqrt(3))
    assert format_mean((1.0, 2.0, 3.0), 2) == "2.00 ± 2.48"
    assert format_mean((1.25,), 1) == "1.2"


def test_clearly_greater_compares_intervals() -> None:
    assert clearly_greater((3.0, 3.1, 3.2), (2.0, 2.1, 2.2))
    assert not clearly_greater((2.0, 2.1, 2.2), (3.0, 3.1, 3.2))
    assert not clearly_greater((2.0, 3.1, 4.2), (1.0, 2.1, 3.2))
    assert clearly_greater((2.0,), (1.9,))


TABLE_3 = {
    ablation.BASE: ((1.29, 1.30, 1.31), (85.5, 86.0, 86.5)),
    ablation.ONE_HEAD: ((1.36, 1.38, 1.40), (79.0, 80.0, 81.0)),
    ablation.HALF_WIDTH: ((1.85, 1.87, 1.89), (59.0, 60.0, 61.0)),
    ablation.DROPOUT: ((1.31, 1.33, 1.35), (76.8, 77.3, 77.8)),
    ablation.UNSMOOTHED: ((1.13, 1.14, 1.15), (86.3, 86.6, 86.9)),
    ablation.SMOOTHED: ((1.49, 1.50, 1.51), (85.1, 85.3, 85.5)),
    ablation.LEARNED_POSITIONS: ((1.28, 1.29, 1.30), (86.1, 86.2, 86.3)),
}


@pytest.mark.parametrize(
    ("changed", "fails"),
    [
        ({}, []),
        ({ablation.ONE_HEAD: ((1.25, 1.38, 1.51), (80.0, 80.0, 80.0))}, [0]),  # the intervals overlap
        ({ablation.DROPOUT: ((1.3, 1.3, 1.3), (83.0, 86.0, 87.0))}, [2]),
        ({ablation.SMOOTHED: ((1.14, 1.15, 1.16), (86.0, 86.0, 86.0))}, [3]),
        ({ablation.LEARNED_POSITIONS: ((1.35, 1.35, 1.35), (86.0, 86.0, 86.0))}, [4]),
        ({ablation.LEARNED_POSITIONS: ((1.25, 1.25, 1.25), (86.0, 86.0, 86.0))}, [4]),
    ],
)
def test_the_conclusions_of_the_full_table(changed: dict[str, Any], fails: list[int]) -> None:
    claims = ablation.conclusions({name: ablation.AblationRow(1, *row) for name, row in (TABLE_3 | changed).items()})
    assert [number for number, claim in enumerate(claims) if not claim.holds] == fails


def test_the_full_table_of_the_gallery_confirms_its_conclusions() -> None:
    """It was run_small on a GPU, so only the conclusions can be computed again."""
    record = read_record(Path("regard/labs/gallery/ablation-full.json"))
    rows = {
        name: ablation.AblationRow(1, three_samples(perplexity), three_samples(bleu))
        for name, _, perplexity, bleu in record.tables[0].rows
    }
    assert record.holds
    assert ablation.conclusions(rows) == record.claims


def three_samples(text: str) -> tuple[float, ...]:
    """Return three samples with this mean and interval."""
    middle, reach = (float(part) for part in text.split(" ± "))
    return tuple(middle + sign * reach * math.sqrt(3) / STUDENT_T_95 for sign in (-1, 0, 1))


@pytest.mark.slow
def test_an_equal_width_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ablation, "row_changes", lambda _: {ablation.BASE: [], ablation.HALF_WIDTH: []})
    assert failing(run_small("ablation", "steps=5")) == [0]


@pytest.mark.slow
def test_the_same_seed_gives_the_same_model(little_text: Path) -> None:
    changes = ["data.petit=300", "train.steps=3", "model.d_model=32", "model.layers=1", "model.dropout=0.1"]

    def weights(seed: int) -> Sequence[torch.Tensor]:
        model, _ = train_model(read_recipe("petit-fr-en", [*changes, f"train.seed={seed}"]))
        assert not model.network.training
        return list(model.network.state_dict().values())

    first, again, other = weights(0), weights(0), weights(1)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first, other, strict=True))
    assert any(little_text.iterdir())
