"""`regard.train`: the public function behind `regard train`."""

import importlib.machinery
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import regard
from regard import training_api
from regard.petit import corpus_files
from regard.plots import training_display
from regard.plots.console import SafeConsole
from regard.plots.training_display import TrainingDisplay
from regard.training.events import Ended, Event, Started
from regard.training.recipe_files import as_toml, read_recipe

OVERRIDES: dict[str, Any] = {
    "data.petit": 120,
    "tokenizer.vocab_size": 320,
    "model.d_model": 16,
    "model.heads": 2,
    "model.layers": 1,
    "model.d_ff": 32,
    "train.steps": 4,
    "train.batch_tokens": 400,
    "train.validate_every": 2,
    "train.validation_sentences": 2,
    "train.checkpoint_every": 4,
    "train.log_every": 2,
    "train.device": "cpu",
}


@pytest.fixture(scope="module", autouse=True)
def small_petit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus_files, "HELD_OUT", 12)
        patch.setenv("REGARD_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.mark.slow
def test_a_bundled_recipe_with_overrides(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Output is not a terminal here, so the progress is printed as plain lines."""
    result = regard.train("petit-fr-en", out=tmp_path / "run", overrides=OVERRIDES)
    assert (result.stop_reason, result.signal, result.folder) == ("steps", None, tmp_path / "run")
    assert result.report == tmp_path / "run" / "report.md"
    assert [(record["event"], record["step"]) for record in result.history] == [
        ("Stepped", 2),
        ("Validated", 2),
        ("Stepped", 4),
        ("Validated", 4),
    ]
    assert all(isinstance(record["loss"], float) for record in result.history)
    assert [score.bleu.name for score in result.scores] == ["BLEU"]  # type: ignore[union-attr]
    assert isinstance(result.model, regard.Model)
    assert result.model.config.d_model == 16
    assert isinstance(result.model.translate("Le chat dort."), str)
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("step 4/4  validation loss") for line in lines)
    assert any(line.startswith("To use the model: regard translate ") for line in lines)


@pytest.mark.slow
def test_a_recipe_object_resumed_without_display(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = read_recipe("petit-fr-en", OVERRIDES | {"train.validation_sentences": 0})
    assert isinstance(recipe, regard.Recipe)
    events: list[Event] = []
    regard.train(recipe, tmp_path / "run", overrides={"train.steps": 2}, progress=events.append)
    assert isinstance(events[0], Started)
    assert isinstance(events[-1], Ended)
    result = regard.train(recipe, str(tmp_path / "run"), resume=True, progress=False)
    assert result.best_step in (2, 4)
    assert {record["step"] for record in result.history} == {2, 4}
    assert capsys.readouterr().out == ""


def test_a_bundled_recipe_resumes_with_its_own_overrides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = read_recipe("petit-fr-en", OVERRIDES)
    monkeypatch.setattr(training_api, "train_recipe", lambda recipe, *_: pytest.fail(str(recipe == chosen)))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "recipe.toml").write_text(as_toml(chosen))
    with pytest.raises(pytest.fail.Exception, match="True"):
        regard.train("petit-fr-en", tmp_path / "run", resume=True)


@pytest.mark.parametrize(
    ("key", "value", "text", "message"),
    [
        ("train.stepz", 5, "train.stepz=5", r"\[train\] has no key 'stepz': did you mean 'steps'"),
        ("training.steps", 5, "training.steps=5", "unknown section 'training': did you mean 'train'"),
        ("steps", 5, "steps=5", "sets nothing: write section.key=value"),
        ("train.steps", 0, "train.steps=0", "steps=0"),
        ("data.train.0.columns", [1], "data.train.0.columns=[1]", "corpus"),
    ],
)
def test_overrides_and_set_report_the_same_mistakes(key: str, value: object, text: str, message: str) -> None:
    errors = []
    for overrides in ({key: value}, [text]):
        with pytest.raises(regard.RegardError, match=message) as caught:
            regard.train("petit-fr-en", overrides=overrides)
        errors.append(str(caught.value).replace(f"{key}={value!r}", text))
    assert errors[0] == errors[1]


def test_typed_overrides() -> None:
    recipe = read_recipe("petit-fr-en", {"train.lr": 1, "train.compile": True, "data.languages": ("fr", "en")})
    assert (recipe.train.lr, recipe.train.compile, recipe.data.languages) == (1.0, True, ("fr", "en"))
    assert read_recipe("petit-fr-en", {"train.lr": None}).train.lr is None
    assert read_recipe("petit-fr-en", {"train.lr": 1}) == read_recipe("petit-fr-en", ["train.lr=1"])


def test_a_result_without_a_model(tmp_path: Path) -> None:
    result = training_api.TrainingResult(tmp_path, [], "interrupted", None, 2, None)
    with pytest.raises(regard.RegardError, match="no model yet"):
        result.model  # noqa: B018


class FakeHandle:
    """What IPython's display returns: an output that can be updated in place."""

    def __init__(self, shown: list[str]) -> None:
        self.shown = shown

    def update(self, html: str) -> None:
        self.shown.append(html)


def test_in_a_notebook_the_panel_is_updated_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """IPython is not installed here: its display module is replaced by one that records what it is given."""
    shown: list[str] = []
    printed: list[Any] = []
    ipython, display = types.ModuleType("IPython"), types.ModuleType("IPython.display")
    ipython.__spec__ = importlib.machinery.ModuleSpec("IPython", None)

    def show(*objects: Any, display_id: bool = False, **_: Any) -> FakeHandle | None:
        (shown if display_id else printed).extend(objects)
        return FakeHandle(shown) if display_id else None

    vars(display).update(HTML=str, display=show)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    console = SafeConsole(force_jupyter=True, highlight=False)
    assert training_display.can_draw_in_notebook(console)
    with TrainingDisplay(console, "petit-fr-en") as watcher:
        watcher(Started(0, 10, "petit <b>", "translation", "runs/x", "CPU", 1000, 5, 0, {}))
        watcher(Ended(10, "steps", 10, 1.5, None, 100, 2.0, 1e9, 0))
    assert "preparing" in shown[0]
    assert "petit &lt;b&gt;" in shown[-1]
    assert "<pre" in shown[-1]
    assert "done" in shown[-1]
    (closing,) = printed  # one output, without gaps between its lines
    assert closing.text.startswith("All steps are done.\n")
    assert "floating-point operations" in closing.text


def test_without_a_notebook_or_terminal_lines_are_plain() -> None:
    assert not training_display.can_draw_in_notebook(Console())
    assert not training_display.can_redraw(Console(force_terminal=False))
