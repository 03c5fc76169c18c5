"""The metadata of a model (`regard.Model.about`): test scores and training summary. Invalid entries are ignored,
because the folder may be untrusted."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeGuard

WHOLE_SET = re.compile(r"(, \w+)?, all [\d,]+ lines$")
"""The language and number of lines after the name of a complete test set."""
MAX_NUMBER = 1e300
"""Maximum of any number in metadata; larger ones would overflow in the next calculation."""


@dataclass(frozen=True)
class MetricScore:
    """A named score, some with a 95% confidence interval and a sacreBLEU signature."""

    name: str
    value: int | float
    low: int | float | None = None
    high: int | float | None = None
    signature: str = ""

    @property
    def text(self) -> str:
        """The value with as many decimals as are usual: three for a loss or bits per byte, and one for other scores.

        >>> MetricScore("BLEU", 63.375).text, MetricScore("loss, nats per token", 1.2345).text
        ('63.4', '1.234')
        """
        if self.value >= 1e6:
            return f"{self.value:.3g}"
        return f"{self.value:.{3 if self.name.startswith(('loss', 'bits')) else 1}f}"

    @property
    def brief(self) -> str:
        """The name without its unit, and the value.

        >>> MetricScore("loss, nats per token", 1.2345).brief
        'loss 1.234'
        """
        return f"{self.name.partition(',')[0]} {self.text}"


@dataclass(frozen=True)
class TestScores:
    """The scores of a model on one test set."""

    set: str
    asked: str
    """The decoding settings: beam, length penalty and precision."""
    figures: tuple[MetricScore, ...]
    rounded: str = ""
    """The type that the weights were rounded to after the measurement, if any."""

    @property
    def set_name(self) -> str:
        """The test set for people: without the language and number of lines if it is complete.

        >>> [TestScores(name, "", ()).set_name for name in ("Petit test, en, all 1,000 lines", "news, first 9 lines")]
        ['Petit test', 'news, first 9 lines']
        """
        return WHOLE_SET.sub("", self.set)


@dataclass(frozen=True)
class TrainingSummary:
    """The cost of a training run, from its log."""

    steps: int
    tokens: int
    """Number of target tokens in all training steps."""
    seconds: int | float
    """Training time, without validation and saving."""
    place: str
    """The device, the precision and whether the model was compiled."""
    flops: float | None = None
    """Number of floating-point operations; None if the run has not ended."""


def as_metadata(value: TestScores | TrainingSummary) -> dict[str, Any]:
    """Return a dictionary for `Model.about`, without empty values."""
    return asdict(value, dict_factory=lambda pairs: {name: item for name, item in pairs if item not in (None, "")})


def test_scores_of(about: Mapping[str, Any]) -> list[TestScores]:
    """Return a model's scores on test sets.

    >>> figures = [{"name": "BLEU", "value": 30}, {"name": "chrF", "value": "?"}]
    >>> (scores,) = test_scores_of({"tests": [1, {"set": "a", "figures": figures}]})
    >>> scores.set, [(figure.name, figure.value) for figure in scores.figures]
    ('a', [('BLEU', 30)])
    """
    return [scores for item in _list(about.get("tests")) if (scores := _test_scores(item)) is not None]


def training_summary_of(about: Mapping[str, Any]) -> TrainingSummary | None:
    """Return the summary of a model's training, if there is a valid one."""
    summary = about.get("trained")
    if not isinstance(summary, dict):
        return None
    steps, tokens, seconds = (summary.get(name) for name in ("steps", "tokens", "seconds"))
    place, flops = summary.get("place"), summary.get("flops")
    if not is_number(seconds) or not isinstance(place, str) or not is_number(steps) or not is_number(tokens):
        return None
    return TrainingSummary(round(steps), round(tokens), seconds, place, float(flops) if is_number(flops) else None)


def strings_of(about: Mapping[str, Any], name: str) -> list[str]:
    """Return the distinct strings under this name, such as languages or notes.

    >>> strings_of({"languages": ["en", "en", 3]}, "languages")
    ['en']
    """
    value = about.get(name)
    strings = [value] if isinstance(value, str) else _list(value)
    return list(dict.fromkeys(string for string in strings if isinstance(string, str) and string.strip()))


def string_of(about: Mapping[str, Any], name: str) -> str:
    """Return the string under this name, or an empty one."""
    value = about.get(name)
    return value.strip() if isinstance(value, str) else ""


def is_number(value: object, minimum: int | float = 0, maximum: int | float = MAX_NUMBER) -> TypeGuard[int | float]:
    """Return whether this is a number within these bounds.

    >>> [is_number(value) for value in (3, 0.5, -1, True, "3", float("nan"), 10**400, None)]
    [True, True, False, False, False, False, False, False]
    """
    return isinstance(value, int | float) and not isinstance(value, bool) and minimum <= value <= maximum


def _list(value: object) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def _test_scores(entry: object) -> TestScores | None:
    if not isinstance(entry, dict):
        return None
    figures = [score for item in _list(entry.get("figures")) if (score := _metric_score(item)) is not None]
    name, asked, rounded = (string_of(entry, key) for key in ("set", "asked", "rounded"))
    return TestScores(name, asked, tuple(figures), rounded) if name and figures else None


def _metric_score(entry: object) -> MetricScore | None:
    if not isinstance(entry, dict):
        return None
    name, value, low, high = string_of(entry, "name"), *(entry.get(key) for key in ("value", "low", "high"))
    if not name or not is_number(value):
        return None
    if not is_number(low, -MAX_NUMBER) or not is_number(high, low):
        low = high = None
    return MetricScore(name, value, low, high, string_of(entry, "signature"))
