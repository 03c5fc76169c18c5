"""Training with several processes: the same losses and weights as with one, and messages printed once.

Most runs share a few processes (tests/support/parallel_jobs.py). torchrun itself is started where it forwards a signal
or restarts a process; otherwise two processes get what it would give them.
"""

import json
import os
import shutil
import signal
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import regard
from regard.petit import corpus_files
from regard.training import train as train_module
from regard.training.events import Ended, Noted, Stepped, Validated
from regard.training.metrics_log import read_metrics
from regard.training.recipe_files import read_recipe
from regard.training.train import train_recipe
from regard.training.training_text import petit_files
from tests.support.forked import ROOT, ForkedProcess, forked, wait_until
from tests.support.parallel_jobs import RANKS, Job, two_ranks

pytestmark = pytest.mark.slow

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
steps = 20
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
    "masked": ["data.task=masked", "model.kind=encoder", "model.norm=pre", SHORT],
    "classes": ["data.task=classification", "model.kind=encoder", "model.norm=pre", SHORT],
}
"""Runs that must give the same results on one process and on two."""
MODES = ("ddp", "fsdp")
STEPS = 12
"""Steps before a run is resumed under another strategy."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a folder with a recipe and a small Petit, which all processes use."""
    found = tmp_path_factory.mktemp("parallel")
    (found / "tiny.toml").write_text(RECIPE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(found / "cache"))
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.setattr(corpus_files, "HELD_OUT", 30)
        patch.setattr(train_module, "score_best_model", lambda *_: [])  # takes longer than the runs
        petit_files(read_recipe(str(found / "tiny.toml")).data, found / "cache")
        yield found


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
        both += [job("begun", mode, *begun), job("patient", mode, *worse), job("nan", mode, SHORT, nan_step=7)]
    both += [job("bfloat16", "ddp", "train.precision=bfloat16", "train.accumulate=2", "train.steps=5")]
    for before in ("one", *MODES):
        begun_so = str(folder / f"begun-{before}")
        both += [job(f"{before}-then", mode, resumed_run=begun_so) for mode in MODES if mode != before]
    (folder / "jobs-alone.json").write_text(json.dumps(alone))
    (folder / "jobs.json").write_text(json.dumps(both))
    with forked("tests.support.parallel_jobs", str(folder)) as process:
        assert process.wait() == 0, process.stderr
    with two_ranks("tests.support.parallel_jobs", str(folder)) as ranks:
        for process in ranks:
            assert process.wait() == 0, process.stderr
            assert process.stderr == ""
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


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", SAME_RUNS)
def test_two_processes_learn_the_same_as_one(runs: Path, name: str, mode: str) -> None:
    alone, shared = runs / f"{name}-one", runs / f"{name}-{mode}"
    assert len(losses(alone)) == (20 if name == "ragged" else 10)
    assert losses(shared) == pytest.approx(losses(alone), abs=1e-5)
    assert validations(shared) == pytest.approx(validations(alone), abs=1e-5)  # on all of the text
    ended = [next(event for event in read_metrics(run) if isinstance(event, Ended)) for run in (alone, shared)]
    assert ended[0].tokens == ended[1].tokens
    if name != "few":  # a rank without rows computes another rank's rows and discards the result
        assert ended[1].flops == pytest.approx(ended[0].flops)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", SAME_RUNS)
def test_the_model_is_saved_as_one_file(runs: Path, name: str, mode: str) -> None:
    alone, shared = weights(runs / f"{name}-one"), weights(runs / f"{name}-{mode}")
    assert alone.keys() == shared.keys()
    for key, weight in alone.items():
        assert torch.allclose(shared[key], weight, rtol=0, atol=1e-5), key
    assert len(list((runs / f"{name}-{mode}").glob("*.safetensors"))) == 1
    model = regard.load(str(runs / f"{name}-{mode}"))
    if name == "masked":
        assert model.fill("Un <mask> dort.")
    else:
        assert model.classify(["Un chat dort."]) if name == "classes" else model.translate(["Un chat dort."])


