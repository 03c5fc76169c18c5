"""The handle: text in, text out; lines of any length and number; scores that are those of one full pass."""

import math
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

import regard
from regard import models
from regard.data.huggingface_tokenizer import HuggingFaceTokenizer
from regard.decoding import translator as module
from regard.decoding.batching import batches_by_length
from regard.decoding.generate import Inputs
from regard.decoding.options import Decoding
from regard.decoding.search import Hypothesis
from regard.decoding.sentence_parts import core_of, halves, separate_parts
from regard.decoding.text_model import Model
from regard.decoding.translator import Translator
from regard.decoding.verbatim import check_verbatim
from regard.interop.load import find_model
from tests.support.text_models import ANSWERS, TEXTS, TOKENIZER, random_model


class Shouting(Translator):
    """In place of a network: the source in capitals, and what was asked of it."""

    asked: list[list[str]]

    @classmethod
    def of(cls, model: Model, n_best: int = 1, batch_tokens: int = 10**6) -> "Shouting":
        made = cls(**vars(model.translator(Decoding(beam=n_best, n_best=n_best), batch_tokens)))
        object.__setattr__(made, "asked", [])
        return made

    def _translate_ids(self, sources: Inputs) -> list[list[module.Translation]]:
        self.asked.append([self.tokenizer.decode(ids) for ids in sources])
        found = [
            [Hypothesis(list(ids), -float(rank), -float(rank), "end") for rank in range(self.options.n_best)]
            for ids in sources
        ]
        told = [[self._translation(each) for each in hypotheses] for hypotheses in found]
        return [
            [
                module.Translation(each.text.upper() + "'" * r, each.score, each.penalised, True)
                for r, each in enumerate(row)
            ]
            for row in told
        ]


def first(found: list[list[module.Translation]]) -> list[str]:
    return [each[0].text for each in found]


@pytest.mark.slow
@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("kind", ["encoder-decoder", "decoder"])
def test_translations_do_not_depend_on_the_batch(kind: str, beam: int) -> None:
    model = random_model(kind=kind)
    together = model.translate(TEXTS, beam=beam, max_tokens=8)
    assert together == [model.translate(text, beam=beam, max_tokens=8) for text in TEXTS]
    assert together == model.translate(TEXTS, beam=beam, max_tokens=8, batch_tokens=1)
    assert together == list(model.translate_lines(iter(TEXTS), beam=beam, max_tokens=8, lines_per_batch=2))
    assert len(set(together)) > 1, "they all say the same: this proves little"


def test_one_text_in_one_text_out() -> None:
    model = random_model()
    assert isinstance(model.translate(TEXTS[0], max_tokens=5), str)
    assert model.translate([TEXTS[0]], max_tokens=5) == [model.translate(TEXTS[0], max_tokens=5)]
    assert model.translate([], max_tokens=5) == []
    assert model.translate("") == ""


def test_blank_texts_are_copied_without_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model()
    monkeypatch.setattr(module, "search_translations", lambda *_: pytest.fail("it was asked"))
    assert model.translate(["", "  ", "\t", "\u00a0", "\n"]) == ["", "  ", "\t", "\u00a0", "\n"]


def test_the_default_beam_is_the_papers() -> None:
    model = random_model()
    assert model.translator().options.beam == 4
    assert model.translator(n_best=6).options.beam == 6
    assert model.translator(temperature=0.5).options.beam == 1
    assert model.translator(beam=2).options.beam == 2


@pytest.mark.slow
def test_n_best_with_scores() -> None:
    model = random_model()
    for text, found in zip(TEXTS, model.translations(TEXTS, n_best=3, max_tokens=8), strict=True):
        assert len({each.text for each in found}) == len(found) <= 3
        ranks = [each.penalised for each in found]
        assert ranks == sorted(ranks, reverse=True)
        assert found[0].text == model.translate(text, max_tokens=8)


def test_progress_reports_the_number_done() -> None:
    told: list[int] = []
    random_model().translate([*TEXTS, ""], max_tokens=3, batch_tokens=1, progress=told.append)
    assert told == [2, 3, 4, 5, 6]


def test_batches_are_bounded_and_of_similar_length() -> None:
    lengths = dict(enumerate([5, 30, 1, 7, 7, 2, 60, 3]))
    batches = list(batches_by_length(lengths, 30))
    assert sorted(number for batch in batches for number in batch) == sorted(lengths)
    for batch in batches:
        assert max(lengths[number] for number in batch) * len(batch) <= 30 or len(batch) == 1
    assert [lengths[number] for batch in batches for number in batch] == [60, 30, 7, 7, 5, 3, 2, 1]


def test_a_batch_counts_its_hypotheses() -> None:
    shouting = Shouting.of(random_model(), n_best=4, batch_tokens=4 * 40)
    shouting.translate_all(["a b c d e"] * 20)
    length = len(shouting.tokenizer.encode_with_template("a b c d e"))
    assert max(map(len, shouting.asked)) == 40 // length


