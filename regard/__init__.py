"""Regard: the Transformer of "Attention Is All You Need", readable, trainable, fast and visible.

The names listed here and the classes of `regard.ray` are the public API; everything else may change. Each name is
imported on first use, so `import regard` and `regard --help` do not load torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.2.0"

if TYPE_CHECKING:
    from regard.config import ModelConfig as ModelConfig
    from regard.config import SpecialIds as SpecialIds
    from regard.config import preset as preset
    from regard.data.tokenizer import Tokenizer as Tokenizer
    from regard.data.tokenizer_training import train_tokenizer as train_tokenizer
    from regard.decoding.options import Decoding as Decoding
    from regard.decoding.text_model import Model as Model
    from regard.errors import RegardError as RegardError
    from regard.evaluation.evaluate import evaluate as evaluate
    from regard.interop.export import export as export
    from regard.interop.load import load as load
    from regard.model.attention import MultiHeadAttention as MultiHeadAttention
    from regard.model.attention import attention as attention
    from regard.model.attention import combine_heads as combine_heads
    from regard.model.attention import split_heads as split_heads
    from regard.model.masks import causal_mask as causal_mask
    from regard.model.masks import packed_mask as packed_mask
    from regard.model.masks import padding_mask as padding_mask
    from regard.model.masks import prefix_mask as prefix_mask
    from regard.model.transformer import Decoder as Decoder
    from regard.model.transformer import Encoder as Encoder
    from regard.model.transformer import EncoderDecoder as EncoderDecoder
    from regard.model.transformer import build as build
    from regard.model.watch import watch as watch
    from regard.training.recipe import Recipe as Recipe
    from regard.training_api import train as train

_MODULE_OF = {
    "Decoding": "regard.decoding.options",
    "Model": "regard.decoding.text_model",
    "RegardError": "regard.errors",
    "Tokenizer": "regard.data.tokenizer",
    "train_tokenizer": "regard.data.tokenizer_training",
    "load": "regard.interop.load",
    "ModelConfig": "regard.config",
    "SpecialIds": "regard.config",
    "preset": "regard.config",
    "evaluate": "regard.evaluation.evaluate",
    "export": "regard.interop.export",
    "MultiHeadAttention": "regard.model.attention",
    "attention": "regard.model.attention",
    "combine_heads": "regard.model.attention",
    "split_heads": "regard.model.attention",
    "causal_mask": "regard.model.masks",
    "packed_mask": "regard.model.masks",
    "padding_mask": "regard.model.masks",
    "prefix_mask": "regard.model.masks",
    "Decoder": "regard.model.transformer",
    "Encoder": "regard.model.transformer",
    "EncoderDecoder": "regard.model.transformer",
    "build": "regard.model.transformer",
    "watch": "regard.model.watch",
    "Recipe": "regard.training.recipe",
    "train": "regard.training_api",
}

__all__ = ["__version__", *_MODULE_OF]


def __getattr__(name: str) -> object:
    """Import a public name from the module that defines it."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
