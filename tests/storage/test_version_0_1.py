"""Folders that version 0.1 wrote: models load and compute the same, interrupted runs are resumed.

`version_0_1/` was written by version 0.1 (commit 2470660): for each task a recipe, a run that was interrupted after
step 9 of 12, the model of the same run without interruption, and in `expected.json` what 0.1 computed with them.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import regard
from regard.cli import app

pytestmark = pytest.mark.slow

WRITTEN = Path(__file__).parent / "version_0_1"
EXPECTED: dict[str, dict[str, Any]] = json.loads((WRITTEN / "expected.json").read_text(encoding="utf-8"))


def lines(name: str) -> list[str]:
    return (WRITTEN / name).read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("task", EXPECTED)
def test_models_compute_the_same(task: str) -> None:
    model = regard.load(WRITTEN / f"{task}-model")
    sources, targets = lines("dev.fr")[:3], lines("dev.en")[:3]
    if task == "classification":
        names, probabilities = zip(*EXPECTED[task]["classify"], strict=True)
        found_names, found = zip(*model.classify(sources), strict=True)
        assert found_names == names
        assert found == pytest.approx(probabilities, abs=1e-5)
    else:
        scores = model.score(sources, targets) if task == "translation" else model.score(sources)
        assert scores == pytest.approx(EXPECTED[task]["score"], abs=1e-4)


@pytest.mark.parametrize("task", EXPECTED)
def test_interrupted_runs_are_resumed(task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log of the first steps is kept byte for byte, and the last steps equal those of an uninterrupted run."""
    shutil.copytree(WRITTEN, tmp_path / "text")
    monkeypatch.chdir(tmp_path / "text")
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    before = Path(task, "metrics.jsonl").read_bytes().splitlines()
    result = CliRunner().invoke(app, ["train", f"{task}.toml", "--out", task, "--resume"])
    assert result.exit_code == 0, result.output
    log = Path(task, "metrics.jsonl").read_bytes().splitlines()
    assert log[: len(before) - 1] == before[:-1]  # the last line recorded the interruption
    events = map(json.loads, log)
    losses = {f"{each['event']} {each['step']}": each["loss"] for each in events if "loss" in each}
    assert losses == pytest.approx(EXPECTED[task]["losses"], abs=1e-3)
    assert regard.load(task).config.kind == regard.load(WRITTEN / f"{task}-model").config.kind
