"""Models exported to ONNX: ONNX Runtime computes what PyTorch computes, for any number of rows and tokens."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.config import ModelConfig, SpecialIds
from regard.data.tokenizer_training import train_tokenizer
from regard.decoding.text_model import Model
from regard.errors import RegardError
from regard.interop import onnx_export
from regard.model.transformer import EncoderDecoder, build
from tests.support.oracles import randomise, small

pytest.importorskip("onnx")
pytest.importorskip("onnxscript")
onnxruntime = pytest.importorskip("onnxruntime")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("without_type_checks"),
]  # checks would fix the shapes of a graph

TOLERANCE = 1e-4
SIZES = [(1, 1, 1), (1, 6, 4), (3, 9, 2)]
"""Rows, tokens of the source and of the target. The graphs are traced with others."""


def random_network(config: ModelConfig) -> Any:
    network = build(config).eval()
    randomise([network])
    return network


def run(path: Path, **inputs: torch.Tensor) -> list[Any]:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    results: list[Any] = session.run(None, {name: tensor.numpy() for name, tensor in inputs.items()})
    return results


def ragged(rows: int, length: int, vocabulary: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Random ids, and a mask that hides the end of the last row."""
    ids = torch.randint(0, vocabulary, (rows, length))
    mask = torch.ones_like(ids)
    mask[-1, max(1, length - 2) :] = 0
    return ids, mask


def close(ours: torch.Tensor, theirs: Any) -> bool:
    return np.allclose(ours.detach(), theirs, atol=TOLERANCE)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        pytest.param(
            {"norm": "pre", "positions": "learned", "activation": "swiglu", "vocab_size": 50, "target_vocab_size": 41},
            marks=pytest.mark.long,
        ),
        pytest.param(
            {"norm": "pre", "positions": "t5", "norm_kind": "rms", "attention_scale": 1.0}, marks=pytest.mark.long
        ),
    ],
    ids=["the paper", "separate vocabularies", "T5"],
)
def test_an_encoder_decoder_gives_the_same_logits(settings: dict[str, Any], tmp_path: Path) -> None:
    network = random_network(small(kind="encoder-decoder", **settings))
    assert isinstance(network, EncoderDecoder)
    config = network.config
    model = Model(network, special=SpecialIds(end=(0,), start=config.output_pad_id))
    regard.export(model, tmp_path / "out", to="onnx")
    for rows, length, written in SIZES:
        source, mask = ragged(rows, length, config.vocab_size)
        target = torch.randint(0, config.outputs, (rows, written))
        (memory,) = run(tmp_path / "out/encoder_model.onnx", input_ids=source, attention_mask=mask)
        (logits,) = run(
            tmp_path / "out/decoder_model.onnx",
            input_ids=target,
            encoder_hidden_states=torch.from_numpy(memory),
            encoder_attention_mask=mask,
        )
        assert close(network(source, target, mask.sum(1)), logits)


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, marks=pytest.mark.long),
        {"positions": "rotary", "norm_kind": "rms", "kv_heads": 1, "activation": "swiglu", "window": 3},
    ],
    ids=["GPT-2", "Mistral"],
)
def test_a_decoder_gives_the_same_logits(settings: dict[str, Any], tmp_path: Path) -> None:
    network = random_network(small(kind="decoder", norm="pre", **settings))
    regard.export(Model(network, special=SpecialIds(end=(0,))), tmp_path / "out", to="onnx")
    for rows, length, _ in SIZES:
        ids, _ = ragged(rows, length, network.config.outputs)
        (logits,) = run(tmp_path / "out/model.onnx", input_ids=ids)
        assert close(network(ids), logits)


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, marks=pytest.mark.long),
        {"classes": 3},
        pytest.param({"classes": 4, "classes_per": "token"}, marks=pytest.mark.long),
    ],
)
def test_an_encoder_gives_the_same_vectors_and_logits(settings: dict[str, Any], tmp_path: Path) -> None:
    network = random_network(small(kind="encoder", **settings))
    regard.export(Model(network), tmp_path / "out", to="onnx")
    for rows, length, _ in SIZES:
        ids, mask = ragged(rows, length, network.config.vocab_size - 1)
        hidden, logits = run(tmp_path / "out/model.onnx", input_ids=ids, attention_mask=mask)
        assert close(network.hidden(ids, mask.sum(1)), hidden)
        assert close(network(ids, mask.sum(1)), logits)


def test_a_prefix_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    network = random_network(small(kind="decoder", prefix=True))
    with pytest.raises(RegardError, match="no input for the length of the prefix"):
        regard.export(Model(network, special=SpecialIds(end=(0,))), tmp_path / "out", to="onnx")
    assert not (tmp_path / "out").exists()


def test_missing_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_export, "find_spec", lambda _: None)
    with pytest.raises(RegardError, match=r"requires onnx and onnxscript: pip install 'regard\[interop\]'"):
        regard.export(Model(random_network(small(kind="encoder"))), tmp_path / "out", to="onnx")


@pytest.mark.long
@pytest.mark.parametrize("kind", ["encoder-decoder", "decoder", "encoder"])
def test_the_program_on_the_card_runs(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer = train_tokenizer(["Le petit chat dort. Once upon a time"] * 3, vocab_size=320)
    tokenizer = tokenizer.with_template(after=[] if kind == "decoder" else [tokenizer.end])
    network = random_network(small(kind=kind, norm="pre", vocab_size=tokenizer.size))
    start = tokenizer.pad if kind == "encoder-decoder" else None
    model = Model(network, tokenizer, SpecialIds(end=(tokenizer.end,), start=start))
    regard.export(model, tmp_path / "out", to="onnx")
    (program,) = re.findall(r"```python\n(.*?)```", (tmp_path / "out/README.md").read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path / "out")
    names: dict[str, Any] = {}
    exec(program, names)  # it is our own code
    printed = capsys.readouterr().out
    if kind == "encoder-decoder":
        expected = model.translate(names["text"], beam=1, max_tokens=16)
        assert printed == f"{expected}\n"
    elif kind == "decoder":
        expected = model.generate(names["text"], max_tokens=16, temperature=0)
        assert printed == f"{expected}\n"
    else:
        assert close(model.embed(names["text"]), names["vector"])
