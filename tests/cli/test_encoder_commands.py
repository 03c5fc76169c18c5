"""`regard classify`, `regard tag`, `regard fill` and `regard embed` as users run them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.formatting import visible
from tests.support.commands import command, refused
from tests.support.text_models import TEXTS, random_masked_model, random_model

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("without_type_checks")]

BERT = {
    "kind": "encoder",
    "positions": "learned",
    "max_length": 64,
    "activation": "gelu",
    "scale_embeddings": False,
    "embedding_norm": True,
    "classes": 3,
}


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Hugging Face folder with a classification head."""
    model = random_model(**BERT)
    model.network.float()
    model.about["classes"] = ["froid", "tiède", "chaud"]
    folder = tmp_path_factory.mktemp("models") / "classifier"
    regard.export(model, folder)
    return str(folder)


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Hugging Face folder of a token classifier."""
    model = random_model(**BERT | {"classes_per": "token"})
    model.network.float()
    torch.nn.init.normal_(model.network.output.weight, std=5)
    model.about["classes"] = ["O", "B-X", "I-X"]
    folder = tmp_path_factory.mktemp("models") / "tagger"
    regard.export(model, folder)
    return str(folder)


def test_words_and_labels(tagger: str, tmp_path: Path) -> None:
    tagged = regard.load(tagger).tag(TEXTS)
    lines = command("tag", *TEXTS, "-m", tagger).stdout.splitlines()
    assert lines == [" ".join(f"{word}/{label}" for word, label, _ in words) for words in tagged]
    source, output = tmp_path / "in.txt", tmp_path / "out.jsonl"
    source.write_text(f"{TEXTS[0]}\n\nun chat.\n", encoding="utf-8")
    done = command("tag", "-m", tagger, "-i", str(source), "-o", str(output), "--json", "--words")
    assert (done.exit_code, done.stdout) == (0, "")
    first, empty, last = (json.loads(line) for line in output.read_text(encoding="utf-8").splitlines())
    assert (first["text"], empty["words"]) == (TEXTS[0], [])
    assert [word["word"] for word in last["words"]] == ["un", "chat."]  # only spaces separate words
    assert {word["label"] for word in first["words"]} <= {"O", "B-X", "I-X"}
    assert "in.txt:2: the text has" in refused_line(tagger, tmp_path)
    assert "requires an encoder with a class for each token" in refused("tag", "a", "-m", "petit-fr-en")


def refused_line(tagger: str, folder: Path) -> str:
    (folder / "in.txt").write_text(f"un\n{'chat ' * 99}\n", encoding="utf-8")
    return str(command("tag", "-m", tagger, "-i", str(folder / "in.txt")).exception)


def test_taggers_are_evaluated(tagger: str, tmp_path: Path) -> None:
    model = regard.load(tagger)
    words = [[word.word for word in tagged] for tagged in model.tag(TEXTS)]
    labels = [[word.label for word in tagged] for tagged in model.tag(words)]
    labels[0][0] = "O" if labels[0][0] != "O" else "B-X"  # one of them is wrong
    pairs = [zip(*pair, strict=True) for pair in zip(words, labels, strict=True)]
    sentences = ["".join(f"{word}\t_\t{label}\n" for word, label in pair) for pair in pairs]
    (tmp_path / "test.conll").write_text("\n".join(sentences), encoding="utf-8")
    for name, lists in {"words": words, "labels": labels}.items():
        (tmp_path / f"test.{name}").write_text("".join(" ".join(items) + "\n" for items in lists), encoding="utf-8")
    expected = regard.evaluate(model, words, labels=labels)
    wrong_calls: list[tuple[Any, Any, str]] = [
        (TEXTS, labels, r"sources\[0\] must be a list of strings, one for each word, not a single string"),
        (5, labels, "sources must be a list of lists, one for each sentence, not int: 5"),
        (words, [5], r"labels\[0\] must be a list of strings, one for each word, not int: 5"),
        ([["un", "chat"]], [["O", "B-Y"]], r"labels\[0\]\[1\]: unknown label 'B-Y': did you mean 'B-X'"),
        ([["un"]], [[None]], r"labels\[0\]\[0\]: unknown label None: expected one of O, B-X, I-X"),
    ]
    for sources, wrong_labels, message in wrong_calls:
        with pytest.raises(regard.RegardError, match=message):
            regard.evaluate(model, sources, labels=wrong_labels)
    assert expected.words.accuracy.total - expected.words.accuracy.correct == 1
    assert expected.spans is not None
    for files in (["test.conll"], ["test.words", "test.labels"]):
        paths = [str(tmp_path / file) for file in files]
        done = command("evaluate", tagger, *paths, "--out", str(tmp_path / "scores.json"))
        assert f"{expected.words.accuracy.value:.1%}" in done.stdout
        figures = dict(line.split("  ", 1) for line in done.stdout.splitlines() if "  " in line)
        assert figures["F1 of spans"].split()[0] == f"{expected.spans.f1:.1%}"
        report = json.loads((tmp_path / "scores.json").read_text(encoding="utf-8"))
        assert report["kind"] == "tags"
        assert report["scores"]["spans"]["f1"] == expected.spans.f1
        assert report["scores"]["words"]["accuracy"]["correct"] == expected.words.accuracy.correct
    (tmp_path / "bad.conll").write_text("un O\nchat B-Y\n", encoding="utf-8")
    unknown = refused("evaluate", tagger, str(tmp_path / "bad.conll"))
    assert "bad.conll:2: unknown label ('B-Y': expected one of O, B-X, I-X)" in unknown
    assert "skip" not in unknown  # the score would leave out what the model cannot do
    (tmp_path / "partly.conll").write_text("un O\n\nun\n\nun O\nchat B-Y\n\nun\nchat\n", encoding="utf-8")
    partly = str(tmp_path / "partly.conll")
    assert "skip such sentences (--skip-bad) or fix them" in refused("evaluate", tagger, partly)
    done = command("evaluate", tagger, partly, "--skip-bad", "--out", str(tmp_path / "scores.json"))
    assert "3 sentences were skipped and not scored" in done.stdout
    assert json.loads((tmp_path / "scores.json").read_text(encoding="utf-8"))["skipped"] == [
        {"reason": "missing label", "count": 2, "first": f"{partly}:3"},
        {"reason": "unknown label", "count": 1, "first": f"{partly}:6"},
    ]
    (tmp_path / "long.conll").write_text("un O\n\n" + "chat O\n" * 99, encoding="utf-8")
    assert "long.conll:3: the sentence has " in refused("evaluate", tagger, str(tmp_path / "long.conll"))
    (tmp_path / "empty.conll").write_text("\n", encoding="utf-8")
    assert "empty.conll has no valid sentence" in refused("evaluate", tagger, str(tmp_path / "empty.conll"))
    assert "--align is for translators, but this model is a tagger" in refused(
        "evaluate", tagger, paths[0], "--align", "x"
    )


def test_classes_and_probabilities(classifier: str, tmp_path: Path) -> None:
    best = regard.load(classifier).classify(TEXTS)
    rows = [line.split("\t") for line in command("classify", *TEXTS, "-m", classifier).stdout.splitlines()]
    assert [row[0] for row in rows] == [label for label, _ in best]
    assert [float(row[1]) for row in rows] == pytest.approx([p for _, p in best], abs=1e-4)
    source, output = tmp_path / "in.txt", tmp_path / "out.jsonl"
    source.write_text("\n".join([TEXTS[0], "", TEXTS[1]]), encoding="utf-8")
    done = command("classify", "-m", classifier, "-i", str(source), "-o", str(output), "--json")
    assert (done.exit_code, done.stdout) == (0, "")
    answers = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    assert [answer["text"] for answer in answers] == [TEXTS[0], "", TEXTS[1]]
    assert answers[2]["label"] == best[1][0]
    assert answers[2]["probability"] == pytest.approx(best[1][1], abs=1e-5)
    assert list(answers[0]["probabilities"]) == ["froid", "tiède", "chaud"]
    assert sum(answers[0]["probabilities"].values()) == pytest.approx(1)


def test_vectors_as_numbers_json_and_numpy(classifier: str, tmp_path: Path) -> None:
    vectors = regard.load(classifier).embed(TEXTS, pooling="cls").numpy()
    text = "\n".join(TEXTS)
    plain = command("embed", "-m", classifier, "--pooling", "cls", stdin=text).stdout
    assert np.array_equal(np.array([line.split() for line in plain.splitlines()], np.float32), vectors)
    rows = [json.loads(line) for line in command("embed", "-m", classifier, *TEXTS, "--json").stdout.splitlines()]
    assert [row["text"] for row in rows] == TEXTS
    assert np.array_equal(np.array([row["vector"] for row in rows], np.float32), regard.load(classifier).embed(TEXTS))
    path = tmp_path / "vectors.npy"
    done = command("embed", "-m", classifier, "--pooling", "cls", "--npy", str(path), stdin=text)
    assert done.stdout.split() == [str(path), str(len(TEXTS)), "×", str(vectors.shape[1])]
    assert np.array_equal(np.load(path), vectors)
    command("embed", "-m", classifier, "--npy", str(path), stdin="")
    assert np.load(path).shape == (0, vectors.shape[1])


def test_errors_name_the_line_after_the_output_of_earlier_lines(classifier: str, tmp_path: Path) -> None:
    source = tmp_path / "in.txt"
    source.write_text("\n".join([*TEXTS[:2], "chat " * 99, TEXTS[2]]), encoding="utf-8")
    done = command("classify", "-m", classifier, "-i", str(source))
    assert str(done.exception).startswith(f"{source}:3: the text has ")
    assert len(done.stdout.splitlines()) == 2
    assert "text 2: the text has" in refused("embed", "-m", classifier, "a", "chat " * 99)
    output = tmp_path / "kept"
    output.write_text("kept", encoding="utf-8")
    assert "stdin:1: invalid UTF-8" in refused("classify", "-m", classifier, "-o", str(output), stdin=b"caf\xe9\n")
    assert output.read_text(encoding="utf-8") == "kept"
    assert "stdin:2: invalid UTF-8" in refused("embed", "-m", classifier, "--npy", str(output), stdin=b"a\ncaf\xe9\n")
    assert output.read_text(encoding="utf-8") == "kept"


def test_models_that_are_not_named(tmp_path: Path) -> None:
    for name, recipe in (("tag", "petit-tag"), ("classify", "petit-classify"), ("fill", "petit-masked")):
        assert f"train one with regard train {recipe}" in refused(name, "un <mask>")
    done = command("embed", "un chat", "--npy", str(tmp_path / "v2"))  # of the bundled translator
    assert done.stdout.startswith(str(tmp_path / "v2.npy"))
    assert np.array_equal(np.load(tmp_path / "v2.npy")[0], regard.load("fr-en").embed("un chat"))


def test_wrong_options_are_reported(classifier: str, tmp_path: Path) -> None:
    npy = ("--npy", str(tmp_path / "a.npy"))
    assert "both texts and --input" in refused("classify", "a", "-i", "b", "-m", classifier)
    assert "nothing to classify" in refused("classify", " ", "-m", classifier)
    assert "both --npy" in refused("embed", "a", "-m", classifier, *npy, "--json")
    assert "pooling" in refused("embed", "a", "-m", classifier, "--pooling", "max")
    assert "requires a model with a classification head" in refused("classify", "a", "-m", "petit-fr-en")


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A masked language model."""
    model = random_masked_model()
    model.network.float()
    folder = tmp_path_factory.mktemp("models") / "masked"
    model.save(folder)
    return str(folder)


