"""Simple sentences: statements and commands of one clause."""

from collections.abc import Callable
from dataclasses import replace

from regard.petit import english, french
from regard.petit.actions import ActionGenerator
from regard.petit.clauses import DATIVES, USUALLY_PLURAL
from regard.petit.grammar import (
    DETERMINER_DE,
    OBJECTS,
    Clause,
    Item,
    Nominal,
    NothingFits,
    Phrase,
    build_phrase,
    fixed,
)
from regard.petit.lexicon import Adjective, Lexicon, Noun, Verb, load
from regard.petit.parts_of_speech import Word

TONIC_PRONOUNS = (("moi", "me"), ("toi", "you"), ("lui", "him"), ("nous", "us"), ("vous", "you"), ("eux", "them"))
ADULT_AGES = ("twenty", "twenty-five", "thirty", "forty", "fifty")
SMALL_READINGS = ("livre", "lettre", "journal", "magazine", "roman")
WEATHER = ((Word("froid", "ADJ"), "cold"), (Word("chaud", "ADJ"), "hot"), (Word("beau", "ADJ"), "nice"))
WARM_CLOTHES = ("manteau", "pull", "écharpe", "veste", "chapeau", "gant")
SAME_PERSONS = (
    (0, 3),
    (1, 4),
    (),
    (0, 3),
    (1, 4),
    (),
)  # persons that a subject's object pronoun cannot have: je me, tu vous


