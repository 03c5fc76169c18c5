"""How do a Transformer and an LSTM compare when they must remember over a long distance?

An LSTM and a Transformer with the same number of parameters learn to copy: the input has two letters, then a number of
blanks (the distance), then twice a token that asks for the letters. Both models get the same steps and the same
learning rate. A Transformer can attend to the letters directly at any distance. An LSTM must carry them through every
blank, and its gradients back. The lab also measures the cost of a training step by length: its time, and the longest
chain of products that depend on one another in the forward pass.
"""

# Dimensions: B rows, T tokens, V ids.

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from torch import Tensor, nn

from regard.config import preset
from regard.labs.cost_meters import count_products, cpu_seconds, log_log_curves
from regard.labs.lab import Claim, LabResult, ResultTable
from regard.labs.lab_figures import BLUE, GREY, ORANGE, legend, panel
from regard.labs.lab_statistics import fitted_power
from regard.labs.small_training import fit
from regard.model.transformer import build
from regard.threads import one_thread

LETTERS, BLANK, RECALL, VOCABULARY_SIZE = 8, 8, 9, 10
"""Letters have the ids 0 to 7; then come the blank and the token that asks for a letter."""
LSTM, TRANSFORMER = KINDS = ("LSTM", "Transformer")
NOTES = (
    "An LSTM can learn the task: with a forget gate that is open at the start (a bias of 3) and five times as many "
    "steps, it copied over 32 blanks.",
    "Times are those of a single thread, which runs one product after another; no number of cores shortens the chain.",
)


@dataclass(frozen=True)
class Sizes:
    """Sizes of the models, and of the training."""

    distances: tuple[int, ...] = (2, 8, 32, 64)
    """Numbers of blanks between the letters and the tokens that ask for them."""
    steps: int = 200
    """Training steps of each model at each distance."""
    width: int = 32
    """Width of the Transformer; the LSTM's is chosen so that it has as many parameters."""
    rows: int = 16
    """Number of sequences in a batch."""
    lengths: tuple[int, ...] = (32, 64, 128, 256)
    """Sequence lengths for which the cost of a step is measured."""
    seed: int = 0
    """Seed of the random numbers."""


@dataclass(frozen=True)
class TrainingStepCost:
    """The cost of a training step."""

    chain: int
    seconds: float


