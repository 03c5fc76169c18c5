"""The bundled gallery: valid records, pages that are rendered from them, and texts that match the labs.

After a change to a lab's description or to the Markdown, `python -m tests.labs.test_gallery` updates the descriptions
in the records and renders the pages again, without repeating any measurement.
"""

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from regard.errors import RegardError
from regard.labs.lab import NAMES, load_lab
from regard.labs.lab_markdown import index, markdown, paragraphs
from regard.labs.lab_record import FULL_SUFFIX, LabRecord, described_sizes, read_record
from regard.labs.source_commit import current_commit

GALLERY = Path("regard/labs/gallery")
GALLERY_NAMES = (*NAMES, f"ablation{FULL_SUFFIX}")


def record_of(name: str) -> LabRecord:
    return read_record(GALLERY / f"{name}.json")


def described(record: LabRecord) -> LabRecord:
    """Return the record with the description that its lab has now."""
    lab = load_lab(record.name.removesuffix(FULL_SUFFIX))
    if record.name.endswith(FULL_SUFFIX):
        lab = lab.with_sizes(lab.full_sizes.split())
    about, sizes = tuple(paragraphs(lab.about)), described_sizes(lab.sizes)
    return replace(record, question=lab.question, about=about, sizes=sizes)


def gallery_index() -> str:
    command = f"regard lab all --out {GALLERY} --force"
    return index([record_of(name) for name in NAMES], ["ablation"], command)


def refresh() -> None:
    """Update the descriptions in the records, and render all pages again."""
    for name in GALLERY_NAMES:
        record = described(record_of(name))
        (GALLERY / f"{name}.json").write_text(record.json_text(), encoding="utf-8")
        (GALLERY / f"{name}.md").write_text(markdown(record), encoding="utf-8")
    (GALLERY / "README.md").write_text(gallery_index(), encoding="utf-8")


@pytest.mark.parametrize("name", GALLERY_NAMES)
def test_every_page_is_the_rendering_of_its_record(name: str) -> None:
    record = record_of(name)
    assert markdown(record) == (GALLERY / f"{name}.md").read_text(encoding="utf-8")
    assert record.json_text() == (GALLERY / f"{name}.json").read_text(encoding="utf-8")
    assert (GALLERY / record.picture).is_file()


def test_the_index_is_the_rendering_of_the_records() -> None:
    assert gallery_index() == (GALLERY / "README.md").read_text(encoding="utf-8")


def test_the_gallery_has_no_other_files() -> None:
    expected = {f"{name}.{ending}" for name in GALLERY_NAMES for ending in ("json", "md", "png")} | {"README.md"}
    assert {path.name for path in GALLERY.iterdir()} == expected


@pytest.mark.parametrize("name", GALLERY_NAMES)
def test_records_describe_the_labs_as_they_are(name: str) -> None:
    """The measurements take too long to repeat here, but their descriptions must not be out of date."""
    record = record_of(name)
    assert record == described(record)
    assert record.holds


def test_records_state_when_and_on_which_commit_they_were_measured() -> None:
    for record in map(record_of, GALLERY_NAMES):
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", record.date), record.name
        assert re.fullmatch(r"[0-9a-f]{7,}", record.commit or ""), record.name
        assert record.environment.endswith(f" on {record.date}")
        assert f" (commit {record.commit}) " in record.environment
    installed = replace(record_of("scaling"), commit=None)
    assert re.match(r"Regard [\d.]+ and PyTorch", installed.environment)


def test_the_commit_is_that_of_the_repository_that_tracks_the_folder(tmp_path: Path) -> None:
    """Not that of a project in whose folder Regard is installed."""
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    package = tmp_path / ".venv/regard"
    package.mkdir(parents=True)
    (package / "a.py").touch()
    assert current_commit(package) is None
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "--quiet", "--message", "a"], check=True)
    commit = current_commit(package)
    assert commit is not None
    assert re.fullmatch(r"[0-9a-f]{7,}", commit)
    (package / "a.py").write_text("1")
    assert current_commit(package) == f"{commit}-dirty"


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
        (with_a_short_row, r"scaling\.json: tables: a table of 4 columns has a row of another length"),
        (with_a_number_for_a_cell, "rows: expected str, got int"),
        (with_another_picture, "name and picture must be 'scaling' and 'scaling.png'"),
        (with_an_unknown_key, "expected an object with the keys name, question"),
        (with_text_for_a_verdict, "holds: expected bool, got str"),
    ],
)
def test_invalid_records_are_refused(tmp_path: Path, damage: Any, message: str) -> None:
    data = json.loads((GALLERY / "scaling.json").read_text(encoding="utf-8"))
    damage(data)
    (tmp_path / "scaling.json").write_text(json.dumps(data))
    with pytest.raises(RegardError, match=message):
        read_record(tmp_path / "scaling.json")


if __name__ == "__main__":
    refresh()
