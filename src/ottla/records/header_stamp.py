"""A header with a number of its own for each record; see `header_edit`."""

from array import array
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Stamp(NamedTuple):
    """A header that records get: its value is `prefix`, and the record's number in decimal digits.

    `numbers` has a number of 64 bits for each record, as `array("q")`. A record with a negative number does not get the
    header.
    """

    name: str
    numbers: "array[int] | Buffer"
    prefix: bytes = b""
