"""Each mask against a loop that says in words who sees whom."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.model.masks import (
    UNLIMITED,
    PackedMask,
    cached_mask,
    causal_mask,
    choose_mask,
    dense_mask,
    packed_mask,
    packed_positions,
    padding_mask,
    prefix_mask,
    window_mask,
)

lengths_in = st.lists(st.integers(0, 9), min_size=1, max_size=4)


@given(t=st.integers(0, 9), data=st.data())
def test_causal_padding_both_and_prefix(t: int, data: st.DataObject) -> None:
    lengths = torch.tensor(data.draw(st.lists(st.integers(0, t), min_size=1, max_size=4)))
    causal, padding, prefix = causal_mask(t), padding_mask(lengths, t), prefix_mask(lengths, t)
    both = causal & padding
    assert causal.dtype == padding.dtype == prefix.dtype == torch.bool
    assert padding.shape == (len(lengths), 1, 1, t)
    for b, length in enumerate(lengths.tolist()):
        for i in range(t):
            for j in range(t):
                assert bool(causal[i, j]) == (j <= i)
                assert bool(both[b, 0, i, j]) == (j <= i and j < length)
                assert bool(prefix[b, 0, i, j]) == (j <= i or j < length)


@given(t=st.integers(1, 9), window=st.integers(1, 12), data=st.data())
def test_a_window_sees_itself_and_the_positions_before_it(t: int, window: int, data: st.DataObject) -> None:
    """As one row, as packed sentences and through a cache whose rows are at different positions."""
    lengths = data.draw(st.lists(st.integers(0, t), min_size=1, max_size=3))
    whole = choose_mask(t, t, causal=True, window=window)
    assert (whole == "causal") == (window >= t)
    positions = torch.tensor([[data.draw(st.integers(0, t - 1)) for _ in range(2)] for _ in lengths])
    cached = cached_mask(positions, t, window=window)
    total = sum(lengths)
    packed = choose_mask(total, total, torch.tensor([lengths]), torch.tensor([lengths]), causal=True, window=window)
    assert cached is not None
    assert isinstance(packed, torch.Tensor)
    wanted = torch.zeros(total, total, dtype=torch.bool)
    for n, length in enumerate(lengths):
        start = sum(lengths[:n])
        for i in range(length):
            for j in range(length):
                wanted[start + i, start + j] = i - window < j <= i
    assert torch.equal(packed[0, 0], wanted)
    for i in range(t):
        for j in range(t):
            assert bool(window_mask(t, window)[i, j]) == (i - window < j <= i)
    for b, row in enumerate(positions.tolist()):
        for i, position in enumerate(row):
            for j in range(t):
                assert bool(cached[b, 0, i, j]) == (position - window < j <= position)


@pytest.mark.slow
@pytest.mark.parametrize("window", [UNLIMITED, 2])
@pytest.mark.filterwarnings("default")  # torch's own
def test_flex_attention_takes_packed_sentences(window: int) -> None:
    """Its mask is checked by create_block_mask, which refuses a bound method; and it is the dense one."""
    sentence, limit, key_sentence, key_rank = torch.randint(-1, 4, (4, 2, 200), dtype=torch.int32)
    packed = PackedMask(sentence, limit, key_sentence, key_rank, window)
    block = packed.block_mask()
    assert block.seq_lengths == (200, 200)
    assert torch.equal(dense_mask(block, torch.empty(2, 1, 200, 200)), packed.dense())  # type: ignore[arg-type]


three_lengths = st.tuples(*[st.integers(0, 4)] * 3)


@given(
    rows=st.integers(1, 3).flatmap(
        lambda n: st.lists(st.lists(three_lengths, min_size=n, max_size=n), min_size=1, max_size=3)
    ),
    spare=st.integers(0, 3),
    causal=st.booleans(),
    prefixed=st.booleans(),
)
def test_packed(rows: list[list[tuple[int, int, int]]], spare: int, causal: bool, prefixed: bool) -> None:
    """Sentence by sentence: what a query sees is its own sentence, or so much of it as lies behind it."""
    prefix = torch.tensor([[p for _, _, p in row] for row in rows])
    queries = torch.tensor([[q for q, _, _ in row] for row in rows])
    keys = queries if causal else torch.tensor([[k for _, k, _ in row] for row in rows])
    t, s = int(queries.sum(1).max()) + spare, int(keys.sum(1).max()) + spare
    mask = packed_mask(queries, keys, t, s, causal, prefix if prefixed else None)
    assert isinstance(mask, torch.Tensor)
    wanted = torch.zeros(len(rows), 1, t, s, dtype=torch.bool)
    for b in range(len(rows)):
        at_query = at_key = 0
        for n, (q, k) in enumerate(zip(queries[b].tolist(), keys[b].tolist(), strict=True)):
            for i in range(q):
                for j in range(k):
                    in_prefix = prefixed and j < prefix[b, n]
                    wanted[b, 0, at_query + i, at_key + j] = not causal or j <= i or bool(in_prefix)
            at_query, at_key = at_query + q, at_key + k
    assert torch.equal(mask, wanted)


@given(lengths=lengths_in, spare=st.integers(0, 3))
def test_positions_restart_in_each_sentence(lengths: list[int], spare: int) -> None:
    t = sum(lengths) + spare
    sentence, place = packed_positions(torch.tensor([lengths]), t)
    wanted = [(n, i) for n, length in enumerate([*lengths, spare]) for i in range(length)]
    assert list(zip(sentence[0].tolist(), place[0].tolist(), strict=True)) == wanted


def test_a_cached_step_sees_up_to_itself() -> None:
    mask = cached_mask(torch.tensor([[2], [0]]), 4)
    assert mask is not None
    assert mask.tolist() == [[[[True, True, True, False]]], [[[True, False, False, False]]]]
    mask = cached_mask(torch.tensor([[0, 1]]), 4, prefix=torch.tensor([2]))
    assert mask is not None
    assert mask.tolist() == [[[[True, True, False, False], [True, True, False, False]]]]


def test_the_cheapest_mask_is_chosen() -> None:
    lengths = torch.tensor([2, 3])
    assert choose_mask(3, 3) is None
    assert choose_mask(3, 3, lengths, lengths, causal=True) == "causal"  # padding on the right lies in the future
    padding = choose_mask(3, 3, lengths, lengths)
    assert isinstance(padding, torch.Tensor)
    assert torch.equal(padding, padding_mask(lengths, 3))


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        (torch.tensor([4, 9]), "lengths 9 is outside 0 … 5: no row is longer"),
        (torch.tensor([-1, 3]), "lengths -1 is outside 0 … 5"),
        (torch.tensor([1.0, 2.0]), r"lengths must be integers \(int64 or int32\), not torch.float32"),
        (torch.tensor([True, False]), r"lengths must be integers \(int64 or int32\), not torch.bool"),
        (torch.tensor([[1, 2]]), r"lengths must be \[rows\], not \[1, 2\]"),
    ],
)
def test_invalid_lengths(lengths: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        padding_mask(lengths, 5)


@pytest.mark.usefixtures("without_type_checks")
def test_invalid_packed_lengths() -> None:
    packed = torch.tensor([[2, 3], [4, 2]])
    with pytest.raises(ValueError, match="lengths 6 is outside 0 … 5: no row is longer"):
        packed_mask(packed, packed, 5, 5)
    with pytest.raises(ValueError, match=r"got missing and \[2, 2\]"):
        choose_mask(5, 6, None, packed)
    with pytest.raises(ValueError, match=r"got \[2, 1\] and \[2, 2\]"):
        choose_mask(5, 6, packed[:, :1], packed)
    for source in (None, torch.tensor([5, 6])):
        with pytest.raises(ValueError, match=r"packed rows need the lengths of queries and keys: got \[2, 2\] and"):
            choose_mask(6, 6, packed, source)
    with pytest.raises(ValueError, match="describe no sentence at all"):
        packed_mask(packed[:, :0], packed[:, :0], 5, 5)


def test_a_step_at_the_last_position_sees_everything() -> None:
    """Then no mask is needed; with a row that is not there yet, it is."""
    assert cached_mask(torch.tensor([[3], [3]]), 4) is None
    assert cached_mask(torch.tensor([[3], [2]]), 4) is not None
    assert cached_mask(torch.tensor([[2, 3]]), 4) is not None
    assert cached_mask(torch.tensor([[3], [3]]), 4, window=4) is None
    assert cached_mask(torch.tensor([[3], [3]]), 4, window=3) is not None
