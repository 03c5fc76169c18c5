"""`python -m benchmarks start`: how long `regard translate` takes from the shell, next to importing torch."""

import os
import statistics
import subprocess
import sys
import time

from rich.console import Console
from rich.table import Table

IMPORT_TORCH = [sys.executable, "-c", "import torch"]
TRANSLATE = [sys.executable, "-m", "regard", "translate", "Bonjour."]


def measure_all(console: Console, repeats: int) -> list[Table]:
    """Run both commands in turns, each in a new process; print and return elapsed and processor time."""
    for command in (IMPORT_TORCH, TRANSLATE):
        run(command)  # fills the file cache
    pairs = [(run(IMPORT_TORCH), run(TRANSLATE)) for _ in range(repeats)]
    table = Table("seconds", "import torch", 'translate "Bonjour."', "÷", box=None, pad_edge=False, header_style="bold")
    for row, name in enumerate(("elapsed", "processor")):
        torch, regard = (statistics.median(pair[column][row] for pair in pairs) for column in (0, 1))
        table.add_row(name, f"{torch:.2f}", f"{regard:.2f}", f"{regard / torch:.2f}")
    console.print(f"[dim]medians of {repeats}, commands in turns; load average {os.getloadavg()[0]:.1f}[/]")
    console.print(table)
    return [table]


def run(command: list[str]) -> tuple[float, float]:
    """Elapsed and processor time of a command, in seconds."""
    before, start = os.times(), time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    elapsed, after = time.perf_counter() - start, os.times()
    processor = after.children_user + after.children_system - before.children_user - before.children_system
    return elapsed, processor
