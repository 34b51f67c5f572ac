"""Patterns of clients and users: refused before they cost much, matched in time that their size bounds."""

import pytest

from ottla.model.error_codes import ErrorCode
from ottla.model.re2_patterns import (
    CHARACTERS_MAX,
    INSTRUCTIONS_MAX,
    SLICE_STEPS_MAX,
    InvalidPatternError,
    Pattern,
    PatternTooLargeError,
)


def test_an_invalid_pattern_says_why_and_where() -> None:
    with pytest.raises(InvalidPatternError, match=r"`foo\(` is not valid: missing \)") as raised:
        Pattern("foo(")
    assert (ErrorCode.INVALID_REGULAR_EXPRESSION, "missing ): foo(") == (raised.value.code, raised.value.reason)


@pytest.mark.parametrize("text", ["(?!a)b", "(?<=a)b", r"(a)\1", "a++", "[z-a]", "\ud800"])
@pytest.mark.parametrize("of_ascii", [True, False])
def test_what_re2_does_not_know_is_refused(text: str, of_ascii: bool) -> None:
    with pytest.raises(InvalidPatternError) as raised:
        Pattern(text, of_ascii=of_ascii)
    assert not isinstance(raised.value, PatternTooLargeError)


@pytest.mark.parametrize(
    "text",
    [
        "((((a{1000}){1000}){1000}){1000})",
        "(((){1000}){1000}){1000}",
        "a{1000}" * 10,
        ".{1000}" * 3,
        "(?:a?){1000}",
        "(?:a?){1000}" * 30,
        "a|" * CHARACTERS_MAX,
        "x" * 10_000_000,
    ],
)
@pytest.mark.parametrize("of_ascii", [True, False])
def test_patterns_that_would_grow_without_bound_are_refused(text: str, of_ascii: bool) -> None:
    with pytest.raises(InvalidPatternError) as raised:
        Pattern(text, of_ascii=of_ascii)
    assert len(str(raised.value)) < 400


def test_the_limit_is_that_of_instructions() -> None:
    assert INSTRUCTIONS_MAX == Pattern("a{1000}b{996}").instructions
    with pytest.raises(PatternTooLargeError, match=f"needs {INSTRUCTIONS_MAX + 1} instructions, the limit is"):
        Pattern("a{1000}b{997}")


@pytest.mark.parametrize("text", ["(a+)+b", "(a*)*b", "(a|a)*b", "(a|aa)+b", "(.*)*.*(.*)*b", "(a?){200}a{200}b"])
def test_no_name_takes_a_pattern_long(text: str) -> None:
    """Each of these takes a backtracking matcher longer than anyone can wait."""
    pattern = Pattern(text)
    assert not pattern.matches("a" * 249)
    assert pattern.matches("a" * 240 + "b")


def test_more_states_than_are_kept_change_nothing() -> None:
    pattern = Pattern("(a|b)*a(a|b){12}")
    names = [f"{number:014b}".replace("0", "a").replace("1", "b") * 3 for number in range(0, 16384, 7)]
    assert [name[-13] == "a" for name in names] == [pattern.matches(name) for name in names]


@pytest.mark.parametrize("of_ascii", [True, False])
def test_where_a_pattern_must_match(of_ascii: bool) -> None:
    pattern = Pattern("b+", of_ascii=of_ascii)
    texts = ["bb", "bba", "abb", "aba", "aaa"]
    assert [True, False, False, False, False] == [pattern.matches(text) for text in texts]
    assert [True, True, False, False, False] == [pattern.matches_start(text) for text in texts]
    assert [True, True, True, True, False] == [pattern.matches_inside(text) for text in texts]


def test_texts_of_any_characters_are_matched_as_characters() -> None:
    assert Pattern("čaj.").matches("čajů")
    assert not Pattern("čaj.").matches("čaj")
    assert Pattern("a.").matches("ač")
    assert (True, True) == (Pattern("a.b").matches("a\ud800b"), Pattern("c").matches_inside("\ud800c"))


def test_groups() -> None:
    pattern = Pattern("(č+)(a)?(b*)", with_groups=True)
    assert ("ččb", "čč", None, "b") == pattern.groups_of("ččb")
    assert pattern.groups_of("a") is None


def test_texts_come_in_slices_of_bounded_work() -> None:
    """The work of a slice is steps of the automaton, in the worst case one for each instruction and byte."""
    texts = [f"{number:04}-" + "a" * (number % 240) for number in range(3000)]
    pattern = Pattern("(a|b){100}[0-9]?")
    slices = list(pattern.slices(texts))
    assert texts == [text for piece in slices for text in piece]
    assert all(sum(map(pattern.steps, piece)) <= SLICE_STEPS_MAX for piece in slices)
    assert sum(map(pattern.steps, texts)) / SLICE_STEPS_MAX <= len(slices) < len(texts) / 2


def test_a_text_that_is_too_long_is_a_slice_of_its_own() -> None:
    long = "a" * SLICE_STEPS_MAX
    assert [["b", "b"], [long], ["b"]] == list(Pattern("b").slices(["b", "b", long, "b"]))
