"""Layers against PyTorch's own, both orders of normalisation; feed-forward by its formula."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.model.layers import Dropout, FeedForward, Layer, Stack
from regard.model.masks import causal_mask
from tests.support.oracles import (
    copy_parts,
    layer_parts,
    randomise,
    run,
    same,
    same_gradients,
    small,
)

DTYPES = [torch.float64, torch.float32]


def twins(
    kind: type, norm: str, activation: str, dtype: torch.dtype
) -> tuple[nn.TransformerEncoderLayer | nn.TransformerDecoderLayer, Layer]:
    """A layer of PyTorch's and one of ours with the same random weights."""
    act = "relu" if activation == "relu" else F.gelu
    theirs = kind(24, 4, 40, dropout=0.0, activation=act, batch_first=True, norm_first=norm == "pre", dtype=dtype)
    ours = Layer(small(norm=norm, activation=activation), cross=kind is nn.TransformerDecoderLayer).to(dtype)
    randomise([theirs])
    copy_parts(*layer_parts(theirs, ours))
    return theirs, ours


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("masked", [False, True])
def test_encoder_layer(norm: str, activation: str, dtype: torch.dtype, masked: bool) -> None:
    theirs, ours = twins(nn.TransformerEncoderLayer, norm, activation, dtype)
    x, towards = torch.randn(3, 5, 24, dtype=dtype), torch.randn(3, 5, 24, dtype=dtype)
    mask = causal_mask(5) if masked else None
    right, (right_x,) = run(lambda x: theirs(x, None if mask is None else ~mask), [x], towards)
    mine, (my_x,) = run(lambda x: ours(x, mask), [x], towards)
    same(right, mine)
    same(right_x, my_x)
    same_gradients(*layer_parts(theirs, ours))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_decoder_layer(norm: str, activation: str, dtype: torch.dtype) -> None:
    theirs, ours = twins(nn.TransformerDecoderLayer, norm, activation, dtype)
    x, memory, towards = (torch.randn(3, n, 24, dtype=dtype) for n in (5, 7, 5))
    padding = torch.arange(7) < torch.tensor([7, 4, 2])[:, None]  # [B, S]
    seen, source = causal_mask(5), padding[:, None, None]

    def call_theirs(x: Tensor, memory: Tensor) -> Tensor:
        return theirs(x, memory, tgt_mask=~seen, memory_key_padding_mask=~padding)

    right, right_inputs = run(call_theirs, [x, memory], towards)
    mine, my_inputs = run(lambda x, m: ours(x, "causal", memory=m, memory_mask=source), [x, memory], towards)
    same(right, mine)
    for pair in zip(right_inputs, my_inputs, strict=True):
        same(*pair)
    same_gradients(*layer_parts(theirs, ours))


def test_a_pre_norm_stack_ends_with_a_norm() -> None:
    theirs = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(24, 4, 40, dropout=0.0, batch_first=True, norm_first=True, dtype=torch.float64),
        num_layers=2,
        norm=nn.LayerNorm(24, dtype=torch.float64),
        enable_nested_tensor=False,
    )
    randomise([theirs])
    ours = Stack(small(norm="pre"), 2).double()
    for right, mine in zip(theirs.layers, ours.layers, strict=True):
        assert isinstance(right, nn.TransformerEncoderLayer)
        copy_parts(*layer_parts(right, mine))
    assert theirs.norm is not None
    ours.norm.load_state_dict(theirs.norm.state_dict())
    x = torch.randn(3, 5, 24, dtype=torch.float64)
    same(theirs(x), ours(x))


@pytest.mark.parametrize(
    ("activation", "formula"),
    [
        ("relu", lambda x: x * (x > 0)),
        ("gelu", lambda x: x * torch.distributions.Normal(0.0, 1.0).cdf(x)),
        ("gelu-tanh", lambda x: x / 2 * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3)))),
        ("silu", lambda x: x / (1 + torch.exp(-x))),
    ],
)
def test_feed_forward(activation: str, formula: object) -> None:
    network = FeedForward(small(activation=activation)).double()
    x = torch.randn(2, 5, 24, dtype=torch.float64)
    up = x @ network.up.weight.T + network.up.bias
    wanted = formula(up) @ network.down.weight.T + network.down.bias  # type: ignore[operator]
    torch.testing.assert_close(network(x), wanted)


