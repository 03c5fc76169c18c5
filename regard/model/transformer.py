"""The three Transformers: encoder, decoder and encoder–decoder (section 3 of the paper).

Each computes positions, masks and rotations once per pass. `hidden` returns the vectors of the last layer, and calling
the model returns logits. Padding is given by `lengths`, never by an id: [B] if each row holds one sentence, padded on
the right; [B, N] if it holds up to N sentences one after the other, which do not see each other.

Dimensions: B batch, T target length, S source length, C model width, V outputs, K classes, N sentences packed into a
row, L cache length, G key/value heads, D head width.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.config import ModelConfig, preset
from regard.errors import RegardError
from regard.model.cache import AttentionCache, Cache, KeyValueBuffer
from regard.model.embedding import Embedding
from regard.model.layers import ACTIVATIONS, Dropout, Stack, norm
from regard.model.masks import PlainMask, cached_mask, check_lengths, choose_mask, packed_positions, padding_mask
from regard.model.positions import Rotary, rotary
from regard.model.tensor_checks import check_integers, check_range, values_can_be_read

Tokens = Int[Tensor, "B T"]
Lengths = Int[Tensor, " B"] | Int[Tensor, "B N"]
Hidden = Float[Tensor, "B T C"]


class Transformer(nn.Module):
    """Base class of the three Transformers: the embedding at the input and the head at the output."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = Embedding(config, config.vocab_size)
        if config.target_vocab_size is not None:
            self.target_embedding = Embedding(config, config.target_vocab_size)
        elif config.separate_positions:
            self.target_embedding = Embedding(config, config.vocab_size, self.embedding.tokens)
        if config.is_classifier:
            self.classifier = SequenceHead(config)
            return
        if not self._shares_embedding:
            self.output = nn.Linear(config.d_model, config.outputs, bias=False)
        has_bias = config.output_bias or config.is_tagger
        self.output_bias = nn.Parameter(torch.zeros(config.outputs)) if has_bias else None
        self.transform: nn.Module = OutputTransform(config) if config.output_transform else nn.Identity()
        if config.is_tagger:
            self.transform = Dropout(config.dropout)  # as in BERT

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.embedding.tokens.weight.device

    @property
    def parameter_count(self) -> int:
        """The number of weights, of which a tied output layer adds none."""
        return sum(parameter.numel() for parameter in self.parameters())

    @property
    def output_embedding(self) -> Embedding:
        """The embedding of the tokens that the model writes: the target's, where it differs from the source's."""
        is_separate = self.config.target_vocab_size is not None or self.config.separate_positions
        return self.target_embedding if is_separate else self.embedding

    @property
    def _shares_embedding(self) -> bool:
        return self.config.tied and not self.config.is_tagger

    @property
    def output_weight(self) -> Float[Tensor, "V C"]:
        """The matrix of the output layer: the embedding's if tied, without a <pad> that is the last id."""
        shared = self.output_embedding.tokens.weight
        return shared[: self.config.outputs] if self._shares_embedding else self.output.weight

    def head(self, hidden: Hidden, lengths: Lengths | None = None) -> Float[Tensor, "B T V"] | Float[Tensor, "B K"]:
        """Logits for each token, over the vocabulary or a tagger's classes; or over a classifier's classes for each
        sequence."""
        if self.config.is_classifier:
            return self.classifier(hidden, lengths)
        hidden = self.transform(hidden)
        return F.linear(hidden, self.output_weight, self.output_bias)

    def embed(
        self, tokens: Tokens, positions: Tensor, embedding: Embedding | None = None
    ) -> tuple[Hidden, Rotary | None]:
        """The vectors of the tokens and, for rotary positions, the rotations that every layer uses."""
        x = (self.embedding if embedding is None else embedding)(tokens, positions)
        if self.config.positions != "rotary":
            return x, None
        config, (d_k, _, _) = self.config, self.config.widths
        adjacent = config.rotary_pairs == "adjacent"
        return x, rotary(positions, d_k, config.rotary_base, x.dtype, config.rotary_scaling, adjacent)

    def mask(
        self, t: int, s: int, queries: Tensor | None, keys: Tensor | None, causal: bool, prefix: Tensor | None = None
    ) -> PlainMask:
        """The mask for T queries and S keys with these lengths."""
        if self.training and self.config.attention_dropout and keys is not None and keys.dim() == 2:
            raise RegardError(
                f"attention_dropout={self.config.attention_dropout} is not possible with packed batches: set it to 0"
            )
        return choose_mask(t, s, queries, keys, causal, prefix, self.config.window if causal else None, self.device)

    def allocate_cache(self, batch: int, length: int) -> list[KeyValueBuffer]:
        """Memory for the keys [B, G, L, Dk] and values [B, G, L, Dv] of `length` tokens, for each decoder layer."""
        config, like = self.config, self.embedding.tokens.weight
        d_k, d_v, groups = config.widths
        return [
            KeyValueBuffer(like.new_zeros(batch, groups, length, d_k), like.new_zeros(batch, groups, length, d_v))
            for _ in range(config.decoder_depth)
        ]


