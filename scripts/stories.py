"""The training data of the bundled model writer: short stories.

    python scripts/stories.py write FOLDER --model SmolLM2-135M-Instruct.Q4_1.gguf --device cuda --seconds 300
    python scripts/stories.py tatoeba DATA FOLDER      # English sentences of Tatoeba
    python scripts/stories.py select FOLDER            # drop odd and repeated stories, hold some out
    regard train writer
    python scripts/stories.py samples runs/writer FOLDER

A small model tells no coherent story by itself, but it continues one well for a sentence or two. So every story has a
plot (scripts/story_plots.toml) that gives its beginning, its turn and its end, and the model writes what happens
between. Hero, friend, object and place vary: no two prompts are the same. Stories are written in shards; each depends
on its number only, and `write` continues after the shards that exist.
"""

import argparse
import itertools
import json
import lzma
import random
import re
import time
import tomllib
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path
from typing import Any

import regard
from regard.atomic_files import write_file
from regard.decoding.generate import generate
from regard.decoding.options import Decoding
from regard.decoding.text_model import Model

PLOTS = tomllib.loads((Path(__file__).parent / "story_plots.toml").read_text(encoding="utf-8"))
NAMES = {name for names in PLOTS["names"].values() for name in names}
SYSTEM = "You are a children's author. You write short, simple stories that make sense."
DECODING = Decoding(temperature=0.4, min_p=0.15, repetition_penalty=1.1, min_tokens=8, max_tokens=32)
MAX_PROMPT_TOKENS = 192
"""Longest prompt. Every batch has one of this length, so that one CUDA graph serves all batches."""
MAX_ATTEMPTS = 3
"""Number of times that a story may be continued badly before it is given up."""
MAX_SENTENCE_WORDS = 20
SHARD_BATCHES = 8
"""Batches of new stories in a shard. More of them waste less in its last batches, which are not full."""
HELD_OUT_SHARE = 50
"""One in this many pairs of hero and object is only in the validation text."""
MIN_STORIES_PER_WORD = 3
"""Stories with a word that fewer stories contain, or that Tatoeba does not know, are left out."""
SENTENCE_END = re.compile(r"[.!?][\"']?(?=\s|$)")
WORD = re.compile(r"[A-Za-z]+(?:'[a-z]+)?")
PUNCTUATION = str.maketrans({"“": '"', "”": '"', "‘": "'", "’": "'", "—": ", ", "–": ", ", "…": "..."})
UNWANTED = frozenset(PLOTS["unwanted"])
"""Words that no story may contain."""
WORD_LISTS = {
    "day": "days",
    "place": "places",
    "spot": "spots",
    "home": "homes",
    "thing": "things",
    "food": "foods",
    "hobby": "hobbies",
    "skill": "skills",
}
"""The word list of each slot, in place of which a plot may name another one."""
CASTS = {"all": (0.6, 0.2, 0.2), "young": (0.7, 0.0, 0.3), "children": (0.0, 0.0, 1.0), "adults": (0.0, 1.0, 0.0)}
"""Shares of animals, adults and children among the heroes and friends of a plot."""
PRONOUNS = {"he": "he", "him": "he", "his": "he", "himself": "he", "she": "she", "her": "she", "herself": "she"}


@dataclass(frozen=True)
class Story:
    """A story and what is known about it."""

    plans: tuple[str, ...]
    """What the prompt says about the story, for each part that the model writes: no more than it needs to know."""
    hero: str
    friend: str
    pronouns: tuple[str, str]
    """Of the hero and the friend."""
    pair: str
    """Hero and object, by which stories are held out."""
    avoided: tuple[str, ...]
    """Words that would anticipate the turn."""
    beats: tuple[str, ...]
    """The hero, the beginning, the turn and the end."""
    written: tuple[str, ...] = ()
    """What the model has written after the first beats."""
    attempts: int = 0
    """Number of times that the model has continued it badly."""

    @property
    def text(self) -> str:
        """All beats that have been reached, with what the model wrote after them."""
        parts = [part for pair in zip(self.beats, self.written, strict=False) for part in pair]
        return " ".join([*parts, self.beats[len(self.written)]])


# Plots to prompts


