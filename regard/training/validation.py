"""Validation: a model's loss on held-out text, samples of its output, and their score."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch

from regard.config import require_at_least
from regard.data.batches import Batches
from regard.data.tagged_text import TaggedSentence
from regard.decoding.fast_copy import make_fast_copy
from regard.decoding.options import Decoding
from regard.decoding.own_network import OwnNetwork
from regard.decoding.text_model import Model
from regard.evaluation.metrics import bleu
from regard.evaluation.tagging import score_tagger
from regard.model.transformer import Encoder
from regard.training.events import Sample
from regard.training.objective import Objective
from regard.training.training_setup import TrainingSetup

SAMPLE_COUNT = 3
"""Number of examples whose output is shown."""
SAMPLE_TOKENS = 100
"""Maximum number of tokens in a language model's samples."""


@dataclass(frozen=True)
class ValidationResult:
    """The result of one validation."""

    loss: float
    score: float | None
    measure: Literal["BLEU", "accuracy", "F1"] | None
    samples: tuple[Sample, ...]

    def better_than(self, other: "ValidationResult | None", by: Literal["loss", "score"]) -> bool:
        """Whether this result is better than another one. Of equal scores, the one with the lower loss is better.

        Any result is better than none.
        """
        if other is None:
            return True
        if by == "score" and self.score is not None and other.score is not None and self.score != other.score:
            return self.score > other.score
        return self.loss < other.loss or (math.isnan(other.loss) and not math.isnan(self.loss))


def validate(setup: TrainingSetup, model: Model, sentences: int, decode: Decoding) -> ValidationResult:
    """Validate a model. The first `sentences` greedy translations of a translator are scored.

    A model whose loss is not finite generates no samples.
    """
    require_at_least(0, sentences=sentences)
    loss = float("nan") if setup.validation is None else validation_loss(model, setup.validation)
    if setup.validation is not None and not math.isfinite(loss):
        return ValidationResult(loss, None, None, ())
    if setup.kind == "language":
        return ValidationResult(loss, None, None, _continuations(model, setup.examples, decode))
    if setup.kind == "tagging":
        return _validated_tagger(model, setup.sentences, loss)
    if setup.kind == "masked":
        return ValidationResult(loss, None, None, _fillings(model, setup.examples))
    examples = setup.examples if setup.kind == "classification" else setup.examples[: max(SAMPLE_COUNT, sentences)]
    sources, references = [source for source, _ in examples], [target for _, target in examples]
    if not sources:
        return ValidationResult(loss, None, None, ())
    score: float | None
    if setup.kind == "classification":
        outputs = [label for label, _ in model.classify(sources)]
        score = 100 * sum(a == b for a, b in zip(outputs, references, strict=True)) / len(references)
        measure: Literal["BLEU", "accuracy"] = "accuracy"
    else:
        outputs, measure = _translations(model, sources), "BLEU"
        score = bleu(outputs[:sentences], [references[:sentences]]).value if sentences else None
    shown = zip(sources[:SAMPLE_COUNT], outputs, references, strict=False)
    return ValidationResult(loss, score, measure, tuple(Sample(*texts) for texts in shown))


def _validated_tagger(model: Model, sentences: Sequence[TaggedSentence], loss: float) -> ValidationResult:
    """The accuracy of a tagger, or the F1 of its spans if its labels mark spans."""
    if not sentences:
        return ValidationResult(loss, None, None, ())
    scores, predictions = score_tagger(model, sentences)
    samples = tuple(
        Sample(" ".join(sentence.words), " ".join(labels), " ".join(sentence.labels))
        for sentence, labels in zip(sentences[:SAMPLE_COUNT], predictions, strict=False)
    )
    if scores.spans is None:
        return ValidationResult(loss, 100 * scores.words.accuracy.value, "accuracy", samples)
    return ValidationResult(loss, 100 * scores.spans.f1, "F1", samples)


@torch.inference_mode()
def validation_loss(model: Model, batches: Batches) -> float:
    """Mean loss in nats per target over all batches, without label smoothing."""
    objective = Objective(model.network)
    device = model.network.device
    nats, count = torch.zeros((), device=device), 0
    for batch in replace(batches, rank=0, ranks=1).epoch(0):  # the first rank validates on the complete text
        nats += objective(batch.to(device))
        count += batch.targets
    return float(nats) / max(1, count)


def _translations(model: Model, sources: Sequence[str]) -> list[str]:
    """Greedy translations."""
    return for_decoding(model).translate(sources, decoding=Decoding())


def for_decoding(model: Model) -> Model:
    """The model in the form that decodes fastest on its device, in its own precision: on a GPU an optimized copy."""
    network = model.network
    weight = next(network.parameters())
    if not weight.is_cuda or isinstance(network, Encoder | OwnNetwork):
        return model
    copy = make_fast_copy(network, "float32" if weight.dtype == torch.float32 else "auto")
    return replace(model, network=copy)


def _fillings(model: Model, examples: Sequence[tuple[str, str]]) -> tuple[Sample, ...]:
    """The most likely token for the mask of some texts, and the word that it replaces."""
    return tuple(
        Sample(text, model.fillings(text, k=1)[0][0].token.strip(), word) for text, word in examples[:SAMPLE_COUNT]
    )


def _continuations(model: Model, examples: Sequence[tuple[str, str]], decode: Decoding) -> tuple[Sample, ...]:
    """How a language model continues some prompts, decoded as the recipe says, with a fixed random seed."""
    prompts = [prompt for prompt, _ in examples[:SAMPLE_COUNT]]
    max_tokens = min(SAMPLE_TOKENS, decode.max_tokens or SAMPLE_TOKENS)
    options = replace(decode, n_best=1, max_tokens=max_tokens, min_tokens=0)
    texts = [model.generate(prompt, decoding=options) for prompt in prompts]
    return tuple(Sample(prompt, text[len(prompt) :]) for prompt, text in zip(prompts, texts, strict=True))
