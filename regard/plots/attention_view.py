"""Attention on a text, in the terminal: one heat map for each kind."""

from rich.console import Console
from rich.text import Text

from regard.decoding.attention_maps import Attention, AttentionKind, AttentionMap
from regard.plots.heat_map import heat_map, shorten_to_width

KIND_TITLES: dict[AttentionKind, str] = {
    "encoder": "Each token looks at the text",
    "decoder": "Each step looks at the text so far",
    "cross": "Each step of the target looks at the source",
}
LABEL = 12
"""columns for a token at a row's head"""


def show_attention(console: Console, attention: Attention, layer: int | None = None, head: int | None = None) -> None:
    """The text, and a heat map of each kind: of one head, or the mean of the heads of a layer (else of the last)."""
    told = Text.assemble((attention.model, "dim"), "\n", (attention.source, "bold"))
    if attention.target is not None:
        told.append(f"\n→ {attention.target}")
    console.print(told)
    for kind, each in attention.maps.items():
        weights = each.open(layer, head)
        console.print()
        console.print(Text.assemble((KIND_TITLES[kind], "bold"), ", per cent"))
        console.print(Text(f"{kind}, {describe_selection(each, layer, head)}", style="dim"))
        console.print(heat_map(weights, _rows(each), each.keys, console.width))
    other = f"--kind {attention.kinds[-1]}, " if len(attention.maps) > 1 else ""
    console.print(Text(f"To see more: {other}--layer 0, --head 0, or all: --html look.html", style="dim"))


def describe_selection(each: AttentionMap, layer: int | None, head: int | None) -> str:
    """Which of the weights are shown, in words.

    >>> import torch
    >>> describe_selection(AttentionMap(torch.zeros(3, 4, 1, 1), ("a",), ("b",)), None, None)
    'layer 2 of 0–2, mean of heads 0–3'
    """
    layers, heads = each.weights.shape[:2]
    of = f"head {head} of 0–{heads - 1}" if head is not None else f"mean of heads 0–{heads - 1}"
    return f"layer {layers - 1 if layer is None else layer} of 0–{layers - 1}, {of}"


def _rows(each: AttentionMap) -> list[str]:
    """The token that each row reads and, in a decoder, the one that it writes."""
    cut = [tuple(shorten_to_width(token, LABEL) for token in tokens) for tokens in (each.queries, each.writes)]
    return AttentionMap(each.weights, cut[0], each.keys, cut[1]).rows
