"""axe-core finds no problem in any view of the page, and text may be twice as large."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.support.browser import MISSING, chromium, launch, serving
from tests.support.opened_page import AXE, LOOK, SENTENCE, Opened
from tests.support.serving import encoders, language_model

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(MISSING), reason=f"not here: {', '.join(MISSING)}")]

VIEWS = {
    f"#/translate?{urlencode({'source': SENTENCE})}": ".alternatives li",
    LOOK: ".beam",
    f"{LOOK}&kind=cross&layer=1&head=2&step=3": ".attention-later",
    "#/write?model=writer&text=the+cat": ".write-tokens button",
    "#/write?model=writer&text=the+cat&top_k=3": ".bar-cut",
    "#/read?model=tagger&text=Oui": ".tagged ruby",
    "#/labs/scaling": ".lab-try path",
}


OPEN_CELL = f"{LOOK}&kind=cross&layer=1&head=2&row=3&column=4&hide=4"
LARGE_TEXT = "--blink-settings=defaultFontSize=32"
"""An argument of Chromium: text of twice the usual size, as users set it in the browser's options."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("models")
    language_model().save(folder / "writer")
    encoders()["tagger"].save(folder / "tagger")
    with serving(["petit-fr-en", str(folder / "writer"), str(folder / "tagger")]) as started:
        yield started


@pytest.fixture(scope="module")
def context() -> Iterator[Any]:
    with chromium() as browser:
        yield browser.new_context()


@pytest.mark.skipif(AXE is None, reason="not here: axe-playwright-python")
@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.long)])
def test_axe_finds_no_problem_in_any_view(context: Any, address: str, scheme: str) -> None:
    opened = Opened(context, address, color_scheme=scheme, reduced_motion="reduce")
    problems = {}
    for hash_, wait in VIEWS.items():
        opened.open(hash_, wait)
        problems[hash_] = opened.accessibility_problems()
    assert problems == {hash_: [] for hash_ in VIEWS}
    opened.close()


@pytest.mark.parametrize("width", [360, 1280])
def test_every_view_fits_with_text_of_twice_the_size(context: Any, address: str, width: int) -> None:
    views = VIEWS | {OPEN_CELL: ".cell-step-4", f"#/layers?{urlencode({'source': SENTENCE})}": ".layers-box circle"}
    browser = launch(context.browser.browser_type, LARGE_TEXT)
    opened = Opened(browser.new_context(), address, width)
    for hash_, wait in views.items():
        opened.open(hash_, wait)
        assert opened.page.evaluate("parseFloat(getComputedStyle(document.documentElement).fontSize)") >= 30
        opened.page.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done, 100)))")
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= width, hash_
    opened.close()
    browser.close()
