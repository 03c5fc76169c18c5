"""Reading, running and tracing solutions; shape comments and style."""

import json
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from regard.course import style
from regard.course.assignment import Assignment, read_assignment
from regard.course.line_tracing import MAX_TENSORS_PER_NAME, TracedTensor
from regard.course.observation_bytes import decode_run, encode_run
from regard.course.observe import Failure, SolutionRun, observe
from regard.course.shape_comments import ShapeRemark, shape_in_words, shape_remarks
from regard.course.solution_file import MAX_SOURCE_BYTES, Solution, read_solution
from regard.course.solution_process import Limits
from regard.course.solution_runner import MAX_KEPT_OUTPUT_BYTES, observe_in_subprocess
from regard.course.style import longest_function, style_note, style_remarks
from regard.course.terminal_report import describe_shape_remark

PROBES = """
import torch

def example(names):
    return {"twice": names["twice"](torch.arange(6.0).view(2, 3))}

def more(names):
    return {"twice": names["twice"](torch.ones(2)), "chance": torch.rand(2)}
"""
RIGHT = "import torch\n\n\ndef twice(x):\n    return x + x\n"


@pytest.fixture
def doubling(tmp_path: Path) -> Assignment:
    folder = tmp_path / "doubling"
    folder.mkdir()
    (folder / "assignment.toml").write_text(
        'title = "Twice"\ndefines = ["twice"]\nstages = []\n'
        "[points]\nexample = 1.0\nmore = 1.0\n[sizes]\nrows = 2\nseq = 3\n"
    )
    (folder / "probes.py").write_text(PROBES)
    return read_assignment(folder)


RunSource = Callable[..., SolutionRun]


@pytest.fixture
def run_source(doubling: Assignment, tmp_path: Path) -> RunSource:
    """Run a source in a separate process."""

    def run(source: str, name: str = "mine.py", **limits: float) -> SolutionRun:
        path = tmp_path / name
        path.write_text(source)
        return observe_in_subprocess(path, doubling, Limits(**limits))  # type: ignore[arg-type]

    return run


# Running in a separate process


