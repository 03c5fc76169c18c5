"""Random invalid requests: mostly valid, so that they get far, with one or a few errors."""

import json
from collections.abc import Iterator
from random import Random
from typing import Any

Request = tuple[str, str, bytes | None, dict[str, str]]

TEXTS = (
    *("Le chat dort.", "", " ", "\x00", "\ud800", "\U0001f600" * 5, "<script>alert(1)</script>", "a" * 300, "\r\n\r\n"),
    *("../../etc/passwd", "%s%n", "‮", "é" * 40, "</s>", "<pad>", "' OR 1=1 --", "{{7*7}}", "\u2028", "nan", "-1"),
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 16, 17, 64, 65, 2**31, 2**63, 2**64, 10**30, -(10**30), 0.5, 1e308, -0.0),
    *(float("nan"), float("inf"), [], {}, [[]], [None], {"a": {"b": []}}, ["a"] * 70, "auto", "fr", "en", "noise"),
)
BODIES: dict[str, dict[str, Any]] = {
    "/api/translate": {"text": "Le chat dort.", "beam": 2, "n_best": 1, "model": "petit-fr-en"},
    "/api/attend": {"source": "Le chat dort.", "target": "The cat sleeps.", "model": "petit-fr-en", "beginning": []},
    "/api/head": {
        "source": "Le chat dort.",
        "model": "petit-fr-en",
        "head": {"kind": "cross", "layer": 0, "head": 1},
        "written": [5, 6, 0],
        "changes": {"hidden": [1]},
    },
    "/api/effects": {"source": "Le chat dort.", "target": "The cat sleeps.", "model": "petit-fr-en"},
    "/api/next": {"text": "Once", "temperature": 1, "top_k": 3, "top_p": 0.9, "show": 5},
    "/api/classify": {"texts": ["Le chat dort."], "model": "classifier"},
    "/api/tag": {"texts": ["Le chat dort."], "model": "tagger"},
    "/api/fill": {"text": "Le chat <mask>.", "k": 3, "model": "masked"},
    "/v1/embeddings": {"model": "noise", "input": ["Le chat dort."], "encoding_format": "float", "dimensions": 32},
    "/api/tokens": {"text": "Once upon a time", "model": "noise"},
    "/api/layers": {"source": "Le chat dort.", "target": "The cat sleeps.", "model": "petit-fr-en"},
    "/api/attention-page": {"source": "Oui.", "target": "Yes.", "kind": "cross", "layer": 1, "head": 0},
    "/api/run": {"run": "first"},
    "/api/frame": {"run": "first", "step": 40, "source": "Le chat dort.", "target": "The cat sleeps."},
    "/translate": {"q": "Le chat dort.", "source": "fr", "target": "en", "format": "text", "alternatives": 1},
    "/v1/completions": {
        "model": "noise",
        "prompt": "Once",
        "max_tokens": 3,
        "temperature": 1,
        "n": 2,
        "stop": ["x"],
        "seed": 1,
    },
}
PATHS = (
    "/health",
    "/api/models",
    "/api/labs",
    "/api/runs",
    "/languages",
    "/v1/models",
    "/v1/models/x",
    "/labs/heads.png",
    "/page/attention_map.js",
    "/",
)
KINDS = ("application/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain", "")


def requests(draw: Random, count: int) -> Iterator[Request]:
    """This many random requests, reproducible from the state of `draw`."""
    for _ in range(count):
        yield draw.choice((_value, _value, _value, _bytes, _path, _form))(draw)


def _value(draw: Random) -> Request:
    """A valid body with some invalid values or names."""
    path = draw.choice(list(BODIES))
    body = dict(BODIES[path])
    for _ in range(draw.randint(1, 2)):
        value = draw.choice((draw.choice(TEXTS), draw.choice(VALUES), [draw.choice(TEXTS)] * draw.randint(0, 3)))
        body[draw.choice((*body, "extra"))] = value
    if draw.random() < 0.2:
        body.pop(draw.choice(list(body)))
    return "POST", path, json.dumps(body).encode(), {"content_type": "application/json"}


def _bytes(draw: Random) -> Request:
    """A valid body with bytes changed, removed or inserted."""
    path = draw.choice(list(BODIES))
    body = bytearray(json.dumps(BODIES[path]).encode())
    for _ in range(draw.randint(1, 4)):
        position = draw.randrange(len(body) + 1)
        body[position : position + draw.choice((0, 1, 5))] = draw.randbytes(draw.randint(0, 3))
    return "POST", path, bytes(body), {"content_type": draw.choice(KINDS[:1] * 5 + KINDS)}


def _path(draw: Random) -> Request:
    """A valid or invalid path with a valid or invalid method."""
    letters = "".join(
        draw.choice("ab/.%2fe?&=#-_~0 \\<>\"'é".replace(" ", "").replace("é", "")) for _ in range(draw.randint(0, 12))
    )
    path = draw.choice((*PATHS, *BODIES)) + draw.choice(("", "", letters))
    return draw.choice(("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE")), path, None, {}


def _form(draw: Random) -> Request:
    """LibreTranslate's form, valid or broken."""
    pieces = [
        b"q=a",
        b"source=fr",
        b"target=en",
        b"alternatives=2",
        b"format=html",
        b"q=%zz",
        b"%00=%ff",
        b"&&",
        b"=",
        b"x" * 50,
    ]
    draw.shuffle(pieces)
    body = b"&".join(pieces[: draw.randint(0, len(pieces))])
    if draw.random() < 0.5:
        return "POST", "/translate", body, {"content_type": KINDS[1]}
    part = b'--x\r\nContent-Disposition: form-data; name="q"\r\n\r\n' + body + draw.randbytes(3) + b"\r\n--x--"
    return "POST", "/translate", part[draw.choice((0, 0, 5)) :], {"content_type": KINDS[2]}
