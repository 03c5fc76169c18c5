"""Labels of tokens: parts of characters, and marks of alternatives that look the same."""

import pytest

import regard
from regard.data.tokenizer import Tokenizer
from regard.data.tokenizer_training import train_tokenizer
from regard.decoding.token_labels import TokenLabels, token_labels, word_numbers

TOKENIZER = train_tokenizer(["the cat sleeps on the mat", "a dog sings and the cat sleeps"] * 4, 320)


@pytest.fixture(scope="module")
def petit() -> Tokenizer:
    return regard.load("petit-fr-en").require_tokenizer()


def test_bytes_of_a_character_are_shown_and_form_one_word() -> None:
    ids = TOKENIZER.encode("the 🍕 é")
    labels = token_labels(TOKENIZER, ids)
    assert labels == ("the", "␣", r"\xf0", r"·\x9f", r"·\x8d", r"·\x95", "␣", r"\xc3", r"·\xa9")
    assert word_numbers(TOKENIZER, ids) == [0, 1, 2, 2, 2, 2, 3, 4, 4]


def test_bytes_of_different_characters_are_different_words() -> None:
    ids = TOKENIZER.encode("éè")
    assert word_numbers(TOKENIZER, ids) == [0, 0, 1, 1]


def test_bytes_of_tokenizers_of_characters_are_shown_without_dots_between_letters() -> None:
    letters = train_tokenizer(["le chat"], 320, "characters")
    labels = token_labels(letters, letters.encode("chaté"))
    assert labels == ("c", "h", "a", "t", r"\xc3", r"\xa9")


def test_at_the_start_of_a_text_the_alternative_with_a_space_is_marked(petit: Tokenizer) -> None:
    (plain,), (spaced,) = petit.encode("Marie"), petit.encode(" Marie")
    labels = TokenLabels(petit, dots=True)
    assert labels.among([plain, spaced]) == ["Marie", "␣Marie"]
    assert labels.among([plain, spaced], petit.end) == ["Marie", "␣Marie"]


def test_after_other_text_the_alternative_without_a_space_is_marked(petit: Tokenizer) -> None:
    (plain,), (spaced,) = petit.encode("Marie"), petit.encode(" Marie")
    comma = petit.encode(",")
    assert TokenLabels(petit, dots=True).among([plain, spaced], *comma) == ["·Marie", "Marie"]
