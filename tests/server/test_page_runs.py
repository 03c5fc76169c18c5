"""The Runs view in a real browser with a real server that has runs and no models."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from regard.decoding.text_model import Model
from regard.training.metrics_log import METRICS_FILE
from tests.support.browser import MISSING, chromium, serving
from tests.support.opened_page import AXE, Opened
from tests.support.run_folders import REFERENCE, SOURCE, events, write_run

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(MISSING), reason=f"not here: {', '.join(MISSING)}")]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs: one is finished, the other is being trained."""
    folder = tmp_path_factory.mktemp("runs")
    write_run(folder / "first", events(), snapshots=[0, 40, 100])
    write_run(folder / "second", events(60), snapshots=[0, 50], seed=7)
    return folder


@pytest.fixture(scope="module")
def address(runs: Path) -> Iterator[str]:
    with serving([str(runs / "first"), str(runs / "second")]) as started:
        yield started


@pytest.fixture(scope="module")
def context() -> Iterator[Any]:
    with chromium() as browser:
        yield browser.new_context()


@pytest.fixture
def opened(context: Any, address: str) -> Iterator[Opened]:
    page = Opened(context, address)
    yield page
    page.close()


def watch(opened: Opened, hash_: str = "#/runs?run=first") -> Opened:
    opened.open(hash_, ".film-heads button")
    opened.until(lambda: opened.page.locator(".run-choice").count() == 2)
    return opened


def test_a_run_that_is_being_trained_is_opened_first(opened: Opened, address: str) -> None:
    model = {
        "name": "a",
        "translates": True,
        "writes": False,
        "tasks": [],
        "source": "fr",
        "parameters": 1,
        "layers": 1,
    }
    opened.stub("/api/models", [model | {"heads": 1, "decoder_layers": None, "about": "", "look_at_most": 9}])
    runs = opened.context.request.get(f"{address}api/runs").json()
    opened.stub("/api/runs", [run | {"state": "running"} for run in runs])
    opened.open()
    opened.until(lambda: opened.page.title().startswith("Runs"))


def test_a_server_without_models_opens_the_runs(opened: Opened) -> None:
    opened.open()
    opened.until(lambda: opened.page.title().startswith("Runs"))
    assert opened.page.locator("nav a:visible").all_text_contents() == ["Runs", "Labs"]
    opened.page.goto(f"{opened.address}#/translate")  # a view that needs a model
    opened.until(lambda: opened.page.title().startswith("Runs"))


def test_curves_of_both_runs_are_overlaid(opened: Opened) -> None:
    watch(opened)
    loss, score, rate, speed = (opened.page.locator(".chart svg").nth(i) for i in range(4))
    assert loss.locator(".chart-series").count() == 4  # training and validation of each run
    assert [chart.locator(".chart-series").count() for chart in (score, rate, speed)] == [2, 2, 2]
    assert opened.text(".charts section:nth-child(2) figcaption") == "BLEU on the validation text"
    values = opened.page.locator(".charts section:nth-child(1) .chart-values li").all_text_contents()
    assert values == ["first, training 1", "second, training 3", "first, validation 1", "second, validation 3"]
    opened.page.locator(".run-choice input").nth(1).uncheck()
    assert loss.locator(".chart-series").count() == 2
    opened.until(lambda: "hidden=second" in opened.page.url)
    opened.page.get_by_label("over time").check()
    assert loss.locator("text").last.text_content() == "50 s"
    opened.page.get_by_label("logarithmic loss").check()
    opened.until(lambda: "time=1&log=1" in opened.page.url)


