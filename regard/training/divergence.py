"""Updates that are not finite: they are skipped and counted, and too many in a row end the run with a diagnosis."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from regard.data.batches import Batch
from regard.errors import RegardError
from regard.model.transformer import Network
from regard.training.objective import Objective
from regard.training.run import TrainingRun
from regard.training.run_events import ended_event

MAX_CONSECUTIVE_SKIPS = 10
"""Number of skipped updates in a row that end a run."""
MAX_CONSECUTIVE_SKIPS_SCALED = 40
"""The same in float16, where the first updates are skipped until the scale of the loss is low enough."""
MAX_SKIP_NOTES = 3
"""Number of skipped updates in a row that are reported one by one."""


def check_updates(run: TrainingRun, updates: Sequence[tuple[int, bool]], batch: Batch, lr: float) -> None:
    """Count skipped updates, given as (step, whether it was skipped); raise a RegardError after too many in a row.

    `batch` and `lr` are those of the latest step, for the diagnosis.
    """
    progress, scaled = run.progress, run.optimizer.scales_loss
    limit = MAX_CONSECUTIVE_SKIPS_SCALED if scaled else MAX_CONSECUTIVE_SKIPS
    for step, skipped in updates:
        progress.consecutive_skips = progress.consecutive_skips + 1 if skipped else 0
        progress.skipped += skipped
        if skipped and not scaled and progress.consecutive_skips <= MAX_SKIP_NOTES:
            run.reporter.note(step, "the loss or its gradient was not finite: this update was skipped")
        if progress.consecutive_skips >= limit:
            _end_diverged(run, batch, lr)


def _end_diverged(run: TrainingRun, batch: Batch, lr: float) -> None:
    advice = "lower train.lr, or set train.clip=1"
    if run.ranks.count == 1:
        advice = diagnose(run.network, batch, lr)
    run.reporter.send(ended_event(run, "diverged"))
    with run.ranks.sharing_errors():
        raise RegardError(
            f"{run.progress.consecutive_skips} updates in a row up to step {run.progress.step} were not finite and "
            f"were skipped: {advice}. Start again in another folder (--out); what was saved in {run.out} is unchanged"
        )


@torch.no_grad()
def diagnose(network: Network, batch: Batch, lr: float) -> str:
    """Which weights are not finite, or which module's output is the first that is not; and what to try."""
    broken = [name for name, weight in network.named_parameters() if not weight.isfinite().all()]
    if broken:
        return f"the weights of {broken[0]} are not finite: resume from an older checkpoint, or start again"
    first = _first_nonfinite_module(network, batch)
    name, largest = max(network.named_parameters(), key=lambda parameter: float(parameter[1].abs().max()))
    problem = f"the output of {first} is not finite" if first else "the loss is finite but its gradient is not"
    return (
        f"{problem}; the largest weight is {float(largest.abs().max()):.3g}, in {name}. "
        f"The learning rate was {lr:.2g}: try a lower train.lr, a longer train.warmup, train.clip=1, "
        'or train.precision="float32"'
    )


def _first_nonfinite_module(network: Network, batch: Batch) -> str | None:
    """The name of the first module, in the order of computation, whose output is not finite."""
    nonfinite: list[str] = []

    def check_output(name: str) -> Any:
        def hook(_module: nn.Module, _inputs: object, output: object) -> None:
            if not nonfinite and isinstance(output, Tensor) and not output.isfinite().all():
                nonfinite.append(name)

        return hook

    handles = [module.register_forward_hook(check_output(name)) for name, module in network.named_modules() if name]
    try:
        loss = Objective(network)(batch.to(network.device))
    finally:
        for handle in handles:
            handle.remove()
    if nonfinite:
        return nonfinite[0]
    return None if loss.isfinite() else "the output layer"