def test_swiglu_multiplies_by_its_gate() -> None:
    network = FeedForward(small(activation="swiglu", bias=False)).double()
    assert network.gate is not None
    x = torch.randn(2, 5, 24, dtype=torch.float64)
    gate = x @ network.gate.weight.T
    wanted = (gate / (1 + torch.exp(-gate)) * (x @ network.up.weight.T)) @ network.down.weight.T
    torch.testing.assert_close(network(x), wanted)


def test_rms_norm_divides_by_the_root_mean_square() -> None:
    layer = Layer(small(norm="pre", norm_kind="rms"))
    x = torch.randn(2, 5, 24)
    torch.testing.assert_close(layer.attention_norm(x), x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt())


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_dropout_applies_to_each_sublayers_output(norm: str) -> None:
    """With (nearly) everything dropped, what is left of a sub-layer is its residual, and of a post-norm its norm."""
    layer = Layer(small(norm=norm, dropout=1 - 1e-12), cross=True)
    x, memory = torch.randn(2, 5, 24), torch.randn(2, 7, 24)
    wanted = x
    if norm == "post":
        for each in (layer.attention_norm, layer.cross_attention_norm, layer.feed_forward_norm):
            assert each is not None
            wanted = each(wanted)
    torch.testing.assert_close(layer(x, memory=memory), wanted)


def test_elements_kept_by_dropout_are_rescaled() -> None:
    layer, x = Layer(small(norm="pre", dropout=0.3)), torch.zeros(8, 50, 24)
    added = layer.residual(x, torch.nn.Identity(), torch.ones_like)
    assert sorted(added.unique().tolist()) == pytest.approx([0.0, 1 / 0.7])
    assert (added == 0).float().mean().item() == pytest.approx(0.3, abs=0.02)


def test_attention_dropout_is_a_separate_setting() -> None:
    layer = Layer(small(dropout=0.3, attention_dropout=0.2), cross=True)
    assert layer.cross_attention is not None
    assert (layer.attention.dropout, layer.cross_attention.dropout, layer.dropout.p) == (0.2, 0.2, 0.3)


@pytest.mark.parametrize("p", [0.1, 0.3, 0.75])
def test_dropout_drops_the_right_fraction_and_keeps_the_mean(p: float) -> None:
    dropout = Dropout(p).train()
    x = torch.ones(1_000, 1_001, requires_grad=True)
    y = dropout(x)
    dropped = (y == 0).double()
    assert abs(float(dropped.mean()) - p) < 0.002
    assert torch.equal(y[y != 0].unique(), torch.tensor([1 / (1 - p)]))
    # no four that share a draw, and no neighbours in a row or column, know of each other
    for step in (1, 2, 3, 4, 1_001):
        flat = dropped.flatten()
        assert abs(float((flat[:-step] * flat[step:]).mean()) - p * p) < 0.003
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(gradient, y.detach())
    assert not torch.equal(dropout(x), y)
    torch.manual_seed(0)
    again = dropout(x)
    torch.manual_seed(0)
    assert torch.equal(dropout(x), again)
    assert dropout.eval()(x) is x


def test_the_papers_formulas_have_biases_in_the_feed_forward_network_only() -> None:
    """Section 3.2.2 and equation 2, written out: MultiHead has four matrices, and FFN(x) = max(0, xW₁ + b₁)W₂ + b₂."""
    layer = Layer(small(attention_bias=False)).double()
    randomise([layer])
    names = {name.rsplit(".", 1)[0] for name, _ in layer.named_parameters() if name.endswith(".bias")}
    assert names == {"attention_norm", "feed_forward.up", "feed_forward.down", "feed_forward_norm"}
    x = torch.randn(5, 24, dtype=torch.float64)
    mha, network, width = layer.attention, layer.feed_forward, 24 // 4
    heads = []
    for i in range(4):
        rows = slice(i * width, (i + 1) * width)
        q, k, v = (x @ each.weight[rows].T for each in (mha.q, mha.k, mha.v))
        heads.append((q @ k.T / width**0.5).softmax(-1) @ v)
    y = layer.attention_norm(x + torch.cat(heads, -1) @ mha.out.weight.T)
    inner = (y @ network.up.weight.T + network.up.bias).clamp(min=0)
    wanted = layer.feed_forward_norm(y + inner @ network.down.weight.T + network.down.bias)
    torch.testing.assert_close(layer.eval()(x[None])[0], wanted)
