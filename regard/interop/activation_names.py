"""Activation functions by the names that other libraries give them."""

from typing import Any

from regard.config import ModelConfig, did_you_mean
from regard.errors import RegardError

HUGGINGFACE_ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "silu": "silu",
    "swish": "silu",
}
"""Regard's name of each activation, by its name in Hugging Face."""


def regard_activation(name: str, where: str) -> Any:
    """Return Regard's name of a Hugging Face activation; `where` is the path for the error message."""
    if name not in HUGGINGFACE_ACTIVATIONS:
        raise RegardError(
            f"{where}: Regard does not support the activation {name!r}: {did_you_mean(name, HUGGINGFACE_ACTIVATIONS)}"
        )
    return HUGGINGFACE_ACTIVATIONS[name]


def huggingface_activation(config: ModelConfig, architecture: str) -> str:
    """Return the Hugging Face name of a model's activation."""
    for name, regard_name in HUGGINGFACE_ACTIVATIONS.items():
        if regard_name == config.activation:
            return name
    raise RegardError(
        f"this model cannot be exported as {architecture}, which has no {config.activation} feed-forward networks"
    )
