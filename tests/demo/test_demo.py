"""The demo with a model that learns nothing: what it prints, what it writes, and what it leaves untouched."""

import json
import os
import re
import shlex
import shutil
import signal
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

import pytest
import torch
import typer
from rich.console import Console

import regard.demo.demo_run
import regard.models
import regard.petit.corpus_files
from regard.cli import app
from regard.demo.demo_run import DECODER_ONLY, ENCODER_DECODER, find_run
from regard.demo.narrator import Narrator
from regard.demo.story import _commands_chapter, _moments, _real_french_chapter, demo, next_commands
from regard.evaluation.alignment import Links, alignment_score, token_words
from regard.evaluation.attention_alignment import score_alignment
from regard.evaluation.test_sets import Examples, GoldAnnotations
from regard.interop.load import load
from regard.model.watch import watch
from regard.petit import spans
from regard.plots.training_display import TrainingDisplay
from regard.training.events import Sample, Validated
from regard.training.recipe_files import bundled_recipes
from regard.training.training_text import petit_files, petit_test_files

TINY = (
    *("data.petit=200", "tokenizer.vocab_size=400", "model.d_model=16", "model.d_ff=16", "model.heads=2"),
    *("model.layers=2", "train.steps=6", "train.warmup=2", "train.batch_tokens=400", "train.validate_every=2"),
    *("train.validation_sentences=3", "train.device=cpu", "decode.beam=1", "decode.max_tokens=3"),
)
README = Path(__file__).parents[2] / "README.md"
HELD_OUT = 20


def run_demo(out: Path, changes: Sequence[str] = TINY, **options: bool) -> tuple[str, int | None]:
    """Return what the demo prints and its result."""
    text = StringIO()
    ended = demo(Console(file=text, width=100), out, changes=changes, commands=("translate", "export"), **options)
    return text.getvalue(), ended


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a cache with a Petit that has few held-out sentences."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(regard.petit.corpus_files, "HELD_OUT", HELD_OUT)
        petit_files(ENCODER_DECODER.read(TINY).data, folder)
        petit_test_files(folder)
    return folder


@pytest.fixture(autouse=True)
def isolated(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use no user cache, no GPU, and no bundled model unless a test provides one."""
    monkeypatch.setenv("REGARD_CACHE", str(cache))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(regard.models, "MODELS_FOLDER", cache / "models")


@pytest.fixture(scope="module")
def finished_demo(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return the folder of a finished demo and its output."""
    out = tmp_path_factory.mktemp("demo") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(cache))
        patch.setattr(regard.models, "MODELS_FOLDER", cache / "models")
        patch.setattr(torch.cuda, "is_available", lambda: False)
        text, ended = run_demo(out)
    assert ended is None
    return out, text


@pytest.mark.slow
def test_the_chapters_are_printed_in_plain_lines(finished_demo: tuple[Path, str]) -> None:
    out, text = finished_demo
    titles = [line[3:] for line in text.splitlines() if line[:1].isdigit()]
    assert titles == [
        *("The data", "Training", "Progress", "Scores", "What is hard", "What it attends to", "Your turn"),
    ]
    assert "\x1b" not in text
    assert "step 6/6  validation loss" in text  # the display's own lines
    assert "To use the model:" not in text  # printed at the end of the demo
    assert "cross-attention" in text.lower()
    assert f"--model {out}" in text
    assert f"regard export {out}" in text


@pytest.mark.slow
def test_the_folder_contains_model_report_scores_and_page(finished_demo: tuple[Path, str]) -> None:
    out, text = finished_demo
    assert load(out).config.d_model == 16
    scores = json.loads((out / "scores.json").read_text())
    assert scores.keys() == {"test", "compositional"}
    for result in scores.values():
        assert f"{result['scores']['bleu']['score']:.1f}" in text
        assert result["petit"]["overall"]["total"] == HELD_OUT
    assert scores["test"]["alignment"] is not None
    tables = (out / "scores.txt").read_text()
    assert all(name in tables for name in scores["test"]["petit"]["phenomena"])
    assert "</html>" in (out / "attention.html").read_text()
    assert "report.md" in text
    assert (out / "report.md").is_file()


