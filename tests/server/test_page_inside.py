"""The Attention view: inside one cell, changes to the model, words and branches, comparison and the tour."""

import json
import math
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlencode

import pytest
import torch

import regard
from regard.decoding.head_effects import all_heads, measure_effects
from regard.decoding.head_patterns import PATTERN_RULES, map_patterns
from regard.decoding.head_vectors import head_vectors
from regard.decoding.interventions import AttentionChanges, HeadName, WeightChange, intervene
from regard.decoding.text_model import Model
from regard.models import bundled_folder
from tests.support.browser import MISSING, chromium, serving
from tests.support.opened_page import AXE, LOOK, REFUSED, SENTENCE, Opened
from tests.support.serving import encoders, language_model

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(MISSING), reason=f"not here: {', '.join(MISSING)}")]

HEAD = HeadName("cross", 1, 2)
OPEN = f"{LOOK}&kind=cross&layer=1&head=2"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("models")
    language_model().save(folder / "writer")
    encoders()["masked"].save(folder / "masked")
    story = f"story={bundled_folder('writer')}"
    with serving(["petit-fr-en", str(folder / "writer"), str(folder / "masked"), story]) as started:
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


@pytest.fixture(scope="module")
def petit() -> Model:
    return regard.load("petit-fr-en")


def translation(model: Model, changes: AttentionChanges, source: str = SENTENCE) -> str:
    with intervene(model.network, changes):
        best, _ = model.search_tree(source)
    return model.require_tokenizer().decode(best.ids)


def output(opened: Opened) -> str:
    """The output of the words, without the end."""
    pieces = opened.page.locator("[aria-label^='Output words'] button").evaluate_all(
        "all => all.map(e => (e.classList.contains('word-piece') ? '' : ' ') + e.textContent)"
    )
    return re.sub(r" ([.?!,])", r"\1", "".join(pieces[:-1]).strip())


def shown_translation(opened: Opened) -> str:
    return str(opened.page.locator("#attention-target").get_attribute("placeholder"))


def state(opened: Opened) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(opened.page.url.partition("?")[2]).items()}


def click(opened: Opened, name: str) -> None:
    opened.page.get_by_role("button", name=name, exact=True).click()


# Inside one cell.


def test_a_cell_shows_its_computation_with_its_numbers(opened: Opened, petit: Model) -> None:
    vectors = head_vectors(petit.observe(SENTENCE).forward, HEAD)
    opened.look(f"{OPEN}&row=3&column=4")
    opened.page.wait_for_selector(".cell-step-4")
    dot, score = float(vectors.dots[3, 4]), float(vectors.dots[3, 4] / math.sqrt(32))
    assert f"q·k = {dot:.3g}".replace("-", "−") in opened.text(".cell-step-1")
    assert f"÷ √32 = {dot:.3g} ÷ 5.66 = {score:.3g}".replace("-", "−") in opened.text(".cell-step-2")
    assert "No key is hidden" in opened.text(".cell-step-2")
    dimension = int((vectors.q[3] * vectors.k[4]).abs().argmax())
    product = float(vectors.q[3, dimension] * vectors.k[4, dimension])
    assert f"Dimension {dimension}: " in opened.text(".cell-step-1 .formula")
    assert f"= {product:.3g};".replace("-", "−") in opened.text(".cell-step-1 .formula")

    def weights() -> torch.Tensor:
        texts = opened.page.locator(".softmax tbody td:nth-child(4)").all_text_contents()
        return torch.tensor([float(text.removeprefix("< ").removesuffix("%")) / 100 for text in texts])

    torch.testing.assert_close(weights(), vectors.weights[3], atol=1e-5, rtol=0.006)
    temperature = opened.page.get_by_role("slider", name="Temperature of the softmax")
    temperature.focus()
    opened.press("End")
    scores = vectors.dots[3] * vectors.scale
    torch.testing.assert_close(weights(), (scores / 4).softmax(-1), atol=1e-5, rtol=0.006)
    at = int(opened.page.get_by_role("slider", name="Dimension of the vectors").input_value())
    total = float((scores / 4).softmax(-1) @ vectors.v[:, at])
    assert opened.page.locator(".strips-values output").last.text_content() == f"{total:.3g}".replace("-", "−")
    opened.press("Home")
    torch.testing.assert_close(weights(), (scores * 4).softmax(-1), atol=1e-5, rtol=0.006)


def test_the_quotient_of_the_softmax_is_the_weight(opened: Opened) -> None:
    quotients = []
    for row, column in ((3, 4), (4, 6), (2, 5)):
        opened.look(f"{OPEN}&row={row}&column={column}")
        opened.page.wait_for_selector(".cell-step-4")
        opened.until(lambda: not opened.page.locator(".stale").count())
        numbers = re.search(r": ([\d.]+) ÷ ([\d.]+) = ([\d.]+)%", opened.text(".cell-step-3 .formula"))
        assert numbers
        power, total, percentage = map(float, numbers.groups())
        assert 100 * power / total == pytest.approx(percentage, rel=0.006 if power < 1 else 0.001)
        quotients.append((power, percentage))
    assert any(power == 1 and 95 < percentage < 99.9 for power, percentage in quotients)  # the total is close to 1


def softmax_row(opened: Opened, selector: str) -> tuple[float, float]:
    """How far a row of the softmax is below the top of its box, and above its bottom."""
    script = """row => {
      const [inner, outer] = [row, row.closest(".softmax-scroll")].map(e => e.getBoundingClientRect());
      return [inner.top - outer.top, outer.bottom - inner.bottom];
    }"""
    below, above = opened.page.locator(selector).first.evaluate(script)
    return below, above


def test_a_long_softmax_is_scrolled_to_the_selected_key_and_stays_where_a_weight_is_changed(opened: Opened) -> None:
    source = " ".join(["Il aime son grand-père et il lui écrit souvent."] * 4)
    options = {"model": "petit-fr-en", "source": source, "kind": "encoder", "layer": 1, "head": 2}

    def is_shown(selector: str) -> bool:
        return not opened.page.locator(".stale").count() and min(softmax_row(opened, selector)) >= 0

    opened.look(f"#/look?{urlencode(options | {'row': 3, 'column': 40})}")
    opened.page.wait_for_selector(".cell-step-4")
    opened.until(lambda: is_shown(".softmax-chosen"))
    canvas = opened.page.locator(".attention-matrix canvas").first
    canvas.focus()
    opened.press(*["ArrowLeft"] * 38)
    opened.until(lambda: state(opened).get("column") == "2" and is_shown(".softmax-chosen"))
    slider = opened.page.locator(".weight-slider").nth(44)
    slider.scroll_into_view_if_needed()
    slider.focus()
    opened.press("PageUp")
    opened.until(lambda: "set" in state(opened) and not opened.page.locator(".stale").count())
    opened.until(lambda: is_shown("tr:has(:focus)"))


