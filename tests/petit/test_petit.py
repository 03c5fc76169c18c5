"""Petit: correct French and English in a large sample, and the properties of its splits and gold alignments.

The oracles are written by hand (genders, paradigms, elisions), independently of the grammar under test.
"""

import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from random import Random
from zlib import crc32

import pytest

from regard import petit
from regard.petit import PHENOMENA, SPLITS, Pair, corpus_files
from regard.petit.corpus_files import write_petit
from regard.petit.french import elide_and_contract, spell
from regard.petit.lexicon import load
from regard.petit.sentence_generator import SentenceGenerator

HERE = Path(__file__).parent
TABLE = tomllib.loads((HERE.parents[1] / "regard/petit/lexicon.toml").read_text())
SAMPLES = {
    "small": {"train": 12_000, "dev": 300, "test": 300, "compositional": 600},
    "large": {"train": 50_000, "dev": 1_000, "test": 1_000, "compositional": 2_000},
}
"""Number of pairs of each split in the samples that are checked."""

# masculine, feminine, masculine plural, feminine plural
PARADIGMS = """
grand grande grands grandes | petit petite petits petites | gros grosse gros grosses | beau belle beaux belles
bel belle beaux belles | joli jolie jolis jolies | vieux vieille vieux vieilles | vieil vieille vieux vieilles
nouveau nouvelle nouveaux nouvelles | nouvel nouvelle nouveaux nouvelles | jeune jeune jeunes jeunes
bon bonne bons bonnes | mauvais mauvaise mauvais mauvaises | long longue longs longues | haut haute hauts hautes
gentil gentille gentils gentilles | méchant méchante méchants méchantes | riche riche riches riches
heureux heureuse heureux heureuses | triste triste tristes tristes | fatigué fatiguée fatigués fatiguées
malade malade malades malades | content contente contents contentes
intelligent intelligente intelligents intelligentes | sérieux sérieuse sérieux sérieuses
courageux courageuse courageux courageuses | paresseux paresseuse paresseux paresseuses
curieux curieuse curieux curieuses | patient patiente patients patientes | fort forte forts fortes
timide timide timides timides | célèbre célèbre célèbres célèbres | étranger étrangère étrangers étrangères
sportif sportive sportifs sportives | rouge rouge rouges rouges | bleu bleue bleus bleues | vert verte verts vertes
jaune jaune jaunes jaunes | noir noire noirs noires | blanc blanche blancs blanches | gris grise gris grises
rond ronde ronds rondes | cher chère chers chères | propre propre propres propres | sale sale sales sales
vide vide vides vides | plein pleine pleins pleines | lourd lourde lourds lourdes | léger légère légers légères
chaud chaude chauds chaudes | froid froide froids froides | frais fraîche frais fraîches
sucré sucrée sucrés sucrées | moderne moderne modernes modernes | confortable confortable confortables confortables
intéressant intéressante intéressants intéressantes | difficile difficile difficiles difficiles
facile facile faciles faciles | drôle drôle drôles drôles | dangereux dangereuse dangereux dangereuses
rapide rapide rapides rapides | calme calme calmes calmes | ouvert ouverte ouverts ouvertes
fermé fermée fermés fermées | meilleur meilleure meilleurs meilleures
"""
PLACES = [("m", False), ("f", False), ("m", True), ("f", True)]
DETERMINERS = {  # what each determiner implies about the noun: gender or None, plural or None
    **dict.fromkeys(("le", "un", "ce", "cet", "du", "au"), ("m", False)),
    **dict.fromkeys(("la", "une", "cette", "ma", "ta", "sa"), ("f", False)),
    **dict.fromkeys(("les", "des", "ces", "mes", "tes", "ses", "nos", "vos", "leurs", "aux"), (None, True)),
    **dict.fromkeys(("mon", "ton", "son", "notre", "votre", "chaque"), (None, False)),
    **dict.fromkeys(("deux", "trois", "quatre", "cinq", "six", "sept", "huit", "neuf", "dix", "onze"), (None, True)),
}
NOT_MUTE = "hibou hiboux hérisson hérissons hamster hamsters haricot haricots harpe haut haute hauts hautes huit onze"
ALSO_VERBS = ["lit", "ferme", "montre", "porte", "cuisine", "souris", "montres", "fermes", "portes"]  # il les lit
ELIDED = re.compile(r"(?<![\w-])(le|la|je|me|te|se|ne|de|que|ce|jusque) (\w+)", re.IGNORECASE)


