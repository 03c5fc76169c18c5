"""What does pretraining bring?

A masked language model is trained on French sentences of Petit without labels. Two other models then learn from
labelled sentences: a tagger, which predicts the part of speech of each word, and a classifier, which predicts the
rarest grammatical phenomenon of a sentence, one of about 40. Each is trained twice for every number of labelled
sentences: from random weights, and from the encoder of the masked language model. Everything else is the same:
architecture, tokenizer, batches, steps and learning rate. Accuracy is measured on sentences that are not in any
training text.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from matplotlib.figure import Figure

from regard import __version__
from regard.data.corpus import Corpus
from regard.decoding.text_model import Model
from regard.errors import RegardError
from regard.labs.lab import Claim, LabResult, ResultTable
from regard.labs.lab_figures import BLUE, GREY, legend, panel
from regard.labs.petit_translators import held_out_pairs, train_prepared
from regard.model.transformer import build
from regard.petit import Pair, pairs, words
from regard.training.recipe import DataSection, Recipe, TaskKind, TrainSection
from regard.training.recipe_files import as_toml, read_recipe
from regard.training.train import train_recipe
from regard.training.training_setup import cache_folder, prepare_training
from regard.training.training_text import PETIT_SEED, rarest_phenomenon

TASKS: tuple[TaskKind, ...] = ("tagging", "classification")
SCRATCH, PRETRAINED = "random weights", "pretrained"
MIN_GAIN = 0.02
"""Minimum gain in accuracy that counts as help."""
COLOUR = {SCRATCH: GREY, PRETRAINED: BLUE}
Accuracies = dict[TaskKind, dict[str, list[float]]]
"""For each task and start, the accuracy with each number of labelled sentences."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of the models and of their training."""

    labelled: tuple[int, ...] = (100, 1_000, 10_000)
    """Numbers of labelled sentences, in increasing order."""
    steps: tuple[int, ...] = (200, 400, 800)
    """Training steps with each number of labelled sentences."""
    unlabelled: int = 20_000
    """Number of sentences that the masked language model is trained on."""
    pretraining_steps: int = 3_000
    """Training steps of the masked language model."""
    width: int = 128
    """Width of the vectors; the rest of the architecture is that of the recipe petit-masked."""
    batch_tokens: int = 1_000
    """Number of tokens in a batch of the tagger and the classifier."""
    lr: float = 5e-4
    """Maximum learning rate of the tagger and the classifier."""
    sentences: int = 1_000
    """Number of test sentences."""
    seed: int = 0
    """Seed of random weights, of the order of the batches, and of the test sentences."""


@dataclass(frozen=True)
class LabelledSentences:
    """Sentences of Petit with the labels of both tasks."""

    texts: list[str]
    classes: list[str]
    words: list[list[str]]
    parts: list[tuple[str, ...]]
    """The part of speech of each word."""


def run(sizes: Sizes) -> LabResult:
    """Pretrain a model, fine-tune it and an untrained one, and test them."""
    if len(sizes.labelled) != len(sizes.steps) or len(sizes.labelled) < 2:
        raise RegardError(
            f"{len(sizes.labelled)} sizes in labelled and {len(sizes.steps)} in steps: give two or more, and as many "
            "steps"
        )
    train, test = labelled_sentences(sizes)
    with TemporaryDirectory() as folder:
        starts = save_starts(sizes, Path(folder))
        accuracies: Accuracies = {task: {start: [] for start in starts} for task in TASKS}
        for count, steps in zip(sizes.labelled, sizes.steps, strict=True):
            for task in TASKS:
                corpus = write_corpus(train, task, count, Path(folder))
                for start, path in starts.items():
                    model = fine_tune(sizes, task, corpus, path, steps)
                    accuracies[task][start].append(accuracy(model, task, test))
    return LabResult(
        (table(sizes, accuracies),),
        claims(sizes, accuracies),
        partial(draw, labelled=sizes.labelled, accuracies=accuracies),
        (9.0, 3.6),
        (
            f"The masked language model is that of the recipe petit-masked: {sizes.pretraining_steps:,} steps on "
            f"{sizes.unlabelled:,} sentences, among them the labelled ones without their labels. It is trained once, "
            "which takes minutes, and kept in the cache.",
            f"All models are trained for {sizes.steps[0]:,} to {sizes.steps[-1]:,} steps. More steps would "
            "reduce the difference where there are many labels.",
            "Petit has a small vocabulary and a regular grammar: on real text, pretraining needs much more text and "
            "brings more.",
        ),
    )


def labelled_sentences(sizes: Sizes) -> tuple[LabelledSentences, LabelledSentences]:
    """Return the labelled training sentences, and the test sentences."""
    train, test = list(pairs(max(sizes.labelled), PETIT_SEED)), held_out_pairs(sizes.sentences, sizes.seed)
    counts = Counter(tag for pair in train for tag in pair.tags)
    return _labelled(train, counts), _labelled(test, counts)


def _labelled(sentences: Sequence[Pair], counts: Counter[str]) -> LabelledSentences:
    return LabelledSentences(
        [pair.french for pair in sentences],
        [rarest_phenomenon(pair.tags, counts) for pair in sentences],
        [words(pair.french) for pair in sentences],
        [pair.parts for pair in sentences],
    )


