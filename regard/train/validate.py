"""A model tried on text it does not learn from: its loss, what it says, and how good that is."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch

from regard.api import Model
from regard.config import require_at_least
from regard.decode.options import Decoding
from regard.decode.quick import quick
from regard.decode.translate import Translator
from regard.evaluate.scores import bleu
from regard.model.transformer import Encoder
from regard.store import Stored
from regard.text.batches import Batches
from regard.train.events import Sample
from regard.train.objective import Objective
from regard.train.task import Task

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


def validate(task: Task, stored: Stored, sentences: int) -> Found:
    """Try a model on the validation text; of a translator so many sentences are scored."""
    require_at_least(0, sentences=sentences)
    loss = float("nan") if task.validation is None else validation_loss(stored, task.validation)
    if task.kind == "language":
        return Found(loss, None, None, _continuations(stored, task.examples))
    examples = task.examples if task.kind == "classification" else task.examples[: max(SAMPLES, sentences)]
    sources, wanted = [source for source, _ in examples], [target for _, target in examples]
    if not sources:
        return Found(loss, None, None, ())
    score: float | None
    if task.kind == "classification":
        said = [label for label, _ in Model(**vars(stored)).classify(sources)]
        score = 100 * sum(a == b for a, b in zip(said, wanted, strict=True)) / len(wanted)
        measure: Literal["BLEU", "accuracy"] = "accuracy"
    else:
        said = _translations(stored, sources)
        score, measure = bleu(said[:sentences], [wanted[:sentences]]).score if sentences else None, "BLEU"
    shown = zip(sources[:SAMPLES], said, wanted, strict=False)
    return Found(loss, score, measure, tuple(Sample(*each) for each in shown))


@torch.inference_mode()
def validation_loss(stored: Stored, batches: Batches) -> float:
    """Nats per target over all the batches, without label smoothing."""
    objective = Objective(stored.network)
    device = stored.network.embedding.tokens.weight.device
    nats, count = torch.zeros((), device=device), 0
    for batch in replace(batches, rank=0, ranks=1).epoch(0):  # the first rank tries it, on all of the text
        nats += objective(batch.to(device))
        count += batch.targets
    return float(nats) / max(1, count)


def _translations(stored: Stored, sources: Sequence[str]) -> list[str]:
    """Greedy ones."""
    assert not isinstance(stored.network, Encoder)
    on_gpu = stored.network.embedding.tokens.weight.is_cuda
    network = quick(stored.network) if on_gpu else stored.network
    translator = Translator(Stored(network, stored.tokenizer, stored.special, stored.about), Decoding())
    return [found[0].text for found in translator.all(sources)]


def _continuations(stored: Stored, examples: Sequence[tuple[str, str]]) -> tuple[Sample, ...]:
    """What a language model writes behind some beginnings, drawn soberly, the same draw each time."""
    model = Model(**vars(stored))
    prompts = [prompt for prompt, _ in examples[:SAMPLES]]
    said = [model.generate(prompt, max_tokens=WRITTEN, temperature=0.8, top_p=0.95) for prompt in prompts]
    return tuple(Sample(prompt, text[len(prompt) :]) for prompt, text in zip(prompts, said, strict=True))
