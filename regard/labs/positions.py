"""How do sinusoids tell a model where its words stand?

Attention sees a set: what comes in another order goes out in another order, and nothing else changes. So each position
has a vector, of sines and cosines whose frequencies fall along it, which is added to the word's. They are drawn beside
what they resemble, counting in binary. What do two of them say of their distance? Is a step of k positions always the
same linear map? What is lost by adding instead of concatenating? And small models are to tell which of two words
comes first, with positions and without.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from torch import Tensor

from regard.config import preset
from regard.labs.lab import Claim, Result, Table
from regard.labs.lab_figures import COLOURS, legend, panel
from regard.labs.linear_probe import concatenated, linear_miss, read_sums
from regard.labs.toy_tasks import Ordered, put_in_order
from regard.model.positions import sinusoids

MODELS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("encoder, no positions", {"kind": "encoder", "positions": "none"}),
    ("encoder, sinusoids", {"kind": "encoder", "positions": "sinusoidal"}),
    ("decoder, no positions", {"kind": "decoder", "positions": "none"}),
)
SMALL: dict[str, Any] = {"vocab_size": 9, "pad": None, "classes": 2, "d_model": 32, "norm": "pre", "dropout": 0.0}


@dataclass(frozen=True)
class Sizes:
    """What is drawn and trained."""

    positions: int = 50
    """that are drawn"""
    width: int = 130
    """of their vectors"""
    step: int = 7
    """k, how far the linear map goes"""
    words: tuple[int, ...] = (100, 1000)
    """numbers of different words that positions are added to"""
    steps: int = 150
    """of training"""
    seed: int = 0


def run(sizes: Sizes) -> Result:
    """The vectors by themselves, then models with them and without."""
    torch.manual_seed(sizes.seed)
    places = torch.arange(sizes.positions)
    table = sinusoids(places, sizes.width, torch.float64)  # [positions, width]
    bits = places[:, None] >> torch.arange(sizes.positions.bit_length()) & 1  # the quickest first, as in the table
    waves = 2 * math.pi / torch.atan2(table[1, 0::2], table[1, 1::2])  # [width / 2], from the angles at position 1
    read = {words: read_sums(table, words) for words in sizes.words}
    order = {name: put_in_order(preset("tiny", **each, **SMALL), sizes.steps, sizes.seed) for name, each in MODELS}
    blind, seeing, causal = order.values()
    claims = (
        *claims_of_vectors(table, bits, waves),
        *claims_of_linearity(table, sizes.step, read),
        Claim(
            f"Without positions two orders of the same words are one to an encoder (its logits differ by "
            f"{blind.difference:.0e}), and it guesses: {blind.right:.0%} right; with sinusoids {seeing.right:.0%}",
            blind.difference < 1e-4 and 0.45 < blind.right < 0.55 and seeing.right > 0.9,
        ),
    )
    sums = [(f"{words:,}", f"{place:.0%}", f"{word:.0%}") for words, (place, word) in read.items()]
    rows = [(name, f"{m.difference:.1g}", f"{m.losses[-1]:.3f}", f"{m.right:.0%}") for name, m in order.items()]
    tables = (
        Table(("words", "of places", "of words"), tuple(sums), "What linear maps find again in word + position"),
        Table(("model", "change when read backwards", "loss", "right"), tuple(rows), "Which of two words comes first?"),
    )
    note = (
        f"A decoder knows the order without positions, too ({causal.right:.0%} right): its mask tells who came before."
    )
    return Result(tables, claims, lambda figure: draw(figure, table, bits, waves, order), (11.0, 6.5), (note,))


def claims_of_vectors(
    table: Float[Tensor, "T C"], bits: Int[Tensor, "T bits"], waves: Float[Tensor, " C//2"]
) -> tuple[Claim, ...]:
    """Frequencies, binary digits, distances."""
    moves, flips = table.diff(dim=0).norm(dim=1), bits.diff(dim=0).abs().sum(1)
    products = table @ table.T
    spread = max(float(products.diagonal(k).std(correction=0)) for k in range(len(table)))
    itself, near, far = products[0, [0, 1, away := len(table) // 5]].tolist()
    return (
        Claim(
            f"Frequencies fall along the vector: a wave takes {waves[0]:.1f} positions in front, {waves[-1]:,.0f} at "
            f"the end, and each {waves[1] / waves[0]:.3f} times as many as the one before",
            bool((waves.diff() > 0).all()),
        ),
        Claim(
            f"Like binary digits, but in even steps: from each position to the next {flips.min()} to {flips.max()} "
            f"bits change, and the sinusoids move by {moves.min():.2f} to {moves.max():.2f}",
            bool(flips.max() > flips.min()) and float(moves.max() - moves.min()) < 1e-9,
        ),
        Claim(
            f"The product of two positions tells their distance, wherever they are (to {spread:.0e}): {itself:.0f} at "
            f"0, {near:.0f} at 1, {far:.0f} at {away}",
            spread < 1e-9 and itself > near > far,
        ),
    )


def claims_of_linearity(
    table: Float[Tensor, "T C"], step: int, read: dict[int, tuple[float, float]]
) -> tuple[Claim, ...]:
    """A step as a linear map; adding and concatenating."""
    width = table.size(1)
    anywhere = torch.randperm(60_000)[: 8 * width]  # as far apart as the slowest waves are long
    here, there = (sinusoids(at, width, torch.float64) for at in (anywhere, anywhere + step))
    missed, by_chance = linear_miss(here, there), linear_miss(torch.randn_like(here), torch.randn_like(here))
    apart, (read_place, read_word) = concatenated(table), read[min(read)]
    return (
        Claim(
            f"{step} positions on is one linear map: fitted at some, it misses others by {missed:.0e} of their length; "
            f"for random vectors by {by_chance:.1f}",
            missed < 1e-4 and by_chance > 0.5,
        ),
        Claim(
            f"To concatenate and project is to project and add (to {apart:.0e}), and a sum can be taken apart: of "
            f"{min(read)} words, linear maps find {read_word:.0%} again, and {read_place:.0%} of their places",
            apart < 1e-9 and min(read_place, read_word) > 0.95,
        ),
    )


def draw(figure: Figure, table: Tensor, bits: Tensor, waves: Tensor, order: dict[str, Ordered]) -> None:
    """The vectors, their wavelengths, binary digits; products by distance; how the models learn."""
    axes = panel(figure, 3, 1, "the sinusoids", "dimension", "position", rows=2)
    axes.imshow(table.numpy(), cmap="RdBu", aspect="auto", interpolation="nearest")
    axes = panel(figure, 3, 2, "counting in binary", "bit, the quickest first", "position", rows=2)
    axes.imshow(2 * bits.numpy() - 1, cmap="RdBu", aspect="auto", interpolation="nearest", vmin=-1.2, vmax=1.2)
    axes = panel(figure, 3, 3, "positions that a wave takes", "pair of dimensions", rows=2)
    axes.semilogy(waves.numpy(), color=COLOURS[0])
    axes, products = panel(figure, 3, 4, "product of two positions", "distance", rows=2), (table @ table.T).numpy()
    for colour, at in zip(COLOURS, (0, len(table) // 2, len(table) - 1), strict=False):
        axes.plot([k - at for k in range(len(table))], products[at], color=colour, label=f"from position {at}")
    legend(axes)
    axes = panel(figure, 3, 5, "each with each", "position", "position", rows=2)
    axes.imshow(products, cmap="Blues", aspect="auto")
    axes = panel(figure, 3, 6, "loss: which word comes first?", "step", rows=2)
    for colour, (name, each) in zip(COLOURS, order.items(), strict=False):
        axes.plot(each.losses, color=colour, label=name)
    legend(axes)
