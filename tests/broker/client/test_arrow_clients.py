"""Tables in, tables out, against a real broker: the rows that are sent are read, as a table and as single records."""

import asyncio
import threading
from dataclasses import fields
from typing import Any, get_type_hints

import pyarrow as pa
import pytest

from ottla.client.consumer.async_consumer import AsyncConsumer
from ottla.client.consumer.blocking_consumer import Consumer
from ottla.client.consumer.range_reader import AsyncRangeReader, RangeReader, RangeReaderConfig, RangeReaderOptions
from ottla.client.errors import AnswerError
from ottla.client.fetch.arrow_chunks import as_batches, decode_polled
from ottla.client.fetch.chunk import Chunk
from ottla.client.network.cluster import UnknownPartitionInTopicError
from ottla.client.options import OptionError
from ottla.client.producer.async_producer import AsyncProducer
from ottla.client.producer.blocking_producer import Producer
from ottla.client.producer.errors import ProducerClosedError, RecordTooLargeError
from ottla.client.producer.partitioner import RoundRobinPartitioner, partition_for_key
from ottla.client.producer.tables.table_delivery import WrittenRows
from ottla.model.errors import CorruptBatchError, MisuseError
from ottla.model.ids import TopicPartition
from ottla.records.batch import scan
from ottla.records.columns_encode import encode
from ottla.transport.addresses import Address
from tests.broker.client.producer_log import make_topic, read_topic, values
from tests.waiting import PATIENCE_SECONDS

SOON_MS = 30_000
MOMENT = 1_700_000_000_000


def numbered(count: int, **more: Any) -> pa.Table:
    return pa.table({"value": [b"%d" % row for row in range(count)], **more})


def poll_all(consumer: Consumer, count: int) -> pa.Table:
    """So many rows, as one table."""
    tables: list[pa.Table] = []
    while sum(table.num_rows for table in tables) < count:
        tables.append(consumer.poll_table(SOON_MS))
        assert tables[-1].num_rows, "nothing came in time"
    return pa.concat_tables(tables)


def test_a_row_comes_back_as_it_was_sent(address: Address) -> None:
    rows = pa.table(
        {
            "key": ["k", None],
            "value": [b"v", None],
            "timestamp": pa.array([MOMENT, MOMENT + 1], pa.timestamp("ms", "UTC")),
            "headers": [[("h", b"1"), ("n", None)], []],
            "ignored": [1, 2],
        },
        schema=pa.schema(
            [
                ("key", pa.string()),
                ("value", pa.binary()),
                ("timestamp", pa.timestamp("ms", "UTC")),
                ("headers", pa.map_(pa.string(), pa.binary())),
                ("ignored", pa.int64()),
            ]
        ),
    )
    with Producer(bootstrap_servers=str(address)) as producer:
        delivery = producer.send_table("arrow-whole", rows)
        partition = TopicPartition("arrow-whole", 0)
        assert [WrittenRows(partition, 0, 2)] == delivery.get(PATIENCE_SECONDS)
        assert delivery.is_done
    first, second = read_topic(address, "arrow-whole")[0]
    assert (b"k", b"v", MOMENT) == (first.key, first.value, first.timestamp)
    assert [("h", b"1"), ("n", None)] == list(first.headers)
    assert (None, None, MOMENT + 1) == (second.key, second.value, second.timestamp)
    with Consumer("arrow-whole", bootstrap_servers=str(address), auto_offset_reset="earliest") as consumer:
        expected = [
            {
                "topic": "arrow-whole",
                "partition": 0,
                "offset": 0,
                "timestamp": first.timestamp,
                "key": b"k",
                "value": b"v",
            },
            {
                "topic": "arrow-whole",
                "partition": 0,
                "offset": 1,
                "timestamp": second.timestamp,
                "key": None,
                "value": None,
            },
        ]
        table = consumer.poll_table(SOON_MS)
        assert [[("h", b"1"), ("n", None)], []] == [
            [(each["key"], each["value"]) for each in some] for some in table["headers"].to_pylist()
        ]
        plain = table.drop_columns(["headers"])
        plain = plain.set_column(3, "timestamp", plain["timestamp"].cast(pa.int64()))
        assert expected == plain.to_pylist()


