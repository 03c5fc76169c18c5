"""Measures the page: `python -m tests.support.page_latency [MODEL]`.

Prints how long it takes from the click that silences a head, or a layer, until the new translation is drawn, and from
the last keystroke in the Translate view until the translation is drawn.
"""

import os
import sys
from statistics import median
from urllib.parse import urlencode

from tests.support.browser import chromium, serving

SENTENCE = "Il y a trois livres sur la table."
ROUNDS = 12
CLICK = """name => new Promise(done => {
  const button = [...document.querySelectorAll("button")].find(e => e.textContent === name && !e.hidden);
  const [words, started] = [document.querySelector(".words"), performance.now()];
  const check = () => document.querySelector(".words") === words
    ? setTimeout(check, 1) : requestAnimationFrame(() => done(performance.now() - started));
  button.click();
  check();
})"""
TYPE = """text => new Promise(done => {
  const [field, result] = [document.querySelector("#source"), document.querySelector(".result")];
  field.value = text;
  const [before, started] = [result.textContent, performance.now()];
  const check = () => result.textContent === before || result.classList.contains("stale")
    ? setTimeout(check, 1) : requestAnimationFrame(() => done(performance.now() - started));
  field.dispatchEvent(new Event("input"));
  check();
})"""


def main(model: str = "fr-en") -> None:
    """Start a server and a browser, and measure."""

    def report(part: str, times: list[float]) -> None:
        print(f"{part}: median {median(times):.0f} ms, from {min(times):.0f} to {max(times):.0f} ms")

    address_state = {"model": model, "source": SENTENCE, "kind": "cross", "layer": 1, "head": 3}
    with serving([model]) as address, chromium() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(f"{address}#/look?{urlencode(address_state)}")
        page.wait_for_selector(".attention-heads button")
        for part in ("head", "layer"):
            times = []
            for _ in range(ROUNDS):
                for action in ("Silence", "Restore"):
                    page.wait_for_timeout(200)
                    times.append(page.evaluate(CLICK, f"{action} this {part}"))
            report(part, times)
        page.goto(f"{address}#/translate?{urlencode({'model': model})}")
        page.wait_for_selector("#source")
        texts = (
            f"Il y a {number} livres sur la table." for number in ("deux", "trois", "quatre", "cinq") * (ROUNDS // 2)
        )
        report("typing", [page.evaluate(TYPE, text) for text in texts])
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main(*sys.argv[1:])
