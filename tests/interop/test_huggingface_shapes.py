"""Hugging Face architectures on random configurations, compared with `transformers`: equal logits in both directions,
and what Regard cannot represent is refused by name.

All weights are multiples of 1/64, so that sums of them are exact and logits can be compared in float64.
"""

import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tokenizers import Tokenizer as Engine
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import Metaspace
from tokenizers.trainers import BpeTrainer
from torch import Tensor

from regard.config import ModelConfig, SpecialIds
from regard.decoding.fast_copy import make_fast_copy
from regard.decoding.generate import generate, search_translations
from regard.decoding.options import Decoding
from regard.decoding.text_model import Model
from regard.errors import RegardError
from regard.evaluation.attention_alignment import attention_pairs
from regard.evaluation.test_sets import Examples
from regard.interop.export import export
from regard.interop.huggingface import ARCHITECTURES, export_huggingface, load_huggingface
from regard.interop.load import load
from regard.model.transformer import Decoder, EncoderDecoder, Network, build
from regard.petit import spans
from regard.training.recipe_files import read_recipe
from tests.support.commands import command, refused, write
from tests.support.text_models import LABELS, bert_tagger

pytestmark = pytest.mark.slow

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

Settings = dict[str, Any]


@dataclass(frozen=True)
class Shape:
    """A class of `transformers`, and random settings of its config."""

    model: str
    settings: Callable[[random.Random], Settings]
    tolerance: float = 1e-10

    @property
    def config(self) -> str:
        return self.model.partition("For")[0].removesuffix("Model") + "Config"


def encoder(pick: random.Random) -> Settings:
    heads = pick.choice([1, 2, 4])
    return {
        "vocab_size": pick.choice([31, 40]),
        "hidden_size": heads * pick.choice([2, 4, 6]),
        "num_hidden_layers": pick.choice([1, 2]),
        "num_attention_heads": heads,
        "intermediate_size": pick.choice([12, 20]),
        "hidden_act": pick.choice(["relu", "gelu", "gelu_new"]),
        "layer_norm_eps": pick.choice([1e-12, 1e-3]),
        "max_position_embeddings": 40,
        "num_labels": 5,
    }


def roberta(pick: random.Random) -> Settings:
    return encoder(pick) | {"pad_token_id": pick.choice([0, 1, 3]), "type_vocab_size": pick.choice([1, 2])}


def roberta_words(pick: random.Random) -> Settings:
    return roberta(pick) | {"hidden_act": "gelu", "tie_word_embeddings": pick.choice([True, False])}


