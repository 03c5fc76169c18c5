"""From a recipe to batches and a network: every example is in its split, in the format that the model is used with."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer as Engine
from tokenizers import decoders, models, pre_tokenizers, trainers

import regard
from regard.config import SpecialIds
from regard.data.batches import IGNORED_TARGET, Batch, Batches
from regard.data.corpus import Corpus
from regard.data.huggingface_tokenizer import HuggingFaceTokenizer
from regard.data.tokenizer import Tokenizer
from regard.data.tokenizer_training import train_tokenizer
from regard.decoding.text_model import Model
from regard.petit import Pair, pairs
from regard.petit import corpus_files as files
from regard.training import training_text as texts
from regard.training.objective import Objective
from regard.training.recipe import DataSection, Recipe, TokenizerSection, TrainSection
from regard.training.recipe_files import read_recipe
from regard.training.training_setup import TrainingSetup, cache_folder, prepare_training
from regard.training.training_text import NO_PHENOMENON
from tests.support.real_data import REAL_DATA
from tests.support.text_models import random_model

STORIES = REAL_DATA / "weights" / "stories260K"

PAIRS, DEV = 300, 60
MODELS: dict[str, dict[str, Any]] = {
    "encoder-decoder": {"task": "translation"},
    "decoder": {"task": "translation", "kind": "decoder", "prefix": True},
    "language": {"task": "language", "kind": "decoder", "positions": "rotary"},
    "classification": {"task": "classification", "kind": "encoder"},
    "masked": {"task": "masked", "kind": "encoder", "output_transform": True, "output_bias": True},
}


@pytest.fixture(scope="module", autouse=True)
def small_petit() -> Iterator[None]:
    """Hold out few sentences, since every call of the grammar is type-checked here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "HELD_OUT", DEV)
        yield


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@lru_cache
def petit_pairs(split: str = "train") -> list[Pair]:
    return list(pairs(PAIRS if split == "train" else DEV, split=split))


def petit_recipe(
    data: DataSection | None = None, train: dict[str, Any] | None = None, task: str = "translation", **model: Any
) -> Recipe:
    """Return a small recipe, on Petit unless there is other data."""
    fresh: dict[str, Any] = {} if "start" in model else {"preset": "tiny", "layers": 1, "d_model": 32}
    return Recipe(
        name="small",
        data=data or DataSection(petit=PAIRS, task=task),  # type: ignore[arg-type]
        tokenizer=TokenizerSection(vocab_size=320),
        model=fresh | model,
        train=TrainSection(**{"batch_tokens": 1_000, "max_length": 200} | (train or {})),
    )


def petit(which: str, **more: Any) -> Recipe:
    return petit_recipe(**MODELS[which], **more)


def first_epoch(batches: Batches) -> list[Batch]:
    return list(batches.epoch(0))


def sentences(batch: Batch) -> list[tuple[list[int], list[int], list[int]]]:
    """Return the tokens of each sentence, their labels, and its source, padded or packed."""
    found = []
    lengths = batch.lengths if batch.lengths is not None else torch.full((len(batch.tokens),), batch.tokens.size(1))
    for row, counts in enumerate(lengths.reshape(len(batch.tokens), -1).tolist()):
        sources = [0] * len(counts)
        if batch.source_lengths is not None:
            sources = batch.source_lengths.reshape(len(batch.tokens), -1)[row].tolist()
        place = source_place = 0
        for count, source_count in zip(counts, sources, strict=True):
            tokens = batch.tokens[row, place : place + count].tolist()
            labels = batch.labels[row, place : place + count].tolist() if batch.labels.dim() == 2 else []
            source = []
            if batch.source is not None:
                source = batch.source[row, source_place : source_place + source_count].tolist()
            if count:
                found.append((tokens, labels, source))
            place, source_place = place + count, source_place + source_count
    return found


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("which", MODELS)
def test_a_batch_goes_through_the_network(which: str, packed: bool, cache: Path) -> None:
    task = prepare_training(petit(which), cache, packed)
    assert task.validation is not None
    assert (task.example_count, task.left_out, task.kind) == (PAIRS, 0, MODELS[which]["task"])
    objective = Objective(task.network)
    for batches in (task.batches, task.validation):
        batch = next(batches.epoch(0))
        assert batch.targets >= 10
        loss = objective(batch) / batch.targets
        assert torch.isfinite(loss)
    loss.backward()
    for name, parameter in task.network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all()
        assert parameter.dtype == torch.float32


