"""The training data of the bundled models fr-en and en-fr, in steps.

    python scripts/fr_en_corpus.py filter DATA FOLDER                   # clean the corpora in DATA
    regard train teacher-fr-en                                          # a large model, for a GPU
    python scripts/fr_en_corpus.py distil FOLDER --teacher runs/teacher-fr-en --device cuda
    python scripts/fr_en_corpus.py vary FOLDER                          # add what people type and the corpora lack
    regard train fr-en-small
    python scripts/fr_en_corpus.py distil FOLDER --teacher runs/fr-en-small     # in an hour on a CPU
    python scripts/fr_en_corpus.py vary FOLDER
    python scripts/fr_en_corpus.py retype FOLDER --model runs/fr-en-small       # type its sources without accents
    regard train fr-en

A small model learns more from a model's translations than from those of humans, which are freer and noisier
(sequence-level distillation, Kim and Rush, 2016). fr-en learns from those of fr-en-small, half its size, which has
learned from a teacher; it also learns to translate hastily typed sentences as they are translated when they are typed
with care. Read the other way round, translations are back-translations: French that people wrote, with English sources
that a model wrote (Sennrich et al., 2016). en-fr was trained on those of the teacher, and then on hastily typed
sentences (`retype FOLDER --model runs/en-fr` and `regard train en-fr-retyped`). DATA contains the corpora that the
models' cards name.
"""

import argparse
import lzma
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TextIO

import regard
from scripts.typed_text import Pair, hasty, with_numbers, without_final_marks

NUMBER = re.compile(r"\d+")
EVERYDAY = ("tatoeba", "tatoeba-extra")
"""Corpora of everyday sentences."""
DISTILLED = (*EVERYDAY, "business", "books", "europarl-a", "europarl-b")
"""Corpora that the teacher translates, the most useful first."""
RETYPED = {"tatoeba": 130_000, "tatoeba-extra": 40_000, "europarl-a": 30_000, "books": 20_000, "business": 15_000}
"""Corpora of which hastily typed copies are made, and how many sentences."""
PHRASES = Path(__file__).with_name("phrases.fr-en.tsv")
"""Phrases, idioms and modern words in sentences, written for Regard: books and parliaments lack them."""
NUMBERS = 2_000
"""Sentences with random prices, times and telephone numbers."""
REPEATED = 10
"""How often these two are repeated, each time typed differently."""
EMOJI = "😀😂🙂😊😍😢😭😡👍👎🙏❤🎉🔥🤔😅😴🌞🐶🐱🍕☕🚗✈🏠📚💻🎂🌹🌍"
ADDRESSES = (
    "https://{0}.{3}/{1}",
    "https://www.{0}-{1}.{3}/{2}",
    "http://www.{0}.{3}",
    "http://{0}.{3}/{1}.html",
    "www.{0}{1}.{3}",
    "www.{0}-{1}.{3}",
    "{0}@{1}.{3}",
    "{0}.{1}@{2}.{3}",
    "https://{0}.{3}/{1}/{2}?id=7",
)
"""Forms of an address, with three words and a top-level domain."""
WITH_ADDRESS = (
    ("Voir {} pour plus d'informations.", "See {} for more information."),
    ("Vous trouverez tout sur {}.", "You will find everything at {}."),
    ("La page {} ne s'ouvre pas.", "The page {} does not open."),
    ("Répondez à {}, s'il vous plaît.", "Please reply to {}."),
    ("J'ai lu cela sur {} hier soir.", "I read that on {} last night."),
    ("{} est mon site préféré.", "{} is my favourite website."),
)
"""Sentences around an address, in French and English."""
TOP_LEVEL_DOMAINS = ("com", "fr", "org", "net", "io", "eu", "be", "ca")


def open_text(path: Path) -> TextIO:
    """Open a text file, compressed or not."""
    return lzma.open(path, "rt", encoding="utf-8") if path.suffix == ".xz" else path.open(encoding="utf-8")


