"""Prompts to text, token by token, many at once."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from regard.decoding.generate import stream_all
from regard.decoding.options import Decoding
from regard.decoding.search import Reason
from regard.decoding.text_model import Model
from regard.decoding.text_stream import Telling
from regard.model.transformer import Decoder


@dataclass(frozen=True)
class Prompt:
    """What to go on from, the seed that draws, and the most tokens to be said."""

    ids: Sequence[int]
    seed: int
    limit: int


@dataclass(frozen=True)
class Written:
    """One more token of a prompt's continuation."""

    row: int
    """which of the prompts"""
    text: str
    """what has become certain with it: none, or more than its own"""
    token: str
    log_prob: float
    reason: Reason | None
    """why it is the last one, if it is"""

    def of(self, row: int) -> "Written":
        """The same of another row."""
        return replace(self, row=row)


def write(model: Model, prompts: Sequence[Prompt], options: Decoding) -> Iterator[list[Written]]:
    """One more token of each prompt's continuation at a time."""
    assert isinstance(model.network, Decoder)
    tokenizer = model.require_tokenizer()
    tellings = [Telling(model.continuation_decoder(prompt.ids), options.stop) for prompt in prompts]
    rows = [list(prompt.ids) for prompt in prompts]
    seeds, limits = [prompt.seed for prompt in prompts], [prompt.limit for prompt in prompts]
    for said in stream_all(model.network, model.special, rows, options, seeds, limits, tokenizer.decode):
        pieces = []
        for each in said:
            telling = tellings[each.sentence]
            text = "" if each.reason == "end" else telling.add(each.token)
            text += "" if each.reason is None or telling.stopped else telling.end()
            token = "" if each.reason == "end" else tokenizer.pieces([each.token])[0]
            log_prob = each.log_prob if math.isfinite(each.log_prob) else -9999.0
            pieces.append(Written(each.sentence, text, token, log_prob, each.reason))
        yield pieces