@pytest.mark.parametrize("packed", [False, True])
def test_a_translator_is_trained_in_the_format_it_is_used_with(packed: bool, cache: Path) -> None:
    task = prepare_training(petit("encoder-decoder"), cache, packed)
    tokenizer, special = task.tokenizer, task.special
    wanted: Counter[Any] = Counter()
    for pair in petit_pairs():
        target = tokenizer.encode(pair.english)
        wanted[
            (special.start, *target), (*target, *special.end), tuple(tokenizer.encode_with_template(pair.french))
        ] += 1
    found = Counter(tuple(map(tuple, each)) for batch in first_epoch(task.batches) for each in sentences(batch))
    assert found == wanted


@pytest.mark.parametrize("packed", [False, True])
def test_a_decoder_is_trained_in_the_format_it_is_used_with(packed: bool, cache: Path) -> None:
    task = prepare_training(petit("decoder"), cache, packed)
    tokenizer, special = task.tokenizer, task.special
    wanted: Counter[Any] = Counter()
    for pair in petit_pairs():
        source, target = tokenizer.encode_with_template(pair.french), tokenizer.encode(pair.english)
        silent = [IGNORED_TARGET] * len(source)
        wanted[(*source, special.separator, *target), (*silent, *target, *special.end), ()] += 1
    epoch = first_epoch(task.batches)
    assert Counter(tuple(map(tuple, each)) for batch in epoch for each in sentences(batch)) == wanted
    assert all(batch.prefix is not None for batch in epoch)
    assert all(batch.prefix is None for batch in first_epoch(prepare_training(plain_decoder(), cache, packed).batches))


def plain_decoder() -> Recipe:
    return petit_recipe(kind="decoder", prefix=False)


def test_a_packed_language_model_keeps_sentences_separate(cache: Path) -> None:
    task = prepare_training(petit("language"), cache, packed=True)
    found = Counter(
        (tuple(tokens), tuple(labels)) for batch in first_epoch(task.batches) for tokens, labels, _ in sentences(batch)
    )
    wanted: Counter[Any] = Counter()
    for pair in petit_pairs():
        read = task.tokenizer.encode_with_template(pair.french)
        wanted[tuple(read), (*read[1:], *task.special.end)] += 1
    assert found == wanted
    assert task.tokenizer.before == task.special.end
    assert task.special == SpecialIds(end=(0,))
    assert task.about["languages"] == ["fr"]


def test_without_packing_sentences_form_one_stream(cache: Path) -> None:
    task = prepare_training(petit("language"), cache, packed=False)
    assert task.validation is not None
    assert all(batch.lengths is None for batch in first_epoch(task.batches))
    rows = torch.cat([batch.labels.flatten() for batch in first_epoch(task.validation)])
    batch_text = rows[rows != IGNORED_TARGET].tolist()
    dev = [[*task.tokenizer.encode(pair.french), 0] for pair in petit_pairs("dev")]
    assert batch_text == [id_ for text in dev for id_ in text]


def test_the_class_of_a_sentence_is_its_rarest_phenomenon(cache: Path) -> None:
    task = prepare_training(petit("classification"), cache, packed=True)
    known = petit_pairs()
    counts = Counter(tag for pair in known for tag in pair.tags)

    def rarest(tags: tuple[str, ...]) -> str:
        return (
            sorted((tag for tag in tags if counts[tag]), key=lambda tag: (counts[tag], tag))[0]
            if tags
            else NO_PHENOMENON
        )

    wanted = Counter((tuple(task.tokenizer.encode_with_template(pair.french)), rarest(pair.tags)) for pair in known)
    names = task.about["classes"]
    found = Counter(
        (tuple(tokens), names[label])
        for batch in first_epoch(task.batches)
        for (tokens, _, _), label in zip(sentences(batch), batch.labels.tolist(), strict=True)
    )
    assert found == wanted
    assert len(names) > 25
    assert max(Counter(label for _, label in wanted.elements()).values()) < PAIRS / 5  # a constant answer scores badly
    assert task.network.config.classes == len(names)
    assert len(task.examples) + task.problems.get("unknown class", 0) == DEV
    assert all(
        label == rarest(pair.tags)
        for pair in petit_pairs("dev")
        for text, label in task.examples
        if text == pair.french
    )


