"""ACLs from request to decision: a real broker with Kafka's StandardAuthorizer, real requests over a socket.

The client is `User:ANONYMOUS`; a super user gives it what it may do at first.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from ottla.broker.broker import Broker
from ottla.client.admin.acls import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ACLResourceType,
    ResourcePattern,
)
from ottla.client.admin.values import NewTopic
from ottla.metadata.configs.authorization_configs import STANDARD_AUTHORIZER
from ottla.metadata.image import ClusterImage
from ottla.protocol.apis import ApiKey
from ottla.security.acls import AclBinding, PatternType, Permission
from ottla.security.resources import Operation, ResourceType
from tests.broker.running_broker import broker_on, dotted, running
from tests.broker.secured import ADMIN_LISTENER, admin_of
from tests.wire.exchange import RawConnection
from tests.wire.world import batch, produce

ANY: Final = 1
NAMES: Final = ("plain", "with space", "a/b/c", "ünï-çødé-日本", "%2F", "..", "*", "<default>")


def binding(
    operation: Operation,
    resource_type: ResourceType = ResourceType.CLUSTER,
    name: str = "kafka-cluster",
    permission: Permission = Permission.ALLOW,
    pattern_type: PatternType = PatternType.LITERAL,
    host: str = "*",
) -> AclBinding:
    return AclBinding(
        resource_type=resource_type,
        pattern_type=pattern_type,
        name=name,
        principal="User:ANONYMOUS",
        host=host,
        operation=operation,
        permission=permission,
    )


def created(each: AclBinding) -> dict[str, Any]:
    return {
        "resource_type": each.resource_type,
        "resource_name": each.name,
        "resource_pattern_type": each.pattern_type,
        "principal": each.principal,
        "host": each.host,
        "operation": each.operation,
        "permission_type": each.permission,
    }


def selecting(**values: Any) -> dict[str, Any]:
    return {"resource_type_filter": ANY, "pattern_type_filter": ANY, "operation": ANY, "permission_type": ANY} | values


def described(answer: Any) -> list[tuple[int, int, str, str, str, int, int]]:
    return [
        (
            resource.resource_type,
            resource.pattern_type,
            resource.resource_name,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for resource in answer.resources
        for acl in resource.acls
    ]


def codes(results: Any) -> list[int]:
    return [each.error_code.value for each in results]


def client_acl(each: AclBinding) -> ACL:
    return ACL(
        each.principal,
        each.host,
        ACLOperation(each.operation),
        ACLPermissionType(each.permission),
        ResourcePattern(ACLResourceType(each.resource_type), each.name, ACLResourcePatternType(each.pattern_type)),
    )


async def make_topic(broker: Broker, name: str) -> None:
    async with admin_of(broker) as admin:
        await admin.create_topics([NewTopic(name)])


ADMIN: Final = (binding(Operation.ALTER),)
"""Which implies DESCRIBE."""


@asynccontextmanager
async def secured_connection(
    folder: Path, *acls: AclBinding, **settings: str
) -> AsyncIterator[tuple[Broker, RawConnection]]:
    """Runs a test against a broker with these ACLs, over a connection to it."""

    given = {**ADMIN_LISTENER, "authorizer.class.name": STANDARD_AUTHORIZER, **dotted(settings)}
    async with broker_on(folder, given) as broker:
        if acls:
            async with admin_of(broker) as admin:
                await admin.create_acls(map(client_acl, acls))
        with await asyncio.to_thread(RawConnection, f"127.0.0.1:{broker.port}") as connection:
            yield broker, connection


async def ask(connection: RawConnection, api_key: ApiKey, **values: Any) -> Any:
    return await asyncio.to_thread(connection.ask_newest, api_key, values)


async def test_without_acls_nothing_is_allowed(tmp_path: Path) -> None:
    async with secured_connection(tmp_path) as (broker, connection):
        await make_topic(broker, "t")
        answer = await ask(connection, ApiKey.METADATA, topics=None)
        assert () == answer.topics
        answer = await ask(connection, ApiKey.METADATA, topics=[{"name": "t"}])
        assert [29] == codes(answer.topics)
        answer = await ask(connection, ApiKey.CREATE_ACLS, creations=[created(ADMIN[0])])
        assert [31] == codes(answer.results)
        assert frozenset() == broker.image.acls


async def test_super_users_may_do_everything(tmp_path: Path) -> None:
    async with secured_connection(tmp_path, super_users="User:other;User:ANONYMOUS") as (_broker, connection):
        denied = binding(Operation.ALTER, permission=Permission.DENY)
        answer = await ask(connection, ApiKey.CREATE_ACLS, creations=[created(denied)])
        assert [0] == codes(answer.results)
        answer = await ask(connection, ApiKey.CREATE_ACLS, creations=[created(ADMIN[0])])
        assert [0] == codes(answer.results)


async def test_resources_without_acls_may_be_open(tmp_path: Path) -> None:
    async with secured_connection(tmp_path, allow_everyone_if_no_acl_found="true") as (broker, connection):
        await make_topic(broker, "t")
        assert [0] == codes((await ask(connection, ApiKey.METADATA, topics=[{"name": "t"}])).topics)
        other = binding(Operation.READ, ResourceType.TOPIC, "t", host="1.2.3.4")
        await ask(connection, ApiKey.CREATE_ACLS, creations=[created(other)])
        assert [29] == codes((await ask(connection, ApiKey.METADATA, topics=[{"name": "t"}])).topics)


async def test_acls_are_created_described_and_deleted(tmp_path: Path) -> None:
    """Also those with names that no key of a store could have as they are."""
    acls = [binding(Operation.READ, ResourceType.TOPIC, name) for name in NAMES]
    acls.append(binding(Operation.ALL, ResourceType.GROUP, "g", Permission.DENY, PatternType.PREFIXED, "10.0.0.0/8"))
    async with secured_connection(tmp_path, *ADMIN) as (broker, connection):
        answer = await ask(connection, ApiKey.CREATE_ACLS, creations=[*map(created, acls), created(acls[0])])
        assert [0] * (len(acls) + 1) == codes(answer.results)
        assert frozenset([*acls, *ADMIN]) == broker.image.acls
        answer = await ask(connection, ApiKey.DESCRIBE_ACLS, **selecting(resource_type_filter=3))
        assert [(3, 4, "g", "User:ANONYMOUS", "10.0.0.0/8", 2, 2)] == described(answer)
        answer = await ask(connection, ApiKey.DESCRIBE_ACLS, **selecting())
        assert len(acls) + 1 == len(described(answer))
        answer = await ask(
            connection,
            ApiKey.DESCRIBE_ACLS,
            **selecting(resource_type_filter=2, pattern_type_filter=2, resource_name_filter="a/b/c"),
        )
        assert {"a/b/c", "*"} == {each[2] for each in described(answer)}
        filters = [selecting(resource_type_filter=2, resource_name_filter="a/b/c"), selecting(resource_type_filter=2)]
        answer = await ask(connection, ApiKey.DELETE_ACLS, filters=[*filters, selecting(operation=99)])
        assert [0, 0, 42] == codes(answer.filter_results)
        assert [1, len(NAMES), 0] == [len(each.matching_acls) for each in answer.filter_results]
        assert frozenset([acls[-1], *ADMIN]) == broker.image.acls


@pytest.mark.parametrize(
    "change",
    [
        {"resource_type": 0},
        {"resource_type": 1},
        {"resource_type": 99},
        {"operation": 1},
        {"operation": 0},
        {"resource_pattern_type": 1},
        {"resource_pattern_type": 2},
        {"permission_type": 1},
        {"resource_name": ""},
        {"host": ""},
        {"host": "10.0.0.0/33"},
        {"host": "10.0.0.0/255.0.0.0"},
        {"host": "name/8"},
        {"principal": "alice"},
        {"resource_type": 4, "resource_name": "other"},
    ],
    ids=str,
)
async def test_invalid_acls_are_refused_alone(tmp_path: Path, change: dict[str, Any]) -> None:
    valid = binding(Operation.READ, ResourceType.TOPIC, "t")
    async with secured_connection(tmp_path, *ADMIN) as (broker, connection):
        answer = await ask(connection, ApiKey.CREATE_ACLS, creations=[created(valid) | change, created(valid)])
        assert [42, 0] == codes(answer.results)
        assert frozenset([valid, *ADMIN]) == broker.image.acls


async def test_decisions_of_open_connections_change_with_the_acls(tmp_path: Path) -> None:
    write = binding(Operation.WRITE, ResourceType.TOPIC, "t", pattern_type=PatternType.PREFIXED)
    async with secured_connection(tmp_path, *ADMIN) as (broker, connection):
        await make_topic(broker, "topic")
        topic_id = broker.image.topics["topic"].id

        async def write_code() -> int:
            data = [{"name": "topic", "topic_id": topic_id, "partition_data": [{"index": 0, "records": batch()}]}]
            answer = await ask(connection, ApiKey.PRODUCE, acks=1, topic_data=data)
            return int(answer.responses[0].partition_responses[0].error_code.value)

        assert 29 == await write_code()
        await ask(connection, ApiKey.CREATE_ACLS, creations=[created(write)])
        assert 0 == await write_code()
        deny = binding(Operation.WRITE, ResourceType.TOPIC, "topic", Permission.DENY, host="127.0.0.0/8")
        await ask(connection, ApiKey.CREATE_ACLS, creations=[created(deny)])
        assert 29 == await write_code()
        await ask(connection, ApiKey.DELETE_ACLS, filters=[selecting(permission_type=2)])
        assert 0 == await write_code()


async def test_a_client_cannot_fetch_as_a_replica(tmp_path: Path) -> None:
    """With READ and every other operation on the topic, but not CLUSTER_ACTION."""
    topic = binding(Operation.ALL, ResourceType.TOPIC, "t")
    async with secured_connection(tmp_path, topic) as (broker, connection):
        await make_topic(broker, "t")
        topic_id = broker.image.topics["t"].id
        await asyncio.to_thread(produce, connection, topic_id, batch())
        wanted = [{"topic_id": topic_id, "partitions": [{"partition": 0, "partition_max_bytes": 1000}]}]
        fetch = {"max_bytes": 1000, "session_epoch": -1, "topics": wanted}
        answer = await ask(connection, ApiKey.FETCH, **fetch)
        assert [0] == codes(answer.responses[0].partitions)
        answer = await ask(connection, ApiKey.FETCH, **fetch, replica_state={"replica_id": 1, "replica_epoch": 1})
        assert [29] == codes(answer.responses[0].partitions)


async def test_acls_outlive_the_broker(tmp_path: Path) -> None:
    acls = [binding(Operation.READ, ResourceType.TOPIC, name) for name in NAMES]
    images: list[ClusterImage] = []
    async with secured_connection(tmp_path, *ADMIN) as (broker, connection):
        await ask(connection, ApiKey.CREATE_ACLS, creations=list(map(created, acls)))
    async with secured_connection(tmp_path) as (broker, connection):
        images.append(broker.image)
        answer = await ask(connection, ApiKey.DESCRIBE_ACLS, **selecting(resource_type_filter=2))
        assert len(acls) == len(described(answer))
    assert frozenset([*acls, *ADMIN]) == images[0].acls


async def test_decisions_are_logged_for_auditors(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What was asked for by name, but not what a listing leaves out."""
    async with secured_connection(tmp_path, *ADMIN) as (broker, connection):
        await make_topic(broker, "hidden")
        with caplog.at_level(logging.DEBUG, logger="ottla.authorizer"):
            await ask(connection, ApiKey.METADATA, topics=None)
            await ask(connection, ApiKey.METADATA, topics=[{"name": "bad\nname"}], allow_auto_topic_creation=False)
            await ask(connection, ApiKey.DESCRIBE_ACLS, **selecting())
    lines = [(each.levelno, each.getMessage()) for each in caplog.records if each.name == "ottla.authorizer"]
    rest = "from host 127.0.0.1 (listener PLAINTEXT)"
    assert [
        (
            logging.INFO,
            f"principal 'User:ANONYMOUS' is denied operation DESCRIBE on resource TOPIC:'bad\\nname' {rest}",
        ),
        (
            logging.DEBUG,
            f"principal 'User:ANONYMOUS' is allowed operation DESCRIBE on resource CLUSTER:'kafka-cluster' {rest}",
        ),
    ] == lines


