"""Full disks, read-only folders, pipes and devices: nothing half-written is left, and the message names the file."""

import errno
import os
import pty
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from safetensors import SafetensorError

from regard import cli
from regard.atomic_files import new_folder, write_file
from regard.data import corpus as corpora
from regard.data.corpus import Corpus, CorpusError, CorpusProblems, read_lines, require_files
from regard.errors import WriteError, describe_os_error
from regard.petit import corpus_files as petit_files
from regard.training import train as train_module
from regard.training import validation as validate
from tests.support.recipes import COMMON_TOML, RECIPES_TOML

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("without_type_checks")]
FULL_DISK = r"No space left on device; free some space, or choose another location"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Return a real file system of 64 kB that is full, with a file of ours on it."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if not shutil.which("mount") or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no disk can be mounted here")
    try:
        (folder / "mine").write_text("mine")
        (folder / "filling").touch()
        while not subprocess.run(["cp", "/dev/zero", folder / "filling"], capture_output=True, check=False).returncode:
            pass
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def files_left(folder: Path) -> set[str]:
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}


def run_command(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    """Run the command in this process and return its exit status."""
    monkeypatch.setattr(sys, "argv", ["regard", *map(str, words)])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return int(caught.value.code or 0)


SIDES = ["--source", "{text}/a.fr", "--reference", "{text}/a.en"]
COMMANDS: dict[str, list[str]] = {
    "attend --png": ["attend", "Le chat dort.", "--png", "{disk}/{name}"],
    "attend --json": ["attend", "Le chat dort.", "--json", "{disk}/{name}"],
    "attend --html": ["attend", "Le chat dort.", "--html", "{disk}/{name}"],
    "export": ["export", "petit-fr-en", "{disk}/{name}"],
    "export to ctranslate2": ["export", "petit-fr-en", "{disk}/{name}", "--to", "ctranslate2"],
    "data petit": ["data", "petit", "--pairs", "10", "--out", "{disk}/{name}"],
    "lab": ["lab", "scaling", "--set", "sequences=2", "--set", "widths=8,16", "--out", "{disk}/{name}"],
    "course start": ["course", "start", "self-attention", "--out", "{disk}/{name}.py"],
    "evaluate --out": ["evaluate", "{text}/a.en", "{text}/a.fr", "{text}/a.en", "--out", "{disk}/{name}"],
    "compare --report": ["compare", "{text}/a.en", "{text}/b.en", *SIDES, "--report", "{disk}/{name}"],
    "compare --out": ["compare", "{text}/a.en", "{text}/b.en", *SIDES, "--out", "{disk}/{name}"],
}


REPLACING = [command for command in COMMANDS if re.search("attend|--out|--report", command)]
"""Commands that replace a file that exists. The others create a folder, or refuse to overwrite a file."""


@pytest.mark.parametrize(
    ("command", "name"),
    [(command, "new") for command in COMMANDS] + [(command, "mine") for command in REPLACING],
)
def test_a_full_disk_is_reported_and_leaves_no_files(
    disk: Path,
    tmp_path: Path,
    command: str,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if "ctranslate2" in command:
        pytest.importorskip("ctranslate2")
    for file, lines in {"a.fr": "Oui.\nNon.\n", "a.en": "Yes.\nNo.\n", "b.en": "Yes!\nNo!\n"}.items():
        (tmp_path / file).write_text(lines)
    words = [word.format(disk=disk, name=name, text=tmp_path) for word in COMMANDS[command]]
    assert run_command(monkeypatch, *words) == 2
    error = capsys.readouterr().err
    assert re.search(rf"regard: {disk}/{name}.* cannot be written: {FULL_DISK}", error), error
    assert files_left(disk) == {"mine", "filling"}
    assert (disk / "mine").read_text() == "mine"


def test_translations_that_do_not_fit_are_reported(
    disk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Translations are written as they are finished, so an interruption loses none; here there is no room for them."""
    assert run_command(monkeypatch, "translate", "Le chat dort.", "--output", disk / "new") == 2
    assert re.search(rf"{disk}/new cannot be written: {FULL_DISK}", capsys.readouterr().err)


def test_training_resumes_once_a_full_disk_has_room(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """tests/training/test_runs_on_full_disks.py fills the disk during a run; here it is full from the start."""
    monkeypatch.setattr(petit_files, "HELD_OUT", 8)
    monkeypatch.setattr(train_module, "score_best_model", lambda *_: [])
    monkeypatch.setattr(validate, "SAMPLE_COUNT", 0)
    monkeypatch.setenv("REGARD_CACHE", str(disk / "cache"))
    assert run_command(monkeypatch, "data", "petit", "--pairs", 60, "--out", tmp_path / "text") == 0
    (tmp_path / "a.toml").write_text(RECIPES_TOML["translation"] + COMMON_TOML)
    words = ("train", tmp_path / "a.toml", "--set", f"data.folder={tmp_path / 'text'}", "--set", "train.steps=2")
    for out in (disk / "run", tmp_path / "run"):  # first the run's own files do not fit, then the prepared data
        assert run_command(monkeypatch, *words, "--out", out) == 2
        error = capsys.readouterr().err
        assert re.search(rf"regard: {disk}/\S+ cannot be written: {FULL_DISK}", error), error
        assert files_left(disk) <= {"mine", "filling", "run/.lock"}
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    assert run_command(monkeypatch, *words, "--out", tmp_path / "run", "--resume") == 0


@pytest.mark.parametrize("content", ["text", b"bytes"])
def test_a_file_is_replaced_atomically(tmp_path: Path, content: str | bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_text("before")
    path.chmod(0o600)
    write_file(path, content)
    assert path.read_bytes() == (content if isinstance(content, bytes) else content.encode())
    assert path.stat().st_mode & 0o777 == 0o600
    for name in ("fsync", "replace", "rename"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, raise_disk_full)
            if name != "rename":
                with pytest.raises(WriteError, match=rf"{path} cannot be written: {FULL_DISK}") as caught:
                    write_file(path, "after")
                assert caught.value.errno == errno.ENOSPC
        assert path.read_bytes() == (content if isinstance(content, bytes) else content.encode())
        assert list(tmp_path.iterdir()) == [path]


def raise_disk_full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_links_and_devices_are_written_through(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("before")
    (tmp_path / "link").symlink_to("file")
    write_file(tmp_path / "link", "after")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "after"
    write_file(Path(os.devnull), "nothing")
    assert not Path(os.devnull).is_file()
    with pytest.raises(WriteError, match="/dev/full cannot be written: No space left"):
        write_file(Path("/dev/full"), "something")
    with pytest.raises(WriteError, match="cannot be written: No such file or directory"):
        write_file(tmp_path / "nowhere" / "file", "something")


WRITE = """
import sys
from pathlib import Path
from regard.atomic_files import write_file
print("before")
write_file(Path(sys.argv[1]), "written\\n")
print("after")
"""


@pytest.mark.parametrize(
    ("command", "standard_output", "log"),
    [
        ("{write} /dev/stdout | cat", "before\nwritten\nafter\n", "old\n"),
        ("{write} /dev/fd/1 | cat", "before\nwritten\nafter\n", "old\n"),
        ("{write} link | cat", "before\nwritten\nafter\n", "old\n"),
        (
            "{write} >(cat > other); for i in {{1..200}}; do [ -s other ] || sleep 0.05; done; cat other",
            "before\nafter\nwritten\n",
            "old\n",
        ),
        ("{write} /dev/stdout >> log.txt", "", "old\nbefore\nwritten\nafter\n"),
        ("{write} /dev/stdout > log.txt", "", "before\nwritten\nafter\n"),
        ("{write} /dev/fd/7 7>> log.txt", "before\nafter\n", "old\nwritten\n"),
        ("{write} link >> log.txt", "", "old\nbefore\nwritten\nafter\n"),
        ("sleep 20 >> log.txt & {write} /proc/$!/fd/1; kill $!", "before\nafter\n", "old\nwritten\n"),
    ],
)
def test_output_to_an_open_file_descriptor(tmp_path: Path, command: str, standard_output: str, log: str) -> None:
    if not shutil.which("bash") or not Path("/proc/self/fd").exists():
        pytest.skip("this needs bash and /proc")
    (tmp_path / "log.txt").write_text("old\n")
    (tmp_path / "link").symlink_to("/dev/stdout")
    (tmp_path / "write.py").write_text(WRITE)
    script = command.format(write=f"{sys.executable} write.py")
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.stdout, done.stderr) == (standard_output, "")
    assert (tmp_path / "log.txt").read_text() == log
    assert (tmp_path / "link").is_symlink()


@pytest.fixture(params=[0o022, 0o077, 0o002], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_new_files_follow_the_umask(tmp_path: Path, umask: int) -> None:
    def mode(path: Path) -> int:
        return path.stat().st_mode & 0o777

    write_file(tmp_path / "file", "content")
    write_file(tmp_path / "new", "content", new=True)
    assert [mode(tmp_path / name) for name in ("file", "new")] == [0o666 & ~umask] * 2


def test_creating_a_file_never_replaces_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_file(path, "first", new=True)
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for taken in ("file", "link", "pipe", "folder"):
        with pytest.raises(WriteError, match="cannot be written: File exists") as caught:
            write_file(tmp_path / taken, "second", new=True)
        assert caught.value.errno == errno.EEXIST
    assert path.read_text() == "first"

    def no_links(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    with pytest.raises(WriteError, match="File exists"):
        write_file(path, "second", new=True)
    write_file(tmp_path / "other", "third", new=True)
    assert (path.read_text(), (tmp_path / "other").read_text()) == ("first", "third")
    assert {each.name for each in tmp_path.iterdir()} == {"file", "link", "folder", "pipe", "other"}


def test_long_file_names_in_any_script(tmp_path: Path) -> None:
    path = tmp_path / ("\N{GRINNING FACE}" * 63)  # 252 bytes
    write_file(path, "content")
    assert path.read_text() == "content"


def test_a_full_disk_in_a_rust_library_is_reported(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match=FULL_DISK), new_folder(tmp_path / "folder"):
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")
    assert list(tmp_path.iterdir()) == []


def test_system_errors_are_described_without_their_number() -> None:
    error = PermissionError(errno.EACCES, "Permission denied", "a\x1bb")
    assert describe_os_error(error) == "a\x1bb: Permission denied: check the permissions, or choose another location"
    assert describe_os_error(OSError("odd")) == "odd"


# Inputs that are not regular files


def odd_files(folder: Path) -> dict[str, str]:
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(folder / "socket"))
    return {
        str(folder / "pipe"): "is a pipe",
        str(folder / "socket"): "is a socket",
        str(folder): "is a folder: name the files in it",
        "/dev/zero": "is a device",
        str(folder / "none"): "no such file",
    }


def test_training_text_must_be_in_regular_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for path, message in odd_files(tmp_path).items():
        with pytest.raises(CorpusError, match=re.escape(path) + ".* ?" + message):
            require_files([path])
        (tmp_path / "a.toml").write_text(f"[data]\ntrain = [{{ files = [{path!r}, {path!r}] }}]\nheld_out = 0.1")
        assert run_command(monkeypatch, "train", tmp_path / "a.toml", "--out", tmp_path / "run") == 2
        assert re.search(re.escape(path) + ".* ?" + message, capsys.readouterr().err)


def test_endless_inputs_are_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpora, "PIPE_TIMEOUT_SECONDS", 0.2)
    for path, message in odd_files(tmp_path).items():
        with pytest.raises(CorpusError, match=re.escape(path) + ".* ?" + message):
            list(Corpus((path,)).rows(CorpusProblems()))
    assert list(read_lines(os.devnull)) == []


def test_a_pipe_with_a_writer_is_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_text("un\ndeux\n"))
    writer.start()
    assert list(read_lines(str(tmp_path / "pipe"))) == [(1, "un"), (2, "deux")]
    writer.join()


def test_process_substitution_can_be_translated() -> None:
    """As bash passes <(command): the name of a pipe that is already open."""
    ours, theirs = os.pipe()
    with os.fdopen(theirs, "w") as file:
        file.write("Le chat dort.\n")
    command = [sys.executable, "-m", "regard", "translate", "--input", f"/dev/fd/{ours}"]
    done = subprocess.run(command, pass_fds=[ours], capture_output=True, text=True, check=False, timeout=120)
    os.close(ours)
    assert (done.returncode, done.stdout) == (0, "The cat is sleeping.\n"), done.stderr


# Output from untrusted files


def test_model_output_cannot_control_the_terminal() -> None:
    """Control characters are made visible on a terminal; other outputs are unchanged."""
    from regard.cli.text_io import for_output

    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal, open(os.devnull, "w") as file:  # noqa: PTH123  # for its isatty
        assert for_output(terminal, "a\x1b[2J\x00\tb\n\u202ec\x9b") == "a␛[2J␀\tb\n\\u202ec\\u009b"
        assert for_output(file, "a\x1b[2J") == "a\x1b[2J"
    os.close(ours)


def test_the_console_shows_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.table import Table
    from rich.text import Text

    from regard.plots.console import console

    screen = console()
    screen.print("plain\x1b]0;owned\x07 and \u202eturned")
    table = Table("head")
    table.add_row(Text("cell\x1b[2J\x9b"))
    screen.print(table)
    out = capsys.readouterr().out
    assert out.replace("\n", "").isprintable()
    assert "plain␛]0;owned" in out
    assert "cell␛[2" in out


def test_errors_show_control_characters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(monkeypatch, "train", f"{tmp_path}/a\x1b[31m\u202e.toml") == 2
    error = capsys.readouterr().err
    assert "a␛[31m\\u202e.toml" in error
    assert error.replace("\n", "").isprintable()


def test_running_out_of_memory_prints_a_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def too_much() -> None:
        raise MemoryError

    monkeypatch.setattr(cli, "app", too_much)
    assert run_command(monkeypatch) == 2
    assert capsys.readouterr().err == "regard: not enough memory\n"
