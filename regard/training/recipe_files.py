"""Recipes as files: TOML in and out, changes on the way, mistakes named by file and line."""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, get_type_hints

from regard.config import ModelConfig, StrictConfig, check_type, did_you_mean
from regard.data.corpus import Corpus
from regard.decoding.options import DEFAULT_BEAM, Decoding
from regard.errors import RegardError
from regard.formatting import quoted, shorten, visible
from regard.training.recipe import DataSection, Recipe, TokenizerSection, TrainSection
from regard.untrusted_files import read_file

SECTIONS: dict[str, type[StrictConfig]] = {
    "data": DataSection,
    "tokenizer": TokenizerSection,
    "model": ModelConfig,
    "train": TrainSection,
    "decode": Decoding,
}


MAX_TOML, MAX_CHANGE = 1_000_000, 100_000
"""Largest recipe in bytes, and longest change of a setting in characters."""
MAX_TOML_DEPTH, MAX_KEY_PARTS = 16, 16
"""Deepest nesting of brackets, and most parts of a dotted key: a parser's memory grows with their squares."""
MAX_MESSAGE = 1_000
"""Longest message about a recipe, in characters."""
_PART = r"""(?:[A-Za-z0-9_-]++|"(?:\\[^\n]|[^"\\\n])*+"|'[^'\n]*+')"""
_MULTILINE = r"""\"{3}(?:\\.|[^"\\]|"(?!""))*+(?:"{3,5}|\\?\Z)|'{3}(?:[^']|'(?!''))*+(?:'{3,5}|\Z)"""
_TOML = re.compile(
    rf"{_MULTILINE}|\#[^\n]*+|(?P<dotted>{_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{{MAX_KEY_PARTS},}})|{_PART}"
    r"|[\"'][^\n]*+|(?P<open>[\[{])|(?P<close>[\]}])",
    re.DOTALL,
)
"""Tokens of TOML: strings and comments, keys with too many parts, brackets.

The scan takes linear time: a string that is not closed is one token, up to the end of its line or of the text. Without
that, each quotation mark in it would start another scan.
"""


def read_recipe(path_or_name: str, changes: Sequence[str] = ()) -> Recipe:
    """The recipe of a file, or a bundled one by its name, with `changes` such as "train.steps=2000".

    The value of a change is TOML; what is none is taken as a string: train.schedule=cosine. Parts of parts have dots
    too: data.validation.files=["dev.fr", "dev.en"], data.train.0.columns=[2, 1].
    """
    path = _find(path_or_name)
    table = _parse(path)
    try:
        for change in changes:
            _change(table, change)
        return _made(table, path.stem)
    except ValueError as error:
        changed = f" with {visible(', '.join(changes))}" if changes else ""  # where the mistake may be
        raise RegardError(shorten(f"{path}{shorten(changed)}: {error}", MAX_MESSAGE)) from None
    except RecursionError:
        raise RegardError(f"{path} is nested too deeply to be a recipe") from None


def bundled_recipes() -> list[str]:
    """The names of the recipes that come with Regard."""
    return sorted(path.stem for path in _bundle().glob("*.toml"))


def as_toml(recipe: Recipe) -> str:
    """A file of the recipe with every setting spelled out, which `read_recipe` reads back as it is."""
    lines = [f"name = {_written(recipe.name)}"]
    for section, settings in asdict(recipe).items():
        if isinstance(settings, dict):
            told = [f"{key} = {_written(value)}" for key, value in settings.items() if value is not None]
            lines += ["", f"[{section}]", *told]
    return "\n".join(lines) + "\n"


