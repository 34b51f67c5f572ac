"""Produce and Metadata as Apache Kafka answers them to the same requests, byte for byte.

Compared are what clients act on: error codes, the records that are named as faulty, the batch header that was stored,
and which operations are said to be authorized. Wording of messages is each broker's own.
"""

import itertools
import subprocess
import time
from datetime import timedelta
from struct import pack_into
from typing import Any, Final

import pytest
from confluent_kafka import Producer

from ottla.model.error_codes import ErrorCode
from ottla.protocol.apis import ApiKey
from ottla.records.batch import Batch, crc32c
from ottla.records.builder import BatchBuilder
from ottla.records.layout import (
    ATTRIBUTES_AT,
    BASE_TIMESTAMP_AT,
    COUNT_AT,
    CRC_AT,
    LAST_OFFSET_DELTA_AT,
    MAX_TIMESTAMP_AT,
    Codec,
)
from tests.compat.kafka_broker import KafkaBroker
from tests.compat.kafka_jars import java_command
from tests.compat.kafkas_word import Both, KafkasWord, readable
from tests.compat.ottla_broker import OttlaBroker
from tests.wire.exchange import RawConnection, read_response, request_frame

PRODUCE_VERSION: Final = 11
FETCH_VERSION: Final = 12
DEADLINE_S: Final = 60
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
NOW: Final = int(time.time() * 1000)
FIELDS: Final = {
    "attributes": (">h", ATTRIBUTES_AT),
    "last_offset_delta": (">i", LAST_OFFSET_DELTA_AT),
    "base_timestamp": (">q", BASE_TIMESTAMP_AT),
    "max_timestamp": (">q", MAX_TIMESTAMP_AT),
    "count": (">i", COUNT_AT),
}

CODECS: Final = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
COMPLAINTS: Final = ("InvalidRecordException", "KafkaException", "CorruptRecordException")

Broker = KafkaBroker | OttlaBroker
_numbers = itertools.count()


def new_name() -> str:
    return f"answers-{next(_numbers)}"


def create(connection: RawConnection, name: str, **configs: str) -> str:
    """A topic of one partition that is ready to be written to."""
    named = [{"name": key.replace("_", "."), "value": text} for key, text in configs.items()]
    wanted = {"name": name, "num_partitions": 1, "replication_factor": 1, "configs": named}
    (made,) = connection.ask(
        ApiKey.CREATE_TOPICS, 7, {"topics": [wanted], "timeout": timedelta(seconds=DEADLINE_S)}
    ).topics
    assert 0 == made.error_code
    wait_led(connection, name)
    return name


def wait_led(connection: RawConnection, name: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        (topic,) = connection.ask(
            ApiKey.METADATA, 9, {"topics": [{"name": name}], "allow_auto_topic_creation": False}
        ).topics
        if topic.error_code == 0 and all(each.leader_id >= 0 for each in topic.partitions):
            return
        assert time.monotonic() < deadline, f"{name} has no leader: {topic}"


def batch(*records: tuple[int, bytes | None], codec: Codec = Codec.NONE, **fields: int) -> bytes:
    """A batch of (timestamp, key), with header fields that need not be true; its checksum is."""
    builder = BatchBuilder(codec=codec)
    for timestamp, key in records:
        builder.append(timestamp, key, b"value " * 10)
    made = bytearray(builder.build())
    for name, value in fields.items():
        layout, place = FIELDS[name]
        pack_into(layout, made, place, value)
    pack_into(">I", made, CRC_AT, crc32c(memoryview(made)[ATTRIBUTES_AT:]))
    return bytes(made)


def produce(connection: RawConnection, topic: str, records: bytes, acks: int = 1) -> Any:
    part = {"index": 0, "records": records}
    asked = {
        "acks": acks,
        "timeout": timedelta(seconds=DEADLINE_S),
        "topic_data": [{"name": topic, "partition_data": [part]}],
    }
    deadline = time.monotonic() + DEADLINE_S
    while True:
        answer = connection.ask(ApiKey.PRODUCE, PRODUCE_VERSION, asked).responses[0].partition_responses[0]
        # Metadata names a new partition's leader a little before that leader knows.
        if answer.error_code not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER):
            return answer
        assert time.monotonic() < deadline


def since(timestamp: int) -> int | str:
    """A timestamp as it is in every run."""
    return f"now{timestamp - NOW:+}" if abs(timestamp - NOW) < HOUR_MS else timestamp


