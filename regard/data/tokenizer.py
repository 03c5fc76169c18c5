"""Text to ids and back, exactly: byte-level BPE, or characters.

In the tokenizers trained here ids stand in this order: `</s>` (0) ends every text, `<sep>` (1) parts a source from its
target in a decoder-only translator, then the pieces, filled up with unused ids to a multiple of 64, and `<pad>` last.
The model has no output for `<pad>`, and starts every target with it.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Engine

from regard.config import check_type, require_at_least, require_at_most
from regard.data.untrusted_tokenizer import MAX_PIECE, check_tokenizer
from regard.errors import RegardError
from regard.formatting import quoted, shorten
from regard.untrusted_files import is_there, parse_json, read_file, read_json

END, SEPARATOR, PAD = "</s>", "<sep>", "<pad>"

Kind = Literal["bpe", "characters"]

MAX_BYTES, MAX_VALUES = 48_000_000, 3_000_000
"""of a `tokenizer.json`: one of 262,000 ids, the largest in use, takes 33 million and 2 million"""


MAX_VOCABULARY = 1_000_000
"""Most ids that a tokenizer is trained for; the library reserves memory for all of them."""


@contextmanager
def panics_as_errors() -> Iterator[None]:
    """Turn a panic of the library, which is no Exception, into a ValueError: a stranger's pattern may cause it."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, Exception | KeyboardInterrupt | SystemExit | GeneratorExit):
            raise
        raise RegardError(shorten(f"the tokenizer failed on this text: {error}")) from None


