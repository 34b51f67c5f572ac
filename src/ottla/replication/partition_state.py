"""The decisions of one partition: what is committed, which requests are answered, which fetches are woken. Pure.

A partition has one of two roles: leader (`leader_state.py`: its replicas and the ISR) or follower
(`follower_state.py`). This object holds the one true value of the high watermark, of the ISR (in `leader`) and of
min.insync.replicas. `Log.high_watermark` is the bound that reads and checkpoints use: only the partition moves it, by
`AdvanceHighWatermark`, and a truncation that changes it is reported back by `on_truncated`.

When a produced batch is answered:

    acks=0, 1   written; flushed too, where flush.messages asks for it
    acks=all    below the high watermark, or NOT_ENOUGH_REPLICAS_AFTER_APPEND once the ISR is below min.insync.replicas
    any         with the error, if the log fails, the partition gets another leader or is deleted

Each event returns effects, to be carried out in order: the high watermark moves before any waiter is told. The state is
complete before the first effect, so a waiter that is told may bring the next event. There are no deadlines here: a
request's timeout covers several partitions and belongs to its handler. `partition.py` is the shell.
"""

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

from ottla.model.errors import (
    FencedLeaderEpochError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderError,
    OttlaError,
    UnknownLeaderEpochError,
)
from ottla.model.ids import NO_LEADER_EPOCH, BrokerId, LeaderEpoch, Offset
from ottla.model.invariants import violated
from ottla.model.min_isr import effective_min_isr
from ottla.replication.follower_state import FollowerState
from ottla.replication.leader_state import IsrProposal, LeaderState

if TYPE_CHECKING:
    from ottla.storage.log import Appended

ALL_REPLICAS: Final = -1
"""acks=all."""

UNSTABLE_KEPT_MAX: Final = 1000
"""How many writes after an open transaction are counted one by one; later ones are added to the last."""


class AppendWaiter(Protocol):
    """A request that asked for an append and is told its outcome."""

    def on_outcome(self, at: int, outcome: "Appended | OttlaError") -> None:
        """The outcome of the part that was queued as `at`, now as safe as was asked for."""

    def on_waiting(self) -> None:
        """The part is written, and now waits for replicas or for the disk."""


class WaitingFetch(Protocol):
    """A fetch that waits for more to read; `is_committed` if only decided transactions count."""

    is_committed: bool

    def on_progress(self, added_bytes: int) -> None:
        """That many more bytes can be read."""

    def finish(self) -> None:
        """The wait is over, however much there is to read."""


Part = tuple[object, int, AppendWaiter, int]
"""(what is appended, acks, waiter, at); a plain tuple, since every produced batch makes one."""

Told = tuple[AppendWaiter, int, "Appended | OttlaError | None"]
"""(waiter, at, outcome); None if the part is written and waits."""


class AdvanceHighWatermark(Struct, frozen=True):
    """Readers may see everything below this offset, which is that many more bytes."""

    offset: Offset
    added_bytes: int


class AdvanceStart(Struct, frozen=True):
    """Records below this offset are deleted on the leader."""

    offset: Offset


class Tell(Struct, frozen=True):
    """Tell waiters their outcomes."""

    told: Sequence[Told]


class WakeFollowers(Struct, frozen=True):
    """That many more bytes are written."""

    added_bytes: int


class FinishFetches(Struct, frozen=True):
    """End these waits now."""

    waiters: Sequence[WaitingFetch]


class Flush(Struct, frozen=True):
    """Flush the log up to this offset, and report `on_flushed` or `fail_waiting`."""

    end_offset: Offset


PartitionEffect = AdvanceHighWatermark | AdvanceStart | Tell | WakeFollowers | FinishFetches | Flush


class _Waiting(Struct, frozen=True):
    end_offset: Offset
    waiter: AppendWaiter
    at: int
    outcome: "Appended"


