"""A broker from its start to its end: the address it advertises, failures, the order of stopping, the front door."""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from socket import gethostname

import pytest

import ottla
from ottla.broker.background_tasks import BackgroundTasks
from ottla.broker.broker import METADATA_FILE, Broker
from ottla.broker.broker_lifecycle import BrokerLifecycle
from ottla.broker.configs.configuration import BrokerConfig
from ottla.broker.http_endpoint import HttpEndpoint
from ottla.broker.parts import BrokerParts
from ottla.broker.peers import Peers
from ottla.broker.requests.pipeline import Pipeline
from ottla.broker.startup.metadata_recovery import StartStoppedError
from ottla.controller.active_controller import ActiveController
from ottla.coordination.groups.coordinator import GroupCoordinator
from ottla.coordination.transactions.coordinator import TransactionCoordinator
from ottla.env.helper_process import HelperProcess
from ottla.env.real_clock import RealClock
from ottla.env.real_disk import RealDisk
from ottla.env.world import real_world
from ottla.metadata.image import ClusterImage
from ottla.metadata.sqlite.sqlite_store import SqliteStore
from ottla.metadata.store import Put
from ottla.model.errors import CorruptError, MisuseError, StorageError
from ottla.model.invariants import InvariantViolation, violated
from ottla.replication.isr_proposals import IsrProposals
from ottla.replication.replica_fetcher import ReplicaFetchers
from ottla.replication.timers import Timers
from ottla.storage.log_store import LogStore
from ottla.testing.free_ports import free_port
from ottla.transport.listeners import Listeners
from tests.broker.inside import append
from tests.broker.running_broker import broker_on, make_topic, metadata_store, running
from tests.broker.sick_disk import SickDisk
from tests.unit.storage.rig import batch
from tests.waiting import settle, until


async def test_a_broker_on_every_address_advertises_the_machines_name(tmp_path: Path) -> None:
    async with running(tmp_path, listeners="PLAINTEXT://0.0.0.0:0") as broker:
        found = broker.advertised[0], broker.image.brokers[broker.id].host
    assert (gethostname(), gethostname()) == found


