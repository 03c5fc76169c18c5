"""Listening: the socket, uvicorn, and a shutdown that lets requests finish."""

import asyncio
import contextlib
import ctypes
import logging
import signal
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable, Iterator

import uvicorn

from regard.errors import RegardError
from regard.server import limits
from regard.server.connections import MAX_REJECTING_CONNECTIONS, Acceptor, TimeoutProtocol, connection_limits
from regard.server.guards import App

SOCKET_BACKLOG = 1_024
"""Number of connections that the system queues while none is accepted."""
M_ARENA_MAX = -8
"""Parameter of glibc's mallopt that limits the number of heaps."""
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
"""Signals that stop the server."""


class HttpServer(uvicorn.Server):
    """uvicorn's server with two callbacks: when it accepts connections, and when running requests must be aborted."""

    def __init__(
        self, config: uvicorn.Config, on_ready: Callable[[], object], on_shutdown_timeout: Callable[[], object]
    ) -> None:
        super().__init__(config)
        self.on_ready, self.on_shutdown_timeout = on_ready, on_shutdown_timeout
        self.acceptors: list[Acceptor] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to serve. `Acceptor` accepts the connections instead of asyncio."""
        await super().startup([])
        if self.started:
            served = TimeoutProtocol.max_connections + TimeoutProtocol.overflow_connections
            max_open = served + MAX_REJECTING_CONNECTIONS
            self.acceptors = [Acceptor(listener, self._create_protocol, max_open) for listener in sockets or ()]
            self.on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let running requests finish. Those that take too long get an error response."""
        for acceptor in self.acceptors:
            acceptor.close()
        asyncio.get_running_loop().call_later(limits.SHUTDOWN_SECONDS, self.on_shutdown_timeout)
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on SIGINT and SIGTERM, unless they were ignored when the process started.

        A shell ignores SIGINT for the commands that it runs in the background.
        """
        ignored = ignored_signals()
        with super().capture_signals():
            for number in ignored:
                signal.signal(number, signal.SIG_IGN)
            yield

    def _create_protocol(self) -> TimeoutProtocol:
        return TimeoutProtocol(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens on this address. A RegardError if the address is in use or not on this machine."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=SOCKET_BACKLOG)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RegardError(f"cannot listen on {host}:{port} ({reason}): --port 0 chooses a free port") from None
    # Connections inherit this. Without it a response's body waits until the client acknowledges the headers: 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def page_url(listener: socket.socket) -> str:
    """The URL to open in a browser on this machine."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def build_server(app: App, on_ready: Callable[[], object], on_shutdown_timeout: Callable[[], object]) -> HttpServer:
    """A server that is not running yet."""
    config = uvicorn.Config(
        app,
        http=TimeoutProtocol,
        ws="none",
        loop="asyncio",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=int(limits.SHUTDOWN_SECONDS) + 2,  # 2 s to send the last responses
    )
    return HttpServer(config, on_ready, on_shutdown_timeout)


def run_server(
    app: App,
    listener: socket.socket,
    on_ready: Callable[[], object],
    on_shutdown_timeout: Callable[[], object],
    open_browser: bool = False,
) -> None:
    """Serve until SIGTERM or Ctrl-C, then let running requests finish within `SHUTDOWN_SECONDS`."""

    def ready() -> None:
        on_ready()
        if open_browser:
            webbrowser.open(page_url(listener))

    TimeoutProtocol.max_connections, TimeoutProtocol.overflow_connections = connection_limits()
    _share_one_heap()
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    sys.setswitchinterval(0.001)  # so that the event loop does not wait long for a thread that computes
    with _ignore_repeated_signal():
        build_server(app, ready, on_shutdown_timeout).run(sockets=[listener])


def _share_one_heap() -> None:
    """Have all threads share one heap where the C library supports it: a heap never shrinks below its peak."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


def ignored_signals() -> list[int]:
    """The stop signals that the process ignores. They stay ignored."""
    if threading.current_thread() is not threading.main_thread():
        return []
    return [number for number in STOP_SIGNALS if signal.getsignal(number) == signal.SIG_IGN]


@contextlib.contextmanager
def _ignore_repeated_signal() -> Iterator[None]:
    """Ignore the signal that uvicorn raises again after it has shut down."""
    ignored = ignored_signals()
    before = {number: signal.signal(number, lambda *_: None) for number in STOP_SIGNALS if number not in ignored}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
