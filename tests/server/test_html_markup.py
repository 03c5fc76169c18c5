"""Splitting HTML: no text is lost or mistaken for markup."""

from contextlib import suppress
from functools import partial

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from regard.server.html_markup import OPAQUE_ELEMENTS, split_html
from tests.support.work_limits import count_calls, fail_when_hanging

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="<&"), max_size=20)
LONGER_IN_LOWER_CASE = "İ" * 30


def said(page: str) -> list[str]:
    return [part.text for part in split_html(page) if part.translatable]


@given(TEXT, TEXT, st.sampled_from(OPAQUE_ELEMENTS), st.sampled_from([str.upper, str.lower, str.title]))
@example(LONGER_IN_LOWER_CASE, "le chat dort", "script", str.lower)
@example("ẞ" * 9, "le chat", "style", str.upper)
def test_text_around_opaque_elements_is_kept(before: str, after: str, name: str, written: object) -> None:
    element = f"<{name}>{before} x</{written(name)}>"  # type: ignore[operator]
    page = f"<p>{before}</p>{element}<p>{after}</p>"
    assert said(page) == [text.strip() for text in (before, after) if text.strip()]
    assert "".join(part.text for part in split_html(page)) == page
    assert element in [part.text for part in split_html(page)]


@given(st.text(max_size=40) | st.text(alphabet="<>/!-?\"'= aİscript", max_size=40))
@example("<script" + LONGER_IN_LOWER_CASE + "</script>après")
@example("<!-- jamais fermé")
@example('<a ="')
def test_segments_join_to_the_page(page: str) -> None:
    page = page.replace("&", "")  # an entity is given as its character
    with suppress(ValueError):  # a tag within a sentence
        assert "".join(part.text for part in split_html(page)) == page


@pytest.mark.parametrize(
    ("page", "wanted"),
    [
        ("3 < 5 et 7 > 2, donc oui.", ["3 < 5 et 7 > 2, donc oui."]),
        ("j'aime <3 les chats", ["j'aime <3 les chats"]),
        ("x <y et le chat dort.", ["x <y et le chat dort."]),
        ('<p title="a > b">Le chat.</p>', ["Le chat."]),
        ("<p title='a > b' hidden>Le chat.</p>", ["Le chat."]),
        ("<p l'eau>Le chat.</p>", ["Le chat."]),
        ("<SCRIPT>a</ſcript>b</script>c", ["c"]),
        ("<script>jamais fermé", []),
        ("<p>Un.<pre>jamais fermé", ["Un.", "jamais fermé"]),
        ("<!-- a --> b <!-- c", ["b"]),
        ("<script>'</scripture>'</script>c", ["c"]),
        ("&lt;b&gt; &eacute;t&eacute;", ["<b> été"]),
    ],
)
def test_text_and_markup_are_told_apart(page: str, wanted: list[str]) -> None:
    assert said(page) == wanted


@pytest.mark.parametrize("unit", ["<", "<a", '<a x=">" ', "<!--", "<code>", "</", "<script", "<p>", "&", '="', "<a ='"])
def test_hostile_pages_are_split_quickly(unit: str) -> None:
    def split(repetitions: int) -> None:
        with suppress(ValueError):
            split_html(unit * repetitions)

    with fail_when_hanging():  # it takes a fraction of a second
        split(20_000 // len(unit))
    short, long = (count_calls(partial(split, n)) for n in (200, 400))
    assert long < 2.5 * short + 100
