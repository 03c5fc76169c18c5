"""`regard translate`, `generate` and `verify` as users run them: arguments, files, pipes, terminals and errors."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard import models
from regard.cli import model_loading
from regard.cli.language_check import warn_of_rows
from regard.evaluation import verify as module
from tests.support.commands import command, refused
from tests.support.text_models import ANSWERS, TEXTS, random_model

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("without_type_checks")]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A translator with a different output for each text."""
    model = random_model()
    model.network.float()
    folder = tmp_path_factory.mktemp("models") / "pair"
    model.save(folder)
    return str(folder)


@pytest.fixture(scope="module")
def language(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A language model."""
    model = random_model(kind="decoder")
    model.network.float()
    folder = tmp_path_factory.mktemp("models") / "language"
    model.save(folder)
    return str(folder)


@contextmanager
def process(*arguments: str, **options: object) -> Iterator[subprocess.Popen[bytes]]:
    """Start a separate process that is killed after the test."""
    command = [sys.executable, "-m", "regard", *arguments]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    with subprocess.Popen(command, **pipes) as running:  # type: ignore[call-overload]
        try:
            yield running
        finally:
            running.kill()


def expected(folder: str, texts: list[str], **options: Any) -> list[str]:
    return [re.sub(r"[\r\n]+", " ", text) for text in regard.load(folder).translate(texts, max_tokens=6, **options)]


QUICK = ("--max-tokens", "6", "--precision", "float32")


def test_texts_as_arguments(pair: str) -> None:
    done = command("translate", *TEXTS, "--model", pair, *QUICK)
    assert done.exit_code == 0, done.output
    assert done.stdout.split("\n") == [*expected(pair, TEXTS), ""]
    greedy = command("translate", *TEXTS, "--model", pair, *QUICK, "--beam", "1")
    assert greedy.stdout.split("\n") == [*expected(pair, TEXTS, beam=1), ""]


def test_translating_a_file_to_a_file(pair: str, tmp_path: Path) -> None:
    """BOM and CRLF are removed, U+2028 is not a line end, and blank lines are kept."""
    source, target = tmp_path / "in.fr", tmp_path / "out.en"
    odd = f"{TEXTS[2]}\u2028{TEXTS[3]}"
    source.write_bytes(b"\xef\xbb\xbf" + f"{TEXTS[0]}\r\n\n{odd}\n{TEXTS[1]}".encode())
    done = command("translate", "--model", pair, "--input", str(source), "--output", str(target), *QUICK)
    assert (done.exit_code, done.output) == (0, "")
    wanted = expected(pair, [TEXTS[0], "", odd, TEXTS[1]])
    assert target.read_bytes().decode().split("\n") == [*wanted, ""]


def test_a_few_texts_run_on_one_thread_unless_the_model_is_large(pair: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    try:
        for limit, few, expected in ((10**9, True, 1), (0, True, 2), (10**9, False, 2)):
            monkeypatch.setattr(model_loading, "MAX_ONE_THREAD_PARAMETERS", limit)
            torch.set_num_threads(2)
            model_loading.load_model(pair, "cpu", few)
            assert torch.get_num_threads() == expected, (limit, few)
    finally:
        torch.set_num_threads(before)


def test_stdin_is_translated_in_order(pair: str) -> None:
    lines = [TEXTS[i % len(TEXTS)] if i % 7 else "" for i in range(45)]
    done = command("translate", "--model", pair, *QUICK, stdin="\n".join(lines))
    assert done.stdout.split("\n") == [*expected(pair, lines), ""]


ENGLISH = ["Hello, how are you?", "Where is the station?", "He has never been to this city."]
FRENCH = ["Le chat dort sur la table.", "Où est-ce que vous allez ?", "Il n'est jamais venu dans cette ville."]


def test_text_in_another_language_is_translated_with_a_warning(tmp_path: Path) -> None:
    done = command("translate", ENGLISH[0], *QUICK)
    assert done.exit_code == 0
    assert done.stdout.strip()
    warning = "warning: the text looks like English, but this model translates from French"
    assert warning in done.stderr
    assert "use --from en --to fr" in done.stderr
    done = command("translate", "Wo ist der Bahnhof?", *QUICK)
    assert "looks like German" in done.stderr
    assert "no bundled model translates from it" in done.stderr
    done = command("translate", FRENCH[0], "--to", "fr", *QUICK)
    assert "looks like French" in done.stderr
    assert "use --from fr --to en" in done.stderr
    done = command("translate", *FRENCH, *ENGLISH, "--model", "petit-fr-en", *QUICK)
    assert done.stderr.count(warning) == 1
    assert "--from" not in done.stderr  # the model was chosen by name


@pytest.mark.parametrize("as_job", [False, True])
def test_the_language_of_a_file_is_that_of_most_lines(as_job: bool, tmp_path: Path) -> None:
    def stderr(lines: list[str]) -> str:
        source = tmp_path / "input.txt"
        source.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        output = ["--output", str(tmp_path / "output.txt")] if as_job else []
        done = command("translate", "--input", str(source), "--model", "petit-fr-en", *QUICK, *output)
        assert done.exit_code == 0
        return done.stderr

    assert stderr([*FRENCH * 2, *ENGLISH]) == ""
    assert stderr([*FRENCH * 11, *ENGLISH * 20]) == ""
    for lines in (ENGLISH, ENGLISH * 20, [*ENGLISH, FRENCH[0]]):
        assert stderr(lines).count("the text looks like English") == 1


def test_the_language_of_a_job_is_the_one_that_was_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    warn_of_rows("petit-fr-en", "en", False, ENGLISH)  # as with a multilingual model and --from en
    assert capsys.readouterr().err == ""
    warn_of_rows("petit-fr-en", None, False, ENGLISH)
    assert "looks like English" in capsys.readouterr().err


def test_nothing_is_said_of_text_in_the_right_language_or_of_unknown_models(pair: str) -> None:
    assert command("translate", *FRENCH, "The Lord of the Rings", "OK", "42", *QUICK).stderr == ""
    assert command("translate", *ENGLISH, "--model", pair, *QUICK).stderr == ""


def test_a_file_name_given_as_a_text_is_noted(
    pair: str, language: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a b.fr").write_text("Le chat dort.\n")
    monkeypatch.chdir(tmp_path)
    done = command("translate", "a b.fr", "--model", pair, *QUICK)
    assert done.exit_code == 0
    assert done.stdout.count("\n") == 1  # the name is translated all the same
    assert done.stderr == (
        "regard: note: a b.fr is a file, but its name is taken as the text; to read the file, use --input 'a b.fr'\n"
    )
    done = command("generate", "a b.fr", "--model", language, "--max-tokens", "2")
    assert "to read the file, use regard generate - < 'a b.fr'" in done.stderr
    for text in ("a c.fr", "a" * 5_000, ".", "a\0b"):  # no file, too long for a name, a folder, not a name
        assert "note:" not in command("translate", text, "--model", pair, *QUICK).stderr


def test_n_best_and_scores_are_printed_in_columns(pair: str) -> None:
    done = command("translate", TEXTS[0], TEXTS[1], "--model", pair, *QUICK, "--n-best", "2", "--scores")
    rows = [line.split("\t") for line in done.stdout.split("\n")[:-1]]
    assert [row[0] for row in rows] == ["1", "1", "2", "2"]
    best = regard.load(pair).translations(TEXTS[:2], max_tokens=6, n_best=2)
    assert [float(row[1]) for row in rows] == pytest.approx([e.score for each in best for e in each], abs=1e-3)
    only = command("translate", TEXTS[0], "--model", pair, *QUICK, "--scores").stdout.split("\t", 1)
    assert float(only[0]) == pytest.approx(best[0][0].score, abs=1e-3)
    assert len(only) == 2


def test_lines_before_an_invalid_line_are_translated(pair: str, tmp_path: Path) -> None:
    content = f"{TEXTS[0]}\n{TEXTS[1]}\n".encode() + b"caf\xe9\n" + TEXTS[2].encode()
    done = command("translate", "--model", pair, *QUICK, stdin=content)
    assert str(done.exception) == ("stdin:3: invalid UTF-8 (at byte 3): convert the input: iconv -f latin1 -t utf-8")
    assert done.stdout.split("\n") == [*expected(pair, TEXTS[:2]), ""]
    (tmp_path / "a.fr").write_bytes(b"a\0b\n")
    assert "a.fr:1: NUL byte" in refused("translate", "-m", pair, "-i", str(tmp_path / "a.fr"))
    assert "stdin:1: too long: split it into shorter lines" in refused("translate", "-m", pair, stdin="a" * 100_001)


def test_user_errors_are_reported(pair: str, language: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in").write_text("a\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(models, "MODELS_FOLDER", tmp_path / "nowhere")
    assert "the bundled model fr-en is missing" in refused("translate", "a")
    assert "no model at fr-ne: pass a run" in refused("translate", "a", "-m", "fr-ne")
    assert "is not a model folder" in refused("generate", "a", "-m", str(tmp_path))
    assert "the text is empty" in refused("translate", " ", "-m", pair)
    assert "text 1 is not UTF-8" in refused("translate", "\udcff", "-m", pair)
    assert "beam=0 is too small" in refused("translate", "a", "-m", pair, "--beam", "0")
    assert "beam=9999 is wider than" in refused("translate", "a", "-m", pair, "--beam", "9999")
    assert "n_best=5 is more than beam=4" in refused("translate", "a", "-m", pair, "--n-best", "5")
    assert "both texts and --input in were given" in refused("translate", "a", "-m", pair, "-i", "in")
    assert "--output and --input are the same file" in refused("translate", "-m", pair, "-i", "in", "-o", "in")
    assert "no such file" in refused("translate", "-m", pair, "-i", "nowhere")
    assert "did you mean 'cuda'" in refused("translate", "a", "-m", pair, "--device", "cdua")
    assert "requires an encoder" in refused("translate", "a", "-m", str(_encoder(tmp_path)))
    assert "temperature=nan" in refused("generate", "a", "-m", language, "--temperature", "nan")
    assert "top_p=0.0" in refused("generate", "a", "-m", language, "--top-p", "0")
    assert "the prompt is empty" in refused("generate", "", "-m", language)
    assert "requires a decoder" in refused("generate", "a", "-m", pair)
    if not torch.cuda.is_available():
        assert "finds no GPU" in refused("verify", pair, "--device", "cuda")
    assert (tmp_path / "in").read_text() == "a\n"


def _encoder(folder: Path) -> Path:
    model = random_model(kind="encoder")
    model.network.float()
    model.save(folder / "encoder")
    return folder / "encoder"


def test_generate_prints_prompt_and_continuation(language: str) -> None:
    wanted = regard.load(language).generate("Le chat", max_tokens=9)
    for way in ("--stream", "--no-stream"):
        done = command("generate", "Le chat", "--model", language, "--max-tokens", "9", way)
        assert (done.exit_code, done.stdout) == (0, wanted + "\n")
    piped = command("generate", "-", "--model", language, "--max-tokens", "9", stdin="Le chat\n")
    assert piped.stdout == wanted + "\n"


def test_generate_passes_its_options_on(language: str) -> None:
    options: dict[str, Any] = {
        "temperature": 0.9,
        "top_k": 50,
        "top_p": 0.9,
        "min_p": 0.01,
        "seed": 5,
        "repetition_penalty": 1.2,
        "no_repeat_ngram": 3,
    }
    wanted = regard.load(language).generate("Le chat", max_tokens=30, stop=["e"], **options)
    flags = [part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    done = command("generate", "Le chat", "-m", language, "--max-tokens", "30", "--stop", "e", *flags)
    assert done.stdout == wanted + "\n"
    other = command("generate", "Le chat", "-m", language, "--max-tokens", "30", "--temperature", "0.9", "--seed", "6")
    assert other.stdout != done.stdout


def test_verify_lists_the_checks(pair: str) -> None:
    done = command("verify", pair, "--cases", "1", "--no-compile")
    assert done.exit_code == 0, done.output
    assert "✓ cached = uncached" in done.stdout
    assert "– compiled = eager" in done.stdout
    assert "All checks pass." in done.stdout
    report = json.loads(command("verify", pair, "--cases", "1", "--no-compile", "--json").stdout)
    assert report["passed"]
    assert {"name", "difference", "limit", "passed", "bfloat16", "skipped", "worst", "how"} == set(report["checks"][0])


def test_verify_exits_with_1_when_something_differs(pair: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(module.DIFFERENCE_FUNCTIONS, "fast = readable", lambda *_: 0.5)
    done = command("verify", pair, "--cases", "1", "--no-compile")
    assert done.exit_code == 1
    assert "✗ fast = readable" in done.stdout
    assert "fast = readable does not hold: the largest difference is in case 0." in done.stdout
    report = command("verify", pair, "--cases", "1", "--no-compile", "--json")
    assert (report.exit_code, json.loads(report.stdout)["passed"]) == (1, False)


@pytest.mark.parametrize("name", ["translate", "generate", "verify", "export"])
def test_help_has_an_example(name: str) -> None:
    help_ = re.sub(r"\s+", " ", command(name, "--help").stdout)
    assert f"Example: regard {name}" in help_


@pytest.mark.parametrize("name", ["evaluate", "compare"])
def test_results_are_written_before_they_are_displayed(
    name: str, pair: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that stops early, as head does, loses no output."""

    def gone(*_: object) -> None:
        raise BrokenPipeError

    for show in ("score_tables.show_translation", "comparison_tables.show_comparison"):
        monkeypatch.setattr(f"regard.plots.{show}", gone)
    (tmp_path / "a.fr").write_text("".join(f"{text}\n" for text in TEXTS))
    (tmp_path / "a.en").write_text("".join(f"{text}\n" for text in ANSWERS))
    source, reference, out, report = (str(tmp_path / file) for file in ("a.fr", "a.en", "out.json", "report.md"))
    test = {
        "evaluate": (pair, source, reference),
        "compare": (pair, reference, "--source", source, "--reference", reference, "--report", report),
    }[name]
    done = command(name, *test, "--beam", "1", "--out", out)
    assert isinstance(done.exception, BrokenPipeError), done.output
    assert "systems" in (told := json.loads(Path(out).read_text())) or "system" in told
    assert name == "evaluate" or Path(report).read_text()


def test_a_process_reads_stdin_and_reports_errors(pair: str) -> None:
    with process("translate", "--model", pair, *QUICK) as running:
        out, err = running.communicate(f"{TEXTS[0]}\n".encode() + b"\xff\n")
    assert out.decode() == expected(pair, TEXTS[:1])[0] + "\n"
    assert err.decode().startswith("regard: stdin:2: invalid UTF-8")
    assert running.returncode == 2


def test_a_closed_pipe_ends_the_command_quietly(pair: str) -> None:
    with process("translate", "--model", pair, *QUICK) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdin.write(f"{TEXTS[0]}\n".encode() * 40)
        running.stdin.flush()
        assert running.stdout.readline().decode() == expected(pair, TEXTS[:1])[0] + "\n"
        running.stdout.close()
        running.stdin.write(f"{TEXTS[0]}\n".encode() * 400)
        running.stdin.close()
        assert running.stderr.read() == b""


def test_finished_translations_are_written_after_an_interrupt(pair: str, tmp_path: Path) -> None:
    target = tmp_path / "out.en"
    with process("translate", "--model", pair, *QUICK, "--output", str(target)) as running:
        assert running.stdin is not None
        assert running.stderr is not None
        running.stdin.write(f"{TEXTS[0]}\n".encode() * 40)  # more than are read at first, fewer than twice that
        running.stdin.flush()
        deadline = time.monotonic() + 60
        while not (target.exists() and target.read_text()) and time.monotonic() < deadline:
            time.sleep(0.1)
        running.send_signal(signal.SIGINT)
        assert running.wait(30) == 130
        assert b"the output so far has been written" in running.stderr.read()
    assert target.read_text() == (expected(pair, TEXTS[:1])[0] + "\n") * 32


def test_typed_lines_are_translated_one_by_one(pair: str) -> None:
    master, slave = pty.openpty()
    with process("translate", "--model", pair, *QUICK, stdin=slave, stdout=slave, stderr=slave) as running:
        os.close(slave)
        assert "Ctrl-D ends." in _read(master, "Ctrl-D ends.")
        for text in TEXTS[:2]:
            os.write(master, f"{text}\n".encode())
            answer = expected(pair, [text])[0].strip()[:20]
            assert answer in _read(master, answer)
        os.write(master, b"\x04")
        assert running.wait(30) == 0
    os.close(master)


def _read(terminal: int, until: str) -> str:
    """Read a terminal's output until it contains this text."""
    shown, deadline = b"", time.monotonic() + 60
    while until not in shown.decode(errors="replace") and time.monotonic() < deadline:
        if select.select([terminal], [], [], 1.0)[0]:
            shown += os.read(terminal, 4096)
    return shown.decode(errors="replace")
