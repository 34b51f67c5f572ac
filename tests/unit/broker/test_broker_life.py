"""A broker's life: where it says it is, what happens when its work in the background fails, and its front door."""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from socket import gethostname

import ottla
from ottla.broker.broker import METADATA_FILE, Broker
from ottla.broker.configuration import BrokerConfig
from ottla.env.world import real_world
from ottla.metadata.store import Put
from ottla.model.errors import CorruptError
from tests.unit.broker.running_broker import append, make_topic, running
from tests.unit.broker.sick_disk import SickDisk
from tests.unit.storage.rig import batch
from tests.unit.transport.rig import until


def test_a_broker_on_every_address_advertises_the_machines_name(tmp_path: Path) -> None:
    async def scenario() -> tuple[str, str]:
        async with running(tmp_path, listeners="PLAINTEXT://0.0.0.0:0") as broker:
            return broker.advertised[0], broker.image.brokers[broker.id].host

    assert (gethostname(), gethostname()) == asyncio.run(scenario())


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def is_open(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


def test_the_port_is_open_only_when_what_is_led_is_as_safe_as_its_topics_ask(tmp_path: Path) -> None:
    """Or a client would be shown an end before what was committed: after a kill, what was not flushed is no more than
    written."""

    async def scenario() -> None:
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
            await until(lambda: disk.hung > 0 and broker.is_registered and broker._membership.is_seen)
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

    asyncio.run(scenario())


def test_metadata_that_cannot_be_followed_is_a_failure_of_the_broker(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as broker:
            await broker.metadata_store.commit([Put("partitions/nowhere/0", b"{}")])
            failure = await asyncio.wait_for(broker.wait_failure(), 20)
            assert isinstance(failure, CorruptError)
            assert "partitions/nowhere/0" in str(failure)

    asyncio.run(scenario())


def serve(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """`ottla serve` in a process of its own, in which `code` runs first."""
    script = f"{code}\nimport sys\nfrom ottla.__main__ import main\nsys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", script, "serve", "--data", str(folder / "data"), "--listen", "127.0.0.1:0"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


AFTER_READY = """
import asyncio
from ottla.broker.broker import Broker
before = Broker.wait_failure
async def wait_failure(self):
    {what}
    return await before(self)
Broker.wait_failure = wait_failure
"""


def test_serve_ends_with_status_1_when_its_broker_has_failed(tmp_path: Path) -> None:
    what = (
        "from ottla.metadata.store import Put; await self.metadata_store.commit([Put('partitions/nowhere/0', b'{}')])"
    )
    done = serve(AFTER_READY.format(what=what), tmp_path)
    assert (1, True) == (done.returncode, done.stdout.startswith("ready 127.0.0.1:"))
    assert "partitions/nowhere/0" in done.stderr
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_a_broken_invariant_ends_the_process_at_once(tmp_path: Path) -> None:
    what = "from ottla.model.invariants import violated; self.timers.after(0, lambda: violated('two is three'))"
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
