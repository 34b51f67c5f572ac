"""Feeds the kernels damaged batches, lying columns and damaged requests until the time is up.

Headers have their targets in `headers.py`, committed offsets in `offsets.py`, other requests of groups in
`group_requests.py`, the client in `clients.py`, Avro and Protobuf values in `schemas.py`, JSON in `documents.py`. What
may come of it: a result, or one of our own errors. Two readers that share only their innermost parser must agree on
each batch. Reads and writes outside a buffer are found by the sanitizer, which ends the process; started by `run`.
"""

import argparse
import sys
import time
from array import array
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random

import ottla.records.batch
from ottla.model.errors import OttlaError
from ottla.model.ids import TimestampMs
from ottla.protocol.scan import BrokenRequest, FetchRequest, ProduceRequest, scan_requests
from ottla.records.batch import Batch, crc32c, crc32c_by_table, find_batch, scan, whole_bytes
from ottla.records.columns import decode
from ottla.records.columns_encode import encode
from ottla.records.compaction import OffsetMap, compact_batch, empty_batch, stamp_horizon
from ottla.records.compression import compress, decompress
from ottla.records.control import read_marker
from ottla.records.decode import decode_records
from ottla.records.expiry import drop_expired, expiries, expiry_bounds
from ottla.records.layout import Codec, TimestampType
from ottla.records.recompress import recompress
from ottla.records.record import Record
from ottla.storage.batch_validation import validate
from ottla.storage.log_config import LogConfig
from ottla.storage.segments.search import find_batch_header, first_disorder, last_slot_at_most
from tests.fuzz import clients, damage, documents, group_requests, headers, offsets, requests, schemas
from tests.unit.records.unpacked_columns import records_of

LIMIT = 1 << 20
FIELDS = [name for name in dir(Batch) if not name.startswith("_") and not callable(getattr(Batch, name))]


def walk(chance: Random) -> None:
    """Every walk over a log, and every field of each batch in it."""
    data = damage.log(chance)
    position = chance.randrange(len(data) + 1) if chance.random() < 0.2 else 0
    batches, end, _ = scan(data, position, check_crc=chance.random() < 0.5)
    if position + sum(batch.size_bytes for batch in batches) != end:
        raise AssertionError(f"batches do not add up to {end}")
    whole_bytes(data, position)
    for offset in (0, 3, 2**40, 2**63 - 1):
        with suppress(OttlaError):
            find_batch(data, offset, position)
    for batch in batches:
        for name in FIELDS:
            getattr(batch, name)
        with suppress(OttlaError):
            batch.check()
    if crc32c(data) != crc32c_by_table(data):
        raise AssertionError("the two ways to a checksum differ")


def stamp(chance: Random) -> None:
    """Stamps on whatever passes for a batch."""
    data = damage.log(chance)
    for batch in scan(data, check_crc=False)[0]:
        batch.stamp(chance.getrandbits(60), chance.getrandbits(30))
        batch.stamp_append_time(chance.getrandbits(60))
        batch.stamp_producer(1, 2, 3)
        if not batch.crc_valid():
            raise AssertionError("a stamped batch fails its own checksum")


def survey(chance: Random) -> None:
    """What a leader makes of any batch: the kernel's two walks and the readers agree on what is well formed."""
    data = damage.log(chance)
    config = LogConfig(
        cleanup_compact=chance.random() < 0.3,
        compression=chance.choice((None, None, Codec.LZ4)),
        timestamp_type=chance.choice((TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME)),
    )
    for batch in scan(data, check_crc=False)[0]:
        batch.stamp_producer(-1, -1, -1)
        try:
            stored = validate(batch, config, TimestampMs(chance.getrandbits(42)))
        except OttlaError:
            continue
        largest = max(record.timestamp for record in decode_records(stored, LIMIT))
        if max(largest, -1) != stored.max_timestamp or not stored.crc_valid():
            raise AssertionError(f"a batch was stored with the largest timestamp {stored.max_timestamp}: {largest}")


def read(chance: Random) -> None:
    """Columns of a whole log, going on behind each stop, with every option."""
    data = damage.log(chance)
    position = 0
    while True:
        try:
            columns = decode(
                data,
                position,
                start_offset=chance.choice((0, 0, 3, 2**40 + 2)),
                end_offset=chance.choice((None, None, 7, 2**40 + 9)),
                headers=chance.random() < 0.7,
                check_crc=chance.random() < 0.5,
                limit=chance.choice((LIMIT, 300)),
                aborted=chance.choice((None, [], [(0, 0), (1, 3)])),
            )
        except OttlaError:
            return
        records_of(columns)
        position += columns.consumed_bytes
        if columns.error is None:
            return


