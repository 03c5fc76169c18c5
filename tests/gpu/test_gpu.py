"""Tests on a CUDA device: its kernels equal the readable path in float64, and packed batches equal the dense mask.

CI has no such device; run these where there is one: `make test-gpu`.
"""

import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from random import Random, randrange
from threading import Event
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

import regard
from regard.config import PRESETS, preset
from regard.data import batches as lay
from regard.data.batches import IGNORED_TARGET, Batch, Batches
from regard.decoding.cancellation import Cancelled, cancellable
from regard.decoding.cuda_graph_decoding import RecordedSearches
from regard.model.attention import attention, can_use_tiles, fast_attention
from regard.model.masks import MAX_TILE_ROW, PackedMask, PlainMask, biased_mask, dense_mask, packed_mask
from regard.model.transformer import Network, build
from regard.petit import corpus_files as files
from regard.training import loss as loss_module
from regard.training.cuda_graph_training import WARMUP_STEPS, StepRecorder
from regard.training.events import Event as TrainingEvent
from regard.training.events import Stepped
from regard.training.loss import loss_sum, losses_and_gradients
from regard.training.objective import Objective
from regard.training.optimizer import Optimizer
from regard.training.parallel import Ranks
from regard.training.recipe import DataSection, Recipe, TaskKind, TokenizerSection, TrainSection
from regard.training.step import StepRunner
from regard.training.train import train_recipe, update_weights
from tests.support.attention_cases import MASKS, make_mask, output_and_gradients
from tests.support.batches import DATA, END, MASKING, PAD, SEP, TAGGED, TEXT
from tests.support.commands import regard as regard_command
from tests.support.commands import write
from tests.support.networks import PAIRS, SHAPES, ids
from tests.support.oracles import gradient, small
from tests.support.text_models import random_masked_model, random_model

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings("default"),  # torch's compiler warns about torch's own code
]

SIZES = [(2, 4, 4, 33, 47, 32, 32), (1, 6, 2, 130, 130, 64, 64), (3, 4, 1, 7, 9, 16, 48), (2, 2, 2, 256, 64, 128, 128)]


