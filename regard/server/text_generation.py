"""Token-by-token generation for several prompts at once."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from regard.decoding.generate import stream_all
from regard.decoding.options import Decoding
from regard.decoding.search import FinishReason
from regard.decoding.text_model import Model
from regard.decoding.text_stream import TextStreamer
from regard.model.transformer import Decoder

MIN_LOG_PROB = -9999.0
"""Log-probability reported for a token of probability zero: JSON has no infinity."""


@dataclass(frozen=True)
class GenerationPrompt:
    """A prompt's token ids, its sampling seed, and the maximum number of tokens to generate."""

    ids: Sequence[int]
    seed: int
    max_tokens: int


@dataclass(frozen=True)
class GeneratedToken:
    """The next token generated for a prompt."""

    prompt_index: int
    text: str
    """Text that became certain with this token: possibly none, or text of earlier tokens as well."""
    token: str
    log_prob: float
    finish_reason: FinishReason | None
    """Why this is the prompt's last token, or None if it is not."""

    def for_prompt(self, index: int) -> "GeneratedToken":
        """The same token with another prompt index."""
        return replace(self, prompt_index=index)


def generate_for_prompts(
    model: Model, prompts: Sequence[GenerationPrompt], options: Decoding
) -> Iterator[list[GeneratedToken]]:
    """Generate for all prompts together. Each step yields one token for every prompt that is not finished."""
    assert isinstance(model.network, Decoder)
    tokenizer = model.require_tokenizer()
    texts = [TextStreamer(model.continuation_decoder(prompt.ids), options.stop) for prompt in prompts]
    rows = [list(prompt.ids) for prompt in prompts]
    seeds, limits = [prompt.seed for prompt in prompts], [prompt.max_tokens for prompt in prompts]
    for step in stream_all(model.network, model.special, rows, options, seeds, limits, tokenizer.decode):
        generated = []
        for sampled in step:
            text_so_far = texts[sampled.input_index]
            is_end = sampled.reason == "end"
            text = "" if is_end else text_so_far.add(sampled.token)
            text += "" if sampled.reason is None or text_so_far.stopped else text_so_far.finish()
            token = "" if is_end else tokenizer.pieces([sampled.token])[0]
            log_prob = sampled.log_prob if math.isfinite(sampled.log_prob) else MIN_LOG_PROB
            generated.append(GeneratedToken(sampled.input_index, text, token, log_prob, sampled.reason))
        yield generated
