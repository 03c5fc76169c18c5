"""The result of `regard verify` as a table."""

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from regard.evaluation.verify import Verification


def show_verification(console: Console, result: Verification) -> None:
    """Print each check with its largest difference, the limits, and a verdict."""
    table = Table(box=None, header_style="dim", pad_edge=False)
    for column in ("", "float32", "bfloat16"):
        table.add_column(column, justify="right" if column else "left")
    table.add_column("what is compared", style="dim")
    for check in result.checks:
        mark = "[dim]–[/]" if check.difference is None else "[green]✓[/]" if check.passed else "[bold red]✗[/]"
        differences = [_format(difference) for difference in (check.difference, check.bfloat16)]
        comment = f"skipped: {check.skipped}" if check.skipped else check.compared
        table.add_row(f"{mark} {check.name}", *differences, escape(comment))
    console.print(table)
    limits = {check.limit: check.name for check in result.checks}
    cases = "1 random case" if result.cases == 1 else f"{result.cases:,} random cases"
    console.print(
        f"\nLargest differences over {cases} (seed {result.seed}). Limit in float32: {max(limits):.0e}, and "
        f"{min(limits):g} for {limits[min(limits)]}. bfloat16 differences are reported but not judged."
    )
    failed = [check for check in result.checks if not check.passed]
    for check in failed:
        console.print(f"[bold red]{check.name} does not hold[/]: the largest difference is in case {check.worst}.")
    if not failed:
        console.print("All checks pass.")


def _format(difference: float | None) -> str:
    if difference is None:
        return ""
    return "0" if difference == 0 else f"{difference:.0e}"
