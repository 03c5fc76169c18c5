"""Clauses that say who does what, where and when, and that make sense and have exactly one English translation.

French is often ambiguous where English is not. Here another word of the sentence always decides:

    son, sa, ses    belong to the subject of their own clause: his, her or its
    il, elle        he and she, unless they refer to an earlier subject of the sentence
    le, la, l'      by the verb (one eats things and thanks people), and l' before a participle by its agreement
    présent         is …ing for what is done now; a simple present for states, and for habits (souvent, ne … jamais)
    imparfait       was …ing, the simple past for states, and used to … with a habit (autrefois, tous les jours)
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from regard.petit.grammar import (
    COMPOUND,
    ETRE,
    MODALS,
    OBJECTS,
    SUBJECTS,
    Clause,
    Item,
    Nominal,
    NothingFits,
    Phrase,
    PhraseGenerator,
    build_phrase,
    fixed,
    is_progressive,
    literal,
)
from regard.petit.lexicon import Lexicon, Noun, Verb, load
from regard.petit.parts_of_speech import Word

PERSONS = tuple((word.rstrip("~"), person) for person, (word, _) in enumerate(SUBJECTS))
HABITS = (("souvent", "often"), ("parfois", "sometimes"), ("rarement", "rarely"))
MANNERS = {
    "well": (("bien", "well"), ("mal", "badly")),
    "fast": (("vite", "fast"),),
    "slowly": (("lentement", "slowly"),),
}
TIMES: dict[str, tuple[tuple[str, str], ...]] = {
    "now": (("maintenant", "now"), ("aujourd'hui", "today"), ("en ce moment", "at the moment")),
    "past": (
        ("hier", "yesterday"),
        ("hier soir", "yesterday evening"),
        ("ce matin", "this morning"),
        ("la* semaine dernière", "last week"),
        ("la* année dernière", "last year"),
    ),
    "future": (
        ("demain", "tomorrow"),
        ("demain matin", "tomorrow morning"),
        ("ce soir", "this evening"),
        ("la* semaine prochaine", "next week"),
        ("la* année prochaine", "next year"),
    ),
    "habit": (
        ("tous les* jours", "every day"),
        ("tous les* matins", "every morning"),
        ("tous les* soirs", "every evening"),
        ("chaque semaine", "every week"),
    ),
    "once": (("autrefois", "in the past"),),
}
OWNED_KINDS = (
    "clothes",
    "item",
    "toy",
    "readable",
    "vehicle",
    "container",
    "pet",
    "kin",
    "furniture",
    "fruit",
    "baked",
)
USUALLY_PLURAL = ("chaussure", "gant", "olive", "haricot", "cerise", "fraise")
NEVER_PLURAL = ("père", "mère", "grand-père", "grand-mère", "roi", "reine")
OWNED_PEOPLE = ("ami", "amie", "voisin", "voisine", "enfant", "professeur", "médecin", "avocat", "avocate")
STATIONS = {"train": "gare", "autobus": "gare", "avion": "aéroport"}
PASTURES = ("jardin", "forêt", "champ", "parc")
VERBS_DATED_BY_WEEK = (  # actions that are dated by weeks and years
    *("voyager", "visiter", "construire", "acheter", "vendre", "aller", "venir", "rencontrer", "apprendre", "écrire"),
    *("peindre", "réparer", "perdre", "casser", "travailler", "planter", "inviter", "pleuvoir", "neiger", "partir"),
)
CONSUMED_KINDS = ("fruit", "baked", "grocery", "drink", "readable", "schoolwork", "show", "plant")
FEELINGS = (
    ("faim", "hungry"),
    ("soif", "thirsty"),
    ("froid", "cold"),
    ("chaud", "hot"),
    ("peur", "afraid"),
    ("sommeil", "sleepy"),
    ("raison", "right"),
    ("tort", "wrong"),
)
Maker = Callable[[Nominal | None], Clause]


def said_by(phrase: str, said: frozenset[str]) -> bool:
    """Return whether all words of a phrase are among `said`, elided or not."""
    bare = [word.rstrip("*~") for word in phrase.split()]
    return all(word in said or word[:-1] + "'" in said for word in bare)


class ClauseGenerator(PhraseGenerator):
    """Generates single clauses."""

    def __init__(
        self, random: Callable[[], float], lexicon: Lexicon | None = None, said: frozenset[str] | None = None
    ) -> None:
        super().__init__(random, lexicon or load())
        self.asking = self.dated = False
        self.named: set[str] = set()

        def kept(options: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
            return tuple(option for option in options if said is None or said_by(option[0], said))

        self.times = {name: kept(options) for name, options in TIMES.items()}
        self.habits, self.feelings = kept(HABITS), kept(FEELINGS)
        negated = said is None or not said.isdisjoint(("ne", "n'"))
        self.negators = tuple(w for w in ("pas", "jamais", "plus") if said is None or (negated and w in said))
        self.persons = tuple(p for w, p in PERSONS if said is None or self._is_said(w, said))
        self.can_affirm = said is None or not negated
        nouns, verbs = self.lexicon.nouns.values(), self.lexicon.verbs.values()
        self.people = tuple(noun for noun in nouns if noun.kind in ("person", "job"))
        self.things = tuple(noun for noun in nouns if noun.kind not in ("person", "job", "kin"))
        self.kin = tuple(noun for noun in nouns if noun.kind == "kin")
        self.friends = tuple(noun for noun in nouns if noun.lemma in OWNED_PEOPLE)
        self.modals = tuple(name for name in MODALS if COMPOUND[name][0] in self.lexicon.verbs)
        plain = [v for v in verbs if not v.has("special") and v.to is None and not v.has("dative")]
        self.transitive = [v for v in plain if v.variety and not v.has("own") and not v.has("puts")]
        self.intransitive = [v for v in plain if not v.variety and not v.has("goal") and not v.has("enter")]
        self.human = tuple(v for v in self.intransitive if v.has("person") and not v.reflexive)
        self.bestial = tuple(v for v in self.intransitive if v.has("other"))
        self.putters = tuple(v for v in verbs if v.has("puts"))
        self.reflexive = tuple(v for v in plain if v.reflexive)
        self.datives = tuple(v for v in verbs if v.has("dative"))
        self.to = tuple(v for v in verbs if v.to is not None)
        self.goals = tuple(v for v in plain if v.has("goal") or v.has("enter"))
        self.destinations = tuple(n for n in nouns if n.there and n.there[0] == "à")
        self.enterable = tuple(
            n for n in nouns if n.there and n.there[0] == "dans" and n.kind != "water" and n.lemma != "rue"
        )
        self.seats = self._group("table chaise lit canapé fauteuil")
        self.shelves = self._group("table chaise lit canapé fauteuil étagère")
        self.boxes = self._group("boîte sac panier tiroir valise armoire")
        self.screens = self._group("armoire canapé fauteuil porte")
        self.landmarks = self._group(
            "maison école église hôpital hôtel gare musée théâtre cinéma restaurant château bibliothèque pont parc"
        )
        self.rooms = tuple(noun for noun in nouns if noun.kind == "room")

    @staticmethod
    def _is_said(word: str, said: frozenset[str]) -> bool:
        forms = {"je": ("je", "j'"), "il": ("il", "elle", "-il", "-t-il", "-elle", "-t-elle")}
        forms["ils"] = ("ils", "elles", "-ils", "-elles")
        return any(form in said or f"-{form}" in said for form in forms.get(word, (word,)))

    def _group(self, lemmas: str) -> tuple[Noun, ...]:
        nouns = self.lexicon.nouns
        return tuple(nouns[lemma] for lemma in lemmas.split() if lemma in nouns)

    # Who

    def pronoun(self, person: int, gender: str, kind: str = "person") -> Nominal:
        """A subject pronoun: je tu il nous vous ils."""
        source, target = SUBJECTS[person]
        if gender == "f" and person in (2, 5):
            source = "elle" if person == 2 else "elles"
        if person == 2 and kind != "person":
            target = "it"
        elif person == 2 and gender == "f":
            target = "she"
        return Nominal(Phrase([source], [target], [(0, 0)]), gender, person, kind, pronoun=True)

    def again(self, subject: Nominal) -> Nominal:
        """Return the pronoun that refers to a subject."""
        return self.pronoun(subject.person, subject.gender, subject.kind)

    def name(self) -> Nominal:
        """Return a first name that is not yet in the sentence."""
        name, gender = self.pick(self.lexicon.names)
        if name in self.named:
            raise NothingFits
        self.named.add(name)
        return Nominal(Phrase([name], [name], [(0, 0)]), gender, noun=name)

    def person(self, full: bool = False, other: str = "") -> Nominal:
        """Return a person other than `other`: a pronoun (unless `full`), one or two names, a noun, or a relative."""
        draw = self.random()
        if draw < 0.36 and not full:
            person = self.pick(self.persons)
            if person or not self.asking or self.lexicon is not load():  # questions in the first person are rare
                return self.pronoun(person, "mf"[self.random() < 0.5])
        if draw < 0.60:
            return self.name()
        if draw < 0.66:
            return self.both(self.name(), self.name())
        if draw < 0.84:
            return self.described(self.pick(self.people), other)
        return self.relative_of(other)

    def relative_of(self, other: str = "") -> Nominal:
        """Mon frère, leur voisine, la tante de Marie."""
        noun = self.pick(self.kin if self.chance(0.7) else self.friends)
        if noun.lemma == other:
            raise NothingFits
        if noun.kind == "kin" and self.chance(0.3):
            return self.genitive(noun)
        return self.noun_phrase(noun, "own", self.many(noun, 0.2), owner=self.pick((0, 0, 1, 4, 5, 6)))

    def genitive(self, noun: Noun) -> Nominal:
        """La tante de Marie: Marie's aunt."""
        owner = self.name()
        self.tags.append("genitive")
        thing = self.noun_phrase(noun, "generic")
        phrase = build_phrase([thing, ("de~", "s"), owner], [owner, ("'s", "s"), thing])
        return Nominal(phrase, noun.gender, 2, thing.kind, noun.lemma)

    def both(self, one: Nominal, other: Nominal) -> Nominal:
        """Join two nominals with "et"."""
        self.tags.append("coordination")
        phrase = build_phrase([one, ("et", "and"), other], [one, ("and", "and"), other])
        gender = "f" if one.gender == other.gender == "f" else "m"
        return Nominal(phrase, gender, 5, one.kind, one.noun)

    def described(self, noun: Noun, other: str = "") -> Nominal:
        """Return a noun as subject, with a determiner and possibly an adjective."""
        if noun.lemma == other:
            raise NothingFits
        draw, plural = self.random(), self.many(noun, 0.28)
        adjective = self.attribute(noun, 0.25)
        if draw < 0.12:
            return self.noun_phrase(noun, "this", plural, adjective=adjective)
        if draw < 0.32 and not self.asking and noun.counted:
            plain = draw < 0.22 or plural
            some = (
                self.numbered(noun, adjective) if plain else self.noun_phrase(noun, "indefinite", adjective=adjective)
            )
            some.loose = True
            return some
        return self.noun_phrase(noun, "definite", plural, adjective=adjective)

    def many(self, noun: Noun, probability: float) -> bool:
        """Return whether to use the plural: some things come in pairs, and one has only one father."""
        if noun.lemma in USUALLY_PLURAL:
            return True
        return self.random() < probability and noun.counted and noun.lemma not in NEVER_PLURAL

    # When and how

    def tense_for(self, verb: Verb, subject: Nominal) -> str:
        """Return a tense that the verb can have; `settle` adds the adverb that a habit needs."""
        draw = self.random()
        human = subject.kind == "person"
        if verb.has("stative") and not verb.has("event"):
            return "present" if draw < 0.72 else "imperfect"
        if draw < 0.30 and not verb.has("punctual"):
            return "present"
        if draw < 0.38 and not verb.has("stative"):
            return "habit"
        if draw < 0.42 and not verb.has("particular") and not verb.has("stative") and not verb.has("punctual"):
            return "used"
        if draw < 0.66:
            return "past"
        if draw < 0.76 and not verb.has("punctual") and not self.asking:
            return "imperfect"
        if (draw < 0.87 and verb.key != "chercher") or not human or not self.modals or verb.has("mishap"):
            return "future"
        modal = self.pick(self.modals)
        return "can" if modal == "know" and not verb.has("skill") and "can" in self.modals else modal

    def negator_for(self, subject: Nominal, verb: Verb, tense: str) -> str:
        """Return a negation that suits the tense, or none."""
        if (self.asking or subject.loose) and not self.can_affirm:
            raise NothingFits
        if subject.loose:
            return ""  # a plane is not leaving: which of them?
        if self.can_affirm and (self.asking or not self.chance(0.24)):
            return ""
        negator = self.pick(self.negators)
        simple = tense in ("present", "imperfect")
        state = verb.has("stative") and not verb.has("event") and verb.french != ETRE
        allowed = {
            "pas": tense not in ("habit", "used"),
            "jamais": (simple or tense == "past") and not verb.has("particular") and not state,
            "plus": simple and not verb.has("punctual"),
        }
        if allowed[negator]:
            self.reserve("negation", verb.french, negator)
            self.tags.append("negation")
            return negator
        if self.can_affirm:
            return ""
        raise NothingFits

    def start(self, verb: Verb, subject: Nominal, tense: str = "") -> Clause:
        """Return a clause with tense and negation; object, place and time are added later."""
        if tense:
            state = verb.has("stative") and not verb.has("event")
            momentary = verb.has("punctual") and tense in ("present", "imperfect")
            if momentary or (state and tense not in ("present", "imperfect", "want", "can")):
                raise NothingFits
        tense = tense or self.tense_for(verb, subject)
        negator = self.negator_for(subject, verb, tense)
        if subject.loose and tense in ("habit", "used"):
            raise NothingFits  # four singers who often cry
        return Clause(subject, verb, tense, negator)

    def settle(self, clause: Clause) -> Clause:
        """Add an adverb of habit if the tense needs one, and otherwise possibly a time."""
        tense = clause.tense
        beast = clause.verb.has("animal") and clause.subject.kind != "person"
        if beast and tense in ("past", "future"):
            return clause  # no one knows when the hen is going to sleep
        if tense == "habit":
            if self.chance(0.6) or beast:
                clause.adverb = self.pick([habit for habit in self.habits if not self.asking or habit[0] == "souvent"])
                self.tags.append("adverb")
            else:
                clause.time = self.when("habit")
        elif tense == "used":
            clause.front = self.when("once") if self.chance(0.6) else None
            clause.time = None if clause.front else self.when("habit")
        elif tense == "past" and clause.negator != "jamais" and self.chance(0.35):
            self.at_time(clause, "past")
        elif tense in ("future", "can", "must", "want") and self.chance(0.3):
            self.at_time(clause, "future")
        elif is_progressive(clause) and tense == "present" and self.chance(0.15):
            self.at_time(clause, "now")
        return clause

    def at_time(self, clause: Clause, name: str) -> None:
        """Add a time at the end, or in a statement possibly at the beginning."""
        time = self.when(name, clause.verb.french in VERBS_DATED_BY_WEEK)
        if self.asking or self.chance(0.7):
            clause.time = time
        else:
            clause.front = time

    def when(self, name: str, lasting: bool = False) -> Phrase:
        """Return a time; only `lasting` actions are dated by weeks and years."""
        if name in ("past", "future", "habit") and self.chance(0.25):
            day, word = self.pick(self.lexicon.days)
            if name == "habit":
                return build_phrase([("le*", "on"), (day, "day")], [("on", "on"), (word + "s", "day")])
            last = ("dernier", "last") if name == "past" else ("prochain", "next")
            return build_phrase([(day, "day"), (last[0], "l")], [(last[1], "l"), (word, "day")])
        source, target = self.pick(self.times[name])
        if source.startswith("la* ") and not lasting:
            raise NothingFits
        words = target.split()
        if len(words) == len(source.split()) == 2 and source[0] in "hdc":  # hier soir, demain matin, ce soir
            return literal(source, target)
        if source.startswith("la* "):  # la semaine dernière: last week
            _, noun, adjective = source.split()
            return build_phrase([("la*",), (noun, "n"), (adjective, "a")], [(words[0], "a"), (words[1], "n")])
        return fixed(source, target)

    # Where

    def at(self, noun: Noun, towards: bool = False, adjective: bool = True) -> Phrase:
        """Return a phrase for being at or going to a place."""
        self.tags.append("place")
        source, at, to = noun.there
        bare = noun.lemma == "école"  # at school
        described = self.attribute(noun, 0.12) if adjective and not bare else None
        place = self.noun_phrase(noun, "generic" if bare else "definite", adjective=described)
        word = "à*" if source == "à" else source
        return build_phrase([(word, "p"), place], [(to if towards else at, "p"), place])

    def town(self, towards: bool = False) -> Phrase:
        """À Paris."""
        source, target = self.pick(self.lexicon.cities)
        self.tags.append("place")
        return Phrase(["à", source], ["to" if towards else "in", target], [(0, 0), (1, 1)])

    def country(self, towards: bool = False) -> Phrase:
        """En France, au Japon."""
        source, gender, target = self.pick(self.lexicon.countries)
        self.tags.append("place")
        word = "to" if towards else "in"
        if gender == "f":
            return Phrase(["en", source], [word, target], [(0, 0), (1, 1)])
        return build_phrase([("à*", "p"), ("le*",), (source, "n")], [(word, "p"), (target, "n")])

    def home_of(self, subject: Nominal, towards: bool = False) -> Phrase:
        """Chez Paul: at Paul's house."""
        self.tags.append("place")
        owner = self.name() if self.chance(0.6) else self.relative_of(subject.noun)
        if owner.plural or "'s" in owner.english:
            raise NothingFits  # the neighbours' house would end in an apostrophe, and one 's is enough
        word = "to" if towards else "at"
        return build_phrase([("chez", "p"), owner], [(word, "p"), owner, ("'s", "p"), ("house", "p")])

    def place_for(self, verb: Verb, subject: Nominal, awaited: str = "") -> Phrase:
        """Return a place that suits the verb; a train that is `awaited` is at a station, not at an airport."""
        draw = self.random()
        if subject.kind != "person" and verb.has("animal"):
            return self.at(self.pick([n for n in verb.places if n.lemma in PASTURES]))
        if verb.has("home") and draw < 0.2 and subject.kind == "person":
            return self.home_of(subject)
        if verb.has("country") and draw < 0.4:
            return self.country()
        if verb.has("city") and (draw < 0.6 or not verb.places):
            return self.town()
        terminus = STATIONS.get(awaited or subject.noun)
        return self.at(self.pick([n for n in verb.places if not terminus or n.lemma == terminus]))

    def near(self, noun: Noun) -> Phrase:
        """Return where a thing, an animal or a person is: sur la table, derrière l'église."""
        kind = noun.kind
        if kind in ("person", "job", "kin", "vehicle"):
            return self.next_to(self.pick(self.landmarks), ("devant", "derrière", "à côté de~", "près de~"))
        if kind == "pet":
            if self.chance(0.6):
                return self.next_to(self.pick(self.seats), ("sous", "derrière", "à côté de~", "devant"))
            return self.next_to(self.pick(self._group("maison jardin école ferme")), ("devant", "derrière", "près de~"))
        if kind in ("flyer", "wild", "farm"):
            if self.chance(0.5):
                return self.at(self.pick(self._group("forêt champ jardin parc")))
            return self.next_to(self.pick(self._group("arbre lac rivière ferme maison")), ("près de~", "à côté de~"))
        if kind == "furniture":
            return self.at(self.pick(self.rooms))
        draw = self.random()
        if draw < 0.4:
            return self.next_to(self.pick(self.shelves), ("sur", "à côté de~"))
        if draw < 0.6:
            return self.next_to(self.pick(self.seats), ("sous",))
        if kind == "container":
            return self.next_to(self.pick(self.screens), ("derrière", "devant"))
        return self.next_to(self.pick(self.boxes), ("dans",))

    def next_to(self, noun: Noun, prepositions: Sequence[str]) -> Phrase:
        """Return a preposition of place and its noun."""
        preposition = self.pick(prepositions)
        self.tags.append("place")
        place = self.noun_phrase(noun, "definite", adjective=self.attribute(noun, 0.12))
        source: list[Item] = [("à" if word == "à" else word, "p") for word in preposition.split()]
        return build_phrase([*source, place], [*((word, "p") for word in PREPOSITIONS[preposition].split()), place])

    # What

    def object_for(self, clause: Clause, noun: Noun) -> Nominal:
        """Return an object with the determiner that tense, negation and noun require."""
        verb = clause.verb
        if noun.lemma == clause.subject.noun:
            raise NothingFits
        if noun.kind in ("person", "job", "kin"):
            return self.someone(clause, noun)
        self.reserve_object(verb, noun)
        if noun.kind == "language":
            return self.noun_phrase(noun, "generic")
        if verb.has("likes"):
            return self.liked(clause, noun)
        if verb.french == "avoir" and clause.negator == "plus":
            return self.noun_phrase(noun, "none", self.many(noun, 0.3), "zero")
        habitual = clause.tense in ("habit", "used") or clause.negator in ("jamais", "plus")
        if habitual and noun.kind in CONSUMED_KINDS:
            determiner = "none" if clause.negator else "indefinite"
            return self.noun_phrase(noun, determiner, noun.counted, "zero", self.attribute(noun, 0.15, verb.not_yet))
        return self.particular(clause, noun, habitual)

    def reserve_object(self, verb: Verb, noun: Noun) -> None:
        """Record the combination of a verb and its object; verbs with few objects keep all of them for training."""
        if verb.variety > 5:
            self.reserve("object", verb.key, noun.lemma)

    def particular(self, clause: Clause, noun: Noun, habitual: bool = False, owned: bool = True) -> Nominal:
        """Return a specific object, possibly with a possessive if `owned`."""
        adjective, draw = self.attribute(noun, but=clause.verb.not_yet), self.random()
        if noun.kind in OWNED_KINDS and owned and (draw < 0.2 or (habitual and noun.kind not in ("vehicle", "pet"))):
            owner = self.owner(clause.subject)
            plural = self.many(noun, 0.25) or (noun.kind == "clothes" and owner in (4, 5, 6))  # they wear their hats
            return self.noun_phrase(noun, "own", plural, adjective=adjective, owner=owner)
        if draw < 0.5 and not habitual:
            plural = self.many(noun, 0.35)
            if clause.negator:
                return self.noun_phrase(noun, "none", plural, "any", adjective if plural else None)
            if self.asking and (plural or not noun.counted):
                raise NothingFits  # some or any?
            return self.noun_phrase(noun, "indefinite", plural, "some", adjective)
        if draw < 0.6 and noun.counted and not clause.negator and not habitual and not self.asking:
            return self.numbered(noun, adjective)
        if draw < 0.7 and noun.counted and not habitual:
            return self.noun_phrase(noun, "this", self.many(noun, 0.3), adjective=adjective)
        if clause.verb.french == "avoir":
            raise NothingFits  # one has a car, not the car
        return self.noun_phrase(noun, "definite", self.many(noun, 0.25), adjective=adjective)

    def owner(self, subject: Nominal) -> int:
        """Return the owner of an object: the subject, or me, you, us; son always refers to the subject."""
        if self.chance(0.7) and subject.kind != "who":
            return subject.owner
        return self.pick((0, 4, 5 if subject.owner == 5 else 1))

    def someone(self, clause: Clause, noun: Noun) -> Nominal:
        """Return a person as object."""
        if self.chance(0.3):
            return self.name()
        self.reserve_object(clause.verb, noun)
        if noun.kind == "kin" or (noun.lemma in OWNED_PEOPLE and self.chance(0.5)):
            return self.noun_phrase(noun, "own", self.many(noun, 0.2), owner=self.owner(clause.subject))
        determiner = "this" if self.chance(0.15) else "definite"
        return self.noun_phrase(noun, determiner, self.many(noun, 0.25), adjective=self.attribute(noun, 0.25))

    def liked(self, clause: Clause, noun: Noun) -> Nominal:
        """Return something one likes, mostly in general: les pommes, apples."""
        draw = self.random()
        if draw < 0.15 and noun.kind in OWNED_KINDS and noun.kind not in ("fruit", "baked"):
            return self.noun_phrase(noun, "own", self.many(noun, 0.4), owner=self.owner(clause.subject))
        if draw < 0.3:
            return self.noun_phrase(noun, "this", self.many(noun, 0.2), adjective=self.attribute(noun))
        self.tags.append("generic-article")
        return self.noun_phrase(noun, "generic", noun.counted)

    def be(self) -> Verb:
        """Return the verb être."""
        return load().verbs["être"]

    def feeling_verb(self) -> Verb:
        """Return avoir, translated as "to be": avoir faim, to be hungry."""
        return replace(load().verbs["avoir"], english=self.be().english)


PREPOSITIONS = {
    "sur": "on",
    "sous": "under",
    "dans": "in",
    "devant": "in front of",
    "derrière": "behind",
    "à côté de~": "next to",
    "près de~": "near",
}
DATIVES = {person: pair for person, pair in enumerate(OBJECTS) if pair[0]} | {5: (Word("leur", "PRON"), "them")}
