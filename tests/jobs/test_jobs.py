"""Jobs on damaged, changed and invalid input, on full disks, and in folders of others; and their formats."""

import errno
import gzip
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from regard.cli.job_options import fault_remedies
from regard.data.corpus import Corpus, CorpusError, CorpusProblems, read_lines
from regard.errors import RegardError, WriteError
from regard.jobs.job_folder import FINISHED_FILE, JOINED_FILE, JobFolder
from regard.jobs.local_workers import LocalEngine, local_devices
from regard.jobs.records import JsonlRecords, LineRecords, ParquetRecords, RecordFile, TsvRecords, open_records
from regard.jobs.shards import FinishedShard, RowFault
from tests.support.commands import command, refused
from tests.support.jobs import MODEL, ROWS_PER_SHARD, ReverseTask, Stopped, reverse_file, write_sentences

pytestmark = pytest.mark.slow
ROWS = 60
EXPECTED = "".join(f"sentence {number}"[::-1] + "\n" for number in range(ROWS))


def interrupt(source: Path | RecordFile, output: Path, rows: int) -> None:
    """Run a job until this many rows are finished."""

    def stop(progress: Any) -> None:
        if progress.rows >= rows:
            raise Stopped

    with pytest.raises(Stopped):
        reverse_file(source, output, workers=None, report=stop)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_sentences(tmp_path / "in", ROWS)


