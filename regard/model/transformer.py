"""The three Transformers: encoder, decoder, encoder–decoder.

Each computes positions, masks and rotations once per pass. `hidden` gives the last layer's vectors, calling the model
what its head makes of them. Padding is known by `lengths`, never by an id: [B] where each row holds one sentence,
padded on the right; [B, N] where it holds up to N, one behind the other, which do not see each other.

Dimensions: B batch, T target length, S source length, C model width, V outputs, N sentences packed into a row.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.config import ModelConfig, preset
from regard.errors import RegardError
from regard.model.cache import Cache, KeyValues, Room
from regard.model.embedding import Embedding
from regard.model.layers import ACTIVATIONS, Dropout, Stack, norm
from regard.model.masks import Mask, cached_mask, check_lengths, choose_mask, padding_mask, places
from regard.model.positions import Rotary, rotary
from regard.model.tensor_checks import check_integers, check_range, values_can_be_read

Tokens = Int[Tensor, "B T"]
Lengths = Int[Tensor, " B"] | Int[Tensor, "B N"]
Hidden = Float[Tensor, "B T C"]


class Transformer(nn.Module):
    """What the three have in common: the embedding on the way in and the head on the way out."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = Embedding(config)
        self.quick_output: nn.Module | None = None  # a copy made for decoding has its output layer in another layout
        self.loops: object = None  # and, on a GPU, steps recorded as graphs
        if config.classes:
            self.classifier = SequenceHead(config)
            return
        if not config.tied:
            self.output = nn.Linear(config.d_model, config.outputs, bias=False)
        self.output_bias = nn.Parameter(torch.zeros(config.outputs)) if config.output_bias else None
        self.transform = OutputTransform(config) if config.output_transform else nn.Identity()

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.embedding.tokens.weight.device

    @property
    def is_copy(self) -> bool:
        """Whether this is a copy made for decoding (`regard.decoding.fast_copy`)."""
        return self.quick_output is not None or self.loops is not None

    def check_whole(self, wish: str) -> None:
        """A ValueError if this is a copy made for decoding, which cannot do what is wished."""
        if self.is_copy:
            raise RegardError(f"this is a copy made for decoding: {wish} the model that it was made from")

    @property
    def output_weight(self) -> Float[Tensor, "V C"]:
        """The output layer's matrix: the embedding's own unless untied, without a <pad> that stands last."""
        return self.embedding.tokens.weight[: self.config.outputs] if self.config.tied else self.output.weight

    def head(self, hidden: Hidden, lengths: Lengths | None = None) -> Float[Tensor, "B T V"] | Float[Tensor, "B K"]:
        """Logits over the vocabulary for each token or, with classes, over the classes for each sequence."""
        if self.config.classes:
            return self.classifier(hidden, lengths)
        hidden = self.transform(hidden)
        if self.quick_output is not None:
            return self.quick_output(hidden)
        return F.linear(hidden, self.output_weight, self.output_bias)

    def embed(self, tokens: Tokens, positions: Tensor) -> tuple[Hidden, Rotary | None]:
        """Vectors for the tokens and, for rotary models, the rotations that every layer will use."""
        x = self.embedding(tokens, positions)
        if self.config.positions != "rotary":
            return x, None
        d_k, _, _ = self.config.widths
        return x, rotary(positions, d_k, self.config.rotary_base, x.dtype)

    def mask(
        self, t: int, s: int, queries: Tensor | None, keys: Tensor | None, causal: bool, prefix: Tensor | None = None
    ) -> Mask:
        """The mask for T queries and S keys of these lengths."""
        if self.training and self.config.attention_dropout and keys is not None and keys.dim() == 2:
            raise RegardError(
                f"attention_dropout={self.config.attention_dropout} is not possible with packed batches: set it to 0"
            )
        return choose_mask(t, s, queries, keys, causal, prefix)

    def allocate(self, batch: int, length: int) -> list[Room]:
        """Room for `length` tokens' keys and values in each decoder layer, [B, G, L, Dk] and [B, G, L, Dv]."""
        c, like = self.config, self.embedding.tokens.weight
        d_k, d_v, groups = c.widths
        return [
            Room(like.new_zeros(batch, groups, length, d_k), like.new_zeros(batch, groups, length, d_v))
            for _ in range(c.decoder_depth)
        ]


