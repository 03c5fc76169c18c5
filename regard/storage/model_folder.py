"""A model's folder: `config.json`, `model.safetensors`, the tokenizer, `generation_config.json`, and a manifest.

The manifest holds each file's size and SHA-256, so that a flipped bit, a truncation or a missing file is noticed and
named. A folder is written beside its place and moved there when all of it is on disk.
"""

import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from regard.atomic_files import check_new_folder, digest, new_folder
from regard.config import MAX_LAYERS, ModelConfig, SpecialIds, did_you_mean
from regard.data.huggingface_tokenizer import HUGGINGFACE_TOKENIZER_FILES, HuggingFaceTokenizer
from regard.data.opus_tokenizer import OPUS_TOKENIZER_FILES, OpusTokenizer
from regard.data.tokenizer import Tokenizer
from regard.errors import RegardError
from regard.formatting import quoted, shorten
from regard.model.transformer import Network, build
from regard.storage.metadata import as_told, tests_of
from regard.storage.weights import FLOATS, REAL, Weights, open_weights, rounded, rounds, write_weights
from regard.untrusted_files import is_there, read_json, stays_within

FORMAT = 1
"""raised when the layout changes"""
MANIFEST, RECIPE = "manifest.json", "recipe.toml"
WEIGHTS = "model.safetensors"
FILES = ("config.json", WEIGHTS, "generation_config.json")
TOKENIZER_FILES = (*HUGGINGFACE_TOKENIZER_FILES, *OPUS_TOKENIZER_FILES)
LEAST_IN_LAYER = 8
"""tensors of a layer: q, k, v, out, up, down and two norms; other libraries join q, k and v, but have biases"""


ModelParts = tuple[Network, Tokenizer | None, SpecialIds, dict[str, Any]]
"""The network, the tokenizer if there is one, the special ids, and the metadata (`regard.Model.about`)."""


def write_model_folder(
    folder: Path,
    network: Network,
    tokenizer: Tokenizer | None,
    special: SpecialIds,
    about: dict[str, Any],
    dtype: str | None = None,
    force: bool = False,
) -> None:
    """Write a model into a new or empty folder, or with `force` in place of an existing model.

    Weights are written as they are, or rounded to `dtype`, one of `regard.storage.weights.FLOATS`. With `force`, files
    that are not part of the old model are left untouched.
    """
    check_float(dtype)
    check_writable(folder, network.config, special, force)
    about = about_rounded(about, network, dtype)
    with new_folder(folder, force=force, obsolete=model_files(folder)) as temporary:
        write_model_files(temporary, network, tokenizer, special, about, dtype)
        write_manifest(temporary)


def about_rounded(about: dict[str, Any], network: Network, dtype: str | None) -> dict[str, Any]:
    """The metadata of a model that is written as `dtype`: test scores measured before rounding are marked as such.

    A type outside `FLOATS`, such as another engine's int8, always changes the weights.
    """
    tests = tests_of(about)
    if dtype is None or not tests or (dtype in FLOATS and not rounds(network.state_dict(), dtype)):
        return about
    return about | {"tests": [as_told(replace(test, rounded=dtype)) for test in tests]}


def check_float(dtype: str | None) -> None:
    """A ValueError for a type in which weights are not written."""
    if dtype is not None and dtype not in FLOATS:
        raise RegardError(f"dtype={dtype!r} is not a choice: {did_you_mean(dtype, FLOATS)}")


def check_writable(folder: Path, config: ModelConfig, special: SpecialIds, force: bool = False) -> None:
    """Raise a RegardError if writing to `folder` could lose a file, or if the written model could not be read."""
    check_new_folder(folder, force)
    special.check(config)


def model_files(folder: Path) -> list[str]:
    """The files of the model that a folder holds, by its manifest; none if it has no manifest that can be read."""
    try:
        files = read_json(folder / MANIFEST)["files"]
    except (ValueError, OSError, KeyError):
        return []
    return [MANIFEST, *(name for name in files if stays_within(name))] if isinstance(files, dict) else []


def write_model_files(
    folder: Path,
    network: Network,
    tokenizer: Tokenizer | None,
    special: SpecialIds,
    about: dict[str, Any],
    dtype: str | None = None,
) -> None:
    """Write a model's files, without a manifest, into an existing folder; `dtype` as in `write_model_folder`."""
    config = {"model_type": "regard", "format": FORMAT, "model": asdict(network.config), "about": about}
    write_json(folder / "config.json", config)
    state = network.state_dict()
    write_weights(folder / "model.safetensors", state if dtype is None else rounded(state, dtype))
    write_json(folder / "generation_config.json", generation_config(network.config, special))
    if tokenizer is not None:
        tokenizer.save(folder)


