"""Attention maps: the weights of every head as a model reads and writes a text, with the tokens they connect.

Dimensions: L layers, H heads, T queries (rows), S keys (columns), V outputs, R tokens read, C model width.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from regard.config import SpecialIds, check_token_count, did_you_mean
from regard.data.tokenizer import Tokenizer, check_text
from regard.decoding.cancellation import raise_if_cancelled
from regard.decoding.capabilities import filled_mask
from regard.decoding.fast_copy import check_not_copy
from regard.decoding.filling import ids_with_masks
from regard.decoding.generate import search_translations
from regard.decoding.hidden_vectors import layer_states
from regard.decoding.logit_lens import LogitLens, lens_predictions
from regard.decoding.options import make_translation_decoding
from regard.decoding.own_network import check_regards_own
from regard.decoding.token_labels import token_labels
from regard.errors import ModelError, RegardError
from regard.model.transformer import Decoder, Encoder, EncoderDecoder, Network
from regard.model.watch import AttentionWeights, watch
from regard.page import attention_frame

AttentionKind = Literal["encoder", "decoder", "cross"]
"""Self-attention of a text that is read, self-attention of a text that is written, attention of a target to its
source."""

MODULE_NAMES: dict[AttentionKind, tuple[str, str]] = {
    "encoder": ("encoder.", ".attention"),
    "decoder": ("decoder.", ".attention"),
    "cross": ("decoder.", ".cross_attention"),
}
"""How the names of the attention modules of each kind begin and end."""
WEIGHT_DECIMALS = 5
"""Decimal places of the weights in JSON: a thousandth of a per cent, which is as much as the page shows."""


@dataclass(frozen=True)
class AttentionMap:
    """The weights of one kind of attention, and the tokens of its rows and columns."""

    weights: Float[Tensor, "L H T S"]
    queries: tuple[str, ...]
    """The token that each row reads."""
    keys: tuple[str, ...]
    """The token of each column."""
    writes: tuple[str, ...] = ()
    """The token that each row of a decoder writes; "" for rows that write none."""

    def open(self, layer: int | None = None, head: int | None = None) -> Float[Tensor, "T S"]:
        """The weights of one head, or the mean over a layer's heads; by default the last layer. Counted from 0."""
        layers, heads = self.weights.shape[:2]
        for name, number, count in (("layer", layer, layers), ("head", head, heads)):
            if number is not None and not 0 <= number < count:
                available = f"only {name} 0" if count == 1 else f"{name}s 0 to {count - 1}"
                raise RegardError(f"no {name} {number}: this attention has {available}")
        chosen = self.weights[layers - 1 if layer is None else layer]  # [H, T, S]
        return chosen.mean(0) if head is None else chosen[head]

    @property
    def rows(self) -> list[str]:
        """The label of each row: the token that is read and, in a decoder, the token that is written."""
        return row_labels(self.queries, self.writes)


def row_labels(reads: Sequence[str], writes: Sequence[str]) -> list[str]:
    """The token that is read and, if one is written, that token; `writes` may be empty."""
    written = writes or [""] * len(reads)
    return [f"{read} → {write}" if write else read for read, write in zip(reads, written, strict=True)]


@dataclass(frozen=True)
class Attention:
    """The weights of every layer and head on one text or pair, with the tokens. Notebooks display it as a page."""

    model: str
    """Name of the model."""
    source: str
    target: str | None
    """The given target, or the translation that the model generated; None if there is none."""
    maps: dict[AttentionKind, AttentionMap]
    special: tuple[str, ...] = ()
    """Labels of special tokens, which are not part of the text."""
    lens: LogitLens | None = None
    """What each layer would predict, if it was asked for."""

    @property
    def kinds(self) -> tuple[AttentionKind, ...]:
        """The kinds of attention that the model has."""
        return tuple(self.maps)

    @property
    def weights(self) -> dict[AttentionKind, Float[Tensor, "L H T S"]]:
        """For each kind, [layers, heads, queries, keys]."""
        return {kind: map_.weights for kind, map_ in self.maps.items()}

    def only(self, kind: str) -> "Attention":
        """The same with only one kind of attention."""
        if kind not in self.maps:
            raise RegardError(f"this model has no {kind!r} attention: {did_you_mean(kind, self.maps)}")
        return replace(self, maps={name: map_ for name, map_ in self.maps.items() if name == kind})

    def __repr__(self) -> str:
        """The model and the shape of each kind; the numbers would fill pages."""
        shapes = ", ".join(f"{kind} {list(map_.weights.shape)}" for kind, map_ in self.maps.items())
        return f"Attention({self.model!r}, {shapes})"

    def to_json(self) -> dict[str, Any]:
        """Everything in types that `json.dumps` accepts; weights have three significant digits."""
        maps = [
            {
                "kind": kind,
                "queries": list(map_.queries),
                "keys": list(map_.keys),
                "writes": list(map_.writes),
                "weights": _rounded(map_.weights),
            }
            for kind, map_ in self.maps.items()
        ]
        texts = {"model": self.model, "source": self.source, "target": self.target}
        lens = {} if self.lens is None else {"lens": self.lens.to_json()}
        return {**texts, "special": list(self.special), "maps": maps, **lens}

    def _repr_html_(self) -> str:
        """The page, for notebooks."""
        return attention_frame(self.to_json())