@pytest.mark.slow
def test_a_finished_demo_is_replayed_without_training(
    finished_demo: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, first = finished_demo
    before = {name: (out / name).read_bytes() for name in ("metrics.jsonl", "model.safetensors", "recipe.toml")}
    monkeypatch.setattr(regard.demo.demo_run, "train_recipe", None)  # calling it would be an error
    text, ended = run_demo(out)
    assert ended is None
    assert "which is replayed" in " ".join(text.split())
    assert (
        text.partition("3  Progress")[2].partition("The demo took")[0]
        == first.partition("3  Progress")[2].partition("The demo took")[0]
    )
    assert before == {name: (out / name).read_bytes() for name in before}


@pytest.mark.slow
def test_an_interrupted_demo_says_how_to_resume_and_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    show = TrainingDisplay._show

    def interrupt(display: TrainingDisplay, event: object) -> None:
        show(display, event)  # type: ignore[arg-type]
        if isinstance(event, Validated):
            os.kill(os.getpid(), signal.SIGINT)

    out = tmp_path / "my run"
    with monkeypatch.context() as patch:
        patch.setattr(TrainingDisplay, "_show", interrupt)
        text, ended = run_demo(out)
    assert ended == signal.SIGINT
    assert f"regard demo --out {shlex.quote(str(out))}" in text
    assert "4  Scores" not in text
    assert find_run(ENCODER_DECODER.read(TINY), out)[1] == "begun"
    text, ended = run_demo(out)
    assert ended is None
    assert "interrupted demo, which is resumed" in " ".join(text.split())
    assert "resumes after step" in text
    assert find_run(ENCODER_DECODER.read(TINY), out)[1] == "done"


@pytest.mark.slow
def test_other_folders_are_rejected_and_left_untouched(finished_demo: tuple[Path, str], tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    with pytest.raises(ValueError, match=r"mine already exists and does not hold a run: choose another"):
        run_demo(mine)
    assert [file.name for file in mine.iterdir()] == ["thesis.txt"]
    other = tmp_path / "other"
    shutil.copytree(finished_demo[0], other)
    with pytest.raises(ValueError, match=r"other holds another run, 'demo': choose another folder with --out"):
        run_demo(other, decoder_only=True)
    with pytest.raises(ValueError, match=r"other holds a demo with other settings: .*model.d_ff=16, but now it is 32"):
        run_demo(other, (*TINY, "model.d_ff=32"))
    assert sorted(file.name for file in other.iterdir()) == sorted(file.name for file in finished_demo[0].iterdir())


@pytest.mark.slow
def test_a_decoder_only_demo_has_the_same_chapters(tmp_path: Path) -> None:
    text, ended = run_demo(tmp_path / "run", decoder_only=True)
    assert ended is None
    assert "has no cross-attention" in text
    tables = (tmp_path / "run/scores.txt").read_text()
    assert "of self-attention from target to source" in tables
    assert "cross-attention" not in tables
    assert load(tmp_path / "run").config.kind == "decoder"
    assert (
        json.loads((tmp_path / "run/scores.json").read_text())["test"]["alignment"]["writing"]["sentences"] == HELD_OUT
    )
    assert "regard export" not in text  # no other engine supports its mask
    assert "<sep> →" in text  # the first row that attends to the source


@pytest.mark.slow
def test_the_alignment_of_a_decoder_uses_its_target_rows(tmp_path: Path) -> None:
    out = tmp_path / "run"
    changes = [change for change in TINY if "steps" not in change]
    regard.demo.demo_run.train_with_display(
        DECODER_ONLY.read([*changes, "train.steps=1"]), out, "new", Console(file=StringIO())
    )
    model = load(out)
    source, target = "Le chat dort.", "The cat is sleeping."
    gold: list[Links] = [frozenset({(0, 0), (1, 1), (2, 2), (2, 3)})]
    examples = Examples(("a.fr", "a.en"), [source], [[target]], [1], 1)
    aligned = score_alignment(model, examples, GoldAnnotations(links=gold, word_spans=spans))
    assert aligned is not None
    found = aligned["writing"]

    tokenizer = model.require_tokenizer()
    given, said = tokenizer.encode(source), tokenizer.encode(target)
    row = torch.tensor([[*given, model.special.separator, *said]])
    with torch.inference_mode(), watch(model.network) as seen:
        model.network(row, prefix=torch.tensor([len(given) + 1]))
    weights = seen["decoder.layers.1.attention"][0][0, 0]  # [T, T], of head 0
    summed = torch.zeros(
        len(set(token_words(tokenizer, target, spans))), len(set(token_words(tokenizer, source, spans)))
    )
    for i, word in enumerate(token_words(tokenizer, target, spans)):
        for j, other in enumerate(token_words(tokenizer, source, spans)):
            summed[word, other] += weights[len(given) + i, j] / token_words(tokenizer, target, spans).count(word)
    links = frozenset((int(j), i) for i, j in enumerate(summed.argmax(-1)))
    assert found.heads[1][0].error_rate == pytest.approx(alignment_score(links, gold[0]).error_rate)


@pytest.mark.slow
def test_real_french_is_shown_if_the_bundled_model_exists(
    finished_demo: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def chapter() -> str:
        text = StringIO()
        _real_french_chapter(Narrator(Console(file=text, width=100)), "cpu")
        return text.getvalue()

    assert "is missing from this copy" in chapter()
    assert "Real French" not in chapter()
    monkeypatch.setattr(regard.models, "MODELS_FOLDER", tmp_path)
    load(finished_demo[0]).save(tmp_path / "fr-en")
    assert "Real French" in chapter()
    assert "Il fait froid" in chapter()


@pytest.mark.slow
def test_every_printed_command_is_valid() -> None:
    known = typer.main.get_group(app).commands
    lines = [line for lines in next_commands(Path("runs/my demo"), "C'est l'été !").values() for line in lines]
    for line in lines:
        _, name, *rest = shlex.split(line)
        if name == "serve" and name not in known:
            continue
        command = known[name]
        if name == "data":
            command, rest = typer.main.get_group(app).commands["data"].commands[rest[0]], rest[1:]  # type: ignore[attr-defined]
        assert command.make_context(name, list(rest)).params  # it handles its arguments itself
        assert name != "train" or rest[0] in bundled_recipes()


def test_help_and_readme_agree_on_the_time() -> None:
    sentence = next(line for line in README.read_text().splitlines() if line.startswith("`regard demo` needs"))
    (minutes,) = re.findall(r"(\w+) minutes", sentence)
    assert f"about {minutes} minutes" in (typer.main.get_group(app).commands["demo"].help or "")


def test_only_existing_commands_are_printed() -> None:
    text = StringIO()
    _commands_chapter(Narrator(Console(file=text, width=100)), Path("runs/demo"), "Le chat dort.", ("serve", "export"))
    assert "regard serve" in text.getvalue()
    assert "regard export runs/demo" in text.getvalue()
    assert "regard translate" not in text.getvalue()
    assert "scores" not in text.getvalue()  # nothing is announced without a command for it


def test_moments_are_the_first_the_last_and_changes_in_between() -> None:
    def at(step: int, output: str) -> Validated:
        return Validated(step, 1.0, 1.0, "BLEU", True, 0, (Sample("a", output, "f"),), 0.0)

    outputs = ["a", "a", "b", "c", "c", "d", "e", "f", "f", "f"]
    validated = [at(step, output) for step, output in enumerate(outputs, 1)]
    chosen = _moments(validated, 0)
    assert [event.step for event in chosen][:: len(chosen) - 1] == [1, 10]
    assert len(chosen) <= 6
    assert [event.step for event in _moments(validated[:1], 0)] == [1]
    assert [event.step for event in _moments([at(1, "a"), at(2, "a"), at(3, "a")], 0)] == [1, 3]


@pytest.mark.parametrize("variant", [ENCODER_DECODER, DECODER_ONLY])
def test_the_variants_read_their_recipes(variant: regard.demo.demo_run.DemoVariant) -> None:
    recipe = variant.read()
    assert recipe.data.petit
    assert recipe.name == variant.out.name
    assert recipe.train.device == "auto"
    assert recipe.train.steps % recipe.train.validate_every == 0
