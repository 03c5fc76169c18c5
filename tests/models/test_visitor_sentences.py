"""What visitors type: the bundled fr-en translates most of 150 such sentences, and leaves nothing out."""

import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

import regard

pytestmark = pytest.mark.slow
MIN_ACCEPTED = 132
"""Accepted translations of the bundled model. A better model raises this number; no change may lower it."""


class Sentence(NamedTuple):
    """A line of visitor_sentences.txt."""

    kind: str
    french: str
    english: str

    def accepts(self, translation: str) -> bool:
        """Whether a translation is acceptable."""
        if self.english.startswith("~"):
            parts = self.english[1:].split(",")
            return all(re.search(alternatives(part.strip()), translation, re.IGNORECASE) for part in parts)
        return re.fullmatch(alternatives(self.english), translation.strip(), re.IGNORECASE) is not None


def alternatives(text: str) -> str:
    """A regular expression in which only parentheses and bars are special."""
    return "".join(part if part in "(|)" else re.escape(part) for part in re.split(r"([(|)])", text))


def sentences() -> list[Sentence]:
    lines = (Path(__file__).parent / "visitor_sentences.txt").read_text(encoding="utf-8").splitlines()
    return [Sentence(*line.split(" | ")) for line in lines if line and not line.startswith("#")]


def test_alternatives() -> None:
    sentence = Sentence("short", "Bonjour.", "(Hello|Hi)(.|)|Good day.")
    assert [text for text in ("Hello.", "hi", "Good day.", "Hello!", "Hello. Hi") if sentence.accepts(text)] == [
        "Hello.",
        "hi",
        "Good day.",
    ]
    mentioned = Sentence("long", "...", "~ cat|dog, 3.5")
    assert mentioned.accepts("The dog weighs 3.5 kilos.")
    assert not mentioned.accepts("The dog weighs 3,5 kilos.")
    assert not mentioned.accepts("It weighs 3.5 kilos.")


def test_the_list_is_varied() -> None:
    listed = sentences()
    assert len(listed) == len({sentence.french for sentence in listed}) == 150
    assert min(Counter(sentence.kind for sentence in listed).values()) >= 5
    lengths = [len(sentence.french.split()) for sentence in listed]
    assert min(lengths) <= 3
    assert max(lengths) >= 25


def test_most_sentences_are_translated() -> None:
    listed = sentences()
    outputs = regard.load("fr-en").quick().translate([sentence.french for sentence in listed])
    wrong = [(s, text) for s, text in zip(listed, outputs, strict=True) if not s.accepts(text)]
    report = "\n".join(f"{s.kind}: {s.french} -> {text}" for s, text in wrong)
    assert len(listed) - len(wrong) >= MIN_ACCEPTED, report


if __name__ == "__main__":
    import sys

    model = regard.load(sys.argv[1] if len(sys.argv) > 1 else "fr-en").quick()
    kinds: Counter[str] = Counter()
    listed = sentences()
    for sentence, text in zip(listed, model.translate([sentence.french for sentence in listed]), strict=True):
        kinds[sentence.kind] += sentence.accepts(text)
        if not sentence.accepts(text):
            print(f"{sentence.kind}: {sentence.french} -> {text}")
    total = Counter(sentence.kind for sentence in listed)
    print(", ".join(f"{kind} {kinds[kind]}/{total[kind]}" for kind in total), f"all {kinds.total()}/{len(listed)}")