def check_text(what: str, text: object) -> None:
    """Raise a ValueError unless this is a text, and one that UTF-8 can encode."""
    if not isinstance(text, str):
        raise RegardError(f"{what} is a {type(text).__name__}, and must be a text: {quoted(text)}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise RegardError(f"{what} is not valid Unicode (it has a lone surrogate): were its bytes UTF-8?") from None


class Tokenizer:
    """Text to ids and back by the library `tokenizers`, and the special ids that frame a text.

    `before` and `after` are the ids that its own template puts around a text: </s> behind a translator's source,
    [CLS] and [SEP] around what BERT reads, <s> before a Llama's prompt.
    """

    def __init__(self, engine: Engine, settings: Mapping[str, Any] | None = None) -> None:
        engine.encode_special_tokens = True  # see `encode`
        engine.no_truncation()
        engine.no_padding()
        self.engine = engine
        self.settings = self._own_settings() if settings is None else dict(settings)
        self.before, self.after = self._template()

    @classmethod
    def train(cls, texts: Iterable[str], vocab_size: int, kind: Kind = "bpe") -> "Tokenizer":
        """Learn at most `vocab_size` ids, rounded up to a multiple of 64, <pad> not counted; a small text gives fewer.

        The same texts in the same order give the same tokenizer. Characters that training did not see are written as
        their bytes, so that no text is lost.
        """
        check_type("kind", kind, Kind)
        if isinstance(texts, str):
            raise RegardError("texts must be many strings, and this is one: each of its letters would be a text")
        require_at_least(1, vocab_size=vocab_size)
        require_at_most({"vocab_size": MAX_VOCABULARY}, {"vocab_size": vocab_size})
        wanted = -(-vocab_size // 64) * 64
        engine = _train_bpe(texts, wanted) if kind == "bpe" else _train_characters(texts, wanted)
        unused = -engine.get_vocab_size() % 64
        engine.add_special_tokens([AddedToken(f"<unused{i}>", special=True) for i in range(unused)])
        engine.add_special_tokens([AddedToken(PAD, special=True)])
        return cls(engine)

    @property
    def end(self) -> int:
        """The id of </s>."""
        return self._id_of(END)

    @property
    def separator(self) -> int:
        """The id of <sep>."""
        return self._id_of(SEPARATOR)

    @property
    def pad(self) -> int:
        """The id of <pad>."""
        return self._id_of(PAD)

    @property
    def size(self) -> int:
        """Number of ids, <pad> included."""
        return int(self.engine.get_vocab_size())

    @property
    def digest(self) -> str:
        """SHA-256 of all that it is."""
        return hashlib.sha256(self.engine.to_str().encode()).hexdigest()

    def encode(self, text: str, special: bool = False) -> list[int]:
        """The ids of a text, without special ones.

        A text that says "</s>" means those four characters: what a stranger writes cannot end a text or pretend to be
        another's turn. With `special` it means the token, as a caller who writes "Paris is in [MASK]." wants it.
        """
        with panics_as_errors():
            engine = self._steered if special else self.engine
            return list(engine.encode(text, add_special_tokens=False).ids)

    def encode_target(self, text: str) -> list[int]:
        """The ids of a target, to score it or to learn from it: those of any text, where both sides are read alike."""
        return self.encode(text)

    def encode_batch(self, texts: Sequence[str]) -> Iterator[list[int]]:
        """The ids of many texts at once, on all cores."""
        with panics_as_errors():
            encoded = self.engine.encode_batch_fast(list(texts), add_special_tokens=False)
        return (each.ids for each in encoded)

    def encode_targets(self, texts: Sequence[str]) -> Iterator[list[int]]:
        """The ids of many targets at once."""
        return self.encode_batch(texts)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the ids; special ones say nothing."""
        with panics_as_errors():
            return str(self.engine.decode(list(ids), skip_special_tokens=True))

    def framed(self, text: str, special: bool = False) -> list[int]:
        """The ids of a text as its model reads it: within the template; `special` is that of `encode`."""
        return [*self.before, *self.encode(text, special), *self.after]

    def frame(self, before: Sequence[int] = (), after: Sequence[int] = ()) -> "Tokenizer":
        """The same tokenizer with another template."""
        engine = Engine.from_str(self.engine.to_str())
        around = {int(id_): str(engine.id_to_token(id_)) for id_ in (*before, *after)}
        engine.post_processor = processors.TemplateProcessing(
            single=[*(around[id_] for id_ in before), "$A", *(around[id_] for id_ in after)],
            pair=None,
            special_tokens=[(token, id_) for id_, token in around.items()],
        )
        return Tokenizer(engine, self.settings)

    def token(self, id_: int) -> str:
        """How the vocabulary spells an id; an id without a token, which a padded vocabulary may have, by its number."""
        token = self.engine.id_to_token(id_)
        return f"<id{id_}>" if token is None else str(token)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Each id's own text, for people to look at; a piece of a character shows as �."""
        return [self.decode([id_]) or self.token(id_) for id_ in ids]

    def save(self, folder: Path) -> None:
        """`tokenizer.json` and `tokenizer_config.json`, which `transformers.AutoTokenizer` reads too."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tokenizer.json").write_text(self.engine.to_str(), encoding="utf-8")
        (folder / "tokenizer_config.json").write_text(json.dumps(self.settings, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> "Tokenizer":
        """The tokenizer of a folder's `tokenizer.json`, whoever wrote it."""
        path = folder / "tokenizer.json"
        if not is_there(path):
            raise RegardError(f"{folder} has no tokenizer.json")
        content, settings = read_file(path, MAX_BYTES), _settings_of(folder)
        check_tokenizer(parse_json(content, path, MAX_VALUES), content, path)
        try:
            engine = Engine.from_buffer(content)
            return cls(engine, settings | (usual_roles(engine) | settings))
        except BaseException as error:  # the library raises nothing narrower, and panics beside Exception
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            raise RegardError(shorten(f"{path} is no tokenizer: {error}")) from error

    @cached_property
    def _steered(self) -> Engine:
        """The engine that takes special tokens in a text for what they are."""
        engine = Engine.from_str(self.engine.to_str())
        engine.encode_special_tokens = False
        return engine

    def _own_settings(self) -> dict[str, Any]:
        roles = {"eos_token": END, "sep_token": SEPARATOR, "pad_token": PAD}
        return {
            "tokenizer_class": "PreTrainedTokenizerFast",
            **{role: token for role, token in roles.items() if self.engine.token_to_id(token) is not None},
            "clean_up_tokenization_spaces": False,
            "split_special_tokens": True,
        }

    def _template(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """What stands before and behind a text when the engine adds its special ids."""
        whole = self.engine.encode("a", add_special_tokens=True)
        text = [i for i, special in enumerate(whole.special_tokens_mask) if not special]
        if not text:  # a vocabulary that cannot spell it
            return (), ()
        return tuple(whole.ids[: text[0]]), tuple(whole.ids[text[-1] + 1 :])

    def _id_of(self, token: str) -> int:
        id_ = self.engine.token_to_id(token)
        if id_ is None:
            raise RegardError(f"this tokenizer has no {token}: it was not trained by Regard")
        return int(id_)


ROLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
USUAL = {
    "bos_token": ("<s>", "<|begin_of_text|>", "<|endoftext|>"),
    "eos_token": ("</s>", "<|end_of_text|>", "<|endoftext|>"),
    "unk_token": ("[UNK]", "<unk>", "<|endoftext|>"),
    "sep_token": ("[SEP]", SEPARATOR),
    "pad_token": ("[PAD]", PAD),
    "cls_token": ("[CLS]",),
    "mask_token": ("[MASK]", "<mask>"),
}
"""what tokens are called in most vocabularies, for folders that do not say which is which"""
FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")
"""what a tokenizer's folder may hold; the last two only where others wrote it"""
SETTINGS = ("clean_up_tokenization_spaces", "split_special_tokens", "model_max_length", "chat_template")
MAX_TEMPLATE = 1_000_000
"""bytes of a chat template"""


def usual_roles(engine: Engine) -> dict[str, str]:
    """The roles that special tokens of the vocabulary have by their usual names."""
    special = {str(token.content) for token in engine.get_added_tokens_decoder().values() if token.special}
    named = {role: [name for name in names if name in special] for role, names in USUAL.items()}
    return {role: names[0] for role, names in named.items() if names}


def _settings_of(folder: Path) -> dict[str, Any]:
    """What is kept of a `tokenizer_config.json` and the files that stood beside it at other times: names of tokens and
    plain settings, never code to be fetched."""
    tokens: dict[str, str] = {}
    told: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        told = read_json(folder / name) if is_there(folder / name) else {}
        tokens |= _roles(told, folder / name)
    plain = {name: told[name] for name in SETTINGS if name in told}
    template = folder / "chat_template.jinja"
    if is_there(template):
        plain["chat_template"] = read_file(template, MAX_TEMPLATE).decode(errors="replace")
    return {"tokenizer_class": "PreTrainedTokenizerFast", **tokens, **plain}


def _roles(told: dict[str, Any], path: Path) -> dict[str, str]:
    """The tokens that a file gives a role, each by its text."""
    tokens: dict[str, str] = {}
    for role, token in ((role, told[role]) for role in ROLES if told.get(role)):
        text = token.get("content") if isinstance(token, dict) else token
        if not isinstance(text, str):
            raise RegardError(f"{path}: its {role} is no text")
        tokens[role] = text
    return tokens


def _train_bpe(texts: Iterable[str], size: int) -> Engine:
    """Byte-level BPE: the 256 bytes are pieces, so that any text can be written."""
    least = 256 + 2
    if size < least:
        raise RegardError(f"byte-level BPE needs {least} ids for bytes and special tokens, and {size} are too few")
    engine = Engine(models.BPE())
    # A line feed ends a piece, so that a text gives the same ids whole and line by line.
    lines = pre_tokenizers.Split("\n", "merged_with_previous")
    engine.pre_tokenizer = pre_tokenizers.Sequence([lines, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    engine.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[END, SEPARATOR],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        max_token_length=MAX_PIECE,  # a longer piece would not be read back
        show_progress=False,
    )
    engine.train_from_iterator(texts, trainer)
    return engine


def _train_characters(texts: Iterable[str], size: int) -> Engine:
    """Each character that the texts hold, by code point, and the 256 bytes for any other."""
    characters = sorted({character for text in texts for character in text})
    pieces = [END, SEPARATOR, *(f"<0x{byte:02X}>" for byte in range(256)), *characters]
    if len(pieces) > size:
        raise RegardError(f"{size} ids are too few: {len(characters)} characters, 256 bytes, 2 special tokens")
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    engine = Engine(models.BPE(vocab=vocabulary, merges=[], byte_fallback=True))
    engine.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    engine.add_special_tokens([END, SEPARATOR])
    return engine
