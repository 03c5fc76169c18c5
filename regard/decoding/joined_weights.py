"""Several linear layers as one: their weights and biases, joined."""

from collections.abc import Sequence

import torch
from torch import Tensor

WeightAndBias = tuple[Tensor, Tensor | None]


def join_weights(layers: Sequence[WeightAndBias]) -> WeightAndBias:
    """One matrix and one bias for all layers; a layer without a bias gets zeros if another has one."""
    joined = torch.cat([weight.detach() for weight, _ in layers])
    if all(bias is None for _, bias in layers):
        return joined, None
    biases = [weight.new_zeros(len(weight)) if bias is None else bias.detach() for weight, bias in layers]
    return joined, torch.cat(biases)
