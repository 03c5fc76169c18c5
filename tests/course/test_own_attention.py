"""`regard train --attention`: a student's attention in a real model gives the same results as Regard's own."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from typer.testing import CliRunner

import regard
from regard.cli import app
from regard.config import ModelConfig
from regard.course.assignment import ASSIGNMENTS_FOLDER
from regard.course.loss_comparison import read_losses
from regard.course.own_attention import OwnAttention, install_attention
from regard.model.attention import MultiHeadAttention
from regard.model.transformer import EncoderDecoder, Network, build
from regard.petit import corpus_files as files
from tests.support.loss_tables import losses_output

ASSIGNMENT = "multi-head-attention"
REFERENCE = ASSIGNMENTS_FOLDER / ASSIGNMENT / "reference.py"
UNTRAINABLE = ("convolutions", "head_modules", "kernels", "one_tensor", "tensors")
"""Correct solutions whose projections are neither linear layers nor matrices of all heads."""
FILES = sorted((Path(__file__).parent / "solutions" / ASSIGNMENT).glob("*.py"))
SOLUTIONS = [REFERENCE, *(path for path in FILES if path.stem not in UNTRAINABLE)]
SIZES: dict[str, Any] = {"d_model": 12, "heads": 2, "layers": 1, "d_ff": 24, "dropout": 0.0}
QUICK: dict[str, Any] = {
    "steps": 20,
    "batch_tokens": 300,
    "max_length": 64,
    "warmup": 5,
    "lr": 5e-3,
    "validate_every": 10,
    "validation_sentences": 4,
    "log_every": 5,
    "device": "cpu",
}


def student_of(source: str) -> type[nn.Module]:
    names: dict[str, Any] = {"__name__": "solution"}
    exec(source, names)
    found: type[nn.Module] = names["MultiHeadAttention"]
    return found


def a_network(**settings: Any) -> Network:
    torch.manual_seed(1)
    return build(ModelConfig(vocab_size=30, **SIZES | {"kind": "encoder-decoder"} | settings))


def answers(network: Network, packed: bool) -> dict[str, Tensor]:
    """The hidden states of the real positions, and the gradients of the weights."""
    generator = torch.Generator().manual_seed(0)
    source, target = (torch.randint(29, (2, length), generator=generator) for length in (6, 5))
    lengths = torch.tensor([[3, 2], [6, 0]]), torch.tensor([[2, 2], [5, 0]])
    if not packed:
        lengths = torch.tensor([4, 6]), torch.tensor([5, 3])
    assert isinstance(network, EncoderDecoder)
    hidden = network.hidden(source, target, *lengths)
    real = torch.arange(5) < (lengths[1].sum(1) if packed else lengths[1])[:, None]
    hidden[real].square().sum().backward()
    return {"hidden": hidden[real]} | {
        name: weight.grad for name, weight in network.named_parameters() if weight.grad is not None
    }


def without_biases(network: Network, like: Network) -> Network:
    """The network with the other's weights, whose unused biases are 0."""
    with torch.no_grad():
        for one, other in zip(network.parameters(), like.parameters(), strict=True):
            one.copy_(other)
    return network


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_a_students_attention_gives_regards_outputs_and_gradients(path: Path, packed: bool) -> None:
    own = a_network(d_k=5, d_v=7)
    install_attention(student_of(path.read_text()), own)
    assert sum(isinstance(each, OwnAttention) for each in own.modules()) == 3  # encoder, decoder, cross
    ours = without_biases(a_network(d_k=5, d_v=7), own)
    expected, got = answers(ours, packed), answers(own, packed)
    assert got.keys() <= expected.keys()
    missing = expected.keys() - got.keys()
    assert all(name.endswith("bias") and "attention" in name for name in missing)
    for name, each in got.items():
        torch.testing.assert_close(each, expected[name], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", UNTRAINABLE)
def test_weights_that_are_not_matrices_are_refused(name: str) -> None:
    [path] = [path for path in FILES if path.stem == name]
    with pytest.raises(ValueError, match=r"other than its four projections: .* linear layers or matrices"):
        install_attention(student_of(path.read_text()), a_network(d_k=5, d_v=7))


def test_the_students_code_is_executed() -> None:
    class Counting(student_of(REFERENCE.read_text())):  # type: ignore[misc]
        calls = 0

        def forward(self, *given: Tensor) -> Tensor:
            Counting.calls += 1
            return -super().forward(*given) if Counting.calls > 20 else super().forward(*given)

    network = a_network(layers=2)
    install_attention(Counting, network)
    before, Counting.calls = answers(deepcopy(network), False)["hidden"], 0
    assert torch.equal(answers(deepcopy(network), False)["hidden"], before)
    assert Counting.calls == 2 + 2 * 2
    Counting.calls = 100
    assert not torch.allclose(answers(deepcopy(network), False)["hidden"], before)


def test_the_network_keeps_exactly_regards_weights() -> None:
    plain, own = a_network(), a_network()
    install_attention(student_of(REFERENCE.read_text()), own)
    assert [name for name, _ in own.named_parameters()] == [name for name, _ in plain.named_parameters()]
    assert own.state_dict().keys() == plain.state_dict().keys()
    assert all(type(each) is MultiHeadAttention for each in plain.modules() if isinstance(each, MultiHeadAttention))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kv_heads": 1}, "kv_heads=1"),
        ({"positions": "rotary"}, "rotary"),
        ({"positions": "alibi"}, "alibi"),
        ({"positions": "t5"}, 'model.positions="t5"'),
        ({"attention_scale": 1.0}, "attention_scale=1.0"),
        ({"attention_dropout": 0.1}, "attention_dropout=0.1"),
    ],
)
def test_unsupported_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        install_attention(student_of(REFERENCE.read_text()), a_network(**settings))


