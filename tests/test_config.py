"""Model configs: strict, validated, and documented where they are declared."""

import json
from dataclasses import fields, replace
from pathlib import Path

import pytest

import regard
from regard import config
from regard.config import PRESETS, ModelConfig, SpecialIds, check_type, preset
from tests.support.oracles import documented_fields, small


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"haeds": 4}, "ModelConfig has no key 'haeds': did you mean 'heads'"),
        ({"zzz": 4}, "ModelConfig has no key 'zzz': expected one of kind, vocab_size"),
        ({"heads": 5}, "heads=5 does not divide d_model=24"),
        ({"heads": "4"}, "ModelConfig.heads='4' has type str: expected int"),
        ({"heads": True}, "ModelConfig.heads=True has type bool: expected int"),
        ({"dropout": None}, "ModelConfig.dropout=None has type NoneType: expected float"),
        ({"kv_heads": 1.5}, "ModelConfig.kv_heads=1.5 has type float: expected int or none"),
        ({"kv_heads": 3}, "kv_heads=3 does not divide heads=4"),
        ({"norm": "prae"}, "ModelConfig.norm='prae' is not a valid choice: did you mean 'pre'"),
        (
            {"kind": "rnn"},
            "kind='rnn' is not a valid choice: expected one of encoder, decoder, encoder-decoder",
        ),
        ({"d_model": 25, "heads": 5}, "sinusoidal positions need an even width: d_model=25 is odd"),
        ({"positions": "rotary", "d_k": 5, "d_v": 5}, "d_k=5 is odd but must be even"),
        ({"dropout": 1.0}, "dropout=1.0 is not a probability"),
        ({"feed_forward_dropout": 1.0}, "feed_forward_dropout=1.0 is not a probability"),
        ({"rotary_pairs": "adjacent"}, "rotary_scaling and rotary_pairs need positions='rotary'"),
        ({"rotary_scaling": {"kind": "linear", "factor": 2.0}}, "need positions='rotary'"),
        ({"rotary_scaling": {"kind": "yarm", "factor": 2.0}}, "rotary_scaling.kind='yarm' is not a valid choice"),
        ({"rotary_scaling": {"kind": "yarn", "factor": 0.0}}, "rotary_scaling.factor=0.0 must be above 0"),
        ({"rotary_scaling": {"kind": "yarn", "faktor": 2.0}}, "rotary_scaling has no key 'faktor'"),
        ({"attention_dropout": -0.1}, "attention_dropout=-0.1 is not a probability"),
        ({"dropout": float("nan")}, "dropout=nan is not a probability"),
        ({"layers": 0}, "layers=0 is too small: it must be at least 1"),
        ({"vocab_size": 0}, "vocab_size=0 is too small"),
        ({"norm_eps": 0.0}, "norm_eps=0.0 .* above 0"),
        ({"kind": "decoder", "decoder_layers": 2}, "decoder_layers is for an encoder-decoder"),
        (
            {"kind": "decoder", "target_vocab_size": 9},
            "target_vocab_size is for an encoder-decoder: a decoder has only vocab_size=31",
        ),
        ({"kind": "encoder", "target_vocab_size": 9}, "target_vocab_size is for an encoder-decoder: an encoder has"),
        ({"target_vocab_size": 1}, "target_vocab_size=1 is too small"),
        ({"target_vocab_size": 20, "pad": 20}, "pad=20 is outside the vocabulary of 20 ids"),
        ({"target_vocab_size": 40, "pad": 31}, "pad=31 is outside the vocabulary of 31 ids"),
        ({"prefix": True}, "prefix is for a decoder"),
        (
            {"kind": "encoder", "classifier_activation": "relu"},
            "classifier_activation='relu' needs an encoder that classifies sequences: kind='encoder', classes=0",
        ),
        ({"kind": "encoder", "classes": 2, "classes_per": "token", "classifier_activation": "relu"}, "sequences"),
        ({"kind": "decoder", "classes": 2, "classifier_activation": "relu"}, "that classifies sequences"),
        ({"classes": 3}, "classification needs kind 'encoder' or 'decoder'"),
        ({"pad": 31}, "pad=31 is outside the vocabulary of 31 ids"),
        ({"pad": -32}, "pad=-32 is outside the vocabulary of 31 ids"),
    ],
)
def test_invalid_configs_are_rejected(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small(**changes)


def test_unknown_keys_are_rejected_everywhere() -> None:
    with pytest.raises(ValueError, match="did you mean 'heads'"):
        replace(small(), haeds=4)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="did you mean 'heads'"):
        preset("tiny", haeds=4)
    with pytest.raises(ValueError, match="no preset 'paper-bse': did you mean 'paper-base'"):
        preset("paper-bse")
    with pytest.raises(ValueError, match="did you mean 'paper-base' or 'paper-big'"):
        preset("paper")


