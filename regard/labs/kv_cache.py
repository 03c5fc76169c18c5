"""What does a key–value cache save during generation, and how much memory does it take?

A decoder generates one token after another. With a cache, it computes only the new token's query, key and value, and
attends to the cached keys and values. Without one, it recomputes all tokens so far. Both must give the same logits. For
the next token at each length, the lab measures the operations in matrix products and the time. It also measures the
bytes of caches of several shapes and compares them with the formula
2 · layers · heads · head width · length · batch · bytes per number.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from torch import Tensor

from regard.config import preset
from regard.labs.cost_meters import count_products, cpu_seconds, log_log_curves, peak_bytes
from regard.labs.lab import Claim, LabResult, ResultTable
from regard.labs.lab_figures import BLUE, ORANGE, panel
from regard.labs.lab_statistics import fitted_power
from regard.model.cache import Cache
from regard.model.transformer import Decoder, build


@dataclass(frozen=True)
class Sizes:
    """Sizes of the decoder and of the texts."""

    lengths: tuple[int, ...] = (16, 32, 64, 128, 256, 512)
    """Numbers of tokens from which the next token is predicted."""
    width: int = 128
    """Width d_model of the decoder."""
    layers: int = 4
    """Number of layers of the decoder."""
    heads: int = 4
    """Number of query heads in each layer."""
    seed: int = 0
    """Seed of the random numbers."""


class NextTokenCost(NamedTuple):
    """The cost of the next token, each with the cache and without it."""

    operations: tuple[int, int]
    seconds: tuple[float, float]
    difference: float
    """Largest difference between the logits with and without the cache."""


class CacheMemory(NamedTuple):
    """The bytes of a cache by the formula, in its tensors, and allocated while it was created."""

    shape: str
    formula: int
    tensors: int
    allocated: int


@torch.no_grad()
def run(sizes: Sizes) -> LabResult:
    """Measure the next token at each length, then caches of several shapes."""
    torch.manual_seed(sizes.seed)
    longest, heads = max(sizes.lengths), sizes.heads
    model, tokens = new_decoder(sizes), torch.randint(32, (1, longest))
    costs = {n: next_token_cost(model, tokens[:, :n]) for n in sorted(sizes.lengths)}
    shapes = ((1, heads, torch.float32), (8, heads, torch.float32), (8, heads, torch.bfloat16), (8, 1, torch.float32))
    caches = [cache_memory(sizes, *shape) for shape in shapes]
    rows = [
        (f"{n:,}", f"{a:,}", f"{b:,}", f"{b / a:.1f}", f"{s * 1e3:.2f}", f"{t * 1e3:.2f}", f"{t / s:.1f}")
        for n, ((a, b), (s, t), _) in costs.items()
    ]
    columns = ("length", "operations, cached", "recomputed", "ratio", "ms, cached", "recomputed", "ratio")
    cache_columns = ("batch × heads", "bytes by the formula", "in its tensors", "allocated")
    cache_rows = tuple((cache.shape, *(f"{count:,}" for count in cache[1:])) for cache in caches)
    tables = (
        ResultTable(columns, tuple(rows), "Cost of the next token"),
        ResultTable(cache_columns, cache_rows, f"Memory of a cache for {longest} tokens"),
    )
    notes = (
        "Heads in the formula are those of keys and values: if query heads share them, the cache is smaller by the "
        "same factor.",
        "An encoder–decoder also caches the keys and values of its source, by the same formula with the source length.",
    )
    return LabResult(tables, conclusions(costs, caches), lambda figure: draw(figure, costs), (9.5, 3.6), notes)


def new_decoder(sizes: Sizes, kv_heads: int | None = None) -> Decoder:
    """Return a small decoder with fresh weights."""
    shape = {"d_model": sizes.width, "heads": sizes.heads, "kv_heads": kv_heads, "layers": sizes.layers}
    model = build(preset("tiny", kind="decoder", vocab_size=33, **shape)).eval()
    assert isinstance(model, Decoder)
    return model


def next_token_cost(model: Decoder, tokens: Int[Tensor, "1 T"]) -> NextTokenCost:
    """Measure the computation of the logits after these tokens, with and without the cache."""
    positions = torch.arange(tokens.size(1))[None]  # [1, T]
    cache = model.start(1, tokens.size(1))
    model.step(tokens[:, :-1], positions[:, :-1], cache)  # fills the cache with all tokens but the last

    def cached() -> Float[Tensor, "1 1 V"]:
        return model.step(tokens[:, -1:], positions[:, -1:], cache)

    def recomputed() -> Float[Tensor, "1 1 V"]:
        return model.head(model.hidden(tokens)[:, -1:])

    return NextTokenCost(
        (count_products(cached).operations, count_products(recomputed).operations),
        (cpu_seconds(cached), cpu_seconds(recomputed)),
        float((cached() - recomputed()).abs().max()),
    )


def cache_memory(sizes: Sizes, batch: int, kv_heads: int, dtype: torch.dtype) -> CacheMemory:
    """Measure a cache of this shape for the greatest length."""
    model, length, created = new_decoder(sizes, kv_heads).to(dtype), max(sizes.lengths), list[Cache]()
    allocated = peak_bytes(lambda: created.append(model.start(batch, length)))
    in_tensors = sum(tensor.nbytes for keys_and_values in created[0].self_attention for tensor in keys_and_values)
    formula = 2 * sizes.layers * kv_heads * (sizes.width // sizes.heads) * length * batch * dtype.itemsize
    return CacheMemory(f"{batch} × {kv_heads}, {str(dtype).removeprefix('torch.')}", formula, in_tensors, allocated)


def conclusions(costs: dict[int, NextTokenCost], caches: list[CacheMemory]) -> tuple[Claim, ...]:
    """Return the claims on equal logits, operations, time and memory."""
    longest, last, difference = max(costs), costs[max(costs)], max(cost.difference for cost in costs.values())
    cached, recomputed = (
        fitted_power(tuple(costs), [float(cost.operations[i]) for cost in costs.values()]) for i in (0, 1)
    )
    ratio = last.operations[1] / last.operations[0]
    return (
        Claim(f"Both give the same logits, up to {difference:.0e}", difference < 1e-4),
        Claim(
            f"Without the cache, the operations for a token grow as the length to the power {recomputed:.2f}; with it, "
            f"to the power {cached:.2f}: at {longest} tokens they are {ratio:.0f} times fewer",
            0.9 < recomputed < 2 and cached < recomputed - 0.7 and ratio > longest / 2,
        ),
        Claim(
            f"Time falls, too: at {longest} tokens it is {last.seconds[1] / last.seconds[0]:.0f} times shorter",
            last.seconds[1] > 2 * last.seconds[0],
        ),
        Claim(
            f"The cache takes exactly 2·layers·heads·head width·length·batch·bytes: {caches[0].tensors:,} bytes for "
            f"one text of {longest} tokens",
            all(cache.formula == cache.tensors == cache.allocated for cache in caches),
        ),
    )


def draw(figure: Figure, costs: dict[int, NextTokenCost]) -> None:
    """Draw the operations and the time of the next token."""
    operations, seconds, _ = zip(*costs.values(), strict=True)
    titles = ("operations for the next token", "time for the next token, seconds")
    for i, (title, pairs) in enumerate(zip(titles, (operations, seconds), strict=True), start=1):
        cached, recomputed = zip(*pairs, strict=True)
        axes = panel(figure, 2, i, title, "tokens so far")
        log_log_curves(axes, list(costs), {"recomputed": recomputed, "cached": cached}, (ORANGE, BLUE))