@dataclass(frozen=True)
class ForwardPass:
    """The ids that a network reads in one pass over a text."""

    network: Network
    read: tuple[int, ...]
    """Ids that the last stack reads: of an encoder-decoder, those of the target."""
    source: tuple[int, ...] = ()
    """Ids that the encoder of an encoder-decoder reads."""
    prefix: int | None = None
    """Length of the bidirectional part, in a decoder with a prefix."""

    @torch.inference_mode()
    def run(self, rows: int = 1) -> Tensor:
        """The logits, with the same text in each row of a batch: [rows, T, V], or [rows, classes] of a classifier."""
        read = _row(self.network, self.read).expand(rows, -1)
        if isinstance(self.network, EncoderDecoder):
            return self.network(_row(self.network, self.source).expand(rows, -1), read)  # type: ignore[no-any-return]
        lengths = {} if self.prefix is None else {"prefix": torch.full((rows,), self.prefix, device=read.device)}
        return self.network(read, **lengths)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Observation:
    """One pass of a model over a text: its attention, and its logits for the tokens that it writes."""

    attention: Attention
    forward: ForwardPass
    states: tuple[Float[Tensor, "1 R C"], ...]
    """The vectors of that stack: see `regard.decoding.hidden_vectors.layer_states`."""
    written: tuple[int, ...]
    """Ids that the model writes: a translation with its end, or all tokens of a language model's text but the first."""
    logits: Float[Tensor, "T V"] | None
    """Logits at the position of each written id; None for a model that writes nothing."""
    first: int = 0
    """Position of the last stack that writes the first id."""


def observe_attention(
    network: Network,
    tokenizer: Tokenizer,
    special: SpecialIds,
    source: str,
    target: str | None = None,
    written: Sequence[int] | None = None,
    name: str = "",
    lens: int = 0,
) -> Observation:
    """The attention of every layer and head as a model called `name` reads `source` and writes `target`, with logits.

    A translator without a target translates first. For a language model the target is a continuation; an encoder
    takes none.

    A caller that has already translated the source passes the ids, the end included, as `written`, together with
    their text as `target`: they are used as they are, and nothing is decoded again.

    With `lens`, the attention also has this many predictions of each layer for every token of the last stack.
    """
    check_not_copy(network, "inspect")
    check_regards_own(network, "attention")
    for role, text in (("text", source), ("target", target)):
        if role == "target" and text is None:
            continue
        check_text(f"the {role}", text)
        if not (text or "").strip() and (role == "text" or written is None):
            raise RegardError(f"the {role} is empty: there is nothing to inspect")
    if network.training:
        raise RegardError("this network is in training mode, where dropout is active: call its .eval() first")
    raise_if_cancelled()
    if isinstance(network, EncoderDecoder):
        observation = _encoder_decoder(network, tokenizer, special, source, target, written)
    elif isinstance(network, Decoder):
        observation = _decoder(network, tokenizer, special, source, target, written)
    elif target is not None:
        raise RegardError("this model is an encoder, which reads a single text: leave the target out")
    else:
        observation = _encoder(network, tokenizer, special, source)
    attention = replace(observation.attention, model=name)
    if lens:
        rows = attention.maps["encoder" if isinstance(network, Encoder) else "decoder"]
        top = lens_predictions(network, tokenizer, observation.forward.read, observation.states, lens)
        attention = replace(attention, lens=LogitLens(rows.queries, rows.writes, top))
    return replace(observation, attention=attention)


def _encoder(network: Encoder, tokenizer: Tokenizer, special: SpecialIds, source: str) -> Observation:
    ids = ids_with_masks(tokenizer, filled_mask(network, special), source)
    forward = ForwardPass(network, tuple(ids))
    with watch(network) as weights, layer_states(network.encoder) as states:
        forward.run()
    tokens = token_labels(tokenizer, ids)
    attention = _attention(
        network,
        tokenizer,
        special,
        source,
        None,
        {"encoder": AttentionMap(_weights(weights, "encoder"), tokens, tokens)},
    )
    return Observation(attention, forward, tuple(states), (), None)