def test_cells_of_every_kind_of_model_and_the_mean(opened: Opened) -> None:
    opened.look("#/look?model=writer&source=Once+upon+a+time&kind=decoder&layer=1&head=1&row=1&column=3")
    opened.page.wait_for_selector(".cell-step-4")
    assert "hidden from the query" in opened.text(".cell-step-2")
    assert opened.page.locator(".weight-slider:disabled").count() > 1
    opened.look("#/look?model=writer&source=Once+upon+a+time&kind=decoder&layer=1&head=1&row=0&column=0")
    sliders = opened.page.locator(".weight-slider")
    opened.until(lambda: sliders.count() > 1 and opened.page.locator(".weight-slider:enabled").count() == 0)
    read = opened.page.locator("[aria-label^='Source words'] button")
    assert opened.page.locator("[aria-label^='Source words'] button[style*='--doubt']").count() >= read.count() - 1
    opened.look("#/look?model=masked&source=Le+chat&kind=encoder&layer=0&head=0&row=0&column=1")
    opened.until(lambda: read.count() > 1 and read.first.text_content() == "start")
    opened.page.wait_for_selector(".cell-step-4")
    assert read.last.text_content() == "end"  # the same token as the first
    assert opened.text(".attention-queries .attention-token") == opened.text(".lens-table tbody th") == "start"
    opened.look(f"{LOOK}&kind=cross&layer=1&row=3&column=4")
    opened.page.wait_for_selector(".cell-head")
    assert opened.page.locator(".cell-head").count() == 4
    opened.page.locator(".cell-head").nth(2).click()
    opened.page.wait_for_selector(".cell-step-4")
    opened.until(lambda: state(opened).get("head") == "2" and state(opened)["row"] == "3")
    canvas = opened.page.locator(".attention-matrix canvas").first
    canvas.focus()
    opened.press("ArrowRight")
    opened.until(lambda: state(opened)["column"] == "5")
    opened.press("Escape")
    opened.until(lambda: "a cell of the heat map" in opened.text(".cell-about"))


# Changes.


def test_a_silenced_head_changes_the_translation_and_can_be_undone(opened: Opened, petit: Model) -> None:
    layer = tuple(HeadName("cross", 1, head) for head in range(4))
    usual, without_layer = (translation(petit, AttentionChanges(heads)) for heads in ((), layer))
    assert usual != without_layer
    opened.look(OPEN)
    assert shown_translation(opened) == usual == output(opened)
    click(opened, "Silence this head")
    opened.until(lambda: opened.page.locator(".attention-silenced").count() == 1)
    assert state(opened)["off"] == "cross.1.2"
    assert shown_translation(opened) == translation(petit, AttentionChanges((HEAD,)))
    click(opened, "Silence this layer")
    opened.until(lambda: opened.page.locator(".attention-silenced").count() == 4)
    assert shown_translation(opened) == without_layer
    assert opened.text(".word-usual") == usual
    assert opened.page.locator(".word-usual del").count() > 0
    address = opened.page.url
    click(opened, "Undo")
    opened.until(lambda: opened.page.locator(".attention-silenced").count() == 1)
    click(opened, "Reset")
    opened.until(lambda: opened.page.locator(".attention-silenced").count() == 0 and "off" not in state(opened))
    assert shown_translation(opened) == usual
    opened.page.go_back()
    opened.until(lambda: opened.page.locator(".attention-silenced").count() == 1)
    other = Opened(opened.context, opened.address)
    other.look(address.removeprefix(opened.address))
    assert shown_translation(other) == without_layer
    other.page.get_by_role("button", name="Remove: cross-attention layer 1, heads 0, 1, 2 and 3 silenced").click()
    other.until(lambda: shown_translation(other) == usual)
    other.close()


def test_a_hidden_word_is_not_translated(opened: Opened, petit: Model) -> None:
    labels = petit.observe(SENTENCE).attention.maps["encoder"].keys
    position = labels.index("livres")
    expected = translation(petit, AttentionChanges(hidden=(position,)))
    opened.look(OPEN)
    words = opened.page.get_by_role("group", name="Source words: select one to hide it")
    words.get_by_role("button").first.focus()
    opened.press(*["ArrowRight"] * words.get_by_role("button").all_text_contents().index("livres"))
    opened.press("Enter")
    opened.until(lambda: shown_translation(opened) == expected and "hide" in state(opened))
    assert "books" not in expected
    assert state(opened)["hide"] == str(position)
    assert opened.focused() == "livres"
    opened.press("Enter")
    opened.until(lambda: "books" in shown_translation(opened))


def test_a_dragged_weight_changes_the_model(opened: Opened, petit: Model) -> None:
    change = WeightChange(HEAD, row=3, column=0, weight=0.9)
    with intervene(petit.network, AttentionChanges(weights=(change,))):
        best, _ = petit.search_tree(SENTENCE)
        ids = [*best.ids, *petit.special.end[:1]]
        logits = petit.observe(SENTENCE, "x", ids).logits
    assert logits is not None
    expected = float(logits[3].softmax(-1)[ids[3]])
    opened.look(f"{OPEN}&row=3&column=4")
    slider = opened.page.locator(".weight-slider").first
    slider.focus()
    slider.evaluate("e => { e.value = 90; for (const n of ['input', 'change']) e.dispatchEvent(new Event(n)); }")
    opened.until(lambda: "set" in state(opened))
    opened.until(lambda: "a weight set to 90%" in opened.text(".changes"))
    assert state(opened)["set"] == "cross.1.2.3.0.900"
    word = opened.page.locator("[aria-label^='Output words'] button").nth(3)
    assert float(str(word.get_attribute("title")).split()[1].removesuffix("%")) == pytest.approx(
        100 * expected, rel=0.01
    )
    opened.page.wait_for_selector(".cell-step-4")
    assert opened.page.locator(".softmax tbody td:nth-child(4)").first.text_content() == "90%"
    click(opened, "Restore the weights of this row")
    opened.until(lambda: "set" not in state(opened))


def test_strips_fit_their_boxes_after_a_change(context: Any, address: str) -> None:
    opened = Opened(context, address, 390, 844)
    opened.look(f"{OPEN}&row=3&column=4")
    opened.page.wait_for_selector(".cell-step-4")
    slider = opened.page.locator(".weight-slider").nth(2)
    slider.evaluate("e => { e.value = 64.8; for (const n of ['input', 'change']) e.dispatchEvent(new Event(n)); }")
    opened.until(lambda: "set" in state(opened) and not opened.page.locator(".stale").count())
    wait_for_frames(opened)
    excess = "all => all.map(e => Math.round(e.getBoundingClientRect().width) - e.parentElement.clientWidth)"
    assert set(opened.page.locator(".strip").evaluate_all(excess)) == {0}
    assert opened.page.evaluate("document.documentElement.scrollWidth") == 390
    opened.close()


