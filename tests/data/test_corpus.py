"""Reading corpora: every format, every kind of invalid file, and thousands of hostile lines."""

import bz2
import gzip
import json
import lzma
import os
import random
import tracemalloc
from collections import Counter
from pathlib import Path

import pytest

from regard.data.corpus import MAX_LINE_CHARACTERS, Corpus, CorpusError, CorpusProblems
from regard.errors import RegardError


def write_bytes(path: Path, content: bytes | str) -> str:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def rows(corpus: Corpus, skip: bool = False) -> tuple[list[tuple[str, ...]], CorpusProblems]:
    problems = CorpusProblems(skip)
    return [row.fields for row in corpus.rows(problems)], problems


def test_aligned_files_tsv_jsonl_and_text_give_the_same_rows(tmp_path: Path) -> None:
    pairs = [("Un chat.", "A cat."), ("L'été à Noël", "Summer at Christmas"), ("a\u2028b\x85c", "one line still")]
    fr, en = (write_bytes(tmp_path / f"t.{i}", "".join(f"{pair[i]}\n" for pair in pairs)) for i in (0, 1))
    tsv = write_bytes(tmp_path / "t.tsv", "".join(f"{e}\tx\t{f}\n" for f, e in pairs))
    jsonl = write_bytes(tmp_path / "t.jsonl", "".join(json.dumps({"en": e, "fr": f, "n": 1}) + "\n" for f, e in pairs))
    assert rows(Corpus((fr, en)))[0] == pairs
    assert rows(Corpus((tsv,), columns=(3, 1)))[0] == pairs
    assert rows(Corpus((jsonl,), keys=("fr", "en")))[0] == pairs
    assert rows(Corpus((fr,)))[0] == [(f,) for f, _ in pairs]


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_the_suffix_selects_the_compression(tmp_path: Path, suffix: str, pack: object) -> None:
    content = b"un\ndeux\n"
    path = write_bytes(tmp_path / f"t{suffix}", pack(content))  # type: ignore[operator]
    assert rows(Corpus((path,)))[0] == [("un",), ("deux",)]
    broken = write_bytes(tmp_path / f"broken{suffix}", Path(path).read_bytes()[:-9])
    with pytest.raises(CorpusError, match=r"broken\..z: damaged after line"):
        rows(Corpus((broken,)))
    two = write_bytes(tmp_path / f"two{suffix}", pack(b"un\n") + pack(b"deux\n"))  # type: ignore[operator]
    assert rows(Corpus((two,)))[0] == [("un",), ("deux",)]
    damaged = bytearray(Path(two).read_bytes())
    damaged[len(pack(b"un\n")) + 1] ^= 255  # type: ignore[operator]  # in the head of the second stream
    with pytest.raises(CorpusError, match="damaged after line"):
        rows(Corpus((write_bytes(tmp_path / f"damaged{suffix}", bytes(damaged)),)))
    no_archive = write_bytes(tmp_path / f"no{suffix}", b"plain text\n")
    with pytest.raises(CorpusError, match="damaged after line 0"):
        rows(Corpus((no_archive,)))


@pytest.mark.parametrize(
    ("pack", "advice"),
    [
        (gzip.compress, "gzip: rename it, so that its name ends in .gz"),
        (lzma.compress, "xz: rename it, so that its name ends in .xz"),
        (bz2.compress, "bzip2: decompress it first"),
    ],
)
def test_an_archive_that_is_named_like_text_is_refused(tmp_path: Path, pack: object, advice: str) -> None:
    path = write_bytes(tmp_path / "t.txt", pack(b"un\n"))  # type: ignore[operator]
    with pytest.raises(RegardError, match=rf"t\.txt is compressed with {advice}"):
        rows(Corpus((path,)), skip=True)
    text = write_bytes(tmp_path / "text", "BZh, un\n")
    assert rows(Corpus((text,)))[0] == [("BZh, un",)]


def test_only_byte_order_marks_and_line_ends_are_removed(tmp_path: Path) -> None:
    path = write_bytes(tmp_path / "t", b"\xef\xbb\xbfun \r\n deux\rx\r\n\xef\xbb\xbftrois\nlast")
    assert rows(Corpus((path,)))[0] == [("un ",), (" deux\rx",), ("\ufefftrois",), ("last",)]


def test_a_row_counts_as_one_problem(tmp_path: Path) -> None:
    fr, en = write_bytes(tmp_path / "t.fr", b"caf\xe9\nun\n\xe9\n"), write_bytes(tmp_path / "t.en", b"\xe9\none\n")
    good, problems = rows(Corpus((fr, en)), skip=True)
    assert good == [("un", "one")]
    assert problems.counts == {"invalid UTF-8": 1, "unequal lines": 1}


