"""The ZooKeeper metadata store when servers die or hang, connections break anywhere, and the log is cut short."""

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NotEmptyError

from ottla.broker.broker import Broker
from ottla.broker.configs.configuration import BrokerConfig
from ottla.env.real_clock import RealClock
from ottla.metadata.store import (
    Change,
    Check,
    CommitUnknownError,
    ConflictError,
    Entry,
    MetadataStore,
    Put,
    RevisionGoneError,
    StoreUnavailableError,
)
from ottla.metadata.zookeeper.zookeeper_store import ZooKeeperStore
from ottla.model.errors import MisuseError, OlderMetadataError, StorageError
from tests.cluster.cutting_proxy import Direction, cutting_proxy
from tests.cluster.zookeeper import SESSION_TIMEOUT_MAX_MS, ZooKeeperEnsemble
from tests.cluster.zookeeper_world import ZooKeeperWorld
from tests.unit.metadata.store_rig import LEAD, check_paused_leader, other_process, take
from tests.unit.metadata.store_worlds import clients
from tests.waiting import until


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[ZooKeeperEnsemble]:
    """One server that may be killed."""
    with ZooKeeperEnsemble(tmp_path) as ensemble:
        yield ensemble


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperEnsemble]:
    """Three servers; a test starts again those that it kills."""
    folder = tmp_path_factory.mktemp("three")
    with ZooKeeperEnsemble(folder, 3, session_timeout_max_ms=SESSION_TIMEOUT_MAX_MS) as ensemble:
        yield ensemble


async def count_up(store: MetadataStore, key: str, stop: asyncio.Event) -> list[int]:
    """Counts a number up by compare-and-set, alone, until told to stop; answers the revisions of its steps."""
    revisions: list[int] = []
    at = 0
    while not stop.is_set():
        at = await store.commit([Put(key, b"%d" % (len(revisions) + 1), at)])
        revisions.append(at)
    return revisions


async def check_steps(store: MetadataStore, steps: dict[str, list[int]]) -> None:
    """Each step was made once, at the revision that its writer was told, and nothing else was."""
    made = {at: (key, b"%d" % number) for key, revisions in steps.items() for number, at in enumerate(revisions, 1)}
    assert list(range(1, len(made) + 1)) == sorted(made)
    assert [[Change(at, *made[at])] for at in sorted(made)] == await take(store.follow(0), len(made))


@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize("first", range(1, 6))
async def test_a_connection_cut_at_any_byte(zookeeper: ZooKeeperEnsemble, direction: Direction, first: int) -> None:
    """Whatever byte is the last to pass, a commit is made once and reported as made. A conflict would be a lie: nobody
    else writes."""
    world = ZooKeeperWorld(zookeeper.servers, changes_kept=10_000, session_timeout_ms=8_000)
    async with cutting_proxy(zookeeper.port(1)) as proxy:
        store = await world.open_client(servers=proxy.server)
        expected = 0
        for position in range(first, 450 if direction is Direction.REQUEST else 200, 5):
            proxy.cut_after(direction, position)
            assert expected + 1 == await store.commit([Put("n", b"%d" % position, expected)])
            expected += 1
            proxy.disarm()
        assert (expected, [Entry("n", b"%d" % position, expected)]) == await store.snapshot()
        assert [[at] for at in range(1, expected + 1)] == [
            [change.revision for change in changes] for changes in await take(store.follow(0), expected)
        ]
        assert proxy.cuts > 20
        await store.close()


async def test_a_cut_connection_keeps_the_session_and_its_leases(zookeeper: ZooKeeperEnsemble) -> None:
    world = ZooKeeperWorld(zookeeper.servers)
    async with cutting_proxy(zookeeper.port(1)) as proxy, clients(world, 1) as (other,):
        store = await world.open_client(servers=proxy.server)
        lease = await store.lease("brokers/0", b"")
        followed = asyncio.create_task(take(store.follow(1), 2))
        proxy.cut()
        await other.commit([Put("a", b"1")])
        proxy.heal()
        await other.commit([Put("a", b"2")])
        assert [[Change(2, "a", b"1")], [Change(3, "a", b"2")]] == await followed
        assert 4 == await store.commit([Check("brokers/0", lease.revision), Put("a", b"3")])
        assert not lease.is_lost
        await store.close()


