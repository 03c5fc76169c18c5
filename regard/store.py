"""A model's folder: `config.json`, `model.safetensors`, the tokenizer, `generation_config.json`, and a manifest.

The manifest holds each file's size and SHA-256, so that a flipped bit, a truncation or a missing file is noticed and
named. A folder is written beside its place and moved there when all of it is on disk.
"""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from regard.config import ModelConfig, SpecialIds
from regard.files import digest, new_folder
from regard.model.transformer import Network, build
from regard.text.opus import OpusTokenizer
from regard.text.tokenizer import Tokenizer
from regard.weights import REAL, Weights, open_weights, read_json, write_weights

FORMAT = 1
"""raised when the layout changes"""
MANIFEST = "manifest.json"


@dataclass
class Stored:
    """A model with what it needs to read and write text."""

    network: Network
    tokenizer: Tokenizer | None = None
    special: SpecialIds = field(default_factory=SpecialIds)
    about: dict[str, Any] = field(default_factory=dict)
    """what is known of how it came about, in JSON: "recipe", "data", "scores", "origin", "languages", "classes" """

    @property
    def config(self) -> ModelConfig:
        """Its architecture."""
        return self.network.config


def save(stored: Stored, folder: Path) -> None:
    """Write a model's folder, which must not be there yet: nothing is ever overwritten."""
    refuse_existing(folder)
    with new_folder(folder) as temporary:
        write(stored, temporary)
        write_manifest(temporary)


def refuse_existing(folder: Path) -> None:
    """A ValueError if there is something at `folder` that could be lost."""
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise ValueError(f"{folder} is there already: choose another name, or remove it first")


def write(stored: Stored, folder: Path) -> None:
    """The model's files, into a folder that is there."""
    config = {"model_type": "regard", "format": FORMAT, "model": asdict(stored.config), "about": stored.about}
    write_json(folder / "config.json", config)
    write_weights(folder / "model.safetensors", stored.network.state_dict())
    write_json(folder / "generation_config.json", generation_config(stored))
    if stored.tokenizer is not None:
        stored.tokenizer.save(folder)


def load(folder: Path) -> Stored:
    """What `save` wrote, after every file has been held against the manifest."""
    check_manifest(folder)
    told = read_json(folder / "config.json")
    if told.get("format") != FORMAT:
        raise ValueError(f"{folder} has format {told.get('format')!r}, and this Regard reads {FORMAT}: install a newer")
    model, about = told.get("model"), told.get("about")
    if not isinstance(model, dict) or not isinstance(about, dict):
        raise ValueError(f"{folder / 'config.json'} lacks its model or about")
    config = ModelConfig(**model)
    weights = open_weights(folder)
    network = empty(config, weights)
    state = network.state_dict()
    check_names(weights, {name: tuple(tensor.shape) for name, tensor in state.items()})
    fill(network, {name: weights.read(name) for name in state})
    special = special_ids(read_json(folder / "generation_config.json"))
    special.check(config)
    return Stored(network, load_tokenizer(folder), special, about)


def load_tokenizer(folder: Path) -> Tokenizer | None:
    """The tokenizer of a folder, if it has one."""
    if (folder / "tokenizer.json").is_file():
        return Tokenizer.load(folder)
    return OpusTokenizer.load(folder) if (folder / "source.spm").is_file() else None


def empty(config: ModelConfig, weights: Weights) -> Network:
    """The model without memory for its weights, once the config is known to be no larger than they are."""
    layers = config.layers + (config.decoder_layers or 0)
    if layers > len(weights.entries):
        raise ValueError(
            f"{weights.where}: its config has {layers:,} layers, and it holds {len(weights.entries)} tensors"
        )
    with torch.device("meta"):
        return build(config)


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
        raise ValueError(f"{weights.where} does not hold the tensors of its config: {'; '.join(told)}")
    for name, shape in wanted.items():
        entry = weights.entries[name]
        if entry.shape != shape or entry.dtype not in REAL:
            found = f"{entry.dtype} {list(entry.shape)}"
            raise ValueError(f"{weights.where}: {name} is {found}, and by its config should be real {list(shape)}")


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def generation_config(stored: Stored) -> dict[str, Any]:
    """The special ids under the names that Hugging Face gives them."""
    special = stored.special
    ids = {
        "decoder_start_token_id": special.start,
        "eos_token_id": list(special.end) if len(special.end) != 1 else special.end[0],
        "pad_token_id": stored.config.pad_id,
        "sep_token_id": special.separator,
        "suppress_tokens": list(special.suppressed) or None,
    }
    return {name: value for name, value in ids.items() if value not in (None, [])}


def special_ids(told: dict[str, Any]) -> SpecialIds:
    """The special ids of a `generation_config.json`, or of an older `config.json`."""
    bad = [word[0] for word in told.get("bad_words_ids") or [] if len(word) == 1]
    return SpecialIds(
        end=_ids(told.get("eos_token_id")),
        start=told.get("decoder_start_token_id"),
        separator=told.get("sep_token_id"),
        suppressed=tuple(dict.fromkeys([*_ids(told.get("suppress_tokens")), *bad])),
    )


def _ids(value: Any) -> tuple[int, ...]:
    """One id, several, or none."""
    return () if value is None else tuple(value) if isinstance(value, list) else (value,)


def write_json(path: Path, value: dict[str, Any]) -> None:
    """JSON as people like to read it."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_manifest(folder: Path) -> None:
    """The size and digest of every file of the folder."""
    files = sorted(file for file in folder.rglob("*") if file.is_file() and file.name != MANIFEST)
    listed = {
        file.relative_to(folder).as_posix(): {"bytes": file.stat().st_size, "sha256": digest(file)} for file in files
    }
    write_json(folder / MANIFEST, {"format": FORMAT, "files": listed})


def check_manifest(folder: Path) -> None:
    """A ValueError that names the first file which is missing, cut short or not what it was."""
    files = read_json(folder / MANIFEST).get("files")
    if not isinstance(files, dict) or not files:
        raise ValueError(f"{folder / MANIFEST} names no files")
    for name, told in files.items():
        if Path(name).is_absolute() or ".." in Path(name).parts or not isinstance(told, dict):
            raise ValueError(f"{folder / MANIFEST} names {name!r}: only files within the folder are read")
        path = folder / name
        if not path.is_file():
            raise ValueError(f"{path} is missing: the manifest names it")
        if path.stat().st_size != told.get("bytes"):
            raise ValueError(f"{path} has {path.stat().st_size:,} bytes, and the manifest says {told.get('bytes')}")
        if digest(path) != told.get("sha256"):
            raise ValueError(f"{path} is damaged: its SHA-256 is not the manifest's")