def is_open(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


async def test_the_port_is_open_only_when_what_is_led_is_as_safe_as_its_topics_ask(tmp_path: Path) -> None:
    """Or a client would be shown an end before what was committed: after a kill, what was not flushed is no more than
    written."""
    async with running(tmp_path / "first") as broker:
        await make_topic(broker, "t")
        append(broker.partitions.find("t", 0), batch(b"a", b"b"))
        # As a kill would leave it.
        shutil.copytree(tmp_path / "first" / "data", tmp_path / "data")
    for path in (tmp_path / "first" / "data").glob(f"{METADATA_FILE}*"):
        shutil.copy(path, tmp_path / "data")
    port, disk = free_port(), SickDisk()
    disk.hang("t-0")
    settings = {
        "log.dirs": str(tmp_path / "data"),
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "log.flush.interval.messages": "1",
    }
    broker = Broker(BrokerConfig.parse(settings=settings), world=replace(real_world(), disk=disk))
    starting = asyncio.create_task(broker.start())
    try:
        await until(lambda: disk.hung > 0 and broker.is_registered and broker.id in broker.image.brokers)
        # It has all it waits for but the disk; so it would be open within a few turns of the loop.
        for _ in range(200):
            assert (False, False) == (starting.done(), is_open(port))
            await asyncio.sleep(0)
        assert 0 == broker.partitions.find("t", 0).high_watermark
        disk.heal()
        await starting
        assert (True, 2) == (is_open(port), broker.partitions.find("t", 0).high_watermark)
    finally:
        disk.heal()
        await asyncio.gather(starting, return_exceptions=True)
        await broker.stop()
        disk.close()


ENDS: tuple[tuple[type, str], ...] = (
    (BrokerLifecycle, "hand_over"),
    (Listeners, "drain"),
    (GroupCoordinator, "close"),
    (TransactionCoordinator, "close"),
    (Listeners, "close"),
    (Pipeline, "close"),
    (BackgroundTasks, "close"),
    (ReplicaFetchers, "close"),
    (Peers, "close"),
    (HelperProcess, "close"),
    (LogStore, "close"),
    (ActiveController, "resign"),
    (BrokerLifecycle, "leave"),
    (SqliteStore, "close"),
    (Timers, "close"),
    (HttpEndpoint, "stop"),
    (RealDisk, "close"),
)
"""How the parts end, in order."""


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[tuple[type, str]]:
    """What has ended, in order."""
    found: list[tuple[type, str]] = []

    def note(kind: type, name: str) -> None:
        original = getattr(kind, name)

        def noted(self: object, *arguments: object) -> object:
            if (kind, name) not in found:
                found.append((kind, name))
            return original(self, *arguments)

        monkeypatch.setattr(kind, name, noted)

    for kind, name in ENDS:
        note(kind, name)
    return found


def config_in(folder: Path) -> BrokerConfig:
    return BrokerConfig.parse(settings={"log.dirs": str(folder / "data"), "listeners": "PLAINTEXT://127.0.0.1:0"})


async def test_a_broker_stops_in_the_reverse_order_of_its_start(tmp_path: Path, ended: list[tuple[type, str]]) -> None:
    """Leadership moves first, while requests are still served; the registration goes when the logs are closed."""
    broker = Broker(config_in(tmp_path), http=("127.0.0.1", 0))
    await broker.start()
    assert [] == ended
    await broker.stop()
    assert list(ENDS) == ended
    await broker.stop()
    assert list(ENDS) == ended, "a second stop does nothing"


async def test_a_start_that_fails_leaves_nothing_open(tmp_path: Path, ended: list[tuple[type, str]]) -> None:
    """Another broker has the data dir; what was opened before that was found is closed again."""
    async with Broker(config_in(tmp_path)) as first:
        store = SqliteStore(str(tmp_path / "own.db"), RealClock())
        second = Broker(config_in(tmp_path), http=("127.0.0.1", 0), store=store)
        with pytest.raises(StorageError):
            await second.start()
        assert [*ENDS[-7:]] == ended
        assert (True, False, False) == (first.is_ready, second.is_ready, second.is_registered)


async def test_an_end_that_fails_does_not_keep_the_others_from_ending(
    tmp_path: Path, ended: list[tuple[type, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(self: ReplicaFetchers) -> None:
        ended.append((ReplicaFetchers, "close"))
        raise StorageError("cannot be closed")

    monkeypatch.setattr(ReplicaFetchers, "close", fail)
    broker = Broker(config_in(tmp_path), http=("127.0.0.1", 0))
    await broker.start()
    with pytest.raises(StorageError, match="cannot be closed"):
        await broker.stop()
    assert list(ENDS) == ended
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


async def test_a_broken_invariant_while_stopping_leaves_no_clean_shutdown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Listeners) -> None:
        violated("two is three")

    broker = Broker(config_in(tmp_path))
    await broker.start()
    monkeypatch.setattr(Listeners, "drain", fail)
    with pytest.raises(InvariantViolation, match="two is three"):
        await broker.stop()
    assert not broker.is_registered
    assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()


async def test_a_broken_invariant_in_the_background_leaves_no_clean_shutdown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(self: IsrProposals) -> None:
        violated("two is three")

    monkeypatch.setattr(IsrProposals, "run", fail)
    async with Broker(config_in(tmp_path)) as broker:
        failure = await asyncio.wait_for(broker.wait_failure(), 60)
        assert (InvariantViolation, "two is three") == (type(failure), str(failure))
    assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()


async def test_after_a_broken_invariant_another_broker_may_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is written down as clean, but files and locks are released."""

    async def fail(_: IsrProposals) -> None:
        violated("two is three")

    with monkeypatch.context() as patched:
        patched.setattr(IsrProposals, "run", fail)
        async with Broker(config_in(tmp_path)) as broker:
            await asyncio.wait_for(broker.wait_failure(), 60)
    async with Broker(config_in(tmp_path)) as broker:
        assert broker.is_ready


async def test_a_broken_invariant_while_starting_leaves_nothing_open_and_no_clean_shutdown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: GroupCoordinator, image: ClusterImage) -> None:
        violated("two is three")

    with monkeypatch.context() as patched:
        patched.setattr(GroupCoordinator, "on_image", fail)
        with pytest.raises(InvariantViolation, match="two is three"):
            await Broker(config_in(tmp_path)).start()
    assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    async with Broker(config_in(tmp_path)) as broker:
        assert broker.is_ready


async def test_a_start_fails_with_a_background_task_that_it_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(self: BrokerParts, image: ClusterImage) -> None:
        raise CorruptError("the image cannot be applied")

    with monkeypatch.context() as patched:
        patched.setattr(BrokerParts, "apply_image", fail)
        with pytest.raises(CorruptError, match="the image cannot be applied"):
            await asyncio.wait_for(Broker(config_in(tmp_path)).start(), 60)
    async with Broker(config_in(tmp_path)) as broker:
        assert broker.is_ready


async def test_stops_at_the_same_time_end_each_part_once_and_in_order(
    tmp_path: Path, ended: list[tuple[type, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    drained = asyncio.Event()
    close = Listeners.close

    async def close_later(self: Listeners, timeout_seconds: float) -> None:
        await drained.wait()
        await close(self, timeout_seconds)

    monkeypatch.setattr(Listeners, "close", close_later)
    broker = Broker(config_in(tmp_path), http=("127.0.0.1", 0))
    await broker.start()
    stops = [asyncio.create_task(broker.stop()) for _ in range(3)]
    await settle()
    assert (ENDS[:4], [False] * 3) == (tuple(ended), [each.done() for each in stops])
    drained.set()
    await asyncio.gather(*stops)
    assert list(ENDS) == ended


@pytest.mark.parametrize("turns", [0, 1, 2, 5, 20, 100])
async def test_a_stop_waits_for_a_start_and_leaves_nothing_open(turns: int, tmp_path: Path) -> None:
    broker = Broker(config_in(tmp_path), http=("127.0.0.1", 0))
    starting = asyncio.create_task(broker.start())
    for _ in range(turns + 1):
        await asyncio.sleep(0)
    await broker.stop()
    with suppress(StartStoppedError):
        await starting
    assert (False, False) == (broker.is_ready, broker.is_registered)
    assert {asyncio.current_task()} == asyncio.all_tasks()
    async with Broker(config_in(tmp_path)) as again:
        assert again.is_ready


class UnreachableStore(SqliteStore):
    """Waits for ever, as for a ZooKeeper that is away."""

    async def open(self) -> None:
        await asyncio.Event().wait()


async def test_a_start_that_waits_for_the_metadata_store_can_be_stopped(
    tmp_path: Path, ended: list[tuple[type, str]]
) -> None:
    store = UnreachableStore(str(tmp_path / "own.db"), RealClock())
    broker = Broker(config_in(tmp_path), http=("127.0.0.1", 0), store=store)
    starting = asyncio.create_task(broker.start())
    await until(lambda: (tmp_path / "data").exists())
    await asyncio.wait_for(broker.stop(), 60)
    with pytest.raises(StartStoppedError, match="stopped while connecting to the metadata store"):
        await starting
    assert [*ENDS[-4:]] == ended
    assert {asyncio.current_task()} == asyncio.all_tasks()


async def test_a_broker_that_is_not_started_has_no_parts(tmp_path: Path) -> None:
    broker = Broker(config_in(tmp_path))
    assert (False, False, 0, 0) == (broker.is_ready, broker.is_registered, len(broker.partitions), broker.port)
    assert ClusterImage() == broker.image
    with pytest.raises(MisuseError, match="broker 0 is not started"):
        await broker.wait_revision(1)
    await broker.stop()


async def test_metadata_that_cannot_be_followed_is_a_failure_of_the_broker(tmp_path: Path) -> None:
    store = metadata_store(tmp_path)
    async with broker_on(tmp_path, store=store) as broker:
        await store.commit([Put("partitions/nowhere/0", b"{}")])
        failure = await asyncio.wait_for(broker.wait_failure(), 60)
        assert isinstance(failure, CorruptError)
        assert "partitions/nowhere/0" in str(failure)


def serve(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """`ottla serve` in a process of its own, in which `code` runs first."""
    script = f"{code}\nimport sys\nfrom ottla.__main__ import main\nsys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", script, "serve", "--data", str(folder / "data"), "--listen", "127.0.0.1:0"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


AFTER_READY = """
import asyncio
from ottla.broker.broker import Broker
from ottla.metadata.sqlite.sqlite_store import SqliteStore
from ottla.replication.timers import Timers
made = {{}}
def remember(kind):
    init = kind.__init__
    def remembering(self, *arguments, **options):
        init(self, *arguments, **options)
        made[kind] = self
    kind.__init__ = remembering
remember(SqliteStore)
remember(Timers)
before = Broker.wait_failure
async def wait_failure(self):
    {what}
    return await before(self)
Broker.wait_failure = wait_failure
"""


def test_serve_ends_with_status_1_when_its_broker_has_failed(tmp_path: Path) -> None:
    commit = "await made[SqliteStore].commit([Put('partitions/nowhere/0', b'{}')])"
    what = f"from ottla.metadata.store import Put; {commit}"
    done = serve(AFTER_READY.format(what=what), tmp_path)
    assert (1, True) == (done.returncode, done.stdout.startswith("ready 127.0.0.1:"))
    assert "partitions/nowhere/0" in done.stderr
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_a_broken_invariant_ends_the_process_at_once(tmp_path: Path) -> None:
    what = "from ottla.model.invariants import violated; made[Timers].after(0, lambda: violated('two is three'))"
    done = serve(AFTER_READY.format(what=what), tmp_path)
    assert 1 == done.returncode
    assert "two is three" in done.stderr
    assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_sigterm_is_a_clean_end(tmp_path: Path) -> None:
    what = f"import os; os.kill(os.getpid(), {int(signal.SIGTERM)})"
    done = serve(AFTER_READY.format(what=what), tmp_path)
    assert 0 == done.returncode
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    assert os.path.exists(tmp_path / "data" / "metadata.db")


def test_the_front_door_has_what_it_promises() -> None:
    clients = {"Producer", "Consumer", "Admin", "AsyncProducer", "AsyncConsumer", "AsyncAdmin"}
    assert clients | {"Broker", "BrokerConfig", "TopicPartition", "__version__"} <= set(ottla.__all__)
    assert [] == [name for name in ottla.__all__ if getattr(ottla, name) is None]
    assert sorted(ottla.__all__) == ottla.__all__
