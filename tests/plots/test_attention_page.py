"""The page that shows attention, in a real browser."""

import html
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from regard import page as page_package
from regard.config import SpecialIds
from regard.decoding.attention_explanations import explanation_data
from regard.decoding.attention_maps import Attention
from regard.errors import RegardError
from regard.page import PAGE_FOLDER, attention_frame, attention_page, modules_in_order
from tests.support.attention_examples import HOSTILE, made, made_lens
from tests.support.browser import MISSING_FOR_PAGES, chromium, open_tab
from tests.support.text_models import random_model

pytestmark = pytest.mark.slow
needs_browser = pytest.mark.skipif(bool(MISSING_FOR_PAGES), reason=f"not here: {', '.join(MISSING_FOR_PAGES)}")
WORDS = ["<pad>", "le", "chat", "noir", "dort", "sur", "le", "tapis", *HOSTILE]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def context(browser: Any) -> Any:
    return browser.new_context(viewport={"width": 1280, "height": 800})


@pytest.fixture(scope="module")
def looked() -> Attention:
    torch.manual_seed(0)
    return made(WORDS)


class Look:
    """An open page, which must say nothing on the console and ask the network for nothing."""

    def __init__(self, context: Any, path: Path, width: int = 1280, height: int = 800, **media: str) -> None:
        self.page = open_tab(context, width, height, **media)
        self.said: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: self.said.append(dialog.message))
        self.page.on("request", lambda request: self.said.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector(".attention-heads button")
        self.address = path.as_uri()

    def shares(self, side: str) -> list[float]:
        texts = self.page.locator(f".attention-{side} .attention-share").all_text_contents()
        return [float(text.removesuffix("%")) for text in texts if text]

    def focused(self) -> str:
        return str(
            self.page.evaluate("document.activeElement.getAttribute('aria-label') ?? document.activeElement.value")
        )

    def close(self) -> None:
        self.page.close()
        assert [said for said in self.said if said not in (self.address, "data:,")] == []


@pytest.fixture
def look(context: Any, looked: Attention, tmp_path: Path) -> Iterator[Look]:
    path = tmp_path / "look.html"
    path.write_text(attention_page(looked.to_json()), encoding="utf-8")
    opened = Look(context, path)
    yield opened
    opened.close()


def same_shares(shown: list[float], weights: Tensor) -> None:
    torch.testing.assert_close(torch.tensor(shown), 100 * weights, rtol=0.01, atol=0.001)


@needs_browser
def test_hovering_shows_what_a_token_attends_to_and_is_attended_by(look: Look, looked: Attention) -> None:
    weights = looked.weights["cross"]
    look.page.get_by_role("button", name="layer 0, head 2", exact=True).click()
    look.page.locator(".attention-queries button").nth(3).hover()
    same_shares(look.shares("keys"), weights[0, 2, 3])
    assert look.shares("queries") == []
    best = int(weights[0, 2, 3].argmax())
    readout = look.page.locator(".attention-readout").text_content()
    assert readout.startswith(f"Predicting “{WORDS[4]}” after “{WORDS[3]}” attends most to “{WORDS[best]}” ")
    look.page.locator(".attention-keys button").nth(2).hover()
    same_shares(look.shares("queries"), weights[0, 2, :, 2])
    assert look.shares("keys") == []
    look.page.mouse.move(1, 1)
    assert look.shares("queries") == look.shares("keys") == []


@needs_browser
def test_hovering_a_cell_of_the_heat_map_shows_its_weight(look: Look, looked: Attention) -> None:
    look.page.get_by_role("button", name="layer 1, head 0", exact=True).focus()
    canvas = look.page.locator(".attention-matrix canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    look.page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + box["height"] * 0.7)
    text = look.page.locator(".attention-readout").text_content()
    pressed = [round(share, 3) for share in look.shares("keys")]
    assert float(text.rsplit(":", 1)[1].removesuffix("%")) in pressed
    rows = [
        row
        for row in looked.weights["cross"][1, 0]
        if torch.allclose(100 * row, torch.tensor(pressed), rtol=0.01, atol=0.001)
    ]
    assert len(rows) == 1


@needs_browser
def test_a_chosen_token_stays_while_heads_change(look: Look, looked: Attention) -> None:
    look.page.get_by_role("radio", name="Encoder").check()
    look.page.locator(".attention-queries button").nth(2).click()
    for layer, head in ((0, 0), (1, 2)):
        look.page.get_by_role("button", name=f"layer {layer}, head {head}", exact=True).click()
        same_shares(look.shares("keys"), looked.weights["encoder"][layer, head, 2])
    look.page.get_by_role("button", name="layer 0, mean of its heads").click()
    same_shares(look.shares("keys"), looked.weights["encoder"][0].mean(0)[2])
    look.page.locator(".attention-queries button").nth(2).click()  # lets go of it
    look.page.mouse.move(1, 1)
    assert look.shares("keys") == []


@needs_browser
def test_the_keyboard_is_sufficient(look: Look, looked: Attention) -> None:
    def press(*keys: str) -> None:
        for key in keys:
            look.page.keyboard.press(key)

    press("Tab")
    assert look.focused() == "cross"
    press("ArrowUp")
    assert look.focused() == "decoder"
    weights = looked.weights["decoder"]
    press("Tab")
    assert look.focused() == "layer 1, mean of its heads"
    press("ArrowLeft", "ArrowUp")
    assert look.focused() == "layer 0, head 2"
    assert look.page.locator("h2").nth(1).text_content() == "Layer 0, head 2"
    press("Tab")
    assert look.focused().startswith("Heat map of layer 0, head 2")
    press("ArrowDown", "ArrowDown", "ArrowRight")
    readout = look.page.locator(".attention-readout").text_content()
    assert readout.startswith(f"Predicting “{WORDS[3]}” after “{WORDS[2]}” attends to “{WORDS[1]}”: ")
    same_shares([float(readout.rsplit(":", 1)[1].removesuffix("%"))], weights[0, 2, 2, 1:2])
    press("Escape")
    assert "Hover over a token" in look.page.locator(".attention-readout").text_content()
    press("Tab", "ArrowDown", "ArrowDown")
    assert look.focused() == "reads chat, predicts noir"
    same_shares(look.shares("keys"), weights[0, 2, 2])
    press("ArrowRight")
    assert look.focused() == "chat"
    same_shares(look.shares("queries"), weights[0, 2, :, 2])
    press("End")
    assert look.focused() == WORDS[-1]
    press("Shift+Tab")
    assert look.focused() == "reads <pad>, predicts le"  # the first of those that look
    press("Tab", "Home", "Space")
    assert look.shares("queries") == []  # lets go of it


@needs_browser
def test_every_control_has_a_name(look: Look) -> None:
    for control in look.page.locator("button, input, canvas[tabindex]").all():
        name = control.evaluate("e => e.getAttribute('aria-label') ?? e.labels?.[0]?.textContent ?? ''")
        assert name.strip()
    reachable = look.page.evaluate(
        "[...document.querySelectorAll('button, canvas')].filter(e => e.tabIndex === 0).length"
    )
    assert reachable == 4  # a head, a token on each side, the heat map; arrow keys do the rest
    assert look.page.locator("[aria-live=polite]").count() == 1


@needs_browser
def test_the_logit_lens_shows_the_predictions_of_each_layer(context: Any, looked: Attention, tmp_path: Path) -> None:
    path, lens = tmp_path / "lens.html", made_lens(WORDS)
    path.write_text(attention_page(replace(looked, lens=lens).to_json()), encoding="utf-8")
    look = Look(context, path)
    cells = look.page.locator(".lens-table button")
    assert cells.count() == 3 * len(WORDS)
    best = [lens.top[state][row][0][0] for row in range(len(WORDS)) for state in range(3)]
    assert cells.locator("bdi").all_text_contents() == best
    assert {*cells.locator("span").all_text_contents()} == {"50%"}
    assert cells.nth(0).evaluate("e => getComputedStyle(e).backgroundColor") not in ("rgba(0, 0, 0, 0)", "rgb(0, 0, 0)")
    cells.nth(0).focus()
    for key in ("ArrowRight", "ArrowDown", "ArrowRight"):
        look.page.keyboard.press(key)
    said = str(look.page.locator(".lens-readout").text_content()).replace("\u2068", "").replace("\u2069", "")
    assert said == "After layer 1, at “le”: noir 50%, dort 25%, sur 12.5%"
    assert look.focused().replace("\u2068", "").replace("\u2069", "") == said
    assert look.page.evaluate("document.querySelectorAll('.lens-table button[tabindex=\"0\"]').length") == 1
    assert look.page.evaluate("document.documentElement.scrollWidth") <= 1280
    look.close()


@needs_browser
def test_hostile_tokens_stay_text(look: Look) -> None:
    shown = look.page.locator(".attention-keys .attention-token").all_text_contents()
    assert shown == WORDS
    assert look.page.locator("img").count() == 0
    assert look.page.locator("h1").text_content() == " ".join(WORDS)
    assert look.page.locator("script").count() == 2
    inline = "[...document.querySelectorAll('*')].some(e => [...e.attributes].some(a => a.name.startsWith('on')))"
    assert not look.page.evaluate(inline)


@needs_browser
def test_the_content_security_policy_blocks_other_scripts(look: Look) -> None:
    look.page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"document.title = 1\">')")
    look.page.wait_for_timeout(200)
    assert look.page.title() != "1"
    assert any("Content Security Policy" in said for said in look.said)
    look.said.clear()


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1920])
@pytest.mark.parametrize("tokens", [3, 60])
def test_it_fits_phone_and_projector_in_light_and_dark(
    context: Any, tmp_path: Path, scheme: str, width: int, tokens: int
) -> None:
    path = tmp_path / "look.html"
    path.write_text(attention_page(made([f"unbreakably{i}" for i in range(tokens)], 3, 8).to_json()), encoding="utf-8")
    opened = Look(context, path, width, color_scheme=scheme)
    for index in (0, 1):
        opened.page.locator(".attention-queries button").nth(index).click()
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    background = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
    lightness = sum(int(number) for number in re.findall(r"\d+", background)) / 765
    assert lightness > 0.9 if scheme == "light" else lightness < 0.1
    opened.close()


