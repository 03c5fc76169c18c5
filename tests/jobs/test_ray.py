"""Jobs on a real Ray cluster of two workers, of which one is killed; and the workers of `regard.ray`."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from regard.cli.model_loading import default_model
from regard.jobs.job_folder import FINISHED_FILE
from regard.jobs.ray_workers import ray_cluster, with_absolute_model
from regard.jobs.records import LineRecords
from regard.jobs.tasks import ShardWork, TranslateTask
from regard.ray import Classifier, Embedder, Scorer, Translator
from tests.support.commands import command, refused
from tests.support.jobs import wait_until
from tests.support.ray_cluster import ENVIRONMENT
from tests.support.text_models import TEXTS, random_model

pytestmark = pytest.mark.slow
needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="make ray")
OPTIONS = ["--beam", "1", "--max-tokens", "3", "--batch-tokens", "8"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a model and 400 sentences."""
    folder = tmp_path_factory.mktemp("ray")
    random_model().save(folder / "model")
    lines = [f"{number} {TEXTS[number % len(TEXTS)]}\n" for number in range(400)]
    (folder / "in.fr").write_text("".join(lines))
    return folder


def test_workers_add_columns_to_batches(folder: Path, tmp_path: Path) -> None:
    model = random_model()
    batch: dict[str, list[Any]] = {
        "id": [1, 2, 3],
        "text": [TEXTS[0], None, TEXTS[1]],
        "target": ["a cat", "x", "a dog"],
    }
    path = str(folder / "model")
    translated = Translator(path, beam=1, max_tokens=3, precision="float32")(batch)
    best = model.translate([TEXTS[0], TEXTS[1]], beam=1, max_tokens=3)
    assert translated == {**batch, "translation": [best[0], None, best[1]]}
    scored = Scorer(path, "text", "target")(batch)
    assert scored["score"][1] is None
    assert scored["score"][::2] == pytest.approx(model.score([TEXTS[0], TEXTS[1]], ["a cat", "a dog"]), abs=1e-3)
    vectors = Embedder(path)(batch)["vector"]
    assert vectors[1] is None
    assert vectors[2] == pytest.approx(model.embed(TEXTS[1]).tolist(), abs=1e-3)
    classifier = random_model(kind="encoder", classes=3)
    classifier.save(tmp_path / "classifier")
    labels = Classifier(str(tmp_path / "classifier"))(batch)
    ((label, probability),) = classifier.classify([TEXTS[1]])
    assert labels["label"] == [labels["label"][0], None, label]
    assert labels["probability"][2] == pytest.approx(probability, abs=1e-4)


