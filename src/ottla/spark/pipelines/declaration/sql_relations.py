"""Which views a SQL query reads, found from its tokens: the order of steps is known without a JVM. Pure.

A query reads the names that follow FROM or JOIN, or a comma there. Names of common table expressions and table
functions are left out, as is the FROM in `EXTRACT(… FROM …)`. Spark checks whether the query is valid.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

_TOKEN: Final = re.compile(
    r"""(?P<space>\s+|--[^\n]*|/\*.*?(?:\*/|\Z))
      | (?P<string>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
      | (?P<quoted>`(?:[^`]|``)*`)
      | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<number>[0-9][A-Za-z0-9_.]*)
      | (?P<mark>.)""",
    re.VERBOSE | re.DOTALL,
)
_QUERY_STARTS: Final = frozenset({"SELECT", "WITH", "FROM", "TABLE", "VALUES"})
_BEHIND_RELATIONS: Final = frozenset(
    [
        "WHERE",
        "GROUP",
        "HAVING",
        "ORDER",
        "SORT",
        "CLUSTER",
        "DISTRIBUTE",
        "LIMIT",
        "OFFSET",
        "WINDOW",
        "UNION",
        "EXCEPT",
        "MINUS",
        "INTERSECT",
        "QUALIFY",
        "SELECT",
        "VIEW",
    ]
)
_BEFORE_NAME: Final = frozenset({"LATERAL", "STREAM", "TABLE"})


class Relation(NamedTuple):
    """A name that a query reads from, and its line, counted from 1."""

    name: str
    line: int


class _Token(NamedTuple):
    kind: str
    text: str
    line: int

    @property
    def upper(self) -> str:
        return self.text.upper() if self.kind == "word" else self.text

    @property
    def is_name(self) -> bool:
        return self.kind in ("word", "quoted")

    @property
    def name(self) -> str:
        return self.text[1:-1].replace("``", "`") if self.kind == "quoted" else self.text


def statements_of(text: str) -> int:
    """The number of statements: parts between semicolons that are not empty."""
    pieces, said = 0, False
    for token in _tokens(text):
        if token.text == ";" and token.kind == "mark":
            pieces, said = pieces + said, False
        else:
            said = True
    return pieces + said


def first_word(text: str) -> str:
    """The first word of a statement, in upper case; parentheses are skipped."""
    return next((token.upper for token in _tokens(text) if token.text != "("), "")


def relations_of(text: str) -> list[Relation]:
    """The names that a query reads, each once, in order; qualified names with their dots."""
    tokens = list(_tokens(text))
    local = {name.lower() for name in _defined_by_with(tokens)}
    found: dict[str, Relation] = {}
    # For each open parenthesis: whether it holds a query or relations, and whether a comma there leads to a relation.
    is_query, listing = [True], [False]
    at, is_awaited = 0, False
    while at < len(tokens):
        token = tokens[at]
        at += 1
        if token.kind == "mark" and token.text == "(":
            holds_query = at < len(tokens) and tokens[at].upper in _QUERY_STARTS
            holds_relations = is_awaited and not holds_query
            is_query.append(holds_query or holds_relations)
            listing.append(holds_relations)
            if holds_relations:
                at, is_awaited = _take(tokens, at, local, found)
                continue
        elif token.kind == "mark" and token.text == ")" and len(is_query) > 1:
            is_query.pop()
            listing.pop()
        elif _leads_to_relation(tokens, at - 1, is_query=is_query[-1], is_listing=listing[-1]):
            listing[-1] = True
            at, is_awaited = _take(tokens, at, local, found)
            continue
        elif token.upper in _BEHIND_RELATIONS:
            listing[-1] = False
        is_awaited = False
    return list(found.values())


def _tokens(text: str) -> Iterator[_Token]:
    line = 1
    for found in _TOKEN.finditer(text):
        if found.lastgroup != "space":
            yield _Token(found.lastgroup or "mark", found[0], line)
        line += found[0].count("\n")


def _leads_to_relation(tokens: list[_Token], at: int, *, is_query: bool, is_listing: bool) -> bool:
    match tokens[at].upper:
        case "FROM":
            return is_query and not _is_comparison(tokens, at)
        case "JOIN":
            return is_query
        case ",":
            return is_listing
        case _:
            return False


def _take(tokens: list[_Token], at: int, local: set[str], found: dict[str, Relation]) -> tuple[int, bool]:
    """Records the relation that begins here, if it is a name; returns the next position and whether one is expected."""
    while at < len(tokens) and tokens[at].upper in _BEFORE_NAME:
        at += 1
    if at >= len(tokens) or not tokens[at].is_name or tokens[at].upper in _QUERY_STARTS:
        return at, True
    first, parts = tokens[at], [tokens[at].name]
    at += 1
    while at + 1 < len(tokens) and tokens[at].text == "." and tokens[at + 1].is_name:
        parts.append(tokens[at + 1].name)
        at += 2
    is_function = at < len(tokens) and tokens[at].text == "("
    name = ".".join(parts)
    if not is_function and name.lower() not in local:
        found.setdefault(name.lower(), Relation(name, first.line))
    return at, False


def _is_comparison(tokens: list[_Token], at: int) -> bool:
    """Whether a FROM belongs to IS [NOT] DISTINCT FROM."""
    before = [token.upper for token in tokens[max(at - 3, 0) : at]]
    return before[-1:] == ["DISTINCT"] and before[-2:-1] in (["IS"], ["NOT"])


def _defined_by_with(tokens: list[_Token]) -> Iterator[str]:
    """Names that WITH defines: each is followed by AS and an open parenthesis."""
    if not any(token.upper == "WITH" for token in tokens):
        return
    for at, token in enumerate(tokens[:-2]):
        if token.is_name and tokens[at + 1].upper == "AS" and tokens[at + 2].text == "(":
            yield token.name
        elif (
            token.is_name and tokens[at + 1].text == "(" and tokens[max(at - 1, 0)].upper in ("WITH", ",", "RECURSIVE")
        ):
            closing = next((later for later in range(at, len(tokens)) if tokens[later].text == ")"), len(tokens))
            if [each.upper for each in tokens[closing + 1 : closing + 3]] == ["AS", "("]:
                yield token.name
