"""Failed comparisons show what differs, and do so at once, also of large values and in CI."""

import sys
from pathlib import Path

import pytest

from tests.differences import LINES_MAX, SHOWN_MAX, explain
from tests.processes import run

ROOT = Path(__file__).parents[1]
TESTS = """
import random

def test_large_values():
    values = [random.Random(seed).randbytes(1 << 18) for seed in range(4)]
    assert values[:2] == values[2:]

def test_order():
    assert 3 < 2

class Unprintable:
    def __repr__(self):
        raise ZeroDivisionError

def test_unprintable():
    assert 1 == Unprintable()
"""


@pytest.mark.parametrize(
    ("left", "right", "shown"),
    [
        (1, 2, ["1 == 2", "--- left", "+++ right", "@@ -1 +1 @@", "-1", "+2"]),
        ("a\nb", "a\nc", ["'a\\nb' == 'a\\nc'", "--- left", "+++ right", "@@ -1,2 +1,2 @@", " a", "-b", "+c"]),
    ],
)
def test_the_lines_that_differ(left: object, right: object, shown: list[str]) -> None:
    assert shown == explain(left, right)


def test_few_lines_of_long_values() -> None:
    long = "x" * 100
    first, *lines = explain([long, long, "a"], [long, long, "b"])
    assert (True, ["--- left", "+++ right", "@@ -1,3 +1,3 @@"]) == (first.startswith(f"['{long}'"), lines[:3])
    assert ["- 'a']", "+ 'b']"] == lines[-2:]
    assert SHOWN_MAX + 2 == len(explain("\n".join("abc" * 1000), "\n".join("def" * 1000)))


def test_values_that_look_alike() -> None:
    alike = "x\n" * LINES_MAX
    assert "the values differ in what they do not show, or behind the first lines" == explain(alike, alike + "y")[-1]


class Unprintable:
    """A value that cannot be shown."""

    def __repr__(self) -> str:
        raise ZeroDivisionError


def test_values_whose_repr_fails() -> None:
    shown = "<ZeroDivisionError raised in repr of Unprintable>"
    assert [f"{shown} == 1", "--- left", "+++ right", "@@ -1 +1 @@", f"-{shown}", "+1"] == explain(Unprintable(), 1)
    lists = [2, Unprintable()], [3, Unprintable()]
    left, right = f"[2, {shown}]", f"[3, {shown}]"
    assert [f"{left} == {right}", "--- left", "+++ right", "@@ -1 +1 @@", f"-{left}", f"+{right}"] == explain(*lists)


def test_large_values_in_ci(tmp_path: Path) -> None:
    """pytest's own comparison needs minutes for them."""
    (tmp_path / "test_large.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-p", "tests.differences", "-p", "no:cacheprovider", "-q"]
    environment = {"PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": "", "CI": "true"}
    printed = run(command, status=1, environment=environment, folder=tmp_path).stdout
    shown = (
        "more lines",
        "assert 3 < 2",
        "assert 1 == <ZeroDivisionError raised in repr of Unprintable>",
        "3 failed",
    )
    assert [True] * 4 == [text in printed for text in shown], printed
