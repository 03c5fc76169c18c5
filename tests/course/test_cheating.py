"""Attempts to cheat, each tried for real: what a solution can reach, what it can forge, and what it can exhaust."""

import ast
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from regard.course import solution_runner, style
from regard.course.assignment import Assignment, load_assignment, read_assignment
from regard.course.check import CheckReport, check
from regard.course.isolation import NO_LANDLOCK, NO_NAMESPACES, NOT_LINUX, readable_paths
from regard.course.landlock import landlock_version, paths_without
from regard.course.observe import SolutionRun
from regard.course.seccomp import filter_program
from regard.course.solution_process import Limits
from regard.course.solution_runner import close_server, observe_in_subprocess, warm_server
from regard.course.tampering import check_forbidden
from regard.course.unusual_code import UnusualLine, unusual_lines

ATTEMPTS = Path(__file__).parent / "solutions" / "cheating" / "attempts.py"
NAMES = [
    node.name
    for node in ast.parse(ATTEMPTS.read_text(encoding="utf-8")).body
    if isinstance(node, ast.FunctionDef) and node.name not in ("main", "twice")
]
NEIGHBOUR = "def twice(x):\n    return x + x\n"
WRONG = "import torch\ndef twice(x):\n    return x\n"
PROBES = '''"""Probes with the word visible."""
import torch

def example(names):
    return {"twice": names["twice"](torch.arange(6.0).view(2, 3))}

def linear(names):
    """Whether the solution agrees with itself, which only its own process can tell."""
    one, two = names["twice"](torch.ones(2) * 3), names["twice"](torch.ones(2)) * 3
    return {"linear": torch.tensor(torch.allclose(one, two))}
'''
needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="solutions are isolated on Linux only")
needs_landlock = pytest.mark.skipif(not landlock_version(), reason="the kernel has no Landlock")


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    course = tmp_path_factory.mktemp("course")
    folder = course / "doubling"
    folder.mkdir()
    (folder / "assignment.toml").write_text(
        'title = "Twice"\ndefines = ["twice"]\nstages = []\n'
        "[points]\nexample = 4.0\nlinear = 1.0\n[sizes]\nrows = 2\nseq = 3\n"
    )
    (folder / "probes.py").write_text(PROBES)
    (folder / "reference.py").write_text(f"SECRET = 'the reference itself'\n{NEIGHBOUR}")
    edit = '["x + x", "x"]'
    (folder / "variants.toml").write_text(f'[[variant]]\nmistake = "secret-mistake"\nedits = [{edit}]\n')
    (folder / "starter.py").write_text("def twice(x):\n    raise NotImplementedError\n")
    return course


@pytest.fixture(scope="module")
def doubling(course: Path) -> Assignment:
    return read_assignment(course / "doubling")


def run(source: str, of: Assignment, folder: Path, **limits: Any) -> SolutionRun:
    path = folder / "anna.py"
    path.write_text(source)
    return observe_in_subprocess(path, of, Limits(**limits))