class Encoder(Transformer):
    """Every token sees every other token, as in BERT."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.encoder = Stack(config, config.layers)

    def hidden(self, tokens: Tokens, lengths: Lengths | None = None) -> Hidden:
        """The vector of the last layer for each token."""
        check_tokens(tokens, lengths)
        positions, t = default_positions(tokens, lengths), tokens.size(1)
        x, rotations = self.embed(tokens, positions)
        return self.encoder(x, self.mask(t, t, lengths, lengths, causal=False), rotations, positions=positions)

    def forward(self, tokens: Tokens, lengths: Lengths | None = None) -> Tensor:
        """Logits, [B, T, V], or [B, K] in a classifier."""
        return self.head(self.hidden(tokens, lengths), lengths)


class Decoder(Transformer):
    """Every token sees itself and the tokens before it, as in GPT-2 and Llama."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.decoder = Stack(config, config.layers)

    def hidden(self, tokens: Tokens, lengths: Lengths | None = None, prefix: Lengths | None = None) -> Hidden:
        """The vector of the last layer for each token. `prefix` is the length of each row's bidirectional part."""
        check_tokens(tokens, lengths)
        self.check_prefix(prefix, tokens, lengths)
        positions, t = default_positions(tokens, lengths), tokens.size(1)
        x, rotations = self.embed(tokens, positions)
        mask = self.mask(t, t, lengths, lengths, causal=True, prefix=prefix)
        return self.decoder(x, mask, rotations, positions=positions)

    def forward(self, tokens: Tokens, lengths: Lengths | None = None, prefix: Lengths | None = None) -> Tensor:
        """Logits, [B, T, V], or [B, K] in a classifier."""
        return self.head(self.hidden(tokens, lengths, prefix), lengths)

    @torch.no_grad()
    def start(self, batch: int, length: int) -> Cache:
        """An empty cache for `batch` rows of up to `length` tokens."""
        if self.config.is_classifier:
            raise RegardError(f"a classifier (classes={self.config.classes}) does not predict a next token")
        return Cache(self.allocate_cache(batch, length), [])

    @torch.no_grad()
    def step(
        self, tokens: Tokens, positions: Int[Tensor, "B T"], cache: Cache, prefix: Int[Tensor, " B"] | None = None
    ) -> Float[Tensor, "B T V"]:
        """Logits for new tokens at these positions, given the cache, which their keys and values are added to.

        The first step reads the prompts, padded on the right; later ones continue after each row's last token.
        """
        return self.head(self.extend(tokens, positions, cache, prefix))

    @torch.no_grad()
    def extend(
        self, tokens: Tokens, positions: Int[Tensor, "B T"], cache: Cache, prefix: Int[Tensor, " B"] | None = None
    ) -> Hidden:
        """As `step`, but without the head: the vector of the last layer for each new token."""
        check_tokens(tokens, rows=cache.rows)
        check_positions(positions, tokens, cache)
        self.check_prefix(prefix)
        x, rotations = self.embed(tokens, positions)
        mask = cached_mask(positions, cache.length, prefix, self.config.window)
        return self.decoder(x, mask, rotations, cache=cache.layers(positions), positions=positions)

    def check_prefix(self, prefix: Tensor | None, tokens: Tensor | None = None, lengths: Tensor | None = None) -> None:
        """Raise a RegardError unless prefix lengths are given exactly if the config has a prefix, and fit the rows."""
        if self.config.prefix != (prefix is not None):
            given = "missing" if prefix is None else "given"
            raise RegardError(f"config.prefix is {self.config.prefix}, but prefix lengths are {given}")
        if prefix is not None and tokens is not None:
            packed = lengths is not None and lengths.dim() == 2
            check_lengths("prefix", prefix, tokens.size(1), dimensions=(2 if packed else 1,), rows=tokens.size(0))
            if lengths is not None and values_can_be_read() and (prefix > lengths).any():
                raise RegardError("a prefix is longer than its sentence: it would include padding")


