"""Rotary positions in the `config.json` of Hugging Face: the base of the wavelengths, and how they are stretched."""

from typing import Any

from regard.config import MODEL_MAXIMA, ModelConfig, RotaryScaling, check_type, require_at_most
from regard.errors import RegardError
from regard.interop.weight_rules import require_settings

SECTIONS = ("rope_parameters", "rope_scaling")
SCALING_KEYS = {
    "linear": {"factor": "factor"},
    "llama3": {
        "factor": "factor",
        "original_max_position_embeddings": "original_length",
        "low_freq_factor": "low_frequency",
        "high_freq_factor": "high_frequency",
    },
    "yarn": {
        "factor": "factor",
        "original_max_position_embeddings": "original_length",
        "beta_fast": "beta_fast",
        "beta_slow": "beta_slow",
        "attention_factor": "magnitude",
    },
}
"""The settings of each kind of scaling, and the fields of `RotaryScaling` that hold them."""


def read_rope(settings: dict[str, Any], where: str) -> tuple[float, RotaryScaling | None]:
    """Return the base of the rotary wavelengths and their scaling; sections may repeat a setting if they agree."""
    rope: dict[str, Any] = {}
    top_level = {name: settings.get(name) for name in ("rope_theta", "partial_rotary_factor")}
    for section in (top_level, *(settings.get(name) or {} for name in SECTIONS)):
        for key, value in section.items():
            key = "rope_type" if key == "type" else key
            if value is not None and rope.setdefault(key, value) != value:
                raise RegardError(f"{where}: {key} has several values: {rope[key]!r} and {value!r}")
    require_settings(rope, where, partial_rotary_factor=1.0, truncate=True, mscale=None, mscale_all_dim=None)
    base = rope.get("rope_theta", 10_000.0)
    label = f"{where}: rope_theta"
    check_type(label, base, float)
    require_at_most({label: MODEL_MAXIMA["rotary_base"]}, {label: base})
    kind = rope.get("rope_type", "default")
    if kind == "default":
        return float(base), None
    check_type(f"{where}: rope_type", kind, str)
    if kind not in SCALING_KEYS:
        known = ", ".join(map(repr, SCALING_KEYS))
        raise RegardError(f"{where}: rope_type={kind!r} is not supported; Regard reads only 'default', {known}")
    keys = SCALING_KEYS[kind]
    rope.setdefault("original_max_position_embeddings", settings.get("max_position_embeddings", 2048))
    if "factor" not in rope:
        raise RegardError(f"{where}: rope_type={kind!r} needs a factor")
    return float(base), RotaryScaling(kind=kind, **{field: rope[key] for key, field in keys.items() if key in rope})


def write_rope(config: ModelConfig) -> dict[str, Any]:
    """Return the settings of a model's rotary positions."""
    scaling = config.rotary_scaling
    if scaling is None:
        return {"rope_theta": config.rotary_base}
    section = {key: getattr(scaling, field) for key, field in SCALING_KEYS[scaling.kind].items()}
    rope = {"rope_type": scaling.kind} | {key: value for key, value in section.items() if value is not None}
    return {"rope_theta": config.rotary_base, "rope_scaling": rope}
