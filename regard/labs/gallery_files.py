"""Labs as files: one lab's table, picture and page, or a gallery of them all in Markdown.

Whatever the texts hold, nothing in them is markup, but for `code` between backticks in prose.
"""

import csv
import time
from collections.abc import Sequence
from dataclasses import fields
from io import StringIO
from pathlib import Path

from regard.atomic_files import write_file
from regard.errors import RegardError
from regard.formatting import code_cell, markdown_table, safe_whole, visible
from regard.labs.lab import Lab, Table
from regard.labs.lab_page import code_apart, page, png
from regard.labs.lab_terminal import SIGNS, Done, given, held, numbers, paragraphs, sizes_table, verdicts

THUMBNAIL = 320
"""pixels that a picture is wide in the index"""
FULL = "-full"
"""behind the name of a lab's files, where its long form was run"""


def run(lab: Lab, command: str) -> Done:
    """Run a lab. What goes wrong in sizes that were chosen is told of them: in its usual ones a lab runs."""
    begin = time.perf_counter()
    try:
        result = lab.run(lab.sizes)
    except (ValueError, RuntimeError, ArithmeticError, LookupError, MemoryError) as error:
        usual = type(lab.sizes)()
        names = [each.name for each in fields(usual) if getattr(usual, each.name) != getattr(lab.sizes, each.name)]
        if not names:
            raise
        chosen = ", ".join(f"{name}={given(getattr(lab.sizes, name))}" for name in names)
        raise RegardError(f"the lab {lab.name} cannot be run with {chosen}: {visible(str(error))}") from error
    return Done(lab, result, command, time.perf_counter() - begin)


def keep(done: Done, folder: Path) -> list[Path]:
    """Write the tables (Markdown with all else, and CSV), the picture and the page: the files that there are now.

    A long form has names of its own, so that it can lie in a gallery beside the short one.
    """
    picture, tables = png(done.result), done.result.tables
    name = done.lab.name + (FULL if getattr(done.lab.sizes, "full", False) else "")
    numbered = [""] if len(tables) == 1 else [f"-{number}" for number in range(1, len(tables) + 1)]
    files: dict[str, str | bytes] = {
        f"{name}.md": markdown(done, f"{name}.png"),
        f"{name}.png": picture,
        f"{name}.html": page(done, picture),
        **{f"{name}{number}.csv": csv_text(table) for number, table in zip(numbered, tables, strict=True)},
    }
    return _written(files, folder)


def hang(done: Done, folder: Path) -> list[Path]:
    """Write a page of the gallery."""
    name = done.lab.name
    return _written({f"{name}.md": markdown(done, f"{name}.png"), f"{name}.png": png(done.result)}, folder)


def write_index(labs: Sequence[Done], folder: Path, command: str) -> Path:
    """Write the gallery's first page; a lab whose long form lies in the folder is named with it."""
    in_full = [done.lab.name for done in labs if (folder / f"{done.lab.name}{FULL}.md").is_file()]
    (path,) = _written({"README.md": index(labs, in_full, command)}, folder)
    return path


def csv_text(table: Table) -> str:
    """A table for other programs."""
    buffer = StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([table.columns, *table.rows])
    return buffer.getvalue()


def markdown(done: Done, picture: str) -> str:
    """A lab's page; `picture` is the name of the file beside it."""
    result, texts = done.result, paragraphs(done.lab.set_up)
    sections = [f"# {safe_whole(done.lab.question)}"]
    sections += [f"- {_prose(text[2:])}" if text.startswith("- ") else _prose(text) for text in texts]
    sections += [f"![What the lab {done.lab.name} measured]({picture})", *map(_table, result.tables)]
    for heading, claims in verdicts(result.claims).items():
        sections += [f"## {heading}", "\n".join(f"- {SIGNS[heading]} {_prose(claim.says)}" for claim in claims)]
    notes = "\n".join(f"- {_prose(note)}" for note in result.notes)
    sections += ["## Notes", notes] if notes else []
    sections += ["## Sizes", _table(sizes_table(done.lab.sizes))]
    sections += [f"Made by `{visible(done.command)}`: {safe_whole(done.circumstances)}"]
    return "\n\n".join(sections) + "\n"


def index(labs: Sequence[Done], in_full: Sequence[str], command: str) -> str:
    """The gallery's first page; `in_full` are the labs whose long form is there too."""
    rows = []
    for done in labs:
        name = done.lab.name
        about = [f"**[{name}]({name}.md)**", safe_whole(done.lab.question), code_cell(done.command)]
        about += [] if done.result.holds else [f"✗ {held(done.result)} this time"]
        about += [f"[in full]({name}{FULL}.md)"] if name in in_full else []
        picture = f'[<img src="{name}.png" width="{THUMBNAIL}" alt="What the lab {name} measured">]({name}.md)'
        rows.append(f"| {picture} | {'<br>'.join(about)} |")
    head = "Questions that every course on the Transformer asks, each answered by measurement.\n" + (
        "A page has the set-up, the figures, and the conclusions that they bear out."
    )
    return "\n".join(["# Labs", "", head, "", "| | |", "|---|---|", *rows, "", f"Made by `{visible(command)}`."]) + "\n"


def _written(files: dict[str, str | bytes], folder: Path) -> list[Path]:
    for name, content in files.items():
        write_file(folder / name, content)
    return [folder / name for name in files]


def _prose(text: str) -> str:
    return code_apart(text, safe_whole, lambda piece: f"`{visible(piece)}`")


def _table(table: Table) -> str:
    title = f"**{safe_whole(table.title)}**\n\n" if table.title else ""
    heads, *rows = [[safe_whole(cell) for cell in row] for row in (table.columns, *table.rows)]
    return title + markdown_table(heads, rows, numbers(table))
