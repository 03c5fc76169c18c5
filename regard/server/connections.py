"""Connections that are slow, idle or too many: cut off before they cost others anything.

uvicorn waits for a request's head as long as the client likes; here it must be whole in time, and what is sent must be
read at a minimum rate. uvicorn's own refusals lack the headers that every answer has here, and so they are replaced.
"""

import asyncio
import fcntl
import json
import logging
import resource
import socket
import struct
import termios
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from regard.server import limits as bounds
from regard.server.http_errors import HEADERS, Refusal, answer

log = logging.getLogger("regard.serve")
RESERVED_FILES = 64
"""Files that are left for all but connections: models, the page, a browser."""
ACCEPTED_AT_ONCE = 32
"""Connections that are accepted before the event loop does something else."""
REFUSED_AT_ONCE = 8
"""Connections that are open for just as long as it takes to refuse them."""
PAUSE = 0.5
"""Seconds without accepting after the system has refused a connection."""
QUIET = 60.0
"""Seconds between two lines of the log that say so."""


class Patient(H11Protocol):
    """uvicorn's protocol with timeouts."""

    slow: float = bounds.SLOW
    rate: float = bounds.RATE
    most: int = bounds.CONNECTIONS
    """connections; beyond them requests are answered 503"""
    spare: int = 200
    """connections beyond these: their requests are not even read"""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.inner, self.app = self.app, self._unless_crowded
        self.reading: asyncio.TimerHandle | None = None
        self.writing: asyncio.TimerHandle | None = None
        self.ended: Callable[[], None] | None = None
        """called once when the connection is closed"""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection if there is room for it."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # whatever the client has not read yet is watched
        if len(self.connections) > self.most + self.spare:
            self._refuse(503, "too many connections")
            return
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._stop_reading()
        self._stop_writing()
        super().connection_lost(exc)
        if self.ended is not None:
            self.ended()

    def data_received(self, data: bytes) -> None:
        """Take what comes; a head that has begun must come to its end, and so must a body that nobody reads."""
        before = self.conn.their_state
        super().data_received(data)
        if self.conn.their_state is not before:
            self._stop_reading()
        self._await_request()

    def on_response_complete(self) -> None:
        """Have the rest of a request that was refused before its end come in time, too."""
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY:
            self._await_request()

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that nothing is asked on any more, but not while its last answer is still being read."""
        if self.transport.get_write_buffer_size():
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )
        else:
            super().timeout_keep_alive_handler()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002  # uvicorn's words
        """What is no HTTP is refused like anything else; an answer that has begun is cut short."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._refuse(400, "this is no HTTP request")
        else:
            self.transport.abort()

    def pause_writing(self) -> None:
        """The client has not read all of it yet: it must go on reading, or it is left."""
        super().pause_writing()
        if self.writing is None:
            self._watch_writing(self._unread())

    def resume_writing(self) -> None:
        """All that was sent is on its way."""
        self._stop_writing()
        super().resume_writing()

    async def _unless_crowded(self, scope: Any, receive: Any, send: Any) -> None:
        """The app, or a refusal if there are too many connections."""
        if len(self.connections) <= self.most:
            await self.inner(scope, receive, send)
            return
        response = answer(scope["path"], Refusal(503, "too many connections: try again later", retry_after=1))
        response.headers["connection"] = "close"
        headers = [*response.raw_headers, *HEADERS]
        await send({"type": "http.response.start", "status": 503, "headers": headers})
        await send({"type": "http.response.body", "body": response.body})

    def _await_request(self) -> None:
        """Start the time for a request to arrive, if one is awaited and the time does not run yet."""
        answered = self.cycle is not None and self.cycle.response_complete
        unread = answered and self.conn.their_state is h11.SEND_BODY
        if (self.conn.their_state is h11.IDLE or unread) and not self.transport.is_closing():
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
        if self.conn.their_state is h11.IDLE:
            self._refuse(408, "the request's head did not come in time")
        else:
            self.transport.close()

    def _watch_writing(self, unread: int) -> None:
        """Check after a while that the client has read enough of the bytes that it has not read now."""

        def check() -> None:
            left = self._unread()
            if unread - left < self.rate * self.slow:
                self._cut()
            else:
                self._watch_writing(left)

        self.writing = self.loop.call_later(self.slow, check)

    def _cut(self) -> None:
        """Close the connection, and have the system forget what the client has not read."""
        with suppress(OSError, AttributeError):
            connection = self.transport.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def _unread(self) -> int:
        """Bytes that were written and that the client has not received: ours, and those the system still holds."""
        held = 0
        with suppress(OSError, AttributeError):
            connection = self.transport.get_extra_info("socket")
            (held,) = struct.unpack("i", fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, b"\0" * 4))
        return self.transport.get_write_buffer_size() + held

    def _refuse(self, status: int, text: str) -> None:
        if not self.transport.is_closing():
            self.transport.write(plain(status, text))
            self.transport.close()