def make_story(rng: random.Random) -> Story:
    """The plan and the beats of a random story."""
    plot = rng.choice(PLOTS["plots"])
    hero_pronoun, friend_pronoun = rng.choice(("he", "she")), rng.choice(("he", "she"))
    hero, friend = rng.choice(PLOTS["names"][hero_pronoun]), rng.choice(PLOTS["names"][friend_pronoun])
    while friend == hero:
        friend = rng.choice(PLOTS["names"][friend_pronoun])
    cast = plot.get("cast", "all")
    kind, helper = _character(hero_pronoun, cast, rng), _character(friend_pronoun, plot.get("friend_cast", cast), rng)
    templates = [rng.choice(choices) for choices in (PLOTS["intros"], plot["begin"], plot["turn"], plot["end"])]
    words = {name: PLOTS[plot.get(name, name)] for name in WORD_LISTS.values()}
    words["days"] = [day for day in words["days"] if not templates[0].startswith(day)]  # "One day" is enough once
    slots = {slot: rng.choice(words[name]) for slot, name in WORD_LISTS.items()}
    slots |= {"name": hero, "friend": friend, "helper": helper.split(" ", 1)[1], "noun": kind.split(" ")[-1]}
    slots |= {"a_hero": _with_article(kind), "a_thing": _with_article(slots["thing"])}
    slots |= {"A_hero": _capital(slots["a_hero"]), "lday": slots["day"][0].lower() + slots["day"][1:]}
    slots |= {"place_cap": _capital(slots["place"]), "spot_cap": _capital(slots["spot"])}
    slots |= _pronoun_slots("", hero_pronoun) | _pronoun_slots("f", friend_pronoun)
    plan = plot["plan"].format(**slots)
    return Story(
        plans=(f"It is about {slots['a_hero']} named {hero}.", plan.split(". ")[0].rstrip(".") + ".", plan),
        hero=hero,
        friend=friend,
        pronouns=(hero_pronoun, friend_pronoun),
        pair=f"{kind}, {slots['thing']}",
        avoided=tuple(plot.get("avoid", ())),
        beats=tuple(template.format(**slots) for template in templates),
    )


def _character(pronoun: str, cast: str, rng: random.Random) -> str:
    """An adjective and a noun, such as "young queen"; the noun of a child may have an adjective itself."""
    heroes = PLOTS["heroes"]
    (kind,) = rng.choices(("animals", "people", "children"), CASTS[cast])
    if kind == "animals":
        return f"{rng.choice(heroes['animal_adjectives'])} {rng.choice(heroes['animals'])}"
    if kind == "people":
        return f"{rng.choice(heroes['people_adjectives'])} {rng.choice(heroes['people'])}"
    return f"{rng.choice(heroes['child_adjectives'])} {rng.choice(heroes['girls' if pronoun == 'she' else 'boys'])}"


def _with_article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _pronoun_slots(prefix: str, pronoun: str) -> dict[str, str]:
    forms = ("he", "him", "his", "himself") if pronoun == "he" else ("she", "her", "her", "herself")
    named = {f"{prefix}{slot}": form for slot, form in zip(("he", "him", "his", "himself"), forms, strict=True)}
    return named | {_capital(slot): _capital(form) for slot, form in named.items()}


def prompt_ids(model: Model, story: Story) -> list[int]:
    """The ids of SmolLM2's chat template, with the story so far as the beginning of the answer."""
    tokenizer = model.require_tokenizer()
    start, end = (tokenizer.engine.token_to_id(token) for token in ("<|im_start|>", "<|im_end|>"))  # type: ignore[attr-defined]
    request = f"Write a short story for children. {story.plans[len(story.written)]}"
    ids = []
    for role, text in (("system", SYSTEM), ("user", request)):
        ids += [start, *tokenizer.encode(f"{role}\n{text}"), end, *tokenizer.encode("\n")]
    return [*ids, start, *tokenizer.encode(f"assistant\n{story.text}")]


# Writing


def write_shard(model: Model, number: int, batch: int, deadline: float) -> list[Story]:
    """The stories of a shard that are finished before the deadline, without the last few, which would fill no batch."""
    rng = random.Random(number)
    waiting = [make_story(rng) for _ in range(SHARD_BATCHES * batch)]
    finished: list[Story] = []
    seeds = itertools.count(1_000 * number)
    while len(waiting) > batch // 4 and time.monotonic() <= deadline:
        chosen, waiting = waiting[1 - batch :], waiting[: 1 - batch]
        for story in _continued(model, chosen, batch, next(seeds)):
            (finished if len(story.written) == len(story.plans) else waiting).append(story)
    return finished


def _continued(model: Model, stories: Sequence[Story], batch: int, seed: int) -> Iterator[Story]:
    """These stories with their next part or, where that is not good, for another attempt."""
    prompts = [prompt_ids(model, story) for story in stories]
    fits = [len(ids) <= MAX_PROMPT_TOKENS for ids in prompts]
    stories, prompts = list(compress(stories, fits)), list(compress(prompts, fits))
    if not prompts:
        return
    filler = [*itertools.islice(itertools.cycle(prompts[0]), MAX_PROMPT_TOKENS)]
    inputs = [*prompts, *[filler] * (batch - len(prompts))]
    hypotheses = generate(model.network, model.special, inputs, replace(DECODING, seed=seed))  # type: ignore[arg-type]
    for story, (best,) in zip(stories, hypotheses, strict=False):
        text = model.require_tokenizer().decode(best.ids)
        # Two sentences or one, depending on the story; one if the second is not good.
        choices = (first_sentences(text, count) for count in range(1 + zlib.crc32(story.text.encode()) % 2, 0, -1))
        written = next((sentences for sentences in choices if is_sound(sentences, story)), None)
        if written is not None:
            yield replace(story, written=(*story.written, written))
        elif story.attempts + 1 < MAX_ATTEMPTS:
            yield replace(story, attempts=story.attempts + 1)


