"""Frames and headers: what is refused, what is put up with, and that bytes may arrive in any pieces."""

from datetime import timedelta
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from ottla.protocol.apis import SERVED, ApiKey
from tests.sweeps import sweep
from tests.wire.exchange import (
    CORRELATION_ID,
    HEADER,
    LENGTH,
    NO_TAGS,
    SHORT,
    RawConnection,
    read_response,
    request_frame,
)
from tests.wire.world import World

Asked = tuple[int, int, dict[str, Any]]

UNKNOWN_KEYS = (-1, 93, 999, 2**15 - 1)
BESIDE = [
    (api_key, version)
    for api_key, versions in SERVED.items()
    for version in (versions.lowest - 1, versions.highest + 1)
    if api_key is not ApiKey.API_VERSIONS
]
OLD: Asked = (ApiKey.METADATA, 1, {"topics": []})
FLEXIBLE: Asked = (ApiKey.METADATA, 12, {"topics": []})


def framed(content: bytes) -> bytes:
    return LENGTH.pack(len(content)) + content


@sweep(("api_key", "version"), [*BESIDE, *((key, 0) for key in UNKNOWN_KEYS)])
def test_what_is_not_served_closes_the_connection(address: str, api_key: int, version: int) -> None:
    header = HEADER.pack(api_key, version, CORRELATION_ID) + SHORT.pack(-1)
    with RawConnection(address) as connection:
        connection.send(framed(header + bytes(64)))
        assert b"" == connection.wait_closed()


@pytest.mark.parametrize("version", [-1, 6, 99, 2**15 - 1])
def test_api_versions_of_an_unknown_version_are_answered(connection: RawConnection, version: int) -> None:
    """In version 0, with the one entry that the client needs to come again."""
    header = HEADER.pack(ApiKey.API_VERSIONS, version, CORRELATION_ID) + SHORT.pack(1) + b"w" + NO_TAGS
    connection.send(framed(header + b"what version 99 may hold"))
    correlation_id, answer = read_response(ApiKey.API_VERSIONS, 0, connection.receive())
    assert (CORRELATION_ID, ErrorCode.unsupported_version) == (correlation_id, answer.error_code)
    assert [(ApiKey.API_VERSIONS, *SERVED[ApiKey.API_VERSIONS])] == [
        (each.api_key, each.min_version, each.max_version) for each in answer.api_keys
    ]
    assert () == connection.ask(ApiKey.METADATA, 9, {"topics": []}).topics


@pytest.mark.parametrize("request_", [OLD, FLEXIBLE])
def test_no_client_id(connection: RawConnection, request_: Asked) -> None:
    for client_id in (None, b"", "ü".encode()):
        connection.send(request_frame(*request_, client_id=client_id))
        assert CORRELATION_ID == read_response(*request_[:2], connection.receive())[0]


def test_tagged_fields_in_the_header(connection: RawConnection) -> None:
    """Nobody knows them, so that they are passed over."""
    for tags in (b"\x01\x05\x02ab", b"\x02\x00\x00\x80\x01\x01x", b"\x01\x03\x80\x01" + bytes(128)):
        connection.send(request_frame(*FLEXIBLE, tags=tags))
        assert CORRELATION_ID == read_response(*FLEXIBLE[:2], connection.receive())[0]


