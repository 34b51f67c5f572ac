"""The command line and the client against real Kafka: the same scenarios that hold for Ottla's own broker."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.client.network.cluster import Cluster
from ottla.model.ids import TopicPartition
from ottla.protocol.apis import ApiKey
from ottla.protocol.messages import milliseconds
from ottla.protocol.produce_frames import produce_body, read_produce_answer
from ottla.records.builder import BatchBuilder
from ottla.transport.addresses import parse_bootstrap
from tests.broker.cli import dead_letter_scenarios, group_scenarios, transaction_scenarios
from tests.broker.cli.command_scenarios import SCENARIOS, Scenario
from tests.compat.kafka_broker import KafkaBroker
from tests.unit.cli.command_line import CommandLine

UNVERIFIED_PRODUCE_VERSION = 11
"""The last one whose partitions are not added to the transaction by being written to."""


@pytest.fixture
def command(kafka: KafkaBroker, capfd: pytest.CaptureFixture[str]) -> CommandLine:
    """The command, with Kafka to talk to."""
    return CommandLine(kafka.bootstrap, capfd)


@pytest.mark.parametrize(
    "scenario",
    [
        *SCENARIOS,
        *group_scenarios.SCENARIOS,
        *transaction_scenarios.SCENARIOS,
        *dead_letter_scenarios.SCENARIOS,
    ],
    ids=lambda scenario: scenario.__name__,
)
def test_scenario(scenario: Scenario, command: CommandLine, tmp_path: Path) -> None:
    scenario(command, tmp_path)


@pytest.fixture
def unverified(command: CommandLine) -> Iterator[None]:
    """For as long as the test runs, Kafka lets anybody write into any transaction, as it did before version 3.6."""
    broker = str(command.ok("cluster", "describe", "--json").json["brokers"][0]["id"])
    name = "transaction.partition.verification.enable"
    command.ok("configs", "set", "--broker", broker, f"{name}=false")
    yield
    command.ok("configs", "unset", "--broker", broker, name)


@pytest.mark.usefixtures("unverified")
def test_a_hanging_transaction_is_found_and_aborted(command: CommandLine) -> None:
    async def write(partition: TopicPartition) -> int:
        from kio.schema.init_producer_id.v5.request import InitProducerIdRequest

        async with Cluster(parse_bootstrap(command.bootstrap)) as cluster:
            asked = InitProducerIdRequest(transactional_id=None, transaction_timeout=milliseconds(0))
            producer = await cluster.retry(lambda: cluster.to_any(ApiKey.INIT_PRODUCER_ID, asked))
            builder = BatchBuilder(
                producer_id=int(producer.producer_id), producer_epoch=0, base_sequence=0, transactional=True
            )
            builder.append(time.time_ns() // 1_000_000 - 1000, None, b"nobody's")
            body = produce_body(
                [(partition, builder.build())], acks=-1, timeout_ms=30_000, transactional_id="s-nobody-has-it"
            )
            connection = await cluster.broker_connection(await cluster.leader_of(partition))
            (written,) = read_produce_answer(
                await connection.request_bytes(ApiKey.PRODUCE, UNVERIFIED_PRODUCE_VERSION, body)
            )
            assert 0 == written.error_code
            return written.base_offset

    def hang(partition: TopicPartition, end_offset: int) -> None:
        assert end_offset == asyncio.run(write(partition))

    transaction_scenarios.a_hanging_transaction(command, hang)


def test_a_folder_that_kafka_writes_to_can_be_dumped(command: CommandLine, kafka: KafkaBroker) -> None:
    group_scenarios.create_topic(command, "dumped")
    command.ok("produce", "dumped", stdin=b"one\ntwo\n")
    lines = command.ok("log", "dump", str(kafka.log_dir / "dumped-0"), "--records", "--json").json_lines
    assert ["one", "two"] == [line["value"] for line in lines if line["kind"] == "record"]
    everything = command("log", "dump", str(kafka.log_dir))
    assert (0, "") == (everything.status, everything.err), [
        each for each in everything.out.splitlines() if "DAMAGE" in each
    ]
