"""Brokers as processes whose metadata is deleted, or restored from an older copy, while everything is stopped."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest

from ottla.client.admin.blocking_admin import Admin
from ottla.client.admin.values import NewTopic
from ottla.client.consumer.blocking_consumer import Consumer
from ottla.client.producer.blocking_producer import Producer
from ottla.model.ids import TopicPartition
from tests.cluster.test_serve import serve
from tests.cluster.zookeeper import SESSION_TIMEOUT_MAX_MS, ZooKeeperEnsemble
from tests.waiting import PATIENCE_SECONDS

SECONDS: Final = PATIENCE_SECONDS
OPTIONS: Final = ("--set", "broker.session.timeout.ms=20000", "--set", "min.insync.replicas=2")


@contextmanager
def running(commands: Sequence[tuple[Path, Sequence[str]]]) -> Iterator[str]:
    """Brokers that serve, by the folders and options of their commands; they are ended in order."""
    with ExitStack() as ended:
        brokers = [ended.enter_context(serve(folder, *OPTIONS, *options)) for folder, options in commands]
        yield ",".join(broker.wait_ready() for broker in brokers)
        assert [0] * len(brokers) == [broker.stop() for broker in brokers]


def refused(folder: Path, *options: str) -> str:
    """What a command says that does not start."""
    with serve(folder, *OPTIONS, *options) as broker:
        assert 1 == broker.wait()
        return broker.log


def make(addresses: str, topic: str, count: int) -> None:
    """A topic with three replicas and so many committed records."""
    with Admin(bootstrap_servers=addresses) as admin:
        admin.create_topics([NewTopic(topic, 1, 3)])
    send(addresses, topic, count)


def send(addresses: str, topic: str, count: int) -> None:
    with Producer(bootstrap_servers=addresses, acks="all") as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number).get(SECONDS)


def records(addresses: str, topic: str, count: int) -> list[bytes | None]:
    """So many of a topic's records, from the first on."""
    with Consumer(bootstrap_servers=addresses, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        found: list[bytes | None] = []
        while len(found) < count:
            found += [each.value for some in consumer.poll(timeout_ms=1000 * SECONDS).values() for each in some]
        return found


def replicas(addresses: str, topic: str) -> tuple[int, ...]:
    with Admin(bootstrap_servers=addresses) as admin:
        return tuple(sorted(admin.describe_topics([topic])[topic].partitions[0].replicas))


def names(folder: Path, pattern: str) -> list[Path]:
    return sorted(folder.glob(pattern))


class TestSqlite:
    THREE = ("--brokers", "3")

    def test_a_deleted_file(self, tmp_path: Path) -> None:
        data = tmp_path / "data"
        with running([(data, self.THREE)]) as addresses:
            make(addresses, "t", 3)
        for path in names(data, "metadata.db*"):
            path.unlink()
        with running([(data, self.THREE)]) as addresses:
            assert (0, 1, 2) == replicas(addresses, "t")
            assert [b"0", b"1", b"2"] == records(addresses, "t", 3)
            send(addresses, "t", 1)
        assert [] == names(data, "**/*-stray")

    def test_an_older_file(self, tmp_path: Path) -> None:
        data, backup = tmp_path / "data", tmp_path / "backup"
        with running([(data, self.THREE)]) as addresses:
            make(addresses, "t", 1)
        backup.mkdir()
        for path in names(data, "metadata.db*"):
            shutil.copy(path, backup)
        with running([(data, self.THREE)]) as addresses:
            make(addresses, "u", 2)
            send(addresses, "t", 1)
        for path in names(data, "metadata.db*"):
            path.unlink()
        for path in backup.iterdir():
            shutil.copy(path, data)
        assert "start them with --accept-older-metadata" in refused(data, *self.THREE)
        assert 3 == len(names(data, "**/u-0"))
        with running([(data, (*self.THREE, "--accept-older-metadata"))]) as addresses:
            assert [b"0", b"0"] == records(addresses, "t", 2)
        kept = names(data, "**/u-0.*-stray")
        assert 3 == len(kept)
        assert all((each / f"{0:020}.log").stat().st_size > 0 for each in kept)


class TestZooKeeper:
    @pytest.fixture
    def ensemble(self, tmp_path: Path) -> Iterator[ZooKeeperEnsemble]:
        with ZooKeeperEnsemble(tmp_path / "zookeeper", session_timeout_max_ms=SESSION_TIMEOUT_MAX_MS) as ensemble:
            yield ensemble

    def commands(self, folder: Path, ensemble: ZooKeeperEnsemble, *more: str) -> list[tuple[Path, list[str]]]:
        """Two brokers of one machine, and one of another."""
        metadata = ["--metadata", f"zookeeper://{ensemble.servers}/ottla", *more]
        return [(folder / "a", ["--brokers", "2", *metadata]), (folder / "b", ["--node-id", "2", *metadata])]

    def test_an_empty_ensemble(self, ensemble: ZooKeeperEnsemble, tmp_path: Path) -> None:
        with running(self.commands(tmp_path, ensemble)) as addresses:
            make(addresses, "t", 3)
        ensemble.stop()
        shutil.rmtree(tmp_path / "zookeeper" / "1" / "data")
        ensemble.start()
        with running(self.commands(tmp_path, ensemble)) as addresses:
            assert (0, 1, 2) == replicas(addresses, "t")
            assert [b"0", b"1", b"2"] == records(addresses, "t", 3)
        assert [] == names(tmp_path, "[ab]/**/*-stray")

    def test_an_older_snapshot(self, ensemble: ZooKeeperEnsemble, tmp_path: Path) -> None:
        data, backup = tmp_path / "zookeeper" / "1" / "data", tmp_path / "backup"
        with running(self.commands(tmp_path, ensemble)) as addresses:
            make(addresses, "t", 1)
        ensemble.stop()
        shutil.copytree(data, backup)
        ensemble.start()
        with running(self.commands(tmp_path, ensemble)) as addresses:
            make(addresses, "u", 2)
            send(addresses, "t", 1)
        ensemble.stop()
        shutil.rmtree(data)
        shutil.copytree(backup, data)
        ensemble.start()
        for folder, options in self.commands(tmp_path, ensemble):
            assert "start them with --accept-older-metadata" in refused(folder, *options)
        with running(self.commands(tmp_path, ensemble, "--accept-older-metadata")) as addresses:
            assert [b"0", b"0"] == records(addresses, "t", 2)
        assert 3 == len(names(tmp_path, "[ab]/**/u-0.*-stray"))
