"""Regular expressions in RE2's syntax, as Kafka uses them: clients, coordinators, the registry and the console compile
and match every pattern that a user or a client writes with `Pattern`.

RE2 takes time linear in the length of the text, times the size of the pattern, and bounded memory; the size of the
pattern is bounded here, by one limit for all. RE2 has no look-around, no back-references and no possessive repeats.
Many texts are matched in slices, between which the event loop serves others.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from ottla.model.error_codes import ErrorCode
from ottla.model.errors import InvalidRequestError

INSTRUCTIONS_MAX: Final = 2_000
"""Size limit of a compiled pattern; matching takes at most this many steps for each byte of a text."""
CHARACTERS_MAX: Final = 10_000
"""Length limit of a pattern, which is checked before it is compiled: longer ones would be too large anyway."""
SLICE_STEPS_MAX: Final = 100_000
"""Limit for the texts of one slice together: a millisecond at worst, since a crowd of clients has a slice each."""
_MEMORY_BYTES_MAX: Final = 1 << 20
_SHOWN_CHARACTERS_MAX: Final = 200


class InvalidPatternError(InvalidRequestError):
    """A pattern that cannot be used. The message says why and has the pattern, `reason` says only why."""

    code = ErrorCode.INVALID_REGULAR_EXPRESSION

    def __init__(self, text: str, reason: str) -> None:
        shown = text if len(text) <= _SHOWN_CHARACTERS_MAX else f"{text[:_SHOWN_CHARACTERS_MAX]}..."
        super().__init__(f"the regular expression `{shown}` is not valid: {reason}")
        self.reason = reason


class PatternTooLargeError(InvalidPatternError):
    """A pattern that is too large, which may have taken ten milliseconds to find out."""


class Pattern:
    """A compiled pattern over texts; raises `InvalidPatternError`.

    With `of_ascii`, all texts are ASCII, as names of topics are: over bytes a dot is one instruction, over UTF-8 eight.
    Without `with_groups`, matching is faster, and `groups_of` does not have what groups matched.
    """

    __slots__ = ("_compiled", "instructions", "text")

    def __init__(self, text: str, *, of_ascii: bool = False, with_groups: bool = False) -> None:
        if len(text) > CHARACTERS_MAX:
            raise PatternTooLargeError(
                text, f"pattern too large: {len(text)} characters, the limit is {CHARACTERS_MAX}"
            )
        self.text: Final = text
        self._compiled = _compile(text, of_ascii=of_ascii and text.isascii(), with_groups=with_groups)
        self.instructions: Final[int] = self._compiled.programsize
        if self.instructions > INSTRUCTIONS_MAX:
            raise PatternTooLargeError(
                text, f"pattern too large: it needs {self.instructions} instructions, the limit is {INSTRUCTIONS_MAX}"
            )

    def matches(self, text: str) -> bool:
        """Whether the pattern matches the whole text."""
        return self._compiled.fullmatch(_encoded(text)) is not None

    def matches_start(self, text: str) -> bool:
        """Whether the pattern matches from the beginning of the text; the rest may be anything."""
        return self._compiled.match(_encoded(text)) is not None

    def matches_inside(self, text: str) -> bool:
        """Whether the pattern matches somewhere in the text."""
        return self._compiled.search(_encoded(text)) is not None

    def groups_of(self, text: str) -> Sequence[str | None] | None:
        """What each group matched, the whole text first; None if the pattern does not match the whole text."""
        match = self._compiled.fullmatch(text)
        return None if match is None else (match[0], *match.groups())

    def steps(self, text: str) -> int:
        """How many steps matching a text takes at most."""
        return self.instructions * ((len(text) if text.isascii() else 4 * len(text)) + 1)

    def slices(self, texts: Iterable[str]) -> Iterator[list[str]]:
        """The texts in slices that take `SLICE_STEPS_MAX` steps at most, or have one text alone that takes more."""
        piece: list[str] = []
        steps = 0
        for text in texts:
            cost = self.steps(text)
            if piece and steps + cost > SLICE_STEPS_MAX:
                yield piece
                piece, steps = [], 0
            piece.append(text)
            steps += cost
        if piece:
            yield piece


def _encoded(text: str) -> bytes:
    """Half a surrogate pair, which texts of JSON may have, is a character as others."""
    return text.encode("utf-8", "surrogatepass")


def _compile(text: str, *, of_ascii: bool, with_groups: bool) -> Any:
    # Most programs need no patterns, and RE2 takes time to import.
    import re2

    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1 if of_ascii else re2.Options.Encoding.UTF8
    options.log_errors = False
    options.max_mem = _MEMORY_BYTES_MAX
    options.never_capture = not with_groups
    try:
        return re2.compile(text.encode() if of_ascii else text, options)
    except UnicodeEncodeError:
        raise InvalidPatternError(text, "half a surrogate pair is not a character") from None
    except re2.error as error:
        why = error.args[0]
        reason = why.decode("utf-8", "replace") if isinstance(why, bytes) else str(why)
        is_too_large = reason.startswith("pattern too large")
        raise (PatternTooLargeError if is_too_large else InvalidPatternError)(text, reason) from None