@pytest.mark.parametrize("packed", [False, True])
def test_masked_texts_are_framed_as_the_saved_tokenizer_frames_them(packed: bool, cache: Path) -> None:
    task = prepare_training(petit("masked"), cache, packed=packed)
    assert task.special.mask == task.tokenizer.mask == 2
    texts = {tuple(task.tokenizer.encode_with_template(pair.french)) for pair in petit_pairs()}
    assert all((ids[0], ids[-1]) == (0, 0) for ids in texts)
    for tokens, labels, _ in (row for batch in first_epoch(task.batches) for row in sentences(batch)):
        chosen = [label != IGNORED_TARGET for label in labels]
        assert sum(chosen) == max(1, int(0.15 * (len(tokens) - 2) + 0.5))
        pairs = zip(tokens, labels, strict=True)
        assert tuple(token if label == IGNORED_TARGET else label for token, label in pairs) in texts
    assert task.validation is not None
    first, second = ([batch.tokens for batch in task.validation.epoch(0)] for _ in range(2))
    assert all(torch.equal(one, two) for one, two in zip(first, second, strict=True))  # the same at every validation
    for (text, word), pair in zip(task.examples, petit_pairs("dev"), strict=True):
        assert text.replace("<mask>", word) == pair.french


def test_a_model_without_a_mask_cannot_learn_to_fill_it(cache: Path, tmp_path: Path) -> None:
    random_model(kind="encoder").save(tmp_path / "unmasked")
    with pytest.raises(regard.RegardError, match=r"the model in model\.start has no mask token"):
        prepare_training(petit_recipe(start=str(tmp_path / "unmasked"), task="masked"), cache, packed=False)


def test_the_encoder_of_a_masked_model_is_kept_when_it_learns_to_classify(cache: Path, tmp_path: Path) -> None:
    save_model("masked", cache, tmp_path / "masked")
    base = Model.from_folder(tmp_path / "masked")
    task = prepare_training(petit_recipe(start=str(tmp_path / "masked"), task="classification"), cache, packed=False)
    assert task.network.config.classes == len(task.about["classes"]) > 25
    assert task.tokenizer.encode_with_template("Il dort.") == base.require_tokenizer().encode_with_template("Il dort.")
    kept, new = base.network.state_dict(), task.network.state_dict()
    assert all(torch.equal(new[name], kept[name]) for name in kept if name.startswith(("embedding.", "encoder.")))
    assert {name.partition(".")[0] for name in new.keys() - kept.keys()} == {"classifier"}


def test_the_metadata_of_a_run(cache: Path) -> None:
    recipe = petit("encoder-decoder")
    task = prepare_training(recipe, cache, packed=False)
    longest = max(len(task.tokenizer.encode_with_template(pair.french)) for pair in petit_pairs())
    assert 0.8 * longest < task.about["longest"] <= longest
    assert task.about["longest"] == task.model().max_source_tokens
    assert task.about["data"] == {"petit": PAIRS, "seed": 0, "train": PAIRS, "validation": DEV}
    assert task.about["languages"] == ["fr", "en"]
    assert task.about["recipe"]["data"]["petit"] == PAIRS
    assert task.examples == [(pair.french, pair.english) for pair in petit_pairs("dev")]
    assert task.special == SpecialIds(start=task.tokenizer.pad, end=(0,))


@pytest.mark.parametrize("which", MODELS)
def test_the_model_can_be_saved_and_used(which: str, cache: Path, tmp_path: Path) -> None:
    task = prepare_training(petit(which), cache, packed=False)
    replace_network(task.model()).save(tmp_path / "model")
    model = regard.load(tmp_path / "model")
    assert model.about["name"] == "small"
    if which == "classification":
        assert model.classify(["Il dort."])[0][0] in task.about["classes"]
    elif which == "language":
        assert model.generate("Il", max_tokens=3).startswith("Il")
    elif which == "masked":
        assert len(model.fill("Il <mask>.")) == 5
    else:
        assert len(model.translate(["Il dort.", "Elle dort."], max_tokens=4)) == 2


def replace_network(stored: Model) -> Model:
    stored.network.eval()
    return stored


def test_only_the_seed_affects_the_initial_state(cache: Path) -> None:
    torch.manual_seed(5)
    one = prepare_training(petit("decoder"), cache, packed=False)
    torch.rand(3)
    two, other = (prepare_training(petit("decoder", train={"seed": seed}), cache, packed=False) for seed in (0, 1))
    assert all(map(torch.equal, one.network.state_dict().values(), two.network.state_dict().values()))
    assert torch.equal(next(one.batches.epoch(0)).tokens, next(two.batches.epoch(0)).tokens)
    weight = "embedding.tokens.weight"
    assert not torch.equal(one.network.state_dict()[weight], other.network.state_dict()[weight])
    assert one.examples == other.examples


