"""The vectors of every layer are those that `transformers` computes for the same model."""

from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.config import SpecialIds
from regard.data.tokenizer_training import train_tokenizer
from regard.decoding import hidden_vectors as module
from regard.decoding.text_model import Model
from regard.decoding.token_labels import readable
from regard.model.transformer import build
from tests.support.oracles import randomise, small
from tests.support.text_models import MASK_TOKENIZER, random_masked_model

TEXTS = ["Le petit chat noir dort.", "The cat sleeps.", "naïve Œuvre"]
TOKENIZER = train_tokenizer([*TEXTS, "The little black cat sleeps."] * 3, 300)
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": (
        "AutoModelForMaskedLM",
        {
            "kind": "encoder",
            "positions": "learned",
            "activation": "gelu",
            "scale_embeddings": False,
            "embedding_norm": True,
            "output_bias": True,
            "output_transform": True,
        },
    ),
    "gpt2": (
        "AutoModelForCausalLM",
        {
            "kind": "decoder",
            "norm": "pre",
            "positions": "learned",
            "activation": "gelu-tanh",
            "scale_embeddings": False,
        },
    ),
    "llama": (
        "AutoModelForCausalLM",
        {
            "kind": "decoder",
            "norm": "pre",
            "norm_kind": "rms",
            "positions": "rotary",
            "activation": "swiglu",
            "bias": False,
            "scale_embeddings": False,
            "dropout": 0.0,
        },
    ),
    "marian": ("AutoModelForSeq2SeqLM", {"activation": "relu"}),
    "pegasus": ("AutoModelForSeq2SeqLM", {"norm": "pre", "activation": "relu"}),
}


def random_model(**changes: Any) -> Model:
    torch.manual_seed(0)
    network = build(small(vocab_size=TOKENIZER.size, **{"max_length": 64} | changes)).eval()
    randomise([network])
    with torch.no_grad():
        network.embedding.tokens.weight[-1].zero_()  # <pad>
    is_pair = network.config.kind == "encoder-decoder"
    special = SpecialIds(end=(TOKENIZER.end,), start=TOKENIZER.pad if is_pair else None)
    after = [] if network.config.kind == "decoder" else [TOKENIZER.end]
    return Model(network, TOKENIZER.with_template(after=after), special)


