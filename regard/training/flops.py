"""The cost of training in floating-point operations: counted from the model's arithmetic, or estimated as in the paper.

Only matrix products are counted, with two operations per multiplication and addition: all linear layers, the scores and
values of attention, and the output layer. Scores are counted for every query and key of a sentence, including those
hidden by a causal mask, as PyTorch's own counter does. Embedding lookups are free. The backward pass has two products
for each one of the forward pass, so a step costs three times a forward pass.
"""

import re
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.config import ModelConfig
from regard.data.batches import Batch

Number = int | float

STEP_PER_FORWARD = 3
"""Cost of a step relative to its forward pass."""
DATASHEET_FRACTION = 0.8
"""Fraction of a datasheet's figure that large matrix products reach: measured on an H200, 781 of 989."""
PEAK_BY_GPU: dict[str, float] = {
    "H200": 781e12,  # measured
    "H100": 781e12,  # the same chip as the H200's
    "H100 PCIe": DATASHEET_FRACTION * 756e12,  # from here on from datasheets, without sparsity
    "A100": DATASHEET_FRACTION * 312e12,
    "L4": DATASHEET_FRACTION * 121e12,
    "A10": DATASHEET_FRACTION * 125e12,
    "RTX 4090": DATASHEET_FRACTION * 165e12,
    "RTX 3090": DATASHEET_FRACTION * 71e12,
    "V100": DATASHEET_FRACTION * 125e12,  # float16: it has no bfloat16
    "T4": DATASHEET_FRACTION * 65e12,  # float16
}
"""Operations per second of large matrix products in bfloat16 with float32 accumulation, by GPU name."""
PAPER_SUSTAINED: dict[str, float] = {"K80": 2.8e12, "K40": 3.7e12, "M40": 6.0e12, "P100": 9.5e12}
"""Sustained single-precision operations per second that the paper assumes for its Table 2."""


def training_flops(
    config: ModelConfig, source_tokens: Number, target_tokens: Number, source_length: Number, target_length: Number
) -> float:
    """Operations of training on this many tokens, forward and backward.

    The lengths are those of the sentence a token belongs to, averaged over tokens. In an encoder-decoder the source is
    what the encoder reads. In a decoder it is what precedes the target in the same row, without a loss: 0 for a
    language model. For a classifier the source is the text, and the target tokens are the labels.
    """
    work = _work(config, source_tokens, target_tokens, source_length, target_length)
    return STEP_PER_FORWARD * forward_flops(config, work)


def batch_flops(config: ModelConfig, batch: Batch) -> float:
    """Operations of a step on a batch, forward and backward, by the lengths of its sentences, without padding."""
    target = _lengths(batch.tokens, batch.lengths)
    tokens, pairs = float(target.sum()), float((target * target).sum())
    if batch.source is None:
        return STEP_PER_FORWARD * forward_flops(config, TokenCounts(tokens, pairs, outputs=batch.targets))
    source = _lengths(batch.source, batch.source_lengths)
    work = TokenCounts(
        float(source.sum()),
        float((source * source).sum()),
        decoded=tokens,
        decoder_pairs=pairs,
        cross_pairs=float((target * source).sum()),
        outputs=batch.targets,
    )
    return STEP_PER_FORWARD * forward_flops(config, work)


def estimated_flops(parameters: int, batch: Batch) -> float:
    """Operations of a step of a network whose arithmetic is not known: 6 for each parameter and target token.

    This is the usual estimate for language models (Kaplan et al. 2020): 2 in the forward and 4 in the backward pass.
    """
    return 6.0 * parameters * float(_lengths(batch.tokens, batch.lengths).sum())


def paper_flops(seconds: Number, devices: int, sustained: Number) -> float:
    """The paper's estimate (Table 2): training time × devices × the rate each device sustains.

    >>> f"{paper_flops(12 * 3600, 8, PAPER_SUSTAINED['P100']):.1e}"  # its base model
    '3.3e+18'
    """
    return float(seconds * devices * sustained)


def peak_flops(name: str) -> float | None:
    """Operations per second of large matrix products on a GPU with this name; None if it is not known.

    >>> peak_flops("NVIDIA A100-SXM4-80GB") == PEAK_BY_GPU["A100"]
    True
    """
    if "laptop" in name.lower():  # laptop chips have the same names but are slower
        return None
    matches = [gpu for gpu in PEAK_BY_GPU if re.search(rf"\b{gpu}\b", name, re.IGNORECASE)]
    return PEAK_BY_GPU[max(matches, key=len)] if matches else None


@dataclass(frozen=True)
class TokenCounts:
    """The numbers of tokens and attention pairs in a forward pass."""

    tokens: Number
    """Number of tokens that pass through the encoder, or through the only stack."""
    pairs: Number
    """Number of query–key pairs in that stack."""
    decoded: Number = 0
    """Number of tokens that pass through the decoder of an encoder-decoder."""
    decoder_pairs: Number = 0
    cross_pairs: Number = 0
    outputs: Number = 0
    """Number of tokens or sequences for which the output layer is computed."""


def forward_flops(config: ModelConfig, work: TokenCounts) -> float:
    """Operations of a forward pass."""
    d_k, d_v, groups = config.widths
    queries = config.d_model * config.heads * (d_k + d_v)  # q and out, for each query
    keys = config.d_model * groups * (d_k + d_v)  # k and v, for each key
    pair = config.heads * (d_k + d_v)  # a score, and a weighted value
    feed_forward = config.d_model * config.d_ff * (3 if config.is_gated else 2)
    layer = work.tokens * (queries + keys + feed_forward) + work.pairs * pair
    products = config.layers * layer + work.outputs * _head(config)
    if config.kind == "encoder-decoder":
        decoder = work.decoded * (queries + keys + feed_forward) + work.decoder_pairs * pair
        cross = work.decoded * queries + work.tokens * keys + work.cross_pairs * pair
        products += config.decoder_depth * (decoder + cross)
    return 2.0 * products


def _head(config: ModelConfig) -> int:
    """Multiplications of the output layer for one output."""
    if config.is_classifier:
        pool = config.d_model if config.kind == "encoder" else 0
        return config.d_model * (pool + config.classes)
    return config.d_model * (config.outputs + config.d_model * config.output_transform)


def _work(
    config: ModelConfig, source_tokens: Number, target_tokens: Number, source_length: Number, target_length: Number
) -> TokenCounts:
    if config.kind == "encoder-decoder":
        return TokenCounts(
            source_tokens,
            source_tokens * source_length,
            decoded=target_tokens,
            decoder_pairs=target_tokens * target_length,
            cross_pairs=target_tokens * source_length,
            outputs=target_tokens,
        )
    if config.kind == "encoder" or config.classes:
        return TokenCounts(source_tokens, source_tokens * source_length, outputs=target_tokens)
    tokens = source_tokens + target_tokens
    return TokenCounts(tokens, tokens * (source_length + target_length), outputs=target_tokens)


def _lengths(tokens: Tensor, lengths: Tensor | None) -> Tensor:
    """The length of each sentence, in double precision."""
    if lengths is None:
        lengths = torch.full((len(tokens),), tokens.size(1))
    return lengths.double()
