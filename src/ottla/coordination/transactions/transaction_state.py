"""The decisions about one transactional id: an event and the entry of the id in, records and response out.

Pure functions over `TransactionEntry`, or None for an id without an entry; they change nothing. Two kinds of clients
share the states: those of version 0 and 1 keep their epoch from one transaction to the next, those of version 2 get a
new epoch at each end, so that a delayed write can never join a later transaction. Markers are in `markers.py`, all ids
of a partition in `shard_state.py`.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from ottla.coordination.transactions.records import TransactionEntry, TransactionStatus
from ottla.coordination.transactions.requests import EPOCH_BUMP_VERSION, AddPartitions, EndTransaction, InitProducerId
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
    TopicPartition,
)
from ottla.model.invariants import violated

EPOCH_MAX: Final = 32767
EPOCH_CLIENT_MAX: Final = 32766
"""The last epoch that a client gets; the next one is reserved for fencing it."""
NO_TIMEOUT_MS: Final = 2**31 - 1
"""The timeout of a transaction that never times out, since its end is decided outside (two-phase commit)."""

_EMPTY = TransactionStatus.EMPTY
_ONGOING = TransactionStatus.ONGOING
_PREPARE_COMMIT = TransactionStatus.PREPARE_COMMIT
_PREPARE_ABORT = TransactionStatus.PREPARE_ABORT
_COMPLETE_COMMIT = TransactionStatus.COMPLETE_COMMIT
_COMPLETE_ABORT = TransactionStatus.COMPLETE_ABORT
_FENCE = TransactionStatus.PREPARE_EPOCH_FENCE

PREPARED: Final = frozenset({_PREPARE_COMMIT, _PREPARE_ABORT})
"""Decided, with markers in flight."""
_BUSY: Final = PREPARED | {_FENCE}
AT_REST: Final = frozenset({_EMPTY, _COMPLETE_COMMIT, _COMPLETE_ABORT})
"""No transaction is open; an id that stays so expires."""

_COMPLETE_OF: Final = {_PREPARE_COMMIT: _COMPLETE_COMMIT, _PREPARE_ABORT: _COMPLETE_ABORT}

_LEGAL_NEXT: Final[dict[TransactionStatus | None, frozenset[TransactionStatus]]] = {
    None: frozenset({_EMPTY}),
    _EMPTY: frozenset({_EMPTY, _ONGOING, _PREPARE_ABORT}),
    _ONGOING: frozenset({_ONGOING, _PREPARE_COMMIT, _PREPARE_ABORT}),
    _PREPARE_COMMIT: frozenset({_COMPLETE_COMMIT}),
    _PREPARE_ABORT: frozenset({_COMPLETE_ABORT}),
    _COMPLETE_COMMIT: frozenset({_EMPTY, _ONGOING, _PREPARE_ABORT}),
    _COMPLETE_ABORT: frozenset({_EMPTY, _ONGOING, _PREPARE_ABORT}),
    _FENCE: frozenset({_PREPARE_ABORT}),
}

# How a client of version 0 or 1 that has the right id and epoch fares at the end, outside of an ongoing transaction:
# (state, commit). A retry and a new request look the same.
_END_V1: Final = {
    (_EMPTY, True): ErrorCode.INVALID_TXN_STATE,
    (_EMPTY, False): ErrorCode.INVALID_TXN_STATE,
    (_PREPARE_COMMIT, True): ErrorCode.CONCURRENT_TRANSACTIONS,
    (_PREPARE_COMMIT, False): ErrorCode.INVALID_TXN_STATE,
    (_PREPARE_ABORT, True): ErrorCode.INVALID_TXN_STATE,
    (_PREPARE_ABORT, False): ErrorCode.CONCURRENT_TRANSACTIONS,
    (_COMPLETE_COMMIT, True): ErrorCode.NONE,
    (_COMPLETE_COMMIT, False): ErrorCode.INVALID_TXN_STATE,
    (_COMPLETE_ABORT, True): ErrorCode.INVALID_TXN_STATE,
    (_COMPLETE_ABORT, False): ErrorCode.NONE,
    (_FENCE, True): ErrorCode.CONCURRENT_TRANSACTIONS,
    (_FENCE, False): ErrorCode.CONCURRENT_TRANSACTIONS,
}
# The same for version 2, at rest: (state, commit, retry). A retry has the epoch before the bump; the present epoch is a
# new request, whose abort is always granted, since the client cannot know whether a broker had added a partition: None.
_END_V2: Final = {
    (_EMPTY, True, False): ErrorCode.INVALID_TXN_STATE,
    (_EMPTY, False, False): None,
    (_COMPLETE_COMMIT, True, False): ErrorCode.INVALID_TXN_STATE,
    (_COMPLETE_COMMIT, True, True): ErrorCode.NONE,
    (_COMPLETE_COMMIT, False, False): None,
    (_COMPLETE_COMMIT, False, True): ErrorCode.INVALID_TXN_STATE,
    (_COMPLETE_ABORT, True, False): ErrorCode.INVALID_TXN_STATE,
    (_COMPLETE_ABORT, True, True): ErrorCode.INVALID_TXN_STATE,
    (_COMPLETE_ABORT, False, False): None,
    (_COMPLETE_ABORT, False, True): ErrorCode.NONE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDecision:
    """Entries to write, in order, and the response: an error, or the producer id and epoch that the client continues
    with. `last_epoch` is set where the client may miss the response and retry with that epoch. If `needs_producer_id`,
    nothing was decided: decide again with a new producer id."""

    error: ErrorCode = ErrorCode.NONE
    entries: tuple[TransactionEntry, ...] = ()
    producer_id: ProducerId = NO_PRODUCER_ID
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    last_epoch: ProducerEpoch | None = None
    needs_producer_id: bool = False


_NEEDS_PRODUCER_ID: Final = TransactionDecision(needs_producer_id=True)
_FENCED: Final = TransactionDecision(error=ErrorCode.PRODUCER_FENCED)
_CONCURRENT: Final = TransactionDecision(error=ErrorCode.CONCURRENT_TRANSACTIONS)
_WRONG_ID: Final = TransactionDecision(error=ErrorCode.INVALID_PRODUCER_ID_MAPPING)
_WRONG_STATE: Final = TransactionDecision(error=ErrorCode.INVALID_TXN_STATE)


def init_producer_id(
    entry: TransactionEntry | None,
    request: InitProducerId,
    *,
    last_epoch: ProducerEpoch | None,
    fresh_id: ProducerId | None,
    transaction_version: int,
    now_ms: int,
) -> TransactionDecision:
    """A producer takes the id over, or continues with it. `last_epoch` is that of the latest decision, if known."""
    if entry is None:
        if fresh_id is None:
            return _NEEDS_PRODUCER_ID
        return _initialised(request, previous=None, producer_id=fresh_id, epoch=0, last_epoch=None, now_ms=now_ms)
    if entry.status in _BUSY:
        return _CONCURRENT
    expected_id, expected_epoch = request.expected_producer_id, request.expected_producer_epoch
    is_new = expected_id == NO_PRODUCER_ID
    is_current = expected_id == entry.producer_id and expected_epoch == entry.producer_epoch
    # A retry of a request that was carried out: it bumped the epoch, or replaced an exhausted producer id.
    is_retry = expected_epoch == last_epoch and (
        expected_id == entry.producer_id
        or (expected_id == entry.previous_producer_id and expected_epoch >= EPOCH_CLIENT_MAX)
    )
    if not (is_new or is_current or is_retry):
        return _FENCED
    if entry.status is _ONGOING:
        aborted = abort_by_coordinator(entry, fresh_id=fresh_id, transaction_version=transaction_version, now_ms=now_ms)
        # No client gets the bumped epoch: this one retries until the abort is complete.
        return replace(
            aborted,
            error=ErrorCode.CONCURRENT_TRANSACTIONS,
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_PRODUCER_EPOCH,
            last_epoch=None if is_new else expected_epoch,
        )
    initialised = partial(_initialised, request, previous=entry, now_ms=now_ms)
    if is_retry and not is_current:
        return initialised(producer_id=entry.producer_id, epoch=entry.producer_epoch, last_epoch=last_epoch)
    remembered = entry.producer_epoch if is_current else None
    if not _is_exhausted(entry):
        return initialised(producer_id=entry.producer_id, epoch=entry.producer_epoch + 1, last_epoch=remembered)
    if fresh_id is None:
        return _NEEDS_PRODUCER_ID
    return initialised(producer_id=fresh_id, epoch=0, last_epoch=remembered)


def add_partitions(entry: TransactionEntry | None, request: AddPartitions, now_ms: int) -> TransactionDecision:
    """Partitions join; the first ones begin a transaction. Those that already belong to it need no record."""
    if entry is None:
        return _WRONG_ID
    # First of all, since the client may already use an id and epoch that come true when the markers are written.
    if entry.status in _BUSY:
        return _CONCURRENT
    if request.producer_id != entry.producer_id:
        return _WRONG_ID
    if request.producer_epoch != entry.producer_epoch:
        return _FENCED
    if entry.status is _ONGOING and set(request.partitions) <= set(entry.partitions):
        return TransactionDecision()
    ongoing = replace(
        entry,
        previous_producer_id=entry.producer_id,
        status=_ONGOING,
        partitions=tuple(dict.fromkeys((*entry.partitions, *request.partitions))),
        last_update_ms=TimestampMs(now_ms),
        start_ms=entry.start_ms if entry.status is _ONGOING else TimestampMs(now_ms),
        client_version=request.client_version,
    )
    return TransactionDecision(entries=(ongoing,))


def verify_partitions(
    entry: TransactionEntry | None, request: AddPartitions
) -> tuple[tuple[TopicPartition, ErrorCode], ...]:
    """Whether each partition belongs to the producer's transaction; TRANSACTION_ABORTABLE where it does not."""
    if entry is None or request.producer_id != entry.producer_id:
        return tuple((partition, ErrorCode.INVALID_PRODUCER_ID_MAPPING) for partition in request.partitions)
    if request.producer_epoch != entry.producer_epoch:
        return tuple((partition, ErrorCode.PRODUCER_FENCED) for partition in request.partitions)
    if entry.status in _BUSY:
        return tuple((partition, ErrorCode.CONCURRENT_TRANSACTIONS) for partition in request.partitions)
    members = set(entry.partitions)
    return tuple(
        (partition, ErrorCode.NONE if partition in members else ErrorCode.TRANSACTION_ABORTABLE)
        for partition in request.partitions
    )


