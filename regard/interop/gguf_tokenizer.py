"""The tokenizer that the settings of a GGUF file describe: GPT-2's way with bytes, or SentencePiece's."""

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
from regard.interop.gguf_header import GgufFile, short

NORMAL, UNKNOWN, CONTROL, USER_DEFINED = 1, 2, 3, 4
"""types of tokens"""
ROLES = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token", "mask": "mask_token"}
"""what a GGUF file and a tokenizer's settings call the same token"""
WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
WORDS_AND_NUMBERS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CUTS = {
    "default": (r"[\p{P}$+<=>^~|]+", WORDS, r"\p{N}+", "[0-9][0-9][0-9]"),
    "gpt-2": (WORDS,),
    "gpt2": (WORDS,),
    "smollm": (r"\p{N}", WORDS),
    "llama-bpe": (WORDS_AND_NUMBERS,),
}
"""where byte-level BPE cuts a text, by `tokenizer.ggml.pre`: each pattern cuts what the one before it left"""


def read_tokenizer(file: GgufFile, vocab_size: int) -> Tokenizer | None:
    """The tokenizer that the settings describe, if they do."""
    kind = file.get("tokenizer.ggml.model", str)
    if kind is None:
        return None
    if kind not in ("gpt2", "llama"):
        raise RegardError(f"tokenizer.ggml.model is {short(kind)}: Regard reads gpt2 and llama")
    tokens, types = _vocabulary(file, vocab_size)
    # What a file does not say, llama.cpp decides by the kind of tokenizer.
    before = _around(file, "bos", usual=kind == "llama" or file.get("tokenizer.ggml.pre", str) == "llama-bpe")
    after = _around(file, "eos", usual=False)
    try:
        engine = _byte_level(file, tokens) if kind == "gpt2" else _sentence_piece(file, tokens, types)
        added = _added(tokens, types)
        check_added(token.content for token in added)
        engine.add_tokens(added)
        tokenizer = HuggingFaceTokenizer(engine, _settings(file, tokens))
        return tokenizer.with_template(before, after) if before or after else tokenizer
    except BaseException as error:  # the library raises nothing narrower, and panics beside Exception
        if isinstance(error, KeyboardInterrupt | SystemExit | ValueError):
            raise
        raise RegardError(f"its tokenizer cannot be made: {error}") from error


def token_id(file: GgufFile, role: str) -> int | None:
    """A special token's id; SentencePiece's first three if nothing is said."""
    usual = {"unknown": 0, "bos": 1, "eos": 2} if file.get("tokenizer.ggml.model", str) == "llama" else {}
    told = file.get(f"tokenizer.ggml.{role}_token_id", int)
    id_, vocab_size = usual.get(role) if told is None else told, file.tensors["token_embd.weight"].shape[0]
    if id_ is not None and not 0 <= id_ < vocab_size:
        raise RegardError(f"the id {id_} of its {role} token is outside the vocabulary of {vocab_size} ids")
    return id_


def _added(tokens: list[str], types: Sequence[int]) -> list[AddedToken]:
    """The tokens that are found whole in a text, or only by their ids."""
    return [
        AddedToken(token, special=type_ != USER_DEFINED, normalized=False)
        for token, type_ in zip(tokens, types, strict=True)
        if type_ in (CONTROL, UNKNOWN, USER_DEFINED)
    ]


def _around(file: GgufFile, role: str, usual: bool) -> tuple[int, ...]:
    """The special id on one side of every text, where there is to be one."""
    told = file.get(f"tokenizer.ggml.add_{role}_token", bool)
    if not (usual if told is None else told):
        return ()
    id_ = token_id(file, role)
    if id_ is None:
        raise RegardError(f"every text is to have a {role} token, and there is no tokenizer.ggml.{role}_token_id")
    return (id_,)


def _settings(file: GgufFile, tokens: list[str]) -> dict[str, Any]:
    """What a `tokenizer_config.json` would hold."""
    ids = {name: token_id(file, role) for role, name in ROLES.items()}
    template = file.get("tokenizer.chat_template", str)
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **{name: tokens[id_] for name, id_ in ids.items() if id_ is not None},
        "clean_up_tokenization_spaces": False,
        **({} if template is None else {"chat_template": template}),
    }


