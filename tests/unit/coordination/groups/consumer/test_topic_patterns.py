"""Patterns over topic names: what RE2/J says of each (see `tests/golden/coordination`), and what must not hurt."""

from pathlib import Path
from typing import Final

import pytest

from ottla.coordination.groups.consumer.topic_patterns import (
    SLICE_STEPS_MAX,
    InvalidPatternError,
    Pattern,
    TopicPattern,
)
from ottla.model.error_codes import ErrorCode
from tests.golden.coordination.make_topic_patterns import NAMES

GOLDEN: Final = Path(__file__).parents[4] / "golden" / "coordination" / "topic_patterns.txt"
DIFFERING: Final = {
    "(a{100}){100}": "!",  # RE2/J takes it; here it needs more instructions than a pattern may have.
    "\\C": "a,b,A,0",  # Any byte for RE2; not known to RE2/J.
    "\\é": "!",  # RE2 escapes punctuation only.
}


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
    assert DIFFERING == {text: actual[text] for text in expected if expected[text] != actual[text]}


def test_an_invalid_pattern_says_why_and_where() -> None:
    with pytest.raises(InvalidPatternError, match=r"`foo\(` is not valid: missing \)") as raised:
        TopicPattern("foo(")
    assert ErrorCode.INVALID_REGULAR_EXPRESSION is raised.value.code


@pytest.mark.parametrize(
    "text",
    ["((((a{1000}){1000}){1000}){1000})", "(((){1000}){1000}){1000}", "a{1000}" * 10, ".{1000}" * 3],
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


def test_ids_of_any_characters_are_matched_as_characters() -> None:
    assert Pattern("čaj.").matches("čajů")
    assert not Pattern("čaj.").matches("čaj")


def test_names_come_in_slices_of_bounded_work() -> None:
    """The work of a slice is steps of the automaton, in the worst case one for each instruction and character."""
    names = [f"{number:04}-" + "a" * 240 for number in range(3000)]
    pattern = TopicPattern(".*(a|b).{100}[0-9]?")
    steps = pattern._compiled.programsize
    slices = list(pattern.unmatched(names))
    assert names == [name for piece in slices for name in piece]
    assert all(sum(steps * (len(name) + 1) for name in piece) <= SLICE_STEPS_MAX for piece in slices)
    assert len(slices) >= sum(steps * (len(name) + 1) for name in names) / SLICE_STEPS_MAX


def test_a_name_is_matched_once() -> None:
    pattern = TopicPattern("a.*")
    assert [["abc", "xyz"]] == list(pattern.unmatched(["abc", "xyz"]))
    assert (True, False) == (pattern.matches("abc"), pattern.matches("xyz"))
    assert [["new"]] == list(pattern.unmatched(["abc", "new", "xyz"]))


def test_verdicts_on_topics_that_are_gone_are_not_kept_for_ever() -> None:
    pattern = TopicPattern("a.*")
    for number in range(5000):
        for names in pattern.unmatched([f"a{number}"]):
            assert [True] == [pattern.matches(name) for name in names]
    assert len(pattern._verdicts) < 2000
