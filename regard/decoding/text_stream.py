"""Tokens to text as they are generated: stop strings, and no incomplete characters."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from regard.data.token_bytes import REPLACEMENT_CHARACTER
from regard.decoding.search import StopCheck

Decode = Callable[[list[int]], str]
"""A function from ids to their text."""

MAX_CHARACTER_TOKENS = 4
"""Maximum number of tokens of one character: a character has at most 4 bytes in UTF-8."""


def text_before_stop(text: str, stops: Sequence[str]) -> str:
    """The text before the first of the stop strings.

    >>> text_before_stop("To be.\\n\\nJULIET:", ["\\n\\n", "ROMEO"])
    'To be.'
    """
    positions = [text.find(stop) for stop in stops if stop in text]
    return text[: min(positions)] if positions else text


def make_stop_check(stops: Sequence[str], decode: Decode) -> StopCheck | None:
    """A function that says whether the newest of a text's ids completes a stop string; None without stop strings.

    It decodes only the last ids, so the cost does not grow with the text.
    """
    if not stops:
        return None
    tail = MAX_CHARACTER_TOKENS * max(map(len, stops)) + 8

    def contains_stop(ids: list[int]) -> bool:
        text = decode(ids[-tail:])
        return any(stop in text for stop in stops)

    return contains_stop


def stream_text(ids: Iterable[int], decode: Decode, stops: Sequence[str] = ()) -> Iterator[str]:
    """The text of the ids in pieces, each as soon as it is certain; joined, the pieces are the whole text.

    Incomplete characters are held back, as is text that may become a stop string. At a stop string the text ends, and
    no more ids are consumed.
    """
    streamer = TextStreamer(decode, stops)
    for id_ in ids:
        if piece := streamer.add(id_):
            yield piece
        if streamer.stopped:
            return
    if rest := streamer.finish():
        yield rest


class TextStreamer:
    """`stream_text` for ids that are pushed one by one: `add` returns the text that each makes certain."""

    def __init__(self, decode: Decode, stops: Sequence[str] = ()) -> None:
        self.characters, self.stops = CharacterStreamer(decode), stops
        self.held = ""
        """Text that may still become a stop string."""
        self.stopped = False
        """Whether a stop string has been reached; no text follows it."""

    def add(self, id_: int) -> str:
        """The text that is certain now that this id has been added."""
        return self._release(self.characters.add(id_))

    def finish(self) -> str:
        """The remaining text, when no more ids follow."""
        text = self._release(self.characters.finish())
        rest, self.held = self.held, ""
        return text + rest

    def _release(self, piece: str) -> str:
        if self.stopped:
            return ""
        self.held += piece
        if piece and any(stop in self.held for stop in self.stops):
            self.stopped = True
            text, self.held = text_before_stop(self.held, self.stops), ""
            return text
        certain = len(self.held) - _possible_stop_length(self.held, self.stops)
        text, self.held = self.held[:certain], self.held[certain:]
        return text


class CharacterStreamer:
    """Ids to complete characters, one id at a time.

    Only the ids since the piece before last are decoded each time: they give the context that some tokenizers need
    (those that drop the first space of a text), and the cost stays linear.
    """

    def __init__(self, decode: Decode) -> None:
        self.decode = decode
        self.window: list[int] = []
        self.context, self.known = 0, ""  # number of ids in the window whose text is known, and that text

    def add(self, id_: int) -> str:
        """The text that this id adds; empty while a character is incomplete."""
        self.window.append(id_)
        text = self.decode(self.window)
        if len(text) <= len(self.known) or text.endswith(REPLACEMENT_CHARACTER):
            return ""
        piece = text[len(self.known) :]
        self.window = self.window[self.context :]
        self.context, self.known = len(self.window), self.decode(self.window)
        return piece

    def finish(self) -> str:
        """The text that was held back."""
        return self.decode(self.window)[len(self.known) :]


def _possible_stop_length(text: str, stops: Sequence[str]) -> int:
    """The number of last characters that could be the beginning of a stop string."""
    longest = max((len(stop) - 1 for stop in stops), default=0)
    for length in range(min(longest, len(text)), 0, -1):
        if any(stop.startswith(text[-length:]) for stop in stops):
            return length
    return 0
