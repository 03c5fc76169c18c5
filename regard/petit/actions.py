"""Clauses about what people do, feel and are, and their forms as statements and questions."""

from collections.abc import Callable, Sequence

from regard.petit.clauses import MANNERS, ClauseGenerator
from regard.petit.grammar import (
    COMPOUND,
    MODALS,
    Clause,
    Item,
    Nominal,
    NothingFits,
    Phrase,
    build_phrase,
    english_group,
    french_group,
)
from regard.petit.lexicon import Adjective, Lexicon, Noun, Verb, load

TEMPORARY_STATES = (  # states that can begin and end
    *("heureux", "triste", "fatigué", "malade", "content", "calme", "gentil", "sérieux", "patient", "méchant"),
    *("timide", "drôle", "paresseux", "curieux", "propre", "sale", "ouvert", "fermé", "plein", "vide"),
)
Act = Callable[[Nominal | None, str], Clause]


class ActionGenerator(ClauseGenerator):
    """Generates clauses about what people do, feel and are, as statements and questions."""

    def __init__(
        self, random: Callable[[], float], lexicon: Lexicon | None = None, said: frozenset[str] | None = None
    ) -> None:
        super().__init__(random, lexicon, said)
        acts: list[tuple[int, Act, Sequence[object]]] = [
            (26, self.acting, self.transitive),
            (16, self.doing, self.human),
            (7, self.washing, self.reflexive),
            (7, self.going, self.goals),
            (5, self.giving, self.datives),
            (3, self.talking, self.to),
            (4, self.playing, [v for v in self.human if v.key == "jouer"]),
            (4, self.feeling, self.feelings),
            (3, self.putting, self.putters),
        ]
        self.acts = [make for weight, make, needed in acts if needed for _ in range(weight)]

    def act(self, subject: Nominal | None = None, tense: str = "") -> Clause:
        """Return a random action."""
        return self.pick(self.acts)(subject, tense)

    # Clauses; each uses the given subject or chooses one

    def acting(self, subject: Nominal | None = None, tense: str = "") -> Clause:
        """Someone does something to something."""
        verb = self.pick(self.transitive)
        clause = self.start(verb, subject or self.person(), tense)
        thing = self.object_for(clause, self.pick(verb.objects))
        clause.add(thing)
        return self.finish(clause, thing.noun)

    def finish(self, clause: Clause, awaited: str = "") -> Clause:
        """Add a place and a time."""
        verb = clause.verb
        placed = verb.places or verb.has("city") or verb.has("home")
        moving = clause.tense in ("present", "imperfect") and verb.has("stative")
        if placed and not moving and self.chance(0.3):
            clause.add(self.place_for(verb, clause.subject, awaited))
        return self.settle(clause)

    def doing(self, subject: Nominal | None = None, tense: str = "") -> Clause:
        """Someone does something."""
        verb = self.pick(self.human)
        return self.done(verb, subject or self.person(), tense)

    def done(self, verb: Verb, subject: Nominal, tense: str = "") -> Clause:
        """Return a clause with an intransitive verb, possibly with an adverb of manner."""
        if verb.has("placed"):
            clause = self.start(verb, subject, tense)
            clause.add(self.place_for(verb, subject))
            return self.settle(clause)
        if verb.manner and self.chance(0.25):
            return self.somehow(verb, subject, tense)
        return self.finish(self.start(verb, subject, tense))

    def somehow(self, verb: Verb, subject: Nominal, tense: str) -> Clause:
        """Someone does something well or badly, fast or slowly."""
        manner = self.pick(verb.manner)
        clause = self.start(verb, subject, tense)
        if clause.negator in ("jamais", "plus") or clause.tense in ("habit", "used"):
            raise NothingFits
        if manner == "well" and clause.tense in COMPOUND:
            raise NothingFits  # bien travailler: before an infinitive the adverb would move
        if manner == "well" and clause.tense == "present":
            clause.tense = "habit"  # elle chante bien: she sings well
        self.tags.append("adverb")
        source, target = self.pick(MANNERS[manner])
        word = Phrase([source], [target], [(0, 0)])
        if manner == "well" and clause.tense == "past":  # elle a bien chanté
            clause.adverb = (source, "")
            clause.english_after.append((target, "adverb"))
        else:
            clause.add(word)
        if clause.tense in ("past", "future") and self.chance(0.3):
            self.at_time(clause, clause.tense)
        return clause

    def washing(self, subject: Nominal | None = None, tense: str = "") -> Clause:
        """A reflexive verb."""
        verb = self.pick(self.reflexive)
        subject = subject or self.person()
        if not verb.has("own"):
            return self.finish(self.start(verb, subject, tense))
        clause = self.start(verb, subject, tense)
        noun = self.pick(verb.objects)
        part = self.noun_phrase(noun, "generic", noun.lemma != "visage")
        own = self.noun_phrase(noun, "own", noun.lemma != "visage", owner=subject.owner)
        self.tags.remove("possessive")
        clause.add(Phrase(part.french, own.english, own.links))  # se laver les mains: to wash one's hands
        return self.settle(clause)

    def going(self, subject: Nominal | None = None, tense: str = "") -> Clause:
        """Someone goes or comes somewhere."""
        verb = self.pick(self.goals)
        subject = subject or self.person()
        clause = self.start(verb, subject, tense)
        draw = self.random()
        if verb.has("enter"):
            clause.add(self.at(self.pick(self.enterable), towards=True))
        elif draw < 0.2:
            clause.add(self.home_of(subject, towards=True))
        elif draw < 0.5:
            clause.add(self.town(towards=True) if self.chance(0.6) else self.country(towards=True))
        else:
            clause.add(self.at(self.pick(self.destinations), towards=True, adjective=False))
        return self.settle(clause)

    def giving(self, subject: Nominal | None = None, tense: str = "") -> Clause:
        """Someone gives something to someone."""
        clause = self.start(self.pick(self.datives), subject or self.person(), tense)
        clause.add(self.given(clause))
        clause.add(self.recipient(clause, "to"))
        return self.settle(clause)

    def given(self, clause: Clause) -> Nominal:
        """Return the thing that is given; for habits, something one can give repeatedly."""
        if clause.tense in ("habit", "used") or clause.negator in ("jamais", "plus"):
            noun = self.pick(clause.verb.objects)
            determiner = "none" if clause.negator else "indefinite"
            return self.noun_phrase(noun, determiner, True, "zero")
        return self.particular(clause, self.pick(clause.verb.objects), owned=False)

    def recipient(self, clause: Clause, word: str) -> Phrase:
        """À Marie, au voisin: to Marie, to the neighbour; some English verbs need no word for it."""
        person = self.name() if self.chance(0.5) else self.someone(clause, self.pick(self.people + self.kin))
        if person.noun == clause.subject.noun:
            raise NothingFits
        return build_phrase([("à*", "p"), person], [(word, "p"), person] if word else [person])

    def putting(self, subject: Nominal | None = None, tense: str = "") -> Clause:
        """Someone puts something somewhere."""
        verb = self.pick(self.putters)
        clause = self.start(verb, subject or self.person(), tense)
        if clause.negator in ("jamais", "plus") or clause.tense in ("habit", "used"):
            raise NothingFits
        noun = self.pick(verb.objects)
        clause.add(self.object_for(clause, noun))
        on = self.chance(0.5)
        clause.add(self.next_to(self.pick(self.shelves if on else self.boxes), ("sur",) if on else ("dans",)))
        if noun.lemma in (place.lemma for place in self.shelves + self.boxes):
            raise NothingFits  # a bag in a bag
        return self.settle(clause)

    def talking(self, subject: Nominal | None = None, tense: str = "") -> Clause:
        """Someone talks to someone."""
        verb = self.pick(self.to)
        clause = self.start(verb, subject or self.person(), tense)
        clause.add(self.recipient(clause, verb.to or ""))
        return self.finish(clause)

    def playing(self, subject: Nominal | None = None, tense: str = "") -> Clause:
        """Someone plays football or the piano."""
        verb = self.pick([v for v in self.human if v.key == "jouer"])
        clause = self.start(verb, subject or self.person(), tense)
        clause.add(self.game())
        return self.settle(clause)

    def game(self) -> Phrase:
        """Au football, du piano."""
        nouns = [noun for noun in self.lexicon.nouns.values() if noun.kind in ("game", "instrument")]
        noun = self.pick(nouns)
        if noun.kind == "instrument":
            thing = self.noun_phrase(noun, "definite")
            return build_phrase([("de~",), thing], [thing])
        article = "les*" if noun.gender[1:] else "le*"
        return build_phrase([("à*",), (article,), (noun.lemma, "n")], [(noun.english[0][0], "n")])

    def feeling(self, subject: Nominal | None = None, tense: str = "") -> Clause:
        """Someone is hungry."""
        source, target = self.pick(self.feelings)
        tense = tense if tense in ("present", "imperfect") else self.pick(("present", "present", "imperfect"))
        clause = Clause(subject or self.person(), self.feeling_verb(), tense)
        if source in ("faim", "soif", "froid", "chaud", "peur"):
            clause.negator = self.negator_for(clause.subject, clause.verb, "used" if self.asking else tense)
        elif not self.can_affirm:
            raise NothingFits
        self.tags.append("avoir-idiom")
        clause.add(Phrase([source], [target], [(0, 0)]))
        return clause

    def being(self, subject: Nominal, nouns: tuple[Noun, ...], tense: str = "", but: Sequence[str] = ()) -> Clause:
        """Return a clause with an adjective that suits one of `nouns`, except those in `but`."""
        if subject.loose:
            raise NothingFits  # thirteen lawyers are kind
        adjective = self.pick([a for a in self.predicates_of(self.pick(nouns)) if a.lemma not in but])
        clause = Clause(subject, self.be(), tense or self.pick(("present", "present", "imperfect")))
        clause.negator = self.negator_for(subject, clause.verb, clause.tense)
        if clause.negator in ("jamais", "plus") and adjective.lemma not in TEMPORARY_STATES:
            raise NothingFits
        return self.said_of(clause, adjective)

    def said_of(self, clause: Clause, adjective: Adjective) -> Clause:
        """Add an adjective that agrees with the subject."""
        subject = clause.subject
        form = adjective.agree(subject.gender, subject.plural)
        self.note_agreement(adjective.forms[0], form, subject.plural)
        meaning = adjective.english
        if adjective.lemma == "beau":  # handsome men, beautiful women
            meaning = "handsome" if subject.kind == "person" and subject.gender == "m" else "beautiful"
        clause.add(Phrase([form], [meaning], [(0, 0)]))
        return clause

    def predicates_of(self, noun: Noun) -> tuple[Adjective, ...]:
        """Return the predicative adjectives that can describe a noun."""
        return tuple(a for a in self.lexicon.adjectives if noun.lemma in a.nouns and "-only" not in a.position)

    def human_adjectives(self) -> tuple[Noun, ...]:
        """Return a noun whose adjectives suit any person."""
        return (load().nouns["père"],)

    # From clauses to phrases

    def statement(self, clause: Clause) -> Phrase:
        """Return a clause as a statement: subject, verb, and the rest."""
        self.note(clause)
        before, finite, label, after = french_group(clause, False)
        first, rest = english_group(clause, False)
        front: list[Item] = [clause.front, (",", "comma")] if clause.front else []
        end: list[Item] = [clause.time] if clause.time else []
        source = [*front, clause.subject, *before, (finite, label), *after, *clause.french_after, *end]
        target = [*front, clause.subject, *first, *rest, *clause.english_after, *end]
        return build_phrase(source, target)

    def question(self, clause: Clause, asked: tuple[list[Item], list[Item]], inverted: bool = False) -> Phrase:
        """Return a clause as a question: with est-ce que, or with the subject (or its pronoun) after the verb."""
        self.note(clause)
        self.tags.append("question")
        before, finite, label, after = french_group(clause, True)
        first, rest = english_group(clause, True)
        subject, end = clause.subject, [clause.time] if clause.time else []
        source: list[Item] = list(asked[0])
        if inverted:
            self.tags.append("inversion")
            link = ("s",) if subject.pronoun else ()
            turned: Item = (hyphenated(subject, finite), *link)
            source += [] if subject.pronoun else [subject]
            source += [*before, (finite, label), turned]
            first = [*first]
        else:
            source += [("est-ce", "q"), ("que~", "q"), subject, *before, (finite, label)]
            first = [_asked(first[0]), *first[1:]]
        source += [*after, *clause.french_after, *end]
        who: Item = (subject.english[0], "s") if inverted and subject.pronoun else subject
        return build_phrase(source, [*asked[1], *first, who, *rest, *clause.english_after, *end])

    def note(self, clause: Clause) -> None:
        """Tag the phenomena of a clause's verb; a sentence may have only one time."""
        tense, verb, subject = clause.tense, clause.verb, clause.subject
        if clause.front or clause.time:
            if self.dated:
                raise NothingFits
            self.dated = True
        if verb.reflexive:
            self.tags.append("reflexive")
        if tense == "past":
            etre = verb.reflexive or verb.has("etre")
            self.tags.append("passe-compose-etre" if etre else "passe-compose-avoir")
            changed = clause.agreement or ((subject.gender, subject.plural) if etre else ("m", False))
            if changed != ("m", False) and not verb.has("own"):
                self.tags.append("participle-agreement")
        elif tense in ("imperfect", "used"):
            self.tags.append("imparfait")
        elif tense == "future":
            self.tags.append("futur-proche")
        if tense in MODALS:
            self.tags.append("modal")
            if tense in ("could", "wanted"):
                self.tags.append("imparfait")

    def stop(self, phrase: Phrase, mark: str) -> Phrase:
        """Add the final punctuation."""
        end: Item = (mark, "stop")
        return build_phrase([phrase, end], [phrase, end])

    def sentence(self, clause: Clause) -> Phrase:
        """Return a clause as a complete sentence."""
        return self.stop(self.statement(clause), ".")


def hyphenated(subject: Nominal, finite: str) -> str:
    """Return the pronoun that follows its verb: -il, -t-elle."""
    pronoun = subject.french[0].rstrip("~")
    if not subject.pronoun:
        pronoun = ("elle" if subject.gender == "f" else "il") + ("s" if subject.plural else "")
    if pronoun == "je":
        raise NothingFits  # mangé-je is for poets
    return f"-t-{pronoun}" if finite[-1] in "ae" and subject.person == 2 else f"-{pronoun}"


def _asked(first: Item) -> Item:
    """The English word that asks, linked to est-ce que; do and does stand for nothing else."""
    assert isinstance(first, tuple)
    return (first[0], "q") if first[0] in ("do", "does") else (*first, "q")
