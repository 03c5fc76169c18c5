"""`regard verify`: compare every way of running a model."""

import json
from collections.abc import Callable
from typing import Annotated, Any

import typer

from regard.cli.model_loading import load_model
from regard.cli.shared_options import MODEL_HELP, Device


def verify(
    model: Annotated[str, typer.Argument(help=MODEL_HELP)],
    cases: Annotated[int, typer.Option(min=1, help="Number of random cases.")] = 20,
    seed: Annotated[int, typer.Option(help="Random seed of the cases.")] = 0,
    compiled: Annotated[
        bool, typer.Option("--compile/--no-compile", help="Also check torch.compile, which takes a while.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    device: Device = "auto",
) -> None:
    """Check on random cases that every way of running a model gives the same result.

    Compares cached with uncached decoding, batches with single inputs, fused with readable attention, and more. Exits
    with 1 if a difference is larger than float32 rounding explains. bfloat16 differences are reported but not judged.

    Example: regard verify runs/fr-en --cases 100
    """
    from rich.console import Console

    from regard.evaluation.result_json import to_json_value
    from regard.evaluation.verify import verify as run
    from regard.plots.console import console
    from regard.plots.verification_table import show_verification

    loaded = load_model(model, device)
    with Console(stderr=True).status(f"0 of {cases} cases") as status:  # shown on a terminal only
        result = run(loaded, cases, seed, compiled, lambda done: status.update(_stage(done, cases, compiled)))
    if as_json:
        checks = [to_json_value(check) | {"passed": check.passed} for check in result.checks]
        report: dict[str, Any] = {"model": model, "passed": result.passed, "cases": cases, "seed": seed}
        typer.echo(json.dumps(report | {"checks": checks}, indent=2, ensure_ascii=False))
    else:
        show_verification(console(), result)
    raise typer.Exit(0 if result.passed else 1)


def _stage(done: int, cases: int, compiled: bool) -> str:
    return f"{done} of {cases} cases" if done < cases or not compiled else "compiling, saving and loading"


COMMANDS: list[Callable[..., None]] = [verify]