async def test_who_is_cut_off_loses_its_lease_before_another_gets_it(zookeeper: ZooKeeperEnsemble) -> None:
    world = ZooKeeperWorld(zookeeper.servers)
    async with cutting_proxy(zookeeper.port(1)) as proxy, clients(world, 1) as (other,):
        store = await world.open_client(servers=proxy.server, session_timeout_ms=1_500)
        lease = await store.lease("controller", b"old")
        proxy.cut()
        # Whoever hears of it first, the lease is lost by its owner's clock before another broker can hear of it.
        assert [Change(2, "controller", None)] == await other.follow(1).__anext__()
        assert lease.is_lost
        await lease.wait_lost()
        taken = await other.lease("controller", b"new")
        stale = asyncio.create_task(store.commit([Check("controller", lease.revision), Put("p", b"stale")]))
        proxy.heal()
        with pytest.raises(ConflictError, match="controller"):
            await stale
        again = await store.lease("brokers/0", b"back")
        assert (3, 4, False) == (taken.revision, again.revision, again.is_lost)
        await store.close()


async def cut_off(store: ZooKeeperStore) -> None:
    """Returns when the store knows that it has no connection: what it is asked before that may yet be sent."""
    await until(lambda: (session := store._sessions.present) is None or not session.is_connected)


async def test_a_server_that_dies_and_comes_back(alone: ZooKeeperEnsemble) -> None:
    """Calls wait, or say that there is no answer; what was asked for meanwhile is not done behind anybody's back."""
    world = ZooKeeperWorld(alone.servers, session_timeout_ms=1_500, request_timeout_ms=90_000)
    async with clients(world, 1) as (patient,):
        hasty = await world.open_client()
        # Only now: to open a store may take longer.
        hasty._request_seconds = hasty._commits._request_seconds = 0.3
        lease = await patient.lease("brokers/0", b"old")
        followed = asyncio.create_task(take(patient.follow(1), 2))
        alone.kill(1)
        await cut_off(hasty)
        with pytest.raises(StoreUnavailableError, match=r"did not answer within 0\.3 s"):
            await hasty.snapshot()
        with pytest.raises(StoreUnavailableError, match="majority") as caught:
            await hasty.commit([Put("a", b"hasty")])
        waiting = asyncio.create_task(patient.commit([Put("a", b"patient")]))
        await lease.wait_lost()
        alone.start()
        revision = await waiting
        changes = [change for commit in await followed for change in commit]
        assert {Change(revision, "a", b"patient"), Change(5 - revision, "brokers/0", None)} == set(changes)
        assert not isinstance(caught.value, CommitUnknownError)
        again = await patient.lease("brokers/0", b"new")
        assert (4, False, True) == (again.revision, again.is_lost, lease.is_lost)
        await hasty.close()


@pytest.mark.parametrize("is_empty", [False, True])
async def test_data_that_is_replaced_by_older_data(alone: ZooKeeperEnsemble, tmp_path: Path, *, is_empty: bool) -> None:
    """Servers refuse a session that has seen more than they have, and do not say why."""
    world = ZooKeeperWorld(alone.servers, session_timeout_ms=2_000)
    data = tmp_path / "1" / "data"
    backup = tmp_path / "backup"
    async with clients(world, 1) as (store,):
        await store.commit([Put("a", b"")])
        alone.kill(1)
        if is_empty:
            backup.mkdir()
        else:
            shutil.copytree(data, backup)
        alone.start()
        for name in "bcd":
            await store.commit([Put(name, b"")])
        alone.kill(1)
        shutil.rmtree(data)
        shutil.copytree(backup, data)
        alone.start()
        expected = rf"went back from revision 4 to {0 if is_empty else 1}: its data was replaced"
        with pytest.raises(OlderMetadataError, match=expected):
            await take(store.follow(4), 1)


