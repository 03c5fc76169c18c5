"""A user's own module or loss in place of the recipe's: how the recipe changes, and the network around the module."""

import inspect
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import nn

from regard.config import ModelConfig
from regard.decoding.own_network import own_config, wrap_module
from regard.errors import RegardError
from regard.model.transformer import Network
from regard.training.objective import OwnLoss
from regard.training.own_network_check import check_parameters, explain_error
from regard.training.recipe import Recipe
from regard.training.run_setup import NetworkChange

GivenNetwork = nn.Module | Callable[[ModelConfig], nn.Module]
"""A module, or a function that builds one for the vocabulary and sizes of a config."""


def recipe_for_own_network(recipe: Recipe) -> Recipe:
    """The recipe with settings that suit any module: one sentence per row and, unless it says otherwise, float32 and no
    compilation. A RegardError if the recipe demands what a module cannot do."""
    if recipe.start is not None:
        raise RegardError("model.start fine-tunes another model: leave it out to train your own module")
    if recipe.train.packed:
        raise RegardError("train.packed=true is not possible with your own module: it reads one sentence per row")
    train = recipe.train
    precision = "float32" if train.precision == "auto" else train.precision
    return replace(recipe, train=replace(train, packed=False, precision=precision, compile=bool(train.compile)))


def own_network(given: GivenNetwork, recipe: Recipe) -> NetworkChange:
    """A function that puts a network around the user's module in place of the recipe's network."""
    if not isinstance(given, nn.Module) and not callable(given):
        raise RegardError(f"network is a {type(given).__name__}: pass an nn.Module, or a function that returns one")

    def replace_network(network: Network) -> Network:
        config = own_config(network.config, recipe.train.max_length)
        torch.manual_seed(recipe.train.seed)
        module = given if isinstance(given, nn.Module) else _build_module(given, config)
        if not isinstance(module, nn.Module):
            raise RegardError(f"the function network returned a {type(module).__name__}, not an nn.Module")
        check_parameters(module)
        return wrap_module(module, config)

    return replace_network


def _build_module(make: Callable[[ModelConfig], nn.Module], config: ModelConfig) -> nn.Module:
    """What a function returns for a config. If a class takes something else, a RegardError says what to pass."""
    if not isinstance(make, type):
        return make(config)
    advice = f"network is a class: pass lambda config: {make.__name__}(config.vocab_size, ...)"
    try:
        inspect.signature(make).bind(config)
    except TypeError as error:
        raise RegardError(f"{advice}, because it needs more than a config ({error})") from error
    try:
        module: nn.Module = make(config)
    except TypeError as error:
        raise RegardError(f"{advice}, unless its only argument is a config: {explain_error(error)}") from error
    return module


def check_loss_settings(loss: OwnLoss, recipe: Recipe) -> None:
    """A RegardError if the loss cannot be used with this recipe."""
    if not callable(loss):
        raise RegardError(f"loss is a {type(loss).__name__}: pass a function of logits and targets")
    if isinstance(loss, nn.Module) and any(True for _ in loss.parameters()):
        raise RegardError("loss has parameters, which would not be trained: make them part of the network")
    if recipe.train.consistency:
        raise RegardError(
            f"train.consistency={recipe.train.consistency} adds to Regard's own loss: set it to 0 to train yours"
        )
