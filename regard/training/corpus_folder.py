"""Aligned files of a folder, found by their names: one's own, or as `mtdata get` and `mtdata get-recipe` leave them.

| text | names, for French and English |
|---|---|
| to learn from | `train.fr` and `train.en`; where these are not, every pair in `train-parts/`, by name |
| to validate on | `dev`, `valid`, `validation` or `val`, ending so too |
| to test on | `test`, `test1`, `test_2016` …, ending so too |

A name ends with its language, as the files have it (`fr` or `fra`), and `.gz` or `.xz` may follow. `por_BR` is found as
`por` too, and `por` as `por_BR`, where there is no other: mtdata writes `train.por_BR` beside `dev.por`. What could be
meant in two ways, or has one side alone, is an error; but of tests, which are not learned from, it is passed over.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.data.corpus import Corpus
from regard.errors import RegardError

TRAIN_STEM, TRAIN_PARTS_FOLDER = "train", "train-parts"
VALIDATION_STEMS = ("dev", "valid", "validation", "val")
TEST_PREFIX = "test"
COMPRESSED_SUFFIXES = (".gz", ".xz")
FORMAT_SUFFIXES = ("tsv", "jsonl", "csv", "json", "txt")
"""ends of names that tell a format, and no language"""
MAX_LISTED_NAMES = 12
"""names that an error lists at most"""

Names = dict[str, dict[str, list[str]]]
"""files by what stands before the language in their names, and by language"""


@dataclass(frozen=True)
class CorpusFolder:
    """The text of a folder; files are named from the folder on."""

    train: tuple[Corpus, ...]
    validation: Corpus | None
    tests: tuple[Corpus, ...]

    def told(self) -> list[str]:
        """Which files, for what."""
        told = [f"to learn from: {_listed(self.train)}"]
        told += [f"to validate on: {_listed([self.validation])}"] if self.validation else []
        return told + ([f"to test on: {_listed(self.tests)}"] if self.tests else [])


def find_corpus_files(folder: Path, languages: Sequence[str], validation: bool = True) -> CorpusFolder:
    """The text of a folder in these two languages, source and target; a ValueError where there is none to learn from.

    What is to validate on is sought only with `validation`: it may be named elsewhere.
    """
    source, target = languages
    if source == target:
        raise RegardError(f"languages {source} and {target}: a source and a target in one language are one file")
    names, parts = _names(folder), _names(folder, TRAIN_PARTS_FOLDER)
    merged = _pair(names, TRAIN_STEM, languages, folder)
    apart = [_pair(parts, stem, languages, folder) for stem in sorted(parts)] if merged is None else []
    train = [merged] if merged else [corpus for corpus in apart if corpus]
    if not train:
        raise RegardError(_nothing(folder, source, target))
    stems = VALIDATION_STEMS if validation else ()
    tries = [corpus for stem in stems if (corpus := _pair(names, stem, languages, folder))]
    if len(tries) > 1:
        raise RegardError(f"{folder} has {_listed(tries)}: keep one to validate on, or name it in data.validation")
    tests = [stem for stem in sorted(names) if stem.startswith(TEST_PREFIX)]
    sides = [[_files(names[stem], language) for language in languages] for stem in tests]
    whole = [Corpus((first[0], second[0])) for first, second in sides if len(first) == len(second) == 1]
    return CorpusFolder(tuple(train), tries[0] if tries else None, tuple(whole))


def training_languages(folder: Path) -> list[str]:
    """The languages in which the names of a folder's training files end, sorted; a ValueError where there are none."""
    merged, parts = _names(folder).get(TRAIN_STEM, {}), _names(folder, TRAIN_PARTS_FOLDER).values()
    found = _languages(merged) or _languages(end for each in parts for end in each)
    if not found:
        raise RegardError(_nothing(folder, "fr", "en"))
    return found


def _names(folder: Path, inner: str = "") -> Names:
    """The files of a folder, or of one in it, that are named NAME.LANGUAGE, packed or not; hidden ones left out."""
    if not folder.is_dir():
        what = "is a file: name the folder it lies in" if folder.exists() else "there is no such folder"
        raise RegardError(f"{folder}: {what}; --set data.folder=FOLDER says where the files lie")
    found: Names = {}
    for path in sorted((folder / inner).iterdir()) if (folder / inner).is_dir() else []:
        if path.is_dir():
            continue
        name = path.name.removesuffix(path.suffix) if path.suffix in COMPRESSED_SUFFIXES else path.name
        stem, dot, end = name.rpartition(".")
        if stem and dot and end and not name.startswith("."):
            found.setdefault(stem, {}).setdefault(end, []).append(str(Path(inner) / path.name))
    return found


def _languages(ends: Iterable[str]) -> list[str]:
    """Those ends of names that are languages."""
    return sorted({end for end in ends if end not in FORMAT_SUFFIXES and re.fullmatch(r"[A-Za-z]{2,3}([_-]\w+)*", end)})


def _pair(names: Names, stem: str, languages: Sequence[str], folder: Path) -> Corpus | None:
    """The two files of a name; None if neither is there."""
    sides = [_files(names.get(stem, {}), language) for language in languages]
    if not any(sides):
        return None
    for language, other, files in zip(languages, reversed(sides), sides, strict=True):
        if not files:
            raise RegardError(f"{folder / other[0]} has no other side: there is no {stem}.{language}")
        if len(files) > 1:
            raise RegardError(f"{folder} has {' and '.join(files)}: which is meant? Keep one")
    if sides[0] == sides[1]:
        raise RegardError(f"{folder / sides[0][0]} would be both sides, {' and '.join(languages)}")
    return Corpus(tuple(files[0] for files in sides))


def _files(ends: dict[str, list[str]], language: str) -> list[str]:
    """The files that end with this language or, where none does, with another region or script of it."""
    base = re.split("[_-]", language)[0]
    akin = [file for end, files in ends.items() if re.split("[_-]", end)[0] == base for file in files]
    return ends.get(language) or akin


def _nothing(folder: Path, source: str, target: str) -> str:
    names = sorted(f"{path.name}/" if path.is_dir() else path.name for path in folder.iterdir())
    more = [f"and {len(names) - MAX_LISTED_NAMES} more"] if len(names) > MAX_LISTED_NAMES else []
    contents = ", ".join([*names[:MAX_LISTED_NAMES], *more]) or "nothing"
    return (
        f"{folder} has no training text: neither {TRAIN_STEM}.{source} with {TRAIN_STEM}.{target} (optionally with .gz "
        f"or .xz), nor pairs with these endings in {TRAIN_PARTS_FOLDER}/. Rename the files, or give the languages as "
        f"the files spell them; {_one_file(folder, source, target)}the folder contains {contents}"
    )


def _one_file(folder: Path, source: str, target: str) -> str:
    """How a training file that may hold both sides is named in a recipe, if there is one."""
    ends = _names(folder).get(TRAIN_STEM, {})
    end = next((each for each in FORMAT_SUFFIXES if each in ends), None)
    if end is None:
        return ""
    sides = f'keys=["{source}", "{target}"]' if end.startswith("json") else "columns=[1, 2]"
    return f"""one file is named with its sides, data.train=[{{files=["{ends[end][0]}"], {sides}}}]; """


def _listed(corpora: Sequence[Corpus]) -> str:
    """Their files; of many corpora the first few."""
    more = [f"and {len(corpora) - MAX_LISTED_NAMES} more"] if len(corpora) > MAX_LISTED_NAMES else []
    return ", ".join([" + ".join(corpus.files) for corpus in corpora[:MAX_LISTED_NAMES]] + more)
