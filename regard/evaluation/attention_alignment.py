"""The attention from target to source as a word alignment, scored against gold links.

Dimensions: B rows, L layers, H heads, T target tokens, S source tokens.
"""

from collections.abc import Iterator, Sequence

import torch

from regard.decoding.batching import batches_by_length, pad_rows
from regard.decoding.text_model import Model
from regard.evaluation.alignment import (
    AlignmentScores,
    AttentionPair,
    Links,
    RowToken,
    WordSpans,
    alignment_scores,
    reports_positions,
    source_token_words,
    token_words,
    words_of_rows,
)
from regard.evaluation.results import AlignedAttention
from regard.evaluation.test_sets import Examples, GoldAnnotations
from regard.model.transformer import EncoderDecoder
from regard.model.watch import AttentionWeights, watch

ROW_TOKENS: tuple[RowToken, ...] = ("writing", "reading")
"""Both ways to assign a row of attention to a target token: see `words_of_rows`."""
MAX_BATCH_TOKENS = 2_048
"""Maximum number of target tokens in a batch whose attention is kept."""


def aligned_attention(model: Model) -> AlignedAttention:
    """The attention through which a translator's target attends to its source."""
    return "cross" if isinstance(model.network, EncoderDecoder) else "decoder"


def can_be_aligned(model: Model) -> bool:
    """Whether a model is a translator whose tokenizer reports the positions of tokens in the text."""
    return model.can("translate") and reports_positions(model.require_tokenizer())


def score_alignment(model: Model, examples: Examples, gold: GoldAnnotations) -> dict[str, AlignmentScores] | None:
    """Score the attention from target to source against gold links, with the first reference as the target.

    The attention is cross-attention or, in a decoder-only model, the part of self-attention from the target's rows to
    the source before them. Returns None if there are no links or the model cannot be aligned.
    """
    if gold.links is None or not can_be_aligned(model):
        return None
    links, spans = gold.links, gold.word_spans
    return {
        row_token: alignment_scores(attention_pairs(model, examples, links, row_token, spans))
        for row_token in ROW_TOKENS
    }


def attention_pairs(
    model: Model, examples: Examples, links: Sequence[Links], row_token: RowToken, spans: WordSpans
) -> Iterator[AttentionPair]:
    """The attention of each sentence pair, in batches of similar length."""
    model.require_target_language()
    tokenizer, references = model.require_tokenizer(), examples.references[0]
    weights_of = _cross_weights if aligned_attention(model) == "cross" else _decoder_weights
    pairs = {
        i: (tokenizer.encode_with_template(source), tokenizer.encode_target(target))
        for i, (source, target) in enumerate(zip(examples.sources, references, strict=True))
    }
    for batch in batches_by_length({i: 1 + len(target) for i, (_, target) in pairs.items()}, MAX_BATCH_TOKENS):
        for weights, i in zip(weights_of(model, [pairs[i] for i in batch]), batch, strict=True):
            source_words = source_token_words(tokenizer.source_side, examples.sources[i], spans)
            target_words = words_of_rows(token_words(tokenizer.target_side, references[i], spans), row_token)
            yield AttentionPair(weights.numpy(), target_words, source_words, links[i])


@torch.inference_mode()
def _cross_weights(model: Model, pairs: Sequence[tuple[list[int], list[int]]]) -> Iterator[torch.Tensor]:
    """The cross-attention [L, H, T, S] of each pair; the decoder reads its start token and then all target tokens."""
    network, start = model.network, model.special.target_start
    source, source_lengths = pad_rows([source_ids for source_ids, _ in pairs], network.device)
    target, target_lengths = pad_rows([[*start, *target_ids] for _, target_ids in pairs], network.device)
    with watch(network) as weights:
        network(source, target, source_lengths, target_lengths)
    layers = _stack_layers(weights, ".cross_attention")  # [L, B, H, T, S]
    for row, (source_ids, target_ids) in enumerate(pairs):
        first = len(start) - 1  # the position that writes the first token
        yield layers[:, row, :, first : first + len(target_ids) + 1, : len(source_ids)]


@torch.inference_mode()
def _decoder_weights(model: Model, pairs: Sequence[tuple[list[int], list[int]]]) -> Iterator[torch.Tensor]:
    """The same for a decoder-only model: the attention of the separator and all target tokens to the source."""
    network, separator = model.network, model.special.separator
    assert separator is not None  # a decoder without one cannot translate
    rows = [[*source_ids, separator, *target_ids] for source_ids, target_ids in pairs]
    tokens, lengths = pad_rows(rows, network.device)
    prefix_lengths = torch.tensor([len(source_ids) + 1 for source_ids, _ in pairs], device=tokens.device)
    with watch(network) as weights:
        network(tokens, lengths, prefix_lengths if model.config.prefix else None)
    layers = _stack_layers(weights, ".attention")  # [L, B, H, S + T, S + T]
    for row, (source_ids, target_ids) in enumerate(pairs):
        first = len(source_ids)
        yield layers[:, row, :, first : first + len(target_ids) + 1, :first]


def _stack_layers(weights: AttentionWeights, suffix: str) -> torch.Tensor:
    """The weights of all modules whose names end with `suffix`, each of which was called once."""
    return torch.stack([calls[0] for name, calls in weights.items() if name.endswith(suffix)]).float().cpu()
