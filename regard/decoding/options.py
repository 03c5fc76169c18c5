"""How to decode: one frozen dataclass, checked as it is made.

The string under each field is its documentation, here and wherever the field is shown to a user.
"""

import math
from dataclasses import dataclass

from regard.config import Strict, require_at_least, shown
from regard.errors import RegardError

DECODING_MOST = {
    "beam": 100_000,
    "n_best": 100_000,
    "length_penalty": 1e6,
    "temperature": 1e6,
    "top_k": 2**31,
    "seed": 2**64 - 1,
    "repetition_penalty": 1e6,
    "no_repeat_ngram": 2**31,
    "min_tokens": 2**31,
    "max_tokens": 2**31,
}
"""Largest values of the numbers that steer decoding."""


@dataclass(frozen=True, kw_only=True)
class Decoding(Strict, most=DECODING_MOST):
    """How to choose among what a model says. The defaults take the best token each time."""

    beam: int = 1
    """hypotheses kept side by side; 1 takes the best token each time, or draws one if temperature is above 0"""
    n_best: int = 1
    """how many of them to give back, best first"""
    length_penalty: float = 0.6
    """the paper's alpha: a beam ranks by log-probability ÷ ((5 + tokens) / 6)^alpha; 0 favours short texts"""
    temperature: float = 0.0
    """0 takes the best token; above, tokens are drawn, from 1 as the model says, below 1 more soberly"""
    top_k: int = 0
    """draw among so many best tokens alone; 0 among all"""
    top_p: float = 1.0
    """draw among the fewest best tokens that together have this probability; 1 among all"""
    min_p: float = 0.0
    """draw among the tokens that have at least this share of the best one's probability; 0 among all"""
    seed: int = 0
    """the same seed and prompt draw the same text, whatever else is in the batch"""
    repetition_penalty: float = 1.0
    """divides the logits of tokens already there (multiplies negative ones); 1 changes nothing"""
    no_repeat_ngram: int = 0
    """no run of so many tokens is said twice; 0 lets it be"""
    stop: tuple[str, ...] = ()
    """a text ends where one of these would begin, be it ever so short"""
    min_tokens: int = 0
    """no text ends before it has so many tokens"""
    max_tokens: int | None = None
    """a text ends with so many tokens, its end counted; if not given, twice a source and 10 more, or 200"""

    def __post_init__(self) -> None:
        """Check what the fields must be together."""
        super().__post_init__()
        require_at_least(1, beam=self.beam, n_best=self.n_best, max_tokens=self.max_tokens)
        require_at_least(
            0, top_k=self.top_k, seed=self.seed, no_repeat_ngram=self.no_repeat_ngram, min_tokens=self.min_tokens
        )
        if self.n_best > self.beam:
            raise RegardError(f"n_best={self.n_best} of beam={self.beam}: a beam gives at most as many as it is wide")
        _check("length_penalty", self.length_penalty, 0 <= self.length_penalty < math.inf, "at least 0 and finite")
        _check("temperature", self.temperature, 0 <= self.temperature < math.inf, "at least 0 and finite")
        _check("top_p", self.top_p, 0 < self.top_p <= 1, "above 0 and at most 1")
        _check("min_p", self.min_p, 0 <= self.min_p <= 1, "from 0 to 1")
        _check("repetition_penalty", self.repetition_penalty, 0 < self.repetition_penalty < math.inf, "above 0, finite")
        if self.beam > 1 and self.temperature:
            raise RegardError(f"beam={self.beam} with temperature={self.temperature}: a beam does not draw, choose one")
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise RegardError(f"min_tokens={self.min_tokens} is more than max_tokens={self.max_tokens}")
        if "" in self.stop:
            raise RegardError("stop holds an empty string, which stands everywhere: no text could begin")


def _check(name: str, value: float, right: bool, wanted: str) -> None:
    """A ValueError unless `right`, which is never so of NaN."""
    if not right:
        raise RegardError(f"{name}={shown(value)} is not possible: it must be {wanted}")
