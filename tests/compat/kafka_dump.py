"""Asks Kafka's own log dump tool about files, and gives its answers as data.

`dump` reads logs, indexes and snapshots in one run of the tool; whatever the tool found wrong is in `complaints`, which
is empty for files that Kafka accepts. The tool prints records for people; a decoder of ours (`HexDecoder.java`) makes
it print keys and values as hexadecimal, so that they can be compared byte for byte.
"""

import functools
import os
import re
import tempfile
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from tests.compat.kafka_jars import KAFKA_VERSION, class_path, compile_java, kafka_tool

SUFFIXES: Final = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
"""What the tool can read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedRecord:
    """One record as the tool shows it; a marker's key and value are not shown but explained."""

    offset: int
    timestamp: int
    sequence: int
    header_names: str
    """Joined with commas."""
    key: bytes | None
    value: bytes | None
    marker: str | None
    coordinator_epoch: int | None
    control_type: str | None
    """Of a control record that is not a marker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedBatch:
    """One batch's header as the tool shows it, with its records."""

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    count: int
    base_sequence: int
    last_sequence: int
    producer_id: int
    producer_epoch: int
    leader_epoch: int
    is_transactional: bool
    is_control: bool
    delete_horizon: int
    """-1 when there is none."""
    timestamp_type: str
    max_timestamp: int
    codec: str
    crc: int
    is_valid: bool
    records: tuple[DumpedRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedAbort:
    """One aborted transaction of a `.txnindex`."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedProducer:
    """One producer of a `.snapshot`; the last batch is None once a marker has made its sequences moot."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    transaction_first_offset: int
    """-1 when none is open."""
    last_timestamp: int
    last_sequence: int | None
    last_offset: int | None
    offset_delta: int | None


@dataclass(slots=True, kw_only=True)
class Dump:
    """All that one run of the tool said, by file."""

    batches: dict[Path, list[DumpedBatch]] = field(default_factory=dict)
    offset_entries: dict[Path, list[tuple[int, int]]] = field(default_factory=dict)
    """(offset, position) of each `.index`."""
    time_entries: dict[Path, list[tuple[int, int]]] = field(default_factory=dict)
    """(timestamp, offset) of each `.timeindex`."""
    aborts: dict[Path, list[DumpedAbort]] = field(default_factory=dict)
    producers: dict[Path, list[DumpedProducer]] = field(default_factory=dict)
    gaps: dict[Path, list[tuple[int, int]]] = field(default_factory=dict)
    """Neighbouring records in a `.log` whose offsets are not neighbours: none before compaction, normal after."""
    complaints: list[str] = field(default_factory=list)


def log_files(folder: Path) -> list[Path]:
    """The files of a partition's folder that the tool can read."""
    return sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES)


def dump(files: Iterable[Path], *, version: str = KAFKA_VERSION) -> Dump:
    """Every batch, record, index entry and producer in these files, each index checked against its log."""
    decoder = ("--key-decoder-class", "HexDecoder", "--value-decoder-class", "HexDecoder")
    lines, errors = _run(files, ("--print-data-log", "--deep-iteration", *decoder), version)
    complaints, gaps = _sort_errors(errors)
    result = Dump(complaints=complaints, gaps=gaps)
    _parse(lines, result)
    return result


def verify_indexes(files: Iterable[Path], *, version: str = KAFKA_VERSION) -> list[str]:
    """What is wrong with these indexes: first by the check that a starting broker makes, then against their logs."""
    indexes = [path for path in files if path.suffix in (".index", ".timeindex")]
    lines, errors = _run(indexes, ("--index-sanity-check",), version)
    complaints = _sort_errors(errors)[0]
    passed = sum(line.endswith((" passed sanity check.", " is empty.")) for line in lines)
    if not complaints and passed != len(indexes):
        complaints.append(f"{len(indexes) - passed} of {len(indexes)} indexes did not pass: {lines}")
    return complaints + _sort_errors(_run(indexes, ("--verify-index-only",), version)[1])[0]


