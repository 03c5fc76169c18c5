"""Training a tokenizer: byte-level BPE, or one id per character.

The ids of a trained tokenizer have a fixed order: `</s>` (0) ends every text, `<sep>` (1) separates a source from its
target in a decoder-only translator, `<mask>` (2) replaces tokens in a masked language model, if it is asked for, then
the pieces follow, padded with unused ids to a multiple of 64, and `<pad>` is last. The model never predicts `<pad>`;
targets start with it.
"""

from collections.abc import Iterable
from typing import Literal

from tokenizers import AddedToken, decoders, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as Engine

from regard.config import check_type, require_at_least, require_at_most
from regard.data.huggingface_tokenizer import HuggingFaceTokenizer
from regard.data.tokenizer import END, MASK, PAD, SEPARATOR
from regard.data.untrusted_tokenizer import MAX_PIECE
from regard.errors import RegardError
from regard.rounding import round_up

TokenizerKind = Literal["bpe", "characters"]

MAX_VOCABULARY = 1_000_000
"""Maximum vocabulary size of a trained tokenizer; the library reserves memory for all ids at once."""
VOCABULARY_MULTIPLE = 64
"""The vocabulary, without <pad>, is padded to a multiple of this, which matrix products run fastest with."""


def train_tokenizer(
    texts: Iterable[str], vocab_size: int, kind: TokenizerKind = "bpe", mask: bool = False
) -> HuggingFaceTokenizer:
    """Train a tokenizer on texts.

    `vocab_size` is rounded up to a multiple of 64 and does not count <pad>; little text gives a smaller vocabulary.
    The same texts in the same order give the same tokenizer. Characters that the texts do not contain are encoded
    as their bytes, so any text can be encoded without loss. `mask` adds the <mask> token of masked language models.
    """
    check_type("kind", kind, TokenizerKind)
    if isinstance(texts, str):
        raise RegardError("texts must be a sequence of strings, but is a single string: write [text]")
    require_at_least(1, vocab_size=vocab_size)
    require_at_most({"vocab_size": MAX_VOCABULARY}, {"vocab_size": vocab_size})
    size = round_up(vocab_size, VOCABULARY_MULTIPLE)
    # In BPE a space belongs to the word after it, so a <mask> in place of a word replaces the space before it too.
    special = [AddedToken(name, special=True) for name in (END, SEPARATOR)]
    special += [AddedToken(MASK, special=True, lstrip=kind == "bpe")] if mask else []
    engine = _train_bpe(texts, size, special) if kind == "bpe" else _train_characters(texts, size, special)
    unused = -engine.get_vocab_size() % VOCABULARY_MULTIPLE
    engine.add_special_tokens([AddedToken(f"<unused{i}>", special=True) for i in range(unused)])
    engine.add_special_tokens([AddedToken(PAD, special=True)])
    return HuggingFaceTokenizer(engine)


def _train_bpe(texts: Iterable[str], size: int, special: list[AddedToken]) -> Engine:
    """Train byte-level BPE: the 256 bytes are pieces, so any text can be encoded."""
    min_size = 256 + len(special)
    if size < min_size:
        raise RegardError(f"byte-level BPE needs at least {min_size} ids, for bytes and special tokens: {size} given")
    engine = Engine(models.BPE())
    # A line feed ends a piece, so that a text gives the same ids as its lines encoded one by one.
    lines = pre_tokenizers.Split("\n", "merged_with_previous")
    engine.pre_tokenizer = pre_tokenizers.Sequence([lines, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    engine.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=special,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        max_token_length=MAX_PIECE,  # a tokenizer with a longer piece could not be loaded again
        show_progress=False,
    )
    engine.train_from_iterator(texts, trainer)
    return engine


def _train_characters(texts: Iterable[str], size: int, special: list[AddedToken]) -> Engine:
    """Give each character of the texts an id, in code point order, and each byte one, for all other characters."""
    characters = sorted({character for text in texts for character in text})
    pieces = [*(token.content for token in special), *(f"<0x{byte:02X}>" for byte in range(256)), *characters]
    if len(pieces) > size:
        raise RegardError(
            f"{size} ids are too few for {len(characters)} characters, 256 bytes and {len(special)} special tokens: "
            f"set vocab_size to at least {len(pieces)}"
        )
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    engine = Engine(models.BPE(vocab=vocabulary, merges=[], byte_fallback=True))
    engine.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    engine.add_special_tokens(special)
    return engine
