"""The runtime of a coordinator: one state machine over one partition of an internal topic.

Covers loading by replay, carrying out effects in order, responses that wait for the commit, the one timer, changes of
the wall clock, and unloading when another broker leads the partition. The machines are `groups/group_shard_state.py`
and `transactions/shard_state.py`; effects of their own, beyond those of `effects.py`, are carried out by `perform`.
Which shards a broker has is in `coordinator_shards.py`.
"""

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterable, Sequence
from enum import Enum, auto
from typing import Any, Final, Generic, Protocol, TypeVar

from ottla.coordination.runtime.effects import CoordinatorRecord, Respond, TransactionalWrite, Write
from ottla.coordination.runtime.reply import Reply
from ottla.env.ports import Clock, Disk
from ottla.model.errors import (
    CoordinatorLoadingError,
    CoordinatorNotAvailableError,
    CorruptError,
    InvalidRequestError,
    NotCoordinatorError,
    OttlaError,
)
from ottla.model.ids import NO_PRODUCER_ID, Offset, ProducerId
from ottla.records.batch import Batch, scan
from ottla.records.builder import BatchBuilder
from ottla.records.control import read_marker
from ottla.records.decode import decode_records
from ottla.records.layout import Marker
from ottla.replication.partition import Partition, TransactionEnd
from ottla.replication.partition_state import AppendWaiter
from ottla.replication.timers import Timers
from ottla.replication.timing_wheel import Deadline
from ottla.storage.log import Appended
from ottla.storage.recovery.salvage import Skipped, read_intact

_LOGGER: Final = logging.getLogger(__name__)

_LOADED_BYTES: Final = 1024 * 1024
"""Read at a time while loading; in between the event loop may do something else."""

_WRITES: Final = (Write, TransactionalWrite)
# A union of these two is made again each time that it is evaluated.
_TOKENS: Final = (asyncio.Future, Reply)

_CLOCK_SET_MS: Final = 10
"""A wall clock that differs by this much from the monotonic clock was set; less is reading inaccuracy."""


class Machine(Protocol):
    """What the runtime needs of a coordinator's state machine; each machine has further events of its own."""

    def replay_all(self, records: Iterable[CoordinatorRecord], producer_id: ProducerId, /) -> None: ...

    def on_marker(self, producer_id: ProducerId, *, commit: bool) -> None: ...

    def on_loaded(self, now_ms: int) -> Sequence[Any]: ...

    def on_unloaded(self) -> Sequence[Any]: ...

    def on_tick(self, now_ms: int) -> Sequence[Any]: ...

    def next_deadline(self) -> int | None: ...

    def on_clock_set(self, by_ms: int) -> None: ...


M = TypeVar("M", bound=Machine)
R = TypeVar("R")


class _State(Enum):
    LOADING = auto()
    ACTIVE = auto()
    FAILED = auto()
    CLOSED = auto()


# Every event compares with it: an attribute of an Enum takes longer to find than a global.
_ACTIVE: Final = _State.ACTIVE