@needs_browser
@pytest.mark.parametrize("width", [780, 1200, 1400])
def test_short_sentences_have_complete_labels_and_numbers(context: Any, tmp_path: Path, width: int) -> None:
    path = tmp_path / "look.html"
    words = ["<pad>", "The", "cat", "is", "sleeping", "</s>"]
    path.write_text(attention_page(made(words, 3, 4).to_json()), encoding="utf-8")
    opened = Look(context, path, width)
    cut = "[...document.querySelectorAll('.attention-token')].filter(e => e.scrollWidth > e.clientWidth).length"
    assert opened.page.evaluate(cut) == 0
    opened.page.locator(".attention-queries button").nth(2).click()
    assert opened.page.evaluate(cut) == 0  # with the shares beside them too
    opened.page.keyboard.press("Escape")
    canvas = opened.page.locator(".attention-matrix canvas")
    inks = canvas.evaluate("""e => {
      const { data } = e.getContext("2d").getImageData(e.width - 1, 0, 1, e.height);
      return data.filter((_, i) => i % 4 === 3).reduce((sum, alpha) => sum + alpha, 0);
    }""")
    assert inks == 0  # no label runs into the right edge
    box = canvas.bounding_box()
    assert box["height"] >= 6 * 28  # cells that have room for numbers
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    opened.close()


