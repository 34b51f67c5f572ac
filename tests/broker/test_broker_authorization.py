"""Brokers among themselves under an authorizer: they need CLUSTER_ACTION, and say so when they do not have it."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from ottla import NewTopic
from ottla.broker.broker import Broker
from ottla.client.admin.acls import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourceType,
    ResourcePattern,
)
from ottla.metadata.configs.authorization_configs import STANDARD_AUTHORIZER
from ottla.metadata.records import broker_key
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import BrokerId
from ottla.protocol.apis import ApiKey
from tests.broker.replicated import SOON_LATE, ReplicatedBrokers
from tests.broker.running_broker import ask, connected
from tests.broker.secured import ADMIN_LISTENER, admin_of

BROKERS = ACL(
    "User:ANONYMOUS",
    "127.0.0.0/8",
    ACLOperation.CLUSTER_ACTION,
    ACLPermissionType.ALLOW,
    ResourcePattern(ACLResourceType.CLUSTER, "kafka-cluster"),
)


async def may_act_as_broker(broker: Broker) -> bool:
    """Whether its authorizer allows an anonymous client to write transaction markers."""
    marker = {"producer_id": 1, "producer_epoch": 0, "coordinator_epoch": 0, "topics": []}
    topics = [{"name": "t", "partition_indexes": [0]}]
    answer = await ask(broker, ApiKey.WRITE_TXN_MARKERS, {"markers": [{**marker, "topics": topics}]})
    (code,) = (
        part.error_code.value for result in answer.markers for topic in result.topics for part in topic.partitions
    )
    assert code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return bool(code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


async def test_followers_need_cluster_action(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Without it, they copy nothing, leave the ISR, and log what to set; with an ACL they are back in the ISR."""
    with caplog.at_level(logging.INFO):
        settings = {**ADMIN_LISTENER, "authorizer.class.name": STANDARD_AUTHORIZER, **SOON_LATE}
        async with ReplicatedBrokers(tmp_path, settings, count=2) as brokers:
            one = brokers.brokers[0]
            async with admin_of(one) as admin:
                await admin.create_topics([NewTopic("t", 1, 2)])
            await brokers.wait(lambda: "does not authorize this broker for CLUSTER_ACTION" in caplog.text)
            await brokers.wait(lambda: len(one.image.topics["t"].partitions[0].isr) == 1)
            async with admin_of(one) as admin:
                await admin.create_acls([BROKERS])
            await brokers.wait(lambda: len(one.image.topics["t"].partitions[0].isr) == 2)
    assert "super.users" in caplog.text


async def test_every_broker_decides_by_the_same_acls(tmp_path: Path) -> None:
    """Created at one broker, an ACL is known to the authorizers of all; deleted at another one, to none."""
    settings = {**ADMIN_LISTENER, "authorizer.class.name": STANDARD_AUTHORIZER}
    async with ReplicatedBrokers(tmp_path, settings, count=2) as brokers:
        one, two = brokers.brokers.values()
        async with admin_of(one) as admin:
            await admin.create_acls([BROKERS])
        await brokers.wait(lambda: len(one.image.acls) == 1 and one.image.acls == two.image.acls)
        allowed = [await may_act_as_broker(broker) for broker in (one, two)]
        # Each has its own metadata: the second need not have seen the ACL to delete it.
        async with admin_of(two) as admin:
            await admin.delete_acls([ACLFilter()])
        await brokers.wait(lambda: one.image.acls == two.image.acls == frozenset())
        denied = [await may_act_as_broker(broker) for broker in (one, two)]
        assert ([True, True], [False, False]) == (allowed, denied)


async def test_a_denied_client_does_not_end_the_wait_of_the_follower_that_it_claims_to_be(tmp_path: Path) -> None:
    """It knows the broker's epoch, is answered with errors and changes nothing."""
    settings = {**ADMIN_LISTENER, "authorizer.class.name": STANDARD_AUTHORIZER, "replica.fetch.wait.max.ms": "60000"}
    async with ReplicatedBrokers(tmp_path, settings, count=2) as brokers:
        async with admin_of(brokers.brokers[0]) as admin:
            await admin.create_acls([replace(BROKERS, host="127.0.0.1")])
            await admin.create_topics([NewTopic("t", 1, 2)])
        await brokers.wait(lambda: all("t" in each.image.topics for each in brokers.brokers.values()))
        await brokers.wait_in_sync("t")
        leader, topic = brokers.brokers[brokers.leader("t")], brokers.brokers[0].image.topics["t"]
        follower = next(each for each in brokers.brokers if each != leader.id)
        partition = leader.partitions.find("t", 0)
        fetched = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
        epoch = leader.image.revision_of(broker_key(BrokerId(follower)))
        request = {
            "replica_state": {"replica_id": follower, "replica_epoch": epoch},
            "max_bytes": 1000,
            "session_epoch": -1,
            "topics": [{"topic_id": topic.id, "partitions": [fetched]}],
        }

        async def fetch(source: str) -> int:
            async with connected(leader, source) as client:
                response = await client.ask(ApiKey.FETCH, request, 17)
            ((outcome,),) = (each.partitions for each in response.responses)
            return int(outcome.error_code)

        await brokers.wait(lambda: bool(partition.replica_waiters))
        (waiter,) = partition.replica_waiters
        assert ErrorCode.TOPIC_AUTHORIZATION_FAILED == await fetch("127.0.0.2")
        assert [waiter] == list(partition.replica_waiters)
        assert ErrorCode.NONE == await fetch("127.0.0.1")
        await brokers.wait(lambda: waiter not in partition.replica_waiters)
