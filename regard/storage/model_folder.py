"""A model's folder: `config.json`, `model.safetensors`, the tokenizer, `generation_config.json`, and a manifest.

The manifest lists the size and SHA-256 of each file, so a flipped bit, a truncated file or a missing file is detected
and reported. A folder is written under a temporary name and renamed when everything is on disk.
"""

import json
import math
from collections.abc import Callable, Collection
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from regard.atomic_files import check_new_folder, file_digest, new_folder
from regard.config import MAX_LAYERS, ModelConfig, SpecialIds, did_you_mean
from regard.data.huggingface_tokenizer import HUGGINGFACE_TOKENIZER_FILES, HuggingFaceTokenizer
from regard.data.opus_tokenizer import OPUS_TOKENIZER_FILES, OpusTokenizer
from regard.data.tokenizer import Tokenizer
from regard.data.tokenizer_pair import TARGET_TOKENIZER_FILES, TokenizerPair
from regard.errors import RegardError
from regard.formatting import quoted, shorten
from regard.model.transformer import Network, build
from regard.storage.int8_weights import INT8, dequantise, int8_changes, int8_matrices, quantise_weights, scale_shapes
from regard.storage.metadata import as_metadata, test_scores_of
from regard.storage.weights import (
    WEIGHT_DTYPES,
    WRITABLE_DTYPES,
    Weights,
    open_weights,
    round_weights,
    rounding_changes,
    write_weights,
)
from regard.untrusted_files import is_regular_file, is_safe_relative_path, read_json

FOLDER_FORMAT = 1
"""Version of the folder format, incremented when the layout changes."""
INT8_FORMAT = 2
"""Version in the `config.json` of a model with int8 weights, so that a Regard that cannot read them says so."""
STORED_DTYPES = (*WRITABLE_DTYPES, INT8)
"""Types of the weights in a model folder."""
MANIFEST_FILE, RECIPE_FILE = "manifest.json", "recipe.toml"
WEIGHTS_FILE = "model.safetensors"
MODEL_FILES = ("config.json", WEIGHTS_FILE, "generation_config.json")
MODEL_TYPE, OWN_MODULE_TYPE = "regard", "regard-own-module"
"""The `model_type` in the config.json of a model, and of a folder with the weights of a user's module."""
TOKENIZER_FILES = (*HUGGINGFACE_TOKENIZER_FILES, *OPUS_TOKENIZER_FILES, *TARGET_TOKENIZER_FILES)
MIN_LAYER_TENSORS = 8
"""Minimum number of tensors of a layer: q, k, v, out, up, down and two norms. Libraries that fuse q, k and v have
biases instead."""


ModelParts = tuple[Network, Tokenizer | None, SpecialIds, dict[str, Any]]
"""The network, the tokenizer if there is one, the special ids, and the metadata (`regard.Model.about`)."""


def write_model_folder(folder: Path, write_files: Callable[[Path], None], force: bool = False) -> None:
    """Write the files of a model and their manifest into a new or empty folder, or in place of an existing model.

    With `force`, files that are not part of the old model are left untouched.
    """
    with new_folder(folder, force=force, obsolete=model_files(folder)) as temporary:
        write_files(temporary)
        write_manifest(temporary)


def about_rounded(about: dict[str, Any], network: Network, dtype: str | None) -> dict[str, Any]:
    """The metadata of a model that is written as `dtype`: test scores measured before rounding are marked as such."""
    tests = test_scores_of(about)
    if dtype is None or not tests or not _changes_weights(network.state_dict(), dtype):
        return about
    return about | {"tests": [as_metadata(replace(test, rounded=dtype)) for test in tests]}


def _changes_weights(state: dict[str, torch.Tensor], dtype: str) -> bool:
    """Whether writing weights as `dtype` changes them; another engine's type, such as int16, always does."""
    if dtype == INT8:
        return int8_changes(state)
    return dtype not in WRITABLE_DTYPES or rounding_changes(state, dtype)


def check_dtype(dtype: str | None) -> None:
    """Raise a RegardError for a type in which weights cannot be written."""
    if dtype is not None and dtype not in STORED_DTYPES:
        raise RegardError(f"dtype={dtype!r} is not a valid choice: {did_you_mean(dtype, STORED_DTYPES)}")


def check_writable(folder: Path, config: ModelConfig, special: SpecialIds, force: bool = False) -> None:
    """Raise a RegardError if writing to `folder` could lose a file, or if the written model could not be read."""
    check_new_folder(folder, force)
    special.check(config)


