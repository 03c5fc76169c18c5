"""The checker: the mistakes it names, the lines it points at, its reports, and its commands."""

import csv
import io
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner, Result

from regard import atomic_files
from regard.cli import app
from regard.course.assignment import ASSIGNMENTS_FOLDER, Assignment, load_assignment, load_assignments, read_assignment
from regard.course.check import CheckReport, check, identify_assignment
from regard.course.class_report import as_csv, as_html, show_class
from regard.course.classroom import (
    NOT_RUN,
    NOT_STARTED,
    check_class,
    read_class,
    tally_mistakes,
    tally_other_states,
)
from regard.course.crashes import crash_headline
from regard.course.diagnose import Diagnosis, diagnose
from regard.course.json_report import as_gradescope, as_json, as_text
from regard.course.missing_returns import explain_missing_returns, functions_without_return
from regard.course.mistake_catalogue import DOCS_PAGE, assignments_by_mistake, catalogue_page, load_catalogue
from regard.course.mistake_location import StageProgress, edited_lines, stage_progress
from regard.course.numeric_equality import Mismatch, mismatch, same, same_numbers
from regard.course.observe import Failure, SolutionRun, observe
from regard.course.several_assignments import assignments_in
from regard.course.shape_comments import ShapeRemark
from regard.course.solution_file import Solution, read_solution
from regard.course.terminal_report import STYLE_LATER, describe_mark, describe_progress, show_report, verdict
from regard.course.unfinished import find_gaps, is_untouched
from regard.course.worked_example import example_table
from tests.support.example_course import write_example_course

ATTENTION = """import torch
from torch import nn


class SelfAttention(nn.Module):
    def __init__(self, input_size, hidden):
        super().__init__()
        self.q = nn.Linear(input_size, hidden)
        self.k = nn.Linear(input_size, hidden)
        self.v = nn.Linear(input_size, hidden)

    def forward(self, x):
        asks, offers, gives = self.q(x), self.k(x), self.v(x)
        energy = torch.einsum("bqd,bkd->bqk", asks, offers) / offers.shape[-1] ** 0.5
        attn = torch.softmax(energy, -1)
        return torch.bmm(attn, gives)
"""
UNSCALED = ATTENTION.replace(" / offers.shape[-1] ** 0.5", "")
SIDEWAYS = ATTENTION.replace("(energy, -1)", "(energy, 1)")


@pytest.fixture(scope="module")
def self_attention() -> Assignment:
    return load_assignment("self-attention")


