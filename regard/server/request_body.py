"""Bodies to requests: JSON or a form, with suspicion, and held against a shape that bounds everything."""

from email.parser import BytesParser
from email.policy import HTTP
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from fastapi import Request
from pydantic import BaseModel, BeforeValidator, Strict, ValidationError

from regard.errors import RegardError
from regard.formatting import shorten
from regard.server.http_errors import Refusal
from regard.server.limits import CHARACTERS
from regard.untrusted_files import parse_json

Shape = TypeVar("Shape", bound=BaseModel)
JSON, FORM, PARTS = "application/json", "application/x-www-form-urlencoded", "multipart/form-data"
FIELDS = 100
"""of a form"""


def _no_truth(value: object) -> object:
    if isinstance(value, bool):
        raise RegardError("a number is wanted, and this is true or false")
    return value


NUMBER = BeforeValidator(_no_truth)
"""what is meant as a number, be it in a form's text; true is none"""


def _whole(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


WHOLE = Strict(), BeforeValidator(_whole)
"""an integer as JSON means it: 5.0 is one, "5" and true are not; to stand behind a field's bounds, or the schema would
not tell them"""


async def read(request: Request, shape: type[Shape], forms: bool = False) -> Shape:
    """The body as this shape; a Refusal that says what is wrong with it."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    body = await request.body()
    if kind == JSON:
        told = _json(body)
    elif forms and kind == FORM:
        told = _form(body)
    elif forms and kind == PARTS:
        told = _parts(request.headers["content-type"], body)
    else:
        wanted = f"{JSON}, or a form" if forms else JSON
        raise Refusal(415, f"the body must be {wanted}, and its Content-Type says {shorten(kind, 100) or 'nothing'}")
    return checked(shape, told)


def checked(shape: type[Shape], told: dict[str, Any]) -> Shape:
    """These names and values as a shape."""
    try:
        return shape.model_validate(told)
    except ValidationError as error:
        raise Refusal(400, "; ".join(_sentence(each) for each in error.errors(include_url=False)[:3])) from None


def _sentence(error: Any) -> str:
    """Where and what; never the value itself, which is a stranger's."""
    place = ".".join(str(part) for part in error["loc"][:3])
    return shorten(f"{place}: {error['msg']}" if place else str(error["msg"]))


def _json(body: bytes) -> dict[str, Any]:
    try:
        return parse_json(body, Path("the body"))
    except ValueError as error:
        raise Refusal(400, shorten(str(error))) from None


def _form(body: bytes) -> dict[str, Any]:
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=FIELDS)
    except ValueError:
        raise Refusal(400, "the form is not as forms are: at most 100 fields, escaped UTF-8") from None
    return _gathered(pairs)


def _parts(content_type: str, body: bytes) -> dict[str, Any]:
    """The fields of a multipart form."""
    head = f"content-type: {content_type}\r\n\r\n".encode("latin-1", "replace")
    try:
        parts = list(BytesParser(policy=HTTP).parsebytes(head + body).iter_parts())
        if len(parts) > FIELDS:
            raise ValueError
        named = [
            (part.get_param("name", header="content-disposition"), part.get_payload(decode=True)) for part in parts
        ]
        return _gathered([(str(name), content.decode()) for name, content in named])  # type: ignore[union-attr]
    except Exception:  # the library raises all kinds of them
        raise Refusal(400, "the form's parts cannot be told from each other: at most 100, in UTF-8") from None


def _gathered(pairs: list[tuple[str, str]]) -> dict[str, Any]:
    """Each name's value, or all of them where it comes more than once."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        found[name] = (
            value if name not in found else [*([found[name]] if isinstance(found[name], str) else found[name]), value]
        )
    return found


def check_length(texts: list[str]) -> None:
    """A Refusal if the texts have too many characters in all."""
    if (count := sum(map(len, texts))) > CHARACTERS:
        raise Refusal(400, f"{count:,} characters are too many: {CHARACTERS:,} are the most of one request")


def described(schema: dict[str, Any], as_form: dict[str, Any] | None = None) -> dict[str, Any]:
    """A body of this schema in OpenAPI's words; and of another, if it may be a form."""
    kinds = {JSON: schema} | ({} if as_form is None else {FORM: as_form, PARTS: as_form})
    return {"requestBody": {"required": True, "content": {kind: {"schema": each} for kind, each in kinds.items()}}}
