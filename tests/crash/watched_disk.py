"""A real disk that is watched: every write into a partition's log is seen, and at chosen ones the files are copied.

The copy is what a process leaves that is killed at this very moment: all that it had written, nothing more. Unless it
`loses_unsynced`: then it is the least that a power cut leaves of the logs, what was synced.

The broker writes its logs on its event loop, so that nothing else of it happens while the copy is made. Its metadata is
SQLite's, which is not watched: choose moments at which no topic is being made.
"""

import asyncio
import contextlib
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

from ottla.coordination.groups.records import GroupKey, OffsetKey, read_key
from ottla.coordination.runtime.effects import CoordinatorRecord
from ottla.coordination.transactions.records import TransactionStatus, decode_value
from ottla.env.real_disk import RealDisk, RealFile
from ottla.model.buffer import Buffer
from ottla.records.batch import Batch, scan
from ottla.records.decode import decode_records

P = ParamSpec("P")
T = TypeVar("T")
LOG_SUFFIX: Final = ".log"
TRANSACTIONS: Final = "__transaction_state"
OFFSETS: Final = "__consumer_offsets"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogWrite:
    """One write into the log of one partition."""

    topic: str
    partition: int
    batches: tuple[Batch, ...]

    def records(self) -> list[CoordinatorRecord]:
        """The records as a coordinator wrote them; markers are none."""
        return [
            CoordinatorRecord(bytes(record.key or b""), None if record.value is None else bytes(record.value))
            for batch in self.batches
            if not batch.is_control
            for record in decode_records(batch)
        ]


Sees = Callable[[LogWrite], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A moment: just before or after the `nth` write that is of this kind."""

    sees: Sees
    is_after: bool = True
    nth: int = 1
    loses_unsynced: bool = False


def transaction_state(status: TransactionStatus) -> Sees:
    """A transactional id gets this state."""

    def sees(write: LogWrite) -> bool:
        values = [record.value for record in write.records()] if write.topic == TRANSACTIONS else []
        return any(value is not None and decode_value(value).status is status for value in values)

    return sees


def marker(topic: str | None = None) -> Sees:
    """The end of a transaction is marked, in a partition of this topic or of any."""
    return lambda write: topic in (None, write.topic) and any(batch.is_control for batch in write.batches)


def records_in(topic: str) -> Sees:
    """Records come to a topic."""
    return lambda write: write.topic == topic and not any(batch.is_control for batch in write.batches)


def offsets(write: LogWrite) -> bool:
    """Some group commits offsets, inside a transaction or not."""
    return _has_key(write, OffsetKey)


def classic_group(write: LogWrite) -> bool:
    """A classic group gets a generation."""
    return _has_key(write, GroupKey)


def server_side_group(write: LogWrite) -> bool:
    """Something about a group of the server-side protocol is decided."""
    return write.topic == OFFSETS and any(read_key(record.key) is None for record in write.records())


def _has_key(write: LogWrite, kind: type[OffsetKey] | type[GroupKey]) -> bool:
    return write.topic == OFFSETS and any(isinstance(read_key(record.key), kind) for record in write.records())


class WatchedDisk(RealDisk):
    """Copies `data` to a folder of `copies` for each point that is reached, under the point's name.

    What is read of the `held` topics to load their coordinators is kept back until it is released; by then it is old.
    """

    def __init__(self, data: Path, copies: Path, held: Iterable[str] = ()) -> None:
        super().__init__()
        self._data = data
        self._copies = copies
        self._points: dict[str, Point] = {}
        self._seen: dict[str, int] = {}
        self._synced: dict[str, int] = {}
        self._held = {topic: asyncio.Event() for topic in held}

    def release(self, topic: str) -> None:
        """What was read of the topic is given to who wants it, and all that is read later at once."""
        self._held[topic].set()

    async def in_background(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """As a real disk does, but for what is held."""
        found = await super().in_background(function, *args, **kwargs)
        file = getattr(function, "__self__", None)
        if isinstance(file, WatchedFile) and file.topic in self._held:
            await self._held[file.topic].wait()
        return found

    def watch(self, points: dict[str, Point]) -> None:
        """From now on these are waited for; those before are forgotten."""
        self._points = dict(points)
        self._seen = dict.fromkeys(points, 0)

    def copy(self, name: str, *, loses_unsynced: bool = False) -> Path:
        """The files as they are now."""
        target = self._copies / name
        shutil.copytree(self._data, target, copy_function=_copy_if_there)
        if loses_unsynced:
            for path in target.glob(f"*/*{LOG_SUFFIX}"):
                original = self._data / path.relative_to(target)
                with path.open("r+b") as file:
                    file.truncate(min(self._synced.get(str(original), 0), path.stat().st_size))
        return target

    def has_copied(self, name: str) -> bool:
        """Whether a point was reached."""
        return (self._copies / name).is_dir()

    def copy_of(self, name: str) -> Path:
        """What was left at a point; it must have been reached."""
        target = self._copies / name
        assert self.has_copied(name), f"the broker never came to {name!r}"
        return target

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> RealFile:
        """Files of logs are watched, all others are as they are."""
        if not (writable and path.endswith(LOG_SUFFIX)):
            return super().open(path, create=create, writable=writable)
        return WatchedFile(path, create=create, disk=self)

    def on_write(self, path: str, buffers: Sequence[Buffer], *, is_after: bool) -> None:
        """Some log is about to be written, or has been."""
        if not self._points:
            return
        batches, _, problem = scan(b"".join(bytes(buffer) for buffer in buffers))
        assert problem is None, f"{path} gets a batch that is none: {problem}"
        topic, index = _partition_of(path)
        write = LogWrite(topic=topic, partition=index, batches=tuple(batches))
        for name, point in self._points.items():
            if point.is_after == is_after and point.sees(write):
                self._seen[name] += 1
                if self._seen[name] == point.nth:
                    self.copy(name, loses_unsynced=point.loses_unsynced)

    def on_synced(self, path: str, size: int) -> None:
        """So much of a file would survive a power cut."""
        self._synced[path] = size


class WatchedFile(RealFile):
    """A log file that tells its disk of every write."""

    __slots__ = ("_disk", "topic")

    def __init__(self, path: str, *, create: bool, disk: WatchedDisk) -> None:
        super().__init__(path, os.O_RDWR | (os.O_CREAT if create else 0))
        self._disk = disk
        self.topic, _ = _partition_of(path)

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> None:
        """As a real file does."""
        self._disk.on_write(self.path, buffers, is_after=False)
        super().write_at(position, buffers)
        self._disk.on_write(self.path, buffers, is_after=True)

    def sync(self) -> None:
        """As a real file does; what is written meanwhile is not counted."""
        size = self.size()
        super().sync()
        self._disk.on_synced(self.path, size)


def _copy_if_there(source: str, target: str) -> None:
    """A file; nothing if it is gone by now: what is written in the background gets its final name meanwhile."""
    with contextlib.suppress(FileNotFoundError):
        shutil.copy2(source, target)


def _partition_of(path: str) -> tuple[str, int]:
    """The topic and partition that a file of a log belongs to."""
    topic, _, index = Path(path).parent.name.rpartition("-")
    return topic, int(index)
