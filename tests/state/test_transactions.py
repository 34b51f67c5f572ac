"""A transaction coordinator under producers that race, retry and crash, with writes that fail and coordinators that
change at any moment.

What must hold, whatever happens: a decided outcome never changes; each partition gets markers of one outcome for a
producer id and epoch, and none before the decision is committed; epochs never go back, and no two producers are given
the same one; nobody is told of success that a new coordinator could forget; and a coordinator that only replays the log
knows what the one before it knew. When everything heals, every transaction ends.
"""

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.coordination.runtime.effects import Respond
from ottla.coordination.transactions.records import (
    TransactionEntry,
    TransactionStatus,
    decode_key,
    decode_value,
    entry_record,
)
from ottla.coordination.transactions.requests import (
    EPOCH_BUMP_VERSION,
    AddPartitions,
    EndTransaction,
    InitProducerId,
    SendMarkers,
    TransactionSettings,
)
from ottla.coordination.transactions.shard_state import TransactionShard
from ottla.coordination.transactions.transaction_state import AT_REST, EPOCH_CLIENT_MAX, PREPARED
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import NO_TIMESTAMP, ProducerEpoch, ProducerId, TopicPartition
from tests.effort import effort
from tests.unit.coordination.transaction_rig import TransactionRig

pytestmark = pytest.mark.slow

S = TransactionStatus
IDS = ["t", "u"]
PRODUCERS = ["old", "new"]
PARTITIONS = [TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("bills", 0)]
TIMEOUT_MS = 1_000
ID_EXPIRATION_MS = 20_000
MARKER_ERRORS = [
    ErrorCode.NONE,
    ErrorCode.NONE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED,
]
COMMITTED = {S.PREPARE_COMMIT: True, S.PREPARE_ABORT: False, S.COMPLETE_COMMIT: True, S.COMPLETE_ABORT: False}

ids = st.sampled_from(IDS)
producers = st.sampled_from(PRODUCERS)
seldom = st.integers(0, 5).map(lambda draw: draw == 5)
lucks = st.sampled_from(["committed", "committed", "none", "none", "none", "append fails", "no producer ids"])
some_partitions = st.lists(st.sampled_from(PARTITIONS), min_size=1, max_size=2, unique=True).map(tuple)


@dataclass(frozen=True)
class Asked:
    """A request that awaits its answer."""

    producer: str
    request: Any


