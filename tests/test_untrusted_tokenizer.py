"""Tokenizers from strangers: those in use are accepted; those that cost too much are refused."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Regex, pre_tokenizers

from regard.interop.gguf_tokenizer import CUTS
from regard.text import untrusted_tokenizer
from regard.text.tokenizer import MAX_VOCABULARY, Tokenizer
from regard.text.untrusted_tokenizer import MAX_PIECE, check_pattern, check_tokenizer
from tests.test_hostile import splitting

IN_USE = [
    *(pattern for patterns in CUTS.values() for pattern in patterns),
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r" {2,}",
    r" ?[^(\s|[.,!?…。，、।۔،])]+",
    r"<\|startoftext\|>|'s|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+",
    r"\p{N}{1,3}(?=(?:\p{N}{3})*(?:\P{N}|$))",
    r"[\]^+*]+|\[a+|(?i)b+|(?#a comment+)c+",
]
EXPONENTIAL = [
    "(x+x+)+y",
    "(a|a)*b",
    "(a*)*",
    "((a)+)+",
    "(?:a{1,50}){1,50}",
    "(?:x?){30}x{30}",
    "(?i:a+){2,}",
    "(?<name>a+|b)+",
    r"(a)\1",
    "a*a*a*a*b",
    "(a*a*)(a*a*)b",
    "(?(1)a|b)",
]


@pytest.mark.parametrize("pattern", IN_USE)
def test_patterns_in_use_are_accepted(pattern: str) -> None:
    check_pattern(pattern)


@pytest.mark.parametrize("pattern", EXPONENTIAL)
def test_patterns_that_take_too_long_are_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="its pattern"):
        check_pattern(pattern)


@pytest.fixture(autouse=True)
def nothing_tried_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(untrusted_tokenizer, "_PASSED", set())


def written(folder: Path, **changes: Any) -> Path:
    """The folder of a small tokenizer with changes."""
    Tokenizer.train(["un chat noir dort"], 300).save(folder)
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return folder


def test_our_own_tokenizers_need_no_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_trial(*_: object) -> None:
        pytest.fail("a child process was started")

    monkeypatch.setattr(untrusted_tokenizer, "_try", no_trial)
    for kind in ("bpe", "characters"):
        Tokenizer.train(["un chat noir dort"], 320, kind).save(tmp_path / kind)
        Tokenizer.load(tmp_path / kind)


def test_a_tokenizer_with_a_pattern_is_tried_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = written(tmp_path, pre_tokenizer=splitting(r"\p{L}+"))
    assert Tokenizer.load(folder).encode("chat noir")
    assert len(untrusted_tokenizer._PASSED) == 1
    monkeypatch.setattr(untrusted_tokenizer, "PROGRAM", "raise SystemExit(3)")
    Tokenizer.load(folder)


def unigram(pieces: int, length: int) -> dict[str, Any]:
    names = [f"{i:08d}".ljust(length, "x") for i in range(pieces)]
    return {"type": "Unigram", "unk_id": 0, "byte_fallback": False, "vocab": [[name, -1.0] for name in names]}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux limits the memory of a process")
def test_a_trial_that_takes_too_much_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library takes 350 bytes for each letter of such a vocabulary: 2 MB of it take 700 MB."""
    monkeypatch.setattr(untrusted_tokenizer, "TRIAL_BYTES", 400_000_000)
    folder = written(tmp_path, model=unigram(500, MAX_PIECE), added_tokens=[], pre_tokenizer=None, decoder=None)
    with pytest.raises(ValueError, match=r"tokenizer.json is refused: .* more than 0.4 GB of memory"):
        Tokenizer.load(folder)


def test_a_trial_that_takes_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(untrusted_tokenizer, "PROGRAM", "while True: pass")
    monkeypatch.setattr(untrusted_tokenizer, "TRIAL_SECONDS", 0.5)
    folder = written(tmp_path, pre_tokenizer=splitting(r"\p{L}+"))
    start = time.perf_counter()
    with pytest.raises(ValueError, match=r"is refused: to load it took more than 0.5 seconds"):
        Tokenizer.load(folder)
    assert time.perf_counter() - start < 30


@pytest.mark.skipif(sys.platform == "win32", reason="Windows limits no processor time")
def test_a_pattern_that_is_slow_on_its_own_letters_is_found_on_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(untrusted_tokenizer, "TRIAL_CPU_SECONDS", 2)
    with pytest.raises(ValueError, match="takes more than 2 seconds of processor time"):
        Tokenizer.load(written(tmp_path, pre_tokenizer=splitting("[qz]*[qz]*w")))


@pytest.mark.parametrize("pattern", [each for each in IN_USE if "(?#" not in each])
def test_patterns_in_use_are_quick_on_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str) -> None:
    monkeypatch.setattr(untrusted_tokenizer, "TRIAL_CPU_SECONDS", 5)
    Tokenizer.load(written(tmp_path, pre_tokenizer=splitting(pattern)))


@pytest.mark.skipif(sys.platform == "win32", reason="Windows limits no processor time")
def test_a_trial_that_takes_too_much_processor_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limited = untrusted_tokenizer.PROGRAM.replace("from tokenizers import Tokenizer", "while True: pass")
    monkeypatch.setattr(untrusted_tokenizer, "PROGRAM", limited)
    monkeypatch.setattr(untrusted_tokenizer, "TRIAL_CPU_SECONDS", 1)
    with pytest.raises(ValueError, match="takes more than 1 seconds of processor time"):
        Tokenizer.load(written(tmp_path, pre_tokenizer=splitting(r"\p{L}+")))


def test_where_no_process_can_be_started_the_other_checks_must_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere")
    Tokenizer.load(written(tmp_path / "good", pre_tokenizer=splitting(r"\p{N}+")))
    with pytest.raises(ValueError, match="repeats a group"):
        Tokenizer.load(written(tmp_path / "bad", pre_tokenizer=splitting("(x+x+)+y")))


def test_a_panic_while_encoding_is_an_error(tmp_path: Path) -> None:
    """The library gives up a match after ten million attempts, by a panic."""
    engine = Tokenizer.load(written(tmp_path)).engine
    engine.pre_tokenizer = pre_tokenizers.Split(Regex("(x+x+)+y"), "isolated")
    tokenizer = Tokenizer(engine)
    assert tokenizer.encode("chat")
    for encode in (tokenizer.encode, lambda text: list(tokenizer.encode_batch([text]))):
        with pytest.raises(ValueError, match=r"the tokenizer failed on this text: .*retry-limit"):
            encode("x" * 40)


def test_a_long_run_of_one_letter_makes_no_piece_that_is_refused(tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(["=" * 40_000] * 3, 300)
    tokenizer.save(tmp_path)
    assert Tokenizer.load(tmp_path).digest == tokenizer.digest
    assert max(map(len, tokenizer.engine.get_vocab())) <= MAX_PIECE


def test_what_is_no_pipeline_is_left_to_the_library() -> None:
    for spec in ({}, {"model": 5, "added_tokens": 5, "normalizer": [], "decoder": "x"}, {"model": {"vocab": 3}}):
        check_tokenizer(spec, b"", Path("tokenizer.json"))


def test_a_vocabulary_without_end_is_refused_before_memory_is_taken() -> None:
    with pytest.raises(ValueError, match="vocab_size=2000000000 is too large: it must be at most 1,000,000"):
        Tokenizer.train(["a"], 2 * 10**9)
    assert MAX_VOCABULARY == 10**6