@pytest.fixture
def checked(course: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Check a solution of the assignment above."""
    monkeypatch.setattr(style, "find_spec", lambda _: None)  # style does not matter here

    def check_source(source: str) -> CheckReport:
        path = tmp_path / "anna.py"
        path.write_text(source)
        return check(path, "doubling", course)

    return check_source


# What a solution can reach


@pytest.fixture(scope="module")
def victims(course: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Files, a process and a server that a student's file may try to reach."""
    folder = tmp_path_factory.mktemp("class")
    for name, text in (("neighbour.py", NEIGHBOUR), ("results.csv", "anna,0\n"), ("deleted.txt", "")):
        (folder / name).write_text(text)
    with socket.create_server(("127.0.0.1", 0)) as server, subprocess.Popen(["sleep", "300"]) as victim:
        yield {
            "reference": str(course / "doubling" / "reference.py"),
            "neighbour": str(folder / "neighbour.py"),
            "results": str(folder / "results.csv"),
            "deleted": str(folder / "deleted.txt"),
            "checker_file": solution_runner.__file__,
            "checker": os.getpid(),
            "victim": victim.pid,
            "port": server.getsockname()[1],
        }
        victim.kill()


@pytest.fixture(scope="module")
def outcomes(victims: dict[str, Any], doubling: Assignment) -> dict[str, str]:
    """What each attempt gains as a solution. The file is next to its neighbour's."""
    source = ATTEMPTS.read_text(encoding="utf-8").replace("WHERE = {}", f"WHERE = {victims!r}")
    found = run(source, doubling, Path(victims["neighbour"]).parent)
    assert not found.failures
    assert not found.missing_isolation
    outcomes: dict[str, str] = json.loads(found.printed)
    return outcomes


@needs_linux
@needs_landlock
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_solution_reaches_nothing_beyond_its_folder(name: str, outcomes: dict[str, str]) -> None:
    assert outcomes[name] in ("PermissionError", "ModuleNotFoundError", "OSError", "nothing")


@needs_linux
@pytest.mark.slow
def test_the_attempts_work_without_isolation(victims: dict[str, Any], outcomes: dict[str, str], tmp_path: Path) -> None:
    """Otherwise the test above would prove nothing. It ran before: `outcomes` is an argument."""
    results = Path(victims["results"])
    assert results.read_text() == "anna,0\n"
    assert Path(victims["deleted"]).exists()
    source = ATTEMPTS.read_text(encoding="utf-8").replace("WHERE = {}", f"WHERE = {victims!r}")
    finished = subprocess.run([sys.executable, "-I", "-c", source], cwd=tmp_path, capture_output=True, check=True)
    gained = json.loads(finished.stdout)
    assert gained.keys() == outcomes.keys()
    privileged = {"trace_a_process", "read_another_memory", "enter_a_namespace", "open_the_checkers_memory"}
    assert {name for name, outcome in gained.items() if outcome != "gained"} <= privileged


@needs_linux
@pytest.mark.slow
def test_the_process_holds_neither_the_reference_nor_expected_values(doubling: Assignment, tmp_path: Path) -> None:
    """Through the garbage collector, the stack and the modules, a solution finds its probes but not the reference."""
    source = """import gc, sys, warnings
warnings.simplefilter("ignore")
WORDS = ["flesti ecnerefer eht", "ekatsim-terces", "elbisiv drow eht"]  # reversed, so as not to find themselves
found, seen = set(), set()
def search(value, depth):
    if isinstance(value, str):
        found.update(word for word in WORDS if word in value[::-1])
    elif depth and id(value) not in seen:
        seen.add(id(value))
        for other in gc.get_referents(value):
            search(other, depth - 1)
gc.unfreeze()
for value in gc.get_objects():
    search(value, 1)
frame = sys._getframe()
while frame is not None:
    search(dict(frame.f_locals), 4)
    frame = frame.f_back
for module in list(sys.modules.values()):
    search(getattr(module, "__dict__", {}), 2)
assignment = [value for value in gc.get_objects() if type(value).__name__ == "Assignment"]
try:
    found.add(assignment[0].reference)
except OSError as error:
    print(type(error).__name__)
try:
    import regard.course.diagnose
except ImportError as error:
    print(type(error).__name__)
except OSError as error:
    print("ImportError")
print(sorted(found))
def twice(x):
    return x
"""
    printed = run(source, doubling, tmp_path).printed.splitlines()
    assert printed == ["PermissionError", "ImportError", "['elbisiv drow eht']"]


# What a solution can forge


def assert_gains_nothing(report: CheckReport, points: float = 0) -> None:
    assert not report.passed
    assert report.points <= points


FORGED = """
import gc, json, os, sys
frame = sys._getframe()
while "token" not in frame.f_locals:
    frame = frame.f_back
token, pipe = frame.f_locals["token"], frame.f_locals["pipe"]
{forge}
pipe.flush()
os._exit(0)
"""


@pytest.mark.slow
def test_a_forged_result_needs_the_right_values(checked: Any) -> None:
    """The token and the pipe are in the process, so the message is taken for genuine. Its values are still wrong."""
    forge = """from regard.course.observation_bytes import encode_run
from regard.course.observe import SolutionRun
from regard.course.solution_process import encode_frame
import torch
values = {"example": {"twice": torch.ones(2, 3)}, "linear": {"linear": torch.tensor(True)}}
pipe.write(token + encode_frame(encode_run(SolutionRun(values))))"""
    report = checked(WRONG + FORGED.format(forge=forge))
    assert report.run.values["example"]["twice"].tolist() == [[1] * 3] * 2
    assert_gains_nothing(report, points=1)  # what the solution says about itself can be forged
    assert {line.text for line in unusual_lines(report.solution.source)} >= {"import gc", "._getframe", "._exit"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "forge",
    [
        "import pickle; pipe.write(token + (99).to_bytes(8, 'little') + pickle.dumps(os.getcwd).ljust(99))",
        "pipe.write(b'{\"passed\": true}')",
        "pipe.write(token + (2**62).to_bytes(8, 'little'))",
    ],
)
def test_malformed_messages_gain_nothing(checked: Any, forge: str) -> None:
    report = checked(WRONG + FORGED.format(forge=forge))
    assert_gains_nothing(report)
    assert report.status == 2


PATCHES = {
    "torch.allclose = lambda *_, **__: True": "torch.allclose",
    "torch.equal = torch.allclose = lambda *_, **__: True": "torch",
    "torch.Tensor.allclose = lambda *_: True": "Tensor.allclose",
    "import builtins; builtins.all = lambda _: True": "builtins.all",
    "import sys; sys.modules['regard.course.observe'].plain_copy = lambda x: x * 2": "plain_copy",
    "import regard.course.observation_bytes as m; m.encode_run = lambda run: b''": "encode_run",
    "class Lie(torch.Tensor):\n    @classmethod\n    def __torch_function__(cls, *_): return True": "Lie defines",
}


@pytest.mark.slow
@pytest.mark.parametrize("patch", PATCHES)
def test_replaced_functions_are_noticed(checked: Any, patch: str) -> None:
    report = checked(f"{WRONG}{patch}\n")
    assert_gains_nothing(report)
    failure = report.run.failures[""]
    assert failure.kind == "TamperingError"
    assert PATCHES[patch] in failure.message


@pytest.mark.slow
def test_functions_that_are_replaced_later_are_restored_and_their_part_fails(checked: Any) -> None:
    random = "import torch\ndef twice(x):\n    torch.allclose = lambda *_: True\n    return torch.rand(x.shape)\n"
    report = checked(random)
    assert_gains_nothing(report)
    assert {failure.kind for failure in report.run.failures.values()} == {"TamperingError"}


MUCH_OF_TORCH = """import torch, torch.nn as nn, torch.fx, torch.func, torch.optim, torch.export
import torch.distributions, torch.nn.utils.parametrizations, torch.utils.data
import builtins
builtins.print = lambda *_: None
torch.Tensor.__repr__ = lambda self: "a tensor"
torch.manual_seed(0); torch.set_printoptions(precision=3); torch.use_deterministic_algorithms(True)
torch.jit.script(nn.Linear(2, 2))(torch.ones(1, 2))
torch.vmap(torch.sin)(torch.ones(3))
torch.func.grad(lambda x: (x ** 2).sum())(torch.ones(3))
torch.fx.symbolic_trace(nn.Linear(2, 2))
nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))
with torch.autocast("cpu", dtype=torch.bfloat16):
    nn.Linear(2, 2)(torch.ones(1, 2))
torch.compile(torch.sin)(torch.ones(2))
torch.optim.Adam(nn.Linear(2, 2).parameters()).step()
list(torch.utils.data.DataLoader(list(range(4)), batch_size=2))
nn.TransformerEncoderLayer(4, 2, 8)(torch.ones(2, 1, 4))
torch.nested.nested_tensor([torch.ones(2)])
"""


@pytest.mark.long
def test_ordinary_uses_of_torch_are_not_tampering(doubling: Assignment, tmp_path: Path) -> None:
    close_server()  # torch changes itself when parts of it are first imported
    assert not run(MUCH_OF_TORCH + NEIGHBOUR, doubling, tmp_path).failures


QUIET_TRICKS = {
    "an import hook": "import sys\nsys.meta_path.insert(0, type('Hook', (), {'find_spec': lambda *_: None})())\n",
    "an exit handler": "import atexit\natexit.register(lambda: print('late'))\n",
    "a thread that lives on": "import threading, time\nthreading.Thread(target=lambda: time.sleep(60)).start()\n",
    "modules removed": "import sys\nfor name in list(sys.modules): 'regard' in name and sys.modules.pop(name)\n",
    "equality that lies": "class Same(float):\n    __eq__ = lambda *_: True\n    __hash__ = None\n",
    "the grader detected": "import sys\ngraded = any('probes' in name for name in sys.modules)\n",
    "a process that lives on": "import os, time\nif os.fork() == 0:\n    time.sleep(60)\n",
}


@pytest.mark.slow
@pytest.mark.parametrize("trick", QUIET_TRICKS)
def test_tricks_change_nothing(doubling: Assignment, tmp_path: Path, trick: str) -> None:
    found = run(QUIET_TRICKS[trick] + WRONG, doubling, tmp_path)
    assert found.values["example"]["twice"].tolist() == [[0, 1, 2], [3, 4, 5]]  # as without the trick
    assert "late" not in found.printed


# What a solution can exhaust


@pytest.mark.slow
def test_a_full_disk_is_prevented(doubling: Assignment, tmp_path: Path) -> None:
    many = "import time\nfor i in range(300):\n    open(str(i), 'w').close()\ntime.sleep(60)\n"
    assert run(many, doubling, tmp_path).failures[""].kind == "TooManyFiles"
    large = "import time\nfor i in range(9):\n    open(str(i), 'wb').write(bytes(900_000))\ntime.sleep(60)\n"
    failure = run(large, doubling, tmp_path, folder_bytes=2_000_000).failures[""]
    assert failure.kind == "TooManyFiles"
    assert failure.line in (3, 4)


@pytest.mark.slow
def test_ignoring_signals_does_not_help(doubling: Assignment, tmp_path: Path) -> None:
    source = "import signal, time\nfor n in (10, 14, 15, 24, 27): signal.signal(n, signal.SIG_IGN)\ntime.sleep(60)\n"
    failure = run(source, doubling, tmp_path, seconds=0.1, patience=1).failures[""]
    assert failure.kind == "Timeout"


@needs_linux
@pytest.mark.slow
def test_limits_cannot_be_raised(doubling: Assignment, tmp_path: Path) -> None:
    source = (
        "import resource\nfor kind in (resource.RLIMIT_AS, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE):\n"
        "    try: resource.setrlimit(kind, (2**40, 2**40))\n    except ValueError: print('refused')\n"
    )
    assert run(source + WRONG, doubling, tmp_path).printed == "refused\n" * 3


@needs_linux
@pytest.mark.slow
def test_a_server_that_was_killed_is_replaced_and_inherits_no_secrets(
    doubling: Assignment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = warm_server()
    first.process.kill()
    first.process.wait()
    monkeypatch.setenv("REGARD_SECRET", "hush")
    uses_much_of_torch = "torch.ones(1, device='meta') + torch.ones(1, device='meta')"  # and lets it change itself
    found = run(f"import os\nprint(sorted(os.environ))\n{WRONG}{uses_much_of_torch}\n", doubling, tmp_path)
    assert not found.failures
    assert warm_server() is not first
    assert "HOME" in found.printed
    assert "SECRET" not in found.printed


# Functions that an assignment forbids

HEADS = """import torch
from torch import nn
import torch.nn.functional as F
from torch.nn.functional import scaled_dot_product_attention as attend
class SelfAttention(nn.Module):
    def __init__(self, input_size, hidden):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(input_size, hidden) for _ in range(3))
    def forward(self, x):
        return ATTEND(self.q(x), self.k(x), self.v(x))
"""
FORBIDDEN = ("torch.nn.functional.scaled_dot_product_attention", "torch.nn.MultiheadAttention", "torch.Tensor.softmax")
WAYS = {
    "attend": True,
    "F.scaled_dot_product_attention": True,
    "getattr(F, 'scaled_dot_' + 'product_attention')": True,
    "torch._C._nn.scaled_dot_product_attention": True,
    "torch.ops.aten.scaled_dot_product_attention": True,
    "(lambda q, k, v: nn.MultiheadAttention(q.shape[-1], 1, batch_first=True)(q, k, v)[0])": True,
    "(lambda q, k, v: type('Own', (nn.MultiheadAttention,), {})(q.shape[-1], 1)(q, k, v)[0])": True,
    "(lambda q, k, v: nn.TransformerEncoderLayer(q.shape[-1], 1)(q))": True,
    "(lambda q, k, v: (q @ k.mT / 2).softmax(-1) @ v)": True,
    "(lambda q, k, v: torch.softmax(q @ k.mT / k.shape[-1] ** 0.5, -1) @ v)": False,
}


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Assignment:
    """Self-attention with forbidden functions, as a course of one's own would have it."""
    bundled = load_assignment("self-attention").folder
    folder = tmp_path_factory.mktemp("strict") / "self-attention"
    folder.mkdir()
    for path in bundled.glob("*.*"):
        (folder / path.name).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    settings = (folder / "assignment.toml").read_text()
    (folder / "assignment.toml").write_text(f"forbidden = {json.dumps(FORBIDDEN)}\n{settings}")
    return read_assignment(folder)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_forbidden_functions_are_caught_under_every_name(strict: Assignment, tmp_path: Path, way: str) -> None:
    found = run(HEADS.replace("ATTEND", way), strict, tmp_path)
    kinds = {failure.kind for failure in found.failures.values()}
    assert kinds == ({"ForbiddenError"} if WAYS[way] else set())
    if WAYS[way]:
        assert "is not allowed in this assignment: write it yourself" in found.failures["example"].message
        assert found.failures["example"].line == 10


def test_forbidden_names_must_exist() -> None:
    for name in ("torch.nn.MultiHeadAttention", "nn.Linear", "torch", "torch.float32", "", "os.system"):
        with pytest.raises(ValueError, match="is not a function or class of torch"):
            check_forbidden([name])


# The parts of the isolation, and systems that do not have them


@pytest.mark.slow
def test_without_forks_each_solution_has_a_server_of_its_own(
    doubling: Assignment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on macOS, where a process that uses torch cannot be forked."""
    monkeypatch.setattr(solution_runner, "FORKS", False)
    found = run(WRONG, doubling, tmp_path)
    assert found.values["example"]["twice"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert found.missing_isolation[0] in (NO_NAMESPACES, NOT_LINUX)


@needs_linux
@pytest.mark.long
@pytest.mark.parametrize("refused", ["unshare", "unshare landlock"])
def test_layers_that_the_system_refuses_are_reported(doubling: Assignment, tmp_path: Path, refused: str) -> None:
    """As in containers. What the solution leaves behind is still ended."""
    (tmp_path / "anna.py").write_text(
        f"import os, time\nprint(os.getcwd())\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(300)\n{WRONG}"
    )
    code = f"""
import ctypes, json, sys
from pathlib import Path
from regard.course import seccomp
from regard.course.assignment import read_assignment
from regard.course.solution_runner import observe_in_subprocess
ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)  # no new privileges
calls = {{"unshare": (272, 97), "landlock": (444, 444)}}
seccomp.ONLY_FOR_SELF = {{}}
seccomp.restrict_system_calls({{name: calls[name] for name in {refused.split()!r}}})
run = observe_in_subprocess(Path({str(tmp_path / "anna.py")!r}), read_assignment(Path({str(doubling.folder)!r})))
print(json.dumps([run.failures == {{}}, run.printed.strip(), run.missing_isolation]))
"""
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    passed, folder, missing = json.loads(finished.stdout)
    assert passed
    expected = {"unshare": NO_NAMESPACES, "landlock": NO_LANDLOCK}
    assert missing == [expected[name] for name in refused.split()]
    assert not [process for process in Path("/proc").glob("[0-9]*/cwd") if _target(process).startswith(folder)]


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:  # the process has ended meanwhile
        return ""


def test_hidden_folders_are_left_out(tmp_path: Path) -> None:
    for name in ("lib/a.py", "lib/regard/course/b.py", "lib/torch/c.py", "bin/d"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = paths_without((tmp_path / "lib", tmp_path / "bin"), (tmp_path / "lib" / "regard",))
    assert found == [tmp_path / "lib" / "a.py", tmp_path / "lib" / "torch", tmp_path / "bin"]


def test_packages_can_be_read_wherever_they_are_but_not_regard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regard may be installed next to torch, in a user's own folder of packages, or developed in a repository."""
    for name in ("user/site-packages", "checkout"):
        (tmp_path / name / "regard" / "course").mkdir(parents=True)
        (tmp_path / name / "torch").mkdir()
    (tmp_path / "checkout" / "pyproject.toml").touch()
    (tmp_path / "user" / "site-packages" / "exam").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path / "checkout"), str(tmp_path / "user" / "site-packages"), ""])
    readable, listed = readable_paths([tmp_path / "user" / "site-packages" / "exam", tmp_path])
    own = [path for path in readable if path.is_relative_to(tmp_path)]
    assert own == [tmp_path / "user" / "site-packages" / "torch"]
    assert [path for path in listed if path.is_relative_to(tmp_path)] == [tmp_path / "user" / "site-packages"]
    assert Path(sys.base_prefix).resolve() in readable or Path(sys.base_prefix).resolve() in listed


