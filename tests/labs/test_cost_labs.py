"""The labs complexity, rnn, kv-cache and schedule, and the cost meters."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.profiler import profile
from torch.utils.flop_counter import FlopCounterMode

from regard.config import preset
from regard.labs import complexity, kv_cache, rnn, schedule
from regard.labs.cost_meters import count_products, cpu_seconds, peak_bytes
from regard.model.attention import MultiHeadAttention, attention, fast_attention
from regard.model.cache import AttentionCache
from regard.model.transformer import Decoder, build
from regard.threads import one_thread
from regard.training.flops import TokenCounts, forward_flops
from tests.support.lab_runs import failing, render, run_lab_with

FLOAT_BYTES = 4


def counted_seconds(computation: Callable[[], object], repeats: int = 5) -> float:
    """A substitute for time, which varies on a busy machine: a time proportional to the operations."""
    return count_products(computation).operations * 1e-9


class WithoutProjections(MultiHeadAttention):
    """An attention layer that leaves out its projections."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor, _mask: Any = None) -> Tensor:  # type: ignore[override]
        return fast_attention(query, key, value)


class TestMeters:
    def test_operations_equal_the_count_of_pytorch(self) -> None:
        model = build(preset("tiny", vocab_size=33)).eval()
        tokens = torch.zeros(2, 5, dtype=torch.long)
        with torch.no_grad():
            done = count_products(lambda: model(tokens, tokens))
            with (
                torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
                FlopCounterMode(display=False) as c,
            ):
                model(tokens, tokens)
        assert done.operations == c.get_total_flops() > 0

    def test_a_chain_consists_of_products_that_depend_on_one_another(self) -> None:
        a, b, c, d = torch.randn(4, 3, 3)
        assert count_products(lambda: a @ b @ c @ d).chain == 3
        assert count_products(lambda: (a @ b) @ (c @ d)).chain == 2
        assert count_products(lambda: (a @ b) + (c @ d)).chain == 1
        assert count_products(lambda: a + b).chain == 0
        assert count_products(lambda: (a @ b).t().relu_() @ c).chain == 2  # through a view, and in place

    def test_peak_memory_counts_tensors_that_are_alive(self) -> None:
        a = torch.randn(1000)
        assert peak_bytes(lambda: a + 1) == 1000 * FLOAT_BYTES
        assert (
            peak_bytes(lambda: ((a + 1) + 1) + 1) == 2 * 1000 * FLOAT_BYTES
        )  # the first is freed when the third is created
        assert peak_bytes(lambda: a[:500].view(5, 100)) == 0
        kept: list[Tensor] = []
        assert peak_bytes(lambda: kept.extend(a + i for i in range(7))) == 7 * 1000 * FLOAT_BYTES

    def test_the_number_of_threads_is_restored(self) -> None:
        before = torch.get_num_threads()
        with one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == before
        assert cpu_seconds(lambda: sum(range(100_000)), repeats=3) > 0


