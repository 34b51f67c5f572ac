"""The record batch format v2: the position of each header field, and the meaning of its bits."""

from enum import IntEnum
from typing import Final

BASE_OFFSET_AT: Final = 0
LENGTH_AT: Final = 8
"""The batch's size without the 12 bytes up to and including this field."""
LEADER_EPOCH_AT: Final = 12
MAGIC_AT: Final = 16
CRC_AT: Final = 17
"""CRC-32C of everything from `ATTRIBUTES_AT` to the end: stamping offset and leader epoch leaves it valid."""
ATTRIBUTES_AT: Final = 21
LAST_OFFSET_DELTA_AT: Final = 23
BASE_TIMESTAMP_AT: Final = 27
MAX_TIMESTAMP_AT: Final = 35
PRODUCER_ID_AT: Final = 43
PRODUCER_EPOCH_AT: Final = 51
BASE_SEQUENCE_AT: Final = 53
COUNT_AT: Final = 57
HEADER_BYTES: Final = 61
LENGTH_PREFIX_BYTES: Final = 12
MAGIC: Final = 2

CODEC_BITS: Final = 0x07
APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40


class Codec(IntEnum):
    """How a batch's records are compressed."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class TimestampType(IntEnum):
    """Whether the producer sets a record's timestamp, or the broker when it appends."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class Marker(IntEnum):
    """How a transaction ended, as its control record's key says."""

    ABORT = 0
    COMMIT = 1
