"""`regard lab`: the list, the sizes, the output in the terminal and in files, and what every lab must have.

The results of the labs are tested in other files.
"""

import ast
import csv
import html
import re
import subprocess
import sys
from dataclasses import dataclass, fields, replace
from html.parser import HTMLParser
from io import BytesIO, StringIO
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from rich.console import Console
from typer.testing import CliRunner
from typer.testing import Result as Run

from regard.cli import app
from regard.errors import RegardError
from regard.labs import lab as module
from regard.labs.lab import NAMES, Claim, Lab, LabResult, ResultTable, load_lab, questions
from regard.labs.lab_files import LabRun, csv_text, run_lab
from regard.labs.lab_markdown import index, markdown, numeric_columns
from regard.labs.lab_page import page, png
from regard.labs.lab_record import described_sizes, read_record
from regard.labs.lab_terminal import show
from tests.support.browser import MISSING_FOR_PAGES, chromium
from tests.support.oracles import documented_fields

pytestmark = pytest.mark.usefixtures("without_type_checks")

HOSTILE = "<script>alert(1)</script> | `a` **b** [x](http://x) &amp; {{picture}} \x1b[2J\n\u202e"
LISTED_NAMES = ("scaling", "one-head", "ablation")
CONFIRMED, REFUTED = Claim("Heat rises with `steps`: 3 to 1", True), Claim("Heat falls <b>always</b>", False)


@dataclass(frozen=True)
class Sizes:
    """Sizes of a made-up lab."""

    rows: int = 2
    """Number of rows."""
    parts: tuple[float, ...] = (0.5, 1.0)
    """Shares, <each> | in turn."""
    full: bool = False
    """Whether to run all of it."""
    seed: int = 0


def draw(figure: Figure) -> None:
    figure.add_subplot().plot([0, 1], [1, 0])


def result(*claims: Claim, tables: tuple[ResultTable, ...] | None = None) -> LabResult:
    rows = (("one", "1.5", HOSTILE), (HOSTILE, "-2%", ""))
    table = ResultTable(("what", "amount", "remark"), rows, title="Made | up")
    return LabResult(
        (table,) if tables is None else tables, claims or (CONFIRMED,), draw, (3.0, 2.0), ("Of `x` & <y>",)
    )


def made_up(*claims: Claim, tables: tuple[ResultTable, ...] | None = None) -> Lab:
    about = "First,\nso.\n\n- an item\n- `code` of <another>"
    return Lab("scaling", "Is 1 < 2 & 3 | 4?", about, Sizes(), lambda _sizes: result(*claims, tables=tables))


def made_up_run(*claims: Claim) -> LabRun:
    run = run_lab(made_up(*claims), "regard lab scaling --set 'rows=3'")
    return replace(run, record=replace(run.record, seconds=1.25))


def run_command(*arguments: str) -> Run:
    return CliRunner().invoke(app, ["lab", *arguments], env={"COLUMNS": "100"})


def refused(*arguments: str) -> str:
    ended = run_command(*arguments)
    assert isinstance(ended.exception, RegardError), ended.output
    return str(ended.exception)


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> list[Claim]:
    """Replace the labs with a few made-up ones, which have the claims in this list."""
    claims = [CONFIRMED]
    monkeypatch.setattr(module, "NAMES", LISTED_NAMES)
    monkeypatch.setattr(module, "load_lab", lambda name: replace(made_up(*claims), name=name, full_sizes="full=true"))
    return claims


@pytest.mark.slow
def test_the_list_names_every_lab_with_its_question() -> None:
    ended = run_command()
    assert ended.exit_code == 0
    shown = " ".join(ended.output.split())
    for name, question in questions().items():
        assert f"{name} {question}" in shown
        assert question == load_lab(name).question
    assert len(questions()) == len(NAMES) == len(set(NAMES)) == 19


