"""The Runs and Layers views, and what can be taken away from the page, in a real browser with a real server."""

import re
from collections.abc import Iterator
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

import regard
from regard.decoding.text_model import Model
from regard.training.metrics_log import METRICS_FILE
from tests.support.browser import MISSING, chromium, serving
from tests.support.opened_page import AXE, REFUSED, Opened
from tests.support.run_folders import REFERENCE, SOURCE, events, write_run

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(MISSING), reason=f"not here: {', '.join(MISSING)}")]


LOOK = f"#/look?{urlencode({'model': 'petit-fr-en', 'source': SOURCE, 'layer': 1, 'head': 2})}"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs: one is finished, the other is being trained."""
    folder = tmp_path_factory.mktemp("runs")
    write_run(folder / "first", events(), snapshots=[0, 40, 100])
    write_run(folder / "second", events(60), snapshots=[0, 50], seed=7)
    return folder


@pytest.fixture(scope="module")
def address(runs: Path) -> Iterator[str]:
    with serving(["petit-fr-en", str(runs / "first"), str(runs / "second")]) as started:
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


def test_a_run_that_is_being_trained_is_opened_first(opened: Opened) -> None:
    opened.open()
    opened.until(lambda: opened.page.title().startswith("Runs"))
    assert opened.page.locator("nav a:visible").count() == 7


def test_a_server_without_models_shows_only_runs_and_labs(opened: Opened) -> None:
    opened.stub("/api/models", [])
    opened.open("#/translate")  # a view that needs a model
    opened.until(lambda: opened.page.title().startswith("Runs"))
    assert opened.page.locator("nav a:visible").all_text_contents() == ["Runs", "Labs"]


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


def test_each_run_has_its_own_measure(opened: Opened) -> None:
    def tag(route: Any) -> None:
        response = route.fetch()
        run = response.json()
        route.fulfill(json=run | ({"measure": "accuracy"} if run["name"] == "second" else {}))

    opened.page.route("**/api/run", tag)
    watch(opened)
    score = opened.page.locator(".charts section:nth-child(2)")
    assert score.locator("figcaption").text_content() == "BLEU, accuracy on the validation text"
    values = score.locator(".chart-values li").all_text_contents()
    assert values == ["first, BLEU 100.0", "second, accuracy 50.0"]


@pytest.mark.parametrize(
    ("value", "text"), [(0.002, "0.002"), (0.0005, "0.0005"), (0.0000312, "3.1e−5"), (0, "0"), (12345, "12.3k")]
)
def test_numbers_of_charts(opened: Opened, value: float, text: str) -> None:
    opened.open("#/labs")
    script = "async value => (await import('/page/runs.js')).formatNumber(value)"
    assert opened.page.evaluate(script, value) == text


def test_ticks_of_small_scores_differ(opened: Opened) -> None:
    opened.open("#/labs")
    script = "async () => [0, 0.05, 0.1, 20].map((await import('/page/runs.js')).formatScore)"
    assert opened.page.evaluate(script) == ["0.0", "0.05", "0.10", "20.0"]


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
    opened.page.locator(".film-heads button[aria-pressed=true]").focus()
    log = runs / "first" / METRICS_FILE
    later = [
        line for line in log.read_text().splitlines(keepends=True) if '"step": 70' in line or '"step": 100' in line
    ]
    with (runs / "second" / METRICS_FILE).open("a") as file:
        file.writelines(later)
    opened.until(lambda: opened.text(".step-where").startswith("Step 100"))
    opened.until(lambda: "finished · step 100 of 100" in opened.text(".run-choice:nth-of-type(2)"))
    assert opened.focused().startswith("layer ")  # new data does not take the focus away


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


# Take away.


def open_menu(opened: Opened) -> None:
    if not opened.page.locator(".take-away[open]").count():
        opened.page.locator(".take-away summary").click()


def take(opened: Opened, format_: str, part: str | None = None) -> bytes:
    """The content of the file that a button of the menu saves."""
    open_menu(opened)
    if part is not None:
        opened.page.get_by_label("What").select_option(part)
    with opened.page.expect_download() as download:
        opened.page.locator(f"[data-format={format_}]").click()
    content = Path(download.value.path()).read_bytes()
    assert download.value.suggested_filename.endswith(f".{format_}")
    opened.until(lambda: "is saved" in opened.text(".take-away-menu .hint"))
    return content


def test_pictures_show_what_the_page_shows(opened: Opened) -> None:
    opened.look(LOOK)
    opened.page.wait_for_selector(".beam")
    svg = ElementTree.fromstring(take(opened, "svg", "One head"))
    texts = [element.text for element in svg.iter(f"{SVG}text")]
    assert "Layer 1, head 2" in texts
    assert {"Le", "chat"} <= set(texts)
    images = [element.get("href", "") for element in svg.iter(f"{SVG}image")]
    assert len(images) == 2  # the lines and the heat map
    assert all(image.startswith("data:image/png;base64,") for image in images)
    assert list(svg.iter(f"{SVG}foreignObject")) == []
    png = Image.open(BytesIO(take(opened, "png", "One head"))).convert("RGB")
    opened.press("Escape")
    box = opened.page.locator(".attention-large")
    screenshot = Image.open(BytesIO(box.screenshot())).convert("RGB")
    assert abs(png.width / 2 - screenshot.width) <= 2
    assert abs(png.height / 2 - screenshot.height) <= 2
    difference = np.asarray(png.resize(screenshot.size), float) - np.asarray(screenshot, float)
    assert np.abs(difference).mean() < 6  # only the edges of letters and of the round corners differ


def test_pictures_show_strikes_and_outlines(opened: Opened) -> None:
    opened.look(f"{LOOK}&off=cross.0.1&hide=1&row=1&column=2")
    opened.page.wait_for_selector(".cell-step-4")
    backgrounds = "all => [...new Set(all.map(e => getComputedStyle(e).backgroundColor))]"
    assert opened.page.locator("main input[type=range]").evaluate_all(backgrounds) == ["rgba(0, 0, 0, 0)"]
    opened.page.locator(".patterns button").first.click()  # marks the heads with this pattern
    opened.page.locator(".attention-queries button").nth(1).click()
    mark = [0xC2, 0x41, 0x0C]

    def marked(image: Image.Image) -> float:
        """How many pixels are covered by the colour of marks: smooth edges are covered in part."""
        red, _, blue = np.moveaxis(np.asarray(image.convert("RGB"), float), -1, 0)
        return float(np.clip((red - blue - 20) / (mark[0] - mark[2]), 0, 1).sum())

    for part, selector in (("Overview", ".attention-overview"), ("Words", ".words"), ("One head", ".attention-list")):
        png = Image.open(BytesIO(take(opened, "png", part)))
        opened.press("Escape")
        opened.page.locator("body").click(position={"x": 2, "y": 2})  # so that nothing has the focus
        opened.page.mouse.move(2, 2)
        whole = opened.page.get_by_role("region", name=part, exact=True)
        expected = marked(Image.open(BytesIO(whole.screenshot())))
        assert opened.page.locator(selector).count() > 0
        assert marked(png) / 4 == pytest.approx(expected, rel=0.1)  # a picture has twice the resolution
    svg = ElementTree.fromstring(take(opened, "svg", "Overview"))
    lines = [(line.get("x1"), line.get("x2")) for line in svg.iter(f"{SVG}line") if line.get("stroke-width") == "2"]
    assert len(lines) == 1  # the head that is silenced
    svg = ElementTree.fromstring(take(opened, "svg", "Words"))
    assert f"rgb({mark[0]}, {mark[1]}, {mark[2]})" in [line.get("stroke") for line in svg.iter(f"{SVG}line")]


def test_the_decoding_steps_as_an_animation(opened: Opened) -> None:
    opened.look(LOOK)
    steps = int(str(opened.page.get_by_role("slider", name="Decoding step").get_attribute("max")))
    gif = Image.open(BytesIO(take(opened, "gif", "One head")))
    assert gif.n_frames == steps  # type: ignore[attr-defined]
    frames = []
    for number in range(steps):
        gif.seek(number)
        frames.append(np.asarray(gif.convert("RGB"), float))
    assert all(np.abs(a - b).mean() > 0.1 for a, b in pairwise(frames))
    png = Image.open(BytesIO(take(opened, "png", "One head"))).convert("RGB").resize(gif.size)
    assert np.abs(frames[-1] - np.asarray(png, float)).mean() < 6
    assert f"Step {steps} of {steps}" in opened.text(".step-where")  # as before


def test_the_attention_view_as_an_interactive_file(opened: Opened, tmp_path: Path) -> None:
    opened.look(f"{LOOK}&kind=cross&row=1&column=2")
    opened.until(lambda: opened.page.locator(".cell-step-4").count() == 1 and not opened.page.locator(".stale").count())
    computation = opened.text(".cell-steps")
    (tmp_path / "page.html").write_bytes(take(opened, "html"))
    said: list[str] = []
    page = opened.context.new_page()
    page.on("console", lambda message: said.append(message.text))
    page.goto((tmp_path / "page.html").as_uri())
    weights = regard.load("petit-fr-en").attend(SOURCE).weights["cross"]
    assert page.locator(".attention-large h2").text_content() == "Layer 1, head 2"
    assert page.locator(".cell-steps").text_content() == computation.replace("drag to set", "")
    page.locator(".attention-queries button").nth(1).hover()
    shares = page.locator(".attention-keys .attention-share").all_text_contents()
    expected = [f"{float(f'{100 * float(weight):.3g}'):g}%" for weight in weights[1, 2, 1]]
    assert [float(share.removesuffix("%")) for share in shares] == pytest.approx(
        [float(share.removesuffix("%")) for share in expected], abs=0.06
    )
    page.close()
    assert said == []


def test_an_error_while_a_file_is_saved_is_reported(opened: Opened) -> None:
    opened.look(LOOK)
    opened.page.route("**/api/attention-page", lambda route: route.abort())
    open_menu(opened)
    opened.page.locator("[data-format=html]").click()
    hint = ".take-away-menu .hint"
    opened.until(lambda: "This did not work: The server does not respond" in opened.text(hint))
    assert opened.text(hint).endswith("still running?")
    opened.said = [said for said in opened.said if REFUSED not in said]


def test_a_file_of_a_changed_view_says_what_was_changed(opened: Opened, tmp_path: Path) -> None:
    opened.look(f"{LOOK}&off=cross.1.2_cross.1.3&hide=1&set=cross.0.0.1.1.900")
    silenced = "cross-attention layer 1, heads 2 and 3 silenced"
    weight = "cross-attention layer 0, head 0: a weight set to 90%"
    page = opened.context.new_page()
    for part, selector in (("The whole view", ".file-changes"), ("One head", "body > .view > p >> nth=0")):
        (tmp_path / "page.html").write_bytes(take(opened, "html", part))
        page.goto((tmp_path / "page.html").as_uri())
        text = page.locator(selector).text_content()
        assert "The model was changed for this page: " in text
        assert all(change in text for change in (silenced, "“chat” hidden", weight))
        assert page.locator(selector).bounding_box()["x"] > 0  # not at the edge of the window
        if part == "The whole view":
            assert page.locator(".attention-silenced").count() == 2
    page.close()


def test_other_views_as_a_file_without_scripts(opened: Opened, tmp_path: Path) -> None:
    opened.open(f"#/translate?{urlencode({'source': SOURCE})}", ".alternatives li")
    open_menu(opened)
    opened.until(lambda: not opened.page.locator("[data-format=gif]").is_visible())  # nothing moves
    text = take(opened, "html").decode()
    assert "<script" not in text
    assert re.findall(r"""(?:src|href)=["'](?!data:)""", text) == []
    (tmp_path / "page.html").write_text(text)
    page = opened.context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto((tmp_path / "page.html").as_uri())
    assert page.locator(".result").text_content() == opened.text(".result")
    assert page.locator("#source").input_value() == SOURCE
    assert page.locator(":disabled").count() == 0  # disabled controls are pale
    assert page.locator(".examples, button.main").count() == 0  # what cannot work is left out
    assert page.locator("button, textarea, select").evaluate_all("all => all.every(e => e.tabIndex < 0)")
    assert len([url for url in asked if not url.startswith("data:")]) == 1
    page.close()


