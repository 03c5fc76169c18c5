"""Does cross-attention find the source of each word?

A translator of Petit is given a French sentence and its correct English translation, token by token. It was never
trained on alignments, but Petit knows them. For each English word, the French word with the highest attention weight is
taken as its source. The alignment error rate counts how often that link is wrong or missing (0% is perfect). It is
measured for every head of every layer on sentences that are in no training text. The best head is chosen on other
sentences, so that the choice does not bias its error rate. For comparison, there are a diagonal, which ignores the
words, and the best that a single link per word can reach.
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
from regard.evaluation.alignment import AlignmentScore, AlignmentScores, RowToken, alignment_scores, word_weights
from regard.evaluation.attention_alignment import attention_pairs
from regard.interop.load import load
from regard.labs.lab import Claim, LabResult, ResultTable
from regard.labs.lab_figures import BLUE, GREY, ORANGE, RED, heatmap, legend, panel
from regard.labs.petit_translators import as_examples, held_out_pairs
from regard.petit import Pair, spans, words


@dataclass(frozen=True)
class Sizes:
    """The model, and the number of sentences."""

    model: str = "petit-fr-en"
    """The translator: a bundled model or a run's folder, with cross-attention, trained on Petit's French → English."""
    sentences: int = 400
    """Number of test sentences; the best head is chosen on as many others."""
    seed: int = 0
    """Seed of the sentences."""


def run(sizes: Sizes) -> LabResult:
    """Choose a head on some sentences, and measure all heads on others."""
    model = load(sizes.model)
    test_pairs = held_out_pairs(sizes.sentences, sizes.seed)
    layer, head = error_rates(model, held_out_pairs(sizes.sentences, sizes.seed, "dev")).best
    scores, scores_reading = error_rates(model, test_pairs), error_rates(model, test_pairs, "reading")
    best, last = scores.heads[layer][head], scores.layers[-1]
    rates, reading_rates = (
        np.array([[score.error_rate for score in row] for row in by_moment.heads])
        for by_moment in (scores, scores_reading)
    )
    diagonal, name = scores.diagonal.error_rate, f"head {head} of layer {layer}"
    claims = (
        Claim(
            f"Cross-attention aligns words without being trained to: {name} has an error rate of "
            f"{best.error_rate:.0%}; a diagonal has {diagonal:.0%}, and the minimum is "
            f"{scores.reachable.error_rate:.0%}",
            best.error_rate < diagonal / 2,
        ),
        Claim(
            f"Heads differ: the error rate of the worst, {rates.max():.0%}, is {rates.max() / best.error_rate:.1f} "
            "times that of the best",
            bool(rates.max() > 2 * best.error_rate),
        ),
        Claim(
            f"A head attends to the source of the word that is predicted next: if its weights are attributed to the "
            f"word that was read last, the error rate is at least {reading_rates.min():.0%}",
            bool(reading_rates.min() > 2 * best.error_rate),
        ),
    )
    example = example_pair(test_pairs)
    weights = weights_between_words(model, example)[layer, head]
    tables = (
        heads_table(scores),
        comparison_table({f"{name}, the best": best, "mean of the last layer": last}, scores),
    )
    notes = (f"Measured on {sizes.sentences} sentences; the head was chosen on {sizes.sentences} others.",)
    picture = partial(draw, scores=scores, chosen=(layer, head), pair=example, weights=weights)
    return LabResult(tables, claims, picture, (11.0, 4.6), notes)


def error_rates(model: Model, test_pairs: Sequence[Pair], row_token: RowToken = "writing") -> AlignmentScores:
    """Score every head against the correct links.

    With "reading", a row of weights is attributed to the word that is the decoder's input; with "writing", to the word
    that it predicts.
    """
    links = [frozenset(pair.alignment) for pair in test_pairs]
    return alignment_scores(attention_pairs(model, as_examples(test_pairs), links, row_token, spans))


def example_pair(test_pairs: Sequence[Pair]) -> Pair:
    """Choose a sentence to draw: the first one of medium length whose word order changes."""
    suitable = (pair for pair in test_pairs if "adjective-order" in pair.tags and 7 <= len(words(pair.french)) <= 10)
    return next(suitable, test_pairs[0])


def weights_between_words(model: Model, pair: Pair) -> Float[np.ndarray, "L H W V"]:
    """Return the weight of each French word for each English word, for every head."""
    (attended,) = attention_pairs(model, as_examples([pair]), [frozenset(pair.alignment)], "writing", spans)
    return word_weights(attended.weights, attended.target_words, attended.source_words)


def heads_table(scores: AlignmentScores) -> ResultTable:
    """Return the error rate of every head, and of the mean of a layer's weights."""
    heads = len(scores.heads[0])
    rows = [
        (f"layer {i}", *(f"{score.error_rate:.1%}" for score in (*row, scores.layers[i])))
        for i, row in enumerate(scores.heads)
    ]
    columns = ("", *(f"head {i}" for i in range(heads)), "mean of weights")
    return ResultTable(columns, tuple(rows), "Alignment error rate of every head of cross-attention")


def comparison_table(chosen: dict[str, AlignmentScore], scores: AlignmentScores) -> ResultTable:
    """Return the chosen scores next to the diagonal and the best possible."""
    compared = {**chosen, "diagonal": scores.diagonal, "best single link per word": scores.reachable}
    rows = [
        (name, f"{score.error_rate:.1%}", f"{score.precision:.1%}", f"{score.recall:.1%}")
        for name, score in compared.items()
    ]
    return ResultTable(("", "alignment error rate", "precision", "recall"), tuple(rows), "Comparison")


def draw(
    figure: Figure, scores: AlignmentScores, chosen: tuple[int, int], pair: Pair, weights: Float[np.ndarray, "W V"]
) -> None:
    """Draw the error rates of all heads, and the weights of the chosen head in one sentence."""
    axes = panel(figure, 2, 1, "alignment error rate of every head", "layer.head", "per cent")
    rates = {f"{i}.{j}": 100 * score.error_rate for i, row in enumerate(scores.heads) for j, score in enumerate(row)}
    colours = [ORANGE if name == f"{chosen[0]}.{chosen[1]}" else BLUE for name in rates]
    axes.bar_label(axes.bar(list(rates), list(rates.values()), color=colours), fmt="%.0f", fontsize=8, color="#444444")
    for score, style, label in ((scores.diagonal, "--", "diagonal"), (scores.reachable, ":", "minimum")):
        axes.axhline(100 * score.error_rate, color=GREY, linestyle=style, label=label)
    legend(axes)
    title = f"head {chosen[1]} of layer {chosen[0]}: weights from English to French"
    draw_weights(panel(figure, 2, 2, title), pair, weights)


def draw_weights(axes: Axes, pair: Pair, weights: Float[np.ndarray, "W V"]) -> None:
    """Draw the weights between words, with a frame around each correct link."""
    french, english = words(pair.french), words(pair.english)
    heatmap(axes, torch.from_numpy(weights))
    axes.set_xticks(range(len(french)), french, rotation=45, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(english)), english)
    for source, target in pair.alignment:
        axes.add_patch(Rectangle((source - 0.5, target - 0.5), 1, 1, fill=False, edgecolor=RED, linewidth=1.5))
    axes.set_xlabel("framed: correct links", fontsize=9, color=RED)
