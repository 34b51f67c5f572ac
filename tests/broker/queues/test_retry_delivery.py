"""Retry over a real broker: our clients hand records back and reject them, and librdkafka does so by plain produce."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from ottla.client.admin.blocking_admin import Admin
from ottla.client.admin.values import NewTopic
from ottla.client.consumer.async_consumer import AsyncConsumer
from ottla.client.consumer.blocking_consumer import Consumer
from ottla.client.consumer.errors import RecordGoneError, RetryNotEnabledError
from ottla.client.options import OptionError
from ottla.client.parallel.async_parallel_consumer import RejectRecordError
from ottla.client.parallel.blocking_parallel_consumer import ParallelConsumer
from ottla.client.producer.blocking_producer import Producer
from ottla.client.values import ConsumerRecord
from ottla.model.dead_letters import DeadLetter, Origin, read_dead_letter
from ottla.model.errors import MisuseError
from ottla.model.ids import TopicPartition
from ottla.testing import InProcessBroker
from tests.topic_contents import first_records
from tests.waiting import PATIENCE_SECONDS

FAST = {
    "ottla.retry.enable": "true",
    "ottla.retry.backoff.ms": "50",
    "ottla.retry.backoff.jitter": "0",
    "ottla.retry.max.attempts": "2",
}
OPTIONS: dict[str, Any] = {"auto_offset_reset": "earliest", "consumer_timeout_ms": PATIENCE_SECONDS * 1000}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    with InProcessBroker(tmp_path_factory.mktemp("retry")) as broker:
        yield broker


def create(running: InProcessBroker, **configs: str) -> str:
    """A topic with two partitions and retry."""
    name = f"t-{uuid4().hex[:8]}"
    given = FAST | {key.replace("_", "."): value for key, value in configs.items()}
    with Admin(bootstrap_servers=running.bootstrap) as admin:
        admin.create_topics([NewTopic(name, 2, 1, topic_configs=given)])
    return name


def fill(running: InProcessBroker, topic: str, *values: bytes, partition: int = 1) -> None:
    with Producer(bootstrap_servers=running.bootstrap) as producer:
        for value in values:
            producer.send(topic, value, b"k", [("trace", b"t")], partition, timestamp_ms=1_700_000_000_000)


def consumer_of(running: InProcessBroker, topic: str, group: str = "g", **more: Any) -> Consumer:
    given = OPTIONS | {"bootstrap_servers": running.bootstrap, "group_id": group, "enable_retry": True} | more
    return Consumer(topic, **given)


def read(running: InProcessBroker, topic: str, count: int) -> list[ConsumerRecord]:
    return first_records(running.bootstrap, topic, count)


def letters(running: InProcessBroker, topic: str, count: int) -> list[tuple[bytes, DeadLetter | None]]:
    return [(each.value, read_dead_letter(each.headers)) for each in read(running, topic, count)]


def end_of(running: InProcessBroker, topic: str) -> int:
    with Consumer(bootstrap_servers=running.bootstrap) as consumer:
        return sum(consumer.end_offsets([TopicPartition(topic, index) for index in range(2)]).values())


def test_a_record_returns_to_its_group_until_it_is_dead(running: InProcessBroker) -> None:
    topic = create(running)
    fill(running, topic, b"bad", b"good")
    seen: list[tuple[str, bytes, int]] = []
    with consumer_of(running, topic, "a.b") as consumer:
        for record in consumer:
            now_ms = time.time_ns() // 1_000_000
            headers = dict(record.headers)
            assert (1, b"k", 1_700_000_000_000, b"t") == (
                record.partition, record.key, record.timestamp, headers["trace"],
            )  # fmt: skip
            assert now_ms >= int(headers.get("ottla.due-ms") or 0), "early"
            seen.append((record.topic, record.value, int(headers.get("ottla.retry.attempt") or 0)))
            if record.value == b"bad":
                consumer.retry(record, ValueError("no stock"))
                consumer.commit()
            if len(seen) == 4:
                break
    back = f"{topic}.a.b.redelivery"
    assert [(topic, b"bad", 0), (topic, b"good", 0), (back, b"bad", 1), (back, b"bad", 2)] == seen
    origin = Origin(topic=topic, partition=1, offset=0)
    letter = DeadLetter(origin=origin, reason="no stock", exception="builtins.ValueError", group="a.b", attempts=3)
    assert [(b"bad", letter)] == letters(running, f"dlq.{topic}", 1)
    (dead,) = read(running, f"dlq.{topic}", 1)
    own = [name for name, _ in dead.headers if not name.startswith("__dlq")]
    assert ({"trace", "ottla.origin"}, b"k", 1_700_000_000_000) == (set(own), dead.key, dead.timestamp)
    assert 2 == end_of(running, back)


def test_other_groups_do_not_see_what_a_group_hands_back(running: InProcessBroker) -> None:
    topic = create(running)
    fill(running, topic, b"1")
    with consumer_of(running, topic, "one") as one, consumer_of(running, topic, "two") as two:
        first = next(two)
        one.retry(next(one), "later")
        assert (b"1", f"{topic}.one.redelivery") == (first.value, next(one).topic)
        assert {} == two.poll(1000)


def test_a_consumer_that_starts_at_the_end_still_reads_what_was_handed_back(running: InProcessBroker) -> None:
    """A record that was handed back before the group's position on the redelivery topic was known is not skipped."""
    topic = create(running)
    fill(running, topic, b"1")
    with consumer_of(running, topic, enable_retry=False) as consumer:
        consumer.retry(next(consumer), "later")
        consumer.commit()
    assert b"1" == read(running, f"{topic}.g.redelivery", 1)[0].value
    with consumer_of(running, topic, auto_offset_reset="latest") as consumer:
        assert f"{topic}.g.redelivery" == next(consumer).topic


