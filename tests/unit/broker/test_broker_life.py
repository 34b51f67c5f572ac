"""A broker's life: where it says it is, what happens when its work in the background fails, and its front door."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from socket import gethostname

import ottla
from ottla.metadata.store import Put
from ottla.model.errors import CorruptError
from tests.unit.broker.running_broker import running


def test_a_broker_on_every_address_advertises_the_machines_name(tmp_path: Path) -> None:
    async def scenario() -> tuple[str, str]:
        async with running(tmp_path, listeners="PLAINTEXT://0.0.0.0:0") as broker:
            return broker.advertised[0], broker.image.brokers[broker.id].host

    assert (gethostname(), gethostname()) == asyncio.run(scenario())


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
