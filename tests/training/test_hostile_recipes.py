"""Hostile recipes: each results in a recipe or a short message, within little memory and time."""

import resource
import sys
import typing
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import jaxtyping
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from regard import cli
from regard.config import ModelConfig, StrictConfig, preset
from regard.decoding.options import Decoding
from regard.errors import RegardError
from regard.training import training_setup as task
from regard.training.recipe import DataSection, Recipe, TokenizerSection, TrainSection
from regard.training.recipe_files import MAX_TOML_BYTES, SECTION_CLASSES, read_recipe
from regard.training.training_setup import check_memory
from tests.support.forked import forked
from tests.support.oracles import small
from tests.support.work_limits import fail_when_hanging


@pytest.fixture(scope="module", autouse=True)
def no_type_checks() -> Iterator[None]:
    """Disable run-time type checks: invalid recipes must raise Regard's own errors."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


DATA = "[data]\npetit = 10\n"
HOSTILE: dict[str, tuple[str | bytes, str]] = {
    "a key of 50,000 parts": (".".join(["a"] * 50_000) + " = 1", ":1: .*a key has more than 16 parts"),
    "a table of 50,000 parts": (f"[{'.'.join(['a'] * 50_000)}]", "a key has more than 16 parts"),
    "a key of 50,000 texts": (" . ".join(['"a"', "'b'"] * 25_000) + " = 1", "a key has more than 16 parts"),
    "a key of parts in braces": (f"a = {{ {'.'.join(['a'] * 50_000)} = 1 }}", "a key has more than 16 parts"),
    "500 brackets": ("a = " + "[" * 500, "brackets are nested more than 16 deep"),
    "500 pairs of brackets": ("a = " + "[" * 500 + "]" * 500, "brackets are nested more than 16 deep"),
    "a million brackets": ("a = " + "[" * 900_000, "brackets are nested more than 16 deep"),
    "500 braces": ("a = " + "{a=" * 500, "brackets are nested more than 16 deep"),
    "brackets behind a text": ('a = "]" #]\nb = ' + "[" * 20, ":2: .*nested more than 16"),
    "too many bytes": ("#" * (MAX_TOML_BYTES + 1), "1,000,001 bytes: at most 1,000,000 are read"),
    "no UTF-8": (b"\xff\xfe", "is not in UTF-8"),
    "zeros": (b"\0" * 1_000, "not valid TOML"),
    "a long number": (DATA + "seed = " + "9" * 5_000, "Exceeds the limit"),
    "a long number in base 16": (
        "[data]\npetit = 0x" + "f" * 90_000,
        "petit=a number of more than 4,300 digits is too",
    ),
    "a long number for a text": (DATA + "folder = 0x" + "f" * 90_000, "folder=a number of more than 4,300 digits has"),
    "a long number for a choice": (DATA + "task = 0x" + "f" * 90_000, "task=a number of more than 4,300 digits is not"),
    "a long text for a choice": (DATA + f'task = "{"x" * 900_000}"', "task='xxx"),
    "a long key": (DATA + "x" * 900_000 + " = 1", "no key 'xxx"),
    "a long section": (DATA + f"[{'x' * 900_000}]", "unknown section .xxx"),
    "a long corpus": (f"[data]\ntrain = [{'1,' * 40_000}]", "data.train=1 is not a corpus"),
    "a vocabulary of 2e9": (DATA + "[tokenizer]\nvocab_size = 2_000_000_000", "vocab_size=2000000000 is too large"),
    "1e8 layers": (DATA + "[model]\nlayers = 100_000_000", "layers=100000000 is too large: it must be at most 1,000"),
    "a width of 1e8": (DATA + "[model]\nd_model = 100_000_000", "d_model=100000000 is too large"),
    "1e14 parameters": (
        DATA + "[model]\nd_model = 100_000\nd_ff = 1_000_000\nlayers = 900",
        "parameters: at most 1,000,000,",
    ),
    "escaped quotes by the line": ('\\"""\n' * 200_000, "not valid TOML"),
    "escaped quotes in a text": ('a = """' + '\\"""\n' * 190_000, "not valid TOML"),
    "escaped quotes in a line": ('a = "' + '\\"' * 490_000 + "\n", "not valid TOML"),
    "two quotes again and again": ("a = '''" + "''a" * 330_000, "not valid TOML"),
    "a million quotes": ("a = " + '"' * 999_990, "not valid TOML"),
    "quotes after backslashes": ('\\\n"' * 330_000, "not valid TOML"),
    "5,000,001 pairs of Petit": (
        "[data]\npetit = 5_000_001",
        "petit=5000001 is too large: it must be at most 5,000,000",
    ),
    "an escape": (DATA + '"a\\u001b[31m\\u0000" = 1', "no key"),
    "an escape in a section": ('["\\u001b]0;owned\\u0007\\u009b\\u202e"]\na = 1', "unknown section"),
    "an escape in the file": (DATA + 'folder = "\x1b[2J"', "Illegal character"),
}