class TestComplexity:
    SIZES = ("lengths=128,256,512", "width=16", "paths=5,9", "pairs=4,8,12")

    @pytest.mark.slow
    def test_its_claims_hold(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(complexity, "cpu_seconds", counted_seconds)
        result = run_lab_with("complexity", *self.SIZES)
        assert result.holds, [result.claims[i].text for i in failing(result)]
        assert len(render(result).axes) == 4

    @pytest.mark.parametrize("n", [64, 300])
    def test_its_measures_match_the_closed_forms(self, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(complexity, "cpu_seconds", counted_seconds)
        d = 32
        with torch.no_grad():
            costs = complexity.method_costs(n, d)
        assert costs[complexity.READABLE].bytes == FLOAT_BYTES * (2 * n * n + n * d)  # scores, weights, output
        assert costs[complexity.FAST].bytes == FLOAT_BYTES * (
            n * d + n
        )  # output, and what the backward pass would need
        alone, layers = 4 * n * n * d, (8 * n * d * d + 4 * n * n * d, 4 * n * d * d)
        assert [each.operations for each in costs.values()] == [alone, alone, 2 * n * d * d, *layers]
        assert [each.chain for each in costs.values()] == [2, 2, n, 4, n]

    def test_attention_and_the_rnn_are_compared_fairly(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without projections attention takes fewer operations up to N = d / 2; with them it never does."""
        monkeypatch.setattr(complexity, "cpu_seconds", counted_seconds)
        d = 32
        with torch.no_grad():
            costs = {n: complexity.method_costs(n, d) for n in (1, d // 4, d // 2, d, 2 * d)}
        work = {n: {way: cost.operations for way, cost in each.items()} for n, each in costs.items()}
        less = [n for n, each in work.items() if each[complexity.FAST] < each[complexity.RECURRENCE]]
        assert less == [1, d // 4]
        assert work[d // 2][complexity.FAST] == work[d // 2][complexity.RECURRENCE]
        for n, each in work.items():
            assert each[complexity.ATTENTION_LAYER] / each[complexity.RNN_LAYER] == 2 + n / d

    def test_the_recurrence_is_that_of_an_rnn(self) -> None:
        rnn = nn.RNN(6, 6, bias=False)
        x = torch.randn(9, 6)
        with torch.no_grad():
            projected = x @ rnn.get_parameter("weight_ih_l0").T
            last = complexity.recurrence(projected, rnn.get_parameter("weight_hh_l0"))
            torch.testing.assert_close(last, rnn(x)[1])

    def test_the_gallery_has_its_operations(self) -> None:
        d, n = 128, 32
        with torch.no_grad():
            costs = complexity.method_costs(n, d)
        layer, rnn = (costs[way].operations / 1e6 for way in (complexity.ATTENTION_LAYER, complexity.RNN_LAYER))
        page = Path("regard/labs/gallery/complexity.md").read_text(encoding="utf-8")
        assert f"at N = {n}, {layer:.1f} million compared with {rnn:.1f} million" in page
        assert (f"{layer:.1f}", f"{rnn:.1f}") == ("4.7", "2.1")

    def test_a_fused_kernel_stores_no_weights(self) -> None:
        """Measured by PyTorch's profiler."""
        n = 4096
        q = torch.randn(1, 1, n, 8)
        with torch.no_grad(), profile(profile_memory=True, use_kineto=False) as profiled:
            fast_attention(q, q, q)
        largest = max(event.cpu_memory_usage for event in profiled.function_events)
        assert n * 8 * FLOAT_BYTES <= largest < n * n * FLOAT_BYTES / 8

    @pytest.mark.slow
    def test_fitted_terms_match_the_flops_of_training(self) -> None:
        with torch.no_grad():
            parts = complexity.fitted_terms(
                {(n, m): complexity.counted_operations(n, m) for n in (3, 7, 11) for m in (2, 9, 20)}
            )
        config = preset("tiny", vocab_size=33)
        assert parts[:3] == pytest.approx([4 * config.d_model * config.layers] * 3)
        n, m = 13, 21
        work = TokenCounts(n, n * n, decoded=m, decoder_pairs=m * m, cross_pairs=n * m, outputs=m)
        assert sum(c * x for c, x in zip(parts, (n * n, m * m, n * m, n, m), strict=True)) == pytest.approx(
            forward_flops(config, work)
        )

    @pytest.mark.slow
    def test_quadratic_memory_is_detected(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(complexity, "fast_attention", attention)
        monkeypatch.setattr(complexity, "cpu_seconds", counted_seconds)
        assert failing(run_lab_with("complexity", *self.SIZES, "lengths=64,128,256")) == [0]

    @pytest.mark.slow
    def test_missing_projections_are_detected(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(complexity, "cpu_seconds", counted_seconds)
        monkeypatch.setattr(complexity, "MultiHeadAttention", WithoutProjections)
        assert 3 in failing(run_lab_with("complexity", "lengths=8,16,32", "width=16", "paths=4", "pairs=2,4,6"))


class TestPaths:
    @pytest.mark.parametrize("n", [2, 7])
    def test_rounds_until_the_last_depends_on_the_first(self, n: int) -> None:
        assert complexity.path_length(complexity.attention_round(4), n, 4) == 1
        assert complexity.path_length(complexity.rnn_round(4), n, 4) == n
        nearby = [complexity.path_length(complexity.attention_round(4, reach), n, 4) for reach in (1, 2, 6)]
        assert nearby == [n - 1, n // 2, 1]

    def test_independent_positions_have_no_path(self) -> None:
        with pytest.raises(ValueError, match="does not depend on the first input"):
            complexity.path_length(lambda states, inputs: states + inputs, 3, 4)

    def test_restricted_attention_is_detected(self, monkeypatch: pytest.MonkeyPatch) -> None:
        near = complexity.attention_round
        monkeypatch.setattr(complexity, "attention_round", lambda width, _reach=None: near(width, 2))
        assert not complexity.path_lengths((4, 8), 3)[1].holds


class TestRnn:
    @pytest.mark.slow
    @pytest.mark.usefixtures("without_type_checks")  # checked shapes would take half of the time
    def test_its_claims_hold(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(rnn, "cpu_seconds", counted_seconds)
        result = run_lab_with("rnn", "distances=2,32", "steps=130", "lengths=16,32,64", "seed=1")
        assert result.holds, [result.claims[i].text for i in failing(result)]
        assert len(render(result).axes) == 3

    def test_both_models_have_as_many_parameters(self) -> None:
        first, second = (rnn.parameter_count(rnn.new_model(kind, rnn.Sizes())) for kind in rnn.KINDS)
        assert abs(first / second - 1) < 0.05

    def test_the_sequences_to_copy(self) -> None:
        tokens, letters = rnn.draw_sequences(3, 5)
        assert tokens.shape == (3, 9)
        assert torch.equal(tokens[:, :2], letters)
        assert (tokens[:, 2:7] == rnn.BLANK).all()
        assert (tokens[:, 7:] == rnn.RECALL).all()

    @pytest.mark.slow
    def test_an_lstm_instead_of_the_transformer_is_detected(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def lstm(_width: int) -> nn.Module:
            return rnn.LstmModel(24)

        monkeypatch.setattr(rnn, "transformer", lstm)
        assert {1, 2} <= set(failing(run_lab_with("rnn", "distances=2,48", "steps=20", "lengths=16,32")))


class TestKvCache:
    SIZES = ("lengths=16,128,512", "layers=2")

    @pytest.mark.slow
    def test_its_claims_hold(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(kv_cache, "cpu_seconds", counted_seconds)
        result = run_lab_with("kv-cache", *self.SIZES)
        assert result.holds, [result.claims[i].text for i in failing(result)]
        assert len(render(result).axes) == 2

    @pytest.mark.slow
    def test_bytes_and_operations_match_the_closed_forms(self) -> None:
        tokens, caches = run_lab_with("kv-cache", "lengths=8,64", "width=32", "layers=3", "heads=2").tables
        config = preset("tiny", kind="decoder", vocab_size=33, d_model=32, layers=3, heads=2)
        for length, cached, recomputed, *_ in tokens.rows:
            n = int(length)
            assert int(cached.replace(",", "")) == forward_flops(config, TokenCounts(1, n, outputs=1))
            assert int(recomputed.replace(",", "")) == forward_flops(config, TokenCounts(n, n * n, outputs=1))
        one_row = 2 * 3 * 2 * 16 * 64 * FLOAT_BYTES
        expected = [
            one_row,
            8 * one_row,
            4 * one_row,
            4 * one_row,
        ]  # batch of 8; with half the bytes; with half the heads
        assert [row[1:] for row in caches.rows] == [(f"{each:,}",) * 3 for each in expected]

    @pytest.mark.slow
    def test_a_cache_that_is_too_long_is_detected(self, monkeypatch: pytest.MonkeyPatch) -> None:
        honest = Decoder.allocate_cache
        monkeypatch.setattr(Decoder, "allocate_cache", lambda self, batch, length: honest(self, batch, length + 1))
        assert 3 in failing(run_lab_with("kv-cache", *self.SIZES))

    @pytest.mark.slow
    def test_a_cache_that_stores_nothing_is_detected(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(AttentionCache, "put", lambda self, _k, _v: (self.k, self.v))
        assert 0 in failing(run_lab_with("kv-cache", *self.SIZES))


class TestSchedule:
    @pytest.mark.slow
    @pytest.mark.usefixtures("without_type_checks")
    def test_its_claims_hold(self) -> None:
        result = run_lab_with("schedule", "seed=3", "steps=110", "rows=8")
        assert result.holds, [result.claims[i].text for i in failing(result)]
        assert len(render(result).axes) == 2

    def test_without_warm_up_the_rate_starts_at_its_maximum(self) -> None:
        sizes = schedule.Sizes(warmup=100, width=32)
        warm, cold = (schedule.WarmupVariant("", "post", each, "") for each in (True, False))
        assert [warm.rate(step, sizes) for step in (1, 50, 100, 400)] == pytest.approx(
            [32**-0.5 * min(step**-0.5, step * 100**-1.5) for step in (1, 50, 100, 400)]
        )
        assert cold.rate(1, sizes) == cold.rate(100, sizes) == warm.rate(100, sizes)
        assert cold.rate(400, sizes) == warm.rate(400, sizes)

    @pytest.mark.slow
    def test_untrained_models_are_detected(self) -> None:
        assert failing(run_lab_with("schedule", "steps=10")) == [0, 2, 3]
