"""Validation of untrusted tokenizers: a `tokenizer.json` is checked before the library loads it.

There are two risks. First, a few bytes can describe a pipeline that multiplies the length of a text: forty replacements
of the empty pattern, repeated byte-level encoding, a template with a million ids. Therefore only known components are
accepted, and the product of their growth factors is bounded. So are the lengths of pieces, templates and patterns;
patterns that can take too long to match are rejected (`untrusted_pattern`). Second, the library has no limits on the
memory and time it takes to load a file. Therefore everything beyond plain lists of pieces and steps is first loaded in
a child process with limited memory and processor time; the child does not import torch and takes about 0.1 s.
"""

import base64
import binascii
import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from regard.data.untrusted_pattern import check_pattern
from regard.errors import RegardError
from regard.formatting import shorten

MAX_PIECE = 4_096
"""Maximum length of a piece, in characters; the longest in use have a few hundred."""
MAX_ADDED_CHARACTERS = 1_000_000
"""Maximum total length of the added tokens after normalization; the library needs 74 bytes per character."""
UNICODE_GROWTH = {"NFC": 3, "NFD": 4, "NFKC": 18, "NFKD": 18}
"""Maximum number of characters that each Unicode normalization form makes of one character."""
MAX_PIPELINE_STEPS = 64
"""Maximum number of steps of a normalizer, pre-tokenizer, decoder or post-processor."""
MAX_GROWTH = 64
"""Maximum number of characters that one character may become, not counting Unicode normalization."""
MAX_TEMPLATE_IDS = 64
"""Maximum number of special ids that a template may put around a text, or around a pair."""
MAX_WORDPIECE_WORD = 1_000
"""Maximum length of a word that WordPiece splits; its time grows with the cube of the length."""
MAX_CHARSMAP_ENTRY = 128
"""Maximum length of a replacement in a SentencePiece normalization table, in bytes; the longest in use has 33."""
MAX_UNTRIED_CHARACTERS = 200_000
"""Maximum total length of a Unigram vocabulary that is loaded without a trial; the library needs about 350 bytes per
character."""

TRIAL_BYTES, TRIAL_CPU_SECONDS, TRIAL_SECONDS = 1_500_000_000, 20, 60
"""Limits of the child process that tries to load a tokenizer: memory, processor time, elapsed time."""
TRIAL_TEXTS = ("", "a", "Hello, world! 123", "L'été  à\tParis\n\n", "é中🙂\u0301" * 20)
"""Texts that the child process encodes and decodes."""
TRIAL_LETTERS, TRIAL_RUN = "aA1é中яا .-_'\n", 3_000
"""Letters that the child process repeats this many times, as well as those in patterns, to find slow patterns."""

STEP_GROWTH: dict[str, int] = {
    # normalizers
    **dict.fromkeys(("NFC", "NFD", "NFKC", "NFKD", "Nmt", "Lowercase", "Strip", "StripAccents", "Precompiled"), 1),
    "BertNormalizer": 3,
    # names shared by normalizers, pre-tokenizers, decoders and post-processors
    "ByteLevel": 4,
    "Sequence": 1,
    "Replace": 1,  # plus the growth by its content
    "Prepend": 1,  # plus the growth by its text
    # pre-tokenizers
    **dict.fromkeys(("BertPreTokenizer", "CharDelimiterSplit", "Digits", "FixedLength", "Punctuation"), 1),
    **dict.fromkeys(("Split", "UnicodeScripts", "Whitespace", "WhitespaceSplit"), 1),
    "Metaspace": 2,
    # decoders
    **dict.fromkeys(("BPEDecoder", "ByteFallback", "CTC", "Fuse", "WordPiece"), 1),
}
"""The factor by which each step can lengthen a text."""
PIPELINE_PARTS = {
    "normalizer": "normalizers",
    "pre_tokenizer": "pretokenizers",
    "post_processor": "processors",
    "decoder": "decoders",
}
"""The parts of a pipeline, and the key under which a Sequence of each has its steps."""
MODEL_TYPES = ("BPE", "WordPiece", "WordLevel", "Unigram")
POST_PROCESSOR_TYPES = ("TemplateProcessing", "BertProcessing", "RobertaProcessing", "ByteLevel", "Sequence")


