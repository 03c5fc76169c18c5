"""Decoding with CUDA graphs generates the same text as the network step by step."""

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
    network = network_of(kind).cuda()
    copy = make_fast_copy(network, "float32")
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
@pytest.mark.parametrize("reordered", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_attention_of_a_step_is_attention_over_the_reordered_cache(
    rows: int,
    sharing: int,
    heads: int,
    grouped: int,
    keys: int,
    d_k: int,
    d_v: int,
    reordered: bool,
    masked: bool,
    dtype: torch.dtype,
) -> None:
    """Whatever the strides, widths and masks; `shared_attention` computes in float64."""
    from regard.decoding.step_attention import step_attention

    torch.manual_seed(rows + keys)
    b, g = rows // sharing, heads // grouped
    q = torch.randn(rows, 1, heads, d_k, device="cuda", dtype=dtype).transpose(1, 2)
    k = torch.randn(b, g, keys + 3, d_k, device="cuda", dtype=dtype)[:, :, :keys]
    v = torch.randn(b, keys, g, d_v, device="cuda", dtype=dtype).transpose(1, 2)
    owners = torch.randint(b, (b, keys + 3), device="cuda")[:, :keys] if reordered else None
    mask = torch.rand(b, 1, 1, keys, device="cuda") < 0.6 if masked else None
    if mask is not None:
        mask[..., -1] = True
    output = step_attention(q, k, v, owners, mask, 0.3)
    if owners is not None:
        k, v = (x[owners, :, torch.arange(keys, device="cuda")].transpose(1, 2) for x in (k, v))
    expected = shared_attention(q.double(), k.double(), v.double(), mask, scale=0.3)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-2
    torch.testing.assert_close(output.double(), expected, rtol=tolerance, atol=tolerance)
