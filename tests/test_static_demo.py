"""The demo of the documentation site: the Attention view with the bundled model in JavaScript, in a real browser."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.decoding import attention_maps, head_vectors
from regard.errors import RegardError
from regard.petit import pairs
from regard.server.attention_data import attention_data
from regard.server.inspect_api import HeadRequest, WrittenRequest, effects_data, head_data
from regard.server.model_registry import ServedModel, build_registry
from regard.server.page_api import AttendRequest
from scripts.site_demo import demo_page
from tests.support.browser import MISSING_FOR_PAGES, chromium
from tests.support.opened_page import AXE, SENTENCE, Opened

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING_FOR_PAGES), reason=f"not here: {', '.join(MISSING_FOR_PAGES)}"),
]
MAX_BYTES = 6_000_000
TOLERANCE = 1e-4
HEAD = {"kind": "cross", "layer": 1, "head": 2}
CHANGES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "heads": {
        "silenced": [HEAD, {"kind": "encoder", "layer": 0, "head": 1}, {"kind": "decoder", "layer": 1, "head": 0}]
    },
    "word": {"hidden": [4]},
    "weights": {
        "weights": [
            HEAD | {"row": 1, "column": 3, "weight": 0.9},
            {"kind": "encoder", "layer": 1, "head": 0, "row": 2, "column": 0, "weight": 0.0},
            {"kind": "decoder", "layer": 0, "head": 3, "row": 2, "column": 1, "weight": 0.7},
        ]
    },
    "all": {"silenced": [HEAD], "hidden": [0, 1], "weights": [HEAD | {"row": 0, "column": 5, "weight": 0.6}]},
}
NO_CHANGES: dict[str, Any] = {"silenced": [], "hidden": [], "weights": []}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("demo") / "demo.html"
    path.write_text(demo_page(), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def opened(path: Path, browser: Any, request: pytest.FixtureRequest) -> Iterator[Opened]:
    """The demo after its tour was skipped."""
    options = getattr(request, "param", {"width": 1280, "height": 900})
    context = browser.new_context()
    opened = Opened(context, path.as_uri(), **options)
    opened.open("", ".tour")
    opened.page.click("text=Skip tour")
    yield opened
    opened.close()
    context.close()


@pytest.fixture(scope="module")
def served() -> ServedModel:
    return build_registry({"petit-fr-en": regard.load("petit-fr-en")}).by_name["petit-fr-en"]


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's numbers without rounding."""
    for module in (attention_maps, head_vectors):
        monkeypatch.setattr(module, "_rounded", lambda numbers: numbers.tolist())


def differences(seen: Any, expected: Any, where: str = "") -> Iterator[str]:
    """Where two JSON values differ: numbers by more than the tolerance, anything else at all."""
    if isinstance(expected, dict) and isinstance(seen, dict) and seen.keys() == expected.keys():
        for key in expected:
            yield from differences(seen[key], expected[key], f"{where}.{key}")
    elif isinstance(expected, list | tuple) and isinstance(seen, list) and len(seen) == len(expected):
        for i, pair in enumerate(zip(seen, expected, strict=True)):
            yield from differences(*pair, f"{where}[{i}]")
    elif isinstance(expected, float) and isinstance(seen, int | float):
        if not abs(seen - expected) < TOLERANCE:
            yield f"{where}: {seen} is not {expected}"
    elif seen != expected:
        yield f"{where}: {str(seen)[:200]} is not {str(expected)[:200]}"


def respond(opened: Opened, path: str, body: dict[str, Any]) -> Any:
    return opened.page.evaluate("([path, body]) => respond(path, body)", [path, body])


def expected_attention(served: ServedModel, body: dict[str, Any]) -> dict[str, Any]:
    given = AttendRequest(**body)
    data = attention_data(served, given.source, given.target, given.changes.changes(), given.beginning)
    return {key: value for key, value in data.items() if key != "gold"}  # the demo does not have Petit's alignments


def test_the_page_is_small(path: Path) -> None:
    assert path.stat().st_size < MAX_BYTES


@pytest.mark.usefixtures("exact")
def test_attention_equals_that_of_the_server(opened: Opened, served: ServedModel) -> None:
    odd = ["Où est l'élève ?", "Le  chat\u00a0dort 42 fois…", "un\ndeux \ntrois", "🙂", "Donaudampfschiff" * 4, "a b c"]
    for sentence in [pair.french for pair in pairs(8, split="dev")] + odd:
        body = {"source": sentence}
        assert list(differences(respond(opened, "/api/attend", body), expected_attention(served, body))) == []


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("name", CHANGES)
def test_changed_attention_equals_that_of_the_server(name: str, opened: Opened, served: ServedModel) -> None:
    changes = NO_CHANGES | CHANGES[name]
    attended = {"source": SENTENCE, "changes": changes}
    seen = respond(opened, "/api/attend", attended)
    assert list(differences(seen, expected_attention(served, attended))) == []
    body = attended | {"written": seen["written"]}
    for kind in ("encoder", "decoder", "cross"):
        head = {"kind": kind, "layer": 1, "head": 2}
        expected = head_data(served, HeadRequest(**body, head=head))  # type: ignore[arg-type]
        assert list(differences(respond(opened, "/api/head", body | {"head": head}), expected)) == []
    effects = effects_data(served, WrittenRequest(**body)).model_dump()
    measured = respond(opened, "/api/effects", body)
    for each in (effects, measured):  # heads whose effects are equal may be in any order
        each["heads"].sort(key=lambda head: (head["kind"], head["layer"], head["head"]))
    assert list(differences(measured, effects)) == []


