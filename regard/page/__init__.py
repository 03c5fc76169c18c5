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
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from regard.errors import RegardError

PAGE_FOLDER = Path(__file__).parent
MAIN_SCRIPT = "attention_file.js"
"""The script of the attention page, which imports the others."""
STYLES = ("attention.css", "inspect.css", "attention_file.css")
START_SCRIPT = (
    'const data = JSON.parse(document.getElementById("data").textContent);\n'
    f'modules["{MAIN_SCRIPT}"].createAttentionFile(document.getElementById("attention"), data);'
)
MAX_PAGE_WEIGHTS = 4_000_000
"""Maximum number of attention weights in a page. They take about 25 million bytes."""
_IMPORT = r'^import \{([^}]*)\} from "\./(\w+\.js)";$'
"""An import of another module: its names and its file."""


def attention_page(data: Mapping[str, Any]) -> str:
    """The page as HTML. `data["open"]` may contain the "layer" and "head" to show first.

    With the data of `regard.decoding.attention_explanations`, it also explains how each weight is computed.

    Its content security policy allows only its own style and script, whatever the tokens contain.
    """
    count = sum(len(w) * len(w[0]) * len(w[0][0]) * len(w[0][0][0]) for w in (m["weights"] for m in data["maps"]))
    if count > MAX_PAGE_WEIGHTS:
        raise RegardError(
            f"the attention has {count:,} weights; the maximum for a page is {MAX_PAGE_WEIGHTS:,}: shorten the text"
        )
    style = "\n".join(_read(PAGE_FOLDER / name) for name in STYLES)
    script = f"{bundle_scripts(modules_in_order(PAGE_FOLDER / MAIN_SCRIPT))}\n{START_SCRIPT}\n"
    values = {"title": html.escape(f"{data['model']}: {data['source']}"[:80]), "data": json_in_html(data)}
    return self_contained_page(PAGE_FOLDER / "attention.html", style, script, values)


def self_contained_page(template: Path, style: str, script: str, values: Mapping[str, str]) -> str:
    """A template with its {{style}}, {{script}}, {{policy}} and other values. The policy allows nothing else."""
    policy = f"default-src 'none'; img-src data:; style-src '{_sha256(style)}'; script-src '{_sha256(script)}'"
    values = {"style": style, "script": script, "policy": policy, **values}
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], _read(template))


def attention_frame(data: Mapping[str, Any]) -> str:
    """The page as a sandboxed frame for a notebook."""
    title = html.escape(f"Attention of {data['model']}")
    return (
        f'<iframe title="{title}" sandbox="allow-scripts" srcdoc="{html.escape(attention_page(data))}" '
        'style="width: 100%; height: 800px; border: 0"></iframe>'
    )


def bundle_scripts(paths: Iterable[Path]) -> str:
    """Modules as one script. Each is a function of its own, so that their private names do not collide."""
    return "const modules = {};\n" + "\n".join(map(_as_function, paths))


def modules_in_order(path: Path, *folders: Path) -> list[Path]:
    """A module and all that it imports, each after those that it imports itself.

    Imports are looked up in the folder of the module, then in the other folders. Imports in a circle have no such
    order: they are a RegardError, and so is an import whose file is missing.
    """
    modules: list[Path] = []
    importing: list[Path] = []

    def add(module: Path) -> None:
        if module in modules:
            return
        if module in importing:
            circle = " -> ".join(file.name for file in (*importing[importing.index(module) :], module))
            raise RegardError(f"the modules import each other: {circle}")
        importing.append(module)
        for _names, file_name in re.findall(_IMPORT, _read(module), flags=re.MULTILINE):
            add(_find_module(file_name, module, (module.parent, path.parent, *folders)))
        modules.append(importing.pop())

    add(path)
    return modules


def _find_module(file_name: str, importer: Path, folders: Iterable[Path]) -> Path:
    """The first of these folders' files with this name. A RegardError if there is none."""
    searched = list(dict.fromkeys(folders))
    for folder in searched:
        if (file := folder / file_name).exists():
            return file
    raise RegardError(
        f"{importer} imports {file_name}, which is missing; searched in {', '.join(map(str, searched))}. "
        "If it is a file of Regard, install Regard again"
    )


def _as_function(path: Path) -> str:
    """A module as a function that returns what it exports, called at once."""
    text = _read(path)
    exported = re.findall(r"^export (?:async )?(?:function|const) (\w+)", text, flags=re.MULTILINE)
    text = re.sub(r"^export ", "", text, flags=re.MULTILINE)
    text = re.sub(
        _IMPORT,
        lambda match: f'const {{{match[1].replace(" as ", ": ")}}} = modules["{match[2]}"];',
        text,
        flags=re.MULTILINE,
    )
    return f'modules["{path.name}"] = (() => {{\n{text}\nreturn {{ {", ".join(exported)} }};\n}})();'


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _sha256(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def json_in_html(data: Mapping[str, Any]) -> str:
    """JSON without angle brackets, so that it cannot close the element that contains it."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
