"""The description of another library's architecture: everything needed to read and write its folders."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from regard.config import ModelConfig, SpecialIds
from regard.errors import RegardError
from regard.interop.weight_rules import StateDict, WeightRule
from regard.storage.weights import TensorEntry, Weights


@dataclass(frozen=True)
class FolderTensors:
    """The tensors of a Hugging Face folder, found by their full names even where the folder abbreviates them."""

    weights: Weights
    prefix: str
    """Prefix that a folder may omit from the names of its tensors."""

    def stored_name(self, name: str) -> str | None:
        """Return the name the folder uses for a tensor: the full one, one without the prefix, or a legacy one."""
        legacy = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        candidates = (name, name.removeprefix(self.prefix), legacy, legacy.removeprefix(self.prefix))
        return next((candidate for candidate in candidates if candidate in self.weights.entries), None)

    def entry(self, name: str) -> TensorEntry | None:
        """Return the type and shape of a tensor, or None if the folder does not contain it."""
        stored_name = self.stored_name(name)
        return None if stored_name is None else self.weights.entries[stored_name]

    def read(self, name: str) -> Tensor:
        """Read a tensor; raise RegardError if the folder does not contain it."""
        stored_name = self.stored_name(name)
        if stored_name is None:
            raise RegardError(f"{self.weights.where} has no tensor {name}, which its config requires")
        return self.weights.read(stored_name)


def _unchanged(state: StateDict, *_: object) -> StateDict:
    return state


def _none(*_: object) -> None:
    return None


def _empty(*_: object) -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class Architecture:
    """How Regard reads and writes the folders of one Hugging Face architecture.

    "Ours" refers to Regard's configs and tensors, "theirs" to those of the other library.
    """

    kind: str
    """The kind of ModelConfig that it represents."""
    prefix: str
    """Prefix of most tensor names, which a folder may omit."""
    ignored_patterns: tuple[str, ...]
    """Regular expressions for the names of tensors that a folder may contain but Regard does not read."""
    read_config: Callable[[dict[str, Any], str], ModelConfig]
    """Translate their `config.json` into a ModelConfig. The second argument is its path, for error messages."""
    write_config: Callable[[ModelConfig], dict[str, Any]]
    """Translate a ModelConfig into their `config.json`, or raise RegardError if they cannot represent it."""
    adapt: Callable[[ModelConfig, StateDict], tuple[ModelConfig, StateDict]]
    """Rewrite a model into an equivalent one that the rules can convert."""
    rules: Callable[[ModelConfig], list[WeightRule]]
    """The rules that map our tensors to theirs."""
    tied_copies: Callable[[ModelConfig], dict[str, str]]
    """Names of tensors that must equal another of theirs if a folder contains both, with the name of the other."""
    check_tensors: Callable[[FolderTensors, ModelConfig], None] = _none
    """Raise RegardError if a tensor that is not read shows that this is a different kind of model."""
    check_special: Callable[[ModelConfig, SpecialIds], None] = _none
    """Raise RegardError if these special ids mean something else there than in Regard."""
    reorder: Callable[[StateDict, ModelConfig], StateDict] = _unchanged
    """Reorder our tensors after the rules have been applied to a folder."""
    extra_tensors: Callable[[ModelConfig, StateDict], StateDict] = _empty
    """Tensors to write in addition to those of the rules."""
    about: Callable[[dict[str, Any], ModelConfig, FolderTensors], dict[str, Any]] = _empty
    """Metadata of a loaded model, under the keys of the `about` dictionary of a model."""
    converter_warning: Callable[[ModelConfig, SpecialIds, StateDict], str | None] = _none
    """A warning if another engine's converter would silently misread this model when it is exported."""