class SimpleSentenceGenerator(ActionGenerator):
    """Generates simple sentences."""

    def __init__(
        self, random: Callable[[], float], lexicon: Lexicon | None = None, said: frozenset[str] | None = None
    ) -> None:
        super().__init__(random, lexicon, said)
        kinds = ("item", "toy", "fruit", "clothes", "container", "pet", "vehicle", "flyer", "wild")
        nouns = [
            n
            for n in self.lexicon.nouns.values()
            if (n.kind in kinds and n.lemma != "tiroir") or n.lemma in SMALL_READINGS
        ]
        self.findable = nouns + [n for n in self.people if n.kind == "person"]
        self.locatable = nouns + [n for n in self.things if n.kind == "farm"]
        self.describable = [n for n in self.things if self.predicates[n.lemma]]

    def plain(self) -> Phrase:
        """Someone does something."""
        return self.sentence(self.act())

    def beast(self) -> Phrase:
        """An animal or a train does something."""
        verb = self.pick(self.bestial)
        beasts = [noun for noun in verb.subjects if noun.kind not in ("person", "job", "kin")]
        return self.sentence(self.done(verb, self.described(self.pick(beasts))))

    def description(self) -> Phrase:
        """Something is big, red, old."""
        if self.chance(0.4):
            return self.sentence(self.being(self.person(), self.human_adjectives()))
        noun = self.pick(self.describable)
        if noun.counted and noun.kind in ("clothes", "item", "vehicle", "pet", "toy") and self.chance(0.35):
            owner = self.pick((0, 1, 4, 5, 6))
            thing = self.noun_phrase(noun, "own", self.many(noun, 0.3), owner=owner)
        elif noun.kind in ("clothes", "vehicle", "pet") and self.chance(0.2):
            thing = self.genitive(noun)
        else:
            determiner = "this" if self.chance(0.25) else "definite"
            thing = self.noun_phrase(noun, determiner, self.many(noun, 0.3))
        return self.sentence(self.being(thing, (noun,)))

    def profession(self) -> Phrase:
        """Elle est médecin: she is a doctor."""
        noun = self.pick(tuple(n for n in self.people if n.kind == "job"))
        subject = self.person()
        if subject.loose or subject.gender != noun.gender or subject.noun == noun.lemma or len(subject.english) > 3:
            raise NothingFits
        if subject.noun in load().nouns and load().nouns[subject.noun].kind == "job":
            raise NothingFits
        clause = Clause(subject, self.be(), self.pick(("present", "present", "imperfect")))
        clause.negator = self.negator_for(subject, clause.verb, clause.tense)
        if clause.negator == "jamais":
            raise NothingFits
        self.tags.append("profession")
        words = noun.english[subject.plural]
        article = [] if subject.plural else [english.article(words[0])]
        links = [(0, j) for j in range(len(article) + len(words))]
        clause.add(Phrase([noun.french[subject.plural]], [*article, *words], links))
        return self.sentence(clause)

    def whereabouts(self) -> Phrase:
        """Le chat est sous la table."""
        noun, thing = self.somewhere()
        clause = Clause(thing, self.be(), self.pick(("present", "present", "imperfect")))
        clause.negator = self.negator_for(thing, clause.verb, "past" if clause.tense == "present" else clause.tense)
        if clause.negator == "jamais":
            raise NothingFits
        clause.add(self.near(noun))
        return self.sentence(clause)

    def somewhere(self) -> tuple[Noun, Nominal]:
        """Return something that can be somewhere."""
        if self.chance(0.2):
            noun = self.pick(self.people)
            return noun, self.noun_phrase(noun, "definite", self.many(noun, 0.2))
        noun = self.pick(self.locatable)
        if noun.kind in ("item", "toy", "clothes", "pet", "vehicle") and self.chance(0.4):
            return noun, self.noun_phrase(noun, "own", self.many(noun, 0.3), owner=self.pick((0, 1, 4, 5, 6)))
        return noun, self.noun_phrase(noun, "definite", self.many(noun, 0.3), adjective=self.attribute(noun, 0.25))

    # Pronouns before the verb

    def object_pronoun(self) -> Phrase:
        """Je le mange, elle l'a aidée."""
        verb = self.pick(tuple(v for v in self.transitive if v.pronoun))
        clause = self.start(verb, self.person())
        self.replace_object(clause, self.pick(load().verbs[verb.key].objects))
        return self.sentence(self.finish(clause))

    def replace_object(self, clause: Clause, noun: Noun) -> None:
        """Add the object as a pronoun before the verb; the participle agrees with it."""
        self.tags.append("object-pronoun")
        persons = [p for p in (0, 1, 3, 4) if p not in SAME_PERSONS[clause.subject.person]]
        if clause.verb.pronoun == "him" and self.chance(0.4):
            person = self.pick(persons)
            (source, target), gender = OBJECTS[person], "mf"[self.random() < 0.5]
            clause.agreement = (gender, person > 2)
        else:
            plural = self.chance(0.35) and noun.counted
            gender = noun.gender
            source = "les" if plural else "la~" if gender == "f" else "le~"
            him = ("her" if gender == "f" else "him") if clause.verb.pronoun == "him" else "it"
            target = "them" if plural else him
            clause.agreement = (gender, plural)
            if him != "it" and not plural:
                self.reject_ambiguity(clause)
        clause.clitics.append((source, "object"))
        clause.english_after.append((target, "object"))

    def reject_ambiguity(self, clause: Clause) -> None:
        """Reject elle l'aide (him or her?); only a participle would decide."""
        verb, tense = clause.verb, clause.tense
        if tense != "past" and french.vowel(verb.french):
            raise NothingFits

    def indirect_pronoun(self) -> Phrase:
        """Elle leur donne un livre, il me parle."""
        verb = self.pick(self.datives + self.to)
        clause = self.start(verb, self.person())
        person = self.pick([p for p in DATIVES if p not in SAME_PERSONS[clause.subject.person]])
        self.tags.append("indirect-pronoun")
        source, target = DATIVES[person]
        return self.sentence(self.spoken_to(clause, source, target))

    def spoken_to(self, clause: Clause, source: str, target: str) -> Clause:
        """Add the indirect object as a pronoun."""
        clause.clitics.append((source, "to"))
        if clause.verb.to:
            clause.english_after.append((clause.verb.to, "to"))
        clause.english_after.append((target, "to"))
        if clause.verb.has("dative"):
            clause.add(self.given(clause))
        return self.settle(clause)

    # Comparisons

    def comparison(self) -> Phrase:
        """Paul est plus grand que Marie."""
        if self.chance(0.5):
            adjective = self.pick([a for a in self.lexicon.adjectives if a.comparative and "père" in a.nouns])
            subject = self.person()
            other = self.tonic(subject) if self.chance(0.4) else self.person(full=True, other=subject.noun)
        else:
            adjective = self.pick([a for a in self.lexicon.adjectives if a.comparative and "-only" not in a.position])
            subject, other = self.rivals(adjective)
        clause = Clause(subject, self.be(), "present" if self.chance(0.75) else "imperfect")
        if not self.can_affirm or subject.loose or other.loose:
            raise NothingFits
        self.compare(clause, adjective, other)
        return self.sentence(clause)

    def rivals(self, adjective: Adjective) -> tuple[Nominal, Nominal]:
        """Return two things of the same kind that an adjective can describe."""
        nouns = [n for n in self.things if n.lemma in adjective.nouns]
        one, other = self.pick(nouns), self.pick(nouns)
        if one.kind != other.kind or one.lemma == other.lemma:
            raise NothingFits
        plural = self.many(one, 0.25) or other.lemma in USUALLY_PLURAL
        determiners = ["this", "definite"]
        if one.counted and one.kind in ("clothes", "item", "vehicle", "pet", "toy", "readable", "container"):
            determiners += ["own", "own"]
        first, second = self.pick(determiners), self.pick(determiners)
        owners = self.pick(((0, 1), (1, 0), (4, 5), (5, 4), (6, 4), (0, 5)))
        return (
            self.noun_phrase(one, first, plural, owner=owners[0]),
            self.noun_phrase(other, second, plural, owner=owners[1]),
        )

    def tonic(self, subject: Nominal) -> Nominal:
        """Moi, toi, lui: than me, you, him."""
        person = self.pick([p for p in range(6) if p != subject.person and p not in SAME_PERSONS[subject.person]])
        source, target = TONIC_PRONOUNS[person]
        if person in (2, 5) and self.chance(0.5):
            source, target = ("elle", "her") if person == 2 else ("elles", "them")
        return Nominal(Phrase([source], [target], [(0, 0)]), "m", person)

    def compare(self, clause: Clause, adjective: Adjective, other: Nominal) -> None:
        """Add plus, moins or aussi grand que; bon has a comparative of its own."""
        self.tags.append("comparative")
        subject = clause.subject
        form = adjective.agree(subject.gender, subject.plural)
        self.note_agreement(adjective.forms[0], form, subject.plural)
        degree = self.pick(("plus", "plus", "moins", "aussi"))
        meaning: Item = (adjective.english, "a")
        if degree == "plus":
            better = adjective.lemma == "bon"
            form = french.agree("meilleur", subject.gender, subject.plural) if better else form
            words = adjective.comparative
            source: list[Item] = [] if better else [("plus", "more" if len(words) > 1 else "a")]
            target: list[Item] = [("more", "more"), (words[1], "a")] if len(words) > 1 else [(words[0], "a")]
            target.append(("than", "than"))
        else:
            source = [(degree, "as")]
            target = [("as", "as"), meaning, ("as", "than")]
            if degree == "moins":
                target.insert(0, ("not", "as"))
        clause.french_after += [*source, (form, "a"), ("que~", "than"), other]
        clause.english_after += [*target, other]

    # There is, here is, it is

    def there_is(self) -> Phrase:
        """Il y a un chat sous la table."""
        self.tags.append("there-is")
        noun, past = self.present_thing(), self.chance(0.25)
        plural = self.many(noun, 0.45)
        no = not self.can_affirm or self.chance(0.2)
        plural = plural or (no and noun.french[0] == noun.french[1])
        if no:
            self.tags += ["negation", "negative-de"]
            bare = self.noun_phrase(noun, "generic", plural)
            thing: Phrase = Phrase(bare.french[1:], bare.english, [(i - 1, j) for i, j in bare.links])
        elif plural and self.chance(0.5):
            thing = self.numbered(noun, self.attribute(noun))
        else:
            thing = self.noun_phrase(noun, "indefinite", plural, adjective=self.attribute(noun))
        verb = Word("avait" if past else "a", "VERB")
        self.tags += ["imparfait"] if past else []
        be = english.BE[past][5 if plural else 2]
        negation: list[Item] = [("ne~", "no")] if no else []
        source: list[Item] = [("il", "there"), *negation, ("y", "there"), (verb, "is")]
        source += [("pas", "no"), (DETERMINER_DE, "no")] if no else []
        target: list[Item] = [("there", "there"), (be, "is"), *([("no", "no")] if no else [])]
        place = self.near(noun) if noun.counted else self.next_to(self.pick(self.boxes[:3]), ("dans",))
        return self.stop(build_phrase([*source, thing, place], [*target, thing, place]), ".")

    def present_thing(self) -> Noun:
        """Return something that can be found somewhere."""
        return self.pick(self.findable)

    def here_is(self) -> Phrase:
        """Voici mon frère."""
        noun = self.pick(self.kin + self.friends + tuple(n for n in self.things if n.kind in ("item", "clothes")))
        plural = self.many(noun, 0.25)
        self.tags.append("presentative")
        adjective = None if noun.kind in ("person", "job", "kin") else self.attribute(noun)
        thing = self.noun_phrase(noun, "own", plural, adjective=adjective, owner=self.pick((0, 1, 4, 5, 6)))
        is_or_are = "are" if plural else "is"
        return self.stop(build_phrase([("voici", "v"), thing], [("here", "v"), (is_or_are, "v"), thing]), ".")

    def it_is(self) -> Phrase:
        """C'est un bon livre, ce sont mes clés."""
        kinds = ("item", "clothes", "readable", "vehicle", "toy", "container", "building", "show", "baked", "pet")
        noun = self.pick([n for n in self.things if n.kind in kinds])
        self.tags.append("presentative")
        plural, past = self.many(noun, 0.3), self.chance(0.2)
        adjective = self.attribute(noun, 0.7) if noun.kind != "pet" else None
        if noun.kind in ("show", "building", "baked") or (adjective and self.chance(0.6)):
            if adjective is None or plural:
                raise NothingFits
            thing = self.noun_phrase(noun, "indefinite", adjective=adjective)
        else:
            owner = self.pick((0, 1, 4, 5, 6))
            thing = self.noun_phrase(noun, "own", plural, adjective=adjective, owner=owner)
        clause = Clause(thing, self.be(), "imperfect" if past else "present")
        clause.negator = "pas" if not self.can_affirm or self.chance(0.2) else ""
        word = ("those" if past else "these") if plural else "it"
        clause.subject = Nominal(Phrase(["ce~"], [word], [(0, 0)]), "m", 5 if plural else 2, "thing")
        clause.add(thing)
        self.tags += ["negation"] if clause.negator else []
        return self.sentence(clause)

    # Age, weather, languages

    def age(self) -> Phrase:
        """Paul a dix ans: Paul is ten years old."""
        subject = self.person()
        numeral, words = self.pick(self.lexicon.numerals)
        noun = load().nouns.get(subject.noun)
        child, young = ("garçon", "fille", "enfant"), ("frère", "sœur", "cousin", "cousine", "neveu", "nièce")
        if noun and noun.lemma not in young and (words[0] in ADULT_AGES) == (noun.lemma in child):
            raise NothingFits  # a teacher of nine, a boy of fifty
        if subject.loose:
            raise NothingFits
        self.tags += ["avoir-idiom", "numeral"]
        clause = Clause(subject, self.feeling_verb(), "present" if self.chance(0.75) else "imperfect")
        clause.negator = "pas" if not self.can_affirm or self.chance(0.15) else ""
        self.tags += ["negation"] if clause.negator else []
        count: list[Item] = [(word, "n") for word in words]
        clause.french_after += [(numeral, "n"), ("ans", "years")]
        clause.english_after += [*count, ("years", "years"), ("old", "years")]
        return self.sentence(clause)

    def weather(self) -> Phrase:
        """Il pleut à Paris, il fait froid en Italie."""
        it = self.pronoun(2, "m", "thing")
        verb = self.pick([v for v in self.lexicon.verbs.values() if v.key in ("pleuvoir", "neiger", "faire")])
        tense = self.pick(("present", "imperfect", "future", "past" if verb.key != "faire" else "present"))
        self.tags.append("weather")
        if verb.key == "faire":
            source, target = self.pick(WEATHER)
            if source == "beau":  # not the air of a place but its weather
                it = Nominal(fixed("il", "the weather"), "m", 2, "thing")
            clause = Clause(it, replace(verb, english=self.be().english), tense)
            clause.add(Phrase([source], [target], [(0, 0)]))
        else:
            clause = Clause(it, verb, tense)
        if tense in ("present", "imperfect") and not (self.can_affirm and self.chance(0.8)):
            clause.negator = "pas"
            self.tags.append("negation")
        elif not self.can_affirm:
            raise NothingFits
        if self.chance(0.8):
            clause.add(self.town() if self.chance(0.6) else self.country())
        if tense != "imperfect" and self.chance(0.6):
            self.at_time(clause, "now" if tense == "present" else tense)
        return self.sentence(clause)

    def speaking(self) -> Phrase:
        """Paul parle français: Paul speaks French."""
        verb = self.lexicon.verbs.get("parler")
        languages = [noun for noun in self.lexicon.nouns.values() if noun.kind == "language"]
        if not verb or not languages:
            raise NothingFits
        speak = replace(verb, english=english.verb("speak/spoke/spoken"), traits=verb.traits | {"stative"})
        tense = self.pick(("present", "present", "imperfect", "want", "can"))
        clause = self.start(speak, self.person(), tense)
        language = self.pick(languages)
        clause.add(Phrase([language.lemma], [language.english[0][0]], [(0, 0)]))
        self.tags.append("language")
        return self.sentence(clause)

    # Commands

    def ordered(
        self, verb: Verb, after: list[Item], english_after: list[Item], polite: bool, no: bool = False
    ) -> Phrase:
        """Ferme la porte, ne fermez pas la porte."""
        self.tags += ["imperative", "reflexive"] if verb.reflexive else ["imperative"]
        form = verb.present[4 if polite else 1]
        form = Word(form[:-1], "VERB") if not polite and form.endswith("es") else form
        if not no:
            return build_phrase([(form, "verb"), *after], [*_order(verb), *english_after])
        self.tags.append("negation")
        source: list[Item] = [("ne~", "neg"), (form, "verb"), ("pas", "neg"), *after]
        return build_phrase(source, [("do", "verb"), ("not", "neg"), *_order(verb), *english_after])

    def command(self) -> Phrase:
        """Ferme la porte, ferme-la, dépêchez-vous."""
        polite, no = self.chance(0.5), not self.can_affirm or self.chance(0.25)
        if self.chance(0.1) and not no:
            return self.stop(self.rouse(polite), "!")
        unfit = {"stative", "mishap", "unbidden"}
        verb = self.pick([v for v in self.transitive if v.pronoun and unfit.isdisjoint(v.traits)])
        you = self.pronoun(4 if polite else 1, "m")
        if not no and self.chance(0.2):
            plural, gender = self.chance(0.35), "mf"[self.random() < 0.5]
            if verb.pronoun == "him":
                pair = ("-les", "them") if plural else ("-la", "her") if gender == "f" else ("-le", "him")
            else:
                pair = ("-les", "them") if plural else ("-la", "it") if gender == "f" else ("-le", "it")
            self.tags.append("object-pronoun")
            return self.stop(self.ordered(verb, [(pair[0], "o")], [(pair[1], "o")], polite), "!")
        noun = self.pick(verb.objects)
        if noun.kind in ("person", "job", "kin"):
            thing = self.someone(Clause(you, verb), noun)
        elif noun.kind in ("fruit", "baked", "grocery", "drink") and not no and self.chance(0.5):
            self.reserve_object(verb, noun)
            thing = self.noun_phrase(noun, "indefinite", self.many(noun, 0.4))
        else:
            self.reserve_object(verb, noun)
            determiner = self.pick(("definite", "definite", "this", "own"))
            thing = self.noun_phrase(noun, determiner, self.many(noun, 0.3), owner=self.pick((0, 4, you.owner)))
        return self.stop(self.ordered(verb, [thing], [thing], polite, no), "!")

    def rouse(self, polite: bool) -> Phrase:
        """Lève-toi, dépêchez-vous."""
        bored = ("s'ennuyer", "se promener", "se baigner", "s'endormir")
        verb = self.pick([v for v in self.reflexive if not v.has("own") and v.key not in bored])
        return self.ordered(verb, [("-vous" if polite else "-toi", "verb")], [], polite)

    def give_me(self) -> Phrase:
        """Donne-moi ce livre."""
        verb, polite = self.pick(self.datives), self.chance(0.5)
        us = self.chance(0.4)
        self.tags.append("indirect-pronoun")
        thing = self.particular(Clause(self.pronoun(4 if polite else 1, "m"), verb), self.pick(verb.objects))
        source: list[Item] = [("-nous" if us else "-moi", "to"), thing]
        phrase = self.ordered(verb, source, [("us" if us else "me", "to"), thing], polite)
        return self.stop(phrase, "!")

    def if_hungry(self) -> Phrase:
        """Si tu as faim, mange une pomme."""
        polite = self.chance(0.5)
        need, key = self.pick((("faim", "manger"), ("soif", "boire"), ("froid", "porter-un-vêtement"), ("", "fermer")))
        if key not in self.lexicon.verbs or not self.can_affirm:
            raise NothingFits
        you = self.pronoun(4 if polite else 1, "m")
        if need:
            clause = Clause(you, self.feeling_verb())
            meaning = {"faim": "hungry", "soif": "thirsty", "froid": "cold"}[need]
            clause.add(Phrase([need], [meaning], [(0, 0)]))
            self.tags.append("avoir-idiom")
        else:
            weather = self.pick([v for v in self.lexicon.verbs.values() if v.key in ("pleuvoir", "neiger")])
            clause = Clause(self.pronoun(2, "m", "thing"), weather)
            self.tags.append("weather")
        self.tags.append("subordinate")
        condition = self.statement(clause)
        verb = self.lexicon.verbs[key]
        noun = self.pick([n for n in verb.objects if n.lemma in WARM_CLOTHES or n.kind not in ("clothes", "container")])
        opening = noun.kind == "opening"  # the window, not a few windows
        thing = self.noun_phrase(noun, "definite") if opening else self.particular(Clause(you, verb), noun)
        order = self.ordered(verb, [thing], [thing], polite)
        comma: Item = (",", "comma")
        return self.stop(
            build_phrase([("si~", "if"), condition, comma, order], [("if", "if"), condition, comma, order]), "!"
        )


def _order(verb: Verb) -> list[Item]:
    return [(verb.english.base, "verb"), *((word, "verb") for word in verb.english.tail)]