def model_files(folder: Path) -> list[str]:
    """Return the files that a folder's manifest lists, and the manifest; nothing if it has no readable manifest."""
    try:
        files = read_json(folder / MANIFEST_FILE)["files"]
    except (RegardError, OSError, KeyError):
        return []
    return [MANIFEST_FILE, *(name for name in files if is_safe_relative_path(name))] if isinstance(files, dict) else []


def write_model_files(
    folder: Path,
    network: Network,
    tokenizer: Tokenizer | None,
    special: SpecialIds,
    about: dict[str, Any],
    dtype: str | None = None,
) -> None:
    """Write a model's files, without a manifest, into an existing folder.

    Weights are written as they are, or rounded to `dtype`, one of `STORED_DTYPES`.
    """
    write_parts(folder, MODEL_TYPE, network.config, network.state_dict(), tokenizer, special, about, dtype)


def write_parts(
    folder: Path,
    model_type: str,
    config: ModelConfig,
    state: dict[str, torch.Tensor],
    tokenizer: Tokenizer | None,
    special: SpecialIds,
    about: dict[str, Any],
    dtype: str | None = None,
) -> None:
    """Write the files of a folder of this type."""
    version = INT8_FORMAT if dtype == INT8 else FOLDER_FORMAT
    content = {"model_type": model_type, "format": version, "model": asdict(config), "about": about}
    write_json(folder / "config.json", content)
    if dtype is not None:
        state = quantise_weights(state) if dtype == INT8 else round_weights(state, dtype)
    write_weights(folder / WEIGHTS_FILE, state)
    write_json(folder / "generation_config.json", generation_config(config, special))
    if tokenizer is not None:
        tokenizer.save(folder)


def read_config(folder: Path) -> tuple[str, ModelConfig, dict[str, Any]]:
    """The type of a folder that Regard wrote, the config and the metadata."""
    path = folder / "config.json"
    content = read_json(path)
    _check_format(content, path, INT8_FORMAT)
    model, about = content.get("model"), content.get("about")
    if not isinstance(model, dict) or not isinstance(about, dict):
        raise RegardError(f"{path} must have the keys model and about")
    try:
        return str(content.get("model_type")), ModelConfig(**model), about
    except (ValueError, TypeError) as error:
        raise RegardError(shorten(f"{path}: {error}")) from None


def read_model_folder(folder: Path) -> ModelParts:
    """Read what `regard.Model.save` wrote, after comparing every file with the manifest."""
    digests = check_manifest(folder, WEIGHTS_FILE)
    model_type, config, about = read_config(folder)
    if model_type == OWN_MODULE_TYPE:
        raise RegardError(
            f"{folder} holds the weights of your own module ({about.get('module')}), not of a Regard model: load it in "
            f"Python with regard.load({str(folder)!r}, network=MODULE)"
        )
    try:
        weights = open_weights(folder)
        network = build_empty(config, weights)
        shapes = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
        quantised = int8_matrices(weights, shapes)
        check_tensors(weights, shapes | scale_shapes(shapes, quantised), int8=quantised)
        state = weights.read_all(digests[WEIGHTS_FILE])
        dequantise(state, quantised, folder / WEIGHTS_FILE)
        assign_weights(network, state)
    except RegardError:
        check_digest(folder / WEIGHTS_FILE, digests[WEIGHTS_FILE])  # report damage to the file first
        raise
    special, tokenizer = (
        special_ids(read_json(folder / "generation_config.json"), config, folder),
        load_tokenizer(folder),
    )
    return network, tokenizer, with_mask_of(tokenizer, special, config, about), about


def load_tokenizer(folder: Path) -> Tokenizer | None:
    """Load the tokenizer of a folder, if it has one, or both if source and target have their own."""
    if is_regular_file(folder / TARGET_TOKENIZER_FILES[0]):
        return TokenizerPair.load(folder)
    if is_regular_file(folder / "tokenizer.json"):
        return HuggingFaceTokenizer.load(folder)
    return OpusTokenizer.load(folder) if is_regular_file(folder / "source.spm") else None


def read_tokenizer(path: Path) -> Tokenizer:
    """Read the tokenizer of a model's folder, or a single file in the format of `tokenizer.json`."""
    if path.is_dir():
        tokenizer = load_tokenizer(path)
        if tokenizer is None:
            raise RegardError(f"no tokenizer could be loaded from {path}: {why_no_tokenizer(path)}")
        return tokenizer
    if not is_regular_file(path):
        raise RegardError(f"{path}: no such file or folder")
    is_folder_file = path.name == "tokenizer.json"  # then the files next to it belong to it
    return HuggingFaceTokenizer.load(path.parent) if is_folder_file else HuggingFaceTokenizer.load_file(path)


