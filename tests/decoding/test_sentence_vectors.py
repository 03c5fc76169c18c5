"""Sentence vectors equal those of `transformers` with pooling written out, and the mean of the last layer's vectors."""

from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.decoding import sentence_vectors as module
from regard.decoding.text_model import Model
from tests.support.oracles import randomise
from tests.support.text_models import TEXTS, random_model

BERT: dict[str, Any] = {
    "kind": "encoder",
    "positions": "learned",
    "max_length": 64,
    "activation": "gelu",
    "scale_embeddings": False,
    "embedding_norm": True,
}


def float32(**changes: Any) -> Model:
    model = random_model(**changes)
    model.network.float()
    return model


@pytest.mark.parametrize("changes", [{}, {"d_model": 24, "heads": 3, "layers": 3, "activation": "relu", "classes": 2}])
def test_vectors_of_random_bert_models(changes: dict[str, Any], tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    model = float32(**BERT | changes)
    randomise([model.network])
    regard.export(model, tmp_path / "bert")
    theirs = transformers.AutoModel.from_pretrained(tmp_path / "bert").eval()
    rows = [model.require_tokenizer().encode_with_template(text) for text in TEXTS]
    mask = torch.tensor([[1] * len(row) + [0] * (64 - len(row)) for row in rows])
    padded = torch.tensor([row + [0] * (64 - len(row)) for row in rows])
    with torch.no_grad():
        hidden = theirs(padded, attention_mask=mask).last_hidden_state
    mean = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
    torch.testing.assert_close(model.embed(TEXTS), mean, rtol=0, atol=1e-5)
    torch.testing.assert_close(model.embed(TEXTS, pooling="cls"), hidden[:, 0], rtol=0, atol=1e-5)


@pytest.mark.parametrize("changes", [{"kind": "decoder"}, {"kind": "decoder", "prefix": True}, {}, {"norm": "pre"}])
def test_the_mean_is_that_of_the_last_layer_without_padding(
    changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = random_model(**changes)
    expected = torch.stack([hidden.vectors[-1].mean(0) for hidden in map(model.hidden, TEXTS)])
    assert model.embed(TEXTS).dtype == torch.float64
    torch.testing.assert_close(model.embed(TEXTS), expected, rtol=0, atol=1e-10)
    torch.testing.assert_close(model.embed(TEXTS[2]), expected[2], rtol=0, atol=1e-10)
    monkeypatch.setattr(module, "EMBEDDING_BATCH_TOKENS", 1)
    torch.testing.assert_close(model.embed(TEXTS), expected, rtol=0, atol=1e-10)


def test_low_precision_is_pooled_in_float32() -> None:
    model = float32(kind="encoder")
    exact = model.embed(TEXTS)
    model.to(dtype=torch.bfloat16)
    rounded = model.embed(TEXTS)
    assert rounded.dtype == torch.float32
    assert torch.cosine_similarity(exact, rounded).min() > 0.999


@pytest.mark.usefixtures("without_type_checks")
def test_what_cannot_be_embedded_is_reported() -> None:
    encoder = random_model(**BERT)
    assert encoder.embed([]).shape == (0, encoder.config.d_model)
    for model, pooling, message in (
        (random_model(kind="decoder"), "cls", 'in a decoder sees only itself: use "mean"'),
        (random_model(), "cls", 'in an encoder-decoder stands for its word and not for the text: use "mean"'),
        (encoder, "max", "pooling"),
    ):
        with pytest.raises(regard.RegardError, match=message):
            model.embed([], pooling)  # type: ignore[call-overload]
    with pytest.raises(regard.RegardError, match=r"text 1 has \d+ tokens, but this model reads at most 64"):
        encoder.embed(["a", "chat " * 99])
    with pytest.raises(regard.RegardError, match="the text is empty"):
        random_model(kind="decoder").embed("")
    with pytest.raises(regard.RegardError, match="copied for decoding"):
        float32().quick("float32").embed(TEXTS)
