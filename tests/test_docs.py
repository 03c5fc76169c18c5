"""The documentation matches the code: every referenced line, path, example and figure.

A reference is written [path:line](../path#Lline), followed by the code of that line in backticks. When lines have
moved, `python -m tests.test_docs` updates the numbers to the nearest line that contains the code.
"""

import doctest
import math
import re
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from regard.config import PRESETS, ModelConfig, preset
from regard.labs import ablation
from regard.labs.lab import NAMES, load_lab
from regard.labs.lab_record import read_record
from regard.model.attention import MultiHeadAttention, attention, combine_heads, split_heads
from regard.model.layers import Layer
from regard.model.transformer import build
from regard.training.recipe_files import read_recipe

DOCS = Path(__file__).parent.parent / "docs"
GALLERY = DOCS.parent / "regard/labs/gallery"
PAGES = ("paper.md", "questions.md")
REFERENCE = re.compile(
    r"\[(?P<path>[\w/.-]+):(?P<line>\d+)\]\(\.\./(?P<file>[\w/.-]+)#L(?P<anchor>\d+)\) `(?P<code>[^`]+)`"
)
ANCHOR = re.compile(r"\]\([^)]*#L\d+\)")
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def lines_with(code: str, path: str) -> list[int]:
    """Return the numbers of the lines that contain the code."""
    lines = (DOCS.parent / path).read_text(encoding="utf-8").splitlines()
    return [number for number, line in enumerate(lines, 1) if code in line]


def refreshed(text: str) -> str:
    """Return the page with each reference updated to the nearest line that contains its code."""

    def moved(match: re.Match[str]) -> str:
        path, code, said = match["path"], match["code"], int(match["line"])
        found = lines_with(code, path)
        if not found:
            raise ValueError(f"{path} no longer has a line with `{code}`: refer to another")
        line = min(found, key=lambda number: abs(number - said))
        return f"[{path}:{line}](../{path}#L{line}) `{code}`"

    return REFERENCE.sub(moved, text)


@pytest.mark.parametrize("name", PAGES)
def test_referenced_lines_contain_the_quoted_code(name: str) -> None:
    found = list(REFERENCE.finditer(page(name)))
    assert len(found) > 20
    for match in found:
        assert (match["file"], match["anchor"]) == (match["path"], match["line"]), match[0]
        there = lines_with(match["code"], match["path"])
        assert int(match["line"]) in there, f"{name}: {match[0]} is at {there}: run python -m tests.test_docs"


@pytest.mark.parametrize("name", PAGES)
def test_every_reference_is_checked(name: str) -> None:
    text = page(name)
    assert len(ANCHOR.findall(text)) == len(list(REFERENCE.finditer(text)))


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_to_existing_files(name: str) -> None:
    for target in LINK.findall(page(name)):
        assert (DOCS / target).exists(), f"{name} links to {target}, which does not exist"


PATH = re.compile(r"(?<![\w/.-])(?:regard|benchmarks|tests|docs)/[\w/.-]*\w")


@pytest.mark.parametrize(
    "path", [DOCS.parent / "README.md", DOCS.parent / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]
)
def test_every_path_in_the_documentation_exists(path: Path) -> None:
    for mentioned in set(PATH.findall(path.read_text(encoding="utf-8"))):
        assert (DOCS.parent / mentioned).exists() or "NAME" in mentioned, f"{path.name} mentions {mentioned}"


def glued_paragraphs(text: str) -> list[str]:
    """The paragraphs that Markdown appends to the list item on the line before, since no blank line separates them."""
    item, continues = re.compile(r"[-*] |\d+\. "), re.compile(r"\s|[-*] |\d+\. |#|$")
    lines = re.sub(r"^(---|```).*?^\1", "", text, flags=re.M | re.S).splitlines()
    return [line for before, line in pairwise(lines) if item.match(before) and not continues.match(line)]


def glued_lists(text: str) -> list[str]:
    """The first items of lists that Python-Markdown, unlike GitHub, shows as a part of the paragraph before them."""
    item, allowed_before = re.compile(r"[-*] |\d+\. "), re.compile(r"\s|[-*] |\d+\. |#|$")
    lines = re.sub(r"^(---|```).*?^\1", "", text, flags=re.M | re.S).splitlines()
    return [line for before, line in pairwise(lines) if item.match(line) and not allowed_before.match(before)]


MARKDOWN = [DOCS.parent / "README.md", DOCS.parent / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]


