"""Spoken forms and abbreviations are written out before a text is translated."""

import re
import time

import pytest

import regard
from regard.decoding import informal_spellings
from regard.decoding.informal_spellings import written_out

TABLES = {
    "fr": informal_spellings._FRENCH_WORDS,
    "en": informal_spellings._ENGLISH_WORDS | informal_spellings._ENGLISH_ABBREVIATIONS,
}


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("fr", "J'sais pas.", "Je sais pas."),
        ("fr", "J’peux pas, j'te l'jure !", "Je peux pas, je te le jure !"),
        ("fr", "Tu t'souviens qu't'avais faim ?", "Tu te souviens que t'avais faim ?"),
        ("fr", "T'vas où, t'sais ?", "Tu vas où, tu sais ?"),
        ("fr", "Ça m'saoule, c'truc d'fou.", "Ça me saoule, ce truc de fou."),
        ("fr", "Un p'tit café, m'sieur ?", "Un petit café, monsieur ?"),
        ("fr", "Dsl, tkt.", "Désolé, t'inquiète."),
        ("fr", "S'tu savais ! C'pas grave, s'te plaît.", "Si tu savais ! C'est pas grave, s'il te plaît."),
        ("fr", "Ya pas d'eau, ya qu'à voir. YA 3 CHATS", "Il y a pas d'eau, il y a qu'à voir. Il y a 3 CHATS"),
        ("fr", "Il ya 3 jours, je crois qu'il ya des chats.", "Il y a 3 jours, je crois qu'il y a des chats."),
        ("fr", "« Nan mais oh ! » Puisqu'j'sais.", "« Non mais oh ! » Puisqu'je sais."),
        ("en", "“Yup,” he said: Nah. OMG!", "“Yes,” he said: No. OMG!"),
        ("en", "NOPE", "No"),
        ("en", "C'mon, lemme see what you're doin'!", "Come on, let me see what you're doing!"),
        ("en", "’Cause it’s late", "Because it’s late"),
        ("en", "np, ttyl", "no problem, talk to you later"),
    ],
)
def test_spoken_forms_are_written_out(language: str, text: str, expected: str) -> None:
    assert written_out(text, language) == expected


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("fr", "J'ai l'heure, c'est l'été, d'abord qu'elle n'y est pas, s'il t'a vu, j'habite l'île d'Yeu."),
        ("fr", "N'djamena, M'bappé et L'viv, l'RER, d'LVMH, rock 'n' roll, rock'n'roll, O'Brien's"),
        ("fr", "Mme Nan Goldin, Ya Kid K et la plage de Chui ; ya habibi ; Ya ! NaN vaut zéro, le sigle TLM"),
        ("fr", "Nan Goldin expose."),
        ("en", "Tho Nguyen and Stephen Yep, called Kinda Funny; the OMG column"),
        ("en", "Dr. Tho, import numpy as np, The np variable, a jk"),
        ("en", "Nite Owl"),
        ("fr", "nana, yaourt, dsl@exemple.fr, exemple.fr/tkt, adsl, nan-nan"),
        ("en", "NP-complete, GN, TY, IMO, ty@example.org, np.array, kindaichi, the cat's, o'clock, cozy"),
        ("en", "He's goin'-goin'."),
        ("de", "Das ist 'ne gute Idee, np, lemme, j'sais."),
    ],
)
def test_ordinary_words_stay(language: str, text: str) -> None:
    assert written_out(text, language) == text
    assert written_out(text, None) == text


@pytest.mark.parametrize("language", TABLES)
def test_every_form_is_replaced_by_plain_words(language: str) -> None:
    for form, words in TABLES[language].items():
        for text in (form, form.replace("'", "’"), f"({form})", f"{form}."):
            assert words in written_out(text, language), text
        assert written_out(words, language) == words
        assert written_out(f"x{form}x", language) == f"x{form}x" or not form[0].isalpha()


def test_a_long_text_takes_little_time() -> None:
    text = "j'" * 50_000 + "tu t'" + " tu" * 50_000 + " t'sais" * 5_000 + "Nan A" + "A" * 50_000
    begin = time.perf_counter()
    assert re.search(r" te sais| tu sais", written_out(text, "fr"))
    assert time.perf_counter() - begin < 30  # a quadratic search takes hours


@pytest.mark.slow
def test_the_bundled_models_understand_them() -> None:
    french, english = (regard.load(name).quick() for name in ("fr-en", "en-fr"))
    assert french.translate("J'm'appelle Léo.") == "My name is Léo."
    assert french.translate("Tu m'manques.") == "I miss you."
    assert english.translate("Nope.") == "Non."
