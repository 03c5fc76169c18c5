"""Robustness over real sockets: hosts, origins, tokens, slow and many clients, invalid requests, shutdown."""

import asyncio
import os
import random
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.decoding.options import Decoding
from regard.errors import ModelError, RegardError
from regard.server import limits
from regard.server.connections import TimeoutProtocol
from regard.server.engine import Engine
from regard.server.guards import access_rules
from regard.server.http_errors import CONTENT_SECURITY_POLICY, HttpError
from regard.server.jobs import TextJob
from regard.server.model_registry import ModelRegistry, build_registry, parse_model_arguments
from regard.server.runs_api import RunRegistry
from tests.support.fuzz import requests as fuzzed
from tests.support.run_folders import events, write_run
from tests.support.serving import Running, encoders, language_model, running

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    models = {"petit-fr-en": regard.load("petit-fr-en"), "noise": language_model(), **encoders()}
    folder = tmp_path_factory.mktemp("runs") / "first"
    write_run(folder, events(), snapshots=[40])
    with running(build_registry(models, "float32"), runs=RunRegistry({"first": folder})) as found:
        yield found


def test_unknown_hosts_are_rejected(server: Running) -> None:
    for host in ("evil.example", "127.0.0.1.evil.example", "", "[::1", "10.0.0.1", "localhost@evil.example"):
        assert server.request("GET", "/health", host=host)[0] in (400, 403)
    for host in ("localhost", f"127.0.0.1:{server.port}", "LOCALHOST:80", "[::1]:7878"):
        assert server.request("GET", "/health", host=host)[0] == 200
    twice = b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
    assert server.raw(twice).split()[1] in (b"400", b"403")


def test_other_origins_are_rejected(server: Running) -> None:
    own = f"http://127.0.0.1:{server.port}"
    assert server.request("POST", "/api/translate", {"text": "a"}, origin=own)[0] == 200
    for origin in (
        "https://evil.example",
        "null",
        f"http://127.0.0.1:{server.port}.evil.example",
        "http://127.0.0.1:1",
    ):
        status, _, headers = server.request("POST", "/api/translate", {"text": "a"}, origin=origin)
        assert status == 403
        assert "access-control-allow-origin" not in headers


def test_every_response_has_security_headers(server: Running) -> None:
    for path in ("/", "/health", "/nothing", "/page/attention_map.js", "/openapi.json"):
        headers = server.request("GET", path)[2]
        assert headers["content-security-policy"] == CONTENT_SECURITY_POLICY
        assert headers["x-content-type-options"] == "nosniff"
        assert "server" not in headers
    assert "unsafe" not in CONTENT_SECURITY_POLICY


def test_tokens_and_allowed_origins() -> None:
    guards = access_rules("0.0.0.0", ["box.example"], ["https://friend.example"], "sesame")
    with running(build_registry({"noise": language_model()}, "float32"), guards) as server:
        assert server.request("GET", "/health")[0] == 200
        assert server.request("GET", "/health", host="box.example")[0] == 200
        assert server.request("GET", "/health", host="192.168.1.2:7878")[0] == 200
        assert server.request("GET", "/health", host="evil.example")[0] == 403
        for header in ("", "Bearer wrong", "Bearer", "Basic sesame", "Bearer sesame2", "Bearer sésame"):
            assert server.request("GET", "/api/models", authorization=header)[0] == 401
        assert server.request("GET", "/v1/models", authorization="Bearer sesame")[0] == 200
        friend = {"origin": "https://friend.example", "authorization": "Bearer sesame"}
        status, _, headers = server.request("GET", "/api/models", **friend)
        assert (status, headers["access-control-allow-origin"]) == (200, "https://friend.example")
        status, _, headers = server.request(
            "OPTIONS", "/api/next", origin="https://friend.example", access_control_request_method="POST"
        )
        assert (status, headers["access-control-allow-origin"]) == (200, "https://friend.example")
        assert server.request("GET", "/api/models", authorization="Bearer sesame", origin="https://x.example")[0] == 403


