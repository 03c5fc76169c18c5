"""Separate vocabularies: a model whose target has other ids than its source does what its shared counterpart does."""

import copy
from pathlib import Path

import pytest
import torch

import regard
from regard.data.tokenizer import PAD
from regard.data.tokenizer_pair import TARGET_TOKENIZER_FOLDER, TokenizerPair
from regard.decoding.generate import stream
from regard.decoding.options import Decoding
from regard.decoding.text_model import Model
from regard.decoding.text_stream import stream_text
from regard.evaluation.attention_alignment import can_be_aligned
from regard.model.transformer import EncoderDecoder
from tests.support.separate_vocabularies import equal_models, renumbered
from tests.support.text_models import ANSWERS, TEXTS, TOKENIZER, random_model

pytestmark = pytest.mark.slow

SHARED, SEPARATE = equal_models()


def test_ids_of_source_and_target_differ() -> None:
    """Otherwise the tests below could pass with the wrong tokenizer."""
    tokenizer = SEPARATE.require_tokenizer()
    assert tokenizer.is_separate
    assert tokenizer.encode(TEXTS[0]) != tokenizer.encode_target(TEXTS[0])
    assert tokenizer.decode(tokenizer.encode_target(TEXTS[0])) == TEXTS[0]
    assert tokenizer.source_side.decode(tokenizer.encode(TEXTS[0])) == TEXTS[0]
    assert tokenizer.id_of(PAD) == tokenizer.target_side.size - 1 > tokenizer.size


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 1.0, "top_k": 1},
        {"beam": 3, "repetition_penalty": 1.3, "no_repeat_ngram": 2},
        {"beam": 1, "stop": ("a",)},
    ],
    ids=str,
)
def test_translations_are_equal(options: dict[str, object]) -> None:
    texts = [*TEXTS[:2], f"{TEXTS[0]} {TEXTS[1]}\n\n{TEXTS[2]}"]  # a paragraph is split into sentences
    decoding = Decoding(max_tokens=8, **options)  # type: ignore[arg-type]
    assert SEPARATE.translate(texts, decoding=decoding) == SHARED.translate(texts, decoding=decoding)


def test_long_sentences_are_split_by_source_tokens() -> None:
    for model in (SHARED, SEPARATE):
        model.about["longest"] = 20
    sentence = " ".join(text.rstrip(".?!") for text in TEXTS)
    assert SEPARATE.translate(sentence, max_tokens=9) == SHARED.translate(sentence, max_tokens=9)


def test_scores_are_equal() -> None:
    assert SEPARATE.score(TEXTS, ANSWERS) == pytest.approx(SHARED.score(TEXTS, ANSWERS), abs=1e-9)


def test_a_stream_is_decoded_with_the_target() -> None:
    network, tokenizer = SEPARATE.network, SEPARATE.require_tokenizer()
    assert isinstance(network, EncoderDecoder)
    source = tokenizer.encode_with_template(TEXTS[0])
    decoding = Decoding(max_tokens=20, temperature=3.0)
    tokens = stream(network, SEPARATE.special, source, decoding, tokenizer.decode)
    streamed = "".join(stream_text((token.token for token in tokens if token.reason != "end"), tokenizer.decode, ()))
    translation = SEPARATE.translate(TEXTS[0], decoding=decoding)
    assert len(translation) > 5
    assert streamed.replace("\ufffd", "").strip() == translation  # without what is no character


def test_both_axes_of_attention_have_the_labels_of_their_side() -> None:
    ours, theirs = (model.attend(TEXTS[0], ANSWERS[0], lens=2) for model in (SEPARATE, SHARED))
    assert ours.special == theirs.special[: len(ours.special)] == ("</s>", "<pad>")
    for kind, attention in ours.maps.items():
        expected = theirs.maps[kind]
        assert (attention.queries, attention.keys) == (expected.queries, expected.keys)
        assert attention.writes == expected.writes
        torch.testing.assert_close(attention.weights, expected.weights, rtol=0, atol=1e-9)
    assert ours.lens is not None
    assert theirs.lens is not None
    lenses = (ours.lens, theirs.lens)
    predicted, right = ([[[token for token, _ in top] for top in state] for state in lens.top] for lens in lenses)
    assert predicted == right


