"""A run is killed at random instants, over and over, and must end as one left in peace; then bytes are changed.

Processes are real, and so is kill -9: from outside, at a time that is drawn or as soon as a save has begun. Run by
`make torture`; tests/training/test_survival.py has a short one.
"""

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import torch

import regard
from regard.atomic_files import file_digest
from regard.petit import corpus_files
from regard.training.checkpoint_files import newest_checkpoint, publish_model
from regard.training.events import Stepped, Validated
from regard.training.metrics_log import read_metrics
from regard.training.recipe import Recipe
from regard.training.recipe_files import read_recipe
from regard.training.train import train_recipe

with suppress(ImportError):  # before processes part: each would import it anew
    import torch.utils.tensorboard

RECIPE = """
[data]
train = { files = ["train.fr", "train.en"] }
validation = { files = ["dev.fr", "dev.en"] }
[tokenizer]
vocab_size = 320
[model]
d_model = 16
heads = 2
layers = 1
d_ff = 32
dropout = 0.1
[train]
batch_tokens = 200
max_length = 64
accumulate = 2
average = 3
lr = 1e-3
warmup = 5
validate_every = 5
validation_sentences = 0
checkpoint_every = 1
log_every = 3
device = "cpu"
[decode]
beam = 1
max_tokens = 2
"""
SAVE_SECONDS = 0.03
"""about what a save takes from its first trace on: kills are drawn from it"""


@dataclass
class Figures:
    """What was done, and what came of it."""

    kills: Counter[str] = field(default_factory=Counter)
    """by where the process was, as far as what it left behind tells"""
    lost: int = 0
    """steps of which a checkpoint had been told, and which were made again; at most 0"""
    loads: int = 0
    """of the run's model between its processes"""
    faults: list[str] = field(default_factory=list)
    damaged: Counter[str] = field(default_factory=Counter)
    """flips and truncations that were noticed"""


FAR = 5
"""steps that a process makes before it is killed, if its time has not come by then"""


def prepare(folder: Path, steps: int) -> Recipe:
    """Text and a recipe in the folder, as small as can be."""
    os.environ["REGARD_CACHE"] = str(folder / "cache")
    corpus_files.HELD_OUT = 10
    corpus_files.write_petit(200, folder / "text", 0)
    (folder / "small.toml").write_text(RECIPE)
    return read_recipe(str(folder / "small.toml"), [f"train.steps={steps}", f"data.folder={folder / 'text'}"])


def fork(work: Callable[[], object], log: Path) -> int:
    """A process of its own that does the work; its id. What it says goes to the log."""
    if pid := os.fork():
        return pid
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    try:
        work()
        os._exit(0)
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
        os._exit(1)


def ended(pid: int) -> int | None:
    """The exit status of a process, or None as long as it runs."""
    found, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


def kill(pid: int) -> None:
    """kill -9, and wait until it is gone."""
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def temporaries(run: Path) -> list[str]:
    """What is being written, or was when the process was killed."""
    return [each.name for each in (run / "checkpoints").glob(".*-*") if not each.name.endswith(".gone")]


def newest_step(run: Path) -> int:
    return max((int(each.name[5:]) for each in (run / "checkpoints").glob("step-*")), default=0)


def where(run: Path) -> str:
    """Where a process was when it was killed."""
    names = [each.name for each in [*(run / "checkpoints").glob(".*"), *run.glob(".*")]]
    if any(name.startswith((".step-", ".best-")) and not name.endswith(".gone") for name in names):
        return "inside a save"
    if any(name.endswith(".gone") for name in names):
        return "inside a removal"
    if any(name.startswith((".metrics", ".samples", ".recipe")) for name in names):
        return "inside a log's rewriting"
    return "elsewhere"