def test_one_slider_moves_curves_samples_and_film(opened: Opened, runs: Path) -> None:
    watch(opened)
    assert opened.text(".step-where") == "Step 100, validation loss 1, BLEU 100.0 (best)"
    assert opened.text(".sample-output") == "The 100 sleeps."
    assert opened.page.locator(".sample-right").all_text_contents() == ["The", "sleeps"]
    opened.until(lambda: "after step 100" in opened.text(".film-part:nth-child(2) h3"))
    slider = opened.page.get_by_role("slider", name="Step of the run")
    slider.focus()
    cursor = opened.page.locator(".charts .chart-cursor").first
    before = cursor.get_attribute("x1")
    opened.press("ArrowLeft")
    assert opened.text(".sample-output") == "The 50 sleeps."
    assert cursor.get_attribute("x1") != before
    opened.until(lambda: "after step 40" in opened.text(".film-part:nth-child(2) h3"))
    model = Model.from_folder(runs / "first" / "checkpoints" / "snapshot-00000040")
    assert opened.text(".film-text") == f"“{model.translate(SOURCE, beam=1)}”"
    opened.press("Home")
    assert opened.text(".samples") == "It was not validated yet."
    opened.until(lambda: "step=0" in opened.page.url)
    weights = model.attend(SOURCE, REFERENCE).maps["cross"].open(1, 1)
    opened.page.reload()
    opened.page.wait_for_selector(".film-heads button")
    opened.until(lambda: opened.text(".step-where") == "Step 0")  # the link restores the step
    opened.page.locator(".charts .chart svg").first.click(position={"x": 250, "y": 80})  # about step 40
    opened.until(lambda: "after step 40" in opened.text(".film-part:nth-child(2) h3"))
    opened.page.get_by_role("button", name="layer 1, head 1", exact=True).click()
    focus = float(weights.amax(-1).mean())
    assert opened.text(".film .chart-values") == f"layer 1, head 1 {round(100 * focus)}%"
    opened.until(lambda: "layer=1&head=1" in opened.page.url)


def test_playing_and_another_sentence(opened: Opened, runs: Path) -> None:
    watch(opened)
    opened.until(lambda: opened.page.locator(".film .chart-series circle").count() == 3)  # all frames have arrived
    opened.page.get_by_role("button", name="Play").click()
    opened.until(lambda: opened.text(".step-where").startswith("Step 40"))
    opened.until(lambda: opened.text(".step-where").startswith("Step 100"))
    opened.page.get_by_role("button", name="Play").wait_for()
    opened.page.locator("#film-source").fill("Elle va au marché.")
    opened.press("Enter")
    opened.until(lambda: opened.page.locator("#film-target").input_value() != "")
    opened.until(lambda: "source=Elle" in opened.page.url)
    opened.page.get_by_role("radio", name="Encoder").check()
    shape = Model.from_folder(runs / "first" / "checkpoints" / "snapshot-00000000").config
    assert opened.page.locator(".film-heads button").count() == shape.layers * shape.heads
    opened.page.locator(".film-heads button[aria-pressed=true]").focus()
    opened.press("ArrowUp")
    assert opened.focused() == "layer 0, head 0"
    assert "Layer 0, head 0" in opened.text(".film-part:nth-child(2) h3")


def test_a_run_that_is_being_trained_is_followed(opened: Opened, runs: Path) -> None:
    watch(opened, "#/runs?run=second")
    assert opened.text(".step-where").startswith("Step 50")
    assert "training · step 60 of 100" in opened.text(".run-choice:nth-of-type(2)")
    log = runs / "first" / METRICS_FILE
    later = [
        line for line in log.read_text().splitlines(keepends=True) if '"step": 70' in line or '"step": 100' in line
    ]
    with (runs / "second" / METRICS_FILE).open("a") as file:
        file.writelines(later)
    opened.until(lambda: opened.text(".step-where").startswith("Step 100"))
    opened.until(lambda: "finished · step 100 of 100" in opened.text(".run-choice:nth-of-type(2)"))


def test_payloads_in_runs_stay_text(opened: Opened, address: str) -> None:
    payload = "<img src=x onerror=alert(1)>"
    answer = opened.context.request.post(f"{address}api/run", data={"run": "first"}).json()
    answer["validations"][-1]["samples"] = [{"source": payload, "output": payload, "reference": payload}]
    opened.stub("/api/run", {**answer, "name": "first", "title": payload, "notes": [payload], "snapshots": []})
    opened.open("#/runs?run=first", ".samples dd")
    assert opened.text(".sample-output") == payload
    assert opened.page.locator("main img").count() == 0
    assert "kept no snapshots" in opened.text(".film")


def test_without_runs_the_page_says_how_to_get_one(opened: Opened) -> None:
    opened.stub("/api/runs", [])
    opened.open("#/runs", ".empty")
    assert "regard train petit-fr-en --watch" in opened.text(".empty")


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (1280, "dark")])
def test_the_view_fits_and_axe_finds_no_problem(context: Any, address: str, width: int, scheme: str) -> None:
    opened = Opened(context, address, width, color_scheme=scheme, reduced_motion="reduce")
    watch(opened)
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    if AXE:
        assert opened.accessibility_problems() == []
    opened.close()
