"""`regard train`: train a model from a recipe."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.model.transformer import Network
    from regard.training.events import Watcher
    from regard.training.recipe import Recipe
    from regard.training_api import TrainingResult


def train(
    recipe: Annotated[
        str,
        typer.Argument(
            help="Path to a recipe (.toml), or the name of a bundled one: petit-fr-en, fr-en … (another name lists all)"
        ),
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", help="Override a setting: section.key=value. Repeatable."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run. Default: runs/NAME.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from the newest checkpoint, if there is one.")
    ] = False,
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Also show the run in a browser, on a page served at 127.0.0.1 until it ends."),
    ] = False,
    module: Annotated[
        Path | None,
        typer.Option(
            "--module",
            "--attention",
            help="Train your own code (.py or .ipynb): a complete make_model or DecoderLM, or a MultiHeadAttention or "
            "MultiHeadSelfAttention inside Regard's network. It is checked first, then runs in this process.",
        ),
    ] = None,
) -> None:
    """Train a translator, a language model (also a masked one), a classifier or a tagger from a recipe.

    The run's folder holds the best model, recipe.toml, metrics.jsonl, samples.txt, checkpoints and, at the end,
    report.md. SIGTERM and Ctrl-C finish the current step and save. On several GPUs: torchrun --nproc-per-node 8 -m
    regard train RECIPE

    With --module there are two runs on the same data with the same seed: one with Regard's network, in the folder
    OUT-reference, then one with your code. Their losses and samples are shown side by side. If the file
    defines an attention, the result is an ordinary model; if it defines a complete model, only its weights are saved.

    With --watch, the page shows loss, scores and samples, and how the attention of each head emerges. For the latter,
    24 snapshots are kept, or as many as train.snapshots says. Show a run again with regard serve OUT.

    Example: regard train petit-fr-en --set train.steps=500 --out runs/first

    Example: regard train petit-fr-en --watch
    """
    from regard.training_api import choose_recipe, run_folder, run_recipe

    chosen = choose_recipe(recipe, out, resume, overrides or [])
    folder = run_folder(chosen, out)
    if module is not None:
        if watch:
            raise RegardError("--watch shows one run, and --module trains two: leave one of them out")
        _train_with_module(chosen, folder, resume, module)
    elif watch:
        from regard.cli.run_page import RunPage, with_snapshots

        with RunPage(folder) as page:
            _finish(run_recipe(with_snapshots(chosen), folder, resume, wrap_display=page.watch))
            page.stay()
    else:
        _finish(run_recipe(chosen, folder, resume))


def _finish(result: "TrainingResult") -> None:
    """Print the path of the report; exit with the signal's code if the run was interrupted."""
    if result.report is None:  # not the first rank
        return
    if result.stop_reason == "interrupted":
        raise typer.Exit(128 + (result.signal or signal.SIGTERM))  # None: another process of this run received it
    typer.echo(f"{result.report}")


def _train_with_module(recipe: "Recipe", folder: Path, resume: bool, path: Path) -> None:
    """Train with Regard's network, then with the student's code, and compare the losses."""
    from regard.course.loss_comparison import before_scoring, read_losses, read_warnings, with_reference_losses
    from regard.course.module_file import load_student_module
    from regard.training.run_folder import check_run_folder
    from regard.training.run_setup import OwnParts
    from regard.training_api import run_recipe

    student = load_student_module(path, recipe)
    recipe = student.recipe
    reference = folder.with_name(f"{folder.name}-reference")
    if not resume:
        check_run_folder(recipe, folder, resume)
    is_compared = False

    def try_out(network: "Network") -> "Network":
        """Try the student's code before the first run, so that nothing is trained or announced if it cannot be."""
        student.try_out(network)
        typer.echo(f"{student.name} of {path} will be trained.")
        typer.echo(f"First a run with Regard's network, for comparison: {reference}")
        return network

    def compare() -> None:
        nonlocal is_compared
        is_compared = True
        _show_side_by_side(folder, reference, not student.is_whole_model)

    def wrap_display(display: "Watcher") -> "Watcher":
        return before_scoring(with_reference_losses(display, read_losses(reference)), compare)

    try:
        _finish(run_recipe(recipe, reference, resume, own=OwnParts(try_out)))
        typer.echo(f"Now the same with {student.name} of {path}: {folder}")
        own = OwnParts(student.change_network)
        _finish(run_recipe(recipe, folder, resume, own=own, wrap_display=wrap_display))
    except typer.Exit:
        typer.echo("To resume both runs, run the same command with --resume")
        raise
    if not is_compared:
        compare()
    for warning in read_warnings(folder):
        typer.secho(f"\n{warning}", bold=True, fg="red")
    if student.is_whole_model:
        typer.echo(
            f"\n{folder} holds the weights of your model, which is not a Regard model: see {folder / 'README.md'}"
        )
    else:
        typer.echo(f"\n{folder} holds an ordinary model with the weights that your attention learned.")


def _show_side_by_side(folder: Path, reference: Path, should_agree: bool) -> None:
    """Print the losses and samples of two runs."""
    from regard.course.loss_comparison import read_losses, show_losses, show_samples
    from regard.plots.console import console

    output = console()
    output.print()
    show_losses(output, read_losses(folder), read_losses(reference), should_agree)
    show_samples(output, folder, reference)


COMMANDS: list[Callable[..., None]] = [train]
