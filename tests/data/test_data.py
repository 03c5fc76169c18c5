"""`regard data`: writing Petit to files and reporting on a corpus, run as commands."""

import gzip
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from regard.data.corpus import Corpus, CorpusProblems, LineFault, remedy
from regard.data.corpus_report import report_corpus
from regard.evaluation.comparability import recognise
from regard.petit import corpus_files, pairs, words
from tests.support.commands import command, refused, regard
from tests.support.real_data import REAL_DATA


def test_petit_is_written_as_plain_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_files, "HELD_OUT", 10)
    done = command("data", "petit", "--pairs", "120", "--out", str(tmp_path / "petit"), "--seed", "3")
    assert done.exit_code == 0, done.stderr
    names = {
        f"{split}.{kind}"
        for split in ("train", "dev", "test", "compositional")
        for kind in ("fr", "en", "align", "tags", "conll")
    }
    assert {path.name for path in (tmp_path / "petit").iterdir()} == names
    read = {name: (tmp_path / "petit" / name).read_text().splitlines() for name in names}
    sentences = {name: lines.count("") if name.endswith(".conll") else len(lines) for name, lines in read.items()}
    assert sentences == {name: 120 if name.startswith("train.") else 10 for name in names}
    tagged = [sentence.splitlines() for sentence in "\n".join(read["train.conll"]).split("\n\n")]
    for i, pair in enumerate(pairs(120, seed=3)):
        assert (read["train.fr"][i], read["train.en"][i]) == (pair.french, pair.english)
        assert read["train.tags"][i].split() == list(pair.tags)
        assert [tuple(line.split("\t")) for line in tagged[i]] == list(zip(words(pair.french), pair.parts, strict=True))
        for link in read["train.align"][i].split():
            french, english = map(int, link.split("-"))
            assert french < len(words(pair.french))
            assert english < len(words(pair.english))
    assert "already exists" in refused("data", "petit", "--pairs", "5", "--out", str(tmp_path / "petit"))


@pytest.mark.slow
def test_the_held_out_splits_do_not_depend_on_the_number_of_training_pairs(tmp_path: Path) -> None:
    done = regard("data", "petit", "--pairs", "5", "--out", str(tmp_path / "petit"))
    assert re.findall(r"([\d,]+) pairs", done.stdout) == ["5", "1,000", "1,000", "1,000"]
    for split in ("test", "compositional"):
        for language in ("fr", "en"):
            found = recognise((tmp_path / f"petit/{split}.{language}").read_text().splitlines())
            assert found is not None
            assert (found[0].name, found[1]) == (f"Petit {split}", language)


@pytest.mark.parametrize(
    ("name", "content", "encoding"),
    [("a b.fr", "été\n", "latin1"), ("a.fr", "été\n", "utf-16"), ("a.fr.gz", "été\n", "latin1")],
)
def test_the_suggested_conversion_command_works(name: str, content: str, encoding: str, tmp_path: Path) -> None:
    path = tmp_path / name
    raw = content.encode(encoding)
    path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    with pytest.raises(ValueError, match="convert the file: ") as caught:
        list(Corpus((str(path),)).rows(CorpusProblems()))
    command = str(caught.value).split("convert the file: ")[1]
    subprocess.run(["/bin/sh", "-c", command], check=True, timeout=60)
    (made,) = tmp_path.glob("*.utf8")
    assert [row.fields for row in Corpus((str(made),)).rows(CorpusProblems())] == [("été",)]
    assert remedy(LineFault("invalid UTF-8", "at byte 3"), "stdin") == "convert the input: iconv -f latin1 -t utf-8"


def test_the_report_counts_every_kind_of_line(tmp_path: Path) -> None:
    french = [
        "Un chat noir dort ici ce soir.",
        "Deux.",
        "Un chat noir dort ici ce soir.",
        "mot " * 30,
        "Une fuite vers le test.",
    ]
    english = [
        "A black cat sleeps here tonight.",
        "Two.",
        "A black cat sleeps here tonight.",
        "word",
        "A leak into the test.",
    ]
    (tmp_path / "t.fr").write_text("\n".join([*french, ""]))
    (tmp_path / "t.en").write_text("\n".join([*english, ""]))
    (tmp_path / "test.fr").write_text("Une fuite vers le test.\nDeux.\n")
    (tmp_path / "test.en").write_text("Something else, and long enough.\nTwo.\n")
    corpus, test = (Corpus((str(tmp_path / f"{name}.fr"), str(tmp_path / f"{name}.en"))) for name in ("t", "test"))
    assert report_corpus(corpus).leaks is None
    found = report_corpus(corpus, [test])
    assert found.rows == 5
    assert found.words == [7 + 1 + 7 + 30 + 5, 6 + 1 + 6 + 1 + 5]
    assert found.histogram[0] == [2, 2, 0, 1, 0, 0, 0]
    assert (found.ratio.count, found.ratio.examples) == (1, [f"{tmp_path}/t.fr:4: 120 and 4 characters"])
    assert (found.duplicates.count, found.duplicates.examples) == (1, [f"{tmp_path}/t.fr:3 is {tmp_path}/t.fr:1"])
    assert found.leaks is not None
    assert (found.leaks.count, found.leaks.examples) == (1, [f"{tmp_path}/t.fr:5 is {tmp_path}/test.fr:1"])


