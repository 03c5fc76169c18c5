"""Answer shards in processes of this machine: one per core, with shared weights, or one per GPU.

On CPUs the model is loaded once, and worker processes are forked from this one: they share the memory of its weights,
also of those in oneDNN's format. Each computes on one thread, so that a shard's answers do not depend on the number of
workers. A process that uses a GPU cannot be forked; there, each worker loads the model itself.

Each worker has a pipe of its own, through which it gets a shard when it is idle and returns it finished. A worker that
dies in the middle takes nothing with it but its shard, which another one answers. A worker whose parent dies ends
itself at the next token.
"""

import os
import pickle
import signal
import sys
import warnings
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from regard.decoding.cancellation import Cancelled, cancellable
from regard.errors import CallError, ModelError, RegardError
from regard.jobs.shards import FinishedShard, Shard, ShardSource
from regard.jobs.tasks import AnswerTexts, ShardWork
from regard.threads import one_thread

MIN_WORKER_BYTES = 4_096
"""Smaller inputs are answered in this process: about thirty sentences, which take less time than starting workers."""
MAX_ATTEMPTS = 3
"""Number of workers that may die over a shard before the job is stopped."""
PARENT_CHECK_SECONDS = 1.0
"""How often an idle worker checks that its parent is alive, in seconds."""


class LocalEngine:
    """Where a job runs on this machine: in this process, or in one process for each core or GPU."""

    def __init__(self, device: str, workers: int | None, input_size: int) -> None:
        """`device` is cpu, cuda (all GPUs) or one of them. `workers` is the number of processes; by default one per
        core or GPU, and none for a small input."""
        self.devices = local_devices(device, workers)
        self.device_kind = self.devices[0].partition(":")[0]
        is_small = input_size < MIN_WORKER_BYTES or (len(self.devices) == 1 and self.device_kind != "cpu")
        self.uses_processes = workers is not None or not is_small
        self.loads_on = "cpu" if self.uses_processes else self.devices[0]
        """The device for which this process loads the model."""

    def __str__(self) -> str:
        count = len(self.devices) if self.uses_processes else 1
        return f"{count} {'process' if count == 1 else 'processes'} on {self.device_kind}"

    def answer(
        self, work: ShardWork, shards: ShardSource, answer: AnswerTexts, on_fork: Callable[[], None]
    ) -> Generator[FinishedShard, None, None]:
        """Yield the shards as they are finished. `answer` uses the model of this process."""
        if not self.uses_processes:
            return (work.finish(shard, answer) for shard in shards)
        return answer_in_processes(work, shards, self.devices, answer if self.can_share_model else None, on_fork)

    @property
    def can_share_model(self) -> bool:
        """Whether processes can be forked from this one, with its model."""
        return self.device_kind == "cpu" and sys.platform == "linux"


def local_devices(device: str, workers: int | None) -> list[str]:
    """The device of each worker process: every GPU once, or the CPU once per core."""
    if device == "cpu":
        can_use = getattr(os, "sched_getaffinity", None)  # some systems cannot bind a process to some of the cores
        devices = ["cpu"] * (len(can_use(0)) if can_use else os.cpu_count() or 1)
    elif device == "cuda":
        devices = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    else:
        devices = [device]
    return devices if workers is None else [devices[number % len(devices)] for number in range(workers)]


def answer_in_processes(
    work: ShardWork,
    shards: Iterable[Shard],
    devices: list[str],
    answer: AnswerTexts | None,
    on_fork: Callable[[], None] = lambda: None,
) -> Generator[FinishedShard, None, None]:
    """Answer shards in one process for each device, and yield them in the order in which they are finished.

    With `answer`, which uses a model on the CPU, processes are forked and share it; without, each loads the model.
    `on_fork` is called in each forked process.
    """
    pool = WorkerPool(work, answer, on_fork)
    pending = iter(shards)
    retries: deque[Shard] = deque()
    deaths: Counter[int] = Counter()
    try:
        for device in devices:
            pool.workers.append(pool.start(device))
        upcoming = next(pending, None)  # read while the workers compute
        while upcoming is not None or retries or pool.busy:
            for worker in pool.workers:
                if worker.shard is None and (retries or upcoming is not None):
                    shard = retries.popleft() if retries else upcoming
                    assert shard is not None
                    upcoming = next(pending, None) if shard is upcoming else upcoming
                    worker.submit(shard)
            for worker in pool.ready():
                result = worker.result()
                if isinstance(result, Exception):
                    raise result
                if result is not None:
                    yield result
                    continue
                lost = pool.replace(worker)
                deaths[lost.number] += 1
                if deaths[lost.number] == MAX_ATTEMPTS:
                    option = work.task.memory_option
                    smaller = f", or start again with --restart and a smaller {option}" if option else ""
                    raise RegardError(
                        f"rows {lost.first}–{lost.first + lost.rows - 1} ended {MAX_ATTEMPTS} processes that worked on "
                        "them, perhaps for lack of memory: run the command again with fewer --workers to resume"
                        f"{smaller}"
                    )
                retries.append(lost)
    finally:
        pool.stop()


