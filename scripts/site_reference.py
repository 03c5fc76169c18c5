"""Reference pages of the documentation site, written from the code when the site is built.

MkDocs runs this file through the plugin mkdocs-gen-files (see mkdocs.yml). It writes a page for the Python API, the
commands, the recipe keys and the HTTP API, and copies the results of the labs and the cards of the bundled models.
"""

import importlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

import griffe
import mkdocs_gen_files
import typer

import regard
from regard.cli import app
from regard.training.recipe import DERIVED_MODEL_KEYS
from scripts.site_demo import demo_page
from scripts.site_http import http_page
from scripts.site_markdown import as_code, as_line, in_cell
from scripts.site_types import in_toml, recipe_type

ROOT = Path(__file__).parent.parent
API_GROUPS = {
    "Models with their tokenizers": ["load", "Model", "Decoding", "export", "evaluate"],
    "Training": ["train", "Recipe", "train_tokenizer", "Tokenizer", "SpecialIds"],
    "Networks": ["build", "ModelConfig", "preset", "Encoder", "Decoder", "EncoderDecoder", "watch"],
    "Attention and masks": [
        "attention",
        "MultiHeadAttention",
        "split_heads",
        "combine_heads",
        "causal_mask",
        "padding_mask",
        "prefix_mask",
        "packed_mask",
    ],
    "Errors": ["RegardError"],
}
"""The public names, by what they are for."""
SECTIONS = {
    "data": "regard.training.recipe.DataSection",
    "tokenizer": "regard.training.recipe.TokenizerSection",
    "model": "regard.config.ModelConfig",
    "train": "regard.training.recipe.TrainSection",
    "decode": "regard.decoding.options.Decoding",
}
"""The sections of a recipe, and the classes that define their keys."""
DERIVED = {("model", key) for key in DERIVED_MODEL_KEYS}
"""Fields of the classes that a recipe cannot set, because they follow from the text and the task."""
MODEL_KEYS = [
    '| `model.preset` | string | | A preset, such as "paper-base", whose settings are the defaults of the section. |',
    "| `model.start` | string | | A model to fine-tune: a bundled name, a run or a Hugging Face folder. It replaces "
    "the other settings of the section, except for the dropout rates. |",
]
"""Keys that a recipe has in addition to the fields of the class."""


@dataclass(frozen=True)
class DocumentedField:
    """A field of a dataclass, as its source declares it."""

    name: str
    default: str
    text: str


def api_page() -> str:
    """The public API: a heading for each group of names, filled in by mkdocstrings."""
    grouped = [name for names in API_GROUPS.values() for name in names]
    public = [name for name in regard.__all__ if name != "__version__"]
    if sorted(grouped) != sorted(public):
        raise ValueError(f"API_GROUPS does not have exactly the public names: {set(grouped) ^ set(public)}")
    lines = ["# Python API", "", "`import regard` gives these names. Everything else may change between versions.", ""]
    for group, names in API_GROUPS.items():
        lines += [f"## {group}", ""]
        for name in names:
            lines += [f"::: {regard._MODULE_OF[name]}.{name}", "    options:", "      heading_level: 3", ""]
    return "\n".join(lines)


def command_pages() -> Iterator[tuple[str, str]]:
    """The name and the page of each command, subcommands on the page of their group."""
    root: Any = typer.main.get_command(app)
    for name, command in root.commands.items():
        parts = [(f"regard {name}", command)]
        parts += [(f"regard {name} {sub}", part) for sub, part in getattr(command, "commands", {}).items()]
        yield name, "\n".join(line for title, part in parts for line in _command(title, part, top=part is command))


def _command(title: str, command: Any, top: bool) -> Iterator[str]:
    yield f"{'#' if top else '##'} `{title}`\n"
    for paragraph in (command.help or "").split("\n\n"):
        example = paragraph.removeprefix("Example: ")
        yield f"    {example}\n" if example != paragraph else f"{as_line(paragraph)}\n"
    options = [parameter for parameter in command.params if parameter.name != "help" and not parameter.hidden]
    if not options:
        return
    yield "| argument or option | default | |\n|---|---|---|"
    for option in options:
        names = " ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
        if option.param_type_name == "argument":
            names = f"`{(option.metavar or option.name).strip('{}').upper()}`"
        default = "" if option.default in (None, "", False) or callable(option.default) else as_code(option.default)
        yield f"| {names} | {default} | {in_cell(option.help or '')} |"
    yield ""


def recipe_page() -> str:
    """Every key of a recipe with its type, default and description."""
    lines = [
        "# Recipe keys",
        "",
        "A recipe is a TOML file with the sections below. `--set section.key=value` overrides a key, and a misspelt",
        "key is an error that suggests the right one. [Train a model](../training.md) explains recipes by examples.",
        "",
    ]
    for section, path in SECTIONS.items():
        module, _, class_name = path.rpartition(".")
        documented = griffe.load(module)[class_name]
        hints = get_type_hints(getattr(importlib.import_module(module), class_name))
        lines += [
            f"## `[{section}]`",
            "",
            as_line(_first_docstring(documented)),
            "",
            "| key | type | default | |",
            "|---|---|---|---|",
        ]
        lines += [
            f"| `{section}.{field.name}` | {recipe_type(hints[field.name])} | "
            f"{as_code(field.default) if field.default else ''} | {in_cell(field.text)} |"
            for field in documented_fields(documented)
            if (section, field.name) not in DERIVED
        ]
        lines += MODEL_KEYS if section == "model" else []
        lines.append("")
    return "\n".join(lines)


def documented_fields(class_: Any) -> Iterator[DocumentedField]:
    """The public fields of a dataclass, in their order."""
    for name, attribute in class_.attributes.items():
        if name.startswith("_") or "property" in attribute.labels or attribute.annotation is None:
            continue
        default = "required" if attribute.value is None else in_toml(str(attribute.value))
        yield DocumentedField(name, default, _first_docstring(attribute))


def _first_docstring(documented: Any) -> str:
    return " ".join(documented.docstring.value.split()) if documented.docstring else ""


def write_page(path: str, text: str) -> None:
    """Add a page to the site."""
    with mkdocs_gen_files.open(path, "w") as file:
        file.write(text + "\n")


def copy_folder(source: Path, target: str) -> None:
    """Add the Markdown pages and pictures of a folder to the site."""
    for path in sorted(source.iterdir()):
        if path.suffix in (".md", ".png", ".svg"):
            with path.open("rb") as content, mkdocs_gen_files.open(f"{target}/{path.name}", "wb") as file:
                shutil.copyfileobj(content, file)


def write_site() -> None:
    """Write every generated page."""
    write_page("reference/api.md", api_page())
    write_page("reference/recipes.md", recipe_page())
    write_page("reference/http.md", http_page())
    commands = list(command_pages())
    for name, text in commands:
        write_page(f"reference/commands/{name}.md", text)
    links = "\n".join(f"- [`regard {name}`]({name}.md)" for name, _ in commands)
    write_page(
        "reference/commands/index.md", f"# Commands\n\n`regard COMMAND --help` prints the same texts.\n\n{links}"
    )
    write_page("demo.html", demo_page())
    copy_folder(ROOT / "regard/labs/gallery", "labs")
    for card in sorted((ROOT / "regard/models").glob("*/README.md")):
        text = card.read_text(encoding="utf-8")
        write_page(f"models/{card.parent.name}.md", text.partition("\n---\n")[2])


if __name__ in ("__main__", "<run_path>"):
    write_site()
