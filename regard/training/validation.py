"""A model tried on text it does not learn from: its loss, what it says, and how good that is."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch

from regard.config import require_at_least
from regard.data.batches import Batches
from regard.decoding.fast_copy import quick
from regard.decoding.options import Decoding
from regard.decoding.text_model import Model
from regard.evaluation.metrics import bleu
from regard.model.transformer import Encoder
from regard.training.events import Sample
from regard.training.objective import Objective
from regard.training.preparation import Task

SAMPLES = 3
WRITTEN = 100
"""tokens of a language model's samples"""


@dataclass(frozen=True)
class Found:
    """What a validation finds."""

    loss: float
    score: float | None
    measure: Literal["BLEU", "accuracy"] | None
    samples: tuple[Sample, ...]

    def better_than(self, other: "Found | None", by: Literal["loss", "score"]) -> bool:
        """Whether it is the best so far. NaN is better than nothing."""
        if other is None:
            return True
        if by == "score" and self.score is not None and other.score is not None:
            return self.score > other.score
        return self.loss < other.loss or (math.isnan(other.loss) and not math.isnan(self.loss))


def validate(task: Task, stored: Model, sentences: int, decode: Decoding) -> Found:
    """Try a model on the validation text; of a translator so many sentences are scored, and it decodes greedily.

    A model whose loss is not finite is asked for nothing: there is nothing that it could say.
    """
    require_at_least(0, sentences=sentences)
    loss = float("nan") if task.validation is None else validation_loss(stored, task.validation)
    if task.validation is not None and not math.isfinite(loss):
        return Found(loss, None, None, ())
    if task.kind == "language":
        return Found(loss, None, None, _continuations(stored, task.examples, decode))
    examples = task.examples if task.kind == "classification" else task.examples[: max(SAMPLES, sentences)]
    sources, wanted = [source for source, _ in examples], [target for _, target in examples]
    if not sources:
        return Found(loss, None, None, ())
    score: float | None
    if task.kind == "classification":
        said = [label for label, _ in stored.classify(sources)]
        score = 100 * sum(a == b for a, b in zip(said, wanted, strict=True)) / len(wanted)
        measure: Literal["BLEU", "accuracy"] = "accuracy"
    else:
        said = _translations(stored, sources)
        score, measure = bleu(said[:sentences], [wanted[:sentences]]).score if sentences else None, "BLEU"
    shown = zip(sources[:SAMPLES], said, wanted, strict=False)
    return Found(loss, score, measure, tuple(Sample(*each) for each in shown))


@torch.inference_mode()
def validation_loss(stored: Model, batches: Batches) -> float:
    """Nats per target over all the batches, without label smoothing."""
    objective = Objective(stored.network)
    device = stored.network.device
    nats, count = torch.zeros((), device=device), 0
    for batch in replace(batches, rank=0, ranks=1).epoch(0):  # the first rank tries it, on all of the text
        nats += objective(batch.to(device))
        count += batch.targets
    return float(nats) / max(1, count)


def _translations(stored: Model, sources: Sequence[str]) -> list[str]:
    """Greedy ones."""
    return for_decoding(stored).translate(sources, decoding=Decoding())


def for_decoding(stored: Model) -> Model:
    """The model as it decodes fastest where it is, in its own type: on a GPU a copy that was made for it."""
    network = stored.network
    weight = network.embedding.tokens.weight
    if not weight.is_cuda or isinstance(network, Encoder):
        return stored
    copy = quick(network, "float32" if weight.dtype == torch.float32 else "auto")
    return Model(copy, stored.tokenizer, stored.special, stored.about)


def _continuations(stored: Model, examples: Sequence[tuple[str, str]], decode: Decoding) -> tuple[Sample, ...]:
    """What a language model writes behind some beginnings, asked as the recipe says; the same draw each time."""
    prompts = [prompt for prompt, _ in examples[:SAMPLES]]
    options = replace(decode, n_best=1, max_tokens=min(WRITTEN, decode.max_tokens or WRITTEN), min_tokens=0)
    said = [stored.generate(prompt, decoding=options) for prompt in prompts]
    return tuple(Sample(prompt, text[len(prompt) :]) for prompt, text in zip(prompts, said, strict=True))
