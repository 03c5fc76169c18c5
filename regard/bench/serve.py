"""`regard bench serve`: what it is worth that requests which arrive together are decoded together, and what it costs
one who comes alone.

A real server in a process of its own, and clients that speak HTTP over loopback, each with a connection it keeps. In
turn: one client after the other, so many clients at once, and the same sentences by direct calls in this process.
"""

import asyncio
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich.console import Console

from regard.api import load
from regard.bench.common import Run, Timed, circumstances, in_turns, ratios
from regard.models import folder_of
from regard.text.petit import pairs

DIRECT, ALONE = "direct calls, one by one", "HTTP, one client"
FEW = 16
"""sentences of a turn where latency is measured: short turns, so that a machine's moods meet both"""


def bench(console: Console, model: str, clients: int, sentences: int, repeats: int) -> None:
    """Measure, and print two tables: throughput beside one client's, and latency beside a direct call's."""
    texts = [pair.french for pair in pairs(sentences, split="test")]
    together = f"HTTP, {clients} clients"
    direct = load(folder_of(model)).quick()
    few = texts[:FEW]
    with listening(model) as port:
        console.print(f"[dim]{circumstances('cpu', repeats)}; {model}, beam 4, sentences of Petit[/]")
        alone: dict[str, Run] = {
            DIRECT: lambda: [direct.translate(text, beam=4) for text in few],
            ALONE: lambda: asyncio.run(ask_all(port, few, 1)),
        }
        latency = _warm_in_turns(alone, 2 * repeats)
        many: dict[str, Run] = {
            ALONE: lambda: asyncio.run(ask_all(port, texts, 1)),
            together: lambda: asyncio.run(ask_all(port, texts, clients)),
        }
        throughput = _warm_in_turns(many, repeats)
    console.print(ratios("throughput", "sentences/s", throughput, dict.fromkeys(throughput, len(texts))))
    console.print(_latencies(latency, len(few)))


def _warm_in_turns(runs: Mapping[str, Run], repeats: int) -> dict[str, Timed]:
    for run in runs.values():
        run()
    return in_turns(runs, "cpu", repeats)


def _latencies(timed: Mapping[str, Timed], count: int) -> str:
    milliseconds = {name: 1000 * each.median / count for name, each in timed.items()}
    return (
        f"\nlatency of one client {milliseconds[ALONE]:.1f} ms, of a direct call {milliseconds[DIRECT]:.1f} ms: "
        f"[bold]{milliseconds[ALONE] / milliseconds[DIRECT]:.2f} ×[/] "
        f"(spread {timed[ALONE].spread:.2f}, {timed[DIRECT].spread:.2f})"
    )


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
                raise ValueError("the server did not start: see what it says above")
            yield port
        finally:
            process.terminate()


async def ask_all(port: int, texts: Sequence[str], clients: int) -> list[float]:
    """Have so many clients translate all texts, each taking the next when it has its answer; the seconds of each."""
    waiting = list(reversed(texts))
    seconds: list[float] = []

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while waiting:
            begun = time.perf_counter()
            await _ask(reader, writer, waiting.pop())
            seconds.append(time.perf_counter() - begun)
        writer.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    return seconds


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, text: str) -> None:
    body = json.dumps({"q": text, "source": "fr", "target": "en"}).encode()
    head = (
        f"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    )
    writer.write(head.encode() + b"\r\n\r\n" + body)
    answer = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = re.search(r"content-length: (\d+)", answer)
    if " 200 " not in answer.partition("\r\n")[0] or length is None:
        raise ValueError(f"the server refused: {answer.partition(chr(13))[0]}")
    await reader.readexactly(int(length[1]))