class LstmModel(nn.Module):
    """An embedding, an LSTM and an output layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY_SIZE, width)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.output = nn.Linear(width, VOCABULARY_SIZE)

    def forward(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        """Return the logits at each position."""
        hidden, _ = self.lstm(self.embedding(tokens))
        logits: Tensor = self.output(hidden)
        return logits


def run(sizes: Sizes) -> LabResult:
    """Train both models at each distance, then measure the cost of a step at each length."""
    with one_thread():
        accuracies = {
            distance: {kind: train_to_copy(new_model(kind, sizes), sizes.rows, distance, sizes.steps) for kind in KINDS}
            for distance in sizes.distances
        }
        costs = {n: {kind: step_cost(new_model(kind, sizes), sizes.rows, n) for kind in KINDS} for n in sizes.lengths}
    accuracy_rows = [(str(d), *(f"{share:.0%}" for share in by_kind.values())) for d, by_kind in accuracies.items()]
    cost_rows = [
        (
            *(str(n), *(str(by_kind[kind].chain) for kind in KINDS)),
            *(f"{by_kind[kind].seconds * 1e3:.1f}" for kind in KINDS),
        )
        for n, by_kind in costs.items()
    ]
    tables = (
        ResultTable(
            ("distance", *(f"{kind}, {parameter_count(new_model(kind, sizes)):,} parameters" for kind in KINDS)),
            tuple(accuracy_rows),
            f"Letters copied correctly after {sizes.steps} steps (by chance: {1 / LETTERS:.1%})",
        ),
        ResultTable(
            ("length", *(f"{kind}: chain" for kind in KINDS), *(f"{kind}: ms" for kind in KINDS)),
            tuple(cost_rows),
            f"Cost of a training step on {sizes.rows} sequences",
        ),
    )
    claims = conclusions(accuracies, costs)
    return LabResult(tables, claims, lambda figure: draw(figure, accuracies, costs), (11.0, 3.4), NOTES)


def new_model(kind: str, sizes: Sizes) -> nn.Module:
    """Return a model with fresh weights."""
    torch.manual_seed(sizes.seed)
    model = transformer(sizes.width)
    return model if kind == TRANSFORMER else lstm_of_equal_size(model)


def transformer(width: int) -> nn.Module:
    """Return a fresh decoder with two layers."""
    shape = {"vocab_size": VOCABULARY_SIZE, "pad": None, "d_model": width, "d_ff": 2 * width}
    return build(preset("tiny", kind="decoder", norm="pre", positions="rotary", layers=2, dropout=0.0, **shape))


def lstm_of_equal_size(model: nn.Module) -> LstmModel:
    """Return the widest fresh LSTM with at most as many parameters as `model`."""
    limit, width = parameter_count(model), 1
    with torch.device("meta"):  # counting parameters needs no memory for them
        while parameter_count(LstmModel(width + 1)) <= limit:
            width += 1
    return LstmModel(width)


def parameter_count(model: nn.Module) -> int:
    """Return the number of parameters of a model."""
    return sum(weights.numel() for weights in model.parameters())


def draw_sequences(rows: int, distance: int) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B 2"]]:
    """Draw sequences of two letters, blanks, and two requests for the letters; return them and the letters."""
    letters = torch.randint(LETTERS, (rows, 2))
    return torch.cat([letters, torch.full((rows, distance), BLANK), torch.full((rows, 2), RECALL)], 1), letters


def copy_loss(model: nn.Module, rows: int, distance: int) -> Float[Tensor, ""]:
    """Return the loss of the copied letters in new sequences."""
    tokens, letters = draw_sequences(rows, distance)
    return F.cross_entropy(model(tokens)[:, -2:].flatten(0, 1), letters.flatten())


def train_to_copy(model: nn.Module, rows: int, distance: int, steps: int) -> float:
    """Train a model, and return the share of letters that it copies correctly in new sequences."""
    fit(model, lambda: copy_loss(model, rows, distance), steps, lr=5e-3)
    with torch.no_grad():
        tokens, letters = draw_sequences(512, distance)
        return float((model(tokens)[:, -2:].argmax(-1) == letters).double().mean())


def step_cost(model: nn.Module, rows: int, length: int) -> TrainingStepCost:
    """Measure a training step on sequences of this length."""
    tokens, _ = draw_sequences(rows=1, distance=length - 4)
    with torch.no_grad():  # in float32 an LSTM is a single kernel, which would hide its products
        chain = count_products(lambda: model.double()(tokens)).chain
    model.float()
    seconds = cpu_seconds(lambda: torch.autograd.backward(copy_loss(model, rows, length - 4)))
    return TrainingStepCost(chain, seconds)


def conclusions(
    accuracies: dict[int, dict[str, float]], costs: dict[int, dict[str, TrainingStepCost]]
) -> tuple[Claim, ...]:
    """Return the claims on what the models learn and on what a step costs."""
    near, far, chance = accuracies[min(accuracies)], accuracies[max(accuracies)], 1 / LETTERS
    lstm, other = ([by_kind[kind].chain for by_kind in costs.values()] for kind in KINDS)
    powers = [fitted_power(tuple(costs), [by_kind[kind].seconds for by_kind in costs.values()]) for kind in KINDS]
    return (
        Claim(
            f"At distance {min(accuracies)} both models copy: the LSTM gets {near[LSTM]:.0%} of the letters right, the "
            f"Transformer {near[TRANSFORMER]:.0%}",
            min(near.values()) > 0.6,
        ),
        Claim(
            f"At distance {max(accuracies)} only the Transformer does: the LSTM gets {far[LSTM]:.0%}, the Transformer "
            f"{far[TRANSFORMER]:.0%}",
            far[TRANSFORMER] > 0.8 and far[LSTM] < 3 * chance,
        ),
        Claim(
            f"A Transformer processes all tokens at once: its longest chain is {other[0]} products at every length, "
            f"that of the LSTM {lstm[-1]} for {max(costs)} tokens",
            len(set(other)) == 1 and lstm == [n + 1 for n in costs],  # one product per token, and the output layer
        ),
        Claim(
            f"On one thread the time of a step grows as the length to the power {powers[0]:.2f} (LSTM) and "
            f"{powers[1]:.2f} (Transformer)",
            0.3 < powers[0] < 1.7 and 0.3 < powers[1] < 2.3,
        ),
    )


def draw(
    figure: Figure, accuracies: dict[int, dict[str, float]], costs: dict[int, dict[str, TrainingStepCost]]
) -> None:
    """Draw the accuracy by distance, and the chain and time by length."""
    axes = panel(figure, 3, 1, "letters copied correctly", "distance")
    for kind, colour in zip(KINDS, (ORANGE, BLUE), strict=True):
        shares = [by_kind[kind] for by_kind in accuracies.values()]
        axes.plot(list(accuracies), shares, "o-", color=colour, label=kind, markersize=4)
    axes.axhline(1 / LETTERS, color=GREY, linestyle=":", linewidth=1, label="chance")
    axes.set_ylim(0, 1.05)
    legend(axes)
    titles = {"chain": "longest chain of products", "seconds": "time of a step, seconds"}
    for number, (field, title) in enumerate(titles.items(), start=2):
        lines = {kind: [getattr(by_kind[kind], field) for by_kind in costs.values()] for kind in KINDS}
        log_log_curves(panel(figure, 3, number, title, "length"), list(costs), lines, (ORANGE, BLUE))
