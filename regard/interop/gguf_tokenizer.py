"""Building the tokenizer that the settings of a GGUF file describe: byte-level BPE or SentencePiece BPE."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Engine

from regard.data.huggingface_tokenizer import HuggingFaceTokenizer
from regard.data.tokenizer import Tokenizer
from regard.data.untrusted_tokenizer import check_added, check_pieces
from regard.errors import RegardError
from regard.interop.gguf_header import GgufFile, short_repr

NORMAL, UNKNOWN, CONTROL, USER_DEFINED = 1, 2, 3, 4
"""Token types of `tokenizer.ggml.token_type`."""
TOKEN_ROLES = {
    "bos": "bos_token",
    "eos": "eos_token",
    "unknown": "unk_token",
    "padding": "pad_token",
    "mask": "mask_token",
}
"""The key of each special token in `tokenizer_config.json`, by its role in GGUF."""
GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPLIT_PATTERNS = {
    "default": (r"[\p{P}$+<=>^~|]+", GPT2_PATTERN, r"\p{N}+", "[0-9][0-9][0-9]"),
    "gpt-2": (GPT2_PATTERN,),
    "gpt2": (GPT2_PATTERN,),
    "smollm": (r"\p{N}", GPT2_PATTERN),
    "llama-bpe": (LLAMA3_PATTERN,),
}
"""Patterns that split a text before byte-level BPE, by `tokenizer.ggml.pre`; they are applied one after the other."""


def read_tokenizer(file: GgufFile, vocab_size: int) -> Tokenizer | None:
    """Return the tokenizer that the settings describe, or None if they describe none."""
    kind = file.get("tokenizer.ggml.model", str)
    if kind is None:
        return None
    if kind not in ("gpt2", "llama"):
        raise RegardError(f"tokenizer.ggml.model is {short_repr(kind)}, but Regard reads only gpt2 and llama")
    tokens, types = _vocabulary(file, vocab_size)
    # Defaults as in llama.cpp, which depend on the kind of tokenizer.
    before = _framing_ids(file, "bos", default=kind == "llama" or file.get("tokenizer.ggml.pre", str) == "llama-bpe")
    after = _framing_ids(file, "eos", default=False)
    try:
        engine = _byte_level(file, tokens) if kind == "gpt2" else _sentence_piece(file, tokens, types)
        added = _added(tokens, types)
        check_added(token.content for token in added)
        engine.add_tokens(added)
        tokenizer = HuggingFaceTokenizer(engine, _settings(file, tokens))
        return tokenizer.with_template(before, after) if before or after else tokenizer
    except BaseException as error:  # the library raises bare exceptions, and its panics are not Exceptions
        if isinstance(error, KeyboardInterrupt | SystemExit | ValueError):
            raise
        raise RegardError(f"its tokenizer cannot be built: {error}") from error


def token_id(file: GgufFile, role: str) -> int | None:
    """Return the id of a special token; SentencePiece defaults to its first three ids."""
    defaults = {"unknown": 0, "bos": 1, "eos": 2} if file.get("tokenizer.ggml.model", str) == "llama" else {}
    value = file.get(f"tokenizer.ggml.{role}_token_id", int)
    id_, vocab_size = defaults.get(role) if value is None else value, file.tensors["token_embd.weight"].shape[0]
    if id_ is not None and not 0 <= id_ < vocab_size:
        raise RegardError(f"the id {id_} of its {role} token is outside the vocabulary of {vocab_size} ids")
    return id_


def _added(tokens: list[str], types: Sequence[int]) -> list[AddedToken]:
    """Return the control, unknown and user-defined tokens, which BPE never splits."""
    return [
        AddedToken(token, special=type_ != USER_DEFINED, normalized=False)
        for token, type_ in zip(tokens, types, strict=True)
        if type_ in (CONTROL, UNKNOWN, USER_DEFINED)
    ]


def _framing_ids(file: GgufFile, role: str, default: bool) -> tuple[int, ...]:
    """Return the special id that starts or ends every text, if there is one."""
    value = file.get(f"tokenizer.ggml.add_{role}_token", bool)
    if not (default if value is None else value):
        return ()
    id_ = token_id(file, role)
    if id_ is None:
        raise RegardError(f"tokenizer.ggml.add_{role}_token is set, but tokenizer.ggml.{role}_token_id is missing")
    return (id_,)


def _settings(file: GgufFile, tokens: list[str]) -> dict[str, Any]:
    """Return the content of an equivalent `tokenizer_config.json`."""
    ids = {name: token_id(file, role) for role, name in TOKEN_ROLES.items()}
    template = file.get("tokenizer.chat_template", str)
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **{name: tokens[id_] for name, id_ in ids.items() if id_ is not None},
        "clean_up_tokenization_spaces": False,
        **({} if template is None else {"chat_template": template}),
    }


def _vocabulary(file: GgufFile, vocab_size: int) -> tuple[list[str], Sequence[int]]:
    """Return the tokens and their types."""
    tokens = file.need("tokenizer.ggml.tokens", list)
    types = file.get("tokenizer.ggml.token_type", np.ndarray)
    if len(tokens) != vocab_size or (types is not None and len(types) != vocab_size):
        type_count = "no" if types is None else len(types)
        raise RegardError(f"there are {len(tokens):,} tokens with {type_count} types, but {vocab_size:,} embeddings")
    token, times = Counter(tokens).most_common(1)[0]
    if times > 1:
        raise RegardError(f"the token {short_repr(token)} appears {times:,} times")
    check_pieces(tokens)
    return tokens, [NORMAL] * vocab_size if types is None else types.tolist()


def _byte_level(file: GgufFile, tokens: list[str]) -> Engine:
    """Return byte-level BPE as in GPT-2: split, map bytes to characters, merge in the order of the merges."""
    pre = file.get("tokenizer.ggml.pre", str) or "default"
    if pre not in SPLIT_PATTERNS:
        raise RegardError(f"tokenizer.ggml.pre is {short_repr(pre)}; supported: {', '.join(SPLIT_PATTERNS)}")
    if file.get("tokenizer.ggml.add_space_prefix", bool):
        raise RegardError("tokenizer.ggml.add_space_prefix is not supported with byte-level BPE")
    merges = file.need("tokenizer.ggml.merges", list)
    if invalid := [merge for merge in merges if merge.count(" ") != 1]:
        raise RegardError(f"a merge must consist of two tokens, but {short_repr(invalid[0])} does not")
    vocabulary = {token: i for i, token in enumerate(tokens)}
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    engine = Engine(models.BPE(vocab=vocabulary, merges=pairs, ignore_merges=pre == "llama-bpe"))
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in SPLIT_PATTERNS[pre]]
    engine.pre_tokenizer = pre_tokenizers.Sequence(
        [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    engine.decoder = decoders.ByteLevel()
    return engine


def _sentence_piece(file: GgufFile, tokens: list[str], types: Sequence[int]) -> Engine:
    """Return SentencePiece BPE: spaces become ▁, and the two pieces that form the best-scored piece merge first."""
    scores = file.need("tokenizer.ggml.scores", np.ndarray)
    if len(scores) != len(tokens) or not np.isfinite(scores).all():
        raise RegardError(
            f"there must be a finite score for each of the {len(tokens):,} tokens ({len(scores):,} scores)"
        )
    pieces = {tokens[i]: (-score, i) for i, score in enumerate(scores.tolist()) if types[i] == NORMAL}
    vocabulary, unknown = {token: i for i, token in enumerate(tokens)}, tokens[token_id(file, "unknown") or 0]
    model = models.BPE(vocab=vocabulary, merges=_merges(pieces), unk_token=unknown, fuse_unk=True, byte_fallback=True)
    engine = Engine(model)
    prefix = file.get("tokenizer.ggml.add_space_prefix", bool) is not False
    spaces = normalizers.Replace(" ", "▁")
    engine.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), spaces] if prefix else [spaces])
    decoding = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    engine.decoder = decoders.Sequence([*decoding, decoders.Strip(" ", 1, 0)] if prefix else decoding)
    return engine


def _merges(pieces: dict[str, tuple[float, int]]) -> list[tuple[str, str]]:
    """Return every pair of pieces that forms a piece, ordered by the rank of the result, then by those of the pair."""
    if sum(len(piece) ** 2 for piece in pieces) > 10**9:
        raise RegardError("its tokens are too long")
    ranked = [
        (rank, pieces[piece[:cut]][1], pieces[piece[cut:]][1], piece[:cut], piece[cut:])
        for piece, rank in pieces.items()
        for cut in range(1, len(piece))
        if piece[:cut] in pieces and piece[cut:] in pieces
    ]
    return [(left, right) for *_, left, right in sorted(ranked)]
