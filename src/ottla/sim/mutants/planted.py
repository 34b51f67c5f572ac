"""The planted bugs, one function each: what a tired engineer might write, or leave out.

A bug replaces attributes of classes or modules while it is applied. Each says what it breaks; `CAUGHT_BY` in
`catching.py` names a seed that finds it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from ottla.broker import isr_changes
from ottla.broker.assignment import Assignment
from ottla.broker.broker import Broker
from ottla.broker.handlers import fetch, offsets
from ottla.broker.lost_logs import LostLogs
from ottla.broker.metadata_recovery import MetadataRecovery
from ottla.broker.transaction_coordinator import TransactionCoordinator
from ottla.controller import elections_state
from ottla.coordination.runtime import shard as shards
from ottla.coordination.runtime.effects import Respond, TransactionalWrite, Write
from ottla.coordination.runtime.shard import Shard
from ottla.metadata.store import Put
from ottla.model.ids import NO_OFFSET
from ottla.records.layout import Marker
from ottla.replication.follower_state import BeginAnew, FollowerState, Reaction, TruncateTo
from ottla.replication.leader_state import LeaderState
from ottla.replication.partition import Partition
from ottla.storage import producer_files, producer_state, recovery
from ottla.storage.epoch_history import EpochHistory
from ottla.storage.log import Log
from ottla.storage.log_store import LogStore
from ottla.storage.producer_state import ProducerStates


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A bug: what it is, and (owner, attribute, how the new one is made of the old one) for each place."""

    what: str
    scenario: str = "failover"
    """Where it shows soonest."""
    patches: tuple[tuple[Any, str, Callable[[Any], Any]], ...]


def _always(value: Any) -> Callable[[Any], Any]:
    return lambda _: lambda *args, **kwargs: value


