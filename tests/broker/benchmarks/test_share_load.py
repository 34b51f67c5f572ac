"""The load generator's share groups against a coordinator and a partition of few lines, read and written by kio."""

from collections import Counter
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from benchmarks.kafka_race.raw_load import LoadError, RawLoad
from ottla.protocol.apis import ApiKey
from tests.broker.benchmarks.coordination_listener import Answers, listener
from tests.broker.benchmarks.test_coordination_load import FIND

TOPIC_ID = UUID(int=77)
ACCEPT = 1
Fields = Mapping[str, Any]


class ShareGroup:
    """One partition without an end, of which every fetch gets the next records; counts what is accepted."""

    def __init__(self) -> None:
        self.next_offset = 0
        self.members: dict[str, int] = {}
        self.sessions: Counter[str] = Counter()
        self.held: dict[str, list[tuple[int, int]]] = {}
        self.accepted: list[int] = []
        self.configs: list[tuple[int, str, str]] = []

    def alter(self, request: Any) -> Fields:
        (resource,) = request.resources
        self.configs.append((resource.resource_type, resource.configs[0].name, resource.configs[0].value))
        answer = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
        return {"responses": [answer]}

    def heartbeat(self, request: Any) -> Fields:
        if request.member_epoch == -1:
            del self.members[request.member_id]
            return {"member_id": request.member_id, "member_epoch": -1, "assignment": None}
        assert (("somewhere",) if request.member_epoch == 0 else None) == request.subscribed_topic_names
        self.members[request.member_id] = 1
        # As in Kafka, the assignment comes with a later heartbeat.
        parts = [{"topic_id": TOPIC_ID, "partitions": (0,)}]
        assignment = None if request.member_epoch == 0 else {"topic_partitions": parts}
        return {"member_id": request.member_id, "member_epoch": 1, "assignment": assignment}

    def fetch(self, request: Any) -> Fields:
        self._take_turn(request)
        first = self.next_offset
        self.next_offset += request.max_records
        self.held[request.member_id] = [(first, self.next_offset - 1)]
        return self.fetched([(first, self.next_offset - 1, 1)])

    def acknowledge(self, request: Any) -> Fields:
        self._take_turn(request)
        return {"responses": [{"topic_id": TOPIC_ID, "partitions": [{"partition_index": 0}]}]}

    def fetched(self, acquired: list[tuple[int, int, int]]) -> Fields:
        ranges = [{"first_offset": a, "last_offset": b, "delivery_count": count} for a, b, count in acquired]
        part = {"partition_index": 0, "records": b"batches" if acquired else b"", "acquired_records": ranges}
        return {"responses": [{"topic_id": TOPIC_ID, "partitions": [part]}]}

    def _take_turn(self, request: Any) -> None:
        """Epochs count on, and only what a member holds is accepted."""
        if request.share_session_epoch == 0:
            self.sessions[request.member_id] = 0
            assert [0] == [part.partition_index for topic in request.topics for part in topic.partitions]
        assert self.sessions[request.member_id] == request.share_session_epoch
        self.sessions[request.member_id] += 1
        for topic in request.topics:
            assert TOPIC_ID == topic.topic_id
            for part in topic.partitions:
                for batch in part.acknowledgement_batches:
                    assert (ACCEPT,) == batch.acknowledge_types
                    (first, last), *_ = self.held[request.member_id]
                    assert first <= batch.first_offset <= batch.last_offset <= last
                    self.accepted += range(batch.first_offset, batch.last_offset + 1)

    @property
    def answers(self) -> Answers:
        return {
            **FIND,
            (ApiKey.INCREMENTAL_ALTER_CONFIGS, 1): self.alter,
            (ApiKey.SHARE_GROUP_HEARTBEAT, 1): self.heartbeat,
            (ApiKey.SHARE_FETCH, 1): self.fetch,
            (ApiKey.SHARE_ACKNOWLEDGE, 1): self.acknowledge,
        }


