"""The records of a share consumer that the program has: what it holds locks for, and how it acknowledged them. Pure.

A record is held from the poll that returns it until its acknowledgement is sent. `acknowledge` decides, and may decide
again; `take` returns what was decided, for the brokers that gave the records. A record whose lock is renewed is
returned by the next poll again. A lock that timed out by this client's clock has timed out at the broker too, so its
acknowledgement fails here, for that record alone.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ottla.client.share.errors import AcquisitionLockLostError, NotAcquiredError
from ottla.client.share.share_session_state import Acknowledgements, Settled
from ottla.client.share.values import AcknowledgeType, ShareRecord, ShareRecords
from ottla.model.ids import TopicPartition
from ottla.model.invariants import violated
from ottla.protocol.share_frames import AcknowledgementBatch, TopicIdPartition


class Lock(NamedTuple):
    """The acquisition lock of some records of one partition."""

    broker: int
    session: int
    """The number of the session; see `ShareSessionState.number`."""
    partition: TopicIdPartition
    deadline: float
    """When it times out."""


class ToSend(NamedTuple):
    """Acknowledgements for the session with a broker."""

    broker: int
    session: int
    acknowledgements: Acknowledgements


@dataclass(slots=True)
class _Held:
    lock: Lock
    record: ShareRecord | None
    """None if it was returned in an Arrow batch."""
    type: AcknowledgeType | None = None
    is_renewed: bool = False
    """Whether its lock was renewed, and no poll has returned it since."""


@dataclass(slots=True)
class AcquiredRecordsState:
    """All records of one consumer that were returned by polls and are not acknowledged yet."""

    _held: dict[TopicPartition, dict[int, _Held]] = field(default_factory=dict)
    _own: list[tuple[TopicPartition, Lock, AcknowledgementBatch]] = field(default_factory=list)
    """What the consumer itself acknowledges: gaps, and records that cannot be read."""
    _renewing: dict[tuple[TopicIdPartition, int], _Held] = field(default_factory=dict)

    def deliver(self, partition: TopicPartition, lock: Lock, records: Iterable[ShareRecord]) -> None:
        """A poll returns records."""
        self._hold(partition, {record.offset: _Held(lock, record) for record in records})

    def deliver_offsets(self, partition: TopicPartition, lock: Lock, offsets: Iterable[int]) -> None:
        """A poll returns the records at these offsets in another form."""
        self._hold(partition, {offset: _Held(lock, None) for offset in offsets})

    def _hold(self, partition: TopicPartition, some: dict[int, _Held]) -> None:
        """A record that is held already was acquired again, after its lock had timed out."""
        if some:
            self._held.setdefault(partition, {}).update(some)

    def settle_range(self, partition: TopicPartition, lock: Lock, given: AcknowledgementBatch) -> None:
        """The consumer itself acknowledges acquired offsets that no poll returns."""
        self._own.append((partition, lock, given))

    # Acknowledging

    def acknowledge(self, partition: TopicPartition, offset: int, how: AcknowledgeType) -> None:
        """Decides about one record, again if it was decided before. Raises `NotAcquiredError`."""
        held = self._held.get(partition, {}).get(offset)
        if held is None:
            raise NotAcquiredError(partition, offset)
        held.type = how

    def acknowledge_all(self, how: AcknowledgeType, *, left_out: Collection[tuple[TopicPartition, int]] = ()) -> None:
        """Decides about all records that are not decided yet, except those in `left_out`."""
        for partition, some in self._held.items():
            for offset, held in some.items():
                if held.type is None and (partition, offset) not in left_out:
                    held.type = how

    @property
    def undecided(self) -> int:
        """How many records were returned and not acknowledged."""
        return sum(held.type is None and not held.is_renewed for some in self._held.values() for held in some.values())

    @property
    def held(self) -> int:
        """How many records were returned, with those whose acknowledgement was not taken yet."""
        return sum(map(len, self._held.values()))

    @property
    def is_renewing(self) -> bool:
        """Whether locks are being renewed."""
        return bool(self._renewing)

    def take(self, now: float) -> tuple[list[ToSend], list[Settled]]:
        """What was decided, for each broker and partition, and the records whose locks have timed out."""
        found: dict[tuple[int, int, TopicIdPartition], Acknowledgements] = {}
        expired: dict[TopicIdPartition, Acknowledgements] = {}

        def of(partition: TopicPartition, lock: Lock) -> Acknowledgements:
            if lock.deadline <= now:
                return expired.setdefault(
                    lock.partition, Acknowledgements(partition=lock.partition, name=partition, deadline=lock.deadline)
                )
            place = lock.broker, lock.session, lock.partition
            made = found.setdefault(place, Acknowledgements(partition=lock.partition, name=partition))
            made.deadline = max(made.deadline, lock.deadline)
            return made

        for partition, some in list(self._held.items()):
            self._take_decided(partition, some, of)
            if not some:
                del self._held[partition]
        own, self._own = self._own, []
        for partition, lock, given in own:
            if lock.deadline > now:
                of(partition, lock).ranges.append(given)
        sending = [ToSend(broker, session, made) for (broker, session, _), made in found.items()]
        return sending, [
            Settled(acknowledgements=each, error=_lock_expired(each)) for each in expired.values() if each.types
        ]

    def _take_decided(
        self,
        partition: TopicPartition,
        some: dict[int, _Held],
        of: Callable[[TopicPartition, Lock], Acknowledgements],
    ) -> None:
        for offset in [offset for offset, held in some.items() if held.type is not None]:
            held = some.pop(offset)
            if held.type is None:
                continue
            of(partition, held.lock).types[offset] = held.type
            if held.type is AcknowledgeType.RENEW:
                self._renewing[held.lock.partition, offset] = held

    # Renewals

    def on_settled(self, settled: Settled, deadline: float) -> None:
        """Acknowledgements were answered; renewed locks hold until `deadline` now."""
        for offset, how in settled.acknowledgements.types.items():
            if how != AcknowledgeType.RENEW:
                continue
            held = self._renewing.pop((settled.acknowledgements.partition, offset), None)
            if held is None or settled.error is not None:
                continue
            lock = held.lock._replace(deadline=deadline)
            self._hold(settled.acknowledgements.name, {offset: replace(held, lock=lock, type=None, is_renewed=True)})

    @property
    def has_renewed(self) -> bool:
        """Whether locks were renewed of records that no poll has returned since."""
        return any(held.is_renewed for some in self._held.values() for held in some.values())

    def take_renewed(self) -> ShareRecords:
        """The records whose locks were renewed, each once; without those that were returned in another form."""
        found: ShareRecords = {}
        for partition, some in self._held.items():
            for held in some.values():
                if held.is_renewed:
                    held.is_renewed = False
                    if held.record is not None:
                        found.setdefault(partition, []).append(held.record)
        return found

    def forget(self) -> None:
        """The sessions are closed, so brokers release everything that was not acknowledged."""
        self._held.clear()
        self._own.clear()
        self._renewing.clear()

    def check(self) -> None:
        """Raises `InvariantViolation` if a record is held and being renewed at the same time."""
        for (partition, offset), held in self._renewing.items():
            if held.type is not AcknowledgeType.RENEW:
                violated(f"offset {offset} of {partition} is being renewed, and was acknowledged as {held.type}")
        if any(not some for some in self._held.values()):
            violated("a partition without records is kept")


def _lock_expired(acknowledgements: Acknowledgements) -> AcquisitionLockLostError:
    count = len(acknowledgements.types)
    return AcquisitionLockLostError(
        f"{count} {'record' if count == 1 else 'records'} of {acknowledgements.name} cannot be acknowledged: the"
        " acquisition lock timed out, and the group delivers them again; acknowledge earlier, renew the lock, or poll"
        " fewer records at a time"
    )
