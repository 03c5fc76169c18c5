"""Hostile model folders: each is rejected with a message that says what is wrong, no code runs, and memory is bounded.

Each case modifies a copy of one small valid folder. All cases are tried a second time in a separate process without
run-time type checks, where the peak memory is measured case by case.
"""

import base64
import io
import json
import os
import pickle
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import traceback
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.config import SpecialIds
from regard.data.tokenizer_training import train_tokenizer
from regard.decoding.text_model import Model
from regard.errors import RegardError
from regard.interop.huggingface import load_huggingface
from regard.model.transformer import build
from regard.storage import model_folder as store
from regard.storage.weights import pickle_refusal
from tests.support.oracles import small
from tests.support.tokenizer_files import added_token, replace_normalizer, split_pre_tokenizer, template_processor
from tests.support.work_limits import fail_when_hanging

ROOT = Path(__file__).parents[2]
WORDS = ["un", "chat", "noir", "dort", "mange", "une", "pomme", "rouge", "et", "boit", "de", "l'eau"]
SENTENCES = [f"{a} {b} {c}." for a in WORDS for b in WORDS for c in WORDS[:4]]
MOST_MEMORY = 150_000_000
CLEAR_PEAK = Path("/proc/self/clear_refs")

Craft = Callable[[Path], None]


@dataclass(frozen=True)
class Case:
    base: str
    craft: Craft
    message: str
    by_api: str = ""
    """what `regard.load` says, where it is another thing"""


CASES: dict[str, Case] = {}


def case(base: str, message: str, name: str = "", by_api: str = "") -> Callable[[Craft], Craft]:
    """Register a function that damages a folder of the kind `base`."""

    def enter(craft: Craft) -> Craft:
        label = name or craft.__name__.strip("_").replace("_", " ")
        assert label not in CASES
        CASES[label] = Case(base, craft, message, by_api)
        return craft

    return enter


# --- helpers


def config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def tensors(path: Path) -> tuple[dict[str, Any], bytes]:
    """Return the header and the data of a safetensors file."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def craft_tensors(path: Path, header: object, data: bytes = b"", length: int | None = None) -> None:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + data)


def weights(folder: Path, change: Callable[[dict[str, Any]], object], more: bytes = b"") -> None:
    """Edit the header of a folder's only safetensors file in place."""
    path = folder / "model.safetensors"
    header, data = tensors(path)
    change(header)
    craft_tensors(path, header, data + more)


def write_manifest(folder: Path) -> None:
    """Write a manifest that matches the current files: an attacker can write one, too."""
    (folder / store.MANIFEST_FILE).unlink()
    store.write_manifest(folder)


def marker(folder: Path) -> Path:
    return folder.parent / "a pickle ran"


class Evil:
    """An object that creates a marker file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, (f"open({str(self.path)!r}, 'w').close()",)


# --- pickles under any file name

PICKLE = r"is a pickle, which can run arbitrary code .* Regard never reads pickles"
CONVERT = PICKLE + r"\. To convert its tensors to safetensors:\npython -c .*model\.safetensors"


def without_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def torch_zip(path: Path) -> None:
    torch.save({"evil": Evil(marker(path.parent))}, path)


def torch_legacy(path: Path) -> None:
    torch.save({"evil": Evil(marker(path.parent))}, path, _use_new_zipfile_serialization=False)


def torch_tar(path: Path) -> None:
    content = pickle.dumps(Evil(marker(path.parent)))
    with tarfile.open(path, "w") as archive:
        member = tarfile.TarInfo("pickle")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))


def any_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Evil(marker(path.parent))))


def bare(protocol: int, wrap: Callable[[Evil], object] = lambda evil: evil) -> Craft:
    def write(path: Path) -> None:
        path.write_bytes(pickle.dumps(wrap(Evil(marker(path.parent))), protocol))

    return write


def instruction_of_old(path: Path) -> None:
    path.write_bytes(f"(S'open({str(marker(path.parent))!r}, \"w\")'\nibuiltins\nexec\n.".encode())


PICKLES: dict[str, Craft] = {
    "torch's zip": torch_zip,
    "torch's older file": torch_legacy,
    "torch's first tar": torch_tar,
    "a zip": any_zip,
    **{f"protocol {n}": bare(n) for n in range(6)},
    **{f"a dictionary, protocol {n}": bare(n, lambda evil: {"w": evil}) for n in (0, 1)},
    **{f"a list, protocol {n}": bare(n, lambda evil: [evil]) for n in (0, 1)},
    "an instruction of old": instruction_of_old,
}


def register_pickles() -> None:
    for label, write in PICKLES.items():

        def as_safetensors(folder: Path, write: Craft = write) -> None:
            write(folder / "model.safetensors")

        case("gpt2", CONVERT, f"{label} as model.safetensors")(as_safetensors)
    for name in ("pytorch_model.bin", "model.pt", "weights.gguf", "weights", "model.ckpt"):

        def alone(folder: Path, name: str = name) -> None:
            without_weights(folder)
            torch_zip(folder / name)

        case("gpt2", re.escape(name) + " " + CONVERT, f"a pickle as {name}")(alone)
    for name in ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"):

        def instead(folder: Path, name: str = name) -> None:
            bare(4)(folder / name)

        case("gpt2", re.escape(name) + " " + PICKLE, f"a pickle as {name}")(instead)
    for name in ("source.spm", "vocab.json"):

        def in_marian(folder: Path, name: str = name) -> None:
            bare(2)(folder / name)

        case("marian", re.escape(name) + " " + PICKLE, f"a pickle as {name}")(in_marian)


register_pickles()


@case("gpt2", r"pytorch_model-00001-of-00002\.bin " + CONVERT + r".*-00001-of-.*-00002-of-")
def pickles_in_parts_beside_an_optimizer(folder: Path) -> None:
    without_weights(folder)
    for name in ("optimizer.pt", "pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"):
        torch_zip(folder / name)


@case("sharded", CONVERT)
def a_pickle_in_the_index(folder: Path) -> None:
    torch_zip(folder / "evil.bin")
    index(folder, lambda places: places.update(dict.fromkeys(places, "evil.bin")))


@case("regard", CONVERT)
def a_pickle_in_our_own_folder(folder: Path) -> None:
    torch_zip(folder / "model.safetensors")
    write_manifest(folder)


@case("gpt2", r"model\.safetensors is not a safetensors file, or truncated|not valid JSON")
def a_pickle_that_begins_like_safetensors(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes((40).to_bytes(8, "little") + b"{" + pickle.dumps(Evil(marker(folder))))


# --- safetensors

for label, length in {"2^63": 2**63, "beyond the file": 10**6, "beyond all": 2**64 - 1}.items():

    def _long(folder: Path, length: int = length) -> None:
        header, data = tensors(folder / "model.safetensors")
        craft_tensors(folder / "model.safetensors", header, data, length)

    case("gpt2", r"model\.safetensors is not a safetensors file, or truncated: header of", f"a header of {label}")(
        _long
    )

TEXTS: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "is not valid JSON"),
    "no JSON": (b"{'a': 1}", "is not valid JSON"),
    "no UTF-8": (b'{"a\xff": 1}', "is not valid JSON"),
    "UTF-16": ('{"a": 1}'.encode("utf-16"), "is not valid JSON"),
    "a list": (b"[]", "contains a list, but must contain a JSON object"),
    "a number": (b"7", "contains a int, but must contain a JSON object"),
    "a name twice": (b'{"a": 1, "a": 1}', "a name occurs twice"),
    "100,000 levels": (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nested too deeply"),
    "500 levels": (b'{"a":' * 500 + b"1" + b"}" * 500, "nested too deeply"),
    "a long number": (b'{"a": ' + b"9" * 5_000 + b"}", "is not valid JSON"),
    "braces": (b'{"a": [' + b"{}," * 5_000_000 + b"{}]}", r"at most [0-9,]+ are read"),
    "a long text": (b'{"a": "' + b"x" * 2_000_000 + b'"}', "a string of more than 1,000,000 characters"),
    "a long name": (b'{"' + b"x" * 2_000_000 + b'": 1}', "a string of more than 1,000,000 characters"),
}


def register_invalid_json() -> None:
    for label, (text, message) in TEXTS.items():

        def in_header(folder: Path, text: bytes = text) -> None:
            craft_tensors(folder / "model.safetensors", text)

        def in_config(folder: Path, text: bytes = text) -> None:
            (folder / "config.json").write_bytes(text)

        def in_index(folder: Path, text: bytes = text) -> None:
            (folder / "model.safetensors.index.json").write_bytes(text)

        def in_tokenizer(folder: Path, text: bytes = text) -> None:
            (folder / "tokenizer_config.json").write_bytes(text)

        case("gpt2", r"model\.safetensors .*(" + message + ")", f"{label} as header")(in_header)
        case("gpt2", r"config\.json .*(" + message + ")", f"{label} as config")(in_config)
        case("sharded", r"index\.json .*(" + message + ")", f"{label} as index")(in_index)
        case("gpt2", r"tokenizer_config\.json .*(" + message + ")", f"{label} as tokenizer_config")(in_tokenizer)


register_invalid_json()


@case("gpt2", r"config\.json has 50,0\d\d,\d\d\d bytes: at most 16,000,000 are read")
def fifty_megabytes_of_braces(folder: Path) -> None:
    (folder / "config.json").write_bytes(b'{"a": ' + b"[" * 25_000_000 + b"]" * 25_000_000 + b"}")


@case("gpt2", r"model\.safetensors is not a safetensors file.*header of 17,000,000 bytes")
def a_header_beyond_the_limit(folder: Path) -> None:
    craft_tensors(folder / "model.safetensors", b'{"a": 1}' + b" " * (17_000_000 - 8))


def edit_first_tensor(change: Callable[[dict[str, Any]], object]) -> Craft:
    """Edit the first tensor's entry in the header."""
    return lambda folder: weights(folder, lambda header: change(header[next(n for n in header if n != "__metadata__")]))


