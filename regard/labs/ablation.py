"""Which parts of a Transformer matter?

This is a small version of the paper's Table 3. A base model learns to translate Petit, and so do models that differ
from it in one respect, as in the paper: (A) the number of heads at equal cost, (B) the width of keys, (C) layers and
widths, (D) dropout and label smoothing, (E) learned positions. As in the paper, the base has an inner width of four
times the model width and label smoothing of 0.1. It has no dropout, because in a short run no sentence is seen often.
Perplexity is that of held-out tokens.

The quick form has two rows, the base and a model of half its width. The full form (`--full`) has all rows, each with
three seeds, and needs a GPU.
"""

from dataclasses import dataclass
from functools import partial
from statistics import mean

import torch
from matplotlib.figure import Figure

from regard.labs.lab import Claim, LabResult, ResultTable
from regard.labs.lab_figures import BLUE, GREY, panel
from regard.labs.lab_statistics import clearly_greater, format_mean, interval_half_width
from regard.labs.petit_translators import held_out_pairs, prediction_quality, train_model, translation_quality
from regard.training.recipe_files import read_recipe

SEED_COUNT = 3
"""Number of seeds for each row of the full table."""
VOCABULARY_SIZE = 1_000
BASE, ONE_HEAD, HALF_WIDTH, LEARNED_POSITIONS = "base", "(A) 1 head", "(C) half the width", "(E) learned positions"
DROPOUT, UNSMOOTHED, SMOOTHED = "(D) dropout 0.1", "(D) label smoothing 0.0", "(D) label smoothing 0.2"
FULL_SIZES = "full=true width=128 layers=2 pairs=60000 steps=600 batch_tokens=4000 lr=0.003 sentences=1000"


@dataclass(frozen=True)
class Sizes:
    """Sizes of the base model, and of the training of each row."""

    full: bool = False
    """Whether to train all rows with three seeds, instead of two rows with one."""
    width: int = 64
    """Width d_model of the base."""
    layers: int = 1
    """Number of layers of the base's encoder, and of its decoder."""
    heads: int = 4
    """Number of heads of each attention layer of the base."""
    pairs: int = 20_000
    """Number of training pairs of Petit."""
    steps: int = 500
    """Training steps of each model."""
    batch_tokens: int = 500
    """Number of tokens in a batch."""
    lr: float = 1e-2
    """Maximum learning rate."""
    sentences: int = 200
    """Number of test sentences that are translated."""
    seed: int = 0
    """The first seed."""


@dataclass(frozen=True)
class AblationRow:
    """The results of one row, with a figure for each seed."""

    parameters: int
    perplexity: tuple[float, ...]
    bleu: tuple[float, ...]


def run(sizes: Sizes) -> LabResult:
    """Train each row with each seed."""
    changes = row_changes(sizes) if sizes.full else {name: row_changes(sizes)[name] for name in (BASE, HALF_WIDTH)}
    seeds = range(sizes.seed, sizes.seed + (SEED_COUNT if sizes.full else 1))
    rows = {name: train_row(sizes, overrides, seeds) for name, overrides in changes.items()}
    table_rows = tuple(
        (name, f"{row.parameters:,}", format_mean(row.perplexity, 2), format_mean(row.bleu, 1))
        for name, row in rows.items()
    )
    title = f"{sizes.steps:,} steps each"
    if sizes.full:
        title += f"; means over {SEED_COUNT} seeds and their 95% confidence intervals"
    notes = (
        "The models are small and trained for a short time. In the paper, with long training, dropout helps.",
        "The full form, `regard lab ablation --full`, took 28 minutes on a GPU that other jobs used as well.",
    )
    table = ResultTable(("", "parameters", "perplexity", "BLEU"), table_rows, title)
    return LabResult((table,), conclusions(rows), partial(draw, rows=rows), (10.0, 1.6 + 0.25 * len(rows)), notes)


