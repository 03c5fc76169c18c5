"""What `regard course test` checks about an assignment, so that an author finds slips before a class does."""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from regard.course.assignment import Assignment, Variant, load_assignments, read_assignment
from regard.course.check import UnknownAssignmentError, check, identify_assignment
from regard.course.diagnose import Diagnosis, diagnose
from regard.course.mistake_catalogue import load_catalogue
from regard.course.nbgrader_notebook import as_nbgrader_notebook
from regard.course.notebook_writer import as_notebook
from regard.course.numeric_equality import same_probe
from regard.course.observe import EXAMPLE, SolutionRun, observe
from regard.course.solution_file import Solution, read_solution
from regard.course.unfinished import find_gaps
from regard.errors import RegardError

Problems = Iterator[str]


@dataclass
class PartResult:
    """The result of one check."""

    title: str
    problems: list[str] = field(default_factory=list)


def assignment_folders(path: Path) -> list[Path]:
    """The folder of an assignment, or those of all assignments of a course."""
    if (path / "assignment.toml").is_file():
        return [path]
    folders = sorted(file.parent for file in path.glob("*/assignment.toml"))
    if not folders:
        raise RegardError(f"{path} is neither an assignment nor a course: there is no assignment.toml in it")
    return folders


def examine_assignment(folder: Path) -> Iterator[PartResult]:
    """Check an assignment, part by part. If its files cannot be read, that is the only result."""
    folder = folder.resolve()
    files = PartResult("files")
    try:
        assignment = read_assignment(folder)
        _ = assignment.reference, assignment.starter, assignment.variants, assignment.probes
        catalogue = load_catalogue(folder.parent)
        reference = observe(assignment.reference, assignment)
    except RegardError as error:
        files.problems.append(str(error))
        yield files
        return
    yield files
    examination = Examination(assignment, reference)
    parts: list[tuple[str, Callable[[], Problems]]] = [
        ("reference", examination.reference_problems),
        ("points", examination.point_problems),
        ("stages", examination.stage_problems),
        ("starter", examination.starter_problems),
        (f"{len(assignment.variants)} variants", lambda: examination.variant_problems(set(catalogue))),
        (f"{len(assignment.solutions)} other solutions", examination.solution_problems),
        ("notebook", examination.notebook_problems),
        ("points of the reference", examination.score_problems),
    ]
    for title, find_problems in parts:
        result = PartResult(title)
        try:
            result.problems.extend(find_problems())
        except RegardError as error:
            result.problems.append(str(error))
        yield result
        if title == "reference" and result.problems:
            return  # nothing can be compared with it


