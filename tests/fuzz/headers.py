"""The header kernels: damaged batches whose headers are found, replaced, and whose records are picked.

What can be read is compared with `decode_records`. `kernels.py` calls the targets here.
"""

from array import array
from contextlib import suppress
from random import Random

from ottla.model.errors import OttlaError
from ottla.records.batch import Batch, scan
from ottla.records.decode import decode_records
from ottla.records.header_edit import HeaderNames, find_headers, find_numbers, replace_headers
from ottla.records.header_stamp import Stamp
from ottla.records.layout import Codec
from ottla.records.payload import read_payload
from ottla.records.picking import RecordBlock, count_fitting, pick_batch
from ottla.records.record import Record
from ottla.records.schema_frames import schema_frames
from tests.fuzz import damage

LIMIT = 1 << 20


def edit(chance: Random) -> None:
    """Found headers are those that the other reader finds; a batch with other headers has the same records."""
    for found in scan(damage.log(chance), check_crc=False)[0]:
        batch = Batch(damage.exact(found.buffer))
        records = _records(batch)
        names = HeaderNames(*_some_names(chance, records or []))
        with suppress(OttlaError):
            payload = damage.exact(read_payload(batch, LIMIT))
            headers = find_headers(payload, batch.count, names)
            frames = schema_frames(payload, batch.count, names, chance.random() < 0.5, 1 + chance.randrange(20))
            if any(frame is not None and len(frame) > 17 for frame in frames):
                raise AssertionError(f"{batch}: {frames} are not schema ids")
            if any(len(column) != batch.count for column in find_numbers(payload, batch.count, names)):
                raise AssertionError(f"{batch}: not a number for each record")
            expected = [at for at, record in enumerate(records or []) if names_of(record) & set(names.names)]
            if records is not None and expected != [at for at, _ in headers]:
                raise AssertionError(f"{batch}: {headers} found, not in {expected}")
            numbers = damage.exact(array("q", [chance.getrandbits(63) - 2**62 for _ in range(batch.count)]).tobytes())
            stamps = [Stamp("n", numbers, chance.randbytes(chance.randrange(4)))]
            added = {chance.randrange(batch.count): (("a", None), ("b", b"x" * 100))} if batch.count else None
            edited = Batch(replace_headers(batch, drop=names, stamps=stamps, added=added, payload=payload, limit=LIMIT))
            if not edited.crc_valid():
                raise AssertionError(f"{batch}: edited with a wrong checksum")
            if records is not None and _without_headers(records) != _without_headers(decode_records(edited)):
                raise AssertionError(f"{batch}: edited to other records")


def pick(chance: Random) -> None:
    """A block has the records that the other reader finds; picked records are the same at other offsets."""
    blocks: list[RecordBlock] = []
    by_offset: dict[int, Record] = {}
    for found in scan(damage.log(chance), check_crc=False)[0]:
        batch = Batch(damage.exact(found.buffer))
        records = _records(batch)
        with suppress(OttlaError):
            block = RecordBlock(batch, limit=LIMIT)
            if records is None or [block.record(record.offset) for record in records] != records:
                raise AssertionError(f"{batch}: its block has other records than {records}")
            if block.count and block.first_offset > (blocks[-1].last_offset if blocks else -1):
                blocks.append(block)
                by_offset.update((record.offset, record) for record in records)
    if not by_offset:
        return
    wanted = [chance.choice(list(by_offset)) for _ in range(chance.randrange(1, 40))]
    offsets = damage.exact(array("q", wanted).tobytes())
    count_fitting(blocks, offsets, chance.randrange(3000))
    with suppress(OttlaError):
        drop = HeaderNames(*_some_names(chance, list(by_offset.values())))
        made = Batch(pick_batch(blocks, offsets, drop=drop, codec=chance.choice(list(Codec))))
        made.check()
        picked = [by_offset[offset]._replace(offset=at) for at, offset in enumerate(wanted)]
        if _without_headers(picked) != _without_headers(decode_records(made)):
            raise AssertionError(f"{made}: other records than {picked}")


def names_of(record: Record) -> set[str]:
    """The names of a record's headers."""
    return {name for name, _ in record.headers}


def _records(batch: Batch) -> list[Record] | None:
    """None if they are damaged."""
    try:
        return decode_records(batch, LIMIT) if batch.count >= 0 else None
    except OttlaError:
        return None


def _some_names(chance: Random, records: list[Record]) -> list[str]:
    # A name that is not UTF-8 is shown with U+FFFD; it cannot be looked for.
    names = sorted({name for record in records for name in names_of(record) if "\ufffd" not in name})
    short = [name for name in names if len(name.encode()) <= 62]
    return chance.sample(short, min(len(short), chance.randrange(4)))


def _without_headers(records: list[Record]) -> list[Record]:
    return [record._replace(headers=()) for record in records]
