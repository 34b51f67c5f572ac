"""What a client could have the broker do for it: write to other topics through queues, create topics by asking for
their metadata, pass for a broker to avoid its quota. A real broker, real requests over a socket."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest

from ottla import AsyncAdmin
from ottla.broker.broker import Broker
from ottla.broker.configs.configuration import BrokerConfig
from ottla.model.error_codes import ErrorCode
from ottla.protocol.apis import ApiKey
from ottla.security.client_quotas import QuotaKey
from ottla.security.quota_entity import QuotaEntity
from tests.broker.metric_samples import value_of
from tests.broker.test_authorization import Rules
from tests.wire.exchange import RawConnection
from tests.wire.world import batch, create_topic

TIMEOUT: Final = timedelta(seconds=20)
DENIED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
DEAD_LETTERS: Final = "errors.deadletterqueue.topic.name"
EVERYONE: Final = QuotaEntity(user="", client_id=None, ip=None)


def with_broker(folder: Path, test: Callable[[Broker, Rules, RawConnection], None], **quotas: float) -> None:
    """Runs a test in a thread, beside a broker whose permissions it sets."""
    rules = Rules()

    async def run() -> None:
        settings = {"log.dirs": str(folder), "listeners": "PLAINTEXT://127.0.0.1:0", "num.partitions": "3"}
        async with Broker(BrokerConfig.parse(settings=settings), authorizer=rules) as broker:
            if quotas:
                async with AsyncAdmin(bootstrap_servers=f"127.0.0.1:{broker.port}") as admin:
                    await admin.alter_client_quotas({EVERYONE: quotas})

            def connected() -> None:
                with RawConnection(f"127.0.0.1:{broker.port}") as connection:
                    test(broker, rules, connection)

            await asyncio.to_thread(connected)

    asyncio.run(run())


def produced(connection: RawConnection, topic_id: UUID) -> int:
    """The error code of a record for the first partition."""
    parts = [{"index": 0, "records": batch()}]
    request = {"acks": -1, "timeout": TIMEOUT, "topic_data": [{"topic_id": topic_id, "partition_data": parts}]}
    (topic,) = connection.ask(ApiKey.PRODUCE, 13, request).responses
    return int(topic.partition_responses[0].error_code)


def created(connection: RawConnection, name: str, **configs: str) -> int:
    """The error code of a new topic."""
    wish = {"name": name, "num_partitions": 1, "replication_factor": 1}
    listed = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
    answer = connection.ask_newest(ApiKey.CREATE_TOPICS, {"timeout": TIMEOUT, "topics": [{**wish, "configs": listed}]})
    return int(answer.topics[0].error_code)


def configured(connection: RawConnection, topic: str, name: str, value: str) -> int:
    """The error code of a changed config."""
    change = {"name": name, "config_operation": 0, "value": value}
    resource = {"resource_type": 2, "resource_name": topic, "configs": [change]}
    answer = connection.ask_newest(ApiKey.INCREMENTAL_ALTER_CONFIGS, {"resources": [resource]})
    return int(answer.responses[0].error_code)


def test_delayed_and_half_messages_need_the_permission_of_their_topic(tmp_path: Path) -> None:
    def test(broker: Broker, rules: Rules, connection: RawConnection) -> None:
        create_topic(connection, "orders", ottla_delay_enable="true", ottla_half_enable="true")
        ids = {name: topic.id for name, topic in broker.image.topics.items()}
        assert 0 == produced(connection, ids["orders.delayed"])
        rules.deny("WRITE TOPIC orders", "CLUSTER_ACTION CLUSTER *")
        assert [DENIED] * 3 == [produced(connection, ids[name]) for name in ("orders", "orders.delayed", "orders.half")]
        rules.deny("WRITE TOPIC orders.delayed", "CLUSTER_ACTION CLUSTER *")
        assert (0, DENIED) == (produced(connection, ids["orders"]), produced(connection, ids["orders.delayed"]))

    with_broker(tmp_path, test)


def test_dead_letters_go_only_where_the_client_may_write(tmp_path: Path) -> None:
    def test(broker: Broker, rules: Rules, connection: RawConnection) -> None:
        create_topic(connection, "victim")
        create_topic(connection, "dlq.taken")
        create_topic(connection, "plain")
        rules.deny("WRITE TOPIC victim", "WRITE TOPIC dlq.taken", "CREATE TOPIC new", "CREATE CLUSTER kafka-cluster")
        named = {"ottla_ttl_ms": "1", "errors_deadletterqueue_topic_name": "victim"}
        assert DENIED == created(connection, "mine", **named)
        assert DENIED == created(connection, "mine", **{**named, "errors_deadletterqueue_topic_name": "new"})
        assert DENIED == created(connection, "taken", ottla_delay_enable="true")
        assert DENIED == configured(connection, "plain", DEAD_LETTERS, "victim")
        assert DENIED == configured(connection, "plain", DEAD_LETTERS, "new")
        assert {"victim", "dlq.taken", "plain"} == broker.image.topics.keys()
        assert 0 == created(connection, "mine", ottla_delay_enable="true")
        assert 0 == configured(connection, "plain", DEAD_LETTERS, "dlq.mine")
        # What was set before stays, and does not hinder other changes.
        rules.deny("WRITE TOPIC dlq.mine")
        assert 0 == configured(connection, "plain", "retention.ms", "1000")

    with_broker(tmp_path, test)


def test_topics_that_are_created_automatically_count_for_the_quota(tmp_path: Path) -> None:
    """Without it, a client could create any number of topics by asking for their metadata."""

    def test(broker: Broker, _: Rules, connection: RawConnection) -> None:
        for number in range(30):
            request = {"topics": [{"name": f"t{number}"}], "allow_auto_topic_creation": True}
            (found,) = connection.ask(ApiKey.METADATA, 9, request).topics
            if found.error_code:
                assert ErrorCode.LEADER_NOT_AVAILABLE == int(found.error_code)
                break
        # Ten seconds' worth at once, of three partitions each, and one more topic that exceeds it.
        assert 3 < len(broker.image.topics) < 8

    with_broker(tmp_path, test, controller_mutation_rate=1.0)


@pytest.mark.parametrize("api_key", [ApiKey.FETCH, ApiKey.WRITE_TXN_MARKERS])
def test_only_brokers_are_exempt_from_the_request_quota(tmp_path: Path, api_key: ApiKey) -> None:
    """Not clients that fetch as a replica, or send markers."""

    def test(broker: Broker, rules: Rules, connection: RawConnection) -> None:
        def throttled() -> float:
            return value_of(broker, "ottla_quota_throttled_total", quota=QuotaKey.REQUEST_PERCENTAGE.value)

        def ask(times: int) -> None:
            for _ in range(times):
                request: dict[str, Any] = {"replica_id": 0, "max_bytes": 1, "markers": []}
                connection.ask(api_key, 12 if api_key is ApiKey.FETCH else 1, request)

        ask(20)
        assert 0 == throttled()
        rules.deny("CLUSTER_ACTION CLUSTER *")
        ask(3)
        assert 0 < throttled()

    with_broker(tmp_path, test, request_percentage=0.0001)
