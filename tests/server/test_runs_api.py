"""The API for runs: what it reads while a run is written, and the attention of snapshots."""

import math
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from regard.decoding.text_model import Model
from regard.server import limits
from regard.server.model_registry import ModelRegistry
from regard.server.run_history import RunReader, training_curve
from regard.server.runs_api import RunRegistry
from regard.training.events import Noted
from regard.training.metrics_log import METRICS_FILE, MetricsLog
from regard.training.run_folder import lock_run_folder
from tests.support.run_folders import REFERENCE, SOURCE, ended, events, started, stepped, validated, write_run
from tests.support.serving import Running, running

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "first"
    write_run(folder, events(), snapshots=[0, 40, 100])
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Running]:
    with running(ModelRegistry([]), runs=RunRegistry({"first": folder, "missing": folder / "nothing"})) as found:
        yield found


def test_a_finished_run(server: Running) -> None:
    status, runs = server.request_json("GET", "/api/runs")
    assert status == 200
    assert [(run["name"], run["state"], run["step"], run["steps"]) for run in runs] == [
        ("first", "finished", 100, 100),
        ("missing", "waiting", 0, 0),
    ]
    status, run = server.request_json("POST", "/api/run", {"run": "first"})
    assert status == 200
    assert run["curve"]["step"] == list(range(10, 101, 10))
    assert run["curve"]["loss"] == [6 - step / 20 for step in range(10, 101, 10)]
    assert [(each["step"], each["score"], each["seconds"]) for each in run["validations"]] == [
        (50, 50.0, 25.0),
        (100, 100.0, 50.0),
    ]
    sample = {"source": SOURCE, "output": "The 50 sleeps.", "reference": REFERENCE}
    assert run["validations"][0]["samples"] == [sample]
    assert (run["measure"], run["ended"], run["best_step"], run["snapshots"]) == ("BLEU", "steps", 100, [0, 40, 100])


@pytest.mark.parametrize("step", [0, 40])
def test_the_attention_of_a_snapshot_is_that_of_its_model(server: Running, folder: Path, step: int) -> None:
    asked = {"run": "first", "step": step, "source": SOURCE, "target": REFERENCE}
    status, frame = server.request_json("POST", "/api/frame", asked)
    assert status == 200
    model = Model.from_folder(folder / "checkpoints" / f"snapshot-{step:08d}")
    assert frame["maps"] == model.attend(SOURCE, REFERENCE).to_json()["maps"]
    assert frame["output"] == model.translate(SOURCE, beam=1)
    assert server.request_json("POST", "/api/frame", asked)[1] == frame  # now from the cache


def test_wrong_requests(server: Running) -> None:
    frame = {"run": "first", "step": 0, "source": SOURCE}
    wrong = [
        ({**frame, "step": 41}, 404, "no snapshot of step 41"),
        ({**frame, "run": "frist"}, 404, "first"),
        ({**frame, "run": "../first"}, 404, "no run of this name"),
        ({**frame, "step": -1}, 400, "step"),
        ({**frame, "step": True}, 400, "step"),
        ({**frame, "source": "a" * 301}, 400, "source"),
        ({**frame, "source": " "}, 400, "source"),
        ({**frame, "more": 1}, 400, "more"),
    ]
    for body, status, message in wrong:
        found, answer = server.request_json("POST", "/api/frame", body)
        assert (found, message in answer["error"]) == (status, True), (body, found, answer)
    assert server.request_json("POST", "/api/run", {"run": "nothing"})[0] == 404


def test_a_log_is_read_while_it_is_written(tmp_path: Path) -> None:
    write_run(tmp_path / "run", [started(), stepped(10)])
    reader = RunReader("run", tmp_path / "run")
    path = tmp_path / "run" / METRICS_FILE
    assert reader.describe().curve.step == [10]
    line = path.read_bytes().splitlines()[-1].replace(b'"step": 10', b'"step": 20')
    with path.open("ab") as file:
        file.write(line[:30])
        file.flush()
        assert reader.describe().curve.step == [10]  # the line is incomplete
        file.write(line[30:] + b"\nnot JSON\n\xff\n[]\n" + line.replace(b'"step": 20', b'"step": 30') + b"\n")
    assert reader.describe().curve.step == [10, 20, 30]
    with MetricsLog(tmp_path / "run", 20) as log:  # the run is resumed after step 20
        log(stepped(40))
    assert reader.describe().curve.step == [10, 20, 40]
    path.unlink()
    assert reader.describe().curve.step == []
    assert reader.summary().state == "waiting"


def test_lone_surrogates_in_a_log_can_be_sent(tmp_path: Path) -> None:
    write_run(tmp_path / "run", [replace(started(), name="\ud800"), validated(1, "a \udfff b"), Noted(1, "\udc80")])
    path = tmp_path / "run" / METRICS_FILE
    path.write_bytes(path.read_bytes().replace(b"\\\\u", b"\\u"))  # as another program would write them
    text = RunReader("run", tmp_path / "run").describe().model_dump_json()
    assert "a ? b" in text


def test_a_quiet_run_is_running_as_long_as_its_folder_is_locked(tmp_path: Path) -> None:
    write_run(tmp_path / "run", [started(), stepped(10)])
    reader = RunReader("run", tmp_path / "run")
    assert reader.summary().state == "running"  # its log is new
    os.utime(tmp_path / "run" / METRICS_FILE, (0, 0))
    assert reader.summary().state == "stopped"
    with lock_run_folder(tmp_path / "run"):
        assert reader.summary().state == "running"
    assert reader.summary().state == "stopped"


def test_long_runs_are_thinned_out_and_values_that_are_not_finite_are_null(tmp_path: Path) -> None:
    curve = training_curve([stepped(step, float(step)) for step in range(1, 2501)], 1000)
    assert len(curve.step) == math.ceil(2500 / 3)
    assert curve.step[:2] == [3, 6]
    assert curve.loss[:2] == [2.0, 5.0]
    assert curve.step[-1] == 2500
    assert training_curve([stepped(1, math.nan), stepped(2, math.inf)], 10).loss == [None, None]
    write_run(tmp_path / "run", [started(), *map(validated, range(1, 301)), ended()])
    validations = RunReader("run", tmp_path / "run").describe().validations
    assert len(validations) == limits.MAX_CURVE_VALIDATIONS
    assert (validations[0].step, validations[-1].step) == (1, 300)
