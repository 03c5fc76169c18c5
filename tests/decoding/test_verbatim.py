"""Numbers, prices, addresses and codes in translations."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.decoding.amounts import ENGLISH, FRENCH, GERMAN, NumberFormat, amounts, number_format
from regard.decoding.verbatim import check_verbatim, verbatim_parts, with_stand_ins, without_stand_ins

CORRECTED = [
    ("fr", "en", "Ça coûte 1 249,99 € au lieu de 1 600 €.", "It costs $1 249.99 instead of $1 600.00.",
     "It costs €1,249.99 instead of €1,600."),
    ("fr", "en", "100 € pour 100 personnes", "$100 for 100 people", "€100 for 100 people"),
    ("fr", "en", "2 500 € et 2 500 habitants", "$2 500 and 2 500 people", "€2,500 and 2,500 people"),
    ("fr", "en", "15 €", "15 euros", "15 euros"),
    ("fr", "en", "15 €", "EUR 15", "EUR 15"),
    ("fr", "en", "15 €", "€ 15", "€ 15"),
    ("fr", "en", "3,50 €", "3.5 euros", "3.5 euros"),
    ("fr", "en", "3,50 €", "3,50 euros", "3.50 euros"),
    ("fr", "en", "1,5 million €", "1.5 million €", "1.5 million €"),
    ("fr", "en", "2 500 000 habitants", "2 500 000 inhabitants", "2,500,000 inhabitants"),
    ("fr", "en", "2 500 000 habitants", "2500000 inhabitants", "2500000 inhabitants"),
    ("fr", "en", "En 1945, 3 hommes", "In 1945, 3 men", "In 1945, 3 men"),
    ("fr", "en", "75001 Paris", "75001 Paris", "75001 Paris"),
    ("fr", "en", "20 $ ou 20 €", "€20 or $20", "€20 or $20"),
    ("en", "fr", "about 3,500 people", "environ 3,500 personnes", "environ 3 500 personnes"),
    ("en", "fr", "It costs €1,250.50.", "Ça coûte 1250,50.", "Ça coûte 1 250,50 €."),
    ("en", "fr", "20% of 1,000", "20 % de 1.000", "20 % de 1 000"),
    ("en", "fr", "$1,249.99 instead of $1,600", "1 249,99 au lieu de 1 600 $", "1 249,99 $ au lieu de 1 600 $"),
    ("en", "de", "about 3,500 people", "etwa 3,500 Menschen", "etwa 3.500 Menschen"),
    ("en", "xx", "about 3,500 people", "3,500", "3,500"),
]  # fmt: skip
LOST = [
    ("en", "fr", "It costs $1,299.99, but", "Ça coûte 1 299,99,99, mais", {"$1,299.99": "1 299,99 $"}),
    ("en", "fr", "Call me at 555-0137.", "Appelle-moi à 55-0137.", {"555-0137": "555-0137"}),
    ("fr", "en", "Appelez le 06 12 34 56 78.", "Call 06 12, 34 56 78.", {"06 12 34 56 78": "06 12 34 56 78"}),
    ("fr", "en", "Le vol AF123 de 1945", "Flight AF12 of 945", {"AF123": "AF123", "1945": "1945"}),
    ("fr", "en", "100 chats et 100 000 chiens", "a cat and 100,000 dogs", {"100": "100"}),
    ("fr", "en", "12 et 34", "twelve and 34", {}),
    ("fr", "en", "10 000 personnes et 10 000 chats", "10,000 people and cats", {"10 000": "10,000"}),
]


@pytest.mark.parametrize(("source_language", "target_language", "source", "translation", "corrected"), CORRECTED)
def test_amounts_are_corrected(
    source_language: str, target_language: str, source: str, translation: str, corrected: str
) -> None:
    checked = check_verbatim(translation, source, source_language, target_language)
    assert checked.text == corrected
    assert checked.missing == {}


@pytest.mark.parametrize(("source_language", "target_language", "source", "translation", "missing"), LOST)
def test_what_is_lost_is_found(
    source_language: str, target_language: str, source: str, translation: str, missing: dict[str, str]
) -> None:
    assert check_verbatim(translation, source, source_language, target_language).missing == missing


def test_stand_ins_replace_only_what_is_missing() -> None:
    source = "Il a 100 chats, 100 000 chiens et X1 sur www.a.fr/100, 100."
    text, stand_ins = with_stand_ins(source, {"100": "100", "www.a.fr/100": "www.a.fr/100"})
    assert text == "Il a X2 chats, 100 000 chiens et X1 sur X3, X2."
    assert without_stand_ins(text, stand_ins) == source
    assert with_stand_ins("a", {str(number): "" for number in range(10)}) == ("a", {})


@pytest.mark.parametrize("text", ["le 20e siècle", "14h30", "3-4 fois", "fini.de plus", "un@ chat", "C# et #1", "R&#D"])
def test_ordinary_text_is_translated(text: str) -> None:
    assert verbatim_parts(text) == []


def test_languages_are_known_by_their_codes() -> None:
    codes = ("en", "en-GB", "eng_Latn", "fr", "fra_Latn", "DE", "xx", "", None)
    assert [*map(number_format, codes)] == [ENGLISH, ENGLISH, ENGLISH, FRENCH, FRENCH, GERMAN, None, None, None]


FORMATS = st.sampled_from([ENGLISH, FRENCH, GERMAN])


@given(
    whole=st.integers(1_000, 10**15),
    decimals=st.sampled_from(["", "5", "50", "07"]),
    sign=st.sampled_from(["", "€", "$"]),
    source_format=FORMATS,
    target_format=FORMATS,
)
def test_what_is_written_is_read(
    whole: int, decimals: str, sign: str, source_format: NumberFormat, target_format: NumberFormat
) -> None:
    for grouped in (True, False):
        number = f"{whole:,}".replace(",", source_format.group) if grouped else str(whole)
        number += source_format.decimal + decimals if decimals else ""
        price = sign + number if source_format.sign_first else f"{number} {sign}".strip()
        [amount] = amounts(f"Le prix : {price}, non ?", source_format)
        assert (amount.text, amount.whole, amount.decimals, amount.sign) == (price, str(whole), decimals, sign)
        assert source_format.write(amount) == price
        [again] = amounts(target_format.write(amount), target_format)
        assert (again.whole, again.decimals, again.sign) == (str(whole), decimals, sign)


@given(source=st.text("0123456789 ,.€$a-", max_size=30), translation=st.text("0123456789 ,.€$a-", max_size=30))
def test_any_text_is_checked(source: str, translation: str) -> None:
    checked = check_verbatim(translation, source, "fr", "en")
    assert check_verbatim(checked.text, source, "fr", "en") == checked  # a correction is final
