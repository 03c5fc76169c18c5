"""Set the weights of a MultiHeadAttention by the roles of its parameters, whatever their names and shapes.

The assignment prescribes neither. The four projections can be layers or bare tensors, one for all heads or one for
each, with an axis for the heads or without, separate or several in one. The axes of a bare tensor are recognised by
their sizes in a module in which all sizes differ; its role by what it is multiplied with.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from regard.course.fixed_weights import first_output, initialise_lazy_layers, parameters_of, seeded_normal
from regard.course.line_tracing import tracing_paused

Module = TypeVar("Module", bound=nn.Module)
AttentionClass = Callable[[int, int, int, int], nn.Module]
AxisNames = Mapping[str, tuple[str, ...]]
"""The names of each bare parameter's axes: H for heads, C for the embedding, and "" for features and others."""

Calls = Sequence[Callable[[], Any]]
ROLES = {"query": r"q(?!kv)", "key": r"k(?!v)", "value": r"v", "output": r"o|mix|final|comb|merge|proj$"}
"""The four projections of attention, and patterns of the names that students give them."""
INPUT_ROLES = ("query", "key", "value")
TWIN_SIZES = 13, 11, 19
"""Width of the embedding per head, of queries and keys, and of values, of which no two axes have the same product."""


def name_axes(attention: AttentionClass, heads: int) -> AxisNames:
    """The axes of the bare parameters of a MultiHeadAttention, found by creating one in which all sizes differ."""
    width, qk, value = TWIN_SIZES
    try:
        module = attention(heads, heads * width, qk, value)
    except Exception:  # reported when the module is used
        return {}
    names = {heads * width: "C", heads: "H"}
    return {name: tuple(names.get(size, "") for size in parameter.shape) for name, parameter in _bare(module).items()}


@torch.no_grad()
def set_weights_by_role(
    module: Module,
    calls: Calls,
    given: dict[str, Tensor],
    widths: dict[str, int],
    axes: AxisNames,
) -> Module:
    """Set the weights of an attention by the roles of its projections; all other parameters become 0.

    `calls` run the module on the tensors `given` for each input role, with masks of which at least one should give
    finite numbers, whatever mistake the module makes. `widths` are those of queries, keys and values. A projection for
    several of them that does not show which of its rows is which is filled in that order.
    """
    initialise_lazy_layers(module, calls[0])
    for parameter in parameters_of(module).values():
        parameter.copy_(seeded_normal("probe", *parameter.shape) / 4)
    projections = _find_projections(module, calls, given, axes)
    for parameter in parameters_of(module).values():
        parameter.zero_()
    packed_rows = [role for role in INPUT_ROLES for _ in range(widths[role])]
    single = []
    for projection in projections:
        if len(set(INPUT_ROLES).intersection(projection.row_roles)) > 1:
            projection.fill(projection.row_roles)
        elif len(projections) < len(ROLES) and len(projection.row_roles) == len(packed_rows):
            projection.fill(packed_rows)
        else:
            single.append(projection)
    packed = {role for projection in projections if projection not in single for role in projection.filled}
    roles = [role for role in ROLES if role not in packed]

    def total_score(order: tuple[_Projection, ...]) -> int:
        pairs = zip(order, roles, strict=False)
        return sum(projection.score(role, single.index(projection)) for projection, role in pairs)

    best = max(permutations(single, min(len(roles), len(single))), key=total_score)
    for projection, role in zip(best, roles, strict=False):
        projection.fill([role] * len(projection.row_roles))
    return module


@dataclass(eq=False)
class _Weight:
    """A parameter as a matrix whose rows are features of the heads, and whose columns those of the embedding."""

    parameter: nn.Parameter
    input_index: Tensor
    """[rows, columns]: the position of each element in the parameter, if it projects queries, keys or values."""
    output_index: Tensor
    """The same if it projects the outputs of the heads."""


@dataclass(eq=False)
class _Projection:
    """A layer, the layers of all heads, or a bare tensor, with one or several of the roles."""

    name: str
    weights: list[_Weight] = field(default_factory=list)
    row_roles: list[str] = field(default_factory=list)
    """For each row: the role whose input it is multiplied with; "output" if with another tensor; "" if unknown."""
    filled: list[str] = field(default_factory=list)

    def score(self, role: str, index: int) -> int:
        """How well it fits a role. Its input counts most, then its name, then its position."""
        word = re.sub(r"^(w|linear|lin|fc|to|proj|dense|layer|weight)_?(?=.)", "", self.name.lower().split(".")[0])
        has_name = re.match(ROLES[role], word) is not None
        has_input = role in self.row_roles
        return 4 * has_input + 2 * has_name + (list(ROLES).index(role) == index)

    def fill(self, row_roles: list[str]) -> None:
        """Set each row to the next one of its role."""
        self.filled = row_roles
        of_output = row_roles[0] == "output"
        indices = [weight.output_index if of_output else weight.input_index for weight in self.weights]
        columns = indices[0].shape[1]
        matrix = torch.empty(sum(len(index) for index in indices), columns)
        if of_output:
            matrix.copy_((seeded_normal("output.weight", columns, len(matrix)) / math.sqrt(len(matrix))).T)
        for role in set(row_roles) - {"output", ""}:
            rows = torch.tensor([row_role == role for row_role in row_roles])
            count = int(rows.sum())
            matrix[rows] = seeded_normal(f"{role}.weight", count, columns) / math.sqrt(columns)
        parts = torch.split(matrix, [len(index) for index in indices])
        for weight, index, part in zip(self.weights, indices, parts, strict=True):
            values = torch.empty(weight.parameter.numel())
            values[index.flatten()] = part.flatten()
            weight.parameter.copy_(values.view(weight.parameter.shape))


