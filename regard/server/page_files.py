"""The page's static files: a fixed set that is read at startup. A request never causes a file to be opened."""

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import Response

from regard.page import PAGE_FOLDER
from regard.server.http_errors import HttpError, error_responses

CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
}
INDEX_NAME = "index.html"
ICON_NAMES = ("favicon.ico", "favicon.svg", "icon.svg")
NO_PAGE = b"This installation of Regard does not include the page. /openapi.json describes the APIs.\n"


@dataclass(frozen=True)
class StaticFile:
    """A file of the page."""

    content: bytes
    content_type: str
    etag: str
    """The ETag. It is weak because the file may be sent compressed or not."""


def read_files(folder: Path = PAGE_FOLDER) -> dict[str, StaticFile]:
    """The files of the page by name."""
    files = {}
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.suffix in CONTENT_TYPES:
            content = path.read_bytes()
            files[path.name] = StaticFile(
                content, CONTENT_TYPES[path.suffix], f'W/"{sha256(content).hexdigest()[:32]}"'
            )
    return files


def routes(folder: Path = PAGE_FOLDER) -> APIRouter:
    """The router of the page's files. They are not part of the OpenAPI document."""
    router = APIRouter(include_in_schema=False, responses=error_responses("/"))
    files = read_files(folder)

    @router.get("/")
    async def index(request: Request) -> Response:
        if INDEX_NAME not in files:
            return Response(NO_PAGE, media_type="text/plain")
        return _file_response(files[INDEX_NAME], request)

    @router.get("/page/{name}")
    async def page_file(name: str, request: Request) -> Response:
        if name not in files:
            raise HttpError(404, "the page has no such file")
        return _file_response(files[name], request)

    @router.get("/favicon.ico")
    async def icon(request: Request) -> Response:
        name = next((name for name in ICON_NAMES if name in files), None)
        return Response(status_code=204) if name is None else _file_response(files[name], request)

    return router


def _file_response(file: StaticFile, request: Request) -> Response:
    headers = {"etag": file.etag, "cache-control": "no-cache"}
    if file.etag in map(str.strip, request.headers.get("if-none-match", "").split(",")):
        return Response(status_code=304, headers=headers)
    return Response(file.content, media_type=file.content_type, headers=headers)
