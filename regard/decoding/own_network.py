"""A user's own module in place of one of Regard's networks: it is trained, validated and decoded like them.

The module maps token ids to logits, and is called again on the whole prefix for every new token: it has no cache.
Its `forward` is one of these:

| module | arguments | result |
|---|---|---|
| encoder-decoder | source [B, S], target [B, T] | logits [B, T, V] |
| decoder, encoder | tokens [B, T] | logits [B, T, V]; of a tagger [B, T, K], of a classifier [B, K] |

Parameters with these names are given more: `lengths`, `source_lengths` and `target_lengths` [B]; `mask`, `target_mask`
and `tgt_mask` [B, T, T], `source_mask` and `src_mask` [B, 1, S], which are True where attention is allowed.

Positions after a row's length hold the config's <pad>. V is the number of outputs, or the size of the vocabulary.
Log-probabilities will do as well as logits. If the module has a `generator` that its `forward` does not call, as in The
Annotated Transformer, it is applied to the result.

Dimensions: B rows, S source tokens, T tokens, t new tokens, V outputs, K classes, R rows of a search, N its inputs.
"""

import inspect
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from regard.config import ModelConfig
from regard.errors import RegardError
from regard.model.cache import Cache
from regard.model.masks import causal_mask, real_positions
from regard.model.transformer import Decoder, Encoder, EncoderDecoder, Lengths, Network, Tokens, Transformer

KEPT_CONFIG_KEYS = (
    "kind",
    "vocab_size",
    "target_vocab_size",
    "pad",
    "classes",
    "classes_per",
    "d_model",
    "heads",
    "layers",
    "decoder_layers",
    "d_ff",
    "dropout",
)
"""Keys of the recipe's config that also describe a network around a user's module."""
TORCH_FOLDER = str(Path(torch.__file__).parent)


class OwnNetwork(Transformer):
    """What the three kinds of own networks share: the user's module, and how it is called."""

    def __init__(self, module: nn.Module, config: ModelConfig) -> None:
        nn.Module.__init__(self)  # not Transformer's, which would make weights
        self.config = config
        self.module = module
        self.optional_inputs = optional_inputs(module, config)
        """Parameters of the module's `forward` that are passed by name."""
        self.applies_generator: bool | None = None
        """Whether the module's generator is applied to its output; None before the first call."""
        self.notes: list[str] = []
        """Warnings about the module, for the log of the run."""

    @property
    def name(self) -> str:
        """The name of the module's class."""
        return type(self.module).__name__

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.module.parameters()).device

    def logits(
        self,
        tokens: Tokens,
        lengths: Lengths | None,
        source: Int[Tensor, "B S"] | None = None,
        source_lengths: Lengths | None = None,
    ) -> Tensor:
        """The module's output, without a <pad> that is the last id."""
        output: Tensor = self.call_module(tokens, lengths, source, source_lengths)
        return output if self.config.is_classifier else output[..., : self.config.outputs]

    def call_module(
        self,
        tokens: Tokens,
        lengths: Lengths | None,
        source: Int[Tensor, "B S"] | None = None,
        source_lengths: Lengths | None = None,
    ) -> Any:
        """Whatever the module, or its generator, returns for these tokens."""
        tokens, lengths = _padded(tokens, lengths, self.config.output_pad_id)
        values: dict[str, Callable[[], Tensor]] = {"lengths": lambda: lengths, "target_lengths": lambda: lengths}
        values |= dict.fromkeys(("mask", "target_mask", "tgt_mask"), lambda: self._mask(tokens, lengths))
        inputs = [tokens]
        if source is not None:
            padded_source, real_lengths = _padded(source, source_lengths, self.config.pad_id)
            inputs = [padded_source, tokens]
            values["source_lengths"] = lambda: real_lengths
            source_mask = real_positions(real_lengths, padded_source.size(1))[:, None]  # [B, 1, S]
            values |= dict.fromkeys(("source_mask", "src_mask"), lambda: source_mask)
        output = self._forward(*inputs, **{name: values[name]() for name in self.optional_inputs})
        return self.module.get_submodule("generator")(output) if self.applies_generator else output

    def _forward(self, *inputs: Tensor, **named: Tensor) -> Any:
        """Call the module. The first call finds out whether the module calls its generator itself."""
        generator = getattr(self.module, "generator", None)
        if self.applies_generator is not None or not isinstance(generator, nn.Module):
            return self.module(*inputs, **named)
        calls: list[None] = []
        with generator.register_forward_hook(lambda *_: calls.append(None)):
            output = self.module(*inputs, **named)
        self.applies_generator = not calls
        return output

    def _mask(self, tokens: Tokens, lengths: Int[Tensor, " B"]) -> Bool[Tensor, "B T T"]:
        """Which positions a position may attend to: the real ones and, except in an encoder, none after itself."""
        t = tokens.size(1)
        real = real_positions(lengths, t)[:, None]  # [B, 1, T]
        causal = torch.ones(t, t, dtype=torch.bool) if self.config.kind == "encoder" else causal_mask(t)
        return real & causal.to(tokens.device)

    def head(self, hidden: Tensor, lengths: Lengths | None = None) -> Tensor:  # noqa: ARG002  # as Transformer's
        """The logits themselves: a module's hidden vectors are not known, so `hidden` returns logits."""
        return hidden

    def __deepcopy__(self, memo: dict[int, Any]) -> "OwnNetwork":
        """A network around a copy of the module."""
        copy = type(self)(copy_module(self.module), self.config)
        copy.applies_generator, copy.notes = self.applies_generator, self.notes
        return copy.train(self.training)


