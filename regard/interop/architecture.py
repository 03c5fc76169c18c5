"""What Regard must know of another library's architecture to read its folders and to write them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from regard.config import ModelConfig, SpecialIds
from regard.errors import RegardError
from regard.interop.weight_rules import Rule, State
from regard.storage.weights import Entry, Weights


@dataclass(frozen=True)
class Held:
    """The tensors of a folder by their full names, however the folder spells them."""

    weights: Weights
    base: str
    """what a folder may leave out before a name"""

    def spelled(self, name: str) -> str | None:
        """The name under which the folder holds it: the full one, one without the base's name, or an older one."""
        older = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        options = (name, name.removeprefix(self.base), older, older.removeprefix(self.base))
        return next((option for option in options if option in self.weights.entries), None)

    def entry(self, name: str) -> Entry | None:
        """Its type and shape, if it is there."""
        spelled = self.spelled(name)
        return None if spelled is None else self.weights.entries[spelled]

    def read(self, name: str) -> Tensor:
        """The tensor, which must be there."""
        spelled = self.spelled(name)
        if spelled is None:
            raise RegardError(f"{self.weights.where} has no tensor {name}, which its config asks for")
        return self.weights.read(spelled)


def _as_it_is(state: State, *_: object) -> State:
    return state


def _nothing(*_: object) -> None:
    return None


def _no_more(*_: object) -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class Shape:
    """An architecture of theirs."""

    base: str
    """what the names of most tensors begin with"""
    ignored: tuple[str, ...]
    """patterns of names that a folder may hold and Regard need not read"""
    read_config: Callable[[dict[str, Any], str], ModelConfig]
    """our config, from what their `config.json` tells; its path is for messages"""
    write_config: Callable[[ModelConfig], dict[str, Any]]
    """their `config.json`; a ValueError says what they have not"""
    adapt: Callable[[ModelConfig, State], tuple[ModelConfig, State]]
    """the same model in their terms, ready for the rules"""
    rules: Callable[[ModelConfig], list[Rule]]
    """which tensor is which"""
    copies: Callable[[ModelConfig], dict[str, str]]
    """their tensors that must be the same as another of theirs, where a folder holds both"""
    check: Callable[[Held, ModelConfig], None] = _nothing
    """a ValueError if a tensor that is not read says that this is another model"""
    arrange: Callable[[State, ModelConfig], State] = _as_it_is
    """what rules cannot do on the way in"""
    more: Callable[[ModelConfig, State], State] = _no_more
    """tensors to be written beside those of the rules"""
    about: Callable[[dict[str, Any], ModelConfig, Held], dict[str, Any]] = _no_more
    """what a user should know of a loaded model, by the names of `Model.about`"""
    trap: Callable[[ModelConfig, SpecialIds, State], str | None] = _nothing
    """what another engine would get wrong about this model of ours"""
