"""Version, dates and supported packages are the same wherever they are stated."""

import re
import tomllib
from datetime import date
from pathlib import Path

import pytest

import regard
from regard.course.solution_process import Limits

ROOT = Path(__file__).parent.parent


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def versions_in_changelog() -> list[tuple[str, str]]:
    """The released versions with their dates, newest first."""
    return re.findall(r"^## \[(\d+\.\d+\.\d+)\] - (\d{4}-\d{2}-\d{2})$", text("CHANGELOG.md"), re.M)


def torch_bounds() -> str:
    project = tomllib.loads(text("pyproject.toml"))["project"]
    [bounds] = [requirement for requirement in project["dependencies"] if requirement.startswith("torch")]
    return str(bounds)


def test_the_newest_section_of_the_changelog_is_this_version() -> None:
    versions = versions_in_changelog()
    assert versions[0][0] == regard.__version__
    dates = [date.fromisoformat(day) for _, day in versions]
    assert dates == sorted(dates, reverse=True)
    headings = re.findall("^## .*", text("CHANGELOG.md"), re.M)
    assert headings[0] == "## [Unreleased]"
    assert len(headings) == len(versions) + 1


def test_the_package_takes_its_version_from_the_code() -> None:
    settings = tomllib.loads(text("pyproject.toml"))
    assert settings["project"]["dynamic"] == ["version"]
    assert "version" not in settings["project"]
    assert settings["tool"]["hatch"]["version"]["path"] == "regard/__init__.py"


def test_the_citation_and_the_security_policy_name_this_version() -> None:
    yaml = pytest.importorskip("yaml")
    citation = yaml.safe_load(text("CITATION.cff"))
    assert (citation["version"], str(citation["date-released"])) == versions_in_changelog()[0]
    assert citation["license"] == tomllib.loads(text("pyproject.toml"))["project"]["license"]
    assert f"The current one is {regard.__version__}." in text("SECURITY.md")


def test_the_security_policy_states_the_limits_of_the_checker() -> None:
    limits = Limits()
    policy = " ".join(text("SECURITY.md").split())
    assert (
        f"limits on processor time ({limits.seconds} s), time ({limits.patience * limits.seconds} s), "
        f"memory ({limits.memory / 1e9:g} GB more than torch needs), output ({limits.output / 1e6:g} MB), "
        f"size of each written file ({limits.file_bytes / 1e6:g} MB) and number of processes ({limits.processes}), "
        f"and on all written files together ({limits.files} files, {limits.folder_bytes / 1e6:g} MB)"
    ) in policy
    for name in re.findall(r"`(tests/[\w/]+\.py)`", policy):
        assert (ROOT / name).is_file()


def test_the_documents_give_the_bounds_of_torch() -> None:
    for name in ("README.md", "RELEASING.md"):
        assert f"pip install '{torch_bounds()}' --index-url https://download.pytorch.org/whl/cpu" in text(name)


def test_ci_covers_every_supported_python_and_both_ends_of_torch() -> None:
    yaml = pytest.importorskip("yaml")
    workflow = yaml.safe_load(text(".github/workflows/ci.yml"))
    matrix = workflow["jobs"]["test"]["strategy"]["matrix"]
    classifiers = tomllib.loads(text("pyproject.toml"))["project"]["classifiers"]
    found = (re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", classifier) for classifier in classifiers)
    assert matrix["python"] == [match[1] for match in found if match]
    [(lowest, bound)] = re.findall(r"torch>=(\d+\.\d+),<2\.(\d+)", torch_bounds())
    assert matrix["torch"] == [f"{lowest}.0", f"2.{int(bound) - 1}.0"]
    assert f"torch=={matrix['torch'][-1]}" in text("constraints.txt").splitlines()
    assert workflow["permissions"] == {"contents": "read"}
    commands = [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]
    assert ".ci/run" in commands
    files = {name for command in commands for name in re.findall(r"(?:tests/\w+\.py|\.ci/run)", command)}
    assert all((ROOT / name).is_file() for name in files)
    targets = {name for command in commands for name in re.findall(r"make (\S+)", command)}
    assert all(re.search(rf"^{re.escape(target)}:", text("Makefile"), re.M) for target in targets)


def test_pre_commit_uses_the_tools_of_the_environment() -> None:
    yaml = pytest.importorskip("yaml")
    settings = yaml.safe_load(text(".pre-commit-config.yaml"))
    [local] = [repository for repository in settings["repos"] if repository["repo"] == "local"]
    assert [hook["entry"].split()[0] for hook in local["hooks"]] == [
        ".venv/bin/ruff",
        ".venv/bin/ruff",
        ".venv/bin/mypy",
    ]
    excluded = re.compile(settings["exclude"])
    for name in ("regard/models/fr-en/config.json", "tests/storage/version_0_1/dev.fr", "tests/petit/petit_pairs.tsv"):
        assert (ROOT / name).is_file()
        assert excluded.search(name)
    assert not excluded.search("regard/models.py")


@pytest.mark.parametrize(
    "name", ["README.md", "CONTRIBUTING.md", "RELEASING.md", "SECURITY.md", "CHANGELOG.md", "docs/contributing.md"]
)
def test_links_lead_to_files_and_headings(name: str) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text(name)):
        path, _, heading = target.partition("#")
        file = (ROOT / name).parent / path if path else ROOT / name
        assert file.exists(), target
        if heading and not re.fullmatch(r"L\d+", heading):
            titles = re.findall(r"^#+ (.*)", file.read_text(encoding="utf-8"), re.M)
            anchors = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
            assert heading in anchors, target
