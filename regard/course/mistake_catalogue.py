"""The bank of known mistakes: what each does, why it matters, and the question that leads to its fix.

Run as a module, it writes `docs/misconceptions.md`.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path

from regard.course.assignment import HERE, Mistake, assignments
from regard.errors import RegardError
from regard.formatting import safe_whole

OWN = Path(__file__).parent / "mistakes.toml"
PAGE = Path(__file__).parents[2] / "docs" / "misconceptions.md"
HEAD = """# Misconceptions

What `regard check` knows by name. Each is a deliberately wrong version of an assignment's right answer: a solution is
said to make a mistake only when all its numbers are those of that wrong version.

*Written by `python -m regard.course.mistake_catalogue` from `regard/course/mistakes.toml`.*
"""


def bank(course: Path = HERE) -> dict[str, Mistake]:
    """All known mistakes by their ids: ours, and those that a course's own `mistakes.toml` adds or tells otherwise."""
    return {each.id: each for part in parts(course).values() for each in part}


def parts(course: Path = HERE) -> dict[str, list[Mistake]]:
    """The mistakes by the part of a Transformer that they are made in, as the bank names it."""
    told: dict[str, dict[str, str]] = {}
    for path in (OWN, course / "mistakes.toml"):
        if path.is_file():
            told |= tomllib.loads(path.read_text(encoding="utf-8"))
    grouped: dict[str, list[Mistake]] = {}
    for name, texts in told.items():
        grouped.setdefault(texts.get("part", "Others"), []).append(_mistake(name, texts))
    return grouped


def where(course: Path = HERE) -> dict[str, list[str]]:
    """The assignments in which each mistake is known, by its id."""
    found: dict[str, list[str]] = {}
    for each in assignments(course):
        for name in dict.fromkeys(variant.mistake for variant in each.variants):
            found.setdefault(name, []).append(each.name)
    return found


def page() -> str:
    """The bank as a page of Markdown."""
    places, lines = where(), [HEAD]
    for part, mistakes in parts().items():
        lines.append(f"## {part}\n")
        lines += [_entry(each, places.get(each.id, [])) for each in mistakes]
    return "\n".join(lines)


def _mistake(name: str, texts: Mapping[str, str]) -> Mistake:
    try:
        return Mistake(name, texts["title"], texts["why"], texts["question"])
    except KeyError as error:
        raise RegardError(f"the mistake {name} has no {error} in mistakes.toml") from None


def _entry(told: Mistake, places: list[str]) -> str:
    found = ", ".join(f"`{each}`" for each in places)
    title, why, question = (safe_whole(each) for each in (told.title, told.why, told.question))
    return f"### `{told.id}`\n**{title}.** {why}\n\n> {question}\n\nIn {found}.\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
