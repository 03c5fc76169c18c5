"""A tab with the page of `regard serve`, as tests of several views use it."""

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import urlencode

from tests.support.browser import open_tab

SENTENCE = "Il y a trois livres sur la table."
LOOK = f"#/look?{urlencode({'model': 'petit-fr-en', 'source': SENTENCE})}"
REFUSED = "Failed to load resource"
"""Chromium's console message for every error response."""
TIMEOUT_S = 60
"""Seconds until a test of the page gives up waiting."""
IS_CHANGING = """Boolean(document.querySelector(".stale")
  || document.getAnimations().some(e => e instanceof CSSTransition && e.playState === "running"))"""
"""Whether something displayed is about to be replaced, which is paler, or its colours are changing."""
AXE = find_spec("axe_playwright_python")
"""The package that contains axe-core, which finds accessibility problems; None if it is not installed."""


@cache
def axe_script() -> str:
    """The source of axe-core."""
    assert AXE
    assert AXE.origin
    return (Path(AXE.origin).parent / "axe.min.js").read_text(encoding="utf-8")


class Opened:
    """An open page. When it is closed, the console must be empty and no other server must have been contacted."""

    def __init__(self, context: Any, address: str, width: int = 1280, height: int = 900, **media: str) -> None:
        self.address = address
        self.context = context
        self.page = open_tab(context, width, height, **media)
        self.page.set_default_timeout(1000 * TIMEOUT_S)
        self.said: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", self._answer)
        self.page.on("request", lambda asked: self._note_request(asked.url))

    def _note_request(self, url: str) -> None:
        if not url.startswith(self.address):
            self.said.append(url)

    def _answer(self, dialog: Any) -> None:
        self.said.append(dialog.message)
        dialog.dismiss()

    def open(self, hash_: str = "", wait: str = "main h1") -> "Opened":
        """Load the page at an address, and wait for a selector, which the view before it must not match."""
        self.page.goto("about:blank")
        self.page.goto(self.address + hash_)
        self.page.wait_for_selector(wait)
        return self

    def look(self, hash_: str = LOOK) -> "Opened":
        return self.open(hash_, ".attention-heads button")

    def stub(self, path: str, answer: Any) -> None:
        """Replace the server's response to this path."""
        self.page.route(f"**{path}", lambda route: route.fulfill(json=answer))

    def until(self, what: Callable[[], bool]) -> None:
        """Wait until the page meets a condition: as long as it takes, because other tests may occupy all cores."""
        deadline = monotonic() + TIMEOUT_S
        while not what():
            assert monotonic() < deadline, "the condition was not met in time"
            self.page.wait_for_timeout(50)

    def text(self, selector: str) -> str:
        return str(self.page.locator(selector).first.text_content())

    def focused(self) -> str:
        script = (
            "(e => e.getAttribute('aria-label') ?? e.labels?.[0]?.textContent ?? e.textContent)(document.activeElement)"
        )
        return str(self.page.evaluate(script)).strip()

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def accessibility_problems(self) -> list[str]:
        """What axe-core finds wrong with the page once it has loaded: the rule, and the elements that violate it."""
        self.until(lambda: not self.page.evaluate(IS_CHANGING))
        self.page.evaluate(axe_script())
        result = self.page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
        return [
            f"{violation['id']} ({violation['help']}): {[node['html'][:160] for node in violation['nodes'][:3]]}"
            for violation in result["violations"]
        ]

    def close(self) -> None:
        self.page.close()
        assert self.said == []
