"""The tutorials and how-to guides: their commands exist, their recipes are valid, their notebooks run."""

import importlib.util
import re
import runpy
import shlex
import subprocess
import tomllib
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup
from typer.testing import CliRunner

from regard.cli import app
from regard.training.recipe_files import bundled_recipes, read_recipe
from tests.support.tiny_runs import PETIT_PAIRS, TINY, make_runs_tiny

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
GUIDES = sorted([DOCS / "index.md", *DOCS.glob("tutorials/*.md"), *DOCS.glob("how-to/*.md")])
PAGES = sorted({ROOT / "README.md", *GUIDES, *DOCS.glob("*.md"), *ROOT.glob("regard/models/*/README.md")})
NOTEBOOKS = sorted(DOCS.glob("notebooks/*.py"))
ANNOTATED = DOCS / "annotated/attention-is-all-you-need.py"
COMMAND = re.compile(r"^ {4}((?:[A-Z_]+=\S+ |torchrun (?:\\\n|.)*? -m )?regard (?:\\\n|.)*)$", re.M)
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.M | re.S)
LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)")


SPLITS = ("test", "dev", "train")
UsageError = next(each for each in typer.BadParameter.__mro__ if each.__name__ == "UsageError")
"""The error of click for a wrong command line. New versions of typer contain a copy of click."""


def commands(page: Path) -> list[list[str]]:
    """The arguments of each `regard` command in an indented block, also after `torchrun`, without comments or pipes."""
    lines = [line.replace("\\\n", " ") for line in COMMAND.findall(page.read_text(encoding="utf-8"))]
    words = [shlex.split(line, comments=True) for line in lines]
    arguments = [line[line.index("regard") + 1 :] for line in words]
    return [[*takewhile(lambda word: word != "|", line)] for line in arguments]


def parse(arguments: list[str]) -> tuple[str, dict[str, Any]]:
    """The name of a command and its options, without running it; raises an error if it or an option does not exist."""
    command, name = typer.main.get_command(app), "regard"
    while isinstance(command, TyperGroup) and arguments:
        name, *arguments = arguments
        assert name in command.commands, f"regard has no command {name}"
        command = command.commands[name]
    return name, command.make_context(name, arguments).params


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_command_in_the_guides_can_be_parsed(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings too: a misspelt key would only be noticed when the run starts."""
    monkeypatch.chdir(tmp_path)
    Path("my_course/average").mkdir(parents=True)  # these must exist
    Path("class.csv").touch()
    for arguments in commands(page):
        name, options = parse(arguments)
        if name == "train" and options["recipe"] != "RECIPE" and not options["recipe"].endswith(".toml"):
            assert options["recipe"] in bundled_recipes()
            read_recipe(options["recipe"], options["overrides"] or [])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["trian", "x"], "no command trian"),
        (["train"], "Missing argument|recipe"),
        (["train", "x", "--steps", "5"], "No such option"),
        (["translate", "--beam", "four"], "integer"),
        (["course", "begin", "bleu"], "no command begin"),
    ],
)
def test_wrong_commands_are_noticed(wrong: list[str], message: str) -> None:
    with pytest.raises((AssertionError, UsageError), match=message):
        parse(wrong)


def test_the_guides_have_commands() -> None:
    assert {page.stem for page in GUIDES if not commands(page)} == {"index"}
    assert len(commands(DOCS / "index.md")) == 10
    multiline = [line for line in commands(DOCS / "tutorials/own-text.md") if "train.lr=0.003" in line]
    assert len(multiline) == 1


@pytest.mark.parametrize("lines", [100, 1_234, 12_000])
@pytest.mark.parametrize(("page", "folder"), [("tutorials/own-text.md", "mine"), ("training.md", "corpus")])
def test_the_split_works_for_small_and_large_corpora(page: str, folder: str, lines: int, tmp_path: Path) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    block = re.search(rf"^ {{4}}mkdir {folder}\n(?: {{4}}.*\n)+? {{4}}done$", text, re.M)
    assert block is not None
    for language in ("fr", "en"):
        content = "".join(f"{language} {number}\n" for number in range(lines))
        (tmp_path / f"my.{language}").write_text(content, encoding="utf-8")
    subprocess.run(["bash", "-ec", block[0]], cwd=tmp_path, check=True)
    held_out = min(lines // 10, 1_000)
    for language in ("fr", "en"):
        parts = [(tmp_path / folder / f"{part}.{language}").read_text(encoding="utf-8") for part in SPLITS]
        assert [part.count("\n") for part in parts] == [held_out, held_out, lines - 2 * held_out]
        assert "".join(parts) == (tmp_path / f"my.{language}").read_text(encoding="utf-8")


def created_paths(page: Path) -> set[str]:
    """The runs and folders of text that the commands of a page write."""
    written = {options["out"] for name, options in map(parse, commands(page)) if name in ("train", "petit")}
    return {str(path) for path in written if path is not None}


def test_no_two_guides_write_to_the_same_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who follows one after the other would be refused: runs and folders are not overwritten."""
    monkeypatch.chdir(tmp_path)
    Path("my_course/average").mkdir(parents=True)  # these must exist
    Path("class.csv").touch()
    owners: dict[str, str] = {}
    for page in [*GUIDES, DOCS / "text.md", DOCS / "training.md"]:
        for path in created_paths(page):
            assert path not in owners, f"{page.stem} and {owners[path]} both write {path}"
            owners[path] = page.stem
    pages = "".join(page.read_text(encoding="utf-8") for page in GUIDES)
    runs = [run for path in NOTEBOOKS for run in re.findall(r'out="([^"]+)"', path.read_text(encoding="utf-8"))]
    assert not owners.keys() & {*runs, *re.findall(r'out="([^"]+)"', pages)}
    assert len(runs) == len(set(runs)) > 3


def test_the_recipe_of_the_language_model_is_valid(tmp_path: Path) -> None:
    text = (DOCS / "tutorials/language-model.md").read_text(encoding="utf-8")
    (recipe,) = re.findall(r"```toml\n(.*?)```", text, re.S)
    (tmp_path / "notes.toml").write_text(recipe, encoding="utf-8")
    assert read_recipe(str(tmp_path / "notes.toml")).model["kind"] == tomllib.loads(recipe)["model"]["kind"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for target, anchor in LINK.findall(CODE.sub("", page.read_text(encoding="utf-8"))):
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), f"{page.name} links to {target}, which does not exist"
        if anchor and path.suffix == ".md":  # test_docs.py checks those of lines
            headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.M)
            assert anchor in [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]