def test_ranks_split_every_batch(cache: Path) -> None:
    whole = prepare_training(petit("encoder-decoder"), cache, packed=False)
    shares = [prepare_training(petit("encoder-decoder"), cache, False, rank, 2) for rank in range(2)]
    for name in ("batches", "validation"):
        alone, first, second = (first_epoch(getattr(task, name)) for task in (whole, *shares))
        assert len(first) == len(second) == len(alone)
        told = Counter(str(each) for batch in alone for each in sentences(batch))
        assert told == Counter(str(each) for batch in (*first, *second) for each in sentences(batch) if batch.targets)


# Held-out text


def lines(folder: Path, name: str, texts: list[str]) -> str:
    (folder / name).write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return str(folder / name)


def batch_text(batches: Batches | None, tokenizer: Tokenizer, epochs: int = 3) -> str:
    """Return everything in the batches of some epochs as text."""
    assert batches is not None
    ids: list[int] = []
    for epoch in range(epochs):
        for batch in batches.epoch(epoch):
            tensors = (batch.tokens, batch.source, batch.labels if batch.labels.dim() == 2 else None)
            for tensor in tensors:
                ids += [] if tensor is None else [id_ for id_ in tensor.flatten().tolist() if id_ != IGNORED_TARGET]
    return tokenizer.decode(ids)


HELD = "@"
"""A mark in every held-out text and nowhere else."""


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("which", MODELS)
def test_held_out_examples_are_not_trained_on(which: str, packed: bool, tmp_path: Path) -> None:
    first = [f"text {'ab'[n % 2]} {n}" for n in range(45)]
    last = [f"{HELD} {n}" for n in range(15)]
    sides = [lines(tmp_path, "a", first + last)]
    if which == "classification":
        sides.append(lines(tmp_path, "b", ["one", "two"] * 30))
    elif which not in ("language", "masked"):
        sides.append(lines(tmp_path, "b", [text.upper() for text in first + last]))
    data = DataSection(train=(Corpus(tuple(sides)),), held_out=0.25, task=MODELS[which]["task"])
    task = prepare_training(
        petit_recipe(data, **{"train": {"max_length": 40}} | MODELS[which]), tmp_path / "cache", packed
    )
    learned, tried = batch_text(task.batches, task.tokenizer), batch_text(task.validation, task.tokenizer)
    assert HELD not in learned
    assert "text" in learned
    assert HELD in tried
    assert "text" not in tried
    assert task.example_count == 45
    assert task.about["data"]["validation"] == {"held_out": 0.25, "examples": 15}
    if which == "language":
        assert all(prompt.startswith(HELD) for prompt, _ in task.examples)
    else:
        filled = [source.replace("<mask>", word) for source, word in task.examples]
        assert filled == last


def test_one_long_text_is_split_by_tokens(tmp_path: Path) -> None:
    text = "".join("abcdefgh"[n % 8] for n in range(899)) + "\n" + HELD * 60 + "\n" + HELD * 38 + "\n"
    file = tmp_path / "book.txt"
    file.write_text(text)
    data = DataSection(train=(Corpus((str(file),)),), held_out=0.1, task="language", documents="file")
    recipe = replace(
        petit_recipe(data, **{"train": {"max_length": 20}} | MODELS["language"]),
        tokenizer=TokenizerSection(kind="characters", vocab_size=320),
    )
    task = prepare_training(recipe, tmp_path / "cache", packed=True)
    assert task.validation is not None
    assert HELD not in batch_text(
        task.batches, task.tokenizer, epochs=60
    )  # blocks start at a different offset each time
    batches = first_epoch(task.validation)
    labels = torch.cat([batch.labels.flatten() for batch in batches])
    assert task.tokenizer.decode(labels[labels != IGNORED_TARGET].tolist()) == text[900:]
    assert all(prompt + rest in text[900:] for prompt, rest in task.examples)


def test_only_the_first_rank_reads_the_validation_text(tmp_path: Path) -> None:
    """The others would read all of the training text to find what is held out, and never use it."""
    corpus = Corpus((lines(tmp_path, "a", [f"n {n}" for n in range(40)]), lines(tmp_path, "b", ["x"] * 40)))
    recipe = petit_recipe(DataSection(train=(corpus,), held_out=0.1))
    first, second = (prepare_training(recipe, tmp_path / "cache", False, rank, 2) for rank in (0, 1))
    assert (len(first.examples), second.examples) == (4, [])
    assert first.digest == second.digest
    assert second.validation is not None


