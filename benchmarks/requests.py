"""Scanning requests and writing their answers, against kio, which does the same for every other API.

Measured is one core between the bytes that arrived and the bytes that leave, with nothing in between: no append, no
read, no policy. A Produce of one batch of 170 bytes, and a Fetch of sixteen partitions of one topic, in the versions
that librdkafka sends. We leave the records where they are; kio copies them, as its interface asks. Before anything is
timed, both must give the same bytes.
"""

from collections.abc import Callable
from datetime import timedelta
from io import BytesIO
from struct import pack
from typing import Any
from uuid import UUID

from kio.index import load_payload_module
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from benchmarks.measure import Goal, Result, interleaved, report
from ottla.protocol.results import FetchResult, ProduceResult
from ottla.protocol.scan import FetchRequest, ProduceRequest, scan_requests

TURNS = 50_000
PARTITIONS = 16
FRAME_BYTES_MAX = 100 << 20
TOPIC_ID = bytes(range(16))
RECORDS = bytes(170)
SCAN_GOAL, ANSWER_GOAL = 3.0, 50.0
"""kio reads in compiled code and writes in Python."""

PRODUCE_RESULTS: list[ProduceResult] = [ProduceResult(0, 123_456, -1, 0, None, None, None)]
FETCH_RESULTS: list[FetchResult] = [
    FetchResult(TOPIC_ID, number, 0, 1_000_000, 1_000_000, 0, None, -1, RECORDS, len(RECORDS), None, None)
    for number in range(PARTITIONS)
]

produce_in: Any = load_payload_module(0, 10, EntityType.request)
produce_out: Any = load_payload_module(0, 10, EntityType.response)
fetch_in: Any = load_payload_module(1, 16, EntityType.request)
fetch_out: Any = load_payload_module(1, 16, EntityType.response)


def written(entity: Any) -> bytes:
    buffer = BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def framed(content: bytes) -> bytes:
    return pack(">i", len(content)) + content


def request_frame(request: Any) -> bytes:
    header = type(request).__header_schema__(
        request_api_key=request.__api_key__,
        request_api_version=request.__version__,
        correlation_id=7,
        client_id="rdkafka",
    )
    return framed(written(header) + written(request))


def produce_frame() -> bytes:
    part = produce_in.PartitionProduceData(index=0, records=RECORDS)
    topic = produce_in.TopicProduceData(name="orders", partition_data=(part,))
    return request_frame(produce_in.ProduceRequest(acks=-1, timeout=timedelta(seconds=1), topic_data=(topic,)))


def fetch_frame() -> bytes:
    parts = (
        fetch_in.FetchPartition(
            partition=number, current_leader_epoch=3, fetch_offset=1_000_000 + number, partition_max_bytes=1 << 20
        )
        for number in range(PARTITIONS)
    )
    topic = fetch_in.FetchTopic(topic_id=UUID(bytes=TOPIC_ID), partitions=tuple(parts))
    request = fetch_in.FetchRequest(
        max_wait=timedelta(seconds=1), min_bytes=1, topics=(topic,), forgotten_topics_data=(), rack_id=""
    )
    return request_frame(request)


def scan_one(frame: bytearray) -> Any:
    return scan_requests(frame, 0, len(frame), FRAME_BYTES_MAX)[0][0]


def answer_produce(request: ProduceRequest) -> bytes:
    return request.answer(PRODUCE_RESULTS, [], 0)


def answer_fetch(request: FetchRequest) -> list[bytes | object]:
    return request.answer(0, 0, FETCH_RESULTS, [], 0)


def kio_read(kind: Any, frame: bytes) -> tuple[Any, Any]:
    """Header and body."""
    header, size = entity_reader(kind.__header_schema__)(frame, 4)
    return header, entity_reader(kind)(frame, 4 + size)[0]


def kio_answer(correlation_id: int, response: Any) -> bytes:
    return framed(pack(">ib", correlation_id, 0) + written(response))


