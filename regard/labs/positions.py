"""How do sinusoids encode the positions of words?

Attention treats its input as a set: if the words come in another order, so do the outputs, and nothing else changes. So
a vector for the position is added to each word's embedding: sines and cosines whose frequencies decrease along the
vector. The lab draws them next to binary numbers, which they resemble, and asks: What does the product of two of them
say about their distance? Is a shift by k positions always the same linear map? What is lost by adding the position to
the word instead of concatenating the two? Finally, small models are trained to say which of two words comes first, with
positions and without.
"""

# Dimensions: N vectors, C width, T positions, K known vectors, B sentences.

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from torch import Tensor

from regard.config import ModelConfig, preset
from regard.labs.lab import Claim, LabResult, ResultTable
from regard.labs.lab_figures import COLOURS, legend, panel
from regard.labs.small_training import fit
from regard.model.positions import sinusoids
from regard.model.transformer import build

MODELS: dict[str, dict[str, Any]] = {
    "encoder, no positions": {"kind": "encoder", "positions": "none"},
    "encoder, sinusoids": {"kind": "encoder", "positions": "sinusoidal"},
    "decoder, no positions": {"kind": "decoder", "positions": "none"},
}
MODEL_SHAPE: dict[str, Any] = {
    "vocab_size": 9,
    "pad": None,
    "classes": 2,
    "d_model": 32,
    "norm": "pre",
    "dropout": 0.0,
}


@dataclass(frozen=True)
class Sizes:
    """Sizes of the position vectors, and of the training."""

    positions: int = 50
    """Number of positions."""
    width: int = 130
    """Width of the position vectors."""
    step: int = 7
    """Number k of positions that the linear map shifts by."""
    words: tuple[int, ...] = (100, 1000)
    """Numbers of different words that positions are added to."""
    steps: int = 150
    """Training steps."""
    seed: int = 0
    """Seed of the random numbers."""


@dataclass(frozen=True)
class OrderResult:
    """The results of a model that was trained to say which of two words comes first."""

    losses: list[float]
    correct: float
    """Share of correct answers, over sentences and their reversals."""
    difference: float
    """Largest difference between the logits for a sentence and those for its reversal."""


def run(sizes: Sizes) -> LabResult:
    """Examine the vectors, then train models with and without them."""
    torch.manual_seed(sizes.seed)
    positions = torch.arange(sizes.positions)
    table = sinusoids(positions, sizes.width, torch.float64)  # [positions, width]
    bits = positions[:, None] >> torch.arange(sizes.positions.bit_length()) & 1  # the fastest first, as in the table
    wavelengths = 2 * math.pi / torch.atan2(table[1, 0::2], table[1, 1::2])  # [width / 2], by the angles at position 1
    recovered = {words: recovered_from_sums(table, words) for words in sizes.words}
    models = {
        name: train_order(preset("tiny", **kind, **MODEL_SHAPE), sizes.steps, sizes.seed)
        for name, kind in MODELS.items()
    }
    unordered, sinusoidal, causal = models.values()
    claims = (
        *vector_claims(table, bits, wavelengths),
        *linearity_claims(table, sizes.step, recovered),
        Claim(
            f"Without positions an encoder cannot distinguish two orders of the same words (its logits differ by "
            f"{unordered.difference:.0e}), and guesses: {unordered.correct:.0%} correct; with sinusoids "
            f"{sinusoidal.correct:.0%}",
            unordered.difference < 1e-4 and 0.45 < unordered.correct < 0.55 and sinusoidal.correct > 0.9,
        ),
    )
    sum_rows = [(f"{words:,}", f"{position:.0%}", f"{word:.0%}") for words, (position, word) in recovered.items()]
    model_rows = [
        (name, f"{model.difference:.1g}", f"{model.losses[-1]:.3f}", f"{model.correct:.0%}")
        for name, model in models.items()
    ]
    model_columns = ("model", "change when reversed", "loss", "correct")
    tables = (
        ResultTable(
            ("number of words", "positions recovered", "words recovered"),
            tuple(sum_rows),
            "Recovered from word + position by linear maps",
        ),
        ResultTable(model_columns, tuple(model_rows), "Which of two words comes first?"),
    )
    note = (
        f"A decoder knows the order without positions, too ({causal.correct:.0%} correct), because its mask hides "
        "later words."
    )
    return LabResult(
        tables, claims, lambda figure: draw(figure, table, bits, wavelengths, models), (11.0, 6.5), (note,)
    )