def _vocabulary(file: GgufFile, vocab_size: int) -> tuple[list[str], Sequence[int]]:
    """The tokens and their types."""
    tokens = file.need("tokenizer.ggml.tokens", list)
    types = file.get("tokenizer.ggml.token_type", np.ndarray)
    if len(tokens) != vocab_size or (types is not None and len(types) != vocab_size):
        told = "no" if types is None else len(types)
        raise RegardError(f"{len(tokens):,} tokens with {told} types, and the model has {vocab_size:,} embeddings")
    token, times = Counter(tokens).most_common(1)[0]
    if times > 1:
        raise RegardError(f"the token {short(token)} is there {times:,} times")
    check_pieces(tokens)
    return tokens, [NORMAL] * vocab_size if types is None else types.tolist()


def _byte_level(file: GgufFile, tokens: list[str]) -> Engine:
    """GPT-2's way: cut, write bytes as characters, merge in the order in which merges were learnt."""
    pre = file.get("tokenizer.ggml.pre", str) or "default"
    if pre not in CUTS:
        raise RegardError(f"tokenizer.ggml.pre is {short(pre)}: Regard knows {', '.join(CUTS)}")
    if file.get("tokenizer.ggml.add_space_prefix", bool):
        raise RegardError(
            "tokenizer.ggml.add_space_prefix is set for byte-level BPE, which Regard and llama.cpp have not"
        )
    merges = file.need("tokenizer.ggml.merges", list)
    if wrong := [merge for merge in merges if merge.count(" ") != 1]:
        raise RegardError(f"a merge is of two tokens, and {short(wrong[0])} is not")
    vocabulary = {token: i for i, token in enumerate(tokens)}
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    engine = Engine(models.BPE(vocab=vocabulary, merges=pairs, ignore_merges=pre == "llama-bpe"))
    cuts = [pre_tokenizers.Split(Regex(cut), "isolated") for cut in CUTS[pre]]
    engine.pre_tokenizer = pre_tokenizers.Sequence(
        [*cuts, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    engine.decoder = decoders.ByteLevel()
    return engine


def _sentence_piece(file: GgufFile, tokens: list[str], types: Sequence[int]) -> Engine:
    """SentencePiece's BPE: spaces are ▁, any two pieces merge if they make one, those of the best score first."""
    scores = file.need("tokenizer.ggml.scores", np.ndarray)
    if len(scores) != len(tokens) or not np.isfinite(scores).all():
        raise RegardError(f"{len(scores):,} scores, some perhaps not finite, for {len(tokens):,} tokens")
    pieces = {tokens[i]: (-score, i) for i, score in enumerate(scores.tolist()) if types[i] == NORMAL}
    vocabulary, unknown = {token: i for i, token in enumerate(tokens)}, tokens[token_id(file, "unknown") or 0]
    model = models.BPE(vocab=vocabulary, merges=_merges(pieces), unk_token=unknown, fuse_unk=True, byte_fallback=True)
    engine = Engine(model)
    prefix = file.get("tokenizer.ggml.add_space_prefix", bool) is not False
    spaces = normalizers.Replace(" ", "▁")
    engine.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), spaces] if prefix else [spaces])
    back = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    engine.decoder = decoders.Sequence([*back, decoders.Strip(" ", 1, 0)] if prefix else back)
    return engine


def _merges(pieces: dict[str, tuple[float, int]]) -> list[tuple[str, str]]:
    """Every way to make a piece of two others, by the made piece's rank, then by the others'."""
    if sum(len(piece) ** 2 for piece in pieces) > 10**9:
        raise RegardError("its tokens are too long to be words")
    found = [
        (rank, pieces[piece[:cut]][1], pieces[piece[cut:]][1], piece[:cut], piece[cut:])
        for piece, rank in pieces.items()
        for cut in range(1, len(piece))
        if piece[:cut] in pieces and piece[cut:] in pieces
    ]
    return [(left, right) for *_, left, right in sorted(found)]
