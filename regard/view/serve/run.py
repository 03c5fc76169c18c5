"""Listening: a socket, uvicorn, and an end that lets requests finish."""

import asyncio
import contextlib
import ctypes
import logging
import resource
import signal
import socket
import sys
import webbrowser
from collections.abc import Callable, Iterator

import uvicorn

from regard.view.serve import bounds
from regard.view.serve.guards import App
from regard.view.serve.sockets import Patient

BACKLOG = 1_024
M_ARENA_MAX = -8
"""by which glibc's mallopt knows the number of heaps"""


class Listening(uvicorn.Server):
    """uvicorn's server, which tells when it answers, and when its patience with requests has come to an end."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], object], late: Callable[[], object]) -> None:
        super().__init__(config)
        self.ready, self.late = ready, late

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer."""
        await super().startup(sockets)
        if self.started:
            self.ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let requests finish; those that take too long are refused, which is an answer too."""
        asyncio.get_running_loop().call_later(bounds.DRAIN, self.late)
        await super().shutdown(sockets)


def bind(host: str, port: int) -> socket.socket:
    """A socket to listen on; a ValueError if it is taken or no place of this machine."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise ValueError(f"{host}:{port} cannot be listened on ({why}): --port 0 takes any that is free") from None
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

    _room_for_connections()
    _one_heap()
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    sys.setswitchinterval(0.001)  # the event loop is not to wait long for a thread that computes
    with _quiet_end():
        server(app, begun, late).run(sockets=[listener])


def _room_for_connections() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = Patient.most + Patient.spare + 100
    if soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard < 0 else min(wanted, hard), hard))


def _one_heap() -> None:
    """Have all threads share a heap, where the C library allows it: each one's own would keep the most it ever held."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


@contextlib.contextmanager
def _quiet_end() -> Iterator[None]:
    """uvicorn raises a signal again when it has ended: by then it has done what it should."""
    signals = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(each, lambda *_: None) for each in signals]
    try:
        yield
    finally:
        for each, handler in zip(signals, before, strict=True):
            signal.signal(each, handler)
