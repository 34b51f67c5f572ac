"""What the command line's tests share: one broker for all that talk to one, and `ottla` to talk to it."""

import logging
from collections.abc import Iterator

import pytest

from tests.unit.cli.command_line import CommandLine
from tests.unit.client.broker_process import running_broker


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker's address."""
    with running_broker(tmp_path_factory.mktemp("broker") / "data") as address:
        yield address


@pytest.fixture
def ottla(broker: str, capfd: pytest.CaptureFixture[str]) -> CommandLine:
    """The command."""
    return CommandLine(broker, capfd)


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Commands set up logging to the stderr of their test, which is closed when the next test logs."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    yield
    root.setLevel(level)
    for added in [each for each in root.handlers if each not in handlers]:
        root.removeHandler(added)