def end_transaction(
    entry: TransactionEntry | None, request: EndTransaction, *, fresh_id: ProducerId | None, now_ms: int
) -> TransactionDecision:
    """Commit or abort by the client, in its version's way."""
    if entry is None:
        return _WRONG_ID
    if request.client_version >= EPOCH_BUMP_VERSION:
        return _end_v2(entry, request, fresh_id, now_ms)
    if request.producer_id != entry.producer_id:
        return _WRONG_ID
    if request.producer_epoch != entry.producer_epoch:
        return _FENCED
    if entry.status is _ONGOING:
        return _prepare(entry, commit=request.commit, client_version=0, fresh_id=None, now_ms=now_ms)
    return TransactionDecision(error=_END_V1[entry.status, request.commit])


def _end_v2(
    entry: TransactionEntry, request: EndTransaction, fresh_id: ProducerId | None, now_ms: int
) -> TransactionDecision:
    bumped = entry.client_version >= EPOCH_BUMP_VERSION
    is_same_id = request.producer_id == entry.producer_id
    is_retry = bumped and is_same_id and request.producer_epoch + 1 == entry.producer_epoch
    if entry.status in _BUSY:
        is_other = entry.status in PREPARED and request.commit != (entry.status is _PREPARE_COMMIT)
        return _WRONG_STATE if is_retry and is_other else _CONCURRENT
    if bumped and not is_same_id and entry.status is not _ONGOING:
        is_retry = (
            request.producer_id == entry.previous_producer_id
            and request.producer_epoch == EPOCH_CLIENT_MAX
            and entry.producer_epoch == 0
        )
    if not (is_same_id or is_retry):
        return _WRONG_ID
    is_retry = is_retry and entry.status in (_COMPLETE_COMMIT, _COMPLETE_ABORT)
    if not is_retry and request.producer_epoch != entry.producer_epoch:
        return _FENCED
    error = None if entry.status is _ONGOING else _END_V2[entry.status, request.commit, is_retry]
    if error is None:
        version = request.client_version
        return _prepare(entry, commit=request.commit, client_version=version, fresh_id=fresh_id, now_ms=now_ms)
    if error is not ErrorCode.NONE:
        return TransactionDecision(error=error)
    return TransactionDecision(producer_id=entry.producer_id, producer_epoch=entry.producer_epoch)