def _records_in(whole: "array[int]") -> list[Record]:
    return records_of(decode(whole, check_crc=False, limit=LIMIT))


def agree(chance: Random) -> None:
    """The two readers see the same in every batch, or both refuse it; so does a batch in another codec."""
    data = damage.log(chance)
    for batch in scan(data, check_crc=False)[0]:
        whole = damage.exact(batch.buffer)
        outcomes: list[list[Record] | type[OttlaError]] = []
        readers: list[Callable[[], list[Record]]] = [
            partial(decode_records, batch, LIMIT),
            partial(_records_in, whole),
        ]
        for reader in readers:
            try:
                outcomes.append(reader())
            except OttlaError as error:
                outcomes.append(type(error))
        if not batch.is_control and outcomes[0] != outcomes[1]:
            raise AssertionError(f"{batch} reads as {outcomes[0]} and as {outcomes[1]}")
        with suppress(OttlaError):
            read_marker(batch)
        with suppress(OttlaError):
            again = Batch(recompress(batch, chance.choice(list(Codec)), limit=LIMIT))
            if isinstance(outcomes[0], list) and outcomes[0] != decode_records(again):
                raise AssertionError(f"{batch} reads otherwise in another codec")


def unpack(chance: Random) -> None:
    """Compressed bytes with damage, within the limit."""
    codec = chance.choice(list(Codec))
    data = compress(codec, chance.randbytes(chance.randrange(50)) * chance.randrange(1, 60))
    with suppress(OttlaError):
        if len(decompress(codec, damage.damaged_bytes(chance, data), LIMIT)) > LIMIT:
            raise AssertionError("more than the limit came out")


def write(chance: Random) -> None:
    """Batches of columns that may lie; what is written can be read."""
    rows = chance.randrange(0, 30)
    order = None
    if chance.random() < 0.5:
        beyond = chance.choice((0, 0, 1))
        order = array("i", [chance.randrange(rows + beyond) for _ in range(chance.randrange(40)) if rows + beyond])
    with suppress(OttlaError):
        batches = encode(
            rows,
            keys=damage.column(chance, rows) if chance.random() < 0.7 else None,
            values=damage.column(chance, rows),
            headers=damage.headers_column(chance, rows) if chance.random() < 0.5 else None,
            batch_bytes_max=chance.choice((1, 100, 500, 10**6)),
            batch_records_max=chance.choice((1, 3, 1000)),
            codec=chance.choice((Codec.NONE, *Codec)),
            order=None if order is None else damage.exact(order.tobytes()),
        )
        for batch in batches:
            Batch(batch).check()
        if (rows if order is None else len(order)) != sum(decode(batch).count for batch in batches):
            raise AssertionError("rows were lost")


def compact(chance: Random) -> None:
    """Both passes of compaction: what stays are records that were there, in a batch that is whole."""
    data = damage.log(chance)
    known = OffsetMap(chance.choice((1 << 10, 1 << 13)), bytes(16))
    batches = [Batch(damage.exact(batch.buffer)) for batch in scan(data, check_crc=False)[0]]
    for batch in batches:
        with suppress(OttlaError):
            known.add(batch, chance.choice((0, 3, 2**40)))
    for batch in batches:
        with suppress(OttlaError):
            kept, content = compact_batch(
                batch, known, end_offset=chance.choice((0, 7, 2**62)), now=chance.getrandbits(50), horizon=2**50
            )
            if content is None:
                continue
            left = Batch(content)
            left.check()
            before = [(record.offset, record.key, record.value, record.headers) for record in decode_records(batch)]
            after = [(record.offset, record.key, record.value, record.headers) for record in decode_records(left)]
            if kept != len(after) or not set(after) <= set(before):
                raise AssertionError(f"{batch}: {after} were not in {before}")
        with suppress(OttlaError):
            Batch(empty_batch(batch)).check()
        with suppress(OttlaError):
            Batch(stamp_horizon(batch, 2**50)).check()


def expire(chance: Random) -> None:
    """What has not expired are records that were there, in a batch that is whole."""
    ttl_ms, now = chance.choice((-1, 0, 1000, 2**62)), chance.getrandbits(42)
    for found in scan(damage.log(chance), check_crc=False)[0]:
        batch = Batch(damage.exact(found.buffer))
        with suppress(OttlaError):
            earliest, latest = expiry_bounds(batch, ttl_ms)
            pairs = expiries(batch, ttl_ms)
            kept, content = drop_expired(batch, ttl_ms, now)
            if earliest > latest or len(pairs) > 2 * batch.count or (content is not None) != (0 < kept < batch.count):
                raise AssertionError(f"{batch}: expires from {earliest} to {latest}, {len(pairs)} numbers, {kept} kept")
            if content is not None:
                left = Batch(content)
                left.check()
                if not set(decode_records(left)) <= set(decode_records(batch)):
                    raise AssertionError(f"{batch}: {decode_records(left)} were not in it")


