"""What the command line's tests share: one broker for all that talk to one, and `ottla` to talk to it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.broker.conftest import settings_of
from tests.broker_process import STEADY, BrokerProcess
from tests.processes import OTTLA, Program
from tests.unit.cli.command_line import CommandLine
from tests.unit.cli.conftest import logging_as_before

__all__ = ["logging_as_before"]


@pytest.fixture(scope="session")
def shared_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """The broker of all tests that do not harm others."""
    with BrokerProcess(tmp_path_factory.mktemp("broker"), settings=STEADY) as broker:
        yield broker


@pytest.fixture(scope="module")
def process(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """The broker of a module with the mark `ottla_broker`, which has its settings."""
    with BrokerProcess(tmp_path_factory.mktemp("broker"), settings=settings_of(request)) as broker:
        yield broker


@pytest.fixture(scope="module")
def bootstrap(request: pytest.FixtureRequest) -> str:
    """The address of the module's broker, if it has one, else of the one that all share."""
    is_marked = request.node.get_closest_marker("ottla_broker") is not None
    process: BrokerProcess = request.getfixturevalue("process" if is_marked else "shared_process")
    return process.address


@pytest.fixture
def ottla(bootstrap: str, capfd: pytest.CaptureFixture[str]) -> CommandLine:
    """The command."""
    return CommandLine(bootstrap, capfd)


@pytest.fixture
def start(bootstrap: str, tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """Starts commands, which are killed at the end."""
    with ExitStack() as started:

        def start(command: str, *arguments: str, **options: Any) -> Program:
            words = [*OTTLA, command, *arguments, "--bootstrap", bootstrap]
            return started.enter_context(Program(words, tmp_path / command, **options))

        yield start
