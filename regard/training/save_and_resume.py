"""Saves the state of a run as a checkpoint, and restores it."""

import time

from regard.errors import RegardError
from regard.training.checkpoint_files import (
    TRAINING_JSON,
    Checkpoint,
    best_model_folder,
    check_intact,
    newest_checkpoint,
    remove_leftovers,
    rename_damaged,
    write_checkpoint,
)
from regard.training.events import Saved
from regard.training.parallel import full_tensor
from regard.training.progress import Progress
from regard.training.run import TrainingRun
from regard.training.snapshots import remove_snapshots_after


def save_checkpoint(run: TrainingRun) -> None:
    """Write a checkpoint. All ranks take part, because each may hold a share of the weights."""
    run.meter.pause()
    start = time.perf_counter()
    progress, meter = run.progress, run.meter
    progress.seconds = meter.seconds
    progress.unlogged_loss, progress.unlogged_targets = meter.loss, meter.counted_targets
    weights = run.full_weights()
    tensors = {name: full_tensor(value) for name, value in run.optimizer.state().items()}
    with run.ranks.sharing_errors():
        if run.ranks.first:
            progress.averaged_steps = list(run.average.kept)
            tensors |= run.average.tensors()
            folder = write_checkpoint(run.out, progress.step, run.model_with(weights), tensors, progress.to_json())
            size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
            run.reporter.send(Saved(progress.step, str(folder), size, time.perf_counter() - start))
    run.meter.resume()


def resume_from_checkpoint(run: TrainingRun) -> list[str]:
    """Restore the newest intact checkpoint. Returns notes for the user."""
    if run.ranks.first:
        remove_leftovers(run.out)
    with run.ranks.first_rank_first():
        checkpoint, notes = newest_checkpoint(run.out, run.module_to_load())
        if checkpoint is not None:
            _check_same_data(run, checkpoint)
    with run.ranks.sharing_errors():
        name = None if checkpoint is None else checkpoint.folder.name
        if (first := run.ranks.from_first(name)) != name:
            raise RegardError(f"{run.out} holds {name} here and {first} on the first rank: all ranks need the same")
    if checkpoint is None:
        return [*notes, "there is no checkpoint to resume from: this run starts from the beginning"]
    run.progress = Progress.from_json(checkpoint.progress, checkpoint.folder / TRAINING_JSON)
    if run.ranks.first:
        rename_damaged(run.out, run.progress.step)
        remove_snapshots_after(run.out, run.progress.step)
    run.optimizer.load(dict(checkpoint.model.network.named_parameters()), checkpoint.tensors)
    saved_buffers = dict(checkpoint.model.network.named_buffers())
    for name, buffer in run.network.named_buffers():
        buffer.copy_(saved_buffers[name])
    run.average.load(run.progress.averaged_steps, run.optimizer.names, checkpoint.tensors)
    return [*notes, *_check_best_model(run), f"resumes after step {run.progress.step:,}, from {checkpoint.folder}"]


def _check_same_data(run: TrainingRun, checkpoint: Checkpoint) -> None:
    """Raise a RegardError unless the checkpoint was trained on the same text with the same batches."""
    folder, tokenizer, setup = checkpoint.folder, checkpoint.model.tokenizer, run.setup
    if tokenizer is None or tokenizer.digest != setup.tokenizer.digest:
        raise RegardError(f"{folder} was trained with a different tokenizer: has the text changed since?")
    if checkpoint.progress.get("text") != setup.digest:
        raise RegardError(
            f"{folder} was trained on different text: a file of the recipe's data has changed since. "
            "Restore it, or start another run with --out"
        )
    if checkpoint.progress.get("packed") != setup.packed:
        packed = "true" if checkpoint.progress.get("packed") else "false"
        raise RegardError(f"{folder} was trained on different batches: resume with --set train.packed={packed}")
    shards = checkpoint.progress.get("shards", 1)
    if shards != setup.batches.shards:
        raise RegardError(
            f"{folder} was trained by a version of Regard that divided an epoch into {shards} part(s), and not into "
            f"{setup.batches.shards}: resume with that version, or start another run with --out"
        )


def _check_best_model(run: TrainingRun) -> list[str]:
    """Forget the best model if it is damaged. Returns notes for the user."""
    progress, damage = run.progress, ""
    try:
        if progress.best_step is not None and run.ranks.first:
            check_intact(best_model_folder(run.out, progress.best_step))
    except (ValueError, OSError) as error:
        damage = str(error)
    damage = run.ranks.from_first(damage)
    if not damage:
        return []
    progress.best_step = progress.best_loss = progress.best_score = None
    return [f"the best model so far is damaged; the next validated model replaces it: {damage}"]
