"""What every head looks at: a model and a text give weights with the tokens they are between.

Dimensions: L layers, H heads, T queries (rows), S keys (columns), V outputs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from regard.config import SpecialIds, check_token_count, did_you_mean
from regard.data.tokenizer import Tokenizer, check_text
from regard.decoding.cancellation import raise_if_cancelled
from regard.decoding.generate import search_translations
from regard.decoding.options import make_translation_decoding
from regard.errors import ModelError, RegardError
from regard.model.transformer import Decoder, Encoder, EncoderDecoder, Network
from regard.model.watch import Seen, watch
from regard.page import attention_frame

Kind = Literal["encoder", "decoder", "cross"]
"""a text looks at itself, a text being written looks at itself so far, a target looks at its source"""

STACKS: dict[Kind, tuple[str, str]] = {
    "encoder": ("encoder.", ".attention"),
    "decoder": ("decoder.", ".attention"),
    "cross": ("decoder.", ".cross_attention"),
}
"""how the names of each kind's attentions begin and end"""
DECIMALS = 5
"""Decimal places of the weights in JSON: a thousandth of a per cent, and no more than a page shows."""


@dataclass(frozen=True)
class Map:
    """The weights of one kind of attention, and what stands at its rows and columns."""

    weights: Float[Tensor, "L H T S"]
    queries: tuple[str, ...]
    """the token that each row reads"""
    keys: tuple[str, ...]
    """the token that each column is"""
    writes: tuple[str, ...] = ()
    """in a decoder, the token that each row writes; "" where none is asked for"""

    def open(self, layer: int | None = None, head: int | None = None) -> Float[Tensor, "T S"]:
        """One head's weights, or the mean of a layer's heads; counted from 0, and the last layer if none is named."""
        layers, heads = self.weights.shape[:2]
        for name, number, count in (("layer", layer, layers), ("head", head, heads)):
            if number is not None and not 0 <= number < count:
                there = f"{name} 0 alone" if count == 1 else f"{name}s 0 to {count - 1}"
                raise RegardError(f"there is no {name} {number}: this attention has {there}")
        chosen = self.weights[layers - 1 if layer is None else layer]  # [H, T, S]
        return chosen.mean(0) if head is None else chosen[head]

    @property
    def rows(self) -> list[str]:
        """What each row is, for people: the token read and, in a decoder, the one written."""
        written = self.writes or ("",) * len(self.queries)
        return [f"{read} → {write}" if write else read for read, write in zip(self.queries, written, strict=True)]


@dataclass(frozen=True)
class Attention:
    """Every layer and head's weights on one text or pair, with the tokens. In a notebook it shows itself."""

    model: str
    """its name"""
    source: str
    target: str | None
    """what was given, or what the model said; None where there is none"""
    maps: dict[Kind, Map]
    special: tuple[str, ...] = ()
    """tokens that steer the model rather than being text"""

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Which attentions the model has."""
        return tuple(self.maps)

    @property
    def weights(self) -> dict[Kind, Float[Tensor, "L H T S"]]:
        """For each kind, [layers, heads, queries, keys]."""
        return {kind: each.weights for kind, each in self.maps.items()}

    def only(self, kind: str) -> "Attention":
        """The same with one kind of attention alone."""
        if kind not in self.maps:
            raise RegardError(f"this model has no {kind!r} attention: {did_you_mean(kind, self.maps)}")
        maps = {name: each for name, each in self.maps.items() if name == kind}
        return Attention(self.model, self.source, self.target, maps, self.special)

    def __repr__(self) -> str:
        """Which model, and the shape of each kind: the numbers would fill pages."""
        shapes = ", ".join(f"{kind} {list(each.weights.shape)}" for kind, each in self.maps.items())
        return f"Attention({self.model!r}, {shapes})"

    def to_json(self) -> dict[str, Any]:
        """All of it in lists and numbers that `json.dumps` takes; weights have three significant digits."""
        maps = [
            {
                "kind": kind,
                "queries": list(each.queries),
                "keys": list(each.keys),
                "writes": list(each.writes),
                "weights": _rounded(each.weights),
            }
            for kind, each in self.maps.items()
        ]
        told = {"model": self.model, "source": self.source, "target": self.target}
        return {**told, "special": list(self.special), "maps": maps}

    def _repr_html_(self) -> str:
        """The page, for a notebook."""
        return attention_frame(self.to_json())


@dataclass(frozen=True)
class Observation:
    """One pass of a model over a text: its attention, and its logits for the tokens it writes."""

    attention: Attention
    written: tuple[int, ...]
    """Ids that the model writes: a translation with its end, or all tokens of a language model's text but the first."""
    logits: Float[Tensor, "T V"] | None
    """Logits at the position of each written id; None for a model that writes nothing."""


