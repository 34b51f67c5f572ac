"""Patterns over topic names: what RE2/J says of each (see `tests/golden/coordination`), and what must not hurt."""

import re
from pathlib import Path
from typing import Final

import pytest

from ottla.coordination.topic_pattern_syntax import InvalidPatternError
from ottla.coordination.topic_patterns import TopicPattern
from ottla.model.error_codes import ErrorCode
from tests.golden.coordination.make_topic_patterns import NAMES

GOLDEN: Final = Path(__file__).parents[2] / "golden" / "coordination" / "topic_patterns.txt"
TOO_LARGE: Final = {"(a{100}){100}"}
"""RE2/J takes these; here they need more steps than a pattern may have."""
REPEATED_FLAG: Final = re.compile(r"\(\?i\)[*+?{]")
"""RE2/J repeats what stands before the flag; here a flag is nothing to repeat, as in RE2 itself."""


def verdict(text: str) -> str:
    try:
        pattern = TopicPattern(text)
    except InvalidPatternError:
        return "!"
    return ",".join(name for name in NAMES if pattern.matches(name))


def test_every_pattern_is_judged_as_by_re2() -> None:
    lines = GOLDEN.read_text(encoding="utf-8").splitlines()
    expected = dict(line.split("\t") for line in lines)
    actual = {text: verdict(text) for text in expected}
    differing = {text: (expected[text], actual[text]) for text in expected if expected[text] != actual[text]}
    assert TOO_LARGE == {text for text in differing if not REPEATED_FLAG.search(text)}, differing
    assert {"!"} == {actual[text] for text in differing}


def test_an_invalid_pattern_says_why_and_where() -> None:
    with pytest.raises(InvalidPatternError, match=r"`foo\(` is not valid: .* at character 4") as raised:
        TopicPattern("foo(")
    assert ErrorCode.INVALID_REGULAR_EXPRESSION is raised.value.code


@pytest.mark.parametrize(
    "text",
    ["((((a{1000}){1000}){1000}){1000})", "(((){1000}){1000}){1000}", "(" * 5000 + ")" * 5000, "a{1000}" * 10],
)
def test_patterns_that_would_grow_without_bound_are_refused(text: str) -> None:
    with pytest.raises(InvalidPatternError):
        TopicPattern(text)


@pytest.mark.parametrize("text", ["(a+)+b", "(a*)*b", "(a|a)*b", "(a|aa)+b", "(.*)*.*(.*)*b", "(a?){200}a{200}b"])
def test_no_name_takes_a_pattern_long(text: str) -> None:
    """Each of these takes a backtracking matcher longer than anyone can wait."""
    pattern = TopicPattern(text)
    assert not pattern.matches("a" * 249)
    assert pattern.matches("a" * 240 + "b")


def test_more_states_than_are_kept_change_nothing() -> None:
    pattern = TopicPattern("(a|b)*a(a|b){12}")
    names = [f"{number:014b}".replace("0", "a").replace("1", "b") * 3 for number in range(0, 16384, 7)]
    assert [name[-13] == "a" for name in names] == [pattern.matches(name) for name in names]
