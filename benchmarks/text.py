"""`python -m benchmarks text`: what it costs to get from files to batches, beside the bare tokenizer library.

Three figures for each corpus: padding in batches of a token budget (and in packed ones), the time of preparation over
that of `encode_batch` alone on text already in memory, and the peak memory of a process that does nothing else.
"""

import multiprocessing
import os
import re
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from rich.console import Console
from rich.table import Table

from regard.data.corpus import Corpus, Problems
from regard.data.huggingface_tokenizer import HuggingFaceTokenizer
from regard.data.tokenized_corpus import Prepared, prepare
from regard.data.tokenizer import Tokenizer
from regard.data.tokenizer_training import train_tokenizer
from regard.petit import pairs

KNOWN = {
    "Multi30k": (("data/multi30k/train.fr.gz", "data/multi30k/train.en.gz"), 8_000),
    "Europarl": (("data/europarl/train-600k.fr-en.fr.xz", "data/europarl/train-600k.fr-en.en.xz"), 16_000),
}
"""corpora looked for under REGARD_REAL_DATA, and the vocabulary to learn from each"""


@dataclass(frozen=True)
class Costs:
    """What was measured of one corpus."""

    pairs: int
    padding: float
    flat_padding: float
    fill: float
    ratio: list[float]
    ratio_to_fast: list[float]
    megabytes: float
    again: float


def bench(console: Console, repeats: int, batch_tokens: int) -> None:
    """Measure every corpus there is, and print a column for each."""
    table = Table(f"batches of {batch_tokens:,} tokens", box=None, pad_edge=False, header_style="bold")
    figures = []
    with tempfile.TemporaryDirectory() as folder:
        for name, corpus, vocab_size in _corpora(Path(folder)):
            console.print(f"[dim]measuring {name} …[/]")
            figures.append(list(_figures(measure(corpus, vocab_size, repeats, batch_tokens, Path(folder) / name))))
            table.add_column(name, justify="right")
    for row in zip(*figures, strict=True):
        table.add_row(row[0][0], *(figure for _, figure in row))
    console.print(table)


def _figures(costs: Costs) -> Iterator[tuple[str, str]]:
    """The name of each figure, and the figure."""
    yield "pairs", f"{costs.pairs:,}"
    yield "padding, of all places", f"{costs.padding:.1%}"
    yield "padding, packed flat", f"{costs.flat_padding:.1%}"
    yield "fewest batches ÷ batches", f"{costs.fill:.0%}"
    yield "prepare ÷ encode_batch", _median_and_spread(costs.ratio)
    yield "÷ encode_batch_fast", _median_and_spread(costs.ratio_to_fast)
    yield "peak memory", f"{costs.megabytes:.0f} MB"
    yield "second run", f"{1000 * costs.again:.0f} ms"


def measure(corpus: Corpus, vocab_size: int, repeats: int, batch_tokens: int, folder: Path) -> Costs:
    """All figures for one corpus, the two timings in turn."""
    sample = islice(corpus.rows(Problems(skip=True)), 100_000)
    tokenizer = train_tokenizer((text for row in sample for text in row.fields), vocab_size)
    tokenizer.save(folder)
    rows = [row.fields for row in corpus.rows(Problems(skip=True))]
    ratio, ratio_to_fast, megabytes = [], [], 0.0
    context = multiprocessing.get_context("spawn")
    for turn in range(repeats):
        bare, fast = (_time_of_bare_encoding(encode, rows) for encode in _encoders(tokenizer))
        with context.Pool(1) as alone:
            seconds, peak = alone.apply(_prepare_alone, (corpus, folder, folder / f"prepared-{turn}"))
        ratio.append(seconds / bare)
        ratio_to_fast.append(seconds / fast)
        megabytes = max(megabytes, peak)
    began = time.perf_counter()
    data = prepare([corpus], tokenizer, folder / "prepared-0", Problems(skip=True))
    again = time.perf_counter() - began
    return Costs(len(data), *_padding(data, tokenizer, batch_tokens), ratio, ratio_to_fast, megabytes, again)


def _corpora(folder: Path) -> Iterator[tuple[str, Corpus, int]]:
    """Petit, and what of the known corpora is on this machine."""
    petit = list(pairs(50_000))
    for suffix in ("french", "english"):
        (folder / suffix).write_text("".join(f"{getattr(pair, suffix)}\n" for pair in petit))
    yield "Petit", Corpus((str(folder / "french"), str(folder / "english"))), 4_000
    root = Path(os.environ.get("REGARD_REAL_DATA", "../shared"))
    for name, (files, vocab_size) in KNOWN.items():
        paths = tuple(str(root / file) for file in files)
        if all(Path(path).is_file() for path in paths):
            yield name, Corpus(paths), vocab_size


def _encoders(tokenizer: HuggingFaceTokenizer) -> tuple[Callable[..., object], Callable[..., object]]:
    """The library's two ways to encode; the second leaves out where in the text each token stands."""
    return tokenizer.engine.encode_batch, tokenizer.engine.encode_batch_fast


def _median_and_spread(figures: list[float]) -> str:
    return f"{statistics.median(figures):.2f} ({min(figures):.2f}–{max(figures):.2f})"


def _time_of_bare_encoding(encode: Callable[..., object], rows: list[tuple[str, ...]], chunk: int = 10_000) -> float:
    """Encoding and nothing else, in chunks: whole corpora at once would not fit into memory."""
    began = time.perf_counter()
    for side in range(2):
        for start in range(0, len(rows), chunk):
            encode([row[side] for row in rows[start : start + chunk]], add_special_tokens=False)
    return time.perf_counter() - began


def _prepare_alone(corpus: Corpus, tokenizer: Path, cache: Path) -> tuple[float, float]:
    """In a process of its own: seconds, and the peak of its memory in megabytes."""
    engine = HuggingFaceTokenizer.load(tokenizer)
    began = time.perf_counter()
    prepare([corpus], engine, cache, Problems(skip=True))
    seconds = time.perf_counter() - began
    return seconds, _peak_megabytes()


def _peak_megabytes() -> float:
    """The most memory this process has held. Not ru_maxrss where there is another: a child inherits its parent's."""
    status = Path("/proc/self/status")
    if status.is_file():
        kilobytes = re.search(r"VmHWM:\s+(\d+)", status.read_text())
        return int(kilobytes[1]) / 1024 if kilobytes else float("nan")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform != "darwin" else 1024**2)


def _padding(data: Prepared, tokenizer: Tokenizer, batch_tokens: int) -> tuple[float, float, float]:
    """The part of all places that holds no token, in padded batches and in flat packed ones; and how full batches are,
    as the fewest that the tokens could make over those there are."""
    from regard.data.batches import packed_translation, translation  # torch, which the timed process does without

    options = {"end": tokenizer.end, "pad": tokenizer.pad, "batch_tokens": batch_tokens}
    shares, counts = [], []
    for batches in (translation(data, **options), packed_translation(data, **options)):
        sizes = [(batch.real, batch.positions) for batch in batches.epoch(0)]
        shares.append(1 - sum(real for real, _ in sizes) / sum(positions for _, positions in sizes))
        counts.append(len(sizes))
    fewest = max(data.lengths(side).sum() + len(data) for side in range(2)) / batch_tokens
    return shares[0], shares[1], float(fewest / counts[0])
