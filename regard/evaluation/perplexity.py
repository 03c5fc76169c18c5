"""How well a language model foretells a text, from sums that any loop can collect."""

import math
from dataclasses import dataclass

from regard.config import require_at_least
from regard.errors import RegardError


@dataclass(frozen=True)
class LanguageScore:
    """Three names for one sum: per token in nats, as a number of choices, and per byte in bits."""

    loss: float
    """nats per token"""
    perplexity: float
    """e to the loss: it wavers as among so many equal choices; depends on the tokenizer, as the loss does"""
    bits_per_byte: float
    """of the UTF-8 text: alone comparable between tokenizers"""
    tokens: int
    bytes: int


def language_score(nats: float, tokens: int, text_bytes: int) -> LanguageScore:
    """From the sum of -log p over all predicted tokens, their number, and the bytes of the text they spell.

    A token that is predicted but spells nothing, such as </s>, counts as a token and has no bytes.

    >>> language_score(nats=math.log(2) * 16, tokens=4, text_bytes=8).bits_per_byte  # 4 bits a token, 2 bytes a token
    2.0
    """
    require_at_least(1, tokens=tokens, text_bytes=text_bytes)
    if not nats >= 0:  # catches NaN too
        raise RegardError(f"nats={nats} is no sum of negative log-probabilities: it must be 0 or more")
    loss = nats / tokens
    perplexity = math.exp(loss) if loss < 700 else math.inf
    return LanguageScore(loss, perplexity, nats / math.log(2) / text_bytes, tokens, text_bytes)
