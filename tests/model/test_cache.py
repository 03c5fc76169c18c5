"""Step by step through the cache = all at once, for every shape, rows of any length, any way of cutting the steps."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard.config import PRESETS, preset
from regard.model.cache import AttentionCache, Cache
from regard.model.transformer import Decoder, EncoderDecoder, build
from tests.support.networks import DECODERS, PAIRS, SHAPES, ids, model_of
from tests.support.oracles import small


def steps(model: Decoder | EncoderDecoder, cache: Cache, tokens: Tensor, cuts: list[int], **more: Tensor) -> Tensor:
    """Logits for all tokens, fed in pieces that end at the cuts."""
    pieces, start = [], 0
    for end in [*cuts, tokens.size(1)]:
        positions = torch.arange(start, end).expand(tokens.size(0), -1)
        pieces.append(model.step(tokens[:, start:end], positions, cache.upto(end), **more))
        start = end
    return torch.cat(pieces, 1)


@pytest.mark.parametrize("name", [*DECODERS, *PAIRS])
@pytest.mark.parametrize("cuts", [[*range(1, 9)], [5], [], [3, 4, 8]])
def test_step_by_step_is_all_at_once(name: str, cuts: list[int]) -> None:
    model, tokens = model_of(name), ids(3, 9)
    with torch.inference_mode():
        if isinstance(model, EncoderDecoder):
            source, lengths = ids(3, 7), torch.tensor([7, 2, 5])
            cache, wanted = model.start(source, 12, lengths), model(source, tokens, lengths)
        else:
            assert isinstance(model, Decoder)
            cache, wanted = model.start(3, 12), model(tokens)
        torch.testing.assert_close(steps(model, cache, tokens, cuts), wanted, rtol=0, atol=1e-12)


SMALL: dict[str, Any] = {"vocab_size": 31, "d_model": 24, "layers": 2, "d_ff": 32}


@pytest.mark.parametrize("changes", [SMALL, pytest.param({}, marks=pytest.mark.long)], ids=["small", "its own size"])
@pytest.mark.parametrize("name", [name for name in PRESETS if name != "bert-small"])
def test_every_preset(name: str, changes: dict[str, Any]) -> None:
    heads = {} if not changes else {"heads": 4, "kv_heads": preset(name).kv_heads and 2}
    model, tokens = build(preset(name, **changes, **heads)).eval(), ids(2, 6)
    assert isinstance(model, Decoder | EncoderDecoder)
    with torch.inference_mode():
        if isinstance(model, EncoderDecoder):
            cache, wanted = model.start(tokens, 6), model(tokens, tokens)
        else:
            cache, wanted = model.start(2, 6), model(tokens)
        torch.testing.assert_close(steps(model, cache, tokens, [*range(1, 6)]), wanted, rtol=1e-4, atol=1e-4)


@given(lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4), new=st.integers(1, 4), seed=st.integers(0, 999))
@pytest.mark.slow
def test_rows_of_unequal_length_continue_where_each_ends(lengths: list[int], new: int, seed: int) -> None:
    """Prompts padded on the right; each row's next tokens overwrite its padding. Each must equal the row alone."""
    torch.manual_seed(seed)
    model = build(SHAPES["llama"]).double().eval()
    assert isinstance(model, Decoder)
    rows, ends = len(lengths), torch.tensor(lengths)
    prompt, following = ids(rows, max(lengths)), ids(rows, new)
    with torch.inference_mode():
        cache = model.start(rows, max(lengths) + new)
        first = model.step(prompt, torch.arange(max(lengths)).expand(rows, -1), cache)
        rest = [model.step(following[:, i : i + 1], ends[:, None] + i, cache) for i in range(new)]
        for row, n in enumerate(lengths):
            alone = model(torch.cat([prompt[row, :n], following[row]])[None])[0]
            together = torch.cat([first[row, :n], *(step[row] for step in rest)])
            torch.testing.assert_close(together, alone, rtol=0, atol=1e-12)


