"""What `regard evaluate --out` wrote of a model, in short: for the model's folder and its card."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from regard.files import read_json

Figure = dict[str, Any]
"""a name and a value; "low" and "high" of a 95 % interval and sacreBLEU's "signature", where it has them"""


def read_result(path: Path, parameters: int) -> dict[str, Any]:
    """A test set, how the model was asked, and its figures; `parameters` tell whether it was this model."""
    told = read_json(path)
    try:
        system, figures = told["system"], list(_figures(told))
        found = {"set": _set(told), "asked": _asked(system), "figures": figures}
        scored = system["parameters"]
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(
            f"{path} is not what regard evaluate --out writes ({type(error).__name__}: {error}): name such a file"
        ) from None
    if scored != parameters:
        whose = "outputs that were made elsewhere" if scored is None else f"a model of {scored:,} parameters"
        raise ValueError(f"{path} holds the scores of {whose}, and this model has {parameters:,}: score this one")
    return found


def _set(told: dict[str, Any]) -> str:
    """The test set by the name that it is known by, or its last file, with the folder that tells files apart."""
    note = told["scores"].get("note", {}) if "scores" in told else {}
    if note.get("standard"):
        return str(note["test_set"]).partition(":")[0]
    name = "/".join(Path(told["files"][-1]).parts[-2:])
    return f"{name}, {told['scores']['sentences']:,} lines" if note else name


def _asked(system: dict[str, Any]) -> str:
    """How a translator was asked."""
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in (system["decoding"] or {}).items())


def _figures(told: dict[str, Any]) -> Iterator[Figure]:
    if told["kind"] == "translation":
        for each in (told["scores"][name] for name in ("bleu", "bleu_lowercase", "chrf")):
            yield {
                "name": each["name"],
                "value": each["score"],
                "low": each["low"],
                "high": each["high"],
                "signature": each["signature"],
            }
        if told["petit"] is not None:
            yield _share("exactly right, %", told["petit"]["overall"])
        if told["alignment"] is not None:
            links = told["alignment"]["writing"]
            layer, head = links["best"]
            error = links["heads"][layer][head]["error_rate"]
            yield {"name": f"alignment error rate of layer {layer}, head {head}, the best, %", "value": 100 * error}
    elif told["kind"] == "language":
        names = {"loss": "loss, nats per token", "perplexity": "perplexity", "bits_per_byte": "bits per byte"}
        yield from ({"name": told_as, "value": told["score"][name]} for name, told_as in names.items())
    else:
        yield _share("accuracy, %", told["scores"]["accuracy"])


def _share(name: str, share: dict[str, Any]) -> Figure:
    return {"name": name, **{key: 100 * share[key] for key in ("value", "low", "high")}}
