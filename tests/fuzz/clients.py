"""The client's kernels: damaged batches that were fetched, keys of any size, rows to split, deliveries in pieces.

The reader of records is compared with `decode_records`, the hash with itself in Python, and the deliveries with a list.
`kernels.py` calls the targets here.
"""

from itertools import pairwise
from random import Random
from struct import pack
from typing import Any, NamedTuple

from ottla.client.producer.batching.deliveries import BatchPromise
from ottla.client.producer.tables.row_split import split_rows
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.records.aborted import AbortedTransactions
from ottla.records.batch import Batch, scan
from ottla.records.decode import decode_records
from ottla.records.murmur2 import murmur2, partition_for_key
from ottla.records.packed import BinaryColumn
from ottla.records.record_reader import RecordReader
from tests.fuzz import damage

PLACE = TopicPartition("t", 3)


class Row(NamedTuple):
    """A record as a consumer gets it."""

    topic: str
    partition: int
    leader_epoch: int | None
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    serialized_key_size: int
    serialized_value_size: int


def consume(chance: Random) -> None:
    """Portions of any size add up to what the other reader finds, as far as both can read."""
    data = damage.log(chance)
    start = chance.choice((0, 0, 3, 2**40 + 2))
    aborted = chance.choice((None, [], [(0, 0), (1, 3)]))
    batches = [Batch(damage.exact(batch.buffer)) for batch in scan(data, check_crc=False)[0]]
    expected, damaged_at = _records(batches, start, aborted)
    reader = RecordReader(Row, *PLACE, batches, start, aborted, check_crcs=False)
    found: list[Row] = []
    try:
        while not reader.is_done:
            count = chance.choice((0, 1, 2, 100))
            some = reader.read(count)
            if len(some) > count:
                raise AssertionError(f"{len(some)} records where {count} were asked for")
            found += some
    except OttlaError:
        if damaged_at is None:
            raise
    else:
        # Headers of a record that nobody wants are not looked at.
        if damaged_at is not None and damaged_at[0] <= batches[damaged_at[1]].base_offset:
            raise AssertionError(f"{batches} are read to their end, and are damaged")
    # Of a damaged batch, this reader gives the records before the damage.
    if expected != (found if damaged_at is None else found[: len(expected)]):
        raise AssertionError(f"{batches} read as {found}, and one by one as {expected}")


def _records(
    batches: list[Batch], start: int, aborted: list[tuple[int, int]] | None
) -> tuple[list[Row], tuple[int, int] | None]:
    """The records of all batches up to the first that is damaged; the offset wanted then, and which one it is."""
    rows: list[Row] = []
    transactions = AbortedTransactions(aborted or [])
    position = start
    for at, batch in enumerate(batches):
        try:
            is_aborted = aborted is not None and transactions.covers(batch)
            if not is_aborted and not batch.is_control:
                rows += [_row(batch, record) for record in decode_records(batch) if record.offset >= position]
        except OttlaError:
            return rows, (position, at)
        # A broker's batches never go back; where they seem to, what was passed stays passed.
        position = max(position, batch.next_offset)
    return rows, None


def _row(batch: Batch, record: Any) -> Row:
    return Row(
        *PLACE,
        batch.leader_epoch if batch.leader_epoch >= 0 else None,
        record.offset,
        record.timestamp,
        batch.timestamp_type,
        record.key,
        record.value,
        record.headers,
        -1 if record.key is None else len(record.key),
        -1 if record.value is None else len(record.value),
    )


def hash_key(chance: Random) -> None:
    """The hash of any bytes, in memory that ends where they do."""
    key = damage.exact(chance.randbytes(chance.choice((0, 1, 2, 3, 4, 5, 7, 8, chance.randrange(300)))))
    expected = _murmur2(bytes(key))
    partitions = chance.choice((1, 2, 3, 2**31 - 1))
    for form in (key, bytes(key)):
        if (expected, (expected & 0x7FFFFFFF) % partitions) != (murmur2(form), partition_for_key(form, partitions)):
            raise AssertionError(f"{key!r} hashes to {murmur2(form)}, not {expected}")


def _murmur2(key: bytes) -> int:
    mask, factor = 0xFFFFFFFF, 0x5BD1E995
    value = 0x9747B28C ^ len(key)
    whole = len(key) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(key[at : at + 4], "little") * factor & mask
        word = (word ^ word >> 24) * factor & mask
        value = value * factor & mask ^ word
    if whole < len(key):
        value = (value ^ int.from_bytes(key[whole:], "little")) * factor & mask
    value = (value ^ value >> 13) * factor & mask
    return value ^ value >> 15


