"""What a BLEU score was computed on, and what it may be compared with."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

MIN_SENTENCES = 100
"""Number of sentences below which a score is too noisy to mean much."""
TOKENISED_SHARE = 0.1
"""A text counts as tokenised if more than this share of its lines has the marks of a tokeniser."""
CASED_SHARE = 0.01
"""A text counts as lower-cased if less than this share of its lines has a capital."""

_TOKENIZER_MARKS = re.compile(
    r" [,.](?= |$)"  # "a cat , asleep ."
    r"|(?<=\w) (?:n't|'(?:s|re|ve|ll|d|m))\b"  # "Marie 's", "do n't"
    r"|\b(?:[cdjlmnst]|qu)' (?=\w)"  # "l' ami"
    r"|@-@|@@(?: |$)|&(?:apos|quot|amp);",
    re.IGNORECASE,
)
_NO_SPACES = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")


@dataclass(frozen=True)
class KnownTestSet:
    """A test set that is recognised by its references, whatever its file is called."""

    name: str
    name_pattern: str
    """Regular expression of the names people give it, in lower case."""
    lines: int
    about: str
    digests: dict[str, str]
    """For each language, the SHA-256 of its lines, stripped and each followed by a line feed."""


_MULTI30K_NOTE = (
    "Most published figures on Multi30k were computed on lower-cased, tokenised text (multi-bleu.perl): "
    "they are not comparable with the figures here."
)
_WMT_NOTE = "WMT's own figures, and those of papers before sacreBLEU, are comparable only if they give this signature."
_OWN_SPLIT_NOTE = "This split was made for Regard: there are no published figures on it."

KNOWN_TEST_SETS = (
    KnownTestSet(
        "Multi30k test_2016_flickr",
        r"(multi30k|flickr).*2016|2016.*flickr",
        1_000,
        _MULTI30K_NOTE,
        {
            "en": "399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182",
            "fr": "57a705a12ffb81f3da3539798bdaaaa8f2df5824de3a84e0f4ea378dab959b62",
            "de": "4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16",
        },
    ),
    KnownTestSet(
        "Multi30k test_2017_flickr",
        r"(multi30k|flickr).*2017|2017.*flickr",
        1_000,
        _MULTI30K_NOTE,
        {
            "en": "ce1450ddc5ab0834502579d77a170849952e15a2938b34cc503bdc25ebb4fb98",
            "fr": "57ee019ef4b802206799177fe667097dcd32fd031a92e86938fcbfea97f727f8",
            "de": "c3078bc3b36808bf9d20eb2347ed6137016179ef59ec0d2b9b8ecc3fb2880081",
        },
    ),
    KnownTestSet(
        "WMT newstest2013",
        r"newstest.?2013|wmt.?(20)?13",
        3_000,
        _WMT_NOTE,
        {
            "en": "ace268a1d9724ca76f6d8e5c720ffdc08f01bdce45630ed8b269dc7918e1c16e",
            "fr": "909b63be5df3eb8c13e1d5967bf3f0adfdb9f6ed5e638c5bffff563ee2ff7f41",
            "de": "d7ea35ab91ff3709e03ad9cb6bf5b4f2cc775cd2d72efd5254c4aec5e69663ca",
        },
    ),
    KnownTestSet(
        "Tatoeba test",
        r"tatoeba",
        1_000,
        _OWN_SPLIT_NOTE,
        {
            "en": "f655e4e7324abdb121a278f974bf0135b2fcbc18a9485328e021d1d3b28801e2",
            "fr": "65e1fd1aa783a340bbd43cbe343426045c47ff362fcb06a38807f6c6a8f2e3d2",
        },
    ),
    KnownTestSet(
        "Europarl test",
        r"europarl",
        2_000,
        _OWN_SPLIT_NOTE,
        {
            "en": "a9478ace0a9cae6f9a831a78c388265806cfba66ca7d5fe2ecd759045a71ea70",
            "fr": "be1d8df03ac8afee23a541ab4727fafb2feef322ff7ee11c7386b53f9ab0d5c0",
        },
    ),
    KnownTestSet(
        "Petit test",
        r"petit\b.*test",
        1_000,
        _OWN_SPLIT_NOTE,
        {
            "en": "bd6c62a30af5de51736590b8159627895726e2da445fe1a55e32baec314fbf9c",
            "fr": "b9eb34abeee6debd2be08bea4e8b62bf02889de603a14d11cfb542d16ded2f18",
        },
    ),
    KnownTestSet(
        "Petit compositional",
        r"petit\b.*compositional",
        1_000,
        _OWN_SPLIT_NOTE,
        {
            "en": "883035cbd068db18f333d717cd7bcc70b03b2910335445da2f6537b5bb08908a",
            "fr": "66f3020efb23448ef5a15b5c202b31b4cdefa0099e01c13331fb7874c96c1253",
        },
    ),
)
"""The test sets that are recognised. Petit's are the files that `regard data petit` writes with seed 0."""