def vector_claims(
    table: Float[Tensor, "T C"], bits: Int[Tensor, "T bits"], wavelengths: Float[Tensor, " C//2"]
) -> tuple[Claim, ...]:
    """Return the claims on frequencies, binary digits and distances."""
    moves, flips = table.diff(dim=0).norm(dim=1), bits.diff(dim=0).abs().sum(1)
    products = table @ table.T
    spread = max(float(products.diagonal(k).std(correction=0)) for k in range(len(table)))
    itself, near, far = products[0, [0, 1, distance := len(table) // 5]].tolist()
    return (
        Claim(
            f"Frequencies decrease along the vector: the wavelength is {wavelengths[0]:.1f} positions at the start and "
            f"{wavelengths[-1]:,.0f} at the end, and each is {wavelengths[1] / wavelengths[0]:.3f} times the previous "
            f"one",
            bool((wavelengths.diff() > 0).all()),
        ),
        Claim(
            f"Sinusoids resemble binary digits, but change evenly: from one position to the next, {flips.min()} to "
            f"{flips.max()} bits change, and the sinusoids move by {moves.min():.2f} to {moves.max():.2f}",
            bool(flips.max() > flips.min()) and float(moves.max() - moves.min()) < 1e-9,
        ),
        Claim(
            f"The product of two position vectors depends only on their distance (up to {spread:.0e}): it is "
            f"{itself:.0f} at distance 0, {near:.0f} at 1, {far:.0f} at {distance}",
            spread < 1e-9 and itself > near > far,
        ),
    )


def linearity_claims(
    table: Float[Tensor, "T C"], step: int, recovered: dict[int, tuple[float, float]]
) -> tuple[Claim, ...]:
    """Return the claims on shifts as linear maps, and on adding and concatenating."""
    width = table.size(1)
    sampled = torch.randperm(60_000)[: 8 * width]  # positions as far apart as the longest wavelengths
    vectors, shifted = (sinusoids(at, width, torch.float64) for at in (sampled, sampled + step))
    error, random_error = (
        linear_map_error(vectors, shifted),
        linear_map_error(torch.randn_like(vectors), torch.randn_like(vectors)),
    )
    difference, (positions_found, words_found) = concatenation_difference(table), recovered[min(recovered)]
    return (
        Claim(
            f"A shift by {step} positions is one linear map: fitted at some positions, it has an error of {error:.0e} "
            f"at others; for random vectors the error is {random_error:.1f}",
            error < 1e-4 and random_error > 0.5,
        ),
        Claim(
            f"Concatenating and projecting equals projecting and adding (up to {difference:.0e}), and the summands can "
            f"be recovered: linear maps find {words_found:.0%} of {min(recovered)} words and {positions_found:.0%} of "
            f"the positions",
            difference < 1e-9 and min(positions_found, words_found) > 0.95,
        ),
    )


def map_second_half(inputs: Float[Tensor, "N C"], outputs: Float[Tensor, "N C"]) -> Float[Tensor, "N-N//2 C"]:
    """Fit a linear map from inputs to outputs on the first half of the vectors, and apply it to the second half."""
    half = len(inputs) // 2
    a, b = inputs[:half], outputs[:half]
    ridge = 1e-9 * torch.eye(a.size(1), dtype=a.dtype)  # position vectors may span fewer dimensions than there are
    fitted: Tensor = torch.linalg.solve(a.T @ a + ridge, a.T @ b)  # [C, C]
    return inputs[half:] @ fitted


def linear_map_error(inputs: Float[Tensor, "N C"], outputs: Float[Tensor, "N C"]) -> float:
    """Return the relative error of a fitted linear map on vectors that it was not fitted to."""
    target = outputs[len(outputs) // 2 :]
    return float((map_second_half(inputs, outputs) - target).norm() / target.norm())


def concatenation_difference(table: Float[Tensor, "T C"]) -> float:
    """Return the largest difference between projecting [word, position], and projecting each and adding the results."""
    word, above, below = torch.randn_like(table), *torch.randn(2, table.size(1), table.size(1), dtype=table.dtype)
    concatenated = torch.cat([word, table], 1) @ torch.cat([above, below])  # [T, C]
    return float((concatenated - (word @ above + table @ below)).abs().max())


def recovered_from_sums(table: Float[Tensor, "T C"], words: int) -> tuple[float, float]:
    """Return the shares of positions and of words that linear maps recover from the sums of both.

    The maps are fitted to half of all pairs of a word and a position, and tested on the other half.
    """
    vectors = torch.randn(words, table.size(1), dtype=table.dtype)  # as long as the embeddings of a model
    both = torch.cartesian_prod(torch.arange(len(table)), torch.arange(words))
    position, word = both[torch.randperm(len(both))].T
    sums = table[position] + vectors[word]  # [T · words, C]

    def recovered(known: Float[Tensor, "K C"], correct: Int[Tensor, " N"]) -> float:
        nearest = torch.cdist(map_second_half(sums, known[correct]), known).argmin(1)
        return float((nearest == correct[len(sums) // 2 :]).double().mean())

    return recovered(table, position), recovered(vectors, word)


def train_order(config: ModelConfig, steps: int, seed: int) -> OrderResult:
    """Train a model to say whether word 0 comes before word 1 in a sentence that has each word once.

    The last id of the config marks the beginning and the end; the classification head reads it.
    """
    torch.manual_seed(seed)
    model, words = build(config), config.vocab_size - 1

    def draw_batch(rows: int) -> tuple[Int[Tensor, "B N"], Int[Tensor, " B"]]:
        order = torch.rand(rows, words).argsort(1)  # [B, N - 2]
        first = (order == 0).int().argmax(1) < (order == 1).int().argmax(1)  # [B]
        return F.pad(order, (1, 1), value=words), first.long()

    def loss() -> Float[Tensor, ""]:
        sentences, first = draw_batch(64)
        return F.cross_entropy(model(sentences), first)

    losses = fit(model, loss, steps, lr=3e-3)
    with torch.no_grad():
        sentences, first = draw_batch(500)
        forward, backward = model(sentences), model(sentences.flip(1))  # [B, 2] each
    correct = torch.cat([forward.argmax(1) == first, backward.argmax(1) == 1 - first])
    return OrderResult(losses, float(correct.double().mean()), float((forward - backward).abs().max()))


def draw(figure: Figure, table: Tensor, bits: Tensor, wavelengths: Tensor, models: dict[str, OrderResult]) -> None:
    """Draw the vectors, binary digits, wavelengths, products by distance, and the losses of the models."""
    axes = panel(figure, 3, 1, "sinusoids", "dimension", "position", rows=2)
    axes.imshow(table.numpy(), cmap="RdBu", aspect="auto", interpolation="nearest")
    axes = panel(figure, 3, 2, "binary digits", "bit, fastest first", "position", rows=2)
    axes.imshow(2 * bits.numpy() - 1, cmap="RdBu", aspect="auto", interpolation="nearest", vmin=-1.2, vmax=1.2)
    axes = panel(figure, 3, 3, "wavelength in positions", "pair of dimensions", rows=2)
    axes.semilogy(wavelengths.numpy(), color=COLOURS[0])
    axes, products = panel(figure, 3, 4, "product of two positions", "distance", rows=2), (table @ table.T).numpy()
    for colour, at in zip(COLOURS, (0, len(table) // 2, len(table) - 1), strict=False):
        axes.plot([k - at for k in range(len(table))], products[at], color=colour, label=f"from position {at}")
    legend(axes)
    axes = panel(figure, 3, 5, "products of all positions", "position", "position", rows=2)
    axes.imshow(products, cmap="Blues", aspect="auto")
    axes = panel(figure, 3, 6, "loss: which word comes first?", "step", rows=2)
    for colour, (name, model) in zip(COLOURS, models.items(), strict=False):
        axes.plot(model.losses, color=colour, label=name)
    legend(axes)
