"""Finding corpus files in a folder by their names: a user's own, and the layouts that mtdata writes."""

import gzip
import random
import re
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.corpus import Corpus, CorpusProblems
from regard.training.corpus_folder import (
    FORMAT_SUFFIXES,
    MAX_LISTED_NAMES,
    TRAIN_PARTS_FOLDER,
    VALIDATION_STEMS,
    CorpusFolder,
    find_corpus_files,
    training_languages,
)
from regard.training.recipe import DataSection, Recipe, with_file_paths, with_named_files
from regard.training.recipe_files import as_toml, read_recipe
from regard.training.training_setup import prepare_training
from tests.support.commands import regard

# What mtdata 0.5.1 wrote from text placed in its cache: `get -l fra-eng`, with and without --merge, --compress,
# one or more validation sets; `get-recipe` writes the same as `get --merge`. An arrow is a symbolic link.
MERGED = """
    dev.eng -> tests/Statmt-newstest-2013-eng-fra.eng
    dev.fra -> tests/Statmt-newstest-2013-eng-fra.fra
    mtdata.signature.txt
    references.bib
    test1.eng -> tests/Statmt-newstest-2012-eng-fra.eng
    test1.fra -> tests/Statmt-newstest-2012-eng-fra.fra
    tests/.valid.Statmt-newstest-2012-eng-fra
    tests/.valid.Statmt-newstest-2013-eng-fra
    tests/Statmt-newstest-2012-eng-fra.eng
    tests/Statmt-newstest-2012-eng-fra.fra
    tests/Statmt-newstest-2013-eng-fra.eng
    tests/Statmt-newstest-2013-eng-fra.fra
    train-parts/.valid.Statmt-europarl-10-fra-eng
    train-parts/.valid.Statmt-news_commentary-18.1-eng-fra
    train-parts/Statmt-europarl-10-fra-eng.eng
    train-parts/Statmt-europarl-10-fra-eng.fra
    train-parts/Statmt-news_commentary-18.1-eng-fra.eng
    train-parts/Statmt-news_commentary-18.1-eng-fra.fra
    train.eng
    train.fra
    train.meta.jsonl.gz
    train.stats.json
"""
PARTED = "\n".join(line for line in MERGED.splitlines() if not re.match(r" +(train\.|test1)", line))
COMPRESSED = "\n".join(
    re.sub(r"^( +train\S*\.(eng|fra))$", r"\1.gz", line)
    for line in MERGED.splitlines()
    if not line.startswith("    dev")
)
BRAZILIAN = """
    dev.eng -> tests/OPUS-tatoeba-v20220303-eng-por.eng
    dev.por -> tests/OPUS-tatoeba-v20220303-eng-por.por
    tests/OPUS-tatoeba-v20220303-eng-por.eng
    tests/OPUS-tatoeba-v20220303-eng-por.por
    train-parts/.valid.OPUS-gnome-v1-eng-por_BR
    train-parts/OPUS-gnome-v1-eng-por_BR.eng
    train-parts/OPUS-gnome-v1-eng-por_BR.por_BR
    train-parts/OPUS-tatoeba-v20230412-eng-por.eng
    train-parts/OPUS-tatoeba-v20230412-eng-por.por
    train.eng
    train.meta.jsonl.gz
    train.por_BR
"""
PART = f"{TRAIN_PARTS_FOLDER}/Statmt-europarl-10-fra-eng", f"{TRAIN_PARTS_FOLDER}/Statmt-news_commentary-18.1-eng-fra"


def make_folder(folder: Path, names: str) -> Path:
    """Create a folder with these files; each contains its own name."""
    for line in names.split("\n"):
        name, _, target = line.strip().partition(" -> ")
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if target:
            path.symlink_to(target)
        elif name:
            text = f"{name}\n".encode()
            path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return folder


def pair(stem: str, source: str, target: str) -> Corpus:
    return Corpus((f"{stem}.{source}", f"{stem}.{target}"))


FRENCH = pair("train", "fra", "eng")
ENGLISH_PARTS = tuple(pair(part, "eng", "fra") for part in PART)
COMPRESSED_TRAIN = (pair("train", "fra.gz", "eng.gz"),)


