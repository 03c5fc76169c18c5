"""Validation of untrusted regular expressions: those that can take far more than quadratic time are rejected.

The tokenizers library matches with Oniguruma, which backtracks. Before something that may fail to match, every
repetition that could also have stopped earlier is tried again at each length, so two of them in a row already take
cubic time in the length of a text. `check_pattern` scans a pattern once and bounds the number of these choices. A
repetition adds no choices if it is possessive, or if the character that must follow it cannot be part of it (`a*b`).
Nothing has to be retried at the end of an alternative, where the match has succeeded: `\\p{Lu}*\\p{Ll}+` is accepted,
`\\p{Lu}*\\p{Ll}+x` is not.
"""

import math
import re

from regard.errors import RegardError
from regard.formatting import shorten

MAX_PATTERN = 10_000
"""Maximum length of a regular expression, in characters."""
UNBOUNDED_CHOICES = 1_000
"""Number of choices that an unbounded repetition counts for."""
MAX_CHOICES = 20_000
"""Maximum number of choices that may be retried when a match fails: one unbounded repetition and a few short ones."""
FEW_CHOICES = 16
"""Number of choices up to which rescanning a repetition that has no choices itself is not counted."""

Charset = tuple[tuple[int, int], ...] | None
"""Ranges of code points that an atom matches, both ends included; None if this is not known."""

_FLAGS = re.compile(r"\(\?([a-zA-Z]*)(?:-[a-zA-Z]*)?([:)])")
_NAMED = re.compile(r"\(\?P?<\w+>")
_COMMENT = re.compile(r"\(\?#[^)]*\)")
_LOOKAROUNDS = ("(?=", "(?!", "(?<=", "(?<!")
_ESCAPED_CODE = re.compile(r"\\(?:x\{([0-9a-fA-F]{1,8})\}|x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4}))")
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "a": "\a", "e": "\x1b"}


def check_pattern(regex: str) -> None:
    """Raise a RegardError for a regular expression that can take too long to match, or that uses a rare construct.

    Rejected are repetitions of a group that itself has choices, too many choices in a row before something that can
    fail, back-references, calls, conditions and the extended syntax `(?x)`.
    """
    if len(regex) > MAX_PATTERN:
        raise RegardError(f"it has a pattern of {len(regex):,} characters: the maximum is {MAX_PATTERN:,}")
    _Scan(regex).run()


class _Group:
    """The state of a group of a regular expression, or of one of its alternatives, while it is scanned."""

    def __init__(self, kind: str = "") -> None:
        self.kind = kind
        """`lookaround`, `atomic`, `flags` for the rest of a group after `(?i)`, or empty."""
        self.ambiguous = False
        """Whether the group can match the same text in several ways."""
        self.choices = 1
        """Number of ways to match the current alternative so far."""
        self.work = 1
        """Number of characters scanned by a part that has no choices itself."""
        self.retried = 0
        """Number of choices retried, or characters scanned, before something in the group fails."""
        self.earlier_choices = 0
        """Number of ways to match the completed alternatives."""
        self.last: tuple[Charset, int] | None = None
        """Charset and number of choices of the last repetition; what follows decides whether they count."""

    def settle(self, following: Charset = None) -> None:
        """Count the choices of the last repetition, unless a required charset follows that is disjoint from it."""
        if self.last is None:
            return
        (charset, choices), self.last = self.last, None
        if _disjoint(charset, following):
            self.scan(choices)
        else:
            self.ambiguous = True
            self.choices *= choices

    def scan(self, length: int) -> None:
        """Add a repetition without choices: it costs time only if earlier choices repeat it."""
        if self.choices > FEW_CHOICES:
            self.choices *= length
        self.work = max(self.work, length)

    def fail(self, inner: int = 1) -> None:
        """Something follows that can fail, and takes `inner` choices itself."""
        self.retried = max(self.retried, self.choices * inner, self.work)

    def next_alternative(self) -> None:
        self.settle()
        self.ambiguous = True
        self.earlier_choices += self.choices
        self.choices = 1

    def close(self) -> None:
        self.settle()
        self.choices += self.earlier_choices
        self.work = max(self.work, self.choices, self.retried)


