"""Small text files: offset checkpoints, leader epochs, and Java-style properties.

Each is replaced as a whole (temporary file, sync, rename, sync of the folder), so that a crash leaves either the old or
the new content.

An offset checkpoint has a seal: an entry whose topic is "#" and the id of the data dir, and whose offset is a CRC-32C.
No topic can have that name, so Kafka reads the entry and does not use it. A file that Kafka wrote has no seal.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ottla.env.ports import Disk
from ottla.model.buffer import Buffer
from ottla.model.errors import CorruptError
from ottla.model.ids import LeaderEpoch, Offset, TopicPartition
from ottla.records.batch import crc32c

_VERSION: Final = 0
_SEAL: Final = "#"
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]+")
TEMPORARY: Final = ".tmp"
"""Ends the name of a file that is being written; such a file is useless after a crash."""
_NUMBER_DIGITS_MAX: Final = 19
"""The number of digits of an int64."""


def replace_file(disk: Disk, path: str, content: bytes) -> None:
    """Replaces a file's content, atomically and durably."""
    temporary = path + TEMPORARY
    write_synced(disk, temporary, content)
    disk.rename(temporary, path)
    disk.sync_dir(path.rpartition("/")[0])


def write_synced(disk: Disk, path: str, content: bytes) -> None:
    """Writes a file's content, which survives a power cut if the file's name does."""
    file = disk.open(path, create=True)
    try:
        file.truncate(0)
        file.write_at(0, [content])
        file.sync()
    finally:
        file.close()


def write_file(disk: Disk, path: str, content: Buffer) -> None:
    """Writes a file's content, which survives a power cut only once the file and its folder are synced."""
    file = disk.open(path, create=True)
    try:
        file.write_at(0, [content])
        file.truncate(len(content))
    finally:
        file.close()


class SealedOffsets(NamedTuple):
    """The content of an offset checkpoint, and the id of the data dir that it was written for; None without a seal."""

    offsets: dict[TopicPartition, Offset]
    directory_id: str | None


def encode_offsets(offsets: Mapping[TopicPartition, int], *, name: str = "", directory_id: str | None = None) -> bytes:
    """Lines of "topic partition offset", with a seal if the file `name` is for a data dir with this id."""
    lines = [f"{partition.topic} {partition.partition} {offset}" for partition, offset in sorted(offsets.items())]
    if directory_id is not None:
        lines.append(f"{_SEAL}{directory_id} 0 {_checksum(name, directory_id, lines)}")
    return _encode(lines, len(lines))


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, Offset]:
    """The offsets in a checkpoint; empty if the file does not exist. Raises CorruptError, also if the seal is wrong."""
    return read_sealed_offsets(disk, path).offsets


def read_sealed_offsets(disk: Disk, path: str) -> SealedOffsets:
    """The offsets in a checkpoint and its seal; empty if the file does not exist. Raises CorruptError."""
    found: dict[TopicPartition, Offset] = {}
    directory_id: str | None = None
    lines: list[str] = []
    for number, fields in _decode(disk, path, 3):
        topic, partition, offset = fields
        if not (_is_number(partition) and _is_number(offset)):
            raise _corrupt(path, number, f"{' '.join(fields)!r} is not 'topic partition offset'")
        if topic.startswith(_SEAL) and directory_id is None:
            directory_id = topic.removeprefix(_SEAL)
            if (int(partition), int(offset)) != (0, _checksum(path.rpartition("/")[2], directory_id, lines)):
                raise _corrupt(path, number, "the checksum does not match")
            continue
        key = TopicPartition(topic, int(partition))
        if key in found or directory_id is not None or _TOPIC.fullmatch(topic) is None:
            raise _corrupt(path, number, f"{key} occurs twice, follows the checksum or is not a valid partition")
        found[key] = Offset(int(offset))
        lines.append(" ".join(fields))
    return SealedOffsets(found, directory_id)


def _checksum(name: str, directory_id: str, lines: Iterable[str]) -> int:
    return crc32c("\n".join([name, directory_id, *lines]).encode())


def write_epochs(disk: Disk, path: str, epochs: Mapping[LeaderEpoch, Offset]) -> None:
    """Writes lines of "epoch startOffset"."""
    replace_file(disk, path, _encode((f"{epoch} {start}" for epoch, start in epochs.items()), len(epochs)))


def read_epochs(disk: Disk, path: str) -> dict[LeaderEpoch, Offset]:
    """What `write_epochs` wrote, with increasing epochs and offsets; empty if the file does not exist."""
    found: dict[LeaderEpoch, Offset] = {}
    before = (-1, -1)
    for number, fields in _decode(disk, path, 2):
        if not all(map(_is_number, fields)):
            raise _corrupt(path, number, f"{' '.join(fields)!r} is not 'epoch startOffset'")
        epoch, start = int(fields[0]), int(fields[1])
        if epoch <= before[0] or start < before[1]:
            raise _corrupt(path, number, f"epoch {epoch} at {start} follows epoch {before[0]} at {before[1]}")
        before = (epoch, start)
        found[LeaderEpoch(epoch)] = Offset(start)
    return found


def write_properties(disk: Disk, path: str, properties: Mapping[str, str], separator: str = "=") -> None:
    """Writes lines of "key=value"."""
    replace_file(disk, path, "".join(f"{key}{separator}{value}\n" for key, value in properties.items()).encode())


def read_properties(disk: Disk, path: str, separator: str = "=") -> dict[str, str]:
    """What `write_properties` wrote; comments and blank lines are skipped."""
    properties: dict[str, str] = {}
    for number, line in enumerate(_text(path, disk.read(path)).splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        key, found, value = line.partition(separator)
        if not found:
            raise _corrupt(path, number, f"{line!r} has no {separator!r}")
        properties[key.strip()] = value.strip()
    return properties


def _encode(lines: Iterable[str], count: int) -> bytes:
    return "\n".join([str(_VERSION), str(count), *lines, ""]).encode()


def _decode(disk: Disk, path: str, fields_expected: int) -> list[tuple[int, list[str]]]:
    if not disk.exists(path):
        return []
    lines = _text(path, disk.read(path)).splitlines()
    if not lines or lines[0] != str(_VERSION):
        raise _corrupt(path, 1, f"the version is {lines[0] if lines else 'missing'!r}, not {_VERSION}")
    if len(lines) < 2 or not _is_number(lines[1]):
        raise _corrupt(path, 2, "the number of entries is missing")
    entries = [(number, line.split()) for number, line in enumerate(lines[2:], 3) if line]
    if len(entries) != int(lines[1]):
        raise _corrupt(path, 2, f"{lines[1]} entries expected, {len(entries)} found")
    for number, fields in entries:
        if len(fields) != fields_expected:
            raise _corrupt(path, number, f"{len(fields)} fields instead of {fields_expected}")
    return entries


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _NUMBER_DIGITS_MAX


def _text(path: str, content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise CorruptError(f"{path}, byte {error.start}: not text") from None


def _corrupt(path: str, line: int, what: str) -> CorruptError:
    return CorruptError(f"{path}, line {line}: {what}")
