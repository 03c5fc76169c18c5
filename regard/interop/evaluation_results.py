"""Reading the files that `regard evaluate --out` writes, for the metadata and card of an exported model."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.decoding.text_model import Model
from regard.errors import RegardError
from regard.formatting import quoted
from regard.storage.metadata import MAX_NUMBER, MetricScore, TestScores, is_number
from regard.storage.weights import weights_digest
from regard.untrusted_files import read_json

MAX_PERCENT = 100.001
"""Maximum of a score that ends at 100, with room for rounding."""
INTERVAL_BOUNDS = (-MAX_PERCENT, 2 * MAX_PERCENT)
"""Bounds of such a score's confidence interval, which may extend below 0 and above 100."""


@dataclass(frozen=True)
class EvaluationResult:
    """A model's scores on a test set, with the identity of the model."""

    path: Path
    scored: TestScores
    parameters: int | float
    weights: str
    """Digest of the model's weights."""


def read_result(path: Path) -> EvaluationResult:
    """Read a file that `regard evaluate --out` wrote; raise RegardError for any other file."""
    report = read_json(path)
    try:
        system = report["system"]
        scored = TestScores(_test_set(report), _decoding(system), tuple(_figures(report)))
        parameters, weights = system["parameters"], system.get("weights")
        if parameters is not None:
            _number(parameters)
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise RegardError(
            f"{path} was not written by regard evaluate --out ({type(error).__name__}: {error})"
        ) from None
    if parameters is None:
        raise RegardError(f"{path} contains the scores of outputs from another system: pass the scores of this model")
    if not isinstance(weights, str):
        raise RegardError(
            f"{path} was written by an older version and does not say which weights were scored: "
            "run regard evaluate MODEL ... --out again"
        )
    return EvaluationResult(path, scored, parameters, weights)


def check_results(results: Sequence[EvaluationResult], model: Model) -> None:
    """Raise RegardError if any of the scores are those of another model."""
    weights = weights_digest(model.network.state_dict()) if results else ""
    count = model.network.parameter_count
    for result in results:
        if result.weights != weights:
            scored = "other weights with" if result.parameters == count else "a model with"
            raise RegardError(
                f"{result.path} contains the scores of {scored} {result.parameters:,} parameters, but this model has "
                f"{count:,}: score this model with regard evaluate --out"
            )


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise RegardError(f"{quoted(value)} should be a string")
    return value


def _number(value: object, minimum: int | float = 0, maximum: int | float = MAX_NUMBER) -> int | float:
    if not is_number(value, minimum, maximum):
        raise RegardError(f"{quoted(value)} should be a number from {minimum:.3g} to {maximum:.3g}")
    return value


def _test_set(report: dict[str, Any]) -> str:
    """Return the name of a standard test set, or the last file of another one with its folder."""
    note = report["scores"].get("note", {}) if "scores" in report else {}
    if note.get("standard"):
        return _text(note["test_set"]).partition(":")[0]
    name = "/".join(Path(_text(report["files"][-1])).parts[-2:])
    return f"{name}, {_number(report['scores']['sentences']):,} lines" if note else name


def _decoding(system: dict[str, Any]) -> str:
    """Return the decoding options of a translator as text."""
    decoding = system["decoding"] or {}
    options = {name: value for name, value in decoding.items() if isinstance(value, str | int | float)}
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in options.items())


def _figures(report: dict[str, Any]) -> Iterator[MetricScore]:
    if report["kind"] == "translation":
        yield from (_sacrebleu_figure(report["scores"][name]) for name in ("bleu", "bleu_lowercase", "chrf"))
        if report["petit"] is not None:
            yield _percentage("exactly right, %", report["petit"]["overall"])
        if report["alignment"] is not None:
            links = report["alignment"]["writing"]
            layer, head = (int(_number(index)) for index in links["best"])
            error = 100 * _number(links["heads"][layer][head]["error_rate"], maximum=1)
            yield MetricScore(f"alignment error rate of layer {layer}, head {head}, the best, %", error)
    elif report["kind"] == "language":
        names = {"loss": "loss, nats per token", "perplexity": "perplexity", "bits_per_byte": "bits per byte"}
        values = {name: report["score"][name] for name in names}
        values |= {"perplexity": MAX_NUMBER} if values["perplexity"] is None else {}  # exp(loss) may overflow
        yield from (MetricScore(label, _number(values[name])) for name, label in names.items())
    elif report["kind"] == "classes":
        yield _percentage("accuracy, %", report["scores"]["accuracy"])
    elif report["kind"] == "tags":
        yield _percentage("accuracy, %", report["scores"]["words"]["accuracy"])
        if report["scores"]["spans"] is not None:
            yield MetricScore("F1 of spans, %", 100 * _number(report["scores"]["spans"]["f1"], maximum=1))
    else:
        raise RegardError(f"unknown kind {quoted(report['kind'])}")


def _sacrebleu_figure(report: dict[str, Any]) -> MetricScore:
    """Return a sacreBLEU score with its interval."""
    value, low = _number(report["score"], maximum=MAX_PERCENT), _number(report["low"], *INTERVAL_BOUNDS)
    high = _number(report["high"], low, INTERVAL_BOUNDS[1])
    return MetricScore(_text(report["name"]), value, low, high, _text(report["signature"]))


def _percentage(name: str, report: dict[str, Any]) -> MetricScore:
    low, value, high = (100 * _number(report[key], maximum=MAX_PERCENT / 100) for key in ("low", "value", "high"))
    return MetricScore(name, value, _number(low, maximum=high), high)
