"""A filter as the tree of its parts. Errors point at the column."""

from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any, Final

from ottla.console.filters.errors import FilterError
from ottla.console.filters.syntax import (
    NUMBERS,
    PARTS,
    Anywhere,
    Both,
    Call,
    Compare,
    Comparison,
    Either,
    Function,
    Literal,
    Node,
    Not,
    Operand,
    Path,
    Root,
    Truth,
)
from ottla.console.filters.tokens import Kind, Token, tokens_of
from ottla.model.re2_patterns import InvalidPatternError, Pattern

DEPTH_MAX: Final = 32
_ITEMS_MAX: Final = 1_000
_WORDS: Final[dict[str, Any]] = {"true": True, "false": False, "null": None}
_COMPARISONS: Final = {each.value: each for each in Comparison}
_TEXTUAL: Final = (Comparison.CONTAINS, Comparison.STARTS_WITH, Comparison.ENDS_WITH, Comparison.MATCHES)
_KNOWN: Final = (*(each.value for each in Root), *(each.value for each in Function), *_WORDS, "and", "or", "not")


def parse_filter(text: str) -> Node | None:
    """What the filter says; None for an empty one, which every record passes. Raises `FilterError`."""
    if not text.strip():
        return None
    parser = _Parser(text)
    found = parser.either(0)
    parser.expect_end()
    return found


