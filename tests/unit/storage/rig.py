"""What the storage tests build with: batches, stores on any disk, whole disks as images, and reading a log back."""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ottla.env.inline_helper import InlineHelper
from ottla.env.ports import Disk
from ottla.model.errors import OttlaError
from ottla.model.ids import LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs, TopicPartition
from ottla.records.batch import Batch, scan
from ottla.records.builder import BatchBuilder
from ottla.records.decode import decode_records
from ottla.records.layout import Codec, Marker
from ottla.sim.clock import START_MS, SimClock
from ottla.sim.disk import SimDisk
from ottla.sim.folders import Folder
from ottla.sim.inode import Inode
from ottla.sim.loop import VirtualLoop
from ottla.sim.random import SimRandom
from ottla.storage.cleaning.cleaner import Cleaner, CleanerConfig
from ottla.storage.data_dirs import names
from ottla.storage.data_dirs.checkpoints import encode_offsets, read_properties
from ottla.storage.housekeeping import Housekeeping, HousekeepingConfig
from ottla.storage.log import Appended, Log
from ottla.storage.log_config import LogConfig
from ottla.storage.log_store import LogStore

NOW: Final = START_MS
EPOCH: Final = LeaderEpoch(3)
DATA: Final = "/data"
P0: Final = TopicPartition("t", 0)
P1: Final = TopicPartition("t", 1)
CONFIG: Final = LogConfig(
    segment_bytes=330, index_interval_bytes=1, segment_index_bytes=4096, file_delete_delay_ms=1000
)
"""Four small batches a segment, each but the first indexed."""

Image = dict[str, bytes]
"""Every file of a disk."""


class Stored(NamedTuple):
    """A batch as stored in a log."""

    base_offset: int
    last_offset: int
    content: bytes


