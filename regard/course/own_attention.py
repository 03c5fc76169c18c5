"""A student's multi-head attention at work in a real model.

The weights that are trained stay where they are in Regard's attention: .q .k .v .out. In each pass the student's module
gets them in the layout that it made for itself: a layer for each role, one for each head, one for all, turned or not.
So the model that is saved is an ordinary one, and nothing has to be copied back.

Dimensions: B batch, T queries, S keys and values, K all keys of a cache, C model width, H heads.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call

from regard.config import ModelConfig
from regard.course.assignment import assignments
from regard.course.check import Report, check, explained
from regard.course.fixed_weights import drawn, is_turned, known_by_role
from regard.course.notebook import read_solution
from regard.course.solution_process import Limits
from regard.errors import RegardError
from regard.formatting import shorten
from regard.model.attention import MultiHeadAttention
from regard.model.cache import KeyValues
from regard.model.masks import Mask, dense
from regard.model.positions import Rotary
from regard.model.transformer import Network

ASSIGNMENT = "multi-head-attention"
INPUTS = ("query", "key", "value")
PATIENT = Limits(patience=20)
"""to check a file: a machine that is busy must not pass for an endless loop, where training takes longer anyway"""
SAME = 1e-4
"""of an output about 1: what two right attentions may lie apart in float32"""

Student = type[nn.Module]


def checked_attention(path: Path) -> Student:
    """The class MultiHeadAttention of a file that passes `regard check`; a ValueError that names the mistake if not.

    The file then runs in this process: it has passed, and it is the user's own.
    """
    _demand_class(path)
    report = check(path, ASSIGNMENT, limits=PATIENT)
    if not report.passed:
        raise RegardError(f"{path} is not right yet: {_why(report)}; more by regard check {path}")
    names: dict[str, Any] = {"__name__": path.stem, "__file__": str(path)}
    exec(compile(report.solution.source, str(path), "exec"), names)
    student: Student = names["MultiHeadAttention"]
    return student


def _demand_class(path: Path) -> None:
    """A ValueError if a file is no answer to the assignment; one that is no Python is told of by the checker."""
    solution = read_solution(path)
    if "MultiHeadAttention" in solution.names or solution.syntax_error is not None:
        return
    others = [name for each in assignments() for name in each.defines if name in solution.names]
    raise RegardError(
        f"--attention takes the class MultiHeadAttention of the assignment {ASSIGNMENT} "
        f"(regard course start {ASSIGNMENT}); {path} defines {', '.join(others) or 'nothing of that name'}"
    )


def check_config(config: ModelConfig) -> None:
    """A ValueError if a model asks something of its attention that the assignment's does not know."""
    _, _, kv_heads = config.widths
    wishes = {
        f"model.kv_heads={config.kv_heads}": kv_heads != config.heads,
        'model.positions="rotary"': config.positions == "rotary",
        f"model.attention_dropout={config.attention_dropout}": config.attention_dropout > 0,
    }
    for wish, asked in wishes.items():
        if asked:
            raise RegardError(
                f"{wish} is more than the assignment's attention can do: give it another value, with --set"
            )