def test_a_weight_that_is_changed_by_keyboard_keeps_the_focus(opened: Opened) -> None:
    opened.look(f"{OPEN}&row=3&column=4")
    opened.page.wait_for_selector(".cell-step-4")
    slider = opened.page.locator(".weight-slider").nth(5)
    slider.focus()
    name, before = opened.focused(), round(10 * float(slider.input_value()))
    for step in range(1, 4):
        opened.press("ArrowRight")
        opened.until(lambda step=step: state(opened).get("set") == f"cross.1.2.3.5.{before + step}")  # type: ignore[misc]
        opened.until(lambda step=step: f"{(before + step) / 10:g}%" in opened.text(".changes"))  # type: ignore[misc]
        assert opened.focused() == name
        opened.until(lambda: opened.page.locator(".cell-steps.stale").count() == 0)
        assert opened.focused() == name
    opened.press("PageUp", "PageUp", "ArrowRight")  # faster than the server answers
    opened.until(lambda: opened.page.locator(".stale").count() == 0 and "set" in state(opened))
    assert opened.focused() == name


def test_the_preview_of_a_second_drag_is_what_the_model_computes(opened: Opened) -> None:
    opened.look(f"{OPEN}&row=3&column=4&set=cross.1.2.3.0.900")
    opened.page.wait_for_selector(".cell-step-4")
    weights = opened.page.locator(".softmax tbody td:nth-child(4)")
    assert weights.first.text_content() == "90%"
    slider = opened.page.locator(".weight-slider").nth(4)
    slider.evaluate("e => { e.value = 30; e.dispatchEvent(new Event('input')); }")
    preview = weights.all_text_contents()
    assert preview[4] == "30%"
    assert "to 30%; the others keep" in opened.text(".cell-step-3 .formula")
    slider.evaluate("e => e.dispatchEvent(new Event('change'))")
    opened.until(lambda: state(opened)["set"] == "cross.1.2.3.4.300")
    opened.until(lambda: opened.page.locator(".stale").count() == 0 and "30%" in opened.text(".changes"))
    assert weights.all_text_contents() == preview
    opened.open(f"{OPEN}&row=3&column=4&set=cross.1.2.3.4.000", ".cell-step-4")
    opened.until(lambda: weights.nth(4).text_content() == "0%" and opened.page.locator(".stale").count() == 0)
    slider.evaluate("e => { e.value = 30; e.dispatchEvent(new Event('input')); }")
    assert weights.all_text_contents() == preview


GATES = """() => {
  const send = fetch;
  const gates = {};
  window.closeGate = path => {
    const gate = gates[path] = { responses: [] };
    gate.opened = new Promise(resolve => { gate.open = resolve; });
  };
  window.openGate = async path => {
    const { open, responses } = gates[path];
    delete gates[path];
    open();
    await Promise.all(responses);
  };
  window.held = path => gates[path].responses.length;
  window.fetch = (...given) => {
    const gate = gates[given[0]];
    if (!gate) return send(...given);
    const response = gate.opened.then(() => send(...given));
    gate.responses.push(response.then(received => received.clone().text()).catch(() => null));
    return response;
  };
}"""
"""Functions that hold requests to a path back (`closeGate`), count them (`held`), and send them on (`openGate`)."""


class Gates:
    """Gates between a page and its server, one for each path. They are open at first."""

    def __init__(self, opened: Opened) -> None:
        self.opened, self.page = opened, opened.page
        self.page.evaluate(GATES)

    def close(self, path: str) -> None:
        self.page.evaluate("path => closeGate(path)", path)

    def wait(self, path: str) -> None:
        """Wait until one request is held back."""
        self.opened.until(lambda: self.page.evaluate("path => held(path)", path) == 1)

    def open(self, path: str) -> None:
        """Send the requests on, and wait until the page has handled their responses."""
        self.page.evaluate("path => openGate(path)", path)
        wait_for_frames(self.opened)


def wait_for_frames(opened: Opened) -> None:
    """Wait until the page was drawn twice."""
    opened.page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def wait_until_still(opened: Opened, selector: str) -> None:
    """Wait until elements have the same positions in two successive polls."""
    boxes = "all => all.map(e => Object.values(e.getBoundingClientRect().toJSON()))"
    seen: list[list[float]] = []

    def is_still() -> bool:
        nonlocal seen
        wait_for_frames(opened)
        before, seen = seen, opened.page.locator(selector).evaluate_all(boxes)
        return bool(seen) and seen == before

    opened.until(is_still)


def open_cell(opened: Opened) -> None:
    opened.look(f"{OPEN}&row=3&column=4")
    opened.until(lambda: opened.page.locator(".cell-step-4").count() == 1 and not opened.page.locator(".stale").count())


def press_on(opened: Opened, slider: Any, share: float) -> None:
    """Press on a slider and move the pointer there, without releasing it."""
    slider.scroll_into_view_if_needed()
    wait_until_still(opened, ".cell-steps input")
    box = slider.bounding_box()
    assert box
    opened.page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + box["height"] / 2)
    opened.page.mouse.down()
    opened.page.mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] / 2, steps=4)


SLIDERS = {
    "weight": ".weight-slider >> nth=5",
    "temperature": "[aria-label='Temperature of the softmax']",
    "dimension": "[aria-label='Dimension of the vectors']",
}


@pytest.mark.parametrize("name", SLIDERS)
@pytest.mark.parametrize("path", ["/api/attend", "/api/head"])
def test_a_response_does_not_take_a_slider_out_of_the_hand(opened: Opened, path: str, name: str) -> None:
    open_cell(opened)
    gates = Gates(opened)
    gates.close(path)
    press_on(opened, opened.page.locator(".weight-slider").first, 0.9)
    opened.page.mouse.up()
    gates.wait(path)
    first = state(opened)["set"]
    dragged = opened.page.locator(SLIDERS[name])
    press_on(opened, dragged, 0.3)
    before = dragged.input_value()
    low, high = (float(str(dragged.get_attribute(end))) for end in ("min", "max"))
    assert 0.2 < (float(before) - low) / (high - low) < 0.4
    held = dragged.element_handle()
    gates.open(path)
    assert held
    assert held.evaluate("e => e.isConnected")
    assert dragged.input_value() == before
    opened.page.mouse.up()
    expected = f"cross.1.2.3.5.{round(10 * float(before))}" if name == "weight" else first
    opened.until(lambda: state(opened).get("set") == expected and not opened.page.locator(".stale").count())
    assert not held.evaluate("e => e.isConnected")
    assert dragged.input_value() == before


def test_the_notice_of_a_slow_response_moves_nothing(opened: Opened) -> None:
    open_cell(opened)
    controls = opened.page.locator("main button, main input, main textarea")
    boxes = "all => all.map(e => Object.values(e.getBoundingClientRect().toJSON()))"
    for path in ("/api/attend", "/api/head"):
        gates = Gates(opened)
        gates.close(path)
        press_on(opened, opened.page.locator(".weight-slider").first, 0.9 if path == "/api/attend" else 0.6)
        opened.page.mouse.up()
        gates.wait(path)
        wait_until_still(opened, ".cell-steps input")
        before = controls.evaluate_all(boxes)
        opened.page.wait_for_selector(".notice-wait >> text=Waiting for the model", state="visible")
        assert controls.evaluate_all(boxes) == before
        gates.open(path)
        opened.until(lambda: not opened.page.locator(".stale").count())


