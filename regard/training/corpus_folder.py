"""Finds the parallel files of a folder by their names: your own, or those that `mtdata get` and `get-recipe` write.

| text | names, for French and English |
|---|---|
| training | `train.fr` and `train.en`; otherwise every pair in `train-parts/`, sorted by name |
| validation | `dev`, `valid`, `validation` or `val`, with the same endings |
| test | `test`, `test1`, `test_2016` …, with the same endings |

A name ends with its language as the files spell it (`fr` or `fra`), optionally followed by `.gz`, `.xz` or `.zst`. If
there is no other match, `por` also finds `por_BR` and the reverse: mtdata writes `train.por_BR` next to `dev.por`. A
name that is ambiguous or has only one side is an error; for tests, which are not trained on, it is ignored.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.data.compressed_files import COMPRESSED_SUFFIXES
from regard.data.corpus import Corpus
from regard.errors import RegardError

TRAIN_STEM, TRAIN_PARTS_FOLDER = "train", "train-parts"
VALIDATION_STEMS = ("dev", "valid", "validation", "val")
TEST_PREFIX = "test"
FORMAT_SUFFIXES = ("tsv", "jsonl", "csv", "json", "txt")
"""Endings of names that are formats, not languages."""
MAX_LISTED_NAMES = 12
"""Maximum number of names listed in an error."""

Names = dict[str, dict[str, list[str]]]
"""File names by their stem (the part before the language) and by language."""


@dataclass(frozen=True)
class CorpusFolder:
    """The corpora found in a folder. File names are relative to it."""

    train: tuple[Corpus, ...]
    validation: Corpus | None
    tests: tuple[Corpus, ...]

    def summary(self) -> list[str]:
        """One line per purpose, with its files."""
        lines = [f"training: {_listed(self.train)}"]
        if self.validation:
            lines.append(f"validation: {_listed([self.validation])}")
        if self.tests:
            lines.append(f"test: {_listed(self.tests)}")
        return lines


def find_corpus_files(folder: Path, languages: Sequence[str], validation: bool = True) -> CorpusFolder:
    """The corpora of a folder in these two languages, source and target.

    Raises a RegardError if there is no training text. Validation files are searched for only with `validation`.
    """
    source, target = languages
    if source == target:
        raise RegardError(f"languages {source} and {target}: the source and the target must differ")
    names, parts = _names(folder), _names(folder, TRAIN_PARTS_FOLDER)
    merged = _pair(names, TRAIN_STEM, languages, folder)
    separate = [_pair(parts, stem, languages, folder) for stem in sorted(parts)] if merged is None else []
    train = [merged] if merged else [corpus for corpus in separate if corpus]
    if not train:
        raise RegardError(_no_training_text(folder, source, target))
    stems = VALIDATION_STEMS if validation else ()
    validations = [corpus for stem in stems if (corpus := _pair(names, stem, languages, folder))]
    if len(validations) > 1:
        raise RegardError(
            f"{folder} has several validation texts, {_listed(validations)}: keep one, or name it in data.validation"
        )
    tests = [stem for stem in sorted(names) if stem.startswith(TEST_PREFIX)]
    sides = [[_files(names[stem], language) for language in languages] for stem in tests]
    complete = [Corpus((first[0], second[0])) for first, second in sides if len(first) == len(second) == 1]
    return CorpusFolder(tuple(train), validations[0] if validations else None, tuple(complete))


def training_languages(folder: Path) -> list[str]:
    """The languages of a folder's training files, sorted. Raises a RegardError if there are none."""
    merged, parts = _names(folder).get(TRAIN_STEM, {}), _names(folder, TRAIN_PARTS_FOLDER).values()
    languages = _languages(merged) or _languages(end for part in parts for end in part)
    if not languages:
        raise RegardError(_no_training_text(folder, "fr", "en"))
    return languages


def _names(folder: Path, inner: str = "") -> Names:
    """The files of a folder, or of a folder in it, named STEM.LANGUAGE, compressed or not. Hidden files are ignored."""
    if not folder.is_dir():
        problem = "this is a file: give its folder" if folder.exists() else "there is no such folder"
        raise RegardError(f"{folder}: {problem}; set it with --set data.folder=FOLDER")
    names: Names = {}
    for path in sorted((folder / inner).iterdir()) if (folder / inner).is_dir() else []:
        if path.is_dir():
            continue
        name = path.name.removesuffix(path.suffix) if path.suffix in COMPRESSED_SUFFIXES else path.name
        stem, dot, end = name.rpartition(".")
        if stem and dot and end and not name.startswith("."):
            names.setdefault(stem, {}).setdefault(end, []).append(str(Path(inner) / path.name))
    return names


def _languages(ends: Iterable[str]) -> list[str]:
    """The endings that are languages."""
    return sorted({end for end in ends if end not in FORMAT_SUFFIXES and re.fullmatch(r"[A-Za-z]{2,3}([_-]\w+)*", end)})


def _pair(names: Names, stem: str, languages: Sequence[str], folder: Path) -> Corpus | None:
    """The two files of a stem; None if neither exists."""
    sides = [_files(names.get(stem, {}), language) for language in languages]
    if not any(sides):
        return None
    for language, other, files in zip(languages, reversed(sides), sides, strict=True):
        if not files:
            raise RegardError(f"{folder / other[0]} is only one side: there is no {stem}.{language}")
        if len(files) > 1:
            raise RegardError(f"{folder} has both {' and '.join(files)}: keep one")
    if sides[0] == sides[1]:
        raise RegardError(
            f"{folder / sides[0][0]} would be the file of both sides, {' and '.join(languages)}: name other languages"
        )
    return Corpus(tuple(files[0] for files in sides))


def _files(ends: dict[str, list[str]], language: str) -> list[str]:
    """The files in this language or, if there are none, in another region or script of it."""
    base = re.split("[_-]", language)[0]
    related = [file for end, files in ends.items() if re.split("[_-]", end)[0] == base for file in files]
    return ends.get(language) or related


def _no_training_text(folder: Path, source: str, target: str) -> str:
    names = sorted(f"{path.name}/" if path.is_dir() else path.name for path in folder.iterdir())
    more = [f"and {len(names) - MAX_LISTED_NAMES} more"] if len(names) > MAX_LISTED_NAMES else []
    contents = ", ".join([*names[:MAX_LISTED_NAMES], *more]) or "nothing"
    return (
        f"{folder} has no training text: neither {TRAIN_STEM}.{source} with {TRAIN_STEM}.{target} (optionally with "
        f".gz, .xz or .zst), nor pairs with these endings in {TRAIN_PARTS_FOLDER}/. Rename the files, or give the "
        f"languages as the files spell them; {_one_file(folder, source, target)}the folder contains {contents}"
    )


def _one_file(folder: Path, source: str, target: str) -> str:
    """How to name a training file that may hold both sides, if there is one."""
    ends = _names(folder).get(TRAIN_STEM, {})
    end = next((suffix for suffix in FORMAT_SUFFIXES if suffix in ends), None)
    if end is None:
        return ""
    sides = f'keys=["{source}", "{target}"]' if end.startswith("json") else "columns=[1, 2]"
    return f"""for a single file with both sides, set data.train=[{{files=["{ends[end][0]}"], {sides}}}]; """


def _listed(corpora: Sequence[Corpus]) -> str:
    """The files of the corpora, abbreviated if there are many."""
    more = [f"and {len(corpora) - MAX_LISTED_NAMES} more"] if len(corpora) > MAX_LISTED_NAMES else []
    return ", ".join([" + ".join(corpus.files) for corpus in corpora[:MAX_LISTED_NAMES]] + more)
