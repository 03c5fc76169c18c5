"""Sentences in any script: where a text is split, where it is not, and that nothing is ever lost."""

import re
from functools import partial

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import regard
from regard.decoding.abbreviations import ABBREVIATIONS
from regard.decoding.options import Decoding
from regard.decoding.sentence_parts import halves
from regard.decoding.sentence_splitter import SENTENCE_TERMINAL, abbreviations, has_words, needs_space_after, sentences
from regard.decoding.text_model import Model
from regard.decoding.translator import SourcePiece, Translation, Translator, split_into_parts
from tests.support.text_models import random_model
from tests.support.work_limits import count_calls, fail_when_hanging

SIX = "il est tard. je mange une pomme. le chat dort. il pleut dehors. nous partons demain. merci beaucoup."

SPLIT = [
    # Capitals, abbreviations, initials, numbers
    "Il dort. | Elle lit.",
    "M. Dupont dort. | Mme. Roy lit.",
    "B. Leroy, Univ. de Strasbourg",
    "Env. 300 pers. étaient là. | Tél. portable : 06. | Max. 4 pers. | Bât. B, appt. 12, rés. du Parc",
    "Ouvert lun. au ven. de 9h à 18h. | Dim. 10 x 20 cm",
    "Le Dr. Roy paie 3.50 € à J.-C. Petit. | Oui.",
    "Voir p. ex. Paris, p. 5, et l'art. 7. | Fin.",
    "See e.g. Paris, i.e. France. | Mr. X. Y. Smith ran.",
    "« Tu viens ? » dit-il. | « Non. » | Il part.",
    '"Go!" he said. | "No." | She left.',
    "Eh bien... oui. | Non… | Si… peut-être.",
    "Voir https://a.fr/b.c?d=e. | Puis www.x.org.",
    "En 1990. | Il naît. | 1. Un. | 2. Deux.",
    "Quoi ?! | Non !! | Été comme hiver. | Ça va.",
    "le prix est de 5. puis rien",
    "(Il dort.) | Elle lit. | — Oui.",
    # Small letters
    SIX.replace(". ", ". | "),
    "tu viens ? | oui ! | j'arrive. | à demain...",
    "m. dupont est là. | il dort.",
    "il est là, etc. et puis il part. | fin.",
    "« vraiment ? » dit-elle. | oui !",
    "« non. » | il part.",
    "he is, e.g. today, i.e. now, the best. | ok.",
    "Il dort. | elle lit.",
    "Il a dit (enfin !) que oui. | bien.",
    "il y en a. | je pars.",
    "il pleut... | je reste... | tant pis",
    "voir exemple.fr. | puis a.b@c.fr. | la 3.5.1 sort à 10.30. | le fichier x.tar.gz. | fin",
    "- oui. | - non. | - peut-être ?",
    "Viens ! – cria-t-il. | Elle vint.",
    "Er kam bzw. ging. | Am 3. Mai regnete es, z. B. in Köln usw. und dann nicht. | Der 2. Weltkrieg.",
    "El Sr. Gómez vive en EE. UU. desde ayer. | ¿qué tal? | ¡bien!",
    "Il sig. Rossi, il dott. Bianchi ecc. sono qui. | ciao!",
    "O Dr. Silva e a Sra. Costa, p. ex. hoje. | tudo bem?",
    "„Ja.“ | Er ging. | »Nein.« | »Doch.«",
    "кто там? | это я. | и т. д. и т. п. до конца.",
    "Ел на ул. Ленина. | он ушёл.",
    # Other scripts
    "كيف حالك؟ | أنا بخير. | شكرا لك! | د. أحمد هنا.",
    "میں ٹھیک ہوں۔ | آپ کیسے ہیں؟",
    "नमस्ते। | आप कैसे हैं? | मैं ठीक हूँ। | डॉ. शर्मा आए।",
    "שלום. | מה שלומך? | אני בסדר.",
    "გამარჯობა. | როგორ ხარ? | მე კარგად ვარ.",
    "Γεια σου. | Τι κάνεις; | Είμαι καλά.",
    "Բարև: | Ինչպես ես։ | Լավ եմ։",
    "안녕하세요. | 잘 지내세요? | 네!",
    "ሰላም። | እንዴት ነህ? | ደህና ነኝ።",
    "ကျေးဇူးတင်ပါသည်။ | သွားပါမည်။",
    "ខ្ញុំស្រឡាញ់អ្នក។ | អរគុណ។",
    "བཀྲ་ཤིས། | བདེ་ལེགས།",
    "ฉันหิวข้าวมาก | แมวกำลังนอนหลับ | ฝนกำลังตกหนัก | ขอบคุณ",
    "ราคา 50 บาท",
    # What follows and precedes
    "Super. | 😀 Merci. | Oui. 😀",
    "... Oui. | Non... 5 fois.",
    "Fin.[1] | Il part.² | **Non.** | Oui.",
    "Ex. : le chat. | Prix : etc. : rien.",
    "Il dort, etc. ; elle lit. | Fin.",
    "كيف؟\u200f | بخير.",
    # Initials and abbreviations with inner full stops, at the end of a sentence and inside
    "César est mort en 44 av. J.-C. | Auguste est mort en 14 apr. J.-C. | Rome était grande.",
    "He is from the U.S. | She is from the U.K. | They met in D.C. | It rained.",
    "I scored an A. | She got a B. | We left.",
    "We met at 5 p.m. | The boss came. | At 9 a.m. Monday he left. | At 5 p.m. | Tom came.",
    "Prends de la vitamine C. | Elle est bonne. | Les axes X, Y et Z. | La vitesse aussi. | À 3 ° C. | L'hiver.",
    "J.-C. Dupont, J. R. R. Tolkien, J.-M. Le Pen, M. La Fontaine, M. Ma et C. D'Arc lisent.",
    "The U.S. Army and Mr. T. Smith met A. A. Milne and J. I. Case, i.e. The Three.",
    "Er ist im Tierschutz e.V. | Er mag z.B. Hunde, d.h. Tiere, u.a. Katzen.",
    "Murió en 14 d. C. | Roma era grande. | Nació en 63 a.C. | Murió viejo.",
    "A. Le chat dort. | B. The dog sleeps.",
    # Units after a number, and months
    "La vis mesure 5 mm. | Elle est petite. | MM. Dupont et Roy lisent.",
    "Le village a 300 hab. | Paris en a plus. | He is 6 ft. | Tom is 5 ft. tall.",
    "Né en janv. | Elle en févr. 2010, lui en déc. dernier. | Left in Nov. | Tom left on Oct. 5.",
    # A space is missing
    "Il est tard.|Je mange une pomme.|Tu viens?|Oui!|Le chat dort.",
    "J'aime Paris.|Elle est belle.|C'est l'été...|Enfin!",
    "(Il dort.)|Elle lit. | Quoi?!|Rien à dire.|De le cacher non plus.",
    "Node.Js, System.Out, example.Com, obj.getName et www.foo.Bar.com restent.",
    "x@y.Fr, a/b.Txt, d?Etat, Group.ReadWrite.All et e.g.The restent.",
    # Scripts without spaces
    "你好吗？|我很好。|他说：“走吧！”|然后走了。|我……不知道。|3.5元。",
    "今日は寒いです。|「はい。」と彼は言った。|行こう！|「何？」|「別に。」",
    "你好.|我很好.|你呢?|好!",
    "नमस्ते।|आप कैसे हैं?|मैं ठीक हूँ।",
    "كيف حالك؟|أنا بخير",
    "Yahoo!Mail.fr?x=y",
]
"""Texts in which a bar marks the end of each sentence; a space before the bar belongs to the text."""