@pytest.mark.slow
@given(st.text(alphabet="aBé1 .!?,»\n\t\u2028\u00a0", max_size=80), st.integers(3, 12))
@example("aa!Ba a", 12)
def test_spacing_is_kept_whatever_the_length(text: str, longest: int) -> None:
    model = random_model()
    model.about["longest"] = longest
    shouting = Shouting.of(model)
    wanted, found = (
        re.sub(r"(?<=[.!?]) (?=B)", "", each) for each in (text.upper(), *first(shouting.translate_all([text])))
    )
    assert found == wanted, "only a space that is missing between two sentences may be added"
    for asked in (text for batch in shouting.asked for text in batch):
        assert asked.strip() == asked != ""
        assert len(shouting.tokenizer.encode_with_template(asked)) <= longest or len(asked) == 1


def test_only_long_sentences_are_split() -> None:
    shouting = Shouting.of(random_model())
    line = "il dort, elle lit, "
    shouting.translate_all([line, line * 30, "Il dort. Elle lit."])
    asked = [text for batch in shouting.asked for text in batch]
    assert asked.count(line.strip()) == 1
    assert asked.count("Il dort.") == asked.count("Elle lit.") == 1
    assert (
        max(len(shouting.tokenizer.encode_with_template(text)) for text in asked)
        <= 200
        < len(shouting.tokenizer.encode_with_template(line * 30))
    )


def test_every_sentence_of_a_paragraph_is_translated() -> None:
    shouting = Shouting.of(random_model())
    assert first(shouting.translate_all(["Il dort. Elle lit.  Tu ris."])) == ["IL DORT. ELLE LIT.  TU RIS."]
    assert sorted(text for batch in shouting.asked for text in batch) == ["Elle lit.", "Il dort.", "Tu ris."]


def test_a_line_break_separates() -> None:
    shouting = Shouting.of(random_model())
    assert first(shouting.translate_all(["a b\n\n c\u2028d\r\n"])) == ["A B\n\n C\u2028D\r\n"]
    assert sorted(shouting.asked[0]) == ["a b", "c", "d"]


def test_n_best_of_a_split_text_are_the_best_combinations() -> None:
    model = random_model()
    model.about["longest"] = 8
    shouting = Shouting.of(model, n_best=3)
    (found,) = shouting.translate_all(["Il dort. Elle lit."])
    assert [(each.text, each.score) for each in found] == [
        ("IL DORT. ELLE LIT.", 0.0),
        ("IL DORT. ELLE LIT.'", -1.0),
        ("IL DORT.' ELLE LIT.", -1.0),
    ]


def test_max_source_tokens() -> None:
    assert random_model().max_source_tokens == 200
    assert random_model(positions="learned").max_source_tokens == 32 * 2 // 3
    assert random_model(kind="decoder", positions="learned").max_source_tokens == 32 * 2 // 5
    model = random_model()
    model.about["longest"] = 30
    assert model.max_source_tokens == 30


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["encoder-decoder", "decoder"])
def test_learned_positions_are_never_exceeded(kind: str) -> None:
    model = random_model(kind=kind, positions="learned")
    for text in ("a " * 200, "x" * 90, ", ".join(TEXTS), "🙂" * 40):
        assert isinstance(model.translate(text, beam=2), str)


@pytest.mark.slow
def test_lines_are_read_in_growing_batches() -> None:
    shouting, read = Shouting.of(random_model(), batch_tokens=800), 0

    def lines() -> Iterator[str]:
        nonlocal read
        for number in range(500):
            read += 1
            yield f"line {number}"

    found = shouting.translate_lines(lines())
    assert next(found)[0].text == "LINE 0"
    assert read == module.FIRST_LINES
    assert [next(found)[0].text for _ in range(40)][-1] == "LINE 40"
    assert read == 3 * module.FIRST_LINES
    assert [each[0].text for each in found][-1] == "LINE 499"
    read = 0
    one = shouting.translate_lines(lines(), lines_per_batch=1)
    assert (next(one)[0].text, read) == ("LINE 0", 1)


@pytest.mark.parametrize("kind", ["encoder-decoder", "decoder", "prefix"])
def test_scores_equal_those_of_decoding(kind: str) -> None:
    changes = {"kind": "decoder", "prefix": True} if kind == "prefix" else {"kind": kind}
    model = random_model(**changes)
    found = model.translations(TEXTS, beam=3, max_tokens=8)
    again = [(text, each[0]) for text, each in zip(TEXTS, found, strict=True) if each[0].complete]
    tokenizer = model.tokenizer
    assert tokenizer is not None
    scores = model.score([text for text, _ in again], [each.text for _, each in again])
    assert model.score([text for text, _ in again[:1]], [each.text for _, each in again[:1]]) == pytest.approx(
        scores[:1]
    )
    assert len(model.score(TEXTS, ANSWERS)) == len(TEXTS)
    for (_, each), score in zip(again, scores, strict=True):
        assert score <= each.score + 1e-6  # equal, unless the text has other ids than were said
    together, alone = (
        model.score(TEXTS, ANSWERS),
        [model.score([s], [t])[0] for s, t in zip(TEXTS, ANSWERS, strict=True)],
    )
    assert together == pytest.approx(alone, abs=1e-9)


