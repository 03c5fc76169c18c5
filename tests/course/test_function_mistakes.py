"""Mistakes in solutions of other styles than the reference's: the same mistakes are named."""

import tomllib
from pathlib import Path

import pytest

from regard.course.assignment import Variant, load_assignment
from regard.course.diagnose import diagnose
from regard.course.observe import observe

MISTAKES = [
    (name, style, *mistake)
    for name, styles in tomllib.loads(Path(__file__).with_name("function_mistakes.toml").read_text()).items()
    for style, mistakes in styles.items()
    for mistake in mistakes
]


@pytest.mark.long
@pytest.mark.parametrize(("name", "style", "mistake", "text", "replacement"), MISTAKES)
def test_a_mistake_in_another_style_is_named(name: str, style: str, mistake: str, text: str, replacement: str) -> None:
    of = load_assignment(name)
    correct = (of.folder / "solutions" / f"{style}.py").read_text(encoding="utf-8")
    source = Variant(mistake, ((text, replacement),)).applied_to(correct)
    found = diagnose(observe(source, of), of, source)
    assert not found.passed
    assert ([match.id for match in found.mistakes], found.possible) == ([mistake], ())
    assert found.mistakes[0].line is not None or found.mistakes[0].functions
