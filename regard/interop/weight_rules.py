"""How another library's tensors become ours and ours become theirs: one rule for both ways.

Dimensions: C model width.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from regard.config import ModelConfig
from regard.errors import RegardError
from regard.model.positions import sinusoids
from regard.model.transformer import Network

State = dict[str, Tensor]
Change = Callable[..., tuple[Tensor, ...]]

NEVER = -1e4
"""the bias of an id that is never to be said: its probability is 0 even in float32, and float16 can hold it"""


def _as_it_is(*tensors: Tensor) -> tuple[Tensor, ...]:
    return tensors


@dataclass(frozen=True)
class Rule:
    """These tensors of ours are those of theirs, changed on the way in by `read` and on the way out by `write`."""

    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    read: Change = _as_it_is
    write: Change = _as_it_is
    default: Callable[[], Tensor] | None = None
    """what stands for their tensor in a folder that lacks it"""


def same(ours: str, theirs: str, parts: Iterable[str] = ("weight", "bias")) -> list[Rule]:
    """One module is the other, part by part."""
    return [Rule((f"{ours}.{part}",), (f"{theirs}.{part}",)) for part in parts]


def transposed(ours: Sequence[str], theirs: str) -> list[Rule]:
    """Theirs keeps its matrix the other way round, and several of ours side by side."""

    def read(tensor: Tensor) -> tuple[Tensor, ...]:
        return tuple(each.t().contiguous() for each in tensor.chunk(len(ours), dim=1))  # .T would turn 3 axes, too

    def split(tensor: Tensor) -> tuple[Tensor, ...]:
        return tuple(tensor.chunk(len(ours)))

    weights, biases = (tuple(f"{name}.{part}" for name in ours) for part in ("weight", "bias"))
    return [
        Rule(weights, (f"{theirs}.weight",), read, lambda *each: (torch.cat(each).T.contiguous(),)),
        Rule(biases, (f"{theirs}.bias",), split, lambda *each: (torch.cat(each),)),
    ]


def with_pad_row(rule: Rule) -> Rule:
    """Theirs has one row more than our output layer, for <pad>: cut on the way in, never said on the way out."""
    fill = NEVER if rule.ours == ("output_bias",) else 0.0

    def write(tensor: Tensor) -> tuple[Tensor, ...]:
        return rule.write(torch.cat([tensor, tensor.new_full((1, *tensor.shape[1:]), fill)]))

    return replace(rule, read=lambda tensor: tuple(each[:-1] for each in rule.read(tensor)), write=write)


def to_theirs(rules: Sequence[Rule], state: State) -> State:
    """Their tensors, from ours."""
    theirs: State = {}
    for rule in rules:
        theirs.update(zip(rule.theirs, rule.write(*(state[name] for name in rule.ours)), strict=True))
    return theirs


def state_of(network: Network) -> State:
    """A model's weights, in float32 on the CPU."""
    return {name: tensor.detach().float().cpu() for name, tensor in network.state_dict().items()}


def plain(config: ModelConfig, state: State) -> tuple[ModelConfig, State]:
    """The same model for engines with fewer choices: biases everywhere, a key/value head for each query head."""
    state = dict(state)
    for name in [name for name in state if name.endswith(".weight") and name.split(".")[-2] in LINEARS]:
        state.setdefault(f"{name.removesuffix('.weight')}.bias", torch.zeros(len(state[name])))
    d_k, d_v, groups = config.widths
    if groups != config.heads:
        for name in [name for name in state if re.search(r"attention\.[kv]\.(weight|bias)$", name)]:
            heads = state[name].view(groups, d_k if ".k." in name else d_v, *state[name].shape[1:])  # [G, D, ...]
            state[name] = heads.repeat_interleave(config.heads // groups, 0).flatten(0, 1)
    return replace(config, bias=True, attention_bias=None, kv_heads=None), state


def unscaled(config: ModelConfig, state: State) -> tuple[ModelConfig, State]:
    """The same model without the factor √d_model: it goes into the embeddings, and the output layer keeps its own."""
    if not config.scale_embeddings:
        return config, state
    tokens = state["embedding.tokens.weight"]
    state = state | {"embedding.tokens.weight": tokens * config.d_model**0.5}
    if config.tied and not config.classes:
        state["output.weight"] = tokens[: config.outputs]
    return replace(config, scale_embeddings=False, tied=config.tied and bool(config.classes)), state


def with_table(config: ModelConfig, state: State) -> tuple[ModelConfig, State]:
    """The same model with its positions in a table as long as its longest sequence."""
    if config.positions == "sinusoidal":
        table = sinusoids(torch.arange(config.max_length), config.d_model, torch.float32)
    elif config.positions == "none":
        table = torch.zeros(config.max_length, config.d_model)
    else:
        return config, state
    return replace(config, positions="learned"), state | {"embedding.positions.weight": table}


def without_pad(config: ModelConfig, state: State) -> tuple[ModelConfig, State]:
    """The same decoder without a last <pad>, which it neither reads nor says."""
    if not config.pad_is_last:
        return config, state
    tokens = state["embedding.tokens.weight"][:-1]
    return replace(config, vocab_size=config.outputs, pad=None), state | {"embedding.tokens.weight": tokens}


LINEARS = {"q", "k", "v", "out", "up", "gate", "down"}
"""modules whose bias is a choice of the config"""


def in_halves(state: State, width: int) -> State:
    """The same model with the paper's sinusoids in halves, all sines before all cosines, as Marian and Pegasus do.

    No layer minds the order of the model's width, so that each tensor that has it may be permuted alike.
    """
    return _permuted(state, torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)]))


def interleaved(state: State, width: int) -> State:
    """The inverse of `in_halves`."""
    return _permuted(state, torch.arange(width).view(2, width // 2).T.flatten())


def _permuted(state: State, order: Tensor) -> State:
    axes = {name: _width_axis(name) for name in state}
    return {name: x if (axis := axes[name]) is None else x.index_select(axis, order) for name, x in state.items()}


def _width_axis(name: str) -> int | None:
    """Which axis of a tensor is the model's width."""
    module, part = name.split(".")[-2:] if "." in name else (name, "")
    if module in {"q", "k", "v", "up", "gate"}:
        return 1 if part == "weight" else None
    if module in {"tokens", "positions", "output"}:
        return 1
    return None if module == "output_bias" else 0  # out, down, norms


def require(told: dict[str, Any], where: str, **wanted: Any) -> None:
    """A ValueError for a setting that is told (null tells nothing) and is not what Regard's model of this shape has."""
    for key, value in wanted.items():
        if told.get(key) is not None and told[key] != value:
            raise RegardError(f"{where}: {key}={told[key]!r}, and Regard reads {value!r} alone")


def uneven_heads(config: ModelConfig) -> dict[str, bool]:
    """The reason against shapes whose heads share the model's width evenly, for `refuse`."""
    wide = config.d_model // config.heads
    return {"its heads are not d_model ÷ heads wide": config.widths != (wide, wide, config.heads)}


def refuse(what: str, reasons: dict[str, bool]) -> None:
    """A ValueError with the first reason that holds why `what` cannot be written."""
    for reason, holds in reasons.items():
        if holds:
            raise RegardError(f"this model cannot be written as {what}: {reason}")
