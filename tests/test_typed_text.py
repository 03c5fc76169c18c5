"""The script that types training sentences in haste, and writes sentences with numbers."""

import random
import re

import pytest

from regard.decoding.amounts import ENGLISH, FRENCH, amounts
from scripts.typed_text import ABBREVIATIONS, hasty, with_numbers, without_accents


def test_accents_are_removed() -> None:
    text = "Où est l’œuf ? À Noël, ça coûte 3 € : « aïe ! »"
    assert without_accents(text) == "Ou est l’oeuf ? A Noel, ca coute 3 € : « aie ! »"
    assert without_accents("e\u0301te\u0301") == "ete"


def test_hasty_typing_keeps_the_words_and_varies() -> None:
    source, target = "Où est-ce qu'Élodie a trouvé l'œuf ?", "Where did Élodie find the egg?"
    typed = [hasty(source, target, "fr", random.Random(seed)) for seed in range(400)]
    assert typed == [hasty(source, target, "fr", random.Random(seed)) for seed in range(400)]
    sources = [text for text, _ in typed]
    assert 0.2 <= sources.count(source) / len(sources) <= 0.35
    assert {target, target.rstrip("?")} == {text for _, text in typed}
    assert all(text.endswith("?") == english.endswith("?") for text, english in typed)
    letters = re.sub(r"\W", "", without_accents(source)).lower()
    same_letters = [re.sub(r"\W", "", without_accents(text)).lower() == letters for text in sources]
    assert 0.85 <= sum(same_letters) / len(sources) < 1  # the others have a slip
    for part in ("ou est ce qu", "qu'Elodie", "quelodie", "l oeuf", "trouve l'oeuf?"):
        assert any(part in text for text in sources), part


@pytest.mark.parametrize(
    ("language", "source", "expected"),
    [
        ("fr", "S'il te plaît, je ne sais pas quoi faire.", {"stp", "chais pas", "koi", "je sais pas"}),
        ("en", "Thank you, I don't know what you're doing.", {"dunno", "dont", "thank u", "youre"}),
    ],
)
def test_chat_language(language: str, source: str, expected: set[str]) -> None:
    typed = " ".join(hasty(source, "", language, random.Random(seed))[0].lower() for seed in range(400))
    assert {text for text in expected if text in typed} == expected
    assert all(words == words.lower() for words in ABBREVIATIONS[language])


def test_slips_change_one_place_of_a_long_word() -> None:
    for seed in range(200):
        text, _ = hasty("elle travaille", "she is working", "fr", random.Random(seed))
        assert text.startswith("elle ")
        assert abs(len(text) - len("elle travaille")) <= 1


def test_numbers_are_written_as_each_language_does() -> None:
    sentences = list(with_numbers(2_000, random.Random(0)))
    assert sentences == list(with_numbers(2_000, random.Random(0)))
    for french, english in sentences:
        assert not re.search(r"[{}]", french + english)
        assert not english.endswith("..")
        found, wanted = (
            [(a.whole, a.decimals, a.sign) for a in each if a.sign or a.decimals or int(a.whole) >= 100]
            for each in (amounts(french, FRENCH), amounts(english, ENGLISH))
        )
        assert sorted(found) == sorted(wanted), (french, english)
