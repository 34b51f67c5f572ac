"""Clusters for tests: what a fault of one broker does to the others and to clients, and that nothing is left behind."""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.client.admin.blocking_admin import Admin
from ottla.client.consumer.blocking_consumer import Consumer
from ottla.client.producer.blocking_producer import Producer
from ottla.env.ports import Socket
from ottla.env.real_network import RealNetwork
from ottla.model.errors import MisuseError
from ottla.testing import BrokerCluster, InProcessBroker, ProcessBroker
from ottla.testing.killable_network import KillableNetwork
from tests.leftovers import Leftovers
from tests.waiting import PATIENCE_SECONDS

KINDS = [InProcessBroker, ProcessBroker]
SHORT_SESSIONS = {"broker.session.timeout.ms": "3000"}
"""For tests that pause brokers, and go on when one that was not paused is taken for dead."""
KEYS = 7


@pytest.fixture(params=KINDS)
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerCluster]:
    with BrokerCluster(tmp_path / "cluster", SHORT_SESSIONS, kind=request.param) as made:
        yield made


@pytest.fixture
def near(tmp_path: Path) -> Iterator[BrokerCluster]:
    with BrokerCluster(tmp_path / "cluster") as made:
        yield made


def values_by_key(bootstrap: str, topic: str, count: int) -> dict[bytes, list[int]]:
    found: dict[bytes, list[int]] = defaultdict(list)
    with Consumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id="readers",
        auto_offset_reset="earliest",
        consumer_timeout_ms=30_000,
    ) as consumer:
        for _, record in zip(range(count), consumer, strict=False):
            found[record.key].append(int(record.value))
    return found


def contents(cluster: BrokerCluster, topic: str, partition: int = 0) -> list[bytes]:
    """The bytes of each replica's log."""
    return [
        b"".join(path.read_bytes() for path in sorted((each.data / f"{topic}-{partition}").glob("*.log")))
        for each in cluster.brokers
    ]


def test_a_broker_comes_and_another_goes(cluster: BrokerCluster) -> None:
    first, new = cluster.brokers[0], cluster.grow()
    assert [0, 1, 2, 3] == [each.id for each in cluster.brokers]
    cluster.retire(first)
    assert [1, 2, 3] == [each.id for each in cluster.brokers]
    assert (False, True) == (first.is_running, new.is_running)
    cluster.create_topic("t", 3)
    cluster.wait_in_sync()
    assert {1, 2, 3} == {cluster.leader_of("t", partition).id for partition in range(3)}
    followers = [each.id for each in cluster.followers_of("t")]
    assert sorted({1, 2, 3} - {cluster.leader_of("t").id}) == sorted(followers)


def test_faults_one_after_the_other(cluster: BrokerCluster) -> None:
    addresses = cluster.bootstrap
    cluster.create_topic("t", 2)
    with Producer(
        bootstrap_servers=addresses,
        acks="all",
        linger_ms=0,
        request_timeout_ms=2000,
        socket_connection_setup_timeout_ms=1000,
    ) as producer:
        producer.send("t", b"1", partition=0).get(PATIENCE_SECONDS)
        killed = cluster.leader_of("t")
        killed.kill()
        # The two others go on.
        producer.send("t", b"2", partition=0).get(PATIENCE_SECONDS)
        assert (False, False) == (killed.is_running, killed is cluster.leader_of("t"))
        killed.start()
        cluster.wait_in_sync()
        paused = cluster.leader_of("t")
        paused.pause()
        producer.send("t", b"3", partition=0).get(PATIENCE_SECONDS)
        assert (True, True) == (paused.is_paused, paused is not cluster.leader_of("t"))
        paused.resume()
        cluster.wait_brokers()
        cluster.wait_in_sync("t")
        stopped = cluster.leader_of("t")
        stopped.stop()
        producer.send("t", b"4", partition=0).get(PATIENCE_SECONDS)
        stopped.start()
        cluster.wait_in_sync("t")
    with Consumer("t", bootstrap_servers=addresses, auto_offset_reset="earliest") as consumer:
        assert [b"1", b"2", b"3", b"4"] == [record.value for _, record in zip(range(4), consumer, strict=False)]
    assert addresses == cluster.bootstrap


def kill_the_leader(cluster: BrokerCluster) -> None:
    broker = cluster.leader_of("t")
    broker.kill()
    cluster.leader_of("t")
    broker.start()


def kill_a_follower(cluster: BrokerCluster) -> None:
    broker = cluster.followers_of("t")[0]
    broker.kill()
    broker.start()


def restart_the_leader(cluster: BrokerCluster) -> None:
    cluster.leader_of("t").restart()


def hang_the_leader(cluster: BrokerCluster) -> None:
    broker = cluster.leader_of("t")
    broker.pause()
    assert cluster.leader_of("t") is not broker
    broker.resume()