def test_check_lists_bad_lines_and_fails(tmp_path: Path) -> None:
    (tmp_path / "t.fr").write_bytes(b"un\ncaf\xe9\n\n" + b"x" * 100_000 + b"\n")
    (tmp_path / "t.en").write_text("one\ncoffee\nthree\nfour\n")
    files = str(tmp_path / "t.fr"), str(tmp_path / "t.en")
    done = command("data", "check", *files)
    assert done.exit_code == 1
    shown = re.sub(r"\s+", "", done.stdout)  # a narrow terminal wraps long names
    for kind, line in (("invalidUTF-8", 2), ("emptyside", 3), ("toolong", 4)):
        assert re.search(rf"{kind}1\S*?t\.fr:{line}", shown)
    assert "2 lines would stop a training run" in done.stderr
    assert command("data", "check", *files, "--skip-bad").exit_code == 0


def test_check_reads_every_format(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("A cat.\tx\tUn chat.\n")
    (tmp_path / "t.jsonl").write_text('{"fr": "Un chat.", "en": "A cat."}\n')
    for arguments in (("t.tsv", "--columns", "3,1"), ("t.jsonl", "--keys", "fr,en"), ("t.tsv",)):
        done = command("data", "check", str(tmp_path / arguments[0]), *arguments[1:])
        assert done.exit_code == 0, done.stderr
        assert "1 rows" in done.stdout
        assert ("is read as plain text" in done.stderr) == (len(arguments) == 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere.fr",), "nowhere.fr: no such file"),
        (("/dev/null",), "/dev/null: no row could be read"),
        (("a.tsv", "--labelled"), "--labelled needs two sides, a text and its class: 1 given"),
        (("/dev",), "/dev has no training text: neither train.fr with train.en"),
        (("a.tsv", "--columns", "x"), "--columns takes numbers, not 'x'"),
        (("a.tsv", "--columns", "0,1"), "columns are counted from 1"),
        (("a.fr", "a.en", "--languages", "fr,en"), "a.fr is not a folder: --languages is for folders"),
        (("a", "b", "--keys", "fr,en"), "columns and keys need a single file: 2 given"),
    ],
)
def test_user_errors_are_reported(arguments: tuple[str, ...], message: str) -> None:
    assert message in refused("data", "check", *arguments)


@pytest.mark.slow
def test_a_user_error_prints_a_message_without_traceback() -> None:
    done = regard("data", "check", "nowhere.fr")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("regard: nowhere.fr: no such file")
    assert "Traceback" not in done.stderr


def test_labelled_text_is_reported_with_classes_instead_of_ratios(tmp_path: Path) -> None:
    (tmp_path / "t[red].tsv").write_text("A long review of a film that nobody liked.\tneg\nFine.\tpos\nGood.\tpos\n")
    path = str(tmp_path / "t[red].tsv")
    done = command("data", "check", path, "--columns", "1, 2", "--labelled")
    assert done.exit_code == 0, done.stderr
    assert re.search(r"neg +1\n +pos +2", done.stdout)
    assert "length ratio over" not in done.stdout
    assert "t[red].tsv" in re.sub(r"\s+", "", done.stdout)


@pytest.mark.slow
def test_an_interrupted_write_leaves_no_folder(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "regard", "data", "petit", "--pairs", "500000", "--out", str(tmp_path / "big")],
        stdout=subprocess.DEVNULL,
    )
    while process.poll() is None and not list(tmp_path.glob(".big.*/train.fr")):
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert not (tmp_path / "big").exists()


MULTI30K = REAL_DATA / "data/multi30k"


@pytest.mark.long
@pytest.mark.skipif(not MULTI30K.is_dir(), reason=f"no {MULTI30K}: set REGARD_REAL_DATA")
def test_real_text_is_clean_and_needs_little_padding(tmp_path: Path) -> None:
    from benchmarks.text import measure

    corpus = Corpus((str(MULTI30K / "train.fr.gz"), str(MULTI30K / "train.en.gz")))
    costs = measure(corpus, 8_000, repeats=1, batch_tokens=16_000, folder=tmp_path)
    assert costs.pairs == 29_000
    assert costs.padding <= 0.08
    assert costs.packed_padding == 0
    assert costs.megabytes < 600
