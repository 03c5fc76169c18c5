"""The pure function, by hand, against PyTorch, and against the fast path."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from regard.model.attention import attention, combine_heads, fast_attention, split_heads
from tests.support.attention_cases import MASKS, make_mask, output_and_gradients


def test_two_tokens_worked_by_hand() -> None:
    q = torch.tensor([[2.0, 0.0]])
    k = torch.tensor([[math.sqrt(2) * math.log(3) / 2, 5.0], [0.0, -5.0]])  # scores ln 3 and 0
    v = torch.tensor([[4.0, 0.0, 1.0], [0.0, 4.0, 1.0]])
    output, weights = attention(q, k, v)
    torch.testing.assert_close(weights, torch.tensor([[0.75, 0.25]]))
    torch.testing.assert_close(output, torch.tensor([[3.0, 1.0, 1.0]]))


def test_equals_pytorch_for_any_leading_dimensions() -> None:
    for leading in ((), (3,), (2, 3), (2, 3, 4)):
        q, k, v = (torch.randn(*leading, n, d, dtype=torch.float64) for n, d in ((5, 6), (7, 6), (7, 3)))
        mask = torch.rand(*leading, 5, 7) > 0.3
        mask[..., 0] = True
        torch.testing.assert_close(
            attention(q, k, v, mask)[0], F.scaled_dot_product_attention(q, k, v, mask), rtol=0, atol=1e-12
        )


def test_weights_sum_to_one_and_are_those_before_dropout() -> None:
    q, k, v = (torch.randn(2, 3, n, 8) for n in (5, 7, 7))
    plain = attention(q, k, v)[1]
    torch.testing.assert_close(plain.sum(-1), torch.ones(2, 3, 5))
    output, weights = attention(q, k, v, dropout=0.5)
    assert torch.equal(weights, plain)
    assert not torch.allclose(output, weights @ v)


def test_dropout_keeps_the_expectation() -> None:
    q, k, v = torch.randn(1, 4), torch.randn(6, 4), torch.rand(6, 2)
    draws = torch.stack([attention(q, k, v, dropout=0.3)[0] for _ in range(4000)])
    torch.testing.assert_close(draws.mean(0), attention(q, k, v)[0], rtol=0.05, atol=0.0)


@pytest.mark.parametrize("path", [attention, fast_attention])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_a_row_that_sees_nothing_gives_zeros_and_finite_gradients(path: object, dtype: torch.dtype) -> None:
    q, k, v = (torch.randn(2, 3, n, 8, dtype=dtype, requires_grad=True) for n in (5, 7, 7))
    mask = torch.ones(2, 1, 5, 7, dtype=torch.bool)
    mask[0, :, 2] = False
    mask[1] = False
    with torch.autograd.set_detect_anomaly(True):  # no NaN on the way either, or a user's hunt for theirs ends here
        output = path(q, k, v, mask)  # type: ignore[operator]
        output = output[0] if isinstance(output, tuple) else output
        output.float().square().sum().backward()
    assert (output[0, :, 2] == 0).all()
    assert (output[1] == 0).all()
    assert (output[0, :, [0, 1, 3, 4]] != 0).all()
    for x in (q, k, v):
        assert x.grad is not None
        assert x.grad.isfinite().all()


@pytest.mark.parametrize("path", [attention, fast_attention])
def test_large_scores_neither_overflow_nor_leak_through_a_mask(path: object) -> None:
    q, k, v = torch.full((1, 64), 60.0), torch.stack([torch.full((64,), 60.0), torch.full((64,), -60.0)]), torch.eye(2)
    hidden = torch.tensor([[False, True]])  # the key that is hidden scores 57,600 above the one that is seen
    for dtype in (torch.float32, torch.float16):
        for mask, wanted in ((None, [[1.0, 0.0]]), (hidden, [[0.0, 1.0]])):
            output = path(q.to(dtype), k.to(dtype), v.to(dtype), mask)  # type: ignore[operator]
            assert (output[0] if isinstance(output, tuple) else output).tolist() == wanted


def test_grouped_heads_are_repeated_heads() -> None:
    q = torch.randn(2, 6, 5, 8, dtype=torch.float64)
    k, v = (torch.randn(2, 2, 7, 8, dtype=torch.float64) for _ in range(2))
    output, weights = attention(q, k, v)
    for head in range(6):
        alone, its_weights = attention(q[:, head], k[:, head // 3], v[:, head // 3])
        torch.testing.assert_close(output[:, head], alone)
        torch.testing.assert_close(weights[:, head], its_weights)
    torch.testing.assert_close(fast_attention(q, k, v), output)


def test_split_and_combine_are_inverse_and_keep_each_token_together() -> None:
    x = torch.arange(2 * 3 * 8.0).view(2, 3, 8)
    heads = split_heads(x, 4)
    assert heads.shape == (2, 4, 3, 2)
    assert torch.equal(heads[1, 2, 0], x[1, 0, 4:6])  # head 2 of token 0: the third piece of its vector
    assert torch.equal(combine_heads(heads), x)


@given(
    b=st.integers(1, 3),
    groups=st.integers(1, 3),
    shared=st.integers(1, 3),
    t=st.integers(1, 33),
    s=st.integers(1, 33),
    d_k=st.integers(1, 40),
    d_v=st.integers(1, 40),
    kind=st.sampled_from(MASKS),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
    size=st.sampled_from([1.0, 0.01, 5.0]),
    seed=st.integers(0, 2**31),
)
def test_readable_and_fast_paths_agree(
    b: int,
    groups: int,
    shared: int,
    t: int,
    s: int,
    d_k: int,
    d_v: int,
    kind: str,
    dtype: torch.dtype,
    size: float,
    seed: int,
) -> None:
    """As PyTorch judges it: both against float64, and the fast path's error may not be much above the readable's."""
    torch.manual_seed(seed)
    t = s if kind == "causal" else t
    q, k, v = torch.randn(b, groups * shared, t, d_k), torch.randn(b, groups, s, d_k), torch.randn(b, groups, s, d_v)
    q = q * size
    mask, towards = make_mask(kind, b, groups * shared, t, s), torch.randn(b, groups * shared, t, d_v)
    exact = output_and_gradients(attention, [q.to(dtype).double() for q in (q, k, v)], mask, towards.double())
    readable = output_and_gradients(attention, [q.to(dtype) for q in (q, k, v)], mask, towards.to(dtype))
    fast = output_and_gradients(fast_attention, [q.to(dtype) for q in (q, k, v)], mask, towards.to(dtype))
    unit = torch.finfo(dtype).eps
    # Terms that cancel in the gradients of queries and keys, and may leave their rounding: with one key, nothing else.
    values = v.double().repeat_interleave(shared, 1)
    sizes = (towards.double() @ values.transpose(-2, -1), torch.cat([q.flatten(), k.flatten()]))
    cancelled = math.prod(float(x.abs().max().clamp(min=1)) for x in sizes)
    for right, slow, quick in zip(exact, readable, fast, strict=True):
        yardstick = (slow.double() - right).abs().max()
        allowed = 2 * yardstick + 8 * unit * right.abs().max().clamp(min=1) + 2 * unit * cancelled
        assert (quick.double() - right).abs().max() <= allowed
        assert yardstick <= 60 * unit * right.abs().max().clamp(min=1)  # the yardstick itself is no excuse


@pytest.mark.parametrize("path", [attention, fast_attention])
@pytest.mark.usefixtures("without_type_checks")
def test_heads_that_cannot_be_shared(path: object) -> None:
    with pytest.raises(ValueError, match="8 heads cannot share 3"):
        path(torch.randn(2, 8, 5, 4), torch.randn(2, 3, 7, 4), torch.randn(2, 3, 7, 4))  # type: ignore[operator]


@pytest.mark.parametrize("path", [attention, fast_attention])
@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (torch.ones(5, 6, dtype=torch.bool), r"mask \[5, 6\] does not broadcast to the scores \[2, 3, 5, 7\]"),
        (torch.ones(2, 5, 7, dtype=torch.bool), r"mask \[2, 5, 7\] does not broadcast"),
        (torch.ones(1, 1, 1, 5, 7, dtype=torch.bool), "does not broadcast"),
        (torch.ones(5, 7), "must be boolean .* torch.float32"),
        ("causal", "as many queries as keys, not 5 and 7"),
        (torch.ones(5, 7, dtype=torch.bool).numpy(), "a mask must be a tensor, not a ndarray"),
        ("casual", "the only named mask is 'causal'"),
    ],
)
@pytest.mark.usefixtures("without_type_checks")
def test_a_mask_that_does_not_fit(path: object, mask: object, message: str) -> None:
    q, k, v = (torch.randn(2, 3, n, 8) for n in (5, 7, 7))
    with pytest.raises(ValueError, match=message):
        path(q, k, v, mask)  # type: ignore[operator]