@pytest.mark.slow
def test_the_list_does_not_wait_for_torch() -> None:
    program = (
        "import sys; sys.argv = ['regard', 'lab']\n"
        "from regard.cli import app\n"
        "app(standalone_mode=False)\n"
        "print('loaded:', *(n for n in ('torch', 'numpy', 'matplotlib') if n in sys.modules))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert ended.stdout.splitlines()[-1].split() == ["loaded:"]


@pytest.mark.parametrize("name", NAMES)
def test_every_lab_has_what_a_lab_needs(name: str) -> None:
    lab = load_lab(name)
    path = Path(module.__file__).with_name(f"{name.replace('-', '_')}.py")
    source = path.read_text(encoding="utf-8")
    assert lab.name == name
    assert lab.question.endswith("?")
    assert len(lab.about) > 80, "it does not describe the experiment"
    sizes_module = sys.modules[type(lab.sizes).__module__]  # a lab may use the sizes of another
    names = {field.name for field in fields(lab.sizes)}
    assert documented_fields(sizes_module, "Sizes") >= names
    assert type(lab.sizes).__doc__
    assert type(lab.sizes).__dataclass_params__.frozen
    random = re.search(r"rand|normal|manual_seed|Generator", source)
    assert "seed" in names or not random, "it uses random numbers without a seed"
    own_attentions = [
        node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef) and node.name == "attention"
    ]
    assert not own_attentions, "it has an attention function of its own"


@pytest.mark.parametrize("name", NAMES)
def test_sizes_are_printed_as_they_are_given(name: str) -> None:
    lab = load_lab(name)
    sizes = described_sizes(lab.sizes)
    assert lab.with_sizes([f"{size.name}={size.value}" for size in sizes]).sizes == lab.sizes
    assert all(size.meaning.endswith(".") for size in sizes)


def test_sizes_are_changed_by_name() -> None:
    sizes = made_up().with_sizes(["rows=7", "parts=0.25,2,3", "full=TRUE"]).sizes
    assert sizes == Sizes(7, (0.25, 2.0, 3.0), True)
    assert made_up().sizes == Sizes()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("row=3", "has no size 'row': did you mean 'rows'"),
        ("rows", "write rows=VALUE"),
        ("rows=many", "rows=many: expected a value like 2"),
        ("rows=2.5", "rows=2.5: expected a value like 2"),
        ("parts=1,x", "parts=1,x: expected numbers separated by commas"),
        ("parts=", "expected numbers separated by commas"),
        ("full=maybe", "full=maybe: expected a value like False"),
        ("rows=0", "rows=0: expected a number of at least 1"),
        ("rows=-3", "rows=-3: expected a number of at least 1"),
        ("seed=-1", "seed=-1: expected a number of at least 0"),
        ("parts=0.5,-1", "parts=-1: expected a number of at least 0"),
        ("parts=nan", "parts=nan: expected a number of at least 0"),
        ("parts=0.5,inf", "parts=inf: expected a number of at least 0"),
    ],
)
def test_a_wrong_size_is_named(change: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        made_up().with_sizes([change])


def test_mistakes_in_the_command() -> None:
    assert "unknown lab 'scalling': did you mean 'scaling'?" in refused("scalling")
    assert "has no size 'widhts': did you mean 'widths'?" in refused("scaling", "--set", "widhts=8")
    assert "the lab scaling has no full form: omit --full" in refused("scaling", "--full")
    assert "apply to a single lab" in refused("all", "--set", "seed=1")


@pytest.mark.slow
def test_sizes_that_do_not_go_together_are_named() -> None:
    assert "scaling cannot be run with heads=7: shape" in refused("scaling", "--set", "heads=7")
    assert "copy cannot be run with leads=1.0: " in refused("copy", "--set", "leads=1")
    assert "keys=1: a key can lead only if there are at least 2 keys" in refused("copy", "--set", "keys=1,8")


def test_an_error_with_default_sizes_is_not_attributed_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_sizes: Sizes) -> LabResult:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(module, "load_lab", lambda _name: replace(made_up(), run=broken))
    assert isinstance(run_command("scaling").exception, RuntimeError)
    assert "scaling cannot be run with rows=3, parts=0.5,2.0: a mistake" in refused(
        "scaling", "--set", "rows=3", "--set", "parts=0.5,2"
    )


def test_sizes_are_shown_without_a_run() -> None:
    ended = run_command("scaling", "--sizes", "--set", "length=3")
    assert ended.exit_code == 0
    assert "Why are scores divided" in ended.output
    assert re.search(r"length +3 +Number s of queries", ended.output)
    assert "Conclusions" not in ended.output


