"""Log-probabilities of given texts: of a target given its source, or of a text in a language model.

Dimensions: B rows, T tokens, V outputs.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.config import SpecialIds
from regard.data.tokenizer import Tokenizer
from regard.decoding.batching import batches_by_length, pad_rows
from regard.decoding.cancellation import raise_if_cancelled
from regard.model.transformer import EncoderDecoder, Network

CPU_BATCH_TOKENS = 2_048
"""Tokens of a batch that is scored on a CPU, padding included."""
MAX_GPU_BATCH_TOKENS = 32_768
"""The same on a GPU, where small batches would leave most of it idle."""
MAX_GPU_LOGITS = 2**28
"""Maximum number of logits of a batch on a GPU: each position has one for every output, 1 GB in float32."""

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
    for batch in batches_by_length(lengths, _batch_tokens(network)):
        raise_if_cancelled()
        sums = _score_batch(network, special, [rows[number] for number in batch], with_end)
        scores |= dict(zip(batch, sums, strict=True))
    return [scores[number] for number in range(len(rows))]


def _batch_tokens(network: Network) -> int:
    """Tokens of a batch, as many as suit the device and the size of the vocabulary."""
    if network.device.type == "cpu":
        return CPU_BATCH_TOKENS
    return max(CPU_BATCH_TOKENS, min(MAX_GPU_BATCH_TOKENS, MAX_GPU_LOGITS // network.config.outputs))


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
    scores: list[float] = _target_log_probs(logits, torch.tensor(first, device=network.device), targets, end).tolist()
    return scores


def _target_log_probs(
    logits: Float[Tensor, "B T V"], first: Int[Tensor, " B"], targets: Sequence[list[int]], end: list[int]
) -> Float[Tensor, " B"]:
    """The sum of each target's log-probabilities, and of the likeliest end token after it if there is one.

    `first` is the position that predicts the first token of a target.
    """
    if logits.dtype != torch.float64:
        logits = logits.float()
    log_total = logits.logsumexp(-1)  # [B, T]
    tokens, lengths = pad_rows(targets, logits.device, length=1)  # [B, t]
    rows = torch.arange(len(targets), device=logits.device)  # [B]
    steps = torch.arange(tokens.shape[1], device=logits.device)  # [t]
    positions = (first[:, None] + steps).clamp(max=logits.shape[1] - 1)  # [B, t]
    chosen = logits[rows[:, None], positions, tokens] - log_total[rows[:, None], positions]
    totals = chosen.double().masked_fill(steps >= lengths[:, None], 0).sum(-1)  # [B]
    if not end:
        return totals
    last = first + lengths  # [B]
    likeliest = logits[rows, last][:, end].max(-1).values  # [B]
    return totals + (likeliest - log_total[rows, last]).double()