def distilbert(pick: random.Random) -> Settings:
    settings = encoder(pick)
    names = {"hidden_size": "dim", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads"}
    names |= {"intermediate_size": "hidden_dim", "hidden_act": "activation"}
    del settings["layer_norm_eps"]
    settings = {names.get(name, name): value for name, value in settings.items()}
    return settings | {"tie_word_embeddings": pick.choice([True, False])}


def llama(pick: random.Random) -> Settings:
    heads = pick.choice([2, 4])
    rope: Settings = {"rope_theta": pick.choice([100.0, 10_000.0])}
    scaling: Settings = pick.choice(
        [
            {"rope_type": "default"},
            {"rope_type": "linear", "factor": 3.0},
            {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 16}
            | {"low_freq_factor": 1.0, "high_freq_factor": 4.0},
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
        ]
    )
    return {
        "vocab_size": pick.choice([31, 40]),
        "hidden_size": heads * pick.choice([4, 6]),
        "num_hidden_layers": pick.choice([1, 2]),
        "num_attention_heads": heads,
        "num_key_value_heads": pick.choice([n for n in (1, 2, 4) if heads % n == 0]),
        "intermediate_size": pick.choice([12, 20]),
        "max_position_embeddings": 64,
        "rms_norm_eps": pick.choice([1e-5, 1e-3]),
        "tie_word_embeddings": pick.choice([True, False]),
        "rope_parameters": rope | scaling,
        "eos_token_id": pick.randrange(3),
    }


def mistral(pick: random.Random) -> Settings:
    return llama(pick) | {"sliding_window": pick.choice([None, 1, 3]), "head_dim": pick.choice([None, 8])}


def qwen2(pick: random.Random) -> Settings:
    window = {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 0}
    return llama(pick) | pick.choice([{}, window])


def qwen3(pick: random.Random) -> Settings:
    return qwen2(pick) | {"head_dim": pick.choice([4, 8]), "attention_bias": pick.choice([True, False])}


def bart(pick: random.Random) -> Settings:
    heads, inner, vocabulary = pick.choice([1, 2]), pick.choice([12, 20]), pick.choice([31, 40])
    return {
        "vocab_size": vocabulary,
        "d_model": heads * pick.choice([4, 6]),
        "encoder_layers": pick.choice([1, 2]),
        "decoder_layers": pick.choice([1, 2, 3]),
        "encoder_attention_heads": heads,
        "decoder_attention_heads": heads,
        "encoder_ffn_dim": inner,
        "decoder_ffn_dim": inner,
        "activation_function": pick.choice(["relu", "gelu", "silu", "gelu_new"]),
        "scale_embedding": pick.choice([True, False]),
        "tie_word_embeddings": pick.choice([True, True, False]),
        "max_position_embeddings": 40,
        "pad_token_id": pick.choice([1, vocabulary - 1]),
        "decoder_start_token_id": 2,
        "eos_token_id": 0,
        "forced_eos_token_id": None,
    }


def m2m100(pick: random.Random) -> Settings:
    return bart(pick) | {"pad_token_id": 1}


def t5(pick: random.Random) -> Settings:
    return {
        "vocab_size": pick.choice([31, 40]),
        "d_model": 16,  # the factors √d_model and √d_kv are then exact
        "d_kv": pick.choice([4, 16]),
        "d_ff": pick.choice([12, 20]),
        "num_layers": pick.choice([1, 2]),
        "num_decoder_layers": pick.choice([1, 2, 3]),
        "num_heads": pick.choice([1, 2]),
        "relative_attention_num_buckets": pick.choice([4, 8]),
        "relative_attention_max_distance": pick.choice([5, 9]),
        "feed_forward_proj": pick.choice(["relu", "gelu", "gated-gelu", "gated-silu"]),
        "layer_norm_epsilon": pick.choice([1e-6, 1e-3]),
        "tie_word_embeddings": pick.choice([True, False]),  # False: version 1.1
        "decoder_start_token_id": 0,
        "eos_token_id": 1,
    }


FLOAT32_PARTS = 1e-5
"""Tolerance where `transformers` computes rotations, sinusoids or the norms of T5 in float32."""

SHAPES = [
    Shape("RobertaForMaskedLM", roberta_words),
    Shape("RobertaForSequenceClassification", roberta),
    Shape("BertForTokenClassification", encoder),
    Shape("RobertaForTokenClassification", roberta),
    Shape("RobertaModel", roberta),
    Shape("XLMRobertaForMaskedLM", roberta_words),
    Shape("XLMRobertaForSequenceClassification", roberta),
    Shape("DistilBertForMaskedLM", distilbert),
    Shape("DistilBertForSequenceClassification", distilbert),
    Shape("DistilBertForTokenClassification", distilbert),
    Shape("DistilBertModel", distilbert),
    Shape("LlamaForCausalLM", llama, FLOAT32_PARTS),
    Shape("MistralForCausalLM", mistral, FLOAT32_PARTS),
    Shape("Qwen2ForCausalLM", qwen2, FLOAT32_PARTS),
    Shape("Qwen3ForCausalLM", qwen3, FLOAT32_PARTS),
    Shape("BartForConditionalGeneration", bart),
    Shape("MBartForConditionalGeneration", bart),
    Shape("M2M100ForConditionalGeneration", m2m100, FLOAT32_PARTS),
    Shape("T5ForConditionalGeneration", t5, FLOAT32_PARTS),
]
BY_NAME = {shape.model: shape for shape in SHAPES}


@torch.no_grad()
def randomise(parameters: Any) -> None:
    for parameter in parameters:
        parameter.copy_(torch.randn(parameter.shape).mul(20).round() / 64)


def their_model(name: str, seed: int, **changes: Any) -> Any:
    """A model of `transformers` in which every parameter is random."""
    shape, pick = BY_NAME[name], random.Random(f"{name} {seed}")
    torch.manual_seed(seed)
    config = getattr(transformers, shape.config)(**shape.settings(pick) | changes)
    model = getattr(transformers, name)(config).eval()
    if config.model_type == "t5" and not config.scale_decoder_outputs:  # version 1.1 has an output layer of its own
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.clone())
    randomise(model.parameters())
    if config.is_encoder_decoder:  # if untied, `transformers` also separates these, which Regard does not read
        for side in (model.get_encoder(), model.get_decoder()):
            side.embed_tokens.weight.data.copy_(model.get_input_embeddings().weight.data)
    return model


def saved(theirs: Any, folder: Path) -> Path:
    theirs.save_pretrained(folder)
    return folder


@torch.no_grad()
def compare(theirs: Any, ours: Network, tolerance: float) -> None:
    """Both give the same output for a ragged batch, in float64."""
    theirs, ours, config = theirs.double().eval(), ours.double().eval(), ours.config
    rows, lengths = torch.randint(4, config.inputs - 1, (3, 7)), torch.tensor([7, 4, 1])
    mask = (torch.arange(7) < lengths[:, None]).long()
    if config.kind == "encoder" and config.pad_id is not None:
        rows = rows.where(mask.bool(), config.pad_id)  # RoBERTa recognises padding by its id
    if config.kind == "encoder-decoder":
        target = torch.randint(4, config.outputs - 1, (3, 5))
        expected = theirs(input_ids=rows, attention_mask=mask, decoder_input_ids=target).logits
        actual, kept = ours(rows, target, lengths), torch.ones(3, 5, dtype=torch.bool)
    else:
        output = theirs(input_ids=rows, attention_mask=mask)
        has_head = hasattr(output, "logits")
        expected = output.logits if has_head else output.last_hidden_state
        actual, kept = (ours if has_head else ours.hidden)(rows, lengths), mask.bool()
    if expected.dim() == 3:
        expected, actual = expected[kept], actual[kept]
    difference: Tensor = (expected[..., : actual.size(-1)] - actual).abs().max()
    assert difference < tolerance
    ours.float()


def check_reading(name: str, seed: int, folder: Path) -> None:
    theirs, tolerance = their_model(name, seed), BY_NAME[name].tolerance
    model = load_huggingface(saved(theirs, folder / "theirs"))
    compare(theirs, model.network, tolerance)
    export(model, folder / "again")
    settings = json.loads((folder / "again" / "config.json").read_text())
    assert (settings["model_type"], settings["architectures"]) == (theirs.config.model_type, [name])
    again = type(theirs).from_pretrained(folder / "again")
    compare(again, model.network, tolerance)
    if isinstance(model.network, Decoder | EncoderDecoder):
        compare_generation(again, model)


