"""Available memory: the limit of a container minus what is in use, without its page cache."""

from pathlib import Path

import pytest

from regard.system_memory import _from_cgroup, available_memory

STAT = "anon 100\nfile 700\ninactive_file 400\nactive_file 250\nslab 9\n"


@pytest.mark.parametrize(
    ("files", "available"),
    [
        ({"memory.max": "1000\n", "memory.current": "900\n", "memory.stat": STAT}, 750),
        ({"memory.max": "1000\n", "memory.current": "900\n"}, 100),
        ({"memory.max": "1000\n", "memory.current": "900\n", "memory.stat": "nonsense"}, 100),
        ({"memory.max": "1000\n", "memory.current": "1200\n"}, 0),
        ({"memory.max": "1000\n", "memory.current": "200\n", "memory.stat": STAT}, 1000),
        ({"memory.max": "max\n", "memory.current": "900\n", "memory.stat": STAT}, None),
        ({"memory.max": "1000\n"}, None),
        ({}, None),
    ],
)
def test_the_page_cache_of_a_container_is_available(
    tmp_path: Path, files: dict[str, str], available: int | None
) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    assert _from_cgroup(tmp_path) == available


def test_the_available_memory_is_plausible() -> None:
    assert (available_memory() or 0) > 1_000_000
