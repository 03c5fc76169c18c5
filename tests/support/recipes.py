"""Recipes of short training runs."""

from typing import Any

from regard.decoding.options import Decoding
from regard.training.recipe import DataSection, Recipe, TokenizerSection, TrainSection

PETIT_PAIRS = 300

COMMON_TOML = """
[tokenizer]
vocab_size = 320
[train]
steps = 14
batch_tokens = 150
max_length = 64
accumulate = 2
average = 3
lr = 1e-2
warmup = 3
validate_every = 3
validation_sentences = 0
checkpoint_every = 4
log_every = 3
device = "cpu"
[decode]
beam = 1
max_tokens = 2
"""
RECIPES_TOML = {
    "translation": """
[data]
train = { files = ["train.fr", "train.en"] }
validation = { files = ["dev.fr", "dev.en"] }
[model]
d_model = 16
heads = 2
layers = 1
d_ff = 32
dropout = 0.1
""",
    "language": """
[data]
task = "language"
train = { files = ["train.fr"] }
validation = { files = ["dev.fr"] }
[model]
kind = "decoder"
d_model = 16
heads = 2
layers = 1
d_ff = 32
dropout = 0.1
positions = "rotary"
""",
}

TASK_MODELS: dict[str, dict[str, Any]] = {
    "encoder-decoder": {"task": "translation"},
    "decoder": {"task": "translation", "kind": "decoder", "prefix": True, "positions": "rotary"},
    "language": {"task": "language", "kind": "decoder", "positions": "rotary"},
    "classification": {"task": "classification", "kind": "encoder"},
    "masked": {"task": "masked", "kind": "encoder"},
}
LEARNING_RATES = {"classification": 2e-3}
SMALL_SIZES = {"d_model": 32, "heads": 2, "layers": 1, "d_ff": 64, "dropout": 0.0, "norm": "pre"}
QUICK_TRAINING: dict[str, Any] = {
    "steps": 60,
    "batch_tokens": 500,
    "max_length": 128,
    "schedule": "constant",
    "warmup": 5,
    "validate_every": 30,
    "validation_sentences": 12,
    "checkpoint_every": 60,
    "log_every": 10,
    "device": "cpu",
}


def small_recipe(which: str = "encoder-decoder", data: DataSection | None = None, **settings: Any) -> Recipe:
    """Return the recipe of a short run on Petit, or on `data`, for one of TASK_MODELS."""
    model = dict(TASK_MODELS[which])
    task = model.pop("task")
    return Recipe(
        name=f"a {which}",
        data=data or DataSection(petit=PETIT_PAIRS, task=task),
        tokenizer=TokenizerSection(vocab_size=320),
        model=SMALL_SIZES | model,
        train=TrainSection(**QUICK_TRAINING | {"lr": LEARNING_RATES.get(which, 5e-3)} | settings),
        decode=Decoding(beam=2),
    )
