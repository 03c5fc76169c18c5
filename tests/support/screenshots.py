"""Takes the screenshots of the page in docs/: `python -m tests.support.screenshots [TAGGER [RUN]]`.

TAGGER is NAME=FOLDER of a French tagger, RUN the folder of a run with snapshots. Without them, there are no screenshots
of the Read and Runs views.
"""

import sys
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from PIL import Image

from regard.models import BUNDLED_MODELS
from tests.support.browser import chromium, serving

DOCS = Path(__file__).parents[2] / "docs"
SENTENCE = "Il y a trois livres sur la table."
PARTS = {"page-cell": ".cell-card", "page-change": ".words"}
"""Screenshots of one part of the page: its selector."""


def list_shots(tagger: str | None, run: str | None) -> list[tuple[str, dict[str, Any], str, str]]:
    """The name, window, URL and selector to wait for of each screenshot."""
    desk: dict[str, Any] = {"viewport": {"width": 1280, "height": 1280}, "color_scheme": "light"}
    attention = {"model": "petit-fr-en", "source": "Elle va au marché.", "kind": "cross", "layer": 1, "head": 2}
    fr_en = attention | {"model": "fr-en", "source": SENTENCE, "head": 3}
    night = {"viewport": {"width": 1920, "height": 1080}, "color_scheme": "dark"}
    phone = {"viewport": {"width": 360, "height": 740}, "color_scheme": "light", "device_scale_factor": 2}
    shots: list[tuple[str, dict[str, Any], str, str]] = [
        ("page-attention", desk, f"#/look?{urlencode(attention | {'step': 5})}", ".beam"),
        ("page-attention-dark", night, f"#/look?{urlencode(fr_en)}", ".beam"),
        ("page-cell", desk, f"#/look?{urlencode(fr_en | {'row': 3, 'column': 4})}", ".cell-step-4"),
        ("page-change", desk, f"#/look?{urlencode(fr_en | {'hide': 4})}", ".word-usual"),
        ("page-phone", phone, f"#/translate?{urlencode({'source': SENTENCE})}", ".alternatives li"),
    ]
    layers = {"model": "petit-fr-en", "source": SENTENCE, "stack": "decoder", "token": 4}
    shots.append(("page-layers", desk, f"#/layers?{urlencode(layers)}", ".layers-box circle"))
    if run:
        tall = desk | {"viewport": {"width": 1280, "height": 2160}}
        shots.append(
            ("page-runs", tall, f"#/runs?{urlencode({'run': run})}", ".film .chart-series circle:nth-of-type(9)")
        )
    options = {"model": "writer", "text": "Once upon a time, there was a little", "temperature": 1.2, "top_k": 12}
    shots.append(("page-write", desk, f"#/write?{urlencode(options)}", ".bars button"))
    if tagger:
        options = {"model": tagger, "text": "Le petit chat noir de Marie ne dort jamais sur la grande table."}
        wide = desk | {"viewport": {"width": 1280, "height": 520}}
        shots.append(("page-read", wide, f"#/read?{urlencode(options)}", ".tagged"))
    return shots


def quantize(png: bytes) -> bytes:
    """The same image with 256 colours."""
    buffer = BytesIO()
    Image.open(BytesIO(png)).convert("RGB").quantize(256, kmeans=1, dither=Image.Dither.NONE).save(
        buffer, "png", optimize=True
    )
    return buffer.getvalue()


def main(models: list[str]) -> None:
    """Start a server and take all screenshots."""
    tagger = models[0].partition("=")[0] if models else None
    run = Path(models[1]).name if len(models) > 1 else None
    with serving([*BUNDLED_MODELS, *models]) as address, chromium() as browser:
        for name, window, hash_, wait in list_shots(tagger, run):
            page = browser.new_page(**window)
            page.goto(address + hash_)
            page.wait_for_selector(wait)
            page.wait_for_load_state("networkidle")
            page.wait_for_timeout(500)  # until all transitions have ended
            path = DOCS / f"{name}.png"
            shown = page.locator(PARTS[name]) if name in PARTS else page
            path.write_bytes(quantize(shown.screenshot()))
            print(f"{path}  {path.stat().st_size:,} bytes")
            page.close()


if __name__ == "__main__":
    main(sys.argv[1:])
