"""Parts of speech of Petit's French words, named as in Universal Dependencies.

Words of the lexicon carry their part of speech. Function words have theirs in a table, unless the grammar uses them in
a second role: "leur" is a determiner, and a pronoun before a verb. The helper verbs of compound tenses, avoir and être,
are AUX; every other verb is VERB. A contraction has the part of speech of its first word: "du" is ADP in "près du pont"
and DET in "du pain".
"""

from regard.errors import RegardError

_FUNCTION_WORDS = {
    "DET": "le* la* les* un une des ce cet cette ces mon ma mes ton ta tes son sa ses notre nos votre vos leur leurs "
    "tous chaque",
    "PRON": "je~ tu il elle nous vous ils elles me~ te~ se~ le~ la~ les lui moi toi eux y ce~ qui -je -tu -il -t-il "
    "-elle -t-elle -nous -vous -ils -elles -t-ils -t-elles -moi -toi -le -la -les",
    "ADP": "de~ à à* dans sur sous devant derrière chez en",
    "ADV": "ne~ pas jamais plus moins aussi souvent parfois rarement bien mal vite lentement où quand pourquoi combien "
    "près hier demain aujourd'hui maintenant autrefois",
    "SCONJ": "que~ parce si~",
    "CCONJ": "et mais",
    "PART": "est-ce",
    "VERB": "voici",
    "NOUN": "matin matins soir soirs jours semaine année moment côté ans faim soif froid chaud peur sommeil raison "
    "tort",
    "ADJ": "dernier dernière prochain prochaine meilleur meilleure meilleurs meilleures",
    "PUNCT": ". ? ! ,",
}
_PART_OF_WORD = {word: part for part, words in _FUNCTION_WORDS.items() for word in words.split()}


class Word(str):
    """A French word that carries its part of speech. It is equal to the same word as a plain string."""

    __slots__ = ("part",)
    part: str

    def __new__(cls, form: str, part: str) -> "Word":
        """Return the word."""
        word = super().__new__(cls, form)
        word.part = part
        return word


def part_of_speech(word: str) -> str:
    """Return the part of speech of a word of a sentence before elision and contraction."""
    part = word.part if isinstance(word, Word) else _PART_OF_WORD.get(word)
    if part is None:
        raise RegardError(f"the part of speech of {word!r} is not known: add it to the lexicon or to the table")
    return part
