"""The example course of docs/course.md, as files."""

import re
from pathlib import Path

DOCUMENT = Path(__file__).parents[2] / "docs" / "course.md"


def write_example_course(folder: Path) -> Path:
    """Write the files that the document shows, and return the folder of the course."""
    text = DOCUMENT.read_text(encoding="utf-8")
    found = re.findall(r"^`(my_course/[\w/.]+)`.*?```\w+\n(.*?)```", text, re.S | re.M)
    assert len(found) == 6
    for name, content in found:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
    return folder / "my_course"
