"""Programs that copy one topic to another exactly once: a consumer group and transactions."""

from ottla.client.values import OffsetAndMetadata
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.sim.simulated_world import SimulatedWorld

GROUP = "copying"


async def copy(world: SimulatedWorld, name: str, source: str, target: str, partitions: int) -> None:
    """Copies until the end of the run; after a failure it continues after the last committed transaction."""
    client, history = world.client(name), world.history
    while not world.is_over:
        producer = client.producer(
            transactional_id=name, transaction_timeout_ms=10_000, delivery_timeout_ms=15_000, max_block_ms=10_000
        )
        await producer.start()
        consumer = client.consumer(
            source,
            group_id=GROUP,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            session_timeout_ms=6_000,
            heartbeat_interval_ms=1_000,
            default_api_timeout_ms=10_000,
        )
        try:
            await producer.init_transactions()
            while not world.is_over:
                found = await consumer.poll(timeout_ms=500, max_records=20)
                if not found:
                    continue
                producer.begin_transaction()
                offsets: dict[TopicPartition, OffsetAndMetadata] = {}
                for partition, records in found.items():
                    for record in records:
                        await producer.send(
                            target, b"copy of " + record.value, partition=partition.partition % partitions
                        )
                    offsets[partition] = OffsetAndMetadata(records[-1].offset + 1, "", -1)
                await producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
                await producer.commit_transaction()
                for partition, offset in offsets.items():
                    history.on_group_offset(GROUP, partition, offset.offset)
                await client.clock.sleep(0.3)
        except OttlaError as error:
            history.note(f"{name} restarts: {type(error).__name__}")
            await client.clock.sleep(0.2)
        for closing in (consumer.close(), producer.close(timeout=5)):
            try:
                await closing
            except OttlaError as error:
                history.note(f"{name} cannot close: {type(error).__name__}")
