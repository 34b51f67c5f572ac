"""Leases of the SQLite store: their owners, how they end, and who may take them over."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ottla.metadata.lease_owner import is_gone, this_process
from ottla.metadata.sqlite.sqlite_store import SqliteStore
from ottla.metadata.store import Change, ConflictError, Delete, Entry, Lease, Put
from ottla.sim.clock import SimClock
from tests.unit.metadata.store_rig import LEAD, check_paused_leader, heard, opened, other_process, take

HOLD = "lease = await store.lease('brokers/0', b'child')\nsay('held')\nsys.stdin.read()\nawait store.close()"
HOLD_AND_SERVE = """
lease = await store.lease('brokers/0', b'child')
say('held')
await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
await store.close()"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metadata.db"


@pytest.mark.parametrize("shared", [False, True])
async def test_a_lease_is_a_key_until_it_is_released(path: Path, shared: bool) -> None:
    async with opened(path, shared=shared) as store:
        await store.commit([Put("a", b"")])
        lease: Lease = await store.lease("brokers/0", b"here")
        assert (2, False) == (lease.revision, lease.is_lost)
        assert (2, [Entry("a", b"", 1), Entry("brokers/0", b"here", 2)]) == await store.snapshot()
        with pytest.raises(ConflictError, match=f"held by process {os.getpid()}"):
            await store.lease("brokers/0", b"again")
        await lease.release()
        assert lease.is_lost
        await lease.release()
        assert [[Change(2, "brokers/0", b"here")], [Change(3, "brokers/0", None)]] == await take(store.follow(1), 2)
        assert 4 == (await store.lease("brokers/0", b"again")).revision


@pytest.mark.parametrize("shared", [False, True])
async def test_closing_ends_the_session(path: Path, shared: bool) -> None:
    async with opened(path, shared=shared) as store:
        leases = [await store.lease("brokers/0", b""), await store.lease("controller", b"")]
    assert [True, True] == [lease.is_lost for lease in leases]
    async with opened(path) as store:
        assert (3, []) == await store.snapshot()
        await leases[0].release()


async def test_an_ordinary_key_cannot_be_leased(path: Path) -> None:
    async with opened(path) as store:
        await store.commit([Put("brokers/0", b"")])
        with pytest.raises(ConflictError, match="is not a lease"):
            await store.lease("brokers/0", b"")


async def test_a_killed_process_does_not_block_the_next(path: Path) -> None:
    """Whether it shared the file or not, and at once: the timeout is not waited for."""
    for shared in (True, False):
        process = await other_process(path, HOLD, shared=shared)
        assert "held" == await heard(process)
        process.kill()
        await process.wait()
        async with opened(path, shared=shared, lease_timeout_ms=3_600_000) as store:
            assert [] == (await store.snapshot())[1]
            lease = await store.lease("brokers/0", b"parent")
            assert not lease.is_lost


async def test_the_others_see_a_process_die(path: Path) -> None:
    async with opened(path, shared=True, poll_ms=5, lease_timeout_ms=3_600_000) as store:
        follower = store.follow(0)
        process = await other_process(path, HOLD, lease_timeout_ms=3_600_000)
        assert [[Change(1, "brokers/0", b"child")]] == await take(follower, 1)
        with pytest.raises(ConflictError, match=f"held by process {process.pid}"):
            await store.lease("brokers/0", b"parent")
        process.kill()
        assert [[Change(2, "brokers/0", None)]] == await take(store.follow(1), 1)
        assert 3 == (await store.lease("brokers/0", b"parent")).revision
        await process.wait()


async def test_a_death_is_seen_without_a_look(path: Path) -> None:
    """Neither the timeout nor the next look at the file is waited for."""
    async with opened(path, shared=True, poll_ms=3_600_000, lease_timeout_ms=3_600_000) as store:
        process = await other_process(path, HOLD, lease_timeout_ms=3_600_000)
        assert [[Change(1, "brokers/0", b"child")]] == await take(store.follow(0), 1)
        process.kill()
        assert [[Change(2, "brokers/0", None)]] == await take(store.follow(1), 1)
        await process.wait()


async def test_a_living_process_releases_when_it_closes(path: Path) -> None:
    async with opened(path, shared=True, poll_ms=5) as store:
        process = await other_process(path, HOLD_AND_SERVE)
        assert "held" == await heard(process)
        assert process.stdin is not None
        process.stdin.close()
        assert [[Change(2, "brokers/0", None)]] == await take(store.follow(1), 1)
        assert 0 == await process.wait()


