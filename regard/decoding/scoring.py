"""Log-probabilities of given texts: of a target given its source, or of a text in a language model.

Dimensions: B rows, T tokens, V outputs.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from regard.config import SpecialIds
from regard.data.tokenizer import Tokenizer
from regard.decoding.batching import batches_by_length, pad_rows
from regard.decoding.cancellation import raise_if_cancelled
from regard.model.transformer import EncoderDecoder, Network

SCORING_BATCH_TOKENS = 2_048
"""Tokens of a batch that is scored, padding included: each position has logits over the whole vocabulary."""

ContextAndTarget = tuple[list[int], list[int]]
"""The ids that a model reads first, and the ids whose log-probability is asked for."""


def text_rows(tokenizer: Tokenizer, texts: Sequence[str]) -> list[ContextAndTarget]:
    """The rows of a language model: the first token, or the tokenizer's start tokens, are the context."""
    rows = [[*tokenizer.before, *tokenizer.encode(text)] for text in texts]
    start = max(1, len(tokenizer.before))
    return [(row[:start], row[start:]) for row in rows]


def pair_rows(
    tokenizer: Tokenizer, separator: int | None, sources: Sequence[str], targets: Sequence[str]
) -> list[ContextAndTarget]:
    """The rows of a translator; the context of a decoder ends with its separator."""
    between = [] if separator is None else [separator]
    return [
        ([*tokenizer.encode_with_template(source), *between], tokenizer.encode_target(target))
        for source, target in zip(sources, targets, strict=True)
    ]


def score_rows(network: Network, special: SpecialIds, rows: Sequence[ContextAndTarget], with_end: bool) -> list[float]:
    """The log-probability of each row's target, including the end of the text if `with_end`."""
    lengths = {number: len(context) + len(target) for number, (context, target) in enumerate(rows)}
    scores: dict[int, float] = {}
    for batch in batches_by_length(lengths, SCORING_BATCH_TOKENS):
        raise_if_cancelled()
        sums = _score_batch(network, special, [rows[number] for number in batch], with_end)
        scores |= dict(zip(batch, sums, strict=True))
    return [scores[number] for number in range(len(rows))]


@torch.inference_mode()
def _score_batch(
    network: Network, special: SpecialIds, rows: Sequence[ContextAndTarget], with_end: bool
) -> list[float]:
    contexts, targets = zip(*rows, strict=True)
    if isinstance(network, EncoderDecoder):
        source, source_lengths = pad_rows(contexts, network.device)
        target, lengths = pad_rows([[*special.target_start, *ids] for ids in targets], network.device)
        logits = network(source, target, source_lengths, lengths)  # [B, T, V]
        first = [len(special.target_start) - 1] * len(targets)
    else:
        tokens, lengths = pad_rows([context + target for context, target in rows], network.device)
        context_lengths = [len(context) for context in contexts]
        prefix = lengths.new_tensor(context_lengths) if network.config.prefix else None
        logits = network(tokens, lengths) if prefix is None else network(tokens, lengths, prefix)  # [B, T, V]
        first = [length - 1 for length in context_lengths]
    end = [id_ for id_ in special.end if id_ < network.config.outputs] if with_end else []
    return [_sum(row[n:], ids, end) for row, n, ids in zip(logits, first, targets, strict=True)]


def _sum(logits: Float[Tensor, "T V"], target: list[int], end: list[int]) -> float:
    """The sum of the target's log-probabilities, and of the likeliest end token if there is one."""
    log_probs = logits[: len(target) + 1].double().log_softmax(-1)  # [t, V]
    positions = torch.arange(len(target), device=logits.device)
    ids = torch.tensor(target, dtype=torch.long, device=logits.device)
    total = float(log_probs[positions, ids].sum())
    return total + float(log_probs[len(target), end].max()) if end else total
