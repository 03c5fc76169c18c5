"""Transformers that others write, as Regard models with the same weights: torch's own, and one in the style of
"The Annotated Transformer", written here from the paper's formulas."""

import math
from typing import Literal

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.config import ModelConfig
from regard.model.layers import FeedForward
from regard.model.masks import causal_mask
from regard.model.transformer import EncoderDecoder
from tests.support.oracles import (
    Attentions,
    Others,
    copy_parts,
    gradient,
    layer_parts,
    randomise,
    same,
    same_gradients,
    small,
)

pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")  # torch says why it uses no fast path

SOURCE_LENGTHS, TARGET_LENGTHS = torch.tensor([7, 4, 1]), torch.tensor([5, 2, 4])
VOCABULARY = 41


def sentences(length: int, vocabulary: int = VOCABULARY) -> Tensor:
    return torch.randint(0, vocabulary - 1, (3, length))


def real_tokens(lengths: Tensor, length: int) -> Tensor:
    return torch.arange(length) < lengths[:, None]  # [B, T]


@pytest.mark.long
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_torchs_transformer_with_its_default_arguments(norm: Literal["post", "pre"]) -> None:
    """Only the order of norms differs from the defaults, and only in one of the cases."""
    theirs = nn.Transformer(norm_first=norm == "pre", batch_first=True).double()
    config = ModelConfig(
        vocab_size=VOCABULARY, norm=norm, final_norm=True, dropout=0.1, attention_dropout=0.1, feed_forward_dropout=0.1
    )
    ours = EncoderDecoder(config).double()
    check_same_function(theirs, ours)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_a_small_torch_transformer(norm: Literal["post", "pre"], activation: Literal["relu", "gelu"]) -> None:
    theirs = nn.Transformer(
        24, 4, 2, 3, 40, activation=activation, norm_first=norm == "pre", layer_norm_eps=1e-3, batch_first=True
    ).double()
    config = small(
        vocab_size=VOCABULARY, decoder_layers=3, activation=activation, norm=norm, norm_eps=1e-3, final_norm=True
    )
    check_same_function(theirs, EncoderDecoder(config).double())


def check_same_function(theirs: nn.Transformer, ours: EncoderDecoder) -> None:
    """Outputs of real tokens and the gradients of all weights are equal, with padding on both sides."""
    randomise([theirs])
    parts = corresponding_parts(theirs, ours)
    copy_parts(*parts)
    theirs.eval()
    ours.eval()
    source, target = sentences(7), sentences(5)
    read, written = real_tokens(SOURCE_LENGTHS, 7), real_tokens(TARGET_LENGTHS, 5)
    x, y = (ours.embedding(tokens, torch.arange(tokens.size(1))).detach() for tokens in (source, target))
    right = theirs(
        x,
        y,
        tgt_mask=~causal_mask(5),
        src_key_padding_mask=~read,
        tgt_key_padding_mask=~written,
        memory_key_padding_mask=~read,
    )
    mine = ours.hidden(source, target, SOURCE_LENGTHS, TARGET_LENGTHS)
    same(right[written], mine[written])
    towards = torch.randn_like(mine[written])
    torch.autograd.backward(right[written], towards)
    torch.autograd.backward(mine[written], towards)
    same_gradients(*parts)


def corresponding_parts(theirs: nn.Transformer, ours: EncoderDecoder) -> tuple[Attentions, Others]:
    attentions: Attentions = []
    others: Others = []
    for their_stack, our_stack in ((theirs.encoder, ours.encoder), (theirs.decoder, ours.decoder)):
        assert isinstance(their_stack, nn.TransformerEncoder | nn.TransformerDecoder)
        for their_layer, our_layer in zip(their_stack.layers, our_stack.layers, strict=True):
            assert isinstance(their_layer, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer)
            layer_attentions, layer_others = layer_parts(their_layer, our_layer)
            attentions += layer_attentions
            others += layer_others
        assert their_stack.norm is not None
        others.append((their_stack.norm, our_stack.norm))
    return attentions, others


