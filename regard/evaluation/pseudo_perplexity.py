"""Pseudo-perplexity of a masked language model (Salazar et al. 2020): every token is predicted from all others.

A masked language model gives no probability to a text. Instead, the tokens of a text are masked one at a time, and the
log-probabilities of the tokens that were masked are added up: the pseudo-log-likelihood of the text. Its mean over all
tokens is a loss, and the exponential of that the pseudo-perplexity. It is not a perplexity: each token is predicted
from the text on both sides, so the figure is lower, and only comparable with that of other masked language models with
the same tokenizer.

Dimensions: B rows, T tokens, C model width, V outputs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from regard.config import check_token_count
from regard.decoding.batching import batches_by_length, pad_rows
from regard.decoding.cancellation import raise_if_cancelled
from regard.decoding.text_model import Model
from regard.decoding.translator import Progress
from regard.errors import RegardError
from regard.model.transformer import Encoder

MAX_BATCH_TOKENS = 4_096
"""Maximum number of tokens in a batch of masked texts."""


@dataclass(frozen=True)
class MaskedScore:
    """How well a masked language model predicts each token of a text from the others."""

    loss: float
    """Mean negative log-probability of a masked token, in nats."""
    pseudo_perplexity: float
    """Exponential of the loss."""
    accuracy: float
    """Share of the tokens for which the most likely token is correct."""
    tokens: int
    """Number of tokens, each masked once. Special tokens around a text do not count."""


@torch.inference_mode()
def score_masked(model: Model, texts: Sequence[str], progress: Progress | None = None) -> MaskedScore:
    """The score over all texts, each read at once; `progress` is called with the number of tokens predicted so far."""
    model.require("fill")
    network, tokenizer, mask = model.network, model.require_tokenizer(), model.special.mask
    assert isinstance(network, Encoder)
    assert mask is not None
    rows, first = [tokenizer.encode_with_template(text) for text in texts], len(tokenizer.before)
    for number, row in enumerate(rows, 1):
        check_token_count(f"text {number}", len(row), network.config.max_positions)
    stops = [len(row) - len(tokenizer.after) for row in rows]
    lengths = {(i, at): len(row) for i, row in enumerate(rows) for at in range(first, stops[i])}
    if not lengths:
        raise RegardError("the texts have no tokens: there is nothing to mask")
    nats, correct, done = 0.0, 0, 0
    for batch in batches_by_length(lengths, MAX_BATCH_TOKENS):
        raise_if_cancelled()
        masked = [[*rows[i][:at], mask, *rows[i][at + 1 :]] for i, at in batch]
        tokens, row_lengths = pad_rows(masked, network.device)  # [B, T], [B]
        labels = torch.tensor([rows[i][at] for i, at in batch], device=network.device)  # [B]
        hidden = network.hidden(tokens, row_lengths)[range(len(batch)), [at for _, at in batch]]  # [B, C]
        log_probs = network.head(hidden[:, None])[:, 0].double().log_softmax(-1)  # [B, V]
        nats -= float(log_probs.gather(1, labels[:, None]).sum())
        correct += int((log_probs.argmax(-1) == labels).sum())
        done += len(batch)
        if progress is not None:
            progress(done)
    loss = nats / done
    return MaskedScore(loss, math.exp(loss) if loss < 700 else math.inf, correct / done, done)
