"""Find the gold files that `regard data petit` writes next to its sentences."""

from pathlib import Path


def find_gold_files(files: tuple[str, ...]) -> tuple[Path | None, Path | None]:
    """The tags and alignment files of a French–English pair such as test.fr and test.en, or None for both.

    Only French to English has gold files: an English sentence may have several French translations.
    """
    paths = [Path(file.removesuffix(".gz").removesuffix(".xz").removesuffix(".zst")) for file in files]
    if len(paths) != 2 or paths[0] != paths[1].with_suffix(".fr") or paths[1].suffix != ".en":
        return None, None
    tags, links = paths[0].with_suffix(".tags"), paths[0].with_suffix(".align")
    return (tags, links) if tags.is_file() and links.is_file() else (None, None)