def adjective_forms() -> dict[str, set[tuple[str, bool]]]:
    forms: dict[str, set[tuple[str, bool]]] = {}
    for paradigm in re.split(r"[|\n]", PARADIGMS.strip()):
        for form, place in zip(paradigm.split(), PLACES, strict=True):
            forms.setdefault(form, set()).add(place)
    return forms


def noun_forms() -> dict[str, set[tuple[str, bool]]]:
    """Return the gender and number of each noun form, from the lexicon file only."""
    forms: dict[str, set[tuple[str, bool]]] = {}
    for kind, nouns in TABLE["nouns"].items():
        if kind in ("language", "game"):
            continue
        for key, value in nouns.items():
            singular, _, plural = key.partition("/")
            regular = singular if singular[-1] in "sxz" else singular + ("x" if singular[-2:] in ("au", "eu") else "s")
            forms.setdefault(singular, set()).add((value[0], False))
            forms.setdefault(plural or regular, set()).add((value[0], True))
    return forms


@pytest.fixture(
    scope="module",
    params=[pytest.param("small", marks=pytest.mark.slow), pytest.param("large", marks=pytest.mark.long)],
)
def sample(request: pytest.FixtureRequest) -> dict[str, list[Pair]]:
    return {split: list(petit.pairs(count, 0, split)) for split, count in SAMPLES[request.param].items()}


@pytest.fixture(scope="module")
def all_pairs(sample: dict[str, list[Pair]]) -> list[Pair]:
    return [pair for split in SPLITS for pair in sample[split]]


@cache
def lowercased(sentence: str) -> tuple[str, ...]:
    return tuple(word.lower() for word in petit.words(sentence))


# The language


def french_fault(sentence: str) -> str:
    """Return what is wrong where two words meet, or None."""
    not_mute = set(NOT_MUTE.split())

    def vowel(word: str) -> bool:
        return word[0].lower() in "aeiouyàâéèêëîïôùûœh" and word.lower() not in not_mute

    if re.search(r"\b(?:de|à) les? (?!\w+r\b)", sentence):  # de le voir would be correct
        return "no contraction"
    if re.search(r"\bsi ils?\b", sentence, re.I):
        return "si il"
    if any(vowel(following) for _, following in ELIDED.findall(sentence)):
        return "no elision"
    for elided, following in re.findall(r"\b(\w+)'(\w+)", sentence):
        if not vowel(following) or elided.lower() not in ("l", "d", "j", "m", "t", "s", "n", "c", "qu", "aujourd"):
            return "an elision too many"
    if re.search(
        r"\b(?:[mts]a|beau|vieux|nouveau) (?:ami|amie|homme|école|écharpe|hôtel|oiseau|arbre)\b", sentence, re.I
    ):
        return "a form for consonants"
    return ""


def test_ungrammatical_french_never_occurs(all_pairs: list[Pair]) -> None:
    for pair in all_pairs:
        assert not french_fault(pair.french), pair.french


@pytest.mark.parametrize(
    "wrong",
    [
        *(
            "Il parle de le chat.",
            "Elle va à les magasins.",
            "Le amie dort.",
            "Je aime le pain.",
            "Il ne aime pas Luc.",
        ),
        *("Il pense que elle dort.", "L'hibou dort.", "Ma amie dort.", "Un vieux homme dort.", "Si il pleut, pars !"),
        *("Il n'dort pas.", "Ce est un chat.", "Il se habille."),
    ],
)
def test_the_french_checker_detects_faults(wrong: str) -> None:
    assert french_fault(wrong)


