"""Code that a solution has no use for, such as reading the call stack. It is listed for the teacher, and costs nothing.

Nothing that runs inside a process can be kept from examining that process. Code that tries is short to write and easy
to see, so the teacher is shown where to look.
"""

import ast
from contextlib import suppress
from dataclasses import dataclass

from regard.course.solution_file import parse_source

UNUSUAL_MODULES = {
    *("_thread", "atexit", "ctypes", "dis", "faulthandler", "ftplib", "gc", "http", "importlib", "inspect", "marshal"),
    *("mmap", "multiprocessing", "pickle", "psutil", "ptrace", "requests", "resource", "select", "shelve", "shutil"),
    *("signal", "site", "smtplib", "socket", "subprocess", "sysconfig", "threading", "traceback", "urllib", "regard"),
}
"""Modules that reach beyond a solution: the interpreter, other processes, files and the network."""
UNUSUAL_NAMES = {"__import__", "compile", "eval", "exec", "globals", "open"}
"""Built-in functions that are unusual in a solution, if they are called."""
UNUSUAL_ATTRIBUTES = {
    *("__builtins__", "__closure__", "__code__", "__globals__", "__subclasses__", "__torch_function__", "_exit"),
    *("_getframe", "_current_frames", "environ", "execv", "f_back", "f_globals", "f_locals", "fork", "getppid", "kill"),
    *("meta_path", "path_hooks", "popen", "setprofile", "settrace", "symlink", "system", "tb_frame"),
}
"""Attributes that give access to the interpreter or to other processes."""
LIED_ABOUT = {"__class__", "__eq__", "__instancecheck__", "__subclasscheck__", "__torch_function__"}
"""Methods with which objects can pretend to be others."""
MAX_REMARKS = 20


@dataclass(frozen=True)
class UnusualLine:
    """A line of a solution that a teacher may want to read."""

    line: int
    text: str
    """What it uses."""


def unusual_lines(source: str) -> list[UnusualLine]:
    """The unusual lines of a solution, in order; none if the source is not valid Python.

    >>> unusual_lines("import math, gc\\nclass A:\\n    def __eq__(self, other):\\n        return True\\n")
    [UnusualLine(line=1, text='import gc'), UnusualLine(line=3, text='def __eq__')]
    """
    tree = parse_source(source)
    if tree is None:
        return []
    modules = {alias.asname or alias.name.split(".")[0] for alias in _aliases(tree) if _is_torch(alias.name)}
    found: set[UnusualLine] = set()
    with suppress(RecursionError):  # from expressions that are nested too deeply to be shown
        for node in ast.walk(tree):
            if isinstance(node, ast.stmt | ast.expr):
                found.update(UnusualLine(node.lineno, text) for text in _unusual(node, modules))
    return sorted(found, key=lambda line: (line.line, line.text))[:MAX_REMARKS]


def _unusual(node: ast.stmt | ast.expr, torch_names: set[str]) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [f"import {alias.name}" for alias in names if alias.name.split(".")[0] in UNUSUAL_MODULES]
        case ast.ImportFrom(module=str(module)) if module.split(".")[0] in UNUSUAL_MODULES:
            return [f"import {module}"]
        case ast.Call(func=ast.Name(id=name)) if name in UNUSUAL_NAMES:
            return [f"{name}()"]
        case ast.Attribute(attr=name) if name in UNUSUAL_ATTRIBUTES:
            return [f".{name}"]
        case ast.FunctionDef(name=name) if name in LIED_ABOUT:
            return [f"def {name}"]
        case ast.Assign(targets=targets):
            return [f"replaces {ast.unparse(target)}" for target in targets if _is_in_torch(target, torch_names)]
    return []


def _is_in_torch(target: ast.expr, torch_names: set[str]) -> bool:
    """Whether the target of an assignment is an attribute of a module of torch, other than one of its settings."""
    root = target
    while isinstance(root, ast.Attribute):
        root = root.value
    is_attribute = isinstance(target, ast.Attribute) and isinstance(root, ast.Name) and root.id in torch_names
    return is_attribute and ".backends." not in ast.unparse(target)


def _aliases(tree: ast.Module) -> list[ast.alias]:
    return [alias for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom) for alias in node.names]


def _is_torch(name: str) -> bool:
    return name.split(".")[0] in ("torch", "nn", "functional")
