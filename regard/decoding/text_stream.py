"""Tokens to text as they come: stop strings, and no half characters."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from regard.decoding.search import Stops

Decode = Callable[[list[int]], str]

BROKEN = "\ufffd"
"""what a decoder writes for bytes that are no character, or not yet"""


def cut(text: str, stops: Sequence[str]) -> str:
    """The text before the first of the stop strings.

    >>> cut("To be.\\n\\nJULIET:", ["\\n\\n", "ROMEO"])
    'To be.'
    """
    places = [text.find(stop) for stop in stops if stop in text]
    return text[: min(places)] if places else text


def stops_in(stops: Sequence[str], decode: Decode) -> Stops | None:
    """Whether the newest of a text's ids completes a stop string; None when there are none.

    Only the last ids are looked at, so that the cost does not grow with the text: a character is at most 4 bytes and
    so at most 4 ids.
    """
    if not stops:
        return None
    tail = 4 * max(map(len, stops)) + 8

    def stopped(ids: list[int]) -> bool:
        text = decode(ids[-tail:])
        return any(stop in text for stop in stops)

    return stopped


def stream_text(ids: Iterable[int], decode: Decode, stops: Sequence[str] = ()) -> Iterator[str]:
    """The text of the ids, piece by piece, as soon as it is certain; all pieces together are the whole text.

    A character whose bytes are not all there is held back, as is what may become a stop string. At a stop string the
    text ends, and no more ids are asked for.
    """
    telling = Telling(decode, stops)
    for id_ in ids:
        if piece := telling.add(id_):
            yield piece
        if telling.stopped:
            return
    if rest := telling.end():
        yield rest


class Telling:
    """The same for ids that come one by one: what each makes certain, and at the end the rest."""

    def __init__(self, decode: Decode, stops: Sequence[str] = ()) -> None:
        self.characters, self.stops = Characters(decode), stops
        self.held = ""
        self.stopped = False
        """whether a stop string has come: nothing is told behind it"""

    def add(self, id_: int) -> str:
        """What is certain now that this id has come."""
        return self._tell(self.characters.add(id_))

    def end(self) -> str:
        """What is left when no more ids come."""
        told = self._tell(self.characters.end())
        rest, self.held = self.held, ""
        return told + rest

    def _tell(self, piece: str) -> str:
        if self.stopped:
            return ""
        self.held += piece
        if piece and any(stop in self.held for stop in self.stops):
            self.stopped = True
            told, self.held = cut(self.held, self.stops), ""
            return told
        certain = len(self.held) - _may_become(self.held, self.stops)
        told, self.held = self.held[:certain], self.held[certain:]
        return told


def whole_characters(ids: Iterable[int], decode: Decode) -> Iterator[str]:
    """The text that each id adds, of whole characters."""
    characters = Characters(decode)
    for id_ in ids:
        if piece := characters.add(id_):
            yield piece
    if rest := characters.end():
        yield rest


class Characters:
    """Ids to whole characters, one by one.

    Each time only the ids since the last but one piece are decoded: those before them give the context that some
    decoders need (one that drops the first space of a text), and the cost stays linear.
    """

    def __init__(self, decode: Decode) -> None:
        self.decode = decode
        self.window: list[int] = []
        self.context, self.known = 0, ""  # how many ids of the window have been told, and their text

    def add(self, id_: int) -> str:
        """The text that this id adds; none while a character is not whole."""
        self.window.append(id_)
        text = self.decode(self.window)
        if len(text) <= len(self.known) or text.endswith(BROKEN):
            return ""
        piece = text[len(self.known) :]
        self.window = self.window[self.context :]
        self.context, self.known = len(self.window), self.decode(self.window)
        return piece

    def end(self) -> str:
        """What was held back."""
        return self.decode(self.window)[len(self.known) :]


def _may_become(text: str, stops: Sequence[str]) -> int:
    """How many of the last characters could be the beginning of a stop string."""
    longest = max((len(stop) - 1 for stop in stops), default=0)
    for length in range(min(longest, len(text)), 0, -1):
        if any(stop.startswith(text[-length:]) for stop in stops):
            return length
    return 0