def test_ne_has_its_partner(all_pairs: list[Pair]) -> None:
    for pair in all_pairs:
        words = lowercased(pair.french)
        for place, word in enumerate(words):
            if word in ("ne", "n'"):
                assert {"pas", "jamais", "plus"} & set(words[place + 2 : place + 6]), pair.french
        if "pas" in words or "jamais" in words:
            assert "ne" in words or "n'" in words, pair.french


def test_nouns_agree_with_their_determiners_and_adjectives(all_pairs: list[Pair]) -> None:
    nouns, adjectives = noun_forms(), adjective_forms()
    met: Counter[str] = Counter()
    for pair in all_pairs:
        words = lowercased(pair.french)
        for one, two, three in zip(words, words[1:], [*words[2:], ""], strict=False):
            if one not in DETERMINERS:
                continue
            gender, plural = DETERMINERS[one]
            noun = three if two in adjectives and three in nouns else two
            if noun not in nouns or (two in adjectives and two in nouns) or (one[0] == "l" and two in ALSO_VERBS):
                continue
            fitting = {place for place in nouns[noun] if gender in (None, place[0]) and plural in (None, place[1])}
            assert fitting, f"{one} {two} {three}: {pair.french}"
            met["determiner"] += 1
            if noun is three:
                assert adjectives[two] & fitting, f"{one} {two} {three}: {pair.french}"
                met["before"] += 1
            elif three in adjectives:
                assert adjectives[three] & fitting, f"{one} {two} {three}: {pair.french}"
                met["after"] += 1
    assert met["determiner"] > 0.37 * len(all_pairs)
    assert met["before"] > 0.018 * len(all_pairs)
    assert met["after"] > 0.018 * len(all_pairs)


def test_predicates_agree_with_pronouns(all_pairs: list[Pair]) -> None:
    subjects = {"il": ("m", False), "elle": ("f", False), "ils": ("m", True), "elles": ("f", True)}
    adjectives = adjective_forms()
    motion = {"allé", "venu", "arrivé", "parti", "entré", "sorti", "rentré", "tombé", "resté", "revenu", "monté"}
    for participle in motion | {"descendu"}:
        for ending, place in zip(("", "e", "s", "es"), PLACES, strict=True):
            adjectives.setdefault(participle + ending, set()).add(place)
    met = 0
    for pair in all_pairs:
        words = [
            word
            for word in lowercased(pair.french)
            if word not in ("ne", "n'", "pas", "plus", "jamais", "moins", "aussi")
        ]
        if words[0] in subjects and words[1] in ("est", "sont", "était", "étaient") and words[2] in adjectives:
            assert subjects[words[0]] in adjectives[words[2]], pair.french
            met += 1
    assert met > 0.0055 * len(all_pairs)


def test_ungrammatical_english_never_occurs(all_pairs: list[Pair]) -> None:
    for pair in all_pairs:
        english = pair.english
        assert not re.search(r"\b[Aa] [aeiouAEIOU]", english), english
        assert not re.search(r"\b[Aa]n [^aeiou]", english), english
        if english[-1] != "?":
            assert not re.search(r"\b(?:he|she|it) (?:are|were|have|do|am)\b", english, re.I), english
            assert not re.search(r"\b(?:we|you|they) (?:is|was|has|does|am)\b", english, re.I), english
        assert not re.search(r"\b(?:mouses|childs|mans|womans|foots|tooths|gooses|sheeps|knifes|wolfs)\b", english), (
            english
        )
        assert not re.search(r"\b(?:eated|goed|buyed|swimed|runned|writed|readed|leaved)\b", english), english


