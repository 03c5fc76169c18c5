"""Preparing text in parts: a preparation that was killed resumes, with the bytes of one that was not."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from regard.data import encoding_parts
from regard.data.corpus import Corpus, CorpusError, CorpusProblems
from regard.data.huggingface_tokenizer import HuggingFaceTokenizer
from regard.data.tokenized_corpus import TokenizedCorpus, tokenize_corpora
from regard.data.tokenizer_training import train_tokenizer
from tests.support.forked import ROOT

LINES = [f"{'abc '[: n % 4]}{n} {'word ' * (n % 5)}".strip() for n in range(103)]


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding_parts, "ROWS_PER_CHUNK", 4)
    monkeypatch.setattr(encoding_parts, "ROWS_PER_PART", 10)


@pytest.fixture
def corpora(tmp_path: Path) -> list[Corpus]:
    """Return two corpora, of which the second has an exact number of parts."""
    for name, lines in {"a": LINES, "b": LINES[:20]}.items():
        for side in "xy":
            (tmp_path / f"{name}.{side}").write_text("".join(f"{side} {line}\n" for line in lines))
    return [Corpus(tuple(str(tmp_path / f"{name}.{side}") for side in "xy")) for name in "ab"]


@pytest.fixture
def tokenizer() -> HuggingFaceTokenizer:
    return train_tokenizer(LINES, 320)


def files(cache: Path) -> dict[str, bytes]:
    """Return the content of the only folder in a cache."""
    (folder,) = cache.iterdir()
    return {file.name: file.read_bytes() for file in folder.iterdir()}


class Interrupted(BaseException):
    """Stands for Ctrl-C."""


def interrupt_after(monkeypatch: pytest.MonkeyPatch, texts: int) -> list[str]:
    """Interrupt the encoding of sources after this number of texts; return those that are encoded from now on."""
    encoded: list[str] = []
    encode = HuggingFaceTokenizer.encode_batch

    def count(self: HuggingFaceTokenizer, chunk: list[str]) -> Any:
        encoded.extend(text for text in chunk if text.startswith("x"))
        if len(encoded) > texts:
            raise Interrupted
        return encode(self, chunk)

    monkeypatch.setattr(HuggingFaceTokenizer, "encode_batch", count)
    return encoded


def prepare(corpora: list[Corpus], tokenizer: HuggingFaceTokenizer, cache: Path, **options: Any) -> TokenizedCorpus:
    return tokenize_corpora(corpora, tokenizer, cache, CorpusProblems(), **options)


@pytest.mark.parametrize("texts", [3, 10, 57, 102, 103, 113, 122])
def test_an_interrupted_preparation_resumes_with_the_same_bytes(
    texts: int, corpora: list[Corpus], tokenizer: HuggingFaceTokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(corpora, tokenizer, tmp_path / "at once")
    with monkeypatch.context() as patch:
        interrupt_after(patch, texts)
        with pytest.raises(Interrupted):
            prepare(corpora, tokenizer, tmp_path / "cache")
    with monkeypatch.context() as patch:
        encoded = interrupt_after(patch, 1_000)
        prepare(corpora, tokenizer, tmp_path / "cache")
    complete = min(texts, 103) // 10 * 10 + max(0, texts - 103) // 10 * 10
    assert len(encoded) == 103 + 20 - complete
    assert files(tmp_path / "cache") == files(tmp_path / "at once")


KILLED = """
import os, signal, sys
from regard.data import encoding_parts
from regard.data.corpus import Corpus, CorpusProblems
from regard.data.huggingface_tokenizer import HuggingFaceTokenizer
from regard.data.tokenized_corpus import tokenize_corpora
from pathlib import Path

encoding_parts.ROWS_PER_CHUNK, encoding_parts.ROWS_PER_PART = 4, 10
encode, calls = HuggingFaceTokenizer.encode_batch, []

def kill(self, texts):
    calls.append(texts)
    if len(calls) == 30:
        os.kill(os.getpid(), signal.SIGKILL)
    return encode(self, texts)

HuggingFaceTokenizer.encode_batch = kill
folder = Path(sys.argv[1])
corpora = [Corpus((str(folder / f"{name}.x"), str(folder / f"{name}.y"))) for name in "ab"]
tokenize_corpora(corpora, HuggingFaceTokenizer.load(folder / "tokenizer"), folder / "cache", CorpusProblems())
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL is of POSIX")
def test_a_killed_preparation_resumes(corpora: list[Corpus], tokenizer: HuggingFaceTokenizer, tmp_path: Path) -> None:
    (tmp_path / "tokenizer").mkdir()
    tokenizer.save(tmp_path / "tokenizer")
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], env=variables, check=False)
    assert killed.returncode == -signal.SIGKILL
    (parts,) = (tmp_path / "cache").glob("*.parts")
    assert 2 <= len(list(parts.iterdir())) < 12
    loaded = HuggingFaceTokenizer.load(tmp_path / "tokenizer")
    prepare(corpora, loaded, tmp_path / "cache")
    for left_over in (tmp_path / "cache").glob(".*"):  # of the process that was killed
        assert left_over.is_dir()
    prepare(corpora, loaded, tmp_path / "at once")
    (folder,) = [path for path in (tmp_path / "cache").iterdir() if not path.name.startswith(".")]
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == files(tmp_path / "at once")


def test_parts_of_other_text_are_not_used(
    corpora: list[Corpus], tokenizer: HuggingFaceTokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file changed while it was read, the process was killed, and the file changed back."""
    path = Path(corpora[0].files[0])
    before = path.read_text()
    with monkeypatch.context() as patch:
        interrupt_after(patch, 57)
        with pytest.raises(Interrupted):
            prepare(corpora, tokenizer, tmp_path / "cache")
    (parts,) = (tmp_path / "cache").glob("*.parts")
    changed = sorted(parts.iterdir())[2]
    (changed / "text.sha256").write_text("0" * 64)
    with pytest.raises(CorpusError, match="the text has changed since its preparation was interrupted: start again"):
        prepare(corpora, tokenizer, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []
    assert path.read_text() == before
    assert len(prepare(corpora, tokenizer, tmp_path / "cache")) == 123


def test_classes_and_documents_continue_across_parts(
    tokenizer: HuggingFaceTokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t.x").write_text("".join(f"x {line}\n" for line in LINES))
    (tmp_path / "t.y").write_text("".join(f"class {n % 3}\n" for n in range(103)))
    (tmp_path / "text").write_text(
        "".join(f"x {line}\n\n" if n % 7 == 0 else f"x {n}\n" for n, line in enumerate(LINES))
    )
    options: dict[str, tuple[list[Corpus], dict[str, Any]]] = {
        "labels": ([Corpus((str(tmp_path / "t.x"), str(tmp_path / "t.y")))], {"labelled": True}),
        "documents": ([Corpus((str(tmp_path / "text"),))], {"documents": "blank-line"}),
        "file": ([Corpus((str(tmp_path / "text"),))], {"documents": "file"}),
    }
    for name, (corpora, settings) in options.items():
        with monkeypatch.context() as patch:
            patch.setattr(encoding_parts, "ROWS_PER_PART", 1_000)
            prepare(corpora, tokenizer, tmp_path / f"{name} at once", **settings)
        with monkeypatch.context() as patch:
            interrupt_after(patch, 57)
            with pytest.raises(Interrupted):
                prepare(corpora, tokenizer, tmp_path / name, **settings)
        prepare(corpora, tokenizer, tmp_path / name, **settings)
        assert files(tmp_path / name) == files(tmp_path / f"{name} at once")