def first_sentences(text: str, count: int) -> str:
    """Up to `count` complete sentences at the beginning of a text, in plain characters; empty if there is none."""
    text = " ".join(text.translate(PUNCTUATION).split())
    ends = [match.end() for match in SENTENCE_END.finditer(text)]
    for end in reversed(ends[:count]):
        if text[:end].count('"') % 2 == 0:
            return text[:end]
    return ""


def is_sound(sentences: str, story: Story) -> bool:
    """Whether these sentences are simple English, continue the story and do not repeat it."""
    words = WORD.findall(sentences)
    lower = [word.lower() for word in words]
    known = story.text
    if not sentences.isascii() or len(words) < 4 or re.search(r"[^A-Za-z0-9 .,;!?'\"-]", sentences):
        return False
    if any(len(WORD.findall(sentence)) > MAX_SENTENCE_WORDS for sentence in SENTENCE_END.split(sentences)):
        return False
    if UNWANTED.intersection(lower) or any(len(word) > 13 for word in words) or re.search(r"\d", sentences):
        return False
    if not story.written and "one day" in sentences.lower():  # the next beat begins so
        return False
    is_before_turn = len(story.written) < 2
    if is_before_turn and any(word in lower for word in story.avoided):
        return False
    names = {story.hero} | ({story.friend} if story.friend in known else set())
    if not _names_of(sentences) <= names:
        return False
    pronouns = {story.pronouns[0]} | ({story.pronouns[1]} if story.friend in known else set())
    if not {PRONOUNS[word] for word in lower if word in PRONOUNS} <= pronouns:
        return False
    return not _repeats(lower, [word.lower() for word in WORD.findall(known)])


def _names_of(sentences: str) -> set[str]:
    """Names in a text: words with a capital letter that does not begin a sentence, and known names anywhere."""
    found = set()
    for match in WORD.finditer(sentences):
        word = match[0].removesuffix("'s")
        before = sentences[: match.start()].rstrip()
        begins = not before or before[-1] in ".!?\"'"
        if word in NAMES or (word[0].isupper() and not begins and word.split("'")[0] != "I"):
            found.add(word)
    return found


def _repeats(words: list[str], known: list[str]) -> bool:
    """Whether words occur too often, or a run of five words twice."""
    counts = Counter(word for word in words if len(word) > 3)
    if counts and max(counts.values()) > 3:
        return True
    runs = Counter(zip(*([*known, *words][i:] for i in range(5)), strict=False))
    return max(runs.values(), default=0) > 1


def write(
    folder: Path,
    model_path: str,
    device: str,
    seconds: float,
    batch: int,
    process: int,
    processes: int,
    compiled: bool = False,
) -> None:
    """Write shards until the time is over: those whose number has the remainder `process`."""
    deadline = time.monotonic() + seconds
    shards = folder / "shards"
    shards.mkdir(parents=True, exist_ok=True)
    model = regard.load(model_path, device).quick(compiled=compiled)
    number, started, count = process, time.monotonic(), 0
    while time.monotonic() < deadline:
        path = shards / f"{number:06}.jsonl"
        number += processes
        if path.exists():
            continue
        stories = write_shard(model, int(path.stem), batch, deadline)
        if not stories:  # the time is over
            break
        lines = [
            json.dumps({"pair": s.pair, "names": [s.hero, s.friend], "written": s.written, "text": s.text})
            for s in stories
        ]
        write_file(path, "".join(f"{line}\n" for line in lines))
        count += len(stories)
        rate = count / (time.monotonic() - started)
        print(f"{path}: {len(stories):,} of {SHARD_BATCHES * batch:,} stories; {rate:,.1f} per second", flush=True)


# Selecting


