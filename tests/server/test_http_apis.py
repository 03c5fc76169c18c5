"""HTTP details over real sockets: headers, methods, encodings, slow readers and writers, many connections."""

import asyncio
import gzip
import http.client
import json
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import regard
from regard.cli import app
from regard.decoding.cancellation import Cancelled, cancellable
from regard.decoding.generate import PREFILL_TOKENS
from regard.errors import ModelError
from regard.model.transformer import Decoder
from regard.page import attention_page
from regard.server import connections, limits
from regard.server.connections import Acceptor, TimeoutProtocol
from regard.server.guards import access_rules
from regard.server.http_errors import CONTENT_SECURITY_POLICY, SECURITY_HEADERS
from regard.server.model_registry import build_registry
from regard.server.page_api import NextTokenRequest, next_token_distribution
from regard.server.prefix_cache import EXTRA_CACHE_TOKENS, PrefixCache
from tests.support.serving import Running, language_model, running
from tests.support.signals import ignoring

pytestmark = pytest.mark.slow

GZIP = {"accept_encoding": "gzip, deflate"}


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    models = {"petit-fr-en": regard.load("petit-fr-en"), "noise": language_model()}
    rules = access_rules("127.0.0.1", (), ["https://friend.example"], None)
    with running(build_registry(models, "float32"), rules) as found:
        yield found


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def headers_of(answer: bytes) -> dict[bytes, bytes]:
    lines = answer.partition(b"\r\n\r\n")[0].split(b"\r\n")[1:]
    return {name.lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}


def has_security_headers(answer: bytes) -> bool:
    found = headers_of(answer)
    return all(found.get(name) == value for name, value in SECURITY_HEADERS)


# Hosts, origins and tokens


def ask_with(server: Running, *lines: bytes, path: bytes = b"/api/models") -> bytes:
    return server.raw(b"\r\n".join([b"GET %s HTTP/1.1" % path, *lines, b"connection: close", b"", b""]))


BAD_HOSTS = [
    *("evil@127.0.0.1", "127.0.0.1/", "127.0.0.1#a", "127.0.0.1:80:80", "127.0.0.1:99999", "127.0.0.1:", "127.1"),
    *("[::1]x", "[::1%25lo]", "::1", "[127.0.0.1]", "localhost,evil", "local host", "2130706433"),
]


@pytest.mark.parametrize("host", BAD_HOSTS)
def test_malformed_hosts_are_rejected(server: Running, host: str) -> None:
    assert status_of(ask_with(server, b"host: " + host.encode())) in (400, 403)


def test_malformed_origins_are_rejected(server: Running) -> None:
    own = b"host: 127.0.0.1:%d" % server.port
    for origin in (b"http://[", b"http://[::1", b"http://a@127.0.0.1:%d" % server.port, b"://", b"", b"http://\xff"):
        answer = ask_with(server, own, b"origin: " + origin)
        assert status_of(answer) == 403, origin
        assert has_security_headers(answer)
    assert status_of(ask_with(server, own, b"origin: http://127.0.0.1:%d" % server.port)) == 200
    assert status_of(ask_with(server, b"host: LOCALHOST:80", b"origin: http://localhost")) == 200
    assert status_of(ask_with(server, b"host: [0:0::1]", b"origin: http://[::1]:80")) == 200


FRAGMENTS = st.sampled_from(
    [
        *(
            b"http://",
            b"https://",
            b"127.0.0.1",
            b"localhost",
            b"[",
            b"]",
            b"::1",
            b":",
            b"@",
            b"%",
            b"/",
            b".",
            b"\xff",
        ),
        *(b"99999", b"0", b"xn--", b"\xc3\xa9", b"null", b",", b" ", b"\t", b"?", b"#", b"\\", b"*", b"Bearer ", b"q="),
    ]
)
VALUES = st.one_of(st.lists(FRAGMENTS, max_size=6).map(b"".join), st.binary(max_size=20))
NAMES = st.sampled_from(
    b"host origin authorization content-type accept-encoding if-none-match connection content-length expect upgrade x "
    b"transfer-encoding access-control-request-method".split()
)
TARGETS = st.sampled_from(b"/api/models /api/translate /page/app.js /v1/completions * // /%ff".split())