def test_too_little_text_to_hold_out_is_an_error(tmp_path: Path) -> None:
    corpus = Corpus((lines(tmp_path, "a", ["one"]), lines(tmp_path, "b", ["two"])))
    with pytest.raises(ValueError, match=r"held_out=0\.5 of 1 examples leaves one part empty"):
        prepare_training(petit_recipe(DataSection(train=(corpus,), held_out=0.5)), tmp_path / "cache", packed=False)


def test_text_without_blank_lines_is_not_called_too_short(tmp_path: Path) -> None:
    """It was one example for `documents = "blank-line"`, however long."""
    corpus = Corpus((lines(tmp_path, "notes", [f"line {n}" for n in range(100)]),))
    data = DataSection(train=(corpus,), held_out=0.1, task="language", documents="blank-line")
    with pytest.raises(ValueError, match=r"1 examples leaves .*: no blank lines .* Set data\.documents to file"):
        prepare_training(petit_recipe(data, **MODELS["language"]), tmp_path / "cache", packed=False)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", ["encoder-decoder", "decoder"])
def test_validation_contains_every_example_once(kind: str, packed: bool, tmp_path: Path) -> None:
    """Including those too long to train on; skipped training examples are counted."""
    short, long = [f"n {n}" for n in range(30)], ["very " * 40 + "long", "even " * 60 + "longer"]
    corpus = Corpus((lines(tmp_path, "a", short + long), lines(tmp_path, "b", [*short, "x", "y"])))
    data = DataSection(train=(corpus,), validation=corpus)
    task = prepare_training(petit_recipe(data, {"max_length": 30}, kind=kind), tmp_path / "cache", packed)
    assert task.validation is not None
    assert (task.example_count, task.left_out, task.validation.left_out) == (30, 2, 0)
    assert task.about["longest"] == max(len(task.tokenizer.encode_with_template(text)) for text in short)
    assert sum(len(sentences(batch)) for batch in first_epoch(task.validation)) == 32
    assert sum(len(sentences(batch)) for batch in first_epoch(task.batches)) == 30
    assert len(task.examples) == 32


@pytest.mark.parametrize("task_name", ["translation", "classification", "language"])
def test_learned_positions_limit_the_length(task_name: Any, tmp_path: Path) -> None:
    short, long = [f"n {n}" for n in range(30)], ["very " * 40 + "long"]
    files = [lines(tmp_path, "a", short + long), lines(tmp_path, "b", ["x", *["y"] * 30])]
    corpus = Corpus(tuple(files[: 1 if task_name == "language" else 2]))
    data = DataSection(train=(corpus,), validation=corpus, task=task_name)
    recipe = petit_recipe(data, {"max_length": 1_000}, kind="decoder", positions="learned", max_length=30)
    if task_name == "language":
        with pytest.raises(ValueError, match=r"train\.max_length=1000 is more than the model.s 30 positions"):
            prepare_training(recipe, tmp_path / "cache", packed=False)
        return
    task = prepare_training(recipe, tmp_path / "cache", packed=False)
    assert task.validation is not None
    assert (task.left_out, task.validation.left_out, task.example_count) == (1, 1, 30)
    for batches in (task.batches, task.validation):
        for batch in batches.epoch(0):
            assert torch.isfinite(Objective(task.network)(batch))
    assert len(task.examples) == (30 if task_name == "classification" else 31)


def test_bad_lines_are_counted_or_reported(tmp_path: Path) -> None:
    corpus = Corpus((lines(tmp_path, "a", ["one", "two", "three"]), lines(tmp_path, "b", ["un", "", "trois"])))
    data = DataSection(train=(corpus,), validation=corpus)
    with pytest.raises(ValueError, match=r"b:2: empty side"):
        prepare_training(petit_recipe(data), tmp_path / "cache", packed=False)
    task = prepare_training(petit_recipe(replace(data, skip_bad=True)), tmp_path / "cache", packed=False)
    assert (task.example_count, task.problems) == (2, {"empty side": 2})  # once on each side of the split
    assert task.examples == [("one", "un"), ("three", "trois")]
    moved = DataSection(train=(Corpus(("a", "b")),), folder="elsewhere")
    with pytest.raises(ValueError, match=r"elsewhere/.*--set data.folder=FOLDER"):
        prepare_training(petit_recipe(moved), tmp_path / "cache", packed=False)


# The cache


