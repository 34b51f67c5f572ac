"""DescribeTransactions as bytes, and what it answers.

Apart from the messages that kio reads, because the start is -1 on the wire where no transaction was begun, which kio
takes for no time at all.
"""

from struct import Struct
from typing import Final, NamedTuple

from ottla.model.ids import TopicPartition
from ottla.protocol.fields import FieldReader, compact_string
from ottla.protocol.varints import unsigned_varint

VERSION: Final = 0
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_NUMBERS: Final = Struct(">iqqh")


class DescribedTransaction(NamedTuple):
    """One transactional id as its coordinator tells it; `start_ms` is -1 until a first transaction."""

    error_code: int
    transactional_id: str
    state: str
    timeout_ms: int
    start_ms: int
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]


def describe_transaction_body(transactional_id: str) -> list[bytes]:
    """Asks for one transactional id."""
    return [unsigned_varint(2), compact_string(transactional_id), b"\0"]


def read_described_transaction(frame: memoryview) -> DescribedTransaction | None:
    """What is said of the id that was asked for; None if nothing is."""
    fields = FieldReader(frame, 4)
    fields.skip_tags()
    fields.unpack(_INT32)
    if not fields.count():
        return None
    (error_code,) = fields.unpack(_INT16)
    transactional_id, state = fields.string() or "", fields.string() or ""
    timeout_ms, start_ms, producer_id, producer_epoch = fields.unpack(_NUMBERS)
    partitions: list[TopicPartition] = []
    for _ in range(fields.count()):
        topic = fields.string() or ""
        partitions += [TopicPartition(topic, int(fields.unpack(_INT32)[0])) for _ in range(fields.count())]
        fields.skip_tags()
    return DescribedTransaction(
        error_code, transactional_id, state, timeout_ms, start_ms, producer_id, producer_epoch, tuple(partitions)
    )