def deliver(chance: Random) -> None:
    """Whatever becomes of a batch, each of its records is told once, and by the piece that it ended in."""
    count = chance.randrange(1, 12)
    promise = BatchPromise(PLACE)
    deliveries = [promise.record(index, b"k", None) for index in range(count)]
    told = [0] * count
    fates: list[int | None] = [None] * count

    def listen(index: int) -> None:
        def on_known(outcome: object) -> None:
            told[index] += 1

        deliveries[index].add_both(on_known)

    for index in range(count):
        if chance.random() < 0.7:
            listen(index)
    _settle(chance, promise, 0, fates)
    for index, delivery in enumerate(deliveries):
        if told[index] == 0:
            listen(index)
        written = delivery.value
        found = None if written is None else written.offset
        if (
            fates[index] != found
            or told[index] != 1
            or not delivery.is_done
            or delivery.succeeded() != (found is not None)
        ):
            raise AssertionError(
                f"record {index} is told {told[index]} times that it is at {found}, not {fates[index]}"
            )


def _settle(chance: Random, promise: BatchPromise, first: int, fates: list[int | None]) -> None:
    """Splits the batch some times, and ends each piece; `fates` are the offsets that its records get."""
    if promise.count > 1 and chance.random() < 0.6:
        cut = chance.randrange(promise.count + 1)
        pieces = [
            BatchPromise(PLACE, count=size) for size in (cut, promise.count - cut) if size or chance.random() < 0.5
        ]
        promise.split(pieces)
        for piece in pieces:
            _settle(chance, piece, first, fates)
            first += piece.count
    elif chance.random() < 0.3:
        promise.fail(RuntimeError("not written"))
    else:
        base_offset = chance.getrandbits(40)
        promise.succeed(base_offset)
        fates[first : first + promise.count] = range(base_offset, base_offset + promise.count)


def split(chance: Random) -> None:
    """Rows go to partitions that are there, each once and in order, or the buffers are refused."""
    count = chance.choice((0, 1, 7, 8, 9, 100, 1000))
    partitions = chance.choice((1, 2, 3, 1000))
    chosen = None
    if chance.random() < 0.5:
        wild = chance.random() < 0.2
        numbers = [chance.randrange(-2, partitions + 2) if wild else chance.randrange(-1, partitions)] * count
        chosen = _cut(chance, pack(f"={count}i", *numbers))
    order, bounds = bytearray(), [0]
    try:
        order, bounds = split_rows(
            count,
            partitions=partitions,
            keys=_keys(chance, count) if chance.random() < 0.8 else None,
            chosen=chosen,
            keyless=[chance.randrange(partitions) for _ in range(chance.choice((1, 2, 5)))],
            keyless_run=chance.choice((1, 3, 2**31 - 1)),
        )
    except OttlaError:
        return
    rows = memoryview(order).cast("i").tolist()
    if sorted(rows) != list(range(count)) or bounds != sorted(bounds) or (bounds[0], bounds[-1]) != (0, count):
        raise AssertionError(f"{count} rows are split at {bounds} into {rows}")
    if any(rows[start:end] != sorted(rows[start:end]) for start, end in pairwise(bounds)):
        raise AssertionError(f"rows of a partition are out of order: {rows}, {bounds}")


def _keys(chance: Random, count: int) -> BinaryColumn:
    """A column of keys whose buffers may be too short, and whose offsets may lie."""
    start, wide = chance.choice((0, 0, 1, 8)), chance.random() < 0.3
    ends = [0]
    for _ in range(start + count):
        ends.append(ends[-1] + chance.choice((0, 1, 3, 4, 50)))
    if chance.random() < 0.3:
        ends[chance.randrange(len(ends))] = chance.choice((-1, -(2**31), 2**31 - 1, ends[-1] + 1, 0))
    data = chance.randbytes(max(ends[-1], 0) if ends[-1] < 2**20 else 10)
    validity = chance.randbytes((start + count + 7) // 8) if chance.random() < 0.7 else None
    return BinaryColumn(
        validity=None if validity is None else _cut(chance, validity),
        offsets=_cut(chance, pack(f"={len(ends)}{'q' if wide else 'i'}", *ends)),
        data=_cut(chance, data),
        start=start,
        wide=wide,
    )


def _cut(chance: Random, data: bytes) -> Any:
    """The same bytes in memory of their own, at times without the last ones."""
    if data and chance.random() < 0.1:
        data = data[: chance.randrange(len(data))]
    return damage.exact(data)