def compare_generation(theirs: Any, model: Model) -> None:
    """Both generate the same ids, and so does the fast copy."""
    assert isinstance(model.network, Decoder | EncoderDecoder)
    inputs, count = torch.randint(4, model.config.outputs - 1, (1, 5)), 9
    # With a window of 1 their cached output differs, and their cache fails for a T5 whose decoder is the deeper one.
    use_cache = getattr(theirs.config, "sliding_window", None) != 1 and theirs.config.model_type != "t5"
    options = {"do_sample": False, "num_beams": 1, "max_new_tokens": count, "use_cache": use_cache}
    expected = theirs.generate(inputs, attention_mask=torch.ones_like(inputs), **options)[0].tolist()
    expected = expected[1 if model.config.kind == "encoder-decoder" else inputs.size(1) :]
    search = search_translations if model.config.kind == "encoder-decoder" else generate
    for network in (model.network, make_fast_copy(model.network, "float32")):
        ((best,),) = search(network, model.special, inputs.tolist(), Decoding(max_tokens=count))  # type: ignore[arg-type]
        assert [*best.ids, *([expected[-1]] if best.reason == "end" else [])] == expected


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", BY_NAME)
def test_their_models_give_the_same_logits_and_are_exported_as_what_they_were(
    name: str, seed: int, tmp_path: Path
) -> None:
    check_reading(name, seed, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 30))
@pytest.mark.parametrize("name", BY_NAME)
def test_many_of_their_models(name: str, seed: int, tmp_path: Path) -> None:
    check_reading(name, seed, tmp_path)


ENCODER: Settings = {"kind": "encoder", "embedding_norm": True, "positions": "learned", "norm_eps": 1e-12, "pad": 0}
PAIR: Settings = {"heads": 2, "decoder_layers": 1, "kv_heads": 1, "bias": False, "pad": 1}
T5: Settings = {
    "norm": "pre",
    "norm_kind": "rms",
    "bias": False,
    "positions": "t5",
    "pad": 0,
    "scale_embeddings": False,
}
LLAMA: Settings = {"kind": "decoder", "norm": "pre", "norm_kind": "rms", "positions": "rotary", "activation": "swiglu"}
LLAMA |= {"bias": False, "kv_heads": 2, "scale_embeddings": False}
OURS: dict[str, tuple[Settings, str, str]] = {
    "a tagger": (
        ENCODER | {"classes": 3, "classes_per": "token"},
        "BertForTokenClassification",
        "AutoModelForTokenClassification",
    ),
    "a classifier with relu": (
        ENCODER | {"classes": 3, "classifier_activation": "relu"},
        "DistilBertForSequenceClassification",
        "AutoModelForSequenceClassification",
    ),
    "learned positions for both sides": (
        PAIR | {"positions": "learned", "embedding_norm": True},
        "BartForConditionalGeneration",
        "AutoModelForSeq2SeqLM",
    ),
    "learned positions for each side, pre-norm": (
        PAIR | {"positions": "learned", "embedding_norm": True, "separate_positions": True, "norm": "pre", "pad": -1},
        "MBartForConditionalGeneration",
        "AutoModelForSeq2SeqLM",
    ),
    "fairseq's sinusoids": (
        PAIR | {"norm": "pre", "sinusoids": "fairseq"},
        "M2M100ForConditionalGeneration",
        "AutoModelForSeq2SeqLM",
    ),
    "a relative bias": (
        T5 | {"d_k": 4, "d_v": 4, "attention_scale": 1.0, "activation": "geglu-tanh", "tied": False},
        "T5ForConditionalGeneration",
        "AutoModelForSeq2SeqLM",
    ),
    "a relative bias, with the paper's scale of attention": (
        T5 | {"relative_buckets": 8, "scale_embeddings": True},
        "T5ForConditionalGeneration",
        "AutoModelForSeq2SeqLM",
    ),
    "norms of queries and keys": (
        LLAMA | {"qk_norm": True, "rotary_pairs": "adjacent", "attention_bias": True},
        "Qwen3ForCausalLM",
        "AutoModelForCausalLM",
    ),
    "norms of queries and keys, and a window": (
        LLAMA | {"qk_norm": True, "window": 3},
        "Qwen3ForCausalLM",
        "AutoModelForCausalLM",
    ),
    "biases of queries, keys and values": (
        LLAMA | {"attention_bias": "qkv"},
        "Qwen2ForCausalLM",
        "AutoModelForCausalLM",
    ),
    "a window": (LLAMA | {"window": 3, "d_k": 8, "d_v": 8}, "MistralForCausalLM", "AutoModelForCausalLM"),
}
"""Settings of our models, and the classes of `transformers` that their exports have and are loaded by."""


def our_model(**settings: Any) -> Model:
    torch.manual_seed(0)
    sizes = {"vocab_size": 30, "d_model": 16, "heads": 4, "layers": 2, "d_ff": 12, "max_length": 40, "dropout": 0.0}
    config = ModelConfig(**sizes | settings)
    network = build(config).eval()
    randomise(network.parameters())
    start = 3 if config.kind == "encoder-decoder" else None
    return Model(network, special=SpecialIds(end=(2,), start=start))


@pytest.mark.parametrize("name", OURS)
def test_our_models_are_exported_by_their_shape(name: str, tmp_path: Path) -> None:
    settings, expected, auto_class = OURS[name]
    model = our_model(**settings)
    export(model, tmp_path / "ours")
    theirs = getattr(transformers, auto_class).from_pretrained(tmp_path / "ours")
    assert type(theirs).__name__ == expected
    compare(theirs, model.network, BY_NAME[expected].tolerance)
    compare(theirs, load_huggingface(tmp_path / "ours").network, BY_NAME[expected].tolerance)


