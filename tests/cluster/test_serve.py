"""`ottla serve --metadata zookeeper://…`: brokers that are started apart from each other are one cluster."""

from contextlib import ExitStack
from pathlib import Path

from ottla.client.admin.blocking_admin import Admin
from ottla.client.admin.values import NewTopic
from ottla.client.producer.blocking_producer import Producer
from tests.cluster.zookeeper import ZooKeeperEnsemble
from tests.processes import OTTLA, Program
from tests.waiting import PATIENCE_SECONDS, wait_until

SECONDS = PATIENCE_SECONDS


def serve(folder: Path, *options: str) -> Program:
    return Program([*OTTLA, "serve", "--data", folder, "--listen", "127.0.0.1:0", *options], Path(f"{folder}-serve"))


def test_brokers_of_two_commands_are_one_cluster(zookeeper: ZooKeeperEnsemble, tmp_path: Path) -> None:
    metadata = ("--metadata", f"zookeeper://{zookeeper.servers}/serve/two", "--set", "broker.session.timeout.ms=20000")
    with ExitStack() as running:
        several = running.enter_context(serve(tmp_path / "a", "--brokers", "2", *metadata))
        first = several.wait_ready()
        alone = running.enter_context(serve(tmp_path / "b", "--node-id", "2", *metadata))
        addresses = f"{first},{alone.wait_ready()}"
        with Admin(bootstrap_servers=addresses) as admin:
            admin.create_topics([NewTopic("t", 1, 3)])
            # Any of the brokers is asked: one may hear of the last one a little later.
            wait_until(lambda: {0, 1, 2} == {broker.id for broker in admin.describe_cluster().brokers})
        with Producer(bootstrap_servers=addresses, acks="all") as producer:
            producer.send("t", b"1").get(SECONDS)
            assert 0 == alone.stop()
            producer.send("t", b"2").get(SECONDS)
        assert 0 == several.stop()
    assert not (tmp_path / "a" / "metadata.db").exists()