def test_check_type_accepts_names_and_values() -> None:
    check_type("x", {"a": 1, "b": "two"}, dict[str, object])
    check_type("x", None, dict[str, object] | None)
    with pytest.raises(ValueError, match=r"x=\[1\] has type list: expected names and values or none"):
        check_type("x", [1], dict[str, object] | None)
    with pytest.raises(ValueError, match=r"x={1: 2} has type dict: expected names and values"):
        check_type("x", {1: 2}, dict[str, object])


def test_the_last_id_is_pad_by_default() -> None:
    assert small().pad_id == 30
    assert small().outputs == 30
    assert replace(small(), vocab_size=100).outputs == 99
    assert small(pad=None).outputs == 31
    assert small(pad=0).outputs == 31


def test_separate_vocabularies_have_their_own_pad() -> None:
    config = small(target_vocab_size=40)
    assert (config.pad_id, config.output_pad_id) == (30, 39)
    assert (config.inputs, config.outputs) == (30, 39)
    config = small(target_vocab_size=40, pad=30)  # the last id of the source only
    assert (config.pad_id, config.output_pad_id) == (30, 30)
    assert (config.inputs, config.outputs) == (30, 40)


def test_special_ids_are_ids_of_the_target() -> None:
    special = SpecialIds(start=39, end=(35,))
    special.check(small(target_vocab_size=40))
    with pytest.raises(ValueError, match="the start id 39 is outside the vocabulary of 39 ids"):
        special.check(small(vocab_size=50, target_vocab_size=39))
    with pytest.raises(ValueError, match=r"^forced_bos_token_id is only for encoder-decoders$"):
        SpecialIds(first=7).check(small(kind="decoder"))


def test_attention_has_biases_like_the_model_by_default() -> None:
    assert [small(bias=bias).projection_bias for bias in (True, False)] == [True, False]
    assert small(attention_bias=False).projection_bias is False
    assert small(bias=False, attention_bias=True).projection_bias is True


def test_configs_saved_before_attention_bias_load_unchanged() -> None:
    for path in (Path(regard.__file__).parent / "models").glob("*/config.json"):
        saved = json.loads(path.read_text())["model"]
        saved.pop("attention_bias", None)
        assert ModelConfig(**saved).projection_bias is saved["bias"]


def test_configs_are_hashable_and_comparable() -> None:
    assert preset("tiny") == preset("tiny")
    assert hash(preset("tiny")) == hash(preset("tiny"))
    assert preset("tiny") != preset("tiny", layers=3)
    with pytest.raises(AttributeError):
        preset("tiny").layers = 3  # type: ignore[misc]


def test_the_defaults_are_the_papers_base_model() -> None:
    assert ModelConfig(vocab_size=37_057) == preset("paper-base")
    assert set(PRESETS) == {"tiny", "paper-base", "paper-big", "gpt2-small", "llama-small", "bert-small"}


def test_every_field_is_documented_where_it_is_declared() -> None:
    documented = documented_fields(config, "ModelConfig")
    assert documented == {field.name for field in fields(ModelConfig)}
