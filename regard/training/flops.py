"""What training costs, in floating-point operations: counted from the model's arithmetic, and the paper's way.

Counted are the matrix products, two operations for each multiplication and addition: all linear layers, the scores and
the values of attention, the output layer. Scores are counted for every pair of a query and a key in a sentence, those
that a causal mask hides too, as PyTorch's own counter does. To look an embedding up costs nothing. The way back has two
products for each on the way there, so that a step costs three times a forward pass.
"""

import re
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.config import ModelConfig
from regard.data.batches import Batch

Number = int | float

STEP_PER_FORWARD = 3
"""a step by its forward pass"""
DATASHEET_FRACTION = 0.8
"""of what a datasheet promises, large matrix products reach about so much: seen on an H200, 781 of 989"""
PEAK_BY_GPU: dict[str, float] = {
    "H200": 781e12,  # measured
    "H100": 781e12,  # the same chip as the H200's
    "H100 PCIe": DATASHEET_FRACTION * 756e12,  # from here on by datasheets, without sparsity
    "A100": DATASHEET_FRACTION * 312e12,
    "L4": DATASHEET_FRACTION * 121e12,
    "A10": DATASHEET_FRACTION * 125e12,
    "RTX 4090": DATASHEET_FRACTION * 165e12,
    "RTX 3090": DATASHEET_FRACTION * 71e12,
    "V100": DATASHEET_FRACTION * 125e12,  # float16: it has no bfloat16
    "T4": DATASHEET_FRACTION * 65e12,  # float16
}
"""operations per second of large matrix products in bfloat16 with sums in float32, by a GPU's name"""
PAPER_SUSTAINED: dict[str, float] = {"K80": 2.8e12, "K40": 3.7e12, "M40": 6.0e12, "P100": 9.5e12}
"""what the paper took for sustained in single precision, for its Table 2"""


def training_flops(
    config: ModelConfig, source_tokens: Number, target_tokens: Number, source_length: Number, target_length: Number
) -> float:
    """Operations of training on so many tokens, forward and backward.

    The lengths are those of the sentence that a token stands in, in the mean over tokens. For encoder and decoder the
    source is what the encoder reads. For a decoder alone it is what comes before the target in the same row, over which
    no loss is counted: 0 for a language model. With classes, the source is the text, and the target tokens are the
    labels.
    """
    work = _work(config, source_tokens, target_tokens, source_length, target_length)
    return STEP_PER_FORWARD * forward_flops(config, work)


def batch_flops(config: ModelConfig, batch: Batch) -> float:
    """Operations of a step on a batch, forward and backward, by the lengths of its sentences: padding is no work."""
    own = _lengths(batch.tokens, batch.lengths)
    tokens, pairs = float(own.sum()), float((own * own).sum())
    if batch.source is None:
        return STEP_PER_FORWARD * forward_flops(config, TokenCounts(tokens, pairs, outputs=batch.targets))
    source = _lengths(batch.source, batch.source_lengths)
    work = TokenCounts(
        float(source.sum()),
        float((source * source).sum()),
        decoded=tokens,
        decoder_pairs=pairs,
        cross_pairs=float((own * source).sum()),
        outputs=batch.targets,
    )
    return STEP_PER_FORWARD * forward_flops(config, work)


def paper_flops(seconds: Number, devices: int, sustained: Number) -> float:
    """The paper's estimate (Table 2): training time × devices × the rate that each sustains.

    >>> f"{paper_flops(12 * 3600, 8, PAPER_SUSTAINED['P100']):.1e}"  # its base model
    '3.3e+18'
    """
    return float(seconds * devices * sustained)


def peak_flops(name: str) -> float | None:
    """What large matrix products reach on a GPU of this name, in operations per second; None where nobody knows.

    >>> peak_flops("NVIDIA A100-SXM4-80GB") == PEAK_BY_GPU["A100"]
    True
    """
    if "laptop" in name.lower():  # the same names for slower chips
        return None
    fitting = [known for known in PEAK_BY_GPU if re.search(rf"\b{known}\b", name, re.IGNORECASE)]
    return PEAK_BY_GPU[max(fitting, key=len)] if fitting else None


@dataclass(frozen=True)
class TokenCounts:
    """What a forward pass is over."""

    tokens: Number
    """that go through the encoder, or through the only stack"""
    pairs: Number
    """of a query and a key there"""
    decoded: Number = 0
    """tokens that go through an encoder-decoder's decoder"""
    decoder_pairs: Number = 0
    cross_pairs: Number = 0
    outputs: Number = 0
    """tokens or sequences for which the head is asked"""


def forward_flops(config: ModelConfig, work: TokenCounts) -> float:
    """Operations of a forward pass."""
    d_k, d_v, groups = config.widths
    queries = config.d_model * config.heads * (d_k + d_v)  # q and out, for each token that asks
    keys = config.d_model * groups * (d_k + d_v)  # k and v, for each token that is asked
    pair = config.heads * (d_k + d_v)  # a score, and a value by its weight
    feed_forward = config.d_model * config.d_ff * (3 if config.activation == "swiglu" else 2)
    layer = work.tokens * (queries + keys + feed_forward) + work.pairs * pair
    products = config.layers * layer + work.outputs * _head(config)
    if config.kind == "encoder-decoder":
        own = work.decoded * (queries + keys + feed_forward) + work.decoder_pairs * pair
        cross = work.decoded * queries + work.tokens * keys + work.cross_pairs * pair
        products += config.decoder_depth * (own + cross)
    return 2.0 * products


def _head(config: ModelConfig) -> int:
    """Products for one output."""
    if config.classes:
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
    """Of each sentence, in double precision."""
    if lengths is None:
        lengths = torch.full((len(tokens),), tokens.size(1))
    return lengths.double()
