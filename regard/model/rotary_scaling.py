"""Rotary positions for texts longer than those of pretraining: the frequencies are lowered, all of them or low ones.

A frequency f turns f × length ÷ 2π times within a text. A low one that turned less than once in pretraining has seen
only a part of its circle; dividing it by the factor keeps longer texts within that part. A high one is left as it is,
since it measures the distance of neighbours.

Dimensions: F frequencies, half the width of a head.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from regard.config import RotaryScaling


def scale_frequencies(frequencies: Float[Tensor, " F"], scaling: RotaryScaling, base: float) -> Float[Tensor, " F"]:
    """The frequencies divided by the factor, to a degree between 0 and 1 that depends on the frequency."""
    lowered = frequencies / scaling.factor
    if scaling.kind == "linear":
        return lowered
    kept = _llama3_kept(frequencies, scaling) if scaling.kind == "llama3" else _yarn_kept(frequencies, scaling, base)
    return lowered * (1 - kept) + frequencies * kept


def magnitude(scaling: RotaryScaling | None) -> float:
    """The factor of cosines and sines: other than 1 only for YaRN, which sharpens attention in longer texts."""
    if scaling is None or scaling.kind != "yarn":
        return 1.0
    if scaling.magnitude is not None:
        return scaling.magnitude
    return 0.1 * math.log(scaling.factor) + 1.0 if scaling.factor > 1 else 1.0


def _llama3_kept(frequencies: Float[Tensor, " F"], scaling: RotaryScaling) -> Float[Tensor, " F"]:
    """Llama 3: from 0 to 1 linearly in the number of turns, between the two limits."""
    turns = frequencies * scaling.original_length / (2 * math.pi)
    return ((turns - scaling.low_frequency) / (scaling.high_frequency - scaling.low_frequency)).clamp(0, 1)


def _yarn_kept(frequencies: Float[Tensor, " F"], scaling: RotaryScaling, base: float) -> Float[Tensor, " F"]:
    """YaRN (Peng et al., 2023): from 1 to 0 linearly in the index, between those that turn as often as the limits."""

    def index(turns: float) -> float:  # of the frequency that turns so often: base^(-index / F) = 2π turns / length
        return len(frequencies) * math.log(scaling.original_length / (turns * 2 * math.pi)) / math.log(base)

    first = max(math.floor(index(scaling.beta_fast)), 0)
    last = min(math.ceil(index(scaling.beta_slow)), 2 * len(frequencies) - 1)
    indices = torch.arange(len(frequencies), device=frequencies.device, dtype=frequencies.dtype)
    return 1 - ((indices - first) / (last - first or 0.001)).clamp(0, 1)
