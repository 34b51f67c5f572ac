"""The raw Produce and Fetch frames, judged by kio, which knows the schemas."""

import io
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.fetch.v12 import request as fetch_request
from kio.schema.fetch.v12 import response as kio_fetch_response
from kio.schema.fetch.v13 import request as fetch_request_by_id
from kio.schema.fetch.v13 import response as kio_fetch_response_by_id
from kio.schema.produce.v9 import request as produce_request
from kio.schema.produce.v9 import response as kio_produce_response
from kio.serial import entity_reader, entity_writer

from ottla.client.errors import RetriableAnswerError
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.protocol.fetch_frames import READ_COMMITTED, Fetched, Wanted, fetch_body, read_fetch_answer
from ottla.protocol.fields import BrokenAnswerError
from ottla.protocol.messages import milliseconds, wire_error
from ottla.protocol.produce_frames import Produced, produce_body, read_produce_answer

# Plain numbers and strings are what kio's field types are at run time.
fetch_response: Any = kio_fetch_response
fetch_response_by_id: Any = kio_fetch_response_by_id
produce_response: Any = kio_produce_response

A0, A1, B5 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("bé", 5)


def written(entity: Any) -> memoryview:
    """A response frame: correlation id, no tags, body."""
    buffer = io.BytesIO(b"\0\0\0\7\0")
    buffer.seek(5)
    entity_writer(type(entity))(buffer, entity)
    return memoryview(buffer.getvalue())


def test_a_produce_body_is_what_kio_reads() -> None:
    batches = [(A0, b"x" * 200), (A1, b"yy"), (B5, b"")]
    body = b"".join(produce_body(batches, acks=-1, timeout_ms=1234, transactional_id="tx"))
    read, size = entity_reader(produce_request.ProduceRequest)(memoryview(body), 0)
    assert len(body) == size
    assert ("tx", -1, milliseconds(1234)) == (read.transactional_id, read.acks, read.timeout)
    assert [("a", 0, b"x" * 200), ("a", 1, b"yy"), ("bé", 5, b"")] == [
        (topic.name, part.index, part.records) for topic in read.topic_data for part in topic.partition_data
    ]


def test_a_batch_is_not_copied_into_its_body() -> None:
    batch = bytearray(b"records")
    assert any(part is batch for part in produce_body([(A0, batch)], acks=1, timeout_ms=1))


def test_a_produce_answer_is_what_kio_wrote() -> None:
    error = produce_response.BatchIndexAndErrorMessage(batch_index=3, batch_index_error_message="no key")
    parts = (
        produce_response.PartitionProduceResponse(
            index=1,
            error_code=wire_error(ErrorCode.INVALID_RECORD),
            base_offset=-1,
            log_append_time=None,
            log_start_offset=2,
            record_errors=(error,),
            error_message="refused",
        ),
        produce_response.PartitionProduceResponse(
            index=0,
            error_code=wire_error(ErrorCode.NONE),
            base_offset=77,
            log_append_time=None,
            log_start_offset=2,
            record_errors=(),
        ),
    )
    answer = produce_response.ProduceResponse(
        responses=(produce_response.TopicProduceResponse(name="a", partition_responses=parts),),
        throttle_time=milliseconds(0),
    )
    assert [
        Produced(A1, ErrorCode.INVALID_RECORD, -1, -1, "refused; record 3: no key"),
        Produced(A0, 0, 77, -1, None),
    ] == read_produce_answer(written(answer))


def test_a_fetch_body_is_what_kio_reads() -> None:
    wanted = [Wanted(A1, 10, 100), Wanted(A0, 2**40, 200), Wanted(B5, 0, 300)]
    (body,) = fetch_body(wanted, isolation_level=READ_COMMITTED, wait_ms=500, bytes_min=1, bytes_max=9999)
    read, size = entity_reader(fetch_request.FetchRequest)(memoryview(body), 0)
    assert len(body) == size
    assert (-1, milliseconds(500), 1, 9999, 1) == (
        read.replica_id,
        read.max_wait,
        read.min_bytes,
        read.max_bytes,
        read.isolation_level,
    )
    assert (0, -1, (), "") == (read.session_id, read.session_epoch, read.forgotten_topics_data, read.rack_id)
    assert [("a", 1, 10, 100), ("a", 0, 2**40, 200), ("bé", 5, 0, 300)] == [
        (topic.topic, part.partition, part.fetch_offset, part.partition_max_bytes)
        for topic in read.topics
        for part in topic.partitions
    ]