def test_a_missing_package_is_named(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    files = ["--input", str(folder / "in.fr"), "--output", str(tmp_path / "out.en")]
    message = refused("translate", "--model", str(folder / "model"), *files, "--engine", "ray")
    assert message == "--engine ray needs Ray: pip install 'regard[ray]'"


def test_messages_of_ray_go_to_stderr(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Ray prints to stdout that a node or a worker has died, whenever it learns of it."""

    def printing(moment: str) -> Callable[..., None]:
        return lambda *_, **__: print(f"(raylet) {moment}")

    ray = SimpleNamespace(
        is_initialized=lambda: False,
        init=printing("connecting"),
        cluster_resources=lambda: {"CPU": 2.0},
        shutdown=printing("disconnecting"),
    )
    monkeypatch.setattr("regard.jobs.ray_workers.import_ray", lambda: ray)
    with ray_cluster(None, "cpu", None) as engine:
        assert str(engine) == "2 workers of a Ray cluster on cpu"
        print("(raylet) a worker died")
    print("a result")
    printed = capsys.readouterr()
    assert printed.out == "a result\n"
    assert printed.err == "(raylet) connecting\n(raylet) a worker died\n(raylet) disconnecting\n"


def test_workers_get_the_absolute_path_of_a_model(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They run in the folder in which Ray was started, on machines with their own copies of the bundled models. An
    unrelated folder does not hide these."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").symlink_to(folder / "model")
    (tmp_path / "fr-en").mkdir()
    for name, expected in [("model", str(tmp_path / "model")), ("fr-en", "fr-en"), (default_model(), "fr-en")]:
        work = ShardWork(TranslateTask(model=name), LineRecords(("in.fr",)))
        assert with_absolute_model(work).task.model == expected


def is_any_cluster_running() -> bool:
    """Whether a process of a Ray cluster is running on this machine."""
    for name in Path("/proc").glob("[0-9]*/comm"):
        with suppress(OSError):  # it has ended
            if name.read_text().strip() == "gcs_server":
                return True
    return False


@needs_ray
@pytest.mark.long
@pytest.mark.parametrize("address", ["127.0.0.1:1", "auto", "nowhere"])
def test_an_address_without_a_cluster_is_reported(folder: Path, tmp_path: Path, address: str) -> None:
    files = ["--input", str(folder / "in.fr"), "--output", str(tmp_path / "out.en")]
    words = ["translate", "--model", str(folder / "model"), *files, "--engine", "ray", "--address", address]
    if address == "auto":  # it would find the cluster of another test
        wait_until(lambda: not is_any_cluster_running(), seconds=300)
    done = subprocess.run(
        [sys.executable, "-m", "regard", *words], capture_output=True, text=True, env=ENVIRONMENT, timeout=120
    )
    assert done.returncode == 2
    assert f"regard: no Ray cluster could be reached at {address}: " in done.stderr
    assert "Traceback" not in done.stderr


class RayCluster:
    """A cluster of two workers in processes of its own."""

    def __init__(self) -> None:
        words = [sys.executable, "-m", "tests.support.ray_cluster"]
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=ENVIRONMENT
        )
        self.address = self._read("cluster at ")

    def _read(self, start: str) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(start):
                return line.removeprefix(start).strip()
        raise AssertionError("the cluster did not start")

    def kill_worker(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("kill\n")
        self.process.stdin.flush()
        self._read("killed")

    def close(self) -> None:
        self.process.communicate(timeout=120)


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    cluster = RayCluster()
    yield cluster
    cluster.close()


def start_job(folder: Path, output: Path, cluster: RayCluster) -> "subprocess.Popen[str]":
    """Start a job with relative paths: the cluster runs in another folder."""
    files = ["--input", "in.fr", "--output", str(output)]
    words = ["translate", "--model", "model", *OPTIONS, *files, "--engine", "ray"]
    return subprocess.Popen(
        [sys.executable, "-m", "regard", *words, "--address", cluster.address],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
        cwd=folder,
    )


def finished(output: Path) -> int:
    record = output.with_name(f"{output.name}.job") / FINISHED_FILE
    return record.read_bytes().count(b"\n") if record.exists() else 0


def map_workers() -> list[int]:
    """The processes of Ray that hold a model."""
    names = {int(path.parent.name): path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline")}
    return [process for process, name in names.items() if name.startswith(b"ray::MapWorker")]


@needs_ray
@pytest.mark.long
def test_the_program_of_the_documentation_runs(folder: Path, tmp_path: Path, cluster: RayCluster) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    arrow = pytest.importorskip("pyarrow")
    texts = (folder / "in.fr").read_text().splitlines()[:60]
    (tmp_path / "crawl").mkdir()
    for part in range(3):
        rows = {"id": range(20 * part, 20 * part + 20), "text": texts[20 * part : 20 * part + 20]}
        parquet.write_table(arrow.table(rows), tmp_path / "crawl" / f"{part}.parquet")
    documentation = Path(__file__).parent.parent.parent / "docs" / "jobs.md"
    (program,) = re.findall(r"```python\n(.*?)```", documentation.read_text(encoding="utf-8"), re.S)
    assert '"model": "fr-en"' in program
    own = f'"model": {str(folder / "model")!r}, "max_tokens": 3, "precision": "float32"'
    program = (
        program.replace('"model": "fr-en"', own)
        .replace("2048", "16")
        .replace("concurrency=8", "concurrency=1")
        .replace("/data/", f"{tmp_path}/")
    )
    environment = {**ENVIRONMENT, "RAY_ADDRESS": cluster.address}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=300)
    written = parquet.read_table(tmp_path / "translated").sort_by("id").to_pydict()
    assert written["text"] == texts
    assert written["translation"] == random_model().translate(texts, max_tokens=3)


@needs_ray
@pytest.mark.long
def test_a_job_on_a_cluster_survives_kills_of_workers_and_of_itself(
    folder: Path, tmp_path: Path, cluster: RayCluster
) -> None:
    """First a process with a model is killed, then the command, and in the resumed job one of the two nodes."""
    output = tmp_path / "out.en"
    with start_job(folder, output, cluster) as job:
        wait_until(lambda: finished(output) >= 1 or job.poll() is not None, 300)
        assert job.poll() is None, job.stderr and job.stderr.read()
        os.kill(map_workers()[0], signal.SIGKILL)
        goal = finished(output) + 2
        wait_until(lambda: finished(output) >= goal or job.poll() is not None, 300)
        job.kill()
    before = finished(output)
    assert 3 <= before < 13
    wait_until(lambda: not map_workers(), 120)
    with start_job(folder, output, cluster) as job:
        wait_until(lambda: finished(output) > before or job.poll() is not None, 300)
        assert job.poll() is None, job.stderr and job.stderr.read()
        cluster.kill_worker()
        printed, summary = job.communicate()
    assert job.returncode == 0, summary
    assert printed == ""  # what Ray says about the node is on stderr
    assert "(raylet)" in summary
    assert re.search(r"400 rows translated .* of a Ray cluster on cpu\), \d+ of them in an earlier run", summary)
    stdin = (folder / "in.fr").read_text()
    expected = command("translate", "--model", str(folder / "model"), *OPTIONS, stdin=stdin)
    assert output.read_bytes() == expected.stdout_bytes
