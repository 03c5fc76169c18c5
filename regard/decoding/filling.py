"""Masked language models: the most likely tokens for each mask in a text.

Dimensions: M masks, k fillings of each, V outputs.
"""

from typing import NamedTuple

import torch

from regard.config import check_token_count, require_at_least, require_at_most
from regard.data.tokenizer import MASK, Tokenizer
from regard.errors import RegardError
from regard.formatting import quoted
from regard.model.transformer import Network


class Filling(NamedTuple):
    """A token in place of a mask."""

    token: str
    """The text of the token; in most vocabularies a word includes the space before it."""
    probability: float
    text: str
    """The text with this token; any other mask is replaced by its most likely token."""


def fill_masks(network: Network, tokenizer: Tokenizer, mask: int, text: str, k: int) -> list[list[Filling]]:
    """The k most likely tokens for each mask of a text, best first."""
    require_at_least(1, k=k)
    require_at_most({"k": network.config.outputs}, {"k": k})
    ids = masked_ids(tokenizer, mask, text)
    row = [*tokenizer.before, *ids, *tokenizer.after]
    check_token_count("the text", len(row), network.config.max_positions)
    positions = [i for i, id_ in enumerate(ids) if id_ == mask]
    with torch.inference_mode():
        logits = network(torch.tensor([row], device=network.device))[0]  # [tokens, V]
        at_masks = logits[[len(tokenizer.before) + i for i in positions]].float()  # [M, V]
        best = at_masks.softmax(-1).topk(k)  # [M, k]
    filled = dict(zip(positions, best.indices[:, 0].tolist(), strict=True))
    fillings = []
    for position, tokens, probabilities in zip(positions, best.indices.tolist(), best.values.tolist(), strict=True):
        texts = [_text_with(tokenizer, ids, filled | {position: token}) for token in tokens]
        fillings.append([*map(Filling, tokenizer.pieces(tokens), probabilities, texts)])
    return fillings


def masked_ids(tokenizer: Tokenizer, mask: int, text: str) -> list[int]:
    """The ids of a text with masks, without the template. The mask may be written <mask> for any tokenizer."""
    own = tokenizer.token(mask)
    ids = tokenizer.encode(text.replace(MASK, own), parse_special=True)
    if mask not in ids:
        spellings = MASK if own == MASK else f"{MASK} or {own}"
        raise RegardError(f"the text has no mask: write {spellings} in place of a word, not {quoted(text)}")
    return ids


def _text_with(tokenizer: Tokenizer, ids: list[int], filled: dict[int, int]) -> str:
    return tokenizer.decode([filled.get(i, id_) for i, id_ in enumerate(ids)])