@pytest.mark.parametrize("kind", [*MASKS, "packed window"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", SIZES)
def test_readable_and_fast_paths_agree(kind: str, dtype: torch.dtype, size: tuple[int, ...]) -> None:
    b, h, g, t, s, d_k, d_v = size
    packed, window = kind in ("packed", "packed window"), 5 if kind == "packed window" else None
    t = s if packed or kind == "causal" else t
    q, k, v = (torch.randn(b, heads, n, d) for heads, n, d in ((h, t, d_k), (g, s, d_k), (g, s, d_v)))
    towards = torch.randn(b, h, t, d_v)
    if packed:
        lengths = torch.tensor([[t // 3, 0, t // 2]] * b).cuda()
        mask: PlainMask = packed_mask(lengths, lengths, t, s, causal=True, window=window)
        assert isinstance(mask, PackedMask if max(t, s) <= MAX_TILE_ROW else BlockMask)
        exact_mask: PlainMask = packed_mask(lengths.cpu(), lengths.cpu(), t, s, causal=True, window=window)
        assert isinstance(exact_mask, Tensor)
        assert torch.equal(dense_mask(mask, torch.empty(b, h, t, s).cuda()).cpu(), exact_mask)  # type: ignore[union-attr]
    else:
        exact_mask = make_mask(kind, b, h, t, s)
        mask = exact_mask.cuda() if isinstance(exact_mask, Tensor) else exact_mask
    inputs = [x.to(dtype) for x in (q, k, v)]
    exact = output_and_gradients(attention, [x.double() for x in inputs], exact_mask, towards.to(dtype).double())
    readable = output_and_gradients(attention, [x.cuda() for x in inputs], mask, towards.to(dtype).cuda())
    fast = output_and_gradients(fast_attention, [x.cuda() for x in inputs], mask, towards.to(dtype).cuda())
    unit = torch.finfo(dtype).eps
    for right, slow, quick in zip(exact, readable, fast, strict=True):
        yardstick = (slow.double().cpu() - right).abs().max()
        allowed = 2 * yardstick + 8 * unit * right.abs().max().clamp(min=1)
        error = (quick.double().cpu() - right).abs().max()
        assert error <= allowed, f"{error:.2e} > {allowed:.2e}, readable {yardstick:.2e}"


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("per_row", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_bias_on_the_scores_gives_the_same_on_both_paths(kind: str, per_row: bool, dtype: torch.dtype) -> None:
    """Output and gradients, of the bias too; also with grouped heads and without the usual scale."""
    b, h, g, t, d = 2, 6, 2, 45, 32
    inputs = [torch.randn(b, n, t, d).to(dtype) for n in (h, g, g)]
    bias = torch.randn((b, h, t, t) if per_row else (h, t, t)).to(dtype)
    mask, towards = make_mask(kind, b, h, t, t), torch.randn(b, h, t, d).to(dtype)

    def attend(path: Callable[..., Any], device: str, precision: torch.dtype) -> list[Tensor]:
        q, k, v, shift = arguments = [x.to(device, precision).requires_grad_() for x in (*inputs, bias)]
        here = mask.to(device) if isinstance(mask, Tensor) else mask
        output = path(q, k, v, biased_mask(here, shift, b), 0.0, 0.3)
        output = output[0] if isinstance(output, tuple) else output
        return [output.detach(), *torch.autograd.grad(output, arguments, towards.to(device, precision))]

    exact = attend(attention, "cpu", torch.float64)
    readable, fast = attend(attention, "cuda", dtype), attend(fast_attention, "cuda", dtype)
    for right, slow, quick in zip(exact, readable, fast, strict=True):
        assert_close(quick, right, slow, 32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_that_sees_nothing(dtype: torch.dtype) -> None:
    q, k, v = (torch.randn(2, 4, 64, 32, dtype=dtype, device="cuda", requires_grad=True) for _ in range(3))
    mask = torch.ones(2, 1, 64, 64, dtype=torch.bool, device="cuda")
    mask[0, :, 5] = False
    mask[1] = False
    lengths = torch.tensor([[20, 30], [0, 0]], device="cuda")
    for each, empty in ((mask, 5), (packed_mask(lengths, lengths, 64, 64, causal=True), 55)):
        output = fast_attention(q, k, v, each)
        gradients = torch.autograd.grad(output.float().square().sum(), (q, k, v))
        assert (output[0, :, empty] == 0).all()
        assert (output[1] == 0).all()
        assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("name", SHAPES)
def test_models_give_the_same_results_as_on_the_cpu(name: str) -> None:
    """Padded and packed, forward and backward, float32 without TF32."""
    torch.backends.cuda.matmul.allow_tf32 = False
    sizes = {"d_model": 64, "heads": 4, "d_ff": 128} | ({"d_k": 16, "d_v": 32} if name == "uneven" else {})
    config = SHAPES[name].__class__(**{**SHAPES[name].__dict__, **sizes})
    model, tokens = build(config), ids(2, 24)
    for lengths in (torch.tensor([24, 13]), torch.tensor([[10, 3, 8], [24, 0, 0]])):
        arguments = (tokens, tokens, lengths, lengths) if name in PAIRS else (tokens, lengths)
        logits, gradients = [], []
        for device in ("cpu", "cuda"):
            model.to(device).zero_grad()
            output = model(*(x.to(device) for x in arguments))
            total = lengths if lengths.dim() == 1 else lengths.sum(1)
            real = (torch.arange(24) < total[:, None]).to(device)
            F.cross_entropy(output[real], tokens.to(device)[real].clamp(max=output.size(-1) - 1)).backward()
            logits.append(output.detach()[real].cpu())
            gradients.append([p.grad.cpu().clone() for p in model.parameters() if p.grad is not None])
        torch.testing.assert_close(logits[1], logits[0], rtol=1e-4, atol=1e-4)
        for there, here in zip(*gradients, strict=True):
            torch.testing.assert_close(here, there, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("changes", [{"kind": "encoder"}, {"kind": "encoder", "classes": 3}, {"kind": "decoder"}, {}])
def test_texts_are_read_as_on_the_cpu(changes: dict[str, object]) -> None:
    """Sentence vectors, the vectors of every layer, classes and the logit lens, in float64."""
    model = random_model(**changes)
    readings: list[list[Tensor]] = []
    for device in ("cpu", "cuda"):
        model.to(device)
        readings.append([model.embed(TEXTS), *(hidden.vectors for hidden in model.hidden(TEXTS))])
        if model.config.classes:
            readings[-1].append(model.class_probabilities(TEXTS))
        else:
            lens = model.attend(TEXTS[0], lens=3).lens
            assert lens is not None
            readings[-1].append(torch.tensor([[[p for _, p in top] for top in state] for state in lens.top]))
    for here, there in zip(*readings, strict=True):
        assert there.device.type == "cpu"
        torch.testing.assert_close(there, here, rtol=1e-5, atol=1e-6)


def test_masks_are_filled_as_on_the_cpu() -> None:
    model = random_masked_model()
    here, there = (model.to(device).fillings("Marie <mask> une <mask>.", k=4) for device in ("cpu", "cuda"))
    flat = ([filling for mask in masks for filling in mask] for masks in (here, there))
    for one, other in zip(*flat, strict=True):
        assert (one.token, one.text) == (other.token, other.text)
        assert other.probability == pytest.approx(one.probability, rel=1e-5)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_compiles_into_one_graph(name: str) -> None:
    """With generated kernels, at full width; all layers are alike, so two of them suffice."""
    torch.compiler.reset()
    config = preset(name, layers=2, dropout=0.0)
    model = build(config).cuda()
    pair, tokens = config.kind == "encoder-decoder", torch.randint(1, 500, (2, 128), device="cuda")
    packed = torch.tensor([[50, 70], [100, 28]], device="cuda")
    for arguments in (
        (tokens, tokens) if pair else (tokens,),
        (tokens, tokens, packed[:, 0], packed[:, 0]) if pair else (tokens, packed[:, 0]),
        (tokens, tokens, packed, packed) if pair else (tokens, packed),
    ):
        results = []
        for call in (model, torch.compile(model, fullgraph=True)):
            model.zero_grad()
            logits = call(*arguments)
            logits.float().square().mean().backward()
            results.append([logits.detach(), *(p.grad for p in model.parameters() if p.grad is not None)])
        for eager, compiled in zip(*results, strict=True):
            scale = eager.abs().max().clamp(min=1e-6)
            assert (compiled - eager).abs().max() <= 5e-3 * scale


@pytest.mark.parametrize("name", ["window", "t5", "alibi", "alibi encoder"])
def test_windows_and_biases_compile_into_one_graph(name: str) -> None:
    """With generated kernels, padded and packed."""
    torch.compiler.reset()
    config = SHAPES[name].__class__(**{**SHAPES[name].__dict__, "d_model": 64, "heads": 4, "d_ff": 128})
    model = build(config).cuda()
    compiled = torch.compile(model, fullgraph=True)
    for t in (64, 128):
        tokens = torch.randint(1, 30, (2, t), device="cuda")
        for lengths in (torch.tensor([t, t // 2]), torch.tensor([[t // 3, t // 2], [t, 0]])):
            arguments = (tokens, tokens, lengths, lengths) if name in PAIRS else (tokens, lengths)
            results = []
            for call in (model, compiled):
                model.zero_grad()
                logits = call(*(x.cuda() for x in arguments))
                logits.float().square().mean().backward()
                results.append([logits.detach(), *(p.grad for p in model.parameters() if p.grad is not None)])
            for eager, fused in zip(*results, strict=True):
                assert (fused - eager).abs().max() <= 5e-3 * eager.abs().max().clamp(min=1e-6)


def test_packed_batches_of_many_sizes_stay_on_the_fused_kernel() -> None:
    """For eager models, too: FlexAttention's unfused path warns, and here its warning is an error."""
    torch.compiler.reset()
    config = preset("tiny", dropout=0.0)
    model = build(config).cuda()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*flex_attention called without torch.compile.*")
        for t in range(100, 220, 10):
            tokens = torch.randint(1, 500, (2, t))
            lengths = torch.tensor([[t // 2, t // 3], [t, 0]])
            packed = model(*(x.cuda() for x in (tokens, tokens, lengths, lengths)))
            alone = model(tokens[1:].cuda(), tokens[1:].cuda())
            torch.testing.assert_close(packed[1:], alone, rtol=1e-2, atol=1e-2)


# Tiles


def assert_close(found: Tensor, right: Tensor, yardstick: Tensor, units: int) -> None:
    """As close to the float64 result as the readable path in the same type, within some units in the last place."""
    unit, error = torch.finfo(found.dtype).eps, (found.double().cpu() - right).abs().max()
    allowed = 2 * (yardstick.double().cpu() - right).abs().max() + units * unit * right.abs().max().clamp(min=1)
    assert error <= allowed, f"{error:.2e} > {allowed:.2e}"


LENGTHS = {
    "causal": ([[40, 1, 60], [128, 0, 0], [0, 5, 100]], None),
    "whole": ([[40, 1, 60], [128, 0, 0], [0, 5, 100]], None),
    "prefix": ([[40, 1, 60], [128, 0, 0], [0, 5, 100]], None),
    "window": ([[40, 1, 60], [128, 0, 0], [0, 5, 100]], None),
    "cross": ([[40, 1, 20], [77, 0, 0], [3, 5, 60]], [[10, 30, 60], [1, 0, 0], [100, 0, 28]]),
    "empty": ([[0, 0, 0], [3, 0, 0], [17, 0, 2]], None),
}
"""Lengths of queries and, where they differ, of keys; queries without keys see nothing."""


@pytest.mark.parametrize("kind", LENGTHS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("width", [32, 64, 80])
def test_tiles_are_the_readable_attention(width: int, dtype: torch.dtype, kind: str) -> None:
    ours, theirs = LENGTHS[kind]
    queries, keys = torch.tensor(ours), torch.tensor(theirs or ours)
    t, s = (77 if theirs else 128), 128
    prefix = queries // 3 if kind == "prefix" else None

    def mask_on(device: str) -> PlainMask:
        known = None if prefix is None else prefix.to(device)
        causal, window = kind in ("causal", "prefix", "window"), 7 if kind == "window" else None
        return packed_mask(queries.to(device), keys.to(device), t, s, causal, known, window)

    mask, exact_mask = mask_on("cuda"), mask_on("cpu")
    assert isinstance(mask, PackedMask)
    assert isinstance(exact_mask, Tensor)
    inputs = [torch.randn(3, 2, n, width).to(dtype) for n in (t, s, s)]
    towards = torch.randn(3, 2, t, width).to(dtype)
    exact = output_and_gradients(attention, [x.double() for x in inputs], exact_mask, towards.double())
    readable = output_and_gradients(attention, [x.cuda() for x in inputs], mask, towards.cuda())
    tiles = output_and_gradients(fast_attention, [x.cuda() for x in inputs], mask, towards.cuda())
    # Heads too wide for a tile go through PyTorch's own kernel, whose float32 gradients are up to 26 units off.
    units = 8 if can_use_tiles(inputs[0].cuda(), inputs[2].cuda()) else 64
    for right, slow, quick in zip(exact, readable, tiles, strict=True):
        assert_close(quick, right, slow, units)
    blind = ~exact_mask.any(-1).expand(3, 2, t)
    assert blind.any()
    assert (tiles[0].cpu()[blind] == 0).all()


def test_tiles_read_heads_as_they_were_split() -> None:
    """Heads are adjacent in each token's vector, and values may be wider than keys."""
    lengths = torch.tensor([[30, 20], [50, 0]])
    q, k = (torch.randn(2, 60, 3, 16).transpose(1, 2) for _ in range(2))
    v = torch.randn(2, 60, 3, 48).transpose(1, 2)
    towards = torch.randn(2, 60, 3, 48).transpose(1, 2)
    exact_mask = packed_mask(lengths, lengths, 60, 60, causal=True)
    mask = packed_mask(lengths.cuda(), lengths.cuda(), 60, 60, causal=True)
    exact = output_and_gradients(attention, [x.double() for x in (q, k, v)], exact_mask, towards.double())
    tiles = output_and_gradients(fast_attention, [x.cuda() for x in (q, k, v)], mask, towards.cuda())
    for right, found in zip(exact, tiles, strict=True):
        torch.testing.assert_close(found.cpu().double(), right, rtol=1e-4, atol=1e-4)


# The loss


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("outputs", [3, 8_191, 8_192, 8_193, 50_257])
def test_the_loss_kernel_equals_the_cross_entropy(outputs: int, dtype: torch.dtype, smoothing: float) -> None:
    logits = (3 * torch.randn(33, outputs, device="cuda")).to(dtype)
    labels = torch.randint(outputs, (33,), device="cuda")
    labels[[0, 7, 32]] = IGNORED_TARGET
    labels[1], labels[2] = 0, outputs - 1
    exact = logits.double().requires_grad_()
    right = F.cross_entropy(exact, labels, reduction="none", ignore_index=IGNORED_TARGET, label_smoothing=smoothing)
    (right_gradient,) = torch.autograd.grad(right.sum(), exact)
    losses = losses_and_gradients(logits, labels, smoothing)  # overwrites the logits with their gradient
    assert losses.dtype == torch.float32
    torch.testing.assert_close(losses.double(), right.detach(), rtol=1e-5, atol=1e-5)
    unit = torch.finfo(dtype).eps
    torch.testing.assert_close(logits.double(), right_gradient, rtol=2 * unit, atol=max(1e-6, unit / 100))
    assert (logits[[0, 7, 32]] == 0).all()


@pytest.mark.parametrize("rows", [7, 1_000])
def test_the_loss_on_a_gpu_equals_the_loss_on_a_cpu(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    monkeypatch.setattr(loss_module, "rows_at_once", lambda *_: rows)
    hidden, weight, bias = torch.randn(50, 24), torch.randn(301, 24), torch.randn(301)
    labels = torch.randint(300, (50,))
    labels[::4] = IGNORED_TARGET
    found = []
    for device in ("cpu", "cuda"):
        inputs = [x.detach().to(device).requires_grad_() for x in (hidden, weight, bias)]
        total = loss_sum(inputs[0], inputs[1][:-1], inputs[2][:-1], labels.to(device), 0.1)
        found.append([total.detach().cpu(), *(x.cpu() for x in torch.autograd.grad(3 * total, inputs))])
    for there, here in zip(*found, strict=True):
        torch.testing.assert_close(here, there, rtol=1e-4, atol=1e-3)


# Steps

CONFIG = small(vocab_size=100, pad=-1, d_model=64, d_ff=128, max_length=256, norm="pre")
LAID: dict[str, Callable[[], Batches]] = {
    "tiles": lambda: lay.packed_translation_batches(DATA, END, PAD, 512, row=128),
    "flex": lambda: lay.packed_translation_batches(DATA, END, PAD, 512, row=256),
    "padded": lambda: lay.translation_batches(DATA, END, PAD, 512),
}


def small_network(dropout: float = 0.0, kind: str = "encoder-decoder") -> Network:
    torch.manual_seed(1)
    config = CONFIG.__class__(**{**CONFIG.__dict__, "dropout": dropout, "kind": kind})
    return build(config).cuda()


def make_stepper(network: Network, recorded: bool = True) -> StepRunner:
    stepper = StepRunner(
        update_weights,
        Objective(network, 0.1),
        Optimizer(network, TrainSection(eps=1e-3)),
        torch.device("cuda"),
        Ranks(),
    )
    stepper.recorder = stepper.recorder if recorded else None
    return stepper


def batches_of_one_shape(name: str, count: int) -> list[Batch]:
    """Return this many batches of one shape, over as many epochs as needed."""
    batches = LAID[name]()

    def forever() -> Iterator[Batch]:
        for epoch in range(1_000):
            yield from batches.epoch(epoch)

    found = [batch for batch, _ in zip(forever(), range(count), strict=False)]
    assert len({batch.tokens.shape for batch in found}) == 1
    return found


@pytest.mark.parametrize("name", ["tiles", "flex"])
def test_recorded_steps_equal_single_steps(name: str) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    batches = batches_of_one_shape(name, 8)
    results = []
    for recorded in (False, True):
        network = small_network()
        stepper = make_stepper(network, recorded)
        found = [
            stepper.step([batch], 1e-2 / number, float(batch.targets)).cpu()
            for number, batch in enumerate(batches, start=1)
        ]
        if recorded:
            assert isinstance(stepper.recorder, StepRecorder)
            assert len(stepper.recorder.graphs) == 1
            assert len(batches) > WARMUP_STEPS + 2
        state = {key: x.cpu() for key, x in stepper.optimizer.state().items()}
        results.append((torch.stack(found), [x.detach().cpu() for x in network.parameters()], state))
    (eager, weights, state), (replayed, others, other_state) = results
    assert len({round(float(loss), 2) for loss in eager[:, 0]}) == 8  # else replayed batches would go unnoticed
    torch.testing.assert_close(replayed, eager, rtol=1e-4, atol=1e-5)
    for ours, theirs in zip(others, weights, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-4)
    assert all(float(x) == 8 for key, x in other_state.items() if key.startswith("step."))
    assert state.keys() == other_state.keys()


def test_recorded_steps_draw_new_masks_each_time() -> None:
    """One batch, a learning rate of zero: only dropout can make two losses differ, and only the seed determines it."""
    (batch,) = batches_of_one_shape("tiles", 1)
    stepper = make_stepper(small_network(dropout=0.3))

    def loss(seed: int) -> float:
        torch.manual_seed(seed)
        return float(stepper.step([batch], 0.0, float(batch.targets))[0])

    losses = [loss(seed) for seed in range(10)]
    assert isinstance(stepper.recorder, StepRecorder)
    assert stepper.recorder.graphs
    assert len(set(losses)) == 10
    assert loss(7) == pytest.approx(losses[7], rel=1e-6)
    assert loss(9) == pytest.approx(losses[9], rel=1e-6)


def test_a_recorded_step_skips_non_finite_gradients() -> None:
    batches = batches_of_one_shape("tiles", 8)
    network = small_network()
    stepper = make_stepper(network)
    for batch in batches[:6]:
        assert stepper.step([batch], 1e-3, float(batch.targets))[2] == 0
    with torch.no_grad():
        weight = network.get_parameter("decoder.layers.0.feed_forward.up.weight")
        before = weight[0, 0].clone()
        weight[0, 0] = float("inf")
    kept = [x.detach().clone() for x in network.parameters()]
    assert stepper.step([batches[6]], 1e-3, float(batches[6].targets))[2] == 1
    assert all(map(torch.equal, kept, network.parameters()))
    with torch.no_grad():
        weight[0, 0] = before
    assert stepper.step([batches[7]], 1e-3, float(batches[7].targets))[2] == 0


@pytest.mark.parametrize("name", ["tiles", "flex"])
def test_packed_and_padded_rows_have_the_same_gradients(name: str) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    network = small_network()
    found = []
    for each in ("padded", name):
        network.zero_grad()
        total = torch.zeros((), device="cuda")
        for batch in LAID[each]().epoch(0):
            part = Objective(network, 0.1)(batch.to("cuda"))
            part.backward()
            total += part.detach()
        found.append([total, *(gradient(x).clone() for x in network.parameters())])
    for packed, padded in zip(found[1], found[0], strict=True):
        scale = padded.abs().max().clamp(min=1)
        assert (packed - padded).abs().max() <= 1e-4 * scale


def test_packed_and_padded_prefixes_have_the_same_gradients() -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.manual_seed(1)
    network = build(CONFIG.__class__(**{**CONFIG.__dict__, "kind": "decoder", "prefix": True})).cuda()
    laid: list[Batches] = [
        lay.decoder_translation_batches(DATA, END, SEP, PAD, 512, prefix=True),
        lay.packed_decoder_translation_batches(DATA, END, SEP, PAD, 512, row=128, prefix=True),
        lay.packed_decoder_translation_batches(DATA, END, SEP, PAD, 512, row=256, prefix=True),
    ]
    found = []
    for batches in laid:
        network.zero_grad()
        for batch in batches.epoch(0):
            Objective(network)(batch.to("cuda")).backward()
        found.append([gradient(x).clone() for x in network.parameters()])
    for padded, tiles, flex in zip(*found, strict=True):
        scale = padded.abs().max().clamp(min=1)
        assert (tiles - padded).abs().max() <= 1e-4 * scale
        assert (flex - padded).abs().max() <= 1e-4 * scale


def test_packed_and_padded_taggers_have_the_same_gradients() -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.manual_seed(1)
    changes = {"kind": "encoder", "classes": 3, "classes_per": "token"}
    network = build(CONFIG.__class__(**{**CONFIG.__dict__, **changes})).cuda()
    laid: list[Batches] = [
        lay.tagging_batches(TAGGED, END, PAD, 512),
        lay.packed_tagging_batches(TAGGED, END, PAD, 512, row=128),
        lay.packed_tagging_batches(TAGGED, END, PAD, 512, row=256),
    ]
    found = []
    for batches in laid:
        network.zero_grad()
        for batch in batches.epoch(0):
            Objective(network, 0.1)(batch.to("cuda")).backward()
        found.append([gradient(x).clone() for x in network.parameters()])
    for padded, tiles, flex in zip(*found, strict=True):
        scale = padded.abs().max().clamp(min=1)
        assert (tiles - padded).abs().max() <= 1e-4 * scale
        assert (flex - padded).abs().max() <= 1e-4 * scale


def test_packed_and_padded_masked_texts_have_the_same_gradients() -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.manual_seed(1)
    network = build(CONFIG.__class__(**{**CONFIG.__dict__, "kind": "encoder"})).cuda()
    found = []
    for batches in (
        lay.masked_batches(TEXT, END, PAD, MASKING, 512),
        lay.packed_masked_batches(TEXT, END, PAD, MASKING, 512, row=128),
    ):
        network.zero_grad()
        for batch in batches.epoch(0):
            Objective(network)(batch.to("cuda")).backward()
        found.append([gradient(x).clone() for x in network.parameters()])
    for padded, packed in zip(*found, strict=True):
        assert (packed - padded).abs().max() <= 1e-4 * padded.abs().max().clamp(min=1)


# Memory


@pytest.fixture
def limit_memory() -> Iterator[Callable[[int], None]]:
    """Limit the memory that may be allocated beyond what is in use now."""

    def only(more: int) -> None:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + more) / total)

    yield only
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.empty_cache()


def large_batch() -> Batch:
    """65,536 tokens: hundreds of megabytes of activations in a small model."""
    tokens = torch.randint(2, 90, (512, 128))
    return Batch(tokens, tokens.roll(-1, 1))


def step_memory(stepper: StepRunner, batch: Batch, lr: float) -> tuple[int, Tensor]:
    """Return the peak memory of a step beyond what is in use before it, and the step's result."""
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    found = stepper.step([batch], lr, float(batch.targets)).cpu()
    return torch.cuda.max_memory_allocated() - before, found


def test_a_batch_that_does_not_fit_is_split(limit_memory: Callable[[int], None]) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    batch = large_batch()
    results = []
    needed = 0
    for tight in (False, True):
        network = small_network(kind="decoder")
        stepper = make_stepper(network)
        if tight:
            limit_memory(needed // 2)
        needed, found = step_memory(stepper, batch, 0.1)
        results.append((stepper.pieces, found, [x.detach().cpu() for x in network.parameters()]))
        del stepper, network
    (whole, right, weights), (pieces, found, others) = results
    assert whole == 1
    assert 1 < pieces <= 512
    torch.testing.assert_close(found, right, rtol=1e-3, atol=1e-4)
    for ours, theirs in zip(others, weights, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-3)


def test_running_out_of_memory_while_a_step_is_recorded(limit_memory: Callable[[int], None]) -> None:
    """The first three fit; recording runs out of memory, and the batch is split as usual."""
    batch = large_batch()
    network = small_network(kind="decoder")
    stepper = make_stepper(network)
    needed = max(step_memory(stepper, batch, 1e-3)[0] for _ in range(WARMUP_STEPS))
    assert stepper.pieces == 1
    limit_memory(needed // 2)
    found = [stepper.step([batch], 1e-3, float(batch.targets)).cpu() for _ in range(2)]
    assert stepper.pieces > 1
    assert stepper.recorder is None
    assert all(each.isfinite().all() and each[2] == 0 for each in found)
    steps = {float(x) for name, x in stepper.optimizer.state().items() if name.startswith("step.")}
    assert steps == {WARMUP_STEPS + 2}


# Threads

TEXTS = [f"Le {animal} dort sur {place}." for animal in ("chat", "chien", "cheval") for place in ("le lit", "la table")]


def translations(model: regard.Model, seed: int, calls: int) -> list[list[str]]:
    """Translate batches whose shapes keep changing, so that many graphs are captured."""
    random = Random(seed)
    found = []
    for _ in range(calls):
        texts = [" ".join(random.choices(TEXTS, k=random.randint(1, 4))) for _ in range(random.randint(1, 9))]
        found.append(model.translate(texts, beam=random.choice([1, 4])))
    return found


@pytest.mark.parametrize("names", [("fr-en", "petit-fr-en"), ("fr-en",)], ids=["two models", "one model"])
def test_threads_decode_on_one_gpu(names: tuple[str, ...]) -> None:
    """Four threads translate while others allocate and pin memory: no capture fails, and no text changes."""
    models = [regard.load(name).to("cuda").quick() for name in names]
    jobs = [(models[i % len(models)], i) for i in range(4)]
    over = Event()

    def disturb() -> None:
        kept: list[Tensor] = []
        while not over.is_set():
            kept = [*kept[-3:], torch.empty(randrange(1, 2**24), device="cuda"), torch.empty(999).pin_memory()]
            torch.randn(randrange(1, 500), 300, device="cpu").to("cuda").matmul(
                torch.ones(300, 3, device="cuda")
            ).tolist()

    with ThreadPoolExecutor(6) as pool:
        others = [pool.submit(disturb) for _ in range(2)]
        threads = [pool.submit(translations, model, seed, 20) for model, seed in jobs]
        try:
            together = [thread.result() for thread in threads]
        finally:
            over.set()
        for other in others:
            other.result()
    alone = [translations(model, seed, 20) for model, seed in jobs]
    assert together == alone


def test_processes_that_share_a_gpu_write_the_same_file(tmp_path: Path) -> None:
    source = write(tmp_path, "in", [" ".join(TEXTS[: 1 + number % len(TEXTS)]) for number in range(500)])
    for name, workers in (("alone", "1"), ("shared", "2")):
        options = ["--input", source, "--output", str(tmp_path / name), "--device", "cuda", "--workers", workers]
        done = regard_command("translate", *options)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "shared").read_bytes() == (tmp_path / "alone").read_bytes()
    assert len((tmp_path / "shared").read_text().splitlines()) == 500


def test_scores_on_a_gpu_are_those_on_a_cpu() -> None:
    """In several batches, which are larger on a GPU."""
    model = regard.load("fr-en")
    sources = [" ".join(TEXTS[: 1 + number % len(TEXTS)]) for number in range(1_500)]
    targets = [f"There are {number} cats." * (1 + number % 3) for number in range(1_500)]
    expected = model.score(sources[:40], targets[:40])
    scores = model.to("cuda").score(sources, targets)
    assert scores[:40] == pytest.approx(expected, rel=1e-4)


def test_a_search_is_recorded_once_for_all_seeds() -> None:
    model = regard.load("fr-en").to("cuda").quick()
    for seed in range(4):
        model.translate(TEXTS, temperature=1.0, seed=seed, max_tokens=20 + seed)
    assert isinstance(model.network.recorded_searches, RecordedSearches)
    assert len(model.network.recorded_searches.searches) == 1


def test_cancelled_decoding_stops_between_replays() -> None:
    model = regard.load("fr-en").to("cuda").quick()
    options = regard.Decoding(beam=4, min_tokens=200, max_tokens=200)
    whole = model.translate(TEXTS, decoding=options)
    tokens = count()
    with pytest.raises(Cancelled), cancellable(lambda: next(tokens) == 20):
        model.translate(TEXTS, decoding=options)
    assert next(tokens) < 25
    assert model.translate(TEXTS, decoding=options) == whole


def test_a_cpu_run_does_not_open_a_cuda_context(tmp_path: Path) -> None:
    """On a machine with a GPU: a run, a translation and a score on the CPU."""
    code = """
import torch, regard
regard.load("petit-fr-en").quick().translate("Le chat dort.")
from regard.cli import main
import sys
settings = ["data.petit=500", "model.d_model=32", "model.heads=2", "train.steps=3", "train.device=cpu",
            "train.batch_tokens=500", "train.validate_every=3", "train.validation_sentences=4"]
sys.argv = ["regard", "train", "petit-fr-en", "--out", sys.argv[1], *(x for s in settings for x in ("--set", s))]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
assert not torch.cuda.is_initialized()
assert not torch._C._cuda_hasPrimaryContext(0)
"""
    environment = {**os.environ, "REGARD_CACHE": str(tmp_path / "cache")}
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "run")], check=True, env=environment)


# A run


@pytest.mark.parametrize(("task", "kind"), [("translation", "encoder-decoder"), ("masked", "encoder")])
@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_a_run_learns(
    precision: str, task: TaskKind, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "HELD_OUT", 40)
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    recipe = Recipe(
        name="small",
        data=DataSection(petit=300, task=task),
        tokenizer=TokenizerSection(vocab_size=320),
        model={"kind": kind, "d_model": 64, "heads": 4, "layers": 1, "d_ff": 128, "dropout": 0.1, "norm": "pre"},
        train=TrainSection(
            steps=80,
            batch_tokens=1_024,
            max_length=128,
            lr=5e-3,
            schedule="constant",
            warmup=10,
            validate_every=80,
            validation_sentences=10,
            log_every=10,
            device="cuda",
            precision=precision,  # type: ignore[arg-type]
            compile=False,
        ),
    )
    events: list[TrainingEvent] = []
    outcome = train_recipe(recipe, tmp_path / "run", watchers=[events.append])
    first, *_, last = (event.loss for event in events if isinstance(event, Stepped))
    assert last < first - 0.7
    assert outcome.ended.skipped < 10