def test_workers_that_load_the_model_themselves(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with GPUs, whose processes cannot be forked."""
    monkeypatch.setattr(LocalEngine, "can_share_model", False)
    reverse_file(source, tmp_path / "out", workers=2)
    assert (tmp_path / "out").read_text() == EXPECTED
    source.write_text(source.read_text() + "this is deadly\n")
    with pytest.raises(RegardError, match=r"rows \d+–61 ended 3 processes"):
        reverse_file(source, tmp_path / "second", workers=2)


def test_every_gpu_gets_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    assert local_devices("cuda", None) == ["cuda:0", "cuda:1", "cuda:2"]
    assert local_devices("cuda", 5) == ["cuda:0", "cuda:1", "cuda:2", "cuda:0", "cuda:1"]
    assert local_devices("cuda:1", 2) == ["cuda:1", "cuda:1"]
    engine = LocalEngine("cuda", None, input_size=10**6)
    assert (engine.uses_processes, engine.can_share_model, engine.loads_on) == (True, False, "cpu")
    alone = LocalEngine("cuda:1", None, input_size=10**6)
    assert (alone.uses_processes, alone.loads_on) == (False, "cuda:1")


def test_rows_that_cannot_be_answered_are_reported_by_number(tmp_path: Path) -> None:
    lines = [f"line {number}".encode() for number in range(1, 41)]
    lines[6], lines[12], lines[20], lines[30] = b"caf\xe9", b"a\0b", b"x" * 100_000, b"this is refused"
    (tmp_path / "in").write_bytes(b"\n".join(lines))
    summary = reverse_file(tmp_path / "in", tmp_path / "out", workers=None)
    assert summary.faults == (
        (7, "invalid UTF-8 (at byte 3)", "invalid UTF-8"),
        (13, "NUL byte (at byte 1)", "NUL byte"),
        (21, "too long", "too long"),
        (31, "the text is refused", ""),
    )
    expected = ["" if number in (7, 13, 21, 31) else f"line {number}"[::-1] for number in range(1, 41)]
    assert (tmp_path / "out").read_text().split("\n") == [*expected, ""]


def test_a_truncated_archive_stops_the_job_and_a_complete_one_continues_it(tmp_path: Path) -> None:
    source = tmp_path / "in.gz"
    source.write_bytes(gzip.compress(EXPECTED.encode())[:-40])
    with pytest.raises(RegardError, match=r"in\.gz: damaged after line \d+ .*download or copy") as caught:
        reverse_file(source, tmp_path / "out", workers=None)
    assert not (tmp_path / "out").exists()
    kept = re.search(r"; (\d+) rows are reversed and kept in .*out\.job", str(caught.value))
    assert kept
    source.write_bytes(gzip.compress(EXPECTED.encode(), 1))
    assert reverse_file(source, tmp_path / "out", workers=None).progress.rows_before == int(kept[1]) > 0
    assert (tmp_path / "out").read_text() == "".join(line[::-1] + "\n" for line in EXPECTED.splitlines())


def test_an_archive_with_a_changed_byte_is_reported(tmp_path: Path) -> None:
    """gzip notices it only at the end, after wrong rows: with a good copy, these have changed."""
    source = tmp_path / "in.gz"
    content = bytearray(gzip.compress(EXPECTED.encode()))
    content[len(content) * 3 // 4] ^= 255
    source.write_bytes(content)
    with pytest.raises(RegardError, match=r"in\.gz: damaged after line"):
        reverse_file(source, tmp_path / "out", workers=None)
    source.write_bytes(gzip.compress(EXPECTED.encode()))
    with pytest.raises(RegardError, match=r"in\.gz:\d+–\d+ has changed since the job began"):
        reverse_file(source, tmp_path / "out", workers=None)
    reverse_file(source, tmp_path / "out", workers=None, restart=True)
    assert (tmp_path / "out").read_text() == "".join(line[::-1] + "\n" for line in EXPECTED.splitlines())


def test_a_changed_input_is_refused(source: Path, tmp_path: Path) -> None:
    interrupt(source, tmp_path / "out", 20)
    original = source.read_text()
    source.write_text(original.replace("sentence 5\n", "sentence V\n"))
    with pytest.raises(RegardError, match=r"in:5–12 has changed since the job began: restore the file, or .*--restart"):
        reverse_file(source, tmp_path / "out", workers=None)
    source.write_text("sentence 0\n")
    with pytest.raises(RegardError, match=r"in:1–1 has changed"):
        reverse_file(source, tmp_path / "out", workers=None)
    source.write_text("")
    with pytest.raises(RegardError, match=r"in has fewer rows than when the job began"):
        reverse_file(source, tmp_path / "out", workers=None)
    source.write_text(original)
    assert reverse_file(source, tmp_path / "out", workers=None).progress.rows_before == 20
    assert (tmp_path / "out").read_text() == EXPECTED


def test_other_settings_are_refused_and_restart_discards_the_job(source: Path, tmp_path: Path) -> None:
    interrupt(source, tmp_path / "out", 20)
    with pytest.raises(
        RegardError, match=r"other settings \(.*columns was None and is now \[1\]\): repeat its settings"
    ):
        reverse_file(TsvRecords((str(source),), columns=(1,)), tmp_path / "out", workers=None)
    assert reverse_file(source, tmp_path / "out", workers=None, restart=True).progress.rows_before == 0
    assert (tmp_path / "out").read_text() == EXPECTED


def test_another_model_is_refused(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt(source, tmp_path / "out", 20)
    with monkeypatch.context() as patch:
        parameter = next(MODEL.network.parameters())
        patch.setattr(parameter, "data", parameter.data + 1)
        with pytest.raises(RegardError, match=r"other settings \(it has another model\)"):
            reverse_file(source, tmp_path / "out", workers=None)


def test_a_small_job_uses_one_thread_as_workers_do(source: Path, tmp_path: Path) -> None:
    threads = []
    reverse_file(source, tmp_path / "out", workers=None, report=lambda _: threads.append(torch.get_num_threads()))
    assert set(threads) == {1}


def test_damaged_and_missing_shards_are_answered_again(source: Path, tmp_path: Path) -> None:
    interrupt(source, tmp_path / "out", 44)
    job = tmp_path / "out.job"
    (job / "shard-00000001").write_text("damaged")
    (job / "shard-00000002").unlink()
    (job / ".shard-00000009.0123").write_text("a temporary file")
    with (job / FINISHED_FILE).open("a") as file:
        file.write('{"number": 7, "rows"')  # half an entry
    assert reverse_file(source, tmp_path / "out").progress.rows_before == 44 - 2 * ROWS_PER_SHARD
    assert (tmp_path / "out").read_text() == EXPECTED
    assert sorted(file.name for file in tmp_path.iterdir()) == ["in", "out"]


def test_a_folder_that_is_not_a_job_is_left_alone(source: Path, tmp_path: Path) -> None:
    (tmp_path / "out.job").mkdir()
    (tmp_path / "out.job" / "mine").write_text("mine")
    for restart in (False, True):
        with pytest.raises(RegardError, match=r"out\.job is not the folder of a job"):
            reverse_file(source, tmp_path / "out", workers=None, restart=restart)
    assert (tmp_path / "out.job" / "mine").read_text() == "mine"
    (tmp_path / "other.job").write_text("a file")
    with pytest.raises(WriteError, match=r"other\.job cannot be written"):
        reverse_file(source, tmp_path / "other", workers=None)
    JobFolder(tmp_path / "third").path.mkdir()
    (tmp_path / "third.job" / "job.json").write_text("[]")
    with pytest.raises(RegardError, match=r"job\.json is damaged: start the job again with --restart"):
        reverse_file(source, tmp_path / "third", workers=None)


def test_a_job_that_was_killed_at_its_very_beginning_or_end_starts_again(source: Path, tmp_path: Path) -> None:
    """The folder then has files of a job, but not the description of one."""
    (tmp_path / "out.job").mkdir()
    for name in ("lock", ".job.json.0123456789abcdef", "shard-00000003"):
        (tmp_path / "out.job" / name).write_text("half")
    reverse_file(source, tmp_path / "out", workers=None)
    assert (tmp_path / "out").read_text() == EXPECTED
    assert not (tmp_path / "out.job").exists()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Return a real file system of 64 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no disk can be mounted here")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_stops_the_job_and_space_continues_it(source: Path, small_disk: Path) -> None:
    (small_disk / "filling").write_bytes(bytes(36_000))
    full = (
        r"cannot be written: No space left on device; free some space.*; \d+ rows are reversed and kept in .*out\.job"
    )
    with pytest.raises(WriteError, match=full):
        reverse_file(source, small_disk / "out")
    (small_disk / "filling").unlink()
    assert reverse_file(source, small_disk / "out").progress.rows_before > 0
    assert (small_disk / "out").read_text() == EXPECTED
    assert [file.name for file in small_disk.iterdir()] == ["out"]


def test_half_a_joined_output_is_removed(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would keep a full disk full."""

    def fill(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("shutil.copyfileobj", fill)
        with pytest.raises(WriteError, match=rf"out cannot be written: .*; {ROWS} rows are reversed and kept in"):
            reverse_file(source, tmp_path / "out", workers=None)
    assert not (tmp_path / "out.job" / JOINED_FILE).exists()
    assert reverse_file(source, tmp_path / "out", workers=None).progress.rows_before == ROWS
    assert (tmp_path / "out").read_text() == EXPECTED


def test_empty_inputs_and_links(tmp_path: Path) -> None:
    (tmp_path / "in").touch()
    (tmp_path / "target").write_text("old")
    (tmp_path / "target").chmod(0o600)
    (tmp_path / "link").symlink_to("target")
    reverse_file(tmp_path / "in", tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == ""
    assert (tmp_path / "target").stat().st_mode & 0o777 == 0o600


def compressed(path: Path, content: str) -> Path:
    """Write a file, compressed by the usual program for the ending of its name."""
    programs = {".gz": "gzip", ".xz": "xz", ".zst": "zstd"}
    data = content.encode()
    if program := programs.get(path.suffix):
        if not shutil.which(program):
            pytest.skip(f"{program} is not installed")
        data = subprocess.run([program, "-c"], input=data, capture_output=True, check=True).stdout
    path.write_bytes(data)
    return path


def decompressed(path: Path) -> str:
    if path.suffix == ".zst":
        return subprocess.run(["zstd", "-dc", path], capture_output=True, check=True).stdout.decode()
    data = path.read_bytes()
    return {".gz": gzip.decompress, ".xz": lzma.decompress}.get(path.suffix, bytes)(data).decode()


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz", ".zst"])
def test_tsv_and_jsonl_keep_their_rows(tmp_path: Path, suffix: str) -> None:
    if suffix == ".zst":
        pytest.importorskip("pyarrow", reason="pip install 'regard[jobs]'")
    tsv = compressed(tmp_path / f"in.tsv{suffix}", "".join(f"{n}\tsentence {n}\tœ\n" for n in range(30)) + "short\n")
    records = open_records([tsv], tmp_path / f"out.tsv{suffix}", (2,), ())
    interrupt(records, tmp_path / f"out.tsv{suffix}", 12)
    summary = reverse_file(records, tmp_path / f"out.tsv{suffix}", workers=None)
    assert summary.faults == ((31, "missing column (it has 1, but column 2 is needed)", "missing column"),)
    rows = [f"{n}\tsentence {n}\tœ\t" + f"sentence {n}"[::-1] + "\n" for n in range(30)]
    assert decompressed(tmp_path / f"out.tsv{suffix}") == "".join([*rows, "short\t\n"])

    objects = [json.dumps({"n": n, "text": f"sentence {n}"}) for n in range(30)]
    faulty = ["not JSON", '{"n": 1}', '{"n": 2, "text": 3}']
    jsonl = compressed(tmp_path / f"in.jsonl{suffix}", "\n".join([*objects, *faulty]))
    records = open_records([jsonl], tmp_path / f"out.jsonl{suffix}", (), ("text",))
    summary = reverse_file(records, tmp_path / f"out.jsonl{suffix}", workers=None)
    assert [fault.number for fault in summary.faults] == [31, 32, 33]
    written = [json.loads(row) for row in decompressed(tmp_path / f"out.jsonl{suffix}").splitlines()]
    assert written[:30] == [{**json.loads(row), "reversed": json.loads(row)["text"][::-1]} for row in objects]
    assert written[30:] == [{"reversed": None}, {"n": 1, "reversed": None}, {"n": 2, "text": 3, "reversed": None}]


def test_parquet_keeps_its_columns(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow", reason="pip install 'regard[jobs]'")
    parquet = pytest.importorskip("pyarrow.parquet")
    texts = [None if number == 20 else f"sentence {number}" for number in range(50)]
    table = arrow.table({"id": arrow.array(range(50), arrow.int16()), "text": texts})
    parquet.write_table(table, tmp_path / "in.parquet", row_group_size=7)
    records = open_records([tmp_path / "in.parquet"], tmp_path / "out.parquet", (), ("text",))
    interrupt(records, tmp_path / "out.parquet", 20)
    summary = reverse_file(records, tmp_path / "out.parquet")
    assert summary.faults == ((21, "not a string (text)", "not a string"),)
    written = parquet.read_table(tmp_path / "out.parquet")
    assert written.drop_columns("reversed") == table
    assert written.column("reversed").to_pylist() == [text and text[::-1] for text in texts]
    uninterrupted = tmp_path / "again.parquet"
    reverse_file(records, uninterrupted, workers=None)
    assert uninterrupted.read_bytes() == (tmp_path / "out.parquet").read_bytes()

    parquet.write_table(table.slice(0, 0), tmp_path / "empty.parquet")
    reverse_file(ParquetRecords(str(tmp_path / "empty.parquet"), ("text",)), tmp_path / "none.parquet", workers=None)
    assert parquet.read_table(tmp_path / "none.parquet").column_names == ["id", "text", "reversed"]
    for keys, path, message in [
        (("txt",), tmp_path / "in.parquet", "has no column 'txt': it has id, text"),
        (("id",), tmp_path / "in.parquet", "column 'id' of .* holds int16, not strings"),
        (("text",), tmp_path / "out.parquet", "already has a column 'reversed'"),
    ]:
        with pytest.raises(RegardError, match=message):
            ParquetRecords(str(path), keys).check_columns(ReverseTask().columns)
    (tmp_path / "bad.parquet").write_bytes(b"PAR1")
    with pytest.raises(CorpusError, match=r"bad\.parquet cannot be read as Parquet"):
        ParquetRecords(str(tmp_path / "bad.parquet"), ("text",)).check_columns([])


def test_unusual_parquet_columns(tmp_path: Path) -> None:
    """Texts as categories, strings that are not UTF-8 or too long, and other columns that share a name."""
    arrow = pytest.importorskip("pyarrow", reason="pip install 'regard[jobs]'")
    parquet = pytest.importorskip("pyarrow.parquet")
    offsets = arrow.array([0, 4, 6, 6 + 100_000], arrow.int32()).buffers()[1]
    damaged = arrow.StringArray.from_buffers(3, offsets, arrow.py_buffer(b"caf\xe9ok" + b"x" * 100_000))
    categories = arrow.array(["un", None, "un"]).dictionary_encode()
    others = [arrow.array([1, 2, 3]), arrow.array([4, 5, 6])]
    for texts, expected, faults in [
        (damaged, [None, "ko", None], ((1, "invalid UTF-8 (at byte 3)"), (3, "too long"))),
        (categories, ["nu", None, "nu"], ((2, "not a string (text)"),)),
        (arrow.array(["un", "deux", ""], arrow.large_string()), ["nu", "xued", ""], ()),
    ]:
        table = arrow.table([texts, *others], names=["text", "other", "other"])
        parquet.write_table(table, tmp_path / "in.parquet")
        records = open_records([tmp_path / "in.parquet"], tmp_path / "out.parquet", (), ("text",))
        summary = reverse_file(records, tmp_path / "out.parquet", workers=None)
        assert tuple((number, reason) for number, reason, _ in summary.faults) == faults
        written = parquet.ParquetFile(tmp_path / "out.parquet").read()
        assert written.column("reversed").to_pylist() == expected
        assert written.drop_columns("reversed") == table
    parquet.write_table(arrow.table([*others], names=["text", "text"]), tmp_path / "in.parquet")
    with pytest.raises(RegardError, match="has several columns 'text': rename all but one"):
        records.check_columns([])


def test_a_wrong_column_of_a_parquet_file_is_reported_by_the_command(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow", reason="pip install 'regard[jobs]'")
    parquet = pytest.importorskip("pyarrow.parquet")
    MODEL.save(tmp_path / "model")
    parquet.write_table(arrow.table({"text": ["un"]}), tmp_path / "in.parquet")
    files = ["-i", str(tmp_path / "in.parquet"), "-o", str(tmp_path / "out.parquet")]
    message = refused("translate", "--model", str(tmp_path / "model"), *files, "--keys", "txt")
    assert message.endswith("in.parquet has no column 'txt': it has text; name one with --keys")


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
@pytest.mark.parametrize("rows", [100, 3_000])
def test_progress_counts_what_was_used_of_a_compressed_file(tmp_path: Path, suffix: str, rows: int) -> None:
    """And not what was read ahead, which of a small file is all."""
    if suffix == ".zst":
        pytest.importorskip("pyarrow", reason="pip install 'regard[jobs]'")
    random = Random(0)
    source = compressed(tmp_path / f"in{suffix}", "".join(f"{random.getrandbits(200)}\n" for _ in range(rows)))
    errors = []
    reverse_file(
        source,
        tmp_path / "out",
        workers=None,
        report=lambda progress: errors.append(abs(progress.fraction - progress.rows / rows)),
    )
    assert len(errors) > 10
    assert max(errors) < 0.05


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
def test_an_archive_without_bytes_is_damaged_and_one_of_no_text_is_not(tmp_path: Path, suffix: str) -> None:
    if suffix == ".zst":
        pytest.importorskip("pyarrow", reason="pip install 'regard[jobs]'")
    (tmp_path / "none").touch()
    output = tmp_path / f"out{suffix}"
    reverse_file(open_records([tmp_path / "none"], output, (), ()), output, workers=None)
    assert output.stat().st_size
    assert decompressed(output) == ""
    reverse_file(output, tmp_path / "again", workers=None)
    assert (tmp_path / "again").read_bytes() == b""
    output.write_bytes(b"")
    with pytest.raises(RegardError, match=r"damaged after line 0 \(the archive is empty\): download or copy"):
        reverse_file(output, tmp_path / "again", workers=None)


def test_a_zst_file_with_a_large_window_is_to_be_decompressed_first(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="pip install 'regard[jobs]'")
    path = tmp_path / "in.zst"
    path.write_bytes(bytes.fromhex("28b52ffd04a8") + b"\x09\x00\x00x")  # a window of 2 GB, and a block of one byte
    with pytest.raises(
        RegardError, match=r"window that is too large .*: decompress it first: zstd -d --long=31 .*in\.zst"
    ):
        list(read_lines(str(path)))


def test_objects_are_written_as_they_were(tmp_path: Path) -> None:
    """The same spaces, numbers and escapes; if an object has the new key already, its value is replaced."""
    objects = [
        '{"n": 1e400, "p":0.10, "text" : "\\u00e9t\\u00e9"} ',
        ' { "text":"un" , "n": 1e400,"reversed" : [1, {"a": 2}], "p":0.10}',
        '{"a": {}}',
        "{ }",
    ]
    (tmp_path / "in.jsonl").write_text("\n".join(objects))
    reverse_file(JsonlRecords((str(tmp_path / "in.jsonl"),), keys=("text",)), tmp_path / "out.jsonl", workers=None)
    assert (tmp_path / "out.jsonl").read_text().splitlines() == [
        '{"n": 1e400, "p":0.10, "text" : "\\u00e9t\\u00e9", "reversed": "été"}',
        '{"text": "un", "n": 1e400, "reversed": "nu", "p": 0.10}',
        '{"a": {}, "reversed": null}',
        '{"reversed": null}',
    ]


def test_deep_objects_are_answered_if_they_can_be_parsed(tmp_path: Path) -> None:
    """Python can write fewer levels than it can parse, so their text is kept, also where the new key is replaced."""
    deep = {depth: "[" * depth + "]" * depth for depth in (70, *range(900, 1000), 40_000)}
    objects = [
        f'{{"text": "un", "tree": {tree}{member}}}' for tree in deep.values() for member in ("", ', "reversed": 1')
    ]
    (tmp_path / "in.jsonl").write_text("\n".join(objects))
    records = JsonlRecords((str(tmp_path / "in.jsonl"),), keys=("text",))
    summary = reverse_file(records, tmp_path / "out.jsonl", workers=None)
    faults = {fault.number: fault.reason for fault in summary.faults}
    assert set(faults.values()) == {"invalid JSON (nested too deeply)"}
    assert {1, 2}.isdisjoint(faults)
    assert {len(objects) - 1, len(objects)} <= faults.keys()
    expected = [
        '{"reversed": null}' if number in faults else f'{{"text": "un", "tree": {tree}, "reversed": "nu"}}'
        for number, tree in enumerate((tree for tree in deep.values() for _ in range(2)), 1)
    ]
    assert (tmp_path / "out.jsonl").read_text().splitlines() == expected


def test_an_input_is_never_replaced_by_the_output(tmp_path: Path) -> None:
    MODEL.save(tmp_path / "model")
    (tmp_path / "in.tsv").write_text("un\tone\n")
    (tmp_path / "link.tsv").symlink_to("in.tsv")
    words = ["score", str(tmp_path / "in.tsv"), "--columns", "1,2", "--model", str(tmp_path / "model")]
    for name in ("in.tsv", "link.tsv"):
        message = refused(*words, "-o", str(tmp_path / name))
        assert message == f"--output {tmp_path / name} is the input as well: choose another output"
    assert (tmp_path / "in.tsv").read_text() == "un\tone\n"
    faults = (tmp_path / "in.tsv").rename(tmp_path / "out.faults.tsv")
    message = refused(*[word.replace("in.tsv", "out.faults.tsv") for word in words], "-o", str(tmp_path / "out"))
    assert message.startswith(f"{faults} is an input, but rows without a result would be listed in it: choose another")
    faults.rename(tmp_path / "in.tsv")
    faults.mkdir()
    message = refused(*words, "-o", str(tmp_path / "out"))
    assert message.startswith(f"{faults} is a folder, but rows without a result would be listed there: choose another")
    assert {file.name for file in tmp_path.iterdir()} == {"model", "in.tsv", "link.tsv", "out.faults.tsv"}
    for folder, problem in [
        ("none", "the folder {} does not exist: create it"),
        ("in.tsv", "{} is not a folder: choose"),
    ]:
        message = refused(*words, "-o", str(tmp_path / folder / "out"))
        assert problem.format(tmp_path / folder) in message
    assert "is a folder: name a file in it" in refused(*words, "-o", str(tmp_path))
    (tmp_path / "loop").symlink_to("loop")
    if sys.version_info < (3, 13):  # later ones replace the link
        assert "loop cannot be written: Too many" in refused(*words, "-o", str(tmp_path / "loop"))
    assert "cannot be written: File name too long" in refused(*words, "-o", str(tmp_path / ("a" * 250)))


def test_an_unfinished_job_with_other_options_names_only_these(source: Path, tmp_path: Path) -> None:
    folder = JobFolder(tmp_path / "out")
    jobs: list[dict[str, Any]] = [
        {"task": "translate", "model": "1", "decoding": {"beam": beam, "seed": 0}} for beam in (4, 1)
    ]
    with folder.locked():
        folder.begin(jobs[0])
        assert not folder.begin(jobs[1]), "nothing is finished, so nothing would be lost"
        folder.begin(jobs[0])
        folder.finish(FinishedShard(0, 1, 1, 1, "", b""))
        for job, difference in [
            (jobs[1], "beam was 4 and is now 1"),
            ({**jobs[0], "model": "2"}, "it has another model"),
            ({"task": "score"}, "task was 'translate' and is now"),
        ]:
            with pytest.raises(RegardError, match=rf"other settings \({difference}[^;]*\): repeat its settings"):
                folder.begin(job)


def test_two_files_are_read_line_by_line(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("un\ndeux\n")
    (tmp_path / "b").write_text("one\ttab\ntwo\nthree\n")
    records = LineRecords((str(tmp_path / "a"), str(tmp_path / "b")))
    (rows,) = records.read(iter([100]))
    assert rows.error == f"{tmp_path}/b:3: unequal lines ({tmp_path}/a ends before it): " + (
        "the files must have one line per sentence, in the same order"
    )
    (tmp_path / "a").write_text("un\ndeux\ntrois\n")
    (rows,) = records.read(iter([100]))
    assert [record.row for record in records.records(rows.content)] == ["un\tone tab", "deux\ttwo", "trois\tthree"]


def test_formats_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    text, parquet = Path("in.txt"), Path("in.parquet")
    for arguments, message in [
        (([text], Path("out"), (1,), ("a",)), "both --columns and --keys"),
        (([text, text], Path("out"), (1,), ()), "select texts of one file"),
        (([text], Path("out"), (0,), ()), "counted from 1"),
        (([text], Path("out.parquet"), (), ()), "rename it"),
        (([parquet], Path("out.txt"), (), ("text",)), "rename it"),
        (([parquet], Path("out.parquet"), (), ()), "name the column of the texts with --keys"),
        (
            ([Path("in.jsonl.gz")], Path("out"), (), ()),
            "in.jsonl.gz has more .*: name the key of the texts with --keys",
        ),
        (([Path("in.tsv")], Path("out"), (), ()), "in.tsv has more .*: name the column of the texts with --columns"),
        (([text], Path("out.GZ"), (), ()), "out.GZ would not be compressed: choose .gz, .xz or .zst"),
        (([text], Path("out.bz2"), (), ()), "out.bz2 would not be compressed"),
    ]:
        with pytest.raises(RegardError, match=message):
            open_records(*arguments)
    utf_16 = tmp_path / "utf16"
    utf_16.write_bytes("Le chat dort.\n".encode("utf-16"))
    with pytest.raises(RegardError, match="the file is UTF-16"):
        reverse_file(utf_16, tmp_path / "out", workers=None)


def test_zst_files_are_read_everywhere(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="pip install 'regard[jobs]'")
    path = compressed(tmp_path / "text.zst", EXPECTED)
    rows = Corpus((str(path),)).rows(CorpusProblems())
    assert "".join(f"{row.fields[0]}\n" for row in rows) == EXPECTED
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(CorpusError, match="damaged after line"):
        list(read_lines(str(path)))


def test_commands_write_scores_vectors_and_classes(tmp_path: Path) -> None:
    """From a file to a file they run as jobs, and write what they write from stdin."""
    MODEL.save(tmp_path / "model")
    model = ["--model", str(tmp_path / "model")]
    (tmp_path / "a.fr").write_text("Le chat dort.\n\nLe chien court.\n")
    (tmp_path / "a.en").write_text("The cat sleeps.\nEmpty.\nThe dog runs.\n")
    done = command("score", str(tmp_path / "a.fr"), str(tmp_path / "a.en"), *model, "-o", str(tmp_path / "scores"))
    assert done.exit_code == 0, done.output
    rows = [line.split("\t") for line in (tmp_path / "scores").read_text().splitlines()]
    expected = MODEL.score(["Le chat dort.", "Le chien court."], ["The cat sleeps.", "The dog runs."])
    assert [float(rows[number][2]) for number in (0, 2)] == pytest.approx(expected, abs=1e-3)
    assert rows[0][:2] == ["Le chat dort.", "The cat sleeps."]
    assert int(rows[0][3]) == len(MODEL.require_tokenizer().encode_target("The cat sleeps.")) + 1

    done = command("embed", *model, "-i", str(tmp_path / "a.en"), "-o", str(tmp_path / "vectors"))
    assert done.exit_code == 0, done.output
    stdin = (tmp_path / "a.en").read_text()
    assert (tmp_path / "vectors").read_text() == command("embed", *model, stdin=stdin).stdout
    files = ("-i", str(tmp_path / "a.en"), "-o", str(tmp_path / "out"))
    assert "--keys needs regular files for input and output" in refused("translate", *model, "--keys", "a", stdin="b")
    assert "did you mean 'ray'" in refused("translate", *model, *files, "--engine", "rya")
    assert "add --engine ray" in refused("translate", *model, *files, "--address", "auto")
    assert "one text to translate, but 2 were given" in refused("translate", *model, *files, "--columns", "1,2")
    assert "a source and a target to score" in refused("score", *model, files[1], *files[2:])
    assert "--n-best gives several rows" in refused("translate", *model, *files, "--columns", "1", "--n-best", "2")
    numbered = command("translate", *model, *files, "--n-best", "2", "--beam", "2", "--max-tokens", "3")
    assert numbered.exit_code == 0, numbered.output
    assert [row.split("\t")[0] for row in (tmp_path / "out").read_text().splitlines()] == ["1", "1", "2", "2", "3", "3"]


def test_many_faults_are_listed_in_a_file(tmp_path: Path) -> None:
    MODEL.save(tmp_path / "model")
    (tmp_path / "in").write_bytes(b"\xff\n" * 30 + b"Le chat dort.\n")
    options = ["--model", str(tmp_path / "model"), "--beam", "1", "--max-tokens", "2"]
    done = command("translate", *options, "-i", str(tmp_path / "in"), "-o", str(tmp_path / "out"))
    assert done.exit_code == 1
    assert "30 rows could not be translated" in done.stderr
    assert "  row 20: invalid UTF-8" in done.stderr
    assert "  row 21: " not in done.stderr
    convert = f"iconv -f latin1 -t utf-8 {tmp_path / 'in'} > {tmp_path / 'in.utf8'}"
    assert f"\ninvalid UTF-8: convert the file: {convert}\n" in done.stderr
    assert (tmp_path / "out.faults.tsv").read_text().splitlines()[29] == "30\tinvalid UTF-8 (at byte 0)"
    assert (tmp_path / "out").read_text().count("\n") == 31
    (tmp_path / "in").write_text("Le chat dort.\n")
    assert command("translate", *options, "-i", str(tmp_path / "in"), "-o", str(tmp_path / "out")).exit_code == 0
    assert not (tmp_path / "out.faults.tsv").exists()
    (tmp_path / "out.faults.tsv").write_text("notes of mine\n")
    message = refused("translate", *options, "-i", str(tmp_path / "in"), "-o", str(tmp_path / "out"))
    assert "out.faults.tsv would be replaced by a list of rows without a result: rename it, or" in message
    assert (tmp_path / "out.faults.tsv").read_text() == "notes of mine\n"


def test_remedies_are_given_only_where_they_help(tmp_path: Path) -> None:
    """Not for binary files, not for reasons of the model, and not what only training does."""
    MODEL.save(tmp_path / "model")
    options = ["--model", str(tmp_path / "model"), "--beam", "1", "--max-tokens", "2"]
    (tmp_path / "in").write_text("x" * 100_000 + "\n")
    done = command("translate", *options, "-i", str(tmp_path / "in"), "-o", str(tmp_path / "out"))
    assert done.stderr.endswith("  row 1: too long\n")
    faults = [RowFault(1, "invalid UTF-8 (at byte 3)", "invalid UTF-8"), RowFault(2, "too long for the model")]
    assert list(fault_remedies(faults, ("in.parquet",))) == []
    assert list(fault_remedies(faults[1:], ("in",))) == []
    assert list(fault_remedies(faults, ("a b.gz",))) == [
        "invalid UTF-8: convert the file: gzip -dc 'a b.gz' | iconv -f latin1 -t utf-8 > 'a b.utf8'"
    ]
    assert list(fault_remedies(faults, ("in.fr", "in.en"))) == [
        "invalid UTF-8: convert the file: iconv -f latin1 -t utf-8"
    ]


def test_jsonl_with_half_a_character_elsewhere_is_written(tmp_path: Path) -> None:
    """Such a value cannot be encoded in UTF-8, but the text next to it is translated."""
    (tmp_path / "in.jsonl").write_text('{"text": "un", "other": "\\ud800"}\n')
    reverse_file(JsonlRecords((str(tmp_path / "in.jsonl"),), keys=("text",)), tmp_path / "out.jsonl", workers=None)
    assert json.loads((tmp_path / "out.jsonl").read_text())["reversed"] == "nu"


@pytest.mark.parametrize("words", [["--input", "in.txt"], ["Le chat"]])
def test_stdout_keeps_what_others_write_to_it(tmp_path: Path, words: list[str]) -> None:
    """Also if it is redirected to a file, which a job would replace, and opening it again would truncate."""
    if not Path("/dev/stdout").exists():
        pytest.skip("this system has no /dev/stdout")
    MODEL.save(tmp_path / "model")
    (tmp_path / "in.txt").write_text("Le chat\n")
    translate = [sys.executable, "-m", "regard", "translate", "--model", "model", "--max-tokens", "3", *words]
    with (tmp_path / "log").open("w") as log:
        log.write("before\n")
        log.flush()
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
        done = [*translate, "--output", "/dev/stdout"]
        subprocess.run(done, cwd=tmp_path, stdout=log, check=True, env=environment, timeout=120)
        log.write("after\n")
    before, translation, after = (tmp_path / "log").read_text().splitlines()
    assert (before, after) == ("before", "after")
    assert translation == MODEL.translate("Le chat", max_tokens=3)
