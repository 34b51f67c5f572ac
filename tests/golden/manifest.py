"""The manifests: what real readers found in the golden files, as JSON that tests compare with what Ottla finds.

Records come from a real consumer, batch headers and index entries from Kafka's log dump tool. Bytes are hexadecimal;
of a value longer than `INLINE_BYTES_MAX` only size and SHA-256 are kept. Loading needs nothing but the standard
library, so that tests which only read golden files need neither Java nor other clients.
"""

import hashlib
import io
import json
import lzma
import os
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

GOLDEN: Final = Path(__file__).parent
BATCHES: Final = GOLDEN / "batches"
FOLDERS: Final = GOLDEN / "folders"
INLINE_BYTES_MAX: Final = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedRecord:
    """One record as a consumer delivered it; `key`, `value` and header values are in the form that `digest` gives."""

    offset: int
    timestamp: int
    key: str | None
    value: str | None
    headers: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedPartition:
    """What a log holds, by Kafka's own account."""

    log_start_offset: int
    last_stable_offset: int
    end_offset: int
    records: tuple[ExpectedRecord, ...]
    """What a consumer sees that does not mind open and aborted transactions."""
    committed_offsets: tuple[int, ...]
    """The offsets of those that a read_committed consumer sees."""
    batches: tuple[Mapping[str, Any], ...]
    """The headers of all batches, control batches too; `file` says in which segment, if there are several."""
    files: Mapping[str, list[list[int]] | list[Mapping[str, Any]]]
    """What the dump tool found in each index and snapshot."""


def digest(data: bytes | None) -> str | None:
    """The form that bytes have in a manifest."""
    if data is None:
        return None
    if len(data) <= INLINE_BYTES_MAX:
        return data.hex()
    return f"{len(data)} bytes sha256 {hashlib.sha256(data).hexdigest()}"


def expected_record(
    offset: int, timestamp: int, key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]
) -> ExpectedRecord:
    """A record in the form that manifests compare."""
    return ExpectedRecord(
        offset=offset,
        timestamp=timestamp,
        key=digest(key),
        value=digest(value),
        headers=tuple((name, digest(content)) for name, content in headers),
    )


def load(path: Path) -> dict[str, ExpectedPartition]:
    """A manifest's partitions by name (`topic-partition`)."""
    content = json.loads(path.read_text())
    return {name: _load_partition(fields) for name, fields in content["partitions"].items()}


def _load_partition(fields: Mapping[str, Any]) -> ExpectedPartition:
    records = tuple(
        ExpectedRecord(
            offset=offset,
            timestamp=timestamp,
            key=key,
            value=value,
            headers=tuple((name, content) for name, content in headers),
        )
        for offset, timestamp, key, value, headers in fields["records"]
    )
    return ExpectedPartition(
        log_start_offset=fields["log_start_offset"],
        last_stable_offset=fields["last_stable_offset"],
        end_offset=fields["end_offset"],
        records=records,
        committed_offsets=tuple(fields["committed_offsets"]),
        batches=tuple(fields["batches"]),
        files=fields["files"],
    )


def save(path: Path, made_with: Mapping[str, str], partitions: Mapping[str, ExpectedPartition]) -> None:
    """Writes a manifest, one record and one batch per line, so that a difference can be read."""
    out = io.StringIO()
    out.write('{\n"made_with": ' + _line(made_with) + ',\n"partitions": {')
    for number, (name, partition) in enumerate(sorted(partitions.items())):
        out.write(",\n" if number else "\n")
        out.write(f'{json.dumps(name)}: {{\n"log_start_offset": {partition.log_start_offset},\n')
        out.write(f'"last_stable_offset": {partition.last_stable_offset},\n"end_offset": {partition.end_offset},\n')
        out.write('"records": ' + _lines([_record_row(each) for each in partition.records]) + ",\n")
        out.write('"committed_offsets": ' + _line(list(partition.committed_offsets)) + ",\n")
        out.write('"batches": ' + _lines(list(partition.batches)) + ",\n")
        out.write('"files": {\n')
        out.write(",\n".join(f"{json.dumps(file)}: {_line(rows)}" for file, rows in sorted(partition.files.items())))
        out.write("\n}\n}")
    out.write("\n}\n}\n")
    path.write_text(out.getvalue())


def _record_row(record: ExpectedRecord) -> list[Any]:
    return [record.offset, record.timestamp, record.key, record.value, [list(each) for each in record.headers]]


def _lines(rows: Sequence[Any]) -> str:
    return "[\n" + ",\n".join(_line(row) for row in rows) + "\n]"


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def pack(folder: Path, archive: Path) -> None:
    """Packs a folder so that the same content gives the same archive; preallocated indexes shrink to almost nothing."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for path in sorted(folder.rglob("*")):
            entry = tar.gettarinfo(str(path), arcname=str(path.relative_to(folder)))
            entry.uid = entry.gid = entry.mtime = 0
            entry.uname = entry.gname = ""
            if path.is_dir():
                tar.addfile(entry)
            else:
                with path.open("rb") as content:
                    tar.addfile(entry, content)
    archive.write_bytes(lzma.compress(raw.getvalue(), preset=9))


def unpack(archive: Path, folder: Path) -> None:
    """Unpacks what `pack` packed. The unused ends of preallocated indexes are holes in the files, and read as zeros."""
    for entry, content in _entries(archive):
        path = folder / entry.name
        if entry.isdir():
            path.mkdir(parents=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        os.truncate(path, entry.size)
        os.utime(path, (entry.mtime, entry.mtime))


@cache
def _entries(archive: Path) -> list[tuple[tarfile.TarInfo, bytes]]:
    """Each entry, and a file's content without the zeros at its end."""
    with tarfile.open(archive, mode="r:xz") as tar:
        opened = [(entry, tar.extractfile(entry)) for entry in tar]
        return [(entry, b"" if file is None else file.read().rstrip(b"\0")) for entry, file in opened]
