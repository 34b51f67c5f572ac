"""The transactional ids of one partition of `__transaction_state`, and their deadlines.

Pure. Routes each request to the decision about its id (`transaction_state.py`), turns the decision into effects, sends
markers until all are written (`markers.py`), aborts transactions that time out, and expires unused ids. The runtime
appends the records of a `Write` and hands them to `replay`, the only way in which an entry changes.

A response must not run ahead of the commit of the state that it reports, or a client could hear of a change that a
failing coordinator forgets. So a response without records of its own is a `Write` without records: it waits until
everything written before is committed. Only retriable errors and invalid requests are answered at once.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Final

from ottla.coordination.runtime.deadlines import Deadlines
from ottla.coordination.runtime.effects import CoordinatorRecord, Respond, Write
from ottla.coordination.runtime.record_fields import TEXT_BYTES_MAX
from ottla.coordination.transactions.listing import describe_transaction, list_transactions
from ottla.coordination.transactions.markers import MarkerProgress, markers_of
from ottla.coordination.transactions.records import (
    TransactionEntry,
    TransactionStatus,
    decode_key,
    decode_value,
    entry_record,
    tombstone_record,
)
from ottla.coordination.transactions.requests import (
    AbortTimedOut,
    AddPartitions,
    AddPartitionsResponse,
    EndTransaction,
    InitProducerId,
    ListFilter,
    NeedProducerId,
    ProducerIdResponse,
    SendMarkers,
    TransactionDescription,
    TransactionEffect,
    TransactionList,
    TransactionSettings,
)
from ottla.coordination.transactions.transaction_state import (
    AT_REST,
    PREPARED,
    TransactionDecision,
    abort_by_coordinator,
    add_partitions,
    check_entry,
    check_step,
    completed,
    end_transaction,
    init_producer_id,
    timeout_deadline,
    verify_partitions,
)
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerEpoch, ProducerId, TopicPartition
from ottla.model.invariants import violated

TOMBSTONES_MAX_BYTES: Final = 64 * 1024
"""About how large a batch of tombstones may become before the next is begun."""

_AT_ONCE: Final = frozenset(
    {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_TRANSACTION_TIMEOUT}
)
_NOT_WRITTEN: Final = ProducerIdResponse(error=ErrorCode.COORDINATOR_NOT_AVAILABLE)

_RememberedEpoch = tuple[ProducerId, ProducerEpoch, ProducerEpoch]


class TransactionShard:
    """One partition's coordinator, as the leader in `coordinator_epoch`.

    Persistent, changed by `replay` only: an entry for each id. Volatile: which markers are in flight, and which epoch a
    response replaced, to recognise its retry; a new coordinator knows neither, as in Kafka.
    """

    def __init__(self, *, coordinator_epoch: int, settings: TransactionSettings) -> None:
        self._coordinator_epoch = coordinator_epoch
        self._settings = settings
        self._entries: dict[str, TransactionEntry] = {}
        self._markers: dict[str, MarkerProgress] = {}
        self._remembered: dict[str, _RememberedEpoch] = {}
        # Separate, so that the expiry of an id, days away, is not queued again with each transaction.
        self._due: Deadlines[str] = Deadlines()
        self._expiry: Deadlines[str] = Deadlines()

    @property
    def entries(self) -> Mapping[str, TransactionEntry]:
        """The state of each transactional id; read-only."""
        return self._entries

    # Requests

    def init_producer_id(self, request: InitProducerId, now_ms: int, token: Hashable) -> list[TransactionEffect]:
        """InitProducerId; the response is a `ProducerIdResponse`."""
        has_expected_id = request.expected_producer_id != NO_PRODUCER_ID
        has_expected_epoch = request.expected_producer_epoch != NO_PRODUCER_EPOCH
        error = None
        if not _is_usable(request.transactional_id) or has_expected_id != has_expected_epoch:
            error = ErrorCode.INVALID_REQUEST
        elif not 0 < request.timeout_ms <= self._settings.timeout_max_ms:
            error = ErrorCode.INVALID_TRANSACTION_TIMEOUT
        if error is not None:
            return [Respond(token, ProducerIdResponse(error=error))]
        return self._decide(request, None, now_ms, token)

    def end_transaction(self, request: EndTransaction, now_ms: int, token: Hashable) -> list[TransactionEffect]:
        """EndTxn; the response, a `ProducerIdResponse`, leaves when the outcome is committed; the markers follow."""
        if not _is_usable(request.transactional_id):
            return [Respond(token, ProducerIdResponse(error=ErrorCode.INVALID_REQUEST))]
        return self._decide(request, None, now_ms, token)

    def add_partitions(self, request: AddPartitions, now_ms: int, token: Hashable) -> list[TransactionEffect]:
        """AddPartitionsToTxn: all partitions join or none; with `verify_only` each has its own outcome."""
        if not _is_usable(request.transactional_id):
            return [Respond(token, _same_for_all(request, ErrorCode.INVALID_REQUEST))]
        entry = self._entries.get(request.transactional_id)
        failure = Respond(token, _same_for_all(request, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        if request.verify_only:
            verified = AddPartitionsResponse(errors=verify_partitions(entry, request))
            return [Write((), (Respond(token, verified),), (failure,))]
        decision = add_partitions(entry, request, now_ms)
        response = Respond(token, _same_for_all(request, decision.error))
        return self._carry_out(request.transactional_id, decision, response, failure)

    def list_transactions(self, wanted: ListFilter, now_ms: int) -> TransactionList:
        """The ids of this shard that pass the filter."""
        return list_transactions(self._entries, wanted, now_ms)

    def describe_transaction(self, transactional_id: str) -> TransactionDescription:
        """One id in detail, or an error."""
        progress = self._markers.get(transactional_id)
        waiting = progress.waiting if progress is not None else None
        return describe_transaction(transactional_id, self._entries.get(transactional_id), waiting)

    # What the runtime reports

    def on_producer_id(self, need: NeedProducerId, producer_id: ProducerId, now_ms: int) -> list[TransactionEffect]:
        """A producer id was allocated: decides again, on the current state, which may no longer need the id."""
        return self._decide(need.request, producer_id, now_ms, need.token)

    def on_markers_written(
        self, sent: SendMarkers, errors: Mapping[TopicPartition, ErrorCode], now_ms: int
    ) -> list[TransactionEffect]:
        """The outcomes of an earlier effect. UNKNOWN_TOPIC_OR_PARTITION means that the cluster no longer has the
        partition; if only its leader does not know it yet, the outcome is NOT_LEADER_OR_FOLLOWER. When all partitions
        have their marker the transaction is complete; failed ones are retried later."""
        progress = self._markers.get(sent.transactional_id)
        if progress is None or not progress.on_written(sent, errors):
            return []
        if not progress.waiting:
            return self._complete(sent.transactional_id, now_ms)
        if progress.is_fenced:
            self._due.clear(sent.transactional_id)
        else:
            self._due.set(sent.transactional_id, now_ms + progress.backoff_ms(self._settings))
        return []

    def on_loaded(self, now_ms: int) -> list[TransactionEffect]:
        """The whole partition was replayed and is committed: markers that an earlier coordinator may not have written
        are sent (again), for every outcome that was decided."""
        effects: list[TransactionEffect] = []
        for transactional_id, entry in self._entries.items():
            deadline = timeout_deadline(entry)
            if deadline is not None and entry.start_ms > now_ms:
                # It began by a clock that was ahead: count its timeout from now.
                self._due.set(transactional_id, now_ms + deadline - entry.start_ms)
        for transactional_id, progress in self._markers.items():
            progress.resend_all()
            effects += self._drive(transactional_id, progress, now_ms)
        return effects

    def on_tick(self, now_ms: int) -> list[TransactionEffect]:
        """Aborts transactions that timed out, retries markers, and expires unused ids."""
        effects: list[TransactionEffect] = []
        # Ends: the next deadline of an id is later than now.
        while (transactional_id := self._due.pop(now_ms)) is not None:
            effects += self._on_due(transactional_id, now_ms)
        return [*effects, *self._expire(now_ms)]

    def next_deadline(self) -> int | None:
        """When `on_tick` must be called next."""
        return min((due for due in (self._due.next(), self._expiry.next()) if due is not None), default=None)

    def on_clock_set(self, by_ms: int) -> None:
        """The clock was moved by this much; timeouts and retries move with it.

        The expiry of an id counts from the time in its record, which is the wall clock's.
        """
        self._due.shift(by_ms)

    def on_unloaded(self) -> list[TransactionEffect]:
        """Another broker leads the partition; the machine itself has no waiting requests."""
        return []

    def on_marker(self, producer_id: ProducerId, *, commit: bool) -> None:
        """Not used: this topic has no transactional records."""

    def replay_all(self, records: Iterable[CoordinatorRecord], producer_id: ProducerId = NO_PRODUCER_ID) -> None:
        """`replay` for each record, in order."""
        for record in records:
            self.replay(record, producer_id)

    def replay(self, record: CoordinatorRecord, producer_id: ProducerId = NO_PRODUCER_ID) -> None:
        """Makes a record that was written true. Raises `CorruptError` if it cannot be read."""
        transactional_id = decode_key(record.key)
        if transactional_id is None:
            return
        entry = decode_value(record.value) if record.value is not None else None
        self._due.clear(transactional_id)
        self._expiry.clear(transactional_id)
        self._markers.pop(transactional_id, None)
        if entry is None or entry.status is TransactionStatus.DEAD:
            self._entries.pop(transactional_id, None)
            self._remembered.pop(transactional_id, None)
            return
        self._entries[transactional_id] = entry
        if entry.status in PREPARED:
            self._markers[transactional_id] = MarkerProgress(transactional_id, entry, self._coordinator_epoch)
        deadline = timeout_deadline(entry)
        if deadline is not None:
            self._due.set(transactional_id, deadline)
        if entry.status in AT_REST:
            self._expiry.set(transactional_id, entry.last_update_ms + self._settings.id_expiration_ms)

    def check(self) -> None:
        """Raises `InvariantViolation` if the shard is not as it must be."""
        prepared = [key for key, entry in self._entries.items() if entry.status in PREPARED]
        if sorted(prepared) != sorted(self._markers):
            violated(f"decided transactions {prepared} and those with markers {list(self._markers)} differ")
        for transactional_id, entry in self._entries.items():
            check_entry(transactional_id, entry)
            if timeout_deadline(entry) is not None and transactional_id not in self._due:
                violated(f"transactional id {transactional_id!r} would never time out: {entry}")
            if entry.status in AT_REST and transactional_id not in self._expiry:
                violated(f"transactional id {transactional_id!r} would never expire: {entry}")
            progress = self._markers.get(transactional_id)
            if progress is not None and not set(progress.waiting) <= set(entry.partitions):
                violated(f"markers for {progress.waiting} are not part of {entry}")

    # Carrying out

    def _decide(
        self,
        request: InitProducerId | EndTransaction | AbortTimedOut,
        fresh_id: ProducerId | None,
        now_ms: int,
        token: Hashable,
    ) -> list[TransactionEffect]:
        transactional_id = request.transactional_id
        entry = self._entries.get(transactional_id)
        version = self._settings.transaction_version
        failure: Respond | None = Respond(token, _NOT_WRITTEN)
        match request:
            case InitProducerId():
                decision = init_producer_id(
                    entry,
                    request,
                    last_epoch=self._last_epoch(transactional_id),
                    fresh_id=fresh_id,
                    transaction_version=version,
                    now_ms=now_ms,
                )
            case EndTransaction():
                decision = end_transaction(entry, request, fresh_id=fresh_id, now_ms=now_ms)
            case AbortTimedOut():
                if entry is None or not _is_meant(entry, request):
                    return []
                failure = None
                decision = abort_by_coordinator(entry, fresh_id=fresh_id, transaction_version=version, now_ms=now_ms)
        if decision.needs_producer_id:
            return [NeedProducerId(request=request, token=token, on_failure=(failure,) if failure else ())]
        if failure is None:
            return self._carry_out(transactional_id, decision, None, None)
        told = ProducerIdResponse(
            error=decision.error, producer_id=decision.producer_id, producer_epoch=decision.producer_epoch
        )
        return self._carry_out(transactional_id, decision, Respond(token, told), failure)

    def _carry_out(
        self, transactional_id: str, decision: TransactionDecision, response: Respond | None, failure: Respond | None
    ) -> list[TransactionEffect]:
        if not decision.entries and response is not None and decision.error in _AT_ONCE:
            return [response]
        if decision.entries:
            self._remember(transactional_id, decision)
        return self._write(transactional_id, decision.entries, response, failure)

    def _remember(self, transactional_id: str, decision: TransactionDecision) -> None:
        """Which epoch this decision replaces, for a retry. Believed only while the entry has the id and epoch that it
        led to; and since it may fail to be written, each decision that leads to new ones also forgets."""
        old, new = self._entries.get(transactional_id), decision.entries[-1]
        if new.status in PREPARED:
            new = completed(new, new.last_update_ms)
        if decision.last_epoch is not None:
            self._remembered[transactional_id] = (new.producer_id, new.producer_epoch, decision.last_epoch)
        elif old is None or (old.producer_id, old.producer_epoch) != (new.producer_id, new.producer_epoch):
            self._remembered.pop(transactional_id, None)

    def _write(
        self,
        transactional_id: str,
        entries: tuple[TransactionEntry, ...],
        response: Respond | None,
        failure: Respond | None,
    ) -> list[TransactionEffect]:
        last = self._entries.get(transactional_id)
        for entry in entries:
            check_step(transactional_id, last, entry)
            last = entry
        version = self._settings.transaction_version
        write = Write(
            tuple(entry_record(transactional_id, entry, version) for entry in entries),
            (response,) if response is not None else (),
            (failure,) if failure is not None else (),
        )
        if entries and last is not None and last.status in PREPARED:
            return [write, markers_of(transactional_id, last, self._coordinator_epoch)]
        return [write]

    def _last_epoch(self, transactional_id: str) -> ProducerEpoch | None:
        entry = self._entries.get(transactional_id)
        remembered = self._remembered.get(transactional_id)
        if entry is None or remembered is None or remembered[:2] != (entry.producer_id, entry.producer_epoch):
            return None
        return remembered[2]

    def _on_due(self, transactional_id: str, now_ms: int) -> list[TransactionEffect]:
        entry = self._entries[transactional_id]
        progress = self._markers.get(transactional_id)
        if progress is not None:
            return self._drive(transactional_id, progress, now_ms)
        # Replaying the abort clears this; it matters only if that cannot be written, or waits for a producer id.
        self._due.set(transactional_id, now_ms + self._settings.retry_max_ms)
        request = AbortTimedOut(
            transactional_id=transactional_id,
            producer_id=entry.producer_id,
            producer_epoch=entry.producer_epoch,
            start_ms=entry.start_ms,
        )
        return self._decide(request, None, now_ms, None)

    def _drive(self, transactional_id: str, progress: MarkerProgress, now_ms: int) -> list[TransactionEffect]:
        if not progress.waiting:
            return self._complete(transactional_id, now_ms)
        due = progress.take_due()
        return [due] if due is not None else []

    def _complete(self, transactional_id: str, now_ms: int) -> list[TransactionEffect]:
        # As above: the record that is written now ends this, or it is tried again.
        self._due.set(transactional_id, now_ms + self._settings.retry_max_ms)
        entry = completed(self._entries[transactional_id], now_ms)
        return self._write(transactional_id, (entry,), None, None)

    def _expire(self, now_ms: int) -> Iterator[TransactionEffect]:
        tombstones: list[CoordinatorRecord] = []
        size_bytes = 0
        while (transactional_id := self._expiry.pop(now_ms)) is not None:
            self._expiry.set(transactional_id, now_ms + self._settings.retry_max_ms)
            tombstones.append(tombstone_record(transactional_id))
            size_bytes += len(tombstones[-1].key)
            if size_bytes >= TOMBSTONES_MAX_BYTES:
                yield Write(tuple(tombstones))
                tombstones, size_bytes = [], 0
        if tombstones:
            yield Write(tuple(tombstones))


def _is_meant(entry: TransactionEntry, request: AbortTimedOut) -> bool:
    """Whether the transaction that timed out is still the open one."""
    is_same = (entry.producer_id, entry.producer_epoch, entry.start_ms) == (
        request.producer_id,
        request.producer_epoch,
        request.start_ms,
    )
    return is_same and timeout_deadline(entry) is not None


def _is_usable(transactional_id: str) -> bool:
    return 0 < len(transactional_id.encode()) <= TEXT_BYTES_MAX


def _same_for_all(request: AddPartitions, error: ErrorCode) -> AddPartitionsResponse:
    return AddPartitionsResponse(errors=tuple((partition, error) for partition in request.partitions))