def test_invalid_server_options_are_rejected() -> None:
    with pytest.raises(ValueError, match="set a token"):
        access_rules("0.0.0.0", (), (), None)
    with pytest.raises(ValueError, match="is not a valid origin"):
        access_rules("127.0.0.1", (), ["https://a.example/path"], None)
    with pytest.raises(ValueError, match="two models are called"):
        parse_model_arguments(["a/x", "b/x"])
    with pytest.raises(ValueError, match="is not a valid model name"):
        parse_model_arguments(["<script>=a"])


def test_large_bodies_are_rejected(server: Running) -> None:
    head = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    answer = server.raw(head + b"Content-Length: %d\r\n\r\n" % (limits.MAX_BODY_BYTES + 1))
    assert answer.split()[1] == b"413"
    assert b"connection: close" in answer
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    for chunks in (16, 24):  # all is sent before the answer is read: just too much, and far too much
        answer = server.raw(head + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * chunks + b"0\r\n\r\n")
        assert answer.split()[1] == b"413"
        assert b"1,000,000 bytes" in answer
    assert server.request("POST", "/translate", b" " * 2 * limits.MAX_BODY_BYTES)[0] == 413
    assert server.request_json("GET", "/health")[0] == 200


def test_slow_headers_and_bodies_time_out(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PROGRESS_SECONDS", 0.5)
    monkeypatch.setattr(TimeoutProtocol, "progress_seconds", 0.5)
    assert b" 408 " in server.raw(b"")
    assert b" 408 " in server.raw(b"GET /health HTTP/1.1\r\nHost: loc")
    assert b" 408 " in server.raw(
        b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{"
    )
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        received = b""
        while not received.endswith(b"}"):
            received += connection.recv(65536)
        assert b"200 OK" in received
        connection.sendall(b"GET /he")  # the next request's head, on the same connection
        assert b" 408 " in connection.recv(65536)
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        for _ in range(100):  # a byte now and then does not help
            connection.sendall(b"x")
            time.sleep(0.1)
            if select.select([connection], [], [], 0)[0]:
                break
        assert b" 408 " in connection.recv(65536)
    assert server.request_json("GET", "/health")[0] == 200


def test_the_number_of_connections_is_limited(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TimeoutProtocol, "max_connections", 20)
    health = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    held = [socket.create_connection(("127.0.0.1", server.port), timeout=60) for _ in range(20)]
    _until(lambda: b" 503 " in server.raw(health))
    for each in held:
        each.close()
    _until(lambda: b" 200 " in server.raw(health))


LONG = "Le petit chat noir dort dans la maison. " * 250


@contextmanager
def held_engine(engine: Engine) -> Iterator[None]:
    """Keep the engine's thread busy, so that everything else waits in its queue."""
    entered, released = threading.Event(), threading.Event()

    def wait() -> None:
        entered.set()
        released.wait(60)

    assert engine._loop is not None
    waiting = asyncio.run_coroutine_threadsafe(engine.call(1, wait), engine._loop)
    assert entered.wait(60)
    try:
        yield
    finally:
        released.set()
        waiting.result(60)


def test_a_full_queue_says_when_to_retry(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two requests of 2,000 characters fit. Everything else is refused at once, and the server stays responsive."""
    monkeypatch.setattr(limits, "MAX_QUEUED_CHARACTERS", 5_000)
    found: list[tuple[int, dict[str, str]]] = []

    def ask() -> None:
        status, _, headers = server.request("POST", "/api/translate", {"text": LONG[:2000], "n_best": 1})
        found.append((status, headers))

    threads = [threading.Thread(target=ask) for _ in range(12)]
    with held_engine(server.registry.by_name["petit-fr-en"].engine):
        for thread in threads:
            thread.start()
        _until(lambda: len(found) == 10)
        assert server.request_json("GET", "/health")[0] == 200
    for thread in threads:
        thread.join()
    refused = [headers for status, headers in found if status == 429]
    assert sorted(status for status, _ in found) == [200] * 2 + [429] * 10
    assert all(1 <= int(headers["retry-after"]) <= 60 for headers in refused)


def test_work_of_disconnected_clients_is_dropped(server: Running) -> None:
    body = b'{"model": "noise", "prompt": "Once", "max_tokens": 1024, "temperature": 0}'
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    request = head + b"Content-Length: %d\r\n\r\n%s"
    engine = server.registry.by_name["noise"].engine
    streamed = body[:-1] + b', "stream": true}'
    for sent in (body, streamed):
        with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
            connection.sendall(request % (len(sent), sent))
            _until(lambda: bool(engine._generations))
        _until(lambda: not engine._generations)
    translator = server.registry.by_name["petit-fr-en"].engine
    sent = b'{"text": "%s", "beam": 4}' % LONG.encode()
    translation = request.replace(b"/v1/completions", b"/api/translate") % (len(sent), sent)
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(translation)
        _until(lambda: bool(translator._running))
        (job,) = translator._open_jobs
    _until(lambda: not translator._running and not translator.queued)
    assert isinstance(job, TextJob)
    assert len(job.answers) < len(job.texts)
    with held_engine(translator):  # and of work that only waits, nothing is done
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
            connection.sendall(translation)
            _until(lambda: translator.queued > 0)
        _until(lambda: translator.queued == 0)
    assert server.request_json("POST", "/api/translate", {"text": "Le chat dort.", "n_best": 1})[0] == 200


def _until(true: Any) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_timeouts_fairness_and_errors_of_the_engine() -> None:
    async def story() -> None:
        hurried = Engine(regard.load("petit-fr-en").quick("float32"), timeout_seconds=0.05)
        hurried.start()
        with pytest.raises(HttpError, match="took longer"):
            await hurried.translate([LONG], Decoding(beam=4))
        assert hurried.queued == 0
        hurried.stop()
        engine = Engine(regard.load("petit-fr-en").quick("float32"))
        engine.start()
        order: list[str] = []

        async def one(name: str, texts: list[str], beam: int) -> None:
            await engine.translate(texts, Decoding(beam=beam))
            order.append(name)

        many = asyncio.create_task(one("many", [LONG[:40]] * 200, 4))
        await asyncio.sleep(0.01)
        await asyncio.gather(many, one("same way", ["Le chat dort."], 4), one("another way", ["Le chat dort."], 1))
        assert order[-1] == "many"
        for error, status, message in (
            (RegardError("the text is too long"), 400, "the text is too long"),
            (ModelError(), 500, "non-finite values"),
            (ValueError("secret"), 500, "internal server error"),
            (KeyError("secret"), 500, "internal server error"),
        ):
            with pytest.raises(HttpError, match=message) as raised:
                await engine.call(1, partial(_raise, error))
            assert raised.value.status == status
            assert "secret" not in raised.value.message
        engine.stop()
        with pytest.raises(HttpError, match="is shutting down"):
            await engine.translate(["a"], Decoding())

    asyncio.run(story())


def _raise(error: Exception) -> None:
    raise error


def test_tracebacks_of_rejected_requests_are_logged_only_for_debugging(
    server: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = {"q": "Le <b>chat</b> dort.", "source": "fr", "target": "en", "format": "html"}
    assert server.request_json("POST", "/translate", wrong)[0] == 400
    assert caplog.records == []
    monkeypatch.setenv("REGARD_DEBUG", "1")
    status, content, _ = server.request("POST", "/translate", wrong)
    assert status == 400
    (record,) = caplog.records
    assert record.getMessage() == "POST /translate: 400"
    assert record.exc_info is not None
    assert b"Traceback" not in content


NONSENSE: list[tuple[bytes, int]] = [
    (b"", 400),
    (b"{", 400),
    (b"[]", 400),
    (b"null", 400),
    (b'{"text": "a", "text": "b"}', 400),
    (b"[" * 100_000, 400),
    (b'{"a":' * 50_000, 400),
    (b'{"text": "\xff\xfe"}', 400),
    (b'{"text": "\\ud800"}', 400),
    (b'{"text": NaN}', 400),
    (b'{"text": "a", "beam": NaN}', 400),
    (b'{"text": "a", "beam": 1e400}', 400),
    (b'{"text": "a", "beam": ' + b"9" * 5000 + b"}", 400),
    (b'{"text": "a", "beam": 17}', 400),
    (b'{"text": "a", "beam": true}', 400),
    (b'{"text": "a", "beam": "4"}', 400),
    (b'{"text": "a", "bean": 4}', 400),
    (b'{"text": ["a"]}', 400),
    (b'{"text": "a", "model": "../../etc/passwd"}', 404),
    (b'{"text": "a", "model": "regard/models/fr-en"}', 404),
    (b'{"text": "' + b"a" * 20_001 + b'"}', 400),
    (b'{"text": "a\\u0000b"}', 200),
    (b'{"text": ""}', 200),
    (b'{"text": "  \\n "}', 200),
    ('{"text": "😀 \u202e \u200d ﷽ 𝕏"}'.encode(), 200),
]


@pytest.mark.parametrize(("body", "wanted"), NONSENSE)
def test_invalid_bodies_get_a_clear_error(server: Running, body: bytes, wanted: int) -> None:
    status, found = server.request_json("POST", "/api/translate", body)
    assert status == wanted
    assert wanted == 200 or (isinstance(found["error"], str) and 5 < len(found["error"]) < 1000)


def test_wrong_content_types_and_methods_are_rejected(server: Running) -> None:
    assert server.request("POST", "/api/translate", b"{}", content_type="text/plain")[0] == 415
    assert server.request("POST", "/api/translate", b"a=b", content_type="application/x-www-form-urlencoded")[0] == 415
    assert server.request("GET", "/api/translate")[0] == 405
    assert server.request("DELETE", "/health")[0] == 405
    for kind in (
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "multipart/form-data; boundary=" + "y" * 5000,
    ):
        assert server.request("POST", "/translate", b"--y\r\n\r\nq", content_type=kind)[0] == 400
    assert (
        server.request("POST", "/translate", b"q=%ff&source=fr", content_type="application/x-www-form-urlencoded")[0]
        == 400
    )
    status, found = server.request_json(
        "POST", "/v1/completions", {"model": "noise", "prompt": "a", "logit_bias": {"1": 2}}
    )
    assert status == 400
    assert found["error"]["type"] == "invalid_request_error"
    assert "logit_bias" in found["error"]["message"]


def test_fuzzed_requests_never_cause_a_500(server: Running) -> None:
    draw = random.Random(0)
    for method, path, body, headers in fuzzed(draw, 200):
        status, content, _ = server.request(method, path, body, **headers)
        assert status < 500, (method, path, body[:300] if body else body, headers, content)


def test_sigterm_lets_requests_finish(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "regard", "serve", "petit-fr-en", "--port", "0"]
    environment = {**os.environ, "COLUMNS": "200"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=environment) as process:
        assert process.stdout is not None
        port = None
        for line in process.stdout:
            if match := re.search(r"http://127\.0\.0\.1:(\d+)/", line):
                port = int(match[1])
            if "Ctrl-C" in line:
                break
        assert port is not None
        server = Running(port, ModelRegistry([]))
        found: list[int] = []
        asked = {"text": LONG[:4000], "beam": 8, "n_best": 1}
        thread = threading.Thread(target=lambda: found.append(server.request_json("POST", "/api/translate", asked)[0]))
        thread.start()
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        thread.join()
        assert found == [200]
        assert process.wait(30) == 0
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", port), timeout=5)
