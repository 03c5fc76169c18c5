"""Guards: ASGI apps that wrap the app and reject a request before the app sees it.

From the outside in: security headers, HEAD requests, the Host header, CORS if enabled, the Origin header, the token,
the body's size and speed, compression.
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
from regard.server import limits
from regard.server.compression import compress_responses
from regard.server.http_errors import SECURITY_HEADERS, HttpError, catch_exceptions, error_response

Scope = Any
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

PUBLIC_PATHS = ("/health", "/", "/favicon.ico")
"""Paths that need no token: a browser requests the page without one."""
PUBLIC_FOLDERS = ("/page/", "/labs/")
"""Folders whose files need no token."""
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")
AUTHORITY_PATTERN = re.compile(
    r"([a-z0-9_](?:[a-z0-9_.-]*)|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?", re.ASCII | re.IGNORECASE
)
"""A host, with an IPv6 address in brackets, and an optional port. User information and paths do not match."""
DEFAULT_PORTS = {"http": 80, "https": 443}


class Authority(NamedTuple):
    """A host in lower case, and its port if one was given. IPv6 addresses are in short form without brackets."""

    host: str
    port: int | None


def parse_authority(text: str) -> Authority | None:
    """The host and port of a Host header, or None if it is invalid.

    >>> parse_authority("[0:0::1]:7878"), parse_authority("LocalHost")
    (Authority(host='::1', port=7878), Authority(host='localhost', port=None))
    >>> [parse_authority(text) for text in ("evil@127.0.0.1", "[::1", "a:99999", "", "a/b")]
    [None, None, None, None, None]
    """
    match = AUTHORITY_PATTERN.fullmatch(text)
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
    """The scheme (http or https) and the authority of an Origin header, or None if it is invalid.

    >>> parse_origin("http://[::1]:80")
    ('http', Authority(host='::1', port=80))
    >>> [parse_origin(text) for text in ("null", "http://[", "https://a/path", "file://a")]
    [None, None, None, None]
    """
    scheme, separator, rest = text.partition("://")
    authority = parse_authority(rest)
    if not separator or scheme.lower() not in DEFAULT_PORTS or authority is None:
        return None
    return scheme.lower(), authority


@dataclass(frozen=True)
class AccessRules:
    """Which requests the server accepts."""

    hosts: Collection[str]
    """Host names, without ports, that a Host header may contain."""
    any_address: bool = False
    """Whether a Host header may contain any IP address: true if the server listens on all addresses."""
    cors: Sequence[str] = ()
    """Origins of other websites whose pages may send requests."""
    token: str | None = None
    """Token that clients must send, if any."""


def is_loopback(host: str) -> bool:
    """Whether a server on this host can be reached only from this machine.

    >>> [is_loopback(host) for host in ("localhost", "127.0.0.2", "::1", "0.0.0.0", "example.org")]
    [True, True, True, False, False]
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def access_rules(host: str, names: Sequence[str], cors: Sequence[str], token: str | None) -> AccessRules:
    """The rules of a server that listens on `host` and has these additional host names."""
    if not is_loopback(host) and not token:
        raise RegardError(f"--host {host} can be reached from other machines: set a token with --token or REGARD_TOKEN")
    for origin in cors:
        if parse_origin(origin) is None:
            raise RegardError(f"--cors {origin} is not a valid origin: write it as https://example.org, without a path")
    if token is not None and (token != token.strip() or not token.isprintable()):
        raise RegardError("the token starts or ends with a space, or contains a character that a header cannot contain")
    hosts = {_normalised_host(name) for name in (*LOOPBACK_HOSTS, host, *names)}
    return AccessRules(frozenset(hosts), host in ("0.0.0.0", "::"), tuple(cors), token)


def _normalised_host(text: str) -> str:
    """A host name as it is compared with Host headers."""
    bare = text.strip("[]")
    parsed = parse_authority(f"[{bare}]" if ":" in bare else bare)
    if parsed is None or parsed.port is not None:
        raise RegardError(f"{text} is not a valid host: write a name or an address, without a scheme or a port")
    return parsed.host


def guard_app(app: App, rules: AccessRules) -> App:
    """The app wrapped in all guards."""
    guarded: App = limit_body(compress_responses(app))
    guarded = check_origin(check_token(guarded, rules), rules)
    if rules.cors:
        guarded = CORSMiddleware(
            catch_exceptions(guarded),  # inside, so that a 500 has CORS headers too
            allow_origins=rules.cors,
            allow_methods=["GET", "HEAD", "POST"],
            allow_headers=["authorization", "content-type"],
        )
    return add_security_headers(catch_exceptions(answer_head(check_host(guarded, rules))))


def add_security_headers(app: App) -> App:
    """Add the security headers to every response."""

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        async def add_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *SECURITY_HEADERS]}
            await send(message)

        await app(scope, receive, add_headers if scope["type"] == "http" else send)

    return guard


def answer_head(app: App) -> App:
    """Answer HEAD like GET: the same status and headers, without the body."""

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await app(scope, receive, send)
            return

        async def drop_body(message: Any) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        await app({**scope, "method": "GET"}, receive, drop_body)

    return guard


