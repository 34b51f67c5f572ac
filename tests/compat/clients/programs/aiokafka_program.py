"""aiokafka as a client program. Its admin client has no offsets and no log dirs; the consumer looks offsets up."""

import asyncio
import ssl
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.abc import AbstractTokenProvider
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import BrokerResponseError, ProducerFenced, for_code

from tests.compat.clients.programs.aiokafka_groups import Groups
from tests.compat.clients.programs.aiokafka_transactions import Transactions
from tests.compat.clients.programs.command_loop import commands_of, row_of, run, to_bytes, to_headers

PRODUCER_FENCED = 90


class Program:
    """One admin client; producers and consumers by number."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin: Any = None
        self._producers: dict[int, Any] = {}
        self._consumers: dict[int, Any] = {}

    async def open_producer(
        self,
        id: int,
        codec: str,
        idempotent: bool | None,
        request_bytes_max: int | None,
        login: dict[str, Any] | None = None,
    ) -> None:
        settings: dict[str, Any] = {"compression_type": None if codec == "none" else codec}
        if idempotent is not None:
            settings["enable_idempotence"] = idempotent
        if request_bytes_max is not None:
            settings["max_request_size"] = request_bytes_max
        producer = AIOKafkaProducer(**self._settings(login), **settings)
        await producer.start()
        self._producers[id] = producer

    async def send(self, id: int, topic: str, records: list[dict[str, Any]]) -> dict[str, Any]:
        futures = [
            await self._producers[id].send(
                topic,
                key=to_bytes(record["key"]),
                value=to_bytes(record["value"]),
                headers=to_headers(record["headers"]),
                partition=record["partition"],
                timestamp_ms=record["timestamp"],
            )
            for record in records
        ]
        found = await asyncio.gather(*futures)
        return {"acks": [[each.partition, each.offset] for each in found]}

    async def close_producer(self, id: int) -> None:
        await self._producers.pop(id).stop()

    async def open_consumer(
        self, id: int, topic: str, positions: list[list[int]], reset: str, login: dict[str, Any] | None = None
    ) -> None:
        consumer = AIOKafkaConsumer(**self._settings(login), group_id=None, auto_offset_reset=reset)
        await consumer.start()
        consumer.assign([TopicPartition(topic, partition) for partition, _ in positions])
        for partition, offset in positions:
            at = TopicPartition(topic, partition)
            if offset >= 0:
                consumer.seek(at, offset)
            elif offset == -2:
                await consumer.seek_to_beginning(at)
            else:
                await consumer.seek_to_end(at)
        self._consumers[id] = consumer

    def _settings(self, login: dict[str, Any] | None) -> dict[str, Any]:
        if login is None:
            return {"bootstrap_servers": self._bootstrap}
        context = ssl.create_default_context(cafile=login["authority"])
        if login["certificate"] is not None:
            context.load_cert_chain(login["certificate"], login["key"])
        return {
            "bootstrap_servers": login["bootstrap"],
            "security_protocol": login["protocol"],
            "ssl_context": context,
            "sasl_mechanism": login["mechanism"] or "PLAIN",
            "sasl_plain_username": login["username"],
            "sasl_plain_password": login["password"],
            "sasl_oauth_token_provider": None if login["token"] is None else Token(login["token"]),
        }

    async def poll(self, id: int, count: int, timeout_ms: int) -> dict[str, Any]:
        rows: list[dict[str, Any]] = []
        clock = asyncio.get_running_loop()
        deadline = clock.time() + timeout_ms / 1000
        while len(rows) < count and clock.time() < deadline:
            found = await self._consumers[id].getmany(timeout_ms=200, max_records=count - len(rows))
            for records in found.values():
                rows.extend(_row(record) for record in records)
        return {"records": rows}

    async def close_consumer(self, id: int) -> None:
        await self._consumers.pop(id).stop()

    async def create_topic(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        new = NewTopic(name=topic, num_partitions=partitions, replication_factor=1, topic_configs=configs)
        answer = await (await self._connected()).create_topics([new])
        _check(answer.topic_errors[0][1])

    async def delete_topic(self, topic: str) -> None:
        answer = await (await self._connected()).delete_topics([topic])
        _check(answer.topic_error_codes[0][1])

    async def list_topics(self) -> dict[str, Any]:
        return {"topics": await (await self._connected()).list_topics()}

    async def describe_topic(self, topic: str) -> dict[str, Any]:
        (found,) = await (await self._connected()).describe_topics([topic])
        _check(found["error_code"])
        return {
            "partitions": [
                [each["partition"], each["leader"], each["replicas"], each["isr"]] for each in found["partitions"]
            ]
        }

    async def create_partitions(self, topic: str, count: int) -> None:
        await (await self._connected()).create_partitions({topic: NewPartitions(count)})

    async def describe_configs(self, kind: str, name: str) -> dict[str, Any]:
        resource = ConfigResource(ConfigResourceType[kind.upper()], name)
        (answer,) = await (await self._connected()).describe_configs([resource])
        ((code, _, _, _, entries, *_),) = answer.resources
        _check(code)
        return {"configs": {entry[0]: entry[1] for entry in entries}}

    async def alter_configs(self, topic: str, configs: dict[str, str]) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs)
        (answer,) = await (await self._connected()).alter_configs([resource])
        _check(answer.resources[0][0])

    async def find_offset(self, topic: str, partition: int, at: str | int) -> dict[str, Any]:
        where = TopicPartition(topic, partition)
        consumer = AIOKafkaConsumer(bootstrap_servers=self._bootstrap, group_id=None)
        await consumer.start()
        try:
            if isinstance(at, int):
                found = (await consumer.offsets_for_times({where: at}))[where]
                return {"offset": found.offset if found else -1, "timestamp": found.timestamp if found else -1}
            find = consumer.beginning_offsets if at == "earliest" else consumer.end_offsets
            return {"offset": (await find([where]))[where], "timestamp": -1}
        finally:
            await consumer.stop()

    async def delete_records(self, topic: str, partition: int, offset: int) -> dict[str, Any]:
        where = TopicPartition(topic, partition)
        found = await (await self._connected()).delete_records({where: RecordsToDelete(offset)})
        return {"low_watermark": found[where]}

    async def describe_cluster(self) -> dict[str, Any]:
        found = await (await self._connected()).describe_cluster()
        return {
            "cluster_id": found["cluster_id"],
            "controller": found["controller_id"],
            "brokers": [[each["node_id"], each["host"], each["port"]] for each in found["brokers"]],
        }

    async def _connected(self) -> Any:
        if self._admin is None:
            admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
            await admin.start()
            self._admin = admin
        return self._admin


def _check(code: int) -> None:
    if code:
        raise for_code(code)()


class Token(AbstractTokenProvider):  # type: ignore[misc]
    """What a file holds."""

    def __init__(self, path: str) -> None:
        self._token = Path(path).read_text()

    async def token(self) -> str:
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
    if isinstance(error, ProducerFenced):  # what it makes of several codes, and it does not say which
        return PRODUCER_FENCED
    return error.errno if isinstance(error, BrokerResponseError) else None


def _blocking(runner: asyncio.Runner, command: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
    return lambda **arguments: runner.run(command(**arguments))


if __name__ == "__main__":
    with asyncio.Runner() as runner:
        program = Program(sys.argv[1])
        transactions = Transactions(sys.argv[1], program._producers, program._consumers)
        commands = {**commands_of(program), **commands_of(transactions)}
        waiting = {name: _blocking(runner, command) for name, command in commands.items()}
        run({**waiting, **commands_of(Groups(sys.argv[1], _code_of))}, _code_of)
