"""Patterns over topic names and transactional ids, matched by RE2: Kafka uses its Java twin, RE2/J.

Members of consumer groups send them, so they are not to be trusted: RE2 takes time that grows with the size of the
pattern and the length of the name alone, and both are bounded. A pattern must match the whole name. Thousands of names
are matched in slices, between which the event loop gets its turn: `unmatched` returns the slices. Verdicts are kept.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from ottla.model.error_codes import ErrorCode
from ottla.model.errors import InvalidRequestError
from ottla.model.re2_patterns import PatternSyntaxError, compile_re2

INSTRUCTIONS_MAX: Final = 2_000
"""Size limit of a compiled pattern; matching takes at most this many steps for each character of a name."""
SLICE_STEPS_MAX: Final = 500_000
"""Limit for the names of one slice together: a millisecond or two at worst."""
_SPARE_VERDICTS: Final = 1_000


class InvalidPatternError(InvalidRequestError):
    """A pattern that cannot be used; the message says why."""

    code = ErrorCode.INVALID_REGULAR_EXPRESSION


class Pattern:
    """A compiled pattern over any text; raises `InvalidPatternError`, whose message is fit for the client."""

    __slots__ = ("_compiled", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._compiled = _compile(text, text)

    def matches(self, name: str) -> bool:
        """Whether the pattern matches the whole name."""
        return self._compiled.fullmatch(name) is not None


def _compile(text: str, encoded: str | bytes) -> Any:
    """The pattern for text, or for bytes if it is given as bytes."""
    try:
        return compile_re2(encoded)
    except PatternSyntaxError as error:
        raise InvalidPatternError(f"the regular expression `{text}` is not valid: {error}") from None


class TopicPattern:
    """A pattern over topic names. Results are kept, since most topics are there at the next match."""

    __slots__ = ("_compiled", "_is_of_bytes", "_steps_per_character", "_verdicts", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        # Topic names are ASCII. Over bytes a dot is one instruction, over UTF-8 eight.
        self._is_of_bytes = text.isascii()
        self._compiled = _compile(text, text.encode() if self._is_of_bytes else text)
        self._steps_per_character: int = self._compiled.programsize
        if self._steps_per_character > INSTRUCTIONS_MAX:
            raise InvalidPatternError(
                f"the regular expression `{text}` is too large: it needs {self._steps_per_character} instructions,"
                f" {INSTRUCTIONS_MAX} at most"
            )
        self._verdicts: dict[str, bool] = {}

    def matches(self, name: str) -> bool:
        """Whether the pattern matches the whole name."""
        verdict = self._verdicts.get(name)
        if verdict is None:
            found = self._compiled.fullmatch(name.encode() if self._is_of_bytes else name)
            verdict = self._verdicts[name] = found is not None
        return verdict

    def unmatched(self, names: Iterable[str]) -> Iterator[list[str]]:
        """The names without a result, in slices that take `SLICE_STEPS_MAX` steps at most."""
        names = list(names)
        if len(self._verdicts) > 2 * len(names) + _SPARE_VERDICTS:
            self._verdicts.clear()
        piece: list[str] = []
        steps = 0
        for name in names:
            if name in self._verdicts:
                continue
            cost = self._steps_per_character * (len(name) + 1)
            if piece and steps + cost > SLICE_STEPS_MAX:
                yield piece
                piece, steps = [], 0
            piece.append(name)
            steps += cost
        if piece:
            yield piece
