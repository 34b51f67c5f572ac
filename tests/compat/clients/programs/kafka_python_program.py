"""kafka-python as a client program."""

import logging
import sys
import time
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewTopic, OffsetSpec
from kafka.errors import BrokerResponseError, NodeNotReadyError
from kafka.net.sasl.oauth import AbstractTokenProvider

from tests.compat.clients.programs.command_loop import commands_of, row_of, run, to_bytes, to_headers
from tests.compat.clients.programs.kafka_python_groups import Groups
from tests.compat.clients.programs.kafka_python_transactions import Transactions

TIMEOUT_S = 75


class Program:
    """One admin client; producers and consumers by number."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin = KafkaAdminClient(bootstrap_servers=bootstrap)
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
        # Records of one `send` share a batch: a second one would wait for the response to the first.
        settings: dict[str, Any] = {"compression_type": None if codec == "none" else codec, "linger_ms": 50}
        if idempotent is not None:
            settings["enable_idempotence"] = idempotent
        if request_bytes_max is not None:
            settings["max_request_size"] = request_bytes_max
        self._producers[id] = KafkaProducer(**self._connected(login), **settings)

    def send(self, id: int, topic: str, records: list[dict[str, Any]]) -> dict[str, Any]:
        producer = self._producers[id]
        futures = [
            producer.send(
                topic,
                key=to_bytes(record["key"]),
                value=to_bytes(record["value"]),
                headers=to_headers(record["headers"]),
                partition=record["partition"],
                timestamp_ms=record["timestamp"],
            )
            for record in records
        ]
        producer.flush(TIMEOUT_S)
        found = [future.get(TIMEOUT_S) for future in futures]
        return {"acks": [[each.partition, each.offset] for each in found]}

    def close_producer(self, id: int) -> None:
        self._producers.pop(id).close(timeout=1)

    def open_consumer(
        self, id: int, topic: str, positions: list[list[int]], reset: str, login: dict[str, Any] | None = None
    ) -> None:
        consumer = KafkaConsumer(**self._connected(login), group_id=None, auto_offset_reset=reset)
        consumer.assign([TopicPartition(topic, partition) for partition, _ in positions])
        for partition, offset in positions:
            at = TopicPartition(topic, partition)
            if offset >= 0:
                consumer.seek(at, offset)
            elif offset == -2:
                consumer.seek_to_beginning(at)
            else:
                consumer.seek_to_end(at)
        self._consumers[id] = consumer

    def poll(self, id: int, count: int, timeout_ms: int) -> dict[str, Any]:
        rows: list[dict[str, Any]] = []
        deadline = time.monotonic() + timeout_ms / 1000
        while len(rows) < count and time.monotonic() < deadline:
            for records in self._consumers[id].poll(timeout_ms=200, max_records=count - len(rows)).values():
                rows.extend(_row(record) for record in records)
        return {"records": rows}

    def close_consumer(self, id: int) -> None:
        self._consumers.pop(id).close()

    def create_topic(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        new = NewTopic(name=topic, num_partitions=partitions, replication_factor=1, topic_configs=configs)
        self._admin.create_topics([new])

    def delete_topic(self, topic: str) -> None:
        self._admin.delete_topics([topic])

    def list_topics(self) -> dict[str, Any]:
        return {"topics": self._admin.list_topics()}

    def describe_topic(self, topic: str) -> dict[str, Any]:
        (found,) = self._admin.describe_topics([topic])
        return {
            "partitions": [
                [each["partition_index"], each["leader_id"], each["replica_nodes"], each["isr_nodes"]]
                for each in found["partitions"]
            ]
        }

    def create_partitions(self, topic: str, count: int) -> None:
        self._admin.create_partitions({topic: count})

    def describe_configs(self, kind: str, name: str) -> dict[str, Any]:
        resource = ConfigResource(ConfigResourceType[kind.upper()], name)
        found = self._admin.describe_configs([resource], config_filter="all")[kind][name]
        return {"configs": {key: entry["value"] for key, entry in found.items()}}

    def alter_configs(self, topic: str, configs: dict[str, str]) -> None:
        self._admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs)])

    def find_offset(self, topic: str, partition: int, at: str | int) -> dict[str, Any]:
        spec = at if isinstance(at, int) else OffsetSpec[at.upper()]
        where = TopicPartition(topic, partition)
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                found = self._admin.list_partition_offsets({where: spec})[where]
                return {"offset": found.offset, "timestamp": found.timestamp}
            except NodeNotReadyError:
                # After a restart of the broker, before it has noticed and connected again.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def delete_records(self, topic: str, partition: int, offset: int) -> dict[str, Any]:
        where = TopicPartition(topic, partition)
        return {"low_watermark": self._admin.delete_records({where: offset})[where]["low_watermark"]}

    def describe_cluster(self) -> dict[str, Any]:
        found = self._admin.describe_cluster()
        return {
            "cluster_id": found["cluster_id"],
            "controller": found["controller_id"],
            "brokers": [[each["broker_id"], each["host"], each["port"]] for each in found["brokers"]],
        }

    def log_dirs(self) -> dict[str, Any]:
        return {
            "sizes": {
                f"{topic['name']}-{each['partition_index']}": each["partition_size"]
                for broker in self._admin.describe_log_dirs()
                for folder in broker["log_dirs"]
                for topic in folder["topics"]
                for each in topic["partitions"]
            }
        }

    def _connected(self, login: dict[str, Any] | None) -> dict[str, Any]:
        if login is None:
            return {"bootstrap_servers": self._bootstrap}
        return {
            "bootstrap_servers": login["bootstrap"],
            # It tries a refused login again until then, and only logs why it was refused.
            "bootstrap_timeout_ms": 2000,
            "security_protocol": login["protocol"],
            "ssl_cafile": login["authority"],
            "ssl_certfile": login["certificate"],
            "ssl_keyfile": login["key"],
            "sasl_mechanism": login["mechanism"],
            "sasl_plain_username": login["username"],
            "sasl_plain_password": login["password"],
            "sasl_oauth_token_provider": None if login["token"] is None else Token(login["token"]),
        }


class Token(AbstractTokenProvider):  # type: ignore[misc]
    """What a file holds."""

    def __init__(self, path: str) -> None:
        self._token = Path(path).read_text()

    def token(self) -> str:
        return self._token


def _row(record: Any) -> dict[str, Any]:
    return row_of(
        partition=record.partition,
        offset=record.offset,
        timestamp=record.timestamp,
        key=record.key,
        value=record.value,
        headers=record.headers,
    )


def _code_of(error: BaseException) -> int | None:
    return error.errno if isinstance(error, BrokerResponseError) else None


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    program = Program(sys.argv[1])
    transactions = Transactions(sys.argv[1], program._producers, program._consumers)
    groups = Groups(sys.argv[1], _code_of)
    run({**commands_of(program), **commands_of(groups), **commands_of(transactions)}, _code_of)
