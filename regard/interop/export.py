"""`regard export`: a model's folder for another engine, there whole or not at all."""

from pathlib import Path
from typing import Literal

from regard.config import check_type
from regard.files import new_folder
from regard.interop.card import write_card
from regard.interop.ct2 import export_ctranslate2
from regard.interop.huggingface import export_huggingface
from regard.store import Stored, check_writable

Engine = Literal["huggingface", "ctranslate2"]


def export(m: Stored, folder: Path | str, to: Engine = "huggingface", dtype: str = "float32") -> None:
    """Write the model `m` for Hugging Face's `transformers` (and what reads its folders) or for CTranslate2.

    `dtype` is float32, float16 or bfloat16, and for CTranslate2 also one of its quantisations, such as int8.
    """
    check_type("to", to, Engine)
    folder = Path(folder)
    check_writable(m, folder)
    with new_folder(folder) as temporary:
        if to == "huggingface":
            written = export_huggingface(m, temporary, dtype)
            write_card(m, temporary, written.shape, dtype, written.architecture, written.notes)
        else:
            export_ctranslate2(m, temporary, dtype)
            write_card(m, temporary, "ctranslate2", dtype)
