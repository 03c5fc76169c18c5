"""What a model tells of itself in `Model.about`, as far as it can be understood: its folder may come from anyone."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeGuard

MOST = 1e300
"""of any number: larger ones are slips, and become infinite at once"""


@dataclass(frozen=True)
class Figure:
    """A score with its name; of some also a 95 % interval, and sacreBLEU's signature."""

    name: str
    value: int | float
    low: int | float | None = None
    high: int | float | None = None
    signature: str = ""


@dataclass(frozen=True)
class Scored:
    """A model's figures on a test set."""

    set: str
    asked: str
    """how a translator was asked: its beam, length penalty and precision"""
    figures: tuple[Figure, ...]
    rounded: str = ""
    """the type that its weights were rounded to since, if they were"""


@dataclass(frozen=True)
class Trained:
    """What a training took, as its log tells."""

    steps: int
    tokens: int
    """target tokens that were learned from, each as often as it came"""
    seconds: int | float
    """validating and saving left out"""
    place: str
    """device, precision and whether it was compiled"""
    flops: float | None = None
    """floating-point operations, counted; None of a run that has not ended"""


def as_told(value: Scored | Trained) -> dict[str, Any]:
    """The same for `Model.about`; what is not known is left out."""
    return asdict(value, dict_factory=lambda pairs: {name: each for name, each in pairs if each not in (None, "")})


def tests_of(about: Mapping[str, Any]) -> list[Scored]:
    """A model's scores on test sets.

    >>> figures = [{"name": "BLEU", "value": 30}, {"name": "chrF", "value": "?"}]
    >>> tests_of({"tests": [1, {"set": "a", "figures": figures}]})
    [Scored(set='a', asked='', figures=(Figure(name='BLEU', value=30, low=None, high=None, signature=''),), rounded='')]
    """
    return [found for each in _list(about.get("tests")) if (found := _scored(each)) is not None]


def trained_of(about: Mapping[str, Any]) -> Trained | None:
    """What a model's training took."""
    told = about.get("trained")
    if not isinstance(told, dict):
        return None
    steps, tokens, seconds = (told.get(name) for name in ("steps", "tokens", "seconds"))
    place, flops = told.get("place"), told.get("flops")
    if not is_number(seconds) or not isinstance(place, str) or not is_number(steps) or not is_number(tokens):
        return None
    return Trained(round(steps), round(tokens), seconds, place, float(flops) if is_number(flops) else None)


def texts_of(about: Mapping[str, Any], name: str) -> list[str]:
    """The texts of this name, each once: languages, or notes.

    >>> texts_of({"languages": ["en", "en", 3]}, "languages")
    ['en']
    """
    told = about.get(name)
    listed = [told] if isinstance(told, str) else _list(told)
    return list(dict.fromkeys(each for each in listed if isinstance(each, str) and each.strip()))


def text_of(about: Mapping[str, Any], name: str) -> str:
    """The text of this name; an empty one if there is none."""
    found = about.get(name)
    return found.strip() if isinstance(found, str) else ""


def is_number(value: object, least: int | float = 0, most: int | float = MOST) -> TypeGuard[int | float]:
    """Whether this is a number within these bounds.

    >>> [is_number(each) for each in (3, 0.5, -1, True, "3", float("nan"), 10**400, None)]
    [True, True, False, False, False, False, False, False]
    """
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most


def _list(value: object) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def _scored(told: object) -> Scored | None:
    if not isinstance(told, dict):
        return None
    figures = [found for each in _list(told.get("figures")) if (found := _figure(each)) is not None]
    name, asked, rounded = (text_of(told, key) for key in ("set", "asked", "rounded"))
    return Scored(name, asked, tuple(figures), rounded) if name and figures else None


def _figure(told: object) -> Figure | None:
    if not isinstance(told, dict):
        return None
    name, value, low, high = text_of(told, "name"), *(told.get(key) for key in ("value", "low", "high"))
    if not name or not is_number(value):
        return None
    if not is_number(low, -MOST) or not is_number(high, low):
        low = high = None
    return Figure(name, value, low, high, text_of(told, "signature"))
