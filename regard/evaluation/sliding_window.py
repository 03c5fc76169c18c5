"""Score a language model on texts of any length; every token is predicted once.

A text is read in windows of as many tokens as the model accepts. The first window predicts all its tokens. Each later
window begins `stride` tokens after the previous one and predicts the tokens that no earlier window did. After the first
window every token therefore has at least window - stride tokens of context. A smaller stride gives more context and
takes longer.

A text is preceded by the same tokens as in training: those that the tokenizer puts before every text or, if there are
none, </s>. The first token of the text is therefore predicted too. The end of the text is not, since it could continue.

Dimensions: B rows, T tokens, C model width, V outputs.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F

from regard.config import check_type, require_at_least
from regard.decoding.batching import batches_by_length, pad_rows
from regard.decoding.cancellation import raise_if_cancelled
from regard.decoding.text_model import Model
from regard.decoding.translator import Progress
from regard.errors import RegardError
from regard.evaluation.perplexity import LanguageScore, language_score
from regard.model.transformer import Decoder

MAX_DEFAULT_WINDOW = 2_048
"""Maximum window size in tokens, unless a larger one is requested."""
MAX_BATCH_TOKENS = 4_096
"""Maximum number of tokens in a batch of windows."""
LOGITS_CHUNK = 512
"""Number of tokens whose logits over the vocabulary are held in memory at a time."""


class TokenWindow(NamedTuple):
    """A window that reads ids[begin:stop] and predicts ids[first : stop + 1], each from those before it."""

    begin: int
    stop: int
    first: int


def windows(count: int, window: int, stride: int) -> list[TokenWindow]:
    """The windows over `count` ids that predict each id but the first exactly once.

    >>> windows(10, window=4, stride=2)[1:3]
    [TokenWindow(begin=2, stop=6, first=5), TokenWindow(begin=4, stop=8, first=7)]
    """
    result: list[TokenWindow] = []
    begin = stop = 0
    while stop < count - 1:
        first, stop = stop + 1, min(begin + window, count - 1)
        result.append(TokenWindow(begin, stop, first))
        begin += stride
    return result


def choose_window(model: Model, window: int | None, stride: int | None) -> tuple[int, int]:
    """The requested window and stride. The defaults are what the model accepts, and half of the window."""
    check_type("context", window, int | None)
    check_type("stride", stride, int | None)
    window = min(model.config.max_length, MAX_DEFAULT_WINDOW) if window is None else window
    stride = max(1, window // 2) if stride is None else stride
    require_at_least(1, context=window, stride=stride)
    if model.config.max_positions is not None and window > model.config.max_positions:
        raise RegardError(f"context={window} is more than the {model.config.max_positions} positions of this model")
    if stride > window:
        raise RegardError(f"stride={stride} is more than context={window}: tokens between two windows would be skipped")
    return window, stride


def start_tokens(model: Model) -> list[int]:
    """The ids before every text."""
    return list(model.require_tokenizer().before or model.special.end[:1])


def score_texts(
    model: Model, texts: Sequence[str], window: int, stride: int, progress: Progress | None = None
) -> LanguageScore:
    """The score over all texts; `progress` is called with the number of tokens predicted so far.

    If there are no tokens before a text, its first token is not predicted, and its bytes do not count.
    """
    tokenizer, start = model.require_tokenizer(), start_tokens(model)
    rows = [[*start, *tokenizer.encode(text)] for text in texts]
    text_bytes = sum(len(text.encode()) for text in texts)
    if not start:
        text_bytes -= sum(len(tokenizer.decode(row[:1]).encode()) for row in rows)
    windows_by_key = {
        (i, n): token_window
        for i, row in enumerate(rows)
        for n, token_window in enumerate(_text_windows(len(row), len(start), window, stride))
    }
    inputs = {key: rows[key[0]][span.begin : span.stop] for key, span in windows_by_key.items()}
    nats, tokens = 0.0, 0
    for batch in batches_by_length({key: len(ids) for key, ids in inputs.items()}, MAX_BATCH_TOKENS):
        raise_if_cancelled()
        spans = [(rows[i], windows_by_key[i, n]) for i, n in batch]
        targets = [ids[span.first : span.stop + 1] for ids, span in spans]
        nats += _nats(model, [inputs[key] for key in batch], targets)
        tokens += sum(map(len, targets))
        if progress is not None:
            progress(tokens)
    return language_score(nats, tokens, text_bytes)


def _text_windows(count: int, start: int, window: int, stride: int) -> list[TokenWindow]:
    """The windows over a text that is preceded by `start` ids, none of which is predicted."""
    return [
        span._replace(first=max(span.first, start)) for span in windows(count, window, stride) if span.stop >= start
    ]


@torch.inference_mode()
def _nats(model: Model, inputs: list[list[int]], targets: list[list[int]]) -> float:
    """The sum of -log p of the targets, each of which ends one token after its input."""
    network = model.network
    assert isinstance(network, Decoder)
    device = network.device
    tokens, lengths = pad_rows(inputs, device)  # [B, T], [B]
    hidden = network.hidden(tokens, lengths)  # [B, T, C]
    total = 0.0
    for row, ids, target in zip(hidden, inputs, targets, strict=True):
        last, labels = row[len(ids) - len(target) : len(ids)], torch.tensor(target, device=device)  # [t, C], [t]
        for begin in range(0, len(target), LOGITS_CHUNK):
            logits = network.head(last[None, begin : begin + LOGITS_CHUNK])[0]  # [t, V]
            total += float(F.cross_entropy(logits.float(), labels[begin : begin + LOGITS_CHUNK], reduction="sum"))
    return total
