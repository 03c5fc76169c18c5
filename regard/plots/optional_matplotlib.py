"""Pictures need matplotlib, which is an optional dependency."""

from importlib.util import find_spec

from regard.errors import RegardError

INSTALL_MATPLOTLIB = "pip install 'regard[plot]'"
"""Command that installs matplotlib."""


def has_matplotlib() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def require_matplotlib(subject: str) -> None:
    """Raise a RegardError that names the extra to install, unless matplotlib is installed."""
    if not has_matplotlib():
        raise RegardError(f"{subject} the package matplotlib: {INSTALL_MATPLOTLIB}")
