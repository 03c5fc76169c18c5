"""The tokenizer of OPUS-MT's Marian models: two SentencePiece models, and a vocabulary that maps pieces to ids, or one
for each side."""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from regard.data.tokenizer import END, PAD, Tokenizer
from regard.data.untrusted_tokenizer import check_charsmap, check_pieces
from regard.errors import RegardError
from regard.untrusted_files import MAX_JSON_BYTES, is_regular_file, parse_json, read_file

REQUIRED_FILES = ("source.spm", "target.spm", "vocab.json")
TARGET_VOCABULARY = "target_vocab.json"
"""File of the target's vocabulary, if it is separate; then `vocab.json` is the source's."""
OPUS_TOKENIZER_FILES = (*REQUIRED_FILES, TARGET_VOCABULARY)
UNKNOWN_TOKEN = "<unk>"


class OpusTokenizer(Tokenizer):
    """Encodes sources with `source.spm`, encodes and decodes targets with `target.spm`, and ends sources with </s>."""

    def __init__(self, files: dict[str, bytes]) -> None:
        try:
            from sentencepiece import SentencePieceProcessor
        except ImportError:
            raise RegardError("OPUS-MT tokenizers need sentencepiece: pip install 'regard[interop]'") from None
        self.files = files
        if not files["source.spm"] or not files["target.spm"]:  # sentencepiece accepts an empty model silently
            raise RegardError("source.spm or target.spm is not a SentencePiece model: the file is empty")
        for name in ("source.spm", "target.spm"):
            for table in _charsmaps(files[name]):
                check_charsmap(table)
        try:
            self.source: Any = SentencePieceProcessor(model_proto=files["source.spm"])
            self.target: Any = SentencePieceProcessor(model_proto=files["target.spm"])
        except RuntimeError as error:
            raise RegardError(f"source.spm or target.spm is not a SentencePiece model: {error}") from None
        self.source_ids = _vocabulary(files, "vocab.json")
        self.ids = _vocabulary(files, TARGET_VOCABULARY) if TARGET_VOCABULARY in files else self.source_ids
        """The ids of the target's pieces, which are the source's too unless they are separate."""
        self.tokens = {id_: token for token, id_ in self.ids.items()}
        self.before, self.after = (), (self.source_ids[END],)
        self.settings = {
            "tokenizer_class": "MarianTokenizer",
            "eos_token": END,
            "unk_token": UNKNOWN_TOKEN,
            "pad_token": PAD,
        } | ({"separate_vocabs": True} if TARGET_VOCABULARY in files else {})

    @classmethod
    def load(cls, folder: Path) -> "OpusTokenizer":
        """Load and validate the files of a folder."""
        missing = [name for name in REQUIRED_FILES if not is_regular_file(folder / name)]
        if missing:
            raise RegardError(f"{folder} has no {', '.join(missing)}, which an OPUS-MT tokenizer needs")
        names = [name for name in OPUS_TOKENIZER_FILES if is_regular_file(folder / name)]
        files = {name: read_file(folder / name, MAX_JSON_BYTES) for name in names}
        try:
            return cls(files)
        except RegardError as error:
            raise RegardError(f"{folder}: {error}") from None

    @cached_property
    def source_side(self) -> "OpusTokenizer":
        """A tokenizer with only the source's vocabulary, if the target has its own."""
        return self._one_side("source.spm", "vocab.json") if TARGET_VOCABULARY in self.files else self

    @cached_property
    def target_side(self) -> "OpusTokenizer":
        """A tokenizer with only the target's vocabulary, if it has its own."""
        return self._one_side("target.spm", TARGET_VOCABULARY) if TARGET_VOCABULARY in self.files else self

    def _one_side(self, model: str, vocabulary: str) -> "OpusTokenizer":
        sides = dict.fromkeys(("source.spm", "target.spm"), self.files[model])
        return OpusTokenizer(sides | {"vocab.json": self.files[vocabulary]})

    @property
    def size(self) -> int:
        """One more than the largest id of a source."""
        return max(self.source_ids.values()) + 1

    @property
    def digest(self) -> str:
        """The SHA-256 digest of the files."""
        digests = (hashlib.sha256(self.files[name]).digest() for name in OPUS_TOKENIZER_FILES if name in self.files)
        return hashlib.sha256(b"".join(digests)).hexdigest()

    def id_of(self, token: str) -> int:
        """Return the id of a token; raise a RegardError if the vocabulary does not contain it."""
        if token not in self.ids:
            raise RegardError(f"this OPUS-MT tokenizer has no {token} token")
        return int(self.ids[token])

    def encode(self, text: str, parse_special: bool = False) -> list[int]:
        """Return the ids of a source; a language code at its start, as in `>>fra<< A text`, is one token.

        No other special token is ever recognised in a text, so `parse_special` raises a RegardError.
        """
        if parse_special:
            raise RegardError("an OPUS-MT tokenizer cannot parse special tokens in a text: insert their ids instead")
        code = re.match(r">>.+?<<", text)
        pieces = [code[0]] if code else []
        pieces += self.source.encode(text[code.end() if code else 0 :], out_type=str)
        return [self.source_ids.get(piece, self.source_ids[UNKNOWN_TOKEN]) for piece in pieces]

    def encode_target(self, text: str) -> list[int]:
        """Return the ids of a target, encoded with `target.spm`."""
        return [self.ids.get(piece, self.ids[UNKNOWN_TOKEN]) for piece in self.target.encode(text, out_type=str)]

    def decode(self, ids: Sequence[int], keep_special: bool = False) -> str:
        """Return the target text of the ids; special tokens such as </s> appear in it only with `keep_special`."""
        text, pieces = "", []
        for token in map(self.token, ids):
            if token not in (END, PAD, UNKNOWN_TOKEN):
                pieces.append(token)
            elif keep_special:  # SentencePiece would drop the token
                text += f"{self.target.decode_pieces(pieces)}{token} "
                pieces = []
        return f"{text}{self.target.decode_pieces(pieces)}".replace("▁", " ").strip()

    def token(self, id_: int) -> str:
        """Return an id's spelling in the vocabulary, or "<id7>" for an id that has none."""
        return str(self.tokens.get(id_, f"<id{id_}>"))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the text of each id separately, for display."""
        return [self.token(id_).replace("▁", " ") for id_ in ids]

    def with_template(self, before: Sequence[int] = (), after: Sequence[int] = ()) -> "OpusTokenizer":
        """Return this tokenizer if it has this template already; its template cannot be changed."""
        if (tuple(before), tuple(after)) != (self.before, self.after):
            raise RegardError("the template of an OPUS-MT tokenizer cannot be changed: </s> follows each source")
        return self

    def save(self, folder: Path) -> None:
        """Write the files unchanged, and a `tokenizer_config.json` for `transformers`."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in self.files.items():
            (folder / name).write_bytes(content)
        (folder / "tokenizer_config.json").write_text(json.dumps(self.settings, indent=2) + "\n", encoding="utf-8")


