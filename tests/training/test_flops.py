"""The cost of training, compared with PyTorch's own counter on the real networks."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from regard.config import ModelConfig, preset
from regard.data.batches import IGNORED_TARGET, Batch
from regard.model.transformer import Decoder, build
from regard.training.flops import PAPER_SUSTAINED, PEAK_BY_GPU, batch_flops, paper_flops, peak_flops, training_flops
from regard.training.objective import Objective

SMALL: dict[str, Any] = {"vocab_size": 97, "d_model": 24, "heads": 4, "layers": 3, "d_ff": 40}
ROWS, S, T = 3, 11, 7

SHAPES: dict[str, dict[str, Any]] = {
    "paper": {},
    "decoder layers": {"decoder_layers": 1},
    "widths": {"d_k": 10, "d_v": 6},
    "grouped": {"kv_heads": 2},
    "swiglu": {"activation": "swiglu", "norm": "pre", "bias": False},
    "untied": {"tied": False, "output_bias": True},
    "no pad": {"pad": None},
}


def count_with_pytorch(network: torch.nn.Module, *inputs: Tensor, **options: Tensor) -> int:
    """Count with PyTorch, forward and backward, on the readable kernel: fused CPU kernels are not counted."""
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        network(*inputs, **options).sum().backward()
    return counter.get_total_flops()


def ids(rows: int, length: int) -> Tensor:
    return torch.randint(0, 90, (rows, length))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.slow
def test_encoder_decoder(shape: str) -> None:
    config = ModelConfig(**SMALL | SHAPES[shape])
    expected = count_with_pytorch(build(config), ids(ROWS, S), ids(ROWS, T))
    assert training_flops(config, ROWS * S, ROWS * T, S, T) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape != "decoder layers"])
def test_decoder(shape: str) -> None:
    config = ModelConfig(kind="decoder", **SMALL | SHAPES[shape])
    expected = count_with_pytorch(build(config), ids(ROWS, T))
    assert training_flops(config, 0, ROWS * T, 0, T) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    "changes",
    [{}, {"classes": 5}, {"classes": 5, "classes_per": "token"}, {"output_transform": True, "output_bias": True}],
)
def test_encoder(changes: dict[str, Any]) -> None:
    config = ModelConfig(kind="encoder", **SMALL | changes)
    expected = count_with_pytorch(build(config), ids(ROWS, S))
    outputs = ROWS if config.is_classifier else ROWS * S
    assert training_flops(config, ROWS * S, outputs, S, 1) == pytest.approx(expected, rel=1e-9)


def test_decoder_with_classes() -> None:
    config = ModelConfig(kind="decoder", classes=5, **SMALL)
    expected = count_with_pytorch(build(config), ids(ROWS, S))
    assert training_flops(config, ROWS * S, ROWS, S, 1) == pytest.approx(expected, rel=1e-9)


def test_the_cost_of_a_step_depends_on_its_batch() -> None:
    config = ModelConfig(kind="decoder", prefix=True, **SMALL)
    labels = ids(ROWS, T + S)
    labels[:, :S] = IGNORED_TARGET  # source tokens are not predicted
    batch = Batch(ids(ROWS, S + T), labels, prefix=torch.full((ROWS,), S))
    network = build(config)
    assert isinstance(network, Decoder)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        network.head(network.hidden(batch.tokens, None, batch.prefix)[:, S:]).sum().backward()
    assert batch_flops(config, batch) == pytest.approx(counter.get_total_flops(), rel=1e-9)
    assert training_flops(config, ROWS * S, ROWS * T, S, T) == pytest.approx(counter.get_total_flops(), rel=1e-9)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        Objective(network)(batch).backward()
    assert batch_flops(config, batch) == pytest.approx(counter.get_total_flops(), rel=0.03)  # it lacks `addmm_`


def test_padding_costs_nothing_and_packing_changes_nothing() -> None:
    config = ModelConfig(**SMALL)
    lengths = [(5, 3), (11, 7), (2, 9)]
    alone = sum(training_flops(config, s, t, s, t) for s, t in lengths)
    source, target = torch.tensor(lengths).T
    labels = torch.where(torch.arange(12) < target[:, None], 1, IGNORED_TARGET)
    padded = Batch(ids(3, 12), labels, target, ids(3, 14), source)
    packed = Batch(ids(1, 19), torch.ones(1, 19, dtype=torch.int64), target[None], ids(1, 20), source[None])
    assert batch_flops(config, padded) == pytest.approx(alone, rel=1e-9)
    assert batch_flops(config, packed) == pytest.approx(alone, rel=1e-9)


def test_the_base_model_costs_about_six_operations_per_parameter_and_token() -> None:
    config = preset("paper-base")
    each = training_flops(config, 1, 1, 30, 30)
    assert each == pytest.approx(6 * 63e6, rel=0.1)


def test_the_training_costs_of_table_2() -> None:
    assert f"{paper_flops(12 * 3600, 8, PAPER_SUSTAINED['P100']):.1e}" == "3.3e+18"
    assert f"{paper_flops(3.5 * 24 * 3600, 8, PAPER_SUSTAINED['P100']):.1e}" == "2.3e+19"


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("NVIDIA H200", "H200"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("Tesla T4", "T4"),
        ("nvidia l4", "L4"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA L40S", None),
        ("NVIDIA A10G", None),
        ("cpu", None),
        ("", None),
    ],
)
def test_peak_by_name(name: str, known: str | None) -> None:
    assert peak_flops(name) == (None if known is None else PEAK_BY_GPU[known])
