"""`regard lab`: the list, the sizes, results on the screen and in files, and what every lab must have.

What each lab finds is asserted in files of its own.
"""

import ast
import csv
import html
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from html.parser import HTMLParser
from importlib.util import find_spec
from io import BytesIO, StringIO
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from rich.console import Console
from typer.testing import CliRunner
from typer.testing import Result as Run

from regard.cli import app
from regard.labs import lab as module
from regard.labs.gallery_files import csv_text, index, markdown
from regard.labs.lab import NAMES, Claim, Lab, Result, Table, lab, questions
from regard.labs.lab_page import page, png
from regard.labs.lab_terminal import Done, numbers, show, sizes_table
from tests.support.oracles import documented_fields

pytestmark = pytest.mark.usefixtures("as_users_run_it")

HOSTILE = "<script>alert(1)</script> | `a` **b** [x](http://x) &amp; {{picture}} \x1b[2J\n\u202e"
FEW = ("scaling", "one-head", "ablation")
TRUE, FALSE = Claim("Heat rises with `steps`: 3 to 1", True), Claim("Heat falls <b>always</b>", False)


@dataclass(frozen=True)
class Sizes:
    """What is made up."""

    rows: int = 2
    """how many"""
    parts: tuple[float, ...] = (0.5, 1.0)
    """shares, <each> | in turn"""
    full: bool = False
    """all of it"""
    seed: int = 0


def draw(figure: Figure) -> None:
    figure.add_subplot().plot([0, 1], [1, 0])


def result(*claims: Claim, tables: tuple[Table, ...] | None = None) -> Result:
    made = Table(("what", "amount", "remark"), (("one", "1.5", HOSTILE), (HOSTILE, "-2%", "")), title="Made | up")
    return Result((made,) if tables is None else tables, claims or (TRUE,), draw, (3.0, 2.0), ("Of `x` & <y>",))


def made_up(*claims: Claim, tables: tuple[Table, ...] | None = None) -> Lab:
    set_up = "First,\nso.\n\n- an item\n- `code` of <another>"
    return Lab("scaling", "Is 1 < 2 & 3 | 4?", set_up, Sizes(), lambda _sizes: result(*claims, tables=tables))


def done(*claims: Claim) -> Done:
    made = made_up(*claims)
    return Done(made, made.run(made.sizes), "regard lab scaling --set 'rows=3'", 1.25)


def run(*arguments: str) -> Run:
    return CliRunner().invoke(app, ["lab", *arguments], env={"COLUMNS": "100"})


def refused(*arguments: str) -> str:
    given = run(*arguments)
    assert isinstance(given.exception, ValueError), given.output
    return str(given.exception)


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> list[Claim]:
    """Whatever lab is asked for, the made-up one runs, with the claims in this list; and there are but a few."""
    claims = [TRUE]
    monkeypatch.setattr(module, "NAMES", FEW)
    monkeypatch.setattr(module, "lab", lambda name: replace(made_up(*claims), name=name, full="full=true"))
    return claims


def test_the_list_names_every_lab_with_its_question() -> None:
    given = run()
    assert given.exit_code == 0
    shown = " ".join(given.output.split())
    for name, question in questions().items():
        assert f"{name} {question}" in shown
        assert question == lab(name).question
    assert len(questions()) == len(NAMES) == len(set(NAMES)) == 18


def test_the_list_does_not_wait_for_torch() -> None:
    program = (
        "import sys; sys.argv = ['regard', 'lab']\n"
        "from regard.cli import app\n"
        "app(standalone_mode=False)\n"
        "print('loaded:', *(n for n in ('torch', 'numpy', 'matplotlib') if n in sys.modules))"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert told.stdout.splitlines()[-1].split() == ["loaded:"]


@pytest.mark.parametrize("name", NAMES)
def test_every_lab_has_what_a_lab_needs(name: str) -> None:
    found = lab(name)
    path = Path(module.__file__).with_name(f"{name.replace('-', '_')}.py")
    source = path.read_text(encoding="utf-8")
    assert found.name == name
    assert found.question.endswith("?")
    assert len(found.set_up) > 80, "it does not say what is set up"
    assert len(source.splitlines()) < 200
    home = sys.modules[type(found.sizes).__module__]  # a lab may take over the sizes of another
    names = {each.name for each in fields(found.sizes)}
    assert documented_fields(home, "Sizes") | {"seed"} >= names
    assert type(found.sizes).__doc__
    assert type(found.sizes).__dataclass_params__.frozen
    drawn = re.search(r"rand|normal|manual_seed|Generator", source)
    assert "seed" in names or not drawn, "it draws, and has no seed to draw from"
    softmaxes = [
        node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef) and node.name == "attention"
    ]
    assert not softmaxes, "an attention of its own"