class Transactions(RuleBasedStateMachine):
    """Two producers that believe they own the same ids, and the world around their coordinator."""

    def __init__(self) -> None:
        super().__init__()
        self.rig = TransactionRig()
        self.asked: dict[int, Asked] = {}
        self.tokens = 0
        # What a producer was last given, by producer and transactional id.
        self.given: dict[tuple[str, str], tuple[ProducerId, ProducerEpoch]] = {}
        self.owner: dict[tuple[ProducerId, ProducerEpoch], str] = {}
        self.outcomes: dict[tuple[str, ProducerId, ProducerEpoch], bool] = {}
        self.marked: dict[tuple[ProducerId, ProducerEpoch, TopicPartition], bool] = {}
        self.seen_markers: list[SendMarkers] = []
        self.noted = 0

    @initialize(version=st.sampled_from([0, 1, 2, 2, 2]))
    def begin(self, version: int) -> None:
        settings = TransactionSettings(transaction_version=version, id_expiration_ms=ID_EXPIRATION_MS)
        self.rig = TransactionRig(settings)
        self.rig.auto_commit = False

    # Producers

    def ask(self, producer: str, method: str, request: Any, luck: str = "none") -> None:
        self.tokens += 1
        self.asked[self.tokens] = Asked(producer, request)
        self.rig.appends_fail = luck == "append fails"
        self.rig.producer_ids_fail = luck == "no producer ids"
        self.rig.run(getattr(self.rig.shard, method)(request, self.rig.now_ms, self.tokens))
        self.rig.appends_fail = self.rig.producer_ids_fail = False
        if luck == "committed":
            self.rig.commit()

    @rule(
        producer=producers,
        name=ids,
        partitions=some_partitions,
        commit=st.booleans(),
        is_ready=st.booleans(),
        add_luck=lucks,
        end_luck=lucks,
    )
    def transact(
        self,
        producer: str,
        name: str,
        partitions: tuple[TopicPartition, ...],
        commit: bool,
        is_ready: bool,
        add_luck: str,
        end_luck: str,
    ) -> None:
        """A whole transaction up to its markers, which may be unlucky at each step."""
        self.rig.commit()
        self.write_markers()
        self.rig.commit()
        if not is_ready:
            self.init(producer, name, "committed")
        self.what_must_hold()
        self.add(producer, name, partitions, False, add_luck)
        self.what_must_hold()
        self.add(producer, name, partitions, True, "none")
        self.add(producer, name, partitions, False, "none")
        self.what_must_hold()
        self.end(producer, name, commit, False, end_luck)

    @rule(producer=producers, name=ids, luck=lucks)
    def init(self, producer: str, name: str, luck: str) -> None:
        self.ask(producer, "init_producer_id", InitProducerId(transactional_id=name, timeout_ms=TIMEOUT_MS), luck)

    @rule(producer=producers, name=ids, luck=lucks)
    def init_again(self, producer: str, name: str, luck: str) -> None:
        if (producer, name) in self.given:
            producer_id, epoch = self.given[producer, name]
            request = InitProducerId(
                transactional_id=name,
                timeout_ms=TIMEOUT_MS,
                expected_producer_id=producer_id,
                expected_producer_epoch=epoch,
            )
            self.ask(producer, "init_producer_id", request, luck)

    @rule(producer=producers, name=ids, partitions=some_partitions, verify_only=st.booleans(), luck=lucks)
    def add(
        self, producer: str, name: str, partitions: tuple[TopicPartition, ...], verify_only: bool, luck: str
    ) -> None:
        if (producer, name) in self.given:
            producer_id, epoch = self.given[producer, name]
            request = AddPartitions(
                transactional_id=name,
                producer_id=producer_id,
                producer_epoch=epoch,
                partitions=partitions,
                verify_only=verify_only,
                client_version=self.rig.settings.transaction_version,
            )
            self.ask(producer, "add_partitions", request, luck)

    @rule(producer=producers, name=ids, commit=st.booleans(), is_old=seldom, luck=lucks)
    def end(self, producer: str, name: str, commit: bool, is_old: bool, luck: str) -> None:
        if (producer, name) in self.given:
            producer_id, epoch = self.given[producer, name]
            request = EndTransaction(
                transactional_id=name,
                producer_id=producer_id,
                producer_epoch=epoch,
                commit=commit,
                client_version=0 if is_old else self.rig.settings.transaction_version,
            )
            self.ask(producer, "end_transaction", request, luck)

    # The world

    @rule(some=st.integers(0, 3))
    def commit_some(self, some: int) -> None:
        self.rig.commit(min(self.rig.committed + some, len(self.rig.log)))

    @rule()
    def commit_all(self) -> None:
        self.rig.commit()

    @precondition(lambda self: self.rig.markers)
    @rule(data=st.data())
    def report_markers(self, data: st.DataObject) -> None:
        sent = data.draw(st.sampled_from(self.rig.markers))
        errors = {partition: data.draw(st.sampled_from(MARKER_ERRORS)) for partition in sent.partitions}
        self.rig.written(sent, errors)

    @precondition(lambda self: self.rig.markers)
    @rule()
    def write_markers(self) -> None:
        for sent in list(self.rig.markers):
            self.rig.written(sent)

    @precondition(lambda self: self.seen_markers)
    @rule(data=st.data())
    def report_markers_late(self, data: st.DataObject) -> None:
        sent = data.draw(st.sampled_from(self.seen_markers))
        if sent.coordinator_epoch != self.rig.coordinator_epoch:
            self.rig.written(sent)

    @rule(after_ms=st.sampled_from([1, 100, 500, TIMEOUT_MS + 1]), fails=seldom)
    def pass_time(self, after_ms: int, fails: bool) -> None:
        self.rig.appends_fail = self.rig.producer_ids_fail = fails
        self.rig.tick(after_ms)
        self.rig.appends_fail = self.rig.producer_ids_fail = False

    @rule(happens=seldom)
    def pass_days(self, happens: bool) -> None:
        if happens:
            self.rig.tick(ID_EXPIRATION_MS)

    @rule(happens=seldom, more=st.integers(0, 2))
    def fail_over(self, happens: bool, more: int) -> None:
        if happens:
            self.rig.fail_over(self.rig.committed + more)
            self.asked.clear()

    @rule(name=ids, left=st.integers(0, 2))
    def grow_old(self, name: str, left: int) -> None:
        """Many transactions pass, and the epochs are nearly used up."""
        entry = self.rig.shard.entries.get(name)
        if entry is None or entry.status not in AT_REST or entry.producer_epoch >= EPOCH_CLIENT_MAX - left:
            return
        older = replace(
            entry, producer_epoch=ProducerEpoch(EPOCH_CLIENT_MAX - left), status=S.EMPTY, start_ms=NO_TIMESTAMP
        )
        for key, pair in list(self.given.items()):
            if pair == (entry.producer_id, entry.producer_epoch) and key[1] == name:
                self.given[key] = (older.producer_id, older.producer_epoch)
                self.owner[self.given[key]] = key[0]
        record = entry_record(name, older, self.rig.settings.transaction_version)
        self.rig.log.append(record)
        self.rig.shard.replay(record)

    # What must hold

    def committed_entries(self, name: str) -> list[TransactionEntry]:
        return [
            decode_value(record.value)
            for record in self.rig.log[: self.rig.committed]
            if record.value is not None and decode_key(record.key) == name
        ]

    @invariant()
    def what_must_hold(self) -> None:
        self.replay_tells_all()
        self.outcomes_are_final_and_epochs_grow()
        self.markers_follow_decisions()
        self.success_is_durable()

    def replay_tells_all(self) -> None:
        again = TransactionShard(coordinator_epoch=0, settings=self.rig.settings)
        for record in self.rig.log:
            again.replay(record)
        again.check()
        self.rig.shard.check()
        assert dict(again.entries) == dict(self.rig.shard.entries)

    def outcomes_are_final_and_epochs_grow(self) -> None:
        for record in self.rig.log[self.noted : self.rig.committed]:
            if record.value is None:
                continue
            name, entry = decode_key(record.key) or "", decode_value(record.value)
            if entry.status in PREPARED:
                key = (name, entry.producer_id, entry.producer_epoch)
                if entry.client_version < EPOCH_BUMP_VERSION:
                    self.outcomes.pop(key, None)  # The epoch stays from one transaction to the next.
                assert COMMITTED[entry.status] == self.outcomes.setdefault(key, COMMITTED[entry.status])
        self.noted = self.rig.committed
        epochs: dict[ProducerId, tuple[str, ProducerEpoch]] = {}
        last: dict[str, TransactionEntry] = {}
        for record in self.rig.log:
            name = decode_key(record.key) or ""
            if record.value is None:
                assert name not in last or last[name].status in AT_REST
                last.pop(name, None)
                continue
            entry = decode_value(record.value)
            owner, epoch = epochs.get(entry.producer_id, (name, entry.producer_epoch))
            assert owner == name, "a producer id of another transactional id"
            assert epoch <= entry.producer_epoch
            epochs[entry.producer_id] = (name, entry.producer_epoch)
            before = last.get(name)
            if before is not None and before.status in PREPARED:
                assert COMMITTED[before.status] == COMMITTED[entry.status]
                assert entry.status not in PREPARED
            last[name] = entry

    def markers_follow_decisions(self) -> None:
        for sent in self.rig.markers:
            if sent in self.seen_markers:
                continue
            self.seen_markers.append(sent)
            decided = (sent.transactional_id, sent.producer_id, sent.producer_epoch)
            assert sent.commit == self.outcomes[decided], "a marker that nobody decided, or not yet"
            for partition in sent.partitions:
                key = (sent.producer_id, sent.producer_epoch, partition)
                if sent.transaction_version < EPOCH_BUMP_VERSION:
                    self.marked.pop(key, None)
                assert sent.commit == self.marked.setdefault(key, sent.commit)

    def success_is_durable(self) -> None:
        for token, response in list(self.rig.answers.items()):
            asked = self.asked.pop(token, None)  # type: ignore[call-overload]
            if asked is None:
                continue
            entries = self.committed_entries(asked.request.transactional_id)
            match asked.request:
                case InitProducerId() if response.error is ErrorCode.NONE:
                    pair = (response.producer_id, response.producer_epoch)
                    assert pair in [(e.producer_id, e.producer_epoch) for e in entries if e.status is S.EMPTY]
                    is_new = asked.request.expected_producer_id == -1
                    assert not (is_new and pair in self.owner), "an epoch that somebody was given"
                    self.take(asked, *pair)
                case AddPartitions(producer_id=producer_id, producer_epoch=epoch):
                    joined = {partition for partition, error in response.errors if error is ErrorCode.NONE}
                    assert not joined or any(
                        joined <= set(e.partitions)
                        for e in entries
                        if e.status is S.ONGOING and (e.producer_id, e.producer_epoch) == (producer_id, epoch)
                    )
                case EndTransaction() if response.error is ErrorCode.NONE:
                    self.ended(asked, response, entries)

    def ended(self, asked: Asked, response: Any, entries: list[TransactionEntry]) -> None:
        request = asked.request
        bump = int(request.client_version >= 2)
        decided = (request.producer_id, request.producer_epoch + bump, request.commit)
        assert decided in [(e.producer_id, e.producer_epoch, COMMITTED.get(e.status)) for e in entries]
        if bump:
            self.take(asked, response.producer_id, response.producer_epoch)

    def take(self, asked: Asked, producer_id: ProducerId, epoch: ProducerEpoch) -> None:
        assert asked.producer == self.owner.setdefault((producer_id, epoch), asked.producer)
        self.given[asked.producer, asked.request.transactional_id] = (producer_id, epoch)

    def teardown(self) -> None:
        """Everything heals: then every transaction ends, and its id is forgotten in the end."""
        rig = self.rig
        rig.appends_fail = rig.producer_ids_fail = False
        rig.fail_over(len(rig.log))
        rig.auto_commit = True
        for _ in range(10):
            rig.tick(TIMEOUT_MS + 1)
            for sent in list(rig.markers):
                rig.written(sent)
        assert all(entry.status in AT_REST for entry in rig.shard.entries.values())
        assert [] == [effect for _, effect in rig.waiting if not isinstance(effect, Respond)]
        rig.tick(ID_EXPIRATION_MS)
        assert ({}, None) == (dict(rig.shard.entries), rig.shard.next_deadline())


Transactions.TestCase.settings = effort(examples=120, steps=50)
TestTransactions = Transactions.TestCase
