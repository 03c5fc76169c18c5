"""The page that shows attention, in one file that fetches nothing: `look.html` with its style, script and data.

It takes what `Attention.to_json` gives and knows nothing else of ours, so that a model's answer can show itself in a
notebook. All scripts and styles here are ordinary files that a server can serve as they are: `index.html` is the page
of `regard serve`, whose Look view is the same `look.js`.
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

HERE = Path(__file__).parent
SCRIPTS = ("parts.js", "paint.js", "look.js")
"""what the Look view is made of, each after what it imports"""
START = 'look(document.getElementById("look"), JSON.parse(document.getElementById("data").textContent));'
MAX_WEIGHTS = 4_000_000
"""in one page: some 25 million bytes"""


def page(told: Mapping[str, Any]) -> str:
    """The whole page; `told["open"]` may name a "layer" and a "head" to begin with.

    Its policy lets just this style and this script run, whatever the tokens say.
    """
    count = sum(len(w) * len(w[0]) * len(w[0][0]) * len(w[0][0][0]) for w in (each["weights"] for each in told["maps"]))
    if count > MAX_WEIGHTS:
        raise RegardError(f"{count:,} weights are too many for one page ({MAX_WEIGHTS:,}): shorten the text")
    style, script = _read("look.css"), f"{_script()}\n{START}\n"
    parts = {
        "title": html.escape(f"{told['model']}: {told['source']}"[:80]),
        "policy": f"default-src 'none'; img-src data:; style-src '{_sha(style)}'; script-src '{_sha(script)}'",
        "style": style,
        "script": script,
        "data": _json_in_html(told),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _read("look.html"))


def frame(told: Mapping[str, Any]) -> str:
    """The page within a notebook: a frame that can reach nothing outside itself."""
    title = html.escape(f"Attention of {told['model']}")
    return (
        f'<iframe title="{title}" sandbox="allow-scripts" srcdoc="{html.escape(page(told))}" '
        'style="width: 100%; height: 800px; border: 0"></iframe>'
    )


def _script() -> str:
    """The modules as one, in which names need no import."""
    return re.sub(r'^import [^;]*? from "\./\w+\.js";\n', "", "\n".join(map(_read, SCRIPTS)), flags=re.MULTILINE)


def _read(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def _sha(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _json_in_html(told: Mapping[str, Any]) -> str:
    """JSON that cannot end the element it stands in: no angle bracket is left as it is."""
    text = json.dumps(told, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