@pytest.mark.parametrize("kind", KINDS)
def test_vectors_are_those_of_transformers(kind: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    auto_class, changes = KINDS[kind]
    model = random_model(**changes)
    regard.export(model, tmp_path / kind)
    theirs = getattr(transformers, auto_class).from_pretrained(tmp_path / kind).eval()
    if model.config.kind == "encoder-decoder":
        theirs = theirs.get_encoder()
    for text, ours in zip(TEXTS, model.hidden(TEXTS), strict=True):
        ids = model.require_tokenizer().encode_with_template(text)
        with torch.no_grad():
            states = theirs(input_ids=torch.tensor([ids]), output_hidden_states=True).hidden_states
        expected = torch.cat(states)  # [layers + 1, tokens, width]
        vectors = ours.vectors
        if model.config.kind == "encoder-decoder":  # exported with the sinusoids in halves
            vectors = torch.cat([vectors[..., 0::2], vectors[..., 1::2]], -1)
        assert vectors.shape == expected.shape == (model.config.layers + 1, len(ours.tokens), model.config.d_model)
        assert (vectors - expected).abs().max() < 1e-5


def test_one_text_gives_one_result(monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model()
    together = model.hidden(TEXTS)
    monkeypatch.setattr(module, "HIDDEN_BATCH_TOKENS", 1)
    for text, batched, single in zip(TEXTS, together, model.hidden(TEXTS), strict=True):
        alone = model.hidden(text)
        assert alone.tokens == batched.tokens == single.tokens == list(model.attend(text, "a").maps["encoder"].keys)
        assert torch.allclose(alone.vectors, batched.vectors, atol=1e-5)
        assert torch.equal(alone.vectors, single.vectors)
    assert model.hidden([]) == []


def test_a_copy_made_for_decoding_refuses_as_it_does_for_embed() -> None:
    copy = random_model().to(dtype=torch.float32).quick("float32")
    for call in (copy.hidden, copy.embed, copy.attend):
        with pytest.raises(regard.RegardError, match="made for decoding"):
            call(TEXTS[0])


def test_the_last_vectors_are_those_that_the_head_reads() -> None:
    model = random_model(kind="decoder", norm="pre")
    tokens = torch.tensor([model.require_tokenizer().encode_with_template(TEXTS[0])])
    assert isinstance(model.network, regard.Decoder)
    with torch.no_grad():
        assert torch.equal(model.hidden(TEXTS[0]).vectors[-1], model.network.hidden(tokens)[0])
        assert torch.equal(model.network.head(model.network.hidden(tokens)), model.network(tokens))


def test_a_prefix_sees_the_whole_text() -> None:
    """The text of a prefix decoder is a source, which is read bidirectionally."""
    model = random_model(kind="decoder", prefix=True)
    tokens = torch.tensor([model.require_tokenizer().encode_with_template(TEXTS[0])])
    assert isinstance(model.network, regard.Decoder)
    with torch.no_grad():
        expected = model.network.hidden(tokens, None, torch.tensor([tokens.size(1)]))[0]
    assert torch.allclose(model.hidden(TEXTS[0]).vectors[-1], expected, atol=1e-6)


def lens_of_transformers(kind: str, model: Model, folder: Path, text: str) -> list[torch.Tensor]:
    """The logits of each state, [tokens, outputs]: transformers' hidden states through its own norm and head."""
    transformers = pytest.importorskip("transformers")
    theirs = getattr(transformers, KINDS[kind][0]).from_pretrained(folder).eval()
    ids = torch.tensor([model.require_tokenizer().encode_with_template(text)])
    with torch.no_grad():
        if model.config.kind == "encoder-decoder":
            target = torch.tensor([[TOKENIZER.pad, *TOKENIZER.encode(TARGET)]])
            states = theirs(input_ids=ids, decoder_input_ids=target, output_hidden_states=True).decoder_hidden_states
        else:
            states = theirs(input_ids=ids, output_hidden_states=True).hidden_states
        norms = {
            "gpt2": lambda: theirs.transformer.ln_f,
            "llama": lambda: theirs.model.norm,
            "pegasus": lambda: theirs.model.decoder.layer_norm,
        }
        normed = [*map(norms.get(kind, torch.nn.Identity)(), states[:-1]), states[-1]]
        head = theirs.cls if kind == "bert" else theirs.lm_head
        bias = getattr(theirs, "final_logits_bias", torch.zeros(1))
        return [(head(state) + bias)[0, :, : model.config.outputs] for state in normed]


TARGET = "The cat"


@pytest.mark.parametrize("kind", KINDS)
def test_the_logit_lens_reads_every_layer_as_transformers_heads_would(kind: str, tmp_path: Path) -> None:
    model = random_model(**KINDS[kind][1])
    regard.export(model, tmp_path / kind)
    is_pair = model.config.kind == "encoder-decoder"
    attention = model.attend(TEXTS[0], TARGET if is_pair else None, lens=3)
    lens = attention.lens
    assert lens is not None
    assert lens.states == ["embedding", *(f"layer {i}" for i in range(model.config.decoder_depth))]
    assert lens.queries == attention.maps["encoder" if kind == "bert" else "decoder"].queries
    expected = lens_of_transformers(kind, model, tmp_path / kind, TEXTS[0])
    for state, logits in zip(lens.top, expected, strict=True):
        probabilities, ids = logits.softmax(-1).topk(3)
        assert torch.allclose(torch.tensor([[p for _, p in row] for row in state]), probabilities, atol=1e-5)
        names = [[readable(piece) for piece in TOKENIZER.pieces(row)] for row in ids.tolist()]
        assert [[token.removeprefix("·") for token, _ in row] for row in state] == [
            [name.removeprefix("·") for name in row] for row in names
        ]
    assert attention.to_json()["lens"]["top"][-1][0][0]["token"] == lens.top[-1][0][0][0]


@pytest.mark.usefixtures("without_type_checks")
def test_models_without_a_head_over_the_vocabulary_have_no_logit_lens() -> None:
    with pytest.raises(regard.RegardError, match="needs a head over the vocabulary"):
        random_model(kind="encoder", classes=3).attend(TEXTS[0], lens=1)
    headless = random_model(kind="encoder")
    headless.about["head"] = "none"
    with pytest.raises(regard.RegardError, match="needs a head over the vocabulary"):
        headless.attend(TEXTS[0], lens=1)
    for wrong in (-1, 1.5):
        with pytest.raises(regard.RegardError, match="lens"):
            random_model(kind="encoder").attend(TEXTS[0], lens=wrong)  # type: ignore[arg-type]
    attention = random_model(kind="encoder").attend(TEXTS[0], lens=10_000)
    assert attention.lens is not None
    assert len(attention.lens.top[0][0]) == TOKENIZER.size - 1  # all outputs: <pad> is not one
    assert "lens" not in random_model(kind="encoder").attend(TEXTS[0]).to_json()


def test_masks_in_a_text_are_read_as_masks() -> None:
    text = "Marie <mask> une <mask>."
    model = random_masked_model()
    attention, hidden = model.attend(text, lens=4), model.hidden(text)
    tokens = list(attention.maps["encoder"].queries)
    assert tokens == hidden.tokens
    positions = [i for i, token in enumerate(tokens) if token == "<mask>"]
    assert attention.lens is not None
    for position, fillings in zip(positions, model.fillings(text, 4), strict=True):
        predictions = attention.lens.top[-1][position]
        assert [p for _, p in predictions] == pytest.approx([filling.probability for filling in fillings], rel=1e-5)
    assert "<mask>" in attention.special
    with torch.no_grad():
        ids = [0, *MASK_TOKENIZER.encode(text, parse_special=True), 0]
        last = model.network.hidden(torch.tensor([ids]))[0]  # type: ignore[call-arg]
    torch.testing.assert_close(hidden.vectors[-1], last)
    assert "<mask>" not in random_masked_model(classes=3).hidden(text).tokens  # a classifier fills no masks