def test_only_the_pointer_that_holds_a_slider_releases_it(opened: Opened) -> None:
    open_cell(opened)
    gates = Gates(opened)
    gates.close("/api/head")
    press_on(opened, opened.page.locator(".weight-slider").first, 0.9)
    opened.page.mouse.up()
    gates.wait("/api/head")
    slider = opened.page.locator(SLIDERS["temperature"])
    press_on(opened, slider, 0.3)
    held = slider.element_handle()
    assert held
    opened.page.evaluate("dispatchEvent(new PointerEvent('pointerup', { pointerId: 77 }))")  # another finger
    gates.open("/api/head")
    assert held.evaluate("e => e.isConnected")
    opened.page.mouse.up()
    opened.until(lambda: not held.evaluate("e => e.isConnected"))


def test_a_right_click_on_a_slider_does_not_hold_it(opened: Opened) -> None:
    open_cell(opened)
    gates = Gates(opened)
    gates.close("/api/head")
    press_on(opened, opened.page.locator(".weight-slider").first, 0.9)
    opened.page.mouse.up()
    gates.wait("/api/head")
    slider = opened.page.locator(SLIDERS["temperature"])
    slider.dispatch_event("pointerdown", {"button": 2, "pointerId": 1, "bubbles": True})  # no pointerup: a menu opens
    gates.open("/api/head")
    opened.until(lambda: not opened.page.locator(".stale").count())


def test_a_slider_that_is_removed_while_it_is_held_sets_the_weight_of_its_own_cell(opened: Opened) -> None:
    sent: list[Any] = []
    opened.page.on("request", lambda asked: sent.extend([json.loads(asked.post_data)] if asked.post_data else []))
    open_cell(opened)
    press_on(opened, opened.page.locator(SLIDERS["weight"]), 0.3)
    value = float(opened.page.locator(SLIDERS["weight"]).input_value())
    opened.press("Escape")
    opened.until(lambda: "a cell of the heat map" in opened.text(".cell-about"))
    opened.page.mouse.up()
    opened.until(lambda: not opened.page.locator(".stale").count() and "a weight set to" in opened.text(".changes"))
    weights = [weight for body in sent for weight in body.get("changes", {}).get("weights", [])]
    own = {"kind": "cross", "layer": 1, "head": 2, "row": 3, "column": 5, "weight": pytest.approx(value / 100)}
    assert weights
    assert all(weight == own for weight in weights)


def test_a_cell_that_is_closed_while_its_slider_is_held_stays_closed(opened: Opened) -> None:
    open_cell(opened)
    gates = Gates(opened)
    gates.close("/api/head")
    press_on(opened, opened.page.locator(".weight-slider").first, 0.9)
    opened.page.mouse.up()
    gates.wait("/api/head")
    press_on(opened, opened.page.locator(SLIDERS["temperature"]), 0.3)
    gates.open("/api/head")  # the response waits until the slider is released
    opened.press("Escape")
    opened.page.mouse.up()
    wait_for_frames(opened)
    assert "a cell of the heat map" in opened.text(".cell-about")
    assert opened.page.locator(".cell-step, .cell-steps.stale").count() == 0


def test_a_view_that_is_left_while_a_slider_is_held_does_not_change_the_url(opened: Opened) -> None:
    open_cell(opened)
    press_on(opened, opened.page.locator(SLIDERS["weight"]), 0.3)
    opened.page.evaluate("location.hash = '#/translate'")
    opened.page.wait_for_selector("#source")
    opened.page.mouse.up()
    wait_for_frames(opened)
    assert opened.page.evaluate("location.hash").startswith("#/translate")
    assert opened.text("h1") == "Translate"


def test_keys_on_a_slider_count_while_a_response_is_pending(opened: Opened) -> None:
    open_cell(opened)
    slider = opened.page.locator(".weight-slider").nth(5)
    slider.focus()
    before = round(10 * float(slider.input_value()))
    gates = Gates(opened)
    gates.close("/api/head")
    opened.press("ArrowRight")
    gates.wait("/api/head")  # the words are there, the vectors are not
    gates.close("/api/attend")
    opened.press("ArrowRight")
    gates.wait("/api/attend")
    gates.open("/api/head")  # the request for the vectors before the second change was cancelled
    opened.press("ArrowRight")
    gates.open("/api/attend")
    opened.until(lambda: not opened.page.locator(".stale").count())
    assert state(opened)["set"] == f"cross.1.2.3.5.{before + 3}"
    assert round(10 * float(slider.input_value())) == before + 3


def test_changes_that_are_made_while_one_is_pending_are_all_kept(opened: Opened) -> None:
    opened.look(OPEN)
    gates = Gates(opened)
    gates.close("/api/attend")
    click(opened, "Silence this head")
    opened.page.locator("[aria-label^='Source words'] button").nth(2).click()
    gates.open("/api/attend")
    opened.until(lambda: opened.page.locator(".change-chip").count() == 2)
    assert (state(opened)["off"], "hide" in state(opened)) == ("cross.1.2", True)


def test_a_change_is_made_to_the_displayed_sentence_while_another_is_typed(opened: Opened, petit: Model) -> None:
    position = petit.observe(SENTENCE).attention.maps["encoder"].keys.index("livres")
    expected = translation(petit, AttentionChanges(hidden=(position,)))
    opened.look(OPEN)
    field = opened.page.locator("#attention-source")
    field.fill("Elle va au marché.")
    words = opened.page.get_by_role("group", name="Source words: select one to hide it")
    words.get_by_role("button", name="livres").click()
    opened.until(lambda: opened.page.locator(".change-chip").count() == 1)
    assert (state(opened)["source"], shown_translation(opened)) == (SENTENCE, expected)
    assert opened.text(".change-chip") == "“livres” hidden ×"
    assert field.input_value() == "Elle va au marché."
    field.press("Enter")
    opened.until(lambda: "market" in shown_translation(opened))
    assert opened.page.locator(".change-chip").count() == 0


def test_a_change_that_failed_is_tried_again_on_the_displayed_sentence(opened: Opened, petit: Model) -> None:
    position = petit.observe(SENTENCE).attention.maps["encoder"].keys.index("livres")
    expected = translation(petit, AttentionChanges(hidden=(position,)))
    opened.look(OPEN)
    opened.page.locator("#attention-source").fill("Elle va au marché.")
    opened.page.route("**/api/attend", lambda route: route.abort())
    words = opened.page.get_by_role("group", name="Source words: select one to hide it")
    words.get_by_role("button", name="livres").click()
    again = opened.page.get_by_role("button", name="Try again")
    opened.until(again.is_visible)
    opened.page.unroute("**/api/attend")
    again.click()
    opened.until(lambda: shown_translation(opened) == expected)
    assert state(opened)["source"] == SENTENCE
    opened.said = [said for said in opened.said if REFUSED not in said]


def test_silenced_heads_are_named_in_order(opened: Opened) -> None:
    opened.look(f"{OPEN}&off=cross.1.3_cross.1.0_cross.1.2_encoder.0.1")
    names = ["encoder layer 0, head 1 silenced ×", "cross-attention layer 1, heads 0, 2 and 3 silenced ×"]
    assert opened.page.locator(".change-chip").all_text_contents() == names


