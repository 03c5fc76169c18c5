"""Biases on the scores: ALiBi compared with Bloom, T5's bias with T5, both in `transformers`, and both paths."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from regard.config import ModelConfig
from regard.model.attention import MultiHeadAttention, attention, fast_attention
from regard.model.layers import Stack
from regard.model.masks import BiasedMask, PlainMask, biased_mask
from regard.model.score_bias import AlibiBias, alibi_slopes, distance_buckets
from regard.model.transformer import build
from regard.model.watch import watch
from tests.support.attention_cases import MASKS, make_mask
from tests.support.networks import ids
from tests.support.oracles import gradient, randomise, small

ATOL = 1e-6
"""T5's norms and Bloom's slopes are computed in float32, also in a model in float64."""


# The bias itself


def test_the_slopes_of_the_paper() -> None:
    """Press et al. 2022, section 3: for 8 heads 1/2 … 1/256; for 16 heads also those between."""
    assert alibi_slopes(8, torch.float64).tolist() == [2.0**-n for n in range(1, 9)]
    assert alibi_slopes(16, torch.float64).tolist() == pytest.approx([2 ** (-n / 2) for n in range(1, 17)], rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("heads", [1, 2, 3, 4, 6, 7, 12, 20, 40])
def test_slopes_for_any_number_of_heads_equal_blooms(heads: int) -> None:
    bloom = pytest.importorskip("transformers.models.bloom.modeling_bloom")
    theirs = bloom.build_alibi_tensor(torch.ones(1, 2, dtype=torch.long), heads, torch.float32)  # slope · position
    torch.testing.assert_close(alibi_slopes(heads, torch.float32), theirs[:, 0, 1], rtol=1e-6, atol=0)


def test_alibi_in_both_directions() -> None:
    """Minus the slope times the distance, by loops; rows may have positions of their own, as in packed rows."""
    queries, keys = torch.tensor([[0, 1, 2, 0], [5, 6, 0, 1]]), torch.tensor([[0, 1, 9], [4, 0, 2]])
    bias = AlibiBias(3)(queries, keys, torch.float64)
    for b in range(2):
        for h, slope in enumerate([1 / 16, 1 / 256, 1 / 4]):
            for i, query in enumerate(queries[b].tolist()):
                for j, key in enumerate(keys[b].tolist()):
                    assert bias[b, h, i, j].item() == pytest.approx(-slope * abs(query - key), rel=1e-12)
    assert torch.equal(AlibiBias(3)(queries[0], keys[0], torch.float64), bias[0])


def test_alibi_is_rounded_once() -> None:
    """Computed in float32 for a model in bfloat16, in which positions 256 and 257 are the same number."""
    positions = torch.tensor([256, 257])
    bias = AlibiBias(1)(positions, positions, torch.bfloat16)
    assert bias.dtype == torch.bfloat16
    assert bias[0].tolist() == [[0, -(2.0**-8)], [-(2.0**-8), 0]]


@pytest.mark.slow
@given(
    positions=st.lists(st.integers(0, 2_000), min_size=1, max_size=30),
    half=st.integers(2, 40),
    more=st.integers(1, 300),
    causal=st.booleans(),
)
def test_buckets_equal_t5s(positions: list[int], half: int, more: int, causal: bool) -> None:
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5")
    at = torch.tensor(positions)
    distance = at[None] - at[:, None]
    theirs = t5.T5Attention._relative_position_bucket(distance, not causal, 2 * half, half + more)
    assert torch.equal(distance_buckets(distance, 2 * half, half + more, causal), theirs)


# Both paths


def attend(
    path: Callable[..., Any], inputs: list[Tensor], mask: PlainMask, scale: float | None, towards: Tensor
) -> list[Tensor]:
    """The output of a path with a bias, the last of the inputs, and the gradients of all inputs."""
    q, k, v, bias = inputs = [x.clone().requires_grad_() for x in inputs]
    output = path(q, k, v, biased_mask(mask, bias, len(q)), 0.0, scale)
    output = output[0] if isinstance(output, tuple) else output
    return [output.detach(), *torch.autograd.grad(output, inputs, towards)]


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("per_row", [False, True])
def test_both_paths_equal_the_formula(kind: str, per_row: bool) -> None:
    """Output and gradients, of the bias too, in float64; a query that sees nothing has an output of zero."""
    b, h, groups, t, s = 3, 4, 2, 7, 7
    q, k, v = (torch.randn(b, n, t, 8, dtype=torch.float64) for n in (h, groups, groups))
    bias = torch.randn((b, h, t, s) if per_row else (h, t, s), dtype=torch.float64)
    mask, scale, towards = make_mask(kind, b, h, t, s), 0.7, torch.randn_like(q)
    hidden = torch.zeros(t, s, dtype=torch.bool)
    if kind == "causal":
        hidden = torch.ones(t, s, dtype=torch.bool).triu(1)
    elif isinstance(mask, Tensor):
        hidden = ~mask

    def formula(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        scores = scale * q @ k.repeat_interleave(2, 1).mT + bias
        powers = scores.exp().masked_fill(hidden, 0.0)
        return powers / powers.sum(-1, keepdim=True).clamp(min=1e-100) @ v.repeat_interleave(2, 1)

    inputs = [x.clone().requires_grad_() for x in (q, k, v, bias)]
    output = formula(*inputs)
    wanted = [output.detach(), *torch.autograd.grad(output, inputs, towards)]
    for path in (attention, fast_attention):
        for ours, right in zip(attend(path, [q, k, v, bias], mask, scale, towards), wanted, strict=True):
            torch.testing.assert_close(ours, right, rtol=0, atol=1e-12)


@pytest.mark.parametrize("path", [attention, fast_attention])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_query_that_sees_nothing(path: Callable[..., Any], dtype: torch.dtype) -> None:
    q, k, v, bias = (torch.randn(2, 3, 5, n, dtype=dtype) for n in (8, 8, 8, 5))
    mask = torch.ones(2, 1, 5, 5, dtype=torch.bool)
    mask[0, :, 2] = False
    with torch.autograd.set_detect_anomaly(True):
        output, *gradients = attend(path, [q, k, v, bias], mask, None, torch.ones_like(q))
    assert (output[0, :, 2] == 0).all()
    assert (output[0, :, 1] != 0).all()
    assert all(each.isfinite().all() for each in gradients)


@pytest.mark.parametrize("path", [attention, fast_attention])
def test_the_scale_equals_pytorchs(path: Callable[..., Any]) -> None:
    q, k, v = (torch.randn(2, 3, n, 8, dtype=torch.float64) for n in (5, 7, 7))
    mask = torch.rand(2, 1, 5, 7) > 0.3
    mask[..., 0] = True
    for scale in (None, 1.0, 0.05):
        output = path(q, k, v, mask, 0.0, scale)
        wanted = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, scale=scale)
        torch.testing.assert_close(output[0] if isinstance(output, tuple) else output, wanted, rtol=0, atol=1e-12)
    heads = MultiHeadAttention(12, 3, scale=0.3).double()
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    scaled = heads(x, x, x)
    torch.testing.assert_close(heads(x, x, x, return_weights=True)[0], scaled, rtol=0, atol=1e-12)
    with torch.no_grad():
        heads.scale = None
        for parameter in heads.q.parameters():
            parameter.mul_(0.3 * math.sqrt(4))
    torch.testing.assert_close(heads(x, x, x), scaled, rtol=0, atol=1e-12)


def test_the_bias_is_computed_once_per_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[BiasedMask] = []

    def count(*arguments: Any) -> BiasedMask:
        calls.append(biased_mask(*arguments))
        return calls[-1]

    monkeypatch.setattr("regard.model.layers.biased_mask", count)
    build(small(positions="t5", layers=3))(ids(2, 5), ids(2, 6))
    assert [tuple(call.bias.shape) for call in calls] == [(4, 5, 5), (4, 6, 6)]


# Whole models


def t5_names(layers: int) -> dict[str, str]:
    """The names of T5's weights here and there."""
    names = {"embedding.tokens": "shared", "output": "lm_head"}
    for stack, has_cross in (("encoder", False), ("decoder", True)):
        first = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias"
        names |= {f"{stack}.norm": f"{stack}.final_layer_norm", f"{stack}.score_bias.table": first}
        for i in range(layers):
            ours, theirs = f"{stack}.layers.{i}", f"{stack}.block.{i}.layer"
            sublayers = [("attention", "SelfAttention")] + [("cross_attention", "EncDecAttention")] * has_cross
            for number, (our_name, their_name) in enumerate(sublayers):
                names[f"{ours}.{our_name}_norm"] = f"{theirs}.{number}.layer_norm"
                for part, their_part in {"q": "q", "k": "k", "v": "v", "out": "o"}.items():
                    names[f"{ours}.{our_name}.{part}"] = f"{theirs}.{number}.{their_name}.{their_part}"
            last = f"{theirs}.{len(sublayers)}"
            names[f"{ours}.feed_forward_norm"] = f"{last}.layer_norm"
            names |= {
                f"{ours}.feed_forward.{a}": f"{last}.DenseReluDense.{b}" for a, b in (("up", "wi"), ("down", "wo"))
            }
    return {f"{ours}.weight": f"{theirs}.weight" for ours, theirs in names.items()}