@pytest.mark.parametrize(
    ("names", "languages", "found"),
    [
        (MERGED, "fra eng", CorpusFolder((FRENCH,), pair("dev", "fra", "eng"), (pair("test1", "fra", "eng"),))),
        (PARTED, "eng fra", CorpusFolder(ENGLISH_PARTS, pair("dev", "eng", "fra"), ())),
        (COMPRESSED, "fra eng", CorpusFolder(COMPRESSED_TRAIN, None, (pair("test1", "fra", "eng"),))),
        (BRAZILIAN, "por_BR eng", CorpusFolder((pair("train", "por_BR", "eng"),), pair("dev", "por", "eng"), ())),
        (BRAZILIAN, "eng por", CorpusFolder((pair("train", "eng", "por_BR"),), pair("dev", "eng", "por"), ())),
        ("train.fr\ntrain.en\ntrain.de\ntest.fr", "fr en", CorpusFolder((pair("train", "fr", "en"),), None, ())),
    ],
)  # fmt: skip
def test_files_are_found_by_their_names(names: str, languages: str, found: CorpusFolder, tmp_path: Path) -> None:
    assert find_corpus_files(make_folder(tmp_path, names), languages.split()) == found


def test_parts_with_regional_language_codes_are_combined(tmp_path: Path) -> None:
    apart = "\n".join(line for line in BRAZILIAN.splitlines() if not re.match(r" +train\.", line))
    found = find_corpus_files(make_folder(tmp_path, apart), ["por_BR", "eng"])
    assert [corpus.files[0] for corpus in found.train] == [
        f"{TRAIN_PARTS_FOLDER}/OPUS-gnome-v1-eng-por_BR.por_BR",
        f"{TRAIN_PARTS_FOLDER}/OPUS-tatoeba-v20230412-eng-por.por",
    ]


def test_incomplete_test_sets_are_skipped(tmp_path: Path) -> None:
    make_folder(tmp_path, "train.fr\ntrain.en\ntest.fr\ntest1.fr\ntest1.en\ntest2.fr\ntest2.en\ntest2.en.gz")
    assert find_corpus_files(tmp_path, ["fr", "en"]).tests == (pair("test1", "fr", "en"),)


def test_the_requested_region_is_preferred(tmp_path: Path) -> None:
    make_folder(tmp_path, "train.en\ntrain.pt\ntrain.pt_BR\ndev.en\ndev.pt_PT")
    assert find_corpus_files(tmp_path, ["pt", "en"]).train == (pair("train", "pt", "en"),)
    assert find_corpus_files(tmp_path, ["pt_BR", "en"]).train == (pair("train", "pt_BR", "en"),)
    with pytest.raises(ValueError, match=r"has both train\.pt and train\.pt_BR: keep one"):
        find_corpus_files(tmp_path, ["pt_AO", "en"])


CODE = st.from_regex(r"[a-z]{2,3}", fullmatch=True).filter(lambda code: code not in FORMAT_SUFFIXES)
NOISE = st.from_regex(r"(notes|trains|device|train\.meta|\.hidden)\.[a-z]{2,5}", fullmatch=True)


