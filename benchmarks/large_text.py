"""`python -m benchmarks large`: time and memory for a corpus of generated text, up to 50 million pairs and more.

Each stage runs in a process of its own: training the tokenizer, encoding the text, the start of each rank when the text
is cached, and planning and making batches. Memory is the peak of what the process allocates: text that is mapped into
memory is not counted, since the system drops it when memory is short.
"""

import multiprocessing
import re
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

LINES_PER_BLOCK = 500_000
"""Number of different lines; a longer text repeats them."""
WORDS = 20_000
"""Number of different words."""
BATCHES_MADE = 200
"""Number of batches that are made in the last stage."""
SAMPLING_SECONDS = 0.02
"""Interval at which memory is read."""


@dataclass(frozen=True)
class StageCosts:
    """The costs of one stage."""

    seconds: float
    cpu_seconds: float
    megabytes: float
    """Peak of the memory that the process has allocated."""
    detail: str = ""


def measure(console: Console, pairs: int, folder: Path | None, packed: bool) -> list[Table]:
    """Measure all stages; print and return a table. Without a folder, a temporary one is used and removed."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        work = Path(name)
        size = write_text(work, pairs)
        table = Table(f"{pairs:,} pairs, {size / 1e9:.2f} GB", "s", "CPU s", "MB allocated", "", box=None)
        context = multiprocessing.get_context("spawn")
        for title, stage in STAGES.items():
            with context.Pool(1) as process:
                costs = process.apply(stage, (work, packed))
            figures = (f"{costs.seconds:.1f}", f"{costs.cpu_seconds:.1f}", f"{costs.megabytes:,.0f}", costs.detail)
            table.add_row(title, *figures)
            console.print(title, *figures)
        console.print(table)
        return [table]


def write_text(folder: Path, pairs: int) -> int:
    """Write `train.x` and `train.y`, and 100 pairs for validation; return their size in bytes."""
    for side, seed in (("x", 1), ("y", 2)):
        random = np.random.default_rng(seed)
        letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
        vocabulary = np.array(["".join(random.choice(letters, random.integers(2, 8))) for _ in range(WORDS)])
        counts = np.random.default_rng(0).integers(2, 9, min(pairs, LINES_PER_BLOCK))  # the sides have similar lengths
        counts += random.integers(0, 2, len(counts))
        chosen = vocabulary[(WORDS * random.random(counts.sum()) ** 3).astype(int)]  # frequent and rare words
        lines = [" ".join(words) for words in np.split(chosen, np.cumsum(counts)[:-1])]
        with (folder / f"train.{side}").open("w") as file:
            for start in range(0, pairs, len(lines)):
                file.writelines(f"{line}\n" for line in lines[: pairs - start])
        (folder / f"dev.{side}").write_text("".join(f"{line}\n" for line in lines[:100]))
    return sum((folder / f"train.{side}").stat().st_size for side in "xy")


def _recipe(folder: Path) -> Any:
    from regard.training.recipe import DataSection, Recipe, TokenizerSection, TrainSection

    data = DataSection(folder=str(folder), languages=("x", "y"))
    train = TrainSection(batch_tokens=25_000, max_length=128, device="cpu")
    model = {"preset": "tiny", "layers": 1}
    return Recipe(name="large", data=data, tokenizer=TokenizerSection(vocab_size=8_000), model=model, train=train)


def _train_tokenizer(folder: Path, _packed: bool) -> StageCosts:
    from regard.training.recipe import with_file_paths
    from regard.training.training_text import trained_tokenizer

    recipe = _recipe(folder)
    with _measured() as costs:
        trained_tokenizer(with_file_paths(recipe.data), recipe.tokenizer, folder / "cache")
    return costs()


def _start_rank(folder: Path, packed: bool) -> StageCosts:
    """Prepare a run. The first time the text is encoded, and later opened."""
    from regard.training.training_setup import prepare_training

    recipe = _recipe(folder)
    with _measured() as costs:
        setup = prepare_training(recipe, folder / "cache", packed)
    size = sum(file.stat().st_size for file in (folder / "cache" / "prepared").rglob("*"))
    return costs(f"{size / 1e9:.2f} GB prepared, {setup.batches.shards} shard(s)")


def _make_batches(folder: Path, packed: bool) -> StageCosts:
    from regard.training.prefetch import BatchPrefetcher
    from regard.training.training_setup import prepare_training

    setup = prepare_training(_recipe(folder), folder / "cache", packed)
    import torch

    with _measured() as costs:
        start = time.perf_counter()
        with BatchPrefetcher(setup.batches, 0, 0, torch.device("cpu")) as prefetched:
            batches = iter(prefetched)
            next(batches)
            first = time.perf_counter() - start
            examples = sum(len(item.batch.tokens) for item in islice(batches, BATCHES_MADE))
            seconds = time.perf_counter() - start - first
            time.sleep(1.5 * first)  # until the second shard is planned as well
    return costs(f"first batch after {first:.1f} s, then {examples / seconds:,.0f} rows per second")


STAGES: dict[str, Callable[[Path, bool], StageCosts]] = {
    "train the tokenizer": _train_tokenizer,
    "encode the text": _start_rank,
    "start of a rank": _start_rank,
    "plan and make batches": _make_batches,
}


@contextmanager
def _measured() -> Iterator[Callable[..., StageCosts]]:
    """Measure a block; the function that is yielded returns its costs."""
    ended, peak = Event(), [_allocated_megabytes()]

    def watch() -> None:
        while not ended.wait(SAMPLING_SECONDS):
            peak[0] = max(peak[0], _allocated_megabytes())

    thread = Thread(target=watch, daemon=True)
    thread.start()
    start, cpu = time.perf_counter(), _cpu_seconds()
    seconds = cpu_seconds = 0.0
    yield lambda detail="": StageCosts(seconds, cpu_seconds, peak[0], detail)
    seconds, cpu_seconds = time.perf_counter() - start, _cpu_seconds() - cpu
    ended.set()
    thread.join()
    peak[0] = max(peak[0], _allocated_megabytes())


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _allocated_megabytes() -> float:
    """Return the memory that this process has allocated, without files mapped into it; Linux only."""
    kilobytes = re.search(r"RssAnon:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(kilobytes[1]) / 1024 if kilobytes else float("nan")
