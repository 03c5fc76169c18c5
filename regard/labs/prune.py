"""Which heads matter?

A translator of Petit translates sentences that are in no training text while one of its heads is disabled: its output
is replaced by zeros before `out` reads it. This is repeated for each head of each attention layer, and then
for all heads of an attention layer together. The lab measures BLEU, the share of translations that are exactly right,
and the same share among the sentences that show a given grammatical phenomenon.
"""

from dataclasses import dataclass
from functools import partial
from statistics import median

import torch
from matplotlib.figure import Figure

from regard.decoding.interventions import attention_modules, silenced_heads
from regard.decoding.text_model import Model
from regard.interop.load import load
from regard.labs.lab import Claim, LabResult, ResultTable
from regard.labs.lab_figures import BLUE, GREY, ORANGE, heatmap, panel
from regard.labs.petit_translators import TranslationQuality, held_out_pairs, translation_quality
from regard.model.attention import MultiHeadAttention

PhenomenonLosses = dict[str, dict[str, float]]
"""By head and phenomenon: the share of sentences that are right with the head and wrong without it."""
SMALL_BLEU_LOSS = 2.0
"""Loss in BLEU below which a head is hardly missed."""


@dataclass(frozen=True)
class Sizes:
    """The model, and the number of sentences."""

    model: str = "petit-fr-en"
    """The translator: a bundled model, or the folder of a run that was trained on Petit's French → English."""
    sentences: int = 300
    """Number of sentences that are translated each time."""
    shown: int = 15
    """Minimum number of sentences that must show a phenomenon for it to be reported."""
    seed: int = 0
    """Seed of the sentences."""


def run(sizes: Sizes) -> LabResult:
    """Disable heads one by one, then complete attention layers."""
    model, test_pairs = load(sizes.model), held_out_pairs(sizes.sentences, sizes.seed)
    complete = translation_quality(model, test_pairs)
    without_head, without_layer = {}, {}
    for name, attention in attention_layers(model).items():
        for head in range(attention.heads):
            with silenced_heads(attention, [head]):
                without_head[f"{name} head {head}"] = translation_quality(model, test_pairs)
        with silenced_heads(attention, range(attention.heads)):
            without_layer[name] = translation_quality(model, test_pairs)
    costs = {head: complete.bleu - quality.bleu for head, quality in without_head.items()}
    losses = {head: phenomenon_losses(complete, quality, sizes.shown) for head, quality in without_head.items()}
    tables = (bleu_table(complete, without_head, without_layer), phenomena_table(losses, complete))
    layer_costs = {name: complete.bleu - quality.bleu for name, quality in without_layer.items()}
    note = (
        "Few sentences show some of the phenomena, so their shares are uncertain. Use sentences=2000 for reliable ones."
    )
    picture = partial(draw, costs=costs, losses=losses)
    return LabResult(tables, conclusions(costs, layer_costs), picture, (11.0, 6.4), (note,))


def attention_layers(model: Model) -> dict[str, MultiHeadAttention]:
    """Return every attention layer by a short name: decoder.layers.1.cross_attention is cross 1."""
    return {f"{kind} {number}": module for (kind, number), module in attention_modules(model.network).items()}


def phenomenon_losses(
    complete: TranslationQuality, without: TranslationQuality, min_sentences: int
) -> dict[str, float]:
    """Return the loss in exact translations for each phenomenon that at least `min_sentences` sentences show."""
    shares = {name: share for name, share in sorted(complete.exact.by_tag.items()) if share.total >= min_sentences}
    return {name: share.value - without.exact.by_tag[name].value for name, share in shares.items()}


def conclusions(costs: dict[str, float], layer_costs: dict[str, float]) -> tuple[Claim, ...]:
    """Return the claims, given the BLEU that each head costs, and all heads of each layer together."""
    cheap, typical = sum(cost < SMALL_BLEU_LOSS for cost in costs.values()), median(costs.values())
    head = max(costs, key=lambda name: costs[name])
    sums = {name: sum(cost for head, cost in costs.items() if head.startswith(f"{name} ")) for name in layer_costs}
    name = max(layer_costs, key=lambda layer: layer_costs[layer] - sums[layer])
    least, most = (choose(layer_costs, key=lambda layer: layer_costs[layer]) for choose in (min, max))
    return (
        Claim(
            f"Most heads are hardly missed: {cheap} of {len(costs)} cost less than {SMALL_BLEU_LOSS:g} BLEU, and the "
            f"median is {typical:.1f}; the most important one, {head}, costs {costs[head]:.1f}",
            cheap > 2 / 3 * len(costs) and costs[head] > 2 * typical,
        ),
        Claim(
            f"Heads compensate for each other: disabled one at a time, the heads of {name} cost {sums[name]:.1f} BLEU "
            f"in total; disabled together, {layer_costs[name]:.1f}",
            layer_costs[name] > 2 * sums[name] + 10,
        ),
        Claim(
            f"Attention layers differ: {most} is worth {layer_costs[most]:.1f} BLEU in total, and {least} is worth "
            f"{layer_costs[least]:.1f}",
            layer_costs[most] > 5 * layer_costs[least] + 10,
        ),
    )


def bleu_table(
    complete: TranslationQuality,
    without_head: dict[str, TranslationQuality],
    without_layer: dict[str, TranslationQuality],
) -> ResultTable:
    """Return BLEU without each head, and without all heads of a layer."""
    heads = range(len(without_head) // len(without_layer))
    rows = [
        (name, *(f"{without_head[f'{name} head {head}'].bleu:.1f}" for head in heads), f"{quality.bleu:.1f}")
        for name, quality in without_layer.items()
    ]
    columns = ("disabled", *(f"head {head}" for head in heads), "all heads")
    return ResultTable(columns, tuple(rows), f"BLEU without a head; with all heads {complete.bleu:.1f}")


def phenomena_table(losses: PhenomenonLosses, complete: TranslationQuality) -> ResultTable:
    """Return for each phenomenon the head that it needs most, the greatest loss first."""
    needed = {name: max(losses, key=lambda head: losses[head][name]) for name in next(iter(losses.values()))}
    rows = [
        (name, str(complete.exact.by_tag[name].total), f"{losses[needed[name]][name]:.0%}", needed[name])
        for name in sorted(needed, key=lambda name: -losses[needed[name]][name])
    ]
    columns = ("phenomenon", "sentences", "additional errors", "without")
    return ResultTable(columns, tuple(rows), "The head that each phenomenon needs most")


def draw(figure: Figure, costs: dict[str, float], losses: PhenomenonLosses) -> None:
    """Draw the BLEU that each head costs, and the phenomena that it costs."""
    names, phenomena = list(costs), list(next(iter(losses.values())))
    axes = panel(figure, 2, 1, "BLEU lost without the head", "BLEU")
    colours = [ORANGE if cost >= SMALL_BLEU_LOSS else BLUE for cost in costs.values()]
    axes.barh(names, list(costs.values()), color=colours)
    axes.axvline(SMALL_BLEU_LOSS, color=GREY, linestyle=":")
    axes.invert_yaxis()
    axes = panel(figure, 2, 2, "exact translations lost, by phenomenon (darkest: 40%)")
    heatmap(axes, torch.tensor([list(by_phenomenon.values()) for by_phenomenon in losses.values()]), 0.0, 0.4)
    axes.set_yticks(range(len(names)), names)
    axes.set_xticks(range(len(phenomena)), phenomena, rotation=60, ha="right", rotation_mode="anchor")
