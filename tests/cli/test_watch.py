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
        runs: Any = None
        while not runs or runs[0]["step"] < 20:
            assert process.poll() is None
            time.sleep(0.5)
            runs = get(f"{match[0]}api/runs")
        assert (runs[0]["name"], runs[0]["state"], runs[0]["steps"]) == ("run", "running", 100_000)
        assert (tmp_path / "run" / "checkpoints" / "snapshot-00000000").is_dir()
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.wait() == 128 + signal.SIGINT
    assert get(f"{match[0]}api/runs") is None  # the server has stopped
