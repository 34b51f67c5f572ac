"""Responses to Produce: for any results, in every version, the very bytes that kio writes."""

from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.static.constants import EntityType

from ottla.model.errors import MisuseError
from ottla.protocol.results import ProduceResult
from ottla.protocol.scan import Endpoint, ProduceRequest, scan_requests
from tests.effort import effort
from tests.unit.protocol.kio_requests import PRODUCE_VERSIONS, entity_class, request_frame, texts
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
)

record_errors = st.none() | st.lists(st.tuples(ids, st.none() | texts), max_size=3)
append_times = st.just(-1) | st.integers(0, 2**41)
produce_results = st.builds(
    ProduceResult, codes, offsets, append_times, offsets, record_errors, st.none() | texts, leaders
)


def produce_request(version: int, topics: list[str | bytes], correlation_id: int = 7) -> ProduceRequest:
    """A request for partition 0, 1, … in this order of topics."""
    kind = entity_class(0, version, EntityType.request)
    grouped = groupby(enumerate(topics), lambda numbered: numbered[1])
    entity = kind(
        transactional_id=None,
        acks=1,
        timeout=timedelta(seconds=1),
        topic_data=tuple(
            part_of(
                kind,
                "TopicProduceData",
                **topic_field(topic),
                partition_data=tuple(
                    part_of(kind, "PartitionProduceData", index=number, records=b"") for number, _ in members
                ),
            )
            for topic, members in grouped
        ),
    )
    frame = request_frame(entity, correlation_id)
    (request,) = scan_requests(frame, 0, len(frame), 1 << 20)[0]
    assert isinstance(request, ProduceRequest)
    return request


def expected_produce(
    request: ProduceRequest, results: list[ProduceResult], endpoints: list[Endpoint], throttle_time_ms: int
) -> bytes:
    kind = entity_class(0, request.version, EntityType.response)

    def partition(number: int, result: ProduceResult) -> Any:
        error_code, base_offset, append_time = result.error_code, result.base_offset, result.append_time
        log_start_offset, errors, message = result.log_start_offset, result.record_errors, result.message
        leader = result.leader
        moment = None if append_time == -1 else datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=append_time)
        more: dict[str, Any] = {}
        if request.version >= 8:
            more["record_errors"] = tuple(
                part_of(kind, "BatchIndexAndErrorMessage", batch_index=index, batch_index_error_message=text)
                for index, text in errors or ()
            )
        return part_of(
            kind,
            "PartitionProduceResponse",
            index=number,
            error_code=ErrorCode(error_code),
            base_offset=base_offset,
            log_append_time=moment,
            log_start_offset=log_start_offset,
            error_message=message,
            **leader_field(kind, leader),
            **more,
        )

    numbered = zip(request.parts, results, strict=True)
    responses = tuple(
        part_of(
            kind,
            "TopicProduceResponse",
            **topic_field(topic),
            partition_responses=tuple(partition(part[1], result) for part, result in members),
        )
        for topic, members in groupby(numbered, lambda pair: pair[0][0])
    )
    throttle = timedelta(milliseconds=throttle_time_ms)
    return expected_frame(
        kind, request.correlation_id, responses=responses, throttle_time=throttle, **endpoints_field(kind, endpoints)
    )


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@effort(40)
@given(data=st.data(), endpoints=endpoint_lists, throttle_time_ms=spans, correlation_id=ids)
def test_produce(
    version: int, data: st.DataObject, endpoints: list[Endpoint], throttle_time_ms: int, correlation_id: int
) -> None:
    topics = data.draw(topics_for(by_id=version >= 13))
    request = produce_request(version, topics, correlation_id)
    results = data.draw(st.lists(produce_results, min_size=len(topics), max_size=len(topics)))
    actual = request.answer(results, endpoints, throttle_time_ms)
    assert expected_produce(request, results, endpoints, throttle_time_ms) == actual


def test_a_produce_answer_beyond_the_first_kilobyte() -> None:
    request = produce_request(9, ["a"] * 500)
    results: list[ProduceResult] = [ProduceResult(0, number, -1, 0, None, "m" * number, None) for number in range(500)]
    assert expected_produce(request, results, [], 0) == request.answer(results, [], 0)


def test_a_produce_answer_needs_a_result_for_each_part() -> None:
    request = produce_request(9, ["a", "b"])
    with pytest.raises(MisuseError, match="one result for each part"):
        request.answer([ProduceResult(0, 0, -1, 0, None, None, None)], [], 0)


@pytest.mark.parametrize("version", [8, 9])
def test_a_string_too_long_for_the_protocol_is_refused(version: int) -> None:
    request = produce_request(version, ["a"])
    longest, too_long = "m" * 32767, "m" * 32768
    results: list[ProduceResult] = [ProduceResult(0, 0, -1, 0, None, longest, None)]
    assert expected_produce(request, results, [], 0) == request.answer(results, [], 0)
    with pytest.raises(MisuseError, match="32768 bytes is longer than the protocol allows"):
        request.answer([ProduceResult(0, 0, -1, 0, None, too_long, None)], [], 0)


@pytest.mark.parametrize("result", [(), (0,) * 8, (0, 2**63, 0, 0, None, None, None), None])
def test_a_result_of_another_shape_is_refused(result: Any) -> None:
    with pytest.raises((TypeError, OverflowError)):
        produce_request(9, ["a"]).answer([result], [], 0)
    if result is not None:
        with pytest.raises((TypeError, OverflowError)):
            ProduceResult(*result)


def test_a_request_that_was_never_scanned_cannot_be_answered() -> None:
    with pytest.raises(MisuseError, match="one result for each part"):
        ProduceRequest().answer([], [], 0)