class Encoder(Transformer):
    """Every token sees every other: the shape of BERT."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.encoder = Stack(config, config.layers)

    def hidden(self, tokens: Tokens, lengths: Lengths | None = None) -> Hidden:
        """The last layer's vector for each token."""
        check_tokens(tokens, lengths)
        x, turns = self.embed(tokens, default_positions(tokens, lengths))
        t = tokens.size(1)
        return self.encoder(x, self.mask(t, t, lengths, lengths, causal=False), turns)

    def forward(self, tokens: Tokens, lengths: Lengths | None = None) -> Tensor:
        """Logits, [B, T, V] or with classes [B, classes]."""
        return self.head(self.hidden(tokens, lengths), lengths)


class Decoder(Transformer):
    """Every token sees those before it: the shape of GPT-2 and Llama."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.decoder = Stack(config, config.layers)

    def hidden(self, tokens: Tokens, lengths: Lengths | None = None, prefix: Lengths | None = None) -> Hidden:
        """The last layer's vector for each token. `prefix`: lengths of the part that sees itself whole."""
        check_tokens(tokens, lengths)
        self.check_prefix(prefix, tokens, lengths)
        x, turns = self.embed(tokens, default_positions(tokens, lengths))
        t = tokens.size(1)
        return self.decoder(x, self.mask(t, t, lengths, lengths, causal=True, prefix=prefix), turns)

    def forward(self, tokens: Tokens, lengths: Lengths | None = None, prefix: Lengths | None = None) -> Tensor:
        """Logits, [B, T, V] or with classes [B, classes]."""
        return self.head(self.hidden(tokens, lengths, prefix), lengths)

    @torch.no_grad()
    def start(self, batch: int, length: int) -> Cache:
        """An empty cache for `batch` rows of up to `length` tokens."""
        if self.config.classes:
            raise RegardError(f"a model with a head per sequence (classes={self.config.classes}) has no next token")
        return Cache(self.allocate(batch, length), [])

    @torch.no_grad()
    def step(
        self, tokens: Tokens, positions: Int[Tensor, "B T"], cache: Cache, prefix: Int[Tensor, " B"] | None = None
    ) -> Float[Tensor, "B T V"]:
        """Logits for new tokens at their positions, given what the cache holds; their keys and values are added.

        The first step takes whole prompts, padded on the right; each later one goes on behind a row's last token.
        """
        return self.head(self.extend(tokens, positions, cache, prefix))

    @torch.no_grad()
    def extend(
        self, tokens: Tokens, positions: Int[Tensor, "B T"], cache: Cache, prefix: Int[Tensor, " B"] | None = None
    ) -> Hidden:
        """A step without its head: the last layer's vector for each new token."""
        check_tokens(tokens, rows=cache.rows)
        check_positions(positions, tokens, cache)
        self.check_prefix(prefix)
        x, turns = self.embed(tokens, positions)
        return self.decoder(x, cached_mask(positions, cache.length, prefix), turns, cache=cache.at(positions))

    def check_prefix(self, prefix: Tensor | None, tokens: Tensor | None = None, lengths: Tensor | None = None) -> None:
        """A ValueError unless a prefix is given just where the model was made for one, for the sentences there are."""
        if self.config.prefix != (prefix is not None):
            given = "missing" if prefix is None else "given"
            raise RegardError(f"config.prefix is {self.config.prefix}, and prefix lengths are {given}")
        if prefix is not None and tokens is not None:
            packed = lengths is not None and lengths.dim() == 2
            check_lengths("prefix", prefix, tokens.size(1), dimensions=(2 if packed else 1,), rows=tokens.size(0))
            if lengths is not None and values_can_be_read() and (prefix > lengths).any():
                raise RegardError("a prefix is longer than its sentence: it would take in the padding behind it")


