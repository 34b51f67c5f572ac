"""What whoever gives up a commit is told of its fate: that nothing came of it only if nothing can come of it.

The collaborators are scripted, so that a commit can be given up at each step; the other tests here have real ones.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ottla.metadata.key_table import KeyTable
from ottla.metadata.store import CommitUnknownError, Put, StoreUnavailableError
from ottla.metadata.zookeeper.commit_log import TRANSACTION_BYTES_MAX, LogEntry
from ottla.metadata.zookeeper.commits import Commits
from ottla.metadata.zookeeper.session import BadVersionError

SOON = 30.0
AT_ONCE = 0.02


class ScriptedEnsemble:
    """The log, the sessions, the session and the replica of a store in one."""

    token = "session"

    def __init__(self) -> None:
        self.table = KeyTable()
        self.connected = asyncio.Event()
        self.connected.set()
        self.parts_written = asyncio.Event()
        self.parts_written.set()
        self.is_encoding = asyncio.Event()
        self.attempts: list[tuple[str, int]] = []
        """The keys of the commits that were begun to be written, and which attempt it was."""
        self.bytes_each = 10
        self.others_first = 0
        """So many transactions come too late, since another broker was faster."""
        self.commits: Commits

    async def ask(self, attempt: "Callable[[ScriptedEnsemble], Awaitable[bool]]") -> bool:
        await self.connected.wait()
        return await attempt(self)

    async def encode_entry(self, session: object, entry: LogEntry, attempt: int) -> bytes:
        self.attempts.append((entry.written[0][0], attempt))
        self.is_encoding.set()
        await self.parts_written.wait()
        return bytes(self.bytes_each)

    async def transaction(self, fill: Callable[[Any], None]) -> list[object]:
        if self.others_first:
            self.others_first -= 1
            return [None, BadVersionError()]
        return [None]

    async def on_committed(self, session: object, base: int, entries: Sequence[LogEntry]) -> None:
        for entry in entries:
            self.table.apply(entry.written, entry.owner)
            self.commits.on_entry(entry, self.table.revision)

    async def refresh(self) -> None:
        """It is current."""

    def fill(self, transaction: object, token: str, base: int, entries: Sequence[bytes]) -> None:
        """Nothing to write to."""


@asynccontextmanager
async def scripted_commits(*, seconds: float = SOON) -> AsyncIterator[tuple[ScriptedEnsemble, Commits]]:
    ensemble: Any = ScriptedEnsemble()
    commits = ensemble.commits = Commits(
        ensemble, ensemble, ensemble,
        request_seconds=seconds, snapshot_every=1000, changes_kept=1000,
        unavailable=lambda kind: kind("scripted"),
    )  # fmt: skip
    running = asyncio.create_task(commits.run())
    try:
        yield ensemble, commits
        assert not running.done()
    finally:
        running.cancel()


async def test_without_a_connection_nothing_came_of_it_also_later() -> None:
    async with scripted_commits(seconds=AT_ONCE) as (ensemble, commits):
        ensemble.connected.clear()
        with pytest.raises(StoreUnavailableError) as raised:
            await commits.submit([Put("a", b"1")])
        assert StoreUnavailableError is type(raised.value)
        commits._request_seconds = SOON
        ensemble.connected.set()
        assert (1, None) == await commits.submit([Put("b", b"1")])
        assert ([("b", 0)], ["b"]) == (ensemble.attempts, [entry.key for entry in ensemble.table.entries()])


async def test_who_gives_up_while_the_parts_of_a_large_commit_are_written_does_not_know() -> None:
    async with scripted_commits(seconds=AT_ONCE) as (ensemble, commits):
        ensemble.parts_written.clear()
        with pytest.raises(CommitUnknownError):
            await commits.submit([Put("a", b"1")])
        assert ensemble.is_encoding.is_set()
        commits._request_seconds = SOON
        ensemble.parts_written.set()
        # It is made after all, before the next.
        assert (2, None) == await commits.submit([Put("b", b"1")])
        assert ["a", "b"] == [entry.key for entry in ensemble.table.entries()]


async def test_each_attempt_has_its_number_and_so_names_of_its_own_for_its_parts() -> None:
    async with scripted_commits() as (ensemble, commits):
        ensemble.others_first = 2
        assert (1, None) == await commits.submit([Put("a", b"1")])
        assert [("a", 0), ("a", 1), ("a", 2)] == ensemble.attempts


async def test_what_is_too_much_for_one_transaction_goes_into_the_next() -> None:
    async with scripted_commits() as (ensemble, commits):
        ensemble.bytes_each = TRANSACTION_BYTES_MAX * 2 // 5
        ensemble.connected.clear()
        asked = [asyncio.create_task(commits.submit([Put(key, b"1")])) for key in "abcde"]
        await asyncio.sleep(0)
        ensemble.connected.set()
        assert [(revision, None) for revision in range(1, 6)] == await asyncio.gather(*asked)
        # The third was written already when it was found to be too much.
        assert [("a", 0), ("b", 0), ("c", 0), ("c", 1), ("d", 0), ("e", 0), ("e", 1)] == ensemble.attempts
