"""Training with several processes: runs that share two processes, and one that dies in the middle of a step.

`python -m tests.support.parallel_jobs FOLDER` executes the jobs of the folder on every rank; `… killed-at STEP
ARGUMENTS` is `regard ARGUMENTS`, of which the second rank is killed in this step, unless it was restarted.
"""

import hashlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from regard import cli
from regard.training import train as train_module
from regard.training.parallel import Ranks, full_tensor, join_ranks, was_restarted
from regard.training.recipe_files import read_recipe
from regard.training.run import TrainingRun
from regard.training.run_setup import prepare_run
from regard.training.schedule import learning_rate
from regard.training.train import training_loop
from tests.support.forked import ForkedProcess, forked

RANKS = 2


@contextmanager
def two_ranks(module: str, *arguments: str) -> Iterator[list[ForkedProcess]]:
    """Start a module on two ranks, with the environment variables and the store that torchrun provides."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    common = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "WORLD_SIZE": str(RANKS),
    }
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                forked(module, *arguments, environment={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)})
            )
            for rank in range(RANKS)
        ]


@dataclass(frozen=True)
class Job:
    """One of several runs in a process."""

    out: str
    changes: list[str]
    resumed_run: str | None = None
    """The run that it resumes, in a copy."""
    nan_step: int | None = None
    """The step whose loss is not a number on the last rank."""


def execute(recipe: str, jobs: list[Job], ranks: Ranks) -> None:
    """Execute the runs; write next to each the results of this rank."""
    for job in jobs:
        if job.resumed_run and ranks.first:
            shutil.copytree(job.resumed_run, job.out)
        with ranks.first_rank_first():  # the copy exists
            chosen = read_recipe(recipe, job.changes)
        run = prepare_run(chosen, Path(job.out), job.resumed_run is not None, ranks)
        if job.nan_step is not None and ranks.rank == ranks.count - 1:
            _make_loss_nan(run, job.nan_step)
        outcome = training_loop(run)
        weights = {name: full_tensor(weight) for name, weight in run.optimizer.named_weights().items()}
        digest = hashlib.sha256(b"".join(weight.detach().numpy().tobytes() for weight in weights.values())).hexdigest()
        result = {"ended": asdict(outcome.ended), "weights": digest, "waited": run.progress.validations_since_best}
        Path(f"{job.out}.{ranks.rank}").write_text(json.dumps(result))


def _make_loss_nan(run: TrainingRun, step: int) -> None:
    def multiply(_module: nn.Module, _inputs: object, loss: Tensor) -> Tensor:
        return loss * float("nan") if run.progress.step == step else loss

    run.objective.register_forward_hook(multiply)


def write_errors(folder: Path, ranks: Ranks) -> None:
    """Write the errors that each rank raises when one of them, or all, cannot continue."""
    found = []
    for failing in ([], [0], [1], [0, 1]):
        for context in (ranks.sharing_errors, ranks.first_rank_first):
            try:
                with context():
                    if ranks.rank in failing:
                        raise ValueError(f"of rank {ranks.rank}")
                found.append("nothing")
            except (ValueError, SystemExit) as error:
                found.append(repr(error))
    (folder / f"errors.{ranks.rank}").write_text(json.dumps(found))


def execute_folder(folder: Path) -> None:
    """Execute the jobs of the folder for this number of ranks."""
    vars(train_module)["score_best_model"] = lambda *_: []  # takes longer than the runs
    with join_ranks("cpu") as ranks:
        name = "jobs.json" if ranks.count > 1 else "jobs-alone.json"
        jobs = [Job(**job) for job in json.loads((folder / name).read_text())]
        execute(str(folder / "tiny.toml"), jobs, ranks)
        if ranks.count > 1:
            write_errors(folder, ranks)


def kill_second_rank_at(step: int) -> None:
    """Kill the second rank by kill -9 in the middle of a step, unless torchrun has restarted it."""

    def rate(now: int, *rest: Any) -> float:
        if now == step:
            os.kill(os.getpid(), signal.SIGKILL)
        return learning_rate(now, *rest)

    if os.environ["RANK"] == "1" and not was_restarted():
        vars(train_module)["learning_rate"] = rate


if __name__ == "__main__":
    if sys.argv[1] == "killed-at":
        kill_second_rank_at(int(sys.argv[2]))
        sys.argv = ["regard", *sys.argv[3:]]
        cli.main()
    else:
        execute_folder(Path(sys.argv[1]))
