"""The bytes of a token from its spelling in a vocabulary, and labels for bytes that are only a part of a character."""

import re
from functools import cache

REPLACEMENT_CHARACTER = "\ufffd"
"""What tokenizers write for bytes that are not, or not yet, a valid character."""
BYTE_FALLBACK = re.compile(r"<0x([0-9A-F]{2})>")
"""The spelling of a single byte in vocabularies with byte fallback."""
BYTE_LABEL = re.compile(r"\\x[0-9a-f]{2}")
CONTINUATION_BYTE_LABEL = re.compile(r"\\x[89ab][0-9a-f]")
"""The label of a byte that is not the first one of its character in UTF-8."""


def visible_token(text: str, spelling: str) -> str:
    r"""Return the text of a token that contains a part of a character: each byte of it as \xf0.

    >>> [visible_token("\ufffd", spelling) for spelling in ("ðŁ", "Ġð", "<0xF0>", "ん")]
    ['\\xf0\\x9f', ' \\xf0', '\\xf0', '�']
    """
    token_bytes = _token_bytes(spelling)
    return text if token_bytes is None else token_bytes.decode("utf-8", "backslashreplace")


def _token_bytes(spelling: str) -> bytes | None:
    """The bytes of a token in a byte-level vocabulary, or in one with byte fallback; None for other spellings."""
    if match := BYTE_FALLBACK.fullmatch(spelling):
        return bytes.fromhex(match[1])
    table = _byte_of_character()
    return bytes(table[c] for c in spelling) if all(c in table for c in spelling) else None


@cache
def _byte_of_character() -> dict[str, int]:
    """The byte that each character stands for in a byte-level vocabulary, as in GPT-2: all are visible."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}
