"""Which paths count as regular files."""

import os
from pathlib import Path

import pytest

from regard.errors import RegardError
from regard.untrusted_files import is_regular_file


def test_paths_that_do_not_exist(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert is_regular_file(tmp_path / "file")
    for name in ("missing", "missing/file", "file/below", "a" * 300, "a\0b"):
        assert not is_regular_file(tmp_path / name)


def test_special_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "broken").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("folder", "pipe", "broken", "loop"):
        with pytest.raises(RegardError, match="is not a regular file"):
            is_regular_file(tmp_path / name)


def test_a_file_may_be_created_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, stat = tmp_path / "metrics.jsonl", Path.stat

    def stat_and_create(self: Path, **options: bool) -> os.stat_result:
        try:
            return stat(self, **options)
        finally:
            os.close(os.open(path, os.O_CREAT))

    monkeypatch.setattr(Path, "stat", stat_and_create)
    assert not is_regular_file(path)
    assert is_regular_file(path)
