"""Records of every shape that a client can write, for tests that compare what was read with what was sent."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.compat.clients.foreign_client import Read, Sent

FIRST_TIMESTAMP: Final = 1_700_000_000_000
KEEP_ALL: Final = {"retention.ms": "-1"}
"""For topics with such old timestamps: by default a broker removes what is older than a week."""

# kafkajs keeps headers in an object, so equal names stand together.
SHAPES: Final = (
    Sent(value=b"a value alone"),
    Sent(key=b"key", value=b"value"),
    Sent(key=b"a tombstone"),
    Sent(key=b"", value=b""),
    Sent(key=bytes(range(256)), value=bytes(range(255, -1, -1))),
    Sent(value=b"headers", headers=(("one", b"1"), ("two", b"2"))),
    Sent(value=b"the same header twice", headers=(("twin", b"first"), ("twin", b"second"), ("other", b"x"))),
    Sent(key=b"k", value=b"null and empty headers", headers=(("null", None), ("empty", b""), ("bytes", b"\x00\xff"))),
    Sent(value="žluťoučký 🐎".encode(), headers=(("název", "hodnota ✓".encode()),)),
    Sent(value=b"compressible " * 500),
)


def shapes(*, partition: int | None = 0, null_headers: bool = True) -> list[Sent]:
    """Every shape once, each with a timestamp of its own; not every client can write a header without a value."""
    return [
        Sent(
            key=each.key,
            value=each.value,
            headers=tuple(header for header in each.headers if null_headers or header[1] is not None),
            timestamp=FIRST_TIMESTAMP + 1000 * index,
            partition=partition,
        )
        for index, each in enumerate(SHAPES)
    ]


def small(count: int, *, partition: int | None = 0) -> list[Sent]:
    """Small records with different keys and values."""
    return [
        Sent(key=b"key-%d" % index, value=b"value-%d" % index, timestamp=FIRST_TIMESTAMP + index, partition=partition)
        for index in range(count)
    ]


def expected_reading(sent: Sequence[Sent], acks: Iterable[tuple[int, int]]) -> list[Read]:
    """What a consumer should find, in the order of partition and offset."""
    found = [
        Read(
            partition=partition,
            offset=offset,
            timestamp=-1 if record.timestamp is None else record.timestamp,
            key=record.key,
            value=record.value,
            headers=record.headers,
        )
        for record, (partition, offset) in zip(sent, acks, strict=True)
    ]
    return sorted(found, key=lambda record: (record.partition, record.offset))


def first_batch(data: Path, topic: str, partition: int = 0) -> bytes:
    """The header of the first batch in the partition's file."""
    header = (data / f"{topic}-{partition}" / f"{0:020}.log").read_bytes()[:61]
    assert 61 == len(header), f"{topic}-{partition} is empty"
    return header


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBatch:
    """What the header of a batch in a partition's file says."""

    codec: int
    is_control: bool
    count: int
    producer_epoch: int


def stored_batches(data: Path, topic: str, partition: int = 0) -> list[StoredBatch]:
    """The batches in the partition's segments."""
    found: list[StoredBatch] = []
    for segment in sorted((data / f"{topic}-{partition}").glob("*.log")):
        log = segment.read_bytes()
        at = 0
        # A segment may be longer than what is written in it.
        while at + 61 <= len(log) and (size := int.from_bytes(log[at + 8 : at + 12], "big")):
            attributes = int.from_bytes(log[at + 21 : at + 23], "big")
            found.append(
                StoredBatch(
                    codec=attributes & 7,
                    is_control=bool(attributes & 0x20),
                    count=int.from_bytes(log[at + 57 : at + 61], "big"),
                    producer_epoch=int.from_bytes(log[at + 51 : at + 53], "big", signed=True),
                )
            )
            at += 12 + size
    return found


def stored_codecs(data: Path, topic: str, partition: int) -> set[int]:
    """The numbers of the codecs that the partition's batches have in their attributes."""
    return {batch.codec for batch in stored_batches(data, topic, partition)}


def producer_id_of(batch: bytes) -> int:
    """-1 when the producer was not idempotent."""
    return int.from_bytes(batch[43:51], "big", signed=True)
