"""Scores of a language model, computed from sums that any loop can collect."""

import math
from dataclasses import dataclass

from regard.config import require_at_least
from regard.errors import RegardError


@dataclass(frozen=True)
class LanguageScore:
    """One quantity in three units: nats per token, perplexity, and bits per byte."""

    loss: float
    """Mean negative log-probability of a token, in nats."""
    perplexity: float
    """Exponential of the loss. Like the loss, it depends on the tokenizer."""
    bits_per_byte: float
    """Bits per byte of UTF-8 text. The only one of the three that is comparable between tokenizers."""
    tokens: int
    bytes: int


def language_score(nats: float, tokens: int, text_bytes: int) -> LanguageScore:
    """The scores from the sum of -log p over all predicted tokens, their number, and the bytes of their text.

    A predicted token without text, such as </s>, counts as a token and has no bytes.

    >>> language_score(nats=math.log(2) * 16, tokens=4, text_bytes=8).bits_per_byte  # 4 bits and 2 bytes per token
    2.0
    """
    require_at_least(1, tokens=tokens, text_bytes=text_bytes)
    if not nats >= 0:  # also true of NaN
        raise RegardError(f"nats={nats} is not a sum of negative log-probabilities: it must be 0 or more")
    loss = nats / tokens
    perplexity = math.exp(loss) if loss < 700 else math.inf
    return LanguageScore(loss, perplexity, nats / math.log(2) / text_bytes, tokens, text_bytes)
