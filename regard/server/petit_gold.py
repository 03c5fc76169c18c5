"""Gold alignment of Petit's sentences, between the tokens of a model."""

from functools import lru_cache

from regard import petit
from regard.data.tokenizer import Tokenizer
from regard.evaluation.alignment import piece_words, row_words, source_pieces

DRAWS = 20_000
"""sentences among which one is sought: a hundredth of a second or two; Petit has most of its own by then"""


def gold_links(tokenizer: Tokenizer, source: str, target: str) -> list[tuple[int, int]] | None:
    """Which row of cross-attention, by the token it writes, should look at which column; None if it is not known.

    It is known of Petit's sentences and their one right translation.
    """
    links = _links(source, target)
    if links is None or not hasattr(tokenizer, "engine"):
        return None
    rows, columns = row_words(piece_words(tokenizer, target)), source_pieces(tokenizer, source)
    return [(i, j) for i, row in enumerate(rows) for j, column in enumerate(columns) if (column, row) in links]


@lru_cache(maxsize=256)
def _links(source: str, target: str) -> frozenset[tuple[int, int]] | None:
    if not 0 < len(petit.words(source)) <= petit.LONGEST:
        return None
    found = petit.find(source, DRAWS)
    return frozenset(found.alignment) if found is not None and found.english == target else None
