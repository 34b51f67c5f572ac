"""Shapes against kio: what kio wrote passes as it is, tagged fields that nobody knows go, and lies are found."""

from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_reader
from kio.serial.errors import SerialError
from kio.static.constants import EntityType

from ottla.broker.requests.pipeline import COLD_REQUEST_BYTES_MAX
from ottla.protocol.apis import SERVED, ApiKey
from ottla.protocol.messages import BrokenMessageError, read_request
from ottla.protocol.shapes import ShapeError, checked
from tests.sweeps import sweep
from tests.unit.protocol.kio_requests import entities, entity_class, written
from tests.wire.exchange import fill, request_body


def varint(value: int) -> bytes:
    return bytes([value & 0x7F | 0x80]) + varint(value >> 7) if value > 0x7F else bytes([value])


REQUESTS = [
    (api_key, version)
    for api_key, versions in SERVED.items()
    for version in range(versions.lowest, versions.highest + 1)
]
"""By key and version: their two hundred modules are imported only where they are tested."""
METADATA = entity_class(ApiKey.METADATA, 12, EntityType.request)
OLD_METADATA = entity_class(ApiKey.METADATA, 4, EntityType.request)
DELETE_TOPICS = entity_class(ApiKey.DELETE_TOPICS, 5, EntityType.request)
FETCH = entity_class(ApiKey.FETCH, 17, EntityType.request)
UNKNOWN = b"\x63\x03abc"
"""Tag 99 with three bytes."""


def written_with(message: Any, **values: Any) -> bytes:
    return written(fill(message, values))


def request_class(request: tuple[ApiKey, int]) -> Any:
    return entity_class(*request, EntityType.request)


@sweep("request_", REQUESTS)
def test_an_empty_request_passes_as_it_is(request_: tuple[ApiKey, int]) -> None:
    message = request_class(request_)
    body = written_with(message)
    assert body is checked(message, body)


@given(st.data())
def test_whatever_kio_writes_passes_as_it_is(data: st.DataObject) -> None:
    message = request_class(data.draw(st.sampled_from(REQUESTS)))
    body = written(data.draw(entities(message)))
    assert body is checked(message, body)
    assert body + b"behind" == checked(message, body + b"behind")


@given(st.data())
def test_no_damage_gets_past_both(data: st.DataObject) -> None:
    """What passes the walk, kio reads or refuses in its own words; it never stumbles."""
    message = request_class(data.draw(st.sampled_from(REQUESTS)))
    body = bytearray(written(data.draw(entities(message))))
    random = data.draw(st.randoms(use_true_random=False))
    for _ in range(random.randint(1, 3)):
        if body:
            body[random.randrange(len(body))] = random.choice((0, 1, 2, 0x7F, 0x80, 0xFF))
    try:
        shown = checked(message, bytes(body))
    except ShapeError:
        return
    with suppress(SerialError, ValueError):
        entity_reader(message)(shown, 0)


def test_unknown_tagged_fields_go_at_every_depth() -> None:
    body = written_with(METADATA, topics=[{"name": "a"}, {"name": "b"}])
    topic = written_with(METADATA, topics=[{"name": "a"}])[1:-3]
    assert 2 == body.count(topic[:16])
    spoiled = body[:1] + topic[:-1] + b"\x01" + UNKNOWN + body[1 + len(topic) : -1] + b"\x02" + UNKNOWN + b"\x64\x00"
    assert body == checked(METADATA, spoiled)


def test_known_tagged_fields_stay() -> None:
    body = written_with(FETCH, cluster_id="here", topics=[], forgotten_topics_data=[])
    known = body.index(b"here") - 4
    assert b"\x01\x00\x05\x05here" == body[known : known + 8]
    spoiled = body[:known] + b"\x02" + body[known + 1 : known + 8] + UNKNOWN + body[known + 8 :]
    assert body == checked(FETCH, spoiled)


@pytest.mark.parametrize(
    ("message", "body", "reason"),
    [
        (OLD_METADATA, b"\x7f\xff\xff\xff", "more elements than bytes"),
        (OLD_METADATA, b"\xff\xff\xff\xfe", "negative"),
        (OLD_METADATA, b"\0\0\0\1\xff\xff", "null"),
        (OLD_METADATA, b"\0\0\0\1\0\x05abc", "beyond the end"),
        (OLD_METADATA, b"\0\0", "beyond the end"),
        (METADATA, b"\xff\xff\xff\xff\x0f", "more elements than bytes"),
        (METADATA, b"\xff\xff\xff\xff\xff\xff", "does not end"),
        (DELETE_TOPICS, b"\0\0\0\0\0\0", "null"),
    ],
)
def test_lies_are_found(message: Any, body: bytes, reason: str) -> None:
    with pytest.raises(ShapeError, match=reason):
        checked(message, body)