async def test_a_broker_stops_if_its_metadata_is_replaced_by_older_data(
    alone: ZooKeeperEnsemble, tmp_path: Path
) -> None:
    data, backup = tmp_path / "1" / "data", tmp_path / "backup"
    settings = {"log.dirs": str(tmp_path / "broker"), "listeners": "PLAINTEXT://127.0.0.1:0"}
    store = ZooKeeperStore(alone.servers, RealClock(), session_timeout_ms=2_000)
    alone.kill(1)
    shutil.copytree(data, backup)
    alone.start()
    async with Broker(BrokerConfig.parse(settings=settings), store=store) as broker:
        assert [] == broker.health.warnings()
        alone.kill(1)
        shutil.rmtree(data)
        shutil.copytree(backup, data)
        await until(broker.health.warnings)
        (warning,) = broker.health.warnings()
        assert warning.startswith("the broker is not registered and leads no replicated partitions: ")
        alone.start()
        failure = await broker.wait_failure()
        assert isinstance(failure, OlderMetadataError)
        assert "went back from revision" in str(failure)


async def test_a_server_that_hangs(alone: ZooKeeperEnsemble) -> None:
    """Its connections stay open, so only the clock tells."""
    world = ZooKeeperWorld(alone.servers, session_timeout_ms=2_000)
    async with clients(world, 1) as (store,):
        lease = await store.lease("controller", b"")
        alone.pause(1)
        committing = asyncio.create_task(store.commit([Put("a", b"")]))
        await lease.wait_lost()
        alone.resume(1)
        await committing
        assert not (await store.lease("controller", b"")).is_lost
        assert ["a", "controller"] == [entry.key for entry in (await store.snapshot())[1]]


async def test_an_ensemble_may_grant_less_time_than_was_asked_for(tmp_path: Path) -> None:
    with ZooKeeperEnsemble(tmp_path, session_timeout_max_ms=1_200) as ensemble:
        world = ZooKeeperWorld(ensemble.servers, session_timeout_ms=60_000)
        async with clients(world, 1) as (store,):
            lease = await store.lease("controller", b"")
            ensemble.pause(1)
            async with asyncio.timeout(20):
                await lease.wait_lost()
            ensemble.resume(1)


async def test_the_leader_of_three_is_killed(three: ZooKeeperEnsemble) -> None:
    """Three writers go on over it: nothing that was reported is missing, nothing is there twice, leases live on."""
    world = ZooKeeperWorld(three.servers, changes_kept=100_000, session_timeout_ms=8_000, request_timeout_ms=90_000)
    async with clients(world, 3) as stores:
        stop = asyncio.Event()
        writing = [asyncio.create_task(count_up(store, f"n/{place}", stop)) for place, store in enumerate(stores)]
        follower = stores[0].follow(0)
        for _ in range(2):
            await take(follower, 60)
            leader = three.leader()
            await asyncio.to_thread(three.kill, leader)
            await take(follower, 60)
            await asyncio.to_thread(three.start, [leader])
        stop.set()
        steps = await asyncio.gather(*writing)
        for store in stores:
            await check_steps(store, {f"n/{place}": revisions for place, revisions in enumerate(steps)})


async def test_two_of_three_are_not_enough_to_lose(three: ZooKeeperEnsemble) -> None:
    world = ZooKeeperWorld(three.servers, session_timeout_ms=8_000, request_timeout_ms=90_000)
    async with clients(world, 2) as (first, second):
        await first.commit([Put("a", b"1")])
        for number in (2, 3):
            await asyncio.to_thread(three.kill, number)
        committing = asyncio.create_task(first.commit([Put("a", b"2", 1)]))
        done, _ = await asyncio.wait([committing], timeout=1)
        assert set() == done
        await asyncio.to_thread(three.start, [2, 3])
        assert 2 == await committing
        assert (2, [Entry("a", b"2", 2)]) == await second.snapshot()


def nodes_below(world: ZooKeeperWorld, name: str) -> list[str]:
    client = KazooClient(world.servers)
    client.start()
    try:
        return sorted(client.get_children(f"{world.path}/{name}"))
    finally:
        client.stop()
        client.close()


async def let_it_save(store: ZooKeeperStore) -> None:
    saving = store._commits._saving
    if saving is not None:
        await saving


