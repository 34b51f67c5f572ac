"""The last records that a reader sees, behind others that it does not."""

from ottla.client.network.cluster import Cluster
from ottla.client.producer.async_producer import AsyncProducer
from ottla.model.ids import TopicPartition
from ottla.operations.last_records import STEP_OFFSETS_MIN, last_of_each
from ottla.protocol.fetch_frames import READ_COMMITTED
from ottla.testing import InProcessBroker

READ_UNCOMMITTED = 0


async def test_aborted_records_are_passed_over(cluster: Cluster, ottla_shared_broker: InProcessBroker) -> None:
    topic = ottla_shared_broker.create_topic("operations-last", 2)
    aborted = 3 * STEP_OFFSETS_MIN
    bootstrap = ottla_shared_broker.bootstrap
    async with AsyncProducer(bootstrap_servers=bootstrap, transactional_id="operations-last") as producer:
        await producer.init_transactions()
        producer.begin_transaction()
        for value in (b"a", b"b", b"c"):
            await producer.send(topic, value, partition=0)
        await producer.send(topic, b"alone", partition=1)
        await producer.commit_transaction()
        producer.begin_transaction()
        for number in range(aborted):
            await producer.send(topic, b"%d" % number, partition=0)
        await producer.flush()
        await producer.abort_transaction()
        producer.begin_transaction()
        await producer.send(topic, b"d", partition=0)
        await producer.commit_transaction()
    p0, p1 = TopicPartition(topic, 0), TopicPartition(topic, 1)
    end = 3 + 1 + aborted + 1 + 1 + 1  # each transaction ends with a marker
    bounds = {p0: (0, end), p1: (0, 2)}

    async def values(count: int, isolation_level: int, start: int = 0) -> dict[TopicPartition, list[bytes | None]]:
        found = await last_of_each(cluster, {**bounds, p0: (start, end)}, count, isolation_level=isolation_level)
        return {partition: [record.value for record in records] for partition, records in found.items()}

    assert {p0: [b"d"], p1: [b"alone"]} == await values(1, READ_COMMITTED)
    assert {p0: [b"b", b"c", b"d"], p1: [b"alone"]} == await values(3, READ_COMMITTED)
    assert {p0: [b"a", b"b", b"c", b"d"], p1: [b"alone"]} == await values(9, READ_COMMITTED)
    assert {p0: [b"c", b"d"], p1: [b"alone"]} == await values(9, READ_COMMITTED, start=2)
    assert {p0: [b"%d" % (aborted - 1), b"d"], p1: [b"alone"]} == await values(2, READ_UNCOMMITTED)
    assert {p0: [], p1: [b"alone"]} == await values(1, READ_COMMITTED, start=end)
