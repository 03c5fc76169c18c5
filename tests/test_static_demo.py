"""The demo of the documentation site: the bundled model in plain JavaScript, in a real browser."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import regard
from regard.petit import pairs
from scripts.site_demo import demo_page
from tests.support.browser import MISSING_FOR_PAGES, chromium

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING_FOR_PAGES), reason=f"not here: {', '.join(MISSING_FOR_PAGES)}"),
]
MAX_BYTES = 6_000_000


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("demo") / "demo.html"
    path.write_text(demo_page(), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def tab(path: Path) -> Iterator[Any]:
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1100, "height": 1000})
        page.complaints = []
        page.on("console", lambda message: page.complaints.append(message.text))
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.on("request", lambda request: page.complaints.append(request.url) if ":" in request.url[5:] else None)
        page.goto(path.as_uri())
        yield page


def test_the_page_is_small(path: Path) -> None:
    assert path.stat().st_size < MAX_BYTES


def test_attention_equals_that_of_python(tab: Any) -> None:
    model = regard.load("petit-fr-en")
    sentences = [pair.french for pair in pairs(12, split="dev")] + ["Où est l'élève ?", "Le  chat\u00a0dort 42 fois…"]
    for sentence in sentences:
        seen = tab.evaluate("lookAt", sentence)
        translation = model.translate([sentence], beam=1)[0]
        expected = model.attend(sentence, translation)
        assert seen["target"] == translation
        for shown, (kind, map_) in zip(seen["maps"], expected.maps.items(), strict=True):
            assert (shown["kind"], shown["queries"], shown["keys"]) == (kind, list(map_.queries), list(map_.keys))
            assert np.abs(np.array(shown["weights"]) - map_.weights.numpy()).max() < 1e-4
    assert tab.complaints == []


def test_a_typed_sentence_is_translated_and_shown(tab: Any) -> None:
    tab.fill("#sentence", "Le chien mange.")
    tab.keyboard.press("Enter")
    assert tab.inner_text("#translation") == "The dog is eating."
    assert "mange" in tab.inner_text("#attention")
    tab.click("text=Les enfants jouent dans le jardin.")
    assert tab.inner_text("#translation") == "The children are playing in the garden."
    assert tab.complaints == []
