"""Load the model that a command was given."""

import re
from typing import Any

from regard.errors import RegardError
from regard.models import bundled_folder, bundled_translator

MAX_ONE_THREAD_PARAMETERS = 50_000_000
"""Size up to which a model decodes a few texts on one thread; matrices of larger ones are worth sharing."""


def load_model(name: str, device: str, few: bool = False) -> Any:
    """The `regard.Model` of this name, on the device that --device names.

    With `few` texts to decode, a small model is loaded and run on one thread: where another process uses a core, most
    operations would wait longer for the second thread than they take.
    """
    import torch

    from regard.interop.load import load

    device = check_device(device)
    threads = torch.get_num_threads()
    if few:
        torch.set_num_threads(1)
    model = load(name, device)
    if model.network.parameter_count > MAX_ONE_THREAD_PARAMETERS:
        torch.set_num_threads(threads)
    return model


def check_device(device: str) -> str:
    """The device that --device names, with auto resolved; a RegardError if there is no such device."""
    import torch

    from regard.config import did_you_mean

    choices = ("auto", "cpu", "cuda")
    if device not in choices and not re.fullmatch(r"cuda:\d+", device):
        raise RegardError(f"--device {device} is not a valid choice: {did_you_mean(device, choices)}")
    has_gpu = torch.cuda.is_available()
    if device.startswith("cuda") and not has_gpu:
        raise RegardError(f"--device {device}: torch finds no GPU on this machine; use cpu")
    if device == "auto":
        return "cuda" if has_gpu else "cpu"
    return device


def check_model_is_named(model: str, kind: str, recipe: str) -> None:
    """Raise a RegardError if --model was not given to a command that has no default, with a recipe for such a model."""
    if not model:
        raise RegardError(
            f"--model is missing, and no {kind} is bundled: train one with regard train {recipe}, which takes minutes, "
            f"and pass --model runs/{recipe}"
        )


def for_languages(model: Any, source: str | None, target: str | None) -> Any:
    """The model for the languages of --from and --to; a RegardError if a multilingual model has no target language."""
    chosen = model.for_languages(source, target)
    chosen.require_target_language("--to")
    return chosen


def default_model(source: str | None = None, target: str | None = None) -> str:
    """Path of the bundled translator for the languages of --from and --to.

    A folder of the same name in the working directory does not shadow it.
    """
    return str(bundled_folder(bundled_translator(source, target)))
