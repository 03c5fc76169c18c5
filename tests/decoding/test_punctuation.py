"""Final marks, quotation marks and French spaces in translations."""

import time

import pytest

from regard.decoding.punctuation import with_punctuation


@pytest.mark.parametrize(
    ("language", "source", "translation", "expected"),
    [
        ("en", "Appelez après 17h30 ?", "Call after 5:30 p.m.", "Call after 5:30 p.m.?"),
        ("en", "Tu rigoles ?", "You are kidding.", "You are kidding?"),
        ("en", "« Tu rigoles ? »", '"You are kidding."', '"You are kidding?"'),
        ("en", "Ouvert de 9h à 19h.", "Open from 9 a.m. to 7 p.m..", "Open from 9 a.m. to 7 p.m."),
        ("fr", "He will see you at 3 p.m.", "Il vous verra à 15 heures", "Il vous verra à 15 heures."),
        ("fr", "9 a.m.", "9 heures", "9 heures"),
        ("fr", "Help!", "À l'aide", "À l'aide !"),
        ("fr", "Wait...", "Attendez", "Attendez"),
        ("en", "“Pourquoi pas ?” demanda Paul.", 'Why not?" asked Paul.', "“Why not?” asked Paul."),
        ("en", '"A" et "B"', '"A" and "B"', '"A" and "B"'),
        ("fr", "Wait: what?! No; yes!", "Attends: quoi?! Non; oui!", "Attends : quoi ?! Non ; oui !"),
        ("fr", '"Stop!" (now!)', '"Stop!" (maintenant!)', '"Stop !" (maintenant !)'),
        ("fr", "At 10:30", "À 10:30 sur http://a.fr/?b=1;c", "À 10:30 sur http://a.fr/?b=1;c"),
        ("fr", "R&amp;D (?) :)", "R&amp; D (?) :)", "R&amp; D (?) :)"),
        ("de", "Really? Yes!", "Wirklich? Ja!", "Wirklich? Ja!"),
        ("xx", "Really?", "Vraiment:", "Vraiment:"),
        (None, "Really?", "Vraiment:", "Vraiment:"),
        ("en", "Quoi ?", "", ""),
    ],
)
def test_translations_are_punctuated_as_their_sources(
    language: str | None, source: str, translation: str, expected: str
) -> None:
    corrected = with_punctuation(translation, source, language)
    assert corrected == expected
    assert with_punctuation(corrected, source, language) == expected


def test_a_part_of_a_sentence_gets_no_final_mark() -> None:
    source = "The meeting was moved from 9 a.m."
    assert with_punctuation("La réunion a été déplacée de 9h", source, "fr", ends_sentence=False)[-2:] == "9h"
    assert with_punctuation("La réunion a été déplacée de 9h", source, "fr")[-3:] == "9h."


@pytest.mark.parametrize("part", ["a", "!", "a!", ". ", "a. ", '"', ")", ":", "a.m. "])
def test_long_texts_take_linear_time(part: str) -> None:
    text = part * (10**6 // len(part))
    begin = time.perf_counter()
    with_punctuation(text, text, "fr")
    assert time.perf_counter() - begin < 30  # a quadratic search takes hours
