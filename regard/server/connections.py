"""Connections that are slow, idle or too many are closed before they cost other clients anything.

uvicorn waits indefinitely for a request's headers. Here they must arrive in time, and a response must be read at a
minimum rate. uvicorn's own error responses lack the security headers, so they are replaced.
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

from regard.server import limits
from regard.server.http_errors import SECURITY_HEADERS, HttpError, error_response

log = logging.getLogger("regard.serve")
RESERVED_FILES = 64
"""Number of open files kept free for anything but connections: models, the page, a browser."""
MAX_ACCEPTS_PER_WAKEUP = 32
"""Maximum number of connections accepted before the event loop runs other tasks."""
MAX_REJECTING_CONNECTIONS = 8
"""Maximum number of connections that are open only until their rejection is sent."""
ACCEPT_PAUSE_SECONDS = 0.5
"""Pause after the system failed to accept a connection."""
ACCEPT_LOG_SECONDS = 60.0
"""Minimum time between two log lines about connections that cannot be accepted."""


class TimeoutProtocol(H11Protocol):
    """uvicorn's HTTP protocol with timeouts and a limit on connections."""

    progress_seconds: float = limits.PROGRESS_SECONDS
    min_bytes_per_second: float = limits.MIN_BYTES_PER_SECOND
    max_connections: int = limits.MAX_CONNECTIONS
    """Number of connections beyond which requests are answered with 503."""
    overflow_connections: int = 200
    """Number of connections beyond `max_connections` whose requests are still read. Further ones are closed."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.inner_app, self.app = self.app, self._reject_when_crowded
        self.read_timer: asyncio.TimerHandle | None = None
        self.write_timer: asyncio.TimerHandle | None = None
        self.on_close: Callable[[], None] | None = None
        """Called once when the connection is closed."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection, or reject it if there are too many."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # pause_writing is called for any byte that is not sent yet
        if len(self.connections) > self.max_connections + self.overflow_connections:
            self._reject(503, "too many connections")
            return
        self._start_read_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timers."""
        self._stop_read_timer()
        self._stop_write_timer()
        super().connection_lost(exc)
        if self.on_close is not None:
            self.on_close()

    def data_received(self, data: bytes) -> None:
        """Parse the data. The headers of a request must be complete in time, and so must a body that nobody reads."""
        before = self.conn.their_state
        super().data_received(data)
        if self.conn.their_state is not before:
            self._stop_read_timer()
        self._start_read_timer()

    def on_response_complete(self) -> None:
        """Limit the time for the rest of a body whose request was answered before it ended."""
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY:
            self._start_read_timer()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection, but not while the client is still reading the last response."""
        if self.transport.get_write_buffer_size():
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )
        else:
            super().timeout_keep_alive_handler()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002  # uvicorn's message
        """Reject data that is not HTTP. A response that has started is cut off."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._reject(400, "this is not a valid HTTP request")
        else:
            self.transport.abort()

    def pause_writing(self) -> None:
        """Start to check that the client keeps reading the response."""
        super().pause_writing()
        if self.write_timer is None:
            self._watch_writing(self._unread_bytes())

    def resume_writing(self) -> None:
        """Stop checking: everything has been handed to the system."""
        self._stop_write_timer()
        super().resume_writing()

    async def _reject_when_crowded(self, scope: Any, receive: Any, send: Any) -> None:
        """Run the app, or respond with 503 if there are too many connections."""
        if len(self.connections) <= self.max_connections:
            await self.inner_app(scope, receive, send)
            return
        error = HttpError(503, "too many connections: try again later", retry_after=1)
        response = error_response(scope["path"], error)
        response.headers["connection"] = "close"
        headers = [*response.raw_headers, *SECURITY_HEADERS]
        await send({"type": "http.response.start", "status": 503, "headers": headers})
        await send({"type": "http.response.body", "body": response.body})

    def _start_read_timer(self) -> None:
        """Limit the time until a request arrives, unless a request is being processed or the timer is running."""
        is_answered = self.cycle is not None and self.cycle.response_complete
        has_unread_body = is_answered and self.conn.their_state is h11.SEND_BODY
        if (self.conn.their_state is h11.IDLE or has_unread_body) and not self.transport.is_closing():
            self.read_timer = self.read_timer or self.loop.call_later(self.progress_seconds, self._read_timed_out)

    def _stop_read_timer(self) -> None:
        if self.read_timer is not None:
            self.read_timer.cancel()
        self.read_timer = None

    def _stop_write_timer(self) -> None:
        if self.write_timer is not None:
            self.write_timer.cancel()
        self.write_timer = None

    def _read_timed_out(self) -> None:
        self.read_timer = None
        if self.conn.their_state is h11.IDLE:
            self._reject(408, "the request's headers did not arrive in time")
        else:
            self.transport.close()

    def _watch_writing(self, unread: int) -> None:
        """Check after a while that the client has read enough of the `unread` bytes."""

        def check() -> None:
            still_unread = self._unread_bytes()
            if unread - still_unread < self.min_bytes_per_second * self.progress_seconds:
                self._abort()
            else:
                self._watch_writing(still_unread)

        self.write_timer = self.loop.call_later(self.progress_seconds, check)

    def _abort(self) -> None:
        """Close the connection and have the system discard what the client has not read."""
        with suppress(OSError, AttributeError):
            connection = self.transport.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def _unread_bytes(self) -> int:
        """Number of written bytes that the client has not received: those buffered here and in the system."""
        in_system = 0
        with suppress(OSError, AttributeError):
            connection = self.transport.get_extra_info("socket")
            (in_system,) = struct.unpack("i", fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, b"\0" * 4))
        return self.transport.get_write_buffer_size() + in_system

    def _reject(self, status: int, message: str) -> None:
        if not self.transport.is_closing():
            self.transport.write(raw_error_response(status, message))
            self.transport.close()


def raw_error_response(status: int, message: str) -> bytes:
    """The bytes of an error response with the security headers. The connection is closed after it."""
    body = json.dumps({"error": message}).encode()
    headers = (
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),
        *SECURITY_HEADERS,
    )
    head = b"".join(b"%s: %s\r\n" % header for header in headers)
    return b"HTTP/1.1 %d %s\r\n%s\r\n%s" % (status, HTTPStatus(status).phrase.encode(), head, body)


class Acceptor:
    """Accepts connections, and pauses while the maximum number is open.

    asyncio's own loop keeps retrying when the process has no file descriptors left, and logs every failure.
    """

    def __init__(self, listener: socket.socket, protocol: Callable[[], TimeoutProtocol], max_open: int) -> None:
        self.listener, self.protocol, self.max_open = listener, protocol, max_open
        self.loop = asyncio.get_running_loop()
        self.opening: set[asyncio.Task[Any]] = set()
        self.open = 0
        """Number of accepted connections that are not closed yet."""
        self.silent_until = 0.0
        """Time until which further failures are not logged."""
        self.listening = False
        self.closed = False
        listener.setblocking(False)
        self._listen()

    def close(self) -> None:
        """Accept no more connections."""
        self.closed = True
        self._pause()

    def _listen(self) -> None:
        if not self.closed and not self.listening and self.open < self.max_open:
            self.loop.add_reader(self.listener, self._accept)
            self.listening = True

    def _pause(self) -> None:
        if self.listening:
            self.loop.remove_reader(self.listener)
        self.listening = False

    def _accept(self) -> None:
        for _ in range(MAX_ACCEPTS_PER_WAKEUP):
            if self.open >= self.max_open:
                self._pause()  # until a connection closes; meanwhile the system queues new ones
                return
            try:
                connection, _ = self.listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no file descriptors, no memory, no network
                self._pause_after(error)
                return
            self._start(connection)

    def _pause_after(self, error: OSError) -> None:
        """Log the error unless one was logged recently, and accept nothing for a moment."""
        if self.loop.time() >= self.silent_until:
            log.error("connections cannot be accepted at present: %s", error.strerror or error)
            self.silent_until = self.loop.time() + ACCEPT_LOG_SECONDS
        self._pause()
        self.loop.call_later(ACCEPT_PAUSE_SECONDS, self._listen)

    def _start(self, connection: socket.socket) -> None:
        self.open += 1
        connection.setblocking(False)
        task = self.loop.create_task(self.loop.connect_accepted_socket(self._create_protocol, connection))
        self.opening.add(task)
        task.add_done_callback(self._started)

    def _started(self, task: "asyncio.Task[Any]") -> None:
        self.opening.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, OSError):  # an OSError means that the client has disconnected
            log.error("a connection could not be served", exc_info=error)
        if task.cancelled() or error is not None:
            self._connection_closed()

    def _create_protocol(self) -> TimeoutProtocol:
        protocol = self.protocol()
        protocol.on_close = self._connection_closed
        return protocol

    def _connection_closed(self) -> None:
        self.open -= 1
        self._listen()


def connection_limits() -> tuple[int, int]:
    """How many connections to serve, and how many more to reject with a response, within the limit on open files.

    The limit on open files is raised first if the system allows it.
    """
    wanted = limits.MAX_CONNECTIONS + TimeoutProtocol.overflow_connections + RESERVED_FILES + _open_files()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):
            raised = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    max_files = wanted if soft == resource.RLIM_INFINITY else soft
    return split_connections(max_files - RESERVED_FILES - _open_files())


def split_connections(files: int) -> tuple[int, int]:
    """Divide this many files between connections that are served and those that are rejected with a response.

    >>> split_connections(5_000), split_connections(600), split_connections(-3)
    ((1000, 200), (500, 100), (2, 1))
    """
    overflow = max(1, min(TimeoutProtocol.overflow_connections, files // 6))
    return max(2, min(limits.MAX_CONNECTIONS, files - overflow)), overflow


def _open_files() -> int:
    try:
        return sum(1 for _ in Path("/dev/fd").iterdir())
    except OSError:
        return 32