def test_additional_weights_are_refused() -> None:
    class Temperature(student_of(REFERENCE.read_text())):  # type: ignore[misc]
        def __init__(self, *sizes: int) -> None:
            super().__init__(*sizes)
            self.temperature = nn.Parameter(torch.ones(1))

    with pytest.raises(ValueError, match="other than its four projections: temperature"):
        install_attention(Temperature, a_network())


def test_a_wrong_attention_is_refused() -> None:
    wrong = student_of(REFERENCE.read_text().replace("math.sqrt(Q.shape[-1])", "1"))
    with pytest.raises(ValueError, match="its output differs"):
        install_attention(wrong, a_network())


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(files, "HELD_OUT", 12)
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_losses_that_differ_are_reported() -> None:
    table = losses_output(
        {("training", 5): 3.0, ("validation", 5): 2.5}, {("training", 5): 3.0, ("validation", 5): 2.0}
    )
    assert "They do not agree: the largest difference is 25% (validation, step 5)." in table
    assert "5 validation 2.5000 2.0000" in [" ".join(line.split()) for line in table.splitlines()]
    assert "|" not in table
    assert "no losses" in losses_output({("training", 5): 1.0}, {("training", 6): 1.0})


def test_a_long_table_of_losses_is_shortened_and_keeps_the_last_row() -> None:
    losses = {("training", step): 1.0 for step in range(1, 101)}
    lines = [line for line in losses_output(losses, losses).splitlines() if "  training" in line]
    assert len(lines) <= 13
    assert lines[-1].startswith(" 100  training")


@pytest.mark.slow
@pytest.mark.usefixtures("without_type_checks")
def test_the_command_trains_both_with_the_same_losses_and_weights_and_the_model_translates(small: Path) -> None:
    Path("my_attention.py").write_text(REFERENCE.read_text())
    changes = {f"train.{name}": each for name, each in QUICK.items()} | {
        f"model.{name}": each for name, each in SIZES.items()
    }
    changes |= {"data.petit": 60, "tokenizer.vocab_size": 320}
    arguments = ["train", "petit-fr-en", "--out", "mine", "--attention", "my_attention.py"]
    for name, value in changes.items():
        arguments += ["--set", f"{name}={value}"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "side by side: training loss" in result.output
    assert "They agree" in result.output
    assert Path("mine-reference/report.md").exists()
    own, theirs = read_losses(Path("mine")), read_losses(Path("mine-reference"))
    assert own.keys() == theirs.keys()
    assert {("training", 5), ("training", 20), ("validation", 10), ("validation", 20)} <= own.keys()
    assert own == pytest.approx(theirs, rel=1e-4)
    weights, expected = (load_file(Path(name) / "model.safetensors") for name in ("mine", "mine-reference"))
    assert weights.keys() == expected.keys()
    for name in (name for name in weights if not name.endswith(".k.bias")):  # only rounding moves it
        torch.testing.assert_close(weights[name], expected[name], rtol=1e-3, atol=1e-3)
    assert isinstance(regard.load("mine").translate(["Le chat dort."], beam=1)[0], str)
    again = CliRunner().invoke(app, arguments)
    assert again.exit_code != 0
    assert "mine already holds a run" in str(again.exception or again.output)


def test_a_solution_of_another_assignment_is_refused(small: Path) -> None:
    Path("good.py").write_text((ASSIGNMENTS_FOLDER / "self-attention" / "reference.py").read_text())
    result = CliRunner().invoke(app, ["train", "petit-fr-en", "--out", "mine", "--attention", "good.py"])
    message = str(result.exception or result.output)
    assert "good.py must define one of make_model, DecoderLM, MultiHeadAttention, MultiHeadSelfAttention" in message
    assert message.endswith("it defines SelfAttention, math, nn, torch")


@pytest.mark.slow
@pytest.mark.usefixtures("without_type_checks")
def test_the_command_refuses_a_mistake_before_anything_is_written(small: Path) -> None:
    Path("my_attention.py").write_text(REFERENCE.read_text().replace("mask == 0", "mask != 0"))
    result = CliRunner().invoke(app, ["train", "petit-fr-en", "--out", "mine", "--attention", "my_attention.py"])
    assert result.exit_code != 0
    message = str(result.exception or result.output)
    assert "my_attention.py is not correct yet: mask-inverted" in message
    assert "line" in message
    assert not Path("mine").exists()
    assert not Path("mine-reference").exists()
