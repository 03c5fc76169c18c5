"""What people type and paste is translated like the edited text that it looks like."""

from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

import regard
from regard.decoding.source_text import in_sentence_case, is_in_capitals, plain_text
from tests.support.text_models import random_model

SENTENCE = "Où est la clé de l'école ?"
VARIANTS = {
    "decomposed accents": normalize("NFD", SENTENCE),
    "no-break spaces": SENTENCE.replace(" ", "\u00a0"),
    "several spaces": SENTENCE.replace(" ", "   "),
    "soft hyphens": SENTENCE.replace("co", "co\u00ad"),
    "zero-width spaces": SENTENCE.replace(" ", " \u200b"),
    "a byte-order mark": "\ufeff" + SENTENCE,
    "full-width marks": SENTENCE.replace("?", "？"),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_variants_of_a_sentence_have_the_same_translation(name: str) -> None:
    model = regard.load("petit-fr-en")
    assert VARIANTS[name] != SENTENCE
    assert model.translate(VARIANTS[name]) == model.translate(SENTENCE)


def test_characters_that_a_model_was_trained_on_are_kept() -> None:
    translator = random_model().translator()
    trained = {"a\u202f?": [1, 2], "e\u0301te\u0301": [1], "été": [1, 2], "a  b": [1, 2, 3], "a b": [1, 2]}

    class Trained:
        def encode(self, text: str) -> list[int]:
            return [ord(text)]

        def encode_with_template(self, text: str) -> list[int]:
            return trained[text]

    object.__setattr__(translator, "tokenizer", Trained())
    encoded = {text: translator._encode(text) for text in ("a\u202f?", "e\u0301te\u0301", "a  b")}
    assert encoded == {"a\u202f?": [1, 2], "e\u0301te\u0301": [1], "a  b": [1, 2]}


@given(st.text(), st.booleans())
def test_plain_text_is_stable_and_keeps_words(text: str, french: bool) -> None:
    plain = plain_text(text, french)
    assert plain_text(plain, french) == plain
    assert len(plain.split()) <= len(text.split())


@given(st.text())
def test_sentence_case_changes_only_the_case(text: str) -> None:
    assert in_sentence_case(text).casefold() == text.lower().casefold()


@pytest.mark.parametrize(
    "text", ["", "OTAN", "L'OTAN.", "«\u00a0U.S.A.\u00a0»", "A4", "3.14", "你好你好", "McDONALD'S"]
)
def test_what_is_not_in_capitals(text: str) -> None:
    assert not is_in_capitals(text)
