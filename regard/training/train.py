"""The training loop: batches → loss → gradients → new weights, with validations and checkpoints along the way.

Every step is a pure function of what a checkpoint holds: the batches follow from epoch and index, the learning rate and
the random state from the number of the step. An interrupted run therefore resumes as if nothing had happened.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.data.batches import Batch
from regard.decoding.own_network import OwnNetwork
from regard.training.best_model import publish_best_model, score_best_model, validate_and_keep_best
from regard.training.divergence import check_updates
from regard.training.events import Ended, StopReason, Watcher
from regard.training.final_scores import FinalScores
from regard.training.optimizer import Optimizer
from regard.training.parallel import Ranks
from regard.training.recipe import Recipe
from regard.training.run import TrainingRun
from regard.training.run_events import ended_event, report_steps
from regard.training.run_setup import NO_OWN_PARTS, OwnParts, open_run
from regard.training.save_and_resume import save_checkpoint
from regard.training.schedule import learning_rate
from regard.training.snapshots import take_snapshot
from regard.training.step import StepRunner


@dataclass(frozen=True)
class TrainingOutcome:
    """How a run ended."""

    ended: Ended
    scores: list[FinalScores]
    """Scores of the best model on the validation text."""
    signal: int | None
    """The signal that interrupted the run, if any."""
    first: bool
    """Whether this process is the first rank, which wrote the run's files."""
    module: nn.Module | None = None
    """The user's module that was trained, with the weights of the last step; None if it was Regard's network."""


def train_recipe(
    recipe: Recipe,
    out: Path,
    resume: bool = False,
    watchers: Sequence[Watcher] = (),
    own: OwnParts = NO_OWN_PARTS,
) -> TrainingOutcome:
    """Train as the recipe says, into the folder `out`; with `resume`, continue from its newest checkpoint.

    SIGTERM and Ctrl-C finish the current step, save, and end the run with the reason "interrupted". `own` are a network
    and a loss in place of Regard's, in a single process.
    """
    with open_run(recipe, out, resume, watchers, own) as run:
        return training_loop(run)


def training_loop(run: TrainingRun) -> TrainingOutcome:
    """Take steps until all are done, patience runs out or a signal arrives; then publish and score the best model."""
    settings, progress = run.settings, run.progress
    runner = StepRunner(
        update_weights, run.objective, run.optimizer, run.device, run.ranks, run.can_record, run.note_split
    )
    with run.training() as prefetched:
        reason = stop_reason(run)
        if progress.step == 0:
            take_snapshot(run)
        while reason is None:
            batches = [next(prefetched) for _ in range(settings.accumulate)]
            targets, flops, interrupted = run.totals(batches)  # over all ranks
            progress.advance(batches[-1], targets, flops)

            lr = learning_rate(progress.step, settings, run.network.config.d_model)
            torch.manual_seed(random_seed(settings.seed, progress.step, run.ranks.rank))
            result = runner.step([item.batch for item in batches], lr, targets)  # calls update_weights on the device
            run.meter.add(progress.step, result, targets, flops)
            if run.meter.full or interrupted or run.pauses():  # reading the results makes the host wait for the GPU
                check_updates(run, run.meter.read(), batches[-1].batch, lr)
                report_steps(run, batches[-1], lr)

            if progress.step % settings.validate_every == 0 or progress.step == settings.steps:
                validate_and_keep_best(run)
            take_snapshot(run)
            reason = stop_reason(run, bool(interrupted))
            if progress.step % settings.checkpoint_every == 0 or reason is not None:
                save_checkpoint(run)

        if progress.best_step is None and reason != "interrupted":  # the best model was damaged, and no step is left
            validate_and_keep_best(run)
            save_checkpoint(run)
    publish_best_model(run)
    ended = ended_event(run, reason)  # before scoring, which is not training time
    scores = [] if reason == "interrupted" or run.interrupts.signal else score_best_model(run)
    run.reporter.send(ended)
    module = run.network.module if isinstance(run.network, OwnNetwork) else None
    return TrainingOutcome(ended, scores, run.interrupts.signal, run.ranks.first, module)


def update_weights(
    batches: Sequence[Batch], objective: nn.Module, optimizer: Optimizer, ranks: Ranks, targets: Float[Tensor, ""]
) -> Float[Tensor, "3"]:
    """One update: the loss of each batch, its gradient, and a step of Adam with their sum.

    Returns the sum of the losses, the norm of the gradient, and 1 if the update was skipped because either was not
    finite. `targets` is the number of targets in all batches on all ranks.
    """
    scale = optimizer.loss_scale * ranks.count / targets  # gradients are averaged over the ranks
    total = torch.zeros((), device=targets.device)
    for number, batch in enumerate(batches, start=1):
        # Half-precision gradients are added up in float32 after every batch, so each must be averaged at once.
        average_now = number == len(batches) or optimizer.copies_weights
        with ranks.averaging_gradients(objective, average_now):
            loss: Tensor = objective(batch)
            (loss * scale).backward()  # type: ignore[no-untyped-call]
        optimizer.collect_gradients()
        total += loss.detach()
    total = ranks.sum_tensor(total)
    norm, skipped = optimizer.update(total)
    return torch.stack([total, norm, skipped])


def stop_reason(run: TrainingRun, interrupted: bool = False) -> StopReason | None:
    """Why the run ends after this step; None if it continues."""
    patience = run.settings.patience
    if patience and run.progress.validations_since_best >= patience:
        return "patience"
    if run.progress.step >= run.settings.steps:
        return "steps"
    return "interrupted" if interrupted else None


def random_seed(seed: int, step: int, rank: int) -> int:
    """The seed of one step on one rank, so that dropout does not depend on earlier steps."""
    return ((seed * 1_000_003 + step) * 1_009 + rank) % 2**63
