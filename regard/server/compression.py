"""Compresses responses with gzip for clients that accept it.

Only responses that are sent in one piece are compressed. A stream is read as it arrives and must not be buffered.
"""

import asyncio
import gzip
from collections.abc import Awaitable, Callable
from typing import Any

from regard.server import limits

App = Callable[[Any, Any, Any], Awaitable[None]]
COMPRESSIBLE_TYPES = (b"text/", b"application/json", b"application/javascript", b"image/svg+xml")
STREAM_TYPE = b"text/event-stream"
GZIP_LEVEL = 5
MAX_INLINE_BYTES = 20_000
"""Maximum size of a body that is compressed in the event loop: it takes less than a millisecond."""


def compress_responses(app: App) -> App:
    """Wrap the app so that its responses are compressed where the client accepts it."""

    async def compressing(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        pending: Any = None  # the start of a response that may be compressed, held back until its body arrives

        async def compress(message: Any) -> None:
            nonlocal pending
            if message["type"] == "http.response.start" and _is_compressible(message):
                pending = message
                return
            if pending is not None:
                start, pending = pending, None
                is_complete = not message.get("more_body", False)
                is_large = len(message["body"]) >= limits.MIN_COMPRESSED_BYTES
                if is_complete and is_large and accepts_gzip(scope["headers"]):
                    message = {**message, "body": await _gzip_body(message["body"])}
                    start = _with_gzip_headers(start, len(message["body"]))
                await send({**start, "headers": [*start["headers"], (b"vary", b"accept-encoding")]})
            await send(message)

        await app(scope, receive, compress)

    return compressing


def accepts_gzip(headers: list[tuple[bytes, bytes]]) -> bool:
    """Whether a request's Accept-Encoding lists gzip, or any encoding, with a weight above zero.

    >>> values = (b"br, gzip", b"*", b"gzip;q=0, *", b"identity", b"")
    >>> [accepts_gzip([(b"accept-encoding", value)]) for value in values]
    [True, True, False, False, False]
    """
    weights: dict[str, float] = {}
    for key, value in headers:
        if key == b"accept-encoding":
            for encoding in value.decode("latin-1").lower().split(","):
                name, _, parameter = encoding.partition(";")
                weights[name.strip()] = _weight(parameter.strip())
    return weights.get("gzip", weights.get("*", 0.0)) > 0


def _weight(parameter: str) -> float:
    """The value of `q=…`: 1 if it is missing, 0 if it is not a number."""
    if not parameter:
        return 1.0
    try:
        return float(parameter.removeprefix("q=")) if parameter.startswith("q=") else 0.0
    except ValueError:
        return 0.0


def _is_compressible(start: Any) -> bool:
    headers = dict(start["headers"])
    content_type = headers.get(b"content-type", b"").lower()
    is_text = content_type.startswith(COMPRESSIBLE_TYPES) and not content_type.startswith(STREAM_TYPE)
    return is_text and start["status"] not in (204, 304) and b"content-encoding" not in headers


async def _gzip_body(body: bytes) -> bytes:
    if len(body) <= MAX_INLINE_BYTES:
        return _gzip(body)
    return await asyncio.to_thread(_gzip, body)


def _gzip(body: bytes) -> bytes:
    return gzip.compress(body, GZIP_LEVEL, mtime=0)


def _with_gzip_headers(start: Any, length: int) -> Any:
    """The start of a response whose body is now gzip data of this length."""
    headers = [(key, value) for key, value in start["headers"] if key.lower() != b"content-length"]
    encoding = [(b"content-encoding", b"gzip"), (b"content-length", str(length).encode())]
    return {**start, "headers": [*headers, *encoding]}
