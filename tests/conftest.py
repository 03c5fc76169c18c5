"""Settings of all tests: shapes are checked where beartype is installed, and options shuffle tests and limit skips."""

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from random import Random

os.environ.setdefault("REGARD_CHECK_SHAPES", "1" if find_spec("beartype") else "0")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # tensors are small here, and threads that wait for a busy core are slow

import jaxtyping
import pytest

if os.environ["REGARD_CHECK_SHAPES"] == "1":  # before the first import of regard
    from tests.support.shape_checks import check_shapes

    check_shapes()

import torch
from hypothesis import settings

from tests.support.signals import default_signals

settings.register_profile("quick", deadline=None, max_examples=25, derandomize=True)
settings.register_profile("long", deadline=None, max_examples=500)
settings.load_profile(os.environ.get("REGARD_HYPOTHESIS", "quick"))

LONGEST_FILES = [
    "model/test_compile.py",
    "evaluation/test_verify.py",
    "server/test_page.py",
    "course/test_annotated.py",
    "training/test_parallel.py",
    "training/test_survival.py",
    "training/test_train.py",
    "storage/test_hostile_files.py",
    "server/test_http_apis.py",
    "models/test_bundled.py",
    "interop/test_gguf.py",
    "interop/test_huggingface.py",
]
"""The files that take longest. They run first, or one worker would be left with one of them at the end."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shuffle", metavar="SEED", help="run the tests in a random order")
    parser.addoption("--max-skipped", type=int, metavar="N", help="fail if more than N tests are skipped, as in CI")


def pytest_report_header(config: pytest.Config) -> str:
    shapes = "checked" if os.environ["REGARD_CHECK_SHAPES"] == "1" else "not checked"
    seed = config.getoption("shuffle")
    return f"torch {torch.__version__}; shapes {shapes}" + (f"; order: --shuffle={seed}" if seed else "")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where slow tests are left out, do not import modules that are slow as a whole: importing them takes seconds."""
    if "not slow" not in config.option.markexpr or collection_path.suffix != ".py":
        return None
    return "\npytestmark = pytest.mark.slow" in collection_path.read_text(encoding="utf-8") or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Start with the longest files, or shuffle the files and the tests in each: a file's tests share fixtures."""
    first = {Path(__file__).parent / name: rank for rank, name in enumerate(LONGEST_FILES)}
    items.sort(key=lambda item: first.get(item.path, len(first)))
    if seed := config.getoption("shuffle"):
        order = Random(seed)
        files = sorted({item.path for item in items})
        rank = {path: order.random() for path in files}
        order.shuffle(items)
        items.sort(key=lambda item: rank[item.path])


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail where too many tests are skipped: a browser, a model or a package is missing."""
    budget = session.config.getoption("max_skipped")
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if budget is None or reporter is None:  # only the controller of parallel tests has a reporter
        return
    skipped = len(reporter.stats.get("skipped", []))
    if skipped > budget:
        reporter.ensure_newline()
        reporter.write_line(f"{skipped} tests were skipped, but at most {budget} may be (--max-skipped)", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="session", autouse=True)
def signals_as_in_a_terminal() -> Iterator[None]:
    """Restore signals that the caller ignores, as `nohup` and background jobs do, for tests and their processes."""
    with default_signals():
        yield


@pytest.fixture(scope="session", autouse=True)
def empty_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Start with an empty cache: the user's may contain text of an older version, and tests should not fill it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def same_seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def without_type_checks() -> Iterator[None]:
    """Disable run-time type checks, so that invalid input reaches Regard's own errors."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
