"""What docs/paper.md and docs/questions.md say of the code is so: every line they name, every example, every figure.

A reference is written [path:line](../path#Lline) and, behind it, the code of that line between backticks. When lines
have moved, `python -m tests.test_docs` sets the numbers anew: to the nearest line that holds the code.
"""

import doctest
import math
import re
from pathlib import Path

import pytest
import torch

from regard.labs.lab import NAMES
from regard.model.attention import attention
from regard.model.transformer import build

DOCS = Path(__file__).parent.parent / "docs"
PAGES = ("paper.md", "questions.md")
REFERENCE = re.compile(
    r"\[(?P<path>[\w/.-]+):(?P<line>\d+)\]\(\.\./(?P<file>[\w/.-]+)#L(?P<anchor>\d+)\) `(?P<code>[^`]+)`"
)
ANCHOR = re.compile(r"\]\([^)]*#L\d+\)")
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def lines_with(code: str, path: str) -> list[int]:
    """The numbers of the lines that hold the code."""
    lines = (DOCS.parent / path).read_text(encoding="utf-8").splitlines()
    return [number for number, line in enumerate(lines, 1) if code in line]


def refreshed(text: str) -> str:
    """The same page, each reference at the line that holds its code: of several, the nearest to what it said."""

    def moved(match: re.Match[str]) -> str:
        path, code, said = match["path"], match["code"], int(match["line"])
        found = lines_with(code, path)
        if not found:
            raise ValueError(f"{path} has no line with `{code}` any more: say what shows it now")
        line = min(found, key=lambda number: abs(number - said))
        return f"[{path}:{line}](../{path}#L{line}) `{code}`"

    return REFERENCE.sub(moved, text)


@pytest.mark.parametrize("name", PAGES)
def test_the_lines_named_hold_what_they_are_said_to_hold(name: str) -> None:
    found = list(REFERENCE.finditer(page(name)))
    assert len(found) > 20
    for match in found:
        assert (match["file"], match["anchor"]) == (match["path"], match["line"]), match[0]
        there = lines_with(match["code"], match["path"])
        assert int(match["line"]) in there, f"{name}: {match[0]} is at {there}: python -m tests.test_docs sets it anew"


@pytest.mark.parametrize("name", PAGES)
def test_no_reference_goes_unchecked(name: str) -> None:
    text = page(name)
    assert len(ANCHOR.findall(text)) == len(list(REFERENCE.finditer(text)))


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_to_files(name: str) -> None:
    for target in LINK.findall(page(name)):
        assert (DOCS / target).exists(), f"{name} links to {target}, which is not there"


def test_every_lab_answers_a_question() -> None:
    assert set(re.findall(r"\]\(labs/([\w-]+)\.md\)", page("questions.md"))) == set(NAMES)
    assert set(re.findall(r"\]\(labs/([\w-]+)\.md\)", page("paper.md"))) <= set(NAMES)


def test_every_question_is_answered_with_a_line_that_shows_it() -> None:
    sections = re.split(r"^## ", page("questions.md"), flags=re.M)[1:]
    assert len(sections) > 20
    for section in sections:
        question, _, answer = section.partition("\n")
        assert question.endswith("?"), question
        assert REFERENCE.search(answer), f"{question} is answered without a line"


def test_a_moved_line_is_found_again_and_a_lost_one_is_told() -> None:
    path = "regard/model/attention.py"
    (line,) = lines_with("def split_heads", path)
    for said in (1, line - 1, 9_999):
        assert refreshed(f"[{path}:{said}](../{path}#L{said}) `def split_heads`").startswith(f"[{path}:{line}](../")
    assert all(refreshed(page(name)) == page(name) for name in PAGES)
    with pytest.raises(ValueError, match="no line with"):
        refreshed(f"[{path}:1](../{path}#L1) `def spilt_heads`")


def test_the_examples_run() -> None:
    told = doctest.testfile(str(DOCS / "questions.md"), module_relative=False, encoding="utf-8")
    assert told.attempted > 5
    assert told.failed == 0


def test_two_tokens_by_hand() -> None:
    """Each figure of the table follows from the queries, keys and values above it, by schoolbook arithmetic."""
    section = page("questions.md").partition("worked through by hand")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \|$", section, re.M)
    told = {
        name: [[float(x) for x in re.findall(r"[\d.]+", cell)] for cell in cells]
        for name, *cells in rows
        if cells[0].startswith("(")
    }
    q, k, v = (told[name] for name in ("query q", "key k", "value v"))
    scores = [[sum(a * b for a, b in zip(one, other, strict=True)) for other in k] for one in q]
    scaled = [[score / math.sqrt(len(q[0])) for score in row] for row in scores]
    powers = [[math.exp(score) for score in row] for row in scaled]
    weights = [[power / sum(row) for power in row] for row in powers]
    output = [[sum(w * each[i] for w, each in zip(row, v, strict=True)) for i in range(2)] for row in weights]
    computed = {
        "scores q·k₁, q·k₂": scores,
        "divided by √4": scaled,
        "e to the power of each": powers,
        "weights, each power by their sum": weights,
        "output, the weighted sum of values": output,
        "weights under a causal mask": [[1.0, 0.0], weights[1]],
        "output under a causal mask": [v[0], output[1]],
    }
    assert set(told) == {"query q", "key k", "value v", *computed}
    for name, figures in computed.items():
        assert told[name] == [[round(x, 3) for x in row] for row in figures], name
    one, other, third = (torch.tensor(each, dtype=torch.float64) for each in (q, k, v))
    free, masked = attention(one, other, third), attention(one, other, third, "causal")
    by_hand = [output, weights, computed["output under a causal mask"], computed["weights under a causal mask"]]
    for ours, theirs in zip((*free, *masked), by_hand, strict=True):
        torch.testing.assert_close(ours, torch.tensor(theirs, dtype=torch.float64))


def test_the_sizes_of_the_papers_models() -> None:
    told = re.search(r"([\d.]+) and ([\d.]+) million parameters", page("paper.md"))
    assert told
    for name, millions in zip(("paper-base", "paper-big"), told.groups(), strict=True):
        with torch.device("meta"):
            count = sum(each.numel() for each in build(name).parameters())
        assert f"{count / 1e6:.1f}" == millions


if __name__ == "__main__":
    for each in PAGES:
        (DOCS / each).write_text(refreshed(page(each)), encoding="utf-8")
