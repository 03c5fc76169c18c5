"""Cancels a request's work when its client disconnects."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from fastapi import Request

from regard.server.http_errors import HttpError

T = TypeVar("T")


async def cancel_on_disconnect(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of the work, which is cancelled as soon as the client disconnects."""
    running = asyncio.ensure_future(work)
    disconnected = asyncio.ensure_future(_wait_for_disconnect(request))
    try:
        await asyncio.wait({running, disconnected}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            return running.result()
        raise HttpError(503, "the client has disconnected")  # nobody receives this
    finally:
        for task in (running, disconnected):
            task.cancel()


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