def stored_headers(connection: RawConnection, topic: str) -> list[tuple[int | str, int | str, int, int]]:
    """(base timestamp, max timestamp, attributes, records) of every batch of the partition; checksums are checked."""
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20, "current_leader_epoch": -1}
    asked = {"replica_id": -1, "max_bytes": 1 << 20, "session_epoch": -1, "last_fetched_epoch": -1}
    answer = connection.ask(ApiKey.FETCH, FETCH_VERSION, {**asked, "topics": [{"topic": topic, "partitions": [part]}]})
    records = memoryview(answer.responses[0].partitions[0].records or b"")
    headers: list[tuple[int | str, int | str, int, int]] = []
    at = 0
    while at < len(records):
        found = Batch(records, at)
        found.check()
        headers.append((since(found.base_timestamp), since(found.max_timestamp), found.attributes, found.count))
        at += found.size_bytes
    return headers


def outcome(connection: RawConnection, topic: str, records: bytes, acks: int = 1) -> tuple[int, list[int]]:
    """(error code, the records at fault)."""
    answer = produce(connection, topic, records, acks)
    assert all(each.batch_index_error_message for each in answer.record_errors)
    return int(answer.error_code), [each.batch_index for each in answer.record_errors]


# Headers that do not tell the truth about the records

RECORDS: Final = ((NOW - 5000, b"a"), (NOW - 1000, b"b"), (NOW - 3000, b"c"))
UNTIMED: Final = ((-1, b"a"), (-1, b"b"))
LIES: Final[dict[str, tuple[tuple[tuple[int, bytes | None], ...], dict[str, int]]]] = {
    "none": (RECORDS, {}),
    "max is too small": (RECORDS, {"max_timestamp": 0}),
    "max is too large": (RECORDS, {"max_timestamp": NOW + HOUR_MS // 2}),
    "max is in the far future": (RECORDS, {"max_timestamp": NOW + 365 * DAY_MS}),
    "max is -1": (RECORDS, {"max_timestamp": -1}),
    "max is negative": (RECORDS, {"max_timestamp": -77}),
    "records without timestamps, as librdkafka writes them": (UNTIMED, {"max_timestamp": 0}),
    "records without timestamps": (UNTIMED, {}),
    "records before 1970": (((-5000, b"a"), (-3000, b"b")), {}),
    "one record without a timestamp": (((-1, b"a"), (NOW, b"b")), {}),
    "LogAppendTime is claimed": (RECORDS, {"attributes": 0x08}),
}


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())
@pytest.mark.parametrize("lie", LIES)
def test_the_largest_timestamp_is_that_of_the_records(both: Both, lie: str, codec: Codec) -> None:
    records, fields = LIES[lie]
    fields = {**fields, "attributes": fields["attributes"] | codec} if "attributes" in fields else fields
    topic = new_name()

    def scenario(connection: RawConnection) -> Any:
        create(connection, topic)
        return outcome(connection, topic, batch(*records, codec=codec, **fields)), stored_headers(connection, topic)

    theirs, ours = both(scenario)
    assert theirs == ours


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())
def test_a_recompressed_batch_has_the_timestamp_of_its_records(both: Both, codec: Codec) -> None:
    topic = new_name()

    def scenario(connection: RawConnection) -> Any:
        create(connection, topic, compression_type="lz4")
        return (
            outcome(connection, topic, batch(*RECORDS, codec=codec, max_timestamp=0)),
            stored_headers(connection, topic),
        )

    theirs, ours = both(scenario)
    assert theirs == ours


# Records at fault