class OwnEncoder(OwnNetwork, Encoder):
    """A module that reads a whole sequence."""

    def hidden(self, tokens: Tokens, lengths: Lengths | None = None) -> Tensor:
        """The logits: see `OwnNetwork.head`."""
        return self.logits(tokens, lengths)

    def forward(self, tokens: Tokens, lengths: Lengths | None = None) -> Tensor:
        """Logits, [B, T, V], or [B, K] of a classifier."""
        return self.logits(tokens, lengths)


class OwnDecoder(OwnNetwork, Decoder):
    """A module that predicts the next token at each position."""

    def hidden(self, tokens: Tokens, lengths: Lengths | None = None, prefix: Lengths | None = None) -> Tensor:
        """The logits: see `OwnNetwork.head`."""
        self.check_prefix(prefix)
        return self.logits(tokens, lengths)

    def forward(self, tokens: Tokens, lengths: Lengths | None = None, prefix: Lengths | None = None) -> Tensor:
        """Logits, [B, T, V], or [B, K] of a classifier."""
        return self.hidden(tokens, lengths, prefix)

    def start(self, batch: int, length: int) -> Cache:
        """Memory for `batch` rows of up to `length` tokens."""
        return TokenCache([], [], tokens=torch.zeros(batch, length, dtype=torch.long, device=self.device))

    def extend(
        self,
        tokens: Tokens,
        positions: Int[Tensor, "B T"],
        cache: Cache,
        prefix: Int[Tensor, " B"] | None = None,  # noqa: ARG002  # as Decoder's
    ) -> Tensor:
        """The logits for new tokens: see `OwnNetwork.head`."""
        return _step(self, tokens, positions, cache)


class OwnEncoderDecoder(OwnNetwork, EncoderDecoder):
    """A module that predicts the next token of a target, given its source."""

    def hidden(
        self,
        source: Int[Tensor, "B S"],
        target: Int[Tensor, "B T"],
        source_lengths: Lengths | None = None,
        target_lengths: Lengths | None = None,
    ) -> Tensor:
        """The logits: see `OwnNetwork.head`."""
        return self.logits(target, target_lengths, source, source_lengths)

    def forward(
        self,
        source: Int[Tensor, "B S"],
        target: Int[Tensor, "B T"],
        source_lengths: Lengths | None = None,
        target_lengths: Lengths | None = None,
    ) -> Tensor:
        """Logits for the token after each token of the target, [B, T, V]."""
        return self.logits(target, target_lengths, source, source_lengths)

    def start(self, source: Int[Tensor, "B S"], length: int, lengths: Int[Tensor, " B"] | None = None) -> Cache:
        """The sources, and memory for targets of up to `length` tokens."""
        tokens = source.new_zeros(len(source), length)
        return TokenCache([], [], tokens=tokens, source=source, source_lengths=lengths)

    def step(self, tokens: Tokens, positions: Int[Tensor, "B T"], cache: Cache) -> Tensor:
        """Logits for new target tokens at these positions."""
        return _step(self, tokens, positions, cache)


@dataclass
class TokenCache(Cache):
    """In place of keys and values: the tokens themselves, which the module reads again in every step."""

    tokens: Int[Tensor, "R L"] = field(kw_only=True)
    source: Int[Tensor, "N S"] | None = field(default=None, kw_only=True)
    source_lengths: Int[Tensor, " N"] | None = field(default=None, kw_only=True)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.tokens.size(0)

    @property
    def length(self) -> int:
        """Maximum number of tokens in each row."""
        return self.tokens.size(1)

    def upto(self, length: int) -> "TokenCache":
        """The first `length` positions, sharing the memory."""
        return replace(self, tokens=self.tokens[:, :length])

    def select(
        self,
        rows: Int[Tensor, " Q"],
        sources: Int[Tensor, " n"] | None,
        filled: int,  # noqa: ARG002  # as Cache's
    ) -> "TokenCache":
        """These rows, in this order and with repetitions, and these of the sources (None: all of them)."""
        selected = replace(self, tokens=self.tokens[rows])
        if sources is None or self.source is None:
            return selected
        lengths = None if self.source_lengths is None else self.source_lengths[sources]
        return replace(selected, source=self.source[sources], source_lengths=lengths)


