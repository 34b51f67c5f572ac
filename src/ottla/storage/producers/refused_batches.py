"""Batches of idempotent producers that could not be written, although their sequence was right: they will come again.

A producer sends several requests at once. If one is refused for the moment, because the disk is full for example, the
next one leaves a gap in the sequence. It gets the same error, and not OUT_OF_ORDER_SEQUENCE_NUMBER, after which
librdkafka begins a new epoch and sends in it all that is not acknowledged, though the log may have it. Pure.
"""

from typing import Final, NamedTuple

from ottla.model.errors import NotEnoughReplicasError, OttlaError, StorageError
from ottla.model.ids import NO_PRODUCER_ID, NO_SEQUENCE, ProducerEpoch, ProducerId, Sequence, TimestampMs
from ottla.records.batch import Batch
from ottla.storage.producers.producer_state import SEQUENCE_MAX, ProducerEntry

REMEMBERED_MS: Final = 30_000
"""After this time without another refusal, the producer has given the batch up: a gap is a gap again, as in Kafka."""

PRODUCERS_MAX: Final = 1_000
"""Of one log. A client that is refused may name a producer of its own in each batch: the oldest refusals make room."""


class _Refusal(NamedTuple):
    epoch: ProducerEpoch
    sequence: Sequence
    """The first one that was refused."""
    kind: type[OttlaError]
    why: str
    at_ms: TimestampMs


class RefusedBatches:
    """The first refused batch of each producer, until it is written or given up."""

    __slots__ = ("by_producer",)

    def __init__(self) -> None:
        self.by_producer: dict[ProducerId, _Refusal] = {}
        """The latest refusal last."""

    def note(self, batch: Batch, error: OttlaError, now: TimestampMs) -> None:
        """A batch was refused for the moment."""
        self._forget_old(now)
        producer_id, sequence = batch.producer_id, batch.base_sequence
        if producer_id == NO_PRODUCER_ID or sequence == NO_SEQUENCE:
            return
        known = self.by_producer.get(producer_id)
        if known is not None and known.epoch == batch.producer_epoch and _is_behind(sequence, known.sequence):
            return
        self.by_producer.pop(producer_id, None)  # so that the latest comes last
        # Not the error itself: its traceback would keep files open.
        kind = NotEnoughReplicasError if isinstance(error, NotEnoughReplicasError) else StorageError
        self.by_producer[producer_id] = _Refusal(batch.producer_epoch, sequence, kind, str(error), now)
        if len(self.by_producer) > PRODUCERS_MAX:
            del self.by_producer[next(iter(self.by_producer))]

    def check(self, batch: Batch, entry: ProducerEntry | None, now: TimestampMs) -> None:
        """Raises the error of a refused batch that this one follows. `entry` is what the log knows of the producer."""
        self._forget_old(now)
        refusal = self.by_producer.get(batch.producer_id)
        if refusal is None or refusal.epoch != batch.producer_epoch:
            return
        if not _is_behind(batch.base_sequence, refusal.sequence):
            return
        if entry is not None and entry.epoch == refusal.epoch and entry.last_sequence != NO_SEQUENCE:
            expected = (entry.last_sequence + 1) % (SEQUENCE_MAX + 1)
            if _is_behind(expected, refusal.sequence):
                del self.by_producer[batch.producer_id]  # It is written.
                return
        raise refusal.kind(
            f"producer {batch.producer_id} epoch {batch.producer_epoch} sent sequence {batch.base_sequence} after"
            f" {refusal.sequence}, which was refused: {refusal.why}"
        )

    def _forget_old(self, now: TimestampMs) -> None:
        while self.by_producer:
            producer_id, refusal = next(iter(self.by_producer.items()))
            if abs(now - refusal.at_ms) <= REMEMBERED_MS:  # The clock may have been set back.
                return
            del self.by_producer[producer_id]


def _is_behind(sequence: int, other: int) -> bool:
    """Whether a sequence comes after another one; sequences wrap around."""
    return 0 < (sequence - other) % (SEQUENCE_MAX + 1) <= SEQUENCE_MAX // 2
