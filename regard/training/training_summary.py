"""What a training took, for comparisons of runs and for model cards. No model is loaded."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.evaluation.comparison import TrainingCost
from regard.storage.metadata import TrainingSummary, training_summary_of
from regard.training.events import Ended, Started, Stepped
from regard.training.metrics_log import read_metrics


def training_summary(folder: Path, about: Mapping[str, Any]) -> TrainingCost | None:
    """What a model's training took: from the log in its run's folder or, once exported, from the model itself.

    None for models that were not trained by Regard. `about` is the model's metadata, as in `Model`.
    """
    summary = logged_training(folder) or training_summary_of(about)
    if summary is None:
        return None
    return TrainingCost(summary.place, summary.seconds, summary.tokens, summary.flops, _start(about))


def logged_training(folder: Path) -> TrainingSummary | None:
    """What the training in a run's folder took; None if there is no log.

    For a run that was killed, this is what was logged last. Unreadable lines are skipped.
    """
    events = read_metrics(folder, strict=False) if folder.is_dir() else []
    started = [event for event in events if isinstance(event, Started)]
    measured = [event for event in events if isinstance(event, Stepped | Ended)]
    if not started or not measured:
        return None
    last = measured[-1]
    return TrainingSummary(
        steps=last.step,
        tokens=last.tokens,
        seconds=last.seconds,
        place="; then ".join(dict.fromkeys(event.place for event in started)),
        flops=last.flops if isinstance(last, Ended) else None,
    )


def recipe_without_seed(about: Mapping[str, Any]) -> tuple[dict[str, Any], int] | None:
    """A model's recipe without its seed, and the seed: runs that differ only in the seed are runs of one system.

    None if the model has no recipe with a seed.

    >>> recipe_without_seed({"recipe": {"name": "a", "train": {"steps": 9, "seed": 3}}})
    ({'name': 'a', 'train': {'steps': 9}}, 3)
    """
    recipe = about.get("recipe")
    train = recipe.get("train") if isinstance(recipe, dict) else None
    seed = train.get("seed") if isinstance(train, dict) else None
    if not isinstance(recipe, dict) or not isinstance(train, dict) or not isinstance(seed, int):
        return None
    return recipe | {"train": {key: value for key, value in train.items() if key != "seed"}}, seed


def _start(about: Mapping[str, Any]) -> str | None:
    """The model that was fine-tuned, from the recipe."""
    recipe = about.get("recipe")
    model = recipe.get("model") if isinstance(recipe, dict) else None
    start = model.get("start") if isinstance(model, dict) else None
    return start if isinstance(start, str) else None
