"""The handlers of transactions where no wire is needed: no coordinator, versions that hear another code, markers."""

from pathlib import Path
from typing import Any

import pytest

from ottla.broker.broker import Broker
from ottla.broker.handlers.records.producers import as_known
from ottla.model.error_codes import ErrorCode
from ottla.protocol.apis import ApiKey
from tests.broker.inside import append
from tests.broker.running_broker import SOON, ask, find_coordinator, make_topic, running
from tests.unit.storage.rig import batch

IDENTITY = {"transactional_id": "t-id", "producer_id": 7, "producer_epoch": 0}


async def test_without_a_coordinator_everything_says_so(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await make_topic(broker, "t")
        topics = [{"name": "t", "partitions": [0]}]
        init = await ask(broker, ApiKey.INIT_PRODUCER_ID, {"transactional_id": "t-id", "transaction_timeout": SOON})
        added = await ask(broker, ApiKey.ADD_PARTITIONS_TO_TXN, {"transactions": [{**IDENTITY, "topics": topics}]})
        ended = await ask(broker, ApiKey.END_TXN, IDENTITY)
        described = await ask(broker, ApiKey.DESCRIBE_TRANSACTIONS, {"transactional_ids": ["t-id"]})
        topic_id = broker.image.topics["t"].id
        offsets = [{"topic_id": topic_id, "partitions": [{"partition_index": 0, "committed_offset": 1}]}]
        committed = await ask(broker, ApiKey.TXN_OFFSET_COMMIT, {**IDENTITY, "group_id": "g", "topics": offsets})
        found = [
            init.error_code,
            added.results_by_transaction[0].topic_results[0].results_by_partition[0].partition_error_code,
            ended.error_code,
            described.transaction_states[0].error_code,
            committed.topics[0].partitions[0].error_code,
        ]
        assert [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 5 == [error.value for error in found]
        listed = await ask(broker, ApiKey.LIST_TRANSACTIONS, {})
        assert (0, ()) == (listed.error_code.value, listed.transaction_states)


async def test_a_group_that_joins_a_transaction_gets_its_topic(tmp_path: Path) -> None:
    """Or nobody would write the marker that its offsets wait for."""
    async with running(tmp_path, transaction_state_log_num_partitions="1", offsets_topic_num_partitions="1") as broker:
        await find_coordinator(broker, "t-id", of_transactions=True)
        answer = await ask(broker, ApiKey.ADD_OFFSETS_TO_TXN, {**IDENTITY, "group_id": "g"})
        assert ErrorCode.INVALID_PRODUCER_ID_MAPPING == answer.error_code.value
        assert "__consumer_offsets" in broker.image.topics


@pytest.mark.parametrize(("version", "expected"), [(0, 47), (3, 47), (4, 90), (5, 90)])
def test_a_fenced_producer_hears_what_its_version_knows(version: int, expected: int) -> None:
    assert expected == as_known(ErrorCode.PRODUCER_FENCED, version, 4)
    assert ErrorCode.INVALID_TXN_STATE is as_known(ErrorCode.INVALID_TXN_STATE, version, 4)


class TestWriteTxnMarkers:
    async def test_a_transaction_that_no_coordinator_knows_is_ended(self, tmp_path: Path) -> None:
        """What hangs is found by DescribeProducers, and ended with what that says."""
        async with running(tmp_path) as broker:
            await make_topic(broker, "t")
            partition = broker.partitions.find("t", 0)
            append(partition, batch(b"a", producer_id=9, epoch=3, sequence=0, transactional=True))
            hanging = await producer_of(broker)
            assert (9, 3, -1, 0) == (
                hanging.producer_id,
                hanging.producer_epoch,
                hanging.coordinator_epoch,
                hanging.current_txn_start_offset,
            )
            marker = {"producer_id": 9, "producer_epoch": 3, "coordinator_epoch": 0, "transaction_result": False}
            assert [ErrorCode.NONE, ErrorCode.NONE] == await write(broker, [0, 0], **marker)
            assert (2, 2) == (partition.end_offset, partition.last_stable_offset)
            assert -1 == (await producer_of(broker)).current_txn_start_offset

    async def test_no_marker_of_an_older_producer_or_coordinator(self, tmp_path: Path) -> None:
        async with running(tmp_path) as broker:
            await make_topic(broker, "t")
            partition = broker.partitions.find("t", 0)
            append(partition, batch(b"a", producer_id=9, epoch=3, sequence=0, transactional=True))
            marker = {"producer_id": 9, "producer_epoch": 3, "coordinator_epoch": 4, "transaction_result": True}
            old = {**marker, "producer_epoch": 2}
            assert [ErrorCode.INVALID_PRODUCER_EPOCH] == await write(broker, [0], **old)
            late = {**marker, "transaction_version": 2}
            assert [ErrorCode.INVALID_PRODUCER_EPOCH] == await write(broker, [0], **late)
            assert 0 == partition.last_stable_offset
            assert [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] == await write(broker, [0, 1], **marker)
            replaced = {**marker, "coordinator_epoch": 3}
            assert [ErrorCode.TRANSACTION_COORDINATOR_FENCED] == await write(broker, [0], **replaced)
            assert 2 == partition.end_offset


async def write(broker: Broker, indexes: list[int], **marker: object) -> list[int]:
    """The outcomes of a marker for partitions of the topic."""
    topics = [{"name": "t", "partition_indexes": indexes}]
    answer = await ask(broker, ApiKey.WRITE_TXN_MARKERS, {"markers": [{**marker, "topics": topics}]})
    (result,) = answer.markers
    return [part.error_code.value for part in result.topics[0].partitions]


async def producer_of(broker: Broker) -> Any:
    """The only one that the topic knows."""
    answer = await ask(broker, ApiKey.DESCRIBE_PRODUCERS, {"topics": [{"name": "t", "partition_indexes": [0]}]})
    ((found,),) = (topic.partitions for topic in answer.topics)
    (producer,) = found.active_producers
    return producer
