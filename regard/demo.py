"""`regard demo`: what exists so far, shown on this machine: a tiny model's shapes, its attention, its own proof.

Dimensions: B batch, T target length, S source length.
"""

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from regard.config import preset
from regard.model.attention import MultiHeadAttention
from regard.model.embedding import Embedding
from regard.model.layers import Layer
from regard.model.transformer import EncoderDecoder, build
from regard.model.watch import Seen, watch
from regard.view.terminal import heat_map

SOURCE = ["le", "petit", "chat", "noir", "dort", "sur", "le", "tapis"]
TARGET = ["<pad>", "the", "little", "black", "cat", "sleeps", "on", "the", "mat"]  # every target starts with <pad>


def demo(console: Console) -> None:
    """Build the paper's model in small, run one sentence through it, and show what happened."""
    torch.manual_seed(0)
    config = preset("tiny")
    model = build(config).eval()
    assert isinstance(model, EncoderDecoder)
    words = sorted({*SOURCE, *TARGET} - {"<pad>"})
    number = {word: i for i, word in enumerate(words)} | {"<pad>": config.vocab_size - 1}
    source, target = (torch.tensor([[number[word] for word in text]]) for text in (SOURCE, TARGET))

    console.print("[bold]Regard[/]: the Transformer of “Attention Is All You Need”\n")
    console.print(
        f"The paper's encoder–decoder in small: {config.layers} + {config.layers} layers, {config.heads} heads,"
    )
    console.print(f"width {config.d_model}, {sum(p.numel() for p in model.parameters()):,} parameters.")
    console.print("Its weights are fresh: it has learned nothing yet, and looks anywhere.\n")
    console.print("[bold]One sentence on its way[/]")
    console.print(_shapes(model, source, target))
    with torch.inference_mode(), watch(model) as seen:
        readable = model(source, target)
    _show_attention(console, seen)
    _prove(console, model, source, target, readable)
    console.print("\nNext: the tree in the README says where each part lives.")
    console.print("      Start with regard/model/attention.py.")


def _shapes(model: EncoderDecoder, source: Tensor, target: Tensor) -> Table:
    """The way of one sentence through the model: each module's name, kind and the shape it gives."""
    table = Table("part", "what it is", "gives", box=None, header_style="dim")
    table.add_row("", "source, target: ids", f"{list(source.shape)}, {list(target.shape)}")

    def note(name: str, module: nn.Module, output: Tensor) -> None:
        table.add_row(name, type(module).__name__, str(list(output.shape)))

    shown = (Embedding, MultiHeadAttention, Layer)
    hooks = [
        module.register_forward_hook(lambda m, _args, output, name=name: note(name, m, output))
        for name, module in model.named_modules()
        if isinstance(module, shown)
    ]
    with torch.inference_mode():
        logits = model(source, target)
    for hook in hooks:
        hook.remove()
    table.add_row("", "logits: every id but <pad>", str(list(logits.shape)))
    return table


def _show_attention(console: Console, seen: Seen) -> None:
    """One head each of the three attentions of the paper's Figure 1."""
    for name, queries, keys, what in (
        ("encoder.layers.0.attention", SOURCE, SOURCE, "The source looks at itself"),
        ("decoder.layers.0.attention", TARGET, TARGET, "Each word of the target sees itself and those before it"),
        ("decoder.layers.1.cross_attention", TARGET, SOURCE, "The target looks at the source"),
    ):
        console.print(f"\n[bold]{what}[/], per cent\n[dim]{name}, head 0[/]")
        console.print(heat_map(seen[name][0][0, 0], queries, keys))


@torch.inference_mode()
def _prove(console: Console, model: EncoderDecoder, source: Tensor, target: Tensor, readable: Tensor) -> None:
    """The same logits by other ways, with the largest difference that was measured just now."""
    fast = model(source, target)  # [B, T, V]
    cache = model.start(source, target.size(1))
    places = torch.arange(target.size(1))[None]  # [1, T]
    steps = [model.step(target[:, t : t + 1], places[:, t : t + 1], cache) for t in range(target.size(1))]
    differences = {
        "readable path (weights formed) and fast path (fused kernels)": readable - fast,
        "all at once and token by token through the cache": torch.cat(steps, 1) - fast,
    }
    console.print("\n[bold]The same logits by other ways[/], largest difference measured just now")
    for what, difference in differences.items():
        console.print(f"  {what:62} {difference.abs().max():.1e}")