def kio_answer_produce(correlation_id: int, request: Any) -> bytes:
    """One topic with one partition, as the results say."""
    (topic,) = request.topic_data
    (result,) = PRODUCE_RESULTS
    part = produce_out.PartitionProduceResponse(
        index=topic.partition_data[0].index,
        error_code=ErrorCode(result.error_code),
        base_offset=result.base_offset,
        log_start_offset=result.log_start_offset,
        record_errors=(),
    )
    answer = produce_out.TopicProduceResponse(name=topic.name, partition_responses=(part,))
    return kio_answer(correlation_id, produce_out.ProduceResponse(responses=(answer,)))


def kio_answer_fetch(correlation_id: int, request: Any) -> bytes:
    """One topic, as the results say."""
    parts = (
        fetch_out.PartitionData(
            partition_index=result.partition,
            error_code=ErrorCode(result.error_code),
            high_watermark=result.high_watermark,
            last_stable_offset=result.last_stable_offset,
            log_start_offset=result.log_start_offset,
            aborted_transactions=result.aborted,
            records=result.records,
        )
        for result in FETCH_RESULTS
    )
    topic = fetch_out.FetchableTopicResponse(topic_id=request.topics[0].topic_id, partitions=tuple(parts))
    response = fetch_out.FetchResponse(throttle_time=timedelta(0), error_code=ErrorCode.none, responses=(topic,))
    return kio_answer(correlation_id, response)


def turns(step: Callable[[], object], count: int) -> Callable[[], float]:
    """Runs the step `count` times."""

    def run_turns() -> float:
        for _ in range(count):
            step()
        return count

    return run_turns


def compared(title: str, goal: float, ours: Callable[[], object], theirs: Callable[[], object], quick: bool) -> Result:
    return interleaved(
        {"ottla": turns(ours, TURNS), "kio": turns(theirs, int(TURNS / goal))},
        title=title,
        unit="messages",
        baseline="kio",
        goals=[Goal(rival="ottla", at_least=goal)],
        quick=quick,
    )


def run(quick: bool = False) -> list[Result]:
    """Both APIs, both directions."""
    produce, fetch = produce_frame(), fetch_frame()
    produce_arrived, fetch_arrived = bytearray(produce), bytearray(fetch)
    produce_request, fetch_request = scan_one(produce_arrived), scan_one(fetch_arrived)
    kio_produce = kio_read(produce_in.ProduceRequest, produce)[1]
    kio_fetch = kio_read(fetch_in.FetchRequest, fetch)[1]
    if answer_produce(produce_request) != kio_answer_produce(7, kio_produce):
        raise RuntimeError("the rivals answer a Produce with different bytes")
    if b"".join(answer_fetch(fetch_request)) != kio_answer_fetch(7, kio_fetch):  # type: ignore[arg-type]  # all bytes here
        raise RuntimeError("the rivals answer a Fetch with different bytes")
    return [
        compared(
            "scan a Produce of one partition",
            SCAN_GOAL,
            lambda: scan_one(produce_arrived),
            lambda: kio_read(produce_in.ProduceRequest, produce),
            quick,
        ),
        compared(
            "answer a Produce of one partition",
            ANSWER_GOAL,
            lambda: answer_produce(produce_request),
            lambda: kio_answer_produce(7, kio_produce),
            quick,
        ),
        compared(
            f"scan a Fetch of {PARTITIONS} partitions",
            SCAN_GOAL,
            lambda: scan_one(fetch_arrived),
            lambda: kio_read(fetch_in.FetchRequest, fetch),
            quick,
        ),
        compared(
            f"answer a Fetch of {PARTITIONS} partitions",
            ANSWER_GOAL,
            lambda: answer_fetch(fetch_request),
            lambda: kio_answer_fetch(7, kio_fetch),
            quick,
        ),
    ]


if __name__ == "__main__":
    report(run())
