"""`python -m benchmarks serve`: the gain from batching simultaneous requests, and the overhead for a single client.

The server runs in its own process. Clients speak HTTP over loopback, each on a persistent connection. Three cases
alternate: one client, many clients, and direct calls in this process. The server reserves one core for its event loop,
so direct calls are measured with one thread and with all threads; the faster counts.
"""

import asyncio
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.common import Runnable, Timings, measurement_conditions, ratio_table, time_alternating
from regard.decoding.text_model import Model
from regard.errors import RegardError
from regard.interop.load import load
from regard.models import bundled_folder
from regard.petit import pairs

ONE_CLIENT = "HTTP, one client"
SEQUENTIAL_SENTENCES = 32
"""Sentences per timing of one client. Short timings distribute the noise of the machine over all cases."""
BEAM_SIZES = (4, 1)


def measure_all(console: Console, model: str, clients: int, sentences: int, repeats: int) -> list[Table]:
    """Measure the throughput of many clients and the latency of one; print and return both for each beam size."""
    tables = []
    texts = [pair.french for pair in pairs(sentences, split="test")]
    words = sum(len(text.split()) for text in texts) / len(texts)
    direct = load(bundled_folder(model)).quick()
    with running_server(model) as port:
        console.print(
            f"[dim]{measurement_conditions('cpu', repeats)}; {model}, sentences of Petit, {words:.1f} words each[/]"
        )
        for beam in BEAM_SIZES:
            throughput, latency = _measure(direct, port, texts, clients, beam, repeats)
            counts = dict(zip(throughput, (len(texts[:SEQUENTIAL_SENTENCES]), len(texts)), strict=True))
            tables.append(ratio_table(f"throughput, beam {beam}", "sentences/s", throughput, counts))
            tables.append(latency_table(f"latency, beam {beam}", latency, len(texts[:SEQUENTIAL_SENTENCES])))
            console.print(*tables[-2:])
    return tables


def _measure(
    direct: Model, port: int, texts: list[str], clients: int, beam: int, repeats: int
) -> tuple[dict[str, Timings], dict[str, Timings]]:
    """Return the timings of one client and many clients, and those of one client and direct calls."""
    sequential = texts[:SEQUENTIAL_SENTENCES]

    def call(threads: int) -> Runnable:
        def run() -> None:
            torch.set_num_threads(threads)
            for text in sequential:
                direct.translate(text, beam=beam)

        return run

    all_threads = torch.get_num_threads()
    runs: dict[str, Runnable] = {ONE_CLIENT: lambda: asyncio.run(translate_all(port, sequential, 1, beam))}
    runs |= {_direct_call(count): call(count) for count in sorted({1, all_threads})}
    runs[f"HTTP, {clients} clients"] = lambda: asyncio.run(translate_all(port, texts, clients, beam))
    for run in runs.values():
        run()
    timings = time_alternating(runs, "cpu", repeats)
    torch.set_num_threads(all_threads)
    *single, many = timings
    return {name: timings[name] for name in (ONE_CLIENT, many)}, {name: timings[name] for name in single}


def _direct_call(threads: int) -> str:
    return "a direct call with 1 thread" if threads == 1 else f"a direct call with {threads} threads"


def latency_table(title: str, timings: Mapping[str, Timings], count: int) -> Table:
    """Return a table with a row per case: time of one sentence, spread, and ratio of one client to it."""
    table = Table(title, "ms", "spread", "one client ÷ this", box=None, pad_edge=False, header_style="bold")
    for name, timing in timings.items():
        ratio = "" if name == ONE_CLIENT else f"{timings[ONE_CLIENT].median / timing.median:.2f}"
        table.add_row(name, f"{1000 * timing.median / count:.1f}", f"{timing.spread:.2f}", ratio)
    return table


@contextmanager
def running_server(model: str) -> Iterator[int]:
    """Run a server for this model in its own process; yield its port."""
    command = [
        sys.executable,
        "-m",
        "regard",
        "serve",
        f"{model}={bundled_folder(model)}",
        "--port",
        "0",
        "--device",
        "cpu",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            matches = (re.search(r"http://127\.0\.0\.1:(\d+)/", line) for line in process.stdout)
            port = next((int(match[1]) for match in matches if match), None)
            if port is None:
                raise RegardError("the server did not start: see its output above")
            yield port
        finally:
            process.terminate()


async def translate_all(port: int, texts: Sequence[str], clients: int, beam: int) -> list[float]:
    """Translate all texts with this many simultaneous clients; return the seconds of each request."""
    waiting = list(reversed(texts))
    seconds: list[float] = []

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while waiting:
            start = time.perf_counter()
            await _translate(reader, writer, waiting.pop(), beam)
            seconds.append(time.perf_counter() - start)
        writer.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    return seconds


async def _translate(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, text: str, beam: int) -> None:
    body = json.dumps({"text": text, "beam": beam, "n_best": 1}).encode()
    head = "POST /api/translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    answer = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = re.search(r"content-length: (\d+)", answer)
    if " 200 " not in answer.partition("\r\n")[0] or length is None:
        raise RegardError(f"the server refused the request: {answer.partition(chr(13))[0]}")
    await reader.readexactly(int(length[1]))
