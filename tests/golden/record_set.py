"""The records that every client writes into the golden batches: each oddity the format allows, once per codec.

Only what is asked of the clients; how each is asked is in `clients.py`, and what came out is in the manifests.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
FIRST_TIMESTAMP: Final = 1_700_000_000_000

Header = tuple[str, bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRecord:
    """A record as it is handed to a producer."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Records that one producer sends and flushes together, so that they share a batch."""

    codec: str
    idempotent: bool
    transaction: Literal["commit", "abort"] | None
    records: tuple[NewRecord, ...]


ODD_HEADERS: Final[tuple[Header, ...]] = (
    ("plain", b"1"),
    ("plain", b"the same name again"),
    ("empty", b""),
    ("null", None),
    ("", b"no name"),
    ("grüße 日本", bytes(range(256))),
)


def odd_records(timestamp: int) -> tuple[NewRecord, ...]:
    """Nulls, empties, every byte value, headers, and timestamps that go back as well as far ahead."""
    return (
        NewRecord(timestamp=timestamp, key=b"key", value=b"value"),
        NewRecord(timestamp=timestamp + 1, key=None, value=b"no key"),
        NewRecord(timestamp=timestamp - 5_000, key=b"tombstone, and earlier than the first", value=None),
        NewRecord(timestamp=timestamp + 86_400_000, key=b"", value=b""),
        NewRecord(timestamp=timestamp + 2, key=None, value=None),
        NewRecord(timestamp=timestamp + 3, key=b"headers", value=b"six", headers=ODD_HEADERS),
        NewRecord(timestamp=timestamp + 4, key=bytes(range(256)), value=bytes(reversed(range(256)))),
        NewRecord(timestamp=timestamp + 5, key=b"text", value=_text(300)),
    )


def sections() -> Iterator[Section]:
    """All that one client writes, in order."""
    for number, codec in enumerate(CODECS):
        timestamp = FIRST_TIMESTAMP + number * 60_000
        yield Section(codec=codec, idempotent=False, transaction=None, records=odd_records(timestamp))
        if codec != "none":
            # More than the 32 KiB and 64 KiB blocks that snappy's framing and lz4's frames are cut into.
            large = NewRecord(timestamp=timestamp + 6, key=b"large", value=_text(150_000))
            yield Section(codec=codec, idempotent=False, transaction=None, records=(large,))
    later = FIRST_TIMESTAMP + 3_600_000
    yield Section(codec="none", idempotent=True, transaction=None, records=odd_records(later))
    yield Section(codec="zstd", idempotent=True, transaction=None, records=odd_records(later + 60_000))
    yield Section(codec="none", idempotent=True, transaction="commit", records=odd_records(later + 120_000))
    yield Section(codec="lz4", idempotent=True, transaction="abort", records=odd_records(later + 180_000))
    yield Section(codec="gzip", idempotent=True, transaction="commit", records=odd_records(later + 240_000))


def _text(size: int) -> bytes:
    line = b"the quick brown fox jumps over the lazy dog; "
    return (line * (size // len(line) + 1))[:size]
