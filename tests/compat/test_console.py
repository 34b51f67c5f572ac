"""The web console on Apache Kafka and on Ottla: the same pages and the same changes, without a browser."""

import html
import json
import re
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla import Admin
from tests.compat.kafka_broker import KafkaBroker
from tests.compat.ottla_broker import OttlaBroker
from tests.console.console_process import FormClient, running_console
from tests.waiting import wait_until

GROUP = "billing"
RECORDS = 30


@pytest.fixture(scope="module", params=["kafka", "ottla"])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of either broker."""
    if request.param == "kafka":
        kafka: KafkaBroker = request.getfixturevalue("kafka")
        yield kafka.bootstrap
        return
    with OttlaBroker(tmp_path_factory.mktemp("ottla") / "broker") as broker:
        yield broker.bootstrap


@pytest.fixture(scope="module")
def console(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FormClient]:
    """A console of that broker, as its own process."""
    with running_console(tmp_path_factory.mktemp("console"), "--bootstrap", bootstrap) as process:
        client = FormClient(process.url)
        yield client
        client.close()


def words(console: FormClient, path: str) -> str:
    """The words of a page that must be there."""
    response = console.get(path)
    assert 200 == response.status_code, (path, response.text)
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", response.text)))


def changed(console: FormClient, path: str, fields: dict[str, str]) -> str:
    """Sends a form that must succeed; where the browser is sent then."""
    response = console.post(path, fields)
    assert 303 == response.status_code, (path, response.text)
    return str(response.headers["location"])


def fill(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(RECORDS):
        producer.produce(topic, json.dumps({"id": number}).encode(), key=b"key %d" % number, partition=number % 3)
    assert 0 == producer.flush(60)


def commit(bootstrap: str, topic: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    consumer.commit(offsets=[TopicPartition(topic, index, 4) for index in range(3)], asynchronous=False)
    consumer.close()


def test_a_topic_from_its_creation_to_its_deletion(bootstrap: str, console: FormClient) -> None:
    topic = "console-story"
    made = {"name": topic, "partitions": "3", "replication_factor": "1", "configs": "cleanup.policy=compact"}
    assert f"/topics/{topic}" == changed(console, "/topics/~create", made)
    fill(bootstrap, topic)
    commit(bootstrap, topic)
    wait_until(lambda: f"{topic} 3 1 30" in words(console, f"/topics?q={topic}"))
    for tab in ("", "/partitions", "/groups", "/config", "/schema", "/queues", "/grow", "/delete", "/delete-records"):
        assert topic in words(console, f"/topics/{topic}{tab}")
    assert "compact" in words(console, f"/topics/{topic}/config")
    assert '{"id": 29}' in words(console, f"/topics/{topic}/records")
    found = console.get(f"/topics/{topic}/records/export", params={"format": "jsonl"})
    assert RECORDS == len(found.text.splitlines())
    record = changed(console, f"/topics/{topic}/produce", {"key": "late", "value": '{"id": 99}', "partition": "1"})
    assert '"id": 99' in words(console, record)

    changed(console, f"/topics/{topic}/config", {"name": "retention.ms", "value": "5000"})
    wait_until(lambda: "5000" in words(console, f"/topics/{topic}/config"))
    changed(console, f"/topics/{topic}/grow", {"count": "4"})
    with Admin(bootstrap_servers=bootstrap) as admin:
        wait_until(lambda: 4 == len(admin.describe_topics([topic])[topic].partitions))

    assert GROUP in words(console, f"/groups?q={GROUP}")
    assert "4 10 6" in words(console, f"/groups/{GROUP}")
    address = f"/groups/{GROUP}/reset"
    plan = re.search(r'name="plan" value="([^"]*)"', console.get(address, params={"to": "earliest"}).text)
    assert plan is not None
    changed(console, address, {"plan": html.unescape(plan[1])})
    with Admin(bootstrap_servers=bootstrap) as admin:
        offsets = admin.list_consumer_group_offsets(GROUP)
        assert {0} == {each.offset for each in offsets.values()}
    assert "/groups" == changed(console, f"/groups/{GROUP}/delete", {"confirm": GROUP})

    assert "/topics" == changed(console, f"/topics/{topic}/delete", {"confirm": topic})
    with Admin(bootstrap_servers=bootstrap) as admin:
        wait_until(lambda: topic not in admin.list_topics())
    assert "delete topic" in words(console, "/audit")


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/", "healthy"),
        ("/brokers", "Brokers"),
        ("/transactions", "transaction"),
        ("/transactions/hanging", "hanging"),
        ("/dead-letters", "dead"),
        ("/queues", "queue"),
        ("/schemas", "registry"),
        ("/pipelines", "pipeline"),
        ("/security/users", "user"),
        ("/security/acls", "authorizer"),
        ("/security/quotas", "quota"),
        ("/security/explain?user=User:ada&operation=READ&resource=topic:t", "authorizer"),
        ("/jobs", "Jobs"),
        ("/search?q=console", "Search"),
    ],
)
def test_every_page(console: FormClient, path: str, shown: str) -> None:
    assert shown.lower() in words(console, path).lower()


def test_configs_of_a_broker(bootstrap: str, console: FormClient) -> None:
    with Admin(bootstrap_servers=bootstrap) as admin:
        broker = next(iter(admin.describe_cluster().brokers)).id
    assert str(broker) in words(console, f"/brokers/{broker}")
    assert "log.retention.ms" in words(console, f"/brokers/{broker}/configs")
