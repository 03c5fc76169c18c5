"""Petit's vocabulary, read from `lexicon.toml` on first use: every form, and which words can be combined."""

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

from regard.petit import english, french
from regard.petit.parts_of_speech import Word

Words = tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Noun:
    """A noun in both languages; `there` has the prepositions of a place: French, English "at" and English "to"."""

    lemma: str
    kind: str
    gender: str
    french: Words
    """Singular and plural."""
    english: tuple[Words, Words]
    counted: bool = True
    there: Words = ()


@dataclass(frozen=True, slots=True, eq=False)
class Adjective:
    """One sense of an adjective: its forms, its position, its translation, and the nouns it can describe."""

    lemma: str
    position: str
    forms: Words
    """Masculine, masculine before a vowel, feminine, plural and feminine plural."""
    english: str
    comparative: Words
    nouns: frozenset[str]

    def agree(self, gender: str, plural: bool) -> str:
        """Return the form for a gender and number."""
        return self.forms[(4 if plural else 2) if gender == "f" else (3 if plural else 0)]


@dataclass(frozen=True, slots=True, eq=False)
class Verb:
    """One sense of a verb: its forms in both languages, and its possible subjects, objects and places."""

    key: str
    french: str
    reflexive: bool
    present: Words
    imperfect: Words
    participle: str
    english: english.EnglishVerb
    subjects: tuple[Noun, ...]
    objects: tuple[Noun, ...]
    places: tuple[Noun, ...]
    traits: frozenset[str]
    pronoun: str = ""
    to: str | None = None
    manner: Words = ()
    not_yet: Words = ()
    """Adjectives that describe the object only after the action: what is washed was not clean before."""
    variety: int = 0
    """Number of objects of the verb in the complete lexicon."""

    def has(self, trait: str) -> bool:
        """Return whether the verb has this trait in the lexicon."""
        return trait in self.traits


@dataclass(frozen=True, slots=True)
class Lexicon:
    """The complete vocabulary, or the part of it that occurs in one sentence."""

    nouns: dict[str, Noun]
    adjectives: tuple[Adjective, ...]
    verbs: dict[str, Verb]
    names: tuple[tuple[str, str], ...]
    cities: tuple[tuple[str, str], ...]
    countries: tuple[tuple[str, str, str], ...]
    numerals: tuple[tuple[str, Words], ...]
    days: tuple[tuple[str, str], ...]

    def restricted_to(self, words: Iterable[str]) -> "Lexicon":
        """Return the part of the lexicon that has a form among `words`."""
        said = frozenset(words)
        nouns = {lemma: noun for lemma, noun in self.nouns.items() if not said.isdisjoint(noun.french)}

        def kept(among: tuple[Noun, ...]) -> tuple[Noun, ...]:
            return tuple(noun for noun in among if noun.lemma in nouns)

        verbs = {
            key: replace(verb, subjects=kept(verb.subjects), objects=kept(verb.objects), places=kept(verb.places))
            for key, verb in self.verbs.items()
            if not said.isdisjoint(_verb_forms(verb))
        }
        return Lexicon(
            nouns,
            tuple(a for a in self.adjectives if not said.isdisjoint(_adjective_forms(a))),
            verbs,
            tuple(name for name in self.names if name[0] in said),
            tuple(city for city in self.cities if city[0] in said),
            tuple(country for country in self.countries if country[0] in said),
            tuple(numeral for numeral in self.numerals if numeral[0] in said),
            tuple(day for day in self.days if day[0] in said),
        )

    def lemmas(self) -> list[str]:
        """Return each lemma once, with its part of speech."""
        lemmas = [f"noun {lemma}" for lemma in self.nouns]
        lemmas += dict.fromkeys(f"adjective {adjective.lemma}" for adjective in self.adjectives)
        infinitives = (f"se {verb.french}" if verb.reflexive else verb.french for verb in self.verbs.values())
        lemmas += dict.fromkeys(f"verb {infinitive}" for infinitive in infinitives)
        for part, entries in (("name", self.names), ("city", self.cities), ("country", self.countries)):
            lemmas += [f"{part} {entry[0]}" for entry in entries]
        lemmas += [f"numeral {entry[0]}" for entry in self.numerals] + [f"day {entry[0]}" for entry in self.days]
        return lemmas


def _adjective_forms(adjective: Adjective) -> list[str]:
    better = [french.agree("meilleur", gender, plural) for gender in "mf" for plural in (False, True)]
    return [*adjective.forms, *(better if adjective.lemma == "bon" else ())]


def _verb_forms(verb: Verb) -> list[str]:
    agreed = [french.agree(verb.participle, gender, plural) for gender in "mf" for plural in (False, True)]
    imperative = verb.present[1].removesuffix("s")
    return [verb.french, *verb.present, *verb.imperfect, *agreed, imperative]


