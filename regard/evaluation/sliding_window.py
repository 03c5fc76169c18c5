"""A language model over texts of any length: every token is foretold once.

A text is read in windows of as many tokens as the model takes. The first window foretells all its tokens; each later
one begins `stride` tokens further on and foretells those that no window before it did, so that behind the first window
every token has at least window - stride tokens before it. A smaller stride gives more context, and takes longer.

Before a text stands what stood there in training: the ids that the tokenizer puts before every text or, where there
are none, </s>. So the first token is foretold too. Its end is not: the text might go on.

Dimensions: B rows, T tokens, C model width, V outputs.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F

from regard.config import require_at_least
from regard.decoding.batching import batches_by_length
from regard.decoding.cancellation import raise_if_cancelled
from regard.decoding.generate import padded
from regard.decoding.text_model import Model
from regard.decoding.translator import Progress
from regard.errors import RegardError
from regard.evaluation.perplexity import LanguageScore, language_score
from regard.model.transformer import Decoder

WINDOW = 2_048
"""tokens of a window at most, unless more are asked for"""
PLACES = 4_096
"""tokens of a batch of windows"""
AT_ONCE = 512
"""tokens whose logits, over the whole vocabulary, are there at one time"""


class Window(NamedTuple):
    """Reads ids[begin:stop] and must say ids[first : stop + 1], each from those before it."""

    begin: int
    stop: int
    first: int


def windows(count: int, window: int, stride: int) -> list[Window]:
    """The windows over so many ids that foretell each but the first, once.

    >>> windows(10, window=4, stride=2)[:3]
    [Window(begin=0, stop=4, first=1), Window(begin=2, stop=6, first=5), Window(begin=4, stop=8, first=7)]
    """
    found: list[Window] = []
    begin = stop = 0
    while stop < count - 1:
        first, stop = stop + 1, min(begin + window, count - 1)
        found.append(Window(begin, stop, first))
        begin += stride
    return found


def choose_window(model: Model, window: int | None, stride: int | None) -> tuple[int, int]:
    """The window and stride that are asked for or, where none are, what the model takes and half of it."""
    most = model.config.max_length
    window = min(most, WINDOW) if window is None else window
    stride = max(1, window // 2) if stride is None else stride
    require_at_least(1, context=window, stride=stride)
    if model.config.positions == "learned" and window > most:
        raise RegardError(f"context={window} is more than the {most} positions that this model knows")
    if stride > window:
        raise RegardError(
            f"stride={stride} is more than context={window}: tokens between two windows would be left out"
        )
    return window, stride


def starts_with(model: Model) -> list[int]:
    """What stands before every text."""
    return list(model.require_tokenizer().before or model.special.end[:1])


def score_texts(
    model: Model, texts: Sequence[str], window: int, stride: int, progress: Progress | None = None
) -> LanguageScore:
    """The loss over all texts; `progress` is called with the number of tokens foretold.

    Where nothing can stand before a text its first token is not foretold, and its bytes do not count.
    """
    tokenizer, start = model.require_tokenizer(), starts_with(model)
    rows = [[*start, *tokenizer.encode(text)] for text in texts]
    size = sum(len(text.encode()) for text in texts)
    if not start:
        size -= sum(len(tokenizer.decode(row[:1]).encode()) for row in rows)
    places = {
        (i, n): each
        for i, row in enumerate(rows)
        for n, each in enumerate(_behind(len(row), len(start), window, stride))
    }
    read = {place: rows[place[0]][each.begin : each.stop] for place, each in places.items()}
    nats, tokens = 0.0, 0
    for batch in batches_by_length({place: len(ids) for place, ids in read.items()}, PLACES):
        raise_if_cancelled()
        said = [rows[i][places[i, n].first : places[i, n].stop + 1] for i, n in batch]
        nats += _nats(model, [read[place] for place in batch], said)
        tokens += sum(map(len, said))
        if progress is not None:
            progress(tokens)
    return language_score(nats, tokens, size)


def _behind(count: int, start: int, window: int, stride: int) -> list[Window]:
    """The windows over a text; of several ids that stand before it none is foretold."""
    found = windows(count, window, stride)
    return [each._replace(first=max(each.first, start)) for each in found if each.stop >= start]


@torch.inference_mode()
def _nats(model: Model, rows: list[list[int]], said: list[list[int]]) -> float:
    """The sum of -log p of what must be said, which ends one token behind each row."""
    network = model.network
    assert isinstance(network, Decoder)
    device = network.device
    tokens, lengths = padded(network, rows)  # [B, T], [B]
    hidden = network.hidden(tokens, lengths)  # [B, T, C]
    total = 0.0
    for row, ids, wanted in zip(hidden, rows, said, strict=True):
        last, labels = row[len(ids) - len(wanted) : len(ids)], torch.tensor(wanted, device=device)  # [t, C], [t]
        for begin in range(0, len(wanted), AT_ONCE):
            logits = network.head(last[None, begin : begin + AT_ONCE])[0]  # [t, V]
            total += float(F.cross_entropy(logits.float(), labels[begin : begin + AT_ONCE], reduction="sum"))
    return total