def check_host(app: App, rules: AccessRules) -> App:
    """Reject a request whose Host header is not one of the server's names, which prevents DNS rebinding."""

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            hosts = _headers(scope, b"host")
            if len(hosts) != 1 or not _is_allowed_host(hosts[0], rules):
                message = "the Host header is not a name of this server: allow it with regard serve --allow-host"
                await _reject(scope, send, HttpError(403, message))
                return
        await app(scope, receive, send)

    return guard


def check_origin(app: App, rules: AccessRules) -> App:
    """Reject a request from a page of another website, unless its origin is allowed."""

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        for origin in _headers(scope, b"origin") if scope["type"] == "http" else ():
            if origin not in rules.cors and not _is_same_origin(origin, _headers(scope, b"host")[0]):
                message = "requests from this origin are not allowed: allow it with regard serve --cors"
                await _reject(scope, send, HttpError(403, message))
                return
        await app(scope, receive, send)

    return guard


def check_token(app: App, rules: AccessRules) -> App:
    """Reject a request without the token, if the server has one. Non-ASCII characters are expected as UTF-8."""

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and rules.token is not None and not _is_public(scope["path"]):
            values = [value for key, value in scope["headers"] if key == b"authorization"]
            kind, _, token = values[0].partition(b" ") if len(values) == 1 else (b"", b"", b"")
            is_right = hmac.compare_digest(token.strip(), rules.token.encode())
            if kind.lower() != b"bearer" or not is_right:
                error = HttpError(401, "a token is required: send the header Authorization: Bearer TOKEN")
                await _reject(scope, send, error, {"www-authenticate": "Bearer"})
                return
        await app(scope, receive, send)

    return guard


def limit_body(app: App) -> App:
    """Read the complete body before the app runs, and reject a body that is too large or too slow."""

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        try:
            body = await _read_body(scope, receive)
        except TimeoutError:
            rate, seconds = limits.MIN_BYTES_PER_SECOND, limits.PROGRESS_SECONDS
            message = f"the body arrived at less than {rate:,} bytes per second for {seconds:g} s"
            await _reject(scope, send, HttpError(408, message), {"connection": "close"})
            return
        if body is None:
            await _reject_large_body(scope, receive, send)
            return
        delivered = False

        async def deliver_body() -> Any:
            nonlocal delivered
            if delivered:
                return await receive()
            delivered = True
            return {"type": "http.request", "body": body, "more_body": False}

        await app(scope, deliver_body, send)

    return guard


async def _read_body(scope: Scope, receive: Receive) -> bytes | None:
    """The body, or None if it is too large, which Content-Length may reveal before it arrives.

    Raises TimeoutError if it arrives at less than `MIN_BYTES_PER_SECOND` for `PROGRESS_SECONDS`.
    """
    lengths = _headers(scope, b"content-length")
    if lengths and lengths[0].isdigit() and int(lengths[0][:20]) > limits.MAX_BODY_BYTES:
        return None
    body = bytearray()
    while True:
        next_check = len(body) + limits.MIN_BYTES_PER_SECOND * limits.PROGRESS_SECONDS
        async with asyncio.timeout(limits.PROGRESS_SECONDS):
            while len(body) < next_check:
                message = await receive()
                body += message.get("body", b"")
                if len(body) > limits.MAX_BODY_BYTES:
                    return None
                if not message.get("more_body"):  # also if the client has disconnected
                    return bytes(body)


def _is_allowed_host(host: str, rules: AccessRules) -> bool:
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


def _is_same_origin(origin: str, host: str) -> bool:
    """Whether an Origin header names the same host and port as a Host header."""
    parsed_origin, host_authority = parse_origin(origin), parse_authority(host)
    if parsed_origin is None or host_authority is None:
        return False
    scheme, authority = parsed_origin
    default = DEFAULT_PORTS[scheme]
    ports = [default if port is None else port for port in (authority.port, host_authority.port)]
    return authority.host == host_authority.host and ports[0] == ports[1]


def _is_public(path: str) -> bool:
    return path in PUBLIC_PATHS or path.startswith(PUBLIC_FOLDERS)


def _headers(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


async def _reject(scope: Scope, send: Send, error: HttpError, headers: dict[str, str] | None = None) -> None:
    response = error_response(scope["path"], error)
    response.headers.update(headers or {})
    await response(scope, _receive_disconnect, send)


async def _reject_large_body(scope: Scope, receive: Receive, send: Send) -> None:
    """Respond with 413, and close the connection once the client has had time to read the response.

    Closing while the client is still sending would discard the response.
    """
    response = error_response(scope["path"], HttpError(413, f"the body exceeds {limits.MAX_BODY_BYTES:,} bytes"))
    response.headers["connection"] = "close"
    await send({"type": "http.response.start", "status": 413, "headers": response.raw_headers})
    await send({"type": "http.response.body", "body": response.body, "more_body": True})
    remaining = limits.DISCARD_SECONDS * limits.MAX_BODY_BYTES
    with suppress(TimeoutError):
        async with asyncio.timeout(limits.DISCARD_SECONDS):
            while remaining > 0 and (message := await receive()).get("more_body"):
                remaining -= len(message["body"])
    await send({"type": "http.response.body", "body": b""})


async def _receive_disconnect() -> Any:
    return {"type": "http.disconnect"}
