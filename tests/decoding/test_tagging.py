"""`model.tag`: the labels of words, read at their first tokens; words as they are given, or split from a text."""

from typing import Any

import pytest
import torch

from regard.decoding.tagging import TaggedWord
from regard.decoding.text_model import Model
from regard.errors import RegardError
from regard.word_splitter import split_words
from tests.support.text_models import LABELS, TEXTS, bert_tagger, random_model


def tagger(**changes: Any) -> Model:
    model = random_model(kind="encoder", classes=3, classes_per="token", norm="pre", **changes)
    model.about["classes"] = LABELS
    torch.nn.init.normal_(model.network.output.weight)  # so that labels vary
    return model


def assert_equal(one: list[TaggedWord], other: list[TaggedWord]) -> None:
    """Both have the same words and labels, and probabilities that differ only by rounding."""
    assert [word[:2] for word in one] == [word[:2] for word in other]
    assert [word.probability for word in one] == pytest.approx([word.probability for word in other], abs=1e-5)


def test_labels_are_those_of_each_words_first_token() -> None:
    model = tagger()
    assert model.tokenizer is not None
    tagged = model.tag(TEXTS)
    assert {word.label for words in tagged for word in words} == set(LABELS)
    for text, words in zip(TEXTS, tagged, strict=True):
        assert [word.word for word in words] == split_words(text)
        spaced = " ".join(word.word for word in words)
        ids = model.tokenizer.encode_with_template(spaced)
        with torch.inference_mode():
            probabilities = model.network(torch.tensor([ids])).float().softmax(-1)[0]  # [T, 3]
        length = 0
        for i, word in enumerate(words):  # a word starts where the words before it end
            expected = probabilities[length]
            assert word.label == LABELS[int(expected.argmax())]
            assert word.probability == pytest.approx(float(expected.max()), abs=1e-6)
            length = len(model.tokenizer.encode(" ".join(other.word for other in words[: i + 1])))
        assert_equal(model.tag(text), words)  # alone as in a batch
        assert_equal(model.tag([[word.word for word in words]])[0], words)


def test_texts_without_words_and_bad_input() -> None:
    model = tagger()
    assert model.tag("") == model.tag(" \n") == []
    assert model.tag([]) == []
    assert model.tag([[], "", ("un",)])[:2] == [[], []]
    for wrong, message in [
        ([["un", ""]], "word 1 of text 0 is empty"),
        ([["un", 2]], "word 1 of text 0 has type int"),
        (["un", None], "text 1 has type NoneType"),
        (b"un", "not a bytes"),
        ("\ud800", "not valid Unicode"),
    ]:
        with pytest.raises(RegardError, match=message):
            model.tag(wrong)  # type: ignore[call-overload]
    with pytest.raises(RegardError, match=r"text 1 has .* tokens, but this model reads at most 32"):
        tagger(positions="learned").tag(["un", "un " * 40])
    with pytest.raises(RegardError, match=r"tag\(texts\) requires an encoder with a class for each token"):
        random_model(kind="encoder", classes=3).tag("un")


def test_classes_without_names_are_numbered() -> None:
    model = tagger()
    del model.about["classes"]
    assert {word.label for word in model.tag(TEXTS[0])} <= {"0", "1", "2"}


def test_words_that_the_tokenizer_drops_have_a_label_too() -> None:
    model = bert_tagger()
    plain, dropped = model.tag([["le", "chat"], ["le", "\u200b", "chat"]])
    assert [word.word for word in dropped] == ["le", "\u200b", "chat"]
    assert_equal([dropped[0], dropped[2]], plain)
    assert dropped[1].label == dropped[2].label
