"""The labs mask, heads, positions and residual."""

import math
from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from regard.config import ModelConfig, preset
from regard.labs import heads, mask, positions, residual
from regard.labs.lab import LabResult
from regard.labs.small_training import fit
from regard.model.attention import MultiHeadAttention
from regard.model.layers import Layer
from regard.model.positions import sinusoids
from regard.model.transformer import build
from tests.support.lab_runs import check_complete, failing, run_lab_with

SMALL_SIZES = {
    "mask": ["steps=200", "length=10"],
    "heads": ["heads=1,2", "width=64", "length=32", "steps=100"],
    "positions": ["words=100", "steps=80"],
    "residual": ["depths=2,4,8", "draws=2"],
}


@pytest.fixture(autouse=True)
def clock_that_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every measured time is one tick, so that no claim depends on how busy the machine is."""
    monkeypatch.setattr(heads, "time", SimpleNamespace(process_time=count(0.0).__next__))


def run_small(name: str, *changes: str) -> LabResult:
    """Run a lab with small sizes."""
    return run_lab_with(name, *SMALL_SIZES[name], *changes)


@pytest.mark.slow
@pytest.mark.usefixtures("without_type_checks")  # checked shapes would take half of the time
@pytest.mark.parametrize("name", SMALL_SIZES)
def test_every_claim_holds_and_the_figure_is_drawn(name: str) -> None:
    result = run_small(name, "seed=1")
    assert result.claims
    assert not failing(result), [claim.text for claim in result.claims if not claim.holds]
    check_complete(result)


def test_fit_follows_the_schedule_and_ends_in_evaluation_mode() -> None:
    model, steps = nn.Linear(1, 1, bias=False), []
    start = float(model.weight.detach())

    def rate(step: int) -> float:
        steps.append(step)
        return 0.25 if step == 1 else 0.0

    losses = fit(model, lambda: (model.weight - start - 3).square().sum(), 3, rate)
    assert steps == [1, 2, 3]
    assert float(model.weight.detach()) == pytest.approx(start + 0.25, abs=1e-6)  # Adam's first step is the rate itself
    assert losses == pytest.approx([9.0, 2.75**2, 2.75**2], abs=1e-4)
    assert not model.training


def test_mask_by_hand() -> None:
    steps = mask.attention_steps(seed=3)
    raw, hidden, masked, free = (steps[name] for name in ("scores", "masked scores", "with mask", "without mask"))
    for row, sentence in enumerate(mask.SENTENCES):
        n = len(sentence.split())
        assert not free[row, :, :, n:].any()  # padding
        for i in range(n):
            own = raw[row, :, i, : i + 1].exp()
            torch.testing.assert_close(masked[row, :, i, : i + 1], own / own.sum(-1, keepdim=True))
            all_of_it = raw[row, :, i, :n].exp()
            torch.testing.assert_close(free[row, :, i, :n], all_of_it / all_of_it.sum(-1, keepdim=True))
            assert not masked[row, :, i, i + 1 :].any()
            assert hidden[row, :, i, i + 1 :].eq(-math.inf).all()
    assert [len(sentence.split()) for sentence in mask.SENTENCES] == [3, 4, 7]


@pytest.mark.slow
def test_a_leaking_mask_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mask, "train_character_model", lambda *_: mask.TrainedCharacterModel([1.5], 1.5, "", 0.5))
    assert failing(run_small("mask")) == [2, 3, 4]  # two models that are equal
    everywhere = dict.fromkeys(mask.attention_steps(0), torch.full((3, 3, 7, 7), 1 / 7))
    monkeypatch.setattr(mask, "attention_steps", lambda _: everywhere)
    assert failing(run_small("mask"))[:2] == [0, 1]


@pytest.mark.slow
def test_causal_logits_ignore_the_future() -> None:
    torch.manual_seed(0)
    text = mask.TextSampler.from_petit(20)
    line, next_ = text.lines(3, 6)
    assert torch.equal(line[:, 1:], next_[:, :-1])
    shape: dict[str, Any] = {"vocab_size": len(text.alphabet), "pad": None, "dropout": 0.0}
    causal, free = (build(preset("tiny", kind=kind, **shape)).eval() for kind in ("decoder", "encoder"))
    torch.testing.assert_close(mask.causal_logits(causal, line), causal(line).detach(), atol=1e-5, rtol=1e-4)
    assert not torch.allclose(mask.causal_logits(free, line), free(line).detach(), atol=1e-2)


def test_real_word_share_counts_characters_in_known_words() -> None:
    text = mask.TextSampler("The cat is here.\nI see.")
    assert text.real_word_share(["The dog\n"]) == 3 / 8
    assert text.real_word_share(["?????"]) == 0
    assert text.real_word_share(["I I I"]) == 0  # words of one letter are too easy to hit by chance


def test_heads_cost_what_the_formula_says() -> None:
    cost = heads.measure_costs(heads.Sizes(heads=(1, 4), width=32, length=8))
    for each in cost.values():
        assert each.parameters == 4 * (32 * 32 + 32)
        assert each.operations == 4 * 2 * (4 * 8 * 32 * 32 + 2 * 8 * 8 * 32)  # four projections; scores and mixing
        assert each.milliseconds == 1000  # one tick


def test_heads_detects_that_one_head_suffices_or_two_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    same = heads.LookupResult([0.0], (1.0, 1.0), 1.0, torch.zeros(1, 8))
    monkeypatch.setattr(heads, "train_lookup", lambda *_: same)
    assert failing(run_small("heads")) == [2]
    monkeypatch.setattr(heads, "train_lookup", lambda *_: replace(same, both=0.5))
    assert failing(run_small("heads")) == [3]


def test_heads_detects_that_heads_cost_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        heads, "train_lookup", lambda _, n, *__: heads.LookupResult([0.0], (1.0, 1.0), float(n > 1), torch.zeros(1, 8))
    )
    monkeypatch.setattr(
        heads, "MultiHeadAttention", lambda width, n: MultiHeadAttention(width, n, d_k=width, d_v=width)
    )
    assert failing(run_small("heads", "heads=1,8", "width=128"))[:1] == [0]


def test_heads_detects_that_heads_take_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    one_head_fails = [heads.LookupResult([0.0], (1.0, 1.0), both, torch.zeros(1, 8)) for both in (0.0, 1.0)]
    monkeypatch.setattr(heads, "train_lookup", lambda _, n, *__: one_head_fails[n > 1])
    for factor, fails in ((1.0, []), (3.0, [1]), (0.3, [1])):
        costs = {1: heads.HeadCost(5, 5, 1.0), 2: heads.HeadCost(5, 5, factor)}
        monkeypatch.setattr(heads, "measure_costs", lambda _, costs=costs: costs)
        assert failing(run_small("heads")) == fails


@pytest.mark.slow
def test_positions_by_closed_form() -> None:
    result = run_small("positions", "steps=1")
    assert (
        f"is {2 * math.pi:.1f} positions at the start and {2 * math.pi * 10_000 ** (128 / 130):,.0f} at the end"
        in result.claims[0].text
    )
    assert f"{10_000 ** (2 / 130):.3f} times" in result.claims[0].text
    by_distance = [sum(math.cos(k * 10_000 ** (-2 * i / 130)) for i in range(65)) for k in (0, 1, 10)]
    assert "{:.0f} at distance 0, {:.0f} at 1, {:.0f} at 10".format(*by_distance) in result.claims[2].text
    step = math.sqrt(sum(2 - 2 * math.cos(10_000 ** (-2 * i / 130)) for i in range(65)))
    assert f"1 to 6 bits change, and the sinusoids move by {step:.2f} to {step:.2f}" in result.claims[1].text


@pytest.mark.slow
def test_positions_detects_vectors_that_are_not_sinusoids(monkeypatch: pytest.MonkeyPatch) -> None:
    def random(at: torch.Tensor, width: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.randn(len(at), width, dtype=dtype)

    monkeypatch.setattr(positions, "sinusoids", random)
    assert failing(run_small("positions", "steps=1"))[:4] == [0, 1, 2, 3]


@pytest.mark.slow
def test_positions_detects_that_the_order_is_not_learned() -> None:
    assert failing(run_small("positions", "steps=1")) == [5]


def test_linear_maps() -> None:
    torch.manual_seed(0)
    vectors = torch.randn(40, 5, dtype=torch.float64)
    mapped = vectors @ torch.randn(5, 5, dtype=torch.float64)
    torch.testing.assert_close(positions.map_second_half(vectors, mapped), mapped[20:], atol=1e-6, rtol=1e-6)
    assert positions.linear_map_error(vectors, mapped) < 1e-6 < positions.linear_map_error(vectors, mapped.square())
    table = sinusoids(torch.arange(20), 32, torch.float64)
    assert positions.recovered_from_sums(table, 8) == (1.0, 1.0)
    assert positions.recovered_from_sums(0 * table, 8)[0] < 0.3  # equal positions cannot be distinguished


def test_an_encoder_without_positions_cannot_learn_the_order() -> None:
    config = ModelConfig(
        kind="encoder", vocab_size=5, pad=None, classes=2, d_model=8, heads=2, layers=1, d_ff=8, dropout=0.0
    )
    result = positions.train_order(replace(config, positions="none"), steps=3, seed=0)
    assert result.difference < 1e-5
    assert result.correct == pytest.approx(0.5, abs=0.02)
    assert positions.train_order(config, steps=3, seed=0).difference > 1e-3


def test_the_forms_of_a_layer() -> None:
    torch.manual_seed(0)
    config = preset("tiny", kind="encoder", pad=None, dropout=0.0)
    x, whole = torch.randn(2, 3, 64), Layer(config)
    parts = {
        key: residual.PartialLayer(config, *key) for key in ((False, False), (False, True), (True, False), (True, True))
    }
    for part in parts.values():
        part.load_state_dict(whole.state_dict())
    attended, norm = whole.attention(x, x, x), nn.functional.layer_norm
    ff = whole.feed_forward
    torch.testing.assert_close(parts[False, False](x), ff(attended))
    torch.testing.assert_close(parts[True, False](x), (x + attended) + ff(x + attended))
    torch.testing.assert_close(parts[False, True](x), norm(ff(norm(attended, (64,))), (64,)))
    torch.testing.assert_close(parts[True, True](x), whole(x))


@pytest.mark.slow
def test_residual_detects_that_every_form_is_the_complete_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(residual, "FORMS", dict.fromkeys(residual.FORMS, Layer))
    assert failing(run_small("residual", "draws=1")) == [0, 1, 2]


@pytest.mark.slow
def test_residual_detects_that_no_form_has_a_residual(monkeypatch: pytest.MonkeyPatch) -> None:
    bare = residual.FORMS["neither"]
    monkeypatch.setattr(residual, "FORMS", dict.fromkeys(residual.FORMS, bare))
    assert {1, 2, 3} <= set(failing(run_small("residual", "draws=1")))
