"""Training with several processes: the same losses and weights as with one, and messages printed once.

Most runs share a few processes, since each takes seconds to start: this file is also the script that torchrun starts
there. The command itself is started where signals, output and restarts matter.
"""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import regard
from regard.training import train as train_module
from regard.training.events import Ended, Noted, Stepped, Validated
from regard.training.metrics_log import read_metrics
from regard.training.parallel import Ranks, full_tensor, join_ranks
from regard.training.recipe_files import read_recipe
from regard.training.run import TrainingRun
from regard.training.run_setup import prepare_run
from regard.training.train import train_recipe, training_loop

RECIPE = """
[data]
petit = 300
[tokenizer]
vocab_size = 512
[model]
d_model = 32
heads = 4
layers = 1
d_ff = 64
dropout = 0.0
[train]
steps = 30
batch_tokens = 256
lr = 3e-3
warmup = 10
eps = 1e-4  # with the paper's, Adam makes steps of roundings: what has no gradient (biases of keys) goes anywhere
validate_every = 10
validation_sentences = 0
checkpoint_every = 1000
log_every = 1
device = "cpu"
[decode]
beam = 1
"""

SHORT = "train.steps=10"
SAME_RUNS: dict[str, list[str]] = {
    "ragged": [],
    "accumulated": ["train.accumulate=2", "train.clip=0.3", SHORT],
    "few": ["train.batch_tokens=14", SHORT],  # most batches have one row
    "decoder": [
        *("model.kind=decoder", "model.layers=2", "model.prefix=true", "model.norm=pre", "model.positions=rotary"),
        *("train.packed=true", "train.max_length=64", "train.batch_tokens=512", SHORT),
    ],
    "untied": [
        *("model.tied=false", "model.output_bias=true", "train.optimizer=adamw", "train.weight_decay=0.1"),
        *("train.average=2", "train.validate_every=5", SHORT),
    ],
    "classes": ["data.task=classification", "model.kind=encoder", "model.norm=pre", SHORT],
}
"""Runs that must give the same results on one process and on two."""
MODES = ("ddp", "fsdp")
LONG = ["train.steps=200", "train.checkpoint_every=20", "train.validate_every=100"]
STEPS = 20
"""Steps before a run is resumed under another strategy."""


@dataclass(frozen=True)
class Job:
    """One of several runs in a process."""

    out: str
    changes: list[str]
    goes_on: str | None = None
    """the run that it goes on with, in a copy"""
    poison: int | None = None
    """the step whose loss is not a number on the last rank"""


def work(recipe: str, jobs: list[Job], here: Ranks) -> None:
    """Execute the runs; write next to each the results of this rank."""
    for job in jobs:
        if job.goes_on and here.first:
            shutil.copytree(job.goes_on, job.out)
        with here.first_rank_first():  # the copy exists
            chosen = read_recipe(recipe, job.changes)
        run = prepare_run(chosen, Path(job.out), job.goes_on is not None, here)
        if job.poison is not None and here.rank == here.count - 1:
            _poison(run, job.poison)
        outcome = training_loop(run)
        weights = {name: full_tensor(weight) for name, weight in run.optimizer.named_weights().items()}
        digest = hashlib.sha256(b"".join(weight.detach().numpy().tobytes() for weight in weights.values())).hexdigest()
        told = {"ended": asdict(outcome.ended), "weights": digest, "waited": run.progress.validations_since_best}
        Path(f"{job.out}.{here.rank}").write_text(json.dumps(told))


def _poison(run: TrainingRun, step: int) -> None:
    def poisoned(_module: nn.Module, _inputs: object, loss: Tensor) -> Tensor:
        return loss * float("nan") if run.progress.step == step else loss

    run.objective.register_forward_hook(poisoned)


def errors(folder: Path, here: Ranks) -> None:
    """Return the errors that each rank raises when one of them, or all, cannot continue."""
    found = []
    for failing in ([], [0], [1], [0, 1]):
        for context in (here.sharing_errors, here.first_rank_first):
            try:
                with context():
                    if here.rank in failing:
                        raise ValueError(f"of rank {here.rank}")
                found.append("nothing")
            except (ValueError, SystemExit) as error:
                found.append(repr(error))
    (folder / f"errors.{here.rank}").write_text(json.dumps(found))


