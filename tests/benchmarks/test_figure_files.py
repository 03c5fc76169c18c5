"""Tables of benchmarks as JSON, with what is needed to repeat them."""

import json
import re
import sys
from pathlib import Path

import pytest

import benchmarks.start
from benchmarks.__main__ import app
from benchmarks.common import Timings, ratio_table
from benchmarks.figure_files import command_line, write_figures
from benchmarks.serve import ONE_CLIENT, latency_table
from regard.labs.source_commit import current_commit


def test_a_file_has_the_tables_and_how_to_repeat_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    table = ratio_table(
        "base", "tokens/s", {"peer": Timings([2.0]), "Regard": Timings([1.0])}, {"peer": 3, "Regard": 3}
    )
    file = tmp_path / "figures.json"
    write_figures(file, ["train", "--repeats", "1", "--json", str(file)], [table])
    record = json.loads(file.read_text(encoding="utf-8"))
    assert record["command"] == "python -m benchmarks train --repeats 1"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", record["date"])
    assert record["commit"] == current_commit()
    assert "torch" in record["machine"]
    assert record["tables"] == [
        {
            "header": ["base", "tokens/s", "spread", "Regard ÷ this"],
            "rows": [["peer", "1.5", "1.00", "2.00"], ["Regard", "3.0", "1.00", ""]],
            "caption": "strongest peer: peer; Regard is 2.00 × as fast",
        }
    ]


def test_the_command_has_no_name_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert command_line(["start", "--json=a.json"]) == "python -m benchmarks start"
    assert command_line(["--json", "a", "decode", "--models", "base"]) == "python -m benchmarks decode --models base"
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert command_line(["start"]) == "OMP_NUM_THREADS=1 python -m benchmarks start"


def test_the_option_writes_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmarks.start, "run", lambda _command: (2.0, 1.0))
    file = tmp_path / "start.json"
    monkeypatch.setattr(sys, "argv", ["benchmarks", "start", "--repeats", "1", "--json", str(file)])
    app(sys.argv[1:], standalone_mode=False)
    (table,) = json.loads(file.read_text(encoding="utf-8"))["tables"]
    assert table["rows"] == [["elapsed", "2.00", "2.00", "1.00"], ["processor", "1.00", "1.00", "1.00"]]


def test_the_latency_of_one_client_is_compared_with_direct_calls() -> None:
    table = latency_table("latency", {ONE_CLIENT: Timings([3.0]), "a direct call": Timings([2.0])}, 10)
    assert [list(column.cells) for column in table.columns][1:] == [["300.0", "200.0"], ["1.00", "1.00"], ["", "1.50"]]
