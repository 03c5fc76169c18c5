"""Commands that score models."""

from collections.abc import Callable

COMMANDS: list[Callable[..., None]] = []
