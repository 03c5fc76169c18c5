"""The training run of the demo: its recipe, its state, and the training with the live display."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from rich.console import Console

from regard.errors import RegardError
from regard.plots.training_display import TrainingDisplay
from regard.storage.model_folder import RECIPE_FILE
from regard.training.events import Ended, Event, Saved
from regard.training.metrics_log import read_metrics
from regard.training.recipe import Recipe, check_unchanged
from regard.training.recipe_files import read_recipe
from regard.training.run_folder import check_run_folder
from regard.training.train import train_recipe

RunState = Literal["new", "begun", "done"]


@dataclass(frozen=True)
class DemoVariant:
    """A kind of translator that the demo trains: a bundled recipe, shortened to take a few minutes."""

    recipe: str
    overrides: tuple[str, ...]
    out: Path
    description: str

    def read(self, overrides: Sequence[str] = ()) -> Recipe:
        """The recipe, with further overrides."""
        return read_recipe(self.recipe, (*self.overrides, *overrides))


# Overrides for fewer steps and sentences than in the recipe. On a GPU, compiling would take longer than the training.
_SHORT_RUN = (
    *("data.petit=40000", "train.validate_every=100", "train.checkpoint_every=250"),
    *("train.compile=false", "train.packed=false"),
)
ENCODER_DECODER = DemoVariant(
    "petit-fr-en",
    ("name=demo", "train.steps=1300", *_SHORT_RUN),
    Path("runs/demo"),
    "The model is a small version of the paper's encoder–decoder",
)
DECODER_ONLY = DemoVariant(
    "petit-fr-en-decoder",
    ("name=demo-decoder", "train.steps=1600", *_SHORT_RUN),
    Path("runs/demo-decoder"),
    "The model is decoder-only, as language models are: it reads the source and a separator, then generates the target",
)


def find_run(recipe: Recipe, out: Path) -> tuple[Recipe, RunState]:
    """The recipe to use and the state of its run; raises a `RegardError` if the folder holds anything else.

    An existing run keeps its own recipe, whose number of steps may have been changed.
    """
    if not (out / RECIPE_FILE).is_file():
        check_run_folder(recipe, out, resume=False)
        return recipe, "new"
    existing = read_recipe(str(out / RECIPE_FILE))
    if existing.name != recipe.name:
        raise RegardError(f"{out} holds another run, {existing.name!r}: choose another folder with --out")
    try:
        check_unchanged(existing, recipe)
    except RegardError as error:
        raise RegardError(f"{out} holds a demo with other settings: {error}") from None
    return existing, "done" if _is_done(out) else "begun"


def _is_done(out: Path) -> bool:
    events = read_metrics(out, strict=False)
    ended = [event for event in events[-1:] if isinstance(event, Ended) and event.reason in ("steps", "patience")]
    return bool(ended) and (out / "config.json").is_file()


def train_with_display(recipe: Recipe, out: Path, state: RunState, console: Console) -> int | None:
    """Train or resume with the live display; returns the signal that interrupted the training, if one did."""
    with TrainingDisplay(console) as display:
        outcome = train_recipe(recipe, out, state == "begun", [partial(_show, display)])
    return outcome.signal if outcome.ended.reason == "interrupted" else None


def _show(display: TrainingDisplay, event: Event) -> None:
    """Show an event, except the final ones, which the story itself reports."""
    if isinstance(event, Saved | Ended):
        display.state.update(event)
    else:
        display(event)
