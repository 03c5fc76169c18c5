"""Which parts of a Transformer matter?

The paper's Table 3 in small. A base model learns to translate Petit, and beside it models that differ from it in one
thing, as in the paper: (A) the number of heads at equal cost, (B) the width of keys, (C) layers and widths, (D) dropout
and label smoothing, (E) learned positions. The base has an inner width of four times the model's and label smoothing of
0.1, as in the paper, and no dropout: in a short run no sentence comes by often. Perplexity is of held-out tokens.

The quick form shows two rows, the base and one half as wide. With full=true it is the whole table, each row with three
seeds, which in the size that the notes tell is work for a GPU.
"""

from dataclasses import dataclass
from functools import partial
from statistics import mean

import torch
from matplotlib.figure import Figure

from regard.labs.lab import Claim, Result, Table
from regard.labs.lab_figures import BLUE, GREY, panel
from regard.labs.petit_translators import apart, foretold, half_width, sentences, told, trained, translated
from regard.training.recipe_files import read_recipe

SEEDS = 3
"""of each row in the full table"""
VOCABULARY = 1_000
BASE, SINGLE, NARROW, LEARNED = "base", "(A) 1 head", "(C) half the width", "(E) learned positions"
DROPPED, CERTAIN, SMOOTHED = "(D) dropout 0.1", "(D) label smoothing 0.0", "(D) label smoothing 0.2"
FULL = "full=true width=128 layers=2 pairs=60000 steps=600 batch_tokens=4000 lr=0.003 sentences=1000"


@dataclass(frozen=True)
class Sizes:
    """The base, and how long each row learns."""

    full: bool = False
    """the whole table, with three seeds, instead of two rows with one"""
    width: int = 64
    """d_model of the base"""
    layers: int = 1
    """of its encoder, and of its decoder"""
    heads: int = 4
    """of each of its attentions"""
    pairs: int = 20_000
    """of Petit, to learn from"""
    steps: int = 500
    """that each model learns"""
    batch_tokens: int = 500
    """of a step"""
    lr: float = 1e-2
    """the highest learning rate"""
    sentences: int = 200
    """of the test text that are translated"""
    seed: int = 0
    """the first"""


@dataclass(frozen=True)
class Row:
    """What came of one model, with a figure for each seed."""

    parameters: int
    perplexity: tuple[float, ...]
    bleu: tuple[float, ...]


def run(sizes: Sizes) -> Result:
    """Train each row with each seed."""
    rows = changes(sizes) if sizes.full else {name: changes(sizes)[name] for name in (BASE, NARROW)}
    seeds = range(sizes.seed, sizes.seed + (SEEDS if sizes.full else 1))
    found = {name: measured(sizes, changed, seeds) for name, changed in rows.items()}
    table = Table(
        ("", "parameters", "perplexity", "BLEU"),
        tuple((name, f"{row.parameters:,}", told(row.perplexity, 2), told(row.bleu, 1)) for name, row in found.items()),
        f"{sizes.steps:,} steps each" + (f"; means of {SEEDS} seeds and their 95 % intervals" if sizes.full else ""),
    )
    notes = (
        "Models are small and learn for a short time. In the paper, where they learn long, dropout helps.",
        "In full: regard lab ablation --full, which took 28 minutes beside other work on a GPU.",
    )
    return Result((table,), conclusions(found), partial(draw, found=found), (10.0, 1.6 + 0.25 * len(found)), notes)


