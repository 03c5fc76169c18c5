"""Which heads matter?

A translator of Petit translates sentences that no training text holds, with one of its heads silenced: the columns of
`out` that this head feeds are zero, so that nothing of what it found goes on. Then with another, until each head of
each attention was silent once, and at last all heads of an attention together. Measured each time: BLEU, how many
translations are right to the letter, and the same among the sentences that show a phenomenon of grammar.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from statistics import median

import torch
from matplotlib.figure import Figure

from regard.decoding.text_model import Model
from regard.interop.load import load
from regard.labs.lab import Claim, Result, Table
from regard.labs.lab_figures import BLUE, GREY, ORANGE, panel, tiles
from regard.labs.petit_translators import Translated, sentences, translated
from regard.model.attention import MultiHeadAttention

Lost = dict[str, dict[str, float]]
"""by a head's name and a phenomenon's: the share of sentences that are wrong without the head, and were not with it"""
SPARED = 2.0
"""points of BLEU: a head that costs less is hardly missed"""


@dataclass(frozen=True)
class Sizes:
    """Who is asked, and how much."""

    model: str = "petit-fr-en"
    """the translator: a bundled one, or the folder of a run that was trained on Petit's French → English"""
    sentences: int = 300
    """that are translated each time"""
    shown: int = 15
    """a phenomenon that fewer sentences show is left out"""
    seed: int = 0
    """of the sentences"""


def run(sizes: Sizes) -> Result:
    """Silence heads one by one, then whole attentions."""
    model, tested = load(sizes.model), sentences(sizes.sentences, sizes.seed)
    whole = translated(model, tested)
    found, together = {}, {}
    for name, attention in attentions(model).items():
        for head in range(attention.heads):
            with silenced(attention, [head]):
                found[f"{name} head {head}"] = translated(model, tested)
        with silenced(attention, range(attention.heads)):
            together[name] = translated(model, tested)
    costs = {head: whole.bleu - each.bleu for head, each in found.items()}
    lost = {head: phenomena_lost(whole, each, sizes.shown) for head, each in found.items()}
    tables = (by_attention(whole, found, together), by_phenomenon(lost, whole))
    at_once = {name: whole.bleu - each.bleu for name, each in together.items()}
    note = "Of some phenomena there are few sentences: a share of them proves little. sentences=2000 has enough."
    return Result(tables, conclusions(costs, at_once), partial(draw, costs=costs, lost=lost), (11.0, 6.4), (note,))


def attentions(model: Model) -> dict[str, MultiHeadAttention]:
    """Every attention of a model by a short name: decoder.layers.1.cross_attention is cross 1."""
    found = {}
    for name, module in model.network.named_modules():
        if isinstance(module, MultiHeadAttention):
            stack, _, number, kind = name.split(".")
            found[f"{'cross' if kind == 'cross_attention' else stack} {number}"] = module
    return found


@contextmanager
def silenced(attention: MultiHeadAttention, heads: Sequence[int]) -> Iterator[None]:
    """Nothing of what these heads find goes on; afterwards, all is as it was."""
    weight = attention.out.weight.data  # [d_model, heads · d_v]
    kept = weight.clone()
    try:
        for columns in (weight.chunk(attention.heads, 1)[head] for head in heads):
            columns.zero_()
        yield
    finally:
        weight.copy_(kept)


def phenomena_lost(whole: Translated, without: Translated, shown: int) -> dict[str, float]:
    """How many more are wrong among the sentences that show a phenomenon, for all that enough of them show."""
    given = {name: share for name, share in sorted(whole.exact.phenomena.items()) if share.total >= shown}
    return {name: share.value - without.exact.phenomena[name].value for name, share in given.items()}


def conclusions(costs: dict[str, float], at_once: dict[str, float]) -> tuple[Claim, ...]:
    """From the BLEU that each head costs, and all heads of each attention at once."""
    spared, usual = sum(cost < SPARED for cost in costs.values()), median(costs.values())
    head = max(costs, key=lambda each: costs[each])
    added = {name: sum(cost for head, cost in costs.items() if head.startswith(f"{name} ")) for name in at_once}
    name = max(at_once, key=lambda each: at_once[each] - added[each])
    least, most = (choose(at_once, key=lambda each: at_once[each]) for choose in (min, max))
    return (
        Claim(
            f"Most heads are hardly missed: {spared} of {len(costs)} cost less than {SPARED:g} points of BLEU, the "
            f"median {usual:.1f}; the one that matters most, {head}, costs {costs[head]:.1f}",
            spared > 2 / 3 * len(costs) and costs[head] > 2 * usual,
        ),
        Claim(
            f"Heads stand in for each other: those of {name} cost {added[name]:.1f} points one by one, all added up, "
            f"and {at_once[name]:.1f} when silenced together",
            at_once[name] > 2 * added[name] + 10,
        ),
        Claim(
            f"Attentions differ: {most} as a whole is worth {at_once[most]:.1f} points, {least} {at_once[least]:.1f}",
            at_once[most] > 5 * at_once[least] + 10,
        ),
    )


def by_attention(whole: Translated, found: dict[str, Translated], together: dict[str, Translated]) -> Table:
    """BLEU without each head, and without all of an attention."""
    heads = range(len(found) // len(together))
    rows = [
        (name, *(f"{found[f'{name} head {head}'].bleu:.1f}" for head in heads), f"{each.bleu:.1f}")
        for name, each in together.items()
    ]
    columns = ("silenced", *(f"head {head}" for head in heads), "all of them")
    return Table(columns, tuple(rows), f"BLEU without a head; with all heads {whole.bleu:.1f}")


def by_phenomenon(lost: Lost, whole: Translated) -> Table:
    """For each phenomenon the head that it misses most, the greatest loss first."""
    worst = {name: max(lost, key=lambda head: lost[head][name]) for name in next(iter(lost.values()))}
    rows = [
        (name, str(whole.exact.phenomena[name].total), f"{lost[worst[name]][name]:.0%}", worst[name])
        for name in sorted(worst, key=lambda name: -lost[worst[name]][name])
    ]
    columns = ("phenomenon", "sentences", "more are wrong", "without")
    return Table(columns, tuple(rows), "What each phenomenon misses most")


def draw(figure: Figure, costs: dict[str, float], lost: Lost) -> None:
    """What each head costs, and which grammar."""
    names, phenomena = list(costs), list(next(iter(lost.values())))
    axes = panel(figure, 2, 1, "BLEU lost without the head", "points")
    axes.barh(names, list(costs.values()), color=[ORANGE if cost >= SPARED else BLUE for cost in costs.values()])
    axes.axvline(SPARED, color=GREY, linestyle=":")
    axes.invert_yaxis()
    axes = panel(figure, 2, 2, "right translations lost, by phenomenon (darkest: 40 %)")
    tiles(axes, torch.tensor([list(each.values()) for each in lost.values()]), 0.0, 0.4)
    axes.set_yticks(range(len(names)), names)
    axes.set_xticks(range(len(phenomena)), phenomena, rotation=60, ha="right", rotation_mode="anchor")