def plain(status: int, text: str) -> bytes:
    """A refusal as bytes, with the headers of every answer, after which the connection is closed."""
    body = json.dumps({"error": text}).encode()
    own = ((b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), (b"connection", b"close"))
    head = b"".join(b"%s: %s\r\n" % each for each in (*own, *HEADERS))
    return b"HTTP/1.1 %d %s\r\n%s\r\n%s" % (status, HTTPStatus(status).phrase.encode(), head, body)


class Acceptor:
    """Accepts connections, and stops for a while when there are as many as there may be.

    asyncio's own loop tries on when the process has no file descriptors left, and logs each of a thousand failures.
    """

    def __init__(self, listener: socket.socket, protocol: Callable[[], Patient], most: int) -> None:
        self.listener, self.protocol, self.most = listener, protocol, most
        self.loop = asyncio.get_running_loop()
        self.opening: set[asyncio.Task[Any]] = set()
        self.open = 0
        """connections that were accepted and are not closed yet"""
        self.quiet_until = 0.0
        """when a failure is logged again"""
        self.listening = False
        self.closed = False
        listener.setblocking(False)
        self._listen()

    def close(self) -> None:
        """Accept no more."""
        self.closed = True
        self._pause()

    def _listen(self) -> None:
        if not self.closed and not self.listening and self.open < self.most:
            self.loop.add_reader(self.listener, self._accept)
            self.listening = True

    def _pause(self) -> None:
        if self.listening:
            self.loop.remove_reader(self.listener)
        self.listening = False

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            if self.open >= self.most:
                self._pause()  # until one is closed; the system has a queue for those who come
                return
            try:
                connection, _ = self.listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no file descriptors, no memory, no network
                self._rest(error)
                return
            self._begin(connection)

    def _rest(self, error: OSError) -> None:
        """Accept nothing for a moment."""
        if self.loop.time() >= self.quiet_until:
            log.error("connections cannot be accepted at present: %s", error.strerror or error)
            self.quiet_until = self.loop.time() + QUIET
        self._pause()
        self.loop.call_later(PAUSE, self._listen)

    def _begin(self, connection: socket.socket) -> None:
        self.open += 1
        connection.setblocking(False)
        task = self.loop.create_task(self.loop.connect_accepted_socket(self._counted, connection))
        self.opening.add(task)
        task.add_done_callback(self._begun)

    def _begun(self, task: "asyncio.Task[Any]") -> None:
        self.opening.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, OSError):  # which only says that the client has left already
            log.error("a connection could not be served", exc_info=error)
        if task.cancelled() or error is not None:
            self._ended()

    def _counted(self) -> Patient:
        protocol = self.protocol()
        protocol.ended = self._ended
        return protocol

    def _ended(self) -> None:
        self.open -= 1
        self._listen()


def room_for_connections() -> tuple[int, int]:
    """How many connections are served at once, and how many more are refused politely: within the limit on open files,
    which is raised if it may be."""
    wanted = bounds.CONNECTIONS + Patient.spare + RESERVED_FILES + _open_files()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):
            raised = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    room = wanted if soft == resource.RLIM_INFINITY else soft
    return shared_room(room - RESERVED_FILES - _open_files())


def shared_room(room: int) -> tuple[int, int]:
    """This many files shared among connections that are served and those that are refused.

    >>> shared_room(5_000), shared_room(600), shared_room(-3)
    ((1000, 200), (500, 100), (2, 1))
    """
    spare = max(1, min(Patient.spare, room // 6))
    return max(2, min(bounds.CONNECTIONS, room - spare)), spare


def _open_files() -> int:
    try:
        return sum(1 for _ in Path("/dev/fd").iterdir())
    except OSError:
        return 32
