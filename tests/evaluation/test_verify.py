"""`verify` finds no difference in correct models, and every difference that is introduced."""

import json
import math
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
import torch

from regard.config import ModelConfig, SpecialIds
from regard.decoding.generate import Inputs, search_translations
from regard.decoding.options import Decoding
from regard.decoding.search import Hypothesis
from regard.decoding.text_model import Model
from regard.evaluation import verify as module
from regard.evaluation.result_json import to_json_value
from regard.evaluation.verify import (
    EqualityCheck,
    VerificationCase,
    draw_case,
    full_pass,
    hypothesis_difference,
    verify,
)
from regard.model import attention
from regard.model.cache import AttentionCache
from regard.model.transformer import Network, Transformer, build
from regard.storage import model_folder as store
from regard.storage.weights import write_weights
from tests.support.oracles import small


def random_config(chance: random.Random) -> ModelConfig:
    """Return a small random config of any kind."""
    kind = chance.choice(["encoder", "decoder", "decoder", "encoder-decoder", "encoder-decoder"])
    heads, groups = chance.choice([(1, 1), (2, 1), (2, 2), (4, 2)])
    prefix = kind == "decoder" and chance.random() < 0.4
    return ModelConfig(
        kind=kind,  # type: ignore[arg-type]
        vocab_size=chance.choice([5, 9, 33]),
        pad=chance.choice([-1, -1, 0, None]),
        d_model=8,
        heads=heads,
        kv_heads=groups,
        d_k=chance.choice([4, 6]),
        d_v=chance.choice([3, 4]),
        layers=chance.choice([1, 2]),
        decoder_layers=chance.choice([None, 1]) if kind == "encoder-decoder" else None,
        d_ff=12,
        activation=chance.choice(["relu", "gelu", "gelu-tanh", "silu", "swiglu"]),
        bias=chance.random() < 0.5,
        norm=chance.choice(["post", "pre"]),
        norm_kind=chance.choice(["layer", "rms"]),
        positions=chance.choice(get_args(get_type_hints(ModelConfig)["positions"])),
        attention_scale=chance.choice([None, 1.0]),
        max_length=chance.choice([1, 4, 16, 64]),
        scale_embeddings=chance.random() < 0.5,
        tied=chance.random() < 0.5,
        prefix=prefix,
        window=chance.choice([None, 1, 3]) if kind == "decoder" and not prefix else None,
        classes=3 if kind != "encoder-decoder" and chance.random() < 0.2 else 0,
        target_vocab_size=chance.choice([None, None, 6, 40]) if kind == "encoder-decoder" else None,
    )


def random_model(config: ModelConfig, seed: int = 0) -> Model:
    """Return a model without initial weights, which could hide errors; some ids end a text or are suppressed."""
    torch.manual_seed(seed)
    network = build(config).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return Model(network, special=SpecialIds(end=(1, 2), start=config.output_vocab_size - 1, suppressed=(3,)))


def differing_checks(model: Model, cases: int = 2) -> set[str]:
    return {check.name for check in verify(model, cases=cases, compiled=False).checks if not check.passed}


def check_no_difference(models: int, cases: int, seed: int) -> None:
    for number in range(models):
        config = random_config(random.Random(f"{seed} {number}"))
        found = verify(random_model(config, number), cases=cases, seed=number, compiled=False)
        assert found.passed, (config, [check for check in found.checks if not check.passed])
        assert all(check.difference is not None or check.skipped for check in found.checks)


@pytest.mark.slow
@pytest.mark.usefixtures("without_type_checks")
def test_dozens_of_random_cases_hold() -> None:
    check_no_difference(models=20, cases=1, seed=0)


@pytest.mark.long
@pytest.mark.usefixtures("without_type_checks")
def test_ten_thousand_random_cases_hold() -> None:
    check_no_difference(models=1_000, cases=10, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["encoder-decoder", "decoder", "encoder", "classes", "prefix"])
