"""Responses to Fetch: in every version the very bytes that kio writes, with the records between them."""

from datetime import timedelta
from itertools import groupby, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.static.constants import EntityType

from ottla.model.errors import MisuseError
from ottla.protocol.results import FetchResult
from ottla.protocol.scan import Endpoint, FetchRequest, scan_requests
from tests.effort import effort
from tests.unit.protocol.kio_requests import FETCH_VERSIONS, entity_class, request_frame
from tests.unit.protocol.kio_responses import (
    codes,
    endpoint_lists,
    endpoints_field,
    expected_frame,
    ids,
    leader_field,
    leaders,
    offsets,
    part_of,
    spans,
    topic_field,
    topics_for,
    whole_of,
)

pytestmark = pytest.mark.slow

aborted_lists = st.none() | st.lists(st.tuples(offsets, offsets), max_size=3)
diverging = st.none() | st.tuples(ids, offsets) | st.just((-1, -1))
contents = st.none() | st.binary(max_size=10) | st.integers(100, 20_000).map(bytes)


def fetch_request(version: int, correlation_id: int = 7) -> FetchRequest:
    kind = entity_class(1, version, EntityType.request)
    entity = whole_of(
        kind,
        max_wait=timedelta(0),
        min_bytes=0,
        max_bytes=0,
        topics=(),
        forgotten_topics_data=(),
        rack_id="",
    )
    frame = request_frame(entity, correlation_id)
    (request,) = scan_requests(frame, 0, len(frame), 1 << 20)[0]
    assert isinstance(request, FetchRequest)
    return request


def expected_fetch(
    request: FetchRequest,
    error_code: int,
    session_id: int,
    parts: list[FetchResult],
    endpoints: list[Endpoint],
    throttle_time_ms: int,
) -> bytes:
    kind = entity_class(1, request.version, EntityType.response)

    def partition(part: FetchResult) -> Any:
        number, code, high_watermark = part.partition, part.error_code, part.high_watermark
        last_stable, log_start, replica = part.last_stable_offset, part.log_start_offset, part.preferred_read_replica
        aborted: Any = part.aborted
        records, diverging, leader = part.records, part.diverging, part.leader
        more = leader_field(kind, leader)
        if diverging is not None and request.version >= 12:
            epoch, end_offset = diverging
            more["diverging_epoch"] = part_of(kind, "EpochEndOffset", epoch=epoch, end_offset=end_offset)
        if aborted is not None:
            aborted = [
                part_of(kind, "AbortedTransaction", producer_id=producer_id, first_offset=first_offset)
                for producer_id, first_offset in aborted
            ]
        return part_of(
            kind,
            "PartitionData",
            partition_index=number,
            error_code=ErrorCode(code),
            high_watermark=high_watermark,
            last_stable_offset=last_stable,
            log_start_offset=log_start,
            aborted_transactions=aborted,
            preferred_read_replica=replica,
            records=records or b"",
            **more,
        )

    responses = tuple(
        part_of(
            kind,
            "FetchableTopicResponse",
            **topic_field(topic),
            partitions=tuple(partition(part) for part in members),
        )
        for topic, members in groupby(parts, lambda part: part.topic)
    )
    return expected_frame(
        kind,
        request.correlation_id,
        throttle_time=timedelta(milliseconds=throttle_time_ms),
        error_code=ErrorCode(error_code),
        session_id=session_id,
        responses=responses,
        **endpoints_field(kind, endpoints),
    )


