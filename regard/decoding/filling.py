"""Masked language models: the most likely tokens for each mask in a text.

Dimensions: B rows, T tokens, C model width, M masks of all rows, k fillings of each.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from regard.config import check_token_counts, check_type, require_at_least, require_at_most
from regard.data.tokenizer import MASK, Tokenizer
from regard.decoding.batching import batches_by_length, pad_rows
from regard.decoding.cancellation import raise_if_cancelled
from regard.decoding.token_labels import TokenLabels, in_one_word
from regard.errors import RegardError
from regard.model.masks import real_positions
from regard.model.transformer import Encoder

FILLING_BATCH_TOKENS = 2_048
"""Tokens of a batch, padding included. If all of them are masks, each has logits over the whole vocabulary."""
_MASK_SPELLING = re.compile(r"\[mask\]|<mask>", re.IGNORECASE)  # in the vocabularies of other models


class Filling(NamedTuple):
    """A token in place of a mask."""

    token: str
    """The text of the token; in most vocabularies a word includes the space before it."""
    probability: float
    text: str
    """The text with this token; any other mask is replaced by its most likely token."""
    continues_word: bool = False
    """Whether the token continues the word before the mask, as "s" after "chat"."""


def fill_masks(
    network: Encoder, tokenizer: Tokenizer, mask: int, texts: Sequence[str], k: int
) -> list[list[list[Filling]]]:
    """For each text, the k most likely tokens for each of its masks, best first."""
    check_type("k", k, int)
    require_at_least(1, k=k)
    require_at_most({"k": network.config.outputs}, {"k": k})
    rows = [masked_ids(tokenizer, mask, text) for text in texts]
    lengths = [len(tokenizer.before) + len(ids) + len(tokenizer.after) for ids in rows]
    check_token_counts(lengths, network.config.max_positions)
    fillings: dict[int, list[list[Filling]]] = {}
    for batch in batches_by_length(dict(enumerate(lengths)), FILLING_BATCH_TOKENS):
        raise_if_cancelled()
        framed = [[*tokenizer.before, *rows[number], *tokenizer.after] for number in batch]
        for number, (ids, probabilities) in zip(batch, _most_likely(network, mask, framed, k), strict=True):
            fillings[number] = _fillings(tokenizer, mask, rows[number], ids, probabilities)
    return [fillings[number] for number in range(len(rows))]


@torch.inference_mode()
def _most_likely(
    network: Encoder, mask: int, rows: Sequence[Sequence[int]], k: int
) -> Iterator[tuple[list[list[int]], list[list[float]]]]:
    """For each row, the most likely ids at each of its masks, and their probabilities."""
    tokens, lengths = pad_rows(rows, network.device)
    is_mask = (tokens == mask) & real_positions(lengths, tokens.size(1))  # [B, T]; padding may be any id
    hidden = network.hidden(tokens, lengths)[is_mask]  # [M, C]: the vocabulary is large, so only the masks get logits
    best = network.head(hidden[None])[0].float().softmax(-1).topk(k)  # [M, k]
    counts = is_mask.sum(1).tolist()
    parts = (best.indices.split_with_sizes(counts), best.values.split_with_sizes(counts))  # [masks of a row, k] each
    return ((ids.tolist(), probabilities.tolist()) for ids, probabilities in zip(*parts, strict=True))


def _fillings(
    tokenizer: Tokenizer, mask: int, ids: list[int], best: list[list[int]], probabilities: list[list[float]]
) -> list[list[Filling]]:
    """The fillings of each mask of a text, from the most likely ids of each."""
    positions = [i for i, id_ in enumerate(ids) if id_ == mask]
    filled = {position: tokens[0] for position, tokens in zip(positions, best, strict=True)}
    has_dots = TokenLabels.of(tokenizer, ids).dots
    fillings = []
    for position, tokens, shares in zip(positions, best, probabilities, strict=True):
        texts = [_text_with(tokenizer, ids, filled | {position: token}) for token in tokens]
        before = filled.get(position - 1, ids[position - 1])
        continues = [has_dots and position > 0 and in_one_word(tokenizer, before, token) for token in tokens]
        fillings.append([*map(Filling, tokenizer.pieces(tokens), shares, texts, continues)])
    return fillings


def masked_ids(tokenizer: Tokenizer, mask: int, text: str) -> list[int]:
    """The ids of a text with masks, without the template. The mask may be written <mask> for any tokenizer."""
    own = tokenizer.token(mask)
    ids = _parsed_ids(tokenizer, mask, text)
    if mask not in ids:
        if own in text or MASK in text:
            raise RegardError(f"the tokenizer does not recognise its mask {own} in a text: it is not an added token")
        spellings = MASK if own == MASK else f"{MASK} or {own}"
        other = _MASK_SPELLING.search(text)
        if other is not None:
            raise RegardError(f"the text has no mask: this model's mask is {spellings}, not {other[0]}")
        raise RegardError(f"the text has no mask: write {spellings} in place of a word")
    return ids


def ids_with_masks(tokenizer: Tokenizer, mask: int | None, text: str) -> list[int]:
    """The ids of a text that may have masks, with the template around it; without a mask id, a mask is plain text."""
    has_mask = mask is not None and (MASK in text or tokenizer.token(mask) in text)
    if mask is None or not has_mask:
        return tokenizer.encode_with_template(text)
    return [*tokenizer.before, *_parsed_ids(tokenizer, mask, text), *tokenizer.after]


def _parsed_ids(tokenizer: Tokenizer, mask: int, text: str) -> list[int]:
    return tokenizer.encode(text.replace(MASK, tokenizer.token(mask)), parse_special=True)


def _text_with(tokenizer: Tokenizer, ids: list[int], filled: dict[int, int]) -> str:
    return tokenizer.decode([filled.get(i, id_) for i, id_ in enumerate(ids)])
