"""What does label smoothing do to perplexity, confidence, accuracy and BLEU?

With label smoothing ε a label is no longer certain: 1 - ε goes to the right token, and ε is spread evenly over all V
tokens, the right one among them. To train translators from nothing would take too long here, so one that is trained
already learns on, a little, once with each ε: from the same weights, on the same batches in the same order. Then each
copy foretells held-out translations token by token. Perplexity and confidence are of the probabilities as they are,
without smoothing. One who is always right and believes the labels gives 1 - ε + ε/V to the right token; the perplexity
is then 1 ÷ that.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from matplotlib.figure import Figure

from regard.labs.lab import Claim, Result, Table
from regard.labs.lab_figures import BLUE, GREY, legend, panel
from regard.labs.petit_translators import Foretold, Translated, foretold, sentences, trained, translated
from regard.training.recipe import Data, Recipe, Train

CLOSE = 0.03
"""how near confidence comes to what the labels ask for"""


@dataclass(frozen=True)
class Sizes:
    """How much is learned, and asked."""

    smoothings: tuple[float, ...] = (0.0, 0.1, 0.2)
    """ε, from none to much"""
    start: str = "petit-fr-en"
    """the translator that learns on: a bundled one, or the folder of a run"""
    pairs: int = 5_000
    """of Petit, to learn from"""
    steps: int = 30
    """that each copy learns on"""
    batch_tokens: int = 1_000
    """of a step"""
    lr: float = 1e-3
    """the highest learning rate"""
    sentences: int = 200
    """of the test text that are translated"""
    seed: int = 0
    """of the order of the batches, and of the sentences"""


@dataclass(frozen=True)
class Pupil:
    """What came of one ε."""

    asked: float
    """1 - ε + ε/V, the probability that the labels give to what is right"""
    foretold: Foretold
    translated: Translated


def run(sizes: Sizes) -> Result:
    """The same lessons under each ε."""
    found = {smoothing: pupil(sizes, smoothing) for smoothing in sizes.smoothings}
    least, most = found[min(found)], found[max(found)]
    rising = [found[smoothing].foretold.perplexity for smoothing in sorted(found)]
    wide = max(found)
    claims = (
        Claim(
            f"Label smoothing makes perplexity worse: {least.foretold.perplexity:.3f} with ε = {min(found):g}, "
            f"{most.foretold.perplexity:.3f} with ε = {wide:g}, and the more the greater ε",
            rising == sorted(rising) and rising[-1] > 1.03 * rising[0],
        ),
        Claim(
            f"It makes a model as unsure as its labels: with ε = {wide:g} they ask for {most.asked:.1%}, and its "
            f"confidence is {most.foretold.confidence:.1%}, though it is right in {most.foretold.accuracy:.1%}",
            abs(most.foretold.confidence - most.asked) < CLOSE < most.foretold.accuracy - most.foretold.confidence,
        ),
        Claim(
            f"Without, it is about as sure as it is right: {least.foretold.confidence:.1%} and "
            f"{least.foretold.accuracy:.1%}",
            abs(least.foretold.confidence - least.foretold.accuracy) < CLOSE,
        ),
    )
    rows = [
        (
            f"{smoothing:g}",
            f"{each.foretold.perplexity:.3f}",
            f"{1 / each.asked:.3f}",
            *(f"{share:.1%}" for share in (each.foretold.confidence, each.asked, each.foretold.accuracy)),
            f"{each.translated.bleu:.1f}",
            f"{each.translated.exact.overall.value:.1%}",
        )
        for smoothing, each in found.items()
    ]
    columns = ("ε", "perplexity", "1 ÷ asked", "confidence", "asked", "tokens right", "BLEU", "sentences right")
    notes = (
        f"Each copy learned on for {sizes.steps} steps from {sizes.start}; bundled translators had learned with "
        "ε = 0.1. What is seen is how far a few steps take them from it; the lab ablation in full starts from nothing.",
        f"Tokens are of Petit's dev text, 1,000 sentences; {sizes.sentences} of its test text were translated.",
        "The paper (5.4) found better BLEU with ε = 0.1. Petit has one right answer to each sentence, where there is "
        "little to gain: BLEU is told here, and nothing is concluded from it.",
    )
    return Result((Table(columns, tuple(rows)),), claims, partial(draw, found=found), (10.0, 3.4), notes)


def pupil(sizes: Sizes, smoothing: float) -> Pupil:
    """A copy that learns on with this ε, and what it then knows."""
    recipe = Recipe(
        name="smoothing",
        data=Data(petit=sizes.pairs, languages=("fr", "en")),
        model={"start": sizes.start},
        train=Train(
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
    model, held_out = trained(recipe)
    asked = 1 - smoothing + smoothing / model.config.outputs
    return Pupil(asked, foretold(model, held_out), translated(model, sentences(sizes.sentences, sizes.seed)))


def draw(figure: Figure, found: dict[float, Pupil]) -> None:
    """Each measure over ε, with what the labels ask for."""
    pictures: tuple[tuple[str, Callable[[Pupil], float], Callable[[Pupil], float] | None], ...] = (
        ("perplexity", lambda each: each.foretold.perplexity, lambda each: 1 / each.asked),
        ("confidence, per cent", lambda each: 100 * each.foretold.confidence, lambda each: 100 * each.asked),
        ("tokens right, per cent", lambda each: 100 * each.foretold.accuracy, None),
        ("BLEU", lambda each: each.translated.bleu, None),
    )
    for number, (title, of, asked) in enumerate(pictures, start=1):
        axes = panel(figure, len(pictures), number, title, "label smoothing ε")
        axes.plot(list(found), [of(each) for each in found.values()], "o-", color=BLUE, label="measured")
        if asked is None:
            axes.set_ylim(80, 101)
            continue
        axes.plot(list(found), [asked(each) for each in found.values()], ":", color=GREY, label="asked by the labels")
        legend(axes)
