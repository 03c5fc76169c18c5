"""Remarks that probes make on a solution. They are shown to the student but do not change the verdict."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_REMARKS: ContextVar[list[str] | None] = ContextVar("remarks", default=None)


def remark(text: str) -> None:
    """Add a sentence to the remarks on the solution that is being observed."""
    remarks = _REMARKS.get()
    if remarks is not None and text not in remarks:
        remarks.append(text)


@contextmanager
def collect_remarks(remarks: list[str]) -> Iterator[None]:
    """Append to `remarks` what probes remark inside this context."""
    token = _REMARKS.set(remarks)
    try:
        yield
    finally:
        _REMARKS.reset(token)
