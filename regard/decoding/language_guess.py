"""Notice text in the wrong language: a translator translates it all the same, and the result is nonsense.

The guess counts function words, which most sentences contain. It is made only if it is certain: names, titles, numbers,
addresses, single words and mixed text are not judged.
"""

import re
from collections import Counter
from collections.abc import Sequence


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


LANGUAGE_NAMES = {"de": "German", "en": "English", "fr": "French"}
"""The languages that can be recognised, by their codes."""
FUNCTION_WORDS: dict[str, frozenset[str]] = {
    "de": _words(
        "aber alle als am auch auf aus bei bist da das dass dein deine dem den der dich die dir doch ein eine einem "
        "einen einer eines er euch euer für gegen haben habe hast hat ich ihm ihn ihnen ihr ihre im immer ist jetzt "
        "kann kannst kein keine können mein meine mich mir mit nach nein nicht nichts noch nur oder ohne schon sehr "
        "seid sein seine sich sie sind und uns unser unter vom von vor wann war warum wenn werden wie wir wird wo "
        "wurde zum zur zwischen über"
    ),
    "en": _words(
        "about after again all always am an and any anything are aren't be because been before being between but by "
        "can can't could couldn't did didn't do does doesn't doing don't down every everything for from had has "
        "hasn't have haven't he he'd he'll he's her here him his how i'd i'll i'm i've if in into is isn't it it's "
        "its just let's many more most much must my never no not nothing now of only other our out over she she'd "
        "she'll she's should shouldn't so some something than that that's the their them then there there's these "
        "they they'd they'll they're they've this those through to too under until up upon very was wasn't we we'd "
        "we'll we're we've were weren't what what's when where which while who who's why will with without won't "
        "would wouldn't yes yet you you'd you'll you're you've your"
    ),
    "fr": _words(
        "ai alors après au aucun aucune aujourd'hui aussi aux avait avant avec avez avons beaucoup bien car ce cela "
        "ces cet cette ceux chaque chez comme comment dans depuis deux donc dont du elle elles en encore entre et eu "
        "eux fait il ils je jamais la le les leur leurs lui là ma mais mes moi même ne ni nos notre nous où parce pas "
        "pendant peu peut pourquoi pouvez puis quand que quel quelle quelque qui quoi sa sans se ses si sommes sont "
        "sous suis sur ta te tes toi toujours tous tout toute toutes très trop tu une va voici voilà vos votre vous "
        "vont y était étaient été êtes être à"
    ),
}
"""Frequent words of each language that are rare in the others."""
MIN_FUNCTION_WORDS = 2
"""Number of function words without which a language is not certain."""
MIN_SHARE = 0.2
"""Smallest share of function words in a text whose language is certain."""
MIN_RATIO = 4
"""How many times as many function words of one language as of any other make a language certain."""
MAX_CHARACTERS = 2_000
"""Number of characters at the beginning of a text that are read."""

_ADDRESS = re.compile(r"\S*(?:://|@|www\.)\S*")
_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)*")
_ELISION = re.compile(r"(?:[cdjlmnst]|qu|jusqu|lorsqu|puisqu)'")
"""The beginning of a French word before a vowel (l'eau, qu'il)."""
_SENTENCE_END = re.compile(r"[.!?…][\s\"'»”’)]*$")


def other_language(texts: Sequence[str], expected: str | None) -> str | None:
    """The language that more than half of the texts are certainly in, if it is another than expected."""
    if expected not in LANGUAGE_NAMES or not texts:
        return None
    ((language, count),) = Counter(map(guess_language, texts)).most_common(1)
    return language if language != expected and 2 * count > len(texts) else None


def language_warning(texts: Sequence[str], expected: str | None) -> str | None:
    """A warning if the texts are clearly in another language than the one that a model translates from."""
    language = other_language(texts, expected)
    if language is None or expected is None:
        return None
    return (
        f"the text looks like {LANGUAGE_NAMES[language]}, but this model translates from {LANGUAGE_NAMES[expected]}, "
        "so the translation may be nonsense"
    )


def guess_language(text: str) -> str | None:
    """The code of the language of a text if it is certain: de, en or fr.

    >>> guess_language("Hello, how are you?"), guess_language("The Lord of the Rings"), guess_language("Paris")
    ('en', None, None)
    """
    text = _ADDRESS.sub(" ", text[:MAX_CHARACTERS]).replace("’", "'")
    words = _WORD.findall(text)
    counts = {language: sum(_is_function_word(word, language) for word in words) for language in FUNCTION_WORDS}
    best, second, *_ = sorted(counts, key=lambda language: -counts[language])
    certain = counts[best] >= max(MIN_FUNCTION_WORDS, MIN_SHARE * len(words), MIN_RATIO * counts[second])
    return best if certain and not _may_be_title(text, words, best) else None


def _is_function_word(word: str, language: str) -> bool:
    word = word.lower()
    return word in FUNCTION_WORDS[language] or (language == "fr" and _ELISION.match(word) is not None)


def _may_be_title(text: str, words: list[str], language: str) -> bool:
    """Whether a text may be a name such as The Lord of the Rings, which stays as it is in any language."""
    if _SENTENCE_END.search(text):
        return False
    later_capital = any(word[0].isupper() for word in words[1:])
    return later_capital and all(word[0].isupper() or _is_function_word(word, language) for word in words)
