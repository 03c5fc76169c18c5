"""Sinusoids and rotations: the formula by loops, and what makes each of them a position."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.model.positions import rotary, rotate, sinusoids
from regard.model.transformer import Decoder, build
from tests.support.oracles import small


@given(position=st.integers(0, 5000), half=st.integers(1, 40))
def test_the_papers_formula(position: int, half: int) -> None:
    encoding = sinusoids(torch.tensor([position]), 2 * half, torch.float64)[0]
    for i in range(half):
        angle = position / 10_000 ** (2 * i / (2 * half))
        assert encoding[2 * i].item() == pytest.approx(math.sin(angle), abs=1e-9)
        assert encoding[2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-9)


def test_a_shift_is_a_fixed_linear_map() -> None:
    """PE(t + k) = PE(t) M_k, with one M_k for all t: it turns each pair of dimensions by k times its frequency."""
    everywhere = sinusoids(torch.arange(300), 16, torch.float64)
    for k in (1, 7, 40):
        turns = []
        for i in range(8):
            angle = k / 10_000 ** (2 * i / 16)
            cos, sin = math.cos(angle), math.sin(angle)
            turns.append(torch.tensor([[cos, -sin], [sin, cos]], dtype=torch.float64))
        matrix = torch.block_diag(*turns)
        torch.testing.assert_close(everywhere[: 300 - k] @ matrix, everywhere[k:], rtol=0, atol=1e-6)


def test_precision_does_not_depend_on_the_models_dtype() -> None:
    positions = torch.arange(2000)
    exact = sinusoids(positions, 64, torch.float64)
    assert (sinusoids(positions, 64) - exact).abs().max() < 2e-4  # float32: 2000 rad to a unit in the last place
    assert torch.equal(sinusoids(positions, 64, torch.bfloat16), sinusoids(positions, 64).bfloat16())


def test_rotated_products_depend_only_on_the_distance() -> None:
    q, k = torch.randn(2, 8, dtype=torch.float64)
    products = []
    for start in (0, 3, 100):
        turns = rotary(torch.tensor([start, start + 5]), 8, dtype=torch.float64)
        turned_q, turned_k = rotate(torch.stack([q, k]), turns)
        products.append(turned_q @ turned_k)
    torch.testing.assert_close(products[1], products[0])
    torch.testing.assert_close(products[2], products[0])
    assert not torch.isclose(products[0], q @ k)


def test_rotations_are_complex_products() -> None:
    x = torch.randn(2, 3, 5, 8, dtype=torch.float64)
    positions = torch.randint(0, 50, (2, 5))
    angles = positions[:, None, :, None] * 500.0 ** -(torch.arange(4) / 4).double()
    turned = torch.complex(x[..., :4], x[..., 4:]) * torch.polar(torch.ones_like(angles), angles)
    ours = rotate(x, rotary(positions, 8, base=500.0, dtype=torch.float64))
    torch.testing.assert_close(ours, torch.cat([turned.real, turned.imag], -1))


def test_adjacent_pairs_are_complex_numbers() -> None:
    x = torch.randn(2, 3, 5, 8, dtype=torch.float64)
    positions = torch.randint(0, 50, (2, 5))
    angles = positions[:, None, :, None] * 500.0 ** -(torch.arange(4) / 4).double()
    turned = torch.view_as_complex(x.unflatten(-1, (4, 2))) * torch.polar(torch.ones_like(angles), angles)
    ours = rotate(x, rotary(positions, 8, base=500.0, dtype=torch.float64, adjacent=True))
    torch.testing.assert_close(ours, torch.view_as_real(turned).flatten(-2))


def test_both_pairings_decode_with_a_cache_as_without() -> None:
    for pairs in ("halves", "adjacent"):
        config = small(
            kind="decoder", positions="rotary", rotary_pairs=pairs, rotary_scaling={"kind": "yarn", "factor": 4}
        )
        model = build(config).double().eval()
        assert isinstance(model, Decoder)
        tokens = torch.randint(0, 30, (2, 9))
        cache = model.start(2, 9)
        steps = [model.step(tokens[:, i : i + 1], torch.full((2, 1), i), cache) for i in range(9)]
        torch.testing.assert_close(torch.cat(steps, 1), model(tokens))


def test_rotating_keeps_the_type() -> None:
    x = torch.randn(2, 3, 8, dtype=torch.bfloat16)
    assert rotate(x, rotary(torch.arange(3), 8)).dtype == torch.bfloat16


@pytest.mark.parametrize("make", [sinusoids, rotary])
def test_odd_widths_are_refused(make: object) -> None:
    with pytest.raises(ValueError, match="even width, not 7"):
        make(torch.arange(3), 7)  # type: ignore[operator]