@st.composite
def fetch_results(draw: st.DrawFn, by_id: bool) -> list[FetchResult]:
    results: list[FetchResult] = []
    for topic in draw(topics_for(by_id)):
        records = draw(contents)
        head = (topic, draw(ids), draw(codes), draw(offsets), draw(offsets), draw(offsets), draw(aborted_lists))
        results.append(FetchResult(*head, draw(ids), records, len(records or b""), draw(diverging), draw(leaders)))
    return results


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@effort(40)
@given(data=st.data(), code=codes, session_id=ids, endpoints=endpoint_lists, throttle_time_ms=spans)
def test_fetch(
    version: int, data: st.DataObject, code: int, session_id: int, endpoints: list[Endpoint], throttle_time_ms: int
) -> None:
    request = fetch_request(version, data.draw(ids))
    parts = data.draw(fetch_results(by_id=version >= 13))
    pieces = request.answer(code, session_id, parts, endpoints, throttle_time_ms)
    expected = expected_fetch(request, code, session_id, parts, endpoints, throttle_time_ms)
    assert expected == b"".join(pieces)  # type: ignore[arg-type]
    given_records = [part.records for part in parts if part.size > 0]
    assert given_records == [piece for piece in pieces if any(piece is records for records in given_records)]
    ours = [not any(piece is records for records in given_records) for piece in pieces]
    assert not any(left and right for left, right in pairwise(ours))


class FileRange:
    """Stands for records that are never looked at."""


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_records_are_passed_through(version: int) -> None:
    """The length counts them, and nobody asks them anything."""
    topic: str | bytes = b"t" * 16 if version >= 13 else "t"
    first, second = FileRange(), FileRange()
    parts: list[FetchResult] = [
        FetchResult(topic, 0, 0, 5, 5, 0, None, -1, first, 1000, None, None),
        FetchResult(topic, 1, 0, 5, 5, 0, None, -1, None, 0, None, None),
        FetchResult(topic, 2, 0, 5, 5, 0, None, -1, second, 2**30, None, None),
    ]
    pieces = fetch_request(version).answer(0, 0, parts, [], 0)
    assert (first, second) == (pieces[1], pieces[3])
    assert (5 if version >= 12 else 4) == len(pieces)
    headers = b"".join(piece for piece in pieces if isinstance(piece, bytes))
    assert len(headers) - 4 + 1000 + 2**30 == int.from_bytes(headers[:4], "big")


def test_a_fetch_answer_beyond_what_a_length_can_say_is_refused() -> None:
    part = FetchResult("t", 0, 0, 5, 5, 0, None, -1, FileRange(), 2**30, None, None)
    with pytest.raises(MisuseError, match="does not fit a frame"):
        fetch_request(12).answer(0, 0, [part, part], [], 0)


@pytest.mark.parametrize(("records", "size"), [(None, 1), (b"r", -1), (None, -1)])
def test_a_size_that_cannot_be_is_refused(records: bytes | None, size: int) -> None:
    with pytest.raises(MisuseError, match="cannot be answered with"):
        fetch_request(12).answer(0, 0, [FetchResult("t", 0, 0, 5, 5, 0, None, -1, records, size, None, None)], [], 0)


@pytest.mark.parametrize(("version", "topic"), [(12, b"t" * 16), (13, "t"), (13, b"short"), (12, None)])
def test_a_topic_of_another_kind_is_refused(version: int, topic: Any) -> None:
    with pytest.raises(MisuseError, match="this version"):
        fetch_request(version).answer(0, 0, [FetchResult(topic, 0, 0, 5, 5, 0, None, -1, None, 0, None, None)], [], 0)


def test_many_aborted_transactions() -> None:
    aborted = [(number, number) for number in range(300)]
    part = FetchResult("t", 0, 0, 5, 5, 0, aborted, -1, b"r", 1, None, None)
    request = fetch_request(12)
    pieces = request.answer(0, 0, [part], [], 0)
    assert expected_fetch(request, 0, 0, [part], [], 0) == b"".join(pieces)  # type: ignore[arg-type]


@pytest.mark.parametrize(("version", "topic"), [(4, "topic"), (12, "topic"), (13, b"t" * 16)])
def test_neighbours_are_of_one_topic_if_they_are_equal(version: int, topic: str | bytes) -> None:
    """A session remembers topics of earlier requests: equal ones, not the same object."""
    again: str | bytes = topic.encode().decode() if isinstance(topic, str) else bytes(bytearray(topic))
    assert again is not topic
    parts = [FetchResult(name, number, 0, 5, 5, 0) for number, name in enumerate((topic, again))]
    request = fetch_request(version)
    assert [expected_fetch(request, 0, 0, parts, [], 0)] == request.answer(0, 0, parts, [], 0)
