"""Attention on a text in the terminal: one heat map for each kind of attention."""

from collections.abc import Sequence

import torch
from rich.console import Console, Group
from rich.text import Text

from regard.decoding.attention_maps import Attention, AttentionKind, AttentionMap, row_labels
from regard.decoding.logit_lens import LogitLens
from regard.plots.heat_map import heat_map, shorten_to_width

KIND_TITLES: dict[AttentionKind, str] = {
    "encoder": "Encoder self-attention: each token attends to the text",
    "decoder": "Decoder self-attention: each step attends to the text so far",
    "cross": "Cross-attention: each step of the target attends to the source",
}
LENS_TITLE = "Logit lens: the most likely token if each layer were the last"
MAX_LABEL_WIDTH = 12
"""Maximum number of columns of a token in a row label."""


def show_attention(console: Console, attention: Attention, layer: int | None = None, head: int | None = None) -> None:
    """Print the text and a heat map of each kind, for one head or the mean of a layer's heads (default: the last).

    A logit lens is printed after them.
    """
    heading = Text.assemble((attention.model, "dim"), "\n", (attention.source, "bold"))
    if attention.target is not None:
        heading.append(f"\n→ {attention.target}")
    console.print(heading)
    for kind, attention_map in attention.maps.items():
        weights = attention_map.open(layer, head)
        console.print()
        console.print(Text.assemble((KIND_TITLES[kind], "bold"), ", in per cent"))
        console.print(Text(describe_selection(attention_map, layer, head), style="dim"))
        rows = _short_rows(attention_map.queries, attention_map.writes)
        console.print(heat_map(weights, rows, attention_map.keys, console.width))
    if attention.lens is not None:
        console.print()
        console.print(Text.assemble((LENS_TITLE, "bold"), ", in per cent"))
        console.print(_lens_table(attention.lens, console.width))
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


def _lens_table(lens: LogitLens, width: int) -> Group:
    best = [[prediction[0] for prediction in state] for state in lens.top]
    by_position = list(zip(*best, strict=True))
    weights = torch.tensor([[probability for _, probability in row] for row in by_position])
    texts = [[token for token, _ in row] for row in by_position]
    return heat_map(weights, _short_rows(lens.queries, lens.writes), lens.states, width, texts)


def _short_rows(queries: Sequence[str], writes: Sequence[str]) -> list[str]:
    """The token that each row reads and, in a decoder, the one that it predicts, both shortened."""
    return row_labels(*([shorten_to_width(token, MAX_LABEL_WIDTH) for token in tokens] for tokens in (queries, writes)))
