"""The `generation_config.json` of a Hugging Face folder: which settings Regard preserves and which it refuses."""

from typing import Any

from regard.config import ModelConfig
from regard.decoding.text_model import Model
from regard.errors import RegardError
from regard.formatting import quoted
from regard.storage.model_folder import generation_config

PRESERVED_SETTINGS = {
    *("max_length", "max_new_tokens", "min_length", "min_new_tokens", "num_beams", "length_penalty", "early_stopping"),
    *("no_repeat_ngram_size", "repetition_penalty", "do_sample", "temperature", "top_k", "top_p", "min_p", "typical_p"),
    *("epsilon_cutoff", "eta_cutoff", "num_return_sequences", "renormalize_logits", "remove_invalid_values"),
    *("forced_eos_token_id", "bos_token_id", "pad_token_id"),
}
"""Settings that are preserved for export. Regard itself decodes with its own options."""

NEUTRAL_VALUES: dict[str, tuple[object, ...]] = {
    "forced_decoder_ids": ([],),
    "begin_suppress_tokens": ([],),
    "sequence_bias": ({}, []),
    "force_words_ids": ([],),
    "constraints": ([],),
    "encoder_no_repeat_ngram_size": (0,),
    "encoder_repetition_penalty": (1,),
    "num_beam_groups": (1,),
    "diversity_penalty": (0,),
    "penalty_alpha": (0,),
    "guidance_scale": (1,),
    "exponential_decay_length_penalty": (),
}
"""Settings that change the generated text in ways Regard does not support, with the values that disable them."""


def read_generation(settings: dict[str, Any], where: str) -> dict[str, Any]:
    """Return the settings of a `generation_config.json` to preserve; raise RegardError for one Regard cannot follow."""
    for key, values in NEUTRAL_VALUES.items():
        if settings.get(key) is not None and settings[key] not in values:
            raise RegardError(
                f"{where}: {key}={quoted(settings[key])} changes the text in a way that Regard does not support"
            )
    preserved = {key: value for key, value in settings.items() if key in PRESERVED_SETTINGS and value is not None}
    for key, value in preserved.items():
        valid = type(value) is int if _is_id(key) else isinstance(value, bool | int | float)
        if not valid and value != "never":  # a value of early_stopping
            raise RegardError(f"{where}: {key}={quoted(value)} is not a valid number")
    return preserved


def write_generation(model: Model, written: ModelConfig) -> dict[str, Any]:
    """Return the `generation_config.json` of a model that is exported with the config `written`."""
    special, encoder_decoder = model.special, written.kind == "encoder-decoder"
    size = written.output_vocab_size
    loaded = model.about.get("generation")  # read from a file, so of any type
    preserved = read_generation(loaded, "the model's about.generation") if isinstance(loaded, dict) else {}
    pad_candidates = [written.output_pad_id, preserved.pop("pad_token_id", None), *special.end]
    starts = model.tokenizer.before if model.tokenizer is not None and written.kind == "decoder" else ()
    bos = next(iter(starts), preserved.pop("bos_token_id", None))
    suppressed = [*special.suppressed, *([written.output_pad_id] if written.pad_is_last else [])]
    ids = generation_config(model.config, special) | {
        "bos_token_id": bos,
        "pad_token_id": next((id_ for id_ in pad_candidates if id_ is not None and id_ < size), None),
        "suppress_tokens": list(dict.fromkeys(suppressed)),
        "decoder_start_token_id": special.start if encoder_decoder else None,
    }
    known_ids = {name: _known_ids(value, size) for name, value in (preserved | ids).items() if _is_id(name)}
    max_length = {"max_length": min(512, written.max_length)} if encoder_decoder else {}
    settings = max_length | preserved | ids | known_ids
    return {name: value for name, value in settings.items() if value not in (None, [])}


def _is_id(name: str) -> bool:
    return name.endswith("_token_id") or name == "suppress_tokens"


def _known_ids(value: Any, vocab_size: int) -> Any:
    """Remove ids that the exported model does not have: a decoder is exported without <pad>."""
    if isinstance(value, list):
        return [id_ for id_ in value if id_ < vocab_size]
    return value if value is None or value < vocab_size else None
