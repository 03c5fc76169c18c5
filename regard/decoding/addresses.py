"""Web and e-mail addresses in translations: they must stay as they are, but a model translates the words in them.

A sentence whose translation lacks one of its addresses is translated again, with a stand-in for each address. The
bundled translators copy short codes such as X1.
"""

import re
from collections import Counter
from collections.abc import Mapping

ADDRESS = re.compile(
    r"(?:https?://|www\.)[^\s<>\"'«»“”]*[\w/]"  # without the punctuation after it
    r"|(?<![\w.+-])\w[\w.+-]*+@\w[\w-]*+(?:\.\w[\w-]*+)++",  # possessive: long words without @ take linear time
    re.IGNORECASE,
)
MAX_ADDRESSES = 9
"""Number of addresses up to which a sentence is translated with stand-ins: a list of links needs no translation."""


def has_all_addresses(translation: str, source: str) -> bool:
    """Whether a translation contains every address of its source, as often as the source does.

    >>> has_all_addresses("Write to a.b@c.fr.", "Écrivez à a.b@c.fr.")
    True
    >>> has_all_addresses("See www.file.fr.", "Voir www.fichier.fr.")
    False
    """
    return not Counter(ADDRESS.findall(source)) - Counter(ADDRESS.findall(translation))


def with_stand_ins(source: str) -> tuple[str, dict[str, str]]:
    """The source with a code for each different address, and the address of each code; none if there are too many.

    >>> with_stand_ins("Voir www.fichier.com ou X1.")
    ('Voir X2 ou X1.', {'X2': 'www.fichier.com'})
    """
    addresses = list(dict.fromkeys(ADDRESS.findall(source)))
    codes = (f"X{number}" for number in range(1, 10 * MAX_ADDRESSES))
    unused = (code for code in codes if code not in source)
    stand_ins = dict(zip(unused, addresses, strict=False)) if len(addresses) <= MAX_ADDRESSES else {}
    code_of = {address: code for code, address in stand_ins.items()}
    return ADDRESS.sub(lambda match: code_of.get(match[0], match[0]), source), stand_ins


def without_stand_ins(translation: str, stand_ins: Mapping[str, str]) -> str:
    """A translation with the addresses in place of their codes.

    >>> without_stand_ins("See X2 or X1.", {"X2": "www.fichier.com"})
    'See www.fichier.com or X1.'
    """
    return re.sub(r"\bX\d+\b", lambda match: stand_ins.get(match[0], match[0]), translation)
