"""Our codec against two others that share no code with it: what we write they read, and what they write we read."""

from collections.abc import Sequence
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from ottla.records.arrow import decode_arrow, encode_arrow
from ottla.records.batch import Batch
from ottla.records.builder import BatchBuilder, build_batch
from ottla.records.columns import decode
from ottla.records.control import marker_batch
from ottla.records.decode import decode_records
from ottla.records.layout import Codec, Marker
from ottla.records.record import Record
from tests.unit.records.record_strategies import header_lists, timestamps
from tests.unit.records.unpacked_columns import records_of

# kafka-python takes the other codecs from packages that this project does not use.
ORACLES = [
    ("aiokafka", AiokafkaBatch, AiokafkaBuilder, tuple(Codec)),
    ("kafka-python", KafkaPythonBatch, KafkaPythonBuilder, (Codec.NONE, Codec.GZIP)),
]
CASES = [(batch, builder, codec) for _, batch, builder, codecs in ORACLES for codec in codecs]
IDS = [f"{name}-{codec.name.lower()}" for name, _, _, codecs in ORACLES for codec in codecs]
oracles = pytest.mark.parametrize(("batch_class", "builder_class", "codec"), CASES, ids=IDS)

fields = st.none() | st.binary(max_size=60)
some_rows = st.lists(st.tuples(timestamps, fields, fields, header_lists), min_size=1, max_size=20)
# A batch holds the differences of timestamps in 64 bits. Kafka adds them in 64 bits, too; kafka-python does not.
rows = some_rows.filter(lambda found: max(row[0] for row in found) - min(row[0] for row in found) < 1 << 63)
Rows = Sequence[tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]]


def records_at(base_offset: int, found: Rows) -> list[Record]:
    return [Record(base_offset + index, *row) for index, row in enumerate(found)]


def read_by(batch_class: Any, data: bytes) -> list[Record]:
    """What the other parser finds; both want the CRC asked for."""
    batch = batch_class(data)
    assert batch.validate_crc()
    return [
        Record(
            record.offset,
            record.timestamp,
            record.key,
            record.value,
            tuple((key, value) for key, value in record.headers),
        )
        for record in batch
    ]


def written_by(builder_class: Any, codec: Codec, found: Rows) -> bytes:
    builder = builder_class(
        magic=2,
        compression_type=codec,
        is_transactional=1,
        producer_id=99,
        producer_epoch=4,
        base_sequence=12,
        batch_size=10**9,
    )
    for index, (timestamp, key, value, headers) in enumerate(found):
        assert builder.append(index, timestamp=timestamp, key=key, value=value, headers=list(headers)) is not None
    return bytes(builder.build())


def test_the_rival_is_the_compiled_one() -> None:
    assert "aiokafka.record._crecords.default_records" == AiokafkaBatch.__module__


@oracles
@given(found=rows)
def test_they_read_what_the_builder_writes(batch_class: Any, builder_class: Any, codec: Codec, found: Rows) -> None:
    records = records_at(7, found)
    assert records == read_by(batch_class, build_batch(records, codec=codec))


@oracles
@given(found=rows)
def test_they_read_what_the_columnar_kernel_writes(
    batch_class: Any, builder_class: Any, codec: Codec, found: Rows
) -> None:
    records = records_at(0, found)
    table, _ = decode_arrow(build_batch(records))
    batches = encode_arrow(table, codec=codec, batch_records_max=7)
    assert records == [record for batch in batches for record in read_by(batch_class, bytes(batch))]


@oracles
@given(found=rows)
def test_we_read_what_they_write(batch_class: Any, builder_class: Any, codec: Codec, found: Rows) -> None:
    data = written_by(builder_class, codec, found)
    batch = Batch(data)
    batch.check()
    assert records_at(0, found) == decode_records(batch) == records_of(decode(data))
    assert (99, 4, 12, True) == (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.is_transactional)
    assert (found[0][0], max(row[0] for row in found)) == (batch.base_timestamp, batch.max_timestamp)


@pytest.mark.parametrize("builder_class", [AiokafkaBuilder, KafkaPythonBuilder])
@given(found=rows)
def test_plain_batches_are_the_same_bytes(builder_class: Any, found: Rows) -> None:
    builder = BatchBuilder(producer_id=99, producer_epoch=4, base_sequence=12, transactional=True)
    for row in found:
        builder.append(*row)
    theirs = bytearray(written_by(builder_class, Codec.NONE, found))
    # The leader epoch is the broker's to set, and the others begin with 0.
    Batch(theirs).stamp(0, -1)
    assert bytes(theirs) == builder.build()


@pytest.mark.parametrize("batch_class", [AiokafkaBatch, KafkaPythonBatch])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_large_batches(batch_class: Any, codec: Codec) -> None:
    found = [(index, b"%d" % index, bytes(index % 5000), ()) for index in range(3000)]
    records = records_at(0, found)
    assert records == read_by(batch_class, build_batch(records, codec=codec))


@pytest.mark.parametrize("codec", Codec)
def test_large_batches_of_every_codec(codec: Codec) -> None:
    records = records_at(0, [(index, None, b"%d" % index * 300, ()) for index in range(3000)])
    assert records == read_by(AiokafkaBatch, build_batch(records, codec=codec))


@pytest.mark.parametrize("batch_class", [AiokafkaBatch, KafkaPythonBatch])
@pytest.mark.parametrize("marker", Marker)
def test_they_know_our_markers(batch_class: Any, marker: Marker) -> None:
    data = marker_batch(marker, producer_id=5, producer_epoch=1, coordinator_epoch=2, timestamp=3)
    batch = batch_class(data)
    assert batch.validate_crc()
    assert (True, True, 5) == (batch.is_control_batch, batch.is_transactional, batch.producer_id)
    assert [(0).to_bytes(2, "big") + int(marker).to_bytes(2, "big")] == [bytes(record.key) for record in batch]
