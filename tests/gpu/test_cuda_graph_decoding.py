"""Decoding with CUDA graphs, compiled or not, generates the same text as the network step by step."""

from itertools import chain

import pytest
import torch

from regard.decoding.fast_copy import make_fast_copy
from regard.decoding.generate import generate, search_translations
from regard.model.attention import shared_attention
from tests.support.decoding_cases import INPUTS, KINDS, WAYS, network_of, special_of

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_cuda_graphs_generate_the_same(kind: str, way: str) -> None:
    check_same_texts(kind, way, compiled=False)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["gpt2", "llama", "paper", "prefix"])
def test_compiled_searches_generate_the_same(kind: str, way: str) -> None:
    check_same_texts(kind, way, compiled=True)


def check_same_texts(kind: str, way: str, compiled: bool) -> None:
    network = network_of(kind).cuda()
    copy = make_fast_copy(network, "float32", compiled)
    search, special = generate if kind in ("gpt2", "llama") else search_translations, special_of(kind)
    for inputs in (INPUTS, INPUTS[::-1]):
        theirs = search(network, special, inputs, WAYS[way])  # type: ignore[arg-type]
        ours = search(copy, special, inputs, WAYS[way])  # type: ignore[arg-type]
        assert [[each.ids for each in best] for best in ours] == [[each.ids for each in best] for best in theirs]
        for one, other in zip(chain(*ours), chain(*theirs), strict=True):
            assert one.score == pytest.approx(other.score, abs=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("rows", "sharing", "heads", "grouped", "keys", "d_k", "d_v"),
    [
        (3, 1, 2, 1, 5, 8, 8),
        (8, 2, 4, 2, 33, 16, 24),
        (2, 1, 12, 1, 288, 64, 64),
        (6, 3, 2, 2, 17, 6, 5),
        (1, 1, 3, 1, 1, 64, 64),
        (4, 1, 2, 1, 1000, 128, 256),
        (1024, 4, 8, 1, 32, 64, 64),
    ],
)
@pytest.mark.parametrize("extended", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_attention_of_a_step_is_attention_over_the_extended_and_reordered_cache(
    rows: int,
    sharing: int,
    heads: int,
    grouped: int,
    keys: int,
    d_k: int,
    d_v: int,
    extended: bool,
    masked: bool,
    dtype: torch.dtype,
) -> None:
    """Whatever the strides, widths and masks; `shared_attention` computes in float64."""
    from regard.decoding.step_attention import extending_step_attention, step_attention

    torch.manual_seed(rows + keys)
    b, g = rows // sharing, heads // grouped
    q = torch.randn(rows, 1, heads, d_k, device="cuda", dtype=dtype).transpose(1, 2)
    k = torch.randn(b, g, keys + 3, d_k, device="cuda", dtype=dtype)[:, :, :keys]
    v = torch.randn(b, g, keys, d_v, device="cuda", dtype=dtype)
    mask = torch.rand(b, 1, 1, keys, device="cuda") < 0.6 if masked else None
    all_rows, all_positions = torch.arange(b, device="cuda"), torch.arange(keys, device="cuda")
    if not extended:
        if mask is not None:
            mask[..., -1] = True
        output = step_attention(q, k, v.transpose(1, 2).contiguous().transpose(1, 2), mask, 0.3)
    else:
        q = q[:b]  # each row has keys of its own
        new_k = torch.randn(b, 1, g, d_k, device="cuda", dtype=dtype).transpose(1, 2)
        new_v = torch.randn(b, 1, g, d_v, device="cuda", dtype=dtype).transpose(1, 2)
        positions = torch.randint(keys, (b, 1), device="cuda")
        if mask is not None:
            mask[all_rows, 0, 0, positions[:, 0]] = True
        # Rows hold the keys of others only at positions that nobody writes, as in a beam.
        owners = torch.randint(b, (b, keys + 3), device="cuda")[:, :keys]
        written = torch.isin(all_positions, positions)
        owners[:, written] = all_rows[:, None]
        extended_k, extended_v = k.clone(), v.clone()
        extended_k[all_rows, :, positions[:, 0]] = new_k[:, :, 0]
        extended_v[all_rows, :, positions[:, 0]] = new_v[:, :, 0]
        output = extending_step_attention(q, new_k, new_v, k, v, positions, owners, mask, 0.3)
        assert torch.equal(k, extended_k)
        assert torch.equal(v, extended_v)
        k, v = (x[owners, :, all_positions].transpose(1, 2) for x in (k, v))
    expected = shared_attention(q.double(), k.double(), v.double(), mask, scale=0.3)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-2
    torch.testing.assert_close(output.double(), expected, rtol=tolerance, atol=tolerance)