@pytest.fixture(scope="module")
def average(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example course in docs/course.md."""
    return write_example_course(tmp_path_factory.mktemp("docs"))


def diagnose_source(source: str, assignment: Assignment) -> Diagnosis:
    return diagnose(observe(source, assignment), assignment, source)


def mistake_lines(source: str, diagnosis: Diagnosis) -> list[str]:
    return [source.split("\n")[each.line - 1].strip() for each in diagnosis.mistakes if each.line]


def test_a_correct_solution_passes(self_attention: Assignment) -> None:
    found = diagnose_source(ATTENTION, self_attention)
    assert found.passed
    assert found.mistakes == ()
    assert found.points == sum(self_attention.points.values())


@pytest.mark.parametrize(
    ("source", "name", "place"), [(UNSCALED, "no-scaling", "energy ="), (SIDEWAYS, "softmax-wrong-axis", "attn =")]
)
def test_a_mistake_is_named_and_located(source: str, name: str, place: str, self_attention: Assignment) -> None:
    found = diagnose_source(source, self_attention)
    assert [each.id for each in found.mistakes] == [name]
    assert mistake_lines(source, found)[0].startswith(place)


@pytest.mark.slow
def test_two_mistakes_are_named(self_attention: Assignment) -> None:
    both = UNSCALED.replace("(energy, -1)", "(energy, 1)")
    found = diagnose_source(both, self_attention)
    assert {each.id for each in found.mistakes} == {"no-scaling", "softmax-wrong-axis"}
    assert [each.split(" =")[0] for each in sorted(mistake_lines(both, found))] == ["attn", "energy"]


@pytest.mark.slow
def test_an_unknown_mistake_is_not_named(self_attention: Assignment) -> None:
    found = diagnose_source(ATTENTION.replace("** 0.5", "** 0.7"), self_attention)
    assert (found.mistakes, found.possible, found.stage) == ((), (), "scores")


def test_progress_has_the_last_correct_stage_and_its_line(self_attention: Assignment) -> None:
    source = ATTENTION.replace("bmm(attn, gives)", "bmm(attn, gives * 1.1)")
    right = observe(self_attention.reference, self_attention).traced
    progress = stage_progress(observe(source, self_attention).traced, right, self_attention.stages)
    assert progress is not None
    assert (progress.last_right, progress.first_wrong, progress.unseen) == ("weights", "mixed", ())
    assert source.split("\n")[(progress.line or 0) - 1].strip().startswith("attn =")
    source = ATTENTION.replace("self.v(x)", "self.v(x) * 1.1")
    hidden = stage_progress(observe(source, self_attention).traced, right, self_attention.stages)
    assert hidden is not None
    assert hidden.unseen == ("v",)


@pytest.mark.slow
def test_progress_reports_the_layer_with_the_mistake() -> None:
    annotated = load_assignment("annotated")
    source = annotated.reference.replace("math.sqrt(query.size(-1))", "query.size(-1) ** 0.7")
    progress = stage_progress(
        observe(source, annotated).traced, observe(annotated.reference, annotated).traced, annotated.stages
    )
    assert progress is not None
    assert (progress.last_right, progress.first_wrong) == ("values", "scores")


def test_every_stage_has_a_description() -> None:
    for each in load_assignments():
        assert set(each.stage_descriptions) == set(each.stages)


@pytest.mark.slow
def test_an_inverted_causal_flag_is_named() -> None:
    heads = load_assignment("multi-head-self-attention")
    found = diagnose_source(heads.reference.replace("if self.causal:", "if not self.causal:"), heads)
    assert [each.id for each in found.mistakes] == ["causal-flag-inverted"]


def test_a_missing_return_is_reported_with_its_function() -> None:
    right = ATTENTION.replace("return torch.bmm", "out = torch.bmm") + "        return out\n"
    source = right.replace("        return out\n", "")
    line = source.split("\n").index("    def forward(self, x):") + 1
    assert functions_without_return(right, right) == []
    assert functions_without_return(source, right) == [("SelfAttention.forward", line)]
    assert functions_without_return("def f(x):\n    if x:\n        return x\n", "def f(x):\n    return x\n") == [
        ("f", 1)
    ]
    failures = {"one": Failure("AttributeError", "'NoneType' object has no attribute 'shape'", None)}
    failures["other"] = Failure("ValueError", "no", 3)
    found = explain_missing_returns(failures, source, right)
    assert found["one"] == Failure(
        "NoReturn", "SelfAttention.forward returns None. Is a return statement missing?", line
    )
    assert found["other"] == failures["other"]


def test_errors_without_values_name_no_mistake(self_attention: Assignment) -> None:
    found = diagnose_source(ATTENTION.replace("return torch", "return 1 / 0, torch"), self_attention)
    assert (found.mistakes, found.points) == ((), 0)
    assert {each.kind for each in found.failures.values()} == {"ZeroDivisionError"}


def test_indistinguishable_mistakes_are_only_possible(average: Path) -> None:
    of = read_assignment(average / "average")
    twin = replace(of.variants[1], mistake="a-twin")
    twins = replace(of, folder=average / "average")
    vars(twins)["variants"] = (*of.variants, twin)
    (average / "average" / "note.txt").write_text("changes the folder")
    found = diagnose_source(of.variants[1].applied_to(of.reference), twins)
    assert (found.mistakes, found.possible) == ((), ("a-twin", "not-divided"))
    (average / "average" / "note.txt").unlink()


def test_the_course_in_the_documentation_works(average: Path) -> None:
    of = load_assignment("average", average)
    assert diagnose_source(of.reference, of).passed
    for each in of.variants:
        source = each.applied_to(of.reference)
        assert [found.id for found in diagnose_source(source, of).mistakes] == [each.mistake]
    assert load_catalogue(average)["not-divided"].title == "The sums are not divided"


def test_the_catalogue_has_every_mistake_of_the_variants() -> None:
    known, places = load_catalogue(), assignments_by_mistake()
    assert len(known) >= 40
    assert set(known) == set(places)
    for each in known.values():
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", each.id)
        assert each.title[-1] not in ".?!"
        assert "?" in each.question or ":" in each.question
        assert each.why.endswith(".")
        assert each.fix.endswith("."), f"{each.id} needs a fix, as described at the top of mistakes.toml"


def test_the_most_important_mistakes_are_in_the_catalogue() -> None:
    wanted = """no-scaling scaled-by-wrong-width scaled-without-root heads-by-reshape heads-merged-without-transpose
        softmax-wrong-axis mask-hides-present mask-leaks-future mask-inverted mask-after-softmax no-output-projection
        value-from-key query-key-swapped dropout-in-eval weights-wrong-shape"""
    assert set(wanted.split()) <= set(load_catalogue())


def test_the_misconceptions_page_is_up_to_date() -> None:
    assert DOCS_PAGE.read_text(encoding="utf-8") == catalogue_page(), "run python -m regard.course.mistake_catalogue"


def test_an_assignment_is_identified_by_the_names_a_file_defines(tmp_path: Path) -> None:
    among = load_assignments()
    assert identify_assignment(frozenset({"SelfAttention", "nn"}), among, tmp_path).name == "self-attention"
    for each in among:
        assert identify_assignment(frozenset(each.defines), among, tmp_path) == each
    with pytest.raises(ValueError, match="did you mean SelfAttention instead of SelfAtention"):
        identify_assignment(frozenset({"SelfAtention"}), among, tmp_path)


def test_a_file_that_answers_no_assignment_gives_a_short_error(tmp_path: Path) -> None:
    (tmp_path / "syntax.py").write_text("def (:\n")
    with pytest.raises(ValueError, match="line 1: SyntaxError: "):
        check(tmp_path / "syntax.py")
    (tmp_path / "names.py").write_text("x = 1\n")
    with pytest.raises(
        ValueError,
        match=r"names\.py does not answer any assignment\. It should define the names of one, such as SelfAttention",
    ) as error:
        check(tmp_path / "names.py")
    assert len(str(error.value)) < 240
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="empty contains no assignments"):
        check(tmp_path / "names.py", course=tmp_path / "empty")


def test_gaps_are_found() -> None:
    source = "class A:\n    def f(self):\n        '''Doc.'''\n        y = ...\n        return y\n"
    assert find_gaps(source) == [("A.f", 4)]
    assert find_gaps("def f(x: tuple[int, ...]):\n    return x\n") == []
    assert find_gaps("no python at all") == []


def test_errors_and_overflows_are_symptoms_of_a_mistake_that_changes_the_values() -> None:
    def run(error: str = "", **values: float) -> SolutionRun:
        if error:
            return SolutionRun(failures={"probe": Failure(error, "", None)})
        return SolutionRun({"probe": {name: torch.tensor([value]) for name, value in values.items()}})

    reference, inf, nan = run(x=1.0), float("inf"), float("nan")
    assert mismatch(run(x=2.0), run(x=2.0), reference, "probe") == Mismatch()
    assert mismatch(run(x=2.0), run(x=3.0), reference, "probe") is None
    assert mismatch(run("IndexError"), run("RuntimeError"), reference, "probe") == Mismatch(errors=1)
    assert mismatch(run("IndexError"), run(x=3.0), reference, "probe") == Mismatch(values=1)
    assert mismatch(run("IndexError"), run(x=1.0), reference, "probe") is None  # the mistake has no effect here
    assert mismatch(run(x=3.0), run("IndexError"), reference, "probe") == Mismatch(values=1)
    assert mismatch(run(x=1.0), run("IndexError"), reference, "probe") is None
    assert mismatch(run(x=inf), run(x=nan), reference, "probe") == Mismatch(values=1)
    assert mismatch(run(x=2.0), run(x=2.0, y=1.0), run(x=1.0, y=1.0), "probe") is None
    assert mismatch(run(x=2.0), run(x=2.0, y=1.0), run(x=1.0, y=1.0), "probe", is_unfinished=True) == Mismatch()
    assert mismatch(run(x=2.0), run(x=2.0002), reference, "probe", slack=30) == Mismatch()


def test_values_are_equal_up_to_rounding() -> None:
    one = torch.tensor([1.0, float("nan"), -1e9])
    assert same(one, one + 1e-7)
    assert not same(one, torch.tensor([1.01, float("nan"), -1e9]))
    assert same(one, one.double())  # a probe runs in float64 or float32
    assert not same(one, one.half())
    assert not same(one, one[:, None])
    assert same_numbers(one[:1].expand(2, 3), torch.ones(6))
    assert not same_numbers(torch.arange(3), torch.arange(1, 4))


def test_edited_lines_are_complete_statements() -> None:
    right = "x = 1\ny = (\n    2,\n    3,\n)\n"
    assert edited_lines(right.replace("3", "4"), right) == {2, 3, 4, 5}


def test_the_example_table_marks_the_weights_that_differ(self_attention: Assignment) -> None:
    right = observe(self_attention.reference, self_attention)
    table = example_table(observe(UNSCALED, self_attention), right, self_attention.stages)
    assert table is not None
    assert table.name == "weights"
    assert len(table.expected) == len(table.actual) == 3
    assert any(any(row) for row in table.differs)
    assert example_table(right, right, self_attention.stages) is None


# The following tests run a few solutions in separate processes and test each of them in many ways.


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("class")
    for name, source in {"anna": f"import gc\n{UNSCALED}", "bob": ATTENTION}.items():
        (folder / name).mkdir()
        (folder / name / "solution.py").write_text(source)
    (folder / "=HYPERLINK(1).py").write_text(UNSCALED.replace("def forward", "def for ward"))
    (folder / "<b>eve<b>.py").write_text("x = 1\n")
    (folder / "carl.py").write_text("def (:\n")
    (folder / "dora.py").write_text(load_assignment("self-attention").starter)
    (folder / "zoe.py").write_text(
        UNSCALED.replace("    def forward(self, x):", "    def forward(self, x):\n        print('\\x1b[2J')")
    )
    return folder


@pytest.fixture(scope="module")
def unscaled(folder: Path) -> CheckReport:
    return check(folder / "zoe.py")


@pytest.mark.slow
def test_the_report_is_complete_and_escapes_control_characters(unscaled: CheckReport) -> None:
    text = as_text(unscaled, hint=3)
    for part in (
        "The scores are not scaled",
        "no-scaling",
        "energy = torch.einsum",
        "expected",
        "Ask yourself",
        "Fix: Divide",
        "␛[2J",
    ):
        assert part in text
    assert "\x1b" not in text
    assert not any(line.endswith(" ") for line in text.split("\n"))
    screen = Console(file=io.StringIO(), force_terminal=True, width=80)
    show_report(screen, unscaled)
    assert "\x1b[2J" not in screen.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.slow
def test_each_hint_reveals_one_thing_more(unscaled: CheckReport) -> None:
    texts = [as_text(unscaled, hint) for hint in range(4)]
    for part, first in (
        ("Ask yourself", 0),
        ("energy = torch.einsum", 1),
        ("The scores are not", 2),
        ("Divide the", 3),
    ):
        assert [part in text for text in texts] == [hint >= first for hint in range(4)], part
    assert ["--hint" in text for text in texts] == [True, True, True, False]


@pytest.mark.slow
def test_hints_about_several_possible_mistakes(unscaled: CheckReport) -> None:
    unclear = replace(
        unscaled, diagnosis=replace(unscaled.diagnosis, mistakes=(), possible=("no-scaling", "unheard-of"))
    )
    texts = [as_text(unclear, hint) for hint in range(4)]
    assert "--hint 2 shows what the mistake is" in texts[0]
    assert ["unheard-of" in text for text in texts] == [False, False, True, True]
    assert "does not describe a fix" in texts[3]


CRASHES = {
    "F is not imported.": ("torch.einsum", "F.einsum"),
    "The name energi is not defined.": ("softmax(energy", "softmax(energi"),
    "__init__ does not call super().__init__() first.": ("        super().__init__()\n", ""),
    "The import of nothing_like_it fails: it is not installed here.": (
        "import torch",
        "import nothing_like_it\nimport torch",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("headline", CRASHES)
def test_a_plain_crash_is_the_headline(unscaled: CheckReport, headline: str) -> None:
    old, new = CRASHES[headline]
    assert old in UNSCALED
    source = UNSCALED.replace(old, new, 1)
    run = observe(source, unscaled.assignment)
    crashed = replace(
        unscaled, run=run, diagnosis=replace(unscaled.diagnosis, mistakes=(), possible=(), failures=run.failures)
    )
    assert verdict(crashed).plain == f"✗ {headline}"


@pytest.mark.parametrize(
    ("kind", "message", "headline"),
    [
        ("AssertionError", "Torch not compiled with CUDA enabled", "The code asks for a GPU, and there is none here"),
        ("RuntimeError", "Found no NVIDIA driver on your system.", "The code asks for a GPU, and there is none here"),
        ("TypeError", "A.forward() missing 1 required positional argument: 'mask'", "forward is called without 'mask'"),
        ("TypeError", "f() takes 2 positional arguments but 3 were given", "f takes 2 positional arguments but 3"),
        ("TypeError", "f() got an unexpected keyword argument 'causal'", "f does not take the argument causal"),
        ("ImportError", "cannot import name 'relu6x' from 'torch'", "The import fails: torch has no relu6x"),
        ("SyntaxError", "invalid syntax", "Python cannot read the file"),
    ],
)
def test_crashes_are_described_in_plain_words(kind: str, message: str, headline: str) -> None:
    assert crash_headline(Failure(kind, message, 1)).startswith(headline)


@pytest.mark.slow
def test_few_missing_shape_comments_are_listed(unscaled: CheckReport) -> None:
    remarks = tuple(ShapeRemark(line, "missing", "", "[batch]") for line in range(1, 8))
    text = as_text(replace(unscaled, shapes=(*remarks, ShapeRemark(8, "wrong", "[seq]", "[batch]"))))
    assert text.count("no shape comment;") == 3
    assert "7 lines that change a shape have no shape comment." in text
    assert "the comment says [seq]" in text


@pytest.mark.slow
def test_the_style_mark_says_why_it_is_missing(unscaled: CheckReport) -> None:
    something = replace(unscaled, style=())
    nothing = replace(something, diagnosis=replace(unscaled.diagnosis, mistakes=(), right=()))
    assert (nothing.marks["style"][0], describe_mark(nothing, "style")) == (0, STYLE_LATER)
    assert (something.marks["style"][0], describe_mark(something, "style")) == (1, "No style remarks.")


@pytest.mark.slow
def test_progress_is_described_in_plain_words(unscaled: CheckReport) -> None:
    assert describe_progress(unscaled, StageProgress("weights", "scores", 15)) == (
        "Everything is correct up to line 15 (the scaled scores, query times key). "
        "The next step differs: the attention weights, which sum to 1 for each query."
    )
    assert describe_progress(unscaled, StageProgress("mixed", "weights", 16, goes_on=True)) == (
        "Line 16 begins correctly, with the attention weights, which sum to 1 for each query. "
        "What it computes from that may be wrong."
    )
    assert describe_progress(unscaled, StageProgress("q")) == "The first step that differs: the queries."
    assert "were not checked: the values." in describe_progress(unscaled, StageProgress("mixed", "weights", 16, ("v",)))


@pytest.mark.slow
def test_json_and_gradescope(unscaled: CheckReport) -> None:
    found = as_json(unscaled)
    assert {"assignment", "passed", "points", "mistakes", "shapes", "style"} <= set(found)
    assert [set(each) for each in found["mistakes"]] == [{"id", "line", "title", "deduction"}]
    assert (found["points"], found["max_points"]) == (8, 11)  # no-scaling costs 2, missing shape comments 1
    assert sum(each["points"] for each in found["marks"]) == pytest.approx(8)
    assert json.loads(json.dumps(found)) == found
    results = as_gradescope(unscaled)
    assert results["score"] == pytest.approx(sum(each["score"] for each in results["tests"]))
    assert {each["status"] for each in results["tests"]} == {"passed", "failed"}
    assert all({"name", "score", "max_score", "output"} <= set(each) for each in results["tests"])


@pytest.mark.slow
def test_a_class_with_broken_files_is_checked(folder: Path, tmp_path: Path) -> None:
    students = list(check_class(read_class(folder, tmp_path), jobs=2))
    by_name = {each.name: each for each in students}
    assert set(by_name) == {"anna", "bob", "=HYPERLINK(1)", "<b>eve<b>", "carl", "dora", "zoe"}
    assert by_name["bob"].passed
    assert by_name["anna"].mistakes == by_name["zoe"].mistakes == ["no-scaling"]
    assert "SyntaxError" in by_name["=HYPERLINK(1)"].summary
    assert [(name, names) for name, _, names in tally_mistakes(students)] == [("no-scaling", ["anna", "zoe"])]
    assert tally_other_states(students) == {NOT_STARTED: ["dora"], NOT_RUN: ["<b>eve<b>", "=HYPERLINK(1)", "carl"]}
    assert by_name["<b>eve<b>"].summary == "does not answer any assignment"
    broken = by_name["carl"].report
    assert broken is not None
    assert (broken.assignment.name, broken.status) == ("self-attention", 2)
    assert "line 1: SyntaxError: " in by_name["carl"].summary
    rows = list(csv.reader(io.StringIO(as_csv(students))))
    assert not any(cell.lstrip().startswith(("=", "+", "-", "@")) for row in rows for cell in row)
    anna = dict(zip(rows[0], rows[1 + list(by_name).index("anna")], strict=True))
    assert (anna["points"], anna["max_points"]) == ("7", "11")  # neither a point for style
    assert (anna["deductions"], anna["unusual"]) == ("no-scaling -2; shape comments -1", "line 1: import gc")
    written = as_html(students, "A <class>")
    assert "<small>no-scaling -2</small>" in written
    assert "<li><b>anna</b>: line 1: import gc</li>" in written
    assert "<b>eve<b>" not in written
    assert "{{" not in written
    assert not re.search(r"<script|https?://|<th></th>", written)
    screen = Console(file=io.StringIO(), width=100)
    show_class(screen, students)
    shown_there = screen.file.getvalue()  # type: ignore[attr-defined]
    assert "Correct solutions: 1 of 7" in shown_there
    assert "not started: 1; could not be run: 3" in shown_there
    assert "anna: line 1: import gc" in shown_there


def regard(*arguments: object) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(app, list(map(str, arguments)))


def test_a_starter_is_written_once(tmp_path: Path, average: Path) -> None:
    arguments = ("course", "start", "average", "--course", average, "--out", tmp_path / "mine.py")
    assert regard(*arguments).exit_code == 0
    assert (tmp_path / "mine.py").read_text() == (average / "average" / "starter.py").read_text()
    (tmp_path / "mine.py").write_text("hours of work")
    assert "already exists" in str(regard(*arguments).exception)
    assert (tmp_path / "mine.py").read_text() == "hours of work"
    assert "is neither a .py nor" in str(regard(*arguments[:-1], tmp_path / "mine.txt").exception)
    listed = regard("course", "list").stdout
    assert all(each.name in listed for each in load_assignments(ASSIGNMENTS_FOLDER))


def test_a_starter_does_not_replace_a_file_created_meanwhile(
    tmp_path: Path, average: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A student saves the file while the command is writing the starter."""
    mine = tmp_path / "mine.py"
    flush = atomic_files.flush_to_disk

    def saved_meanwhile(path: Path) -> None:
        mine.write_text("hours of work")
        flush(path)

    monkeypatch.setattr(atomic_files, "flush_to_disk", saved_meanwhile)
    arguments = ("course", "start", "average", "--course", average, "--out", mine)
    assert "mine.py already exists and was left unchanged" in str(regard(*arguments).exception)
    assert mine.read_text() == "hours of work"
    monkeypatch.undo()
    assert regard(*arguments, "--force").exit_code == 0
    assert mine.read_text() != "hours of work"


def test_printed_commands_name_the_other_course(tmp_path: Path, average: Path) -> None:
    begun = regard("course", "start", "average", "--course", average, "--out", tmp_path / "mine.py").stdout
    assert f"regard check {tmp_path / 'mine.py'} --course {average}" in begun
    assert f"regard course start average --course {average}" in regard("course", "list", "--course", average).stdout
    (tmp_path / "empty").mkdir()
    assert "empty contains no assignments" in str(regard("course", "list", "--course", tmp_path / "empty").exception)


@pytest.mark.parametrize("each", load_assignments(), ids=lambda each: each.name)
def test_a_starter_can_be_a_notebook(each: Assignment, tmp_path: Path) -> None:
    path = tmp_path / "mine.ipynb"
    assert regard("course", "start", each.name, "--out", path).exit_code == 0
    assert json.loads(path.read_text(encoding="utf-8"))["nbformat"] == 4
    solution = read_solution(path)
    assert is_untouched(solution.source, each.starter)
    assert len(solution.cells) > 1
    assert set(each.defines) <= solution.names


@pytest.mark.slow
def test_exit_codes(tmp_path: Path, average: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("def running_mean(x):\n    return (\n")
    begun = regard("check", average / "average" / "starter.py", "--course", average)
    assert (begun.exit_code, "Not started yet" in begun.stdout) == (1, True)
    right = regard("check", average / "average" / "reference.py", "--course", average, "--json")
    assert (right.exit_code, json.loads(right.stdout)["passed"]) == (0, True)
    unrun = regard("check", broken, "--course", average)
    assert (unrun.exit_code, "line 2" in unrun.stdout) == (2, True)
    unknown = regard("check", broken, "--gradescope")
    assert (unknown.exit_code, json.loads(unknown.stdout)["score"]) == (2, 0)


def assignments_named(source: str) -> list[str]:
    return [each.name for each in assignments_in(Solution(source), Path("mine.py"))]


def test_a_file_may_answer_several_assignments() -> None:
    both = load_assignment("self-attention").reference + load_assignment("multi-head-self-attention").reference
    assert assignments_named(both) == ["self-attention", "multi-head-self-attention"]
    assert assignments_named(load_assignment("annotated").reference) == ["annotated"]
    assert assignments_named(load_assignment("kv-cache").reference) == ["kv-cache"]
    helper = "class SelfAttention:\n    pass\nclass MultiHeadSelfAttention:\n    part = SelfAttention\n"
    assert assignments_named(helper) == ["multi-head-self-attention"]


@pytest.mark.slow
def test_all_assignments_of_a_file_are_checked(tmp_path: Path, average: Path) -> None:
    shutil.copytree(average / "average", average / "second")
    for path in (average / "second").iterdir():
        if path.is_file():
            path.write_text(path.read_text().replace("running_mean", "second_mean"))
    mine = tmp_path / "mine.py"
    first, second = ((average / name / "reference.py").read_text() for name in ("average", "second"))
    mine.write_text(first + second.replace("sums / counts", "sums"))
    try:
        shown = regard("check", mine, "--course", average)
        assert (shown.exit_code, "answers 2 assignments, 1 of them correctly: average" in shown.stdout) == (1, True)
        found = json.loads(regard("check", mine, "--course", average, "--json").stdout)
        assert [report["passed"] for report in found["assignments"]] == [True, False]
        assert found["points"] == sum(report["points"] for report in found["assignments"])
        results = json.loads(regard("check", mine, "--course", average, "--gradescope").stdout)
        assert results["score"] == found["points"]
        assert results["tests"][0]["name"].startswith("average: ")
        assert regard("check", mine, "--course", average, "--assignment", "average").exit_code == 0
    finally:
        shutil.rmtree(average / "second")


@pytest.mark.parametrize("command", [["check"], ["course", "list"], ["course", "start"]])
def test_every_command_has_an_example(command: list[str]) -> None:
    assert f"Example: regard {' '.join(command)}" in regard(*command, "--help").stdout
