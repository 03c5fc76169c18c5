"""`regard train`: a recipe to a model."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from regard.training.events import Watcher
    from regard.training.recipe import Recipe
    from regard.training.run_setup import NetworkChange


def train(
    recipe: Annotated[
        str, typer.Argument(help="A recipe's file (.toml), or one that comes along: petit-fr-en, shakespeare-char …")
    ],
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="section.key=value, where the recipe says otherwise; as often as needed."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder; runs/NAME if not given.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the newest checkpoint, if there is one.")
    ] = False,
    attention: Annotated[
        Path | None,
        typer.Option(
            help="Your own MultiHeadAttention (.py, of the course's assignment multi-head-attention) in every layer. "
            "It is checked first, as by regard check, and then runs in this process."
        ),
    ] = None,
) -> None:
    """Train a model as a recipe says: a translator, a language model or a classifier.

    The run's folder holds the best model, recipe.toml, metrics.jsonl, samples.txt, checkpoints and at last report.md.
    SIGTERM and Ctrl-C finish the step and save. On several GPUs: torchrun --nproc-per-node 8 -m regard train RECIPE

    With --attention two runs are made, of the same seed and first weights: one with Regard's attention, in a folder
    OUT-reference, then one with yours, whose losses are shown side by side. What is saved is an ordinary model.

    Example: regard train petit-fr-en --set train.steps=500 --out runs/first
    """
    from regard.training.recipe_files import bundled_recipes, read_recipe

    own = (out or Path("runs") / recipe) / "recipe.toml"
    as_begun = resume and not changes and recipe in bundled_recipes() and own.is_file()  # with what was --set then
    chosen = read_recipe(str(own) if as_begun else recipe, changes or [])
    folder = out or Path("runs") / chosen.name
    if attention is not None:
        _train_own(chosen, folder, resume, attention)
        return
    _train(chosen, folder, resume)


def _train(
    recipe: "Recipe", folder: Path, resume: bool, fit: "NetworkChange | None" = None, reference: Path | None = None
) -> None:
    """A run, shown as it goes, beside the reference if there is one; and its report."""
    from regard.course.loss_comparison import read_losses, with_reference_losses
    from regard.plots.console import console
    from regard.plots.run_report import write_report
    from regard.plots.training_display import Display
    from regard.training.parallel import is_first_process
    from regard.training.train import train_recipe as run

    with Display(console(), recipe=str(folder / "recipe.toml")) if is_first_process() else nullcontext() as display:
        watchers: list[Watcher] = []
        if display is not None:
            watchers = [with_reference_losses(display, read_losses(reference)) if reference else display]
        outcome = run(recipe, folder, resume, watchers, fit)
    if not outcome.first:
        return
    report = write_report(folder, list(outcome.scores))
    if outcome.ended.reason == "interrupted":
        raise typer.Exit(128 + (outcome.signal or 0))
    typer.echo(f"{report}")


def _train_own(recipe: "Recipe", folder: Path, resume: bool, attention: Path) -> None:
    """The reference's run, then the student's; and both losses."""
    from copy import deepcopy
    from dataclasses import replace

    from regard.course.loss_comparison import compare_losses, read_losses
    from regard.course.own_attention import install_attention, load_checked_attention
    from regard.training.run_folder import check_run_folder

    student = load_checked_attention(attention)
    precision = "float32" if recipe.train.precision == "auto" else recipe.train.precision
    recipe = replace(recipe, train=replace(recipe.train, compile=False, precision=precision))
    reference = folder.with_name(f"{folder.name}-reference")
    if not resume:
        check_run_folder(recipe, folder, resume)
    typer.echo(f"{attention} is right. First a run with Regard's attention, to compare with: {reference}")
    try:  # what cannot be is refused before the first of two runs begins
        _train(recipe, reference, resume, lambda network: install_attention(student, deepcopy(network)))
        typer.echo(f"Now the same with {attention}: {folder}")
        _train(recipe, folder, resume, lambda network: install_attention(student, network), reference)
    except typer.Exit:
        typer.echo("To go on with both runs: the same command again, with --resume")
        raise
    typer.echo(f"\n{compare_losses(read_losses(folder), read_losses(reference))}")
    typer.echo(f"{folder} holds an ordinary model, with the weights that your attention learned.")


COMMANDS: list[Callable[..., None]] = [train]
