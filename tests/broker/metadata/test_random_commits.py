"""The SQLite metadata store against a dict: random commits, reopening and following; and against SIGKILL."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Sequence
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ottla.env.real_clock import RealClock
from ottla.metadata.sqlite.sqlite_store import SqliteLease, SqliteStore
from ottla.metadata.store import Change, Check, ConflictError, Delete, Entry, Operation, Put
from tests.effort import effort
from tests.unit.metadata.store_rig import heard, opened, other_process

pytestmark = pytest.mark.slow

T = TypeVar("T")

KEYS = ["a", "b", "t/a", "t/b", "t/c/0", "ü"]
LEASED = ["lease/0", "lease/1"]
WISHES = st.lists(
    st.tuples(
        st.sampled_from(KEYS),
        st.sampled_from(["put", "delete", "check"]),
        st.binary(max_size=3),
        st.sampled_from(["right", "right", "right", "none", "wrong"]),
    ),
    max_size=5,
    unique_by=lambda wish: wish[0],
)


class StoreMachine(RuleBasedStateMachine):
    """One store, opened alone or shared, a dict that says what it must hold, and a follower that must hear it all."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.loop = asyncio.new_event_loop()
        self.model: dict[str, Entry] = {}
        self.history: list[list[Change]] = []
        self.heard: list[list[Change]] = []
        self.leases: dict[str, SqliteLease] = {}
        self.store = self.opened(shared=False)

    def run(self, work: Awaitable[T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(work, timeout=20))

    def opened(self, *, shared: bool) -> SqliteStore:
        store = SqliteStore(f"{self.folder.name}/metadata.db", RealClock(), shared=shared, busy_timeout_ms=10_000)
        self.run(store.open())
        self.follower: AsyncIterator[list[Change]] = store.follow(len(self.heard))
        return store

    def teardown(self) -> None:
        self.run(self.store.close())
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()
        self.folder.cleanup()

    def revision_of(self, key: str) -> int:
        return self.model[key].revision if key in self.model else 0

    def write(self, values: Sequence[tuple[str, bytes | None]]) -> None:
        """What a commit of these does to the model."""
        if not values:
            return
        revision = len(self.history) + 1
        self.history.append([Change(revision, key, value) for key, value in values])
        for key, value in values:
            self.model.pop(key, None)
            if value is not None:
                self.model[key] = Entry(key, value, revision)

    @rule(wishes=WISHES)
    def commit(self, wishes: list[tuple[str, str, bytes, str]]) -> None:
        operations: list[Operation] = []
        written: list[tuple[str, bytes | None]] = []
        is_conflict = False
        for key, kind, value, guess in wishes:
            right = self.revision_of(key)
            expected = {"right": right, "none": None, "wrong": right + 1}[guess]
            is_conflict |= guess == "wrong"
            if kind == "put":
                operations.append(Put(key, value, expected))
                written.append((key, value))
            elif kind == "delete":
                operations.append(Delete(key, expected))
                written += [(key, None)] if right else []
            else:
                operations.append(Check(key, right if expected is None else expected))
        if is_conflict:
            with pytest.raises(ConflictError):
                self.run(self.store.commit(operations))
        else:
            self.write(written)
            assert len(self.history) == self.run(self.store.commit(operations))

    @rule(key=st.sampled_from(LEASED), value=st.binary(max_size=3))
    def lease(self, key: str, value: bytes) -> None:
        if key in self.leases:
            with pytest.raises(ConflictError):
                self.run(self.store.lease(key, value))
        else:
            self.leases[key] = self.run(self.store.lease(key, value))
            self.write([(key, value)])
            assert self.revision_of(key) == self.leases[key].revision

    @rule(key=st.sampled_from(LEASED))
    def release(self, key: str) -> None:
        lease = self.leases.pop(key, None)
        if lease is not None:
            assert not lease.is_lost
            self.run(lease.release())
            self.write([(key, None)])

    @rule(shared=st.booleans())
    def reopen(self, shared: bool) -> None:
        self.run(self.store.close())
        self.write([(key, None) for key in sorted(self.leases)])
        assert [True] * len(self.leases) == [lease.is_lost for lease in self.leases.values()]
        self.leases.clear()
        self.store = self.opened(shared=shared)

    @rule()
    def follow(self) -> None:
        while len(self.heard) < len(self.history):
            self.heard.append(self.run(anext(self.follower)))
        assert self.history == self.heard

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        entries = sorted(self.model.values())
        assert (len(self.history), entries) == self.run(self.store.snapshot())


TestStore = StoreMachine.TestCase
TestStore.settings = effort(examples=100, steps=30)


WRITER = """
_, entries = await store.snapshot()
n = int(entries[0].value) if entries else 0
while True:
    n += 1
    await store.commit([Put(key, b'%d' % n) for key in ('a', 'b', 'c')])
    say(n)
"""


@pytest.mark.parametrize("shared", [False, True])
async def test_a_killed_writer_leaves_whole_commits(tmp_path: Path, shared: bool) -> None:
    """What it was told is durable is there, at most one commit more, and never a part of one."""
    path = tmp_path / "metadata.db"
    for commits in (1, 2, 5, 30, 60, 7):
        process = await other_process(path, WRITER, shared=shared)
        for _ in range(commits):
            acknowledged = int(await heard(process))
        process.kill()
        assert process.stdout is not None
        for line in (await process.stdout.read()).decode().splitlines(keepends=True):
            acknowledged = int(line) if line.endswith("\n") else acknowledged
        await process.wait()
        async with opened(path, shared=shared) as store:
            revision, entries = await store.snapshot()
            assert ["a", "b", "c"] == [entry.key for entry in entries]
            assert 1 == len({entry.value for entry in entries})
            assert revision == int(entries[0].value) == entries[0].revision
            assert acknowledged <= revision <= acknowledged + 1
            followed = store.follow(0)
            for at in range(1, revision + 1):
                assert [Change(at, key, b"%d" % at) for key in ("a", "b", "c")] == await anext(followed)