def observe(
    network: Network,
    tokenizer: Tokenizer,
    special: SpecialIds,
    source: str,
    target: str | None = None,
    written: Sequence[int] | None = None,
    name: str = "",
) -> Observation:
    """The attention of every layer and head as a model called `name` reads `source` and writes `target`, with logits.

    A translator without a target translates first. For a language model the target is a continuation; an encoder
    takes none.

    A caller that has already translated the source passes the ids, the end included, as `written`, together with
    their text as `target`: they are used as they are, and nothing is decoded again.
    """
    network.check_whole("look at")
    for role, text in (("text", source), ("target", target)):
        if role == "target" and text is None:
            continue
        check_text(f"the {role}", text)
        if not (text or "").strip() and (role == "text" or written is None):
            raise RegardError(f"the {role} is empty: there is nothing to look at")
    if network.training:
        raise RegardError("this network is being trained, and would drop values at random: call its .eval() first")
    raise_if_cancelled()
    if isinstance(network, EncoderDecoder):
        observation = _encoder_decoder(network, tokenizer, special, source, target, written)
    elif isinstance(network, Decoder):
        observation = _decoder(network, tokenizer, special, source, target, written)
    elif target is not None:
        raise RegardError("this model is an encoder, which reads one text: leave the target out")
    else:
        observation = _encoder(network, tokenizer, special, source)
    return replace(observation, attention=replace(observation.attention, model=name))


def readable(piece: str) -> str:
    r"""A piece of text as a label: no space around it, and nothing invisible.

    >>> [readable(piece) for piece in (" chat", " ", "\n", "a\x1b[2J")]
    ['chat', '␣', '⏎', 'a\\x1b[2J']
    """
    shown = piece.replace("▁", " ").strip(" ") or "␣" * len(piece)
    return "".join(c if c.isprintable() else "⏎" if c == "\n" else repr(c)[1:-1] for c in shown)


def _encoder(network: Encoder, tokenizer: Tokenizer, special: SpecialIds, source: str) -> Observation:
    ids = tokenizer.encode_with_template(source)
    with torch.inference_mode(), watch(network) as seen:
        network(_row(network, ids))
    tokens = _labels(tokenizer, ids)
    attention = _attention(
        network, tokenizer, special, source, None, {"encoder": Map(_weights(seen, "encoder"), tokens, tokens)}
    )
    return Observation(attention, (), None)


def _encoder_decoder(
    network: EncoderDecoder,
    tokenizer: Tokenizer,
    special: SpecialIds,
    source: str,
    target: str | None,
    known: Sequence[int] | None,
) -> Observation:
    ids = tokenizer.encode_with_template(source)
    text, written = _written(network, tokenizer, special, ids, target, known)
    assert special.start is not None  # else it could not have been loaded
    read = [special.start, *written[:-1]]
    with torch.inference_mode(), watch(network) as seen:
        logits = network(_row(network, ids), _row(network, read))[0]  # [T, V]
    sources, reads, writes = (_labels(tokenizer, each) for each in (ids, read, written))
    maps: dict[Kind, Map] = {
        "encoder": Map(_weights(seen, "encoder"), sources, sources),
        "decoder": Map(_weights(seen, "decoder"), reads, reads, writes),
        "cross": Map(_weights(seen, "cross"), reads, sources, writes),
    }
    return Observation(_attention(network, tokenizer, special, source, text, maps), tuple(written), logits)