def test_the_filter_refuses_on_each_architecture() -> None:
    """The filter is run here by hand: the numbers of the system calls are those of the kernel's tables."""
    for machine, architecture, socket_call, kill_call, write_call in (
        ("x86_64", 0xC000003E, 41, 62, 1),
        ("aarch64", 0xC00000B7, 198, 129, 64),
    ):
        program = filter_program(machine, 7)
        allowed = {
            (number, argument): _run_filter(program, {0: number, 4: architecture, 16: argument}) == 0x7FFF0000
            for number, argument in ((socket_call, 2), (kill_call, 7), (kill_call, 8), (write_call, 1))
        }
        assert allowed == {
            (socket_call, 2): False, (kill_call, 7): True, (kill_call, 8): False, (write_call, 1): True
        }  # fmt: skip
        assert _run_filter(program, {0: write_call, 4: 0x40000003, 16: 0}) != 0x7FFF0000  # another architecture
    with pytest.raises(OSError, match="riscv"):
        filter_program("riscv", 7)


def _run_filter(program: list[Any], call: dict[int, int]) -> int:
    """What the kernel would do with a system call."""
    value = position = 0
    while True:
        code, if_true, if_false, operand = program[position]
        position += 1
        if code == 0x20:
            value = call[operand]
        elif code == 0x06:
            return int(operand)
        else:
            is_true = value == operand if code == 0x15 else value >= operand
            position += if_true if is_true else if_false


def test_unusual_code_is_listed() -> None:
    source = """import math, gc, torch
import torch.nn.functional as F
from ctypes import CDLL
torch.allclose = None
F.softmax = None
torch.backends.mkldnn.enabled = False
x.weight = open("a")
class A:
    def __eq__(self, other):
        return sys._getframe().f_back
def f(q):
    return torch.softmax(q, -1)
"""
    assert [(line.line, line.text) for line in unusual_lines(source)] == [
        (1, "import gc"), (3, "import ctypes"), (4, "replaces torch.allclose"), (5, "replaces F.softmax"),
        (7, "open()"), (9, "def __eq__"), (10, "._getframe"), (10, ".f_back"),
    ]  # fmt: skip
    assert unusual_lines("def (:") == []
    assert unusual_lines(f"import torch, gc\ntorch{'.a' * 3000} = 1\n") in ([], [UnusualLine(1, "import gc")])