async def test_the_log_is_cut_short_and_newcomers_start_from_a_snapshot(zookeeper: ZooKeeperEnsemble) -> None:
    world = ZooKeeperWorld(zookeeper.servers, changes_kept=7, snapshot_every=10)
    async with clients(world, 2) as (first, second):
        lease = await first.lease("brokers/0", b"")
        for number in range(2, 65):
            await (first, second)[number % 2].commit([Put("n", b"%d" % number), Put(f"k/{number}", bytes(1000))])
            await let_it_save(first)
            await let_it_save(second)
        large = bytes(range(256)) * 6_000
        await first.commit([Put("large", large)])
        newcomer = await world.open_client()
        assert (65, 66) == ((await newcomer.snapshot())[0], len((await newcomer.snapshot())[1]))
        assert await first.snapshot() == await newcomer.snapshot()
        with pytest.raises(RevisionGoneError, match="take a snapshot"):
            await take(newcomer.follow(10), 1)
        assert [[60], [61]] == [
            sorted({change.revision for change in commit}) for commit in await take(newcomer.follow(59), 2)
        ]
        with pytest.raises(ConflictError, match="is held by"):
            await newcomer.lease("brokers/0", b"")
        await lease.release()
        assert 66 == (await newcomer.snapshot())[0]
        await newcomer.close()
        assert len(nodes_below(world, "log")) < 25
        for _ in range(67, 100):
            await first.commit([Put("large", b"")])
            await let_it_save(first)
        # Those of the snapshot before may be there until the next.
        assert len(nodes_below(world, "parts")) <= 2


async def test_a_client_that_missed_too_much_says_so(zookeeper: ZooKeeperEnsemble) -> None:
    world = ZooKeeperWorld(zookeeper.servers, changes_kept=3, snapshot_every=5)
    async with cutting_proxy(zookeeper.port(1)) as proxy, clients(world, 1) as (other,):
        store = await world.open_client(servers=proxy.server)
        lease = await store.lease("brokers/0", b"")
        follower = asyncio.create_task(take(store.follow(1), 1))
        await asyncio.sleep(0)
        proxy.cut()
        for number in range(40):
            await other.commit([Put("n", b"%d" % number)])
            await let_it_save(other)
        proxy.heal()
        with pytest.raises(RevisionGoneError, match="take a snapshot"):
            await follower
        assert await other.snapshot() == await store.snapshot()
        assert not lease.is_lost
        assert 42 == await store.commit([Check("brokers/0", lease.revision), Put("n", b"back")])
        assert [[Change(42, "n", b"back")]] == await take(store.follow(41), 1)
        await store.close()


async def test_data_that_was_replaced_is_not_believed(zookeeper: ZooKeeperEnsemble) -> None:
    world = ZooKeeperWorld(zookeeper.servers)
    async with clients(world, 1) as (store,):
        lease = await store.lease("controller", b"")
        await store.commit([Put("a", b"")])

        def replace() -> None:
            client = KazooClient(world.servers)
            client.start()
            while client.exists(world.path):
                # The store may begin another session meanwhile, below what is being deleted.
                with suppress(NotEmptyError):
                    client.delete(world.path, recursive=True)
            client.stop()
            client.close()

        await asyncio.to_thread(replace)
        await lease.wait_lost()
        with pytest.raises(StorageError, match=world.path):
            await store.snapshot()
        with pytest.raises(StorageError, match=world.path):
            await store.commit([Put("a", b"")])


@pytest.mark.parametrize("servers", ["", "/path", "a:1,,b:2", "a:1//b", "a:1/b/"])
def test_addresses_that_are_none(servers: str) -> None:
    with pytest.raises(MisuseError, match="is not a ZooKeeper address"):
        ZooKeeperStore(servers, RealClock())


async def test_nobody_there() -> None:
    store = ZooKeeperStore("127.0.0.1:1/path", RealClock(), request_timeout_ms=300)
    with pytest.raises(StoreUnavailableError, match=r"127\.0\.0\.1:1/path"):
        await store.open()
    with pytest.raises(MisuseError, match="not open"):
        await store.snapshot()
    await store.close()


async def test_a_process_that_was_stopped_does_not_act_on_what_it_lost(
    zookeeper: ZooKeeperEnsemble, tmp_path: Path
) -> None:
    world = ZooKeeperWorld(zookeeper.servers, session_timeout_ms=2_000)
    made = f"""ZooKeeperStore({world.servers + world.path!r}, RealClock(), session_timeout_ms=2_000)"""
    importing = "__import__('ottla.metadata.zookeeper.zookeeper_store', fromlist=['_'])."
    async with clients(world, 1) as (store,):
        await check_paused_leader(await other_process(tmp_path, LEAD, store=importing + made), store)
