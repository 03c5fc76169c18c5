"""User-facing texts are plain technical English: a short list of idiosyncratic words stays out of them."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent

DIALECT = {
    r"(?:is|are|be|as) told(?! apart)|tells of": "reported, says, prints",
    r"foretell|foretells|foretold|foretelling": "predict",
    r"anew": "again",
    r"beside": "next to, compared with",
    r"heed|heeds|heeded": "handle",
    r"thrice": "three times",
    r"borne out|bear out|bears out": "confirmed",
    r"to be had": "available",
    r"comes along|come along": "is bundled",
    r"goes on|go on|gone on|going on": "continues, resumes",
    r"so many": "N, this many",
    r"parted": "separated",
    r"there already": "already exists",
    r"a stranger's|strangers": "untrusted",
    r"by its name alone|for itself alone": "only",
    r"with suspicion": "validated",
}
"""Patterns of words, each with what to write instead."""
WORDS = re.compile(rf"\b(?:{'|'.join(DIALECT)})\b", re.IGNORECASE)

EXAMPLES = ("regard/petit/", "regard/labs/gallery/", "docs/three-roads-sentences.md")
"""Files that consist of example sentences, or of the output of models."""
SUFFIXES = {".py", ".md", ".toml", ".html", ".css", ".js"}
"""Suffixes of the package's texts."""


def user_facing_files() -> list[str]:
    listed = [ROOT / "Makefile", *ROOT.glob("*.md")]
    for folder, suffixes in (
        ("regard", SUFFIXES),
        ("benchmarks", {".py", ".md"}),
        ("scripts", {".py"}),
        ("docs", {".md"}),
        ("examples", {".py", ".md"}),
    ):
        listed += [path for path in (ROOT / folder).rglob("*") if path.suffix in suffixes]
    names = (path.relative_to(ROOT).as_posix() for path in listed)
    return sorted(name for name in names if not name.startswith(("regard/models/", *EXAMPLES)))


def texts_of(path: Path) -> list[tuple[int, str]]:
    """The texts in a file with their lines: of a Python file its string literals, of any other file all lines."""
    content = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return list(enumerate(content.splitlines(), 1))
    constants = [node for node in ast.walk(ast.parse(content)) if isinstance(node, ast.Constant)]
    return [(node.lineno, node.value) for node in constants if isinstance(node.value, str)]


def dialect_in(path: Path) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{line + text.count(chr(10), 0, match.start())}: {match[0]}: {text.strip()[:60]!r}"
        for line, text in texts_of(path)
        for match in WORDS.finditer(text)
    ]


def test_the_word_list_matches_whole_words() -> None:
    assert WORDS.findall("a misspelt key is told, beside others") == ["is told", "beside"]
    assert not WORDS.search("besides, an outsider's storytelling")


def test_user_facing_texts_are_plain_english() -> None:
    names = user_facing_files()
    assert {"Makefile", "README.md", "docs/paper.md", "regard/cli/train.py", "regard/page/app.js"} <= {*names}
    assert not [found for name in names for found in dialect_in(ROOT / name)]


FRENCH_PERCENTAGES = ("regard/decoding/", "scripts/typed_text.py", "regard/petit/")
"""Files with French examples, where a space belongs before the sign."""


def test_percentages_have_no_space() -> None:
    """As in English; terminals and tables showed both 95% and 95 %."""
    spaced = re.compile(r"\d %(?![\w(])")
    names = [name for name in user_facing_files() if not name.startswith(FRENCH_PERCENTAGES)]
    texts = [(name, line, text) for name in names for line, text in texts_of(ROOT / name)]
    assert len(texts) > 10_000
    assert [f"{name}:{line}" for name, line, text in texts if spaced.search(text)] == []