class _Scan:
    """One pass over a regular expression."""

    def __init__(self, regex: str) -> None:
        self.regex = regex
        self.at = 0
        self.groups = [_Group()]
        flags = [match[1] for match in _FLAGS.finditer(regex)]
        self.ignores_case = any("i" in letters for letters in flags)
        if any("x" in letters for letters in flags):
            self.reject("uses the extended syntax (?x)")

    def reject(self, problem: str) -> None:
        raise RegardError(f"its pattern {shorten(repr(self.regex), 60)} {problem}")

    def run(self) -> None:
        while self.at < len(self.regex):
            letter = self.regex[self.at]
            if letter == "(":
                self.open_group()
            elif letter == ")":
                self.close_group()
            elif letter == "|":
                self.groups[-1].next_alternative()
                self.at += 1
            else:
                self.atom()
            self.check(self.groups[-1])
        while len(self.groups) > 1:  # after (?i), or an unclosed group that the library rejects
            self.pop_group()
        self.groups[0].close()
        self.check(self.groups[0])

    def check(self, group: _Group) -> None:
        group.choices = min(group.choices, 10**9)  # keep the product small: it is only compared with MAX_CHOICES
        if group.retried > MAX_CHOICES:
            self.reject("has too many repetitions in a row before something that can fail")

    def open_group(self) -> None:
        rest = self.regex[self.at : self.at + 4]
        if comment := _COMMENT.match(self.regex, self.at):
            self.at = comment.end()
        elif rest.startswith(_LOOKAROUNDS):
            self.groups.append(_Group("lookaround"))
            self.at += 4 if rest.startswith("(?<") else 3
        elif rest.startswith("(?>"):
            self.groups.append(_Group("atomic"))
            self.at += 3
        elif flags := _FLAGS.match(self.regex, self.at):
            # a bare (?i) applies up to the end of the group, including the alternatives: a(?i)b|c is a(?i:b|c)
            self.groups.append(_Group("flags" if flags[2] == ")" else ""))
            self.at = flags.end()
        elif rest.startswith(("(?", "(*")):
            named = _NAMED.match(self.regex, self.at)
            if named is None:
                self.reject("has a condition, a call or an unknown kind of group")
            else:
                self.groups.append(_Group())
                self.at = named.end()
        else:
            self.groups.append(_Group())
            self.at += 1

    def close_group(self) -> None:
        self.at += 1
        while self.groups[-1].kind == "flags":
            self.pop_group()
        if len(self.groups) > 1:
            self.pop_group(*self.quantifiers())

    def pop_group(
        self, least: float = 1.0, most: float = 1.0, choices: int = 1, possessive: bool = False, nested: bool = False
    ) -> None:
        """Close the innermost group, whose quantifiers are given, and add it to the group around it."""
        inner = self.groups.pop()
        inner.close()
        self.check(inner)
        outer = self.groups[-1]
        outer.settle()
        if most > 1 and (inner.ambiguous or nested):
            self.reject("repeats a group that can match in many ways")
        if inner.kind == "lookaround":
            outer.fail(inner.work)
            outer.work = max(outer.work, inner.work)
            return
        if least > 0:
            outer.fail(inner.work if least > 1 else max(inner.retried, 1))
        else:
            outer.retried = max(outer.retried, inner.retried)
        if inner.kind == "atomic" or possessive:
            ways = 1
        else:
            ways = inner.choices * choices
            outer.ambiguous |= inner.ambiguous or choices > 1
        work = max(inner.work, _cap(most))
        outer.choices *= max(ways, work) if outer.choices > FEW_CHOICES else ways
        outer.work = max(outer.work, work)

    def atom(self) -> None:
        """Read one character, escape or class with its quantifiers."""
        group, start = self.groups[-1], self.at
        self.at = self.atom_end()
        charset = _charset(self.regex[start : self.at], self.ignores_case)
        least, most, choices, possessive, nested = self.quantifiers()
        group.settle(charset if least > 0 else None)
        if least > 0:
            group.fail()
        if nested:  # (?:a{1,3})+, which is also what a{1,3}+ means: the ways to split a run grow exponentially
            group.ambiguous = True
            group.choices *= UNBOUNDED_CHOICES * UNBOUNDED_CHOICES
        elif possessive or choices == 1:
            group.scan(_cap(most))
        else:
            group.last = charset, choices

    def atom_end(self) -> int:
        letter, after = self.regex[self.at], self.regex[self.at + 1 : self.at + 2]
        if letter == "[":
            return _class_end(self.regex, self.at)
        if letter != "\\":
            return self.at + 1
        if code := _ESCAPED_CODE.match(self.regex, self.at):
            return code.end()
        if after and after in "123456789kg":
            self.reject("has a back-reference")
        if after and after in "0cCMoxu":
            self.reject(f"has the escape \\{after}, which is not supported in this form")
        if after and after in "pP" and self.regex.startswith("{", self.at + 2):
            return max(self.regex.find("}", self.at), self.at + 2) + 1
        return self.at + 2

    def quantifiers(self) -> tuple[float, float, int, bool, bool]:
        """Read the quantifiers that follow: least, most, choices, whether possessive, whether ambiguously nested.

        As in Ruby, `*+`, `++` and `?+` are possessive, but the last sign of `{1,3}+` repeats what is before it, and
        `{3}?` makes it optional.
        """
        least, most, possessive, nested = 1.0, 1.0, False, False
        while True:
            while comment := _COMMENT.match(self.regex, self.at):
                self.at = comment.end()
            length = _quantifier(self.regex, self.at)
            if length == 0:
                break
            quantifier = self.regex[self.at : self.at + length]
            self.at += length
            low, high = _bounds(quantifier)
            suffix = self.regex[self.at : self.at + 1]
            braces = quantifier.startswith("{")
            if suffix == "?":
                self.at += 1
                if braces and "," not in quantifier:
                    low = 0
            elif suffix == "+" and not braces:
                self.at += 1
            nested |= high > 1 and least != most and not possessive
            possessive = suffix == "+" and not braces
            least, most = least * low, math.inf if math.inf in (most, high) else most * high
        choices = 1 if possessive else _cap(most - least + 1) if math.isfinite(least) else UNBOUNDED_CHOICES
        return least, most, choices, possessive, nested


