"""Parts of tokenizer.json files."""

from typing import Any


def added_token(content: object, id_: object = 5_000) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": id_, "content": content, "special": True} | flags


def replace_normalizer(times: int, by: str, pattern: dict[str, str] | None = None) -> dict[str, Any]:
    step = {"type": "Replace", "pattern": pattern or {"String": "a"}, "content": by}
    return {"type": "Sequence", "normalizers": [step] * times}


def template_processor(ids: int = 1, texts: int = 1) -> dict[str, Any]:
    """Return a template that puts `ids` ids before a text and repeats the text `texts` times."""
    text = {"Sequence": {"id": "A", "type_id": 0}}
    token = {"id": "</s>", "ids": [0] * ids, "tokens": ["</s>"] * ids}
    single = [{"SpecialToken": {"id": "</s>", "type_id": 0}}, *[text] * texts]
    return {"type": "TemplateProcessing", "single": single, "pair": [text], "special_tokens": {"</s>": token}}


def split_pre_tokenizer(regex: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
