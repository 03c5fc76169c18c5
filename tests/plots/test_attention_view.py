"""Attention in the terminal, as a picture, and through `regard attend`."""

import json
import re
from dataclasses import replace
from io import BytesIO, StringIO
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from rich.console import Console
from typer.testing import CliRunner, Result

from regard.cli import app
from regard.decoding.attention_maps import Attention, AttentionKind, AttentionMap
from regard.decoding.token_labels import readable
from regard.page import attention_page
from regard.plots.attention_view import KIND_TITLES, show_attention
from regard.plots.figures import attention_figure, attention_png
from regard.plots.heat_map import colour, heat_map
from tests.support.attention_examples import HOSTILE, language_model, made, made_lens, stored

# In the terminal.


def printed(looked: Attention, width: int = 80, **options: Any) -> str:
    out = StringIO()
    show_attention(Console(file=out, width=width, highlight=False), looked, **options)
    return out.getvalue()


def test_the_terminal_shows_each_kind_and_the_numbers() -> None:
    looked = made(["le", "chat", "dort"])
    text = printed(looked, layer=1, head=2)
    weights = looked.weights["cross"][1, 2]
    assert "Cross-attention: each step of the target attends to the source, in per cent" in text
    assert "layer 1 (of 0–1), head 2 (of 0–2)" in text
    row = re.findall(r"chat → dort +(\d+) +(\d+) +(\d+)", text)[-1]
    assert [int(number) for number in row] == [round(100 * float(weight)) for weight in weights[1]]
    assert text.count("chat → dort") == 2
    assert "\x1b[" not in text  # plain where there is no terminal


def test_the_terminal_shows_the_logit_lens() -> None:
    words = ["le", "chat", "dort"]
    text = printed(replace(made(words), lens=made_lens(words))).partition("Logit lens")[2]
    assert text.splitlines()[1].split() == ["embedding", "layer", "0", "layer", "1"]
    assert re.search(r"chat → dort +chat +50 +dort +50 +le +50", text)
    long = printed(replace(made(words), lens=made_lens([*words, "anticonstitutionnellement"], layers=30)), width=60)
    assert max(map(len, long.splitlines())) <= 60
    heads = re.findall(r"embedding|layer \d+", long.partition("Logit lens")[2].partition("To see more")[0])
    assert heads == ["embedding", *(f"layer {i}" for i in range(30))]
    assert re.search("anticonsti… +50", long)


@pytest.mark.slow
@pytest.mark.parametrize("width", [30, 80, 200])
def test_long_sentences_stay_within_the_width_and_lose_nothing(width: int) -> None:
    looked = made([f"mot{i}" for i in range(40)])
    text = printed(looked, width)
    assert max(map(len, text.splitlines())) <= width
    heads = [line for line in text.splitlines()[3:] if re.fullmatch(r"( +mot\d+)+ *", line)]
    assert [name for line in heads for name in line.split()] == [f"mot{i}" for i in range(40)] * 3


def test_columns_are_cut_before_they_are_wrapped() -> None:
    out = StringIO()
    Console(file=out, width=40).print(heat_map(torch.eye(6), ["a"] * 6, ["anticonstitutionnel"] * 6, 40))
    assert "…" in out.getvalue().splitlines()[0]
    assert len([line for line in out.getvalue().splitlines() if "…" in line]) == 1


@pytest.mark.slow
def test_hostile_tokens_are_harmless_in_the_terminal() -> None:
    looked = language_model().attend("".join(HOSTILE))
    text = printed(looked, 200)
    assert "\x1b" not in text.replace(looked.source, "")
    assert "[red]" in printed(made([readable(token) for token in HOSTILE]), 300)


@pytest.mark.parametrize("options", [{"color_system": "standard"}, {"color_system": "truecolor", "no_color": True}])
def test_few_colours_fall_back_to_shaded_blocks(options: dict[str, Any]) -> None:
    weights = torch.tensor([[0.0, 0.02, 0.1, 0.34, 0.71, 1.0000001]])
    out = StringIO()
    Console(file=out, force_terminal=True, width=80, **options).print(heat_map(weights, ["q"], list("abcdef")))
    row = out.getvalue().splitlines()[1]
    assert row.endswith("       2  10░ 34▒ 71▓100█")
    assert not re.search(r"\x1b\[[\d;]*[34]\d", row)  # no colour


def test_the_terminal_ends_with_a_hint_on_one_line() -> None:
    looked = made(["le", "chat"])
    assert printed(looked).splitlines()[-1] == (
        "To see more: --kind cross, --layer 0, --head 0, or --html attention.html"
    )
    assert "--kind" not in printed(looked.only("cross"))


def test_repr_is_one_line() -> None:
    looked = made(["le", "chat"]).only("cross")
    assert repr(looked) == f"Attention({looked.model!r}, cross [2, 3, 2, 2])"


def test_colours_grow_lighter_with_the_weight() -> None:
    lightness = [
        sum(part * c for part, c in zip((0.2126, 0.7152, 0.0722), colour(i / 50), strict=True)) for i in range(51)
    ]
    assert all(low < high for low, high in pairwise(lightness))


# As a picture.


@pytest.mark.slow
def test_a_picture_is_a_png_with_every_head(tmp_path: Path) -> None:
    from PIL import Image

    looked = made([readable(token) for token in HOSTILE])
    content = attention_png(looked)
    image = Image.open(BytesIO(content))
    assert image.format == "PNG"
    assert min(image.size) > 600
    figure = attention_figure(looked)
    assert len(figure.axes) == 3 * (2 * 3 + 1) + 1  # every head, one of each kind large, the scale
    shown = {text.get_text() for axes in figure.axes for text in axes.texts}
    assert any(token.startswith("</script><img") for token in shown)


