"""Logits to logits, and to a choice: pure functions, one row at a time, whatever stands in the others.

What may not be chosen becomes -inf. Where numbers are equal, the lower id comes first.

Dimensions: R rows, V outputs, L ids of a history (-1 where there is none).
"""

import zlib
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from regard.decoding.options import Decoding

Logits = Float[Tensor, "R V"]


def keep_top_k(logits: Logits, k: int) -> Logits:
    """The k best alone; equals of the last stay too.

    >>> keep_top_k(torch.tensor([[1.0, 3.0, 2.0]]), 2)
    tensor([[-inf, 3., 2.]])
    """
    least = logits.topk(min(k, logits.size(-1))).values[:, -1:]  # [R, 1]
    return logits.masked_fill(logits < least, -torch.inf)


def keep_top_p(logits: Logits, p: float) -> Logits:
    """The fewest best ones that together have at least probability `p`; never none."""
    ordered, ids = logits.sort(dim=-1, descending=True, stable=True)
    probabilities = ordered.softmax(-1)
    better = probabilities.cumsum(-1) - probabilities  # the probability of all that are better than this one
    better[:, 0] = 0.0
    return logits.masked_fill((better >= p).scatter(-1, ids, better >= p), -torch.inf)


def keep_min_p(logits: Logits, p: float) -> Logits:
    """Those that have at least the share `p` of the best one's probability."""
    probabilities = logits.softmax(-1)
    return logits.masked_fill(probabilities < p * probabilities.amax(-1, keepdim=True), -torch.inf)


def penalise_repetition(logits: Logits, history: Int[Tensor, "R L"], penalty: float) -> Logits:
    """Tokens of the history become less likely: positive logits are divided by `penalty`, negative ones multiplied."""
    seen = _marked(torch.zeros_like(logits, dtype=torch.bool), history)
    return torch.where(seen, torch.where(logits < 0, logits * penalty, logits / penalty), logits)


def forbid_repeated_ngrams(logits: Logits, history: Int[Tensor, "R L"], n: int) -> Logits:
    """Whatever would complete a run of `n` tokens that the history holds already is not to be said."""
    if history.size(1) < n:
        return logits
    runs = history.unfold(1, n, 1)  # [R, L - n + 1, n]
    latest = history[:, history.size(1) - n + 1 :]  # [R, n - 1]
    again = (runs[..., :-1] == latest[:, None]).all(-1) & (runs >= 0).all(-1)  # [R, L - n + 1]
    banned = _marked(torch.zeros_like(logits, dtype=torch.bool), runs[..., -1].masked_fill(~again, -1))
    return logits.masked_fill(banned, -torch.inf)


def _marked(marks: Tensor, ids: Int[Tensor, "R L"]) -> Tensor:
    """`marks` [R, V], True at each of the row's ids that the model can say."""
    known = (ids >= 0) & (ids < marks.size(-1))
    counts = marks.int().scatter_add(-1, ids.where(known, 0), known.int())  # an id that is none counts nothing
    return counts > 0


BLOCK = 64


def best(scores: Float[Tensor, "N X"], k: int) -> tuple[Float[Tensor, "N M"], Int[Tensor, "N M"]]:
    """The k highest and where they stand; of equal ones those that stand first, which `topk` alone does not promise.

    Among many they are sought in those blocks that have the highest maxima: at most k of them can matter, and to take
    maxima is far quicker than to sort.
    """
    n, x = scores.shape
    k = min(k, x)
    if x < 2 * BLOCK * k:
        return _best_of_few(scores, k)
    scores = F.pad(scores, (0, -x % BLOCK), value=-torch.inf) if x % BLOCK else scores
    blocks = scores.view(n, -1, BLOCK)
    _, which = best(blocks.amax(-1), k)  # [N, k]
    which = which.sort(dim=1).values  # so that places keep their order
    few = blocks.gather(1, which[..., None].expand(-1, -1, BLOCK)).flatten(1)  # [N, k·BLOCK]
    values, place = _best_of_few(few, k)
    return values, which.gather(1, place // BLOCK) * BLOCK + place % BLOCK


def _best_of_few(scores: Float[Tensor, "N X"], k: int) -> tuple[Float[Tensor, "N M"], Int[Tensor, "N M"]]:
    if k == 1:
        value = scores.amax(1, keepdim=True)  # [N, 1]
        return value, (scores == value).int().argmax(1, keepdim=True)
    values, index = scores.sort(dim=1, descending=True, stable=True)
    return values[:, :k], index[:, :k]


def choose(logits: Logits, options: Decoding, draws: Float[Tensor, " R"] | None) -> Int[Tensor, " R"]:
    """The best id of each row or, given a number from [0, 1) for each, the one that it draws."""
    if draws is None:
        return best(logits, 1)[1][:, 0]
    logits = (logits.double() - logits.amax(-1, keepdim=True)) / options.temperature  # the best at 0: no overflow
    logits = keep_top_k(logits, options.top_k) if options.top_k else logits
    logits = keep_top_p(logits, options.top_p) if options.top_p < 1 else logits
    logits = keep_min_p(logits, options.min_p) if options.min_p else logits
    upto = logits.softmax(-1).cumsum(-1)  # [R, V]: the probability of this id and those before it
    upto = upto / upto[:, -1:]
    # Where nothing may be said, or the model says no numbers, any id will do: its score tells.
    return torch.searchsorted(upto, draws[:, None].double(), right=True)[:, 0].clamp(max=upto.size(-1) - 1)


def numbers(seed: int, prompt: Sequence[int], count: int) -> Float[Tensor, " {count}"]:
    """Random numbers from [0, 1) that depend on seed and prompt alone; fewer of them are the same ones."""
    generator = np.random.default_rng([seed, zlib.crc32(np.asarray(prompt, dtype=np.int64).tobytes())])
    return torch.from_numpy(generator.random(count))
