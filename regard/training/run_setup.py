"""Prepares a run: joins the other ranks, locks the folder, prepares text, network and optimizer, opens the log."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from regard.atomic_files import write_file
from regard.errors import RegardError
from regard.model.transformer import Network
from regard.storage.model_folder import RECIPE_FILE
from regard.training.device import choose_device
from regard.training.event_reporter import Reporter
from regard.training.events import STOPPING_NOTE, Watcher
from regard.training.interrupts import Interrupts
from regard.training.metrics_log import MetricsLog
from regard.training.objective import Objective
from regard.training.optimizer import Optimizer
from regard.training.parallel import Ranks, join_ranks, was_restarted
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

NetworkChange = Callable[[Network], None]
"""A function that replaces modules of a network in place."""


@contextmanager
def open_run(
    recipe: Recipe,
    out: Path,
    resume: bool,
    watchers: Sequence[Watcher] = (),
    change_network: NetworkChange | None = None,
) -> Iterator[TrainingRun]:
    """A run in the folder `out`, which is locked until the end. Under torchrun this process joins the others."""
    resume = resume or was_restarted()
    with join_ranks(recipe.train.device) as ranks, ExitStack() as cleanup:
        with ranks.sharing_errors():
            recipe = replace(recipe, data=with_named_files(recipe.data))
            check_run_folder(recipe, out, resume)
            if change_network is not None and ranks.count > 1:
                raise RegardError("a network with custom modules trains in one process only: do not use torchrun")
            if ranks.first:
                cleanup.enter_context(lock_run_folder(out))
        run = prepare_run(recipe, out, resume, ranks, watchers, change_network)
        cleanup.callback(run.reporter.close)
        yield run


def prepare_run(
    recipe: Recipe,
    out: Path,
    resume: bool,
    ranks: Ranks,
    watchers: Sequence[Watcher] = (),
    change_network: NetworkChange | None = None,
) -> TrainingRun:
    """Prepare the text, the network and the optimizer; restore the newest checkpoint if asked to; open the log."""
    run = _build_run(recipe, out, resume, ranks, change_network)
    notes = resume_from_checkpoint(run) if resume else []
    settings, progress = run.settings, run.progress
    run.meter = StepMeter(run.device, progress.seconds, progress.unlogged_loss, progress.unlogged_targets)
    if ranks.first:
        out.mkdir(parents=True, exist_ok=True)
        write_file(out / RECIPE_FILE, as_toml(recipe))
        run.reporter.watchers = [*watchers, MetricsLog(out, progress.step)]
    run.reporter.send(started_event(run))
    if settings.warmup > settings.steps:
        notes.append(f"train.warmup={settings.warmup:,} is longer than the run: the learning rate stays low")
    run.interrupts.on_signal = lambda: run.reporter.note(run.progress.step, STOPPING_NOTE)
    for note in notes:
        run.reporter.note(progress.step, note)
    return run


def _build_run(
    recipe: Recipe, out: Path, resume: bool, ranks: Ranks, change_network: NetworkChange | None
) -> TrainingRun:
    """A run at step 0 without watchers."""
    settings = recipe.train
    with ranks.sharing_errors():
        check_run_folder(recipe, out, resume)  # again: another process may have written to it before it was locked
        device_settings = choose_device(settings, ranks.local)
    packed = device_settings.device.type == "cuda" if settings.packed is None else settings.packed
    with ranks.first_rank_first():
        setup = prepare_training(recipe, cache_folder(), packed, ranks.rank, ranks.count)
    if change_network is not None:
        change_network(setup.network)
    sharded = ranks.count > 1 and settings.parallel == "fsdp"
    dtype = torch.float32 if sharded else device_settings.dtype
    network = setup.network.to(device_settings.device, dtype).train()
    objective = Objective(network, settings.label_smoothing, device_settings.compiled, settings.consistency)
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
        progress=Progress(text_digest=setup.digest, packed=setup.packed),
        average=WeightAverage(settings.average),
        meter=StepMeter(device_settings.device),
        reporter=Reporter([]),
        can_record=setup.fixed_shapes and change_network is None,
    )