@pytest.mark.parametrize("path", MARKDOWN)
def test_lists_end_with_a_blank_line(path: Path) -> None:
    assert glued_paragraphs(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", MARKDOWN)
def test_lists_begin_after_a_blank_line(path: Path) -> None:
    assert glued_lists(path.read_text(encoding="utf-8")) == []


def test_a_paragraph_that_is_glued_to_a_list_is_noticed() -> None:
    assert glued_paragraphs("- an item\n  of two lines\n\ntext\n") == []
    assert glued_paragraphs("1. an item\ntext\n") == ["text"]
    assert glued_lists("# title\n- an item\n  of two lines\n- another\n\ntext\n\n1. one\n") == []
    assert glued_lists("text\n- an item\n") == ["- an item"]


def test_every_lab_answers_a_question() -> None:
    assert set(re.findall(r"/labs/gallery/([\w-]+)\.md\)", page("questions.md"))) == set(NAMES)
    assert set(re.findall(r"/labs/gallery/([\w-]+)\.md\)", page("paper.md"))) <= set(NAMES)


def test_every_answer_refers_to_a_line_of_code() -> None:
    sections = re.split(r"^## ", page("questions.md"), flags=re.M)[1:]
    assert len(sections) > 20
    for section in sections:
        question, _, answer = section.partition("\n")
        assert question.endswith("?"), question
        assert REFERENCE.search(answer), f"{question} has no reference to a line of code"


def test_a_moved_line_is_found_and_a_missing_one_is_reported() -> None:
    path = "regard/model/attention.py"
    (line,) = lines_with("def split_heads", path)
    for said in (1, line - 1, 9_999):
        assert refreshed(f"[{path}:{said}](../{path}#L{said}) `def split_heads`").startswith(f"[{path}:{line}](../")
    assert all(refreshed(page(name)) == page(name) for name in PAGES)
    with pytest.raises(ValueError, match="no longer has a line with"):
        refreshed(f"[{path}:1](../{path}#L1) `def spilt_heads`")


def test_the_examples_run() -> None:
    told = doctest.testfile(str(DOCS / "questions.md"), module_relative=False, encoding="utf-8")
    assert told.attempted > 5
    assert told.failed == 0


def test_two_tokens_by_hand() -> None:
    """Each figure of the table follows from the queries, keys and values above it."""
    section = page("questions.md").partition("worked through by hand")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \|$", section, re.M)
    told = {
        name: [[float(x) for x in re.findall(r"[\d.]+", cell)] for cell in cells]
        for name, *cells in rows
        if cells[0].startswith("(")
    }
    q, k, v = (told[name] for name in ("query q", "key k", "value v"))
    scores = [[sum(a * b for a, b in zip(one, other, strict=True)) for other in k] for one in q]
    scaled = [[score / math.sqrt(len(q[0])) for score in row] for row in scores]
    powers = [[math.exp(score) for score in row] for row in scaled]
    weights = [[power / sum(row) for power in row] for row in powers]
    output = [[sum(w * each[i] for w, each in zip(row, v, strict=True)) for i in range(2)] for row in weights]
    computed = {
        "scores q·k₁, q·k₂": scores,
        "divided by √4": scaled,
        "e to the power of each": powers,
        "weights, each power by their sum": weights,
        "output, the weighted sum of values": output,
        "weights under a causal mask": [[1.0, 0.0], weights[1]],
        "output under a causal mask": [v[0], output[1]],
    }
    assert set(told) == {"query q", "key k", "value v", *computed}
    for name, figures in computed.items():
        assert told[name] == [[round(x, 3) for x in row] for row in figures], name
    one, other, third = (torch.tensor(each, dtype=torch.float64) for each in (q, k, v))
    free, masked = attention(one, other, third), attention(one, other, third, "causal")
    by_hand = [output, weights, computed["output under a causal mask"], computed["weights under a causal mask"]]
    for ours, theirs in zip((*free, *masked), by_hand, strict=True):
        torch.testing.assert_close(ours, torch.tensor(theirs, dtype=torch.float64))


def parameters(config: ModelConfig) -> int:
    """Count a model's parameters without allocating them."""
    with torch.device("meta"):
        return sum(each.numel() for each in build(config).parameters())


def flat(text: str) -> str:
    """Return the text on one line."""
    return " ".join(text.split())


def test_the_sizes_of_the_papers_models_are_correct() -> None:
    """The sizes of the presets, and of the paper's formulas without biases in attention."""
    text = flat(page("paper.md"))
    names = ("paper-base", "paper-big")
    base, big = (f"{parameters(preset(name)) / 1e6:.1f}" for name in names)
    assert f"biases in both: {base} and {big} million parameters" in text
    base, big = (f"{parameters(preset(name, attention_bias=False)) / 1e6:.1f}" for name in names)
    assert f"`attention_bias=False`, with {base} and {big} million" in text


def test_the_vocabulary_of_the_papers_models() -> None:
    pieces, ids = re.findall(
        r"is ([\d,]+) pieces rounded up to a multiple of 64, and `<pad>`: ([\d,]+) ids", page("paper.md")
    )[0]
    rounded = math.ceil(int(pieces.replace(",", "")) / 64) * 64
    assert rounded + 1 == int(ids.replace(",", "")) == preset("paper-base").vocab_size


def test_the_sizes_of_the_presets() -> None:
    text = flat(page("model.md"))
    told = re.findall(
        r"`([\w-]+)` \(([\d.]+) M(?: parameters)?\)", text.partition("Presets: ")[2].partition("none of them")[0]
    )
    assert dict(told) == {name: f"{parameters(preset(name)) / 1e6:.1f}" for name in PRESETS if name != "tiny"}


def test_the_shapes_of_queries_keys_and_values() -> None:
    """Each row of the table, with different widths for keys and values."""
    sizes = {"B": 2, "T": 3, "S": 5, "C": 24, "H": 4, "D_k": 6, "D_v": 7}
    section = page("questions.md").partition("what shapes do they have")[2].partition("\n## ")[0]
    told = [
        [[math.prod(sizes[letter] for letter in size.split("·")) for size in shape.split(", ")] for shape in shapes]
        for shapes in (re.findall(r"\[(.+?)\]", cell) for cell in re.findall(r"^\| .+ \| (\[.+\]) \|$", section, re.M))
    ]
    mha = MultiHeadAttention(sizes["C"], sizes["H"], sizes["D_k"], sizes["D_v"])
    x, memory = torch.randn(2, 3, 24), torch.randn(2, 5, 24)
    projected = [mha.q(x), mha.k(memory), mha.v(memory)]
    heads = [split_heads(each, 4) for each in projected]
    output, weights = attention(heads[0], heads[1], heads[2])
    combined = combine_heads(output)
    computed = [[x], projected, heads, [weights], [output], [combined], [mha.out(combined)]]
    assert told == [[list(each.shape) for each in step] for step in computed]
    torch.testing.assert_close(mha(x, memory, memory), mha.out(combined))


def test_the_share_of_the_feed_forward_network_in_a_layer() -> None:
    """With d_ff = 4·C: two thirds of an encoder layer, half of a decoder layer."""
    config = preset("paper-base", bias=False)
    for cross, share in ((False, 2 / 3), (True, 1 / 2)):
        with torch.device("meta"):
            layer = Layer(config, cross)
        matrices = {name: each.numel() for name, each in layer.named_parameters() if each.dim() == 2}
        own = sum(count for name, count in matrices.items() if name.startswith("feed_forward."))
        assert own == 8 * config.d_model**2
        assert own / sum(matrices.values()) == share


def ablation_rows() -> dict[str, list[str]]:
    return {name: cells for name, *cells in read_record(GALLERY / "ablation-full.json").tables[0].rows}


def test_the_important_choices_match_the_ablation() -> None:
    bleu = {name: float(cells[2].split(" ± ")[0]) for name, cells in ablation_rows().items()}
    cost = {name: f"{bleu['base'] - each:.1f}" for name, each in bleu.items()}
    text = flat(page("questions.md"))
    assert f"half the width costs {cost['(C) half the width']} BLEU" in text
    assert f"one layer instead of two {cost['(C) 1 layer']}, and one head instead of four {cost['(A) 1 head']}" in text
    assert f"A dropout of 0.1, which the paper needs, costs {cost['(D) dropout 0.1']}" in text


@pytest.mark.slow
def test_the_parameter_counts_of_the_ablation_are_correct() -> None:
    chosen = load_lab("ablation")
    sizes = chosen.with_sizes(chosen.full_sizes.split()).sizes
    base = [f"model.d_model={sizes.width}", f"model.d_ff={4 * sizes.width}", f"model.layers={sizes.layers}"]
    base += [f"model.heads={sizes.heads}"]
    ids = math.ceil(ablation.VOCABULARY_SIZE / 64) * 64 + 1
    told = {name: int(cells[0].replace(",", "")) for name, cells in ablation_rows().items()}
    assert told == {
        name: parameters(read_recipe("petit-fr-en", [*base, *changed]).config(ids))
        for name, changed in ablation.row_changes(sizes).items()
    }


def test_the_share_of_two_heads_matches_the_lab() -> None:
    text, record = flat(page("questions.md")), read_record(GALLERY / "two-heads.json")
    claims = "\n".join(claim.text for claim in record.claims)
    near, one, missed = re.findall(r"([\d.]+)% of the samples then come .+? manages ([\d.]+)%; in ([\d.]+)%", text)[0]
    assert f"With two heads {near}% of the samples come close to the average, with one head {one}%" in claims
    assert f"In {missed}% of the samples k_a is so short" in claims


def test_training_is_compared_with_every_peer() -> None:
    """Each ratio equals that of the rates next to it, one for each peer."""
    table = page("training.md").partition("| | peers | Regard | ÷ |\n")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[1:]]
    assert len(rows) == 4
    for what, peers, ours, ratios in rows:
        rates = [int(rate.replace(",", "")) for rate in re.findall(r"([\d,]+) \(", peers)]
        wanted = [f"{int(ours.replace(',', '')) / rate:.2f}" for rate in rates]
        assert ratios.split(", ") == wanted, what
        assert "nn.Transformer" in peers or "GPT-2" in what


if __name__ == "__main__":
    for each in PAGES:
        (DOCS / each).write_text(refreshed(page(each)), encoding="utf-8")
