"""The bundled gallery: valid records, pages that are rendered from them, and texts that match the labs."""

import json
from pathlib import Path
from typing import Any

import pytest

from regard.errors import RegardError
from regard.labs.lab import NAMES, load_lab
from regard.labs.lab_markdown import index, markdown, paragraphs
from regard.labs.lab_record import FULL_SUFFIX, LabRecord, described_sizes, read_record

GALLERY = Path("regard/labs/gallery")
GALLERY_NAMES = (*NAMES, f"ablation{FULL_SUFFIX}")


def record_of(name: str) -> LabRecord:
    return read_record(GALLERY / f"{name}.json")


@pytest.mark.parametrize("name", GALLERY_NAMES)
def test_every_page_is_the_rendering_of_its_record(name: str) -> None:
    record = record_of(name)
    assert markdown(record) == (GALLERY / f"{name}.md").read_text(encoding="utf-8")
    assert record.json_text() == (GALLERY / f"{name}.json").read_text(encoding="utf-8")
    assert (GALLERY / record.picture).is_file()


def test_the_index_is_the_rendering_of_the_records() -> None:
    text = index([record_of(name) for name in NAMES], ["ablation"], f"regard lab all --out {GALLERY} --force")
    assert text == (GALLERY / "README.md").read_text(encoding="utf-8")


def test_the_gallery_has_no_other_files() -> None:
    expected = {f"{name}.{ending}" for name in GALLERY_NAMES for ending in ("json", "md", "png")} | {"README.md"}
    assert {path.name for path in GALLERY.iterdir()} == expected


@pytest.mark.parametrize("name", GALLERY_NAMES)
def test_records_describe_the_labs_as_they_are(name: str) -> None:
    """The measurements take too long to repeat here, but their descriptions must not be out of date."""
    record, lab = record_of(name), load_lab(name.removesuffix(FULL_SUFFIX))
    if name.endswith(FULL_SUFFIX):
        lab = lab.with_sizes(lab.full_sizes.split())
    assert record.question == lab.question
    assert record.about == tuple(paragraphs(lab.about))
    assert record.sizes == described_sizes(lab.sizes)
    assert record.holds


def without_rows(data: dict[str, Any]) -> None:
    del data["tables"][0]["rows"]


def with_a_short_row(data: dict[str, Any]) -> None:
    data["tables"][0]["rows"][0].pop()


def with_a_number_for_a_cell(data: dict[str, Any]) -> None:
    data["tables"][0]["rows"][0][0] = 3


def with_another_picture(data: dict[str, Any]) -> None:
    data["picture"] = "../secret.png"


def with_an_unknown_key(data: dict[str, Any]) -> None:
    data["extra"] = ""


def with_text_for_a_verdict(data: dict[str, Any]) -> None:
    data["claims"][0]["holds"] = "yes"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (without_rows, "tables: expected an object with the keys columns, rows, title"),
        (with_a_short_row, "has a row of another length"),
        (with_a_number_for_a_cell, "rows: int found where another type is expected"),
        (with_another_picture, "name and picture must be 'scaling' and 'scaling.png'"),
        (with_an_unknown_key, "expected an object with the keys name, question"),
        (with_text_for_a_verdict, "holds: str found where another type is expected"),
    ],
)
def test_invalid_records_are_refused(tmp_path: Path, damage: Any, message: str) -> None:
    data = json.loads((GALLERY / "scaling.json").read_text(encoding="utf-8"))
    damage(data)
    (tmp_path / "scaling.json").write_text(json.dumps(data))
    with pytest.raises(RegardError, match=message):
        read_record(tmp_path / "scaling.json")