@pytest.mark.slow
def test_running_a_lab(tmp_path: Path) -> None:
    small = ("--set", "widths=8,32,128", "--set", "length=16", "--set", "sequences=8")
    ended = run_command("scaling", *small, "--out", str(tmp_path / "new" / "folder"))
    assert ended.exit_code == 0, ended.output
    assert "✓ " in ended.output
    assert "✗" not in ended.output
    files = sorted(path.name for path in (tmp_path / "new" / "folder").iterdir())
    assert files == ["scaling.csv", "scaling.html", "scaling.json", "scaling.md", "scaling.png"]
    for name in files:
        assert f"{tmp_path}/new/folder/{name}" in ended.output.replace("\n", "")
    command = f"regard lab scaling {' '.join(small)}"
    assert command in (tmp_path / "new" / "folder" / "scaling.md").read_text()
    assert command in (tmp_path / "new" / "folder" / "scaling.html").read_text()


def test_out_must_be_a_folder_and_is_tried_first(tmp_path: Path, pretend: list[Claim]) -> None:
    (tmp_path / "file").write_text("years of work")
    assert "is not a folder" in refused("scaling", "--out", str(tmp_path / "file"))
    assert (tmp_path / "file").read_text() == "years of work"


def test_a_claim_that_is_not_confirmed_is_no_conclusion_and_exits_1(tmp_path: Path, pretend: list[Claim]) -> None:
    pretend.append(REFUTED)
    ended = run_command("scaling", "--out", str(tmp_path))
    assert ended.exit_code == 1
    before, heading, after = ended.output.partition("Not confirmed this time")
    assert heading
    assert "✓  Heat rises" in before
    assert "Heat falls" not in before
    assert "✗  Heat falls" in after
    assert "1 of 2 conclusions confirmed" in after
    for name in ("scaling.md", "scaling.html"):  # the results are written all the same
        text = (tmp_path / name).read_text()
        assert text.index("Heat rises") < text.index("Not confirmed this time") < text.index("Heat falls")


def test_a_lab_where_nothing_holds_has_no_conclusions(pretend: list[Claim]) -> None:
    pretend[:] = [REFUTED]
    ended = run_command("scaling")
    assert ended.exit_code == 1
    assert "Conclusions" not in ended.output
    assert "Conclusions" not in markdown(made_up_run(REFUTED).record)
    assert "Conclusions" not in page(made_up_run(REFUTED).record, b"")


def test_hostile_texts_do_not_affect_the_terminal() -> None:
    for colours in (None, "truecolor"):
        buffer = StringIO()
        show(
            Console(file=buffer, width=200, color_system=colours, force_terminal=bool(colours)),
            made_up_run(CONFIRMED, REFUTED).record,
        )
        shown = buffer.getvalue()
        assert "\x1b[2J" not in shown
        assert "\u202e" not in shown
        assert "✓" in shown
        assert "✗" in shown
        assert "<script>alert(1)</script> | `a` **b** [x](http://x) &amp; {{picture}} ␛[2J␊\\u202e" in shown


def test_numbers_are_aligned_to_the_right() -> None:
    table = ResultTable(("a", "b", "c", "d"), (("1", "2.5", "<0.1", "–"), ("2", "−3 %", "≈ 4", "x")))
    assert numeric_columns(table) == [False, True, True, False]
    assert numeric_columns(ResultTable(("a", "b"), (("1", ""), ("2", "–")))) == [False, True]


class Page(HTMLParser):
    """The elements and the text of a page, as a browser parses them."""

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


def test_the_page_is_complete_and_runs_nothing() -> None:
    run = made_up_run(CONFIRMED, REFUTED)
    text = page(run.record, png(run.result))
    parsed = Page(text)
    assert "script" not in parsed.tags
    assert {"b", "a", "link"} & set(parsed.tags) == {"link"}  # the icon, which is empty
    fetched = [value for name, value in parsed.attributes if name in ("src", "href") and value is not None]
    assert all(value.startswith("data:") for value in fetched)
    assert not [name for name, _ in parsed.attributes if name.startswith("on")]
    assert "default-src 'none'" in text
    assert "width=device-width" in text
    assert "prefers-color-scheme: dark" in text
    words = "".join(parsed.words)
    assert "Is 1 < 2 & 3 | 4?" in words
    assert "<script>alert(1)</script> | `a` **b** [x](http://x) &amp; {{picture}} ␛[2J␊\\u202e" in parsed.cells
    assert "Shares, <each> | in turn." in [cell.strip() for cell in parsed.cells]
    assert "Heat falls <b>always</b>" in words
    assert "<code>steps</code>" in text
    assert "{{" not in text.replace("{{picture}}", "", 2)
    assert html.escape(run.record.command) in text


