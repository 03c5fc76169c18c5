"""Types of recipe keys and of JSON fields, as the reference pages show them."""

import json
from collections.abc import Iterable, Mapping
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

TOML_NAMES: dict[Any, str] = {bool: "boolean", int: "integer", float: "number", str: "string"}
TOML_DEFAULTS = {"True": "true", "False": "false", "None": "", "()": "[]"}
"""Default values in the notation of TOML, where it differs from Python's. Strings have double quotes."""


def recipe_type(hint: Any) -> str:
    """The type of a recipe's key in the words of TOML. None means that the key may be left out.

    >>> recipe_type(Literal["post", "pre"])
    '"post" or "pre"'
    >>> recipe_type(tuple[str, ...] | None)
    'list of strings'
    """
    if hint in TOML_NAMES:
        return TOML_NAMES[hint]
    if get_origin(hint) is Literal:
        return one_of(get_args(hint))
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(recipe_type(option) for option in get_args(hint) if option is not NoneType)
    if get_origin(hint) is tuple:
        return list_of(recipe_type(get_args(hint)[0]))
    return "table"


def in_toml(value: str) -> str:
    """A default value, given as Python source, in the notation of TOML.

    >>> [in_toml(value) for value in ("True", "'bpe'", "None", "0.1")]
    ['true', '"bpe"', '', '0.1']
    """
    is_text = value[0] == value[-1] == "'"
    return f'"{value[1:-1]}"' if is_text else TOML_DEFAULTS.get(value, value)


def json_type(schema: Mapping[str, Any], resolve: Mapping[str, Mapping[str, Any]]) -> str:
    """The type of a JSON value that a schema describes; `resolve` maps the names of objects to their schemas.

    >>> json_type({"type": "array", "items": {"type": "integer"}}, {})
    'list of integers'
    >>> json_type({"anyOf": [{"$ref": "#/$defs/HeadField"}, {"type": "null"}]}, {"HeadField": {"type": "object"}})
    'object'
    """
    if "$ref" in schema:
        return json_type(resolve[schema["$ref"].rpartition("/")[2]], resolve)
    if "anyOf" in schema:
        return " or ".join(
            dict.fromkeys(json_type(option, resolve) for option in schema["anyOf"] if not is_null(option))
        )
    if "enum" in schema:
        return one_of(schema["enum"])
    if "const" in schema:
        return one_of([schema["const"]])
    if schema.get("type") == "array":
        return list_of(json_type(schema.get("items", {}), resolve))
    return str(schema.get("type", "any"))


def list_of(element: str) -> str:
    """The type of a list, with its elements in the plural if their type is a word or a list.

    >>> [list_of(element) for element in ("number", "list of numbers", 'string or "auto"')]
    ['list of numbers', 'list of lists of numbers', 'list of string or "auto"']
    """
    if element.startswith("list of "):
        return element.replace("list", "list of lists", 1)
    return f"list of {element}s" if element.isalpha() else f"list of {element}"


def one_of(values: Iterable[Any]) -> str:
    """The values that a field can have, as in JSON and TOML.

    >>> one_of(["float", 0, True])
    '"float" or 0 or true'
    """
    return " or ".join(map(json.dumps, values))


def is_null(schema: Mapping[str, Any]) -> bool:
    """Whether a schema describes only null."""
    return schema.get("type") == "null"
