"""Notice text in the wrong language: a translator translates it all the same, and the result is nonsense.

The guess counts function words, which most sentences contain, or letters that Latin script does not have. It is made
only if it is certain: names, titles, numbers, addresses, single words in Latin script and mixed text are not judged.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from unicodedata import name


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


LANGUAGE_NAMES = {
    "de": "German",
    "en": "English",
    "es": "Spanish",
    "fr": "French",
    "it": "Italian",
    "nl": "Dutch",
    "pt": "Portuguese",
}
"""The languages that can be recognised, by their codes. All of them are written in Latin script."""
SCRIPT_NAMES = {
    "ARABIC": "Arabic letters",
    "ARMENIAN": "Armenian letters",
    "BENGALI": "Bengali letters",
    "CJK": "Chinese characters",
    "CYRILLIC": "Cyrillic letters",
    "DEVANAGARI": "Devanagari letters",
    "ETHIOPIC": "Ethiopic letters",
    "GEORGIAN": "Georgian letters",
    "GREEK": "Greek letters",
    "HANGUL": "Korean letters",
    "HEBREW": "Hebrew letters",
    "JAPANESE": "Japanese characters",
    "KHMER": "Khmer letters",
    "MYANMAR": "Burmese letters",
    "TAMIL": "Tamil letters",
    "TELUGU": "Telugu letters",
    "THAI": "Thai letters",
}
"""Other scripts, by the first word of the Unicode names of their letters."""
KANA = frozenset({"HALFWIDTH", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA"})
"""The first words of the names of letters that only Japanese has."""
FUNCTION_WORDS: dict[str, frozenset[str]] = {
    "de": _words(
        "aber alle als am auch auf aus bei bin bist da dann das dass dein deine dem den der dich die dir doch "
        "ein eine einem einen einer eines er es euch euer für gegen geht gibt gut habe haben hast hat hier ich ihm "
        "ihn ihnen ihr ihre im immer ist jetzt kann kannst kein keine können mehr mein meine mich mir mit muss "
        "nach nein nicht nichts noch nur oder ohne schon sehr seid sein seine sich sie sind und uns unser unter "
        "viel vom von vor wann war warum weil wenn werden wie wir wird wo wollen wurde zum zur zwischen über"
    ),
    "en": _words(
        "about after again all always am an and any anything are aren't be because been before being between but "
        "by can can't could couldn't did didn't do does doesn't doing don't down every everything for from had has "
        "hasn't have haven't he he'd he'll he's her here him his how i'd i'll i'm i've if in into is isn't it it's "
        "its just let's many more most much must my never no not nothing now of only other our out over she she'd "
        "she'll she's should shouldn't so some something than that that's the their them then there there's these "
        "they they'd they'll they're they've this those through to too under until up upon very was wasn't we we'd "
        "we'll we're we've were weren't what what's when where which while who who's why will with without won't "
        "would wouldn't yes yet you you'd you'll you're you've your"
    ),
    "es": _words(
        "al algo alguien allí aquel aquí así año años bien cada casi como con cosa cuando cuándo cuánto cómo del "
        "desde donde dos dónde el ella ellas ellos en entre era eres es esa ese eso esta estaba estamos estas este "
        "esto estos estoy está están fue gran ha hace han hasta hay la las lo los mi mis muy más nada ni nos "
        "nosotros nuestra nuestro nunca otra otro para pero poco por porque puede puedo que quien quiero quién qué "
        "se sea ser si siempre sin sobre soy su sus sí también te tengo tiene tienes todo todos tu tus tú un una "
        "unos usted va vamos voy y ya yo él"
    ),
    "fr": _words(
        "ai alors après au aucun aucune aujourd'hui aussi aux avait avant avec avez avons beaucoup bien c'est car "
        "ce cela ces cet cette ceux chaque chez comme comment dans depuis des deux dit donc dont du elle elles en "
        "encore entre est et eu eux fait il ils jamais je la le les leur leurs lui là ma mais mes moi mon même "
        "n'est ne ni nos notre nous ont où par parce pas pendant peu peut plus pour pourquoi pouvez puis quand que "
        "quel quelle quelque qui quoi sa sans se ses si sommes son sont sous suis sur ta te tes toi ton toujours "
        "tous tout toute toutes trop très tu une va voici voilà vont vos votre vous y à étaient était été êtes "
        "être"
    ),
    "it": _words(
        "abbiamo ai al alla alle anche ancora avere bene c'era c'è che chi ci come con cosa così cosí da dal dalla "
        "dei del della delle di dopo dove due e ed era essere fa fare gli grazie ha hai hanno ho il io la lei lo "
        "loro lui ma mai mi mia mio molto nel nella nelle noi non nostra nostro ogni per perché più poi può qual "
        "quale quando quanto quella quello questa questo qui sai se sei sempre senza si sia siamo solo sono sta "
        "stato sto su sua sul sulla suo tra tu tua tuo tutti tutto un un' una uno va vi voi volta è"
    ),
    "nl": _words(
        "aan al alle als altijd ben bent bij daar dan dat deze die dit doen door dus een en er gaan geen goed haar "
        "hebben hebt heeft hem het hij hoe hun ik ja je jij jullie kan kunnen maar meer met mij mijn moet naar "
        "niet niets nog nooit nu om omdat onder ons onze ook op te toen tot u uit uw van veel voor waar waarom "
        "wanneer want waren wat wel welke wie wij wil worden zal ze zich zij zijn zo zonder zou"
    ),
    "pt": _words(
        "ainda ao aos aqui até bem com como da das dele depois dois dos e ela elas ele eles em entre era essa esse "
        "esta estamos estava este estou está estão eu foi gosto ha há isso isto já lhe mais mas mesmo meu minha "
        "muito na nada nas nem nos nossa nosso nunca não nós onde os ou para pela pelo pode por porque posso "
        "quando que quem quero quê se sem sempre ser seu seus sim sobre sou sua são só também te tem temos tenho "
        "ter tinha toda todos tu tudo um uma vai vamos você vocês vou à às é"
    ),
}
"""Frequent words of each language."""
_LANGUAGES_OF_WORD = Counter(word for words in FUNCTION_WORDS.values() for word in words)
DISTINCTIVE_WORDS = {
    language: frozenset(word for word in words if _LANGUAGES_OF_WORD[word] == 1)
    for language, words in FUNCTION_WORDS.items()
}
"""Frequent words of each language that are not in another list: *la* may be French, Spanish or Italian."""
MIN_FUNCTION_WORDS = 2
"""Number of function words without which a language is not certain."""
MIN_SHARE = 0.2
"""Smallest share of function words in a text whose language is certain."""
MIN_RATIO = 4
"""How many times as many function words of one language as of any other make a language certain."""
MAX_CHARACTERS = 2_000
"""Number of characters at the beginning of a text that are read."""

_ADDRESS = re.compile(r"(?<!\S)\S*(?:://|@|www\.)\S*")
_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)*")
_ELISION = re.compile(r"(?:[jn]|qu|jusqu|lorsqu|puisqu)'")
"""The beginning of a French word before a vowel (qu'il) that Italian does not have, unlike l'eau."""
_SENTENCE_END = re.compile(r"[.!?…][\s\"'»”’)]*$")


def other_language(texts: Sequence[str], expected: str | None) -> str | None:
    """The language or script that more than half of the texts are certainly in, if it is another than expected."""
    texts = [text for text in texts if text.strip()]
    if expected not in LANGUAGE_NAMES or not texts:
        return None
    ((language, count),) = Counter(other_script(text) or guess_language(text) for text in texts).most_common(1)
    return language if language != expected and 2 * count > len(texts) else None


def language_warning(texts: Sequence[str], expected: str | None) -> str | None:
    """A warning if the texts are clearly in another language than the one that a model translates from."""
    language = other_language(texts, expected)
    return None if language is None or expected is None else describe_other_language(language, expected)


def describe_other_language(language: str, expected: str) -> str:
    """The text of a warning, about a language or a script."""
    is_script = language in SCRIPT_NAMES
    found = f"is written in {SCRIPT_NAMES[language]}" if is_script else f"looks like {LANGUAGE_NAMES[language]}"
    return (
        f"the text {found}, but this model translates from {LANGUAGE_NAMES[expected]}, "
        "so the translation may be nonsense"
    )


def first_language(about: Mapping[str, Any]) -> str | None:
    """The first language in the metadata of a model, which it translates from."""
    languages = about.get("languages")
    first = languages[0] if isinstance(languages, list) and languages else None
    return first if isinstance(first, str) else None


def second_language(about: Mapping[str, Any]) -> str | None:
    """The second of two languages in the metadata of a model, which it translates to."""
    languages = about.get("languages")
    second = languages[1] if isinstance(languages, list) and len(languages) == 2 else None
    return second if isinstance(second, str) else None


def guess_language(text: str) -> str | None:
    """The code of the language of a text if it is certain.

    >>> guess_language("Hello, how are you?"), guess_language("The Lord of the Rings"), guess_language("Paris")
    ('en', None, None)
    """
    text = _ADDRESS.sub(" ", text[:MAX_CHARACTERS]).replace("’", "'")
    words = _WORD.findall(text)
    different = {word.lower() for word in words}
    counts = {language: sum(_is_function_word(word, language) for word in different) for language in FUNCTION_WORDS}
    best, second, *_ = sorted(counts, key=lambda language: -counts[language])
    is_certain = counts[best] >= max(MIN_FUNCTION_WORDS, MIN_RATIO * counts[second]) and sum(
        _is_function_word(word, best) for word in words
    ) >= MIN_SHARE * len(words)
    return best if is_certain and not _may_be_title(text, words, best) else None


def other_script(text: str) -> str | None:
    """The script of most letters of a text, if it is not Latin script. Single letters are not counted.

    >>> other_script("Привет, Paul!"), other_script("今日は"), other_script("Visitez Москва"), other_script("α + β")
    ('CYRILLIC', 'JAPANESE', None, None)
    """
    words = [word for word in _WORD.findall(text[:MAX_CHARACTERS]) if len(word) > 1]
    scripts = Counter(name(letter, "").partition(" ")[0] for word in words for letter in word)
    if scripts.keys() & KANA:  # Japanese has Chinese characters too
        scripts["JAPANESE"] = sum(scripts.pop(script, 0) for script in (*KANA, "CJK"))
    others = Counter({script: count for script, count in scripts.items() if script in SCRIPT_NAMES})
    return others.most_common(1)[0][0] if 2 * others.total() > scripts.total() else None


def _is_function_word(word: str, language: str) -> bool:
    word = word.lower()
    return word in DISTINCTIVE_WORDS[language] or (language == "fr" and _ELISION.match(word) is not None)


def _may_be_title(text: str, words: list[str], language: str) -> bool:
    """Whether a text may be a name such as The Lord of the Rings, which stays as it is in any language."""
    if _SENTENCE_END.search(text):
        return False
    later_capital = any(word[0].isupper() for word in words[1:])
    return later_capital and all(word[0].isupper() or _is_function_word(word, language) for word in words)
