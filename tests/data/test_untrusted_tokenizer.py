"""Untrusted tokenizers: those in common use are accepted; those that cost too much are rejected."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Regex, pre_tokenizers

from regard.data import untrusted_tokenizer
from regard.data.huggingface_tokenizer import HuggingFaceTokenizer
from regard.data.tokenizer_training import MAX_VOCABULARY, train_tokenizer
from regard.data.untrusted_pattern import check_pattern
from regard.data.untrusted_tokenizer import MAX_PIECE, check_tokenizer
from regard.interop.gguf_tokenizer import SPLIT_PATTERNS
from tests.support.tokenizer_files import added_token, replace_normalizer, split_pre_tokenizer, template_processor

IN_USE = [
    *(pattern for patterns in SPLIT_PATTERNS.values() for pattern in patterns),
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r" {2,}",
    r" ?[^(\s|[.,!?…。，、।۔،])]+",
    r"<\|startoftext\|>|'s|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+",
    r"\p{N}{1,3}(?=(?:\p{N}{3})*(?:\P{N}|$))",
    r"[\]^+*]+|\[a+|(?i)b+|(?#a comment+)c+",
    # GPT-2, Falcon
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"[\p{P}\$\+<=>\^~\|`]+",
    "[0-9][0-9][0-9]",
    # GPT-4 as in several folders (dbrx), and cl100k as in tiktoken
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"
    r"|\s+(?!\S)|\s",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}++|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s*[\r\n]+|\s+",
    # o200k as in tiktoken
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    # Qwen2, Llama 3
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+",
    # DeepSeek
    "[一-龥\u3040-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    # replacements and similar patterns
    r"(?:\r?\n)+",
    r"(?:\r?\n)+(?!\r?\n)",
    r"^\s+|\s+$",
    r"[a-z]+@[a-z]+\.com",
    r"( +)?\n( +)?",
    "a*+b*+c",
    r"(\p{L}+)(\p{N}+)",
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
    # cubic
    r"\x{62}*\x{62}*[\x{63}\x{64}][\x{65}\x{66}]",
    r"\x62*\u0062*c",
    "[qz]*[qz]*w",
    "a*(?:a*)b",
    "a*?a*?b",
    "a+(?=a*b)",
    "a+(?!a*)",
    "a*(?i)x|a*q",
    "a*(?#nothing)a*b",
    "a{0,2000}a{0,2000}b",
    r"\p{L}*a+b",
    r"\p{L}*a*+b",
    r"\p{L}*(?:a+b)?c",
    r"a*(?:\p{L}\p{L}*+){3,}",
    r"\p{L}*(?:[^c]*+.++)",
    "(?i)s*ſ*b",
    "(?x)a* b* a*c",
    # exponential without a repeated group
    "a?" * 30 + "a{30}",
    "(?:a|a)" * 30 + "b",
    "a{1,3}+b",
    "a*?+b",
    "(?:a?b?)+",
    "(?:a+b?)+",
]


@pytest.mark.parametrize("pattern", IN_USE)
def test_patterns_in_use_are_accepted(pattern: str) -> None:
    check_pattern(pattern)


@pytest.mark.parametrize("pattern", EXPONENTIAL)
def test_slow_patterns_are_rejected(pattern: str) -> None:
    with pytest.raises(ValueError, match="its pattern"):
        check_pattern(pattern)


@pytest.fixture(autouse=True)
def clear_trial_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(untrusted_tokenizer, "_passed_digests", set())


def write_tokenizer(folder: Path, **changes: Any) -> Path:
    """Write the folder of a small tokenizer with changes."""
    train_tokenizer(["un chat noir dort"], 300).save(folder)
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return folder


def test_own_tokenizers_need_no_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_trial(*_: object) -> None:
        pytest.fail("a child process was started")

    monkeypatch.setattr(untrusted_tokenizer, "_try", no_trial)
    for kind in ("bpe", "characters"):
        train_tokenizer(["un chat noir dort"], 320, kind).save(tmp_path / kind)
        HuggingFaceTokenizer.load(tmp_path / kind)


def test_a_tokenizer_with_a_pattern_is_tried_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_tokenizer(tmp_path, pre_tokenizer=split_pre_tokenizer(r"\p{L}+"))
    assert HuggingFaceTokenizer.load(folder).encode("chat noir")
    assert len(untrusted_tokenizer._passed_digests) == 1
    monkeypatch.setattr(untrusted_tokenizer, "TRIAL_PROGRAM", "raise SystemExit(3)")
    HuggingFaceTokenizer.load(folder)


def unigram(pieces: int, length: int) -> dict[str, Any]:
    names = [f"{i:08d}".ljust(length, "x") for i in range(pieces)]
    return {"type": "Unigram", "unk_id": 0, "byte_fallback": False, "vocab": [[name, -1.0] for name in names]}


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux limits the memory of a process")
def test_a_trial_that_needs_too_much_memory_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library needs 350 bytes per letter of such a vocabulary: 2 MB of it take 700 MB."""
    monkeypatch.setattr(untrusted_tokenizer, "TRIAL_BYTES", 400_000_000)
    folder = write_tokenizer(tmp_path, model=unigram(500, MAX_PIECE), added_tokens=[], pre_tokenizer=None, decoder=None)
    with pytest.raises(ValueError, match=r"tokenizer.json was rejected: .* more than 0.4 GB of memory"):
        HuggingFaceTokenizer.load(folder)


