"""confluent-kafka (librdkafka) as a client program. It has no call for log dirs."""

import sys
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.compat.clients.programs.command_loop import commands_of, row_of, run, to_bytes, to_headers
from tests.compat.clients.programs.confluent_groups import Groups
from tests.compat.clients.programs.confluent_transactions import Transactions

TIMEOUT_S = 75


class Program:
    """One admin client; producers and consumers by number."""

    def __init__(self, bootstrap: str) -> None:
        self._settings: dict[str, Any] = {"bootstrap.servers": bootstrap}
        self._admin = AdminClient(self._settings)
        self._producers: dict[int, Any] = {}
        self._consumers: dict[int, Any] = {}

    def open_producer(
        self,
        id: int,
        codec: str,
        idempotent: bool | None,
        request_bytes_max: int | None,
        login: dict[str, Any] | None = None,
    ) -> None:
        settings = {**self._settings, **_secured(login), "compression.type": codec}
        if idempotent is not None:
            settings["enable.idempotence"] = idempotent
        if request_bytes_max is not None:
            settings["message.max.bytes"] = request_bytes_max
        self._producers[id] = Producer(settings)

    def send(self, id: int, topic: str, records: list[dict[str, Any]]) -> dict[str, Any]:
        producer = self._producers[id]
        acks: dict[int, tuple[int, int]] = {}
        errors: list[Any] = []

        def delivered(index: int, error: Any, message: Any) -> None:
            if error is not None:
                errors.append(error)
            else:
                acks[index] = (message.partition(), message.offset())

        for index, record in enumerate(records):
            options: dict[str, Any] = {}
            if record["partition"] is not None:
                options["partition"] = record["partition"]
            if record["timestamp"] is not None:
                options["timestamp"] = record["timestamp"]
            producer.produce(
                topic,
                key=to_bytes(record["key"]),
                value=to_bytes(record["value"]),
                headers=to_headers(record["headers"]),
                on_delivery=lambda error, message, index=index: delivered(index, error, message),
                **options,
            )
        try:
            _deliver(producer)
        except KafkaException:
            producer.purge()
            raise
        if errors:
            raise KafkaException(errors[0])
        return {"acks": [acks[index] for index in range(len(records))]}

    def close_producer(self, id: int) -> None:
        self._producers.pop(id).flush(1)

    def open_consumer(
        self, id: int, topic: str, positions: list[list[int]], reset: str, login: dict[str, Any] | None = None
    ) -> None:
        settings = {**self._settings, **_secured(login)}
        consumer = Consumer({**settings, "group.id": "unused", "enable.auto.commit": False, "auto.offset.reset": reset})
        consumer.assign([TopicPartition(topic, partition, offset) for partition, offset in positions])
        self._consumers[id] = consumer

    def poll(self, id: int, count: int, timeout_ms: int) -> dict[str, Any]:
        rows: list[dict[str, Any]] = []
        deadline = time.monotonic() + timeout_ms / 1000
        while len(rows) < count and time.monotonic() < deadline:
            for message in self._consumers[id].consume(count - len(rows), timeout=0.2):
                if message.error() is None:
                    rows.append(_row(message))
                elif not message.error().retriable() and message.error().code() not in LOST_CONNECTION:
                    raise KafkaException(message.error())
        return {"records": rows}

    def close_consumer(self, id: int) -> None:
        self._consumers.pop(id).close()

    def create_topic(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        _wait(self._admin.create_topics([NewTopic(topic, partitions, 1, config=configs)]))

    def delete_topic(self, topic: str) -> None:
        _wait(self._admin.delete_topics([topic]))

    def list_topics(self) -> dict[str, Any]:
        return {"topics": list(self._admin.list_topics(timeout=TIMEOUT_S).topics)}

    def describe_topic(self, topic: str) -> dict[str, Any]:
        found = _wait(self._admin.describe_topics(TopicCollection([topic])))
        return {
            "partitions": [
                [each.id, each.leader.id, [broker.id for broker in each.replicas], [broker.id for broker in each.isr]]
                for each in found.partitions
            ]
        }

    def create_partitions(self, topic: str, count: int) -> None:
        _wait(self._admin.create_partitions([NewPartitions(topic, count)]))

    def describe_configs(self, kind: str, name: str) -> dict[str, Any]:
        found = _wait(self._admin.describe_configs([ConfigResource(ResourceType[kind.upper()], name)]))
        return {"configs": {each.name: each.value for each in found.values()}}

    def alter_configs(self, topic: str, configs: dict[str, str]) -> None:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in configs.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        _wait(self._admin.incremental_alter_configs([resource]))

    def find_offset(self, topic: str, partition: int, at: str | int) -> dict[str, Any]:
        spec: Any = OffsetSpec.for_timestamp(at) if isinstance(at, int) else getattr(OffsetSpec, at)()
        found = _wait(self._admin.list_offsets({TopicPartition(topic, partition): spec}))
        return {"offset": found.offset, "timestamp": found.timestamp}

    def delete_records(self, topic: str, partition: int, offset: int) -> dict[str, Any]:
        found = _wait(self._admin.delete_records([TopicPartition(topic, partition, offset)]))
        return {"low_watermark": found.low_watermark}

    def describe_cluster(self) -> dict[str, Any]:
        found = self._admin.describe_cluster().result(TIMEOUT_S)
        return {
            "cluster_id": found.cluster_id,
            "controller": found.controller.id,
            "brokers": [[broker.id, broker.host, broker.port] for broker in found.nodes],
        }


# What a consumer hears while its broker is away; it connects again by itself.
LOST_CONNECTION = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE)


def _secured(login: dict[str, Any] | None) -> dict[str, Any]:
    if login is None:
        return {}
    settings = {
        "bootstrap.servers": login["bootstrap"],
        "security.protocol": login["protocol"],
        "ssl.ca.location": login["authority"],
        "ssl.certificate.location": login["certificate"],
        "ssl.key.location": login["key"],
        "sasl.mechanism": login["mechanism"],
        "sasl.username": login["username"],
        "sasl.password": login["password"],
        "error_cb": _raise_refusal,
    }
    if login["token"] is not None:
        token = Path(login["token"]).read_text()
        settings["oauth_cb"] = lambda _: (token, time.time() + 3600)
    return {name: value for name, value in settings.items() if value is not None}


def _raise_refusal(error: Any) -> None:
    # librdkafka itself tries again for ever: the password may be right the next time.
    if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
        raise KafkaException(error)


def _deliver(producer: Any) -> None:
    # Unlike `flush`, `poll` ends at once when a callback raises.
    deadline = time.monotonic() + TIMEOUT_S
    while len(producer) and time.monotonic() < deadline:
        producer.poll(0.1)


def _wait(answers: Any) -> Any:
    """The result of a call about one thing."""
    (future,) = answers.values()
    return future.result(TIMEOUT_S)


def _row(message: Any) -> dict[str, Any]:
    return row_of(
        partition=message.partition(),
        offset=message.offset(),
        timestamp=message.timestamp()[1],
        key=message.key(),
        value=message.value(),
        headers=message.headers(),
    )


def _code_of(error: BaseException) -> int | None:
    # A fatal error is raised wherever Python code runs next; in a callback it is the cause of another one.
    known = error if isinstance(error, KafkaException) else error.__cause__
    return known.args[0].code() if isinstance(known, KafkaException) else None


if __name__ == "__main__":
    program = Program(sys.argv[1])
    transactions = Transactions(program._settings, program._producers, program._consumers)
    groups = Groups(sys.argv[1], _code_of)
    run({**commands_of(program), **commands_of(groups), **commands_of(transactions)}, _code_of)
