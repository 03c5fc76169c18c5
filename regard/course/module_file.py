"""A student's file in a real training: which of its names is trained, and how it takes the place of Regard's part.

| the file defines | it is trained as |
|---|---|
| make_model(src_vocab, tgt_vocab, N, d_model, d_ff, h, dropout), see The Annotated Transformer | the encoder-decoder |
| DecoderLM(vocab, width, heads, layers, max_length) | the decoder |
| MultiHeadAttention | every attention of Regard's network |
| MultiHeadSelfAttention | every causal self-attention of Regard's network |

An attention must pass `regard check`, because Regard's weights are trained through it. A complete model may be any: it
is checked as `regard.train(network=...)` does. The file runs in this process.
"""

import inspect
import sys
import traceback
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from regard.config import ModelConfig
from regard.course.own_attention import (
    ATTENTION_ASSIGNMENTS,
    install_attention,
    install_self_attention,
    require_passed_check,
)
from regard.course.solution_file import Solution, read_solution
from regard.decoding.own_network import OwnNetwork
from regard.errors import RegardError
from regard.model.transformer import Network
from regard.training.own_modules import own_network, recipe_for_own_network
from regard.training.own_network_check import check_own_network
from regard.training.recipe import Recipe
from regard.training.run_setup import NetworkChange

WHOLE_MODELS = {"make_model": "encoder-decoder", "DecoderLM": "decoder"}
"""Names of complete models, with the kind of model that each is."""
SIZES: dict[str, Callable[[ModelConfig], Any]] = {
    "vocab": lambda config: config.vocab_size,
    "vocab_size": lambda config: config.vocab_size,
    "src_vocab": lambda config: config.vocab_size,
    "tgt_vocab": lambda config: config.output_vocab_size,
    "width": lambda config: config.d_model,
    "d_model": lambda config: config.d_model,
    "d_ff": lambda config: config.d_ff,
    "heads": lambda config: config.heads,
    "num_heads": lambda config: config.heads,
    "h": lambda config: config.heads,
    "layers": lambda config: config.layers,
    "num_layers": lambda config: config.layers,
    "N": lambda config: config.layers,
    "max_length": lambda config: config.max_length,
    "max_len": lambda config: config.max_length,
    "context_length": lambda config: config.max_length,
    "dropout": lambda config: config.dropout,
}
"""Parameters of a complete model that are set to the recipe's sizes, by name."""


@dataclass(frozen=True)
class StudentModule:
    """What is trained of a student's file, and with which recipe."""

    path: Path
    name: str
    """The name in the file that is trained."""
    recipe: Recipe
    """The recipe, with settings that suit the student's code."""
    change_network: NetworkChange
    """Puts the student's code into a network of Regard's, or in its place."""

    @property
    def is_whole_model(self) -> bool:
        """Whether it is a complete model, whose initial weights differ from those of Regard's network."""
        return self.name in WHOLE_MODELS

    def try_out(self, network: Network) -> Network:
        """Try the student's code with a copy of the network, which is returned unchanged; a RegardError if it fails."""
        changed = self.change_network(deepcopy(network))
        if isinstance(changed, OwnNetwork):
            check_own_network(changed)
        return network


def load_student_module(path: Path, recipe: Recipe) -> StudentModule:
    """What is trained of a file, which is checked and run; a RegardError that says what to change if it cannot be."""
    solution = read_solution(path)
    name = _trained_name(solution, path)
    recipe = _prepared(recipe, name)
    if name in ATTENTION_ASSIGNMENTS:
        require_passed_check(path, ATTENTION_ASSIGNMENTS[name])
    else:
        _check_kind(name, recipe, path)
    defined = getattr(_import_solution(solution, path), name)
    if not callable(defined):
        raise RegardError(f"{path} defines {name} as a {type(defined).__name__}: it must be a class or a function")
    if name == "MultiHeadAttention":
        return StudentModule(path, name, recipe, lambda network: install_attention(defined, network))
    if name == "MultiHeadSelfAttention":
        return StudentModule(path, name, recipe, lambda network: install_self_attention(defined, network))

    def build_module(config: ModelConfig) -> nn.Module:
        return _call_with_sizes(defined, name, config, solution, path)

    return StudentModule(path, name, recipe, own_network(build_module, recipe))


def _trained_name(solution: Solution, path: Path) -> str:
    """The name that is trained: a complete model if there is one, or else an attention."""
    if solution.syntax_error is not None:
        line, message = solution.syntax_error
        raise RegardError(f"{path}, {solution.where(line)}: SyntaxError: {message}")
    trainable = [*WHOLE_MODELS, *ATTENTION_ASSIGNMENTS]
    for name in trainable:
        if name in solution.names:
            return name
    defined = ", ".join(sorted(name for name in solution.names if not name.startswith("_"))) or "nothing"
    raise RegardError(f"{path} must define one of {', '.join(trainable)} to be trained; it defines {defined}")


def _check_kind(name: str, recipe: Recipe, path: Path) -> None:
    kind, wanted = recipe.config(vocab_size=2).kind, WHOLE_MODELS[name]
    if kind != wanted:
        article = (
            "an encoder-decoder, such as petit-fr-en" if wanted == "encoder-decoder" else "a decoder, such as petit-lm"
        )
        raise RegardError(
            f'{path} defines {name}, but the recipe {recipe.name} trains a model of kind "{kind}": choose a recipe for '
            f"{article}, or --set model.kind={wanted}"
        )


def _prepared(recipe: Recipe, name: str) -> Recipe:
    """The recipe with settings that suit any Python code: float32, no compilation and, unless the code is given a mask
    for it, one sentence per row."""
    if name != "MultiHeadAttention":
        return recipe_for_own_network(recipe)
    precision = "float32" if recipe.train.precision == "auto" else recipe.train.precision
    return replace(recipe, train=replace(recipe.train, compile=False, precision=precision))


def _import_solution(solution: Solution, path: Path) -> ModuleType:
    """Run a file as a module; a RegardError with the line if it fails. It may import files next to it."""
    module = ModuleType(f"regard_student_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses look their module up
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        exec(compile(solution.source, str(path), "exec"), vars(module))
    except Exception as error:
        raise RegardError(f"{path} could not be run: {_explain(error, solution, path)}") from error
    finally:
        sys.path.remove(folder)
    return module


def _call_with_sizes(
    make: Callable[..., Any], name: str, config: ModelConfig, solution: Solution, path: Path
) -> nn.Module:
    """Build a complete model with the recipe's sizes, which are passed by name."""
    parameters = inspect.signature(make).parameters.values()
    named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    unknown = [p.name for p in named if p.name not in SIZES and p.default is p.empty]
    if unknown:
        raise RegardError(
            f"{path}: {name} needs {', '.join(unknown)}, which Regard does not know. It passes sizes by these names: "
            f"{', '.join(SIZES)}"
        )
    try:
        module = make(**{p.name: SIZES[p.name](config) for p in named if p.name in SIZES})
    except Exception as error:
        raise RegardError(f"{path}: {name} failed: {_explain(error, solution, path)}") from error
    if not isinstance(module, nn.Module):
        raise RegardError(f"{path}: {name} returned a {type(module).__name__}, not an nn.Module")
    return module


def _explain(error: Exception, solution: Solution, path: Path) -> str:
    """An error with the last line of the student's file that it passed through."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    where = f"{solution.where(lines[-1])}: " if lines and lines[-1] else ""
    text = "this part still has to be written" if isinstance(error, NotImplementedError) else str(error)
    return f"{where}{type(error).__name__}: {text}" if text else f"{where}{type(error).__name__}"
