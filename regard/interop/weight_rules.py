"""Rules that convert another library's tensors to Regard's and back; each rule describes both directions.

"Ours" refers to Regard's tensors, "theirs" to those of the other library.

Dimensions: C model width, H heads, D head width.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.config import ModelConfig
from regard.errors import RegardError
from regard.model.positions import sinusoids
from regard.model.transformer import Network

StateDict = dict[str, Tensor]
TensorMap = Callable[..., tuple[Tensor, ...]]

SUPPRESSED_BIAS = -1e4
"""Output bias of an id that must never be generated: its probability is 0 even in float32, and float16 can store it."""


def _unchanged(*tensors: Tensor) -> tuple[Tensor, ...]:
    return tensors


@dataclass(frozen=True)
class WeightRule:
    """Maps tensors of ours to tensors of theirs: `read` converts theirs to ours, `write` converts ours to theirs."""

    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    read: TensorMap = _unchanged
    write: TensorMap = _unchanged
    default: Callable[[], Tensor] | None = None
    """Makes the value of their tensor for a folder that does not contain it; None if it is required."""


def renamed(ours: str, theirs: str, parts: Iterable[str] = ("weight", "bias")) -> list[WeightRule]:
    """Return the rules for a module that differs only in name."""
    return [WeightRule((f"{ours}.{part}",), (f"{theirs}.{part}",)) for part in parts]


def renamed_layers(
    ours: str, theirs: str, count: int, names: Mapping[str, str], parts: Iterable[str] = ("weight", "bias")
) -> list[WeightRule]:
    """Return the rules for a stack of layers; `names` maps our names of the modules of a layer to theirs."""
    return [
        rule
        for i in range(count)
        for our_name, their_name in names.items()
        for rule in renamed(f"{ours}.{i}.{our_name}", f"{theirs}.{i}.{their_name}", parts)
    ]


def transposed_linears(ours: Sequence[str], theirs: str) -> list[WeightRule]:
    """Return the rules for a module of theirs that stores one or several of our linear layers, transposed."""

    def read(tensor: Tensor) -> tuple[Tensor, ...]:
        # .t() fails on a tensor with 3 dimensions; .T would transpose it.
        return tuple(part.t().contiguous() for part in tensor.chunk(len(ours), dim=1))

    def split(tensor: Tensor) -> tuple[Tensor, ...]:
        return tuple(tensor.chunk(len(ours)))

    weights, biases = (tuple(f"{name}.{part}" for name in ours) for part in ("weight", "bias"))
    return [
        WeightRule(weights, (f"{theirs}.weight",), read, lambda *parts: (torch.cat(parts).T.contiguous(),)),
        WeightRule(biases, (f"{theirs}.bias",), split, lambda *parts: (torch.cat(parts),)),
    ]


def with_pad_row(rule: WeightRule) -> WeightRule:
    """Extend the rule of an output layer whose counterpart has an extra row for <pad>.

    The row is dropped when reading. When writing, a weight gets zeros and a bias a value that suppresses <pad>.
    """
    fill = SUPPRESSED_BIAS if rule.ours == ("output_bias",) else 0.0

    def write(tensor: Tensor) -> tuple[Tensor, ...]:
        return rule.write(torch.cat([tensor, tensor.new_full((1, *tensor.shape[1:]), fill)]))

    return replace(rule, read=lambda tensor: tuple(part[:-1] for part in rule.read(tensor)), write=write)


def apply_rules(rules: Sequence[WeightRule], state: StateDict) -> StateDict:
    """Convert our tensors to theirs."""
    theirs: StateDict = {}
    for rule in rules:
        theirs.update(zip(rule.theirs, rule.write(*(state[name] for name in rule.ours)), strict=True))
    return theirs


def float32_state(network: Network) -> StateDict:
    """Return a network's weights in float32 on the CPU."""
    return {name: tensor.detach().float().cpu() for name, tensor in network.state_dict().items()}


LINEAR_MODULES = {"q", "k", "v", "out", "up", "gate", "down"}
"""Names of the linear layers whose bias depends on the config."""


