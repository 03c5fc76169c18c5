"""A real server and a real browser for tests of the page."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "chromium-browser"))), None)
"""The browser. The headless shell is the same engine without windows, and takes half of the processor time."""
MISSING = [
    name
    for name, available in (
        ("chromium", CHROMIUM),
        ("playwright", find_spec("playwright")),
        ("fastapi", find_spec("fastapi")),
        ("uvicorn", find_spec("uvicorn")),
    )
    if not available
]
MISSING_FOR_PAGES = [name for name in MISSING if name in ("chromium", "playwright")]
"""What is missing for pages that need no server."""
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]


@contextmanager
def serving(models: Sequence[str] = ()) -> Iterator[str]:
    """`regard serve` in a subprocess: its URL."""
    command = [sys.executable, "-m", "regard", "serve", *models, "--port", "0"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200", "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment) as ran:
        assert ran.stdout
        lines = []
        for line in ran.stdout:
            lines.append(line)
            if url := re.search(r"is serving at (http://\S+)", line):
                break
        else:
            raise AssertionError(f"the server did not start: {''.join(lines)}")
        try:
            yield url[1]
        finally:
            ran.send_signal(signal.SIGTERM)
            ran.stdout.read()


@contextmanager
def chromium() -> Iterator[Any]:
    """Debian's Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = launch(playwright.chromium)
        yield started
        started.close()


def launch(browser_type: Any, *arguments: str) -> Any:
    """A browser of this type, with these arguments in addition to the usual ones."""
    return browser_type.launch(executable_path=CHROMIUM, headless=True, args=[*ARGUMENTS, *arguments])


def open_tab(context: Any, width: int, height: int, **media: str) -> Any:
    """A new tab of this size and with these media features. A new context takes twice as long as loading a page."""
    page = context.new_page()
    page.set_viewport_size({"width": width, "height": height})
    if media:
        page.emulate_media(**media)
    return page
