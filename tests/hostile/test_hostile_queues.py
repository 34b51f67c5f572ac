"""Bad input to queues: refused with the header's name, or a dead letter; nothing in silence, and at no great cost."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, Final
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from ottla import AsyncProducer
from ottla.model.queue_names import (
    BROKER_HEADERS,
    DEAD,
    DELAY_CANCEL,
    DELAY_ID,
    DELAY_MS,
    DELAY_REPLACE,
    DELIVER_AT_MS,
    DUE_MS,
    HALF_CHECKS,
    ORIGIN,
    RETRY_ATTEMPT,
    RETRY_ORIGIN,
    RETRY_TOKEN,
    dead_letter_topic,
    delayed_topic,
    redelivery_topic,
    retry_topic,
)
from ottla.protocol.apis import ApiKey
from ottla.records.batch import scan
from ottla.records.builder import BatchBuilder
from ottla.records.decode import decode_records
from ottla.records.layout import Codec
from ottla.records.record import Headers, Record
from tests.broker_process import BrokerProcess
from tests.hostile.batches import BOMBS, batch_around, lying_batches, small_batch
from tests.hostile.bystander import Bystander
from tests.hostile.conftest import GROWTH_BYTES_MAX
from tests.hostile.requests import SPAN
from tests.processes import OTTLA, run
from tests.waiting import wait_until
from tests.wire.exchange import RawConnection
from tests.wire.world import create_topic, end_offset, unused_name, wait_served

BOMB_BYTES: Final = 1 << 30
GROUP: Final = "workers"
YEAR_MS: Final = 31_622_400_000
HEADERS_MANY: Final = 50_000
RECORDS_MANY: Final = 20_000
MANY_SECONDS: Final = 10.0
NOW: Final = time.time_ns() // 1_000_000

MALFORMED: Final[list[tuple[Headers, str]]] = [
    *(
        (((name, value),), name)
        for name in (DELAY_MS, DELIVER_AT_MS)
        for value in (b"", b"soon", b"-1", b"1.5", b"1e3", b" 1", b"1 ", b"+1", b"0x10", b"\xff\xfe", b"\0", b"9" * 19)
    ),
    (((DELAY_MS, None),), DELAY_MS),
    (((DELAY_MS, b"9" * 400),), DELAY_MS),
    (((DELAY_MS, b"%d" % (1 << 63)),), DELAY_MS),
    (((DELAY_MS, b"%d" % (YEAR_MS + 1)),), "ottla.delay.max.ms"),
    (((DELIVER_AT_MS, b"%d" % (NOW + 2 * YEAR_MS)),), "ottla.delay.max.ms"),
    (((DELAY_MS, b"1"), (DELIVER_AT_MS, b"1")), DELIVER_AT_MS),
    (((DELAY_CANCEL, b"x"), (DELAY_MS, b"1")), DELAY_CANCEL),
    (((DELAY_CANCEL, b"x"), (DELAY_ID, b"x")), DELAY_CANCEL),
    (((DELAY_CANCEL, b""),), DELAY_CANCEL),
    (((DELAY_CANCEL, b"x" * 256),), DELAY_CANCEL),
    (((DELAY_ID, b"\xff"),), DELAY_ID),
    (((DELAY_ID, b"x"), (DELAY_REPLACE, b"yes")), DELAY_REPLACE),
    (((DELAY_REPLACE, b"true"),), DELAY_REPLACE),
]


def batch_of(*headers: Headers, codec: Codec = Codec.NONE) -> bytes:
    """A record for each."""
    builder = BatchBuilder(codec=codec)
    for number, some in enumerate(headers):
        builder.append(NOW, b"%d" % number, b"value %d" % number, some)
    return bytes(builder.build())


def topic_id_of(connection: RawConnection, name: str, *, creates: bool = False) -> UUID | None:
    """The id of a topic; None if there is none."""
    wanted = {"topics": [{"name": name}], "allow_auto_topic_creation": creates}
    (topic,) = connection.ask_newest(ApiKey.METADATA, wanted).topics
    return UUID(str(topic.topic_id)) if topic.error_code is ErrorCode.none else None


def companion(connection: RawConnection, name: str, *, creates: bool = False) -> UUID:
    """The id of a companion, once it is served."""
    found: list[UUID] = []

    def is_there() -> bool:
        topic_id = topic_id_of(connection, name, creates=creates)
        found.extend([] if topic_id is None else [topic_id])
        return bool(found)

    wait_until(is_there, f"companion {name}")
    wait_served(connection, found[0], 1)
    return found[0]


def delayed(connection: RawConnection, **configs: str) -> tuple[str, UUID]:
    """A new topic with delayed delivery, and the id of its companion."""
    name = unused_name()
    create_topic(connection, name, 1, ottla_delay_enable="true", **configs)
    return name, companion(connection, delayed_topic(name))


def retried(connection: RawConnection) -> tuple[str, UUID]:
    """A new topic with retry, and the id of the companion that takes records back."""
    name = unused_name()
    create_topic(connection, name, 1, ottla_retry_enable="true", ottla_retry_backoff_ms="1")
    return name, companion(connection, retry_topic(name, GROUP), creates=True)


def sent(connection: RawConnection, topic_id: UUID, content: bytes) -> Any:
    """What became of a batch."""
    part = {"index": 0, "records": content}
    values = {"acks": -1, "timeout": SPAN * 50, "topic_data": [{"topic_id": topic_id, "partition_data": [part]}]}
    (topic,) = connection.ask_newest(ApiKey.PRODUCE, values).responses
    return topic.partition_responses[0]


def arrived(connection: RawConnection, topic: str, count: int) -> Sequence[Record]:
    """The first records of a topic, once there are as many."""
    wait_until(lambda: end_offset(connection, topic) >= count, f"{count} records in {topic}")
    topic_id = companion(connection, topic)
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 64 << 20, "log_start_offset": -1}
    request = {"max_wait": SPAN, "min_bytes": 1, "max_bytes": 64 << 20, "session_epoch": -1, "replica_id": -1}
    wanted = {**request, "topics": [{"topic_id": topic_id, "partitions": [part]}]}
    (found,) = connection.ask_newest(ApiKey.FETCH, wanted).responses[0].partitions
    return [record for each in scan(found.records)[0] for record in decode_records(each)]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_malformed_headers_are_refused_by_name(broker: BrokerProcess, codec: Codec) -> None:
    with RawConnection(broker.address) as connection:
        topic, topic_id = delayed(connection)
        good: Headers = ((DELAY_MS, b"1"),)
        for headers, name in MALFORMED:
            answer = sent(connection, topic_id, batch_of(good, headers, good, codec=codec))
            assert ErrorCode.invalid_record is answer.error_code, headers
            ((index, message),) = [(each.batch_index, each.batch_index_error_message) for each in answer.record_errors]
            assert 1 == index, headers
            assert name in message, message
        assert 0 == end_offset(connection, delayed_topic(topic)), "nothing of these batches is stored"
        assert ErrorCode.none is sent(connection, topic_id, batch_of(good)).error_code
        assert 1 == len(arrived(connection, topic, 1))


def test_random_headers_are_stored_or_refused_with_a_reason(broker: BrokerProcess) -> None:
    random = Random(11)
    names = (DELAY_MS, DELIVER_AT_MS, DELAY_ID, DELAY_CANCEL, DELAY_REPLACE, *BROKER_HEADERS, RETRY_ORIGIN, "other")
    values = (None, b"", b"0", b"1", b"-1", b"true", b"x", b"\xff", b"9" * 25, b"t/0/1", b"\x00" * 300)
    with RawConnection(broker.address) as connection:
        topics = (delayed(connection), retried(connection))
        for _ in range(400):
            made = tuple(
                tuple((random.choice(names), random.choice(values)) for _ in range(random.randrange(6)))
                for _ in range(random.randint(1, 4))
            )
            _, topic_id = random.choice(topics)
            answer = sent(connection, topic_id, batch_of(*made, codec=random.choice((Codec.NONE, Codec.LZ4))))
            assert answer.error_code in (ErrorCode.none, ErrorCode.invalid_record), made
            assert (ErrorCode.none is answer.error_code) == (not answer.record_errors), made


def test_broker_headers_of_clients_are_removed(broker: BrokerProcess) -> None:
    """A client cannot say that its record is due, was parked elsewhere, or is dead."""
    forged: Headers = ((DUE_MS, b"0"), (ORIGIN, b"a/0/0"), (HALF_CHECKS, b"0"), (DEAD, b"so"), (DELAY_MS, b"300"))
    with RawConnection(broker.address) as connection:
        topic, topic_id = delayed(connection)
        before = time.time_ns() // 1_000_000
        assert ErrorCode.none is sent(connection, topic_id, batch_of(forged)).error_code
        (record,) = arrived(connection, topic, 1)
        assert time.time_ns() // 1_000_000 >= before + 300, "early"
        names = [name for name, _ in record.headers]
        assert len(names) == len(set(names))
        headers = dict(record.headers)
        assert f"{delayed_topic(topic)}/0/0".encode() == headers[ORIGIN]
        assert int(headers[DUE_MS] or b"0") >= before + 300
        assert not {HALF_CHECKS, DEAD} & headers.keys()


def test_forged_attempts_are_dead_letters(broker: BrokerProcess) -> None:
    forged: list[Headers] = [
        ((RETRY_ATTEMPT, b"0"), (RETRY_TOKEN, b"0" * 32), (DUE_MS, b"1")),
        ((RETRY_ATTEMPT, b"-5"),),
        ((RETRY_TOKEN, b"\xff"),),
        ((RETRY_ATTEMPT, b"9" * 30), (RETRY_TOKEN, b"")),
    ]
    with RawConnection(broker.address) as connection:
        topic, topic_id = retried(connection)
        assert ErrorCode.none is sent(connection, topic_id, batch_of(*forged, ())).error_code
        letters = arrived(connection, dead_letter_topic(topic), len(forged))
        assert [b"value %d" % at for at in range(len(forged))] == [each.value for each in letters]
        assert all(b"changed by a client" in (dict(each.headers)["__dlq.errors.message"] or b"") for each in letters)
        (back,) = arrived(connection, redelivery_topic(topic, GROUP), 1)
        assert (b"value 4", b"1") == (back.value, dict(back.headers)[RETRY_ATTEMPT])


def test_many_headers_and_many_ids_cost_little(broker: BrokerProcess) -> None:
    many: Headers = (*((f"h{at % 7}", b"%d" % at) for at in range(HEADERS_MANY)), (DELAY_MS, b"1"))
    repeated: Headers = tuple((DELAY_MS, b"1") for _ in range(HEADERS_MANY))
    contradicting: Headers = (*repeated, (DELAY_MS, b"2"))
    ids: list[Headers] = [((DELAY_ID, b"%0255d" % at), (DELAY_REPLACE, b"true")) for at in range(RECORDS_MANY)]
    with Bystander(broker.address) as bystander, RawConnection(broker.address) as connection:
        topic, topic_id = delayed(connection, max_message_bytes=str(64 << 20))
        broker.forget_peak()
        before = broker.resident_bytes()
        began = time.monotonic()
        refused = sent(connection, topic_id, batch_of(contradicting))
        assert ErrorCode.invalid_record is refused.error_code
        assert f"{DELAY_MS} is repeated with different values" in str(refused.error_message)
        for content in (batch_of(many), batch_of(repeated), batch_of(*ids)):
            answer = sent(connection, topic_id, content)
            assert ErrorCode.none is answer.error_code, answer.error_message
        seconds = time.monotonic() - began
        wait_until(lambda: end_offset(connection, topic) == 2 + RECORDS_MANY, "all records")
    grown = broker.peak_bytes() - before
    print(f"{seconds:.2f} s to park them, grown by {grown >> 20} MiB")
    assert seconds < MANY_SECONDS
    assert grown < GROWTH_BYTES_MAX
    bystander.check(pace=False)


@pytest.mark.parametrize("codec", BOMBS)
def test_bombs_to_companions_do_not_burst(broker: BrokerProcess, codec: Codec) -> None:
    """A gigabyte of zeros in some kilobytes: refused, without ever being there."""
    bomb = batch_around(codec, BOMBS[codec](BOMB_BYTES))
    with Bystander(broker.address) as bystander, RawConnection(broker.address) as connection:
        made = (delayed(connection), retried(connection))
        broker.forget_peak()
        before = broker.resident_bytes()
        for name, (topic, topic_id) in zip(("delayed", f"{GROUP}.retry"), made, strict=True):
            answer = sent(connection, topic_id, bomb)
            assert ErrorCode.none is not answer.error_code
            assert answer.error_message
            assert 0 == end_offset(connection, f"{topic}.{name}")
    assert broker.peak_bytes() - before < GROWTH_BYTES_MAX
    bystander.check(pace=False)


def test_nothing_of_a_lying_batch_is_parked(broker: BrokerProcess) -> None:
    with RawConnection(broker.address) as connection:
        for name, (topic, topic_id) in (("delayed", delayed(connection)), (f"{GROUP}.retry", retried(connection))):
            for lie, content in lying_batches(Random(5)).items():
                assert ErrorCode.none is not sent(connection, topic_id, content).error_code, lie
            assert 0 == end_offset(connection, f"{topic}.{name}")
            assert ErrorCode.none is sent(connection, topic_id, small_batch(Random(6))).error_code


@pytest.mark.parametrize("codec", BOMBS)
def test_damaged_compression_is_not_parked(broker: BrokerProcess, codec: Codec) -> None:
    random = Random(7)
    with RawConnection(broker.address) as connection:
        _, topic_id = delayed(connection)
        for _ in range(100):
            payload = bytearray(small_batch(random, codec=codec)[61:])
            for _ in range(random.randint(1, 3)):
                payload[random.randrange(len(payload))] = random.getrandbits(8)
            del payload[random.randrange(len(payload)) + 1 :]
            answer = sent(connection, topic_id, batch_around(codec, bytes(payload), random.choice((1, 2, 1000))))
            assert (ErrorCode.none is answer.error_code) == (answer.error_message is None)


def test_retry_of_a_missing_topic_is_refused(tmp_path: Path) -> None:
    """Companions are created for topics with retry, whatever auto.create.topics.enable says; others are unknown."""
    settings = {"auto.create.topics.enable": "false"}
    with BrokerProcess(tmp_path, settings=settings) as broker, RawConnection(broker.address) as connection:
        assert retried(connection)
        plain = unused_name()
        create_topic(connection, plain, 1)
        for topic in (plain, unused_name()):
            name = retry_topic(topic, GROUP)
            assert None is topic_id_of(connection, name, creates=True)
            part = {"index": 0, "records": small_batch(Random(1))}
            values = {"acks": -1, "timeout": SPAN, "topic_data": [{"name": name, "partition_data": [part]}]}
            (answer,) = connection.ask(ApiKey.PRODUCE, 12, values).responses
            assert ErrorCode.unknown_topic_or_partition is answer.partition_responses[0].error_code


def test_redrive_into_itself_is_refused(broker: BrokerProcess) -> None:
    async def reject() -> None:
        async with AsyncProducer(bootstrap_servers=broker.address) as producer:
            await producer.send_and_wait(
                retry_topic(topic, GROUP), b"bad", headers=[("ottla.retry.reject", b"no")], partition=0
            )

    with RawConnection(broker.address) as connection:
        topic, _ = retried(connection)
        asyncio.run(reject())
        letters = dead_letter_topic(topic)
        arrived(connection, letters, 1)
        redrive = [*OTTLA, "queues", "dead-letters", "redrive", letters, "--to", letters, "--yes"]
        assert "into itself" in run([*redrive, "--bootstrap", broker.address], status=2).stderr
        assert 1 == end_offset(connection, letters)