def check_tokenizer(spec: Mapping[str, Any], content: bytes, path: Path) -> None:
    """Raise a RegardError unless the library can load and use this `tokenizer.json` within limits.

    `spec` is the parsed `content`. Errors that the library itself reports are left to it.
    """
    try:
        check_pieces(_pieces(spec.get("model")))
        check_added(_added(spec))
        growth = {part: _check_part(part, spec.get(part)) for part in PIPELINE_PARTS}
        if growth["normalizer"] * growth["pre_tokenizer"] > MAX_GROWTH:
            raise RegardError(f"its normalizer and pre_tokenizer can turn one character into more than {MAX_GROWTH}")
        if (length := _normalized_length(spec) * growth["normalizer"]) > MAX_ADDED_CHARACTERS:
            raise RegardError(
                f"its normalizer can make {length:,.0f} characters of the added tokens: "
                f"the maximum is {MAX_ADDED_CHARACTERS:,}"
            )
        _check_model(spec.get("model"))
    except RegardError as error:
        raise RegardError(f"{path}: {error}") from None
    length *= _unicode_growth(spec)
    if length > MAX_ADDED_CHARACTERS or not _is_plain(spec):
        _try(content, _letters(spec), path)


def check_pieces(pieces: Iterable[object]) -> None:
    """Raise a RegardError for a piece so long that a few of them would exhaust the memory."""
    longest = max((len(piece) for piece in pieces if isinstance(piece, str)), default=0)
    if longest > MAX_PIECE:
        raise RegardError(f"its vocabulary has a piece of {longest:,} characters: the maximum is {MAX_PIECE:,}")


def check_added(tokens: Iterable[object]) -> None:
    """Raise a RegardError for added tokens that together need too much memory."""
    tokens = list(tokens)
    if sum(len(token) for token in tokens if isinstance(token, str)) > MAX_ADDED_CHARACTERS:
        raise RegardError(f"it adds tokens of more than {MAX_ADDED_CHARACTERS:,} characters")
    check_pieces(tokens)


def check_charsmap(table: bytes) -> None:
    """Raise a RegardError if a SentencePiece normalization table has a replacement that is too long.

    The table consists of the size of a trie, the trie, and the replacements, each terminated by NUL.
    """
    replacements = table[4 + int.from_bytes(table[:4], "little") :]
    longest = max(map(len, replacements.split(b"\0")))
    if longest > MAX_CHARSMAP_ENTRY:
        raise RegardError(
            f"its normalization replaces a character by {longest:,} bytes: the maximum is {MAX_CHARSMAP_ENTRY}"
        )


def _added(spec: Mapping[str, Any]) -> list[object]:
    added = spec.get("added_tokens")
    return [token.get("content") for token in added if isinstance(token, dict)] if isinstance(added, list) else []


def _normalized_length(spec: Mapping[str, Any]) -> int:
    """Return the total length of the added tokens that the library normalizes, which is the default."""
    added = spec.get("added_tokens")
    tokens = [token for token in added if isinstance(token, dict)] if isinstance(added, list) else []
    return sum(len(str(token.get("content", ""))) for token in tokens if token.get("normalized") is not False)


def _unicode_growth(spec: Mapping[str, Any]) -> int:
    """Return how many characters the Unicode forms of a normalizer can make of one."""
    kinds = [str(step.get("type")) for step in _steps("normalizer", spec.get("normalizer"))]
    return max((UNICODE_GROWTH.get(kind, 1) for kind in kinds), default=1)


def _pieces(model: object) -> Iterator[object]:
    """Yield the pieces of a vocabulary, and the prefixes and suffixes that the model adds."""
    if not isinstance(model, dict):
        return
    vocabulary = model.get("vocab")
    if isinstance(vocabulary, dict):
        yield from vocabulary
    elif isinstance(vocabulary, list):
        yield from (pair[0] for pair in vocabulary if isinstance(pair, list) and pair)
    for name in ("unk_token", "continuing_subword_prefix", "end_of_word_suffix"):
        yield model.get(name)


def _check_model(model: object) -> None:
    if not isinstance(model, dict):
        return
    if (kind := model.get("type")) is not None and kind not in MODEL_TYPES:
        raise RegardError(f"its model is of the unknown type {_short(kind)}")
    for name in ("continuing_subword_prefix", "end_of_word_suffix"):
        if len(str(model.get(name) or "")) > MAX_GROWTH:
            raise RegardError(f"its {name} has more than {MAX_GROWTH} characters")
    longest = model.get("max_input_chars_per_word")
    if isinstance(longest, int) and longest > MAX_WORDPIECE_WORD:
        raise RegardError(f"max_input_chars_per_word={_short(longest)}: the maximum is {MAX_WORDPIECE_WORD:,}")


