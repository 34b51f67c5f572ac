"""The planted bugs, one function each: mistakes that an engineer might make.

A bug replaces attributes of classes or modules while it is applied. Each says what it breaks; `CAUGHT_BY` in
`catching.py` names a seed that finds it.
"""

from dataclasses import replace
from typing import Any, Final

from ottla.broker.assignment import Assignment
from ottla.broker.broker_lifecycle import BrokerLifecycle
from ottla.broker.handlers.records import fetch, offsets
from ottla.broker.startup.metadata_recovery import MetadataRecovery
from ottla.controller import elections_state
from ottla.coordination.runtime import shard as shards
from ottla.coordination.runtime.effects import Respond, TransactionalWrite, Write
from ottla.coordination.runtime.shard import Shard
from ottla.coordination.transactions.coordinator import TransactionCoordinator
from ottla.metadata.store import Put
from ottla.model.ids import NO_OFFSET
from ottla.records.layout import Marker
from ottla.replication import isr_proposals
from ottla.replication.follower_state import FollowerState, Reaction, TruncateFully, TruncateTo
from ottla.replication.leader_state import LeaderState
from ottla.replication.log_repairs import LogRepairs
from ottla.replication.lost_logs import LostLogs
from ottla.replication.partition import Partition
from ottla.replication.partition_state import PartitionEffect, PartitionState, Tell, Told
from ottla.sim.mutants.mutant import Mutant, always, always_property
from ottla.sim.mutants.planted_queues import QUEUE_MUTANTS
from ottla.sim.mutants.planted_shares import SHARE_MUTANTS
from ottla.storage.epoch_history import EpochHistory
from ottla.storage.log import Log
from ottla.storage.log_store import LogStore
from ottla.storage.producers import producer_files, producer_state
from ottla.storage.producers.producer_state import ProducerStates
from ottla.storage.recovery import log_recovery as recovery


def _advance_alone(_: Any) -> Any:
    def replicated_offset(self: LeaderState, min_isr: int) -> int:
        return self.local_end

    return replicated_offset


def _advance_by_first(_: Any) -> Any:
    def replicated_offset(self: LeaderState, min_isr: int) -> int:
        ends = [self.followers[each].end_offset for each in self.isr if each in self.followers]
        return min(self.local_end, max(ends, default=self.local_end))

    return replicated_offset


def _advance_if_few(_: Any) -> Any:
    def replicated_offset(self: LeaderState, min_isr: int) -> int:
        ends = [self.followers[each].end_offset for each in self.maximal_isr if each in self.followers]
        return min([self.local_end, *ends])

    return replicated_offset


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
        return Reaction((TruncateFully(copy.start_offset),))

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
    def encode_snapshot(entries: Any, ended: Any) -> bytes:
        return bytes(old([replace(entry, batches=entry.batches[-1:]) for entry in entries], ended))

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
    def fail_waiting(self: PartitionState, error: Any) -> list[PartitionEffect]:
        told: list[Told] = []
        for queue in (self._waiting_for_disk, self._waiting_for_commit):
            told += [(each.waiter, each.at, each.outcome) for each in queue]
            queue.clear()
        return [Tell(told)] if told else []

    return fail_waiting


def _forget_offsets(_: Any) -> Any:
    def on_written(self: Shard[Any], write: Any) -> None:
        """Nothing."""

    return on_written


