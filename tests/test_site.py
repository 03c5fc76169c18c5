"""The documentation site. `make docs` builds it strictly: every page, link and generated reference."""

import ast
import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib.pyplot as plt
import pytest
import torch

from regard.labs.lab import NAMES
from scripts.site_links import COMMANDS_INDEX, link_to_html, on_page_content, rewrite_links, with_generated_pages

ROOT = Path(__file__).parent.parent
ANNOTATED = ROOT / "docs/annotated/attention-is-all-you-need.py"


@pytest.mark.parametrize(
    ("link", "on_the_site"),
    [
        ("[a](questions.md#why)", "[a](questions.md#why)"),
        ("[a](../regard/labs/gallery/heads.md)", "[a](labs/heads.md)"),
        ("[a](../regard/models/fr-en/README.md)", "[a](models/fr-en.md)"),
        ("[`a`](../regard/config.py#L3) b", "`a` b"),
        ("[a](no-such-page.md)", "[a](no-such-page.md)"),  # MkDocs reports it
        ("[a](https://arxiv.org/abs/1706.03762)", "[a](https://arxiv.org/abs/1706.03762)"),
    ],
)
def test_links_to_files_outside_of_the_site_become_text(link: str, on_the_site: str) -> None:
    pages = {"questions.md", "labs/heads.md", "models/fr-en.md"}
    assert rewrite_links(link, "paper.md", pages) == on_the_site


def test_links_are_relative_to_the_page() -> None:
    assert rewrite_links("[a](../paper.md)", "annotated/page.md", {"paper.md"}) == "[a](../paper.md)"


def test_links_of_notebooks_lead_to_pages_of_the_site() -> None:
    assert link_to_html('<a href="../paper.md">') == '<a href="../paper.html">'
    assert link_to_html('<a href="../paper.md#masks">') == '<a href="../paper.html#masks">'
    assert link_to_html('<a href="https://example.org/a.md">') == '<a href="https://example.org/a.md">'
    notebook = SimpleNamespace(file=SimpleNamespace(src_uri="annotated/a.py"))
    assert on_page_content('<a href="../a.md">', notebook) == '<a href="../a.html">'


def test_no_page_needs_a_renderer_of_formulas() -> None:
    """The site loads nothing from elsewhere, so it has no MathJax: LaTeX would be shown as it is written."""
    docs = ROOT / "docs"
    pages = [*docs.rglob("*.md"), *docs.glob("annotated/*.py"), *docs.glob("notebooks/*.py")]
    assert ANNOTATED in pages
    latex = re.compile(r"\$\$|\\(?:frac|sqrt|mathrm)\b")
    assert [page for page in pages if latex.search(page.read_text(encoding="utf-8"))] == []


def test_every_page_is_in_the_navigation() -> None:
    """A page that is not there would be hard to find."""
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert [page for page in pages if page not in navigation] == []


def navigation_titles(text: str) -> dict[str, str]:
    """The title of each page in the navigation, by its path. The index of a section has none."""
    entries = re.findall(r'- "?([^":\n]+)"?: ([\w/-]+\.md)\n', text.partition("\nnav:\n")[2])
    return {path: title for title, path in entries}


def heading(path: Path) -> str:
    """The first heading of a page, without a subtitle after a colon."""
    return path.read_text(encoding="utf-8").partition("# ")[2].partition("\n")[0].partition(": ")[0]


def test_the_navigation_has_the_title_of_each_page() -> None:
    titles = navigation_titles((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    written = {path: title for path, title in titles.items() if (ROOT / "docs" / path).exists()}
    assert len(written) > 30
    expected = {path: heading(ROOT / "docs" / path) for path in written} | {"index.md": "Home", "course.md": "Course"}
    assert written == {path: title for path, title in expected.items() if path in written}


LINKED = re.compile(r"\[([^\]]+)\]\(([^)#\s]+\.md)(?:#[\w-]+)?\)")


@pytest.mark.parametrize(
    "path",
    [
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "RELEASING.md", "SECURITY.md")),
        *sorted((ROOT / "docs").rglob("*.md")),
    ],
    ids=lambda path: path.name,
)
def test_links_to_pages_say_what_the_page_is_about(path: Path) -> None:
    """Not the name of its file, which the site does not show."""
    for text, target in LINKED.findall(path.read_text(encoding="utf-8")):
        assert target.startswith("http") or (path.parent / target).exists(), f"{path.name} links to {target}"
        assert not re.fullmatch(r"`?(?:[\w-]+/)*[a-z-]+\.md`?", text), f"{path.name}: {text}: use the page's title"


def test_the_navigation_has_the_page_of_every_command_and_lab() -> None:
    """In sections of their own: the index of a section is only its heading, and would hide the list of commands."""
    navigation = [{"Labs": ["labs/README.md"]}, {"Reference": ["api.md", {"Commands": [COMMANDS_INDEX]}]}]
    labs, reference = with_generated_pages(navigation)
    assert labs["Labs"] == ["labs/README.md", *({name: f"labs/{name}.md"} for name in NAMES)]
    api, section = reference["Reference"]
    assert api == "api.md"
    assert section["Commands"][0] == COMMANDS_INDEX
    assert {"regard train": "reference/commands/train.md"} in section["Commands"]
    written = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert f"- Commands:\n          - {COMMANDS_INDEX}" in written
    assert "- Labs:\n      - labs/README.md" in written


@pytest.mark.slow
def test_the_annotated_paper_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """All cells, with a few training steps; `make docs` trains longer."""
    monkeypatch.setitem(os.environ, "ANNOTATED_STEPS", "2")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plt, "show", lambda: plt.close("all"))
    threads: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    monkeypatch.setattr(torch, "set_printoptions", lambda **_options: None)  # it would change what other tests print
    names: dict[str, Any] = {"__name__": "annotated"}
    exec(compile(ast.parse(ANNOTATED.read_text(encoding="utf-8")), str(ANNOTATED), "exec"), names)
    assert names["scores"].sentences == 100
    assert len(names["losses"]) == 2
    assert threads == [1], "on a busy machine, two threads took more than twice the processor time"
