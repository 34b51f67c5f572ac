"""The SQLite store, beyond what all stores promise: what survives, several processes, and files that cannot be used.

The promises of all stores are in `tests/unit/metadata/store_contract.py`.
"""

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ottla.env.real_clock import RealClock
from ottla.env.real_disk import RealDisk
from ottla.metadata.sqlite.sqlite_store import SqliteStore
from ottla.metadata.store import (
    Change,
    Delete,
    Entry,
    MetadataStore,
    Put,
    RevisionGoneError,
)
from ottla.model.errors import MisuseError, StorageError
from tests.unit.metadata.store_rig import heard, opened, other_process, run, take
from tests.waiting import PATIENCE_SECONDS, until


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metadata.db"


class TestCommit:
    async def test_all_keys_share_a_revision_and_survive(self, path: Path) -> None:
        async with opened(path) as store:
            port: MetadataStore = store
            assert 1 == await port.commit([Put("b", b"\x00\xff"), Put("a/x", b"", 0)])
            assert 2 == await port.commit([Put("b", b"2", 1), Delete("a/x", 1), Put("c", b"3")])
        async with opened(path) as store:
            assert (2, [Entry("b", b"2", 2), Entry("c", b"3", 2)]) == await store.snapshot()

    async def test_cancelling_the_caller_does_not_stop_it(self, path: Path) -> None:
        """Or the followers would miss a commit that was made, and two jobs would use the connection at once."""
        async with opened(path) as store:
            followed = asyncio.create_task(take(store.follow(0), 20))
            for number in range(20):
                committing = asyncio.create_task(store.commit([Put("a", b"%d" % number)]))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                committing.cancel()
            assert [[Change(at + 1, "a", b"%d" % at)] for at in range(20)] == await followed

    async def test_in_a_given_background(self, path: Path) -> None:
        async with opened(path, in_background=RealDisk().in_background) as store:
            revisions = await asyncio.gather(*(store.commit([Put(f"k/{n}", b"")]) for n in range(20)))
            assert list(range(1, 21)) == revisions


