"""A broker with several listeners: each shows its own addresses, and brokers use theirs among themselves."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ottla.broker.broker import Broker
from ottla.broker.configs.configuration import BrokerConfig
from ottla.client.admin.async_admin import AsyncAdmin
from ottla.client.admin.values import NewTopic
from ottla.client.producer.async_producer import AsyncProducer
from ottla.env.real_clock import RealClock
from ottla.metadata.sqlite.sqlite_store import SqliteStore
from ottla.model.error_codes import ErrorCode
from ottla.protocol.apis import ApiKey
from tests.broker.inside import connections
from tests.broker.metric_samples import value_of
from tests.waiting import until
from tests.wire.exchange import RawConnection

LISTENERS = {
    "listeners": "CLIENT://127.0.0.1:0,BROKERS://127.0.0.1:0",
    "listener.security.protocol.map": "CLIENT:PLAINTEXT,BROKERS:PLAINTEXT,EXTRA:PLAINTEXT",
    "inter.broker.listener.name": "BROKERS",
    "replica.lag.time.max.ms": "60000",
    "offsets.topic.num.partitions": "1",
}


def made(folder: Path, number: int, settings: Mapping[str, str]) -> Broker:
    config = {**LISTENERS, "node.id": str(number), "log.dirs": str(folder / f"data{number}"), **settings}
    # No registration ends because the machine stalls.
    store = SqliteStore(str(folder / "metadata.db"), RealClock(), shared=True, lease_timeout_ms=60_000)
    return Broker(BrokerConfig.parse(settings=config), store=store)


def address(broker: Broker, listener: str) -> str:
    (endpoint,) = (each for each in broker.endpoints if each.name == listener)
    return f"{endpoint.host}:{endpoint.port}"


async def ask(address: str, api_key: ApiKey, version: int, values: Mapping[str, Any]) -> Any:
    def exchange() -> Any:
        with RawConnection(address) as connection:
            return connection.ask(api_key, version, values)

    return await asyncio.to_thread(exchange)


async def test_each_listener_shows_its_own_addresses(tmp_path: Path) -> None:
    async with made(tmp_path, 0, {}) as broker:
        for listener in ("CLIENT", "BROKERS"):
            expected = address(broker, listener)
            metadata = await ask(expected, ApiKey.METADATA, 12, {"topics": []})
            cluster = await ask(expected, ApiKey.DESCRIBE_CLUSTER, 1, {"endpoint_type": 1})
            find = {"coordinator_keys": ["g"], "key_type": 0}
            found = await ask(expected, ApiKey.FIND_COORDINATOR, 4, find)
            shown = [*metadata.brokers, *cluster.brokers, *found.coordinators]
            assert [expected] * 3 == [f"{each.host}:{each.port}" for each in shown]
        assert broker.advertised == ("127.0.0.1", int(address(broker, "CLIENT").rpartition(":")[2]))


async def test_brokers_replicate_over_their_own_listener(tmp_path: Path) -> None:
    async with made(tmp_path, 0, {}) as first, made(tmp_path, 1, {}) as second:
        brokers = [first, second]
        await until(lambda: all(len(each.image.brokers) == 2 for each in brokers))
        bootstrap = [address(first, "CLIENT")]
        async with AsyncAdmin(bootstrap_servers=bootstrap) as admin:
            await admin.create_topics([NewTopic("t", 2, 2, topic_configs={"min.insync.replicas": "2"})])
        async with AsyncProducer(bootstrap_servers=bootstrap, acks="all") as producer:
            for partition in (0, 1):
                await producer.send("t", value=b"v", partition=partition)
            await producer.flush()
        await until(lambda: all(len(each.image.topics["t"].partitions[0].isr) == 2 for each in brokers))
        await until(
            lambda: all({"BROKERS"} == {client.listener for client in connections(broker)} for broker in brokers)
        )
        # The leader of a partition that was asked for at the wrong broker is named with the client's listener.
        follower = next(each for each in brokers if each.id != first.image.topics["t"].partitions[0].leader)
        leader = next(each for each in brokers if each is not follower)
        fetch = {
            "max_bytes": 1,
            "session_epoch": -1,
            "topics": [
                {
                    "topic_id": first.image.topics["t"].id,
                    "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1}],
                }
            ],
        }
        answer = await ask(address(follower, "CLIENT"), ApiKey.FETCH, 16, fetch)
        assert [address(leader, "CLIENT")] == [f"{each.host}:{each.port}" for each in answer.node_endpoints]


async def test_a_leader_without_the_listener_is_not_shown(tmp_path: Path) -> None:
    extra = {"listeners": f"{LISTENERS['listeners']},EXTRA://127.0.0.1:0"}
    async with made(tmp_path, 0, extra) as first, made(tmp_path, 1, {}) as second:
        await until(lambda: all(len(each.image.brokers) == 2 for each in (first, second)))
        async with AsyncAdmin(bootstrap_servers=[address(first, "CLIENT")]) as admin:
            await admin.create_topics([NewTopic("t", replica_assignments={0: [1, 0]})])
        await until(lambda: "t" in first.image.topics)
        for version, error in ((5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LISTENER_NOT_FOUND)):
            request = {"topics": [{"name": "t"}]}
            answer = await ask(address(first, "EXTRA"), ApiKey.METADATA, version, request)
            assert [0] == [each.node_id for each in answer.brokers]
            (part,) = answer.topics[0].partitions
            assert (error, -1, (1,)) == (part.error_code.value, part.leader_id, part.offline_replicas)
            (part,) = (await ask(address(first, "CLIENT"), ApiKey.METADATA, version, request)).topics[0].partitions
            assert (0, 1, ()) == (part.error_code.value, part.leader_id, part.offline_replicas)


async def test_brokers_get_a_connection_when_clients_have_used_up_all(tmp_path: Path) -> None:
    """As in Kafka: the connection of a client that was idle for the longest time is closed for it."""
    async with made(tmp_path, 0, {"max.connections": "2"}) as broker:
        clients = [await asyncio.open_connection(*address(broker, "CLIENT").split(":")) for _ in range(3)]
        assert b"" == await asyncio.wait_for(clients[2][0].read(), 60), "beyond max.connections"
        await ask(address(broker, "BROKERS"), ApiKey.METADATA, 12, {"topics": []})
        assert b"" == await asyncio.wait_for(clients[0][0].read(), 60), "it gave way"
        assert ["CLIENT"] == [client.listener for client in connections(broker)]
        for _, writer in clients:
            writer.close()


async def test_a_single_address_has_its_own_limit_of_connections(tmp_path: Path) -> None:
    limits = {"max.connections.per.ip": "1", "max.connections.per.ip.overrides": "127.0.0.1:2, 10.0.0.1:0"}
    async with made(tmp_path, 0, limits) as broker:
        clients = [await asyncio.open_connection(*address(broker, "CLIENT").split(":")) for _ in range(3)]
        assert b"" == await asyncio.wait_for(clients[2][0].read(), 60), "beyond the limit of its address"
        await until(lambda: 2 == value_of(broker, "ottla_connections"))
        for _, writer in clients:
            writer.close()
