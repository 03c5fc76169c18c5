"""Figures in the documentation: each equals its record, and its command, date and commit stand next to it.

`docs/figures` has a JSON file for each measurement: the command, the commit that was measured (or, for older figures,
the commit that first stated them), the date, the machine and the rows of the tables. `python -m benchmarks COMMAND
--json FILE` writes such a file. "page" names the page that shows a table, and "quoted" the figures that the README
repeats, by the start of their row. Sizes and scores of bundled models are compared with the models themselves.
"""

import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from regard.models import bundled_folder, bundled_metadata, bundled_models, bundled_parameters, bundled_size

ROOT = Path(__file__).parent.parent
RECORDS = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(ROOT.glob("docs/figures/*.json"))}
NUMBER = re.compile(r"(?<![\w.-])\d+(?:,\d{3})*(?:\.\d+)?(?![\w.]*\w)")
"""A figure, but not a digit in a name such as newstest2013 or int8."""
PAGES_OF_FIGURES = ("docs/performance.md", "docs/serving.md", "docs/text.md", "docs/training.md")
"""Pages of which every table must have a record."""
SOURCES_HEADER = ["corpus", "text", "home page", "licence"]
"""Header of the table of corpora, which has no measured figures."""
PAGES_WITH_MODELS = ("README.md", "docs/models.md")
COMPOSITIONAL = "new combinations"
"""What pages call the test set of Petit that its record calls compositional."""


@dataclass(frozen=True)
class PageTable:
    """A table of a page, with the text of the section that it is in."""

    header: list[str]
    rows: list[list[str]]
    section: str


def tables_of(text: str) -> list[PageTable]:
    """Return the tables of a page."""
    found = []
    for section in re.split(r"^(?=#+ )", text, flags=re.M):
        for block in re.findall(r"(?:^\|.*\n)+", section, re.M):
            cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in block.splitlines()]
            found.append(PageTable(cells[0], cells[2:], " ".join(section.split())))
    return found


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def numbers(text: str) -> list[float]:
    """Return the figures in a text, without links."""
    return [float(number.replace(",", "")) for number in NUMBER.findall(re.sub(r"\]\([^)]*\)", "]", text))]


def differences(record: dict[str, Any], table: dict[str, Any], text: str) -> list[str]:
    """Compare a table of a record with the page: its rows, and the command, date and commit in the same section."""
    same = [each for each in tables_of(text) if each.header == table["header"]]
    if len(same) != 1:
        return [f"{len(same)} tables have the header {table['header']}"]
    faults = [f"no row {row}" for row in table["rows"] if row not in same[0].rows]
    commit = record.get("commit") or f"stated in commit {record['stated_in_commit']}"
    faults += [f"{each} is not next to the table" for each in (record["date"], commit) if each not in same[0].section]
    command = record["command"] or record["note"]  # a note says that no command repeats the figures
    return faults + ([] if command in " ".join(text.split()) else [f"the page does not say: {command}"])


def test_there_are_records() -> None:
    assert len(RECORDS) > 15
    for name, record in RECORDS.items():
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", record["date"]), name
        assert re.fullmatch(r"[0-9a-f]{7,}", record.get("commit") or record["stated_in_commit"]), name
        assert record["machine"], name


@pytest.mark.parametrize("name", RECORDS)
def test_tables_equal_their_records(name: str) -> None:
    record = RECORDS[name]
    for table in record["tables"]:
        if "page" in table:
            assert differences(record, table, page(table["page"])) == [], table["page"]
        else:
            assert record.get("quoted"), f"no page shows or quotes the figures of {name}.json"


@pytest.mark.parametrize(
    ("right", "wrong", "fault"),
    [
        ("4,129", "4,219", "no row"),
        ("| 984 |", "| 985 |", "no row"),
        ("its static cache, compiled", "compiled", "0 tables have the header"),
        ("stated in commit 24e9778", "", "stated in commit 24e9778 is not next to the table"),
        ("--models base,gpt2", "--models base", "the page does not say: python -m benchmarks"),
    ],
)
def test_a_changed_page_is_noticed(right: str, wrong: str, fault: str) -> None:
    record, text = RECORDS["decoding-gpu"], page("docs/performance.md")
    (table,) = record["tables"]
    assert right in text
    assert any(each.startswith(fault) for each in differences(record, table, text.replace(right, wrong)))


def rows_without_record(name: str, text: str) -> list[list[str]]:
    """Return the rows of a page's tables that are not in exactly one record."""
    tables = [table for record in RECORDS.values() for table in record["tables"] if table.get("page") == name]
    recorded = Counter((*table["header"], *row) for table in tables for row in table["rows"])
    measured = [table for table in tables_of(text) if table.header != SOURCES_HEADER]
    return [row for table in measured for row in table.rows if recorded[(*table.header, *row)] != 1]


@pytest.mark.parametrize("name", PAGES_OF_FIGURES)
def test_every_row_has_a_record(name: str) -> None:
    assert rows_without_record(name, page(name)) == []
    assert rows_without_record(name, page(name) + "\n| a | b |\n|---|---|\n| c | 1 |\n") == [["c", "1"]]


def measured_rows(text: str) -> list[list[str]]:
    """Return the rows of the table in the README that sums up the measurements."""
    return next(table.rows for table in tables_of(text) if table.header[1:3] == ["Regard", "compared with"])


