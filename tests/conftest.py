"""Check every shape annotation in regard/ on every call, where beartype is installed."""

import os
from collections.abc import Iterator
from importlib.util import find_spec

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tensors are small here, and threads that wait for a busy core are slow

import jaxtyping
import pytest

if find_spec("beartype"):  # before the first import of regard
    from tests.support.shape_checks import check_shapes

    check_shapes()

import torch
from hypothesis import settings

from tests.support.signals import default_signals

settings.register_profile("quick", deadline=None, max_examples=25, derandomize=True)
settings.register_profile("long", deadline=None, max_examples=500)
settings.load_profile(os.environ.get("REGARD_HYPOTHESIS", "quick"))


def pytest_report_header() -> str:
    return f"torch {torch.__version__}; shapes {'checked' if find_spec('beartype') else 'not checked: no beartype'}"


@pytest.fixture(scope="session", autouse=True)
def signals_as_in_a_terminal() -> Iterator[None]:
    """Restore signals that the caller ignores, as `nohup` and background jobs do, for tests and their processes."""
    with default_signals():
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