class PartitionState:
    """One partition on one broker. `name` is for messages."""

    __slots__ = (
        "_hidden",
        "_told_stable",
        "_waiting_for_commit",
        "_waiting_for_disk",
        "effective_min_isr",
        "fetch_waiters",
        "follower",
        "high_watermark",
        "is_short",
        "leader",
        "leader_epoch",
        "min_insync_replicas",
        "name",
        "replica_waiters",
        "unstable",
    )

    def __init__(self, name: str, *, high_watermark: Offset, min_insync_replicas: int) -> None:
        self.name = name
        self.high_watermark = high_watermark
        """Everything below it is committed. Only a truncation moves it back."""
        self.min_insync_replicas = min_insync_replicas
        self.leader: LeaderState | None = None
        """Set while this broker leads the partition."""
        self.follower: FollowerState | None = None
        """Set while this broker follows another one."""
        self.leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
        self.effective_min_isr = 0
        """How many replicas must be in sync before anything is committed; 0 unless this broker leads."""
        self.is_short = True
        """Whether the ISR is below min.insync.replicas, or this broker does not lead."""
        self.fetch_waiters: dict[WaitingFetch, None] = {}
        """Fetches of consumers, which wait for committed records."""
        self.replica_waiters: dict[WaitingFetch, None] = {}
        """Fetches of followers, which wait for written records."""
        self._hidden: deque[tuple[Offset, int]] = deque()
        """(end offset, bytes) of each write above the high watermark, in order."""
        self.unstable: deque[tuple[Offset, int]] = deque()
        """The same for writes that are committed but not below the last stable offset."""
        self._told_stable = Offset(0)
        self._waiting_for_commit: deque[_Waiting] = deque()
        """By end offset, as `_waiting_for_disk`."""
        self._waiting_for_disk: deque[_Waiting] = deque()

    # Questions

    def check_leads(self) -> LeaderState:
        """Raises NotLeaderError unless this broker leads."""
        if self.leader is None:
            raise NotLeaderError(f"this broker does not lead {self.name}; refresh the metadata")
        return self.leader

    def check_in_sync(self) -> None:
        """Raises unless this broker leads and acks=all can succeed."""
        if self.is_short:
            self.check_leads()
            raise NotEnoughReplicasError(self._shortage())

    def check_leader_epoch(self, epoch: int) -> None:
        """Raises unless a request names the present leader epoch, or -1 for none."""
        if epoch == -1 or epoch == self.leader_epoch:
            return
        where = f"{self.name} is in leader epoch {self.leader_epoch}"
        if epoch < self.leader_epoch:
            raise FencedLeaderEpochError(f"{where}, the request has the older epoch {epoch}; refresh the metadata")
        raise UnknownLeaderEpochError(f"{where}, the request has the newer epoch {epoch}; retry")

    def propose_isr(self, now: float, lag_seconds_max: float, alive: dict[BrokerId, int]) -> IsrProposal | None:
        """The ISR change that is due, if this broker leads; see `LeaderState.propose`."""
        if self.leader is None:
            return None
        return self.leader.propose(
            now,
            lag_seconds_max,
            alive,
            high_watermark=self.high_watermark,
            min_isr=self.effective_min_isr,
        )

    # Roles

    def become_leader(self, leader: LeaderState, *, end_offset: Offset, flush_is_due: bool) -> list[PartitionEffect]:
        """This broker leads from now on, with a log that ends here."""
        self.follower = None
        self.leader = leader
        self.leader_epoch = leader.leader_epoch
        self._update_shortage()
        return [Flush(end_offset)] if flush_is_due else self.on_flushed(end_offset)

    def become_follower(self, follower: FollowerState) -> list[PartitionEffect]:
        """This broker follows from now on. All requests that wait here are answered."""
        was_led = self.leader is not None
        self.leader = None
        self.follower = follower
        self.leader_epoch = follower.leader_epoch
        self._update_shortage()
        if not was_led:
            return []
        self._hidden.clear()
        self.unstable.clear()
        return self.fail_waiting(NotLeaderError(f"broker {follower.leader} leads {self.name} now"))

    # Appending, as a leader

    def on_append(
        self,
        parts: Sequence[Part],
        outcomes: "Sequence[Appended | OttlaError]",
        *,
        added_bytes: int,
        end_offset: Offset,
        recovery_point: Offset,
        flush_is_due: bool,
        failure: OttlaError | None = None,
    ) -> list[PartitionEffect]:
        """The log has taken the parts, or refused some. Each is answered now or when it is as safe as it asked for.

        With `flush_is_due` records are safe below `recovery_point` only, until the next flush. After a `failure` of the
        log nothing more becomes safe: no part is answered with success, and none waits.
        """
        if added_bytes:
            self._hidden.append((end_offset, added_bytes))
        effects: list[PartitionEffect] = []
        if failure is not None:
            outcomes = [outcome if isinstance(outcome, OttlaError) else failure for outcome in outcomes]
        elif not flush_is_due:
            effects = self.on_flushed(end_offset)
        if added_bytes and self.replica_waiters:
            effects.insert(0, WakeFollowers(added_bytes))
        safe_offset = recovery_point if flush_is_due else end_offset
        high_watermark = self.high_watermark
        told: list[Told] = []
        # By number: zip(strict=True) costs half a microsecond, as much as all the rest for one part.
        for number, (_, acks, waiter, at) in enumerate(parts):
            outcome = outcomes[number]
            if isinstance(outcome, OttlaError):
                told.append((waiter, at, outcome))
            elif acks == ALL_REPLICAS and outcome.last_offset >= high_watermark:
                if self.is_short:
                    # The ISR shrank after the part was queued.
                    told.append((waiter, at, self._shortage_after_append()))
                else:
                    _add(self._waiting_for_commit, _Waiting(Offset(outcome.last_offset + 1), waiter, at, outcome))
                    told.append((waiter, at, None))
            elif outcome.last_offset >= safe_offset:
                _add(self._waiting_for_disk, _Waiting(Offset(outcome.last_offset + 1), waiter, at, outcome))
                told.append((waiter, at, None))
            else:
                told.append((waiter, at, outcome))
        effects.append(Tell(told))
        if flush_is_due and failure is None:
            effects.append(Flush(end_offset))
        return effects

    def wait_committed(self, waiter: AppendWaiter, written: "Appended") -> list[PartitionEffect]:
        """The waiter is told, as part 0, when everything up to the log's end is committed."""
        if self.leader is None:
            return [Tell([(waiter, 0, NotLeaderError(f"this broker does not lead {self.name}"))])]
        end_offset = Offset(written.last_offset + 1)
        if end_offset <= self.high_watermark:
            return [Tell([(waiter, 0, written)])]
        _add(self._waiting_for_commit, _Waiting(end_offset, waiter, 0, written))
        return []

    def on_flushed(self, end_offset: Offset) -> list[PartitionEffect]:
        """The log is as safe as the topic asks for, up to here."""
        if self.leader is None:
            # A flush that began while this broker led; the requests that waited for it have been answered.
            return []
        self.leader.on_local_end(end_offset)
        return self._commit(_due(self._waiting_for_disk, end_offset) if self._waiting_for_disk else ())

    # Replicas, as a leader

    def on_follower_fetch(
        self,
        broker: BrokerId,
        *,
        offset: Offset,
        start_offset: Offset,
        broker_epoch: int,
        leader_end: Offset,
        now: float,
    ) -> list[PartitionEffect]:
        """A follower has everything below an offset."""
        self.check_leads().on_follower_fetch(
            broker, offset=offset, start_offset=start_offset, broker_epoch=broker_epoch, leader_end=leader_end, now=now
        )
        return self._commit()

    def on_isr(
        self, replicas: tuple[BrokerId, ...], isr: tuple[BrokerId, ...], eligible: tuple[BrokerId, ...], now: float
    ) -> list[PartitionEffect]:
        """The replicas or the ISR changed under the same leader."""
        leader = self.check_leads()
        has_newcomers = not set(replicas) <= set(leader.replicas)
        leader.on_isr(isr, self.leader_epoch, replicas, eligible=eligible, now=now)
        self._update_shortage()
        effects = self._commit() + self._fail_if_short()
        if has_newcomers:
            # A replica whose fetch came before this broker knew it was not counted, so it must fetch again.
            effects.append(FinishFetches(tuple(self.replica_waiters)))
        return effects

    def on_min_insync_replicas(self, count: int) -> list[PartitionEffect]:
        """min.insync.replicas of the topic has changed."""
        self.min_insync_replicas = count
        self._update_shortage()
        return [] if self.leader is None else self._commit() + self._fail_if_short()

    def on_isr_refused(self, proposal: IsrProposal) -> list[PartitionEffect]:
        """An ISR proposal was not committed."""
        self.check_leads().on_refused(proposal)
        return self._commit()

    # Copying, as a follower

    def on_copied(self, end_offset: Offset, added_bytes: int) -> None:
        """Records were copied from the leader; waiting fetches are woken when they are committed."""
        self._hidden.append((end_offset, added_bytes))

    def on_truncated(self, high_watermark: Offset) -> None:
        """The log was cut, and this is what is left of the high watermark; readers wait for what comes instead."""
        self.high_watermark = high_watermark
        self._hidden.clear()

    def on_log_replaced(self, high_watermark: Offset) -> list[PartitionEffect]:
        """Another log took the place of one that failed or was damaged."""
        self.on_truncated(high_watermark)
        self._told_stable = Offset(0)
        return self.end_fetch_waits()

    def on_leader_bounds(
        self, high_watermark: Offset, start_offset: Offset, *, end_offset: Offset
    ) -> list[PartitionEffect]:
        """The leader said how far the partition is committed and where it starts; this log ends at `end_offset`."""
        effects: list[PartitionEffect] = []
        if self.high_watermark < (reached := min(high_watermark, end_offset)):
            effects.append(self._advance_to(reached))
        effects.append(AdvanceStart(min(start_offset, self.high_watermark)))
        return effects

    # Waiting

    def stable_bytes(self, added_bytes: int, last_stable_offset: Offset) -> int:
        """How many more bytes read_committed consumers can read after `added_bytes` more were committed.

        To be asked while some transaction is undecided, and after that until `unstable` is empty. Otherwise it is all.
        """
        unstable = self.unstable
        if len(unstable) >= UNSTABLE_KEPT_MAX:
            added_bytes += unstable.pop()[1]
        unstable.append((self.high_watermark, added_bytes))
        stable_bytes = 0
        while unstable and unstable[0][0] <= last_stable_offset:
            stable_bytes += unstable.popleft()[1]
        # The last stable offset may lie within one write. That it moved means one more readable byte at least.
        if last_stable_offset > self._told_stable:
            stable_bytes = max(stable_bytes, 1)
            self._told_stable = last_stable_offset
        return stable_bytes

    def fail_waiting(self, error: OttlaError) -> list[PartitionEffect]:
        """All requests that wait here are answered: the log failed, or the partition was deleted or moved."""
        told = _failed(self._waiting_for_disk, error) + _failed(self._waiting_for_commit, error)
        return [Tell(told), *self.end_fetch_waits()] if told else self.end_fetch_waits()

    def end_fetch_waits(self) -> list[PartitionEffect]:
        """Waiting fetches are answered with the records that are available."""
        waiters = (*self.fetch_waiters, *self.replica_waiters)
        return [FinishFetches(waiters)] if waiters else []

    # Inside

    def _commit(self, told: Sequence[Told] = ()) -> list[PartitionEffect]:
        """Moves the high watermark as far as the replicas allow; `told` are answered beside those this answers."""
        effects: list[PartitionEffect] = []
        leader = self.leader or self.check_leads()
        offset = leader.replicated_offset(self.effective_min_isr)
        if offset > self.high_watermark:
            effects.append(self._advance_to(offset))
            if self._waiting_for_commit:
                told = [*told, *_due(self._waiting_for_commit, offset)]
        if told:
            effects.append(Tell(told))
        return effects

    def _update_shortage(self) -> None:
        """After each change of role, ISR or min.insync.replicas; every append with acks=all asks for it."""
        leader = self.leader
        self.effective_min_isr = (
            0 if leader is None else effective_min_isr(self.min_insync_replicas, len(leader.replicas))
        )
        self.is_short = leader is None or len(leader.isr) < self.effective_min_isr

    def _advance_to(self, high_watermark: Offset) -> AdvanceHighWatermark:
        self.high_watermark = high_watermark
        hidden = self._hidden
        added_bytes = 0
        while hidden and hidden[0][0] <= high_watermark:
            added_bytes += hidden.popleft()[1]
        return AdvanceHighWatermark(high_watermark, added_bytes)

    def _fail_if_short(self) -> list[PartitionEffect]:
        if not self._waiting_for_commit or not self.is_short:
            return []
        return [Tell(_failed(self._waiting_for_commit, self._shortage_after_append()))]

    def _shortage(self) -> str:
        in_sync = 0 if self.leader is None else len(self.leader.isr)
        return f"{self.name} has {in_sync} replicas in sync, min.insync.replicas={self.min_insync_replicas}"

    def _shortage_after_append(self) -> NotEnoughReplicasAfterAppendError:
        return NotEnoughReplicasAfterAppendError(
            f"{self._shortage()}; the records were appended, and will be committed when enough replicas are in sync"
        )

    def check(self) -> None:
        """Raises InvariantViolation if the state is impossible."""
        if self.leader is not None and self.follower is not None:
            violated(f"{self.name} is both leader and follower")
        if self.leader is None and (self._waiting_for_commit or self._waiting_for_disk):
            violated(f"{self.name} has waiting requests, but this broker does not lead it")
        if self.leader is not None:
            self.leader.check()
        known = self.effective_min_isr, self.is_short
        self._update_shortage()
        if known != (self.effective_min_isr, self.is_short):
            violated(f"{self.name} has an outdated ISR state {known}, min.insync.replicas={self.min_insync_replicas}")
        if self._waiting_for_commit and self._waiting_for_commit[0].end_offset <= self.high_watermark:
            violated(f"{self.name} has waiting requests below the high watermark {self.high_watermark}")
        for queue in (self._waiting_for_commit, self._waiting_for_disk):
            ends = [each.end_offset for each in queue]
            if ends != sorted(ends):
                violated(f"{self.name} has waiting requests out of order: {ends}")
        hidden = [end_offset for end_offset, _ in self._hidden]
        if hidden != sorted(hidden) or (hidden and hidden[0] <= self.high_watermark):
            violated(
                f"{self.name} has hidden writes that end at {hidden}, but the high watermark is {self.high_watermark}"
            )


def _add(queue: "deque[_Waiting]", waiting: _Waiting) -> None:
    """In order: a batch that repeats an earlier one ends before others that wait already."""
    at = len(queue)
    while at and queue[at - 1].end_offset > waiting.end_offset:
        at -= 1
    queue.insert(at, waiting)


def _due(queue: "deque[_Waiting]", end_offset: Offset) -> list[Told]:
    told: list[Told] = []
    while queue and queue[0].end_offset <= end_offset:
        waiting = queue.popleft()
        told.append((waiting.waiter, waiting.at, waiting.outcome))
    return told


def _failed(queue: "deque[_Waiting]", error: OttlaError) -> list[Told]:
    told: list[Told] = [(waiting.waiter, waiting.at, error) for waiting in queue]
    queue.clear()
    return told