@pytest.mark.parametrize(
    ("recipe", "classes", "architecture"),
    [
        ("petit-tag", 3, "BertForTokenClassification"),
        ("petit-classify", 3, "BertForSequenceClassification"),
        ("petit-masked", 0, "BertForMaskedLM"),
    ],
)
def test_models_of_the_recipes_for_encoders_can_be_exported(
    recipe: str, classes: int, architecture: str, tmp_path: Path
) -> None:
    model = Model(build(read_recipe(recipe).config(vocab_size=40, classes=classes)).eval())
    export(model, tmp_path / "ours")
    theirs = getattr(transformers, architecture).from_pretrained(tmp_path / "ours")
    compare(theirs, model.network, 1e-6)


LANGUAGE_TEXTS = ["Le petit chat noir dort.", "The little black cat sleeps."]


def nllb_folder(folder: Path) -> Path:
    """A random NLLB model with a tokenizer that Hugging Face's class writes: the language is before each source."""
    engine = Engine(BPE(unk_token="<unk>"))
    engine.pre_tokenizer = Metaspace()
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    engine.train_from_iterator(LANGUAGE_TEXTS, BpeTrainer(vocab_size=70, special_tokens=special, show_progress=False))
    learned = json.loads(engine.to_str())["model"]
    tokenizer = transformers.NllbTokenizer(
        learned["vocab"],
        [tuple(merge) for merge in learned["merges"]],  # type: ignore[misc]  # annotated as strings
        extra_special_tokens=["eng_Latn", "fra_Latn", "zho_Hans"],
    )
    tokenizer.save_pretrained(folder)
    model = their_model("M2M100ForConditionalGeneration", 1, vocab_size=len(tokenizer), eos_token_id=2)
    return saved(model, folder)


def mbart_folder(folder: Path, start: int = 2) -> Path:
    """A random mBART model: the language follows each source, and a target starts with </s> or with its language."""
    pieces = ["▁", *sorted(set("".join(LANGUAGE_TEXTS))), "▁chat", "▁Le"]
    vocabulary = [*((token, 0.0) for token in ("<s>", "<pad>", "</s>", "<unk>")), *((piece, -2.0) for piece in pieces)]
    tokenizer = transformers.MBartTokenizer(vocabulary)
    tokenizer.save_pretrained(folder)
    size = {"vocab_size": len(tokenizer), "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": start}
    return saved(their_model("MBartForConditionalGeneration", 1, **size), folder)


def their_translation(folder: Path, text: str, source: str, target: str, forced: bool = True) -> str:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, src_lang=source)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    code = tokenizer.convert_tokens_to_ids(target)
    choice = {"forced_bos_token_id": code} if forced else {"decoder_start_token_id": code}
    options: Any = {"max_new_tokens": 13, "num_beams": 1, "do_sample": False} | choice
    ids = model.generate(**tokenizer(text, return_tensors="pt"), **options)
    return str(tokenizer.decode(ids[0], skip_special_tokens=True))


@pytest.mark.parametrize("source", ["fra_Latn", "eng_Latn"])
def test_nllb_translates_between_given_languages(source: str, tmp_path: Path) -> None:
    folder, text = nllb_folder(tmp_path / "nllb"), "Le chat dort"
    model = load_huggingface(folder)
    assert model.languages == ["eng_Latn", "fra_Latn", "zho_Hans"]
    by_target = {
        target: model.translate(text, source=source, target=target, beam=1, max_tokens=12) for target in model.languages
    }
    # Theirs counts the language as a generated token, ours does not.
    assert by_target == {t: their_translation(folder, text, source, t) for t in model.languages}
    assert len(set(by_target.values())) == 3
    chosen = model.for_languages(source, "fra_Latn")
    assert chosen.quick("float32").translate(text, beam=1, max_tokens=12) == by_target["fra_Latn"]
    assert chosen.special.target_start == (2, model.tokenizer.languages["fra_Latn"])  # type: ignore[union-attr]
    chosen.save(tmp_path / "ours")
    export(chosen, tmp_path / "exported")
    for again in (Model.from_folder(tmp_path / "ours"), load_huggingface(tmp_path / "exported")):
        assert again.translate(text, beam=1, max_tokens=12) == by_target["fra_Latn"]
        assert again.score([text], ["chat"]) == pytest.approx(chosen.score([text], ["chat"]), abs=1e-4)
    assert chosen.attend(text, "chat").maps["decoder"].writes[0] == "fra_Latn"


@torch.no_grad()
def test_a_score_does_not_include_the_language(tmp_path: Path) -> None:
    model = load_huggingface(nllb_folder(tmp_path / "nllb")).for_languages("eng_Latn", "fra_Latn")
    tokenizer = model.require_tokenizer()
    source, target = tokenizer.encode_with_template("cat"), tokenizer.encode("chat")
    read = [*model.special.target_start, *target]
    log_probs = model.network(torch.tensor([source]), torch.tensor([read])).double().log_softmax(-1)[0]
    expected = sum(float(log_probs[i + 1, id_]) for i, id_ in enumerate([*target, 2]))
    assert model.score(["cat"], ["chat"]) == pytest.approx([expected], abs=1e-4)


@pytest.mark.parametrize("forced", [True, False])
def test_mbart_translates_between_given_languages(forced: bool, tmp_path: Path) -> None:
    """mBART-50 forces the language after its start token; mBART-25 starts with the language."""
    folder, text = mbart_folder(tmp_path / "mbart"), "Le chat dort"
    if not forced:
        code = load_huggingface(folder).require_tokenizer().languages["ro_RO"]
        folder = mbart_folder(tmp_path / "mbart25", code)
    model = load_huggingface(folder)
    for source, target in (("fr_XX", "en_XX"), ("en_XX", "ar_AR")):
        ours = model.translate(text, source=source, target=target, beam=1, max_tokens=12 if forced else 13)
        assert ours == their_translation(folder, text, source, target, forced)