@pytest.mark.parametrize(
    ("api_key", "version", "operation"),
    [(ApiKey.METADATA, 9, "DESCRIBE"), (ApiKey.FETCH, 11, "READ"), (ApiKey.DELETE_TOPICS, 6, "DESCRIBE")],
)
async def test_one_line_for_all_that_a_request_is_denied(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, api_key: ApiKey, version: int, operation: str
) -> None:
    """The log of a broker must not grow by a line for each of thousands of names in a request."""
    names = [f"{number}{'x' * 300 * (number == 1)}" for number in range(3000)]
    topics = [{"name": name, "topic": name, "topic_id": None, "partitions": [{"partition": 0}]} for name in names]

    values = {"topics": topics, "allow_auto_topic_creation": False, "session_epoch": -1, "replica_id": -1}
    async with secured_connection(tmp_path) as (_broker, connection):
        with caplog.at_level(logging.INFO, logger="ottla.authorizer"):
            for _ in range(2):
                await asyncio.to_thread(connection.ask, api_key, version, values)
    (first, second) = [each.getMessage() for each in caplog.records if each.name == "ottla.authorizer"]
    long = "1" + "x" * 248
    shown = f"TOPIC:'0', TOPIC:'{long}'..., TOPIC:'2', TOPIC:'3', TOPIC:'4' and 2995 more from host 127.0.0.1"
    assert f"principal 'User:ANONYMOUS' is denied operation {operation} on 3000 resources {shown}" in first
    # The decisions of a fetch are kept, except for those about names that no topic can have.
    assert f"is denied operation {operation}" in second


async def test_acl_requests_without_an_authorizer(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        with await asyncio.to_thread(RawConnection, f"127.0.0.1:{broker.port}") as connection:
            assert [54] == codes((await ask(connection, ApiKey.CREATE_ACLS, creations=[created(ADMIN[0])])).results)
            assert 54 == (await ask(connection, ApiKey.DESCRIBE_ACLS, **selecting())).error_code.value
            assert [54] == codes((await ask(connection, ApiKey.DELETE_ACLS, filters=[selecting()])).filter_results)
