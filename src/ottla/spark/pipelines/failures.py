"""Why a query failed, in a few words: Spark's stories are long, and the reason is somewhere inside. Pure."""

import re
from typing import Final

_PYTHON_ERROR: Final = re.compile(
    r"^\s*(?:[A-Za-z_][\w]*\.)*(?P<kind>[A-Z]\w*(?:Error|Exception|Interrupt|Exit)): (?P<words>.+)$"
)
_SPARK_CLASS: Final = re.compile(r"(?=\[(?P<kind>[A-Z][A-Z0-9_.]+)\] (?P<words>[^\n]+))")
"""One of Spark's named errors; they stand inside of each other."""
_WRAPPERS: Final = frozenset({"STREAM_FAILED", "FAILED_EXECUTE_UDF", "PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR"})
"""Spark's errors that only say that there was one."""
_NO_DELTA: Final = re.compile(r"data source: `?delta\b")
_DELTA_ADVICE: Final = (
    "Spark has no Delta here; name its jars, as in --set spark.jars.packages=io.delta:delta-spark_2.13:<version>, "
    "or take Parquet"
)
_WORDS_MAX: Final = 1000


def failure_words(story: str) -> str:
    """The reason in a story of Spark's: what Python raised, or Spark's own error, or the first line."""
    if _NO_DELTA.search(story):
        return _DELTA_ADVICE
    python = _raised_by_python(story)
    if python is not None:
        return python[:_WORDS_MAX]
    named = [found for found in _SPARK_CLASS.finditer(story) if found["kind"].split(".")[0] not in _WRAPPERS]
    if named:
        return f"{_without_state(named[0]['words'])} ({named[0]['kind']})"[:_WORDS_MAX]
    lines = [line.strip() for line in story.splitlines() if line.strip()]
    return (lines[0] if lines else "it did not say why")[:_WORDS_MAX]


def _raised_by_python(story: str) -> str | None:
    """The exception at the end of the last Python traceback, with the lines that go on with its message."""
    at = story.rfind("Traceback (most recent call last)")
    if at < 0:
        return None
    lines = story[at:].splitlines()
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
        # Our own errors say everything in their words; others say something by their name.
        return text if kind.startswith(("Ottla", "Misuse", "Option")) else f"{kind}: {text}"
    return None


def _without_state(words: str) -> str:
    return re.sub(r"\s*SQLSTATE: \w+\s*$", "", words).strip()