@needs_browser
def test_it_follows_a_change_of_theme(look: Look) -> None:
    look.page.emulate_media(color_scheme="light")
    look.page.get_by_role("radio", name="Decoder").check()
    look.page.locator(".attention-queries button").first.click()  # the first step sees itself alone, and no later token
    unseen = look.page.locator(".attention-keys button").last
    colour = "e => e.style.backgroundColor.match(/\\d+/g).reduce((sum, each) => sum + Number(each), 0)"
    before = unseen.evaluate(colour)
    look.page.emulate_media(color_scheme="dark")
    look.page.wait_for_timeout(100)
    assert before > 600 > 200 > unseen.evaluate(colour)


@needs_browser
@pytest.mark.parametrize("kind", ["encoder-decoder", "decoder"])
def test_it_explains_how_a_weight_is_computed(context: Any, tmp_path: Path, kind: str) -> None:
    model = random_model(kind=kind)
    model.network.float()
    if kind == "decoder":  # a language model
        model.special = SpecialIds(end=model.special.end)
    observed = model.observe("Le chat dort.", "The cat sleeps." if kind == "encoder-decoder" else None)
    explained = explanation_data(observed, model.require_tokenizer(), model.special.end)
    path = tmp_path / "look.html"
    data = {**observed.attention.to_json(), **explained, "open": {"layer": 1, "head": 1}}
    path.write_text(attention_page(data), encoding="utf-8")
    opened = Look(context, path)
    name, attention_map = list(observed.attention.maps.items())[-1]
    assert "Queries" in opened.page.locator(".attention-help").text_content()
    assert explained["patterns"][name][1][1]["label"] in opened.page.locator(".head-pattern").text_content()
    opened.page.locator(".attention-matrix canvas").last.focus()
    opened.page.keyboard.press("ArrowDown")
    opened.page.wait_for_selector(".cell-step")
    cells = opened.page.locator(".softmax tbody td:nth-child(4)")
    shares = [float(text.removesuffix("%")) for text in cells.all_text_contents()]
    same_shares(shares, attention_map.weights[1, 1, 1])
    assert opened.page.locator(".weight-slider:enabled").count() == 0  # a file changes nothing
    opened.page.get_by_label("Temperature of the softmax").focus()
    opened.page.keyboard.press("End")
    assert max(float(text.removesuffix("%")) for text in cells.all_text_contents()) < max(shares)
    opened.close()


