"""A student's attention inside a real model.

The trained weights stay where they are in Regard's attention: .q .k .v .out. In each forward pass the student's module
receives them in its own layout: one layer per role, one per head, one for all, transposed or not. The saved model is
therefore an ordinary one, and no weights have to be copied back.

Dimensions: B batch, T queries, S keys and values, C model width.
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
from regard.course.attention_weights import AxisNames, name_axes, set_weights_by_role
from regard.course.check import CheckReport, check, explain_failure
from regard.course.fixed_weights import seeded_normal
from regard.course.solution_process import Limits
from regard.course.solution_runner import close_server
from regard.errors import RegardError
from regard.formatting import shorten
from regard.model.attention import MultiHeadAttention
from regard.model.cache import AttentionCache
from regard.model.masks import BiasedMask, Mask, dense_mask
from regard.model.positions import Rotary
from regard.model.transformer import Encoder, Network

ATTENTION_ASSIGNMENTS = {
    "MultiHeadAttention": "multi-head-attention",
    "MultiHeadSelfAttention": "multi-head-self-attention",
}
"""The classes of attention that can be trained, with the assignments that they answer."""
INPUT_ROLES = ("query", "key", "value")
CHECK_LIMITS = Limits(patience=20)
"""Limits for checking the file. On a busy machine a long wait is better than a wrong verdict before a long training."""
MAX_OUTPUT_DIFFERENCE = 1e-4
"""Maximum difference between the outputs of two correct attentions in float32, for outputs of about 1."""

AttentionClass = type[nn.Module]
ADDED_POSITIONS = ("sinusoidal", "learned", "none")
"""Kinds of positions that attention does not compute: they are added to the embeddings, or there are none."""


def require_passed_check(path: Path, assignment: str) -> None:
    """A RegardError that names the mistake, unless a file passes `regard check`."""
    report = check(path, assignment, limits=CHECK_LIMITS)
    close_server()  # the training needs the memory
    if not report.passed:
        raise RegardError(f"{path} is not correct yet: {_reason(report)}. For details, run: regard check {path}")


def check_config(config: ModelConfig) -> None:
    """A RegardError if the model needs an attention feature that is not part of the assignment."""
    _, _, kv_heads = config.widths
    features = {
        f"model.kv_heads={config.kv_heads}": kv_heads != config.heads,
        f'model.positions="{config.positions}"': config.positions not in ADDED_POSITIONS,
        f"model.attention_scale={config.attention_scale}": config.attention_scale is not None,
        "model.qk_norm=true": config.qk_norm,
        f"model.attention_dropout={config.attention_dropout}": config.attention_dropout > 0,
    }
    for setting, is_used in features.items():
        if is_used:
            raise RegardError(f"{setting} is not supported by the assignment's attention: change it with --set")


def install_attention(attention_class: AttentionClass, network: Network) -> Network:
    """Let the student's module compute every attention of the network. The weights stay in place."""
    check_config(network.config)
    d_k, d_v, _ = network.config.widths
    layout: WeightLayout | None = None
    for parent in list(network.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is MultiHeadAttention:
                if layout is None:
                    module = attention_class(child.heads, network.config.d_model, d_k, d_v)
                    layout = WeightLayout.find(module, child, name_axes(attention_class, child.heads))
                setattr(parent, name, OwnAttention(child, layout))
    return network


def install_self_attention(attention_class: AttentionClass, network: Network) -> Network:
    """Let the student's module compute every causal self-attention of the network. The weights stay in place.

    The assignment's module knows no padding. Where attention is causal it need not: padding comes after the text.
    """
    config = network.config
    check_config(config)
    d_k, d_v, _ = config.widths
    if isinstance(network, Encoder):
        raise RegardError("MultiHeadSelfAttention has no mask for padding: train a decoder or an encoder-decoder")
    if config.prefix or config.window is not None:
        setting = "model.prefix=true" if config.prefix else f"model.window={config.window}"
        raise RegardError(f"{setting} is not supported by the assignment's attention: change it with --set")
    if not config.heads * d_k == config.heads * d_v == config.d_model:
        raise RegardError(f"the heads of MultiHeadSelfAttention share d_model={config.d_model}: leave d_k and d_v out")
    module = attention_class(config.d_model, config.d_model, config.heads, causal=True)
    layout: WeightLayout | None = None
    for layer in network.decoder.layers:
        layout = layout or WeightLayout.of_self_attention(module, layer.attention)
        layer.attention = OwnAttention(layer.attention, layout)
    return network


@dataclass(frozen=True)
class WeightSlice:
    """The part of Regard's weights that one of the student's parameters holds."""

    rows: slice
    """Rows of the stacked query, key and value weights, or of the output projection."""
    of_output: bool
    transposed: bool
    """Whether the matrix is [in, out]."""
    is_bias: bool


@dataclass(frozen=True)
class WeightLayout:
    """A student's module, and how Regard's weights map to its parameters."""

    module: nn.Module
    slices: Mapping[str, WeightSlice]
    """The part of the weights that each parameter holds, by the parameter's name."""
    boolean_mask: bool = True
    """Whether the module takes a boolean mask; otherwise one of ones and zeros."""
    is_self_attention: bool = False
    """Whether the module takes one sequence, and is causal by itself."""

    @classmethod
    def find(cls, module: nn.Module, original: MultiHeadAttention, axes: AxisNames) -> "WeightLayout":
        """Find the layout by setting weights that identify their roles; a RegardError if that is impossible."""
        module = module.eval()  # it is also checked in eval mode, and the assignment has no dropout
        given = {role: seeded_normal(role, 2, 3, original.q.in_features) for role in INPUT_ROLES}
        mask = torch.ones(3, 3, dtype=torch.bool)
        boolean_mask = _accepts(lambda: module(*given.values(), mask))
        widths = {"query": original.q.out_features, "key": original.k.out_features, "value": original.v.out_features}
        accepted_mask = mask if boolean_mask else mask.long()
        set_weights_by_role(module, [lambda: module(*given.values(), accepted_mask)], given, widths, axes)
        layout = cls(module, _find_slices(module, original), boolean_mask)
        layout.verify(original)
        return layout

    @classmethod
    def of_self_attention(cls, module: nn.Module, original: MultiHeadAttention) -> "WeightLayout":
        """The layout of the assignment's self-attention, whose layers have given names: .q .k .v and .mix."""
        width, slices = original.q.in_features, {}
        for index, name in enumerate(("q", "k", "v", "mix")):
            of_output = name == "mix"
            rows = slice(0, width) if of_output else slice(index * width, (index + 1) * width)
            slices[f"{name}.weight"] = WeightSlice(rows, of_output, transposed=False, is_bias=False)
            slices[f"{name}.bias"] = WeightSlice(rows, of_output, transposed=False, is_bias=True)
        if unknown := [name for name, _ in module.named_parameters() if name not in slices]:
            raise RegardError(
                f"your MultiHeadSelfAttention has weights other than .q .k .v .mix: {', '.join(unknown)}. Remove them"
            )
        layout = cls(module.eval(), slices, is_self_attention=True)
        layout.verify(original)
        return layout

    @torch.no_grad()
    def verify(self, original: MultiHeadAttention) -> None:
        """A RegardError unless the module's output equals that of Regard's attention with the same weights."""
        width = original.q.in_features
        x = seeded_normal("x", 2, 5, width)
        memory = x if self.is_self_attention else seeded_normal("memory", 2, 5, width)
        expected = original(x, memory, memory, "causal")
        actual = OwnAttention(original, self)(x, memory, memory, "causal")
        difference = (actual - expected).abs().max().item()
        if not difference <= MAX_OUTPUT_DIFFERENCE * max(1.0, expected.abs().max().item()):
            raise RegardError(
                f"Regard's weights do not fit into your {type(self.module).__name__}: with the same weights, its "
                f"output differs by {difference:.2g}. Use four nn.Linear layers as projections and call them in forward"
            )


class OwnAttention(MultiHeadAttention):
    """Regard's weights, with the computation done by the student's module."""

    def __init__(self, original: MultiHeadAttention, layout: WeightLayout) -> None:
        nn.Module.__init__(self)
        self.heads, self.kv_heads, self.dropout, self.scale = original.heads, original.kv_heads, 0.0, None
        self.q, self.k, self.v, self.out = original.q, original.k, original.v, original.out
        self.layout = (layout,)  # in a tuple, so that the module's own weights are neither trained nor saved
        self._zero_unused_biases(layout)

    def forward(
        self,
        query: Float[Tensor, "B T C"],
        key: Float[Tensor, "B S C"] | None,
        value: Float[Tensor, "B S C"] | None,
        mask: Mask = None,
        rotary: Rotary | None = None,
        cache: AttentionCache | None = None,
        *,
        return_weights: bool = False,
    ) -> Float[Tensor, "B T C"]:
        """Like Regard's, without rotary positions or a cache: trained models decode with Regard's own attention."""
        if (
            key is None
            or value is None
            or rotary is not None
            or cache is not None
            or return_weights
            or isinstance(mask, BiasedMask)
        ):
            raise RegardError(
                "your own attention can only be used for training; load the saved model to decode with it"
            )
        layout = self.layout[0]
        if layout.is_self_attention:
            alone: Tensor = functional_call(layout.module, self._student_weights(layout), (query,))
            return alone
        scores = query.new_empty(()).expand(len(query), self.heads, query.size(1), key.size(1))  # takes no memory
        allowed = dense_mask(mask, scores)
        if allowed is not None:
            allowed = allowed | ~allowed.any(-1, keepdim=True)  # rows after packed sentences, whose output is not used
            allowed = allowed if layout.boolean_mask else allowed.long()
        output: Tensor = functional_call(layout.module, self._student_weights(layout), (query, key, value, allowed))
        return output

    def _student_weights(self, layout: WeightLayout) -> dict[str, Tensor]:
        """The weights in the student's layout. Gradients flow back to Regard's weights."""
        inputs, output = (self.q, self.k, self.v), (self.out,)
        stacked = {
            (of_output, is_bias): torch.cat([_bias_or_zeros(layer) if is_bias else layer.weight for layer in layers])
            for of_output, layers in ((False, inputs), (True, output))
            for is_bias in (False, True)
        }
        weights = {name: stacked[part.of_output, part.is_bias][part.rows] for name, part in layout.slices.items()}
        return {name: weight.T if layout.slices[name].transposed else weight for name, weight in weights.items()}

    @torch.no_grad()
    def _zero_unused_biases(self, layout: WeightLayout) -> None:
        """A bias that the student's module does not have becomes 0 in the saved model."""
        biases = [(part.of_output, part.rows) for part in layout.slices.values() if part.is_bias]
        first_row = 0
        for layer in (self.q, self.k, self.v, self.out):
            row = first_row if layer is not self.out else 0
            is_used = any(
                of_output == (layer is self.out) and rows.start <= row < rows.stop for of_output, rows in biases
            )
            if layer.bias is not None and not is_used:
                layer.bias.zero_()
            first_row += layer.out_features

    def _apply(self, fn: Callable[..., Tensor], recurse: bool = True) -> "OwnAttention":
        """Move the student's buffers to a device together with this module."""
        self.layout[0].module._apply(fn)  # type: ignore[no-untyped-call]
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self


def _bias_or_zeros(layer: nn.Linear) -> Tensor:
    return layer.weight.new_zeros(layer.out_features) if layer.bias is None else layer.bias


def _find_slices(module: nn.Module, original: MultiHeadAttention) -> dict[str, WeightSlice]:
    """Which rows of which layers each parameter holds, recognised by the values that `set_weights_by_role` set."""
    rows_by_content = _rows_by_content(original)
    parameters = dict(module.named_parameters())
    slices = {
        name: part
        for name, weight in parameters.items()
        if weight.ndim == 2 and (part := _find_slice(weight, rows_by_content))
    }
    for name, weight in parameters.items():
        matrix = slices.get(name.replace("bias", "weight")) if "bias" in name and weight.ndim == 1 else None
        if matrix is not None and len(weight) == matrix.rows.stop - matrix.rows.start:
            slices[name] = WeightSlice(matrix.rows, matrix.of_output, transposed=False, is_bias=True)
    if unknown := [name for name in parameters if name not in slices]:
        raise RegardError(
            f"your MultiHeadAttention has weights other than its four projections: {', '.join(unknown)}. Remove them, "
            "or store the projections in linear layers or matrices, each for all heads or for one"
        )
    return slices


def _rows_by_content(original: MultiHeadAttention) -> dict[bytes, tuple[bool, int]]:
    """For each row that `set_weights_by_role` sets: whether it is the output projection's, and its index."""
    layers = dict(zip((*INPUT_ROLES, "output"), (original.q, original.k, original.v, original.out), strict=True))
    rows: dict[bytes, tuple[bool, int]] = {}
    first_row = 0
    for role, layer in layers.items():
        of_output = role == "output"
        first_row = 0 if of_output else first_row
        matrix = seeded_normal(f"{role}.weight", *layer.weight.shape) / math.sqrt(layer.in_features)
        rows |= {_row_bytes(row): (of_output, first_row + index) for index, row in enumerate(matrix)}
        first_row += layer.out_features
    return rows


def _find_slice(weight: Tensor, rows_by_content: Mapping[bytes, tuple[bool, int]]) -> WeightSlice | None:
    for transposed, matrix in ((False, weight), (True, weight.T)):
        rows = [rows_by_content.get(_row_bytes(row)) for row in matrix.detach()]
        if rows[0] is not None:
            of_output, first = rows[0]
            if rows == [(of_output, first + index) for index in range(len(rows))]:
                return WeightSlice(slice(first, first + len(rows)), of_output, transposed, is_bias=False)
    return None


def _row_bytes(row: Tensor) -> bytes:
    return row.contiguous().numpy().tobytes()


def _accepts(call: Callable[[], Any]) -> bool:
    try:
        call()
    except (RuntimeError, TypeError):
        return False
    return True


def _reason(report: CheckReport) -> str:
    """What is wrong with a file, in one line: its mistakes, or the first error."""
    diagnosis = report.diagnosis
    if diagnosis.mistakes:
        return "; ".join(_name_mistake(report, match.id, match.line) for match in diagnosis.mistakes)
    if diagnosis.possible:
        return "one of " + ", ".join(diagnosis.possible)
    for probe, failure in diagnosis.failures.items():
        location = f", {report.solution.where(failure.line)}" if failure.line else ""
        return shorten(f"{explain_failure(failure)} (in {probe or 'the file'}{location})")
    if diagnosis.stage:
        return f"the first value that differs is {diagnosis.stage}"
    return "its values differ from the reference's"


def _name_mistake(report: CheckReport, mistake_id: str, line: int | None) -> str:
    title = f" ({report.catalogue[mistake_id].title})" if mistake_id in report.catalogue else ""
    return f"{mistake_id}{title}" + (f", {report.solution.where(line)}" if line else "")
