"""Records to columns and back, against the record parsers of aiokafka (its C extension) and kafka-python.

Measured is one core turning a log of 100,000 records, an 8-byte key and a 100-byte value each, uncompressed, into what
its user works with. Reading: from the bytes of a fetch answer, every batch's CRC checked. We hand over Arrow arrays of
offset, timestamp, key, value and headers; the rivals hand over an object per record, of which the loop takes offset,
timestamp, key and value. Writing: to whole batches of a thousand records with their CRC, from an Arrow table for us,
from a loop over ready Python tuples for the rivals. What a program then does with columns or objects is not measured.
"""

from typing import Any

import pyarrow as pa
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

from benchmarks.measure import Goal, Result, interleaved, report
from ottla.records.arrow import decode_arrow, encode_arrow

RECORDS = 100_000
BATCH_RECORDS = 1_000
VALUE_BYTES = 100
TURNS = 5  # of ours in one call, or it would be over before the clock notices
FIRST_TIMESTAMP = 1_700_000_000_000
GOALS = [
    Goal(rival="ottla", at_least=40.0, against="kafka-python"),
    Goal(rival="ottla", at_least=3.5, against="aiokafka"),
]


def rows() -> list[tuple[int, bytes, bytes]]:
    """Timestamp, key and value of each record; no two are the same object."""
    return [
        (FIRST_TIMESTAMP + number, b"%08d" % number, (b"%d " % number * VALUE_BYTES)[:VALUE_BYTES])
        for number in range(RECORDS)
    ]


def table_of(records: list[tuple[int, bytes, bytes]]) -> pa.RecordBatch:
    timestamps, keys, values = zip(*records, strict=True)
    return pa.record_batch({"timestamp": pa.array(timestamps), "key": pa.array(keys), "value": pa.array(values)})


def read_columns(log: bytes) -> float:
    return float(sum(decode_arrow(log)[0].num_rows for _ in range(TURNS)))


def read_objects(records_class: Any, log: bytes) -> float:
    records = records_class(log)
    count = 0
    while records.has_next():
        batch = records.next_batch()
        if not batch.validate_crc():
            raise ValueError("a batch fails its checksum")
        for record in batch:
            _ = (record.offset, record.timestamp, record.key, record.value)
            count += 1
    return count


def write_columns(table: pa.RecordBatch) -> float:
    for _ in range(TURNS):
        batches = encode_arrow(table, batch_records_max=BATCH_RECORDS)
        if len(batches) != RECORDS // BATCH_RECORDS:
            raise ValueError(f"{len(batches)} batches are not what the rivals write")
    return RECORDS * TURNS


def write_objects(builder_class: Any, records: list[tuple[int, bytes, bytes]]) -> float:
    batches = []
    for start in range(0, RECORDS, BATCH_RECORDS):
        builder = builder_class(
            magic=2,
            compression_type=0,
            is_transactional=0,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            batch_size=1 << 30,
        )
        for offset, (timestamp, key, value) in enumerate(records[start : start + BATCH_RECORDS]):
            builder.append(offset, timestamp=timestamp, key=key, value=value, headers=[])
        batches.append(builder.build())
    return RECORDS


def run(quick: bool = False) -> list[Result]:
    """Both ways, all three in turn."""
    if "_crecords" not in AiokafkaBatch.__module__:
        raise RuntimeError("aiokafka runs without its C extension: the comparison would be unfair")
    records = rows()
    table = table_of(records)
    log = b"".join(encode_arrow(table, batch_records_max=BATCH_RECORDS))
    return [
        interleaved(
            {
                "ottla": lambda: read_columns(log),
                "aiokafka": lambda: read_objects(AiokafkaRecords, log),
                "kafka-python": lambda: read_objects(KafkaPythonRecords, log),
            },
            title=f"read {VALUE_BYTES}-byte values",
            unit="records",
            baseline="kafka-python",
            goals=GOALS,
            quick=quick,
        ),
        interleaved(
            {
                "ottla": lambda: write_columns(table),
                "aiokafka": lambda: write_objects(AiokafkaBuilder, records),
                "kafka-python": lambda: write_objects(KafkaPythonBuilder, records),
            },
            title=f"write {VALUE_BYTES}-byte values",
            unit="records",
            baseline="kafka-python",
            goals=GOALS,
            quick=quick,
        ),
    ]


if __name__ == "__main__":
    report(run())
