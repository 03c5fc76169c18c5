"""`regard train --module`: complete models and self-attention that students wrote, in real training runs."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

import regard
from regard.cli import app
from regard.config import ModelConfig
from regard.course.assignment import ASSIGNMENTS_FOLDER
from regard.course.loss_comparison import read_losses
from regard.course.module_file import load_student_module
from regard.course.own_attention import OwnAttention, install_self_attention
from regard.decoding.own_network import OwnNetwork
from regard.errors import RegardError
from regard.model.transformer import Decoder, EncoderDecoder, Network, build
from regard.petit import corpus_files
from regard.training.recipe_files import read_recipe
from tests.support.loss_tables import losses_output

SETTINGS: dict[str, Any] = {
    "data.petit": 60,
    "tokenizer.vocab_size": 320,
    "model.d_model": 12,
    "model.heads": 2,
    "model.layers": 1,
    "model.d_ff": 24,
    "model.dropout": 0.0,
    "train.steps": 4,
    "train.batch_tokens": 200,
    "train.max_length": 64,
    "train.validate_every": 2,
    "train.validation_sentences": 2,
    "train.checkpoint_every": 4,
    "train.log_every": 2,
    "train.device": "cpu",
    "decode.max_tokens": 3,
}


def reference(assignment: str) -> str:
    return (ASSIGNMENTS_FOLDER / assignment / "reference.py").read_text(encoding="utf-8")


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(corpus_files, "HELD_OUT", 12)
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("regard.training_api.write_report", lambda folder, _scores: folder / "report.md")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def train(recipe: str, source: str, *more: str, **settings: Any) -> str:
    """The output of the command, or its error."""
    Path("mine.py").write_text(source, encoding="utf-8")
    arguments = ["train", recipe, "--out", "run", "--module", "mine.py", *more]
    for name, value in (SETTINGS | settings).items():
        arguments += ["--set", f"{name}={value}"]
    result = CliRunner().invoke(app, arguments)
    return result.output if result.exit_code == 0 else f"{result.output}error: {result.exception}"


@pytest.mark.slow
@pytest.mark.usefixtures("without_type_checks", "small")
@pytest.mark.parametrize(
    ("recipe", "assignment", "name"),
    [("petit-lm", "decoder-lm", "DecoderLM"), ("petit-fr-en", "annotated", "make_model")],
)
def test_a_complete_model_is_trained_compared_and_saved(recipe: str, assignment: str, name: str) -> None:
    output = train(recipe, reference(assignment))
    assert f"{name} of mine.py will be trained" in output
    assert "side by side: training loss" in output
    assert "The two need not agree" in output
    table = re.search(r"^sample +yours +Regard's", output, re.MULTILINE)
    assert table is not None
    if name == "make_model":  # only translations are scored
        scoring = output.rindex("scoring the best model on 2 validation examples")
        assert output.index("The two need not agree") < table.start() < scoring
    assert output.count("The two need not agree") == 1
    assert "not a Regard model: see run/README.md" in output
    assert "looks at the future" not in output
    assert "padding" not in output
    own, regards = read_losses(Path("run")), read_losses(Path("run-reference"))
    assert own.keys() == regards.keys() != set()
    assert own != regards
    student = load_student_module(Path("mine.py"), read_recipe(recipe, SETTINGS))
    network = student.change_network(regard.load("run-reference").network)
    assert isinstance(network, OwnNetwork)
    model = regard.load("run", network=network.module)
    text = model.translate("Le chat dort.", beam=2) if name == "make_model" else model.generate("Le chat", max_tokens=3)
    assert isinstance(text, str)
    resumed = train(recipe, reference(assignment), "--resume", **{"train.steps": 6})
    assert "After step 6" in resumed, resumed


@pytest.mark.long
@pytest.mark.usefixtures("without_type_checks", "small")
def test_self_attention_is_trained_with_the_same_losses() -> None:
    output = train("petit-lm", reference("multi-head-self-attention"), **{"model.positions": "learned"})
    assert "They agree" in output
    assert read_losses(Path("run")) == pytest.approx(read_losses(Path("run-reference")), rel=1e-4)
    assert "run holds an ordinary model" in output
    assert regard.load("run").generate("Le chat", max_tokens=3).startswith("Le chat")


def self_attention(source: str = reference("multi-head-self-attention")) -> Any:
    names: dict[str, Any] = {"__name__": "solution"}
    exec(source, names)
    return names["MultiHeadSelfAttention"]


def a_network(kind: str, **settings: Any) -> Network:
    torch.manual_seed(1)
    sizes: dict[str, Any] = {"d_model": 12, "heads": 2, "layers": 2, "d_ff": 24, "dropout": 0.0}
    return build(ModelConfig(vocab_size=30, kind=kind, **sizes | settings)).double()  # type: ignore[arg-type]


def outputs(network: Network) -> dict[str, Tensor]:
    """The logits of the real positions, and the gradients of the weights."""
    generator = torch.Generator().manual_seed(0)
    source, target = (torch.randint(29, (2, length), generator=generator) for length in (6, 5))
    lengths = torch.tensor([5, 3])
    real = torch.arange(5) < lengths[:, None]
    if isinstance(network, EncoderDecoder):
        logits = network(source, target, torch.tensor([4, 6]), lengths)[real]
    else:
        logits = network(target, lengths)[real]
    logits.square().sum().backward()
    return {"logits": logits} | {name: weight.grad for name, weight in network.named_parameters()}


@pytest.mark.parametrize("kind", ["decoder", "encoder-decoder"])
def test_self_attention_gives_regards_outputs_and_gradients_although_it_knows_no_padding(kind: str) -> None:
    own, regards = a_network(kind), a_network(kind)
    install_self_attention(self_attention(), own.float())
    assert isinstance(own, Decoder | EncoderDecoder)
    assert all(isinstance(layer.attention, OwnAttention) for layer in own.decoder.layers)
    expected, actual = outputs(regards), outputs(own.double())
    for name, value in actual.items():
        torch.testing.assert_close(value, expected[name], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("encoder", {}, "no mask for padding"),
        ("decoder", {"prefix": True}, "prefix"),
        ("decoder", {"window": 3}, "window"),
        ("decoder", {"d_k": 5}, "leave d_k and d_v out"),
        ("decoder", {"positions": "rotary"}, "rotary"),
    ],
)
def test_a_network_that_self_attention_cannot_compute_is_refused(
    kind: str, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(RegardError, match=message):
        install_self_attention(self_attention(), a_network(kind, **settings).float())


def test_a_self_attention_that_is_not_regards_is_refused() -> None:
    wrong = reference("multi-head-self-attention").replace("math.sqrt(self.head_size)", "2")
    with pytest.raises(RegardError, match="your MultiHeadSelfAttention: with the same weights, its output differs"):
        install_self_attention(self_attention(wrong), a_network("decoder").float())


DECODER_LM = reference("decoder-lm")
MISTAKES = {
    "another kind of recipe": (
        "petit-fr-en",
        DECODER_LM,
        'defines DecoderLM, but the recipe .* kind "encoder-decoder"',
    ),
    "a part that is missing": (
        "petit-lm",
        DECODER_LM.replace("        seq = tokens.shape[1]\n", "        raise NotImplementedError\n"),
        r"mine.py, line \d+: NotImplementedError",
    ),
    "an error in the constructor": (
        "petit-lm",
        DECODER_LM.replace("nn.Embedding(vocab, width)", "nn.Embedding(vocab, width, width, width, 1 / 0)"),
        r"DecoderLM failed: line \d+: ZeroDivisionError",
    ),
    "an unknown size": (
        "petit-lm",
        DECODER_LM.replace("heads, layers, max_length)", "heads, layers, depth)"),
        "needs depth",
    ),
    "hidden vectors": (
        "petit-lm",
        DECODER_LM.replace("self.out(self.norm(hidden))", "self.norm(hidden)"),
        "output layer",
    ),
    "an error at the top": (
        "petit-lm",
        f"{DECODER_LM}\n1 / 0\n",
        r"mine.py could not be run: line \d+: ZeroDivisionError",
    ),
    "a syntax error": ("petit-lm", f"{DECODER_LM}\ndef (:\n", r"mine.py, line \d+: SyntaxError"),
    "not callable": ("petit-lm", "DecoderLM = 3", "DecoderLM as a int"),
    "not a module": ("petit-lm", "def DecoderLM(vocab): return vocab", "returned a int, not an nn.Module"),
}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("which", MISTAKES)
def test_a_mistake_is_named_before_anything_is_trained(which: str) -> None:
    recipe, source, message = MISTAKES[which]
    output = train(recipe, source)
    assert re.search(message, output), output
    assert "for comparison" not in output
    assert not Path("run").exists()
    assert not Path("run-reference").exists()


@pytest.mark.parametrize("name", ["make_model", "MultiHeadSelfAttention"])
def test_a_recipe_that_fine_tunes_another_model_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(f"def {name}(src_vocab, tgt_vocab): ...")
    with pytest.raises(RegardError, match=r"model\.start fine-tunes another model: leave it out"):
        load_student_module(tmp_path / "mine.py", read_recipe("finetune-corpus"))


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_a_model_that_looks_at_the_future_is_trained_with_a_warning() -> None:
    output = train("petit-lm", DECODER_LM.replace(".tril()", ""), **{"train.steps": 1})
    assert output.count("warning: DecoderLM looks at the future") == 2
    assert output.rindex("warning: ") > output.index("The two need not agree")
    assert "note: DecoderLM" not in output


def test_losses_of_complete_models_are_compared_without_a_verdict() -> None:
    text = losses_output({("validation", 5): 2.5}, {("validation", 5): 2.0}, should_agree=False)
    assert "After step 5 the validation loss is 2.5000 (Regard's: 2.0000)" in text
    assert "agree:" in text
    assert "They" not in text
