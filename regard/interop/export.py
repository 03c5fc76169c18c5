"""`regard export`: a model's folder for Regard or another engine, there whole or not at all."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

from regard.atomic_files import new_folder
from regard.config import check_type, did_you_mean
from regard.decoding.text_model import Model
from regard.errors import RegardError
from regard.interop.ctranslate2_export import DTYPES, export_ctranslate2
from regard.interop.huggingface import export_huggingface
from regard.interop.model_card import write_card
from regard.storage.model_folder import RECIPE, about_rounded, check_writable, model_files, write_manifest
from regard.storage.weights import FLOATS

Engine = Literal["huggingface", "ctranslate2", "regard"]
SHORT = {
    **dict.fromkeys(("fp32", "f32", "float"), "float32"),
    **dict.fromkeys(("fp16", "f16", "half"), "float16"),
    **dict.fromkeys(("bf16", "bfloat"), "bfloat16"),
}
"""what others call the types"""


def export(
    m: Model,
    folder: Path | str,
    to: Engine = "huggingface",
    dtype: str = "float32",
    recipe: str | None = None,
    force: bool = False,
) -> None:
    """Write the model `m` with its card for Hugging Face's `transformers` (and what reads its folders), for
    CTranslate2, or for Regard.

    `dtype` is float32, float16 or bfloat16, and for CTranslate2 also one of its quantisations, such as int8. `recipe`
    is the text of a recipe to lie beside it. The folder must be new or empty; with `force` a model that is there is
    replaced, and files of other names stay.
    """
    check_type("to", to, Engine)
    check_dtype(dtype, to)
    folder = Path(folder)
    m.network.check_whole("save or export")
    check_writable(folder, m.config, m.special, force)
    m = replace(m, about=about_rounded(m.about, m.network, dtype))
    with new_folder(folder, force=force, obsolete=model_files(folder)) as temporary:
        if recipe is not None:
            (temporary / RECIPE).write_text(recipe, encoding="utf-8")
        if to == "huggingface":
            written = export_huggingface(m, temporary, dtype)
            write_card(m, temporary, written.shape, dtype, written.architecture, written.notes)
        elif to == "ctranslate2":
            export_ctranslate2(m, temporary, dtype)
            write_card(m, temporary, "ctranslate2", dtype)
        else:
            m.write_files(temporary, dtype)
            write_card(m, temporary, "regard", dtype)
            write_manifest(temporary)


def check_dtype(dtype: str, to: Engine) -> None:
    """A ValueError that names the type that was meant, or the engine that has it."""
    known = DTYPES if to == "ctranslate2" else tuple(FLOATS)
    if dtype in known:
        return
    if dtype in DTYPES:
        raise RegardError(f"dtype={dtype!r} is for CTranslate2 (--to ctranslate2): for {to} it is {', '.join(known)}")
    raise RegardError(f"dtype={dtype!r} is not a choice: {did_you_mean(SHORT.get(dtype, dtype), known)}")
