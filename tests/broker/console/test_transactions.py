"""The page about transactions: open ones by age, those that hang, and how both are aborted, against a real broker."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.client.admin.async_admin import OffsetSpec
from ottla.client.admin.blocking_admin import Admin
from ottla.client.producer.blocking_producer import Producer
from ottla.console.services import transactions
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.records.builder import BatchBuilder
from ottla.testing import InProcessBroker
from tests.broker.console.shown_form import check_asks_again
from tests.unit.console.visitor import Visitor
from tests.waiting import wait_until


@pytest.fixture
def opened(broker: InProcessBroker, topic: str) -> Iterator[Producer]:
    """A producer with an open transaction of one record; its id is that of the topic."""
    with Producer(bootstrap_servers=broker.bootstrap, transactional_id=f"id-{topic}") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"open").get(60)
        yield producer


def readable(admin: Admin, topic: str) -> int:
    partition = TopicPartition(topic, 0)
    return admin.list_offsets({partition: OffsetSpec.LATEST}, read_committed=True)[partition].offset


def test_open_transactions_are_shown_by_age(console: Visitor, opened: Producer, topic: str) -> None:
    page = console.get("/transactions").text
    assert f"id-{topic}" in page
    assert f"{topic}:0" in page
    assert f'href="/transactions/terminate?id=id-{topic}"' in page
    access = console.access()
    found = console.run(lambda: transactions.find_open(access))
    ages = [row.age_ms or 0 for row in found.rows]
    assert ages == sorted(ages, reverse=True)
    hanging = console.get("/transactions?search=1&timeout=15m").text
    assert "No hanging transactions" in hanging
    assert 422 == console.get("/transactions/hanging?timeout=long").status_code


def test_an_open_transaction_is_terminated(console: Visitor, admin: Admin, opened: Producer, topic: str) -> None:
    id = f"id-{topic}"
    page = console.get(f"/transactions/terminate?id={id}").text
    assert f"ottla transactions terminate {id} --yes" in page
    assert 0 == readable(admin, topic)
    check_asks_again(console.post("/transactions/terminate", {"id": id, "confirm": "x"}), "x")
    assert 303 == console.post("/transactions/terminate", {"id": id, "confirm": id}).status_code
    wait_until(lambda: readable(admin, topic) == 2)
    with pytest.raises(OttlaError):
        opened.commit_transaction()
    assert "nothing to abort" in console.get(f"/transactions/terminate?id={id}").text
    again = console.post("/transactions/terminate", {"id": id, "confirm": id})
    assert (True, True) == (400 <= again.status_code < 500, "has no open transaction" in again.text)
    assert 404 == console.get("/transactions/terminate?id=no-such-id").status_code


def test_a_marker_aborts_in_one_partition(console: Visitor, admin: Admin, opened: Producer, topic: str) -> None:
    page = console.get(f"/transactions/abort?topic={topic}&partition=0&start_offset=0").text
    assert f"ottla transactions abort --topic {topic} --partition 0 --start-offset 0 --yes" in page
    assert "1 offset waits behind it" in page
    producer_id = page.split('name="producer_id" value="')[1].split('"')[0]
    fields = {"topic": topic, "partition": "0", "start_offset": "0", "confirm": f"{topic}-0"}
    other = console.post("/transactions/abort", {**fields, "producer_id": "4711"})
    assert (True, 0) == (400 <= other.status_code < 500, readable(admin, topic))
    check_asks_again(console.post("/transactions/abort", {**fields, "producer_id": "1", "confirm": topic}), topic)
    assert 303 == console.post("/transactions/abort", {**fields, "producer_id": producer_id}).status_code
    assert 2 == readable(admin, topic)
    gone = console.get(f"/transactions/abort?topic={topic}&partition=0&start_offset=0")
    assert (True, True) == (400 <= gone.status_code < 500, "no open transaction" in gone.text)
    assert 422 == console.get("/transactions/abort?topic=x").status_code


def test_a_hanging_transaction_is_found_and_aborted(visit: Callable[..., Visitor], tmp_path: Path) -> None:
    """Our broker lets no transaction hang, so one is written into the log behind its back."""
    with InProcessBroker(tmp_path / "broker") as broker:
        broker.create_topic("hangs")
        with Producer(bootstrap_servers=broker.bootstrap) as producer:
            producer.send("hangs", b"before").get(60)
        broker.stop()
        segment = max((tmp_path / "broker").rglob("hangs-0/*.log"))
        builder = BatchBuilder(
            producer_id=4711, producer_epoch=0, base_sequence=0, transactional=True, base_offset=1, leader_epoch=0
        )
        builder.append(time.time_ns() // 1_000_000 - 5000, None, b"lost")
        with segment.open("ab") as log:
            log.write(builder.build())
        broker.start()
        console = visit(broker.bootstrap)
        page = console.get("/transactions/hanging?timeout=1s").text
        assert "1 hanging transaction" in page
        assert 'href="/transactions/abort?topic=hangs&amp;partition=0&amp;start_offset=1"' in page
        fields = {"topic": "hangs", "partition": "0", "start_offset": "1", "producer_id": "4711", "confirm": "hangs-0"}
        assert 303 == console.post("/transactions/abort", fields).status_code
        assert "No hanging transactions" in console.get("/transactions/hanging?timeout=1s").text


def test_a_read_only_console_aborts_nothing(
    visit: Callable[..., Visitor], broker: InProcessBroker, admin: Admin, opened: Producer, topic: str
) -> None:
    reader = visit(broker.bootstrap, read_only=True)
    assert "/transactions/terminate?id=" not in reader.get("/transactions").text
    id = f"id-{topic}"
    assert 403 == reader.post("/transactions/terminate", {"id": id, "confirm": id}).status_code
    assert 0 == readable(admin, topic)