def test_capitals_spaces_and_punctuation(all_pairs: list[Pair]) -> None:
    for pair in all_pairs:
        assert pair.french[0].isupper(), pair
        assert pair.english[0].isupper(), pair
        assert pair.french[-1] == pair.english[-1], pair
        assert pair.french[-1] in ".?!", pair
        assert re.search(r" [?!]$|\w\.$", pair.french), pair
        assert re.search(r"\w[?!.]$", pair.english), pair
        for text in (pair.french, pair.english):
            assert "  " not in text, pair
            assert "*" not in text, pair
            assert "~" not in text, pair
        assert len(petit.words(pair.french)) <= petit.MAX_FRENCH_WORDS, pair
        assert len(petit.words(pair.english)) <= 26, pair


TIMES = (
    r"\b(?:maintenant|aujourd'hui|en ce moment|hier|ce matin|ce soir|demain|autrefois|chaque semaine"
    r"|tous les (?:jours|matins|soirs)|(?:semaine|année|di|dimanche) (?:derni|prochain)\w*"
    r"|le (?:lundi|mardi|mercredi|jeudi|vendredi|samedi|dimanche))\b"
)
ODD = {  # sentences that are grammatical but that nobody says, or that are ambiguous in English
    "a clean thing washed": r"\b(?:lav|netto[iy])\w+ (?:\w+ ){1,2}(?!(?:est|sont|étai\w+|pas|plus)\b)\w+ propres?\b",
    "clean before it is washed": r"\b(?:(?:laver|nettoyer) (?:est|sont)|(?:lav|nettoy)ée?s? étai\w+) propres?\b",
    "toujours: always or still": r"\btoujours\b",
    "a state that never is": r"\bn(?:e |')(?:aim|ador|détest|préf[èé]r|conna|habit)\w* jamais\b",
    "we think that I": r"\bNous \w+ que j(?:e|')",
    "a plane is not leaving": r"^(?:Un|Une) \w+ (?:ne |n')",
    "into the street": r"\bentr\w+ (?:\w+ )?dans la rue\b",
    "met one's father": r"\brencontr\w+ (?:mon|ma|ton|ta|son|sa|notre|votre|leur) (?:p|m|grand-p|grand-m)ère\b",
}


def test_unnatural_sentences_never_occur(all_pairs: list[Pair]) -> None:
    tu, vous = {"tu", "-tu", "te", "t'", "toi", "-toi", "ton", "ta", "tes"}, {"vous", "-vous", "votre", "vos"}
    for pair in all_pairs:
        words = lowercased(pair.french)
        for odd, sign in ODD.items():
            assert not re.search(sign, pair.french), (odd, pair)
        assert len(re.findall(TIMES, pair.french, re.I)) <= 1, pair
        assert not (tu & set(words) and vous & set(words)), pair
        assert all(words.count(name.lower()) <= 1 for name in NAMES), pair
        assert not ("jamais" in words and "profession" in pair.tags), pair
        if re.search(r"\w qui n", pair.french):
            assert not re.search(r"\b(?:who|that) (?:is|are|was|were) not \w+ing\b", pair.english), pair


def test_sentence_lengths_vary(sample: dict[str, list[Pair]]) -> None:
    lengths = Counter(len(petit.words(pair.french)) - 1 for pair in sample["train"])
    total = sum(lengths.values())
    assert sum(lengths[n] for n in range(7)) > 0.25 * total
    assert sum(lengths[n] for n in range(10, 21)) > 0.1 * total


