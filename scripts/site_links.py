"""Links and navigation of the documentation site. MkDocs calls `on_config` once, and `on_page_markdown` and
`on_page_content` for each page.

The navigation of mkdocs.yml lists the pages that are written by hand. The pages of commands and of labs, which are
generated, are added to it.

In the repository, pages also link to code and to other files that are not part of the site. On the site, such a link
becomes its text. Links to the results of the labs and to the models' cards lead to the copies that the site has.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

import typer

from regard.cli import app
from regard.labs.lab import NAMES

ROOT = Path(__file__).parent.parent

LINK = re.compile(r"(?P<text>\[(?:[^\[\]]|\[[^\]]*\])*\])\((?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")
NOTEBOOK_LINK = re.compile(r'href="((?:\.\./)*[\w/-]+)\.md(#[^"]*)?"')
"""A relative link to a page in the HTML of a notebook."""
COPIES = (
    (re.compile(r"regard/labs/gallery/"), "labs/"),
    (re.compile(r"regard/models/([\w-]+)/README\.md"), r"models/\1.md"),
)
"""Files of the repository that the site has at another path."""
COMMANDS_INDEX = "reference/commands/index.md"
"""The page after which the navigation lists the pages of the commands."""
LABS_INDEX = "labs/README.md"
"""The page after which the navigation lists the pages of the labs."""


def on_config(config: Any) -> Any:
    """The configuration of the site, with the generated pages in its navigation."""
    config.nav = with_generated_pages(config.nav)
    return config


def with_generated_pages(navigation: Any) -> Any:
    """The navigation with the page of each command after the index of commands, and of each lab after that of labs.

    >>> with_generated_pages([{"Labs": ["labs/README.md"]}])[0]["Labs"][:2]
    ['labs/README.md', {'scaling': 'labs/scaling.md'}]
    """
    if isinstance(navigation, dict):
        return {title: with_generated_pages(part) for title, part in navigation.items()}
    if not isinstance(navigation, list):
        return navigation
    pages = [with_generated_pages(part) for part in navigation]
    if COMMANDS_INDEX in pages:
        root: Any = typer.main.get_command(app)
        pages += [{f"regard {name}": f"reference/commands/{name}.md"} for name in root.commands]
    if LABS_INDEX in pages:
        pages += [{name: f"labs/{name}.md"} for name in NAMES]
    return pages


def on_page_markdown(markdown: str, page: Any, files: Any, **_: object) -> str:
    """The text of a page with links that work on the site."""
    return rewrite_links(markdown, page.file.src_uri, {file.src_uri for file in files})


def on_page_content(html: str, page: Any, **_: object) -> str:
    """The content of a page. MkDocs does not rewrite the links of notebooks to other pages."""
    return link_to_html(html) if page.file.src_uri.endswith(".py") else html


def link_to_html(html: str) -> str:
    """The content of a notebook with links to pages of the site.

    >>> link_to_html('<a href="../paper.md#masks">masks</a> <a href="https://example.org/a.md">a</a>')
    '<a href="../paper.html#masks">masks</a> <a href="https://example.org/a.md">a</a>'
    """
    return NOTEBOOK_LINK.sub(r'href="\1.html\2"', html)


def rewrite_links(markdown: str, page: str, pages: set[str]) -> str:
    """The text of a page with links that work on a site with these pages.

    >>> text = "[a](../regard/config.py#L3), [b](../regard/labs/gallery/heads.md)"
    >>> rewrite_links(text, "paper.md", {"labs/heads.md"})
    'a, [b](labs/heads.md)'
    """

    def rewritten(match: re.Match[str]) -> str:
        target = match["target"]
        if re.match(r"[a-z]+:", target) or target.startswith("/"):
            return match[0]
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), target))
        for pattern, copy in COPIES:
            path = pattern.sub(f"docs/{copy}", path)
        inside = path.removeprefix("docs/")
        if inside not in pages:  # MkDocs reports links to files that do not exist at all
            return match["text"][1:-1] if (ROOT / path).exists() else match[0]
        relative = posixpath.relpath(inside, posixpath.dirname(page) or ".")
        return f"{match['text']}({relative}{match['anchor'] or ''})"

    return LINK.sub(rewritten, markdown)
