"""How a model wants to be decoded, as its folder tells: what Regard keeps, and what it cannot do."""

from typing import Any

from regard.config import ModelConfig
from regard.decoding.text_model import Model
from regard.errors import RegardError
from regard.formatting import quoted
from regard.storage.model_folder import generation_config

KEPT = {
    *("max_length", "max_new_tokens", "min_length", "min_new_tokens", "num_beams", "length_penalty", "early_stopping"),
    *("no_repeat_ngram_size", "repetition_penalty", "do_sample", "temperature", "top_k", "top_p", "min_p", "typical_p"),
    *("epsilon_cutoff", "eta_cutoff", "num_return_sequences", "renormalize_logits", "remove_invalid_values"),
    *("forced_eos_token_id", "bos_token_id", "pad_token_id"),
}
"""settings that come back when the model is exported; Regard itself decodes as its own options say"""

NEUTRAL: dict[str, tuple[object, ...]] = {
    "forced_bos_token_id": (),
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
"""settings that change the text in ways Regard has not, and the values with which they do nothing"""


def read_generation(told: dict[str, Any], where: str) -> dict[str, Any]:
    """What is kept of a `generation_config.json`; a ValueError names a setting that Regard cannot follow."""
    for key, values in NEUTRAL.items():
        if told.get(key) is not None and told[key] not in values:
            raise RegardError(
                f"{where}: {key}={quoted(told[key])} changes what the model says, and Regard cannot do it"
            )
    kept = {key: value for key, value in told.items() if key in KEPT and value is not None}
    for key, value in kept.items():
        right = type(value) is int if _is_id(key) else isinstance(value, bool | int | float)
        if not right and value != "never":  # early_stopping may be that
            raise RegardError(f"{where}: {key}={quoted(value)} is no number that it can be")
    return kept


def write_generation(stored: Model, written: ModelConfig) -> dict[str, Any]:
    """The `generation_config.json` of a model that is written with this config: its ids, and what it came with."""
    special, encoder_decoder = stored.special, written.kind == "encoder-decoder"
    told = stored.about.get("generation")  # a folder may tell anything
    kept = read_generation(told, "the model's about.generation") if isinstance(told, dict) else {}
    pads = [written.pad_id, kept.pop("pad_token_id", None), *special.end]
    starts = stored.tokenizer.before if stored.tokenizer is not None and written.kind == "decoder" else ()
    bos = next(iter(starts), kept.pop("bos_token_id", None))
    suppressed = [*special.suppressed, *([written.pad_id] if written.pad_is_last else [])]
    ids = generation_config(stored.config, special) | {
        "bos_token_id": bos,
        "pad_token_id": next((id_ for id_ in pads if id_ is not None and id_ < written.vocab_size), None),
        "suppress_tokens": list(dict.fromkeys(suppressed)),
        "decoder_start_token_id": special.start if encoder_decoder else None,
    }
    known = {name: _known(value, written.vocab_size) for name, value in (kept | ids).items() if _is_id(name)}
    longest = {"max_length": min(512, written.max_length)} if encoder_decoder else {}
    settings = longest | kept | ids | known
    return {name: value for name, value in settings.items() if value not in (None, [])}


def _is_id(name: str) -> bool:
    return name.endswith("_token_id") or name == "suppress_tokens"


def _known(value: Any, vocab_size: int) -> Any:
    """An id, or those of several, that the written model has: a decoder is written without <pad>."""
    if isinstance(value, list):
        return [id_ for id_ in value if id_ < vocab_size]
    return value if value is None or value < vocab_size else None