def read_pairs(path: Path, columns: tuple[int, int] = (0, 1)) -> Iterator[Pair]:
    """The pairs of a tab-separated file."""
    with open_text(path) as lines:
        for line in lines:
            cells = line.rstrip("\n").split("\t")
            if len(cells) > max(columns):
                yield cells[columns[0]].strip(), cells[columns[1]].strip()


def read_aligned(french: Path, english: Path) -> Iterator[Pair]:
    """The pairs of two aligned files."""
    with open_text(french) as sources, open_text(english) as targets:
        for source, target in zip(sources, targets, strict=True):
            yield source.strip().replace("\t", " "), target.strip().replace("\t", " ")


def write_pairs(path: Path, pairs: Iterable[Pair]) -> None:
    """Write a compressed, tab-separated file."""
    count = 0
    with lzma.open(path, "wt", encoding="utf-8", preset=3) as file:
        for french, english in pairs:
            file.write(f"{french}\t{english}\n")
            count += 1
    print(f"{path}: {count:,} pairs")


def is_plausible(pair: Pair, ratios: tuple[float, float], max_words: int) -> bool:
    """Whether a pair may be a translation, judged by the lengths and the numbers of its sides."""
    french, english = pair
    words, english_words = len(french.split()), len(english.split())
    if not 0 < words <= max_words or not 0 < english_words <= max_words or (french == english and words > 3):
        return False
    if not ratios[0] <= (len(french) + 4) / (len(english) + 4) <= ratios[1]:
        return False
    numbers, english_numbers = set(NUMBER.findall(french)), set(NUMBER.findall(english))
    if not numbers or not english_numbers:  # a single number may be written as a word
        return len(numbers | english_numbers) <= 1
    return bool(numbers & english_numbers)


def filter_corpora(data: Path, folder: Path) -> None:
    """Write the plausible pairs of each corpus, without duplicates and without sentences of the test sets."""
    folder.mkdir(parents=True, exist_ok=True)
    europarl_dev = list(read_aligned(data / "europarl/dev.fr-en.fr", data / "europarl/dev.fr-en.en"))
    tatoeba_dev = list(read_pairs(data / "tatoeba/dev.en-fr.tsv", (1, 0)))
    tests = [*tatoeba_dev, *europarl_dev, *read_pairs(data / "tatoeba/test.en-fr.tsv", (1, 0))]
    for name in ("europarl/test.fr-en", "newstest/newstest2013"):
        tests += read_aligned(data / f"{name}.fr", data / f"{name}.en")
    held_out = {sentence for pair in tests for sentence in pair}
    seen: set[Pair] = set()

    def keep(name: str, pairs: Iterable[Pair], ratios: tuple[float, float], max_words: int) -> None:
        def kept() -> Iterator[Pair]:
            for pair in pairs:
                if pair not in seen and held_out.isdisjoint(pair) and is_plausible(pair, ratios, max_words):
                    seen.add(pair)
                    yield pair

        write_pairs(folder / f"{name}.tsv.xz", kept())

    extra = data / "extra"
    keep("tatoeba", read_pairs(data / "tatoeba/train.en-fr.tsv.xz", (1, 0)), (0.3, 3.5), 60)
    keep("tatoeba-extra", read_pairs(extra / "tatoeba-extra.fr-en.tsv.xz"), (0.3, 3.5), 60)
    keep("business", read_pairs(extra / "business-docs.fr-en.tsv.xz"), (0.6, 2.2), 60)
    keep("books", read_pairs(extra / "books.fr-en.tsv.xz"), (0.7, 1.6), 40)
    for half, name in enumerate(("europarl-a", "europarl-b")):
        keep(name, islice(read_pairs(extra / "europarl-v7.fr-en.tsv.xz"), half, None, 2), (0.75, 1.75), 45)
    large = [data / f"europarl/train-600k.fr-en.{language}.xz" for language in ("fr", "en")]
    keep("europarl-600k", read_aligned(*large), (0.75, 1.75), 50)
    (folder / "validation.tsv").write_text(
        "".join(f"{french}\t{english}\n" for french, english in (*tatoeba_dev, *europarl_dev[:700])), encoding="utf-8"
    )


