"""Regular expressions over topic names, matched by RE2.

Coordinators that match patterns for a group (`group_protocol="consumer"`) use RE2 as well, so a pattern means the same
in both protocols.
"""

from ottla.model.errors import MisuseError
from ottla.model.re2_patterns import InvalidPatternError, Pattern


class TopicPattern:
    """A compiled pattern. Raises `MisuseError` for one that RE2 does not accept."""

    __slots__ = ("_pattern", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        try:
            self._pattern = Pattern(text, of_ascii=True)
        except InvalidPatternError as error:
            raise MisuseError(
                f"pattern {text!r} is not a valid RE2 regular expression: {error.reason}; RE2 has no look-around and no"
                " back-references"
            ) from None

    def matches_start(self, name: str) -> bool:
        """Whether the pattern matches from the beginning of the name; the rest of the name may be anything."""
        return self._pattern.matches_start(name)

    def matches_whole(self, name: str) -> bool:
        """Whether the pattern matches the whole name."""
        return self._pattern.matches(name)
