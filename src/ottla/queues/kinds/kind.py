"""What the engine asks of a kind of queue, and what the kind may answer. Pure.

`queue_shard.py` follows a companion's partition, keeps what is owed, and moves records when they are due. A kind says
what the records mean: delayed delivery, retry, half messages.
"""

from array import array
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from ottla.model.ids import Offset, TopicPartition
from ottla.queues.progress_records import Action, Plan, Settled
from ottla.queues.settled_offsets import SettledOffsets
from ottla.records.batch import Batch
from ottla.records.record import Headers, Record


class Found(NamedTuple):
    """What a batch of the companion holds."""

    due_ms: "array[int]"
    """When each parked record is due; as many as `offsets`."""
    offsets: "array[int]"
    """The offsets of the parked records, ascending. Other records of the batch are instructions, and not owed."""
    instructions: Sequence[object] = ()
    """What else the kind found; handed back to `apply` once the batch counts."""
    released: Sequence[tuple[int, int]] = ()
    """Offset and new due time of records that were parked before and are due earlier than they were."""
    cancelled: Sequence[int] = ()
    """Offsets of records that were parked before and are not delivered."""


class Consequence(NamedTuple):
    """What follows from the instructions of a batch."""

    due_now: Sequence[int] = ()
    """The offsets of parked records that are due at once, whatever was their due time."""
    contradictions: Sequence[str] = ()
    """Instructions that cannot be obeyed, for the log of the broker."""


NOTHING: Final = Consequence()


class Deliver(NamedTuple):
    """Append the record to this partition."""

    sink: TopicPartition


class DeadLetter(NamedTuple):
    """Append the record to the dead-letter topic."""

    reason: str


class Ask(NamedTuple):
    """Append a question about the record to this partition; the record is due again later."""

    sink: TopicPartition
    detail: str
    again_ms: int


class Drop(NamedTuple):
    """The record is not owed any more: it was cancelled or rolled back.

    Unless `is_noted`, nothing is noted in the log, so the same must follow again when the log is read again.
    """

    is_noted: bool = False
    why: str = ""
    """For the log of the broker, if a client should know that its record has no effect."""


class Later(NamedTuple):
    """Look at the record again at this time. Nothing is noted in the log."""

    due_ms: int


Verdict = Deliver | DeadLetter | Ask | Drop | Later


class Kind(Protocol):
    """One kind of queue on one partition. It may remember instructions; everything it knows comes from the log."""

    name: str
    """For metrics and log lines."""

    dropped_headers: Sequence[str]
    """Headers that delivered records do not have any more."""

    dropped_from_dead: Sequence[str]
    """Headers that dead letters do not have, beside those of earlier deliveries."""

    def begin(self, settled: SettledOffsets) -> None:
        """The log is about to be read; `settled` has at any time the offsets that are not owed any more."""

    def read(self, batch: Batch) -> Found:
        """What a data batch means. Does not change anything: its transaction may be aborted."""

    def apply(self, found: Found) -> Consequence:
        """The batch counts: remembers its instructions."""

    def on_progress(self, record: Plan | Settled) -> None:
        """The log says that records were moved, asked about, or settled."""

    def uniform_verdict(self) -> Verdict | None:
        """The verdict about every record that is due, if it does not depend on the record; otherwise None."""

    def verdict(self, record: Record, now_ms: int) -> Verdict:
        """What happens to a record that is due."""

    def dead_letter_sink(self) -> TopicPartition:
        """Where its dead letters go."""

    def added_headers(self, action: Action, detail: str, record: Record) -> Headers:
        """Headers of a moved record, beside its origin. To be called only where `is_stamping`."""

    def is_stamping(self, action: Action) -> bool:
        """Whether moved records get headers that depend on the record."""

    def on_partitions(self, partitions: int, grew_at: Offset) -> None:
        """The target has this many partitions; records parked before `grew_at` belong where their key says."""

    def needed_from(self) -> int | None:
        """The lowest offset that its memory follows from, beside records that are owed; None if there is none."""

    def on_start(self, start_offset: Offset) -> None:
        """The log starts here now: instructions below it are not needed any more."""
