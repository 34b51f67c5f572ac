"""Three brokers with a registry each (`ottla serve --brokers 3 --registry`), and a topic with schema validation: a
broker is killed with its registry, and producers go on, with new schemas too."""

import os
import signal
from pathlib import Path

import pytest

from ottla.client.admin.blocking_admin import Admin
from ottla.client.admin.values import NewTopic
from ottla.client.consumer.blocking_consumer import Consumer
from ottla.client.producer.blocking_producer import Producer
from ottla.model.error_codes import ErrorCode
from ottla.protocol.answer_errors import AnswerError
from ottla.registry.serde import AvroDeserializer, AvroSerializer, RegistryClient
from ottla.testing.free_ports import consecutive_free_ports
from tests.broker.cli.serve.test_brokers import serving
from tests.leftovers import children
from tests.waiting import PATIENCE_SECONDS, wait_until

ORDER = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}'
ORDER_2 = ORDER.replace("]}", ', {"name": "note", "type": "string", "default": ""}]}')


def test_validation_goes_on_when_a_broker_dies(tmp_path: Path) -> None:
    port = consecutive_free_ports(3)
    options = ("--brokers", "3", "--registry", f"127.0.0.1:{port}", "--set", "default.replication.factor=3")
    quick = ("--set", "transaction.state.log.num.partitions=1", "--set", "broker.session.timeout.ms=20000")
    with serving(tmp_path / "data", *options, *quick) as served:
        bootstrap = served.wait_ready()
        urls = [f"http://127.0.0.1:{port + each}" for each in range(3)]
        assert set(urls) == {served.next_line().split()[1] for _ in range(3)}
        with RegistryClient(urls, retries=20) as registry, Admin(bootstrap_servers=bootstrap) as admin:
            configs = {"confluent.value.schema.validation": "true", "min.insync.replicas": "2"}
            admin.create_topics([NewTopic("orders", 3, topic_configs=configs)])
            sent = 0

            def send(schema: str) -> None:
                """A record to every partition, in a schema that may be new to the registry and to all brokers."""
                nonlocal sent
                serializer = AvroSerializer(registry, schema)
                with Producer(bootstrap_servers=bootstrap, value_serializer=serializer) as producer:
                    futures = [producer.send("orders", {"id": sent + each}, partition=each) for each in range(3)]
                    for future in futures:
                        future.get(PATIENCE_SECONDS)
                sent += 3

            def refused() -> ErrorCode:
                with (
                    Producer(bootstrap_servers=bootstrap) as producer,
                    pytest.raises(AnswerError, match="has no schema id") as raised,
                ):
                    producer.send("orders", b"plain").get(PATIENCE_SECONDS)
                return raised.value.error_code

            send(ORDER)
            assert ErrorCode.INVALID_RECORD is refused()
            before = sorted(children(served.pid))
            os.kill(before[0], signal.SIGKILL)
            send(ORDER_2)
            assert ErrorCode.INVALID_RECORD is refused()
            wait_until(lambda: len(children(served.pid)) == 3 and children(served.pid) != set(before))
            send(ORDER)
            with Consumer(
                "orders",
                bootstrap_servers=bootstrap,
                auto_offset_reset="earliest",
                value_deserializer=AvroDeserializer(registry),
            ) as consumer:
                seen = sorted(next(consumer).value["id"] for _ in range(sent))
            assert list(range(9)) == seen
