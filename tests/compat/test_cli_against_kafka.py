"""The command line and the client against real Kafka: the same scenarios that hold for Ottla's own broker."""

from pathlib import Path

import pytest

from tests.compat.kafka_broker import KafkaBroker
from tests.unit.cli.command_line import CommandLine
from tests.unit.cli.command_scenarios import SCENARIOS, Scenario


@pytest.fixture
def ottla(kafka: KafkaBroker, capfd: pytest.CaptureFixture[str]) -> CommandLine:
    """The command, with Kafka to talk to."""
    return CommandLine(kafka.bootstrap, capfd)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_scenario(scenario: Scenario, ottla: CommandLine, tmp_path: Path) -> None:
    scenario(ottla, tmp_path)


def test_a_folder_that_kafka_writes_to_can_be_dumped(ottla: CommandLine, kafka: KafkaBroker) -> None:
    ottla.ok("topics", "create", "dumped")
    ottla.ok("produce", "dumped", stdin=b"one\ntwo\n")
    lines = ottla.ok("log", "dump", str(kafka.log_dir / "dumped-0"), "--records", "--json").json_lines
    assert ["one", "two"] == [line["value"] for line in lines if line["kind"] == "record"]
    everything = ottla("log", "dump", str(kafka.log_dir))
    assert (0, "") == (everything.status, everything.err), [
        each for each in everything.out.splitlines() if "DAMAGE" in each
    ]