def test_a_second_run_uses_the_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = prepare_training(petit("encoder-decoder"), cache, packed=False)

    def forbidden(*_: Any) -> Any:
        raise AssertionError("made again")

    monkeypatch.setattr(texts, "train_tokenizer", forbidden)
    monkeypatch.setattr(texts, "write_petit", forbidden)
    again = prepare_training(petit("encoder-decoder"), cache, packed=False)
    assert again.tokenizer.digest == first.tokenizer.digest
    assert again.about == first.about
    with pytest.raises(AssertionError, match="made again"):
        prepare_training(
            replace(petit("encoder-decoder"), tokenizer=TokenizerSection(vocab_size=384)), cache, packed=False
        )


def test_a_tokenizer_depends_on_its_training_text(tmp_path: Path) -> None:
    def digest(texts: list[str]) -> str:
        corpus = Corpus((lines(tmp_path, "a", texts), lines(tmp_path, "b", texts)))
        return prepare_training(
            petit_recipe(DataSection(train=(corpus,))), tmp_path / "cache", packed=False
        ).tokenizer.digest

    one = digest(["banana banana"] * 9)
    assert digest(["cherry cherry"] * 9) != one
    assert digest(["banana banana"] * 9) == one


def test_several_ranks_prepare_concurrently(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "HELD_OUT", 10)
    recipe = petit_recipe(DataSection(petit=30))

    def run(rank: int) -> TrainingSetup:
        return prepare_training(recipe, tmp_path, False, rank, 3)

    with ThreadPoolExecutor(3) as pool:
        tasks = list(pool.map(run, range(3)))
    assert len({task.tokenizer.digest for task in tasks}) == 1
    assert not list(tmp_path.rglob(".*"))  # no partial files are left


def test_the_location_of_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_CACHE", "/some/where")
    assert cache_folder() == Path("/some/where")
    monkeypatch.delenv("REGARD_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_folder() == Path("/xdg/regard")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", "/home/someone")
    assert cache_folder() == Path("/home/someone/.cache/regard")


# Starting from a model


def save_model(which: str, cache: Path, folder: Path) -> TrainingSetup:
    """Save an untrained model for Petit and return its setup."""
    task = prepare_training(petit(which, train={"seed": 3}), cache, packed=False)
    task.model().save(folder)
    return task


def weights_of(task: TrainingSetup) -> dict[str, torch.Tensor]:
    return dict(task.network.state_dict())


@pytest.mark.parametrize("which", MODELS)
def test_further_training_keeps_weights_and_special_ids(which: str, cache: Path, tmp_path: Path) -> None:
    base = save_model(which, cache, tmp_path / "base")
    recipe = petit_recipe(task=MODELS[which]["task"], start=str(tmp_path / "base"), dropout=0.35)
    task = prepare_training(recipe, cache, packed=False)
    assert task.network.config == replace(base.network.config, dropout=0.35)
    assert weights_of(task).keys() == weights_of(base).keys()
    assert all(torch.equal(weight, weights_of(base)[name]) for name, weight in weights_of(task).items())
    assert task.tokenizer.digest == base.tokenizer.digest
    assert task.special == base.special
    assert torch.equal(next(task.batches.epoch(0)).labels, next(task.batches.epoch(0)).labels)
    assert "fine-tuned from" in task.about["origin"]
    dropouts = {part.p for part in task.network.modules() if isinstance(part, torch.nn.Dropout)}
    assert dropouts <= {0.35, 0.0}
    assert 0.35 in dropouts


def test_other_classes_get_a_new_head(cache: Path, tmp_path: Path) -> None:
    def of_two(*names: str, **model: Any) -> TrainingSetup:
        corpus = Corpus((lines(tmp_path, "a", ["Il dort.", "Il part."]), lines(tmp_path, "b", list(names))))
        return prepare_training(
            petit_recipe(DataSection(train=(corpus,), task="classification"), {"seed": 3}, **model), cache, False
        )

    base = of_two("yes", "no", kind="encoder")
    torch.nn.init.ones_(base.network.classifier.classes.weight)
    base.model().save(tmp_path / "ones")
    same, other = (of_two(*names, start=str(tmp_path / "ones")) for names in (("no", "yes"), ("x", "y")))
    assert (same.about["classes"], other.about["classes"]) == (["no", "yes"], ["x", "y"])
    for name, weight in weights_of(base).items():
        assert torch.equal(weight, weights_of(same)[name])
        fresh = (
            name == "classifier.classes.weight"
        )  # the other rows of the head are freshly initialised from the same seed
        assert torch.equal(weight, weights_of(other)[name]) != fresh, name
    assert base.validation is None
    assert base.examples == []