def read_model_folder(folder: Path) -> ModelParts:
    """Read what `write_model_folder` wrote, after comparing every file with the manifest."""
    digests = check_manifest(folder, WEIGHTS)
    path = folder / "config.json"
    told = read_json(path)
    _check_format(told, path)
    model, about = told.get("model"), told.get("about")
    if not isinstance(model, dict) or not isinstance(about, dict):
        raise RegardError(f"{path} lacks its model or about")
    try:
        config = ModelConfig(**model)
    except (ValueError, TypeError) as error:
        raise RegardError(shorten(f"{path}: {error}")) from None
    try:
        weights = open_weights(folder)
        network = empty(config, weights)
        check_names(weights, {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()})
        fill(network, weights.read_all(digests[WEIGHTS]))
    except ValueError:
        check_digest(folder / WEIGHTS, digests[WEIGHTS])  # if the file is damaged, that is what is wrong
        raise
    special = special_ids(read_json(folder / "generation_config.json"), config, folder)
    return network, load_tokenizer(folder), special, about


def load_tokenizer(folder: Path) -> Tokenizer | None:
    """The tokenizer of a folder, if it has one."""
    if is_there(folder / "tokenizer.json"):
        return HuggingFaceTokenizer.load(folder)
    return OpusTokenizer.load(folder) if is_there(folder / "source.spm") else None


OTHER_TOKENIZERS = ("spiece.model", "tokenizer.model", "sentencepiece.bpe.model", "vocab.txt", "vocab.json")


def why_no_tokenizer(folder: Path) -> str:
    """What is to be said of a folder that Regard found no tokenizer in."""
    there = [name for name in OTHER_TOKENIZERS if is_there(folder / name)]
    if not there:
        return "its folder had none (tokenizer.json)"
    return (
        f"its folder had {there[0]} alone, and Regard reads tokenizer.json: "
        "transformers.AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) writes it"
    )