@pytest.mark.parametrize("marked", SPLIT)
def test_where_sentences_end(marked: str) -> None:
    wanted = marked.replace(" | ", " |").split("|")
    assert sentences("".join(wanted)) == wanted


def test_abbreviations_are_those_of_the_language() -> None:
    assert sentences("Das ist evtl. gut. Ja.", "de") == ["Das ist evtl. gut. ", "Ja."]
    assert sentences("Das ist evtl. gut. Ja.", "fr") == ["Das ist evtl. ", "gut. ", "Ja."]
    assert sentences("Das ist evtl. gut. Ja.") == ["Das ist evtl. gut. ", "Ja."], "all are known without a language"
    assert abbreviations("de_AT") == abbreviations("de") != abbreviations("tlh") == abbreviations(None)
    for code, known in ABBREVIATIONS.items():
        for entry in (*known.inside, *known.either, *known.before_number):
            assert entry == entry.casefold().rstrip("."), f"{code}: {entry}"


LINE_BREAKS = ["\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", "\n\n  "]


@pytest.mark.parametrize("line_break", LINE_BREAKS)
def test_every_line_break_ends_a_sentence(line_break: str) -> None:
    assert sentences(f"le chat{line_break}dort") == [f"le chat{line_break}", "dort"]


@pytest.mark.slow
def test_the_terminals_are_unicodes() -> None:
    regex = pytest.importorskip("regex")
    every = [chr(code) for code in range(0x110000)]
    terminal = re.compile(f"[{SENTENCE_TERMINAL}]")
    theirs = regex.compile(r"\p{Sentence_Terminal=Yes}")
    assert [each for each in every if terminal.match(each)] == [each for each in every if theirs.match(each)]
    for each in every:
        if terminal.match(each) and each not in ".!?\u2024\ufe52\uff0e":
            assert sentences(f"अब{each} कब") == [f"अब{each} ", "कब"], f"{ord(each):x}"


