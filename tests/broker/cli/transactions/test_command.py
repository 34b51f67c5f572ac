"""`ottla transactions` against a real Ottla broker, and command lines that it refuses."""

import time
from pathlib import Path

import pytest

from ottla.model.ids import TopicPartition
from ottla.records.builder import BatchBuilder
from tests.broker.cli.command_scenarios import Scenario
from tests.broker.cli.transaction_scenarios import SCENARIOS, WRONG_USAGE, a_hanging_transaction
from tests.broker_process import BrokerProcess
from tests.unit.cli.command_line import CommandLine

pytestmark = pytest.mark.ottla_broker(
    {"offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "3"}
)
"""A broker that can be killed and started again."""


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_scenario(scenario: Scenario, ottla: CommandLine, tmp_path: Path) -> None:
    scenario(ottla, tmp_path)


def test_a_hanging_transaction_is_found_and_aborted(process: BrokerProcess, ottla: CommandLine) -> None:
    def hang(partition: TopicPartition, end_offset: int) -> None:
        """Our broker lets no transaction hang, so one is written into the log behind its back."""
        process.kill()
        segment = max((process.data / str(partition)).glob("*.log"))
        builder = BatchBuilder(
            producer_id=4711,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
            base_offset=end_offset,
            leader_epoch=0,
        )
        builder.append(time.time_ns() // 1_000_000 - 1000, None, b"nobody's")
        with segment.open("ab") as log:
            log.write(builder.build())
        process.start()

    a_hanging_transaction(ottla, hang)


@pytest.mark.parametrize("arguments", WRONG_USAGE, ids=" ".join)
def test_wrong_usage_ends_with_2_and_words(arguments: tuple[str, ...], capfd: pytest.CaptureFixture[str]) -> None:
    done = CommandLine("127.0.0.1:1", capfd)(*arguments)
    assert (2, "") == (done.status, done.out)
    assert done.err
    assert "Traceback" not in done.err