@pytest.mark.parametrize("name", NAMES)
def test_sizes_can_be_told_and_given_back(name: str) -> None:
    found = lab(name)
    told = sizes_table(found.sizes)
    again = found.sized([f"{row[0]}={row[1]}" for row in told.rows])
    assert again.sizes == found.sizes
    assert all(row[2] for row in told.rows if row[0] != "seed")


def test_sizes_are_changed_by_name() -> None:
    sizes = made_up().sized(["rows=7", "parts=0.25,2,3", "full=TRUE"]).sizes
    assert sizes == Sizes(7, (0.25, 2.0, 3.0), True)
    assert made_up().sizes == Sizes()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("row=3", "has no size 'row': did you mean 'rows'"),
        ("rows", "a size is given as rows=VALUE"),
        ("rows=many", "rows=many: it must be such as 2"),
        ("rows=2.5", "rows=2.5: it must be such as 2"),
        ("parts=1,x", "parts=1,x: it must be numbers parted by commas"),
        ("parts=", "it must be numbers parted by commas"),
        ("full=maybe", "full=maybe: it must be such as False"),
        ("rows=0", "rows=0: it must be a number from 1 on"),
        ("rows=-3", "rows=-3: it must be a number from 1 on"),
        ("seed=-1", "seed=-1: it must be a number from 0 on"),
        ("parts=0.5,-1", "parts=-1: it must be a number from 0 on"),
        ("parts=nan", "parts=nan: it must be a number from 0 on"),
        ("parts=0.5,inf", "parts=inf: it must be a number from 0 on"),
    ],
)
def test_a_wrong_size_is_named(change: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        made_up().sized([change])


def test_mistakes_in_the_command() -> None:
    assert "there is no lab 'scalling': did you mean 'scaling'?" in refused("scalling")
    assert "has no size 'widhts': did you mean 'widths'?" in refused("scaling", "--set", "widhts=8")
    assert "the lab scaling has no long form: leave out --full" in refused("scaling", "--full")
    assert "for one" in refused("all", "--set", "seed=1")


def test_sizes_that_do_not_go_together_are_named() -> None:
    assert "scaling cannot be run with heads=7: shape" in refused("scaling", "--set", "heads=7")
    assert "copy cannot be run with leads=1.0: " in refused("copy", "--set", "leads=1")
    assert "keys=1: a key can only lead among two or more" in refused("copy", "--set", "keys=1,8")


def test_a_mistake_in_a_lab_is_not_laid_on_its_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_sizes: Sizes) -> Result:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(module, "lab", lambda _name: replace(made_up(), run=broken))
    assert isinstance(run("scaling").exception, RuntimeError)
    assert "scaling cannot be run with rows=3, parts=0.5,2.0: a mistake" in refused(
        "scaling", "--set", "rows=3", "--set", "parts=0.5,2"
    )


def test_sizes_are_told_without_a_run() -> None:
    given = run("scaling", "--sizes", "--set", "length=3")
    assert given.exit_code == 0
    assert "Why are scores divided" in given.output
    assert re.search(r"length +3 +s, queries", given.output)
    assert "Conclusions" not in given.output


def test_a_lab_as_people_run_it(tmp_path: Path) -> None:
    small = ("--set", "widths=8,32,128", "--set", "length=16", "--set", "sequences=8")
    given = run("scaling", *small, "--out", str(tmp_path / "new" / "folder"))
    assert given.exit_code == 0, given.output
    assert "✓ " in given.output
    assert "✗" not in given.output
    files = sorted(path.name for path in (tmp_path / "new" / "folder").iterdir())
    assert files == ["scaling.csv", "scaling.html", "scaling.md", "scaling.png"]
    for name in files:
        assert f"{tmp_path}/new/folder/{name}" in given.output.replace("\n", "")
    command = f"regard lab scaling {' '.join(small)}"
    assert command in (tmp_path / "new" / "folder" / "scaling.md").read_text()
    assert command in (tmp_path / "new" / "folder" / "scaling.html").read_text()


