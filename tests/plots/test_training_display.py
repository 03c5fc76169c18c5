"""Displaying a run: the panel, the plain lines, the curves and the report."""

import json
import math
import re
from dataclasses import asdict, replace
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from PIL import Image
from rich.cells import cell_len
from rich.console import Console

from regard.config import preset
from regard.evaluation.classification import class_scores
from regard.evaluation.metrics import translation_scores
from regard.evaluation.perplexity import language_score
from regard.formatting import duration, escape_markdown
from regard.plots import run_report
from regard.plots.figures import curves_figure, curves_png
from regard.plots.run_progress import RunProgress
from regard.plots.run_report import write_report
from regard.plots.training_display import TrainingDisplay
from regard.plots.training_panel import sparkline, training_panel
from regard.training.events import Ended, Event, Noted, Sample, Saved, Started, Stepped, Ticked, Validated
from regard.training.metrics_log import MetricsLog

STARTED = Started(
    0, 1000, "petit [b]fr[/b]", "translation", "runs/fr en", "NVIDIA H200, bfloat16", 12_345_678, 100, 2, {"empty": 3}
)
HOSTILE = "[bold red]Le chat[/] \x1b[2J\x07 \u202edort.\nBis | ``` <b>$x$</b> *a* _b_"
SAMPLES = (
    Sample(HOSTILE, "[/]The cat\x9b31m", "[link=x]The [cat"),
    Sample("猫が" * 60, "", "A cat " * 40),
    Sample("L'âne dort.", "Yes."),
)
ENDED = Ended(1000, "steps", 800, 1.25, 31.5, 80_000, 99.5, 1.5e15, 1)


def stepped(step: int, loss: float | None = None, utilisation: float | None = 0.41) -> Stepped:
    loss = 1 + 6 * math.exp(-step / 200) if loss is None else loss
    return Stepped(step, step / 100, loss, step * 1e-6, 1.5, 80 * step, 812.5, step * 0.1, utilisation)


def validated(step: int, best: bool = True, score: float | None = 12.25) -> Validated:
    return Validated(
        step, 1.5 + 100 / step, score, None if score is None else "BLEU", best, 0 if best else 2, SAMPLES, 1.0
    )


def run(steps: int = 1000) -> list[Event]:
    events: list[Event] = [STARTED]
    for step in range(50, steps + 1, 50):
        events.append(stepped(step))
        if step == 150:
            events.append(Noted(step, "an update was [skipped]"))
        if step % 200 == 0:
            events += [validated(step, best=step != 1000), Saved(step, f"runs/fr en/checkpoints/{step}", 10**6, 0.5)]
    return [*events, ENDED]


class Clock:
    """A clock that advances by a fixed amount at each reading."""

    def __init__(self, by: float) -> None:
        self.now, self.by = 0.0, by

    def __call__(self) -> float:
        self.now += self.by
        return self.now


def display_output(events: list[Event], width: int = 80, terminal: bool = False, by: float = 10.0) -> str:
    file = StringIO()
    console = Console(file=file, width=width, height=24, force_terminal=terminal, highlight=False, legacy_windows=False)
    with TrainingDisplay(console, "recipes/fr.toml", Clock(by)) as display:
        for event in events:
            display(event)
    return file.getvalue()


def panel_output(state: RunProgress, width: int, height: int = 40) -> list[str]:
    console = Console(file=StringIO(), width=width, height=height, highlight=False, force_terminal=True)
    with console.capture() as capture:
        console.print(training_panel(state, width, height))
    return re.sub(r"\x1b\[[\d;]*m", "", capture.get()).rstrip("\n").split("\n")


def after(events: list[Event]) -> RunProgress:
    state = RunProgress()
    for event in events:
        state.update(event)
    return state


def test_plain_lines_report_every_event() -> None:
    lines = display_output(run()).splitlines()
    assert lines[0].startswith("petit [b]fr[/b]: translation, 12,345,678 parameters; 100 examples (2 too long); ")
    assert "step    50/1,000  loss 5.673  lr 5.0e-05  812 tokens/s  41% of the GPU  ETA 1m35s" in lines
    assert "step   150/1,000  note: an update was [skipped]" in lines
    assert "step   200/1,000  validation loss 2.000  BLEU 12.2  best  (1.0s)" in lines
    assert "step 1,000/1,000  validation loss 1.600  BLEU 12.2  2 since the best  (1.0s)" in lines
    assert "step   400/1,000  saved runs/fr en/checkpoints/400 (1.0 MB, 0.5s)" in lines
    assert sum("  lr " in line for line in lines) == 20
    assert not any("\x1b" in line for line in lines)