def _decoder(
    network: Decoder,
    tokenizer: Tokenizer,
    special: SpecialIds,
    source: str,
    target: str | None,
    known: Sequence[int] | None,
) -> Observation:
    """A translator, whose source is followed by a separator and the target; or a language model."""
    ids, text = tokenizer.encode_with_template(source), target
    writes: tuple[str, ...]
    separator = None if network.config.classes else special.separator
    if separator is None:
        read = [*ids, *([] if target is None else tokenizer.encode_target(target))]
        prefix, writes, written = len(ids), _labels(tokenizer, read[1:]), read[1:]
    else:
        text, written = _written(network, tokenizer, special, ids, target, known)
        read = [*ids, separator, *written[:-1]]
        prefix, writes = len(ids) + 1, ("",) * len(ids) + _labels(tokenizer, written)
    lengths = {"prefix": torch.tensor([prefix], device=network.device)} if network.config.prefix else {}
    with torch.inference_mode(), watch(network) as seen:
        logits = network(_row(network, read), **lengths)  # [1, T, V], or [1, classes]
    if network.config.classes:
        writes, written = (), []
    elif separator is None:
        writes = (*writes, *_labels(tokenizer, [int(logits[0, -1].argmax())]))  # behind the text: what it would say
    tokens = _labels(tokenizer, read)
    attention = _attention(
        network, tokenizer, special, source, text, {"decoder": Map(_weights(seen, "decoder"), tokens, tokens, writes)}
    )
    if network.config.classes:
        return Observation(attention, (), None)
    first = 0 if separator is None else len(ids)  # the position that writes the first id
    return Observation(attention, tuple(written), logits[0, first : first + len(written)])


def _written(
    network: Decoder | EncoderDecoder,
    tokenizer: Tokenizer,
    special: SpecialIds,
    source: list[int],
    target: str | None,
    known: Sequence[int] | None,
) -> tuple[str, list[int]]:
    """The target's text, and all the ids that are written for it: its end too, unless it never came to one."""
    end = special.end[:1]
    if known is not None:
        return target or "", list(known)
    if target is not None:
        return target, [*tokenizer.encode_target(target), *end]
    decoding = make_translation_decoding(None, {}, network.config.outputs)
    ((best,),) = search_translations(network, special, [source], decoding, tokenizer.decode)
    return tokenizer.decode(best.ids), [*best.ids, *(end if best.reason == "end" else ())]


def _attention(
    network: Network,
    tokenizer: Tokenizer,
    special: SpecialIds,
    source: str,
    target: str | None,
    maps: dict[Kind, Map],
) -> Attention:
    ids = (*tokenizer.before, *tokenizer.after, *special.end, special.start, special.separator, network.config.pad_id)
    known = dict.fromkeys(_labels(tokenizer, [id_ for id_ in ids if id_ is not None]))
    return Attention("", source, target, maps, tuple(known))


def _labels(tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[str, ...]:
    """Each id for people; a dot before what goes on with a word, unless pieces are single characters anyway."""
    pieces = tokenizer.pieces(ids)
    letters = all(len(piece.strip()) <= 1 for piece in pieces)
    joined = [False, *(not letters and in_one_word(tokenizer, *pair) for pair in pairwise(ids))]
    return tuple("·" * dot + readable(piece) for dot, piece in zip(joined, pieces, strict=False))  # no ids, no pieces


def in_one_word(tokenizer: Tokenizer, before: int, id_: int) -> bool:
    """Whether two pieces stand in one word: together they are their texts with nothing between."""
    left, right = tokenizer.decode([before]), tokenizer.decode([id_])
    within = left[-1:].isalnum() and right[:1].isalnum()
    return within and tokenizer.decode([before, id_]) == left + right


def _weights(seen: Seen, kind: Kind) -> Float[Tensor, "L H T S"]:
    """Of all layers; each attention was called once, on one row."""
    begin, end = STACKS[kind]
    layers = [calls[0] for name, calls in seen.items() if name.startswith(begin) and name.endswith(end)]
    return torch.cat(layers).float().cpu()


def _row(network: Network, ids: list[int]) -> Tensor:
    """The ids as a batch of one, on the device of the network."""
    check_token_count("the text", len(ids), network.config.max_positions)
    return torch.tensor([ids], device=network.device)  # [1, T]


def _rounded(weights: Float[Tensor, "L H T S"]) -> list[list[list[list[float | int]]]]:
    """The weights with three significant digits and at most `DECIMALS` places; a ValueError if one is not finite."""
    if not weights.isfinite().all():  # JSON has no number for them
        raise ModelError
    whole, short = 10**DECIMALS, _short_numbers()
    scaled = (weights.double() * whole).round().clamp(0, whole)  # [L, H, T, S]
    return [[[[short[n] for n in row] for row in head] for head in layer] for layer in scaled.long().tolist()]


@cache
def _short_numbers() -> tuple[float | int, ...]:
    """0, 0.00001, 0.00002, … 1, each with three significant digits: to look a number up is quicker than to round it."""
    whole = 10**DECIMALS
    few = (round(n, 3 - len(str(n))) if n >= 1000 else n for n in range(whole))
    return (0, *(n / whole if n < whole else 1 for n in few if n), 1)
