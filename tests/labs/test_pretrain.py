"""The lab pretrain: its corpora and accuracies, and that its claims need a pretrained model."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from regard.decoding.text_model import Model
from regard.errors import RegardError
from regard.labs import pretrain
from regard.labs.lab import load_lab
from regard.petit import corpus_files as files
from regard.training.step import StepRunner
from tests.support.lab_runs import check_complete, failing, run_lab_with

SMALL = ["labelled=20,60", "steps=4,4", "unlabelled=80", "pretraining_steps=6", "width=16", "sentences=12"]


@pytest.fixture(autouse=True, scope="module")
def little_text(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Use an empty cache, and hold out few sentences."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(files, "HELD_OUT", 12)
        yield


def small_sizes() -> pretrain.Sizes:
    sizes: pretrain.Sizes = load_lab("pretrain").with_sizes(SMALL).sizes
    return sizes


@pytest.mark.slow
@pytest.mark.usefixtures("without_type_checks")
def test_both_starts_have_one_shape_and_the_masked_model_is_trained_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = pretrain.save_starts(small_sizes(), tmp_path / "first")
    untrained, pretrained = (Model.from_folder(starts[name]) for name in (pretrain.SCRATCH, pretrain.PRETRAINED))
    assert untrained.config == pretrained.config
    assert untrained.require_tokenizer().digest == pretrained.require_tokenizer().digest
    assert pretrained.can("fill")
    monkeypatch.setattr(StepRunner, "step", None)  # a second training would fail
    again = pretrain.save_starts(small_sizes(), tmp_path / "second")
    for name, model in ((pretrain.SCRATCH, untrained), (pretrain.PRETRAINED, pretrained)):
        weights = zip(Model.from_folder(again[name]).network.parameters(), model.network.parameters(), strict=True)
        assert all(torch.equal(one, other) for one, other in weights)


@pytest.mark.slow
@pytest.mark.usefixtures("without_type_checks")
def test_labels_are_written_next_to_their_sentences(tmp_path: Path) -> None:
    train, test = pretrain.labelled_sentences(small_sizes())
    assert (len(train.texts), len(test.texts)) == (60, 12)
    assert not set(train.texts) & set(test.texts)
    for words, parts in zip(train.words, train.parts, strict=True):
        assert len(words) == len(parts)
    assert Counter(train.classes).most_common(1)[0][1] < 30  # a constant answer scores badly
    for task, sides in (("tagging", (train.words, train.parts)), ("classification", (train.texts, train.classes))):
        corpus = pretrain.write_corpus(train, task, 20, tmp_path)  # type: ignore[arg-type]
        for file, side in zip(corpus.files, sides, strict=True):
            lines = Path(file).read_text(encoding="utf-8").splitlines()
            assert lines == [item if isinstance(item, str) else " ".join(item) for item in side[:20]]  # type: ignore[index]


@pytest.mark.slow
@pytest.mark.usefixtures("without_type_checks")
def test_the_result_is_complete_and_without_pretraining_there_is_no_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    save_starts = pretrain.save_starts

    def untrained_twice(sizes: pretrain.Sizes, folder: Path) -> dict[str, Path]:
        starts = save_starts(sizes, folder)
        return starts | {pretrain.PRETRAINED: starts[pretrain.SCRATCH]}

    monkeypatch.setattr(pretrain, "save_starts", untrained_twice)
    result = run_lab_with("pretrain", *SMALL)
    check_complete(result)
    assert {0, 1, 3} <= set(failing(result))
    for row in result.tables[0].rows:
        assert (row[1], row[3]) == (row[2], row[4])  # the same start gives the same accuracy


def test_the_claims_follow_from_the_accuracies() -> None:
    sizes = pretrain.Sizes()

    def holding(tagging: list[float], classification: list[float]) -> list[bool]:
        accuracies: pretrain.Accuracies = {
            "tagging": {pretrain.SCRATCH: [0.6, 0.8, 0.9], pretrain.PRETRAINED: tagging},
            "classification": {pretrain.SCRATCH: [0.2, 0.4, 0.8], pretrain.PRETRAINED: classification},
        }
        return [claim.holds for claim in pretrain.claims(sizes, accuracies)]

    tagging, classification = [0.8, 0.88, 0.93], [0.4, 0.7, 0.95]
    assert holding(tagging, classification) == [True, True, True, True]
    assert holding([0.61, 0.88, 0.93], classification) == [False, True, True, False]
    assert holding(tagging, [0.4, 0.41, 0.95]) == [True, False, True, True]
    assert holding(tagging, [0.4, 0.9, 0.95]) == [True, True, False, True]
    with pytest.raises(RegardError, match="3 sizes in labelled and 1 in steps"):
        run_lab_with("pretrain", "steps=5")