def test_languages_on_the_command_line(tmp_path: Path) -> None:
    folder, text = str(nllb_folder(tmp_path / "nllb")), "Le chat dort"
    options = ("--model", folder, "--beam", "1", "--max-tokens", "12", "--precision", "float32", text)
    printed = command("translate", "--from", "fra_Latn", "--to", "zho_Hans", *options).output
    assert printed.strip() == their_translation(tmp_path / "nllb", text, "fra_Latn", "zho_Hans").strip()
    assert "choose the language to translate to with --to: this model has eng_Latn" in refused("translate", *options)


def test_languages_of_evaluate_attend_and_compare(tmp_path: Path) -> None:
    folder, text, pair = str(nllb_folder(tmp_path / "nllb")), "Le chat dort", ("--from", "fra_Latn", "--to", "zho_Hans")
    files = [write(tmp_path, "test.fr", [text]), write(tmp_path, "test.zh", ["chat"])]
    command("evaluate", folder, *files, *pair, "--beam", "1", "--outputs", str(tmp_path / "written"))
    expected = load(folder).translate(text, source="fra_Latn", target="zho_Hans", beam=1)
    assert (tmp_path / "written").read_text() == f"{expected}\n"
    command("attend", text, "--model", folder, *pair, "--json", str(tmp_path / "attention.json"))
    maps = {made["kind"]: made for made in json.loads((tmp_path / "attention.json").read_text())["maps"]}
    assert (maps["encoder"]["keys"][0], maps["decoder"]["writes"][0]) == ("fra_Latn", "zho_Hans")
    choose = "choose the language to translate to with"
    assert f"{choose} --to" in refused("evaluate", folder, *files)
    assert f"{choose} --to" in refused("attend", text, "--model", folder)
    compared = refused("compare", folder, files[1], "--source", files[0], "--reference", files[1])
    assert f"{choose} regard translate --to, and compare the file of its output" in compared
    assert "not multilingual" in refused("evaluate", "petit-fr-en", *files, "--to", "zho_Hans")
    assert "not multilingual" in refused("attend", text, "--model", "petit-fr-en", "--to", "zho_Hans")
    assert "test.zh is a file of outputs" in refused("evaluate", files[1], *files, "--to", "zho_Hans")
    bert_tagger().save(tmp_path / "tagger")
    assert "--to is for translators" in refused("evaluate", str(tmp_path / "tagger"), files[0], "--to", "zho_Hans")


def test_a_multilingual_model_is_served_for_one_pair_of_languages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("fastapi")
    from regard.server import listen
    from regard.server.libretranslate_api import select_model

    registries: list[Any] = []
    monkeypatch.setattr(listen, "bind", lambda *_: None)
    monkeypatch.setattr(listen, "run_server", lambda *given: registries.append(given[3].__self__))  # registry.stop
    folder = str(nllb_folder(tmp_path / "nllb"))
    served_models = ("serve", "petit-fr-en", f"many={folder}", "--precision", "float32")
    message = refused(*served_models)
    assert "many: choose the language to translate to with --to: this model has eng_Latn" in message
    assert "not for petit-fr-en: leave them out" in refused("serve", "petit-fr-en", "--to", "fr")
    assert registries == []
    command(*served_models, "--from", "fra_Latn", "--to", "zho_Hans")
    (registry,) = registries
    assert list(registry.language_pairs()) == [("fr", "en"), ("fra_Latn", "zho_Hans")]
    _, served = select_model(registry, "fra_Latn", "zho_Hans")
    assert served is registry.by_name["many"]
    expected = load(folder).translate("chat", source="fra_Latn", target="zho_Hans", beam=1, max_tokens=5)
    assert served.engine.model.translate("chat", beam=1, max_tokens=5) == expected


def test_every_use_of_a_multilingual_model_needs_a_target_language(tmp_path: Path) -> None:
    model = load_huggingface(nllb_folder(tmp_path / "nllb"))
    links = [frozenset[tuple[int, int]]()]
    examples = Examples(("test.fr", "test.en"), ["chat"], [["cat"]], [1], 1)
    uses: dict[str, Callable[[], object]] = {
        "translator": model.translator,
        "score": lambda: model.score(["chat"], ["cat"]),
        "attend": lambda: model.attend("chat"),
        "attend to a target": lambda: model.attend("chat", "cat"),
        "observe": lambda: model.observe("chat", "cat", [5, 2]),
        "search_tree": lambda: model.search_tree("chat"),
        "attention_pairs": lambda: list(attention_pairs(model, examples, links, "writing", spans)),
    }
    for name, use in uses.items():
        with pytest.raises(ValueError, match=r"choose .* with model.for_languages\(target=...\)"):
            pytest.fail(f"{name}: {use()}")
    assert model.embed("chat").shape == (model.config.d_model,)  # reads the source only


def test_both_languages_are_recorded(tmp_path: Path) -> None:
    model = load_huggingface(nllb_folder(tmp_path / "nllb"))
    assert model.for_languages(None, "fra_Latn").about["languages"] == ["eng_Latn", "fra_Latn"]  # the tokenizer's
    changed = model.for_languages("fra_Latn", "zho_Hans").for_languages("eng_Latn")
    assert changed.about["languages"] == ["eng_Latn", "zho_Hans"]
    tokenizer = model.require_tokenizer()
    without = replace(model, tokenizer=tokenizer.with_template((), tokenizer.after))
    target_only = without.for_languages(None, "fra_Latn")
    assert target_only.about["languages"] == [None, "fra_Latn"]
    assert target_only.source_language is None
    assert without.for_languages("fra_Latn").about["languages"] == ["fra_Latn", None]