@torch.no_grad()
def test_a_score_by_hand() -> None:
    model = random_model()
    assert model.tokenizer is not None
    source, target = model.tokenizer.encode_with_template(TEXTS[0]), model.tokenizer.encode(ANSWERS[0])
    logits = model.network(torch.tensor([source]), torch.tensor([[model.special.start, *target]]))
    wanted = -torch.nn.functional.cross_entropy(logits[0], torch.tensor([*target, TOKENIZER.end]), reduction="sum")
    assert model.score([TEXTS[0]], [ANSWERS[0]]) == pytest.approx([float(wanted)])


@torch.no_grad()
def test_a_language_models_score_by_hand() -> None:
    model = random_model(kind="decoder")
    ids = TOKENIZER.encode(TEXTS[0])
    logits = model.network(torch.tensor([ids[:-1]]))[0]
    wanted = -float(torch.nn.functional.cross_entropy(logits, torch.tensor(ids[1:]), reduction="sum"))
    assert model.score([TEXTS[0], "a"])[0] == pytest.approx(wanted)
    model.tokenizer = TOKENIZER.with_template(before=[TOKENIZER.end])
    logits = model.network(torch.tensor([[TOKENIZER.end, *ids[:-1]]]))[0]
    wanted = -float(torch.nn.functional.cross_entropy(logits, torch.tensor(ids), reduction="sum"))
    assert model.score(TEXTS)[0] == pytest.approx(wanted)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"temperature": 0.9, "seed": 3, "top_k": 40}, {"stop": "e"}, {"beam": 3}])
def test_generate_is_the_prompt_and_what_follows(options: Any) -> None:
    model = random_model(kind="decoder")
    for prompt in ("Le chat", "é", "🙂", "a\n"):
        text = model.generate(prompt, max_tokens=20, **options)
        assert text.startswith(prompt)
        assert text == model.generate(prompt, max_tokens=20, **options)
        if "beam" not in options:
            assert text == prompt + "".join(model.stream(prompt, max_tokens=20, **options))
        if "stop" in options:
            assert "e" not in text[len(prompt) :]


def test_the_space_after_a_prompt_is_kept() -> None:
    """A decoder that drops a text's first space must not drop the one between prompt and continuation."""
    model = random_model(kind="decoder")
    plain = model.tokenizer
    assert isinstance(plain, HuggingFaceTokenizer)

    class Dropping(HuggingFaceTokenizer):
        def decode(self, ids: Sequence[int], keep_special: bool = False) -> str:
            return super().decode(ids, keep_special).removeprefix(" ")

    model.tokenizer = Dropping(plain.engine, plain.settings)
    ids = plain.encode("Le chat dort bien")
    behind = model.continuation_decoder(plain.encode("Le chat"))
    assert behind(ids[len(plain.encode("Le chat")) :]) == " dort bien"


def test_classes() -> None:
    for kind in ("encoder", "decoder"):
        model = random_model(kind=kind, classes=3)
        found = model.classify(TEXTS)
        alone = [answer for text in TEXTS for answer in model.classify([text])]
        assert [name for name, _ in found] == [name for name, _ in alone]
        assert [p for _, p in found] == pytest.approx([p for _, p in alone])
        assert {name for name, _ in found} <= {"0", "1", "2"}
        assert all(1 / 3 <= p <= 1 for _, p in found)
        model.about["classes"] = ["fr", "en", "de"]
        assert [name for name, _ in model.classify(TEXTS)] == [["fr", "en", "de"][int(name)] for name, _ in found]


@pytest.mark.usefixtures("without_type_checks")
def test_mistakes_are_reported() -> None:
    pair, language = random_model(), random_model(kind="decoder")
    mistakes = [
        (lambda: pair.translate(["a"], beem=3), "Decoding has no key 'beem': did you mean 'beam'?"),  # type: ignore[call-overload]
        (lambda: pair.translate(["a"], beam=0), "beam=0 is too small"),
        (lambda: pair.translate(["a"], beam=10_000), "beam=10000 is wider than"),
        (lambda: pair.search_tree("a", beam="2"), "beam='2' has type str"),  # type: ignore[arg-type]
        (lambda: pair.translate(["a"], batch_tokens=0), "batch_tokens=0 is too small"),
        (lambda: pair.translate(["a", 3]), "text 1 has type int"),  # type: ignore[list-item]
        (
            lambda: pair.generate("a"),
            "generate(prompt) requires a decoder with a head over the vocabulary, but",
        ),
        (lambda: pair.stream("a"), "this model supports translate(texts), score(sources, targets), attend(text)"),
        (lambda: pair.score(["a"]), "this model supports translate(texts), score(sources, targets)"),
        (lambda: pair.score(["a"], ["b", "c"]), "1 sources but 2 targets"),
        (lambda: pair.classify(["a"]), "classify(texts) requires a model with a classification head"),
        (lambda: language.generate(""), "the prompt is empty"),
        (lambda: language.generate(["a"]), "a prompt is one text"),  # type: ignore[arg-type]
        (lambda: language.generate("a", temperature=math.nan), "temperature=nan"),
        (lambda: language.generate("a", beam=3, n_best=2), "generate returns one text"),
        (lambda: language.stream("a", beam=3), "beam=3 cannot stream"),
        (lambda: language.stream("a", temprature=3), "did you mean 'temperature'"),  # type: ignore[call-arg]
        (lambda: language.score([""]), "the text is empty"),
        (
            lambda: random_model(kind="decoder", positions="learned").generate("a b c" * 99),
            "reads at most 32",
        ),
        (lambda: random_model(kind="encoder", positions="learned", classes=2).classify(["a b " * 99]), "shorten it"),
        (lambda: Model(pair.network).translate("a"), "has no tokenizer"),
        (lambda: Model(language.network).generate("a"), "has no tokenizer"),
    ]
    for mistake, message in mistakes:
        with pytest.raises(ValueError, match=re.escape(message)):
            mistake()


