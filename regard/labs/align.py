"""Does cross-attention look where a word comes from?

A translator of Petit reads a French sentence and writes the right English, piece by piece. Nobody has told it which
word comes from which, but Petit knows. For each English word the French word with the most weight is taken for its
origin; the alignment error rate counts how often that is wrong or missing (0 % is perfect). It is measured for every
head of every layer, on sentences that no training text holds. The best head is chosen on others, so that no luck is
counted. Beside it stand a diagonal, which knows nothing of the words, and the best that one link a word can reach.
"""

# Dimensions: L layers, H heads, W English words, V French words.

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from regard.decoding.text_model import Model
from regard.evaluation.alignment import AlignmentScore, AlignmentScores, alignment_scores, word_weights
from regard.evaluation.evaluate import Moment, cross_attention
from regard.interop.load import load
from regard.labs.lab import Claim, Result, Table
from regard.labs.lab_figures import BLUE, GREY, ORANGE, RED, legend, panel, tiles
from regard.labs.petit_translators import as_examples, sentences
from regard.petit import Pair, words


@dataclass(frozen=True)
class Sizes:
    """Who is asked, and how much."""

    model: str = "petit-fr-en"
    """the translator: a bundled one, or a run's folder, with cross-attention and trained on Petit's French → English"""
    sentences: int = 400
    """of the test text; as many more choose the best head"""
    seed: int = 0
    """of the sentences"""


def run(sizes: Sizes) -> Result:
    """Choose a head on some sentences, and measure all heads on others."""
    model = load(sizes.model)
    tested = sentences(sizes.sentences, sizes.seed)
    layer, head = error_rates(model, sentences(sizes.sentences, sizes.seed, "dev")).best
    found, when_read = error_rates(model, tested), error_rates(model, tested, "reading")
    best, last = found.heads[layer][head], found.layers[-1]
    every, read = (np.array([[each.error_rate for each in row] for row in of.heads]) for of in (found, when_read))
    line, name = found.diagonal.error_rate, f"head {head} of layer {layer}"
    claims = (
        Claim(
            f"Cross-attention aligns, though nobody taught it to: {name} has an error of {best.error_rate:.0%}, where "
            f"a diagonal has {line:.0%} and {found.reachable.error_rate:.0%} is the least possible",
            best.error_rate < line / 2,
        ),
        Claim(
            f"Heads differ: the error of the worst, {every.max():.0%}, is {every.max() / best.error_rate:.1f} times "
            "that of the best",
            bool(every.max() > 2 * best.error_rate),
        ),
        Claim(
            f"A head looks for the word that is about to be written: taken for the word just read, the same weights "
            f"err in {read.min():.0%} at best",
            bool(read.min() > 2 * best.error_rate),
        ),
    )
    shown = example(tested)
    weights = between_words(model, shown)[layer, head]
    tables = (by_head(found), beside({f"{name}, the best": best, "mean of the last layer": last}, found))
    notes = (f"{sizes.sentences} sentences for the figures, {sizes.sentences} others to choose the head.",)
    picture = partial(draw, found=found, chosen=(layer, head), pair=shown, weights=weights)
    return Result(tables, claims, picture, (11.0, 4.6), notes)


def error_rates(model: Model, tested: Sequence[Pair], moment: Moment = "writing") -> AlignmentScores:
    """Of every head, against gold; `reading` takes a row of weights for the word that it reads, not that it writes."""
    links = [frozenset(pair.alignment) for pair in tested]
    return alignment_scores(cross_attention(model, as_examples(tested), links, moment))


def example(tested: Sequence[Pair]) -> Pair:
    """A sentence to look at, whatever the model makes of it: the first of middle length whose words change places."""
    fit = (pair for pair in tested if "adjective-order" in pair.tags and 7 <= len(words(pair.french)) <= 10)
    return next(fit, tested[0])


def between_words(model: Model, pair: Pair) -> Float[np.ndarray, "L H W V"]:
    """What each English word gets from each French one, by every head."""
    (seen,) = cross_attention(model, as_examples([pair]), [frozenset(pair.alignment)], "writing")
    return word_weights(seen.weights, seen.target_words, seen.source_words)


def by_head(found: AlignmentScores) -> Table:
    """Every head's error rate, and that of their mean."""
    heads = len(found.heads[0])
    rows = [
        (f"layer {i}", *(f"{each.error_rate:.1%}" for each in (*row, found.layers[i])))
        for i, row in enumerate(found.heads)
    ]
    columns = ("alignment error", *(f"head {i}" for i in range(heads)), "mean of weights")
    return Table(columns, tuple(rows), "Every head of cross-attention")


def beside(chosen: dict[str, AlignmentScore], found: AlignmentScores) -> Table:
    """What was chosen, and what to hold it against."""
    given = {**chosen, "diagonal": found.diagonal, "best single link of each word": found.reachable}
    rows = [(name, f"{s.error_rate:.1%}", f"{s.precision:.1%}", f"{s.recall:.1%}") for name, s in given.items()]
    columns = ("", "alignment error", "of its links right", "of gold links found")
    return Table(columns, tuple(rows), "What that is worth")


def draw(
    figure: Figure, found: AlignmentScores, chosen: tuple[int, int], pair: Pair, weights: Float[np.ndarray, "W V"]
) -> None:
    """Errors of all heads, and where the chosen one looks in one sentence."""
    axes = panel(figure, 2, 1, "alignment error of every head", "layer.head", "per cent")
    rates = {f"{i}.{j}": 100 * each.error_rate for i, row in enumerate(found.heads) for j, each in enumerate(row)}
    colours = [ORANGE if each == f"{chosen[0]}.{chosen[1]}" else BLUE for each in rates]
    axes.bar_label(axes.bar(list(rates), list(rates.values()), color=colours), fmt="%.0f", fontsize=8, color="#444444")
    for score, style, what in ((found.diagonal, "--", "diagonal"), (found.reachable, ":", "least possible")):
        axes.axhline(100 * score.error_rate, color=GREY, linestyle=style, label=what)
    legend(axes)
    title = f"head {chosen[1]} of layer {chosen[0]}: from each English word to the French"
    map_of(panel(figure, 2, 2, title), pair, weights)


def map_of(axes: Axes, pair: Pair, weights: Float[np.ndarray, "W V"]) -> None:
    """Weights between words, with a frame where Petit has a link."""
    french, english = words(pair.french), words(pair.english)
    tiles(axes, torch.from_numpy(weights))
    axes.set_xticks(range(len(french)), french, rotation=45, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(english)), english)
    for source, target in pair.alignment:
        axes.add_patch(Rectangle((source - 0.5, target - 0.5), 1, 1, fill=False, edgecolor=RED, linewidth=1.5))
    axes.set_xlabel("framed: where the word comes from, by Petit", fontsize=9, color=RED)
