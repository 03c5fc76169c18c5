"""Who may attend to whom. True = may attend, everywhere in Regard.

A mask is one of five things, and it decides the kernel:

    None                nothing is hidden
    "causal"            position i sees positions 0 … i
    a boolean tensor    that broadcasts to the scores, [..., T, S]
    Sentences           packed into short rows on a GPU, for tiles
    a BlockMask         packed into longer ones, for FlexAttention

Dimensions: B rows, T queries, S keys, N sentences packed into a row.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

from regard.errors import RegardError
from regard.model.tensor_checks import check_integers, check_range, check_tensor

SHORT = 128
"""places of a row that are few enough for one tile: see `regard.model.tile_attention`"""


class Sentences(NamedTuple):
    """Which sentence of its row each place belongs to: a query sees the keys of its own, up to its limit."""

    sentence: Int[Tensor, "B T"]
    limit: Int[Tensor, "B T"]
    """the highest rank of a key that the query sees"""
    key_sentence: Int[Tensor, "B S"]
    """-1 behind the last sentence"""
    key_rank: Int[Tensor, "B S"]
    """its place in its sentence; 0 within a prefix, which all of the sentence sees"""

    def block_mask(self) -> BlockMask:
        """The same mask for FlexAttention."""
        sentence, limit, key_sentence, key_rank = self
        (rows, t), s = sentence.shape, key_sentence.size(1)
        # A lambda: FlexAttention counts the arguments in its code, among which a method has `self`, and a function that
        # is wrapped to have its shapes checked has none.
        return create_block_mask(
            lambda b, _head, i, j: (sentence[b, i] == key_sentence[b, j]) & (key_rank[b, j] <= limit[b, i]),
            rows, None, t, s, device=sentence.device,
        )  # fmt: skip

    def dense(self) -> Bool[Tensor, "B 1 T S"]:
        """The predicate, asked for every query and key at once."""
        same = self.sentence[:, :, None] == self.key_sentence[:, None]
        return (same & (self.key_rank[:, None] <= self.limit[:, :, None]))[:, None]


Mask = Tensor | Sentences | BlockMask | Literal["causal"] | None


def causal_mask(t: int, device: torch.device | str | None = None) -> Bool[Tensor, "t t"]:
    """Position i sees positions 0 … i.

    >>> causal_mask(3)
    tensor([[ True, False, False],
            [ True,  True, False],
            [ True,  True,  True]])
    """
    return torch.ones(t, t, dtype=torch.bool, device=device).tril()


def padding_mask(lengths: Int[Tensor, " B"], t: int) -> Bool[Tensor, "B 1 1 t"]:
    """Row b sees its first `lengths[b]` positions and nothing of the padding after them.

    Combine with a causal mask by `&`: `causal_mask(t) & padding_mask(lengths, t)` is [B, 1, t, t].
    """
    check_lengths("lengths", lengths, t, dimensions=(1,))
    return (torch.arange(t, device=lengths.device) < lengths[:, None])[:, None, None]  # [B, 1, 1, t]


def prefix_mask(prefix: Int[Tensor, " B"], t: int) -> Bool[Tensor, "B 1 t t"]:
    """Causal, but the first `prefix[b]` positions of row b see one another whole.

    >>> prefix_mask(torch.tensor([2]), 3)[0, 0]
    tensor([[ True,  True, False],
            [ True,  True, False],
            [ True,  True,  True]])
    """
    return causal_mask(t, prefix.device) | padding_mask(prefix, t)


def cached_mask(
    positions: Int[Tensor, "B T"], s: int, prefix: Int[Tensor, " B"] | None = None
) -> Bool[Tensor, "B 1 T s"] | None:
    """A query at position p sees the keys cached at 0 … p (and its prefix), out of `s` places in the cache.

    None where each row's one query stands in the last place, and so sees all: a step of an encoder–decoder.
    """
    readable = positions.device.type == "cpu" and not torch.compiler.is_compiling()
    if positions.size(1) == 1 and readable and bool((positions == s - 1).all()):
        return None
    sees = torch.arange(s, device=positions.device) <= positions[..., None]  # [B, T, s]
    return sees[:, None] if prefix is None else sees[:, None] | padding_mask(prefix, s)


def packed_mask(
    queries: Int[Tensor, "B N"],
    keys: Int[Tensor, "B N"],
    t: int,
    s: int,
    causal: bool = False,
    prefix: Int[Tensor, "B N"] | None = None,
) -> Bool[Tensor, "B 1 t s"] | Sentences | BlockMask:
    """Many sentences side by side in a row: a query sees the keys of its own sentence alone.

    `queries` and `keys` hold the sentences' lengths in each row, 0 for a place not used; for self-attention they are
    the same, for cross-attention those of target and source. What lies behind the last sentence of a row neither sees
    nor is seen. On a GPU the mask stays a description, for kernels that skip what is hidden; elsewhere it is dense.

    >>> packed_mask(torch.tensor([[1, 2]]), torch.tensor([[1, 2]]), 3, 3, causal=True)[0, 0]
    tensor([[ True, False, False],
            [False,  True, False],
            [False,  True,  True]])
    """
    check_lengths("lengths", queries, t, dimensions=(2,))
    check_lengths("lengths", keys, s, dimensions=(2,))
    sentence, place = places(queries, t)  # [B, t] each
    key_sentence, key_place = places(keys, s)  # [B, s] each
    last = queries.size(1) - 1
    if prefix is not None:
        key_place = key_place.where(key_place >= prefix.gather(1, key_sentence.clamp(max=last)), 0)
    limit = place if causal else torch.full_like(place, torch.iinfo(torch.int32).max)
    sides = (sentence, limit, key_sentence.where(key_sentence <= last, -1), key_place)
    found = Sentences(*(each.int() for each in sides))
    if not queries.is_cuda:
        return found.dense()
    return found if max(t, s) <= SHORT else found.block_mask()


def choose_mask(
    t: int,
    s: int,
    queries: Tensor | None = None,
    keys: Tensor | None = None,
    causal: bool = False,
    prefix: Tensor | None = None,
) -> Mask:
    """The cheapest mask that is right for T queries and S keys whose `queries` and `keys` are the lengths.

    Lengths are [B] where each row holds one sentence, padded on the right, and [B, N] where it holds many. Under a
    causal mask padding on the right lies in the future of every real position, so that it needs no mask of its own.
    """
    if any(lengths is not None and lengths.dim() == 2 for lengths in (queries, keys)):
        if queries is None or keys is None or queries.shape != keys.shape:
            shapes = ["missing" if lengths is None else list(lengths.shape) for lengths in (queries, keys)]
            raise RegardError(f"packed rows need the lengths of both sides: here they are {shapes[0]} and {shapes[1]}")
        return packed_mask(queries, keys, t, s, causal, prefix)
    if prefix is not None:
        return prefix_mask(prefix, t)
    if causal:
        return "causal"
    return None if keys is None else padding_mask(keys, s)


def dense(mask: Mask, scores: Tensor) -> Tensor | None:
    """The mask as a boolean tensor that broadcasts to `scores` [..., T, S], or None when nothing is hidden."""
    if isinstance(mask, Sentences):
        return mask.dense()
    if isinstance(mask, BlockMask):
        return evaluate(mask.mask_mod, mask.shape[0], *mask.seq_lengths, scores.device)
    check_mask(mask, scores.shape)
    return causal_mask(scores.size(-1), scores.device) if isinstance(mask, str) else mask


def check_mask(mask: Mask, scores: torch.Size) -> None:
    """A ValueError unless `mask` fits scores of that shape."""
    if isinstance(mask, str):
        if mask != "causal":
            raise RegardError(f"mask={mask!r} is unknown: the only mask with a name is 'causal'")
        if scores[-2] != scores[-1]:
            raise RegardError(
                f"a causal mask needs as many queries as keys, and here are {scores[-2]} and {scores[-1]}"
            )
    elif mask is not None and not isinstance(mask, Sentences | BlockMask):
        check_tensor("a mask", mask)
        if mask.dtype != torch.bool:
            raise RegardError(f"a mask must be boolean (True = may attend), and this one is {mask.dtype}")
        fits = 2 <= mask.dim() <= len(scores) and all(
            m == 1 or m == n for m, n in zip(reversed(mask.shape), reversed(scores), strict=False)
        )
        if not fits:
            raise RegardError(
                f"mask {list(mask.shape)} does not broadcast to the scores {list(scores)}, [..., queries, keys]"
            )


def check_lengths(what: str, lengths: Tensor, t: int, dimensions: tuple[int, ...], rows: int | None = None) -> None:
    """A ValueError unless `lengths` are integers, of so many dimensions and rows, that fit into `t` positions."""
    check_integers(what, lengths)
    wanted = " or ".join("[rows]" if each == 1 else "[rows, sentences]" for each in dimensions)
    if lengths.dim() not in dimensions:
        raise RegardError(f"{what} must be {wanted}, not {list(lengths.shape)}")
    if lengths.dim() == 2 and lengths.size(1) == 0:
        raise RegardError(f"{what} {list(lengths.shape)} are of no sentence at all")
    if rows is not None and lengths.size(0) != rows:
        raise RegardError(f"{what} must be {wanted}: here are {rows} rows, and lengths for {lengths.size(0)}")
    if lengths.dim() == 2:
        check_range(what, lengths, t + 1, "no row is longer")
        lengths = lengths.sum(1)
    check_range(what, lengths, t + 1, "no row is longer")


def places(lengths: Int[Tensor, "B N"], t: int) -> tuple[Int[Tensor, "B t"], Int[Tensor, "B t"]]:
    """For each of a row's t positions: which of its sentences it is in (N behind the last), and where in that one.

    >>> sentence, place = places(torch.tensor([[1, 2]]), 4)
    >>> sentence, place
    (tensor([[0, 1, 1, 2]]), tensor([[0, 0, 1, 0]]))
    """
    ends = lengths.cumsum(1)  # [B, N]
    index = torch.arange(t, device=lengths.device).expand(lengths.size(0), t).contiguous()  # [B, t]
    sentence = torch.searchsorted(ends, index, right=True)
    starts = torch.cat([torch.zeros_like(ends[:, :1]), ends], 1)  # [B, N + 1]
    return sentence, index - starts.gather(1, sentence)


def evaluate(
    may_attend: Callable[..., Tensor], rows: int, t: int, s: int, device: torch.device
) -> Bool[Tensor, "rows 1 t s"]:
    """FlexAttention's kind of mask, a predicate of row, head, query and key, asked for every query and key at once."""
    b, i, j = (torch.arange(n, device=device) for n in (rows, t, s))
    return may_attend(b[:, None, None, None], 0, i[:, None], j).expand(rows, 1, t, s)
