"""Pages about queues: what is parked and when it is due; released, cancelled, rescheduled, against a real broker."""

import time
from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest

from ottla.client.admin.blocking_admin import Admin
from ottla.client.admin.values import NewTopic
from ottla.client.producer.blocking_producer import Producer
from ottla.client.values import ConsumerRecord
from ottla.console.cluster.jobs import JobState
from ottla.console.services import queues
from ottla.model.queue_names import DELAY_ID, DELAY_MS, HALF_ID, HALF_STATE, RETRY_REASON
from ottla.testing import InProcessBroker
from tests.broker.console.shown_form import ShownForm, check_asks_again
from tests.topic_contents import first_records
from tests.unit.console.visitor import Visitor
from tests.waiting import wait_until

HOUR = b"3600000"


@pytest.fixture
def topic(admin: Admin) -> str:
    """A topic with all kinds of queues."""
    name = f"t-{uuid4().hex[:8]}"
    configs = {
        "ottla.delay.enable": "true",
        "ottla.retry.enable": "true",
        "ottla.retry.backoff.ms": "3600000",
        "ottla.retry.backoff.max.ms": "3600000",
        "ottla.half.enable": "true",
    }
    admin.create_topics([NewTopic(name, 1, 1, topic_configs=configs)], wait_for_metadata=True)
    admin.create_topics([NewTopic(f"{name}.billing.retry", -1, -1)], wait_for_metadata=True)
    return name


@pytest.fixture
def producer(broker: InProcessBroker) -> Iterator[Producer]:
    with Producer(bootstrap_servers=broker.bootstrap) as made:
        yield made


def read(broker: InProcessBroker, topic: str, count: int) -> list[ConsumerRecord]:
    return first_records(broker.bootstrap, topic, count)


def parked(console: Visitor, topic: str, queue: str) -> list[tuple[int, bytes | None]]:
    """Offset and value of what is parked, those that are due next first."""
    access = console.access()
    page = console.run(lambda: queues.find_topic(access, topic))
    (view,) = (each for each in page.views if each.queue.name == queue)
    assert view.counts is not None
    assert view.counts.every.parked == len(view.rows)
    return [(row.parked.record.offset, row.parked.record.value) for row in view.rows]


def test_queues_are_listed_and_counted(console: Visitor, producer: Producer, topic: str) -> None:
    for at in range(3):
        headers = [(DELAY_MS, HOUR), (DELAY_ID, b"id-%d" % at)]
        producer.send(f"{topic}.delayed", b"<b>%d</b>" % at, b"k", headers).get(60)
    producer.send(f"{topic}.billing.retry", b"again", b"k", [(RETRY_REASON, b"no database")]).get(60)
    producer.send(f"{topic}.half", b"half", b"k", [(HALF_ID, b"h-1"), (HALF_STATE, b"prepare")]).get(60)
    listed = console.get("/queues").text
    assert f'href="/topics/{topic}/queues"' in listed
    assert "delay, retry, half" in listed
    page = console.get(f"/topics/{topic}/queues").text
    for words in ("within 1 h", "id-2", "attempt 1: no database", "h-1", f"dlq.{topic}", "ottla.retry.backoff.ms"):
        assert words in page, words
    assert (False, True) == ("<b>0</b>" in page, "&lt;b&gt;0&lt;/b&gt;" in page)
    assert [b"<b>%d</b>" % at for at in range(3)] == [value for _, value in parked(console, topic, f"{topic}.delayed")]


def test_topics_without_queues(console: Visitor, broker: InProcessBroker) -> None:
    broker.create_topic("plain")
    page = console.get("/topics/plain/queues").text
    assert "No queue is enabled." in page
    assert "ottla queues create plain --delay" in page
    assert 404 == console.get("/topics/no-such-topic/queues").status_code


def test_a_delayed_record_is_delivered_now(
    console: Visitor, broker: InProcessBroker, producer: Producer, topic: str
) -> None:
    queue = f"{topic}.delayed"
    _, second = (producer.send(queue, value, b"k", [(DELAY_MS, HOUR)]).get(60).offset for value in (b"1st", b"2nd"))
    address = f"/topics/{topic}/queues/{queue}/0/{second}"
    page = console.get(address).text
    assert f"ottla queues deliver-now {queue} --at 0:{second} --yes" in page
    assert 303 == console.post(address, {"action": "release"}).status_code
    assert [b"2nd"] == [each.value for each in read(broker, topic, 1)]
    gone = console.get(address)
    assert (404, True) == (gone.status_code, "was delivered or cancelled" in gone.text)


def test_a_record_is_cancelled_by_its_place(console: Visitor, producer: Producer, topic: str) -> None:
    queue = f"{topic}.billing.retry"
    for value in (b"first", b"second"):
        producer.send(queue, value, b"k").get(60)
    address = f"/topics/{topic}/queues/{queue}/0/0"
    check_asks_again(console.post(address, {"action": "cancel", "confirm": "0:1"}), "0:1")
    assert 303 == console.post(address, {"action": "cancel", "confirm": "0:0"}).status_code
    assert [b"second"] == [value for _, value in parked(console, topic, queue)]


