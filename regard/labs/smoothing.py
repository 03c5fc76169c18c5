"""What does label smoothing do to perplexity, confidence, accuracy and BLEU?

With label smoothing ε, a label gives the probability 1 - ε to the correct token and spreads ε evenly over all V tokens,
including the correct one. Training translators from scratch would take too long here, so a trained one is fine-tuned
for a few steps, once with each ε: from the same weights, on the same batches in the same order. Each copy then predicts
held-out translations token by token. Perplexity and confidence are computed from its probabilities, without smoothing.
A model that is always right and matches its labels gives 1 - ε + ε/V to the correct token, and its perplexity is the
inverse of that.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from matplotlib.figure import Figure

from regard.labs.lab import Claim, LabResult, ResultTable
from regard.labs.lab_figures import BLUE, GREY, legend, panel
from regard.labs.petit_translators import (
    PredictionQuality,
    TranslationQuality,
    held_out_pairs,
    prediction_quality,
    train_model,
    translation_quality,
)
from regard.training.recipe import DataSection, Recipe, TrainSection

CONFIDENCE_TOLERANCE = 0.03
"""Maximum difference at which a confidence counts as equal to another share."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of the fine-tuning and of the test."""

    smoothings: tuple[float, ...] = (0.0, 0.1, 0.2)
    """Values of ε, in increasing order."""
    start: str = "petit-fr-en"
    """The translator that is fine-tuned: a bundled model, or the folder of a run."""
    pairs: int = 5_000
    """Number of training pairs of Petit."""
    steps: int = 30
    """Fine-tuning steps of each copy."""
    batch_tokens: int = 1_000
    """Number of tokens in a batch."""
    lr: float = 1e-3
    """Maximum learning rate."""
    sentences: int = 200
    """Number of test sentences that are translated."""
    seed: int = 0
    """Seed of the order of the batches, and of the test sentences."""


@dataclass(frozen=True)
class SmoothedModel:
    """The results of a copy that was fine-tuned with one ε."""

    target: float
    """Probability 1 - ε + ε/V that the labels give to the correct token."""
    predictions: PredictionQuality
    translations: TranslationQuality


def run(sizes: Sizes) -> LabResult:
    """Fine-tune a copy with each ε on the same batches, and test it."""
    models = {smoothing: fine_tune(sizes, smoothing) for smoothing in sizes.smoothings}
    smallest, largest = min(models), max(models)
    certain, smoothed = models[smallest].predictions, models[largest].predictions
    perplexities = [models[smoothing].predictions.perplexity for smoothing in sorted(models)]
    claims = (
        Claim(
            f"Label smoothing increases perplexity: it is {certain.perplexity:.3f} with ε = {smallest:g} and "
            f"{smoothed.perplexity:.3f} with ε = {largest:g}, and grows with ε",
            perplexities == sorted(perplexities) and perplexities[-1] > 1.03 * perplexities[0],
        ),
        Claim(
            f"A model becomes as uncertain as its labels: with ε = {largest:g} they give {models[largest].target:.1%} "
            f"to the correct token, and its confidence is {smoothed.confidence:.1%}, although {smoothed.accuracy:.1%} "
            f"of its predictions are correct",
            abs(smoothed.confidence - models[largest].target)
            < CONFIDENCE_TOLERANCE
            < smoothed.accuracy - smoothed.confidence,
        ),
        Claim(
            f"With ε = {smallest:g}, confidence and accuracy are about equal: {certain.confidence:.1%} and "
            f"{certain.accuracy:.1%}",
            abs(certain.confidence - certain.accuracy) < CONFIDENCE_TOLERANCE,
        ),
    )
    notes = (
        f"Each copy was fine-tuned for {sizes.steps} steps from {sizes.start}; bundled translators were trained with "
        "ε = 0.1. The results show how far a few steps move a model; the full form of the lab ablation trains from "
        "scratch.",
        f"Tokens are those of Petit's dev text of 1,000 sentences; {sizes.sentences} sentences of its test text were "
        "translated.",
        "The paper (5.4) found a higher BLEU with ε = 0.1. Each sentence of Petit has exactly one correct translation, "
        "so there is little to gain: BLEU is reported here, but no conclusion is drawn from it.",
    )
    return LabResult((table(models),), claims, partial(draw, models=models), (10.0, 3.4), notes)


def fine_tune(sizes: Sizes, smoothing: float) -> SmoothedModel:
    """Fine-tune a copy with this ε, and test it."""
    recipe = Recipe(
        name="smoothing",
        data=DataSection(petit=sizes.pairs, languages=("fr", "en")),
        model={"start": sizes.start},
        train=TrainSection(
            steps=sizes.steps,
            batch_tokens=sizes.batch_tokens,
            max_length=64,
            lr=sizes.lr,
            warmup=sizes.steps // 8,
            schedule="linear",
            label_smoothing=smoothing,
            seed=sizes.seed,
        ),
    )
    model, held_out = train_model(recipe)
    target = 1 - smoothing + smoothing / model.config.outputs
    translations = translation_quality(model, held_out_pairs(sizes.sentences, sizes.seed))
    return SmoothedModel(target, prediction_quality(model, held_out), translations)


def table(models: dict[float, SmoothedModel]) -> ResultTable:
    """Return the results for each ε."""
    rows = [
        (
            f"{smoothing:g}",
            f"{model.predictions.perplexity:.3f}",
            f"{1 / model.target:.3f}",
            f"{model.predictions.confidence:.1%}",
            f"{model.target:.1%}",
            f"{model.predictions.accuracy:.1%}",
            f"{model.translations.bleu:.1f}",
            f"{model.translations.exact.overall.value:.1%}",
        )
        for smoothing, model in models.items()
    ]
    labels = ("ε", "perplexity", "perplexity of the labels", "confidence", "confidence of the labels")
    return ResultTable((*labels, "tokens correct", "BLEU", "sentences correct"), tuple(rows))


def draw(figure: Figure, models: dict[float, SmoothedModel]) -> None:
    """Draw each measure against ε, with the value that matches the labels."""
    panels: tuple[tuple[str, Callable[[SmoothedModel], float], Callable[[SmoothedModel], float] | None], ...] = (
        ("perplexity", lambda model: model.predictions.perplexity, lambda model: 1 / model.target),
        ("confidence, per cent", lambda model: 100 * model.predictions.confidence, lambda model: 100 * model.target),
        ("tokens correct, per cent", lambda model: 100 * model.predictions.accuracy, None),
        ("BLEU", lambda model: model.translations.bleu, None),
    )
    for number, (title, measure, target) in enumerate(panels, start=1):
        axes = panel(figure, len(panels), number, title, "label smoothing ε")
        axes.plot(list(models), [measure(model) for model in models.values()], "o-", color=BLUE, label="model")
        if target is None:
            axes.set_ylim(80, 101)
            continue
        axes.plot(list(models), [target(model) for model in models.values()], ":", color=GREY, label="labels")
        legend(axes)
