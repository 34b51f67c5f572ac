"""Reads patterns over topic names in RE2's syntax into expressions; what they match is `topic_patterns.py`'s duty.

Groups only group, and lazy repeats repeat alike, since nobody asks for what they caught. Characters that no topic name
can have are allowed and match nothing.
"""

import re
import unicodedata
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from ottla.model.error_codes import ErrorCode
from ottla.model.errors import InvalidRequestError

ALPHABET: Final = {
    character: 1 << index
    for index, character in enumerate("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
}
"""All characters that a topic name can have, each with its bit."""

REPEATS_MAX: Final = 1_000
_DEPTH_MAX: Final = 100
_ALL: Final = (1 << len(ALPHABET)) - 1


class InvalidPatternError(InvalidRequestError):
    """A pattern that cannot be used; the message says where it fails and why."""

    code = ErrorCode.INVALID_REGULAR_EXPRESSION


class Place(Enum):
    """A place between two characters."""

    START = auto()
    END = auto()
    WORD_EDGE = auto()
    NO_WORD_EDGE = auto()


@dataclass(frozen=True, slots=True)
class Characters:
    """One character out of a set."""

    mask: int


@dataclass(frozen=True, slots=True)
class Assertion:
    """No character, at a certain place."""

    place: Place


@dataclass(frozen=True, slots=True)
class Sequence:
    """One after the other."""

    parts: tuple["Expression", ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several."""

    options: tuple["Expression", ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """The same, so many times; `most` None for no limit."""

    part: "Expression"
    least: int
    most: int | None


Expression = Characters | Assertion | Sequence | Choice | Repeat


def parse(text: str) -> Expression:
    """The expression that the text writes down."""
    return _Parser(text).parse()


def _mask(characters: str) -> int:
    return sum(ALPHABET.get(character, 0) for character in dict.fromkeys(characters))


def _mask_between(first: int, last: int) -> int:
    return sum(bit for character, bit in ALPHABET.items() if first <= ord(character) <= last)


def _mask_of_category(name: str) -> int:
    return sum(bit for character, bit in ALPHABET.items() if unicodedata.category(character).startswith(name))


def _folded(mask: int) -> int:
    return mask | sum(ALPHABET[c.swapcase()] for c, bit in ALPHABET.items() if mask & bit and c.isalpha())


_DIGITS: Final = _mask_of_category("Nd")
_LETTERS: Final = _mask_of_category("L")
_WORDS: Final = _DIGITS | _LETTERS | _mask("_")
_PERL_CLASSES: Final = {"d": _DIGITS, "w": _WORDS, "s": 0}
_POSIX_CLASSES: Final = {
    "alnum": _DIGITS | _LETTERS,
    "alpha": _LETTERS,
    "ascii": _ALL,
    "blank": 0,
    "cntrl": 0,
    "digit": _DIGITS,
    "graph": _ALL,
    "lower": _mask_of_category("Ll"),
    "print": _ALL,
    "punct": _mask("._-"),
    "space": 0,
    "upper": _mask_of_category("Lu"),
    "word": _WORDS,
    "xdigit": _mask("0123456789abcdefABCDEF"),
}
_CATEGORIES: Final = re.compile("C[cfos]?|L[lmotu]?|M[cen]?|N[dlo]?|P[cdefios]?|S[ckmo]?|Z[lps]?")
_SCRIPTS: Final = {
    "Any": _ALL,
    "Latin": _LETTERS,
    "Common": _ALL & ~_LETTERS,
    **dict.fromkeys(("Arabic", "Armenian", "Cyrillic", "Devanagari", "Georgian", "Greek", "Han", "Hangul"), 0),
    **dict.fromkeys(("Hebrew", "Hiragana", "Inherited", "Katakana", "Thai"), 0),
}
_CONTROL_ESCAPES: Final = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_PLACES: Final = {"A": Place.START, "z": Place.END, "b": Place.WORD_EDGE, "B": Place.NO_WORD_EDGE}
_REPEATS: Final[dict[str, tuple[int, int | None]]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}

_COUNTED: Final = re.compile(r"\{(\d{1,6})(?:(,)(\d{0,6}))?\}", re.ASCII)
_GROUP: Final = re.compile(r"\(\?(?:P?<[A-Za-z0-9_]+>|(?P<flags>[imsU]*(?:-[imsU]+)?)(?P<end>[:)]))")
_HEX: Final = re.compile(r"\\x(?:([0-9A-Fa-f]{2})|\{([0-9A-Fa-f]{1,6})\})")
_OCTAL: Final = re.compile(r"\\(0[0-7]{0,2}|[1-7][0-7]{1,2})")
_PROPERTY: Final = re.compile(r"\\([pP])(?:\{(\^?)(\w+)\}|([A-Z]))")
_POSIX: Final = re.compile(r"\[:(\^?)(\w+):\]")


class _Parser:
    """Reads from left to right; `_at` is the next character."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._ignores_case = False

    def parse(self) -> Expression:
        expression = self._choice()
        if self._at < len(self._text):
            raise self._error("a ) without its (")
        return expression

    def _error(self, why: str) -> InvalidPatternError:
        return InvalidPatternError(f"SubscribedTopicRegex `{self._text}` is not valid: {why} at character {self._at}")

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self) -> str:
        character = self._peek()
        if not character:
            raise self._error("it ends too early")
        self._at += 1
        return character

    def _found(self, form: re.Pattern[str]) -> re.Match[str] | None:
        found = form.match(self._text, self._at)
        if found is not None:
            self._at = found.end()
        return found

    def _choice(self) -> Expression:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise self._error(f"more than {_DEPTH_MAX} groups in each other")
        options = [self._sequence()]
        while self._peek() == "|":
            self._at += 1
            options.append(self._sequence())
        self._depth -= 1
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _sequence(self) -> Expression:
        parts: list[Expression] = []
        while self._peek() not in ("", "|", ")"):
            if self._text.startswith("\\Q", self._at):
                parts += self._quoted()
                continue
            part = self._single()
            if part is not None:
                parts.append(self._repeated(part))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _quoted(self) -> list[Expression]:
        end = self._text.find("\\E", self._at)
        quoted = self._text[self._at + 2 : end if end >= 0 else None]
        self._at = len(self._text) if end < 0 else end + 2
        parts: list[Expression] = [self._characters(_mask(character)) for character in quoted]
        if parts:
            parts[-1] = self._repeated(parts[-1])
        return parts

    def _characters(self, mask: int) -> Characters:
        return Characters(_folded(mask) if self._ignores_case else mask)

    def _single(self) -> Expression | None:
        """What a repeat can follow; None for a change of flags."""
        character = self._peek()
        if character == "(":
            return self._group()
        if character == "[":
            return self._class()
        if character == "\\":
            return self._escape()
        if character in _REPEATS or _COUNTED.match(self._text, self._at):
            raise self._error("nothing to repeat")
        self._at += 1
        match character:
            case ".":
                return Characters(_ALL)
            case "^":
                return Assertion(Place.START)
            case "$":
                return Assertion(Place.END)
        return self._characters(_mask(character))

    def _repeated(self, part: Expression) -> Expression:
        counts = self._repeat()
        if counts is None:
            return part
        if self._peek() == "?":
            self._at += 1
        repeated = Repeat(part, *counts)
        if self._repeat() is not None:
            raise self._error("a repeat of a repeat")
        return repeated

    def _repeat(self) -> tuple[int, int | None] | None:
        counts = _REPEATS.get(self._peek())
        if counts is not None:
            self._at += 1
            return counts
        found = self._found(_COUNTED)
        if found is None:
            return None
        least = int(found[1])
        most = least if found[2] is None else int(found[3]) if found[3] else None
        if max(least, most or 0) > REPEATS_MAX or (most is not None and most < least):
            raise self._error(f"a bad count of repeats, which go up to {REPEATS_MAX},")
        return least, most

    def _group(self) -> Expression | None:
        before = self._ignores_case
        if self._text.startswith("(?", self._at):
            found = self._found(_GROUP)
            if found is None:
                raise self._error("a group that RE2 does not have")
            if found["flags"] is not None:
                self._set_flags(found["flags"])
            if found["end"] == ")":
                return None
        else:
            self._at += 1
        expression = self._choice()
        if self._peek() != ")":
            raise self._error("a ( without its )")
        self._at += 1
        self._ignores_case = before
        return expression

    def _set_flags(self, flags: str) -> None:
        on, _, off = flags.partition("-")
        if "i" in on or "i" in off:
            self._ignores_case = "i" in on and "i" not in off

    def _escape(self) -> Expression:
        following = self._text[self._at + 1 : self._at + 2]
        if following in _PLACES:
            self._at += 2
            return Assertion(_PLACES[following])
        mask = self._class_escape()
        return self._characters(_mask(self._escaped()) if mask is None else mask)

    def _class_escape(self) -> int | None:
        """The set that an escape stands for, if it stands for one."""
        following = self._text[self._at + 1 : self._at + 2]
        if following and following.lower() in _PERL_CLASSES:
            self._at += 2
            mask = _PERL_CLASSES[following.lower()]
            return mask if following.islower() else _ALL & ~mask
        if following not in ("p", "P") or not following:
            return None
        found = self._found(_PROPERTY)
        if found is None:
            raise self._error("a property of characters without its name")
        name = found[3] or found[4]
        if name not in _SCRIPTS and not _CATEGORIES.fullmatch(name):
            raise self._error(f"characters cannot be {name}")
        mask = _SCRIPTS[name] if name in _SCRIPTS else _mask_of_category(name)
        is_negated = (found[1] == "P") != (found[2] == "^")
        return _ALL & ~mask if is_negated else mask

    def _escaped(self) -> str:
        """The one character that an escape stands for."""
        found = self._found(_HEX)
        if found is not None:
            number = int(found[1] or found[2], 16)
            if number > 0x10FFFF:
                raise self._error("a number beyond all characters")
            return chr(number)
        found = self._found(_OCTAL)
        if found is not None:
            return chr(int(found[1], 8))
        self._at += 1
        character = self._take()
        if character in _CONTROL_ESCAPES:
            return _CONTROL_ESCAPES[character]
        if character.isalnum() and character.isascii():
            raise self._error(f"\\{character}, which RE2 does not have,")
        return character

    def _class(self) -> Expression:
        self._at += 1
        is_negated = self._peek() == "^"
        self._at += is_negated
        mask = 0
        is_first = True
        while self._peek() != "]" or is_first:
            is_first = False
            mask |= self._class_part()
        self._at += 1
        if self._ignores_case:
            mask = _folded(mask)
        return Characters(_ALL & ~mask if is_negated else mask)

    def _class_part(self) -> int:
        if self._text.startswith("[:", self._at):
            found = self._found(_POSIX)
            if found is not None:
                if found[2] not in _POSIX_CLASSES:
                    raise self._error(f"characters cannot be {found[2]}")
                mask = _POSIX_CLASSES[found[2]]
                return _ALL & ~mask if found[1] else mask
        if self._peek() == "\\":
            escaped = self._class_escape()
            if escaped is not None:
                return escaped
        first = self._class_character()
        if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("", "]"):
            self._at += 1
            last = self._class_character()
            if last < first:
                raise self._error("a range that ends before it begins")
            return _mask_between(ord(first), ord(last))
        return _mask(first)

    def _class_character(self) -> str:
        return self._escaped() if self._peek() == "\\" else self._take()
