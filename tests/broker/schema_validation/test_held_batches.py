"""Batches that wait for the registry while something else happens: none is lost, doubled, reordered or forgotten."""

import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as WireCode

from ottla.broker.schema_validation import held_batches, registry_questions, schema_ids, schema_ids_state
from ottla.client.admin.blocking_admin import Admin
from ottla.client.admin.values import ConfigResource
from ottla.protocol.apis import ApiKey
from ottla.protocol.config_resources import ResourceType
from ottla.records.layout import Codec
from ottla.registry.serde.framing import id_prefix
from ottla.testing import InProcessBroker
from tests.broker import inside
from tests.broker.metric_samples import value_of
from tests.broker.schema_validation.produce_requests import (
    VALUES,
    ask,
    batch,
    end_offset,
    frame,
    part,
    produce_request,
    produced,
    refused,
    set_registry,
    values,
)
from tests.broker.schema_validation.scripted_registry import NOT_FOUND, ScriptedRegistry
from tests.waiting import PATIENCE_SECONDS, wait_until
from tests.wire.exchange import RawConnection, request_frame

HELD = id_prefix(1)


@pytest.fixture
def registry(broker: InProcessBroker, topic_name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedRegistry]:
    """Has every schema under the subject of the topic. The broker waits for it as long as a test wants."""
    monkeypatch.setattr(registry_questions, "_TIMEOUT_SECONDS", float(PATIENCE_SECONDS))
    with ScriptedRegistry((200, f'["{topic_name}-value"]'.encode())) as scripted:
        set_registry(broker, scripted.url)
        broker.create_topic(topic_name, configs=VALUES)
        yield scripted
    assert 0 == inside.held_batches(broker.broker)
    assert 0 == value_of(broker.broker, "ottla_schema_validation_held_bytes")


def wait_held(broker: InProcessBroker, count: int = 1) -> None:
    wait_until(lambda: inside.held_batches(broker.broker) == count, lambda: inside.held_batches(broker.broker))


def test_batches_stay_in_order_when_validation_is_switched_off(
    broker: InProcessBroker, registry: ScriptedRegistry, topic_name: str
) -> None:
    registry.is_open.clear()
    with RawConnection(broker.bootstrap) as connection:
        connection.send(frame(topic_name, batch(*values(HELD))))
        wait_held(broker)
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            off = {"confluent.value.schema.validation": "false"}
            admin.alter_configs([ConfigResource(ResourceType.TOPIC, topic_name, off)])
        connection.send(frame(topic_name, batch(*values(b"later"))))
        wait_held(broker, 2)
        registry.is_open.set()
        assert [0, 1] == [part(connection.receive()).base_offset for _ in range(2)]


def test_a_lost_connection_does_not_append_twice(
    broker: InProcessBroker, registry: ScriptedRegistry, topic_name: str
) -> None:
    registry.is_open.clear()
    with RawConnection(broker.bootstrap) as other:
        producer = other.ask_newest(ApiKey.INIT_PRODUCER_ID, {"producer_id": -1, "producer_epoch": -1})
        names = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
        sent = [batch(*values(HELD), base_sequence=sequence, **names) for sequence in range(5)]
        with RawConnection(broker.bootstrap) as connection:
            for content in sent:
                connection.send(frame(topic_name, content))
            wait_held(broker, 5)
        for content in sent:
            other.send(frame(topic_name, content))
        wait_held(broker, 10)
        registry.is_open.set()
        answers = [part(other.receive()) for _ in sent]
    assert [(WireCode.none, at) for at in range(5)] == [(each.error_code, each.base_offset) for each in answers]
    assert 5 == end_offset(broker, topic_name)


def test_a_topic_that_is_deleted_answers_what_waits(
    broker: InProcessBroker, registry: ScriptedRegistry, topic_name: str
) -> None:
    registry.is_open.clear()
    with RawConnection(broker.bootstrap) as connection:
        connection.send(frame(topic_name, batch(*values(HELD))))
        wait_held(broker)
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            admin.delete_topics([topic_name])
        registry.is_open.set()
        assert WireCode.unknown_topic_or_partition is part(connection.receive()).error_code


@pytest.mark.parametrize("committed", [True, False])
def test_a_batch_does_not_outlive_its_transaction(
    broker: InProcessBroker, registry: ScriptedRegistry, topic_name: str, committed: bool
) -> None:
    with RawConnection(broker.bootstrap) as connection, RawConnection(broker.bootstrap) as other:
        timeout = {"transaction_timeout": timedelta(seconds=60)}
        init = {"transactional_id": topic_name, "producer_id": -1, "producer_epoch": -1, **timeout}
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            # Creates the coordinator's topic.
            other.ask_newest(ApiKey.FIND_COORDINATOR, {"key_type": 1, "coordinator_keys": [topic_name]})
            assert time.monotonic() < deadline
            producer = other.ask_newest(ApiKey.INIT_PRODUCER_ID, init)
            if producer.error_code is WireCode.none:
                break
        names = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}

        def transactional(sequence: int, value: bytes | None) -> bytes:
            content = batch(*values(value), base_sequence=sequence, transactional=True, **names)
            return request_frame(
                ApiKey.PRODUCE, 12, {**produce_request(topic_name, content), "transactional_id": topic_name}
            )

        # The transaction begins with a record that needs no look-up.
        connection.send(transactional(0, None))
        assert WireCode.none is part(connection.receive()).error_code
        registry.is_open.clear()
        connection.send(transactional(1, HELD))
        wait_held(broker)
        end = {"transactional_id": topic_name, "committed": committed, **names}
        assert WireCode.none is other.ask_newest(ApiKey.END_TXN, end).error_code
        registry.is_open.set()
        answer = part(connection.receive())
    assert answer.error_code in (WireCode.invalid_producer_epoch, WireCode.invalid_txn_state), answer
    # The first record and the marker.
    wait_until(lambda: end_offset(broker, topic_name) >= 2)
    assert 2 == end_offset(broker, topic_name)


