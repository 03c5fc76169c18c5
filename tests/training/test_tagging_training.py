"""Tagging: from files with labelled words to a model that tags."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from regard.data.corpus import Corpus
from regard.decoding.text_model import Model
from regard.errors import RegardError
from regard.evaluation.tagging import TaggingScores
from regard.training.objective import Objective
from regard.training.recipe import DataSection, Recipe, TokenizerSection, TrainSection
from regard.training.train import train_recipe
from regard.training.training_setup import prepare_training

NOUNS = ("chat", "chien", "cheval", "livre", "jardin")
VERBS = ("mange", "regarde", "cherche", "trouve")
SMALL_MODEL = {"kind": "encoder", "d_model": 16, "heads": 2, "layers": 1, "d_ff": 32, "dropout": 0.0}


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
    with pytest.raises(RegardError, match=r"bad\.conll:4: unknown label \('NUON': did you mean 'NOUN'"):
        prepare_training(recipe(files, validation="bad.conll"), tmp_path / "cache", False)


def test_what_a_tagging_recipe_refuses(files: Path) -> None:
    with pytest.raises(RegardError, match="the task tagging needs a model of kind 'encoder'"):
        recipe(files, SMALL_MODEL | {"kind": "decoder"})
    with pytest.raises(RegardError, match=r"model\.classes_per follows from the text"):
        recipe(files, SMALL_MODEL | {"classes_per": "token"})
    with pytest.raises(RegardError, match="task tagging needs words and labels: two files, or one with two columns"):
        DataSection(task="tagging", train=(Corpus(("a.conll",), columns=(1, 2, 3)),))