def test_rejected_records_are_dead_letters_with_their_first_origin(running: InProcessBroker) -> None:
    topic = create(running)
    fill(running, topic, b"0", b"1")
    with consumer_of(running, topic) as consumer:
        for record in consumer:
            if record.value == b"0":
                consumer.reject(record, "never")
            elif record.topic == topic:
                consumer.retry(record, "once more")
            else:
                consumer.reject(record, KeyError("x"))
                break
    expected = [
        (b"0", DeadLetter(origin=Origin(topic=topic, partition=1, offset=0), reason="never", group="g", attempts=1)),
        (
            b"1",
            DeadLetter(
                origin=Origin(topic=topic, partition=1, offset=1),
                reason="'x'",
                exception="builtins.KeyError",
                group="g",
                attempts=2,
            ),
        ),
    ]
    assert expected == letters(running, f"dlq.{topic}", 2)


def test_configs_name_the_dead_letter_topic_and_springs_headers(running: InProcessBroker) -> None:
    dead = f"dead-{uuid4().hex[:8]}"
    topic = create(
        running,
        errors_deadletterqueue_topic_name=dead,
        ottla_deadletter_headers="spring",
        ottla_retry_max_attempts="1",
    )
    fill(running, topic, b"0", b"1")
    with consumer_of(running, topic) as consumer:
        consumer.reject(next(consumer), "never")
        consumer.retry(next(consumer), "twice")
        consumer.retry(next(consumer), "twice")
    found = read(running, dead, 2)
    assert {b"0": b"never", b"1": b"twice"} == {
        each.value: dict(each.headers)["kafka_dlt-exception-message"] for each in found
    }
    assert {(topic.encode(), b"\0\0\0\1")} == {
        (dict(each.headers)["kafka_dlt-original-topic"], dict(each.headers)["kafka_dlt-original-partition"])
        for each in found
    }


def test_deserialized_records_are_handed_back_as_they_were(running: InProcessBroker) -> None:
    topic = create(running)
    fill(running, topic, b'{"a": 1}')
    with consumer_of(running, topic, value_deserializer=json.loads) as consumer:
        consumer.retry(next(consumer), "later")
        again = next(consumer)
        assert ({"a": 1}, f"{topic}.g.redelivery") == (again.value, again.topic)
    assert b'{"a": 1}' == read(running, f"{topic}.g.redelivery", 1)[0].value