class EncoderDecoder(Transformer):
    """The paper's model: a decoder that sees what came before it and, through cross-attention, the whole source."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.encoder = Stack(config, config.layers)
        self.decoder = Stack(config, config.decoder_depth, cross=True)

    def encode(self, source: Int[Tensor, "B S"], lengths: Lengths | None = None) -> Float[Tensor, "B S C"]:
        """The encoder's vector for each token of the source."""
        check_tokens(source, lengths)
        x, turns = self.embed(source, default_positions(source, lengths))
        s = source.size(1)
        return self.encoder(x, self.mask(s, s, lengths, lengths, causal=False), turns)

    def hidden(
        self,
        source: Int[Tensor, "B S"],
        target: Int[Tensor, "B T"],
        source_lengths: Lengths | None = None,
        target_lengths: Lengths | None = None,
    ) -> Hidden:
        """The decoder's vector for each token of the target."""
        check_tokens(target, target_lengths, rows=source.size(0))
        memory = self.encode(source, source_lengths)  # [B, S, C]
        x, turns = self.embed(target, default_positions(target, target_lengths))
        t, s = target.size(1), source.size(1)
        own = self.mask(t, t, target_lengths, target_lengths, causal=True)
        cross = self.mask(t, s, target_lengths, source_lengths, causal=False)
        return self.decoder(x, own, turns, memory, cross)

    def forward(
        self,
        source: Int[Tensor, "B S"],
        target: Int[Tensor, "B T"],
        source_lengths: Lengths | None = None,
        target_lengths: Lengths | None = None,
    ) -> Float[Tensor, "B T V"]:
        """Logits for the token that follows each token of the target."""
        return self.head(self.hidden(source, target, source_lengths, target_lengths))

    @torch.no_grad()
    def start(self, source: Int[Tensor, "B S"], length: int, lengths: Int[Tensor, " B"] | None = None) -> Cache:
        """Encode the sources, compute every layer's cross-attention keys and values once, make room for `length`
        tokens of target in each row."""
        memory = self.encode(source, lengths)
        attentions = [layer.cross_attention for layer in self.decoder.layers if layer.cross_attention is not None]
        cross = [KeyValues(*attention.keys_and_values(memory, memory)) for attention in attentions]
        full = lengths is None or (lengths.device.type == "cpu" and bool((lengths == source.size(1)).all()))
        mask = None if lengths is None or full else padding_mask(lengths, source.size(1))
        return Cache(self.allocate(source.size(0), length), cross, mask)

    @torch.no_grad()
    def step(self, tokens: Tokens, positions: Int[Tensor, "B T"], cache: Cache) -> Float[Tensor, "B T V"]:
        """Logits for new target tokens at their positions, given what the cache holds; the cache takes them in."""
        check_tokens(tokens, rows=cache.rows)
        check_positions(positions, tokens, cache)
        x, turns = self.embed(tokens, positions)
        mask = cached_mask(positions, cache.length)
        hidden = self.decoder(x, mask, turns, memory_mask=cache.source_mask, cache=cache.at(positions))
        return self.head(hidden)