def _steps(part: str, step: object) -> Iterator[Mapping[str, Any]]:
    """Yield the steps of a part, including those of each Sequence."""
    if not isinstance(step, dict):
        return
    yield step
    inner = step.get(PIPELINE_PARTS[part])
    for inner_step in inner if isinstance(inner, list) else []:
        yield from _steps(part, inner_step)


def _check_part(part: str, first: object) -> int | float:
    """Return the factor by which a part can lengthen a text; raise a RegardError if it is too large or unknown."""
    steps = list(_steps(part, first))
    if len(steps) > MAX_PIPELINE_STEPS:
        raise RegardError(f"its {part} has {len(steps):,} steps: the maximum is {MAX_PIPELINE_STEPS}")
    if part == "post_processor":
        _check_templates(steps)
        return 1
    growth: int | float = 1
    tables = 0
    for step in steps:
        kind = step.get("type")
        if not isinstance(kind, str) or kind not in STEP_GROWTH:
            raise RegardError(f"its {part} has a step of the unknown type {_short(kind)}")
        growth *= STEP_GROWTH[kind] * _growth(step)
        tables += kind == "Precompiled"
        _check_step(step)
    if growth > MAX_GROWTH or tables > 1:
        raise RegardError(f"its {part} can turn one character into more than {MAX_GROWTH}")
    return growth


def _growth(step: Mapping[str, Any]) -> int | float:
    """Return the factor by which a step's own text lengthens a text. A regular expression may match the empty string
    before every letter."""
    if "prepend" in step:
        return 1 + len(str(step["prepend"]))
    if step.get("type") != "Replace":
        return 1
    new, pattern = len(str(step.get("content", ""))), step.get("pattern")
    old = pattern.get("String") if isinstance(pattern, dict) else None
    return max(1, new / len(old)) if isinstance(old, str) and old else 1 + new


def _check_step(step: Mapping[str, Any]) -> None:
    pattern = step.get("pattern")
    if isinstance(pattern, dict) and isinstance(regex := pattern.get("Regex"), str):
        check_pattern(regex)
    if "precompiled_charsmap" in step:
        try:
            check_charsmap(base64.b64decode(str(step["precompiled_charsmap"]), validate=True))
        except binascii.Error:
            raise RegardError("its precompiled_charsmap is not in base64") from None
    if step.get("type") == "FixedLength" and step.get("length") == 0:
        raise RegardError("its FixedLength has length 0")


def _check_templates(steps: Iterable[Mapping[str, Any]]) -> None:
    """Raise a RegardError for templates that repeat a text or add too many ids."""
    totals = {"single": 0, "pair": 0}
    for step in steps:
        if (kind := step.get("type")) not in POST_PROCESSOR_TYPES:
            raise RegardError(f"its post_processor has a step of the unknown type {_short(kind)}")
        special_tokens = step.get("special_tokens")
        named = special_tokens if isinstance(special_tokens, dict) else {}
        sizes = {name: _ids(token) for name, token in named.items()}
        for name in totals:
            template = step.get(name)
            items = [item for item in template if isinstance(item, dict)] if isinstance(template, list) else []
            texts = [str(_id(item["Sequence"])) for item in items if "Sequence" in item]
            if len(set(texts)) < len(texts):
                raise RegardError(f"its template {name} repeats a text")
            tokens = [item["SpecialToken"] for item in items if isinstance(item.get("SpecialToken"), dict)]
            totals[name] += sum(sizes.get(str(_id(token)), 1) for token in tokens)
        if isinstance(special_tokens, list) or sum(sizes.values()) > MAX_TEMPLATE_IDS * MAX_TEMPLATE_IDS:
            raise RegardError(
                f"its template has special tokens of more than {MAX_TEMPLATE_IDS * MAX_TEMPLATE_IDS:,} ids"
            )
    for name, total in totals.items():
        if total > MAX_TEMPLATE_IDS:
            raise RegardError(
                f"its template {name} puts {total:,} ids around a text: the maximum is {MAX_TEMPLATE_IDS}"
            )


def _id(item: object) -> object:
    return item.get("id") if isinstance(item, dict) else None


def _ids(token: object) -> int:
    """Return the number of ids of a template's special token."""
    ids = token.get("ids") if isinstance(token, dict) else None
    return len(ids) if isinstance(ids, list) else 1


def _short(value: object) -> str:
    return shorten(repr(value) if not isinstance(value, int) else f"{value:.3g}" if value > 10**9 else str(value), 60)


