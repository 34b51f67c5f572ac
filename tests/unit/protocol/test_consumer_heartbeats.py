"""ConsumerGroupHeartbeat without kio says the same as kio, in every version, and refuses what kio's guard refuses."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_reader
from kio.static.constants import EntityType

from ottla.protocol.apis import SERVED, ApiKey
from ottla.protocol.consumer_heartbeats import ConsumerHeartbeatRequest, read_consumer_heartbeat
from ottla.protocol.shapes import ELEMENTS_ALWAYS, ShapeError, checked
from tests.effort import effort
from tests.unit.protocol.damaged_requests import check_damage
from tests.wire.exchange import message_class, request_body

API_KEY = ApiKey.CONSUMER_GROUP_HEARTBEAT
VERSIONS = range(SERVED[API_KEY].lowest, SERVED[API_KEY].highest + 1)
MILLISECOND = timedelta(milliseconds=1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=140)
INT = st.integers(-(2**31), 2**31 - 1)
TOPICS = st.fixed_dictionaries({"topic_id": st.uuids(), "partitions": st.lists(INT, max_size=4)})
HEARTBEATS = st.fixed_dictionaries(
    {
        "group_id": TEXT,
        "member_id": TEXT,
        "member_epoch": INT,
        "instance_id": st.none() | TEXT,
        "rack_id": st.none() | TEXT,
        "rebalance_timeout": INT.map(lambda ms: timedelta(milliseconds=ms)),
        "subscribed_topic_names": st.none() | st.lists(TEXT, max_size=4),
        "subscribed_topic_regex": st.none() | TEXT,
        "server_assignor": st.none() | TEXT,
        "topic_partitions": st.none() | st.lists(TOPICS, max_size=4),
    }
)
TOPIC_ID = UUID(int=7 << 64 | 9)
SAMPLE: dict[str, Any] = {
    "group_id": "group",
    "member_id": "member",
    "member_epoch": 3,
    "instance_id": None,
    "rack_id": "rack",
    "rebalance_timeout": timedelta(seconds=60),
    "subscribed_topic_names": ["a", "b"],
    "subscribed_topic_regex": "c.*",
    "server_assignor": "uniform",
    "topic_partitions": [{"topic_id": TOPIC_ID, "partitions": [1, 2]}],
}


def by_kio(version: int, body: bytes) -> tuple[object, ...]:
    """What kio reads behind its guard."""
    request_class = message_class(API_KEY, version, EntityType.request)
    read: Any
    read, _ = entity_reader(request_class)(checked(request_class, body), 0)
    owned: dict[UUID, tuple[int, ...]] | None = None
    if read.topic_partitions is not None:
        owned = {}
        for topic in read.topic_partitions:
            # kio reads zeros as no id.
            topic_id = topic.topic_id or UUID(int=0)
            owned[topic_id] = (*owned.get(topic_id, ()), *topic.partitions)
    return (
        read.group_id, read.member_id, read.member_epoch, read.instance_id, read.rack_id,
        read.rebalance_timeout // MILLISECOND, read.subscribed_topic_names,
        getattr(read, "subscribed_topic_regex", None), read.server_assignor, owned,
    )  # fmt: skip


def said(read: ConsumerHeartbeatRequest) -> tuple[object, ...]:
    return (
        read.group_id, read.member_id, read.member_epoch, read.instance_id, read.rack_id,
        read.rebalance_timeout_ms, read.topic_names, read.topic_regex, read.server_assignor, read.owned_partitions,
    )  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS)
@effort(50)
@given(values=HEARTBEATS)
def test_reads_what_kio_writes(version: int, values: dict[str, Any]) -> None:
    body = request_body(API_KEY, version, values)
    assert by_kio(version, body) == said(read_consumer_heartbeat(version, body))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_that_is_named_twice_is_owned_with_all_partitions(version: int) -> None:
    twice = [{"topic_id": TOPIC_ID, "partitions": [1]}, {"topic_id": TOPIC_ID, "partitions": [5, 3]}]
    read = read_consumer_heartbeat(version, request_body(API_KEY, version, {**SAMPLE, "topic_partitions": twice}))
    assert {TOPIC_ID: (1, 5, 3)} == read.owned_partitions


@pytest.mark.parametrize("version", VERSIONS)
def test_every_cut_is_refused(version: int) -> None:
    body = request_body(API_KEY, version, SAMPLE)
    for size in range(len(body)):
        with pytest.raises(ShapeError):
            read_consumer_heartbeat(version, body[:size])


@pytest.mark.parametrize("version", VERSIONS)
@effort(100)
@given(data=st.data())
def test_damage_is_read_as_by_kio_or_refused_as_by_kio(version: int, data: st.DataObject) -> None:
    check_damage(
        data,
        request_body(API_KEY, version, SAMPLE),
        by_kio=lambda body: by_kio(version, body),
        by_us=lambda body: said(read_consumer_heartbeat(version, body)),
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_unknown_tags_are_stepped_over(version: int) -> None:
    body = request_body(API_KEY, version, SAMPLE)
    tagged = body[:-2] + b"\x01\x05\x02xy" + b"\x02\x00\x00\x01\x01z"
    assert body.endswith(b"\0\0")
    assert said(read_consumer_heartbeat(version, body)) == said(read_consumer_heartbeat(version, tagged))


def test_arrays_may_not_have_too_many_elements() -> None:
    many = {**SAMPLE, "subscribed_topic_names": [""] * (ELEMENTS_ALWAYS + 1)}
    with pytest.raises(ShapeError, match="more elements"):
        read_consumer_heartbeat(1, request_body(API_KEY, 1, many))