def search(chance: Random) -> None:
    """Bisection and header walks over bytes that are no index and no segment."""
    noise = chance.choice((bytes(damage.log(chance)), chance.randbytes(chance.randrange(200))))
    data = memoryview(damage.exact(noise))
    count = chance.choice((0, 1, 7, 10**6))
    for entry_bytes, wide in ((8, False), (12, True)):
        slot = last_slot_at_most(data, count, entry_bytes, wide, chance.getrandbits(63))
        if not -1 <= slot < max(count, 1):
            raise AssertionError(f"slot {slot} of {count}")
        first_disorder(data, count, entry_bytes, wide)
    find_batch_header(data, chance.getrandbits(62), chance.getrandbits(40), chance.getrandbits(62))


def serve(chance: Random) -> None:
    """Requests out of bytes that may be none, and their answers: frames that add up."""
    data = requests.arrived(chance)
    start = chance.randrange(len(data) + 1) if chance.random() < 0.1 else 0
    found, position, size = scan_requests(data, start, len(data), LIMIT)
    at = start
    for request in found:
        if not at == request.start <= request.body_start <= request.end <= len(data):
            raise AssertionError(f"{request} does not begin at {at}, or ends behind {len(data)}")
        at = request.start if isinstance(request, BrokenRequest) else request.end
        pieces: list[bytes | object] = []
        if isinstance(request, ProduceRequest):
            if any(not request.start < part[2] <= part[2] + max(part[3], 0) <= request.end for part in request.parts):
                raise AssertionError(f"{request} has records outside of it: {request.parts}")
            results = [requests.produce_result(chance) for _ in request.parts]
            pieces = [request.answer(results, requests.endpoints(chance), 0)]
        elif isinstance(request, FetchRequest):
            parts = [requests.fetch_result(chance, wanted[0], wanted[1]) for wanted in request.wanted]
            pieces = request.answer(0, 0, parts, requests.endpoints(chance), 0)
        answer = b"".join(pieces)  # type: ignore[arg-type]
        if pieces and int.from_bytes(answer[:4], "big") != len(answer) - 4:
            raise AssertionError(f"{request} is answered with {len(answer)} bytes that begin with {answer[:4]!r}")
    if position != at or not (size == 0 or size > len(data) - position):
        raise AssertionError(f"the next frame is at {at}, not at {position} with {size} bytes")


TARGETS: tuple[Callable[[Random], None], ...] = (
    *(walk, stamp, survey, read, read, agree, agree, unpack, write, compact, compact, expire, search, serve, serve),
    *(offsets.commit, offsets.commit, offsets.write_offsets, offsets.read_offsets, offsets.read_offsets),
    *(group_requests.heartbeat, group_requests.acknowledge, documents.fields, documents.fields),
    *(group_requests.join, group_requests.sync, group_requests.classic_heartbeat),
    *(headers.edit, headers.edit, headers.pick, headers.pick),
    *(clients.consume, clients.consume, clients.hash_key, clients.deliver, clients.split),
    *(schemas.avro, schemas.avro, schemas.avro_columns, schemas.protobuf_columns, schemas.protobuf_columns),
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests/fuzz/run", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long (default 60)")
    parser.add_argument("--seed", type=int, default=None, help="of all rounds; the clock by default")
    parser.add_argument("--only", type=int, default=None, metavar="ROUND", help="repeat this round alone")
    parser.add_argument("--built-in", type=Path, default=None, help=argparse.SUPPRESS)
    parser.add_argument("--trace", type=Path, default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    built = Path(ottla.records.batch.__file__)
    if options.built_in is not None and not built.is_relative_to(options.built_in):
        print(f"the kernels come from {built}, not from {options.built_in}: nothing would be found", file=sys.stderr)
        return 2
    seed = time.time_ns() % 10**9 if options.seed is None else options.seed
    trace = open(options.trace or "/dev/null", "w", encoding="utf-8", buffering=1)  # noqa: SIM115  # open until the end
    deadline = time.monotonic() + options.seconds
    number = options.only or 0
    with trace:
        while time.monotonic() < deadline:
            target = TARGETS[number % len(TARGETS)]
            trace.seek(0)
            trace.write(f"round {number} ({target.__name__}): --seed {seed} --only {number}\n")
            target(Random(f"{seed}/{number}"))
            number += 1
            if options.only is not None:
                break
    print(f"{number} rounds with seed {seed}: nothing found", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