def test_all_applicable_checks_run(kind: str) -> None:
    changes = {"classes": {"kind": "decoder", "classes": 3}, "prefix": {"kind": "decoder", "prefix": True}}
    found = verify(random_model(small(**changes.get(kind, {"kind": kind}))), cases=2, compiled=False)
    names = [check.name for check in found.checks]
    speaks = kind not in ("encoder", "classes")
    assert ("cached = uncached" in names) == ("beam 1 = greedy" in names) == speaks
    assert {"batched = one by one", "padding is ignored", "fast = readable", "saved = loaded"} <= set(names)
    assert found.passed
    rough = {check.name for check in found.checks if check.bfloat16 is not None}
    assert rough == set(names) & {*module.COMPARED_IN_BFLOAT16, "fast copy = original"}
    assert ("fast copy = original" in names) == speaks
    assert json.dumps(to_json_value(found))


def test_the_same_seed_gives_the_same_cases() -> None:
    network = build(small())
    assert draw_case(network, random.Random("1 2")) == draw_case(network, random.Random("1 2"))
    assert draw_case(network, random.Random("1 2")) != draw_case(network, random.Random("1 3"))


@pytest.mark.slow
def test_cases_are_ragged_and_avoid_special_ids() -> None:
    network = build(small(pad=7, positions="learned", max_length=9))
    cases = [draw_case(network, random.Random(i)) for i in range(200)]
    assert {len(case.inputs) for case in cases} == {1, 2, 3}
    assert all(7 not in ids and 1 <= len(ids) <= 9 for case in cases for ids in case.inputs)
    assert any(len({len(ids) for ids in case.inputs}) > 1 for case in cases)


