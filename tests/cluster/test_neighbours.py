"""A process that dies on the same machine: its session ends at once, long before its timeout."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from kazoo.client import KazooClient

from ottla.metadata.lease_owner import this_process
from ottla.metadata.store import ConflictError, Entry
from tests.cluster.zookeeper import ZooKeeperEnsemble
from tests.cluster.zookeeper_world import ZooKeeperWorld
from tests.unit.metadata.store_rig import heard, other_process, take
from tests.unit.metadata.store_worlds import clients
from tests.waiting import wait_until

TIMEOUT_MS = 600_000
HOLD = "lease = await store.lease('brokers/1', b'child')\nsay('held')\nawait asyncio.sleep(1000)"


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperEnsemble]:
    """A server that would wait for ten minutes."""
    folder = tmp_path_factory.mktemp("patient")
    with ZooKeeperEnsemble(folder, session_timeout_max_ms=TIMEOUT_MS) as ensemble:
        yield ensemble


async def holder(world: ZooKeeperWorld, folder: Path) -> asyncio.subprocess.Process:
    importing = "__import__('ottla.metadata.zookeeper.zookeeper_store', fromlist=['_'])."
    made = f"ZooKeeperStore({world.servers + world.path!r}, RealClock(), session_timeout_ms={TIMEOUT_MS})"
    process = await other_process(folder, HOLD, store=importing + made)
    assert "held" == await heard(process)
    return process


def wait_until_gone(client: KazooClient, path: str) -> None:
    wait_until(lambda: client.exists(path) is None)


async def test_who_lives_beside_it_sees_it_die(patient: ZooKeeperEnsemble, tmp_path: Path) -> None:
    world = ZooKeeperWorld(patient.servers, session_timeout_ms=TIMEOUT_MS)
    async with clients(world, 1) as (store,):
        process = await holder(world, tmp_path)
        revision, entries = await store.snapshot()
        assert [("brokers/1", b"child")] == [(each.key, each.value) for each in entries]
        process.kill()
        ((change,),) = await take(store.follow(revision), 1)
        assert ("brokers/1", None) == (change.key, change.value)
        await process.wait()


async def test_its_next_life_need_not_wait(patient: ZooKeeperEnsemble, tmp_path: Path) -> None:
    world = ZooKeeperWorld(patient.servers, session_timeout_ms=TIMEOUT_MS)
    first = await holder(world, tmp_path)
    first.kill()
    await first.wait()
    async with clients(world, 1) as (store,):
        while True:
            revision, _ = await store.snapshot()
            try:
                lease = await store.lease("brokers/1", b"again")
                break
            except ConflictError:
                await take(store.follow(revision), 1)
        _, entries = await store.snapshot()
        assert [Entry("brokers/1", b"again", lease.revision)] == entries


@pytest.mark.parametrize(
    "changed", [{"boot_id": "of another machine"}, {"pid_namespace": "pid:[1]"}, {"start_ticks": ""}]
)
async def test_who_cannot_be_seen_has_to_expire(patient: ZooKeeperEnsemble, changed: dict[str, str]) -> None:
    """Its number is that of nobody here, and still it may live somewhere else."""
    world = ZooKeeperWorld(patient.servers, session_timeout_ms=TIMEOUT_MS)
    elsewhere = {**msgspec.to_builtins(this_process()), "pid": 2**22 + 1, **changed}
    client = KazooClient(patient.servers)
    client.start()
    try:
        async with clients(world, 1):
            path = f"{world.path}/sessions"
            data = msgspec.json.encode({"host": "elsewhere", "process": elsewhere})
            await asyncio.to_thread(client.create, f"{path}/elsewhere", data)
            # Who is seen to be gone comes after it in the list, so both have been looked at when that one is gone.
            gone = {**elsewhere, **msgspec.to_builtins(this_process()), "pid": 2**22 + 1}
            data = msgspec.json.encode({"host": "here", "process": gone})
            await asyncio.to_thread(client.create, f"{path}/gone", data)
            await asyncio.to_thread(wait_until_gone, client, f"{path}/gone")
            assert "elsewhere" in await asyncio.to_thread(client.get_children, path)
    finally:
        client.stop()
        client.close()


def test_a_process_that_is_hidden_is_not_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where `/proc` does not show the processes of other users."""
    from ottla.metadata import lease_owner

    owner = this_process()
    parent = msgspec.structs.replace(owner, pid=os.getppid(), start_ticks="1")
    assert lease_owner.is_gone(parent)
    monkeypatch.setattr(lease_owner, "Path", lambda path: Path("/nonexistent") if "stat" in path else Path(path))
    assert not lease_owner.is_gone(parent)
    assert lease_owner.is_gone(msgspec.structs.replace(owner, pid=2**22 + 1))