async def test_a_lease_that_is_not_renewed_expires(path: Path) -> None:
    """Two sessions with their own clocks: the first one's is stopped, like that of a stopped process."""
    stopped, running = SimClock(), SimClock()
    async with opened(path, stopped, shared=True) as first, opened(path, running, shared=True) as second:
        lost = await first.lease("controller", b"first")
        running.advance(8.9)
        with pytest.raises(ConflictError, match="held by"):
            await second.lease("controller", b"second")
        running.advance(0.2)
        taken = await second.lease("controller", b"second")
        assert (2, False) == (taken.revision, taken.is_lost)
        stopped.advance(9.0)
        assert lost.is_lost
        await lost.release()
        assert [Entry("controller", b"second", 2)] == (await first.snapshot())[1]


async def test_an_expired_lease_is_ended_by_whoever_watches(path: Path) -> None:
    stopped, running = SimClock(), SimClock()
    async with opened(path, stopped, shared=True) as first, opened(path, running, shared=True) as second:
        await first.lease("controller", b"first")
        await second.snapshot()
        follower = asyncio.create_task(take(second.follow(1), 1))
        while not follower.done():
            running.advance(0.1)
            await second.snapshot()
        assert [[Change(2, "controller", None)]] == follower.result()
        assert 9.0 <= running.monotonic() < 11.0


async def test_who_lost_a_lease_may_ask_for_it_at_once(path: Path) -> None:
    """To its owner it is lost a little before the file gives it to others."""
    clock = SimClock()
    async with opened(path, clock, shared=True) as store, opened(path, clock, shared=True) as other:
        lost = await store.lease("controller", b"one")
        # By itself the store would give it back as soon as it saw that it is lost, perhaps before `other` asks.
        for loop in store._loops:
            loop.cancel()
        clock.advance(8.5)
        assert lost.is_lost
        with pytest.raises(ConflictError, match="held by"):
            await other.lease("controller", b"other")
        again = await store.lease("controller", b"two")
        assert (3, False, True) == (again.revision, again.is_lost, lost.is_lost)
        assert [Entry("controller", b"two", 3)] == (await store.snapshot())[1]


async def let_it_renew(store: SqliteStore) -> None:
    """Returns after the renewal that is due: the store works in the order asked, and so twice behind it."""
    await asyncio.sleep(0)
    for _ in range(3):
        await store.snapshot()


async def test_renewal_keeps_a_lease_for_ever(path: Path) -> None:
    clock = SimClock()
    async with opened(path, clock, shared=True) as store, opened(path, clock, shared=True) as other:
        lease = await store.lease("controller", b"")
        for _ in range(10):
            clock.advance(3.0)
            await let_it_renew(store)
            assert not lease.is_lost
            with pytest.raises(ConflictError, match="held by"):
                await other.lease("controller", b"")
        assert 1 == (await store.snapshot())[0]


async def test_an_expired_lease_does_not_come_back(path: Path) -> None:
    """Its owner has seen that it is lost, and must never see otherwise; and it must not block others."""
    clock = SimClock()
    async with opened(path, clock, shared=True) as store:
        lease = await store.lease("controller", b"")
        clock.advance(9.5)
        before = lease.is_lost
        await let_it_renew(store)
        assert (True, True) == (before, lease.is_lost)
        async with opened(path, clock, shared=True) as other:
            assert 3 == (await other.lease("controller", b"")).revision


async def test_a_lease_lost_while_the_file_was_busy_stays_lost(path: Path) -> None:
    clock = SimClock()
    is_slow = False

    async def in_background(function: Callable[..., Any], *args: Any) -> Any:
        if is_slow and function.__name__ == "renew_leases":
            clock.advance(7.0)
        return function(*args)

    async with opened(path, clock, shared=True, in_background=in_background) as store:
        lease = await store.lease("controller", b"")
        is_slow = True
        clock.advance(3.0)
        await let_it_renew(store)
        assert 10.0 == clock.monotonic()
        assert lease.is_lost


