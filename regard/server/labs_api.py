"""The labs of the gallery, read from its Markdown: what `regard lab all` wrote, and nothing else of the disk."""

import re
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import BaseModel

import regard
from regard.labs.gallery_files import FULL
from regard.labs.lab import NAMES
from regard.labs.lab_terminal import FAILED, HELD, SIGNS
from regard.server.http_errors import HttpError, error_responses

GALLERY = Path(regard.__file__).parent / "labs" / "gallery"
LINE = re.compile(r"(?<!\\)\|")


class Claim(BaseModel):
    """A conclusion, and whether it was borne out."""

    text: str
    holds: bool


class Table(BaseModel):
    """What was measured."""

    title: str
    head: list[str]
    rows: list[list[str]]


class Lab(BaseModel):
    """A question, and what came of it."""

    name: str
    question: str
    about: list[str]
    claims: list[Claim]
    tables: list[Table]
    notes: list[str]
    picture: str
    command: str
    """what it was made by"""


def routes(folder: Path = GALLERY) -> APIRouter:
    """The router of the gallery; without one there are no labs."""
    router = APIRouter(tags=["Regard"], responses=error_responses("/api"))
    gallery = folder if (folder / "README.md").is_file() else None

    @cache
    def all_of_them() -> list[Lab]:
        names = [name for lab in NAMES for name in (lab, f"{lab}{FULL}")]
        return [] if gallery is None else [lab for name in names if (lab := _read(gallery, name)) is not None]

    @router.get("/api/labs", summary="The labs")
    async def labs() -> list[Lab]:
        return all_of_them()

    @router.get(
        "/labs/{name}.png",
        summary="A lab's picture",
        response_class=Response,
        responses={200: {"content": {"image/png": {}}}},
    )
    async def picture(name: str) -> Response:
        if name not in {lab.name for lab in all_of_them()} or gallery is None:
            raise HttpError(404, "there is no lab of this name")
        return Response((gallery / f"{name}.png").read_bytes(), media_type="image/png")

    return router


def _read(gallery: Path, name: str) -> Lab | None:
    page, picture = gallery / f"{name}.md", gallery / f"{name}.png"
    if not page.is_file() or not picture.is_file():
        return None
    return Lab(name=name, picture=f"/labs/{name}.png", **parse(page.read_text(encoding="utf-8")))


def parse(text: str) -> dict[str, Any]:
    """A page that `regard.labs.gallery_files.markdown` wrote, in its parts."""
    blocks = text.strip().split("\n\n")
    body = list(takewhile(lambda block: not block.startswith("## "), blocks[1:]))
    picture = next((i for i, block in enumerate(body) if block.startswith("![")), len(body))
    tables, title = [], ""
    for block in body[picture + 1 :]:
        if block.startswith("|"):
            head, _, *rows = (_cells(line) for line in block.splitlines())
            tables.append({"title": title, "head": head, "rows": rows})
            title = ""
        else:
            title = _plain(block.strip("*"))
    claims = [
        {"text": item.removeprefix(f"{SIGNS[heading]} "), "holds": heading == HELD}
        for heading in (HELD, FAILED)
        for item in _items(blocks, heading)
    ]
    return {
        "question": _plain(blocks[0].removeprefix("# ")),
        "about": [_plain(block.removeprefix("- ")) for block in body[:picture]],
        "claims": claims,
        "tables": tables,
        "notes": _items(blocks, "Notes"),
        "command": blocks[-1].partition("`")[2].partition("`")[0],
    }


def _items(blocks: list[str], heading: str) -> list[str]:
    """The items below a heading."""
    place = blocks.index(f"## {heading}") if f"## {heading}" in blocks else None
    return [] if place is None else [_plain(line.removeprefix("- ")) for line in blocks[place + 1].splitlines()]


def _cells(line: str) -> list[str]:
    return [_plain(cell.strip()) for cell in LINE.split(line.strip())[1:-1]]


def _plain(text: str) -> str:
    r"""What `regard.formatting.safe` had escaped.

    >>> _plain(r"d\_model \| *x*")
    'd_model | *x*'
    """
    return re.sub(r"\\([^\sa-zA-Z0-9])", r"\1", text.replace("@<!-- -->", "@"))