def test_at_most_five_examples_are_recorded_each_with_its_side(tmp_path: Path) -> None:
    fr, en = write_bytes(tmp_path / "t.fr", "un\n" * 9), write_bytes(tmp_path / "t.en", "\n" * 9)
    _, problems = rows(Corpus((fr, en)), skip=True)
    assert problems.counts == {"empty side": 9}
    assert problems.examples == {"empty side": [f"{en}:{i}" for i in range(1, 6)]}


def test_blank_lines_are_kept_in_a_monolingual_corpus(tmp_path: Path) -> None:
    assert rows(Corpus((write_bytes(tmp_path / "t", "a\n\nb\n"),)))[0] == [("a",), ("",), ("b",)]


BAD = {
    "invalid UTF-8": b"caf\xe9",
    "NUL byte": b"a\0b",
    "empty side": b"  \t ",
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_line_is_reported_or_skipped_and_counted(tmp_path: Path, kind: str) -> None:
    fr = write_bytes(tmp_path / "t.fr", b"un\ndeux\n" + BAD[kind] + b"\nquatre\n")
    en = write_bytes(tmp_path / "t.en", "one\ntwo\nthree\nfour\n")
    with pytest.raises(
        CorpusError, match=rf"t\.fr:3: {kind}.*: skip such lines \(CorpusProblems\(skip=True\)\) or fix them: "
    ):
        rows(Corpus((fr, en)))
    good, problems = rows(Corpus((fr, en)), skip=True)
    assert good == [("un", "one"), ("deux", "two"), ("quatre", "four")]
    assert problems.counts == {kind: 1}
    assert problems.examples == {kind: [f"{fr}:3"]}


def test_files_of_unequal_length_are_rejected(tmp_path: Path) -> None:
    fr, en = write_bytes(tmp_path / "t.fr", "un\ndeux\ntrois\n"), write_bytes(tmp_path / "t.en", "one\n")
    with pytest.raises(CorpusError, match=r"t\.fr:2: unequal lines \(.*t\.en ends before it\)"):
        rows(Corpus((fr, en)))
    good, problems = rows(Corpus((fr, en)), skip=True)
    assert good == [("un", "one")]
    assert problems.counts == {"unequal lines": 2}


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ('{"fr": "a"', "invalid JSON"),
        ('["fr", "en"]', "invalid JSON"),
        ("[" * 100_00, "invalid JSON"),
        ("", "invalid JSON"),
        ('{"fr": "a"}', "missing key"),
        ('{"fr": "a", "en": 3}', "not a string"),
        ('{"fr": "a", "en": null}', "not a string"),
        ('{"fr": "\\ud800", "en": "b"}', "lone surrogate"),
        ('{"fr": "\\u0000", "en": "b"}', "NUL byte"),
        ('{"fr": "", "en": "b"}', "empty side"),
    ],
)
def test_invalid_json_is_reported(tmp_path: Path, line: str, kind: str) -> None:
    corpus = Corpus((write_bytes(tmp_path / "t.jsonl", f'{{"fr": "un", "en": "one"}}\n{line}\n'),), keys=("fr", "en"))
    with pytest.raises(CorpusError, match=rf"t\.jsonl:2: {kind}"):
        rows(corpus)
    good, problems = rows(corpus, skip=True)
    assert good == [("un", "one")]
    assert problems.counts == {kind: 1}


def test_a_missing_column_is_reported(tmp_path: Path) -> None:
    corpus = Corpus((write_bytes(tmp_path / "t.tsv", "a\tb\nalone\n"),), columns=(1, 2))
    with pytest.raises(CorpusError, match=r"t\.tsv:2: missing column \(it has 1, but column 2 is needed\)"):
        rows(corpus)


def test_long_lines_are_skipped_even_in_strict_mode(tmp_path: Path) -> None:
    for size, kept in ((MAX_LINE_CHARACTERS - 1, True), (MAX_LINE_CHARACTERS, False), (5 * MAX_LINE_CHARACTERS, False)):
        for letter in ("a", "é", "😀"):
            fr = write_bytes(tmp_path / "t.fr", f"un\n{letter * size}\ntrois\n")
            en = write_bytes(tmp_path / "t.en", "one\ntwo\nthree\n")
            good, problems = rows(Corpus((fr, en)))
            assert [e for _, e in good] == (["one", "two", "three"] if kept else ["one", "three"])
            assert problems.counts == ({} if kept else {"too long": 1})


