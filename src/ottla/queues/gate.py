"""The gate of a companion's partition: every produced batch passes it before it is appended.

The gate turns what clients ask for into facts: a kind of queue reads the headers of all records, refuses those that
make no sense, and says which headers the broker adds, such as the time when a record is due by the broker's clock.
Headers that only the broker may set are removed from what clients send. So every leader that reads the log comes to
the same result. Pure; which headers a kind reads is in `kinds/`.
"""

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Final, NamedTuple

from ottla.model.errors import RECORD_ERRORS_MAX, BatchTooLargeError, CorruptBatchError, InvalidRecordError
from ottla.model.ids import TimestampMs
from ottla.model.queue_names import (
    BROKER_HEADERS,
    CLIENT_HEADERS,
    HEADER_PREFIX,
    REDRIVE_COUNT,
    REDRIVE_TIMESTAMP,
    RETRY_EXCEPTION,
    RETRY_ORIGIN,
    RETRY_REASON,
    RETRY_REJECT,
)
from ottla.records.batch import Batch
from ottla.records.decode import decode_records
from ottla.records.header_edit import HeaderNames, find_headers, replace_headers
from ottla.records.header_stamp import Stamp
from ottla.records.payload import read_payload
from ottla.records.record import Headers
from ottla.storage.batch_validation import is_malformed

_BROKER_HEADERS: Final = HeaderNames(*BROKER_HEADERS)
_ALL_HEADERS: Final = HeaderNames(*CLIENT_HEADERS, *BROKER_HEADERS, REDRIVE_COUNT, REDRIVE_TIMESTAMP)
_ALL_NAMES: Final = frozenset(_ALL_HEADERS.names)
_SINGLE_NAMES: Final = frozenset(CLIENT_HEADERS) - {RETRY_REASON, RETRY_EXCEPTION, RETRY_REJECT, RETRY_ORIGIN}
"""Clients that hand a record back with all its headers add further reasons to those of earlier attempts."""
ADMITTED_BYTES_MAX: Final = 4 * 1024 * 1024
"""What a compressed batch may decompress to, or to `ADMITTED_RATIO_MAX` times its size. A gate looks at the headers of
its records on the event loop."""
ADMITTED_RATIO_MAX: Final = 8
ADMITTED_RECORDS_MAX: Final = 30_000
"""Of a compressed batch. As many, with a header each, fill an uncompressed batch of the default `max.message.bytes`."""
_QUOTED_BYTES_MAX: Final = 40
"""How much of a wrong value an error shows."""
_SUGGESTED_MAX: Final = 10
"""Unknown names for which the nearest known one is looked for: that takes longer than all else about a record."""


OFFSET_MAX: Final = (1 << 63) - 1


class Admission(NamedTuple):
    """What the broker adds to the records of a batch."""

    stamps: Sequence[Stamp] = ()
    """Headers with a number for each record."""
    added: Mapping[int, Headers] | None = None
    """Other headers, by the record's index in the batch."""
    instructions: Mapping[int, "Instruction"] | None = None
    """Records that are not parked, and so must not have a value, by index."""
    header_count: int | None = None
    """How many headers of queues were read; if there are more, their names are checked. None if any name is fine."""


class Instruction(NamedTuple):
    """What to do with a record that was parked before, by its offset."""

    header: str
    offset: int


Admit = Callable[[memoryview, int, TimestampMs], Admission]
"""Takes the decompressed records of a batch, their count, and the time. Raises `InvalidRecordError`."""


class Gate:
    """Checks and rewrites the batches that clients produce to a companion's partition, which ends at `end_offset`."""

    __slots__ = ("_admit", "_end_offset")

    def __init__(self, admit: Admit, end_offset: Callable[[], int] = lambda: OFFSET_MAX) -> None:
        self._admit = admit
        self._end_offset = end_offset

    def admit(self, batch: Batch, now_ms: TimestampMs) -> Batch:
        """The batch to append, in a writable buffer of its own.

        Offsets, timestamps, producer fields, attributes and codec stay. Raises `InvalidRecordError` whose
        `record_errors` name the header of each invalid record, and `CorruptBatchError` for a wrong checksum. A batch
        that no log accepts is returned as it is: the log knows the reason.
        """
        if is_malformed(batch):
            return batch
        count = batch.count
        batch.check()
        if batch.codec and count > ADMITTED_RECORDS_MAX:
            raise BatchTooLargeError(
                f"a compressed batch of {count} records is too large for a topic of a queue: at most"
                f" {ADMITTED_RECORDS_MAX} are accepted; send smaller batches"
            )
        try:
            payload = read_admitted(batch)
            admission = self._admit(payload, count, now_ms)
            if admission.header_count is not None:
                _check_names(batch, payload, admission.header_count)
            if admission.instructions:
                _check_instructions(batch, admission.instructions, self._end_offset())
            return Batch(
                replace_headers(
                    batch, drop=_BROKER_HEADERS, stamps=admission.stamps, added=admission.added, payload=payload
                )
            )
        except CorruptBatchError as error:
            # The checksum was right, so that sending the batch again would not help.
            raise InvalidRecordError(str(error)) from error