def shifted(self: AttentionCache, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A cache that writes the values one row off."""
    assert self.positions is not None
    rows = torch.arange(k.size(0))[:, None]
    self.k[rows, :, self.positions] = k.transpose(1, 2)
    self.v[rows, :, self.positions] = v.transpose(1, 2).roll(1, 0) if len(v) > 1 else -v.transpose(1, 2)
    return self.k, self.v


def unpadded(forward: Callable[..., object]) -> Callable[..., object]:
    """Attention that ignores lengths, so padding is visible."""

    def mask(
        self: Transformer, t: int, s: int, queries: object, keys: object, causal: bool, prefix: object = None
    ) -> object:
        return forward(self, t, s, None, None, causal, prefix)

    return mask


@pytest.mark.slow
@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize("kind", ["encoder-decoder", "decoder"])
def test_a_broken_cache_is_detected(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AttentionCache, "put", shifted)
    wrong = differing_checks(random_model(small(kind=kind)))
    assert "cached = uncached" in wrong
    assert "fast = readable" not in wrong


@pytest.mark.slow
@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize("kind", ["encoder-decoder", "encoder"])
def test_visible_padding_is_detected(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Transformer, "mask", unpadded(Transformer.mask))
    wrong = differing_checks(random_model(small(kind=kind)))
    assert {"padding is ignored", "batched = one by one"} <= wrong
    assert "saved = loaded" not in wrong


@pytest.mark.usefixtures("without_type_checks")
def test_a_classifier_that_reads_padding_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    from regard.model.transformer import SequenceHead

    forward = SequenceHead.forward
    monkeypatch.setattr(SequenceHead, "forward", lambda self, hidden, _lengths=None: forward(self, hidden, None))
    assert "padding is ignored" in differing_checks(random_model(small(kind="decoder", classes=3)))


@pytest.mark.slow
@pytest.mark.usefixtures("without_type_checks")
def test_a_wrong_fast_path_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = attention.fast_attention
    monkeypatch.setattr(attention, "fast_attention", lambda q, k, v, *more: fast(q * 1.01, k, v, *more))
    assert differing_checks(random_model(small())) == {"fast = readable", "fast copy = original"}


@pytest.mark.slow
@pytest.mark.usefixtures("without_type_checks")
def test_weights_rounded_when_saved_are_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    write = write_weights
    monkeypatch.setattr(store, "write_weights", lambda path, held: write(path, {n: x.half() for n, x in held.items()}))
    assert differing_checks(random_model(small())) == {"saved = loaded"}


@pytest.mark.slow
@pytest.mark.usefixtures("without_type_checks")
def test_a_wrong_beam_search_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    say = search_translations

    def second_best(network: object, special: object, sources: Inputs, options: Decoding) -> list[list[Hypothesis]]:
        if options.beam > 1:
            return say(network, special, sources, options)  # type: ignore[arg-type]
        found = say(network, special, sources, Decoding(beam=2, n_best=2, max_tokens=options.max_tokens))  # type: ignore[arg-type]
        return [texts[-1:] for texts in found]

    monkeypatch.setattr(module, "search_translations", second_best)
    assert differing_checks(random_model(small())) == {"beam 1 = greedy"}


@pytest.mark.slow
@pytest.mark.usefixtures("without_type_checks")
def test_wrong_scores_are_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    say = search_translations

    def off(*given: object) -> list[list[Hypothesis]]:
        texts = say(*given)  # type: ignore[arg-type]
        return [[Hypothesis(each.ids, each.score - 0.01, each.penalised, each.reason) for each in row] for row in texts]

    monkeypatch.setattr(module, "search_translations", off)
    assert differing_checks(random_model(small())) == {"beam 1 = greedy", "beam scores = full pass"}


def test_a_tie_between_two_tokens_is_not_a_difference() -> None:
    model = random_model(small())
    log_probs = module.next_log_probs(model.network, model.special, [5, 6], [])[-1]
    best, second = log_probs.topk(2).indices.tolist()
    texts = [Hypothesis([id_, 4], -1.0 - id_, -1.0, "length") for id_ in (best, second)]
    gap = float(log_probs[best] - log_probs[second])
    assert hypothesis_difference(model.network, model.special, [5, 6], *texts) == pytest.approx(gap, abs=1e-6)
    ended = Hypothesis([best, 4], -1.0 - best, -1.0, "end")
    assert hypothesis_difference(model.network, model.special, [5, 6], texts[0], ended) == math.inf


def test_nan_is_an_infinite_difference() -> None:
    check = EqualityCheck("a = b", "").with_case(0, 0.5).with_case(1, math.nan).with_case(2, 0.7)
    assert (check.difference, check.worst, check.passed) == (math.inf, 1, False)
    nan = [torch.tensor([[1.0, math.nan]])]
    assert math.isnan(module.max_difference(nan, nan))


def test_differences_are_relative_to_large_logits() -> None:
    assert module.max_difference([torch.tensor([[1.5]])], [torch.tensor([[1.0]])]) == 0.5
    assert module.max_difference([torch.tensor([[1010.0]])], [torch.tensor([[1000.0]])]) == pytest.approx(0.01)


def test_a_single_row_has_no_padding() -> None:
    model, seen = random_model(small()), []
    network: Network = model.network
    network.register_forward_pre_hook(lambda _module, inputs: seen.append([tuple(each.shape) for each in inputs[:2]]))
    case = VerificationCase([[5, 6, 7], [8]], [[9], [10, 11]], (1, 2))
    full_pass(network, model.special, case)
    module.separate_passes(network, model.special, case)
    assert seen == [[(2, 4), (2, 4)], [(1, 3), (1, 2)], [(1, 1), (1, 3)]]


@pytest.mark.slow
def test_compiled_models_equal_eager_ones(tmp_path: Path) -> None:
    """In a separate process, because the type checks cannot be traced."""
    random_model(small(layers=1)).save(tmp_path / "model")
    command = [sys.executable, "-m", "regard", "verify", str(tmp_path / "model"), "--cases", "1", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    report = json.loads(done.stdout)
    compiled = next(check for check in report["checks"] if check["name"] == "compiled = eager")
    assert compiled["passed"]
    assert (compiled["difference"] is None) == bool(compiled["skipped"])
    assert done.returncode == 0, done.stderr
