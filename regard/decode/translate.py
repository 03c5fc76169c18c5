"""Text to text: any number of lines of any length through a translator, in batches whose size is bounded.

A translator has learned single sentences, now and then two: of a paragraph it would say the beginning, and leave out
the rest. A line that has more, or is longer than it takes comfortably, is cut at the ends of sentences, a sentence that
still is too long at commas, then at spaces, and as a last resort anywhere; what is said of the pieces is joined again
with the spacing that stood between them. A line feed always parts. Blank pieces are not translated.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from heapq import nlargest
from itertools import islice, product

from regard.config import require_at_least
from regard.decode.cancellation import raise_if_cancelled
from regard.decode.generate import Inputs
from regard.decode.generate import translate as translate_ids
from regard.decode.options import Decoding
from regard.decode.search import Hypothesis
from regard.decode.text import cut
from regard.store import Stored
from regard.text.opus import OpusTokenizer
from regard.text.tokenizer import Tokenizer

BATCH_TOKENS = 16_384
"""places of a batch: hypotheses × the longest source"""
COMFORTABLE = 200
"""tokens of a source, framed: the sentences that translators learn from are rarely longer"""
TOGETHER = 2
"""sentences that are translated as one: corpora have pairs of two, hardly any of three"""
FIRST_LINES = 32
"""so many lines are read before the first are translated; then twice as many each time"""

Progress = Callable[[int], None]
"""called with the number of texts done so far"""


@dataclass(frozen=True)
class Translation:
    """A translation, and how likely the model finds it; where a text was cut, the sums over its pieces."""

    text: str
    score: float
    """sum of the log-probabilities of its tokens, the end included"""
    penalised: float
    """the same, length-penalised: what a beam ranks by"""
    whole: bool
    """whether it came to its own end, and was not cut off for its length"""


@dataclass(frozen=True)
class Piece:
    """A part of a text that is translated as one, and the spacing around it."""

    before: str
    ids: list[int]
    """as the model reads it; none if there is nothing to read"""
    after: str


@dataclass(frozen=True)
class Translator:
    """A model and the way it is asked."""

    model: Stored
    options: Decoding
    batch_tokens: int = BATCH_TOKENS

    def __post_init__(self) -> None:
        """Check what can be checked before there is a text."""
        require_at_least(1, batch_tokens=self.batch_tokens)

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's own; a ValueError if it has none."""
        return tokenizer_of(self.model)

    def all(self, texts: Sequence[str], progress: Progress | None = None) -> list[list[Translation]]:
        """The best translations of each text, in the order of the texts."""
        longest = comfortable(self.model)
        texts_in_pieces = [list(self._pieces(text, longest)) for text in texts]
        sources = {(t, p): piece.ids for t, pieces in enumerate(texts_in_pieces) for p, piece in enumerate(pieces)}
        sources = {place: ids for place, ids in sources.items() if ids}
        waiting = [sum(bool(piece.ids) for piece in pieces) for pieces in texts_in_pieces]
        found: dict[tuple[int, int], list[Translation]] = {}
        for batch in in_batches(sources, self.batch_tokens // self.options.beam):
            raise_if_cancelled()
            for place, translations in zip(batch, self._translated([sources[place] for place in batch]), strict=True):
                found[place] = translations
                waiting[place[0]] -= 1
            if progress is not None:
                progress(waiting.count(0))
        return [
            self._joined([_between(piece, found.get((t, p))) for p, piece in enumerate(pieces)])
            for t, pieces in enumerate(texts_in_pieces)
        ]

    def lines(self, lines: Iterable[str], at_once: int | None = None) -> Iterator[list[Translation]]:
        """The best translations of each line, one line after the other, without ever holding all of them.

        Lines are read some at a time, ever more, so that the first answers come soon and the rest in good batches;
        with `at_once`, so many each time.
        """
        lines = iter(lines)
        count = FIRST_LINES if at_once is None else at_once
        while some := list(islice(lines, count)):
            yield from self.all(some)
            count = count if at_once is not None else min(2 * count, max(FIRST_LINES, self.batch_tokens // 8))

    def _translated(self, sources: Inputs) -> list[list[Translation]]:
        found = translate_ids(self.model.network, self.model.special, sources, self.options, self.tokenizer.decode)  # type: ignore[arg-type]  # checked there
        return [[self._told(each) for each in hypotheses] for hypotheses in found]

    def _told(self, found: Hypothesis) -> Translation:
        text = cut(self.tokenizer.decode(found.ids), self.options.stop)
        return Translation(text, found.score, found.penalised, found.reason != "length")

    def _joined(self, pieces: list[list[Translation]]) -> list[Translation]:
        """Of all ways to put the pieces' translations together the best."""

        def join(heads: list[Translation], tails: list[Translation]) -> list[Translation]:
            pairs = (_beside(head, tail) for head, tail in product(heads, tails))
            return nlargest(self.options.n_best, pairs, key=lambda each: each.penalised)

        return reduce(join, pieces) if pieces else [NOTHING]

    def _pieces(self, text: str, longest: int) -> Iterator[Piece]:
        """The text in parts that the model takes comfortably; joined, they are the text."""
        code = re.match(r">>\S+?<<\s*", text) if isinstance(self.tokenizer, OpusTokenizer) else None
        language = code[0] if code else ""  # which every piece must say

        def parts(text: str, ways: Sequence[Callable[[str], list[str]]]) -> Iterator[Piece]:
            core = text.strip()
            ids = self.tokenizer.framed(language + core) if core else []
            if len(ids) <= longest or len(core) == 1:
                start = text.index(core)
                yield Piece(text[:start], ids, text[start + len(core) :])
                return
            pieces = ways[0](text)
            for piece in pieces:
                yield from parts(piece, ways if len(pieces) > 1 else ways[1:])

        for line in re.findall(r"[^\n]*\n|[^\n]+", text[len(language) :]):
            found = sentences(line)
            for piece in found if len(found) > TOGETHER else [line]:
                yield from parts(piece, (sentences, halves))


NOTHING = Translation("", 0.0, 0.0, True)


def tokenizer_of(model: Stored) -> Tokenizer:
    """A model's tokenizer; a ValueError if it has none."""
    if model.tokenizer is None:
        why = model.about.get("tokenizer", "save one in its folder (tokenizer.json)")
        raise ValueError(f"this model has no tokenizer, and so reads ids alone: {why}")
    return model.tokenizer


def comfortable(model: Stored) -> int:
    """How many tokens of a source a model takes comfortably: what its training saw, if it tells (`about["longest"]`).

    Learned positions must hold the translation too, which may be half as long again.
    """
    config, told = model.config, model.about.get("longest")
    longest = told if isinstance(told, int) and told > 0 else COMFORTABLE
    if config.positions != "learned":
        return longest
    return max(1, min(longest, config.max_length * 2 // (3 if config.kind == "encoder-decoder" else 5)))


def in_batches(sources: dict[tuple[int, int], list[int]], places: int) -> Iterator[list[tuple[int, int]]]:
    """Sources of like length together, the longest first, in batches of at most so many places, padding included."""
    batch: list[tuple[int, int]] = []
    longest = 0
    for place in sorted(sources, key=lambda place: -len(sources[place])):
        if batch and (len(batch) + 1) * longest > places:
            yield batch
            batch = []
        longest = longest if batch else len(sources[place])
        batch.append(place)
    if batch:
        yield batch


def _between(piece: Piece, found: list[Translation] | None) -> list[Translation]:
    """A piece's translations within its spacing."""
    nothing = [NOTHING] if found is None else found
    around = (Translation(piece.before, 0.0, 0.0, True), Translation(piece.after, 0.0, 0.0, True))
    return [_beside(_beside(around[0], each), around[1]) for each in nothing]


def _beside(head: Translation, tail: Translation) -> Translation:
    return Translation(
        head.text + tail.text, head.score + tail.score, head.penalised + tail.penalised, head.whole and tail.whole
    )


# What may look like the end of a sentence: marks, what closes a quotation, and space. Only where a run of marks begins:
# a line of a hundred thousand dots is looked at once.
_END = re.compile(r"(?<![.!?…])(?P<marks>[.!?…]++)(?:[ \u00a0\u202f]?»|[\"'”’)\]])*+\s++")
_OPENING = re.compile(r"[\"'“‘«(\[¿¡—–-]*+[ \u00a0\u202f]?")
_INITIALS = re.compile(r"(?:[^\W\d][.-]{1,2})*[^\W\d]")
_SHORT = re.compile(
    "mm|mmes?|mlles?|mgr|drs?|pr|prof|ste?|cf|ex|[eé]ds?|env|av|apr|t[eé]l|bd|boul|hab|mrs?|ms|messrs|[js]r|rev|hon|g[eé]n"
    "|capt|cpt|lt|sgt|gov|sen|rep|dept|vs|viz|approx|janv|f[eé]vr?|avr|sept|oct|nov|d[eé]c"
)
_SHORT_BEFORE_A_NUMBER = re.compile("nos?|nº|art|vol|chap|fig|pp|jan|feb|mar|aug")  # otherwise these are words


def sentences(text: str) -> list[str]:
    """The sentences of a French or English text, each with the space behind it; joined, they are the text.

    A full stop ends none after an abbreviation, an initial or a number that opens a list, nor where a small letter
    follows. In doubt nothing is parted.

    >>> sentences("M. Dupont a payé 3.50 €, p. ex. hier. « Vraiment ? » dit-elle. Oui !")
    ['M. Dupont a payé 3.50 €, p. ex. hier. ', '« Vraiment ? » dit-elle. ', 'Oui !']
    """
    found, start = [], 0
    for end in _END.finditer(text):
        if end.end() < len(text) and _ends_here(text, start, end):
            found.append(text[start : end.end()])
            start = end.end()
    return [*found, text[start:]]


def _ends_here(text: str, start: int, end: re.Match[str]) -> bool:
    opening = _OPENING.match(text, end.end())
    place = opening.end() if opening else end.end()
    following = text[place : place + 1]
    if not (following.isupper() or following.isdigit()):
        return False
    if end["marks"] != ".":
        return True
    words = text[max(start, end.start() - 40) : end.start()].split()
    word = re.sub(r"^[\"'“‘«(\[]+|^[dl][’']", "", words[-1].casefold()) if words else ""
    opens_a_list = text[start : end.start()].strip().isdigit()
    short = (_INITIALS, _SHORT, _SHORT_BEFORE_A_NUMBER) if following.isdigit() else (_INITIALS, _SHORT)
    return not (opens_a_list or any(pattern.fullmatch(word) for pattern in short))


def halves(text: str) -> list[str]:
    """A text in two, near its middle: behind a comma or the like, or else at a space, or else anywhere."""
    middle, quarter = len(text) / 2, len(text) / 4
    for boundary in (r"[,;:]\s+", r"\s+", ""):
        cuts = [match.end() for match in re.finditer(boundary, text) if abs(match.end() - middle) <= quarter]
        if cuts:
            place = min(cuts, key=lambda place: abs(place - middle))
            return [text[:place], text[place:]]
    return [text]