def test_wrong_languages_are_refused(tmp_path: Path) -> None:
    model = load_huggingface(nllb_folder(tmp_path / "nllb"))
    cases: list[tuple[Any, str]] = [
        ({}, r"choose the language to translate to .*: this model has eng_Latn, fra_Latn, zho_Hans"),
        ({"source": "fra_Latn"}, "choose the language to translate to"),
        ({"target": "fr"}, "does not know the language 'fr': it has eng_Latn"),
        ({"target": "fra_Lat"}, "does not know the language 'fra_Lat': did you mean 'fra_Latn'"),
    ]
    for languages, message in cases:
        with pytest.raises(ValueError, match=message):
            model.translate("chat", **languages)
    fixed = load("petit-fr-en")
    assert fixed.translate("Le chat dort.", source="fr", target="en") == "The cat is sleeping."
    with pytest.raises(ValueError, match=r"'en' and 'fr': .* not multilingual, it translates from 'fr' to 'en'"):
        fixed.translate("chat", source="en", target="fr")


REFUSED: list[tuple[str, Settings, str]] = [
    ("RobertaForMaskedLM", {"hidden_act": "relu"}, r"hidden_act='relu' is not supported; Regard reads only 'gelu'"),
    ("RobertaForMaskedLM", {"is_decoder": True}, "is_decoder=True is not supported"),
    ("RobertaModel", {"pad_token_id": None}, "pad_token_id=None, but positions are counted from it"),
    ("RobertaModel", {"pad_token_id": 39}, "pad_token_id=39, but positions are counted from it"),
    ("DistilBertModel", {"activation": "mish"}, "does not support the activation 'mish'"),
    ("BartForConditionalGeneration", {"decoder_ffn_dim": 13}, "decoder_ffn_dim=13 is not supported"),
    ("BartForConditionalGeneration", {"normalize_before": True}, "normalize_before=True is not supported"),
    ("MBartForConditionalGeneration", {"normalize_embedding": False}, "normalize_embedding=False is not supported"),
    ("M2M100ForConditionalGeneration", {"pad_token_id": 0}, "pad_token_id=0 is not supported; Regard reads only 1"),
    ("M2M100ForConditionalGeneration", {"architectures": ["M2M100Model"]}, "architectures=.'M2M100Model'. is not"),
    ("T5ForConditionalGeneration", {"feed_forward_proj": "gated-tanh"}, "does not support the activation 'gated-tanh'"),
    ("T5ForConditionalGeneration", {"architectures": ["T5EncoderModel"]}, "architectures=.'T5EncoderModel'. is not"),
    ("T5ForConditionalGeneration", {"relative_attention_num_buckets": 3}, "relative_buckets=3 must be even"),
    ("MistralForCausalLM", {"hidden_act": "gelu"}, "hidden_act='gelu' is not supported"),
    ("MistralForCausalLM", {"sliding_window": 0}, "window=0 is too small"),
    ("Qwen2ForCausalLM", {"layer_types": ["full_attention", "sliding_attention"]}, "layers have different windows"),
    ("Qwen3ForCausalLM", {"rope_parameters": {"rope_type": "longrope"}}, "rope_type='longrope' is not supported"),
    ("Qwen2ForCausalLM", {"layer_types": ["chunked_attention"] * 2}, "only full_attention and sliding_attention"),
    ("XLMRobertaForMaskedLM", {"architectures": ["XLMRobertaForCausalLM"]}, "does not support XLMRobertaForCausalLM"),
]


@pytest.mark.parametrize(("name", "changes", "message"), REFUSED)
def test_settings_that_regard_cannot_represent_are_refused(
    name: str, changes: Settings, message: str, tmp_path: Path
) -> None:
    folder = saved(their_model(name, 0), tmp_path / "theirs")
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | changes))
    with pytest.raises(ValueError, match=message):
        load_huggingface(folder)


def test_targets_of_m2m100_that_start_with_pad_are_refused(tmp_path: Path) -> None:
    """<pad> has no position there."""
    message = r"the targets of this model start with <pad> \(decoder_start_token_id=1\)"
    theirs = their_model("M2M100ForConditionalGeneration", 0, decoder_start_token_id=1)
    with pytest.raises(ValueError, match=rf"config\.json: {message}"):
        load_huggingface(saved(theirs, tmp_path / "theirs"))
    ours = our_model(**PAIR, norm="pre", sinusoids="fairseq")
    with pytest.raises(ValueError, match=message):
        export(replace(ours, special=replace(ours.special, start=1)), tmp_path / "ours")


