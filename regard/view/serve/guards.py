"""Who may ask, and how: each guard is an ASGI app around another, and refuses before anything is looked at.

From the outside in: headers of every answer, the Host, CORS if asked for, the Origin, the token, the body.
"""

import asyncio
import hmac
import ipaddress
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from starlette.middleware.cors import CORSMiddleware

from regard.view.serve import bounds
from regard.view.serve.errors import Refusal, answer, catch_all

Scope = Any
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
OPEN = ("/health", "/", "/favicon.ico")
OPEN_FOLDERS = ("/page/", "/labs/")
"""what needs no token: the page itself, which a browser asks for without one, and whether the server lives"""
LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Rules:
    """Whom the server answers."""

    hosts: Collection[str]
    """its names, as a Host header may say them, without ports"""
    any_address: bool = False
    """whether an address in numbers is as good as a name: where it is bound to all of them"""
    cors: Sequence[str] = ()
    """pages elsewhere that may ask, by origin"""
    token: str | None = None


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what is bound there.

    >>> [is_loopback(each) for each in ("localhost", "127.0.0.2", "::1", "0.0.0.0", "example.org")]
    [True, True, True, False, False]
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def rules(host: str, names: Sequence[str], cors: Sequence[str], token: str | None) -> Rules:
    """The rules of a server that is bound to `host`, and goes by these other names too."""
    if not is_loopback(host) and not token:
        raise ValueError(
            f"--host {host} can be reached by others: give a token, --token or REGARD_TOKEN in the environment"
        )
    for origin in cors:
        parts = urlsplit(origin)
        if parts.scheme not in ("http", "https") or f"{parts.scheme}://{parts.netloc}" != origin:
            raise ValueError(f"--cors {origin} is no origin: write it as https://example.org, without a path")
    known = {each.lower().strip("[]") for each in (*LOOPBACK, host, *names)}
    return Rules(frozenset(known), host in ("0.0.0.0", "::"), tuple(cors), token)


def guarded(app: App, rules: Rules) -> App:
    """The app behind all guards."""
    inner: App = with_body(catch_all(app))
    inner = with_token(inner, rules)
    inner = from_here(inner, rules)
    if rules.cors:
        inner = CORSMiddleware(
            inner,
            allow_origins=rules.cors,
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", "content-type"],
        )
    return with_headers(by_its_name(inner, rules))


def with_headers(app: App) -> App:
    """Every answer with the headers that keep browsers from harm."""

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Any) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *HEADERS]}
            await send(message)

        await app(scope, receive, sending if scope["type"] == "http" else send)

    return guard


def by_its_name(app: App, rules: Rules) -> App:
    """Only what was asked of this server by one of its names: a page elsewhere may call it by its own."""

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            hosts = _headers(scope, b"host")
            if len(hosts) != 1 or not _known(hosts[0], rules):
                await _refuse(scope, send, 403, "this server does not go by that name: see regard serve --allow-host")
                return
        await app(scope, receive, send)

    return guard


def from_here(app: App, rules: Rules) -> App:
    """Only what no page asked, or one of this server's own, or one that was allowed."""

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        for origin in _headers(scope, b"origin") if scope["type"] == "http" else ():
            own = urlsplit(origin).netloc.lower() == _headers(scope, b"host")[0].lower() if "://" in origin else False
            if not own and origin not in rules.cors:
                await _refuse(scope, send, 403, "a page from elsewhere may not ask: see regard serve --cors")
                return
        await app(scope, receive, send)

    return guard


def with_token(app: App, rules: Rules) -> App:
    """Only who knows the token, if there is one."""

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and rules.token is not None and not _is_open(scope["path"]):
            given = _headers(scope, b"authorization")
            kind, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
            right = hmac.compare_digest(token.strip().encode(), rules.token.encode())
            if kind.lower() != "bearer" or not right:
                await _refuse(scope, send, 401, "a token is needed: Authorization: Bearer TOKEN")
                return
        await app(scope, receive, send)

    return guard


def with_body(app: App) -> App:
    """The body is there whole before anyone looks at it, and is neither large nor slow."""

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        try:
            async with asyncio.timeout(bounds.SLOW):
                body = await _whole(scope, receive)
        except TimeoutError:
            await _refuse(scope, send, 408, f"the body did not come within {bounds.SLOW:g} s", close=True)
            return
        if body is None:
            await _refuse_the_rest(scope, receive, send)
            return
        read = False

        async def again() -> Any:
            nonlocal read
            if read:
                return await receive()
            read = True
            return {"type": "http.request", "body": body, "more_body": False}

        await app(scope, again, send)

    return guard


async def _whole(scope: Scope, receive: Receive) -> bytes | None:
    """The body; None if it is too large, which its length may tell before it comes."""
    told = _headers(scope, b"content-length")
    if told and told[0].isdigit() and int(told[0][:20]) > bounds.BODY:
        return None
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > bounds.BODY:
            return None
        if not message.get("more_body"):  # a client that has left sends no more either
            return bytes(body)


def _known(host: str, rules: Rules) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    if name in rules.hosts:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return rules.any_address


def _is_open(path: str) -> bool:
    return path in OPEN or path.startswith(OPEN_FOLDERS)


def _headers(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


async def _refuse(scope: Scope, send: Send, status: int, text: str, close: bool = False) -> None:
    response = answer(scope["path"], Refusal(status, text))
    if status == 401:
        response.headers["www-authenticate"] = "Bearer"
    if close:
        response.headers["connection"] = "close"
    await response(scope, _nothing, send)


async def _refuse_the_rest(scope: Scope, receive: Receive, send: Send) -> None:
    """413, and the connection is closed when the client has had time to read that: a close before it has sent all would
    take the answer with it."""
    response = answer(scope["path"], Refusal(413, f"the body has more than {bounds.BODY:,} bytes"))
    response.headers["connection"] = "close"
    await send({"type": "http.response.start", "status": 413, "headers": response.raw_headers})
    await send({"type": "http.response.body", "body": response.body, "more_body": True})
    left = bounds.LINGER * bounds.BODY
    with suppress(TimeoutError):
        async with asyncio.timeout(bounds.LINGER):
            while left > 0 and (message := await receive()).get("more_body"):
                left -= len(message["body"])
    await send({"type": "http.response.body", "body": b""})


async def _nothing() -> Any:
    return {"type": "http.disconnect"}
