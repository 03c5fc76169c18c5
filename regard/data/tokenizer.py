"""The interface of every tokenizer: text to token ids and back, and the special ids around a text.

`regard.data.huggingface_tokenizer` implements it for any `tokenizer.json`, including those that Regard trains, and
`regard.data.opus_tokenizer` for the SentencePiece files of OPUS-MT's Marian models. `regard.data.tokenizer_pair`
combines two tokenizers, of a translator's sources and of its targets.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from regard.errors import RegardError
from regard.formatting import quoted

END, SEPARATOR, MASK, PAD = "</s>", "<sep>", "<mask>", "<pad>"


def check_text(name: str, text: object) -> None:
    """Raise a RegardError unless `text` is a string that UTF-8 can encode; `name` describes it in the message."""
    if not isinstance(text, str):
        raise RegardError(f"{name} has type {type(text).__name__}, but must be a string: {quoted(text)}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise RegardError(
            f"{name} is not valid Unicode (it contains a lone surrogate): check that the input was UTF-8"
        ) from None


class Tokenizer(ABC):
    """Converts text to token ids and back.

    `before` and `after` are the ids that the tokenizer's template puts around a text: </s> after a translator's
    source, [CLS] and [SEP] around BERT's input, <s> before a Llama prompt.
    """

    before: tuple[int, ...]
    after: tuple[int, ...]
    settings: dict[str, Any]
    """Content of `tokenizer_config.json`: the roles of special tokens and other settings of `transformers`."""

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of ids, including <pad>: the model's `vocab_size`."""

    @property
    def languages(self) -> dict[str, int]:
        """The ids of the languages that a multilingual translator reads and writes, by their codes ("fra_Latn")."""
        return {}

    @property
    @abstractmethod
    def digest(self) -> str:
        """A SHA-256 digest of the complete tokenizer, which identifies it in caches."""

    @abstractmethod
    def id_of(self, token: str) -> int:
        """Return the id of a token; raise a RegardError if the vocabulary does not contain it."""

    @abstractmethod
    def encode(self, text: str, parse_special: bool = False) -> list[int]:
        """Return the ids of a text, without the template.

        The text "</s>" encodes as four characters, not as the end token, so untrusted input can neither end a text
        nor imitate the other side of a conversation. With `parse_special`, special tokens written in the text are
        recognised, as in "Paris is in [MASK].".
        """

    @abstractmethod
    def decode(self, ids: Sequence[int], keep_special: bool = False) -> str:
        """Return the text of the ids; special tokens such as </s> appear in it only with `keep_special`."""

    @abstractmethod
    def token(self, id_: int) -> str:
        """Return an id's spelling in the vocabulary, or "<id7>" for an id that has none (a padded vocabulary)."""

    @abstractmethod
    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the text of each id separately, for display."""

    @abstractmethod
    def with_template(self, before: Sequence[int] = (), after: Sequence[int] = ()) -> "Tokenizer":
        """Return the same tokenizer with another template."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the tokenizer's files to a folder, in the layout that `transformers.AutoTokenizer` reads."""

    @property
    def source_side(self) -> "Tokenizer":
        """The tokenizer whose vocabulary a translator's sources have: this one, unless there are two."""
        return self

    @property
    def target_side(self) -> "Tokenizer":
        """The tokenizer whose vocabulary a translator's targets have: this one, unless there are two."""
        return self

    @property
    def is_separate(self) -> bool:
        """Whether source and target have separate vocabularies."""
        return self.source_side is not self.target_side

    def encode_batch(self, texts: Sequence[str]) -> Iterator[list[int]]:
        """Return the ids of many texts."""
        return map(self.encode, texts)

    def encode_words(self, sentences: Sequence[Sequence[str]]) -> Iterator[list[list[int]]]:
        """Return the ids of each word of many sentences. Joined, they are the ids of the words separated by spaces, but
        no token has parts of two words."""
        spaced = [f" {word}" if i else word for words in sentences for i, word in enumerate(words)]
        ids = iter(self.encode_batch(spaced))
        return (list(islice(ids, len(words))) for words in sentences)

    def encode_target(self, text: str) -> list[int]:
        """Return the ids of a translation's target; by default, targets are encoded like any text."""
        return self.encode(text)

    def encode_targets(self, texts: Sequence[str]) -> Iterator[list[int]]:
        """Return the ids of many targets."""
        return map(self.encode_target, texts)

    def encode_with_template(self, text: str, parse_special: bool = False) -> list[int]:
        """Return the ids of a text as its model expects them, with the template around it."""
        return [*self.before, *self.encode(text, parse_special), *self.after]

    def role_id(self, role: str) -> int | None:
        """Return the id of the token that has a role, such as "eos_token"; None if the vocabulary has no such token."""
        token = self.settings.get(role)
        try:
            return self.id_of(token) if isinstance(token, str) else None
        except RegardError:
            return None

    @property
    def end(self) -> int:
        """The id of </s>."""
        return self.id_of(END)

    @property
    def separator(self) -> int:
        """The id of <sep>."""
        return self.id_of(SEPARATOR)

    @property
    def pad(self) -> int:
        """The id of <pad>."""
        return self.id_of(PAD)

    @property
    def mask(self) -> int | None:
        """The id of <mask> or [MASK], which replaces a token that the model must predict; None if there is none."""
        return self.role_id("mask_token")

    @property
    def text_ids(self) -> list[int]:
        """The ids that stand for text, in increasing order: all but the special tokens."""
        return [id_ for id_ in range(self.size) if id_ not in (*self.before, *self.after)]