@given(
    st.sampled_from([b"GET", b"HEAD", b"POST", b"OPTIONS", b"X"]),
    TARGETS,
    st.lists(st.tuples(NAMES, VALUES)),
    st.booleans(),
)
def test_no_header_causes_a_500(
    server: Running, method: bytes, target: bytes, headers: list[tuple[bytes, bytes]], proper: bool
) -> None:
    lines = [b"%s: %s" % each for each in headers] + [b"host: localhost"] * proper
    sent = b"\r\n".join([b"%s %s HTTP/1.1" % (method, target), *lines, b"", b""])
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)  # so that a body that was announced is not awaited
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    if answer:  # else the request was cut off by our own end of it
        assert status_of(answer) < 500, (sent, answer)
        final = answer.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert not final or has_security_headers(final), (sent, answer)


def test_a_non_ascii_token_is_sent_as_utf_8() -> None:
    guards = access_rules("127.0.0.1", (), (), "sésame-開け")
    with running(build_registry({"noise": language_model()}, "float32"), guards) as server:
        host = b"host: localhost"
        for value in ("Bearer sésame-開け".encode(), "bearer  sésame-開け ".encode()):
            assert status_of(ask_with(server, host, b"authorization: " + value)) == 200
        for value in (b"Bearer s\xe9same", b"Bearer \xff", "Bearer sésame".encode(), b"Bearer"):
            assert status_of(ask_with(server, host, b"authorization: " + value)) == 401
    for wrong in (" a", "a\nb", "a\udcff"):
        with pytest.raises(ValueError, match="token"):
            access_rules("127.0.0.1", (), (), wrong)
    for wrong in ("https://box.example", "box.example:80", "a@b"):
        with pytest.raises(ValueError, match="is not a valid host"):
            access_rules("127.0.0.1", [wrong], (), None)


# Methods and encodings


def test_head_is_get_without_its_body(server: Running) -> None:
    for path in (
        "/",
        "/health",
        "/page/attention_map.js",
        "/api/models",
        "/openapi.json",
        "/nothing",
        "/v1/models/noise",
    ):
        got, asked = server.request("GET", path, **GZIP), server.request("HEAD", path, **GZIP)
        assert (asked[0], asked[1]) == (got[0], b"")
        changing = {"date"}
        assert {k: v for k, v in asked[2].items() if k not in changing} == {
            k: v for k, v in got[2].items() if k not in changing
        }
    assert server.request("HEAD", "/api/translate")[0] == 405
    assert server.request("DELETE", "/health")[2]["allow"] == "GET, HEAD"


def test_responses_are_compressed_for_clients_that_accept_it(server: Running) -> None:
    asked = {"source": "Le chat dort dans la maison.", "model": "petit-fr-en"}
    plain = server.request("POST", "/api/attend", asked)
    packed = server.request("POST", "/api/attend", asked, **GZIP)
    assert packed[2]["content-encoding"] == "gzip"
    assert int(packed[2]["content-length"]) == len(packed[1]) < len(plain[1]) / 2
    assert gzip.decompress(packed[1]) == plain[1]
    assert "content-encoding" not in plain[2]
    assert plain[2]["vary"] == packed[2]["vary"] == "accept-encoding, Origin"
    for encoding in ("identity", "gzip;q=0", "br", ""):
        assert "content-encoding" not in server.request("GET", "/page/attention_map.js", accept_encoding=encoding)[2]
    for path in ("/health", "/labs/align.png"):  # too small, and compressed already
        assert "content-encoding" not in server.request("GET", path, **GZIP)[2]
    tag = server.request("GET", "/page/attention_map.js", **GZIP)[2]["etag"]
    assert server.request("GET", "/page/attention_map.js", if_none_match=f'"other", {tag}', **GZIP)[0] == 304