def test_a_preview_stays_when_the_layout_changes(opened: Opened) -> None:
    opened.look(f"{OPEN}&row=3&column=4")
    opened.until(lambda: opened.page.locator(".cell-step-4").count() == 1 and not opened.page.locator(".stale").count())
    slider = opened.page.locator(".weight-slider").first
    slider.evaluate("e => { e.value = 60; e.dispatchEvent(new Event('input')); }")
    redraws = "new Promise(done => new ResizeObserver(done).observe(document.querySelector('.cell-steps')))"
    opened.page.set_viewport_size({"width": 900, "height": 900})
    opened.page.evaluate(redraws)
    wait_for_frames(opened)
    assert slider.input_value() == "60"
    assert opened.page.locator(".softmax tbody td:nth-child(4)").first.text_content() == "60%"


LONG_SENTENCE = "Le petit chat noir dort sur la grande table et les enfants jouent dans le jardin avec une pomme rouge."
LABELS = """() => {
  const frame = document.querySelector(".layers-box").getBoundingClientRect();
  const shown = [...document.querySelectorAll(".layers-box text")].filter(e => getComputedStyle(e).display !== "none");
  const boxes = shown.map(e => ({ text: e.textContent, box: e.getBoundingClientRect() }));
  const meet = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 2 && b.top < a.bottom - 2;
  const outside = boxes.filter(({ box }) => box.left < frame.left || box.right > frame.right).map(({ text }) => text);
  const pairs = boxes.flatMap((a, i) => boxes.slice(i + 1).filter(b => meet(a.box, b.box)).map(b => a.text + b.text));
  return { count: boxes.length, problems: [...outside, ...pairs] };
}"""


@pytest.mark.parametrize("width", [1280, 360])
def test_labels_of_maps_do_not_overlap(context: Any, address: str, width: int) -> None:
    opened = Opened(context, address, width, 800, reduced_motion="reduce")
    dots = opened.page.locator(".layers-box circle")
    for source, least in ((SENTENCE, 12), (LONG_SENTENCE, 18)):
        opened.open(f"#/layers?{urlencode({'source': source, 'stack': 'encoder'})}", ".layers-box circle")
        opened.until(lambda least=least: dots.count() >= least and not opened.page.locator(".stale").count())  # type: ignore[misc]
        wait_until_still(opened, ".layers-box text")
        labels = opened.page.evaluate(LABELS)
        assert labels["problems"] == []
        assert labels["count"] >= least
    others = ["The cat sleeps.", "The cat slept.", "The cat sleeps!", "The cat sleeps .", "A" * 80, "The dog sleeps."]
    options = {"model": "masked", "task": "embed", "text": "The cat sleeps,", "others": "\n".join(others)}
    opened.open(f"#/read?{urlencode(options)}", ".sentence-map circle")
    wait_until_still(opened, ".layers-box text")
    labels = opened.page.evaluate(LABELS)
    assert labels["problems"] == []
    assert labels["count"] == 1 + len(others)
    opened.close()


def test_labels_of_maps_are_measured_in_their_font(opened: Opened) -> None:
    opened.open(f"#/layers?{urlencode({'source': SENTENCE})}", ".layers-box circle")
    script = """async (svg, fontSize) => {
      const { placeLabels } = await import("/page/label_placement.js");
      svg.style.fontSize = fontSize;
      const [label] = placeLabels(svg, [{ x: 10, y: 50, text: "word" }], { width: 80, height: 100, maxLength: 4 });
      return label?.text ?? null;
    }"""
    svg = opened.page.locator(".layers-box svg")
    assert [svg.evaluate(script, size) for size in ("13px", "40px")] == ["word", None]  # it does not fit


def test_a_language_model_starts_with_its_start_and_ends_with_its_lens(opened: Opened) -> None:
    text = "Once upon a time there was a cat."
    opened.look(f"#/look?{urlencode({'model': 'story', 'source': text, 'hide': 0})}")
    first = opened.page.locator("[aria-label^='Source words'] button").first
    assert first.text_content() == opened.page.locator(".attention-keys button bdi").first.text_content() == "start"
    assert "“start” hidden" in opened.text(".changes")
    tops = [
        opened.page.locator(selector).evaluate("e => e.offsetTop")
        for selector in (".attention-large", ".attention-lens")
    ]
    assert tops == sorted(tops)


def test_heads_are_ranked_by_their_effect(opened: Opened, petit: Model) -> None:
    removals = all_heads(petit.network)
    effects = measure_effects(petit.observe(SENTENCE), removals)
    order = sorted(zip(effects, removals, strict=True), key=lambda pair: -pair[0].divergence)
    opened.look(OPEN)
    click(opened, "Measure all heads and words")
    opened.page.wait_for_selector(".effects tbody tr")
    rows = opened.page.locator(".effects tbody tr")
    assert rows.count() == len(removals)
    first = order[0][1].head
    assert first is not None
    kind = {"cross": "cross-attention"}.get(first.kind, first.kind)
    name = f"{kind} layer {first.layer}, head {first.head}"
    assert rows.first.locator("th").text_content() == name
    shown = [float(text) for text in opened.page.locator(".effects .effect").all_text_contents()]
    assert shown == [round(effect.divergence, 3) for effect, _ in order]
    assert opened.page.locator("[aria-label^='Source words'] button[style*='--effect']").count() > 5
    rows.first.get_by_role("button", name="Silence").click()
    opened.until(lambda: state(opened).get("off") == f"{first.kind}.{first.layer}.{first.head}")
    restore = opened.page.get_by_role("button", name=f"Restore {name}")  # the table is still there, measured again
    opened.until(lambda: restore.count() == 1 and rows.count() == len(removals))


def test_the_effect_of_heads_is_visible_on_a_phone(context: Any, address: str) -> None:
    opened = Opened(context, address, 360, 740).look(OPEN)
    click(opened, "Measure all heads and words")
    opened.page.wait_for_selector(".effects tbody tr")
    right_edges = "all => all.map(e => e.getBoundingClientRect().right)"
    assert max(opened.page.locator(".effects .effect").evaluate_all(right_edges)) <= 360 - 20
    opened.close()


def test_effects_name_the_token_that_is_replaced(opened: Opened) -> None:
    opened.look("#/look?model=petit-fr-en&source=Tu+vas+bien+?")
    click(opened, "Measure all heads and words")
    opened.page.wait_for_selector(".effects tbody tr")
    replaced = [
        text.split(" instead of ")
        for text in opened.page.locator(".effects tbody td:nth-child(5)").all_text_contents()
        if text != "the same"
    ]
    assert replaced
    assert all(after != before for after, before in replaced)
    opened.look("#/look?model=masked&source=Le+chat")  # a model that writes nothing
    click(opened, "Measure all heads and words")
    opened.page.wait_for_selector(".effects tbody tr")
    assert opened.page.locator(".effects thead th").all_text_contents() == ["head", "pattern", "change"]
    assert "Probability" not in opened.text(".effects .hint")


