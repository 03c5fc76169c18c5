"""Exporting a model folder for Regard or another engine, atomically."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

from regard.atomic_files import new_folder
from regard.config import check_type, did_you_mean
from regard.decoding.fast_copy import check_not_copy
from regard.decoding.own_network import check_regards_own
from regard.decoding.text_model import Model
from regard.errors import RegardError
from regard.interop.ctranslate2_export import CTRANSLATE2_DTYPES, export_ctranslate2
from regard.interop.huggingface import export_huggingface
from regard.interop.model_card import write_card
from regard.interop.onnx_export import export_onnx
from regard.storage.model_folder import (
    RECIPE_FILE,
    STORED_DTYPES,
    about_rounded,
    check_writable,
    model_files,
    write_manifest,
)
from regard.storage.weights import WRITABLE_DTYPES

ExportTarget = Literal["huggingface", "ctranslate2", "onnx", "regard"]
SUPPORTED_DTYPES: dict[ExportTarget, tuple[str, ...]] = {
    "huggingface": tuple(WRITABLE_DTYPES),
    "ctranslate2": CTRANSLATE2_DTYPES,
    "onnx": ("float32",),
    "regard": STORED_DTYPES,
}
DTYPE_ALIASES = {
    **dict.fromkeys(("fp32", "f32", "float"), "float32"),
    **dict.fromkeys(("fp16", "f16", "half"), "float16"),
    **dict.fromkeys(("bf16", "bfloat"), "bfloat16"),
}
"""Other common names of the types, for suggestions."""


def export(
    model: Model,
    folder: Path | str,
    to: ExportTarget = "huggingface",
    dtype: str = "float32",
    recipe: str | None = None,
    force: bool = False,
) -> None:
    """Write a model and its model card for Hugging Face's `transformers`, for CTranslate2, for ONNX, or for Regard.

    `dtype` is float32, float16 or bfloat16; for Regard also int8, for CTranslate2 all its quantised types, and for ONNX
    only float32. `recipe` is the text of the recipe to include. The folder must be new or empty. With `force`, an
    existing model is replaced and other files in the folder are kept.
    """
    check_type("to", to, ExportTarget)
    check_dtype(dtype, to)
    folder = Path(folder)
    check_not_copy(model.network, "save or export")
    check_regards_own(model.network, "export")
    check_writable(folder, model.config, model.special, force)
    model = replace(model, about=about_rounded(model.about, model.network, dtype))
    with new_folder(folder, force=force, obsolete=model_files(folder)) as temporary:
        if recipe is not None:
            (temporary / RECIPE_FILE).write_text(recipe, encoding="utf-8")
        if to == "huggingface":
            exported = export_huggingface(model, temporary, dtype)
            write_card(model, temporary, exported.model_type, dtype, exported.architecture, exported.notes)
        elif to == "ctranslate2":
            export_ctranslate2(model, temporary, dtype)
            write_card(model, temporary, "ctranslate2", dtype)
        elif to == "onnx":
            export_onnx(model, temporary)
            write_card(model, temporary, "onnx", dtype)
        else:
            model.write_files(temporary, dtype)
            write_card(model, temporary, "regard", dtype)
            write_manifest(temporary)


def check_dtype(dtype: str, to: ExportTarget) -> None:
    """Raise RegardError, with a suggestion, if the target does not support this type."""
    supported = SUPPORTED_DTYPES[to]
    if dtype in supported:
        return
    if targets := [f"--to {target}" for target in SUPPORTED_DTYPES if dtype in SUPPORTED_DTYPES[target]]:
        raise RegardError(f"dtype={dtype!r} requires {' or '.join(targets)}; {to} supports {', '.join(supported)}")
    raise RegardError(f"unknown dtype {dtype!r}: {did_you_mean(DTYPE_ALIASES.get(dtype, dtype), supported)}")
