"""What a BLEU was computed on, and what it may be compared with."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

SMALL = 100
"""sentences below which a score says little"""
TOKENISED = 0.1
"""share of lines with the marks of a tokeniser above which a text is taken to be tokenised"""
CASED = 0.01
"""share of lines with a capital below which a text is taken to be lower-cased"""

_TOKENISER = re.compile(
    r" [,.](?= |$)"  # "a cat , asleep ."
    r"|(?<=\w) (?:n't|'(?:s|re|ve|ll|d|m))\b"  # "Marie 's", "do n't"
    r"|\b(?:[cdjlmnst]|qu)' (?=\w)"  # "l' ami"
    r"|@-@|@@(?: |$)|&(?:apos|quot|amp);",
    re.IGNORECASE,
)
_NO_SPACES = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")


@dataclass(frozen=True)
class Known:
    """A test set that is recognised by its references, whatever its file is called."""

    name: str
    called: str
    """pattern of what people call it, in small letters"""
    lines: int
    about: str
    digests: dict[str, str]
    """by language: SHA-256 of its lines, spaces at their ends removed, each with a line feed"""


_MULTI30K = (
    "Most published figures on Multi30k are on lower-cased, tokenised text (multi-bleu.perl): "
    "neither figure here is comparable with those."
)
_NEWS = "WMT's own figures, and those of papers before sacreBLEU, are comparable only where they give this signature."
_OWN = "This split was made for Regard: no published figure is on it."

KNOWN = (
    Known(
        "Multi30k test_2016_flickr",
        r"(multi30k|flickr).*2016|2016.*flickr",
        1_000,
        _MULTI30K,
        {
            "en": "399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182",
            "fr": "57a705a12ffb81f3da3539798bdaaaa8f2df5824de3a84e0f4ea378dab959b62",
            "de": "4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16",
        },
    ),
    Known(
        "Multi30k test_2017_flickr",
        r"(multi30k|flickr).*2017|2017.*flickr",
        1_000,
        _MULTI30K,
        {
            "en": "ce1450ddc5ab0834502579d77a170849952e15a2938b34cc503bdc25ebb4fb98",
            "fr": "57ee019ef4b802206799177fe667097dcd32fd031a92e86938fcbfea97f727f8",
            "de": "c3078bc3b36808bf9d20eb2347ed6137016179ef59ec0d2b9b8ecc3fb2880081",
        },
    ),
    Known(
        "WMT newstest2013",
        r"newstest.?2013|wmt.?(20)?13",
        3_000,
        _NEWS,
        {
            "en": "ace268a1d9724ca76f6d8e5c720ffdc08f01bdce45630ed8b269dc7918e1c16e",
            "fr": "909b63be5df3eb8c13e1d5967bf3f0adfdb9f6ed5e638c5bffff563ee2ff7f41",
            "de": "d7ea35ab91ff3709e03ad9cb6bf5b4f2cc775cd2d72efd5254c4aec5e69663ca",
        },
    ),
    Known(
        "Tatoeba test",
        r"tatoeba",
        1_000,
        _OWN,
        {
            "en": "f655e4e7324abdb121a278f974bf0135b2fcbc18a9485328e021d1d3b28801e2",
            "fr": "65e1fd1aa783a340bbd43cbe343426045c47ff362fcb06a38807f6c6a8f2e3d2",
        },
    ),
    Known(
        "Europarl test",
        r"europarl",
        2_000,
        _OWN,
        {
            "en": "a9478ace0a9cae6f9a831a78c388265806cfba66ca7d5fe2ecd759045a71ea70",
            "fr": "be1d8df03ac8afee23a541ab4727fafb2feef322ff7ee11c7386b53f9ab0d5c0",
        },
    ),
    Known(
        "Petit test",
        r"petit\b.*test",
        1_000,
        _OWN,
        {
            "en": "bd6c62a30af5de51736590b8159627895726e2da445fe1a55e32baec314fbf9c",
            "fr": "b9eb34abeee6debd2be08bea4e8b62bf02889de603a14d11cfb542d16ded2f18",
        },
    ),
    Known(
        "Petit compositional",
        r"petit\b.*compositional",
        1_000,
        _OWN,
        {
            "en": "883035cbd068db18f333d717cd7bcc70b03b2910335445da2f6537b5bb08908a",
            "fr": "66f3020efb23448ef5a15b5c202b31b4cdefa0099e01c13331fb7874c96c1253",
        },
    ),
)
"""Petit's are those of seed 0, as `regard data petit` writes them, however many pairs are asked for"""