def distil(folder: Path, teacher: str, device: str, limit: int | None, corpora: Sequence[str] = DISTILLED) -> None:
    """Write the teacher's translation of each French sentence, at most `limit` of each corpus."""
    model = _fast(regard.load(teacher, device=device))
    seen: set[str] = set()
    for name in corpora:
        all_sources = dict.fromkeys(french for french, _ in islice(read_pairs(folder / f"{name}.tsv.xz"), limit))
        french = [source for source in all_sources if source not in seen]
        seen.update(french)
        english = model.translate(french, batch_tokens=16_000)
        pairs = (pair for pair in zip(french, english, strict=True) if is_sound(*pair))
        write_pairs(folder / f"{name}-distilled.tsv.xz", pairs)


def _fast(model: regard.Model) -> regard.Model:
    """The fastest copy of a model on its device."""
    return model.quick("int8", compiled=True) if model.device.type == "cpu" else model.quick()


def is_sound(french: str, english: str) -> bool:
    """Whether a translation is neither empty, nor far too short or long, nor repeats itself."""
    words = english.split()
    if not words or not 0.4 <= (len(french) + 8) / (len(english) + 8) <= 2.5:
        return False
    return len(words) <= 12 or len(set(words)) >= 0.4 * len(words)


def vary(folder: Path, seed: int = 1) -> None:
    """Write varied.tsv.xz and varied-english.tsv.xz: sentences as people type them, in either language."""
    pairs = [pair for name in EVERYDAY for pair in read_pairs(folder / f"{name}-distilled.tsv.xz")]
    pairs += read_pairs(folder / "tatoeba.tsv.xz")
    write_pairs(folder / "varied.tsv.xz", variations(pairs, WITH_ADDRESS, random.Random(seed)))
    swapped = [(english, french) for french, english in pairs]
    with_address = [(english, french) for french, english in WITH_ADDRESS]
    varied = variations(swapped, with_address, random.Random(seed))
    write_pairs(folder / "varied-english.tsv.xz", ((french, english) for english, french in varied))


def variations(pairs: list[Pair], with_address: Sequence[Pair], rng: random.Random) -> Iterator[Pair]:
    """Pairs without final punctuation, in lower or upper case, several in a line, with emoji and with addresses.

    `pairs` are sources and targets, and `with_address` are sources and targets with a place for an address.
    """

    def some(share: float) -> list[Pair]:
        return rng.sample(pairs, round(share * len(pairs)))

    changes: list[tuple[float, Callable[[str, str], Pair]]] = [
        (0.05, lambda source, target: (without_final_marks(source), without_final_marks(target))),
        (0.07, lambda source, target: (without_final_marks(source).lower(), without_final_marks(target))),
        (0.03, lambda source, target: (source.lower(), target)),
        (0.02, lambda source, target: (source.upper(), target.upper())),
        (0.01, lambda source, target: (without_final_marks(source).upper(), without_final_marks(target).upper())),
        (0.03, lambda source, target: (source.replace("'", "’"), target)),
        (0.02, lambda source, target: _with_emoji(source, target, rng)),
        (0.05, lambda source, target: _with_address(source, target, with_address, rng)),
    ]
    for share, change in changes:
        for pair in some(share):
            yield change(*pair)
    for first in some(0.1):
        chosen = [first, *rng.sample(pairs, rng.choice((1, 1, 1, 2)))]
        yield " ".join(source for source, _ in chosen), " ".join(target for _, target in chosen)


def _with_emoji(source: str, target: str, rng: random.Random) -> Pair:
    emoji = "".join(rng.choices(EMOJI, k=rng.choice((1, 1, 1, 2, 3))))
    if rng.random() < 0.15:
        return f"{emoji} {source}", f"{emoji} {target}"
    space = rng.choice((" ", " ", ""))
    return f"{source}{space}{emoji}", f"{target}{space}{emoji}"