def test_rows_go_where_their_keys_go_and_keep_their_order(address: Address) -> None:
    make_topic(address, "arrow-keys", 5)
    keys = [b"key-%d" % (row % 37) for row in range(1000)]
    with Producer(bootstrap_servers=str(address), compression_type="lz4") as producer:
        written = producer.send_table("arrow-keys", numbered(1000, key=keys)).get(PATIENCE_SECONDS)
    expected = {
        index: [b"%d" % row for row in range(1000) if partition_for_key(keys[row], 5) == index] for index in range(5)
    }
    assert expected == {index: values(some) for index, some in read_topic(address, "arrow-keys", 5).items()}
    assert {index: len(some) for index, some in expected.items()} == {
        each.topic_partition.partition: each.row_count for each in written
    }


def test_partitions_can_be_said_for_all_rows_or_for_each(address: Address) -> None:
    make_topic(address, "arrow-chosen", 3)
    with Producer(bootstrap_servers=str(address)) as producer:
        producer.send_table("arrow-chosen", numbered(2), partition=2).get(PATIENCE_SECONDS)
        producer.send_table("arrow-chosen", numbered(3, where=[1, 0, 1]), partition="where").get(PATIENCE_SECONDS)
        producer.send_table("arrow-chosen", numbered(1, partition=[0])).get(PATIENCE_SECONDS)
        with pytest.raises(UnknownPartitionInTopicError, match="has no partition 3"):
            producer.send_table("arrow-chosen", numbered(1), partition=3)
        with pytest.raises(MisuseError, match="row 1 is for partition 7"):
            producer.send_table("arrow-chosen", numbered(2, partition=[0, 7]))
    found = {index: values(some) for index, some in read_topic(address, "arrow-chosen", 3).items()}
    assert {0: [b"1", b"0"], 1: [b"0", b"2"], 2: [b"0", b"1"]} == found


def test_rows_without_keys_are_spread_and_a_partitioner_is_asked(address: Address) -> None:
    make_topic(address, "arrow-spread", 2)
    make_topic(address, "arrow-custom", 2)
    with Producer(bootstrap_servers=str(address), max_request_size=1000) as producer:
        producer.send_table("arrow-spread", numbered(400)).get(PATIENCE_SECONDS)
    counts = [len(some) for some in read_topic(address, "arrow-spread", 2).values()]
    assert 400 == sum(counts)
    assert min(counts) > 100
    with Producer(bootstrap_servers=str(address), partitioner=RoundRobinPartitioner()) as producer:
        producer.send_table("arrow-custom", numbered(4)).get(PATIENCE_SECONDS)
    found = {index: values(some) for index, some in read_topic(address, "arrow-custom", 2).items()}
    assert {0: [b"0", b"2"], 1: [b"1", b"3"]} == found


def test_tables_that_make_no_sense_are_refused(address: Address) -> None:
    with Producer(bootstrap_servers=str(address), max_request_size=5000) as producer:
        for rows, options, words in (
            ([1, 2], {}, "table must be a pyarrow Table, RecordBatch or RecordBatchReader, not list"),
            (pa.table({"a": [1]}), {}, "neither a column 'key' nor 'value'; its columns are a"),
            (numbered(1), {"key": "id"}, "no column 'id' for key; its columns are value"),
            (pa.table([[b""], [b""]], names=["value", "value"]), {}, "2 columns named 'value'"),
            (pa.table({"value": [[1]]}), {}, "column value of type list"),
            (numbered(1, partition=["x"]), {}, "cannot be cast to int32 partitions"),
        ):
            with pytest.raises(MisuseError, match=words):
                producer.send_table("arrow-refused", rows, **options)
        with pytest.raises(RecordTooLargeError):
            producer.send_table("arrow-refused", pa.table({"value": [bytes(6000)]}))
        assert [] == producer.send_table("arrow-refused", numbered(0)).get(PATIENCE_SECONDS)
    with pytest.raises(ProducerClosedError):
        producer.send_table("arrow-refused", numbered(1))


