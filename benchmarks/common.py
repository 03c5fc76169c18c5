"""Shared by the benchmarks: alternating timings, medians and spreads, tables of ratios."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from rich.table import Table

from regard.errors import RegardError

Runnable = Callable[[], Any]


@dataclass
class Timings:
    """Timings of an engine in seconds, one per run."""

    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """Return the median time."""
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """Return the slowest time divided by the fastest."""
        return max(self.seconds) / min(self.seconds)


def time_alternating(runs: Mapping[str, Runnable], device: str, repeats: int) -> dict[str, Timings]:
    """Time the runs one after the other, `repeats` times. They must be warmed up."""
    timings = {name: Timings() for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            wait_until_idle(device)
            start = time.perf_counter()
            run()
            if device != "cpu":
                wait_until_idle(device)
            timings[name].seconds.append(time.perf_counter() - start)
    return timings


def ratio_table(
    title: str,
    unit: str,
    timings: Mapping[str, Timings],
    counts: Mapping[str, int | float],
    extra_columns: Mapping[str, Mapping[str, str]] | None = None,
) -> Table:
    """Return a table with a row per engine: `counts` per second, spread, extra columns, ratio of the last engine to it.

    The caption names the strongest peer, the one to quote: the fastest engine other than Regard.
    """
    *_, last = timings
    ratio_title = f"{last.removeprefix('Regard, ')} ÷ this"
    columns = extra_columns or {}
    table = Table(title, unit, "spread", *columns, ratio_title, box=None, pad_edge=False, header_style="bold")
    rates = {name: counts[name] / timing.median for name, timing in timings.items()}
    for name, timing in timings.items():
        ratio = "" if name == last else f"{rates[last] / rates[name]:.2f}"
        others = [column[name] for column in columns.values()]
        table.add_row(name, f"{rates[name]:,.1f}", f"{timing.spread:.2f}", *others, ratio)
    if last.startswith("Regard") and (peer := strongest_peer(rates)):  # the benchmark of the server has no peers
        table.caption = f"strongest peer: {peer}; {last} is {rates[last] / rates[peer]:.2f} × as fast"
        table.caption_justify = "left"
    return table


def strongest_peer(rates: Mapping[str, float]) -> str | None:
    """Return the name of the fastest engine other than Regard, if there is one."""
    peers = [name for name in rates if not name.startswith("Regard")]
    return max(peers, key=lambda name: rates[name], default=None)


def measurement_conditions(device: str, repeats: int) -> str:
    """Describe the hardware, the version of torch and the method."""
    hardware = f"CPU, {torch.get_num_threads()} threads" if device == "cpu" else torch.cuda.get_device_name()
    method = f"median of {repeats}, engines alternating; spread is slowest ÷ fastest"
    return f"{hardware}, torch {torch.__version__}; {method}"


def quiet_transformers() -> Any:
    """Import transformers and silence its progress bars and advice."""
    try:
        import transformers
    except ImportError:
        raise RegardError("this benchmark requires transformers: pip install 'regard[bench]'") from None
    logging: Any = transformers.logging
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    return transformers


def wait_until_idle(device: str) -> None:
    """Wait until the device is idle. On a CPU, the threads of an engine keep spinning for 0.2 s after its work."""
    if device == "cpu":
        time.sleep(0.5)
    else:
        torch.cuda.synchronize()