class OutputTransform(nn.Module):
    """A dense layer, the model's activation and a norm between the last layer and the output: BERT's."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.d_model, config.d_model)
        self.activation = ACTIVATIONS[config.activation]
        self.norm = norm(config)

    def forward(self, hidden: Hidden) -> Hidden:
        """The vectors that the output layer reads."""
        return self.norm(self.activation(self.dense(hidden)))


class SequenceHead(nn.Module):
    """One set of logits for a whole sequence: from an encoder's first vector through a tanh layer, as BERT does, or
    from the vector of a decoder's last real token, the only one that has seen it all."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.pool = nn.Linear(config.d_model, config.d_model) if config.kind == "encoder" else None
        self.dropout = Dropout(config.dropout)
        self.classes = nn.Linear(config.d_model, config.classes)

    def forward(self, hidden: Hidden, lengths: Int[Tensor, " B"] | None = None) -> Float[Tensor, "B K"]:
        """Logits over the classes, [B, classes]."""
        if lengths is not None and lengths.dim() == 2:
            raise RegardError("a head per sequence reads one sequence a row: packed rows have many")
        if self.pool is not None:
            pooled = self.pool(hidden[:, 0]).tanh()  # [B, C]
        elif lengths is None:
            pooled = hidden[:, -1]
        else:
            check_range("last token", lengths - 1, hidden.size(1), "a sequence without tokens has no class")
            pooled = hidden[torch.arange(len(lengths), device=lengths.device), lengths - 1]  # [B, C]
        return self.classes(self.dropout(pooled))


Network = Encoder | Decoder | EncoderDecoder


def build(config: ModelConfig | str) -> Network:
    """The model that a config or the name of a preset describes, with fresh weights from torch's random state."""
    config = preset(config) if isinstance(config, str) else config
    kinds: dict[str, type[Network]]
    kinds = {"encoder": Encoder, "decoder": Decoder, "encoder-decoder": EncoderDecoder}
    model = kinds[config.kind](config)
    if not model.embedding.tokens.weight.is_meta:  # there are no weights there, and to fill them in takes seconds
        initialise(model)
    return model


@torch.no_grad()
def initialise(model: Transformer) -> None:
    """Fresh weights, for the two families of models; biases zero, norms one.

    With scaled embeddings (the paper's): linear layers after Glorot and Bengio, embeddings N(0, 1/d_model), so that
    scaled they are N(0, 1). Without (GPT-2, BERT, Llama): all N(0, 0.02), and before pre-norm sums those that write
    into the residual smaller by √(number of such sums), so that the sum keeps its size with depth.
    """
    scaled = model.config.scale_embeddings
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight) if scaled else nn.init.normal_(module.weight, std=0.02)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.LayerNorm | nn.RMSNorm):
            module.reset_parameters()
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=model.config.d_model**-0.5 if scaled else 0.02)
            if module.padding_idx is not None:
                module.weight[module.padding_idx].zero_()
    if not scaled and model.config.norm == "pre":
        for stack in (module for module in model.modules() if isinstance(module, Stack)):
            writers = [linear for layer in stack.layers for linear in layer.writers()]
            for linear in writers:
                linear.weight.div_(math.sqrt(len(writers)))


def default_positions(tokens: Tokens, lengths: Tensor | None) -> Int[Tensor, " T"] | Int[Tensor, "B T"]:
    """0, 1, 2, … along each row or, in packed rows, anew for each sentence."""
    if lengths is None or lengths.dim() == 1:
        return torch.arange(tokens.size(1), device=tokens.device)
    return places(lengths, tokens.size(1))[1]


def check_tokens(tokens: Tensor, lengths: Tensor | None = None, rows: int | None = None) -> None:
    """A ValueError unless these are token ids in rows (so many of them), and the lengths are theirs."""
    check_integers("token ids", tokens)
    if tokens.dim() != 2:
        raise RegardError(f"token ids must be [rows, tokens], and these are {list(tokens.shape)}")
    if rows is not None and tokens.size(0) != rows:
        raise RegardError(f"here are {tokens.size(0)} rows of tokens, and {rows} of their source or in the cache")
    if lengths is not None:
        check_lengths("lengths", lengths, tokens.size(1), dimensions=(1, 2), rows=tokens.size(0))


def check_positions(positions: Tensor, tokens: Tensor, cache: Cache) -> None:
    """A ValueError unless there is one position for each token, and a place for it in the cache."""
    check_integers("positions", positions)
    if positions.shape != tokens.shape:
        raise RegardError(f"positions {list(positions.shape)} must be given for each token {list(tokens.shape)}")
    check_range("position", positions, cache.length, "the cache has no more places")
