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


def test_large_values_in_ci(tmp_path: Path) -> None:
    """pytest's own comparison needs minutes for them."""
    (tmp_path / "test_large.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-p", "tests.differences", "-p", "no:cacheprovider", "-q"]
    environment = {"PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": "", "CI": "true"}
    printed = run(command, status=1, environment=environment, folder=tmp_path).stdout
    assert [True, True, True] == [text in printed for text in ("more lines", "assert 3 < 2", "2 failed")], printed
