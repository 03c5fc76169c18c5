"""The `regard` command, run in a separate process."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from regard import __version__
from regard.cli import app, main
from regard.training.recipe_files import as_toml, read_recipe
from tests.support.commands import regard


def test_help_lists_the_commands() -> None:
    done = regard("--help")
    assert done.returncode == 0
    assert "demo" in done.stdout


def test_version() -> None:
    assert regard("--version").stdout.strip() == f"regard {__version__}"


@pytest.mark.parametrize("command", ["demo"])
def test_every_command_has_an_example(command: str) -> None:
    assert f"regard {command}" in regard(command, "--help").stdout


def test_help_prints_all_of_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rich removes words in square brackets."""
    monkeypatch.setenv("COLUMNS", "1000")
    checked = 0
    for path, command in commands(typer.main.get_command(app)):
        printed = " ".join(CliRunner().invoke(app, [*path, "--help"], terminal_width=1000).output.split())
        for parameter in command.params:
            text = " ".join((getattr(parameter, "help", None) or "").split())
            assert text in printed, (path, parameter.name)
            checked += bool(text)
    assert checked > 100


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Each command and the words that call it, with those below it."""
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, (*path, name))


def test_an_unknown_command_is_reported() -> None:
    done = regard("dmeo")
    assert done.returncode == 2
    assert "demo" in done.stderr


def test_demo_does_not_touch_a_folder_that_is_not_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    monkeypatch.setattr(sys, "argv", ["regard", "demo", "--out", str(tmp_path)])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    printed = capsys.readouterr()
    assert "--out" in printed.err
    assert printed.out == ""
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.txt"]


def run_failing(error: str, *options: str, debug: str = "", setup: str = "") -> subprocess.CompletedProcess[str]:
    """Run `regard fail`, a command that raises this error, after some lines of setup."""
    program = (
        "import sys, regard.cli as cli\n"
        "from regard.errors import RegardError\n"
        f"{setup}\n"
        f"def fail(): raise {error}\n"
        "cli.app.command('fail')(fail)\n"
        f"sys.argv = {['regard', *options, 'fail']!r}\n"
        "cli.main()"
    )
    environment = os.environ | {"REGARD_DEBUG": debug}
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)


@pytest.mark.slow
def test_ctrl_c_is_acknowledged() -> None:
    done = run_failing("KeyboardInterrupt")
    assert done.returncode == 130
    assert done.stderr == "\nregard: interrupted\n"


@pytest.mark.slow
def test_ctrl_c_while_the_command_line_is_built_is_acknowledged() -> None:
    setup = "import typer.main\ndef stop(_): raise KeyboardInterrupt\ntyper.main.get_command = stop"
    done = run_failing("AssertionError", setup=setup)
    assert done.returncode == 130
    assert done.stderr == "\nregard: interrupted\n"


@pytest.mark.slow
def test_a_second_ctrl_c_does_not_disturb_the_exit() -> None:
    setup = "import atexit, os, signal; atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))"
    done = run_failing("KeyboardInterrupt", setup=setup)
    assert done.returncode == 130
    assert done.stderr == "\nregard: interrupted\n"


@pytest.mark.slow
def test_input_errors_print_one_line_and_bugs_their_traceback() -> None:
    for error, message in (
        ("RegardError('the file is empty\\x1b[2J')", "regard: the file is empty␛[2J\n"),
        ("FileNotFoundError(2, 'No such file or directory', 'a.txt')", "regard: a.txt: No such file or directory\n"),
    ):
        done = run_failing(error)
        assert (done.returncode, done.stderr) == (2, message)
    for error in ("ValueError('a bug')", "OSError('a bug')", "RecursionError('a bug')"):
        done = run_failing(error)
        assert (done.returncode, "Traceback" in done.stderr) == (1, True)


@pytest.mark.slow
def test_debug_shows_every_traceback() -> None:
    for done in (
        run_failing("RegardError('the file is empty')", "--debug"),
        run_failing("RegardError('the file is empty')", debug="1"),
    ):
        assert (done.returncode, "Traceback" in done.stderr) == (1, True)
        assert "RegardError: the file is empty" in done.stderr


def test_resuming_a_bundled_recipe_keeps_its_overrides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[object] = []
    monkeypatch.setattr("regard.training_api.run_recipe", lambda recipe, *_: begun.append(recipe))
    monkeypatch.setattr("regard.cli.train._finish", lambda _: None)
    changes = ["data.petit=500", "train.steps=7"]
    (tmp_path / "recipe.toml").write_text(as_toml(read_recipe("petit-fr-en", changes)))
    for more in ([], ["--set", "train.steps=9"]):
        done = CliRunner().invoke(app, ["train", "petit-fr-en", "--out", str(tmp_path), "--resume", *more])
        assert done.exit_code == 0
    assert begun == [read_recipe("petit-fr-en", changes), read_recipe("petit-fr-en", ["train.steps=9"])]


def test_swapped_source_and_reference_are_reported(tmp_path: Path) -> None:
    for name in ("test.fr", "test.en"):
        (tmp_path / name).write_text("Le chat dort.\n")
    asked = ["evaluate", "petit-fr-en", str(tmp_path / "test.en"), str(tmp_path / "test.fr")]
    assert "petit-fr-en translates fr into en" in str(CliRunner().invoke(app, asked).exception)
