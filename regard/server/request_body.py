"""Parses request bodies, JSON or forms, and validates them against a schema."""

from collections.abc import Sequence
from email.parser import BytesParser
from email.policy import HTTP
from pathlib import Path
from typing import Annotated, Any, TypeVar
from urllib.parse import parse_qsl

from fastapi import Request
from pydantic import BaseModel, BeforeValidator, Field, Strict, ValidationError

from regard.errors import RegardError
from regard.formatting import shorten
from regard.server.http_errors import HttpError
from regard.server.limits import MAX_REQUEST_CHARACTERS
from regard.untrusted_files import parse_json

RequestModel = TypeVar("RequestModel", bound=BaseModel)
JSON_TYPE = "application/json"
URLENCODED_TYPE = "application/x-www-form-urlencoded"
MULTIPART_TYPE = "multipart/form-data"
MAX_FORM_FIELDS = 100
"""Maximum number of fields in a form."""
MAX_REPORTED_ERRORS = 3
"""Maximum number of validation errors in an error message."""

TextOrEmpty = Annotated[str, Field(max_length=MAX_REQUEST_CHARACTERS)]
"""A text of a request, which may be empty."""
Text = Annotated[TextOrEmpty, Field(min_length=1)]
"""A text of a request."""


def _reject_boolean(value: object) -> object:
    if isinstance(value, bool):
        raise RegardError("expected a number, not true or false")
    return value


NOT_BOOLEAN = BeforeValidator(_reject_boolean)
"""Annotation of a number that may also be the text of a form field. Booleans are rejected."""


def _integral_float_to_int(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


JSON_INTEGER = Strict(), BeforeValidator(_integral_float_to_int)
"""Annotations of a JSON integer: 5.0 is one, "5" and true are not. They must follow a field's bounds, or the bounds
would be missing from the schema."""


async def parse_request(request: Request, model: type[RequestModel], allow_forms: bool = False) -> RequestModel:
    """The validated body. An HttpError that says what is wrong if it is invalid."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    body = await request.body()
    if content_type == JSON_TYPE:
        fields = _parse_json(body)
    elif allow_forms and content_type == URLENCODED_TYPE:
        fields = _parse_urlencoded(body)
    elif allow_forms and content_type == MULTIPART_TYPE:
        fields = _parse_multipart(request.headers["content-type"], body)
    else:
        supported = f"{JSON_TYPE} or a form" if allow_forms else JSON_TYPE
        actual = f"not {shorten(content_type, 100)}" if content_type else "and it is missing"
        raise HttpError(415, f"the Content-Type must be {supported}, {actual}")
    return _validate(model, fields)


def _validate(model: type[RequestModel], fields: dict[str, Any]) -> RequestModel:
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        errors = _of_matching_types(error.errors(include_url=False))[:MAX_REPORTED_ERRORS]
        raise HttpError(400, "; ".join(map(_describe_error, errors))) from None


def _of_matching_types(errors: Sequence[Any]) -> list[Any]:
    """The errors without those of a union's types that a value does not have, unless it has none of them."""

    def has_other_type(error: Any) -> bool:
        field, *rest = error["loc"] or ("",)
        return (
            error["type"].endswith("_type")
            and any(map(_is_union_type, rest))
            and any(other["loc"][:1] == (field,) and not other["type"].endswith("_type") for other in errors)
        )

    return [error for error in errors if not has_other_type(error)]


def _is_union_type(part: str | int) -> bool:
    """Whether a part of a location is pydantic's name of a union's type, as `constrained-str`, and no field."""
    return isinstance(part, str) and (part.startswith("constrained-") or "[" in part)


def _describe_error(error: Any) -> str:
    """The field and the problem, without the value, which is untrusted."""
    field = ".".join([str(part) for part in error["loc"] if not _is_union_type(part)][:3])
    if error["type"] == "string_too_long":
        return shorten(f"{field} has more than {error['ctx']['max_length']:,} characters")
    return shorten(f"{field}: {error['msg']}" if field else str(error["msg"]))


def _parse_json(body: bytes) -> dict[str, Any]:
    try:
        return parse_json(body, Path("the body"))
    except RegardError as error:
        raise HttpError(400, shorten(str(error))) from None


def _parse_urlencoded(body: bytes) -> dict[str, Any]:
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MAX_FORM_FIELDS)
    except ValueError:
        raise HttpError(400, f"the form is invalid: send at most {MAX_FORM_FIELDS} fields in UTF-8") from None
    return _collect_fields(pairs)


def _parse_multipart(content_type: str, body: bytes) -> dict[str, Any]:
    head = f"content-type: {content_type}\r\n\r\n".encode("latin-1", "replace")
    try:
        parts = list(BytesParser(policy=HTTP).parsebytes(head + body).iter_parts())
        if len(parts) > MAX_FORM_FIELDS:
            raise ValueError
        fields = [
            (part.get_param("name", header="content-disposition"), part.get_payload(decode=True)) for part in parts
        ]
        return _collect_fields([(str(name), content.decode()) for name, content in fields])  # type: ignore[union-attr]
    except Exception:  # the email library raises many kinds of exceptions for malformed input
        raise HttpError(400, f"the multipart form is invalid: send at most {MAX_FORM_FIELDS} parts in UTF-8") from None


def _collect_fields(pairs: list[tuple[str, str]]) -> dict[str, Any]:
    """Each field's value, or the list of its values if it occurs more than once."""
    values: dict[str, list[str]] = {}
    for name, value in pairs:
        values.setdefault(name, []).append(value)
    return {name: several[0] if len(several) == 1 else several for name, several in values.items()}


def check_length(texts: list[str]) -> None:
    """An HttpError if the texts are too long in total."""
    if (count := sum(map(len, texts))) > MAX_REQUEST_CHARACTERS:
        raise HttpError(400, f"the request has {count:,} characters; the maximum is {MAX_REQUEST_CHARACTERS:,}")


def request_schema(schema: dict[str, Any], form_schema: dict[str, Any] | None = None) -> dict[str, Any]:
    """The OpenAPI description of a JSON body, and of a form if the API accepts one."""
    schemas = {JSON_TYPE: schema}
    if form_schema is not None:
        schemas |= {URLENCODED_TYPE: form_schema, MULTIPART_TYPE: form_schema}
    content = {content_type: {"schema": schema} for content_type, schema in schemas.items()}
    return {"requestBody": {"required": True, "content": content}}
