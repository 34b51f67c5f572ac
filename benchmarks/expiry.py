"""What expiry costs on read: finding when records expire, and rewriting batches of which some have.

Measured is one core with batches of a thousand records, an 8-byte key, a 100-byte value and a header `ottla.ttl-ms`
each; half of the records have expired. Finding is done once for each batch; rewriting for each fetch of a batch in
which records have expired and others have not. The rival decodes the records to Python objects. `copy` copies the bytes
of the batch and computes its CRC. What a fetch costs if nothing has expired is in `queues`.
"""

from functools import partial

from benchmarks.measure import Goal, Result, interleaved, report
from ottla.model.queue_names import TTL_MS
from ottla.records.batch import Batch
from ottla.records.builder import build_batch
from ottla.records.decode import decode_records
from ottla.records.expiry import NO_TTL, drop_expired, expiry_bounds
from ottla.records.record import Record

BATCH_RECORDS = 1_000
BATCHES = 100
VALUE_BYTES = 100
NOW = 1_700_000_000_000
TTLS = (b"1000", b"2000")
GOALS = [Goal(rival="kernel", at_least=4.0)]


def produced(number: int) -> Batch:
    """A batch in which every second record expires a second earlier."""
    first = number * BATCH_RECORDS
    return Batch(
        build_batch(
            Record(first + at, NOW, b"%08d" % at, bytes([at & 0xFF]) * VALUE_BYTES, ((TTL_MS, TTLS[at & 1]),))
            for at in range(BATCH_RECORDS)
        )
    )


def expiry_of(headers: tuple[tuple[str, bytes | None], ...]) -> int:
    return NOW + int(dict(headers)[TTL_MS] or b"0")


def find(batches: list[Batch]) -> float:
    for batch in batches:
        if expiry_bounds(batch, NO_TTL) != (NOW + 1000, NOW + 2000):
            raise ValueError("wrong expiry")
    return len(batches) * BATCH_RECORDS


def find_record_by_record(batches: list[Batch]) -> float:
    for batch in batches:
        if min(expiry_of(record.headers) for record in decode_records(batch)) != NOW + 1000:
            raise ValueError("wrong expiry")
    return len(batches) * BATCH_RECORDS


def rewrite(batches: list[Batch]) -> float:
    for batch in batches:
        if drop_expired(batch, NO_TTL, NOW + 1000)[0] != BATCH_RECORDS // 2:
            raise ValueError("wrong records")
    return len(batches) * BATCH_RECORDS


def rewrite_record_by_record(batches: list[Batch]) -> float:
    for batch in batches:
        build_batch([record for record in decode_records(batch) if expiry_of(record.headers) > NOW + 1000])
    return len(batches) * BATCH_RECORDS


def copy(batches: list[Batch]) -> float:
    for batch in batches:
        if not Batch(bytearray(batch.buffer)).crc_valid():
            raise ValueError("a batch fails its checksum")
    return len(batches) * BATCH_RECORDS


def run(quick: bool = False) -> list[Result]:
    """Finding and rewriting."""
    batches = [produced(number) for number in range(BATCHES)]
    return [
        interleaved(
            {
                "kernel": partial(work, batches),
                "record by record": partial(rival, batches),
                "copy": partial(copy, batches),
            },
            title=f"{title}, {VALUE_BYTES}-byte values",
            unit="records",
            baseline="record by record",
            goals=GOALS,
            quick=quick,
        )
        for title, work, rival in (
            ("find expiries", find, find_record_by_record),
            ("rewrite without expired records", rewrite, rewrite_record_by_record),
        )
    ]


if __name__ == "__main__":
    report(run())