def _vocabulary(files: dict[str, bytes], name: str) -> dict[str, int]:
    """Return the ids of a validated vocabulary."""
    ids: dict[str, int] = parse_json(files[name], Path(name))
    check_pieces(ids)
    if not all(type(id_) is int and 0 <= id_ < 2**31 for id_ in ids.values()):
        raise RegardError(f"{name} must map each piece to its id, a number from 0 on")
    for token in (END, UNKNOWN_TOKEN):
        if token not in ids:
            raise RegardError(f"{name} has no {token}")
    return ids


NORMALIZER_FIELDS, CHARSMAP_FIELD = (3, 5), 2
"""Field numbers of SentencePiece's ModelProto: its two normalizers, and the table within a normalizer."""


def _charsmaps(model: bytes) -> Iterator[bytes]:
    """Yield the normalization tables of a SentencePiece model, as far as the model can be parsed."""
    for number, content in _fields(model):
        if number in NORMALIZER_FIELDS:
            yield from (inner for inner_number, inner in _fields(content) if inner_number == CHARSMAP_FIELD)


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield number and content of each bytes field of a protobuf message, up to the first damaged one."""
    position = 0
    try:
        while position < len(message):
            key, position = _varint(message, position)
            wire_type = key & 7
            if wire_type == 0:
                _, position = _varint(message, position)
            elif wire_type == 2:
                length, position = _varint(message, position)
                yield key >> 3, message[position : position + length]
                position += length
            elif wire_type in (1, 5):
                position += 8 if wire_type == 1 else 4
            else:
                return
    except IndexError:
        return


def _varint(message: bytes, position: int) -> tuple[int, int]:
    """Return a variable-length integer (seven bits per byte) and the position after it."""
    number = shift = 0
    while True:
        byte = message[position]
        number |= (byte & 0x7F) << shift
        shift, position = shift + 7, position + 1
        if byte < 0x80:
            return number, position
        if shift > 70:
            raise IndexError
