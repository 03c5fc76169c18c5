"""A short model card beside exported weights: what is known of the model, and how it is loaded."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.config import ModelConfig
from regard.store import Stored

LOADED_BY = {
    "MarianMTModel": "AutoModelForSeq2SeqLM",
    "PegasusForConditionalGeneration": "AutoModelForSeq2SeqLM",
    "GPT2LMHeadModel": "AutoModelForCausalLM",
    "LlamaForCausalLM": "AutoModelForCausalLM",
    "BertModel": "AutoModel",
    "BertForMaskedLM": "AutoModelForMaskedLM",
    "BertForSequenceClassification": "AutoModelForSequenceClassification",
    "BertForTokenClassification": "AutoModelForTokenClassification",
}
"""which class of `transformers` loads which architecture with its head"""


def write_card(
    stored: Stored, folder: Path, shape: str, dtype: str, architecture: str = "", notes: Sequence[str] = ()
) -> None:
    """`README.md` in the form that model hubs show; `architecture` is that of a Hugging Face folder."""
    article = "An" if stored.config.kind.startswith("e") else "A"
    title = str(stored.about.get("name") or f"{article} {stored.config.kind} by Regard")
    sections = [
        _head(stored, shape),
        f"# {title}",
        _what(stored, shape, dtype),
        _known(stored.about),
        _beware(dict.fromkeys([*_listed(stored.about.get("notes")), *notes])),
        _use(stored, shape, architecture),
    ]
    (folder / "README.md").write_text("\n\n".join(each for each in sections if each) + "\n", encoding="utf-8")


def _head(stored: Stored, shape: str) -> str:
    lines = ["library_name: " + ("ctranslate2" if shape == "ctranslate2" else "transformers"), "tags:", "- regard"]
    languages = _listed(stored.about.get("languages"))
    lines += ["language:", *(f"- {language}" for language in languages)] if languages else []
    if stored.config.kind == "encoder-decoder":
        lines.append("pipeline_tag: translation")
    elif stored.config.kind == "decoder":
        lines.append("pipeline_tag: text-generation")
    return "\n".join(["---", *lines, "---"])


def _listed(value: Any) -> list[str]:
    """One text or several, or named values, as lines."""
    if isinstance(value, dict):
        return [f"{name}: {_inline(each)}" for name, each in value.items()]
    if isinstance(value, list | tuple):
        return [_inline(each) for each in value]
    return [] if value is None else [str(value)]


def _inline(value: Any) -> str:
    """The same within a line."""
    return ", ".join(_listed(value))


def _what(stored: Stored, shape: str, dtype: str) -> str:
    config: ModelConfig = stored.config
    count = sum(parameter.numel() for parameter in stored.network.parameters())
    layers = f"{config.layers}" + (f" + {config.decoder_layers or config.layers}" * (config.kind == "encoder-decoder"))
    return (
        f"A Transformer of the kind {config.kind}: {layers} layers, {config.heads} heads, width {config.d_model}, "
        f"{config.vocab_size:,} ids, {count:,} parameters. Written by Regard in the shape of {shape}, as {dtype}."
    )


def _known(about: dict[str, Any]) -> str:
    """Recipe, data, scores and origin, as far as they are known."""
    lines = [f"- {name}: {_inline(about[name])}" for name in ("origin", "data", "recipe") if about.get(name)]
    lines += [f"- {each}" for each in _listed(about.get("scores"))]
    return "\n".join(["## How it came about", "", *(lines or ["Nothing was recorded of how it was trained."])])


def _beware(notes: dict[str, None]) -> str:
    return "\n".join(["## What to know", "", *(f"- {note}" for note in notes)]) if notes else ""


def _use(stored: Stored, shape: str, architecture: str) -> str:
    if shape == "ctranslate2":
        what = {"encoder-decoder": "Translator", "decoder": "Generator", "encoder": "Encoder"}[stored.config.kind]
        code = ["import ctranslate2", "", f'model = ctranslate2.{what}("THIS_FOLDER")']
        if stored.config.kind == "encoder-decoder":
            code.append(
                "model.translate_batch([tokens], min_decoding_length=0)  # tokens of its tokenizer, the last </s>"
            )
    else:
        name = LOADED_BY[architecture]
        code = [f"from transformers import {name}" + (", AutoTokenizer" if stored.tokenizer is not None else ""), ""]
        code += ['tokenizer = AutoTokenizer.from_pretrained("THIS_FOLDER")'] if stored.tokenizer is not None else []
        code += [f'model = {name}.from_pretrained("THIS_FOLDER")']
    return "\n".join(["## How it is loaded", "", "```python", *code, "```"])