FAULTS: Final[dict[str, tuple[dict[str, str], bytes]]] = {
    "no keys in a compacted topic": (
        {"cleanup_policy": "compact"},
        batch((NOW, b"a"), (NOW, None), (NOW, b"c"), (NOW, None)),
    ),
    "no keys in a compacted topic, compressed": (
        {"cleanup_policy": "compact"},
        batch((NOW, b"a"), (NOW, None), (NOW, b"c"), (NOW, None), codec=Codec.ZSTD),
    ),
    "timestamps too new": ({}, batch((NOW, b"a"), (NOW + DAY_MS, b"b"), (NOW + 2 * HOUR_MS, b"c"))),
    "timestamps too new, compressed": ({}, batch((NOW, b"a"), (NOW + DAY_MS, b"b"), codec=Codec.LZ4)),
    "timestamps too new, and a header that hides them": (
        {},
        batch((NOW, b"a"), (NOW + DAY_MS, b"b"), max_timestamp=NOW),
    ),
    "timestamps too old": (
        {"message_timestamp_before_max_ms": str(HOUR_MS)},
        batch((NOW, b"a"), (NOW - DAY_MS, b"b"), (NOW, b"c")),
    ),
    "timestamps too old, but for one without": (
        {"message_timestamp_before_max_ms": str(HOUR_MS)},
        batch((NOW, b"a"), (-1, b"b"), (NOW - DAY_MS, b"c")),
    ),
    "keys and timestamps": (
        {"cleanup_policy": "compact"},
        batch((NOW, None), (NOW + DAY_MS, b"b"), (NOW + DAY_MS, None), (NOW, b"d")),
    ),
    "LogAppendTime is claimed": ({}, batch((NOW, b"a"), (NOW, b"b"), attributes=0x08)),
    "LogAppendTime is claimed in a topic with it": (
        {"message_timestamp_type": "LogAppendTime"},
        batch((NOW, b"a"), (NOW, b"b"), attributes=0x08),
    ),
    "any timestamps where the broker's count": (
        {"message_timestamp_type": "LogAppendTime"},
        batch((NOW + DAY_MS, b"a"), (NOW, b"b")),
    ),
    "no keys where the broker's timestamps count": (
        {"message_timestamp_type": "LogAppendTime", "cleanup_policy": "compact"},
        batch((NOW, None), (NOW, b"b")),
    ),
    "fewer records than the header says": ({}, batch((NOW, b"a"), (NOW, b"b"), count=3, last_offset_delta=2)),
    "more records than the header says": ({}, batch((NOW, b"a"), (NOW, b"b"), count=1, last_offset_delta=0)),
    "fewer compressed records than the header says": (
        {},
        batch((NOW, b"a"), (NOW, b"b"), count=3, last_offset_delta=2, codec=Codec.GZIP),
    ),
    "more compressed records than the header says": (
        {},
        batch((NOW, b"a"), (NOW, b"b"), count=1, last_offset_delta=0, codec=Codec.GZIP),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_records_at_fault_are_named(both: Both, fault: str) -> None:
    configs, records = FAULTS[fault]
    topic = new_name()

    def scenario(connection: RawConnection) -> Any:
        return outcome(connection, create(connection, topic, **configs), records)

    theirs, ours = both(scenario)
    assert theirs == ours


# The number of replicas in sync


def test_min_insync_replicas_counts_no_more_replicas_than_there_are(both: Both) -> None:
    topic = new_name()

    def scenario(connection: RawConnection) -> Any:
        create(connection, topic, min_insync_replicas="3")
        return outcome(connection, topic, batch(*RECORDS), acks=-1)

    theirs, ours = both(scenario)
    assert [0, []] == theirs == ours


# What a client may do


@pytest.mark.parametrize("is_asked", [True, False])
@pytest.mark.parametrize("version", [8, 9, 10])
def test_authorized_operations_in_metadata(both: Both, version: int, is_asked: bool) -> None:
    topic = new_name()

    def scenario(connection: RawConnection) -> Any:
        create(connection, topic)
        answer = connection.ask(
            ApiKey.METADATA,
            version,
            {
                "topics": [{"name": topic}, {"name": f"no-{topic}"}],
                "allow_auto_topic_creation": False,
                "include_cluster_authorized_operations": is_asked,
                "include_topic_authorized_operations": is_asked,
            },
        )
        return answer.cluster_authorized_operations, [
            (each.name.replace(topic, "topic"), each.topic_authorized_operations)
            for each in sorted(answer.topics, key=lambda each: each.name)
        ]

    theirs, ours = both(scenario)
    assert theirs == ours


@pytest.mark.parametrize("is_asked", [True, False])
@pytest.mark.parametrize("version", [0, 1, 2])
def test_authorized_operations_of_the_cluster(both: Both, version: int, is_asked: bool) -> None:
    def scenario(connection: RawConnection) -> Any:
        values = {"include_cluster_authorized_operations": is_asked, "endpoint_type": 1}
        return connection.ask(ApiKey.DESCRIBE_CLUSTER, version, values).cluster_authorized_operations

    theirs, ours = both(scenario)
    assert theirs == ours


# Topics that are created because a client asked for them


@pytest.mark.parametrize("version", [0, 1, 4, 8, 9, 12, 13])
def test_a_topic_that_metadata_creates_is_in_the_first_answer(both: Both, version: int) -> None:
    """The one deliberate difference: Kafka has the client ask again.

    Every client copes with that, but some pass the error on to the program (sarama's Client.Partitions, kafka-go's
    Writer, kafka-rust), and the others lose a retry's time. No client can need the error: the topic may as well have
    been created by another client a moment before.
    """
    topic = new_name()

    def scenario(connection: RawConnection) -> Any:
        asked = {"topics": [{"name": topic}], "allow_auto_topic_creation": True}
        (first,) = connection.ask(ApiKey.METADATA, version, asked).topics
        wait_led(connection, topic)
        (second,) = connection.ask(ApiKey.METADATA, version, asked).topics
        return [(int(each.error_code), len(each.partitions)) for each in (first, second)]

    theirs, ours = both(scenario)
    assert [[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0], [ErrorCode.NONE, 1]] == theirs
    assert [[ErrorCode.NONE, 1], [ErrorCode.NONE, 1]] == ours


def test_a_topic_that_cannot_be_created(both: Both) -> None:
    def scenario(connection: RawConnection) -> Any:
        asked = {"topics": [{"name": name} for name in ("not/a/name", "")], "allow_auto_topic_creation": True}
        topics = connection.ask(ApiKey.METADATA, 9, asked).topics
        return sorted((each.name, int(each.error_code)) for each in topics)

    theirs, ours = both(scenario)
    assert theirs == ours


# What clients make of it

CLIENT_RECORDS: Final = 100


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_librdkafka_fails_the_records_at_fault_apart_from_the_others(
    kafkas_word: KafkasWord, ottla: OttlaBroker, codec: str
) -> None:
    def outcomes(broker: Broker) -> list[str | None]:
        with RawConnection(broker.bootstrap) as connection:
            topic = create(connection, new_name(), cleanup_policy="compact")
        producer = Producer(
            {"bootstrap.servers": broker.bootstrap, "linger.ms": 500, "compression.type": codec, "log_level": 0}
        )
        found: list[str | None] = [None] * CLIENT_RECORDS

        def noted(index: int) -> Any:
            def on_delivery(error: Any, message: Any) -> None:
                found[index] = None if error is None else error.name()

            return on_delivery

        for index in range(CLIENT_RECORDS):
            key = None if index % 10 == 3 else b"key"
            producer.produce(topic, b"value", key, partition=0, on_delivery=noted(index))
        assert 0 == producer.flush(DEADLINE_S)
        return found

    theirs, ours = kafkas_word(outcomes), outcomes(ottla)
    blamed = ["INVALID_RECORD" if index % 10 == 3 else "_INVALID_DIFFERENT_RECORD" for index in range(CLIENT_RECORDS)]
    assert blamed == theirs == ours


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_librdkafka_without_timestamps_is_not_taken_to_be_of_1970(
    kafkas_word: KafkasWord, ottla: OttlaBroker, codec: str
) -> None:
    def stored(broker: Broker) -> Any:
        with RawConnection(broker.bootstrap) as connection:
            topic = create(connection, new_name())
            producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 500, "compression.type": codec})
            for index in range(CLIENT_RECORDS):
                producer.produce(topic, b"value %d" % index, partition=0, timestamp=-1)
            assert 0 == producer.flush(DEADLINE_S)
            return stored_headers(connection, topic)

    theirs, ours = kafkas_word(stored), readable(stored(ottla))
    assert [[-1, -1, CODECS[codec], CLIENT_RECORDS]] == theirs == ours


