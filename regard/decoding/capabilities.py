"""What a model can do with text, from its kind, its head and its special ids. `regard.Model.can` asks here.

A task that a model cannot do is refused with an error that names the calls that work instead.
"""

from dataclasses import dataclass
from typing import Literal

from regard.config import SpecialIds
from regard.decoding.fast_copy import is_fast_copy
from regard.decoding.own_network import OwnNetwork, check_regards_own
from regard.errors import CallError
from regard.model.transformer import Network

TextTask = Literal["translate", "generate", "classify", "tag", "fill", "score pairs", "score texts", "attend", "embed"]


@dataclass(frozen=True)
class Capability:
    """A task that some models can do with text."""

    call: str
    """The call of `regard.Model` that does it."""
    needs: str
    """What a model needs for it."""
    verb: str
    """The task in words, after "cannot"."""
    command: str
    """The command that does it."""


_PAIRS = "an encoder-decoder, or a decoder with a separator between source and target"
_OWN_NETWORK = "one of Regard's networks, not a copy made for decoding"

CAPABILITIES: dict[TextTask, Capability] = {
    "translate": Capability("translate(texts)", _PAIRS, "translate", "regard translate"),
    "generate": Capability(
        "generate(prompt)", "a decoder with a head over the vocabulary", "generate text", "regard generate"
    ),
    "classify": Capability(
        "classify(texts)", "a model with a classification head", "classify texts", "regard classify"
    ),
    "tag": Capability("tag(texts)", "an encoder with a class for each token (a tagger)", "tag words", "regard tag"),
    "fill": Capability(
        "fill(text)", "an encoder with a head over the vocabulary and a mask token", "fill masks", "regard fill"
    ),
    "score pairs": Capability("score(sources, targets)", _PAIRS, "score translations", "regard score"),
    "score texts": Capability(
        "score(texts)", "a language model, which is a decoder without a prefix", "score texts", "regard evaluate"
    ),
    "attend": Capability("attend(text)", _OWN_NETWORK, "show its attention", "regard attend"),
    "embed": Capability("embed(texts)", _OWN_NETWORK, "embed texts", "regard embed"),
}


def tasks_of(network: Network, special: SpecialIds) -> list[TextTask]:
    """All tasks that a network can do, given a tokenizer."""
    return [task for task in CAPABILITIES if _is_able(network, special, task)]


def filled_mask(network: Network, special: SpecialIds) -> int | None:
    """The id of the mask, if the network fills masks."""
    return special.mask if _is_able(network, special, "fill") else None


def require_task(task: TextTask, network: Network, special: SpecialIds, has_tokenizer: bool) -> None:
    """Raise a RegardError that names the alternatives, unless the network can do this task."""
    tasks = tasks_of(network, special)
    if task in tasks:
        return
    capability = CAPABILITIES[task]
    if task in ("attend", "embed"):
        check_regards_own(network, task)
    described = _described(network, special)
    if task == "fill" and network.config.kind == "encoder" and not network.config.classes:
        described += " that does not predict masked tokens"
    calls = commands = "without a tokenizer this model reads ids only"
    if tasks and has_tokenizer:
        calls = f"this model supports {', '.join(CAPABILITIES[other].call for other in tasks)}"
        commands = f"commands for this model: {', '.join(CAPABILITIES[other].command for other in tasks)}"
    reason = f"requires {capability.needs}, but this is {described}"
    raise CallError(
        f"{capability.call} {reason}; {calls}", f"this model cannot {capability.verb}: that {reason}; {commands}"
    )


def _is_able(network: Network, special: SpecialIds, task: TextTask) -> bool:
    config = network.config
    writes = config.kind != "encoder" and not config.classes
    if task in ("translate", "score pairs"):
        return writes and (config.kind == "encoder-decoder" or special.separator is not None)
    if task == "generate":
        return writes and config.kind == "decoder"
    if task == "score texts":
        return writes and config.kind == "decoder" and not config.prefix
    if task == "classify":
        return config.is_classifier
    if task == "tag":
        return config.is_tagger
    if task == "fill":
        return config.kind == "encoder" and not config.classes and special.mask is not None
    return not is_fast_copy(network) and not isinstance(network, OwnNetwork)


def _described(network: Network, special: SpecialIds) -> str:
    config = network.config
    parts = [config.kind_with_article]
    if config.is_tagger:
        parts.append(f" that tags tokens ({config.classes} classes)")
    elif config.classes:
        parts.append(f" with a classification head ({config.classes} classes)")
    elif config.kind == "decoder":
        if config.prefix:
            parts.append(" with a prefix")
        if special.separator is None:
            parts.append(" without a separator")
    if is_fast_copy(network):
        parts.append(", copied for decoding")
    if isinstance(network, OwnNetwork):
        parts.append(f", your own module {network.name}")
    return "".join(parts)
