"""The vectors of tokens, layer by layer, in two dimensions: principal component analysis.

Dimensions: L layers, L + 1 states (the embeddings and the output of each layer), T tokens, C model width.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import ModelError

POINT_DECIMALS = 4
"""Decimal places of the coordinates in JSON."""


@dataclass(frozen=True)
class Projection:
    """Points of all tokens in all states."""

    points: Float[Tensor, "states T 2"]
    explained: tuple[float, ...]
    """Share of the variance that the two dimensions show: one number, or one for each state."""

    def to_json(self) -> dict[str, Any]:
        """Everything in types that `json.dumps` accepts."""
        factor = 10**POINT_DECIMALS
        points = (self.points * factor).round() / factor
        return {"points": points.tolist(), "explained": [round(share, POINT_DECIMALS) for share in self.explained]}


def project_together(vectors: Float[Tensor, "states T C"]) -> Projection:
    """All states on the same two axes, so that a token's path from layer to layer can be seen.

    In many models vectors grow from layer to layer. So that the last layers do not decide alone, the vectors of each
    state are scaled to a mean square of 1.
    """
    scaled = _finite(vectors) / _root_mean_square(vectors)
    centred = scaled.flatten(0, 1) - scaled.flatten(0, 1).mean(0)  # [states · T, C]
    axes, explained = _principal_axes(centred)
    return Projection((centred @ axes).reshape(*vectors.shape[:2], 2), (explained,))


def project_apart(vectors: Float[Tensor, "states T C"]) -> Projection:
    """Each state on its own two axes, which show more of its variance.

    The axes are turned (or mirrored) to match the points of the state before as closely as possible.
    """
    scaled = _finite(vectors) / _root_mean_square(vectors)
    points: list[Tensor] = []
    shares: list[float] = []
    for state in scaled:
        centred = state - state.mean(0)  # [T, C]
        axes, explained = _principal_axes(centred)
        found = centred @ axes  # [T, 2]
        if points:
            u, _, vt = torch.linalg.svd(found.T @ points[-1])  # the rotation that brings them closest
            found = found @ (u @ vt)
        points.append(found)
        shares.append(explained)
    return Projection(torch.stack(points), tuple(shares))


def _finite(vectors: Tensor) -> Tensor:
    if not vectors.isfinite().all():
        raise ModelError
    return vectors.double()


def _root_mean_square(vectors: Float[Tensor, "states T C"]) -> Float[Tensor, "states 1 1"]:
    return vectors.double().square().mean((1, 2), keepdim=True).sqrt().clamp(min=1e-12)


def _principal_axes(centred: Float[Tensor, "N C"]) -> tuple[Float[Tensor, "C 2"], float]:
    """The two directions of largest variance, and their share of it. Their largest component is positive."""
    _, sizes, vt = torch.linalg.svd(centred, full_matrices=False)
    axes = torch.zeros(centred.size(1), 2, dtype=centred.dtype)  # a single token has no direction
    count = min(2, len(vt))
    axes[:, :count] = vt[:count].T
    signs = axes.gather(0, axes.abs().argmax(0, keepdim=True)).sign()  # [1, 2]
    total = float(sizes.square().sum())
    return axes * signs.where(signs != 0, 1.0), float(sizes[:2].square().sum()) / total if total > 0 else 1.0