FAULTS: list[Callable[[BrokerCluster], None]] = [
    kill_the_leader,
    kill_a_follower,
    restart_the_leader,
    kill_a_follower,
    hang_the_leader,
    kill_the_leader,
]


def test_order_per_key_and_nothing_lost_while_leaders_change(near: BrokerCluster) -> None:
    """A producer writes on through every fault; in the end each key has every number once, in order."""
    near.create_topic("t", 3)
    is_over = threading.Event()
    sent: dict[bytes, int] = defaultdict(int)

    def produce() -> None:
        with Producer(
            bootstrap_servers=near.bootstrap, acks="all", enable_idempotence=True, request_timeout_ms=1500
        ) as producer:
            while not is_over.is_set():
                deliveries = []
                for number in range(KEYS * 20):
                    key = b"key %d" % (number % KEYS)
                    deliveries.append(producer.send("t", b"%d" % sent[key], key=key))
                    sent[key] += 1
                for delivery in deliveries:
                    delivery.get(PATIENCE_SECONDS)

    failures: list[BaseException] = []

    def run() -> None:
        try:
            produce()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        for fault in FAULTS:
            before = sum(sent.values())
            fault(near)
            near.wait_in_sync()
            # Something was written meanwhile, or will be before the next fault.
            while sum(sent.values()) == before and not failures:
                thread.join(0.01)
    finally:
        is_over.set()
        thread.join()
    assert [] == failures
    found = values_by_key(near.bootstrap, "t", sum(sent.values()))
    assert {key: list(range(count)) for key, count in sent.items()} == found
    near.wait_in_sync()
    for partition in range(3):
        replicas = contents(near, "t", partition)
        assert [replicas[0]] * 3 == replicas


def test_the_dead_are_not_counted_on(near: BrokerCluster) -> None:
    """With two of three dead, `acks=all` is not to be had, and what was acknowledged is there when one comes back."""
    near.create_topic("t")
    with Producer(bootstrap_servers=near.bootstrap, acks="all", linger_ms=0, request_timeout_ms=1000) as producer:
        producer.send("t", b"1").get(PATIENCE_SECONDS)
        first, second = near.followers_of("t")
        first.kill()
        second.kill()
        near.wait_brokers()
        delivery = producer.send("t", b"2")
        # All have seen that they are gone, so a record that is not written now waits for them.
        with pytest.raises(TimeoutError, match=r"waited 2 s for t to be in sync; the brokers say: .*t-0: leader"):
            near.wait_in_sync("t", timeout=2)
        assert not delivery.is_done
        second.start()
        delivery.get(PATIENCE_SECONDS)
        first.start()
        near.wait_in_sync()


async def test_the_network_of_the_dead_says_nothing_more() -> None:
    """What a killed follower's remains do must not reach its leader, since its files are set back."""
    accepted: list[Socket] = []
    listener = await RealNetwork().listen("127.0.0.1", 0, accepted.append)
    network = KillableNetwork()
    opened = await network.connect("127.0.0.1", listener.port)
    network.die()
    with pytest.raises(OSError, match="Bad file descriptor"):
        opened.send([b"a word"])
    with pytest.raises(OSError, match="the broker is killed"):
        await network.connect("127.0.0.1", listener.port)
    listener.close()
    for each in accepted:
        each.close()


def test_rolling_restart(near: BrokerCluster) -> None:
    near.create_topic("t", 2)
    near.restart()
    with Admin(bootstrap_servers=near.bootstrap) as admin:
        assert ["t"] == admin.list_topics()


def test_wrong_use_is_told(tmp_path: Path) -> None:
    with pytest.raises(MisuseError, match="at least one"):
        BrokerCluster(tmp_path, brokers=0)
    with pytest.raises(MisuseError, match="the cluster is not running"):
        BrokerCluster(tmp_path).wait_in_sync()
    with BrokerCluster(tmp_path, brokers=1) as cluster, pytest.raises(MisuseError, match="is already running"):
        cluster.brokers[0].start()
    with BrokerCluster(tmp_path, brokers=1) as cluster:
        cluster.brokers[0].kill()
        with pytest.raises(MisuseError, match="no broker of the cluster answers"):
            cluster.wait_in_sync()


def test_clusters_leave_nothing_behind(tmp_path: Path) -> None:
    with BrokerCluster(tmp_path / "first"):
        # What a first one loads stays.
        pass
    before = Leftovers()
    for turn in range(6):
        kind = ProcessBroker if turn == 0 else InProcessBroker
        with BrokerCluster(tmp_path / str(turn), brokers=2, kind=kind) as cluster:
            cluster.create_topic("t")
            if turn % 2 == 0:
                cluster.brokers[0].pause()
                cluster.brokers[1].kill()
    before.check()


def test_a_cluster_that_cannot_start_leaves_nothing(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with pytest.raises(Exception, match=r"log\.retentoin\.ms"):
        BrokerCluster(tmp_path, {"log.retentoin.ms": "5"}).start()
    assert set() == set(threading.enumerate()) - before