def test_plain_step_lines_are_seconds_apart() -> None:
    lines = display_output(run(), by=0.01).splitlines()
    steps = [line for line in lines if "  lr " in line]
    assert [line[:16] for line in steps] == [  # the first, and those with validations
        f"step {step:>5,}/1,000" for step in (50, 200, 400, 600, 800, 1000)
    ]
    assert [line[18:].split()[0] for line in lines if line.startswith("step 1,000/")] == ["loss", "validation", "saved"]
    assert sum("validation" in line for line in lines) == 5
    assert sum("note" in line for line in lines) == 1


def test_the_time_left_covers_the_remaining_steps() -> None:
    events: list[Event] = [STARTED, *(stepped(step) for step in (50, 100, 150, 200))]
    assert after(events).seconds_left == pytest.approx(800 * 0.1)
    assert after([*events, validated(200)]).seconds_left == pytest.approx(800 * (0.1 + 1 / 200))
    assert after([STARTED]).seconds_left is None
    resumed: list[Event] = [replace(STARTED, step=500), replace(stepped(550), seconds=1000.0)]
    resumed.append(replace(stepped(600), seconds=1010.0))
    assert after(resumed).seconds_left == pytest.approx(400 * 10 / 50)


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("reason", ["steps", "patience", "interrupted", "diverged"])
def test_the_end_gives_the_reason_and_the_command_to_resume(
    reason: Any, terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    text = display_output(
        [STARTED, stepped(50), validated(800), replace(ENDED, step=700, reason=reason)], terminal=terminal
    )
    said = {"steps": "All steps", "patience": "patience", "interrupted": "Interrupted at step 700", "diverged": "lr"}
    assert said[reason] in text
    assert "step 800, loss 1.250, BLEU 31.5" in text
    assert ("regard train recipes/fr.toml --out 'runs/fr en' --resume" in text) == (reason == "interrupted")


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_panel_fits_and_shows_texts_unchanged(width: int) -> None:
    lines = panel_output(after(run()), width)
    assert {cell_len(line) for line in lines} == {min(width, 120)}
    text = "\n".join(lines)
    assert "[bold red]Le chat[/] ␛[2J" in text
    assert "→ [/]The cat\\u009b31m" in text
    assert "petit [b]fr[/b]" in text
    assert "(nothing)" in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    for figure in ("1.040", "lr 1.0e-03", "812 tokens/s", "41% of the GPU", "BLEU 12.2", "2 since the best"):
        assert figure in text
    assert "step 800: 1.625, 12.2" in text


@pytest.mark.parametrize("height", [12, 16, 20, 24, 50])
@pytest.mark.parametrize("width", [40, 80])
def test_the_panel_fits_terminals_with_few_lines(width: int, height: int) -> None:
    state = after(run()[:-1])
    lines = panel_output(state, width, height)
    assert len(lines) < height or height < 20
    assert ("→" in "".join(lines[4:])) == (height >= 20 if width == 40 else height >= 16)


def test_the_panel_before_the_first_event() -> None:
    assert panel_output(RunProgress(), 80) == ["preparing …"]
    assert "waiting for the first step …" in "\n".join(panel_output(after([STARTED]), 80))


def test_a_slow_run_shows_activity_before_its_first_log_line() -> None:
    text = "\n".join(panel_output(after([replace(STARTED, steps=100), Ticked(1, 70.0), Ticked(2, 94.0)]), 80))
    assert "step 2 of 100, 24s per step" in text
    assert "2/100  2%  1m34s  ETA 39m12s" in text
    resumed = after([replace(STARTED, step=500), Ticked(501, 1002.0)])
    assert (resumed.seconds_per_step, resumed.seconds_left) == (2.0, 499 * 2.0)
    assert "4ms per step" in "\n".join(panel_output(after([STARTED, Ticked(2, 0.008)]), 80))


def test_steps_update_the_panel_between_log_lines() -> None:
    state = after([STARTED, stepped(50), stepped(100), Ticked(150, 20.0)])
    assert (state.step, state.seconds_per_step) == (150, 0.15)  # 50 steps took 5 seconds, and 50 took 10
    ended = after([STARTED, stepped(50), Ticked(70, 7.0), replace(ENDED, step=77, reason="interrupted", seconds=61.0)])
    assert "77/1,000  8%  1m01s  interrupted" in "\n".join(panel_output(ended, 80))


def test_a_plain_log_shows_activity_of_a_slow_run() -> None:
    clock = Clock(0.0)
    file = StringIO()
    with TrainingDisplay(Console(file=file, width=80), clock=clock) as display:
        display(replace(STARTED, steps=100))
        for step in range(1, 7):
            clock.now += 12
            display(Ticked(step, 12.0 * step))
    assert file.getvalue().splitlines()[1:] == ["step   3/100  (12s per step)", "step   6/100  (12s per step)"]


def test_ticks_are_not_drawn_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    text = display_output([STARTED, *(Ticked(step, step / 1000) for step in range(1, 1001)), ENDED], terminal=True)
    assert text.count("╭") < 20


def test_the_cursor_is_below_the_panel(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal echoes ^C at the cursor: after a panel as wide as the terminal it would start a new line."""
    monkeypatch.setenv("TERM", "xterm-256color")
    file = StringIO()
    with TrainingDisplay(Console(file=file, force_terminal=True, width=80, height=24)) as display:
        display(STARTED)
        assert file.getvalue().endswith("\n")


UNTRIED = Validated(200, math.nan, None, None, True, 0, (), 0.1)


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.slow
def test_a_run_without_validation_text(terminal: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    end = replace(ENDED, best_step=400, best_loss=None, best_score=None)
    events: list[Event] = [STARTED, stepped(200), UNTRIED, stepped(400), replace(UNTRIED, step=400), end]
    text = display_output(events, 120, terminal)
    assert "no validation text: the last model is kept" in text
    assert "(set data.validation or data.held_out)" in text
    assert "nan" not in text
    assert "best" not in text
    assert "The model is from step 400; there was no validation text." in text
    assert terminal or text.count("data.held_out") == 1
    write_run(tmp_path, events)
    report = write_report(tmp_path).read_text()
    assert "no validation text, so the last model is kept (set data.validation or data.held_out" in report
    assert "nan" not in report


def test_the_end_says_how_to_use_the_model() -> None:
    lines = display_output([STARTED, stepped(1000), validated(1000), ENDED]).splitlines()
    assert lines[-1] == """To use the model: regard translate "L'âne dort." --model 'runs/fr en'"""
    assert not any("ended" in line for line in lines)
    language = replace(STARTED, task="language", out="runs/lm")
    said = replace(validated(1000), samples=(Sample("KING:\nO", "x"), Sample("\n", "x")))
    assert (
        display_output([language, said, ENDED]).splitlines()[-1]
        == 'To use the model: regard generate "KING:" --model runs/lm'
    )
    classes = replace(STARTED, task="classification", out="runs/c")
    *_, used = display_output([classes, ENDED]).splitlines()
    assert used == 'To use the model: regard classify "Le chat dort." --model runs/c'
    assert "80,000 texts in" in display_output([classes, ENDED])


def test_a_run_interrupted_before_its_first_model(tmp_path: Path) -> None:
    events: list[Event] = [STARTED, stepped(50), replace(ENDED, step=70, reason="interrupted", best_step=None)]
    assert "There is no model to use yet" in display_output(events)
    assert "To use the model" not in display_output(events)
    write_run(tmp_path, events)
    report = write_report(tmp_path).read_text()
    assert "There is no model to use yet" in report
    assert "regard.load" not in report


@pytest.mark.parametrize(("reason", "more"), [("steps", "steps=2000"), ("patience", "patience=0")])
def test_a_run_that_is_already_finished(reason: Any, more: str) -> None:
    text = display_output([replace(STARTED, step=1000), replace(ENDED, reason=reason)])
    assert "Nothing left to do: " in text
    assert f"regard train recipes/fr.toml --out 'runs/fr en' --resume --set train.{more}" in text
    assert "Nothing left" not in display_output([replace(STARTED, step=900), replace(ENDED, reason=reason)])


def test_a_sample_is_shown_below_a_validation() -> None:
    lines = display_output([STARTED, replace(validated(200), samples=SAMPLES[2:])]).splitlines()
    assert "validation" in lines[-2]
    assert lines[-1] == "  L'âne dort. → Yes."


def test_a_panel_of_a_run_that_went_wrong() -> None:
    odd = after([STARTED, stepped(50, math.nan, None), stepped(100, math.inf), replace(validated(100), loss=math.nan)])
    text = "\n".join(panel_output(odd, 80))
    assert "inf" in text
    assert "nan" in text
    assert "××" in text


def test_on_a_terminal_the_panel_is_redrawn_and_notes_scroll(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    text = display_output(run(), terminal=True)
    assert "step 150: note: an update was [skipped]" in text
    assert "\x1b[1A" in text  # redrawn in place
    assert "╭" in text
    assert "\x1b[2J" not in text
    assert "\x07" not in text
    assert text.rstrip().endswith("--model 'runs/fr en'")
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1  # the cursor is restored


def test_events_during_drawing_are_deferred() -> None:
    class Interrupting(StringIO):
        def write(self, text: str) -> int:
            if "note: first" in text and "note: first" not in self.getvalue():
                display(Noted(2, "second"))
                assert "second" not in self.getvalue()
            return super().write(text)

    file = Interrupting()
    with TrainingDisplay(Console(file=file, width=80)) as display:
        display(Noted(1, "first"))
    assert [line.split("note: ")[1] for line in file.getvalue().splitlines()] == ["first", "second"]


def test_an_error_restores_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    file = StringIO()
    console = Console(file=file, force_terminal=True, width=80, height=24)

    def fail() -> None:
        with TrainingDisplay(console) as display:
            display(STARTED)
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        fail()
    assert file.getvalue().count("\x1b[?25h") == 1


def test_an_output_encoding_without_our_characters_does_not_end_the_run() -> None:
    raw = BytesIO()
    file = TextIOWrapper(raw, encoding="ascii", write_through=True)
    events: list[Event] = [replace(STARTED, name="français"), Noted(1, "naïve"), ENDED]
    with TrainingDisplay(Console(file=file, force_terminal=True, width=80)) as display:
        for event in events:
            display(event)
    assert b"fran\\xe7ais" in raw.getvalue()
    assert b"note: na\\xefve" in raw.getvalue()


@given(st.lists(st.floats(), max_size=60), st.integers(0, 40))
def test_a_sparkline_of_anything(values: list[float], width: int) -> None:
    text = sparkline(values, width)
    assert len(text) == min(width, len(values))
    assert set(text) <= set("▁▂▃▄▅▆▇█×")


def test_a_sparkline_falls_as_its_values_do() -> None:
    assert sparkline([7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.0], 8) == "█▇▆▅▄▃▂▁"
    assert sparkline([4.0, 4.0, 0.0, 0.0], 2) == "█▁"
    assert sparkline([3.0, 3.0], 5) == "▁▁"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0, "0.0s"), (9.96, "10s"), (59.6, "1m00s"), (3599.9, "1h00m"), (math.inf, "?")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def points(line: Any) -> list[tuple[float, float]]:
    return [tuple(point) for point in np.asarray(line.get_xydata()).tolist()]


def test_curves_show_the_available_points() -> None:
    steps = [stepped(step) for step in range(50, 1001, 50)]
    tries = [validated(step, best=step != 1000) for step in range(200, 1001, 200)]
    losses, scores, rates = curves_figure(steps, tries, "petit").axes
    training, validation, ring = map(points, losses.lines)
    assert training == [(each.step, each.loss) for each in steps]
    assert validation == [(each.step, each.loss) for each in tries]
    assert ring == [(800, tries[-2].loss)]
    assert points(scores.lines[0]) == [(each.step, 12.25) for each in tries]
    assert points(rates.lines[0]) == [(each.step, each.lr) for each in steps]
    assert len(curves_figure(steps, [], "language").axes) == 2
    assert len(curves_figure([], tries, "tried").axes) == 2
    assert len(curves_figure(steps, [replace(each, score=None) for each in tries], "language").axes) == 2


@pytest.mark.slow
def test_curves_of_non_finite_losses() -> None:
    steps = [stepped(1, math.inf), stepped(2, math.nan), stepped(3)]
    picture = curves_png(steps, [replace(validated(3), loss=math.nan, score=math.nan)], "odd $x_$ 猫")
    assert Image.open(BytesIO(picture)).size[0] == 1200


def write_run(folder: Path, events: list[Event]) -> None:
    with MetricsLog(folder, 0) as log:
        for event in events:
            log(event)
    (folder / "recipe.toml").write_text(
        '[data]\nlanguages = ["fr", "en"]\ntrain = [{ files = ["a_b.fr", "a_b.en"] }]\n[train]\nbatch_tokens = 16_000\n'
    )
    config = asdict(preset("tiny"))
    (folder / "config.json").write_text(json.dumps({"model_type": "regard", "format": 1, "model": config, "about": {}}))


@pytest.mark.slow
def test_the_report_describes_the_run(tmp_path: Path) -> None:
    write_run(tmp_path, run())
    path = write_report(tmp_path)
    assert path == tmp_path / "report.md"
    text = path.read_text()
    assert "# petit \\[b\\]fr\\[/b\\]\n\nA translation model (fr → en), trained with Regard." in text
    assert "| model | encoder-decoder, 2 + 2 layers, 4 heads, width 64, feed-forward 256, 513 ids |" in text
    assert "| parameters | 12,345,678 |" in text
    assert "| from | a\\_b.fr, a\\_b.en |" in text
    assert "| steps | 1,000 of 1,000, all steps |" in text
    assert "| time | 1m40s of training, 7.5s of validation and saving |" in text
    assert "| 800 | 1.6250 | 5.08 | 12.25 |" in text
    assert "- 1.5 × 10¹⁵ floating-point operations" in text
    assert "- 7.8 × 10¹⁶ by the method of the paper's Table 2: 1m40s of training × 7.8 × 10¹⁴ per second" in text
    assert "- GPU utilization: 2%" in text
    assert "- step 150: an update was \\[skipped\\]" in text
    assert """regard translate "L'âne dort." --model 'runs/fr en'""" in text
    assert """model.translate(["L'âne dort."])""" in text
    assert 'model = regard.load("runs/fr en")' in text
    assert "![Loss, score and learning rate over the steps](curves.png)" in text
    with Image.open(tmp_path / "curves.png") as picture:
        assert picture.size[0] == 1200


@pytest.mark.slow
def test_the_report_without_matplotlib_has_no_curves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path, run())
    with_curves = write_report(tmp_path).read_text()
    (tmp_path / "curves.png").unlink()
    monkeypatch.setattr(run_report, "has_matplotlib", lambda: False)
    text = write_report(tmp_path).read_text()
    picture = "![Loss, score and learning rate over the steps](curves.png)"
    note = "Curves are drawn only if matplotlib is installed: `pip install 'regard[plot]'`."
    assert text == with_curves.replace(picture, note) != with_curves
    assert not (tmp_path / "curves.png").exists()


@pytest.mark.slow
def test_the_report_is_deterministic(tmp_path: Path) -> None:
    write_run(tmp_path, run())
    write_report(tmp_path)
    first = {file.name: file.read_bytes() for file in tmp_path.iterdir() if file.is_file()}
    write_report(tmp_path)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir() if file.is_file()} == first
    assert {"report.md", "curves.png"} <= first.keys()


@pytest.mark.slow
def test_the_first_middle_and_last_samples_are_shown_unchanged(tmp_path: Path) -> None:
    write_run(tmp_path, run())
    text = write_report(tmp_path).read_text()
    section = text.split("## Samples over time")[1].split("##")[0]
    assert re.findall(r"^\| ([\d,]+) \|", section, re.M) == ["200", "600", "1,000"] * 3
    tables = [line for line in section.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in tables} == {3}  # no text adds a column
    assert "\\<b\\>\\$x\\$\\</b\\>" in section
    assert not re.search(r"(?<!\\)<b>", section)
    assert "\x1b" not in text
    assert "*(nothing)*" in section


@given(st.text())
def test_escaped_text_stays_in_its_cell(text: str) -> None:
    cell = escape_markdown(text).replace("@<!-- -->", "@")  # the only markup the cell itself adds
    assert "\n" not in cell
    assert not re.search(r"(?<!\\)(\\\\)*[|`<]", cell)
    assert not re.search(r"(?<!\\)(\\\\)*\\$", cell)  # and does not escape what follows


def test_the_report_of_a_run_on_several_devices(tmp_path: Path) -> None:
    write_run(tmp_path, [replace(STARTED, place="NVIDIA H200, bfloat16, 8 devices (ddp)"), stepped(50), ENDED])
    assert "- 6.2 × 10¹⁷ by the method of the paper's Table 2: 1m40s of training × 8 devices ×" in (
        write_report(tmp_path).read_text()
    )


def test_the_report_of_an_unfinished_run_on_a_cpu(tmp_path: Path) -> None:
    started = replace(STARTED, place="CPU, 2 threads", task="language", left_out=0, problems={})
    with MetricsLog(tmp_path, 0) as log:
        log(started)
        log(stepped(50))
    text = write_report(tmp_path).read_text()
    assert "50 of 1,000, not finished" in text
    assert "## Cost" not in text
    assert "Best validation" not in text
    assert "model.generate(" in text
    with MetricsLog(tmp_path, 0) as log:
        log(started)
        log(replace(ENDED, step=0, reason="interrupted", best_step=None))
    assert "paper's Table 2" not in write_report(tmp_path).read_text()


@pytest.mark.slow
def test_scores_are_shown_with_their_signatures(tmp_path: Path) -> None:
    write_run(tmp_path, run())
    outputs = ["The cat is sleeping on the mat.", "A dog is eating."]
    scores = translation_scores(outputs, ["The cat sleeps on the mat.", "A dog is eating."], "my_set")
    classes = class_scores(["a", "b", "a"], ["a", "b", "b"])
    text = write_report(tmp_path, [scores, language_score(100.0, 50, 200), classes]).read_text()
    assert f"| BLEU | {scores.bleu.value:.1f} |" in text
    rendered = MarkdownIt("commonmark").enable("table").render(text)
    for each in (scores.bleu, scores.bleu_lowercase, scores.chrf):
        assert f"<td><code>{each.signature}</code></td>" in rendered
    assert "**my\\_set, 2 lines" in text
    assert "| 2.0000 | 7.39 | 0.7213 | 50 |" in text
    assert "| 66.7% |" in text


def test_the_report_of_a_classifier_with_one_example(tmp_path: Path) -> None:
    notes = [Noted(200, "the best model, on 1,000 validation examples …"), Noted(200, "stops after this step, and")]
    started = replace(STARTED, task="classification", examples=1, left_out=0)
    write_run(tmp_path, [started, stepped(200), replace(validated(200), measure="accuracy"), *notes, ENDED])
    text = write_report(tmp_path).read_text()
    assert "| texts | 80,000, 2.0 epochs |" in text
    assert "804 texts/s" in text
    assert "target tokens" not in text
    assert "| data | 1 example |" in text
    assert "from the only validation." in text
    assert "## Notes" not in text


@pytest.mark.slow
def test_the_report_names_the_starting_model_and_the_validated_sentences(tmp_path: Path) -> None:
    write_run(tmp_path, run())
    with (tmp_path / "recipe.toml").open("a") as file:
        file.write('validation_sentences = 1_200\n[model]\nstart = "models/a_b"\n')
    text = write_report(tmp_path).read_text()
    assert "| fine-tuned from | models/a\\_b |" in text
    assert "BLEU is computed from greedy translations of at most the first 1,200 validation sentences." in text


def test_the_suggested_generate_command_matches_the_recipe(tmp_path: Path) -> None:
    validation = replace(
        validated(200, score=None), samples=(Sample("\nAll", "x"), Sample("First Citizen:\nBefore we", "x"))
    )
    write_run(tmp_path, [replace(STARTED, task="language", out="runs/s"), stepped(200), validation, ENDED])
    with (tmp_path / "recipe.toml").open("a") as file:
        file.write("[decode]\ntemperature = 0.8\n")
    used = write_report(tmp_path).read_text().split("## Usage")[1]
    assert 'regard generate "First Citizen:" --model runs/s --temperature 0.8\n' in used
    assert 'model.generate("First Citizen:", temperature=0.8)' in used
    assert "␊" not in used


def test_a_folder_without_a_run_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="records no run"):
        write_report(tmp_path)
    write_run(tmp_path, run())
    (tmp_path / "recipe.toml").write_text("[data\n")
    with pytest.raises(ValueError, match=r"recipe.toml: "):
        write_report(tmp_path)