def test_members_accept_with_the_next_fetch(raw: RawLoad) -> None:
    group = ShareGroup()
    with listener(group.answers) as broker:
        work = raw.share_consume(broker.port, "somewhere", members=3, bytes=50_000, record_bytes=100, records_max=20)
    assert work.records >= 500
    assert 100 * work.records == work.bytes
    # Those before every member's session was open are not counted.
    assert work.records <= len(group.accepted)
    assert len(group.accepted) == len(set(group.accepted))
    assert {} == group.members
    assert [(32, "share.auto.offset.reset", "earliest")] == group.configs
    assert [] == broker.requests(ApiKey.SHARE_ACKNOWLEDGE)


def test_every_record_is_acknowledged_by_a_request_of_its_own(raw: RawLoad) -> None:
    group = ShareGroup()
    with listener(group.answers) as broker:
        work = raw.share_acknowledge(broker.port, "somewhere", members=2, requests=50, records_max=7)
    told = broker.requests(ApiKey.SHARE_ACKNOWLEDGE)
    assert work.records >= 50
    assert len(group.accepted) == len(told) >= work.records
    assert {1} == {len(each.topics[0].partitions[0].acknowledgement_batches) for each in told}
    # A fetch follows only when all records of the last one are accepted.
    assert {7} <= set(Counter(offset // 7 for offset in group.accepted).values())


class Deaths(ShareGroup):
    """The second member gets the first one's records with every other fetch: the first of each pair finds nothing."""

    def __init__(self, delivery_count: int = 2) -> None:
        super().__init__()
        self.delivery_count = delivery_count
        self.polls = 0

    def produce(self, request: Any) -> Fields:
        self.next_offset += 5
        return {"responses": [{"name": "somewhere", "partition_responses": [{"index": 0}]}]}

    def fetch(self, request: Any) -> Fields:
        self._take_turn(request)
        span = (self.next_offset - 5, self.next_offset - 1)
        if request.member_id == "load-1000":
            return self.fetched([(*span, 1)])
        self.polls += 1
        if self.polls % 2:
            return self.fetched([])
        self.held[request.member_id] = [span]
        return self.fetched([(*span, self.delivery_count)])

    @property
    def answers(self) -> Answers:
        return {**super().answers, (ApiKey.PRODUCE, 12): self.produce}


def test_a_dead_members_records_reach_the_other_member(raw: RawLoad) -> None:
    group = Deaths()
    with listener(group.answers) as broker:
        milliseconds = raw.share_redelivery(broker.port, "somewhere", members=2, repeats=3, batch_records=5)
    assert milliseconds > 0
    assert list(range(15)) == group.accepted
    opened = [each.member_id for each in broker.requests(ApiKey.SHARE_FETCH) if each.share_session_epoch == 0]
    assert {"load-1000": 3, "load-1001": 1} == Counter(opened)


def test_a_first_delivery_is_not_taken_for_a_redelivery(raw: RawLoad) -> None:
    with (
        listener(Deaths(delivery_count=1).answers) as broker,
        pytest.raises(LoadError, match="the delivery count is 1"),
    ):
        raw.share_redelivery(broker.port, "somewhere", members=2, repeats=1, batch_records=5)


def test_a_refused_acknowledgement_ends_the_load(raw: RawLoad) -> None:
    group = ShareGroup()

    def refuse(request: Any) -> Fields:
        part = {"partition_index": 0, "error_code": ErrorCode.invalid_record_state}
        return {"responses": [{"topic_id": TOPIC_ID, "partitions": [part]}]}

    with (
        listener({**group.answers, (ApiKey.SHARE_ACKNOWLEDGE, 1): refuse}) as broker,
        pytest.raises(LoadError, match="a ShareAcknowledge request was answered with error 121"),
    ):
        raw.share_acknowledge(broker.port, "somewhere", members=1, requests=10)


def test_a_redelivery_needs_two_members(raw: RawLoad) -> None:
    with pytest.raises(LoadError, match="share_redelivery: members at least 2"):
        raw.share_redelivery(1, "somewhere", members=1)