@cache
def load() -> Lexicon:
    """Return the complete lexicon."""
    table = tomllib.loads((files("regard.petit") / "lexicon.toml").read_text(encoding="utf-8"))
    nouns = [_noun(kind, key, value) for kind, entries in table["nouns"].items() for key, value in entries.items()]
    groups = _groups(table, nouns)
    adjectives = [
        _adjective(lemma, sense, table["adjective_forms"].get(lemma), groups)
        for lemma, senses in table["adjectives"].items()
        for sense in senses
    ]
    names = [(Word(name, "PROPN"), gender) for gender, line in table["names"].items() for name in line.split()]
    return Lexicon(
        {noun.lemma: noun for noun in nouns},
        tuple(adjectives),
        {key: _verb(key, entry, table["conjugation"], groups) for key, entry in table["verbs"].items()},
        tuple(names),
        tuple((Word(name, "PROPN"), value) for name, value in table["cities"].items()),
        tuple((Word(name, "PROPN"), *value.split()) for name, value in table["countries"].items()),
        tuple((Word(numeral, "NUM"), tuple(value.split())) for numeral, value in table["numerals"].items()),
        tuple((Word(day, "NOUN"), value) for day, value in table["days"].items()),
    )


def _noun(kind: str, key: str, value: str) -> Noun:
    lemma, _, irregular = key.partition("/")
    described, _, there = value.partition("; ")
    gender, english_forms = described.split(" ", 1)
    singular, _, english_plural = english_forms.partition("/")
    forms = (lemma, irregular or french.plural(lemma))
    return Noun(
        Word(lemma, "NOUN"),
        kind,
        gender,
        tuple(Word(form, "NOUN") for form in forms),
        (tuple(singular.split()), tuple((english_plural or english.plural(singular)).split())),
        counted=kind not in ("grocery", "drink"),
        there=tuple(there.split(", ")) if there else (),
    )


def _groups(table: dict[str, Any], nouns: list[Noun]) -> dict[str, tuple[Noun, ...]]:
    """Return the nouns of each kind, each union of kinds and each narrower group; "city" and the like have none."""
    groups = {kind: tuple(noun for noun in nouns if noun.kind == kind) for kind in table["nouns"]}
    known = {noun.lemma: noun for noun in nouns}
    for name, members in table["groups"].items():
        groups[name] = tuple(known[lemma] for lemma in members.split())
    for name, kinds in table["kinds"].items():
        groups[name] = tuple(noun for kind in kinds.split() for noun in nouns if noun.kind == kind)
    return groups | dict.fromkeys(("city", "country", "home"), ())


def _members(line: str, groups: dict[str, tuple[Noun, ...]]) -> tuple[Noun, ...]:
    members = {noun.lemma: noun for group in line.split() for noun in groups[group]}
    return tuple(members.values())


def _adjective(lemma: str, sense: str, irregular: str | None, groups: dict[str, tuple[Noun, ...]]) -> Adjective:
    position, meaning, kinds = (part.strip() for part in sense.split(":"))
    word, _, comparative = meaning.partition("/")
    comparative = f"more {word}" if comparative == "more" else comparative
    if irregular:
        before_vowel, feminine, plural, feminine_plural = irregular.split()
    else:
        before_vowel, feminine, plural = lemma, french.feminine(lemma), french.plural(lemma)
        feminine_plural = french.plural(feminine)
    return Adjective(
        lemma,
        position,
        tuple(Word(form, "ADJ") for form in (lemma, before_vowel, feminine, plural, feminine_plural)),
        word,
        tuple(comparative.split()),
        frozenset(noun.lemma for noun in _members(kinds, groups)),
    )


def _verb(key: str, entry: dict[str, Any], irregular: dict[str, str], groups: dict[str, tuple[Noun, ...]]) -> Verb:
    infinitive = entry.get("fr", key)
    reflexive = infinitive.startswith(("se ", "s'"))
    infinitive = infinitive.removeprefix("se ").removeprefix("s'")
    forms = tuple(irregular[infinitive].split()) if infinitive in irregular else french.present(infinitive)
    at = entry.get("at", "")
    traits = {name for name, value in entry.items() if value is True}
    traits |= {name for name in ("city", "country", "home") if name in at.split()}
    traits |= {name for name in ("person", "animal") if name in entry.get("subject", "person").split()}
    traits |= {"other"} if entry.get("subject", "person") != "person" else set()
    own = tuple(noun for noun in groups["body"] if noun.lemma in entry.get("own", "").split())
    objects = own or _members(entry.get("object", ""), groups)
    return Verb(
        key,
        Word(infinitive, "VERB"),
        reflexive,
        tuple(Word(form, "VERB") for form in forms[:6]),
        tuple(Word(form, "VERB") for form in french.imperfect(infinitive, forms)),
        Word(forms[6], "VERB"),
        english.verb(entry["en"]),
        _members(entry.get("subject", "person"), groups),
        objects,
        _members(at, groups),
        frozenset(traits | ({"own"} if own else set())),
        entry.get("pronoun", ""),
        entry.get("to"),
        tuple(entry.get("manner", "").split()),
        tuple(entry.get("not_yet", "").split()),
        len(objects),
    )