def test_elements_are_counted_over_all_arrays() -> None:
    body = written_with(METADATA, topics=[{"name": "a"}] * 10)
    assert body is checked(METADATA, body, elements_max=10)
    with pytest.raises(ShapeError, match="more elements"):
        checked(METADATA, body, elements_max=9)


LEGITIMATE: dict[ApiKey, dict[str, Any]] = {
    ApiKey.METADATA: {"topics": [{"name": f"t{number}", "topic_id": None} for number in range(60_000)]},
    ApiKey.DELETE_TOPICS: {"topics": [{"name": f"t{number}", "topic_id": None} for number in range(100_000)]},
    ApiKey.DESCRIBE_CONFIGS: {
        "resources": [{"resource_type": 2, "resource_name": f"t{number}"} for number in range(100_000)]
    },
    ApiKey.DESCRIBE_GROUPS: {"groups": [f"group-{number}" for number in range(100_000)]},
    ApiKey.LIST_OFFSETS: {
        "topics": [{"name": "t", "partitions": [{"partition_index": number} for number in range(100_000)]}]
    },
    ApiKey.OFFSET_FETCH: {
        "groups": [{"group_id": "g", "topics": [{"name": "t", "partition_indexes": list(range(100_000))}]}]
    },
    ApiKey.OFFSET_COMMIT: {
        "topics": [{"name": "t", "partitions": [{"partition_index": number} for number in range(100_000)]}]
    },
    ApiKey.TXN_OFFSET_COMMIT: {
        "topics": [{"name": "t", "partitions": [{"partition_index": number} for number in range(100_000)]}]
    },
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: {
        "topics": [
            {"name": "t", "partitions": [{"partition_index": each, "replicas": [1, 2, 3]} for each in range(50_000)]}
        ]
    },
    ApiKey.JOIN_GROUP: {"protocols": [{"name": "range", "metadata": bytes(4 << 20)}]},
}
"""What tools and clients of large clusters send: more elements than a short request may have."""


@pytest.mark.slow
@pytest.mark.parametrize("api_key", LEGITIMATE, ids=lambda api_key: api_key.name)
def test_nothing_legitimate_is_refused(api_key: ApiKey) -> None:
    for version in (SERVED[api_key].lowest, SERVED[api_key].highest):
        body = request_body(api_key, version, LEGITIMATE[api_key])
        assert len(body) < COLD_REQUEST_BYTES_MAX
        read_request(api_key, version, memoryview(body))


def test_elements_are_bounded_by_the_bytes_that_arrived() -> None:
    types = entity_class(ApiKey.LIST_CONFIG_RESOURCES, 1, EntityType.request)

    def body_of(count: int, behind: int = 0) -> bytes:
        # As many elements of one byte, the tagged fields, and some more bytes.
        return varint(count + 1) + bytes(count) + bytes(1 + behind)

    for size in (50_000, 60_000):
        assert checked(types, body_of(size, 4 * size))
    for count, behind in ((50_001, 0), (60_000, 0), (250_001, 4_000_000), (4_000_000, 4_000_000)):
        with pytest.raises(ShapeError, match="more elements than are accepted"):
            checked(types, body_of(count, behind))


@pytest.mark.parametrize(
    ("api_key", "version"), [(ApiKey.API_VERSIONS, 3), (ApiKey.API_VERSIONS, 4), (ApiKey.SASL_AUTHENTICATE, 2)]
)
def test_requests_before_a_login_have_few_tagged_fields(api_key: ApiKey, version: int) -> None:
    body = request_body(api_key, version, {"client_software_name": "n", "client_software_version": "1"})
    for count, is_accepted in ((0, True), (100, True), (101, False), (50_000, False)):
        tagged = body[:-1] + varint(count) + b"".join(varint(200 + tag) + b"\0" for tag in range(count))
        if is_accepted:
            read_request(api_key, version, memoryview(tagged))
        else:
            with pytest.raises(BrokenMessageError, match="more elements than are accepted"):
                read_request(api_key, version, memoryview(tagged))


def test_the_walk_is_the_same_for_any_buffer_content() -> None:
    """A body of noise is refused or passes; it never raises anything else."""
    random = Random(1)
    for message in map(request_class, REQUESTS):
        for _ in range(20):
            noise = bytes(random.choices((0, 1, 2, 3, 0x7F, 0x80, 0xFF), k=random.randint(0, 60)))
            with suppress(ShapeError):
                assert len(noise) >= len(checked(message, noise))
