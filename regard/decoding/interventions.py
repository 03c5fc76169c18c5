"""Changes to the attention of a model while it runs: silenced heads, hidden tokens and replaced weights.

`intervene` applies them with hooks, in whole passes and in decoding with a cache, and leaves the weights of the model
as they are. The page, its API and the lab `prune` use it.

Dimensions: R rows of a batch (1 if all rows are changed alike), T queries, S keys, H heads, Dv width of a value.
"""

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.config import did_you_mean
from regard.decoding.attention_inputs import AttentionCall
from regard.decoding.attention_maps import MODULE_NAMES, AttentionKind, AttentionMap
from regard.decoding.fast_copy import check_not_copy
from regard.decoding.own_network import check_regards_own
from regard.errors import RegardError
from regard.model.attention import MultiHeadAttention, combine_heads
from regard.model.layers import Stack
from regard.model.masks import BiasedMask, Mask, biased_mask, dense_mask
from regard.model.transformer import EncoderDecoder, Network

_STACK_SIGNATURE = inspect.signature(Stack.forward)


class HeadName(NamedTuple):
    """A head of a model, counted from 0."""

    kind: AttentionKind
    layer: int
    head: int


class WeightChange(NamedTuple):
    """A new weight for one cell of a head. The other weights of the row are rescaled, so that its sum remains 1."""

    head: HeadName
    row: int
    """Position of the query."""
    column: int
    """Position of the key."""
    weight: float