@torch.no_grad()
def _step(network: OwnNetwork, tokens: Tokens, positions: Int[Tensor, "R t"], cache: Cache) -> Tensor:
    """Add new tokens to the prefix of each row, and return the logits that follow them, [R, t, V]."""
    assert isinstance(cache, TokenCache)
    cache.tokens.scatter_(1, positions, tokens)
    lengths = positions[:, -1] + 1  # [R]
    source, source_lengths = cache.source, cache.source_lengths
    if source is not None:
        per_source = cache.rows // len(source)
        source = source.repeat_interleave(per_source, 0)  # [R, S]
        source_lengths = None if source_lengths is None else source_lengths.repeat_interleave(per_source)
    logits = network.logits(cache.tokens, lengths, source, source_lengths)  # [R, L, V]
    return logits.gather(1, positions[..., None].expand(-1, -1, logits.size(-1)))


def wrap_module(module: nn.Module, config: ModelConfig) -> Network:
    """The network around a module for a model of this kind."""
    kinds: dict[str, Callable[[nn.Module, ModelConfig], Network]]
    kinds = {"encoder": OwnEncoder, "decoder": OwnDecoder, "encoder-decoder": OwnEncoderDecoder}
    return kinds[config.kind](module, config)


@torch.no_grad()
def copy_with_weights(network: OwnNetwork, weights: Mapping[str, Tensor]) -> Network:
    """A copy of a network in float32 with these weights, for evaluation."""
    copy = wrap_module(copy_module(network.module), network.config).float().eval()
    for name, parameter in copy.named_parameters():
        parameter.copy_(weights[name])
    return copy


def copy_module(module: nn.Module) -> nn.Module:
    """A copy of a module. Tensors with a history, such as attention weights that it has kept, are detached."""
    memo: dict[int, Any] = {}
    for part in module.modules():
        kept = [value for value in vars(part).values() if isinstance(value, Tensor) and not value.is_leaf]
        memo |= {id(value): value.detach() for value in kept}
    try:
        return deepcopy(module, memo)
    except Exception as error:
        raise RegardError(
            f"{type(module).__name__} cannot be copied, which validation needs: {type(error).__name__}: {error}"
        ) from error


def own_config(config: ModelConfig, max_length: int) -> ModelConfig:
    """The config of a network around a module that stands for the network of a recipe's config.

    A module may have a table of positions: it is never asked to read more than `max_length` tokens, or the maximum of
    the recipe's own learned positions.
    """
    if config.prefix:
        raise RegardError("model.prefix=true is not available for your own module: set model.prefix=false")
    kept = {key: getattr(config, key) for key in KEPT_CONFIG_KEYS}
    return ModelConfig(**kept, positions="learned", max_length=config.max_positions or max_length)


def check_regards_own(network: Network, action: str) -> None:
    """Raise a RegardError for an action that is not possible with a user's module."""
    if isinstance(network, OwnNetwork):
        raise RegardError(f"{action} needs Regard's own network; this is your module {network.name}")


def optional_inputs(module: nn.Module, config: ModelConfig) -> tuple[str, ...]:
    """The parameters of the module's `forward` that Regard passes by name; a RegardError if it cannot be called."""
    is_pair = config.kind == "encoder-decoder"
    inputs = 2 if is_pair else 1
    known: tuple[str, ...] = ("lengths", "mask")
    if is_pair:
        known = ("source_lengths", "target_lengths", "source_mask", "src_mask", "target_mask", "tgt_mask")
    name = type(module).__name__
    wanted = "forward(source, target, ...)" if is_pair else "forward(tokens, ...)"
    try:
        parameters = list(inspect.signature(module.forward).parameters.values())
    except (TypeError, ValueError):
        return ()  # not written in Python: it is given the tokens only
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    takes_any = any(parameter.kind == parameter.VAR_POSITIONAL for parameter in parameters)
    if len(positional) < inputs and not takes_any:
        raise RegardError(
            f"{method_location(module, 'forward')}{name}.forward takes {len(positional)} arguments, but "
            f"{config.kind_with_article} needs {wanted}"
        )
    rest = [p for p in parameters if p not in positional[:inputs] and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    unknown = [p.name for p in rest if p.default is p.empty and p.name not in known]
    if unknown:
        raise RegardError(
            f"{method_location(module, 'forward')}{name}.forward needs {', '.join(unknown)}, which Regard does not "
            f"know: it calls {wanted} with parameters of these names: {', '.join(known)}"
        )
    return tuple(p.name for p in rest if p.name in known)


def method_location(module: nn.Module, method: str) -> str:
    """The file and line of a method of a user's module, for the beginning of a message; empty if they are not known."""
    code = getattr(inspect.unwrap(getattr(type(module), method)), "__code__", None)
    if code is None or code.co_filename.startswith(TORCH_FOLDER):
        return ""
    return f"{code.co_filename}, line {code.co_firstlineno}: "


def _padded(tokens: Tokens, lengths: Lengths | None, pad: int | None) -> tuple[Tokens, Int[Tensor, " B"]]:
    """The tokens with <pad> after each row's length, and the lengths."""
    if lengths is None:
        return tokens, tokens.new_full((len(tokens),), tokens.size(1))
    if lengths.dim() == 2:
        raise RegardError("your own module reads one sequence per row, and packed rows have several")
    return tokens.masked_fill(~real_positions(lengths, tokens.size(1)), pad or 0), lengths
