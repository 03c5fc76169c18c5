"""Waiting for an answer only as long as someone is there to hear it."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from fastapi import Request

from regard.server.http_errors import Refusal

T = TypeVar("T")


async def while_here(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """What the work gives; it is cancelled as soon as the client leaves."""
    doing = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait({doing, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            return doing.result()
        raise Refusal(503, "the client has left")  # which nobody will read
    finally:
        for task in (doing, leaving):
            task.cancel()


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
