"""The reference page of the HTTP API, written from the OpenAPI schema of `regard serve`."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from fastapi.testclient import TestClient

from regard.server.app import create_app
from regard.server.guards import AccessRules
from regard.server.model_registry import ModelRegistry
from scripts.site_markdown import as_code, as_line, in_cell
from scripts.site_types import json_type

INTRODUCTION = """# HTTP API

`regard serve` answers these requests on 127.0.0.1:7878. Bodies are JSON. If the server has a token, send it as
`Authorization: Bearer TOKEN`; only `/health` and the files of the page are public. The complete schema, with all
limits, is at `/openapi.json`. [Serve a model](../how-to/serve.md) has examples of requests.

Errors are JSON, too: `{"error": "the reason"}`, or an object in `"error"` for paths that begin with `/v1`, as OpenAI's
clients expect.

| status | meaning |
|---|---|
| 400 | The request is not valid: the error names the field and the limit. |
| 401 | The token is missing or wrong. |
| 403 | The Host header or the origin is not allowed. |
| 404, 405 | There is no such path or model, or the method is wrong. |
| 408, 413, 415 | The body arrives too slowly, is too large, or is not JSON. |
| 429 | Too many texts are waiting. `Retry-After` gives the number of seconds. |
| 500 | The model failed; the reason is in the error. |
| 503 | The request took longer than 60 s, or the model is not available. |
"""


def openapi_schema() -> dict[str, Any]:
    """The schema of a server without models."""
    client = TestClient(create_app(ModelRegistry([]), AccessRules(["localhost"])), base_url="http://localhost")
    schema: dict[str, Any] = client.get("/openapi.json").json()
    return schema


def http_page() -> str:
    """Every endpoint with the fields of its request and of its response."""
    schema = openapi_schema()
    lines = [INTRODUCTION]
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            lines += [
                f"## `{method.upper()} {path}`",
                "",
                sentence(operation.get("description", operation["summary"])),
                "",
            ]
            lines += endpoint(operation, schema["components"]["schemas"])
    return "\n".join(lines)


def endpoint(operation: Mapping[str, Any], components: Mapping[str, Any]) -> Iterator[str]:
    """The tables of an endpoint's request and response."""
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    if body is not None:
        yield from object_tables("Fields of the request", body, components, is_request=True)
    answer = operation["responses"]["200"].get("content", {}).get("application/json", {}).get("schema")
    if answer is not None:
        kind = "each object in the response, a list" if is_list(answer) else "the response"
        objects = answer["items"] if is_list(answer) else answer
        yield from object_tables(f"Fields of {kind}", objects, components, is_request=False)


def object_tables(
    title: str, schema: Mapping[str, Any], components: Mapping[str, Any], *, is_request: bool
) -> Iterator[str]:
    """A table of an object's fields, then one for each kind of object inside it. Those of a request have defaults."""
    names = {**components, **schema.get("$defs", {})}
    waiting, shown = [(title, schema)], set()
    while waiting:
        heading, described = waiting.pop(0)
        described = names[described["$ref"].rpartition("/")[2]] if "$ref" in described else described
        fields = described.get("properties", {})
        if not fields:
            continue
        yield (
            f"{heading}:\n\n| field | type | default | |\n|---|---|---|---|"
            if is_request
            else (f"{heading}:\n\n| field | type | |\n|---|---|---|")
        )
        for field, details in fields.items():
            cells = [f"`{field}`", json_type(details, names)]
            if is_request:
                cells.append(default_of(details, field in described.get("required", ())))
            yield f"| {' | '.join([*cells, in_cell(description_of(details, names))])} |"
            for inner in objects_in(details, names):
                if inner not in shown:
                    shown.add(inner)
                    waiting.append((f"Each object in `{field}`" if is_list(details) else f"`{field}`", names[inner]))
        yield ""


def description_of(details: Mapping[str, Any], names: Mapping[str, Any]) -> str:
    """The description of a field; of one that is a reference and has none, that of the object."""
    described = details if "description" in details else names.get(details.get("$ref", "").rpartition("/")[2], {})
    return str(described.get("description", ""))


def default_of(details: Mapping[str, Any], required: bool) -> str:
    """The default value of a request's field."""
    default = details.get("default")
    return "required" if required else "" if default is None else as_code(json.dumps(default))


def is_list(details: Mapping[str, Any]) -> bool:
    """Whether a field is a list, or can be one."""
    return details.get("type") == "array" or any(map(is_list, details.get("anyOf", ())))


def objects_in(details: Mapping[str, Any], names: Mapping[str, Any]) -> Iterator[str]:
    """The names of the objects that a field holds, also in a list or as one of several types."""
    if "$ref" in details:
        name = details["$ref"].rpartition("/")[2]
        if names[name].get("properties"):
            yield name
    for inner in (details.get("items"), *details.get("anyOf", ())):
        if isinstance(inner, Mapping):
            yield from objects_in(inner, names)


def sentence(text: str) -> str:
    """A description in one line that ends with a full stop."""
    line = as_line(text)
    return line if line.endswith((".", "!", "?", ":")) else f"{line}."
