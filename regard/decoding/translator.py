"""Text to text: any number of lines of any length through a translator, in batches whose size is bounded.

A translator has learned single sentences: of a paragraph, and often of two sentences, it would translate some and drop
the rest. So each sentence is translated separately (see `regard.decoding.sentence_splitter`). A sentence too long for
the model is cut at commas, then at spaces, and as a last resort between any two characters. The translations are
joined with the white space that separated their sources. A part without a letter or a digit is copied.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from heapq import nlargest
from itertools import islice, pairwise, product
from unicodedata import category

from regard.config import ModelConfig, SpecialIds, require_at_least
from regard.data.opus_tokenizer import OpusTokenizer
from regard.data.tokenizer import Tokenizer
from regard.decoding.batching import batches_by_length
from regard.decoding.cancellation import raise_if_cancelled
from regard.decoding.generate import Inputs, search_translations
from regard.decoding.options import Decoding
from regard.decoding.search import Hypothesis
from regard.decoding.sentence_splitter import ends_with_mark, has_words, needs_space_after, sentences
from regard.decoding.text_stream import cut
from regard.model.transformer import Decoder, EncoderDecoder

BATCH_TOKENS = 16_384
"""places of a batch: hypotheses × the longest source"""
MAX_SOURCE_TOKENS = 200
"""Default number of tokens of a source, framed: the sentences that translators learn from are rarely longer."""
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
    """white space, or all of a part without a letter or digit: such a part is copied"""
    core: str = ""
    ids: list[int] = field(default_factory=list)
    """the core as the model reads it; none if there is nothing to read"""
    after: str = ""
    unspaced: bool = False
    """whether no space follows because the script has none: a translation into one that has spaces needs one"""


@dataclass(frozen=True)
class Translator:
    """A translation model, and how to decode with it."""

    network: Decoder | EncoderDecoder
    tokenizer: Tokenizer
    special: SpecialIds
    options: Decoding
    batch_tokens: int = BATCH_TOKENS
    language: str | None = None
    """Language of the sources, if it is known: where sentences end depends on it."""
    max_source_tokens: int = MAX_SOURCE_TOKENS
    """Tokens of a source that are translated in one piece: longer sentences are split."""

    def __post_init__(self) -> None:
        """Check what can be checked before there is a text."""
        require_at_least(1, batch_tokens=self.batch_tokens)

    def translate_all(self, texts: Sequence[str], progress: Progress | None = None) -> list[list[Translation]]:
        """The best translations of each text, in the order of the texts."""
        texts_in_pieces = [self._pieces(text, self.max_source_tokens) for text in texts]
        sources = {(t, p): piece.ids for t, pieces in enumerate(texts_in_pieces) for p, piece in enumerate(pieces)}
        sources = {place: ids for place, ids in sources.items() if ids}
        waiting = [sum(bool(piece.ids) for piece in pieces) for pieces in texts_in_pieces]
        found: dict[tuple[int, int], list[Translation]] = {}
        lengths = {place: len(ids) for place, ids in sources.items()}
        for batch in batches_by_length(lengths, self.batch_tokens // self.options.beam):
            raise_if_cancelled()
            for place, translations in zip(batch, self._translated([sources[place] for place in batch]), strict=True):
                found[place] = translations
                waiting[place[0]] -= 1
            if progress is not None:
                progress(waiting.count(0))
        return [
            joined([_between(piece, found.get((t, p))) for p, piece in enumerate(pieces)], self.options.n_best)
            for t, pieces in enumerate(texts_in_pieces)
        ]

    def translate_lines(self, lines: Iterable[str], lines_per_batch: int | None = None) -> Iterator[list[Translation]]:
        """The best translations of each line, one line after the other, without ever holding all of them.

        Lines are read some at a time, ever more, so that the first answers come soon and the rest in good batches;
        with `lines_per_batch`, that many each time.
        """
        lines = iter(lines)
        count = FIRST_LINES if lines_per_batch is None else lines_per_batch
        while some := list(islice(lines, count)):
            yield from self.translate_all(some)
            count = count if lines_per_batch is not None else min(2 * count, max(FIRST_LINES, self.batch_tokens // 8))

    def _translated(self, sources: Inputs) -> list[list[Translation]]:
        found = search_translations(self.network, self.special, sources, self.options, self.tokenizer.decode)
        return [[self._told(each) for each in hypotheses] for hypotheses in found]

    def _told(self, found: Hypothesis) -> Translation:
        text = cut(self.tokenizer.decode(found.ids), self.options.stop)
        return Translation(text, found.score, found.penalised, found.reason != "length")

    def _pieces(self, text: str, longest: int) -> list[Piece]:
        """The text in parts that the model takes comfortably; joined, they are the text.

        Each sentence is a part of its own. One that is too long is halved until its parts are not.
        """
        code = re.match(r">>\S+?<<\s*", text) if isinstance(self.tokenizer, OpusTokenizer) else None
        language = code[0] if code else ""  # which every piece must say

        def parts(text: str) -> Iterator[Piece]:
            core = text.strip()
            if not has_words(core):
                yield Piece(text)
                return
            ids = self.tokenizer.encode_with_template(language + core)
            if len(ids) <= longest or len(core) == 1:
                start = text.index(core)
                yield Piece(text[:start], core, ids, text[start + len(core) :])
                return
            for half in halves(text):
                yield from parts(half)

        by_sentence = [list(parts(each)) for each in sentences(text[len(language) :], self.language)]
        found = [(piece, piece is pieces[-1]) for pieces in by_sentence for piece in pieces]
        return [
            replace(
                piece,
                unspaced=not piece.after
                and not following.before
                and (needs_space_after(piece.core) or (ends_sentence and ends_with_mark(piece.core))),
            )
            for (piece, ends_sentence), (following, _) in pairwise(found)
        ] + [piece for piece, _ in found[-1:]]


NOTHING = Translation("", 0.0, 0.0, True)


def joined(parts: Sequence[list[Translation]], n_best: int) -> list[Translation]:
    """The best ways to put one translation of each part together, best first."""

    def join(heads: list[Translation], tails: list[Translation]) -> list[Translation]:
        pairs = (_beside(head, tail) for head, tail in product(heads, tails))
        return nlargest(n_best, pairs, key=lambda each: each.penalised)

    return reduce(join, parts) if parts else [NOTHING]


def in_parts(text: str, characters: int, language: str | None = None) -> list[str]:
    """A text in parts of whole sentences, each of about this many characters; joined, they are the text.

    Translations of the parts, joined, are that of the text: a part ends with the white space after a sentence.
    """
    if len(text) <= characters or text.startswith(">>"):  # a language code is for the whole text
        return [text]
    parts = [""]
    for sentence in sentences(text, language):
        if len(parts[-1]) >= characters and parts[-1][-1].isspace():
            parts.append("")
        parts[-1] += sentence
    return parts


def max_source_tokens(config: ModelConfig, longest_trained: object = None) -> int:
    """Tokens of a source that a model translates well in one piece: the longest of its training, if that is known.

    Learned positions must hold the translation as well, which may be half as long again as its source.
    """
    known = isinstance(longest_trained, int) and longest_trained > 0
    longest = longest_trained if known and isinstance(longest_trained, int) else MAX_SOURCE_TOKENS
    if config.max_positions is None:
        return longest
    return max(1, min(longest, config.max_positions * 2 // (3 if config.kind == "encoder-decoder" else 5)))


def _between(piece: Piece, found: list[Translation] | None) -> list[Translation]:
    """A piece's translations within its spacing."""
    if found is None:
        return [replace(NOTHING, text=piece.before + piece.after)]
    return [replace(each, text=piece.before + each.text + _after(piece, each.text)) for each in found]


