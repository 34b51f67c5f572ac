"""The batches of one partition in their order: waiting, on the wire, and numbered so that none is written twice.

Pure. Covers the order and the sequence numbers of one partition; which partitions may send now, and how much, is
`accumulator_state.py`'s. The rules for numbers, which are those of Kafka's own producer:

- A batch gets its number when it first leaves, and keeps it when it is sent again: brokers know it by that.
- What comes back waits in front, in order, and leaves alone, once nothing of the partition is on the wire.
- A batch that nothing precedes and that is out of order nevertheless shows that the broker lost something, or that
  one before it was refused for good. Then the producer takes a new epoch and numbers what waits from 0 on.
- To a broker that does not know the producer yet, one batch goes alone.
- A batch given up on while nobody knows whether it was written leaves its number *unresolved*: new batches wait until
  one behind it is accepted (so it was written), or refused as out of order (so it was not), or none is left.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator

from ottla.client.producer.batch import NO_SEQUENCE, SEQUENCES, Identity, ProducerBatch
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
        """Waiting, in order. Only the last may still be open; those that were sent before have their numbers."""
        self.on_wire: list[ProducerBatch] = []
        """Sent and not answered, in order."""
        self.sent_to: int | None = None
        """The broker that has all of those."""
        self.leader: int | None = None
        self.leader_epoch = -1
        self.identity: Identity | None = None
        """Under which `next_sequence` counts."""
        self.next_sequence = 0
        self.is_unresolved = False
        self.wants_new_epoch = False
        self.producer_id = -1
        self.is_known = False
        """Whether the partition has a batch of `producer_id`, of any epoch."""
        self.is_in_transaction = False
        """Whether the coordinator knows that the transaction writes here."""
        self._next_order = 0

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nothing is on the wire."""
        return not self.batches and not self.on_wire

    def take_order(self) -> tuple[int, ...]:
        """The next batch's place."""
        self._next_order += 1
        return (self._next_order,)

    # Leaving and coming back

    def may_leave(self) -> bool:
        """Whether what is on the wire, if anything, is on the wire to the leader. Else it must come back first: what
        follows it would come before it."""
        return not self.on_wire or self.sent_to == self.leader

    def may_number(self, identity: Identity) -> bool:
        """Whether a batch without a number may leave now."""
        if self.is_unresolved or self.wants_new_epoch:
            return False
        # Those on the wire under an older identity come first, or their order would be nobody's. And a broker that does
        # not know the producer takes whatever it sees first for its beginning: until it does, one goes at a time.
        return (self.is_known and self.identity == identity) or not self.on_wire

    def may_resend(self) -> bool:
        """Whether a batch that came back may leave now."""
        return not self.on_wire and not self.wants_new_epoch

    def take(self, identity: Identity | None) -> ProducerBatch:
        """The first batch, which is then on the wire, with its number if there is an identity."""
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
        """It is no longer on the wire."""
        self.on_wire.remove(batch)

    def put_back(self, batches: list[ProducerBatch]) -> None:
        """They wait again, each in its place."""
        for batch in batches:
            self.batches.insert(bisect_left(self.batches, batch.order, key=_order), batch)

    def precedes_all(self, batch: ProducerBatch) -> bool:
        """Whether no numbered batch that was sent before this one is still undecided."""
        others = self.numbered()
        return all(batch.order <= other.order for other in others if other.identity == batch.identity)

    def numbered(self) -> Iterator[ProducerBatch]:
        """Those that were sent and whose fate is not known."""
        yield from self.on_wire
        for batch in self.batches:
            if batch.sequence == NO_SEQUENCE:
                return
            yield batch

    # What becomes of the numbers

    def accepted(self, batch: ProducerBatch) -> None:
        """Its number, and with it all before, is in the log."""
        if batch.identity == self.identity:
            self.is_unresolved = False
            self.is_known = True

    def lost(self, batch: ProducerBatch, *, is_refused: bool) -> None:
        """It is given up. If a broker refused it, and no other try is in doubt, its number was surely not taken."""
        if batch.sequence == NO_SEQUENCE or batch.identity != self.identity:
            return
        if is_refused and not batch.is_doubtful:
            self.wants_new_epoch = True
        elif batch.tries > 0:
            self.is_unresolved = True

    def needs_new_epoch(self) -> bool:
        """Whether the producer must take another epoch before this partition can go on; asked with an empty wire."""
        if self.on_wire:
            return False
        return self.wants_new_epoch or (self.is_unresolved and next(self.numbered(), None) is None)

    def renumber(self) -> None:
        """What waits will be numbered anew from 0, under a new identity."""
        if self.on_wire:
            violated(f"{self.partition}: batches are renumbered while {len(self.on_wire)} are on the wire")
        for batch in self.batches:
            if batch.sequence == NO_SEQUENCE:
                break
            batch.forget_number()
        self.identity = None
        self.next_sequence = 0
        self.is_unresolved = self.wants_new_epoch = False

    def check(self) -> None:
        """Raises `InvariantViolation` unless all is in order."""
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
