"""Tagging: from files with labelled words to a model that tags."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from regard.config import ModelConfig
from regard.data.corpus import Corpus
from regard.decoding.text_model import Model
from regard.errors import RegardError
from regard.evaluation.tagging import TaggingScores
from regard.model.transformer import build
from regard.training.objective import Objective
from regard.training.recipe import DataSection, Recipe, TokenizerSection, TrainSection
from regard.training.train import train_recipe
from regard.training.training_setup import prepare_training

NOUNS = ("chat", "chien", "cheval", "livre", "jardin")
VERBS = ("mange", "regarde", "cherche", "trouve")
SMALL_MODEL: dict[str, Any] = {"kind": "encoder", "d_model": 16, "heads": 2, "layers": 1, "d_ff": 32, "dropout": 0.0}


def sentence(i: int) -> str:
    """A sentence in which "porte" is a noun after a determiner, and a verb after a pronoun."""
    words = ["il PRON", "porte VERB", f"le DET\n{NOUNS[i % 5]} NOUN"] if i % 2 else ["la DET", "porte NOUN"]
    return "\n".join([*words, f"{VERBS[i % 4]} VERB" if i % 3 else "et CCONJ", ". PUNCT"])


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name, numbers in {"train": range(200), "dev": range(200, 230)}.items():
        (tmp_path / f"{name}.conll").write_text("\n\n".join(map(sentence, numbers)) + "\n", encoding="utf-8")
    return tmp_path


def recipe(folder: Path, model: dict[str, Any] = SMALL_MODEL, validation: str = "dev.conll", **train: Any) -> Recipe:
    settings: dict[str, Any] = {
        "steps": 40,
        "batch_tokens": 400,
        "lr": 1e-2,
        "warmup": 5,
        "validate_every": 20,
        "device": "cpu",
    } | train
    return Recipe(
        name="tagger",
        data=DataSection(
            task="tagging",
            folder=str(folder),
            train=(Corpus(("train.conll",)),),
            validation=Corpus((validation,)),
        ),
        tokenizer=TokenizerSection(vocab_size=280),
        model=dict(model),
        train=TrainSection(**settings),
    )


@pytest.mark.slow
def test_a_tagger_learns_from_context(files: Path, tmp_path: Path) -> None:
    outcome = train_recipe(recipe(files, best_by="score"), tmp_path / "run")
    (scores,) = outcome.scores
    assert isinstance(scores, TaggingScores)
    assert scores.words.accuracy.value == 1.0
    assert scores.spans is None
    model = Model.from_folder(tmp_path / "run")
    assert model.about["classes"] == ["CCONJ", "DET", "NOUN", "PRON", "PUNCT", "VERB"]
    assert model.about["scores"]["accuracy"] == 100.0
    tagged = model.tag(["la porte et .", ["il", "porte", "le", "livre", "."]])
    assert [[word.label for word in words] for words in tagged] == [
        ["DET", "NOUN", "CCONJ", "PUNCT"],
        ["PRON", "VERB", "DET", "NOUN", "PUNCT"],
    ]
    (again,) = train_recipe(recipe(files, {"start": str(tmp_path / "run")}, steps=1), tmp_path / "more").scores
    assert isinstance(again, TaggingScores)
    assert again.words.accuracy.value > 0.9  # the head is kept when the labels are the same


def test_packed_and_padded_batches_have_the_same_loss(files: Path, tmp_path: Path) -> None:
    losses = []
    for packed in (False, True):
        setup = prepare_training(recipe(files), tmp_path / "cache", packed)
        assert setup.packed == packed
        objective = Objective(setup.network.double().eval())
        batches = list(setup.batches.epoch(0))
        losses.append(sum(objective(batch).item() for batch in batches))
        assert sum(batch.targets for batch in batches) == sum(len(sentence(i).split("\n")) for i in range(200))
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_that_of_torch(files: Path, tmp_path: Path, smoothing: float) -> None:
    setup = prepare_training(recipe(files), tmp_path / "cache", False)
    batch = next(setup.batches.epoch(0))
    network = setup.network.eval()
    logits = network(batch.tokens, batch.lengths)
    expected = F.cross_entropy(logits.mT, batch.labels, reduction="sum", label_smoothing=smoothing)
    torch.testing.assert_close(Objective(network, smoothing)(batch), expected)


def test_unknown_labels_in_the_validation_text(files: Path, tmp_path: Path) -> None:
    (files / "bad.conll").write_text("le DET\n\nle DET\nchat NUON\n", encoding="utf-8")
    with pytest.raises(RegardError, match=r"bad\.conll:4: unknown label \('NUON': expected one of CCONJ, DET, "):
        prepare_training(recipe(files, validation="bad.conll"), tmp_path / "cache", False)


def test_what_a_tagging_recipe_refuses(files: Path) -> None:
    with pytest.raises(RegardError, match="the task tagging needs a model of kind 'encoder'"):
        recipe(files, SMALL_MODEL | {"kind": "decoder"})
    with pytest.raises(RegardError, match=r"model\.classes_per follows from the text"):
        recipe(files, SMALL_MODEL | {"classes_per": "token"})
    with pytest.raises(RegardError, match="task tagging needs words and labels: two files, or one with two columns"):
        DataSection(task="tagging", train=(Corpus(("a.conll",), columns=(1, 2, 3)),))


def test_other_heads_are_replaced_and_the_rest_is_kept(files: Path, tmp_path: Path) -> None:
    shape = {key: value for key, value in SMALL_MODEL.items() if key != "dropout"}
    tokenizer = prepare_training(recipe(files), tmp_path / "cache", False).tokenizer
    sizes = ModelConfig(vocab_size=tokenizer.size, **shape)
    heads: list[dict[str, Any]] = [
        {"classes": 6, "classifier_activation": "relu"},  # a classifier
        {"classes": 6, "classes_per": "token"},  # a tagger with other labels
        {"output_transform": True, "output_bias": True, "tied": False},  # a masked language model
    ]
    for number, head in enumerate(heads):
        base = Model(build(replace(sizes, **head)), tokenizer)
        base.save(tmp_path / str(number))
        setup = prepare_training(recipe(files, {"start": str(tmp_path / str(number))}), tmp_path / "cache", False)
        assert setup.network.config.is_tagger
        ours, theirs = setup.network.state_dict(), base.network.state_dict()
        assert ours["output.weight"].shape == (6, 16)
        assert not torch.equal(ours["output.weight"], theirs.get("output.weight", torch.zeros(1)))
        kept = [name for name in ours if not name.startswith("output")]
        assert all(torch.equal(ours[name], theirs[name]) for name in kept)
    data = DataSection(task="masked", train=(Corpus(("train.conll",)),), folder=str(files))
    masked = replace(recipe(files, {"start": str(tmp_path / "1")}), data=data)
    with pytest.raises(RegardError, match="predicts classes and not tokens"):
        prepare_training(masked, tmp_path / "cache", False)


def test_labels_of_a_tagger_can_be_held_out_of_the_training_text(files: Path, tmp_path: Path) -> None:
    plain = recipe(files)
    held_out = replace(plain, data=replace(plain.data, validation=None, held_out=0.1))
    setup = prepare_training(held_out, tmp_path / "cache", False)
    assert setup.example_count == 180
    assert [" ".join(each.words) for each in setup.sentences] == [
        " ".join(line.split()[0] for line in sentence(i).split("\n")) for i in range(180, 200)
    ]
    assert setup.validation is not None
    counted = sum(batch.targets for batch in setup.validation.epoch(0))
    assert counted == sum(len(each.words) for each in setup.sentences)


@pytest.mark.slow
def test_labels_of_spans_are_validated_by_their_f1(tmp_path: Path) -> None:
    """Names after "de" are places, and all others are people."""
    for name, numbers in {"train": range(150), "dev": range(150, 170)}.items():
        rows = (f"Marie{i % 7} B-PER\nde O\nParis{i % 5} B-LOC\nSud I-LOC\n" for i in numbers)
        (tmp_path / f"{name}.conll").write_text("\n".join(rows), encoding="utf-8")
    outcome = train_recipe(recipe(tmp_path, best_by="score", steps=20), tmp_path / "run")
    (scores,) = outcome.scores
    assert isinstance(scores, TaggingScores)
    assert scores.spans is not None
    assert scores.spans.f1 > 0.9
    assert Model.from_folder(tmp_path / "run").about["scores"]["F1"] == pytest.approx(100 * scores.spans.f1)
