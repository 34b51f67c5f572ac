"""ShareFetch and ShareAcknowledge, byte by byte as kio writes them and reads them."""

import io
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_writer
from kio.static.constants import EntityType

from ottla.protocol.apis import ApiKey
from ottla.protocol.fields import BrokenAnswerError
from ottla.protocol.messages import milliseconds
from ottla.protocol.share_frames import (
    Acknowledged,
    AcknowledgementBatch,
    AcquiredRange,
    ShareAnswer,
    ShareFetched,
    ShareLimits,
    TopicIdPartition,
    acknowledgement_batches,
    read_share_acknowledge,
    read_share_fetch,
    share_acknowledge_body,
    share_fetch_body,
)
from tests.wire.exchange import fill, message_class, request_body

FIRST, SECOND = UUID(int=1), UUID(int=2)
ACKNOWLEDGED = TopicIdPartition(FIRST, 3)
ADDED = TopicIdPartition(SECOND, 0)
BATCHES = [AcknowledgementBatch(4, 9, 1), AcknowledgementBatch(11, 11, 2)]
WIRE_BATCHES = [
    {"first_offset": first, "last_offset": last, "acknowledge_types": (kind,)} for first, last, kind in BATCHES
]


def frame(api_key: ApiKey, version: int, values: Any) -> memoryview:
    """A response without its length, as kio writes it."""
    message = message_class(api_key, version, EntityType.response)
    buffer = io.BytesIO(bytes(4) + b"\0")
    buffer.seek(5)
    entity_writer(message)(buffer, fill(message, values))
    return memoryview(buffer.getvalue())


@pytest.mark.parametrize("version", [1, 2])
def test_a_fetch_names_what_is_new_and_carries_acknowledgements(version: int) -> None:
    found = share_fetch_body(
        version,
        group_id="g",
        member_id="m",
        epoch=7,
        limits=ShareLimits(500, 1, 1000, 50, 20),
        acquire_mode=1,
        partitions=[ADDED],
        acknowledgements={ACKNOWLEDGED: BATCHES},
        forgotten=[TopicIdPartition(FIRST, 5)],
    )
    expected = {
        "group_id": "g",
        "member_id": "m",
        "share_session_epoch": 7,
        "max_wait": milliseconds(500),
        "min_bytes": 1,
        "max_bytes": 1000,
        "max_records": 50,
        "batch_size": 20,
        "share_acquire_mode": 1,
        "topics": [
            {"topic_id": FIRST, "partitions": [{"partition_index": 3, "acknowledgement_batches": WIRE_BATCHES}]},
            {"topic_id": SECOND, "partitions": [{"partition_index": 0, "acknowledgement_batches": []}]},
        ],
        "forgotten_topics_data": [{"topic_id": FIRST, "partitions": (5,)}],
    }
    assert request_body(ApiKey.SHARE_FETCH, version, expected) == b"".join(found)


@pytest.mark.parametrize("version", [1, 2])
def test_acknowledgements_of_their_own(version: int) -> None:
    found = share_acknowledge_body(
        version, group_id="g", member_id="m", epoch=-1, is_renewal=True, acknowledgements={ACKNOWLEDGED: BATCHES}
    )
    expected = {
        "group_id": "g",
        "member_id": "m",
        "share_session_epoch": -1,
        "is_renew_ack": True,
        "topics": [
            {"topic_id": FIRST, "partitions": [{"partition_index": 3, "acknowledgement_batches": WIRE_BATCHES}]}
        ],
    }
    assert request_body(ApiKey.SHARE_ACKNOWLEDGE, version, expected) == b"".join(found)


FETCHED = {
    "acquisition_lock_timeout": milliseconds(30_000),
    "responses": [
        {
            "topic_id": FIRST,
            "partitions": [
                {
                    "partition_index": 3,
                    "acknowledge_error_code": 121,
                    "acknowledge_error_message": "too late",
                    "current_leader": {"leader_id": 1, "leader_epoch": 2},
                    "records": b"batches",
                    "acquired_records": [{"first_offset": 4, "last_offset": 9, "delivery_count": 2}],
                }
            ],
        }
    ],
}


@pytest.mark.parametrize("version", [1, 2])
def test_fetched_records_are_views_of_the_response(version: int) -> None:
    response = frame(ApiKey.SHARE_FETCH, version, FETCHED)
    fetched = ShareFetched(ACKNOWLEDGED, 0, None, 121, "too late", memoryview(b"batches"), [AcquiredRange(4, 9, 2)])
    found = read_share_fetch(response)
    assert ShareAnswer(0, None, 30_000, [fetched], []) == found
    assert found.fetched[0].records.obj is response.obj


@pytest.mark.parametrize(("version", "lock_timeout_ms"), [(1, 0), (2, 30_000)])
def test_answered_acknowledgements(version: int, lock_timeout_ms: int) -> None:
    partition = {
        "partition_index": 3,
        "error_message": "gone",
        "current_leader": {"leader_id": -1, "leader_epoch": -1},
    }
    values = {
        "acquisition_lock_timeout": milliseconds(30_000),
        "responses": [{"topic_id": FIRST, "partitions": [partition]}],
    }
    found = read_share_acknowledge(frame(ApiKey.SHARE_ACKNOWLEDGE, version, values), version)
    assert ShareAnswer(0, None, lock_timeout_ms, [], [Acknowledged(ACKNOWLEDGED, 0, "gone")]) == found


def test_a_response_that_ends_early_is_refused() -> None:
    whole = frame(ApiKey.SHARE_FETCH, 2, FETCHED)
    for size in range(5, len(whole) - 2):
        with pytest.raises(BrokenAnswerError):
            read_share_fetch(whole[:size])


@given(st.dictionaries(st.integers(0, 30), st.integers(0, 4)))
def test_batches_have_each_offset_once(types: dict[int, int]) -> None:
    batches = acknowledgement_batches(types)
    assert types == {offset: kind for first, last, kind in batches for offset in range(first, last + 1)}
    assert batches == sorted(batches)
    assert not any(
        one.last_offset + 1 == other.first_offset and one.type == other.type for one, other in pairwise(batches)
    )