def test_every_french_sentence_has_one_translation(sample: dict[str, list[Pair]], all_pairs: list[Pair]) -> None:
    english = {pair.french: pair.english for pair in all_pairs}
    assert len(english) == len(all_pairs)  # no French sentence twice, not even across splits
    for seed in (1, 2):
        for pair in petit.pairs(2 * len(sample["train"]) // 5, seed):
            assert english.setdefault(pair.french, pair.english) == pair.english


# The gold alignments


def test_alignments_refer_to_words(all_pairs: list[Pair]) -> None:
    for pair in all_pairs:
        french, english = petit.words(pair.french), petit.words(pair.english)
        assert list(pair.alignment) == sorted(set(pair.alignment)), pair
        assert all(0 <= i < len(french) and 0 <= j < len(english) for i, j in pair.alignment), pair
        assert (len(french) - 1, len(english) - 1) in pair.alignment, pair  # punctuation


def test_names_and_numbers_are_aligned_with_themselves(all_pairs: list[Pair]) -> None:
    numbers = {"deux": "two", "trois": "three", "six": "six", "huit": "eight", "onze": "eleven", "trente": "thirty"}
    content = {"maison": "house", "pomme": "apple", "chien": "dog", "livre": "book", "chats": "cats", "rouge": "red"}
    for pair in all_pairs:
        french, english = lowercased(pair.french), lowercased(pair.english)
        for i, word in enumerate(french):
            there = [english[j] for k, j in pair.alignment if k == i]
            if word in numbers or (word in content and word not in ("maison",)):
                assert there == [(numbers | content)[word]], pair
            if word in ("pas", "jamais"):
                assert there, pair
                assert set(there) <= {"not", "never", "cannot", "no"}, pair


def test_most_words_are_aligned(all_pairs: list[Pair]) -> None:
    loose: Counter[str] = Counter()
    for pair in all_pairs:
        english = lowercased(pair.english)
        loose.update(word for j, word in enumerate(english) if j not in {k for _, k in pair.alignment})
    assert set(loose) <= {"to", "'s"}, loose


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("L'ami dort.", ["L'", "ami", "dort", "."]),
        ("Mange-t-il du pain ?", ["Mange", "-t-il", "du", "pain", "?"]),
        ("Qu'est-ce qu'elles font aujourd'hui ?", ["Qu'", "est-ce", "qu'", "elles", "font", "aujourd'hui", "?"]),
        ("Ma grand-mère a dix-sept chats.", ["Ma", "grand-mère", "a", "dix-sept", "chats", "."]),
        ("Donne-moi le livre, lève-toi !", ["Donne", "-moi", "le", "livre", ",", "lève", "-toi", "!"]),
        ("Marie's dog is at Paul's house.", ["Marie", "'s", "dog", "is", "at", "Paul", "'s", "house", "."]),
        ("She has twenty-five cats.", ["She", "has", "twenty-five", "cats", "."]),
        ("", []),
    ],
)
def test_texts_are_split_into_words(sentence: str, expected: list[str]) -> None:
    assert petit.words(sentence) == expected
    assert [sentence[start:end] for start, end in petit.spans(sentence)] == expected


def test_splitting_into_words_loses_nothing(all_pairs: list[Pair]) -> None:
    for pair in all_pairs[:5_000]:
        for text in (pair.french, pair.english):
            assert "".join(petit.words(text)) == text.replace(" ", "")


# Phenomena and lexicon


def test_every_tag_is_known_and_frequent(sample: dict[str, list[Pair]]) -> None:
    counts = Counter(tag for pair in sample["train"] for tag in pair.tags)
    assert set(counts) == set(PHENOMENA)
    assert len(PHENOMENA) >= 22
    assert all(list(pair.tags) == sorted(set(pair.tags)) for pair in sample["train"])
    rare = {tag: count for tag, count in counts.items() if count < 0.005 * len(sample["train"])}
    assert not rare