class EncoderDecoder(Transformer):
    """The paper's model: a decoder that sees the tokens before it and, through cross-attention, the whole source."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.encoder = Stack(config, config.layers)
        self.decoder = Stack(config, config.decoder_depth, cross=True)

    def encode(self, source: Int[Tensor, "B S"], lengths: Lengths | None = None) -> Float[Tensor, "B S C"]:
        """The encoder's output vector for each token of the source."""
        check_tokens(source, lengths)
        positions, s = default_positions(source, lengths), source.size(1)
        x, rotations = self.embed(source, positions)
        return self.encoder(x, self.mask(s, s, lengths, lengths, causal=False), rotations, positions=positions)

    def hidden(
        self,
        source: Int[Tensor, "B S"],
        target: Int[Tensor, "B T"],
        source_lengths: Lengths | None = None,
        target_lengths: Lengths | None = None,
    ) -> Hidden:
        """The decoder's output vector for each token of the target."""
        check_tokens(target, target_lengths, rows=source.size(0))
        memory = self.encode(source, source_lengths)  # [B, S, C]
        return self.decode(target, memory, source_lengths, target_lengths)

    def decode(
        self,
        target: Int[Tensor, "B T"],
        memory: Float[Tensor, "B S C"],
        source_lengths: Lengths | None = None,
        target_lengths: Lengths | None = None,
    ) -> Hidden:
        """The decoder's output vector for each token of the target, given the encoder's output for the source."""
        positions = default_positions(target, target_lengths)
        x, rotations = self.embed(target, positions, self.output_embedding)
        t, s = target.size(1), memory.size(1)
        mask = self.mask(t, t, target_lengths, target_lengths, causal=True)
        memory_mask = self.mask(t, s, target_lengths, source_lengths, causal=False)
        return self.decoder(x, mask, rotations, memory, memory_mask, positions=positions)

    def forward(
        self,
        source: Int[Tensor, "B S"],
        target: Int[Tensor, "B T"],
        source_lengths: Lengths | None = None,
        target_lengths: Lengths | None = None,
    ) -> Float[Tensor, "B T V"]:
        """Logits for the token after each token of the target."""
        return self.head(self.hidden(source, target, source_lengths, target_lengths))

    @torch.no_grad()
    def start(self, source: Int[Tensor, "B S"], length: int, lengths: Int[Tensor, " B"] | None = None) -> Cache:
        """Encode the sources, compute the keys and values of cross-attention once for every layer, and allocate a cache
        for targets of up to `length` tokens."""
        memory = self.encode(source, lengths)
        attentions = [layer.cross_attention for layer in self.decoder.layers if layer.cross_attention is not None]
        cross = [AttentionCache(*attention.keys_and_values(memory, memory)) for attention in attentions]
        full = lengths is None or (lengths.device.type == "cpu" and bool((lengths == source.size(1)).all()))
        mask = None if lengths is None or full else padding_mask(lengths, source.size(1))
        return Cache(self.allocate_cache(source.size(0), length), cross, mask)

    @torch.no_grad()
    def step(self, tokens: Tokens, positions: Int[Tensor, "B T"], cache: Cache) -> Float[Tensor, "B T V"]:
        """Logits for new target tokens at these positions, given the cache, which they are added to."""
        check_tokens(tokens, rows=cache.rows)
        check_positions(positions, tokens, cache)
        x, rotations = self.embed(tokens, positions, self.output_embedding)
        mask = cached_mask(positions, cache.length)
        layers = cache.layers(positions)
        return self.head(self.decoder(x, mask, rotations, None, cache.source_mask, layers, positions))


