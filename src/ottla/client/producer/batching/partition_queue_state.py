"""The batches of one partition in order: waiting, in flight, and numbered so that none is written twice.

Pure. Covers the order and the sequence numbers of one partition; `accumulator_state.py` decides which partitions may
send now, and how much. The rules for sequence numbers are those of Kafka's own producer:

- A batch gets its number when it is first sent, and keeps it for retries: brokers detect duplicates by it.
- Batches to retry wait at the front, in order, and are sent alone, once nothing of the partition is in flight.
- If the first unfinished batch is refused as out of order, the broker has lost something, or an earlier batch was
  refused finally. Then the producer bumps its epoch and numbers the waiting batches from 0 again.
- Until a broker knows the producer, one batch is sent at a time.
- A batch that expired and may have been written leaves its number *unresolved*: new batches wait until a later one is
  accepted (so it was written), or refused as out of order (so it was not), or none is left.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator

from ottla.client.producer.batching.producer_batch import NO_SEQUENCE, SEQUENCES, Identity, ProducerBatch
from ottla.model.ids import TopicPartition
from ottla.model.invariants import violated


class PartitionQueue:
    """Mutable; belongs to one accumulator."""

    __slots__ = (
        "_next_order",
        "batches",
        "identity",
        "is_in_transaction",
        "is_known",
        "is_unresolved",
        "leader",
        "leader_epoch",
        "next_sequence",
        "on_wire",
        "partition",
        "producer_id",
        "sent_to",
        "wants_new_epoch",
    )

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.batches: deque[ProducerBatch] = deque()
        """Waiting, in order. Only the last may be open; those that were sent before have their numbers."""
        self.on_wire: list[ProducerBatch] = []
        """In flight, in order."""
        self.sent_to: int | None = None
        """The broker to which those were sent."""
        self.leader: int | None = None
        self.leader_epoch = -1
        self.identity: Identity | None = None
        """The producer id and epoch for which `next_sequence` counts."""
        self.next_sequence = 0
        self.is_unresolved = False
        self.wants_new_epoch = False
        self.producer_id = -1
        self.is_known = False
        """Whether the partition has accepted a batch of `producer_id`, of any epoch."""
        self.is_in_transaction = False
        """Whether the coordinator has added the partition to the transaction."""
        self._next_order = 0

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nothing is in flight."""
        return not self.batches and not self.on_wire

    def take_order(self) -> tuple[int, ...]:
        """The place of the next batch."""
        self._next_order += 1
        return (self._next_order,)

    # Sending and retrying

    def may_leave(self) -> bool:
        """Whether all batches in flight were sent to the current leader. Otherwise wait for them, to keep the order."""
        return not self.on_wire or self.sent_to == self.leader

    def may_number(self, identity: Identity) -> bool:
        """Whether a batch without a sequence number may be sent now."""
        if self.is_unresolved or self.wants_new_epoch:
            return False
        # Batches in flight under an older identity come first, or the order would be lost. A broker that does not know
        # the producer accepts any first sequence number, so until it does, one batch is sent at a time.
        return (self.is_known and self.identity == identity) or not self.on_wire

    def may_resend(self) -> bool:
        """Whether a retry may be sent now."""
        return not self.on_wire and not self.wants_new_epoch

    def take(self, identity: Identity | None) -> ProducerBatch:
        """Takes the first batch, which is then in flight; numbers it if there is an identity."""
        batch = self.batches.popleft()
        batch.is_closed = True
        if identity is not None and batch.sequence == NO_SEQUENCE:
            if self.identity != identity:
                self.is_known = self.is_known and self.producer_id == identity.producer_id
                self.identity, self.next_sequence, self.producer_id = identity, 0, identity.producer_id
            batch.number(identity, self.next_sequence)
            self.next_sequence = (self.next_sequence + batch.count) % SEQUENCES
        batch.tries += 1
        self.sent_to = self.leader
        self.on_wire.append(batch)
        return batch

    def answered(self, batch: ProducerBatch) -> None:
        """The batch is no longer in flight."""
        self.on_wire.remove(batch)

    def put_back(self, batches: list[ProducerBatch]) -> None:
        """The batches wait again, each in its place."""
        for batch in batches:
            self.batches.insert(bisect_left(self.batches, batch.order, key=_order), batch)

    def precedes_all(self, batch: ProducerBatch) -> bool:
        """Whether no batch that was sent before this one is unfinished."""
        others = self.numbered()
        return all(batch.order <= other.order for other in others if other.identity == batch.identity)

    def numbered(self) -> Iterator[ProducerBatch]:
        """The unfinished batches that have sequence numbers."""
        yield from self.on_wire
        for batch in self.batches:
            if batch.sequence == NO_SEQUENCE:
                return
            yield batch

    # Sequence numbers

    def accepted(self, batch: ProducerBatch) -> None:
        """The batch, and all before it, are in the log."""
        if batch.identity == self.identity:
            self.is_unresolved = False
            self.is_known = True

    def lost(self, batch: ProducerBatch, *, is_refused: bool) -> None:
        """The batch failed. If a broker refused it and no other try is in doubt, its number was certainly not used."""
        if batch.sequence == NO_SEQUENCE or batch.identity != self.identity:
            return
        if is_refused and not batch.is_doubtful:
            self.wants_new_epoch = True
        elif batch.tries > 0:
            self.is_unresolved = True

    def needs_new_epoch(self) -> bool:
        """Whether the producer must bump its epoch before this partition can continue."""
        if self.on_wire:
            return False
        return self.wants_new_epoch or (self.is_unresolved and next(self.numbered(), None) is None)

    def renumber(self) -> None:
        """Removes the numbers of waiting batches; they get new ones from 0, under a new identity."""
        if self.on_wire:
            violated(f"{self.partition}: batches are renumbered while {len(self.on_wire)} are in flight")
        for batch in self.batches:
            if batch.sequence == NO_SEQUENCE:
                break
            batch.forget_number()
        self.identity = None
        self.next_sequence = 0
        self.is_unresolved = self.wants_new_epoch = False

    def check(self) -> None:
        """Raises `InvariantViolation` if orders or sequence numbers are inconsistent."""
        orders = [batch.order for batch in self.batches]
        if orders != sorted(orders):
            violated(f"{self.partition}: batches wait out of order, {orders}")
        if not all(batch.is_closed for batch in list(self.batches)[:-1]):
            violated(f"{self.partition}: an open batch is not the last")
        seen_new = False
        for batch in self.batches:
            if batch.sequence == NO_SEQUENCE:
                seen_new = True
            elif seen_new:
                violated(f"{self.partition}: a numbered batch waits behind one without a number")
        expected: int | None = None
        for batch in sorted(self.numbered(), key=_order):
            if batch.identity != self.identity:
                continue
            if expected is not None and expected > batch.sequence:
                violated(f"{self.partition}: sequence {batch.sequence} follows {expected - 1}")
            expected = batch.sequence + batch.count


def _order(batch: ProducerBatch) -> tuple[int, ...]:
    return batch.order
