"""Measures the server's figures in docs/reliability.md: a real server in a subprocess under heavy load over loopback.

python -m tests.support.hammer                 # everything: several minutes
python -m tests.support.hammer --seconds 10 --fuzzed 2000
python -m tests.support.hammer --memory 180    # only memory, under requests of many shapes
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
    """A server with the bundled models and an untrained language model: its port and process."""
    with TemporaryDirectory() as folder:
        language_model().save(Path(folder) / "noise")
        with _serving(["fr-en", "petit-fr-en", f"{folder}/noise"]) as server:
            yield server


@contextmanager
def _serving(models: list[str]) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    command = [sys.executable, "-m", "regard", "serve", *models, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            urls = (re.search(r"http://127\.0\.0\.1:(\d+)/", line) for line in process.stdout)
            yield next(int(match[1]) for match in urls if match), process
        finally:
            if process.poll() is None:
                process.kill()


async def ask(port: int, method: str, path: str, body: bytes | None, kind: str = "application/json") -> int:
    """Send one request on a new connection: its status, or 0 without a response."""
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
    match = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())
    return int(match[1]) / 1024 if match else float("nan")


def p99(seconds: list[float]) -> float:
    return statistics.quantiles(seconds, n=100)[-1] if len(seconds) > 1 else float("nan")


async def watch(port: int, path: str, body: bytes | None, until: float) -> tuple[list[float], Counter[int]]:
    """Send a request repeatedly: the durations and statuses."""
    seconds, statuses = [], Counter[int]()
    while time.monotonic() < until:
        begun = time.monotonic()
        statuses[await ask(port, "GET" if body is None else "POST", path, body)] += 1
        seconds.append(time.monotonic() - begun)
        await asyncio.sleep(0.02)
    return seconds, statuses


async def flood(port: int, process: subprocess.Popen[str], clients: int, seconds: float) -> str:
    """Many concurrent clients that send a request as soon as they have a response."""
    texts = [pair.french for pair in pairs(500, split="test")]

    async def client(draw: random.Random, until: float, statuses: Counter[int]) -> None:
        while time.monotonic() < until:
            status = await ask(port, "POST", "/translate", translation(draw.choice(texts)))
            statuses[status] += 1
            if status in (429, 503):
                await asyncio.sleep(0.2)

    async def run_clients(seconds: float) -> tuple[list[float], Counter[int], Counter[int]]:
        until, statuses = time.monotonic() + seconds, Counter[int]()
        watching = asyncio.create_task(watch(port, "/health", None, until))
        await asyncio.gather(*(client(random.Random(n), until, statuses) for n in range(clients)))
        return *(await watching), statuses

    await run_clients(seconds / 2)  # warm-up, not measured
    before = megabytes(process)
    taken, answers, statuses = await run_clients(seconds)
    growth = megabytes(process) / before - 1
    return (
        f"{clients} clients, {seconds:g} s: {dict(sorted(statuses.items()))}; "
        f"/health p99 {1000 * p99(taken):.0f} ms {dict(answers)}; memory {before:.0f} MB, growth {growth:+.1%}"
    )


def varied(draw: random.Random, texts: list[str]) -> tuple[str, bytes]:
    """A request with random lengths and beam width."""
    text = " ".join(draw.choices(texts, k=draw.randint(1, 8)))[: draw.randint(1, 300)].strip() or "a"
    kind = draw.random()
    if kind < 0.7:
        body = {"text": text, "beam": draw.randint(1, 16), "n_best": 1, "model": draw.choice(["fr-en", "petit-fr-en"])}
        return "/api/translate", json.dumps(body).encode()
    if kind < 0.8:
        return "/api/attend", json.dumps({"source": text[:60].strip() or "a", "model": "fr-en"}).encode()
    if kind < 0.9:
        return "/api/next", json.dumps({"text": text * draw.choice([1, 1, 10])}).encode()
    body = {"model": "noise", "prompt": text, "max_tokens": draw.randint(1, 60), "n": draw.randint(1, 4)}
    return "/v1/completions", json.dumps(body).encode()


async def memory(port: int, process: subprocess.Popen[str], clients: int, seconds: float) -> str:
    """Resident memory at twelve times while clients send requests of many shapes, and 15 s after the last one."""
    texts = [pair.french for pair in pairs(500, split="test")]
    begun, statuses = time.monotonic(), Counter[int]()
    samples = [megabytes(process)]

    async def client(draw: random.Random) -> None:
        while time.monotonic() < begun + seconds:
            statuses[await ask(port, "POST", *varied(draw, texts))] += 1

    async def sample() -> None:
        for n in range(1, 13):
            await asyncio.sleep(max(0.0, begun + n * seconds / 12 - time.monotonic()))
            samples.append(megabytes(process))

    await asyncio.gather(sample(), *(client(random.Random(n)) for n in range(clients)))
    await asyncio.sleep(15)
    timeline = " ".join(f"{size:.0f}" for size in samples)
    return f"{clients} clients, {seconds:g} s: {dict(statuses)}; MB: {timeline}; 15 s later {megabytes(process):.0f}"


async def trickle(port: int, sockets: int, seconds: float) -> str:
    """Connections that send a byte now and then and reconnect when they are closed, next to one real client."""
    until, cut = time.monotonic() + seconds, 0

    async def slow_client(draw: random.Random) -> None:
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
    await asyncio.gather(*(slow_client(random.Random(n)) for n in range(sockets)))
    taken, statuses = await watching
    real_client = f"a real client's p99 {p99(taken):.2f} s {dict(statuses)}"
    return f"{sockets} slow connections, {seconds:g} s, {cut} closed: {real_client}"


async def fuzz(port: int, count: int) -> str:
    """Invalid requests, 32 at a time."""
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
    """Requests generated by schemathesis from /openapi.json."""
    program = Path(sys.executable).with_name("schemathesis")
    if find_spec("schemathesis") is None or not program.is_file():
        return "schemathesis is not installed"
    command = [str(program), "run", f"http://127.0.0.1:{port}/openapi.json", "--checks", "all", "--no-color"]
    command += ["--max-examples", str(examples), "--phases", "coverage,fuzzing", "--request-timeout", "60"]
    done = subprocess.run([*command, "--continue-on-failure"], capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    summary = [line.strip() for line in lines if re.search(r"generated|❌ ST|Network Error:|Server error", line)]
    return f"schemathesis: {'; '.join(summary)} (exit {done.returncode})"


async def drain(port: int, process: subprocess.Popen[str]) -> str:
    """SIGTERM during requests: all accepted requests must get a response."""
    long = translation("Le petit chat noir dort dans la maison. " * 40)
    requests = [asyncio.create_task(ask(port, "POST", "/translate", long)) for _ in range(8)]
    await asyncio.sleep(0.5)
    begun = time.monotonic()
    os.kill(process.pid, signal.SIGTERM)
    statuses = Counter(await asyncio.gather(*requests))
    status = await asyncio.to_thread(process.wait, 60)
    ended = f"ended after {time.monotonic() - begun:.1f} s, exit {status}"
    return f"SIGTERM with 8 requests under way: {dict(statuses)}, {ended}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--sockets", type=int, default=500)
    parser.add_argument("--fuzzed", type=int, default=100_000)
    parser.add_argument("--examples", type=int, default=200)
    parser.add_argument("--memory", type=float, default=0.0)
    options = parser.parse_args()
    with listening() as (port, process):
        if options.memory:
            print(asyncio.run(memory(port, process, min(options.clients, 20), options.memory)), flush=True)
            return
        print(asyncio.run(flood(port, process, options.clients, options.seconds)), flush=True)
        print(asyncio.run(trickle(port, options.sockets, options.seconds / 2)), flush=True)
        print(asyncio.run(fuzz(port, options.fuzzed)), flush=True)
        print(schemathesis(port, options.examples), flush=True)
        print(asyncio.run(drain(port, process)), flush=True)


if __name__ == "__main__":
    main()
