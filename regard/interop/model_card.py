"""A model card beside weights: what is known of the model, how well it does, and a program that uses it."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.config import ModelConfig
from regard.data.opus_tokenizer import OpusTokenizer
from regard.decoding.text_model import Model
from regard.formatting import code_cell, duration, safe
from regard.storage.metadata import Scored, Trained, tests_of, text_of, texts_of, trained_of

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
NO_TEXTS = {"no", "yes", "on", "off", "true", "false", "null"}
"""words that YAML takes for something else"""
PARAGRAPH = 5_000
"""characters of a list of files, or of a note"""


def write_card(
    stored: Model, folder: Path, shape: str, dtype: str, architecture: str = "", notes: Sequence[str] = ()
) -> None:
    """`README.md` in the form that model hubs show; `architecture` is that of a Hugging Face folder."""
    article = "An" if stored.config.kind.startswith("e") else "A"
    title = text_of(stored.about, "name") or f"{article} {stored.config.kind} by Regard"
    sections = [
        _head(stored, shape),
        f"# {safe(title)}",
        _what(stored, shape, dtype),
        _tests(tests_of(stored.about), shape),
        _known(stored.about),
        text_of(stored.about, "card"),
        _beware(dict.fromkeys([*_limits(stored), *texts_of(stored.about, "notes"), *notes])),
        _use(stored, shape, architecture),
    ]
    (folder / "README.md").write_text("\n\n".join(each for each in sections if each) + "\n", encoding="utf-8")


def _head(stored: Model, shape: str) -> str:
    library = shape if shape in ("ctranslate2", "regard") else "transformers"
    lines = [f"library_name: {library}", "tags:", "- regard"]
    languages = texts_of(stored.about, "languages")
    lines += ["language:", *(f"- {_yaml(language)}" for language in languages)] if languages else []
    if stored.config.kind == "encoder-decoder":
        lines.append("pipeline_tag: translation")
    elif stored.config.kind == "decoder":
        lines.append("pipeline_tag: text-generation")
    return "\n".join(["---", *lines, "---"])


def _yaml(text: str) -> str:
    """A text in YAML, which takes some words, as Norwegian's code, for truth values, and JSON's quotes for a text's."""
    plain = re.fullmatch(r"[A-Za-z]{2,}([-_]\w+)*", text, re.A) and text.lower() not in NO_TEXTS
    return text if plain else json.dumps(text)


def _listed(value: Any) -> list[str]:
    """One text or several, or named values, as lines; what is there again is counted."""
    if isinstance(value, dict):
        return [f"{name}: {_inline(each)}" for name, each in value.items()]
    if isinstance(value, list | tuple):
        return [f"{each} ({n} times)" if n > 1 else each for each, n in Counter(map(_inline, value)).items()]
    return [] if value is None else [str(value)]


def _inline(value: Any) -> str:
    """The same within a line."""
    return ", ".join(_listed(value))


def _what(stored: Model, shape: str, dtype: str) -> str:
    config: ModelConfig = stored.config
    count = sum(parameter.numel() for parameter in stored.network.parameters())
    layers = f"{config.layers}" + (f" + {config.decoder_depth}" * (config.kind == "encoder-decoder"))
    place = "Written by Regard" + (f" in the shape of {shape}" * (shape != "regard"))
    return (
        f"A Transformer of the kind {config.kind}: {layers} layers, {config.heads} heads, width {config.d_model}, "
        f"{config.vocab_size:,} ids, {count:,} parameters. {place}, as {dtype}."
    )


def _tests(tests: Sequence[Scored], shape: str) -> str:
    """Scores on test sets: a table for each."""
    if not tests:
        return ""
    blocks = [] if shape == "regard" else ["Of the model in Regard, before it was written for another engine."]
    for test in tests:
        asked = f" ({safe(test.asked)})" if test.asked else ""
        since = f". The scores were measured before it was written as {safe(test.rounded)}." if test.rounded else ""
        lines = ["| | score | 95 % interval | sacreBLEU signature |", "|---|---|---|---|"]
        for each in test.figures:
            interval = "" if each.low is None or each.high is None else f"{each.low:.1f} – {each.high:.1f}"
            value = f"{each.value:.1f}" if each.value < 1e6 else f"{each.value:.3g}"
            lines.append(f"| {' | '.join([safe(each.name), value, interval, code_cell(each.signature)])} |")
        blocks += [f"**{safe(test.set)}**{asked}{since}", "\n".join(lines)]
    return "\n\n".join(["## Scores", *blocks])