def _with_address(source: str, target: str, with_address: Sequence[Pair], rng: random.Random) -> Pair:
    """A sentence with an address after it, or another sentence around it.

    The address consists of words of the sentence, which would otherwise be translated: the model has to copy them.
    """
    words = [word for word in re.findall(r"[a-z]{3,}", source.lower()) if word.isascii()] or ["page"]
    address = rng.choice(ADDRESSES).format(*rng.choices(words, k=3), rng.choice(TOP_LEVEL_DOMAINS))
    if rng.random() < 0.5:
        chosen = rng.choice(with_address)
        return chosen[0].format(address), chosen[1].format(address)
    return f"{source} {address}", f"{target} {address}"


def retype(folder: Path, model_name: str, device: str, seed: int = 1) -> None:
    """Write sentences as people type them in haste, with the model's translations of the originals; further everyday
    phrases and sentences with numbers: retyped.tsv.xz and retyped-validation.tsv.xz, or retyped-english.tsv.xz and
    retyped-english-validation.tsv.xz for a model that reads English."""
    rng = random.Random(seed)
    model = regard.load(model_name, device=device)
    language = model.source_language or "fr"
    side = ("fr", "en").index(language)
    translator = _fast(model)

    def translated(sources: list[str]) -> list[Pair]:
        pairs = zip(sources, translator.translate(sources), strict=True)
        return [pair for pair in pairs if is_sound(*pair)]

    def write(name: str, pairs: list[Pair]) -> None:
        rng.shuffle(pairs)  # the corpora in one order would be learned, and forgotten, one after the other
        retyped = (hasty(*pair, language, rng) for pair in pairs)
        write_pairs(folder / f"{name}.tsv.xz", retyped if side == 0 else (pair[::-1] for pair in retyped))

    pairs = translated(
        [source for name, limit in RETYPED.items() for source in _sample(folder, name, side, limit, rng)]
    )
    written = [*read_pairs(PHRASES), *with_numbers(NUMBERS, rng)]
    pairs += [pair if side == 0 else (pair[1], pair[0]) for pair in written * REPEATED]
    name = "retyped" if side == 0 else "retyped-english"
    write(name, pairs)
    write(f"{name}-validation", translated([pair[side] for pair in read_pairs(folder / "validation.tsv")]))


def _sample(folder: Path, name: str, side: int, limit: int, rng: random.Random) -> list[str]:
    sources = list(dict.fromkeys(pair[side] for pair in read_pairs(folder / f"{name}.tsv.xz")))
    return rng.sample(sources, min(limit, len(sources)))


def main() -> None:
    """Parse the command line and execute one step."""
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = parser.add_subparsers(dest="step", required=True)
    step = steps.add_parser("filter", help="clean the corpora")
    step.add_argument("data", type=Path)
    step.add_argument("folder", type=Path)
    step = steps.add_parser("distil", help="translate them with the teacher")
    step.add_argument("folder", type=Path)
    step.add_argument("--teacher", required=True)
    step.add_argument("--device", default="cpu")
    step.add_argument("--limit", type=int, help="sentences of each corpus")
    step.add_argument("--corpora", nargs="+", choices=DISTILLED, default=DISTILLED, help="by default all")
    step = steps.add_parser("vary", help="vary everyday sentences")
    step.add_argument("folder", type=Path)
    step = steps.add_parser("retype", help="type sentences in haste, with a model's translations")
    step.add_argument("folder", type=Path)
    step.add_argument("--model", required=True)
    step.add_argument("--device", default="cpu")
    chosen = parser.parse_args()
    if chosen.step == "filter":
        filter_corpora(chosen.data, chosen.folder)
    elif chosen.step == "distil":
        distil(chosen.folder, chosen.teacher, chosen.device, chosen.limit, chosen.corpora)
    elif chosen.step == "vary":
        vary(chosen.folder)
    else:
        retype(chosen.folder, chosen.model, chosen.device)


if __name__ == "__main__":
    main()