def _cap(count: float) -> int:
    return int(min(max(count, 1), UNBOUNDED_CHOICES))


def _quantifier(regex: str, at: int) -> int:
    """Return the length of the quantifier at this position, without a following ? or +; 0 if there is none."""
    if at >= len(regex):
        return 0
    if regex[at] in "*+?":
        return 1
    if regex[at] != "{":
        return 0
    end = regex.find("}", at)
    bounds = regex[at + 1 : end].split(",")
    numbers = end > at and len(bounds) <= 2 and all(bound == "" or bound.isdecimal() for bound in bounds)
    return end - at + 1 if numbers and any(bounds) else 0


def _bounds(quantifier: str) -> tuple[float, float]:
    """Return the minimum and maximum number of repetitions of a quantifier."""
    if quantifier in "?*+":
        return float(quantifier == "+"), 1.0 if quantifier == "?" else math.inf
    least, comma, most = quantifier[1:-1].partition(",")
    return float(least or 0), float(most or "inf") if comma else float(least)


def _class_end(regex: str, start: int) -> int:
    """Return the end of a character class such as [^a-z]; classes may be nested."""
    depth, at = 0, start
    while at < len(regex):
        if regex[at] == "\\":
            at += 1
        elif regex[at] == "[":
            depth += 1
            at += regex.startswith("^", at + 1)
            at += regex.startswith("]", at + 1)  # a bracket right after the opening one is a literal
        elif regex[at] == "]":
            depth -= 1
            if depth == 0:
                return at + 1
        at += 1
    return len(regex)


def _charset(atom: str, ignores_case: bool) -> Charset:
    """Return the code points that an atom matches, if it is a literal or a class of literals and ranges."""
    if atom.startswith("["):
        ranges = _class_ranges(atom[1:-1])
    else:
        code = None if atom in (".", "^", "$") else _literal(atom)
        ranges = None if code is None else ((code, code),)
    if ranges is None or not ignores_case:
        return ranges
    # Case folding can pair letters of any script, even one letter with two; only ASCII signs are unaffected.
    plain = all(high < 128 and not any(chr(code).isalpha() for code in range(low, high + 1)) for low, high in ranges)
    return ranges if plain else None


def _class_ranges(inner: str) -> Charset:
    if not inner or inner[0] in "^]" or "[" in inner or "&&" in inner:
        return None
    parts = re.findall(r"\\x\{[^}]*\}|\\x[0-9a-fA-F]{1,2}|\\u[0-9a-fA-F]{4}|\\?.", inner, re.DOTALL)
    codes = [_literal(part) for part in parts]
    ranges: list[tuple[int, int]] = []
    at = 0
    while at < len(parts):
        is_range = parts[at + 1 : at + 2] == ["-"] and at + 2 < len(parts)
        low, high = codes[at], codes[at + 2 if is_range else at]
        if low is None or high is None:
            return None
        ranges.append((low, high))
        at += 3 if is_range else 1
    return tuple(ranges)


def _literal(atom: str) -> int | None:
    """Return the code point of a single character or of an escape for one."""
    if len(atom) == 1:
        return ord(atom)
    if code := _ESCAPED_CODE.fullmatch(atom):
        number = int(code[1] or code[2] or code[3], 16)
        return None if code[2] and number >= 128 else number  # \xE9 is one byte of a character
    if len(atom) != 2 or atom[0] != "\\" or not atom[1].isascii():
        return None
    return ord(_CONTROLS.get(atom[1], atom[1])) if atom[1] in _CONTROLS or not atom[1].isalnum() else None


def _disjoint(first: Charset, second: Charset) -> bool:
    if first is None or second is None:
        return False
    return all(high < low_ or high_ < low for low, high in first for low_, high_ in second)