@pytest.mark.slow
@pytest.mark.parametrize("tokens", [2, 12, 40])
def test_no_label_leaves_the_picture_or_overlaps_another(tokens: int) -> None:
    looked = made([f"{'mot' * (i % 4 + 1)}{i}" for i in range(tokens)])
    figure = attention_figure(replace(looked, model="model-" * 40, source="mot " * 300), layer=0, head=1)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    texts = [*figure.texts, *(text for axes in figure.axes for text in axes.texts)]
    boxes = {text: text.get_window_extent(renderer) for text in texts if text.get_text()}
    for text, box in boxes.items():
        whole = figure.bbox
        inside = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= whole.x1 and box.y1 <= whole.y1
        assert inside, text.get_text()
    straight = [(text, box) for text, box in boxes.items() if not text.get_rotation()]
    for (one, a), (other, b) in combinations(straight, 2):
        apart = a.x1 <= b.x0 + 1 or b.x1 <= a.x0 + 1 or a.y1 <= b.y0 + 1 or b.y1 <= a.y0 + 1
        assert apart, (one.get_text(), other.get_text())


@pytest.mark.slow
@pytest.mark.parametrize(("source", "target"), [(3, 3), (35, 20), (4, 30)])
def test_titles_are_next_to_their_maps_which_are_aligned(source: int, target: int) -> None:
    sides: dict[AttentionKind, tuple[int, int]] = {
        "encoder": (source, source),
        "decoder": (target, target),
        "cross": (target, source),
    }
    maps = {
        kind: AttentionMap(
            torch.rand(3, 4, t, s), tuple(f"t{i}" for i in range(t)), tuple(f"s{i}" for i in range(s)), writes
        )
        for kind, (t, s) in sides.items()
        for writes in [() if kind == "encoder" else ("written",) * t]
    }
    figure = attention_figure(Attention("m", "s", "t", maps))
    height = figure.get_size_inches()[1]
    titles = [text.get_position()[1] * height for text in figure.texts if text.get_text() in KIND_TITLES.values()]
    boxes = [axes.get_position() for axes in figure.axes]
    large = [box for axes, box in zip(figure.axes, boxes, strict=True) if axes.texts]
    assert len({round(box.x0, 4) for box in large}) == 1
    for place, tile in ((titles[1], boxes[13]), (titles[2], boxes[26])):  # with the first of its heads
        above = min(box.y0 for box in boxes if box.y0 * height > place) * height - place
        assert above > 0.4
        assert place - tile.y1 * height < 0.65
    for i, box in enumerate(large):
        hole = min(head.y0 for head in boxes[13 * i : 13 * i + 12]) - box.y0
        assert hole * height < 0.1  # inches that the large map goes deeper than the heads


def test_pictures_that_would_be_unreadable_are_refused() -> None:
    many = AttentionMap(torch.zeros(1, 1, 2, 500), ("a", "b"), ("c",) * 500)
    with pytest.raises(ValueError, match="2 × 500 tokens are too many"):
        attention_png(Attention("m", "s", None, {"encoder": many}))
    told = {"model": "m", "source": "s", "maps": [{"weights": [[[[0.1] * 3000] * 2000]]}]}
    with pytest.raises(ValueError, match="6,000,000 weights; the maximum for a page is"):
        attention_page(told)


# The command.


def command(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["attend", *arguments])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("models") / "tiny"
    stored().save(path)
    return str(path)


@pytest.mark.slow
@pytest.mark.usefixtures("without_type_checks")
def test_the_command_shows_or_writes(folder: str, tmp_path: Path) -> None:
    shown = command("le chat", "--model", folder, "--target", "the cat", "--kind", "cross", "--layer", "0")
    assert shown.exit_code == 0, shown.exception
    assert "tiny" in shown.stdout
    assert "<pad> → the" in shown.stdout
    assert "encoder" not in shown.stdout
    assert "Logit lens" not in shown.stdout
    assert "Logit lens" in command("le chat", "--model", folder, "--target", "the cat", "--lens").stdout
    files = {name: tmp_path / f"look.{name}" for name in ("png", "html", "json")}
    files["png"].write_text("old")
    told = [argument for name, path in files.items() for argument in (f"--{name}", str(path))]
    wrote = command("le chat", "--model", folder, "--target", "the cat", "--layer", "0", "--head", "3", "--lens", *told)
    assert wrote.exit_code == 0, wrote.exception
    assert [line.split()[0] for line in wrote.stdout.splitlines()] == [str(path) for path in files.values()]
    assert files["png"].read_bytes().startswith(b"\x89PNG")  # what was there is written anew
    assert json.loads(files["json"].read_text())["model"] == "tiny"
    lens = json.loads(files["json"].read_text())["lens"]
    assert lens["states"] == ["embedding", "layer 0", "layer 1"]
    assert len(lens["top"][0][0]) == 5
    assert '"open":{"layer":0,"head":3}' in files["html"].read_text()


@pytest.mark.slow
@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--layer", "7"), "encoder: no layer 7: this attention has layers 0 to 1"),
        (("--head", "4"), "no head 4: this attention has heads 0 to 3"),
        (("--kind", "self"), "no 'self' attention"),
        (("--png", "/nowhere/look.png"), "/nowhere/look.png cannot be written: No such file or directory"),
        (("--html", "."), "cannot be written: Is a directory"),
    ],
)
def test_the_command_says_what_is_wrong(folder: str, arguments: tuple[str, ...], message: str) -> None:
    done = command("le chat", "--model", folder, "--target", "the cat", *arguments)
    assert isinstance(done.exception, ValueError)
    assert message in str(done.exception)


@pytest.mark.usefixtures("without_type_checks")
def test_the_help_has_an_example() -> None:
    assert "regard attend" in command("--help").stdout