def test_a_table_larger_than_the_memory_goes_through(address: Address) -> None:
    rows = pa.table({"value": [bytes(1000)] * 3000})
    with Producer(bootstrap_servers=str(address), buffer_memory=200_000, max_request_size=60_000) as producer:
        written = producer.send_table("arrow-large", rows).get(PATIENCE_SECONDS)
    assert 3000 == sum(each.row_count for each in written)
    assert 3000 == len(read_topic(address, "arrow-large")[0])


def test_batches_too_large_for_the_topic_are_split(address: Address) -> None:
    make_topic(address, "arrow-split", max_message_bytes="20000")
    with Producer(bootstrap_servers=str(address)) as producer:
        delivery = producer.send_table("arrow-split", pa.table({"value": [bytes(1000)] * 100}))
        written = delivery.get(PATIENCE_SECONDS)
        assert delivery.is_done
    assert len(written) > 1
    assert [sum(each.row_count for each in written[:place]) for place in range(len(written))] == [
        each.offset for each in written
    ]
    assert 100 == len(read_topic(address, "arrow-split")[0])


def test_single_records_and_tables_keep_their_order(address: Address) -> None:
    with Producer(bootstrap_servers=str(address), linger_ms=1000) as producer:
        producer.send("arrow-mixed", b"first")
        producer.send_table("arrow-mixed", numbered(2))
        producer.send("arrow-mixed", b"last")
    assert [b"first", b"0", b"1", b"last"] == values(read_topic(address, "arrow-mixed")[0])


def test_transactions_hold_tables(address: Address) -> None:
    with Producer(bootstrap_servers=str(address), transactional_id="arrow") as producer:
        producer.init_transactions()
        with pytest.raises(MisuseError, match="begin_transaction"):
            producer.send_table("arrow-transaction", numbered(1))
        for ends in ("abort", "commit"):
            producer.begin_transaction()
            producer.send_table("arrow-transaction", numbered(3, key=[ends] * 3)).get(PATIENCE_SECONDS)
            getattr(producer, f"{ends}_transaction")()
    options: Any = {"bootstrap_servers": str(address), "isolation_level": "read_committed"}
    with Consumer("arrow-transaction", auto_offset_reset="earliest", **options) as consumer:
        assert [b"commit"] * 3 == poll_all(consumer, 3)["key"].to_pylist()
    with RangeReader("arrow-transaction", 0, **options) as reader:
        assert [b"commit"] * 3 == pa.Table.from_batches(reader)["key"].to_pylist()
    with RangeReader("arrow-transaction", 0, bootstrap_servers=str(address)) as reader:
        assert [b"abort"] * 3 + [b"commit"] * 3 == pa.Table.from_batches(reader)["key"].to_pylist()


async def test_asyncio_sends_readers_and_polls(address: Address) -> None:
    pieces = [numbered(10).to_batches()[0], numbered(20).to_batches()[0]]
    reader = pa.RecordBatchReader.from_batches(pieces[0].schema, iter(pieces))
    async with AsyncProducer(bootstrap_servers=str(address), buffer_memory=200) as producer:
        written = await (await producer.send_table("arrow-async", reader))
    assert 30 == sum(each.row_count for each in written)
    assert len(written) > 2
    options: Any = {"bootstrap_servers": str(address)}
    async with AsyncConsumer("arrow-async", auto_offset_reset="earliest", **options) as consumer:
        found: list[bytes] = []
        while len(found) < 30:
            polled = await consumer.poll_arrow(SOON_MS, headers=False)
            assert [TopicPartition("arrow-async", 0)] == list(polled)
            for batch in polled.values():
                assert ["offset", "timestamp", "key", "value"] == batch.schema.names
                found += batch["value"].to_pylist()
        assert pa.concat_tables([numbered(10), numbered(20)])["value"].to_pylist() == found
        assert 30 == await consumer.position(TopicPartition("arrow-async", 0))
        assert {} == await consumer.poll_arrow(0)
        assert 0 == (await consumer.poll_table(0)).num_rows
    async with AsyncRangeReader("arrow-async", 0, 5, 12, headers=False, **options) as ranges:
        offsets = [offset async for batch in ranges for offset in batch["offset"].to_pylist()]
    assert list(range(5, 12)) == offsets
    before = asyncio.all_tasks()
    async with AsyncRangeReader("arrow-async", 0, 0, 1000, **options) as waiting:
        assert 0 == (await anext(aiter(waiting)))["offset"][0].as_py()
    assert before == asyncio.all_tasks()


