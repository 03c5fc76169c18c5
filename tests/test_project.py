"""Rules for the whole project: import order, public names, the README's examples, and the start-up time of --help."""

import ast
import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

import regard
from regard.data.tokenizer_training import train_tokenizer

ROOT = Path(__file__).parent.parent

# A package imports only from packages in earlier sets; packages in one set do not import each other.
ORDER: list[set[str]] = [
    {"regard"},  # the lazy public names: imports no other part of the package
    {"regard.errors", "regard.rounding", "regard.system_memory", "regard.threads", "regard.word_splitter"},
    {"regard.formatting", "regard.page"},
    {"regard.atomic_files", "regard.untrusted_files"},
    {"regard.config"},
    {"regard.model", "regard.data", "regard.petit", "regard.models"},
    {"regard.storage"},
    {"regard.decoding"},
    {"regard.interop"},
    {"regard.evaluation", "regard.jobs"},
    {"regard.ray"},
    {"regard.training"},
    {"regard.plots"},
    {"regard.training_api"},
    {"regard.labs", "regard.course", "regard.demo"},
    {"regard.server"},
    {"regard.cli"},
    {"regard.__main__"},
]


@cache
def modules() -> tuple[str, ...]:
    found = pkgutil.walk_packages(regard.__path__, "regard.")
    return ("regard", *(module.name for module in found))


def layer_of(module: str) -> tuple[int, str]:
    """Return the position of a module in ORDER, and the part it belongs to: the longest prefix of its name in ORDER."""
    known = [(name, level) for level, names in enumerate(ORDER) for name in names]
    fitting = [(name, level) for name, level in known if module == name or module.startswith(f"{name}.")]
    name, level = max(fitting, key=lambda each: len(each[0]))
    assert name != "regard" or module == "regard", f"{module} has no place in the order of imports"
    return level, name


def imported_by(module: str) -> set[str]:
    """Return the modules of the package that a module imports anywhere, except for type checking only."""
    path = ROOT.joinpath(*module.split("."))
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    tree = ast.parse(source.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    names = set()
    known = set(modules())
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module}: a relative import"
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= {name if name in known else str(node.module) for name in whole}
    return {name for name in names if name.split(".")[0] == "regard"}


def test_imports_follow_the_layer_order() -> None:
    assert len(modules()) > 100
    for module in modules():
        level, part = layer_of(module)
        for other in imported_by(module):
            other_level, other_part = layer_of(other)
            assert other_level < level or other_part == part, f"{module} imports {other}"


def test_the_import_check_detects_violations() -> None:
    assert "regard.model.masks" in imported_by("regard.model.attention")
    assert layer_of("regard.plots.heat_map") < layer_of("regard.server.app")


def test_public_names() -> None:
    assert set(regard.__all__) == {
        "Decoder",
        "Decoding",
        "Encoder",
        "EncoderDecoder",
        "Model",
        "ModelConfig",
        "MultiHeadAttention",
        "Recipe",
        "RegardError",
        "SpecialIds",
        "Tokenizer",
        "__version__",
        "attention",
        "build",
        "causal_mask",
        "combine_heads",
        "evaluate",
        "export",
        "load",
        "packed_mask",
        "padding_mask",
        "prefix_mask",
        "preset",
        "split_heads",
        "train",
        "train_tokenizer",
        "watch",
    }
    for name in regard.__all__:
        assert getattr(regard, name).__doc__ if name != "__version__" else regard.__version__
    assert dir(regard) == sorted(regard.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'attension'"):
        regard.attension  # noqa: B018


def test_type_checkers_see_the_same_public_names() -> None:
    tree = ast.parse((ROOT / "regard/__init__.py").read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    told = {
        alias.asname: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert told == regard._MODULE_OF


@pytest.mark.slow
@pytest.mark.usefixtures("without_type_checks")
def test_the_examples_in_the_documentation_run(tmp_path: Path) -> None:
    pages = ["README.md", *(f"docs/{name}.md" for name in ("model", "models", "text"))]
    text = "\n".join((ROOT / page).read_text(encoding="utf-8") for page in pages)
    examples = re.findall(r"```python\n(.*?)```", text, re.S)
    assert len(examples) >= len(pages)
    tokenizer = train_tokenizer(["Le petit chat noir dort. The cat is sleeping."], 300).with_template(after=[0])
    special = regard.SpecialIds(start=tokenizer.pad, end=(tokenizer.end,))
    model = regard.Model(regard.build(regard.preset("tiny", vocab_size=tokenizer.size)).eval(), tokenizer, special)
    model.save(tmp_path / "model")
    names: dict[str, object] = {"regard": regard, "FOLDER": tmp_path / "model", "OUT": tmp_path / "out"}
    steps = "for step in range(250):"
    assert any(steps in example for example in examples)
    for example in examples:
        exec(example.replace(steps, "for step in range(3):"), names)  # it need not learn here
    refusals = re.findall(r"^>>> (.*)\n(regard\.errors\.RegardError: .*)$", text, re.M)
    assert refusals
    for call, message in refusals:
        with pytest.raises(ValueError, match=r".") as caught:
            eval(call, {"regard": regard})
        assert f"regard.errors.RegardError: {caught.value}" == message


def test_help_does_not_import_torch() -> None:
    program = "import sys, regard.cli; print(*(n for n in ('torch', 'numpy', 'jaxtyping') if n in sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


KERNELS = {"regard.decoding.step_attention", "regard.model.tile_attention", "regard.training.loss_kernel"}
"""Modules written in Triton, which is only bundled with PyTorch for CUDA."""


def importable_modules() -> list[str]:
    """Return all modules that can be imported here."""
    excluded = {"regard.__main__"} if find_spec("triton") else {"regard.__main__", *KERNELS}
    return [name for name in modules() if name not in excluded]


@pytest.mark.slow
@pytest.mark.parametrize("module", importable_modules())
def test_examples_in_docstrings(module: str) -> None:
    assert not doctest.testmod(importlib.import_module(module)).failed


def test_every_known_mistake_has_all_its_texts() -> None:
    """A hint without a text would leave a student with nothing."""
    mistakes = tomllib.loads((ROOT / "regard" / "course" / "mistakes.toml").read_text(encoding="utf-8"))
    wanted = ("part", "question", "title", "why", "fix")
    incomplete = {name: [key for key in wanted if not texts.get(key)] for name, texts in mistakes.items()}
    missing = {name: keys for name, keys in incomplete.items() if keys}
    assert not missing, "the top of regard/course/mistakes.toml describes these texts"


def test_gpu_tests_are_in_their_folder() -> None:
    """`make test-gpu` collects that folder only."""
    marked = {path for path in (ROOT / "tests").rglob("*.py") if "pytest.mark." + "gpu" in path.read_text()}
    assert marked == set((ROOT / "tests/gpu").glob("test_*.py"))


def test_the_longest_test_files_exist() -> None:
    from tests.conftest import LONGEST_FILES

    assert [name for name in LONGEST_FILES if not (ROOT / "tests" / name).is_file()] == []


def test_every_requirement_is_pinned() -> None:
    """The constraints list each requirement of pyproject.toml, and pin torch exactly."""
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.M))
    known = {name.lower().replace("_", "-") for name in pins}
    wanted = set(re.findall(r'"([\w-]+)(?:\[\w+\])?>=[\d.]+"', (ROOT / "pyproject.toml").read_text()))
    assert len(wanted) > 10
    assert wanted <= known
    assert pins["torch"] == "2.13.0"
