"""What Apache Kafka answers in the tests that compare Ottla with it, kept in transcripts: most runs need no Kafka.

A transcript is a file in `tests/golden/kafka-<version>` with the answers of one module of tests, by the name of the
test. `OTTLA_KAFKA` says where the answers come from:

- `recorded`: from the transcripts.
- `live`: from a running Kafka, whose answers must be those of the transcripts.
- `record`: from a running Kafka, whose answers become the transcripts (`make compat-record`).

Without it, the commit decides which tenth of the modules asks a running Kafka.
"""

import copy
import functools
import hashlib
import json
import math
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any, Final, Protocol
from uuid import UUID

import pytest

from tests.compat.kafka_jars import KAFKA_VERSION
from tests.wire.exchange import RawConnection

ROOT: Final = Path(__file__).parents[2]
TRANSCRIPTS: Final = ROOT / "tests/golden" / f"kafka-{KAFKA_VERSION.rpartition('.')[0]}"
RECORD: Final = "run make compat-record"
MODES: Final = ("recorded", "live", "record")
LIVE_PART: Final = 10
"""One module of this many asks a running Kafka."""
LINE_MAX: Final = 120

Both = Callable[[Callable[[RawConnection], object]], tuple[Any, Any]]
"""What Kafka answers in a scenario, and what Ottla answers."""


class KafkasWord(Protocol):
    """What Kafka answers in a test: `word(ask)`."""

    def __call__(self, ask: Callable[[Any], object], *, step: str = "", broker: str = "kafka") -> Any:
        """What `ask` returns, as `readable` makes it.

        It is called only if Kafka must run, with the value of the fixture `broker`. A test that asks more than once
        names its steps.
        """


class Transcript:
    """Kafka's answers in the tests of one module."""

    def __init__(self, path: Path, mode: str) -> None:
        self._path = path
        self._mode = mode
        self._answers = json.loads(path.read_text()) if path.exists() else {}

    def answer(self, test: str, step: str, ask: Callable[[], object]) -> Any:
        """The recorded answer; if Kafka runs, it is compared, or recorded."""
        if self._mode == "record":
            recorded = readable(ask())
            if step:
                self._answers.setdefault(test, {})[step] = recorded
            else:
                self._answers[test] = recorded
            self._path.parent.mkdir(exist_ok=True)
            self._path.write_text(write_lines(dict(sorted(self._answers.items()))) + "\n")
            return copy.deepcopy(recorded)
        try:
            recorded = self._answers[test][step] if step else self._answers[test]
        except KeyError:
            pytest.fail(f"{self._path} has no answer to {test} {step}: {RECORD}", pytrace=False)
        if self._mode == "live":
            live = readable(ask())
            assert recorded == live, f"{self._path.name} is not what Kafka answers; if its answer is right: {RECORD}"
        return copy.deepcopy(recorded)


@functools.cache
def transcript(module: str) -> Transcript:
    """The transcript of a module of tests."""
    return Transcript(TRANSCRIPTS / f"{module}.json", mode_of(module))


def mode_of(module: str) -> str:
    """Where the answers of a module come from in this run."""
    mode = os.environ.get("OTTLA_KAFKA")
    if mode is None:
        modules = [path.stem for path in TRANSCRIPTS.glob("*.json")]
        return "live" if module in live_modules(modules, commit(ROOT)) else "recorded"
    if mode not in MODES:
        raise ValueError(f"OTTLA_KAFKA={mode}: it is one of {', '.join(MODES)}")
    return mode


def live_modules(modules: Sequence[str], commit_id: str | None) -> set[str]:
    """A tenth of the modules, at least one, by the commit; none without one."""
    if commit_id is None or not modules:
        return set()
    first = int(hashlib.sha256(commit_id.encode()).hexdigest(), 16)
    return {sorted(modules)[(first + at) % len(modules)] for at in range(math.ceil(len(modules) / LIVE_PART))}


@functools.cache
def commit(folder: Path) -> str | None:
    """The id of the commit in a folder, if it has git."""
    try:
        done = subprocess.run(
            ["git", "rev-parse", "--verify", "-q", "HEAD"], cwd=folder, capture_output=True, text=True
        )
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def readable(value: object) -> Any:
    """An answer as JSON has it: names of enums, fields of data classes, sets in order."""
    match value:
        case Enum():
            return value.name
        case None | bool() | int() | float() | str():
            return value
        case bytes() | bytearray() | UUID() | timedelta():
            return str(value)
        case Mapping():
            return {str(readable(key)): readable(part) for key, part in value.items()}
        case Set():
            return sorted(map(readable, value), key=repr)
        case Sequence():
            return [readable(part) for part in value]
    if is_dataclass(value):
        return {field.name: readable(getattr(value, field.name)) for field in fields(value)}
    raise TypeError(f"{value!r} cannot be written to a transcript: make it of simpler values")


def write_lines(value: Any, indent: str = "", key: str = "") -> str:
    """JSON with everything on one line that fits on one."""
    line = indent + key + json.dumps(value, ensure_ascii=False)
    if len(line) <= LINE_MAX or not isinstance(value, dict | list) or not value:
        return line
    inner = indent + " "
    if isinstance(value, dict):
        parts = [write_lines(part, inner, f"{json.dumps(name, ensure_ascii=False)}: ") for name, part in value.items()]
        opening, closing = "{", "}"
    else:
        parts = [write_lines(part, inner) for part in value]
        opening, closing = "[", "]"
    return "\n".join([f"{indent}{key}{opening}", ",\n".join(parts), f"{indent}{closing}"])