@dataclass
class _Worker:
    """A process, and the shard that it answers."""

    process: Any
    pipe: "Connection[Any, Any]"
    device: str
    shard: Shard | None = None

    def submit(self, shard: Shard) -> None:
        self.shard = shard
        with suppress(OSError):  # the process has died: `result` will find out
            self.pipe.send(shard)

    def result(self) -> FinishedShard | Exception | None:
        """The finished shard, an error, or None if the process has died."""
        try:
            result = self.pipe.recv()
        except (EOFError, OSError, pickle.UnpicklingError):
            return None
        self.shard = None
        assert isinstance(result, FinishedShard | Exception)
        return result


@dataclass(frozen=True)
class _Inherited:
    """What a forked worker gets from its parent."""

    answer: AnswerTexts
    on_fork: Callable[[], None]
    parents_ends: "list[Connection[Any, Any]]"
    """The parent's ends of pipes. A worker that holds one never sees that a killed parent has closed it in the middle
    of a shard."""


@dataclass
class WorkerPool:
    """The worker processes of a job."""

    work: ShardWork
    answer: AnswerTexts | None
    on_fork: Callable[[], None]
    workers: list[_Worker] = field(default_factory=list)

    @property
    def busy(self) -> list[_Worker]:
        """The workers that answer a shard."""
        return [worker for worker in self.workers if worker.shard is not None]

    def start(self, device: str) -> _Worker:
        """Start a process."""
        context: Any = get_context("fork" if self.answer is not None else "spawn")
        pipe, other_end = context.Pipe()
        inherited = None
        if self.answer is not None:
            inherited = _Inherited(self.answer, self.on_fork, [pipe, *(worker.pipe for worker in self.workers)])
        arguments = (other_end, self.work, device, os.getpid(), inherited)
        process = context.Process(target=_serve, args=arguments, daemon=True, name="regard worker")
        with warnings.catch_warnings():  # Python 3.12 warns where other threads exist; here they hold no locks we need
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
        other_end.close()
        return _Worker(process, pipe, device)

    def ready(self) -> list[_Worker]:
        """The busy workers that have something to say, or have died; waits until there are some."""
        busy = {id(worker.pipe): worker for worker in self.busy}
        return [busy[id(pipe)] for pipe in wait([worker.pipe for worker in busy.values()])]

    def replace(self, worker: _Worker) -> Shard:
        """Start another process in place of one that has died, and return the shard that it was working on."""
        shard = worker.shard
        assert shard is not None
        _end(worker)
        self.workers[self.workers.index(worker)] = self.start(worker.device)
        return shard

    def stop(self) -> None:
        """End all processes."""
        for worker in self.workers:
            _end(worker)


def _end(worker: _Worker) -> None:
    worker.process.kill()  # it holds nothing that must be saved
    worker.process.join()
    worker.pipe.close()


def _serve(
    pipe: "Connection[Any, Any]",
    work: ShardWork,
    device: str,
    parent: int,
    inherited: _Inherited | None,
) -> None:
    """Answer the shards that come through the pipe until it is closed or the parent has died."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process of a terminal; the parent ends us
    os.environ["TOKENIZERS_PARALLELISM"] = "false"

    def is_orphan() -> bool:
        return os.getppid() != parent

    try:
        if inherited is not None:
            answer = inherited.answer
            for end in inherited.parents_ends:
                end.close()
            inherited.on_fork()
        else:
            _, answer = work.task.load(device)
        with one_thread(), cancellable(is_orphan):
            while not is_orphan():
                if pipe.poll(PARENT_CHECK_SECONDS):
                    pipe.send(work.finish(pipe.recv(), answer))
    except (EOFError, BrokenPipeError, Cancelled):
        return
    except (RegardError, OSError, MemoryError) as error:
        _report(pipe, error)
    except Exception as error:  # a bug: its traceback goes to stderr, and the parent stops
        sys.excepthook(type(error), error, error.__traceback__)
        _report(pipe, RegardError(f"a worker failed: {type(error).__name__}: {error}"))


def _report(pipe: "Connection[Any, Any]", error: Exception) -> None:
    """Send an error to the parent, and wait until it ends this process."""
    plain = error if type(error) in (CallError, ModelError) else RegardError(str(error) or repr(error))
    with suppress(OSError):
        pipe.send(plain)
        pipe.poll(None)
