"""The generated reference pages of the documentation site, as far as they need no package of the extra docs."""

import ast
import inspect
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, Literal

import pytest
from typer.main import get_command

from regard.cli import app
from regard.decoding.options import Decoding
from scripts.site_http import description_of, endpoint, http_page, object_tables, objects_in, openapi_schema
from scripts.site_types import in_toml, json_type, recipe_type


def fields_without_description(schema: Mapping[str, Any], names: Mapping[str, Any], path: str) -> Iterator[str]:
    for field, details in schema.get("properties", {}).items():
        if not description_of(details, names):
            yield f"{path}.{field}"
        for inner in objects_in(details, names):
            yield from fields_without_description(names[inner], names, inner)


@pytest.fixture(scope="module")
def page() -> str:
    return http_page()


def test_every_field_of_a_request_is_described() -> None:
    schema = openapi_schema()
    missing: list[str] = []
    for path, methods in schema["paths"].items():
        for operation in methods.values():
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
            if body is not None:
                names = {**schema["components"]["schemas"], **body.get("$defs", {})}
                body = names[body["$ref"].rpartition("/")[2]] if "$ref" in body else body
                missing += fields_without_description(body, names, path)
    assert missing == []


def test_every_field_of_a_response_and_every_parameter_is_described() -> None:
    schema = openapi_schema()
    names = schema["components"]["schemas"]
    missing = [part for name in names for part in fields_without_description(names[name], names, name)]
    for path, methods in schema["paths"].items():
        for operation in methods.values():
            missing += [
                f"{path} {part['name']}" for part in operation.get("parameters", ()) if "description" not in part
            ]
            for status, response in operation["responses"].items():
                for answer in response.get("content", {}).values():
                    fields = answer.get("schema", {})
                    missing += fields_without_description(fields, names, f"{path} {status}")
    assert sorted(set(missing)) == []


SAMPLING = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "seed",
    "repetition_penalty",
    "no_repeat_ngram",
    "stop",
    "max_tokens",
)


def test_sampling_is_described_in_the_same_words_everywhere() -> None:
    """The docstrings of `Decoding`, the help of `regard generate` and the fields of HTTP requests."""
    tree = ast.parse(inspect.getsource(Decoding)).body[0]
    assert isinstance(tree, ast.ClassDef)
    docstrings = {
        field.target.id: " ".join(text.value.value.split()).partition(" Default: ")[0]
        for field, text in pairwise(tree.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }
    options = {option.name: getattr(option, "help", "") for option in get_command(app).commands["generate"].params}  # type: ignore[attr-defined]
    helps = {"generate": options}
    for path in ("/v1/completions", "/api/next"):
        body = openapi_schema()["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        helps[path] = {name: field["description"] for name, field in body["properties"].items()}
    assert {name for name in SAMPLING if name in helps["/api/next"]} == {"temperature", "top_k", "top_p"}
    for place, texts in helps.items():
        for name in {*SAMPLING} & texts.keys():
            assert texts[name].startswith(docstrings[name]), f"{place}: {name}"
    assert {*SAMPLING} <= options.keys()


def test_the_page_has_every_endpoint_with_requests_and_responses(page: str) -> None:
    for path, methods in openapi_schema()["paths"].items():
        for method in methods:
            assert f"## `{method.upper()} {path}`" in page
    translate = page.partition("## `POST /api/translate`")[2].partition("\n## ")[0]
    assert "| `beam` | integer | <code>4</code> | Beam width. |" in translate
    assert "| `text` | string | required | Text to translate. |" in translate
    assert "Each object in `translations`:" in translate
    assert "| `translations` | list of objects | The translations, best first. |" in translate
    attend = page.partition("## `POST /api/attend`")[2].partition("\n## ")[0]
    assert "Each object in `silenced`:" in attend
    assert '| `kind` | "encoder" or "decoder" or "cross" | required | Kind of attention. |' in attend


def test_tables_of_an_endpoint_say_whose_fields_they_list() -> None:
    body = {"content": {"application/json": {"schema": {"properties": {"text": {"type": "string", "default": "a"}}}}}}
    listed = {"content": {"application/json": {"schema": {"type": "array", "items": {"properties": {"size": {}}}}}}}
    tables = list(endpoint({"requestBody": body, "responses": {"200": listed}}, {}))
    titles = [table.partition("\n")[0] for table in tables if ":\n" in table]
    assert titles == ["Fields of the request:", "Fields of each object in the response, a list:"]
    assert ["default" in table for table in tables if ":\n" in table] == [True, False]


def test_only_lists_of_objects_are_called_lists() -> None:
    """Not an object that is described as an array, nor one of another field."""
    part = {"type": "object", "properties": {"size": {"type": "integer"}}}
    reference = {"$ref": "#/$defs/Part"}
    fields = [
        ({"anyOf": [reference, {"type": "null"}], "description": "Shape of an array."}, "`part`"),
        ({"type": "array", "items": reference}, "Each object in `part`"),
        ({"anyOf": [{"type": "array", "items": reference}, {"type": "null"}]}, "Each object in `part`"),
    ]
    for details, heading in fields:
        tables = list(
            object_tables("Title", {"properties": {"part": details}, "$defs": {"Part": part}}, {}, is_request=True)
        )
        assert [table.partition(":\n")[0] for table in tables if ":\n" in table] == ["Title", heading]


@pytest.mark.parametrize(
    ("hint", "shown"),
    [
        (bool, "boolean"),
        (float | None, "number"),
        (tuple[str, ...], "list of strings"),
        (bool | Literal["qkv"] | None, 'boolean or "qkv"'),
        (Literal[0, 1] | None, "0 or 1"),
        (dict[str, int] | None, "table"),
    ],
)
def test_types_of_recipe_keys(hint: Any, shown: str) -> None:
    assert recipe_type(hint) == shown


@pytest.mark.parametrize(
    ("schema", "shown"),
    [
        ({"type": "array", "items": {"type": "array", "items": {"type": "number"}}}, "list of lists of numbers"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "string"),
        ({"enum": ["float", "base64"], "type": "string"}, '"float" or "base64"'),
        ({"const": 0, "type": "integer"}, "0"),
        ({"anyOf": [{"const": 0}, {"enum": [1, "auto"]}]}, '0 or 1 or "auto"'),
        ({}, "any"),
    ],
)
def test_types_of_json_fields(schema: dict[str, Any], shown: str) -> None:
    assert json_type(schema, {}) == shown


@pytest.mark.parametrize(
    ("source", "shown"),
    [("'bpe'", '"bpe"'), ("''", '""'), ("True", "true"), ("None", ""), ("()", "[]"), ("16_000", "16_000")],
)
def test_defaults_are_shown_in_toml(source: str, shown: str) -> None:
    assert in_toml(source) == shown
