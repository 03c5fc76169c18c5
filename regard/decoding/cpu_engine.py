"""Searches on a CPU that run in C++ as a whole: the network, the cache and the beam (`regard/decoding/cpp`).

`CpuEngine` packs the weights of a network once and then searches like `beam_search` and `generate_tokens`. It covers
greedy decoding and beam search; sampling, stop strings and penalties for repetition use the Python search.
"""

import ctypes
import math
from collections.abc import Sequence
from ctypes import c_float, c_int32
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from regard.config import ModelConfig
from regard.decoding.cancellation import raise_if_cancelled
from regard.decoding.cpp_library import load_library
from regard.decoding.cpp_structs import (
    AttentionStruct,
    EmbeddingStruct,
    LayerStruct,
    LinearStruct,
    NetworkStruct,
    NormStruct,
    ShapeStruct,
    StackStruct,
    TaskStruct,
    declare_functions,
)
from regard.decoding.decoding_state import SearchInputs
from regard.decoding.joined_weights import WeightAndBias, join_weights
from regard.decoding.options import Decoding
from regard.decoding.search import Hypothesis, finish_reason, make_hypothesis
from regard.model.attention import MultiHeadAttention
from regard.model.embedding import Embedding
from regard.model.layers import Layer, Stack
from regard.model.positions import rotary, sinusoids
from regard.model.tensor_checks import UNKNOWN_ID, check_range
from regard.model.transformer import Decoder, EncoderDecoder
from regard.rounding import round_up

TYPES = {torch.float32: 0, torch.bfloat16: 1, torch.int8: 2}
ACTIVATION_NUMBERS = {"relu": 1, "gelu": 2, "gelu-tanh": 3, "silu": 4, "swiglu": 4, "geglu-tanh": 3}
COVERED_POSITIONS = ("sinusoidal", "learned", "rotary", "none")
COVERED_OPTIONS = ("beam", "n_best", "length_penalty", "min_tokens", "max_tokens")
SAMPLING_OPTIONS = ("seed", "top_k", "top_p", "min_p")
"""Options without effect at a temperature of 0."""
PANEL_OUTPUTS = 64
"""Outputs of a linear layer that are computed together."""
MIN_POSITIONS = 256
"""Number of positions in the first table of positional encodings; it is replaced when a search needs more."""


def why_not_compiled(config: ModelConfig) -> str | None:
    """What the C++ sources do not cover in a network; None if they cover it."""
    if config.positions not in COVERED_POSITIONS:
        return f"positions={config.positions!r}"
    if config.activation not in ACTIVATION_NUMBERS:
        return f"activation={config.activation!r}"
    options = {"window": config.window, "qk_norm": config.qk_norm, "output_transform": config.output_transform}
    return next((f"{name}={value!r}" for name, value in options.items() if value), None)


def covers_options(options: Decoding) -> bool:
    """Whether these options only ask for greedy decoding or beam search."""
    defaults = Decoding()
    covered = {name: getattr(defaults, name) for name in (*COVERED_OPTIONS, *SAMPLING_OPTIONS)}
    return replace(options, **covered) == defaults  # an option that is added later is not covered