LINES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "a negative shape": (lambda t: t.update(shape=[-1, 8]), "has an impossible shape"),
    "a float shape": (lambda t: t.update(shape=[2.0, 4]), "has an impossible shape"),
    "a shape of booleans": (lambda t: t.update(shape=[True, True]), "has an impossible shape"),
    "a shape of texts": (lambda t: t.update(shape=["8"]), "has an impossible shape"),
    "a shape of NaN": (lambda t: t.update(shape=[float("nan")]), "has an impossible shape"),
    "a shape that is a number": (lambda t: t.update(shape=8), "has an impossible shape"),
    "a huge shape": (lambda t: t.update(shape=[2**62, 2**62]), "has an impossible shape"),
    "a shape whose product overflows": (lambda t: t.update(shape=[2**32, 2**32]), "does not take"),
    "nine dimensions": (lambda t: t.update(shape=[1] * 9), "has an impossible shape"),
    "a shape of a million dimensions": (lambda t: t.update(shape=[1] * 100_000), "has an impossible shape"),
    "a shape of nothing": (lambda t: t.update(shape=[2**40, 0]), "does not take"),
    "negative offsets": (lambda t: t.update(data_offsets=[-8, 0]), "is outside the file"),
    "float offsets": (lambda t: t.update(data_offsets=[0.0, 8.0]), "is outside the file"),
    "boolean offsets": (lambda t: t.update(data_offsets=[False, True]), "is outside the file"),
    "offsets turned round": (lambda t: t.update(data_offsets=t["data_offsets"][::-1]), "is outside the file"),
    "three offsets": (lambda t: t.update(data_offsets=[0, 1, 2]), "is outside the file"),
    "offsets beyond the file": (lambda t: t.update(data_offsets=[0, 10**9]), "is outside the file"),
    "huge offsets": (lambda t: t.update(data_offsets=[2**63, 2**64]), "is outside the file"),
    "an unknown type": (lambda t: t.update(dtype="F7"), "has the unknown type 'F7'"),
    "a type that is a list": (lambda t: t.update(dtype=["F32"]), r"has the unknown type \['F32'\]"),
    "a long type": (lambda t: t.update(dtype="F" * 100_000), "has the unknown type 'FFF.*…"),
    "no type": (lambda t: t.pop("dtype"), "must have exactly a dtype, a shape and data_offsets"),
    "one setting more": (lambda t: t.update(code="import os"), "must have exactly a dtype, a shape and data_offsets"),
    "another width": (lambda t: t.update(dtype="F64"), "does not take"),
    "integers": (lambda t: t.update(dtype="I32"), "has type I32; supported types: BF16, F16, F32, F64"),
}
for label, (change, message) in LINES.items():
    case("gpt2", message, label)(edit_first_tensor(change))


@case("gpt2", "has type BOOL; supported types")
def booleans(folder: Path) -> None:
    edit_first_tensor(lambda t: t.update(dtype="BOOL", shape=[*t["shape"], 4]))(folder)


@case("gpt2", "must have exactly a dtype")
def a_tensor_that_is_a_number(folder: Path) -> None:
    weights(folder, lambda header: header.update({"transformer.wte.weight": 5}))


@case("gpt2", "__metadata__ must map names to strings")
def metadata_that_is_a_number(folder: Path) -> None:
    weights(folder, lambda header: header.update(__metadata__=5))


@case("gpt2", "__metadata__ must map names to strings")
def metadata_in_metadata(folder: Path) -> None:
    weights(folder, lambda header: header.update(__metadata__={"format": {"pt": 1}}))


def edit_two_tensors(change: Callable[[list[int], list[int]], tuple[list[int], list[int]]]) -> Craft:
    """Edit the offsets of two tensors of the same size."""

    def craft(folder: Path) -> None:
        def turn(header: dict[str, Any]) -> None:
            a, b = header["transformer.h.0.ln_1.weight"], header["transformer.h.0.ln_1.bias"]
            a["data_offsets"], b["data_offsets"] = change(a["data_offsets"], b["data_offsets"])

        weights(folder, turn)

    return craft


case("gpt2", "tensors overlap or leave a gap", "two tensors in one place")(edit_two_tensors(lambda a, _: (a, a)))
case("gpt2", "tensors overlap or leave a gap", "tensors that overlap")(
    edit_two_tensors(lambda a, b: (a, [b[0] - 4, b[1] - 4]))
)
case("gpt2", "tensors overlap or leave a gap", "a hole")(edit_two_tensors(lambda a, b: ([a[0] + 4, a[1] + 4], b)))