def test_heads_are_labelled_by_their_pattern(opened: Opened, petit: Model) -> None:
    looked = petit.attend(SENTENCE)
    labels = [head.label for layer in map_patterns("cross", looked.maps["cross"], looked.special) for head in layer]
    opened.look(OPEN)
    shown = opened.page.locator(".patterns button")
    counts = {str(text).rpartition(" ")[0]: int(text.rpartition(" ")[2]) for text in shown.all_text_contents()}
    assert counts == {label: labels.count(label) for label in labels}
    shown.first.click()
    first = next(iter(counts))
    marked = opened.page.locator(".attention-heads button").evaluate_all(
        "all => all.map(e => e.classList.contains('attention-marked'))"
    )
    assert [mark for i, mark in enumerate(marked) if i % 5 < 4] == [label == first for label in labels]
    assert PATTERN_RULES[first] in opened.text(".pattern-legend")
    assert PATTERN_RULES[labels[6]] in opened.text(".head-pattern")


# Words.


def test_a_translation_continues_from_an_alternative(opened: Opened, petit: Model) -> None:
    observed = petit.observe(SENTENCE)
    assert observed.logits is not None
    ids = [*observed.written[:2], int(observed.logits[2].topk(2).indices[1])]
    branch, _ = petit.search_tree(SENTENCE, beginning=ids)
    opened.look(OPEN)
    opened.page.locator("[aria-label^='Output words'] button").nth(2).click()
    bars = opened.page.locator(".word-alternatives button")
    assert bars.count() == 10
    bars.nth(1).click()
    opened.until(lambda: state(opened).get("from") == "_".join(map(str, ids)))
    opened.until(lambda: opened.page.locator(".beam .beam-given text").count() == 3)
    assert shown_translation(opened) == petit.require_tokenizer().decode(branch.ids)
    assert opened.page.locator(".beam g.beam-usual").count() > 0
    assert "Undo" in opened.text(".changes")
    opened.page.locator("[aria-label^='Output words'] button").nth(2).click()
    opened.press("Escape")


def test_pieces_are_joined_and_sinks_hidden(opened: Opened, petit: Model) -> None:
    looked = petit.attend(SENTENCE)
    weights, labels = looked.weights["cross"][1, 2], looked.maps["cross"].keys
    opened.look(OPEN)
    opened.page.get_by_label("join pieces into words").check()
    keys = opened.page.locator(".attention-keys button")
    opened.until(lambda: keys.count() == len([label for label in labels if not label.startswith("·")]))
    assert "trois" in opened.page.locator(".attention-keys .attention-token").all_text_contents()
    opened.page.locator(".attention-queries button").first.hover()
    pieces = [i for i, label in enumerate(labels) if label in ("t", "·ro", "·is")]
    column = opened.page.locator(".attention-keys .attention-token").all_text_contents().index("trois")
    share = float(str(keys.nth(column).locator(".attention-share").text_content()).removesuffix("%"))
    assert share == pytest.approx(100 * float(weights[0, pieces].sum()), rel=0.02, abs=0.01)
    opened.page.get_by_label("hide sinks").check()
    opened.until(lambda: "end" not in opened.page.locator(".attention-keys .attention-token").all_text_contents())
    opened.page.locator(".attention-queries button").first.hover()
    shares = opened.page.locator(".attention-keys .attention-share").all_text_contents()
    assert sum(float(text.removesuffix("%")) for text in shares) == pytest.approx(100, abs=0.5)
    opened.until(lambda: {"words", "sinks"} <= state(opened).keys())
    opened.page.get_by_role("slider", name="Decoding step").focus()
    opened.press("Home", "ArrowRight", "ArrowRight")
    assert opened.text(".step-where").startswith("Step 3 of")


def test_a_long_sentence_zooms_with_labels_that_stay(opened: Opened) -> None:
    tokens = [f"word{i}" for i in range(60)]
    weights = torch.eye(60)[None, None].tolist()
    both = {"queries": tokens, "keys": tokens, "weights": weights, "writes": [], "kind": "encoder"}
    opened.stub("/api/attend", {"model": "x", "source": "x", "target": None, "special": [], "maps": [both]})
    opened.look()
    box, canvas = opened.page.locator(".attention-matrix").first, opened.page.locator(".attention-matrix canvas").first
    pixels = "e => e.toDataURL()"
    canvas.focus()
    opened.press("+", "+")
    assert box.evaluate("e => e.scrollWidth > e.clientWidth + 100 && e.scrollHeight > e.clientHeight + 100")
    assert canvas.evaluate("e => e.clientHeight <= innerHeight")
    before = canvas.evaluate(pixels)
    box.evaluate("e => { e.scrollTop = 200 }")
    opened.until(lambda: canvas.evaluate(pixels) != before)
    in_view = canvas.evaluate(
        "(e, b) => e.getBoundingClientRect().top - b.getBoundingClientRect().top", box.element_handle()
    )
    assert in_view == 4  # it stays where it is, and draws the labels of what is visible
    opened.press(*["ArrowDown"] * 50)
    assert box.evaluate("e => e.scrollTop") > 400
    opened.press("-", "-")
    assert box.evaluate("e => e.scrollHeight <= e.clientHeight + 1")


# The first screen.


def test_the_first_screen_is_a_tour_that_is_shown_once(context: Any, address: str) -> None:
    window = context.browser.new_context(reduced_motion="reduce")
    opened = Opened(window, address)
    opened.open("", ".tour")
    assert opened.text("h1") == "Attention"
    assert shown_translation(opened) == "There are three books on the table."
    titles: list[str] = []
    for _ in range(5):
        titles.append(opened.text(".tour h2"))
        assert opened.page.locator(".tour .tour-sentence").is_visible() == (titles == ["Queries"])
        assert opened.page.locator(".tour-marked").count() > 0
        if AXE:
            assert opened.accessibility_problems() == []
        opened.page.locator(".tour .main").click()
    assert opened.page.locator("#attention-source").input_value() == SENTENCE
    assert titles == ["Queries", "Keys", "Values", "The beam", "Your turn"]
    assert opened.page.locator(".tour").count() == 0
    assert "Step 10 of 10: end" in opened.text(".step-where")
    assert "</s>" not in opened.text("main")
    opened.page.get_by_role("link", name="Translate").click()
    opened.page.wait_for_selector("#source")
    again = Opened(window, address).open("", ".attention-heads button")
    wait_for_frames(again)
    assert again.page.locator(".tour").count() == 0
    again.close()
    opened.close()
    window.close()


def test_the_tour_plays_by_itself_and_can_be_skipped(context: Any, address: str) -> None:
    window = context.browser.new_context()
    opened = Opened(window, address)
    opened.page.clock.install()
    opened.open("", ".tour")
    assert "Step 1 of 10" in opened.text(".step-where")
    opened.page.clock.run_for(6_500)
    assert opened.text(".tour h2") == "Keys"
    assert "Step 3 of 10" in opened.text(".step-where")
    opened.press("Escape")
    assert opened.page.locator(".tour").count() == 0
    opened.close()
    window.close()