class CpuEngine:
    """The weights of a network, packed for the C++ sources, and the searches over it. Threads take turns."""

    def __init__(self, network: Decoder | EncoderDecoder, dtype: torch.dtype, portable: bool = False) -> None:
        self.library = declare_functions(load_library(portable))
        self.config, self.dtype = network.config, dtype
        self._alive: list[Any] = []
        """What the structs point to."""
        self._embeddings = (network.embedding, network.output_embedding)
        encoder = network.encoder if isinstance(network, EncoderDecoder) else None
        output_bias = None if network.output_bias is None else network.output_bias.detach()
        self.struct = NetworkStruct(
            self._shape(network.decoder.layers[0].attention),
            StackStruct() if encoder is None else self._stack(encoder),
            self._stack(network.decoder),
            self._embedding(network.embedding),
            self._embedding(network.output_embedding),
            self._linear([(network.output_weight, output_bias)]),
        )
        self._positions = 0
        self._add_positions(MIN_POSITIONS)

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return f"C++ in {str(self.dtype).removeprefix('torch.')}"

    def supports(self, options: Decoding) -> bool:
        """Whether a search with these options runs in C++."""
        return covers_options(options)

    def search(self, inputs: SearchInputs) -> list[list[Hypothesis]]:
        """As `beam_search`, or as greedy decoding if the beam is 1."""
        rules, count = inputs.rules, len(inputs.max_tokens)
        start = torch.tensor(inputs.start, dtype=torch.long)
        check_range("token id", inputs.tokens, self.config.vocab_size, UNKNOWN_ID)
        check_range("token id", start, self.config.output_vocab_size, UNKNOWN_ID)
        rows = [row[:length] for row, length in zip(inputs.tokens.tolist(), inputs.lengths.tolist(), strict=True)]
        is_pair = isinstance(inputs.network, EncoderDecoder)
        prompts = [list(inputs.start)] * count if is_pair else rows
        arrays = [  # kept until the search is finished
            _int_array([id_ for row in rows for id_ in row]),
            _int_array([len(row) for row in rows]),
            _int_array([id_ for prompt in prompts for id_ in prompt]),
            _int_array([len(prompt) for prompt in prompts]),
            _int_array(inputs.max_tokens),
        ]
        end, suppressed = (_int_array(ids.tolist()) for ids in (rules.end, rules.suppressed))
        options = rules.options
        task = TaskStruct(
            count,
            options.beam,
            options.n_best,
            inputs.cache_length,
            *(ctypes.addressof(array) for array in arrays),
            ctypes.addressof(end),
            len(end),
            ctypes.addressof(suppressed),
            len(suppressed),
            options.min_tokens,
            options.length_penalty,
            self.config.prefix,
        )
        self._add_positions(max(inputs.cache_length, inputs.tokens.size(1)))
        threads = torch.get_num_threads()
        search = self.library.regard_search_start(ctypes.byref(self.struct), ctypes.byref(task), threads)
        if not search:
            raise MemoryError
        try:
            while left := self.library.regard_search_step(search, threads):
                if left < 0:
                    raise MemoryError
                raise_if_cancelled()
            return [self._hypotheses(search, number, inputs) for number in range(count)]
        finally:
            self.library.regard_search_free(search)

    def _hypotheses(self, search: int, number: int, inputs: SearchInputs) -> list[Hypothesis]:
        rules, results = inputs.rules, []
        end = set(rules.end.tolist())
        for rank in range(rules.options.n_best):
            length = self.library.regard_search_length(search, number, rank)
            if length < 0:
                break
            tokens, scores = (c_int32 * length)(), (c_float * 2)()
            self.library.regard_search_read(search, number, rank, tokens, scores)
            score, penalised = scores
            if math.isnan(score):
                raise rules.no_token_error(number, score)
            ids = list(tokens)
            results.append(make_hypothesis(ids, score, penalised, finish_reason(ids, end, None) or "length"))
        if not results:
            raise rules.no_token_error(number, -math.inf)
        return results

    def _address(self, tensor: Tensor | None) -> int | None:
        """The address of a tensor's numbers in float32."""
        if tensor is None:
            return None
        numbers = tensor.detach().float().contiguous()
        self._alive.append(numbers)
        return numbers.data_ptr()

    def _linear(self, layers: Sequence[WeightAndBias]) -> LinearStruct:
        weight, bias = join_weights(layers)
        weight, (outputs, inputs) = weight.float().contiguous(), weight.shape
        kind = TYPES[self.dtype]
        packed = torch.empty(self.library.regard_packed_size(kind, outputs, inputs), dtype=torch.uint8)
        scales = torch.empty(round_up(outputs, PANEL_OUTPUTS))
        self.library.regard_pack(kind, weight.data_ptr(), outputs, inputs, packed.data_ptr(), scales.data_ptr())
        self._alive += [packed, scales]
        return LinearStruct(packed.data_ptr(), scales.data_ptr(), self._address(bias), inputs, outputs)

    def _norm(self, norm: nn.Module | None) -> NormStruct:
        if isinstance(norm, nn.LayerNorm):
            return NormStruct(self._address(norm.weight), self._address(norm.bias), norm.eps, 0)
        if isinstance(norm, nn.RMSNorm):
            epsilon = torch.finfo(torch.float32).eps if norm.eps is None else norm.eps
            return NormStruct(self._address(norm.weight), None, epsilon, 1)
        return NormStruct()

    def _attention(self, attention: MultiHeadAttention | None, cross: bool = False) -> AttentionStruct:
        if attention is None:
            return AttentionStruct()
        q, k, v, out = (
            (linear.weight, linear.bias) for linear in (attention.q, attention.k, attention.v, attention.out)
        )
        if cross:
            return AttentionStruct(self._linear([q]), self._linear([k, v]), self._linear([out]))
        return AttentionStruct(self._linear([q, k, v]), LinearStruct(), self._linear([out]))

    def _layer(self, layer: Layer) -> LayerStruct:
        feed_forward = layer.feed_forward
        expanding = [feed_forward.up] if feed_forward.gate is None else [feed_forward.up, feed_forward.gate]
        return LayerStruct(
            self._attention(layer.attention),
            self._attention(layer.cross_attention, cross=True),
            self._linear([(linear.weight, linear.bias) for linear in expanding]),
            self._linear([(feed_forward.down.weight, feed_forward.down.bias)]),
            self._norm(layer.attention_norm),
            self._norm(layer.cross_attention_norm),
            self._norm(layer.feed_forward_norm),
        )

    def _stack(self, stack: Stack) -> StackStruct:
        layers = (LayerStruct * len(stack.layers))(*map(self._layer, stack.layers))
        self._alive.append(layers)
        has_cross = stack.layers[0].cross_attention is not None
        return StackStruct(layers, len(layers), has_cross, self._norm(stack.norm))

    def _embedding(self, embedding: Embedding) -> EmbeddingStruct:
        return EmbeddingStruct(
            self._address(embedding.tokens.weight), None, embedding.scale, self._norm(embedding.norm)
        )

    def _shape(self, attention: MultiHeadAttention) -> ShapeStruct:
        config, (d_k, d_v, groups) = self.config, self.config.widths
        scale = 1 / math.sqrt(d_k) if attention.scale is None else attention.scale
        sizes = (config.d_model, config.heads, groups, d_k, d_v, config.d_ff)
        activation = ACTIVATION_NUMBERS[config.activation]
        adjacent = config.rotary_pairs == "adjacent"
        return ShapeStruct(
            *sizes, activation, config.is_gated, config.norm == "pre", scale, TYPES[self.dtype], None, None, adjacent
        )

    def _add_positions(self, length: int) -> None:
        """Make the tables of positional encodings long enough for this many tokens."""
        if length <= self._positions:
            return
        config, self._positions = self.config, round_up(length, MIN_POSITIONS)
        positions = torch.arange(self._positions)
        for embedding, struct in zip(
            self._embeddings, (self.struct.source_embedding, self.struct.target_embedding), strict=True
        ):
            if embedding.kind == "sinusoidal":
                struct.positions = self._address(sinusoids(positions, config.d_model, fairseq=embedding.fairseq))
            elif embedding.positions is not None:
                struct.positions = self._address(embedding.positions.weight)
        if config.positions == "rotary":
            adjacent = config.rotary_pairs == "adjacent"
            cos, sin, _ = rotary(
                positions, config.widths[0], config.rotary_base, scaling=config.rotary_scaling, adjacent=adjacent
            )
            self.struct.shape.cosines, self.struct.shape.sines = self._address(cos), self._address(sin)


def _int_array(numbers: Sequence[int]) -> Any:
    return (c_int32 * len(numbers))(*numbers)
