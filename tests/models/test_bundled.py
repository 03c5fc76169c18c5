"""The bundled models: complete, small, documented, and good at their task.

First the code that writes and finds them, with a model of random weights; then each bundled model.
"""

import hashlib
import json
import math
import re
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer as Engine
from typer.testing import CliRunner

import regard
from regard import models
from regard.cli import app
from regard.evaluation.comparison import TrainingCost
from regard.formatting import escape_markdown
from regard.interop.evaluation_results import check_results, read_result
from regard.interop.export import export
from regard.petit import find_pair, pairs
from regard.storage.model_folder import check_manifest
from regard.storage.weights import read_header
from regard.training.events import Ended, Started
from regard.training.metrics_log import MetricsLog
from regard.training.recipe_files import as_toml, read_recipe
from regard.training.training_summary import training_summary
from tests.support.text_models import TEXTS, random_model

pytestmark = pytest.mark.slow
FILES = {
    "README.md",
    "config.json",
    "generation_config.json",
    "manifest.json",
    "model.safetensors",
    "recipe.toml",
    "tokenizer.json",
    "tokenizer_config.json",
}


def float_model(**changes: object) -> regard.Model:
    model = random_model(**changes)
    model.network.float()
    with torch.no_grad():
        model.network.embedding.tokens.weight[-1] = 0  # <pad>, as training leaves it
    return model


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the files of a finished run that an export reads, with Petit's test set and scores on it."""
    home = tmp_path_factory.mktemp("home")
    model, recipe = float_model(), read_recipe("petit-fr-en", ["train.steps=7"])
    corpora = {"train": {"files": [["a.fr", "a.en"], ["b.tsv"], ["b.tsv"]], "examples": 30}}
    model.about = {"name": "small", "data": corpora, "recipe": asdict(recipe), "languages": ["fr", "en"], "longest": 29}
    model.about["scores"] = {"set": "validation", "step": 7, "loss": 1.23456, "BLEU": 40.25}
    model.save(home / "run")
    (home / "run/recipe.toml").write_text(as_toml(recipe))
    with MetricsLog(home / "run", 0) as log:
        log(Started(0, 7, "small", "translation", "run", "CPU, 1 thread, float32", 1, 20_000, 0, {}))
        log(Ended(7, "steps", 7, 1.2, 40.2, 12_345, 4_000.0, 1e9, 0))
    (home / "petit").mkdir()
    told = [(p.french, p.english, " ".join(f"{i}-{j}" for i, j in p.alignment), " ".join(p.tags)) for p in pairs(20)]
    for suffix, lines in zip(("fr", "en", "align", "tags"), zip(*told, strict=True), strict=True):
        (home / f"petit/test.{suffix}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    test = [str(home / f"petit/test.{language}") for language in ("fr", "en")]
    run("evaluate", str(home / "run"), *test, "--beam", "2", "--out", str(home / "scores.json"))
    (home / "about.md").write_text(
        "## Training data\n\nPetit, by Regard (Apache-2.0).\n\n## Limits\n\nIt knows nothing."
    )
    return home


@pytest.fixture(scope="module")
def bundled(folder: Path) -> Path:
    """Export that run as a bundled model."""
    told = ("--scores", str(folder / "scores.json"), "--card", str(folder / "about.md"))
    small = ("--to", "regard", "--dtype", "bfloat16")
    run("export", str(folder / "run"), str(folder / "models/fr-en"), *small, *told, "--name", "fr-en")
    return folder / "models/fr-en"


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])  # int8: tests/storage/test_int8_weights.py
@pytest.mark.parametrize("kind", ["encoder-decoder", "decoder", "encoder"])
def test_rounded_weights_round_trip(tmp_path: Path, dtype: str, kind: str) -> None:
    model = float_model(kind=kind)
    export(model, tmp_path / "exported", "regard", dtype)
    model.save(tmp_path / "saved", dtype)
    wanted = {name: tensor.to(getattr(torch, dtype)) for name, tensor in model.network.state_dict().items()}
    for place in ("exported", "saved"):
        held = load_file(tmp_path / place / "model.safetensors")
        found = regard.load(tmp_path / place).network.state_dict()
        assert held.keys() == found.keys() == wanted.keys()
        assert all(held[name].dtype == wanted[name].dtype for name in wanted)
        assert all(found[name].dtype == torch.float32 for name in wanted)
        assert all(torch.equal(found[name], wanted[name].float()) for name in wanted)
    assert any(not torch.equal(found[name], tensor) for name, tensor in model.network.state_dict().items()) == (
        dtype != "float32"
    )


def test_exporting_again_gives_the_same_files(bundled: Path, tmp_path: Path) -> None:
    run("export", str(bundled), str(tmp_path / "again"), "--to", "regard", "--dtype", "bfloat16")
    assert {file.name: file.read_bytes() for file in bundled.iterdir()} == {
        file.name: file.read_bytes() for file in (tmp_path / "again").iterdir()
    }


def test_an_unsupported_type_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown dtype 'bf16': did you mean 'bfloat16'"):
        export(float_model(), tmp_path / "a", "regard", "bf16")
    for dtype, targets in {"int8": "--to ctranslate2 or --to regard", "int16": "--to ctranslate2"}.items():
        with pytest.raises(
            ValueError, match=rf"'{dtype}' requires {targets}; huggingface supports float32, float16, b"
        ):
            export(float_model(), tmp_path / "a", "huggingface", dtype)
    with pytest.raises(ValueError, match="dtype='int16' is not a valid choice: did you mean 'int8'"):
        float_model().save(tmp_path / "a", "int16")
    assert list(tmp_path.iterdir()) == []


