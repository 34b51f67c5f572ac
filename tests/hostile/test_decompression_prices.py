"""Batches that decompress to a thousand times their size: what a quiet client waits for them, in CPU time.

The time is that of the thread of the event loop, between a request of the quiet client and its response: other programs
do not change it.
"""

import contextlib
import threading
from collections.abc import Iterator
from datetime import timedelta
from functools import cache
from random import Random
from typing import Any, Final
from uuid import UUID

import cramjam
import pytest
from kio.schema.errors import ErrorCode

from ottla.model.queue_names import DELAY_MS, TTL_MS
from ottla.protocol.apis import SERVED, ApiKey
from ottla.records.batch import scan
from ottla.records.builder import BatchBuilder
from ottla.records.decode import decode_records
from ottla.records.layout import Codec
from tests.broker_process import BrokerProcess
from tests.hostile.batches import TIMESTAMP, batch_around, small_batch
from tests.hostile.conftest import GROWTH_BYTES_MAX
from tests.hostile.test_hostile_queues import delayed
from tests.waiting import wait_until
from tests.wire.exchange import CLIENT_ID, RawConnection, read_response, request_frame
from tests.wire.share_member import ACCEPT, REJECT, Member, set_up
from tests.wire.world import TIMEOUT, create_topic, end_offset, unused_name

MEBIBYTE: Final = 1 << 20
VERSION: Final = SERVED[ApiKey.PRODUCE].highest
WAIT_SECONDS_MAX: Final = 0.25
"""The CPU time that a client waits, on a slow machine; on a quiet one it should be 0.05."""
PARTITIONS: Final = 20
LARGE_BYTES: Final = 120 * MEBIBYTE
CODECS: Final = (Codec.GZIP, Codec.LZ4, Codec.ZSTD)
"""Snappy makes at most 22 bytes of one."""


@cache
def large_batch(codec: Codec, value_bytes: int = LARGE_BYTES) -> bytes:
    """One record whose value is zeros."""
    builder = BatchBuilder(codec=codec)
    builder.append(TIMESTAMP, b"k", bytes(value_bytes))
    return bytes(builder.build())


@cache
def many_records(codec: Codec, count: int, name: str | None = None, value: bytes = b"1") -> bytes:
    """Records that are as small as they can be, with a header if it has a name."""
    builder = BatchBuilder(codec=codec)
    for _ in range(count):
        builder.append(TIMESTAMP, None, b"", () if name is None else ((name, value),))
    return bytes(builder.build())


