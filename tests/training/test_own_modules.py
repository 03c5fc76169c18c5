"""`regard.train(network=, loss=)`: a user's module and loss in the real training loop."""

import inspect
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

import regard
from regard import training_api
from regard.config import ModelConfig
from regard.decoding.options import Decoding
from regard.errors import RegardError
from regard.model.transformer import build
from regard.petit import corpus_files
from regard.plots.run_report import write_report
from regard.training import train as train_module
from regard.training.events import Event, Noted, Saved
from regard.training.recipe import Recipe
from regard.training.recipe_files import override_recipe
from regard.training_api import TrainingResult
from tests.support.recipes import small_recipe

SHORT: dict[str, Any] = {
    "steps": 4,
    "validate_every": 2,
    "checkpoint_every": 2,
    "log_every": 1,
    "validation_sentences": 2,
    "batch_tokens": 200,
}
ONE_STEP: dict[str, Any] = SHORT | {"steps": 1}


def short_recipe(which: str = "language", **settings: Any) -> Recipe:
    return replace(small_recipe(which, **SHORT | settings), decode=Decoding(max_tokens=3))


@pytest.fixture(scope="module", autouse=True)
def small_petit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus_files, "HELD_OUT", 12)
        patch.setattr(
            training_api, "write_report", lambda folder, _scores: folder / "report.md"
        )  # curves take a second
        patch.setenv("REGARD_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def losses(run: TrainingResult) -> list[float]:
    return [record["loss"] for record in run.history]


class Reader(nn.Module):
    """A small causal language model, or a classifier of `classes`, with a batch norm, whose buffers must be resumed."""

    def __init__(self, config: ModelConfig, classes: int = 0) -> None:
        super().__init__()
        width = 16
        self.embedding = nn.Embedding(config.vocab_size, width)
        self.positions = nn.Embedding(config.max_length, width)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.norm = nn.BatchNorm1d(width)
        self.output = nn.Linear(width, classes or config.vocab_size)
        self.classes = classes

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        t = tokens.size(1)
        positions = torch.arange(t, device=tokens.device)
        x = self.embedding(tokens) + self.positions(positions)  # [B, T, width]
        future = None if self.classes else positions[:, None] < positions
        padding = positions >= lengths[:, None]
        x = x + self.attention(x, x, x, key_padding_mask=padding, attn_mask=future, need_weights=False)[0]
        x = self.norm(x.transpose(1, 2)).transpose(1, 2)
        output: Tensor = self.output(x[:, 0] if self.classes else x)
        return output


@pytest.mark.slow
@pytest.mark.parametrize(
    "which", ["encoder-decoder", "language", "classification", pytest.param("masked", marks=pytest.mark.long)]
)
def test_regards_network_as_a_users_module_trains_exactly_as_itself(which: str, tmp_path: Path) -> None:
    """The same data, initial weights, dropout, schedule and accumulation: the same losses and samples."""
    recipe = short_recipe(which, label_smoothing=0.1, accumulate=2, average=2, packed=False, validation_sentences=12)

    def build_the_same(config: ModelConfig) -> nn.Module:
        return build(recipe.config(config.vocab_size, config.classes))

    regards = regard.train(recipe, tmp_path / "regard's", progress=False)
    own = regard.train(recipe, tmp_path / "own", progress=False, network=build_the_same)
    assert losses(own) == pytest.approx(losses(regards), rel=1e-5)
    validated = [record for record in own.history if record["event"] == "Validated"]
    assert [record["samples"] for record in validated] == [
        record["samples"] for record in regards.history if record["event"] == "Validated"
    ]
    assert [str(score) for score in own.scores] == [str(score) for score in regards.scores]


@pytest.mark.slow
def test_a_run_is_resumed_as_if_it_had_not_been_interrupted(tmp_path: Path) -> None:
    recipe, make = short_recipe("language"), Reader
    whole = regard.train(recipe, tmp_path / "whole", progress=False, network=make)

    def interrupt(event: Event) -> None:
        if isinstance(event, Saved) and event.step == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        regard.train(recipe, tmp_path / "run", progress=interrupt, network=make)
    resumed = regard.train(recipe, tmp_path / "run", progress=False, network=make, resume=True)
    assert losses(resumed) == losses(whole)
    assert resumed.module is not None
    assert whole.module is not None
    for name, value in whole.module.state_dict().items():  # with the buffers of the batch norm
        assert torch.equal(resumed.module.state_dict()[name], value), name


def test_the_command_that_resumes_does_not_forget_the_module(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train_module, "stop_reason", lambda run, _=False: "interrupted" if run.progress.step else None)
    regard.train(short_recipe("language"), tmp_path / "run", network=Language)
    output = capsys.readouterr().out
    assert "To resume: repeat the same call with resume=True" in output
    assert "regard train" not in output


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> TrainingResult:
    recipe = short_recipe("language")
    return regard.train(recipe, tmp_path_factory.mktemp("own") / "run", progress=False, network=Reader)


@pytest.mark.slow
def test_the_best_model_generates_and_is_saved_with_a_note(trained: TrainingResult, tmp_path: Path) -> None:
    model = trained.model
    assert repr(model).startswith("<Model: your own Reader as decoder")
    text = model.generate("Le chat", max_tokens=4)
    assert text.startswith("Le chat")
    note = (trained.folder / "README.md").read_text()
    assert "network=Reader(...)" in note
    write_report(trained.folder)
    report = (trained.folder / "report.md").read_text()
    assert "your own module Reader" in report
    assert "network=Reader(...)" in report
    assert "regard generate" not in report
    module = Reader(model.config)
    module.load_state_dict(load_file(trained.folder / "model.safetensors"))
    again = regard.load(trained.folder, network=Reader(model.config))
    assert again.generate("Le chat", max_tokens=4) == text
    model.save(tmp_path / "saved")
    assert regard.load(tmp_path / "saved", network=module).generate("Le chat", max_tokens=4) == text


@pytest.mark.parametrize("call", ["embed", "attend", "hidden"])
def test_what_needs_regards_network_says_whose_it_is(call: str, trained: TrainingResult) -> None:
    with pytest.raises(RegardError, match=rf"^{call} needs Regard's own network; this is your module Reader$"):
        getattr(trained.model, call)("Le chat dort.")


def test_a_folder_of_a_users_module_needs_the_same_module(trained: TrainingResult) -> None:
    with pytest.raises(RegardError, match=r"your own module \(Reader\).*network=MODULE"):
        regard.load(trained.folder)
    with pytest.raises(RegardError, match="not the Reader that was trained"):
        regard.load(trained.folder, network=nn.Linear(2, 2))
    with pytest.raises(RegardError, match="without a network of your own"):
        regard.load("petit-fr-en", network=nn.Linear(2, 2))
    recipe = short_recipe("language", packed=False, precision="float32", compile=False)
    with pytest.raises(RegardError, match="resume it with the same module"):
        regard.train(recipe, trained.folder, resume=True, progress=False)


class Language(nn.Module):
    """A correct module without attention, which tests change in one way."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.embedding = nn.Embedding(config.vocab_size, 8)
        self.output = nn.Linear(8, config.outputs)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.output(self.embedding(tokens))


class Transposed(Language):
    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(tokens).transpose(0, 1)


class WithoutOutputLayer(Language):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.embedding(tokens)


class ReturnsTuple(Language):
    def forward(self, tokens: Tensor) -> Any:
        return super().forward(tokens), None


class Detached(Language):
    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(tokens).detach()


class NotANumber(Language):
    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(tokens) / 0 * 0


class BadWeights(Language):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        nn.init.constant_(self.output.bias, float("nan"))


class InvertedMask(Language):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.attention = nn.MultiheadAttention(8, 1, batch_first=True)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:  # type: ignore[override]
        x = self.embedding(tokens)
        return self.output(self.attention(x, x, x, attn_mask=mask)[0])


class NeedsArguments(Language):
    def __init__(self, vocab: int, width: int) -> None:
        nn.Module.__init__(self)
        self.embedding = nn.Embedding(vocab, width)


class NeedsSize(Language):
    def __init__(self, vocab: int) -> None:
        nn.Module.__init__(self)
        self.embedding = nn.Embedding(vocab, 8)


class PlainList(Language):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.layers = [nn.Linear(8, 8)]


class PlainTensor(Language):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.scale = torch.ones(8, requires_grad=True)


class TooFewIds(Language):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.embedding = nn.Embedding(config.outputs, 8)


class TooFewPositions(Language):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.positions = nn.Embedding(config.max_length - 1, 8)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.output(self.embedding(tokens) + self.positions(torch.arange(tokens.size(1))))


class OnAnotherDevice(Language):
    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(tokens).to("meta")


class OnMeta(Language):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.to("meta")


class Empty(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config

    def forward(self, tokens: Tensor) -> Tensor:
        return torch.zeros(*tokens.shape, self.config.outputs)


def location(method: Any) -> str:
    """The beginning of a message about a method, as a regular expression."""
    return rf"test_own_modules.py, line {inspect.getsourcelines(method)[1]}: "


MISTAKES: dict[type[nn.Module], str] = {
    Transposed: rf"{location(Transposed.forward)}"
    r"Transposed returned \[8, 2, 320\] instead of \[2, 8, 320\] or \[2, 8, 321\]: the batch comes first",
    WithoutOutputLayer: r"returned \[2, 8, 32\].*hidden vectors, so apply the output layer",
    ReturnsTuple: "ReturnsTuple returned a tuple: return only the logits",
    Detached: "Detached is not differentiable: its output has no gradient",
    NotANumber: rf"{location(NotANumber.forward)}NotANumber returned NaN.*weights are finite",
    BadWeights: r"NaN or infinity before any training: the initial weights in output.bias are not finite",
    InvertedMask: r"InvertedMask returned NaN.*a mask hides every position.*True means.*opposite: pass them ~mask",
    PlainList: rf"{location(PlainList.__init__)}PlainList.layers is a Python list, so its weights would not be "
    "trained: make it an nn.ModuleList",
    PlainTensor: rf"{location(PlainTensor.__init__)}PlainTensor.scale is a plain tensor, so it would not be trained: "
    "make it an nn.Parameter",
    TooFewIds: r"test_own_modules.py, line \d+: IndexError.*embedding is too small: one of ids needs 321 rows, .* 128",
    NeedsArguments: r"network is a class: pass lambda config: NeedsArguments\(config.vocab_size, ...\), because",
    NeedsSize: r"pass lambda config: NeedsSize\(config.vocab_size, ...\).*test_own_modules.py, line \d+: TypeError",
    TooFewPositions: r"IndexError.*read up to 128 tokens: enlarge its table of positions, or lower train.max_length",
    OnAnotherDevice: "OnAnotherDevice returned a tensor on meta, but its weights are on cpu",
    OnMeta: "meta device",
    Empty: "Empty has no parameters",
}


@pytest.mark.parametrize("module", MISTAKES, ids=lambda module: module.__name__)
def test_a_mistake_is_named_before_training_starts(module: type[nn.Module], tmp_path: Path) -> None:
    with pytest.raises(RegardError, match=MISTAKES[module]):
        regard.train(short_recipe("language"), tmp_path / "run", progress=False, network=module)
    assert not (tmp_path / "run").exists()


def test_a_function_that_returns_no_module_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RegardError, match=r"returned a int, not an nn.Module"):
        regard.train(short_recipe("language"), tmp_path / "run", progress=False, network=lambda _: 3)  # type: ignore[arg-type]
    with pytest.raises(RegardError, match="network is a str"):
        regard.train(short_recipe("language"), tmp_path / "run", progress=False, network="mine")  # type: ignore[arg-type]


def test_settings_that_a_module_cannot_have_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RegardError, match=r"train.packed=true"):
        regard.train(short_recipe("language", packed=True), tmp_path / "run", network=Language)
    with pytest.raises(RegardError, match=r"model.prefix"):
        regard.train(short_recipe("decoder"), tmp_path / "run", progress=False, network=Language)
    overrides = {"model.start": "petit-fr-en"}
    with pytest.raises(RegardError, match=r"model.start"):
        regard.train("petit-fr-en", tmp_path / "run", overrides=overrides, network=Language)


class LooksAhead(Language):
    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(tokens.roll(-1, 1))


class AveragesPadding(Language):
    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        return self.output(x.mean(1))


class AlwaysDrops(Language):
    def forward(self, tokens: Tensor) -> Tensor:
        return F.dropout(super().forward(tokens), 0.5)


class HasUnused(Language):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.unused = nn.Linear(8, 8)


WARNINGS: dict[type[nn.Module], str] = {
    LooksAhead: "LooksAhead looks at the future: its output at position 0 changes",
    AlwaysDrops: "AlwaysDrops gives other outputs for the same input in eval mode",
    HasUnused: "parameters of HasUnused without a gradient are not trained: unused.weight, unused.bias",
}


@pytest.mark.parametrize("module", WARNINGS, ids=lambda module: module.__name__)
def test_a_probable_mistake_is_a_warning(module: type[nn.Module], tmp_path: Path) -> None:
    events: list[Event] = []
    recipe = short_recipe("language", **ONE_STEP)
    regard.train(recipe, tmp_path / "run", progress=events.append, network=module)
    notes = [event.text for event in events if isinstance(event, Noted)]
    assert any(WARNINGS[module] in note for note in notes), notes


def test_python_warns_of_a_classifier_that_reads_padding_if_nothing_is_shown(
    tmp_path: Path,
) -> None:
    class Averages(AveragesPadding):
        def __init__(self, config: ModelConfig) -> None:
            super().__init__(config)
            self.output = nn.Linear(8, config.classes)

    recipe = short_recipe("classification", **ONE_STEP)
    with pytest.warns(UserWarning, match="padding after a text changes the output of Averages"):
        run = regard.train(recipe, tmp_path / "run", progress=False, network=Averages)
    ((_, probability),) = run.model.classify(["Le chat dort."])
    assert 0 < probability <= 1


def test_a_correct_module_gets_no_warning(tmp_path: Path) -> None:
    recipe = short_recipe("language", **ONE_STEP)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        regard.train(recipe, tmp_path / "run", progress=False, network=Language)


Loss = Callable[[Tensor, Tensor], Tensor]
LOSSES: list[tuple[str, Loss]] = [
    ("encoder-decoder", F.cross_entropy),
    ("classification", nn.CrossEntropyLoss(reduction="none")),
]


@pytest.mark.slow
@pytest.mark.parametrize(("which", "loss"), LOSSES, ids=["mean", "per target"])
def test_cross_entropy_as_a_users_loss_trains_regards_network_as_before(which: str, loss: Loss, tmp_path: Path) -> None:
    recipe = short_recipe(which, label_smoothing=0.0, accumulate=2, steps=2)
    expected = regard.train(recipe, tmp_path / "regard's", progress=False)
    own = regard.train(recipe, tmp_path / "own", progress=False, loss=loss)
    assert losses(own) == pytest.approx(losses(expected), rel=1e-5)
    assert own.module is None
    assert own.model.config == expected.model.config


def test_another_loss_changes_training_and_not_what_validation_measures(tmp_path: Path) -> None:
    recipe = short_recipe("language", label_smoothing=0.1, **ONE_STEP)
    events: list[Event] = []

    def doubled(logits: Tensor, targets: Tensor) -> Tensor:
        return 2 * F.cross_entropy(logits, targets)

    own = regard.train(recipe, tmp_path / "own", progress=events.append, loss=doubled, network=Language)
    stepped, validated = own.history
    assert stepped["loss"] == pytest.approx(2 * validated["loss"], rel=0.05)
    assert any("train.label_smoothing=0.1 has no effect" in event.text for event in events if isinstance(event, Noted))


BAD_LOSSES: dict[str, tuple[Any, str]] = {
    "a number": (lambda _logits, _targets: 3.0, "your loss returned float"),
    "a wrong shape": (lambda logits, _targets: logits, r"your loss returned \[4, 320\]"),
    "no gradient": (lambda logits, _targets: logits.detach().sum(), "no gradient"),
    "infinite": (lambda logits, _targets: logits.sum() / 0, "not a finite number"),
    "an error": (lambda logits, targets: F.mse_loss(logits, targets), r"test_own_modules.py, line \d+: RuntimeError"),
    "not callable": (3, "loss is a int"),
    "with parameters": (nn.Linear(2, 2), "loss has parameters"),
}


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize("which", BAD_LOSSES)
def test_a_bad_loss_is_named_before_training_starts(which: str, tmp_path: Path) -> None:
    loss, message = BAD_LOSSES[which]
    with pytest.raises(RegardError, match=message):
        regard.train(short_recipe("language"), tmp_path / "run", progress=False, loss=loss, network=Language)


def test_consistency_belongs_to_regards_loss(tmp_path: Path) -> None:
    recipe = override_recipe(short_recipe(), {"model.dropout": 0.1, "train.consistency": 1.0})
    with pytest.raises(RegardError, match=r"train.consistency=1.0"):
        regard.train(recipe, tmp_path / "run", progress=False, loss=F.cross_entropy)