def test_a_deserialized_record_that_was_deleted_cannot_be_handed_back(running: InProcessBroker) -> None:
    topic = create(running)
    fill(running, topic, b"1")
    with consumer_of(running, topic, value_deserializer=int) as consumer:
        record = next(consumer)
        with Admin(bootstrap_servers=running.bootstrap) as admin:
            admin.delete_records({TopicPartition(topic, 1): 1})
        with pytest.raises(RecordGoneError, match=f"record 0 of {topic}-1 was deleted"):
            consumer.retry(record, "later")


def test_topics_without_retry_refuse(running: InProcessBroker) -> None:
    topic = create(running, ottla_retry_enable="false")
    fill(running, topic, b"1")
    with consumer_of(running, topic) as consumer:
        record = next(consumer)
        with pytest.raises(RetryNotEnabledError, match=r"set its config ottla\.retry\.enable=true"):
            consumer.retry(record, "later")
        names = consumer.topics()
        assert {topic} == {name for name in names if topic in name}, "nothing was created by mistake"
    with (
        Consumer(topic, bootstrap_servers=running.bootstrap, **OPTIONS) as alone,
        pytest.raises(MisuseError, match="retry needs a group_id"),
    ):
        alone.retry(record, "later")
    with pytest.raises(OptionError, match="enable_retry needs a group_id"):
        Consumer(topic, enable_retry=True)
    with pytest.raises(OptionError, match="group_id 'a b' is part of topic names"):
        Consumer(topic, group_id="a b", enable_retry=True)


def test_a_topic_that_is_created_after_the_subscription(running: InProcessBroker) -> None:
    topic = f"t-{uuid4().hex[:8]}"
    with consumer_of(running, topic, allow_auto_create_topics=False, metadata_max_age_ms=200) as consumer:
        assert {} == consumer.poll(300)
        with Admin(bootstrap_servers=running.bootstrap) as admin:
            admin.create_topics([NewTopic(topic, 2, 1, topic_configs=FAST)])
        fill(running, topic, b"1")
        consumer.retry(next(consumer), "later")
        assert f"{topic}.g.redelivery" == next(consumer).topic


def test_a_pattern_reads_redelivered_records_and_no_other_companions(running: InProcessBroker) -> None:
    topic = create(running, ottla_delay_enable="true")
    fill(running, topic, b"1")
    given = OPTIONS | {"bootstrap_servers": running.bootstrap, "group_id": "g", "enable_retry": True}
    with Consumer(**given) as consumer:
        consumer.subscribe(pattern=topic)
        consumer.retry(next(consumer), "later")
        assert f"{topic}.g.redelivery" == next(consumer).topic
        assert {topic, f"{topic}.g.redelivery"} == {each.topic for each in consumer.assignment()}
    with (
        Consumer(**given, group_protocol="consumer") as remote,
        pytest.raises(MisuseError, match="enable_retry with a pattern"),
    ):
        remote.subscribe(pattern=topic)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_asyncio_and_both_group_protocols(running: InProcessBroker, protocol: str) -> None:
    topic = create(running)
    fill(running, topic, b"1")
    given: dict[str, Any] = {"bootstrap_servers": running.bootstrap, "group_id": "g", "group_protocol": protocol}
    async with AsyncConsumer(topic, enable_retry=True, auto_offset_reset="earliest", **given) as consumer:
        first = await consumer.getone()
        await consumer.retry(first, "later")
        found = [first.topic, (await consumer.getone()).topic]
    assert [topic, f"{topic}.g.redelivery"] == found


