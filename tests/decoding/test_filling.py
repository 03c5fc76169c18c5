"""`Model.fill`: the tokens for each mask, compared with a loop over the network's own logits."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer as Engine

from regard.config import SpecialIds
from regard.data.huggingface_tokenizer import HuggingFaceTokenizer
from regard.decoding import filling as module
from regard.decoding.cancellation import Cancelled, cancellable
from regard.decoding.filling import Filling
from regard.decoding.text_model import Model
from regard.errors import RegardError
from tests.support.text_models import MASK_TOKENIZER, random_masked_model, random_model

TEXT = "Marie mange <mask> pomme."


def expected(model: Model, ids: list[int], position: int, k: int) -> list[tuple[int, float]]:
    """The most likely ids at a position of a framed text, with their probabilities, sorted in Python."""
    with torch.no_grad():
        logits = model.network(torch.tensor([[0, *ids, 0]]))[0, 1 + position].tolist()
    exponentials = torch.tensor(logits, dtype=torch.float64).exp()
    probabilities = (exponentials / exponentials.sum()).tolist()
    return sorted(enumerate(probabilities), key=lambda item: -item[1])[:k]


def test_fillings_are_the_most_likely_tokens_at_the_mask() -> None:
    model = random_masked_model()
    ids = MASK_TOKENIZER.encode(TEXT, parse_special=True)
    position = ids.index(2)
    fillings = model.fill(TEXT, k=4)
    assert len(fillings) == 4
    for filling, (id_, probability) in zip(fillings, expected(model, ids, position, 4), strict=True):
        assert isinstance(filling, Filling)
        assert filling.token == MASK_TOKENIZER.pieces([id_])[0]
        assert filling.probability == pytest.approx(probability, rel=1e-6)
        assert filling.text == MASK_TOKENIZER.decode([*ids[:position], id_, *ids[position + 1 :]])


def test_several_masks_give_a_list_each_and_are_predicted_independently() -> None:
    model = random_masked_model()
    text = "<mask> mange une <mask>."
    ids = MASK_TOKENIZER.encode(text, parse_special=True)
    first, second = model.fill(text, k=3)
    assert isinstance(first, list)
    assert isinstance(second, list)
    positions = [i for i, id_ in enumerate(ids) if id_ == 2]
    best = [expected(model, ids, position, 1)[0][0] for position in positions]
    for fillings, position in zip((first, second), positions, strict=True):
        wanted = expected(model, ids, position, 3)
        assert [filling.probability for filling in fillings] == pytest.approx([p for _, p in wanted], rel=1e-6)
        for filling, (id_, _) in zip(fillings, wanted, strict=True):
            filled = dict(zip(positions, best, strict=True)) | {position: id_}
            assert filling.text == MASK_TOKENIZER.decode([filled.get(i, token) for i, token in enumerate(ids)])
    assert model.fillings(TEXT) == [model.fill(TEXT)]


def test_tokens_that_continue_the_word_before_the_mask_are_marked() -> None:
    model = random_masked_model()
    continuations = 0
    for text, can_continue in (
        ("Marie mange<mask> pomme.", True),
        ("<mask> Marie mange.", False),
        (" ! <mask>", False),
    ):
        for filling in model.fillings(text, model.config.outputs)[0]:
            is_continuation = can_continue and filling.token[:1].isalnum()  # without a space of its own
            assert filling.continues_word == is_continuation, filling
            continuations += is_continuation
    assert continuations > 10


def test_several_texts_are_filled_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_masked_model()
    texts = [TEXT, "<mask> mange une <mask>.", "Le <mask>", "<mask>" * 7]
    alone = [model.fillings(text, 3) for text in texts]
    for batch_tokens in (module.FILLING_BATCH_TOKENS, 1):
        monkeypatch.setattr(module, "FILLING_BATCH_TOKENS", batch_tokens)
        together = model.fillings(texts, 3)
        assert [[[each[::2] for each in mask] for mask in text] for text in together] == [
            [[each[::2] for each in mask] for mask in text] for text in alone
        ]
        assert together[1][0][2].probability == pytest.approx(alone[1][0][2].probability)
    assert model.fillings([]) == []
    with pytest.raises(RegardError, match="the text has no mask"):
        model.fillings([TEXT, "Le chat"])
    with pytest.raises(Cancelled), cancellable(lambda: True):
        model.fillings(texts)


def test_a_mask_survives_saving_and_is_read_from_the_tokenizer_of_older_folders(tmp_path: Path) -> None:
    model = random_masked_model()
    model.network.float()
    filled = model.fill(TEXT)
    model.save(tmp_path / "new")
    model.special = SpecialIds(end=model.special.end)  # as a version without masks wrote it
    model.save(tmp_path / "old")
    model.about["head"] = "none"
    model.save(tmp_path / "headless")
    for name in ("new", "old"):
        loaded = Model.from_folder(tmp_path / name)
        assert loaded.special.mask == 2
        assert loaded.fill(TEXT) == filled
    assert not Model.from_folder(tmp_path / "headless").can("fill")


def test_what_cannot_be_filled_is_refused() -> None:
    model = random_masked_model(positions="learned", max_length=10)
    outputs = model.config.outputs
    for text, k, message in (
        ("Marie mange.", 5, "the text has no mask: write <mask> in place of a word$"),
        ("Marie [MASK].", 5, r"the text has no mask: this model's mask is <mask>, not \[MASK\]$"),
        ("", 5, "the text has no mask"),
        ("</s>", 5, "the text has no mask"),
        (TEXT, 0, "k=0 is too small"),
        (TEXT, 2.5, "k=2.5 has type float: expected int"),
        (TEXT, True, "k=True has type bool: expected int"),
        (TEXT, "2", "k='2' has type str: expected int"),
        (TEXT, outputs + 1, f"k={outputs + 1}"),
        (TEXT * 10, 5, "this model reads at most 10"),
        ("\ud800 <mask>", 5, "not valid Unicode"),
    ):
        with pytest.raises(RegardError, match=message):
            model.fill(text, k)  # type: ignore[arg-type]
    assert len(random_masked_model().fill("<mask>", outputs)) == outputs
    with pytest.raises(RegardError, match=r"for several, call fillings\(texts\)"):
        model.fill([TEXT])  # type: ignore[arg-type]
    with pytest.raises(RegardError, match="an encoder that does not predict masked tokens"):
        random_model(kind="encoder").fill(TEXT)
    with pytest.raises(RegardError, match=r"fill\(text\) requires an encoder with a head over the vocabulary"):
        random_model(kind="encoder", classes=3).fill(TEXT)


def test_a_mask_that_is_no_added_token_cannot_be_recognised() -> None:
    description = json.loads(MASK_TOKENIZER.engine.to_str())
    description["added_tokens"] = [token for token in description["added_tokens"] if token["content"] != "<mask>"]
    tokenizer = HuggingFaceTokenizer(Engine.from_str(json.dumps(description)), MASK_TOKENIZER.settings)
    assert tokenizer.role_id("mask_token") == MASK_TOKENIZER.mask
    assert tokenizer.mask is None
    model = replace(random_masked_model(), tokenizer=tokenizer)
    with pytest.raises(RegardError, match="the tokenizer does not recognise its mask <mask> in a text"):
        model.fill(TEXT)
