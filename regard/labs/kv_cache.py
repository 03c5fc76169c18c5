"""What does it save to keep keys and values while writing, and what memory does it take?

A decoder writes one token after another. With the cache it computes the new token's query, key and value alone and
looks at the keys and values that are kept; without, it computes all tokens so far anew. Both must give the same logits.
Measured for the token at each length: operations in matrix products, and time. The bytes of the cache are counted for
several shapes, and set beside the formula 2 · layers · heads · width · length · batch · bytes of a number.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from torch import Tensor

from regard.config import preset
from regard.labs.cost_meters import cpu_seconds, curves, most_bytes, products
from regard.labs.lab import Claim, Result, Table
from regard.labs.lab_figures import BLUE, ORANGE, panel
from regard.labs.scaling import fitted_power
from regard.model.cache import Cache
from regard.model.transformer import Decoder, build


@dataclass(frozen=True)
class Sizes:
    """Who writes how much."""

    lengths: tuple[int, ...] = (16, 32, 64, 128, 256, 512)
    """tokens there are, with the one to be written next"""
    width: int = 128
    """d_model"""
    layers: int = 4
    """of the decoder"""
    heads: int = 4
    """of queries in each layer"""
    seed: int = 0


class Token(NamedTuple):
    """What the next token takes, with the cache and anew."""

    operations: tuple[int, int]
    seconds: tuple[float, float]
    difference: float
    """the largest between their logits"""


class Room(NamedTuple):
    """The bytes of a cache: by the formula, counted in its tensors, taken from memory while it was made."""

    shape: str
    formula: int
    counted: int
    taken: int


@torch.no_grad()
def run(sizes: Sizes) -> Result:
    """The token at each length; then caches of several shapes."""
    torch.manual_seed(sizes.seed)
    longest, heads = max(sizes.lengths), sizes.heads
    model, tokens = decoder(sizes), torch.randint(32, (1, longest))
    found = {n: next_token(model, tokens[:, :n]) for n in sorted(sizes.lengths)}
    shapes = ((1, heads, torch.float32), (8, heads, torch.float32), (8, heads, torch.bfloat16), (8, 1, torch.float32))
    rows = [
        (f"{n:,}", f"{a:,}", f"{b:,}", f"{b / a:.1f}", f"{s * 1e3:.2f}", f"{t * 1e3:.2f}", f"{t / s:.1f}")
        for n, ((a, b), (s, t), _) in found.items()
    ]
    columns = ("length", "operations, cached", "anew", "ratio", "ms, cached", "anew", "ratio")
    bytes_of = ("cache", "bytes by the formula", "in its tensors", "taken from memory")
    rooms = [room(sizes, *shape) for shape in shapes]
    caches = tuple((each.shape, *(f"{count:,}" for count in each[1:])) for each in rooms)
    tables = (
        Table(columns, tuple(rows), "To write the next token"),
        Table(bytes_of, caches, f"A cache for {longest} tokens: rows × heads"),
    )
    notes = (
        "Heads here are those of keys and values: where query heads share them, the cache is as much smaller.",
        "An encoder–decoder keeps keys and values of its source too, by the same formula with the source's length.",
    )
    return Result(tables, claims_of(found, rooms), lambda figure: draw(figure, found), (9.5, 3.6), notes)


def decoder(sizes: Sizes, kv_heads: int | None = None) -> Decoder:
    """A small one with fresh weights."""
    shape = {"d_model": sizes.width, "heads": sizes.heads, "kv_heads": kv_heads, "layers": sizes.layers}
    model = build(preset("tiny", kind="decoder", vocab_size=33, **shape)).eval()
    assert isinstance(model, Decoder)
    return model


def next_token(model: Decoder, tokens: Int[Tensor, "1 T"]) -> Token:
    """The logits behind these tokens, by both ways."""
    places = torch.arange(tokens.size(1))[None]  # [1, T]
    cache = model.start(1, tokens.size(1))
    model.step(tokens[:, :-1], places[:, :-1], cache)  # all but the last are there

    def cached() -> Float[Tensor, "1 1 V"]:
        return model.step(tokens[:, -1:], places[:, -1:], cache)

    def anew() -> Float[Tensor, "1 1 V"]:
        return model.head(model.hidden(tokens)[:, -1:])

    return Token(
        (products(cached).operations, products(anew).operations),
        (cpu_seconds(cached), cpu_seconds(anew)),
        float((cached() - anew()).abs().max()),
    )


def room(sizes: Sizes, batch: int, kv_heads: int, dtype: torch.dtype) -> Room:
    """A cache of this shape for the longest text."""
    model, length, kept = decoder(sizes, kv_heads).to(dtype), max(sizes.lengths), list[Cache]()
    taken = most_bytes(lambda: kept.append(model.start(batch, length)))
    counted = sum(each.nbytes for keys_and_values in kept[0].own for each in keys_and_values)
    formula = 2 * sizes.layers * kv_heads * (sizes.width // sizes.heads) * length * batch * dtype.itemsize
    return Room(f"{batch} × {kv_heads}, {str(dtype).removeprefix('torch.')}", formula, counted, taken)


def claims_of(found: dict[int, Token], rooms: list[Room]) -> tuple[Claim, ...]:
    """What follows."""
    longest, last, apart = max(found), found[max(found)], max(each.difference for each in found.values())
    cached, anew = (fitted_power(tuple(found), [float(each.operations[i]) for each in found.values()]) for i in (0, 1))
    fewer = last.operations[1] / last.operations[0]
    return (
        Claim(f"Both give the same logits, to {apart:.0e}", apart < 1e-4),
        Claim(
            f"Anew, a token's operations grow as its length to the {anew:.2f}; cached, to the {cached:.2f}: at "
            f"{longest} tokens they are {fewer:.0f} times fewer",
            0.9 < anew < 2 and cached < anew - 0.7 and fewer > longest / 2,
        ),
        Claim(
            f"and time follows: at {longest} tokens {last.seconds[1] / last.seconds[0]:.0f} times less",
            last.seconds[1] > 2 * last.seconds[0],
        ),
        Claim(
            f"The cache takes 2·layers·heads·width·length·batch·bytes exactly: {rooms[0].counted:,} bytes for one row",
            all(each.formula == each.counted == each.taken for each in rooms),
        ),
    )


def draw(figure: Figure, found: dict[int, Token]) -> None:
    """Operations and time of the next token."""
    operations, seconds, _ = zip(*found.values(), strict=True)
    titles = ("operations of the next token", "time of the next token, seconds")
    for i, (title, costs) in enumerate(zip(titles, (operations, seconds), strict=True), start=1):
        cached, anew = zip(*costs, strict=True)
        axes = panel(figure, 2, i, title, "tokens so far")
        curves(axes, list(found), {"anew": anew, "cached": cached}, (ORANGE, BLUE))
