"""What does the causal mask prevent?

First the mask itself: three sentences of 3, 4 and 7 tokens, padded to one batch, go through three heads of attention
with random weights, with the mask and without, step by step from scores to weights.

Then what it is for. Two language models of the same shape must say the next character at every place of a line, all
places at once. One is a decoder; the other has no mask (it is an encoder), and may look at the very character it must
say. Both are then given what has been written so far and nothing else, which is all there is when one writes.
"""

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from regard.config import preset
from regard.labs.lab import Claim, Result, Table
from regard.labs.lab_figures import BLUE, ORANGE, legend, panel, tiles
from regard.labs.letter_models import Learned, Letters, learn
from regard.model.attention import MultiHeadAttention, split_heads
from regard.model.masks import causal_mask, padding_mask

SENTENCES = ("She sings .", "The cat sleeps .", "We never eat bread with them .")
Steps = dict[str, Float[Tensor, "3 3 S S"]]  # by name: sentences, heads, queries, keys


@dataclass(frozen=True)
class Sizes:
    """What is trained."""

    steps: int = 300
    """of training, for each language model"""
    length: int = 24
    """characters of a line; a step has 32 lines"""
    seed: int = 0


def run(sizes: Sizes) -> Result:
    """The mask on three sentences, then a language model with it and one without."""
    steps = look(sizes.seed)
    free, masked = steps["without mask"], steps["with mask"]
    future = ~causal_mask(free.size(-1))
    leaked, given = float(masked.masked_select(future).max()), 1 - float(free[:, :, 0, 0].mean())
    past = free.masked_fill(future, 0)
    off = float((past / past.sum(-1, keepdim=True) - masked).abs().max())
    letters = Letters.of_petit()
    size = len(letters.alphabet)
    shape = preset("tiny", kind="decoder", vocab_size=size, pad=None, norm="pre", dropout=0.0)
    blind = learn(shape, letters, sizes.length, sizes.steps, sizes.seed)
    seeing = learn(replace(shape, kind="encoder"), letters, sizes.length, sizes.steps, sizes.seed)
    claims = (
        Claim(
            f"The largest weight on what is still to come is {leaked:g}; without the mask a first token gives "
            f"{given:.0%} of its weight away to it",
            leaked == 0 and given > 0.2,
        ),
        Claim(f"What is left keeps its proportions (to {off:.0e}): the mask forbids, it does not rank", off < 1e-5),
        Claim(
            f"Without the mask a language model seems to learn all there is: loss {seeing.trained:.2f}; with it "
            f"{blind.trained:.2f}",
            seeing.trained < 0.4 and blind.trained > 1,
        ),
        Claim(
            f"It has learned to look. Without the next character before it, its loss is {seeing.alone:.1f}, worse "
            f"than pure chance ({math.log(size):.1f}); with the mask it is {blind.alone:.2f}, as in training",
            seeing.alone > math.log(size) and abs(blind.alone - blind.trained) < 0.4,
        ),
        Claim(
            f"So it cannot write: {seeing.real:.0%} of what it writes is in words that exist, with the mask "
            f"{blind.real:.0%}",
            seeing.real < 0.3 * blind.real,
        ),
    )
    tables = tabulate(steps, {"without mask": seeing, "with mask": blind})
    note = "Both learn for seconds only: what is written with the mask, too, gets better with more steps."
    return Result(tables, claims, lambda figure: draw(figure, steps, seeing, blind), (10.0, 9.0), (note,))


def look(seed: int) -> Steps:
    """Three heads on the three sentences, step by step and by Regard's attention."""
    torch.manual_seed(seed)
    lengths = torch.tensor([len(sentence.split()) for sentence in SENTENCES])
    x = 2 * torch.randn(3, 7, 24)  # a vector for each token: not short, so that heads have clear preferences
    heads = MultiHeadAttention(d_model=24, heads=3)
    there = padding_mask(lengths, 7)
    mask = causal_mask(7) & there
    with torch.no_grad():
        q, k = split_heads(heads.q(x), 3), split_heads(heads.k(x), 3)  # [3, 3, S, 8] each
        scores = q @ k.mT / math.sqrt(q.size(-1))  # [3, 3, S, S]
        free, masked = (heads(x, x, x, each, return_weights=True)[1] for each in (there, mask))
    hidden = scores.masked_fill(~mask, -math.inf)
    return {"scores": scores, "masked scores": hidden, "with mask": masked, "without mask": free}


def tabulate(steps: Steps, models: dict[str, Learned]) -> tuple[Table, Table]:
    """The first head on the first sentence, a line for each token that looks; and the two language models."""
    shown = ("scores", "masked scores", "with mask")
    spelled = [[" ".join(f"{x:.2f}" for x in row) for row in steps[name][0, 0, :3, :3].tolist()] for name in shown]
    lines = zip(SENTENCES[0].split(), *([cell.replace("-inf", "−∞") for cell in row] for row in spelled), strict=True)
    rows = [
        (name, f"{each.trained:.2f}", f"{each.alone:.2f}", f"{each.real:.0%}", repr(each.written[:24]))
        for name, each in models.items()
    ]
    columns = ("language model", "loss in training", "where nothing follows", "in real words", "what it writes")
    first = Table(("token", "scores", "masked scores", "weights"), tuple(lines), "From scores to weights, one head")
    return first, Table(columns, tuple(rows), "The leak")


def draw(figure: Figure, steps: Steps, seeing: Learned, blind: Learned) -> None:
    """From scores to weights; three heads on three sentences; how the models learn, and what is left of it."""
    for number, name in enumerate(("scores", "masked scores", "with mask"), start=1):
        arrow = "→ weights, " if number == 3 else "→ " if number == 2 else ""
        axes = panel(figure, 3, number, f"{arrow}{name}, head 1", rows=4)
        low, high = (0.0, 1.0) if number == 3 else (-3.0, 3.0)
        tiles(axes, steps[name][1, 0, :4, :4], low, high, digits=1)
        name_tokens(axes, 1)
    for number in range(6):
        name, row, n = ("without mask", "with mask")[number // 3], number % 3, len(SENTENCES[number % 3].split())
        axes = panel(figure, 3, number + 4, f"{name}, three heads", rows=4)
        tiles(axes, torch.cat([*steps[name][row, :, :n, :n]], 1))  # heads side by side
        name_tokens(axes, row)
        for edge in (n, 2 * n):
            axes.axvline(edge - 0.5, color="#222222", linewidth=1)
    axes = panel(figure, 3, 10, "loss in training", "step", rows=4)
    models = ((seeing, "without mask", ORANGE), (blind, "with mask", BLUE))
    for each, name, colour in models:
        axes.plot(each.losses, color=colour, label=name)
    legend(axes)
    for number, field, title in ((11, "alone", "loss where nothing follows"), (12, "real", "written in real words")):
        axes = panel(figure, 3, number, title, rows=4)
        bars = axes.bar(
            [name for _, name, _ in models], [getattr(m, field) for m, _, _ in models], color=[ORANGE, BLUE]
        )
        axes.bar_label(bars, fmt="%.1f" if field == "alone" else lambda share: f"{share:.0%}", fontsize=8)


def name_tokens(axes: Axes, sentence: int) -> None:
    """The tokens that look, from top to bottom."""
    tokens = SENTENCES[sentence].split()
    axes.set_xticks([])
    axes.set_yticks(range(len(tokens)), tokens)
