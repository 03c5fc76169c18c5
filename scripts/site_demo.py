"""The demo of the documentation site: one HTML file with the bundled model petit-fr-en, which runs in the browser.

python -m scripts.site_demo demo.html
"""

import base64
import json
import sys
from pathlib import Path
from typing import Any

import regard
from regard.decoding import head_patterns
from regard.models import bundled_folder
from regard.page import PAGE_FOLDER, bundle_scripts, json_in_html, modules_in_order, self_contained_page
from regard.server.model_registry import build_registry
from regard.server.page_api import describe_model

DEMO_FOLDER = Path(__file__).parent.parent / "docs/demo"
MODEL = "petit-fr-en"
MAX_CHARACTERS = 120
"""Maximum number of characters of a sentence."""
STYLES = ("attention.css", "app.css", "inspect.css")
"""Those of the page that its Attention view needs."""
JSON_FILES = {"config": "config.json", "generation": "generation_config.json", "tokenizer": "tokenizer.json"}
"""Files of the model that the page contains, by the ids of its elements."""


def demo_page() -> str:
    """The page as HTML."""
    model = bundled_folder(MODEL)
    style = "\n".join(path.read_text() for path in (*(PAGE_FOLDER / name for name in STYLES), DEMO_FOLDER / "demo.css"))
    values = {name: json_in_html(json.loads((model / file).read_text())) for name, file in JSON_FILES.items()}
    values["weights"] = base64.b64encode((model / "model.safetensors").read_bytes()).decode()
    values["description"] = json_in_html(model_description())
    values["patterns"] = json_in_html(pattern_rules())
    script = bundle_scripts(modules_in_order(DEMO_FOLDER / "demo.js", PAGE_FOLDER))
    return self_contained_page(DEMO_FOLDER / "demo.html", style, script, values)


def model_description() -> dict[str, Any]:
    """The model as /api/models describes it."""
    served = build_registry({MODEL: regard.load(MODEL)}).by_name[MODEL]
    return describe_model(served).model_dump() | {"look_at_most": MAX_CHARACTERS}


def pattern_rules() -> dict[str, Any]:
    """The rules for the patterns of heads, and their numbers."""
    thresholds = {
        "most": head_patterns.MOST,
        "alignedRows": head_patterns.ALIGNED_ROWS,
        "broadEntropy": head_patterns.BROAD_ENTROPY,
    }
    return {"rules": head_patterns.PATTERN_RULES, "thresholds": thresholds}


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(demo_page(), encoding="utf-8")
