"""Compares pairs of subschemas, without recursion, each pair once per round.

The rules of a pair are a generator: it yields the pairs that it depends on and is sent their differences. A pair that
is reached again while it is being compared (a recursive schema) counts as compatible. If such an assumption was made
and pairs were found incompatible that were not known to be, everything is compared again with that knowledge.

Where only the verdict about a pair counts, as for a member of a union, its comparison ends at the first difference.
"""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla.registry.schemas.json_schema.subschemas import ReferenceSchema, Subschema
from ottla.registry.schemas.time_limit import check_time

DIFFERENCES_MAX: Final = 100
"""Kept for a pair: a difference in a definition can show at more places than can be listed."""


class Path(NamedTuple):
    """A segment and what follows: putting a path below another one copies nothing."""

    segment: str
    rest: "Path | None"


class Difference(NamedTuple):
    """A difference that breaks the reader, at a path below the pair that is compared."""

    kind: str
    path: Path | None


class Question(NamedTuple):
    """What are the differences of this pair? They are differences of the pair that asks, too."""

    original: Subschema
    update: Subschema


class FitQuestion(NamedTuple):
    """Does this pair have differences at all? Those that are answered are not all."""

    original: Subschema
    update: Subschema


Comparison = Generator[Question | FitQuestion, list[Difference], list[Difference]]
"""The comparison of a pair: asks, is sent the answers, returns the differences."""
Rules = Callable[[Subschema, Subschema], Comparison]


class TooComplexError(Exception):
    """The comparison took more steps than it may take."""


class Budget:
    """Counts the steps of a comparison."""

    def __init__(self, steps: int) -> None:
        self._steps_left = steps

    def spend(self, steps: int) -> None:
        """Raises `TooComplexError` if no steps are left."""
        check_time()
        self._steps_left -= steps
        if self._steps_left < 0:
            raise TooComplexError


_Pair = tuple[int, int]
"""The identities of two subschemas, which their schemas keep alive."""
_Findings = dict[_Pair, list[Difference]]


@dataclass(slots=True)
class _Open:
    pair: _Pair
    comparison: Comparison
    verdict_only: bool
    asked: Question | FitQuestion | None = None


def compare(original: Subschema, update: Subschema, rules: Rules, budget: Budget) -> list[Difference]:
    """The differences that break the reader. Raises `TooComplexError`."""
    known: _Findings = {}
    while True:
        this_round = _Round(rules, budget, known)
        differences = this_round.compare(original, update)
        found = this_round.incompatible()
        if not this_round.assumed or found.keys() <= known.keys():
            return differences
        known = {**known, **found}


class _Round:
    def __init__(self, rules: Rules, budget: Budget, known: Mapping[_Pair, list[Difference]]) -> None:
        self._rules = rules
        self._budget = budget
        self._known = known  # pairs that were found incompatible in earlier rounds
        self._complete: _Findings = {}
        self._first: _Findings = {}  # incompatible pairs of which only the first difference was looked for
        self._in_progress: set[_Pair] = set()
        self._stack: list[_Open] = []
        self.assumed = False
        """Whether a pair counted as compatible because it was being compared."""

    def incompatible(self) -> _Findings:
        """All pairs with differences."""
        return {**self._first, **{pair: found for pair, found in self._complete.items() if found}}

    def compare(self, original: Subschema, update: Subschema) -> list[Difference]:
        answer = self._answer(Question(original, update))
        while self._stack:
            asking = self._stack[-1]
            if answer and asking.verdict_only and isinstance(asking.asked, Question):
                answer = self._close(asking, answer)
                continue
            try:
                asking.asked = asking.comparison.send(answer) if answer is not None else next(asking.comparison)
            except StopIteration as finished:
                answer = self._close(asking, finished.value)
            else:
                self._budget.spend(1)
                answer = self._answer(asking.asked)
        return answer or []

    def _answer(self, question: Question | FitQuestion) -> list[Difference] | None:
        """The answer if it is known; else None, and the pair is on the stack."""
        original, update = _meant(question.original), _meant(question.update)
        pair = (id(original), id(update))
        if pair in self._complete:
            return self._complete[pair]
        verdict_only = isinstance(question, FitQuestion) or bool(self._stack and self._stack[-1].verdict_only)
        known = self._known.get(pair)
        if verdict_only and (pair in self._first or known is not None):
            return self._first.get(pair, known)
        if pair in self._in_progress:
            self.assumed |= known is None
            return known or []
        self._in_progress.add(pair)
        self._stack.append(_Open(pair, self._rules(original, update), verdict_only))
        return None

    def _close(self, asking: _Open, differences: list[Difference]) -> list[Difference]:
        self._stack.pop()
        self._in_progress.discard(asking.pair)
        asking.comparison.close()
        kept = differences[:DIFFERENCES_MAX]
        findings = self._first if asking.verdict_only and kept else self._complete
        findings[asking.pair] = kept
        return kept


def _meant(schema: Subschema) -> Subschema:
    return schema.target if isinstance(schema, ReferenceSchema) else schema