@pytest.mark.parametrize(
    "tags", [b"\x01\x00\x7f", b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\xff\xff\xff", b"\x01\x00"]
)
def test_tagged_fields_that_lie(connection: RawConnection, tags: bytes) -> None:
    frame = request_frame(*FLEXIBLE, tags=tags)
    connection.send(framed(frame[LENGTH.size : LENGTH.size + HEADER.size + SHORT.size + 4 + len(tags)]))
    assert b"" == connection.wait_closed()


@pytest.mark.parametrize("correlation_id", [0, -1, 2**31 - 1, -(2**31)])
def test_any_correlation_id_comes_back(connection: RawConnection, correlation_id: int) -> None:
    connection.send(request_frame(*OLD, correlation_id=correlation_id))
    found, _ = read_response(*OLD[:2], connection.receive())
    assert correlation_id % 2**32 == found


@pytest.mark.parametrize("size", [-(2**31), -1, 0, 1, 7, 2**31 - 1])
def test_frames_of_impossible_size(connection: RawConnection, size: int) -> None:
    connection.send(LENGTH.pack(size) + bytes(min(max(size, 0), 7)))
    assert b"" == connection.wait_closed()


@pytest.mark.parametrize("request_", [OLD, FLEXIBLE])
def test_a_body_that_is_cut_off(connection: RawConnection, request_: Asked) -> None:
    frame = request_frame(request_[0], request_[1], {"topics": [{"name": "a topic's name"}]})
    connection.send(framed(frame[LENGTH.size : -5]))
    assert b"" == connection.wait_closed()


def test_an_array_that_is_longer_than_the_frame(connection: RawConnection) -> None:
    header = HEADER.pack(ApiKey.METADATA, 1, CORRELATION_ID) + SHORT.pack(-1)
    connection.send(framed(header + LENGTH.pack(2**31 - 1)))
    assert b"" == connection.wait_closed()


def test_bytes_behind_a_body_are_passed_over(connection: RawConnection) -> None:
    """Kafka does so too, and some client may count on it."""
    connection.send(framed(request_frame(*OLD)[LENGTH.size :] + b"more"))
    assert CORRELATION_ID == read_response(*OLD[:2], connection.receive())[0]


def test_many_requests_at_once_are_answered_in_order(connection: RawConnection, world: World) -> None:
    """Whatever they take: the slow one waits for records that do not come."""
    part = {"partition": 1, "fetch_offset": 0, "partition_max_bytes": 100, "log_start_offset": -1}
    waiting = {"max_wait": timedelta(milliseconds=20), "min_bytes": 1, "session_epoch": -1, "replica_id": -1}
    some: list[Asked] = [
        (ApiKey.FETCH, 11, {**waiting, "topics": world.wanted(**part)}),
        (ApiKey.METADATA, 13, {"topics": []}),
        (ApiKey.API_VERSIONS, 0, {}),
        (ApiKey.INIT_PRODUCER_ID, 4, {"transactional_id": None}),
        (ApiKey.FETCH, 18, {**waiting, "topics": world.wanted(**part)}),
        (ApiKey.METADATA, 0, {"topics": []}),
        (ApiKey.LIST_OFFSETS, 1, {"topics": world.wanted(partition_index=0, timestamp=-1), "replica_id": -1}),
    ]
    asked = [some[number % len(some)] for number in range(6 * len(some))]
    connection.send(b"".join(request_frame(*each, correlation_id=at) for at, each in enumerate(asked)))
    answered = [read_response(api_key, version, connection.receive())[0] for api_key, version, _ in asked]
    assert list(range(len(asked))) == answered


def test_a_client_that_sends_no_more_gets_its_responses(connection: RawConnection, world: World) -> None:
    """A fetch that waits for records is answered at once: most clients that send no more have gone."""
    part = {"partition": 1, "fetch_offset": 0, "partition_max_bytes": 100, "log_start_offset": -1}
    waiting = {"max_wait": timedelta(hours=1), "min_bytes": 1, "session_epoch": -1, "replica_id": -1}
    asked: list[Asked] = [OLD, (ApiKey.FETCH, 11, {**waiting, "topics": world.wanted(**part)}), FLEXIBLE]
    connection.send(b"".join(request_frame(*each, correlation_id=at) for at, each in enumerate(asked)))
    connection.end_sending()
    answered = [read_response(api_key, version, connection.receive())[0] for api_key, version, _ in asked]
    assert [0, 1, 2] == answered
    assert b"" == connection.wait_closed()


@pytest.mark.parametrize("request_", [OLD, FLEXIBLE])
def test_split_at_every_byte(connection: RawConnection, address: str, request_: Asked) -> None:
    """Between the two pieces another connection is answered, so that the first one has been received alone."""
    frame = request_frame(*request_)
    with RawConnection(address) as other:
        for at in range(1, len(frame)):
            connection.send(frame[:at])
            other.ask(*OLD)
            connection.send(frame[at:])
            assert CORRELATION_ID == read_response(*request_[:2], connection.receive())[0]
