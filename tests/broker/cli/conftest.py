"""What the command line's tests share: one broker for all that talk to one, and `ottla` to talk to it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.broker_process import STEADY, BrokerProcess
from tests.processes import OTTLA, Program
from tests.unit.cli.command_line import CommandLine
from tests.unit.cli.conftest import logging_as_before

__all__ = ["logging_as_before"]


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker's address."""
    with BrokerProcess(tmp_path_factory.mktemp("broker"), settings=STEADY) as broker:
        yield broker.address


@pytest.fixture
def ottla(broker: str, capfd: pytest.CaptureFixture[str]) -> CommandLine:
    """The command."""
    return CommandLine(broker, capfd)


@pytest.fixture
def start(broker: str, tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """Starts commands, which are killed at the end."""
    with ExitStack() as started:

        def start(command: str, *arguments: str, **options: Any) -> Program:
            words = [*OTTLA, command, *arguments, "--bootstrap", broker]
            return started.enter_context(Program(words, tmp_path / command, **options))

        yield start
