"""The tokenizers of a translator whose source and target have separate vocabularies."""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from regard.config import ModelConfig
from regard.data.huggingface_tokenizer import HUGGINGFACE_TOKENIZER_FILES, HuggingFaceTokenizer
from regard.data.tokenizer import Tokenizer
from regard.errors import RegardError

TARGET_TOKENIZER_FOLDER = "target_tokenizer"
"""Folder of the target's tokenizer within a model's folder, which has the source's. `transformers` reads it with
`AutoTokenizer.from_pretrained(FOLDER, subfolder="target_tokenizer")`."""
TARGET_TOKENIZER_FILES = tuple(f"{TARGET_TOKENIZER_FOLDER}/{name}" for name in HUGGINGFACE_TOKENIZER_FILES)


class TokenizerPair(Tokenizer):
    """Encodes sources with one tokenizer; encodes and decodes targets with another.

    Ids that are encoded or framed are the source's; ids that are decoded, spelled or looked up are the target's, as are
    those of a model's `SpecialIds`.
    """

    def __init__(self, source: Tokenizer, target: Tokenizer) -> None:
        self.source, self.target = source, target
        self.before, self.after = source.before, source.after
        self.settings = source.settings

    @classmethod
    def load(cls, folder: Path) -> "TokenizerPair":
        """Load and validate both tokenizers of a folder."""
        return cls(HuggingFaceTokenizer.load(folder), HuggingFaceTokenizer.load(folder / TARGET_TOKENIZER_FOLDER))

    @property
    def source_side(self) -> Tokenizer:
        """The tokenizer of sources."""
        return self.source

    @property
    def target_side(self) -> Tokenizer:
        """The tokenizer of targets."""
        return self.target

    @property
    def size(self) -> int:
        """The number of source ids: the model's `vocab_size`. `target_side.size` is its `target_vocab_size`."""
        return self.source.size

    @property
    def digest(self) -> str:
        """A SHA-256 digest of both tokenizers."""
        return hashlib.sha256(f"{self.source.digest} {self.target.digest}".encode()).hexdigest()

    def id_of(self, token: str) -> int:
        """Return the id of a target token; raise a RegardError if the target's vocabulary does not contain it."""
        return self.target.id_of(token)

    def role_id(self, role: str) -> int | None:
        """Return the id of the target token that has a role; None if the target's vocabulary has no such token."""
        return self.target.role_id(role)

    def encode(self, text: str, parse_special: bool = False) -> list[int]:
        """Return the ids of a source; see `Tokenizer.encode`."""
        return self.source.encode(text, parse_special)

    def encode_batch(self, texts: Sequence[str]) -> Iterator[list[int]]:
        """Return the ids of many sources."""
        return self.source.encode_batch(texts)

    def encode_target(self, text: str) -> list[int]:
        """Return the ids of a target, without the template."""
        return self.target.encode_target(text)

    def encode_targets(self, texts: Sequence[str]) -> Iterator[list[int]]:
        """Return the ids of many targets."""
        return self.target.encode_targets(texts)

    def decode(self, ids: Sequence[int], keep_special: bool = False) -> str:
        """Return the text of target ids; special tokens such as </s> appear in it only with `keep_special`."""
        return self.target.decode(ids, keep_special)

    def token(self, id_: int) -> str:
        """Return the spelling of a target id, or "<id7>" for an id that has none."""
        return self.target.token(id_)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the text of each target id separately, for display."""
        return self.target.pieces(ids)

    def with_template(self, before: Sequence[int] = (), after: Sequence[int] = ()) -> "TokenizerPair":
        """Return the same tokenizers with another template around sources."""
        return TokenizerPair(self.source.with_template(before, after), self.target)

    def save(self, folder: Path) -> None:
        """Write the source's tokenizer to a folder and the target's to its folder `target_tokenizer`."""
        self.source.save(folder)
        self.target.save(folder / TARGET_TOKENIZER_FOLDER)


def check_vocabularies(config: ModelConfig, tokenizer: Tokenizer | None) -> None:
    """Raise a RegardError unless model and tokenizer agree on whether source and target have separate vocabularies."""
    if tokenizer is None or tokenizer.is_separate == (config.target_vocab_size is not None):
        return
    if tokenizer.is_separate:
        raise RegardError("source and target have their own tokenizers, but the model has only one vocabulary for both")
    raise RegardError(
        f"the model has separate vocabularies for source and target (target_vocab_size={config.target_vocab_size}), "
        f"but only one tokenizer: the target's ({TARGET_TOKENIZER_FILES[0]}) is missing"
    )