def test_tags_match_the_words(all_pairs: list[Pair]) -> None:
    """Tags match what can be seen in the words, in both directions."""
    signs = {
        "elision": r"\b(?:l|d|j|m|t|s|n|c|qu)'",
        "there-is": r"\b(?:il y|il n'y)\b",
        "how-many": r"\bcombien\b",
        "relative-qui": r"\w qui\b",
        "inversion": r"-(?:tu|t-elle|t-il|ils?|elles?|vous|nous)\b(?=.*\?)",
        "question": r"\?",
        "imperative": r"!",
        "demonstrative": r"\b(?:cette|ces|cet)\b",
        "reflexive": r"\bse |\bs'(?!ils?\b)",  # for me, te, nous and vous it depends on the verb
    }
    clitics = {"me", "m'", "te", "t'", "se", "s'", "nous", "vous", "-toi", "-vous"}
    for pair in all_pairs:
        for tag, sign in signs.items():
            seen = re.search(sign, pair.french, re.I) is not None
            if tag in ("demonstrative", "reflexive"):
                assert not seen or tag in pair.tags, pair
            else:
                assert seen == (tag in pair.tags), (tag, pair)
        assert "reflexive" not in pair.tags or clitics & set(lowercased(pair.french)), pair


TAGGED = """
Marie/PROPN ne/ADV leur/PRON donne/VERB jamais/ADV de/DET bijoux/NOUN ./PUNCT
Nous/PRON jouions/VERB du/ADP violon/NOUN quand/SCONJ Élise/PROPN est/AUX sortie/VERB ./PUNCT
Si/SCONJ vous/PRON avez/VERB soif/NOUN ,/PUNCT buvez/VERB du/DET thé/NOUN !/PUNCT
Le/DET camion/NOUN que/PRON nous/PRON avons/AUX conduit/VERB n'/ADV était/VERB pas/ADV cher/ADJ ./PUNCT
Quand/ADV Anne/PROPN a/AUX -t-elle/PRON parlé/VERB dans/ADP la/DET chambre/NOUN ?/PUNCT
Ce/PRON sont/VERB leurs/DET jolies/ADJ tasses/NOUN ./PUNCT
Il/PRON faisait/VERB chaud/ADJ à/ADP Venise/PROPN ./PUNCT
Est-ce/PART que/SCONJ vous/PRON avez/VERB chaud/NOUN ?/PUNCT
"""


@pytest.mark.slow
@pytest.mark.parametrize("tagged", TAGGED.strip().splitlines())
def test_hand_tagged_sentences(tagged: str) -> None:
    words, parts = zip(*(word.rsplit("/", 1) for word in tagged.split()), strict=True)
    pair = petit.find_pair(spell(list(words)))
    assert pair is not None
    assert pair.parts == parts


def test_parts_of_speech_fit_the_words_around_them(all_pairs: list[Pair]) -> None:
    kinds: dict[str, set[str]] = {}
    for pair in all_pairs:
        tagged = list(zip(lowercased(pair.french), pair.parts, strict=True))
        for word, part in tagged:
            kinds.setdefault(word, set()).add(part)
        for (_, part), (_, following) in pairwise(tagged):
            assert part != "DET" or following in ("NOUN", "ADJ", "DET", "NUM"), pair
        if "AUX" in pair.parts:
            helper = pair.parts.index("AUX")
            assert "VERB" in pair.parts[helper + 1 :], pair  # its participle
    for word, expected in {"la": {"DET", "PRON"}, "porte": {"NOUN", "VERB"}, "a": {"AUX", "VERB"}}.items():
        assert kinds[word] == expected
    assert all(kinds[word] == {"PUNCT"} for word in ".?!,")
    assert len(set().union(*kinds.values())) == 14


def test_the_lexicon_is_large_enough() -> None:
    assert petit.count_lemmas() >= 380
    assert all(line and "\n" not in line for line in PHENOMENA.values())


DOINGS = {
    "dort": "sleeping",
    "rit": "laughing",
    "pleure": "crying",
    "sourit": "smiling",
    "travaille": "working",
    "étudie": "studying",
    "danse": "dancing",
    "chante": "singing",
    "court": "running",
    "nage": "swimming",
    "marche": "walking",
    "joue": "playing",
    "parle": "talking",
    "cuisine": "cooking",
    "rêve": "dreaming",
    "sort": "going out",
    "rentre": "going home",
    "monte": "going upstairs",
    "descend": "going downstairs",
}