def admitted_bytes_max(size_bytes: int) -> int:
    """What compressed batches of this size may decompress to where a gate looks into them."""
    return max(ADMITTED_BYTES_MAX, ADMITTED_RATIO_MAX * size_bytes)


def read_admitted(batch: Batch) -> memoryview:
    """The records of a batch that a gate looks into. Raises what `read_payload` raises."""
    return read_payload(batch, admitted_bytes_max(batch.size_bytes)) if batch.codec else read_payload(batch)


def _check_names(batch: Batch, payload: memoryview, known: int) -> None:
    """Raises InvalidRecordError for headers that look like those of queues and are not, or contradict each other.

    A record with a misspelt header would be delivered as if it had none. Records are decoded only if there is a doubt.
    """
    count = payload.tobytes().count(HEADER_PREFIX.encode())
    if count <= known:
        return
    found = find_headers(payload, batch.count, _ALL_HEADERS)
    if count == sum(len(values) - values.count(None) for _, values in found):
        return
    faults: list[tuple[int, str]] = []
    unknown: dict[str, str] = {}
    for index, record in enumerate(decode_records(batch)):
        first: dict[str, bytes | None] = {}
        for name, value in record.headers:
            if name.startswith(HEADER_PREFIX) and name not in _ALL_NAMES:
                if name not in unknown:
                    unknown[name] = _unknown(name, may_suggest=len(unknown) < _SUGGESTED_MAX)
                faults.append((index, unknown[name]))
            elif name in _SINGLE_NAMES and first.setdefault(name, value) != value:
                faults.append((index, f"header {name} is repeated with different values"))
    if faults:
        raise refusal(faults, batch.count)


def _unknown(name: str, *, may_suggest: bool) -> str:
    near = get_close_matches(name, CLIENT_HEADERS, 1) if may_suggest and len(name) <= _QUOTED_BYTES_MAX else []
    shown = name if len(name) <= _QUOTED_BYTES_MAX else f"{name[:_QUOTED_BYTES_MAX]}..."
    return f"header {shown} is unknown" + (f"; did you mean {near[0]}?" if near else "")


def _check_instructions(batch: Batch, instructions: Mapping[int, Instruction], end_offset: int) -> None:
    records = decode_records(batch)
    faults = []
    for index, (header, offset) in sorted(instructions.items()):
        if records[index].value is not None:
            faults.append((index, f"header {header}: the record must not have a value, since it is not delivered"))
        elif offset >= end_offset:
            faults.append((index, f"header {header}: offset {offset} is not in the log, which ends at {end_offset}"))
    if faults:
        raise refusal(faults, batch.count)


def number_fault(name: str, value: bytes) -> str | None:
    """What is wrong with a header that should be a decimal number."""
    if not value.isdigit():
        kind = "is negative" if value[:1] == b"-" and value[1:].isdigit() else "is not a decimal number"
        return f"header {name}: {quoted(value)} {kind}; use milliseconds as decimal digits"
    if len(value) > 19 or int(value) >= 1 << 63:
        return f"header {name}: {quoted(value)} is too large; at most {(1 << 63) - 1}, in at most 19 digits"
    return None


def refusal(record_errors: Sequence[tuple[int, str]], count: int) -> InvalidRecordError:
    """The error for a batch with invalid records: (index, reason) of each; the reason names the header."""
    index, reason = record_errors[0]
    return InvalidRecordError(
        f"{len(record_errors)} of {count} records are invalid; record {index}: {reason}",
        record_errors[:RECORD_ERRORS_MAX],
    )


def quoted(value: bytes) -> str:
    """A header's value for an error message: text in quotes, cut off if it is long."""
    text = repr(value[:_QUOTED_BYTES_MAX].decode(errors="backslashreplace"))
    return text if len(value) <= _QUOTED_BYTES_MAX else f"{text}... ({len(value)} bytes)"