@case("gpt2", "is truncated or has extra bytes")
def bytes_behind_the_last_tensor(folder: Path) -> None:
    weights(folder, lambda _: None, b"#!/bin/sh")


@case("gpt2", "tensors overlap or leave a gap|is truncated or has extra bytes")
def a_tensor_less(folder: Path) -> None:
    weights(folder, lambda header: header.pop("transformer.ln_f.bias"))


for cut in (0, 4, 8, 9, 100, 2_000, -1):

    def _cut(folder: Path, cut: int = cut) -> None:
        path = folder / "model.safetensors"
        path.write_bytes(path.read_bytes()[:cut])

    case("gpt2", "is not a safetensors file, or truncated|is outside the file", f"cut at {cut}")(_cut)


def rewritten(change: Callable[[dict[str, torch.Tensor]], object]) -> Craft:
    """Write other tensors into an otherwise valid file."""

    def craft(folder: Path) -> None:
        from safetensors.torch import load_file, save_file

        held = load_file(folder / "model.safetensors")
        change(held)
        save_file({name: x.contiguous() for name, x in held.items()}, folder / "model.safetensors")

    return craft


WTE, FC = "transformer.wte.weight", "transformer.h.0.mlp.c_fc.weight"
SWAPPED: dict[str, tuple[Callable[[dict[str, torch.Tensor]], object], str]] = {
    "a tensor missing": (lambda held: held.pop(FC), f"has no tensor {FC}, which its config requires"),
    "a tensor too many": (
        lambda held: held.update(evil=torch.zeros(1)),
        "has a tensor 'evil' that its config does not describe",
    ),
    "a tensor with a long name": (
        lambda held: held.update({"x" * 10_000: torch.zeros(1)}),
        "has a tensor 'xxx.*… that its config does not describe",
    ),
    "a tensor turned round": (lambda held: held.update({FC: held[FC].T.clone()}), f"{FC}.* does not fit its config"),
    "a tensor of three axes": (lambda held: held.update({FC: held[FC][None]}), f"{FC}.* does not fit its config"),
    "a tensor of no axes": (lambda held: held.update({FC: torch.tensor(1.0)}), f"{FC}.* does not fit its config"),
    "an empty tensor": (lambda held: held.update({FC: torch.zeros(8, 0)}), f"{FC}.* does not fit its config"),
    "fewer words": (lambda held: held.update({WTE: held[WTE][:-1]}), "numbers, but its largest tensor has"),
    "more words": (lambda held: held.update({WTE: torch.zeros(500, 8)}), f"{WTE}.* does not fit its config"),
    "nothing at all": (lambda held: held.clear(), "it contains 0 tensors"),
}
for label, (swap, message) in SWAPPED.items():
    case("gpt2", message, label)(rewritten(swap))


@case("gpt2", "n_layer=5000 is too large: it must be at most 1,000")
def layers_of_empty_tensors(folder: Path) -> None:
    config(folder, n_layer=5_000)
    nothing = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    craft_tensors(folder / "model.safetensors", {f"t{i}": nothing for i in range(40_000)})


@case("marian", "model.encoder.embed_positions.weight is not a table of positions")
def a_table_of_positions_without_width(folder: Path) -> None:
    nothing = {"dtype": "F32", "shape": [2**40, 0], "data_offsets": [0, 0]}
    weights(folder, lambda header: header.update({"model.encoder.embed_positions.weight": nothing}))


@case("marian", "contains positions other than the paper's sinusoids")
def other_positions(folder: Path) -> None:
    rewritten(lambda held: held.update({"model.encoder.embed_positions.weight": torch.ones(8, 8)}))(folder)


# --- config.json

NUMBERS: dict[str, tuple[dict[str, Any], str]] = {
    "10^9 layers": ({"n_layer": 10**9}, "n_layer=1000000000 is too large"),
    "900 layers": ({"n_layer": 900}, "900 layers, but it contains"),
    "no layers": ({"n_layer": 0}, "layers=0 is too small"),
    "10^12 words": ({"vocab_size": 10**12}, "vocab_size=1000000000000 is too large"),
    "10^6 words": ({"vocab_size": 10**6}, "needs 1,000,000 × 8 numbers"),
    "a width of 10^8": ({"n_embd": 10**8, "n_head": 1, "n_inner": 8}, "n_embd=100000000 is too large"),
    "a width of 10^30": ({"n_embd": 10**30, "n_head": 1, "n_inner": 8}, "n_embd=1000000000000.* is too large"),
    "a width of 10^5": ({"n_embd": 10**5, "n_head": 1}, "needs .* numbers, but its largest tensor"),
    "10^9 positions": ({"n_positions": 10**9}, "n_positions=1000000000 is too large"),
    "10^7 positions": ({"n_positions": 10**7}, "needs 10,000,000 × 8 numbers"),
    "an inner width of 10^12": ({"n_inner": 10**12}, "n_inner=1000000000000 is too large"),
    "an inner width of 10^6": ({"n_inner": 10**6}, "needs 1,000,000 × 8 numbers"),
    "more parameters than any model": (
        {"n_embd": 10**5, "n_head": 1, "n_inner": 10**6, "n_layer": 1_000},
        "parameters: at most 1,000,000,000,000 allowed",
    ),
    "no width": ({"n_embd": 0}, "d_ff=0 is too small"),
    "a negative width": ({"n_embd": -8, "n_inner": 8}, "d_model=-8 is too small"),
    "a width that is text": ({"n_embd": "8"}, "config.json: n_embd='8' has type str"),
    "a width that is a float": ({"n_embd": 8.0}, "has type float: expected int"),
    "a width that is NaN": ({"n_embd": float("nan")}, "has type float: expected int"),
    "a width that is true": ({"n_embd": True}, "has type bool: expected int"),
    "a width that is a list": ({"n_embd": [8]}, "has type list: expected int"),
    "no heads": ({"n_head": 0}, "heads=0 is too small"),
    "heads that do not divide": ({"n_head": 3}, "heads=3 does not divide d_model=8"),
    "an unknown type": ({"model_type": "evil"}, "Regard does not support model_type 'evil'"),
    "a type that is a list": ({"model_type": ["gpt2"]}, "Regard does not support model_type"),
    "a long type of model": ({"model_type": "x" * 900_000}, "Regard does not support model_type 'xxx.*…"),
    "a long activation": ({"activation_function": "x" * 900_000}, "xxx"),
    "an activation that is a list": (
        {"activation_function": ["gelu"]},
        r"config.json: activation_function=\['gelu'\] has type list: expected str",
    ),
    "a norm of NaN": ({"layer_norm_epsilon": float("nan")}, "norm_eps=nan"),
    "a norm of infinity": ({"layer_norm_epsilon": float("inf")}, "norm_eps=inf"),
    "a dropout of 2": ({"resid_pdrop": 2}, "dropout=2 is not a probability"),
    "other architectures": ({"architectures": ["Evil"]}, r"architectures=\['Evil'\] is not supported"),
    "an end beyond the vocabulary": ({"eos_token_id": 10**9}, "special ids: .*end id 1000000000 is outside"),
    "a negative end": ({"eos_token_id": -1}, "special ids: .*end id -1 is outside"),
    "an end that is text": ({"eos_token_id": "</s>"}, "invalid special ids"),
    "an end that is true": ({"eos_token_id": True}, "invalid special ids"),
    "an end in an end": ({"eos_token_id": [[1]]}, "invalid special ids"),
    "ends of text": ({"eos_token_id": ["x" * 900_000]}, "invalid special ids"),
    "an end that is an object": ({"eos_token_id": {"a": 1}}, "invalid special ids"),
    "bad words that are a number": ({"bad_words_ids": 5}, "invalid special ids"),
    "bad words that are numbers": ({"bad_words_ids": [5]}, "invalid special ids"),
    "bad words that are lists": ({"bad_words_ids": [[[5]]]}, "invalid special ids"),
    "suppressed text": ({"suppress_tokens": [1.5]}, "invalid special ids"),
}