def _folders_removed(_: Any) -> Any:
    def set_aside(self: Assignment, log: Log, why: str) -> None:
        self._logs.delete(log.partition)

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
        what="Consumers get records from after the requested offset.",
        patches=((Partition, "read", _one_further),),
    ),
    "losing the lead acknowledges": Mutant(
        what="Produce requests that wait for followers succeed when the leader changes.",
        patches=((PartitionState, "fail_waiting", _all_is_well),),
    ),
    "coordinator forgets what it writes": Mutant(
        what="A coordinator writes its records, but does not apply them to its state.",
        scenario="groups",
        patches=((Shard, "on_written", _forget_offsets),),
    ),
    "end offset goes back": Mutant(
        what="A new leader reports a lower end offset than its predecessor.",
        patches=((offsets, "_check_end_known", always(None)),),
    ),
    "high watermark of the leader alone": Mutant(
        what="The high watermark follows the leader's own end, whatever its followers have.",
        patches=((LeaderState, "replicated_offset", _advance_alone),),
    ),
    "high watermark by the fastest": Mutant(
        what="The high watermark follows the fastest follower, not the slowest in-sync one.",
        patches=((LeaderState, "replicated_offset", _advance_by_first),),
    ),
    "too few commit": Mutant(
        what="The high watermark follows an ISR that is below min.insync.replicas.",
        patches=((LeaderState, "replicated_offset", _advance_if_few),),
    ),
    "no replica is eligible": Mutant(
        what="A replica that leaves an ISR below min.insync.replicas does not become eligible to lead.",
        patches=((elections_state, "with_isr", _nobody_eligible), (isr_proposals, "with_isr", _nobody_eligible)),
    ),
    "acks before replication": Mutant(
        what="acks=all is answered when the leader has the records.",
        patches=((Partition, "append_soon", _acks_one),),
    ),
    "fetching counts as having": Mutant(
        what="A follower that fetches counts as having all records of the leader.",
        patches=((LeaderState, "on_follower_fetch", _fetch_is_all),),
    ),
    "ISR change not fenced": Mutant(
        what="A leader writes its ISR without checking that the partition's record is unchanged.",
        scenario="sessions",
        patches=((isr_proposals, "updates", _unfenced),),
    ),
    "late replicas are in sync": Mutant(
        what="A replica enters the ISR before it has caught up.",
        scenario="sessions",
        patches=((LeaderState, "_is_in_sync", always(True)),),
    ),
    "truncation by high watermark": Mutant(
        what="A new follower truncates its log to its high watermark, not by leader epoch.",
        patches=((Partition, "become_follower", _cut_to_high_watermark), (fetch, "_diverging", _later_epoch)),
    ),
    "no truncation": Mutant(
        what="A leader does not report to a follower that their logs diverge.",
        patches=((fetch, "_diverging", _later_epoch),),
    ),
    "truncation of everything": Mutant(
        what="A follower whose log diverges starts empty, and loses what it acknowledged.",
        scenario="power",
        patches=((FollowerState, "_on_diverging", _cut_too_far),),
    ),
    "truncation to the own end only": Mutant(
        what="A follower truncates where its own epoch ends, not where the leader's does.",
        patches=((FollowerState, "_on_diverging", _cut_too_little),),
    ),
    "epoch not noted": Mutant(
        what="A new leader does not record where its epoch begins.",
        patches=((Partition, "become_leader", _no_start),),
    ),
    "epochs forgotten": Mutant(
        what="The epoch history never grows.",
        patches=((EpochHistory, "assign", always(None)),),
    ),
    "leader epoch unchecked": Mutant(
        what="Requests of an older or newer leader epoch are served.",
        patches=((Partition, "check_leader_epoch", always(None)),),
    ),
    "same epoch for the next leader": Mutant(
        what="A new leader leads in its predecessor's epoch.",
        patches=((elections_state, "led_by", _same_epoch),),
    ),
    "any live replica is elected": Mutant(
        what="Any live replica is elected, in sync or not.",
        patches=((elections_state, "elected", _anybody),),
    ),
    "dead replicas stay in sync": Mutant(
        what="A replica whose broker is not registered stays in the ISR, and is elected when it returns.",
        patches=((elections_state, "settled", lambda _: lambda image, where, partition, rules: partition),),
    ),
    "lost disks are trusted": Mutant(
        what="A broker whose machine went down registers as intact.",
        scenario="power",
        patches=((LogStore, "is_intact", always_property(lambda self: True)),),
    ),
    "full disks are not eligible": Mutant(
        what="A leader without disk space hands over and cannot lead again, although its log has everything.",
        scenario="queue power",
        patches=((LogRepairs, "_is_sound", always(False)),),
    ),
    "lost folders are not missed": Mutant(
        what="A broker that finds no folder for a partition creates an empty one, and counts as in sync.",
        scenario="folders",
        patches=((LostLogs, "_find", always(())),),
    ),
    "older stores are trusted": Mutant(
        what="A broker starts with a metadata store that is older than what it has seen.",
        scenario="stores",
        patches=((MetadataRecovery, "_why_older", always(None)), (Assignment, "_check_epoch", always(None))),
    ),
    "unknown folders are removed": Mutant(
        what="A folder whose topic the metadata does not have counts as that of a deleted topic.",
        scenario="stores",
        patches=((Assignment, "_set_aside", _folders_removed),),
    ),
    "damage ends the log": Mutant(
        what="A batch that is damaged after the recovery point ends the log; everything after it is removed.",
        scenario="damage",
        patches=(
            (recovery._Recovery, "_is_torn_tail", _damage_ends_it),
            (recovery, "_take_out", _segment_removed),
            (recovery, "_keep_range", always("")),
        ),
    ),
    "holes are not missed": Mutant(
        what="A log without its first segment, or one in its middle, counts as whole.",
        scenario="holes",
        patches=(
            (recovery._Recovery, "check_continuity", always(None)),
            (recovery._Recovery, "_note_gap", always(None)),
            (recovery, "_compare", always(None)),
            (recovery, "_start_of", _first_segment_is_the_start),
        ),
    ),
    "lease ignored": Mutant(
        what="A broker leads by records written for its previous registration, and does not resign.",
        scenario="sessions",
        patches=((BrokerLifecycle, "may_lead_since", always(True)), (Assignment, "resign", always(None))),
    ),
    "markers are forgotten": Mutant(
        what="Markers whose decision was not committed at first are never sent.",
        scenario="markers",
        patches=((TransactionCoordinator, "_leave_out", always(None)),),
    ),
    "restarts forget batches": Mutant(
        what="A broker that restarts knows only the last batch of each producer.",
        scenario="retries",
        patches=((producer_files, "encode_snapshot", _last_batches),),
    ),
    "flush forgotten": Mutant(
        what="flush.messages=1 has no effect.",
        scenario="blackouts",
        patches=((Log, "flush_is_due", always_property(lambda self: False)),),
    ),
    "sequence check dropped": Mutant(
        what="Batches that are sent again are written again.",
        scenario="retries",
        patches=(
            (ProducerStates, "duplicate_of", always(None)),
            (producer_state, "_check_sequence", always(None)),
        ),
    ),
    "followers forget producers": Mutant(
        what="A follower does not keep producer state; as a leader it accepts batches twice.",
        scenario="retries",
        patches=((Log, "append_as_follower", _no_producers),),
    ),
    "new leaders forget producers": Mutant(
        what="A new leader starts without producer state.",
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
        what="read_committed consumers read up to the high watermark.",
        scenario="transactions",
        patches=((Log, "last_stable_offset", always_property(lambda self: self.high_watermark)),),
    ),
    "aborted transactions are shown": Mutant(
        what="read_committed consumers do not get the list of aborted transactions.",
        scenario="transactions",
        patches=((fetch, "_aborted", always([])),),
    ),
    "uncommitted records are shown": Mutant(
        what="Consumers read beyond the high watermark.",
        patches=((Partition, "read", _read_everything),),
    ),
    **QUEUE_MUTANTS,
    **SHARE_MUTANTS,
}
"""By name."""