def test_streams_are_not_compressed(server: Running) -> None:
    asked = {"model": "noise", "prompt": "Once", "max_tokens": 60, "stream": True}
    status, content, headers = server.request("POST", "/v1/completions", asked, **GZIP)
    assert status == 200
    assert "content-encoding" not in headers
    assert content.startswith(b"data: ")


# Errors below the app


def test_rejected_connections_get_security_headers(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    not_http = server.raw(b"\x16\x03\x01\x00\xa5\r\n\r\n")
    assert status_of(not_http) == 400
    monkeypatch.setattr(TimeoutProtocol, "progress_seconds", 0.2)
    late = server.raw(b"GET /health HTTP/1.1\r\nHost: loc")
    assert status_of(late) == 408
    monkeypatch.setattr(TimeoutProtocol, "max_connections", 0)
    crowded = server.raw(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert status_of(crowded) == 503
    assert json.loads(crowded.partition(b"\r\n\r\n")[2])["error"]["type"] == "server_error"
    monkeypatch.setattr(TimeoutProtocol, "overflow_connections", 0)
    full = server.raw(b"")
    assert status_of(full) == 503
    for answer in (not_http, late, crowded, full):
        assert has_security_headers(answer), answer
        assert headers_of(answer)[b"connection"] == b"close"
        assert "unsafe" not in CONTENT_SECURITY_POLICY


def test_invalid_data_during_a_response_closes_the_connection(server: Running) -> None:
    body = b'{"model": "noise", "prompt": "Once", "max_tokens": 300, "stream": true}'
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
        connection.sendall(head + b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
        connection.sendall(b"\x00nonsense\r\n\r\n" * 3)
        while connection.recv(65536):
            pass
    assert server.request_json("GET", "/health")[0] == 200


# Slow clients


def test_a_steady_body_is_not_timed_out(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PROGRESS_SECONDS", 0.4)
    monkeypatch.setattr(limits, "MIN_BYTES_PER_SECOND", 5_000)
    body = json.dumps({"text": "Le chat dort.", "n_best": 1}).encode() + b" " * 60_000
    head = b"POST /api/translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"

    def send(piece: int, pause: float) -> bytes:
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
            connection.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body))
            for at in range(0, len(body), piece):
                try:
                    connection.sendall(body[at : at + piece])
                except OSError:
                    break
                time.sleep(pause)
                if piece < 100 and at > 30 * piece:
                    break
            return connection.recv(65536)

    assert status_of(send(6_000, 0.1)) == 200  # ten pieces: the timeout does not limit the total
    assert status_of(send(10, 0.05)) == 408  # a trickle is cut off all the same


def slow_reader(port: int, rate: float) -> int:
    """Read a large response at this many bytes per second: the number of bytes before it ends or is cut off."""
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        connection.settimeout(60)
        connection.connect(("127.0.0.1", port))
        connection.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        total = 0
        while True:
            try:
                piece = connection.recv(65_536)
            except OSError:
                return total
            if not piece:
                return total
            total += len(piece)
            time.sleep(len(piece) / rate)


def test_a_steadily_read_response_is_not_timed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the rate is limited, not the total time."""
    size = 8_000_000
    monkeypatch.setattr(TimeoutProtocol, "progress_seconds", 0.4)
    monkeypatch.setattr(TimeoutProtocol, "min_bytes_per_second", 500_000)
    usual = TimeoutProtocol._reject_when_crowded

    async def large(self: TimeoutProtocol, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] != "/large":
            await usual(self, scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % size)]})
        await send({"type": "http.response.body", "body": bytes(size)})

    monkeypatch.setattr(TimeoutProtocol, "_reject_when_crowded", large)
    with running(build_registry({"noise": language_model()}, "float32")) as server:
        assert slow_reader(server.port, 4_000_000) > size  # in two seconds, which is five times the timeout
        assert slow_reader(server.port, 100_000) < size / 2


def test_the_body_of_a_rejected_request_is_timed_out(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the response, the rest of the body arrives byte by byte; it must not keep the connection open."""
    monkeypatch.setattr(TimeoutProtocol, "progress_seconds", 0.5)
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
        connection.sendall(b"POST /api/models HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 1000\r\n\r\n")
        assert connection.recv(65_536).startswith(b"HTTP/1.1 403")
        for _ in range(100):
            try:
                connection.sendall(b"x")
            except OSError:
                break
            time.sleep(0.05)
        else:
            pytest.fail("it is still open")


# Many connections


class Refusing(socket.socket):
    """A listener that cannot accept connections."""

    tries = 0

    def accept(self) -> Any:
        self.tries += 1
        raise OSError(24, "Too many open files")


def test_without_file_descriptors_accepting_pauses_and_logs_once(caplog: pytest.LogCaptureFixture) -> None:
    def nobody() -> TimeoutProtocol:
        raise AssertionError("nothing was accepted")

    async def story() -> int:
        with Refusing() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            acceptor = Acceptor(listener, nobody, 10)
            with socket.create_connection(listener.getsockname()):
                await asyncio.sleep(3 * connections.ACCEPT_PAUSE_SECONDS)
            acceptor.close()
            return listener.tries

    assert 1 <= asyncio.run(story()) <= 4
    assert [record.getMessage() for record in caplog.records] == [
        "connections cannot be accepted at present: Too many open files"
    ]


def test_connection_limits_respect_the_limit_on_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most, spare = connections.connection_limits()
    now, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert most + spare + connections.MAX_REJECTING_CONNECTIONS < now
    assert most <= limits.MAX_CONNECTIONS
    for room in (100, 300, 1024, 10_000):
        most, spare = connections.split_connections(room)
        assert most + spare <= room


def test_more_idle_connections_than_file_descriptors(tmp_path: Path) -> None:
    """200 connections to a server that may open 128 files: few log lines, and it responds once they are closed."""
    folder = tmp_path / "noise"
    language_model().save(folder)
    limit = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))"
    command = [
        sys.executable,
        "-c",
        f"{limit}; from regard.cli import main; main()",
        "serve",
        str(folder),
        "--port",
        "0",
    ]
    with (
        (tmp_path / "log").open("w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            port = next(int(m[1]) for line in process.stdout if (m := re.search(r"http://127\.0\.0\.1:(\d+)/", line)))
            held = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(200)]
            time.sleep(2)
            for each in held:
                each.close()
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            connection.request("GET", "/health")
            assert connection.getresponse().status == 200
            connection.close()
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)
    assert (tmp_path / "log").stat().st_size < 1_000