def register_config_numbers() -> None:
    for label, (changes, message) in NUMBERS.items():

        def craft(folder: Path, changes: dict[str, Any] = changes) -> None:
            (folder / "generation_config.json").unlink()
            config(folder, **changes)

        case("gpt2", message, f"config: {label}")(craft)


register_config_numbers()


@case("gpt2", "config.json has no n_head: is it the config of a gpt2 model?")
def a_config_without_heads(folder: Path) -> None:
    told = json.loads((folder / "config.json").read_text())
    del told["n_head"]
    (folder / "config.json").write_text(json.dumps(told))


@case("bert", "config.json: num_labels=1000000000.* is too large")
def more_labels_than_can_be_counted(folder: Path) -> None:
    config(folder, num_labels=10**30, id2label=None)


@case("bert", r"config needs 1,000,000 × 8 numbers")
def a_million_labels(folder: Path) -> None:
    config(folder, num_labels=10**6, id2label=None)


BERT_SIZES = {"vocab_size": 9, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8}
HUGE_CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "mistral": ("num_hidden_layers", BERT_SIZES),
    "qwen2": ("num_hidden_layers", BERT_SIZES),
    "qwen3": ("num_hidden_layers", BERT_SIZES | {"use_sliding_window": True}),
    "t5": ("num_layers", {"vocab_size": 9, "d_model": 8, "d_kv": 4, "num_heads": 2, "d_ff": 8}),
    "bert": ("num_labels", BERT_SIZES | {"num_hidden_layers": 1, "architectures": ["BertForTokenClassification"]}),
    "roberta": ("num_hidden_layers", BERT_SIZES),
    "bart": ("encoder_layers", {"vocab_size": 9, "d_model": 8, "pad_token_id": 1}),
}
"""A setting that gets a huge value, and the other settings, by type of model."""


def register_huge_configs() -> None:
    for model_type, (name, others) in HUGE_CONFIGS.items():
        for exponent in (9, 12):
            settings = others | {"model_type": model_type, name: 10**exponent}

            def craft(folder: Path, settings: dict[str, Any] = settings) -> None:
                (folder / "config.json").write_text(json.dumps(settings))

            message = f"config.json: {name}=1{'0' * exponent} is too large: it must be at most"
            case("gpt2", message, f"config: {model_type} with 10^{exponent} as {name}")(craft)


register_huge_configs()


@case("bert", "config needs 10,000,000 × 8 numbers")
def ten_million_labels_of_tokens(folder: Path) -> None:
    config(folder, num_labels=10**7, id2label=None, architectures=["BertForTokenClassification"])


@case("marian", "decoder_layers=10000000 is too large")
def a_decoder_of_ten_million_layers(folder: Path) -> None:
    config(folder, decoder_layers=10**7)


@case("marian", "pad=-10000 is outside|pad=")
def a_pad_outside_the_vocabulary(folder: Path) -> None:
    config(folder, pad_token_id=-10_000)


@case("gpt2", "special ids: .*end id 999999 is outside")
def an_end_in_generation_config(folder: Path) -> None:
    (folder / "generation_config.json").write_text('{"eos_token_id": [1, 999999]}')


# --- the weights index


