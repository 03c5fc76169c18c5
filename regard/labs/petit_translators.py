"""Translators of Petit, for labs: sentences to ask them, small ones trained on the spot, and how good they are.

Dimensions: N target tokens, V outputs.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from statistics import mean, stdev

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.data.batches import IGNORE, Batch, Batches
from regard.decoding.text_model import Model
from regard.evaluation.metrics import bleu
from regard.evaluation.petit_scores import PetitScore, petit_score
from regard.evaluation.test_sets import Examples
from regard.labs.small_training import fit
from regard.petit import Pair, pairs
from regard.threads import one_thread
from regard.training.objective import Objective, inputs
from regard.training.preparation import cache_folder, make_task
from regard.training.recipe import Recipe
from regard.training.schedule import learning_rate

T_95 = 4.303
"""Student's t for three seeds: the standard errors on either side of their mean that hold 95 %"""


@dataclass(frozen=True)
class Translated:
    """How good translations are, made greedily."""

    bleu: float
    exact: PetitScore
    """the share that is right to the letter, altogether and by phenomenon"""


@dataclass(frozen=True)
class Foretold:
    """How well a model foretells each token of translations that it is shown: means over all of them."""

    nats: float
    """-log p of the token"""
    confidence: float
    """p of the likeliest token"""
    accuracy: float
    """how often that is the right one"""

    @property
    def perplexity(self) -> float:
        """e to the nats: among how many tokens, equally likely, it would waver as much."""
        return math.exp(self.nats)


def sentences(amount: int, seed: int = 0, split: str = "test") -> list[Pair]:
    """So many sentences of Petit that no training text holds."""
    return list(pairs(amount, seed, split))


def as_examples(found: Sequence[Pair]) -> Examples:
    """The same as a test set."""
    lines = list(range(1, len(found) + 1))
    return Examples(("French", "English"), [p.french for p in found], [[p.english for p in found]], lines, len(lines))


@one_thread()
def translated(model: Model, found: Sequence[Pair]) -> Translated:
    """Have sentences translated, and compare with what is right."""
    outputs, wanted = model.translate([p.french for p in found], beam=1), [p.english for p in found]
    return Translated(bleu(outputs, wanted).score, petit_score(outputs, wanted, [p.tags for p in found]))


@one_thread()
def trained(recipe: Recipe, device: str = "cpu") -> tuple[Model, Batches]:
    """The model that a recipe makes at its last step, and the held-out text as batches; nothing of it is saved."""
    task, train = make_task(recipe, cache_folder(), packed=False), recipe.train
    network = task.network.to(device)
    objective, batches = Objective(network, train.label_smoothing), endless(task.batches)

    def loss() -> Float[Tensor, ""]:
        batch = next(batches).to(device)
        total: Tensor = objective(batch)
        return total / batch.targets

    torch.manual_seed(train.seed)  # of what dropout drops
    fit(network, loss, train.steps, lambda step: learning_rate(step, train, network.config.d_model))
    assert task.validation is not None  # Petit has its own
    return task.stored(), task.validation


def endless(batches: Batches) -> Iterator[Batch]:
    """Epoch after epoch."""
    for epoch in count():
        yield from batches.epoch(epoch)


@one_thread()
@torch.inference_mode()
def foretold(model: Model, batches: Batches) -> Foretold:
    """How well held-out translations are foretold, each token from the source and the tokens before it."""
    device = model.network.device
    sums, tokens = torch.zeros(3, dtype=torch.float64), 0
    for batch in batches.epoch(0):
        logits = model.network(*inputs(model.network, batch.to(device)))  # [B, T, V]
        counted = batch.labels != IGNORE
        sums += one_by_one(logits.cpu()[counted], batch.labels[counted]).sum(0)
        tokens += batch.targets
    return Foretold(*(sums / tokens).tolist())


def one_by_one(logits: Float[Tensor, "N V"], labels: Int[Tensor, " N"]) -> Float[Tensor, "N 3"]:
    """Nats, confidence, and whether it is right, of each token."""
    log_probs = logits.double().log_softmax(-1)
    best = log_probs.max(-1)  # [N]
    nats = -log_probs.gather(1, labels[:, None])[:, 0]
    return torch.stack([nats, best.values.exp(), (best.indices == labels).double()], -1)


def told(figures: tuple[float, ...], digits: int) -> str:
    """A mean and, of several, its interval."""
    reach = f" ± {half_width(figures):.{digits}f}" if len(figures) > 1 else ""
    return f"{mean(figures):.{digits}f}{reach}"


def half_width(figures: tuple[float, ...]) -> float:
    """Of the 95 % interval of the mean of three figures; none of one."""
    return T_95 * stdev(figures) / len(figures) ** 0.5 if len(figures) > 1 else 0.0


def apart(more: tuple[float, ...], less: tuple[float, ...]) -> bool:
    """Whether the mean of the first is above that of the second, and their intervals do not meet."""
    return mean(more) - half_width(more) > mean(less) + half_width(less)
