"""Translators of Petit for labs: test sentences, training of small models, and measures of quality.

Dimensions: N target tokens, V outputs.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.data.batches import IGNORED_TARGET, Batch, Batches
from regard.decoding.text_model import Model
from regard.evaluation.metrics import bleu
from regard.evaluation.tag_accuracy import TagAccuracy, tag_accuracy
from regard.evaluation.test_sets import Examples
from regard.labs.small_training import fit
from regard.petit import Pair, pairs
from regard.threads import one_thread
from regard.training.objective import Objective, network_inputs
from regard.training.recipe import Recipe, TrainSection
from regard.training.schedule import learning_rate
from regard.training.training_setup import TrainingSetup, cache_folder, prepare_training


@dataclass(frozen=True)
class TranslationQuality:
    """Quality of greedy translations."""

    bleu: float
    exact: TagAccuracy
    """Share of translations that match exactly, overall and by phenomenon."""


@dataclass(frozen=True)
class PredictionQuality:
    """Quality of the predictions of each token of reference translations, as means over all tokens."""

    nats: float
    """Mean of -log p of the correct token."""
    confidence: float
    """Mean probability of the most likely token."""
    accuracy: float
    """Share of tokens for which the most likely token is correct."""

    @property
    def perplexity(self) -> float:
        """e to the power of the mean negative log-likelihood."""
        return math.exp(self.nats)


def held_out_pairs(amount: int, seed: int = 0, split: str = "test") -> list[Pair]:
    """Return pairs of Petit that no training text contains."""
    return list(pairs(amount, seed, split))


def as_examples(sentence_pairs: Sequence[Pair]) -> Examples:
    """Convert pairs to a test set."""
    lines = list(range(1, len(sentence_pairs) + 1))
    sources, references = [pair.french for pair in sentence_pairs], [pair.english for pair in sentence_pairs]
    return Examples(("French", "English"), sources, [references], lines, len(lines))


@one_thread()
def translation_quality(model: Model, test_pairs: Sequence[Pair]) -> TranslationQuality:
    """Translate the French sentences greedily and compare the results with the English ones."""
    outputs = model.translate([pair.french for pair in test_pairs], beam=1)
    references = [pair.english for pair in test_pairs]
    exact = tag_accuracy(outputs, references, [pair.tags for pair in test_pairs])
    return TranslationQuality(bleu(outputs, references).value, exact)


def train_model(recipe: Recipe, device: str = "cpu") -> tuple[Model, Batches]:
    """Train a recipe to its last step, without saving anything; return the model and the held-out batches."""
    task = prepare_training(recipe, cache_folder(), packed=False)
    assert task.validation is not None  # Petit has its own validation text
    return train_prepared(task, recipe.train, device), task.validation


@one_thread()
def train_prepared(task: TrainingSetup, train: TrainSection, device: str = "cpu") -> Model:
    """Train the network of a prepared recipe to its last step."""
    network = task.network.to(device)
    objective, batches = Objective(network, train.label_smoothing), endless(task.batches)

    def loss() -> Float[Tensor, ""]:
        batch = next(batches).to(device)
        total: Tensor = objective(batch)
        return total / batch.targets

    torch.manual_seed(train.seed)  # for dropout
    fit(network, loss, train.steps, lambda step: learning_rate(step, train, network.config.d_model))
    return task.model()


def endless(batches: Batches) -> Iterator[Batch]:
    """Yield the batches of one epoch after another."""
    for epoch in count():
        yield from batches.epoch(epoch)


@one_thread()
@torch.inference_mode()
def prediction_quality(model: Model, batches: Batches) -> PredictionQuality:
    """Measure how well a model predicts each target token from the source and the preceding target tokens."""
    device = model.network.device
    sums, tokens = torch.zeros(3, dtype=torch.float64), 0
    for batch in batches.epoch(0):
        logits = model.network(*network_inputs(model.network, batch.to(device)))  # [B, T, V]
        counted = batch.labels != IGNORED_TARGET
        sums += token_measures(logits.cpu()[counted], batch.labels[counted]).sum(0)
        tokens += batch.targets
    return PredictionQuality(*(sums / tokens).tolist())


def token_measures(logits: Float[Tensor, "N V"], labels: Int[Tensor, " N"]) -> Float[Tensor, "N 3"]:
    """Return for each token its nats, the confidence, and whether the prediction is correct."""
    log_probs = logits.double().log_softmax(-1)
    best = log_probs.max(-1)  # [N]
    nats = -log_probs.gather(1, labels[:, None])[:, 0]
    return torch.stack([nats, best.values.exp(), (best.indices == labels).double()], -1)
