"""Reads and writes recipes as TOML files, applies overrides, and reports mistakes with the name of the file."""

import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from typing import Any, get_type_hints

from regard.config import ModelConfig, StrictConfig, check_keys, check_type, did_you_mean
from regard.data.corpus import Corpus
from regard.decoding.options import DEFAULT_BEAM, Decoding
from regard.errors import RegardError
from regard.formatting import quoted, shorten, visible
from regard.training.recipe import FINE_TUNING_MODEL_KEYS, DataSection, Recipe, TokenizerSection, TrainSection
from regard.untrusted_files import read_file

SECTION_CLASSES: dict[str, type[StrictConfig]] = {
    "data": DataSection,
    "tokenizer": TokenizerSection,
    "model": ModelConfig,
    "train": TrainSection,
    "decode": Decoding,
}


Overrides = Mapping[str, Any] | Sequence[str]
"""Settings to change: typed values by dotted key, or strings of the form section.key=value."""

MAX_TOML_BYTES = 1_000_000
"""Maximum size of a recipe in bytes."""
MAX_OVERRIDE_CHARS = 100_000
"""Maximum length of an override in characters."""
MAX_TOML_DEPTH = 16
"""Maximum nesting depth of brackets. A parser's memory grows with its square."""
MAX_KEY_PARTS = 16
"""Maximum number of parts in a dotted key. A parser's memory grows with its square."""
MAX_MESSAGE_CHARS = 1_000
"""Maximum length of an error message about a recipe, in characters."""
_KEY_PART = r"""(?:[A-Za-z0-9_-]++|"(?:\\[^\n]|[^"\\\n])*+"|'[^'\n]*+')"""
_MULTILINE_STRING = r"""\"{3}(?:\\.|[^"\\]|"(?!""))*+(?:"{3,5}|\\?\Z)|'{3}(?:[^']|'(?!''))*+(?:'{3,5}|\Z)"""
_TOML_TOKEN = re.compile(
    rf"{_MULTILINE_STRING}|\#[^\n]*+"
    rf"|(?P<dotted>{_KEY_PART}(?:[ \t]*+\.[ \t]*+{_KEY_PART}){{{MAX_KEY_PARTS},}})|{_KEY_PART}"
    r"|[\"'][^\n]*+|(?P<open>[\[{])|(?P<close>[\]}])",
    re.DOTALL,
)
"""Tokens of TOML: strings and comments, keys with too many parts, brackets.

The scan takes linear time: an unclosed string is one token, up to the end of its line or of the text. Otherwise each
quotation mark in it would start another scan.
"""


def read_recipe(path_or_name: str, overrides: Overrides = ()) -> Recipe:
    """Read a recipe from a file, or a bundled one by its name, and apply overrides.

    Overrides are typed values by key, {"train.steps": 2000}, or strings as on the command line, "train.steps=2000". The
    value of a string is TOML; if it is not valid TOML, it is taken as text: train.schedule=cosine. Keys may go deeper:
    data.validation.files=["dev.fr", "dev.en"], data.train.0.columns=[2, 1].
    """
    path = _find(path_or_name)
    return _recipe_from(_parse(path), path.stem, str(path), overrides)


def override_recipe(recipe: Recipe, overrides: Overrides) -> Recipe:
    """A copy of a recipe with some settings changed, given as in `read_recipe`."""
    if not overrides:
        return recipe
    return _recipe_from(tomllib.loads(as_toml(recipe)), recipe.name, f"recipe {recipe.name!r}", overrides)


def _recipe_from(table: dict[str, Any], name: str, source: str, overrides: Overrides) -> Recipe:
    """The recipe of a parsed file with overrides. Errors name both, since the mistake may be in either."""
    pairs = list(overrides.items()) if isinstance(overrides, Mapping) else overrides
    changes = [pair if isinstance(pair, str) else f"{pair[0]}={pair[1]!r}" for pair in pairs]
    try:
        for pair, change in zip(pairs, changes, strict=True):
            if isinstance(pair, str):
                _override_by_text(table, change)
            else:
                _override(table, pair[0], partial(_constant, pair[1]), change)
        changed_keys = [change.partition("=")[0].strip() for change in changes]
        _check_tokenizer_changes(table, changed_keys)
        _drop_shape_of_new_model(table, changed_keys)
        return _recipe_from_table(table, name)
    except ValueError as error:
        changed = f" with {visible(', '.join(changes))}" if changes else ""
        raise RegardError(shorten(f"{source}{shorten(changed)}: {error}", MAX_MESSAGE_CHARS)) from None
    except RecursionError:
        raise RegardError(f"{source} is nested too deeply to be a recipe") from None


def _check_tokenizer_changes(table: Mapping[str, Any], keys: Sequence[str]) -> None:
    """Raise a RegardError if a changed setting has no effect because a tokenizer is read instead of trained.

    Only changes are checked: a file written by `as_toml` has all settings.
    """
    section = table.get("tokenizer")
    if not isinstance(section, dict) or not section.get("path"):
        return
    for key in ("kind", "vocab_size"):
        if f"tokenizer.{key}" in keys:
            raise RegardError(
                f"tokenizer.{key} is for a tokenizer that is trained, but tokenizer.path names one: remove one of them"
            )