class Annotated(nn.Module):
    """An encoder–decoder in the style of "The Annotated Transformer": pre-norm layers, biases everywhere, positions
    from a table, one linear layer at the end. Its layer norm divides by the square root of variance + eps. Without
    `target_vocabulary`, source and target share one embedding. The last id is never predicted."""

    def __init__(
        self,
        vocabulary: int,
        depth: int,
        d_model: int,
        d_ff: int,
        heads: int,
        target_vocabulary: int | None = None,
        tied: bool = False,
        attention_bias: bool = True,
        feed_bias: bool = True,
    ) -> None:
        super().__init__()
        self.heads, self.depth, self.d_model = heads, depth, d_model
        self.source_lookup = nn.Embedding(vocabulary, d_model)
        self.separate = target_vocabulary is not None
        self.target_lookup = nn.Embedding(target_vocabulary, d_model) if target_vocabulary else self.source_lookup
        self.bias = nn.Parameter(torch.empty(self.target_lookup.num_embeddings - 1))
        self.generator = None if tied else nn.Parameter(torch.empty(len(self.bias), d_model))
        widths = {"q": (d_model, d_model), "k": (d_model, d_model), "v": (d_model, d_model), "o": (d_model, d_model)}
        feed = {"w1": (d_model, d_ff), "w2": (d_ff, d_model)}
        self.linears, self.norms = nn.ModuleDict(), nn.ParameterDict()
        for side, attentions in (("encoder", ["self"]), ("decoder", ["self", "source"])):
            for i in range(depth):
                for kind in attentions:
                    for name, (rows, columns) in widths.items():
                        self.linears[f"{side}{i}{kind}{name}"] = nn.Linear(rows, columns, bias=attention_bias)
                for name, (rows, columns) in feed.items():
                    self.linears[f"{side}{i}{name}"] = nn.Linear(rows, columns, bias=feed_bias)
                for kind in (*attentions, "feed"):
                    self.add_norm(f"{side}{i}{kind}")
            self.add_norm(side)

    def add_norm(self, name: str) -> None:
        self.norms[f"{name}-weight"] = nn.Parameter(torch.empty(self.d_model))
        self.norms[f"{name}-bias"] = nn.Parameter(torch.empty(self.d_model))

    def forward(self, source: Tensor, target: Tensor, source_mask: Tensor, target_mask: Tensor) -> Tensor:
        memory = self.embed(self.source_lookup(source))
        for i in range(self.depth):
            name = f"encoder{i}"
            y = self.norm(f"{name}self", memory)
            memory = memory + self.attend(f"{name}self", y, y, source_mask)
            memory = memory + self.feed(name, self.norm(f"{name}feed", memory))
        memory = self.norm("encoder", memory)
        x = self.embed(self.target_lookup(target))
        for i in range(self.depth):
            name = f"decoder{i}"
            y = self.norm(f"{name}self", x)
            x = x + self.attend(f"{name}self", y, y, target_mask)
            x = x + self.attend(f"{name}source", self.norm(f"{name}source", x), memory, source_mask)
            x = x + self.feed(name, self.norm(f"{name}feed", x))
        matrix = self.target_lookup.weight[:-1] if self.generator is None else self.generator
        return F.log_softmax(self.norm("decoder", x) @ matrix.T + self.bias, -1)

    def embed(self, vectors: Tensor) -> Tensor:
        position = torch.arange(vectors.size(1), dtype=torch.float64)[:, None]
        rate = torch.exp(torch.arange(0, self.d_model, 2, dtype=torch.float64) * -(math.log(10000.0) / self.d_model))
        table = torch.zeros(vectors.size(1), self.d_model, dtype=torch.float64)
        table[:, 0::2], table[:, 1::2] = torch.sin(position * rate), torch.cos(position * rate)
        return vectors * math.sqrt(self.d_model) + table

    def norm(self, name: str, x: Tensor) -> Tensor:
        gain, shift = self.norms[f"{name}-weight"], self.norms[f"{name}-bias"]
        variance = (x - x.mean(-1, keepdim=True)).square().mean(-1, keepdim=True)
        return gain * (x - x.mean(-1, keepdim=True)) / torch.sqrt(variance + 1e-6) + shift

    def attend(self, name: str, queries: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        rows = queries.size(0)
        q, k, v = (
            self.linears[name + part](x).view(rows, -1, self.heads, self.d_model // self.heads).transpose(1, 2)
            for part, x in (("q", queries), ("k", memory), ("v", memory))
        )
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.size(-1))
        scores = scores.masked_fill(mask[:, None] == 0, -1e9)
        x = torch.matmul(F.softmax(scores, dim=-1), v)
        return self.linears[name + "o"](x.transpose(1, 2).contiguous().view(rows, -1, self.d_model))

    def feed(self, name: str, x: Tensor) -> Tensor:
        return self.linears[f"{name}w2"](torch.relu(self.linears[f"{name}w1"](x)))


@pytest.mark.parametrize("target_vocabulary", [None, 53, 29])
@pytest.mark.parametrize("tied", [False, True])
def test_a_model_in_the_style_of_the_annotated_transformer(target_vocabulary: int | None, tied: bool) -> None:
    """Source and target share an embedding, or each has its own; the output layer may be tied to the target's."""
    theirs = Annotated(VOCABULARY, 2, 24, 40, heads=4, target_vocabulary=target_vocabulary, tied=tied).double()
    dropout = {"attention_dropout": 0.1, "feed_forward_dropout": 0.1}  # not active here
    check_same_as_annotated(theirs, annotated_config(target_vocab_size=target_vocabulary, tied=tied, **dropout))


@pytest.mark.parametrize("attention", [False, True])
@pytest.mark.parametrize("feed", [False, True])
def test_biases_of_attention_and_feed_forward_network_are_independent(attention: bool, feed: bool) -> None:
    theirs = Annotated(VOCABULARY, 1, 24, 40, heads=4, attention_bias=attention, feed_bias=feed).double()
    check_same_as_annotated(theirs, annotated_config(layers=1, bias=feed, attention_bias=attention))
    if attention == feed:
        check_same_as_annotated(theirs, annotated_config(layers=1, bias=feed))


def annotated_config(**changes: object) -> ModelConfig:
    shape = {"vocab_size": VOCABULARY, "norm": "pre", "norm_eps": 1e-6, "tied": False, "output_bias": True}
    return small(**shape | changes)


def check_same_as_annotated(theirs: Annotated, config: ModelConfig) -> None:
    """Log-probabilities of real tokens and the gradients of all weights are equal, with padding on both sides."""
    ours = EncoderDecoder(config).double().eval()
    randomise([theirs])
    weights = annotated_weights(theirs)
    ours.load_state_dict({name: weight.detach() for name, weight in weights.items()})
    source, target = sentences(7), sentences(5, config.output_vocab_size)
    read, written = real_tokens(SOURCE_LENGTHS, 7), real_tokens(TARGET_LENGTHS, 5)
    right = theirs(source, target, read[:, None], written[:, None] & torch.ones(5, 5).tril().bool())
    mine = ours(source, target, SOURCE_LENGTHS, TARGET_LENGTHS).log_softmax(-1)
    same(right[written], mine[written])
    towards = torch.randn_like(mine[written])
    gradients = torch.autograd.grad(right[written], list(weights.values()), towards)
    torch.autograd.backward(mine[written], towards)
    for (name, parameter), right_gradient in zip(
        ours.named_parameters(), ordered(weights, gradients, ours), strict=True
    ):
        if name.endswith("embedding.tokens.weight"):
            assert not right_gradient[-1].any()  # of <pad>, which is neither read nor predicted
        same(right_gradient, gradient(parameter))


def ordered(weights: dict[str, Tensor], gradients: tuple[Tensor, ...], model: nn.Module) -> list[Tensor]:
    """The gradients in the order of the model's parameters."""
    by_name = dict(zip(weights, gradients, strict=True))
    return [by_name[name] for name, _ in model.named_parameters()]


def annotated_weights(theirs: Annotated) -> dict[str, Tensor]:
    """The weights of the model above, by the names of Regard's. Gradients flow back to them."""
    weights = {
        "embedding.tokens.weight": theirs.source_lookup.weight,
        "output_bias": theirs.bias,
    }
    if theirs.separate:
        weights["target_embedding.tokens.weight"] = theirs.target_lookup.weight
    if theirs.generator is not None:
        weights["output.weight"] = theirs.generator

    def add(name: str, module: nn.Module) -> None:
        weights.update({f"{name}.{key}": parameter for key, parameter in module.named_parameters()})

    def add_norm(name: str, key: str) -> None:
        for kind in ("weight", "bias"):
            weights[f"{name}.{kind}"] = theirs.norms[f"{key}-{kind}"]

    for side, attentions in (("encoder", ["self"]), ("decoder", ["self", "source"])):
        add_norm(f"{side}.norm", side)
        for i in range(theirs.depth):
            layer, key = f"{side}.layers.{i}", f"{side}{i}"
            for kind in attentions:
                name = f"{layer}.{'attention' if kind == 'self' else 'cross_attention'}"
                for part, ours in zip("qkvo", ("q", "k", "v", "out"), strict=True):
                    add(f"{name}.{ours}", theirs.linears[f"{key}{kind}{part}"])
                add_norm(f"{name}_norm", f"{key}{kind}")
            add(f"{layer}.feed_forward.up", theirs.linears[f"{key}w1"])
            add(f"{layer}.feed_forward.down", theirs.linears[f"{key}w2"])
            add_norm(f"{layer}.feed_forward_norm", f"{key}feed")
    return weights


def test_dropout_within_the_feed_forward_network() -> None:
    config = ModelConfig(vocab_size=9, d_model=8, heads=2, d_ff=64, dropout=0.0, feed_forward_dropout=0.5)
    layer = FeedForward(config)
    x = torch.randn(2, 3, 8)
    torch.manual_seed(1)
    mine = layer(x)
    torch.manual_seed(1)
    inner = layer.up(x).relu()
    expected = layer.down(layer.dropout(inner))
    torch.testing.assert_close(mine, expected)
    assert not torch.allclose(mine, layer.eval()(x))