def _run(files: Iterable[Path], options: tuple[str, ...], version: str) -> tuple[list[str], list[str]]:
    """The lines of the tool's stdout and stderr."""
    names = ",".join(map(str, files))
    path = _decoder_path()
    done = kafka_tool(dump_class(version), *options, "--files", names, version=version, check=False, extra_path=path)
    errors = done.stderr.splitlines()
    if done.returncode != 0:
        errors.append(f"the tool ended with {done.returncode}")
    # Only line feeds end the tool's lines; header names may hold what Python takes for other line ends.
    return done.stdout.split("\n"), errors


# What the tool says about good files. It starts each file at offset -1, and so wonders where every later segment
# begins; and it takes the timestamps of a batch from its records, which an emptied batch of a compacted log has not.
_NO_COMPLAINT: Final = re.compile(r"  -1 is followed by \d+|  Index timestamp: \d+, log timestamp: -1")
_GAPS_HEADING: Final = "Non-consecutive offsets in "
_GAP: Final = re.compile(r"  (\d+) is followed by (\d+)")


def _sort_errors(lines: list[str]) -> tuple[list[str], dict[Path, list[tuple[int, int]]]]:
    """Splits what the tool wrote to stderr into complaints, each with its heading, and gaps between offsets."""
    complaints: list[str] = []
    gaps: dict[Path, list[tuple[int, int]]] = {}
    heading = ""
    for line in lines:
        if line.startswith((_GAPS_HEADING, "Found timestamp mismatch in ")):
            heading = line
        elif found := _GAP.fullmatch(line):
            gaps.setdefault(Path(heading.removeprefix(_GAPS_HEADING)), []).append((int(found[1]), int(found[2])))
        elif not _NO_COMPLAINT.fullmatch(line):
            complaints.append(f"{heading}{line}" if line.startswith("  ") else line)
    return complaints, gaps


@functools.cache
def dump_class(version: str) -> str:
    """The tool has moved from one jar to another in the course of Kafka 4."""
    (tools,) = (jar for jar in class_path(version).split(os.pathsep) if jar.endswith(f"/kafka-tools-{version}.jar"))
    with zipfile.ZipFile(tools) as jar:
        moved = "org/apache/kafka/tools/DumpLogSegments.class" in jar.namelist()
    return "org.apache.kafka.tools.DumpLogSegments" if moved else "kafka.tools.DumpLogSegments"


@functools.cache
def _decoder_path() -> str:
    folder = tempfile.TemporaryDirectory(prefix="ottla-hex-decoder-")
    compile_java(Path(__file__).with_name("HexDecoder.java"), Path(folder.name))
    _decoder_folders.append(folder)
    return folder.name


_decoder_folders: Final[list[tempfile.TemporaryDirectory[str]]] = []
"""Kept until the interpreter ends, which removes the folder."""


def _parse(lines: list[str], result: Dump) -> None:
    path = Path()
    for line in lines:
        if line.startswith("Dumping "):
            path = Path(line.removeprefix("Dumping "))
            _open_file(result, path)
        elif line.startswith("baseOffset: "):
            batch = _batch(line)
            result.batches[path].append(batch)
            if not batch.is_valid:
                result.complaints.append(f"{path}: bad CRC at {batch.position}")
        elif line.startswith("| offset: "):
            batch = result.batches[path][-1]
            result.batches[path][-1] = _with_record(batch, _record(line))
        elif line.startswith("offset: "):
            fields = _fields(line)
            result.offset_entries[path].append((int(fields["offset"]), int(fields["position"])))
        elif line.startswith("timestamp: "):
            fields = _fields(line)
            result.time_entries[path].append((int(fields["timestamp"]), int(fields["offset"])))
        elif line.startswith("version: "):
            result.aborts[path].append(_abort(line))
        elif line.startswith("producerId: "):
            result.producers[path].append(_producer(line))
        elif line and not line.startswith("Log starting offset: ") and not line.endswith(" is empty."):
            result.complaints.append(f"{path}: {line}")


def _open_file(result: Dump, path: Path) -> None:
    match path.suffix:
        case ".log":
            result.batches[path] = []
        case ".index":
            result.offset_entries[path] = []
        case ".timeindex":
            result.time_entries[path] = []
        case ".txnindex":
            result.aborts[path] = []
        case ".snapshot":
            result.producers[path] = []
        case other:
            raise ValueError(f"the tool reads no {other} files")