def unrecorded_figures(text: str) -> list[str]:
    """Return the figures of that table which are neither quoted from a record nor those of a bundled model."""
    faults = []
    for title, ours, compared, *_ in measured_rows(text):
        quoted = [
            figure
            for record in RECORDS.values()
            for start, figures in record.get("quoted", {}).get("README.md", {}).items()
            if title.startswith(start)
            for figure in figures
        ]
        known = [value for figure in quoted for value in numbers(figure)]
        cell = compared if model_of(title) else f"{ours} | {compared}"
        faults += [f"{title}: {value:g}" for value in numbers(cell) if value not in known]
        faults += [f"{title}: {value:g} is missing" for value in known if value not in numbers(cell)]
    return faults


def test_the_readme_quotes_the_records() -> None:
    assert unrecorded_figures(page("README.md")) == []
    for name, record in RECORDS.items():
        recorded = {value for table in record["tables"] for row in table["rows"] for value in numbers(" | ".join(row))}
        for quoted_page, rows in record.get("quoted", {}).items():
            titles = [row[0] for row in measured_rows(page(quoted_page))]
            for start, figures in rows.items():
                assert any(title.startswith(start) for title in titles), f"{name}: {quoted_page} has no row {start}"
                assert set(numbers(" | ".join(figures))) <= recorded, f"{name}: {figures}"


def test_a_changed_readme_is_noticed() -> None:
    changed = page("README.md").replace("796,800 target tokens/s", "797,800 target tokens/s")
    row = "training Transformer-base on an H200"
    assert unrecorded_figures(changed) == [f"{row}: 797800", f"{row}: 796800 is missing"]


def model_of(title: str) -> str | None:
    """Return the bundled model that the first cell of a row names first."""
    name = re.match(r"\[?`([\w-]+)`", title)
    return name[1] if name and name[1] in bundled_models() else None


def model_faults(name: str, row: list[str]) -> list[str]:
    """Compare the parameters, the size and the scores in a row of a table with a bundled model."""
    text = re.sub(r"\]\([^)]*\)", "]", " | ".join(row))
    sizes = bundled_size(name), (bundled_folder(name) / "model.safetensors").stat().st_size
    faults = []
    for pattern, allowed in (
        (r"([\d.]+) M\b(?!B)", [f"{bundled_parameters(name) / 1e6:.1f}"]),
        (r"([\d.]+) MB\b", [f"{size / 1e6:.1f}" for size in sizes]),  # of the folder or of the weights
    ):
        faults += [
            f"{name}: {match[0]}, not {allowed}" for match in re.finditer(pattern, text) if match[1] not in allowed
        ]
    tests = {test["set"]: test["figures"] for test in bundled_metadata(name).get("tests", [])}
    values = {
        f"{figure['value']:.{digits}f}" for figures in tests.values() for figure in figures for digits in (1, 2, 3)
    }
    scores = re.sub(r"[\d.]+ MB?\b", "", " | ".join(row[1:]))
    found = re.findall(r"(?<![\w.])\d+\.\d+\b", scores)
    faults += [f"{name}: {score} is not a score of this model" for score in found if score not in values]
    for test_set, score in stated_scores(scores):
        part = "compositional" if test_set == COMPOSITIONAL else test_set
        bleu = {f"{figures[0]['value']:.1f}" for described, figures in tests.items() if part in described}
        if bleu and score not in bleu:
            faults.append(f"{name}: {score} on {test_set}, not {' or '.join(sorted(bleu))}")
    return faults


def without_peers(table: PageTable) -> list[list[str]]:
    """Return the rows of a table up to the column about other systems."""
    columns = table.header.index("compared with") if "compared with" in table.header else None
    return [row[:columns] for row in table.rows]


def stated_scores(text: str) -> list[tuple[str, str]]:
    """Return test sets and scores, written as "63.4 BLEU on Tatoeba" or as "Tatoeba 63.4"."""
    first = [(test_set, score) for score, test_set in re.findall(r"(\d+\.\d) (?:BLEU )?on (\w+)", text)]
    return first or re.findall(rf"({COMPOSITIONAL}|\w+)(?: \([^)]*\))? (\d+\.\d)\b", text)


@pytest.mark.parametrize("name", PAGES_WITH_MODELS)
def test_bundled_models_are_described_correctly(name: str) -> None:
    rows = [row for table in tables_of(page(name)) for row in without_peers(table) if model_of(row[0])]
    assert rows
    assert [fault for row in rows for fault in model_faults(model_of(row[0]) or "", row)] == []


def test_a_wrong_description_of_a_model_is_noticed() -> None:
    (row,) = [row[:2] for row in measured_rows(page("README.md")) if model_of(row[0]) == "fr-en"]
    assert model_faults("fr-en", row) == []
    for right, wrong in (("23.6 M", "23.7 M"), ("24.2 MB", "22.4 MB"), ("63.2", "62.3"), ("63.2", "28.5")):
        assert right in " | ".join(row)
        assert model_faults("fr-en", [cell.replace(right, wrong) for cell in row]) != [], wrong
    assert model_faults("fr-en", ["`fr-en`", "Petit (not in its training data) 57.6"]) != []
    assert stated_scores("Tatoeba 63.4; Petit (new) 57.5") == [("Tatoeba", "63.4"), ("Petit", "57.5")]


def test_figures_and_names_with_digits_are_distinguished() -> None:
    assert numbers("63.4 BLEU on newstest2013, 1,234 in int8 on an H200, [x](a-1.md): 5") == [63.4, 1234, 5]


def test_the_readme_states_the_size_of_the_wheel() -> None:
    """Nearly all of it is the weights, which hardly compress; tests/test_packaging.py builds it."""
    weights = sum(path.stat().st_size for path in ROOT.glob("regard/models/*/model.safetensors")) / 1e6
    (stated,) = re.findall(r"The wheel is (\d+) MB", page("README.md"))
    assert weights - 1 < int(stated) < weights + 3
