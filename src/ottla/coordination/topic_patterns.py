"""Patterns over topic names, in the syntax of RE2, matched in time that grows only with the name's length.

Members of server-side groups send them, so they are not to be trusted: no backtracking, and programs of bounded size. A
pattern must match the whole name. What RE2 does not have (look-around, references back, possessive repeats) is refused,
and so is a program that grows too large. Topic names are made of 65 characters, so sets of characters are bit masks.
Here are the matcher and its compiler; the syntax is read by `topic_pattern_syntax.py`.
"""

from typing import Final, NamedTuple

from ottla.coordination.topic_pattern_syntax import (
    ALPHABET,
    Assertion,
    Characters,
    Choice,
    Expression,
    InvalidPatternError,
    Place,
    Repeat,
    Sequence,
    parse,
)

INSTRUCTIONS_MAX: Final = 2_000
_STEPS_MAX: Final = 20_000
_CACHED_STATES_MAX: Final = 1_000

_WORD: Final = frozenset(character for character in ALPHABET if character.isalnum() or character == "_")
_EDGE: Final = 2
"""What is before the first and after the last character; 0 and 1 stand for others and for word characters."""


class _Step(NamedTuple):
    """Of a name's character: go to `then` if it is one of `mask`."""

    mask: int
    then: int


class _Fork(NamedTuple):
    """Go both ways."""

    then: int
    otherwise: int


class _Look(NamedTuple):
    """Go on only where the place fits."""

    place: Place
    then: int


_Instruction = _Step | _Fork | _Look | None

_Key = tuple[frozenset[int], int]
"""Where the matcher is: the instructions to go on from, and the kind of the character before."""


class TopicPattern:
    """A compiled pattern; raises `InvalidPatternError`, whose message is fit for the one who sent it.

    Runs as an automaton whose states are found as names lead there, and kept, so that most characters cost one lookup.
    """

    __slots__ = ("_moves", "_program", "_start", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        compiler = _Compiler()
        self._start: _Key = (frozenset({compiler.compile(parse(text))}), _EDGE)
        self._program = compiler.program
        self._moves: dict[_Key, dict[str, _Key | bool]] = {}

    def matches(self, name: str) -> bool:
        """Whether the pattern stands for the whole name."""
        key = self._start
        for character in name:
            moves = self._moves_from(key)
            following = moves.get(character)
            if following is None:
                following = moves[character] = self._move(key, character)
            if isinstance(following, bool):
                return False
            key = following
        moves = self._moves_from(key)
        is_end = moves.get("")
        if is_end is None:
            is_end = moves[""] = None in map(self._program.__getitem__, self._reach(key, _EDGE))
        return is_end is True

    def _moves_from(self, key: _Key) -> dict[str, _Key | bool]:
        moves = self._moves.get(key)
        if moves is None:
            if len(self._moves) >= _CACHED_STATES_MAX:
                self._moves.clear()
            moves = self._moves[key] = {}
        return moves

    def _move(self, key: _Key, character: str) -> _Key | bool:
        bit = ALPHABET.get(character, 0)
        kind = int(character in _WORD)
        reached = (self._program[at] for at in self._reach(key, kind))
        following = frozenset(step.then for step in reached if isinstance(step, _Step) and step.mask & bit)
        return (following, kind) if following else False

    def _reach(self, key: _Key, after: int) -> list[int]:
        """All instructions that are reached without a character, given what is before and after."""
        pending, before = list(key[0]), key[1]
        seen = set(pending)
        reached = []
        while pending:
            at = pending.pop()
            reached.append(at)
            match self._program[at]:
                case _Fork(then, otherwise):
                    ways = [then, otherwise]
                case _Look(place, then) if _fits(place, before, after):
                    ways = [then]
                case _:
                    continue
            for way in ways:
                if way not in seen:
                    seen.add(way)
                    pending.append(way)
        return reached


def _fits(place: Place, before: int, after: int) -> bool:
    match place:
        case Place.START:
            return before == _EDGE
        case Place.END:
            return after == _EDGE
        case Place.WORD_EDGE:
            return (before == 1) != (after == 1)
        case Place.NO_WORD_EDGE:
            return (before == 1) == (after == 1)


class _Compiler:
    """Turns an expression into instructions, last part first, since each has to know where it goes on."""

    def __init__(self) -> None:
        self.program: list[_Instruction] = [None]
        self._steps = 0

    def compile(self, expression: Expression) -> int:
        """Where the program for the whole expression begins; it ends at the one instruction that is None."""
        return self._compile(expression, 0)

    def _emit(self, instruction: _Instruction) -> int:
        if len(self.program) >= INSTRUCTIONS_MAX:
            raise InvalidPatternError(f"the pattern is too large: it needs more than {INSTRUCTIONS_MAX} steps")
        self.program.append(instruction)
        return len(self.program) - 1

    def _compile(self, expression: Expression, then: int) -> int:
        self._steps += 1
        if self._steps > _STEPS_MAX:
            raise InvalidPatternError("the pattern is too large: its repeats multiply")
        match expression:
            case Characters(mask):
                return self._emit(_Step(mask, then))
            case Assertion(place):
                return self._emit(_Look(place, then))
            case Sequence(parts):
                for part in reversed(parts):
                    then = self._compile(part, then)
                return then
            case Choice(options):
                begin = self._compile(options[-1], then)
                for option in reversed(options[:-1]):
                    begin = self._emit(_Fork(self._compile(option, then), begin))
                return begin
            case Repeat(part, least, most):
                return self._compile_repeat(part, least, most, then)

    def _compile_repeat(self, part: Expression, least: int, most: int | None, then: int) -> int:
        if most is None:
            fork = self._emit(_Fork(then, then))
            self.program[fork] = _Fork(self._compile(part, fork), then)
            begin = fork
        else:
            begin = then
            for _ in range(most - least):
                begin = self._emit(_Fork(self._compile(part, begin), then))
        for _ in range(least):
            begin = self._compile(part, begin)
        return begin
