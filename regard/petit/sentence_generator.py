"""Generates every kind of Petit sentence: statements, questions, commands, relative clauses and joined clauses."""

from collections.abc import Callable
from dataclasses import dataclass

from regard.petit.grammar import (
    RELATIVE_QUE,
    Clause,
    Item,
    Nominal,
    NothingFits,
    Phrase,
    build_phrase,
    english_group,
    french_group,
    is_progressive,
)
from regard.petit.lexicon import Lexicon, Noun
from regard.petit.parts_of_speech import Word
from regard.petit.simple_sentences import SAME_PERSONS, SimpleSentenceGenerator

_TIRED, _GLAD, _SAD = ("fatigué", "malade", "sommeil"), ("heureux", "content"), ("triste", "malade")
REASONS: dict[str, tuple[str, ...]] = {  # which feelings explain which actions
    **dict.fromkeys(("dormir", "coucher", "reposer", "endormir", "rester"), _TIRED),
    **dict.fromkeys(("rentrer", "partir"), (*_TIRED, *_SAD, "froid", "peur")),
    **dict.fromkeys(("chanter", "danser", "rire", "sourire", "jouer", "promener", "embrasser", "remercier"), _GLAD),
    **dict.fromkeys(("sortir", "inviter", "téléphoner", "écrire", "aller", "voyager"), (*_GLAD, "triste")),
    **dict.fromkeys(("manger", "cuisiner", "préparer", "couper"), ("faim",)),
    **dict.fromkeys(("cacher", "courir"), ("peur",)),
    "pleurer": (*_SAD, "peur", "fatigué"),
    "boire": ("soif",),
    "porter": ("froid",),
    "fermer": ("froid", "peur"),
    "ouvrir": ("chaud",),
    "baigner": ("chaud",),
    "nager": ("chaud",),
    "marcher": ("froid", "heureux"),
}
FEELINGS_ASKED = ("heureux", "triste", "fatigué", "malade", "content", "faim", "soif", "froid", "chaud", "peur")
TU_FORMS = frozenset(("tu", "-tu", "te~", "toi", "-toi", "ton", "ta", "tes"))
VOUS_FORMS = frozenset(("vous", "-vous", "votre", "vos"))
SEQUELS = (  # two actions in a row on the same thing
    ("acheter", "manger"),
    ("acheter", "lire"),
    ("acheter", "boire"),
    ("préparer", "manger"),
    ("couper", "manger"),
    ("cueillir", "manger"),
    ("réparer", "vendre"),
    ("laver", "vendre"),
    ("trouver", "cacher"),
    ("choisir", "acheter"),
    ("commencer", "finir"),
    ("écrire", "lire"),
    ("perdre", "trouver"),
    ("casser", "réparer"),
    ("peindre", "vendre"),
)


@dataclass(slots=True)
class Sentence:
    """A generated sentence before elision and contraction."""

    phrase: Phrase
    tags: list[str]
    reserved: bool


