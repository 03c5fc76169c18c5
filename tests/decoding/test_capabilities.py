"""Every method of a model × every kind of model: it works, or it is refused with a suggestion that works."""

import pickle
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from regard.atomic_files import check_new_folder
from regard.cli import app, main
from regard.decoding.capabilities import CAPABILITIES
from regard.decoding.text_model import Model
from regard.errors import CallError
from tests.support.text_models import random_masked_model, random_model

KINDS: dict[str, dict[str, object]] = {
    "encoder": {"kind": "encoder"},
    "encoder with classes": {"kind": "encoder", "classes": 3},
    "encoder with a mask": {"kind": "encoder"},
    "decoder": {"kind": "decoder"},
    "decoder with classes": {"kind": "decoder", "classes": 3},
    "decoder with a prefix": {"kind": "decoder", "prefix": True},
    "encoder-decoder": {"kind": "encoder-decoder"},
}
OPTIONS: dict[str, Any] = {"beam": 1, "max_tokens": 3}
CALLS: dict[str, Callable[[Model], Any]] = {
    "translate(texts)": lambda model: model.translate(["un chat"], **OPTIONS),
    "translations": lambda model: model.translations(["un chat"], **OPTIONS),
    "translate_lines": lambda model: list(model.translate_lines(["un chat"], **OPTIONS)),
    "translate of nothing": lambda model: model.translate(""),
    "generate(prompt)": lambda model: model.generate("un chat", max_tokens=3),
    "stream": lambda model: list(model.stream("un chat", max_tokens=3)),
    "classify(texts)": lambda model: model.classify(["un chat"]),
    "fill(text)": lambda model: model.fill("un <mask>"),
    "score(texts)": lambda model: model.score(["un chat"]),
    "score(sources, targets)": lambda model: model.score(["un chat"], ["a cat"]),
    "attend(text)": lambda model: model.attend("un chat"),
    "embed(texts)": lambda model: model.embed(["un chat"]),
}


def made(kind: str, separator: bool = True, tokenizer: bool = True, quick: bool = False) -> Model:
    model = random_masked_model() if kind == "encoder with a mask" else random_model(**KINDS[kind])
    model.network.float()
    model.special = model.special if separator else replace(model.special, separator=None)
    if quick:
        model = model.quick("float32")
    model.tokenizer = model.tokenizer if tokenizer else None
    return model


def refused(call: Callable[[Model], Any], model: Model) -> str | None:
    """Why a call is refused, or None if it is not."""
    try:
        call(model)
    except ValueError as error:
        return str(error)
    return None


MODELS: list[tuple[str, bool, bool]] = [
    *((kind, separator, False) for kind in KINDS for separator in (True, False)),
    *((kind, True, True) for kind in ("decoder", "decoder with a prefix", "encoder-decoder")),
]


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize(("kind", "separator", "quick"), MODELS)
def test_suggested_calls_work(kind: str, separator: bool, quick: bool) -> None:
    model = made(kind, separator, quick=quick)
    can = {CAPABILITIES[task].call for task in model.tasks}
    assert can
    for name, call in CALLS.items():
        refusal = refused(call, model)
        if refusal is None:
            assert name in can or "(" not in name, f"{name} works, and is not counted among what it can do"
            continue
        assert name not in can, refusal
        suggested = re.fullmatch(r".* requires .*, but this is an? .*; this model supports (.*)", refusal)
        assert suggested, f"{name}: {refusal}"
        assert set(re.findall(r"\w+\([^)]*\)", suggested[1])) == can
    for name in can:
        CALLS[name](model)


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize("kind", KINDS)
def test_without_a_tokenizer_no_call_is_suggested(kind: str) -> None:
    model = made(kind, tokenizer=False)
    for name, call in CALLS.items():
        if name == "translate of nothing":
            continue
        with pytest.raises(ValueError, match="tokenizer") as caught:
            call(model)
        assert "this model supports" not in str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
def test_only_models_that_generate_text_have_fast_copies(kind: str) -> None:
    model = made(kind)
    if (kind.startswith("encoder") and kind != "encoder-decoder") or "classes" in kind:
        with pytest.raises(ValueError, match="models that generate text"):
            model.quick()
    else:
        assert model.quick("float32").config == model.config


def test_errors_of_an_encoder_suggest_neither_translate_nor_score() -> None:
    with pytest.raises(ValueError, match=r"this is an encoder; this model supports attend\(text\), embed\(texts\)$"):
        made("encoder").generate("un chat")


def test_errors_on_the_command_line_name_commands_and_not_calls(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["regard", "generate", "Le chat", "--model", "petit-fr-en"])
    with pytest.raises(SystemExit):
        main()
    message = capsys.readouterr().err
    assert message.startswith("regard: this model cannot generate text: that requires a decoder")
    assert "regard translate, regard score, regard attend, regard embed" in message
    assert "(" not in message


def test_a_folder_that_is_not_empty_names_the_option_or_the_argument(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").touch()
    with pytest.raises(ValueError, match=r"write into it with force=True$"):
        check_new_folder(tmp_path)
    monkeypatch.setattr(sys, "argv", ["regard", "data", "petit", "--out", str(tmp_path)])
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().err.endswith("write into it with --force\n")


def test_an_error_that_names_commands_can_be_sent_to_another_process() -> None:
    error = pickle.loads(pickle.dumps(CallError("use model.translate(...)", "use regard translate")))
    assert (str(error), error.command_line_message) == ("use model.translate(...)", "use regard translate")


def test_the_commands_of_all_tasks_exist() -> None:
    known = {f"regard {command.callback.__name__}" for command in app.registered_commands if command.callback}
    assert {capability.command for capability in CAPABILITIES.values()} <= known
