"""Answers written by hand are those that kio writes, byte for byte, in every version that is written so."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.consumer_group_heartbeat.v1 import response as consumer_heartbeat
from kio.schema.errors import ErrorCode as WireErrorCode
from kio.schema.heartbeat.v4.response import HeartbeatResponse
from kio.schema.join_group.v9.response import JoinGroupResponse, JoinGroupResponseMember
from kio.schema.sync_group.v5.response import SyncGroupResponse

from ottla.model.error_codes import ErrorCode
from ottla.protocol.apis import SERVED, ApiKey
from ottla.protocol.group_answers import (
    JOIN_SINCE,
    SYNC_SINCE,
    consumer_heartbeat_body,
    heartbeat_body,
    joined_body,
    synced_body,
)
from ottla.protocol.messages import frame_body, milliseconds, wire_error, write_response
from tests.sweeps import sweep

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
SIZES = (126, 127, 128, 16_382, 16_383, 16_384)
"""Around those where a length takes another byte."""
DATA = st.binary(max_size=200) | st.sampled_from(SIZES).map(bytes)
NUMBERS = st.integers(-(2**31), 2**31 - 1)
ASSIGNMENTS = st.dictionaries(st.uuids(), st.lists(NUMBERS, max_size=4) | st.just([7] * 130), max_size=4)
KNOWN = [code for code in ErrorCode if code in {int(each) for each in WireErrorCode}]
"""Without those of Kafka 4.4, which kio does not know and which no answer here has."""
CODES = st.sampled_from(KNOWN)
MEMBERS = st.lists(st.tuples(TEXT, st.none() | TEXT, DATA), max_size=6) | st.just([("m", None, b"x")] * 130)


def versions(api_key: ApiKey, lowest: int) -> range:
    return range(lowest, SERVED[api_key].highest + 1)


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP, JOIN_SINCE))
@given(
    error=CODES,
    generation=st.integers(-1, 2**31 - 1),
    protocol_type=st.none() | TEXT,
    protocol_name=st.none() | TEXT,
    leader=TEXT,
    skip_assignment=st.booleans(),
    member_id=TEXT,
    members=MEMBERS,
)
def test_join_group(
    version: int, error: ErrorCode, members: list[tuple[str, str | None, bytes]], **values: Any
) -> None:
    listed: Any = tuple(
        JoinGroupResponseMember(member_id=each, group_instance_id=instance_id, metadata=metadata)
        for each, instance_id, metadata in members
    )
    same = {"generation_id" if name == "generation" else name: value for name, value in values.items()}
    response = JoinGroupResponse(throttle_time=milliseconds(0), error_code=wire_error(error), members=listed, **same)
    body = joined_body(version, error=error, members=members, **values)
    expected = write_response(ApiKey.JOIN_GROUP, version, 7, response)
    assert expected == frame_body(ApiKey.JOIN_GROUP, version, 7, body)


@pytest.mark.parametrize("version", versions(ApiKey.SYNC_GROUP, SYNC_SINCE))
@given(error=CODES, protocol_type=st.none() | TEXT, protocol_name=st.none() | TEXT, assignment=DATA)
def test_sync_group(version: int, error: ErrorCode, **values: Any) -> None:
    response = SyncGroupResponse(throttle_time=milliseconds(0), error_code=wire_error(error), **values)
    body = synced_body(version, error=error, **values)
    expected = write_response(ApiKey.SYNC_GROUP, version, 7, response)
    assert expected == frame_body(ApiKey.SYNC_GROUP, version, 7, body)


@sweep("version", versions(ApiKey.HEARTBEAT, 0))
@sweep("error", KNOWN)
def test_heartbeat(version: int, error: ErrorCode) -> None:
    response = HeartbeatResponse(throttle_time=milliseconds(0), error_code=wire_error(error))
    expected = write_response(ApiKey.HEARTBEAT, version, 7, response)
    assert expected == frame_body(ApiKey.HEARTBEAT, version, 7, heartbeat_body(version, error))


@pytest.mark.parametrize("version", versions(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0))
@given(
    error=CODES,
    member_epoch=NUMBERS,
    interval_ms=st.integers(0, 2**31 - 1),
    assignment=st.none() | ASSIGNMENTS,
    error_message=st.none() | TEXT,
    member_id=st.none() | TEXT,
)
def test_consumer_group_heartbeat(
    version: int,
    error: ErrorCode,
    member_epoch: int,
    interval_ms: int,
    assignment: dict[UUID, Sequence[int]] | None,
    **texts: Any,
) -> None:
    given_topics: Any = tuple(
        consumer_heartbeat.TopicPartitions(topic_id=topic_id, partitions=tuple(partitions))  # type: ignore[arg-type]
        for topic_id, partitions in (assignment or {}).items()
    )
    response = consumer_heartbeat.ConsumerGroupHeartbeatResponse(
        throttle_time=milliseconds(0),
        error_code=wire_error(error),
        member_epoch=member_epoch,  # type: ignore[arg-type]
        heartbeat_interval=milliseconds(interval_ms),
        assignment=None if assignment is None else consumer_heartbeat.Assignment(topic_partitions=given_topics),
        **texts,
    )
    body = consumer_heartbeat_body(
        error=error, member_epoch=member_epoch, heartbeat_interval_ms=interval_ms, assignment=assignment, **texts
    )
    expected = write_response(ApiKey.CONSUMER_GROUP_HEARTBEAT, version, 7, response)
    assert expected == frame_body(ApiKey.CONSUMER_GROUP_HEARTBEAT, version, 7, body)