def put_to_work(student: Student, network: Network) -> None:
    """Have every attention of the network be computed by the student's module; its weights stay as they are."""
    check_config(network.config)
    d_k, d_v, _ = network.config.widths
    layout: Layout | None = None
    for parent in list(network.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is MultiHeadAttention:
                if layout is None:
                    made = student(child.heads, network.config.d_model, d_k, d_v)
                    layout = Layout.of(made, child, is_turned(student))
                setattr(parent, name, OwnAttention(child, layout))


@dataclass(frozen=True)
class Part:
    """Where the numbers of one of the student's parameters stand in Regard's layers."""

    rows: slice
    """of queries, keys and values, one below the other, or of the output projection"""
    of_output: bool
    turned: bool
    """the matrix is [in, out], multiplied from the right"""
    is_bias: bool


@dataclass(frozen=True)
class Layout:
    """A student's module, and how Regard's weights are laid into it."""

    module: nn.Module
    parts: Mapping[str, Part]
    """by the names of its parameters"""
    booleans: bool
    """whether it takes a mask of true and false; else one of ones and zeros"""

    @classmethod
    def of(cls, module: nn.Module, like: MultiHeadAttention, turned: bool = True) -> "Layout":
        """Find it, by giving the module weights that tell which role they play; a ValueError where that cannot be."""
        module = module.eval()  # the checker looks at it so, and it has no dropout to ask for
        given = {role: drawn(role, 2, 3, like.q.in_features) for role in INPUTS}
        mask = torch.ones(3, 3, dtype=torch.bool)
        booleans = _works(lambda: module(*given.values(), mask))
        widths = {"query": like.q.out_features, "key": like.k.out_features, "value": like.v.out_features}
        known_by_role(module, lambda: module(*given.values(), mask if booleans else mask.long()), given, widths, turned)
        layout = cls(module, _parts(module, like), booleans)
        layout.check(like)
        return layout

    @torch.no_grad()
    def check(self, like: MultiHeadAttention) -> None:
        """A ValueError unless it gives what Regard's attention gives with the same weights."""
        x, memory = drawn("x", 2, 5, like.q.in_features), drawn("memory", 2, 5, like.q.in_features)
        own = OwnAttention(like, self)
        ours = like(x, memory, memory, "causal")
        apart = (own(x, memory, memory, "causal") - ours).abs().max().item()
        if not apart <= SAME * max(1.0, ours.abs().max().item()):
            raise RegardError(
                "Regard's weights do not fit into your MultiHeadAttention: with the same ones its output is "
                f"{apart:.2g} off. Make the four projections of nn.Linear layers, used in forward"
            )


class OwnAttention(MultiHeadAttention):
    """Regard's weights, and the student's way to compute with them."""

    def __init__(self, original: MultiHeadAttention, layout: Layout) -> None:
        nn.Module.__init__(self)
        self.heads, self.kv_heads, self.dropout = original.heads, original.kv_heads, 0.0
        self.q, self.k, self.v, self.out = original.q, original.k, original.v, original.out
        self.layout = (layout,)  # in a tuple: the module's own weights are not to be trained, nor saved
        self._drop_unused_biases(layout)

    def forward(
        self,
        query: Float[Tensor, "B T C"],
        key: Float[Tensor, "B S C"] | None,
        value: Float[Tensor, "B S C"] | None,
        mask: Mask = None,
        rotary: Rotary | None = None,
        cache: KeyValues | None = None,
        *,
        return_weights: bool = False,
    ) -> Float[Tensor, "B T C"]:
        """As Regard's, without rotations and without a cache: models decode with Regard's own attention."""
        if key is None or value is None or rotary is not None or cache is not None or return_weights:
            raise RegardError("your own attention is for training: load the model that was saved to decode with it")
        layout = self.layout[0]
        scores = query.new_empty(()).expand(len(query), self.heads, query.size(1), key.size(1))  # takes no memory
        seen = dense(mask, scores)
        if seen is not None:
            seen = seen | ~seen.any(-1, keepdim=True)  # behind packed sentences: nobody reads what is found there
            seen = seen if layout.booleans else seen.long()
        output: Tensor = functional_call(layout.module, self._laid_out(layout), (query, key, value, seen))
        return output

    def _laid_out(self, layout: Layout) -> dict[str, Tensor]:
        """The weights in the student's layout; what is learned reaches Regard's."""
        inputs, output = (self.q, self.k, self.v), (self.out,)
        stacked = {
            (of_output, is_bias): torch.cat([_bias(each) if is_bias else each.weight for each in layers])
            for of_output, layers in ((False, inputs), (True, output))
            for is_bias in (False, True)
        }
        laid = {name: stacked[part.of_output, part.is_bias][part.rows] for name, part in layout.parts.items()}
        return {name: each.T if layout.parts[name].turned else each for name, each in laid.items()}

    @torch.no_grad()
    def _drop_unused_biases(self, layout: Layout) -> None:
        """What the student has no bias for has none in the model that is saved either."""
        biases = [(part.of_output, part.rows) for part in layout.parts.values() if part.is_bias]
        first = 0
        for layer in (self.q, self.k, self.v, self.out):
            place = first if layer is not self.out else 0
            used = any(
                of_output == (layer is self.out) and rows.start <= place < rows.stop for of_output, rows in biases
            )
            if layer.bias is not None and not used:
                layer.bias.zero_()
            first += layer.out_features

    def _apply(self, fn: Callable[..., Tensor], recurse: bool = True) -> "OwnAttention":
        """What moves this to a device moves the student's buffers too."""
        self.layout[0].module._apply(fn)  # type: ignore[no-untyped-call]
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self


def _bias(layer: nn.Linear) -> Tensor:
    return layer.weight.new_zeros(layer.out_features) if layer.bias is None else layer.bias


def _parts(module: nn.Module, like: MultiHeadAttention) -> dict[str, Part]:
    """Of each parameter, which rows of which layers it holds, by the numbers that `known_by_role` gave it."""
    layers = dict(zip((*INPUTS, "output"), (like.q, like.k, like.v, like.out), strict=True))
    index: dict[bytes, tuple[bool, int]] = {}
    for role, layer in layers.items():
        first = sum(layers[each].out_features for each in INPUTS[: INPUTS.index(role)]) if role in INPUTS else 0
        matrix = drawn(f"{role}.weight", *layer.weight.shape) / math.sqrt(layer.in_features)
        index |= {_key(row): (role not in INPUTS, first + number) for number, row in enumerate(matrix)}
    named = dict(module.named_parameters())
    parts = {name: part for name, weight in named.items() if weight.ndim == 2 and (part := _part(weight, index))}
    for name, weight in named.items():
        partner = parts.get(name.replace("bias", "weight")) if "bias" in name and weight.ndim == 1 else None
        if partner is not None and len(weight) == partner.rows.stop - partner.rows.start:
            parts[name] = Part(partner.rows, partner.of_output, turned=False, is_bias=True)
    if unknown := [name for name in named if name not in parts]:
        told = ", ".join(unknown)
        raise RegardError(f"your MultiHeadAttention has weights beside its four projections, {told}: leave them out")
    return parts


def _part(weight: Tensor, index: Mapping[bytes, tuple[bool, int]]) -> Part | None:
    for turned, matrix in ((False, weight), (True, weight.T)):
        found = [index.get(_key(row)) for row in matrix.detach()]
        if found[0] is not None:
            of_output, first = found[0]
            if found == [(of_output, first + number) for number in range(len(found))]:
                return Part(slice(first, first + len(found)), of_output, turned, is_bias=False)
    return None


def _key(row: Tensor) -> bytes:
    return row.contiguous().numpy().tobytes()


def _works(call: Callable[[], Any]) -> bool:
    try:
        call()
    except (RuntimeError, TypeError):
        return False
    return True


def _why(report: Report) -> str:
    """What is wrong with a file, in a line: its mistakes by name, or the first error."""
    told = report.diagnosis
    found = [_named(report, each.id, each.line) for each in told.mistakes]
    if found:
        return "; ".join(found)
    if told.possible:
        return "one of " + ", ".join(told.possible)
    for name, failure in told.failures.items():
        at = f", {report.solution.where(failure.line)}" if failure.line else ""
        return shorten(f"{explained(failure)} (in {name or 'the file'}{at})")
    return f"the first that differs is {told.stage}" if told.stage else "its numbers are not the reference's"


def _named(report: Report, mistake: str, line: int | None) -> str:
    title = f" ({report.bank[mistake].title})" if mistake in report.bank else ""
    return f"{mistake}{title}" + (f", {report.solution.where(line)}" if line else "")
