"""The attention page: one self-contained HTML file that loads nothing, built from `attention.html`.

It takes the data of `Attention.to_json`, so an attention object can display itself in a notebook. The scripts and
styles are ordinary files that a server can serve as they are: `index.html` is the page of `regard serve`, whose
Attention view uses the same `attention_map.js`.
"""

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.errors import RegardError

PAGE_FOLDER = Path(__file__).parent
SCRIPTS = ("dom.js", "heat_map.js", "logit_lens.js", "token_names.js", "matrix.js", "attention_map.js")
"""The scripts of the attention map, each after those that it imports."""
START_SCRIPT = (
    'const data = JSON.parse(document.getElementById("data").textContent);\n'
    'createAttentionMap(document.getElementById("attention"), data);'
)
MAX_PAGE_WEIGHTS = 4_000_000
"""Maximum number of attention weights in a page. They take about 25 million bytes."""


def attention_page(data: Mapping[str, Any]) -> str:
    """The page as HTML. `data["open"]` may contain the "layer" and "head" to show first.

    Its content security policy allows only its own style and script, whatever the tokens contain.
    """
    count = sum(len(w) * len(w[0]) * len(w[0][0]) * len(w[0][0][0]) for w in (m["weights"] for m in data["maps"]))
    if count > MAX_PAGE_WEIGHTS:
        raise RegardError(
            f"the attention has {count:,} weights; the maximum for a page is {MAX_PAGE_WEIGHTS:,}: shorten the text"
        )
    style, script = _read("attention.css"), f"{_bundle_scripts()}\n{START_SCRIPT}\n"
    values = {
        "title": html.escape(f"{data['model']}: {data['source']}"[:80]),
        "policy": f"default-src 'none'; img-src data:; style-src '{_sha256(style)}'; script-src '{_sha256(script)}'",
        "style": style,
        "script": script,
        "data": _json_in_html(data),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], _read("attention.html"))


def attention_frame(data: Mapping[str, Any]) -> str:
    """The page as a sandboxed frame for a notebook."""
    title = html.escape(f"Attention of {data['model']}")
    return (
        f'<iframe title="{title}" sandbox="allow-scripts" srcdoc="{html.escape(attention_page(data))}" '
        'style="width: 100%; height: 800px; border: 0"></iframe>'
    )


def _bundle_scripts() -> str:
    """The modules as one script, without their imports."""
    return re.sub(r'^import [^;]*? from "\./\w+\.js";\n', "", "\n".join(map(_read, SCRIPTS)), flags=re.MULTILINE)


def _read(name: str) -> str:
    return (PAGE_FOLDER / name).read_text(encoding="utf-8")


def _sha256(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _json_in_html(data: Mapping[str, Any]) -> str:
    """JSON without angle brackets, so that it cannot close the element that contains it."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
