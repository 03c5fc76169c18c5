"""Answers as gzip, for clients that accept it.

Only answers that are sent in one piece are compressed: a stream is read as it comes, and must not wait for more.
"""

import asyncio
import gzip
from collections.abc import Awaitable, Callable
from typing import Any

from regard.server import limits as bounds

App = Callable[[Any, Any, Any], Awaitable[None]]
TYPES = (b"text/", b"application/json", b"application/javascript", b"image/svg+xml")
NOT_COMPRESSED = b"text/event-stream"
LEVEL = 5
INLINE = 20_000
"""Bytes up to which the event loop compresses by itself: less than a millisecond."""


def compressed(app: App) -> App:
    """The app whose answers are compressed where the client accepts that."""

    async def answering(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        start: Any = None  # of an answer that may be compressed, held back until its body is there

        async def sending(message: Any) -> None:
            nonlocal start
            if message["type"] == "http.response.start" and _is_compressible(message):
                start = message
                return
            if start is not None:
                begun, start = start, None
                whole = not message.get("more_body", False)
                if whole and len(message["body"]) >= bounds.COMPRESSED and accepts_gzip(scope["headers"]):
                    message = {**message, "body": await _gzipped(message["body"])}
                    begun = _encoded(begun, len(message["body"]))
                await send({**begun, "headers": [*begun["headers"], (b"vary", b"accept-encoding")]})
            await send(message)

        await app(scope, receive, sending)

    return answering


def accepts_gzip(headers: list[tuple[bytes, bytes]]) -> bool:
    """Whether a request's Accept-Encoding names gzip, or anything, with a weight above zero.

    >>> [accepts_gzip([(b"accept-encoding", each)]) for each in (b"br, gzip", b"*", b"gzip;q=0, *", b"identity", b"")]
    [True, True, False, False, False]
    """
    weights: dict[str, float] = {}
    for key, value in headers:
        if key == b"accept-encoding":
            for part in value.decode("latin-1").lower().split(","):
                name, _, parameter = part.partition(";")
                weights[name.strip()] = _weight(parameter.strip())
    return weights.get("gzip", weights.get("*", 0.0)) > 0


def _weight(parameter: str) -> float:
    """The value of `q=…`: 1 if there is none, 0 if it cannot be read."""
    if not parameter:
        return 1.0
    try:
        return float(parameter.removeprefix("q=")) if parameter.startswith("q=") else 0.0
    except ValueError:
        return 0.0


def _is_compressible(start: Any) -> bool:
    headers = dict(start["headers"])
    kind = headers.get(b"content-type", b"").lower()
    fits = kind.startswith(TYPES) and not kind.startswith(NOT_COMPRESSED)
    return fits and start["status"] not in (204, 304) and b"content-encoding" not in headers


async def _gzipped(body: bytes) -> bytes:
    if len(body) <= INLINE:
        return _gzip(body)
    return await asyncio.to_thread(_gzip, body)


def _gzip(body: bytes) -> bytes:
    return gzip.compress(body, LEVEL, mtime=0)


def _encoded(start: Any, length: int) -> Any:
    """The start of an answer whose body is now gzip of this length."""
    kept = [(key, value) for key, value in start["headers"] if key.lower() != b"content-length"]
    more = [(b"content-encoding", b"gzip"), (b"content-length", str(length).encode())]
    return {**start, "headers": [*kept, *more]}
