"""Answer shards on a Ray cluster, with Ray Data: one model per worker, on CPUs or GPUs.

The machine on which the command runs reads the input, writes the output and keeps the record of what is finished, as
in a job without a cluster, so no file has to be shared except the model's. Ray Data holds back the reading while the
workers are busy, and repeats the shards of workers that die. If the command itself dies, the next one resumes.
"""

import logging
import os
import pickle
import re
import socket
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from typing import Any

from regard.errors import CallError, RegardError
from regard.interop.load import find_model
from regard.jobs.shards import FinishedShard, ShardSource
from regard.jobs.tasks import AnswerTexts, ShardWork
from regard.models import MODELS_FOLDER
from regard.threads import one_thread

CONNECTION_SECONDS = 10
"""How long to wait for the head of a cluster, in seconds."""


def import_ray() -> Any:
    """Return the module ray; a RegardError says how to install it. Ray is not to report on its use."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
        import ray.data
    except ImportError:
        raise RegardError("--engine ray needs Ray: pip install 'regard[ray]'") from None
    return ray


@contextmanager
def ray_cluster(address: str | None, device: str, workers: int | None) -> Iterator["RayEngine"]:
    """Connect to a Ray cluster, as `RayEngine` does, and disconnect at the end.

    Ray prints to stdout that a worker or a node has died, also while it disconnects. Stdout is for results, so these
    messages go to stderr.
    """
    with redirect_stdout(sys.stderr):
        engine = RayEngine(address, device, workers)
        try:
            yield engine
        finally:
            engine.close()


class RayEngine:
    """A Ray cluster: a running one, or one that is started on this machine."""

    uses_processes = True
    loads_on = "cpu"

    def __init__(self, address: str | None, device: str, workers: int | None) -> None:
        """`workers` is the number of models; by default one per GPU, or per CPU if there are none."""
        os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # it warns of what Ray Data does on purpose
        if address is None:  # a cluster of one machine, which listens on the loopback interface only
            os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        self.ray = import_ray()
        self.was_connected = self.ray.is_initialized()
        if not self.was_connected:
            self._connect(address)
        resources = self.ray.cluster_resources()
        gpus = int(resources.get("GPU", 0)) if device != "cpu" else 0
        if device.startswith("cuda") and not gpus:
            raise RegardError(f"--device {device}: the Ray cluster has no GPU; use cpu")
        self.device_kind = "cuda" if gpus else "cpu"
        self.workers = workers or max(1, gpus or int(resources.get("CPU", 1)))

    def __str__(self) -> str:
        workers = "1 worker" if self.workers == 1 else f"{self.workers} workers"
        return f"{workers} of a Ray cluster on {self.device_kind}"

    def close(self) -> None:
        """Disconnect from the cluster, unless this process was connected before."""
        if not self.was_connected:
            self.ray.shutdown()

    def _connect(self, address: str | None) -> None:
        options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
        if address is None:
            options["include_dashboard"] = False
        try:
            if address is not None and (
                match := re.fullmatch(r"(\[?[\w.:-]+\]?):(\d+)", address)
            ):  # Ray waits for minutes
                socket.create_connection((match[1].strip("[]"), int(match[2])), CONNECTION_SECONDS).close()
            self.ray.init(address or "local", **options)
        except (OSError, OverflowError, ValueError, RuntimeError) as error:
            reason = str(error).partition("\n")[0]
            raise RegardError(
                f"no Ray cluster could be reached at {address}: {reason}; start one with ray start --head, or leave "
                "out --address"
            ) from error

    def answer(
        self, work: ShardWork, shards: ShardSource, answer: AnswerTexts, on_fork: Callable[[], None]
    ) -> Generator[FinishedShard, None, None]:
        """Yield the shards as they are finished."""
        del answer, on_fork  # workers load the model themselves
        data = self.ray.data
        work = with_absolute_model(work)
        logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # errors are raised as well
        context = data.DataContext.get_current()
        context.enable_progress_bars = False
        context.target_max_block_size = 1  # each shard is sent as soon as it is read or finished
        this_node = {"ray.io/node-id": self.ray.get_runtime_context().get_node_id()}
        needs = {"num_gpus": 1} if self.device_kind == "cuda" else {"num_cpus": 1}
        finished = data.read_datasource(
            _datasource(shards), num_cpus=0, label_selector=this_node, override_num_blocks=1
        ).map_batches(
            ShardWorker,
            fn_constructor_args=(work, self.device_kind),
            batch_size=1,
            compute=data.ActorPoolStrategy(min_size=1, max_size=self.workers),
            **needs,
        )
        try:
            for batch in finished.iter_batches(batch_size=None, prefetch_batches=0):
                for pickled in batch["shard"]:
                    yield pickle.loads(pickled)
        except self.ray.exceptions.RayError as error:
            raise _plain_error(error) from error


def with_absolute_model(work: ShardWork) -> ShardWork:
    """The same work, with the absolute path of a model's file or folder, because workers run in other folders.

    A bundled model keeps its name, even if an unrelated folder has it: each machine has its own copy.
    """
    path = find_model(work.task.model)
    model = path.name if path.parent == MODELS_FOLDER else str(path.absolute())
    return replace(work, task=replace(work.task, model=model))


class ShardWorker:
    """A worker of the cluster, for `map_batches`: it loads the model once, and answers pickled shards."""

    def __init__(self, work: ShardWork, device: str) -> None:
        """Load the model on a device of this worker."""
        self.work = work
        _, self.answer = work.task.load(device)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Answer the shards of a batch."""
        with one_thread():
            return {"shard": [pickle.dumps(self.work.finish(pickle.loads(s), self.answer)) for s in batch["shard"]]}


def _datasource(shards: ShardSource) -> Any:
    """The shards as a source of Ray Data: one task reads them, in order."""
    import pyarrow
    from ray.data import Datasource, ReadTask
    from ray.data.block import BlockMetadata

    def blocks() -> Iterator[Any]:
        return (pyarrow.table({"shard": [pickle.dumps(shard)]}) for shard in shards)

    def get_read_tasks(*_: Any, **__: Any) -> list[Any]:
        metadata = BlockMetadata(num_rows=None, size_bytes=None, input_files=None, exec_stats=None)
        return [ReadTask(blocks, metadata)]

    methods = {"get_read_tasks": get_read_tasks, "estimate_inmemory_data_size": lambda _: None}
    return type("ShardDatasource", (Datasource,), methods)()


def _plain_error(error: Exception) -> Exception:
    """The error that a worker raised, if it was caused by input, without Ray's traceback."""
    cause: BaseException | None = error
    while cause is not None:
        inner = getattr(cause, "cause", None)
        if isinstance(inner, RegardError):
            return inner if isinstance(inner, CallError) else RegardError(str(inner))
        cause = inner if isinstance(inner, BaseException) else cause.__cause__
    reason = str(error).strip().splitlines()[-1]
    if match := re.match(r"regard\.errors\.\w+: ", reason):  # a worker that could not start has no cause
        return RegardError(f"a worker of the Ray cluster could not start: {reason[match.end() :]}")
    return RegardError(f"the Ray cluster gave up: {reason}")
