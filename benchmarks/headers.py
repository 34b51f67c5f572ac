"""Headers of records, found, replaced and delivered by the kernels, against the same record by record.

Measured is one core with batches of a thousand records, an 8-byte key, a 100-byte value and a header `ottla.delay-ms`
each. Admitting is what the gate of a delayed topic does to a produced batch: read the delay of each record, remove
headers that only the broker may set, add the due time. Picking is what a delivery does: make a batch of a thousand
records in any order, out of a hundred batches, with their origin as another header. The rival decodes the records to
Python objects and appends them to a `BatchBuilder`. `copy` copies the bytes of the batch and computes its CRC.
"""

from array import array
from random import Random

from benchmarks.measure import Goal, Result, interleaved, report
from ottla.model.ids import TimestampMs
from ottla.model.queue_names import BROKER_HEADERS, DELAY_MS, DUE_MS, ORIGIN
from ottla.queues.gate import Gate
from ottla.queues.kinds.delay_admission import DelayAdmission
from ottla.records.batch import Batch
from ottla.records.builder import BatchBuilder
from ottla.records.decode import decode_records
from ottla.records.header_edit import HeaderNames
from ottla.records.header_stamp import Stamp
from ottla.records.picking import RecordBlock, pick_batch
from ottla.records.record import Headers, Record

BATCH_RECORDS = 1_000
BATCHES = 100
VALUE_BYTES = 100
NOW = TimestampMs(1_700_000_000_000)
ORIGIN_PREFIX = b"orders.delayed/3/"
GATE = Gate(DelayAdmission(delay_ms=0, delay_max_ms=10**12).admit)
GOALS = [Goal(rival="kernels", at_least=4.0)]


def produced(number: int) -> Batch:
    """A batch as a client sends it, stamped with its place in the log."""
    builder = BatchBuilder()
    for at in range(BATCH_RECORDS):
        delay = (("trace", b"0123456789abcdef"), (DELAY_MS, b"%d" % (at * 3)))
        builder.append(NOW + at, b"%08d" % at, bytes([at & 0xFF]) * VALUE_BYTES, delay)
    batch = Batch(bytearray(builder.build()))
    batch.stamp(number * BATCH_RECORDS, 0)
    return batch


def admit(batches: list[Batch]) -> float:
    for batch in batches:
        GATE.admit(batch, NOW)
    return len(batches) * BATCH_RECORDS


def admit_record_by_record(batches: list[Batch]) -> float:
    for batch in batches:
        batch.check()
        builder = BatchBuilder()
        for record in decode_records(batch):
            delay = int(dict(record.headers)[DELAY_MS] or b"0")
            kept = tuple(header for header in record.headers if header[0] not in BROKER_HEADERS)
            due: Headers = (*kept, (DUE_MS, b"%d" % (NOW + delay)))
            builder.append(record.timestamp, record.key, record.value, due)
        builder.build()
    return len(batches) * BATCH_RECORDS


def copy(batches: list[Batch]) -> float:
    for batch in batches:
        if not Batch(bytearray(batch.buffer)).crc_valid():
            raise ValueError("a batch fails its checksum")
    return len(batches) * BATCH_RECORDS


def pick(blocks: list[RecordBlock], deliveries: list["array[int]"]) -> float:
    drop = HeaderNames(ORIGIN)
    for offsets in deliveries:
        pick_batch(blocks, offsets, drop=drop, stamps=[Stamp(ORIGIN, offsets, ORIGIN_PREFIX)])
    return sum(len(offsets) for offsets in deliveries)


def pick_record_by_record(records: list[Record], deliveries: list["array[int]"]) -> float:
    for offsets in deliveries:
        builder = BatchBuilder()
        for offset in offsets:
            record = records[offset]
            kept = tuple(header for header in record.headers if header[0] != ORIGIN)
            origin: Headers = (*kept, (ORIGIN, ORIGIN_PREFIX + b"%d" % offset))
            builder.append(record.timestamp, record.key, record.value, origin)
        builder.build()
    return sum(len(offsets) for offsets in deliveries)


def run(quick: bool = False) -> list[Result]:
    """Admitting and picking."""
    batches = [produced(number) for number in range(BATCHES)]
    parked = [GATE.admit(batch, NOW) for batch in batches]
    blocks = [RecordBlock(batch) for batch in parked]
    records = [record for batch in parked for record in decode_records(batch)]
    order = array("q", Random(1).sample(range(len(records)), len(records)))
    deliveries = [order[at : at + BATCH_RECORDS] for at in range(0, len(order), BATCH_RECORDS)]
    return [
        interleaved(
            {
                "kernels": lambda: admit(batches),
                "record by record": lambda: admit_record_by_record(batches),
                "copy": lambda: copy(batches),
            },
            title=f"admit {VALUE_BYTES}-byte values with a delay",
            unit="records",
            baseline="record by record",
            goals=GOALS,
            quick=quick,
        ),
        interleaved(
            {
                "kernels": lambda: pick(blocks, deliveries),
                "record by record": lambda: pick_record_by_record(records, deliveries),
                "copy": lambda: copy(batches),
            },
            title=f"pick {VALUE_BYTES}-byte values in any order",
            unit="records",
            baseline="record by record",
            quick=quick,
        ),
    ]


if __name__ == "__main__":
    report(run())
