"""Who may ask, and how: each guard is an ASGI app around another, and refuses before anything is looked at.

From the outside in: headers of every answer, HEAD as GET without its body, the Host, CORS if asked for, the Origin, the
token, the body, compression.
"""

import asyncio
import hmac
import ipaddress
import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from starlette.middleware.cors import CORSMiddleware

from regard.errors import RegardError
from regard.server import limits as bounds
from regard.server.compression import compressed
from regard.server.http_errors import HEADERS, Refusal, answer, catch_all

Scope = Any
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN = ("/health", "/", "/favicon.ico")
OPEN_FOLDERS = ("/page/", "/labs/")
"""what needs no token: the page itself, which a browser asks for without one, and whether the server lives"""
LOOPBACK = ("localhost", "127.0.0.1", "::1")
AUTHORITY = re.compile(r"([a-z0-9_](?:[a-z0-9_.-]*)|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?", re.ASCII | re.IGNORECASE)
"""A host, with an IPv6 address in brackets, and its port if any. User information and paths do not match."""
DEFAULT_PORTS = {"http": 80, "https": 443}


class Authority(NamedTuple):
    """A host in lower case, an address without brackets and in its short form; and its port, if it was given."""

    host: str
    port: int | None


def parse_authority(text: str) -> Authority | None:
    """The host and port that a Host header names; None if it is anything else.

    >>> parse_authority("[0:0::1]:7878"), parse_authority("LocalHost")
    (Authority(host='::1', port=7878), Authority(host='localhost', port=None))
    >>> [parse_authority(each) for each in ("evil@127.0.0.1", "[::1", "a:99999", "", "a/b")]
    [None, None, None, None, None]
    """
    match = AUTHORITY.fullmatch(text)
    if match is None:
        return None
    host, port = match[1].lower(), None if match[2] is None else int(match[2])
    if port is not None and port > 65_535:
        return None
    if host.startswith("["):
        try:
            host = str(ipaddress.IPv6Address(host[1:-1]))
        except ValueError:
            return None
    return Authority(host, port)


def parse_origin(text: str) -> tuple[str, Authority] | None:
    """The scheme, http or https, and the authority of an Origin header; None if it is anything else.

    >>> parse_origin("http://[::1]:80")
    ('http', Authority(host='::1', port=80))
    >>> [parse_origin(each) for each in ("null", "http://[", "https://a/path", "file://a")]
    [None, None, None, None]
    """
    scheme, separator, rest = text.partition("://")
    authority = parse_authority(rest)
    if not separator or scheme.lower() not in DEFAULT_PORTS or authority is None:
        return None
    return scheme.lower(), authority


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
        raise RegardError(
            f"--host {host} can be reached by others: give a token, --token or REGARD_TOKEN in the environment"
        )
    for origin in cors:
        if parse_origin(origin) is None:
            raise RegardError(f"--cors {origin} is not a valid origin: write it as https://example.org, without a path")
    if token is not None and (token != token.strip() or not token.isprintable()):
        raise RegardError("the token begins or ends with a space, or holds characters that a header cannot carry")
    known = {_host_name(each) for each in (*LOOPBACK, host, *names)}
    return Rules(frozenset(known), host in ("0.0.0.0", "::"), tuple(cors), token)


def _host_name(text: str) -> str:
    """A name of this server as it is compared with Host headers."""
    bare = text.strip("[]")
    parsed = parse_authority(f"[{bare}]" if ":" in bare else bare)
    if parsed is None or parsed.port is not None:
        raise RegardError(f"{text} is not a valid host: write a name or an address, without a scheme or a port")
    return parsed.host


def guarded(app: App, rules: Rules) -> App:
    """The app behind all guards."""
    inner: App = with_body(compressed(app))
    inner = from_here(with_token(inner, rules), rules)
    if rules.cors:
        inner = CORSMiddleware(
            catch_all(inner),  # a page that may ask may also read that something went wrong
            allow_origins=rules.cors,
            allow_methods=["GET", "HEAD", "POST"],
            allow_headers=["authorization", "content-type"],
        )
    return with_headers(catch_all(with_head(by_its_name(inner, rules))))


def with_headers(app: App) -> App:
    """Every answer with the headers that keep browsers from harm."""

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Any) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *HEADERS]}
            await send(message)

        await app(scope, receive, sending if scope["type"] == "http" else send)

    return guard


def with_head(app: App) -> App:
    """Answer HEAD wherever GET is answered: the same status and headers without the body."""

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await app(scope, receive, send)
            return

        async def without_body(message: Any) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        await app({**scope, "method": "GET"}, receive, without_body)

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
            if origin not in rules.cors and not _same_origin(origin, _headers(scope, b"host")[0]):
                await _refuse(scope, send, 403, "a page from elsewhere may not ask: see regard serve --cors")
                return
        await app(scope, receive, send)

    return guard


def with_token(app: App, rules: Rules) -> App:
    """Only who knows the token, if there is one. What is not ASCII in it is sent as UTF-8."""

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and rules.token is not None and not _is_open(scope["path"]):
            given = [value for key, value in scope["headers"] if key == b"authorization"]
            kind, _, token = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
            right = hmac.compare_digest(token.strip(), rules.token.encode())
            if kind.lower() != b"bearer" or not right:
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
            body = await _whole(scope, receive)
        except TimeoutError:
            slow = f"the body came at less than {bounds.RATE:,} bytes a second for {bounds.SLOW:g} s"
            await _refuse(scope, send, 408, slow, close=True)
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
    """The body; None if it is too large, which its length may tell before it comes.

    A TimeoutError if for `SLOW` seconds it came at less than `RATE`: one that comes steadily may take its time.
    """
    told = _headers(scope, b"content-length")
    if told and told[0].isdigit() and int(told[0][:20]) > bounds.BODY:
        return None
    body = bytearray()
    while True:
        enough = len(body) + bounds.RATE * bounds.SLOW
        async with asyncio.timeout(bounds.SLOW):
            while len(body) < enough:
                message = await receive()
                body += message.get("body", b"")
                if len(body) > bounds.BODY:
                    return None
                if not message.get("more_body"):  # a client that has left sends no more either
                    return bytes(body)


def _known(host: str, rules: Rules) -> bool:
    parsed = parse_authority(host)
    if parsed is None:
        return False
    if parsed.host in rules.hosts:
        return True
    try:
        ipaddress.ip_address(parsed.host)
    except ValueError:
        return False
    return rules.any_address


def _same_origin(origin: str, host: str) -> bool:
    """Whether an Origin is the one that this Host header stands for."""
    asking, asked = parse_origin(origin), parse_authority(host)
    if asking is None or asked is None:
        return False
    scheme, authority = asking
    ports = [DEFAULT_PORTS[scheme] if each.port is None else each.port for each in (authority, asked)]
    return authority.host == asked.host and ports[0] == ports[1]


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