def _written(value: Any) -> str:
    """A value in TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # JSON lets a DEL be, TOML does not
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_written, value))}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {_written(each)}' for key, each in value.items() if each)} }}"
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
    if path.suffix == ".toml":
        raise RegardError(f"{path}: there is no such file; recipes that come with Regard go by their name alone")
    raise RegardError(f"no recipe {path_or_name!r}: {did_you_mean(path_or_name, bundled_recipes())}")


def _check_toml(text: str) -> None:
    """A TOMLDecodeError for TOML that would take much memory to parse: brackets in brackets, keys of many parts.

    Strings and comments are skipped. After a string that is not closed the result may be wrong, but the parser
    refuses such a text anyway.
    """
    depth = 0
    for match in _TOML.finditer(text):
        depth = max(0, depth + {"open": 1, "close": -1}.get(match.lastgroup or "", 0))
        if depth > MAX_TOML_DEPTH or match.lastgroup == "dotted":
            line = text.count("\n", 0, match.start()) + 1
            what = f"a key has more than {MAX_KEY_PARTS} parts"
            if depth > MAX_TOML_DEPTH:
                what = f"brackets are nested more than {MAX_TOML_DEPTH} deep"
            raise tomllib.TOMLDecodeError(f"{what} (at line {line}, column 1)")


def _parse(path: Path) -> dict[str, Any]:
    text = ""
    try:
        text = read_file(path, MAX_TOML).decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
        _check_toml(text)
        return tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise RegardError(f"{path} is not in UTF-8 (at byte {error.start}): save it so") from None
    except RecursionError:
        raise RegardError(f"{path} is nested too deeply to be a recipe") from None
    except tomllib.TOMLDecodeError as error:
        place = re.search(r" \(at line (\d+), column (\d+)\)$", str(error))
        line = int(place[1]) if place else text.count("\n") + 1
        message = str(error)[: place.start()] if place else str(error)
        raise RegardError(shorten(f"{path}:{line}: this is no TOML: {message}", MAX_MESSAGE)) from None
    except ValueError as error:  # of a number with thousands of digits
        message = str(error) if str(error).startswith(str(path)) else f"{path}: this is no TOML: {error}"
        raise RegardError(shorten(message, MAX_MESSAGE)) from None


def _change(table: dict[str, Any], change: str) -> None:
    """Set one value: section.key=value."""
    if len(change) > MAX_CHANGE:
        raise RegardError(f"{shorten(change, 100)!r} is a change of more than {MAX_CHANGE:,} characters")
    place, equals, text = change.partition("=")
    parts = [part.strip() for part in place.split(".")]
    if len(parts) > MAX_KEY_PARTS:
        raise RegardError(f"{shorten(change, 100)!r}: a key has more than {MAX_KEY_PARTS} parts")
    if not equals or (len(parts) < 2 and parts != ["name"]):
        raise RegardError(f"{change!r} changes nothing: write section.key=value, as in train.steps=2000")
    if parts[0] not in (*SECTIONS, "name"):
        raise RegardError(f"{change!r}: there is no section {parts[0]!r}: {did_you_mean(parts[0], SECTIONS)}")
    inner: Any = table
    for part, following in zip(parts, [*parts[1:], None], strict=True):
        key = int(part) if isinstance(inner, list) and part.isdigit() else part
        if not isinstance(inner, dict) and not (isinstance(key, int) and key < len(inner)):
            raise RegardError(f"{change!r}: there is no {part!r} to be changed")
        if following is None:
            inner[key] = _value(text.strip(), parts)
        else:
            inner = inner.setdefault(key, {}) if isinstance(inner, dict) else inner[key]


def _value(text: str, place: list[str]) -> Any:
    """What a text says in TOML; itself, if it says nothing there or a text is wanted; fr,en where texts are."""
    wanted = str if place == ["name"] else get_type_hints(SECTIONS[place[0]]).get(place[1])
    try:
        _check_toml(text)
        found = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):  # no TOML, or a number of thousands of digits
        return [each.strip() for each in text.split(",")] if wanted == tuple[str, ...] else text
    alone = found.keys() == {"value"}
    return found["value"] if alone and (wanted is not str or isinstance(found["value"], str)) else text


def _made(table: Mapping[str, Any], name: str) -> Recipe:
    """The recipe that a TOML file holds, with its file's name if it tells none."""
    for key, value in table.items():
        if key not in (*SECTIONS, "name"):
            raise RegardError(f"there is no section [{shorten(key, 100)}]: {did_you_mean(key, SECTIONS)}")
        if key != "name" and not isinstance(value, dict):
            raise RegardError(f"{key} is a section: write [{key}], and its settings below")
    if "data" not in table:
        raise RegardError("it has no section [data], which says what to learn from")
    sections = {key: dict(table.get(key, {})) for key in SECTIONS}
    data, decode = sections["data"], sections["decode"]
    if "train" in data:
        corpora = data["train"] if isinstance(data["train"], list) else [data["train"]]
        data["train"] = tuple(_corpus(corpus, "data.train") for corpus in corpora)
    if "validation" in data:
        data["validation"] = _corpus(data["validation"], "data.validation")
    if "beam" not in decode and not decode.get("temperature"):
        decode["beam"] = DEFAULT_BEAM
    made = {key: _section(key, told) for key, told in sections.items() if key != "model"}
    return Recipe(**{"name": name} | dict(table) | made | {"model": _valued("model", sections["model"])})


def _section(name: str, told: dict[str, Any]) -> Any:
    known = [each.name for each in fields(SECTIONS[name])]  # type: ignore[arg-type]  # all are dataclasses
    for key in told:
        if key not in known:
            raise RegardError(f"[{name}] has no key {quoted(key)}: {did_you_mean(key, known)}")
    return SECTIONS[name](**_valued(name, told))


def _valued(section: str, told: dict[str, Any]) -> dict[str, Any]:
    """Settings as Python has them: lists as tuples, and 1 as 1.0 where a field is a float."""
    hints = get_type_hints(SECTIONS[section])

    def valued(key: str, value: Any) -> Any:
        if isinstance(value, list):
            return tuple(value)
        return float(value) if type(value) is int and hints.get(key) in (float, float | None) else value

    return {key: valued(key, value) for key, value in told.items()}


def _corpus(told: object, place: str) -> Corpus:
    """Where text lies, from its table."""
    known = {"files": tuple[str, ...], "columns": tuple[int, ...], "keys": tuple[str, ...]}
    if not isinstance(told, dict) or "files" not in told:
        raise RegardError(f'{place}={quoted(told)} is no corpus: write {{ files = ["a.fr", "a.en"] }}')
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in told.items()}
    for key, value in values.items():
        if key not in known:
            raise RegardError(f"{place} has no key {quoted(key)}: {did_you_mean(key, known)}")
        check_type(f"{place}.{key}", value, known[key])
    return Corpus(**values)
