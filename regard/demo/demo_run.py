"""The demo's run: by which recipe, whether it is begun or done, and its training with the display."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from rich.console import Console

from regard.errors import RegardError
from regard.plots.training_display import Display
from regard.storage.model_folder import RECIPE_FILE
from regard.training.events import Ended, Event, Saved
from regard.training.metrics_log import read_metrics
from regard.training.recipe import Recipe, check_unchanged
from regard.training.recipe_files import read_recipe
from regard.training.run_folder import check_run_folder
from regard.training.train import train_recipe

State = Literal["new", "begun", "done"]


@dataclass(frozen=True)
class Road:
    """A way to translate: a recipe that comes along, made shorter for people who wait."""

    recipe: str
    changes: tuple[str, ...]
    out: Path
    what: str

    def read(self, changes: Sequence[str] = ()) -> Recipe:
        """Its recipe, with further changes."""
        return read_recipe(self.recipe, (*self.changes, *changes))


# Fewer steps than the recipe has, over fewer sentences; on a GPU compiling would take longer than learning does.
_SHORT = (
    *("data.petit=40000", "train.validate_every=100", "train.checkpoint_every=250"),
    *("train.compile=false", "train.packed=false"),
)
ENCODER_DECODER = Road(
    "petit-fr-en",
    ("name=demo", "train.steps=1300", *_SHORT),
    Path("runs/demo"),
    "The paper's encoder–decoder in small",
)
DECODER = Road(
    "petit-fr-en-decoder",
    ("name=demo-decoder", "train.steps=1600", *_SHORT),
    Path("runs/demo-decoder"),
    "A decoder alone, as in language models: it reads the source and a separator, and goes on with the target",
)


def find_run(recipe: Recipe, out: Path) -> tuple[Recipe, State]:
    """The recipe to go by, and how far its run is; a ValueError where the folder holds anything else.

    A run that is there keeps its recipe: it may have been asked for more steps meanwhile.
    """
    if not (out / RECIPE_FILE).is_file():
        check_run_folder(recipe, out, resume=False)
        return recipe, "new"
    there = read_recipe(str(out / RECIPE_FILE))
    if there.name != recipe.name:
        raise RegardError(f"{out} holds another run, {there.name!r}: name another folder by --out")
    try:
        check_unchanged(there, recipe)
    except ValueError as error:
        raise RegardError(f"{out} holds a demo of another kind: {error}") from None
    return there, "done" if _done(out) else "begun"


def _done(out: Path) -> bool:
    events = read_metrics(out, strict=False)
    over = [event for event in events[-1:] if isinstance(event, Ended) and event.reason in ("steps", "patience")]
    return bool(over) and (out / "config.json").is_file()


def learn(recipe: Recipe, out: Path, state: State, console: Console) -> int | None:
    """Train, or go on, with the display; the signal that interrupted it, if one did."""
    with Display(console) as display:
        outcome = train_recipe(recipe, out, state == "begun", [partial(_show, display)])
    return outcome.signal if outcome.ended.reason == "interrupted" else None


def _show(display: Display, event: Event) -> None:
    """Show an event, but for those of which the story tells itself: how it ended, and that nothing is lost."""
    if isinstance(event, Saved | Ended):
        display.so_far.take(event)
    else:
        display(event)