@pytest.mark.slow
def test_a_subprocess_observes_the_same_as_this_process(
    run_source: RunSource, doubling: Assignment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGARD_SECRET", "hush")
    source = (
        RIGHT
        + "import os, sys, threading, time\n"
        + "print('all right!', os.environ.get('REGARD_SECRET'), sorted(os.listdir('.')), __name__)\n"
        + 'print(\'{"values": {"example": "forged"}}\')\n'
        + "threading.Thread(target=time.sleep, args=(60,)).start()\n"
        + "os.remove(__file__)\n"
    )
    run = run_source(source)
    expected = observe(RIGHT, doubling)
    assert not run.failures
    assert not expected.failures
    for probe, values in expected.values.items():
        for name, value in values.items():
            assert torch.equal(run.values[probe][name], value)
    assert [(each.line, each.name, each.value.tolist(), each.before) for each in run.traced] == [
        (each.line, each.name, each.value.tolist(), each.before) for each in expected.traced
    ]
    assert run.printed.splitlines()[0] == "all right! None ['mine.py'] solution"
    assert run.notes == ["The file deletes or overwrites itself when it runs. Only a temporary copy was affected."]


ENDINGS = {
    "raise KeyboardInterrupt": ("KeyboardInterrupt", "", 7),
    "torch.zeros(10**12)": ("MemoryError", "4,000,000,000,000 bytes", 7),
    "import os; os._exit(0)": ("SystemExit", "os._exit", None),
    "import os; os.kill(os.getppid(), 9); import time; time.sleep(60)": (
        "PermissionError",
        "not part of a solution",
        7,
    ),
    "import ctypes; ctypes.string_at(0)": ("Crash", "SIGSEGV", 7),
    "while True: print('x' * 1000)": ("OutputFlood", "1,000,000 bytes", 7),
}


@pytest.mark.slow
@pytest.mark.parametrize("line", ENDINGS)
def test_an_early_exit_is_explained(run_source: RunSource, line: str) -> None:
    kind, words, number = ENDINGS[line]
    run = run_source(f"{RIGHT}\n{line}\n")
    failure = run.failures[""]
    assert (failure.kind, failure.line) == (kind, number)
    assert words in failure.message
    assert not run.values
    assert len(run.printed) <= MAX_KEPT_OUTPUT_BYTES


@pytest.mark.parametrize(
    ("line", "kind", "words"),
    [
        ("exit()", "SystemExit", "exit()"),
        ("import no_such_package", "ModuleNotFoundError", "no_such_package.*not available"),
        ("x = 1 +", "SyntaxError", "invalid syntax"),
        ("raise EOFError('input')", "EOFError", "has no input"),
        ("def f(): f()\nf()", "RecursionError", "calls itself"),
        ("[0] * 10**17", "MemoryError", "more memory than a solution may use"),
    ],
)
def test_a_file_that_does_not_run_is_explained(doubling: Assignment, line: str, kind: str, words: str) -> None:
    failure = observe(f"{RIGHT}\n{line}\n", doubling).failures[""]
    assert (failure.kind, failure.line) == (kind, 7)
    assert re.search(words, failure.message)


@pytest.mark.slow
def test_an_infinite_loop_is_stopped_at_its_line_and_other_probes_run(run_source: RunSource) -> None:
    source = "def twice(x):\n    while x.dim() == 2:\n        pass\n    return x + x\n"
    run = run_source(source, part_seconds=0.5)
    assert run.failures["example"].kind == "Timeout"
    assert run.failures["example"].line in (2, 3)
    assert run.values["more"]["twice"].tolist() == [2, 2]
    assert "" not in run.failures


@pytest.mark.slow
def test_waiting_is_limited_by_wall_clock_time(run_source: RunSource) -> None:
    source = f"import time\ntime.sleep({{}})\n{RIGHT}"
    assert not run_source(source.format(1), part_seconds=0.5, patience=100).failures  # waiting takes no CPU time
    failure = run_source(source.format(300), part_seconds=2, patience=1).failures[""]
    assert (failure.kind, failure.line) == ("Timeout", 2)
    assert "what is it waiting for" in failure.message


@pytest.mark.slow
def test_a_loop_that_catches_everything_is_killed_by_the_parent(run_source: RunSource) -> None:
    source = """def twice(x):
    while True:
        try:
            while True:
                pass
        except BaseException:
            continue
"""
    run = run_source(source, seconds=0.5)
    assert run.failures[""].kind == "Timeout"
    assert run.failures[""].line in range(2, 8)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_leftover_processes_are_killed(run_source: RunSource, tmp_path: Path) -> None:
    many = run_source(
        "import os, time\nfor _ in range(40):\n    if os.fork() == 0:\n        time.sleep(300)\ntime.sleep(300)\n"
    )
    assert many.failures[""].kind == "TooManyProcesses"
    escaped = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    print(os.getcwd())\n    time.sleep(300)\n"
    run = run_source(f"{RIGHT}{escaped}time.sleep(0.3)\n")
    assert not run.failures
    folder = run.printed.strip()
    assert folder.startswith(tempfile.gettempdir())
    assert not [process for process in Path("/proc").glob("[0-9]*/cwd") if _target(process).startswith(folder)]


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:  # the process has ended meanwhile
        return ""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="macOS does not keep to it")
def test_memory_and_file_size_are_limited(run_source: RunSource) -> None:
    source = "    x = []\n    while True:\n        x.append(bytearray(10**7))\n"
    run = run_source(f"def twice(x):\n{source}", memory=300_000_000)
    assert run.failures["example"].kind == "MemoryError"
    run = run_source(f"{RIGHT}\nopen('large', 'wb').write(bytes(10**7))\n", file_bytes=1_000_000)
    assert (run.failures[""].kind, run.failures[""].line) == ("OSError", 7)


@pytest.mark.slow
def test_notebook_cells_that_are_not_needed_may_fail(run_source: RunSource) -> None:
    cells = [
        "!pip install torch\nimport torch",
        "open('data.txt').read()",
        "def twice(x):\n    y = x + x\n    return y  # [rows, rows]",
        "while True:\n    pass",
    ]
    run = run_source(notebook(*cells), "mine.ipynb")
    assert not run.failures
    assert len(run.notes) == 1
    assert run.notes[0].startswith("cell 2, line 1 was skipped because it fails: FileNotFoundError")
    assert [each.line for each in run.traced if each.name == "y"] == [5]


