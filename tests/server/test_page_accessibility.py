"""axe-core finds no problem in any view of the page."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.support.browser import MISSING, chromium, serving
from tests.support.opened_page import AXE, LOOK, SENTENCE, Opened
from tests.support.serving import encoders, language_model

absent = [*MISSING, *([] if AXE else ["axe-playwright-python"])]
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(absent), reason=f"not here: {', '.join(absent)}")]

VIEWS = {
    f"#/translate?{urlencode({'source': SENTENCE})}": ".alternatives li",
    LOOK: ".beam",
    f"{LOOK}&kind=cross&layer=1&head=2&step=3": ".attention-later",
    "#/write?model=writer&text=the+cat": ".write-tokens button",
    "#/write?model=writer&text=the+cat&top_k=3": ".bar-cut",
    "#/read?model=tagger&text=Oui": ".tagged ruby",
    "#/labs/scaling": ".lab-try path",
}


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


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.long)])
def test_axe_finds_no_problem_in_any_view(context: Any, address: str, scheme: str) -> None:
    opened = Opened(context, address, color_scheme=scheme, reduced_motion="reduce")
    problems = {}
    for hash_, wait in VIEWS.items():
        opened.open(hash_, wait)
        problems[hash_] = opened.accessibility_problems()
    assert problems == {hash_: [] for hash_ in VIEWS}
    opened.close()
