"""Brokers for tests: what a fault does to clients and files, and that nothing is left behind."""

import gc
import os
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ottla.broker.broker import Broker
from ottla.broker.configs.configuration import BrokerConfig
from ottla.client.admin.blocking_admin import Admin
from ottla.client.producer.async_producer import AsyncProducer
from ottla.client.producer.blocking_producer import Producer
from ottla.model.errors import MisuseError, RetriableError
from ottla.testing import BrokerDidNotStartError, BrokerHandle, InProcessBroker, ProcessBroker
from ottla.testing.sparse_copy import copy_folder
from tests.leftovers import Leftovers
from tests.topic_contents import first_records

KINDS = [InProcessBroker, ProcessBroker]


@pytest.fixture(params=KINDS)
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerHandle]:
    made: BrokerHandle = request.param(tmp_path, {"num.partitions": "3"})
    with made:
        yield made


def values(bootstrap: str, topic: str, count: int) -> list[bytes]:
    return [record.value for record in first_records(bootstrap, topic, count)]


def test_faults_one_after_the_other(made: BrokerHandle) -> None:
    address = made.bootstrap
    made.create_topic("t", configs={"retention.ms": "-1"})
    with Producer(bootstrap_servers=address, linger_ms=0) as producer:
        producer.send("t", b"1").get(30)
        # Killed in the middle of work: clients come back by themselves, and what was acknowledged is there.
        made.kill()
        assert not made.is_running
        delivery = producer.send("t", b"2")
        made.start()
        delivery.get(60)
        made.restart()
        producer.send("t", b"3").get(60)
        made.pause()
        delivery = producer.send("t", b"4")
        with (
            Admin(bootstrap_servers=address, socket_connection_setup_timeout_ms=200, request_timeout_ms=200) as admin,
            pytest.raises(RetriableError, match="accepts connections, but does not answer"),
        ):
            admin.list_topics()
        assert (False, True) == (delivery.is_done, made.is_running)
        made.resume()
        delivery.get(60)
    assert [b"1", b"2", b"3", b"4"] == values(address, "t", 4)
    assert address == made.bootstrap


def test_a_kill_is_no_clean_end(made: BrokerHandle) -> None:
    """The mark of a clean shutdown, which spares the next start its checks, is there after a stop only."""
    mark = made.data / ".kafka_cleanshutdown"
    made.create_topic("t")
    made.kill()
    assert not mark.exists()
    made.start()
    made.stop()
    assert mark.exists()
    # Twice is harmless.
    made.stop()
    made.kill()


def test_a_paused_broker_can_be_killed(made: BrokerHandle) -> None:
    made.create_topic("t")
    made.pause()
    made.kill()
    made.start()
    with Admin(bootstrap_servers=made.bootstrap) as admin:
        assert ["t"] == admin.list_topics()


def test_a_kill_cuts_connections(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path) as broker, socket.create_connection(("127.0.0.1", broker.port)) as client:
        client.sendall(b"\0\0")
        broker.kill()
        client.settimeout(30)
        with suppress(ConnectionResetError):
            assert b"" == client.recv(1)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", broker.port))


def test_wrong_use_is_told(made: BrokerHandle) -> None:
    with pytest.raises(MisuseError, match="is already running"):
        made.start()
    made.stop()
    with pytest.raises(MisuseError, match="is not running, so it cannot be paused"):
        made.pause()


def test_only_the_one_in_process_refuses_while_it_is_paused(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path) as broker:
        broker.pause()
        with pytest.raises(MisuseError, match="is paused, so it cannot be asked for a topic; `resume` it first"):
            broker.create_topic("t")
        with pytest.raises(MisuseError, match="is paused, so it cannot be stopped"):
            broker.stop()
    with pytest.raises(MisuseError, match="the broker is not running"):
        assert broker.broker
    with pytest.raises(MisuseError, match="was never started"):
        assert InProcessBroker(tmp_path).bootstrap


@pytest.mark.parametrize("kind", KINDS)
def test_a_broker_that_cannot_start_says_why(kind: type[BrokerHandle], tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with pytest.raises(BrokerDidNotStartError, match=r"(?s)did not start: .*log\.retentoin\.ms"):
        kind(tmp_path, {"log.retentoin.ms": "5"}).start()
    assert set() == set(threading.enumerate()) - before


@pytest.mark.slow
def test_a_hundred_in_a_row_leave_nothing_behind() -> None:
    with tempfile.TemporaryDirectory() as parent:
        with tempfile.TemporaryDirectory(dir=parent) as folder, InProcessBroker(Path(folder)):
            # What a first one loads stays.
            pass
        # What earlier tests left to the garbage collector, or to threads that are about to end, may go in between.
        gc.collect()
        before = Leftovers()
        for at in range(100):
            with tempfile.TemporaryDirectory(dir=parent) as folder, InProcessBroker(Path(folder)) as broker:
                if at % 25 == 0:
                    broker.create_topic("t")
                    broker.kill()
                    broker.start()
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", broker.port))
        before.check()
        assert [] == os.listdir(parent)


def test_a_process_leaves_nothing_behind(tmp_path: Path) -> None:
    gc.collect()
    before = Leftovers()
    with ProcessBroker(tmp_path) as broker:
        pid = broker.pid
        assert Path(f"/proc/{pid}").exists()
        broker.pause()
    assert not Path(f"/proc/{pid}").exists()
    before.check()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", broker.port))


def test_copies_keep_bytes_sizes_and_holes(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "inner").mkdir(parents=True)
    (source / "empty").touch()
    (source / "small").write_bytes(b"abc")
    with (source / "inner" / "sparse").open("wb") as file:
        file.write(b"head")
        file.seek(5 << 20)
        file.write(b"middle")
        file.truncate(10 << 20)
    copy_folder(source, tmp_path / "target")
    for name in ("empty", "small", "inner/sparse"):
        assert (source / name).read_bytes() == (tmp_path / "target" / name).read_bytes()
    assert (tmp_path / "target" / "inner" / "sparse").stat().st_blocks * 512 < 1 << 20


async def test_a_broker_within_a_program_ends_its_threads(tmp_path: Path) -> None:
    """One that nobody gave a world has made its own, and clears it away."""
    before = set(threading.enumerate())
    settings = {
        "log.dirs": str(tmp_path),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.flush.interval.messages": "1",
    }
    async with Broker(BrokerConfig.parse(settings=settings)) as broker:
        async with AsyncProducer(bootstrap_servers=f"127.0.0.1:{broker.port}") as producer:
            await producer.send_and_wait("t", b"x")
        assert any(thread.name.startswith("ottla-disk") for thread in set(threading.enumerate()) - before)
    left = {thread for thread in set(threading.enumerate()) - before if thread.name.startswith("ottla")}
    assert set() == left
