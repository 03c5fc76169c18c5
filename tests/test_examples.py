"""Every program in examples/ runs, on little data and with a tiny model."""

import ast
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.petit.corpus_files import write_petit
from tests.support.tiny_runs import make_runs_tiny

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
MAX_LINES = 60


@pytest.fixture
def tiny_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    make_runs_tiny(monkeypatch)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    write_petit(60, tmp_path / "petit", splits=("train",))
    return tmp_path / "petit"


def run_example(name: str, *arguments: object, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> str:
    """What a program prints."""
    monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return str(capsys.readouterr().out)


def programs() -> list[Path]:
    return sorted(EXAMPLES.rglob("*.py"))


@pytest.mark.parametrize("path", programs(), ids=lambda path: path.name)
def test_examples_are_short_and_use_public_names(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MAX_LINES
    assert f"examples/{path.relative_to(EXAMPLES)}" in str(ast.get_docstring(ast.parse(text))), "says how to run it"
    imported = re.findall(r"^\s*(?:from|import) (regard\S*)", text, re.M)
    assert set(imported) <= {"regard", "regard.ray"}
    assert set(re.findall(r"\bregard\.(\w+)", text)) <= {*regard.__all__, "ray"}


def test_the_readme_lists_every_example() -> None:
    listed = re.findall(r"\]\(([\w/.]+)\)", (EXAMPLES / "README.md").read_text(encoding="utf-8"))
    parts = {path.relative_to(EXAMPLES).parts[0] for path in EXAMPLES.rglob("*") if path.suffix in {".py", ".conf"}}
    assert {name.split("/")[0] for name in listed if not name.startswith("..")} == parts


@pytest.mark.slow
@pytest.mark.usefixtures("tiny_runs")
def test_train_translator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    options = ("--steps", 4, "--pairs", 200, "--out", tmp_path / "run")
    output = run_example("train_translator.py", *options, monkeypatch=monkeypatch, capsys=capsys)
    assert re.search(r"^step 2: validation loss \d.*\nstep 4: validation loss", output)
    assert output.count(" → ") == 3
    assert "BLEU 0.0" in output
    assert regard.load(tmp_path / "run").can("translate")


@pytest.mark.slow
@pytest.mark.usefixtures("tiny_runs")
def test_custom_attention(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    options = ("--steps", 2, "--sentences", 200, "--out", tmp_path / "run")
    output = run_example("custom_attention.py", *options, monkeypatch=monkeypatch, capsys=capsys)
    losses = re.findall(r"(\w+) attention: validation loss (\d+\.\d+)", output)
    assert [label for label, _ in losses] == ["usual", "quiet"]
    assert losses[0][1] != losses[1][1]


@pytest.mark.usefixtures("without_type_checks")
def test_quiet_attention_may_attend_to_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one key whose score is 0, half of the weight is on nothing."""
    import torch

    quiet = runpy.run_path(str(EXAMPLES / "custom_attention.py"))["QuietAttention"](4, 1)
    for part in (quiet.q, quiet.k):
        torch.nn.init.zeros_(part.weight)
        torch.nn.init.zeros_(part.bias)
    x = torch.randn(1, 1, 4)
    torch.testing.assert_close(quiet(x, x, x, "causal"), quiet.out(quiet.v(x) / 2))


@pytest.mark.slow
@pytest.mark.usefixtures("tiny_runs")
def test_custom_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    options = ("--steps", 2, "--sentences", 200, "--out", tmp_path / "run")
    output = run_example("custom_loss.py", *options, monkeypatch=monkeypatch, capsys=capsys)
    assert re.search(r"validation loss \(cross-entropy\): \d\.\d+\nLe chat", output)


@pytest.mark.slow
def test_pytorch_loop(tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    options = (corpus / "train.fr", corpus / "train.en", "--epochs", 3, "--out", tmp_path / "model")
    output = run_example("pytorch_loop.py", *options, monkeypatch=monkeypatch, capsys=capsys)
    losses = [float(loss) for loss in re.findall(r"epoch \d: loss (\S+)", output)]
    assert len(losses) == 3
    assert losses[2] < losses[0]
    assert regard.load(tmp_path / "model").score(["Le chat dort."], ["The cat is sleeping."])[0] < 0


@pytest.mark.slow
@pytest.mark.usefixtures("tiny_runs")
def test_huggingface_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    transformers = pytest.importorskip("transformers")
    options = ("--steps", 2, "--out", tmp_path / "run")
    run_example("huggingface_data.py", *options, monkeypatch=monkeypatch, capsys=capsys)
    exported = transformers.AutoTokenizer.from_pretrained(tmp_path / "run-data" / "huggingface")
    assert (
        exported.decode(exported("Le chat est noir.").input_ids, skip_special_tokens=True).strip()
        == "Le chat est noir."
    )


@pytest.mark.slow
def test_embedding_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    texts = ["Le chien mange une pomme.", "Le chat dort.", "Nous avons trois livres."]
    (tmp_path / "texts.txt").write_text("\n\n".join(texts), encoding="utf-8")
    options = (tmp_path / "texts.txt", "Le chat dort.", "--model", "petit-fr-en", "-k", 9)
    lines = run_example("embedding_search.py", *options, monkeypatch=monkeypatch, capsys=capsys).splitlines()
    assert lines[0] == "1.000\tLe chat dort."
    assert sorted(line.partition("\t")[2] for line in lines) == sorted(texts)
    similarities = [float(line.partition("\t")[0]) for line in lines]
    assert similarities == sorted(similarities, reverse=True)


@pytest.mark.slow
def test_filter_corpus(tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """A line that is not the translation of its source has the lowest score."""
    sources = (corpus / "train.fr").read_text(encoding="utf-8").splitlines()[:20]
    targets = (corpus / "train.en").read_text(encoding="utf-8").splitlines()[:20]
    targets[7] = "Nothing of this is in the French sentence at all."
    (tmp_path / "a.fr").write_text("\n".join(sources), encoding="utf-8")
    (tmp_path / "a.en").write_text("\n".join(targets), encoding="utf-8")
    options = (
        tmp_path / "a.fr",
        tmp_path / "a.en",
        "--keep",
        0.95,
        "--model",
        "petit-fr-en",
        "--out",
        tmp_path / "out",
    )
    output = run_example("filter_corpus.py", *options, monkeypatch=monkeypatch, capsys=capsys)
    assert output.startswith("kept 19 of 20 pairs")
    assert "line 8" in output.splitlines()[1]
    for name, lines in (("a.fr", sources), ("a.en", targets)):
        kept = (tmp_path / "out" / name).read_text(encoding="utf-8").splitlines()
        assert kept == [line for number, line in enumerate(lines) if number != 7]


@pytest.mark.slow
def test_logit_lens(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    output = run_example("logit_lens.py", "Le chat noir dort.", monkeypatch=monkeypatch, capsys=capsys)
    title, header, *rows = output.splitlines()
    assert title == "Le chat noir dort. → The black cat is sleeping."
    assert header.split() == ["reads", "embedding", "layer", "0", "layer", "1"]
    predicted = [row.split()[-2] for row in rows]  # the last layer's token, before its probability
    assert predicted == ["The", "black", "cat", "is", "sleeping", ".", "</s>"]


@pytest.mark.long
def test_ray_job(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="pip install 'regard[ray]'")
    parquet = pytest.importorskip("pyarrow.parquet")
    texts = ["Le chat dort.", "Les chiens mangent."]
    (tmp_path / "texts.txt").write_text("\n".join(texts), encoding="utf-8")
    options = [str(tmp_path / "texts.txt"), str(tmp_path / "out"), "--model", "petit-fr-en"]
    settings = os.environ | {"PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0"}
    subprocess.run([sys.executable, EXAMPLES / "ray_job.py", *options], check=True, timeout=300, env=settings)
    rows = {row["text"]: row["translation"] for row in parquet.read_table(tmp_path / "out").to_pylist()}
    assert rows == dict(zip(texts, ["The cat is sleeping.", "The dogs are eating."], strict=True))