@needs_browser
def test_touch_is_sufficient(browser: Any, looked: Attention, tmp_path: Path) -> None:
    path = tmp_path / "look.html"
    path.write_text(attention_page(looked.to_json()), encoding="utf-8")
    opened = Look(browser.new_context(has_touch=True, is_mobile=True), path, 360, 700)
    opened.page.get_by_role("button", name="layer 0, head 1", exact=True).tap()
    token = opened.page.locator(".attention-queries button").nth(2)
    token.tap()
    same_shares(opened.shares("keys"), looked.weights["cross"][0, 1, 2])
    assert opened.page.locator(".attention-readout").bounding_box()["y"] < 700  # within sight
    token.tap()
    assert opened.shares("keys") == []
    opened.close()


@needs_browser
def test_it_opens_the_requested_layer_and_head(context: Any, looked: Attention, tmp_path: Path) -> None:
    path = tmp_path / "look.html"
    path.write_text(
        attention_page({**looked.only("decoder").to_json(), "open": {"layer": 0, "head": None}}), encoding="utf-8"
    )
    opened = Look(context, path)
    assert opened.page.locator("h2").nth(1).text_content() == "Layer 0, mean of its heads"
    assert opened.page.locator("input").count() == 0  # one kind: nothing to choose
    opened.close()


@needs_browser
def test_a_notebook_shows_the_same_in_a_frame(context: Any, looked: Attention, tmp_path: Path) -> None:
    path = tmp_path / "notebook.html"
    path.write_text(f"<!doctype html><link rel=icon href='data:,'><p>{looked._repr_html_()}</p>", encoding="utf-8")
    notebook = context.new_page()
    said: list[str] = []
    notebook.on("console", lambda message: said.append(message.text))
    notebook.goto(path.as_uri())
    inside = notebook.frame_locator("iframe")
    inside.locator(".attention-queries button").nth(1).hover()
    assert inside.locator(".attention-keys .attention-share").first.text_content().endswith("%")
    assert inside.locator(".attention-keys .attention-token").all_text_contents() == WORDS
    notebook.close()
    assert said == []


def test_the_frame_is_one_isolated_element() -> None:
    framed = attention_frame(made(HOSTILE).to_json())
    assert framed.count("<") == 2  # it, and its end
    assert 'sandbox="allow-scripts"' in framed
    inner = re.search(r'srcdoc="([^"]*)"', framed)
    assert inner
    assert html.unescape(inner[1]).startswith("<!doctype html>")


def test_the_page_fetches_nothing() -> None:
    text = attention_page(made(["a", "b"]).to_json())
    assert not re.findall(r"https?://|@import|url\(|fetch\(|XMLHttp", text)
    assert "innerHTML" not in text
    assert re.search(r"default-src 'none'", text)


def test_modules_come_after_those_that_they_import_and_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def note(path: Path) -> str:
        read.append(path.name)
        return path.read_text(encoding="utf-8")

    monkeypatch.setattr(page_package, "_read", note)
    names = [path.name for path in modules_in_order(PAGE_FOLDER / "attention.js")]
    assert len(names) > 20
    assert sorted(read) == sorted(names)
    for position, name in enumerate(names):
        imported = re.findall(r'^import .* from "\./(\w+\.js)";$', (PAGE_FOLDER / name).read_text(), flags=re.MULTILINE)
        assert set(imported) <= set(names[:position])


def test_modules_that_import_each_other_are_reported(tmp_path: Path) -> None:
    for name, other in (("a", "b"), ("b", "c"), ("c", "b")):
        (tmp_path / f"{name}.js").write_text(f'import {{ x }} from "./{other}.js";\n')
    with pytest.raises(RegardError, match=r"import each other: b\.js -> c\.js -> b\.js"):
        modules_in_order(tmp_path / "a.js")


def test_a_module_whose_file_is_missing_is_reported_with_its_importer(tmp_path: Path) -> None:
    script = tmp_path / "a.js"
    script.write_text('import { b } from "./b.js";\n')
    with pytest.raises(RegardError) as caught:
        modules_in_order(script, tmp_path / "other")
    assert str(caught.value).startswith(
        f"{script} imports b.js, which is missing; searched in {tmp_path}, {tmp_path / 'other'}."
    )
