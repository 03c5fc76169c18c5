"""The wheel and the sdist: their content, and every command in an environment that contains nothing else.

`pip` needs an index with the packages in constraints.txt. Set CONSTRAINTS to install other versions.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import urllib.request
import venv
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer

import regard
from regard.cli import app
from regard.models import BUNDLED_MODELS

pytestmark = pytest.mark.long
pytest.importorskip("hatchling")

ROOT = Path(__file__).parent.parent
CONSTRAINTS = Path(os.environ.get("CONSTRAINTS", ROOT / "constraints.txt")).resolve()
EXTRAS = ("course", "plot", "serve")
SENTENCE, TRANSLATION = "Si j'avais su, je ne serais pas venu.", "If I'd known, I wouldn't have come."
SMALL_RUN = (
    *("--set", "train.steps=3", "--set", "train.batch_tokens=200", "--set", "train.validation_sentences=4"),
    *("--set", "data.petit=300", "--set", "tokenizer.vocab_size=400", "--set", "model.d_model=16"),
)
TIMEOUT_SECONDS = 600
MAX_WHEEL_MEGABYTES = 60


def build(source: Path, out: Path, *targets: str) -> None:
    options = [part for target in targets for part in ("-t", target)]
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", *options, "-d", out], cwd=source, check=True, capture_output=True
    )


@dataclass(frozen=True)
class Distributions:
    wheel: Path
    sdist: Path


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    out = tmp_path_factory.mktemp("dist")
    build(ROOT, out, "sdist", "wheel")
    [wheel], [sdist] = out.glob("*.whl"), out.glob("*.tar.gz")
    return Distributions(wheel, sdist)


def project_files() -> set[str]:
    """The files of the project: those that git tracks or would track."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("this is not a git repository")
    return {name for name in listed.stdout.splitlines() if (ROOT / name).is_file()}


