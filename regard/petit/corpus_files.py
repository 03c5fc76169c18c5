"""Petit as ordinary files, as any corpus would come: one sentence a line, and its gold beside it."""

from contextlib import ExitStack
from pathlib import Path

from regard.atomic_files import check_new_folder, new_folder
from regard.errors import RegardError
from regard.petit import MAX_PAIRS, SPLITS, pairs

HELD_OUT = 1_000
"""pairs in each of the other splits, however many there are to train on: figures on them can be compared"""


def write_petit(count: int, folder: Path, seed: int = 0, force: bool = False) -> dict[str, int]:
    """Write `count` training pairs and the held-out splits into a new or empty folder, and say how many each has.

    With `force` the folder may hold files; those of the same names are replaced.

    `NAME.fr` and `NAME.en` hold the sentences, `NAME.align` word alignments as `0-0 1-2` (French, English, counted as
    `words` does), `NAME.tags` the names of each pair's phenomena.
    """
    if count > MAX_PAIRS:
        raise RegardError(f"{count:,} pairs of Petit are too many: the maximum is {MAX_PAIRS:,}")
    check_new_folder(folder, force)
    sizes = {split: count if split == "train" else HELD_OUT for split in SPLITS}
    with new_folder(folder, force=force) as temporary:
        for split, size in sizes.items():
            paths = [temporary / f"{split}.{suffix}" for suffix in ("fr", "en", "align", "tags")]
            with ExitStack() as stack:
                files = [stack.enter_context(path.open("w", encoding="utf-8", newline="\n")) for path in paths]
                for pair in pairs(size, seed, split):
                    links = " ".join(f"{i}-{j}" for i, j in pair.alignment)
                    for file, text in zip(files, (pair.french, pair.english, links, " ".join(pair.tags)), strict=True):
                        file.write(f"{text}\n")
    return sizes