@pytest.mark.slow
@pytest.mark.parametrize("slow_pattern", [False, True])
def test_a_trial_that_takes_too_long_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow_pattern: bool
) -> None:
    if slow_pattern:  # quadratic: a minute for this length, if it were not interrupted
        monkeypatch.setattr(untrusted_tokenizer, "TRIAL_RUN", 100_000)
    else:
        monkeypatch.setattr(untrusted_tokenizer, "TRIAL_PROGRAM", "while True: pass")
    monkeypatch.setattr(untrusted_tokenizer, "TRIAL_SECONDS", 0.5)
    folder = write_tokenizer(tmp_path, pre_tokenizer=split_pre_tokenizer("[qz]*w"))
    with pytest.raises(ValueError, match=r"was rejected: loading took more than 0.5 s"):
        HuggingFaceTokenizer.load(folder)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows limits no processor time")
def test_a_pattern_that_is_slow_on_its_own_letters_fails_the_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Quadratic patterns are accepted if they are fast enough; here the run of letters is longer than usual."""
    folder = write_tokenizer(tmp_path, pre_tokenizer=split_pre_tokenizer("[qz]*w"))
    HuggingFaceTokenizer.load(folder)
    untrusted_tokenizer._passed_digests.clear()
    monkeypatch.setattr(untrusted_tokenizer, "TRIAL_RUN", 100_000)
    monkeypatch.setattr(untrusted_tokenizer, "TRIAL_CPU_SECONDS", 1)
    with pytest.raises(ValueError, match="was rejected: loading and using it takes more than 1 s of processor time"):
        HuggingFaceTokenizer.load(folder)


@pytest.mark.slow
@pytest.mark.parametrize("pattern", [each for each in IN_USE if "(?#" not in each])
def test_patterns_in_use_pass_the_trial(tmp_path: Path, pattern: str) -> None:
    HuggingFaceTokenizer.load(write_tokenizer(tmp_path, pre_tokenizer=split_pre_tokenizer(pattern)))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows limits no processor time")
def test_a_trial_that_uses_too_much_cpu_time_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limited = untrusted_tokenizer.TRIAL_PROGRAM.replace("    from tokenizers import Tokenizer", "    while True: pass")
    monkeypatch.setattr(untrusted_tokenizer, "TRIAL_PROGRAM", limited)
    monkeypatch.setattr(untrusted_tokenizer, "TRIAL_CPU_SECONDS", 1)
    with pytest.raises(ValueError, match="takes more than 1 s of processor time"):
        HuggingFaceTokenizer.load(write_tokenizer(tmp_path, pre_tokenizer=split_pre_tokenizer(r"\p{L}+")))


def test_without_child_processes_only_the_static_checks_apply(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere")
    HuggingFaceTokenizer.load(write_tokenizer(tmp_path / "good", pre_tokenizer=split_pre_tokenizer(r"\p{N}+")))
    with pytest.raises(ValueError, match="repeats a group"):
        HuggingFaceTokenizer.load(write_tokenizer(tmp_path / "bad", pre_tokenizer=split_pre_tokenizer("(x+x+)+y")))


def test_without_the_library_only_the_static_checks_apply(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = untrusted_tokenizer.TRIAL_PROGRAM.replace("from tokenizers import", "from no_such_library import")
    monkeypatch.setattr(untrusted_tokenizer, "TRIAL_PROGRAM", program)
    HuggingFaceTokenizer.load(write_tokenizer(tmp_path, pre_tokenizer=split_pre_tokenizer(r"\p{N}+")))
    assert not untrusted_tokenizer._passed_digests


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("raise ImportError('no such library')", r"ended with status 1: ImportError: no such library"),
        ("raise MemoryError", "more than 1.5 GB of memory"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "more than 1.5 GB of memory"),
        ("import os; os.abort()", "more than 1.5 GB of memory"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", "ended with SIGTERM: no message"),
    ],
)
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signals")
def test_a_failed_trial_reports_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, message: str
) -> None:
    monkeypatch.setattr(untrusted_tokenizer, "TRIAL_PROGRAM", program)
    with pytest.raises(ValueError, match=message) as caught:
        HuggingFaceTokenizer.load(write_tokenizer(tmp_path, pre_tokenizer=split_pre_tokenizer(r"\p{L}+")))
    assert ("memory" in str(caught.value)) == ("memory" in message)


def test_added_tokens_are_bounded_after_normalisation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """40 tokens of 4,000 characters that become 64 times longer when normalised took 0.76 GB."""
    long_tokens = [added_token("a" * 4_000 + str(i), 5_000 + i) | {"normalized": True} for i in range(40)]
    folder = write_tokenizer(
        tmp_path, added_tokens=long_tokens, normalizer=replace_normalizer(1, "b" * 64), pre_tokenizer=None
    )
    with pytest.raises(ValueError, match=r"can make 10,244,480 characters of the added tokens"):
        HuggingFaceTokenizer.load(folder)
    few = [added_token("\ufdfa" * 4_000 + str(i), 5_000 + i) | {"normalized": True} for i in range(40)]
    spec = json.loads((folder / "tokenizer.json").read_text()) | {"added_tokens": few, "normalizer": {"type": "NFKC"}}
    tried: list[object] = []
    monkeypatch.setattr(untrusted_tokenizer, "_try", lambda *_: tried.append(1))
    check_tokenizer(spec, b"", Path("tokenizer.json"))
    assert tried  # the growth caused by Unicode normalisation is measured in the child process


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["NFKC", "ByteLevel", "Lowercase"])
def test_thousands_of_short_added_tokens_are_accepted(tmp_path: Path, kind: str) -> None:
    tokens = [added_token(f"<unused_{i}>", 5_000 + i) | {"normalized": True} for i in range(10_000)]
    tokenizer = HuggingFaceTokenizer.load(write_tokenizer(tmp_path, added_tokens=tokens, normalizer={"type": kind}))
    assert len(untrusted_tokenizer._passed_digests) == (
        kind == "NFKC"
    )  # in the trial, because NFKC can make a text 18 times longer
    assert tokenizer.engine.token_to_id("<unused_9999>") is not None


def test_every_template_is_bounded() -> None:
    for ids in (64, 65, 128):
        spec = {"post_processor": template_processor(ids=ids)}
        if ids == 64:
            check_tokenizer(spec, b"", Path("tokenizer.json"))
            continue
        with pytest.raises(ValueError, match=rf"its template single puts {ids} ids around a text: the maximum is 64"):
            check_tokenizer(spec, b"", Path("tokenizer.json"))


@pytest.mark.slow
def test_a_panic_while_encoding_raises_an_error(tmp_path: Path) -> None:
    """The library aborts a match after ten million attempts with a panic."""
    engine = HuggingFaceTokenizer.load(write_tokenizer(tmp_path)).engine
    engine.pre_tokenizer = pre_tokenizers.Split(Regex("(x+x+)+y"), "isolated")
    tokenizer = HuggingFaceTokenizer(engine)
    assert tokenizer.encode("chat")
    for encode in (tokenizer.encode, lambda text: list(tokenizer.encode_batch([text]))):
        with pytest.raises(ValueError, match=r"the tokenizer failed on this text: .*retry-limit"):
            encode("x" * 40)


@pytest.mark.slow
def test_training_on_a_long_run_of_one_letter_gives_an_accepted_tokenizer(tmp_path: Path) -> None:
    tokenizer = train_tokenizer(["=" * 40_000] * 3, 300)
    tokenizer.save(tmp_path)
    assert HuggingFaceTokenizer.load(tmp_path).digest == tokenizer.digest
    assert max(map(len, tokenizer.engine.get_vocab())) <= MAX_PIECE


def test_malformed_pipelines_are_left_to_the_library() -> None:
    for spec in ({}, {"model": 5, "added_tokens": 5, "normalizer": [], "decoder": "x"}, {"model": {"vocab": 3}}):
        check_tokenizer(spec, b"", Path("tokenizer.json"))


def test_a_huge_vocabulary_is_rejected_before_memory_is_allocated() -> None:
    with pytest.raises(ValueError, match="vocab_size=2000000000 is too large: it must be at most 1,000,000"):
        train_tokenizer(["a"], 2 * 10**9)
    assert MAX_VOCABULARY == 10**6