def _always_property(value: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda _: property(value)


def _advance_alone(_: Any) -> Any:
    def advance(self: LeaderState) -> int:
        self.high_watermark = max(self.high_watermark, self.local_end)
        return self.high_watermark

    return advance


def _advance_by_first(_: Any) -> Any:
    def advance(self: LeaderState) -> int:
        ends = [self.followers[each].end_offset for each in self.isr if each in self.followers]
        self.high_watermark = max(self.high_watermark, min(self.local_end, max(ends, default=self.local_end)))
        return self.high_watermark

    return advance


def _advance_if_few(_: Any) -> Any:
    def advance(self: LeaderState) -> int:
        ends = [self.followers[each].end_offset for each in self.maximal_isr if each in self.followers]
        self.high_watermark = max(self.high_watermark, min([self.local_end, *ends]))
        return self.high_watermark

    return advance


def _nobody_eligible(_: Any) -> Any:
    def with_isr(partition: Any, isr: Any, rules: Any, *, lost: Any = ()) -> Any:
        return replace(partition, isr=isr, eligible=())

    return with_isr


def _unfenced(old: Any) -> Any:
    def updates(*args: Any) -> list[Any]:
        return [Put(each.key, each.value, None) for each in old(*args) if isinstance(each, Put)]

    return updates


def _cut_to_high_watermark(old: Any) -> Any:
    def become_follower(self: Partition, follower: FollowerState) -> None:
        old(self, follower)
        if self.log.high_watermark < self.log.end_offset:
            self.log.truncate_to(self.log.high_watermark, now=self._clock.now_ms())

    return become_follower


def _cut_too_far(_: Any) -> Any:
    def on_diverging(self: FollowerState, epoch: int, end_offset: int, copy: Any) -> Reaction:
        return Reaction((BeginAnew(copy.start_offset),))

    return on_diverging


def _cut_too_little(_: Any) -> Any:
    def on_diverging(self: FollowerState, epoch: int, end_offset: int, copy: Any) -> Reaction:
        _, own_end = copy.end_of(epoch)
        return Reaction((TruncateTo(own_end),)) if NO_OFFSET < own_end < copy.end_offset else Reaction(())

    return on_diverging


def _acks_one(old: Any) -> Any:
    def append_soon(self: Partition, batch: Any, acks: int, waiter: Any, at: int) -> None:
        old(self, batch, 1 if acks == -1 else acks, waiter, at)

    return append_soon


def _fetch_is_all(old: Any) -> Any:
    def on_follower_fetch(self: LeaderState, broker: Any, **told: Any) -> Any:
        return old(self, broker, **{**told, "offset": told["leader_end"]})

    return on_follower_fetch


def _anybody(old: Any) -> Any:
    def elected(image: Any, where: Any, partition: Any, rules: Any) -> Any:
        alive = [each for each in partition.replicas if each in image.brokers]
        if alive and partition.leader not in alive:
            return elections_state.led_by(replace(partition, isr=tuple(alive), eligible=()), alive[-1])
        return old(image, where, partition, rules)

    return elected


def _same_epoch(_: Any) -> Any:
    def led_by(partition: Any, leader: Any) -> Any:
        return replace(partition, leader=leader)

    return led_by


def _early_followups(old: Any) -> Any:
    def carry_out(self: Shard[Any], effects: Any) -> None:
        waiting = [each for each in effects if not isinstance(each, Respond | Write)]
        waiting = [each for each in waiting if not isinstance(each, TransactionalWrite)]
        for each in waiting:
            self._follow_up(each, is_committed=True)
        old(self, [each for each in effects if each not in waiting])

    return carry_out


def _answers_early(old: Any) -> Any:
    def write(self: Shard[Any], what: Any) -> bool:
        for each in what.responses:
            shards._deliver(each)
        return bool(old(self, what))

    return write


def _nothing_loaded(_: Any) -> Any:
    async def load_from(self: Shard[Any], offset: int, end_offset: int) -> int:
        return end_offset

    return load_from


def _read_everything(_: Any) -> Any:
    def read(self: Partition, offset: Any, max_bytes: int, *, is_committed: bool, at_least_one: bool) -> Any:
        return self.log.read(offset, max_bytes, upper=self.log.end_offset, at_least_one=at_least_one)

    return read


def _no_producers(old: Any) -> Any:
    def append_as_follower(self: Log, run: memoryview, *, now: Any) -> int:
        known = dict(self.producers._entries)
        count = int(old(self, run, now=now))
        self.producers._entries.clear()
        self.producers._entries.update(known)
        return count

    return append_as_follower


def _one_sequence(old: Any) -> Any:
    def become_leader(self: Partition, leader: LeaderState) -> None:
        old(self, leader)
        self.log.producers._entries.clear()

    return become_leader


def _later_epoch(_: Any) -> Any:
    def diverging(partition: Any, wanted: Any) -> None:
        return None

    return diverging


def _last_batches(old: Any) -> Any:
    def encode_snapshot(entries: Any) -> bytes:
        return bytes(old([replace(entry, batches=entry.batches[-1:]) for entry in entries]))

    return encode_snapshot


def _no_start(old: Any) -> Any:
    def become_leader(self: Partition, leader: LeaderState) -> None:
        starts = dict(self.log.epochs.starts)
        old(self, leader)
        self.log.epochs._replace(starts)

    return become_leader


def _commit_always(old: Any) -> Any:
    def append_marker(self: Partition, end: Any, waiter: Any, at: int) -> None:
        old(self, end._replace(marker=Marker.COMMIT), waiter, at)

    return append_marker


def _one_further(old: Any) -> Any:
    def read(self: Partition, offset: int, max_bytes: int, **told: Any) -> Any:
        return old(self, min(offset + 1, self.high_watermark), max_bytes, **told)

    return read


def _all_is_well(_: Any) -> Any:
    def fail_waiting(self: Partition, error: Any) -> None:
        for queue in (self._waiting_for_disk, self._waiting_for_commit):
            while queue:
                waiting = queue.popleft()
                waiting.waiter.on_outcome(waiting.at, waiting.outcome)

    return fail_waiting


def _forget_offsets(_: Any) -> Any:
    def on_written(self: Shard[Any], write: Any) -> None:
        """Nothing."""

    return on_written


def _folders_removed(_: Any) -> Any:
    def set_aside(self: Assignment, log: Log, why: str) -> None:
        self._broker.store.delete(log.partition)

    return set_aside


def _damage_ends_it(_: Any) -> Any:
    def is_torn_tail(self: Any, segment: Any, position: int) -> bool:
        return bool(self._expected >= self._opening.recovery_point)

    return is_torn_tail


def _segment_removed(_: Any) -> Any:
    def take_out(opening: Any, segment: Any, why: str) -> None:
        segment.release()
        for path in segment.paths():
            opening.disk.remove(path)

    return take_out


def _first_segment_is_the_start(_: Any) -> Any:
    def start_of(opening: Any, segments: Any, losses: Any) -> Any:
        return max(opening.start_offset, segments[0].base_offset)

    return start_of


MUTANTS: Final = {
    "every marker commits": Mutant(
        what="A transaction that is aborted is committed.",
        scenario="transactions",
        patches=((Partition, "append_marker", _commit_always),),
    ),
    "readers skip a record": Mutant(
        what="Consumers are given what comes after the offset that they asked for.",
        patches=((Partition, "read", _one_further),),
    ),
    "losing the lead acknowledges": Mutant(
        what="Whoever waits for followers when the leader changes is told that all is well.",
        patches=((Partition, "fail_waiting", _all_is_well),),
    ),
    "coordinator forgets what it writes": Mutant(
        what="A coordinator writes its records, and does not take them to heart.",
        scenario="groups",
        patches=((Shard, "_on_written", _forget_offsets),),
    ),
    "ends are told early": Mutant(
        what="A new leader tells an end of the partition below what its predecessor told.",
        patches=((offsets, "_check_end_known", _always(None)),),
    ),
    "high watermark of the leader alone": Mutant(
        what="The high watermark follows the leader's own end, whatever its followers have.",
        patches=((LeaderState, "_advance", _advance_alone),),
    ),
    "high watermark by the fastest": Mutant(
        what="The high watermark follows the follower that is furthest, not the one that is last.",
        patches=((LeaderState, "_advance", _advance_by_first),),
    ),
    "too few commit": Mutant(
        what="The high watermark follows an ISR that is below min.insync.replicas.",
        patches=((LeaderState, "_advance", _advance_if_few),),
    ),
    "nobody is eligible": Mutant(
        what="Who leaves an ISR never leads, also if the ISR has become too small to commit anything.",
        patches=((elections_state, "with_isr", _nobody_eligible), (isr_changes, "with_isr", _nobody_eligible)),
    ),
    "acks before replication": Mutant(
        what="acks=all is answered when the leader has the records.",
        patches=((Partition, "append_soon", _acks_one),),
    ),
    "fetching counts as having": Mutant(
        what="A follower that fetches counts as if it had all that the leader has.",
        patches=((LeaderState, "on_follower_fetch", _fetch_is_all),),
    ),
    "ISR change not fenced": Mutant(
        what="A leader writes its ISR without looking whether the record is still its own.",
        scenario="sessions",
        patches=((isr_changes, "updates", _unfenced),),
    ),
    "late replicas are in sync": Mutant(
        what="A replica enters the ISR before it has caught up.",
        scenario="sessions",
        patches=((LeaderState, "_is_in_sync", _always(True)),),
    ),
    "truncation by high watermark": Mutant(
        what="A new follower cuts its log to its high watermark, and epochs have no say.",
        patches=((Partition, "become_follower", _cut_to_high_watermark), (fetch, "_diverging", _later_epoch)),
    ),
    "no truncation": Mutant(
        what="A leader does not tell a follower that their histories differ.",
        patches=((fetch, "_diverging", _later_epoch),),
    ),
    "truncation of everything": Mutant(
        what="A follower whose history differs begins anew, and forgets what it acknowledged.",
        scenario="power",
        patches=((FollowerState, "_on_diverging", _cut_too_far),),
    ),
    "truncation to the own end only": Mutant(
        what="A follower cuts where its own epoch ends, not where the leader's does.",
        patches=((FollowerState, "_on_diverging", _cut_too_little),),
    ),
    "epoch not noted": Mutant(
        what="A new leader does not note where its epoch begins.",
        patches=((Partition, "become_leader", _no_start),),
    ),
    "epochs forgotten": Mutant(
        what="The epoch history never grows.",
        patches=((EpochHistory, "assign", _always(None)),),
    ),
    "leader epoch unchecked": Mutant(
        what="Requests of an older or newer leader epoch are served.",
        patches=((Partition, "check_leader_epoch", _always(None)),),
    ),
    "same epoch for the next leader": Mutant(
        what="A new leader leads in its predecessor's epoch.",
        patches=((elections_state, "led_by", _same_epoch),),
    ),
    "anybody is elected": Mutant(
        what="Any live replica is elected, in sync or not.",
        patches=((elections_state, "elected", _anybody),),
    ),
    "the gone stay in sync": Mutant(
        what="Who is not registered any more stays in the ISR, and is elected when it returns.",
        patches=((elections_state, "settled", lambda _: lambda image, where, partition, rules: partition),),
    ),
    "lost disks are trusted": Mutant(
        what="A broker whose machine went down says that it has everything.",
        scenario="power",
        patches=((LogStore, "is_intact", _always_property(lambda self: True)),),
    ),
    "lost folders are not missed": Mutant(
        what="A broker that finds no folder for a partition makes an empty one, and counts as in sync.",
        scenario="folders",
        patches=((LostLogs, "_find", _always(())),),
    ),
    "older stores are trusted": Mutant(
        what="A broker starts with a metadata store that is older than what it has seen.",
        scenario="stores",
        patches=((MetadataRecovery, "_why_older", _always(None)), (Assignment, "_check_epoch", _always(None))),
    ),
    "unknown folders are removed": Mutant(
        what="A folder whose topic the metadata does not have counts as that of a deleted topic.",
        scenario="stores",
        patches=((Assignment, "_set_aside", _folders_removed),),
    ),
    "damage ends the log": Mutant(
        what="A batch that is damaged beyond the recovery point ends the log; what is behind it is removed.",
        scenario="damage",
        patches=(
            (recovery._Recovery, "_is_torn_tail", _damage_ends_it),
            (recovery, "_take_out", _segment_removed),
            (recovery, "_keep_range", _always("")),
        ),
    ),
    "holes are not missed": Mutant(
        what="A log without its first segment, or one in its middle, counts as whole.",
        scenario="holes",
        patches=(
            (recovery._Recovery, "check_continuity", _always(None)),
            (recovery._Recovery, "_note_gap", _always(None)),
            (recovery, "_compare", _always(None)),
            (recovery, "_start_of", _first_segment_is_the_start),
        ),
    ),
    "lease ignored": Mutant(
        what="A broker leads by records that were meant for its former life, and does not resign.",
        scenario="sessions",
        patches=((Broker, "may_lead_since", _always(True)), (Assignment, "resign", _always(None))),
    ),
    "markers are forgotten": Mutant(
        what="Markers whose decision was not safe at first are never sent.",
        scenario="markers",
        patches=((TransactionCoordinator, "_leave_out", _always(None)),),
    ),
    "restarts forget batches": Mutant(
        what="A broker that restarts knows only the last batch of each producer.",
        scenario="retries",
        patches=((producer_files, "encode_snapshot", _last_batches),),
    ),
    "flush forgotten": Mutant(
        what="flush.messages=1 is not heeded.",
        scenario="blackouts",
        patches=((Log, "flush_is_due", _always_property(lambda self: False)),),
    ),
    "sequence check dropped": Mutant(
        what="Batches that come again are written again.",
        scenario="retries",
        patches=(
            (ProducerStates, "duplicate_of", _always(None)),
            (producer_state, "_check_sequence", _always(None)),
        ),
    ),
    "followers forget producers": Mutant(
        what="A follower does not learn who wrote what; as a leader it takes batches twice.",
        scenario="retries",
        patches=((Log, "append_as_follower", _no_producers),),
    ),
    "new leaders forget producers": Mutant(
        what="Who becomes leader begins without producers.",
        scenario="retries",
        patches=((Partition, "become_leader", _one_sequence),),
    ),
    "marker before prepare is durable": Mutant(
        what="A coordinator acts on its decisions before they are committed.",
        scenario="transactions",
        patches=((Shard, "carry_out", _early_followups),),
    ),
    "coordinator answers early": Mutant(
        what="A coordinator answers before its records are written.",
        scenario="transactions",
        patches=((Shard, "_write", _answers_early),),
    ),
    "coordinator without memory": Mutant(
        what="A coordinator that takes over does not read what its predecessor wrote.",
        scenario="groups",
        patches=((Shard, "_load_from", _nothing_loaded),),
    ),
    "open transactions are shown": Mutant(
        what="Who reads committed records reads as far as the high watermark.",
        scenario="transactions",
        patches=((Log, "last_stable_offset", _always_property(lambda self: self.high_watermark)),),
    ),
    "aborted transactions are shown": Mutant(
        what="Who reads committed records is not told what was aborted.",
        scenario="transactions",
        patches=((fetch, "_aborted", _always([])),),
    ),
    "uncommitted records are shown": Mutant(
        what="Consumers read beyond the high watermark.",
        patches=((Partition, "read", _read_everything),),
    ),
}
"""By name."""