def test_a_fault_does_not_stop_the_batches_behind(
    broker: InProcessBroker, registry: ScriptedRegistry, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.is_open.clear()
    with RawConnection(broker.bootstrap) as connection:
        for _ in range(2):
            connection.send(frame(topic_name, batch(*values(HELD))))
        wait_held(broker, 2)

        def fails(*_: Any) -> None:
            monkeypatch.undo()
            raise RuntimeError("a fault")

        monkeypatch.setattr(schema_ids.SchemaIds, "verdict", fails)
        registry.is_open.set()
        answers = [part(connection.receive()) for _ in range(2)]
    assert [WireCode.unknown_server_error, WireCode.none] == [each.error_code for each in answers]


@pytest.mark.parametrize("answer", [(404, b"<html>"), (302, b""), (200, b"{}"), (200, b"<html>"), (401, b"{}")])
def test_what_is_not_a_registrys_answer_is_not_final(
    broker: InProcessBroker, registry: ScriptedRegistry, topic_name: str, answer: tuple[int, bytes]
) -> None:
    registry.answer = answer
    found = produced(broker, topic_name, batch(*values(HELD)))
    assert WireCode.request_timed_out is found.error_code, found


def test_a_batch_with_many_ids_fails_at_once_while_the_registry_is_away(
    broker: InProcessBroker, registry: ScriptedRegistry, topic_name: str
) -> None:
    registry.answer = 401, b"{}"
    found = produced(broker, topic_name, batch(*values(*map(id_prefix, range(100)))))
    assert WireCode.request_timed_out is found.error_code
    assert len(registry.paths) <= 16


def test_invalid_records_and_different_ids_of_a_batch_are_bounded(
    broker: InProcessBroker, registry: ScriptedRegistry, topic_name: str
) -> None:
    many = batch(*values(*[b"{}", b"[]"] * 1_000), codec=Codec.ZSTD)
    answer = produced(broker, topic_name, many)
    assert list(range(1_000)) == [index for index, _ in refused(answer)]
    assert "1000 or more of 2000 records are invalid; record 0: value has no" in answer.error_message
    ids = batch(*values(*map(id_prefix, range(1_001))), codec=Codec.ZSTD)
    answer = produced(broker, topic_name, ids)
    assert [] == refused(answer)
    assert "more than 1000 different schema ids" in answer.error_message
    assert [] == registry.paths


def test_one_topic_does_not_take_all_look_ups(
    broker: InProcessBroker, registry: ScriptedRegistry, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_ids, "OPEN_QUESTIONS_MAX", 4)
    monkeypatch.setattr(schema_ids, "TOPIC_QUESTIONS_MAX", 2, raising=False)
    broker.create_topic(f"{topic_name}-2", configs=VALUES)
    registry.answer = 200, f'["{topic_name}-value", "{topic_name}-2-value"]'.encode()
    registry.is_open.clear()
    with RawConnection(broker.bootstrap) as hostile, RawConnection(broker.bootstrap) as other:
        hostile.send(frame(topic_name, batch(*values(id_prefix(1), id_prefix(2)))))
        wait_held(broker)
        answer = ask(other, topic_name, batch(*values(id_prefix(3))))
        assert WireCode.request_timed_out is answer.error_code
        other.send(frame(f"{topic_name}-2", batch(*values(id_prefix(3)))))
        wait_held(broker, 2)
        registry.is_open.set()
        assert WireCode.none is part(other.receive()).error_code
        assert WireCode.none is part(hostile.receive()).error_code


def test_one_connection_does_not_take_all_memory(
    broker: InProcessBroker, registry: ScriptedRegistry, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = batch(*values(HELD + bytes(1_000)))
    monkeypatch.setattr(held_batches, "CONNECTION_BYTES_MAX", len(content) - 1, raising=False)
    registry.is_open.clear()
    with RawConnection(broker.bootstrap) as hostile, RawConnection(broker.bootstrap) as other:
        # One batch may always wait, however large it is.
        hostile.send(frame(topic_name, content) * 2)
        wait_held(broker)
        other.send(frame(topic_name, content))
        wait_held(broker, 2)
        registry.is_open.set()
        codes = [part(hostile.receive()).error_code for _ in range(2)]
        assert [WireCode.none, WireCode.request_timed_out] == codes
        assert WireCode.none is part(other.receive()).error_code


def test_a_deleted_schema_is_refused_after_a_while(
    broker: InProcessBroker, registry: ScriptedRegistry, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_ids_state, "VALID_SECONDS", 0.0, raising=False)
    monkeypatch.setattr(schema_ids_state, "VALID_RETRY_SECONDS", 0.0, raising=False)
    monkeypatch.setattr(schema_ids, "_CONFIRM_SECONDS", 0.0)
    content = batch(*values(HELD))
    assert WireCode.none is produced(broker, topic_name, content).error_code
    # Valid ids stay valid while the registry is away.
    registry.answer = 401, b"{}"

    def failed_lookups() -> float:
        return value_of(broker.broker, "ottla_schema_validation_lookups_total", result="failed")

    before = failed_lookups()
    while failed_lookups() == before:
        assert WireCode.none is produced(broker, topic_name, content).error_code
    registry.answer = NOT_FOUND
    wait_until(lambda: produced(broker, topic_name, content).error_code is not WireCode.none)
    assert [(0, "value: schema 1 is not registered")] == refused(produced(broker, topic_name, content))
    assert 2 <= value_of(
        broker.broker, "ottla_schema_validation_refused_batches_total", topic=topic_name, reason="invalid"
    )
