"""Int8 weights: the error of each weight is bounded, reading is exact, and invalid files are rejected with a reason."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import regard
from regard.decoding.text_model import Model
from regard.storage.int8_weights import MAX_SCALE, quantise, quantise_weights
from regard.storage.model_folder import write_manifest
from tests.support.text_models import ANSWERS, TEXTS, TOKENIZER, random_model

EMBEDDING = "embedding.tokens.weight"
KINDS = ("encoder-decoder", "decoder", "encoder")


def float_model(kind: str = "encoder-decoder") -> Model:
    model = random_model(kind=kind)
    model.network.float()
    return model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    float_model().save(tmp_path / "model", "int8")
    return tmp_path / "model"


def test_a_matrix_worked_by_hand() -> None:
    """Scales are powers of two here, so that nothing is rounded up: 127 / 128 and 127 / 2."""
    matrix = torch.tensor([[127 / 128, -127 / 128, 1 / 128, 1.4 / 128], [63.5, 0.0, -0.6, 0.8], [0.0, 0.0, 0.0, 0.0]])
    codes, scales = quantise(matrix)
    assert codes.dtype == torch.int8
    assert codes.tolist() == [[127, -127, 1, 1], [127, 0, -1, 2], [0, 0, 0, 0]]
    assert scales[:2].tolist() == [1 / 128, 1 / 2]
    assert scales[2] > 0


@pytest.mark.parametrize("kind", KINDS)
def test_every_weight_is_within_half_a_step(tmp_path: Path, kind: str) -> None:
    """The oracle is NumPy, on the bytes of the file: a step is the largest weight of the row ÷ 127."""
    model = float_model(kind)
    model.save(tmp_path / "model", "int8")
    stored = load_file(tmp_path / "model/model.safetensors")
    loaded = regard.load(tmp_path / "model").network.state_dict()
    original = model.network.state_dict()
    assert loaded.keys() == original.keys()
    matrices = [name for name, tensor in original.items() if tensor.dim() == 2]
    assert {name for name, tensor in stored.items() if tensor.dtype == torch.int8} == set(matrices)
    assert stored.keys() == original.keys() | {f"{name}_scale" for name in matrices}
    for name, tensor in original.items():
        assert loaded[name].dtype == torch.float32
        if name not in matrices:
            assert torch.equal(loaded[name], tensor)
            continue
        codes, scales = stored[name].numpy().astype(np.float64), stored[f"{name}_scale"].numpy().astype(np.float64)
        weights = tensor.numpy().astype(np.float64)
        assert np.array_equal(loaded[name].numpy(), codes * scales[:, None])  # exact, although read in float32
        step = np.abs(weights).max(1, keepdims=True) / 127
        assert (np.abs(codes * scales[:, None] - weights) <= step * (0.5 + 2**-9)).all()
        assert (np.abs(codes).max(1)[np.abs(weights).max(1) > 0] == 127).all()  # the whole range is used


@pytest.mark.slow
def test_log_probabilities_hardly_change(tmp_path: Path) -> None:
    model = float_model()
    model.save(tmp_path / "int8", "int8")
    exact, stored = (each.score(TEXTS, ANSWERS) for each in (model, regard.load(tmp_path / "int8")))
    assert exact != stored
    assert np.allclose(exact, stored, rtol=0.02)


@pytest.mark.parametrize("kind", KINDS)
def test_saving_a_loaded_model_again_gives_the_same_files(tmp_path: Path, kind: str) -> None:
    float_model(kind).save(tmp_path / "once", "int8")
    regard.load(tmp_path / "once").save(tmp_path / "twice", "int8")
    once, twice = ({file.name: file.read_bytes() for file in (tmp_path / name).iterdir()} for name in ("once", "twice"))
    assert once == twice


def test_scores_are_marked_only_if_int8_changed_the_weights(tmp_path: Path) -> None:
    model = float_model()
    model.about = {"tests": [{"set": "a", "figures": [{"name": "BLEU", "value": 3.0}]}]}
    model.save(tmp_path / "once", "int8")
    stored = regard.load(tmp_path / "once")
    assert stored.about["tests"][0]["rounded"] == "int8"
    stored.about = model.about
    stored.save(tmp_path / "twice", "int8")
    assert regard.load(tmp_path / "twice").about == model.about


def test_extreme_rows() -> None:
    """Rows of zeros, of the smallest and of the largest numbers are stored without overflow."""
    rows = torch.tensor([[0.0, -0.0], [1e-45, 0.0], [1e-38, -1e-38], [1e38, -1.0], [-1e38, 1e38]])
    codes, scales = quantise(rows)
    assert ((scales > 0) & (scales <= MAX_SCALE)).all()
    values = codes.double() * scales.double()[:, None]
    assert values.abs().max() < torch.finfo(torch.float32).max
    assert torch.allclose(values[3:], rows[3:].double(), rtol=1e-4, atol=1.01e38 / 254)
    assert values[:3].abs().max() < 1e-35


@pytest.mark.parametrize(("value", "shown"), [(torch.nan, "nan"), (-torch.inf, "-inf"), (3.4e38, r"3\.4e\+38")])
def test_weights_that_are_not_finite_or_huge_are_refused(tmp_path: Path, value: float, shown: str) -> None:
    model = float_model()
    with torch.no_grad():
        model.network.get_parameter(EMBEDDING)[1, 2] = value
    with pytest.raises(regard.RegardError, match=rf"^{EMBEDDING} contains {shown}, which int8 cannot hold"):
        model.save(tmp_path / "model", "int8")
    assert list(tmp_path.iterdir()) == []


def test_only_regards_own_networks_are_stored_in_int8(tmp_path: Path) -> None:
    class Bigram(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(TOKENIZER.size, TOKENIZER.size)

        def forward(self, tokens: Tensor) -> Tensor:
            return self.table(tokens)

    from regard.decoding.own_network import wrap_module

    model = float_model("decoder")
    own = Model(wrap_module(Bigram(), model.config), model.tokenizer, model.special)
    with pytest.raises(
        regard.RegardError, match=r"dtype='int8' needs Regard's own network; this is your module Bigram"
    ):
        own.save(tmp_path / "model", "int8")


def with_value(tensor: Tensor, value: float) -> Tensor:
    changed = tensor.clone()
    changed[1] = value
    return changed


Change = Callable[[dict[str, Tensor]], object]
SCALE, BIAS = f"{EMBEDDING}_scale", "encoder.layers.0.feed_forward.up.bias"
INVALID: dict[str, tuple[Change, str]] = {
    "a NaN scale": (
        lambda held: held.update({SCALE: with_value(held[SCALE], torch.nan)}),
        f"{SCALE} contains nan; a sc",
    ),
    "an infinite scale": (
        lambda held: held.update({SCALE: with_value(held[SCALE], torch.inf)}),
        f"{SCALE} contains inf",
    ),
    "a negative scale": (
        lambda held: held.update({SCALE: with_value(held[SCALE], -1.0)}),
        f"{SCALE} contains -1; a scale",
    ),
    "a scale of zero": (
        lambda held: held.update({SCALE: with_value(held[SCALE], 0.0)}),
        "contains 0; a scale must be pos",
    ),
    "a scale that overflows": (
        lambda held: held.update({SCALE: with_value(held[SCALE], 3e38)}),
        r"contains 3e\+38; a scale must be positive and at most 1\.33e\+36",
    ),
    "a float64 scale that overflows": (
        lambda held: held.update({SCALE: with_value(held[SCALE].double(), 1e300)}),
        f"{SCALE} contains inf",
    ),
    "no scale": (lambda held: held.pop(SCALE), f"does not contain the tensors of its config: {SCALE} missing"),
    "a scale too many": (
        lambda held: held.update({f"{BIAS}_scale": torch.ones(1)}),
        f"does not contain the tensors of its config: {BIAS}_scale unknown",
    ),
    "a scale without int8": (
        lambda held: held.update({EMBEDDING: held[EMBEDDING].float()}),
        f"does not contain the tensors of its config: {SCALE} unknown",
    ),
    "a scale per weight": (
        lambda held: held.update({SCALE: torch.ones_like(held[EMBEDDING], dtype=torch.float32)}),
        rf"{SCALE} is F32 \[\d+, \d+\], but by its config must be float \[\d+\]",
    ),
    "one scale for all": (
        lambda held: held.update({SCALE: torch.ones(1)}),
        rf"{SCALE} is F32 \[1\], but by its config",
    ),
    "an integer scale": (
        lambda held: held.update({SCALE: held[SCALE].to(torch.int8)}),
        rf"{SCALE} is I8 \[\d+\], but by its config must be float",
    ),
    "unsigned codes": (
        lambda held: held.update({EMBEDDING: held[EMBEDDING].view(torch.uint8)}),
        f"does not contain the tensors of its config: {SCALE} unknown",
    ),
    "codes of another shape": (
        lambda held: held.update({EMBEDDING: held[EMBEDDING].T}),
        rf"{EMBEDDING} is I8 \[\d+, \d+\], but by its config must be float",
    ),
    "an int8 vector": (
        lambda held: held.update({BIAS: held[BIAS].to(torch.int8)}),
        rf"{BIAS} is I8 \[\d+\], but by its",
    ),
}


@pytest.mark.parametrize("what", INVALID)
def test_an_invalid_file_is_rejected(folder: Path, what: str) -> None:
    change, message = INVALID[what]
    held = load_file(folder / "model.safetensors")
    change(held)
    save_file({name: tensor.contiguous() for name, tensor in held.items()}, folder / "model.safetensors")
    (folder / "manifest.json").unlink()
    write_manifest(folder)
    with pytest.raises(regard.RegardError, match=message):
        regard.load(folder)


def test_damage_is_reported_before_what_it_causes(folder: Path) -> None:
    path = folder / "model.safetensors"
    held = load_file(path) | {SCALE: torch.full((TOKENIZER.size,), torch.nan)}
    save_file(held, path)
    path.write_bytes(
        path.read_bytes().ljust(json.loads((folder / "manifest.json").read_text())["files"][path.name]["bytes"])
    )
    with pytest.raises(regard.RegardError, match=r"model\.safetensors is damaged: its SHA-256 differs"):
        regard.load(folder)


def test_older_versions_ask_to_upgrade(folder: Path) -> None:
    """They read format 1 only, and report any other in config.json before they open the weights."""
    assert json.loads((folder / "config.json").read_text())["format"] == 2
    assert json.loads((folder / "manifest.json").read_text())["format"] == 1


def test_quantising_leaves_the_model_unchanged() -> None:
    state = float_model().network.state_dict()
    before = {name: tensor.clone() for name, tensor in state.items()}
    quantise_weights(state)
    assert all(torch.equal(state[name], before[name]) for name in before)