def joined_sentences() -> Iterator[list[str]]:
    """Return a sample of all joined sentences."""
    draw, ends = (
        Random(0),
        {"{} {} et {} {}.": "{} is {} and {} is {}.", "{} {}, mais {} {}.": "{} is {}, but {} is {}."},
    )
    for french, english in ends.items():
        for _ in range(6):
            (one, other), (does, did) = draw.sample(NAMES, 2), draw.sample(sorted(DOINGS), 2)
            translation = english.format(one, DOINGS[does], other, DOINGS[did])
            yield [french.format(one, does, other, did), translation, "coordination"]


NAMES = [name for line in TABLE["names"].values() for name in line.split()]
JOINED = list(joined_sentences())


@pytest.mark.slow
def test_more_than_a_million_pairs_are_possible() -> None:
    """Only "Paul dort et Marie rêve": two names, two verbs, et or mais, now, before, once or soon."""
    assert len(NAMES) * (len(NAMES) - 1) * len(DOINGS) * (len(DOINGS) - 1) * 2 * 4 > 1_000_000
    for french, english, tags in JOINED:
        assert_generated(french, english, tags)


# Determinism and splits


PRINT_PAIRS = """
from regard import petit
print([list(petit.pairs(count, 7, split)) for split, count in (("train", 200), ("dev", 20), ("compositional", 20))])
"""


@pytest.mark.slow
@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_petit_does_not_depend_on_the_order_of_sets(hash_seed: str) -> None:
    """Other processes iterate over sets of strings in another order, and generate the same pairs."""
    environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONUTF8": "1"}
    command = [sys.executable, "-c", PRINT_PAIRS]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, encoding="utf-8")
    splits = (("train", 200), ("dev", 20), ("compositional", 20))
    assert done.stdout == f"{[list(petit.pairs(count, 7, split)) for split, count in splits]}\n"


def test_petit_is_the_same_on_every_machine() -> None:
    """A digest that any change of the text changes: published scores refer to this text."""
    digest = sha256()
    for split, count in (("train", 100), ("dev", 20), ("compositional", 20)):
        for pair in petit.pairs(count, 7, split):
            digest.update(f"{pair}\n".encode())
    assert digest.hexdigest()[:16] == "7bb5af82e06e72d3"


def test_a_smaller_corpus_is_a_prefix() -> None:
    assert list(petit.pairs(10, seed=4)) == list(petit.pairs(50, seed=4))[:10]
    assert list(petit.pairs(10, seed=4)) != list(petit.pairs(10, seed=5))
    assert list(petit.pairs(0)) == []


def test_the_requested_number_of_pairs_is_generated(sample: dict[str, list[Pair]]) -> None:
    assert {split: len({pair.french for pair in pairs}) for split, pairs in sample.items()} in SAMPLES.values()


def test_splits_are_disjoint_for_every_seed(sample: dict[str, list[Pair]]) -> None:
    for one, other in (("dev", "train"), ("test", "train"), ("compositional", "dev")):
        there = {pair.french for pair in sample[one]}
        for seed in (11, 12):
            count = len(sample["train"]) // 10 if other == "train" else len(sample["dev"]) // 3
            assert there.isdisjoint(pair.french for pair in petit.pairs(count, seed, other))


def test_an_unknown_split_is_rejected() -> None:
    with pytest.raises(ValueError, match="no split 'tests': did you mean 'test'"):
        petit.pairs(1, split="tests")
    with pytest.raises(ValueError, match="count=-1 is too small"):
        petit.pairs(-1)


