"""What clients did and were told, in order: one JSON object a line, written by programs in any language.

Every line has `t`, seconds of the machine's monotonic clock, `who`, and `what`; the rest depends on `what`:

| what | more | means |
|---|---|---|
| `sent` | `at`, `value`, perhaps `transaction` | a record was given to the client library |
| `acked` | `at`, `value`, `offset` | it is acknowledged; -1 if only as a retry of what is there |
| `failed` | `at`, `value`, `error` | the library gave it up; it may be in the log or not |
| `committed`, `aborted`, `unsure` | `transaction` | how a transaction ended, as its client was told |
| `began` | `at`, perhaps `offset`, `group`, `since` | a reader starts anew; a group's where its offset was when asked |
| `read` | `records`: [at, offset, value] each, perhaps `group` | what one poll gave, read committed |
| `saved` | `at`, `offset`, `group` | a group's offset is acknowledged |
| `acquired` | `records` as above, `counts`, `since`, `group` | a share consumer's poll, with delivery counts |
| `acknowledging`, `acknowledged` | `at`, `offsets`, `how` | a share consumer accepts, releases, rejects; it is stored |
| `start` | `at`, `offset`, `since` | the share group's start offset, asked for at `since` |
| `undone` | `error` | the share group was not done with all records in time |
| `end` | `at`, `offset`, `since` | the partition's end, asked for at `since` |
| `trouble` | `error` | an error that the library did not get over by itself |
| `complained` | `error` | an error that the library reported and got over, such as a connection that broke |

`at` is a partition as `topic-0`. Values are sent once. `checker.py` judges all of it.
"""

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, TextIO

Line = tuple[str, int, str]
"""Partition, offset, value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line; see the module's docstring."""

    t: float
    who: str
    what: str
    at: str = ""
    offset: int = -1
    value: str = ""
    transaction: str | None = None
    group: str | None = None
    since: float = 0.0
    error: str = ""
    records: tuple[Line, ...] = field(default=())
    counts: tuple[int, ...] = ()
    offsets: tuple[int, ...] = ()
    how: str = ""


class HistoryWriter:
    """Appends events to a file; may be used by several threads."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._lock = Lock()

    def write(self, who: str, what: str, **more: Any) -> None:
        """Writes an event of this moment."""
        with self._lock:
            # The clock is read under the lock, so that a file's lines are in the order of their times.
            self._file.write(json.dumps({"t": time.monotonic(), "who": who, "what": what, **more}) + "\n")

    def flush(self) -> None:
        """What was written is in the file now."""
        with self._lock:
            self._file.flush()


def read_events(paths: Iterable[Path]) -> list[Event]:
    """All events of several files, by time; a last line that was cut off by a kill is left out."""
    return sorted((event for path in paths for event in _lines(path)), key=lambda event: event.t)


def _lines(path: Path) -> Iterator[Event]:
    if not path.exists():
        return
    with path.open() as file:
        for line in file:
            if line.endswith("\n"):
                fields = json.loads(line)
                records = tuple((at, offset, value) for at, offset, value in fields.pop("records", ()))
                counts, offsets = tuple(fields.pop("counts", ())), tuple(fields.pop("offsets", ()))
                yield Event(records=records, counts=counts, offsets=offsets, **fields)
