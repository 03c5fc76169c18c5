"""Text to text: any number of texts of any length through a translation model, in batches of bounded size.

Translation models learn from single sentences: given a paragraph, they translate some of its sentences and drop the
rest. Each sentence is therefore translated separately (see `regard.decoding.sentence_splitter`). A sentence that is too
long for the model is split at commas, then before conjunctions, then at spaces, and as a last resort between any two
characters. Translations are joined with the white space that separated their sources. Parts without a letter or digit
are copied, and so are list markers, hashtags around a sentence, bars of tables, HTML around paragraphs, emoji and
emoticons, which models drop or exchange, and addresses, codes and amounts (see `regard.decoding.verbatim`). Bold words,
links and the like are translated without their marks (see `regard.decoding.inline_marks`). Quotation marks are those
of the source (see `regard.decoding.quotation_marks`). Spoken forms and abbreviations are written out (see
`regard.decoding.informal_spellings`). Pasted text is normalised, and a sentence in capitals is translated in small
letters (see `regard.decoding.source_text`). Translations have the final marks of their sources (see
`regard.decoding.punctuation`).
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from heapq import nlargest
from itertools import islice, pairwise, product
from types import MappingProxyType

from regard.config import ModelConfig, SpecialIds, require_at_least
from regard.data.opus_tokenizer import OpusTokenizer
from regard.data.tokenizer import Tokenizer
from regard.decoding.batching import batches_by_length
from regard.decoding.cancellation import raise_if_cancelled
from regard.decoding.clock_times import TIME_LANGUAGES, rewritten_time
from regard.decoding.generate import Inputs, search_translations
from regard.decoding.informal_spellings import written_out
from regard.decoding.inline_marks import InlineMark, has_inline_marks, with_inline_marks, without_inline_marks
from regard.decoding.language_guess import LANGUAGE_NAMES
from regard.decoding.options import Decoding
from regard.decoding.punctuation import with_punctuation
from regard.decoding.quotation_marks import (
    count_missing_marks,
    quoted_phrases,
    with_other_marks,
    with_quoted_phrases,
)
from regard.decoding.search import Hypothesis
from regard.decoding.sentence_parts import core_of, halves, has_clauses, separate_parts
from regard.decoding.sentence_splitter import ends_with_mark, has_words, needs_space_after, sentences
from regard.decoding.source_text import in_sentence_case, is_in_capitals, plain_forms
from regard.decoding.text_stream import text_before_stop
from regard.decoding.verbatim import (
    check_verbatim,
    replace_parts,
    with_names_of_units,
    with_placeholders,
    without_placeholders,
)
from regard.model.transformer import Decoder, EncoderDecoder

BATCH_TOKENS = 16_384
"""Tokens of a batch: hypotheses × length of the longest source."""
MAX_SOURCE_TOKENS = 200
"""Default number of tokens of a source, framed: the sentences that translators learn from are rarely longer."""
MIN_TOKENS_IN_PARTS = 24
"""Tokens of a source that is translated in parts if its translation lacks something."""
MIN_LENGTH_RATIO = 0.4
"""Length of a translation, relative to its source, below which it lacks words."""
FIRST_LINES = 32
"""Number of lines that are read before the first are translated; it doubles with every batch."""

PieceKey = tuple[int, ...]
"""The number of a text, that of a piece in it, and perhaps that of a part of the piece."""

Progress = Callable[[int], None]
"""A function that is called with the number of texts done so far."""


@dataclass(frozen=True)
class Translation:
    """A translation and its score; of a text that was split, the sum over its pieces."""

    text: str
    score: float
    """Sum of the log-probabilities of its tokens, the end token included, before its amounts were corrected."""
    penalised: float
    """The score divided by the length penalty: what a beam ranks by."""
    complete: bool
    """Whether it ended with an end token or stop string, and not at the maximum length."""


@dataclass(frozen=True)
class SourcePiece:
    """A part of a text that is translated in one go, and the white space, list marker and emoji around it, which are
    copied."""

    before: str
    """What is before it, or all of a part without letters or digits."""
    core: str = ""
    """The text to translate, without inline marks; in sentence case if it was in capitals."""
    marks: tuple[InlineMark, ...] = ()
    """Marks of some words of the core, such as bold."""
    is_in_capitals: bool = False
    """Whether it was written in capitals, as its translation will be."""
    target_code: str = ""
    """A code of the target language that the model reads before the text, as some of OPUS-MT's do."""
    ids: list[int] = field(default_factory=list)
    """The core as the model reads it; empty if there is nothing to translate."""
    after: str = ""
    """What is after it."""
    needs_space: bool = False
    """Whether a translation into a script with spaces needs one after it that the source does not have."""
    continues_sentence: bool = False
    """Whether it begins in the middle of a sentence that was too long."""
    is_continued: bool = False
    """Whether it ends in the middle of such a sentence."""


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
    target_language: str | None = None
    """Language of the translations, if it is known: how amounts are written depends on it."""
    max_source_tokens: int = MAX_SOURCE_TOKENS
    """Tokens of a source that are translated in one piece: longer sentences are split."""

    def __post_init__(self) -> None:
        """Check the batch size."""
        require_at_least(1, batch_tokens=self.batch_tokens)

    def translate_all(self, texts: Sequence[str], progress: Progress | None = None) -> list[list[Translation]]:
        """The best translations of each text with different texts, in the order of the texts."""
        texts_in_pieces = [self._pieces(text, self.max_source_tokens) for text in texts]
        sources: dict[PieceKey, list[int]] = {
            (text_number, piece_number): piece.ids
            for text_number, pieces in enumerate(texts_in_pieces)
            for piece_number, piece in enumerate(pieces)
            if piece.ids
        }
        pending = [sum(bool(piece.ids) for piece in pieces) for pieces in texts_in_pieces]
        translated: dict[PieceKey, list[Translation]] = {}
        for batch in self._translate_batches(sources):
            translated |= batch
            for text_number, *_ in batch:
                pending[text_number] -= 1
            if progress is not None:
                progress(pending.count(0))
        pieces_by_key = {key: texts_in_pieces[key[0]][key[1]] for key in sources}
        self._repair(pieces_by_key, translated)
        phrases = self._translate_marked_phrases(pieces_by_key.values())
        return [
            join_translations(
                [
                    self._with_surroundings(piece, translated.get((text_number, piece_number)), phrases)
                    for piece_number, piece in enumerate(pieces)
                ],
                self.options.n_best,
            )
            for text_number, pieces in enumerate(texts_in_pieces)
        ]

    def translate_lines(self, lines: Iterable[str], lines_per_batch: int | None = None) -> Iterator[list[Translation]]:
        """The best translations of each line, in order, without holding all lines in memory.

        Lines are read in growing batches, so that the first answers come soon and the rest is efficient; with
        `lines_per_batch`, that many lines at a time.
        """
        lines = iter(lines)
        count = FIRST_LINES if lines_per_batch is None else lines_per_batch
        while batch := list(islice(lines, count)):
            yield from self.translate_all(batch)
            count = count if lines_per_batch is not None else min(2 * count, max_lines_together(self.batch_tokens))

    def _translate_marked_phrases(self, pieces: Iterable[SourcePiece]) -> dict[str, str]:
        """Translations of the words in inline marks, by which the marks are placed in the translations."""
        return self._translate_phrases(
            {
                phrase: piece.target_code
                for piece in pieces
                for mark in piece.marks
                for phrase in mark.phrases(piece.core)
                if phrase != piece.core
            }
        )

    def _translate_phrases(self, codes: Mapping[str, str]) -> dict[str, str]:
        """Translations of phrases by themselves, each given with the code of its target language."""
        marked = [SourcePiece("", phrase, ids=self._encode(code + phrase)) for phrase, code in codes.items()]
        sources: dict[PieceKey, list[int]] = {
            (number,): piece.ids for number, piece in enumerate(marked) if len(piece.ids) <= self.max_source_tokens
        }
        translated = {key[0]: each for batch in self._translate_batches(sources) for key, each in batch.items()}
        phrases = {
            marked[number].core: self._checked(translations[:1], marked[number])[0][0].text.strip(" .!?")
            for number, translations in translated.items()
        }
        languages = self.language or "", self.target_language or ""
        times = {phrase: rewritten_time(phrase, *languages) for phrase in phrases if set(languages) == TIME_LANGUAGES}
        return phrases | {phrase: time for phrase, time in times.items() if time}

    def _translate_batches(self, sources: Mapping[PieceKey, list[int]]) -> Iterator[dict[PieceKey, list[Translation]]]:
        """The best translations of each source, in batches of similar lengths."""
        lengths = {key: len(ids) for key, ids in sources.items()}
        for batch in batches_by_length(lengths, self.batch_tokens // self.options.beam):
            raise_if_cancelled()
            yield dict(zip(batch, self._translate_ids([sources[key] for key in batch]), strict=True))

    def _repair(self, pieces: Mapping[PieceKey, SourcePiece], translated: dict[PieceKey, list[Translation]]) -> None:
        """Correct amounts and times. Translate a piece again if its best translation lacks something: with placeholders
        for what is missing, in parts, and with other quotation marks. What the caller's limits cut off is not
        missing."""
        lacking = {}
        missing = {}
        for key, piece in pieces.items():
            translated[key], missing_parts = self._checked(translated[key], piece)
            missing[key] = missing_parts[0]
            if missing[key] or self._is_too_short(translated[key][0], piece):
                lacking[key] = piece
        if self.options.stop or self.options.max_tokens is not None:
            return
        # Each repair is given what the repairs before it have left.
        self._improve(translated, lacking, self._translate_with_names_of_units(lacking, missing))
        self._improve(translated, lacking, self._translate_with_placeholders(lacking, missing))
        self._improve(translated, lacking, self._translate_in_parts(lacking))
        if self.target_language not in LANGUAGE_NAMES:
            return
        lacking = _without_quotes(pieces, translated)
        self._improve(translated, lacking, self._translate_with_other_quotes(lacking))
        lacking = _without_quotes(pieces, translated)
        self._improve(translated, lacking, self._with_marks_around_phrases(lacking, translated))

    def _improve(
        self,
        translated: dict[PieceKey, list[Translation]],
        lacking: dict[PieceKey, SourcePiece],
        repaired: Mapping[PieceKey, list[Translation]],
    ) -> None:
        """Keep the most complete translations of repaired pieces. Those that lack nothing now are no longer lacking."""
        for key, translations in repaired.items():
            translated[key] = self._most_complete(translated[key], translations, lacking[key])
            if not self._count_missing(translated[key][0], lacking[key]):
                del lacking[key]

    def _translate_with_names_of_units(
        self, pieces: Mapping[PieceKey, SourcePiece], missing: Mapping[PieceKey, dict[str, str]]
    ) -> dict[PieceKey, list[Translation]]:
        """Translations of pieces in which names replace the symbols of units that their first translations lack."""
        named = {key: with_names_of_units(piece.core, missing[key], self.language) for key, piece in pieces.items()}
        return self._translate_changed(pieces, named, replace_parts)

    def _translate_with_placeholders(
        self, pieces: Mapping[PieceKey, SourcePiece], missing: Mapping[PieceKey, dict[str, str]]
    ) -> dict[PieceKey, list[Translation]]:
        """Translations of pieces in which placeholders replace what their first translations lack."""
        replaced = {key: with_placeholders(piece.core, missing[key]) for key, piece in pieces.items()}
        return self._translate_changed(pieces, replaced, without_placeholders)

    def _translate_with_other_quotes(self, pieces: Mapping[PieceKey, SourcePiece]) -> dict[PieceKey, list[Translation]]:
        """Translations of pieces with other quotation marks than those that their first translations lack."""
        changed: dict[PieceKey, tuple[str, dict[str, str]]] = {
            key: (with_other_marks(piece.core), {}) for key, piece in pieces.items()
        }
        return self._translate_changed(pieces, changed, replace_parts)

    def _with_marks_around_phrases(
        self, pieces: Mapping[PieceKey, SourcePiece], translated: Mapping[PieceKey, list[Translation]]
    ) -> dict[PieceKey, list[Translation]]:
        """Translations of pieces with quotation marks around the translations of their quoted phrases."""
        phrases = self._translate_phrases(
            {phrase: piece.target_code for piece in pieces.values() for phrase in quoted_phrases(piece.core)}
        )
        return {
            key: [replace(each, text=with_quoted_phrases(each.text, piece.core, phrases)) for each in translated[key]]
            for key, piece in pieces.items()
        }

    def _translate_changed(
        self,
        pieces: Mapping[PieceKey, SourcePiece],
        changed: Mapping[PieceKey, tuple[str, dict[str, str]]],
        restored: Callable[[str, Mapping[str, str]], str],
    ) -> dict[PieceKey, list[Translation]]:
        """Translations of changed sources, in which what stands for other parts is replaced by these."""
        sources = {
            key: self._encode(pieces[key].target_code + text)
            for key, (text, _) in changed.items()
            if text != pieces[key].core
        }
        return {
            key: [replace(each, text=restored(each.text, changed[key][1])) for each in translations]
            for batch in self._translate_batches(sources)
            for key, translations in batch.items()
        }

    def _translate_in_parts(self, pieces: Mapping[PieceKey, SourcePiece]) -> dict[PieceKey, list[Translation]]:
        """Translations of long pieces in parts of about half their length.

        Parts that are no clauses are translated worse: they are used only if they lack nothing.
        """
        parts = {key: self._parts(piece) for key, piece in pieces.items() if len(piece.ids) >= MIN_TOKENS_IN_PARTS}
        sources: dict[PieceKey, list[int]] = {
            (*key, number): part.ids
            for key, in_parts in parts.items()
            for number, part in enumerate(in_parts)
            if part.ids
        }
        translations: dict[PieceKey, list[Translation]] = {}
        for batch in self._translate_batches(sources):
            translations |= batch
        repaired = {}
        for key, in_parts in parts.items():
            translated_parts = [
                self._with_surroundings(part, translations.get((*key, number))) for number, part in enumerate(in_parts)
            ]
            joined = join_translations(translated_parts, self.options.n_best)
            if has_clauses(pieces[key].core) or not self._count_missing(joined[0], pieces[key]):
                repaired[key] = joined
        return repaired

    def _parts(self, piece: SourcePiece) -> list[SourcePiece]:
        """A piece in parts of about half its length."""
        parts = self._short_pieces(piece.core, piece.target_code, len(piece.ids) * 2 // 3)
        return list(_with_spaces([(part, False) for part in parts]))

    def _most_complete(
        self, translations: list[Translation], others: list[Translation], piece: SourcePiece
    ) -> list[Translation]:
        """As many translations with different texts: those that lack the least, of two lists."""
        corrected = self._checked(translations + others, piece)[0]
        ranked = sorted(
            corrected,
            key=lambda each: (
                self._count_missing(each, piece),
                count_missing_marks(each.text, piece.core),
                -each.penalised,
            ),
        )
        by_text = {translation.text: translation for translation in reversed(ranked)}
        return sorted(by_text.values(), key=ranked.index)[: len(translations)]

    def _count_missing(self, translation: Translation, piece: SourcePiece) -> int:
        """How much of its source a translation certainly lacks; all words that a short one lacks count as one."""
        return len(self._checked([translation], piece)[1][0]) + self._is_too_short(translation, piece)

    def _is_too_short(self, translation: Translation, piece: SourcePiece) -> bool:
        """Whether a translation of a long source ended too early to have all its words, in any script."""
        is_complete = translation.complete and len(piece.ids) >= MIN_TOKENS_IN_PARTS
        if not is_complete or len(translation.text) >= MIN_LENGTH_RATIO * len(piece.core):
            return False
        return len(self.tokenizer.encode(translation.text)) < MIN_LENGTH_RATIO * len(piece.ids)

    def _checked(
        self, translations: list[Translation], piece: SourcePiece
    ) -> tuple[list[Translation], list[dict[str, str]]]:
        """Translations with their amounts corrected, and what each lacks of its source."""
        checked = [
            check_verbatim(translation.text, piece.core, self.language, self.target_language)
            for translation in translations
        ]
        corrected = [replace(one, text=each.text) for one, each in zip(translations, checked, strict=True)]
        return corrected, [each.missing for each in checked]

    def _translate_ids(self, sources: Inputs) -> list[list[Translation]]:
        searched = search_translations(self.network, self.special, sources, self.options, self.tokenizer.decode)
        return [[self._translation(hypothesis) for hypothesis in hypotheses] for hypotheses in searched]

    def _translation(self, hypothesis: Hypothesis) -> Translation:
        text = text_before_stop(self.tokenizer.decode(hypothesis.ids), self.options.stop)
        return Translation(text, hypothesis.score, hypothesis.penalised, hypothesis.reason != "length")

    def _encode(self, text: str) -> list[int]:
        """A text as the model reads it: as it was typed, or in the plain form that takes the fewest tokens.

        Tokenizers have learned from the training text: what it had takes few tokens.
        """
        forms = plain_forms(written_out(text, self.language), self._knows_french_spaces)
        return min((self.tokenizer.encode_with_template(form) for form in forms), key=len)

    @cached_property
    def _knows_french_spaces(self) -> bool:
        return len(self.tokenizer.encode("\u202f")) == 1

    def _pieces(self, text: str, longest: int) -> list[SourcePiece]:
        """The text in pieces of at most `longest` tokens; joined, they are the text.

        Each sentence is a piece, in sentence case if it was in capitals. One that is too long is halved until its parts
        are short enough. A code of the target language at the beginning is repeated before each.
        """
        match = re.match(r">>\S+?<<\s*", text) if isinstance(self.tokenizer, OpusTokenizer) else None
        code = match[0] if match else ""
        text = text[len(code) :]
        are_capitals = is_in_capitals(text)
        by_sentence = [
            list(self._sentence_pieces(sentence, code, longest, are_capitals))
            for sentence in sentences(text, self.language)
        ]
        return list(_with_spaces([(piece, piece is pieces[-1]) for pieces in by_sentence for piece in pieces]))

    def _sentence_pieces(self, sentence: str, code: str, longest: int, are_capitals: bool) -> Iterator[SourcePiece]:
        """The pieces of a sentence; `are_capitals` if the whole text is in capitals, so that an acronym is none."""
        in_capitals = is_in_capitals(sentence) or (are_capitals and sentence.isupper())
        for number, part in enumerate(separate_parts(in_sentence_case(sentence) if in_capitals else sentence)):
            for piece in self._short_pieces(part, code, longest):
                continues = piece.continues_sentence or (number > 0 and piece.core[:1].islower())
                before, after = (
                    (piece.before.upper(), piece.after.upper()) if in_capitals else (piece.before, piece.after)
                )
                yield replace(
                    piece, before=before, after=after, is_in_capitals=in_capitals, continues_sentence=continues
                )

    def _short_pieces(self, text: str, code: str, longest: int) -> Iterator[SourcePiece]:
        """A part of a sentence, halved until its parts are short enough."""
        piece = _without_surroundings(text)
        if not has_words(piece.core):
            yield SourcePiece(text)
            return
        ids = self._encode(code + piece.core)
        if len(ids) <= longest or len(piece.core) == 1:
            yield replace(piece, target_code=code, ids=ids)
            return
        first, *others = halves(text)
        for piece in self._short_pieces(first, code, longest):
            yield replace(piece, is_continued=True)
        for half in others:
            begins_in_small_letters = half.lstrip("\"'«“‘( ")[:1].islower()
            for number, piece in enumerate(self._short_pieces(half, code, longest)):
                yield replace(piece, continues_sentence=True) if number == 0 and begins_in_small_letters else piece

    def _with_surroundings(
        self,
        piece: SourcePiece,
        translations: list[Translation] | None,
        phrases: Mapping[str, str] = MappingProxyType({}),
    ) -> list[Translation]:
        """A piece's translations with what is around it and in its marks, given translations of the words in these.

        Those that corrections made equal are given once.
        """
        if translations is None:
            return [replace(EMPTY_TRANSLATION, text=piece.before + piece.after)]
        by_text: dict[str, Translation] = {}
        for translation in translations:
            text = self._fitted(translation, piece)
            space = _space_after(piece, text)
            text = piece.before + with_inline_marks(text, piece.core, piece.marks, phrases) + space
            by_text.setdefault(text, replace(translation, text=text))
        return list(by_text.values())

    def _fitted(self, translation: Translation, piece: SourcePiece) -> str:
        """A piece's translation with capitals and punctuation as in the source, without invalid bytes."""
        text = translation.text.replace("\ufffd", "").strip()
        if translation.complete and not self.options.stop:
            text = with_punctuation(text, piece.core, self.target_language, ends_sentence=not piece.is_continued)
        if piece.is_in_capitals:
            return text.upper()
        first_word = re.match(r"[^\W\d_]+", text)
        if piece.continues_sentence and first_word and first_word[0] not in piece.core:
            text = self._usual_form(first_word[0]) + text[first_word.end() :]
        mark = piece.core[-1] if piece.core.endswith((",", ";", ":")) else ""
        if mark and text[-1:].isalnum() and not needs_space_after(text):
            text += mark if mark == "," or self.target_language != "fr" else f" {mark}"
        return text

    def _usual_form(self, word: str) -> str:
        """A capitalised word as it is written in a sentence: in small letters, unless these take more tokens."""
        if word == "I" or self.target_language == "de" or word[1:] != word[1:].lower():
            return word
        capitalised, small = (len(self.tokenizer.encode(f"- {form}")) for form in (word, word.lower()))
        return word.lower() if small <= capitalised else word


def max_lines_together(batch_tokens: int) -> int:
    """Number of lines that are translated together at most: enough for batches of similar lengths."""
    return max(FIRST_LINES, batch_tokens // 8)


EMPTY_TRANSLATION = Translation("", 0.0, 0.0, True)


def join_translations(parts: Sequence[list[Translation]], n_best: int) -> list[Translation]:
    """The best combinations of one translation of each part, best first."""

    def join(heads: list[Translation], tails: list[Translation]) -> list[Translation]:
        pairs = (_concatenate(head, tail) for head, tail in product(heads, tails))
        return nlargest(n_best, pairs, key=lambda translation: translation.penalised)

    return reduce(join, parts) if parts else [EMPTY_TRANSLATION]


def split_into_parts(text: str, characters: int, language: str | None = None) -> list[str]:
    """A text in parts of complete sentences, each of about this many characters; joined, they are the text.

    The translations of the parts, joined, are the translation of the text: a part ends with the white space after a
    sentence.
    """
    if len(text) <= characters or text.startswith(">>"):  # a language code applies to the whole text
        return [text]
    parts = [""]
    for sentence in sentences(text, language):
        if len(parts[-1]) >= characters and parts[-1][-1].isspace():
            parts.append("")
        parts[-1] += sentence
    return parts


def max_source_tokens(config: ModelConfig, longest_trained: object = None) -> int:
    """Tokens of a source that a model translates well in one piece: those of nearly all in its training, if known.

    Learned positions must hold the translation as well, which may be half as long again as its source.
    """
    longest = longest_trained if isinstance(longest_trained, int) and longest_trained > 0 else MAX_SOURCE_TOKENS
    if config.max_positions is None:
        return longest
    return max(1, min(longest, config.max_positions * 2 // (3 if config.kind == "encoder-decoder" else 5)))


def _without_quotes(
    pieces: Mapping[PieceKey, SourcePiece], translated: Mapping[PieceKey, list[Translation]]
) -> dict[PieceKey, SourcePiece]:
    """The pieces whose best translations lack quotation marks."""
    return {key: piece for key, piece in pieces.items() if count_missing_marks(translated[key][0].text, piece.core)}


def _without_surroundings(text: str) -> SourcePiece:
    """A part of a sentence, separated from what is around it and from the inline marks in it."""
    start, end = core_of(text)
    core = text[start:end]
    if has_inline_marks(core):
        plain, marks = without_inline_marks(text)
        first, last = core_of(plain)
        if marks and all(first <= mark.start and mark.end <= last for mark in marks):  # else they are around symbols
            marks_of_core = (replace(mark, start=mark.start - first, end=mark.end - first) for mark in marks)
            return SourcePiece(plain[:first], plain[first:last], tuple(marks_of_core), after=plain[last:])
    return SourcePiece(text[:start], core, after=text[end:])


def _with_spaces(pieces: Sequence[tuple[SourcePiece, bool]]) -> Iterator[SourcePiece]:
    """Consecutive pieces, with whether their translations need spaces between them; each is given with whether it ends
    a sentence."""
    for (piece, ends_sentence), (following, _) in pairwise(pieces):
        is_separated = piece.after or following.before
        ends = needs_space_after(piece.core) or (ends_sentence and ends_with_mark(piece.core))
        yield replace(piece, needs_space=not is_separated and ends)
    yield from (piece for piece, _ in pieces[-1:])


def _space_after(piece: SourcePiece, translated: str) -> str:
    """What is after a piece's translation."""
    is_missing = piece.needs_space and translated and not needs_space_after(translated)
    return " " if is_missing else piece.after


def _concatenate(head: Translation, tail: Translation) -> Translation:
    return Translation(
        head.text + tail.text,
        head.score + tail.score,
        head.penalised + tail.penalised,
        head.complete and tail.complete,
    )
