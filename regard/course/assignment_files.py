"""Reading the files of an assignment, with errors that tell its author what to correct, and where."""

import importlib.util
import sys
import tomllib
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_origin, get_type_hints

from regard.config import check_keys, check_type
from regard.errors import RegardError

NOT_SETTINGS = ("folder", "hidden")
"""Fields of an assignment that are not in its file."""


def read_text(path: Path) -> str:
    """The text of a file in UTF-8; a RegardError if it is missing or not text."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise RegardError(f"{path} is missing: an assignment needs it") from None
    except UnicodeError:
        raise RegardError(f"{path} is not encoded in UTF-8: save it as UTF-8 text") from None


def read_toml(path: Path) -> dict[str, Any]:
    """The contents of a TOML file; a RegardError with the line if it is not valid."""
    try:
        return tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise RegardError(f"{path} is not valid TOML: {error}") from None


def import_file(name: str, path: Path) -> ModuleType:
    """Run a Python file as a module; a RegardError with the line if it fails."""
    read_text(path)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise RegardError(f"{path} cannot be imported: it is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise RegardError(f"{where_in(path, error)}: {type(error).__name__}: {error}") from error
    return module


def where_in(path: Path, error: BaseException) -> str:
    """The file, with the last of its lines that an error passed through."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f"{path}, line {error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f"{path}, line {lines[-1]}" if lines else str(path)


def check_settings(path: Path, settings: Mapping[str, Any], kind: type, names: Mapping[str, str]) -> None:
    """Check the settings in a file against the fields of a dataclass.

    `names` has the fields that are called differently in the file. A RegardError names the key that is unknown, missing
    or has a value of the wrong type.
    """
    known = {names.get(field.name, field.name): field for field in fields(kind) if field.name not in NOT_SETTINGS}
    types = get_type_hints(kind)
    check_keys(str(path), settings, known)
    for key, field in known.items():
        is_required = field.default is MISSING and field.default_factory is MISSING
        if is_required and key not in settings:
            raise RegardError(f"{path} has no {key}: add it, as docs/course.md describes")
    for key, value in settings.items():
        _check_value(f"{path}: {key}", value, types[known[key].name])


def _check_value(where: str, value: object, kind: Any) -> None:
    origin = get_origin(kind)
    if not (isinstance(origin, type) and issubclass(origin, Mapping)):
        check_type(where, value, kind)
        return
    if not isinstance(value, dict):
        raise RegardError(f"{where} must be a table: [{where.rpartition(' ')[2]}] and then one line for each name")
    for key, item in value.items():
        check_type(f"{where}.{key}", item, get_args(kind)[1])


def read_variant_tables(path: Path) -> list[tuple[str, Sequence[tuple[str, str]]]]:
    """The mistake and the edits of each variant; a RegardError names the variant that is not complete."""
    tables = read_toml(path).get("variant")
    if not isinstance(tables, list) or not tables:
        raise RegardError(f"{path} has no variants: describe each known mistake in a [[variant]] table")
    return [_read_variant(table, f"{path}, variant {number}") for number, table in enumerate(tables, 1)]


def _read_variant(table: Any, where: str) -> tuple[str, Sequence[tuple[str, str]]]:
    if not isinstance(table, dict):
        raise RegardError(f"{where}: write it as a table, [[variant]]")
    check_keys(where, table, ("mistake", "edits"))
    mistake, edits = table.get("mistake"), table.get("edits")
    if not isinstance(mistake, str) or not mistake:
        raise RegardError(f'{where} has no mistake: add the id of a mistake, such as mistake = "no-scaling"')
    are_pairs = isinstance(edits, list) and all(
        isinstance(edit, list) and len(edit) == 2 and all(isinstance(text, str) for text in edit) for edit in edits
    )
    if not edits or not are_pairs:
        raise RegardError(f'{where}, {mistake}: edits must be pairs of texts: edits = [["old text", "new text"]]')
    return mistake, [(old, new) for old, new in edits]