MODEL = random_model()
ANY_TEXT = st.text(max_size=60) | st.text(alphabet="aBé1 .!?…»«\"'(,;\n\u2028\u00a0。？好と」กข؟ا।-M", max_size=60)


@given(ANY_TEXT)
@example("İ. ß. ŉ. ǰ")
def test_nothing_is_lost(text: str) -> None:
    found = sentences(text)
    assert "".join(found) == text
    assert all(found)
    parts = halves(text)
    assert "".join(parts) == text
    assert all(parts) or len(text) < 2


@given(ANY_TEXT, st.integers(3, 30))
@example("BB! a", 30)
def test_no_piece_is_lost(text: str, longest: int) -> None:
    pieces = MODEL.translator()._pieces(text, longest)
    joined = "".join(piece.before + piece.core + piece.after for piece in pieces)
    assert joined.casefold() == text.casefold()  # a sentence in capitals is translated in small letters
    for piece in pieces:
        assert bool(piece.ids) == bool(piece.core)
        assert piece.core or not has_words(piece.before), "words that are not translated"


HOSTILE: tuple[str, ...] = (
    ".",
    "a. ",
    "M. ",
    ".)",
    "! @ ",
    ". ( ",
    "1. ",
    " ",
    "a",
    "\n",
    ".\"' »",
    "。",
    "好。",
    "ก ",
    "… ",
    "» ",
    "[1]",
)
HOSTILE += ("a.B", "ab.Cd", "a!B", "J.-C. ", "U.S. The ", "tard.Je ", "5 mm. ", "L'", "a...B")
HOSTILE += (".[1", "a.'", ". -", "Dr. ", ".«", "α; ", "-", "x.", "(", ". . ", "\u200b", "*", ".\u200f")


