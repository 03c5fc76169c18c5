"""Masks: which queries may attend to which keys. True = may attend, everywhere in Regard.

A mask has one of six forms, and the form decides the attention kernel:

    None                nothing is hidden
    "causal"            position i sees positions 0 … i
    a boolean tensor    that broadcasts to the scores, [..., T, S]
    PackedMask          many sentences packed into short rows on a GPU, for `regard.model.tile_attention`
    BlockMask           many sentences packed into longer rows on a GPU, for FlexAttention
    BiasedMask          a boolean tensor or nothing, and a bias that is added to the scores

Dimensions: B rows, H heads, T queries, S keys, N sentences packed into a row.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

from regard.errors import RegardError
from regard.model.tensor_checks import check_integers, check_range, check_tensor

UNLIMITED = torch.iinfo(torch.int32).max
"""The window of a packed mask without a window."""
MAX_TILE_ROW = 128
"""Maximum length of a row that is computed as one tile: see `regard.model.tile_attention`."""


class PackedMask(NamedTuple):
    """The mask of packed rows: a query sees the keys of its own sentence, up to its limit and within its window."""

    sentence: Int[Tensor, "B T"]
    """Number of the sentence that each query belongs to."""
    limit: Int[Tensor, "B T"]
    """Highest rank of a key that each query sees."""
    key_sentence: Int[Tensor, "B S"]
    """Number of the sentence that each key belongs to; -1 after the last sentence."""
    key_rank: Int[Tensor, "B S"]
    """Position of each key in its sentence; 0 within a prefix, which the whole sentence sees."""
    window: int = UNLIMITED
    """Maximum number of ranks that each query sees, its limit included."""

    def block_mask(self) -> BlockMask:
        """The same mask for FlexAttention."""
        sentence, limit, key_sentence, key_rank, window = self
        (rows, t), s = sentence.shape, key_sentence.size(1)
        # A lambda, because FlexAttention inspects the signature: a method has `self`, and a function that is wrapped to
        # check its shapes has no named arguments.
        return create_block_mask(
            lambda b, _head, i, j: (
                (sentence[b, i] == key_sentence[b, j])
                & (key_rank[b, j] <= limit[b, i])
                & (limit[b, i] - key_rank[b, j] < window)
            ),
            rows, None, t, s, device=sentence.device,
        )  # fmt: skip

    def dense(self) -> Bool[Tensor, "B 1 T S"]:
        """The same mask as a boolean tensor."""
        same_sentence = self.sentence[:, :, None] == self.key_sentence[:, None]
        distance = self.limit[:, :, None] - self.key_rank[:, None]  # [B, T, S]
        return (same_sentence & (distance >= 0) & (distance < self.window))[:, None]


PlainMask = Tensor | PackedMask | BlockMask | Literal["causal"] | None


class BiasedMask(NamedTuple):
    """A mask and a bias that is added to the scores: how ALiBi and T5 encode positions."""

    bias: Float[Tensor, "*B H T S"]
    """What is added to the scores before the softmax."""
    allowed: Tensor | None
    """The mask as a boolean tensor; None if nothing is hidden."""
    combined: Tensor
    """The bias, and minus infinity where it is hidden, as fused kernels need both. Zero in rows that are all hidden."""
    blind: Tensor | None
    """The queries that see nothing, [..., T, 1], or None if `allowed` is."""


Mask = PlainMask | BiasedMask


def biased_mask(mask: PlainMask, bias: Float[Tensor, "*B H T S"], rows: int) -> BiasedMask:
    """A mask with a bias, for this many rows. All layers share it, so that both are combined once."""
    allowed = dense_mask(mask, bias.expand(rows, *bias.shape[-3:]))  # [B, H, T, S], without taking memory
    if allowed is None:
        return BiasedMask(bias, None, bias, None)
    blind = ~allowed.any(-1, keepdim=True)  # [..., T, 1]
    return BiasedMask(bias, allowed, bias.where(allowed, -torch.inf).masked_fill(blind, 0.0), blind)


def causal_mask(t: int, device: torch.device | str | None = None) -> Bool[Tensor, "t t"]:
    """Position i sees positions 0 … i.

    >>> causal_mask(3)
    tensor([[ True, False, False],
            [ True,  True, False],
            [ True,  True,  True]])
    """
    return torch.ones(t, t, dtype=torch.bool, device=device).tril()


def real_positions(lengths: Int[Tensor, " B"], t: int) -> Bool[Tensor, "B t"]:
    """Which of the t positions of each row hold a token: the first `lengths[b]` of row b; the others are padding.

    >>> real_positions(torch.tensor([1, 3]), 3)
    tensor([[ True, False, False],
            [ True,  True,  True]])
    """
    return torch.arange(t, device=lengths.device) < lengths[:, None]


def padding_mask(lengths: Int[Tensor, " B"], t: int) -> Bool[Tensor, "B 1 1 t"]:
    """Row b sees its first `lengths[b]` positions, and not the padding after them.

    Combine with a causal mask by `&`: `causal_mask(t) & padding_mask(lengths, t)` is [B, 1, t, t].
    """
    check_lengths("lengths", lengths, t, dimensions=(1,))
    return real_positions(lengths, t)[:, None, None]  # [B, 1, 1, t]


def prefix_mask(prefix: Int[Tensor, " B"], t: int) -> Bool[Tensor, "B 1 t t"]:
    """Causal, except that the first `prefix[b]` positions of row b all see each other.

    >>> prefix_mask(torch.tensor([2]), 3)[0, 0]
    tensor([[ True,  True, False],
            [ True,  True, False],
            [ True,  True,  True]])
    """
    return causal_mask(t, prefix.device) | padding_mask(prefix, t)


def window_mask(t: int, window: int, device: torch.device | str | None = None) -> Bool[Tensor, "t t"]:
    """Position i sees itself and the `window` - 1 positions before it.

    >>> window_mask(4, 2)
    tensor([[ True, False, False, False],
            [ True,  True, False, False],
            [False,  True,  True, False],
            [False, False,  True,  True]])
    """
    return causal_mask(t, device).triu(1 - window)


def cached_mask(
    positions: Int[Tensor, "B T"], s: int, prefix: Int[Tensor, " B"] | None = None, window: int | None = None
) -> Bool[Tensor, "B 1 T s"] | None:
    """A query at position p sees the keys at positions 0 … p (and its prefix) of a cache of length `s`, or with a
    window only the last `window` of them.

    None if every row has a single query at the last position, which sees everything.
    """
    readable = positions.device.type == "cpu" and not torch.compiler.is_compiling()
    limited = window is not None and window < s
    if positions.size(1) == 1 and readable and not limited and bool((positions == s - 1).all()):
        return None
    keys, last = torch.arange(s, device=positions.device), positions[..., None]
    sees = keys <= last  # [B, T, s]
    if window is not None:
        sees = sees & (keys > last - window)
    return sees[:, None] if prefix is None else sees[:, None] | padding_mask(prefix, s)


def packed_mask(
    queries: Int[Tensor, "B N"],
    keys: Int[Tensor, "B N"],
    t: int,
    s: int,
    causal: bool = False,
    prefix: Int[Tensor, "B N"] | None = None,
    window: int | None = None,
) -> Bool[Tensor, "B 1 t s"] | PackedMask | BlockMask:
    """Many sentences one after the other in a row: a query sees only the keys of its own sentence.

    `queries` and `keys` hold the lengths of the sentences in each row, 0 for unused entries; they are equal for
    self-attention, and those of target and source for cross-attention. Positions after the last sentence of a row
    neither see nor are seen. A `window` is for causal masks. On a GPU the mask stays symbolic, for kernels that skip
    what is hidden; elsewhere it is a tensor.

    >>> packed_mask(torch.tensor([[1, 2]]), torch.tensor([[1, 2]]), 3, 3, causal=True)[0, 0]
    tensor([[ True, False, False],
            [False,  True, False],
            [False,  True,  True]])
    """
    check_lengths("lengths", queries, t, dimensions=(2,))
    check_lengths("lengths", keys, s, dimensions=(2,))
    sentence, rank = packed_positions(queries, t)  # [B, t] each
    key_sentence, key_rank = packed_positions(keys, s)  # [B, s] each
    last = queries.size(1) - 1
    if prefix is not None:
        key_rank = key_rank.where(key_rank >= prefix.gather(1, key_sentence.clamp(max=last)), 0)
    limit = rank if causal else torch.full_like(rank, s)  # no key has a higher rank
    key_sentence = key_sentence.where(key_sentence <= last, -1)
    sentence, limit, key_sentence, key_rank = (x.int() for x in (sentence, limit, key_sentence, key_rank))
    mask = PackedMask(sentence, limit, key_sentence, key_rank, UNLIMITED if window is None else window)
    if not queries.is_cuda:
        return mask.dense()
    return mask if max(t, s) <= MAX_TILE_ROW else mask.block_mask()


def choose_mask(
    t: int,
    s: int,
    queries: Tensor | None = None,
    keys: Tensor | None = None,
    causal: bool = False,
    prefix: Tensor | None = None,
    window: int | None = None,
    device: torch.device | None = None,
) -> PlainMask:
    """The cheapest correct mask for T queries and S keys, given the lengths of both. A `window` is for causal masks.

    Lengths are [B] if each row holds one sentence, padded on the right, and [B, N] if it holds many. A causal mask
    already hides padding on the right, which lies in the future of every real position.
    """
    if any(lengths is not None and lengths.dim() == 2 for lengths in (queries, keys)):
        if queries is None or keys is None or queries.shape != keys.shape:
            shapes = ["missing" if lengths is None else list(lengths.shape) for lengths in (queries, keys)]
            raise RegardError(f"packed rows need the lengths of queries and keys: got {shapes[0]} and {shapes[1]}")
        return packed_mask(queries, keys, t, s, causal, prefix, window)
    if prefix is not None:
        return prefix_mask(prefix, t)
    if causal:
        return "causal" if window is None or window >= t else window_mask(t, window, device)
    return None if keys is None else padding_mask(keys, s)


def dense_mask(mask: PlainMask, scores: Tensor) -> Tensor | None:
    """The mask as a boolean tensor that broadcasts to `scores` [..., T, S], or None if nothing is hidden."""
    if isinstance(mask, PackedMask):
        return mask.dense()
    if isinstance(mask, BlockMask):
        return evaluate_predicate(mask.mask_mod, mask.shape[0], *mask.seq_lengths, scores.device)
    check_mask(mask, scores.shape)
    return causal_mask(scores.size(-1), scores.device) if isinstance(mask, str) else mask


def check_mask(mask: PlainMask, scores: torch.Size) -> None:
    """Raise a RegardError unless `mask` fits scores of this shape."""
    if isinstance(mask, str):
        if mask != "causal":
            raise RegardError(f"mask={mask!r} is unknown: the only named mask is 'causal'")
        if scores[-2] != scores[-1]:
            raise RegardError(f"a causal mask needs as many queries as keys, not {scores[-2]} and {scores[-1]}")
    elif mask is not None and not isinstance(mask, PackedMask | BlockMask):
        check_tensor("a mask", mask)
        if mask.dtype != torch.bool:
            raise RegardError(f"a mask must be boolean (True = may attend), not {mask.dtype}")
        fits = 2 <= mask.dim() <= len(scores) and all(
            m == 1 or m == n for m, n in zip(reversed(mask.shape), reversed(scores), strict=False)
        )
        if not fits:
            raise RegardError(
                f"mask {list(mask.shape)} does not broadcast to the scores {list(scores)}, [..., queries, keys]"
            )


def check_lengths(what: str, lengths: Tensor, t: int, dimensions: tuple[int, ...], rows: int | None = None) -> None:
    """Raise a RegardError unless `lengths` has these dimensions and rows, and fits into `t` positions."""
    check_integers(what, lengths)
    wanted = " or ".join("[rows]" if count == 1 else "[rows, sentences]" for count in dimensions)
    if lengths.dim() not in dimensions:
        raise RegardError(f"{what} must be {wanted}, not {list(lengths.shape)}")
    if lengths.dim() == 2 and lengths.size(1) == 0:
        raise RegardError(f"{what} {list(lengths.shape)} describe no sentence at all")
    if rows is not None and lengths.size(0) != rows:
        raise RegardError(f"{what} must be {wanted}: there are {rows} rows, but lengths for {lengths.size(0)}")
    if lengths.dim() == 2:
        check_range(what, lengths, t + 1, "no row is longer")
        lengths = lengths.sum(1)
    check_range(what, lengths, t + 1, "no row is longer")


def packed_positions(lengths: Int[Tensor, "B N"], t: int) -> tuple[Int[Tensor, "B t"], Int[Tensor, "B t"]]:
    """For each of a row's t positions: the number of its sentence (N after the last), and the position within it.

    >>> sentence, rank = packed_positions(torch.tensor([[1, 2]]), 4)
    >>> sentence, rank
    (tensor([[0, 1, 1, 2]]), tensor([[0, 0, 1, 0]]))
    """
    ends = lengths.cumsum(1)  # [B, N]
    index = torch.arange(t, device=lengths.device).expand(lengths.size(0), t).contiguous()  # [B, t]
    sentence = torch.searchsorted(ends, index, right=True)
    starts = torch.cat([torch.zeros_like(ends[:, :1]), ends], 1)  # [B, N + 1]
    return sentence, index - starts.gather(1, sentence)


def evaluate_predicate(
    may_attend: Callable[..., Tensor], rows: int, t: int, s: int, device: torch.device
) -> Bool[Tensor, "rows 1 t s"]:
    """FlexAttention's form of a mask, a predicate of row, head, query and key, evaluated for all queries and keys."""
    b, i, j = (torch.arange(n, device=device) for n in (rows, t, s))
    return may_attend(b[:, None, None, None], 0, i[:, None], j).expand(rows, 1, t, s)
