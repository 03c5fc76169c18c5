"""A run: from a recipe to a model.

Each step is a pure function of what a checkpoint holds: the batches by epoch and index, the learning rate and the
random state by the step's number. So a run that was interrupted goes on as if nothing had happened.
"""

import time
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from regard.model.transformer import build
from regard.store import Stored, fill, load
from regard.train.checkpoint import best_model, newest_checkpoint, publish, save_best, save_checkpoint, sweep
from regard.train.cost import batch_flops, peak
from regard.train.diagnosis import diagnose
from regard.train.events import Ended, Event, Noted, Saved, Started, Stepped, Validated, Watcher
from regard.train.feed import Fed, Feed
from regard.train.final import Scores, final_scores
from regard.train.interrupts import Interrupts, interrupts
from regard.train.log import Log
from regard.train.meter import Meter
from regard.train.objective import Objective
from regard.train.optimizer import Optimizer
from regard.train.parallel import Ranks, ranks, restarted, whole
from regard.train.place import find_place
from regard.train.recipe import Recipe, as_toml, check_unchanged, read_recipe
from regard.train.schedule import learning_rate
from regard.train.step import Stepper
from regard.train.task import cache_folder, make_task
from regard.train.validate import Found, validate

TOO_MANY = 10
"""updates in a row that are not finite: no accident, but a fault"""

Reason = Literal["steps", "patience", "interrupted"]


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