async def test_a_deleted_lease_is_lost_at_the_next_renewal(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the latest: here no wake comes that would say so sooner."""
    monkeypatch.setattr("ottla.metadata.sqlite.change_signal.ChangeSignal.watch", lambda self, on_touched: None)
    clock = SimClock()
    async with opened(path, clock, shared=True, poll_ms=3_600_000) as store:
        lease = await store.lease("controller", b"")
        await store.commit([Delete("controller", lease.revision)])
        clock.advance(3.0)
        await let_it_renew(store)
        assert lease.is_lost
        assert 3 == (await store.lease("controller", b"")).revision


@pytest.mark.parametrize("is_closed", [True, False])
async def test_a_lease_whose_caller_was_cancelled_is_not_held(path: Path, is_closed: bool) -> None:
    """As when a broker stops while it stands for election: nobody could become the controller before the timeout."""
    async with opened(path, shared=True, lease_timeout_ms=3_600_000) as other:
        for turns in range(12):
            async with opened(path, shared=True, lease_timeout_ms=3_600_000) as store:
                asking = asyncio.create_task(store.lease("controller", b"one"))
                for _ in range(turns):
                    await asyncio.sleep(0)
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
                if is_closed:
                    await store.close()
                else:
                    await store.snapshot()
                if asking.cancelled():
                    await (await other.lease("controller", b"other")).release()


async def test_alone_a_lease_needs_no_renewal(path: Path) -> None:
    clock = SimClock()
    async with opened(path, clock) as store:
        lease = await store.lease("controller", b"")
        clock.advance(1e9)
        assert not lease.is_lost
        with pytest.raises(ConflictError, match="held by"):
            await store.lease("controller", b"")


async def test_a_process_that_was_stopped_does_not_act_on_what_it_lost(path: Path) -> None:
    # Only the lease of the other process must end soon.
    async with opened(path, shared=True, poll_ms=20, lease_timeout_ms=60_000) as store:
        await check_paused_leader(await other_process(path, LEAD, lease_timeout_ms=3_000), store)


async def test_many_processes_die_and_the_others_go_on(path: Path) -> None:
    """Each of them holds a lease and commits all the time. Whichever is killed, at any moment, its leases are free and
    its acknowledged commits are there."""
    body = """
lease = await store.lease(f'brokers/{sys.stdin.readline().strip()}', b'')
n = 0
while True:
    n += 1
    say(await store.commit([Put(lease.key.replace('brokers', 'n'), b'%d' % n)]))"""
    async with opened(path, shared=True, lease_timeout_ms=3_600_000, busy_timeout_ms=20_000) as store:
        processes = [await other_process(path, body, lease_timeout_ms=3_600_000) for _ in range(4)]
        told: list[int] = []
        for number, process in enumerate(processes):
            assert process.stdin is not None
            process.stdin.write(b"%d\n" % number)
            told.append(int(await heard(process)))
        for number, process in enumerate(processes):
            for _ in range(5):
                told[number] = int(await heard(process))
            process.kill()
            await process.wait()
            assert not (await store.lease(f"brokers/{number}", b"parent")).is_lost
        revision, entries = await store.snapshot()
        assert [f"brokers/{n}" for n in range(4)] + [f"n/{n}" for n in range(4)] == [entry.key for entry in entries]
        assert all(entries[4 + n].revision >= told[n] for n in range(4))
        commits = await take(store.follow(0), revision)
        assert list(range(1, revision + 1)) == [commit[0].revision for commit in commits]


class TestOwner:
    def test_this_process_lives(self) -> None:
        owner = this_process()
        assert not is_gone(owner)
        assert os.getpid() == owner.pid
        assert owner.token != this_process().token
        assert "" not in (owner.boot_id, owner.start_ticks, owner.pid_namespace)

    def test_another_process_lives_until_it_ends(self) -> None:
        script = (
            "import msgspec, sys; from ottla.metadata.lease_owner import this_process; "
            "print(msgspec.json.encode(this_process()).decode(), flush=True); sys.stdin.read()"
        )
        with subprocess.Popen(
            [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as child:
            assert child.stdout is not None
            owner = msgspec.json.decode(child.stdout.readline(), type=type(this_process()))
            assert (child.pid, False) == (owner.pid, is_gone(owner))
            child.kill()
            # Not reaped yet, so it still has an entry: it is dead all the same.
            os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
            assert is_gone(owner)
        assert is_gone(owner)

    def test_a_process_that_got_the_same_number_is_another(self) -> None:
        assert is_gone(msgspec.structs.replace(this_process(), start_ticks="1"))

    def test_nothing_survives_a_reboot(self) -> None:
        assert is_gone(msgspec.structs.replace(this_process(), boot_id="another"))

    def test_what_cannot_be_seen_may_live(self) -> None:
        elsewhere = msgspec.structs.replace(this_process(), pid=2**22 + 1, start_ticks="1")
        assert not is_gone(msgspec.structs.replace(elsewhere, pid_namespace="pid:[1]"))
        assert not is_gone(msgspec.structs.replace(elsewhere, boot_id=""))
        assert is_gone(elsewhere)
