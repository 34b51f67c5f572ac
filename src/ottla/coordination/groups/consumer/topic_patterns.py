"""Patterns over topic names, to which members of consumer groups subscribe. Verdicts are kept.

A pattern must match the whole name. Many names are matched before a heartbeat is decided, with pauses in which the
event loop serves others: `unmatched` returns the names, `remember` takes the result.
"""

from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from typing import Final

from ottla.model.re2_patterns import Pattern

_SPARE_VERDICTS: Final = 1_000


class TopicPattern:
    """A pattern over topic names; raises `InvalidPatternError`, whose message is fit for the client."""

    __slots__ = ("_verdicts", "pattern")

    def __init__(self, text: str) -> None:
        self.pattern: Final = Pattern(text, of_ascii=True)
        self._verdicts: dict[str, bool] = {}

    def matches(self, name: str) -> bool:
        """Whether the pattern matches the whole name."""
        verdict = self._verdicts.get(name)
        if verdict is None:
            verdict = self._verdicts[name] = self.pattern.matches(name)
        return verdict

    def unmatched(self, names: Collection[str]) -> list[str]:
        """The names without a verdict."""
        if len(self._verdicts) > 2 * len(names) + _SPARE_VERDICTS:
            self._verdicts.clear()
        return [name for name in names if name not in self._verdicts]

    def is_nearly_matched(self, names: Collection[str]) -> bool:
        """Whether the names without a verdict can be matched without a pause."""
        return sum(1 for _ in islice(self.pattern.slices(self.unmatched(names)), 2)) < 2

    def remember(self, names: Sequence[str], matching: Iterable[str]) -> None:
        """Keeps the verdicts on some names."""
        self._verdicts |= dict.fromkeys(names, False) | dict.fromkeys(matching, True)