def save_starts(sizes: Sizes, folder: Path) -> dict[str, Path]:
    """Return the folders of an untrained model and of the masked language model, which have the same architecture.

    The masked language model is trained once and kept in the cache; an interrupted training is resumed.
    """
    overrides = {
        "data.petit": sizes.unlabelled,
        "model.d_model": sizes.width,
        "model.d_ff": 4 * sizes.width,
        "train.steps": sizes.pretraining_steps,
        "train.warmup": sizes.pretraining_steps // 15,
    }
    recipe = read_recipe("petit-masked", overrides)
    digest = sha256(as_toml(recipe).encode()).hexdigest()[:16]
    pretrained, untrained = cache_folder() / "labs" / f"petit-masked-{__version__}-{digest}", folder / "untrained"
    if train_recipe(recipe, pretrained, resume=True).ended.reason != "steps":
        raise RegardError("the training of the masked language model was interrupted: run the lab again to resume it")
    model = Model.from_folder(pretrained)
    torch.manual_seed(sizes.seed)
    replace(model, network=build(model.config)).save(untrained)
    return {SCRATCH: untrained, PRETRAINED: pretrained}


def write_corpus(train: LabelledSentences, task: TaskKind, count: int, folder: Path) -> Corpus:
    """Write the first sentences and their labels for a task."""
    if task == "tagging":
        sides = {"words": [" ".join(each) for each in train.words], "parts": [" ".join(each) for each in train.parts]}
    else:
        sides = {"text": train.texts, "class": train.classes}
    for name, lines in sides.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines[:count]), encoding="utf-8")
    return Corpus(tuple(str(folder / name) for name in sides))


def fine_tune(sizes: Sizes, task: TaskKind, corpus: Corpus, start: Path, steps: int) -> Model:
    """Train a model for a task from a saved start."""
    recipe = Recipe(
        name="pretrain",
        data=DataSection(task=task, train=(corpus,)),
        model={"start": str(start)},
        train=TrainSection(
            steps=steps,
            batch_tokens=sizes.batch_tokens,
            max_length=64,
            lr=sizes.lr,
            warmup=steps // 10,
            schedule="linear",
            label_smoothing=0.0,
            seed=sizes.seed,
        ),
    )
    return train_prepared(prepare_training(recipe, cache_folder(), packed=False), recipe.train)


def accuracy(model: Model, task: TaskKind, test: LabelledSentences) -> float:
    """Return the share of words or of sentences whose label is correct."""
    if task == "tagging":
        answers = [word.label for tagged in model.tag(test.words) for word in tagged]
        labels = [part for parts in test.parts for part in parts]
    else:
        answers, labels = [label for label, _ in model.classify(test.texts)], test.classes
    return sum(answer == label for answer, label in zip(answers, labels, strict=True)) / len(labels)


def claims(sizes: Sizes, accuracies: Accuracies) -> tuple[Claim, ...]:
    """Return the conclusions."""
    few, fewer, many = sizes.labelled[0], sizes.labelled[-2], sizes.labelled[-1]
    changes = {
        task: f"from {accuracies[task][SCRATCH][0]:.1%} to {accuracies[task][PRETRAINED][0]:.1%}" for task in TASKS
    }
    compared = {task: (accuracies[task][SCRATCH][-1], accuracies[task][PRETRAINED][-2]) for task in TASKS}
    tagger_gains, classifier_gains = gains(accuracies, "tagging"), gains(accuracies, "classification")
    return (
        Claim(
            f"With {few:,} labelled sentences, pretraining helps: the accuracy of tagging rises {changes['tagging']}, "
            f"that of classification {changes['classification']}",
            all(gains(accuracies, task)[0] > MIN_GAIN for task in TASKS),
        ),
        Claim(
            "Pretraining helps the classifier with every number of labelled sentences: by "
            + ", ".join(f"{100 * gain:.1f}" for gain in classifier_gains)
            + " points",
            all(gain > MIN_GAIN for gain in classifier_gains),
        ),
        Claim(
            f"More labels are worth more than pretraining: with {many:,} labelled sentences, models from random "
            f"weights are more accurate than pretrained ones with {fewer:,}: "
            + ", ".join(f"{better:.1%} and {worse:.1%} in {task}" for task, (better, worse) in compared.items()),
            all(better > worse for better, worse in compared.values()),
        ),
        Claim(
            "The more labels there are, the less pretraining brings to the tagger: "
            + ", ".join(f"{100 * gain:.1f}" for gain in tagger_gains)
            + " points",
            all(more > less for more, less in pairwise(tagger_gains)),
        ),
    )


def gains(accuracies: Accuracies, task: TaskKind) -> list[float]:
    """Return how much more accurate the pretrained model is, for each number of labelled sentences."""
    scratch, pretrained = (accuracies[task][start] for start in (SCRATCH, PRETRAINED))
    return [better - worse for better, worse in zip(pretrained, scratch, strict=True)]


def table(sizes: Sizes, accuracies: Accuracies) -> ResultTable:
    """Return the accuracies by number of labelled sentences."""
    columns = [(task, start) for task in TASKS for start in (SCRATCH, PRETRAINED)]
    rows = [
        (f"{count:,}", *(f"{accuracies[task][start][at]:.1%}" for task, start in columns))
        for at, count in enumerate(sizes.labelled)
    ]
    return ResultTable(
        ("labelled sentences", *(f"{task}, {start}" for task, start in columns)),
        tuple(rows),
        "Accuracy on test sentences",
    )


def draw(figure: Figure, labelled: tuple[int, ...], accuracies: Accuracies) -> None:
    """Draw the accuracies of both tasks against the number of labelled sentences."""
    for number, task in enumerate(TASKS, start=1):
        axes = panel(figure, len(TASKS), number, f"{task}: accuracy, per cent", "labelled sentences")
        axes.set_xscale("log")
        for start, values in accuracies[task].items():
            axes.plot(labelled, [100 * value for value in values], "o-", color=COLOUR[start], label=start)
        legend(axes)
