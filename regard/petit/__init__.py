"""Petit: a generated French–English corpus with gold word alignments and the linguistic phenomena of each sentence.

    >>> find_pair("Il ne mange jamais de pommes.").english
    'He never eats apples.'

Every French sentence has exactly one correct translation, so a perfect model scores 100 BLEU: where French is
ambiguous, another word of the sentence decides (see `clauses`). The vocabulary is in `lexicon.toml`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from zlib import crc32

from regard.config import did_you_mean, require_at_least
from regard.errors import RegardError
from regard.petit.english import spell as spell_english
from regard.petit.french import elide_and_contract
from regard.petit.french import spell as spell_french
from regard.petit.lexicon import load
from regard.petit.parts_of_speech import part_of_speech
from regard.petit.sentence_generator import Sentence, SentenceGenerator
from regard.word_splitter import split_words, word_spans

PHENOMENA: dict[str, str] = {
    "adjective-order": "an adjective that follows its noun in French and precedes it in English: une robe rouge",
    "adverb": "an adverb of habit or manner, placed differently: il chante souvent, he often sings",
    "avoir-idiom": "French has what English is: avoir faim, avoir dix ans",
    "comparative": "plus, moins or aussi … que, and meilleur",
    "contraction": "de or à and an article in one word: du, des, au, aux",
    "coordination": "words or clauses joined by et or mais",
    "demonstrative": "ce, cet, cette, ces",
    "elision": "a vowel lost before a vowel or a mute h: l', d', qu', n', j', s', m', t', c'",
    "futur-proche": "aller and an infinitive: il va partir, he is going to leave",
    "gender-agreement": "an adjective in a feminine form of its own",
    "generic-article": "a definite article that English leaves out: il aime le pain, he likes bread",
    "genitive": "de where English has 's: le frère de Marie, Marie's brother",
    "how-many": "combien de, with the participle that agrees: combien de pommes as-tu mangées",
    "imparfait": "the imperfect: was …ing, used to …, or the past of a state",
    "imperative": "a command",
    "indirect-pronoun": "an indirect object before the verb: me, te, lui, nous, vous, leur",
    "inversion": "a question with the subject after the verb: mange-t-il",
    "language": "parler and a language, without an article",
    "modal": "pouvoir, devoir, vouloir or savoir and an infinitive",
    "negation": "ne … pas, ne … jamais, ne … plus",
    "negative-de": "de instead of un, du or des after a negation: pas de pain",
    "number-agreement": "an adjective in the plural",
    "numeral": "a number",
    "object-pronoun": "a direct object before the verb: me, te, le, la, l', nous, vous, les",
    "participle-agreement": "a participle that agrees: with être, or with an object before avoir",
    "partitive": "du, de la, de l' or des: some, any or nothing in English",
    "passe-compose-avoir": "the passé composé with avoir",
    "passe-compose-etre": "the passé composé with être, of reflexive verbs and verbs of motion",
    "place": "a preposition of place: sous, derrière, à côté de, chez …",
    "possessive": "mon, ma, mes …, which agree with what is possessed",
    "presentative": "voici, c'est, ce sont",
    "profession": "a profession without an article: elle est médecin",
    "question": "a question",
    "reflexive": "a reflexive verb: se lever",
    "relative-que": "a relative clause with que",
    "relative-qui": "a relative clause with qui",
    "subordinate": "a clause with que, parce que, quand or si",
    "there-is": "il y a",
    "weather": "il pleut, il fait froid",
}

MAX_FRENCH_WORDS = 20
"""Maximum number of words in a French sentence, including the final punctuation."""
MAX_PAIRS = 5_000_000
"""Maximum number of distinct pairs; generating many more would take almost forever."""
SPLITS = ("train", "dev", "test", "compositional")


@dataclass(frozen=True)
class Pair:
    """A sentence in both languages, with its gold annotations."""

    french: str
    english: str
    alignment: tuple[tuple[int, int], ...]
    """Sorted pairs of an index into words(french) and an index into words(english)."""
    tags: tuple[str, ...]
    """Sorted names of the phenomena in the sentence."""
    parts: tuple[str, ...] = field(repr=False)
    """The part of speech of each of words(french): see `regard.petit.parts_of_speech`."""


def spans(sentence: str) -> list[tuple[int, int]]:
    """Return the start and end of each word of a sentence, in characters."""
    return word_spans(sentence)


def words(sentence: str) -> list[str]:
    """Split a sentence into words as alignments count them: elided words, 's, hyphenated pronouns and punctuation are
    separate words.

    >>> words("L'ami de Marie dort-il ?"), words("Is Marie's friend sleeping?")
    (["L'", 'ami', 'de', 'Marie', 'dort', '-il', '?'], ['Is', 'Marie', "'s", 'friend', 'sleeping', '?'])

    To join them again, put no space after a word that ends with an apostrophe, before a word that starts with a hyphen
    or an apostrophe, or before a comma or full stop; in English also none before ? and !.
    """
    return split_words(sentence)


def pairs(count: int, seed: int = 0, split: str = "train") -> Iterator[Pair]:
    """Yield `count` pairs of a split with distinct French sentences.

    The same arguments give the same pairs on every machine, and a smaller count gives a prefix. No sentence is in two
    splits, whatever the seeds: by a hash of the French, about 90% of the sentences are for training, 5% for dev and
    5% for test. "compositional" has the sentences with a combination of words (adjective and noun, verb and object,
    verb and negation) that never occurs in the other three.
    """
    require_at_least(0, count=count)
    if split not in SPLITS:
        raise RegardError(f"no split {split!r}: {did_you_mean(split, SPLITS)}")
    return _distinct(count, seed, split)


def _distinct(count: int, seed: int, split: str) -> Iterator[Pair]:
    generator = SentenceGenerator(Random(f"petit {split} {seed}").random)
    seen: set[str] = set()
    misses = 0
    while len(seen) < count:
        sentence = generator.generate()
        if sentence.reserved != (split == "compositional"):
            continue
        spoken, places = elide_and_contract(sentence.phrase.french)
        if len(spoken) > MAX_FRENCH_WORDS:
            continue
        text = spell_french(spoken)
        if split not in ("compositional", _hashed_split(text)):
            continue
        if text in seen:
            misses += 1
            if misses > 200_000:
                raise RegardError(f"split {split!r} gave {len(seen)} distinct pairs and hardly any more: request fewer")
            continue
        seen.add(text)
        misses = 0
        yield _pair(sentence, text, spoken, places)


def _hashed_split(french: str) -> str:
    """Return the split of a sentence without a reserved combination, by a hash that is the same on every machine."""
    bucket = crc32(french.encode()) % 100
    return "train" if bucket < 90 else "dev" if bucket < 95 else "test"


def _pair(sentence: Sentence, text: str, spoken: list[str], places: list[int]) -> Pair:
    phrase, tags = sentence.phrase, sentence.tags
    if len(spoken) < len(places):
        tags.append("contraction")
    if any(word[-1] == "'" for word in spoken):
        tags.append("elision")
    links = sorted({(places[i], j) for i, j in phrase.links})
    first_tokens = dict(zip(reversed(places), reversed(phrase.french), strict=True))  # of each word
    parts = tuple(part_of_speech(first_tokens[i]) for i in range(len(spoken)))
    return Pair(text, spell_english(phrase.english), tuple(links), tuple(sorted(set(tags))), parts)


def find_pair(french: str, draws: int = 400_000) -> Pair | None:
    """Search for the pair of a French sentence among random sentences made of only its words.

    Return None if it was not found in `draws` draws.
    """
    said = words(french)
    said = [said[0][0].lower() + said[0][1:], *said]
    generator = SentenceGenerator(Random(french).random, load().restricted_to(said), frozenset(said))
    for _ in range(draws):
        sentence = generator.try_generate()
        if not sentence:
            continue
        spoken, places = elide_and_contract(sentence.phrase.french)
        text = spell_french(spoken)
        if text == french:
            return _pair(sentence, text, spoken, places)
    return None


def count_lemmas() -> int:
    """Return the number of lemmas in the lexicon."""
    return len(load().lemmas())