@pytest.mark.slow
def test_t5_equals_transformers() -> None:
    """Logits, weights and gradients, the tables' included, with sources of different lengths."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(1)
    config = small(
        norm="pre", norm_kind="rms", norm_eps=1e-6, bias=False, tied=False, scale_embeddings=False, pad=None,
        positions="t5", relative_buckets=8, relative_distance=10, attention_scale=1.0, d_k=5, d_v=5,
    )  # fmt: skip
    their_config = transformers.T5Config(
        vocab_size=config.vocab_size, d_model=config.d_model, d_kv=5, d_ff=config.d_ff, num_layers=config.layers,
        num_heads=config.heads, relative_attention_num_buckets=8, relative_attention_max_distance=10,
        tie_word_embeddings=False, attn_implementation="eager",
    )  # fmt: skip
    theirs = transformers.T5ForConditionalGeneration(their_config).double().eval()
    theirs.lm_head.weight = nn.Parameter(theirs.lm_head.weight.clone())  # some versions tie it in spite of the config
    randomise([theirs])
    ours, names, state = build(config).double().eval(), t5_names(config.layers), theirs.state_dict()
    ours.load_state_dict({our_name: state[their_name] for our_name, their_name in names.items()})

    source, target, lengths = ids(2, 17), ids(2, 14), torch.tensor([17, 9])
    visible = (torch.arange(17) < lengths[:, None]).long()
    output = theirs(input_ids=source, attention_mask=visible, decoder_input_ids=target, output_attentions=True)
    logits = ours(source, target, lengths)
    torch.testing.assert_close(logits, output.logits, rtol=0, atol=ATOL)
    with watch(ours) as seen:
        torch.testing.assert_close(ours(source, target, lengths), logits, rtol=0, atol=1e-10)
    for i in range(config.layers):
        weights = seen[f"decoder.layers.{i}.attention"][0]
        torch.testing.assert_close(weights, output.decoder_attentions[i], rtol=0, atol=ATOL)
    towards = torch.randn_like(logits)
    (output.logits * towards).sum().backward()
    (logits * towards).sum().backward()
    their_parameters, our_parameters = dict(theirs.named_parameters()), dict(ours.named_parameters())
    assert set(our_parameters) == set(names)
    for our_name, their_name in names.items():
        torch.testing.assert_close(
            gradient(our_parameters[our_name]), gradient(their_parameters[their_name]), rtol=0, atol=20 * ATOL
        )


@pytest.mark.slow
def test_alibi_equals_bloom() -> None:
    """Logits and gradients with a number of heads that is no power of two."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(1)
    heads, width, layers = 6, 24, 2
    config = small(
        kind="decoder", heads=heads, d_ff=4 * width, norm="pre", activation="gelu-tanh", positions="alibi",
        embedding_norm=True, scale_embeddings=False, pad=None,
    )  # fmt: skip
    their_config = transformers.BloomConfig(
        vocab_size=config.vocab_size, hidden_size=width, n_layer=layers, n_head=heads, attn_implementation="eager"
    )
    theirs = transformers.BloomForCausalLM(their_config).double().eval()
    randomise([theirs])
    ours, state = build(config).double().eval(), theirs.state_dict()
    copied = {
        "embedding.tokens": "word_embeddings", "embedding.norm": "word_embeddings_layernorm", "decoder.norm": "ln_f"
    }  # fmt: skip
    parts = {
        "attention.out": "self_attention.dense", "attention_norm": "input_layernorm",
        "feed_forward_norm": "post_attention_layernorm", "feed_forward.up": "mlp.dense_h_to_4h",
        "feed_forward.down": "mlp.dense_4h_to_h",
    }  # fmt: skip
    for i in range(layers):
        copied |= {f"decoder.layers.{i}.{our_name}": f"h.{i}.{their_name}" for our_name, their_name in parts.items()}
    with torch.no_grad():
        for our_name, their_name in copied.items():
            module, their_module = ours.get_submodule(our_name), theirs.transformer.get_submodule(their_name)
            module.load_state_dict(their_module.state_dict())
        for i in range(layers):
            for kind in ("weight", "bias"):  # stored by head, and for each head its queries, keys and values
                fused = state[f"transformer.h.{i}.self_attention.query_key_value.{kind}"]
                for name, part in zip("qkv", fused.view(heads, 3, width // heads, -1).unbind(1), strict=True):
                    parameter = ours.get_parameter(f"decoder.layers.{i}.attention.{name}.{kind}")
                    parameter.copy_(part.reshape(parameter.shape))

    tokens = ids(2, 13)
    their_logits, logits = theirs(input_ids=tokens).logits, ours(tokens)
    torch.testing.assert_close(logits, their_logits, rtol=0, atol=ATOL)
    towards = torch.randn_like(logits)
    (their_logits * towards).sum().backward()
    (logits * towards).sum().backward()
    for our_name, their_name in copied.items():
        for mine, other in zip(
            ours.get_submodule(our_name).parameters(),
            theirs.transformer.get_submodule(their_name).parameters(),
            strict=True,
        ):
            torch.testing.assert_close(gradient(mine), gradient(other), rtol=0, atol=20 * ATOL)


def test_a_prefix_has_buckets_for_both_directions() -> None:
    """A position of the prefix sees later ones, and tells them from earlier ones."""
    for prefix in (False, True):
        stack = build(small(kind="decoder", positions="t5", prefix=prefix)).get_submodule("decoder")
        assert isinstance(stack, Stack)
        bias = stack.score_bias
        assert bias is not None
        scores = bias(torch.arange(5), torch.arange(5), torch.float32)
        assert torch.equal(scores[:, 2, 3], scores[:, 2, 2]) == (not prefix)
    with pytest.raises(ValueError, match="needs the positions of its tokens"):
        stack(torch.randn(1, 5, 24))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"attention_scale": 0.0}, "attention_scale=0.0 must be above 0 and finite"),
        ({"attention_scale": math.inf}, "attention_scale=inf must be above 0 and finite"),
        ({"attention_scale": math.nan}, "attention_scale=nan must be above 0 and finite"),
        ({"attention_scale": 1e9}, "attention_scale=1000000000.0 is too large"),
        ({"relative_buckets": 16}, "need positions='t5': positions='sinusoidal'"),
        ({"relative_distance": 64, "positions": "alibi"}, "need positions='t5': positions='alibi'"),
        ({"relative_buckets": 2, "positions": "t5"}, "relative_buckets=2 must be even and at least 4"),
        ({"relative_buckets": 7, "positions": "t5"}, "relative_buckets=7 must be even and at least 4"),
        ({"relative_distance": 16, "positions": "t5"}, "relative_distance=16 more than half of it"),
        ({"positions": "alibis"}, "did you mean 'alibi'"),
    ],
)
def test_invalid_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ModelConfig(**{"vocab_size": 31} | settings)
