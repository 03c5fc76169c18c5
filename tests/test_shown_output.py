"""What the documentation shows of the bundled models is what they print today.

Scores and sizes in tables are compared by `test_figures.py`. Output of runs that a reader trains is not checked:
it takes minutes.
"""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

import regard
from regard.cli import app

ROOT = Path(__file__).parent.parent
SHOWN = (
    ("docs/tutorials/reading-attention.md", 'regard attend "Le chat noir dort." --model petit-fr-en --kind cross'),
    (
        "docs/tutorials/reading-attention.md",
        'regard attend "Le chat noir dort." --model petit-fr-en --kind cross --lens',
    ),
    ("docs/tutorials/teaching.md", "regard course list"),
    ("docs/models.md", 'regard translate "Hello, how are you?"'),
)
"""Pages, and commands in them that a block of output follows."""
TRANSLATION = re.compile(r'^ {4}(regard translate "[^"]*"(?: --\S+ \S+)*) +# (.*)$', re.M)
"""A command with its translation as a comment."""
PYTHON_TRANSLATION = re.compile(r'^model\.translate\("([^"]*)"\)  # (.*)$', re.M)
SHAPE = re.compile(r'model\.attend\("([^"]*)"\)\.weights\["cross"\]\.shape  # (\[[\d, ]+\])')


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def output_of(command: str) -> str:
    """What a command prints on stdout and stderr, on a wide terminal."""
    result = CliRunner().invoke(app, shlex.split(command)[1:], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    return result.output


def missing_lines(shown: str, printed: str) -> list[str]:
    """The lines of a block that a command does not print. Spaces do not count, and … stands for what was left out."""
    lines = {" ".join(line.split()) for line in printed.splitlines()}
    return [line for line in shown.splitlines() if " ".join(line.split()) not in {*lines, "", "…"}]


def block_after(command: str, text: str) -> str:
    """The first block of output after a command, which stands alone on a line."""
    following = text.partition(f"\n    {command}\n")[2]
    return following.partition("```text\n")[2].partition("```")[0]


@pytest.mark.slow
@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize(("name", "command"), SHOWN)
def test_shown_output_is_printed_today(name: str, command: str) -> None:
    shown = block_after(command, page(name))
    assert shown
    assert missing_lines(shown, output_of(command)) == []


def test_a_changed_line_is_noticed() -> None:
    assert missing_lines("a  b 1\n…\n\nc", "a b 1\nd") == ["c"]


@pytest.mark.slow
@pytest.mark.usefixtures("without_type_checks")
def test_translations_in_the_readme_are_those_of_today() -> None:
    readme = page("README.md")
    commands, calls = TRANSLATION.findall(readme), PYTHON_TRANSLATION.findall(readme)
    assert commands
    assert calls
    for command, translation in commands:
        assert output_of(command).splitlines() == [translation]
    model = regard.load("fr-en")
    for source, translation in calls:
        assert model.translate(source) == translation


@pytest.mark.slow
@pytest.mark.usefixtures("without_type_checks")
def test_shapes_and_scores_of_bundled_models_are_those_of_today() -> None:
    model = regard.load("fr-en")
    ((source, shape),) = SHAPE.findall(page("README.md"))
    assert str(list(model.attend(source).weights["cross"].shape)) == shape

    home = page("docs/index.md")
    ((source, target, score),) = re.findall(r'model\.score\(\["(.*)"\], \["(.*)"\]\)\).*\[(-[\d.]+)\]', home)
    assert f"{model.score([source], [target])[0]:.2f}" == score
    (source,) = re.findall(r'^seen = model\.attend\("(.*)"\)', home, re.M)
    (shape,) = re.findall(r'^print\(seen\.weights\["cross"\]\.shape\).*(\[\d.*\])$', home, re.M)
    assert str(list(model.attend(source).weights["cross"].shape)) == shape
