"""Checks the annotations of Regard's modules at run time. Import this module before the first import of regard."""

from pathlib import Path

import jaxtyping

PACKAGE = Path(__file__).parents[2] / "regard"


def check_shapes() -> None:
    """Check every call into modules that annotate shapes. Elsewhere mypy suffices; the checks are slow."""
    modules = [
        ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts)
        for file in PACKAGE.rglob("*.py")
        if "from jaxtyping import" in file.read_text(encoding="utf-8")
    ]
    jaxtyping.install_import_hook(modules, "beartype.beartype")
