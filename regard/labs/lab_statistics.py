"""Statistics that labs share: means with confidence intervals, and fitted exponents."""

from collections.abc import Sequence
from statistics import mean, stdev

import torch

STUDENT_T_95 = 4.303
"""Student's t for three samples: half the width of the 95% confidence interval of their mean, in standard errors."""


def fitted_power(x: Sequence[int], y: Sequence[float]) -> float:
    """Return the exponent e of y = c·xᵉ, fitted by least squares to the logarithms."""
    logs = torch.tensor([list(x), list(y)], dtype=torch.float64).log()
    centred = logs - logs.mean(1, keepdim=True)
    return float((centred[0] * centred[1]).sum() / (centred[0] ** 2).sum())


def format_mean(samples: tuple[float, ...], digits: int) -> str:
    """Format the mean of the samples, with its confidence interval if there is more than one."""
    interval = f" ± {interval_half_width(samples):.{digits}f}" if len(samples) > 1 else ""
    return f"{mean(samples):.{digits}f}{interval}"


def interval_half_width(samples: tuple[float, ...]) -> float:
    """Return half the width of the 95% confidence interval of the mean of three samples; 0 for one sample."""
    return STUDENT_T_95 * stdev(samples) / len(samples) ** 0.5 if len(samples) > 1 else 0.0


def clearly_greater(first: tuple[float, ...], second: tuple[float, ...]) -> bool:
    """Whether the mean of the first samples is greater, and the confidence intervals do not overlap."""
    return mean(first) - interval_half_width(first) > mean(second) + interval_half_width(second)
