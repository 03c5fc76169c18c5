"""What people type and paste is translated like the edited text that it looks like."""

import re
from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

import regard
from regard.decoding.source_text import INVISIBLE, in_sentence_case, is_in_capitals, plain_forms
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


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("a\u202f?", "a\u202f?"),  # as many tokens either way
        ("e\u0301te\u0301", "e\u0301te\u0301"),  # a model of decomposed text
        ("a  b", "a b"),
        ("他说\u200b：好", "他说：好"),
        ("ﬁn", "fin"),
    ],
)
def test_what_a_model_was_trained_on_is_kept(text: str, read: str) -> None:
    translator = random_model().translator()
    tokens = {"\u202f?": 1, "e\u0301": 1, "é": 2, "ﬁ": 3}

    class Trained:
        """A tokenizer with an id for each character, but for some it has more or fewer."""

        def encode(self, text: str) -> list[int]:
            return list(
                range(len(text) + sum((count - len(part)) * text.count(part) for part, count in tokens.items()))
            )

        def encode_with_template(self, text: str) -> list[int]:
            asked.append(text)
            return self.encode(text)

    asked: list[str] = []
    object.__setattr__(translator, "tokenizer", Trained())
    ids = translator._encode(text)
    assert len(ids) == min(len(Trained().encode(form)) for form in asked)
    assert next(form for form in asked if len(Trained().encode(form)) == len(ids)) == read


RELEVANT = st.text("aeé\u0301\u00ad\u200b\ufeffﬁｅ？ \u00a0\u202f\t«»!?好")


@given(RELEVANT, st.booleans())
def test_plain_forms_are_stable_and_keep_words(text: str, french: bool) -> None:
    *_, plain = plain_forms(text, french)
    assert plain_forms(plain, french) == [plain]
    visible = re.sub(f"[{INVISIBLE}]", "", text)
    assert normalize("NFKC", plain).split() == normalize("NFKC", visible).split()


@given(st.text("ABÉŒIXVİẞΣЖ '-!1«»"))
def test_sentence_case_changes_only_the_case(text: str) -> None:
    assert in_sentence_case(text).upper() == text.lower().upper()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CHAPITRE III", "Chapitre III"),
        ("LOUIS XIV ET LE XVIIIE SIÈCLE", "Louis XIV et le XVIIIe siècle"),
        ("LA VIE, LE VER ET LE MIX", "La vie, le ver et le mix"),
        ("SHE AND I AGREE, BUT I'M LATE", "She and I agree, but I'm late"),
    ],
)
def test_numerals_and_the_english_pronoun_keep_their_capitals(text: str, expected: str) -> None:
    assert in_sentence_case(text) == expected


@pytest.mark.parametrize("text", ["HE HAS A CAT AND A DOG", "OÙ ES-TU", "JE SUIS ICI", "AU FEU !", "STOP!"])
def test_short_words_may_be_a_sentence_in_capitals(text: str) -> None:
    assert is_in_capitals(text)


NOT_IN_CAPITALS = {
    "acronyms": ["OTAN", "L'OTAN.", "«\u00a0U.S.A.\u00a0»", "A4", "RER B", "USB 3.0", "12 KG"],
    "no words": ["", "3.14", "À 20:30.", "A ?"],
    "mixed case": ["McDONALD'S"],
    "scripts without case": [
        "你好你好",
        "我们用USB连接电脑。",
        "הוא עובד ב-IBM כבר שנים",
        "나는 TV를 보고 있어요",
        "यह TV है",
    ],
}


@pytest.mark.parametrize("text", [text for texts in NOT_IN_CAPITALS.values() for text in texts])
def test_what_is_not_in_capitals(text: str) -> None:
    assert not is_in_capitals(text)
