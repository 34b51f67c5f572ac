"""Client telemetry (KIP-714) of librdkafka and of Kafka's Java producer, Kafka's tool for subscriptions, and the same
answers as Kafka's. Kafka itself advertises the APIs only with a plugin that receives telemetry, but serves them."""

from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

from confluent_kafka import Producer

from ottla import Admin, ConfigResource
from ottla.protocol.apis import ApiKey
from ottla.protocol.config_resources import ResourceType
from tests.compat.kafka_jars import SHORT_LIVED_JVM, java_command, kafka_tool
from tests.compat.kafkas_word import KafkasWord, readable
from tests.compat.metered_broker import MeteredBroker
from tests.processes import Program
from tests.waiting import PATIENCE_SECONDS, wait_until
from tests.wire.exchange import RawConnection

RECORDS = 300
INTERVAL_MS = 300
INSTANCE = UUID("12345678-90ab-cdef-1234-567890abcdef")


def subscribe(address: str, name: str, **configs: str) -> None:
    with Admin(bootstrap_servers=address) as admin:
        changes = {key.replace("_", "."): value for key, value in configs.items()}
        admin.alter_configs([ConfigResource(ResourceType.CLIENT_METRICS, name, changes)])


def test_librdkafka_pushes(served: MeteredBroker) -> None:
    subscribe(served.address, "librdkafka", metrics="*", interval_ms=str(INTERVAL_MS), match="client_id=rd")
    producer = Producer({"bootstrap.servers": served.address, "client.id": "rd"})
    producer.produce("t", b"v")
    assert 0 == producer.flush(PATIENCE_SECONDS)
    name = "ottla_client_telemetry_producer_node_request_latency_avg"
    wait_until(lambda: served.metric(name, client_id="rd", node_id="0") > 0)
    wait_until(lambda: served.metric("ottla_telemetry_pushes_total", error="NONE") >= 2)
    assert 1 == served.metric("ottla_telemetry_client_info", client_software_name="confluent-kafka-python")


def test_javas_producer_pushes(served: MeteredBroker, tmp_path: Path) -> None:
    """Deltas, which add up to what it sent."""
    subscribe(
        served.address,
        "java",
        metrics="org.apache.kafka.producer.record.",
        interval_ms=str(INTERVAL_MS),
        match="client_software_name=apache-kafka-java",
    )

    def pushed(records: int) -> bool:
        return records == served.metric("ottla_client_telemetry_producer_record_send_total", client_id="java")

    client = ("--bootstrap-server", served.address, "--command-property", "client.id=java")
    tool = "org.apache.kafka.tools.ConsoleProducer"
    command = java_command(tool, "--topic", "t", *client, jvm_options=SHORT_LIVED_JVM)
    with Program(command, tmp_path / "producer", has_input=True) as producer:
        for sent in (RECORDS, 2 * RECORDS):
            for _ in range(RECORDS):
                producer.write("v" * 100)
            wait_until(partial(pushed, sent), f"{sent} records are counted")
        assert served.metric("ottla_client_telemetry_producer_record_size_avg", client_id="java") > 100
        assert 0 == served.metric("ottla_client_telemetry_producer_batch_size_avg", client_id="java")
    refused = ("INVALID_RECORD", "INVALID_REQUEST", "UNKNOWN_SUBSCRIPTION_ID", "TELEMETRY_TOO_LARGE")
    assert [0] * 4 == [served.metric("ottla_telemetry_pushes_total", error=each) for each in refused]


def test_kafkas_tool(served: MeteredBroker) -> None:
    def tool(*args: str) -> str:
        return kafka_tool(
            "org.apache.kafka.tools.ClientMetricsCommand", "--bootstrap-server", served.address, *args
        ).stdout

    configs = ("--metrics", "org.apache.kafka.consumer.", "--interval", "5000", "--match", "client_id=a.*")
    tool("--alter", "--name", "by-tool", *configs)
    assert "by-tool" in tool("--list").split()
    described = tool("--describe", "--name", "by-tool").split()
    assert {"interval.ms=5000", "match=client_id=a.*", "metrics=org.apache.kafka.consumer."} <= set(described)
    tool("--delete", "--name", "by-tool")
    assert "by-tool" not in tool("--list").split()


def answers(address: str) -> list[Any]:
    """What a broker says to a client that does everything right, and everything wrong."""
    with RawConnection(address) as connection:

        def get(instance_id: UUID | None) -> Any:
            return connection.ask(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, {"client_instance_id": instance_id})

        def push(got: Any, **values: Any) -> int:
            identity = {"client_instance_id": got.client_instance_id, "subscription_id": got.subscription_id}
            return int(connection.ask(ApiKey.PUSH_TELEMETRY, 0, identity | values).error_code)

        def pushes(*wishes: dict[str, Any]) -> list[int]:
            """Of a new client that has just got its subscription."""
            got = get(None)
            return [push(got, **each) for each in wishes]

        found: list[Any] = []
        for name, value in (
            ("metricz", "a"),
            ("interval.ms", "99"),
            ("interval.ms", "x"),
            ("match", "client_id"),
            ("match", "client_id=("),
            ("match", "client_name=a"),
            ("metrics", "a,,b"),
            ("metrics", "org.apache.kafka."),
            ("match", "client_software_name=a-client"),
        ):
            config = {"name": name, "config_operation": 0, "value": value}
            resource = {"resource_type": 16, "resource_name": "s", "configs": [config]}
            answer = connection.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]})
            found.append([int(each.error_code) for each in answer.responses])
        described = connection.ask(
            ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [{"resource_type": 16, "resource_name": "s"}]}
        )
        found.append([(each.name, each.value, each.config_source) for each in described.results[0].configs])
        # This client did not say what software it is.
        wait_until(lambda: get(None).requested_metrics == ())
        software = {"client_software_name": "a-client", "client_software_version": "1.0"}
        connection.ask(ApiKey.API_VERSIONS, 3, software)
        wait_until(lambda: get(None).requested_metrics != ())
        found += [get(INSTANCE), get(INSTANCE)]
        last = {"terminating": True}
        found += [pushes({}, {}), pushes(last, last), pushes({"subscription_id": 5}, {})]
        found += [pushes({"compression_type": 9}), pushes({"metrics": bytes(1024 * 1024 + 1)})]
        found += [pushes({"compression_type": 4, "metrics": b"garbage"}), pushes({"client_instance_id": UUID(int=1)})]
        found.append(push(get(None), client_instance_id=None))
        confused = get(None)
        found += [push(confused, subscription_id=5), int(get(confused.client_instance_id).error_code)]
        found += [int(get(confused.client_instance_id).error_code)]
        return found


def test_the_same_answers_as_kafkas(kafkas_word: KafkasWord, tmp_path: Path) -> None:
    theirs = kafkas_word(lambda kafka: answers(kafka.bootstrap))
    with MeteredBroker(tmp_path) as broker:
        assert theirs == readable(answers(broker.address))
