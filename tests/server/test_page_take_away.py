"""What can be taken away from the page: pictures, animations, files and links, opened by other programs."""

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
from tests.support.browser import MISSING, chromium, serving
from tests.support.opened_page import AXE, Opened

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(MISSING), reason=f"not here: {', '.join(MISSING)}")]

SOURCE = "Le chat dort."
LOOK = f"#/look?{urlencode({'model': 'petit-fr-en', 'source': SOURCE, 'layer': 1, 'head': 2})}"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serving(["petit-fr-en"]) as started:
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
    opened.look(LOOK)
    (tmp_path / "page.html").write_bytes(take(opened, "html"))
    said: list[str] = []
    page = opened.context.new_page()
    page.on("console", lambda message: said.append(message.text))
    page.goto((tmp_path / "page.html").as_uri())
    weights = regard.load("petit-fr-en").attend(SOURCE).weights["cross"]
    assert page.locator(".attention-large h2").text_content() == "Layer 1, head 2"
    page.locator(".attention-queries button").nth(1).hover()
    shares = page.locator(".attention-keys .attention-share").all_text_contents()
    expected = [f"{float(f'{100 * float(weight):.3g}'):g}%" for weight in weights[1, 2, 1]]
    assert [float(share.removesuffix("%")) for share in shares] == pytest.approx(
        [float(share.removesuffix("%")) for share in expected], abs=0.06
    )
    page.close()
    assert said == []


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
    assert len([url for url in asked if not url.startswith("data:")]) == 1
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
    opened.page.get_by_label("axes of each layer").check()
    assert opened.text(".layers-map .hint >> nth=-1") != shared
    opened.page.get_by_role("button", name="Play").click()
    opened.until(lambda: opened.text(".layers-map .step-where") == "After layer 1")
    opened.until(lambda: "state=2&axes=apart" in opened.page.url)
    opened.page.reload()
    opened.page.wait_for_selector(".layers-box circle")
    assert opened.page.get_by_label("axes of each layer").is_checked()
    assert opened.page.get_by_role("radio", name="Encoder").is_checked()
    assert "end" in opened.page.locator(".lens-table tbody th").last.text_content()
    if AXE:
        assert opened.accessibility_problems() == []


def test_layers_on_a_phone(context: Any, address: str) -> None:
    opened = Opened(context, address, 360, color_scheme="dark", reduced_motion="reduce")
    opened.open("#/layers", ".layers-box circle")
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 360
    assert opened.page.locator(".layers-box g").last.evaluate("e => getComputedStyle(e).transitionProperty") == "none"
    opened.close()
