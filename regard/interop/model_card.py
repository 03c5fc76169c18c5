"""Writing the model card: the README.md of an exported folder, with architecture, scores, training and usage."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.config import ModelConfig
from regard.data.opus_tokenizer import OpusTokenizer
from regard.data.tokenizer_pair import TARGET_TOKENIZER_FILES, TARGET_TOKENIZER_FOLDER, TokenizerPair
from regard.decoding.capabilities import TextTask
from regard.decoding.text_model import Model
from regard.formatting import code_cell, duration, escape_markdown
from regard.storage.metadata import (
    TestScores,
    TrainingSummary,
    string_of,
    strings_of,
    test_scores_of,
    training_summary_of,
)
from regard.word_splitter import split_words

YAML_RESERVED_WORDS = {"no", "yes", "on", "off", "true", "false", "null"}
"""Words that YAML does not read as strings."""
EXAMPLE_SENTENCES = {
    "fr": "Le petit chat dort.",
    "en": "The little cat is sleeping.",
    "de": "Die kleine Katze schläft.",
}
"""A sentence for the example of a card, by the language that the model reads; French for all others."""
MAX_PARAGRAPH_CHARS = 5_000
"""Maximum length of a list of files or of a note, in characters."""


def write_card(
    model: Model, folder: Path, target: str, dtype: str, architecture: str = "", notes: Sequence[str] = ()
) -> None:
    """Write `README.md` in the format of model hubs.

    `target` is regard, ctranslate2, onnx or the model_type of a Hugging Face folder, `architecture` the latter's class.
    """
    title = string_of(model.about, "name") or f"{model.config.kind_with_article.capitalize()} by Regard"
    sections = [
        _front_matter(model, target),
        f"# {escape_markdown(title)}",
        _description(model, target, dtype),
        _scores(test_scores_of(model.about), target),
        _training(model.about),
        string_of(model.about, "card"),
        _notes(dict.fromkeys([*_limits(model), *strings_of(model.about, "notes"), *notes])),
        _usage(model, target, architecture),
    ]
    (folder / "README.md").write_text("\n\n".join(section for section in sections if section) + "\n", encoding="utf-8")


def _front_matter(model: Model, target: str) -> str:
    library = target if target in ("ctranslate2", "onnx", "regard") else "transformers"
    lines = [f"library_name: {library}", "tags:", "- regard"]
    languages = strings_of(model.about, "languages")
    lines += ["language:", *(f"- {_yaml(language)}" for language in languages)] if languages else []
    if model.config.kind == "encoder-decoder":
        lines.append("pipeline_tag: translation")
    elif model.config.kind == "decoder":
        lines.append("pipeline_tag: text-generation")
    return "\n".join(["---", *lines, "---"])


def _yaml(text: str) -> str:
    """Quote a string for YAML where necessary: it reads some words, such as the code of Norwegian, as booleans."""
    plain = re.fullmatch(r"[A-Za-z]{2,}([-_]\w+)*", text, re.A) and text.lower() not in YAML_RESERVED_WORDS
    return text if plain else json.dumps(text)


def _lines(value: Any) -> list[str]:
    """Return a string, a list or a dictionary as lines; repeated entries are counted."""
    if isinstance(value, dict):
        return [f"{name}: {_inline(entry)}" for name, entry in value.items()]
    if isinstance(value, list | tuple):
        return [f"{entry} ({n} times)" if n > 1 else entry for entry, n in Counter(map(_inline, value)).items()]
    return [] if value is None else [str(value)]


def _inline(value: Any) -> str:
    """Return the same in one line."""
    return ", ".join(_lines(value))


def _description(model: Model, target: str, dtype: str) -> str:
    config: ModelConfig = model.config
    count, layers = model.network.parameter_count, str(config.layers)
    if config.kind == "encoder-decoder":
        layers += f" + {config.decoder_depth}"
    written = "Written by Regard" if target == "regard" else f"Exported by Regard for {_engine(target)}"
    return (
        f"This model is {config.kind_with_article} Transformer with {layers} layers, {config.heads} heads, model width "
        f"{config.d_model}, a vocabulary of {config.vocabulary_sizes} and {count:,} parameters. {written} in {dtype}."
    )


def _engine(target: str) -> str:
    names = {"ctranslate2": "CTranslate2", "onnx": "ONNX Runtime"}
    return names.get(target, f"transformers (model type {target})")


def _scores(tests: Sequence[TestScores], target: str) -> str:
    """Return a table of scores for each test set."""
    if not tests:
        return ""
    blocks = [] if target == "regard" else ["These scores were measured in Regard, before the export."]
    for test in tests:
        options = f" ({escape_markdown(test.asked)})" if test.asked else ""
        rounding = (
            f". Measured before the weights were converted to {escape_markdown(test.rounded)}." if test.rounded else ""
        )
        lines = ["| | score | 95% interval | sacreBLEU signature |", "|---|---|---|---|"]
        for figure in test.figures:
            interval = "" if figure.low is None or figure.high is None else f"{figure.low:.1f} – {figure.high:.1f}"
            cells = [escape_markdown(figure.name), figure.text, interval, code_cell(figure.signature)]
            lines.append(f"| {' | '.join(cells)} |")
        blocks += [f"**{escape_markdown(test.set)}**{options}{rounding}", "\n".join(lines)]
    return "\n\n".join(["## Scores", *blocks])


def _training(about: dict[str, Any]) -> str:
    """Return the origin, data, recipe, amount of training and validation scores, as far as they are recorded."""
    recipe = about.get("recipe")
    # A run records the complete recipe; the card needs only its name.
    facts = about | {"recipe": recipe.get("name") if isinstance(recipe, dict) else recipe}
    known = [f"{name}: {_inline(facts[name])}" for name in ("origin", "data", "recipe") if facts.get(name)]
    trained = training_summary_of(about)
    known += [] if trained is None else [f"trained: {_amount(trained)}"]
    known += _validation(about.get("scores"))
    lines = [f"- {escape_markdown(line, MAX_PARAGRAPH_CHARS)}" for line in known]
    return "\n".join(["## Training", "", *(lines or ["Nothing was recorded about its training."])])


def _validation(scores: Any) -> list[str]:
    """Return the scores of a run on its validation text as one line, and any other record as it is."""
    if not isinstance(scores, dict) or "set" not in scores:
        return _lines(scores)
    values = {name: f"{value:.4g}" if isinstance(value, float) else str(value) for name, value in scores.items()}
    return [f"{values.pop('set')}: {', '.join(f'{name} {value}' for name, value in values.items())}"]


def _amount(trained: TrainingSummary) -> str:
    """Return steps, tokens, time and device, which `regard export` reads from the log of the run."""
    time = duration(trained.seconds)
    return f"{trained.steps:,} steps, {trained.tokens:,} target tokens, {time} of training on {trained.place}"


def _limits(model: Model) -> list[str]:
    """Return the known limits of the model."""
    longest = model.about.get("longest")
    if not isinstance(longest, int) or not model.can("translate"):
        return []
    return [
        f"It translates at most {longest} tokens in one piece, as in its training data, and longer sentences in parts."
    ]


def _notes(notes: dict[str, None]) -> str:
    return (
        "\n".join(["## Notes", "", *(f"- {escape_markdown(note, MAX_PARAGRAPH_CHARS)}" for note in notes)])
        if notes
        else ""
    )


def _usage(model: Model, target: str, architecture: str) -> str:
    """Return a command and a program that run the model on an example."""
    commands = []
    if target == "regard":
        code, commands = _regard(model), _commands(model)
    else:
        programs = {"ctranslate2": _ctranslate2, "onnx": _onnx}
        code = programs[target](model) if target in programs else _transformers(model, architecture)
    return "\n".join(["## Usage", "", *commands, "```python", *code, "```"])


FOLDER_LINE = 'folder = "."  # the folder of this card'
NO_TOKENIZER = "token ids: this folder has no tokenizer"


def _example_text(model: Model) -> str:
    if model.can("fill"):
        return 'text = "Le petit <mask> dort."'
    if model.config.kind == "decoder" and model.special.separator is None:
        return 'text = "Once upon a time"'
    return f'text = "{_example_sentence(model)}"'


def _example_sentence(model: Model) -> str:
    return EXAMPLE_SENTENCES.get(model.source_language or "", EXAMPLE_SENTENCES["fr"])


def _fills_masks(model: Model, architecture: str) -> bool:
    if model.tokenizer is None or _is_opus(model):
        return False
    return architecture.endswith("ForMaskedLM") and "mask_token" in model.tokenizer.settings


def _example_length(config: ModelConfig) -> int:
    """Return how many tokens a decoder generates in the example, which leaves positions for the prompt."""
    return max(1, min(50, config.max_length // 2))


def _is_opus(model: Model) -> bool:
    return isinstance(model.tokenizer, OpusTokenizer)


def _target_tokenizer(model: Model) -> str:
    """Return the name, in the example, of the tokenizer that decodes the output."""
    return "target_tokenizer" if isinstance(model.tokenizer, TokenizerPair) else "tokenizer"


def _commands(model: Model) -> list[str]:
    """Return the command for a shell in the folder of the card."""
    verbs: tuple[TextTask, ...] = ("translate", "generate", "fill", "tag")
    verb = next((verb for verb in verbs if model.can(verb)), None)
    if model.tokenizer is None or verb is None:
        return []
    return ["```sh", f"regard {verb} {_example_text(model).partition(' = ')[2]} --model .", "```", ""]


def _regard(model: Model) -> list[str]:
    code = ["import regard", "", FOLDER_LINE, "model = regard.load(folder)", ""]
    config = model.config
    if model.tokenizer is None:
        return [*code, f"print(model.network)  # it takes {NO_TOKENIZER}"]
    if model.can("translate"):
        call = "translate([text])"
    elif config.kind == "decoder":
        call = f"generate(text, max_tokens={_example_length(config)})"
    elif model.can("fill"):
        call = "fill(text)"
    else:
        call = "classify([text])" if config.is_classifier else "tag(text)" if config.is_tagger else "attend(text)"
    return [*code, _example_text(model), f"print(model.{call})"]


def _transformers(model: Model, architecture: str) -> list[str]:
    name, has_tokenizer = _auto_class(architecture), model.tokenizer is not None
    decoder_translates = model.config.kind == "decoder" and model.special.separator is not None
    has_pooler = architecture in ("BertModel", "RobertaModel", "XLMRobertaModel")
    options = ", add_pooling_layer=False" if has_pooler else ""  # a pooler would be random
    is_separate = model.config.target_vocab_size is not None
    code = ["import torch"] if not has_tokenizer or decoder_translates or is_separate else []
    imports = f"{name}, AutoTokenizer" if has_tokenizer else name
    code += [f"from transformers import {imports}", "", FOLDER_LINE]
    code += ["tokenizer = AutoTokenizer.from_pretrained(folder)"] if has_tokenizer else []
    if isinstance(model.tokenizer, TokenizerPair):
        subfolder = f'subfolder="{TARGET_TOKENIZER_FOLDER}"'
        code.append(f"target_tokenizer = AutoTokenizer.from_pretrained(folder, {subfolder})")
    code += [f"model = {name}.from_pretrained(folder{options})", ""]
    if not has_tokenizer:
        code.append(f"ids = torch.tensor([[1, 2, 3]])  # {NO_TOKENIZER}")
    elif decoder_translates:
        separator = f"{model.special.separator}]])  # the last id separates source and translation"
        code += [_example_text(model), f"ids = torch.tensor([[*tokenizer(text).input_ids, {separator}"]
    else:
        code += [_transformers_text(model, architecture)]
        code += ['ids = tokenizer(text, return_tensors="pt").input_ids']
    return code + _answer(model, architecture, decoder_translates)


def _transformers_text(model: Model, architecture: str) -> str:
    if _fills_masks(model, architecture):
        return 'text = f"Paris is in {tokenizer.mask_token}."'
    if model.config.is_tagger:
        return f'text = "{" ".join(split_words(_example_sentence(model)))}"  # spaces between words, as in training'
    return _example_text(model)


def _auto_class(architecture: str) -> str:
    """Return the Auto class of `transformers` that loads an architecture with its head."""
    if architecture.endswith(("MTModel", "ForConditionalGeneration")):
        return "AutoModelForSeq2SeqLM"
    if architecture.endswith(("LMHeadModel", "ForCausalLM")):
        return "AutoModelForCausalLM"
    head = re.search(r"For[A-Z]\w+$", architecture)  # as in RobertaForMaskedLM
    return f"AutoModel{head[0] if head else ''}"


def _answer(model: Model, architecture: str, decoder_translates: bool) -> list[str]:
    """Return the lines that run `model` of `transformers` on `ids` and print the result."""
    config, has_tokenizer = model.config, model.tokenizer is not None
    if config.kind == "encoder-decoder":
        mask = ""
        if config.target_vocab_size is not None:  # without a mask, an id that is <pad> on one side would be masked
            mask = ", attention_mask=torch.ones_like(ids)"
        result, code = "output[0]", [f"output = model.generate(ids{mask})"]
    elif config.kind == "decoder":
        result = "output[0, ids.size(1) :]" if decoder_translates else "output[0]"
        code = [f"output = model.generate(ids, max_new_tokens={_example_length(config)})"]
    elif architecture.endswith("Model"):
        return [
            "states = model(ids).last_hidden_state  # one vector per token",
            "print(states.mean(1))  # one vector for the text",
        ]
    elif config.is_tagger:
        return [
            "best = model(ids).logits[0].argmax(-1)  # the class of each token; that of a word is at its first token",
            "print([model.config.id2label[label] for label in best.tolist()])",
        ]
    elif config.classes:
        return ["best = model(ids).logits[0].argmax().item()", "print(model.config.id2label[best])"]
    else:
        result, code = "best", ["best = model(ids).logits[0].argmax(-1)  # the most likely token at each position"]
    return [
        *code,
        f"print({_target_tokenizer(model)}.decode({result}, skip_special_tokens=True))"
        if has_tokenizer
        else f"print({result})",
    ]


def _ctranslate2(model: Model) -> list[str]:
    config = model.config
    runner = {"encoder-decoder": "Translator", "decoder": "Generator", "encoder": "Encoder"}[config.kind]
    imports, opened, tokens = _ctranslate2_tokens(model)
    if config.kind == "decoder" and model.special.separator is not None and model.tokenizer is not None:
        tokens[-1] = tokens[-1].replace(
            "tokenizer.encode(text).tokens",
            f"[*tokenizer.encode(text).tokens, {json.dumps(model.tokenizer.token(model.special.separator))}]",
        )
    code = [
        "import ctranslate2",
        *(["import numpy as np"] if config.kind == "encoder" else []),
        *imports,
        "",
        FOLDER_LINE,
    ]
    code += [*opened, f"model = ctranslate2.{runner}(folder)", "", *tokens]
    if config.kind == "encoder":
        return [
            *code,
            "states = np.array(model.forward_batch([tokens]).last_hidden_state)  # one vector per token",
            "print(states.mean(1))  # one vector for the text",
        ]
    if config.kind == "decoder":
        without_prompt = ", include_prompt_in_result=False" if model.special.separator is not None else ""
        code += [
            f"result = model.generate_batch([tokens], max_length={_example_length(config)}{without_prompt})[0]",
            "ids = result.sequences_ids[0]",
        ]
        return [*code, "print(tokenizer.decode(ids))" if model.tokenizer is not None else "print(ids)"]
    limits = f"min_decoding_length=0, max_decoding_length={config.max_length}"
    code += [f"result = model.translate_batch([tokens], {limits})[0]", "output = result.hypotheses[0]"]
    if model.tokenizer is None:
        return [*code, "print(output)"]
    if _is_opus(model):
        return [*code, "print(target.decode(output))"]
    name = _target_tokenizer(model)
    return [*code, f"print({name}.decode([{name}.token_to_id(token) for token in output]))"]


def _ctranslate2_tokens(model: Model) -> tuple[list[str], list[str], list[str]]:
    """Return the imports, the lines that load the tokenizer, and the lines that make `tokens`."""
    if model.tokenizer is None:
        return [], [], [f'tokens = ["<id1>", "<id2>", "<id3>"]  # {NO_TOKENIZER}']
    if _is_opus(model):
        package = ["from sentencepiece import SentencePieceProcessor"]
        sides = [
            f'{side} = SentencePieceProcessor(model_file=f"{{folder}}/{side}.spm")' for side in ("source", "target")
        ]
        return package, sides, [_example_text(model), 'tokens = [*source.encode(text, out_type=str), "</s>"]']
    opened = ['tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")']
    if isinstance(model.tokenizer, TokenizerPair):
        opened.append(f'target_tokenizer = Tokenizer.from_file(f"{{folder}}/{TARGET_TOKENIZER_FILES[0]}")')
    return (
        ["from tokenizers import Tokenizer"],
        opened,
        [_example_text(model), "tokens = tokenizer.encode(text).tokens"],
    )


def _onnx(model: Model) -> list[str]:
    config, special = model.config, model.special
    imports, opened, tokens = _ctranslate2_tokens(model)
    if model.tokenizer is None or _is_opus(model):  # OPUS-MT's ids are not those of SentencePiece
        imports, opened, tokens = [], [], [f"ids = [1, 2, 3]  # {NO_TOKENIZER if model.tokenizer is None else 'ids'}"]
    else:
        tokens[-1] = "ids = tokenizer.encode(text).ids"
    if config.kind == "decoder" and special.separator is not None:
        tokens.append(f"ids.append({special.separator})  # separates source and translation")
    code = ["import numpy as np", "import onnxruntime", *imports, "", FOLDER_LINE, *opened, "", *tokens]
    if config.kind == "encoder":
        return [
            *code,
            'model = onnxruntime.InferenceSession(f"{folder}/model.onnx")',
            'inputs = {"input_ids": np.array([ids]), "attention_mask": np.ones((1, len(ids)), np.int64)}',
            'states = model.run(["last_hidden_state"], inputs)[0]  # one vector per token',
            "vector = states[0].mean(0)",
            "print(vector)  # one vector for the text",
        ]
    if config.kind == "decoder":
        code += ['model = onnxruntime.InferenceSession(f"{folder}/model.onnx")', "inputs, output = {}, list(ids)"]
    else:
        code += [
            'encoder = onnxruntime.InferenceSession(f"{folder}/encoder_model.onnx")',
            'model = onnxruntime.InferenceSession(f"{folder}/decoder_model.onnx")',
            "mask = np.ones((1, len(ids)), np.int64)",
            'states = encoder.run(None, {"input_ids": np.array([ids]), "attention_mask": mask})[0]',
            'inputs = {"encoder_hidden_states": states, "encoder_attention_mask": mask}',
            f"output = {list(special.target_start)}",
        ]
    suppressed = [f"    logits[{list(special.suppressed)}] = -np.inf"] if special.suppressed else []
    code += [
        "start = len(output)",
        f"for _ in range({_example_length(config)}):",
        '    logits = model.run(None, {**inputs, "input_ids": np.array([output])})[0][0, -1]',
        *suppressed,
        "    best = int(logits.argmax())",
        f"    if best in {list(special.end)}:",
        "        break",
        "    output.append(best)",
    ]
    if not opened:
        return [*code, "print(output[start:])"]
    begin = "" if config.kind == "decoder" and special.separator is None else "start:"
    return [*code, f"print({_target_tokenizer(model)}.decode(output{f'[{begin}]' if begin else ''}))"]
