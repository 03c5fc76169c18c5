"""Connections that are slow, idle or too many: cut off before they cost others anything.

uvicorn waits for a request's head as long as the client likes; here it must be whole in time, and what is sent must be
taken in time.
"""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from regard.view.serve import bounds


class Patient(H11Protocol):
    """uvicorn's protocol with an end to its patience."""

    slow: float = bounds.SLOW
    most: int = bounds.CONNECTIONS
    """connections; beyond them requests are answered 503"""
    spare: int = 200
    """connections beyond these: their requests are not even read"""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.limit_concurrency = self.most
        self.reading: asyncio.TimerHandle | None = None
        self.writing: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection if there is room for it."""
        super().connection_made(transport)
        if len(self.connections) > self.most + self.spare:
            transport.write(_plain("503 Service Unavailable", "too many connections"))
            transport.close()
            return
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._stop_reading()
        self._stop_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what comes; a head that has begun must come to its end."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._await_head()
        else:
            self._stop_reading()

    def pause_writing(self) -> None:
        """The client does not read: it must begin to, or it is left."""
        super().pause_writing()
        self.writing = self.writing or self.loop.call_later(self.slow, self.transport.abort)

    def resume_writing(self) -> None:
        """It reads again."""
        self._stop_writing()
        super().resume_writing()

    def _await_head(self) -> None:
        self.reading = self.reading or self.loop.call_later(self.slow, self._too_slow)

    def _stop_reading(self) -> None:
        if self.reading is not None:
            self.reading.cancel()
        self.reading = None

    def _stop_writing(self) -> None:
        if self.writing is not None:
            self.writing.cancel()
        self.writing = None

    def _too_slow(self) -> None:
        self.reading = None
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self.transport.write(_plain("408 Request Timeout", "the request's head did not come in time"))
            self.transport.close()


def _plain(status: str, text: str) -> bytes:
    body = f'{{"error": "{text}"}}'
    head = f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close"
    return f"HTTP/1.1 {status}\r\n{head}\r\n\r\n{body}".encode()
