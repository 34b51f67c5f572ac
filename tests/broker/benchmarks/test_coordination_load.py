"""The load generator's members and transactional producers against a coordinator of few lines, read and written by kio.

So its requests are checked by a parser that is not its own, and its machines by what a healthy group does: everything
that is asked here must lead to the end of the load, and every refusal that a group may give must be got over.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from benchmarks.kafka_race.raw_load import LoadError, RawLoad
from ottla.protocol.apis import ApiKey
from ottla.records.batch import Batch
from tests.broker.benchmarks.coordination_listener import Answers, Listener, listener

pytestmark = pytest.mark.slow

TOPIC_ID = UUID(int=77)
Fields = Mapping[str, Any]


def found(request: Any) -> Fields:
    (key,) = request.coordinator_keys
    return {"coordinators": [{"key": key, "host": "127.0.0.1", "port": 1}]}


FIND: Answers = {(ApiKey.FIND_COORDINATOR, 4): found}


# Commits


def committed(request: Any) -> Fields:
    parts = [{"partition_index": each.partition_index} for each in request.topics[0].partitions]
    return {"topics": [{"name": request.topics[0].name, "partitions": parts}]}


def test_commits_go_to_the_groups_in_turn_for_all_partitions(raw: RawLoad) -> None:
    with listener({**FIND, (ApiKey.OFFSET_COMMIT, 8): committed}) as broker:
        work = raw.commit(broker.port, "somewhere", groups=2, partitions=3, requests=5, in_flight=2, name="g")
    commits = broker.requests(ApiKey.OFFSET_COMMIT)
    # One for each group that is not counted, so that everything is there.
    assert ["g-0", "g-1", "g-0", "g-1", "g-0", "g-1", "g-0"] == [each.group_id for each in commits]
    assert {("somewhere", (0, 1, 2), -1, "")} == {
        (
            each.topics[0].name,
            tuple(part.partition_index for part in each.topics[0].partitions),
            each.generation_id_or_member_epoch,
            each.member_id,
        )
        for each in commits
    }
    assert (5, 15) == (work.requests, work.records)


def test_a_coordinator_that_starts_is_waited_for_and_a_refusal_is_not(raw: RawLoad) -> None:
    errors = iter([ErrorCode.coordinator_load_in_progress, ErrorCode.not_coordinator])

    def answer(request: Any) -> Fields:
        part = {"partition_index": 0, "error_code": next(errors, ErrorCode.none)}
        return {"topics": [{"name": "somewhere", "partitions": [part]}]}

    with listener({**FIND, (ApiKey.OFFSET_COMMIT, 8): answer}) as broker:
        raw.commit(broker.port, "somewhere", requests=1)
    assert 4 == len(broker.requests(ApiKey.OFFSET_COMMIT))

    errors = iter([ErrorCode.none] + 5 * [ErrorCode.illegal_generation])
    with (
        listener({**FIND, (ApiKey.OFFSET_COMMIT, 8): answer}) as broker,
        pytest.raises(LoadError, match="an OffsetCommit request was answered with error 22"),
    ):
        raw.commit(broker.port, "somewhere", requests=1)


# Classic groups


class ClassicGroup:
    """A coordinator that answers joins at once, so that members find each other over several generations."""

    def __init__(self) -> None:
        self.generation = 0
        self.members: dict[str, int] = {}
        self.numbers = 0
        self.sizes: list[int] = []

    def join(self, request: Any) -> Fields:
        if not request.member_id:
            self.numbers += 1
            return {"error_code": ErrorCode.member_id_required, "member_id": f"m{self.numbers}"}
        self.generation += 1
        self.members[request.member_id] = self.generation
        members = [{"member_id": each, "metadata": b"s"} for each in self.members]
        self.sizes.append(len(members))
        return {
            "generation_id": self.generation,
            "protocol_name": "range",
            "leader": request.member_id,
            "member_id": request.member_id,
            "members": members,
        }

    def sync(self, request: Any) -> Fields:
        self.assigned = {each.member_id: each.assignment for each in request.assignments}
        return {"error_code": self._error(request), "assignment": b"assigned"}

    def heartbeat(self, request: Any) -> Fields:
        return {"error_code": self._error(request)}

    def leave(self, request: Any) -> Fields:
        (member,) = request.members
        del self.members[member.member_id]
        self.generation += 1
        return {"members": [{"member_id": member.member_id}]}

    def _error(self, request: Any) -> ErrorCode:
        if request.generation_id == self.generation:
            return ErrorCode.none
        return ErrorCode.rebalance_in_progress

    @property
    def answers(self) -> Answers:
        return {
            **FIND,
            (ApiKey.JOIN_GROUP, 9): self.join,
            (ApiKey.SYNC_GROUP, 5): self.sync,
            (ApiKey.HEARTBEAT, 4): self.heartbeat,
            (ApiKey.LEAVE_GROUP, 5): self.leave,
        }


class GatheringGroup(ClassicGroup):
    """Gives the same generation to all that join until somebody leaves, and lets the first of them lead.

    That is enough where members come one after another, as they do here: the answers of one join are final.
    """

    def join(self, request: Any) -> Fields:
        if not request.member_id:
            return super().join(request)
        fresh = request.member_id not in self.members
        if fresh or self.members[request.member_id] == self.generation:
            self.generation += 1
        self.members[request.member_id] = self.generation
        leader = next(iter(self.members))
        members = (
            [{"member_id": each, "metadata": b"s"} for each in self.members] if request.member_id == leader else []
        )
        self.sizes.append(len(self.members))
        return {
            "generation_id": self.generation,
            "protocol_name": "range",
            "leader": leader,
            "member_id": request.member_id,
            "members": members,
        }


def test_members_join_until_all_are_in_one_generation(raw: RawLoad) -> None:
    group = GatheringGroup()
    with listener(group.answers) as broker:
        times = raw.rebalance(broker.port, "somewhere", members=3, repeats=2, name="g")
    assert {} == group.members
    assert 3 == max(group.sizes)
    leaves = broker.requests(ApiKey.LEAVE_GROUP)
    assert 2 * (1 + 3) == len(leaves)
    assert {"g-0"} == {each.group_id for each in leaves}
    join = broker.requests(ApiKey.JOIN_GROUP)[-1]
    assert ("consumer", "range") == (join.protocol_type, join.protocols[0].name)
    assert b"\0\1\0\0\0\1\0\x09somewhere\xff\xff\xff\xff\0\0\0\0" == join.protocols[0].metadata
    assert min(times.formed_ms, times.left_ms, times.joined_ms) > 0


def test_the_leader_gives_everybody_a_partition(raw: RawLoad) -> None:
    group = GatheringGroup()
    with listener(group.answers) as broker:
        raw.rebalance(broker.port, "t", members=2, repeats=1, name="g")
    assignments = [each.assignments for each in broker.requests(ApiKey.SYNC_GROUP) if len(each.assignments) == 2]
    assert [(b"\0\1\0\0\0\1\0\1t\0\0\0\1" + number.to_bytes(4, "big") + b"\xff\xff\xff\xff") for number in (0, 1)] == [
        each.assignment for each in assignments[0]
    ]


def test_a_refused_join_ends_the_load(raw: RawLoad) -> None:
    def refuse(request: Any) -> Fields:
        return {"error_code": ErrorCode.group_authorization_failed}

    with (
        listener({**FIND, (ApiKey.JOIN_GROUP, 9): refuse}) as broker,
        pytest.raises(LoadError, match="a JoinGroup request was answered with error 30"),
    ):
        raw.rebalance(broker.port, "somewhere", members=2)


def test_idle_groups_have_a_member_each_that_lives_and_leaves(raw: RawLoad) -> None:
    groups: dict[str, ClassicGroup] = {}

    def of_group(method: Callable[[ClassicGroup, Any], Fields]) -> Callable[[Any], Fields]:
        return lambda request: method(groups.setdefault(request.group_id, ClassicGroup()), request)

    answers: Answers = {
        **FIND,
        (ApiKey.JOIN_GROUP, 9): of_group(ClassicGroup.join),
        (ApiKey.SYNC_GROUP, 5): of_group(ClassicGroup.sync),
        (ApiKey.HEARTBEAT, 4): of_group(ClassicGroup.heartbeat),
        (ApiKey.LEAVE_GROUP, 5): of_group(ClassicGroup.leave),
    }
    with listener(answers) as broker:
        load = raw.start_idle_groups(broker.port, "somewhere", groups=40, seconds=2, name="idle")
        printed, complaint = load.communicate(timeout=120)
    assert "" == complaint
    beats = Counter(request.group_id for request in broker.requests(ApiKey.HEARTBEAT))
    assert f'{{"ready": 40}}\n{{"beats": {beats.total()}}}\n' == printed
    # One beat each in three seconds: in two, nobody's second.
    assert {1} == set(beats.values())
    assert {f"idle-{number}" for number in range(40)} == set(groups)
    assert {0} == {len(group.members) for group in groups.values()}


# Server-side groups


class ServerSideGroup:
    """Gives every member its share as soon as all others have given up theirs; here that is at once."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.epoch = 0
        self.members: dict[str, int] = {}
        self.confirmed: list[tuple[UUID, tuple[int, ...]]] = []

    def heartbeat(self, request: Any) -> Fields:
        if request.member_epoch == -1:
            del self.members[request.member_id]
            self.epoch += 1
            return {"member_epoch": -1}
        if request.member_epoch == 0:
            assert ("somewhere",) == request.subscribed_topic_names
            assert () == request.topic_partitions
            self.epoch += 1
            self.members[request.member_id] = 0
        if request.topic_partitions:
            (held,) = request.topic_partitions
            self.confirmed.append((held.topic_id, held.partitions))
        is_new = self.members[request.member_id] != self.epoch
        self.members[request.member_id] = self.epoch
        answer: dict[str, Any] = {"member_epoch": self.epoch, "assignment": None}
        if is_new:
            at, count = list(self.members).index(request.member_id), len(self.members)
            share = tuple(range(at, self.partitions, count))
            answer["assignment"] = {"topic_partitions": [{"topic_id": TOPIC_ID, "partitions": share}]}
        return answer


