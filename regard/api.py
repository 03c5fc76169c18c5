"""`load`, and the handle that people use."""

from pathlib import Path

import torch

from regard import store
from regard.interop.gguf_file import load_gguf
from regard.interop.huggingface import load_huggingface
from regard.store import Stored
from regard.weights import is_pickle, pickle_refusal, read_json


class Model(Stored):
    """A model with its tokenizer, ready for use."""

    def save(self, folder: Path | str) -> None:
        """Write it as a folder that `load` reads; one that is there already is not overwritten."""
        store.save(self, Path(folder))

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> "Model":
        """Move it to another device or precision."""
        self.network.to(device=device, dtype=dtype)
        return self


def load(path: Path | str, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Model:
    """The model of a folder (Regard's own, or Hugging Face's of a known shape) or of a GGUF file.

    Weights come in float32, whatever the file holds, unless `dtype` asks for another.
    """
    loaded = Model(**vars(_stored(Path(path))))
    return loaded.to(device, dtype)


def _stored(path: Path) -> Stored:
    if path.is_file():
        return _from_file(path)
    if not path.is_dir():
        raise ValueError(f"there is no model at {path}: name a folder or a GGUF file")
    if not (path / "config.json").is_file():
        files = sorted(path.glob("*.gguf"))
        if len(files) == 1:
            return _from_file(files[0])
        raise ValueError(f"{path} is no model's folder: it has no config.json")
    if read_json(path / "config.json").get("model_type") == "regard":
        return store.load(path)
    return load_huggingface(path)


def _from_file(path: Path) -> Stored:
    with path.open("rb") as file:
        magic = file.read(4)
    if magic == b"GGUF":
        return load_gguf(path)
    if is_pickle(path):
        raise ValueError(pickle_refusal(path))
    raise ValueError(f"{path} is no GGUF file; for safetensors name the folder that holds it with its config.json")