def _after(piece: Piece, translated: str) -> str:
    """The white space after a piece's translation."""
    missing = piece.unspaced and translated and not needs_space_after(translated)
    return " " if missing else piece.after


def _beside(head: Translation, tail: Translation) -> Translation:
    return Translation(
        head.text + tail.text, head.score + tail.score, head.penalised + tail.penalised, head.whole and tail.whole
    )


def halves(text: str) -> list[str]:
    """A text in two, near its middle: after a comma or the like, else at a space, else between any two characters.

    >>> halves("le chat noir, le chien")
    ['le chat noir, ', 'le chien']
    """
    middle, quarter = len(text) / 2, len(text) / 4
    for boundary in (_COMMA, _SPACE):
        cuts = [match.end() for match in boundary.finditer(text) if abs(match.end() - middle) <= quarter]
        if cuts:
            place = min(cuts, key=lambda place: abs(place - middle))
            return [text[:place], text[place:]]
    place = _between_characters(text, len(text) // 2)
    return [text[:place], text[place:]] if place else [text]


def _between_characters(text: str, place: int) -> int:
    """A place near this one where no accent, joiner or modifier is separated from its letter; else the place itself."""
    for near in range(place, max(0, place - MAX_CHARACTER), -1):
        joins = text[near - 1] == ZERO_WIDTH_JOINER or text[near] in SKIN_TONES or category(text[near])[0] in "MC"
        if not joins:
            return near
    return place


_COMMA = re.compile(r"[,;:\u060c\u061b\u0387\u1363-\u1365]\s++|[\u3001\uff0c\uff1a\uff1b\uff64]\s*+")
_SPACE = re.compile(r"\s++")
MAX_CHARACTER = 32
"""code points of what is one character to a reader, an emoji of a family being among the longest"""
ZERO_WIDTH_JOINER = "\u200d"
SKIN_TONES = frozenset("🏻🏼🏽🏾🏿")
