"""The planted bugs of queues, one function each; see `planted.py`."""

from typing import Any, Final

from ottla.model.ids import NO_PRODUCER_ID
from ottla.queues import queue_shard
from ottla.queues.delivery_state import DeliveryState
from ottla.queues.due_index import DueIndex
from ottla.queues.expiry import ExpiryFilter, UnexpiredRead
from ottla.queues.kinds import half_queue
from ottla.queues.kinds.delay_queue import DelayQueue
from ottla.queues.kinds.half_queue import HalfQueue, Outcome
from ottla.queues.kinds.kind import Ask
from ottla.queues.kinds.retry_admission import RetryAdmission
from ottla.queues.progress_records import Action
from ottla.queues.queue_shard import QueueShard
from ottla.sim.mutants.mutant import Mutant, always

EARLY_MS: Final = 2_000


def _early(pop_due: Any) -> Any:
    def early(self: DueIndex, now_ms: int, limit: int) -> Any:
        return pop_due(self, now_ms + EARLY_MS, limit)

    return early


def _latest_first(pop_due: Any) -> Any:
    def reversed_due(self: DueIndex, now_ms: int, limit: int) -> Any:
        dues, offsets = pop_due(self, now_ms, limit)
        return dues[::-1], offsets[::-1]

    return reversed_due


def _without_producer(pick_batch: Any) -> Any:
    def anonymous(*args: Any, **options: Any) -> Any:
        return pick_batch(*args, **{**options, "producer_id": -1, "producer_epoch": -1, "base_sequence": -1})

    return anonymous


def _plans_unread(on_plan: Any) -> Any:
    def only_own(self: DeliveryState, plan: Any) -> Any:
        return on_plan(self, plan) if self.is_loaded else []

    return only_own


def _unfinished_forgotten(_: Any) -> Any:
    def on_loaded(self: DeliveryState) -> Any:
        self.is_loaded = True
        for sink in self.sinks.values():
            sink.is_sent = True
        return []

    return on_loaded


def _always_committed(on_marker: Any) -> Any:
    def committed(self: DeliveryState, offset: Any, producer_id: Any, *, is_commit: bool) -> Any:
        return on_marker(self, offset, producer_id, is_commit=True)

    return committed


def _counted_at_once(on_data: Any) -> Any:
    def counted(self: DeliveryState, base_offset: Any, count: int, found: Any, producer_id: Any) -> Any:
        return on_data(self, base_offset, count, found, -1)

    return counted


def _applied_at_once(read: Any) -> Any:
    def applied(self: DelayQueue, batch: Any) -> Any:
        found = read(self, batch)
        self.apply(found)
        return found

    return applied


def _no_releases(instruct: Any) -> Any:
    def only_cancels(self: DeliveryState, found: Any) -> Any:
        return instruct(self, found._replace(released=()))

    return only_cancels


def _no_cancels(instruct: Any) -> Any:
    def only_releases(self: DeliveryState, found: Any) -> Any:
        return instruct(self, found._replace(cancelled=()))

    return only_releases


def _instructed_at_once(on_data: Any) -> Any:
    def instructed(self: DeliveryState, base_offset: Any, count: int, found: Any, producer_id: Any) -> Any:
        effects = on_data(self, base_offset, count, found, producer_id)
        return effects if producer_id == NO_PRODUCER_ID else [*effects, *self._instruct(found)]

    return instructed


def _unfiltered(_: Any) -> Any:
    def read(self: ExpiryFilter, partition: Any, offset: Any, found: Any, max_bytes: int, **_: Any) -> UnexpiredRead:
        return UnexpiredRead(offset, found, found, found.size)

    return read


def _nothing_needed(_: Any) -> Any:
    def first_needed(self: DeliveryState) -> Any:
        return self.followed

    return first_needed


def _not_asked(verdict: Any) -> Any:
    def delivered(self: HalfQueue, record: Any, now_ms: int) -> Any:
        found = verdict(self, record, now_ms)
        return self._deliver if isinstance(found, Ask) else found

    return delivered


def _refused_forgotten(on_refused: Any) -> Any:
    def forgotten(self: DeliveryState, refused: Any) -> None:
        before = len(self.returned)
        on_refused(self, refused)
        while len(self.returned) > before:
            self.returned.pop()

    return forgotten


def _refused_whole(on_refused: Any) -> Any:
    def whole(self: DeliveryState, refused: Any) -> None:
        before = len(self.returned)
        on_refused(self, refused)
        for at in range(before, len(self.returned)):
            if not refused.is_unknown_producer:
                self.returned[at] = self.returned[at]._replace(sink=None, action=Action.DEAD, detail=refused.reason)

    return whole


