"""The script that prepares the training data of the bundled fr-en and en-fr, on a few sentences."""

import lzma
import random
import re
import sys
from pathlib import Path

import pytest

from scripts import fr_en_corpus
from scripts.fr_en_corpus import PHRASES, is_plausible, is_sound, read_pairs, variations

SENTENCES = [
    ("Le chat dort.", "The cat is sleeping."),
    ("Elle a faim.", "She is hungry."),
    ("Où est la clé ?", "Where is the key?"),
]


def write(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = "".join(f"{line}\n" for line in lines)
    if path.suffix == ".xz":
        path.write_bytes(lzma.compress(content.encode()))
    else:
        path.write_text(content, encoding="utf-8")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The corpora, each with the same sentences and one of its own."""
    found = tmp_path / "data"
    tsv = [f"{french}\t{english}" for french, english in SENTENCES]
    swapped = [f"{english}\t{french}\tCC-BY" for french, english in SENTENCES]
    write(
        found / "tatoeba/train.en-fr.tsv.xz",
        [*swapped, "I am going.\tJe pars.\tCC-BY", "Yes.\tSi.\tCC-BY", "Aye.\tOui.\tCC-BY"],
    )
    write(found / "tatoeba/dev.en-fr.tsv", ["Thanks.\tMerci.\tCC-BY"])
    write(found / "tatoeba/test.en-fr.tsv", ["Yes.\tOui.\tCC-BY"])
    for name in ("dev.fr-en", "test.fr-en", "train-600k.fr-en"):
        suffix = ".xz" if name.startswith("train") else ""
        write(found / f"europarl/{name}.fr{suffix}", ["Je vote pour ce rapport."])
        write(found / f"europarl/{name}.en{suffix}", ["I vote for this report."])
    write(found / "newstest/newstest2013.fr", ["Voici les nouvelles."])
    write(found / "newstest/newstest2013.en", ["Here is the news."])
    write(found / "extra/tatoeba-extra.fr-en.tsv.xz", [*tsv, "Je veux dormir.\tI want to sleep."])
    write(
        found / "extra/business-docs.fr-en.tsv.xz",
        ["Ouvrez la page 12.\tOpen page 12.", "Ouvrez la page 12.\tOpen page 13."],
    )
    write(
        found / "extra/books.fr-en.tsv.xz",
        ["Il marchait lentement.\tHe was walking slowly.", "Ah !\tLong after that, he said ah."],
    )
    write(
        found / "extra/europarl-v7.fr-en.tsv.xz",
        ["Nous votons demain.\tWe vote tomorrow.", "Merci beaucoup.\tThank you very much."],
    )
    return found


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["fr_en_corpus.py", *arguments])
    fr_en_corpus.main()


@pytest.mark.slow
def test_the_steps_write_what_the_recipes_read(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from regard.training.recipe_files import read_recipe

    folder = tmp_path / "fr-en"
    run(monkeypatch, "filter", str(data), str(folder))
    everyday = list(read_pairs(folder / "tatoeba.tsv.xz"))
    assert everyday == [*SENTENCES, ("Je pars.", "I am going.")]  # without the test set's, in either language
    assert list(read_pairs(folder / "tatoeba-extra.tsv.xz")) == [
        ("Je veux dormir.", "I want to sleep.")
    ]  # only new ones
    assert list(read_pairs(folder / "business.tsv.xz")) == [("Ouvrez la page 12.", "Open page 12.")]
    assert list(read_pairs(folder / "books.tsv.xz")) == [("Il marchait lentement.", "He was walking slowly.")]
    assert list(read_pairs(folder / "europarl-600k.tsv.xz")) == []  # it is in the test set
    assert len(list(read_pairs(folder / "validation.tsv"))) == 2
    run(monkeypatch, "distil", str(folder), "--teacher", "petit-fr-en")
    assert list(read_pairs(folder / "tatoeba-distilled.tsv.xz"))[:3] == SENTENCES  # Petit's model knows them
    run(monkeypatch, "vary", str(folder))
    run(monkeypatch, "retype", str(folder), "--model", "petit-fr-en")
    run(monkeypatch, "retype", str(folder), "--model", "en-fr")
    retyped = list(read_pairs(folder / "retyped.tsv.xz"))
    phrases = list(read_pairs(PHRASES))
    assert len(retyped) > fr_en_corpus.REPEATED * (len(phrases) + fr_en_corpus.NUMBERS)
    assert {english.rstrip(" .!?…") for _, english in retyped} >= {
        english.rstrip(" .!?…") for _, english in [*SENTENCES, *phrases]
    }
    for recipe in map(read_recipe, ("teacher-fr-en", "fr-en-small", "fr-en", "en-fr", "en-fr-retyped")):
        corpora = [*recipe.data.train, recipe.data.validation]
        for name in {file for corpus in corpora if corpus for file in corpus.files}:
            assert (folder / name).exists(), f"{recipe.name} reads {name}, which no step writes"


def test_implausible_pairs_are_recognised() -> None:
    def plausible(french: str, english: str) -> bool:
        return is_plausible((french, english), (0.5, 2.0), 10)

    assert plausible("J'ai deux chats.", "I have 2 cats.")
    assert not plausible("J'ai 2 chats.", "I have 3 cats.")
    assert not plausible("De 10 à 12 heures.", "In the morning.")
    assert not plausible("", "Yes.")
    assert not plausible("Non.", "He said no to that.")
    assert not plausible("un " * 11, "one " * 11)
    assert not plausible("The House rose at nine.", "The House rose at nine.")


def test_degenerate_translations_are_recognised() -> None:
    assert is_sound("Le chat dort.", "The cat is sleeping.")
    assert not is_sound("Le chat dort.", "")
    assert not is_sound("Le chat dort.", "The cat " * 20)
    assert not is_sound(
        "Le petit chat noir dort sur le grand lit de la chambre.",
        "The cat the cat the cat the cat the cat the cat the cat.",
    )


ADDRESS = re.compile(r"\S*(?:www\.|http|@)\S*[a-z0-9]")


def test_variations_change_both_sides_alike() -> None:
    pairs = [(f"Phrase {i} ici.", f"Sentence {i} here.") for i in range(400)]
    varied = list(variations(pairs, fr_en_corpus.WITH_ADDRESS, random.Random(0)))
    assert varied == list(variations(pairs, fr_en_corpus.WITH_ADDRESS, random.Random(0)))
    assert len(varied) == pytest.approx(0.38 * len(pairs), abs=4)
    for french, english in varied:
        assert ADDRESS.findall(french) == ADDRESS.findall(english)
        without_address, english_without_address = ADDRESS.sub("", french), ADDRESS.sub("", english)
        assert without_address.lower().count("phrase") == english_without_address.lower().count("sentence")
        assert french.rstrip().endswith((".", "!")) == english.rstrip().endswith((".", "!"))
        for mark in fr_en_corpus.EMOJI:
            assert (mark in french) == (mark in english)
    addresses = {address for french, _ in varied for address in ADDRESS.findall(french)}
    assert any("phrase" in address for address in addresses)  # a word that would be translated elsewhere
    assert len(addresses) > 10


def test_the_phrases_are_well_formed() -> None:
    lines = PHRASES.read_text(encoding="utf-8").splitlines()
    assert len(set(lines)) == len(lines) > 3_000
    for line in lines:
        french, english = line.split("\t")
        assert french == " ".join(french.split())
        assert english == " ".join(english.split())
        assert french
        assert english
        assert not re.search(r"\w[?!;:](?:\s|$)", french), "French has a space before these marks"
