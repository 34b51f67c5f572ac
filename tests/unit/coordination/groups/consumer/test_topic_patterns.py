"""Patterns over topic names: what RE2/J says of each (see `tests/golden/coordination`), and which verdicts are kept."""

from pathlib import Path
from typing import Final

from ottla.coordination.groups.consumer.topic_patterns import TopicPattern
from ottla.model.re2_patterns import INSTRUCTIONS_MAX, SLICE_STEPS_MAX, InvalidPatternError
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


def test_a_name_is_matched_once() -> None:
    pattern = TopicPattern("a.*")
    assert ["abc", "xyz"] == pattern.unmatched(["abc", "xyz"])
    assert (True, False) == (pattern.matches("abc"), pattern.matches("xyz"))
    assert ["new"] == pattern.unmatched(["abc", "new", "xyz"])


def test_verdicts_from_elsewhere_are_kept() -> None:
    pattern = TopicPattern("a.*")
    pattern.remember(["abc", "xyz"], {"abc"})
    assert ([], True, False) == (pattern.unmatched(["abc", "xyz"]), pattern.matches("abc"), pattern.matches("xyz"))


def test_few_names_can_be_matched_without_a_pause() -> None:
    names = [f"{number:04}-" + "a" * 240 for number in range(1000)]
    pattern = TopicPattern(f"[ab]{{0,{INSTRUCTIONS_MAX // 4}}}")
    assert pattern.pattern.steps(names[0]) > SLICE_STEPS_MAX // 2
    assert (True, False) == (pattern.is_nearly_matched(names[:1]), pattern.is_nearly_matched(names))
    pattern.remember(names[1:], ())
    assert pattern.is_nearly_matched(names)


def test_verdicts_on_topics_that_are_gone_are_not_kept_for_ever() -> None:
    pattern = TopicPattern("a.*")
    for number in range(5000):
        for name in pattern.unmatched([f"a{number}"]):
            assert pattern.matches(name)
    assert len(pattern._verdicts) < 2000