class SentenceGenerator(SimpleSentenceGenerator):
    """Generates random complete sentences."""

    def __init__(
        self, random: Callable[[], float], lexicon: Lexicon | None = None, said: frozenset[str] | None = None
    ) -> None:
        super().__init__(random, lexicon, said)
        end = {".", "?", "!"} if said is None else {".", "?", "!"} & said
        makers = [
            (
                weight * 10 if said and cue else weight,
                make,
            )  # when searching for one sentence, prefer the kinds that its words suggest
            for stop, cue, weight, make in self._kinds()
            if stop in end and _is_possible(cue, said)
        ]
        self.makers = [make for weight, make in makers for _ in range(weight)]

    def _kinds(self) -> list[tuple[str, str, int, Callable[[], Phrase]]]:
        """Return the kinds of sentences: final mark, French words of which one is needed, weight and method."""
        return [
            (".", "", 300, self.plain),
            (".", "", 60, self.beast),
            (".", "", 60, self.description),
            (".", "", 25, self.profession),
            (".", "", 45, self.whereabouts),
            (".", "", 80, self.object_pronoun),
            (".", "", 45, self.indirect_pronoun),
            (".", "lui", 20, self.to_him_or_her),
            (".", "que qu'", 55, self.comparison),
            (".", "y", 45, self.there_is),
            (".", "voici", 10, self.here_is),
            (".", "c' ce", 25, self.it_is),
            (".", "ans", 12, self.age),
            (".", "il", 16, self.weather),
            (".", "parle parles parlons parlez parlent parlait parler", 14, self.speaking),
            (".", "qui", 60, self.with_qui),
            (".", "que qu'", 60, self.with_que),
            (".", "et mais", 60, self.joined),
            (".", "et", 30, self.bought_and_ate),
            (".", "parce", 40, self.because),
            (".", "quand", 30, self.interrupted),
            (".", "que qu'", 35, self.opinion),
            ("?", "est-ce", 60, self.est_ce_que),
            ("?", "", 40, self.inversion),
            ("?", "où", 30, self.where),
            ("?", "quand pourquoi", 35, self.when_or_why),
            ("?", "qui", 20, self.who),
            ("?", "qu'", 20, self.what),
            ("?", "combien", 18, self.how_many),
            ("!", "", 25, self.command),
            ("!", "-moi -nous", 10, self.give_me),
            ("!", "si s'", 12, self.if_hungry),
        ]

    def generate(self) -> Sentence:
        """Return a random sentence."""
        while True:
            sentence = self.try_generate()
            if sentence:
                return sentence

    def try_generate(self) -> Sentence | None:
        """Return a random sentence, or None if the random choices do not fit together."""
        self.tags, self.reserved, self.asking, self.dated = [], False, False, False
        self.named.clear()
        try:
            phrase = self.pick(self.makers)()
        except NothingFits:
            return None
        if not (TU_FORMS.isdisjoint(phrase.french) or VOUS_FORMS.isdisjoint(phrase.french)):
            return None  # tu and vous are both "you" in English
        return Sentence(phrase, self.tags, self.reserved)

    # Relative clauses

    def antecedent(self) -> tuple[Noun, Nominal]:
        """Return a person or an animal as the head of a relative clause."""
        animals = tuple(n for n in self.lexicon.nouns.values() if n.kind in ("pet", "farm"))
        noun = self.pick(self.people if self.chance(0.8) or not animals else animals)
        return noun, self.noun_phrase(noun, "definite", self.many(noun, 0.25))

    def who_does(self, noun: Noun, head: Nominal, tense: str) -> Nominal:
        """La femme qui chante."""
        self.tags.append("relative-qui")
        word = "who" if head.kind == "person" else "that"
        who = Nominal(Phrase(["qui"], [word], [(0, 0)]), head.gender, head.person, head.kind, noun.lemma)
        if head.kind == "person":
            clause = self.pick((self.doing, self.acting, self.acting))(who, tense)
        else:
            clause = self.done(self.pick([v for v in self.bestial if noun in v.subjects]), who, tense)
        if (clause.verb.has("punctual") and tense != "past") or (clause.negator and is_progressive(clause)):
            raise NothingFits  # qui ne fume pas: who does not smoke, or is not smoking?
        clause.front = clause.time = None
        relative = self.statement(clause)
        return Nominal(
            build_phrase([head, relative], [head, relative]), head.gender, head.person, head.kind, noun.lemma
        )

    def with_qui(self) -> Phrase:
        """La femme qui chante est contente; je connais la femme qui chante."""
        noun, head = self.antecedent()
        if self.chance(0.55):
            tense, later = self.pick((("present", "present"), ("past", "present"), ("imperfect", "imperfect")))
            return self.sentence(self.being(self.who_does(noun, head, tense), (noun,), later))
        key = self.pick(("connaître", "voir", "chercher", "attendre", "aider", "regarder-quelqu'un"))
        verb = self.lexicon.verbs.get(key)
        if not verb or (head.kind != "person" and key not in ("voir", "chercher", "regarder-quelqu'un")):
            raise NothingFits
        subject = self.person(other=noun.lemma)
        tense = self.pick(("present", "imperfect") if key == "connaître" else ("present", "past"))
        clause = self.start(verb, subject, tense)
        clause.add(self.who_does(noun, head, self.pick(("present", "past")) if tense == "present" else "imperfect"))
        return self.sentence(clause)

    def with_que(self) -> Phrase:
        """Le livre que Paul lit est intéressant; la robe qu'elle a achetée est rouge."""
        verb = self.pick([v for v in self.transitive if v.pronoun == "it" or v.key in ("voir", "connaître", "porter")])
        noun = self.pick(verb.objects)
        if noun.kind == "kin":
            raise NothingFits
        plural = self.many(noun, 0.3)
        head = self.noun_phrase(noun, "definite", plural)
        tense = self.pick(("present", "past", "past", "future", "want"))
        if (verb.has("punctual") and tense == "present") or (verb.key == "connaître" and tense != "present"):
            raise NothingFits
        clause = Clause(self.person(other=noun.lemma), verb, tense)
        clause.agreement = (noun.gender, plural)
        self.tags.append("relative-que")
        self.reserve_object(verb, noun)
        statement = self.statement(clause)
        source: list[Item] = [head, (RELATIVE_QUE, "that"), statement]
        thing = Nominal(
            build_phrase(source, [head, ("that", "that"), statement]), noun.gender, head.person, head.kind, noun.lemma
        )
        if self.chance(0.6):
            later = self.pick(("present", "imperfect") if tense == "past" else ("present",))
            but = () if (tense, later) == ("past", "present") else verb.not_yet
            return self.sentence(self.being(thing, (noun,), later, but))
        outer = self.pick(self.transitive)
        if noun not in outer.objects or outer.key == verb.key or outer.has("likes") or outer.french == "avoir":
            raise NothingFits
        clause = self.start(outer, self.person(other=noun.lemma))
        if clause.tense in ("habit", "used", "imperfect") or clause.negator in ("jamais", "plus"):
            raise NothingFits
        if clause.tense == "past" and tense in ("present", "future", "want"):
            raise NothingFits
        clause.add(thing)
        return self.sentence(clause)

    # Clauses joined

    def other_subject(self, subject: Nominal) -> Nominal:
        """Return someone else, never a pronoun that could refer back."""
        if self.chance(0.3):
            person = self.pick([p for p in self.persons if p not in (2, 5, *SAME_PERSONS[subject.person])])
            return self.pronoun(person, "mf"[self.random() < 0.5])
        return self.person(full=True, other=subject.noun)

    def joined(self) -> Phrase:
        """Paul dort et Marie travaille."""
        tense = self.pick(("present", "past", "imperfect", "future"))
        first = self.act(None, tense)
        again = self.chance(0.3)
        second = self.act(self.again(first.subject) if again else self.other_subject(first.subject), tense)
        if _apart(first, second, tense):
            raise NothingFits
        second.front = None
        first.front = None if again else first.front
        self.tags.append("coordination")
        one, other = self.statement(first), self.statement(second)
        if again or self.chance(0.6):
            return self.stop(build_phrase([one, ("et", "and"), other], [one, ("and", "and"), other]), ".")
        comma: Item = (",", "comma")
        return self.stop(build_phrase([one, comma, ("mais", "but"), other], [one, comma, ("but", "but"), other]), ".")

    def bought_and_ate(self) -> Phrase:
        """J'ai acheté une pomme et je l'ai mangée."""
        one, other = self.pick(SEQUELS)
        verbs = self.lexicon.verbs
        if one not in verbs or other not in verbs or not self.can_affirm:
            raise NothingFits
        noun = self.pick([noun for noun in verbs[one].objects if noun in verbs[other].objects])
        tense = self.pick(("past", "past", "future"))
        first = Clause(self.person(other=noun.lemma), verbs[one], tense)
        if first.subject.loose or (tense == "future" and verbs[one].has("mishap")):
            raise NothingFits
        thing = self.object_for(first, noun)
        first.add(thing)
        second = Clause(self.again(first.subject), verbs[other], tense)
        source = "les" if thing.plural else "la~" if noun.gender == "f" else "le~"
        second.agreement = (noun.gender, thing.plural)
        second.clitics.append((source, "o"))
        second.english_after.append(("them" if thing.plural else "it", "o"))
        if self.chance(0.4):
            self.at_time(second, tense)
            first.front, second.front = second.front, None
        self.tags += ["coordination", "object-pronoun"]
        statement, then = self.statement(first), self.statement(second)
        return self.stop(build_phrase([statement, ("et", "and"), then], [statement, ("and", "and"), then]), ".")

    def to_him_or_her(self) -> Phrase:
        """Je connais la voisine et je lui parle souvent: the noun decides that lui means her."""
        verb = self.lexicon.verbs.get(self.pick(("connaître", "aimer-quelqu'un", "aimer-quelqu'un")))
        if not verb or not self.can_affirm:
            raise NothingFits
        first = Clause(self.person(), verb, "present")
        whom = self.someone(first, self.pick(verb.objects))
        if whom.plural or whom.noun == first.subject.noun:
            raise NothingFits
        first.add(whom)
        second = Clause(self.again(first.subject), self.pick(self.to + self.datives), "habit")
        self.tags += ["indirect-pronoun", "coordination"]
        self.spoken_to(second, "lui", "her" if whom.gender == "f" else "him")
        one, other = self.statement(first), self.statement(second)
        return self.stop(build_phrase([one, ("et", "and"), other], [one, ("and", "and"), other]), ".")

    def because(self) -> Phrase:
        """Marie dort parce qu'elle est fatiguée."""
        tense = self.pick(("present", "past", "imperfect"))
        if self.chance(0.25):
            noun = self.pick([n for n in self.things if n.kind in ("pet", "farm")])
            verb = self.pick([v for v in self.bestial if noun in v.subjects])
            first = self.done(verb, self.noun_phrase(noun, "definite", self.many(noun, 0.25)), tense)
            nouns: tuple[Noun, ...] = (noun,)
        else:
            first, nouns = self.act(None, tense), self.human_adjectives()
        if first.negator or first.subject.loose or first.tense != tense:
            raise NothingFits
        why = self.reason(first, nouns, "present" if tense == "present" else "imperfect")
        self.tags.append("subordinate")
        statement, cause = self.statement(first), self.statement(why)
        parce: list[Item] = [("parce", "b"), ("que~", "b")]
        return self.stop(build_phrase([statement, *parce, cause], [statement, ("because", "b"), cause]), ".")

    def reason(self, clause: Clause, nouns: tuple[Noun, ...], tense: str) -> Clause:
        """Return the reason for an action: one sleeps because one is tired."""
        reason = self.pick(REASONS.get(clause.verb.french, ()))
        return self.feels(self.again(clause.subject), reason, nouns, tense)

    def feels(self, subject: Nominal, reason: str, nouns: tuple[Noun, ...], tense: str) -> Clause:
        """Return a clause that says that someone is tired, hungry and so on."""
        for source, target in self.feelings:
            if source == reason and subject.kind == "person":
                self.tags.append("avoir-idiom")
                clause = Clause(subject, self.feeling_verb(), tense)
                clause.add(Phrase([source], [target], [(0, 0)]))
                return clause
        adjective = self.pick([a for a in self.predicates_of(nouns[0]) if a.lemma == reason])
        return self.said_of(Clause(subject, self.be(), tense), adjective)

    def interrupted(self) -> Phrase:
        """Je dormais quand Paul est arrivé."""
        first = self.pick((self.doing, self.acting, self.playing))(None, "imperfect")
        if first.verb.has("stative") or first.verb.has("punctual") or first.negator not in ("", "pas"):
            raise NothingFits
        keys = ("arriver", "revenir", "partir", "sortir")
        verb = self.pick([v for v in self.lexicon.verbs.values() if v.key in keys])
        second = Clause(self.other_subject(first.subject), verb, "past")
        self.tags.append("subordinate")
        statement, then = self.statement(first), self.statement(second)
        quand: Item = (Word("quand", "SCONJ"), "w")
        return self.stop(build_phrase([statement, quand, then], [statement, ("when", "w"), then]), ".")

    def opinion(self) -> Phrase:
        """Je pense que Paul dort."""
        keys = ("penser", "croire", "savoir", "dire", "espérer")
        verb = self.pick([v for v in self.lexicon.verbs.values() if v.key in keys])
        first = Clause(self.person(), verb, "habit")
        subject = first.subject
        if subject.loose:
            raise NothingFits
        if subject.person in (2, 5):
            inner = self.again(subject) if self.chance(0.4) else self.other_subject(subject)
        else:
            inner = self.person()
            if subject.person == 3 and inner.person == 0:
                raise NothingFits  # we think that I am singing
        hope = verb.key == "espérer"
        if self.chance(0.3) and not hope:
            second = self.being(inner, self.human_adjectives())
        else:
            second = self.act(inner, "future" if hope else "")
        second.front = None
        if (second.tense == "used" and not second.time) or (
            hope and (second.tense != "future" or second.verb.has("mishap"))
        ):
            raise NothingFits
        self.tags.append("subordinate")
        statement, what = self.statement(first), self.statement(second)
        return self.stop(build_phrase([statement, ("que~", "t"), what], [statement, ("that", "t"), what]), ".")

    # Questions

    def asked(self, tense: str = "") -> Clause:
        """Return the clause that a question asks about."""
        self.asking = True
        if self.chance(0.12) and not tense:
            return self.feels(self.person(), self.pick(FEELINGS_ASKED), self.human_adjectives(), "present")
        clause = self.act(None, tense)
        if clause.tense == "used" or clause.front:
            raise NothingFits
        return clause

    def est_ce_que(self) -> Phrase:
        """Est-ce que tu dors ?"""
        return self.stop(self.question(self.asked(), ([], [])), "?")

    def inversion(self) -> Phrase:
        """Dors-tu ? Paul dort-il ?"""
        return self.stop(self.question(self.asked(), ([], []), inverted=True), "?")

    def where(self) -> Phrase:
        """Où est le chat ? Où vas-tu ?"""
        self.asking = True
        if not self.can_affirm:
            raise NothingFits
        word: tuple[list[Item], list[Item]] = ([("où", "w")], [("where", "w")])
        if self.chance(0.4):
            _, thing = self.somewhere()
            self.tags.append("question")
            past = self.chance(0.2)
            clause = Clause(thing, self.be(), "imperfect" if past else "present")
            _, finite, label, _ = french_group(clause, True)
            first, _ = english_group(clause, True)
            return self.stop(build_phrase([*word[0], (finite, label), thing], [*word[1], *first, thing]), "?")
        verbs = [v for v in self.lexicon.verbs.values() if v.key in ("acheter", "trouver", "perdre", "cacher")]
        if self.chance(0.4) and verbs:
            verb = self.pick(verbs)
            clause = Clause(self.person(), verb, "past")
            clause.add(self.object_for(clause, self.pick(verb.objects)))
        else:
            placed = [v for v in self.human if v.places or v.has("placed")] + list(self.goals)
            verb = self.pick([v for v in placed if not v.has("enter") and not v.has("punctual")])
            tense = "present" if verb.has("stative") else self.pick(("present", "past", "future", "want"))
            clause = Clause(self.person(), verb, tense)
        return self.stop(self.question(clause, word, self.chance(0.5)), "?")

    def when_or_why(self) -> Phrase:
        """Quand est-ce que Paul part ? Pourquoi dors-tu ?"""
        when = self.chance(0.45)
        clause = self.asked(self.pick(("past", "future")) if when else self.pick(("", "present", "past")))
        if when and (clause.time or clause.verb.has("stative") or clause.tense not in ("past", "future")):
            raise NothingFits
        words: tuple[list[Item], list[Item]] = ([("pourquoi", "w")], [("why", "w")])
        words = ([("quand", "w")], [("when", "w")]) if when else words
        return self.stop(self.question(clause, words, self.chance(0.5)), "?")

    def who(self) -> Phrase:
        """Qui mange la pomme ?"""
        self.asking = True
        who = Nominal(Phrase(["qui"], ["who"], [(0, 0)]), "m", 2, "who")
        clause = self.pick((self.acting, self.acting, self.doing, self.giving))(who, "")
        if clause.front or clause.tense in ("used", "habit"):
            raise NothingFits
        self.tags.append("question")
        return self.stop(self.statement(clause), "?")

    def what(self) -> Phrase:
        """Qu'est-ce que tu manges ?"""
        self.asking = True
        if not self.can_affirm:
            raise NothingFits
        verb = self.pick([v for v in self.transitive if v.pronoun == "it" or v.key in ("voir", "entendre", "dessiner")])
        clause = self.start(verb, self.person())
        if clause.tense in ("habit", "used"):
            raise NothingFits
        clause = self.finish(clause)
        clause.time, clause.front = clause.time or clause.front, None
        return self.stop(self.question(clause, ([(RELATIVE_QUE, "w")], [("what", "w")])), "?")

    def how_many(self) -> Phrase:
        """Combien de livres as-tu achetés ?"""
        self.asking = True
        keys = ("avoir", "acheter", "manger", "lire", "vendre", "écrire", "casser", "perdre", "voir")
        wanted = ("acheter", "manger", "lire", "vendre")
        verb = self.pick([v for v in self.transitive if v.key in keys])
        noun = self.pick([noun for noun in verb.objects if noun.counted])
        if not self.can_affirm or noun.kind == "kin":
            raise NothingFits
        clause = Clause(self.person(), verb, "present" if verb.key == "avoir" else "past")
        if verb.key in wanted and self.chance(0.3):
            clause.tense = "want"
        clause.agreement = (noun.gender, True)
        source: list[Item] = [("combien", "w"), ("de~", "w"), (noun.french[1], "n")]
        target: list[Item] = [("how", "w"), ("many", "w"), *((word, "n") for word in noun.english[1])]
        self.tags.append("how-many")
        return self.stop(self.question(clause, (source, target), self.chance(0.6)), "?")


def _apart(first: Clause, second: Clause, tense: str) -> bool:
    """Return whether two clauses cannot be joined: another tense than requested, the same verb, a state, a "never"."""
    same = first.verb.french == second.verb.french
    never = first.negator in ("jamais", "plus") or second.negator in ("jamais", "plus")
    state = first.verb.has("stative") or second.verb.has("stative")
    return same or never or state or first.tense != tense or second.tense != tense


def _is_possible(cue: str, said: frozenset[str] | None) -> bool:
    return said is None or not cue or not said.isdisjoint(cue.split())
