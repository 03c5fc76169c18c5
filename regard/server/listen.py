"""Listening: a socket, uvicorn, and an end that lets requests finish."""

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
from regard.server import limits as bounds
from regard.server.connections import REFUSED_AT_ONCE, Acceptor, Patient, room_for_connections
from regard.server.guards import App

BACKLOG = 1_024
M_ARENA_MAX = -8
"""by which glibc's mallopt knows the number of heaps"""
ENDING = (signal.SIGTERM, signal.SIGINT)
"""Signals that end the server."""


class Listening(uvicorn.Server):
    """uvicorn's server, which tells when it answers, and when its patience with requests has come to an end."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], object], late: Callable[[], object]) -> None:
        super().__init__(config)
        self.ready, self.late = ready, late
        self.acceptors: list[Acceptor] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer; connections are accepted by `Acceptor` and not by asyncio."""
        await super().startup([])
        if self.started:
            most = Patient.most + Patient.spare + REFUSED_AT_ONCE
            self.acceptors = [Acceptor(each, self._protocol, most) for each in sockets or ()]
            self.ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let requests finish; those that take too long are refused, which is an answer too."""
        for each in self.acceptors:
            each.close()
        asyncio.get_running_loop().call_later(bounds.DRAIN, self.late)
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """End on SIGINT and SIGTERM, unless they were ignored when the process began, as a shell does for what it runs
        in the background."""
        ignored = ignored_signals()
        with super().capture_signals():
            for number in ignored:
                signal.signal(number, signal.SIG_IGN)
            yield

    def _protocol(self) -> Patient:
        return Patient(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)


def bind(host: str, port: int) -> socket.socket:
    """A socket to listen on; a ValueError if it is taken or no place of this machine."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise RegardError(f"{host}:{port} cannot be listened on ({why}): --port 0 takes any that is free") from None
    # Connections inherit it. Else an answer's body waits for the client to have acknowledged its head: 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def address(listener: socket.socket) -> str:
    """Where to point a browser."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def server(app: App, ready: Callable[[], object], late: Callable[[], object]) -> Listening:
    """A server that is not running yet: what it calls when it answers, and when requests outlast its end."""
    config = uvicorn.Config(
        app,
        http=Patient,
        ws="none",
        loop="asyncio",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=int(bounds.DRAIN) + 2,  # for answers to be sent
    )
    return Listening(config, ready, late)


def serve(
    app: App,
    listener: socket.socket,
    ready: Callable[[], object],
    late: Callable[[], object],
    browse: bool = False,
) -> None:
    """Answer until SIGTERM or Ctrl-C, then finish what was asked, for some seconds at most."""

    def begun() -> None:
        ready()
        if browse:
            webbrowser.open(address(listener))

    Patient.most, Patient.spare = room_for_connections()
    _one_heap()
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    sys.setswitchinterval(0.001)  # the event loop is not to wait long for a thread that computes
    with _quiet_end():
        server(app, begun, late).run(sockets=[listener])


def _one_heap() -> None:
    """Have all threads share a heap, where the C library allows it: each one's own would keep the most it ever held."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


def ignored_signals() -> list[int]:
    """Which of the signals that end the server are ignored: they stay so."""
    if threading.current_thread() is not threading.main_thread():
        return []
    return [number for number in ENDING if signal.getsignal(number) == signal.SIG_IGN]


@contextlib.contextmanager
def _quiet_end() -> Iterator[None]:
    """uvicorn raises a signal again when it has ended: by then it has done what it should."""
    ignored = ignored_signals()
    before = {number: signal.signal(number, lambda *_: None) for number in ENDING if number not in ignored}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