class OutputTransform(nn.Module):
    """BERT's dense layer, activation and norm between the last layer and the output layer."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.d_model, config.d_model)
        self.activation = ACTIVATIONS[config.activation]
        self.norm = norm(config)

    def forward(self, hidden: Hidden) -> Hidden:
        """The vectors for the output layer."""
        return self.norm(self.activation(self.dense(hidden)))


class SequenceHead(nn.Module):
    """Classifies sequences: from the first vector of an encoder through a dense layer, as in BERT, or from the vector
    of a decoder's last real token, which is the only one that has seen the whole sequence."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.pool = nn.Linear(config.d_model, config.d_model) if config.kind == "encoder" else None
        self.activation = torch.tanh if config.classifier_activation == "tanh" else F.relu
        self.dropout = Dropout(config.dropout)
        self.classes = nn.Linear(config.d_model, config.classes)

    def forward(self, hidden: Hidden, lengths: Int[Tensor, " B"] | None = None) -> Float[Tensor, "B K"]:
        """Logits over the classes."""
        if lengths is not None and lengths.dim() == 2:
            raise RegardError("a classifier reads one sequence per row, and packed rows have several")
        if self.pool is not None:
            pooled = self.activation(self.pool(hidden[:, 0]))  # [B, C]
        elif lengths is None:
            pooled = hidden[:, -1]
        else:
            check_range("last token", lengths - 1, hidden.size(1), "an empty sequence has no class")
            pooled = hidden[torch.arange(len(lengths), device=lengths.device), lengths - 1]  # [B, C]
        return self.classes(self.dropout(pooled))


Network = Encoder | Decoder | EncoderDecoder


def build(config: ModelConfig | str) -> Network:
    """A model with the architecture of a config or a named preset, and random weights from torch's generator."""
    config = preset(config) if isinstance(config, str) else config
    kinds: dict[str, type[Network]]
    kinds = {"encoder": Encoder, "decoder": Decoder, "encoder-decoder": EncoderDecoder}
    model = kinds[config.kind](config)
    if not model.embedding.tokens.weight.is_meta:  # meta tensors have no values, and trying takes seconds
        initialise(model)
    return model


@torch.no_grad()
def initialise(model: Transformer) -> None:
    """Initialise the weights; biases are zero, norms one. Other modules with weights have a `reset_parameters`.

    With scaled embeddings (the paper's models), linear layers follow Glorot and Bengio, and embeddings are
    N(0, 1/d_model), which scaling makes N(0, 1). Without (GPT-2, BERT, Llama), all weights are N(0, 0.02²); in pre-norm
    models, weights whose output is added to the residual are divided by √(number of such additions), so that the sum
    keeps its size with depth.
    """
    scaled = model.config.scale_embeddings
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight) if scaled else nn.init.normal_(module.weight, std=0.02)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=model.config.d_model**-0.5 if scaled else 0.02)
            if module.padding_idx is not None:
                module.weight[module.padding_idx].zero_()
        elif callable(reset_parameters := getattr(module, "reset_parameters", None)):
            reset_parameters()
    if not model.config.is_classifier and model.output_bias is not None:
        nn.init.zeros_(model.output_bias)
    if not scaled and model.config.norm == "pre":
        for stack in (module for module in model.modules() if isinstance(module, Stack)):
            outputs = [linear for layer in stack.layers for linear in layer.residual_outputs()]
            for linear in outputs:
                linear.weight.div_(math.sqrt(len(outputs)))


def default_positions(tokens: Tokens, lengths: Tensor | None) -> Int[Tensor, " T"] | Int[Tensor, "B T"]:
    """0, 1, 2, … along each row or, in packed rows, along each sentence."""
    if lengths is None or lengths.dim() == 1:
        return torch.arange(tokens.size(1), device=tokens.device)
    return packed_positions(lengths, tokens.size(1))[1]


def check_tokens(tokens: Tensor, lengths: Tensor | None = None, rows: int | None = None) -> None:
    """Raise a RegardError unless `tokens` are ids in this many rows, and `lengths` fit them."""
    check_integers("token ids", tokens)
    if tokens.dim() != 2:
        raise RegardError(f"token ids must be [rows, tokens], not {list(tokens.shape)}")
    if rows is not None and tokens.size(0) != rows:
        raise RegardError(f"there are {tokens.size(0)} rows of tokens, but {rows} rows in the source or the cache")
    if lengths is not None:
        check_lengths("lengths", lengths, tokens.size(1), dimensions=(1, 2), rows=tokens.size(0))


def check_positions(positions: Tensor, tokens: Tensor, cache: Cache) -> None:
    """Raise a RegardError unless there is one position for each token, within the length of the cache."""
    check_integers("positions", positions)
    if positions.shape != tokens.shape:
        raise RegardError(f"positions {list(positions.shape)} must have the shape of the tokens, {list(tokens.shape)}")
    check_range("position", positions, cache.length, "the cache ends there")