def _drop_shape_of_new_model(table: Mapping[str, Any], keys: Sequence[str]) -> None:
    """Remove a file's settings of a new model if a change names an existing one instead, which has its own shape."""
    section = table.get("model")
    if "model.start" not in keys or not isinstance(section, dict) or "start" not in section:
        return
    changed = {key.split(".")[1] for key in keys if key.startswith("model.")}
    for key in [key for key in section if key not in (*FINE_TUNING_MODEL_KEYS, *changed)]:
        del section[key]


def bundled_recipes() -> list[str]:
    """The names of the bundled recipes."""
    return sorted(path.stem for path in _bundle().glob("*.toml"))


def as_toml(recipe: Recipe) -> str:
    """The recipe as TOML with every setting written out. `read_recipe` reads it back unchanged."""
    lines = [f"name = {_toml_value(recipe.name)}"]
    for section, settings in asdict(recipe).items():
        if isinstance(settings, dict):
            written = [f"{key} = {_toml_value(value)}" for key, value in settings.items() if value is not None]
            lines += ["", f"[{section}]", *written]
    return "\n".join(lines) + "\n"


def _toml_value(value: Any) -> str:
    """A value in TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # TOML forbids a plain DEL
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml_value, value))}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {_toml_value(item)}' for key, item in value.items() if item)} }}"
    return repr(value)


def _bundle() -> Path:
    """The folder of the bundled recipes."""
    return Path(__file__).parents[1] / "recipes"


def _find(path_or_name: str) -> Path:
    path = Path(path_or_name)
    if path.is_file():
        return path
    bundled = _bundle() / f"{path_or_name}.toml"
    if path_or_name in bundled_recipes():
        return bundled
    names = ", ".join(bundled_recipes())
    if path.suffix == ".toml":
        raise RegardError(f"{path}: no such file; bundled recipes are given by name, without .toml: {names}")
    suggestion = did_you_mean(path_or_name, bundled_recipes())
    if not suggestion.endswith("?"):
        raise RegardError(f"no recipe {path_or_name!r}: {suggestion}")
    raise RegardError(f"no recipe {path_or_name!r}: {suggestion} The bundled recipes are {names}")


def _check_toml(text: str) -> None:
    """Raise a TOMLDecodeError for TOML that would take much memory to parse: deep brackets, or keys of many parts.

    Strings and comments are skipped. After an unclosed string the result may be wrong, but the parser rejects such a
    text anyway.
    """
    depth = 0
    for match in _TOML_TOKEN.finditer(text):
        depth = max(0, depth + {"open": 1, "close": -1}.get(match.lastgroup or "", 0))
        if depth > MAX_TOML_DEPTH or match.lastgroup == "dotted":
            line = text.count("\n", 0, match.start()) + 1
            problem = f"a key has more than {MAX_KEY_PARTS} parts"
            if depth > MAX_TOML_DEPTH:
                problem = f"brackets are nested more than {MAX_TOML_DEPTH} deep"
            raise tomllib.TOMLDecodeError(f"{problem} (at line {line}, column 1)")


def _parse(path: Path) -> dict[str, Any]:
    text = ""
    try:
        text = read_file(path, MAX_TOML_BYTES).decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
        _check_toml(text)
        return tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise RegardError(f"{path} is not in UTF-8 (at byte {error.start}): save it as UTF-8") from None
    except RecursionError:
        raise RegardError(f"{path} is nested too deeply to be a recipe") from None
    except tomllib.TOMLDecodeError as error:
        position = re.search(r" \(at line (\d+), column (\d+)\)$", str(error))
        line = int(position[1]) if position else text.count("\n") + 1
        message = str(error)[: position.start()] if position else str(error)
        raise RegardError(shorten(f"{path}:{line}: not valid TOML: {message}", MAX_MESSAGE_CHARS)) from None
    except ValueError as error:  # a number with thousands of digits
        message = str(error) if str(error).startswith(str(path)) else f"{path}: not valid TOML: {error}"
        raise RegardError(shorten(message, MAX_MESSAGE_CHARS)) from None


def _override_by_text(table: dict[str, Any], change: str) -> None:
    """Set one value, given as section.key=value."""
    if len(change) > MAX_OVERRIDE_CHARS:
        raise RegardError(f"{shorten(change, 100)!r} is longer than {MAX_OVERRIDE_CHARS:,} characters")
    key, equals, text = change.partition("=")
    if not equals:
        raise RegardError(f"{change!r} sets nothing: write section.key=value, for example train.steps=2000")
    _override(table, key, lambda keys: _value(text.strip(), keys), change)


def _override(table: dict[str, Any], key: str, value: Callable[[list[str]], Any], change: str) -> None:
    """Set the value of a dotted key. `value` computes it from the parts of the key; `change` is for error messages."""
    keys = [part.strip() for part in key.split(".")]
    if len(keys) > MAX_KEY_PARTS:
        raise RegardError(f"{shorten(change, 100)!r}: the key has more than {MAX_KEY_PARTS} parts")
    if len(keys) < 2 and keys != ["name"]:
        raise RegardError(f"{change!r} sets nothing: write section.key=value, for example train.steps=2000")
    if keys[0] not in (*SECTION_CLASSES, "name"):
        raise RegardError(f"{change!r}: unknown section {keys[0]!r}: {did_you_mean(keys[0], SECTION_CLASSES)}")
    inner: Any = table
    for part in keys[:-1]:
        inner = _inner(inner, part, change)
    last = _item(inner, keys[-1], change)
    new = value(keys)
    if new is None and isinstance(inner, dict):
        inner.pop(last, None)  # back to the default
    else:
        inner[last] = new


def _constant(value: Any, _keys: list[str]) -> Any:
    """A typed value, with tuples as lists, as in a parsed file."""
    return list(value) if isinstance(value, tuple) else value


def _inner(container: Any, part: str, change: str) -> Any:
    """The table or list at one part of a key; a table that is missing is created."""
    key = _item(container, part, change)
    return container.setdefault(key, {}) if isinstance(container, dict) else container[key]


def _item(container: Any, part: str, change: str) -> str | int:
    """The key or index that a part of a dotted key refers to."""
    key = int(part) if isinstance(container, list) and part.isdigit() else part
    if not isinstance(container, dict) and not (isinstance(key, int) and key < len(container)):
        raise RegardError(f"{change!r}: {part!r} does not exist")
    return key


def _value(text: str, keys: list[str]) -> Any:
    """The TOML value of a text; the text itself if it is not TOML or the setting is a string; a list for fr,en."""
    wanted = str if keys == ["name"] else get_type_hints(SECTION_CLASSES[keys[0]]).get(keys[1])
    try:
        _check_toml(text)
        parsed = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):  # not TOML, or a number with thousands of digits
        return [item.strip() for item in text.split(",")] if wanted == tuple[str, ...] else text
    is_one_value = parsed.keys() == {"value"}
    return parsed["value"] if is_one_value and (wanted is not str or isinstance(parsed["value"], str)) else text


def _recipe_from_table(table: Mapping[str, Any], name: str) -> Recipe:
    """The recipe of a parsed TOML file, with the file's name if it has none of its own."""
    for key, value in table.items():
        if key not in (*SECTION_CLASSES, "name"):
            raise RegardError(f"unknown section [{shorten(key, 100)}]: {did_you_mean(key, (*SECTION_CLASSES, 'name'))}")
        if key != "name" and not isinstance(value, dict):
            raise RegardError(f"{key} is a section: write [{key}] and its settings below it")
    if "data" not in table:
        raise RegardError("the section [data], which names the training text, is missing")
    sections = {key: dict(table.get(key, {})) for key in SECTION_CLASSES}
    data, decode = sections["data"], sections["decode"]
    if "train" in data:
        corpora = data["train"] if isinstance(data["train"], list) else [data["train"]]
        data["train"] = tuple(_corpus(corpus, "data.train") for corpus in corpora)
    if "validation" in data:
        data["validation"] = _corpus(data["validation"], "data.validation")
    if "beam" not in decode and not decode.get("temperature"):
        decode["beam"] = DEFAULT_BEAM
    built = {key: _section(key, settings) for key, settings in sections.items() if key != "model"}
    model = _with_python_types("model", sections["model"])
    return Recipe(**{"name": name} | dict(table) | built | {"model": model})


