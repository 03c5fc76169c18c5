"""Training on two machines, of which one dies and comes back: the run continues with the same losses.

Where the system allows it, each machine is a network namespace with an address of its own and a cable between them;
elsewhere both have the address of the loopback.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from torch.distributed import HashStore, PrefixStore  # type: ignore[attr-defined]

from regard.training import parallel
from regard.training.events import Noted, Stepped
from regard.training.metrics_log import read_metrics
from tests.support.forked import HANG_SECONDS, ROOT
from tests.training.test_parallel import RECIPE, children

CHECKPOINT = 50


# The name that all ranks agree on, for each of their starts


def names_of(store: object, ranks: int) -> list[str]:
    """Return the name that each rank gets when all start together."""
    with ThreadPoolExecutor(ranks) as threads:
        return list(threads.map(lambda rank: parallel.agree_on_name(store, rank, ranks), range(ranks)))


def test_all_ranks_agree_on_another_name_after_every_start() -> None:
    store = PrefixStore("torchrun", HashStore())
    starts = [names_of(store, 4) for _ in range(5)]
    assert all(len(set(names)) == 1 for names in starts)
    assert len({names[0] for names in starts}) == 5


def test_ranks_that_died_while_they_agreed_are_not_waited_for() -> None:
    """The store keeps what they have written: a question, or an answer that nobody has read."""
    store = HashStore()
    store.set("name of rank 1", "dead")
    store.set("answer to dead", "dead start")
    store.set("dead start understood by rank 1", "")
    assert len(set(names_of(store, 2))) == 1


def test_users_are_told_if_a_machine_could_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GROUP_WORLD_SIZE", raising=False)
    assert parallel.machines_warning() is None
    monkeypatch.setenv("GROUP_WORLD_SIZE", "2")
    assert "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1" in str(parallel.machines_warning())
    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    assert parallel.machines_warning() is None


# Two machines


@dataclass(frozen=True)
class Machine:
    """A machine that torchrun can be started on."""

    number: int
    namespace: str | None

    @property
    def address(self) -> str:
        return f"10.77.0.{self.number}" if self.namespace else "127.0.0.1"

    @property
    def interface(self) -> str:
        return f"{self.namespace}v" if self.namespace else "lo"

    def connect(self, state: str) -> None:
        """Plug in ("up") or unplug ("down") the cable."""
        _ip("-n", str(self.namespace), "link", "set", self.interface, state)

    def start(self, out: Path, endpoint: str) -> "subprocess.Popen[bytes]":
        """Start torchrun with one process."""
        command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"]
        command += ["--max-restarts", "3", "--monitor-interval", "0.1", "--rdzv-backend", "c10d", "--rdzv-id", "test"]
        command += ["--rdzv-endpoint", endpoint, "--local-addr", self.address]
        command += ["--rdzv-conf", f"is_host={self.number == 1}".lower()]
        command += ["-m", "regard", "train", str(out.parent / "tiny.toml"), "--out", str(out), "--resume"]
        if self.namespace:
            command = ["ip", "netns", "exec", self.namespace, *command]
        variables = {
            "GLOO_SOCKET_IFNAME": self.interface,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT),
            "REGARD_CACHE": str(out.parent / "cache"),
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        }
        log = (out.parent / f"{out.name}-{self.number}.log").open("ab")
        with log:
            return subprocess.Popen(command, env={**os.environ, **variables}, stdout=log, stderr=log)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@contextmanager
def two_machines() -> Iterator[list[Machine]]:
    """Yield two machines: in network namespaces if this process may create them."""
    names = [f"regard{os.getpid() % 10_000}{letter}" for letter in "ab"]
    with ExitStack() as cleanup:
        try:
            for name in names:
                _ip("netns", "add", name)
                cleanup.callback(_ip, "netns", "del", name)
        except (OSError, subprocess.CalledProcessError):
            yield [Machine(1, None), Machine(2, None)]
            return
        machines = [Machine(number, name) for number, name in enumerate(names, 1)]
        first, second = (["name", f"{name}v", "netns", name] for name in names)
        _ip("link", "add", *first, "type", "veth", "peer", *second)
        for machine in machines:
            _ip("-n", str(machine.namespace), "addr", "add", f"{machine.address}/24", "dev", machine.interface)
            _ip("-n", str(machine.namespace), "link", "set", "lo", "up")
            machine.connect("up")
        yield machines


@pytest.fixture(scope="module")
def machines() -> Iterator[list[Machine]]:
    with two_machines() as found:
        yield found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a recipe, which both machines share."""
    found = tmp_path_factory.mktemp("machines")
    recipe = RECIPE.replace("steps = 20", "steps = 600").replace("dropout = 0.0", "dropout = 0.1")
    recipe = recipe.replace("checkpoint_every = 1000", f"checkpoint_every = {CHECKPOINT}")
    (found / "tiny.toml").write_text(recipe.replace("validate_every = 10", "validate_every = 600"))
    return found


def die(agent: "subprocess.Popen[bytes]") -> None:
    """Kill torchrun and its process with SIGKILL."""
    for process in [*children(agent.pid), agent.pid]:
        os.kill(process, signal.SIGKILL)
    agent.wait()


def wait_for(file: Path) -> None:
    limit = time.monotonic() + HANG_SECONDS
    while not file.exists():
        assert time.monotonic() < limit, f"{file} does not exist"
        time.sleep(0.01)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def losses(run: Path) -> list[float]:
    return [event.loss for event in read_metrics(run) if isinstance(event, Stepped)]


def train(out: Path, machines: list[Machine], failure: str | None) -> None:
    """Train to the end. One of the machines fails after the second checkpoint, and comes back."""
    endpoint = f"{machines[0].address}:{free_port()}"
    agents = [machine.start(out, endpoint) for machine in machines]
    try:
        if failure:
            wait_for(out / "checkpoints" / f"step-{2 * CHECKPOINT:08d}")
            failing = 0 if failure == "first" else 1
            if failure == "unplugged":
                machines[failing].connect("down")
            die(agents[failing])
            if failure == "first":  # it held the list of the machines: the other one cannot continue either
                assert agents[1].wait(HANG_SECONDS) != 0
                agents[1] = machines[1].start(out, endpoint)
            if failure == "unplugged":
                machines[failing].connect("up")
            agents[failing] = machines[failing].start(out, endpoint)
        assert [agent.wait(HANG_SECONDS) for agent in agents] == [0, 0]
    finally:
        for agent in agents:
            if agent.poll() is None:
                die(agent)


@pytest.fixture(scope="module")
def undisturbed(folder: Path, machines: list[Machine]) -> list[float]:
    train(folder / "undisturbed", machines, None)
    return losses(folder / "undisturbed")


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="there is no /proc to find processes in")
@pytest.mark.parametrize("failure", ["killed", "unplugged", "first"])
def test_a_machine_that_comes_back_joins_the_run(
    failure: str, folder: Path, machines: list[Machine], undisturbed: list[float]
) -> None:
    if failure == "unplugged" and not (machines[0].namespace and shutil.which("ip")):
        pytest.skip("network namespaces need root and iproute2")
    out = folder / failure
    train(out, machines, failure)
    assert len(undisturbed) == 600
    assert losses(out) == undisturbed
    notes = [event.text for event in read_metrics(out) if isinstance(event, Noted)]
    assert any("resumes after step" in note for note in notes), notes
