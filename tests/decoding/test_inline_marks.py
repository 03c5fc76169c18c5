"""Bold, italics, links and HTML within translated sentences."""

import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.decoding.inline_marks import InlineMark, with_inline_marks, without_inline_marks

TRANSLATED = [
    ("un mot **très important** ici", "a very important word here", {"très important": "Very important"},
     "a **very important** word here"),
    ("Cliquez <a href='x'>ici</a>.", "Click here.", {"ici": "Here"}, "Click <a href='x'>here</a>."),
    ("*Paul* et __Marie !__", "Paul and Mary!", {}, "*Paul* and __Mary__!"),
    ("Lisez [ceci](http://a.fr/b_c_d).", "Read this.", {"ceci": "this"}, "Read [this](http://a.fr/b_c_d)."),
    ("la **voiture rouge** de mon *frère*", "my brother's red car", {"frère": "Brother", "voiture rouge": "Go red"},
     "my *brother*'s **red** car"),
    ("<a><b>trois</b> chats</a>", "three cats", {"trois chats": "Three cats", "trois": "Three"},
     "<a><b>three</b> cats</a>"),
    ("il gagne **1 200 €**", "he earns €1,200", {"1 200 €": "€1200"}, "he earns **€1,200**"),
    ("les **chats** et les *chats*", "cats and cats", {"chats": "cats"}, "**cats** and *cats*"),
    ("*oui* et **non** et *si*", "yes", {}, "****yes****"),  # around the same word
    ("**a** b", "", {"a": "a"}, ""),
    ("**\"oui\"** et « non »", "so \"yes\" and \"no\"", {}, "so **\"yes\"** and \"no\""),
    ("<b>tout</b>", "all of it", {"tout": "everything"}, "<b>all of it</b>"),
]  # fmt: skip
LEFT = [
    "2*3*4",
    "*/ et (*)",
    "chats* et chiens*",
    "nom_de_fichier",
    "__init__",
    "a * b * c",
    "H<sub>2</sub>O",
    "<code>a</code>",
    "**",
    "****",
    "*a",
    "<b>",
    "<b></b>",
    "[a]",
    "![a](b)",
    "http://a.fr/_a_/",
    "*a\nb*",
    "f(**a, **b)",
]


@pytest.mark.parametrize(("source", "translation", "phrases", "marked"), TRANSLATED)
def test_marks_are_put_around_translations_of_their_words(
    source: str, translation: str, phrases: dict[str, str], marked: str
) -> None:
    plain, marks = without_inline_marks(source)
    assert with_inline_marks(translation, plain, marks, phrases) == marked


@pytest.mark.parametrize("text", LEFT)
def test_what_is_no_mark_is_left(text: str) -> None:
    assert without_inline_marks(text) == (text, ())


@given(text=st.text("ab *_<>/[]()é\n", max_size=60), translation=st.text("ab c", max_size=20))
def test_no_mark_is_lost_and_no_word_changed(text: str, translation: str) -> None:
    plain, marks = without_inline_marks(text)
    assert with_inline_marks(plain, plain, marks, {}).replace(" ", "") == text.replace(" ", "")
    found = with_inline_marks(translation, plain, marks, {})
    if re.search(r"\w", translation):
        expected = translation + "".join(each for mark in marks for each in _all_marks(mark))
        assert sorted(found) == sorted(expected)


def _all_marks(mark: InlineMark) -> Iterator[str]:
    yield mark.opening + mark.closing
    for inner in mark.inner:
        yield from _all_marks(inner)
