"""Responses to ShareFetch and ShareAcknowledge as the broker writes them: read by kio, and byte for byte as kio's."""

from io import BytesIO
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_payload_module
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from ottla.protocol.apis import SERVED, ApiKey
from ottla.protocol.messages import milliseconds
from ottla.protocol.share_answers import Endpoint, PartAnswer, share_acknowledge_answer, share_fetch_answer
from tests.unit.protocol.kio_responses import codes, ids, offsets, spans, whole_of

FIRST, SECOND = UUID(int=7), UUID(int=1 << 100)
ENDPOINTS = (Endpoint(3, "broker.example", 9093, None), Endpoint(4, "other", 9094, "rack-b"))


def read(api_key: ApiKey, version: int, body: bytes) -> Any:
    """The response that kio reads; nothing may be left over."""
    module: Any = load_payload_module(api_key, version, EntityType.response)
    name = {ApiKey.SHARE_FETCH: "ShareFetchResponse", ApiKey.SHARE_ACKNOWLEDGE: "ShareAcknowledgeResponse"}[api_key]
    found, size = entity_reader(getattr(module, name))(body, 0)
    assert len(body) == size
    return found


@pytest.mark.parametrize("version", [1, 2])
def test_a_fetch_has_records_and_what_was_acquired(version: int) -> None:
    records = bytes(range(256)) * 3
    topics = [
        (FIRST, [PartAnswer(0, 0, None, 0, 0, 0, None, records, [(5, 9, 1), (1 << 40, 1 << 40, 3)])]),
        (
            SECOND,
            [
                PartAnswer(7, 6, "led elsewhere", 3, 12, 121, "not acquired"),
                PartAnswer(8, 0, None, 0, 0, 0, None, b"x", [(0, 0, 2)]),
            ],
        ),
    ]
    pieces = share_fetch_answer(0, None, 30_000, topics, ENDPOINTS)
    assert records in pieces
    answer = read(ApiKey.SHARE_FETCH, version, b"".join(pieces))
    assert (0, None, 30.0) == (
        int(answer.error_code),
        answer.error_message,
        answer.acquisition_lock_timeout.total_seconds(),
    )
    assert [FIRST, SECOND] == [each.topic_id for each in answer.responses]
    whole, (refused, small) = answer.responses[0].partitions[0], answer.responses[1].partitions
    assert (0, 0, None, records) == (
        whole.partition_index,
        int(whole.error_code),
        whole.error_message,
        bytes(whole.records),
    )
    assert [(5, 9, 1), (1 << 40, 1 << 40, 3)] == [
        (each.first_offset, each.last_offset, each.delivery_count) for each in whole.acquired_records
    ]
    assert (7, 6, "led elsewhere", 121, "not acquired", 3, 12, b"", ()) == (
        refused.partition_index,
        int(refused.error_code),
        refused.error_message,
        refused.acknowledge_error_code,
        refused.acknowledge_error_message,
        refused.current_leader.leader_id,
        refused.current_leader.leader_epoch,
        bytes(refused.records),
        refused.acquired_records,
    )
    assert (b"x", 2) == (bytes(small.records), small.acquired_records[0].delivery_count)
    assert ENDPOINTS == tuple((each.node_id, each.host, each.port, each.rack) for each in answer.node_endpoints)


@pytest.mark.parametrize("version", [1, 2])
def test_an_acknowledgement_has_the_lock_timeout_since_version_2(version: int) -> None:
    topics = [(FIRST, [PartAnswer(0, 0, None, 0, 0), PartAnswer(1, 6, "led elsewhere", 3, 12)])]
    answer = read(
        ApiKey.SHARE_ACKNOWLEDGE, version, share_acknowledge_answer(version, 0, None, 15_000, topics, ENDPOINTS)
    )
    assert 0 == int(answer.error_code)
    if version >= 2:
        assert 15.0 == answer.acquisition_lock_timeout.total_seconds()
    assert [(0, 0, None, 0), (1, 6, "led elsewhere", 3)] == [
        (each.partition_index, int(each.error_code), each.error_message, each.current_leader.leader_id)
        for each in answer.responses[0].partitions
    ]
    assert ENDPOINTS == tuple((each.node_id, each.host, each.port, each.rack) for each in answer.node_endpoints)