def watch(pid: int, run: Path, draw: random.Random, in_save: bool, longest: float) -> bool:
    """Kill the process: as soon as a save begins or a moment later, or at a time that is drawn. Whether it was.

    However quick the machine, it does not come far: no process makes more than a few steps.
    """
    until, far = time.monotonic() + draw.uniform(0, longest), newest_step(run) + FAR
    skip = draw.randrange(4)  # saves that are let pass
    seen: set[str] = set()
    while ended_now(pid) is False:
        if in_save:
            fresh = set(temporaries(run)) - seen
            if fresh and len(seen) >= skip:
                time.sleep(draw.choice([0.0, draw.uniform(0, SAVE_SECONDS)]))
                break
            seen |= fresh
        elif time.monotonic() >= until or newest_step(run) >= far:
            break
        else:
            time.sleep(0.001)
    else:
        return False
    kill(pid)
    return True


def ended_now(pid: int) -> bool:
    """Whether the process has ended, without taking its status away."""
    info = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    return info is not None


def storm(recipe: Recipe, run: Path, kills: int, in_save: int, draw: random.Random, figures: Figures) -> None:
    """Train with so many kills, at least `in_save` of them inside a save; then let it come to its end."""
    log = run.with_suffix(".log")
    begun = time.monotonic()
    while (done := figures.kills.total()) < kills or figures.kills["inside a save"] < in_save:
        before = newest_step(run)
        pid = fork(lambda: train_recipe(recipe, run, resume=True), log)
        if not watch(pid, run, draw, in_save=draw.random() < 0.6, longest=1.5):
            _, status = os.waitpid(pid, 0)
            raise SystemExit(f"the run was over after {done} kills (status {status}): {log.read_text()[-2000:]}")
        figures.kills[where(run)] += 1
        figures.lost += newest_step(run) < before
        if list((run / "checkpoints").glob("best-*")):
            try:
                regard.load(run)
                figures.loads += 1
            except ValueError as error:
                figures.faults.append(str(error))
        if done % 20 == 19:
            print(f"  {done + 1} kills, step {newest_step(run)}, {time.monotonic() - begun:.0f} s", flush=True)
    finish(recipe, run, log)


def finish(recipe: Recipe, run: Path, log: Path) -> None:
    """Train to the end, without harm."""
    pid = fork(lambda: train_recipe(recipe, run, resume=True), log)
    _, status = os.waitpid(pid, 0)
    if status:
        raise SystemExit(f"the run did not come to its end: {log.read_text()[-2000:]}")


def storm_of_publishing(run: Path, kills: int, draw: random.Random, figures: Figures) -> None:
    """Kill while the best model is brought up into the run's folder: it must be loadable at any time."""
    best = max((run / "checkpoints").glob("best-*"))

    def work() -> None:
        while True:
            publish_model(run, best)

    for _ in range(kills):
        pid = fork(work, run.with_suffix(".log"))
        time.sleep(draw.uniform(0.0, 0.05))
        kill(pid)
        inside = not (run / "config.json").exists() or list(run.glob(".coming.*"))
        figures.kills["inside publishing" if inside else "between two publishings"] += 1
        try:
            regard.load(run)
            figures.loads += 1
        except ValueError as error:
            figures.faults.append(str(error))
    publish_model(run, best)


def flips(content: bytes, draw: random.Random) -> bytes:
    """One bit is another."""
    place = draw.randrange(len(content))
    return content[:place] + bytes([content[place] ^ 1 << draw.randrange(8)]) + content[place + 1 :]


def truncations(content: bytes, draw: random.Random) -> bytes:
    """The end is missing: much of it, or a byte."""
    return content[: draw.choice([len(content) - 1, draw.randrange(len(content))])]