@pytest.mark.parametrize(
    ("source", "translation", "searches"),  # a second search only if an address was changed
    [
        ("Voir www.chat.fr.", "VOIR www.chat.fr.", 2),
        ("Voir https://chat.fr/a?b=1, puis c.d@e-f.org !", "VOIR https://chat.fr/a?b=1, PUIS c.d@e-f.org !", 2),
        ("X1 est www.chat.fr et www.chat.fr", "X1 EST www.chat.fr ET www.chat.fr", 2),
        ("Le chat. Voir www.chat.fr. Le chien.", "LE CHAT. VOIR www.chat.fr. LE CHIEN.", 2),
        ("www.chat.fr", "www.chat.fr", 2),
        ("le WWW.CHAT.FR", "LE WWW.CHAT.FR", 1),
        ("Le www est un@ chat.", "LE WWW EST UN@ CHAT.", 1),  # no addresses
        ("Voir plan.pdf, #chat et @moi-1.", "VOIR plan.pdf, #chat ET @moi-1.", 2),
        ("Il dort.de plus, il a 3 chats à 20h", "IL DORT.DE PLUS, IL A 3 CHATS À 20H", 1),
        (  # too many for placeholders; parts lack them too
            " ".join(f"www.{letter}.fr" for letter in "abcdefghij"),
            " ".join(f"WWW.{letter}.FR" for letter in "ABCDEFGHIJ"),
            2,
        ),
    ],
)
def test_addresses_and_names_are_copied(source: str, translation: str, searches: int) -> None:
    translator = Shouting.of(random_model())
    assert first(translator.translate_all([source])) == [translation]
    assert len(translator.asked) == searches


