"""Weights and tags of corpora: `times`, `temperature` and `tag` change how often texts are used, and nothing else."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from regard.data.batches import Batches
from regard.data.corpus import Corpus, CorpusError, CorpusProblems
from regard.data.language_batches import language_block_batches, language_document_batches
from regard.data.tokenized_corpus import TokenizedCorpus
from regard.errors import RegardError
from regard.training.recipe import DataSection, Recipe, TokenizerSection, TrainSection
from regard.training.recipe_files import as_toml, override_recipe, read_recipe
from regard.training.training_setup import TrainingSetup, prepare_training
from regard.training.training_text import corpus_times
from tests.support import batches as batches_support
from tests.support.batches import END, PAD, TASKS, corpus_of, same_batch

SIZES = {"a": 12, "b": 30, "c": 50}
KINDS: dict[str, dict[str, Any]] = {
    "encoder-decoder": {"task": "translation"},
    "decoder": {"task": "translation", "kind": "decoder"},
    "classification": {"task": "classification", "kind": "encoder"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with three corpora, whose texts start with the name of the corpus."""
    found = tmp_path_factory.mktemp("weights")
    for name, size in SIZES.items():
        texts = [f"{name} {n} {'word ' * (n % 7)}".strip() for n in range(size)]
        (found / f"{name}.x").write_text("".join(f"{text}\n" for text in texts))
        (found / f"{name}.y").write_text("".join(f"{'one' if n % 2 else 'two'}\n" for n in range(size)))
    return found


def corpora(folder: Path, *names: str, sides: str = "xy", **settings: Any) -> tuple[Corpus, ...]:
    return tuple(Corpus(tuple(str(folder / f"{name}.{side}") for side in sides), **settings) for name in names)


def setup(folder: Path, train: tuple[Corpus, ...], packed: bool = False, **changes: Any) -> TrainingSetup:
    """Prepare a small recipe on these corpora."""
    model: dict[str, Any] = {"preset": "tiny", "layers": 1, "d_model": 32} | changes
    data = DataSection(train=train, task=model.pop("task", "translation"), **model.pop("data", {}))
    recipe = Recipe(
        name="weights",
        data=data,
        tokenizer=TokenizerSection(vocab_size=320),
        model=model,
        train=TrainSection(batch_tokens=200, max_length=60),
    )
    return prepare_training(recipe, folder / "cache", packed)


def sources(task: TrainingSetup, epoch: int = 0) -> list[str]:
    """Return every source of an epoch of an encoder-decoder."""
    rows = []
    for batch in task.batches.epoch(epoch):
        assert batch.source is not None
        assert batch.source_lengths is not None
        for ids, length in zip(batch.source.tolist(), batch.source_lengths.tolist(), strict=True):
            rows.append(task.tokenizer.decode(ids[: length - 1]))
    return rows


def names(texts: list[str]) -> Counter[str]:
    """Return how many texts are of each corpus."""
    return Counter(text[0] for text in texts)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_times_is_the_same_as_listing_a_corpus_several_times(kind: str, packed: bool, folder: Path) -> None:
    """The same tokenizer and the same batches in the same order, although each text is stored once."""
    listed = setup(folder, corpora(folder, "a", "b", "b", "b", "c"), packed, **KINDS[kind])
    a, b, c = corpora(folder, "a", "b", "c")
    weighted = setup(folder, (a, replace(b, times=3), c), packed, **KINDS[kind])
    assert listed.tokenizer.digest == weighted.tokenizer.digest
    for epoch in (0, 1):
        both = zip(listed.batches.epoch(epoch), weighted.batches.epoch(epoch), strict=True)
        assert all(same_batch(one, other) for one, other in both)
    assert (listed.example_count, weighted.example_count) == (12 + 90 + 50, 12 + 30 + 50)


def test_a_fraction_is_another_choice_in_each_epoch(folder: Path) -> None:
    a, b = corpora(folder, "a", "b")
    task = setup(folder, (replace(a, times=1.25), replace(b, times=0.51)))
    epochs = [sources(task, epoch) for epoch in range(40)]
    assert epochs[0] == sources(task, 0)
    assert sum(names(texts)["a"] for texts in epochs) / 40 == pytest.approx(15, abs=1)
    assert sum(names(texts)["b"] for texts in epochs) / 40 == pytest.approx(15.3, abs=1.5)
    counts = Counter(text for texts in epochs for text in texts)
    assert len(counts) == 12 + 30
    assert all(max(Counter(texts).values()) <= 2 for texts in epochs)  # none of `a` three times
    assert min(count for text, count in counts.items() if text.startswith("b")) > 8  # of 20.4 expected


def test_a_temperature_makes_small_corpora_more_frequent(folder: Path) -> None:
    """With size n and temperature t, a corpus is used in proportion to n^(1/t), the largest once."""
    task = setup(folder, corpora(folder, "a", "c"), data={"temperature": 2.0})
    counts = names([text for epoch in range(50) for text in sources(task, epoch)])
    assert counts["c"] == 50 * 50
    assert counts["a"] / counts["c"] == pytest.approx((12 / 50) ** 0.5, rel=0.01)
    data = replace(corpus_of([[5]] * 60), corpus_ends=(0, 12, 60))
    train = corpora(folder, "a", "b", "c")
    assert corpus_times(DataSection(train=train), data) == (1, 1, 1)
    equal = corpus_times(DataSection(train=train, temperature=1e9), data)
    assert equal == pytest.approx((1, 4, 1))  # an empty corpus stays empty