# Signals


def test_a_server_in_the_background_ignores_ctrl_c(tmp_path: Path) -> None:
    """A shell starts background commands with SIGINT ignored."""
    folder = tmp_path / "noise"
    language_model().save(folder)
    command = [sys.executable, "-m", "regard", "serve", str(folder), "--port", "0"]
    with ignoring(signal.SIGINT):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    with process:
        try:
            assert process.stdout is not None
            assert any("Ctrl-C" in line for line in process.stdout)
            process.send_signal(signal.SIGINT)
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(1)
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


# Damaged models and completions


def broken(model: Any) -> Any:
    with torch.no_grad():
        for weight in model.network.parameters():
            weight.fill_(float("nan"))
    return model


def test_a_model_with_nan_weights_is_a_logged_server_error(caplog: pytest.LogCaptureFixture) -> None:
    models = {"noise": broken(language_model()), "petit-fr-en": broken(regard.load("petit-fr-en"))}
    text, prompt = "Le chat dort.", {"model": "noise", "prompt": "Once"}
    asked: list[tuple[str, dict[str, Any]]] = [
        ("/api/next", {"text": "Once"}),
        ("/api/next", {"text": "Once", "temperature": 0}),
        ("/api/attend", {"source": "Once", "model": "noise"}),
        ("/api/attend", {"source": "O", "model": "noise"}),  # of one token: nothing was chosen, no logits are shown
        ("/api/attend", {"source": text, "model": "petit-fr-en"}),
        ("/api/attend", {"source": text, "target": "The cat.", "model": "petit-fr-en"}),
        ("/api/translate", {"text": text}),
        ("/api/translate", {"text": text, "beam": 1, "n_best": 1}),
        ("/translate", {"q": text, "source": "fr", "target": "en", "alternatives": 2}),
        ("/v1/embeddings", {"model": "noise", "input": "Once"}),
        ("/v1/completions", prompt),
        ("/v1/completions", {**prompt, "temperature": 0, "logprobs": 0}),
        ("/v1/completions", {**prompt, "stream": True, "logprobs": 0}),
    ]
    with running(build_registry(models, "float32")) as server:
        for path, body in asked:
            status, content, _ = server.request("POST", path, body)
            told = json.loads(content, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))
            assert status == 500, (path, body, told)
            assert "the model produced non-finite values" in json.dumps(told["error"]), (path, told)
            assert "Traceback" not in content.decode()
            record = caplog.records[-1]
            assert (record.levelname, record.exc_info is not None) == ("ERROR", True), (path, record)
            assert isinstance(record.exc_info[1], ModelError)  # type: ignore[index]
            caplog.clear()
    told = {"model": "m", "source": "s", "maps": [{"weights": [[[[float("nan")]]]]}]}
    with pytest.raises(ValueError, match="not JSON compliant"):
        attention_page(told)


