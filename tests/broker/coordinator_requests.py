"""Requests to the coordinators of groups and transactions, in the newest versions that name topics."""

import asyncio
from datetime import timedelta
from typing import Any, Final, NamedTuple

from ottla.broker.broker import Broker
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.protocol.apis import ApiKey
from ottla.records.batch import Batch
from tests.broker.running_broker import SOON, ask
from tests.unit.storage.rig import batch
from tests.waiting import until

MINUTE: Final = timedelta(minutes=1)


def by_topic(*partitions: TopicPartition) -> dict[str, list[int]]:
    """The partitions of each topic."""
    found: dict[str, list[int]] = {}
    for partition in partitions:
        found.setdefault(partition.topic, []).append(partition.partition)
    return found


# Groups


async def commit_offset(broker: Broker, group_id: str, topic: str, offset: int) -> None:
    """For the first partition of a topic, from outside of the group."""
    partitions = [{"partition_index": 0, "committed_offset": offset}]
    request = {
        "group_id": group_id,
        "generation_id_or_member_epoch": -1,
        "topics": [{"name": topic, "partitions": partitions}],
    }
    response = await ask(broker, ApiKey.OFFSET_COMMIT, request, 9)
    assert [0] == [part.error_code.value for found in response.topics for part in found.partitions]


async def committed_offsets(broker: Broker, group_id: str) -> dict[TopicPartition, int]:
    """Of a group, once its coordinator is loaded."""
    request = {"groups": [{"group_id": group_id, "topics": None}]}
    group: Any = None

    async def is_loaded() -> bool:
        nonlocal group
        (group,) = (await ask(broker, ApiKey.OFFSET_FETCH, request, 9)).groups
        assert group.error_code.value in (ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return bool(group.error_code.value == ErrorCode.NONE)

    await until(is_loaded)
    return {
        TopicPartition(topic.name, partition.partition_index): partition.committed_offset
        for topic in group.topics
        for partition in topic.partitions
    }


def join(broker: Broker, group_id: str) -> "asyncio.Task[Any]":
    """A static member of a classic group joins; it waits for others first."""
    request = {
        "group_id": group_id,
        "group_instance_id": "member",
        "session_timeout": MINUTE,
        "rebalance_timeout": MINUTE,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    return asyncio.create_task(ask(broker, ApiKey.JOIN_GROUP, request))


# Transactions


class Transaction(NamedTuple):
    """Of a producer that was initialized."""

    broker: Broker
    transactional_id: str
    producer_id: int
    epoch: int

    @property
    def identity(self) -> dict[str, Any]:
        """As requests have it."""
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }

    def batch(self, sequence: int, *values: bytes) -> Batch:
        """Records of the transaction."""
        return batch(*values, producer_id=self.producer_id, epoch=self.epoch, sequence=sequence, transactional=True)

    async def add_partitions(self, *partitions: TopicPartition) -> list[int]:
        """As an old client does before it produces; an error code for each."""
        topics = [{"name": name, "partitions": indexes} for name, indexes in by_topic(*partitions).items()]
        request = {f"v3_and_below_{name}": value for name, value in (self.identity | {"topics": topics}).items()}
        response = await ask(self.broker, ApiKey.ADD_PARTITIONS_TO_TXN, request, 3)
        return [
            partition.partition_error_code.value
            for topic in response.results_by_topic_v3_and_below
            for partition in topic.results_by_partition
        ]

    async def commit_offset(self, group_id: str, topic: str, offset: int) -> None:
        """For the first partition of a topic, as a part of the transaction."""
        assert (
            0
            == (
                await ask(self.broker, ApiKey.ADD_OFFSETS_TO_TXN, {**self.identity, "group_id": group_id}, 3)
            ).error_code.value
        )
        partitions = [{"partition_index": 0, "committed_offset": offset}]
        request = {**self.identity, "group_id": group_id, "topics": [{"name": topic, "partitions": partitions}]}
        response = await ask(self.broker, ApiKey.TXN_OFFSET_COMMIT, {**request, "generation_id": -1}, 3)
        assert [0] == [part.error_code.value for found in response.topics for part in found.partitions]

    async def end(self, *, commit: bool, version: int = 3) -> None:
        """Commits or aborts; the markers follow."""
        response = await ask(self.broker, ApiKey.END_TXN, {**self.identity, "committed": commit}, version)
        assert 0 == response.error_code.value

    async def wait_state(self, expected: str) -> None:
        """Until the coordinator describes it so."""

        async def is_so() -> bool:
            described = await ask(
                self.broker, ApiKey.DESCRIBE_TRANSACTIONS, {"transactional_ids": [self.transactional_id]}
            )
            return bool(expected == described.transaction_states[0].transaction_state)

        await until(is_so)


async def init_producer(broker: Broker, transactional_id: str, version: int | None = None) -> Any:
    """The response to InitProducerId."""
    request = {
        "transactional_id": transactional_id,
        "transaction_timeout": MINUTE,
        "producer_id": -1,
        "producer_epoch": -1,
    }
    return await ask(broker, ApiKey.INIT_PRODUCER_ID, request, version)


async def begin(broker: Broker, transactional_id: str) -> Transaction:
    """A new producer of a transactional id."""
    request = {"coordinator_keys": [transactional_id], "key_type": 1}
    await ask(broker, ApiKey.FIND_COORDINATOR, request)
    given: Any = None

    async def is_given() -> bool:
        nonlocal given
        given = await init_producer(broker, transactional_id)
        assert given.error_code.value in (ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return bool(given.error_code.value == ErrorCode.NONE)

    await until(is_given)
    return Transaction(broker, transactional_id, given.producer_id, given.producer_epoch)


async def produce_in(transaction: Transaction, topic: str, records: Batch, partition: int = 0) -> Any:
    """The response of a partition to a batch of a transaction, which an old client sends: partitions were added."""
    content = {"index": partition, "records": bytes(records.buffer)}
    request = {
        "transactional_id": transaction.transactional_id,
        "acks": -1,
        "timeout": SOON,
        "topic_data": [{"name": topic, "partition_data": [content]}],
    }
    response = await ask(transaction.broker, ApiKey.PRODUCE, request, 9)
    ((outcome,),) = (topic.partition_responses for topic in response.responses)
    return outcome
