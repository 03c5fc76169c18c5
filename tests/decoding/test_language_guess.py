"""The guess of a text's language: certain about sentences, silent about names, titles, numbers and mixed text."""

import gzip
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.decoding.language_guess import (
    LANGUAGE_NAMES,
    SCRIPT_NAMES,
    guess_language,
    language_warning,
    other_language,
    other_script,
)
from tests.support.real_data import REAL_DATA

DATA = REAL_DATA / "data"
SENTENCES = {
    "en": [
        "Hello, how are you?",
        "Where is the station?",
        "If I had known, I would not have come.",
        "where have you been all this time",
        "The weather is nice today, isn’t it?",
    ],
    "fr": [
        "Si j'avais su, je ne serais pas venu.",
        "Où est-ce que vous allez ?",
        "L'eau de la rivière n'est pas froide.",
        "il fait beau et nous sommes dans le jardin",
        "Je ne t'aime pas.",
    ],
    "de": [
        "Guten Tag, wie geht es Ihnen?",
        "Wo ist der Bahnhof?",
        "Ich habe das nicht gewusst.",
        "Wir gehen mit den Kindern nach Hause.",
    ],
}
OTHER_LANGUAGES = [
    "Ella va a la escuela en tren.",
    "Tu es la mejor.",
    "¿Dónde está la estación?",
    "La casa de mi madre es grande.",
    "L'uomo c'era una volta.",
    "Dove sono le chiavi della macchina?",
    "Tu sei la mia amica.",
    "Não sei onde ele está.",
    "A casa é muito grande.",
    "We zijn in de tuin.",
    "Waar is het station?",
    "Hvor er den?",
    "Jag är i trädgården.",
]
NOT_JUDGED = [
    "d'Artagnan l'ami",
    "L'Aquila l'arte",
    "Un gardien de but protège le but.",
    "",
    "Paris",
    "the",
    "OK",
    "42",
    "3,14 × 10⁵",
    "iPhone 15 Pro Max",
    "Jean-Pierre Dupont",
    "The Beatles",
    "The Lord of the Rings",
    "Back to the Future",
    "Who Are You",
    "Bank of America",
    "https://example.org/what/is/the/of",
    "Écrivez à who.is@example.org",
    "Game of Thrones est une série.",
    "Le mot Москва s'écrit en cyrillique.",
    "α + β = γ",
    "µg",
    "😀 ❤️",
    "Il a vu le film The Lord of the Rings.",
    "« How to be happy », c'est le titre.",
]


@pytest.mark.parametrize(("language", "text"), [(code, text) for code, texts in SENTENCES.items() for text in texts])
def test_sentences_are_recognised(language: str, text: str) -> None:
    assert guess_language(text) == language


@pytest.mark.parametrize("text", OTHER_LANGUAGES)
def test_other_languages_are_not_taken_for_english_french_or_german(text: str) -> None:
    assert guess_language(text) not in ("de", "en", "fr")


@pytest.mark.parametrize("text", NOT_JUDGED)
def test_names_titles_and_short_texts_are_not_judged_as_another_language(text: str) -> None:
    assert other_language([text], "fr") is None


def test_a_warning_names_both_languages() -> None:
    warning = language_warning(["Hello, how are you?"], "fr")
    assert warning is not None
    assert "looks like English, but this model translates from French" in warning
    assert language_warning(["Wo ist der Bahnhof?"], "en") is not None
    assert language_warning(["Le chat dort sur la table."], "fr") is None


@pytest.mark.parametrize(
    ("text", "letters"),
    [
        ("Где находится вокзал?", "Cyrillic letters"),
        ("שלום, מה שלומך?", "Hebrew letters"),
        ("مرحبا Paul", "Arabic letters"),
        ("你好吗？", "Chinese characters"),
        ("これはペンです", "Japanese characters"),
        ("東京駅前の天気予報", "Japanese characters"),
        ("ｺｰﾋｰを飲む", "Japanese characters"),
        ("안녕하세요", "Korean letters"),
    ],
)
def test_a_warning_names_another_script(text: str, letters: str) -> None:
    warning = language_warning([text], "fr")
    assert warning is not None
    assert f"is written in {letters}, but this model translates from French" in warning


