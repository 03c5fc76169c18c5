"""The learning rate as a pure function of the step."""

import math

from regard.training.recipe import TrainSection


def learning_rate(step: int, train: TrainSection, d_model: int) -> float:
    """The learning rate of step 1, 2, …: it rises linearly to its peak over `warmup` steps, then decays.

    The paper's schedule is `inverse-sqrt` with the peak (d_model × warmup)^-0.5, which gives
    d_model^-0.5 · min(step^-0.5, step · warmup^-1.5).

    >>> [round(learning_rate(step, TrainSection(warmup=4_000), 512), 7) for step in (1, 4_000, 16_000)]
    [2e-07, 0.0006988, 0.0003494]
    """
    peak = (d_model * max(1, train.warmup)) ** -0.5 if train.lr is None else train.lr
    if step <= train.warmup:
        return peak * step / train.warmup
    if train.schedule == "constant":
        return peak
    if train.schedule == "inverse-sqrt":
        return peak * math.sqrt(max(1, train.warmup) / step)
    done = min(1.0, (step - train.warmup) / max(1, train.steps - train.warmup))
    remaining = 1 - done if train.schedule == "linear" else (1 + math.cos(math.pi * done)) / 2
    return peak * (train.lr_end + (1 - train.lr_end) * remaining)