def abort_by_coordinator(
    entry: TransactionEntry, *, fresh_id: ProducerId | None, transaction_version: int, now_ms: int
) -> TransactionDecision:
    """Aborts the open transaction, and bumps the epoch to fence its producer."""
    if transaction_version >= EPOCH_BUMP_VERSION:
        version = transaction_version
        return _prepare(entry, commit=False, client_version=version, fresh_id=fresh_id, now_ms=now_ms)
    bumped = replace(entry, producer_epoch=ProducerEpoch(min(entry.producer_epoch + 1, EPOCH_MAX)))
    return _prepare(bumped, commit=False, client_version=0, fresh_id=None, now_ms=now_ms)


def completed(entry: TransactionEntry, now_ms: int) -> TransactionEntry:
    """The entry after a prepared one, when every partition has its marker."""
    rotates = entry.client_version >= EPOCH_BUMP_VERSION and entry.next_producer_id != NO_PRODUCER_ID
    return replace(
        entry,
        producer_id=entry.next_producer_id if rotates else entry.producer_id,
        previous_producer_id=entry.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        producer_epoch=ProducerEpoch(0) if rotates else entry.producer_epoch,
        next_producer_epoch=NO_PRODUCER_EPOCH,
        status=_COMPLETE_OF[entry.status],
        partitions=(),
        last_update_ms=TimestampMs(now_ms),
    )


