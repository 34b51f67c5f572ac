"""The reason in a long story of Spark's."""

import pytest

from ottla.spark.pipelines.running.failure_reasons import failure_reason

PYTHON = """\
[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted. SQLSTATE: XXKST
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "x.py", line 3, in step
    raise ValueError("no such price")
ValueError: no such price
and more of it

\tat org.apache.spark.api.python.BasePythonRunner.run(PythonRunner.scala:1)
"""
OURS = """\
[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source perform latestOffset:
Traceback (most recent call last):
  File "y.py", line 1
ottla.model.errors.MisuseError: the topic is gone; make it again SQLSTATE: 38000
"""
SPARK = (
    "[STREAM_FAILED] Query terminated: [USER_RAISED_EXCEPTION] a row of clean was rejected: bad SQLSTATE: P0001\n\tat x"
)

DELTA = (
    "Delta is not installed; add it with --set spark.jars.packages=io.delta:delta-spark_2.13:<version>, or use Parquet"
)


@pytest.mark.parametrize(
    ("story", "expected"),
    [
        (PYTHON, "ValueError: no such price and more of it"),
        (OURS, "the topic is gone; make it again"),
        (SPARK, "a row of clean was rejected: bad (USER_RAISED_EXCEPTION)"),
        ("\n  java.io.IOException: no space left on device\n\tat x", "java.io.IOException: no space left on device"),
        ("x\n[DATA_SOURCE_NOT_FOUND] Failed to find the data source: delta. Make", DELTA),
        ("", "no reason given"),
    ],
)
def test_reasons(story: str, expected: str) -> None:
    assert expected == failure_reason(story)


def test_reasons_are_bounded() -> None:
    assert 1000 == len(failure_reason("x" * 100_000))