QUEUE_MUTANTS: Final = {
    "queues deliver early": Mutant(
        what="Records are delivered two seconds before they are due.",
        scenario="queues",
        patches=((DueIndex, "pop_due", _early),),
    ),
    "ties are reversed": Mutant(
        what="Of the records that are due at the same time, the last one is delivered first.",
        scenario="queues",
        patches=((DueIndex, "pop_due", _latest_first),),
    ),
    "deliveries are not idempotent": Mutant(
        what="Queues append without a producer id, so that a batch that is sent again is written again.",
        scenario="queues",
        patches=((queue_shard, "pick_batch", _without_producer),),
    ),
    "plans are not read": Mutant(
        what="A leader that takes over a queue does not know what its predecessor planned.",
        scenario="queues",
        patches=((DeliveryState, "_on_plan", _plans_unread),),
    ),
    "unfinished plans are forgotten": Mutant(
        what="A leader that takes over a queue does not send what its predecessor may not have sent.",
        scenario="queues",
        patches=((DeliveryState, "on_loaded", _unfinished_forgotten),),
    ),
    "queues deliver aborted records": Mutant(
        what="Delayed records of aborted transactions count.",
        scenario="queues",
        patches=((DeliveryState, "on_marker", _always_committed),),
    ),
    "queues do not wait for markers": Mutant(
        what="Delayed records of transactions count before their transaction is committed.",
        scenario="queues",
        patches=((DeliveryState, "on_data", _counted_at_once),),
    ),
    "cancels are ignored": Mutant(
        what="Cancelled records are delivered.",
        scenario="queues",
        patches=((DelayQueue, "apply", always(None)),),
    ),
    "aborted cancels count": Mutant(
        what="A cancel of an aborted transaction counts.",
        scenario="queues",
        patches=((DelayQueue, "read", _applied_at_once),),
    ),
    "releases are ignored": Mutant(
        what="A record that an operator released is delivered only when it would have been due.",
        scenario="queue instructions",
        patches=((DeliveryState, "_instruct", _no_releases),),
    ),
    "cancels by offset are ignored": Mutant(
        what="A record that was cancelled by its offset is delivered.",
        scenario="queue instructions",
        patches=((DeliveryState, "_instruct", _no_cancels),),
    ),
    "aborted instructions count": Mutant(
        what="Records are cancelled or released by a transaction that is aborted.",
        scenario="queue instructions",
        patches=((DeliveryState, "on_data", _instructed_at_once),),
    ),
    "queues read the clock once": Mutant(
        what="Records that were due are planned although the clock was set back while they were read.",
        scenario="slow queues",
        patches=((QueueShard, "_early_ms", always(0)),),
    ),
    "queues ignore growth": Mutant(
        what="Delayed records stay in their partition when the topic has grown.",
        scenario="queues",
        patches=((DelayQueue, "on_partitions", always(None)),),
    ),
    "queues forget what they owe": Mutant(
        what="The log of a queue starts behind records that are still owed.",
        scenario="queues",
        patches=((DeliveryState, "first_needed", _nothing_needed),),
    ),
    "refused records are forgotten": Mutant(
        what="Records of a batch that its target refused are not planned again.",
        scenario="refusals",
        patches=((DeliveryState, "_on_refused", _refused_forgotten),),
    ),
    "refused batches are not halved": Mutant(
        what="All records of a batch that its target refused become dead letters, not only the one at fault.",
        scenario="refusals",
        patches=((DeliveryState, "_on_refused", _refused_whole),),
    ),
    "attempts are not counted": Mutant(
        what="A record that is handed back again counts as handed back for the first time.",
        scenario="queues",
        patches=((RetryAdmission, "_counted", always((0, 0))),),
    ),
    "undecided half messages are delivered": Mutant(
        what="A half message is delivered when its producer should be asked for the decision.",
        scenario="halves",
        patches=((HalfQueue, "verdict", _not_asked),),
    ),
    "rollbacks are commits": Mutant(
        what="A half message that is rolled back is delivered.",
        scenario="halves",
        patches=((half_queue, "_OUTCOMES", lambda old: dict.fromkeys(old, Outcome.COMMITTED)),),
    ),
    "expired records are shown": Mutant(
        what="Consumers get expired records.",
        scenario="queues",
        patches=((ExpiryFilter, "read", _unfiltered),),
    ),
}
"""By name."""
