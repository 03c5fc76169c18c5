"""The tokenizer of a `tokenizer.json`, run by Hugging Face's `tokenizers` library."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Engine
from tokenizers import processors

from regard.data.token_bytes import REPLACEMENT_CHARACTER, visible_token
from regard.data.tokenizer import END, MASK, PAD, SEPARATOR, Tokenizer
from regard.data.untrusted_tokenizer import check_tokenizer
from regard.errors import RegardError
from regard.formatting import shorten
from regard.untrusted_files import is_regular_file, parse_json, read_file, read_json

MAX_TOKENIZER_BYTES = 48_000_000
"""Maximum size of a `tokenizer.json`; the largest in use, with 262,000 ids, has 33 million bytes."""
MAX_TOKENIZER_VALUES = 3_000_000
"""Maximum number of values in a `tokenizer.json`; the largest in use has 2 million."""
MAX_CHAT_TEMPLATE_BYTES = 1_000_000
"""Maximum size of a chat template."""
HUGGINGFACE_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
)
"""Files of a tokenizer's folder; Regard reads all of them and writes the first two."""
TOKEN_ROLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
COMMON_TOKEN_NAMES = {
    "bos_token": ("<s>", "<|begin_of_text|>", "<|endoftext|>"),
    "eos_token": ("</s>", "<|end_of_text|>", "<|endoftext|>"),
    "unk_token": ("[UNK]", "<unk>", "<|endoftext|>"),
    "sep_token": ("[SEP]", SEPARATOR),
    "pad_token": ("[PAD]", PAD),
    "cls_token": ("[CLS]",),
    "mask_token": ("[MASK]", MASK),
}
"""Names that special tokens have in most vocabularies, used where a folder does not assign the roles."""
LANGUAGE_CODE = re.compile(r"([a-z]{2,3}_(?:[A-Z]{2}|[A-Z][a-z]{3}))|__([a-z]{2,3})__")
PLAIN_SETTINGS = ("clean_up_tokenization_spaces", "split_special_tokens", "model_max_length", "chat_template")
"""Settings of a `tokenizer_config.json` that are kept as they are."""


@contextmanager
def panics_as_errors() -> Iterator[None]:
    """Turn a panic of the Rust library, which is not an Exception, into a RegardError.

    A pattern in an untrusted tokenizer.json can cause one.
    """
    try:
        yield
    except BaseException as error:
        if isinstance(error, Exception | KeyboardInterrupt | SystemExit | GeneratorExit):
            raise
        raise RegardError(shorten(f"the tokenizer failed on this text: {error}")) from None