class TestFollow:
    async def test_a_call_behind_close_is_refused_and_starts_no_thread(self, path: Path) -> None:
        before = set(threading.enumerate())
        store = SqliteStore(str(path), clock=RealClock())
        await store.open()
        late = asyncio.create_task(store.snapshot())
        await asyncio.gather(store.close(), return_exceptions=True)
        with pytest.raises(MisuseError, match="is not open"):
            await late
        for each in set(threading.enumerate()) - before:
            each.join(10)
        assert set() == set(threading.enumerate()) - before

    async def test_pruned_changes_ask_for_a_snapshot(self, path: Path) -> None:
        async with opened(path, changes_kept=5) as store:
            for _ in range(105):
                last = await store.commit([Put("a", b"")])
            with pytest.raises(RevisionGoneError, match="take a snapshot"):
                await take(store.follow(99), 1)
            assert [[Change(at, "a", b"")] for at in range(101, 106)] == await take(store.follow(100), 5)
            with pytest.raises(RevisionGoneError, match="take a snapshot"):
                await take(store.follow(last + 1), 1)

    async def test_pages_end_between_commits(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("ottla.metadata.sqlite.sqlite_file.ROWS_PER_PAGE", 4)
        async with opened(path) as store:
            for _ in range(5):
                await store.commit([Put(f"k/{n}", b"") for n in range(3)])
            assert [[3] * 5] == [[len(commit) for commit in await take(store.follow(0), 5)]]


class TestSeveralProcesses:
    async def test_a_follower_of_a_file_that_was_restored_has_to_take_a_snapshot(self, path: Path) -> None:
        async with opened(path, shared=True, poll_ms=5) as store:
            with closing(sqlite3.connect(path)) as live, closing(sqlite3.connect(":memory:")) as backup:
                live.backup(backup)
                last = await store.commit([Put("a", b"")])
                follower = asyncio.create_task(take(store.follow(last), 1))
                backup.backup(live)
            with pytest.raises(RevisionGoneError, match="take a snapshot"):
                await asyncio.wait_for(follower, PATIENCE_SECONDS)

    async def test_a_follower_sees_another_process_commit(self, path: Path) -> None:
        body = "for n in range(30): await store.commit([Put('n', b'%d' % n, n or 0)])\nsay('done')\nawait store.close()"
        async with opened(path, shared=True, poll_ms=5) as store:
            follower = asyncio.create_task(take(store.follow(0), 30))
            process = await other_process(path, body)
            assert "done" == await heard(process)
            assert [[Change(at + 1, "n", b"%d" % at)] for at in range(30)] == await follower
            assert 0 == await process.wait()

    async def test_they_may_all_start_at_once(self, path: Path) -> None:
        body = "await store.commit([Put('k/' + sys.argv[0] + str(id(store)) , b'')])\nsay('done')\nawait store.close()"
        processes = await asyncio.gather(*(other_process(path, body) for _ in range(6)))
        assert ["done"] * 6 == [await heard(process) for process in processes]
        assert [0] * 6 == [await process.wait() for process in processes]
        async with opened(path, shared=True) as store:
            assert 6 == (await store.snapshot())[0]

    async def test_compare_and_set_between_processes(self, path: Path) -> None:
        """Each counts a shared number up by compare-and-set; no step is lost."""
        body = """
from ottla.metadata.store import ConflictError
for _ in range(40):
    while True:
        revision, entries = await store.snapshot()
        value, at = (int(entries[0].value), entries[0].revision) if entries else (0, 0)
        try:
            await store.commit([Put('n', b'%d' % (value + 1), at)])
            break
        except ConflictError:
            pass
say('done')
await store.close()"""
        processes = await asyncio.gather(*(other_process(path, body) for _ in range(2)))
        assert ["done"] * 2 == [await heard(process) for process in processes]
        assert [0] * 2 == [await process.wait() for process in processes]
        async with opened(path) as store:
            assert (80, [Entry("n", b"80", 80)]) == await store.snapshot()

    @pytest.mark.parametrize("shared", [False, True])
    async def test_one_that_is_alone_lets_nobody_in(self, path: Path, shared: bool) -> None:
        async with opened(path, shared=not shared):
            second = SqliteStore(str(path), RealClock(), shared=shared, busy_timeout_ms=50)
            with pytest.raises(StorageError, match=r"metadata\.db.*another process holds it"):
                await second.open()


def _not_a_database(path: Path) -> None:
    path.write_bytes(b"certainly not a database, but long enough to be one" * 100)


def _of_another_program(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE songs (title)")
    connection.close()


def _of_a_newer_version(path: Path) -> None:
    async def make() -> None:
        async with opened(path):
            pass

    run(make())
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()


def _damaged(path: Path) -> None:
    async def make() -> None:
        async with opened(path) as store:
            await store.commit([Put(f"k/{n}", bytes(100)) for n in range(1000)])

    run(make())
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 20_000] = os.urandom(20_000)
    path.write_bytes(content)


def _a_folder(path: Path) -> None:
    path.mkdir()


async def _checkpointed(connection: Any) -> None:
    """Moves everything into the database file, once the store's own thread is not in the middle of a read."""

    def is_done() -> bool:
        try:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise
            return False
        return True

    await until(is_done)


def _scrambled(path: Path) -> bytes:
    """Breaks all pages but the first; answers what the file was."""
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
    return content


def _restore(path: Path, content: bytes) -> None:
    path.write_bytes(content)


class TestFilesThatCannotBeUsed:
    @pytest.mark.parametrize(
        ("prepare", "advice"),
        [
            (_not_a_database, "restore the newest backup"),
            (_damaged, "restore the newest backup"),
            (_of_another_program, "another program's database"),
            (_of_a_newer_version, "use a newer Ottla"),
            (_a_folder, "check that its folder exists"),
        ],
    )
    async def test_the_error_names_the_file(self, path: Path, prepare: Callable[[Path], None], advice: str) -> None:
        await asyncio.to_thread(prepare, path)
        store = SqliteStore(str(path), RealClock())
        with pytest.raises(StorageError, match=rf"metadata\.db.*{advice}"):
            await store.open()
        with pytest.raises(MisuseError, match="not open"):
            await store.snapshot()
        await store.close()

    async def test_a_folder_that_is_missing(self, tmp_path: Path) -> None:
        store = SqliteStore(str(tmp_path / "gone" / "metadata.db"), RealClock())
        with pytest.raises(StorageError, match="check that its folder exists"):
            await store.open()

    async def test_a_full_disk_refuses_the_commit_and_nothing_else(self, path: Path) -> None:
        """SQLite's limit of pages stands for a full disk: both end in the same error code."""
        async with opened(path) as store:
            await store.commit([Put("a", b"1")])
            connection: Any = store._file._connection
            connection.execute("PRAGMA max_page_count = 20")
            with pytest.raises(StorageError, match=r"metadata\.db.*free some space"):
                await store.commit([Put("a", b"2"), Put("b", bytes(200_000))])
            assert (1, [Entry("a", b"1", 1)]) == await store.snapshot()
            assert 2 == await store.commit([Put("a", b"2", 1)])

    async def test_after_damage_nothing_is_believed(self, path: Path) -> None:
        async with opened(path, shared=True) as store:
            await store.commit([Put(f"k/{n}", bytes(100)) for n in range(1000)])
            connection: Any = store._file._connection
            await _checkpointed(connection)
            connection.execute("PRAGMA cache_size = 0")
            content = _scrambled(path)
            connection.execute("PRAGMA shrink_memory")
            for _ in range(2):
                with pytest.raises(StorageError, match="restore the newest backup"):
                    await store.commit([Put("k/500", b"")])
            _restore(path, content)
            with pytest.raises(StorageError, match="restore the newest backup"):
                await store.snapshot()

    async def test_not_open(self, path: Path) -> None:
        store = SqliteStore(str(path), RealClock())
        with pytest.raises(MisuseError, match="not open"):
            await store.commit([])
        with pytest.raises(MisuseError, match="not open"):
            await take(store.follow(0), 1)
        await store.open()
        with pytest.raises(MisuseError, match="already open"):
            await store.open()
        await store.close()
        await store.close()
        await store.open()
        assert (0, []) == await store.snapshot()
        await store.close()