def index(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "model.safetensors.index.json"
    told = json.loads(path.read_text())
    change(told["weight_map"])
    path.write_text(json.dumps(told))


NAMES: dict[str, object] = {
    "one folder up": "../outside.safetensors",
    "two dots": "..",
    "an absolute path": "/etc/passwd",
    "nothing": "",
    "a dot": ".",
    "a hidden step": "a/../../outside.safetensors",
    "a folder": "deep/model.safetensors",
    "a step on the spot": "./model.safetensors",
    "a backslash": "..\\outside.safetensors",
    "a NUL": "model\0.safetensors",
    "a line feed": "model\n.safetensors",
    "half a character": "\ud800.safetensors",
    "a number": 5,
    "a list": ["model.safetensors"],
    "null": None,
    "a long list": ["x" * 100] * 1_000,
}


def register_index_names() -> None:
    for label, name in NAMES.items():

        def craft(folder: Path, name: object = name) -> None:
            shutil.copy(folder.parent / "outside.safetensors", folder / "inside.safetensors")
            index(folder, lambda places: places.update(dict.fromkeys(places, name)))

        case("sharded", "index.json lists the file .* only files within the folder", f"index: {label}")(craft)


register_index_names()


@case("sharded", "lists the file 'xxx.*only files within")
def a_name_too_long_for_a_file(folder: Path) -> None:
    index(folder, lambda places: places.update(dict.fromkeys(places, "x" * 5_000 + ".safetensors")))


@case("sharded", "none.safetensors is missing")
def a_file_that_is_not_there(folder: Path) -> None:
    index(folder, lambda places: places.update(dict.fromkeys(places, "none.safetensors")))


@case("sharded", "places 'evil' in .*, which has no such tensor")
def a_tensor_that_is_not_there(folder: Path) -> None:
    index(folder, lambda places: places.update(evil=next(iter(places.values()))))


@case("sharded", "its config needs 321 × 8 numbers, but its largest tensor has 256")
def an_index_that_forgets(folder: Path) -> None:
    index(folder, lambda places: places.pop(WTE))


@case("sharded", "has no weight_map")
def an_index_without_a_map(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text('{"weight_map": ["model.safetensors"]}')


@case("sharded", "index.json has (1,000,00. values|.* bytes): at most [0-9,]+ are read")
def a_million_entries(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text(
        '{"weight_map": {' + ",".join(f'"{i}":"a"' for i in range(1_000_000)) + "}}"
    )


# --- paths that are not regular files

ODD: dict[str, Craft] = {
    "a folder": lambda path: path.mkdir(),
    "a pipe": os.mkfifo,
    "endless zeros": lambda path: path.symlink_to("/dev/zero"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a link to nothing": lambda path: path.symlink_to("nowhere"),
}


def register_special_files() -> None:
    for label, make in ODD.items():
        for name in ("config.json", "model.safetensors", "generation_config.json", "tokenizer.json"):

            def craft(folder: Path, make: Craft = make, name: str = name) -> None:
                (folder / name).unlink()
                make(folder / name)

            no_config = "it has no config.json" if name == "config.json" else ""
            case("gpt2", re.escape(name) + " is not a regular file", f"{label} as {name}", no_config)(craft)

        def in_ours(folder: Path, make: Craft = make) -> None:
            (folder / "model.safetensors").unlink()
            make(folder / "model.safetensors")

        def in_marian(folder: Path, make: Craft = make) -> None:
            (folder / "target.spm").unlink()
            make(folder / "target.spm")

        case("regard", r"model\.safetensors is not a regular file", f"{label} in our own folder")(in_ours)
        case("marian", r"target\.spm is not a regular file", f"{label} as target.spm")(in_marian)


register_special_files()


@case("gpt2", "config.json is not valid JSON|config.json has")
def a_file_of_the_system(folder: Path) -> None:
    (folder / "config.json").unlink()
    (folder / "config.json").symlink_to("/proc/self/environ")


# --- tokenizers


def edit_tokenizer(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "tokenizer.json"
    settings = json.loads(path.read_text())
    change(settings)
    path.write_text(json.dumps(settings))


BYTES = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": False}


def charsmap(replacement: bytes) -> str:
    """Return a SentencePiece normalisation table: a trie, and the replacements of its entries."""
    trie = bytes(1_024)
    return base64.b64encode(len(trie).to_bytes(4, "little") + trie + replacement + b"\0").decode()


ENGINES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "no model": (lambda t: t.pop("model"), "tokenizer.json is not a valid tokenizer"),
    "a model that is a number": (lambda t: t.update(model=5), "tokenizer.json is not a valid tokenizer"),
    "an unknown model": (lambda t: t["model"].update(type="Evil"), "its model is of the unknown type 'Evil'"),
    "a vocabulary of texts": (lambda t: t["model"].update(vocab={"a": "b"}), "tokenizer.json is not a valid tokenizer"),
    "an id of 2^32": (lambda t: t["model"]["vocab"].update(zz=2**32), "tokenizer.json is not a valid tokenizer"),
    "a negative id": (lambda t: t["model"]["vocab"].update(zz=-1), "tokenizer.json is not a valid tokenizer"),
    "a float id": (lambda t: t["model"]["vocab"].update(zz=1.5), "tokenizer.json is not a valid tokenizer"),
    "merges of what is not there": (lambda t: t["model"].update(merges=[["evil", "x"]]), "is not a valid tokenizer"),
    "merges of three": (lambda t: t["model"].update(merges=[["a", "b", "c"]]), "is not a valid tokenizer"),
    "an unknown normalizer": (
        lambda t: t.update(normalizer={"type": "Evil"}),
        "its normalizer has a step of the unknown type 'Evil'",
    ),
    "a broken pattern": (
        lambda t: t.update(normalizer={"type": "Replace", "pattern": {"Regex": "("}, "content": ""}),
        "is not a valid tokenizer",
    ),
    "a broken table": (
        lambda t: t.update(normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
        "is not a valid tokenizer",
    ),
    "a template without its token": (
        lambda t: t.update(
            post_processor={
                "type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "evil", "type_id": 0}}],
                "pair": [],
                "special_tokens": {},
            }
        ),
        "is not a valid tokenizer",
    ),
    "a version of tomorrow": (lambda t: t.update(version="9.0"), "is not a valid tokenizer"),
    "an added token without an id": (lambda t: t.update(added_tokens=[{"content": "x"}]), "is not a valid tokenizer"),
    "an added token of a number": (lambda t: t.update(added_tokens=[added_token(5)]), "is not a valid tokenizer"),
    "an added token of 10 MB": (lambda t: t["added_tokens"].append(added_token("x" * 10**7)), "a string of more than"),
    "many long added tokens": (
        lambda t: t["added_tokens"].extend(added_token("x" * 100_000 + str(i)) for i in range(20)),
        "adds tokens of more than 1,000,000 characters",
    ),
    "replacements of replacements": (lambda t: t.update(normalizer=replace_normalizer(12, "a" * 10)), "more than 64"),
    "a thousand doublings": (
        lambda t: t.update(normalizer=replace_normalizer(1_000, "aa")),
        "1,001 steps: the maximum is 64",
    ),
    "forty patterns that match nothing": (
        lambda t: t.update(normalizer=replace_normalizer(40, "a", {"Regex": ""})),
        "its normalizer can turn one character into more than 64",
    ),
    "forty empty strings": (
        lambda t: t.update(normalizer=replace_normalizer(40, "a", {"String": ""})),
        "its normalizer can turn one character into more than 64",
    ),
    "bytes of bytes of bytes": (
        lambda t: t.update(pre_tokenizer={"type": "Sequence", "pretokenizers": [BYTES] * 30}),
        "its pre_tokenizer can turn one character into more than 64",
    ),
    "bytes of bytes in the normalizer": (
        lambda t: t.update(normalizer={"type": "Sequence", "normalizers": [{"type": "ByteLevel"}] * 30}),
        "its normalizer can turn one character into more than 64",
    ),
    "growth in two parts": (
        lambda t: t.update(
            normalizer=replace_normalizer(1, "a" * 60),
            pre_tokenizer={"type": "Sequence", "pretokenizers": [BYTES] * 2},
        ),
        "its normalizer and pre_tokenizer can turn",
    ),
    "a long prefix": (
        lambda t: t.update(normalizer={"type": "Prepend", "prepend": "a" * 900_000}),
        "its normalizer can turn one character into more than 64",
    ),
    "a template of half a million ids": (
        lambda t: t.update(post_processor=template_processor(ids=500_000)),
        "its template",
    ),
    "a template that repeats the text": (
        lambda t: t.update(post_processor=template_processor(texts=40)),
        "its template single repeats a text",
    ),
    "templates in templates": (
        lambda t: t.update(post_processor={"type": "Sequence", "processors": [template_processor(texts=2)] * 30}),
        "its template single repeats a text",
    ),
    "a thousand templates": (
        lambda t: t.update(post_processor={"type": "Sequence", "processors": [template_processor(ids=60)] * 1_000}),
        "steps: the maximum is 64",
    ),
    "a pattern that takes exponential time": (
        lambda t: t.update(pre_tokenizer=split_pre_tokenizer("(x+x+)+y")),
        r"its pattern '\(x\+x\+\)\+y' repeats a group that can match in many ways",
    ),
    "a pattern that refers to itself": (
        lambda t: t.update(pre_tokenizer=split_pre_tokenizer(r"(a)\1")),
        "has a back-reference",
    ),
    "a long pattern": (
        lambda t: t.update(pre_tokenizer=split_pre_tokenizer("a" * 20_000)),
        "a pattern of 20,000 characters",
    ),
    "a long piece": (lambda t: t["model"]["vocab"].update({"x" * 900_000: 999}), "a piece of 900,000 characters"),
    "a long suffix": (
        lambda t: t["model"].update(end_of_word_suffix="x" * 4_000),
        "its end_of_word_suffix has more than 64 characters",
    ),
    "words without end": (
        lambda t: t.update(model={"type": "WordPiece", "vocab": {}, "max_input_chars_per_word": 10**9}),
        "max_input_chars_per_word=1000000000: the maximum is 1,000",
    ),
    "a long replacement in a table": (
        lambda t: t.update(normalizer={"type": "Precompiled", "precompiled_charsmap": charsmap(b"x" * 5_000)}),
        "replaces a character by 5,000 bytes",
    ),
    "replacements in the decoder": (
        lambda t: t.update(decoder={"type": "Sequence", "decoders": replace_normalizer(40, "aa")["normalizers"]}),
        "its decoder can turn one character into more than",
    ),
}


def register_tokenizers() -> None:
    for label, (change, message) in ENGINES.items():

        def craft(folder: Path, change: Callable[[dict[str, Any]], object] = change) -> None:
            edit_tokenizer(folder, change)

        case("gpt2", message, f"tokenizer: {label}")(craft)
    for label, text, message in (
        ("cut short", b'{"version": "1.0", "added_tokens": [', "tokenizer.json is not valid JSON"),
        ("braces", b'{"normalizer": [' + b"[]," * 12_000_000 + b"[]]}", "values: at most 3,000,000 are read"),
        ("deep", b'{"normalizer": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        ("too large", b'{"a": "' + b"x" * 50_000_000 + b'"}', "at most 48,000,000 are read"),
    ):

        def replace(folder: Path, text: bytes = text) -> None:
            (folder / "tokenizer.json").write_bytes(text)

        case("gpt2", message, f"tokenizer: {label}")(replace)


register_tokenizers()


@case("gpt2", "tokenizer_config.json: eos_token must be a string")
def a_token_that_is_a_list(folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text('{"eos_token": ["</s>"]}')


@case("gpt2", "tokenizer_config.json: eos_token must be a string")
def a_token_without_content(folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text('{"eos_token": {"lstrip": true}}')


@case("gpt2", "special_tokens_map.json: pad_token must be a string")
def a_token_of_old_that_is_a_number(folder: Path) -> None:
    (folder / "special_tokens_map.json").write_text('{"pad_token": 5}')


@case("gpt2", "special_tokens_map.json is a pickle")
def a_pickle_among_the_tokens(folder: Path) -> None:
    (folder / "special_tokens_map.json").write_bytes(pickle.dumps(Evil(marker(folder))))


@case("gpt2", "chat_template.jinja has 2,000,000 bytes")
def a_template_without_end(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("x" * 2_000_000)


@case("gpt2", "num_beams='xxx.*… is not a valid number")
def a_beam_of_text(folder: Path) -> None:
    (folder / "generation_config.json").write_text(json.dumps({"num_beams": "x" * 900_000}))


@case("gpt2", "first=.* has type dict")
def a_first_token_that_is_an_object(folder: Path) -> None:
    (folder / "generation_config.json").write_text('{"forced_bos_token_id": {"a": [1]}}')


VOCABULARIES: dict[str, tuple[bytes, str]] = {
    "float ids": (b'{"</s>": 0.0, "<unk>": 1}', "vocab.json must map each piece to its id"),
    "negative ids": (b'{"</s>": -1, "<unk>": 1}', "vocab.json must map each piece to its id"),
    "huge ids": (b'{"</s>": 1000000000000, "<unk>": 1}', "vocab.json must map each piece to its id"),
    "true ids": (b'{"</s>": true, "<unk>": 1}', "vocab.json must map each piece to its id"),
    "lists": (b'{"</s>": [0], "<unk>": 1}', "vocab.json must map each piece to its id"),
    "no end": (b'{"<unk>": 1}', "vocab.json has no </s>"),
    "a list": (b'["</s>", "<unk>"]', "vocab.json contains a list"),
    "deep": (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "vocab.json is nested too deeply"),
    "no JSON": (b"</s>", "vocab.json is not valid JSON"),
}


def register_vocabularies() -> None:
    for label, (text, message) in VOCABULARIES.items():

        def craft(folder: Path, text: bytes = text) -> None:
            (folder / "vocab.json").write_bytes(text)

        case("marian", message, f"vocab.json: {label}")(craft)
    for name in ("source.spm", "target.spm"):
        for label, content in {"noise": bytes(range(1, 256)) * 9, "nothing": b"", "text": b"hello"}.items():

            def garbage(folder: Path, name: str = name, content: bytes = content) -> None:
                (folder / name).write_bytes(content)

            case("marian", "is not a SentencePiece model", f"{name}: {label}")(garbage)


register_vocabularies()


@case("marian", "a piece of 900,000 characters")
def a_long_piece_in_vocab(folder: Path) -> None:
    (folder / "vocab.json").write_text(json.dumps({"</s>": 0, "<unk>": 1, "x" * 900_000: 2}))


@case("marian", "its normalization replaces a character by 500,000 bytes")
def a_long_replacement_in_a_sentencepiece_model(folder: Path) -> None:
    """Append a second normalizer_spec: protobuf merges them."""
    table = base64.b64decode(charsmap(b"x" * 500_000))
    inner = b"\x12" + varint(len(table)) + table
    with (folder / "source.spm").open("ab") as file:
        file.write(b"\x1a" + varint(len(inner)) + inner)


def varint(number: int) -> bytes:
    """Encode a number as a protobuf varint."""
    return bytes([number]) if number < 128 else bytes([number % 128 + 128]) + varint(number // 128)


@case("marian", "has no target.spm, which an OPUS-MT tokenizer needs")
def half_a_tokenizer(folder: Path) -> None:
    (folder / "target.spm").unlink()


# --- Regard's own folders


def manifest(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = folder / store.MANIFEST_FILE
    told = json.loads(path.read_text())
    change(told)
    path.write_text(json.dumps(told))


MANIFESTS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    f"names {name!r}": (
        lambda told, name=name: told["files"].update({name: told["files"]["config.json"]}),
        "manifest.json lists .* only files within the folder",
    )
    for name in ("../outside.safetensors", "/etc/passwd", "..", ".", "", "a/../../b", "a\0b", "a\\b", "\ud800")
} | {
    "a file that is not there": (
        lambda told: told["files"].update(none=told["files"]["config.json"]),
        "none is missing, but the manifest lists it",
    ),
    "a long name": (
        lambda told: told["files"].update({"x" * 9_000: told["files"]["config.json"]}),
        "xxx.*…",
    ),
    "no files": (lambda told: told.update(files={}), "manifest.json lists no files"),
    "a list of files": (lambda told: told.update(files=["config.json"]), "manifest.json lists no files"),
    "no weights": (lambda told: told["files"].pop("model.safetensors"), "does not list model.safetensors"),
    "no tokenizer": (lambda told: told["files"].pop("tokenizer.json"), "does not list tokenizer.json"),
    "no digest": (lambda told: told["files"]["config.json"].pop("sha256"), "config.json is damaged"),
    "a number for a line": (lambda told: told["files"].update({"config.json": 5}), "only files within the folder"),
    "a size that is text": (
        lambda told: told["files"]["config.json"].update(bytes="x" * 900_000),
        "but the manifest says 'xxx.*…",
    ),
    "a size of NaN": (
        lambda told: told["files"]["config.json"].update(bytes=float("nan")),
        "but the manifest says nan",
    ),
    "another format": (lambda told: told.update(format=2), "manifest.json has format 2.*: upgrade Regard"),
}

MODELS: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown key": ({"evil": 1}, "config.json: ModelConfig has no key 'evil'"),
    "a key that Python uses": ({"cls": 1}, "config.json: "),
    "a long key": ({"x" * 900_000: 1}, "config.json: ModelConfig has no key 'xxx.*…"),
    "a long choice": ({"activation": "x" * 900_000}, "config.json: .*activation='xxx.*…"),
    "10^9 layers": ({"layers": 10**9}, "layers=1000000000 is too large"),
    "900 layers": ({"layers": 900}, "1,800 layers, but it contains"),
    "10^30 words": ({"vocab_size": 10**30}, "vocab_size=1000000000000000000000000000000 is too large"),
    "10^7 words": ({"vocab_size": 10**7}, "config needs .* numbers"),
    "a width that is text": ({"d_model": "24"}, "d_model='24' has type str: expected int"),
    "another width": ({"d_ff": 8}, "but by its config must be float"),
    "a bias": ({"output_bias": True}, "does not contain the tensors of its config: output_bias missing"),
}


def register_own_folders() -> None:
    for label, (change, message) in MANIFESTS.items():

        def craft(folder: Path, change: Callable[[dict[str, Any]], object] = change) -> None:
            manifest(folder, change)

        case("regard", message, f"manifest: {label}")(craft)
    for label, (changes, message) in MODELS.items():

        def other(folder: Path, changes: dict[str, Any] = changes) -> None:
            config(folder, model=json.loads((folder / "config.json").read_text())["model"] | changes)
            write_manifest(folder)

        case("regard", message, f"our config: {label}")(other)


register_own_folders()


@case("regard", "config.json must have the keys model and about")
def our_config_without_a_model(folder: Path) -> None:
    config(folder, model=5)
    write_manifest(folder)


@case("regard", "config.json has format 'x'.*: upgrade Regard")
def our_config_of_tomorrow(folder: Path) -> None:
    config(folder, format="x")
    write_manifest(folder)


@case("regard", "must have the keys|ModelConfig.__new__|missing")
def our_config_without_a_vocabulary(folder: Path) -> None:
    config(folder, model={"d_model": 8})
    write_manifest(folder)


@case("regard", "special ids: .*outside the vocabulary")
def our_ids_outside(folder: Path) -> None:
    (folder / "generation_config.json").write_text('{"eos_token_id": 31, "decoder_start_token_id": 99999}')
    write_manifest(folder)


# --- the valid folders, and the tests


def make_tokenizer_files(folder: Path) -> int:
    """Write SentencePiece models and their shared vocabulary; return the number of ids."""
    sentencepiece = pytest.importorskip("sentencepiece")

    pieces: dict[str, None] = {}
    for side, texts in {"source": SENTENCES, "target": [text.upper() for text in SENTENCES]}.items():
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts), model_writer=model, vocab_size=40, hard_vocab_limit=False, minloglevel=9
        )
        (folder / f"{side}.spm").write_bytes(model.getvalue())
        loaded = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
        pieces |= {loaded.id_to_piece(i): None for i in range(loaded.get_piece_size())}
    ids = ["</s>", "<unk>", *(piece for piece in pieces if piece not in ("<s>", "</s>", "<unk>")), "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(ids)}))
    return len(ids)


def make_valid(root: Path) -> None:
    """Write one valid folder of each kind."""
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    tokenizer = train_tokenizer(SENTENCES, 320)
    gpt2 = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=tokenizer.size, n_embd=8, n_layer=1, n_head=2, n_positions=16, eos_token_id=0, bos_token_id=0
        )
    )
    gpt2.save_pretrained(root / "gpt2")
    gpt2.save_pretrained(root / "sharded", max_shard_size="6KB")
    for name in ("gpt2", "sharded"):
        tokenizer.save(root / name)
    shutil.copy(root / "gpt2" / "model.safetensors", root / "outside.safetensors")
    (root / "marian").mkdir()
    size = make_tokenizer_files(root / "marian")
    shape: dict[str, Any] = {"encoder_ffn_dim": 8, "decoder_ffn_dim": 8}
    shape |= {f"{side}_{name}": 1 for side in ("encoder", "decoder") for name in ("layers", "attention_heads")}
    shape |= {
        "pad_token_id": size - 1,
        "decoder_start_token_id": size - 1,
        "eos_token_id": 0,
        "forced_eos_token_id": None,
    }
    transformers.MarianMTModel(
        transformers.MarianConfig(vocab_size=size, d_model=8, max_position_embeddings=8, **shape)
    ).save_pretrained(root / "marian")
    transformers.BertForSequenceClassification(
        transformers.BertConfig(
            vocab_size=tokenizer.size,
            hidden_size=8,
            num_hidden_layers=1,
            num_attention_heads=1,
            intermediate_size=8,
            max_position_embeddings=8,
        )
    ).save_pretrained(root / "bert")
    ours = build(small(vocab_size=tokenizer.size))
    special = SpecialIds(end=(tokenizer.end,), start=tokenizer.pad)
    Model(ours, tokenizer, special, {"languages": ["fr", "en"]}).save(root / "regard")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the valid folders by kind."""
    root = tmp_path_factory.mktemp("valid")
    make_valid(root)
    return root


@pytest.fixture(scope="module")
def hostile_folders(folders: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return every hostile folder by the number of its case."""
    root = tmp_path_factory.mktemp("hostile")
    shutil.copy(folders / "outside.safetensors", root)
    for number, each in enumerate(CASES.values()):
        shutil.copytree(folders / each.base, root / str(number), symlinks=True)
        each.craft(root / str(number))
    return root


def load_directly(folder: Path, base: str) -> Model:
    return Model.from_folder(folder) if base == "regard" else load_huggingface(folder)


def check_rejected(folder: Path, each: Case) -> None:
    """Check that both entry points reject the folder quickly with a short message and run no code."""
    ways: list[tuple[Callable[[], object], str]] = [
        (lambda: load_directly(folder, each.base), each.message),
        (lambda: regard.load(folder), each.by_api or each.message),
    ]
    for load, message in ways:
        with fail_when_hanging(), pytest.raises(ValueError, match=r".") as caught:
            load()
        said = str(caught.value)
        assert caught.type is RegardError, f"{caught.type}: {said}"
        assert re.search(message, said, re.S), f"it says {said[:600]!r}, not {message!r}"
        assert len(said) < 1_500
        assert str(folder) in said
        assert not marker(folder).exists(), "a pickle ran"


def test_there_are_more_than_fifty_cases() -> None:
    assert len(CASES) > 50


@pytest.mark.parametrize("base", ["gpt2", "sharded", "marian", "bert", "regard"])
def test_valid_folders_are_loaded(folders: Path, base: str) -> None:
    loaded = load_directly(folders / base, base)
    assert (loaded.tokenizer is None) == (base == "bert")
    assert sum(parameter.numel() for parameter in regard.load(folders / base).network.parameters()) > 1_000


@dataclass(frozen=True)
class Outcome:
    """What happened when a hostile folder was loaded."""

    error: str
    """Why the folder was not rejected as it should be, or nothing."""
    peak: int
    """Growth of the peak memory, in bytes. Zero where it cannot be measured."""


@pytest.fixture(scope="module")
def outcomes(folders: Path, hostile_folders: Path) -> dict[str, Outcome]:
    """Load every hostile folder in one process of its own, where memory can be measured."""
    command = [sys.executable, "-m", "tests.storage.test_hostile_files", str(folders), str(hostile_folders)]
    quiet = os.environ | {"RUST_BACKTRACE": "0"}  # printing the backtrace of a Rust panic takes 40 MB
    done = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout[-1_000:] + done.stderr[-3_000:]
    return {name: Outcome(error, peak) for name, error, peak in map(json.loads, done.stdout.splitlines())}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_hostile_folders_are_rejected_with_little_memory(outcomes: dict[str, Outcome], name: str) -> None:
    assert outcomes[name].error == ""
    assert outcomes[name].peak <= MOST_MEMORY


@pytest.mark.slow
@pytest.mark.skipif(not CLEAR_PEAK.exists(), reason="peaks are measured on Linux")
def test_memory_of_hostile_folders_is_measured(outcomes: dict[str, Outcome]) -> None:
    assert outcomes["ballast"].peak > MOST_MEMORY  # larger growth would be visible


FILES: dict[str, tuple[Craft, str]] = {label: (write, CONVERT) for label, write in PICKLES.items()} | {
    "nothing": (lambda path: path.touch(), "is not a GGUF file"),
    "safetensors": (lambda path: craft_tensors(path, {}), "is not a GGUF file; for safetensors, name the folder"),
    "a GGUF file cut short": (
        lambda path: craft_tensors(path, b"", length=int.from_bytes(b"GGUF\3\0\0\0", "little")),
        "not a GGUF file|truncated",
    ),
    "endless zeros": (ODD["endless zeros"], "no model at"),
    "a pipe": (ODD["a pipe"], "no model at"),
    "a folder": (ODD["a folder"], "is not a model folder: it has no config.json"),
    "a link to itself": (ODD["a link to itself"], "no model at"),
}


@pytest.mark.parametrize("name", ["model.gguf", "model.safetensors"])
@pytest.mark.parametrize("label", list(FILES))
def test_a_single_hostile_file_is_rejected(tmp_path: Path, label: str, name: str) -> None:
    write, message = FILES[label]
    (tmp_path / "deep").mkdir()
    write(tmp_path / "deep" / name)
    with pytest.raises(ValueError, match=message) as caught:
        regard.load(tmp_path / "deep" / name)
    assert str(tmp_path / "deep" / name) in str(caught.value)
    assert not marker(tmp_path / "deep").exists()


def test_the_pickles_run_code_when_unpickled(tmp_path: Path) -> None:
    """The absence of the marker is only meaningful if the pickles work."""
    (tmp_path / "deep").mkdir()
    bare(4)(tmp_path / "deep" / "evil")
    pickle.loads((tmp_path / "deep" / "evil").read_bytes())
    assert marker(tmp_path / "deep").exists()


def test_code_in_a_folder_is_not_run(folders: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(folders / "gpt2", folder)
    (folder / "evil.py").write_text(f"open({str(marker(folder))!r}, 'w').close()\n")
    remote = {"AutoConfig": "evil.Evil", "AutoModelForCausalLM": "evil.Evil", "AutoTokenizer": ["evil.Evil", None]}
    config(folder, auto_map=remote, trust_remote_code=True)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"auto_map": remote, "tokenizer_class": "Evil"}))
    loaded = load_huggingface(folder)
    assert loaded.tokenizer is not None
    assert "auto_map" not in loaded.tokenizer.settings
    assert loaded.tokenizer.settings["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert not marker(folder).exists()


def test_links_to_files_are_followed(folders: Path, tmp_path: Path) -> None:
    """Hugging Face's cache consists of links."""
    (tmp_path / "snapshot").mkdir()
    for file in (folders / "gpt2").iterdir():
        (tmp_path / "snapshot" / file.name).symlink_to(file)
    assert load_huggingface(tmp_path / "snapshot").config.d_model == 8


def test_a_large_id_allocates_no_memory(folders: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(folders / "marian", folder)
    told = json.loads((folder / "vocab.json").read_text())
    (folder / "vocab.json").write_text(json.dumps(told | {"far": 2**31 - 1}))
    tokenizer = load_huggingface(folder).tokenizer
    assert tokenizer is not None
    assert tokenizer.size == 2**31
    assert tokenizer.token(2**31 - 1) == "far"


def peak_memory() -> int:
    """Return the peak memory of this process since `reset_peak_memory`. (getrusage inherits it from the parent.)"""
    if not CLEAR_PEAK.exists():
        return 0
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) * 1024


def reset_peak_memory() -> None:
    if CLEAR_PEAK.exists():
        CLEAR_PEAK.write_text("5")


def measure(valid: Path, hostile_folders: Path) -> None:
    """In a separate process: load the valid folders, try every hostile one, and print how each one went."""
    for base in ("gpt2", "sharded", "marian", "bert", "regard"):
        load_directly(valid / base, base)
    reset_peak_memory()
    before = peak_memory()
    for number, (name, each) in enumerate(CASES.items()):
        try:
            check_rejected(hostile_folders / str(number), each)
            error = ""
        except BaseException:
            error = traceback.format_exc()[-3_000:]
        print(json.dumps([name, error, peak_memory() - before]), flush=True)
        reset_peak_memory()
    ballast = b"x" * (MOST_MEMORY + 10_000_000)
    print(json.dumps(["ballast", "", peak_memory() - before]))
    del ballast


@pytest.mark.slow
@pytest.mark.parametrize("base", ["gpt2", "sharded"])  # in one file, and in several
def test_the_suggested_conversion_command_works(folders: Path, tmp_path: Path, base: str) -> None:
    from safetensors.torch import load_file

    folder = tmp_path / "it's a $(model) `of` mine"
    shutil.copytree(folders / base, folder)
    wanted = load_huggingface(folder).network.state_dict()
    files = sorted(folder.glob("*.safetensors"))
    for i, file in enumerate(files):
        name = "pytorch_model.bin" if len(files) == 1 else f"pytorch_model-{i + 1:05}-of-{len(files):05}.bin"
        torch.save(load_file(file), folder / name)
        file.unlink()
    (folder / "model.safetensors.index.json").unlink(missing_ok=True)
    torch.save({"state": 1}, folder / "optimizer.pt")
    with pytest.raises(ValueError, match="is a pickle") as caught:
        load_huggingface(folder)
    command = shlex.split(str(caught.value).split("safetensors:\n", 1)[1])
    assert command[0] == "python"
    line = str(caught.value).split("safetensors:\n", 1)[1].replace("python", shlex.quote(sys.executable), 1)
    subprocess.run(["/bin/sh", "-c", line], check=True, timeout=120)
    found = load_huggingface(folder).network.state_dict()
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


@pytest.mark.slow
def test_the_suggested_conversion_command_runs_no_code(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    torch_zip(tmp_path / "model" / "pytorch_model.bin")
    line = pickle_refusal(tmp_path / "model" / "pytorch_model.bin").split("safetensors:\n", 1)[1]
    line = line.replace("python", shlex.quote(sys.executable), 1)
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode
    assert "weights_only" in done.stderr.lower() or "weights only" in done.stderr.lower()
    assert not marker(tmp_path / "model").exists()


if __name__ == "__main__":
    measure(Path(sys.argv[1]), Path(sys.argv[2]))