def test_a_delayed_record_is_rescheduled(
    console: Visitor, broker: InProcessBroker, producer: Producer, topic: str
) -> None:
    queue = f"{topic}.delayed"
    headers = [(DELAY_MS, HOUR), (DELAY_ID, b"order-1"), ("trace", b"\xff")]
    producer.send(queue, b"later", b"k", headers, timestamp_ms=1_700_000_000_000).get(60)
    address = f"/topics/{topic}/queues/{queue}/0/0"
    before_ms = time.time_ns() // 1_000_000
    wrong = console.post(address, {"action": "reschedule", "due": "some day"})
    shown = ShownForm(wrong.text)
    assert (422, "some day", ["due"]) == (wrong.status_code, shown.values["due"], shown.marked)
    assert 303 == console.post(address, {"action": "reschedule", "due": "2h"}).status_code
    access = console.access()
    page = console.run(lambda: queues.find_topic(access, topic))
    (row,) = (row for view in page.views for row in view.rows)
    assert (b"later", b"k", b"order-1") == (row.parked.record.value, row.parked.record.key, row.id)
    assert before_ms + 7_200_000 <= row.due_ms <= time.time_ns() // 1_000_000 + 7_200_000
    again = f"/topics/{topic}/queues/{queue}/0/{row.parked.record.offset}"
    assert 303 == console.post(again, {"action": "reschedule", "due": "1s"}).status_code
    (delivered,) = read(broker, topic, 1)
    assert (b"later", b"k", 1_700_000_000_000) == (delivered.value, delivered.key, delivered.timestamp)
    assert ("trace", b"\xff") in delivered.headers
    assert [] == parked(console, topic, queue)


def test_all_records_of_a_queue_are_released_by_a_job(
    console: Visitor, broker: InProcessBroker, producer: Producer, topic: str
) -> None:
    queue = f"{topic}.billing.retry"
    for at in range(5):
        producer.send(queue, b"%d" % at, b"k%d" % at).get(60)
    assert (
        f"ottla queues retry-now {queue} --all --yes" in console.get(f"/topics/{topic}/queues/{queue}/release-all").text
    )
    form = console.form(f"/topics/{topic}/queues/{queue}/release-all")
    check_asks_again(console.post(f"/topics/{topic}/queues/{queue}/release-all", {**form, "confirm": "x"}), "x")
    producer.send(queue, b"parked later", b"k").get(60)
    started = console.post(f"/topics/{topic}/queues/{queue}/release-all", {**form, "confirm": queue})
    job = console.console.jobs.find(started.headers["location"].removeprefix("/jobs/"))
    assert 5 == len(read(broker, f"{topic}.billing.redelivery", 5))
    wait_until(lambda: job.state is not JobState.RUNNING)
    assert (JobState.DONE, f"5 records of {queue} due now") == (job.state, job.outcome)
    assert [b"parked later"] == [value for _, value in parked(console, topic, queue)]


def test_a_long_queue_is_counted_by_a_job(
    console: Visitor, producer: Producer, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = f"{topic}.delayed"
    for _ in range(3):
        producer.send(queue, b"v", b"k", [(DELAY_MS, HOUR)]).get(60)
    monkeypatch.setattr(queues, "SCANNED_MAX", 2)
    assert "too many to count while a page loads" in console.get(f"/topics/{topic}/queues").text
    started = console.post(f"/topics/{topic}/queues/{queue}/count")
    job = console.console.jobs.find(started.headers["location"].removeprefix("/jobs/"))
    wait_until(lambda: job.state is not JobState.RUNNING)
    assert (JobState.DONE, True) == (job.state, job.outcome.startswith("3 records parked, next due at "))


def test_what_cannot_be_done(console: Visitor, producer: Producer, topic: str) -> None:
    producer.send(f"{topic}.half", b"half", b"k", [(HALF_ID, b"h-1"), (HALF_STATE, b"prepare")]).get(60)
    producer.send(f"{topic}.billing.retry", b"again", b"k").get(60)
    half, retry = (f"/topics/{topic}/queues/{topic}.{each}/0/0" for each in ("half", "billing.retry"))
    assert "It cannot be delivered or cancelled here" in console.get(half).text
    for address, fields, words in (
        (half, {"action": "release"}, "waits for the decision"),
        (retry, {"action": "reschedule", "due": "1h"}, "only delayed records"),
        (retry, {"action": "reschedule", "due": "soon"}, "is not a valid time"),
        (retry, {"action": "forget"}, "is not one of"),
    ):
        answer = console.post(address, fields)
        assert (True, True) == (400 <= answer.status_code < 500, words in answer.text), words


def test_a_read_only_console_changes_nothing(
    visit: Callable[..., Visitor], broker: InProcessBroker, producer: Producer, topic: str
) -> None:
    producer.send(f"{topic}.delayed", b"v", b"k", [(DELAY_MS, HOUR)]).get(60)
    reader = visit(broker.bootstrap, read_only=True)
    address = f"/topics/{topic}/queues/{topic}.delayed/0/0"
    assert "Deliver all now" not in reader.get(f"/topics/{topic}/queues").text
    for fields in (
        {"action": "release"},
        {"action": "cancel", "confirm": "0:0"},
        {"action": "reschedule", "due": "1h"},
    ):
        assert 403 == reader.post(address, fields).status_code
    assert [(0, b"v")] == parked(reader, topic, f"{topic}.delayed")
