"""`python -m benchmarks text`: the cost of turning files into batches, compared with the tokenizer library.

It reports three figures for each corpus: padding in batches with a token budget and in packed batches, the time of
preparation divided by that of `encode_batch` on text in memory, and the peak memory of a process that only prepares.
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

from regard.data.corpus import Corpus, CorpusProblems
from regard.data.huggingface_tokenizer import HuggingFaceTokenizer
from regard.data.tokenized_corpus import TokenizedCorpus, tokenize_corpora
from regard.data.tokenizer import Tokenizer
from regard.data.tokenizer_training import train_tokenizer
from regard.petit import pairs

REAL_CORPORA = {
    "Multi30k": (("data/multi30k/train.fr.gz", "data/multi30k/train.en.gz"), 8_000),
    "Europarl": (("data/europarl/train-600k.fr-en.fr.xz", "data/europarl/train-600k.fr-en.en.xz"), 16_000),
}
"""Corpora to look for under REGARD_REAL_DATA, with the vocabulary size for each."""


@dataclass(frozen=True)
class PreparationCosts:
    """Measurements of one corpus."""

    pairs: int
    padding: float
    """Share of positions that are padding."""
    packed_padding: float
    """Share of positions that are padding in packed batches."""
    fill: float
    """Minimum number of batches divided by the actual number."""
    ratio: list[float]
    """Time of preparation divided by that of `encode_batch`, one per repeat."""
    ratio_to_fast: list[float]
    """The same for `encode_batch_fast`."""
    megabytes: float
    """Peak memory of preparation."""
    cached_seconds: float
    """Time to open prepared data."""


def measure_all(console: Console, repeats: int, batch_tokens: int) -> list[Table]:
    """Measure every available corpus; print and return a table with a column for each."""
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
    return [table]


def _figures(costs: PreparationCosts) -> Iterator[tuple[str, str]]:
    """Yield each figure with its name."""
    yield "pairs", f"{costs.pairs:,}"
    yield "padding, share of positions", f"{costs.padding:.1%}"
    yield "padding, packed", f"{costs.packed_padding:.1%}"
    yield "fewest batches ÷ batches", f"{costs.fill:.0%}"
    yield "prepare ÷ encode_batch", _median_and_spread(costs.ratio)
    yield "÷ encode_batch_fast", _median_and_spread(costs.ratio_to_fast)
    yield "peak memory", f"{costs.megabytes:.0f} MB"
    yield "second run", f"{1000 * costs.cached_seconds:.0f} ms"


def measure(corpus: Corpus, vocab_size: int, repeats: int, batch_tokens: int, folder: Path) -> PreparationCosts:
    """Measure one corpus; the timings alternate."""
    sample = islice(corpus.rows(CorpusProblems(skip=True)), 100_000)
    tokenizer = train_tokenizer((text for row in sample for text in row.fields), vocab_size)
    tokenizer.save(folder)
    rows = [row.fields for row in corpus.rows(CorpusProblems(skip=True))]
    ratio, ratio_to_fast, megabytes = [], [], 0.0
    context = multiprocessing.get_context("spawn")
    for repeat in range(repeats):
        bare, fast = (_time_encoding(encode, rows) for encode in _encoders(tokenizer))
        with context.Pool(1) as process:
            seconds, peak = process.apply(_prepare_in_process, (corpus, folder, folder / f"prepared-{repeat}"))
        ratio.append(seconds / bare)
        ratio_to_fast.append(seconds / fast)
        megabytes = max(megabytes, peak)
    start = time.perf_counter()
    data = tokenize_corpora([corpus], tokenizer, folder / "prepared-0", CorpusProblems(skip=True))
    cached_seconds = time.perf_counter() - start
    return PreparationCosts(
        len(data), *_padding(data, tokenizer, batch_tokens), ratio, ratio_to_fast, megabytes, cached_seconds
    )


def _corpora(folder: Path) -> Iterator[tuple[str, Corpus, int]]:
    """Yield Petit and those of the real corpora that are on this machine."""
    petit = list(pairs(50_000))
    for suffix in ("french", "english"):
        (folder / suffix).write_text("".join(f"{getattr(pair, suffix)}\n" for pair in petit))
    yield "Petit", Corpus((str(folder / "french"), str(folder / "english"))), 4_000
    root = Path(os.environ.get("REGARD_REAL_DATA", "../shared"))
    for name, (files, vocab_size) in REAL_CORPORA.items():
        paths = tuple(str(root / file) for file in files)
        if all(Path(path).is_file() for path in paths):
            yield name, Corpus(paths), vocab_size


def _encoders(tokenizer: HuggingFaceTokenizer) -> tuple[Callable[..., object], Callable[..., object]]:
    """Return the library's two functions to encode; the second does not compute the offsets of tokens."""
    return tokenizer.engine.encode_batch, tokenizer.engine.encode_batch_fast


def _median_and_spread(figures: list[float]) -> str:
    return f"{statistics.median(figures):.2f} ({min(figures):.2f}–{max(figures):.2f})"


def _time_encoding(encode: Callable[..., object], rows: list[tuple[str, ...]], chunk: int = 10_000) -> float:
    """Time only the encoding, in chunks, because a complete corpus would not fit into memory."""
    start = time.perf_counter()
    for side in range(2):
        for start in range(0, len(rows), chunk):
            encode([row[side] for row in rows[start : start + chunk]], add_special_tokens=False)
    return time.perf_counter() - start


def _prepare_in_process(corpus: Corpus, tokenizer: Path, cache: Path) -> tuple[float, float]:
    """Prepare a corpus in this process; return the seconds and the peak memory in megabytes."""
    engine = HuggingFaceTokenizer.load(tokenizer)
    start = time.perf_counter()
    tokenize_corpora([corpus], engine, cache, CorpusProblems(skip=True))
    seconds = time.perf_counter() - start
    return seconds, _peak_megabytes()


def _peak_megabytes() -> float:
    """Return the peak memory of this process. Linux passes ru_maxrss on to children, so it is not used."""
    status = Path("/proc/self/status")
    if status.is_file():
        kilobytes = re.search(r"VmHWM:\s+(\d+)", status.read_text())
        return int(kilobytes[1]) / 1024 if kilobytes else float("nan")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform != "darwin" else 1024**2)


def _padding(data: TokenizedCorpus, tokenizer: Tokenizer, batch_tokens: int) -> tuple[float, float, float]:
    """Return the padding of padded and of packed batches, and the minimum number of batches over the actual."""
    from regard.data.batches import (  # imports torch, which the timed process does not need
        packed_translation_batches,
        translation_batches,
    )

    options = {"end": tokenizer.end, "pad": tokenizer.pad, "batch_tokens": batch_tokens}
    shares, counts = [], []
    for batches in (translation_batches(data, **options), packed_translation_batches(data, **options)):
        sizes = [(batch.real, batch.positions) for batch in batches.epoch(0)]
        shares.append(1 - sum(real for real, _ in sizes) / sum(positions for _, positions in sizes))
        counts.append(len(sizes))
    fewest = max(data.lengths(side).sum() + len(data) for side in range(2)) / batch_tokens
    return shares[0], shares[1], float(fewest / counts[0])