def test_attention_files_never_contain_nan(tmp_path: Path) -> None:
    broken(language_model()).save(tmp_path / "noise")
    for option in ("--json", "--html"):
        asked = ["attend", "Once", "--model", str(tmp_path / "noise"), option, str(tmp_path / "out")]
        error = CliRunner().invoke(app, asked).exception
        assert isinstance(error, ModelError)  # the command prints it without a traceback
        assert "non-finite values" in str(error)
        assert not (tmp_path / "out").exists()


def test_an_empty_prompt_is_rejected_by_the_schema(server: Running) -> None:
    _, told = server.request_json("GET", "/openapi.json")
    schema = told["paths"]["/v1/completions"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    one, many = schema["properties"]["prompt"]["anyOf"]
    assert (one["minLength"], many["items"]["minLength"]) == (1, 1)
    for prompt in ("", ["Once", ""]):
        status, found = server.request_json("POST", "/v1/completions", {"model": "noise", "prompt": prompt})
        assert status == 400
        assert "at least 1 character" in found["error"]["message"]


@pytest.mark.parametrize("echo", [False, True])
def test_offsets_of_a_stream_match_the_complete_response(server: Running, echo: bool) -> None:
    prompts = ["Once", "The cat"]
    asked = {"model": "noise", "prompt": prompts, "max_tokens": 12, "seed": 1, "logprobs": 0, "echo": echo}
    _, whole = server.request_json("POST", "/v1/completions", asked)
    _, content, _ = server.request("POST", "/v1/completions", {**asked, "stream": True})
    events = [line.removeprefix("data: ") for line in content.decode().split("\n\n") if line][:-1]
    chunks = [json.loads(event)["choices"][0] for event in events]
    for choice in whole["choices"]:
        own = [each for each in chunks if each["index"] == choice["index"]]
        offsets = [offset for each in own for offset in each["logprobs"]["text_offset"]]
        assert offsets == choice["logprobs"]["text_offset"]
        assert offsets[0] == (len(prompts[choice["index"]]) if echo else 0)
        assert offsets == sorted(offsets)
        assert offsets[-1] > offsets[0]
        text = "".join(each["text"] for each in own)
        assert text == choice["text"]


# The prefix cache


def test_an_added_token_costs_one_token(server: Running) -> None:
    served = server.registry.by_name["noise"]
    text, tokens, read = "Once upon a time there was a cat, and it slept. " * 8, [], []
    for _ in range(12):
        before = served.prefix_cache.tokens_read
        status, found = server.request_json("POST", "/api/next", {"text": text, "temperature": 0, "show": 60})
        assert status == 200
        read.append(served.prefix_cache.tokens_read - before)
        tokens.append(len(found["text_tokens"]))
        text += next(each["text"] for each in found["tokens"] if each["text"].isascii() and not each["end"])
    assert read[0] == tokens[0] > 50
    assert sum(read[1:]) <= 3 * (tokens[-1] - tokens[0] + 11)  # the end of a text may be cut into other tokens
    before = served.prefix_cache.tokens_read
    server.request_json("POST", "/api/next", {"text": text, "temperature": 0.5})
    server.request_json("POST", "/api/next", {"text": text, "temperature": 0.7})
    assert served.prefix_cache.tokens_read - before <= 5  # a slider that is moved


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 30)), min_size=1, max_size=12))
def test_the_prefix_cache_does_not_change_logits(asked: list[tuple[int, int]]) -> None:
    model = language_model()
    assert isinstance(model.network, Decoder)
    texts = [
        model.prompt_ids(each * 3) for each in ("Once upon a time", "Once upon the cat", "Le petit chat noir dort")
    ]
    prefixes = PrefixCache(max_bytes=150_000)
    for which, length in asked:
        ids = texts[which][:length]
        with torch.inference_mode():
            direct = model.network(torch.tensor([ids]))[0, -1]
        torch.testing.assert_close(prefixes.next_logits(model.network, ids), direct)
        assert sum(each.nbytes for each in prefixes.entries) <= prefixes.max_bytes