UNSUPPORTED_TOKENIZER_FILES = ("spiece.model", "tokenizer.model", "sentencepiece.bpe.model", "vocab.txt", "vocab.json")


def why_no_tokenizer(folder: Path) -> str:
    """Explain why no tokenizer was loaded from a folder."""
    unsupported = [name for name in UNSUPPORTED_TOKENIZER_FILES if is_regular_file(folder / name)]
    if not unsupported:
        return "its folder had none (tokenizer.json)"
    return (
        f"its folder had only {unsupported[0]}, but Regard reads tokenizer.json: "
        "transformers.AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) writes one"
    )


def build_empty(config: ModelConfig, weights: Weights) -> Network:
    """Build the model without allocating its weights, after checking that the config is not larger than the weights."""
    layers = config.layers
    if config.kind == "encoder-decoder":
        layers += config.decoder_depth
    if layers > min(MAX_LAYERS, len(weights.entries) // MIN_LAYER_TENSORS):
        raise RegardError(
            f"{weights.where}: its config has {layers:,} layers, but it contains {len(weights.entries)} tensors: "
            f"a layer has at least {MIN_LAYER_TENSORS} tensors, and at most {MAX_LAYERS:,} layers are read"
        )
    d_k, d_v, _ = config.widths
    positions = config.max_positions or 0
    ids = max(config.vocab_size, config.output_vocab_size)
    rows = max(ids, config.classes, config.d_ff, positions, config.heads * d_k, config.heads * d_v)
    largest = max(math.prod(entry.shape) for entry in weights.entries.values())
    if rows * config.d_model > largest:
        raise RegardError(
            f"{weights.where}: its config needs {rows:,} × {config.d_model:,} numbers, but its largest tensor "
            f"has {largest:,}"
        )
    with torch.device("meta"), _SkipInitialization():
        return build(config)


class _SkipInitialization(TorchFunctionMode):
    """Skips the initialization of weights: on the meta device it does nothing but import for a second."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(function, "__module__", None) == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        return function(*args, **(kwargs or {}))


def assign_weights(network: Network, state: dict[str, torch.Tensor]) -> None:
    """Assign loaded weights to a model from `build_empty`."""
    network.load_state_dict(state, assign=True)
    for parameter in network.parameters():
        parameter.requires_grad_(True)
    network.eval()


def check_tensors(
    weights: Weights,
    wanted: dict[str, tuple[int, ...]],
    dtypes: Collection[str] = WEIGHT_DTYPES,
    int8: Collection[str] = (),
) -> None:
    """Raise a RegardError unless the weights are exactly the wanted tensors: names, shapes, and a supported type.

    `int8` names the matrices that the file stores in int8, with scales.
    """
    missing = sorted(set(wanted) - set(weights.entries))
    surplus = sorted(set(weights.entries) - set(wanted))
    if missing or surplus:
        differences = [f"{_first_names(missing)} missing"] if missing else []
        differences += [f"{_first_names(surplus)} unknown"] if surplus else []
        raise RegardError(f"{weights.where} does not contain the tensors of its config: {'; '.join(differences)}")
    for name, shape in wanted.items():
        entry = weights.entries[name]
        if entry.shape != shape or (entry.dtype not in dtypes and name not in int8):
            actual = f"{entry.dtype} {list(entry.shape)}"
            raise RegardError(f"{weights.where}: {name} is {actual}, but by its config must be float {list(shape)}")


def _first_names(names: list[str]) -> str:
    printable = (name if name.isprintable() else repr(name) for name in names[:3])
    return shorten(", ".join(printable)) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def generation_config(config: ModelConfig, special: SpecialIds) -> dict[str, Any]:
    """Return the special ids under the names that Hugging Face uses."""
    ids = {
        "decoder_start_token_id": special.start,
        "forced_bos_token_id": special.first,
        "eos_token_id": list(special.end) if len(special.end) != 1 else special.end[0],
        "pad_token_id": config.output_pad_id,
        "sep_token_id": special.separator,
        "mask_token_id": special.mask,
        "suppress_tokens": list(special.suppressed) or None,
    }
    return {name: value for name, value in ids.items() if value not in (None, [])}


def special_ids(settings: dict[str, Any], config: ModelConfig, where: Path) -> SpecialIds:
    """Read and check the special ids of a `generation_config.json`, or of an older `config.json`."""
    try:
        special = SpecialIds(
            end=_ids(settings.get("eos_token_id")),
            start=settings.get("decoder_start_token_id"),
            first=settings.get("forced_bos_token_id"),
            separator=settings.get("sep_token_id"),
            mask=settings.get("mask_token_id"),
            suppressed=tuple(dict.fromkeys([*_ids(settings.get("suppress_tokens")), *_bad_words(settings)])),
        )
        special.check(config)
    except (ValueError, TypeError) as error:
        raise RegardError(shorten(f"{where}: invalid special ids: {error}")) from None
    return special


def with_mask_of(
    tokenizer: Tokenizer | None, special: SpecialIds, config: ModelConfig, about: dict[str, Any]
) -> SpecialIds:
    """Return the special ids with the tokenizer's mask, if the model is an encoder with a head that can predict it.

    Most folders name the mask in the files of the tokenizer only.
    """
    predicts_tokens = config.kind == "encoder" and not config.classes and about.get("head") != "none"
    mask = tokenizer.mask if tokenizer is not None and predicts_tokens and special.mask is None else None
    return special if mask is None or mask >= config.vocab_size else replace(special, mask=mask)


def _bad_words(settings: dict[str, Any]) -> list[int]:
    """Return the forbidden ids; Regard can only forbid single ids, not sequences of ids."""
    words = settings.get("bad_words_ids") or []
    if not isinstance(words, list) or not all(isinstance(word, list) and word for word in words):
        raise RegardError(f"bad_words_ids={quoted(words)} must be a list of lists of ids")
    if long := [word for word in words if len(word) > 1]:
        raise RegardError(
            f"bad_words_ids forbids the sequence {quoted(long[0])}, but Regard can only forbid single ids"
        )
    return [word[0] for word in words]


def _ids(value: Any) -> tuple[int, ...]:
    """Return one id, several ids or none as a tuple."""
    return () if value is None else tuple(value) if isinstance(value, list) else (value,)


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write a JSON file."""
    path.write_text(as_json(value), encoding="utf-8")


def as_json(value: dict[str, Any]) -> str:
    """Return indented JSON."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def write_manifest(folder: Path) -> None:
    """Write the manifest: the size and digest of every file of the folder."""
    files = sorted(file for file in folder.rglob("*") if file.is_file() and file.name != MANIFEST_FILE)
    listed = {
        file.relative_to(folder).as_posix(): {"bytes": file.stat().st_size, "sha256": file_digest(file)}
        for file in files
    }
    write_json(folder / MANIFEST_FILE, {"format": FOLDER_FORMAT, "files": listed})


def _check_format(content: dict[str, Any], path: Path, newest: int = FOLDER_FORMAT) -> None:
    if content.get("format") not in range(FOLDER_FORMAT, newest + 1):
        readable = f"{FOLDER_FORMAT} to {newest}" if newest > FOLDER_FORMAT else str(newest)
        raise RegardError(
            f"{path} has format {quoted(content.get('format'))}, but this Regard reads {readable}: upgrade Regard"
        )


def check_manifest(folder: Path, later: str | None = None) -> dict[str, str]:
    """Return the SHA-256 of each file; raise a RegardError for the first that is missing, truncated or changed.

    The content of the file `later` is not read here: its reader compares the digest.
    """
    manifest = read_json(folder / MANIFEST_FILE)
    _check_format(manifest, folder / MANIFEST_FILE)
    files = manifest.get("files")
    if not isinstance(files, dict) or not files:
        raise RegardError(f"{folder / MANIFEST_FILE} lists no files")
    for name in (*MODEL_FILES, *TOKENIZER_FILES):
        if name not in files and (name in MODEL_FILES or is_regular_file(folder / name)):
            raise RegardError(f"{folder / MANIFEST_FILE} does not list {name}, so its integrity cannot be verified")
    for name, entry in files.items():
        if not is_safe_relative_path(name) or not isinstance(entry, dict):
            raise RegardError(f"{folder / MANIFEST_FILE} lists {quoted(name)}: only files within the folder are read")
        path = folder / name
        if not is_regular_file(path):
            raise RegardError(f"{path} is missing, but the manifest lists it")
        if (size := path.stat().st_size) != entry.get("bytes"):
            raise RegardError(f"{path} has {size:,} bytes, but the manifest says {quoted(entry.get('bytes'))}")
        if name != later:
            check_digest(path, entry.get("sha256"))
    return {name: str(entry.get("sha256")) for name, entry in files.items()}


def check_digest(path: Path, sha256: object) -> None:
    """Raise a RegardError unless the file's content has this SHA-256."""
    if file_digest(path) != sha256:
        raise RegardError(f"{path} is damaged: its SHA-256 differs from the manifest")
