"""Brokers among themselves under an authorizer: they need CLUSTER_ACTION, and say so when they do not have it."""

import logging
from pathlib import Path

import pytest

from ottla.controller.decisions import NewTopic
from ottla.metadata.configs.authorization_configs import STANDARD_AUTHORIZER
from ottla.security.acls import AclBinding, AclFilter, PatternType, Permission
from ottla.security.resources import CLUSTER_NAME, Operation, ResourceType
from tests.broker.replicated import SOON_LATE, ReplicatedBrokers

BROKERS = AclBinding(
    resource_type=ResourceType.CLUSTER,
    pattern_type=PatternType.LITERAL,
    name=CLUSTER_NAME,
    principal="User:ANONYMOUS",
    host="127.0.0.0/8",
    operation=Operation.CLUSTER_ACTION,
    permission=Permission.ALLOW,
)


async def test_followers_need_cluster_action(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Without it, they copy nothing, leave the ISR, and log what to set; with an ACL they are back in the ISR."""
    with caplog.at_level(logging.INFO):
        settings = {"authorizer.class.name": STANDARD_AUTHORIZER, **SOON_LATE}
        async with ReplicatedBrokers(tmp_path, settings, count=2) as brokers:
            one = brokers.brokers[0]
            topic = NewTopic(name="t", partition_count=1, replication_factor=2)
            await one.wait_revision((await one.parts.controller.create_topics([topic])).revision)
            await brokers.wait(lambda: "does not authorize this broker for CLUSTER_ACTION" in caplog.text)
            await brokers.wait(lambda: len(one.image.topics["t"].partitions[0].isr) == 1)
            await one.parts.controller.create_acls([BROKERS])
            await brokers.wait(lambda: len(one.image.topics["t"].partitions[0].isr) == 2)
    assert "super.users" in caplog.text


async def test_every_broker_decides_by_the_same_acls(tmp_path: Path) -> None:
    """Created at one broker, an ACL is known to the authorizers of all; deleted at another one, to none."""
    settings = {"authorizer.class.name": STANDARD_AUTHORIZER}
    async with ReplicatedBrokers(tmp_path, settings, count=2) as brokers:
        one, two = brokers.brokers.values()
        versions = one.parts.authorizer.version, two.parts.authorizer.version
        await one.parts.controller.create_acls([BROKERS])
        await brokers.wait(lambda: one.image.acls == two.image.acls == {BROKERS})
        # Each has its own metadata: the second need not have seen the ACL to delete it.
        await two.parts.controller.delete_acls([AclFilter()])
        await brokers.wait(lambda: one.image.acls == two.image.acls == frozenset())
        later = one.parts.authorizer.version, two.parts.authorizer.version
        assert all(new > old for old, new in zip(versions, later, strict=True))
