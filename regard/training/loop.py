"""A run: from a recipe to a model.

Each step is a pure function of what a checkpoint holds: the batches by epoch and index, the learning rate and the
random state by the step's number. So a run that was interrupted goes on as if nothing had happened.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_type_hints

import torch
from torch import Tensor

from regard.atomic_files import write_file
from regard.config import check_type
from regard.decoding.text_model import Model
from regard.errors import RegardError
from regard.model.transformer import Network, build
from regard.storage.model_folder import RECIPE, fill
from regard.training.checkpoints import (
    PROGRESS,
    best_model,
    check_whole,
    held,
    newest_checkpoint,
    publish,
    save_best,
    save_checkpoint,
    set_aside,
    sweep,
    withdraw,
)
from regard.training.device import find_place, kernels
from regard.training.events import (
    SCORES,
    STOPS,
    Ended,
    Event,
    Noted,
    Saved,
    Started,
    Stepped,
    Ticked,
    Validated,
    Watcher,
)
from regard.training.final_scores import Scores, final_scores
from regard.training.flops import batch_flops, peak
from regard.training.interrupts import Interrupts, interrupts
from regard.training.metrics_log import Log
from regard.training.nonfinite import diagnose
from regard.training.objective import Objective
from regard.training.optimizer import Optimizer
from regard.training.parallel import Ranks, ranks, restarted, whole
from regard.training.prefetch import Fed, Feed
from regard.training.preparation import cache_folder, make_task
from regard.training.recipe import Recipe, check_unchanged, spelled_out
from regard.training.recipe_files import as_toml, read_recipe
from regard.training.schedule import learning_rate
from regard.training.step import Stepper
from regard.training.step_metrics import Meter
from regard.training.validation import Found, validate
from regard.training.weight_averaging import Average, Weights

TOO_MANY, TOO_MANY_SCALED = 10, 40
"""updates in a row that are not finite: no accident, but a fault; in float16 the loss's scale is sought so, at first"""

Reason = Literal["steps", "patience", "interrupted"]
Fit = Callable[[Network], None]
"""exchanges parts of a network"""


@dataclass
class Progress:
    """How far a run is: what it goes on from, beside weights and moments."""

    step: int = 0
    epoch: int = 0
    index: int = 0
    """of the next batch within the epoch"""
    tokens: int = 0
    seconds: float = 0.0
    flops: float = 0.0
    skipped: int = 0
    in_a_row: int = 0
    waited: int = 0
    """validations since the best one"""
    best_step: int | None = None
    best_loss: float | None = None
    best_score: float | None = None
    kept: list[int] = field(default_factory=list)
    """steps whose weights are kept for averaging"""
    loss: float = 0.0
    counted: float = 0.0
    """the losses since the last line of the log, summed, and the targets they are of"""
    text: str = ""
    """the digest of what is learned from"""
    packed: bool = False
    """whether sentences share rows: epoch and index count batches of one kind"""

    @classmethod
    def read(cls, found: dict[str, Any], where: Path) -> "Progress":
        """The progress of a checkpoint; fields of other versions are ignored, and missing ones have their defaults.

        Raises a ValueError if there is no step, or a field is not of its type; `where` is for the message.
        """
        hints = get_type_hints(cls)
        known = {name: value for name, value in found.items() if name in hints}
        try:
            for name, value in ({"step": None} | known).items():
                check_type(name, value, list if name == "kept" else hints[name])
            for each in known.get("kept", ()):
                check_type("kept", each, int)
        except ValueError as error:
            raise RegardError(f"{where} cannot be resumed from: {error}") from None
        return cls(**known)


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    ended: Ended
    scores: list[Scores]
    """of the finished model, on the validation text"""
    signal: int | None
    """the signal that interrupted it"""
    first: bool
    """whether this process is the one that wrote it"""


