"""What linear maps can do, fitted on one half of what there is and tried on the other.

Dimensions: N vectors, C width, T positions, K vectors that are known.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def other_half(here: Float[Tensor, "N C"], there: Float[Tensor, "N C"]) -> Float[Tensor, "N-N//2 C"]:
    """What the linear map that best takes `here` to `there` in the first half makes of the second."""
    half = len(here) // 2
    a, b = here[:half], there[:half]
    ridge = 1e-9 * torch.eye(a.size(1), dtype=a.dtype)  # positions may fill fewer dimensions than there are
    fitted: Tensor = torch.linalg.solve(a.T @ a + ridge, a.T @ b)  # [C, C]
    return here[half:] @ fitted


def linear_miss(here: Float[Tensor, "N C"], there: Float[Tensor, "N C"]) -> float:
    """How far a fitted linear map misses positions that it was not fitted at, as a part of their length."""
    wanted = there[len(there) // 2 :]
    return float((other_half(here, there) - wanted).norm() / wanted.norm())


def concatenated(table: Float[Tensor, "T C"]) -> float:
    """The largest difference between projecting [word, position] and adding the two, each projected by its part."""
    word, above, below = torch.randn_like(table), *torch.randn(2, table.size(1), table.size(1), dtype=table.dtype)
    together = torch.cat([word, table], 1) @ torch.cat([above, below])  # [T, C]
    return float((together - (word @ above + table @ below)).abs().max())


def read_sums(table: Float[Tensor, "T C"], words: int) -> tuple[float, float]:
    """How often linear maps, fitted to half of all sums of a word and a position, find both again in the others."""
    vectors = torch.randn(words, table.size(1), dtype=table.dtype)  # of the size that a model gives its embeddings
    both = torch.cartesian_prod(torch.arange(len(table)), torch.arange(words))
    place, word = both[torch.randperm(len(both))].T
    sums = table[place] + vectors[word]  # [T · words, C]

    def read(known: Float[Tensor, "K C"], which: Int[Tensor, " N"]) -> float:
        nearest = torch.cdist(other_half(sums, known[which]), known).argmin(1)
        return float((nearest == which[len(sums) // 2 :]).double().mean())

    return read(table, place), read(vectors, word)
