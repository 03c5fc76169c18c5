"""Running labs and writing their files: for one lab its record, tables, figure and page, or a gallery of all labs."""

import csv
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from importlib.metadata import version
from io import StringIO
from pathlib import Path

from regard import __version__
from regard.atomic_files import write_file
from regard.errors import RegardError
from regard.formatting import visible
from regard.labs.lab import Lab, LabResult, ResultTable
from regard.labs.lab_markdown import index, markdown, paragraphs
from regard.labs.lab_page import page, png
from regard.labs.lab_record import FULL_SUFFIX, LabRecord, described_sizes, size_text
from regard.labs.source_commit import current_commit


@dataclass(frozen=True)
class LabRun:
    """A lab that was run: its record, and the result that can draw the figure."""

    record: LabRecord
    result: LabResult


def run_lab(lab: Lab, command: str) -> LabRun:
    """Run a lab. Errors caused by sizes other than the defaults are reported with those sizes."""
    start = time.perf_counter()
    try:
        result = lab.run(lab.sizes)
    except (ValueError, RuntimeError, ArithmeticError, LookupError, MemoryError) as error:
        changed = _changed_sizes(lab)
        if not changed:
            raise
        raise RegardError(f"the lab {lab.name} cannot be run with {changed}: {visible(str(error))}") from error
    return LabRun(_record(lab, result, command, time.perf_counter() - start), result)


def write_lab_files(run: LabRun, folder: Path) -> list[Path]:
    """Write the record (JSON), the Markdown, the figure, the HTML page and the tables (CSV); return their paths."""
    record, picture = run.record, png(run.result)
    files: dict[str, str | bytes] = {
        **_gallery_files(record, picture),
        f"{record.name}.html": page(record, picture),
        **{f"{record.name}{number}.csv": csv_text(table) for number, table in _numbered(record.tables).items()},
    }
    return _write(files, folder)


def write_gallery_page(run: LabRun, folder: Path) -> list[Path]:
    """Write a lab's part of the gallery: its record (JSON), Markdown and figure."""
    return _write(_gallery_files(run.record, png(run.result)), folder)


def write_index(records: Sequence[LabRecord], folder: Path, command: str) -> Path:
    """Write the gallery's index, with links to the full forms that the folder has."""
    full_forms = [record.name for record in records if (folder / f"{record.name}{FULL_SUFFIX}.json").is_file()]
    (path,) = _write({"README.md": index(records, full_forms, command)}, folder)
    return path


def csv_text(table: ResultTable) -> str:
    """Return a table as CSV."""
    buffer = StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([table.columns, *table.rows])
    return buffer.getvalue()


def _record(lab: Lab, result: LabResult, command: str, seconds: float) -> LabRecord:
    name = lab.name + (FULL_SUFFIX if getattr(lab.sizes, "full", False) else "")
    return LabRecord(
        name=name,
        question=lab.question,
        about=tuple(paragraphs(lab.about)),
        picture=f"{name}.png",
        tables=result.tables,
        claims=result.claims,
        notes=result.notes,
        sizes=described_sizes(lab.sizes),
        command=command,
        regard_version=__version__,
        torch_version=version("torch"),
        seconds=seconds,
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        commit=current_commit(),
    )


def _changed_sizes(lab: Lab) -> str:
    """The sizes that differ from their defaults, as name=value."""
    defaults = type(lab.sizes)()
    names = [
        field.name for field in fields(defaults) if getattr(defaults, field.name) != getattr(lab.sizes, field.name)
    ]
    return ", ".join(f"{name}={size_text(getattr(lab.sizes, name))}" for name in names)


def _gallery_files(record: LabRecord, picture: bytes) -> dict[str, str | bytes]:
    return {f"{record.name}.json": record.json_text(), f"{record.name}.md": markdown(record), record.picture: picture}


def _numbered(tables: Sequence[ResultTable]) -> dict[str, ResultTable]:
    """Tables by the ending of their file names: none for a single table, else -1, -2 and so on."""
    if len(tables) == 1:
        return {"": tables[0]}
    return {f"-{number}": table for number, table in enumerate(tables, start=1)}


def _write(files: dict[str, str | bytes], folder: Path) -> list[Path]:
    for name, content in files.items():
        write_file(folder / name, content)
    return [folder / name for name in files]