def test_the_tour_by_keyboard(context: Any, address: str) -> None:
    window = context.browser.new_context(reduced_motion="reduce")
    opened = Opened(window, address).open("", ".tour")
    opened.page.locator(".skip").focus()
    opened.press("Enter", "Tab")
    assert opened.focused() == "Skip tour"
    opened.press("Tab", "Tab")
    assert opened.focused() == "Next"
    titles = []
    for _ in range(5):
        titles.append(opened.text(".tour h2"))
        opened.press("Enter")
    assert titles == ["Queries", "Keys", "Values", "The beam", "Your turn"]
    assert opened.page.locator(".tour").count() == 0
    assert opened.page.evaluate("document.activeElement.id") == "main"
    opened.close()
    window.close()


@pytest.mark.parametrize("action", ["type", "scroll"])
def test_the_tour_waits_for_a_visitor_who_does_something_else(context: Any, address: str, action: str) -> None:
    window = context.browser.new_context()
    opened = Opened(window, address)
    opened.page.clock.install()
    opened.open("", ".tour")
    if action == "type":
        opened.page.locator("#attention-source").press("End")
    else:
        opened.page.mouse.move(300, 300)
        opened.page.mouse.wheel(0, 40)
    opened.until(lambda: opened.page.get_by_role("button", name="Play", exact=True).count() >= 1)
    opened.page.clock.run_for(20_000)
    assert opened.text(".tour h2") == "Queries"
    opened.page.locator(".tour .main").click()
    assert opened.text(".tour h2") == "Keys"
    assert opened.page.locator(".site-header").bounding_box()["y"] == 0  # the other views stay in sight
    sticky = "all => all.filter(e => getComputedStyle(e).position === 'sticky').map(e => e.className)"
    assert opened.page.locator(".steps *").evaluate_all(sticky) == []  # nothing else does
    opened.close()
    window.close()


# Compare.


def test_two_heads_and_two_sentences_side_by_side(opened: Opened) -> None:
    opened.look(f"{OPEN}&row=4&column=6")
    click(opened, "Compare with another head, sentence or model")
    titles = opened.page.locator(".compare-panel h3")
    opened.until(lambda: titles.count() == 2 and "layer 1, head 3" in str(titles.nth(1).text_content()))
    opened.until(lambda: opened.text(".compare-readout").count(" attends to ") == 2)
    left, right = re.findall(r"(?:First|Second): (.*?) attends to (.*?) with", opened.text(".compare-readout"))
    assert left == right
    opened.page.locator(".compare select").nth(1).select_option("0.mean")
    opened.until(lambda: state(opened).get("with_layer") == "0" and "mean" in str(titles.nth(1).text_content()))
    opened.page.locator(".compare input").fill("Il y a deux livres.")
    opened.press("Enter")
    opened.until(lambda: state(opened).get("with_source") == "Il y a deux livres.")
    canvas = opened.page.locator(".compare canvas").first
    canvas.focus()
    opened.press("ArrowUp")
    opened.until(lambda: "Second: these tokens are not there" in opened.text(".compare-readout"))
    opened.press("ArrowDown")
    opened.until(lambda: opened.text(".compare-readout").count("books attends to livres") == 2)
    address = opened.page.url
    opened.page.goto("about:blank")
    opened.said.clear()
    opened.open(address.removeprefix(opened.address), ".compare-panel h3")
    opened.until(lambda: "layer 0, mean" in str(titles.nth(1).text_content()))
    assert opened.page.locator(".compare input").input_value() == "Il y a deux livres."
    opened.page.locator(".compare").get_by_role("button", name="Close").click()
    opened.until(lambda: opened.page.locator(".compare-panel").count() == 0 and "with" not in state(opened))
    assert opened.page.evaluate("document.activeElement.textContent").startswith("Compare with")


def test_a_comparison_that_is_loading_or_failed_is_pale_and_another_choice_replaces_it(opened: Opened) -> None:
    opened.look(OPEN)
    click(opened, "Compare with another head, sentence or model")
    second = opened.page.locator(".compare-panel").nth(1)
    opened.until(lambda: "petit-fr-en, cross, layer 1, head 3" in str(second.text_content()))
    models = opened.page.locator(".compare select").first
    gates = Gates(opened)
    gates.close("/api/attend")
    models.select_option("writer")
    gates.wait("/api/attend")
    assert opened.page.locator(".compare-panel.stale").count() == 1
    models.select_option("petit-fr-en")
    assert opened.page.locator(".compare .stale").count() == 0
    gates.open("/api/attend")
    assert "petit-fr-en, cross, layer 1, head 3" in str(second.text_content())
    opened.page.route("**/api/attend", lambda route: route.abort())
    models.select_option("writer")
    opened.page.wait_for_selector(".compare .notice-error")
    assert opened.page.locator(".compare-panel.stale").count() == 1
    opened.page.unroute("**/api/attend")
    opened.page.locator(".compare").get_by_role("button", name="Try again").click()
    opened.until(lambda: "writer, decoder" in str(second.text_content()))
    assert opened.page.locator(".compare .stale").count() == 0
    opened.said = [said for said in opened.said if REFUSED not in said]


@pytest.mark.parametrize("height", [500, 900])
def test_the_steps_do_not_cover_the_logit_lens(context: Any, address: str, height: int) -> None:
    opened = Opened(context, address, 1200, height)
    opened.look(f"{OPEN}&row=3&column=4")
    opened.page.wait_for_selector(".cell-step-4")
    boxes = "['.steps', '.attention-lens'].map(e => document.querySelector(e).getBoundingClientRect())"
    total = opened.page.evaluate("document.documentElement.scrollHeight")
    for top in range(0, total, 200):
        opened.page.evaluate(f"scrollTo(0, {top})")
        steps, lens = opened.page.evaluate(boxes)
        assert steps["bottom"] <= lens["top"]
    opened.close()


def test_tints_mean_the_same_in_the_views_attention_and_write(opened: Opened) -> None:
    strengths = "all => all.map(e => [e.style.getPropertyValue('--doubt'), getComputedStyle(e).backgroundColor])"
    probability = re.compile(r"probability ([\d.e-]+)%")

    def tints(selector: str) -> list[tuple[float, float]]:
        """The probability in percent, and the strength of the tint, of each element."""
        tinted = opened.page.locator(selector)
        titles = tinted.evaluate_all("all => all.map(e => e.title)")
        pairs = list(zip(titles, tinted.evaluate_all(strengths), strict=True))
        for _, (doubt, colour) in pairs:
            assert (colour in ("rgba(0, 0, 0, 0)", "")) == (not doubt), colour
        return [(float(match[1]), float(tint[0])) for title, tint in pairs if (match := probability.search(title))]

    opened.look(f"{OPEN}&hide=4")
    output_tints = tints("[aria-label^='Output words'] button")
    assert min(output_tints)[0] < 80  # a word that is tinted visibly
    legend = opened.page.locator(".words .tint-legend span")
    samples = dict(zip(legend.all_text_contents(), legend.evaluate_all(strengths), strict=True))
    opened.open("#/write?model=writer&text=the+cat+sleeps", ".write-tokens button")
    token_tints = tints(".write-tokens button")
    for all_tints in (output_tints, token_tints):
        assert len(all_tints) > 1
        for share, strength in all_tints:
            assert strength == pytest.approx(math.sqrt(max(0, 1 - share / 90)), abs=0.01)
    legend = opened.page.locator(".write-tokens .tint-legend span")
    assert dict(zip(legend.all_text_contents(), legend.evaluate_all(strengths), strict=True)) == samples
    assert list(samples) == ["90%", "50%", "10%", "1%"]
    if AXE:
        assert opened.accessibility_problems() == []


