"""A class: downloads of the learning systems, class lists, similar files, feedback and the column for Canvas."""

import csv
import io
import os
import re
import stat
import zipfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import pytest
from typer.testing import CliRunner

from regard.cli import app
from regard.course import uploaded_files
from regard.course.assignment import load_assignment
from regard.course.canvas_gradebook import as_canvas_csv
from regard.course.class_report import as_csv, as_html, as_json_list
from regard.course.classroom import ClassMember, StudentResult, read_class, read_one
from regard.course.feedback import feedback_files
from regard.course.roster import Roster, match_roster, name_keys, read_roster
from regard.course.similar_files import SimilarPair, find_similar
from regard.course.submissions import NOTHING_HANDED_IN, Submission, find_submissions, parse_submitters
from regard.course.uploaded_files import read_upload

ANSWER = "class SelfAttention:\n    pass\n"
SOLUTIONS = Path(__file__).parent / "solutions"


def make_zip(path: Path, files: Mapping[str, str | bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def zip_bytes(files: Mapping[str, str | bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return file.getvalue()


def submissions_in(path: Path, scratch: Path) -> dict[str, Submission]:
    found = find_submissions(read_upload(path, scratch), lambda path: "SelfAttention" in path.read_text())
    assert len({each.name for each in found}) == len(found)
    return {each.name: each for each in found}


def content(submission: Submission) -> str:
    assert submission.path is not None
    return submission.path.read_text()


def test_a_download_from_canvas(tmp_path: Path) -> None:
    download = make_zip(
        tmp_path / "submissions.zip",
        {
            "lovelaceada_4711_100_attention.py": ANSWER + "# first",
            "lovelaceada_4711_205_attention-1.py": ANSWER + "# second",
            "lovelaceada_4711_206_helpers-1.py": "def help(): pass",
            "hoppergrace_LATE_4712_90_my_solution_2.py": ANSWER,
            "LATE_anon_x7Kq2_91_ATTENTION.PY": ANSWER,
            "curiemarie_4713_92_work.zip": zip_bytes({"work/attention.py": ANSWER, "__MACOSX/work/._a.py": "x"}),
            "turingalan_4714_93_report.zip": zip_bytes({"report.pdf": "x"}),
            "noetheremmy_LATE_4715_94_essay.pdf": "x",
            "lovelaceada_4711_207_notes.txt": "x",
        },
    )
    found = submissions_in(download, tmp_path / "scratch")
    assert set(found) == {"lovelaceada", "hoppergrace", "anon_x7Kq2", "curiemarie", "turingalan", "noetheremmy"}
    ada = found["lovelaceada"]
    assert (ada.id, ada.is_late, ada.system) == ("4711", False, "canvas")
    assert content(ada).endswith("# second")
    assert [name for name, _ in ada.others] == ["attention.py", "helpers.py"]
    assert found["hoppergrace"].is_late
    assert found["anon_x7Kq2"].is_late
    assert found["hoppergrace"].feedback_name == "hoppergrace_LATE_4712_90_feedback.txt"
    assert content(found["curiemarie"]) == ANSWER
    assert found["noetheremmy"].problem == "no .py or .ipynb file was handed in"
    assert found["turingalan"].path is None
    assert found["turingalan"].feedback_name == "turingalan_4714_93_feedback.txt"
    assert found["turingalan"].problem == "turingalan_4714_93_report.zip contains no .py or .ipynb file"


@pytest.mark.parametrize(
    "names",
    [
        ("Ada Lovelace_4711_assignsubmission_file_/attention.py", "Grace Hopper_4712_assignsubmission_file_/a.py"),
        ("Ada Lovelace_4711_assignsubmission_file/src/attention.py", "Grace Hopper_4712_assignsubmission_file/a.py"),
        ("Ada Lovelace_4711_assignsubmission_file_attention.py", "Grace Hopper_4712_assignsubmission_file_a.py"),
        ("hw/Ada Lovelace_4711_assignsubmission_file/x.py", "hw/Grace Hopper_4712_assignsubmission_file/x.py"),
    ],
)
def test_a_download_from_moodle(names: tuple[str, str], tmp_path: Path) -> None:
    found = submissions_in(make_zip(tmp_path / "all.zip", dict.fromkeys(names, ANSWER)), tmp_path / "scratch")
    assert {name: each.id for name, each in found.items()} == {"Ada Lovelace": "4711", "Grace Hopper": "4712"}
    assert found["Ada Lovelace"].feedback_name == "Ada Lovelace_4711_assignsubmission_file_/feedback.txt"
    assert {each.system for each in found.values()} == {"moodle"}


METADATA = """---
submission_100:
  :submitters:
  - :name: Ada Lovelace
    :sid: '4711'
    :email: ada@example.org
  :created_at: 2026-11-16 12:00:00.000000000 Z
  :score: 3.0
  :results:
    tests:
    - name: ':submitters:'
      output: |
        submission_999:
  :history:
  - :id: 99
    :submitters: []
submission_101:
  :submitters:
  - :name: "Zo\\xEB \\"Z\\" Kim"
    :sid:
    :email: zoe@example.org
  - :name: O'Neil, Sam
    :sid: '4713'
    :email: sam@example.org
"""


def test_an_export_from_gradescope(tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    expected = {
        folder: [{key[1:]: value or "" for key, value in person.items()} for person in entry[":submitters"]]
        for folder, entry in yaml.safe_load(METADATA).items()
    }
    assert parse_submitters(METADATA) == expected
    files = {f"assignment_7_export/submission_{number}/attention.py": ANSWER for number in (100, 101)}
    files["assignment_7_export/submission_metadata.yml"] = METADATA
    found = submissions_in(make_zip(tmp_path / "export.zip", files), tmp_path / "scratch")
    assert {name: (each.id, each.email) for name, each in found.items()} == {
        "Ada Lovelace": ("4711", "ada@example.org"),
        'Zoë "Z" Kim': ("", "zoe@example.org"),
        "O'Neil, Sam": ("4713", "sam@example.org"),
    }
    assert found['Zoë "Z" Kim'].path == found["O'Neil, Sam"].path


def test_folders_and_files_of_any_names(tmp_path: Path) -> None:
    files = {
        "anna/attention.py": ANSWER,
        "anna/helpers.py": "x = 1",
        "bob/attention_v1.py": ANSWER + "# old",
        "bob/attention_v2.py": ANSWER + "# new",
        "group a/carl.py": ANSWER,
        "group a/dora.py": ANSWER,
        "eve.ipynb": ANSWER,
        "lab_2026_11_fred.py": ANSWER,
        "lab_2026_11_gina.py": ANSWER,
        "notes.txt": "",
        "__pycache__/x.py": "",
        ".ipynb_checkpoints/x.py": "",
    }
    for name, text in files.items():
        (tmp_path / "class" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "class" / name).write_text(text)
    (tmp_path / "class" / "link.py").symlink_to(tmp_path / "class" / "eve.ipynb")
    found = submissions_in(tmp_path / "class", tmp_path / "scratch")
    names = ["anna", "bob", "eve", "group a/carl", "group a/dora", "lab_2026_11_fred", "lab_2026_11_gina"]
    assert list(found) == names
    assert content(found["bob"]).endswith("# new")
    assert [name for name, _ in found["anna"].others] == ["helpers.py"]
    make_zip(tmp_path / "class.zip", {f"class/{name}": text for name, text in files.items()})
    assert list(submissions_in(tmp_path / "class.zip", tmp_path / "scratch")) == names
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="contains no solutions"):
        read_class(tmp_path / "empty", tmp_path / "scratch")


def test_the_solution_is_found_among_the_files_of_one_student(tmp_path: Path) -> None:
    (tmp_path / "upload").mkdir()
    (tmp_path / "upload" / "aaa.py").write_text(ANSWER)
    (tmp_path / "upload" / "zzz.py").write_text("x = 1\n")
    (tmp_path / "upload" / "broken.zip").write_bytes(b"PK")
    submission = read_one(tmp_path / "upload", tmp_path / "scratch")
    assert submission.path == tmp_path / "upload" / "aaa.py"
    (tmp_path / "upload" / "aaa.py").unlink()
    (tmp_path / "upload" / "zzz.py").unlink()
    with pytest.raises(ValueError, match=r"broken\.zip: not a readable zip file"):
        read_one(tmp_path / "upload", tmp_path / "scratch")


def test_unsafe_archives_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusal(files: Mapping[str, str | bytes]) -> str:
        with pytest.raises(ValueError) as error:  # noqa: PT011  # the caller tests the message
            read_upload(make_zip(tmp_path / "bad.zip", files), tmp_path / "scratch")
        return str(error.value)

    for name in ("../evil.py", "a/../../evil.py", "/tmp/evil.py", "..\\evil.py", "C:\\evil.py"):
        assert "unsafe path" in refusal({name: ANSWER})
    assert "the zip file is empty" in refusal({})
    assert "the zip file is empty" in refusal({"folder/": ""})
    monkeypatch.setattr(uploaded_files, "MAX_ARCHIVE_FILES", 3)
    assert "has 4 files, which is too many" in refusal({f"{number}.py": "" for number in range(4)})
    monkeypatch.setattr(uploaded_files, "MAX_ARCHIVE_BYTES", 1000)
    assert "more than 1,000 bytes when unpacked" in refusal({"bomb.py": "0" * 1001})
    assert "more than 400 bytes when unpacked" in refusal({"a.py": "0" * 600, "b.py": "0" * 401})
    for junk in (b"", b"PK\x03\x04junk", b"no zip at all", zip_bytes({"a.py": ANSWER})[:40]):
        (tmp_path / "junk.zip").write_bytes(junk)
        with pytest.raises(ValueError, match=r"junk\.zip: not a readable zip file"):
            read_upload(tmp_path / "junk.zip", tmp_path / "scratch")
    assert not list(tmp_path.glob("**/evil.py"))


def test_a_bad_upload_is_a_problem_of_its_student_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploaded_files, "MAX_UPLOAD_BYTES", 1000)
    encrypted = bytearray(zip_bytes({"a.py": ANSWER}))
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        encrypted[encrypted.index(signature) + offset] |= 1
    inner = zip_bytes({"attention.py": ANSWER})
    files: dict[str, str | bytes] = {
        "anna.zip": zip_bytes({"../a.py": ANSWER}),
        "bob.zip": zip_bytes({"a.py": "0" * 100_000}),
        "carl.zip": bytes(encrypted),
        "dora.zip": zip_bytes({"inner.zip": inner}),
        "eve.zip": zip_bytes({"a.py": ANSWER, "a.py/b.py": ANSWER}),
        "fred.py": ANSWER,
    }
    found = submissions_in(make_zip(tmp_path / "class.zip", files), tmp_path / "scratch")
    problems = {name: each.problem for name, each in found.items()}
    assert "unsafe path" in problems["anna"]
    assert "more than 1,000 bytes when unpacked" in problems["bob"]
    assert "encrypted" in problems["carl"]
    assert "contains another zip file, inner.zip" in problems["dora"]
    assert problems["eve"]
    assert problems["fred"] == ""


def test_names_in_archives(tmp_path: Path) -> None:
    """Names that are UTF-8 without being marked as such, in another encoding, invisible, or too long; and links."""
    path = tmp_path / "names.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("zoe-placeholder.py", "\u202eabc.py", "x" * 300 + ".py"):
            archive.writestr(name, ANSWER)
        link = zipfile.ZipInfo("link.py")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    unmarked = "zo\u00eb-placehold.py".encode()
    path.write_bytes(path.read_bytes().replace(b"zoe-placeholder.py", unmarked.ljust(18, b"_")[:-3] + b".py"))
    names = [str(file.name) for file in read_upload(path, tmp_path / "scratch")]
    assert any(name.startswith("zoë-placehold") for name in names)
    assert "\\u202eabc.py" in names
    assert all(len(name) < 256 for name in names)
    assert len(names) == 3
    legacy = tmp_path / "legacy.zip"
    make_zip(legacy, {"zXe.py": ANSWER})
    legacy.write_bytes(legacy.read_bytes().replace(b"zXe.py", b"z\x89e.py"))
    assert [str(file.name) for file in read_upload(legacy, tmp_path / "scratch2")] == ["zëe.py"]


def write_roster(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_text(text, encoding=encoding)
    return path


def test_class_lists_of_several_systems(tmp_path: Path) -> None:
    own = read_roster(write_roster(tmp_path / "a.csv", "id,name,email\n1,Ada Lovelace,ada@x.org\n\n"))
    assert [(each.id, each.name, each.email) for each in own.students] == [("1", "Ada Lovelace", "ada@x.org")]
    canvas_export = (
        "Student,ID,SIS User ID,SIS Login ID,Section,Homework 1 (11),Final Score\n"
        "    Points Possible,,,,,10,(read only)\n"
        '"Lovelace, Ada",4711,S1,ada,Lab 1,,90\n'
    )
    canvas = read_roster(write_roster(tmp_path / "b.csv", canvas_export, "utf-8-sig"))
    assert canvas.is_from_canvas
    assert not own.is_from_canvas
    assert [(each.id, each.sis_id, each.login) for each in canvas.students] == [("4711", "S1", "ada")]
    moodle = read_roster(
        write_roster(tmp_path / "c.csv", "Identifier;Full name;Email address\nParticipant 4711;Ada Lovelace;a@x.org\n")
    )
    assert [each.id for each in moodle.students] == ["4711"]
    gradescope = read_roster(write_roster(tmp_path / "d.csv", "First Name\tLast Name\tSID\nAda\tLovelace\t4711\n"))
    assert [(each.name, each.id) for each in gradescope.students] == [("Ada Lovelace", "4711")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: a class list has the columns id, name and email; found: nothing"),
        ("number,mail\n1,a@x.org\n", "line 1: .* found: number, mail"),
        ("id,name\n", "lists no students"),
        ("id,name\n1,Ada\n1,Bob\n", "lists the id 1 2 times"),
        ("id,name\n1,Ada\n2,\n", "line 3: the student has no name"),
        ("id,name\0\n", "not a text file"),
    ],
)
def test_class_lists_that_cannot_be_used(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        read_roster(write_roster(tmp_path / "bad.csv", text))
    (tmp_path / "latin.csv").write_bytes("id,name\n1,Zoë\n".encode("latin-1"))
    with pytest.raises(ValueError, match="is not encoded in UTF-8"):
        read_roster(tmp_path / "latin.csv")


def test_students_are_found_by_id_email_or_an_unambiguous_name(tmp_path: Path) -> None:
    lines = "1,Ada Lovelace,ada@x.org\n2,Grace Hopper,grace@x.org\n3,José de la Cruz,j@x.org\n4,Sam Kim,s1@x.org\n"
    roster = read_roster(
        write_roster(tmp_path / "r.csv", f"id,name,email\n{lines}5,Sam Kim,s2@x.org\n6,Alan Turing,\n")
    )
    path = Path("x.py")
    submissions = [
        Submission("somebody", path, id="1"),
        Submission("else", path, email="GRACE@X.ORG"),
        Submission("delacruzjosé", path, id="999", system="canvas"),
        Submission("Sam Kim", path),
        Submission("s2", path),
        Submission("Ada Lovelace", path),
    ]
    found = match_roster(submissions, roster)
    by_id = {student.id: each for student, each in found if student}
    assert [by_id[number].path for number in "12356"] == [path, path, path, path, None]
    assert by_id["6"].problem == NOTHING_HANDED_IN
    assert by_id["4"].path is None  # two students are called Sam Kim: neither gets the other's points
    assert [each.name for student, each in found if student is None] == ["Sam Kim", "Ada Lovelace"]
    assert name_keys("Lovelace, Ada") == name_keys("Ada LOVELACE")


@pytest.mark.parametrize("assignment", ["self-attention", "multi-head-self-attention", "decoder-lm"])
def test_different_solutions_are_not_similar(assignment: str) -> None:
    sources = {path.stem: path.read_text() for path in (SOLUTIONS / assignment).glob("*.py")}
    of = load_assignment(assignment)
    sources |= {"reference": of.reference, "starter": of.starter, "starter again": of.starter, "broken": "def ("}
    assert find_similar(sources, [of.starter]) == []


@pytest.mark.parametrize("assignment", ["multi-head-attention", "kv-cache"])
def test_disguised_copies_are_similar(assignment: str) -> None:
    sources = {path.stem: path.read_text() for path in (SOLUTIONS / assignment).glob("*.py")}
    original = sorted(sources)[0]
    copied = re.sub(r"\b(x|q|k|v|scores|weights|mask|attn|queries|keys|values|heads)\b", r"my_\1", sources[original])
    copied = re.sub(r"  #.*", "", copied).replace("return ", "return  ").replace("\n\n\n", "\n\n\n# my own work\n")
    assert copied != sources[original]
    pairs = find_similar(sources | {"copy": copied}, [load_assignment(assignment).starter])
    assert [set(pair.names) for pair in pairs] == [{original, "copy"}]
    assert not pairs[0].is_identical
    assert str(find_similar({"a": copied, "b": copied})[0]) == "identical"
    ring = {"a": sources[original], "b": copied, "c": copied.replace("softmax", "log_softmax")}
    assert len(find_similar(ring, [load_assignment(assignment).starter])) == 3


def result(name: str, **details: object) -> StudentResult:
    submission = Submission(name, Path(f"{name}.py"), **details)  # type: ignore[arg-type]
    return StudentResult(ClassMember(submission), None, "does not answer any assignment")


def rows_of(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text)))


def test_reports_name_similar_and_late_students() -> None:
    students = [result("anna", is_late=True), result("<bob>"), result("carl")]
    pairs = [SimilarPair(("anna", "<bob>"), 0.95)]
    rows = rows_of(as_csv(students, pairs))
    by_name = {row[0]: dict(zip(rows[0], row, strict=True)) for row in rows[1:]}
    assert by_name["anna"]["similar_to"] == "<bob> (95% the same)"
    assert by_name["carl"]["similar_to"] == ""
    assert [by_name[name]["late"] for name in ("anna", "carl")] == ["True", "False"]
    documents = as_json_list(students, pairs)
    assert [(document["late"], document["similar_to"]) for document in documents] == [
        (True, ["<bob> (95% the same)"]),
        (False, ["anna (95% the same)"]),
        (False, []),
    ]
    page = as_html(students, "class", pairs)
    assert "anna, &lt;bob&gt;</b>: 95% the same" in page
    assert "Nearly the same" not in as_html(students, "class")


def test_the_column_for_canvas_has_its_titles_and_ids(tmp_path: Path) -> None:
    rows = rows_of(as_canvas_csv([result("lovelaceada", id="4711", system="canvas")], "Homework 1"))
    assert rows[0] == ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "Homework 1"]
    assert rows[1][0].strip() == "Points Possible"
    assert rows[2] == ["lovelaceada", "4711", "", "", "", ""]
    text = 'Student,ID,SIS User ID,SIS Login ID,Section,Homework 1 (11)\n"Lovelace, Ada",4711,S1,ada,Lab 1,\n'
    roster = read_roster(write_roster(tmp_path / "export.csv", text))
    student = ClassMember(Submission("Lovelace, Ada", Path("x.py")), roster.students[0])
    unknown = ClassMember(Submission("nobody", Path("y.py")))
    rows = rows_of(as_canvas_csv([StudentResult(student, None), StudentResult(unknown, None)], "Homework 1", roster))
    assert rows == [[*rows[0][:5], "Homework 1 (11)"], ["Lovelace, Ada", "4711", "S1", "ada", "Lab 1", ""]]
    own = Roster(read_roster(write_roster(tmp_path / "own.csv", "id,name,email\nS7,Ada,ada@x.org\n")).students)
    member = ClassMember(Submission("Ada", Path("x.py"), id="4711", system="canvas"), own.students[0])
    assert rows_of(as_canvas_csv([StudentResult(member, None)], "H (1)", own))[1][:4] == [
        "Ada",
        "4711",
        "S7",
        "ada@x.org",
    ]


def test_feedback_files_have_safe_and_distinct_names() -> None:
    students = [result("Sam/../Kim"), result("Sam/../Kim"), result("..", is_late=True), result("x" * 300)]
    missing = StudentResult(ClassMember(Submission("gone", None)), None, NOTHING_HANDED_IN)
    files = dict(feedback_files([*students, missing]))
    assert len(files) == 4
    for name in files:
        assert PurePosixPath(name).name == name
        assert len(os.fsencode(name)) < 255
    assert "does not answer any assignment" in next(iter(files.values()))
    assert "Handed in late." in files["student.txt"]


@pytest.mark.slow
def test_a_downloaded_class_is_graded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = (SOLUTIONS / "self-attention" / "bmm.py").read_text()
    split = "from helpers import average\n" + right.replace("torch.bmm(", "average(")
    assert split.count("average(") > 0
    files = {
        "lovelaceada_4711_1_attention.py": right.replace("return", "return 2 *"),
        "lovelaceada_4711_2_attention-1.py": right,
        "hoppergrace_LATE_4712_3_attention.py": split,
        "hoppergrace_LATE_4712_4_helpers-2.py": "import torch\n\naverage = torch.bmm\n",
    }
    make_zip(tmp_path / "submissions.zip", files)
    lines = ["id,name,email", "4711,Ada Lovelace,ada@x.org", "4712,Grace Hopper,g@x.org", "4713,Alan Turing,"]
    write_roster(tmp_path / "class.csv", "\n".join(lines))
    monkeypatch.chdir(tmp_path)
    outputs = ["--roster", "class.csv", "--canvas", "Homework (9)", "--feedback", "--csv", "--out", "out"]
    done = CliRunner().invoke(app, ["check", "submissions.zip", "--jobs", "2", *outputs])
    assert done.exit_code == 1, done.output
    assert "Correct solutions: 2 of 3" in done.output
    assert "not handed in: 1" in done.output
    points = {row[0]: row[5] for row in rows_of((tmp_path / "out" / "canvas.csv").read_text())}
    assert set(points) == {"Student", "Ada Lovelace", "Grace Hopper", "Alan Turing"}
    assert (points["Student"], points["Alan Turing"]) == ("Homework (9)", "")
    assert float(points["Ada Lovelace"]) > 0
    feedback = (tmp_path / "out" / "feedback" / "lovelaceada_4711_2_feedback.txt").read_text()
    assert feedback.startswith("Ada Lovelace: lovelaceada_4711_2_attention-1.py\nPoints: ")
    assert "Handed in late." in (tmp_path / "out" / "feedback" / "hoppergrace_LATE_4712_3_feedback.txt").read_text()
