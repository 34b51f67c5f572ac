"""The segments of every log at a clean shutdown, so that the next start notices what is missing.

After a clean shutdown no segment is read, and a compacted log may have gaps between its segments, so that only a list
can show that a segment is missing or has another size. There is one file for the whole data dir (`.ottla-segments`,
written before the clean-shutdown mark), since reading one file for each of 10,000 partitions would cost as much as
opening them. It is trusted only together with Ottla's own mark: Kafka ignores the file and does not update it.

Text: a version, the CRC-32C of the rest, then a line for each partition: topic, partition, `base:size` of each segment,
and `first-end` of each range of lost offsets. The checksum begins with `origin`, the data dir and its number of starts,
so that the file of another data dir, or of an earlier shutdown, is not used.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla.env.ports import Disk
from ottla.model.errors import CorruptError
from ottla.model.ids import Offset, TopicPartition
from ottla.records.batch import crc32c
from ottla.storage.data_dirs.checkpoints import replace_file

_VERSION: Final = b"1"


class OffsetRange(NamedTuple):
    """Offsets from `first` up to, but not including, `end`."""

    first: Offset
    end: Offset

    @property
    def unreadable(self) -> str:
        """How logs and errors describe offsets whose records cannot be read."""
        return f"offsets {self.first} to {self.end - 1} cannot be read ({self.end - self.first} records at most)"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedLog:
    """One log as it was closed."""

    sizes: Mapping[Offset, int]
    """The size in bytes of each segment, by base offset, in order."""
    lost: tuple[OffsetRange, ...] = ()
    """Offsets of records that were written and can no longer be read."""


def write_closed(disk: Disk, path: str, origin: str, logs: Mapping[TopicPartition, ClosedLog]) -> None:
    """Replaces the file, durably."""
    lines = []
    for partition, log in sorted(logs.items()):
        segments = ",".join(f"{base}:{size}" for base, size in log.sizes.items())
        lost = ",".join(f"{first}-{end}" for first, end in log.lost)
        lines.append(f"{partition.topic} {partition.partition} {segments} {lost}\n")
    body = "".join(lines).encode()
    replace_file(disk, path, b"%s\n%08x\n%s" % (_VERSION, crc32c(body, crc32c(origin.encode())), body))


def read_closed(disk: Disk, path: str, origin: str) -> dict[TopicPartition, ClosedLog]:
    """What `write_closed` wrote; empty if the file does not exist. Raises CorruptError if it is damaged."""
    if not disk.exists(path):
        return {}
    version, _, rest = disk.read(path).partition(b"\n")
    checksum, _, body = rest.partition(b"\n")
    if version != _VERSION or checksum != b"%08x" % crc32c(body, crc32c(origin.encode())):
        raise CorruptError(f"{path}: wrong version or checksum, or of another data dir or an earlier shutdown")
    found: dict[TopicPartition, ClosedLog] = {}
    for line in body.decode().splitlines():
        topic, partition, segments, lost = line.split(" ")
        pairs = (each.split(":") for each in segments.split(",") if each)
        ranges = (each.split("-") for each in lost.split(",") if each)
        found[TopicPartition(topic, int(partition))] = ClosedLog(
            sizes={Offset(int(base)): int(size) for base, size in pairs},
            lost=tuple(OffsetRange(Offset(int(first)), Offset(int(end))) for first, end in ranges),
        )
    return found
