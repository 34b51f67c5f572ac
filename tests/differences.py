"""A pytest plugin: a failed `assert expected == actual` shows the lines in which the values differ, at once.

pytest's own comparison looks for differences within each line, at each try of Hypothesis, and without a limit in CI: a
test of requests took minutes to fail.
"""

import sys
from collections.abc import Generator
from difflib import unified_diff
from pprint import PrettyPrinter
from typing import Any, Final

import pytest

LINES_MAX: Final = 2000
"""Lines of a value that are compared."""
SHOWN_MAX: Final = 200
WIDTH: Final = 120


@pytest.hookimpl(wrapper=True)
def pytest_assertrepr_compare(op: str, left: object, right: object) -> Generator[None, list[Any], list[Any]]:
    """Replaces what pytest finds."""
    with pytest.MonkeyPatch.context() as environment:
        for variable in ("CI", "BUILD_NUMBER"):  # where they are set, pytest has no limits
            environment.delenv(variable, raising=False)
        explanations = yield
    return [explain(left, right)] if op == "==" else explanations


def explain(left: object, right: object) -> list[str]:
    """The values as far as they go on one line, and then how the right differs from the left."""
    differences = list(unified_diff(_lines(left), _lines(right), "left", "right", lineterm=""))
    if not differences:
        differences = ["the values differ in what they do not show, or behind the first lines"]
    if len(differences) > SHOWN_MAX:
        differences[SHOWN_MAX:] = [f"and {len(differences) - SHOWN_MAX} more lines"]
    return [f"{_start(left)} == {_start(right)}", *differences]


class _Printer(PrettyPrinter):
    """Also prints values, and values within values, whose `repr` fails."""

    def format(self, value: object, context: Any, max_levels: int, level: int) -> tuple[str, bool, bool]:
        try:
            return super().format(value, context, max_levels, level)
        except Exception as error:
            return f"<{type(error).__name__} raised in repr of {type(value).__name__}>", False, False


def _lines(value: object) -> list[str]:
    text = value if isinstance(value, str) else _Printer(width=WIDTH, sort_dicts=False).pformat(value)
    return text.splitlines()[:LINES_MAX]


def _start(value: object) -> str:
    text = _Printer(width=sys.maxsize, sort_dicts=False).pformat(value)
    return text if len(text) <= WIDTH else f"{text[:WIDTH]}…"