def test_a_parallel_consumer_hands_back_what_fails(running: InProcessBroker) -> None:
    topic = create(running)
    fill(running, topic, b"fails once", b"fails always", b"rejected", b"fine")
    calls: list[bytes] = []
    with ParallelConsumer(
        topic, bootstrap_servers=running.bootstrap, group_id="g", auto_offset_reset="earliest", enable_retry=True
    ) as consumer:

        def handle(record: ConsumerRecord) -> None:
            calls.append(record.value)
            if len(calls) == 7:
                consumer.stop()
            if record.value == b"rejected":
                raise RejectRecordError("never")
            if record.value == b"fails always" or (calls.count(b"fails once") == 1 and record.value == b"fails once"):
                raise ValueError("not now")

        consumer.run(handle)
        counts = consumer.metrics()
    assert {"handled": 2, "failed": 5, "retried": 4, "dead_letters": 1, "buffered": 0, "running": 0} == counts
    assert {b"fails once": 2, b"fails always": 3, b"rejected": 1, b"fine": 1} == {
        value: calls.count(value) for value in set(calls)
    }
    found = dict(letters(running, f"dlq.{topic}", 2))
    assert {b"rejected": ("never", 1), b"fails always": ("not now", 3)} == {
        value: (letter.reason, letter.attempts) for value, letter in found.items() if letter is not None
    }
    with pytest.raises(OptionError, match="cannot have enable_retry together with dead_letter_topic"):
        ParallelConsumer(topic, group_id="g", enable_retry=True, dead_letter_topic="x")


def keyed(running: InProcessBroker, topic: str, *values: bytes) -> None:
    """Records of partition 1, whose keys are the first letters of their values."""
    with Producer(bootstrap_servers=running.bootstrap) as producer:
        for value in values:
            producer.send(topic, value, value[:1], partition=1)


KEYED = [b"a1", b"a2", b"b1", b"a3", b"b2"]


def test_later_records_of_a_key_wait_for_the_one_in_retry(running: InProcessBroker) -> None:
    topic = create(running, ottla_retry_order="key")
    keyed(running, topic, *KEYED)
    handled: list[bytes] = []
    attempts: dict[bytes, bytes | None] = {}
    failures = {b"a1": 2, b"a2": 1}
    with consumer_of(running, topic) as consumer:
        for record in consumer:
            if failures.get(record.value, 0):
                failures[record.value] -= 1
                consumer.retry(record, "not now")
                continue
            handled.append(record.value)
            attempts[record.value] = dict(record.headers).get("ottla.retry.attempt")
            if len(handled) == len(KEYED):
                break
    assert [[b"a1", b"a2", b"a3"], [b"b1", b"b2"]] == [
        [value for value in handled if value.startswith(key)] for key in (b"a", b"b")
    ]
    assert {b"a1": b"2", b"a2": b"1", b"a3": b"0", b"b1": None, b"b2": None} == attempts


def test_a_consumer_that_does_not_get_what_it_hands_back_holds_nothing_back(running: InProcessBroker) -> None:
    """Otherwise later records of the key would be handed back again and again, until they are dead letters."""
    topic = create(running, ottla_retry_order="key")
    keyed(running, topic, *KEYED)
    with consumer_of(running, topic) as first:
        first.retry(next(first), "not now")
        first.unsubscribe()
        first.assign([TopicPartition(topic, 1)])
        first.seek(TopicPartition(topic, 1), 1)
        assert [b"a2", b"b1", b"a3", b"b2"] == [next(first).value for _ in range(4)]
        first.seek(TopicPartition(topic, 1), 0)
        first.retry(next(first), "not now")
        assert b"a2" == next(first).value


def test_a_parallel_consumer_keeps_the_order_of_keys_in_retry(running: InProcessBroker) -> None:
    topic = create(running, ottla_retry_order="key")
    keyed(running, topic, *KEYED)
    handled: list[bytes] = []
    failures = {b"a1": 2, b"b1": 1}
    with ParallelConsumer(
        topic, bootstrap_servers=running.bootstrap, group_id="g", auto_offset_reset="earliest", enable_retry=True
    ) as consumer:

        def handle(record: ConsumerRecord) -> None:
            if failures.get(record.value, 0):
                failures[record.value] -= 1
                raise ValueError("not now")
            handled.append(record.value)
            if len(handled) == len(KEYED):
                consumer.stop()

        consumer.run(handle)
    assert [[b"a1", b"a2", b"a3"], [b"b1", b"b2"]] == [
        [value for value in handled if value.startswith(key)] for key in (b"a", b"b")
    ]


