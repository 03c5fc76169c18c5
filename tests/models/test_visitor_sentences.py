"""What visitors type: the bundled translators translate most of such sentences, and leave nothing out."""

import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

import regard

pytestmark = pytest.mark.slow
MIN_ACCEPTED = {"fr-en": 139, "en-fr": 131}
"""Accepted translations of each bundled model. A better model raises this number; no change may lower it."""
SENTENCES = {"fr-en": 150, "en-fr": 150}
"""Sentences in the list of each model."""


class Sentence(NamedTuple):
    """A line of visitor_sentences.MODEL.txt."""

    kind: str
    source: str
    accepted: str

    def accepts(self, translation: str) -> bool:
        """Whether a translation is acceptable."""
        text = re.sub(r" (?=[?!])", "", " ".join(translation.split())).replace("’", "'")  # French has spaces there
        if self.accepted.startswith("~"):
            parts = self.accepted[1:].split(", ")
            return all(re.search(alternatives(part.strip()), text, re.IGNORECASE) for part in parts)
        return re.fullmatch(alternatives(self.accepted), text, re.IGNORECASE) is not None


def alternatives(text: str) -> str:
    """A regular expression in which only parentheses and bars are special."""
    return "".join(part if part in "(|)" else re.escape(part) for part in re.split(r"([(|)])", text))


def sentences(model: str) -> list[Sentence]:
    lines = (Path(__file__).parent / f"visitor_sentences.{model}.txt").read_text(encoding="utf-8").splitlines()
    return [Sentence(*line.split(" | ")) for line in lines if line and not line.startswith("#")]


def test_alternatives() -> None:
    sentence = Sentence("short", "Bonjour.", "(Hello|Hi)(.|)|Good day.")
    assert [text for text in ("Hello.", "hi", "Good day.", "Hello!", "Hello. Hi") if sentence.accepts(text)] == [
        "Hello.",
        "hi",
        "Good day.",
    ]
    mentioned = Sentence("long", "...", "~ cat|dog, 3.5|3,5")
    assert mentioned.accepts("The dog weighs 3.5 kilos.")
    assert mentioned.accepts("The cat weighs 3,5 kilos.")
    assert not mentioned.accepts("The dog weighs 35 kilos.")
    assert not mentioned.accepts("It weighs 3.5 kilos.")


def test_kinds_of_spaces_and_apostrophes_do_not_matter() -> None:
    sentence = Sentence("question", "Are you hungry?", "As-tu faim?|T'as faim?")
    assert all(map(sentence.accepts, ("As-tu faim ?", "As-tu faim\u202f?", "T’as faim\u00a0?")))
    assert not sentence.accepts("T as faim ?")


@pytest.mark.parametrize("name", SENTENCES)
def test_the_list_is_varied(name: str) -> None:
    listed = sentences(name)
    assert len(listed) == len({sentence.source for sentence in listed}) == SENTENCES[name]
    assert min(Counter(sentence.kind for sentence in listed).values()) >= 5
    lengths = [len(sentence.source.split()) for sentence in listed]
    assert min(lengths) <= 3
    assert max(lengths) >= 25


@pytest.mark.parametrize("name", MIN_ACCEPTED)
def test_most_sentences_are_translated(name: str) -> None:
    listed = sentences(name)
    outputs = regard.load(name).quick().translate([sentence.source for sentence in listed])
    wrong = [(s, text) for s, text in zip(listed, outputs, strict=True) if not s.accepts(text)]
    report = "\n".join(f"{s.kind}: {s.source} -> {text}" for s, text in wrong)
    assert len(listed) - len(wrong) >= MIN_ACCEPTED[name], report


if __name__ == "__main__":
    import sys

    path, name = [*sys.argv[1:], "fr-en", "fr-en"][:2]  # a model, and the list to translate
    model = regard.load(path).quick()
    kinds: Counter[str] = Counter()
    listed = sentences(name)
    for sentence, text in zip(listed, model.translate([sentence.source for sentence in listed]), strict=True):
        kinds[sentence.kind] += sentence.accepts(text)
        if not sentence.accepts(text):
            print(f"{sentence.kind}: {sentence.source} -> {text}")
    total = Counter(sentence.kind for sentence in listed)
    print(", ".join(f"{kind} {kinds[kind]}/{total[kind]}" for kind in total), f"all {kinds.total()}/{len(listed)}")
