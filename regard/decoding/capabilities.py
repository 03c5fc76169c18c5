"""What a model can do with text, by its kind, its head and its special ids: the one place that knows.

`require` refuses what a model cannot do, and names what it can do instead.
"""

from dataclasses import dataclass
from typing import Literal

from regard.errors import RegardError
from regard.storage.model_folder import Stored

Task = Literal["translate", "generate", "classify", "score pairs", "score texts", "attend"]


@dataclass(frozen=True)
class Capability:
    """Something that some models can do with text."""

    call: str
    """The call of `regard.Model` that does it."""
    needs: str
    """What a model needs for it."""


CAPABILITIES: dict[Task, Capability] = {
    "translate": Capability(
        "translate(texts)", "an encoder-decoder, or a decoder with a separator between source and target"
    ),
    "generate": Capability("generate(prompt)", "a decoder with a head over the vocabulary"),
    "classify": Capability("classify(texts)", "a model with a classification head"),
    "score pairs": Capability(
        "score(sources, targets)", "an encoder-decoder, or a decoder with a separator between source and target"
    ),
    "score texts": Capability("score(texts)", "a language model, which is a decoder without a prefix"),
    "attend": Capability("attend(text)", "a model that is not a copy made for decoding"),
}


def is_able(model: Stored, task: Task) -> bool:
    """Whether a model can do this, given a tokenizer."""
    config = model.config
    writes = config.kind != "encoder" and not config.classes
    if task in ("translate", "score pairs"):
        return writes and (config.kind == "encoder-decoder" or model.special.separator is not None)
    if task == "generate":
        return writes and config.kind == "decoder"
    if task == "score texts":
        return writes and config.kind == "decoder" and not config.prefix
    if task == "classify":
        return config.classes > 0
    return not model.network.is_copy


def abilities(model: Stored) -> list[Task]:
    """All that a model can do; nothing without a tokenizer."""
    return [task for task in CAPABILITIES if is_able(model, task)] if model.tokenizer is not None else []


def require(model: Stored, task: Task) -> None:
    """Raise a ValueError that says what to do instead, if a model cannot do this."""
    if is_able(model, task):
        return
    capability = CAPABILITIES[task]
    calls = [CAPABILITIES[other].call for other in abilities(model)]
    instead = f"this model can {' or '.join(calls)}" if calls else "without a tokenizer this model reads ids only"
    raise RegardError(f"{capability.call} needs {capability.needs}, and this is {_described(model)}; {instead}")


def _described(model: Stored) -> str:
    config = model.config
    if config.classes:
        head = f" with a classification head ({config.classes} classes)"
    elif config.kind == "decoder":
        head = (" with a prefix" if config.prefix else "") + (
            "" if model.special.separator is not None else " without a separator"
        )
    else:
        head = ""
    copy = ", copied for decoding" if model.network.is_copy else ""
    return f"{'a' if config.kind == 'decoder' else 'an'} {config.kind}{head}{copy}"
