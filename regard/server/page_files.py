"""The page's files: a fixed list, read once; nothing is ever sought on the disk by what a client says."""

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import Response

import regard.page
from regard.server.http_errors import Refusal, described

FOLDER = Path(regard.page.__file__).parent
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
}
INDEX = "index.html"
NO_PAGE = b"The page is not part of this copy of Regard. The APIs are here: /openapi.json describes them.\n"


@dataclass(frozen=True)
class File:
    """A file as it is sent."""

    content: bytes
    type: str
    tag: str
    """Weak, because the file is the same whether it is sent compressed or not."""


def files(folder: Path = FOLDER) -> dict[str, File]:
    """The files of the page by their names."""
    found = {}
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.suffix in TYPES:
            content = path.read_bytes()
            found[path.name] = File(content, TYPES[path.suffix], f'W/"{sha256(content).hexdigest()[:32]}"')
    return found


def routes(folder: Path = FOLDER) -> APIRouter:
    """The router of the page; it is no part of the APIs that OpenAPI describes."""
    router = APIRouter(include_in_schema=False, responses=described("/"))
    known = files(folder)

    @router.get("/")
    async def index(request: Request) -> Response:
        return _sent(known[INDEX], request) if INDEX in known else Response(NO_PAGE, media_type="text/plain")

    @router.get("/page/{name}")
    async def file(name: str, request: Request) -> Response:
        if name not in known:
            raise Refusal(404, "the page has no such file")
        return _sent(known[name], request)

    @router.get("/favicon.ico")
    async def icon(request: Request) -> Response:
        name = next((each for each in ("favicon.ico", "favicon.svg", "icon.svg") if each in known), None)
        return Response(status_code=204) if name is None else _sent(known[name], request)

    return router


def _sent(file: File, request: Request) -> Response:
    headers = {"etag": file.tag, "cache-control": "no-cache"}
    if file.tag in map(str.strip, request.headers.get("if-none-match", "").split(",")):
        return Response(status_code=304, headers=headers)
    return Response(file.content, media_type=file.type, headers=headers)
