"""Kafka's own tools, of two versions, look at transactions, end those that hang, and read the coordinators' logs."""

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from tests.compat.clients.broker_under_test import Broker, broker_under_test
from tests.compat.clients.catalogue import NAMES
from tests.compat.clients.client_builds import JAVA_VERSIONS
from tests.compat.clients.conftest import ClientOf
from tests.compat.clients.foreign_client import ClientError, Sent
from tests.compat.clients.kafka_tools import Tools
from tests.compat.clients.shapes import FIRST_TIMESTAMP, KEEP_ALL, small
from tests.compat.clients.transactional import transactional_producer
from tests.compat.kafka_dump import dump_class
from tests.compat.kafka_jars import KAFKA_VERSION, kafka_tool
from tests.wire.exchange import RawConnection
from tests.wire.transactional_producer import TransactionalProducer as RawProducer

CLIENT = NAMES[0]
NO_TOPIC_ID = UUID(int=0)
STATES = ["Empty", "Ongoing", "Ongoing", "PrepareCommit", "CompleteCommit"]
"""Of a transaction with records and offsets: the second Ongoing has the partition of the group's offsets."""
STATE_NUMBERS = {0: "Empty", 1: "Ongoing", 2: "PrepareCommit", 3: "PrepareAbort", 4: "CompleteCommit"}


def rows_of(shown: str) -> list[dict[str, str]]:
    """A table as the tool prints it, without blank lines."""
    names, *rows = [[cell.strip() for cell in line.split("\t")] for line in shown.splitlines() if line.strip()]
    return [dict(zip(names, row, strict=True)) for row in rows]


def test_list_and_describe(tools: Tools, client_of: ClientOf, topic: str) -> None:
    client = client_of(CLIENT)
    client.create_topic(topic, partitions=2, configs=KEEP_ALL)
    with transactional_producer(client, topic) as producer:
        producer.begin()
        producer.send(topic, small(3, partition=1))
        (listed,) = [row for row in rows_of(tools.run("kafka-transactions", "list")) if row["TransactionalId"] == topic]
        assert "Ongoing" == listed["TransactionState"]
        (found,) = rows_of(tools.run("kafka-transactions", "describe", "--transactional-id", topic))
        expected = {
            "CoordinatorId": listed["Coordinator"],
            "TransactionalId": topic,
            "ProducerId": listed["ProducerId"],
            "ProducerEpoch": "0",
            "TransactionState": "Ongoing",
            "TransactionTimeoutMs": "60000",
            "TopicPartitions": f"{topic}-1",
        }
        assert expected == {name: found[name] for name in expected}
        place = ("--topic", topic, "--partition", "1")
        (open_now,) = rows_of(tools.run("kafka-transactions", "describe-producers", *place))
        expected = {
            "ProducerId": listed["ProducerId"],
            "ProducerEpoch": "0",
            "LatestCoordinatorEpoch": "-1",
            "LastSequence": "2",
            "LastTimestamp": str(FIRST_TIMESTAMP + 2),
            "CurrentTransactionStartOffset": "0",
        }
        assert expected == {name: open_now[name] for name in expected}
        producer.commit()
    (found,) = rows_of(tools.run("kafka-transactions", "describe", "--transactional-id", topic))
    assert ("CompleteCommit", "") == (found["TransactionState"], found["TopicPartitions"])
    (ended,) = rows_of(tools.run("kafka-transactions", "describe-producers", *place))
    assert ("None", "0") == (ended["CurrentTransactionStartOffset"], ended["LatestCoordinatorEpoch"])
    _, complaint = tools.run_anyhow("kafka-transactions", "describe", "--transactional-id", f"{topic}-not")
    assert "could not be found" in complaint


def test_force_terminate(broker: Broker, client_of: ClientOf, topic: str) -> None:
    """Only the newer tool has it."""
    client = client_of(CLIENT)
    client.create_topic(topic, configs=KEEP_ALL)
    with transactional_producer(client, topic) as producer:
        producer.begin()
        producer.send(topic, small(3))
        tools = Tools(KAFKA_VERSION, broker.bootstrap)
        tools.run("kafka-transactions", "forceTerminateTransaction", "--transactionalId", topic)
        with pytest.raises(ClientError):
            producer.commit()
    (found,) = rows_of(tools.run("kafka-transactions", "describe", "--transactional-id", topic))
    assert "Empty" == found["TransactionState"]