CONTRASTS = """async () => {
  const { tint } = await import("/page/probability_tint.js");
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const pixel = (...colours) => {
    for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map(value => value / 255);
  };
  const linear = value => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const luminance = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const card = document.querySelector(".card");
  const sample = card.appendChild(document.createElement("span"));
  const ratios = Array.from({ length: 101 }, (_, i) => {
    tint(sample, i / 100);
    const { color, backgroundColor } = getComputedStyle(sample);
    const background = pixel(getComputedStyle(card).backgroundColor, backgroundColor);
    const [low, high] = [background, pixel(color)].map(luminance).sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  });
  sample.remove();
  return ratios;
}"""
"""The contrast of text on the tint of each probability from 0% to 100%, as WCAG defines it."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_legible_on_every_tint(context: Any, address: str, scheme: str) -> None:
    opened = Opened(context, address, color_scheme=scheme).look()
    ratios = opened.page.evaluate(CONTRASTS)
    assert min(ratios) >= 4.5
    assert ratios[0] == min(ratios)
    assert max(ratios) == ratios[100]
    opened.close()


# Accessibility, screens, hostile text.


def test_predicted_tokens_are_not_truncated_on_a_phone(context: Any, address: str) -> None:
    opened = Opened(context, address, 360, 740)
    truncated = "all => all.filter(e => e.scrollWidth > e.clientWidth).map(e => e.textContent)"
    outside = """all => all.filter(e => {
      const [inner, outer] = [e, e.closest(".attention-token")].map(each => each.getBoundingClientRect());
      return inner.right > outer.right + 1;
    }).map(e => e.textContent)"""
    predicted = opened.page.locator(".attention-queries .attention-token > bdi")
    for chosen in ("", "&row=3&column=4"):  # with the weights of a column next to the tokens
        opened.look(f"{OPEN}{chosen}")
        opened.until(lambda chosen=chosen: bool(opened.text(".attention-queries .attention-share")) == bool(chosen))  # type: ignore[misc]
        assert predicted.evaluate_all(truncated) == []
        assert predicted.evaluate_all(outside) == []
    opened.close()


@pytest.mark.skipif(AXE is None, reason="not here: axe-playwright-python")
@pytest.mark.parametrize(
    ("width", "media"),
    [
        (360, {"color_scheme": "dark"}),
        pytest.param(1280, {}, marks=pytest.mark.long),
        pytest.param(1280, {"forced_colors": "active"}, marks=pytest.mark.long),
    ],
)
def test_every_panel_is_accessible_and_fits(context: Any, address: str, width: int, media: dict[str, Any]) -> None:
    opened = Opened(context, address, width, reduced_motion="reduce", **media)
    second = {"with": "petit-fr-en", "with_source": SENTENCE, "with_layer": 0, "with_head": 1}
    opened.look(f"{OPEN}&row=3&column=4&hide=4&off=cross.0.0&{urlencode(second)}")
    opened.page.wait_for_selector(".cell-step-4")
    click(opened, "Measure all heads and words")
    opened.page.wait_for_selector(".effects tbody tr")
    opened.page.locator("[aria-label^='Output words'] button").nth(1).click()
    assert opened.accessibility_problems() == []
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    opened.close()


def test_hostile_tokens_and_addresses_stay_harmless(opened: Opened) -> None:
    evil = ["<img src=x onerror=alert(1)>", "<script>parent.ran=1</script>", '"><svg onload=alert(2)>']
    weights = torch.full((1, 1, 3, 3), 1 / 3).tolist()
    one = {"queries": evil, "keys": evil, "weights": weights}
    top = [{"token": token, "p": 0.3, "id": i} for i, token in enumerate(evil)]
    answer: dict[str, Any] = {
        "model": evil[0],
        "source": evil[0],
        "target": evil[1],
        "special": evil[:1],
        "written": [0, 1, 2],
        "ends": [],
    }
    answer |= {"maps": [{"kind": "encoder", "writes": [], **one}, {"kind": "cross", "writes": evil, **one}]}
    answer |= {
        "steps": [{"token": token, "p": 0.3, "top": top} for token in evil],
        "words": {"source": [0, 1, 2], "target": [0, 1, 2]},
    }
    answer |= {"patterns": {"cross": [[{"label": evil[0], "share": 0.5}]]}, "pattern_rules": {evil[0]: evil[1]}}
    opened.stub("/api/attend", answer)
    three = [[1.0, -1.0]] * 3
    sums = {"dots": [[1.0] * 3] * 3, "weights": weights[0][0], "allowed": [[1] * 3] * 3, "scale": 0.7, "bias": None}
    opened.stub("/api/head", {"q": three, "k": three, "v": three, "output": three, **sums})
    effect = {"divergence": 1.0, "log_probability": -1.0, "step": 1, "token": evil[2], "instead_of": evil[0]}
    heads = [{"kind": "cross", "layer": 0, "head": 0, **effect}]
    opened.stub("/api/effects", {"model": "x", "heads": heads, "words": [{"positions": [0], **effect}]})
    bad = (
        "off=cross.0.0_<b>_cross.9.9.9&hide=1_-1_x&set=cross.0.0.0.0.500_evil&from=1_2_z&words=1&with=<i>&with_source=x"
    )
    opened.look(f"{LOOK}&kind=cross&layer=0&head=0&row=0&column=1&{bad}&with_source=x")
    opened.page.wait_for_selector(".cell-step-4")
    click(opened, "Measure all heads and words")
    opened.page.wait_for_selector(".effects tbody tr")
    opened.page.locator("[aria-label^='Output words'] button").first.click()
    assert opened.page.locator("main script, main svg[onload], main img[src=x]").count() == 0
    assert opened.page.evaluate("window.ran === undefined")


def test_requests_have_the_changes_of_the_address(opened: Opened) -> None:
    sent: list[Any] = []
    opened.page.on("request", lambda asked: sent.extend([json.loads(asked.post_data)] if asked.post_data else []))
    opened.look(f"{OPEN}&off=cross.1.2_encoder.0.1&hide=2_3&set=cross.1.2.3.0.900&row=3&column=4")
    opened.page.wait_for_selector(".cell-step-4")
    changes = [body["changes"] for body in sent if "changes" in body]
    assert len(changes) == 2  # for the attention, and for the cell
    assert changes[0] == changes[1]
    assert [head["kind"] for head in changes[0]["silenced"]] == ["cross", "encoder"]
    assert changes[0]["hidden"] == [2, 3]
    weight = {"kind": "cross", "layer": 1, "head": 2, "row": 3, "column": 0, "weight": 0.9}
    assert changes[0]["weights"] == [weight]