def _batch(line: str) -> DumpedBatch:
    fields = _fields(line)
    timestamp_type = "LogAppendTime" if "LogAppendTime" in fields else "CreateTime"
    return DumpedBatch(
        position=int(fields["position"]),
        size_bytes=int(fields["size"]),
        base_offset=int(fields["baseOffset"]),
        last_offset=int(fields["lastOffset"]),
        count=int(fields["count"]),
        base_sequence=int(fields["baseSequence"]),
        last_sequence=int(fields["lastSequence"]),
        producer_id=int(fields["producerId"]),
        producer_epoch=int(fields["producerEpoch"]),
        leader_epoch=int(fields["partitionLeaderEpoch"]),
        is_transactional=fields["isTransactional"] == "true",
        is_control=fields["isControl"] == "true",
        delete_horizon=_optional(fields["deleteHorizonMs"]),
        timestamp_type=timestamp_type,
        max_timestamp=int(fields[timestamp_type]),
        codec=fields["compresscodec"],
        crc=int(fields["crc"]),
        is_valid=fields["isvalid"] == "true",
        records=(),
    )


_RECORD: Final = re.compile(
    r"\| offset: (?P<offset>\d+) (?:CreateTime|LogAppendTime): (?P<timestamp>-?\d+) keySize: (?P<key_size>-?\d+) "
    r"valueSize: (?P<value_size>-?\d+) sequence: (?P<sequence>-?\d+) headerKeys: \[(?P<header_names>.*?)\]"
    r"(?: endTxnMarker: (?P<marker>\w+) coordinatorEpoch: (?P<coordinator_epoch>-?\d+))?"
    r"(?: controlType: (?P<control_type>\S+))?"
    r"(?: key: (?P<key>[0-9a-f]*))?(?: payload: (?P<value>[0-9a-f]*))?"
)


def _record(line: str) -> DumpedRecord:
    found = _RECORD.fullmatch(line)
    if found is None:
        raise ValueError(f"the dump tool printed a record that this parser does not know: {line!r}")
    key, value, epoch = found["key"], found["value"], found["coordinator_epoch"]
    return DumpedRecord(
        offset=int(found["offset"]),
        timestamp=int(found["timestamp"]),
        sequence=int(found["sequence"]),
        header_names=found["header_names"],
        key=None if key is None else bytes.fromhex(key),
        value=None if value is None else bytes.fromhex(value),
        marker=found["marker"],
        coordinator_epoch=None if epoch is None else int(epoch),
        control_type=found["control_type"],
    )


def _with_record(batch: DumpedBatch, record: DumpedRecord) -> DumpedBatch:
    return replace(batch, records=(*batch.records, record))


def _abort(line: str) -> DumpedAbort:
    fields = _fields(line)
    return DumpedAbort(
        producer_id=int(fields["producerId"]),
        first_offset=int(fields["firstOffset"]),
        last_offset=int(fields["lastOffset"]),
        last_stable_offset=int(fields["lastStableOffset"]),
    )


def _producer(line: str) -> DumpedProducer:
    fields = _fields(line)
    return DumpedProducer(
        producer_id=int(fields["producerId"]),
        producer_epoch=int(fields["producerEpoch"]),
        coordinator_epoch=int(fields["coordinatorEpoch"]),
        transaction_first_offset=_optional(fields["currentTxnFirstOffset"]),
        last_timestamp=int(fields["lastTimestamp"]),
        last_sequence=int(fields["lastSequence"]) if "lastSequence" in fields else None,
        last_offset=int(fields["lastOffset"]) if "lastOffset" in fields else None,
        offset_delta=int(fields["offsetDelta"]) if "offsetDelta" in fields else None,
    )


def _fields(line: str) -> dict[str, str]:
    return dict(re.findall(r"(\w+): (\S+)", line))


def _optional(text: str) -> int:
    """Java prints an optional number as `OptionalLong[5]` or `OptionalLong.empty`."""
    found = re.fullmatch(r"OptionalLong\[(-?\d+)\]", text)
    return int(found[1]) if found else -1