def test_console_consumer_of_what_is_committed(tools: Tools, client_of: ClientOf, topic: str) -> None:
    client = client_of(CLIENT)
    client.create_topic(topic, configs=KEEP_ALL)
    with transactional_producer(client, topic) as producer:
        for value, end in (("one", producer.commit), ("not this", producer.abort), ("two", producer.commit)):
            producer.begin()
            producer.send(topic, [Sent(value=value.encode(), partition=0)])
            end()
    place = ["--topic", topic, "--partition", "0", "--offset", "earliest"]
    for isolation, expected in (("read_committed", ["one", "two"]), ("read_uncommitted", ["one", "not this", "two"])):
        args = [*place, "--isolation-level", isolation, "--max-messages", str(len(expected))]
        assert expected == tools.run("kafka-console-consumer", *args).splitlines()


@pytest.fixture(scope="module")
def trusting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that takes records into transactions that their coordinator has not heard of."""
    settings = {"transaction.partition.verification.enable": "false"}
    with broker_under_test(tmp_path_factory.mktemp("trusting") / "broker", settings) as broker:
        yield broker


@pytest.mark.parametrize("version", JAVA_VERSIONS)
def test_a_hanging_transaction_is_found_and_aborted(trusting: Broker, version: str) -> None:
    tools = Tools(version, trusting.bootstrap)
    topic = f"hanging-{version}"
    tools.run("kafka-topics", "--create", "--topic", topic, "--config", "retention.ms=-1")
    with RawConnection(trusting.bootstrap) as connection:
        producer = RawProducer(connection, topic)
        # The coordinator would have ended a transaction as old as this record long ago, had it known of it.
        assert (ErrorCode.none, 0) == producer.send(topic, NO_TOPIC_ID)
    (found,) = rows_of(tools.run("kafka-transactions", "find-hanging", "--topic", topic))
    expected = {
        "Topic": topic,
        "Partition": "0",
        "ProducerId": str(producer.producer_id),
        "ProducerEpoch": str(producer.epoch),
        "CoordinatorEpoch": "-1",
        "StartOffset": "0",
    }
    assert expected == {name: found[name] for name in expected}
    place = ("--topic", topic, "--partition", "0")
    tools.run("kafka-transactions", "abort", *place, "--start-offset", "0")
    assert [] == rows_of(tools.run("kafka-transactions", "find-hanging", "--topic", topic))
    (ended,) = rows_of(tools.run("kafka-transactions", "describe-producers", *place))
    assert "None" == ended["CurrentTransactionStartOffset"]


@pytest.fixture(scope="module")
def coordinated(client_of: ClientOf) -> str:
    """The name of a topic, transactional id and group: one transaction with records and offsets was committed."""
    client, name = client_of(CLIENT), "coordinated"
    client.create_topic(name, configs=KEEP_ALL)
    with transactional_producer(client, name) as producer:
        producer.begin()
        producer.send(name, small(3))
        producer.send_offsets(name, [(name, 0, 2)])
        producer.commit()
    return name


def decoded(data: Path, topic: str, key: str, decoder: str, version: str) -> list[str]:
    """The lines about records with this in their keys, and about markers, by Kafka's tool for logs."""
    (log,) = [path for path in data.glob(f"{topic}-*/*.log") if key.encode() in path.read_bytes()]
    shown = kafka_tool(dump_class(version), decoder, "--files", str(log), version=version).stdout.splitlines()
    headers = [line for line in shown if line.startswith("baseOffset: ")]
    assert headers
    assert all("isvalid: true" in line for line in headers)
    return [line for line in shown if line.startswith("| ") and (key in line or "endTxnMarker" in line)]


@pytest.mark.parametrize("version", JAVA_VERSIONS)
def test_dump_log_reads_the_log_of_transactions(data: Path, coordinated: str, version: str) -> None:
    lines = decoded(data, "__transaction_state", coordinated, "--transaction-log-decoder", version)
    if version == KAFKA_VERSION:
        values = [json.loads(line.partition(" payload: ")[2])["data"] for line in lines]
        assert STATES == [STATE_NUMBERS[value["transactionStatus"]] for value in values]
        partitions = [{part["topic"] for part in value["transactionPartitions"] or ()} for value in values]
        both = {coordinated, "__consumer_offsets"}
        assert [set(), {coordinated}, both, both, set()] == partitions
    else:
        assert STATES == [match[1] for line in lines if (match := re.search(r"state=(\w+)", line))]


@pytest.mark.parametrize("version", JAVA_VERSIONS)
def test_dump_log_reads_the_log_of_offsets(data: Path, coordinated: str, version: str) -> None:
    lines = decoded(data, "__consumer_offsets", coordinated, "--offsets-decoder", version)
    # Groups of other tests may share the log; their transactions had ended before this one began.
    commit, marker, *_ = itertools.dropwhile(lambda line: "endTxnMarker" in line, lines)
    key, _, payload = commit.partition(" key: ")[2].partition(" payload: ")
    assert {"group": coordinated, "topic": coordinated, "partition": 0} == json.loads(key)["data"]
    assert 2 == json.loads(payload)["data"]["offset"]
    assert "endTxnMarker: COMMIT" in marker
