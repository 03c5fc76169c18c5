"""`regard train`: train a model from a recipe."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from regard.model.transformer import Network
    from regard.training.recipe import Recipe
    from regard.training_api import TrainingResult


def train(
    recipe: Annotated[
        str, typer.Argument(help="Path to a recipe (.toml), or the name of a bundled one: petit-fr-en, fr-en …")
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", help="Override a setting: section.key=value. Repeatable."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run. Default: runs/NAME.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from the newest checkpoint, if there is one.")
    ] = False,
    attention: Annotated[
        Path | None,
        typer.Option(
            help="Train with your own MultiHeadAttention (a .py file, as in the course's assignment "
            "multi-head-attention) in every layer. It is checked first, as by regard check, then runs in this process."
        ),
    ] = None,
) -> None:
    """Train a translator, a language model or a classifier from a recipe.

    The run's folder holds the best model, recipe.toml, metrics.jsonl, samples.txt, checkpoints and, at the end,
    report.md. SIGTERM and Ctrl-C finish the current step and save. On several GPUs: torchrun --nproc-per-node 8 -m
    regard train RECIPE

    With --attention there are two runs with the same seed and initial weights: one with Regard's attention, in the
    folder OUT-reference, then one with yours. Their losses are shown side by side. The saved model is an ordinary one.

    Example: regard train petit-fr-en --set train.steps=500 --out runs/first
    """
    from regard.training_api import choose_recipe, run_folder, run_recipe

    chosen = choose_recipe(recipe, out, resume, overrides or [])
    folder = run_folder(chosen, out)
    if attention is not None:
        _train_with_own_attention(chosen, folder, resume, attention)
    else:
        _finish(run_recipe(chosen, folder, resume))


def _finish(result: "TrainingResult") -> None:
    """Print the path of the report; exit with the signal's code if the run was interrupted."""
    if result.report is None:  # not the first rank
        return
    if result.stop_reason == "interrupted":
        raise typer.Exit(128 + (result.signal or signal.SIGTERM))  # None: another process of this run received it
    typer.echo(f"{result.report}")


def _train_with_own_attention(recipe: "Recipe", folder: Path, resume: bool, attention: Path) -> None:
    """Train with Regard's attention, then with the student's, and compare the losses."""
    from copy import deepcopy
    from dataclasses import replace

    from regard.course.loss_comparison import compare_losses, read_losses, with_reference_losses
    from regard.course.own_attention import install_attention, load_checked_attention
    from regard.training.run_folder import check_run_folder
    from regard.training.run_setup import OwnParts
    from regard.training_api import run_recipe

    student = load_checked_attention(attention)
    precision = "float32" if recipe.train.precision == "auto" else recipe.train.precision
    recipe = replace(recipe, train=replace(recipe.train, compile=False, precision=precision))
    reference = folder.with_name(f"{folder.name}-reference")
    if not resume:
        check_run_folder(recipe, folder, resume)
    typer.echo(f"{attention} is correct. First a run with Regard's attention, for comparison: {reference}")

    def try_out(network: "Network") -> "Network":
        """Install the student's attention in a copy, so that an unsuitable one is refused before the first run."""
        install_attention(student, deepcopy(network))
        return network

    try:
        _finish(
            run_recipe(
                recipe,
                reference,
                resume,
                own=OwnParts(try_out),
            )
        )
        typer.echo(f"Now the same with {attention}: {folder}")
        _finish(
            run_recipe(
                recipe,
                folder,
                resume,
                own=OwnParts(lambda network: install_attention(student, network)),
                wrap_display=lambda display: with_reference_losses(display, read_losses(reference)),
            )
        )
    except typer.Exit:
        typer.echo("To resume both runs, run the same command with --resume")
        raise
    typer.echo(f"\n{compare_losses(read_losses(folder), read_losses(reference))}")
    typer.echo(f"{folder} holds an ordinary model with the weights that your attention learned.")


COMMANDS: list[Callable[..., None]] = [train]