@pytest.mark.slow
def test_the_figure_is_reproducible() -> None:
    from PIL import Image

    first, second = png(result()), png(result())
    assert first == second
    with Image.open(BytesIO(first)) as picture:
        assert picture.size == (450, 300)
        assert len(picture.convert("L").getcolors() or []) > 2


def test_markdown_is_complete_and_escaped() -> None:
    text = markdown(made_up_run(CONFIRMED, REFUTED).record)
    assert text.startswith("# Is 1 \\< 2 \\& 3 \\| 4?\n")
    assert "![Figure of the lab scaling](scaling.png)" in text
    assert "<script" not in re.sub(r"\\<", "", text)
    assert "\x1b" not in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {4}
    assert "| --- | ---: | --- |" in rows
    assert "- ✓ Heat rises with `steps`: 3 to 1" in text
    assert "- ✗ Heat falls \\<b\\>always\\</b\\>" in text
    assert "- an item" in text
    assert "- `code` of \\<another\\>" in text
    assert "Produced by `regard lab scaling --set 'rows=3'`" in text
    assert "1.2s" in text


def test_csv_is_read_back() -> None:
    table = result().tables[0]
    assert [tuple(row) for row in csv.reader(StringIO(csv_text(table), newline=""))] == [table.columns, *table.rows]


def test_several_tables_are_several_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = (ResultTable(("a",), (("1",),)), ResultTable(("b",), (("2",),)))
    monkeypatch.setattr(module, "load_lab", lambda _name: made_up(tables=tables))
    assert run_command("scaling", "--out", str(tmp_path)).exit_code == 0
    assert (tmp_path / "scaling-1.csv").read_text() == "a\n1\n"
    assert (tmp_path / "scaling-2.csv").read_text() == "b\n2\n"


@pytest.mark.slow
def test_the_gallery(tmp_path: Path, pretend: list[Claim]) -> None:
    assert run_command("ablation", "--full", "--out", str(tmp_path)).exit_code == 0
    assert "regard lab ablation --full" in (tmp_path / "ablation-full.md").read_text()
    assert "is not empty" in refused("all", "--out", str(tmp_path))
    ended = run_command("all", "--out", str(tmp_path), "--force")
    assert ended.exit_code == 0, ended.output
    text = (tmp_path / "README.md").read_text()
    for name in LISTED_NAMES:
        assert (tmp_path / f"{name}.md").is_file()
        assert (tmp_path / f"{name}.png").is_file()
        assert markdown(read_record(tmp_path / f"{name}.json")) == (tmp_path / f"{name}.md").read_text()
        assert f'<img src="{name}.png"' in text
        assert f"`regard lab {name}`" in text
        assert f"✓ {name} " in ended.output
    assert text.count("(ablation-full.md)") == text.count("-full.md") == 1
    linked = set(re.findall(r"\]\((.+?)\)", text)) | set(re.findall(r'src="(.+?)"', text))
    assert all((tmp_path / link).is_file() for link in linked)
    assert "✗" not in text


@pytest.mark.slow
def test_a_gallery_reports_what_is_not_confirmed_and_exits_1(tmp_path: Path, pretend: list[Claim]) -> None:
    pretend.append(REFUTED)
    ended = run_command("all", "--out", str(tmp_path))
    assert ended.exit_code == 1
    assert (tmp_path / "README.md").read_text().count("✗ 1 of 2 conclusions confirmed this time") == len(LISTED_NAMES)


def test_an_index_of_hostile_questions_stays_a_table() -> None:
    text = index([made_up_run().record], [], "regard lab all")
    (row,) = [line for line in text.splitlines() if line.startswith("| [")]
    assert len(re.findall(r"(?<!\\)\|", row)) == 3


@pytest.mark.slow
@pytest.mark.skipif(bool(MISSING_FOR_PAGES), reason=f"not here: {', '.join(MISSING_FOR_PAGES)}")
def test_a_phone_shows_the_page_without_scrolling_sideways(tmp_path: Path) -> None:
    run = made_up_run(CONFIRMED, REFUTED)
    (tmp_path / "page.html").write_text(page(run.record, png(run.result)))
    with chromium() as browser:
        shown = browser.new_page(viewport={"width": 360, "height": 640})
        complaints: list[str] = []
        shown.on("console", lambda message: complaints.append(message.text))
        shown.goto((tmp_path / "page.html").as_uri())
        assert shown.evaluate("document.documentElement.scrollWidth") == 360
        assert shown.evaluate("document.images[0].naturalWidth") == 450
        assert complaints == []
