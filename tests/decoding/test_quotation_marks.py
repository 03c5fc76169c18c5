"""Quotation marks in translations: as many as in the source, in one style."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

import regard
from regard.decoding.quotation_marks import (
    count_missing_marks,
    quotation_marks,
    quoted_phrases,
    with_other_marks,
    with_quotation_marks,
    with_quoted_phrases,
    with_straight_marks,
)

TRANSLATED: list[tuple[str | None, str, str, str]] = [
    ("en", 'Le mot "oui".', "The word 'yes'.", 'The word "yes".'),
    ("en", "Le mot « oui ».", 'The word " yes".', 'The word "yes".'),
    ("en", "Le mot “oui”.", "The word 'yes'.", "The word “yes”."),
    ("en", "Le mot „oui“.", 'The word "yes".', "The word “yes”."),
    ("en", "Le mot 'oui'.", "The word 'yes'.", "The word 'yes'."),
    ("fr", 'The word "yes".', "Le mot « oui ».", 'Le mot "oui".'),
    ("fr", "The word “yes”.", 'Le mot "oui".', "Le mot « oui »."),
    ("fr", "The word ‘yes’.", "Le mot «oui».", "Le mot « oui »."),
    ("fr", "The word 'yes'.", "Le mot « oui ».", 'Le mot "oui".'),
    ("en", 'les "chats" et les “chiens”', "the 'cats' and the 'dogs'", 'the "cats" and the “dogs”'),
    ("en", "il a dit : « elle a crié “au feu” »", 'he said, "she cried "fire""', "he said, \"she cried 'fire'\""),
    ("fr", "“She said ‘no’ to me”", "\"Elle m'a dit 'non'\"", "« Elle m'a dit “non” »"),
    ("fr", "\"She said 'no' to me\"", "« Elle m'a dit “non” »", "\"Elle m'a dit 'non'\""),
    ("en", 'les "bols des chiens"', "the 'dogs' bowls'", 'the "dogs\' bowls"'),
    ("en", '"Les années 90", dit-il.', "'The '90s,' he said.", '"The \'90s," he said.'),
    ("de", 'le "mot"', "das „Wort“", "das „Wort“"),
    (None, 'le "mot"', "the 'word'", "the 'word'"),
]
RESTORED: list[tuple[str | None, str, str, str]] = [
    ("en", '"Pourquoi ?" dit-il.', 'Why?" he said.', '"Why?" he said.'),
    ("en", "« Elle m'a dit “non”. »", "\"She told me 'no'.", "\"She told me 'no'.\""),
    ("en", 'On l\'appelle "le Roi".', 'He is called "the King.', 'He is called "the King".'),
    ("en", "\"Pour l'heure, rien.", "'At the moment, nothing.", '"At the moment, nothing.'),
    ("en", "Il n'y a rien\", dit-il.", "There is nothing', he said.", 'There is nothing", he said.'),
    ("en", 'ce " mot vide " ici', "this ' empty word' here", 'this "empty word" here'),
]
LEFT = [
    ("Le chien s'appelle \"Rex.", "The dog's called \"Rex."),
    ('un écran de 24" et un mètre', "a 24\" screen and the dogs' meter"),
    ("Il mesure 5' 10\".", "He's 5' 10\" tall."),
    ("Ne dis pas ça.", "Don't say 'that'."),
    ("Le \"roi\" du rock 'n' roll", "The \"king\" of rock 'n' roll, y'all"),
    ('Les "bols" des chiens', "The dogs' \"bowls\" in the cats' house"),
    ('l"eau et d"autres', "water and others' water"),
    ('Le signe " ferme un texte.', 'The character " ends a text.'),
    ('Le signe " ferme un "mot".', 'The character " ends a "word".'),
    ("", 'a "word"'),
    ('un "mot"', ""),
]


@pytest.mark.parametrize(("language", "source", "translation", "expected"), TRANSLATED + RESTORED)
def test_a_translation_has_the_marks_of_its_source(
    language: str | None, source: str, translation: str, expected: str
) -> None:
    assert with_quotation_marks(translation, source, language) == expected
    assert with_quotation_marks(expected, source, language) == expected


@pytest.mark.parametrize(("source", "translation"), LEFT)
def test_what_is_no_quotation_mark_is_left(source: str, translation: str) -> None:
    assert with_quotation_marks(translation, source, "en") == translation


@pytest.mark.parametrize(
    ("source", "translation", "missing"),
    [
        ('le "mot"', "the word", 2),
        ('le "mot"', "the 'word'", 0),
        ("« oui » et « non »", 'yes" and "no"', 0),
        ("« oui » et « non »", "yes and “no”", 2),
        ("l'oui et l'5' 10\"", "yes", 0),
    ],
)
def test_missing_marks_are_counted(source: str, translation: str, missing: int) -> None:
    assert count_missing_marks(translation, source) == missing


def test_quoted_phrases_that_are_in_a_translation_once_get_marks() -> None:
    source = "Le « prix » du « chat » et du «\u00a0chien\u00a0»"
    assert quoted_phrases(source) == ["prix", "chat", "chien"]
    phrases = {"prix": "Price", "chat": "cat", "chien": "dog"}
    assert with_quoted_phrases("The cat price of a cat", source, phrases) == 'The cat "price" of a cat'
    assert with_quoted_phrases('The price of a "cat"', source, phrases) == 'The price of a "cat"'


@given(
    st.text("ab's \"“”«»‘’.\u00a0", max_size=40), st.text("ab's \"“”«»‘’.", max_size=40), st.sampled_from(["en", "fr"])
)
def test_only_marks_and_spaces_change(source: str, translation: str, language: str) -> None:
    changed = with_quotation_marks(translation, source, language)
    assert _letters(changed) == _letters(translation)
    for rewritten in (with_straight_marks(source), with_other_marks(source)):
        assert _letters(rewritten) == _letters(source)


def _letters(text: str) -> str:
    return re.sub(r"[^\w.]", "", text)


@given(st.text("ab's \"“”«»‘’.", max_size=40))
def test_every_mark_is_found_once(text: str) -> None:
    for pairs_only in (True, False):
        starts = [mark.start for mark in quotation_marks(text, pairs_only)]
        assert starts == sorted(set(starts))
        assert all(text[start] in "'\"“”„«»‘’" for start in starts)


@pytest.mark.parametrize("part", ["'a", "'a ", "a' ", "s' b", "‘", '"a" ', "«", "» ", "'a's ", ".", "!", " ", '"!'])
def test_long_texts_take_linear_time(part: str) -> None:
    text = '"' + part * (10**6 // len(part)) + 'a"'
    begin = time.perf_counter()
    with_quotation_marks(text[:-1], text, "fr")
    count_missing_marks("a", text)
    with_straight_marks(text)
    assert time.perf_counter() - begin < 30  # a quadratic search takes hours


@pytest.mark.parametrize(
    ("name", "source", "pattern"),
    [
        ("fr-en", 'Le mot "liberté" est important.', r'[^"\']* "[^"\' ]+" [^"\']*'),
        ("fr-en", "Le président a parlé d'une « nouvelle ère » pour le pays.", r'[^"\']* "[^"\']+" [^"\']*'),
        ("fr-en", "On l'appelle “le Roi” dans le quartier.", r"[^\"']* “[^\"' ]+ [^\"' ]+” [^\"']*"),
        ("en-fr", 'The newspaper "Le Monde" published the article.', r'Le [^"«]* "Le Monde" [^"»]*'),
        ("en-fr", "The president spoke of a “new era” for the country.", r'[^"«]* « [^"«]+ » [^"»]*'),
        ("en-fr", "\"I'm tired. I'm going to bed,\" he said.", r'"[^"«»]+", [^"«»]+'),
    ],
)
def test_bundled_models_keep_quotation_marks(name: str, source: str, pattern: str) -> None:
    translation = regard.load(name).translate(source)
    assert re.fullmatch(pattern, translation), translation
