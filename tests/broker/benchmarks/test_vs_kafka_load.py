"""The load generator in C against a listener that reads its requests with kio and answers with kio.

So its frames are checked by a parser that is not its own, its batches by ours, and what it counts by what was sent.
"""

import datetime
import io
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from benchmarks.guard import wait_listening
from benchmarks.kafka_race.raw_load import LoadError, RawLoad, first_answer
from ottla.records.batch import Batch
from ottla.testing.free_ports import free_port

Answer = Callable[[Any], Any]


def api(name: str, version: int, side: str) -> Any:
    return import_module(f"kio.schema.{name}.v{version}.{side}")


@contextmanager
def listener(name: str, version: int, answer: Answer) -> Iterator[tuple[int, list[Any]]]:
    """Answers requests of one API until the client goes; yields the port and the requests that came."""
    seen: list[Any] = []
    request_type = getattr(api(name, version, "request"), f"{name.capitalize()}Request")
    response_type = getattr(api(name, version, "response"), f"{name.capitalize()}Response")
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            # A load that has enough leaves its last answer behind.
            with suppress(ConnectionError), connection, connection.makefile("rb") as incoming:
                while length := incoming.read(4):
                    frame = incoming.read(struct.unpack(">i", length)[0])
                    header, header_size = entity_reader(request_type.__header_schema__)(frame, 0)
                    request, body_size = entity_reader(request_type)(frame, header_size)
                    # Bytes that are left over would be a request that the generator misspelt.
                    seen.append(request if header_size + body_size == len(frame) else frame)
                    out = io.BytesIO()
                    response_header = response_type.__header_schema__(correlation_id=header.correlation_id)
                    entity_writer(response_type.__header_schema__)(out, response_header)
                    entity_writer(response_type)(out, answer(request))
                    connection.sendall(struct.pack(">i", len(out.getvalue())) + out.getvalue())

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1], seen
        thread.join(60)
        assert not thread.is_alive()


def produced(version: int, error: ErrorCode = ErrorCode.none) -> Answer:
    def answer(request: Any) -> Any:
        response = api("produce", version, "response")
        topic = request.topic_data[0]
        partition = response.PartitionProduceResponse(
            index=topic.partition_data[0].index, error_code=error, base_offset=0, record_errors=()
        )
        named = response.TopicProduceResponse(name=topic.name, partition_responses=(partition,))
        return response.ProduceResponse(responses=(named,), throttle_time=datetime.timedelta())

    return answer


@pytest.mark.parametrize("version", [9, 10, 11, 12])
def test_produce_sends_whole_batches_with_their_crc(raw: RawLoad, version: int) -> None:
    with listener("produce", version, produced(version)) as (port, seen):
        work = raw.produce(
            port,
            "somewhere",
            produce_version=version,
            partitions=3,
            in_flight=2,
            requests=7,
            batch_records=5,
            record_bytes=300,
            acks=-1,
        )
    assert 7 == len(seen)
    assert [0, 1, 2, 0, 1, 2, 0] == [request.topic_data[0].partition_data[0].index for request in seen]
    assert {("somewhere", -1, None)} == {
        (request.topic_data[0].name, request.acks, request.transactional_id) for request in seen
    }
    sizes = 0
    for request in seen:
        records = bytes(request.topic_data[0].partition_data[0].records)
        batch = Batch(bytearray(records))
        batch.check()
        assert (5, len(records)) == (batch.count, batch.size_bytes)
        sizes += len(records)
    assert (7, 35, sizes) == (work.requests, work.records, work.bytes)


def test_the_sink_answers_every_request_and_keeps_every_byte(raw: RawLoad, tmp_path: Path) -> None:
    port, received = free_port(), tmp_path / "received"
    with raw.start_sink(port, received) as sink:
        try:
            wait_listening(port)
            work = raw.produce(port, "load", connections=3, in_flight=4, requests=50, batch_records=20)
        finally:
            sink.kill()
    content = received.read_bytes()
    frame_bytes = struct.unpack(">i", content[:4])[0] + 4
    assert 50 == work.requests
    assert 50 * frame_bytes == len(content)


def test_a_refused_batch_ends_the_load(raw: RawLoad) -> None:
    answer = produced(12, ErrorCode.not_leader_or_follower)
    with (
        listener("produce", 12, answer) as (port, _),
        pytest.raises(LoadError, match="answered with error 6"),
    ):
        raw.produce(port, "somewhere", requests=1)


def test_first_knocks_until_a_record_is_taken(raw: RawLoad) -> None:
    refusals = iter([ErrorCode.unknown_topic_or_partition, ErrorCode.not_leader_or_follower])

    def answer(request: Any) -> Any:
        return produced(12, next(refusals, ErrorCode.none))(request)

    with listener("produce", 12, answer) as (port, seen):
        assert first_answer(raw.start_first(port, "somewhere", seconds=60)) > 0
    assert 3 == len(seen)


def new_batch(first_offset: int, count: int) -> bytes:
    """A header and some bytes: the load only looks at headers."""
    body = b"x" * 100
    return (
        struct.pack(">qiibIhiqqqhii", first_offset, 49 + len(body), 0, 2, 0, 0, count - 1, 0, 0, -1, -1, -1, count)
        + body
    )


def test_fetch_follows_the_offsets_and_starts_again_at_the_end(raw: RawLoad) -> None:
    log = [new_batch(0, 10), new_batch(10, 5), new_batch(15, 5)]
    offsets = {0: log[0] + log[1][:70], 10: log[1] + log[2]}  # the first answer ends in the middle of a batch

    def answer(request: Any) -> Any:
        response = api("fetch", 12, "response")
        (wanted,) = request.topics[0].partitions
        partition = response.PartitionData(
            partition_index=wanted.partition,
            error_code=ErrorCode.none,
            high_watermark=20,
            aborted_transactions=None,
            records=offsets[wanted.fetch_offset],
        )
        topics = (response.FetchableTopicResponse(topic=request.topics[0].topic, partitions=(partition,)),)
        return response.FetchResponse(
            throttle_time=datetime.timedelta(), error_code=ErrorCode.none, session_id=0, responses=topics
        )

    with listener("fetch", 12, answer) as (port, seen):
        work = raw.fetch(port, "somewhere", bytes=4 * len(log[0]))
    asked = [request.topics[0].partitions[0].fetch_offset for request in seen]
    assert [0, 10, 0] == asked[:3]
    assert (3, 30, 4 * len(log[0])) == (work.requests, work.records, work.bytes)
    assert (0, -1, -1) == (seen[0].session_id, seen[0].session_epoch, seen[0].replica_id)


def test_options_are_checked(raw: RawLoad) -> None:
    with pytest.raises(LoadError, match="produce_version is 9 to 12"):
        raw.produce(1, "somewhere", produce_version=13)
    with pytest.raises(LoadError, match="no such option: colour=1"):
        raw.produce(1, "somewhere", colour=1)
