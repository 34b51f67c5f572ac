"""A broker with several listeners: Kafka's own client uses the listener that it connects to, and no other."""

from pathlib import Path

import pytest

from ottla.testing.free_ports import free_port
from tests.compat.clients.broker_under_test import IS_KAFKA
from tests.compat.clients.catalogue import BY_NAME, JAVA
from tests.compat.clients.group_flavours import RANGE
from tests.compat.clients.group_members import Member, committed, leaving, wait_committed, wait_read
from tests.compat.clients.shapes import KEEP_ALL, small
from tests.compat.clients.transactional import read_isolated, transactional_producer
from tests.compat.ottla_broker import OttlaBroker

pytestmark = pytest.mark.skipif(IS_KAFKA, reason="the broker under test has one listener; this one is Ottla's")

LISTENERS = ("CLIENT", "BROKERS")
RECORDS = 10


@pytest.mark.parametrize("used", LISTENERS)
def test_java_uses_the_listener_that_it_connects_to(used: str, tmp_path: Path) -> None:
    """Nothing listens at the advertised address of the other listener: who asked for it would wait in vain."""
    ports = {name: free_port() for name in LISTENERS}
    advertised = {name: port if name == used else free_port() for name, port in ports.items()}
    overrides = {
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
        "advertised.listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in advertised.items()),
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in LISTENERS),
        "inter.broker.listener.name": "BROKERS",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    with OttlaBroker(tmp_path / "broker", overrides=overrides):
        client = BY_NAME[JAVA].start(f"127.0.0.1:{ports[used]}", tmp_path / "client.log")
        try:
            client.create_topic("t", configs=KEEP_ALL)
            client.send("t", small(RECORDS))
            assert list(range(RECORDS)) == [record.offset for record in client.read("t", RECORDS)]
            with leaving([]) as members:
                members.append(Member(client, RANGE[JAVA], "g", topics=["t"]))
                assert RECORDS == wait_read(members, RECORDS).total()
                wait_committed(client, "g", "t", [RECORDS])
            assert [(0, RECORDS)] == [row[:2] for row in committed(client, "g", "t", 1)]
            with transactional_producer(client, "x") as producer:
                producer.begin()
                producer.send("t", small(1))
                producer.commit()
            assert RECORDS + 1 == len(read_isolated(client, "t", RECORDS + 1, committed=True))
        finally:
            client.close()