def test_the_compositional_split_uses_only_known_words(sample: dict[str, list[Pair]]) -> None:
    known = {word for pair in sample["train"] for word in lowercased(pair.french)}
    tags = {tag for pair in sample["train"] for tag in pair.tags}
    for pair in sample["compositional"]:
        assert set(pair.tags) <= tags, pair
    rare = {word for pair in sample["compositional"] for word in lowercased(pair.french)} - known
    assert len(rare) < 60
    for word in sorted(rare):
        assert occurs_in_training(word), word


def occurs_in_training(word: str) -> bool:
    """Return whether a form too rare for our sample occurs in training, searching the sentences of its lemma."""
    world = SentenceGenerator(
        Random(word).random,
        load().restricted_to(
            [word, "Paul", "chien", "maison", "table", "homme", "livre", "lettre", "cadeau", "pomme", "pain", "eau"]
        ),
    )
    for _ in range(100_000):
        sentence = world.try_generate()
        if sentence and not sentence.reserved:
            spoken, _places = elide_and_contract(sentence.phrase.french)
            if word in spoken and petit._hashed_split(spell(spoken)) == "train":
                return True
    return False


def test_reserved_combinations_are_never_in_training(sample: dict[str, list[Pair]]) -> None:
    """Adjective and noun side by side: reserved pairs, chosen by the hash, occur only in their split."""
    nouns = {key.partition("/")[0] for entries in TABLE["nouns"].values() for key in entries}
    reserved = {
        (adjective, noun)
        for adjective in ("noir", "blanc", "rouge", "vert", "bleu", "petit", "grand")
        for noun in nouns
        if crc32(f"adjective|{adjective}|{noun}".encode()) % 1000 < 40
    }
    assert len(reserved) > 10
    met: Counter[str] = Counter()
    for split in SPLITS:
        for pair in sample[split]:
            said_words = lowercased(pair.french)
            for one, two in pairwise(said_words):
                met[split] += (one, two) in reserved or (two, one) in reserved
    assert met["compositional"] > 0
    assert met["train"] == met["dev"] == met["test"] == 0


# Hand-written pairs

PAIRS = [line.split("\t") for line in (HERE / "petit_pairs.tsv").read_text().splitlines()]


def assert_generated(french: str, english: str, tags: str) -> None:
    pair = petit.find_pair(french)
    assert pair is not None
    assert (pair.english, " ".join(pair.tags)) == (english, tags)


@pytest.mark.slow
@pytest.mark.parametrize(("french", "english", "tags"), PAIRS)
def test_hand_written_pairs_are_generated(french: str, english: str, tags: str) -> None:
    assert_generated(french, english, tags)


def test_the_hand_written_pairs_cover_every_phenomenon() -> None:
    assert len(PAIRS) >= 150
    assert len({row[0] for row in PAIRS}) == len(PAIRS)
    assert {tag for row in PAIRS for tag in row[2].split()} == set(PHENOMENA)


def test_impossible_pairs_are_not_found() -> None:
    assert petit.find_pair("Le pain lit le chat.", draws=300) is None
    assert petit.find_pair("Xyz.", draws=10) is None


def test_too_many_pairs_are_rejected_immediately(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at most 5,000,000 allowed"):
        write_petit(99_999_999_999, tmp_path / "petit")
    assert not (tmp_path / "petit").exists()


def test_only_the_requested_splits_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_files, "HELD_OUT", 5)
    assert write_petit(7, tmp_path / "all") == {"train": 7, "dev": 5, "test": 5, "compositional": 5}
    assert write_petit(7, tmp_path / "some", splits=("train", "test")) == {"train": 7, "test": 5}
    names = {f"{split}.{suffix}" for split in ("train", "test") for suffix in ("fr", "en", "align", "tags", "conll")}
    assert {path.name for path in (tmp_path / "some").iterdir()} == names
    assert all((tmp_path / "some" / name).read_bytes() == (tmp_path / "all" / name).read_bytes() for name in names)
