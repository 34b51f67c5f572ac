"""The progress of a queue: what its leader notes in the companion's own log, as control records. Pure.

The next leader of the partition reads these records between the parked ones and continues. `delivery_state`
gives them their meaning. The encoding is MessagePack; a record of an unknown kind or with missing fields was written by
a newer version or is damaged, and stops the queue (`CorruptError`): guessing could deliver a record twice.
"""

from array import array
from enum import IntEnum
from typing import Final

import msgspec

from ottla.model.errors import CorruptError
from ottla.model.ids import Offset, TopicPartition
from ottla.queues.offset_runs import offsets_of


class Action(IntEnum):
    """What happens to the records of a plan."""

    DELIVER = 0
    """Appended to the target; the parked records are no longer owed."""
    DEAD = 1
    """Appended to the dead-letter topic, with the reason; no longer owed."""
    ASK = 2
    """A question is appended; the parked records stay owed, and are due again later."""


class Plan(msgspec.Struct, frozen=True, array_like=True, tag="plan"):
    """Parked records that will be appended to a sink as one batch, with these sequences.

    A plan is carried out once it is committed. The next plan for the same sink says that this one is done.
    """

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    first_sequence: int
    runs: tuple[int, ...]
    """The parked records' offsets in the order of the batch, as pairs of a first offset and a count."""
    action: Action = Action.DELIVER
    detail: str = ""
    """The reason of dead letters, or how often was asked."""
    again_ms: int = -1
    """When records that stay owed are due again."""

    @property
    def sink(self) -> TopicPartition:
        """The partition that the batch is appended to."""
        return TopicPartition(self.topic, self.partition)

    @property
    def count(self) -> int:
        """How many records it moves."""
        return sum(self.runs[1::2])

    @property
    def next_sequence(self) -> int:
        """The sequence of the batch after this one."""
        return (self.first_sequence + self.count) & _SEQUENCE_MAX

    @property
    def first_offset(self) -> Offset:
        """The lowest offset of its records."""
        return Offset(min(self.runs[::2]))

    def offsets(self) -> "array[int]":
        """The offset of each record, in the order of the batch."""
        return offsets_of(self.runs)


class SinkProgress(msgspec.Struct, frozen=True, array_like=True):
    """The next sequence for a sink. Everything before it has been appended there."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    next_sequence: int


class Done(msgspec.Struct, frozen=True, array_like=True, tag="done"):
    """The last plans for these sinks have been carried out."""

    sinks: tuple[SinkProgress, ...]


class Refused(msgspec.Struct, frozen=True, array_like=True, tag="refused"):
    """A sink refused the batch of its last plan for good. Its next batch has the next producer epoch.

    The records are still owed: they are planned again in two halves, to find the one at fault; a single record becomes
    a dead letter. With `is_unknown_producer` the sink lost its state, and the records are planned again as they are.
    """

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    first_sequence: int
    reason: str
    is_unknown_producer: bool = False

    @property
    def sink(self) -> TopicPartition:
        """The partition that refused the batch."""
        return TopicPartition(self.topic, self.partition)


class Grew(msgspec.Struct, frozen=True, array_like=True, tag="grew"):
    """The target has this many partitions now: records parked before are delivered by their key."""

    partitions: int


class Settled(msgspec.Struct, frozen=True, array_like=True, tag="settled"):
    """Parked records that are not owed any more, although nothing was appended for them."""

    runs: tuple[int, ...]
    """Their offsets, as pairs of a first offset and a count."""

    def offsets(self) -> "array[int]":
        """The offset of each record."""
        return offsets_of(self.runs)


class Snapshot(msgspec.Struct, frozen=True, array_like=True, tag="snapshot"):
    """Everything that a reader of the log from here on could not know otherwise.

    What is owed is not in it: records that are owed, and the plans for them, are never deleted.
    """

    producer_id: int
    """For sinks that are not in the list."""
    sinks: tuple[SinkProgress, ...]
    partitions: int
    """How many partitions the target had; 0 if that does not matter."""
    grew_at: int
    """Records parked before this offset are delivered by their key."""


ProgressRecord = Plan | Done | Refused | Grew | Settled | Snapshot

_SEQUENCE_MAX: Final = 2**31 - 1
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final[msgspec.msgpack.Decoder[ProgressRecord]] = msgspec.msgpack.Decoder(ProgressRecord)


def encode(record: ProgressRecord) -> bytes:
    """The value of the control record."""
    return _ENCODER.encode(record)


def decode(value: bytes) -> ProgressRecord:
    """The record. Raises CorruptError if this version cannot read it."""
    try:
        record = _DECODER.decode(value)
    except (msgspec.MsgspecError, ValueError) as error:
        raise CorruptError(f"progress record of a queue cannot be read: {error}") from error
    if isinstance(record, Plan | Settled) and not _is_sound(record.runs):
        raise CorruptError("progress record of a queue cannot be read: its offsets are not runs of records")
    return record


def _is_sound(runs: tuple[int, ...]) -> bool:
    return bool(runs) and len(runs) % 2 == 0 and min(runs[::2]) >= 0 and min(runs[1::2]) > 0