@dataclass(frozen=True)
class Note:
    """In plain words: what the figures are on, what they may be compared with, what to doubt."""

    test_set: str
    standard: bool
    """whether the references are all those of a set that is known, and nothing else"""
    comparable: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def text(self) -> str:
        """All of it."""
        return "\n".join([self.test_set, *self.comparable, *self.warnings])


def note_on(outputs: Sequence[str], references: Sequence[Sequence[str]], name: str | None = None) -> Note:
    """The note on a set of outputs and its lists of references; `name` is what the user calls the set."""
    known = recognise(references[0]) if len(references) == 1 else None
    comparable = [
        "Computed for detokenised text: sacreBLEU tokenises both sides itself, BLEU by 13a. Cased where the signature "
        "says case:mixed, lower-cased where it says case:lc.",
        f"May be compared with figures on {'this set' if known else 'the very same lines'}, translated from the same "
        "language, whose signature is the same but for bs and seed, which concern the interval.",
        "May not be compared with BLEU on tokenised text (multi-bleu.perl), nor a cased figure with a lower-cased one.",
    ]
    if known:
        comparable.append(known[0].about)
    warnings = [*_about_name(known, name), *_about_texts("outputs", outputs)]
    for each in references:
        warnings += [warning for warning in _about_texts("references", each) if warning not in warnings]
    if len(outputs) < SMALL:
        warnings.append(f"{len(outputs)} sentences are few: such a score says little. Use {SMALL} or more.")
    return Note(_test_set(known, name, references), known is not None, tuple(comparable), tuple(warnings))


def recognise(references: Sequence[str]) -> tuple[Known, str] | None:
    """The known set and its language that these references are, all of them and unchanged."""
    found = hashlib.sha256("".join(f"{line.strip()}\n" for line in references).encode()).hexdigest()
    for known in KNOWN:
        for language, digest in known.digests.items():
            if digest == found:
                return known, language
    return None


def looks_tokenised(texts: Sequence[str]) -> bool:
    """Whether many lines bear the marks of a tokeniser: a space before a comma, 's or n't, or its @-@ and &apos;."""
    return sum(bool(_TOKENISER.search(text)) for text in texts) > TOKENISED * len(texts)


def looks_lowercased(texts: Sequence[str]) -> bool:
    """Whether lines that could have a capital have none."""
    lettered = [text for text in texts if text.upper() != text.lower()]
    return bool(lettered) and sum(text != text.lower() for text in lettered) < CASED * len(lettered)


def _test_set(known: tuple[Known, str] | None, name: str | None, references: Sequence[Sequence[str]]) -> str:
    if known:
        test_set, language = known
        return f"{test_set.name}, {language}, all {test_set.lines:,} lines: recognised by its references."
    lines = f"{len(references[0]):,} lines" + (f" with {len(references)} references each" if references[1:] else "")
    return f"{name or 'A test set without a name'}, {lines}: not a set known here."


def _about_name(known: tuple[Known, str] | None, name: str | None) -> list[str]:
    """What is wrong with the name that the user gives the set."""
    if name is None:
        return []
    meant = next((each for each in KNOWN if re.search(each.called, name.casefold())), None)
    if meant and not known:
        return [
            f"These are not the {meant.lines:,} references of {meant.name}, though it is called {name}: a part of it, "
            "or changed. No figure on that set may be compared with these."
        ]
    if known and meant and meant is not known[0]:
        return [f"It is called {name}, but its references are those of {known[0].name}."]
    return []


def _about_texts(side: str, texts: Sequence[str]) -> list[str]:
    warnings = []
    if looks_tokenised(texts):
        warnings.append(f"The {side} look tokenised: score detokenised text, or the figure compares with nothing.")
    if looks_lowercased(texts):
        warnings.append(f"The {side} have no capitals: cased figures are not what they seem; see the lower-cased one.")
    letters = sum(character.isalpha() for text in texts for character in text)
    if 2 * len(_NO_SPACES.findall("".join(texts))) > letters:
        warnings.append(f"The {side} are written without spaces, which 13a does not split: trust chrF2++ alone.")
    return warnings