def _known(about: dict[str, Any]) -> str:
    """Recipe, data, scores and origin, as far as they are known."""
    recipe = about.get("recipe")
    told = about | {"recipe": recipe.get("name") if isinstance(recipe, dict) else recipe}  # a run keeps all of it
    known = [f"{name}: {_inline(told[name])}" for name in ("origin", "data", "recipe") if told.get(name)]
    trained = trained_of(about)
    known += [] if trained is None else [f"trained: {_amount(trained)}"]
    known += _validation(about.get("scores"))
    lines = [f"- {safe(each, PARAGRAPH)}" for each in known]
    return "\n".join(["## How it came about", "", *(lines or ["Nothing was recorded of how it was trained."])])


def _validation(scores: Any) -> list[str]:
    """A run's scores on its validation text in one line; others as they are told."""
    if not isinstance(scores, dict) or "set" not in scores:
        return _listed(scores)
    told = {name: f"{value:.4g}" if isinstance(value, float) else str(value) for name, value in scores.items()}
    return [f"{told.pop('set')}: {', '.join(f'{name} {value}' for name, value in told.items())}"]


def _amount(trained: Trained) -> str:
    """Steps, tokens, time and place, as `regard export` found them in the run's log."""
    time = duration(trained.seconds)
    return f"{trained.steps:,} steps, {trained.tokens:,} target tokens, {time} of training on {trained.place}"


def _limits(stored: Model) -> list[str]:
    """What the model has not learned, as far as it is known."""
    longest = stored.about.get("longest")
    if not isinstance(longest, int) or not stored.can("translate"):
        return []
    return [f"No source that it learned from has more than {longest} tokens: Regard translates longer ones in parts."]


def _beware(notes: dict[str, None]) -> str:
    return "\n".join(["## What to know", "", *(f"- {safe(note, PARAGRAPH)}" for note in notes)]) if notes else ""


def _use(stored: Model, shape: str, architecture: str) -> str:
    """A program to be pasted: a text in, what the model makes of it out."""
    commands = []
    if shape == "regard":
        code, commands = _regard(stored), _commands(stored)
    else:
        code = _ctranslate2(stored) if shape == "ctranslate2" else _transformers(stored, architecture)
    return "\n".join(["## How it is used", "", *commands, "```python", *code, "```"])


FOLDER = 'folder = "."  # where this card lies'
NO_TOKENIZER = "of your text: this folder has no tokenizer"


def _text(stored: Model) -> str:
    writes_on = stored.config.kind == "decoder" and stored.special.separator is None
    return 'text = "Once upon a time"' if writes_on else 'text = "Le petit chat dort."'


def _fills_gaps(stored: Model, architecture: str) -> bool:
    if stored.tokenizer is None or _is_opus(stored):
        return False
    return architecture == "BertForMaskedLM" and "mask_token" in stored.tokenizer.settings