def test_long_runs_of_emoji_take_linear_time() -> None:
    translator = Shouting.of(random_model())
    runs = ("😀", "<p>", "#a ", " ", "| ", "😀<p>", "*a* ", "*", "** ", "**a", "<b>", "_a ", "[a](", f"{'a' * 200} ")
    begin = time.process_time()
    for end in ("a", ""):
        for run in runs:
            translator._pieces("a" + run * min(50_000, 500_000 // len(run)) + end, 10**6)
    assert time.process_time() - begin < 20  # a quadratic search takes minutes


@pytest.mark.parametrize(
    "part",
    [
        "a",
        "1",
        "/a",
        "`",
        "`a",
        "1.500",
        "a.",
        "a@",
        "a-",
        "a1-",
        "@a.",
        "#",
        "www.",
        "1 ",
        "1 000 ",
        "1.",
        "€1",
        "+1 23 45 ",
        "8 h ",
        "AAA 8 ",
        "-5° ",
        "1½",
        "CO₂",
        "24/7 ",
        "€1/m² ",
    ],
)
def test_what_must_be_kept_is_found_in_linear_time(part: str) -> None:
    text = part * (10**6 // len(part))
    assert check_verbatim(text, text, "fr", "en").missing == {}


def test_addresses_are_copied_in_every_translation() -> None:
    translations = Shouting.of(random_model(), n_best=3).translate_all(["Voir www.chat.fr ici."])[0]
    assert [each.text for each in translations] == [f"VOIR www.chat.fr ICI.{marks}" for marks in ("", "'", "''")]


def test_a_marked_time_is_found_as_the_target_language_writes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    hypotheses = [module.Translation("The train leaves at 6:30 p.m.", -1.0, -1.0, True)]
    monkeypatch.setattr(module.Translator, "_translate_ids", lambda _, sources: [hypotheses for _ in sources])
    translator = replace(random_model().translator(), language="fr", target_language="en")
    assert first(translator.translate_all(["Le train part à **18h30**."])) == ["The train leaves at **6:30 p.m.**"]


def test_translations_that_corrections_make_equal_are_given_once(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["It costs $15", "It costs €15.", "It costs 15 euros.", "It costs EUR15."]
    hypotheses = [module.Translation(text, -float(rank), -float(rank), True) for rank, text in enumerate(texts)]
    monkeypatch.setattr(module.Translator, "_translate_ids", lambda _, sources: [hypotheses for _ in sources])
    translator = replace(random_model().translator(beam=4, n_best=4), language="fr", target_language="en")
    (found,) = translator.translate_all(["Ça coûte quand même 15 €."])
    assert [each.text for each in found] == ["It costs €15.", "It costs 15 euros.", "It costs EUR15."]
    assert [each.score for each in found] == [0.0, -2.0, -3.0]


WHAT_IS_ASKED = {
    "emoji around a sentence are copied": {
        "Le chat 😢": ["Le chat"],
        "😀 Le chat dort ! ❤️👍🏽": ["Le chat dort !"],
        "Le chat 🐱 dort.": ["Le chat", "dort."],
        "Le chat :) dort ;-) <3": ["Le chat", "dort"],
        "Le chat (8) dort :3": ["Le chat (8) dort"],
        "Le chat → le chien": ["Le chat → le chien"],
        "Le chat😊le chien🙏": ["Le chat", "le chien"],
        "Le chat ⭐⭐⭐ dort ⏰": ["Le chat", "dort"],
        **{
            text: [text]
            for text in ("Il a 83 ans.", "83 personnes", "8-3 hier", "La BMW X3 dort", "Windows XP dort", "8/10")
        },
        "Le chat. 🐱 Le chien. 👨‍👩‍👧": ["Le chat.", "Le chien."],
        "Il fait 20°": ["Il fait 20°"],
        "👍": [],
    },
    "list markers and tabs are copied": {
        "- Le chat": ["Le chat"],
        "  • Le chat\n  • Le chien": ["Le chat", "Le chien"],
        "## Le chat\n> – Le chien": ["Le chat", "Le chien"],
        "-5 degrés": ["-5 degrés"],
        "Le chat - le chien": ["Le chat - le chien"],
        "- Le chat - le chien - dort.": ["Le chat - le chien - dort."],
        "* Le chat * le chien": ["Le chat", "le chien"],
        "1. Le chat\n2) Le chien": ["Le chat", "Le chien"],
        "1. 2 chats": ["1. 2 chats"],
        "Le chat\t12\t \tLe chien": ["Le chat", "12", "Le chien"],
    },
    "what separates parts is copied": {
        "| Le chat | le chien |": ["Le chat", "le chien"],
        "Le chat / le chien": ["Le chat", "le chien"],
        "3 / 4 chats": ["3 / 4 chats"],
        "A) Le chat": ["Le chat"],
        "- [ ] Le chat\n- [X] Le chien": ["Le chat", "Le chien"],
        "Le **chat** dort": ["Le chat dort", "chat"],
        "Le <B>chat</B> *DORT* [ici](A)": ["Le chat DORT ici", "DORT", "chat", "ici"],
        "2*3 chats, nom_de_chat et __init__": ["2*3 chats, nom_de_chat et __init__"],
        "**Le chat dort**": ["Le chat dort"],
        "Le chat **dort** 😀": ["Le chat dort", "dort"],
        "Le **😀** dort, *MOI* aussi": ["Le", "dort, MOI aussi", "MOI"],
        "- **Le chat** : dort": ["Le chat", "dort"],
        "**Le chat :** dort 2**3": ["Le chat :", "dort 2**3"],
        "<P>Le chat <B>dort</B></P><BR/>": ["Le chat dort", "dort"],
        "<LI>Le chat</LI> <LI>le chien</LI>": ["Le chat", "le chien"],
        "#CHAT #CHIEN Le chat #MER dort #SUR #LA": ["Le chat #MER dort"],
        "@PAUL @ANNE": [],
        f"La clé {'A1+/' * 50}= est là.": ["La clé", "est là."],
        "A" * 100_000: [],
        f"Il crie «{'A' * 300}».\n{'É' * 200}!": ["Il crie"],
    },
    "sentences in capitals are translated in small letters": {
        "ATTENTION AU CHIEN !": ["Attention au chien !"],
        "« ÇA SUFFIT »": ["« Ça suffit »"],
        "LE CHAT DORT. Le chien mange.": ["Le chat dort.", "Le chien mange."],
        "VOIR WWW.CHAT.FR/A": ["Voir www.chat.fr/a", "Voir X1"],
        "NON. JE SORS !": ["Non.", "Je sors !"],
        "2 CHATS": ["2 chats"],
        "L'OTAN": ["L'OTAN"],
        "12 345 678 €": ["12 345 678 €"],
    },
}
"""Texts, and what a model is asked to translate of them."""


@pytest.mark.parametrize(("source", "asked"), [row for texts in WHAT_IS_ASKED.values() for row in texts.items()])
def test_the_model_is_asked_for_what_it_can_translate(source: str, asked: list[str]) -> None:
    translator = Shouting.of(random_model())
    assert first(translator.translate_all([source])) == [source.upper()]
    assert sorted(text for texts in translator.asked for text in texts) == sorted(asked)


def test_text_without_spaces_is_translated_in_scripts_that_have_none() -> None:
    for text in ("中文" * 200, "ไทย" * 200, "mot-" * 200, "le,chat," * 100):
        assert separate_parts(text) == [text]
        assert core_of(text) == (0, len(text))


@pytest.mark.parametrize("text", ["a) a", "x) *x*", "[x] x", "1) b) b"])
def test_the_letter_of_a_list_is_not_taken_for_the_text_after_it(text: str) -> None:
    (piece,) = random_model().translator()._pieces(text, 10)
    assert (piece.before, piece.core, piece.after) == (text.replace("*", "")[:-1], text.strip("*")[-1], "")


def test_the_case_of_a_sentence_is_decided_before_it_is_split() -> None:
    translator = random_model().translator()
    capitals = translator._pieces("LE CHAT NOIR DE MARIE, LE CHIEN DE PAUL ET LES OISEAUX", 12)
    assert len(capitals) > 2
    assert "".join(each.before + each.core + each.after for each in capitals) == (
        "Le chat noir de marie, le chien de paul et les oiseaux"
    )
    mixed = translator._pieces("Le chat noir aime la mer ET LES OISEAUX", 8)
    assert len(mixed) > 2
    assert not any(each.is_in_capitals for each in mixed)


def test_a_translation_has_the_white_space_of_its_source() -> None:
    class Indenting(Shouting):
        def _translate_ids(self, sources: Inputs) -> list[list[module.Translation]]:
            return [[module.Translation(" chat ", 0.0, 0.0, True)] for _ in sources]

    assert first(Indenting.of(random_model()).translate_all(["Le chat.\n Le chien. L'eau"])) == ["chat\n chat chat"]


def test_an_address_whose_stand_in_is_lost_is_left_to_the_model() -> None:
    class Deaf(Shouting):
        def _translate_ids(self, sources: Inputs) -> list[list[module.Translation]]:
            return [
                [module.Translation(each.text.replace("X1", "X"), each.score, each.penalised, True) for each in found]
                for found in super()._translate_ids(sources)
            ]

    assert first(Deaf.of(random_model()).translate_all(["Voir www.chat.fr."])) == ["VOIR WWW.CHAT.FR."]


def test_a_model_may_say_how_it_is_sampled() -> None:
    model = random_model(kind="decoder")
    greedy = model.generate("Le chat", max_tokens=12)
    model.about["generation"] = {
        "do_sample": True,
        "temperature": 1.5,
        "top_k": 9,
        "max_new_tokens": 12,
        "num_beams": 4,
    }
    sampled = model.generate("Le chat", temperature=1.5, top_k=9, max_tokens=12)
    assert model.generate("Le chat") == sampled != greedy
    assert "Le chat" + "".join(model.stream("Le chat")) == sampled
    assert model.generate("Le chat", temperature=0.0) == greedy  # keywords take precedence
    assert model.generate("Le chat", decoding=Decoding(max_tokens=12)) == greedy  # and so does an object
    assert model.generate("Le chat", beam=2).startswith("Le chat")  # a beam is not sampled
    model.about["generation"]["do_sample"] = False
    assert model.generate("Le chat") == greedy  # the settings of sampling are not used without it


@pytest.mark.parametrize(
    "generation",
    [
        None,
        3,
        ["do_sample"],
        {"do_sample": True, "temperature": "hot"},
        {"do_sample": True, "temperature": -1, "max_new_tokens": 2},
        {"do_sample": True, "top_p": math.nan},
        {"max_new_tokens": 0},
        {"do_sample": 1, "temperature": 0.9},
    ],
)
def test_invalid_settings_of_a_model_are_ignored(generation: object) -> None:
    model = random_model(kind="decoder")
    greedy = model.generate("Le chat", max_tokens=5)
    model.about["generation"] = generation
    assert model.generate("Le chat", max_tokens=5) == greedy


@pytest.mark.slow
def test_a_saved_and_loaded_model_translates_the_same(tmp_path: Path) -> None:
    model = random_model()
    model.network.float()
    model.save(tmp_path / "run")
    again = regard.load(str(tmp_path / "run"))
    assert again.translate(TEXTS, max_tokens=9) == model.translate(TEXTS, max_tokens=9)
    assert again.to(dtype=torch.float64).network.embedding.tokens.weight.dtype == torch.float64


def test_bundled_models_load_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(models, "MODELS_FOLDER", tmp_path / "models")
    with pytest.raises(ValueError, match=r"no model at de-en: pass a run, .* a GGUF file$"):
        regard.load("de-en")
    model = random_model()
    model.network.float()
    model.save(tmp_path / "models" / "fr-en")
    assert models.bundled_models() == ["fr-en"]
    assert regard.load("fr-en").config == model.config
    (tmp_path / "fr-en").mkdir()  # not a model
    assert regard.load("fr-en").config == model.config
    with pytest.raises(ValueError, match=r"no model at fr-ne: did you mean 'fr-en'\? Otherwise pass .* \(fr-en\)$"):
        regard.load("fr-ne")
    (tmp_path / "data").mkdir()
    with pytest.raises(ValueError, match="data is not a model folder"):
        regard.load("data")


def test_an_existing_run_takes_precedence_over_a_bundled_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(models, "MODELS_FOLDER", tmp_path / "models")
    theirs, mine = random_model(), random_model(layers=1)
    for each in (theirs, mine):
        each.network.float()
    theirs.save(tmp_path / "models/fr-en")
    names = ("fr-en", "./fr-en", "fr-en/", str(tmp_path / "fr-en"), Path("fr-en"))
    (tmp_path / "fr-en").mkdir()
    (tmp_path / "fr-en/recipe.toml").write_text("")  # it has begun
    for name in names:
        with pytest.raises(ValueError, match="fr-en is a run without a model to load: no model has been validated"):
            regard.load(name)
    mine.save(tmp_path / "fr-en/checkpoints/best-00000001")
    (tmp_path / "fr-en/recipe.toml").unlink()
    for name in names:
        assert regard.load(name).config == mine.config
        assert find_model(name) == Path(name)
    assert find_model(str(tmp_path / "fr-en/checkpoints/best-00000001")).name == "best-00000001"


def test_a_path_is_never_a_bundled_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(models, "MODELS_FOLDER", tmp_path / "models")
    model = random_model()
    model.network.float()
    model.save(tmp_path / "models/fr-en")
    assert find_model("fr-en") == tmp_path / "models/fr-en"
    with pytest.raises(ValueError, match=r"no model at \./fr-en: did you mean 'fr-en'\?"):
        regard.load("./fr-en")
    (tmp_path / "fr-en").mkdir()
    for name in ("./fr-en", "fr-en/", str(tmp_path / "fr-en"), Path("fr-en")):
        with pytest.raises(ValueError, match=r"fr-en/? is not a model folder"):
            regard.load(name)


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize("wrong", [3, None, b"abc", {"abc": 1}, ["abc", None], "a\ud800b"], ids=repr)
def test_inputs_that_are_not_texts_are_refused(wrong: Any) -> None:
    model = random_model()
    calls: list[Callable[[], object]] = [
        lambda: model.translate(wrong),
        lambda: model.score(wrong, ["abc"]),
        lambda: model.score(["abc"], wrong) if wrong is not None else model.score(["abc"], [None]),  # type: ignore[list-item]
        lambda: model.attend(wrong),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"must be a (text|string)|give a text|not valid Unicode"):
            call()


class Forgetful(Shouting):
    """Translates at most 20 characters of a source, as models that ended too early do."""

    complete = True

    def _translate_ids(self, sources: Inputs) -> list[list[module.Translation]]:
        self.asked.append([self.tokenizer.decode(ids) for ids in sources])
        return [[module.Translation(text[:20].capitalize(), 0.0, 0.0, self.complete)] for text in self.asked[-1]]


LONG = "il dort ici, le chat dort là et rêve, et la souris danse, mais un chien passe."
"""Its quarters have at most 20 characters."""


def test_a_translation_that_ends_too_early_is_replaced_by_those_of_parts() -> None:
    translator = Forgetful.of(random_model())
    assert len(translator.tokenizer.encode_with_template(LONG)) >= module.MIN_TOKENS_IN_PARTS
    text = first(translator.translate_all([LONG]))[0]
    first_half, second_half = halves(LONG)
    assert [len(asked) for asked in translator.asked] == [1, 2]
    assert text.startswith(first_half[:20].capitalize().rstrip(", "))
    assert second_half[:20].strip() in text  # its first letter is small, as it continues the sentence


def test_a_translation_that_the_caller_limits_is_not_repaired() -> None:
    translator = Forgetful.of(random_model())
    object.__setattr__(translator, "complete", False)
    assert first(translator.translate_all([LONG])) == [LONG[:20].capitalize()]
    assert len(translator.asked) == 1


@pytest.mark.parametrize("limit", [{"max_tokens": 200}, {"stop": (",",)}])
def test_a_limited_translation_is_not_made_longer_by_repairs(limit: dict[str, Any]) -> None:
    translator = Forgetful.of(random_model())
    object.__setattr__(translator, "options", Decoding(**limit))
    assert first(translator.translate_all(["www.a.fr, " + LONG])) == [("www.a.fr, " + LONG)[:20].capitalize()]
    assert len(translator.asked) == 1


def test_each_repair_gets_what_those_before_it_left() -> None:
    given = []

    class Recording(Shouting):
        def _translate_ids(self, sources: Inputs) -> list[list[module.Translation]]:
            texts = [self.tokenizer.decode(ids) for ids in sources]
            kept = [" ".join(part for part in ("2 meters", "X1") if part in text.replace("è", "e")) for text in texts]
            return [[module.Translation(text, 0.0, 0.0, True)] for text in kept]

    def record(name: str) -> Callable[..., Any]:
        def repair(self: Any, pieces: dict[Any, Any], *missing: Any) -> Any:
            given.append([piece.core for piece in pieces.values()])
            return getattr(Shouting, name)(self, pieces, *missing)

        return repair

    for name in ("_translate_with_names_of_units", "_translate_with_placeholders", "_translate_in_parts"):
        setattr(Recording, name, record(name))
    translator = Recording.of(random_model())
    object.__setattr__(translator, "language", "en")
    object.__setattr__(translator, "target_language", "fr")
    lacking_name, lacking_code, lacking_all = "It is 2 m.", "See www.a.fr.", "See b@c.fr or X1."
    translator.translate_all([lacking_name, lacking_code, lacking_all])
    assert given == [[lacking_name, lacking_code, lacking_all], [lacking_code, lacking_all], [lacking_all]]


def test_repaired_parts_are_separated_by_spaces() -> None:
    translator = Forgetful.of(regard.load("petit-fr-en"))
    [piece] = translator._pieces("他说你好，" * 8, 200)
    assert [part.needs_space for part in translator._parts(piece)] == [True, False]


@pytest.mark.parametrize(
    ("source", "translation"),
    [
        ("le chat noir de la voisine www.chat.fr dort", "whole"),
        ("le chat dort www.chat.fr et le chien blanc rêve", "part part"),
    ],
)
def test_parts_that_are_no_clauses_are_used_only_if_they_lack_nothing(source: str, translation: str) -> None:
    class Losing(Shouting):
        def _translate_ids(self, sources: Inputs) -> list[list[module.Translation]]:
            texts = [self.tokenizer.decode(ids) for ids in sources]
            is_whole = [text.startswith("le chat") and text.endswith(source[-4:]) for text in texts]
            return [
                [module.Translation("whole" if each else "part", 0.0 - each, 0.0 - each, True)] for each in is_whole
            ]

    assert first(Losing.of(random_model()).translate_all([source])) == [translation]


def test_a_complete_translation_has_the_punctuation_of_its_source() -> None:
    class Spoken(Shouting):
        def _translate_ids(self, sources: Inputs) -> list[list[module.Translation]]:
            return [[module.Translation("Bonjour\ufffd: ça va", 0.0, 0.0, True)] for _ in sources]

    translator = Spoken.of(random_model())
    object.__setattr__(translator, "target_language", "fr")
    assert first(translator.translate_all(["Hello, how are you?"])) == ["Bonjour : ça va ?"]


@pytest.mark.parametrize(("dropped", "asked"), [('"', 2), ('"|« | »', 3)])
@pytest.mark.parametrize("n_best", [1, 2])
def test_lost_quotation_marks_are_recovered(dropped: str, asked: int, n_best: int) -> None:
    """With marks that are translated, or else around the translation of the phrase."""

    class Dropping(Shouting):
        def _translate_ids(self, sources: Inputs) -> list[list[module.Translation]]:
            found = super()._translate_ids(sources)
            return [[replace(each, text=re.sub(dropped, "", each.text)) for each in row] for row in found]

    translator = Dropping.of(random_model(), n_best)
    object.__setattr__(translator, "target_language", "en")
    found = translator.translate_all(['le "mot juste" ici', "le mot ici"])
    expected = [['LE "MOT JUSTE" ICI', 'LE "MOT JUSTE" ICI\''], ["LE MOT ICI", "LE MOT ICI'"]]
    assert [[each.text for each in translations] for translations in found] == [each[:n_best] for each in expected]
    assert len(translator.asked) == asked


@pytest.mark.parametrize(
    ("language", "source", "translation"),
    [
        ("en", "aaaa, bbbb: cccc", "AAAA, BBBB: CCCC"),
        ("fr", "aaaa, bbbb: cccc", "AAAA, BBBB : CCCC"),
    ],
)
def test_parts_keep_their_final_marks(language: str, source: str, translation: str) -> None:
    class WithoutMarks(Shouting):
        def _translate_ids(self, sources: Inputs) -> list[list[module.Translation]]:
            found = super()._translate_ids(sources)
            return [[replace(each, text=each.text.rstrip(",:;")) for each in row] for row in found]

    translator = WithoutMarks.of(random_model())
    object.__setattr__(translator, "max_source_tokens", 6)
    object.__setattr__(translator, "target_language", language)
    assert first(translator.translate_all([source])) == [translation]


def test_a_part_begins_in_small_letters_unless_it_is_a_name() -> None:
    class Capitalising(Shouting):
        def _translate_ids(self, sources: Inputs) -> list[list[module.Translation]]:
            found = super()._translate_ids(sources)
            return [[replace(each, text=each.text.capitalize()) for each in row] for row in found]

    translator = Capitalising.of(random_model())
    object.__setattr__(translator, "max_source_tokens", 8)
    assert first(translator.translate_all(["aa bb, cc dd, Ee ff, i am"])) == ["Aa bb, cc dd, Ee ff, I am"]