@pytest.mark.parametrize("task", ["blocks", "documents"])
def test_language_models_use_corpora_several_times(task: str) -> None:
    """Tokens below 50 are of a corpus that is used 2.5 times."""
    first, second = [[n] * 9 for n in range(2, 50)], [[n] * 9 for n in range(50, 90)]
    data = replace(corpus_of([*first, *second]), corpus_ends=(48, 88), times=(2.5, 1.0))
    tokens = Counter(
        bool(token < 50)
        for epoch in range(20)
        for batch in language_batches(task, data).epoch(epoch)
        for token in batch.labels[batch.labels > END].tolist()
    )
    assert tokens[True] / tokens[False] == pytest.approx(2.5 * 48 / 40, rel=0.05)


def language_batches(task: str, data: TokenizedCorpus) -> Batches:
    if task == "blocks":
        return language_block_batches(data, END, 16, 64)
    return language_document_batches(data, END, PAD, 16, 64)


@pytest.mark.parametrize("task", TASKS)
def test_weights_of_one_change_nothing(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = list(TASKS[task]().epoch(1))
    for name in ("DATA", "TEXT", "CLASSES", "TAGGED"):
        data = getattr(batches_support, name)
        monkeypatch.setattr(batches_support, name, replace(data, corpus_ends=(50, 200), times=(1.0, 1.0)))
    assert all(same_batch(one, other) for one, other in zip(expected, TASKS[task]().epoch(1), strict=True))


def test_what_is_held_out_is_never_trained_on(folder: Path) -> None:
    """Listed twice, a corpus would be on both sides of the split."""
    a, b = corpora(folder, "a", "b", times=3)
    task = setup(folder, (b, a), data={"held_out": 0.2})
    assert not {text for text, _ in task.examples} & set(sources(task))
    assert names(sources(task)) == {"b": 90, "a": 9}  # 9 of the 12 of `a` are held out, and 3 are used 3 times
    assert task.about["data"]["validation"]["examples"] == 9


def test_a_tag_is_read_before_the_source_and_nowhere_else(folder: Path) -> None:
    a, b = corpora(folder, "a", "b")
    task = setup(folder, (a, replace(b, tag="<BT>")))
    found = sources(task)
    assert Counter(text.split()[0] for text in found) == {"a": 12, "<BT>": 30}
    plain = setup(folder, (a, b))
    assert sorted(text.removeprefix("<BT> ") for text in found) == sorted(sources(plain))
    assert plain.tokenizer.digest != task.tokenizer.digest  # it has read the tag
    assert plain.digest != task.digest
    rows = list(replace(b, tag="<BT>").rows(CorpusProblems()))
    assert rows[0].fields == ("<BT> b 0", "two")
    assert not list(Corpus((str(folder / "a.x"), "/dev/null"), tag="<BT>").rows(CorpusProblems(skip=True)))


def test_a_tag_does_not_hide_an_empty_side(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("one\n \n")
    (tmp_path / "y").write_text("un\ndeux\n")
    problems = CorpusProblems(skip=True)
    assert len(list(Corpus((str(tmp_path / "x"), str(tmp_path / "y")), tag="T").rows(problems))) == 1
    assert problems.counts == {"empty side": 1}


RECIPE = """
[data]
train = [{ files = ["a.x", "a.y"], times = 3, tag = "<BT>" }, { files = ["b.x", "b.y"], times = 0.5 }]
"""


def test_weights_and_tags_are_written_and_read(tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text(RECIPE)
    recipe = read_recipe(str(tmp_path / "r.toml"), ["data.train.1.times=2", "data.train.1.tag=<X>"])
    assert [(corpus.times, corpus.tag) for corpus in recipe.data.train] == [(3, "<BT>"), (2, "<X>")]
    (tmp_path / "again.toml").write_text(as_toml(recipe))
    assert replace(read_recipe(str(tmp_path / "again.toml")), name="r") == recipe


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("data.train.0.times=0", "times=0 of a.x must be above 0"),
        ("data.train.0.times=-1.5", "times=-1.5 of a.x must be above 0"),
        ("data.train.0.times=1001", "at most 1,000"),
        ("data.train.0.times=nan", "times=nan of a.x"),
        ("data.train.0.times='3'", "times='3' has type str: expected float"),
        ("data.train.0.time=3", "has no key 'time'.*times"),
        ("data.train.0.tag='<a b>'", "must be one word"),
        ("data.train.0.tag=' '", "must be one word"),
        ("data.train.0.tag=3", "tag=3 has type int"),
        ("data.temperature=0.5", "must be at least 1"),
        ("data.temperature=nan", "must be at least 1"),
        ("data.temperature=2", "data.temperature=2.0 decides how often"),
        ('data.validation={ files = ["a.x", "a.y"], times = 2 }', "validation text is used once"),
        ("data.task=classification", "tag='<BT>' is for translation only"),
    ],
)
def test_mistakes_in_weights_are_reported(change: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text(RECIPE)
    with pytest.raises(RegardError, match=message):
        override_recipe(read_recipe(str(tmp_path / "r.toml")), [change])


def test_a_corpus_checks_its_weight_in_python_too() -> None:
    with pytest.raises(CorpusError, match="must be above 0"):
        Corpus(("a", "b"), times=float("inf"))
    with pytest.raises(RegardError, match="has type bool"):
        Corpus(("a", "b"), times=True)
    assert Corpus(("a", "b"), times=2) == Corpus(("a", "b"), times=2.0)
