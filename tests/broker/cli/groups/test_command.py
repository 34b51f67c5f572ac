"""`ottla groups` against a real Ottla broker, and command lines that it refuses."""

from pathlib import Path

import pytest

from tests.broker.cli.command_scenarios import Scenario
from tests.broker.cli.group_scenarios import SCENARIOS, WRONG_USAGE
from tests.unit.cli.command_line import CommandLine

pytestmark = pytest.mark.ottla_broker({"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "3"})


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_scenario(scenario: Scenario, ottla: CommandLine, tmp_path: Path) -> None:
    scenario(ottla, tmp_path)


@pytest.mark.parametrize("arguments", WRONG_USAGE, ids=" ".join)
def test_wrong_usage_ends_with_2_and_words(arguments: tuple[str, ...], capfd: pytest.CaptureFixture[str]) -> None:
    done = CommandLine("127.0.0.1:1", capfd)(*arguments)
    assert (2, "") == (done.status, done.out)
    assert done.err
    assert "Traceback" not in done.err