@pytest.mark.slow
def test_memory_depends_on_the_line_length_not_the_file_size(tmp_path: Path) -> None:
    path = write_bytes(tmp_path / "t.gz", gzip.compress(b"a" * 30_000_000 + b"\n" + b"b c\n" * 5_000))
    problems = CorpusProblems()
    tracemalloc.start()
    assert sum(1 for _ in Corpus((path,)).rows(problems)) == 5_000
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5_000_000
    assert problems.counts == {"too long": 1}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Corpus(()), "needs at least one file"),
        (lambda: Corpus("a.fr"), "files must be a tuple, not a single value: 'a.fr'"),  # type: ignore[arg-type]
        (lambda: Corpus(("a",), keys="fr"), "keys must be a tuple"),  # type: ignore[arg-type]
        (lambda: Corpus(("a",), columns=("2", "1")), r"columns must be numbers: \['2', '1'\]"),  # type: ignore[arg-type]
        (lambda: Corpus(("a", "b"), columns=(1, 2)), "columns and keys need a single file: 2 given"),
        (lambda: Corpus(("a",), (1, 2), ("x", "y")), "not both"),
        (lambda: Corpus(("a",), (0, 1)), r"counted from 1: \[0, 1\] given"),
        (lambda: rows(Corpus(("nowhere/x.fr",))), "nowhere/x.fr: no such file"),
        (lambda: rows(Corpus((str(Path(__file__).parent),))), "tests/data is a folder"),
    ],
)
@pytest.mark.usefixtures("without_type_checks")
def test_invalid_corpus_definitions_are_rejected(make: object, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        make()  # type: ignore[operator]


def test_utf16_is_recognised(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"t:1: invalid UTF-8 \(the file is UTF-16\)"):
        rows(Corpus((write_bytes(tmp_path / "t", "un\n".encode("utf-16")),)))


def hostile_line(chance: random.Random) -> tuple[bytes, str]:
    """Return a line of bytes without a line feed, and how a strict UTF-8 reader classifies it: a fault, or "good"."""
    kind = chance.choice(("good", "good", "odd", "bytes", "nul", "empty", "surrogate"))
    if kind == "bytes":
        raw = bytes(chance.choice([*range(1, 10), *range(11, 256)]) for _ in range(chance.randrange(1, 30)))
    elif kind == "nul":
        raw = b"a\0" + os.urandom(3).replace(b"\n", b"x")
    elif kind == "empty":
        raw = chance.choice([b"", b" ", b"\t\t", b"\r", "\u2003\u3000".encode()])
    elif kind == "surrogate":
        raw = b"a\xed\xa0\x80b"
    elif kind == "odd":
        raw = "".join(chance.choice("\u2028\x85\x0b\ufeff\u202e😀\u0301") for _ in range(9)).encode()
    else:
        raw = "".join(chance.choice("abcdé œ'😀\u0301") for _ in range(chance.randrange(1, 40))).encode()
    if b"\0" in raw:
        return raw, "NUL byte"
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return raw, "invalid UTF-8"
    return raw, "good" if text.removesuffix("\r").strip() else "empty side"


def read_hostile_lines(count: int, folder: Path, seed: int) -> None:
    """Read and tokenize hostile lines: no crash, every text is preserved, and the counts add up."""
    from regard.data.tokenizer_training import train_tokenizer

    chance = random.Random(seed)
    lines = [hostile_line(chance) for _ in range(count)]
    lines[0] = (b"first", "good")  # a byte order mark would be dropped there
    fr = write_bytes(folder / "h.fr", b"".join(raw + b"\n" for raw, _ in lines))
    en = write_bytes(folder / "h.en", b"x\n" * count)
    good, problems = rows(Corpus((fr, en)), skip=True)
    wanted = Counter(kind for _, kind in lines)
    assert len(good) == wanted.pop("good")
    assert problems.counts == wanted
    assert sum(problems.counts.values()) + len(good) == count
    texts = [text for text, _ in good]
    for kind in ("bpe", "characters"):
        tokenizer = train_tokenizer(texts[:200], 512, kind)
        for start in range(0, len(texts), 5000):
            some = texts[start : start + 5000]
            assert [tokenizer.decode(ids) for ids in tokenizer.encode_batch(some)] == some


def test_hostile_lines(tmp_path: Path) -> None:
    read_hostile_lines(4_000, tmp_path, seed=0)


@pytest.mark.long
def test_a_million_hostile_lines(tmp_path: Path) -> None:
    for seed in range(10):
        read_hostile_lines(100_000, tmp_path, seed)
