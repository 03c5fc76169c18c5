"""Private names of other packages that Regard uses, found by reading the code.

Such a name may change in any release, so the packages have upper bounds in pyproject.toml. docs/contributing.md says
what to check when a bound is raised.
"""

import ast
import re
import tomllib
from pathlib import Path

import pytest
import torch
from torch import nn

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.slow  # it parses every module

USED = {
    "torch": {
        "regard/course/assignments/annotated/probes.py": {"_modules"},
        "regard/course/line_tracing.py": {"_buffers", "_version", "torch._C"},
        "regard/course/own_attention.py": {"_apply"},
        "regard/decoding/fast_copy.py": {
            "_linear_pointwise",
            "_reorder_linear_weight",
        },
        "regard/labs/cost_meters.py": {
            "_cdata",
            "torch.multiprocessing.reductions",
            "torch.utils._python_dispatch",
            "torch.utils._pytree",
        },
        "regard/model/watch.py": {"_orig_mod.", "torch._dynamo"},
        "regard/training/objective.py": {"_inductor", "torch._inductor"},
        "regard/training/optimizer.py": {
            "_amp_update_scale_",
            "_foreach_add_",
            "_foreach_copy_",
            "_foreach_div_",
        },
    },
    "sacrebleu": {
        "regard/evaluation/metrics.py": {"_ci", "_compute_f_score", "_mean"},
        "regard/evaluation/multi_run.py": {
            "_cache_references",
            "_compute_score_from_stats",
            "_extract_corpus_statistics",
            "_ref_cache",
        },
    },
    "uvicorn": {"regard/server/connections.py": {"uvicorn.protocols.http.h11_impl"}},
}
"""Private names by package and file. Before you add one, look for a public name."""
UNDOCUMENTED_MODULES = {"torch.multiprocessing.reductions", "uvicorn.protocols.http.h11_impl"}
"""Modules without an underscore that their packages do not document."""
DOCUMENTED = {"_asdict", "_exit", "_getframe", "_replace"}
"""Names of the standard library that are documented in spite of the underscore."""
ATTRIBUTE_FUNCTIONS = {"delattr", "getattr", "hasattr", "setattr"}
COMPILED_PREFIX = "_orig_mod."
"""Prefix that torch.compile gives to the names of a module's parts."""
INHERITED = {name for owner in (nn.Module(), torch.Tensor) for name in dir(owner) if re.match("_[a-z]", name)}
"""Private names of torch's classes: a name that Regard defines too is reported nevertheless."""


def is_private(name: str) -> bool:
    return any(re.match("_[a-zA-Z]", part) for part in name.split("."))


def is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def defined_names(tree: ast.AST) -> set[str]:
    """The functions, classes, variables and attributes that a module defines."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_self(node.value):
            names.add(node.attr)
    return names


def private_names(tree: ast.AST, own: set[str]) -> set[str]:
    """The private names of other packages that a module uses; `own` are the names that Regard defines."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names if is_private(alias.name)}
        elif isinstance(node, ast.ImportFrom):
            module = str(node.module)
            if module in UNDOCUMENTED_MODULES or is_private(module):
                names.add(module)
            names |= {alias.name for alias in node.names if is_private(alias.name) and alias.name not in own}
        elif isinstance(node, ast.Attribute) and is_private(node.attr):
            is_inherited = node.attr in INHERITED or is_super(node.value)
            if is_inherited or node.attr not in own:
                names.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if (
                node.value in INHERITED
                or node.value == COMPILED_PREFIX
                or re.fullmatch(r"torch(\.\w+)*\._\w+", node.value)
            ):
                names.add(node.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ATTRIBUTE_FUNCTIONS:
            texts = {argument.value for argument in node.args if isinstance(argument, ast.Constant)}
            names |= {text for text in texts if isinstance(text, str) and is_private(text) and text not in own}
    return names - DOCUMENTED


def is_super(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


def all_private_names() -> dict[str, set[str]]:
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted((ROOT / "regard").rglob("*.py"))}
    own = set().union(*map(defined_names, trees.values()))
    names = {path.relative_to(ROOT).as_posix(): private_names(tree, own) for path, tree in trees.items()}
    return {path: found for path, found in names.items() if found}


def test_every_private_name_is_listed() -> None:
    listed: dict[str, set[str]] = {}
    for files in USED.values():
        for path, names in files.items():
            listed[path] = listed.get(path, set()) | names
    assert all_private_names() == listed


def test_packages_whose_private_names_are_used_have_upper_bounds() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    requirements = [*project["dependencies"], *(requirement for extra in extras.values() for requirement in extra)]
    for package in USED:
        named = [requirement for requirement in requirements if re.match(rf"{package}\b", requirement)]
        assert named
        assert all(re.search(r",<\d", requirement) for requirement in named), f"{package} has no upper bound: {named}"


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import torch._dynamo", {"torch._dynamo"}),
        ("from torch.utils._pytree import tree_map", {"torch.utils._pytree"}),
        ("from torch import _foreach_mul_", {"_foreach_mul_"}),
        ("torch._C._jit_pass()", {"_C", "_jit_pass"}),
        ("metric._signature.info", {"_signature"}),
        ("getattr(console, '_live')", {"_live"}),
        ("self._modules", {"_modules"}),
        ("class A(B):\n    def _hook(self):\n        return super()._hook()", {"_hook"}),
        ("from uvicorn.protocols.http.h11_impl import H11Protocol", {"uvicorn.protocols.http.h11_impl"}),
        ("class A:\n    def __init__(self):\n        self._own = 1\n        print(self._own, __name__)", set()),
        ("point._replace(x=1); os._exit(0); config['eos_token_id']", set()),
    ],
)
def test_the_search_finds_private_names(source: str, names: set[str]) -> None:
    tree = ast.parse(source)
    assert private_names(tree, defined_names(tree)) == names


def test_the_pinned_versions_are_within_the_bounds() -> None:
    from packaging.requirements import Requirement

    pinned = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    for text in [*project["dependencies"], *(requirement for extra in extras.values() for requirement in extra)]:
        requirement = Requirement(text)
        assert pinned[requirement.name] in requirement.specifier