def test_a_run_survives_encoding() -> None:
    run = SolutionRun(
        {"a": {"x": torch.ones(2, dtype=torch.bfloat16), "z": torch.ones(1, 2, dtype=torch.complex64)}},
        {"b": Failure("E", "m", None)},
        [TracedTensor(3, "q", torch.eye(2, dtype=torch.bool), {"x": (1, 2)})],
        [Failure("F", "n", 2)],
    )
    back = decode_run(encode_run(run))
    assert (back.failures, back.skipped) == (run.failures, run.skipped)
    assert [(each.line, each.name, each.before) for each in back.traced] == [(3, "q", {"x": (1, 2)})]
    assert torch.equal(back.traced[0].value, run.traced[0].value)
    for name, value in run.values["a"].items():
        assert back.values["a"][name].dtype == value.dtype
        assert torch.equal(back.values["a"][name], value)
    for content in (b"", b"\0" * 40, encode_run(run)[:-1], b"\xff" * 40):
        with pytest.raises(ValueError, match="cannot be read"):
            decode_run(content)


# Tracing


def traced_by(source: str, of: Assignment) -> list[tuple[int, str, list[float]]]:
    run = observe(source, of)
    assert not run.failures
    return [(each.line, each.name, each.value.flatten().tolist()) for each in run.traced if each.name]


def test_attributes_lists_in_place_changes_and_tuples_are_traced(doubling: Assignment) -> None:
    source = """import torch
class Box:
    def fill(self, x):
        self.kept = x[0]
        self.kept += 1
        both = [x, x * 2]
        return both, {"a": x[1]}
def twice(x):
    return Box().fill(x)[0][1]
"""
    traced = traced_by(source, doubling)
    first, second = [0.0, 1, 2], [3.0, 4, 5]
    changed = [1.0, 2, 3]
    assert (4, "self.kept", first) in traced
    assert (5, "self.kept", changed) in traced
    assert (6, "both[1]", [2.0, 4, 6, *(2 * each for each in second)]) in traced
    assert (7, "return[1]['a']", second) in traced
    assert (9, "return", [2.0, 4, 6, 6, 8, 10]) in traced


def test_intermediate_results_are_traced_without_a_name(doubling: Assignment) -> None:
    run = observe("def twice(x):\n    return (x.sum() * 0) + x * 2\n", doubling)
    assert [15.0] in [each.value.flatten().tolist() for each in run.traced if not each.name]


def test_tracing_is_bounded(doubling: Assignment) -> None:
    source = """import torch
def step(x):
    y = x + 1
    return y
def nested(x, n):
    return x if n == 0 else nested(x, n - 1)
def numbers(x):
    for n in range(500):
        yield x * n
def twice(x):
    big = torch.zeros(1).expand(10**12)
    for _ in range(1000):
        step(x)
    return nested(x + x, 100) + 0 * sum(numbers(x))
"""
    traced = traced_by(source, doubling)
    assert len([name for _, name, _ in traced if name == "y"]) == MAX_TENSORS_PER_NAME
    assert len(traced) < 1000
    assert "big" not in {name for _, name, _ in traced}


