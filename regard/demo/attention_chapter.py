"""The chapter on attention: alignment error rates, a heat map, and a page with all heads."""

from pathlib import Path

from rich.table import Table
from rich.text import Text

from regard.atomic_files import write_file
from regard.decoding.attention_explanations import explanation_data
from regard.decoding.attention_maps import AttentionMap
from regard.decoding.text_model import Model
from regard.demo.demo_scores import SplitResult
from regard.demo.narrator import Narrator
from regard.evaluation.alignment import AlignmentScores
from regard.page import attention_page
from regard.petit import words
from regard.plots.attention_view import describe_selection
from regard.plots.heat_map import heat_map
from regard.plots.score_tables import plain_table

PAGE_FILE = "attention.html"


def attention_chapter(narrator: Narrator, model: Model, split: SplitResult, out: Path) -> str:
    """Show alignment error rates and a heat map, and write a page with all heads; returns the example sentence."""
    has_cross_attention = model.config.kind == "encoder-decoder"
    introduction = (
        "Through cross-attention the decoder attends to the source."
        if has_cross_attention
        else "A decoder-only model has no cross-attention: source and target are one sequence, and self-attention goes "
        "from target to source."
    )
    narrator.chapter(
        "What it attends to",
        f"{introduction} The model was never told which word is a translation of which, but Petit knows. Each English "
        "word is linked to the French word that gets most of its attention. The alignment error rate measures how far "
        "these links are from the correct ones: 0% if they are the same, 100% if none is correct.",
    )
    assert split.result.alignment is not None
    scores = split.result.alignment["writing"]
    narrator.gap()
    narrator.show(_error_rates(scores))
    sentence = _example(split, model)
    observed = model.observe(sentence)
    attention = observed.attention
    layer, head = _best(scores)
    shown = attention.maps["cross"] if has_cross_attention else _target_rows(attention.maps["decoder"])
    narrator.gap()
    selection = describe_selection(shown, layer, head)
    narrator.paragraph(f"Weights in per cent, {selection}. Each row is the token read → the token predicted.")
    narrator.gap()
    narrator.show(heat_map(shown.open(layer, head), shown.rows, shown.keys, narrator.width))
    explained = explanation_data(observed, model.require_tokenizer(), model.special.end)
    opened = {"layer": layer, "head": head}
    write_file(out / PAGE_FILE, attention_page({**attention.to_json(), **explained, "open": opened}))
    narrator.unbroken_line(f"To explore every layer and head, open in a browser: {out / PAGE_FILE}")
    return sentence


def _best(scores: AlignmentScores) -> tuple[int, int | None]:
    """The layer and head that align best; the head is None if the mean of a layer's heads is better still."""
    layer, head = scores.best
    rates = [score.error_rate for score in scores.layers]
    return (layer, head) if scores.heads[layer][head].error_rate <= min(rates) else (rates.index(min(rates)), None)


def _error_rates(scores: AlignmentScores) -> Table:
    layer, head = scores.best
    best_layer = min(range(len(scores.layers)), key=lambda i: scores.layers[i].error_rate)
    rows = (
        ("best head", f"layer {layer}, head {head}", scores.heads[layer][head]),
        ("best layer", f"layer {best_layer}, mean of its heads", scores.layers[best_layer]),
        ("diagonal", "first words to last, ignoring the text", scores.diagonal),
        ("lowest possible", "with one link for each word", scores.reachable),
    )
    table = plain_table("alignment error", ">", "")
    for name, description, score in rows:
        table.add_row(name, Text(f"{score.error_rate:.1%}", "bold"), Text(description, "dim"))
    return table


def _example(split: SplitResult, model: Model) -> str:
    """A correctly translated sentence whose word order changes, preferably with one token per word; or the first."""
    rows = zip(split.examples.sources, split.tags, split.outputs, split.examples.references[0], strict=True)
    candidates = [
        source
        for source, tags, output, reference in rows
        if output == reference and "adjective-order" in tags and 6 <= len(words(source)) <= 8
    ]
    tokenizer = model.require_tokenizer()

    def split_words(source: str) -> tuple[int, int]:
        """Number of extra tokens, fewest first; then the number of words, most first."""
        count = len(words(source))
        return len(tokenizer.encode(source)) - count, -count

    return min(candidates, key=split_words, default=split.examples.sources[0])


def _target_rows(attention_map: AttentionMap) -> AttentionMap:
    """The part of a decoder-only model's map from its target rows to its source columns."""
    separator = next(i for i, token in enumerate(attention_map.writes) if token)  # the first row that predicts a token
    return AttentionMap(
        attention_map.weights[:, :, separator:, :separator],
        attention_map.queries[separator:],
        attention_map.keys[:separator],
        attention_map.writes[separator:],
    )
