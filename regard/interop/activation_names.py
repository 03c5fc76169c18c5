"""What the libraries call the same non-linearity."""

from typing import Any

from regard.config import ModelConfig, did_you_mean
from regard.errors import RegardError

ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "silu": "silu",
    "swish": "silu",
}


def activation_in(theirs: str, where: str) -> Any:
    """Our name of their activation."""
    if theirs not in ACTIVATIONS:
        raise RegardError(f"{where}: the activation {theirs!r} is not Regard's: {did_you_mean(theirs, ACTIVATIONS)}")
    return ACTIVATIONS[theirs]


def activation_out(config: ModelConfig, what: str) -> str:
    """Their name of the model's activation."""
    for theirs, ours in ACTIVATIONS.items():
        if ours == config.activation:
            return theirs
    raise RegardError(f"this model cannot be written as {what}: its feed-forward networks are {config.activation}")
