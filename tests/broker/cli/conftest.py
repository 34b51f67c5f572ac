"""What the command line's tests share: one broker for all that talk to one, and `ottla` to talk to it."""

from collections.abc import Iterator

import pytest

from tests.broker.client.broker_process import running_broker
from tests.unit.cli.command_line import CommandLine
from tests.unit.cli.conftest import logging_as_before

__all__ = ["logging_as_before"]


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker's address."""
    with running_broker(tmp_path_factory.mktemp("broker") / "data") as address:
        yield address


@pytest.fixture
def ottla(broker: str, capfd: pytest.CaptureFixture[str]) -> CommandLine:
    """The command."""
    return CommandLine(broker, capfd)