def test_the_runs_clip_gradients_and_have_few_rows(runs: Path) -> None:
    """Otherwise the comparisons above would prove less than they claim."""
    norms = [event.gradient for event in read_metrics(runs / "accumulated-one") if isinstance(event, Stepped)]
    assert max(norms) > 0.3
    assert losses(runs / "ragged-one")[-1] < losses(runs / "ragged-one")[0] - 0.8
    ended = [event for event in read_metrics(runs / "few-one") if isinstance(event, Ended)]
    assert ended[0].tokens <= 14 * 10


@pytest.mark.parametrize("mode", MODES)
def test_all_ranks_have_the_same_weights(runs: Path, mode: str) -> None:
    for name in (*SAME_RUNS, "nan", *["bfloat16"] * (mode == "ddp")):
        first, second = rank_results(runs / f"{name}-{mode}")
        assert first["weights"] == second["weights"], name


@pytest.mark.parametrize(("before", "after"), list(permutations(("one", *MODES), 2)))
def test_a_run_resumes_under_another_strategy(runs: Path, before: str, after: str) -> None:
    out = runs / f"{before}-then-{after}"
    if after == "one":
        shutil.copytree(runs / f"begun-{before}", out)
        train_recipe(read_recipe(str(runs / "tiny.toml")), out, resume=True)
    notes = [event.text for event in read_metrics(out) if isinstance(event, Noted)]
    assert any(f"after step {STEPS}" in note for note in notes), notes
    assert losses(out) == pytest.approx(losses(runs / "ragged-one"), abs=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
def test_two_processes_learn_the_same_with_a_compiled_network(runs: Path, mode: str) -> None:
    """FSDP2 gathers the weights of a layer where the compiled graph breaks."""
    out = runs / f"compiled-{mode}"
    changes = ("train.compile=true", f"train.parallel={mode}", SHORT)
    with torchrun("-m", "regard", *arguments(runs, out.name, *changes)) as process:
        assert process.wait() == 0, process.stderr
    assert losses(out) == pytest.approx(losses(runs / "ragged-one")[:10], abs=1e-5)


# Decisions that all ranks share


@pytest.mark.parametrize("mode", MODES)
def test_patience_stops_all_ranks(runs: Path, mode: str) -> None:
    first, second = rank_results(runs / f"patient-{mode}")
    alone = json.loads((runs / "patient-one.0").read_text())
    assert first["ended"]["reason"] == second["ended"]["reason"] == alone["ended"]["reason"] == "patience"
    assert first["ended"]["step"] == second["ended"]["step"] == alone["ended"]["step"] < 50
    assert first["waited"] == second["waited"] == 2


@pytest.mark.parametrize("mode", MODES)
def test_a_non_finite_loss_on_one_rank_is_skipped_by_all(runs: Path, mode: str) -> None:
    first, second = rank_results(runs / f"nan-{mode}")
    assert first["ended"]["skipped"] == second["ended"]["skipped"] == 1
    assert first["weights"] == second["weights"]
    found = losses(runs / f"nan-{mode}")
    undisturbed = losses(runs / f"ragged-{mode}")
    assert found[:6] == undisturbed[:6]
    assert found[6] != found[6]  # NaN
    assert found[7] == pytest.approx(undisturbed[7], abs=0.5)
    assert found[7] != undisturbed[7]


def test_an_error_on_one_rank_ends_all_and_is_reported_once(runs: Path) -> None:
    first, second = (json.loads((runs / f"errors.{rank}").read_text()) for rank in (0, 1))
    told, silent = "ValueError('of rank {}')", "SystemExit(2)"
    assert first == ["nothing"] * 2 + [told.format(0)] * 2 + [silent] * 2 + [told.format(0)] * 2
    assert second == ["nothing"] * 2 + [silent] * 2 + [told.format(1)] * 2 + [silent] * 2


# The command


def arguments(folder: Path, out: str, *changes: str) -> list[str]:
    sets = [word for change in changes for word in ("--set", change)]
    return ["train", str(folder / "tiny.toml"), "--out", str(folder / out), *sets]


def wait_for_step(run: Path, step: int, processes: Sequence[ForkedProcess]) -> None:
    def reached() -> bool:
        return any(isinstance(event, Stepped) and event.step >= step for event in read_metrics(run))

    for process in processes:
        wait_until(reached, process)


def test_the_command_prints_every_message_once(runs: Path) -> None:
    with two_ranks("regard", *arguments(runs, "command")) as ranks:
        assert [process.wait() for process in ranks] == [0, 0]
        assert [process.stderr for process in ranks] == ["", ""]
        lines = [line for process in ranks for line in process.stdout.splitlines()]
    assert len(lines) == len(set(lines))
    assert any("2 devices (ddp)" in line for line in lines)
    assert losses(runs / "command") == losses(runs / "ragged-ddp")


@pytest.mark.parametrize(
    ("out", "changes", "message"),
    [
        ("ragged-one", [], "already holds a run: continue it with --resume"),
        ("nowhere", ["data.petit=0", 'data.train=[{ files = ["no.fr", "no.en"] }]'], "no such file"),
    ],
)
def test_user_errors_are_reported_once_and_end_all_ranks(
    runs: Path, out: str, changes: list[str], message: str
) -> None:
    """Every rank ends by itself: torchrun would kill a waiting one only after 30 seconds."""
    with two_ranks("regard", *arguments(runs, out, *changes)) as ranks:
        assert [process.wait() for process in ranks] == [2, 2]
        errors = "".join(process.stderr for process in ranks)
    assert errors.count(message) == 1, errors
    assert not (runs / "nowhere").exists()


ENDLESS = ("train.steps=100000", "train.validate_every=100000")


def check_interrupted_run(runs: Path, out: Path, output: str) -> None:
    """It was saved when the signal came, and resumes as if there had been none."""
    assert "Interrupted at step" in output
    step = int(max((out / "checkpoints").glob("step-*")).name.removeprefix("step-"))
    changes = [f"train.steps={step + 3}", "train.validate_every=100000"]
    train_recipe(read_recipe(str(runs / "tiny.toml"), changes), out, resume=True)
    assert [event.step for event in read_metrics(out) if isinstance(event, Stepped)] == [*range(1, step + 4)]
    undisturbed = losses(runs / "ragged-one")
    assert losses(out)[: len(undisturbed)] == pytest.approx(undisturbed[: step + 3], abs=1e-5)


def test_a_signal_saves_and_ends_every_rank(runs: Path) -> None:
    out = runs / "interrupted-ranks"
    with two_ranks("regard", *arguments(runs, out.name, *ENDLESS)) as ranks:
        wait_for_step(out, 5, ranks)
        for process in ranks:
            process.send_signal(signal.SIGINT)
        assert [process.wait() for process in ranks] == [128 + signal.SIGINT, 0]
        output = "".join(process.stdout for process in ranks)
    check_interrupted_run(runs, out, output)


# torchrun


def torchrun(*arguments: str) -> AbstractContextManager[ForkedProcess]:
    """Start torchrun, which starts two processes that import everything themselves."""
    options = ["--standalone", "--nproc-per-node", str(RANKS), "--monitor-interval", "0.1"]
    return forked("torch.distributed.run", *options, *arguments)


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


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="there is no /proc to find processes in")
def test_a_signal_to_torchrun_saves_and_ends_every_process(runs: Path) -> None:
    out = runs / "interrupted"
    with torchrun("-m", "regard", *arguments(runs, out.name, *ENDLESS, "train.parallel=fsdp")) as process:
        wait_for_step(out, 5, [process])
        workers = children(process.pid)
        assert len(workers) == RANKS
        process.send_signal(signal.SIGTERM)
        assert process.wait() != 0
        assert not any(alive(group) for group in (*workers, process.pid))
        output = process.stdout
    check_interrupted_run(runs, out, output)


def test_a_killed_worker_is_restarted(runs: Path) -> None:
    """Steps 11 to 13 are trained again, with the same results."""
    out = runs / "killed"
    command = arguments(runs, out.name, "train.checkpoint_every=10")
    with torchrun("--max-restarts", "1", "-m", "tests.support.parallel_jobs", "killed-at", "14", *command) as process:
        assert process.wait() == 0, process.stderr
    notes = [event.text for event in read_metrics(out) if isinstance(event, Noted)]
    assert any("resumes after step 10" in note for note in notes)
    assert len(losses(out)) == 20
    assert losses(out) == losses(runs / "ragged-ddp")
    undisturbed = weights(runs / "ragged-ddp")
    assert all(torch.equal(weight, undisturbed[key]) for key, weight in weights(out).items())
