"""The command as a person runs it: in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from regard.cli import app
from regard.training.recipe_files import as_toml, read_recipe
from tests.support.commands import regard


def test_help_names_the_commands() -> None:
    done = regard("--help")
    assert done.returncode == 0
    assert "demo" in done.stdout


def test_version() -> None:
    assert regard("--version").stdout.strip() == "regard 0.1.0"


@pytest.mark.parametrize("command", ["demo"])
def test_every_command_has_an_example(command: str) -> None:
    assert f"regard {command}" in regard(command, "--help").stdout


def test_an_unknown_command_says_so() -> None:
    done = regard("dmeo")
    assert done.returncode == 2
    assert "demo" in done.stderr


def test_demo_leaves_a_folder_of_ones_own_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    done = regard("demo", "--out", str(tmp_path))
    assert done.returncode == 2
    assert "--out" in done.stderr
    assert done.stdout == ""
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.txt"]


def test_ctrl_c_says_that_it_was_heard(tmp_path: Path) -> None:
    program = (
        "import sys, regard.cli as cli\n"
        "def stop(): raise KeyboardInterrupt\n"
        "cli.app.command('stop')(stop)\n"
        "sys.argv = ['regard', 'stop']\n"
        "cli.main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 130
    assert done.stderr == "\nregard: interrupted\n"


def test_resuming_a_bundled_recipe_goes_on_with_what_was_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[object] = []
    monkeypatch.setattr("regard.cli.train._train", lambda recipe, *_: begun.append(recipe))
    changes = ["data.petit=500", "train.steps=7"]
    (tmp_path / "recipe.toml").write_text(as_toml(read_recipe("petit-fr-en", changes)))
    for more in ([], ["--set", "train.steps=9"]):
        done = CliRunner().invoke(app, ["train", "petit-fr-en", "--out", str(tmp_path), "--resume", *more])
        assert done.exit_code == 0
    assert begun == [read_recipe("petit-fr-en", changes), read_recipe("petit-fr-en", ["train.steps=9"])]


def test_evaluating_the_wrong_way_round_is_noticed(tmp_path: Path) -> None:
    for name in ("test.fr", "test.en"):
        (tmp_path / name).write_text("Le chat dort.\n")
    asked = ["evaluate", "petit-fr-en", str(tmp_path / "test.en"), str(tmp_path / "test.fr")]
    assert "petit-fr-en translates fr into en" in str(CliRunner().invoke(app, asked).exception)
