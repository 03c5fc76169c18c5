"""Writing Petit as plain files, like any corpus: one sentence per line, with the gold annotations in separate files."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from regard.atomic_files import check_new_folder, new_folder
from regard.errors import RegardError
from regard.petit import MAX_PAIRS, SPLITS, pairs, words

HELD_OUT = 1_000
"""Number of pairs in each held-out split, independent of the training set, so that scores can be compared."""


def write_petit(
    count: int, folder: Path, seed: int = 0, force: bool = False, splits: Sequence[str] = SPLITS
) -> dict[str, int]:
    """Write `count` training pairs and the held-out splits to a new or empty folder; return the size of each split.

    With `force` the folder may contain files; those with the same names are replaced. With fewer `splits` only those
    are written; generating "test" and "compositional" takes as long as tens of thousands of training pairs.

    `NAME.fr` and `NAME.en` contain the sentences, `NAME.align` word alignments such as `0-0 1-2` (French–English,
    counted as in `words`), `NAME.tags` the phenomena of each pair, and `NAME.conll` the French words, each in a line
    with its part of speech, and a blank line after each sentence.
    """
    if count > MAX_PAIRS:
        raise RegardError(f"{count:,} pairs of Petit requested: at most {MAX_PAIRS:,} allowed")
    check_new_folder(folder, force)
    sizes = {split: count if split == "train" else HELD_OUT for split in splits}
    with new_folder(folder, force=force) as temporary:
        for split, size in sizes.items():
            paths = [temporary / f"{split}.{suffix}" for suffix in ("fr", "en", "align", "tags", "conll")]
            with ExitStack() as stack:
                files = [stack.enter_context(path.open("w", encoding="utf-8", newline="\n")) for path in paths]
                for pair in pairs(size, seed, split):
                    links = " ".join(f"{i}-{j}" for i, j in pair.alignment)
                    parts = "".join(
                        f"{word}\t{part}\n" for word, part in zip(words(pair.french), pair.parts, strict=True)
                    )
                    texts = (pair.french, pair.english, links, " ".join(pair.tags), parts)
                    for file, text in zip(files, texts, strict=True):
                        file.write(f"{text}\n")
    return sizes