@pytest.mark.slow
@pytest.mark.parametrize("unit", HOSTILE)
def test_hostile_text_takes_linear_time(unit: str) -> None:
    text = unit * (60_000 // len(unit))
    with fail_when_hanging():  # it takes a fraction of a second; a quadratic expression would take minutes
        assert "".join(sentences(text)) == text
    short, long = (count_calls(partial(sentences, unit * n)) for n in (200, 400))
    assert long < 2.5 * short + 100


def test_halves_do_not_split_characters() -> None:
    for character in ("e\u0301", "👩\u200d👩\u200d👧", "👍🏽", "की"):
        first, second = halves(character * 9)
        assert first + second == character * 9
        assert len(first) % len(character) == 0


def test_halves_know_commas_of_other_scripts() -> None:
    assert halves("今天很冷，我不想出去") == ["今天很冷，", "我不想出去"]
    assert halves("اليوم بارد، لا أريد") == ["اليوم بارد، ", "لا أريد"]


class Saying(Translator):
    """A translator whose translation of every piece is the same."""

    says: str

    def _translate_ids(self, sources: object) -> list[list[Translation]]:
        return [[Translation(self.says, -1.0, -1.0, True)] for _ in sources]  # type: ignore[attr-defined]


def said(text: str, says: str) -> str:
    translator = Saying(**vars(random_model().translator(Decoding())))
    object.__setattr__(translator, "says", says)
    return translator.translate_all([text])[0][0].text


def test_a_space_separates_translations_from_a_script_without_spaces() -> None:
    assert said("你好。我很好！他来了。", "Yes.") == "Yes. Yes. Yes."
    assert said("你好。我很好！", "はい。") == "はい。はい。"
    assert said("अब।कब।", "Yes.") == "Yes. Yes."
    assert said("Oui.  Non.", "はい。") == "はい。  はい。"
    assert said("Il dort.Elle lit.Oui!Non", "Yes.") == "Yes. Yes. Yes. Yes."
    assert needs_space_after("好")
    assert not needs_space_after("ok.")
    assert not needs_space_after("")


def test_pieces_without_words_are_copied() -> None:
    assert said("---\n***\noui\n… 😀 !\n", "yes") == "---\n***\nyes\n… 😀 !\n"
    assert random_model().translator()._pieces("?!", 50) == [SourcePiece("?!")]


@pytest.fixture(scope="module")
def french() -> Model:
    return regard.load("fr-en")


@pytest.mark.slow
@pytest.mark.parametrize("text", [SIX, ". ".join(each.capitalize() for each in SIX.split(". "))])
def test_the_bundled_model_translates_every_sentence(french: Model, text: str) -> None:
    out = french.translate(text)
    assert len(sentences(out)) == 6, out
    for words in ("late", "apple", "cat", "raining", "tomorrow"):
        assert words in out


@pytest.mark.slow
def test_the_bundled_model_translates_what_follows_an_abbreviation(french: Model) -> None:
    out = french.translate("César est mort en 44 av. J.-C. Auguste est mort en 14 apr. J.-C. Rome était grande.")
    for words in ("44", "14", "Rome"):
        assert words in out, out
    out = french.translate("Il est tard.Je mange une pomme.Le chat dort.")
    assert len(sentences(out)) == 3, out
    assert ". " in out, "sentences are separated by a space"


def test_the_bundled_model_keeps_both_of_two_sentences(french: Model) -> None:
    assert french.translate("Le chat dort. Il pleut dehors.") == "The cat is sleeping. It's raining outside."


@given(st.text(alphabet="aé. \n。!?B", max_size=200), st.integers(1, 50))
def test_parts_joined_are_the_text(text: str, characters: int) -> None:
    parts = split_into_parts(text, characters)
    assert "".join(parts) == text
    assert all(part[-1].isspace() and len(part) >= characters for part in parts[:-1])


@pytest.mark.parametrize(
    ("language", "pieces"),
    [
        ("fr", ["L'U.R.S.S. a disparu. ", "L'art. 5 dit non."]),
        ("fr", ["D'env. 5 ans. ", "Oui."]),
        ("fr", ["Il est mort en 20 ap. J.-C. à Lyon. ", "Oui."]),
        ("fr", ["Il part à 15 h. 30 de Paris. ", "Il est 15 h. ", "Elle part."]),
        ("fr", ["— Où vas-tu ? demanda-t-il. ", "Oui."]),
        ("fr", ["où vas-tu ? ", "est-il là ? ", "oui."]),
        ("th", ["ครูสอนต่าง ๆ ", "มากมาย"]),
        ("th", ["ดร. สมชาย ", "มาแล้ว"]),
        ("ka", ["პროფ. გიორგი მოვიდა. ", "კარგი."]),
        ("hi", ["यह 3.50 रु. है। ", "ठीक।"]),
    ],
)
def test_reported_cases(language: str, pieces: list[str]) -> None:
    assert sentences("".join(pieces), language) == sentences("".join(pieces)) == pieces