def main(folder: Path) -> None:
    """The entry point of a process, started by torchrun or alone."""
    train_module.score_best_model = lambda *_: []  # type: ignore[attr-defined]  # takes longer than the runs
    with join_ranks("cpu") as here:
        name = "jobs.json" if here.count > 1 else "jobs-alone.json"
        jobs = [Job(**each) for each in json.loads((folder / name).read_text())]
        work(str(folder / "tiny.toml"), jobs, here)
        if here.count > 1:
            errors(folder, here)


if __name__ == "__main__":
    main(Path(sys.argv[1]))


# Starting processes


def torchrun(*arguments: str) -> list[str]:
    options = ["--standalone", "--nproc-per-node", "2", "--monitor-interval", "0.1"]
    return [sys.executable, "-m", "torch.distributed.run", *options, *arguments]


def command(folder: Path, out: str, *changes: str, resume: bool = False, restarts: int = 0) -> list[str]:
    options = [word for change in changes for word in ("--set", change)] + ["--resume"] * resume
    run = ["-m", "regard", "train", str(folder / "tiny.toml"), "--out", str(folder / out), *options]
    return torchrun("--max-restarts", str(restarts), *run)


def start_process(arguments: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def started(arguments: list[str], timeout: float = 60) -> subprocess.CompletedProcess[str]:
    process = start_process(arguments)
    try:
        return subprocess.CompletedProcess(arguments, process.wait(timeout), *process.communicate(timeout=5))
    except subprocess.TimeoutExpired:
        process.terminate()  # torchrun then ends the processes that it started
        pytest.fail(f"it does not end: {process.communicate(timeout=40)}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    found = tmp_path_factory.mktemp("parallel")
    (found / "tiny.toml").write_text(RECIPE)
    before = {key: os.environ.get(key) for key in ("REGARD_CACHE", "OMP_NUM_THREADS", "PYTHONPATH")}
    os.environ |= {
        "REGARD_CACHE": str(found / "cache"),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    yield found
    for key, value in before.items():
        os.environ.pop(key) if value is None else os.environ.update({key: value})


@pytest.fixture(autouse=True)
def no_final_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Final scores take longer than the runs."""
    monkeypatch.setattr(train_module, "score_best_model", lambda *_: [])


@pytest.fixture(scope="module")
def runs(folder: Path) -> Path:
    """Return the folder with all runs that need no command of their own: `NAME-one`, `NAME-ddp`, `NAME-fsdp`."""

    def job(name: str, mode: str, *changes: str, **more: Any) -> dict[str, Any]:
        parallel = f"train.parallel={'ddp' if mode == 'one' else mode}"
        return asdict(Job(str(folder / f"{name}-{mode}"), [*changes, parallel], **more))

    begun = [f"train.steps={STEPS}"]
    worse = [*SAME_RUNS["classes"], "train.lr=3.0", "train.warmup=0", "train.validate_every=2", "train.patience=2"]
    worse[worse.index(SHORT)] = "train.steps=50"
    alone = [job(name, "one", *changes) for name, changes in SAME_RUNS.items()]
    alone += [job("begun", "one", *begun), job("patient", "one", *worse)]
    both = [job(name, mode, *changes) for mode in MODES for name, changes in SAME_RUNS.items()]
    for mode in MODES:
        both += [job("begun", mode, *begun), job("patient", mode, *worse), job("poisoned", mode, SHORT, poison=7)]
    both += [job("bfloat16", "ddp", "train.precision=bfloat16", "train.accumulate=2", "train.steps=5")]
    both += [job("not-killed", "ddp", *LONG)]
    for before in ("one", *MODES):
        begun_so = str(folder / f"begun-{before}")
        both += [job(f"{before}-then", mode, goes_on=begun_so) for mode in MODES if mode != before]
    (folder / "jobs-alone.json").write_text(json.dumps(alone))
    (folder / "jobs.json").write_text(json.dumps(both))
    script = [__file__, str(folder)]
    single = started([sys.executable, *script], timeout=120)
    assert single.returncode == 0, single.stderr
    pair = started(torchrun(*script), timeout=240)
    assert pair.returncode == 0, pair.stderr
    assert pair.stderr == ""
    return folder


def losses(run: Path) -> list[float]:
    return [event.loss for event in read_metrics(run) if isinstance(event, Stepped)]


def validations(run: Path) -> list[float]:
    return [event.loss for event in read_metrics(run) if isinstance(event, Validated)]


def weights(run: Path) -> dict[str, Tensor]:
    return load_file(run / "model.safetensors")


def rank_results(run: Path) -> list[dict[str, Any]]:
    """Return what each of two ranks has written."""
    return [json.loads(Path(f"{run}.{rank}").read_text()) for rank in (0, 1)]


# Equal results for every way of splitting the work


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", SAME_RUNS)
def test_two_processes_learn_the_same_as_one(runs: Path, name: str, mode: str) -> None:
    alone, shared = runs / f"{name}-one", runs / f"{name}-{mode}"
    assert len(losses(alone)) == (30 if name == "ragged" else 10)
    assert losses(shared) == pytest.approx(losses(alone), abs=1e-5)
    assert validations(shared) == pytest.approx(validations(alone), abs=1e-5)  # on all of the text
    ended = [next(event for event in read_metrics(run) if isinstance(event, Ended)) for run in (alone, shared)]
    assert ended[0].tokens == ended[1].tokens
    if name != "few":  # a rank without rows computes another rank's rows and discards the result
        assert ended[1].flops == pytest.approx(ended[0].flops)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", SAME_RUNS)
def test_the_model_is_saved_as_one_file(runs: Path, name: str, mode: str) -> None:
    alone, shared = weights(runs / f"{name}-one"), weights(runs / f"{name}-{mode}")
    assert alone.keys() == shared.keys()
    for key, weight in alone.items():
        assert torch.allclose(shared[key], weight, rtol=0, atol=1e-5), key
    assert len(list((runs / f"{name}-{mode}").glob("*.safetensors"))) == 1
    model = regard.load(str(runs / f"{name}-{mode}"))
    assert model.classify(["Un chat dort."]) if name == "classes" else model.translate(["Un chat dort."])


@pytest.mark.slow
def test_the_runs_clip_gradients_and_have_few_rows(runs: Path) -> None:
    """Otherwise the comparisons above would prove less than they claim."""
    norms = [event.gradient for event in read_metrics(runs / "accumulated-one") if isinstance(event, Stepped)]
    assert max(norms) > 0.3
    assert losses(runs / "ragged-one")[-1] < losses(runs / "ragged-one")[0] - 1
    ended = [event for event in read_metrics(runs / "few-one") if isinstance(event, Ended)]
    assert ended[0].tokens <= 14 * 10


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_all_ranks_have_the_same_weights(runs: Path, mode: str) -> None:
    for name in (*SAME_RUNS, "poisoned", *["bfloat16"] * (mode == "ddp")):
        first, second = rank_results(runs / f"{name}-{mode}")
        assert first["weights"] == second["weights"], name


@pytest.mark.slow
@pytest.mark.parametrize("after", ["one", *MODES])
@pytest.mark.parametrize("before", ["one", *MODES])
def test_a_run_resumes_under_another_strategy(runs: Path, before: str, after: str) -> None:
    if before == after:
        pytest.skip("that is the same way")
    out = runs / f"{before}-then-{after}"
    if after == "one":
        shutil.copytree(runs / f"begun-{before}", out)
        train_recipe(read_recipe(str(runs / "tiny.toml")), out, resume=True)
    notes = [event.text for event in read_metrics(out) if isinstance(event, Noted)]
    assert any(f"after step {STEPS}" in note for note in notes), notes
    assert losses(out) == pytest.approx(losses(runs / "ragged-one"), abs=1e-5)


# Decisions that all ranks share


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_patience_stops_all_ranks(runs: Path, mode: str) -> None:
    first, second = rank_results(runs / f"patient-{mode}")
    alone = json.loads((runs / "patient-one.0").read_text())
    assert first["ended"]["reason"] == second["ended"]["reason"] == alone["ended"]["reason"] == "patience"
    assert first["ended"]["step"] == second["ended"]["step"] == alone["ended"]["step"] < 50
    assert first["waited"] == second["waited"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_a_non_finite_loss_on_one_rank_is_skipped_by_all(runs: Path, mode: str) -> None:
    first, second = rank_results(runs / f"poisoned-{mode}")
    assert first["ended"]["skipped"] == second["ended"]["skipped"] == 1
    assert first["weights"] == second["weights"]
    found = losses(runs / f"poisoned-{mode}")
    undisturbed = losses(runs / f"ragged-{mode}")
    assert found[:6] == undisturbed[:6]
    assert found[6] != found[6]  # NaN
    assert found[7] == pytest.approx(undisturbed[7], abs=0.5)
    assert found[7] != undisturbed[7]


@pytest.mark.slow
def test_an_error_on_one_rank_ends_all_and_is_reported_once(runs: Path) -> None:
    first, second = (json.loads((runs / f"errors.{rank}").read_text()) for rank in (0, 1))
    told, silent = "ValueError('of rank {}')", "SystemExit(2)"
    assert first == ["nothing"] * 2 + [told.format(0)] * 2 + [silent] * 2 + [told.format(0)] * 2
    assert second == ["nothing"] * 2 + [silent] * 2 + [told.format(1)] * 2 + [silent] * 2


# The command


def wait_for_step(run: Path, step: int, process: subprocess.Popen[str]) -> None:
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        if process.poll() is not None:
            pytest.fail(f"it ended too soon: {process.communicate()}")
        if any(isinstance(event, Stepped) and event.step >= step for event in read_metrics(run)):
            return
        time.sleep(0.05)
    pytest.fail("it does not get on")


def children(parent: int) -> list[int]:
    """Return the child processes of a process; each of torchrun's leads its own process group."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, rest = int(stat.parent.name), stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended in the meantime
            continue
        if int(rest[1]) == parent:
            found.append(pid)
    return sorted(found)


def alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="there is no /proc to find processes in")


@pytest.mark.slow
def test_the_command_prints_every_message_once(runs: Path) -> None:
    done = started(command(runs, "command"))
    assert done.returncode == 0
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert len(lines) == len(set(lines))
    assert any("2 devices (ddp)" in line for line in lines)
    assert losses(runs / "command") == losses(runs / "ragged-ddp")


@pytest.mark.slow
def test_user_errors_are_reported_once_and_end_all_ranks(runs: Path) -> None:
    for changes, message in (
        ([], "already holds a run: continue it with --resume"),
        (["data.petit=0", 'data.train=[{ files = ["no.fr", "no.en"] }]'], "no such file"),
    ):
        begun = time.monotonic()
        failed = started(command(runs, "ragged-one" if not changes else "nowhere", *changes))
        assert failed.returncode != 0
        assert failed.stderr.count(message) == 1, failed.stderr
        assert time.monotonic() - begun < 29  # torchrun waits for 30 s before it kills waiting processes
        assert not (runs / "nowhere").exists()


@needs_proc
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_ends_every_process(runs: Path, number: signal.Signals) -> None:
    mode = "fsdp" if number == signal.SIGTERM else "ddp"
    out = runs / f"interrupted-{number.name}"
    long = ["train.steps=100000", "train.validate_every=100000", f"train.parallel={mode}"]
    process = start_process(command(runs, out.name, *long))
    wait_for_step(out, 5, process)
    workers = children(process.pid)
    assert len(workers) == 2
    process.send_signal(number)
    said, _ = process.communicate(timeout=40)
    assert process.returncode != 0
    assert not any(alive(group) for group in (*workers, process.pid))
    assert "Interrupted at step" in said
    step = int(max((out / "checkpoints").glob("step-*")).name.removeprefix("step-"))
    changes = [f"train.steps={step + 3}", "train.validate_every=100000"]
    train_recipe(read_recipe(str(runs / "tiny.toml"), changes), out, resume=True)
    assert [event.step for event in read_metrics(out) if isinstance(event, Stepped)] == [*range(1, step + 4)]
    undisturbed = losses(runs / "ragged-one")
    assert losses(out)[: len(undisturbed)] == pytest.approx(undisturbed[: step + 3], abs=1e-5)


@needs_proc
@pytest.mark.slow
def test_a_killed_worker_is_restarted(runs: Path) -> None:
    out = runs / "killed"
    process = start_process(command(runs, out.name, *LONG, restarts=1))
    wait_for_step(out, 30, process)
    os.kill(children(process.pid)[1], signal.SIGKILL)
    _, noise = process.communicate(timeout=90)
    assert process.returncode == 0, noise
    notes = [event.text for event in read_metrics(out) if isinstance(event, Noted)]
    assert any("resumes after step" in note for note in notes)
    assert len(losses(out)) == 200
    assert losses(out) == losses(runs / "not-killed-ddp")
    undisturbed = weights(runs / "not-killed-ddp")
    assert all(torch.equal(weight, undisturbed[key]) for key, weight in weights(out).items())