@pytest.mark.slow
def test_tensors_of_all_kinds_can_be_traced(doubling: Assignment) -> None:
    source = """import torch
def one(x):
    y = x * 2
    return y
def twice(x):
    a = torch.vmap(one)(x)
    b = torch.func.grad(lambda t: (t * t).sum())(x)
    with torch.inference_mode():
        c = x + 1
        c += 1
    d = x.to_sparse()
    e = torch.complex(x, x).conj()
    f = x.to("meta")
    return torch.nn.Parameter(a)
"""
    torch.vmap(torch.sin)(torch.ones(2))  # it imports a lot, which is slow when traced
    run = observe(source, doubling)
    assert not run.failures
    named = {each.name: each.value for each in run.traced}
    assert {"a", "b", "c", "d", "e", "return"} <= named.keys()
    assert named["d"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert "f" not in named
    assert {each.name for each in decode_run(encode_run(run)).traced} == named.keys()
    assert run.values["example"]["twice"].tolist() == [[0, 2, 4], [6, 8, 10]]


def test_errors_and_too_large_results_fail_only_their_probe(doubling: Assignment) -> None:
    class_that_fails = "class Odd(BaseException):\n    def __str__(self):\n        raise ValueError\n"
    run = observe(f"{class_that_fails}def twice(x):\n    if x.dim() == 2:\n        raise Odd\n    exit(3)\n", doubling)
    assert (run.failures["example"].kind, run.failures["example"].line) == ("Odd", 6)
    assert (run.failures["more"].kind, run.failures["more"].line) == ("SystemExit", 7)
    run = observe("def twice(x):\n    return x.new_zeros(1).expand(10**12)\n", doubling)
    assert "too many" in run.failures["example"].message
    run = observe("def twice(x):\n    return x.to('meta')\n", doubling)
    assert run.values["example"]["twice"].tolist() == [[0] * 3] * 2


def test_a_solution_is_a_module_and_cannot_change_probes(doubling: Assignment) -> None:
    source = f"""from __future__ import annotations
import sys, torch
from dataclasses import dataclass
@dataclass
class Kept:
    x: int
torch.set_default_dtype(torch.float64)
torch.set_grad_enabled(False)
torch.rand(3)
sys.modules.pop("regard_probes_{doubling.name}", None)
def twice(x):
    assert sys.modules["solution"].twice is twice and torch.is_grad_enabled()
    return x + x
"""
    run, plain = observe(source, doubling), observe(RIGHT, doubling)
    assert not run.failures
    assert torch.equal(run.values["more"]["chance"], plain.values["more"]["chance"])
    assert "solution" not in sys.modules


def test_a_cell_that_is_needed_and_fails_is_reported(doubling: Assignment) -> None:
    source = "x = 1\nimport nowhere\ndef twice(x):\n    return x\n"
    run = observe(source, doubling, cells=(1, 2))
    assert (run.failures[""].kind, run.failures[""].line) == ("ModuleNotFoundError", 2)
    again = observe(source + "def twice(x):\n    return x\n", doubling, cells=(1, 2, 5))
    assert not again.failures
    assert len(again.skipped) == 1


# Files


def notebook(*cells: str) -> str:
    code_cells = [{"cell_type": "code", "source": cell.splitlines(keepends=True)} for cell in cells]
    return json.dumps({"cells": [{"cell_type": "markdown", "source": ["# Hello"]}, *code_cells], "nbformat": 4})


def test_a_notebook_is_converted_and_lines_map_back_to_cells(tmp_path: Path) -> None:
    path = tmp_path / "a.ipynb"
    path.write_text(
        notebook(
            "%matplotlib inline\nimport torch\nfiles = !ls",
            "x = (7\n  % 4)\nif x:\n    !echo yes",
            "%%bash\nrm -r /",
            "%%time\ndef f():\n    return 1",
            "f?\nclass A: pass",
        )
    )
    solution = read_solution(path)
    names: dict[str, object] = {}
    exec(solution.source, names)
    assert (names["x"], names["files"]) == (3, None)
    assert {"torch", "files", "x", "f", "A"} == solution.names
    line = solution.source.split("\n").index("def f():") + 1
    assert solution.where(line) == "cell 4, line 2"
    assert solution.where(1) == "cell 1, line 1"
    assert Solution("a = 1").where(1) == "line 1"


def test_a_notebook_may_contain_large_outputs(tmp_path: Path) -> None:
    document = json.loads(notebook("x = 1"))
    document["cells"][0]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": ["x" * 20_000_000]}]
    (tmp_path / "mine.ipynb").write_text(json.dumps(document))
    assert read_solution(tmp_path / "mine.ipynb").source.strip() == "x = 1"


def test_old_notebooks_and_cells_with_a_single_string_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.ipynb"
    path.write_text(json.dumps({"worksheets": [{"cells": [{"cell_type": "code", "input": ["a = 1\n", "b = 2"]}]}]}))
    assert read_solution(path).source == "a = 1\nb = 2"
    path.write_text(json.dumps({"cells": [{"cell_type": "code", "source": "a = 1\r\nb = 2"}]}))
    assert read_solution(path).names == {"a", "b"}


@pytest.mark.parametrize(
    ("content", "source"),
    [
        (b"\xef\xbb\xbfa = 1\r\nb = 2\r\n", "a = 1\nb = 2\n"),
        (b"# coding: latin-1\na = '\xe9'\n", "# coding: latin-1\na = 'é'\n"),
        (b"if 1:\n\ta = 1\rb = 2", "if 1:\n\ta = 1\nb = 2"),
    ],
)
def test_encodings_and_line_endings_are_read_as_python_does(tmp_path: Path, content: bytes, source: str) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(content)
    assert read_solution(path).source == source


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.py", b"", "empty"),
        ("a.py", b" \n", "empty"),
        ("a.py", b"a = '\xe9'", "save it in UTF-8"),
        ("a.py", "a = 1".encode("utf-16"), "zero bytes"),
        ("a.py", b"# coding: klingon\n", "save it in UTF-8"),
        ("a.py", b"#" * (MAX_SOURCE_BYTES + 1), "1,000,000"),
        ("a.txt", b"a = 1", "neither"),
        ("a.ipynb", b"{", "not a notebook"),
        ("a.ipynb", b"[" * 100_000, "not a notebook"),
        ("a.ipynb", b"[1]", "not a notebook"),
        ("a.ipynb", b'{"cells": 3}', "no cells"),
        ("a.ipynb", b'{"cells": [{"cell_type": "markdown", "source": "a"}]}', "no code cells"),
        ("a.ipynb", b"\xff", "UTF-8"),
    ],
)
def test_unreadable_files_are_explained(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_solution(path)


def test_folders_and_missing_files_are_explained(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is a folder"):
        read_solution(tmp_path)
    with pytest.raises(ValueError, match="missing"):
        read_solution(tmp_path / "a.py")


# Shapes

SIZES = {"batch": 2, "heads": 4, "seq": 3, "head_size": 5, "hidden": 20}


def remarks(*lines: str) -> list[tuple[str, str, str]]:
    """The remarks on a function with these lines, whose argument x is [batch, seq, hidden]."""
    body = "\n".join(f"    {line}" for line in lines)
    source = f"import torch\ndef f(x):\n{body}\n    return 0\n"
    names: dict[str, Callable[[torch.Tensor], int]] = {}
    traced: list[TracedTensor] = []
    from regard.course.line_tracing import trace_tensors

    exec(compile(source, "<shapes>", "exec"), names)
    with trace_tensors("<shapes>", traced):
        names["f"](torch.zeros(2, 3, 20))
    return [(each.kind, each.commented, each.actual) for each in shape_remarks(source, traced, SIZES)]


SPLIT = "y = x.view(2, 3, 4, 5).transpose(1, 2)"
"""[batch, heads, seq, head_size]"""


@pytest.mark.parametrize(
    "comment",
    [
        "[batch, heads, seq, head_size]",
        "(batch, heads, seq, head_size)",
        "[Batch, HEADS, seq, head size]",
        "[2, heads, 3, hidden/heads]",
        "[batch, heads, seq, hidden // heads]",
        "[..., seq, head_size]",
        "[batch, ...]",
        "[_, heads, seq, ?]",
        "[B, H, T, d]",
        "(B, H, T, D)",
        "y: [batch, heads, seq, head_size]",
        "shape: (batch, heads, seq, head_size)",
        "torch.Size([2, 4, 3, 5])",
        "[batch, seq, hidden] -> [batch, heads, seq, head_size]",
        "x: [batch, seq, hidden]",
        "[batch, heads, seq, head_size] one width per head",
        "[batch, heads, seq+0, 6-1]",
    ],
)
def test_correct_shape_comments_give_no_remarks(comment: str) -> None:
    assert remarks(f"{SPLIT}  # {comment}") == []


@pytest.mark.parametrize(
    ("comment", "commented"),
    [
        ("[batch, seq, heads, head_size]", "[batch, seq, heads, head_size]"),
        ("(batch, seq, hidden)", "(batch, seq, hidden)"),
        ("[batch*heads, seq, head_size]", "[batch*heads, seq, head_size]"),
        ("[..., heads]", "[..., heads]"),
        ("[n, n, seq, head_size]", "[n, n, seq, head_size]"),
        ("[3*n, heads, seq, head_size]", "[3*n, heads, seq, head_size]"),
        ("y: [batch, seq]", "[batch, seq]"),
        ("[batch, seq, hidden] → [batch, hidden, seq]", "[batch, hidden, seq]"),
    ],
)
def test_wrong_shape_comments_are_reported_with_the_shape(comment: str, commented: str) -> None:
    assert remarks(f"{SPLIT}  # {comment}") == [("wrong", commented, "[batch, heads, seq, head_size]")]


def test_a_comment_is_about_all_tensors_of_its_line_or_those_it_names() -> None:
    assert remarks("q, k = x, x.mT  # [batch, seq, hidden]") == [
        ("wrong", "[batch, seq, hidden]", "[batch, hidden, seq]")
    ]
    assert remarks("q, k = x, x.mT  # [batch, seq, hidden], [batch, hidden, seq]") == []
    assert remarks("q, k = x, x.mT  # q: [batch, seq, hidden], k: [batch, hidden, seq]") == []
    assert remarks("q, k = x, x.mT  # q: [batch, seq, hidden]; k: [batch, seq, hidden]") == [
        ("wrong", "[batch, seq, hidden]", "[batch, hidden, seq]")
    ]


def test_a_remark_on_a_line_with_several_tensors_names_them() -> None:
    traced = [
        TracedTensor(1, name, torch.zeros(shape))
        for name, shape in (("q", (2, 3, 20)), ("k", (2, 20, 3)), ("v", (2, 20, 3)))
    ]
    source = "def f(x): q, k, v = x, x.mT, x.mT  # [batch, seq, hidden]\n"
    [remark] = shape_remarks(source, traced, SIZES)
    assert remark.variables == ("k", "v")
    assert describe_shape_remark(remark) == (
        "the comment says [batch, seq, hidden], but k and v have shape [batch, hidden, seq]"
    )
    [remark] = shape_remarks("def f(x): k = x.mT  # [batch, seq, hidden]\n", traced[1:2], SIZES)
    assert describe_shape_remark(remark) == (
        "the comment says [batch, seq, hidden], but the shape is [batch, hidden, seq]"
    )


def test_an_unknown_word_keeps_its_first_meaning_within_a_function() -> None:
    assert remarks("y = x.mT  # [batch, n, seq]", "z = x + 0  # [batch, seq, n]") == []
    assert remarks("y = x.mT  # [batch, n, seq]", "z = x + 0  # [batch, n, hidden]") == [
        ("wrong", "[batch, n, hidden]", "[batch, seq, hidden]")
    ]
    assert remarks("y = x.reshape(6, 20)  # [batch·seq, d]", "z = x + 0  # [batch, seq, d]") == []


def test_products_of_an_unknown_word_bind_it() -> None:
    assert remarks("y = x.reshape(6, 20)  # [batch*n, hidden]", "z = x + 0  # [batch, n, hidden]") == []
    assert remarks("y = x.reshape(6, 20)  # [batch*n, hidden]", "z = x + 0  # [n, seq, hidden]") == [
        ("wrong", "[n, seq, hidden]", "[batch, seq, hidden]")
    ]


def test_lines_that_change_a_shape_need_a_comment() -> None:
    shape = "[batch, heads, seq, head_size]"
    assert remarks(SPLIT) == [("missing", "", shape)]
    assert remarks("y = x * 2") == []
    assert remarks("mask = torch.ones(3, 3)") == []
    assert remarks("mask = torch.ones(x.shape[1], x.size(1), device=x.device)") == []
    assert remarks("return x.mT") == [("missing", "", "[batch, hidden, seq]")]
    assert remarks('"""[batch, seq, hidden] → [batch, hidden, seq]."""', "return x.mT") == []
    assert remarks("loss = x.sum()") == []
    assert remarks(f"# {shape}", SPLIT) == []
    assert remarks("y = x.view(", "    2, 3, 4, 5", ").transpose(1, 2)") == [("missing", "", shape)]
    assert remarks("y = x.view(", "    2, 3, 4, 5", f").transpose(1, 2)  # {shape}") == []
    assert remarks("y = x.view(", "    2, 3, 4, 5", ").transpose(1, 2)  # [batch]") == [("wrong", "[batch]", shape)]


def test_a_comment_on_its_own_line_is_about_the_statement_above_or_below() -> None:
    shape = "[batch, heads, seq, head_size]"
    assert remarks(SPLIT, f"# {shape}") == []
    assert (
        remarks(f"# {shape}", SPLIT, "# -> [batch, heads, seq, head_size]", "z = x + 0", "# (batch, seq, hidden)") == []
    )
    assert remarks("z = x + 0", f"# {shape}", SPLIT) == []
    assert remarks(SPLIT, "# [batch, seq, heads, head_size]") == [("wrong", "[batch, seq, heads, head_size]", shape)]
    assert remarks("# [heads, seq]", SPLIT) == [("wrong", "[heads, seq]", shape)]


def test_the_shapes_of_operands_are_not_those_of_the_result() -> None:
    product = "y = x @ x.mT"
    assert remarks(f"{product}  # (batch, seq, hidden) @ (batch, hidden, seq) = (batch, seq, seq)") == []
    assert remarks(f"{product}  # [batch, seq, hidden] x [batch, hidden, seq]") == [
        ("missing", "", "[batch, seq, seq]")
    ]
    assert remarks(f"{product}  # (batch, seq, hidden) @ (batch, hidden, seq) -> (batch, seq, hidden)") == [
        ("wrong", "(batch, seq, hidden)", "[batch, seq, seq]")
    ]


def test_letters_may_have_another_meaning_than_in_the_assignment() -> None:
    """In the assignment h is the number of heads; this student means hidden."""
    source = "def f(x):\n    a = x + 1  # [b, s, h]\n    b = a.mT  # [b, h, s]\n    return b.mT  # [b, s, h]\n"
    shapes = [(2, "a", (2, 3, 20)), (3, "b", (2, 20, 3)), (4, "return", (2, 3, 20))]
    traced = [TracedTensor(line, name, torch.zeros(shape)) for line, name, shape in shapes]
    sizes = {"b": 2, "s": 3, "h": 4}
    assert shape_remarks(source, traced, sizes) == []
    assert len(shape_remarks(source.replace("[b, h, s]", "[b, s, h]"), traced, sizes)) == 3


@pytest.mark.parametrize(
    "comment", ["[1]", "(so, to speak)", "[TODO]", "softmax(q, k)", "as (batch, seq) above", "x y"]
)
def test_prose_is_not_a_shape(comment: str) -> None:
    assert remarks(f"y = x + 0  # {comment}") == []


def test_a_comment_that_fits_one_execution_is_correct() -> None:
    assert remarks("for n in (1, 3):", "    y = x[:, :n]  # [batch, seq, hidden]") == []
    assert remarks("for n in (1, 2):", "    y = x[:, :n]  # [batch, seq, hidden]") == [
        ("wrong", "[batch, seq, hidden]", "[batch, 1, hidden]")
    ]


def test_lines_that_did_not_run_and_invalid_files_have_no_remarks() -> None:
    assert remarks("if x.dim() == 1:", "    y = x.view(2, 3, 4, 5)  # [nothing, of, this]") == []
    assert shape_remarks("def f(:", [], SIZES) == []
    assert shape_in_words((2, 7), SIZES) == "[batch, 7]"
    assert ShapeRemark(1, "missing", "", "[batch]").commented == ""


# Style


def test_style_remarks_come_from_ruff_by_line(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ruff")
    source = (
        "import os\nimport torch.nn.functional as F\ndef Attend(Q,K):\n    l = F.relu(Q) \n    return K, l == None\n"
    )
    assert [(each.line, each.code) for each in style_remarks(source)] == [
        (1, "F401"), (3, "N802"), (4, "E741"), (4, "W291"), (5, "E711"),
    ]  # fmt: skip
    assert [each.code for each in style_remarks(source, notebook=True)] == ["N802", "E741", "E711"]
    assert style_remarks(RIGHT.replace("import torch\n\n\n", "")) == []
    assert style_remarks("def f(:") == []
    assert style_note() is None
    monkeypatch.setattr(style, "find_spec", lambda _: None)
    assert style_remarks(source) == []
    assert "ruff" in (style_note() or "")


def test_docstrings_and_comments_do_not_count_as_lines_of_code() -> None:
    source = '''class A:
    """Text."""

    @property
    def a(self):
        """More
        text."""
        # a comment

        x = [
            1,
        ]
        return x  # another

    def b(self): return 1
'''
    assert longest_function(source) == 4
    assert longest_function("x = 1") == 0
    assert longest_function("def f(:") == 0
    assert longest_function("def f():\n    '''Only text.'''\n") == 0
