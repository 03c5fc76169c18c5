"""Prepares a run: joins the other ranks, locks the folder, prepares text, network and optimizer, opens the log."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from regard.atomic_files import write_file
from regard.decoding.own_network import OwnNetwork
from regard.errors import RegardError
from regard.model.transformer import Network
from regard.storage.model_folder import RECIPE_FILE
from regard.threads import threads_for_free_cores
from regard.training.device import choose_device
from regard.training.duration_estimate import DurationEstimate
from regard.training.event_reporter import Reporter
from regard.training.events import STOPPING_NOTE, WARNING, Watcher
from regard.training.interrupts import Interrupts
from regard.training.metrics_log import MetricsLog
from regard.training.objective import Objective, OwnLoss
from regard.training.optimizer import Optimizer
from regard.training.own_network_check import check_own_loss, check_own_network
from regard.training.parallel import Ranks, join_ranks, machines_warning, was_restarted
from regard.training.progress import Progress
from regard.training.recipe import Recipe, with_named_files
from regard.training.recipe_files import as_toml
from regard.training.run import TrainingRun
from regard.training.run_events import started_event
from regard.training.run_folder import check_run_folder, lock_run_folder
from regard.training.save_and_resume import resume_from_checkpoint
from regard.training.step_metrics import StepMeter
from regard.training.training_setup import cache_folder, prepare_training
from regard.training.weight_averaging import WeightAverage

NetworkChange = Callable[[Network], Network]
"""A function that replaces modules of a network in place and returns it, or returns another network to train."""


@dataclass(frozen=True)
class OwnParts:
    """The parts of a training that the user provides."""

    change_network: NetworkChange | None = None
    """Called before the first step. Either parameters keep their names and meaning, so that an ordinary model with
    these weights is validated and saved; or the result is an `OwnNetwork`."""
    loss: OwnLoss | None = None
    """In place of the cross-entropy with label smoothing."""

    @property
    def is_empty(self) -> bool:
        """Whether everything is Regard's."""
        return self.change_network is None and self.loss is None


NO_OWN_PARTS = OwnParts()


@contextmanager
def open_run(
    recipe: Recipe,
    out: Path,
    resume: bool,
    watchers: Sequence[Watcher] = (),
    own: OwnParts = NO_OWN_PARTS,
) -> Iterator[TrainingRun]:
    """A run in the folder `out`, which is locked until the end. Under torchrun this process joins the others."""
    with join_ranks(recipe.train.device) as ranks, ExitStack() as cleanup:
        resume = ranks.any(resume or was_restarted())
        with ranks.sharing_errors():
            recipe = replace(recipe, data=with_named_files(recipe.data))
            check_run_folder(recipe, out, resume)
            if not own.is_empty and ranks.count > 1:
                raise RegardError("your own module or loss trains in one process only: do not use torchrun")
            if ranks.first:
                cleanup.enter_context(lock_run_folder(out))
        thread_note = cleanup.enter_context(threads_for_free_cores()) if ranks.count == 1 else None
        run = prepare_run(recipe, out, resume, ranks, watchers, own)
        cleanup.callback(run.reporter.close)
        if thread_note and run.device.type == "cpu":
            run.reporter.note(run.progress.step, thread_note)
        yield run


def prepare_run(
    recipe: Recipe,
    out: Path,
    resume: bool,
    ranks: Ranks,
    watchers: Sequence[Watcher] = (),
    own: OwnParts = NO_OWN_PARTS,
) -> TrainingRun:
    """Prepare the text, the network and the optimizer; restore the newest checkpoint if asked to; open the log."""
    run = _build_run(recipe, out, resume, ranks, own)
    notes = resume_from_checkpoint(run) if resume else []
    settings, progress = run.settings, run.progress
    if isinstance(run.network, OwnNetwork):
        notes += [f"{WARNING}{note}" for note in run.network.notes]
        for note in run.network.notes if not watchers else ():
            warnings.warn(note, stacklevel=2)  # nobody would see it
    if own.loss is not None and settings.label_smoothing:
        notes.append(f"train.label_smoothing={settings.label_smoothing} has no effect on your own loss")
    run.meter = StepMeter(run.device, progress.seconds, progress.unlogged_loss, progress.unlogged_targets)
    if ranks.first:
        out.mkdir(parents=True, exist_ok=True)
        write_file(out / RECIPE_FILE, as_toml(recipe))
        run.reporter.watchers = [*watchers, MetricsLog(out, progress.step)]
    run.reporter.send(started_event(run))
    if settings.warmup > settings.steps:
        notes.append(f"train.warmup={settings.warmup:,} is longer than the run: the learning rate stays low")
    run.interrupts.on_signal = lambda: run.reporter.note(run.progress.step, STOPPING_NOTE)
    if warning := machines_warning():
        notes.append(f"{WARNING}{warning}")
    for note in notes:
        run.reporter.note(progress.step, note)
    return run


def _build_run(recipe: Recipe, out: Path, resume: bool, ranks: Ranks, own: OwnParts) -> TrainingRun:
    """A run at step 0 without watchers."""
    settings = recipe.train
    with ranks.sharing_errors():
        check_run_folder(recipe, out, resume)  # again: another process may have written to it before it was locked
        device_settings = choose_device(settings, ranks.local)
    packed = device_settings.device.type == "cuda" if settings.packed is None else settings.packed
    with ranks.first_rank_first():
        setup = prepare_training(recipe, cache_folder(), packed, ranks.rank, ranks.count, own.change_network)
    sharded = ranks.count > 1 and settings.parallel == "fsdp"
    dtype = torch.float32 if sharded else device_settings.dtype
    network = setup.network.to(device_settings.device, dtype).train()
    objective = Objective(network, settings.label_smoothing, device_settings.compiled, settings.consistency, own.loss)
    if isinstance(network, OwnNetwork):
        network.notes = check_own_network(network)
    if own.loss is not None:
        check_own_loss(objective)
    distributed = ranks.distribute(objective, settings.parallel, device_settings.dtype)
    return TrainingRun(
        recipe=recipe,
        out=out,
        ranks=ranks,
        interrupts=Interrupts(),
        device_settings=device_settings,
        setup=setup,
        objective=distributed,
        optimizer=Optimizer(network, settings, device_settings.dtype == torch.float16),
        progress=Progress(text_digest=setup.digest, packed=setup.packed, shards=setup.batches.shards),
        average=WeightAverage(settings.average),
        meter=StepMeter(device_settings.device),
        reporter=Reporter([]),
        can_record=setup.fixed_shapes and own.is_empty,
        duration_estimate=DurationEstimate(settings.steps),
    )