class QuietClient:
    """Asks for the API versions all the time."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._is_over = threading.Event()
        self.rounds = 0
        self.wait_seconds = 0.0
        """The most CPU time between a request and its response."""

    def run(self) -> None:
        with RawConnection(self._broker.address) as connection:
            while not self._is_over.is_set():
                began = self._broker.loop_cpu_seconds()
                connection.ask_newest(
                    ApiKey.API_VERSIONS, {"client_software_name": "q", "client_software_version": "1"}
                )
                self.wait_seconds = max(self.wait_seconds, self._broker.loop_cpu_seconds() - began)
                self.rounds += 1

    def stop(self) -> None:
        self._is_over.set()


@contextlib.contextmanager
def quiet_client(broker: BrokerProcess) -> Iterator[None]:
    """Others must not keep a quiet client waiting."""
    quiet = QuietClient(broker)
    thread = threading.Thread(target=quiet.run)
    thread.start()
    try:
        wait_until(lambda: quiet.rounds > 10)
        before = broker.cpu_seconds()
        yield
        spent = broker.cpu_seconds() - before
    finally:
        quiet.stop()
        thread.join()
    print(f"{spent:.2f} CPU s in all, a quiet client waited for {quiet.wait_seconds:.3f} CPU s")
    assert quiet.wait_seconds < WAIT_SECONDS_MAX


def produce_frame(topic_id: UUID, *parts: tuple[int, bytes], client_id: bytes = CLIENT_ID) -> bytes:
    """A request with batches for partitions."""
    data = [{"index": index, "records": content} for index, content in parts]
    values = {"acks": -1, "timeout": TIMEOUT, "topic_data": [{"topic_id": topic_id, "partition_data": data}]}
    return request_frame(ApiKey.PRODUCE, VERSION, values, client_id=client_id)


def send(connection: RawConnection, topic_id: UUID, *parts: tuple[int, bytes]) -> list[Any]:
    """The responses for batches that are sent to partitions in one request."""
    connection.send(produce_frame(topic_id, *parts))
    _, response = read_response(ApiKey.PRODUCE, VERSION, connection.receive())
    return list(response.responses[0].partition_responses)


PLAIN: Final[dict[str, dict[str, str]]] = {
    "plain": {},
    "compacted": {"cleanup_policy": "compact"},
    "recompressed": {"compression_type": "snappy"},
}


@pytest.mark.parametrize("kind", PLAIN)
@pytest.mark.parametrize("codec", CODECS)
def test_a_large_batch_in_each_partition(broker: BrokerProcess, codec: Codec, kind: str) -> None:
    content = large_batch(codec)
    with RawConnection(broker.address) as connection:
        topic_id = create_topic(
            connection, unused_name(), PARTITIONS, max_message_bytes=str(64 * MEBIBYTE), **PLAIN[kind]
        )
        with quiet_client(broker):
            responses = send(connection, topic_id, *((index, content) for index in range(PARTITIONS)))
        codes = [part.error_code for part in responses]
        # What one request may decompress to is written; the producer sends the others again.
        fitting = max(128 * MEBIBYTE, 32 * PARTITIONS * len(content)) // LARGE_BYTES
        assert [ErrorCode.none] * fitting + [ErrorCode.request_timed_out] * (PARTITIONS - fitting) == codes
        assert ErrorCode.none is send(connection, topic_id, (1, content))[0].error_code


def test_batches_of_many_connections_at_once(broker: BrokerProcess) -> None:
    """Each takes as little as is decompressed on the event loop."""
    content = large_batch(Codec.ZSTD, 3 * MEBIBYTE // 2)
    with contextlib.ExitStack() as opened:
        connections = [opened.enter_context(RawConnection(broker.address)) for _ in range(40)]
        topic_id = create_topic(connections[0], unused_name(), PARTITIONS)
        with quiet_client(broker):
            for _ in range(5):
                for connection in connections:
                    connection.send(produce_frame(topic_id, *((index, content) for index in range(PARTITIONS))))
            for connection in connections:
                for _ in range(5):
                    connection.receive()


def test_a_claim_takes_no_memory(broker: BrokerProcess) -> None:
    """The frame says 400 MB, which is true, or more than it can have."""
    frames = {
        ErrorCode.message_too_large: bytes(cramjam.zstd.compress(bytes(400_000_000))),
        ErrorCode.invalid_record: claiming_frame(400_000_000),
    }
    with RawConnection(broker.address) as connection:
        topic_id = create_topic(connection, unused_name(), 1)
        broker.forget_peak()
        before = broker.resident_bytes()
        with quiet_client(broker):
            for error, frame in frames.items():
                (refused,) = send(connection, topic_id, (0, batch_around(Codec.ZSTD, frame)))
                assert error is refused.error_code
    assert broker.peak_bytes() - before < 8 * MEBIBYTE


def claiming_frame(size: int) -> bytes:
    """A zstd frame with one byte, which says that it has more."""
    return b"\x28\xb5\x2f\xfd" + b"\xa0" + size.to_bytes(4, "little") + b"\x09\x00\x00x"


def test_batches_that_a_gate_looks_into(broker: BrokerProcess) -> None:
    with RawConnection(broker.address, timeout_s=120.0) as connection:
        _, delayed_id = delayed(connection)
        ttl_id = create_topic(connection, unused_name(), PARTITIONS, ottla_ttl_enable="true")
        with quiet_client(broker):
            for codec in CODECS:
                for name, value, expected in (
                    (DELAY_MS, b"60000", ErrorCode.none),
                    (DELAY_MS, b"x", ErrorCode.invalid_record),
                    ("ottla.delay.ms", b"1", ErrorCode.invalid_record),
                ):
                    (response,) = send(connection, delayed_id, (0, many_records(codec, 20_000, name, value)))
                    assert expected is response.error_code, response.error_message
                    assert len(response.record_errors) == (0 if expected is ErrorCode.none else 1000)
                (response,) = send(connection, delayed_id, (0, many_records(codec, 100_000)))
                assert ErrorCode.message_too_large is response.error_code
                (response,) = send(connection, delayed_id, (0, large_batch(codec)))
                assert ErrorCode.message_too_large is response.error_code
                responses = send(
                    connection, ttl_id, *((index, large_batch(codec, 3 * MEBIBYTE)) for index in range(PARTITIONS))
                )
                codes = [response.error_code for response in responses]
                assert [ErrorCode.none] * 2 + [ErrorCode.request_timed_out] * (PARTITIONS - 2) == codes


def test_millions_of_invalid_records(broker: BrokerProcess) -> None:
    content = many_records(Codec.ZSTD, 1_000_000)
    with RawConnection(broker.address) as connection:
        configs = {"cleanup_policy": "compact", "max_message_bytes": str(8 * MEBIBYTE)}
        topic_id = create_topic(connection, unused_name(), 1, **configs)
        with quiet_client(broker):
            (response,) = send(connection, topic_id, (0, content))
        assert ErrorCode.invalid_record is response.error_code
        assert [*range(1000)] == [each.batch_index for each in response.record_errors]


def test_a_partition_that_is_repeated_in_a_request_is_refused(broker: BrokerProcess) -> None:
    name = unused_name()
    with RawConnection(broker.address) as connection:
        topic_id = create_topic(connection, name, 2)
        content = small_batch(Random(1))
        responses = send(connection, topic_id, (0, content), (1, content), (0, content))
        codes = [(part.index, part.error_code) for part in responses]
        refused = (0, ErrorCode.invalid_request)
        assert [refused, (1, ErrorCode.none), refused] == codes
        assert 0 == end_offset(connection, name)


def test_what_is_decompressed_is_charged_to_the_produce_quota(broker: BrokerProcess) -> None:
    rate = MEBIBYTE
    entity = [{"entity_type": "client-id", "entity_name": "charged"}]
    change = {"entity": entity, "ops": [{"key": "producer_byte_rate", "value": float(rate), "remove": False}]}
    with RawConnection(broker.address) as connection:
        topic_id = create_topic(connection, unused_name(), 1)
        answer = connection.ask_newest(ApiKey.ALTER_CLIENT_QUOTAS, {"entries": [change], "validate_only": False})
        assert [ErrorCode.none] == [entry.error_code for entry in answer.entries]
        for content, is_throttled in (
            (small_batch(Random(1), codec=Codec.ZSTD), False),
            (large_batch(Codec.ZSTD, 16 * MEBIBYTE), True),
        ):
            connection.send(produce_frame(topic_id, (0, content), client_id=b"charged"))
            _, response = read_response(ApiKey.PRODUCE, VERSION, connection.receive())
            assert is_throttled == (response.throttle_time > timedelta(0))


def test_searches_by_time(broker: BrokerProcess) -> None:
    """In batches of millions of records, and of one large record."""
    name = unused_name()
    with RawConnection(broker.address) as connection:
        topic_id = create_topic(connection, name, PARTITIONS, max_message_bytes=str(16 * MEBIBYTE))
        for index in range(PARTITIONS):
            content = large_batch(Codec.ZSTD) if index else many_records(Codec.ZSTD, 5_000_000)
            assert ErrorCode.none is send(connection, topic_id, (index, content))[0].error_code
        with quiet_client(broker):
            for timestamp, expected in ((TIMESTAMP, TIMESTAMP), (-3, TIMESTAMP), (TIMESTAMP + 1, -1)):
                parts = [{"partition_index": index, "timestamp": timestamp} for index in range(PARTITIONS)]
                values = {"replica_id": -1, "topics": [{"name": name, "partitions": parts}]}
                (topic,) = connection.ask_newest(ApiKey.LIST_OFFSETS, values).topics
                assert [expected] * PARTITIONS == [part.timestamp for part in topic.partitions]


def test_expired_records_in_large_batches(broker: BrokerProcess) -> None:
    """Of each batch one record has expired, so that it is rewritten for every fetch."""
    builder = BatchBuilder(codec=Codec.GZIP)
    builder.append(TIMESTAMP, b"k", b"v", ((TTL_MS, b"1"),))
    builder.append(TIMESTAMP, b"k", bytes(3 * MEBIBYTE))
    content = bytes(builder.build())
    batches = 100
    with RawConnection(broker.address) as connection:
        topic_id = create_topic(connection, unused_name(), 1, ottla_ttl_enable="true")
        for _ in range(batches):
            assert ErrorCode.none is send(connection, topic_id, (0, content))[0].error_code
        offsets: list[int] = []
        with quiet_client(broker):
            while len(offsets) < batches:
                part = {"partition": 0, "fetch_offset": 2 * len(offsets), "partition_max_bytes": MEBIBYTE}
                topics = [{"topic_id": topic_id, "partitions": [part]}]
                fetch = {"topics": topics, "max_bytes": MEBIBYTE, "session_epoch": -1, "replica_id": -1}
                (found,) = connection.ask_newest(ApiKey.FETCH, fetch).responses[0].partitions
                assert ErrorCode.none is found.error_code
                offsets += [record.offset for batch in scan(found.records)[0] for record in decode_records(batch)]
        assert [*range(1, 2 * batches, 2)] == offsets


def test_delayed_records_of_megabytes(broker: BrokerProcess) -> None:
    """Hundreds of batches that are due at once: each takes a few kilobytes in the log, and 3 MB in memory."""
    builder = BatchBuilder(codec=Codec.GZIP)
    builder.append(TIMESTAMP, b"k", bytes(3 * MEBIBYTE), ((DELAY_MS, b"1"),))
    content = bytes(builder.build())
    batches = 200
    with RawConnection(broker.address) as connection:
        topic, topic_id = delayed(connection, max_message_bytes=str(8 * MEBIBYTE))
        broker.forget_peak()
        before = broker.resident_bytes()
        with quiet_client(broker):
            for _ in range(batches):
                assert ErrorCode.none is send(connection, topic_id, (0, content))[0].error_code
            wait_until(lambda: end_offset(connection, topic) >= batches, "all are delivered")
    assert broker.peak_bytes() - before < GROWTH_BYTES_MAX


def test_dead_letters_out_of_large_batches(broker: BrokerProcess) -> None:
    """A member of a share group rejects a small record of each."""
    builder = BatchBuilder(codec=Codec.ZSTD)
    builder.append(TIMESTAMP, b"k", bytes(LARGE_BYTES))
    builder.append(TIMESTAMP, b"k", b"v")
    content = bytes(builder.build())
    batches = 20
    letters = f"dlq.{unused_name()}"
    with RawConnection(broker.address) as connection:
        create_topic(connection, letters, errors_deadletterqueue_group_enable="true")
        group_id, topic_id = set_up(
            connection,
            0,
            errors_deadletterqueue_topic_name=letters,
            errors_deadletterqueue_copy_record_enable="true",
        )
        for _ in range(batches):
            assert ErrorCode.none is send(connection, topic_id, (0, content))[0].error_code
        member = Member(connection, group_id, topic_id)
        acquired = 0
        broker.forget_peak()
        before = broker.resident_bytes()
        with quiet_client(broker):
            while acquired < 2 * batches:
                for first, last, _ in member.fetch(max_wait=TIMEOUT):
                    kinds = [REJECT if offset % 2 else ACCEPT for offset in range(first, last + 1)]
                    assert [ErrorCode.none] == member.acknowledge((first, last, kinds))
                    acquired = last + 1
            wait_until(lambda: end_offset(connection, letters) >= batches, "all dead letters are written")
    assert broker.peak_bytes() - before < GROWTH_BYTES_MAX


def test_claims_of_thousands_of_batches(broker: BrokerProcess) -> None:
    """Each has a byte, and claims as much as is decompressed on the event loop."""
    content = batch_around(Codec.ZSTD, claiming_frame(2 * MEBIBYTE - 1))
    partitions = 1000
    with RawConnection(broker.address) as connection:
        topic_id = create_topic(connection, unused_name(), partitions)
        with quiet_client(broker):
            for _ in range(5):
                responses = send(connection, topic_id, *((index, content) for index in range(partitions)))
                assert {ErrorCode.invalid_record} == {part.error_code for part in responses}


def test_a_refused_batch_leaves_the_others_of_its_request(broker: BrokerProcess) -> None:
    """Records without keys, on a compacted topic."""
    random = Random(3)
    with RawConnection(broker.address) as connection:
        topic_id = create_topic(connection, unused_name(), PARTITIONS, cleanup_policy="compact")
        for keyless in (many_records(Codec.ZSTD, 1000), many_records(Codec.ZSTD, 1_000_000)):
            good = small_batch(random, codec=Codec.ZSTD)
            parts = [(index, good if index % 2 else keyless) for index in range(PARTITIONS)]
            codes = [part.error_code for part in send(connection, topic_id, *parts)]
            assert [ErrorCode.invalid_record, ErrorCode.none] * (PARTITIONS // 2) == codes
