"""Token ids to vectors with positions (sections 3.4 and 3.5 of the paper).

Dimensions: B batch, T tokens, C model width.
"""

import math

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.config import ModelConfig, check_token_count
from regard.model.layers import Dropout, norm
from regard.model.positions import sinusoids
from regard.model.tensor_checks import UNKNOWN_ID, check_range


class Embedding(nn.Module):
    """Token embeddings, multiplied by √d_model if `scale_embeddings`, plus positions; then norm and dropout.

    With `shared_tokens`, the token embeddings are those of another `Embedding`.
    """

    def __init__(self, config: ModelConfig, vocab_size: int, shared_tokens: nn.Embedding | None = None) -> None:
        super().__init__()
        self.kind = config.positions
        self.fairseq = config.sinusoids == "fairseq"
        self.scale = math.sqrt(config.d_model) if config.scale_embeddings else 1.0
        pad_is_last = config.pad in (-1, vocab_size - 1)
        padding = vocab_size - 1 if pad_is_last else None  # its row stays zero and gets no gradient
        if shared_tokens is None:
            self.tokens = nn.Embedding(vocab_size, config.d_model, padding_idx=padding)
        else:
            self.__dict__["tokens"] = shared_tokens  # not as a submodule, whose weights would be saved twice
        self.positions = nn.Embedding(config.max_length, config.d_model) if config.positions == "learned" else None
        self.norm = norm(config) if config.embedding_norm else nn.Identity()
        self.dropout = Dropout(config.dropout)

    def forward(
        self, tokens: Int[Tensor, "B T"], positions: Int[Tensor, "B T"] | Int[Tensor, " T"]
    ) -> Float[Tensor, "B T C"]:
        """Vectors for `tokens` at `positions`."""
        check_range("token id", tokens, self.tokens.num_embeddings, UNKNOWN_ID)
        x: Tensor = self.tokens(tokens) * self.scale  # [B, T, C]
        if self.kind == "sinusoidal":
            x = x + sinusoids(positions, x.size(-1), x.dtype, self.fairseq)
        if self.positions is not None:
            longest = self.positions.num_embeddings
            check_token_count("a row", positions.size(-1), longest)
            check_range("position", positions, longest, "the model has no further positions (max_length)")
            x = x + self.positions(positions)
        return self.dropout(self.norm(x))