@dataclass(frozen=True)
class ComparabilityNote:
    """What the scores were computed on, what they may be compared with, and what makes them doubtful."""

    test_set: str
    standard: bool
    """Whether the references are exactly those of a known test set."""
    comparable: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def text(self) -> str:
        """The complete note, one sentence per line."""
        return "\n".join([self.test_set, *self.comparable, *self.warnings])


def comparability_note(
    outputs: Sequence[str], references: Sequence[Sequence[str]], name: str | None = None
) -> ComparabilityNote:
    """The note for outputs and their lists of references; `name` is the user's name for the test set."""
    known = recognise(references[0]) if len(references) == 1 else None
    comparable = [
        "Computed on detokenised text: sacreBLEU tokenises both sides itself (13a for BLEU). Cased if the signature "
        "says case:mixed, lower-cased if it says case:lc.",
        f"Comparable with figures on {'this test set' if known else 'exactly the same lines'} and source language that "
        "have the same signature; bs and seed may differ, they only affect the interval.",
        "Not comparable with BLEU on tokenised text (multi-bleu.perl), nor cased with lower-cased figures.",
    ]
    if known:
        comparable.append(known[0].about)
    warnings = [*_name_warnings(known, name), *_text_warnings("outputs", outputs)]
    for texts in references:
        warnings += [warning for warning in _text_warnings("references", texts) if warning not in warnings]
    if len(outputs) < MIN_SENTENCES:
        warnings.append(
            f"A score on {len(outputs)} sentences is too noisy to mean much. Use {MIN_SENTENCES} sentences or more."
        )
    return ComparabilityNote(
        _describe_test_set(known, name, references), known is not None, tuple(comparable), tuple(warnings)
    )


def recognise(references: Sequence[str]) -> tuple[KnownTestSet, str] | None:
    """The known test set and language with exactly these references, if there is one."""
    digest = hashlib.sha256("".join(f"{line.strip()}\n" for line in references).encode()).hexdigest()
    for known in KNOWN_TEST_SETS:
        for language, known_digest in known.digests.items():
            if known_digest == digest:
                return known, language
    return None


def looks_tokenised(texts: Sequence[str]) -> bool:
    """Whether many lines have the marks of a tokeniser: a space before a comma, 's or n't, or its @-@ and &apos;."""
    return sum(bool(_TOKENIZER_MARKS.search(text)) for text in texts) > TOKENISED_SHARE * len(texts)


def looks_lowercased(texts: Sequence[str]) -> bool:
    """Whether almost no line that could have a capital has one."""
    with_letters = [text for text in texts if text.upper() != text.lower()]
    return bool(with_letters) and sum(text != text.lower() for text in with_letters) < CASED_SHARE * len(with_letters)


def _describe_test_set(
    known: tuple[KnownTestSet, str] | None, name: str | None, references: Sequence[Sequence[str]]
) -> str:
    if known:
        test_set, language = known
        return f"{test_set.name}, {language}, all {test_set.lines:,} lines: recognised by its references."
    lines = f"{len(references[0]):,} lines" + (f" with {len(references)} references each" if references[1:] else "")
    return f"{name or 'An unnamed test set'}, {lines}: not a known test set."


def _name_warnings(known: tuple[KnownTestSet, str] | None, name: str | None) -> list[str]:
    """Warn if the user's name for the test set does not match its references."""
    if name is None:
        return []
    named = next((test_set for test_set in KNOWN_TEST_SETS if re.search(test_set.name_pattern, name.casefold())), None)
    if named and not known:
        return [
            f"The name {name} suggests {named.name}, but these are not its {named.lines:,} references: the set is "
            "incomplete or changed. Do not compare with figures on that set."
        ]
    if known and named and named is not known[0]:
        return [f"The name is {name}, but the references are those of {known[0].name}."]
    return []


def _text_warnings(side: str, texts: Sequence[str]) -> list[str]:
    warnings = []
    if looks_tokenised(texts):
        warnings.append(f"The {side} look tokenised: score detokenised text, or the scores are not comparable.")
    if looks_lowercased(texts):
        warnings.append(f"The {side} have no capitals: cased scores are misleading; use the lower-cased score.")
    letters = sum(character.isalpha() for text in texts for character in text)
    if 2 * len(_NO_SPACES.findall("".join(texts))) > letters:
        warnings.append(f"The {side} have no spaces between words, and 13a does not split them: use chrF2++ only.")
    return warnings