def _room(config: ModelConfig) -> int:
    """Tokens that a decoder is to write in the example: its prompt needs positions too."""
    return max(1, min(50, config.max_length // 2))


def _is_opus(stored: Model) -> bool:
    return isinstance(stored.tokenizer, OpusTokenizer)


def _commands(stored: Model) -> list[str]:
    """What is typed where this card lies."""
    if stored.tokenizer is None or stored.config.kind == "encoder":
        return []
    verb = "translate" if stored.can("translate") else "generate"
    return ["```sh", f"regard {verb} {_text(stored).partition(' = ')[2]} --model .", "```", ""]


def _regard(stored: Model) -> list[str]:
    code = ["import regard", "", FOLDER, "m = regard.load(folder)", ""]
    config = stored.config
    if stored.tokenizer is None:
        return [*code, f"print(m.network)  # it takes ids {NO_TOKENIZER}"]
    if stored.can("translate"):
        ask = "translate([text])"
    elif config.kind == "decoder":
        ask = f"generate(text, max_tokens={_room(config)})"
    else:
        ask = "classify([text])" if config.classes else "attend(text)"
    return [*code, _text(stored), f"print(m.{ask})"]


def _transformers(stored: Model, architecture: str) -> list[str]:
    name, has_tokenizer = LOADED_BY[architecture], stored.tokenizer is not None
    decoder_translates = stored.config.kind == "decoder" and stored.special.separator is not None
    options = ", add_pooling_layer=False" if architecture == "BertModel" else ""  # its weights would be random
    code = ["import torch"] if not has_tokenizer or decoder_translates else []
    code += [f"from transformers import {name}" + (", AutoTokenizer" * has_tokenizer), "", FOLDER]
    code += ["tokenizer = AutoTokenizer.from_pretrained(folder)"] if has_tokenizer else []
    code += [f"model = {name}.from_pretrained(folder{options})", ""]
    if not has_tokenizer:
        code.append(f"ids = torch.tensor([[1, 2, 3]])  # {NO_TOKENIZER}")
    elif decoder_translates:
        behind = f"{stored.special.separator}]])  # the last parts a source from its translation"
        code += [_text(stored), f"ids = torch.tensor([[*tokenizer(text).input_ids, {behind}"]
    else:
        gap = 'text = f"Paris is in {tokenizer.mask_token}."'
        code += [gap if _fills_gaps(stored, architecture) else _text(stored)]
        code += ['ids = tokenizer(text, return_tensors="pt").input_ids']
    return code + _answer(stored, architecture, decoder_translates)


def _answer(stored: Model, architecture: str, decoder_translates: bool) -> list[str]:
    """What `model` of `transformers` makes of `ids`, printed."""
    config, has_tokenizer = stored.config, stored.tokenizer is not None
    if config.kind == "encoder-decoder":
        said, code = "output[0]", ["output = model.generate(ids)"]
    elif config.kind == "decoder":
        said = "output[0, ids.size(1) :]" if decoder_translates else "output[0]"
        code = [f"output = model.generate(ids, max_new_tokens={_room(config)})"]
    elif architecture == "BertModel":
        return [
            "states = model(ids).last_hidden_state  # a vector for each token",
            "print(states.mean(1))  # one for the text",
        ]
    elif config.classes:
        return ["best = model(ids).logits[0].argmax().item()", "print(model.config.id2label[best])"]
    else:
        said, code = "best", ["best = model(ids).logits[0].argmax(-1)  # the likeliest token at each place"]
    return [*code, f"print(tokenizer.decode({said}, skip_special_tokens=True))" if has_tokenizer else f"print({said})"]


def _ctranslate2(stored: Model) -> list[str]:
    config = stored.config
    what = {"encoder-decoder": "Translator", "decoder": "Generator", "encoder": "Encoder"}[config.kind]
    packages, opened, tokens = _ctranslate2_reading(stored)
    if config.kind == "decoder" and stored.special.separator is not None and stored.tokenizer is not None:
        tokens[-1] = tokens[-1].replace(
            "tokenizer.encode(text).tokens",
            f"[*tokenizer.encode(text).tokens, {json.dumps(stored.tokenizer.token(stored.special.separator))}]",
        )
    code = ["import ctranslate2", *(["import numpy as np"] if config.kind == "encoder" else []), *packages, "", FOLDER]
    code += [*opened, f"model = ctranslate2.{what}(folder)", "", *tokens]
    if config.kind == "encoder":
        return [
            *code,
            "states = np.array(model.forward_batch([tokens]).last_hidden_state)  # a vector for each token",
            "print(states.mean(1))  # one for the text",
        ]
    if config.kind == "decoder":
        alone = ", include_prompt_in_result=False" if stored.special.separator is not None else ""
        code += [
            f"result = model.generate_batch([tokens], max_length={_room(config)}{alone})[0]",
            "ids = result.sequences_ids[0]",
        ]
        return [*code, "print(tokenizer.decode(ids))" if stored.tokenizer is not None else "print(ids)"]
    room = f"min_decoding_length=0, max_decoding_length={config.max_length}"
    code += [f"result = model.translate_batch([tokens], {room})[0]", "said = result.hypotheses[0]"]
    if stored.tokenizer is None:
        return [*code, "print(said)"]
    if _is_opus(stored):
        return [*code, "print(target.decode(said))"]
    return [*code, "print(tokenizer.decode([tokenizer.token_to_id(token) for token in said]))"]


def _ctranslate2_reading(stored: Model) -> tuple[list[str], list[str], list[str]]:
    """What is imported to make `tokens`, what is opened, and how they are made."""
    if stored.tokenizer is None:
        return [], [], [f'tokens = ["<id1>", "<id2>", "<id3>"]  # {NO_TOKENIZER}']
    if _is_opus(stored):
        package = ["from sentencepiece import SentencePieceProcessor"]
        sides = [
            f'{side} = SentencePieceProcessor(model_file=f"{{folder}}/{side}.spm")' for side in ("source", "target")
        ]
        return package, sides, [_text(stored), 'tokens = [*source.encode(text, out_type=str), "</s>"]']
    opened = ['tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")']
    return ["from tokenizers import Tokenizer"], opened, [_text(stored), "tokens = tokenizer.encode(text).tokens"]