def test_a_file_without_scripts_can_be_scrolled_with_the_keyboard_and_changes_nothing(
    opened: Opened, tmp_path: Path
) -> None:
    opened.look(f"{LOOK}&row=1&column=2")
    opened.page.wait_for_selector(".cell-step-4")
    page = opened.context.new_page()
    (tmp_path / "page.html").write_bytes(take(opened, "html", "One head"))
    page.goto((tmp_path / "page.html").as_uri())
    labels = page.locator("label:has(input[type=checkbox])")
    for label in labels.all():
        before = label.locator("input").is_checked()
        label.scroll_into_view_if_needed()
        box = label.bounding_box()
        page.mouse.click(box["x"] + box["width"] - 4, box["y"] + box["height"] / 2)
        assert label.locator("input").is_checked() == before
    assert labels.count() == 3
    (tmp_path / "page.html").write_bytes(take(opened, "html", "Inside one cell"))
    page.goto((tmp_path / "page.html").as_uri())
    assert page.locator("[role=region]").evaluate_all("all => all.map(e => e.tabIndex)") == [0]
    assert page.locator("input").evaluate_all("all => all.every(e => e.tabIndex < 0)")
    page.close()


def test_a_link_restores_the_view(context: Any, address: str) -> None:
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    opened = Opened(context, address)
    opened.look(LOOK)
    opened.page.get_by_role("button", name="layer 0, head 1", exact=True).click()
    opened.until(lambda: "layer=0&head=1" in opened.page.url)
    open_menu(opened)
    opened.page.get_by_role("button", name="Copy link").click()
    opened.until(lambda: "copied" in opened.text(".take-away-menu .hint"))
    link = opened.page.evaluate("navigator.clipboard.readText()")
    other = Opened(context, "")
    other.address = address
    other.page.goto(link)
    other.page.wait_for_selector(".attention-heads button")
    assert other.text(".attention-large h2") == "Layer 0, head 1"
    other.close()
    opened.close()
    context.clear_permissions()