def write_recipe(folder: Path, content: str | bytes) -> Path:
    path = folder / "hostile.toml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.slow
@pytest.mark.parametrize("name", list(HOSTILE))
def test_hostile_recipes_are_rejected_with_a_short_message(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    content, message = HOSTILE[name]
    path = write_recipe(tmp_path, content)
    with fail_when_hanging(300), pytest.raises(ValueError, match=message) as caught:
        read_recipe(str(path))  # it takes less than a second; quadratic time would take an hour
    assert caught.type is RegardError
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) <= 1_000
    monkeypatch.setattr(sys, "argv", ["regard", "train", str(path), "--out", str(tmp_path / "run")])
    with pytest.raises(SystemExit) as end:
        cli.main()
    error = capsys.readouterr().err
    assert end.value.code == 2
    assert error.startswith("regard: ")
    assert error.count("\n") < 4
    assert error.replace("\n", "").isprintable()
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is measured on Linux")
def test_hostile_recipes_need_little_memory(tmp_path: Path) -> None:
    """In a process limited to 300 MB of additional memory: a larger allocation would be a MemoryError."""
    paths = []
    for number, (content, _) in enumerate(HOSTILE.values()):
        (tmp_path / str(number)).mkdir()
        paths.append(str(write_recipe(tmp_path / str(number), content)))
    with forked("tests.support.limited_memory", *paths) as process:
        assert process.wait() == 0, process.stderr[-2_000:]
        assert process.stdout.split() == ["rejected"] * len(HOSTILE)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (".".join(["data"] * 10_000) + "=1", "the key has more than 16 parts"),
        ("train.steps=1" + "0" * 5_000, "train.steps='1000.*… has type str: expected int"),
        ("train.steps=0x" + "f" * 5_000, "steps=a number of more than 4,300 digits is too large"),
        ("data.train=" + "[" * 5_000, "data.train=.* is not a corpus"),
        ("data.folder=" + "x" * 200_000, "is longer than 100,000 characters"),
        ("tokenizer.vocab_size=2000000000", "vocab_size=2000000000 is too large: it must be at most 1,000,000"),
    ],
)
def test_hostile_overrides_are_rejected(tmp_path: Path, change: str, message: str) -> None:
    path = write_recipe(tmp_path, DATA)
    with pytest.raises(ValueError, match=message) as caught:
        read_recipe(str(path), [change])
    assert len(str(caught.value)) <= 1_000


@pytest.mark.parametrize(
    "text",
    [
        'a = "[[[[[[[[[[[[[[[[[[[[[[[[[[["',
        "a = '''\n" + "[" * 40 + "'''",
        'a = """' + "a." * 40 + '\\""""',
        "# " + "a." * 40 + "[" * 40,
        "a = [1]\n" * 1 + "".join(f"b{i} = [[1, [2]], {{ c = 3 }}]\n" for i in range(100)),
    ],
)
def test_brackets_and_dots_in_strings_are_not_structure(tmp_path: Path, text: str) -> None:
    path = write_recipe(tmp_path, text)
    with pytest.raises(ValueError, match=r"unknown section|a is a section|the section \[data\]"):
        read_recipe(str(path))


# Hypothesis

NUMBERS = st.one_of(
    st.integers(-(10**40), 10**40), st.floats(), st.sampled_from([2**31, 2**63, 2**64, 10**18, -1, 0, 1e308, -1e-308])
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(NUMBERS, st.booleans(), st.text(max_size=20)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "files", "keys"]), inner),
    max_leaves=5,
)
KEYS = {
    section: [each.name for each in fields(kind)]  # type: ignore[arg-type]  # all are dataclasses
    for section, kind in SECTION_CLASSES.items()
}


def toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return '"' + "".join(f"\\U{ord(c):08x}" if not 0xD800 <= ord(c) < 0xE000 else "?" for c in value) + '"'
    if isinstance(value, list):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {toml_value(each)}' for key, each in value.items())} }}"
    return repr(value)


