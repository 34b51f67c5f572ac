"""Opens a data dir with Ottla's own log store and reads logs through it, as a broker would."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ottla.env.real_clock import RealClock
from ottla.env.real_disk import RealDisk
from ottla.env.real_random import RealRandom
from ottla.model.ids import Offset, TopicPartition
from ottla.records.batch import scan
from ottla.records.columns import decode
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig
from ottla.storage.log_store import LogStore
from tests.golden import readings
from tests.golden.manifest import ExpectedRecord

NODE_ID: Final = 1
CLUSTER_ID: Final = "b3R0bGEta2Fma2EtdGVzdA"
"""As in the data dirs that the tests' Kafka writes."""

READ_BYTES_MAX: Final = 700
"""Small, so that a log is read in many ranges and segment ends are crossed."""


@contextmanager
def opened(
    data: Path, config_of: Callable[[TopicPartition], LogConfig] = lambda partition: LogConfig()
) -> Iterator[LogStore]:
    """The store over one data dir, shut down cleanly at the end."""
    store = LogStore(
        RealDisk(),
        RealClock(),
        RealRandom(),
        [str(data)],
        node_id=NODE_ID,
        cluster_id=CLUSTER_ID,
        owner="tests",
        config_of=config_of,
    )
    asyncio.run(store.open())
    try:
        yield store
    finally:
        asyncio.run(store.close())


def read_bytes(log: Log, *, upper: Offset | None = None) -> bytes:
    """All whole batches from the log's start up to `upper` (its end unless told), as fetches get them."""
    upper = log.end_offset if upper is None else upper
    found = bytearray()
    offset = log.start_offset
    while (piece := log.read(offset, READ_BYTES_MAX, upper=upper)) is not None:
        content = piece.file.read_at(piece.position, piece.size)
        batches, end, problem = scan(content)
        if problem is not None or not batches:
            raise AssertionError(f"{log.partition} at {offset}: {problem or 'no whole batch'}")
        found += content[:end]
        offset = Offset(batches[-1].next_offset)
        del batches
    return bytes(found)


def read_records(log: Log) -> list[ExpectedRecord]:
    """What a consumer sees that does not mind open and aborted transactions."""
    return [record for record in readings.records(scan(read_bytes(log))[0]) if record.offset >= log.start_offset]


def read_committed(log: Log) -> list[ExpectedRecord]:
    """What a read_committed consumer sees, by the last stable offset and the aborted transactions of a fetch answer."""
    upper = log.last_stable_offset
    aborted = [(each.producer_id, each.first_offset) for each in log.aborted_transactions(log.start_offset, upper)]
    content = read_bytes(log, upper=upper)
    if not content:
        return []
    return readings.column_records(decode(content, start_offset=log.start_offset, aborted=aborted))