@given(
    st.lists(CODE, min_size=2, max_size=4, unique=True),
    st.sampled_from([None, *VALIDATION_STEMS]),
    st.sampled_from(["", ".gz", ".xz"]),
    st.lists(NOISE, max_size=4),
    st.randoms(use_true_random=False),
)
def test_two_languages_are_selected_among_several(
    codes: list[str], validation: str | None, suffix: str, noise: list[str], order: random.Random
) -> None:
    stems = ["train", *([validation] if validation else [])]
    names = [f"{stem}.{code}{suffix}" for stem in stems for code in codes] + noise
    order.shuffle(names)
    with TemporaryDirectory() as folder:
        for name in names:
            (Path(folder) / name).touch()
        found = find_corpus_files(Path(folder), codes[:2])
        assert training_languages(Path(folder)) == sorted(codes)
    ends = [f"{code}{suffix}" for code in codes[:2]]
    assert found.train == (pair("train", *ends),)
    assert found.validation == (pair(validation, *ends) if validation else None)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("", r"neither train\.fr with train\.en .* nor pairs .*the folder contains nothing"),
        ("train.fra\ntrain.eng", r"Rename the files, or .*; the folder contains train\.eng, train\.fra"),
        ("a.fr\na.en\ntrain-parts/a.de", r"no training text.*the folder contains a\.en, a\.fr, train-parts/"),
        ("train.fr\ndev.en", r"train\.fr is only one side: there is no train\.en"),
        ("train.fr\ntrain.en\nval.en", r"val\.en is only one side: there is no val\.fr"),
        ("train-parts/a.fr\ntrain-parts/a.en\ntrain-parts/b.en", r"train-parts/b\.en is only one side: .*no b\.fr"),
        ("train.fr\ntrain.en\ntrain.en.gz", r"has both train\.en and train\.en\.gz: keep one"),
        ("train.fr\ntrain.en\ndev.fr\ndev.en\nval.fr\nval.en", r"dev\.fr \+ dev\.en, val\.fr \+ val\.en: keep"),
    ],
)  # fmt: skip
def test_ambiguous_folders_are_rejected(names: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        find_corpus_files(make_folder(tmp_path, names), ["fr", "en"])
    assert str(tmp_path) in str(caught.value)


def test_subfolders_are_not_corpus_files(tmp_path: Path) -> None:
    make_folder(tmp_path, "train.fr/x\ntrain.en/x\ntrain-parts/a.fr\ntrain-parts/a.en\ntrain-parts/b.fr/x")
    assert find_corpus_files(tmp_path, ["fr", "en"]).train == (pair(f"{TRAIN_PARTS_FOLDER}/a", "fr", "en"),)


def test_one_file_cannot_be_both_sides(tmp_path: Path) -> None:
    make_folder(tmp_path, "train.en")
    with pytest.raises(ValueError, match=r"train\.en would be the file of both sides, en_GB and en_US"):
        find_corpus_files(tmp_path, ["en_GB", "en_US"])
    with pytest.raises(ValueError, match="languages en and en"):
        find_corpus_files(tmp_path, ["en", "en"])


def test_a_long_file_list_is_truncated(tmp_path: Path) -> None:
    make_folder(tmp_path, "\n".join(f"{i:02}.txt" for i in range(MAX_LISTED_NAMES + 5)))
    with pytest.raises(ValueError, match=r"the folder contains 00\.txt, .*11\.txt, and 5 more$"):
        find_corpus_files(tmp_path, ["fr", "en"])


def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
    make_folder(tmp_path, "train.fr")
    with pytest.raises(ValueError, match=r"nowhere: there is no such folder; set it with --set data\.folder=FOLDER"):
        find_corpus_files(tmp_path / "nowhere", ["fr", "en"])
    with pytest.raises(ValueError, match=r"train\.fr: this is a file: give its folder"):
        find_corpus_files(tmp_path / "train.fr", ["fr", "en"])


# In a recipe


def test_a_recipe_with_a_folder_is_expanded_to_files(tmp_path: Path) -> None:
    data = DataSection(folder=str(make_folder(tmp_path, MERGED)), languages=("fra", "eng"), held_out=0.1)
    named = with_named_files(data)
    assert named == replace(data, train=(FRENCH,), validation=pair("dev", "fra", "eng"), held_out=0.0)
    assert with_named_files(named) == named
    whole = with_file_paths(data)
    assert whole == with_file_paths(named)
    assert whole.validation is not None
    (row,) = whole.validation.rows(CorpusProblems())  # through the links
    assert row.fields == ("tests/Statmt-newstest-2013-eng-fra.fra", "tests/Statmt-newstest-2013-eng-fra.eng")
    recipe = Recipe(name="mine", data=named)
    (tmp_path / "mine.toml").write_text(as_toml(recipe))
    assert read_recipe(str(tmp_path / "mine.toml")) == recipe


def test_named_files_are_not_searched_for(tmp_path: Path) -> None:
    make_folder(tmp_path, "train.fr\ntrain.en\ndev.fr\ndev.en\nother.fr\nother.en")
    data = DataSection(folder=str(tmp_path), languages=("fr", "en"), validation=pair("other", "fr", "en"))
    assert with_named_files(data).validation == pair("other", "fr", "en")
    make_folder(tmp_path, "val.fr\nval.en")  # which would otherwise be one too many
    assert with_named_files(data).validation == pair("other", "fr", "en")
    named = DataSection(folder=str(tmp_path), languages=("fr", "en"), train=(pair("other", "fr", "en"),))
    assert with_named_files(named) == named
    assert with_named_files(DataSection(petit=5)) == DataSection(petit=5)


def test_without_validation_text_a_share_is_held_out(tmp_path: Path) -> None:
    data = DataSection(folder=str(make_folder(tmp_path, COMPRESSED)), languages=("fra", "eng"))
    with pytest.raises(ValueError, match=r"no validation text .dev, .*data\.held_out=0\.02"):
        with_named_files(data)
    named = with_named_files(replace(data, held_out=0.1))
    assert (named.validation, named.held_out) == (None, 0.1)


@pytest.mark.parametrize(
    ("names", "asked"),
    [("train.fr\ntrain.en", r"in en and fr\. Add --set data.languages=en,fr or fr,en: the source first"),
     ("train.fr\ntrain.en\ntrain.de", "in de and en and fr. Add"),
     ("train.tags", "has no training text"),
     ("train.tsv", r'no training text.*for a single file with both sides, set .*files=\["train.tsv"\], columns='),
     ("train.jsonl.gz", r'data\.train=\[\{files=\["train.jsonl.gz"\], keys=\["fr", "en"\]\}\]; the folder contains'),
     ("train.txt", "has no training text"),
     ("train.csv\ntrain.json\ntrain.txt\ntrain.fr\ntrain.en", "in en and fr. Add"),
     ("train.fr/a\ntrain.en/a", r"has no training text.*the folder contains train\.en/, train\.fr/"),
     ("train.tsv\ntrain.fr/a\ntrain-parts/a.fr\ntrain-parts/a.en", "in en and fr. Add")],
)  # fmt: skip
def test_the_direction_is_required(names: str, asked: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=asked):
        with_named_files(DataSection(folder=str(make_folder(tmp_path, names)), held_out=0.1))


def test_other_tasks_must_name_their_files(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="for the task language, name the files"):
        DataSection(folder=str(tmp_path), task="language")
    with pytest.raises(ValueError, match=r"there is no training text: .*a folder with train\.fr and train\.en"):
        DataSection()


def test_a_broken_link_is_reported(tmp_path: Path) -> None:
    make_folder(tmp_path, MERGED)
    (tmp_path / "tests/Statmt-newstest-2013-eng-fra.eng").unlink()
    with pytest.raises(ValueError, match=r"dev\.eng: no such file"):
        with_file_paths(DataSection(folder=str(tmp_path), languages=("fra", "eng")))


@pytest.mark.parametrize("name", ["small-corpus", "medium-corpus", "large-corpus"])
def test_recipes_for_own_text_accept_a_folder(name: str, tmp_path: Path) -> None:
    changes = [f"data.folder={make_folder(tmp_path, MERGED)}", 'data.languages=["fra", "eng"]']
    recipe = read_recipe(name, changes)
    assert recipe.data.searches_folder
    assert with_named_files(recipe.data).train == (FRENCH,)
    assert recipe.data.held_out > 0


def test_training_is_prepared_from_the_files_found(tmp_path: Path) -> None:
    make_folder(tmp_path / "mine", PARTED)
    changes = [f"data.folder={tmp_path / 'mine'}", 'data.languages=["eng", "fra"]', "model.d_model=8", "model.layers=1"]
    task = prepare_training(read_recipe("small-corpus", changes), tmp_path / "cache", packed=False)
    assert task.example_count == 2
    assert len(task.examples) == 1


# The command


@pytest.mark.slow
def test_check_accepts_a_folder(tmp_path: Path) -> None:
    make_folder(tmp_path, "train-parts/a.fr\ntrain-parts/a.en\ntrain-parts/b.fr.gz\ntrain-parts/b.en")
    leak = "A sentence that is long enough to be a leak.\n"
    for name in ("dev.fr", "dev.en", "train-parts/a.en"):
        (tmp_path / name).write_text(leak)
    done = regard("data", "check", str(tmp_path))
    assert done.returncode == 0, done.stderr
    shown = re.sub(r"\s+", "", done.stdout)
    assert "training:train-parts/a.en+train-parts/a.fr,train-parts/b.en+train-parts/b.fr.gz" in shown
    assert "validation:dev.en+dev.fr" in shown
    assert done.stdout.count("1 rows in") == 2
    assert re.findall(r"leakedtestsentences(\d)", shown) == ["1", "0"]
    (tmp_path / "other.fr").write_text("Something else that is long enough.\n")
    done = regard("data", "check", str(tmp_path), "--languages", "fr, en", "--test", str(tmp_path / "other.fr"))
    assert re.findall(r"leaked test sentences +(\d)", done.stdout) == ["0", "0"]


@pytest.mark.slow
def test_check_reports_unsupported_folders(tmp_path: Path) -> None:
    done = regard("data", "check", str(make_folder(tmp_path, "train.fr\ntrain.en\ntrain.de")))
    assert done.returncode == 2
    assert "has files in de, en, fr: choose two languages, --languages fr,en" in done.stderr
    done = regard("data", "check", str(tmp_path), "--columns", "1,2")
    assert "is a folder: --columns, --keys and --labelled are for files" in done.stderr
