"""Splitting texts into words: French elisions, English possessives, and quotation marks."""

import pytest

from regard.word_splitter import split_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Qu'il boive de l'eau aujourd'hui.", "Qu' il boive de l' eau aujourd'hui ."),
        ("C'est l’ami d'Anne, dit-il.", "C' est l’ ami d' Anne , dit -il ."),
        ("'L'eau' est un mot.", "' L' eau ' est un mot ."),
        ("Grade D's and C’s", "Grade D 's and C ’s"),
        ("rock 'n' roll", "rock ' n ' roll"),
        ("the letters 'd' and ‘t’ are", "the letters ' d ' and ‘ t ’ are"),
        ("Don't the students' books belong to Ann's?", "Don't the students ' books belong to Ann 's ?"),
        ("It's 5 o'clock; we haven't met.", "It 's 5 o'clock ; we haven't met ."),
    ],
)
def test_words(text: str, words: str) -> None:
    assert split_words(text) == words.split(" ")
    assert split_words(words) == words.split(" ")  # as in files whose words are separated by spaces
