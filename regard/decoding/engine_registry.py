"""Engines of other packages that `model.quick(engine=…)` can use; `regard.interop` registers them.

The registry exists because packages import each other in one direction only, and `regard.interop` depends on
`regard.decoding`.
"""

from collections.abc import Callable
from typing import Any

from regard.decoding.decoding_state import SearchEngine
from regard.errors import RegardError

MakeEngine = Callable[[Any, str], SearchEngine]
"""From a `regard.Model` and a precision to an engine."""
_engines: dict[str, MakeEngine] = {}


def register_engine(name: str, make: MakeEngine) -> None:
    """Let `model.quick(engine=name)` use this engine."""
    _engines[name] = make


def registered_engine(name: str) -> MakeEngine:
    """The engine of this name."""
    if name not in _engines:
        raise RegardError(f"engine={name!r} is not available yet: run `import regard.interop` first")
    return _engines[name]