def select(folder: Path, max_seen: float = 0.75) -> None:
    """Write stories.txt.xz and held-out.txt: one story per line, without rare words and without near-duplicates."""
    shards = sorted((folder / "shards").glob("*.jsonl"))
    stories = [json.loads(line) for path in shards for line in path.read_text(encoding="utf-8").splitlines()]
    counts = Counter(word for story in stories for word in set(_plain_words(story)))
    with lzma.open(folder / "sentences.txt.xz", "rt", encoding="utf-8") as file:
        everyday = {word.lower() for line in file for word in WORD.findall(line)}
    everyday |= {"hero", "friend"} | {word.lower() for word in WORD.findall(json.dumps(PLOTS))}
    vocabulary = {word for word, count in counts.items() if count >= MIN_STORIES_PER_WORD and word in everyday}
    usual = [story for story in stories if vocabulary.issuperset(_plain_words(story))]
    random.Random(0).shuffle(usual)
    train: list[str] = []
    held_out: list[str] = []
    seen = bytearray(2**26)  # one bit for each hash of a run of words
    for story in usual:
        words = _plain_words(story)
        runs = [zlib.crc32(" ".join(words[i : i + 6]).encode()) >> 3 for i in range(len(words) - 5)]
        known = sum(seen[run >> 3] >> (run & 7) & 1 for run in runs)
        if known > max_seen * len(runs):
            continue
        for run in runs:
            seen[run >> 3] |= 1 << (run & 7)
        is_held_out = zlib.crc32(story["pair"].encode()) % HELD_OUT_SHARE == 0
        (held_out if is_held_out else train).append(story["text"])
    different = len(train) + len(held_out)
    print(f"{len(stories):,} stories, {len(usual):,} of everyday words, {different:,} different", flush=True)
    write_lines(folder / "stories.txt.xz", train)
    write_lines(folder / "held-out.txt", held_out)


def _plain_words(story: dict[str, Any]) -> list[str]:
    """The words that the model wrote, with the same name for all heroes and for all friends."""
    text = " ".join(story["written"])
    for name, stand_in in zip(story["names"], ("hero", "friend"), strict=True):
        text = re.sub(rf"\b{name}\b", stand_in, text)
    return [word.lower() for word in WORD.findall(text)]


def select_tatoeba(data: Path, folder: Path) -> None:
    """Write sentences.txt.xz: the different English sentences of Tatoeba's training pairs, in a random order."""
    with lzma.open(data / "tatoeba/train.en-fr.tsv.xz", "rt", encoding="utf-8") as file:
        sentences = {line.split("\t")[0].strip() for line in file}
    chosen = sorted(s for s in sentences if s.isascii() and 4 <= len(s.split()) <= 25)
    random.Random(0).shuffle(chosen)
    write_lines(folder / "sentences.txt.xz", chosen)


def write_lines(path: Path, lines: Sequence[str]) -> None:
    """Write a text file, compressed if its name ends in .xz."""
    content = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(lzma.compress(content, preset=2) if path.suffix == ".xz" else content)
    print(f"{path}: {len(lines):,} lines, {len(content):,} characters")


# Evaluating


def samples(model_path: str, folder: Path, count: int = 20) -> None:
    """Write samples.md: the model's continuations of the same prompts each time, none left out."""
    model = regard.load(model_path)
    prompts = ["Once upon a time", "One day, a little", "There was once", "In a small village"]
    options = Decoding(temperature=0.8, top_p=0.95, max_tokens=300)
    texts = [model.generate(prompts[i % len(prompts)], decoding=replace(options, seed=i)) for i in range(count)]
    ended = "".join(f"{i + 1}. {text}\n" for i, text in enumerate(texts))
    (folder / "samples.md").write_text(ended, encoding="utf-8")
    print(ended)


def main() -> None:
    """Parse the command line and execute one step."""
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = parser.add_subparsers(dest="step", required=True)
    step = steps.add_parser("write", help="write stories with a language model")
    step.add_argument("folder", type=Path)
    step.add_argument("--model", required=True, help="SmolLM2-135M-Instruct")
    step.add_argument("--device", default="cpu")
    step.add_argument("--seconds", type=float, default=300, help="time limit, loading included")
    step.add_argument("--batch", type=int, default=448, help="stories at a time")
    step.add_argument("--process", type=int, default=0, help="number of this process")
    step.add_argument("--processes", type=int, default=1, help="number of processes that share the work")
    step.add_argument("--compiled", action="store_true", help="compile first, which takes a minute on a GPU")
    step = steps.add_parser("select", help="drop bad and repeated stories, and hold some out")
    step.add_argument("folder", type=Path)
    step = steps.add_parser("tatoeba", help="extract Tatoeba's English sentences")
    step.add_argument("data", type=Path)
    step.add_argument("folder", type=Path)
    step = steps.add_parser("samples", help="write unselected samples of a trained model")
    step.add_argument("model")
    step.add_argument("folder", type=Path)
    chosen = parser.parse_args()
    if chosen.step == "write":
        parts = (chosen.seconds, chosen.batch, chosen.process, chosen.processes, chosen.compiled)
        write(chosen.folder, chosen.model, chosen.device, *parts)
    elif chosen.step == "select":
        select(chosen.folder)
    elif chosen.step == "tatoeba":
        select_tatoeba(chosen.data, chosen.folder)
    else:
        samples(chosen.model, chosen.folder)


if __name__ == "__main__":
    main()
