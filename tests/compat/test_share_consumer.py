"""Our share consumers in a share group of Apache Kafka and of Ottla: the same scenarios give the same answers."""

import asyncio
import itertools
import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest

from ottla import (
    AcknowledgeType,
    Admin,
    AsyncShareConsumer,
    ConfigResource,
    NewTopic,
    Producer,
    ResourceType,
    ShareConsumer,
    ShareRecord,
    TopicPartition,
)
from ottla.client.consumer.errors import RecordDeserializationError, WakeupError
from ottla.client.errors import AnswerError
from ottla.client.share.errors import AcquisitionLockLostError, NotAcquiredError, UnacknowledgedRecordsError
from ottla.model.error_codes import ErrorCode
from tests.broker.test_documented_samples import run
from tests.compat.clients.broker_under_test import SteadyKafkaBroker
from tests.compat.kafka_jars import KAFKA_VERSION
from tests.compat.ottla_broker import OttlaBroker
from tests.documented import samples

SETTINGS: Final = {
    "group.share.heartbeat.interval.ms": "300",
    "group.share.min.heartbeat.interval.ms": "300",
    "group.share.session.timeout.ms": "15000",
    "group.share.min.session.timeout.ms": "15000",
    "group.share.min.record.lock.duration.ms": "1000",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
SOON_MS: Final = 30_000
QUIET_MS: Final = 500
"""How long no record may come where none is expected."""
NEVER: Final = float("inf")

Broker = SteadyKafkaBroker | OttlaBroker
Answer = TypeVar("Answer")
_numbers = itertools.count()


@pytest.fixture(scope="module", params=["kafka", "ottla"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A running broker that has share groups."""
    folder = tmp_path_factory.mktemp("share")
    if request.param == "ottla":
        with OttlaBroker(folder / "broker", overrides=SETTINGS) as ottla:
            yield ottla
    else:
        with SteadyKafkaBroker(folder / "broker", SETTINGS, None, KAFKA_VERSION) as kafka:
            yield kafka


class Scene:
    """A topic, a share group that begins at its start, and consumers that are closed in the end."""

    def __init__(self, bootstrap: str, partitions: int, configs: dict[str, str]) -> None:
        number = next(_numbers)
        self.bootstrap = bootstrap
        self.topic, self.group = f"topic-{number}", f"group-{number}"
        self._open: list[ShareConsumer] = []
        with Admin(bootstrap_servers=bootstrap) as admin:
            admin.create_topics([NewTopic(self.topic, num_partitions=partitions, replication_factor=1)])
            admin.wait_for_topics([self.topic])
            wanted = {"share.auto.offset.reset": "earliest", **configs}
            admin.alter_configs([ConfigResource(ResourceType.GROUP, self.group, wanted)])

    def consumer(self, **options: Any) -> ShareConsumer:
        options = {"fetch_max_wait_ms": 100, **options}
        made = ShareConsumer(self.topic, group_id=self.group, bootstrap_servers=self.bootstrap, **options)
        self._open.append(made)
        return made

    def explicit(self, **options: Any) -> ShareConsumer:
        return self.consumer(share_acknowledgement_mode="explicit", **options)

    def send(self, values: Iterable[bytes], **options: Any) -> None:
        with Producer(bootstrap_servers=self.bootstrap, **options) as producer:
            for value in values:
                producer.send(self.topic, value=value, partition=0)

    def close(self) -> None:
        with ThreadPoolExecutor() as pool:
            list(pool.map(ShareConsumer.close, self._open))


Scenes = Callable[..., Scene]


@pytest.fixture
def scenes(broker: Broker) -> Iterator[Scenes]:
    made: list[Scene] = []

    def make(partitions: int = 1, **configs: str) -> Scene:
        made.append(
            Scene(broker.bootstrap, partitions, {name.replace("_", "."): each for name, each in configs.items()})
        )
        return made[-1]

    yield make
    for scene in made:
        scene.close()


def some(consumer: ShareConsumer, count: int = 1, **options: Any) -> list[ShareRecord]:
    """One poll's records, which must be this many."""
    records = [each for some in consumer.poll(SOON_MS, **options).values() for each in some]
    assert count == len(records), records
    return records


def values(records: Iterable[ShareRecord]) -> list[tuple[Any, int]]:
    """Values and delivery counts."""
    return [(each.value, each.delivery_count) for each in records]


def until(ask: Callable[[], Answer], is_right: Callable[[Answer], bool]) -> Answer:
    """The answer, asked for again until it is right."""
    deadline = time.monotonic() + SOON_MS / 1000
    while not is_right(answer := ask()):
        assert time.monotonic() < deadline, answer
    return answer


class TestImplicit:
    def test_two_members_share_one_partition(self, scenes: Scenes) -> None:
        scene = scenes()
        first, second = scene.consumer(max_poll_records=10), scene.consumer(max_poll_records=10)
        found: dict[int, list[bytes]] = {0: [], 1: []}

        def read(member: int, consumer: ShareConsumer) -> None:
            while sum(map(len, found.values())) < 400:
                for records in consumer.poll(100).values():
                    found[member] += [each.value for each in records]
            assert all(error is None for error in consumer.commit().values())

        expected = [b"%d" % number for number in range(400)]
        until(lambda: (first.poll(100), first.assignment()), lambda both: bool(both[1]))
        until(lambda: (second.poll(100), second.assignment()), lambda both: bool(both[1]))
        scene.send(expected, batch_size=200)
        with ThreadPoolExecutor() as pool:
            for done in [pool.submit(read, 0, first), pool.submit(read, 1, second)]:
                done.result()
        assert sorted(expected) == sorted(found[0] + found[1])
        assert {TopicPartition(scene.topic, 0)} == first.assignment() == second.assignment()
        first.close()
        second.close()
        assert {} == scene.consumer().poll(QUIET_MS)

    def test_the_next_poll_accepts_and_close_releases(self, scenes: Scenes) -> None:
        scene = scenes(share_record_lock_duration_ms="60000")
        scene.send([b"a"])
        consumer = scene.consumer()
        assert [(b"a", 1)] == values(some(consumer))
        scene.send([b"b"])
        assert [(b"b", 1)] == values(some(consumer))
        consumer.close()
        assert [(b"b", 2)] == values(some(scene.consumer()))

    def test_iteration_accepts_what_was_iterated_over(self, scenes: Scenes) -> None:
        scene = scenes(share_record_lock_duration_ms="60000")
        scene.send([b"a", b"b", b"c"])

        async def read() -> list[bytes]:
            found = []
            async with AsyncShareConsumer(
                scene.topic, group_id=scene.group, bootstrap_servers=scene.bootstrap
            ) as consumer:
                async for record in consumer:
                    found.append(record.value)
                    if record.value == b"b":
                        break
            return found

        assert [b"a", b"b"] == asyncio.run(read())
        assert [(b"b", 2), (b"c", 2)] == values(some(scene.consumer(), 2))


class TestExplicit:
    def test_each_record_is_acknowledged_in_its_own_way(self, scenes: Scenes) -> None:
        scene = scenes()
        scene.send([b"accept", b"release", b"reject", b"accept too"])
        consumer = scene.explicit()
        records = some(consumer, 4)
        for record in records[:3]:
            consumer.acknowledge(record, AcknowledgeType[record.value.decode().upper()])
        with pytest.raises(UnacknowledgedRecordsError, match="1 record was returned"):
            consumer.poll()
        consumer.acknowledge(records[3], AcknowledgeType.REJECT)
        consumer.acknowledge(records[3])
        assert {TopicPartition(scene.topic, 0): None} == consumer.commit()
        with pytest.raises(NotAcquiredError):
            consumer.acknowledge(records[0])
        again = some(consumer)
        assert [(b"release", 2)] == values(again)
        consumer.acknowledge(again[0])
        assert {TopicPartition(scene.topic, 0): None} == consumer.commit()
        assert {} == consumer.poll(QUIET_MS)

    def test_a_record_is_released_up_to_the_limit(self, scenes: Scenes) -> None:
        scene = scenes(share_delivery_count_limit="3")
        scene.send([b"poison"])
        consumer = scene.explicit()
        for count in (1, 2, 3):
            (record,) = some(consumer)
            assert (b"poison", count) == (record.value, record.delivery_count)
            consumer.acknowledge(record, AcknowledgeType.RELEASE)
        assert {} == consumer.poll(QUIET_MS)

    def test_a_renewed_lock_holds_on(self, scenes: Scenes) -> None:
        # A machine that stalls must not keep the consumer from renewing it.
        scene = scenes(share_record_lock_duration_ms="5000")
        scene.send([b"slow"])
        consumer, other = scene.explicit(), scene.consumer()
        answers: list[tuple[Any, Any]] = []
        consumer.set_acknowledgement_commit_callback(lambda offsets, error: answers.append((offsets, error)))
        (record,) = some(consumer)
        assert 5000 == consumer.acquisition_lock_timeout_ms()
        began = time.monotonic()
        while time.monotonic() < began + 7:
            consumer.acknowledge(record, AcknowledgeType.RENEW)
            assert [record] == some(consumer)
            assert {} == other.poll(500)
        consumer.acknowledge(record)
        partition = TopicPartition(scene.topic, 0)
        assert {partition: None} == consumer.commit()
        assert {({partition: frozenset({0})}.__repr__(), None)} == {
            (repr(offsets), error) for offsets, error in answers
        }
        assert {} == other.poll(QUIET_MS)

    def test_a_lock_that_timed_out_is_an_error_of_its_record(self, scenes: Scenes) -> None:
        scene = scenes(share_record_lock_duration_ms="3000")
        scene.send([b"late"])
        consumer, other = scene.explicit(), scene.explicit()
        answers: list[tuple[Any, Any]] = []
        consumer.set_acknowledgement_commit_callback(lambda offsets, error: answers.append((offsets, error)))
        (late,) = some(consumer)
        consumer.acknowledge(late, AcknowledgeType.RENEW)
        (late,) = some(consumer)
        (again,) = some(other)
        assert (b"late", 2) == (again.value, again.delivery_count)
        other.acknowledge(again)
        assert {TopicPartition(scene.topic, 0): None} == other.commit()
        consumer.acknowledge(late)
        ((partition, error),) = consumer.commit().items()
        assert isinstance(error, AcquisitionLockLostError)
        assert [({partition: frozenset({0})}, None), ({partition: frozenset({0})}, error)] == answers
        scene.send([b"next"])
        (after,) = some(consumer)
        assert (b"next", 1) == (after.value, after.delivery_count)

    def test_a_lost_connection_ends_the_session_and_not_the_consumer(self, scenes: Scenes) -> None:
        scene = scenes(share_record_lock_duration_ms="60000")
        scene.send([b"a"])
        consumer = scene.explicit()
        (record,) = some(consumer)
        (lane,) = consumer._core.fetcher._lanes.values()
        connection = lane.connection
        assert connection is not None
        consumer._on_loop(connection.close)
        consumer.acknowledge(record)
        ((_, error),) = consumer.commit().items()
        assert error is not None
        (again,) = some(consumer)
        assert (b"a", 2) == (again.value, again.delivery_count)
        consumer.acknowledge(again)
        assert {TopicPartition(scene.topic, 0): None} == consumer.commit()

    def test_a_session_that_the_broker_forgot_is_opened_again(self, scenes: Scenes) -> None:
        scene = scenes(share_record_lock_duration_ms="60000")
        scene.send([b"a"])
        consumer = scene.explicit()
        (record,) = some(consumer)
        (session,) = consumer._core.fetcher.sessions()
        session.epoch += 7
        consumer.acknowledge(record)
        ((_, error),) = consumer.commit().items()
        assert isinstance(error, AnswerError)
        assert ErrorCode.INVALID_SHARE_SESSION_EPOCH is error.error_code
        (again,) = some(consumer)
        assert (b"a", 2) == (again.value, again.delivery_count)
        consumer.acknowledge(again)


class TestAcquiring:
    def test_record_limit_acquires_no_more_than_is_polled(self, scenes: Scenes) -> None:
        scene = scenes(share_record_lock_duration_ms="60000")
        scene.send([b"%d" % number for number in range(6)], linger_ms=1000)
        first, second = (scene.explicit(share_acquire_mode="record_limit") for _ in range(2))
        assert [(b"0", 1), (b"1", 1)] == values(some(first, 2, max_records=2))
        assert [(b"2", 1), (b"3", 1), (b"4", 1)] == values(some(second, 3, max_records=3))

    def test_batches_are_acquired_whole_and_returned_in_parts(self, scenes: Scenes) -> None:
        scene = scenes()
        scene.send([b"%d" % number for number in range(5)], linger_ms=1000)
        consumer = scene.consumer(max_poll_records=2)
        assert [[b"0", b"1"], [b"2", b"3"], [b"4"]] == [
            [each.value for each in some(consumer, count)] for count in (2, 2, 1)
        ]

    def test_markers_are_gaps(self, scenes: Scenes) -> None:
        scene = scenes(share_isolation_level="read_committed")
        with Producer(bootstrap_servers=scene.bootstrap, transactional_id=scene.topic) as producer:
            producer.init_transactions()
            for number in range(3):
                producer.begin_transaction()
                producer.send(scene.topic, value=b"%d" % number, partition=0)
                if number == 1:
                    producer.flush()
                    producer.abort_transaction()
                else:
                    producer.commit_transaction()
        consumer = scene.explicit()
        found: list[ShareRecord] = []
        while len(found) < 2:
            for records in consumer.poll(SOON_MS).values():
                found += records
                for record in records:
                    consumer.acknowledge(record)
        assert {} == consumer.poll(QUIET_MS)
        assert [(b"0", 1), (b"2", 1)] == values(found)
        partition = TopicPartition(scene.topic, 0)
        with Admin(bootstrap_servers=scene.bootstrap) as admin:
            offsets = until(
                lambda: admin.list_share_group_offsets(scene.group),
                lambda found: partition in found and found[partition].lag == 0,
            )
        assert {partition: 0} == {each: one.lag for each, one in offsets.items()}

    def test_arrow_batches(self, scenes: Scenes) -> None:
        scene = scenes()
        scene.send([b"a", b"b", b"c"], linger_ms=1000)
        consumer = scene.explicit()
        partition = TopicPartition(scene.topic, 0)
        batch = consumer.poll_arrow(SOON_MS)[partition]
        assert [b"a", b"b", b"c"] == batch.column("value").to_pylist()
        assert [1, 1, 1] == batch.column("delivery_count").to_pylist()
        consumer.acknowledge_offsets(partition, [0, 2])
        consumer.acknowledge_offsets(partition, [1], AcknowledgeType.RELEASE)
        batch = consumer.poll_arrow(SOON_MS)[partition]
        assert [(1, b"b", 2)] == list(
            zip(*(batch.column(name).to_pylist() for name in ("offset", "value", "delivery_count")), strict=True)
        )
        consumer.acknowledge_offsets(partition, [1])
        assert {partition: None} == consumer.commit()
        assert {} == consumer.poll_arrow(QUIET_MS)

    def test_a_record_that_cannot_be_deserialized_is_released(self, scenes: Scenes) -> None:
        scene = scenes(share_delivery_count_limit="2")
        scene.send([b"1", b"x", b"3"], linger_ms=1000)
        consumer = scene.consumer(value_deserializer=int)
        assert [(1, 1)] == values(some(consumer))
        with pytest.raises(RecordDeserializationError) as caught:
            consumer.poll(SOON_MS)
        assert 1 == caught.value.offset
        assert [(3, 1)] == values(some(consumer))
        with pytest.raises(RecordDeserializationError):
            consumer.poll(SOON_MS)
        assert {} == consumer.poll(QUIET_MS)


class TestMembership:
    def test_wakeup_ends_a_poll(self, scenes: Scenes) -> None:
        consumer = scenes().consumer()
        consumer.poll()
        with ThreadPoolExecutor() as pool:
            waiting = pool.submit(consumer.poll, NEVER)
            consumer.wakeup()
            with pytest.raises(WakeupError):
                waiting.result(SOON_MS / 1000)

    def test_a_member_that_does_not_poll_leaves_and_comes_back(self, scenes: Scenes) -> None:
        scene = scenes()
        consumer = scene.consumer(max_poll_interval_ms=500)
        until(lambda: (consumer.poll(100), consumer.assignment()), lambda both: bool(both[1]))
        until(consumer.assignment, lambda assigned: not assigned)
        scene.send([b"a"])
        assert [(b"a", 1)] == values(some(consumer))

    def test_a_new_topic_joins_the_subscription(self, scenes: Scenes) -> None:
        scene, further = scenes(), scenes(partitions=2)
        consumer = scene.consumer()
        consumer.subscribe([scene.topic, further.topic])
        expected = {TopicPartition(scene.topic, 0), *(TopicPartition(further.topic, each) for each in range(2))}
        until(lambda: (consumer.poll(100), consumer.assignment()), lambda both: both[1] == expected)
        further.send([b"there"])
        assert [(b"there", 1)] == values(some(consumer))
        consumer.unsubscribe()
        assert (None, set()) == (consumer.subscription(), consumer.assignment())

    def test_the_broker_restarts(self, broker: Broker, scenes: Scenes) -> None:
        if isinstance(broker, SteadyKafkaBroker) and "OTTLA_COMPAT_RESTARTS" not in os.environ:
            pytest.skip("restarting Kafka takes half as long as all other tests; set OTTLA_COMPAT_RESTARTS to do it")
        scene = scenes(share_record_lock_duration_ms="60000")
        scene.send([b"done", b"open"], linger_ms=1000)
        consumer = scene.explicit()
        done, open_record = some(consumer, 2)
        consumer.acknowledge(done)
        assert {TopicPartition(scene.topic, 0): None} == consumer.commit()
        broker.stop()
        broker.start()
        consumer.acknowledge(open_record)
        assert [False] == [error is None for error in consumer.commit().values()]
        (again,) = some(consumer)
        assert b"open" == again.value
        consumer.acknowledge(again)
        assert {TopicPartition(scene.topic, 0): None} == consumer.commit()


def test_documented_samples(broker: Broker, tmp_path: Path) -> None:
    """The samples of docs/share-consumers.md run as they stand, one after the other."""
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        wanted = {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": "6000"}
        admin.alter_configs([ConfigResource(ResourceType.GROUP, "slow-workers", wanted)])
    printed = [run(sample, broker.bootstrap, tmp_path) for sample in samples("docs/share-consumers.md")]
    assert ["", 4, ": None}", ": None}"] == [
        printed[0],
        len(printed[1].splitlines()),
        printed[2].rstrip()[-7:],
        printed[3].rstrip()[-7:],
    ]