def test_out_must_be_a_folder_and_is_tried_first(tmp_path: Path, pretend: list[Claim]) -> None:
    (tmp_path / "file").write_text("years of work")
    assert "is not a folder" in refused("scaling", "--out", str(tmp_path / "file"))
    assert (tmp_path / "file").read_text() == "years of work"


def test_what_is_not_borne_out_is_no_conclusion_and_exits_1(tmp_path: Path, pretend: list[Claim]) -> None:
    pretend.append(FALSE)
    given = run("scaling", "--out", str(tmp_path))
    assert given.exit_code == 1
    before, heading, after = given.output.partition("Not borne out this time")
    assert heading
    assert "✓  Heat rises" in before
    assert "Heat falls" not in before
    assert "✗  Heat falls" in after
    assert "1 of 2 conclusions borne out" in after
    for name in ("scaling.md", "scaling.html"):  # the figures are kept all the same
        text = (tmp_path / name).read_text()
        assert text.index("Heat rises") < text.index("Not borne out this time") < text.index("Heat falls")


def test_a_lab_where_nothing_holds_has_no_conclusions(pretend: list[Claim]) -> None:
    pretend[:] = [FALSE]
    given = run("scaling")
    assert given.exit_code == 1
    assert "Conclusions" not in given.output
    assert "Conclusions" not in markdown(done(FALSE), "x.png")
    assert "Conclusions" not in page(done(FALSE), b"")


def test_the_screen_is_left_alone_by_hostile_texts() -> None:
    for colours in (None, "truecolor"):
        buffer = StringIO()
        show(Console(file=buffer, width=200, color_system=colours, force_terminal=bool(colours)), done(TRUE, FALSE))
        shown = buffer.getvalue()
        assert "\x1b[2J" not in shown
        assert "\u202e" not in shown
        assert "✓" in shown
        assert "✗" in shown
        assert "<script>alert(1)</script> | `a` **b** [x](http://x) &amp; {{picture}} ␛[2J␊\\u202e" in shown


def test_figures_stand_to_the_right() -> None:
    made = Table(("a", "b", "c", "d"), (("1", "2.5", "<0.1", "–"), ("2", "−3 %", "≈ 4", "x")))
    assert numbers(made) == [False, True, True, False]
    assert numbers(Table(("a", "b"), (("1", ""), ("2", "–")))) == [False, True]