def train(
    recipe: Recipe, out: Path, resume: bool = False, watchers: Sequence[Watcher] = (), fit: Fit | None = None
) -> Outcome:
    """Train as the recipe says, into the folder `out`; with `resume`, go on from its newest checkpoint.

    SIGTERM and Ctrl-C finish the step, save, and end it with the reason "interrupted". `fit` may exchange parts of the
    network before the first step, in one process; its parameters keep their names and meaning, so that what is
    validated and saved is an ordinary model of these weights.
    """
    resume = resume or restarted()
    with ranks(recipe.train.device) as here, ExitStack() as until_the_end:
        with here.agreed():
            recipe = replace(recipe, data=spelled_out(recipe.data))
            check_folder(recipe, out, resume)
            if fit is not None and here.count > 1:
                raise RegardError("a network with parts of one's own is trained in one process: leave torchrun out")
            if here.first:
                until_the_end.enter_context(held(out))
        run = Run(recipe, out, resume, here, Interrupts(), watchers, fit)
        until_the_end.callback(run.close)
        return run.go()


class Run:
    """A run on one rank. Only the first one writes and speaks."""

    def __init__(
        self,
        recipe: Recipe,
        out: Path,
        resume: bool,
        here: Ranks,
        stopped: Interrupts,
        watchers: Sequence[Watcher] = (),
        fit: Fit | None = None,
    ) -> None:
        self.recipe, self.settings, self.out, self.here, self.stopped = recipe, recipe.train, out, here, stopped
        with here.agreed():
            check_folder(recipe, out, resume)  # again: another process may have been at it until this one held it
            self.place = find_place(self.settings, here.local)
        with here.first_alone():
            self.task = make_task(recipe, cache_folder(), self._packed(), here.rank, here.count)
        if fit is not None:
            fit(self.task.network)
        sharded = here.count > 1 and self.settings.parallel == "fsdp"
        self.network = self.task.network.to(self.place.device, torch.float32 if sharded else self.place.dtype).train()
        objective = Objective(
            self.network, self.settings.label_smoothing, self.place.compiled, self.settings.consistency
        )
        spread = here.spread(objective, self.settings.parallel, self.place.dtype)
        self.optimizer = Optimizer(self.network, self.settings, self.place.dtype == torch.float16)
        self.stepper = Stepper(spread, self.optimizer, self.place.device, here, self.task.fixed and fit is None)
        self.progress = Progress(text=self.task.digest, packed=self.task.packed)
        self.average = Average(self.settings.average)
        notes = self._resume() if resume else []
        self.watchers = [*watchers, *self._log()] if here.first else []
        self.tell(self._started())
        if self.settings.warmup > self.settings.steps:
            told = f"the warm-up, train.warmup={self.settings.warmup:,}, is longer than the run: the rate stays low"
            notes.append(told)
        stopped.heard = lambda: self.tell(Noted(self.progress.step, STOPS))
        for note in notes:
            self.tell(Noted(self.progress.step, note))

    def go(self) -> Outcome:
        """Steps, validations and checkpoints, until there is a reason to end."""
        p, s = self.progress, self.settings
        reason: Reason = "patience" if self._waited_enough() else "steps"
        self.meter = Meter(self.place.device, p.seconds, p.loss, p.counted)
        if self.here.first and p.step < s.steps:
            withdraw(self.out)
        feed = Feed(self.task.batches, p.epoch, p.index, self.place.device)
        with interrupts(self.stopped), kernels(self.place.device, self.task.fixed), feed:
            batches = iter(feed)
            while p.step < s.steps and reason == "steps":
                interrupted = self._step(batches)
                last = p.step == s.steps
                if p.step % s.validate_every == 0 or last:
                    self._validate()
                if self._waited_enough():
                    reason = "patience"
                elif interrupted and not last:
                    reason = "interrupted"
                if p.step % s.checkpoint_every == 0 or last or reason != "steps":
                    self._save()
            if p.best_step is None and reason != "interrupted":  # it was lost, and no step was left to find another
                self._validate()
                self._save()
        best = None if p.best_step is None else best_model(self.out, p.best_step)
        if self.here.first and best is not None:
            publish(self.out, best)
        ended = self._ended(reason)  # before the scores, which are no training
        scores = [] if reason == "interrupted" or self.stopped.signal else self._final_scores(best)
        self.tell(ended)
        return Outcome(ended, scores, self.stopped.signal, self.here.first)

    def close(self) -> None:
        """Let go of the log's files, however it ended."""
        for watcher in self.watchers:
            if isinstance(watcher, Log):
                watcher.close()

    def tell(self, event: Event) -> None:
        """Tell those who watch. One whose terminal or pipe is gone is told no more: that is no reason to stop."""
        for watcher in list(self.watchers):
            try:
                watcher(event)
            except (OSError, SystemExit):  # rich asks to exit when nobody reads what it prints
                self.watchers.remove(watcher)

    def _step(self, batches: Iterator[Fed]) -> bool:
        """One update; whether a signal has come, to any rank."""
        p = self.progress
        fed = [next(batches) for _ in range(self.settings.accumulate)]
        ours = [each.batch for each in fed]
        signalled = float(self.stopped.signal is not None)
        times = 2 if self.settings.consistency else 1
        work = times * sum(batch_flops(self.network.config, batch) for batch in ours)
        targets, flops, interrupted = self.here.sums(float(sum(batch.targets for batch in ours)), work, signalled)
        p.step, p.epoch, p.index, p.tokens = p.step + 1, fed[-1].epoch, fed[-1].index, p.tokens + int(targets)
        torch.manual_seed(((self.settings.seed * 1_000_003 + p.step) * 1_009 + self.here.rank) % 2**63)
        pieces, lr = self.stepper.pieces, learning_rate(p.step, self.settings, self.network.config.d_model)
        found = self.stepper.step(ours, lr, targets)
        if self.stepper.pieces > pieces:
            self.tell(Noted(p.step, f"a batch did not fit into memory: from now on in {self.stepper.pieces} pieces"))
        p.flops += flops
        self.meter.add(p.step, found, targets, flops)
        if self.meter.full or interrupted or self._pauses():
            self._look(fed[-1], lr)
        return bool(interrupted)

    def _look(self, last: Fed, lr: float) -> None:
        """See what the steps gave, and tell of it when it is time."""
        p = self.progress
        for step, bad in self.meter.look():
            p.in_a_row = p.in_a_row + 1 if bad else 0
            p.skipped += bad
            # A scale that is too high is found so; and what is told thrice is known.
            if bad and not self.optimizer.scaled and p.in_a_row <= 3:
                self.tell(Noted(step, "the loss or its gradient was not finite: this update was left out"))
            if p.in_a_row >= (TOO_MANY_SCALED if self.optimizer.scaled else TOO_MANY):
                self._diverged(last, lr)
        if p.step % self.settings.log_every == 0 or p.step == self.settings.steps:
            self.tell(self._stepped(lr, last))
        self.tell(Ticked(p.step, self.meter.now()))

    def _stepped(self, lr: float, last: Fed) -> Stepped:
        p, seen = self.progress, self.meter.reading()
        name = torch.cuda.get_device_name(self.place.device) if self.place.device.type == "cuda" else ""
        most = (peak(name) or 0.0) * self.here.count
        return Stepped(
            step=p.step,
            epoch=last.epoch + last.index / last.length,
            loss=seen.loss,
            lr=lr,
            gradient=seen.gradient,
            tokens=p.tokens,
            tokens_per_second=seen.tokens_per_second,
            seconds=self.meter.seconds,
            utilisation=seen.flops_per_second / most if most else None,
        )

    def _validate(self) -> None:
        """Try the model, or the mean of the last ones; keep it if it is the best so far."""
        self.meter.pause()
        begun = time.perf_counter()
        p, s = self.progress, self.settings
        weights = self._weights()
        found: Found | None = None
        with self.here.agreed():
            if self.here.first:
                model = self._model(self.average.add(p.step, weights))
                with kernels(self.place.device, fixed=False):
                    found = validate(self.task, self._as_computed(model), s.validation_sentences, self.recipe.decode)
        found = self.here.from_first(found)
        assert found is not None
        worst = math.nan if p.best_loss is None else p.best_loss
        before = None if p.best_step is None else Found(worst, p.best_score, None, ())
        best = found.better_than(before, s.best_by) or self.task.validation is None
        p.waited = 0 if best else p.waited + 1
        if best:
            p.best_step, p.best_score = p.step, found.score
            p.best_loss = None if math.isnan(found.loss) else found.loss
        with self.here.agreed():
            if best and self.here.first:
                model.about = {**model.about, "scores": self._scores(found)}
                save_best(self.out, p.step, model)
        seconds = time.perf_counter() - begun
        self.tell(Validated(p.step, found.loss, found.score, found.measure, best, p.waited, found.samples, seconds))
        self.meter.go()

    def _save(self) -> None:
        """A checkpoint; all ranks take part, since each may hold a share."""
        self.meter.pause()
        begun = time.perf_counter()
        p = self.progress
        p.seconds, p.loss, p.counted = self.meter.seconds, self.meter.loss, self.meter.counted
        weights = self._weights()
        tensors = {name: whole(value) for name, value in self.optimizer.state().items()}
        with self.here.agreed():
            if self.here.first:
                p.kept = list(self.average.kept)
                tensors |= self.average.tensors()
                folder = save_checkpoint(self.out, p.step, self._model(weights), tensors, asdict(p))
                size = sum(file.stat().st_size for file in folder.iterdir())
                self.tell(Saved(p.step, str(folder), size, time.perf_counter() - begun))
        self.meter.go()

    def _ended(self, reason: Reason | Literal["diverged"]) -> Ended:
        p = self.progress
        self.meter.pause()
        return Ended(
            step=p.step,
            reason=reason,
            best_step=p.best_step,
            best_loss=p.best_loss,
            best_score=p.best_score,
            tokens=p.tokens,
            seconds=self.meter.seconds,
            flops=p.flops,
            skipped=p.skipped,
        )

    def _final_scores(self, best: Path | None) -> list[Scores]:
        """Of the model as it was kept, asked as the recipe says."""
        if not self.here.first or best is None or not self.task.examples or self.task.kind == "language":
            return []
        self.tell(Noted(self.progress.step, SCORES.format(f"{len(self.task.examples):,}")))
        return final_scores(self.task, self._as_computed(Model.from_folder(best)), self.recipe.decode)

    def _diverged(self, last: Fed, lr: float) -> None:
        p = self.progress
        told = diagnose(self.network, last.batch, lr) if self.here.count == 1 else "lower train.lr, or set train.clip=1"
        self.tell(self._ended("diverged"))
        with self.here.agreed():
            raise RegardError(
                f"{p.in_a_row} updates in a row up to step {p.step} were not finite, and were left out: {told}; "
                f"in another folder (--out). What was saved in {self.out} is as it was"
            )

    def _resume(self) -> list[str]:
        """Take over the newest whole checkpoint; what is to be said of it."""
        if self.here.first:
            sweep(self.out)
        with self.here.first_alone():
            found, damaged = newest_checkpoint(self.out)
            known = None if found is None else found.model.tokenizer
            if found is not None and (known is None or known.digest != self.task.tokenizer.digest):
                raise RegardError(f"{found.folder} was trained with another tokenizer: has the text changed since?")
            if found is not None and found.progress.get("text") != self.task.digest:
                raise RegardError(
                    f"{found.folder} was trained on other text: a file of the recipe's data has changed since. "
                    "Bring back what it was, or begin another run with --out"
                )
            if found is not None and found.progress.get("packed") != self.task.packed:
                was = "true" if found.progress.get("packed") else "false"
                raise RegardError(f"{found.folder} has seen other batches: go on with --set train.packed={was}")
        with self.here.agreed():
            here = None if found is None else found.folder.name
            if (first := self.here.from_first(here)) != here:
                raise RegardError(f"{self.out} holds {here}, and for the first rank {first}: it must be one for all")
        if found is None:
            return [*damaged, "there is no checkpoint to go on from: this run begins anew"]
        self.progress = Progress.read(found.progress, found.folder / PROGRESS)
        if self.here.first:
            set_aside(self.out, self.progress.step)
        self.optimizer.load(dict(found.model.network.named_parameters()), found.tensors)
        self.average.load(self.progress.kept, self.optimizer.names, found.tensors)
        return [*damaged, *self._check_best(), f"goes on behind step {self.progress.step:,}, from {found.folder}"]

    def _check_best(self) -> list[str]:
        """Forget the best model if it is damaged; what is to be said of it."""
        p, damage = self.progress, ""
        try:
            if p.best_step is not None and self.here.first:
                check_whole(best_model(self.out, p.best_step))
        except (ValueError, OSError) as error:
            damage = str(error)
        if not (damage := self.here.from_first(damage)):
            return []
        p.best_step = p.best_loss = p.best_score = None
        return [f"the best model so far is lost, and the next that is validated counts as the best: {damage}"]

    def _waited_enough(self) -> bool:
        """Whether patience is at its end."""
        return bool(self.settings.patience) and self.progress.waited >= self.settings.patience

    def _pauses(self) -> bool:
        """Whether something follows this step that wants to know how it went."""
        s, step = self.settings, self.progress.step
        last = step == s.steps
        return last or any(step % every == 0 for every in (s.log_every, s.validate_every, s.checkpoint_every))

    def _log(self) -> list[Watcher]:
        self.out.mkdir(parents=True, exist_ok=True)
        write_file(self.out / RECIPE, as_toml(self.recipe))
        return [Log(self.out, self.progress.step)]

    def _started(self) -> Started:
        count = sum(weight.numel() for weight in self.optimizer.weights)
        return Started(
            step=self.progress.step,
            steps=self.settings.steps,
            name=self.recipe.name,
            task=self.task.kind,
            out=str(self.out),
            place=str(self.place) + (f", {self.here.count} devices ({self.settings.parallel})" * (self.here.count > 1)),
            parameters=count,
            examples=self.task.count,
            left_out=self.task.left_out,
            problems=self.task.problems,
        )

    def _packed(self) -> bool:
        """Whether sentences share rows, if the model allows it: as asked for, or where kernels know how."""
        if self.settings.packed is not None:
            return self.settings.packed
        return self.place.device.type == "cuda"

    def _weights(self) -> dict[str, Tensor]:
        """The float32 weights, whole."""
        return {name: whole(weight).detach() for name, weight in self.optimizer.named_weights().items()}

    def _model(self, weights: Weights) -> Model:
        """A model of these weights, on its own."""
        with torch.device("meta"):
            network = build(self.network.config)
        fill(network, dict(weights))
        task = self.task
        return Model(network, task.tokenizer, task.special, task.about)

    def _as_computed(self, model: Model) -> Model:
        """The model where and in the type in which it is trained."""
        weight = model.network.embedding.tokens.weight
        if weight.device == self.place.device and weight.dtype == self.place.dtype:
            return model
        network = deepcopy(model.network).to(self.place.device, self.place.dtype)
        return Model(network, model.tokenizer, model.special, model.about)

    def _scores(self, found: Found) -> dict[str, float | int | str]:
        scores: dict[str, float | int | str] = {"set": "validation", "step": self.progress.step}
        if not math.isnan(found.loss):
            scores["loss"] = found.loss
        return scores | ({found.measure: found.score} if found.measure and found.score is not None else {})


def check_folder(recipe: Recipe, out: Path, resume: bool) -> None:
    """A ValueError if a run would be overwritten, or gone on with by another recipe."""
    begun = (out / RECIPE).exists()
    if begun and not resume:
        raise RegardError(f"{out} holds a run already: go on with it by --resume, or name another folder by --out")
    if not begun and out.exists() and (not out.is_dir() or any(each.name[0] != "." for each in out.iterdir())):
        raise RegardError(f"{out} is there already, and is no run's folder: name another by --out")
    if begun and any((out / "checkpoints").glob("step-*")):
        check_unchanged(read_recipe(str(out / RECIPE)), recipe)