def test_members_of_a_server_side_group_speak_until_all_partitions_are_held(raw: RawLoad) -> None:
    group = ServerSideGroup(7)
    answers: Answers = {**FIND, (ApiKey.CONSUMER_GROUP_HEARTBEAT, 1): group.heartbeat}
    with listener(answers) as broker:
        times = raw.consumer_group(broker.port, "somewhere", members=3, partitions=7, repeats=1, name="g")
    assert {} == group.members
    # The load leaves as soon as all partitions are held: which shares are confirmed before that depends on the order.
    shares = {(TOPIC_ID, tuple(range(at, 7, count))) for count in (1, 2, 3) for at in range(count)}
    assert group.confirmed
    assert {*group.confirmed} <= shares
    assert {f"g-{number}" for number in (1000, 1001, 1002)} == {each.member_id for _, each in broker.seen[1:]}
    assert min(times.formed_ms, times.left_ms, times.joined_ms) > 0


# Transactions


class Transactions:
    """A coordinator and a partition: ends bump the epoch in version 2, and the first wish of each kind is refused."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.epoch = 4
        self.refused: set[ApiKey] = set()

    def _error(self, api_key: ApiKey) -> ErrorCode:
        if api_key in self.refused:
            return ErrorCode.none
        self.refused.add(api_key)
        return ErrorCode.concurrent_transactions

    def begin(self, request: Any) -> Fields:
        return {"producer_id": 9_000, "producer_epoch": self.epoch}

    def add(self, request: Any) -> Fields:
        part = {"partition_index": 0, "partition_error_code": self._error(ApiKey.ADD_PARTITIONS_TO_TXN)}
        return {"results_by_topic_v3_and_below": [{"name": "somewhere", "results_by_partition": [part]}]}

    def produce(self, request: Any) -> Fields:
        error = self._error(ApiKey.PRODUCE) if self.version == 2 else ErrorCode.none
        part = {"index": 0, "error_code": error}
        return {"responses": [{"name": "somewhere", "partition_responses": [part]}]}

    def end(self, request: Any) -> Fields:
        assert (True, 9_000, self.epoch) == (request.committed, request.producer_id, request.producer_epoch)
        if self.version == 2:
            self.epoch += 1
        return {"producer_id": 9_000, "producer_epoch": self.epoch}

    @property
    def answers(self) -> Answers:
        return {
            **FIND,
            (ApiKey.INIT_PRODUCER_ID, 4): self.begin,
            (ApiKey.ADD_PARTITIONS_TO_TXN, 3): self.add,
            (ApiKey.PRODUCE, 10 + self.version): self.produce,
            (ApiKey.END_TXN, 3 + self.version): self.end,
        }


def batches_of(broker: Listener) -> list[Batch]:
    found = []
    for request in broker.requests(ApiKey.PRODUCE):
        assert ("load-0", -1) == (request.transactional_id, request.acks)
        batch = Batch(bytearray(request.topic_data[0].partition_data[0].records))
        batch.check()
        assert (True, 9_000, 5) == (batch.is_transactional, batch.producer_id, batch.count)
        found.append(batch)
    return found


def test_version_1_adds_the_partition_and_counts_on(raw: RawLoad) -> None:
    state = Transactions(1)
    with listener(state.answers) as broker:
        work = raw.transactions(
            broker.port, "somewhere", transaction_version=1, seconds=1, batch_records=5, transaction_batches=2
        )
    batches, ends = batches_of(broker), broker.requests(ApiKey.END_TXN)
    # The first transaction is not counted, and its wish to add the partition came twice.
    assert (len(ends) - 1, 10 * (len(ends) - 1)) == (work.requests, work.records)
    assert len(ends) + 1 == len(broker.requests(ApiKey.ADD_PARTITIONS_TO_TXN))
    assert list(range(0, 10 * len(ends), 5)) == [batch.base_sequence for batch in batches]
    assert {4} == {batch.producer_epoch for batch in batches}


def test_version_2_starts_again_with_every_epoch(raw: RawLoad) -> None:
    state = Transactions(2)
    with listener(state.answers) as broker:
        work = raw.transactions(broker.port, "somewhere", seconds=1, batch_records=5)
    batches, ends = batches_of(broker), broker.requests(ApiKey.END_TXN)
    assert len(ends) - 1 == work.requests
    assert {0} == {batch.base_sequence for batch in batches}
    # The first batch was refused, and came again.
    assert [4, *range(4, 4 + len(ends))] == [batch.producer_epoch for batch in batches]
    assert [] == broker.requests(ApiKey.ADD_PARTITIONS_TO_TXN)


def test_a_fenced_producer_ends_the_load(raw: RawLoad) -> None:
    state = Transactions(2)

    def fence(request: Any) -> Fields:
        return {"error_code": ErrorCode.producer_fenced}

    with (
        listener({**state.answers, (ApiKey.END_TXN, 5): fence}) as broker,
        pytest.raises(LoadError, match="an EndTxn request was answered with error 90"),
    ):
        raw.transactions(broker.port, "somewhere", seconds=1)


def test_options_of_coordination_are_checked(raw: RawLoad) -> None:
    with pytest.raises(LoadError, match="transaction_version is 1 or 2"):
        raw.transactions(1, "somewhere", transaction_version=3)
    with pytest.raises(LoadError, match="members at least 2"):
        raw.rebalance(1, "somewhere", members=1)