def test_the_search_tree_has_labels_of_the_target() -> None:
    (ours, our_nodes), (theirs, their_nodes) = (model.search_tree(TEXTS[0], 3, 6) for model in (SEPARATE, SHARED))
    assert SEPARATE.require_tokenizer().decode(ours.ids) == SHARED.require_tokenizer().decode(theirs.ids)
    assert sorted((n.token, n.step, n.kept) for n in our_nodes) == sorted(
        (n.token, n.step, n.kept) for n in their_nodes
    )


def test_hidden_vectors_have_labels_of_the_source() -> None:
    ours, theirs = SEPARATE.hidden(TEXTS[0]), SHARED.hidden(TEXTS[0])
    assert ours.tokens == theirs.tokens
    torch.testing.assert_close(ours.vectors, theirs.vectors, rtol=0, atol=1e-9)


def test_attention_can_be_aligned() -> None:
    assert can_be_aligned(SEPARATE)


def test_fast_copies_translate_alike() -> None:
    model = Model(copy.deepcopy(SEPARATE.network).float(), SEPARATE.tokenizer, SEPARATE.special)
    try:
        assert model.quick("float32").translate(TEXTS, max_tokens=9) == model.translate(TEXTS, max_tokens=9)
    finally:
        SEPARATE.network.double()


def test_saved_and_loaded_it_translates_alike(tmp_path: Path) -> None:
    SEPARATE.save(tmp_path / "model")
    loaded = regard.load(tmp_path / "model", dtype=torch.float64)
    assert isinstance(loaded.tokenizer, TokenizerPair)
    assert loaded.require_tokenizer().digest == SEPARATE.require_tokenizer().digest
    assert loaded.config == SEPARATE.config
    assert loaded.special == SEPARATE.special
    assert loaded.translate(TEXTS, max_tokens=9) == SEPARATE.translate(TEXTS, max_tokens=9)


def test_a_model_with_one_tokenizer_too_few_or_too_many_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"target_vocab_size=385\), but only one tokenizer.*is missing"):
        Model(SEPARATE.network, TOKENIZER, SEPARATE.special)
    with pytest.raises(ValueError, match="their own tokenizers, but the model has only one vocabulary"):
        Model(SHARED.network, SEPARATE.tokenizer, SHARED.special)
    SEPARATE.save(tmp_path / "model")
    (tmp_path / "model" / TARGET_TOKENIZER_FOLDER / "tokenizer.json").unlink()
    with pytest.raises(ValueError, match=r"target_tokenizer/tokenizer.json is missing, but the manifest lists it"):
        regard.load(tmp_path / "model")


def test_a_changed_target_tokenizer_is_reported(tmp_path: Path) -> None:
    SEPARATE.save(tmp_path / "model")
    other, _ = renumbered(TOKENIZER)
    (tmp_path / "model" / TARGET_TOKENIZER_FOLDER / "special_tokens_map.json").write_text("{}")
    with pytest.raises(ValueError, match=r"does not list target_tokenizer/special_tokens_map.json"):
        regard.load(tmp_path / "model")
    (tmp_path / "model" / TARGET_TOKENIZER_FOLDER / "special_tokens_map.json").unlink()
    text = other.engine.to_str().replace("<extra0>", "<extra_>")
    (tmp_path / "model" / TARGET_TOKENIZER_FOLDER / "tokenizer.json").write_text(text)
    with pytest.raises(ValueError, match=r"target_tokenizer/tokenizer.json"):
        regard.load(tmp_path / "model")


def test_saving_over_a_model_with_one_tokenizer_and_back(tmp_path: Path) -> None:
    SEPARATE.save(tmp_path / "model")
    random_model().save(tmp_path / "model", force=True)
    assert not (tmp_path / "model" / TARGET_TOKENIZER_FOLDER / "tokenizer.json").exists()
    assert not regard.load(tmp_path / "model").require_tokenizer().is_separate
    SEPARATE.save(tmp_path / "model", force=True)
    assert regard.load(tmp_path / "model").require_tokenizer().is_separate


def test_transformers_loads_both_tokenizers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = SEPARATE.require_tokenizer()
    tokenizer.save(tmp_path)
    source = transformers.AutoTokenizer.from_pretrained(tmp_path)
    target = transformers.AutoTokenizer.from_pretrained(tmp_path, subfolder=TARGET_TOKENIZER_FOLDER)
    assert source(TEXTS[0])["input_ids"] == tokenizer.encode_with_template(TEXTS[0])
    assert target(ANSWERS[0])["input_ids"] == tokenizer.encode_target(ANSWERS[0])