def test_the_folder_is_complete(bundled: Path) -> None:
    assert {file.name for file in bundled.iterdir()} == FILES
    check_manifest(bundled)
    (bundled / "README.md").write_text((bundled / "README.md").read_text().replace("fr-en", "fr-ne", 1))
    with pytest.raises(ValueError, match=r"README\.md is damaged"):
        regard.load(bundled)
    (bundled / "README.md").write_text((bundled / "README.md").read_text().replace("fr-ne", "fr-en", 1))
    regard.load(bundled)


def test_the_tokenizer_is_compact_and_readable_by_transformers(bundled: Path) -> None:
    transformers = pytest.importorskip("transformers")
    written = (bundled / "tokenizer.json").read_text(encoding="utf-8")
    assert "\n" not in written
    ids = regard.load(bundled).tokenizer.encode_with_template(TEXTS[0])  # type: ignore[union-attr]
    assert Engine.from_file(str(bundled / "tokenizer.json")).encode(TEXTS[0]).ids == ids
    assert transformers.PreTrainedTokenizerFast.from_pretrained(bundled)(TEXTS[0]).input_ids == ids


def test_the_card_contains_the_metadata(bundled: Path, folder: Path) -> None:
    card = (bundled / "README.md").read_text()
    bleu = json.loads((folder / "scores.json").read_text())["scores"]["bleu"]
    signature = bleu["signature"].replace("|", "\\|")
    for part in (
        "library_name: regard\n",
        "# fr-en\n",
        "Written by Regard in bfloat16.",
        "**petit/test.en, 20 lines** (beam 2, length penalty 0.6, precision float32). Measured before "
        "the weights were converted to bfloat16.\n",
        f"| BLEU | {bleu['score']:.1f} | {bleu['low']:.1f} – {bleu['high']:.1f} | `{signature}` |",
        "| exactly right, % | 0.0 |",
        "| alignment error rate of layer ",
        "- data: train: files: a.fr, a.en, b.tsv (2 times), examples: 30\n",
        "- recipe: petit-fr-en\n",
        "- trained: 7 steps, 12,345 target tokens, 1h06m of training on CPU, 1 thread, float32",
        "- validation: step 7, loss 1.235, BLEU 40.25",
        "Petit, by Regard (Apache-2.0).",
        "## Limits\n\nIt knows nothing.",
        "- It translates at most 29 tokens in one piece, as in its training data, and longer sentences in parts.",
        'regard translate "Le petit chat dort." --model .',
    ):
        assert part in card