def test_a_text_larger_than_the_cache_is_the_only_entry() -> None:
    """A long text, too, costs one token for each that is added."""
    model = language_model()
    assert isinstance(model.network, Decoder)
    prefixes = PrefixCache(max_bytes=1_000 * EXTRA_CACHE_TOKENS)
    ids = model.prompt_ids("Once upon a time there was a cat. " * 20)
    prefixes.next_logits(model.network, ids[:20])
    for more in range(3):
        prefixes.next_logits(model.network, [*ids, *ids[:more]])
    assert prefixes.tokens_read == len(ids) + 2
    assert len(prefixes.entries) == 1
    assert prefixes.entries[0].nbytes > prefixes.max_bytes


def test_a_cancelled_request_keeps_its_processed_tokens() -> None:
    model = language_model()
    assert isinstance(model.network, Decoder)
    ids = (model.prompt_ids("Once upon a time there was a cat. ") * 200)[: 3 * PREFILL_TOKENS]
    prefixes, chunks = PrefixCache(), count()
    with pytest.raises(Cancelled), cancellable(lambda: next(chunks) == 2):
        prefixes.next_logits(model.network, ids)
    assert prefixes.tokens_read == 2 * PREFILL_TOKENS
    torch.testing.assert_close(prefixes.next_logits(model.network, ids), PrefixCache().next_logits(model.network, ids))
    assert prefixes.tokens_read == 3 * PREFILL_TOKENS


def test_next_tokens_lists_the_tokens_of_the_text_without_the_template() -> None:
    served = build_registry({"writer": regard.load("writer")}).by_name["writer"]
    assert served.model.require_tokenizer().before  # a token that the text starts from
    response = next_token_distribution(served, NextTokenRequest(model="writer", text="Once upon a time"))
    assert response.text_tokens == ["Once", "upon", "a", "time"]
