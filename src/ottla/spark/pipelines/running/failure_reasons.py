"""The reason for the failure of a query, found in the long error text of Spark. Pure."""

import re
from typing import Final

_PYTHON_ERROR: Final = re.compile(
    r"^\s*(?:[A-Za-z_][\w]*\.)*(?P<kind>[A-Z]\w*(?:Error|Exception|Interrupt|Exit)): (?P<words>.+)$"
)
_SPARK_CLASS: Final = re.compile(r"(?=\[(?P<kind>[A-Z][A-Z0-9_.]+)\] (?P<words>[^\n]+))")
"""One of Spark's named errors; they may be nested."""
_WRAPPERS: Final = frozenset({"STREAM_FAILED", "FAILED_EXECUTE_UDF", "PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR"})
"""Errors of Spark that only wrap another one."""
_NO_DELTA: Final = re.compile(r"data source: `?delta\b")
_DELTA_ADVICE: Final = (
    "Delta is not installed; add it with --set spark.jars.packages=io.delta:delta-spark_2.13:<version>, or use Parquet"
)
_WORDS_MAX: Final = 1000


def failure_reason(text: str) -> str:
    """The reason: the Python exception, the error of Spark, or the first line."""
    if _NO_DELTA.search(text):
        return _DELTA_ADVICE
    python = _raised_by_python(text)
    if python is not None:
        return python[:_WORDS_MAX]
    named = [found for found in _SPARK_CLASS.finditer(text) if found["kind"].split(".")[0] not in _WRAPPERS]
    if named:
        return f"{_without_state(named[0]['words'])} ({named[0]['kind']})"[:_WORDS_MAX]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (lines[0] if lines else "no reason given")[:_WORDS_MAX]


def _raised_by_python(text: str) -> str | None:
    """The exception at the end of the last Python traceback, with all lines of its message."""
    at = text.rfind("Traceback (most recent call last)")
    if at < 0:
        return None
    lines = text[at:].splitlines()
    for number, line in enumerate(lines):
        found = _PYTHON_ERROR.match(line)
        if found is None:
            continue
        kind, words = found["kind"], [found["words"].strip()]
        for more in lines[number + 1 :]:
            if not more.strip() or more.lstrip().startswith(("at ", "File ", "Caused by", "SQLSTATE", "org.", "===")):
                break
            words.append(more.strip())
        text = _without_state(" ".join(words))
        # The message of our own errors is complete; the name of others adds information.
        return text if kind.startswith(("Ottla", "Misuse", "Option")) else f"{kind}: {text}"
    return None


def _without_state(words: str) -> str:
    return re.sub(r"\s*SQLSTATE: \w+\s*$", "", words).strip()
