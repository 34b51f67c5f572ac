"""What Fetch requests and responses of consumers and of replicas have in common, in their flexible versions. Pure."""

from collections.abc import Callable, Iterable
from itertools import groupby
from operator import itemgetter
from struct import Struct
from typing import Final, TypeVar

from ottla.protocol.varints import unsigned_varint

T = TypeVar("T")
_TOPIC: Final = itemgetter(0)

WANTED: Final = Struct(">iiqiqi")
"""A partition in a request: index, leader epoch, offset, epoch of the last record, log start offset, bytes at most."""
INDEX: Final = Struct(">i")
RESPONSE: Final = Struct(">ihi")
"""The start of a response: throttle time, error code, session."""
PARTITION: Final = Struct(">ihqqq")
"""A partition in a response: index, error code, high watermark, last stable offset, log start offset."""
ABORTED: Final = Struct(">qq")
"""An aborted transaction: producer id, first offset."""


def by_topic(partitions: Iterable[tuple[T, bytes]], topic_bytes: Callable[[T], bytes]) -> bytes:
    """An array of topics, from (topic, partition in wire form); partitions of one topic must be adjacent."""
    count = 0
    topics: list[bytes] = []
    for topic, some in groupby(partitions, _TOPIC):
        parts = [part for _, part in some]
        topics += (topic_bytes(topic), unsigned_varint(len(parts) + 1), *parts, b"\0")
        count += 1
    return unsigned_varint(count + 1) + b"".join(topics)