@pytest.mark.parametrize("expected", [None, "fra_Latn", "ja"])
def test_models_of_unknown_languages_get_no_warning(expected: str | None) -> None:
    assert other_language(SENTENCES["en"], expected) is None


def test_the_documentation_names_all_languages_that_are_recognised() -> None:
    root = Path(__file__).parents[2]
    pages = {name: (root / name).read_text(encoding="utf-8") for name in ("docs/models.md", "CHANGELOG.md")}
    for name, text in pages.items():
        listed = re.search(
            r"(?:It recognises|translates from \()\s*([^.]*?)(?:, and text in|\s+are\s+recognised)", text
        )
        assert listed, name
        assert set(re.split(r",\s+|\s+and\s+", listed[1])) == set(LANGUAGE_NAMES.values()), name


def test_most_lines_of_a_file_must_be_in_the_other_language() -> None:
    english, french = SENTENCES["en"][:2], SENTENCES["fr"][:2]
    assert other_language([*english, *french], "fr") is None
    assert other_language([*english, french[0]], "fr") == "en"
    assert other_language([*english, "1", "2"], "fr") is None
    assert other_language(["", *english, " ", ""], "fr") == "en"
    assert other_language([], "fr") is None


@pytest.mark.skipif(not DATA.is_dir(), reason="the real corpora are not there (REGARD_REAL_DATA)")
@pytest.mark.parametrize("language", ["de", "en", "fr"])
def test_the_length_of_a_text_does_not_matter(language: str) -> None:
    """Long texts repeat their function words."""
    lines = (DATA / f"newstest/newstest2013.{language}").read_text(encoding="utf-8").splitlines()
    paragraphs = [" ".join(lines[start : start + 8]) for start in range(0, len(lines), 8)]
    guesses = [guess_language(paragraph) for paragraph in paragraphs]
    assert set(guesses) <= {None, language}
    assert guesses.count(language) > 0.9 * len(paragraphs)


@given(st.text())
def test_any_text_is_accepted(text: str) -> None:
    assert guess_language(text) in {None, *LANGUAGE_NAMES}
    assert other_script(text) in {None, *SCRIPT_NAMES}


def real_sentences(language: str) -> list[str]:
    """Tatoeba, newstest2013, Europarl and Multi30k: sentences on which neither words nor limits were chosen singly."""
    column = {"en": 0, "fr": 1}
    lines: list[str] = []
    if language in column:
        for part in ("dev", "test"):
            tatoeba = (DATA / f"tatoeba/{part}.en-fr.tsv").read_text(encoding="utf-8")
            lines += [row.split("\t")[column[language]] for row in tatoeba.splitlines()]
            lines += (DATA / f"europarl/{part}.fr-en.{language}").read_text(encoding="utf-8").splitlines()
    lines += (DATA / f"newstest/newstest2013.{language}").read_text(encoding="utf-8").splitlines()
    for year in ("2016", "2017"):
        packed = Path(DATA / f"multi30k/test_{year}_flickr.{language}.gz").read_bytes()
        lines += gzip.decompress(packed).decode().splitlines()
    return lines


@pytest.mark.skipif(not DATA.is_dir(), reason="the real corpora are not there (REGARD_REAL_DATA)")
@pytest.mark.parametrize(("language", "found"), [("de", 0.6), ("en", 0.8), ("fr", 0.65)])
def test_real_sentences(language: str, found: float) -> None:
    """At most one false alarm in 1,000 sentences, whatever language a model expects."""
    guesses = [guess_language(text) for text in real_sentences(language)]
    assert sum(guess not in (None, language) for guess in guesses) <= len(guesses) / 1000
    assert sum(guess == language for guess in guesses) >= found * len(guesses)
