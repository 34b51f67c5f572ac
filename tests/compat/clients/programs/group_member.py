"""Members of groups in the programs of the blocking libraries: each polls in a thread of its own, and keeps a log.

A member reads all the time, since a group moves only while its members poll. What it was assigned, what was taken from
it and what it read is asked for with `member`. What a library needs is a `Consumer`, below.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any, Protocol

POLL_S = 0.1
SESSION_TIMEOUT_MS = 15_000
HEARTBEAT_MS = 300
METADATA_AGE_MS = 500

ILLEGAL_GENERATION = 22
REBALANCE_IN_PROGRESS = 27
STALE_MEMBER_EPOCH = 113
COMES_LATER = (ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS, STALE_MEMBER_EPOCH)
"""Why a commit may have to wait for the end of a rebalance, of which the next poll is a part."""

Place = tuple[str, int]
"""Topic and partition."""


class Consumer(Protocol):
    """What a member needs of a library's consumer; it tells the log of assignments by itself."""

    def poll(self) -> list[tuple[str, int, int]]:
        """Topic, partition and offset of the records that came within a short time."""

    def commit(self) -> None:
        """Commits behind all that was read."""

    def commit_offsets(self, offsets: list[tuple[str, int, int, str]]) -> None:
        """Commits these."""

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """The next record to read."""

    def close(self) -> None:
        """Leaves the group; a static member only goes away."""


class MemberLog:
    """What happened to a member, in order."""

    def __init__(self, code_of: Callable[[BaseException], int | None]) -> None:
        self._code_of = code_of
        self._lock = threading.Lock()
        self._owned: set[Place] = set()
        self._events: list[tuple[str, list[Place], int]] = []
        self._records: list[tuple[str, int, int]] = []
        self._error: dict[str, Any] | None = None

    def on_assigned(self, places: Iterable[Place]) -> None:
        """These came to what it has."""
        with self._lock:
            self._note("assigned", places)
            self._owned |= set(places)

    def on_revoked(self, places: Iterable[Place], kind: str = "revoked") -> None:
        """These are not its own any more; `kind` is `lost` when it was not asked before."""
        with self._lock:
            self._note(kind, places)
            self._owned -= set(places)

    def on_records(self, records: Iterable[tuple[str, int, int]]) -> None:
        """It read these."""
        with self._lock:
            self._records.extend(records)

    def on_error(self, error: BaseException) -> None:
        """It ended by this."""
        with self._lock:
            self._error = {"code": self._code_of(error), "text": f"{type(error).__name__}: {error}"}

    def answer(self) -> dict[str, Any]:
        """All of it, as the line carries it."""
        with self._lock:
            return {
                "owned": sorted(self._owned),
                "events": list(self._events),
                "records": list(self._records),
                "failure": self._error,
            }

    def _note(self, kind: str, places: Iterable[Place]) -> None:
        if places := sorted(places):
            self._events.append((kind, places, time.time_ns() // 1_000_000))


class Member:
    """One consumer in its thread; commits behind every poll if `commits`, and once more before it gives a partition."""

    def __init__(
        self, make: Callable[["Member"], Consumer], *, commits: bool, code_of: Callable[[BaseException], int | None]
    ) -> None:
        self.log = MemberLog(code_of)
        self._code_of = code_of
        self._commits = commits
        self._unsaved = False
        self._tasks: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        self._leaving = threading.Event()
        self._consumer = make(self)
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()

    def call(self, task: Callable[[Consumer], Any]) -> Any:
        """Runs it between two polls: consumers are not for several threads."""
        future: Future[Any] = Future()
        self._tasks.put((lambda: task(self._consumer), future))
        return future.result(30)

    def leave(self) -> None:
        """Returns when the consumer is closed."""
        self._leaving.set()
        self._thread.join(30)

    def on_assigned(self, places: Iterable[Place]) -> None:
        """For the library's callback."""
        self.log.on_assigned(places)

    def on_revoked(self, places: Iterable[Place]) -> None:
        """For the library's callback: the last moment to commit."""
        self._save()
        self.log.on_revoked(places)

    def on_lost(self, places: Iterable[Place]) -> None:
        """For the library's callback."""
        self._unsaved = False
        self.log.on_revoked(places, "lost")

    def _live(self) -> None:
        try:
            while not self._leaving.is_set():
                self._run_tasks()
                records = self._consumer.poll()
                if records:
                    self.log.on_records(records)
                    self._unsaved = True
                self._save()
            self._consumer.close()
        except Exception as error:
            self.log.on_error(error)

    def _save(self) -> None:
        if not (self._commits and self._unsaved):
            return
        try:
            self._consumer.commit()
            self._unsaved = False
        except Exception as error:
            if self._code_of(error) not in COMES_LATER:
                raise

    def _run_tasks(self) -> None:
        while not self._tasks.empty():
            task, future = self._tasks.get()
            try:
                future.set_result(task())
            except Exception as error:
                future.set_exception(error)


class MemberCommands:
    """The commands about members that are there already; a program adds `join_group` and `committed_offsets`."""

    def __init__(self) -> None:
        self._members: dict[int, Member] = {}

    def member(self, id: int) -> dict[str, Any]:
        """All that happened to it."""
        return self._members[id].log.answer()

    def commit_offsets(self, id: int, offsets: list[tuple[str, int, int, str]]) -> None:
        """Commits these as the member."""
        self._members[id].call(lambda consumer: consumer.commit_offsets(offsets))

    def seek(self, id: int, topic: str, partition: int, offset: int) -> None:
        """Where it reads on."""
        self._members[id].call(lambda consumer: consumer.seek(topic, partition, offset))

    def leave_group(self, id: int) -> None:
        """Its log can be asked for behind that, too."""
        self._members[id].leave()
