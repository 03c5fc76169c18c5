"""On a CUDA device: its kernels held equal to the readable path in float64, packed batches to the dense mask.

CI has no such device; run these where there is one: `pytest -m gpu`.
"""

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

from regard.config import PRESETS, preset
from regard.model.attention import attention, fast_attention
from regard.model.masks import Mask, dense, packed_mask
from regard.model.transformer import build
from tests.test_attention import MASKS, make_mask, output_and_gradients
from tests.test_model import PAIRS, SHAPES, ids

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings("default"),  # torch's compiler warns of torch's own parts
]

SIZES = [(2, 4, 4, 33, 47, 32, 32), (1, 6, 2, 130, 130, 64, 64), (3, 4, 1, 7, 9, 16, 48), (2, 2, 2, 256, 64, 128, 128)]


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", SIZES)
def test_readable_and_fast_paths_agree(kind: str, dtype: torch.dtype, size: tuple[int, ...]) -> None:
    b, h, g, t, s, d_k, d_v = size
    t = s if kind in ("causal", "packed") else t
    q, k, v = (torch.randn(b, heads, n, d) for heads, n, d in ((h, t, d_k), (g, s, d_k), (g, s, d_v)))
    towards = torch.randn(b, h, t, d_v)
    if kind == "packed":
        lengths = torch.tensor([[t // 3, 0, t // 2]] * b).cuda()
        mask: Mask = packed_mask(lengths, lengths, t, s, causal=True)
        assert isinstance(mask, BlockMask)
        exact_mask: Mask = packed_mask(lengths.cpu(), lengths.cpu(), t, s, causal=True)
        assert isinstance(exact_mask, Tensor)
        assert torch.equal(dense(mask, torch.empty(b, h, t, s).cuda()).cpu(), exact_mask)  # type: ignore[union-attr]
    else:
        exact_mask = make_mask(kind, b, h, t, s)
        mask = exact_mask.cuda() if isinstance(exact_mask, Tensor) else exact_mask
    inputs = [x.to(dtype) for x in (q, k, v)]
    exact = output_and_gradients(attention, [x.double() for x in inputs], exact_mask, towards.to(dtype).double())
    readable = output_and_gradients(attention, [x.cuda() for x in inputs], mask, towards.to(dtype).cuda())
    fast = output_and_gradients(fast_attention, [x.cuda() for x in inputs], mask, towards.to(dtype).cuda())
    unit = torch.finfo(dtype).eps
    for right, slow, quick in zip(exact, readable, fast, strict=True):
        yardstick = (slow.double().cpu() - right).abs().max()
        allowed = 2 * yardstick + 8 * unit * right.abs().max().clamp(min=1)
        error = (quick.double().cpu() - right).abs().max()
        assert error <= allowed, f"{error:.2e} > {allowed:.2e}, readable {yardstick:.2e}"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_that_sees_nothing(dtype: torch.dtype) -> None:
    q, k, v = (torch.randn(2, 4, 64, 32, dtype=dtype, device="cuda", requires_grad=True) for _ in range(3))
    mask = torch.ones(2, 1, 64, 64, dtype=torch.bool, device="cuda")
    mask[0, :, 5] = False
    mask[1] = False
    lengths = torch.tensor([[20, 30], [0, 0]], device="cuda")
    for each, empty in ((mask, 5), (packed_mask(lengths, lengths, 64, 64, causal=True), 55)):
        output = fast_attention(q, k, v, each)
        gradients = torch.autograd.grad(output.float().square().sum(), (q, k, v))
        assert (output[0, :, empty] == 0).all()
        assert (output[1] == 0).all()
        assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("name", SHAPES)
def test_models_are_the_same_as_on_the_cpu(name: str) -> None:
    """Padded and packed, forward and backward, float32 without TF32."""
    torch.backends.cuda.matmul.allow_tf32 = False
    sizes = {"d_model": 64, "heads": 4, "d_ff": 128} | ({"d_k": 16, "d_v": 32} if name == "uneven" else {})
    config = SHAPES[name].__class__(**{**SHAPES[name].__dict__, **sizes})
    model, tokens = build(config), ids(2, 24)
    for lengths in (torch.tensor([24, 13]), torch.tensor([[10, 3, 8], [24, 0, 0]])):
        arguments = (tokens, tokens, lengths, lengths) if name in PAIRS else (tokens, lengths)
        logits, gradients = [], []
        for device in ("cpu", "cuda"):
            model.to(device).zero_grad()
            output = model(*(x.to(device) for x in arguments))
            total = lengths if lengths.dim() == 1 else lengths.sum(1)
            real = (torch.arange(24) < total[:, None]).to(device)
            F.cross_entropy(output[real], tokens.to(device)[real].clamp(max=29)).backward()
            logits.append(output.detach()[real].cpu())
            gradients.append([p.grad.cpu().clone() for p in model.parameters() if p.grad is not None])
        torch.testing.assert_close(logits[1], logits[0], rtol=1e-4, atol=1e-4)
        for there, here in zip(*gradients, strict=True):
            torch.testing.assert_close(here, there, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_compiles_into_one_graph(name: str) -> None:
    """With generated kernels, at its own size; layers are alike, so that two of them tell."""
    torch.compiler.reset()
    config = preset(name, layers=2, dropout=0.0)
    model = build(config).cuda()
    pair, tokens = config.kind == "encoder-decoder", torch.randint(1, 500, (2, 128), device="cuda")
    packed = torch.tensor([[50, 70], [100, 28]], device="cuda")
    for arguments in (
        (tokens, tokens) if pair else (tokens,),
        (tokens, tokens, packed[:, 0], packed[:, 0]) if pair else (tokens, packed[:, 0]),
        (tokens, tokens, packed, packed) if pair else (tokens, packed),
    ):
        results = []
        for call in (model, torch.compile(model, fullgraph=True)):
            model.zero_grad()
            logits = call(*arguments)
            logits.float().square().mean().backward()
            results.append([logits.detach(), *(p.grad for p in model.parameters() if p.grad is not None)])
        for eager, compiled in zip(*results, strict=True):
            scale = eager.abs().max().clamp(min=1e-6)
            assert (compiled - eager).abs().max() <= 5e-3 * scale


def test_packed_batches_of_many_sizes_stay_on_the_fused_kernel() -> None:
    """Eager models too: FlexAttention's unfused path warns, and here its warning is an error."""
    torch.compiler.reset()
    config = preset("tiny", dropout=0.0)
    model = build(config).cuda()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*flex_attention called without torch.compile.*")
        for t in range(100, 220, 10):
            tokens = torch.randint(1, 500, (2, t))
            lengths = torch.tensor([[t // 2, t // 3], [t, 0]])
            packed = model(*(x.cuda() for x in (tokens, tokens, lengths, lengths)))
            alone = model(tokens[1:].cuda(), tokens[1:].cuda())
            torch.testing.assert_close(packed[1:], alone, rtol=1e-2, atol=1e-2)