def row_changes(sizes: Sizes) -> dict[str, list[str]]:
    """Return the rows of Table 3, each with the settings that differ from the base."""
    width, heads, layers = sizes.width, sizes.heads, sizes.layers
    d_k = width // heads
    depths = sorted({max(1, layers // 2), layers + 1, 2 * layers} - {layers})
    return {
        BASE: [],
        **{f"(A) {_count(n, 'head')}": [f"model.heads={n}"] for n in (1, heads // 2, 2 * heads, 4 * heads)},
        **{f"(B) d_k = {n}": [f"model.d_k={n}"] for n in (d_k // 4, d_k // 2)},
        **{f"(C) {_count(n, 'layer')}": [f"model.layers={n}"] for n in depths},
        HALF_WIDTH: [f"model.d_model={width // 2}"],
        "(C) twice the width": [f"model.d_model={2 * width}"],
        **{f"(C) d_ff = {n}": [f"model.d_ff={n}"] for n in (2 * width, 8 * width)},
        **{f"(D) dropout {rate}": [f"model.dropout={rate}"] for rate in (0.1, 0.2)},
        UNSMOOTHED: ["train.label_smoothing=0.0"],
        SMOOTHED: ["train.label_smoothing=0.2"],
        LEARNED_POSITIONS: ["model.positions=learned"],
    }


def train_row(sizes: Sizes, overrides: list[str], seeds: range) -> AblationRow:
    """Train and test the models of one row."""
    base = [
        *(f"model.d_model={sizes.width}", f"model.d_ff={4 * sizes.width}", f"model.layers={sizes.layers}"),
        *(f"model.heads={sizes.heads}", "model.dropout=0.0", "train.label_smoothing=0.1", f"data.petit={sizes.pairs}"),
        *(f"train.steps={sizes.steps}", f"train.warmup={sizes.steps // 10}", "train.schedule=linear"),
        *(f"train.batch_tokens={sizes.batch_tokens}", f"train.lr={sizes.lr}"),
        f"tokenizer.vocab_size={VOCABULARY_SIZE}",
    ]
    test_pairs, scores, parameters = held_out_pairs(sizes.sentences), [], 0
    for seed in seeds:
        recipe = read_recipe("petit-fr-en", [*base, *overrides, f"train.seed={seed}"])
        model, held_out = train_model(recipe, "cuda" if torch.cuda.is_available() else "cpu")
        parameters = sum(weights.numel() for weights in model.network.parameters())
        scores.append((prediction_quality(model, held_out).perplexity, translation_quality(model, test_pairs).bleu))
    perplexity, bleu = zip(*scores, strict=True)
    return AblationRow(parameters, perplexity, bleu)


def conclusions(rows: dict[str, AblationRow]) -> tuple[Claim, ...]:
    """Return the claims that the paper makes about its table, or their opposite where a short run differs."""
    perplexity = {name: mean(row.perplexity) for name, row in rows.items()}
    wider = Claim(
        f"(C) Wider models are better: perplexity {perplexity[HALF_WIDTH]:.2f} at half the width, "
        f"{perplexity[BASE]:.2f} at the full width",
        perplexity[HALF_WIDTH] > 1.1 * perplexity[BASE],
    )
    if LEARNED_POSITIONS not in rows:
        return (wider,)
    base, one_head, dropout = rows[BASE], rows[ONE_HEAD], rows[DROPOUT]
    return (
        Claim(
            f"(A) One head is worse than several: perplexity {perplexity[ONE_HEAD]:.2f}, compared with "
            f"{perplexity[BASE]:.2f} for the base",
            clearly_greater(one_head.perplexity, base.perplexity),
        ),
        wider,
        Claim(
            f"(D) Dropout hurts in such a short run: BLEU {mean(dropout.bleu):.1f} with it, {mean(base.bleu):.1f} "
            f"without",
            clearly_greater(base.bleu, dropout.bleu),
        ),
        Claim(
            f"(D) Label smoothing increases perplexity: {perplexity[SMOOTHED]:.2f} with 0.2, "
            f"{perplexity[UNSMOOTHED]:.2f} without",
            perplexity[SMOOTHED] > 1.03 * perplexity[UNSMOOTHED],
        ),
        Claim(
            f"(E) Learned positions are as good as sinusoids: perplexity {perplexity[LEARNED_POSITIONS]:.2f} and "
            f"{perplexity[BASE]:.2f}",
            abs(perplexity[LEARNED_POSITIONS] - perplexity[BASE]) < 0.03 * perplexity[BASE],
        ),
    )


def draw(figure: Figure, rows: dict[str, AblationRow]) -> None:
    """Draw the perplexity and BLEU of every row, with a line at the base's."""
    for number, (field, title) in enumerate((("perplexity", "perplexity"), ("bleu", "BLEU")), start=1):
        axes = panel(figure, 2, number, title)
        samples = [getattr(row, field) for row in rows.values()]
        axes.axvline(mean(getattr(rows[BASE], field)), color=GREY, linestyle=":")
        means, intervals = [mean(values) for values in samples], [interval_half_width(values) for values in samples]
        axes.errorbar(means, range(len(rows)), xerr=intervals, fmt="o", color=BLUE, capsize=3)
        axes.set_yticks(range(len(rows)), list(rows) if number == 1 else [""] * len(rows))
        axes.set_ylim(len(rows) - 0.5, -0.5)


def _count(number: int, noun: str) -> str:
    return f"1 {noun}" if number == 1 else f"{number} {noun}s"
