"""What `regard evaluate --out` wrote of a model, in short: for the model's folder and its card."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.decoding.text_model import Model
from regard.errors import RegardError
from regard.formatting import quoted
from regard.storage.metadata import MOST, Figure, Scored, is_number
from regard.storage.weights import weights_digest
from regard.untrusted_files import read_json

PERCENT = 100.001
"""the most of a score that ends with 100, with room for rounding"""
SPREAD = (-PERCENT, 2 * PERCENT)
"""between which its interval lies: half the spread of resamples on either side of their mean may lead beyond"""


@dataclass(frozen=True)
class Result:
    """A model's scores on a test set, and which model that was."""

    path: Path
    scored: Scored
    parameters: int | float
    weights: str
    """their digest"""


def read_result(path: Path) -> Result:
    """A file of `regard evaluate --out`; a ValueError says what is wrong with another."""
    told = read_json(path)
    try:
        system, scored = told["system"], Scored(_set(told), _asked(told["system"]), tuple(_figures(told)))
        parameters, weights = system["parameters"], system.get("weights")
        if parameters is not None:
            _number(parameters)
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise RegardError(
            f"{path} is not what regard evaluate --out writes ({type(error).__name__}: {error}): name such a file"
        ) from None
    if parameters is None:
        raise RegardError(f"{path} holds the scores of outputs that were made elsewhere: name those of this model")
    if not isinstance(weights, str):
        raise RegardError(
            f"{path} does not tell which weights were scored, as an older Regard wrote it: "
            "regard evaluate MODEL ... --out writes it anew"
        )
    return Result(path, scored, parameters, weights)


def check_results(results: Sequence[Result], model: Model) -> None:
    """A ValueError for scores of another model."""
    weights = weights_digest(model.network.state_dict()) if results else ""
    count = sum(parameter.numel() for parameter in model.network.parameters())
    for result in results:
        if result.weights != weights:
            same = "other weights of as many" if result.parameters == count else f"a model of {result.parameters:,}"
            raise RegardError(
                f"{result.path} holds the scores of {same} parameters, and this model has {count:,}: score this one "
                "with regard evaluate --out"
            )


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise RegardError(f"{quoted(value)} should be a text")
    return value


def _number(value: object, least: int | float = 0, most: int | float = MOST) -> int | float:
    if not is_number(value, least, most):
        raise RegardError(f"{quoted(value)} should be a number from {least:.3g} to {most:.3g}")
    return value


def _set(told: dict[str, Any]) -> str:
    """The test set by the name that it is known by, or its last file, with the folder that tells files apart."""
    note = told["scores"].get("note", {}) if "scores" in told else {}
    if note.get("standard"):
        return _text(note["test_set"]).partition(":")[0]
    name = "/".join(Path(_text(told["files"][-1])).parts[-2:])
    return f"{name}, {_number(told['scores']['sentences']):,} lines" if note else name


def _asked(system: dict[str, Any]) -> str:
    """How a translator was asked."""
    asked = {name: value for name, value in (system["decoding"] or {}).items() if isinstance(value, str | int | float)}
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in asked.items())


def _figures(told: dict[str, Any]) -> Iterator[Figure]:
    if told["kind"] == "translation":
        yield from (_within(told["scores"][name]) for name in ("bleu", "bleu_lowercase", "chrf"))
        if told["petit"] is not None:
            yield _share("exactly right, %", told["petit"]["overall"])
        if told["alignment"] is not None:
            links = told["alignment"]["writing"]
            layer, head = (int(_number(each)) for each in links["best"])
            error = 100 * _number(links["heads"][layer][head]["error_rate"], most=1)
            yield Figure(f"alignment error rate of layer {layer}, head {head}, the best, %", error)
    elif told["kind"] == "language":
        names = {"loss": "loss, nats per token", "perplexity": "perplexity", "bits_per_byte": "bits per byte"}
        known = {name: told["score"][name] for name in names}
        known |= {"perplexity": MOST} if known["perplexity"] is None else {}  # e to the loss, which may overflow
        yield from (Figure(told_as, _number(known[name])) for name, told_as in names.items())
    elif told["kind"] == "classes":
        yield _share("accuracy, %", told["scores"]["accuracy"])
    else:
        raise RegardError(f"kind {quoted(told['kind'])}")


def _within(told: dict[str, Any]) -> Figure:
    """A score of sacreBLEU's."""
    value, low = _number(told["score"], most=PERCENT), _number(told["low"], *SPREAD)
    high = _number(told["high"], low, SPREAD[1])
    return Figure(_text(told["name"]), value, low, high, _text(told["signature"]))


def _share(name: str, told: dict[str, Any]) -> Figure:
    low, value, high = (100 * _number(told[key], most=PERCENT / 100) for key in ("low", "value", "high"))
    return Figure(name, value, _number(low, most=high), high)
