"""The registry with Apache Kafka as its store: topic, transactions, election and fencing work as on Ottla."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from ottla.client.admin.topic_requests import create_topic, delete_topic
from ottla.client.network.cluster import Cluster
from ottla.registry.service.schemas_topic import SchemasTopicError
from ottla.transport.addresses import parse_bootstrap
from tests.broker.registry.service.instances import ELECTION, ORDER, ORDER_2, ORDER_BAD, record, served
from tests.compat.kafka_broker import KafkaBroker


def options(name: str) -> dict[str, Any]:
    """A registry of its own on the shared broker."""
    return {"topic": f"_schemas-{name}", "election": replace(ELECTION, group_id=f"registry-{name}")}


async def test_schemas_live_in_kafka(kafka: KafkaBroker) -> None:
    mine = options("life")
    async with served(kafka.bootstrap, **mine) as one:
        assert 1 == (await one.call("POST", "/subjects/orders-value/versions", ORDER))["id"]
        assert 2 == (await one.call("POST", "/subjects/orders-value/versions", ORDER_2))["id"]
        assert (409, 40901) == await one.error("POST", "/subjects/orders-value/versions", ORDER_BAD)
        bodies = [record(f"R{number}", {"name": "x", "type": "int"}) for number in range(30)]
        answers = await asyncio.gather(
            *(one.call("POST", f"/subjects/s{place}/versions", body) for place, body in enumerate(bodies))
        )
        assert set(range(3, 33)) == {each["id"] for each in answers}
        assert [1, 2] == await one.call("DELETE", "/subjects/orders-value")
        assert [1, 2] == await one.call("DELETE", "/subjects/orders-value?permanent=true")
    async with served(kafka.bootstrap, **mine) as again:
        assert 30 == len(await again.call("GET", "/subjects"))
        assert 33 == (await again.call("POST", "/subjects/orders-value/versions", ORDER))["id"]


async def test_instances_forward_and_a_zombie_is_fenced(kafka: KafkaBroker) -> None:
    mine = options("several")
    async with served(kafka.bootstrap, **mine) as zombie:
        await zombie.until_leading()
        async with served(kafka.bootstrap, **mine) as new:
            await new.until_leader_known()
            assert 1 == (await new.call("POST", "/subjects/s/versions", ORDER))["id"]
            assert [1] == await new.call("GET", "/subjects/s/versions")
            assert zombie.registry._following is not None
            zombie.registry._following.cancel()
            leadership = await new.registry._begin()
            new.registry.leadership = leadership
            assert 2 == (await new.call("POST", "/subjects/new/versions", ORDER_2))["id"]
            answer = await zombie.http.post("/subjects/zombie/versions", json=ORDER_BAD)
            assert (500, 50002) == (answer.status_code, answer.json()["error_code"])
            assert "PRODUCER" in answer.json()["message"]  # PRODUCER_FENCED or INVALID_PRODUCER_EPOCH
            new.registry.leadership = None
            await leadership.close()
            assert ["new", "s"] == await new.call("GET", "/subjects")


async def test_a_topic_that_is_unfit_or_lost(kafka: KafkaBroker) -> None:
    mine = options("lost")
    async with Cluster(parse_bootstrap(kafka.bootstrap)) as cluster:
        await create_topic(cluster, "unfit", partitions=1, replication_factor=1)
        with pytest.raises(SchemasTopicError, match=r"cleanup\.policy=delete"):
            async with served(kafka.bootstrap, topic="unfit"):
                pass
        async with served(kafka.bootstrap, **mine) as one:
            assert 1 == (await one.call("POST", "/subjects/s/versions", ORDER))["id"]
            await delete_topic(cluster, mine["topic"])
            while one.registry.problem is None:
                await one.registry.wait_change()
            assert (500, 50001) == await one.error("POST", "/subjects/s/versions", ORDER_2)
            assert ["s"] == await one.call("GET", "/subjects")
