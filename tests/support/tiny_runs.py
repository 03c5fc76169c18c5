"""Make the runs of examples and notebooks tiny: the same calls, but with a small model and little data."""

from collections.abc import Callable
from typing import Any

import pytest

import regard

TINY = {
    "tokenizer.vocab_size": 320,
    "model.d_model": 16,
    "model.heads": 2,
    "model.layers": 1,
    "model.d_ff": 32,
    "train.batch_tokens": 200,
    "train.validation_sentences": 4,
    "train.max_length": 64,
    "decode.beam": 1,
    "decode.max_tokens": 2,
}
PETIT_PAIRS = 200


def make_runs_tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add settings to all calls of `regard.train`, so that a run takes a second."""
    monkeypatch.setattr(regard, "train", tiny_training(regard.train))


def tiny_training(train: Callable[..., Any]) -> Callable[..., Any]:
    def train_tiny(recipe: str, out: str, *, overrides: dict[str, Any], **options: Any) -> Any:
        settings = overrides | TINY
        if "tokenizer.path" in overrides:
            del settings["tokenizer.vocab_size"]
        if recipe.startswith("petit"):
            settings["data.petit"] = PETIT_PAIRS
        return train(recipe, out, overrides=settings, progress=False, **options)

    return train_tiny