def _section(name: str, settings: dict[str, Any]) -> Any:
    known = [field.name for field in fields(SECTION_CLASSES[name])]  # type: ignore[arg-type]  # all are dataclasses
    check_keys(f"[{name}]", settings, known)
    return SECTION_CLASSES[name](**_with_python_types(name, settings))


def _with_python_types(section: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Settings with Python types: lists as tuples, and 1 as 1.0 where a field is a float."""
    hints = get_type_hints(SECTION_CLASSES[section])

    def typed(key: str, value: Any) -> Any:
        if isinstance(value, list):
            return tuple(value)
        return float(value) if type(value) is int and hints.get(key) in (float, float | None) else value

    return {key: typed(key, value) for key, value in settings.items()}


def _corpus(table: object, name: str) -> Corpus:
    """A corpus from its table."""
    types = {"files": tuple[str, ...], "columns": tuple[int, ...], "keys": tuple[str, ...], "times": float, "tag": str}
    if not isinstance(table, dict) or "files" not in table:
        raise RegardError(f'{name}={quoted(table)} is not a corpus: write {{ files = ["a.fr", "a.en"] }}')
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
    check_keys(name, values, types)
    for key, value in values.items():
        check_type(f"{name}.{key}", value, types[key])
    return Corpus(**values)
