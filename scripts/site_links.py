"""Links of the documentation site. MkDocs calls `on_page_markdown` and `on_page_content` for each page.

In the repository, pages also link to code and to other files that are not part of the site. On the site, such a link
becomes its text. Links to the results of the labs and to the models' cards lead to the copies that the site has.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent

LINK = re.compile(r"(?P<text>\[(?:[^\[\]]|\[[^\]]*\])*\])\((?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")
NOTEBOOK_LINK = re.compile(r'href="((?:\.\./)*[\w/-]+)\.md(#[^"]*)?"')
"""A relative link to a page in the HTML of a notebook."""
COPIES = (
    (re.compile(r"regard/labs/gallery/"), "labs/"),
    (re.compile(r"regard/models/([\w-]+)/README\.md"), r"models/\1.md"),
)
"""Files of the repository that the site has at another path."""


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