def test_refused_requests_have_an_error_and_no_partitions() -> None:
    fetched = read(ApiKey.SHARE_FETCH, 2, b"".join(share_fetch_answer(122, "no session", 0, (), ())))
    assert (122, "no session", ()) == (int(fetched.error_code), fetched.error_message, fetched.responses)
    told = read(ApiKey.SHARE_ACKNOWLEDGE, 1, share_acknowledge_answer(1, 122, "no session", 0, (), ()))
    assert (122, "no session", ()) == (int(told.error_code), told.error_message, told.responses)


TEXTS = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.just("ä" * 8_192)
RECORDS = st.binary(max_size=30) | st.sampled_from([126, 127, 128, 16_382, 16_383, 16_384]).map(bytes)
"""Also with sizes around those where a length takes another byte."""
COUNTS = st.integers(-(2**15), 2**15 - 1)
ACQUIRED = st.lists(st.tuples(offsets, offsets, COUNTS), max_size=3) | st.just([(0, 2**63 - 1, 5)] * 128)
PARTS = st.builds(PartAnswer, ids, codes, TEXTS, ids, ids, codes, TEXTS, RECORDS, ACQUIRED)
TOPICS = st.lists(st.tuples(st.uuids() | st.just(UUID(int=0)), st.lists(PARTS, max_size=3)), max_size=3)
NO_PART = PartAnswer(0, 0, None, 0, 0)
MANY: list[list[tuple[UUID, list[PartAnswer]]]] = [[(FIRST, [NO_PART] * 128)] * 2, [(FIRST, [])] * 127]
NODES = st.lists(st.builds(Endpoint, ids, TEXTS.map(str), ids, TEXTS), max_size=3)


def written(api_key: ApiKey, version: int, topics: list[tuple[UUID, list[PartAnswer]]], **values: Any) -> bytes:
    """The body that kio writes."""
    module: Any = load_payload_module(api_key, version, EntityType.response)
    name, topic_name = {
        ApiKey.SHARE_FETCH: ("ShareFetchResponse", "ShareFetchableTopicResponse"),
        ApiKey.SHARE_ACKNOWLEDGE: ("ShareAcknowledgeResponse", "ShareAcknowledgeTopicResponse"),
    }[api_key]
    responses = tuple(
        getattr(module, topic_name)(
            topic_id=topic_id if topic_id.int else None,
            partitions=tuple(
                whole_of(
                    module.PartitionData,
                    partition_index=part.partition,
                    error_code=ErrorCode(part.error),
                    error_message=part.message,
                    acknowledge_error_code=part.acknowledge_error,
                    acknowledge_error_message=part.acknowledge_message,
                    current_leader=module.LeaderIdAndEpoch(leader_id=part.leader_id, leader_epoch=part.leader_epoch),
                    records=part.records,
                    acquired_records=tuple(
                        module.AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
                        for first, last, count in part.acquired
                    )
                    if api_key is ApiKey.SHARE_FETCH
                    else (),
                )
                for part in parts
            ),
        )
        for topic_id, parts in topics
    )
    response = whole_of(getattr(module, name), throttle_time=milliseconds(0), responses=responses, **values)
    buffer = BytesIO()
    entity_writer(type(response))(buffer, response)
    return buffer.getvalue()


@pytest.mark.parametrize("api_key", [ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE])
@given(
    data=st.data(), error=codes, message=TEXTS, lock_ms=spans, topics=TOPICS | st.sampled_from(MANY), endpoints=NODES
)
def test_bodies_are_those_that_kio_writes(
    api_key: ApiKey,
    data: st.DataObject,
    error: int,
    message: str | None,
    lock_ms: int,
    topics: list[tuple[UUID, list[PartAnswer]]],
    endpoints: list[Endpoint],
) -> None:
    version = data.draw(st.integers(SERVED[api_key].lowest, SERVED[api_key].highest))
    module: Any = load_payload_module(api_key, version, EntityType.response)
    expected = written(
        api_key,
        version,
        topics,
        error_code=ErrorCode(error),
        error_message=message,
        acquisition_lock_timeout=milliseconds(lock_ms),
        node_endpoints=tuple(
            module.NodeEndpoint(node_id=each.broker_id, host=each.host, port=each.port, rack=each.rack)
            for each in endpoints
        ),
    )
    if api_key is ApiKey.SHARE_FETCH:
        body = b"".join(share_fetch_answer(error, message, lock_ms, topics, endpoints))
    else:
        body = share_acknowledge_answer(version, error, message, lock_ms, topics, endpoints)
    assert expected == body