def test_the_menu_by_keyboard_and_for_axe(opened: Opened) -> None:
    opened.open("#/labs", ".lab h2")
    opened.page.locator(".take-away summary").focus()
    opened.press("Enter", "Tab")
    assert opened.focused() == "What"
    if AXE:
        assert opened.accessibility_problems() == []
    opened.press("Escape")
    assert opened.page.locator(".take-away[open]").count() == 0
    assert opened.page.evaluate("document.activeElement.tagName") == "SUMMARY"


# Layers, with the same server.


def test_vectors_of_each_layer(opened: Opened) -> None:
    opened.open(f"#/layers?{urlencode({'source': SOURCE})}", ".layers-box circle")
    model = regard.load("petit-fr-en")
    tokens = opened.page.locator(".layers-box g[role=button]")
    assert tokens.count() == len(model.attend(SOURCE).maps["decoder"].queries)
    assert tokens.last.get_attribute("aria-label") == "."
    assert opened.text(".layers-map .step-where") == "After layer 1"
    place = "e => e.style.transform"
    before = tokens.nth(2).evaluate(place)
    slider = opened.page.get_by_role("slider", name="Layer")
    slider.focus()
    opened.press("Home")
    assert opened.text(".layers-map .step-where") == "The embeddings"
    assert tokens.nth(2).evaluate(place) != before
    tokens.nth(2).focus()
    opened.press("Enter")
    opened.until(lambda: "nearest are" in opened.text(".layers-map .step-where"))
    opened.press("ArrowRight")
    opened.until(lambda: "token=3" in opened.page.url and "state=0" in opened.page.url)
    opened.press("Escape")
    assert opened.text(".layers-map .step-where") == "The embeddings"
    opened.page.get_by_role("radio", name="Encoder").check()
    assert tokens.count() == len(model.hidden(SOURCE).tokens)
    shared = opened.text(".layers-map .hint >> nth=-1")
    opened.page.get_by_label("separate axes for each layer").check()
    assert opened.text(".layers-map .hint >> nth=-1") != shared
    opened.page.get_by_role("button", name="Play").click()
    opened.until(lambda: opened.text(".layers-map .step-where") == "After layer 1")
    opened.until(lambda: "state=2&axes=apart" in opened.page.url)
    opened.page.reload()
    opened.page.wait_for_selector(".layers-box circle")
    assert opened.page.get_by_label("separate axes for each layer").is_checked()
    assert opened.page.get_by_role("radio", name="Encoder").is_checked()
    assert "end" in opened.page.locator(".lens-table tbody th").last.text_content()
    if AXE:
        assert opened.accessibility_problems() == []


def test_layers_say_what_to_do_with_a_long_text(opened: Opened) -> None:
    opened.open(f"#/layers?{urlencode({'source': 'Le chat dort. ' * 30})}", ".notice-error")
    assert opened.text(".notice-error").startswith("The sentence has 419 characters; the maximum is 300")
    assert "Shorten it" in opened.text(".notice-error")
    opened.page.locator("#layers-source").fill(SOURCE)
    opened.press("Enter")
    opened.page.wait_for_selector(".layers-box circle")
    assert opened.page.locator(".notice-error").count() == 0


def test_layers_on_a_phone(context: Any, address: str) -> None:
    opened = Opened(context, address, 360, color_scheme="dark", reduced_motion="reduce")
    opened.open("#/layers", ".layers-box circle")
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 360
    assert opened.page.locator(".layers-box g").last.evaluate("e => getComputedStyle(e).transitionProperty") == "none"
    opened.close()