def test_masks_are_filled_with_one_line_for_each_text(masked: str, tmp_path: Path) -> None:
    model = regard.load(masked)
    texts = ["Marie mange <mask> pomme.", "<mask> dort <mask>."]
    rows = [line.split("\t") for line in command("fill", *texts, "-k", "3", "-m", masked).stdout.splitlines()]
    assert [len(row) for row in rows] == [2 * 3, 2 * 3 + 1 + 2 * 3]
    assert rows[1].pop(2 * 3) == "|"  # between the masks
    dots = 0
    for row, text in zip(rows, texts, strict=True):
        fillings = [filling for mask in model.fillings(text, 3) for filling in mask]
        assert [float(figure) for figure in row[1::2]] == pytest.approx([f.probability for f in fillings], abs=1e-4)
        shown = [visible(filling.token.strip() or filling.token) for filling in fillings]
        assert row[::2] == [f"·{s}" if f.continues_word else s for s, f in zip(shown, fillings, strict=True)]
        dots += sum(filling.continues_word for filling in fillings)
    assert dots
    source = tmp_path / "in.txt"
    source.write_text("\n".join(texts), encoding="utf-8")
    done = command("fill", "-k", "2", "-m", masked, "-i", str(source), "--json")
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["text"] for answer in answers] == texts
    for mask, alone in zip(answers[1]["masks"], model.fillings(texts[1], 2), strict=True):
        assert [filling.pop("probability") for filling in mask] == pytest.approx(
            [f.probability for f in alone], abs=1e-5
        )
        assert mask == [{k: v for k, v in f._asdict().items() if k != "probability"} for f in alone]


def test_texts_and_models_without_a_mask_are_refused(masked: str, classifier: str) -> None:
    assert "text 2: the text has no mask: write <mask>" in refused("fill", "<mask>", "chat", "-m", masked)
    assert "stdin:1: the text has no mask" in refused("fill", "-m", masked, stdin="chat\n")
    assert "requires an encoder with a head over the vocabulary" in refused("fill", "<mask>", "-m", classifier)
    assert "text 1: k=" in refused("fill", "<mask>", "-m", masked, "-k", "9999")
