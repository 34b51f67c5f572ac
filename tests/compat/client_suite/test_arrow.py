"""Tables against Ottla and against Apache Kafka: what is sent is read again, in every way, and by other clients."""

from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import TopicPartition as ConfluentPartition

from ottla.client.consumer.blocking_consumer import Consumer
from ottla.client.consumer.range_reader import RangeReader
from ottla.client.producer.blocking_producer import Producer
from ottla.client.producer.partitioner import partition_for_key
from ottla.model.ids import TopicPartition
from tests.compat.client_suite.filled_topics import fill, make_topic, numbered

SOON_S = 60
SOON_MS = 20_000
ROWS = 5_000
T0 = 1_700_000_000_000


def rows(count: int = ROWS) -> pa.Table:
    """Rows of 40 keys, each value with its number."""
    return pa.table(
        {
            "key": [b"k%d" % (row % 40) for row in range(count)],
            "value": [b"%d" % row for row in range(count)],
            "timestamp": pa.array(range(T0, T0 + count), pa.timestamp("ms", "UTC")),
            "headers": pa.array([[("n", b"%d" % row)] for row in range(count)], pa.map_(pa.string(), pa.binary())),
        }
    )


def by_partition(count: int, partitions: int) -> dict[int, list[int]]:
    """The numbers of the rows that each partition gets, in order."""
    found: dict[int, list[int]] = {partition: [] for partition in range(partitions)}
    for row in range(count):
        found[partition_for_key(b"k%d" % (row % 40), partitions)].append(row)
    return found


def polled(reading: Consumer, count: int) -> dict[int, list[dict[str, Any]]]:
    """So many rows, by partition, as dictionaries."""
    found: dict[int, list[dict[str, Any]]] = {}
    while sum(map(len, found.values())) < count:
        batches = reading.poll_arrow(SOON_MS)
        assert batches, f"only {sum(map(len, found.values()))} of {count} rows came"
        for partition, batch in batches.items():
            found.setdefault(partition.partition, []).extend(batch.to_pylist())
    return found


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_table_is_read_as_it_was_sent(bootstrap: str, topic: str, codec: Any) -> None:
    make_topic(bootstrap, topic, 3)
    with Producer(bootstrap_servers=bootstrap, compression_type=codec) as producer:
        written = producer.send_table(topic, rows()).get(SOON_S)
    assert ROWS == sum(each.row_count for each in written)
    with Consumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest") as reading:
        found = polled(reading, ROWS)
    for partition, expected in by_partition(ROWS, 3).items():
        assert list(range(len(expected))) == [row["offset"] for row in found[partition]]
        assert [b"%d" % row for row in expected] == [row["value"] for row in found[partition]]
        assert [b"k%d" % (row % 40) for row in expected] == [row["key"] for row in found[partition]]
        stamps = [int(row["timestamp"].timestamp() * 1000 + 0.5) for row in found[partition]]
        assert [T0 + row for row in expected] == stamps
        assert [[b"%d" % row] for row in expected] == [
            [value for _, value in map(_pair, row["headers"])] for row in found[partition]
        ]


def _pair(header: Any) -> tuple[Any, Any]:
    return tuple(header.values()) if isinstance(header, dict) else tuple(header)


def test_another_client_reads_a_table(bootstrap: str, topic: str) -> None:
    make_topic(bootstrap, topic, 2)
    with Producer(bootstrap_servers=bootstrap, compression_type="lz4") as producer:
        producer.send_table(topic, rows()).get(SOON_S)
    theirs = ConfluentConsumer({"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    try:
        theirs.assign([ConfluentPartition(topic, partition, 0) for partition in range(2)])
        found: dict[int, list[int]] = {0: [], 1: []}
        while sum(map(len, found.values())) < ROWS:
            records = theirs.consume(1000, SOON_MS / 1000)
            assert records, "nothing came in time"
            for record in records:
                assert record.error() is None
                found[record.partition()].append(int(record.value()))
        assert by_partition(ROWS, 2) == found
    finally:
        theirs.close()


def test_a_table_in_a_transaction(bootstrap: str, topic: str) -> None:
    (partition,) = make_topic(bootstrap, topic)
    options: dict[str, Any] = {"bootstrap_servers": bootstrap, "auto_offset_reset": "earliest"}
    with Producer(bootstrap_servers=bootstrap, transactional_id=topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_table(topic, rows(100))
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send_table(topic, rows(50))
        producer.commit_transaction()
    with Consumer(topic, isolation_level="read_committed", **options) as reading:
        found = polled(reading, 50)[0]
    assert [b"%d" % row for row in range(50)] == [row["value"] for row in found]
    with RangeReader(topic, 0, isolation_level="read_committed", bootstrap_servers=bootstrap) as reader:
        assert 50 == sum(batch.num_rows for batch in reader)
    assert TopicPartition(topic, 0) == partition


def test_ranges(bootstrap: str, topic: str) -> None:
    (partition,) = make_topic(bootstrap, topic)
    fill(bootstrap, {partition: numbered(1000)}, batch_records=37)
    for start, end in ((None, None), (0, 1), (36, 38), (500, 1000), (990, None)):
        with RangeReader(topic, 0, start=start, end=end, bootstrap_servers=bootstrap) as reader:
            offsets = [offset for batch in reader for offset in batch.column("offset").to_pylist()]
        assert list(range(start or 0, 1000 if end is None else end)) == offsets


def test_tables_and_offsets_of_a_group(bootstrap: str, topic: str) -> None:
    (partition,) = make_topic(bootstrap, topic)
    fill(bootstrap, {partition: numbered(100)})
    options: dict[str, Any] = {"bootstrap_servers": bootstrap, "auto_offset_reset": "earliest", "group_id": topic}
    with Consumer(topic, enable_auto_commit=False, **options) as reading:
        assert 100 == len(polled(reading, 100)[0])
        reading.commit()
    fill(bootstrap, {partition: numbered(10, b"later ")})
    with Consumer(topic, **options) as reading:
        found = polled(reading, 10)[0]
    assert list(range(100, 110)) == [row["offset"] for row in found]
