"""Refusals: every error is a status and a sentence, in the form that the API asked speaks."""

import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

log = logging.getLogger("regard.serve")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
"""Sent with every answer, whether the app gives it or a socket does."""


class Refusal(Exception):  # noqa: N818  # an answer, as good as others
    """What is answered instead of what was asked for."""

    def __init__(self, status: int, text: str, retry_after: int | None = None, code: str | None = None) -> None:
        super().__init__(text)
        self.status, self.text, self.retry_after, self.code = status, text, retry_after, code


def form(path: str, status: int, text: str, code: str | None = None) -> dict[str, Any]:
    """An error in the form of the API at this path: OpenAI's under /v1, else LibreTranslate's, which is ours too.

    >>> form("/translate", 400, "q is missing")
    {'error': 'q is missing'}
    """
    if not path.startswith("/v1/"):
        return {"error": text}
    kind = "server_error" if status >= 500 else "rate_limit_error" if status == 429 else "invalid_request_error"
    return {"error": {"message": text, "type": kind, "param": None, "code": code}}


def answer(path: str, refusal: Refusal) -> JSONResponse:
    """The refusal as a response."""
    headers = {} if refusal.retry_after is None else {"retry-after": str(refusal.retry_after)}
    content = form(path, refusal.status, refusal.text, refusal.code)
    return JSONResponse(content, refusal.status, headers=headers)


def install(app: FastAPI) -> None:
    """Have the app answer refusals, wrong paths and methods, and its own mistakes."""

    @app.exception_handler(Refusal)
    async def refuse(request: Request, error: Refusal) -> JSONResponse:
        return answer(request.url.path, error)

    @app.exception_handler(HTTPException)
    async def not_here(request: Request, error: HTTPException) -> JSONResponse:
        phrase = {404: "there is nothing at this address", 405: "not by this method"}.get(error.status_code)
        text = phrase or HTTPStatus(error.status_code).phrase
        response = answer(request.url.path, Refusal(error.status_code, text))
        response.headers.update(error.headers or {})
        if "GET" in response.headers.get("allow", "").split(", "):
            response.headers["allow"] += ", HEAD"
        return response


def catch_all(app: Any) -> Callable[..., Awaitable[None]]:
    """The app with a last resort: a mistake of ours is logged, and its answer tells nothing of the inside."""

    async def caught(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        begun = False

        async def sending(message: Any) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await app(scope, receive, sending)
        except Exception:
            log.exception("%s %s went wrong", scope.get("method"), scope.get("path"))
            if begun:
                raise
            refusal = Refusal(500, "something went wrong here: the server's log has it")
            await answer(scope["path"], refusal)(scope, receive, send)

    return caught


RESPONSES: dict[int | str, dict[str, Any]] = {
    400: {"description": "The request is not as it should be."},
    401: {"description": "A token is needed."},
    403: {"description": "Asked from elsewhere, or by another name of this server."},
    404: {"description": "There is no such thing, or no such model."},
    405: {"description": "Not by this method."},
    408: {"description": "The request came too slowly."},
    413: {"description": "The body is too large."},
    415: {"description": "The body is of another type."},
    429: {"description": "Too much is waiting already: see Retry-After."},
    503: {"description": "It took too long, or the server is ending."},
}
"""what any request may be answered, in OpenAPI's words"""

ERROR = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}
OPENAI_ERROR = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
            "required": ["message", "type", "param", "code"],
        }
    },
    "required": ["error"],
}


def described(path: str) -> dict[int | str, dict[str, Any]]:
    """`RESPONSES` with the form of errors at this path."""
    schema = OPENAI_ERROR if path.startswith("/v1/") else ERROR
    return {status: {**told, "content": {"application/json": {"schema": schema}}} for status, told in RESPONSES.items()}