def test_java_hears_which_records_are_at_fault(kafkas_word: KafkasWord, ottla: OttlaBroker) -> None:
    """Kafka's own console producer, whose log names the exception of each record."""

    def complaints(broker: Broker) -> dict[str, int]:
        with RawConnection(broker.bootstrap) as connection:
            topic = create(connection, new_name(), cleanup_policy="compact")
        lines = "".join(f"{'NULL' if index == 3 else index}\tvalue\n" for index in range(5))
        done = subprocess.run(
            java_command(
                "org.apache.kafka.tools.ConsoleProducer",
                *("--bootstrap-server", broker.bootstrap, "--topic", topic, "--timeout", "500"),
                *("--reader-property", "parse.key=true", "--reader-property", "null.marker=NULL"),
            ),
            input=lines,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        told = done.stdout + done.stderr
        return {name: told.count(f"errors.{name}") + told.count(f"common.{name}") for name in COMPLAINTS}

    theirs, ours = kafkas_word(complaints), complaints(ottla)
    assert theirs == ours
    assert 0 < sum(ours.values())


def test_a_client_that_sends_no_more_gets_its_responses(both: Both) -> None:
    """Also to a fetch that waits for records, and to what was sent behind it."""

    def scenario(connection: RawConnection) -> Any:
        topic = create(connection, new_name())
        produce(connection, topic, batch((NOW, b"a")))
        part = {"partition": 0, "fetch_offset": 1, "partition_max_bytes": 1 << 20, "current_leader_epoch": -1}
        waiting = {"max_wait": timedelta(milliseconds=500), "min_bytes": 1, "max_bytes": 1 << 20}
        fetch = {"replica_id": -1, "session_epoch": -1, "last_fetched_epoch": -1, **waiting}
        asked: list[tuple[ApiKey, int, dict[str, Any]]] = [
            (ApiKey.FETCH, FETCH_VERSION, {**fetch, "topics": [{"topic": topic, "partitions": [part]}]}),
            (ApiKey.METADATA, 9, {"topics": [{"name": topic}], "allow_auto_topic_creation": False}),
            (ApiKey.API_VERSIONS, 0, {}),
        ]
        connection.send(b"".join(request_frame(*each, correlation_id=at) for at, each in enumerate(asked)))
        connection.end_sending()
        answered = [read_response(api_key, version, connection.receive())[0] for api_key, version, _ in asked]
        return answered, connection.wait_closed()

    theirs, ours = both(scenario)
    assert [[0, 1, 2], "b''"] == theirs == ours
