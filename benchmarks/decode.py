"""`python -m benchmarks decode`: decoding in Regard, `transformers` and, on a CPU, CTranslate2.

All engines use the same random weights, exported from Regard, and generate texts of the same length, so they do the
same work. Each runs in a process of its own, with the same number of threads; the processes take turns. Before each
timing an engine decodes the batch once, so that its weights are in the processor's cache as far as they fit.
"""

import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.common import Timings, measurement_conditions, ratio_table, wait_until_idle
from benchmarks.decode_engines import MODELS, DecodingWorkload, can_run, engines_of, random_network
from regard.config import did_you_mean
from regard.errors import RegardError

CPU_WORKLOADS = [
    DecodingWorkload(model, batch, beam, 24) for model in ("base", "small") for batch in (32, 1) for beam in (1, 4)
]
GPU_WORKLOADS = [
    DecodingWorkload("base", 64, 1, 32),
    DecodingWorkload("base", 64, 4, 32),
    DecodingWorkload("base", 256, 4, 32),
    DecodingWorkload("gpt2", 1, 1, 256, inputs=8),
    DecodingWorkload("gpt2", 64, 1, 256, inputs=8),
]


@dataclass
class EngineTimings(Timings):
    """Elapsed and processor time of each run, in seconds."""

    processor: list[float] = field(default_factory=list)


def measure_all(console: Console, device: str, repeats: int, models: list[str], engines: list[str]) -> list[Table]:
    """Measure the engines on the workloads of this device; print and return a table for each workload."""
    workloads = [
        workload for workload in (CPU_WORKLOADS if device == "cpu" else GPU_WORKLOADS) if workload.model in models
    ]
    known = engines_of(device)
    for kind, names, choices in (("model", models, MODELS), ("engine", engines, known)):
        for name in names:
            if name not in choices:
                raise RegardError(f"unknown {kind} {name!r}: {did_you_mean(name, list(choices))}")
    if not workloads:
        raise RegardError(
            f"nothing to measure for {', '.join(models)} on {device}: choose base, small (CPU) or base, gpt2 (GPU)"
        )
    console.print(f"[dim]{measurement_conditions(device, repeats)}[/]")
    tables = []
    for model in dict.fromkeys(workload.model for workload in workloads):
        of_model = [workload for workload in workloads if workload.model == model]
        selected = [name for name in known if name in (engines or known) and can_run(name, of_model[0])]
        tables += measure(console, device, repeats, of_model, selected)
    return tables


def measure(
    console: Console, device: str, repeats: int, workloads: Sequence[DecodingWorkload], engines: Sequence[str]
) -> list[Table]:
    """Time each engine on the workloads of one model; print and return a table for each."""
    tables = []
    titles = {engine: engines_of(device)[engine][0] for engine in engines}
    with ExitStack() as stack:
        processes = {
            engine: stack.enter_context(engine_process(engine, workloads[0].model, device)) for engine in engines
        }
        prepared = {titles[engine]: "{:.1f} ({:.1f})".format(*process.recv()) for engine, process in processes.items()}
        for workload in workloads:
            able = {titles[name]: process for name, process in processes.items() if can_run(name, workload)}
            timings = {title: EngineTimings() for title in able}
            for repeat in range(repeats + 1):
                for title, process in able.items():
                    process.send(workload)
                    elapsed, processor = process.recv()
                    if repeat:  # the first run warms up
                        timings[title].seconds.append(elapsed)
                        timings[title].processor.append(processor)
            is_text = workload.model == "gpt2"
            unit, count = ("tokens/s", workload.batch * workload.tokens) if is_text else ("sentences/s", workload.batch)
            processor_column = {
                title: f"{1e3 * median(timing.processor) / count:.2f}" for title, timing in timings.items()
            }
            columns = {"processor ms": processor_column, "to prepare, s (processor)": prepared}
            title = f"{workload.name}; load {os.getloadavg()[0]:.1f}"
            tables.append(ratio_table(title, unit, timings, dict.fromkeys(timings, count), columns))
            console.print(tables[-1])
    return tables


@contextmanager
def engine_process(engine: str, model: str, device: str) -> Iterator[Connection]:
    """Start a process that prepares an engine, sends the elapsed and processor seconds that this took, and then times
    each workload it is sent."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve_engine, args=(engine, model, device, torch.get_num_threads(), theirs))
    process.start()
    theirs.close()
    try:
        yield ours
    finally:
        ours.close()
        process.join()


def serve_engine(engine: str, model: str, device: str, threads: int, connection: Connection) -> None:
    """Prepare an engine and time workloads, in a process of its own, until the connection is closed."""
    torch.set_num_threads(threads)
    network = random_network(model)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder  # what is compiled is compiled again
        start, before = time.perf_counter(), os.times()
        run = engines_of(device)[engine][1](network, device, Path(folder))
        elapsed, after = time.perf_counter() - start, os.times()
        connection.send((elapsed, sum(after[:4]) - sum(before[:4])))  # with the compiler's, a process of its own
        while True:
            try:
                workload = connection.recv()
            except EOFError:
                return
            run(workload)
            wait_until_idle(device)
            start, processor = time.perf_counter(), time.process_time()
            run(workload)
            if device != "cpu":
                wait_until_idle(device)
            connection.send((time.perf_counter() - start, time.process_time() - processor))