@dataclass(frozen=True)
class Examination:
    """The checks of one assignment."""

    assignment: Assignment
    reference: SolutionRun

    def reference_problems(self) -> Problems:
        """The reference runs in all probes, and gives the same values each time."""
        folder, probes = self.assignment.folder, self.assignment.probes
        if EXAMPLE not in probes:
            yield f"{folder / 'probes.py'} has no probe called {EXAMPLE}, which is shown to students"
        for probe, failure in self.reference.failures.items():
            where = f"reference.py, line {failure.line}" if failure.line else "probes.py"
            while_running = f", in the probe {probe}" if probe else ""
            yield f"{folder}/{where}{while_running}: {failure.kind}: {failure.message}"
        again = observe(self.assignment.reference, self.assignment)
        for probe in self.reference.values:
            if not self.reference.values[probe]:
                yield f"probe {probe} returns no values"
            elif not same_probe(again, self.reference, probe):
                yield f"probe {probe} gives other values each time: return properties of random results as booleans"

    def point_problems(self) -> Problems:
        """Each probe has points, and the points are for probes."""
        path, points = self.assignment.folder / "assignment.toml", self.assignment.points
        for probe in self.assignment.probes:
            if probe not in points:
                yield f"{path}: [points] has no entry for the probe {probe}"
        for name, number in points.items():
            if name not in self.assignment.probes:
                yield f"{path}: [points] has an entry for {name}, which is not a probe"
            if number < 0:
                yield f"{path}: {name} has negative points"
        if sum(points.values()) <= 0:
            yield f"{path}: there are no points to be earned"

    def stage_problems(self) -> Problems:
        """The stages are variables of the reference in the example, in their order, and are described."""
        path, traced = self.assignment.folder / "assignment.toml", self.reference.traced
        for stage in self.assignment.stages:
            if not any(tensor.name.split("[")[0] == stage for tensor in traced):
                yield f"{path}: the stage {stage} is not a tensor that the reference assigns in the example"
        for stage in self.assignment.stage_descriptions:
            if stage not in self.assignment.stages:
                yield f"{path}: [says] describes {stage}, which is not a stage"
        for name, size in self.assignment.sizes.items():
            if size < 1:
                yield f"{path}: [sizes] has {name} = {size}, which is not a size"

    def starter_problems(self) -> Problems:
        """The starter defines all names with gaps, and is recognised as this assignment."""
        path, starter = self.assignment.folder / "starter.py", Solution(self.assignment.starter)
        if starter.syntax_error is not None:
            line, message = starter.syntax_error
            yield f"{path}, line {line}: SyntaxError: {message}"
            return
        for source, names in ((path, starter.names), (path.with_name("reference.py"), self._reference_names)):
            for name in self.assignment.defines:
                if name not in names:
                    yield f"{source} does not define {name}, which assignment.toml lists under defines"
        if not find_gaps(starter.source):
            yield f"{path} has no gap: end each part to be written with raise NotImplementedError"
        if self._diagnose(starter).passed:
            yield f"{path} passes all probes: there is nothing left to write"
        try:
            found = identify_assignment(starter.names, load_assignments(self.assignment.folder.parent), path)
            if found.name != self.assignment.name:
                yield f"{path} is recognised as the assignment {found.name}, which defines the same names"
        except UnknownAssignmentError as error:
            yield str(error)

    def variant_problems(self, known: set[str]) -> Problems:
        """Each variant is valid, has a text in the catalogue, and is named exactly."""
        path = self.assignment.folder / "variants.toml"
        for number, variant in enumerate(self.assignment.variants, 1):
            where = f"{path}, variant {number}, {variant.mistake}"
            if variant.mistake not in known:
                yield f"{where}: no mistakes.toml describes this mistake"
            try:
                solution = Solution(variant.applied_to(self.assignment.reference))
            except RegardError as error:
                yield f"{where}: {error}"
                continue
            if solution.syntax_error is not None:
                yield f"{where}: its edits leave code that is not valid Python: {solution.syntax_error[1]}"
            elif problem := self._variant_problem(variant, solution):
                yield f"{where}: {problem}"

    def solution_problems(self) -> Problems:
        """Other correct solutions pass."""
        for path in self.assignment.solutions:
            solution = read_solution(path)
            diagnosis = self._diagnose(solution)
            if not diagnosis.passed:
                yield f"{path} should pass, but {_describe(diagnosis)}"

    def notebook_problems(self) -> Problems:
        """The notebook can be written, its code is valid, and with the reference's code in it, it passes."""
        path = self.assignment.story
        with tempfile.TemporaryDirectory() as folder:
            notebook = Path(folder) / "notebook.ipynb"
            notebook.write_text(as_notebook(self.assignment.starter, path), encoding="utf-8")
            solution = read_solution(notebook)
            if solution.syntax_error is not None:
                line, message = solution.syntax_error
                yield f"{path}: {solution.where(line)}: SyntaxError: {message}"
                return
            solved = {"nbgrader's notebook": as_nbgrader_notebook(self.assignment)}
            if path.is_file():
                solved[f"{path}, with the reference's code in it,"] = as_notebook(self.assignment.reference, path)
            for name, text in solved.items():
                notebook.write_text(text, encoding="utf-8")
                diagnosis = self._diagnose(read_solution(notebook))
                if not diagnosis.passed:
                    yield f"{name} should pass, but {_describe(diagnosis)}"

    def score_problems(self) -> Problems:
        """The reference, checked as a student's file, gets all points."""
        folder = self.assignment.folder
        report = check(folder / "reference.py", self.assignment.name, folder.parent)
        for name, (scored, possible) in report.marks.items():
            if scored < possible:
                yield f"{folder / 'reference.py'} gets {scored:g} of {possible:g} points for {name}"

    @property
    def _reference_names(self) -> frozenset[str]:
        return Solution(self.assignment.reference).names

    def _diagnose(self, solution: Solution) -> Diagnosis:
        run = observe(solution.source, self.assignment, cells=solution.cells)
        return diagnose(run, self.assignment, solution.source)

    def _variant_problem(self, variant: Variant, solution: Solution) -> str | None:
        diagnosis = self._diagnose(solution)
        if diagnosis.passed:
            return "no probe notices it: add a probe, or choose inputs for which the values differ"
        if others := sorted(set(diagnosis.possible) - {variant.mistake}):
            return f"gives the same values as {', '.join(others)}: choose inputs that tell them apart"
        if [mistake.id for mistake in diagnosis.mistakes] != [variant.mistake]:
            return f"is not named: {_describe(diagnosis)}"
        return None


def _describe(diagnosis: Diagnosis) -> str:
    """Why a solution does not pass, in a few words."""
    if diagnosis.mistakes:
        return f"has the mistake {', '.join(mistake.id for mistake in diagnosis.mistakes)}"
    if diagnosis.failures:
        probe, failure = next(iter(diagnosis.failures.items()))
        line = f"line {failure.line}: " if failure.line else ""
        return f"fails{f' in the probe {probe}' if probe else ''}: {line}{failure.kind}: {failure.message}"
    return "gives other values than the reference, for a reason that is not known"
