"""`regard train`: a recipe to a model."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer


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
) -> None:
    """Train a model as a recipe says: a translator, a language model or a classifier.

    The run's folder holds the best model, recipe.toml, metrics.jsonl, samples.txt, checkpoints and at last report.md.
    SIGTERM and Ctrl-C finish the step and save. On several GPUs: torchrun --nproc-per-node 8 -m regard train RECIPE

    Example: regard train petit-fr-en --set train.steps=500 --out runs/first
    """
    from regard.train.recipes import read_recipe

    chosen = read_recipe(recipe, changes or [])
    folder = out or Path("runs") / chosen.name
    from regard.train.loop import train as run
    from regard.train.parallel import speaks
    from regard.view.console import console
    from regard.view.report import write_report
    from regard.view.training import Display

    with Display(console(), recipe=str(folder / "recipe.toml")) if speaks() else nullcontext() as display:
        outcome = run(chosen, folder, resume, [display] if display else [])
    if not outcome.first:
        return
    report = write_report(folder, list(outcome.scores))
    if outcome.ended.reason == "interrupted":
        raise typer.Exit(128 + (outcome.signal or 0))
    typer.echo(f"{report}")


COMMANDS: list[Callable[..., None]] = [train]