def test_exports_to_other_engines_keep_the_scores_and_their_origin(bundled: Path, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    run("export", str(bundled), str(tmp_path / "out"), "--to", "ctranslate2")
    card = (tmp_path / "out/README.md").read_text()
    assert "## Scores\n\nThese scores were measured in Regard, before the export.\n\n**petit/test.en" in card
    assert (tmp_path / "out/recipe.toml").read_bytes() == (bundled / "recipe.toml").read_bytes()
    assert "before the export" not in (bundled / "README.md").read_text()


def test_scores_state_whether_weights_were_rounded_afterwards(folder: Path, bundled: Path, tmp_path: Path) -> None:
    """Scores measured on the exported weights are its own; rounded weights stay marked in folders made from it."""
    scores, measured = ("--scores", str(folder / "scores.json")), "Measured before the weights were converted to "
    told = {}
    for dtype in ("float32", "float16"):
        run("export", str(folder / "run"), str(tmp_path / dtype), "--to", "regard", "--dtype", dtype, *scores)
        told[dtype] = (tmp_path / dtype / "README.md").read_text()
    assert measured not in told["float32"]
    assert f"{measured}float16." in told["float16"]
    run("export", str(folder / "run"), str(tmp_path / "theirs"), "--dtype", "bfloat16", *scores)
    assert f"{measured}bfloat16." in (tmp_path / "theirs/README.md").read_text()
    regard.load(tmp_path / "float32").save(tmp_path / "saved", "bfloat16")
    run("export", str(tmp_path / "saved"), str(tmp_path / "again"), "--to", "regard")
    assert f"{measured}bfloat16." in (tmp_path / "again/README.md").read_text()
    test = [str(folder / f"petit/test.{language}") for language in ("fr", "en")]
    run("evaluate", str(bundled), *test, "--beam", "1", "--out", str(tmp_path / "own.json"))
    own = ("--to", "regard", "--dtype", "bfloat16", "--scores", str(tmp_path / "own.json"))
    run("export", str(bundled), str(tmp_path / "own"), *own)
    card = (tmp_path / "own/README.md").read_text()
    assert measured not in card
    assert "**petit/test.en, 20 lines** (beam 1," in card


CALLS = {
    "encoder-decoder": "translate(",
    "decoder": "translate(",
    "language": "generate(",
    "classes": "classify(",
    "masked": "attend(",
    "ids": "print(model.network)",
}


@pytest.mark.parametrize("what", CALLS)
@pytest.mark.usefixtures("without_type_checks")
def test_the_program_of_a_card_runs(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kinds = {"language": "decoder", "classes": "encoder", "masked": "encoder", "ids": "encoder-decoder"}
    model = float_model(kind=kinds.get(what, what), classes=3 * (what == "classes"))
    if what == "language":
        model.special = regard.SpecialIds(end=model.special.end)
    model.tokenizer = None if what == "ids" else model.tokenizer
    export(model, tmp_path / "out", "regard")
    (program,) = re.findall(r"```python\n(.*?)```", (tmp_path / "out/README.md").read_text(), re.DOTALL)
    assert CALLS[what] in program
    monkeypatch.chdir(tmp_path / "out")
    exec(program, {})  # it is our own code
    assert capsys.readouterr().out.strip()


def test_scores_of_another_model_are_rejected(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    float_model(layers=1).save(other)
    scores = str(folder / "scores.json")
    with pytest.raises(ValueError, match=r"scores\.json contains the scores of a model with [\d,]+ parameters"):
        run("export", str(other), str(tmp_path / "out"), "--to", "regard", "--scores", scores)
    twin = float_model()
    with torch.no_grad():
        twin.network.embedding.tokens.weight[0, 0] += 1e-3
    twin.save(tmp_path / "twin")
    with pytest.raises(ValueError, match=r"scores\.json contains the scores of other weights with [\d,]+ parameters"):
        run("export", str(tmp_path / "twin"), str(tmp_path / "out"), "--to", "regard", "--scores", scores)
    (tmp_path / "a.json").write_text('{"system": 3}')
    with pytest.raises(ValueError, match=r"a\.json was not written by regard evaluate --out"):
        run("export", str(other), str(tmp_path / "out"), "--to", "regard", "--scores", str(tmp_path / "a.json"))
    assert not (tmp_path / "out").exists()


def test_results_of_every_kind_are_read(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("\n".join(TEXTS))
    (tmp_path / "classes").write_text("\n".join("0" for _ in TEXTS))
    language = float_model(kind="decoder")
    language.special = regard.SpecialIds(end=language.special.end)
    for name, model in {"language": language, "labels": float_model(kind="encoder", classes=2)}.items():
        model.save(tmp_path / name)
        files = [str(tmp_path / "text.txt"), *([str(tmp_path / "classes")] if name == "labels" else [])]
        run("evaluate", str(tmp_path / name), *files, "--out", str(tmp_path / f"{name}.json"))
        found = read_result(tmp_path / f"{name}.json")
        check_results([found], model)
        told = json.loads((tmp_path / f"{name}.json").read_text())
        first = told["score"]["loss"] if name == "language" else 100 * told["scores"]["accuracy"]["value"]
        assert found.scored.figures[0].value == first
        assert found.scored.set == f"{tmp_path.name}/{Path(files[-1]).name}"


def without_key(told: dict[str, Any], place: tuple[str, ...]) -> dict[str, Any]:
    return with_value(told, place, None, drop=True)


def with_value(told: dict[str, Any], place: tuple[str, ...], value: object, drop: bool = False) -> dict[str, Any]:
    """Return a copy with another value at a key, or without the key."""
    copy: dict[str, Any] = json.loads(json.dumps(told))
    inner = copy
    for key in place[:-1]:
        inner = inner[key]
    if drop:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    return copy


ODD: dict[tuple[str, ...], tuple[object, ...]] = {
    ("scores", "bleu", "score"): ("x", None, [1], -1, 101, True, math.nan, 10**400),
    ("scores", "bleu", "low"): ("x", 90, None),
    ("scores", "bleu", "name"): (3, "", None),
    ("scores", "chrf"): ([], 5, None),
    ("scores", "note"): ([1], "a"),
    ("scores", "sentences"): ("many", None),
    ("petit", "overall"): (3, {"value": 0.5}, {"value": 2, "low": 1, "high": 3}),
    ("alignment", "writing", "best"): ([99, 99], [-1, 0], "ab", 3),
    ("system",): (3, None, [], {}),
    ("system", "decoding"): (3, [1]),
    ("system", "parameters"): ("7", -1),
    ("files",): ([], [3], None),
    ("kind",): ("other", None, [1]),
}


def test_invalid_score_files_are_rejected(folder: Path, tmp_path: Path) -> None:
    """Each error names the option and the file, before the model is read."""
    right = json.loads((folder / "scores.json").read_text())
    read_result(folder / "scores.json")
    odd = [(place, with_value(right, place, value)) for place, values in ODD.items() for value in values]
    odd += [((name,), without_key(right, (name,))) for name in ("system", "scores", "files", "kind")]
    for place, told in odd:
        (tmp_path / "odd.json").write_text(json.dumps(told))
        with pytest.raises(ValueError, match=r"--scores: .*odd\.json was not written by regard evaluate --out"):
            run("export", str(tmp_path / "none"), str(tmp_path / "out"), "--scores", str(tmp_path / "odd.json"))
        assert not (tmp_path / "out").exists(), place


def test_scores_without_a_weights_digest_are_rejected(folder: Path, tmp_path: Path) -> None:
    right = json.loads((folder / "scores.json").read_text())
    (tmp_path / "old.json").write_text(json.dumps(without_key(right, ("system", "weights"))))
    with pytest.raises(ValueError, match=r"--scores: .*old\.json was written by an older version"):
        run("export", str(folder / "run"), str(tmp_path / "out"), "--scores", str(tmp_path / "old.json"))
    (tmp_path / "made.json").write_text(json.dumps(with_value(right, ("system", "parameters"), None)))
    with pytest.raises(ValueError, match=r"--scores: .*made\.json contains the scores of outputs from another system"):
        run("export", str(folder / "run"), str(tmp_path / "out"), "--scores", str(tmp_path / "made.json"))


def test_an_unreadable_card_is_reported(folder: Path, tmp_path: Path) -> None:
    """The card is read before the model, which does not exist here."""
    (tmp_path / "latin.md").write_bytes(b"caf\xe9")
    (tmp_path / "huge.md").write_bytes(b"a" * 1_000_001)
    (tmp_path / "folder.md").mkdir()
    for name, what in {
        "no": "is missing",
        "latin": "is not UTF-8",
        "huge": "bytes",
        "folder": "not a regular file",
    }.items():
        with pytest.raises(ValueError, match=rf"--card: .*{name}\.md.*{what}.*; it must be a Markdown file"):
            run("export", str(tmp_path / "none"), str(tmp_path / "out"), "--card", str(tmp_path / f"{name}.md"))


STRANGE: list[dict[str, Any]] = [
    {"tests": [1]},
    {"tests": {"set": "a"}},
    {"tests": [{"set": 1, "figures": [{}]}, {"set": "a", "figures": 3}, {"set": "a", "figures": [{"name": "b"}]}]},
    {"trained": {}},
    {"trained": {"steps": "7", "tokens": 1, "seconds": 2.0, "place": "CPU"}},
    {"trained": {"steps": 7, "tokens": 1, "seconds": math.inf, "place": "CPU"}},
    {"name": {"a": 1}, "card": [1], "languages": 3, "notes": {"a": 1}, "longest": "b", "recipe": [1], "scores": 7},
    {"generation": [1], "classes": 3, "data": [[]], "origin": {}},
]


@pytest.mark.parametrize("to", ["regard", "huggingface"])
@pytest.mark.parametrize("number", range(len(STRANGE)))
def test_untrusted_metadata_does_not_prevent_an_export(number: int, to: Any, tmp_path: Path) -> None:
    model = float_model()
    model.about = STRANGE[number]
    model.save(tmp_path / "model")
    export(regard.load(tmp_path / "model"), tmp_path / "out", to)
    card = (tmp_path / "out/README.md").read_text()
    assert "## Scores" not in card
    assert "- trained" not in card


def test_untrusted_metadata_is_escaped(tmp_path: Path) -> None:
    model, evil = float_model(), "a|b <script> [x](y)\n# big `c` _d_"
    figure = {"name": evil, "value": 3.0, "signature": evil}
    model.about = {"name": evil, "languages": ["en", "en", "no", "a\n---\nb"], "notes": [evil], "origin": evil}
    model.about["tests"] = [{"set": evil, "asked": evil, "rounded": evil, "figures": [figure]}]
    model.about["trained"] = {"steps": 7, "tokens": 1, "seconds": 2.0, "place": evil}
    export(model, tmp_path / "out", "regard")
    card = (tmp_path / "out/README.md").read_text()
    assert card.startswith('---\nlibrary_name: regard\ntags:\n- regard\nlanguage:\n- en\n- "no"\n- "a\\n---\\nb"\n')
    shown = escape_markdown(evil)
    assert shown.startswith(r"a\|b \<script\> \[x\](y)␊\# big")
    assert card.count(shown) == 8
    assert card.count("<script>") == 1  # a signature is shown as code
    assert len(re.findall("^#", card, re.M)) == 5


def test_repeated_languages_are_listed_once(tmp_path: Path) -> None:
    model = float_model()
    model.about = {"languages": ["en", "en"]}
    export(model, tmp_path / "out", "regard")
    assert "language:\n- en\npipeline_tag" in (tmp_path / "out/README.md").read_text()


@pytest.mark.parametrize(
    ("language", "sentence"), [("en", "The little cat"), ("fr", "Le petit chat"), ("xx", "Le petit")]
)
def test_the_example_of_a_card_is_in_the_language_that_the_model_reads(
    tmp_path: Path, language: str, sentence: str
) -> None:
    model = float_model()
    model.about = {"languages": [language, "yy"]}
    export(model, tmp_path / "out", "regard")
    card = (tmp_path / "out/README.md").read_text()
    assert f'regard translate "{sentence}' in card
    assert f'text = "{sentence}' in card


def test_a_damaged_log_does_not_prevent_an_export(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "run", tmp_path / "run")
    log = tmp_path / "run/metrics.jsonl"
    log.write_text("damaged\n" + log.read_text() + '{"event": "Ende')
    run("export", str(tmp_path / "run"), str(tmp_path / "out"), "--to", "regard")
    trained = json.loads((tmp_path / "out/config.json").read_text())["about"]["trained"]
    place = "CPU, 1 thread, float32"
    assert trained == {"steps": 7, "tokens": 12_345, "seconds": 4_000.0, "place": place, "flops": 1e9}
    assert training_summary(tmp_path / "out", {"trained": trained}) == TrainingCost(place, 4_000.0, 12_345, 1e9)
    assert training_summary(tmp_path / "run", {}) == TrainingCost(place, 4_000.0, 12_345, 1e9)


def test_the_training_cost_of_a_bundled_model_is_compared(small_model_bundled: Path, folder: Path) -> None:
    test = ("--source", str(folder / "petit/test.fr"), "--reference", str(folder / "petit/test.en"))
    run(
        "compare",
        "fr-en",
        str(folder / "petit/test.en"),
        *test,
        "--limit",
        "5",
        "--beam",
        "1",
        "--out",
        "compared.json",
    )
    told = json.loads(Path("compared.json").read_text())["systems"][0]["training"]
    assert (told["seconds"], told["tokens"]) == (4_000.0, 12_345)


@pytest.fixture
def small_model_bundled(bundled: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Use the small model as the bundled fr-en."""
    monkeypatch.setattr(models, "MODELS_FOLDER", bundled.parent)
    monkeypatch.chdir(tmp_path)
    return bundled


@pytest.mark.usefixtures("without_type_checks")
def test_the_bundled_model_is_the_default(small_model_bundled: Path) -> None:
    said = regard.load(small_model_bundled).translate(TEXTS[:1], max_tokens=6)[0]
    quick = ("--max-tokens", "6", "--precision", "float32")
    assert run("translate", TEXTS[0], *quick).split() == said.split()
    assert run("translate", TEXTS[0], *quick, "--model", "fr-en").split() == said.split()
    run("attend", TEXTS[0], "--target", "The cat.", "--json", "look.json")
    assert json.loads(Path("look.json").read_text())["model"] == "fr-en"


def test_models_are_listed(small_model_bundled: Path) -> None:
    with pytest.raises(ValueError, match=r"the bundled model en-fr is missing from"):
        run("models")
    shown = CliRunner().invoke(app, ["models"]).output
    count = sum(tensor.numel() for tensor in load_file(small_model_bundled / "model.safetensors").values())
    size = sum(file.stat().st_size for file in small_model_bundled.iterdir())
    figures = rf"{count / 1e6:.1f} M +{size / 1e6:.1f} +BLEU \d+\.\d: petit/test\.en, 20 lines"
    assert re.search(rf"^fr-en +translates fr → en +{figures}", shown, re.M)
    told = json.loads(CliRunner().invoke(app, ["models", "--json"]).output.splitlines()[0])
    assert (told["parameters"], told["bytes"], told["languages"]) == (count, size, ["fr", "en"])
    assert told["sha256"] == hashlib.sha256((small_model_bundled / "model.safetensors").read_bytes()).hexdigest()
    assert told["tests"][0]["figures"][0]["signature"].startswith("nrefs:1|")


def save_translator(folder: Path, *languages: str, dtype: str = "int8") -> regard.Model:
    """Write a random model for these languages, as a bundled one is stored."""
    model = float_model()
    model.about = {"name": folder.name, "languages": list(languages)}
    with torch.no_grad():
        model.network.embedding.tokens.weight[: -len(languages[0])].mul_(1.1)  # not the same as another
    export(model, folder, "regard", dtype)
    return regard.load(folder)


@pytest.fixture
def several_bundled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Bundle translators for both directions, a second one for the first direction, and a language model."""
    folder = tmp_path / "models"
    for name, languages in {"fr-en": ("fr", "en"), "petit-fr-en": ("fr", "en"), "en-fr": ("en", "fr")}.items():
        save_translator(folder / name, *languages)
    writer = float_model(kind="decoder")
    writer.special, writer.about = regard.SpecialIds(end=writer.special.end), {"languages": ["en"]}
    export(writer, folder / "writer", "regard", "int8")
    monkeypatch.setattr(models, "MODELS_FOLDER", folder)
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.mark.parametrize(
    ("options", "chosen"),
    [
        ((), "fr-en"),
        (("--to", "en"), "fr-en"),
        (("--from", "fr"), "fr-en"),
        (("--to", "fr"), "en-fr"),
        (("--from", "en"), "en-fr"),
        (("--from", "en", "--to", "fr"), "en-fr"),
        (("--to", "fr", "--model", "en-fr"), "en-fr"),
    ],
)
@pytest.mark.usefixtures("without_type_checks")
def test_the_languages_choose_a_bundled_model(several_bundled: Path, options: tuple[str, ...], chosen: str) -> None:
    run("attend", TEXTS[0], "--target", "The cat.", "--json", "look.json", *options)
    assert json.loads(Path("look.json").read_text())["model"] == chosen
    if options == ("--to", "fr"):
        source = "The cat sleeps."
        translation = regard.load(several_bundled / "en-fr").translate(source, max_tokens=6)
        printed = run("translate", source, "--max-tokens", "6", "--precision", "float32", *options)
        assert printed.split() == translation.split()


@pytest.mark.usefixtures("several_bundled")
def test_a_language_without_a_model_is_reported_with_those_that_have_one() -> None:
    available = r"available are fr-en \(fr → en\), en-fr \(en → fr\), petit-fr-en \(fr → en\)\. Train"
    for options, wanted in {
        ("--to", "de"): "to de",
        ("--from", "de"): "from de",
        ("--from", "fr", "--to", "fr"): "from fr to fr",
        ("--to", "FR"): "to FR",
        ("--to", ""): "to ",
    }.items():
        with pytest.raises(ValueError, match=rf"^no bundled model translates {wanted}: {available}"):
            run("translate", "a", *options)
    with pytest.raises(ValueError, match=r"'de': this model is not multilingual, it translates from 'fr' to 'en'"):
        run("translate", "a", "--to", "de", "--model", "fr-en")


@pytest.mark.usefixtures("several_bundled")
def test_models_of_every_kind_are_listed() -> None:
    shown = run("models")
    assert [line.split()[0] for line in shown.splitlines()[1:]] == ["fr-en", "en-fr", "writer", "petit-fr-en"]
    assert re.search(r"^en-fr +translates en → fr +0\.0 M", shown, re.M)
    assert re.search(r"^writer +generates text \(en\) +0\.0 M", shown, re.M)
    described = {told["name"]: told for told in map(json.loads, run("models", "--json").splitlines())}
    for name, told in described.items():
        loaded = regard.load(told["folder"])
        assert told["parameters"] == loaded.network.parameter_count  # scales of int8 weights are not parameters
        assert told["languages"] == loaded.about["languages"], name


@pytest.mark.usefixtures("several_bundled")
def test_the_server_translates_in_both_directions() -> None:
    pytest.importorskip("fastapi")
    from regard.server.libretranslate_api import select_model
    from regard.server.model_registry import build_registry, parse_model_arguments

    registry = build_registry({name: regard.load(path) for name, path in parse_model_arguments(()).items()}, "float32")
    assert list(registry.by_name) == ["fr-en", "en-fr", "writer", "petit-fr-en"]
    for source, target, name in (("fr", "en", "fr-en"), ("en", "fr", "en-fr"), ("auto", "fr", "en-fr")):
        _, served = select_model(registry, source, target)
        assert served is not None
        assert served.name == name
    assert registry.language_model(None).name == "writer"


def test_the_list_of_models_fits_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    header, *lines = run("models").splitlines()
    scores = [line[header.index("scores") :].strip() for line in lines]
    assert all(re.fullmatch(r"[A-Za-z]\w* \d+\.\d+: \w[\w /.-]+", score) for score in scores), scores  # no line wraps


@pytest.mark.usefixtures("without_type_checks")
def test_a_missing_bundled_model_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "MODELS_FOLDER", tmp_path / "models")
    monkeypatch.chdir(tmp_path)
    missing = r"the bundled model fr-en is missing from .*models/fr-en: this copy of Regard is incomplete"
    for arguments in (["translate", "a"], ["attend", "a"], ["models"], ["verify", "fr-en"]):
        with pytest.raises(ValueError, match=missing):
            run(*arguments)
    with pytest.raises(ValueError, match=missing):
        regard.load("fr-en")
    float_model().save(tmp_path / "fr-en")  # the user's own folder still comes first
    assert regard.load("fr-en").config == float_model().config


def test_help_lists_the_bundled_models() -> None:
    for command in ("translate", "attend"):
        told = " ".join(re.sub(r"[│\s]+", " ", run(command, "--help")).split())
        assert all(name in told for name in models.BUNDLED_MODELS), told


def test_loading_does_not_import_the_compiler(tmp_path: Path) -> None:
    """Importing torch's compiler takes a second, and initialising weights without memory would import it."""
    float_model().save(tmp_path / "model")
    program = "import regard, sys; m = regard.load(sys.argv[1]); print('torch._dynamo' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program, tmp_path / "model"], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr


# From here on: the bundled models themselves.


@dataclass(frozen=True)
class Expected:
    """What a bundled model must be."""

    sha256: str
    """SHA-256 of its weights, which never change unnoticed."""
    max_bytes: int
    """Maximum size of all its files."""
    languages: tuple[str, ...]
    card: tuple[str, ...]
    """What its card must say, apart from the sections that every card has: corpora and their licences."""
    corpora: tuple[str, ...] = ()
    """What the names of its training files begin with; none if its training data is bundled."""
    min_petit_bleu: float = 0.0
    """Minimum BLEU of a translator on a slice of Petit."""


EXPECTED = {
    "fr-en": Expected(
        sha256="a7535b285c261e14e1e3fda93d205fb9810608445a3ef29ca8dbc89b7b7d1ba3",
        max_bytes=25_000_000,
        languages=("fr", "en"),
        card=("Tatoeba", "CC-BY 2.0 FR", "Europarl", "European Parliament", "Project Gutenberg", "CC BY 4.0"),
        corpora=("tatoeba", "varied", "retyped", "books", "business", "europarl"),
        min_petit_bleu=52.0,  # it has never seen Petit
    ),
    "en-fr": Expected(
        sha256="339dbcdfd91cd2c829763769ef0a19dca227085669b25f0a0bbfcab028f374bf",
        max_bytes=15_000_000,
        languages=("en", "fr"),
        card=("Tatoeba", "CC-BY 2.0 FR", "Europarl", "European Parliament", "Project Gutenberg", "CC BY 4.0"),
        corpora=("retyped",),
        min_petit_bleu=62.0,  # it has never seen Petit
    ),
    "writer": Expected(
        sha256="c77a915fa82f6e6777d2e1695b96ca8bf98f0a182690959ecd22ea9e7f1d348f",
        max_bytes=10_000_000,
        languages=("en",),
        card=("SmolLM2-135M-Instruct", "Tatoeba", "CC-BY 2.0 FR", "loss, nats per token", "## Samples"),
        corpora=("stories", "sentences"),
    ),
    "petit-fr-en": Expected(
        sha256="903e1bae607c503fc2c9755df7822af66e7972709a6775669602d7ed940996e1",
        max_bytes=3_000_000,
        languages=("fr", "en"),
        card=("Petit", "alignment error rate"),
        min_petit_bleu=98.0,  # a perfect model scores 100
    ),
}
PROMPTS = ("Once upon a time", "One day, a little", "There was once", "In a small village")
"""The prompts of the samples on the card of the writer."""
TRANSLATORS = [name for name, expected in EXPECTED.items() if len(expected.languages) == 2]

EVERYDAY: dict[str, dict[str, set[str]]] = {
    "fr-en": {
        "Le chat dort sur le lit.": {
            "The cat is sleeping on the bed.",
            "The cat sleeps on the bed.",
            "The cat is asleep on the bed.",
        },
        "Où est la gare ?": {
            "Where is the station?",
            "Where's the station?",
            "Where is the train station?",
            "Where's the train station?",
            "Where is the railway station?",
        },
        "Je ne comprends pas.": {"I don't understand.", "I do not understand.", "I don't get it."},
        "Quelle heure est-il ?": {"What time is it?", "What time is it now?", "What's the time?", "What is the time?"},
        "J'ai faim.": {"I'm hungry.", "I am hungry."},
        "Elle aime la musique.": {"She likes music.", "She loves music."},
        "Il fait très froid aujourd'hui.": {
            "It's very cold today.",
            "It is very cold today.",
            "It's really cold today.",
            "Today is very cold.",
        },
        "Nous sommes en retard.": {"We're late.", "We are late.", "We're running late."},
        "Merci beaucoup.": {
            "Thank you very much.",
            "Thank you so much.",
            "Thanks very much.",
            "Thanks a lot.",
            "Many thanks.",
        },
        "Mon frère habite à Paris.": {
            "My brother lives in Paris.",
            "My brother is living in Paris.",
        },
    },
    "en-fr": {
        "The cat is sleeping on the bed.": {"Le chat dort sur le lit."},
        "Where is the train station?": {"Où est la gare ?", "Où se trouve la gare ?"},
        "I don't understand.": {"Je ne comprends pas."},
        "What time is it?": {"Quelle heure est-il ?", "Il est quelle heure ?"},
        "I'm hungry.": {"J'ai faim."},
        "She likes music.": {"Elle aime la musique."},
        "It's very cold today.": {"Il fait très froid aujourd'hui."},
        "We're late.": {"Nous sommes en retard.", "On est en retard."},
        "Thank you very much.": {"Merci beaucoup."},
        "My brother lives in Paris.": {"Mon frère habite à Paris.", "Mon frère vit à Paris."},
    },
    "petit-fr-en": {  # in Petit each sentence has only one translation
        "Le chat dort.": {"The cat is sleeping."},
        "Elle a faim.": {"She is hungry."},
        "Il ne mange jamais de pommes.": {"He never eats apples."},
        "Ma sœur a une robe rouge.": {"My sister has a red dress."},
        "Où est la clé ?": {"Where is the key?"},
        "Je vais partir demain.": {"I am going to leave tomorrow."},
        "Le frère de Marie chante souvent.": {"Marie's brother often sings."},
        "Nous avons acheté une voiture.": {"We bought a car."},
        "J'aime le pain.": {"I like bread."},
        "Je veux dormir.": {"I want to sleep."},
    },
}


@cache
def bundled_model(name: str) -> regard.Model:
    return regard.load(models.bundled_folder(name))


@pytest.fixture(params=EXPECTED)
def name(request: pytest.FixtureRequest) -> str:
    """Every bundled model."""
    return str(request.param)


@pytest.fixture(params=TRANSLATORS)
def translator(request: pytest.FixtureRequest) -> str:
    """Every bundled translator."""
    return str(request.param)


def test_exactly_the_listed_models_are_bundled() -> None:
    assert set(models.bundled_models()) == set(models.BUNDLED_MODELS) == set(EXPECTED)


def test_the_files_of_a_bundled_model_are_intact_and_small(name: str) -> None:
    home = models.bundled_folder(name)
    check_manifest(home)
    assert {file.name for file in home.iterdir()} == FILES
    assert set(json.loads((home / "manifest.json").read_text())["files"]) == FILES - {"manifest.json"}
    assert hashlib.sha256((home / "model.safetensors").read_bytes()).hexdigest() == EXPECTED[name].sha256
    assert {entry.dtype for entry in read_header(home / "model.safetensors").values()} in ({"BF16"}, {"I8", "F32"})
    assert models.bundled_size(name) <= EXPECTED[name].max_bytes


def test_the_bundled_models_fit_into_the_wheel() -> None:
    """Weights hardly compress: tests/test_packaging.py, which builds the wheel, allows 60 MB for everything."""
    assert sum(models.bundled_size(name) for name in models.bundled_models()) < 56_000_000


def with_keys_of(older: Any, recipe: Any) -> Any:
    """A part of a recipe without the keys that an older record of it lacks: they were added since, with defaults."""
    if isinstance(older, dict):
        return {key: with_keys_of(older[key], recipe[key]) for key in older}
    if isinstance(older, list) and len(older) == len(recipe):
        return [with_keys_of(*pair) for pair in zip(older, recipe, strict=True)]
    return recipe


def test_the_recipe_of_a_bundled_model_is_its_training_recipe(name: str) -> None:
    recipe = read_recipe(str(models.bundled_folder(name) / "recipe.toml"))
    read, told = json.loads(json.dumps(asdict(recipe))), bundled_model(name).about["recipe"]
    assert read.keys() == told.keys()
    for section in read.keys() - {"name"}:
        assert with_keys_of(told[section], read[section]) == told[section]
    files = [file for corpus in recipe.data.train for file in corpus.files]
    assert bool(files) == bool(EXPECTED[name].corpora)
    assert files or recipe.data.petit
    for file in files:
        assert file.startswith(EXPECTED[name].corpora), f"the card does not name {file}"


def test_a_bundled_model_contains_no_local_paths(name: str) -> None:
    for file in models.bundled_folder(name).iterdir():
        if file.suffix in (".md", ".json", ".toml") and file.name != "tokenizer.json":
            assert not re.search(r"(?<![\w.])(/\w+){2}|\.\./", file.read_text()), file


def test_the_card_of_a_bundled_model_is_complete(name: str) -> None:
    card, expected = (models.bundled_folder(name) / "README.md").read_text(), EXPECTED[name]
    sections = ("## Scores", "## Training\n", "- recipe: ", "- trained: ", "## Training data", "## Speed", "## Limits")
    for part in (*sections, "licensed under Apache-2.0", *expected.card):
        assert part in card, f"the card of {name} lacks {part}"
    signature = r"nrefs:1\|bs:1000\|seed:12345\|case:mixed\|eff:no\|tok:13a\|smooth:exp\|version:2"
    assert (signature in card) == (name in TRANSLATORS)
    about = bundled_model(name).about
    assert about["tests"]
    assert tuple(about["languages"]) == expected.languages


def test_the_text_of_a_card_is_kept_next_to_the_recipe(name: str) -> None:
    """`regard export --card regard/recipes/NAME.md` writes the card again."""
    written = (models.MODELS_FOLDER.parent / f"recipes/{name}.md").read_text()
    assert bundled_model(name).about["card"] == written
    assert written.strip() in (models.bundled_folder(name) / "README.md").read_text()


def test_everyday_sentences_are_translated(translator: str) -> None:
    accepted = EVERYDAY[translator]
    assert len(accepted) == 10
    translations = (" ".join(text.split()) for text in bundled_model(translator).translate(list(accepted)))
    said = dict(zip(accepted, translations, strict=True))  # a space before ? or ! may be of any kind
    assert {source: text for source, text in said.items() if text not in accepted[source]} == {}


QUANTITIES = {
    "fr-en": {
        "Tournez à droite dans 500 m.": r"500 ?(?:m|met(?:er|re)s)\b",
        "La plage est à 200 m de l'hôtel.": r"200 ?(?:m|met(?:er|re)s)\b",
        "Ajoutez 20 cl de lait.": r"20 (?:cl|centilit(?:er|re)s)\b",
        "Attendez 30 s avant de partir.": r"30 (?:s|seconds)\b",
        "Le courriel ne doit pas dépasser 10 Mo.": r"10 ?(?:MB|megabytes)\b",
        "Réponse sous 48 h.": r"48 ?(?:h|hours)\b",
        "Le magasin est ouvert 24h/24 et 7j/7.": r"24/7|a day",
        "Ajoutez ½ citron.": r"½|half",
    },
    "en-fr": {
        "The bottle holds 75 cl.": r"75 ?(?:cl|centilitres)\b",
        "There was 20 mm of rain.": r"20 ?(?:mm|millimètres)\b",
        "The email must not exceed 10 MB.": r"10 ?(?:Mo|mégaoctets)\b",
        "The lamp uses 9 W.": r"9 ?(?:W|watts)\b",
        "The service is open 24/7.": r"24 ?h",
    },
}


def test_quantities_keep_their_units(translator: str) -> None:
    expected = QUANTITIES.get(translator, {})
    translations = dict(zip(expected, bundled_model(translator).translate(list(expected)), strict=True))
    assert {one: text for one, text in translations.items() if not re.search(expected[one], text)} == {}


def test_the_readmes_translation_is_that_of_the_bundled_model() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    examples = re.findall(r'regard translate "(.*?)" +# (.*)', readme)
    examples = [(french, english) for french, english in examples if "--" not in french]
    assert examples
    outputs = run("translate", *(french for french, _ in examples)).splitlines()
    assert outputs == [english for _, english in examples]


def test_the_comments_in_the_readmes_program_are_its_results() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    ((text, translation),) = re.findall(r'model\.translate\("(.*?)"\)  # (.*)', readme)
    ((sentence, shape),) = re.findall(r'model\.attend\("(.*?)"\)\.weights\["cross"\]\.shape  # (\[.*?\])', readme)
    model = bundled_model("fr-en")
    assert model.translate(text) == translation
    assert str(list(model.attend(sentence).weights["cross"].shape)) == shape


def test_petit_sentences_are_translated_exactly() -> None:
    for french, accepted in EVERYDAY["petit-fr-en"].items():
        pair = find_pair(french)
        assert pair is not None
        assert {pair.english} == accepted


def test_bleu_on_petit(translator: str) -> None:
    """Sentences of Petit that are only used for tests, in the direction of the model."""
    sides = [{"fr": pair.french, "en": pair.english} for pair in pairs(200, seed=1, split="test")]
    source, target = EXPECTED[translator].languages
    translations = bundled_model(translator).quick().translate([side[source] for side in sides])
    bleu = sacrebleu.corpus_bleu(translations, [[side[target] for side in sides]])
    assert bleu.score >= EXPECTED[translator].min_petit_bleu, f"{translator}: {bleu}"


def test_the_writer_tells_stories() -> None:
    """`regard generate` works without options, and its stories have a beginning, a middle and an end."""
    printed = run("generate", "Once upon a time")
    assert printed == run("generate", "Once upon a time", "--model", "writer", "--seed", "0")
    stories = [run("generate", "Once upon a time", "--seed", str(seed)).strip() for seed in range(1, 6)]
    assert len({printed.strip(), *stories}) == 6
    for story in (printed.strip(), *stories):
        assert story.startswith("Once upon a time")
        assert story.endswith((".", "!", "?", '"')), story  # it ended by itself
        assert 40 <= len(story.split()) <= 220


def test_the_samples_on_the_card_of_the_writer_are_those_of_its_script() -> None:
    """Twenty samples, none left out: the card has the first words of what the model writes with each seed."""
    card = (models.bundled_folder("writer") / "README.md").read_text()
    samples = re.findall(r"^(\d+)\. (.+)$", card.partition("## Samples")[2], re.M)
    assert [int(number) for number, _ in samples] == list(range(1, 21))
    options = regard.Decoding(temperature=0.8, top_p=0.95, max_tokens=12)
    for seed in (0, 3):
        assert samples[seed][1].startswith(
            bundled_model("writer").generate(PROMPTS[seed % 4], seed=seed, decoding=options)
        )