SETTINGS = st.lists(
    st.sampled_from(sorted(KEYS)).flatmap(
        lambda section: st.tuples(st.just(section), st.sampled_from([*KEYS[section], "nonsense"]), VALUES)
    ),
    max_size=4,
)
SOUP = st.lists(
    st.sampled_from(
        ["[", "]", "[[", "{", "}", "=", ".", ",", '"', "'", '"""', "'''", "#", "\n", "data", "train", "petit", "1e400"]
    )
    | st.text(max_size=3),
    max_size=60,
).map("".join)


def outcome(folder: Path, text: str, changes: list[str]) -> None:
    """Return a recipe, or a ValueError of a few lines."""
    path = write_recipe(folder, text.encode(errors="replace"))
    message = ""
    try:
        assert isinstance(read_recipe(str(path), changes), Recipe)
    except ValueError as error:
        message = str(error)
    assert len(message) <= 1_000
    assert message.count("\n") < 4


@given(SETTINGS, st.booleans())
@example([("train", "steps", 10**40)], False)
def test_any_value_for_any_key(tmp_path_factory: pytest.TempPathFactory, told: list[Any], as_changes: bool) -> None:
    folder = tmp_path_factory.getbasetemp()
    if as_changes:
        outcome(folder, DATA, [f"{section}.{key}={toml_value(value)}" for section, key, value in told])
        return
    sections: dict[str, dict[str, Any]] = {"data": {"petit": 10}}
    for section, key, value in told:
        sections.setdefault(section, {})[key] = value
    lines = [
        f"[{name}]\n" + "".join(f"{k} = {toml_value(v)}\n" for k, v in each.items()) for name, each in sections.items()
    ]
    outcome(folder, "\n".join(lines), [])


@given(SOUP)
def test_any_text(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    outcome(tmp_path_factory.getbasetemp(), text, [])
    outcome(tmp_path_factory.getbasetemp(), DATA, [f"data.train={text}", f"data.{text}"])


# Numbers

CONFIGS: dict[type[StrictConfig], dict[str, Any]] = {
    ModelConfig: {"vocab_size": 100, "d_model": 24, "heads": 2},
    DataSection: {"petit": 10},
    TokenizerSection: {},
    TrainSection: {},
    Decoding: {},
}
NUMERIC = [
    (kind, each.name, value)
    for kind in CONFIGS
    for each in fields(kind)  # type: ignore[arg-type]  # all are dataclasses
    for hint in [typing.get_type_hints(kind)[each.name]]
    if {int, float} & {hint, *typing.get_args(hint)} and typing.get_origin(hint) is not tuple
    for value in ([10**12 * 10**9, 10**5_000] if int in {hint, *typing.get_args(hint)} else [1e300])
]


def test_recipes_have_numeric_keys() -> None:
    assert len(NUMERIC) > 60
    assert all(each.default is not MISSING or each.name == "vocab_size" for each in fields(ModelConfig))


@pytest.mark.parametrize(
    ("kind", "name", "value"), NUMERIC, ids=[f"{k.__name__}.{n}-{i}" for i, (k, n, _) in enumerate(NUMERIC)]
)
def test_every_number_has_a_maximum_and_the_message_names_it(kind: type[StrictConfig], name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"\b{name}=") as caught:
        kind(**CONFIGS[kind] | {name: value})
    assert len(str(caught.value)) < 400


def test_the_lower_bound_is_close_to_the_parameter_count() -> None:
    from regard.model.transformer import build

    for config in (preset("tiny"), preset("paper-base"), preset("gpt2-small"), preset("bert-small"), small()):
        import torch

        with torch.device("meta"):
            count = sum(weight.numel() for weight in build(config).parameters())
        assert 0.8 * count < config.min_parameters <= count


def test_a_model_too_large_for_memory_is_rejected_before_it_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "available_memory", lambda: 10_000_000)
    with pytest.raises(ValueError, match=r"parameters needs .* GB of memory to train, but 0.0 GB are available"):
        check_memory(preset("paper-base"), TrainSection(device="cpu"))
    check_memory(preset("tiny"), TrainSection(device="cpu"))
    recipe = read_recipe(str(write_recipe(tmp_path, DATA + '[model]\npreset = "paper-big"\n[train]\ndevice = "cpu"')))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match="GB of memory to train"):
        task.prepare_training(recipe, tmp_path / "cache", packed=False)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000
    assert not (tmp_path / "cache").exists()