def changes(sizes: Sizes) -> dict[str, list[str]]:
    """The rows of Table 3, each by what it changes of the base."""
    width, heads, layers = sizes.width, sizes.heads, sizes.layers
    d_k = width // heads
    rows: dict[str, list[str]] = {BASE: []}
    rows |= {f"(A) {n} head{'s' * (n > 1)}": [f"model.heads={n}"] for n in (1, heads // 2, 2 * heads, 4 * heads)}
    rows |= {f"(B) d_k = {n}": [f"model.d_k={n}"] for n in (d_k // 4, d_k // 2)}
    depths = sorted({max(1, layers // 2), layers + 1, 2 * layers} - {layers})
    rows |= {f"(C) {n} layer{'s' * (n > 1)}": [f"model.layers={n}"] for n in depths}
    rows |= {NARROW: [f"model.d_model={width // 2}"], "(C) twice the width": [f"model.d_model={2 * width}"]}
    rows |= {f"(C) d_ff = {n}": [f"model.d_ff={n}"] for n in (2 * width, 8 * width)}
    rows |= {f"(D) dropout {p}": [f"model.dropout={p}"] for p in (0.1, 0.2)}
    rows |= {CERTAIN: ["train.label_smoothing=0.0"], SMOOTHED: ["train.label_smoothing=0.2"]}
    return rows | {LEARNED: ["model.positions=learned"]}


def measured(sizes: Sizes, changed: list[str], seeds: range) -> Row:
    """One row: its models learn, and are asked."""
    base = [
        *(f"model.d_model={sizes.width}", f"model.d_ff={4 * sizes.width}", f"model.layers={sizes.layers}"),
        *(f"model.heads={sizes.heads}", "model.dropout=0.0", "train.label_smoothing=0.1", f"data.petit={sizes.pairs}"),
        *(f"train.steps={sizes.steps}", f"train.warmup={sizes.steps // 10}", "train.schedule=linear"),
        *(f"train.batch_tokens={sizes.batch_tokens}", f"train.lr={sizes.lr}", f"tokenizer.vocab_size={VOCABULARY}"),
    ]
    tested, figures, parameters = sentences(sizes.sentences), [], 0
    for seed in seeds:
        recipe = read_recipe("petit-fr-en", [*base, *changed, f"train.seed={seed}"])
        model, held_out = trained(recipe, "cuda" if torch.cuda.is_available() else "cpu")
        parameters = sum(each.numel() for each in model.network.parameters())
        figures.append((foretold(model, held_out).perplexity, translated(model, tested).bleu))
    perplexity, bleu = zip(*figures, strict=True)
    return Row(parameters, perplexity, bleu)


def conclusions(found: dict[str, Row]) -> tuple[Claim, ...]:
    """What the paper says of its table, where this one has the rows for it, and where it says otherwise."""
    at = {name: mean(row.perplexity) for name, row in found.items()}
    says = f"(C) Bigger models are better: perplexity {at[NARROW]:.2f} at half width, {at[BASE]:.2f} at full"
    wider = Claim(says, at[NARROW] > 1.1 * at[BASE])
    if LEARNED not in found:
        return (wider,)
    base, single, dropped = found[BASE], found[SINGLE], found[DROPPED]
    heads = f"(A) One head does worse than several: perplexity {at[SINGLE]:.2f}, and {at[BASE]:.2f} with the base's"
    dropout = f"(D) Dropout costs in so short a run: BLEU {mean(dropped.bleu):.1f}, and {mean(base.bleu):.1f} without"
    smooth = f"(D) Label smoothing costs perplexity: {at[SMOOTHED]:.2f} with 0.2, and {at[CERTAIN]:.2f} without"
    learned = f"(E) Learned positions do as well as sinusoids: perplexity {at[LEARNED]:.2f} and {at[BASE]:.2f}"
    return (
        Claim(heads, apart(single.perplexity, base.perplexity)),
        wider,
        Claim(dropout, apart(base.bleu, dropped.bleu)),
        Claim(smooth, at[SMOOTHED] > 1.03 * at[CERTAIN]),
        Claim(learned, abs(at[LEARNED] - at[BASE]) < 0.03 * at[BASE]),
    )


def draw(figure: Figure, found: dict[str, Row]) -> None:
    """Perplexity and BLEU of every row beside the base's."""
    for number, (field, title) in enumerate((("perplexity", "perplexity"), ("bleu", "BLEU")), start=1):
        axes = panel(figure, 2, number, title)
        figures = [getattr(row, field) for row in found.values()]
        axes.axvline(mean(getattr(found[BASE], field)), color=GREY, linestyle=":")
        reach = [half_width(each) for each in figures]
        axes.errorbar([mean(each) for each in figures], range(len(found)), xerr=reach, fmt="o", color=BLUE, capsize=3)
        axes.set_yticks(range(len(found)), list(found) if number == 1 else [""] * len(found))
        axes.set_ylim(len(found) - 0.5, -0.5)
