"""Records of figures: the tables of a benchmark as JSON, with the command, the commit, the date and the machine.

`docs/figures` has such files for the tables of the documentation; `tests/test_figures.py` compares them.
"""

import json
import os
import platform
import re
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

from regard.atomic_files import write_file
from regard.labs.source_commit import current_commit


def write_figures(file: Path, arguments: Sequence[str], tables: Sequence[Table]) -> None:
    """Write the tables that `python -m benchmarks ARGUMENTS` has printed."""
    load = f"load average {os.getloadavg()[0]:.1f}"
    record = {
        "command": command_line(arguments),
        "commit": current_commit(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": f"{machine()}, Python {platform.python_version()}, torch {torch.__version__}, {load}",
        "tables": [table_record(table) for table in tables],
    }
    write_file(file, json.dumps(record, indent=2, ensure_ascii=False) + "\n")


def table_record(table: Table) -> dict[str, Any]:
    """Return the cells of a table, and its caption if it has one."""
    columns = [[str(cell) for cell in column.cells] for column in table.columns]
    record: dict[str, Any] = {
        "header": [str(column.header) for column in table.columns],
        "rows": [list(row) for row in zip(*columns, strict=True)],
    }
    return record | ({"caption": str(table.caption)} if table.caption else {})


def command_line(arguments: Sequence[str]) -> str:
    """Return the command to type, without the option that names the file."""
    shown = list(arguments)
    while "--json" in shown:
        index = shown.index("--json")
        del shown[index : index + 2]
    command = shlex.join(["python", "-m", "benchmarks", *(each for each in shown if not each.startswith("--json="))])
    threads = os.environ.get("OMP_NUM_THREADS")
    return f"OMP_NUM_THREADS={threads} {command}" if threads else command


def machine() -> str:
    """Describe the processor and the GPU, if there is one."""
    try:
        names = re.findall(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.M)
    except OSError:
        names = []
    processor = f"{os.cpu_count()} × {names[0] if names else platform.machine()}"
    return f"{torch.cuda.get_device_name()}, {processor}" if torch.cuda.is_available() else processor