@pytest.mark.usefixtures("exact")
def test_given_words_equal_those_of_the_server(opened: Opened, served: ServedModel) -> None:
    beginning = respond(opened, "/api/attend", {"source": "Le chat noir ne dort pas."})["written"][:2]
    for body in (
        {"source": SENTENCE, "target": "There were four books."},
        {"source": "Elle va au marché.", "beginning": beginning, "changes": NO_CHANGES},
    ):
        assert list(differences(respond(opened, "/api/attend", body), expected_attention(served, body))) == []


OWN = {"kind": "decoder", "layer": 0, "head": 0}
REFUSED: dict[str, dict[str, Any]] = {
    "layer": {"silenced": [HEAD | {"layer": 2}]},
    "head": {"silenced": [HEAD | {"head": 4}]},
    "head of a weight": {"weights": [HEAD | {"head": 9, "row": 0, "column": 0, "weight": 0.5}]},
    "hidden token": {"hidden": [1, 50]},
    "column": {"weights": [HEAD | {"row": 1, "column": 50, "weight": 0.5}]},
    "column of the encoder": {"weights": [HEAD | {"kind": "encoder", "row": 1, "column": 12, "weight": 0.5}]},
    "later column": {"weights": [OWN | {"row": 1, "column": 3, "weight": 0.5}]},
}


@pytest.mark.parametrize("name", REFUSED)
def test_changes_that_the_server_refuses_are_refused_with_its_message(
    name: str, opened: Opened, served: ServedModel
) -> None:
    body = {"source": SENTENCE, "changes": NO_CHANGES | REFUSED[name]}
    with pytest.raises(RegardError) as error:
        expected_attention(served, body)
    script = "([path, body]) => { try { respond(path, body); } catch (error) { return error.message; } }"
    assert opened.page.evaluate(script, ["/api/attend", body]) == str(error.value)
    script = "body => respond('/api/effects', body).catch(error => error.message)"
    assert opened.page.evaluate(script, body) == str(error.value)


def test_a_head_that_the_model_does_not_have_is_refused(opened: Opened, served: ServedModel) -> None:
    body = {"source": SENTENCE, "head": HEAD | {"layer": 7}}
    with pytest.raises(RegardError) as error:
        head_data(served, HeadRequest(**body))  # type: ignore[arg-type]
    script = "body => { try { respond('/api/head', body); } catch (error) { return error.message; } }"
    assert opened.page.evaluate(script, body) == str(error.value)


def test_the_page_can_be_used_while_effects_are_measured(opened: Opened) -> None:
    script = """async source => {
      let [turns, isMeasuring] = [0, true];
      const count = () => { turns += 1; if (isMeasuring) setTimeout(count); };
      setTimeout(count);
      const { heads } = await respond("/api/effects", { source });
      isMeasuring = false;
      return [turns, heads.length];
    }"""
    turns, heads = opened.page.evaluate(script, SENTENCE)
    assert turns >= heads == 24
    script = """async source => {
      const controller = new AbortController();
      const measured = respond("/api/effects", { source }, controller.signal).catch(error => error.name);
      controller.abort();
      return measured;
    }"""
    assert opened.page.evaluate(script, SENTENCE) == "AbortError"


def words(opened: Opened, line: str) -> str:
    return " ".join(opened.page.locator(f'.word-line[aria-label^="{line}"] .word').all_inner_texts())


def test_the_view_works_without_a_server(opened: Opened) -> None:
    page = opened.page
    page.fill("#attention-source", "Le chien mange.")
    page.keyboard.press("Enter")
    opened.until(lambda: words(opened, "Output") == "The dog is eat ing . end")
    assert (
        page.locator(".steps").count() == page.locator(".beam").count() == page.locator(".attention-lens").count() == 1
    )
    page.click("text=Il y a trois livres sur la table.")
    opened.until(lambda: "books" in words(opened, "Output"))
    page.click('.word-line[aria-label^="Source"] .word:has-text("livres")')
    page.wait_for_selector(".word-usual")
    assert "books" in opened.text(".word-usual del")
    page.go_back()
    opened.until(lambda: "books" in words(opened, "Output"))
    page.click('.word-line[aria-label^="Output"] .word:has-text("books")')
    page.locator(".word-alternatives button").nth(1).click()
    page.wait_for_selector(".change-chip")
    assert "chosen" in opened.text(".changes")
    page.click("text=Reset")
    page.click("text=Silence this layer")
    page.wait_for_selector(".attention-silenced")
    page.click("text=Measure all heads and words")
    page.wait_for_selector(".effects table")
    page.click("text=Compare with another head, sentence or model")
    page.wait_for_selector(".compare-panels canvas")


def test_a_cell_is_explained_and_its_weight_can_be_set(opened: Opened) -> None:
    page = opened.page
    page.locator(".attention-matrix canvas").first.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_selector(".cell-step-4")
    page.locator(".weight-slider:enabled").first.fill("90")
    page.wait_for_selector('.change-chip:has-text("a weight set to 90%")')


def test_texts_that_are_too_long_are_refused(opened: Opened) -> None:
    opened.page.fill("#attention-source", "🙂" * 60)
    opened.page.keyboard.press("Enter")
    opened.page.wait_for_selector(".notice-error")
    assert "the maximum in this demo is 64" in opened.text(".notice-error")


@pytest.mark.skipif(not AXE, reason="axe-core is not installed")
@pytest.mark.parametrize(
    "opened",
    [
        {"width": 1280, "height": 900},
        {"width": 360, "height": 740},
        {"width": 1280, "height": 900, "color_scheme": "dark"},
    ],
    indirect=True,
)
def test_the_demo_is_accessible_and_fits(opened: Opened) -> None:
    opened.page.locator(".attention-matrix canvas").first.focus()
    opened.page.keyboard.press("ArrowRight")
    opened.page.wait_for_selector(".cell-step-4")
    assert opened.accessibility_problems() == []
    assert opened.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