def train(recipe: Recipe, out: Path, resume: bool = False, watchers: Sequence[Watcher] = ()) -> Outcome:
    """Train as the recipe says, into the folder `out`; with `resume`, go on from its newest checkpoint.

    SIGTERM and Ctrl-C finish the step, save, and end it with the reason "interrupted".
    """
    with ranks(recipe.train.device) as here, interrupts() as stopped:
        run = Run(recipe, out, resume or restarted(), here, stopped, watchers)
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
    ) -> None:
        check_folder(recipe, out, resume)
        self.recipe, self.settings, self.out, self.here, self.stopped = recipe, recipe.train, out, here, stopped
        self.place = find_place(self.settings, here.local)
        with here.first_alone():
            self.task = make_task(recipe, cache_folder(), self._packed(), here.rank, here.count)
        sharded = here.count > 1 and self.settings.parallel == "fsdp"
        self.network = self.task.network.to(self.place.device, torch.float32 if sharded else self.place.dtype).train()
        objective = Objective(self.network, self.settings.label_smoothing, self.place.compiled)
        spread = here.spread(objective, self.settings.parallel, self.place.dtype)
        self.optimizer = Optimizer(self.network, self.settings)
        self.stepper = Stepper(spread, self.optimizer, self.place.device, here)
        self.progress = Progress()
        self.snapshots: dict[int, dict[str, Tensor]] = {}
        notes = self._resume() if resume else []
        self.watchers = [*watchers, *self._log()] if here.first else []
        self.tell(self._started())
        for note in notes:
            self.tell(Noted(self.progress.step, note))

    def go(self) -> Outcome:
        """Steps, validations and checkpoints, until there is a reason to end."""
        p, s = self.progress, self.settings
        reason: Reason = "steps"
        self.meter = Meter(self.place.device)
        self.meter.seconds = self.meter.begun = p.seconds
        with Feed(self.task.batches, p.epoch, p.index) as feed:
            batches = iter(feed)
            while p.step < s.steps and reason == "steps":
                interrupted = self._step(batches)
                last = p.step == s.steps
                if p.step % s.validate_every == 0 or last:
                    self._validate()
                if s.patience and p.waited >= s.patience:
                    reason = "patience"
                elif interrupted and not last:
                    reason = "interrupted"
                if p.step % s.checkpoint_every == 0 or last or reason != "steps":
                    self._save()
        return Outcome(self._end(reason), self._final_scores(reason), self.stopped.signal, self.here.first)

    def tell(self, event: Event) -> None:
        """Tell those who watch."""
        for watcher in self.watchers:
            watcher(event)

    def _step(self, batches: Iterator[Fed]) -> bool:
        """One update; whether a signal has come, to any rank."""
        p = self.progress
        fed = [next(batches) for _ in range(self.settings.accumulate)]
        ours = [each.batch for each in fed]
        signalled = float(self.stopped.signal is not None)
        targets, interrupted = self.here.sums(sum(batch.targets for batch in ours), signalled)
        p.step, p.epoch, p.index, p.tokens = p.step + 1, fed[-1].epoch, fed[-1].index, p.tokens + int(targets)
        torch.manual_seed(((self.settings.seed * 1_000_003 + p.step) * 1_009 + self.here.rank) % 2**63)
        pieces, lr = self.stepper.pieces, learning_rate(p.step, self.settings, self.network.config.d_model)
        found = self.stepper.step(ours, lr, targets)
        if self.stepper.pieces > pieces:
            self.tell(Noted(p.step, f"a batch did not fit into memory: from now on in {self.stepper.pieces} pieces"))
        flops = sum(batch_flops(self.network.config, batch) for batch in ours) * self.here.count
        p.flops += flops
        self.meter.add(p.step, found, targets, flops)
        if self.meter.full or p.step % self.settings.log_every == 0:
            self._look(fed[-1], lr)
        return bool(interrupted)

    def _look(self, last: Fed, lr: float) -> None:
        """See what the steps gave, and tell of it when it is time."""
        p = self.progress
        for step, bad in self.meter.look():
            p.in_a_row = p.in_a_row + 1 if bad else 0
            p.skipped += bad
            if bad:
                self.tell(Noted(step, "the loss or its gradient was not finite: this update was left out"))
            if p.in_a_row >= TOO_MANY:
                self._diverged(last, lr)
        if p.step % self.settings.log_every == 0:
            self.tell(self._stepped(lr))

    def _stepped(self, lr: float) -> Stepped:
        p, seen = self.progress, self.meter.reading()
        name = torch.cuda.get_device_name(self.place.device) if self.place.device.type == "cuda" else ""
        most = (peak(name) or 0.0) * self.here.count
        return Stepped(
            step=p.step,
            epoch=p.epoch + p.index / self.task.batches.length(p.epoch),
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
        if self.here.first:
            self._snapshot(weights)
            model = self._model(self._mean())
            found = validate(self.task, self._as_computed(model), s.validation_sentences)
        found = self.here.from_first(found)
        assert found is not None
        before = Found(p.best_loss or 0.0, p.best_score, None, ()) if p.best_step is not None else None
        best = found.better_than(before, s.best_by) or self.task.validation is None
        p.waited = 0 if best else p.waited + 1
        if best:
            p.best_step, p.best_loss, p.best_score = p.step, found.loss, found.score
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
        p.seconds = self.meter.seconds
        weights = self._weights()
        tensors = {name: whole(value) for name, value in self.optimizer.state().items()}
        if self.here.first:
            kept = {f"kept.{step}.{name}": x for step, held in self.snapshots.items() for name, x in held.items()}
            p.kept = list(self.snapshots)
            folder = save_checkpoint(self.out, p.step, self._model(weights), tensors | kept, asdict(p))
            size = sum(file.stat().st_size for file in folder.iterdir())
            self.tell(Saved(p.step, str(folder), size, time.perf_counter() - begun))
        self.meter.go()

    def _end(self, reason: Reason) -> Ended:
        """Bring the best model up into the run's folder, and say how it went."""
        if self.here.first and (best := best_model(self.out)) is not None:
            publish(self.out, best)
        ended = self._ended(reason)
        self.tell(ended)
        return ended

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

    def _final_scores(self, reason: Reason) -> list[Scores]:
        best = best_model(self.out)
        if reason == "interrupted" or not self.here.first or best is None:
            return []
        return final_scores(self.task, self._as_computed(load(best)), self.recipe.decode)

    def _diverged(self, last: Fed, lr: float) -> None:
        p = self.progress
        told = diagnose(self.network, last.batch, lr) if self.here.count == 1 else "lower train.lr, or set train.clip=1"
        self.tell(self._ended("diverged"))
        raise ValueError(
            f"{TOO_MANY} updates in a row up to step {p.step} were not finite, and were left out: {told}. "
            f"Checkpoints in {self.out / 'checkpoints'} are as they were"
        )

    def _resume(self) -> list[str]:
        """Take over the newest whole checkpoint; what is to be said of it."""
        if self.here.first:
            sweep(self.out)
        with self.here.first_alone():
            found, damaged = newest_checkpoint(self.out)
        if found is None:
            return [*damaged, "there is no checkpoint to go on from: this run begins anew"]
        if found.model.tokenizer is None or found.model.tokenizer.digest != self.task.tokenizer.digest:
            raise ValueError(f"{found.folder} was trained with another tokenizer: has the text changed since?")
        self.progress = Progress(**found.progress)
        self.optimizer.load(dict(found.model.network.named_parameters()), found.tensors)
        self.snapshots = {
            step: {name: found.tensors[f"kept.{step}.{name}"] for name in self.optimizer.names}
            for step in self.progress.kept
        }
        return [*damaged, f"goes on behind step {self.progress.step:,}, from {found.folder}"]

    def _log(self) -> list[Watcher]:
        self.out.mkdir(parents=True, exist_ok=True)
        (self.out / "recipe.toml").write_text(as_toml(self.recipe), encoding="utf-8")
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
        """Whether sentences share rows: where kernels know how, and the model's dropout allows it."""
        if self.settings.packed is not None:
            return self.settings.packed
        return self.place.device.type == "cuda" and not self.recipe.model.get("attention_dropout")

    def _weights(self) -> dict[str, Tensor]:
        """The float32 weights, whole."""
        return {name: whole(weight).detach() for name, weight in self.optimizer.named_weights().items()}

    def _snapshot(self, weights: dict[str, Tensor]) -> None:
        """Keep these weights for averaging, and no more than are averaged."""
        if self.settings.average > 1:
            weights = {name: x.to("cpu", copy=True) for name, x in weights.items()}
        self.snapshots[self.progress.step] = weights
        for step in sorted(self.snapshots)[: -self.settings.average]:
            del self.snapshots[step]

    def _mean(self) -> dict[str, Tensor]:
        """The mean of the weights that are kept; of one, itself, which is then not kept any longer."""
        held = list(self.snapshots.values())
        if self.settings.average == 1:
            self.snapshots.clear()
        return {
            name: torch.stack([each[name] for each in held]).mean(0) if held[1:] else held[0][name] for name in held[0]
        }

    def _model(self, weights: dict[str, Tensor]) -> Stored:
        """A model of these weights, on its own."""
        with torch.device("meta"):
            network = build(self.network.config)
        fill(network, dict(weights))
        task = self.task
        return Stored(network, task.tokenizer, task.special, task.about)

    def _as_computed(self, model: Stored) -> Stored:
        """The model where and in the type in which it is trained."""
        weight = model.network.embedding.tokens.weight
        if weight.device == self.place.device and weight.dtype == self.place.dtype:
            return model
        network = deepcopy(model.network).to(self.place.device, self.place.dtype)
        return Stored(network, model.tokenizer, model.special, model.about)

    def _scores(self, found: Found) -> dict[str, float | int | str]:
        scores: dict[str, float | int | str] = {"set": "validation", "step": self.progress.step, "loss": found.loss}
        return scores | ({found.measure: found.score} if found.measure and found.score is not None else {})


def check_folder(recipe: Recipe, out: Path, resume: bool) -> None:
    """A ValueError if a run would be overwritten, or gone on with by another recipe."""
    if not resume and (out / "recipe.toml").exists():
        raise ValueError(f"{out} holds a run already: go on with it by --resume, or name another folder by --out")
    if not resume and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out} is there already, and is no run's folder: name another by --out")
    if resume and (out / "recipe.toml").exists():
        check_unchanged(read_recipe(str(out / "recipe.toml")), recipe)