def empty(config: ModelConfig, weights: Weights) -> Network:
    """The model without memory for its weights, once the config is known to be no larger than they are."""
    layers = config.layers
    if config.kind == "encoder-decoder":
        layers += config.decoder_depth
    if layers > min(MAX_LAYERS, len(weights.entries) // LEAST_IN_LAYER):
        raise RegardError(
            f"{weights.where}: its config has {layers:,} layers, and it holds {len(weights.entries)} tensors: "
            f"each layer has {LEAST_IN_LAYER} at least, and {MAX_LAYERS:,} layers are the most that is read"
        )
    d_k, d_v, _ = config.widths
    places = config.max_length if config.positions == "learned" else 0
    rows = max(config.vocab_size, config.classes, config.d_ff, places, config.heads * d_k, config.heads * d_v)
    held = max(math.prod(entry.shape) for entry in weights.entries.values())
    if rows * config.d_model > held:
        raise RegardError(
            f"{weights.where}: its config asks for {rows:,} × {config.d_model:,} numbers, and its largest tensor "
            f"holds {held:,}"
        )
    with torch.device("meta"), _NoFilling():
        return build(config)


class _NoFilling(TorchFunctionMode):
    """Weights are left as they are made: to fill those that have no memory takes torch a second of imports."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(function, "__module__", None) == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        return function(*args, **(kwargs or {}))


def fill(network: Network, state: dict[str, torch.Tensor]) -> None:
    """Give an empty model its weights."""
    network.load_state_dict(state, assign=True)
    for parameter in network.parameters():
        parameter.requires_grad_(True)
    network.eval()


def check_names(weights: Weights, wanted: dict[str, tuple[int, ...]]) -> None:
    """A ValueError unless there is just what is wanted: each name, its shape, a type that weights may have."""
    missing = sorted(set(wanted) - set(weights.entries))
    surplus = sorted(set(weights.entries) - set(wanted))
    if missing or surplus:
        told = [f"it lacks {_some(missing)}"] * bool(missing) + [f"it has {_some(surplus)}, unknown"] * bool(surplus)
        raise RegardError(f"{weights.where} does not hold the tensors of its config: {'; '.join(told)}")
    for name, shape in wanted.items():
        entry = weights.entries[name]
        if entry.shape != shape or entry.dtype not in REAL:
            found = f"{entry.dtype} {list(entry.shape)}"
            raise RegardError(f"{weights.where}: {name} is {found}, and by its config should be real {list(shape)}")


def _some(names: list[str]) -> str:
    shown = (name if name.isprintable() else repr(name) for name in names[:3])
    return shorten(", ".join(shown)) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def generation_config(config: ModelConfig, special: SpecialIds) -> dict[str, Any]:
    """The special ids under the names that Hugging Face gives them."""
    ids = {
        "decoder_start_token_id": special.start,
        "eos_token_id": list(special.end) if len(special.end) != 1 else special.end[0],
        "pad_token_id": config.pad_id,
        "sep_token_id": special.separator,
        "suppress_tokens": list(special.suppressed) or None,
    }
    return {name: value for name, value in ids.items() if value not in (None, [])}


def special_ids(told: dict[str, Any], config: ModelConfig, where: Path) -> SpecialIds:
    """The special ids of a `generation_config.json`, or of an older `config.json`, known to the model of the config."""
    try:
        special = SpecialIds(
            end=_ids(told.get("eos_token_id")),
            start=told.get("decoder_start_token_id"),
            separator=told.get("sep_token_id"),
            suppressed=tuple(dict.fromkeys([*_ids(told.get("suppress_tokens")), *_bad_words(told)])),
        )
        special.check(config)
    except (ValueError, TypeError) as error:
        raise RegardError(shorten(f"{where}: its special ids cannot be used: {error}")) from None
    return special


def _bad_words(told: dict[str, Any]) -> list[int]:
    """Words that are never to be said: Regard can leave out single ids, and no runs of them."""
    words = told.get("bad_words_ids") or []
    if not isinstance(words, list) or not all(isinstance(word, list) and word for word in words):
        raise RegardError(f"bad_words_ids={quoted(words)} must be a list of lists of ids")
    if long := [word for word in words if len(word) > 1]:
        raise RegardError(
            f"bad_words_ids forbids {quoted(long[0])}, several ids in a row, and Regard single ones alone"
        )
    return [word[0] for word in words]


def _ids(value: Any) -> tuple[int, ...]:
    """One id, several, or none."""
    return () if value is None else tuple(value) if isinstance(value, list) else (value,)


def write_json(path: Path, value: dict[str, Any]) -> None:
    """A file of it."""
    path.write_text(as_json(value), encoding="utf-8")


def as_json(value: dict[str, Any]) -> str:
    """JSON as people like to read it."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def write_manifest(folder: Path) -> None:
    """The size and digest of every file of the folder."""
    files = sorted(file for file in folder.rglob("*") if file.is_file() and file.name != MANIFEST)
    listed = {
        file.relative_to(folder).as_posix(): {"bytes": file.stat().st_size, "sha256": digest(file)} for file in files
    }
    write_json(folder / MANIFEST, {"format": FORMAT, "files": listed})


def _check_format(told: dict[str, Any], path: Path) -> None:
    if told.get("format") != FORMAT:
        raise RegardError(
            f"{path} has format {quoted(told.get('format'))}, and this Regard reads {FORMAT}: install a newer one"
        )


def check_manifest(folder: Path, later: str | None = None) -> dict[str, str]:
    """The SHA-256 of each file; a ValueError that names the first which is missing, cut short or not what it was.

    The content of the file `later` is not read: its reader compares the digest of what it reads.
    """
    manifest = read_json(folder / MANIFEST)
    _check_format(manifest, folder / MANIFEST)
    files = manifest.get("files")
    if not isinstance(files, dict) or not files:
        raise RegardError(f"{folder / MANIFEST} names no files")
    for name in (*FILES, *TOKENIZER_FILES):
        if name not in files and (name in FILES or is_there(folder / name)):
            raise RegardError(f"{folder / MANIFEST} does not name {name}, so that nobody knows whether it is whole")
    for name, told in files.items():
        if not stays_within(name) or not isinstance(told, dict):
            raise RegardError(f"{folder / MANIFEST} names {quoted(name)}: only files within the folder are read")
        path = folder / name
        if not is_there(path):
            raise RegardError(f"{path} is missing: the manifest names it")
        if (size := path.stat().st_size) != told.get("bytes"):
            raise RegardError(f"{path} has {size:,} bytes, and the manifest says {quoted(told.get('bytes'))}")
        if name != later:
            check_digest(path, told.get("sha256"))
    return {name: str(told.get("sha256")) for name, told in files.items()}


def check_digest(path: Path, sha256: object) -> None:
    """A ValueError unless the file's content has this SHA-256."""
    if digest(path) != sha256:
        raise RegardError(f"{path} is damaged: its SHA-256 is not the manifest's")