def timeout_deadline(entry: TransactionEntry) -> int | None:
    """When the coordinator aborts the open transaction; None without one, or if it never times out."""
    if entry.status is _FENCE:
        return entry.start_ms
    if entry.status is not _ONGOING or entry.timeout_ms == NO_TIMEOUT_MS:
        return None
    return entry.start_ms + entry.timeout_ms + 1


def check_entry(transactional_id: str, entry: TransactionEntry) -> None:
    """Raises if no decision can have written the entry."""
    is_at_rest = entry.status in AT_REST
    broken = [
        (entry.producer_id < 0, "a negative producer id"),
        (not 0 <= entry.producer_epoch <= EPOCH_MAX, "an impossible epoch"),
        (entry.timeout_ms <= 0, "no timeout"),
        (is_at_rest and bool(entry.partitions), "partitions without a transaction"),
        (entry.status is _EMPTY and entry.start_ms != NO_TIMESTAMP, "a start without a transaction"),
        (entry.status not in _BUSY and entry.next_producer_id != NO_PRODUCER_ID, "a next producer id at rest"),
        (len(set(entry.partitions)) != len(entry.partitions), "a partition twice"),
    ]
    for is_broken, what in broken:
        if is_broken:
            violated(f"transactional id {transactional_id!r} has {what}: {entry}")


def check_step(transactional_id: str, old: TransactionEntry | None, new: TransactionEntry) -> None:
    """Raises on an illegal transition: a changed outcome, or an epoch that goes back."""
    if new.status not in _LEGAL_NEXT[old.status if old is not None else None]:
        violated(f"transactional id {transactional_id!r} cannot go from {old} to {new}")
    if old is not None and new.producer_id == old.producer_id and new.producer_epoch < old.producer_epoch:
        violated(f"the epoch of transactional id {transactional_id!r} goes back from {old} to {new}")


def _is_exhausted(entry: TransactionEntry) -> bool:
    return entry.producer_epoch >= EPOCH_CLIENT_MAX


def _initialised(
    request: InitProducerId,
    *,
    previous: TransactionEntry | None,
    producer_id: ProducerId,
    epoch: int,
    last_epoch: ProducerEpoch | None,
    now_ms: int,
) -> TransactionDecision:
    # A new id is its own previous one, as in Kafka. A retry keeps the previous one, so that it can be retried again.
    previous_id = producer_id
    if previous is not None:
        is_retry = (producer_id, epoch) == (previous.producer_id, previous.producer_epoch)
        previous_id = previous.previous_producer_id if is_retry else previous.producer_id
    entry = TransactionEntry(
        producer_id=producer_id,
        previous_producer_id=previous_id,
        producer_epoch=ProducerEpoch(epoch),
        timeout_ms=request.timeout_ms,
        status=_EMPTY,
        last_update_ms=TimestampMs(now_ms),
        client_version=previous.client_version if previous is not None else 0,
    )
    return TransactionDecision(
        entries=(entry,), producer_id=producer_id, producer_epoch=entry.producer_epoch, last_epoch=last_epoch
    )


def _prepare(
    entry: TransactionEntry, *, commit: bool, client_version: int, fresh_id: ProducerId | None, now_ms: int
) -> TransactionDecision:
    bumps = client_version >= EPOCH_BUMP_VERSION
    rotates = bumps and _is_exhausted(entry)
    if rotates and fresh_id is None:
        return _NEEDS_PRODUCER_ID
    prepared = replace(
        entry,
        previous_producer_id=entry.producer_id,
        next_producer_id=fresh_id if rotates and fresh_id is not None else NO_PRODUCER_ID,
        producer_epoch=ProducerEpoch(min(entry.producer_epoch + 1, EPOCH_MAX)) if bumps else entry.producer_epoch,
        status=_PREPARE_COMMIT if commit else _PREPARE_ABORT,
        last_update_ms=TimestampMs(now_ms),
        # An abort without a transaction still needs a start time, or the entry would look like an empty one.
        start_ms=TimestampMs(now_ms) if entry.status in AT_REST else entry.start_ms,
        client_version=client_version,
    )
    after = completed(prepared, now_ms)
    # Without partitions there are no markers to wait for.
    entries = (prepared,) if prepared.partitions else (prepared, after)
    if not bumps:
        return TransactionDecision(entries=entries)
    return TransactionDecision(
        entries=entries,
        producer_id=after.producer_id,
        producer_epoch=after.producer_epoch,
        last_epoch=entry.producer_epoch,
    )
