"""The models that the server was started with, by name."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from regard.config import did_you_mean
from regard.decoding.capabilities import TextTask
from regard.decoding.engine_choice import quick_copy
from regard.decoding.text_model import Model
from regard.errors import RegardError
from regard.models import BUNDLED_MODELS, bundled_folder, bundled_models
from regard.server.engine import Engine
from regard.server.http_errors import HttpError
from regard.server.prefix_cache import PrefixCache
from regard.storage.metadata import string_of, strings_of, test_scores_of

ABILITIES: dict[TextTask, str] = {
    "classify": "classifies texts",
    "tag": "tags words",
    "fill": "fills masks",
    "embed": "embeds texts",
}
"""A verb phrase for each task that the page and the APIs offer for models of any kind."""
MODEL_NAME = re.compile(r"[\w][\w.-]{0,63}", re.ASCII)


@dataclass(frozen=True)
class ServedModel:
    """A model, its name and its engine."""

    name: str
    model: Model
    """The model as it was loaded. Attention is read from this one."""
    engine: Engine
    """The engine of a model that generates text works on a copy that is optimized for decoding."""
    prefix_cache: PrefixCache = field(default_factory=PrefixCache)
    """Keys and values of texts whose next token was requested."""

    @property
    def generates(self) -> bool:
        """Whether the model is a language model."""
        return self.model.can("generate") and not self.model.config.prefix

    @property
    def translates(self) -> bool:
        """Whether the model is a translator."""
        return self.model.can("translate")

    @property
    def abilities(self) -> dict[TextTask, str]:
        """What the model can do with a text besides translating and generating, in words."""
        return {task: ability for task, ability in ABILITIES.items() if self.model.can(task)}

    @property
    def languages(self) -> tuple[str, str] | None:
        """The source and target language of a translator, if its metadata names them."""
        languages = strings_of(self.model.about, "languages")
        return (languages[0], languages[1]) if self.translates and len(languages) == 2 else None

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        return self.model.network.parameter_count

    @property
    def summary(self) -> str:
        """The languages and the first score of the model, in one line; without a score, where it comes from."""
        about = self.model.about
        languages = " → ".join(strings_of(about, "languages"))
        scores = [f"{test.figures[0].brief} on {test.set_name}" for test in test_scores_of(about)[:1]]
        return "; ".join(filter(None, [languages, *(scores or [string_of(about, "origin")])]))


class ModelRegistry:
    """The served models, in the order of the command line. The first suitable one is the default of a request."""

    def __init__(self, models: Iterable[ServedModel]) -> None:
        self.by_name: Mapping[str, ServedModel] = {served.name: served for served in models}

    def start(self) -> None:
        """Start all engines."""
        for served in self.by_name.values():
            served.engine.start()

    def stop(self) -> None:
        """Stop all engines at the next token. Open requests fail."""
        for served in self.by_name.values():
            served.engine.stop()

    def join(self) -> None:
        """Wait briefly for all engines to end."""
        for served in self.by_name.values():
            served.engine.join()

    def find(self, name: str) -> ServedModel:
        """The model of this name. An HttpError if there is none."""
        if name not in self.by_name:
            raise _not_found(f"there is no model of this name: {did_you_mean(name, self.by_name)}")
        return self.by_name[name]

    def first(self, name: str | None) -> ServedModel:
        """The model of this name, or the first model if no name is given."""
        return self._choose(name, lambda _: True, "can be inspected")

    def translator(self, name: str | None) -> ServedModel:
        """The translator of this name, or the first translator if no name is given."""
        return self._choose(name, lambda served: served.translates, "translates")

    def language_model(self, name: str | None) -> ServedModel:
        """The language model of this name, or the first language model if no name is given."""
        return self._choose(name, lambda served: served.generates, "generates text")

    def for_task(self, task: TextTask, name: str | None) -> ServedModel:
        """The model of this name, or the first model if no name is given, that can do a task."""
        return self._choose(name, lambda served: served.model.can(task), ABILITIES[task])

    def _choose(self, name: str | None, is_suitable: Callable[[ServedModel], bool], ability: str) -> ServedModel:
        suitable = [served for served in self.by_name.values() if is_suitable(served)]
        if name is None and suitable:
            return suitable[0]
        if name is None:
            raise _not_found(f"this server has no model that {ability}")
        served = self.find(name)
        if not is_suitable(served):
            names = ", ".join(other.name for other in suitable)
            advice = f"use {names}" if names else f"this server has no model that {ability}"
            raise _not_found(f"{name} is {served.model.config.kind_with_article}, not a model that {ability}: {advice}")
        return served

    def language_pairs(self) -> dict[tuple[str, str], ServedModel]:
        """The first translator for each pair of source and target language."""
        pairs: dict[tuple[str, str], ServedModel] = {}
        for served in self.by_name.values():
            if served.languages is not None:
                pairs.setdefault(served.languages, served)
        return pairs


def _not_found(message: str) -> HttpError:
    return HttpError(404, message, code="model_not_found")


def parse_model_arguments(arguments: Iterable[str]) -> dict[str, str]:
    """Map names to paths from arguments such as `runs/mine` or `NAME=PATH`. Without any, the bundled models.

    >>> parse_model_arguments(["runs/mine", "shakespeare=runs/7"])
    {'mine': 'runs/mine', 'shakespeare': 'runs/7'}
    """
    paths: dict[str, str] = {}
    for argument in arguments:
        name, equals, path = argument.partition("=")
        if not equals:
            name, path = Path(argument).resolve().name.removesuffix(".gguf"), argument
        if not MODEL_NAME.fullmatch(name):
            raise RegardError(
                f"{name!r} is not a valid model name: use letters, digits, dots and dashes, as in NAME={path}"
            )
        if name in paths:
            raise RegardError(f"two models are called {name}: give one of them another name, as in other={path}")
        paths[name] = path
    return paths or {name: str(bundled_folder(name)) for name in dict.fromkeys([*BUNDLED_MODELS, *bundled_models()])}


def build_registry(
    models: Mapping[str, Model],
    precision: Any = "auto",
    engine: Any = "auto",
    describe: Callable[[str], object] = lambda _: None,
) -> ModelRegistry:
    """A registry of these models, each with an engine. One processor is left to the event loop.

    `describe` is called with a sentence for each model that decodes: with what it does.
    """
    threads = max(1, torch.get_num_threads() - 1)
    served = []
    for name, model in models.items():
        copy, description = _for_decoding(model, precision, engine)
        if description:
            describe(f"{name}: {description}")
        served.append(ServedModel(name, model, Engine(copy, threads)))
    return ModelRegistry(served)


def _for_decoding(model: Model, precision: Any, engine: Any) -> tuple[Model, str]:
    """The copy that decodes and a description of it; the model itself and nothing if it does not decode."""
    if model.tokenizer is None:
        raise RegardError("this model has no tokenizer and cannot be served: the server receives text, not token ids")
    if not (model.can("translate") or model.can("generate")):
        return model, ""
    is_pair = model.config.kind == "encoder-decoder"
    return quick_copy(model, precision, engine if is_pair or engine != "ctranslate2" else "auto")
