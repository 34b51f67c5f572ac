"""Client quotas of a real broker, set with the admin client: what is refused, throttled and exempt."""

import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from ottla import Admin, QuotaEntity
from ottla.broker.broker import Broker
from ottla.broker.requests.counted_quotas import CountedQuotas
from ottla.protocol.apis import ApiKey
from ottla.records.builder import BatchBuilder
from ottla.security.authorizer import AllowAll
from ottla.security.client_quotas import ClientQuotas, QuotaKey
from ottla.security.connection_context import ConnectionContext
from ottla.security.security_protocol import SecurityProtocol
from tests.broker.metric_samples import value_of
from tests.broker.running_broker import serving_in_thread
from tests.wire.exchange import RawConnection
from tests.wire.world import create_topic, produce

ANONYMOUS = QuotaEntity(user="ANONYMOUS")
QUOTA_EXCEEDED = 89


class Running:
    """A broker in a thread, and its quotas."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.address = f"127.0.0.1:{broker.port}"

    @contextmanager
    def limited(self, entity: QuotaEntity, **quotas: float) -> Iterator[None]:
        """Sets quotas for the duration of the block. The client that does has a client id without quotas."""
        with Admin(bootstrap_servers=self.address, client_id="admin") as admin:
            admin.alter_client_quotas({entity: quotas})
            try:
                yield
            finally:
                unset: Mapping[str, float | None] = dict.fromkeys(quotas)
                admin.alter_client_quotas({entity: unset})

    def throttled(self, key: QuotaKey) -> float:
        return value_of(self.broker, "ottla_quota_throttled_total", quota=key.value)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving_in_thread(tmp_path_factory.mktemp("broker")) as broker:
        yield Running(broker)


def filled(connection: RawConnection, name: str, batches: int, value_bytes: int) -> UUID:
    topic_id = create_topic(connection, name)
    for _ in range(batches):
        builder = BatchBuilder()
        builder.append(0, None, b"v" * value_bytes)
        produce(connection, topic_id, builder.build())
    return topic_id


def fetch(connection: RawConnection, topic_id: UUID, offset: int = 0) -> Any:
    part = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 10**6}
    wanted = {"max_bytes": 10**7, "topics": [{"topic_id": topic_id, "partitions": [part]}]}
    return connection.ask_newest(ApiKey.FETCH, {**wanted, "session_epoch": -1})


def records_of(answer: Any) -> int:
    return sum(len(part.records or b"") for topic in answer.responses for part in topic.partitions)


def test_without_quotas_nothing_is_counted(running: Running) -> None:
    with RawConnection(running.address) as connection:
        filled(connection, "free", 1, 10)
    assert 0 == value_of(running.broker, "ottla_quota_buckets")


def test_produced_bytes_are_throttled(running: Running) -> None:
    with RawConnection(running.address) as connection:
        topic_id = create_topic(connection, "produced")
        with running.limited(QuotaEntity(client_id="wire"), producer_byte_rate=1000):
            builder = BatchBuilder()
            builder.append(0, None, b"v" * 10_500)
            part = {"index": 0, "records": builder.build()}
            answer = connection.ask_newest(
                ApiKey.PRODUCE,
                {
                    "acks": -1,
                    "timeout": timedelta(seconds=15),
                    "topic_data": [{"topic_id": topic_id, "partition_data": [part]}],
                },
            )
            # Counted at one moment, so how long the request takes does not matter: ten seconds' worth, half a second's,
            # and a little for what is not the value.
            assert timedelta(milliseconds=500) < answer.throttle_time < timedelta(milliseconds=800)
    assert running.throttled(QuotaKey.PRODUCER_BYTE_RATE) >= 1


def test_fetched_bytes_are_held_back_and_not_counted(running: Running) -> None:
    with RawConnection(running.address) as connection, RawConnection(running.address) as other:
        topic_id = filled(connection, "fetched", 20, 1000)
        with running.limited(QuotaEntity(client_id="wire"), consumer_byte_rate=1000):
            first = fetch(connection, topic_id)
            # No more than ten seconds' worth, though the client asks for all.
            assert 5_000 < records_of(first) <= 10_000
            assert timedelta(0) == first.throttle_time
            second = fetch(other, topic_id)
            assert (0, True) == (records_of(second), second.throttle_time > timedelta(0))
        assert records_of(fetch(connection, topic_id)) > 20_000


def test_a_batch_above_the_quota_can_be_fetched(running: Running) -> None:
    with RawConnection(running.address) as connection:
        topic_id = filled(connection, "large", 1, 50_000)
        with running.limited(QuotaEntity(client_id="wire"), consumer_byte_rate=100):
            assert records_of(fetch(connection, topic_id)) > 50_000


def test_request_time_is_throttled_for_a_second_at_most(running: Running) -> None:
    with (
        RawConnection(running.address) as connection,
        running.limited(QuotaEntity(client_id="wire"), request_percentage=0.0001),
    ):
        longest = max(connection.ask_newest(ApiKey.HEARTBEAT, {"group_id": "g"}).throttle_time for _ in range(3))
        assert timedelta(0) < longest <= timedelta(seconds=1)


def creation(name: str, partitions: int) -> dict[str, Any]:
    topic = {"name": name, "num_partitions": partitions, "replication_factor": 1}
    return {"timeout": timedelta(seconds=15), "topics": [topic]}


def test_mutations_are_refused_topic_by_topic(running: Running) -> None:
    def ask(api_key: ApiKey, values: dict[str, Any]) -> Any:
        # A connection for each: the one that was refused is muted.
        with RawConnection(running.address) as connection:
            return connection.ask_newest(api_key, {"timeout": timedelta(seconds=15), **values})

    with running.limited(QuotaEntity(client_id="wire"), controller_mutation_rate=0.01):
        assert [0] == [each.error_code for each in ask(ApiKey.CREATE_TOPICS, creation("m1", 2)).topics]
        refused = ask(ApiKey.CREATE_TOPICS, creation("m2", 1))
        assert [QUOTA_EXCEEDED] == [each.error_code for each in refused.topics]
        assert refused.throttle_time > timedelta(seconds=100)
        (existing,) = ask(ApiKey.CREATE_TOPICS, creation("m1", 1)).topics
        assert 36 == existing.error_code
        (grown,) = ask(ApiKey.CREATE_PARTITIONS, {"topics": [{"name": "m1", "count": 3}]}).results
        assert QUOTA_EXCEEDED == grown.error_code
        (deleted,) = ask(ApiKey.DELETE_TOPICS, {"topics": [{"name": "m1"}]}).responses
        assert ("m1", QUOTA_EXCEEDED) == (deleted.name, deleted.error_code)


def test_older_clients_are_throttled_for_mutations_but_not_refused(running: Running) -> None:
    with (
        running.limited(QuotaEntity(client_id="wire"), controller_mutation_rate=0.01),
        RawConnection(running.address) as connection,
    ):
        answer = connection.ask(ApiKey.CREATE_TOPICS, 5, creation("old", 2))
    assert [0] == [each.error_code for each in answer.topics]
    assert answer.throttle_time > timedelta(seconds=100)


def test_mutations_that_fail_do_not_count(running: Running) -> None:
    bad = creation("bad/name", 100)
    with RawConnection(running.address) as connection, running.limited(ANONYMOUS, controller_mutation_rate=1):
        for _ in range(3):
            (topic,) = connection.ask_newest(ApiKey.CREATE_TOPICS, bad).topics
            assert 17 == topic.error_code
        assert [0] == [
            each.error_code for each in connection.ask_newest(ApiKey.CREATE_TOPICS, creation("ok", 1)).topics
        ]


def test_connections_over_the_quota_are_closed_after_a_delay(running: Running) -> None:
    host, _, port = running.address.partition(":")
    with running.limited(QuotaEntity(ip="127.0.0.1"), connection_creation_rate=1):
        began = time.monotonic()
        sockets = [socket.create_connection((host, int(port))) for _ in range(15)]
        try:
            sockets[-1].settimeout(60)
            assert b"" == sockets[-1].recv(1)
            assert time.monotonic() - began > 0.05
            sockets[0].settimeout(0.2)
            with pytest.raises(TimeoutError):
                sockets[0].recv(1)
        finally:
            for each in sockets:
                each.close()
    assert running.throttled(QuotaKey.CONNECTION_CREATION_RATE) >= 5


def client(listener: str = "INTERNAL") -> ConnectionContext:
    return ConnectionContext(listener=listener, security_protocol=SecurityProtocol.PLAINTEXT, address="10.0.0.1:1")


class StillClock:
    """A clock that stands."""

    def monotonic(self) -> float:
        return 0.0


@pytest.mark.parametrize(
    ("listener", "client_id", "is_exempt"),
    [
        ("INTERNAL", "broker-1", True),
        ("INTERNAL", "broker-1-follower", True),
        ("INTERNAL", "broker-7", False),
        ("INTERNAL", "broker-x", False),
        ("INTERNAL", "broker-" + "1" * 5000, False),
        ("INTERNAL", "app", False),
        ("EXTERNAL", "broker-1", False),
    ],
)
def test_brokers_are_exempt(listener: str, client_id: str, is_exempt: bool) -> None:
    core = ClientQuotas()
    core.replace({QuotaEntity(client_id=""): {QuotaKey.PRODUCER_BYTE_RATE: 1.0}})
    quotas = CountedQuotas(
        core,
        StillClock(),  # type: ignore[arg-type]  # all that is used of it
        AllowAll(),
        lambda: {1, 2},
        inter_broker_listener="INTERNAL",
    )
    found = quotas.throttle_ms(client(listener), client_id, ApiKey.PRODUCE, request_bytes=100, response_bytes=0)
    assert is_exempt is (found == 0)