def batch(
    *values: bytes | None,
    key: bytes | None = b"k",
    timestamp: int = NOW,
    codec: Codec = Codec.NONE,
    producer_id: int = -1,
    epoch: int = 0,
    sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> Batch:
    """A batch of these values in writable memory."""
    builder = BatchBuilder(
        codec=codec,
        producer_id=producer_id,
        producer_epoch=epoch if producer_id >= 0 else -1,
        base_sequence=sequence,
        transactional=transactional,
        control=control,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )
    for value in values or (b"v",):
        builder.append(timestamp, key, value)
    return Batch(bytearray(builder.build()))


def make_store(disk: Disk, dirs: Sequence[str] = (DATA,), config: LogConfig = CONFIG, **changes: Any) -> LogStore:
    """A store that is not open yet."""
    known: dict[str, Any] = {
        "node_id": 1,
        "cluster_id": "cluster",
        "owner": "the first broker",
        "config_of": lambda partition: config,
    }
    clock = changes.pop("clock", None) or SimClock()
    return LogStore(disk, clock, SimRandom(7), dirs, **{**known, **changes})


def open_store(disk: Disk, dirs: Sequence[str] = (DATA,), config: LogConfig = CONFIG, **changes: Any) -> LogStore:
    """A store with every partition opened."""
    store = make_store(disk, dirs, config, **changes)
    run(disk, store.open())
    return store


def run(disk: Disk, work: Coroutine[Any, Any, None]) -> None:
    """Runs the work of a store on this disk. A simulated disk has no threads to wait for, so that the loop needs no
    sockets; thousands of stores are opened."""
    if not isinstance(disk, SimDisk):
        asyncio.run(work)
        return
    loop = VirtualLoop()
    try:
        loop.run_until_complete(work)
    finally:
        loop.close()


def housekeeping(
    store: LogStore, disk: Disk, clock: SimClock, config: HousekeepingConfig | None = None
) -> Housekeeping:
    """The recurring work of a store, with a real cleaner that runs in place."""
    cleaner = Cleaner(disk, InlineHelper(), clock, CleanerConfig(dedupe_buffer_bytes=1 << 16))
    return Housekeeping(store, disk, clock, config or HousekeepingConfig(), cleaner)


def close(store: LogStore) -> None:
    """A clean shutdown."""
    asyncio.run(store.close())


def new_log(disk: Disk | None = None, config: LogConfig = CONFIG) -> Log:
    """An empty log in a store of its own."""
    return open_store(disk or SimDisk(), config=config).create(P0)


def placed(base_offset: int, last_offset: int, *, is_duplicate: bool = False) -> Appended:
    """What an append answers."""
    return Appended(Offset(base_offset), Offset(last_offset), is_duplicate=is_duplicate)


def append(log: Log, *batches: Batch, epoch: LeaderEpoch = EPOCH, now: TimestampMs = NOW) -> list[Appended]:
    """Appends as the leader; every batch must be taken."""
    taken: list[Appended] = []
    for result in log.append(batches, leader_epoch=epoch, now=now):
        if isinstance(result, OttlaError):
            raise result
        taken.append(result)
    return taken


def fill(log: Log, count: int, *, first: int = 0, step_ms: int = 10, epoch: LeaderEpoch = EPOCH) -> None:
    """Appends that many batches of one record, each with its number as value and a later timestamp than the last."""
    for number in range(first, first + count):
        append(log, batch(b"value %04d" % number, timestamp=NOW + number * step_ms), epoch=epoch)
    log.advance_high_watermark(log.end_offset)


def mark(log: Log, marker: Marker, producer_id: int, epoch: int = 0, *, leader_epoch: LeaderEpoch = EPOCH) -> Appended:
    """Ends a producer's transaction."""
    return log.append_marker(
        marker,
        producer_id=ProducerId(producer_id),
        producer_epoch=ProducerEpoch(epoch),
        coordinator_epoch=1,
        leader_epoch=leader_epoch,
        now=NOW,
    )


def read_from(log: Log, offset: int, max_bytes: int = 1) -> list[Stored]:
    """The whole batches that one read gives."""
    found = log.read(Offset(offset), max_bytes, upper=log.end_offset)
    if found is None:
        return []
    batches, _, problem = scan(found.file.read_at(found.position, found.size))
    if problem is not None:
        raise AssertionError(f"a damaged batch was served: {problem}")
    return [Stored(each.base_offset, each.last_offset, bytes(each.buffer)) for each in batches]


def read_all(log: Log, max_bytes: int = 1 << 20) -> list[Stored]:
    """Every batch from the log's start to its end."""
    found: list[Stored] = []
    offset: int = log.start_offset
    while offset < log.end_offset and (more := read_from(log, offset, max_bytes)):
        found += more
        offset = found[-1].last_offset + 1
    return found


def values(log: Log) -> list[bytes | None]:
    """Every record's value."""
    return [record.value for stored in read_all(log) for record in decode_records(Batch(stored.content))]


def image_of(disk: Disk, folder: str = "/") -> Image:
    """Every file below a folder."""
    image: Image = {}
    for name in disk.list_dir(folder):
        path = f"{folder.rstrip('/')}/{name}"
        if disk.is_dir(path):
            image |= image_of(disk, path)
        else:
            image[path] = disk.read(path)
    return image


def disk_of(image: Image) -> SimDisk:
    """A disk with these files, their bytes synced and their names not."""
    disk = SimDisk()
    folders: dict[str, Folder] = {}
    for path, content in image.items():
        above, _, name = path.rpartition("/")
        if above not in folders:
            disk.make_dirs(above)
            folders[above] = disk._tree.folder(above or "/")
        # Not by the disk's own operations: thousands of damaged disks are made of the same image.
        disk._tree.assign((folders[above], name, Inode(content, modified_ms=disk.now_ms())))
    return disk


def put(disk: Disk, path: str, content: bytes) -> None:
    """Gives a file this content, whatever it had."""
    disk.make_dirs(path.rpartition("/")[0])
    file = disk.open(path, create=True)
    file.truncate(0)
    file.write_at(0, [content])
    file.sync()
    file.close()


def put_checkpoint(disk: Disk, name: str, offsets: Mapping[TopicPartition, int], data: str = DATA) -> None:
    """Gives a data dir this checkpoint, as its broker would have written it."""
    directory_id = read_properties(disk, f"{data}/{names.META_PROPERTIES}")["directory.id"]
    put(disk, f"{data}/{name}", encode_offsets(offsets, name=name, directory_id=directory_id))


def flipped(content: bytes, position: int, bit: int) -> bytes:
    """The same bytes with one bit flipped."""
    rotten = bytearray(content)
    rotten[position] ^= 1 << bit
    return bytes(rotten)