def expand_biases_and_heads(config: ModelConfig, state: StateDict) -> tuple[ModelConfig, StateDict]:
    """Rewrite a model for engines with fewer options: every linear layer has a bias, every query head its own keys."""
    state = dict(state)
    for name in [name for name in state if name.endswith(".weight") and name.split(".")[-2] in LINEAR_MODULES]:
        state.setdefault(f"{name.removesuffix('.weight')}.bias", torch.zeros(len(state[name])))
    d_k, d_v, groups = config.widths
    if groups != config.heads:
        for name in [name for name in state if re.search(r"attention\.[kv]\.(weight|bias)$", name)]:
            heads = state[name].view(groups, d_k if ".k." in name else d_v, *state[name].shape[1:])  # [G, D, ...]
            state[name] = heads.repeat_interleave(config.heads // groups, 0).flatten(0, 1)
    return replace(config, bias=True, attention_bias=None, kv_heads=None), state


def fold_embedding_scale(config: ModelConfig, state: StateDict) -> tuple[ModelConfig, StateDict]:
    """Multiply the embeddings by √d_model so that the model does not scale them; the output layer is untied."""
    if not config.scale_embeddings:
        return config, state
    tokens = state["embedding.tokens.weight"]
    state = state | {"embedding.tokens.weight": tokens * config.d_model**0.5}
    if config.tied and not config.classes:
        state["output.weight"] = tokens[: config.outputs]
    return replace(config, scale_embeddings=False, tied=config.tied and bool(config.classes)), state


def with_position_table(config: ModelConfig, state: StateDict) -> tuple[ModelConfig, StateDict]:
    """Store sinusoidal positions, or zeros for a model without positions, as a learned table of max_length rows."""
    if config.positions == "sinusoidal":
        table = sinusoids(torch.arange(config.max_length), config.d_model, torch.float32, config.sinusoids == "fairseq")
    elif config.positions == "none":
        table = torch.zeros(config.max_length, config.d_model)
    else:
        return config, state
    return replace(config, positions="learned", sinusoids="paper"), state | {"embedding.positions.weight": table}


def drop_pad_row(config: ModelConfig, state: StateDict) -> tuple[ModelConfig, StateDict]:
    """Remove a trailing <pad>, which a decoder neither reads nor generates, from its vocabulary."""
    if not config.pad_is_last:
        return config, state
    tokens = state["embedding.tokens.weight"][:-1]
    return replace(config, vocab_size=config.outputs, pad=None), state | {"embedding.tokens.weight": tokens}


def sinusoids_in_halves(state: StateDict, width: int) -> StateDict:
    """Reorder the model width so that all sines come before all cosines, as in Marian and Pegasus.

    No layer depends on the order of the model width, so every tensor with that dimension can be permuted alike.
    """
    return _permuted(state, torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)]))


def sinusoids_interleaved(state: StateDict, width: int) -> StateDict:
    """Undo `sinusoids_in_halves`."""
    return _permuted(state, torch.arange(width).view(2, width // 2).T.flatten())


def _permuted(state: StateDict, order: Tensor) -> StateDict:
    axes = {name: _width_axis(name) for name in state}
    return {name: x if (axis := axes[name]) is None else x.index_select(axis, order) for name, x in state.items()}


def _width_axis(name: str) -> int | None:
    """Return the axis of a tensor that is the model width, or None if it has none."""
    module, part = name.split(".")[-2:] if "." in name else (name, "")
    if module in {"q", "k", "v", "up", "gate"}:
        return 1 if part == "weight" else None
    if module in {"tokens", "positions", "output"}:
        return 1
    return None if module == "output_bias" else 0  # out, down, norms


def rotate_halves(config: ModelConfig, state: StateDict) -> tuple[ModelConfig, StateDict]:
    """Rewrite a model that rotates adjacent dimensions into an equivalent one that rotates those of two halves."""
    if config.rotary_pairs == "halves":
        return config, state
    _, _, groups = config.widths
    rows = {".attention.q.": config.heads, ".attention.k.": groups, ".attention.q_norm.": 1, ".attention.k_norm.": 1}
    reordered = {
        name: heads_in_halves(tensor, heads)
        for name, tensor in state.items()
        for part, heads in rows.items()
        if part in name
    }
    return replace(config, rotary_pairs="halves"), state | reordered


def heads_in_halves(weight: Float[Tensor, "HD *C"], heads: int) -> Float[Tensor, "HD *C"]:
    """Reorder the rows that compute queries or keys: the first dimensions of all adjacent pairs, then the second."""
    pairs = weight.reshape(heads, -1, 2, *weight.shape[1:])  # [H, D / 2, 2, *C]
    return pairs.transpose(1, 2).reshape(weight.shape)  # [H, 2, D / 2, *C] → [HD, *C]


def require_settings(settings: dict[str, Any], where: str, **required: Any) -> None:
    """Raise RegardError if a setting has another value than Regard supports; missing and null settings pass."""
    for key, value in required.items():
        if settings.get(key) is not None and settings[key] != value:
            raise RegardError(f"{where}: {key}={settings[key]!r} is not supported; Regard reads only {value!r}")


def uneven_heads_reason(config: ModelConfig) -> dict[str, bool]:
    """Return the entry of `refuse_export` for architectures whose heads divide the model width evenly."""
    width = config.d_model // config.heads
    return {"its heads are not d_model ÷ heads wide": config.widths != (width, width, config.heads)}


def refuse_export(target: str, reasons: dict[str, bool]) -> None:
    """Raise RegardError with the first reason that holds, if any."""
    for reason, holds in reasons.items():
        if holds:
            raise RegardError(f"this model cannot be exported as {target}: {reason}")