def test_a_topic_may_be_named_by_its_id() -> None:
    topic_id = UUID("0195f4a2-1111-7000-8000-00000000abcd")
    (body,) = fetch_body(
        [Wanted(A1, 10, 100)],
        isolation_level=READ_COMMITTED,
        wait_ms=500,
        bytes_min=1,
        bytes_max=9999,
        topic_id=topic_id,
    )
    read, size = entity_reader(fetch_request_by_id.FetchRequest)(memoryview(body), 0)
    assert len(body) == size
    assert [(topic_id, 1, 10)] == [
        (topic.topic_id, part.partition, part.fetch_offset) for topic in read.topics for part in topic.partitions
    ]
    part = fetch_response_by_id.PartitionData(
        partition_index=1,
        error_code=wire_error(ErrorCode.UNKNOWN_TOPIC_ID),
        high_watermark=-1,
        aborted_transactions=None,
        records=b"some",
    )
    topics = (fetch_response_by_id.FetchableTopicResponse(topic_id=topic_id, partitions=(part,)),)
    answer = fetch_response_by_id.FetchResponse(
        throttle_time=milliseconds(0), error_code=wire_error(ErrorCode.NONE), session_id=0, responses=topics
    )
    (found,) = read_fetch_answer(written(answer), "a")
    assert (A1, ErrorCode.UNKNOWN_TOPIC_ID, b"some") == (found.partition, found.error_code, bytes(found.records))


def fetch_answer(code: ErrorCode = ErrorCode.NONE) -> memoryview:
    part = fetch_response.PartitionData(
        partition_index=5,
        error_code=wire_error(ErrorCode.NONE),
        high_watermark=30,
        last_stable_offset=20,
        log_start_offset=3,
        aborted_transactions=(fetch_response.AbortedTransaction(producer_id=8, first_offset=12),),
        preferred_read_replica=-1,
        records=b"some records",
    )
    empty = fetch_response.PartitionData(
        partition_index=6,
        error_code=wire_error(ErrorCode.OFFSET_OUT_OF_RANGE),
        high_watermark=-1,
        aborted_transactions=None,
        records=None,
    )
    topics = (fetch_response.FetchableTopicResponse(topic="bé", partitions=(part, empty)),)
    return written(
        fetch_response.FetchResponse(
            throttle_time=milliseconds(0),
            error_code=wire_error(code),
            session_id=0,
            responses=topics,
        )
    )


def test_a_fetch_answer_is_what_kio_wrote_and_its_records_are_not_copied() -> None:
    frame = fetch_answer()
    first, second = read_fetch_answer(frame)
    assert Fetched(B5, 0, 30, 20, 3, [(8, 12)], memoryview(b"some records")) == first
    assert (TopicPartition("bé", 6), ErrorCode.OFFSET_OUT_OF_RANGE, [], b"") == (
        second.partition,
        second.error_code,
        second.aborted,
        bytes(second.records),
    )
    assert frame.obj is first.records.obj


def test_a_code_on_the_whole_answer_is_raised() -> None:
    with pytest.raises(RetriableAnswerError, match="KAFKA_STORAGE_ERROR"):
        read_fetch_answer(fetch_answer(ErrorCode.KAFKA_STORAGE_ERROR))


@given(data=st.data())
def test_a_damaged_answer_is_refused_or_read_but_never_more_than_that(data: st.DataObject) -> None:
    frame = bytearray(fetch_answer())
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(4, len(frame) - 1))] = data.draw(st.integers(0, 255))
    cut = memoryview(bytes(frame[: data.draw(st.integers(4, len(frame)))]))
    for read in (read_fetch_answer, read_produce_answer):
        try:
            read(cut)
        except (BrokenAnswerError, RetriableAnswerError):
            pass
        except Exception as error:
            # A refusal of the whole answer is no retriable one for most codes that a flipped bit makes.
            assert hasattr(error, "error_code")  # noqa: PT017


def test_every_cut_of_an_answer_is_refused() -> None:
    frame = fetch_answer()
    for end in range(4, len(frame) - 1):
        with pytest.raises(BrokenAnswerError):
            read_fetch_answer(frame[:end])