SIZES: Settings = {"vocab_size": 40, "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 32}
SIZES |= {"intermediate_size": 24}
PAIR_SIZES: Settings = {"vocab_size": 40, "d_model": 8, "encoder_layers": 1, "decoder_layers": 2, "pad_token_id": 1}
PAIR_SIZES |= {f"{side}_{part}": 4 for side in ("encoder", "decoder") for part in ("attention_heads", "ffn_dim")}
DISTILBERT_SIZES: Settings = {"vocab_size": 40, "dim": 8, "n_layers": 1, "n_heads": 2, "hidden_dim": 12}
T5_SIZES: Settings = {"vocab_size": 40, "d_model": 8, "d_kv": 4, "num_layers": 1, "num_heads": 2, "d_ff": 12}
WINDOW: Settings = {"use_sliding_window": True, "max_window_layers": 0}
MINIMAL: list[tuple[str, Settings]] = [
    *((kind, SIZES) for kind in ("bert", "roberta", "xlm-roberta", "llama", "mistral", "qwen2", "qwen3")),
    *((kind, SIZES | WINDOW) for kind in ("qwen2", "qwen3")),
    *((kind, SIZES | {"use_sliding_window": True, "num_hidden_layers": 28}) for kind in ("qwen2", "qwen3")),
    *((kind, PAIR_SIZES) for kind in ("marian", "pegasus", "bart", "mbart", "m2m_100")),
    ("bert", SIZES | {"architectures": ["BertForMaskedLM"]}),
    ("bert", SIZES | {"architectures": ["BertForSequenceClassification"]}),
    ("roberta", SIZES | {"architectures": ["RobertaForTokenClassification"]}),
    ("distilbert", DISTILBERT_SIZES),
    ("gpt2", {"vocab_size": 40, "n_embd": 8, "n_layer": 1, "n_head": 2}),
    ("t5", T5_SIZES),
]
"""The settings that Regard requires, and some that make others matter."""


def explicit(config: ModelConfig) -> ModelConfig:
    """The same config with numbers instead of None where they follow from others."""
    d_k, d_v, kv_heads = config.widths
    decoder_layers = config.decoder_depth if config.kind == "encoder-decoder" else None
    return replace(config, d_k=d_k, d_v=d_v, kv_heads=kv_heads, decoder_layers=decoder_layers)


@pytest.mark.parametrize(("model_type", "settings"), MINIMAL)
def test_missing_settings_have_the_defaults_of_transformers(model_type: str, settings: Settings) -> None:
    complete = json.loads(transformers.AutoConfig.for_model(model_type, **settings).to_json_string(use_diff=False))
    assert len(complete) > len(settings) + 10
    read_config = ARCHITECTURES[model_type].read_config
    assert explicit(read_config(settings, "config.json")) == explicit(read_config(complete, "config.json"))


def test_a_missing_window_is_that_of_transformers() -> None:
    for model_type in ("qwen2", "qwen3"):
        assert ARCHITECTURES[model_type].read_config(SIZES | WINDOW, "config.json").window == 4096


INVALID: list[tuple[str, Settings, str]] = [
    ("qwen2", SIZES | {"num_hidden_layers": 0}, "layers=0 is too small"),
    ("qwen2", SIZES | WINDOW | {"max_window_layers": "x"}, "max_window_layers='x' has type str: expected int"),
    ("qwen2", SIZES | {"layer_types": [["x"], 2]}, "layer_types=[['x'], 2] has type list: expected a list of str"),
    ("qwen3", SIZES | {"use_sliding_window": "maybe"}, "use_sliding_window='maybe' has type str: expected bool"),
    ("qwen3", SIZES | {"rope_scaling": [1]}, "rope_scaling=[1] has type list: expected names and values or none"),
    ("llama", SIZES | {"attention_bias": "qkv"}, "attention_bias='qkv' has type str: expected bool"),
    ("llama", SIZES | {"mlp_bias": 1}, "mlp_bias=1 has type int: expected bool"),
    ("llama", SIZES | {"rope_scaling": {"rope_type": ["x"]}}, "rope_type=['x'] has type list: expected str"),
    ("llama", SIZES | {"rope_theta": "x"}, "rope_theta='x' has type str: expected float"),
    ("llama", SIZES | {"rope_theta": 10**400}, "is too large: it must be at most 1,000,000,000,000,000"),
    ("roberta", SIZES | {"max_position_embeddings": None}, "max_position_embeddings=None has type NoneType: expected"),
    ("roberta", SIZES | {"vocab_size": "x"}, "vocab_size='x' has type str: expected int"),
    ("bert", SIZES | {"num_labels": "x"}, "num_labels='x' has type str: expected int"),
    ("bert", SIZES | {"id2label": ["x"]}, "id2label=['x'] has type list: expected names and values or none"),
    ("bert", SIZES | {"architectures": "Bert"}, "architectures='Bert' has type str: expected a list of str or none"),
    ("distilbert", DISTILBERT_SIZES | {"activation": ["x"]}, "activation=['x'] has type list: expected str"),
    ("t5", T5_SIZES | {"feed_forward_proj": {}}, "feed_forward_proj={} has type dict: expected str"),
    ("bart", PAIR_SIZES | {"decoder_layers": 1.5}, "decoder_layers=1.5 has type float: expected int or none"),
]


@pytest.mark.parametrize(("model_type", "settings", "message"), INVALID)
def test_invalid_settings_are_reported_by_name(
    model_type: str, settings: Settings, message: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(settings | {"model_type": model_type}))
    with pytest.raises(RegardError, match=re.escape(message)) as caught:
        load_huggingface(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / 'config.json'}: ")


RATES: Settings = {"dropout": 0.125, "attention_dropout": 0.25, "feed_forward_dropout": 0.375}
DROPOUT_NOTES: list[tuple[Settings, str]] = [
    (T5, "training, attention_dropout is 0.125 instead of 0.25, feed_forward_dropout is 0.125 instead of 0.375."),
    (ENCODER, "training, feed_forward_dropout is 0.0 instead of 0.375."),
    (LLAMA, "training, dropout is 0.0 instead of 0.125, feed_forward_dropout is 0.0 instead of 0.375."),
    ({"kind": "decoder", "norm": "pre"}, "training, feed_forward_dropout is 0.0 instead of 0.375."),
]


@pytest.mark.parametrize(("settings", "message"), DROPOUT_NOTES)
def test_dropout_rates_that_an_export_changes_are_noted(settings: Settings, message: str, tmp_path: Path) -> None:
    (note,) = export_huggingface(our_model(**settings | RATES), tmp_path).notes
    assert note.endswith(message)


def test_an_export_that_keeps_all_dropout_rates_has_no_note_on_them(tmp_path: Path) -> None:
    notes = export_huggingface(our_model(**RATES, positions="learned", embedding_norm=True), tmp_path).notes
    assert notes == ()
    config = load_huggingface(tmp_path).config
    assert {name: getattr(config, name) for name in RATES} == RATES


REFUSED_EXPORTS: list[tuple[str, Settings, str]] = [
    ("roberta", ENCODER | {"output_transform": True}, "activation is relu, but that of RoBERTa's head is always gelu"),
    ("xlm-roberta", ENCODER | {"pad": None}, "it has no <pad>, and XLM-R counts positions from its id"),
    ("distilbert", ENCODER | {"norm_eps": 1e-5}, "norm_eps is 1e-05, but there it is always 1e-12"),
    ("distilbert", ENCODER | {"classes": 2}, "classifier_activation is tanh, but DistilBERT's is relu"),
    ("llama", LLAMA | {"attention_bias": "qkv"}, "its attention_bias is qkv, but Llama's is true or false"),
    ("llama", LLAMA | {"window": 4}, "its attention has a window, but Llama's has none"),
    ("mistral", LLAMA | {"bias": True}, "its feed-forward networks have biases, but Mistral's do not"),
    ("mistral", LLAMA | {"attention_bias": True}, "its attention_bias is True, but Mistral's is False"),
    ("qwen2", LLAMA | {"qk_norm": True}, "its attention_bias is False, but Qwen2's is qkv"),
    ("qwen3", LLAMA, "its qk_norm is False, but Qwen3's is True"),
    (
        "gpt2",
        LLAMA | {"norm_kind": "layer", "qk_norm": True},
        "exported as a Hugging Face model: it normalises queries and keys",
    ),
    ("gpt2", LLAMA | {"norm_kind": "layer", "window": 4}, "each position sees only 4 positions"),
    ("bart", {"positions": "learned"}, "its embeddings are not normalised"),
    ("mbart", {"positions": "learned", "embedding_norm": True}, "its norms are not LayerNorm before each sub-layer"),
    ("m2m_100", {"norm": "pre", "pad": 1}, "its sinusoids are of the kind 'paper', but there they are 'fairseq'"),
    ("m2m_100", {"norm": "pre", "sinusoids": "fairseq"}, "the id of <pad> is 29, but positions are counted from 1"),
    ("m2m_100", {"norm": "pre", "sinusoids": "fairseq", "pad": 1, "output_bias": True}, "M2M100 has none"),
    ("pegasus", {"norm": "pre", "sinusoids": "fairseq"}, "its sinusoids are of the kind 'fairseq'"),
    ("t5", T5 | {"bias": True}, "its linear layers have biases"),
    ("t5", T5 | {"kv_heads": 2}, "its query heads share keys and values"),
    ("t5", T5 | {"pad": -1}, "<pad> is the last id"),
    ("t5", {"norm": "pre", "bias": False, "norm_kind": "rms"}, "its positions are sinusoidal"),
    ("marian", {"qk_norm": True}, "normalises queries and keys"),
    ("bert", ENCODER | {"classes": 2, "classifier_activation": "relu"}, "is relu, but BERT's is tanh"),
]


@pytest.mark.parametrize(("model_type", "settings", "message"), REFUSED_EXPORTS)
def test_models_that_an_architecture_cannot_represent_are_not_exported(
    model_type: str, settings: Settings, message: str, tmp_path: Path
) -> None:
    model = replace(our_model(**settings), about={"model_type": model_type})
    with pytest.raises(ValueError, match=message):
        export(model, tmp_path / "ours")
    assert not list(tmp_path.iterdir())


def test_an_export_follows_the_kind_of_the_model_and_not_a_damaged_note(tmp_path: Path) -> None:
    for i, note in enumerate(["llama", "no such type", 3]):
        export(replace(our_model(**ENCODER, classes=2), about={"model_type": note}), tmp_path / str(i))
        assert json.loads((tmp_path / str(i) / "config.json").read_text())["model_type"] == "bert"


def test_words_are_tagged_as_in_transformers(tmp_path: Path) -> None:
    model = bert_tagger()
    export(model, tmp_path / "tagger")
    theirs = transformers.AutoModelForTokenClassification.from_pretrained(tmp_path / "tagger").eval()
    assert theirs.config.id2label == dict(enumerate(LABELS))
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "tagger")
    sentences = [["le", "chaton", "dort", "."], ["chats"], ["dort", "le", "chatons", "inconnu", "."]]
    loaded = load_huggingface(tmp_path / "tagger")
    assert loaded.about["classes"] == LABELS
    for words, ours in zip(sentences, loaded.tag(sentences), strict=True):
        encoded = tokenizer(words, is_split_into_words=True, return_tensors="pt")
        assert len(encoded.input_ids[0]) > len(words) + 2 or "chaton" not in words  # words of several pieces
        with torch.inference_mode():
            probabilities = theirs(input_ids=encoded.input_ids).logits.softmax(-1)[0]
        firsts = [encoded.word_ids(0).index(i) for i in range(len(words))]
        assert [word.label for word in ours] == [LABELS[i] for i in probabilities[firsts].argmax(-1).tolist()]
        assert [word.probability for word in ours] == pytest.approx(
            probabilities[firsts].max(-1).values.tolist(), abs=1e-5
        )