def _is_plain(spec: Mapping[str, Any]) -> bool:
    """Return whether a tokenizer has only pieces and steps of known cost, so that it needs no trial."""
    steps = [step for part in PIPELINE_PARTS for step in _steps(part, spec.get(part))]
    patterns = [step.get("pattern") for step in steps]
    regexes = {pattern.get("Regex") for pattern in patterns if isinstance(pattern, dict) and "Regex" in pattern}
    tables = any("precompiled_charsmap" in step for step in steps)
    model = spec.get("model")
    pieces = sum(len(piece) for piece in _pieces(model) if isinstance(piece, str))
    unigram = isinstance(model, dict) and isinstance(model.get("vocab"), list)
    return not regexes and not tables and not (unigram and pieces > MAX_UNTRIED_CHARACTERS)


# The trial


_passed_digests: set[bytes] = set()
"""SHA-256 digests of the tokenizers that passed the trial in this process."""
TRIAL_PROGRAM = """
import json, sys
settings = json.loads(sys.argv[1])
sys.path[:] = settings["path"]
try:
    import resource
    limits = (("RLIMIT_AS", settings["bytes"], 0), ("RLIMIT_CPU", settings["seconds"], 1), ("RLIMIT_CORE", 0, 0))
    for kind, soft, more in limits:  # the soft limit of processor time sends SIGXCPU, the hard one SIGKILL
        try:
            resource.setrlimit(getattr(resource, kind), (soft, soft + more))
        except (AttributeError, OSError, ValueError):
            pass
except ImportError:
    pass
try:
    from tokenizers import Tokenizer
except ImportError:
    sys.exit(4)
try:
    engine = Tokenizer.from_buffer(sys.stdin.buffer.read())
    engine.no_truncation()
    engine.no_padding()
    for text in settings["texts"] + [letter * settings["run"] + settings["end"] for letter in settings["letters"]]:
        engine.decode(engine.encode(text).ids)
except MemoryError:
    raise
except BaseException as error:
    sys.stdout.buffer.write(str(error)[:1000].encode(errors="replace"))
    sys.exit(3)
"""


def _letters(spec: Mapping[str, Any]) -> str:
    """Return the characters in the patterns of a tokenizer."""
    patterns = [step.get("pattern") for part in PIPELINE_PARTS for step in _steps(part, spec.get(part))]
    regexes = [str(pattern.get("Regex", "")) for pattern in patterns if isinstance(pattern, dict)]
    return "".join(dict.fromkeys("".join(regexes)))[:100]


def _try(content: bytes, letters: str, path: Path) -> None:
    """Load and use a tokenizer in a child process; raise a RegardError if it fails or exceeds the limits.

    Where the system does not limit memory (macOS, Windows) the time limits still apply. Where no child process can be
    started, or it cannot import the library, only the structural checks apply.
    """
    digest = hashlib.sha256(content).digest()
    if digest in _passed_digests:
        return
    settings = {
        "path": [folder for folder in sys.path if folder],
        "bytes": TRIAL_BYTES,
        "seconds": TRIAL_CPU_SECONDS,
        "texts": TRIAL_TEXTS,
        "letters": "".join(dict.fromkeys(TRIAL_LETTERS + letters)),
        "run": TRIAL_RUN,
        "end": f"-{letters}",
    }
    environment = os.environ | {"TOKENIZERS_PARALLELISM": "false", "RUST_BACKTRACE": "0"}
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-c", TRIAL_PROGRAM, json.dumps(settings)],
            input=content,
            capture_output=True,
            env=environment,
            timeout=TRIAL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise RegardError(f"{path} was rejected: loading took more than {TRIAL_SECONDS} s") from None
    except OSError:
        return
    if done.returncode == 3:
        raise RegardError(shorten(f"{path} is not a valid tokenizer: {done.stdout.decode(errors='replace')}"))
    if done.returncode == 4:
        return
    if done.returncode:
        raise RegardError(f"{path} was rejected: {_why_killed(done.returncode, done.stderr.decode(errors='replace'))}")
    _passed_digests.add(digest)


def _why_killed(status: int, stderr: str) -> str:
    """Explain the exit status and the error output of the child process."""
    name = signal.Signals(-status).name if -status in set(signal.Signals) else f"status {status}"
    if name == "SIGXCPU":
        return f"loading and using it takes more than {TRIAL_CPU_SECONDS} s of processor time"
    if name in ("SIGABRT", "SIGSEGV", "SIGBUS", "SIGKILL") or "MemoryError" in stderr:
        return f"loading and using it takes more than {TRIAL_BYTES / 1e9:.1f} GB of memory"
    reason = stderr.strip().splitlines()
    return shorten(f"the trial process ended with {name}: {reason[-1] if reason else 'no message'}")
