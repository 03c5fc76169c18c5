"""The references of assignments next to implementations that are not ours: torch, transformers, tokenizers."""

from typing import Any

import pytest
import torch

from regard.course.assignment import load_assignment


def names_of(name: str) -> dict[str, Any]:
    """The functions of an assignment's reference."""
    names: dict[str, Any] = {}
    exec(load_assignment(name).reference, names)
    return names


# Positions


def test_sinusoids_equal_the_formula_of_the_paper() -> None:
    encoding = names_of("positions")["sinusoids"](torch.tensor([0, 7, 123]), 6).double()
    for row, position in zip(encoding, (0, 7, 123), strict=True):
        angles = [torch.tensor(position / 10_000 ** (2 * pair / 6), dtype=torch.float64) for pair in range(3)]
        expected = [wave for angle in angles for wave in (angle.sin(), angle.cos())]
        torch.testing.assert_close(row, torch.stack(expected), atol=1e-5, rtol=0)


@pytest.mark.long  # importing transformers takes longer than all other tests of this file
def test_rotations_equal_those_of_llama_in_transformers() -> None:
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    config = llama.LlamaConfig(hidden_size=24, num_attention_heads=3, num_hidden_layers=1)
    q, k = torch.randn(2, 2, 3, 5, 8, generator=torch.Generator().manual_seed(0))
    positions = torch.tensor([0, 1, 9, 30, 200])
    cos, sin = llama.LlamaRotaryEmbedding(config)(q, positions[None])
    expected = llama.apply_rotary_pos_emb(q, k, cos, sin)
    rotate = names_of("positions")["rotate"]
    torch.testing.assert_close((rotate(q, positions), rotate(k, positions)), expected, atol=1e-5, rtol=1e-5)


def test_rotary_attention_depends_on_distances_only() -> None:
    names = names_of("positions")
    q, k = torch.randn(2, 1, 2, 5, 8, generator=torch.Generator().manual_seed(0))
    scores = [names["rotate"](q, at) @ names["rotate"](k, at).mT for at in (torch.arange(5), torch.arange(50, 55))]
    torch.testing.assert_close(scores[0], scores[1], atol=1e-4, rtol=1e-4)
    assert not torch.allclose(scores[0], q @ k.mT, atol=0.1)
