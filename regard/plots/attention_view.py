"""Attention on a text in the terminal: one heat map for each kind of attention."""

from rich.console import Console
from rich.text import Text

from regard.decoding.attention_maps import Attention, AttentionKind, AttentionMap
from regard.plots.heat_map import heat_map, shorten_to_width

KIND_TITLES: dict[AttentionKind, str] = {
    "encoder": "Encoder self-attention: each token attends to the text",
    "decoder": "Decoder self-attention: each step attends to the text so far",
    "cross": "Cross-attention: each step of the target attends to the source",
}
MAX_LABEL_WIDTH = 12
"""Maximum number of columns of a token in a row label."""


def show_attention(console: Console, attention: Attention, layer: int | None = None, head: int | None = None) -> None:
    """Print the text and a heat map of each kind, for one head or the mean of a layer's heads (default: the last)."""
    heading = Text.assemble((attention.model, "dim"), "\n", (attention.source, "bold"))
    if attention.target is not None:
        heading.append(f"\n→ {attention.target}")
    console.print(heading)
    for kind, attention_map in attention.maps.items():
        weights = attention_map.open(layer, head)
        console.print()
        console.print(Text.assemble((KIND_TITLES[kind], "bold"), ", in per cent"))
        console.print(Text(describe_selection(attention_map, layer, head), style="dim"))
        console.print(heat_map(weights, _row_labels(attention_map), attention_map.keys, console.width))
    kind_option = f"--kind {attention.kinds[-1]}, " if len(attention.maps) > 1 else ""
    hint = f"To see more: {kind_option}--layer 0, --head 0, or --html attention.html"
    console.print(Text(hint, style="dim"))


def describe_selection(attention_map: AttentionMap, layer: int | None, head: int | None) -> str:
    """Which of the weights are shown.

    >>> import torch
    >>> describe_selection(AttentionMap(torch.zeros(3, 4, 1, 1), ("a",), ("b",)), None, None)
    'layer 2 (of 0–2), mean of heads 0–3'
    """
    layers, heads = attention_map.weights.shape[:2]
    heads_shown = f"head {head} (of 0–{heads - 1})" if head is not None else f"mean of heads 0–{heads - 1}"
    return f"layer {layers - 1 if layer is None else layer} (of 0–{layers - 1}), {heads_shown}"


def _row_labels(attention_map: AttentionMap) -> list[str]:
    """The token that each row reads and, in a decoder, the one that it predicts, both shortened."""
    queries, writes = (
        tuple(shorten_to_width(token, MAX_LABEL_WIDTH) for token in tokens)
        for tokens in (attention_map.queries, attention_map.writes)
    )
    return AttentionMap(attention_map.weights, queries, attention_map.keys, writes).rows