def _encoder_decoder(
    network: EncoderDecoder,
    tokenizer: Tokenizer,
    special: SpecialIds,
    source: str,
    target: str | None,
    given_ids: Sequence[int] | None,
) -> Observation:
    ids = tokenizer.encode_with_template(source)
    text, written = _written(network, tokenizer, special, ids, target, given_ids)
    start, *first = special.target_start
    if written[: len(first)] != first:  # the model writes it too, but has no choice
        written = [*first, *written]
    read = [start, *written[:-1]]
    forward = ForwardPass(network, tuple(read), tuple(ids))
    with watch(network) as weights, layer_states(network.decoder) as states:
        logits = forward.run()[0]  # [T, V]
    sources = token_labels(tokenizer.source_side, ids)
    reads, writes = (token_labels(tokenizer.target_side, tokens) for tokens in (read, written))
    maps: dict[AttentionKind, AttentionMap] = {
        "encoder": AttentionMap(_weights(weights, "encoder"), sources, sources),
        "decoder": AttentionMap(_weights(weights, "decoder"), reads, reads, writes),
        "cross": AttentionMap(_weights(weights, "cross"), reads, sources, writes),
    }
    attention = _attention(network, tokenizer, special, source, text, maps)
    return Observation(attention, forward, tuple(states), tuple(written), logits)


def _decoder(
    network: Decoder,
    tokenizer: Tokenizer,
    special: SpecialIds,
    source: str,
    target: str | None,
    given_ids: Sequence[int] | None,
) -> Observation:
    """A translator, whose source is followed by a separator and the target, or a language model."""
    ids, text = tokenizer.encode_with_template(source), target
    writes: tuple[str, ...]
    separator = None if network.config.classes else special.separator
    if separator is None:
        read = [*ids, *([] if target is None else tokenizer.encode_target(target))]
        prefix, writes, written = len(ids), token_labels(tokenizer, read[1:]), read[1:]
    else:
        text, written = _written(network, tokenizer, special, ids, target, given_ids)
        read = [*ids, separator, *written[:-1]]
        prefix, writes = len(ids) + 1, ("",) * len(ids) + token_labels(tokenizer, written)
    forward = ForwardPass(network, tuple(read), prefix=prefix if network.config.prefix else None)
    with watch(network) as weights, layer_states(network.decoder) as states:
        logits = forward.run()  # [1, T, V], or [1, classes]
    if network.config.classes:
        writes, written = (), []
    elif separator is None:
        writes = (*writes, *token_labels(tokenizer, [int(logits[0, -1].argmax())]))  # the last row's prediction
    tokens = token_labels(tokenizer, read)
    maps: dict[AttentionKind, AttentionMap] = {
        "decoder": AttentionMap(_weights(weights, "decoder"), tokens, tokens, writes)
    }
    attention = _attention(network, tokenizer, special, source, text, maps)
    if network.config.classes:
        return Observation(attention, forward, tuple(states), (), None)
    first = 0 if separator is None else len(ids)  # the position that writes the first token
    logits = logits[0, first : first + len(written)]
    return Observation(attention, forward, tuple(states), tuple(written), logits, first)


def _written(
    network: Decoder | EncoderDecoder,
    tokenizer: Tokenizer,
    special: SpecialIds,
    source: list[int],
    target: str | None,
    given_ids: Sequence[int] | None,
) -> tuple[str, list[int]]:
    """The text of the target and all of its ids, with the end token unless the model never generated one."""
    end = special.end[:1]
    if given_ids is not None:
        return target or "", list(given_ids)
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
    maps: dict[AttentionKind, AttentionMap],
) -> Attention:
    read = (*tokenizer.before, *tokenizer.after)
    written = (*special.end, *special.target_start, special.separator, special.mask, network.config.output_pad_id)
    labels = [
        label
        for side, ids in ((tokenizer.source_side, read), (tokenizer.target_side, written))
        for label in token_labels(side, [id_ for id_ in ids if id_ is not None])
    ]
    return Attention("", source, target, maps, tuple(dict.fromkeys(labels)))


def _weights(weights: AttentionWeights, kind: AttentionKind) -> Float[Tensor, "L H T S"]:
    """The weights of all layers; each attention module was called once, on one row."""
    begin, end = MODULE_NAMES[kind]
    layers = [calls[0] for name, calls in weights.items() if name.startswith(begin) and name.endswith(end)]
    return torch.cat(layers).float().cpu()


def _row(network: Network, ids: Sequence[int]) -> Tensor:
    """The ids as a batch of one, on the device of the network."""
    check_token_count("the text", len(ids), network.config.max_positions)
    return torch.tensor([list(ids)], device=network.device)  # [1, T]


def _rounded(weights: Float[Tensor, "L H T S"]) -> list[list[list[list[float | int]]]]:
    """The weights with three significant digits and at most `WEIGHT_DECIMALS` decimal places; all must be finite."""
    if not weights.isfinite().all():  # JSON has no notation for NaN and infinity
        raise ModelError
    one, short = 10**WEIGHT_DECIMALS, _short_numbers()
    scaled = (weights.double() * one).round().clamp(0, one)  # [L, H, T, S]
    return [[[[short[n] for n in row] for row in head] for head in layer] for layer in scaled.long().tolist()]


@cache
def _short_numbers() -> tuple[float | int, ...]:
    """0, 0.00001, 0.00002, … 1 with three significant digits each: looking a number up is faster than rounding it."""
    one = 10**WEIGHT_DECIMALS
    significant = (round(n, 3 - len(str(n))) if n >= 1000 else n for n in range(one))
    return (0, *(n / one if n < one else 1 for n in significant if n), 1)
