"""The events a run reports: how it starts, how its steps go, how it ends."""

import torch

from regard.decoding.own_network import OwnNetwork
from regard.training.events import Ended, EndReason, Started, Stepped, Ticked
from regard.training.flops import peak_flops
from regard.training.prefetch import PrefetchedBatch
from regard.training.run import TrainingRun


def started_event(run: TrainingRun) -> Started:
    """What is trained, on what, and where."""
    devices = f", {run.ranks.count} devices ({run.settings.parallel})" if run.ranks.count > 1 else ""
    return Started(
        step=run.progress.step,
        steps=run.settings.steps,
        name=run.recipe.name,
        task=run.setup.kind,
        out=str(run.out),
        place=f"{run.device_settings}{devices}",
        parameters=sum(weight.numel() for weight in run.optimizer.weights),
        examples=run.setup.example_count,
        left_out=run.setup.left_out,
        problems=run.setup.problems,
        module=run.network.name if isinstance(run.network, OwnNetwork) else "",
    )


def report_steps(run: TrainingRun, last: PrefetchedBatch, lr: float) -> None:
    """Report how far the run is and, every `train.log_every` steps, how it went. `last` is the latest batch."""
    step = run.progress.step
    if step % run.settings.log_every == 0 or step == run.settings.steps:
        run.reporter.send(_stepped_event(run, last, lr))
    ticked = Ticked(step, run.meter.now())
    run.reporter.send(ticked)
    if run.device.type == "cpu" and (note := run.duration_estimate.note(step, ticked.seconds)):
        run.reporter.note(step, note)


def _stepped_event(run: TrainingRun, last: PrefetchedBatch, lr: float) -> Stepped:
    metrics = run.meter.summarize()
    gpu = torch.cuda.get_device_name(run.device) if run.device.type == "cuda" else ""
    peak = (peak_flops(gpu) or 0.0) * run.ranks.count
    return Stepped(
        step=run.progress.step,
        epoch=last.epochs,
        loss=metrics.loss,
        lr=lr,
        gradient=metrics.gradient,
        tokens=run.progress.tokens,
        tokens_per_second=metrics.tokens_per_second,
        seconds=run.meter.seconds,
        utilisation=metrics.flops_per_second / peak if peak else None,
    )


def ended_event(run: TrainingRun, reason: EndReason) -> Ended:
    """Why the run ended, and what it reached. Stops the clock."""
    progress = run.progress
    run.meter.pause()
    return Ended(
        step=progress.step,
        reason=reason,
        best_step=progress.best_step,
        best_loss=progress.best_loss,
        best_score=progress.best_score,
        tokens=progress.tokens,
        seconds=run.meter.seconds,
        flops=progress.flops,
        skipped=progress.skipped,
    )