@pytest.mark.parametrize(("short", "longest"), [(500, 12), (998, 12), (999, 4), (1500, 4)])
def test_few_long_sources_do_not_count(short: int, longest: int, tmp_path: Path) -> None:
    text = [*["a b"] * short, "a b c d e f"]  # one token for each character
    corpus = Corpus((lines(tmp_path, "a", text), lines(tmp_path, "b", text)))
    recipe = replace(
        petit_recipe(DataSection(train=(corpus,), validation=corpus)), tokenizer=TokenizerSection(kind="characters")
    )
    task = prepare_training(recipe, tmp_path / "cache", packed=False)
    assert task.about["longest"] == longest


def test_a_language_model_learns_to_translate_and_to_classify(cache: Path, tmp_path: Path) -> None:
    base = save_model("language", cache, tmp_path / "base")
    translator = prepare_training(petit_recipe(start=str(tmp_path / "base")), cache, packed=True)
    assert translator.special.separator == base.tokenizer.separator
    batch = next(translator.batches.epoch(0))
    french = {tuple(translator.tokenizer.encode_with_template(pair.french)) for pair in petit_pairs()}
    for tokens, labels, _ in sentences(batch):
        cut = tokens.index(translator.special.separator)
        assert tuple(tokens[:cut]) in french  # </s> stays before every text
        assert labels[:cut] == [IGNORED_TARGET] * cut
    assert 0.8 * max(map(len, french)) < translator.about["longest"] <= max(map(len, french))
    classifier = prepare_training(
        petit_recipe(start=str(tmp_path / "base"), task="classification"), cache, packed=False
    )
    framed = {tuple(classifier.tokenizer.encode_with_template(pair.french)) for pair in petit_pairs()}
    assert {tuple(tokens) for tokens, _, _ in sentences(next(classifier.batches.epoch(0)))} <= framed
    assert all(ids[0] == ids[-1] == base.special.end[0] for ids in framed)
    for task in (translator, classifier):
        assert torch.isfinite(Objective(task.network)(next(task.batches.epoch(0))))


def test_a_model_unsuited_to_the_task_is_rejected(cache: Path, tmp_path: Path) -> None:
    save_model("classification", cache, tmp_path / "classifier")
    save_model("encoder-decoder", cache, tmp_path / "translator")
    with pytest.raises(ValueError, match="the task translation needs a model of kind"):
        prepare_training(petit_recipe(start=str(tmp_path / "classifier")), cache, packed=False)
    with pytest.raises(ValueError, match="the task language needs a model of kind 'decoder'"):
        prepare_training(petit_recipe(start=str(tmp_path / "translator"), task="language"), cache, packed=False)
    with pytest.raises(ValueError, match="no model at"):
        prepare_training(petit_recipe(start=str(tmp_path / "nothing")), cache, packed=False)


def without_separator() -> Tokenizer:
    """Byte-level BPE with only <s> and </s>."""
    engine = Engine(models.BPE())
    engine.pre_tokenizer, engine.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(special_tokens=["</s>", "<s>"], initial_alphabet=alphabet, show_progress=False)
    engine.train_from_iterator(["Il dort. Elle part."], trainer)
    return HuggingFaceTokenizer(engine)


def foreign(folder: Path, tokenizer: Tokenizer, special: SpecialIds, **changes: Any) -> str:
    """Return a model with another model's special ids."""
    config = regard.preset("tiny", vocab_size=tokenizer.size, layers=1, **changes)
    Model(regard.build(config), tokenizer, special, {"head": "none", "notes": ["old"]}).save(folder)
    return str(folder)


def test_special_tokens_around_a_text_are_kept(cache: Path, tmp_path: Path) -> None:
    trained = train_tokenizer(["Il dort. Elle part."], 300)
    tokenizer = trained.with_template(before=[1], after=[0])  # like [CLS] and [SEP]
    start = foreign(tmp_path / "bert", tokenizer, SpecialIds(), kind="encoder", output_bias=True, pad=5)
    task = prepare_training(petit_recipe(start=start, task="classification"), cache, packed=False)
    assert "head" not in task.about
    assert task.network.config.output_bias is False
    wanted = Counter((1, *trained.encode(pair.french), 0) for pair in petit_pairs())
    assert Counter(tuple(ids) for batch in first_epoch(task.batches) for ids, _, _ in sentences(batch)) == wanted
    assert task.tokenizer.encode_with_template("Il") == [1, *trained.encode("Il"), 0]


