"""Steps: what each file reads, and what is wrong with some."""

from pathlib import PurePosixPath

import pytest

from ottla.spark.pipelines.declaration.step_files import is_step, read_steps


def steps(**files: str) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    named = [(PurePosixPath("steps") / name.replace("__", "."), text) for name, text in files.items()]
    found, problems = read_steps(named)
    return {view: step.reads for view, step in found.items()}, [str(problem) for problem in problems]


def test_sql_and_python() -> None:
    found, problems = steps(
        a__sql="SELECT * FROM x JOIN y;", b__py="import os\n\ndef step(spark, a, *, z):\n    return a\n"
    )
    assert ({"a": ("x", "y"), "b": ("a", "z")}, []) == (found, problems)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"a__sql": " -- nothing\n"}, "a.sql:1: a step must be one SELECT; this file has no query"),
        ({"a__sql": "SELECT 1; SELECT 2"}, "a.sql:1: a step must be one SELECT; this file has 2 statements"),
        ({"a__sql": "INSERT INTO b SELECT 1"}, "a.sql:1: a step must be one SELECT; this file begins with INSERT"),
        ({"a__sql": "SELECT 1", "a__py": ""}, "a.py: view a is also defined by steps/a.sql; rename one of them"),
        ({"a-b__sql": "SELECT 1"}, "a-b.sql: 'a-b' is not a valid view name; use letters, digits and _"),
        ({"a__py": "def step(:\n"}, "a.py:1: not valid Python: invalid syntax"),
        ({"a__py": "x = 1"}, "a.py: no function step; write `def step(spark, view): return view`"),
        ({"a__py": "def step(view): 1"}, "a.py:1: the first argument of step must be spark; the others name views"),
        (
            {"a__py": "def step(spark, **v): 1"},
            "a.py:1: the arguments of step must name views; * and ** are not allowed",
        ),
        ({"a__py": "\0"}, "a.py: not valid Python: source code string cannot contain null bytes"),
    ],
)
def test_what_is_wrong(files: dict[str, str], expected: str) -> None:
    assert [f"steps/{expected}"] == steps(**files)[1]


def test_which_files_are_steps() -> None:
    names = ["a.sql", "a.py", "_shared.py", ".x.sql", "README.md"]
    assert [True, True, False, False, False] == [is_step(PurePosixPath("steps") / name) for name in names]
