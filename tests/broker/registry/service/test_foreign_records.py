"""Records in the topic that no registry wrote, or another one did; and the compaction of the topic, really run."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ottla import AsyncProducer
from ottla.client.admin.topic_requests import create_topic
from ottla.client.network.cluster import Cluster
from ottla.records.record import Record
from ottla.registry.service.schemas_topic import SchemasTopic
from ottla.registry.state.record_formats import SchemaKey, encode_key
from ottla.testing import InProcessBroker
from ottla.transport.addresses import parse_bootstrap
from tests.broker.registry.service.instances import Started, record, served
from tests.waiting import until

CLEANER = {"log.cleaner.backoff.ms": "50", "log.retention.check.interval.ms": "50"}
COMPACTED_SOON = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.0",
    "delete.retention.ms": "0",
    "segment.ms": "1",
    "min.compaction.lag.ms": "0",
}
NESTED = b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"


def schema_key(subject: str, version: int = 1) -> bytes:
    return encode_key(SchemaKey(subject, version))


async def write(bootstrap: str, *records: tuple[bytes, bytes | None]) -> None:
    """As a program that has nothing to do with the registry."""
    async with AsyncProducer(bootstrap_servers=bootstrap) as producer:
        for key, value in records:
            await producer.send_and_wait("_schemas", value, key)


async def make_topic(bootstrap: str, configs: dict[str, str]) -> None:
    async with Cluster(parse_bootstrap(bootstrap)) as cluster:
        await create_topic(cluster, "_schemas", partitions=1, replication_factor=1, configs=configs)


async def until_compacted(bootstrap: str, gone: Callable[[Record], bool]) -> None:
    """Waits until no such record is in the topic. New records roll the segments."""

    async def is_gone() -> bool:
        await write(bootstrap, (b'{"keytype":"NOOP","magic":0}', None))
        async with Cluster(parse_bootstrap(bootstrap)) as cluster:
            topic = await SchemasTopic.open(cluster, "_schemas", replication_factor=1, may_create=False)
            return not any([gone(each) async for chunk in topic.read(*await topic.bounds()) for each in chunk.records])

    await until(is_gone)


async def registered(one: Started, subject: str, name: str) -> int:
    """Registers a schema and returns its id; a leader that finds a record which it did not write resigns."""
    return await one.register(subject, record(name))


async def test_garbage_does_not_stop_the_registry(ottla_broker: InProcessBroker) -> None:
    garbage = [
        (b"", b""),
        (b"\xff\xfe", b"\x00"),
        (NESTED, b"{}"),
        (schema_key("deep"), NESTED),
        (schema_key("null"), b"null"),
        (schema_key("huge"), b'{"subject":"huge","version":1,"id":99999999999999999999,"schema":"\\"int\\""}'),
        (b'{"keytype":"NOOP","magic":0,"context":"."}', b'{"context":".","highestId":99999999999999999999}'),
        (b'{"keytype":"SCHEMA","subject":"v","version":99999999999999999999,"magic":1}', b"{}"),
    ]
    async with served(ottla_broker.bootstrap) as one:
        assert 1 == await registered(one, "a", "A")
        await write(ottla_broker.bootstrap, *garbage)
        assert 2 == await registered(one, "b", "B")
    async with served(ottla_broker.bootstrap) as again:
        assert 3 == await registered(again, "c", "C")
        assert ["a", "b", "c"] == await again.call("GET", "/subjects")


async def test_a_schema_that_garbage_replaced_outlives_compaction(tmp_path: Path) -> None:
    """Compaction keeps the last record of a key, which nobody can read here."""
    with InProcessBroker(tmp_path, CLEANER) as broker:
        await make_topic(broker.bootstrap, COMPACTED_SOON)
        async with served(broker.bootstrap) as one:
            assert 1 == await registered(one, "a", "A")
            assert 2 == await registered(one, "b", "Beta")
            await write(broker.bootstrap, (schema_key("b"), b"garbage"))
            assert 3 == await registered(one, "c", "C")
            await until_compacted(broker.bootstrap, lambda record: record.value == b"garbage")
        async with served(broker.bootstrap) as again:
            assert ["a", "b", "c"] == await again.call("GET", "/subjects")
            assert 2 == (await again.call("GET", "/subjects/b/versions/1"))["id"]


async def test_a_schema_that_garbage_replaced_and_compaction_removed_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The instance has read the schema before: it is not taken for a truncated topic."""
    with InProcessBroker(tmp_path, CLEANER) as broker:
        await make_topic(broker.bootstrap, COMPACTED_SOON)
        check_intact = SchemasTopic.check_intact

        async def check_after_compaction(topic: SchemasTopic) -> None:
            await until_compacted(
                broker.bootstrap, lambda each: each.key == schema_key("b") and each.value != b"garbage"
            )
            # Once: the record that is written again stays.
            monkeypatch.setattr(SchemasTopic, "check_intact", check_intact)
            await check_intact(topic)

        async with served(broker.bootstrap) as one:
            assert 1 == await registered(one, "a", "A")
            assert 2 == await registered(one, "b", "Beta")
            monkeypatch.setattr(SchemasTopic, "check_intact", check_after_compaction)
            before = one.registry.leadership
            await write(broker.bootstrap, (schema_key("b"), b"garbage"))
            while one.registry.leadership is before:
                await one.registry.wait_change()
            assert 3 == await registered(one, "c", "C")
            assert 2 == (await one.call("GET", "/subjects/b/versions/1"))["id"]
        monkeypatch.undo()
        async with served(broker.bootstrap) as again:
            assert ["a", "b", "c"] == await again.call("GET", "/subjects")
            assert 2 == (await again.call("GET", "/subjects/b/versions/1"))["id"]


async def test_an_id_whose_schema_another_registry_deleted_is_not_given_again(tmp_path: Path) -> None:
    """Confluent's registry leaves a tombstone, and compaction removes it."""
    with InProcessBroker(tmp_path, CLEANER) as broker:
        await make_topic(broker.bootstrap, COMPACTED_SOON)
        async with served(broker.bootstrap) as one:
            assert 1 == await registered(one, "a", "A")
            assert 2 == await registered(one, "b", "Beta")
        await write(broker.bootstrap, (schema_key("b"), None))
        async with served(broker.bootstrap) as one:
            await one.until_leading()
            await until_compacted(broker.bootstrap, lambda record: record.key == schema_key("b"))
        async with served(broker.bootstrap) as again:
            assert 3 == await registered(again, "c", "C")


async def test_a_refused_record_does_not_undo_a_later_deletion(ottla_broker: InProcessBroker) -> None:
    """The leader writes the refused version again, as it is now."""
    bootstrap = ottla_broker.bootstrap
    contradiction = b'{"subject":"b","version":1,"id":1,"schema":"\\"int\\"","deleted":false}'
    async with served(bootstrap) as one:
        assert 1 == await registered(one, "a", "A")
        assert 2 == await registered(one, "b", "B")
    deletion = b'{"keytype":"DELETE_SUBJECT","subject":"b","magic":0}'
    await write(bootstrap, (schema_key("b"), contradiction), (deletion, b'{"subject":"b","version":1}'))
    async with served(bootstrap) as one:
        await one.until_leading()
        assert ["a"] == await one.call("GET", "/subjects")
        assert 3 == await registered(one, "c", "C")
    async with served(bootstrap) as again:
        assert ["a", "c"] == await again.call("GET", "/subjects")
        assert ["a", "b", "c"] == await again.call("GET", "/subjects?deleted=true")