def test_the_start_token_of_a_text_is_kept(cache: Path, tmp_path: Path) -> None:
    trained = without_separator()
    start = foreign(
        tmp_path / "llama", trained.with_template(before=[1]), SpecialIds(end=(0,)), kind="decoder", pad=None
    )
    task = prepare_training(petit_recipe(start=start, task="language"), cache, packed=True)
    assert task.special.end == (0, 1)  # a text ends where the next one starts
    assert all(tokens[0] == 1 for tokens, _, _ in sentences(next(task.batches.epoch(0))))
    translator = prepare_training(petit_recipe(start=start), cache, packed=False)
    assert translator.special.separator == trained.encode("\n")[0]
    assert {tokens[0] for tokens, _, _ in sentences(next(translator.batches.epoch(0)))} == {1}


def test_a_model_without_a_separator_or_an_end(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = without_separator()
    start = foreign(tmp_path / "one", trained, SpecialIds(end=(0,)), kind="decoder")
    monkeypatch.setattr(HuggingFaceTokenizer, "encode", lambda *_: [1, 2])
    with pytest.raises(ValueError, match="no separator, no sep_token, and a line feed is 2 ids"):
        prepare_training(petit_recipe(start=start), cache, packed=False)
    with pytest.raises(ValueError, match="no id that ends a text"):
        prepare_training(
            petit_recipe(start=foreign(tmp_path / "two", trained, SpecialIds(), kind="decoder")), cache, packed=False
        )


@pytest.mark.skipif(not STORIES.is_dir(), reason="stories260K is not there (REGARD_REAL_DATA)")
@pytest.mark.parametrize("task_name", ["language", "classification"])
def test_a_real_llama_can_be_trained_further(task_name: Any, cache: Path) -> None:
    task = prepare_training(petit_recipe(start=str(STORIES), task=task_name), cache, packed=True)
    before = regard.load(STORIES)
    old = before.network.state_dict()
    assert all(torch.equal(old[name], w) for name, w in weights_of(task).items() if not name.startswith("classifier."))
    batch = next(task.batches.epoch(0))
    assert torch.isfinite(Objective(task.network)(batch))
    assert before.tokenizer is not None
    assert all(tokens[0] == before.tokenizer.before[0] for tokens, _, _ in sentences(batch))


# Real text


def real(name: str, *changes: str) -> Recipe:
    recipe = read_recipe(name)
    folder = REAL_DATA / recipe.data.folder
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there: set REGARD_REAL_DATA")
    return read_recipe(name, [f"data.folder={folder}", "model.layers=1", "model.d_model=64", "model.heads=2", *changes])


@pytest.mark.slow
def test_shakespeare_is_split_as_nanogpt_splits_it(tmp_path: Path) -> None:
    task = prepare_training(real("shakespeare-char"), tmp_path, packed=False)
    assert task.validation is not None
    text = (REAL_DATA / "data/text/tinyshakespeare.txt").read_text()
    labels = torch.cat([batch.labels.flatten() for batch in first_epoch(task.validation)])
    tried = text[int(len(text) * 0.9) :]
    assert task.tokenizer.decode(labels[labels != IGNORED_TARGET].tolist()) == tried
    assert len(tried) == 111_540
    assert len(task.examples) == 8
    for prompt, rest in task.examples:
        assert prompt + rest in tried
        assert 0 < len(prompt) <= 120
        assert len(rest) > 50
    assert task.network.config.outputs == 384


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "train", "validation", "changes"),
    [
        pytest.param("multi30k-fr-en", 29_000, 1_014, (), marks=pytest.mark.long),
        (
            "multi30k-fr-en",
            1_014,
            1_014,
            ('data.train.0.files=["val.fr.gz", "val.en.gz"]', "tokenizer.vocab_size=1_000"),
        ),
        ("tatoeba-fr-en", 1_000, 1_000, ('data.train.0.files=["test.en-fr.tsv"]', "tokenizer.vocab_size=1_000")),
    ],
)
def test_real_pairs(name: str, train: int, validation: int, changes: tuple[str, ...], tmp_path: Path) -> None:
    task = prepare_training(real(name, *changes), tmp_path, packed=False)
    assert task.validation is not None
    assert task.example_count + task.left_out == train
    assert task.left_out < 10
    assert task.problems == {}
    assert sum(len(batch.tokens) for batch in first_epoch(task.validation)) == validation == len(task.examples)
    french = sum("é" in source or "à" in source for source, _ in task.examples)
    assert french > 3 * sum("é" in target or "à" in target for _, target in task.examples)
