"""HTTP errors: the status and the message of every failed request, in the format of the API that was called.

A `RegardError` that a request causes becomes a 400. A `ModelError` and every other exception become a 500, with the
traceback in the log and never in the response. With `regard --debug` or REGARD_DEBUG=1, the log has the tracebacks of
4xx errors too.
"""

import logging
import os
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from regard.errors import ModelError, RegardError

log = logging.getLogger("regard.serve")
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS = (
    (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
"""Headers of every response, including those that are written before a request reaches the app."""
INTERNAL_ERROR = "internal server error: see the server's log"
"""Message of a 500 response. The log has the details."""


class HttpError(Exception):
    """A request that fails with this status and message. `code` is OpenAI's name for the error."""

    def __init__(self, status: int, message: str, retry_after: int | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.retry_after, self.code = status, message, retry_after, code


def to_http_error(error: BaseException) -> HttpError:
    """The error to send to the client for an exception that a request raised. Server errors are logged."""
    if isinstance(error, HttpError):
        return error
    if isinstance(error, RegardError) and not isinstance(error, ModelError):
        converted = HttpError(400, str(error))
    else:
        log.error("a request failed: %s", error or type(error).__name__, exc_info=error)
        converted = HttpError(500, str(error) if isinstance(error, ModelError) else INTERNAL_ERROR)
    converted.__cause__ = error
    return converted


def error_body(path: str, status: int, message: str, code: str | None = None) -> dict[str, Any]:
    """The JSON of an error: OpenAI's format under /v1, LibreTranslate's everywhere else.

    >>> error_body("/translate", 400, "q is missing")
    {'error': 'q is missing'}
    """
    if not path.startswith("/v1/"):
        return {"error": message}
    kind = "server_error" if status >= 500 else "rate_limit_error" if status == 429 else "invalid_request_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def error_response(path: str, error: HttpError) -> JSONResponse:
    """The response to a request that failed."""
    headers = {} if error.retry_after is None else {"retry-after": str(error.retry_after)}
    content = error_body(path, error.status, error.message, error.code)
    return JSONResponse(content, error.status, headers=headers)


def install_handlers(app: FastAPI) -> None:
    """Have the app answer `HttpError`, `RegardError`, unknown paths and wrong methods in the API's error format."""

    @app.exception_handler(HttpError)
    @app.exception_handler(RegardError)
    async def handle_error(request: Request, error: Exception) -> JSONResponse:
        http_error = to_http_error(error)
        if http_error.status < 500 and os.environ.get("REGARD_DEBUG"):
            log.warning("%s %s: %d", request.method, request.url.path, http_error.status, exc_info=error)
        return error_response(request.url.path, http_error)

    @app.exception_handler(HTTPException)
    async def handle_routing_error(request: Request, error: HTTPException) -> JSONResponse:
        messages = {404: "there is nothing at this path", 405: "this path does not support this method"}
        message = messages.get(error.status_code) or HTTPStatus(error.status_code).phrase
        response = error_response(request.url.path, HttpError(error.status_code, message))
        response.headers.update(error.headers or {})
        if "GET" in response.headers.get("allow", "").split(", "):
            response.headers["allow"] += ", HEAD"
        return response


def catch_exceptions(app: Any) -> Callable[..., Awaitable[None]]:
    """Wrap the app so that an unexpected exception is logged and answered with a 500 that reveals nothing."""

    async def catching(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        started = False

        async def record_start(message: Any) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await app(scope, receive, record_start)
        except Exception:
            log.exception("%s %s failed", scope.get("method"), scope.get("path"))
            if started:
                raise
            await error_response(scope["path"], HttpError(500, INTERNAL_ERROR))(scope, receive, send)

    return catching


ERROR_DESCRIPTIONS = {
    400: "The request is invalid. The message says why.",
    401: "A token is required.",
    403: "The Host or Origin header is not allowed.",
    404: "The path or the model does not exist.",
    405: "The path does not support this method.",
    408: "The request arrived too slowly.",
    413: "The body is too large.",
    415: "The Content-Type is not supported.",
    429: "Too many requests are queued. Retry after the number of seconds in the Retry-After header.",
    500: "The server failed: a bug, or a model with damaged weights. The server's log has the details.",
    503: "The request timed out, the model is not available, or the server is shutting down.",
}
"""Descriptions in the OpenAPI document of the errors that any request may get."""

ERROR_SCHEMA = {
    "type": "object",
    "properties": {"error": {"type": "string", "description": "What is wrong, and what would be right."}},
    "required": ["error"],
}
OPENAI_ERROR_SCHEMA = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "description": "The error in OpenAI's format.",
            "properties": {
                "message": {"type": "string", "description": "What is wrong, and what would be right."},
                "type": {"type": "string", "description": "Kind of error."},
                "param": {"type": ["string", "null"], "description": "Always null."},
                "code": {
                    "type": ["string", "null"],
                    "description": "`model_not_found` if no served model has the name; otherwise null.",
                },
            },
            "required": ["message", "type", "param", "code"],
        }
    },
    "required": ["error"],
}


def error_responses(path: str) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI description of all errors of the API at this path."""
    schema = OPENAI_ERROR_SCHEMA if path.startswith("/v1/") else ERROR_SCHEMA
    content = {"application/json": {"schema": schema}}
    return {status: {"description": text, "content": content} for status, text in ERROR_DESCRIPTIONS.items()}