class Page(HTMLParser):
    """What a browser would make of a page: its elements, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words: list[str] = []
        self.cells: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag == "td":
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        self.words.append(data)
        if self.cells:
            self.cells[-1] += data


def test_the_page_holds_all_and_runs_nothing() -> None:
    given = done(TRUE, FALSE)
    text = page(given, png(given.result))
    seen = Page(text)
    assert "script" not in seen.tags
    assert {"b", "a", "link"} & set(seen.tags) == {"link"}  # the icon, which is empty
    fetched = [value for name, value in seen.attributes if name in ("src", "href") and value is not None]
    assert all(value.startswith("data:") for value in fetched)
    assert not [name for name, _ in seen.attributes if name.startswith("on")]
    assert "default-src 'none'" in text
    assert "width=device-width" in text
    assert "prefers-color-scheme: dark" in text
    words = "".join(seen.words)
    assert "Is 1 < 2 & 3 | 4?" in words
    assert "<script>alert(1)</script> | `a` **b** [x](http://x) &amp; {{picture}} ␛[2J␊\\u202e" in seen.cells
    assert "shares, <each> | in turn" in [cell.strip() for cell in seen.cells]
    assert "Heat falls <b>always</b>" in words
    assert "<code>steps</code>" in text
    assert "{{" not in text.replace("{{picture}}", "", 2)
    assert html.escape(given.command) in text


def test_the_picture_is_one_and_always_the_same() -> None:
    from PIL import Image

    first, second = png(result()), png(result())
    assert first == second
    with Image.open(BytesIO(first)) as picture:
        assert picture.size == (450, 300)
        assert len(picture.convert("L").getcolors() or []) > 2


def test_markdown_holds_all_and_no_markup_of_others() -> None:
    text = markdown(done(TRUE, FALSE), "scaling.png")
    assert text.startswith("# Is 1 \\< 2 \\& 3 \\| 4?\n")
    assert "![What the lab scaling measured](scaling.png)" in text
    assert "<script" not in re.sub(r"\\<", "", text)
    assert "\x1b" not in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {4}
    assert "| --- | ---: | --- |" in rows
    assert "- ✓ Heat rises with `steps`: 3 to 1" in text
    assert "- ✗ Heat falls \\<b\\>always\\</b\\>" in text
    assert "- an item" in text
    assert "- `code` of \\<another\\>" in text
    assert "Made by `regard lab scaling --set 'rows=3'`" in text
    assert "1.2s" in text


def test_csv_is_read_back() -> None:
    made = result().tables[0]
    assert [tuple(row) for row in csv.reader(StringIO(csv_text(made), newline=""))] == [made.columns, *made.rows]


def test_several_tables_are_several_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = (Table(("a",), (("1",),)), Table(("b",), (("2",),)))
    monkeypatch.setattr(module, "lab", lambda _name: made_up(tables=tables))
    assert run("scaling", "--out", str(tmp_path)).exit_code == 0
    assert (tmp_path / "scaling-1.csv").read_text() == "a\n1\n"
    assert (tmp_path / "scaling-2.csv").read_text() == "b\n2\n"


def test_the_gallery(tmp_path: Path, pretend: list[Claim]) -> None:
    assert run("ablation", "--full", "--out", str(tmp_path)).exit_code == 0
    assert "regard lab ablation --full" in (tmp_path / "ablation-full.md").read_text()
    assert "is not empty" in refused("all", "--out", str(tmp_path))
    given = run("all", "--out", str(tmp_path), "--force")
    assert given.exit_code == 0, given.output
    told = (tmp_path / "README.md").read_text()
    for name in FEW:
        assert (tmp_path / f"{name}.md").is_file()
        assert (tmp_path / f"{name}.png").is_file()
        assert f'<img src="{name}.png"' in told
        assert f"`regard lab {name}`" in told
        assert f"✓ {name} " in given.output
    assert told.count("(ablation-full.md)") == told.count("-full.md") == 1
    linked = set(re.findall(r"\]\((.+?)\)", told)) | set(re.findall(r'src="(.+?)"', told))
    assert all((tmp_path / each).is_file() for each in linked)
    assert "✗" not in told


def test_a_gallery_says_what_is_not_borne_out_and_exits_1(tmp_path: Path, pretend: list[Claim]) -> None:
    pretend.append(FALSE)
    given = run("all", "--out", str(tmp_path))
    assert given.exit_code == 1
    assert (tmp_path / "README.md").read_text().count("✗ 1 of 2 conclusions borne out this time") == len(FEW)


def test_an_index_of_hostile_questions_stays_a_table() -> None:
    told = index([done()], [], "regard lab all")
    (row,) = [line for line in told.splitlines() if line.startswith("| [")]
    assert len(re.findall(r"(?<!\\)\|", row)) == 3


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@contextmanager
def browser() -> Iterator[object]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None or find_spec("playwright") is None, reason="no chromium, or no playwright")
def test_a_phone_shows_the_page_without_scrolling_sideways(tmp_path: Path) -> None:
    given = done(TRUE, FALSE)
    (tmp_path / "page.html").write_text(page(given, png(given.result)))
    with browser() as started:
        shown = started.new_page(viewport={"width": 360, "height": 640})  # type: ignore[attr-defined]
        complaints: list[str] = []
        shown.on("console", lambda message: complaints.append(message.text))
        shown.goto((tmp_path / "page.html").as_uri())
        assert shown.evaluate("document.documentElement.scrollWidth") == 360
        assert shown.evaluate("document.images[0].naturalWidth") == 450
        assert complaints == []