class _Parser:
    """Reads tokens from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokens_of(text)
        self._at = 0

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _take(self) -> Token:
        token = self._next
        self._at += 1
        return token

    def _accept(self, *words: str) -> Token | None:
        token = self._next
        return self._take() if token.kind in (Kind.SIGN, Kind.NAME) and token.value in words else None

    def _expect(self, sign: str, why: str) -> None:
        if self._accept(sign) is None:
            raise self._error(f"{sign} is missing {why}")

    def _error(self, message: str, token: Token | None = None) -> FilterError:
        return FilterError(message, self._text, (token or self._next).position)

    def expect_end(self) -> None:
        """Raises unless all tokens are read."""
        token = self._next
        if token.kind is Kind.END:
            return
        hint = "; join two conditions with && or ||"
        if token.kind is Kind.NAME:
            close = get_close_matches(str(token.value), list(_COMPARISONS), n=1, cutoff=0.6)
            hint = f"; did you mean {close[0]}?" if close else "; a text needs quotes, conditions are joined with &&"
        raise self._error(f"unexpected {_shown(token)}{hint}")

    def either(self, depth: int) -> Node:
        """Terms joined by ||."""
        if depth > DEPTH_MAX:
            raise self._error(f"the filter is nested more than {DEPTH_MAX} levels deep")
        terms = [self._both(depth)]
        while self._accept("||", "or"):
            terms.append(self._both(depth))
        return terms[0] if len(terms) == 1 else Either(tuple(terms))

    def _both(self, depth: int) -> Node:
        terms = [self._condition(depth)]
        while self._accept("&&", "and"):
            terms.append(self._condition(depth))
        return terms[0] if len(terms) == 1 else Both(tuple(terms))

    def _condition(self, depth: int) -> Node:
        if depth > DEPTH_MAX:
            raise self._error(f"the filter is nested more than {DEPTH_MAX} levels deep")
        if self._accept("!", "not"):
            return Not(self._condition(depth + 1))
        if self._accept("("):
            inner = self.either(depth + 1)
            self._expect(")", "to close the parenthesis")
            return inner
        return self._compared()

    def _compared(self) -> Node:
        first = self._next
        left = self._operand()
        token = self._next
        if token.kind in (Kind.SIGN, Kind.NAME) and token.value in _COMPARISONS:
            self._take()
            return self._comparison(_COMPARISONS[str(token.value)], token, first, left)
        if isinstance(left, Literal):
            if isinstance(left.value, str) and left.value:
                return Anywhere(left.value)
            raise self._error("a condition is missing, such as value.id == 42", first)
        if isinstance(left, Path) and (left.root is Root.HEADERS or left.root in NUMBERS or not left.steps):
            raise self._error("a comparison is missing, such as == or contains")
        return Truth(left)

    def _comparison(self, comparison: Comparison, sign: Token, first: Token, left: Operand) -> Node:
        at = self._next
        right = self._list() if comparison is Comparison.IN else self._operand()
        if isinstance(left, Literal) and isinstance(right, Literal):
            raise self._error("this compares two constants; one side must be a part of the record", first)
        if comparison in _TEXTUAL:
            if not isinstance(right, Literal) or not isinstance(right.value, str):
                raise self._error(f"{comparison.value} needs a text in quotes", at)
            if comparison is Comparison.MATCHES:
                right = Literal(self._pattern(right.value, at))
        if _is_timestamp(left):
            right = self._as_times(right, at)
        elif _is_timestamp(right):
            left = self._as_times(left, first)
        for side, token in ((left, first), (right, at)):
            if isinstance(side, Path) and side.root is Root.HEADERS and not side.steps:
                raise self._error('name a header: headers["name"]', token)
        if self._next.kind is not Kind.END and self._next.value in _COMPARISONS:
            raise self._error("two comparisons in a row; join them with &&", self._next)
        return Compare(comparison, left, right)

    def _operand(self) -> Operand:
        token = self._take()
        if token.kind in (Kind.TEXT, Kind.NUMBER):
            return Literal(token.value)
        if token.kind is Kind.NAME:
            word = str(token.value)
            if word in _WORDS:
                return Literal(_WORDS[word])
            if word in tuple(Function):
                return self._call(Function(word))
            if word in tuple(Root):
                return self._path(Root(word))
            close = get_close_matches(word, _KNOWN, n=1, cutoff=0.6)
            hint = f"did you mean {close[0]}?" if close else f'a text needs quotes: "{word}"; a field: value.{word}'
            raise self._error(f"unknown name {word}; {hint}", token)
        if token.kind is Kind.END:
            raise self._error("the filter ends here, but something is missing", token)
        raise self._error(f"unexpected {_shown(token)}; a field such as value.id, or a constant, belongs here", token)

    def _call(self, function: Function) -> Operand:
        self._expect("(", f"after {function.value}")
        at = self._next
        inner = self._operand()
        if not isinstance(inner, Path) or inner.root in NUMBERS or (inner.root is Root.HEADERS and not inner.steps):
            raise self._error(f"{function.value} needs a key, a value, a header or a field", at)
        self._expect(")", f"to close {function.value}(")
        return Call(function, inner)

    def _path(self, root: Root) -> Path:
        steps: list[str | int] = []
        while True:
            if self._accept("."):
                name = self._take()
                if name.kind is not Kind.NAME:
                    raise self._error("the name of a field is missing after the dot", name)
                steps.append(str(name.value))
            elif self._accept("["):
                inner = self._take()
                if inner.kind is not Kind.TEXT and not (inner.kind is Kind.NUMBER and isinstance(inner.value, int)):
                    raise self._error('a name in quotes or a position is missing, as in ["name"] or [0]', inner)
                steps.append(inner.value if isinstance(inner.value, int) else str(inner.value))
                self._expect("]", "to close the bracket")
            else:
                break
            if len(steps) > DEPTH_MAX:
                raise self._error(f"the path has more than {DEPTH_MAX} steps")
            if root in NUMBERS:
                raise self._error(f"{root.value} is a number and has no fields", self._tokens[self._at - 1])
            if root is Root.HEADERS and (len(steps) > 1 or not isinstance(steps[0], str)):
                raise self._error('a header has no fields; write headers["name"]', self._tokens[self._at - 1])
        return Path(root, tuple(steps))

    def _list(self) -> Literal:
        self._expect("[", "after in; write in [1, 2]")
        items: list[Any] = []
        while not self._accept("]"):
            at = self._next
            item = self._operand()
            if not isinstance(item, Literal):
                raise self._error("a list holds constants only", at)
            items.append(item.value)
            if len(items) > _ITEMS_MAX:
                raise self._error(f"the list has more than {_ITEMS_MAX} items", at)
            if self._accept(",") is None and not (self._next.kind is Kind.SIGN and self._next.value == "]"):
                raise self._error("] or , is missing in the list")
        return Literal(tuple(items))

    def _pattern(self, pattern: str, at: Token) -> Pattern:
        try:
            return Pattern(pattern)
        except InvalidPatternError as error:
            raise self._error(f"not a valid RE2 pattern: {error.reason}", at) from None

    def _as_times(self, side: Operand, at: Token) -> Operand:
        """Texts that a timestamp is compared with, as ms since 1970. A time without a zone is UTC."""
        if not isinstance(side, Literal):
            return side
        if isinstance(side.value, tuple):
            return Literal(tuple(self._as_time(each, at) for each in side.value))
        return Literal(self._as_time(side.value, at))

    def _as_time(self, value: Any, at: Token) -> Any:
        if not isinstance(value, str):
            return value
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise self._error('not a time; write one such as "2024-05-01T12:00:00Z"', at) from None
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return int(moment.timestamp() * 1000)


def _is_timestamp(side: Operand) -> bool:
    return isinstance(side, Path) and side.root is Root.TIMESTAMP


def _shown(token: Token) -> str:
    return "the end" if token.kind is Kind.END else repr(str(token.value))


__all__ = ["DEPTH_MAX", "PARTS", "parse_filter"]
