"""`regard.load`: read a model from a bundled name, a run, a folder (Regard's or Hugging Face's) or a GGUF file."""

from difflib import get_close_matches
from pathlib import Path

import torch
from torch import nn

from regard.config import did_you_mean
from regard.decoding.text_model import Model
from regard.errors import RegardError
from regard.interop.gguf_file import load_gguf
from regard.interop.huggingface import load_huggingface
from regard.models import BUNDLED_MODELS, bundled_folder, bundled_models
from regard.storage.model_folder import MODEL_TYPE, OWN_MODULE_TYPE, RECIPE_FILE
from regard.storage.weights import pickle_refusal
from regard.untrusted_files import is_pickle, read_json


def load(
    path: Path | str,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
    *,
    network: nn.Module | None = None,
) -> Model:
    """Load a model by its bundled name, or from a run, a folder (Regard's or Hugging Face's) or a GGUF file.

    Weights are float32 on the CPU, whatever the file holds, unless `dtype` or `device` says otherwise. A run that
    trained your own module needs a module of the same class and sizes as `network`: its weights are loaded into it.
    """
    return _load(find_model(path), network).to(device, dtype)


def find_model(path: Path | str) -> Path:
    """The file or folder that `load` reads for this path or name: a model file, a model folder or a run.

    An existing path takes precedence over a bundled model; a name with a separator (./fr-en) is always a path.
    """
    given, is_name = Path(path), isinstance(path, str) and Path(path).name == path
    if given.is_file() or (given / "config.json").is_file() or _is_run(given) or _only_gguf(given) is not None:
        return given
    if is_name and path in {*bundled_models(), *BUNDLED_MODELS}:  # even if an unrelated folder has that name
        return bundled_folder(str(path))
    if given.is_dir():
        raise RegardError(f"{path} is not a model folder: it has no config.json")
    names = bundled_models()
    siblings = list(given.parent.glob("*/config.json")) if given.parent.is_dir() else []
    known = [*names, *(str(config.parent) for config in siblings)]
    suggestion = f"{did_you_mean(str(path), known)} Otherwise " if get_close_matches(str(path), known, 1) else ""
    raise RegardError(
        f"no model at {path}: {suggestion}pass a run, a model folder (Regard's or Hugging Face's), a GGUF file"
        + (f", or the name of a bundled model ({', '.join(names)})" if names else "")
    )


def _is_run(folder: Path) -> bool:
    return (folder / "checkpoints").is_dir() or (folder / RECIPE_FILE).is_file()


def _only_gguf(folder: Path) -> Path | None:
    """The GGUF file of a folder that contains exactly one."""
    files = list(folder.glob("*.gguf"))
    return files[0] if len(files) == 1 else None


def _load(path: Path, network: nn.Module | None) -> Model:
    if (path / "config.json").is_file():
        is_regard = read_json(path / "config.json").get("model_type") in (MODEL_TYPE, OWN_MODULE_TYPE)
        return Model.from_folder(path, network) if is_regard or network is not None else load_huggingface(path)
    file = path if path.is_file() else _only_gguf(path)
    if file is None:
        return _best_of_run(path, network)
    if network is not None:
        raise RegardError(f"{path} is a file of another engine: load it without a network of your own")
    return _load_file(file)


def _best_of_run(run: Path, network: nn.Module | None) -> Model:
    """The newest valid model of a run that has not finished. The run may replace it while it is read: then retry."""
    damage: dict[Path, str] = {}
    while candidates := sorted(set(run.glob("checkpoints/best-*")) - damage.keys()):
        try:
            return Model.from_folder(candidates[-1], network)
        except (ValueError, OSError) as error:
            damage[candidates[-1]] = str(error)
    reason = "; ".join(damage.values()) or "no model has been validated yet"
    raise RegardError(f"{run} is a run without a model to load: {reason}")


def _load_file(path: Path) -> Model:
    with path.open("rb") as file:
        magic = file.read(4)
    if magic == b"GGUF":
        return load_gguf(path)
    if is_pickle(path):
        raise RegardError(pickle_refusal(path))
    raise RegardError(f"{path} is not a GGUF file; for safetensors, name the folder that holds it and its config.json")
