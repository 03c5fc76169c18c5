"""The chapter on attention: whether it looks where words come from, what that looks like, and a page with all of it."""

from pathlib import Path

from rich.table import Table
from rich.text import Text

from regard.atomic_files import write_file
from regard.decoding.attention_maps import Map
from regard.decoding.text_model import Model
from regard.demo.demo_scores import Tried
from regard.demo.narrator import Teller
from regard.evaluation.alignment import AlignmentScores
from regard.page import attention_page
from regard.petit import words
from regard.plots.attention_view import opened
from regard.plots.heat_map import heat_map
from regard.plots.score_tables import plain_table

PAGE = "attention.html"


def look(teller: Teller, model: Model, tried: Tried, out: Path) -> str:
    """Alignment error, a heat map of what aligns best, and a page with all heads; the sentence that was looked at."""
    cross = model.config.kind == "encoder-decoder"
    where = (
        "Cross-attention is where the decoder looks at the source."
        if cross
        else "A decoder alone has no cross-attention: source and target stand in one row, and self-attention looks "
        "from the one at the other."
    )
    teller.chapter(
        "Where it looks",
        f"{where} Nobody told it which word comes from which, but Petit knows: each English word is linked to the "
        "French one that gets the most of its attention, and the alignment error rate says how far these links are "
        "from the right ones: 0 % where they are the same, 100 % where none is right.",
    )
    assert tried.result.alignment is not None
    scores = tried.result.alignment["writing"]
    teller.gap()
    teller.show(_rates(scores))
    sentence = _example(tried, model)
    attention = model.attend(sentence)
    layer, head = _best(scores)
    shown = attention.maps["cross"] if cross else _target_rows(attention.maps["decoder"])
    teller.gap()
    teller.say(f"In per cent, {opened(shown, layer, head)}. A row is the piece just read → the one it writes.")
    teller.gap()
    teller.show(heat_map(shown.open(layer, head), shown.rows, shown.keys, teller.width))
    write_file(out / PAGE, attention_page({**attention.to_json(), "open": {"layer": layer, "head": head}}))
    teller.whole(f"Every layer and head, to look around in with a browser: {out / PAGE}")
    return sentence


def _best(scores: AlignmentScores) -> tuple[int, int | None]:
    """The layer and head that align best, or the layer and None where the mean of its heads is better still."""
    layer, head = scores.best
    rates = [score.error_rate for score in scores.layers]
    return (layer, head) if scores.heads[layer][head].error_rate <= min(rates) else (rates.index(min(rates)), None)


def _rates(scores: AlignmentScores) -> Table:
    layer, head = scores.best
    by_layer = min(range(len(scores.layers)), key=lambda i: scores.layers[i].error_rate)
    rows = (
        ("best head", f"layer {layer}, head {head}", scores.heads[layer][head]),
        ("best layer", f"layer {by_layer}, the mean of its heads", scores.layers[by_layer]),
        ("diagonal", "first words to last, whatever they are", scores.diagonal),
        ("at best", "with one link for each word", scores.reachable),
    )
    table = plain_table("alignment error", ">", "")
    for name, what, score in rows:
        table.add_row(name, Text(f"{score.error_rate:.1%}", "bold"), Text(what, "dim"))
    return table


def _example(tried: Tried, model: Model) -> str:
    """A sentence that was translated rightly, whose words change places and are whole pieces; or else the first."""
    rows = zip(tried.examples.sources, tried.tags, tried.outputs, tried.examples.beside[0], strict=True)
    fit = [
        source
        for source, tags, output, reference in rows
        if output == reference and "adjective-order" in tags and 6 <= len(words(source)) <= 8
    ]
    tokenizer = model.require_tokenizer()

    def parted(source: str) -> tuple[int, int]:
        """How many pieces are parts of words; of those with few the longest."""
        count = len(words(source))
        return len(tokenizer.encode(source)) - count, -count

    return min(fit, key=parted, default=tried.examples.sources[0])


def _target_rows(each: Map) -> Map:
    """Of a decoder's map, what its target sees of its source."""
    source = next(i for i, piece in enumerate(each.writes) if piece)  # the separator's place: there it begins to write
    return Map(each.weights[:, :, source:, :source], each.queries[source:], each.keys[:source], each.writes[source:])
