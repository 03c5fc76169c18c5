"""`regard train --watch` as a real process, whose page is read while it trains."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from regard.cli.run_page import RunPage
from regard.training.events import Event, Ticked
from tests.support.jobs import wait_until

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

TOO_LONG = {"train.steps": 100_000, "train.log_every": 5, "train.validate_every": 20, "train.validation_sentences": 4}


def get(url: str) -> Any:
    """The JSON at a URL, or None if nothing answers there."""
    try:
        with urllib.request.urlopen(url, timeout=10) as response:
            return json.loads(response.read())
    except (urllib.error.URLError, OSError):
        return None


@pytest.mark.long
def test_the_page_follows_the_run_and_stops_with_it(tmp_path: Path) -> None:
    changes = [part for key, value in TOO_LONG.items() for part in ("--set", f"{key}={value}")]
    command = [sys.executable, "-m", "regard", "train", "petit-fr-en", "--watch", "--out", "run", *changes]
    environment = os.environ | {"PYTHONUNBUFFERED": "1", "REGARD_CACHE": str(tmp_path / "cache")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=environment) as process:
        assert process.stdout is not None
        line = next(line for line in process.stdout if "Watch this run at" in line)
        match = re.search(r"http://127\.0\.0\.1:\d+/", line)
        assert match
        runs = get(f"{match[0]}api/runs")
        assert runs is not None  # the address is printed when the server answers
        while runs[0]["step"] < 20:
            assert process.poll() is None
            time.sleep(0.5)
            runs = get(f"{match[0]}api/runs")
        assert (runs[0]["name"], runs[0]["state"], runs[0]["steps"]) == ("run", "running", 100_000)
        assert (tmp_path / "run" / "checkpoints" / "snapshot-00000000").is_dir()
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.wait() == 128 + signal.SIGINT
    assert get(f"{match[0]}api/runs") is None  # the server has stopped


def stand_in_for_the_server(tmp_path: Path, program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a shell program run in place of `regard serve`."""
    path = tmp_path / "server"
    path.write_text(f"#!/bin/sh\n{program}\n")
    path.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(path))


def test_the_address_is_printed_when_the_server_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = tmp_path / "answers"
    banner = "echo 'Regard is serving at http://127.0.0.1:1234/'"
    stand_in_for_the_server(
        tmp_path, f"until [ -e {answers} ]; do sleep 0.05; done; {banner}; exec sleep 60", monkeypatch
    )
    events: list[Event] = []
    with RunPage(tmp_path) as page:
        show = page.watch(events.append)
        for step in range(3):
            show(Ticked(step, 0.0))
        assert capsys.readouterr().out == ""
        answers.touch()
        wait_until(lambda: "serving" in page.output.read_text())
        for step in range(3, 6):
            show(Ticked(step, 0.0))
        assert capsys.readouterr().out == "Watch this run at http://127.0.0.1:1234/#/runs\n"
        assert page.process is not None
    assert page.process.poll() is not None
    assert events == [Ticked(step, 0.0) for step in range(6)]


def test_a_page_that_cannot_be_served_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in_for_the_server(tmp_path, "echo 'regard: cannot listen on 127.0.0.1:7878' >&2; exit 2", monkeypatch)
    with RunPage(tmp_path) as page:
        show = page.watch(lambda _: None)
        show(Ticked(0, 0.0))
        assert page.process is not None
        page.process.wait()
        for step in range(1, 3):
            show(Ticked(step, 0.0))
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == "regard: this run has no page: cannot listen on 127.0.0.1:7878\n"


def test_a_page_that_stays_is_announced_when_the_server_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A short run can end before its server answers."""
    stand_in_for_the_server(
        tmp_path, "sleep 0.3; echo 'Regard is serving at http://127.0.0.1:1234/'; sleep 0.3", monkeypatch
    )
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    with RunPage(tmp_path) as page:
        page.watch(lambda _: None)(Ticked(0, 0.0))
        page.stay()
    stays = f"The page stays at http://127.0.0.1:1234/#/runs until Ctrl-C. Later: regard serve {tmp_path}\n"
    assert capsys.readouterr().out == stays
