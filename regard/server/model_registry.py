"""Which models are served, and by what name: those that the server was started with, and no others."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from regard.config import did_you_mean
from regard.decoding.text_model import Model
from regard.errors import RegardError
from regard.models import SHIPPED, folder_of
from regard.server.engine import Engine
from regard.server.http_errors import Refusal
from regard.server.prefix_cache import Prefixes
from regard.storage.metadata import text_of, texts_of

NAME = re.compile(r"[\w][\w.-]{0,63}", re.ASCII)


@dataclass(frozen=True)
class Served:
    """A model under its name, with the thread that decodes."""

    name: str
    model: Model
    """as it was loaded: what is looked into"""
    engine: Engine
    """works on a copy made for decoding"""
    prefixes: Prefixes = field(default_factory=Prefixes)
    """what was computed of texts whose next token was asked for"""

    @property
    def writes(self) -> bool:
        """Whether it continues texts."""
        return self.model.can("generate") and not self.model.config.prefix

    @property
    def translates(self) -> bool:
        """Whether it turns a text into another."""
        return self.model.can("translate")

    @property
    def languages(self) -> tuple[str, str] | None:
        """From which to which it translates, if it tells."""
        told = texts_of(self.model.about, "languages")
        return (told[0], told[1]) if self.translates and len(told) == 2 else None

    def told(self) -> dict[str, Any]:
        """What it is, for the page."""
        source, target = self.languages or (None, None)
        config = self.model.config
        return {
            "name": self.name,
            "kind": config.kind,
            "translates": self.translates,
            "writes": self.writes,
            "source": source,
            "target": target,
            "parameters": sum(each.numel() for each in self.model.network.parameters()),
            "layers": config.layers,
            "heads": config.heads,
            "about": _about(self.model.about),
        }


class Shelf:
    """The served models, in the order in which they were named: the first that can do what is asked does it."""

    def __init__(self, served: Iterable[Served]) -> None:
        self.by_name: Mapping[str, Served] = {each.name: each for each in served}

    def start(self) -> None:
        """Have all threads begin."""
        for each in self.by_name.values():
            each.engine.start()

    def end(self) -> None:
        """Have all threads end at the next token; whoever waits for one is refused."""
        for each in self.by_name.values():
            each.engine.end()

    def join(self) -> None:
        """Wait for the threads' end, for a moment."""
        for each in self.by_name.values():
            each.engine.join()

    def choose(self, name: str | None, able: Callable[[Served], bool], ability: str) -> Served:
        """The model of this name or, without one, the first; a Refusal if it is not there or not able."""
        if name is None:
            found = next(filter(able, self.by_name.values()), None)
            if found is None:
                raise Refusal(404, f"no model that {ability} is served here", code="model_not_found")
            return found
        if name not in self.by_name:
            raise Refusal(
                404, f"no model of this name is served: {did_you_mean(name, self.by_name)}", code="model_not_found"
            )
        if not able(self.by_name[name]):
            others = [each.name for each in self.by_name.values() if able(each)]
            instead = f"{', '.join(others)} can" if others else f"no model that {ability} is served here"
            kind = self.by_name[name].model.config.kind
            raise Refusal(404, f"{name} is an {kind} and not a model that {ability}: {instead}", code="model_not_found")
        return self.by_name[name]

    def translator(self, name: str | None) -> Served:
        """The translator of this name, or the first."""
        return self.choose(name, lambda each: each.translates, "translates")

    def writer(self, name: str | None) -> Served:
        """The language model of this name, or the first."""
        return self.choose(name, lambda each: each.writes, "writes")

    def pairs(self) -> dict[tuple[str, str], Served]:
        """The first translator for each pair of languages."""
        found: dict[tuple[str, str], Served] = {}
        for each in self.by_name.values():
            if each.languages is not None:
                found.setdefault(each.languages, each)
        return found


def named(given: Iterable[str]) -> dict[str, str]:
    """Names and where their models lie, from arguments such as `runs/mine` or `NAME=FOLDER`; the bundled ones if none.

    >>> named(["runs/mine", "shakespeare=runs/7"])
    {'mine': 'runs/mine', 'shakespeare': 'runs/7'}
    """
    found: dict[str, str] = {}
    for each in given:
        name, equals, place = each.partition("=")
        if not equals:
            name, place = Path(each).resolve().name.removesuffix(".gguf"), each
        if not NAME.fullmatch(name):
            raise RegardError(f"{name!r} is no name for a model: letters, digits, dots and dashes, as in NAME=FOLDER")
        if name in found:
            raise RegardError(f"two models are called {name}: give one another name, as in other={place}")
        found[name] = place
    return found or {name: str(folder_of(name)) for name in SHIPPED}


def shelf(models: Mapping[str, Model], precision: Any = "auto") -> Shelf:
    """These models, each with its engine; a processor is left to the event loop, so that /health need not wait."""
    threads = max(1, torch.get_num_threads() - 1)
    return Shelf(Served(name, model, _engine(model, threads, precision)) for name, model in models.items())


def _engine(model: Model, threads: int, precision: Any) -> Engine:
    if model.tokenizer is None:
        raise RegardError("this model has no tokenizer, and cannot be served: nobody sends ids")
    if not (model.can("translate") or model.can("generate")):
        raise RegardError(
            f"this model is an {model.config.kind} that writes nothing: regard attend shows what it looks at"
        )
    return Engine(model.quick(precision), threads)


def _about(told: Mapping[str, Any]) -> str:
    """In a line: what it is, and its first score."""
    from regard.storage.metadata import tests_of

    languages = " → ".join(texts_of(told, "languages"))
    scores = [f"{test.figures[0].name} {test.figures[0].value:.1f} on {test.set}" for test in tests_of(told)[:1]]
    return "; ".join(filter(None, [languages, text_of(told, "origin"), *scores]))
