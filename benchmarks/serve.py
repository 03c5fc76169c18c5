"""`python -m benchmarks serve`: the gain from decoding simultaneous requests together, and the cost to a single client.

A real server in a process of its own, and clients that speak HTTP over loopback, each with a connection it keeps. In
turn: one client after the other, so many clients at once, and the same sentences by direct calls in this process. The
server leaves a processor to its event loop; direct calls are made in both ways, and the quicker one counts.
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

from benchmarks.common import Run, Timed, circumstances, in_turns, ratios
from regard.decoding.text_model import Model
from regard.errors import RegardError
from regard.interop.load import load
from regard.models import folder_of
from regard.petit import pairs

ALONE = "HTTP, one client"
FEW = 32
"""sentences of a turn of one by one: short turns, so that a machine's moods meet all"""
BEAMS = (4, 1)


def bench(console: Console, model: str, clients: int, sentences: int, repeats: int) -> None:
    """Measure, and print for each beam: throughput beside one client's, and latency beside a direct call's."""
    texts = [pair.french for pair in pairs(sentences, split="test")]
    words = sum(len(text.split()) for text in texts) / len(texts)
    direct = load(folder_of(model)).quick()
    with listening(model) as port:
        console.print(f"[dim]{circumstances('cpu', repeats)}; {model}, sentences of Petit, {words:.1f} words each[/]")
        for beam in BEAMS:
            throughput, latency = _measured(direct, port, texts, clients, beam, repeats)
            counts = dict(zip(throughput, (len(texts[:FEW]), len(texts)), strict=True))
            console.print(ratios(f"throughput, beam {beam}", "sentences/s", throughput, counts))
            console.print(_latencies(latency, len(texts[:FEW])))


def _measured(
    direct: Model, port: int, texts: list[str], clients: int, beam: int, repeats: int
) -> tuple[dict[str, Timed], dict[str, Timed]]:
    """Seconds of one client and of many; and of one client and of direct calls."""
    few = texts[:FEW]

    def call(threads: int) -> Run:
        def run() -> None:
            torch.set_num_threads(threads)
            for text in few:
                direct.translate(text, beam=beam)

        return run

    most = torch.get_num_threads()
    runs: dict[str, Run] = {ALONE: lambda: asyncio.run(ask_all(port, few, 1, beam))}
    runs |= {_threads(count): call(count) for count in sorted({1, most})}
    runs[f"HTTP, {clients} clients"] = lambda: asyncio.run(ask_all(port, texts, clients, beam))
    for run in runs.values():
        run()
    timed = in_turns(runs, "cpu", repeats)
    torch.set_num_threads(most)
    *together, last = timed
    return {name: timed[name] for name in (ALONE, last)}, {name: timed[name] for name in together}


def _threads(count: int) -> str:
    return f"a direct call with {count} thread{'s' * (count > 1)}"


def _latencies(timed: Mapping[str, Timed], count: int) -> str:
    one, *others = timed
    quickest = min(others, key=lambda name: timed[name].median)
    told = [f"{name} {1000 * each.median / count:.1f} ms (spread {each.spread:.2f})" for name, each in timed.items()]
    ratio = timed[one].median / timed[quickest].median
    return f"latency: {', '.join(told)}: [bold]{ratio:.2f} ×[/] the quicker\n"


@contextmanager
def listening(model: str) -> Iterator[int]:
    """A server of this model in a process of its own; the port it listens on."""
    command = [sys.executable, "-m", "regard", "serve", f"{model}={folder_of(model)}", "--port", "0", "--device", "cpu"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            told = (re.search(r"http://127\.0\.0\.1:(\d+)/", line) for line in process.stdout)
            port = next((int(found[1]) for found in told if found), None)
            if port is None:
                raise RegardError("the server did not start: see what it says above")
            yield port
        finally:
            process.terminate()


async def ask_all(port: int, texts: Sequence[str], clients: int, beam: int) -> list[float]:
    """Have so many clients translate all texts, each taking the next when it has its answer; the seconds of each."""
    waiting = list(reversed(texts))
    seconds: list[float] = []

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while waiting:
            begun = time.perf_counter()
            await _ask(reader, writer, waiting.pop(), beam)
            seconds.append(time.perf_counter() - begun)
        writer.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    return seconds


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, text: str, beam: int) -> None:
    body = json.dumps({"text": text, "beam": beam, "n_best": 1}).encode()
    head = "POST /api/translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    answer = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = re.search(r"content-length: (\d+)", answer)
    if " 200 " not in answer.partition("\r\n")[0] or length is None:
        raise RegardError(f"the server refused: {answer.partition(chr(13))[0]}")
    await reader.readexactly(int(length[1]))
