"""Petit as ordinary files, as any corpus would come: one sentence a line, and its gold beside it."""

from pathlib import Path

from regard.files import new_folder
from regard.text.petit import SPLITS, pairs

HELD_OUT = 1_000
"""pairs in each of the other splits, however many there are to train on: figures on them can be compared"""


def write_petit(count: int, folder: Path, seed: int = 0) -> dict[str, int]:
    """Write `count` training pairs and the held-out splits into a new folder, and say how many each has.

    `NAME.fr` and `NAME.en` hold the sentences, `NAME.align` word alignments as `0-0 1-2` (French, English, counted as
    `words` does), `NAME.tags` the names of each pair's phenomena.
    """
    if folder.exists():
        raise ValueError(f"{folder} is there already: name a folder that is not")
    sizes = {split: count if split == "train" else HELD_OUT for split in SPLITS}
    with new_folder(folder) as temporary:
        for split, size in sizes.items():
            suffixes = ("fr", "en", "align", "tags")
            files = [(temporary / f"{split}.{suffix}").open("w", encoding="utf-8", newline="\n") for suffix in suffixes]
            for pair in pairs(size, seed, split):
                links = " ".join(f"{i}-{j}" for i, j in pair.alignment)
                for file, text in zip(files, (pair.french, pair.english, links, " ".join(pair.tags)), strict=True):
                    file.write(f"{text}\n")
            for file in files:
                file.close()
    return sizes
