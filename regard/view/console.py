"""Where Regard prints."""

from rich.console import Console


def console() -> Console:
    """Colours on a terminal, plain lines elsewhere."""
    return Console(highlight=False)
