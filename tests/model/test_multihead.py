"""Many heads: against torch.nn.MultiheadAttention, against single heads, with every option of its own."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.errors import RegardError
from regard.model.attention import MultiHeadAttention, attention
from regard.model.masks import causal_mask
from regard.model.positions import rotary, rotate
from regard.model.watch import watch
from tests.support.oracles import attention_gradients, copy_attention, run, same

DTYPES = [torch.float64, torch.float32]


def inputs(dtype: torch.dtype) -> list[Tensor]:
    """Query, key, value of a cross-attention: batch 3, 5 queries, 7 keys, width 12."""
    return [torch.randn(3, n, 12, dtype=dtype) for n in (5, 7, 7)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("readable", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_equals_torch(dtype: torch.dtype, readable: bool, masked: bool) -> None:
    theirs = nn.MultiheadAttention(12, 4, batch_first=True, dtype=dtype)
    ours = MultiHeadAttention(12, 4).to(dtype)
    copy_attention(theirs, ours)
    mask = (torch.rand(5, 7) > 0.3) | (torch.arange(7) == 0)
    xs, towards = inputs(dtype), torch.randn(3, 5, 12, dtype=dtype)

    def call_ours(*x: Tensor) -> Tensor:
        result = ours(*x, mask=mask if masked else None, return_weights=readable)
        return result[0] if readable else result

    def call_theirs(*x: Tensor) -> Tensor:  # there True = may *not* attend
        return theirs(*x, attn_mask=~mask if masked else None)[0]

    for right, mine in zip(flat(run(call_theirs, xs, towards)), flat(run(call_ours, xs, towards)), strict=True):
        same(right, mine)
    for right, mine in attention_gradients(theirs, ours):
        same(right, mine)
    right = theirs(*xs, attn_mask=~mask, average_attn_weights=False)[1]
    same(right, ours(*xs, mask=mask, return_weights=True)[1])


@pytest.mark.parametrize("readable", [False, True])
def test_keys_and_values_of_other_widths_equal_torch(readable: bool) -> None:
    theirs = nn.MultiheadAttention(12, 4, batch_first=True, kdim=7, vdim=9, dtype=torch.float64)
    ours = MultiHeadAttention(12, 4, kdim=7, vdim=9).double()
    with torch.no_grad():
        theirs.in_proj_bias.normal_()
        for linear, weight, bias in zip(
            (ours.q, ours.k, ours.v),
            (theirs.q_proj_weight, theirs.k_proj_weight, theirs.v_proj_weight),
            theirs.in_proj_bias.chunk(3),
            strict=True,
        ):
            linear.weight.copy_(weight)
            linear.bias.copy_(bias)
    ours.out.load_state_dict(theirs.out_proj.state_dict())
    xs = [torch.randn(3, n, width, dtype=torch.float64) for n, width in ((5, 12), (8, 7), (8, 9))]
    towards = torch.randn(3, 5, 12, dtype=torch.float64)

    def call_ours(*x: Tensor) -> Tensor:
        result = ours(*x, return_weights=readable)
        return result[0] if readable else result

    for right, mine in zip(
        flat(run(lambda *x: theirs(*x)[0], xs, towards)), flat(run(call_ours, xs, towards)), strict=True
    ):
        same(right, mine)


def test_an_output_of_another_width() -> None:
    """From width 7 to width 9, with one head: softmax(q kᵀ / √d_k) v, then the output projection."""
    mha = MultiHeadAttention(7, 1, d_k=3, d_v=4, d_out=9).double()
    x = torch.randn(2, 5, 7, dtype=torch.float64)
    q, k, v = mha.q(x), mha.k(x), mha.v(x)
    scores = torch.einsum("btd,bsd->bts", q, k) / 3**0.5
    expected = torch.einsum("bts,bsd->btd", scores.exp() / scores.exp().sum(-1, keepdim=True), v)
    same(expected @ mha.out.weight.T + mha.out.bias, mha(x, x, x))
    assert mha(x, x, x).shape == (2, 5, 9)


@pytest.mark.parametrize("widths", [{"kdim": 0}, {"vdim": -1}, {"d_out": 0}])
def test_widths_of_inputs_and_output_are_positive(widths: dict[str, Any]) -> None:
    with pytest.raises(RegardError, match=r"(kdim|vdim|d_out)=-?\d is too small: it must be at least 1"):
        MultiHeadAttention(12, 4, **widths)


def flat(result: tuple[Tensor, list[Tensor]]) -> list[Tensor]:
    return [result[0], *result[1]]


def test_head_i_is_single_head_attention_with_its_slices() -> None:
    mha = MultiHeadAttention(12, 3, d_k=5, d_v=7).double()
    query, key, value = inputs(torch.float64)
    _, weights = mha(query, key, value, return_weights=True)
    pieces = []
    for i in range(3):
        wide, narrow = slice(5 * i, 5 * i + 5), slice(7 * i, 7 * i + 7)
        q = query @ mha.q.weight[wide].T + mha.q.bias[wide]
        k = key @ mha.k.weight[wide].T + mha.k.bias[wide]
        v = value @ mha.v.weight[narrow].T + mha.v.bias[narrow]
        piece, alone = attention(q, k, v)
        torch.testing.assert_close(weights[:, i], alone)
        pieces.append(piece)
    torch.testing.assert_close(mha(query, key, value), mha.out(torch.cat(pieces, -1)))


def test_widths_and_groups_give_the_projections_their_shapes() -> None:
    mha = MultiHeadAttention(10, heads=6, d_k=4, d_v=3, kv_heads=2, bias=False)  # 6 does not divide 10: widths given
    shapes = {name: tuple(p.shape) for name, p in mha.named_parameters()}
    assert shapes == {"q.weight": (24, 10), "k.weight": (8, 10), "v.weight": (6, 10), "out.weight": (10, 18)}
    x = torch.randn(2, 5, 10)
    output, weights = mha(x, x, x, return_weights=True)
    assert output.shape == (2, 5, 10)
    assert weights.shape == (2, 6, 5, 5)
    torch.testing.assert_close(mha(x, x, x), output)


def test_grouped_equals_ungrouped_with_the_shared_heads_copied() -> None:
    grouped, whole = MultiHeadAttention(12, 4, kv_heads=2), MultiHeadAttention(12, 4)
    state = grouped.state_dict()
    for name in ("k.weight", "k.bias", "v.weight", "v.bias"):
        state[name] = state[name].unflatten(0, (2, 3)).repeat_interleave(2, dim=0).flatten(0, 1)
    whole.load_state_dict(state)
    query, key, value = inputs(torch.float32)
    torch.testing.assert_close(grouped(query, key, value), whole(query, key, value))


def test_rotary_rotates_queries_and_keys_only() -> None:
    mha = MultiHeadAttention(12, 2).double()
    x = torch.randn(1, 5, 12, dtype=torch.float64)
    turns = rotary(torch.arange(5), 6, dtype=torch.float64)
    q, k, v = (project(x).unflatten(-1, (2, 6)).transpose(1, 2) for project in (mha.q, mha.k, mha.v))
    output, weights = attention(rotate(q, turns), rotate(k, turns), v)
    ours, its_weights = mha(x, x, x, rotary=turns, return_weights=True)
    torch.testing.assert_close(its_weights, weights)
    torch.testing.assert_close(ours, mha.out(output.transpose(1, 2).flatten(2)))


@pytest.mark.parametrize("readable", [False, True])
def test_dropout_applies_to_the_weights_in_training_only(readable: bool) -> None:
    """On both paths: of two keys each is dropped with p = 0.3, which leaves four outcomes with known shares."""
    mha = MultiHeadAttention(4, 1, dropout=0.3, bias=False).double()
    x = torch.randn(1, 2, 4, dtype=torch.float64)

    def call(count: int) -> Tensor:
        many = x.expand(count, -1, -1)
        result = mha(many, many, many, return_weights=readable)
        return result[0] if readable else result

    draws = call(20_000)[:, 0]  # [draws, 4]
    kept = [tuple(row) for row in draws.round(decimals=9).tolist()]
    shares = sorted(kept.count(outcome) / len(kept) for outcome in set(kept))
    assert shares == pytest.approx([0.09, 0.21, 0.21, 0.49], abs=0.02)
    mha.eval()
    torch.testing.assert_close(draws.mean(0), call(1)[0, 0], rtol=0.1, atol=0.02)


def test_works_on_a_single_sequence() -> None:
    mha, x = MultiHeadAttention(12, 4), torch.randn(5, 12)
    torch.testing.assert_close(mha(x, x, x, mask="causal"), mha(x[None], x[None], x[None], mask=causal_mask(5))[0])


def test_watch_sees_every_call_and_leaves_no_trace() -> None:
    pair = nn.ModuleDict({"a": MultiHeadAttention(12, 4), "b": MultiHeadAttention(12, 2)})
    x = torch.randn(2, 5, 12)
    before = pair["a"](x, x, x)
    with watch(pair) as seen:
        inside = pair["a"](x, x, x)
        pair["a"](x, x, x, mask="causal")
        output, weights = pair["a"](x, x, x, return_weights=True)
    assert [w.shape for w in seen["a"]] == [(2, 4, 5, 5)] * 3
    assert seen["b"] == []
    torch.testing.assert_close(inside, before)
    torch.testing.assert_close(output, before)
    assert torch.equal(seen["a"][0], weights)
    assert not seen["a"][0].requires_grad
    assert torch.equal(pair["a"](x, x, x), before)
    assert not pair["a"]._forward_hooks
    assert not pair["a"]._forward_pre_hooks


@pytest.mark.parametrize("batch", [1, 2, 3])
def test_nested_watches(batch: int) -> None:
    mha, x = MultiHeadAttention(12, 4), torch.randn(batch, 5, 12)
    with watch(mha) as outer:
        mha(x, x, x)
        with watch(mha) as inner:
            output = mha(x, x, x)
    assert output.shape == (batch, 5, 12)
    assert len(outer[""]) == 2
    assert torch.equal(inner[""][0], outer[""][1])
    assert inner[""][0].shape == (batch, 4, 5, 5)


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": 5}, "heads=5 does not divide d_model=12"),
        ({"heads": 5, "d_k": 3}, "heads=5 does not divide d_model=12.*both d_k and d_v"),
        ({"heads": 4, "kv_heads": 3}, "kv_heads=3 does not divide heads=4"),
        ({"heads": 0}, "heads=0 is too small"),
        ({"heads": 4, "d_v": 0}, "d_v=0 is too small"),
        ({"heads": 4, "kv_heads": 0}, "kv_heads=0 is too small"),
        ({"heads": 4, "dropout": 1.5}, "dropout=1.5 is not a probability"),
        ({"heads": 4.0}, "heads=4.0 has type float: expected int"),
    ],
)
def test_bad_options(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MultiHeadAttention(12, **options)  # type: ignore[arg-type]


@pytest.mark.usefixtures("without_type_checks")
def test_an_ambiguous_mask_is_refused() -> None:
    mha, x, mask = MultiHeadAttention(12, 4), torch.randn(4, 5, 12), torch.rand(4, 5, 5) > 0.3
    with pytest.raises(ValueError, match=r"mask \[4, 5, 5\] is ambiguous"):
        mha(x, x, x, mask)
    assert not torch.equal(mha(x, x, x, mask[:, None]), mha(x, x, x, mask[None]))


@pytest.mark.usefixtures("without_type_checks")
def test_no_keys_and_no_cache() -> None:
    with pytest.raises(ValueError, match="only with a filled cache"):
        MultiHeadAttention(12, 4)(torch.randn(2, 5, 12), None, None)
