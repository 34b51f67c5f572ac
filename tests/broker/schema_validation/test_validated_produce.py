"""Produce to topics with schema validation, on a real broker and a real registry: what is refused, and how."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import confluent_kafka
import pytest
from kio.schema.errors import ErrorCode as WireCode

from ottla.broker.schema_validation import registry_questions, schema_ids_state
from ottla.client.admin.blocking_admin import Admin
from ottla.client.admin.values import ConfigResource
from ottla.client.producer.blocking_producer import Producer
from ottla.model.error_codes import ErrorCode
from ottla.protocol.answer_errors import AnswerError
from ottla.protocol.apis import ApiKey
from ottla.protocol.config_resources import ResourceType
from ottla.records.layout import Codec
from ottla.registry.schemas.schema import JSON, PROTOBUF, Schema
from ottla.registry.serde import AvroSerializer, RegistryClient
from ottla.registry.serde.framing import guid_header, id_prefix
from ottla.testing import InProcessBroker
from ottla.testing.free_ports import free_port
from tests.broker.metric_samples import value_of
from tests.broker.registry.service.registry_thread import RegistryThread
from tests.broker.schema_validation.produce_requests import (
    URL,
    VALUES,
    ask,
    batch,
    end_offset,
    frame,
    part,
    produced,
    refused,
    set_registry,
    values,
)
from tests.waiting import wait_until
from tests.wire.exchange import RawConnection

ORDER = Schema(
    text='{"type": "record", "name": "Order", "namespace": "shop", "fields": [{"name": "id", "type": "int"}]}'
)
OTHER = Schema(text='{"type": "record", "name": "Other", "fields": [{"name": "id", "type": "int"}]}')
KEYS = {"confluent.key.schema.validation": "true"}
UNKNOWN = id_prefix(999_999)


@pytest.fixture(scope="module")
def registry_url(broker: InProcessBroker) -> Iterator[str]:
    """A registry that the broker is told of by a dynamic config."""
    with RegistryThread(broker.bootstrap) as running:
        set_registry(broker, running.url)
        yield running.url


@pytest.fixture
def registry(broker: InProcessBroker, registry_url: str) -> Iterator[RegistryClient]:
    with RegistryClient(registry_url) as client:
        yield client
    set_registry(broker, registry_url)


# What passes


def test_registered_ids_pass_and_so_does_null(
    broker: InProcessBroker, registry: RegistryClient, topic_name: str
) -> None:
    broker.create_topic(topic_name, configs=VALUES)
    valid = id_prefix(registry.register(f"{topic_name}-value", ORDER).id) + b"\2"
    answer = produced(broker, topic_name, batch(*values(valid, None, valid), (b"key", valid, ()), codec=Codec.ZSTD))
    assert (WireCode.none, 4) == (answer.error_code, end_offset(broker, topic_name))


def test_a_guid_in_the_header_passes(broker: InProcessBroker, registry: RegistryClient, topic_name: str) -> None:
    broker.create_topic(topic_name, configs=VALUES)
    registry.register(f"{topic_name}-value", ORDER)
    guid = registry.version(f"{topic_name}-value").guid
    assert guid is not None
    header, unknown = guid_header(guid, is_key=False), guid_header(UUID(int=7), is_key=False)
    answer = produced(broker, topic_name, batch((None, b"\2", (header,))))
    assert WireCode.none is answer.error_code
    # The header counts, whatever the value begins with.
    answer = produced(broker, topic_name, batch((None, b"\2", (header,)), (None, UNKNOWN, (unknown,))))
    assert [(1, f"value: schema {UUID(int=7)} is not registered")] == refused(answer)


def test_our_serializer_passes(broker: InProcessBroker, registry: RegistryClient, topic_name: str) -> None:
    broker.create_topic(topic_name, configs=VALUES)
    for place in ("prefix", "header"):
        serializer = AvroSerializer(registry, ORDER, id_place=place)
        with Producer(bootstrap_servers=broker.bootstrap, value_serializer=serializer) as producer:
            assert producer.send(topic_name, {"id": 1}).get(20).offset >= 0


# What is refused


def test_each_invalid_record_is_named(broker: InProcessBroker, registry: RegistryClient, topic_name: str) -> None:
    broker.create_topic(topic_name, configs=VALUES)
    valid = id_prefix(registry.register(f"{topic_name}-value", ORDER).id) + b"\2"
    elsewhere = registry.register(f"{topic_name}-elsewhere", OTHER).id
    content = batch(*values(valid, b"{}", b"", UNKNOWN, UNKNOWN, None, id_prefix(elsewhere)), codec=Codec.LZ4)
    no_id = "but 00 and the id must come first, or a header __value_schema_id"
    # Without an id, the registry is not asked: the other records are not looked at yet.
    assert [
        (1, f"value has no schema id: it begins with 7b7d, {no_id}"),
        (2, f"value has no schema id: it is empty, {no_id}"),
    ] == refused(produced(broker, topic_name, content))
    content = batch(*values(valid, UNKNOWN, UNKNOWN, None, id_prefix(elsewhere)))
    answer = produced(broker, topic_name, content)
    assert [
        (1, "value: schema 999999 is not registered"),
        (2, "value: schema 999999 is not registered"),
        (4, f"value: schema {elsewhere} is not registered under subject {topic_name}-value"),
    ] == refused(answer)
    assert "3 of 5 records are invalid; record 1: value: schema 999999 is not registered" == answer.error_message
    assert 0 == end_offset(broker, topic_name)


def test_keys_and_values_are_checked_on_their_own(
    broker: InProcessBroker, registry: RegistryClient, topic_name: str
) -> None:
    broker.create_topic(topic_name, configs=KEYS)
    valid = id_prefix(registry.register(f"{topic_name}-key", ORDER).id)
    assert WireCode.none is produced(broker, topic_name, batch((valid, b"any", ()), (None, b"any", ()))).error_code
    answer = produced(broker, topic_name, batch((valid, b"any", ()), (b"any", valid, ())))
    assert [1] == [index for index, _ in refused(answer)]
    assert "key has no schema id: it begins with 616e79" in answer.error_message


@pytest.mark.parametrize("prefix", ["", "io.confluent.kafka.serializers.subject."])
@pytest.mark.parametrize(
    ("schema", "name"),
    [
        (ORDER, "shop.Order"),
        (Schema(text='{"title": "Order", "type": "object"}', type=JSON), "Order"),
        (Schema(text='syntax = "proto3"; package p; message A { message B {} }', type=PROTOBUF), "p.A.B"),
    ],
)
def test_subjects_may_be_named_after_records(
    broker: InProcessBroker, registry: RegistryClient, topic_name: str, schema: Schema, name: str, prefix: str
) -> None:
    def answer(strategy: str) -> Any:
        return produced(broker, topic_name + strategy, batch(*values(valid)))

    for strategy in ("RecordNameStrategy", "TopicRecordNameStrategy"):
        configs = {**VALUES, "confluent.value.subject.name.strategy": prefix + strategy}
        broker.create_topic(topic_name + strategy, configs=configs)
    valid = id_prefix(registry.register(f"{topic_name}TopicRecordNameStrategy-{name}", schema).id)
    assert WireCode.none is answer("TopicRecordNameStrategy").error_code
    registry.register(name, schema)
    assert WireCode.none is answer("RecordNameStrategy").error_code
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        configs = {**VALUES, "confluent.value.subject.name.strategy": "TopicNameStrategy"}
        admin.alter_configs([ConfigResource(ResourceType.TOPIC, f"{topic_name}RecordNameStrategy", configs)])
    assert f"under subject {topic_name}RecordNameStrategy-value" in answer("RecordNameStrategy").error_message


def test_an_id_is_valid_soon_after_it_was_registered(
    broker: InProcessBroker, registry: RegistryClient, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_ids_state, "REFUSED_SECONDS", 0.5)
    broker.create_topic(topic_name, configs=VALUES)
    elsewhere = registry.register(f"{topic_name}-elsewhere", ORDER).id
    content = batch(*values(id_prefix(elsewhere)))
    assert [0] == [index for index, _ in refused(produced(broker, topic_name, content))]
    registry.register(f"{topic_name}-value", ORDER)
    wait_until(lambda: produced(broker, topic_name, content).error_code is WireCode.none, "it is looked up again")


def test_a_refused_batch_does_not_advance_the_sequence(
    broker: InProcessBroker, registry: RegistryClient, topic_name: str
) -> None:
    broker.create_topic(topic_name, configs=VALUES)
    valid = id_prefix(registry.register(f"{topic_name}-value", ORDER).id)
    with RawConnection(broker.bootstrap) as connection:
        (producer,) = [connection.ask_newest(ApiKey.INIT_PRODUCER_ID, {"producer_id": -1, "producer_epoch": -1})]
        names = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
        for value, sequence, expected in (
            (valid, 0, WireCode.none),
            (UNKNOWN, 1, WireCode.invalid_record),
            (valid, 2, WireCode.out_of_order_sequence_number),
            (valid, 1, WireCode.none),
        ):
            content = batch(*values(value), base_sequence=sequence, **names)
            assert expected is ask(connection, topic_name, content).error_code
    assert 2 == end_offset(broker, topic_name)


def test_transactions_are_checked(broker: InProcessBroker, registry: RegistryClient, topic_name: str) -> None:
    broker.create_topic(topic_name, configs=VALUES)
    valid = id_prefix(registry.register(f"{topic_name}-value", ORDER).id)
    with Producer(bootstrap_servers=broker.bootstrap, transactional_id=topic_name) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        assert 0 == producer.send(topic_name, valid).get(20).offset
        with pytest.raises(AnswerError, match="schema 999999 is not registered") as raised:
            producer.send(topic_name, UNKNOWN).get(20)
        assert ErrorCode.INVALID_RECORD is raised.value.error_code
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send(topic_name, valid)
        producer.commit_transaction()


def test_what_is_parked_for_a_topic_is_checked(
    broker: InProcessBroker, registry: RegistryClient, topic_name: str
) -> None:
    broker.create_topic(topic_name, configs={**VALUES, "ottla.delay.enable": "true"})
    valid = id_prefix(registry.register(f"{topic_name}-value", ORDER).id)
    answer = produced(broker, f"{topic_name}.delayed", batch(*values(valid, b"{}")))
    assert [1] == [index for index, _ in refused(answer)]
    assert WireCode.none is produced(broker, f"{topic_name}.delayed", batch(*values(valid))).error_code
    # The broker delivers what it has accepted.
    wait_until(lambda: end_offset(broker, topic_name) >= 1, "it is delivered")


# Without a registry


def test_validation_needs_a_registry(broker: InProcessBroker, registry: RegistryClient, topic_name: str) -> None:
    broker.create_topic(topic_name, configs=VALUES)
    valid = id_prefix(registry.register(f"{topic_name}-value", ORDER).id)
    assert WireCode.none is produced(broker, topic_name, batch(*values(valid))).error_code
    set_registry(broker)
    answer = produced(broker, topic_name, batch(*values(valid)))
    assert WireCode.invalid_config is answer.error_code
    assert "set the broker config confluent.schema.registry.url" in answer.error_message
    with pytest.raises(AnswerError, match="schema validation needs a registry") as raised:
        broker.create_topic(f"{topic_name}-2", configs=VALUES)
    assert ErrorCode.INVALID_CONFIG is raised.value.error_code
    with (
        Admin(bootstrap_servers=broker.bootstrap) as admin,
        pytest.raises(AnswerError, match="schema validation needs a registry"),
    ):
        admin.alter_configs([ConfigResource(ResourceType.TOPIC, topic_name, KEYS)])


def test_an_unreachable_registry_gives_a_retriable_error(
    broker: InProcessBroker, registry: RegistryClient, topic_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create_topic(topic_name, configs=VALUES)
    valid = id_prefix(registry.register(f"{topic_name}-value", ORDER).id)
    closed = f"http://127.0.0.1:{free_port()}"
    set_registry(broker, closed)
    answer = produced(broker, topic_name, batch(*values(valid)))
    assert WireCode.request_timed_out is answer.error_code
    assert "cannot check the schema ids, so nothing was written" in answer.error_message
    assert closed in answer.error_message
    # Records without an id are refused, without asking.
    assert [0] == [index for index, _ in refused(produced(broker, topic_name, batch(*values(b"{}"))))]
    assert 0 == end_offset(broker, topic_name)
    assert [1] == [caplog.text.count(f"schema validation: {closed}: no schema registry could be reached")]


def test_batches_that_wait_keep_their_order_and_hold_up_nobody_else(
    broker: InProcessBroker,
    registry: RegistryClient,
    registry_url: str,
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry_questions, "_TIMEOUT_SECONDS", 60.0)
    broker.create_topic(topic_name, configs=VALUES)
    first = id_prefix(registry.register(f"{topic_name}-value", ORDER).id)
    second = b"\1" + registry.version(f"{topic_name}-value").guid.bytes  # type: ignore[union-attr]
    with socket.create_server(("127.0.0.1", 0)) as silent, RawConnection(broker.bootstrap) as other:
        # The first instance does not answer; when its connections are lost, the next one is asked.
        set_registry(broker, f"http://127.0.0.1:{silent.getsockname()[1]}", registry_url)
        with RawConnection(broker.bootstrap) as connection:
            for content in (
                batch(*values(first + b"1")),
                batch(*values(b"{}")),
                batch(*values(None)),
                batch(*values(second + b"2")),
            ):
                connection.send(frame(topic_name, content))
            # Another connection does not wait: neither for what needs no look-up, nor for other APIs.
            assert [0] == [index for index, _ in refused(ask(other, topic_name, batch(*values(b"plain"))))]
            assert 0 == ask(other, topic_name, batch(*values(None))).base_offset
            silent.close()
            answers = [part(connection.receive()) for _ in range(4)]
        assert [1, -1, 2, 3] == [each.base_offset for each in answers]
        assert WireCode.invalid_record is answers[1].error_code


def test_a_broker_that_stops_answers_batches_that_wait(tmp_path: Path, topic_name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with InProcessBroker(tmp_path, {URL: url}) as broker:
            broker.create_topic(topic_name, configs=VALUES)
            with RawConnection(broker.bootstrap) as connection:
                connection.send(frame(topic_name, batch(*values(UNKNOWN))))
                silent.accept()
                stopping = threading.Thread(target=broker.stop)
                stopping.start()
                answer = part(connection.receive())
                assert WireCode.request_timed_out is answer.error_code
                assert "shutting down" in answer.error_message
            stopping.join()


# What librdkafka's producer sees


@pytest.mark.parametrize("idempotent", [False, True])
def test_librdkafka_is_told_which_records_are_invalid(
    broker: InProcessBroker, registry: RegistryClient, topic_name: str, idempotent: bool
) -> None:
    broker.create_topic(topic_name, configs=VALUES)
    valid = id_prefix(registry.register(f"{topic_name}-value", ORDER).id) + b"\2"
    outcomes: list[int | str] = []

    def on_delivery(error: Any, message: Any) -> None:
        outcomes.append(message.offset() if error is None else error.name())

    settings = {"bootstrap.servers": broker.bootstrap, "enable.idempotence": idempotent}
    producer = confluent_kafka.Producer(settings)
    for value in (valid, b'{"id": 1}', valid):
        producer.produce(topic_name, value, on_delivery=on_delivery)
        producer.flush(60)
    assert [0, "INVALID_RECORD", 1] == outcomes


def test_librdkafka_tries_again_while_the_registry_is_away(
    broker: InProcessBroker, registry: RegistryClient, registry_url: str, topic_name: str
) -> None:
    broker.create_topic(topic_name, configs=VALUES)
    valid = id_prefix(registry.register(f"{topic_name}-value", ORDER).id) + b"\2"
    closed = f"http://127.0.0.1:{free_port()}"
    set_registry(broker, closed)
    outcomes: list[Any] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic_name, valid, on_delivery=lambda error, message: outcomes.append((error, message.offset())))
    before = value_of(broker.broker, "ottla_produce_failed_total")
    while value_of(broker.broker, "ottla_produce_failed_total") < before + 2:
        producer.poll(0.05)
    assert [] == outcomes
    set_registry(broker, registry_url)
    producer.flush(60)
    assert [(None, 0)] == outcomes