def test_the_nginx_configuration_is_that_of_the_example() -> None:
    text = (DOCS / "how-to/serve.md").read_text(encoding="utf-8")
    shown = re.search(r"```nginx\n(.*?)```", text, re.S)
    assert shown is not None
    example = (ROOT / "examples/nginx/nginx.conf").read_text(encoding="utf-8")
    directives = [line.partition("#")[0].strip() for line in example.splitlines()]
    assert {line.partition("#")[0].strip() for line in shown[1].splitlines()} <= set(directives)


@pytest.mark.slow
@pytest.mark.usefixtures("without_type_checks")
def test_the_commands_of_the_readme_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each finds what it needs: a bundled model, or what the commands before it wrote. Other tests start the server."""
    monkeypatch.chdir(tmp_path)
    runs = [arguments for arguments in commands(ROOT / "README.md") if arguments[0] not in ("demo", "serve")]
    assert len(runs) >= 9
    for name, *arguments in runs:
        if name == "train":
            settings = TINY | {"data.petit": PETIT_PAIRS, "train.steps": 2}
            arguments += [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        if name == "data":
            arguments += ["--pairs", "200"]
        if name == "evaluate":
            arguments += ["--limit", "20"]
        result = CliRunner().invoke(app, [name, *arguments])
        assert result.exit_code == 0, (name, arguments, result.output)


@pytest.mark.slow
@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All cells, with two training steps and tiny models."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NOTEBOOK_STEPS", "2")
    make_runs_tiny(monkeypatch)
    text = path.read_text(encoding="utf-8")
    assert text.count("# %%") > 5
    runpy.run_path(str(path))


@pytest.mark.parametrize("path", [*NOTEBOOKS, ANNOTATED], ids=lambda path: path.stem)
def test_the_first_cell_installs_regard_where_it_is_missing(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a wheel next to the notebook or else from the repository; where Regard is installed, it does nothing."""
    first_cell = path.read_text(encoding="utf-8").split("# %%\n")[1].partition("# %%")[0]
    installed: list[str] = []
    monkeypatch.setattr(subprocess, "run", lambda command, **_options: installed.append(command[-1]))
    monkeypatch.chdir(path.parent)
    exec(first_cell, {})
    assert installed == []
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    exec(first_cell, {})
    assert installed == [f"{ROOT}[plot]"]
    wheel = tmp_path / "regard-1.0-py3-none-any.whl"
    wheel.touch()
    monkeypatch.chdir(tmp_path)
    exec(first_cell, {})
    assert installed[1:] == [f"{wheel}[plot]"]
    wheel.unlink()
    with pytest.raises(FileNotFoundError, match=r"no regard-\*\.whl here: upload it"):
        exec(first_cell, {})
    assert len(installed) == 2


@pytest.mark.parametrize("path", [*NOTEBOOKS, ANNOTATED], ids=lambda path: path.stem)
def test_notebooks_say_what_to_upload_to_colab_before_the_first_code(path: Path) -> None:
    text = path.read_text(encoding="utf-8").partition("# %% [markdown]\n")[2].partition("# %%\n")[0]
    assert text.startswith("# # ")
    assert "**In Colab**" in text
    assert "dist/regard-*.whl" in text


def test_tutorials_with_python_are_notebooks_too() -> None:
    with_python = {page.stem for page in DOCS.glob("tutorials/*.md") if "```py" in page.read_text(encoding="utf-8")}
    assert with_python == {path.stem for path in NOTEBOOKS}


@pytest.mark.slow
@pytest.mark.usefixtures("without_type_checks")
def test_the_python_of_the_home_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_runs_tiny(monkeypatch)
    (program,) = re.findall(r"```python\n(.*?)```", (DOCS / "index.md").read_text(encoding="utf-8"), re.S)
    exec(program, {})
