"""Petit's grammar: phrases in both languages at once, with the links between their words.

A phrase is put together from items, once in French order and once in English order. An item is a smaller phrase, whose
links move with it, or a word with labels: `("mange", "verb")`. Words of the two sides that share a label are linked.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar
from zlib import crc32

from regard.petit import english, french
from regard.petit.lexicon import Adjective, Lexicon, Noun, Verb, load
from regard.petit.parts_of_speech import Word

Option = TypeVar("Option")


class NothingFits(Exception):  # noqa: N818  # not an error: another sentence is tried
    """Raised when the random choices so far cannot be completed to a sentence."""


class Phrase:
    """Words of both languages, and the links between them."""

    __slots__ = ("english", "french", "links")

    def __init__(self, french: list[str], english: list[str], links: list[tuple[int, int]]) -> None:
        self.french = french
        self.english = english
        self.links = links


class Nominal(Phrase):
    """A phrase that can be subject or object: `person` is 0 … 5 for je tu il nous vous ils."""

    __slots__ = ("gender", "kind", "loose", "noun", "person", "pronoun")

    def __init__(
        self,
        phrase: Phrase,
        gender: str,
        person: int = 2,
        kind: str = "person",
        noun: str = "",
        pronoun: bool = False,
    ) -> None:
        super().__init__(phrase.french, phrase.english, phrase.links)
        self.gender = gender
        self.person = person
        self.kind = kind
        self.noun = noun
        self.pronoun = pronoun
        self.loose = False  # four singers, a singer: nobody in particular

    @property
    def plural(self) -> bool:
        """Whether words that agree with this phrase are plural."""
        return self.person > 2

    @property
    def owner(self) -> int:
        """The index of its possessive in the tables: je tu he she nous vous they it."""
        if self.person == 2:
            return 7 if self.kind != "person" else 2 + (self.gender == "f")
        return (0, 1, 2, 4, 5, 6)[self.person]


Item = Phrase | tuple[str, ...]


def build_phrase(french_items: Sequence[Item], english_items: Sequence[Item]) -> Phrase:
    """Build a phrase from its parts in French order and in English order.

    >>> phrase = build_phrase([("la*", "the"), ("nuit", "n")], [("the", "the"), ("night", "n")])
    >>> phrase.french, phrase.english, phrase.links
    (['la*', 'nuit'], ['the', 'night'], [(0, 0), (1, 1)])
    """
    source: list[str] = []
    target: list[str] = []
    links: list[tuple[int, int]] = []
    starts: dict[int, int] = {}
    labelled: dict[str, list[int]] = {}
    for item in french_items:
        if type(item) is tuple:
            for label in item[1:]:
                labelled.setdefault(label, []).append(len(source))
            source.append(item[0])
        elif isinstance(item, Phrase):
            starts[id(item)] = len(source)
            source += item.french
    for item in english_items:
        position = len(target)
        if type(item) is tuple:
            for label in item[1:]:
                links += [(index, position) for index in labelled.get(label, ())]
            target.append(item[0])
        elif isinstance(item, Phrase):
            start = starts[id(item)]
            links += [(i + start, j + position) for i, j in item.links]
            target += item.english
    return Phrase(source, target, links)


def fixed(french_words: str, english_words: str) -> Phrase:
    """Return a phrase that is translated as a unit: every word is linked to every word."""
    source, target = french_words.split(), english_words.split()
    return Phrase(source, target, [(i, j) for i in range(len(source)) for j in range(len(target))])


def literal(french_words: str, english_words: str) -> Phrase:
    """Return a phrase that is translated word by word."""
    source, target = french_words.split(), english_words.split()
    return Phrase(source, target, [(i, i) for i in range(len(source))])


SUBJECTS = (("je~", "I"), ("tu", "you"), ("il", "he"), ("nous", "we"), ("vous", "you"), ("ils", "they"))
OBJECTS = (("me~", "me"), ("te~", "you"), ("", ""), ("nous", "us"), ("vous", "you"), ("", ""))
REFLEXIVES = ("me~", "te~", "se~", "nous", "vous", "se~")
OWNERS = (
    (("mon", "ma", "mes"), "my"),
    (("ton", "ta", "tes"), "your"),
    (("son", "sa", "ses"), "his"),
    (("son", "sa", "ses"), "her"),
    (("notre", "notre", "nos"), "our"),
    (("votre", "votre", "vos"), "your"),
    (("leur", "leur", "leurs"), "their"),
    (("son", "sa", "ses"), "its"),
)
# The parts of a compound tense: the verb before the infinitive, its French tense, its English words.
COMPOUND = {
    "future": ("aller", "present", "going to"),
    "can": ("pouvoir", "present", "can"),
    "could": ("pouvoir", "imperfect", "could"),
    "must": ("devoir", "present", "must"),
    "want": ("vouloir", "present", "want to"),
    "wanted": ("vouloir", "imperfect", "want to"),
    "know": ("savoir", "present", "know how to"),
}
MODALS = ("can", "could", "must", "want", "wanted", "know")
DETERMINER_DE = Word("de~", "DET")
"""De in "du pain", "pas de pain" and "de belles maisons"; elsewhere it is a preposition."""
RELATIVE_QUE = Word("que~", "PRON")
"""Que in "le livre que je lis", and "qu'" that asks; elsewhere it is a conjunction."""
SMALL_NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
ETRE, AVOIR = "être", "avoir"


@dataclass(slots=True)
class Clause:
    """A subject, a verb and its complements; `french_after` and `english_after` follow the verb."""

    subject: Nominal
    verb: Verb
    tense: str = "present"
    negator: str = ""
    clitics: list[Item] = field(default_factory=list)
    agreement: tuple[str, bool] | None = None
    """Gender and number of an object before the verb, with which the participle agrees."""
    adverb: tuple[str, str] | None = None
    french_after: list[Item] = field(default_factory=list)
    english_after: list[Item] = field(default_factory=list)
    front: Phrase | None = None
    time: Phrase | None = None

    def add(self, phrase: Phrase) -> None:
        """Append a phrase in both languages."""
        self.french_after.append(phrase)
        self.english_after.append(phrase)


NEGATORS = {"pas": ("not",), "jamais": ("never",), "plus": ("no", "longer")}


def english_group(clause: Clause, ask: bool) -> tuple[list[Item], list[Item]]:
    """Return the English verb in two parts: what a question puts before the subject, and the rest."""
    negation: list[Item] = [(word, "neg") for word in NEGATORS[clause.negator]] if clause.negator else []
    adverb: list[Item] = [(clause.adverb[1], "adverb")] if clause.adverb and clause.adverb[1] else []
    middle = negation + adverb
    person, tense, verb = clause.subject.person, clause.tense, clause.verb.english
    tail: list[Item] = [(word, "verb") for word in verb.tail]
    if tense in COMPOUND:
        return _compound(clause, ask, middle, [(verb.base, "verb"), *tail])
    past = tense in ("past", "imperfect")
    if verb.base == "be":
        return [(english.BE[past][person], "verb")], middle
    if is_progressive(clause):
        return [(english.BE[past][person], "verb")], [*middle, (verb.ing, "verb"), *tail]
    if tense == "used":
        return [], [*middle, ("used", "verb"), ("to", "verb"), (verb.base, "verb"), *tail]
    if tense == "past" and clause.negator == "jamais":
        return [("has" if person == 2 else "have", "aux")], [*middle, (verb.participle, "verb"), *tail]
    if ask or clause.negator == "pas":
        label = "aux" if tense == "past" else "verb"
        return [(_do(person, past), label)], [*middle, (verb.base, "verb"), *tail]
    form = verb.past if past else verb.third if person == 2 else verb.base
    return [], [*middle, (form, "verb"), *tail]


def is_progressive(clause: Clause) -> bool:
    """Return whether English uses "is …ing": a current action, not a state, a habit, "never" or "no longer"."""
    doing = clause.tense in ("present", "imperfect") and not clause.verb.has("stative")
    return doing and clause.negator in ("", "pas")


def _do(person: int, past: bool) -> str:
    return "did" if past else "does" if person == 2 else "do"


def _compound(clause: Clause, ask: bool, middle: list[Item], verb: list[Item]) -> tuple[list[Item], list[Item]]:
    first, *rest = COMPOUND[clause.tense][2].split()
    person, past = clause.subject.person, clause.tense == "wanted"
    words: list[Item] = [(word, "aux") for word in rest]
    if clause.tense == "future":
        return [(english.BE[0][person], "aux")], [*middle, (first, "aux"), *words, *verb]
    if not rest:
        if first == "can" and clause.negator == "pas":
            return [("cannot", "aux", "neg")], verb
        return [(first, "aux")], [*middle, *verb]
    if ask or clause.negator == "pas":
        return [(_do(person, past), "aux")], [*middle, (first, "aux"), *words, *verb]
    form = english.verb(first)
    word = "wanted" if past else form.third if person == 2 else form.base
    return [], [*middle, (word, "aux"), *words, *verb]


def french_group(clause: Clause, ask: bool) -> tuple[list[Item], str, str, list[Item]]:
    """Return the French verb: the words before its finite form, that form and its label, and the words after it."""
    verb, person, tense = clause.verb, clause.subject.person, clause.tense
    negation: list[Item] = [("ne~", "neg")] if clause.negator else []
    pas: list[Item] = [(clause.negator, "neg")] if clause.negator else []
    adverb: list[Item] = [(clause.adverb[0], "adverb")] if clause.adverb else []
    clitics = list(clause.clitics)
    if verb.reflexive:
        clitics.insert(0, (REFLEXIVES[person], "verb"))
    if tense in COMPOUND:
        helper, form, _ = COMPOUND[tense]
        finite = getattr(load().verbs[helper], form)[person]
        return negation, finite, "aux", [*pas, *adverb, *clitics, (verb.french, "verb")]
    before = negation + clitics
    if tense == "past":
        helper = ETRE if verb.reflexive or verb.has("etre") else AVOIR
        label = "aux" if ask or clause.negator else "verb"
        finite = Word(load().verbs[helper].present[person], "AUX")
        return before, finite, label, [*pas, *adverb, (participle(clause), "verb")]
    forms = verb.imperfect if tense in ("imperfect", "used") else verb.present
    return before, forms[person], "verb", pas + adverb


def participle(clause: Clause) -> Word:
    """Return the participle; it agrees with the subject (être), or with an object before the verb (avoir)."""
    verb, subject = clause.verb, clause.subject
    form = verb.participle
    if verb.has("own"):  # elle s'est lavé les mains: the object comes after
        pass
    elif verb.reflexive or verb.has("etre"):
        form = french.agree(form, subject.gender, subject.plural)
    elif clause.agreement:
        form = french.agree(form, *clause.agreement)
    return Word(form, "VERB")


class PhraseGenerator:
    """Generates random phrases from a lexicon, and records the phenomena of each sentence."""

    def __init__(self, random: Callable[[], float], lexicon: Lexicon) -> None:
        self.random = random
        self.lexicon = lexicon
        self.tags: list[str] = []
        self.reserved = False
        known = lexicon.nouns.values()
        senses = lexicon.adjectives
        self.attributes: dict[str, tuple[Adjective, ...]] = {
            noun.lemma: tuple(a for a in senses if noun.lemma in a.nouns and a.position != "predicate")
            for noun in known
        }
        self.predicates: dict[str, tuple[Adjective, ...]] = {
            noun.lemma: tuple(a for a in senses if noun.lemma in a.nouns and "-only" not in a.position)
            for noun in known
        }

    def pick(self, options: Sequence[Option]) -> Option:
        """Return a random option; unlike `random.choice`, the same on every version of Python."""
        if not options:
            raise NothingFits
        return options[int(self.random() * len(options))]

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return self.random() < probability

    def reserve(self, kind: str, one: str, other: str) -> None:
        """Record a combination of words; a fixed few of them are reserved for the compositional split."""
        if not self.reserved and is_reserved(kind, one, other):
            self.reserved = True

    def noun_phrase(
        self,
        noun: Noun,
        determiner: str,
        plural: bool = False,
        scope: str = "some",
        adjective: Adjective | None = None,
        owner: int = 0,
    ) -> Nominal:
        """Return a determiner, possibly an adjective, and a noun; `scope` of an indefinite is some, any or zero."""
        if determiner == "none" and noun.french[0] == noun.french[1]:
            plural = True  # pas de souris: no mice, since nothing says that there is no mouse
        source, target = [(noun.french[plural], "noun")], [(word, "noun") for word in noun.english[plural]]
        if adjective:
            self._describe(noun, plural, adjective, source, target)
        articles, the = self._determine(noun, determiner, plural, scope, owner, source[0][0], target[0][0])
        if len(articles) == 1 and articles[0] == "des" and adjective and adjective.position[0] == "b":
            articles = [DETERMINER_DE]  # de belles maisons
        items: list[Item] = [(word, "det") for word in articles]
        phrase = build_phrase([*items, *source], [*((word, "det") for word in the), *target])
        kind = "person" if noun.kind in ("person", "job", "kin") else "thing"
        return Nominal(phrase, noun.gender[0], 5 if plural else 2, kind, noun.lemma)

    def _describe(
        self,
        noun: Noun,
        plural: bool,
        adjective: Adjective,
        source: list[tuple[str, str]],
        target: list[tuple[str, str]],
    ) -> None:
        form = adjective.agree(noun.gender, plural)
        self.reserve("adjective", adjective.lemma, noun.lemma)
        self.note_agreement(adjective.forms[0], form, plural)
        if adjective.position[0] == "b":
            if form == adjective.forms[0] and not plural and french.vowel(noun.french[0]):
                form = adjective.forms[1]
            source.insert(0, (form, "adjective"))
        else:
            self.tags.append("adjective-order")
            source.append((form, "adjective"))
        target.insert(0, (adjective.english, "adjective"))

    def note_agreement(self, plain: str, form: str, plural: bool) -> None:
        """Tag the agreement that a form shows."""
        if form.rstrip("s") != plain.rstrip("s") and form.rstrip("s").endswith("e"):
            self.tags.append("gender-agreement")
        if plural:
            self.tags.append("number-agreement")

    def _determine(
        self, noun: Noun, determiner: str, plural: bool, scope: str, owner: int, before: str, following: str
    ) -> tuple[list[str], list[str]]:
        """Return the French and English determiners; `before` and `following` are the next words in each language."""
        feminine = noun.gender == "f"
        article = "les*" if plural else "la*" if feminine else "le*"
        some = [] if scope == "zero" else [scope]
        if determiner == "definite":
            return [article], ["the"]
        if determiner == "generic":
            return [article], []
        if determiner == "this":
            self.tags.append("demonstrative")
            masculine = "cet" if french.vowel(before) else "ce"
            return ["ces" if plural else "cette" if feminine else masculine], ["these" if plural else "this"]
        if determiner == "own":
            self.tags.append("possessive")
            forms, word = OWNERS[owner]
            return [forms[2 if plural else feminine and not french.vowel(before)]], [word]
        single = noun.counted and not plural
        if determiner == "none":  # pas de pain
            self.tags.append("negative-de")
            return [DETERMINER_DE], [english.article(following)] if single else some
        if single:
            return ["une" if feminine else "un"], [english.article(following)]
        self.tags.append("partitive")
        return (["des"] if plural else [DETERMINER_DE, article]), some

    def numbered(self, noun: Noun, adjective: Adjective | None = None) -> Nominal:
        """Deux chats."""
        numeral, words = self.pick(self.lexicon.numerals)
        if noun.kind not in ("fruit", "item", "baked", "readable", "farm") and words[0] not in SMALL_NUMBERS:
            raise NothingFits  # forty teachers, fifty tigers
        self.tags.append("numeral")
        things = self.noun_phrase(noun, "generic", True, adjective=adjective)
        bare = Phrase(things.french[1:], things.english, [(i - 1, j) for i, j in things.links])
        count: list[Item] = [(numeral, "n")]
        phrase = build_phrase([*count, bare], [*((word, "n") for word in words), bare])
        return Nominal(phrase, noun.gender[0], 5, things.kind, noun.lemma)

    def attribute(self, noun: Noun, probability: float = 0.3, but: Sequence[str] = ()) -> Adjective | None:
        """Return an adjective that suits the noun and is not in `but`, or None."""
        if self.random() < probability:
            options = [a for a in self.attributes[noun.lemma] if a.lemma not in but]
            return self.pick(options) if options else None
        return None


_RESERVED: dict[tuple[str, str, str], bool] = {}


def is_reserved(kind: str, one: str, other: str) -> bool:
    """Return whether a combination is excluded from training, by a hash that is the same on every machine."""
    key = (kind, one, other)
    if key not in _RESERVED:
        _RESERVED[key] = crc32("|".join(key).encode()) % 1000 < 40
    return _RESERVED[key]
