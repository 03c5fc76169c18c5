"""The records of the gallery that the server reads."""

import shutil
from pathlib import Path

import pytest

from regard.errors import RegardError
from regard.labs.lab import NAMES
from regard.server.labs_api import GALLERY_FOLDER, gallery_records


def test_all_labs_are_served_in_their_order_with_the_full_form_after_its_lab() -> None:
    names = list(NAMES)
    names.insert(names.index("ablation") + 1, "ablation-full")
    assert [record.name for record in gallery_records(GALLERY_FOLDER)] == names


def test_without_a_gallery_there_are_no_labs(tmp_path: Path) -> None:
    assert gallery_records(tmp_path) == []
    assert gallery_records(tmp_path / "missing") == []


def test_a_lab_needs_its_record_and_its_figure(tmp_path: Path) -> None:
    shutil.copy(GALLERY_FOLDER / "copy.json", tmp_path)
    shutil.copy(GALLERY_FOLDER / "mask.png", tmp_path)
    for ending in ("json", "png"):
        shutil.copy(GALLERY_FOLDER / f"heads.{ending}", tmp_path)
    assert [record.name for record in gallery_records(tmp_path)] == ["heads"]


def test_an_invalid_record_is_reported_with_its_path(tmp_path: Path) -> None:
    shutil.copy(GALLERY_FOLDER / "heads.png", tmp_path)
    (tmp_path / "heads.json").write_text('{"name": "heads"}')
    with pytest.raises(RegardError, match=r"heads\.json: expected an object with the keys name, question"):
        gallery_records(tmp_path)