def wheel_files(wheel: Path) -> dict[str, str]:
    """The SHA-256 digest of each file of a wheel, without its metadata."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name]
        return {name: hashlib.sha256(archive.read(name)).hexdigest() for name in names}


# Content


def test_the_wheel_contains_the_package_and_nothing_else(distributions: Distributions) -> None:
    assert wheel_files(distributions.wheel).keys() == {name for name in project_files() if name.startswith("regard/")}


def test_the_wheel_has_the_size_that_the_readme_states(distributions: Distributions) -> None:
    megabytes = distributions.wheel.stat().st_size / 1e6
    assert megabytes < MAX_WHEEL_MEGABYTES
    assert f"The wheel is {megabytes:.0f} MB" in " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())


def test_the_sdist_contains_every_file_of_the_project(distributions: Distributions) -> None:
    with tarfile.open(distributions.sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive.getmembers()}
    assert names == project_files() | {"PKG-INFO"}


def test_a_wheel_built_from_the_sdist_is_the_same(distributions: Distributions, tmp_path: Path) -> None:
    with tarfile.open(distributions.sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    [source] = tmp_path.iterdir()
    build(source, tmp_path / "dist", "wheel")
    [wheel] = (tmp_path / "dist").glob("*.whl")
    assert wheel_files(wheel) == wheel_files(distributions.wheel)


def test_the_metadata_is_valid(distributions: Distributions) -> None:
    from packaging.metadata import Metadata

    with zipfile.ZipFile(distributions.wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = Metadata.from_email(archive.read(name), validate=True)
    assert metadata.name == "regard"
    assert str(metadata.version) == regard.__version__
    assert metadata.description_content_type == "text/markdown"
    assert metadata.description == (ROOT / "README.md").read_text(encoding="utf-8")
    assert metadata.license_expression == "Apache-2.0"
    assert "Operating System :: POSIX :: Linux" in (metadata.classifiers or [])


# Commands


@dataclass(frozen=True)
class Environment:
    """A virtual environment, and an empty folder in which its commands run."""

    folder: Path
    work: Path

    def variables(self) -> dict[str, str]:
        """Variables without the repository, the user's packages or the developer's settings."""
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "LD_LIBRARY_PATH") if name in os.environ}
        fixed = {"HOME": str(self.work), "PYTHONNOUSERSITE": "1", "OMP_NUM_THREADS": "1", "COLUMNS": "120"}
        return kept | fixed

    def install(self, *requirements: str) -> None:
        command = [str(self.folder / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        pip_variables = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        done = subprocess.run(
            [*command, "--constraint", str(CONSTRAINTS), *requirements],
            cwd=self.work,
            env=self.variables() | {"HOME": os.environ.get("HOME", "/")} | pip_variables,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    def regard(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.folder / "bin/regard", *arguments],
            cwd=self.work,
            env=self.variables(),
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_SECONDS,
        )

    def succeeds(self, *arguments: str) -> str:
        """What a command prints that ends with status 0."""
        done = self.regard(*arguments)
        assert done.returncode == 0, f"{arguments}: {done.stdout} {done.stderr}"
        return done.stdout

    def refuses(self, *arguments: str) -> str:
        """The one line with which a command ends with status 2."""
        done = self.regard(*arguments)
        assert done.returncode == 2, f"{arguments}: {done.stdout} {done.stderr}"
        [line] = done.stderr.splitlines()
        return line


@pytest.fixture(scope="module")
def empty_environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    return Environment(folder, tmp_path_factory.mktemp("work"))


@pytest.fixture(scope="module")
def without_extras(empty_environment: Environment, distributions: Distributions) -> dict[str, str]:
    """What commands printed when only the wheel and its required packages were installed."""
    environment, work = empty_environment, empty_environment.work
    environment.install(str(distributions.wheel))
    printed = {"version": environment.succeeds("--version")}
    program = "import regard, sys; print(regard.__file__); print(*sys.modules)"
    done = subprocess.run(
        [environment.folder / "bin/python", "-I", "-c", program], cwd=work, capture_output=True, text=True, check=True
    )
    printed["import"] = done.stdout
    for name in command_names():
        printed[f"{name} --help"] = environment.succeeds(*name.split(), "--help")
    printed["models"] = environment.succeeds("models")
    printed["translate"] = environment.succeeds("translate", SENTENCE)
    printed["attend"] = environment.succeeds("attend", "Le chat dort.", "--html", "a.html", "--json", "a.json")
    printed["attend --png"] = environment.refuses("attend", "Le chat dort.", "--png", "a.png")
    (work / "test.fr").write_text(f"{SENTENCE}\nIl est tard.\n", encoding="utf-8")
    (work / "test.en").write_text(f"{TRANSLATION}\nIt's late.\n", encoding="utf-8")
    printed["evaluate"] = environment.succeeds("evaluate", "fr-en", "test.fr", "test.en")
    texts = ("--source", "test.fr", "--reference", "test.en")
    printed["compare"] = environment.succeeds("compare", "fr-en", "petit-fr-en", *texts)
    printed["course list"] = environment.succeeds("course", "list")
    printed["course start"] = environment.succeeds("course", "start", "self-attention")
    done = environment.regard("check", "self_attention.py")
    assert done.returncode == 1, done.stderr
    printed["check"] = done.stdout
    printed["lab"] = environment.succeeds("lab")
    printed["lab scaling"] = environment.refuses("lab", "scaling")
    printed["serve"] = environment.refuses("serve", "--port", "0")
    printed["data petit"] = environment.succeeds("data", "petit", "--pairs", "1000", "--out", "petit")
    printed["data check"] = environment.succeeds("data", "check", "petit")
    printed["train"] = environment.succeeds("train", "petit-fr-en", "--out", "run", *SMALL_RUN)
    printed["report"] = (work / "run/report.md").read_text(encoding="utf-8")
    environment.succeeds("train", "petit-lm", "--out", "writer", *SMALL_RUN)
    printed["generate"] = environment.succeeds("generate", "Le", "--model", "writer", "--max-tokens", "3")
    printed["verify"] = environment.succeeds("verify", "petit-fr-en")
    printed["export"] = environment.succeeds("export", "petit-fr-en", "hf", "--to", "huggingface")
    printed["export ct2"] = environment.refuses("export", "petit-fr-en", "ct2", "--to", "ctranslate2")
    return printed


def command_names() -> list[str]:
    """Every command, with the subcommands of a group."""
    names: list[str] = []
    for name, command in typer.main.get_group(app).commands.items():
        subcommands = getattr(command, "commands", {})
        names += [name, *(f"{name} {subcommand}" for subcommand in subcommands)]
    return names


@pytest.fixture(scope="module")
def with_extras(
    empty_environment: Environment, distributions: Distributions, without_extras: dict[str, str]
) -> Environment:
    """The same environment after the extras are installed, which must not be earlier."""
    assert without_extras
    empty_environment.install(f"{distributions.wheel}[{','.join(EXTRAS)}]")
    return empty_environment


def test_the_package_is_imported_from_the_environment(
    without_extras: dict[str, str], empty_environment: Environment
) -> None:
    path, modules = without_extras["import"].splitlines()
    assert Path(path).is_relative_to(empty_environment.folder)
    assert "torch" not in modules.split()
    assert without_extras["version"] == f"regard {regard.__version__}\n"


def test_every_command_has_help(without_extras: dict[str, str]) -> None:
    assert {"demo", "train", "translate", "course start", "data petit"} <= set(command_names())
    for name in command_names():
        assert f"regard {name}" in without_extras[f"{name} --help"]


def test_bundled_models_work(without_extras: dict[str, str], empty_environment: Environment) -> None:
    assert set(BUNDLED_MODELS) <= set(without_extras["models"].split())
    assert without_extras["translate"].strip() == TRANSLATION
    assert "All checks pass." in without_extras["verify"]
    assert "BLEU" in without_extras["evaluate"]
    assert "BLEU" in without_extras["compare"]
    work = empty_environment.work
    assert json.loads((work / "a.json").read_text(encoding="utf-8"))
    assert (work / "a.html").stat().st_size > 10_000
    assert (work / "hf/model.safetensors").is_file()


def test_training_works_with_bundled_recipes(without_extras: dict[str, str], empty_environment: Environment) -> None:
    assert "train.fr" in {path.name for path in (empty_environment.work / "petit").iterdir()}
    assert (empty_environment.work / "run/model.safetensors").is_file()
    assert without_extras["generate"].strip()
    assert "`pip install 'regard[plot]'`" in without_extras["report"]
    assert not (empty_environment.work / "run/curves.png").exists()


def test_course_and_labs_are_bundled(without_extras: dict[str, str]) -> None:
    assert "kv-cache" in without_extras["course list"]
    assert "self_attention.py" in without_extras["course start"]
    assert "scaling" in without_extras["lab"]


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("attend --png", "plot"),
        ("lab scaling", "plot"),
        ("serve", "serve"),
        ("export ct2", "interop"),
        ("check", "course"),
    ],
)
def test_a_command_names_the_extra_that_it_needs(without_extras: dict[str, str], command: str, extra: str) -> None:
    assert f"pip install 'regard[{extra}]'" in " ".join(without_extras[command].split())


def test_commands_that_need_an_extra_work_with_it(with_extras: Environment) -> None:
    work = with_extras.work
    with_extras.succeeds("lab", "scaling", "--out", "scaling")
    assert (work / "scaling/scaling.png").is_file()
    with_extras.succeeds("attend", "Le chat dort.", "--png", "heads.png")
    assert (work / "heads.png").read_bytes().startswith(b"\x89PNG")
    checked = with_extras.regard("check", "self_attention.py")
    assert checked.returncode == 1
    assert "regard[course]" not in checked.stdout


@pytest.fixture
def address(with_extras: Environment) -> Iterator[str]:
    """The address of a server with the bundled models."""
    log = with_extras.work / "serve.log"
    with log.open("w") as file:
        server = subprocess.Popen(
            [with_extras.folder / "bin/regard", "serve", "--port", "0"],
            cwd=with_extras.work,
            env=with_extras.variables() | {"PYTHONUNBUFFERED": "1"},
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    try:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not (found := re.search(r"http://127\.0\.0\.1:\d+", log.read_text())):
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        yield found[0]
    finally:
        server.terminate()
        server.wait(TIMEOUT_SECONDS)
    assert server.returncode == 0


def test_the_server_translates_and_serves_its_page(address: str) -> None:
    body = json.dumps({"q": SENTENCE, "source": "fr", "target": "en"}).encode()
    request = urllib.request.Request(f"{address}/translate", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
        assert json.load(response)["translatedText"] == TRANSLATION
    for path in ("/", "/labs/scaling.png"):
        with urllib.request.urlopen(address + path, timeout=TIMEOUT_SECONDS) as response:
            assert response.read()


def test_the_sdist_installs_the_same_files(
    empty_environment: Environment, distributions: Distributions, without_extras: dict[str, str]
) -> None:
    assert without_extras
    empty_environment.install("--no-deps", "--force-reinstall", str(distributions.sdist))
    [package] = empty_environment.folder.glob("lib/python*/site-packages/regard")
    for cache in package.rglob("__pycache__"):
        shutil.rmtree(cache)
    files = [path for path in package.rglob("*") if path.is_file()]
    digests = {f"regard/{path.relative_to(package)}": hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    assert digests == wheel_files(distributions.wheel)
    assert empty_environment.succeeds("translate", SENTENCE).strip() == TRANSLATION
