"""What the benches of engines share: turns in one process, medians and spreads, ratios in a table."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from rich.table import Table

from regard.errors import RegardError

Run = Callable[[], Any]


@dataclass
class Timed:
    """What an engine took, in seconds, run by run."""

    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """The middle one."""
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """Slowest over quickest."""
        return max(self.seconds) / min(self.seconds)


def in_turns(runs: Mapping[str, Run], device: str, repeats: int) -> dict[str, Timed]:
    """Seconds of each run, one after the other, so often; they must have been warmed up."""
    timed = {name: Timed() for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            _wait(device)
            begun = time.perf_counter()
            run()
            if device != "cpu":
                _wait(device)
            timed[name].seconds.append(time.perf_counter() - begun)
    return timed


def ratios(
    title: str,
    unit: str,
    timed: Mapping[str, Timed],
    counts: Mapping[str, int | float],
    more: Mapping[str, Mapping[str, str]] | None = None,
) -> Table:
    """A row for each engine: how many `counts` a second, the spread, `more` columns, and how the last one compares.

    Below it stands the strongest peer, which is the one to quote: the fastest engine that is not Regard's.
    """
    *_, last = timed
    told = f"{last.removeprefix('Regard, ')} ÷ this"
    columns = more or {}
    table = Table(title, unit, "spread", *columns, told, box=None, pad_edge=False, header_style="bold")
    rates = {name: counts[name] / each.median for name, each in timed.items()}
    for name, each in timed.items():
        ratio = "" if name == last else f"{rates[last] / rates[name]:.2f}"
        others = [column[name] for column in columns.values()]
        table.add_row(name, f"{rates[name]:,.1f}", f"{each.spread:.2f}", *others, ratio)
    if last.startswith("Regard") and (peer := strongest_peer(rates)):  # a bench of the server has no peers
        table.caption = f"strongest peer: {peer}; {last} is {rates[last] / rates[peer]:.2f} × as fast"
        table.caption_justify = "left"
    return table


def strongest_peer(rates: Mapping[str, float]) -> str | None:
    """The name of the fastest engine that is not Regard's, if there is one."""
    peers = [name for name in rates if not name.startswith("Regard")]
    return max(peers, key=lambda name: rates[name], default=None)


def circumstances(device: str, repeats: int) -> str:
    """Where and how it is measured."""
    place = f"CPU, {torch.get_num_threads()} threads" if device == "cpu" else torch.cuda.get_device_name()
    how = f"median of {repeats}, engines in turn; spread is slowest ÷ quickest"
    return f"{place}, torch {torch.__version__}; {how}"


def quiet_transformers() -> Any:
    """The package, without its progress bars and advice."""
    try:
        import transformers
    except ImportError:
        raise RegardError("transformers is to be measured beside: pip install 'regard[bench]'") from None
    logging: Any = transformers.logging
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    return transformers


def _wait(device: str) -> None:
    """Until the device is idle; on a CPU the threads of one engine go on spinning for 0.2 s after its work."""
    if device == "cpu":
        time.sleep(0.5)
    else:
        torch.cuda.synchronize()
