"""Companion topics as clients see them: over a socket, by our admin client and our producer."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Collection
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from ottla.broker import produce_gates
from ottla.broker.broker import Broker
from ottla.broker.configs.configuration import BrokerConfig
from ottla.client.admin.async_admin import AsyncAdmin
from ottla.client.admin.config_requests import ResourceType
from ottla.client.admin.values import ConfigResource, NewTopic
from ottla.client.consumer.async_consumer import AsyncConsumer
from ottla.client.producer.async_producer import AsyncProducer
from ottla.env.real_disk import RealDisk
from ottla.env.world import real_world
from ottla.metadata.configs.queue_settings import QueueSettings
from ottla.metadata.image import TopicImage
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import TimestampMs, TopicPartition
from ottla.model.queue_names import CompanionKind
from ottla.protocol.answer_errors import AnswerError
from ottla.protocol.apis import ApiKey
from ottla.records.batch import Batch
from ottla.security.authorizer import Authorizer
from ottla.security.connection_context import ConnectionContext
from ottla.security.resources import Operation
from ottla.security.resources import ResourceType as SecuredType
from tests.broker.moved_clock import MovedClock
from tests.broker.running_broker import ask, broker_on, dotted

TOPIC_DENIED = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
DELAY = {"ottla.delay.enable": "true"}
RETRY = {"ottla.retry.enable": "true"}
DELAYED = ["dlq.t", "t", "t.delayed"]
GROUP = ["dlq.t", "t", "t.g.redelivery", "t.g.retry"]


@asynccontextmanager
async def serving_admin(
    folder: Path, authorizer: Authorizer | None = None, **settings: str
) -> AsyncIterator[tuple[Broker, AsyncAdmin]]:
    async with (
        broker_on(folder, dotted(settings), authorizer=authorizer) as broker,
        asyncio.timeout(60),
        AsyncAdmin(bootstrap_servers=f"127.0.0.1:{broker.port}") as admin,
    ):
        yield broker, admin


async def create(admin: AsyncAdmin, name: str, configs: dict[str, str], partitions: int = 2) -> None:
    await admin.create_topics([NewTopic(name, partitions, 1, topic_configs=configs)])


async def configure(admin: AsyncAdmin, name: str, configs: dict[str, str], **options: bool) -> None:
    await admin.alter_configs([ConfigResource(ResourceType.TOPIC, name, configs)], **options)


async def send(
    broker: Broker, name: str, value: bytes = b"v", *, headers: list[tuple[str, bytes]] | None = None, **options: Any
) -> None:
    async with AsyncProducer(bootstrap_servers=f"127.0.0.1:{broker.port}", **options) as producer:
        if "transactional_id" not in options:
            await producer.send_and_wait(name, value, partition=0, headers=headers)
            return
        await producer.init_transactions()
        producer.begin_transaction()
        await producer.send(name, value, partition=0)
        await producer.commit_transaction()


async def refusal(action: Awaitable[object]) -> tuple[ErrorCode, str]:
    with pytest.raises(AnswerError) as raised:
        await action
    return raised.value.error_code, str(raised.value)


class TestTopics:
    async def test_created_grown_and_deleted(self, tmp_path: Path) -> None:
        async with serving_admin(tmp_path) as (_broker, admin):
            await create(admin, "t", DELAY)
            assert DELAYED == await admin.list_topics()
            await admin.create_partitions({"t": 5})
            assert [5, 5, 5] == [len(each.partitions) for each in (await admin.describe_topics(DELAYED)).values()]
            code, message = await refusal(admin.delete_topics(["t.delayed"]))
            assert ErrorCode.POLICY_VIOLATION == code
            assert "set ottla.delay.enable=false there first" in message
            await admin.delete_topics(["t"])
            assert ["dlq.t"] == await admin.list_topics()

    async def test_enabled_later_and_still_there_after_a_restart(self, tmp_path: Path) -> None:
        async with serving_admin(tmp_path) as (_, admin):
            await create(admin, "t", {})
            await configure(admin, "t", DELAY, validate_only=True)
            assert ["t"] == await admin.list_topics()
            await configure(admin, "t", DELAY)
            assert DELAYED == await admin.list_topics()
        async with serving_admin(tmp_path) as (_broker, admin):
            assert DELAYED == await admin.list_topics()

    async def test_a_taken_name_is_refused(self, tmp_path: Path) -> None:
        async with serving_admin(tmp_path) as (_broker, admin):
            await create(admin, "t.delayed", {})
            code, message = await refusal(create(admin, "t", DELAY))
            assert ErrorCode.INVALID_CONFIG == code
            assert "another topic has that name" in message
            await create(admin, "t", {})
            for validate_only in (True, False):
                code, message = await refusal(configure(admin, "t", DELAY, validate_only=validate_only))
                assert ErrorCode.INVALID_CONFIG == code
                assert "another topic has that name" in message


class TestConfigs:
    async def test_the_mark_is_read_only_and_described(self, tmp_path: Path) -> None:
        async with serving_admin(tmp_path) as (_broker, admin):
            await create(admin, "t", DELAY)
            resource = ConfigResource(ResourceType.TOPIC, "t.delayed")
            described = (await admin.describe_configs([resource], include_documentation=True))[resource]
            assert {"ottla.companion.of": "t", "ottla.companion.kind": "delayed"} == {
                name: entry.value for name, entry in described.items() if entry.is_read_only
            }
            assert [] == [name for name, entry in described.items() if not entry.documentation]
            for name in ("t", "t.delayed"):
                code, message = await refusal(configure(admin, name, {"ottla.companion.of": "x"}))
                assert ErrorCode.INVALID_CONFIG == code
                assert "set by the controller" in message
            await configure(admin, "t.delayed", {"segment.bytes": "2000000"})

    async def test_alter_configs_keeps_the_mark(self, tmp_path: Path) -> None:
        """AlterConfigs replaces all configs of a resource: those that the controller sets stay."""
        async with serving_admin(tmp_path) as (broker, admin):
            await create(admin, "t", DELAY)
            before = broker.image.topics["t.delayed"].configs
            resource = {
                "resource_type": 2,
                "resource_name": "t.delayed",
                "configs": [{"name": "segment.bytes", "value": "2000000"}],
            }
            answer = await ask(broker, ApiKey.ALTER_CONFIGS, {"resources": [resource], "validate_only": False})
            assert [0] == [int(each.error_code) for each in answer.responses]
            assert {**before, "segment.bytes": "2000000"} == broker.image.topics["t.delayed"].configs

    async def test_what_is_parked_stays_whatever_retention_says(self, tmp_path: Path) -> None:
        async with serving_admin(tmp_path) as (broker, admin):
            await create(admin, "t", {**DELAY, "retention.ms": "1", "retention.bytes": "1", "flush.messages": "1"})
            log = broker.partitions.find("t.delayed", 0).log.config
            assert (-1, -1, 1) == (log.retention_ms, log.retention_bytes, log.flush_messages)
            await configure(admin, "t", {"flush.messages": "7"})
            assert 7 == broker.partitions.find("t.delayed", 0).log.config.flush_messages
            code, _ = await refusal(admin.delete_records({TopicPartition("t.delayed", 0): 0}))
            assert ErrorCode.POLICY_VIOLATION == code
            await admin.delete_records({TopicPartition("dlq.t", 0): 0})


class TestInternal:
    """Companions that only the broker reads are internal topics for clients; those that applications read are not."""

    PARKING = ("t.delayed", "t.g.retry", "t.half")
    READ = ("dlq.t", "t", "t.g.redelivery", "t.half-checks")

    async def all_of_them(self, admin: AsyncAdmin) -> None:
        await create(admin, "t", {**DELAY, **RETRY, "ottla.half.enable": "true"}, partitions=1)
        await admin.create_topics([NewTopic("t.g.retry")])

    async def test_metadata_and_describe_topic_partitions(self, tmp_path: Path) -> None:
        consumers = ConsumersOnly()
        async with serving_admin(tmp_path, consumers) as (broker, admin):
            await self.all_of_them(admin)
            expected = {name: name in self.PARKING for name in (*self.PARKING, *self.READ)}
            everything = await ask(broker, ApiKey.METADATA, {"topics": None, "allow_auto_topic_creation": False})
            assert expected == {str(each.name): each.is_internal for each in everything.topics}
            # Producers name their topics, and that of kafka-python refuses internal ones.
            request = {"topics": [{"name": name} for name in expected], "allow_auto_topic_creation": False}
            assert {False} == {each.is_internal for each in (await ask(broker, ApiKey.METADATA, request)).topics}
            # After both, what is kept of the answers is still right.
            consumers.names = expected
            everything = await ask(broker, ApiKey.METADATA, {"topics": None, "allow_auto_topic_creation": False})
            consumers.names = None
            assert expected == {str(each.name): each.is_internal for each in everything.topics}
            page = {"topics": [], "response_partition_limit": 100, "cursor": None}
            described = await ask(broker, ApiKey.DESCRIBE_TOPIC_PARTITIONS, page)
            assert expected == {str(each.name): each.is_internal for each in described.topics}

    @pytest.mark.parametrize("protocol", ["classic", "consumer"])
    async def test_a_pattern_does_not_match_them(
        self, tmp_path: Path, protocol: Literal["classic", "consumer"]
    ) -> None:
        async with serving_admin(tmp_path) as (broker, admin):
            await self.all_of_them(admin)
            address = f"127.0.0.1:{broker.port}"
            async with AsyncConsumer(bootstrap_servers=address, group_id="p", group_protocol=protocol) as consumer:
                consumer.subscribe(pattern=r"(dlq\.)?t.*")
                while not consumer.assignment():
                    await consumer.poll(0.1)
                assert set(self.READ) == {each.topic for each in consumer.assignment()}
                # Asking for it by name, when the broker does not call it internal, makes no difference.
                view = await consumer._core.cluster.refresh()
                assert view.topics["t.delayed"].is_internal
                view = await consumer._core.cluster.refresh(["t.delayed"])
                assert view.topics["t.delayed"].is_internal
                # It is always possible to subscribe to an internal topic by its name.
                await consumer.unsubscribe()
                consumer.subscribe(["t.delayed"])
                while {each.topic for each in consumer.assignment()} != {"t.delayed"}:
                    await consumer.poll(0.1)

    async def test_clients_may_produce_to_them_and_administrate_them(self, tmp_path: Path) -> None:
        async with serving_admin(tmp_path) as (broker, admin):
            await self.all_of_them(admin)
            await send(broker, "t.delayed", headers=[("ottla.delay-ms", b"0")])
            await send(broker, "t.delayed", transactional_id="x")
            await configure(admin, "t.delayed", {"segment.bytes": "2097152"})
            assert "2097152" == broker.image.topics["t.delayed"].configs["segment.bytes"]
            await admin.delete_topics(["t.g.retry"])
            await configure(admin, "t", {"ottla.delay.enable": "false"})
            await admin.delete_topics(["t.delayed"])
            assert not {"t.delayed", "t.g.retry"} & {*await admin.list_topics()}


class TestReservedNames:
    """A name that a companion of an existing topic would have is not created automatically as an ordinary topic."""

    @pytest.mark.parametrize("name", ["t.delayed", "t.half", "t.half-checks", "t.g.retry", "t.g.redelivery"])
    async def test_not_created_automatically(self, tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture) -> None:
        async with serving_admin(tmp_path) as (broker, admin):
            await create(admin, "t", {})
            code, message = await refusal(send(broker, name))
            assert (ErrorCode.INVALID_TOPIC_EXCEPTION, True) == (code, f"topic {name}" in message)
            await refusal(send(broker, name))
            assert ["t"] == await admin.list_topics()
            config = {"delayed": "delay", "half": "half", "half-checks": "half"}.get(name.rpartition(".")[2], "retry")
            warnings = [each.getMessage() for each in caplog.records if name in each.getMessage() and each.levelno > 20]
            assert [
                f"topic {name} not created automatically: it is the name of a companion of topic t, which has not"
                f" enabled that queue; set ottla.{config}.enable=true on topic t, or create topic {name} explicitly"
                " if it is not meant for the queue"
            ] == [each for each in warnings if each.startswith(f"topic {name} not created")]
            # An ordinary topic of that name may be created explicitly, and is used as any other.
            await admin.create_topics([NewTopic(name)])
            await send(broker, name)
            assert 1 == broker.partitions.find(name, 0).end_offset

    @pytest.mark.parametrize("name", ["absent.delayed", "absent.half", "absent.g.retry"])
    async def test_without_the_topic_an_ordinary_one_is_created_with_a_warning(
        self, tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with serving_admin(tmp_path) as (broker, admin):
            await send(broker, name)
            assert [name] == await admin.list_topics()
        (warning,) = [each.getMessage() for each in caplog.records if f"topic {name} created" in each.getMessage()]
        assert "topic absent does not exist" in warning
        assert "with ottla." in warning

    async def test_a_client_that_may_not_create_topics_learns_nothing(self, tmp_path: Path) -> None:
        consumers = ConsumersOnly()
        async with serving_admin(tmp_path, consumers) as (broker, admin):
            await create(admin, "t", {})
            consumers.names = ["t"]
            request = {"topics": [{"name": "t.delayed"}], "allow_auto_topic_creation": True}
            (answer,) = (await ask(broker, ApiKey.METADATA, request)).topics
            assert TOPIC_DENIED == int(answer.error_code)

    async def test_after_a_queue_was_disabled_and_its_companion_deleted(self, tmp_path: Path) -> None:
        async with serving_admin(tmp_path) as (broker, admin):
            await create(admin, "t", DELAY)
            await configure(admin, "t", {"ottla.delay.enable": "false"})
            await admin.delete_topics(["t.delayed"])
            code, _ = await refusal(send(broker, "t.delayed"))
            assert ErrorCode.INVALID_TOPIC_EXCEPTION == code
            await configure(admin, "t", {"ottla.delay.enable": "true"})
            await send(broker, "t.delayed", headers=[("ottla.delay-ms", b"0")])

    @pytest.mark.parametrize(
        "name", ["u.delayed", "u.g.retry", "t.retry", "t.redelivery", ".delayed", "t-delayed", "dlq.t.delayed", "t.x"]
    )
    async def test_other_names_are_created(self, tmp_path: Path, name: str) -> None:
        async with serving_admin(tmp_path) as (broker, admin):
            # The dead-letter topic is a companion itself, so it cannot have one.
            await create(admin, "t", DELAY)
            await send(broker, name)
            assert name in await admin.list_topics()


class TestGroups:
    @pytest.mark.parametrize("name", ["t.g.retry", "t.g.redelivery"])
    async def test_metadata_creates_both_companions(self, tmp_path: Path, name: str) -> None:
        async with serving_admin(tmp_path, auto_create_topics_enable="false") as (broker, admin):
            await create(admin, "t", RETRY, partitions=3)
            for allow, error, found in ((False, 3, ["dlq.t", "t"]), (True, 0, GROUP)):
                request = {"topics": [{"name": name}], "allow_auto_topic_creation": allow}
                (answer,) = (await ask(broker, ApiKey.METADATA, request)).topics
                assert error == int(answer.error_code)
                assert found == await admin.list_topics()
            assert 3 == len(answer.partitions)
            (missing,) = (
                await ask(
                    broker, ApiKey.METADATA, {"topics": [{"name": "u.g.retry"}], "allow_auto_topic_creation": True}
                )
            ).topics
            assert 3 == int(missing.error_code)

    async def test_both_in_one_metadata_request(self, tmp_path: Path) -> None:
        async with serving_admin(tmp_path) as (broker, admin):
            await create(admin, "t", RETRY)
            request = {"topics": [{"name": name} for name in GROUP], "allow_auto_topic_creation": True}
            assert [0] * 4 == [int(each.error_code) for each in (await ask(broker, ApiKey.METADATA, request)).topics]

    async def test_create_topics_and_a_producer_create_them(self, tmp_path: Path) -> None:
        async with serving_admin(tmp_path, auto_create_topics_enable="false") as (broker, admin):
            await create(admin, "t", RETRY)
            await send(broker, "t.g.retry")
            assert GROUP == await admin.list_topics()
            await admin.create_topics([NewTopic("t.h.retry")])
            assert {"t.h.retry", "t.h.redelivery"} <= {*await admin.list_topics()}
            await admin.delete_topics(["t.g.retry", "t.h.retry"])
            assert ["dlq.t", "t"] == await admin.list_topics()
            code, message = await refusal(admin.create_topics([NewTopic("t.my group.retry")]))
            assert ErrorCode.INVALID_TOPIC_EXCEPTION == code
            assert "consumer group 'my group' cannot have companions of topic 't'" in message


class ConsumersOnly:
    """An authorizer that allows everything; once there are names, only reading topics and groups with these."""

    allows_all = False
    version = 0

    def __init__(self) -> None:
        self.names: Collection[str] | None = None

    def allows(self, client: ConnectionContext, operation: Operation, resource_type: SecuredType, name: str) -> bool:
        return (
            self.names is None
            or operation is Operation.DESCRIBE
            or (operation is Operation.READ and name in self.names)
        )

    def allows_any(self, client: ConnectionContext, operation: Operation, resource_type: SecuredType) -> bool:
        return self.names is None


@pytest.mark.parametrize(
    ("names", "error"), [(["t", "g"], 0), (["t"], TOPIC_DENIED), (["g"], TOPIC_DENIED), ([], TOPIC_DENIED)]
)
async def test_members_of_a_group_may_create_its_companions(tmp_path: Path, names: list[str], error: int) -> None:
    consumers = ConsumersOnly()
    async with serving_admin(tmp_path, consumers) as (broker, admin):
        await create(admin, "t", RETRY)
        consumers.names = names
        request = {"topics": [{"name": "t.g.retry"}], "allow_auto_topic_creation": True}
        (answer,) = (await ask(broker, ApiKey.METADATA, request)).topics
        assert error == int(answer.error_code)
        assert (error == 0) is ("t.g.retry" in broker.image.topics)


@pytest.fixture
def admitted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """(topic, its fixed delay) of each batch that passed the gate of a delayed topic."""
    passed: list[tuple[str, int]] = []

    def admission_of(topic: TopicImage, settings: QueueSettings, _: produce_gates.FindQueue) -> produce_gates.Admit:
        def admit(batch: Batch, _: TimestampMs) -> Batch:
            passed.append((topic.name, settings.delay_ms))
            return batch

        return admit

    monkeypatch.setattr(produce_gates, "ADMISSIONS", {CompanionKind.DELAYED: admission_of})
    return passed


class TestGates:
    @pytest.mark.parametrize("options", [{}, {"acks": 1, "enable_idempotence": False}, {"transactional_id": "x"}])
    async def test_every_batch_of_a_companion_passes_it(
        self, tmp_path: Path, admitted: list[tuple[str, int]], options: dict[str, Any]
    ) -> None:
        async with serving_admin(tmp_path) as (broker, admin):
            await create(admin, "t", DELAY)
            await send(broker, "t", **options)
            await send(broker, "dlq.t", **options)
            assert [] == admitted
            await send(broker, "t.delayed", **options)
            await configure(admin, "t", {"ottla.delay.ms": "7"})
            await send(broker, "t.delayed", **options)
            await admin.create_partitions({"t": 3})
            assert broker.partitions.find("t.delayed", 2).gate is not None
            assert None is broker.partitions.find("t", 2).gate
            assert [("t", 0), ("t", 7)] == admitted

    async def test_a_disabled_queue_refuses_records(self, tmp_path: Path, admitted: list[tuple[str, int]]) -> None:
        async with serving_admin(tmp_path) as (broker, admin):
            await create(admin, "t", DELAY)
            await configure(admin, "t", {"ottla.delay.enable": "false"})
            code, message = await refusal(send(broker, "t.delayed"))
            assert ErrorCode.INVALID_RECORD == code
            assert "t.delayed does not accept records: its queue is disabled in the configs of topic t" in message
            await configure(admin, "t", DELAY)
            await send(broker, "t.delayed")
            assert 1 == len(admitted)

    async def test_a_disabled_queue_delivers_what_it_holds(self, tmp_path: Path) -> None:
        clock = MovedClock()
        world = replace(real_world(), clock=clock)
        config = {"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}
        async with Broker(BrokerConfig.parse(settings=config), world=world) as broker:
            async with AsyncAdmin(bootstrap_servers=f"127.0.0.1:{broker.port}") as admin:
                await create(admin, "t", DELAY)
                await send(broker, "t.delayed", b"parked", headers=[("ottla.delay-ms", b"100000")])
                await configure(admin, "t", {"ottla.delay.enable": "false"})
            assert 0 == broker.partitions.find("t", 0).end_offset
            clock.move(101)
            async with (
                AsyncConsumer(bootstrap_servers=f"127.0.0.1:{broker.port}", auto_offset_reset="earliest") as consumer,
                asyncio.timeout(60),
            ):
                consumer.assign([TopicPartition("t", 0)])
                assert b"parked" == (await anext(aiter(consumer))).value
        assert isinstance(world.disk, RealDisk)
        world.disk.close()

    async def test_a_batch_that_the_topic_would_refuse_is_refused(
        self, tmp_path: Path, admitted: list[tuple[str, int]]
    ) -> None:
        async with serving_admin(tmp_path) as (broker, admin):
            await create(admin, "t", {**DELAY, "max.message.bytes": "1000"})
            code, message = await refusal(send(broker, "t.delayed", b"v" * 2000))
            assert ErrorCode.MESSAGE_TOO_LARGE == code
            assert "max.message.bytes=1000 of topic t" in message
            await configure(admin, "t", {"max.message.bytes": "3000"})
            await send(broker, "t.delayed", b"v" * 2000)

    async def test_a_kind_that_cannot_be_delivered_is_refused(
        self, tmp_path: Path, admitted: list[tuple[str, int]]
    ) -> None:
        async with serving_admin(tmp_path) as (broker, admin):
            await create(admin, "t", {"ottla.half.enable": "true"})
            code, message = await refusal(send(broker, "t.half"))
            assert ErrorCode.INVALID_RECORD == code
            assert "this version has no queues of kind half" in message

    async def test_gates_are_there_after_a_restart(self, tmp_path: Path, admitted: list[tuple[str, int]]) -> None:
        async with serving_admin(tmp_path) as (broker, admin):
            await create(admin, "t", DELAY)
        async with serving_admin(tmp_path) as (broker, admin):
            await send(broker, "t.delayed")
            assert 1 == len(admitted)

    async def test_the_headers_of_delayed_records_are_checked_and_stamped(self, tmp_path: Path) -> None:
        async with serving_admin(tmp_path) as (broker, admin):
            await create(admin, "t", {**DELAY, "ottla.delay.max.ms": "86400000"})
            sending = send(broker, "t.delayed", headers=[("ottla.delay-ms", b"soon")])
            code, message = await refusal(sending)
            assert ErrorCode.INVALID_RECORD == code
            assert "header ottla.delay-ms: 'soon' is not a decimal number" in message
            before = time.time_ns() // 1_000_000
            await send(broker, "t.delayed", headers=[("ottla.delay-ms", b"3600000"), ("ottla.due-ms", b"1")])
            async with AsyncConsumer(
                bootstrap_servers=f"127.0.0.1:{broker.port}", auto_offset_reset="earliest"
            ) as consumer:
                consumer.assign([TopicPartition("t.delayed", 0)])
                record = await anext(aiter(consumer))
            headers = dict(record.headers)
            assert {"ottla.delay-ms", "ottla.due-ms"} == {*headers}
            assert before <= int(headers["ottla.due-ms"] or b"") - 3_600_000 <= time.time_ns() // 1_000_000

    async def test_internal_topics_are_closed(self, tmp_path: Path) -> None:
        async with serving_admin(tmp_path) as (broker, admin):
            await create(admin, "__consumer_offsets", {}, partitions=1)
            code, message = await refusal(send(broker, "__consumer_offsets"))
            assert ErrorCode.INVALID_TOPIC_EXCEPTION == code
            assert "only coordinators write to it" in message
