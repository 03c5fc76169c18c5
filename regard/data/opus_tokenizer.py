"""The tokenizer of OPUS-MT's Marian models: two SentencePiece models, and one vocabulary that gives the ids."""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from regard.data.tokenizer import END, PAD, Tokenizer
from regard.data.untrusted_tokenizer import check_charsmap, check_pieces
from regard.errors import RegardError
from regard.untrusted_files import MAX_JSON, is_there, parse_json, read_file

FILES = ("source.spm", "target.spm", "vocab.json")


class OpusTokenizer(Tokenizer):
    """Source text to ids by `source.spm`, ids to target text by `target.spm`; `</s>` stands behind every source."""

    def __init__(self, files: dict[str, bytes]) -> None:
        try:
            from sentencepiece import SentencePieceProcessor
        except ImportError:
            raise RegardError("OPUS-MT's tokenizer needs a package: pip install 'regard[interop]'") from None
        self.files = files
        if not files["source.spm"] or not files["target.spm"]:  # which the package takes for a model yet to come
            raise RegardError("source.spm or target.spm is no SentencePiece model: it is empty")
        for name in ("source.spm", "target.spm"):
            for table in _charsmaps(files[name]):
                check_charsmap(table)
        try:
            self.source: Any = SentencePieceProcessor(model_proto=files["source.spm"])
            self.target: Any = SentencePieceProcessor(model_proto=files["target.spm"])
        except RuntimeError as error:
            raise RegardError(f"source.spm or target.spm is no SentencePiece model: {error}") from None
        self.ids: dict[str, int] = parse_json(files["vocab.json"], Path("vocab.json"))
        check_pieces(self.ids)
        if not all(type(id_) is int and 0 <= id_ < 2**31 for id_ in self.ids.values()):
            raise RegardError("vocab.json must give each piece its id, a number from 0 on")
        for token in (END, "<unk>"):
            if token not in self.ids:
                raise RegardError(f"vocab.json has no {token}")
        self.tokens = {id_: token for token, id_ in self.ids.items()}
        self.before, self.after = (), (self.ids[END],)

    @property
    def size(self) -> int:
        """One more than the largest id."""
        return max(self.tokens) + 1

    @property
    def digest(self) -> str:
        """SHA-256 of its files."""
        return hashlib.sha256(b"".join(hashlib.sha256(self.files[name]).digest() for name in FILES)).hexdigest()

    def encode(self, text: str, special: bool = False) -> list[int]:
        """The ids of a source; a language code in front, as in `>>fra<< A text`, is one token.

        No other special token is found in a text, even for those who ask for them.
        """
        if special:
            raise RegardError(
                "OPUS-MT's tokenizer finds no special tokens in a text: put their ids among those of a text"
            )
        code = re.match(r">>.+?<<", text)
        pieces = [code[0]] if code else []
        pieces += self.source.encode(text[code.end() if code else 0 :], out_type=str)
        return [self.ids.get(piece, self.ids["<unk>"]) for piece in pieces]

    def encode_target(self, text: str) -> list[int]:
        """The ids of a target, to score it or to learn from it, by `target.spm`."""
        return [self.ids.get(piece, self.ids["<unk>"]) for piece in self.target.encode(text, out_type=str)]

    def encode_batch(self, texts: Sequence[str]) -> Iterator[list[int]]:
        """The ids of many sources."""
        return map(self.encode, texts)

    def encode_targets(self, texts: Sequence[str]) -> Iterator[list[int]]:
        """The ids of many targets."""
        return map(self.encode_target, texts)

    def decode(self, ids: Sequence[int]) -> str:
        """The target text of the ids; special ones say nothing."""
        pieces = [self.token(id_) for id_ in ids if self.token(id_) not in (END, PAD, "<unk>")]
        return str(self.target.decode_pieces(pieces)).replace("▁", " ").strip()

    def token(self, id_: int) -> str:
        """How the vocabulary spells an id."""
        return str(self.tokens.get(id_, f"<id{id_}>"))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Each id's own text, for people to look at."""
        return [self.token(id_).replace("▁", " ") for id_ in ids]

    def frame(self, before: Sequence[int] = (), after: Sequence[int] = ()) -> "Tokenizer":  # noqa: ARG002
        """Its template is fixed."""
        raise RegardError("an OPUS-MT tokenizer has the template it has: </s> behind each source")

    def save(self, folder: Path) -> None:
        """Its files as they came, and what `transformers` wants to know."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in self.files.items():
            (folder / name).write_bytes(content)
        told = {"tokenizer_class": "MarianTokenizer", "eos_token": END, "unk_token": "<unk>", "pad_token": PAD}
        (folder / "tokenizer_config.json").write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> "OpusTokenizer":
        """From the three files of a folder."""
        missing = [name for name in FILES if not is_there(folder / name)]
        if missing:
            raise RegardError(f"{folder} lacks {', '.join(missing)} of OPUS-MT's tokenizer")
        files = {name: read_file(folder / name, MAX_JSON) for name in FILES}
        try:
            return cls(files)
        except ValueError as error:
            raise RegardError(f"{folder}: {error}") from None

    def _id_of(self, token: str) -> int:
        if token not in self.ids:
            raise RegardError(f"this tokenizer has no {token}: it is OPUS-MT's")
        return int(self.ids[token])


NORMALIZERS, CHARSMAP = (3, 5), 2
"""Fields of SentencePiece's ModelProto that hold a normalizer, and the field of a normalizer that holds its table."""


def _charsmaps(model: bytes) -> Iterator[bytes]:
    """The tables of normalisation in a SentencePiece model, as far as it can be read."""
    for number, content in _fields(model):
        if number in NORMALIZERS:
            yield from (inner for inner_number, inner in _fields(content) if inner_number == CHARSMAP)


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields of a protobuf message that hold bytes, by their numbers; up to where it is damaged."""
    place = 0
    try:
        while place < len(message):
            key, place = _varint(message, place)
            kind = key & 7
            if kind == 0:
                _, place = _varint(message, place)
            elif kind == 2:
                length, place = _varint(message, place)
                yield key >> 3, message[place : place + length]
                place += length
            elif kind in (1, 5):
                place += 8 if kind == 1 else 4
            else:
                return
    except IndexError:
        return


def _varint(message: bytes, place: int) -> tuple[int, int]:
    """A number of seven bits a byte, and where it ends."""
    number = shift = 0
    while True:
        byte = message[place]
        number |= (byte & 0x7F) << shift
        shift, place = shift + 7, place + 1
        if byte < 0x80:
            return number, place
        if shift > 70:
            raise IndexError