class Shard(Generic[M]):
    """A state machine and its partition. `load` first; then `ask` for each event, until `unload`.

    `perform` carries out effects that are not of `effects.py`, once everything written before them is committed. If
    that fails `leave_out` is called instead, so that waiting requests can be answered. `before_replay` is called with
    the offset of the first of the records that are applied next. A shard belongs to the leader epoch in which it was
    made; another leader epoch of the partition needs another shard.
    """

    def __init__(
        self,
        partition: Partition,
        machine: M,
        *,
        clock: Clock,
        disk: Disk,
        timers: Timers,
        perform: Callable[[Any], None] = lambda effect: None,
        leave_out: Callable[[Any], None] = lambda effect: None,
        before_replay: Callable[[Offset], None] | None = None,
    ) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.machine = machine
        self._clock = clock
        self._disk = disk
        self._timers = timers
        self._perform = perform
        self._leave_out = leave_out
        self._before_replay = before_replay
        self._state = _State.LOADING
        self._timer: Deadline | None = None
        self._deadline: int | None = None
        """The deadline that the timer is set to."""
        self._wall_lead_ms = clock.now_ms() - self._monotonic_ms()
        """Wall clock minus monotonic clock. The machine's time is the monotonic clock plus this, so it never jumps."""
        self._last_write: _Pending | None = None
        """What later responses and effects wait for; None if everything in the log is committed."""
        self._commit_wait: _Pending | None = None
        """Waits until the log is committed up to `_commit_wait_offset`; at most one waits for the same offset."""
        self._commit_wait_offset = Offset(0)
        self.is_stuck = False
        """Whether the last write failed: repeated failures are logged once."""
        self.failure: OttlaError | None = None
        """Why the partition could not be loaded."""

    @property
    def is_active(self) -> bool:
        """Whether it has been loaded, and not yet unloaded."""
        return self._state is _State.ACTIVE

    # Life

    async def load(self) -> None:
        """Replays the whole partition into the machine. If this raises, the shard cannot be used."""
        offset = self.partition.start_offset
        # Markers may be appended meanwhile, so the end offset is read again each time.
        while self._state is _State.LOADING and offset < self.partition.end_offset:
            offset = await self._load_from(offset, self.partition.end_offset)
        self.activate()

    async def load_intact(self) -> None:
        """`load` for a partition with corrupt batches that no other replica has intact: skips and logs those.

        The machine then has the state of the records that could be read, which may be an older one.
        """
        for found in read_intact(self.partition.log):
            if self._state is not _State.LOADING:
                return
            if isinstance(found, Skipped):
                self._log_skipped(found, "checksum, length or offset is wrong")
                continue
            for batch in found.batches:
                try:
                    self._replay_batch(batch)
                except CorruptError as error:
                    place = found.position + batch.position
                    skipped = Skipped(found.path, place, batch.size_bytes, batch.base_offset, batch.next_offset)
                    self._log_skipped(skipped, str(error))
            await asyncio.sleep(0)
        self.activate()

    def _log_skipped(self, skipped: Skipped, why: str) -> None:
        _LOGGER.error(
            "partition %s-%d: skipped a corrupt batch while loading the coordinator: %s, byte %d, %d bytes: %s;"
            " the records of offsets %d to %d (%d at most) are lost: their keys keep their previous values, if any",
            self.partition.topic, self.partition.index, skipped.path, skipped.position, skipped.size_bytes, why,
            skipped.first_offset, skipped.next_offset - 1, skipped.next_offset - skipped.first_offset,
        )  # fmt: skip

    def fail(self, error: OttlaError) -> None:
        """The partition cannot be loaded: requests are answered with this error."""
        if self._state is _State.LOADING:
            self._state = _State.FAILED
            self.failure = error

    def activate(self) -> None:
        """The whole partition was replayed: requests are served from now on.

        The last records of the former leader may not be committed yet; responses that depend on them wait.
        """
        if self._state is _State.LOADING:
            self._state = _State.ACTIVE
            self._await_commit()
            self.carry_out(self.machine.on_loaded(self.now_ms()))

    def _await_commit(self) -> None:
        """Makes later responses and effects wait until everything in the log is committed."""
        end_offset = self.partition.end_offset
        if self._commit_wait is not None and self._commit_wait_offset == end_offset:
            # As after each write that is refused while there are too few replicas.
            self._last_write = self._commit_wait
            return
        pending = _Pending(self)
        self._last_write = self._commit_wait = pending
        self._commit_wait_offset = end_offset
        self.partition.wait_committed(pending)

    def _has_uncommitted(self) -> bool:
        partition = self.partition
        return partition.leader is not None and partition.end_offset > partition.high_watermark

    async def _load_from(self, offset: Offset, end_offset: Offset) -> Offset:
        found = self.partition.log.read(offset, _LOADED_BYTES, upper=end_offset, at_least_one=True)
        if found is None:
            return end_offset
        content = await self._disk.in_background(found.file.read_at, found.position, found.size)
        batches, _, problem = scan(content)
        if problem is not None or not batches:
            raise CorruptError(f"{self.partition.topic}-{self.partition.index} at offset {offset}: {problem}")
        for batch in batches:
            if batch.last_offset >= offset:
                try:
                    self._replay_batch(batch)
                except CorruptError as error:
                    place = f"{found.file.path}, byte {found.position + batch.position}, offset {batch.base_offset}"
                    raise CorruptError(f"{place}: {error}") from error
        return Offset(batches[-1].next_offset)

    def _replay_batch(self, batch: Batch) -> None:
        if batch.is_control:
            marker = read_marker(batch)
            if marker is not None:
                self.machine.on_marker(ProducerId(batch.producer_id), commit=marker[0] is Marker.COMMIT)
            return
        producer_id = ProducerId(batch.producer_id) if batch.is_transactional else NO_PRODUCER_ID
        records = [
            CoordinatorRecord(
                b"" if record.key is None else bytes(record.key), None if record.value is None else bytes(record.value)
            )
            for record in decode_records(batch)
        ]
        if self._before_replay is not None:
            self._before_replay(Offset(batch.base_offset))
        self.machine.replay_all(records, producer_id)

    def unload(self) -> None:
        """The partition has another leader, or was deleted: answers waiting requests and stops."""
        was_active, self._state = self.is_active, _State.CLOSED
        if was_active:
            for effect in self.machine.on_unloaded():
                if isinstance(effect, Respond):
                    _deliver(effect)
        if self._last_write is not None:
            # A partition that was deleted commits nothing more, and does not tell.
            waiting, self._last_write.then = self._last_write.then, []
            for effect in waiting:
                self._follow_up(effect, is_committed=False)
        self._set_timer(None)

    # Events

    async def ask(self, event: Callable[[int, Hashable], Sequence[Any]]) -> Any:
        """Hands the machine an event, as `event(now_ms, token)`, and waits for the response to that token.

        Raises CoordinatorLoadingError, CoordinatorNotAvailableError or NotCoordinatorError if the shard is not active,
        and an InvalidRequestError if the log can never take the write, because it is too large.
        """
        self.check_active()
        token: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.carry_out(event(self.now_ms(), token))
        return await token

    def hand(self, event: Callable[[R, int, Hashable], Sequence[Any]], request: R, reply: Reply) -> None:
        """`ask` for callers that do not wait, as `event(request, now_ms, reply)`: the reply gets the response, perhaps
        before this returns."""
        if self._state is not _ACTIVE:
            self.check_active()
        self.carry_out(event(request, self.now_ms(), reply))

    def tell(self, event: Callable[[int], Sequence[Any]]) -> None:
        """Hands the machine an event without a response; ignored unless the shard is active."""
        if self.is_active:
            self.carry_out(event(self.now_ms()))

    def check_active(self) -> None:
        """Raises unless the shard is active."""
        if self._state is _State.ACTIVE:
            return
        where = f"{self.partition.topic}-{self.partition.index}"
        if self._state is _State.LOADING:
            raise CoordinatorLoadingError(f"partition {where} is being loaded; retry")
        if self._state is _State.FAILED:
            raise CoordinatorNotAvailableError(f"partition {where} cannot be loaded: {self.failure}")
        if self._state is _State.CLOSED:
            raise NotCoordinatorError(f"this broker no longer leads partition {where}; send FindCoordinator")

    def carry_out(self, effects: Sequence[Any]) -> None:
        """Carries out the effects in order; those after a failed write are left out."""
        is_written = True
        for effect in effects:
            if not is_written:
                self._follow_up(effect, is_committed=False)
            elif isinstance(effect, Respond):
                _deliver(effect)
            elif isinstance(effect, _WRITES) and effect.records:
                is_written = self._write(effect)
            elif self._last_write is None:
                self._follow_up(effect, is_committed=True)
            elif self.partition.is_short:
                self._follow_up(effect, is_committed=False)
            else:
                self._last_write.then.append(effect)
        self._arm()

    def _follow_up(self, effect: Any, *, is_committed: bool) -> None:
        """An effect that waited until everything before it was committed, or failed."""
        if isinstance(effect, _WRITES):
            for respond in effect.responses if is_committed else effect.on_failure:
                _deliver(respond)
        elif isinstance(effect, Respond):
            # The response depends on the write that failed.
            return
        elif is_committed and self._state is not _State.CLOSED and not self.partition.is_short:
            self._perform(effect)
        else:
            self._leave_out(effect)

    def _write(self, write: Write | TransactionalWrite) -> bool:
        """Appends the records; returns whether they are in the log."""
        pending = _PendingWrite(self, write)
        self._last_write = pending
        try:
            now_ms = self._clock.now_ms()
            records = write.records
            content = _batch_of(write, now_ms) if isinstance(records, tuple) else records.batch(now_ms)
            self.partition.append_own(Batch(content), pending)
        except OttlaError as error:
            pending.on_outcome(0, error)
        return pending.is_written

    def on_written(self, write: Write | TransactionalWrite) -> None:
        """The records are in the log, perhaps not yet committed: applies them to the machine."""
        producer_id = write.producer_id if isinstance(write, TransactionalWrite) else NO_PRODUCER_ID
        if self._before_replay is not None:
            self._before_replay(Offset(self.partition.end_offset - len(write.records)))
        self.machine.replay_all(write.records, producer_id)

    def append_marker(self, end: TransactionEnd, waiter: AppendWaiter, at: int) -> None:
        """Ends a producer's transaction in this partition and in the machine."""
        pending = _PendingMarker(self, end, waiter, at)
        self._last_write = pending
        try:
            self.partition.append_marker(end, pending, 0)
        except OttlaError as error:
            pending.on_outcome(0, error)

    def on_marker(self, end: TransactionEnd) -> None:
        """The marker is in the log: ends the transaction in the machine."""
        # While the shard is loading, the marker is replayed with the rest of the log.
        if self.is_active:
            self.machine.on_marker(end.producer_id, commit=end.marker is Marker.COMMIT)

    def on_done(self, pending: "_Pending", outcome: Appended | OttlaError) -> None:
        """Everything up to this write is committed, or it has failed."""
        if self._commit_wait is pending:
            self._commit_wait = None
        if self._last_write is pending:
            self._last_write = None
            if isinstance(outcome, OttlaError) and self._has_uncommitted():
                # It is in the log, or was refused and writes before it are: they will be committed when there are
                # enough replicas.
                self._await_commit()
        for effect in pending.then:
            self._follow_up(effect, is_committed=isinstance(outcome, Appended))

    # Time

    def _monotonic_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def now_ms(self) -> int:
        """The wall clock's time. If the clock was set meanwhile, the machine's deadlines move with it."""
        # In place, as every request asks for it.
        monotonic_ms = int(self._clock.monotonic() * 1000)
        by_ms = self._clock.now_ms() - monotonic_ms - self._wall_lead_ms
        if not -_CLOCK_SET_MS < by_ms < _CLOCK_SET_MS:
            self._wall_lead_ms += by_ms
            self.machine.on_clock_set(by_ms)
        return monotonic_ms + self._wall_lead_ms

    def _arm(self) -> None:
        deadline = self.machine.next_deadline() if self._state is _ACTIVE else None
        if deadline != self._deadline:
            self._set_timer(deadline)

    def _set_timer(self, deadline: int | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._deadline = deadline
        if deadline is not None:
            self._timer = self._timers.after(deadline - self._wall_lead_ms - self._monotonic_ms(), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = self._deadline = None
        if self.is_active:
            self.carry_out(self.machine.on_tick(self.now_ms()))


class _Pending:
    """Waits until all that is in the log is committed. Others wait for something of their own that is written."""

    __slots__ = ("_shard", "is_written", "then")

    def __init__(self, shard: "Shard[Any]") -> None:
        self._shard = shard
        self.is_written = False
        self.then: list[Any] = []
        """Effects that wait until this write is committed."""

    def on_waiting(self) -> None:
        """It is in the log."""
        if not self.is_written:
            self.is_written = True
            self._apply()

    def on_outcome(self, at: int, outcome: Appended | OttlaError) -> None:
        """It is committed, or has failed."""
        if isinstance(outcome, OttlaError):
            if not self._shard.is_stuck:
                _LOGGER.warning("%s: coordinator write failed: %s", self._shard.partition, outcome)
            self._shard.is_stuck = True
        else:
            if not self.is_written:
                self.is_written = True
                self._apply()
            self._shard.is_stuck = False
        self._answer(outcome)
        self._shard.on_done(self, outcome)

    def _apply(self) -> None:
        """To the machine."""

    def _answer(self, outcome: Appended | OttlaError) -> None:
        """To the request."""


class _PendingWrite(_Pending):
    """One write on its way: applied when it is in the log, answered when it is committed."""

    __slots__ = ("_write",)

    def __init__(self, shard: "Shard[Any]", write: Write | TransactionalWrite) -> None:
        # Not by the constructor of the base class: there is one of these for every write.
        self._shard = shard
        self.is_written = False
        self.then = []
        self._write = write

    def _apply(self) -> None:
        self._shard.on_written(self._write)

    def _answer(self, outcome: Appended | OttlaError) -> None:
        if isinstance(outcome, OttlaError):
            _answer_failure(self._write.on_failure, outcome)
            return
        for respond in self._write.responses:
            _deliver(respond)


class _PendingMarker(_Pending):
    """The same for the marker of a transaction; `waiter` gets the outcome, with the number `at`."""

    __slots__ = ("_at", "_end", "_waiter")

    def __init__(self, shard: "Shard[Any]", end: TransactionEnd, waiter: AppendWaiter, at: int) -> None:
        super().__init__(shard)
        self._end = end
        self._waiter = waiter
        self._at = at

    def _apply(self) -> None:
        self._shard.on_marker(self._end)

    def _answer(self, outcome: Appended | OttlaError) -> None:
        self._waiter.on_outcome(self._at, outcome)


def _answer_failure(responses: Iterable[Respond], error: OttlaError) -> None:
    for respond in responses:
        token = respond.token
        if isinstance(error, InvalidRequestError) and isinstance(token, _TOKENS) and not token.done():
            # A retry, which the machine's answer asks for, can never succeed: the client gets the reason instead.
            token.set_exception(error)
        else:
            _deliver(respond)


def _batch_of(write: Write | TransactionalWrite, now_ms: int) -> bytearray:
    builder = (
        BatchBuilder(producer_id=write.producer_id, producer_epoch=write.producer_epoch, transactional=True)
        if isinstance(write, TransactionalWrite)
        else BatchBuilder()
    )
    append = builder.append
    for key, value in write.records:
        append(now_ms, key, value)
    return bytearray(builder.build())


def _deliver(respond: Respond) -> None:
    """A token that is done belongs to a request that no longer waits."""
    token = respond.token
    if type(token) is Reply:
        if not token.is_done:
            token.set_result(respond.response)
    elif isinstance(token, asyncio.Future) and not token.done():
        token.set_result(respond.response)
