"""Types and promises of the header kernel."""

from array import array
from collections.abc import Iterable, Mapping
from typing import Final, final

from typing_extensions import Buffer

from ottla.records.batch import Batch
from ottla.records.header_stamp import Stamp
from ottla.records.record import Headers

ABSENT: Final[int]
"""The record does not have the header."""
MALFORMED: Final[int]
"""The header's value is not a decimal number from 0 to 2^63-1 of at most 19 digits."""

@final
class HeaderNames:
    """Names of headers, prepared for the kernels: at most 32, of at most 62 bytes each."""

    def __init__(self, *names: str) -> None: ...
    @property
    def names(self) -> tuple[str, ...]: ...

def find_headers(payload: Buffer, count: int, names: HeaderNames) -> list[tuple[int, tuple[bytes | None, ...]]]:
    """The records that have any of these headers: index in the batch, and the value of each name.

    The value of a header that the record does not have is None, that of a header without a value is empty; of a header
    that is repeated the last counts. `payload` is the batch's decompressed records, `count` their number. Records
    without any of the headers cost no object. Damage raises `CorruptBatchError` that names the record's index.
    """

def find_numbers(payload: Buffer, count: int, names: HeaderNames) -> tuple[array[int], ...]:
    """The values of headers that hold decimal numbers: for each name an `array("q")` with a number for each record.

    ABSENT if the record does not have the header, MALFORMED if its value is not a number. Of a header that is repeated
    the last counts. Damage raises `CorruptBatchError` that names the record's index. Large payloads are walked without
    the GIL.
    """

def replace_headers(
    batch: Batch,
    *,
    drop: HeaderNames,
    stamps: Iterable[Stamp] = (),
    added: Mapping[int, Headers] | None = None,
    payload: Buffer | None = None,
    level: int | None = None,
    limit: int = ...,
) -> bytearray:
    """The batch with every header of the names in `drop` removed, and with others added behind those that stay.

    Each record gets its header of every stamp, then those that `added` has for its index. Everything else stays:
    offsets, timestamps, keys, values, producer fields, attributes and codec. `payload` is the batch's decompressed
    records, if the caller has them already. The batch's CRC is not looked at, and the result has a correct one: check
    the batch before. Raises `CorruptBatchError` for a damaged record, `BatchTooLargeError` if the new records exceed
    `limit` bytes without compression.
    """
