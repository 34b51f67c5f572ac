"""ShareAcknowledge without kio says the same as kio, in every version, and refuses what kio's guard refuses."""

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_reader
from kio.static.constants import EntityType

from ottla.protocol.apis import SERVED, ApiKey
from ottla.protocol.shapes import ELEMENTS_ALWAYS, ShapeError, checked
from ottla.protocol.share_acknowledgements import ShareAcknowledgement, read_share_acknowledgement
from tests.effort import effort
from tests.unit.protocol.damaged_requests import check_damage
from tests.wire.exchange import message_class, request_body

API_KEY = ApiKey.SHARE_ACKNOWLEDGE
VERSIONS = range(SERVED[API_KEY].lowest, SERVED[API_KEY].highest + 1)
TEXT = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=140)
INT = st.integers(-(2**31), 2**31 - 1)
OFFSET = st.integers(-(2**63), 2**63 - 1)
BATCHES = st.fixed_dictionaries(
    {
        "first_offset": OFFSET,
        "last_offset": OFFSET,
        "acknowledge_types": st.lists(st.integers(-128, 127), max_size=4),
    }
)
PARTS = st.fixed_dictionaries(
    {"partition_index": INT | st.integers(0, 1), "acknowledgement_batches": st.lists(BATCHES, max_size=3)}
)
TOPIC_ID = UUID(int=7 << 64 | 9)
TOPICS = st.fixed_dictionaries(
    {"topic_id": st.uuids() | st.just(TOPIC_ID), "partitions": st.lists(PARTS, max_size=3)},
)
REQUESTS = st.fixed_dictionaries(
    {
        "group_id": TEXT,
        "member_id": TEXT,
        "share_session_epoch": INT,
        "is_renew_ack": st.booleans(),
        "topics": st.lists(TOPICS, max_size=3),
    }
)
BATCH: dict[str, Any] = {"first_offset": 5, "last_offset": 6, "acknowledge_types": [1, 2]}
SAMPLE: dict[str, Any] = {
    "group_id": "group",
    "member_id": "member",
    "share_session_epoch": 3,
    "is_renew_ack": True,
    "topics": [{"topic_id": TOPIC_ID, "partitions": [{"partition_index": 1, "acknowledgement_batches": [BATCH]}]}],
}


def by_kio(version: int, body: bytes) -> tuple[object, ...]:
    """What kio reads behind its guard."""
    request_class = message_class(API_KEY, version, EntityType.request)
    read: Any
    read, _ = entity_reader(request_class)(checked(request_class, body), 0)
    parts = {
        # kio reads zeros as no id.
        (topic.topic_id or UUID(int=0), part.partition_index): [
            (batch.first_offset, batch.last_offset, batch.acknowledge_types) for batch in part.acknowledgement_batches
        ]
        for topic in read.topics
        for part in topic.partitions
        if part.acknowledgement_batches
    }
    is_renewal = getattr(read, "is_renew_ack", False)
    return read.group_id, read.member_id, read.share_session_epoch, is_renewal, list(parts.items())


def said(read: ShareAcknowledgement) -> tuple[object, ...]:
    parts = [
        (place, [(batch.first_offset, batch.last_offset, batch.acknowledge_types) for batch in batches])
        for place, batches in read.partitions.items()
    ]
    return read.group_id, read.member_id, read.share_session_epoch, read.is_renew_ack, parts


@pytest.mark.parametrize("version", VERSIONS)
@effort(50)
@given(values=REQUESTS)
def test_reads_what_kio_writes(version: int, values: dict[str, Any]) -> None:
    body = request_body(API_KEY, version, values)
    assert by_kio(version, body) == said(read_share_acknowledgement(version, body))


@pytest.mark.parametrize("version", VERSIONS)
def test_every_cut_is_refused(version: int) -> None:
    body = request_body(API_KEY, version, SAMPLE)
    for size in range(len(body)):
        with pytest.raises(ShapeError):
            read_share_acknowledgement(version, body[:size])


@pytest.mark.parametrize("version", VERSIONS)
@effort(100)
@given(data=st.data())
def test_damage_is_read_as_by_kio_or_refused_as_by_kio(version: int, data: st.DataObject) -> None:
    check_damage(
        data,
        request_body(API_KEY, version, SAMPLE),
        by_kio=lambda body: by_kio(version, body),
        by_us=lambda body: said(read_share_acknowledgement(version, body)),
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_unknown_tags_are_stepped_over(version: int) -> None:
    body = request_body(API_KEY, version, SAMPLE)
    assert body.endswith(b"\0\0\0\0")
    tagged = body[:-4] + b"\x01\x05\x02xy" + b"\0\0" + b"\x02\x00\x00\x01\x01z"
    assert said(read_share_acknowledgement(version, body)) == said(read_share_acknowledgement(version, tagged))


def test_arrays_may_not_have_too_many_elements() -> None:
    batch = {**BATCH, "acknowledge_types": [1] * (ELEMENTS_ALWAYS + 1)}
    topic = {"topic_id": TOPIC_ID, "partitions": [{"partition_index": 1, "acknowledgement_batches": [batch]}]}
    with pytest.raises(ShapeError, match="more elements"):
        read_share_acknowledgement(2, request_body(API_KEY, 2, {**SAMPLE, "topics": [topic]}))
