"""DeleteRecords, InitProducerId and DescribeProducers."""

from pathlib import Path

from ottla.broker.broker import Broker
from ottla.model.error_codes import ErrorCode
from ottla.protocol.apis import ApiKey
from tests.broker.inside import append
from tests.broker.running_broker import (
    Client,
    ask,
    broker_on,
    connected,
    make_topic,
    metadata_store,
    running,
    with_broker,
)
from tests.unit.storage.rig import batch


async def delete_before(broker: Broker, topic: str, offset: int) -> tuple[int, int]:
    """(error, new start) of the first partition."""
    request = {"topics": [{"name": topic, "partitions": [{"partition_index": 0, "offset": offset}]}]}
    ((found,),) = (each.partitions for each in (await ask(broker, ApiKey.DELETE_RECORDS, request)).topics)
    return found.error_code.value, found.low_watermark


class TestDeleteRecords:
    async def test_never_beyond_what_is_committed(self, tmp_path: Path) -> None:
        async with running(tmp_path) as broker:
            await make_topic(broker, "t")
            partition = broker.partitions.find("t", 0)
            append(partition, batch(b"a", b"b", b"c"))
            append(partition, batch(b"d"), committed=False)
            assert (0, 2) == await delete_before(broker, "t", 2)
            assert (0, 2) == await delete_before(broker, "t", 1)
            assert (ErrorCode.OFFSET_OUT_OF_RANGE, -1) == await delete_before(broker, "t", 4)
            assert (ErrorCode.OFFSET_OUT_OF_RANGE, -1) == await delete_before(broker, "t", -2)
            assert (0, 3) == await delete_before(broker, "t", -1)
            assert 3 == partition.start_offset

    async def test_topics_whose_records_must_stay(self, tmp_path: Path) -> None:
        async with running(tmp_path) as broker:
            await make_topic(broker, "compacted", cleanup_policy="compact")
            await make_topic(broker, "both", cleanup_policy="compact,delete")
            await make_topic(broker, "__consumer_offsets")
            assert (ErrorCode.POLICY_VIOLATION, -1) == await delete_before(broker, "compacted", 0)
            assert (0, 0) == await delete_before(broker, "both", 0)
            assert (ErrorCode.INVALID_TOPIC_EXCEPTION, -1) == await delete_before(broker, "__consumer_offsets", 0)
            assert (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1) == await delete_before(broker, "missing", 0)


async def identity(client: Client, **values: object) -> tuple[int, int, int]:
    """(error, producer id, epoch)."""
    answer = await client.ask(ApiKey.INIT_PRODUCER_ID, {"transactional_id": None, **values})
    return answer.error_code.value, answer.producer_id, answer.producer_epoch


class TestInitProducerId:
    async def test_no_id_twice_not_even_after_a_restart(self, tmp_path: Path) -> None:
        async def test(broker: Broker) -> list[int]:
            async with connected(broker) as client:
                given = [await identity(client) for _ in range(1005)]
            assert {(0, 0)} == {(error, epoch) for error, _, epoch in given}
            return [producer_id for _, producer_id, _ in given]

        ids = await with_broker(tmp_path, test) + await with_broker(tmp_path, test)
        assert 2010 == len(set(ids))
        assert sorted(ids) == ids

    async def test_a_known_id_is_replaced(self, tmp_path: Path) -> None:
        async with running(tmp_path) as broker, connected(broker) as client:
            _, first, _ = await identity(client)
            assert (0, first + 1, 0) == await identity(client, producer_id=first, producer_epoch=3)

    async def test_half_an_identity_and_empty_transactional_ids_are_refused(self, tmp_path: Path) -> None:
        async with running(tmp_path) as broker, connected(broker) as client:
            refused = (ErrorCode.INVALID_REQUEST, -1, -1)
            assert refused == await identity(client, producer_id=4)
            assert refused == await identity(client, producer_epoch=4)
            assert refused == await identity(client, transactional_id="")
            assert (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, -1) == await identity(client, transactional_id="a")

    async def test_a_store_that_fails(self, tmp_path: Path) -> None:
        """A real one: its file is closed under it, as a broken disk would."""
        store = metadata_store(tmp_path)
        async with broker_on(tmp_path, store=store) as broker, connected(broker) as client:
            await store.close()
            error, *nothing = await identity(client)
        assert (True, [-1, -1]) == (error != 0, nothing)


class TestDescribeProducers:
    async def test_producers_by_id(self, tmp_path: Path) -> None:
        async with running(tmp_path) as broker:
            await make_topic(broker, "t")
            partition = broker.partitions.find("t", 0)
            append(partition, batch(b"a", b"b", timestamp=100, producer_id=9, epoch=2, sequence=0))
            append(partition, batch(b"c", timestamp=200, producer_id=4, sequence=0, transactional=True))
            request = {"topics": [{"name": "t", "partition_indexes": [0]}]}
            answer = await ask(broker, ApiKey.DESCRIBE_PRODUCERS, request)
            ((found,),) = (topic.partitions for topic in answer.topics)
            assert [(4, 0, 0, 200, -1, 2), (9, 2, 1, 100, -1, -1)] == [
                (
                    each.producer_id,
                    each.producer_epoch,
                    each.last_sequence,
                    each.last_timestamp,
                    each.coordinator_epoch,
                    each.current_txn_start_offset,
                )
                for each in found.active_producers
            ]

    async def test_partitions_that_are_not_here(self, tmp_path: Path) -> None:
        async with running(tmp_path) as broker:
            await make_topic(broker, "t")
            names = ("t", "missing", "no topic")
            request = {"topics": [{"name": name, "partition_indexes": [1]} for name in names]}
            answer = await ask(broker, ApiKey.DESCRIBE_PRODUCERS, request)
            found = [part for topic in answer.topics for part in topic.partitions]
            assert [3, 3, 17] == [part.error_code.value for part in found]
            assert all(part.error_message for part in found)
