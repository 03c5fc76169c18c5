"""Tokens to text as they come: stop strings, and no half characters."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from regard.decode.search import Stops

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
    held = ""
    for piece in whole_characters(ids, decode):
        held += piece
        if any(stop in held for stop in stops):
            break
        certain = len(held) - _may_become(held, stops)
        if certain:
            yield held[:certain]
            held = held[certain:]
    rest = cut(held, stops)
    if rest:
        yield rest


def whole_characters(ids: Iterable[int], decode: Decode) -> Iterator[str]:
    """The text that each id adds, of whole characters.

    Each time only the ids since the last but one piece are decoded: those before them give the context that some
    decoders need (one that drops the first space of a text), and the cost stays linear.
    """
    window: list[int] = []
    context, known = 0, ""  # how many ids of the window have been told, and their text
    for id_ in ids:
        window.append(id_)
        text = decode(window)
        if len(text) > len(known) and not text.endswith(BROKEN):
            yield text[len(known) :]
            window = window[context:]
            context, known = len(window), decode(window)
    text = decode(window)
    if len(text) > len(known):
        yield text[len(known) :]


def _may_become(text: str, stops: Sequence[str]) -> int:
    """How many of the last characters could be the beginning of a stop string."""
    longest = max((len(stop) - 1 for stop in stops), default=0)
    for length in range(min(longest, len(text)), 0, -1):
        if any(stop.startswith(text[-length:]) for stop in stops):
            return length
    return 0
