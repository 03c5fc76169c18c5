"""Logits to filtered logits, and to a choice: pure functions that treat every row independently.

Tokens that may not be chosen get -inf. Ties are broken in favour of the lower id.

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
    """Keep the k highest logits, and any that equal the last of them.

    >>> keep_top_k(torch.tensor([[1.0, 3.0, 2.0]]), 2)
    tensor([[-inf, 3., 2.]])
    """
    kth = logits.topk(min(k, logits.size(-1))).values[:, -1:]  # [R, 1]
    return logits.masked_fill(logits < kth, -torch.inf)


def keep_top_p(logits: Logits, p: float) -> Logits:
    """Keep the smallest set of best tokens whose probabilities add up to at least `p`; always at least one."""
    ordered, ids = logits.sort(dim=-1, descending=True, stable=True)
    probabilities = ordered.softmax(-1)
    better = probabilities.cumsum(-1) - probabilities  # total probability of all tokens better than this one
    better[:, 0] = 0.0
    return logits.masked_fill((better >= p).scatter(-1, ids, better >= p), -torch.inf)


def keep_min_p(logits: Logits, p: float) -> Logits:
    """Keep tokens with at least the fraction `p` of the best token's probability."""
    probabilities = logits.softmax(-1)
    return logits.masked_fill(probabilities < p * probabilities.amax(-1, keepdim=True), -torch.inf)


def penalise_repetition(logits: Logits, history: Int[Tensor, "R L"], penalty: float) -> Logits:
    """Make tokens of the history less likely: positive logits are divided by `penalty`, negative ones multiplied."""
    seen = _ids_to_mask(history, logits)
    return torch.where(seen, torch.where(logits < 0, logits * penalty, logits / penalty), logits)


def forbid_repeated_ngrams(logits: Logits, history: Int[Tensor, "R L"], n: int) -> Logits:
    """Forbid tokens that would complete an n-gram that the history already contains."""
    if history.size(1) < n:
        return logits
    ngrams = history.unfold(1, n, 1)  # [R, L - n + 1, n]
    latest = history[:, history.size(1) - n + 1 :]  # [R, n - 1]
    matches = (ngrams[..., :-1] == latest[:, None]).all(-1) & (ngrams >= 0).all(-1)  # [R, L - n + 1]
    forbidden = _ids_to_mask(ngrams[..., -1].masked_fill(~matches, -1), logits)
    return logits.masked_fill(forbidden, -torch.inf)


def _ids_to_mask(ids: Int[Tensor, "R L"], logits: Logits) -> Tensor:
    """[R, V], True at each of a row's ids that is an output of the model."""
    valid = (ids >= 0) & (ids < logits.size(-1))
    counts = torch.zeros_like(logits, dtype=torch.int)
    return counts.scatter_add(-1, ids.where(valid, 0), valid.int()) > 0  # an invalid id adds nothing


TOP_K_BLOCK = 64


def stable_top_k(scores: Float[Tensor, "N X"], k: int) -> tuple[Float[Tensor, "N M"], Int[Tensor, "N M"]]:
    """The k highest scores and their indices; of equal scores the first ones, which `topk` does not guarantee.

    In long rows only the blocks with the highest maxima are searched: at most k of them can matter, and computing
    maxima is much faster than sorting.
    """
    n, x = scores.shape
    k = min(k, x)
    if x < 2 * TOP_K_BLOCK * k:
        return _stable_top_k_of_few(scores, k)
    scores = F.pad(scores, (0, -x % TOP_K_BLOCK), value=-torch.inf) if x % TOP_K_BLOCK else scores
    blocks = scores.view(n, -1, TOP_K_BLOCK)
    _, which = stable_top_k(blocks.amax(-1), k)  # [N, k]
    which = which.sort(dim=1).values  # in order, so that earlier indices still come first
    candidates = blocks.gather(1, which[..., None].expand(-1, -1, TOP_K_BLOCK)).flatten(1)  # [N, k·TOP_K_BLOCK]
    values, index = _stable_top_k_of_few(candidates, k)
    return values, which.gather(1, index // TOP_K_BLOCK) * TOP_K_BLOCK + index % TOP_K_BLOCK


def _stable_top_k_of_few(scores: Float[Tensor, "N X"], k: int) -> tuple[Float[Tensor, "N M"], Int[Tensor, "N M"]]:
    if k == 1:
        value = scores.amax(1, keepdim=True)  # [N, 1]
        return value, (scores == value).int().argmax(1, keepdim=True)
    values, index = scores.sort(dim=1, descending=True, stable=True)
    return values[:, :k], index[:, :k]


def choose_tokens(logits: Logits, options: Decoding, draws: Float[Tensor, " R"] | None) -> Int[Tensor, " R"]:
    """The best token of each row or, given a random number from [0, 1) for each, a sampled one."""
    if draws is None:
        return stable_top_k(logits, 1)[1][:, 0]
    logits = (logits.double() - logits.amax(-1, keepdim=True)) / options.temperature  # the best is 0: no overflow
    logits = keep_top_k(logits, options.top_k) if options.top_k else logits
    logits = keep_top_p(logits, options.top_p) if options.top_p < 1 else logits
    logits = keep_min_p(logits, options.min_p) if options.min_p else logits
    cumulative = logits.softmax(-1).cumsum(-1)  # [R, V]: the probability of this id and all before it
    cumulative = cumulative / cumulative[:, -1:]
    # Where no token is allowed, or logits are NaN, any id will do: the caller sees its log-probability.
    ids = torch.searchsorted(cumulative, draws[:, None].double(), right=True)[:, 0]
    return ids.clamp(max=cumulative.size(-1) - 1)


def random_numbers(seed: int, prompt: Sequence[int], count: int) -> Float[Tensor, " {count}"]:
    """Random numbers from [0, 1) that depend on seed and prompt only; a smaller `count` gives the same first ones."""
    generator = np.random.default_rng([seed, zlib.crc32(np.asarray(prompt, dtype=np.int64).tobytes())])
    return torch.from_numpy(generator.random(count))
