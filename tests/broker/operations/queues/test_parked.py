"""What is parked in the queues of a topic: found, counted, cancelled, made due at once or at another time."""

import pytest

from ottla.client.network.cluster import Cluster
from ottla.client.producer.async_producer import AsyncProducer
from ottla.client.producer.errors import TransactionFailedError
from ottla.metadata.configs.queue_settings import CompanionMark
from ottla.model.ids import TopicPartition
from ottla.model.queue_names import DELAY_ID, DELAY_MS, CompanionKind
from ottla.operations.dead_letters.letters import bounds_of
from ottla.operations.last_records import last_of_each
from ottla.operations.queues.instructions import cancel, cancel_at, release, reschedule, rescheduling_id
from ottla.operations.queues.owed_scan import Parked
from ottla.operations.queues.parked import (
    ChosenRecords,
    ParkingQueue,
    chosen_if,
    count_parked,
    inspect_queue,
    next_parked,
    parked_at,
    parking_queues,
)
from ottla.operations.queues.queue_topics import NoQueueError, chosen_queues, queue_configs, queue_topics
from ottla.protocol.fetch_frames import READ_COMMITTED
from ottla.testing import InProcessBroker
from tests.waiting import until

HOUR_MS = 3_600_000
RECORDS = {(0, b"three"): 3, (0, b"one"): 1, (0, b"two"): 2, (1, b"half"): 0.5}
"""By partition and value: the hours until the record is due."""


class Parking:
    """A topic whose companion holds these records; each has its value as its id."""

    def __init__(self, broker: InProcessBroker, cluster: Cluster, name: str) -> None:
        self.topic = broker.create_topic(name, 2, {"ottla.delay.enable": "true"})
        self.companion = f"{name}.delayed"
        self.places = [TopicPartition(self.companion, index) for index in (0, 1)]
        self.mark = CompanionMark(name, CompanionKind.DELAYED)
        self.offsets: dict[bytes, int] = {}
        """Where each value is parked: the queue writes records of its own between them."""
        self._cluster = cluster

    async def fill(self, producer: AsyncProducer) -> None:
        for (partition, value), hours in RECORDS.items():
            headers = [(DELAY_MS, b"%d" % (hours * HOUR_MS)), (DELAY_ID, value)]
            metadata = await producer.send_and_wait(self.companion, value, None, headers, partition)
            self.offsets[value] = metadata.offset

    async def values(self) -> list[bytes | None]:
        """What is parked, in the order in which it is due."""
        return values_of((await next_parked(self._cluster, self.places, 100))[0])

    async def has_delivered(self, *values: bytes) -> bool:
        bounds = await bounds_of(self._cluster, self.topic)
        found = await last_of_each(self._cluster, bounds, 100, isolation_level=READ_COMMITTED)
        return sorted(values) == sorted(record.value or b"" for records in found.values() for record in records)


def values_of(parked: list[Parked]) -> list[bytes | None]:
    return [each.record.value for each in parked]


@pytest.fixture
async def parking(
    request: pytest.FixtureRequest, ottla_shared_broker: InProcessBroker, cluster: Cluster, producer: AsyncProducer
) -> Parking:
    parking = Parking(ottla_shared_broker, cluster, request.node.name.replace("_", "-"))
    await parking.fill(producer)
    return parking


async def test_the_queues_of_a_topic(parking: Parking, cluster: Cluster, ottla_shared_broker: InProcessBroker) -> None:
    found = (await queue_topics(cluster))[parking.topic]
    assert (["delay"], [parking.companion], f"dlq.{parking.topic}") == (found.queues, found.parking, found.dead_letters)
    assert {"ottla.delay.enable": "true"} == found.configs == await queue_configs(cluster, parking.topic)
    whole = ParkingQueue(parking.companion, parking.mark, parking.places)
    assert [whole] == await parking_queues(cluster, parking.topic)
    assert [whole] == await parking_queues(cluster, parking.companion)
    assert [whole._replace(places=parking.places[1:])] == await parking_queues(cluster, parking.topic, 1)
    plain = ottla_shared_broker.create_topic("operations-plain")
    assert plain not in await queue_topics(cluster)
    refusals = []
    for name in (plain, f"dlq.{parking.topic}"):
        with pytest.raises(NoQueueError) as refused:
            await chosen_queues(cluster, name)
        refusals.append(str(refused.value))
    with pytest.raises(NoQueueError) as refused:
        await parking_queues(cluster, parking.topic, 2)
    assert [
        f"topic {plain} has no queue that parks records; `ottla queues create {plain}` enables one",
        f"dlq.{parking.topic} holds no parked records; read it with `ottla consume dlq.{parking.topic}`",
        f"topic {parking.companion} has no partition 2; it has 2 partitions",
    ] == [*refusals, str(refused.value)]


