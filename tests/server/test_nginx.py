"""The configuration in examples/nginx, with a real nginx in front of a real server."""

import http.client
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import regard
from regard.server.guards import access_rules
from regard.server.model_registry import build_registry
from tests.support.serving import Running, running

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parent.parent.parent / "examples/nginx"
NAME, TOKEN = "translate.example.org", "a-long-token"
REQUEST = {"q": "Le chat dort.", "source": "fr", "target": "en"}


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(
        build_registry({"petit-fr-en": regard.load("petit-fr-en")}, "float32"),
        access_rules("127.0.0.1", [NAME], (), TOKEN),
    ) as started:
        yield started


def test_the_server_accepts_what_nginx_passes_on(server: Running) -> None:
    """The options in the README allow the name in the configuration, also for requests of the page."""
    assert f"server_name {NAME};" in (FOLDER / "nginx.conf").read_text()
    assert f"--allow-host {NAME}" in (FOLDER / "README.md").read_text()
    passed = {"host": NAME, "origin": f"https://{NAME}", "authorization": f"Bearer {TOKEN}"}
    status, answer = server.request_json("POST", "/translate", REQUEST, **passed)
    assert (status, answer["translatedText"]) == (200, "The cat is sleeping.")
    for wrong in ({"host": "other.example.org"}, {"origin": "https://other.example.org"}):
        assert server.request("POST", "/translate", REQUEST, **(passed | wrong))[0] == 403
    assert server.request("POST", "/translate", REQUEST, host=NAME)[0] == 401


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.fixture
def proxy(server: Running, tmp_path: Path) -> Iterator[Running]:
    """nginx with the example's configuration, but without TLS and on another port."""
    program = shutil.which("nginx")
    if program is None:
        pytest.skip("nginx is not installed")
    port = free_port()
    text = (FOLDER / "nginx.conf").read_text()
    text = text.replace("listen 443 ssl", f"listen 127.0.0.1:{port}").replace(
        "127.0.0.1:7878", f"127.0.0.1:{server.port}"
    )
    text = re.sub(r"^ *ssl_certificate.*\n", "", text, flags=re.M)
    temporary = "".join(
        f"{kind}_temp_path {tmp_path};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (tmp_path / "nginx.conf").write_text(f"events {{}}\nhttp {{\naccess_log off;\n{temporary}{text}}}\n")
    settings = f"daemon off; master_process off; pid {tmp_path}/pid; error_log {tmp_path}/errors;"
    process = subprocess.Popen(
        [program, "-p", tmp_path, "-c", tmp_path / "nginx.conf", "-e", tmp_path / "errors", "-g", settings]
    )
    try:
        for _ in range(200):
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield Running(port, server.registry)
    finally:
        process.terminate()
        process.wait(30)


@pytest.mark.long
def test_requests_through_nginx(proxy: Running) -> None:
    passed = {"host": NAME, "authorization": f"Bearer {TOKEN}"}
    status, answer = proxy.request_json("POST", "/translate", REQUEST, **passed)
    assert (status, answer["translatedText"]) == (200, "The cat is sleeping.")
    assert proxy.request("POST", "/translate", REQUEST, host=NAME)[0] == 401
    assert proxy.request("POST", "/translate", b" " * 1_100_000, **passed)[0] == 413
    assert proxy.request("GET", "/", host=NAME)[0] == 200
    assert proxy.request_json("GET", "/health", host=NAME)[1]["status"] == "ok"


@pytest.mark.long
def test_nginx_limits_the_rate_of_a_client_but_not_of_health_checks(proxy: Running) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=60)

    def statuses(path: str) -> set[int]:
        seen = set()
        for _ in range(200):
            connection.request("GET", path, headers={"host": NAME})
            with connection.getresponse() as response:
                response.read()
                seen.add(response.status)
        return seen

    assert statuses("/api/models") == {401, 503}
    assert statuses("/health") == {200}
    connection.close()