def test_what_iterating_did_not_hand_out_comes_again(address: Address) -> None:
    with Producer(bootstrap_servers=str(address)) as producer:
        producer.send_table("arrow-iterated", numbered(10)).get(PATIENCE_SECONDS)
    with Consumer("arrow-iterated", bootstrap_servers=str(address), auto_offset_reset="earliest") as consumer:
        assert b"0" == next(consumer).value
        assert [b"%d" % row for row in range(1, 10)] == poll_all(consumer, 9)["value"].to_pylist()


def test_a_range_reader_reads_its_range_and_leaves_nothing_behind(address: Address) -> None:
    with Producer(bootstrap_servers=str(address)) as producer:
        producer.send_table("arrow-range", pa.table({"value": [bytes(1000)] * 5000})).get(PATIENCE_SECONDS)
    before = set(threading.enumerate())
    with RangeReader("arrow-range", 0, 100, 4100, bootstrap_servers=str(address), fetch_max_bytes=300_000) as reader:
        batches = list(reader)
    assert list(range(100, 4100)) == pa.Table.from_batches(batches)["offset"].to_pylist()
    assert len(batches) > 2
    with RangeReader("arrow-range", 0, bootstrap_servers=str(address), fetch_max_bytes=100_000) as reader:
        assert 0 == next(iter(reader))["offset"][0].as_py()
    with pytest.raises(MisuseError, match="closed"):
        next(iter(reader))
    with RangeReader("arrow-range", 0, 5000, bootstrap_servers=str(address)) as reader:
        assert [] == list(reader)
    with (
        RangeReader("arrow-range", 0, 9000, 9001, bootstrap_servers=str(address)) as reader,
        pytest.raises(AnswerError, match="OFFSET_OUT_OF_RANGE"),
    ):
        list(reader)
    assert set() == set(threading.enumerate()) - before


def test_ranges_that_make_no_sense_are_refused() -> None:
    with pytest.raises(MisuseError, match="end=4 is before start=5"):
        RangeReader("any", 0, 5, 4)
    with pytest.raises(MisuseError, match="start must be 0 or more, not -1"):
        AsyncRangeReader("any", 0, -1)
    wrong: Any = {"isolation": "x"}
    with pytest.raises(OptionError, match="did you mean isolation_level"):
        RangeReader("any", 0, **wrong)


def chunk(partition: TopicPartition, data: bytes, start: int) -> Chunk:
    batches, _, _ = scan(bytearray(data), check_crc=False)
    return Chunk(
        partition=partition,
        batches=batches,
        start=start,
        end=None,
        aborted=None,
        high_watermark=9,
        size_bytes=len(data),
    )


def test_damage_is_met_in_its_place_and_hidden_by_nothing() -> None:
    first, second = (bytes(encode(2, base_offset=offset, default_timestamp=MOMENT)[0]) for offset in (0, 2))
    damaged = second[:-1] + bytes([second[-1] ^ 1])
    bad, good = TopicPartition("damaged", 0), TopicPartition("damaged", 1)
    polled = decode_polled([chunk(good, first, 1), chunk(bad, first + damaged, 0), chunk(good, second, 2)])
    offsets = {partition: batch["offset"].to_pylist() for partition, batch in as_batches(polled.batches).items()}
    assert {good: [1, 2, 3], bad: [0, 1]} == offsets
    assert {bad: 2} == polled.rewinds
    assert polled.error is None
    polled = decode_polled([chunk(good, first, 1), chunk(bad, damaged, 2), chunk(good, second, 2)])
    assert {} == polled.batches
    assert {good: 1, bad: 2} == polled.rewinds
    assert isinstance(polled.error, CorruptBatchError)


def test_options_and_config_are_in_step() -> None:
    config = {field.name: get_type_hints(RangeReaderConfig)[field.name] for field in fields(RangeReaderConfig)}
    assert get_type_hints(RangeReaderOptions) == config
