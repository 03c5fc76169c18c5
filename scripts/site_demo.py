"""The demo of the documentation site: one HTML file with the bundled model petit-fr-en, which runs in the browser.

python -m scripts.site_demo demo.html
"""

import base64
import json
import sys
from pathlib import Path

from regard.models import bundled_folder
from regard.page import MAP_SCRIPTS, PAGE_FOLDER, bundle_scripts, json_in_html, self_contained_page

DEMO_FOLDER = Path(__file__).parent.parent / "docs/demo"
DEMO_SCRIPTS = [DEMO_FOLDER / name for name in ("byte_pairs.js", "transformer.js", "demo.js")]
JSON_FILES = {"config": "config.json", "generation": "generation_config.json", "tokenizer": "tokenizer.json"}
"""Files of the model that the page contains, by the ids of its elements."""


def demo_page() -> str:
    """The page as HTML."""
    model = bundled_folder("petit-fr-en")
    style = "\n".join(path.read_text() for path in (PAGE_FOLDER / "attention.css", DEMO_FOLDER / "demo.css"))
    values = {name: json_in_html(json.loads((model / file).read_text())) for name, file in JSON_FILES.items()}
    values["weights"] = base64.b64encode((model / "model.safetensors").read_bytes()).decode()
    script = bundle_scripts([*(PAGE_FOLDER / name for name in MAP_SCRIPTS), *DEMO_SCRIPTS])
    return self_contained_page(DEMO_FOLDER / "demo.html", style, script, values)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(demo_page(), encoding="utf-8")
