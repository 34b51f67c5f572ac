"""Scanning what kio writes: every field, in every version, however many frames arrive and wherever they are cut."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.static.constants import EntityType

from ottla.model.errors import MisuseError
from ottla.protocol.scan import FetchRequest, ProduceRequest, Request, is_flexible, scan_requests
from tests.effort import effort
from tests.unit.protocol.kio_requests import (
    FETCH_VERSIONS,
    PRODUCE_VERSIONS,
    entities,
    entity_class,
    fetch_fields,
    framed,
    known_requests,
    produce_fields,
    request_frame,
    request_header,
    scanned_fetch_fields,
    scanned_produce_fields,
    texts,
)

pytestmark = pytest.mark.slow

FRAME_BYTES_MAX = 1 << 20
PRODUCE_TIMEOUT = timedelta(seconds=1)
correlation_ids = st.integers(-(2**31), 2**31 - 1)


def scan_one(frame: bytes) -> Request:
    """The one request of a whole frame, scanned in the middle of a buffer."""
    buffer = bytearray(b"before" + frame + b"after")
    requests, position, size = scan_requests(buffer, 6, 6 + len(frame), FRAME_BYTES_MAX)
    assert (6 + len(frame), 0) == (position, size)
    (request,) = requests
    assert (6, 6 + len(frame)) == (request.start, request.end)
    buffer.clear()  # raises if the request still held the buffer
    return request


def assert_header(request: Request, entity: Any, correlation_id: int, client_id: str | None) -> None:
    assert (entity.__api_key__, entity.__version__, correlation_id, client_id) == (
        request.api_key,
        request.version,
        request.correlation_id,
        request.client_id,
    )
    assert 4 + len(request_header(entity, correlation_id, client_id)) == request.body_start - request.start


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@effort(40)
@given(data=st.data(), correlation_id=correlation_ids, client_id=st.none() | texts)
def test_produce(version: int, data: st.DataObject, correlation_id: int, client_id: str | None) -> None:
    entity = data.draw(entities(entity_class(0, version, EntityType.request)))
    frame = request_frame(entity, correlation_id, client_id)
    request = scan_one(frame)
    assert isinstance(request, ProduceRequest)
    assert_header(request, entity, correlation_id, client_id)
    assert produce_fields(entity) == scanned_produce_fields(request, b"before" + frame)


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@effort(40)
@given(data=st.data(), correlation_id=correlation_ids, client_id=st.none() | texts)
def test_fetch(version: int, data: st.DataObject, correlation_id: int, client_id: str | None) -> None:
    entity = data.draw(entities(entity_class(1, version, EntityType.request)))
    request = scan_one(request_frame(entity, correlation_id, client_id))
    assert isinstance(request, FetchRequest)
    assert_header(request, entity, correlation_id, client_id)
    assert fetch_fields(entity) == scanned_fetch_fields(request)


def test_every_request_header() -> None:
    """Of every API and version that kio knows: where the body begins depends on it."""
    looked_at = 0
    for entity in known_requests():
        api_key, version = entity.__api_key__, entity.__version__
        assert entity.__flexible__ is is_flexible(api_key, version), f"API {api_key} v{version}"
        if api_key in (0, 1):  # an empty body is none of theirs
            continue
        request = scan_one(framed(request_header(entity) + b"body"))
        assert Request is type(request)
        assert_header(request, entity, 7, "judge")
        assert 4 == request.end - request.body_start
        looked_at += 1
    assert looked_at > 150


@pytest.mark.parametrize("api_key", [-1, 4, 7, 95, 32767])
def test_an_api_that_does_not_exist_is_still_a_request(api_key: int) -> None:
    assert is_flexible(api_key, 0) is None
    header = api_key.to_bytes(2, "big", signed=True) + b"\0\0" + b"\0\0\0\x09" + b"\0\x02me"
    request = scan_one(framed(header + b"anything"))
    assert (Request, api_key, 9, "me", 8) == (
        type(request),
        request.api_key,
        request.correlation_id,
        request.client_id,
        request.end - request.body_start,
    )
    unreadable = scan_one(framed(header[:8] + b"\x7f\xff" + b"no client id"))
    assert (Request, None, 0) == (type(unreadable), unreadable.client_id, unreadable.end - unreadable.body_start)


@pytest.mark.parametrize("version", [0, 1, 2, 14, 99, -1])
def test_produce_in_a_version_of_no_interest_is_left_alone(version: int) -> None:
    header = b"\0\0" + version.to_bytes(2, "big", signed=True) + b"\0\0\0\x09" + b"\xff\xff" + b"\0" * (version > 8)
    assert Request is type(scan_one(framed(header + b"body")))


@pytest.mark.parametrize(
    ("rest", "client_id", "body"),
    [
        (b"\0\x02me\0body", "me", b"body"),
        (b"\0\x02me\x01\x05\x03abcbody", "me", b"body"),
        (b"\0\x02me\x01\x05\x7fabc", "me", b""),
        (b"\0\x02me\xff\xff\xff\xff\xff\xff", "me", b""),
        (b"\x7f\xffme", None, b""),
        (b"\0\x02\xff\xfe\0body", "\ufffd\ufffd", b"body"),
    ],
)
@pytest.mark.parametrize("version", [5, 77, 32767])
def test_api_versions_of_the_future_can_be_answered(
    version: int, rest: bytes, client_id: str | None, body: bytes
) -> None:
    """Whatever the header became by then, the answer needs only the correlation id."""
    frame = framed(b"\0\x12" + version.to_bytes(2, "big") + b"\0\0\x04\xd2" + rest)
    request = scan_one(frame)
    assert (Request, 18, version, 1234, client_id) == (
        type(request),
        request.api_key,
        request.version,
        request.correlation_id,
        request.client_id,
    )
    assert body == (b"before" + frame)[request.body_start : request.end]


@effort(30)
@given(data=st.data())
def test_frames_cut_anywhere(data: st.DataObject) -> None:
    """However much has arrived: the whole frames are answered, and the next one's place and size."""
    kinds = [entity_class(0, 9, EntityType.request), entity_class(1, 12, EntityType.request)]
    kinds += [entity_class(0, 3, EntityType.request), entity_class(18, 3, EntityType.request)]
    drawn = data.draw(st.lists(st.sampled_from(kinds).flatmap(entities), min_size=1, max_size=3))
    frames = [request_frame(entity, number) for number, entity in enumerate(drawn)]
    frames = [frame for frame in frames if len(frame) < 2000] or [framed(b"\0\x12\0\0\0\0\0\0\xff\xff")]
    whole = bytearray(b"".join(frames))
    ends = [sum(map(len, frames[: count + 1])) for count in range(len(frames))]
    for cut in range(len(whole) + 1):
        done = sum(end <= cut for end in ends)
        start = ends[done - 1] if done else 0
        requests, position, size = scan_requests(whole, 0, cut, FRAME_BYTES_MAX)
        assert ends[:done] == [request.end for request in requests]
        assert (start, len(frames[done]) if cut - start >= 4 else 0) == (position, size)


def test_nothing_has_arrived() -> None:
    assert ([], 3, 0) == scan_requests(bytearray(5), 3, 3, FRAME_BYTES_MAX)


@pytest.mark.parametrize(("start", "end"), [(-1, 3), (2, 1), (0, 6), (6, 6), (0, -1)])
def test_only_a_part_of_the_buffer_can_be_scanned(start: int, end: int) -> None:
    with pytest.raises(MisuseError, match="not a part of a buffer of 5 bytes"):
        scan_requests(bytearray(5), start, end, FRAME_BYTES_MAX)


def test_bytes_behind_a_body_are_ignored() -> None:
    entity = entity_class(0, 7, EntityType.request)(
        transactional_id=None, acks=1, timeout=PRODUCE_TIMEOUT, topic_data=()
    )
    request = scan_one(framed(request_frame(entity)[4:] + b"trailing"))
    assert isinstance(request, ProduceRequest)
    assert [] == request.parts


def test_a_request_tells_what_it_is() -> None:
    request = scan_one(framed(b"\0\x03\0\x01\0\0\0\x09\0\x02me"))
    assert "<Request api 3 v1, correlation id 9, client 'me', bytes 6 to 22>" == repr(request)
