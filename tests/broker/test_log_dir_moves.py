"""AlterReplicaLogDirs on a running broker: partitions move between data dirs while clients write and read."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from ottla.broker.broker import Broker
from ottla.broker.configs.configuration import BrokerConfig
from ottla.client.admin.async_admin import AsyncAdmin
from ottla.client.admin.config_requests import ResourceType
from ottla.client.admin.topic_requests import LogDir
from ottla.client.admin.values import ConfigResource, NewTopic
from ottla.client.consumer.async_consumer import AsyncConsumer
from ottla.client.producer.async_producer import AsyncProducer
from ottla.env.real_disk import RealDisk
from ottla.env.world import real_world
from ottla.model.ids import TopicPartition
from ottla.protocol.apis import ApiKey
from tests.broker.running_broker import ask, make_topic
from tests.broker.sick_disk import SickDisk
from tests.waiting import until

P = TopicPartition("t", 0)


def broker_of(folder: Path, settings: Mapping[str, str] = MappingProxyType({}), disk: RealDisk | None = None) -> Broker:
    dirs = ",".join(str(folder / name) for name in ("one", "two"))
    known = {"log.dirs": dirs, "listeners": "PLAINTEXT://127.0.0.1:0"}
    world = replace(real_world(), disk=disk) if disk else None
    return Broker(BrokerConfig.parse(settings={**known, **settings}), world=world)


async def places(broker: Broker) -> list[tuple[str, bool]]:
    """The names of the data dirs that have the partition, and whether it is on its way there."""
    response = await ask(broker, ApiKey.DESCRIBE_LOG_DIRS, {"topics": None})
    return [
        (Path(log_dir.log_dir).name, partition.is_future_key)
        for log_dir in response.results
        for topic in log_dir.topics
        for partition in topic.partitions
    ]


async def place(broker: Broker) -> str:
    """The name of the data dir that has the partition."""
    (name,) = (name for name, is_future in await places(broker) if not is_future)
    return name


async def wait_moved(broker: Broker, name: str) -> None:
    async def is_moved() -> bool:
        return [(name, False)] == await places(broker)

    await until(is_moved)


def end_offset(broker: Broker) -> int:
    return broker.partitions.find(*P).end_offset


async def alter(broker: Broker, path: Path) -> list[int]:
    wanted = {"dirs": [{"path": str(path), "topics": [{"name": "t", "partitions": [0]}]}]}
    answer = await ask(broker, ApiKey.ALTER_REPLICA_LOG_DIRS, wanted)
    return [part.error_code.value for topic in answer.results for part in topic.partitions]


@pytest.mark.parametrize("flush_messages", ["1", "9223372036854775807"], ids=["flushed", "not flushed"])
async def test_clients_do_not_notice_that_a_partition_moves(tmp_path: Path, flush_messages: str) -> None:
    async with broker_of(tmp_path) as broker:
        bootstrap = f"127.0.0.1:{broker.port}"
        await make_topic(broker, "t", 1, flush_messages=flush_messages, segment_bytes="1048576")
        sent = 0
        stop = asyncio.Event()
        target = tmp_path

        async def produce() -> None:
            nonlocal sent
            async with AsyncProducer(bootstrap_servers=bootstrap, enable_idempotence=True, linger_ms=1) as producer:
                while not stop.is_set():
                    await asyncio.gather(*[producer.send("t", b"%08d" % (sent + at) + b"x" * 500) for at in range(50)])
                    sent += 50
                    await asyncio.sleep(0.005)  # a load that the machine can bear

        async def wait_sent(count: int) -> None:
            await until(lambda: sent >= count)

        producing = asyncio.create_task(produce())
        for _ in range(3):
            await wait_sent(200)
            target = tmp_path / ("two" if await place(broker) == "one" else "one")
            before = sent
            assert [0] == await alter(broker, target)
            await wait_moved(broker, target.name)
            await wait_sent(before + 200)
        stop.set()
        await producing
        async with AsyncConsumer("t", bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
            found = []
            async for record in consumer:
                assert record.value is not None
                found.append(int(record.value[:8]))
                if len(found) == sent:
                    break
        assert list(range(sent)) == sorted(found)
        assert sent == end_offset(broker)
    async with broker_of(tmp_path) as again:
        assert (sent, target.name) == (end_offset(again), await place(again))


async def test_a_throttled_move_shows_its_progress_and_can_be_given_up(tmp_path: Path) -> None:
    async with broker_of(tmp_path) as broker, AsyncAdmin(bootstrap_servers=f"127.0.0.1:{broker.port}") as admin:
        await admin.create_topics([NewTopic("t", 1, 1)])
        async with AsyncProducer(bootstrap_servers=f"127.0.0.1:{broker.port}") as producer:
            await asyncio.gather(*[producer.send("t", bytes(100_000)) for _ in range(40)])
        name = "replica.alter.log.dirs.io.max.bytes.per.second"
        await admin.alter_configs([ConfigResource(ResourceType.BROKER, "", {name: "1"})])
        origin = await place(broker)
        target = tmp_path / ("two" if origin == "one" else "one")
        await admin.alter_replica_log_dirs(0, {P: str(target)})

        dirs: dict[str, LogDir] = {}

        async def copied_bytes() -> int:
            dirs.update({Path(each.path).name: each for each in (await admin.describe_log_dirs([0], [P]))[0]})
            return dirs[target.name].partitions[0].size_bytes

        await until(copied_bytes)
        (future,), (current,) = dirs[target.name].partitions, dirs[origin].partitions
        assert (True, False) == (future.is_future, current.is_future)
        assert 0 < future.lag < 40
        assert 0 < future.size_bytes < current.size_bytes
        # Back to where it is: the copy is given up.
        await admin.alter_replica_log_dirs(0, {P: str(tmp_path / origin)})
        dirs = {Path(each.path).name: each for each in (await admin.describe_log_dirs([0], [P]))[0]}
        assert (1, 0) == (len(dirs[origin].partitions), len(dirs[target.name].partitions))
        await admin.alter_replica_log_dirs(0, {P: str(target)})
        await admin.alter_configs([ConfigResource(ResourceType.BROKER, "", {name: None})])
        await wait_moved(broker, target.name)


async def test_a_move_goes_on_after_a_restart(tmp_path: Path) -> None:
    async with broker_of(tmp_path, {"replica.alter.log.dirs.io.max.bytes.per.second": "1"}) as broker:
        await make_topic(broker, "t", 1)
        async with AsyncProducer(bootstrap_servers=f"127.0.0.1:{broker.port}") as producer:
            await asyncio.gather(*[producer.send("t", bytes(100_000)) for _ in range(40)])
        target = tmp_path / ("two" if await place(broker) == "one" else "one")
        assert [0] == await alter(broker, target)
        end = end_offset(broker)
    async with broker_of(tmp_path) as again:
        await wait_moved(again, target.name)
        assert end == end_offset(again)


async def test_what_cannot_be_moved(tmp_path: Path) -> None:
    async with broker_of(tmp_path) as broker:
        await make_topic(broker, "t", 1)
        assert [57] == await alter(broker, tmp_path / "three")
        wanted = {"dirs": [{"path": str(tmp_path / "two"), "topics": [{"name": "later", "partitions": [0]}]}]}
        answer = await ask(broker, ApiKey.ALTER_REPLICA_LOG_DIRS, wanted)
        assert [3] == [part.error_code.value for topic in answer.results for part in topic.partitions]


async def test_nothing_is_moved_to_a_data_dir_that_failed(tmp_path: Path) -> None:
    """Not even when it works again, before the broker is restarted."""
    disk = SickDisk()
    disk.fail("make_dir", "two")
    async with broker_of(tmp_path, disk=disk) as broker:
        disk.heal()
        (tmp_path / "two").mkdir()
        await make_topic(broker, "t", 1)
        assert [56] == await alter(broker, tmp_path / "two")
    disk.close()