async def test_what_is_parked_is_counted(parking: Parking, cluster: Cluster) -> None:
    (queue,) = await parking_queues(cluster, parking.topic)
    progress: list[tuple[int, int]] = []
    (counts,) = await count_parked(cluster, [queue], lambda done, total: progress.append((done, total)))
    parked = await parked_at(cluster, parking.places[0], parking.offsets[b"three"])
    assert (queue, 4, {0: 3, 1: 1}, parked.record.timestamp) == (
        counts.queue,
        counts.every.parked,
        {each.partition: some.parked for each, some in counts.partitions.items()},
        counts.oldest_ms,
    )
    assert {each: end for each, (_, end) in (await bounds_of(cluster, parking.companion)).items()} == counts.ends
    assert sorted(progress) == progress
    (total,) = {each for _, each in progress}
    assert {total // 2, total} <= {done for done, _ in progress}, "all is read twice"
    inspected, first = await inspect_queue(cluster, queue, 2)
    assert (4, counts.every.next_due_ms, counts.oldest_ms, counts.ends, [b"half", b"one"]) == (
        inspected.every.parked,
        inspected.every.next_due_ms,
        inspected.oldest_ms,
        inspected.ends,
        values_of(first),
    )


async def test_the_records_that_are_due_next(parking: Parking, cluster: Cluster) -> None:
    found = [await next_parked(cluster, parking.places, limit) for limit in (0, 1, 3, 9)]
    expected = [b"half", b"one", b"two", b"three"]
    assert [([], 4), (expected[:1], 4), (expected[:3], 4), (expected, 4)] == [
        (values_of(some), count) for some, count in found
    ]
    assert ([b"half"], 1) == (values_of((await next_parked(cluster, parking.places[1:], 9))[0]), 1)


async def test_records_that_are_chosen(parking: Parking, cluster: Cluster) -> None:
    by_id = await chosen_if(cluster, parking.places, lambda owed: owed.id in (b"half", b"two"))
    parked = await parked_at(cluster, parking.places[0], parking.offsets[b"two"])
    assert (b"two", b"two") == (parked.record.value, parked.owed.id)
    assert {parking.places[0]: [parking.offsets[b"two"]], parking.places[1]: [parking.offsets[b"half"]]} == {
        each: list(some) for each, some in by_id.records.items()
    }
    assert (None, 2) == (by_id.id, by_id.total)
    assert ChosenRecords(None, {}) == await chosen_if(cluster, parking.places, lambda _: False)
    with pytest.raises(NoQueueError) as refused:
        await parked_at(cluster, parking.places[1], 7)
    assert (f"{parking.companion}: no parked record at 1:7; `ottla queues peek` shows them") == str(refused.value)


async def test_records_are_cancelled_by_their_id_and_by_their_offsets(
    parking: Parking, cluster: Cluster, producer: AsyncProducer
) -> None:
    await cancel(producer, parking.places[0], b"two")
    assert [b"half", b"one", b"three"] == await parking.values()
    await cancel_at(producer, parking.places[0], [parking.offsets[b"one"], parking.offsets[b"three"]])
    assert [b"half"] == await parking.values()
    await cancel_at(producer, parking.places[1], [])
    assert [b"half"] == await parking.values()


async def test_released_records_are_delivered_at_once(parking: Parking, producer: AsyncProducer) -> None:
    await release(producer, parking.places[0], [parking.offsets[b"two"], parking.offsets[b"three"]])
    await until(lambda: parking.has_delivered(b"two", b"three"))
    assert [b"half", b"one"] == await parking.values()


async def test_a_record_is_due_at_another_time(
    parking: Parking, cluster: Cluster, ottla_shared_broker: InProcessBroker
) -> None:
    parked = await parked_at(cluster, parking.places[0], parking.offsets[b"three"])
    due_ms = parked.owed.due_ms - 2 * HOUR_MS - HOUR_MS // 4
    bootstrap, name = ottla_shared_broker.bootstrap, rescheduling_id(parking.companion)
    async with AsyncProducer(bootstrap_servers=bootstrap, transactional_id=name) as transactional:
        await transactional.init_transactions()
        await reschedule(transactional, parked, due_ms)
        assert [b"half", b"three", b"one", b"two"] == await parking.values()
        (copy,) = [each for each in (await next_parked(cluster, parking.places, 9))[0] if each.record.value == b"three"]
        assert (due_ms, b"three", parked.record.timestamp) == (copy.owed.due_ms, copy.owed.id, copy.record.timestamp)
        # Nothing is cancelled if the copy is refused.
        with pytest.raises(TransactionFailedError, match=r"exceeds ottla\.delay\.max\.ms"):
            await reschedule(transactional, copy, due_ms + 10_000 * 24 * HOUR_MS)
    assert [b"half", b"three", b"one", b"two"] == await parking.values()
