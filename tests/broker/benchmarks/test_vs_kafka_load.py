"""The load generator in C against a listener that reads its requests with kio and answers with kio.

So its frames are checked by a parser that is not its own, its batches by ours, and what it counts by what was sent.
"""

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from benchmarks.guard import wait_listening
from benchmarks.kafka_race.raw_load import LoadError, RawLoad, first_answer
from ottla.protocol.apis import ApiKey
from ottla.records.batch import Batch
from ottla.testing.free_ports import free_port
from tests.broker.benchmarks.coordination_listener import Answers, listener


def produced(version: int, *errors: ErrorCode) -> Answers:
    """The first requests are answered with these errors, the others with none."""
    left = iter(errors)

    def answer(request: Any) -> Mapping[str, Any]:
        topic = request.topic_data[0]
        part = {"index": topic.partition_data[0].index, "error_code": next(left, ErrorCode.none)}
        return {"responses": [{"name": topic.name, "partition_responses": [part]}]}

    return {(ApiKey.PRODUCE, version): answer}


@pytest.mark.parametrize("version", [9, 10, 11, 12])
def test_produce_sends_whole_batches_with_their_crc(raw: RawLoad, version: int) -> None:
    with listener(produced(version)) as broker:
        work = raw.produce(
            broker.port,
            "somewhere",
            produce_version=version,
            partitions=3,
            in_flight=2,
            requests=7,
            batch_records=5,
            record_bytes=300,
            acks=-1,
        )
    seen = broker.requests(ApiKey.PRODUCE)
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
    with (
        listener(produced(12, ErrorCode.not_leader_or_follower)) as broker,
        pytest.raises(LoadError, match="answered with error 6"),
    ):
        raw.produce(broker.port, "somewhere", requests=1)


def test_first_knocks_until_a_record_is_taken(raw: RawLoad) -> None:
    refusals = ErrorCode.unknown_topic_or_partition, ErrorCode.not_leader_or_follower
    with listener(produced(12, *refusals)) as broker:
        assert first_answer(raw.start_first(broker.port, "somewhere", seconds=60)) > 0
    assert 3 == len(broker.requests(ApiKey.PRODUCE))


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

    def answer(request: Any) -> Mapping[str, Any]:
        (wanted,) = request.topics[0].partitions
        part = {"partition_index": wanted.partition, "high_watermark": 20, "records": offsets[wanted.fetch_offset]}
        return {"responses": [{"topic": request.topics[0].topic, "partitions": [part]}]}

    with listener({(ApiKey.FETCH, 12): answer}) as broker:
        work = raw.fetch(broker.port, "somewhere", bytes=4 * len(log[0]))
    seen = broker.requests(ApiKey.FETCH)
    asked = [request.topics[0].partitions[0].fetch_offset for request in seen]
    assert [0, 10, 0] == asked[:3]
    assert (3, 30, 4 * len(log[0])) == (work.requests, work.records, work.bytes)
    assert (0, -1, -1) == (seen[0].session_id, seen[0].session_epoch, seen[0].replica_id)


def test_options_are_checked(raw: RawLoad) -> None:
    with pytest.raises(LoadError, match="produce_version is 9 to 12"):
        raw.produce(1, "somewhere", produce_version=13)
    with pytest.raises(LoadError, match="no such option: colour=1"):
        raw.produce(1, "somewhere", colour=1)