def damage(run: Path, folder: Path, changes: dict[str, int], draw: random.Random, figures: Figures) -> None:
    """Change a checkpoint's files one after the other, a byte at a time: each change must be noticed."""
    shutil.copytree(max((run / "checkpoints").glob("step-*")), folder / "checkpoints" / "step-00000001")
    files = sorted((folder / "checkpoints" / "step-00000001").iterdir())
    assert newest_checkpoint(folder)[0] is not None
    for kind, changed in (("flips", flips), ("truncations", truncations)):
        for number in range(changes[kind]):
            file = files[number % len(files)]
            content = file.read_bytes()
            file.write_bytes(changed(content, draw))
            try:
                newest_checkpoint(folder)
                figures.faults.append(f"{kind} of {file.name} (number {number}) was not noticed")
            except ValueError as error:
                figures.damaged[kind] += str(file) in str(error) or str(file.parent) in str(error)
            file.write_bytes(content)
    assert newest_checkpoint(folder)[0] is not None


def losses(run: Path) -> list[tuple[int, float]]:
    return [(each.step, each.loss) for each in read_metrics(run) if isinstance(each, Stepped | Validated)]


def differences(peace: Path, war: Path) -> Iterator[str]:
    """What of a run is not as it would have been in peace."""
    for name in ("model.safetensors", "config.json"):
        if file_digest(peace / name) != file_digest(war / name):
            yield name
    last = max(each.name for each in (peace / "checkpoints").glob("step-*"))
    if file_digest(peace / "checkpoints" / last / "training.safetensors") != file_digest(
        war / "checkpoints" / last / "training.safetensors"
    ):
        yield "the optimizer's state"
    if losses(peace) != losses(war):
        yield "metrics.jsonl's losses"
    here, there = ({each.name for each in (run / "checkpoints").iterdir()} for run in (peace, war))
    if here != there:
        yield f"checkpoints: {sorted(here ^ there)}"


def main() -> None:
    """Everything, then a table. Exits with 1 if anything was not as it should be."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200, help="kill -9 at random instants")
    parser.add_argument("--in-save", type=int, default=50, help="of those, at least so many inside a save")
    parser.add_argument("--publishing", type=int, default=50, help="kill -9 around the publishing of the best model")
    parser.add_argument("--flips", type=int, default=1_000, help="bits that are flipped in a checkpoint's files")
    parser.add_argument("--truncations", type=int, default=1_000, help="cuts of a checkpoint's files")
    parser.add_argument("--seed", type=int, default=0, help="what is drawn")
    args = parser.parse_args()
    torch.set_num_threads(1)
    draw, figures, begun = random.Random(args.seed), Figures(), time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        recipe = prepare(folder, steps=2 * FAR * (5 + max(args.kills, args.in_save)))
        peace, war = folder / "peace", folder / "war"
        finish(recipe, peace, peace.with_suffix(".log"))
        print(f"{recipe.train.steps} steps in peace; now with {args.kills} kills", flush=True)
        storm(recipe, war, args.kills, args.in_save, draw, figures)
        different = list(differences(peace, war))
        storm_of_publishing(war, args.publishing, draw, figures)
        damage(war, folder / "damaged", vars(args), draw, figures)
        sums = file_digest(peace / "model.safetensors"), file_digest(war / "model.safetensors")
    for place, count in sorted(figures.kills.items()):
        print(f"{'kill -9 ' + place:<44} {count:>6}")
    print(f"{'loads between them, each of a whole model':<44} {figures.loads:>6}")
    print(f"{'checkpoints lost':<44} {figures.lost:>6}")
    print(f"{'SHA-256 in peace':<44} {sums[0][:16]}…")
    print(f"{'SHA-256 after the kills':<44} {sums[1][:16]}…")
    for kind in ("flips", "truncations"):
        print(f"{kind + ' noticed, of all':<44} {figures.damaged[kind]:>6} of {getattr(args, kind)}")
    print(f"{'seconds':<44} {time.monotonic() - begun:>6.0f}")
    faults = [*figures.faults, *(f"not as in peace: {each}" for each in different)]
    noticed = all(figures.damaged[kind] == getattr(args, kind) for kind in ("flips", "truncations"))
    print("\n".join(faults) or "nothing was lost, and nothing went unnoticed")
    sys.exit(bool(faults) or bool(figures.lost) or not noticed or sums[0] != sums[1])


if __name__ == "__main__":
    main()