def test_a_prefix_is_bidirectional_through_the_cache() -> None:
    model = build(small(kind="decoder", prefix=True)).double().eval()
    assert isinstance(model, Decoder)
    tokens, prefix = ids(2, 8), torch.tensor([3, 5])
    with torch.inference_mode():
        wanted = model(tokens, prefix=prefix)
        got = steps(model, model.start(2, 8), tokens, [5, 6, 7], prefix=prefix)
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-12)


def test_the_cache_is_allocated_once_with_the_documented_shapes() -> None:
    model = build(SHAPES["uneven"]).eval()
    assert isinstance(model, EncoderDecoder)
    cache = model.start(ids(3, 7), 10)
    assert [tuple(each.k.shape) for each in cache.self_attention] == [(3, 2, 10, 5)] * 2
    assert [tuple(each.v.shape) for each in cache.self_attention] == [(3, 2, 10, 7)] * 2
    assert [tuple(each.k.shape) for each in cache.cross_attention] == [(3, 2, 7, 5)] * 2
    assert cache.length == 10
    places = [each.k.data_ptr() for each in cache.self_attention]
    with torch.inference_mode():
        steps(model, cache, ids(3, 9), [1, 2, 3])
    assert [each.k.data_ptr() for each in cache.self_attention] == places


def test_cross_attention_projects_the_source_once() -> None:
    model = build(small()).eval()
    assert isinstance(model, EncoderDecoder)
    calls = []
    for layer in model.decoder.layers:
        assert layer.cross_attention is not None
        layer.cross_attention.k.register_forward_hook(lambda *_: calls.append(1))
    with torch.inference_mode():
        cache = model.start(ids(3, 7), 10)
        steps(model, cache, ids(3, 9), [*range(1, 9)])
    assert len(calls) == len(model.decoder.layers)


@pytest.mark.usefixtures("without_type_checks")
def test_positions_that_do_not_fit() -> None:
    model = build(small(kind="decoder"))
    assert isinstance(model, Decoder)
    cache = model.start(2, 4)
    with pytest.raises(ValueError, match="position 4 is outside 0 … 3: the cache ends there"):
        model.step(ids(2, 1), torch.tensor([[3], [4]]), cache)
    with pytest.raises(ValueError, match=r"positions \[1\] must have the shape of the tokens, \[2, 1\]"):
        model.step(ids(2, 1), torch.tensor([3]), cache)
    with pytest.raises(ValueError, match="there are 1 rows of tokens, but 2 rows in the source or the cache"):
        model.step(ids(1, 1), torch.tensor([[3]]), cache)
    filled = AttentionCache(*cache.self_attention[0])
    with pytest.raises(ValueError, match="is filled: it takes no more"):
        filled.put(torch.zeros(2, 4, 1, 6), torch.zeros(2, 4, 1, 6))
    x = torch.randn(2, 3, 24)
    with pytest.raises(ValueError, match="a filled cache replaces key and value"):
        model.decoder.layers[0].attention(x, x, x, cache=filled)
    with pytest.raises(ValueError, match=r"classes=3\) does not predict a next token"):
        Decoder(small(kind="decoder", classes=3)).start(2, 4)


@pytest.mark.parametrize("name", ["llama", "paper"])
def test_steps_under_autocast_and_without_gradients(name: str) -> None:
    """As validation does in the middle of training: the cache keeps its own type, and no graph grows through it."""
    model, tokens = build(SHAPES[name]), ids(2, 4)
    with torch.autocast("cpu", torch.bfloat16):
        if isinstance(model, EncoderDecoder):
            cache, wanted = model.start(tokens, 4), model(tokens, tokens)
        else:
            assert isinstance(model, Decoder)
            cache, wanted = model.start(2, 4), model(tokens)
        got = steps(model, cache, tokens, [1, 2, 3])
    assert cache.self_attention[0].k.dtype == torch.float32
    assert not cache.self_attention[0].k.requires_grad
    torch.testing.assert_close(got.float(), wanted.float(), rtol=0, atol=0.05)