def _find_projections(module: nn.Module, calls: Calls, given: dict[str, Tensor], axes: AxisNames) -> list[_Projection]:
    """The module's projections in the order in which they were created. Those of all heads form one."""
    bare = _bare(module)
    layers = {name: layer for name, layer in module.named_modules() if _is_layer(layer)}
    layer_inputs, gradients = _observe_calls(module, list(layers.values()), calls, given)
    projections: dict[tuple[str, str], _Projection] = {}
    for name, parameter in parameters_of(module).items():
        sizes = [size for size in parameter.shape if size > 1]
        is_matrix = "C" in axes.get(name, "C") if name in bare else name.endswith("weight")
        if len(sizes) < 2 or not is_matrix:
            continue  # a bias
        weight = _as_matrix(parameter, axes.get(name, ()) if name in bare else None)
        layer_input = layer_inputs.get(layers.get(name.removesuffix(".weight")), "")
        roles = _row_roles(weight, gradients.get(name), layer_input)
        role = roles[0] if len(set(roles)) == 1 else ""
        projection = projections.setdefault((re.sub(r"\.\d+(?=\.|$)", ".", name), role), _Projection(name))
        projection.weights.append(weight)
        projection.row_roles += roles
    return list(projections.values())


def _is_layer(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear | nn.Conv1d)


def _bare(module: nn.Module) -> dict[str, nn.Parameter]:
    """Parameters whose shape is the student's choice: those of no layer."""
    layers = [layer for layer in module.modules() if _is_layer(layer) or isinstance(layer, nn.MultiheadAttention)]
    in_layers = {id(parameter) for layer in layers for parameter in layer.parameters(recurse=False)}
    return {name: parameter for name, parameter in module.named_parameters() if id(parameter) not in in_layers}


def _as_matrix(parameter: nn.Parameter, axes: tuple[str, ...] | None) -> _Weight:
    """Without names of axes, it is the weight of a layer: [out, in]."""
    index = torch.arange(parameter.numel()).view(parameter.shape)
    if axes is None:
        matrix = index.flatten(1)
        return _Weight(parameter, matrix, matrix.T)
    order = {"H": 0, "": 1, "C": 2}  # the embedding last, and the heads before their features
    if axes.count("C") != 1:  # unknown: [in, out] as in x @ weight
        axes = ("C", *("" for _ in parameter.shape[1:]))
    embedding = axes.index("C")
    axis_order = sorted(range(index.dim()), key=lambda axis: order[axes[axis]])
    matrix = index.permute(axis_order).reshape(-1, parameter.shape[embedding])
    return _Weight(parameter, matrix, matrix)


def _observe_calls(
    module: nn.Module, layers: list[nn.Module], calls: Calls, given: dict[str, Tensor]
) -> tuple[dict[nn.Module | None, str], dict[str, Tensor]]:
    """The role of each layer's input, and the parameters' gradients in the first call that gives finite ones.

    In the input of each role another feature is 0, so that the gradient of what it is multiplied with is 0 there.
    """
    inputs: dict[nn.Module | None, str] = {}

    def record(layer: nn.Module, args: tuple[Any, ...]) -> None:
        flat = args[0].flatten()
        role = next((role for role, tensor in given.items() if torch.equal(flat, tensor.flatten())), "output")
        inputs.setdefault(layer, role)

    saved = {role: tensor.clone() for role, tensor in given.items()}
    for feature, tensor in enumerate(given.values()):
        tensor[..., feature] = 0
    hooks = [layer.register_forward_pre_hook(record) for layer in layers]
    gradients: dict[str, Tensor] = {}
    for call in calls:
        gradients = _gradients_of(module, call)
        if gradients and all(gradient.isfinite().all() for gradient in gradients.values()):
            break
    for hook in hooks:
        hook.remove()
    for role, tensor in given.items():
        tensor.copy_(saved[role])
    return inputs, gradients


def _gradients_of(module: nn.Module, call: Callable[[], Any]) -> dict[str, Tensor]:
    """The gradients of a call's output; none if it fails, which the probe reports."""
    try:
        with tracing_paused(), torch.enable_grad():
            output = first_output(call())
            (output * seeded_normal("direction", *output.shape)).sum().backward()
        return {name: weight.grad for name, weight in parameters_of(module).items() if weight.grad is not None}
    except Exception:
        return {}
    finally:
        module.zero_grad(set_to_none=True)


def _row_roles(weight: _Weight, gradient: Tensor | None, layer_input: str) -> list[str]:
    """The role of the input that each row is multiplied with, as its gradient shows; else that of the layer's input."""
    if gradient is None or not gradient.isfinite().all() or not gradient.any():
        return [layer_input] * len(weight.input_index)
    is_zero = gradient.flatten()[weight.input_index][:, : len(INPUT_ROLES)] == 0  # [rows, 3]
    roles = []
    for row in is_zero.tolist():
        if row.count(True) == 1:
            roles.append(INPUT_ROLES[row.index(True)])
        else:
            roles.append("" if any(row) else "output")
    known = {role for role in roles if role}
    return [role or layer_input for role in roles] if known else [layer_input] * len(roles)