class HuggingFaceTokenizer(Tokenizer):
    """A tokenizer of the `tokenizers` library: one that Regard trained, or any other `tokenizer.json`."""

    def __init__(self, engine: Engine, settings: Mapping[str, Any] | None = None) -> None:
        engine.encode_special_tokens = True  # "</s>" in a text is text: see `Tokenizer.encode`
        engine.no_truncation()
        engine.no_padding()
        self.engine = engine
        self.settings = self._default_settings() if settings is None else dict(settings)
        self.before, self.after = self._template()

    @classmethod
    def load(cls, folder: Path) -> "HuggingFaceTokenizer":
        """Load and validate a folder's `tokenizer.json`, which need not have been written by Regard."""
        path = folder / "tokenizer.json"
        if not is_regular_file(path):
            raise RegardError(f"{folder} has no tokenizer.json")
        return cls.load_file(path, _read_settings(folder))

    @classmethod
    def load_file(cls, path: Path, settings: dict[str, Any] | None = None) -> "HuggingFaceTokenizer":
        """Load and validate a file in the format of `tokenizer.json`. `settings` assign roles to special tokens; those
        without a token are filled by common names."""
        content = read_file(path, MAX_TOKENIZER_BYTES)
        settings = {"tokenizer_class": "PreTrainedTokenizerFast"} if settings is None else settings
        check_tokenizer(parse_json(content, path, MAX_TOKENIZER_VALUES), content, path)
        try:
            engine = Engine.from_buffer(content)
            return cls(engine, settings | (common_roles(engine) | settings))
        except BaseException as error:  # the library raises plain Exceptions, and panics that are not Exceptions
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            raise RegardError(shorten(f"{path} is not a valid tokenizer: {error}")) from error

    @cached_property
    def size(self) -> int:
        """The number of ids, including <pad>: one more than the largest, because some vocabularies have gaps."""
        return max(self.engine.get_vocab().values(), default=-1) + 1

    @cached_property
    def languages(self) -> dict[str, int]:
        """The ids of special tokens that are language codes: fra_Latn (NLLB), fr_XX (mBART) or __fr__ (M2M100: fr)."""
        added = self.engine.get_added_tokens_decoder()
        codes = {id_: LANGUAGE_CODE.fullmatch(str(token.content)) for id_, token in added.items() if token.special}
        return {code[1] or code[2]: int(id_) for id_, code in sorted(codes.items()) if code}

    @property
    def digest(self) -> str:
        """The SHA-256 digest of the tokenizer's JSON."""
        return hashlib.sha256(self.engine.to_str().encode()).hexdigest()

    def id_of(self, token: str) -> int:
        """Return the id of a token; raise a RegardError if the vocabulary does not contain it."""
        id_ = self.engine.token_to_id(token)
        if id_ is None:
            raise RegardError(f"this tokenizer has no {token} token: it was not trained by Regard")
        return int(id_)

    @property
    def text_ids(self) -> list[int]:
        """The ids that stand for text, in increasing order: all but the special tokens."""
        added = self.engine.get_added_tokens_decoder()
        special = {id_ for id_, token in added.items() if token.special}
        return sorted(set(self.engine.get_vocab().values()) - special)

    def encode(self, text: str, parse_special: bool = False) -> list[int]:
        """Return the ids of a text; see `Tokenizer.encode`."""
        with panics_as_errors():
            engine = self._special_parsing_engine if parse_special else self.engine
            return list(engine.encode(text, add_special_tokens=False).ids)

    def encode_batch(self, texts: Sequence[str]) -> Iterator[list[int]]:
        """Return the ids of many texts, encoded on all cores."""
        with panics_as_errors():
            encodings = self.engine.encode_batch_fast(list(texts), add_special_tokens=False)
        return (encoding.ids for encoding in encodings)

    @property
    def mask(self) -> int | None:
        """The id of <mask> or [MASK]; None unless it is an added token, which can be recognised in a text."""
        id_ = super().mask
        return id_ if id_ in self.engine.get_added_tokens_decoder() else None

    def encode_targets(self, texts: Sequence[str]) -> Iterator[list[int]]:
        """Return the ids of many targets, which are encoded like sources."""
        return self.encode_batch(texts)

    def decode(self, ids: Sequence[int], keep_special: bool = False) -> str:
        """Return the text of the ids; special tokens such as </s> appear in it only with `keep_special`."""
        with panics_as_errors():
            return str(self.engine.decode(list(ids), skip_special_tokens=not keep_special))

    def token(self, id_: int) -> str:
        """Return an id's spelling in the vocabulary, or "<id7>" for an id that has none."""
        token = self.engine.id_to_token(id_)
        return f"<id{id_}>" if token is None else str(token)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        r"""Return the text of each id separately, for display; a byte of an incomplete character is shown as \xf0."""
        return [self._piece(id_) for id_ in ids]

    def _piece(self, id_: int) -> str:
        text, spelling = self.decode([id_]), self.token(id_)
        if REPLACEMENT_CHARACTER in text and REPLACEMENT_CHARACTER not in spelling:
            return visible_token(text, spelling)
        return text or spelling

    def with_template(self, before: Sequence[int] = (), after: Sequence[int] = ()) -> "HuggingFaceTokenizer":
        """Return the same tokenizer with another template."""
        engine = Engine.from_str(self.engine.to_str())
        tokens = {int(id_): str(engine.id_to_token(id_)) for id_ in (*before, *after)}
        engine.post_processor = processors.TemplateProcessing(
            single=[*(tokens[id_] for id_ in before), "$A", *(tokens[id_] for id_ in after)],
            pair=None,
            special_tokens=[(token, id_) for id_, token in tokens.items()],
        )
        return HuggingFaceTokenizer(engine, self.settings)

    def save(self, folder: Path) -> None:
        """Write `tokenizer.json` and `tokenizer_config.json`, which `transformers.AutoTokenizer` reads too."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tokenizer.json").write_text(self.engine.to_str(), encoding="utf-8")
        (folder / "tokenizer_config.json").write_text(json.dumps(self.settings, indent=2) + "\n", encoding="utf-8")

    @cached_property
    def _special_parsing_engine(self) -> Engine:
        """A copy of the engine that recognises special tokens in a text."""
        engine = Engine.from_str(self.engine.to_str())
        engine.encode_special_tokens = False
        return engine

    def _default_settings(self) -> dict[str, Any]:
        roles = {"eos_token": END, "sep_token": SEPARATOR, "mask_token": MASK, "pad_token": PAD}
        has_mask = self.engine.token_to_id(MASK) is not None
        return {
            "tokenizer_class": "PreTrainedTokenizerFast",
            **{role: token for role, token in roles.items() if self.engine.token_to_id(token) is not None},
            "clean_up_tokenization_spaces": False,
            "split_special_tokens": not has_mask,  # a mask is written into the text
        }

    def _template(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the special ids that the engine adds before and after a text."""
        encoding = self.engine.encode("a", add_special_tokens=True)
        text = [i for i, special in enumerate(encoding.special_tokens_mask) if not special]
        if not text:  # the vocabulary cannot spell "a"
            return (), ()
        return tuple(encoding.ids[: text[0]]), tuple(encoding.ids[text[-1] + 1 :])


def common_roles(engine: Engine) -> dict[str, str]:
    """Return the special tokens that have a role by their common names, as "pad_token": "<pad>"."""
    special = {str(token.content) for token in engine.get_added_tokens_decoder().values() if token.special}
    matches = {role: [name for name in names if name in special] for role, names in COMMON_TOKEN_NAMES.items()}
    return {role: names[0] for role, names in matches.items() if names}


def _read_settings(folder: Path) -> dict[str, Any]:
    """Read token roles and plain settings from `tokenizer_config.json` and the files that older versions put next to
    it; never anything that names code to run."""
    roles: dict[str, str] = {}
    settings: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        settings = read_json(folder / name) if is_regular_file(folder / name) else {}
        roles |= _token_roles(settings, folder / name)
    plain = {name: settings[name] for name in PLAIN_SETTINGS if name in settings}
    template = folder / "chat_template.jinja"
    if is_regular_file(template):
        plain["chat_template"] = read_file(template, MAX_CHAT_TEMPLATE_BYTES).decode(errors="replace")
    return {"tokenizer_class": "PreTrainedTokenizerFast", **roles, **plain}


def _token_roles(settings: dict[str, Any], path: Path) -> dict[str, str]:
    """Return the text of each token that a file assigns a role."""
    tokens: dict[str, str] = {}
    for role, token in ((role, settings[role]) for role in TOKEN_ROLES if settings.get(role)):
        text = token.get("content") if isinstance(token, dict) else token
        if not isinstance(text, str):
            raise RegardError(f"{path}: {role} must be a string")
        tokens[role] = text
    return tokens
