"""The figures of docs/reliability.md for the server: a real one in a process of its own, hammered over loopback.

python -m tests.support.hammer                 # all of it: some minutes
python -m tests.support.hammer --seconds 10 --fuzzed 2000
python -m tests.support.hammer --memory 180    # memory alone, under requests of all shapes
"""

import argparse
import asyncio
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from regard.petit import pairs
from tests.support.fuzz import requests as fuzzed
from tests.support.serving import language_model


@contextmanager
def listening() -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """A server of what is bundled and of a language model that says noise; its port and its process."""
    with TemporaryDirectory() as folder:
        language_model().save(Path(folder) / "noise")
        with _serving(["fr-en", "petit-fr-en", f"{folder}/noise"]) as found:
            yield found


@contextmanager
def _serving(models: list[str]) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    command = [sys.executable, "-m", "regard", "serve", *models, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            found = (re.search(r"http://127\.0\.0\.1:(\d+)/", line) for line in process.stdout)
            yield next(int(match[1]) for match in found if match), process
        finally:
            if process.poll() is None:
                process.kill()


async def ask(port: int, method: str, path: str, body: bytes | None, kind: str = "application/json") -> int:
    """The status of one request on a connection of its own; 0 if there was no answer."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return 0
    try:
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        head += f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n" if body is not None else ""
        writer.write(head.encode("utf-8", "replace") + b"\r\n" + (body or b""))
        answer = await asyncio.wait_for(reader.read(), 120)
        return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0
    except (OSError, TimeoutError, ValueError, IndexError):
        return 0
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


def translation(text: str) -> bytes:
    return json.dumps({"q": text, "source": "fr", "target": "en"}).encode()


def megabytes(process: subprocess.Popen[str]) -> float:
    """Resident memory of a process."""
    told = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())
    return int(told[1]) / 1024 if told else float("nan")


def p99(seconds: list[float]) -> float:
    return statistics.quantiles(seconds, n=100)[-1] if len(seconds) > 1 else float("nan")


async def watch(port: int, path: str, body: bytes | None, until: float) -> tuple[list[float], Counter[int]]:
    """The seconds and statuses of one request after the other."""
    seconds, statuses = [], Counter[int]()
    while time.monotonic() < until:
        begun = time.monotonic()
        statuses[await ask(port, "GET" if body is None else "POST", path, body)] += 1
        seconds.append(time.monotonic() - begun)
        await asyncio.sleep(0.02)
    return seconds, statuses


async def flood(port: int, process: subprocess.Popen[str], clients: int, seconds: float) -> str:
    """So many clients, each asking as soon as it has its answer."""
    texts = [pair.french for pair in pairs(500, split="test")]

    async def client(draw: random.Random, until: float, statuses: Counter[int]) -> None:
        while time.monotonic() < until:
            status = await ask(port, "POST", "/translate", translation(draw.choice(texts)))
            statuses[status] += 1
            if status in (429, 503):
                await asyncio.sleep(0.2)

    async def for_a_while(seconds: float) -> tuple[list[float], Counter[int], Counter[int]]:
        until, statuses = time.monotonic() + seconds, Counter[int]()
        watching = asyncio.create_task(watch(port, "/health", None, until))
        await asyncio.gather(*(client(random.Random(n), until, statuses) for n in range(clients)))
        return *(await watching), statuses

    await for_a_while(seconds / 2)  # what grows at first is not counted
    before = megabytes(process)
    taken, answers, statuses = await for_a_while(seconds)
    growth = megabytes(process) / before - 1
    return (
        f"{clients} clients, {seconds:g} s: {dict(sorted(statuses.items()))}; "
        f"/health p99 {1000 * p99(taken):.0f} ms {dict(answers)}; memory {before:.0f} MB, growth {growth:+.1%}"
    )


def varied(draw: random.Random, texts: list[str]) -> tuple[str, bytes]:
    """A request of a shape that hardly comes twice: lengths, beams, lengths of what is written."""
    text = " ".join(draw.choices(texts, k=draw.randint(1, 8)))[: draw.randint(1, 300)].strip() or "a"
    kind = draw.random()
    if kind < 0.7:
        told = {"text": text, "beam": draw.randint(1, 16), "n_best": 1, "model": draw.choice(["fr-en", "petit-fr-en"])}
        return "/api/translate", json.dumps(told).encode()
    if kind < 0.8:
        return "/api/attend", json.dumps({"source": text[:60].strip() or "a", "model": "fr-en"}).encode()
    if kind < 0.9:
        return "/api/next", json.dumps({"text": text * draw.choice([1, 1, 10])}).encode()
    told = {"model": "noise", "prompt": text, "max_tokens": draw.randint(1, 60), "n": draw.randint(1, 4)}
    return "/v1/completions", json.dumps(told).encode()


async def memory(port: int, process: subprocess.Popen[str], clients: int, seconds: float) -> str:
    """Resident memory twelve times while so many clients send requests of all shapes, and 15 s after the last."""
    texts = [pair.french for pair in pairs(500, split="test")]
    begun, statuses = time.monotonic(), Counter[int]()
    found = [megabytes(process)]

    async def client(draw: random.Random) -> None:
        while time.monotonic() < begun + seconds:
            statuses[await ask(port, "POST", *varied(draw, texts))] += 1

    async def look() -> None:
        for n in range(1, 13):
            await asyncio.sleep(max(0.0, begun + n * seconds / 12 - time.monotonic()))
            found.append(megabytes(process))

    await asyncio.gather(look(), *(client(random.Random(n)) for n in range(clients)))
    await asyncio.sleep(15)
    told = " ".join(f"{each:.0f}" for each in found)
    return f"{clients} clients, {seconds:g} s: {dict(statuses)}; MB: {told}; 15 s later {megabytes(process):.0f}"


async def trickle(port: int, sockets: int, seconds: float) -> str:
    """So many connections that send a byte now and then, and come again when they are cut off; and one real client."""
    until, cut = time.monotonic() + seconds, 0

    async def dawdler(draw: random.Random) -> None:
        nonlocal cut
        while time.monotonic() < until:
            with suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                with suppress(OSError):
                    for letter in b"POST /translate HTTP/1.1\r\nX: " + b"y" * 10_000:
                        if time.monotonic() > until or writer.transport.is_closing():
                            break
                        writer.write(bytes([letter]))
                        await writer.drain()
                        await asyncio.sleep(draw.uniform(0.5, 1.5))
                cut += time.monotonic() < until
                writer.close()

    watching = asyncio.create_task(watch(port, "/translate", translation("Le chat dort."), until))
    await asyncio.gather(*(dawdler(random.Random(n)) for n in range(sockets)))
    taken, statuses = await watching
    told = f"a real client's p99 {p99(taken):.2f} s {dict(statuses)}"
    return f"{sockets} trickling sockets, {seconds:g} s, {cut} cut off: {told}"


async def fuzz(port: int, count: int) -> str:
    """Requests that are wrong, 32 at a time."""
    waiting, statuses = fuzzed(random.Random(1), count), Counter[int]()

    async def client() -> None:
        for method, path, body, headers in waiting:
            status = await ask(port, method, path, body, headers.get("content_type", ""))
            statuses[status] += 1
            if status >= 500 and status != 503:
                print("FAULT", status, method, path, body)

    await asyncio.gather(*(client() for _ in range(32)))
    return f"{count:,} fuzzed requests: {dict(sorted(statuses.items()))}"


def schemathesis(port: int, examples: int) -> str:
    """The same from what /openapi.json tells."""
    program = Path(sys.executable).with_name("schemathesis")
    if find_spec("schemathesis") is None or not program.is_file():
        return "schemathesis is not installed"
    command = [str(program), "run", f"http://127.0.0.1:{port}/openapi.json", "--checks", "all", "--no-color"]
    command += ["--max-examples", str(examples), "--phases", "coverage,fuzzing", "--request-timeout", "60"]
    done = subprocess.run([*command, "--continue-on-failure"], capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    told = [line.strip() for line in lines if re.search(r"generated|❌ ST|Network Error:|Server error", line)]
    return f"schemathesis: {'; '.join(told)} (exit {done.returncode})"


async def drain(port: int, process: subprocess.Popen[str]) -> str:
    """SIGTERM while requests are under way: all that were accepted are answered."""
    long = translation("Le petit chat noir dort dans la maison. " * 40)
    asked = [asyncio.create_task(ask(port, "POST", "/translate", long)) for _ in range(8)]
    await asyncio.sleep(0.5)
    begun = time.monotonic()
    os.kill(process.pid, signal.SIGTERM)
    statuses = Counter(await asyncio.gather(*asked))
    status = await asyncio.to_thread(process.wait, 60)
    ended = f"ended after {time.monotonic() - begun:.1f} s, exit {status}"
    return f"SIGTERM with 8 requests under way: {dict(statuses)}, {ended}"


def main() -> None:
    told = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    told.add_argument("--seconds", type=float, default=60.0)
    told.add_argument("--clients", type=int, default=200)
    told.add_argument("--sockets", type=int, default=500)
    told.add_argument("--fuzzed", type=int, default=100_000)
    told.add_argument("--examples", type=int, default=200)
    told.add_argument("--memory", type=float, default=0.0)
    asked = told.parse_args()
    with listening() as (port, process):
        if asked.memory:
            print(asyncio.run(memory(port, process, min(asked.clients, 20), asked.memory)), flush=True)
            return
        print(asyncio.run(flood(port, process, asked.clients, asked.seconds)), flush=True)
        print(asyncio.run(trickle(port, asked.sockets, asked.seconds / 2)), flush=True)
        print(asyncio.run(fuzz(port, asked.fuzzed)), flush=True)
        print(schemathesis(port, asked.examples), flush=True)
        print(asyncio.run(drain(port, process)), flush=True)


if __name__ == "__main__":
    main()