# A client that knows nothing of queues; `tests/compat/clients/test_retry.py` has all of them


def by_confluent(bootstrap: str, topic: str, partition: int, value: bytes, headers: list[tuple[str, bytes]]) -> None:
    import confluent_kafka

    problems: list[Any] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, value, b"k", partition, lambda error, _: problems.append(error), headers=list(headers))
    producer.flush(PATIENCE_SECONDS)
    (problem,) = problems
    if problem is not None:
        raise confluent_kafka.KafkaException(problem)


def test_plain_clients_hand_back_by_producing(running: InProcessBroker) -> None:
    topic = create(running)
    retry, back = f"{topic}.g.retry", f"{topic}.g.redelivery"
    by_confluent(running.bootstrap, retry, 1, b"v", [("trace", b"t"), ("ottla.retry.reason", b"no stock")])
    for attempt in (1, 2):
        record = read(running, back, attempt)[-1]
        headers = dict(record.headers)
        assert (1, b"%d" % attempt, b"t") == (record.partition, headers["ottla.retry.attempt"], headers["trace"])
        by_confluent(running.bootstrap, retry, 1, b"v", [(name, value or b"") for name, value in record.headers])
    ((value, letter),) = letters(running, f"dlq.{topic}", 1)
    assert (b"v", Origin(topic=topic, partition=1), "no stock", "g", 3) == (
        value, letter and letter.origin, letter and letter.reason, letter and letter.group, letter and letter.attempts,
    )  # fmt: skip
    assert 2 == end_of(running, back)


def test_plain_clients_cannot_keep_a_record_in_circles(running: InProcessBroker) -> None:
    topic = create(running)
    retry, back = f"{topic}.g.retry", f"{topic}.g.redelivery"
    by_confluent(running.bootstrap, retry, 0, b"v", [])
    headers = dict(read(running, back, 1)[0].headers)
    for count in (b"0", b"-5", b"9" * 30):
        by_confluent(running.bootstrap, retry, 0, count, [*(headers | {"ottla.retry.attempt": count}).items()])  # type: ignore[list-item]
    found = letters(running, f"dlq.{topic}", 3)
    assert {b"0", b"-5", b"9" * 30} == {value for value, _ in found}
    assert {"the headers ottla.retry.attempt, ottla.retry.token and ottla.due-ms were changed by a client"} == {
        letter.reason for _, letter in found if letter is not None
    }
    assert 1 == end_of(running, back)


def test_plain_clients_reject_by_a_header_and_bad_headers_are_refused(running: InProcessBroker) -> None:
    topic = create(running)
    retry = f"{topic}.g.retry"
    origin = ("ottla.retry.origin", f"{topic}/0/41".encode())
    by_confluent(running.bootstrap, retry, 0, b"v", [("ottla.retry.reject", b"never"), origin])
    ((_, letter),) = letters(running, f"dlq.{topic}", 1)
    assert letter is not None
    assert ("never", Origin(topic=topic, partition=0, offset=41)) == (letter.reason, letter.origin)
    with pytest.raises(Exception, match=r"(?i)record"):
        by_confluent(running.bootstrap, retry, 0, b"v", [("ottla.retry.origin", b"nonsense")])


def test_records_in_retry_survive_a_restart(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path) as broker:
        topic = create(broker, ottla_retry_backoff_ms="2000")
        fill(broker, topic, b"1")
        with consumer_of(broker, topic) as consumer:
            consumer.retry(next(consumer), "later")
        broker.kill()
        broker.start()
        (record,) = read(broker, f"{topic}.g.redelivery", 1)
        assert (b"1", b"1") == (record.value, dict(record.headers)["ottla.retry.attempt"])