@dataclass(frozen=True)
class AttentionChanges:
    """What is changed in the attention of a model."""

    silenced: tuple[HeadName, ...] = ()
    """Heads whose output is replaced by zeros."""
    hidden: tuple[int, ...] = ()
    """Positions of tokens of the text that is read, which no query may attend to."""
    weights: tuple[WeightChange, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything is changed."""
        return bool(self.silenced or self.hidden or self.weights)

    def check(self, network: Network, tokens: int) -> None:
        """Raise a RegardError unless the network has these heads, and the text that it reads these tokens."""
        modules = attention_modules(network)
        for name in (*self.silenced, *(change.head for change in self.weights)):
            check_head(modules, name)
        beyond = [position for position in self.hidden if not 0 <= position < tokens]
        if beyond:
            raise RegardError(f"token {beyond[0]} cannot be hidden: the text has tokens 0 to {tokens - 1}")
        for change in self.weights:
            if not 0 <= change.weight <= 1:
                raise RegardError(f"a weight of {change.weight:g} is not possible: weights are between 0 and 1")
            if change.head.kind == "decoder" and change.column > change.row and not network.config.prefix:
                raise RegardError(
                    f"row {change.row} cannot attend to column {change.column}: a decoder sees only the tokens so far"
                )
            if change.head.kind != "decoder" and change.column >= tokens:
                raise RegardError(f"there is no column {change.column}: the text has tokens 0 to {tokens - 1}")


def attention_modules(network: Network) -> dict[tuple[AttentionKind, int], MultiHeadAttention]:
    """Every multi-head attention by its kind and layer, in the order in which the network applies them."""
    check_regards_own(network, "attention")
    modules: dict[tuple[AttentionKind, int], MultiHeadAttention] = {}
    for name, module in network.named_modules():
        if isinstance(module, MultiHeadAttention):
            kind = next(k for k, (begin, end) in MODULE_NAMES.items() if name.startswith(begin) and name.endswith(end))
            modules[kind, int(name.split(".")[2])] = module
    return modules


def check_head(modules: Mapping[tuple[AttentionKind, int], MultiHeadAttention], name: HeadName) -> None:
    """Raise a RegardError unless one of the modules contains this head."""
    kinds = list(dict.fromkeys(kind for kind, _ in modules))
    if name.kind not in kinds:
        raise RegardError(f"this model has no {name.kind!r} attention: {did_you_mean(name.kind, kinds)}")
    layers = sum(kind == name.kind for kind, _ in modules)
    if not 0 <= name.layer < layers:
        raise RegardError(f"no layer {name.layer}: {name.kind} attention has layers 0 to {layers - 1}")
    heads = modules[name.kind, name.layer].heads
    if not 0 <= name.head < heads:
        raise RegardError(f"no head {name.head}: this attention has heads 0 to {heads - 1}")


@contextmanager
def intervene(network: Network, changes: AttentionChanges) -> Iterator[None]:
    """Apply the changes to every row of every pass within the context."""
    if not changes:
        yield
        return
    check_not_copy(network, "change")
    modules = attention_modules(network)
    heads: dict[MultiHeadAttention, list[int]] = {}
    for kind, layer, head in changes.silenced:
        heads.setdefault(modules[kind, layer], []).append(head)
    with ExitStack() as hooks:
        if changes.hidden:
            hooks.enter_context(hidden_tokens(network, [changes.hidden]))
        if changes.weights:
            hooks.enter_context(_replaced_weights(network, changes.weights))
        for module, silenced in heads.items():  # last, so that a silenced head stays silent whatever its weights are
            hooks.enter_context(silenced_heads(module, silenced))
        yield


@contextmanager
def silenced_heads(module: MultiHeadAttention, heads: Iterable[int]) -> Iterator[None]:
    """Replace the output of these heads by zeros within the context."""
    kept = torch.ones(1, module.heads, dtype=torch.bool)
    kept[:, list(heads)] = False
    with kept_heads(module, kept):
        yield


@contextmanager
def kept_heads(module: MultiHeadAttention, kept: Bool[Tensor, "R H"]) -> Iterator[None]:
    """Replace the output of all other heads by zeros within the context; each row of a batch keeps its own heads."""
    width = module.out.in_features // module.heads
    factors = kept.repeat_interleave(width, 1)[:, None]  # [R, 1, H·Dv]

    def silence(_out: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
        (combined,) = inputs  # [R, T, H·Dv]
        return combined * factors.to(combined)

    hook = module.out.register_forward_pre_hook(silence)
    try:
        yield
    finally:
        hook.remove()


@contextmanager
def hidden_tokens(network: Network, positions: Sequence[Sequence[int]]) -> Iterator[None]:
    """Let no query attend to tokens at these positions of the text that is read, given for each row of a batch.

    In an encoder–decoder this is the source. One row of positions stands for all rows.
    """

    def hide(module: nn.Module, args: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        assert isinstance(module, MultiHeadAttention)
        call = AttentionCall.of(module, args, options)
        visible = torch.ones(len(positions), call.keys, dtype=torch.bool)
        for row, hidden in enumerate(positions):
            visible[row, [position for position in hidden if position < call.keys]] = False
        mask = _hide_keys(call, visible[:, None, None].to(call.query.device))
        names = ("query", "key", "value", "rotary", "cache")
        return (), options | {name: getattr(call, name) for name in names} | {"mask": mask}

    reads = "encoder" if isinstance(network, EncoderDecoder) else None
    with ExitStack() as hooks:
        for (kind, _), module in attention_modules(network).items():
            if reads is None or kind in (reads, "cross"):
                # Before all other hooks, which read the mask.
                hooks.callback(module.register_forward_pre_hook(hide, with_kwargs=True, prepend=True).remove)
        yield


def _hide_keys(call: AttentionCall, visible: Bool[Tensor, "R 1 1 S"]) -> Mask:
    """The mask of a call that also hides keys."""
    mask, t = call.mask, call.query.size(1)
    if isinstance(mask, BiasedMask):
        allowed = visible if mask.allowed is None else mask.allowed & visible
        return biased_mask(allowed, mask.bias, len(call.query))
    scores = call.query.new_empty(()).expand(len(call.query), call.module.heads, t, call.keys)  # only its shape counts
    dense = dense_mask(mask, scores)
    return visible if dense is None else dense & visible


@contextmanager
def _replaced_weights(network: Network, changes: Sequence[WeightChange]) -> Iterator[None]:
    modules = attention_modules(network)
    by_module: dict[tuple[AttentionKind, int], list[WeightChange]] = {}
    for change in changes:
        by_module.setdefault((change.head.kind, change.head.layer), []).append(change)
    with ExitStack() as hooks:
        for key, of_module in by_module.items():
            stack = network.encoder if key[0] == "encoder" else network.decoder
            assert isinstance(stack, Stack)
            editor = _WeightEditor(modules[key], of_module)
            hooks.callback(stack.register_forward_pre_hook(editor.note_positions, with_kwargs=True).remove)
            hooks.callback(modules[key].register_forward_pre_hook(editor.note_call, with_kwargs=True).remove)
            hooks.callback(modules[key].out.register_forward_pre_hook(editor.replace_output).remove)
        yield


class _WeightEditor:
    """Hooks on one attention: replace some weights, and with them the output of their heads."""

    def __init__(self, module: MultiHeadAttention, changes: Sequence[WeightChange]) -> None:
        self.module, self.changes = module, changes
        self.positions = torch.empty(0)  # [T] or [R, T]: of the queries in the current pass
        self.call: AttentionCall | None = None

    def note_positions(self, stack: nn.Module, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        """Before the stack runs: note the positions of its tokens."""
        self.positions = _STACK_SIGNATURE.bind(stack, *args, **options).arguments["positions"]

    def note_call(self, _module: nn.Module, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        """Before the attention runs: note its inputs."""
        self.call = AttentionCall.of(self.module, args, options)

    def replace_output(self, _out: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
        """Before the output projection: add what the new weights change."""
        assert self.call is not None
        (combined,) = inputs  # [R, T, H·Dv]
        q, k, v = self.call.vectors()
        weights = self.call.weights(q, k, v)  # [R, H, T, S]
        changed = weights.clone()
        for change in self.changes:
            if change.column < weights.size(-1):
                rows = (self.positions == change.row).expand(len(weights), -1)  # [R, T]
                one = changed[:, change.head.head]  # [R, T, S], a view
                one[rows] = replaced_weight(one[rows], change.column, change.weight)
        self.call = None
        return combined + combine_heads((changed - weights) @ v)


def replaced_weight(rows: Float[Tensor, "*B S"], column: int, weight: float) -> Float[Tensor, "*B S"]:
    """Rows of weights with another weight in one column. The others keep their proportions.

    A row stays as it is if that key is masked, or if it is the only one that is not.

    >>> replaced_weight(torch.tensor([0.5, 0.25, 0.25]), 0, 0.2)
    tensor([0.2000, 0.4000, 0.4000])
    """
    index = torch.tensor(column, device=rows.device)
    others = rows.index_fill(-1, index, 0.0)
    total = others.sum(-1, keepdim=True)  # [*B, 1]
    possible = (total > 0) & (rows[..., column : column + 1] > 0)
    changed = (others * (1 - weight) / total.clamp_min(torch.finfo(rows.dtype).tiny)).index_fill(-1, index, weight)
    return torch.where(possible, changed, rows)


def changed_maps(
    maps: Mapping[AttentionKind, AttentionMap], changes: Sequence[WeightChange]
) -> dict[AttentionKind, AttentionMap]:
    """Attention maps with the replaced weights in place of those that the model computed."""
    changed = {
        kind: AttentionMap(each.weights.clone(), each.queries, each.keys, each.writes) for kind, each in maps.items()
    }
    for (kind, layer, head), row, column, weight in changes:
        weights = changed[kind].weights  # [L, H, T, S]
        if row < weights.size(2) and column < weights.size(3):
            weights[layer, head, row] = replaced_weight(weights[layer, head, row], column, weight)
    return changed
