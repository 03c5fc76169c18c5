"""The gold alignment of Petit's sentences, between the tokens of a model."""

from functools import lru_cache

from regard import petit
from regard.data.tokenizer import Tokenizer
from regard.evaluation.alignment import reports_positions, source_token_words, token_words, words_of_rows

SENTENCES_SEARCHED = 20_000
"""Number of Petit's sentences among which a text is looked up. It takes 10 to 20 ms and covers most of them."""


def gold_links(tokenizer: Tokenizer, source: str, target: str) -> list[tuple[int, int]] | None:
    """The gold links of cross-attention as (row, column): the row predicts a token that translates the column's token.

    None if the text is not a sentence of Petit with its correct translation.
    """
    links = _word_links(source, target)
    if links is None or not reports_positions(tokenizer):
        return None
    rows = words_of_rows(token_words(tokenizer.target_side, target, petit.spans))
    columns = source_token_words(tokenizer.source_side, source, petit.spans)
    return [(i, j) for i, row in enumerate(rows) for j, column in enumerate(columns) if (column, row) in links]


@lru_cache(maxsize=256)
def _word_links(source: str, target: str) -> frozenset[tuple[int, int]] | None:
    if not 0 < len(petit.words(source)) <= petit.MAX_FRENCH_WORDS:
        return None
    pair = petit.find_pair(source, SENTENCES_SEARCHED)
    return frozenset(pair.alignment) if pair is not None and pair.english == target else None
