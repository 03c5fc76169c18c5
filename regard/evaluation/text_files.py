"""Read a file with one item per line."""

from pathlib import Path

from regard.data.corpus import LineFault, read_lines, remedy
from regard.errors import RegardError


def read_text_lines(path: Path) -> list[str]:
    """All lines of a text file, blank ones included. A line that is not valid text raises an error that names it."""
    lines: list[str] = []
    for number, line in read_lines(str(path)):
        if isinstance(line, LineFault):
            raise RegardError(f"{path}:{number}: {line.kind}: {remedy(line, str(path))}")
        lines.append(line)
    return lines
