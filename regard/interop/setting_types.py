"""Types and maxima of the settings that Regard reads from the `config.json` of a Hugging Face folder."""

from typing import Any, get_type_hints

from regard.config import MODEL_MAXIMA, ModelConfig, check_type, require_at_most

SETTINGS_BY_FIELD = {
    "vocab_size": ("vocab_size",),
    "target_vocab_size": ("decoder_vocab_size",),
    "pad": ("pad_token_id",),
    "d_model": ("hidden_size", "d_model", "dim", "n_embd"),
    "heads": (
        "num_attention_heads",
        "num_heads",
        "n_heads",
        "n_head",
        "encoder_attention_heads",
        "decoder_attention_heads",
    ),
    "kv_heads": ("num_key_value_heads",),
    "d_k": ("head_dim", "d_kv"),
    "layers": ("num_hidden_layers", "num_layers", "n_layers", "n_layer", "encoder_layers"),
    "decoder_layers": ("decoder_layers", "num_decoder_layers"),
    "d_ff": ("intermediate_size", "d_ff", "hidden_dim", "n_inner", "encoder_ffn_dim", "decoder_ffn_dim"),
    "norm_eps": ("layer_norm_eps", "layer_norm_epsilon", "rms_norm_eps"),
    "max_length": ("max_position_embeddings", "n_positions"),
    "window": ("sliding_window",),
    "relative_buckets": ("relative_attention_num_buckets",),
    "relative_distance": ("relative_attention_max_distance",),
    "scale_embeddings": ("scale_embedding",),
    "tied": ("tie_word_embeddings",),
    "dropout": ("dropout", "dropout_rate", "hidden_dropout_prob", "resid_pdrop"),
    "attention_dropout": ("attention_dropout", "attention_probs_dropout_prob", "attn_pdrop"),
    "feed_forward_dropout": ("activation_dropout",),
    "classes": ("num_labels",),
}
"""The settings that have the type and the maximum of a field of `ModelConfig`."""
OTHER_TYPES: dict[str, Any] = {
    "architectures": list[str],
    "hidden_act": str,
    "activation": str,
    "activation_function": str,
    "feed_forward_proj": str,
    "attention_bias": bool,
    "mlp_bias": bool,
    "layer_types": list[str],
    "use_sliding_window": bool,
    "max_window_layers": int,
    "rope_parameters": dict[str, Any],
    "rope_scaling": dict[str, Any],
    "scale_decoder_outputs": bool,
    "share_encoder_decoder_embeddings": bool,
    "id2label": dict[str, Any],
}
NULLABLE = {
    "architectures",
    "decoder_attention_heads",
    "decoder_ffn_dim",
    "id2label",
    "layer_types",
    "n_inner",
    "rope_parameters",
    "rope_scaling",
    "share_encoder_decoder_embeddings",
}
"""Settings that may be null, which is the same as missing, although their types do not say so."""


def _types() -> dict[str, Any]:
    hints = get_type_hints(ModelConfig)
    types = {name: hints[field] for field, names in SETTINGS_BY_FIELD.items() for name in names} | OTHER_TYPES
    return {name: annotation | None if name in NULLABLE else annotation for name, annotation in types.items()}


SETTING_TYPES = _types()
SETTING_MAXIMA = {
    name: MODEL_MAXIMA[field] for field, names in SETTINGS_BY_FIELD.items() if field in MODEL_MAXIMA for name in names
}


def check_settings(settings: dict[str, Any], where: str) -> None:
    """Raise RegardError, with the name of the setting, for one of the wrong type or for a number that is too large.

    After this, what `read_config` computes from the settings needs little memory.
    """
    for name, annotation in SETTING_TYPES.items():
        if name not in settings:
            continue
        label = f"{where}: {name}"
        check_type(label, settings[name], annotation)
        if name in SETTING_MAXIMA:
            require_at_most({label: SETTING_MAXIMA[name]}, {label: settings[name]})
