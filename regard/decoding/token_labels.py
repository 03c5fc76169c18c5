"""Tokens as labels for people: spaces trimmed, invisible characters shown, continuations of a word marked by a dot."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from regard.data.token_bytes import BYTE_LABEL, CONTINUATION_BYTE_LABEL, REPLACEMENT_CHARACTER
from regard.data.tokenizer import Tokenizer


def readable(piece: str) -> str:
    r"""A piece of text as a label: without surrounding spaces, and with invisible characters made visible.

    >>> [readable(piece) for piece in (" chat", " ", "\n", "a\x1b[2J")]
    ['chat', '␣', '⏎', 'a\\x1b[2J']
    """
    shown = piece.replace("▁", " ").strip(" ") or "␣" * len(piece)
    return "".join(c if c.isprintable() else "⏎" if c == "\n" else repr(c)[1:-1] for c in shown)


def in_one_word(tokenizer: Tokenizer, before: int, id_: int) -> bool:
    """Whether two tokens are parts of one word, or of one character: decoded together, nothing comes between them."""
    left, right = tokenizer.decode([before]), tokenizer.decode([id_])
    if left.endswith(REPLACEMENT_CHARACTER) and right.startswith(REPLACEMENT_CHARACTER):
        return CONTINUATION_BYTE_LABEL.match(tokenizer.pieces([id_])[0]) is not None
    are_letters = left[-1:].isalnum() and right[:1].isalnum()
    return are_letters and tokenizer.decode([before, id_]) == left + right


def token_labels(tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[str, ...]:
    """The label of each id, with a dot before one that continues a word; no dots if all tokens are characters."""
    pieces = tokenizer.pieces(ids)
    characters = not any(map(_is_long, pieces))
    continues = [False, *(not characters and in_one_word(tokenizer, *pair) for pair in pairwise(ids))]
    return tuple(
        f"·{readable(piece)}" if dot else readable(piece)
        for dot, piece in zip(continues, pieces, strict=False)  # without ids there are no pieces
    )


def word_numbers(tokenizer: Tokenizer, ids: Sequence[int]) -> list[int]:
    """The number of the word that each id belongs to: 0, 1, 1, 2 … A special token is a word of its own."""
    starts = [0, *(0 if in_one_word(tokenizer, *pair) else 1 for pair in pairwise(ids))]
    return list(accumulate(starts))[: len(ids)]


@dataclass(frozen=True)
class TokenLabels:
    """Labels of tokens that might follow a text, in the style of `token_labels`."""

    tokenizer: Tokenizer
    dots: bool

    @classmethod
    def of(cls, tokenizer: Tokenizer, ids: Sequence[int]) -> "TokenLabels":
        """Labels next to those of these ids: without dots if all of these are single characters."""
        return cls(tokenizer, any(map(_is_long, tokenizer.pieces(ids))))

    def __call__(self, id_: int, before: int | None = None) -> str:
        """The label of an id that follows another."""
        dot = self.dots and before is not None and in_one_word(self.tokenizer, before, id_)
        label = readable(self.tokenizer.pieces([id_])[0])
        return f"·{label}" if dot else label

    def among(self, ids: Sequence[int], *before: int) -> list[str]:
        """The labels of alternatives for one position: of two equal ones, a mark distinguishes the unusual one.

        After other text that is the one without a space, which has a dot. At the start of a text it is the one that the
        tokenizer would not use there, usually that with a space, which is shown.
        """
        labels = [self(id_, *before) for id_ in ids]
        pieces = self.tokenizer.pieces(ids)
        is_start = not self.tokenizer.decode(before)
        named = zip(labels, pieces, ids, strict=True)
        return [
            f"{self._mark(id_, piece, is_start)}{label}" if labels.count(label) > 1 else label
            for label, piece, id_ in named
        ]

    def _mark(self, id_: int, piece: str, is_start: bool) -> str:
        has_space = piece.startswith((" ", "▁", "·"))
        if not is_start:
            return "" if has_space else "·"
        if self.tokenizer.encode(piece.strip(" ▁"))[:1] == [id_]:
            return ""
        return "␣" if has_space else "·"


def _is_long(piece: str) -> bool:
    """Whether a piece has more than one character, or byte of a character."""
    return len(piece.strip()) > 1 and not BYTE_LABEL.fullmatch(piece.strip())
