"""`regard.train`: train a recipe, show the progress, and return the trained model."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import nn

from regard.decoding.own_network import copy_module
from regard.decoding.text_model import Model
from regard.errors import RegardError
from regard.interop.load import load
from regard.plots.console import console
from regard.plots.run_report import write_report
from regard.plots.training_display import TrainingDisplay
from regard.storage.model_folder import RECIPE_FILE
from regard.training.events import EndReason, Stepped, Validated, Watcher
from regard.training.final_scores import FinalScores
from regard.training.metrics_log import event_record, read_metrics
from regard.training.objective import OwnLoss
from regard.training.own_modules import GivenNetwork, check_loss_settings, own_network, recipe_for_own_network
from regard.training.parallel import is_first_process
from regard.training.recipe import Recipe
from regard.training.recipe_files import Overrides, bundled_recipes, override_recipe, read_recipe
from regard.training.run_setup import NO_OWN_PARTS, OwnParts
from regard.training.train import train_recipe


@dataclass(frozen=True)
class TrainingResult:
    """The result of a run."""

    folder: Path
    """The run's folder: the best model, the recipe, the log, samples, checkpoints and the report."""
    scores: list[FinalScores]
    """Scores of the best model on the validation text; empty for language models and interrupted runs."""
    stop_reason: EndReason
    """Why the run ended: "steps", "patience" or "interrupted"."""
    best_step: int | None
    """The step of the best model; None before the first validation."""
    signal: int | None
    """The signal that interrupted the run, if any."""
    report: Path | None
    """The report; None on ranks other than the first."""
    module: nn.Module | None = None
    """Your own module, with the weights of the last step; None if Regard's network was trained."""

    @cached_property
    def model(self) -> Model:
        """The best model, loaded when first used. A module of your own is copied, and decodes without a cache."""
        if self.best_step is None:
            raise RegardError(f"{self.folder} has no model yet: resume the run until its first validation")
        return load(self.folder, network=None if self.module is None else copy_module(self.module).float().cpu())

    @cached_property
    def history(self) -> list[dict[str, Any]]:
        """The training and validation metrics as dictionaries, in order, including those of resumed processes.

        "event" is "Stepped" (training: step, epoch, loss, lr, …) or "Validated" (step, loss, score, samples, …).
        """
        events = read_metrics(self.folder, strict=False)
        return [event_record(event) for event in events if isinstance(event, Stepped | Validated)]


def train(
    recipe: str | Path | Recipe,
    out: str | Path | None = None,
    *,
    resume: bool = False,
    overrides: Overrides = (),
    progress: bool | Watcher = True,
    network: GivenNetwork | None = None,
    loss: OwnLoss | None = None,
) -> TrainingResult:
    """Train a model: a translator, a language model, a classifier or a tagger.

    `recipe` is the name of a bundled recipe ("petit-fr-en"), the path of a recipe file (.toml) or a `Recipe`. The run
    is written to the folder `out`, by default runs/NAME. With `resume`, it continues from the newest checkpoint there.
    `overrides` change settings of the recipe: {"train.steps": 500}.

    `progress` shows a panel in terminals and notebooks and prints plain lines elsewhere; False shows nothing, and a
    function is called with every event instead. Ctrl-C finishes the current step and saves; the result then has the
    stop reason "interrupted".

    `network` is trained in place of the recipe's own: a module with `forward(source, target)` for translation or
    `forward(tokens)` for other tasks that returns logits, or a function that builds it from the recipe's `ModelConfig`,
    which has the size of the vocabulary. `regard.decoding.own_network` says what else it can be given. The module is
    checked first, then trained in place; precision "auto" is float32. It cannot be saved as a Regard model: its
    `state_dict` is saved, and a run is resumed with the same module.

    `loss` is trained in place of the cross-entropy: a function of the logits [N, V] of all N positions that count and
    of their targets [N] that returns the mean loss or one loss per target [N]. It works with Regard's networks too.
    Validation still measures the cross-entropy.
    """
    chosen = choose_recipe(recipe, out, resume, overrides)
    change = None
    if network is not None:
        chosen = recipe_for_own_network(chosen)
        change = own_network(network, chosen)
    if loss is not None:
        check_loss_settings(loss, chosen)
    return run_recipe(chosen, run_folder(chosen, out), resume, progress, OwnParts(change, loss))


def run_folder(recipe: Recipe, out: str | Path | None) -> Path:
    """The folder of a run; by default runs/NAME."""
    return Path("runs") / recipe.name if out is None else Path(out)


def choose_recipe(recipe: str | Path | Recipe, out: str | Path | None, resume: bool, overrides: Overrides) -> Recipe:
    """The recipe to train. A bundled recipe that is resumed without overrides keeps those it was started with."""
    if isinstance(recipe, Recipe):
        return override_recipe(recipe, overrides)
    name = str(recipe)
    started = (Path("runs") / name if out is None else Path(out)) / RECIPE_FILE
    if resume and not overrides and name in bundled_recipes() and started.is_file():
        return read_recipe(str(started))
    return read_recipe(name, overrides)


def run_recipe(
    recipe: Recipe,
    folder: Path,
    resume: bool = False,
    progress: bool | Watcher = True,
    own: OwnParts = NO_OWN_PARTS,
    wrap_display: Callable[[Watcher], Watcher] | None = None,
) -> TrainingResult:
    """Train a recipe, show its progress, and write its report.

    `own` are a network and a loss in place of Regard's; `wrap_display` may add events to the display.
    """
    shows = progress is True and is_first_process()
    with TrainingDisplay(console(), str(folder / RECIPE_FILE)) if shows else nullcontext() as display:
        watchers: list[Watcher] = [progress] if callable(progress) else []
        if display is not None:
            watchers.append(display if wrap_display is None else wrap_display(display))
        outcome = train_recipe(recipe, folder, resume, watchers, own)
    return TrainingResult(
        folder=folder,
        scores=outcome.scores,
        stop_reason=outcome.ended.reason,
        best_step=outcome.ended.best_step,
        signal=outcome.signal,
        report=write_report(folder, list(outcome.scores)) if outcome.first else None,
        module=outcome.module,
    )
