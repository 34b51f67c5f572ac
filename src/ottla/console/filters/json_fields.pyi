"""Types and promises of the kernel that reads fields of JSON."""

from collections.abc import Sequence
from typing import Final

from typing_extensions import Buffer

NULL_KIND: Final[int]
"""The field is missing or null, or the document is not JSON."""
FALSE: Final[int]
TRUE: Final[int]
INTEGER: Final[int]
REAL: Final[int]
TEXT: Final[int]
NESTED: Final[int]
"""A list or an object."""
ODD: Final[int]
"""Only a decoder can tell: the document has bytes that are not UTF-8, a number of many digits, or deep nesting."""
PATHS_MAX: Final[int]

_Column = tuple[bytes, bytes | None, bytes | None, bytes | None, bytes | None]

def json_fields(
    offsets: Buffer,
    data: Buffer,
    first: int,
    count: int,
    paths: Sequence[tuple[str | int, ...]],
    marks: bytes | None = None,
) -> list[_Column]:
    """Of each path, what it leads to in each of `count` documents: the kind (uint8), integers (int64), reals (double)
    and texts, as offsets (int32, one more than rows) and UTF-8. Where the kind is another one, these are 0 or empty;
    they are None if no row is of this kind.

    `offsets` (int32) and `data` are the buffers of an Arrow column of binary; its first row is `first`. A number with a
    fraction or an exponent is a real, correctly rounded; integers have up to 18 digits. Of fields with the same name
    the last one counts. An index is also the name of a field of an object. Releases the GIL. At most `PATHS_MAX` paths.

    With `marks`, a byte for each row, documents whose byte is 0 are not read, and have no fields.
    """

def rows_with(
    offsets: Buffer, data: Buffer, first: int, count: int, wanted: bytes, *, may_escape: bool = False
) -> bytes:
    """A byte for each row: 1 where it contains some bytes, or with `may_escape` a backslash; else 0.

    Releases the GIL.
    """

def rows_with_number(
    offsets: Buffer, data: Buffer, first: int, count: int, name: str, low: float, high: float
) -> bytes:
    """A byte for each row: 0 where no field of this name, at any depth, is a number from `low` to `high`; else 1.

    It is 1 where a row has a backslash, as JSON can write any character as an escape. All are 1 if most of the first
    rows are: then looking is not worth it. Releases the GIL.
    """
